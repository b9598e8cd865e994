"""Which approximation serves which kernel, and which products of two: tables of docs/terms.md.

`python tests/support/term_table.py` draws them again.
"""

import functools
import itertools
from pathlib import Path

import trimesh
from field_cases import ROWS, Y, network, ring

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.approximations import Approximation

PAGE = Path(__file__).parents[2] / "docs" / "terms.md"
BEGIN, END = "<!-- drawn by `python tests/support/term_table.py` -->\n", "<!-- end of the drawn part -->\n"

LEAVES = {
    "RBF": lambda: k.RBF(("hour", "pressure")),
    "Matern": lambda: k.Matern(("hour", "pressure"), nu=1.5),
    "Matern of one column": lambda: k.Matern("hour", nu=1.5),
    "RationalQuadratic": lambda: k.RationalQuadratic("pressure"),
    "Stationary": lambda: k.Stationary("pressure", spectrum="product-laplace"),
    "Periodic": lambda: k.Periodic("hour", 24.0),
    "Linear": lambda: k.Linear("pressure"),
    "Polynomial": lambda: k.Polynomial(("hour", "pressure")),
    "Constant": lambda: k.Constant(),
    "Group": lambda: k.Group("sensor"),
    "Categorical": lambda: k.Categorical("sensor"),
    "Coregionalization": lambda: k.Coregionalization("sensor"),
    "Centered (Additive)": lambda: k.Additive(columns=("pressure",)),
    "Nodes, diffusion": lambda: k.Nodes(GRAPH, "diffusion"),
    "Nodes, Matern of order 2": lambda: k.Nodes(GRAPH, graphs.kernels.Matern(nu=2, kappa=1.5)),
    "Nodes, Matern of order 1.5": lambda: k.Nodes(GRAPH, graphs.kernels.Matern(nu=1.5, kappa=1.5)),
    "Roads": lambda: k.Roads(NET),
    "Mesh": lambda: k.Mesh(BALL),
}
GRAPH, NET, BALL = ring(), network(), trimesh.creation.icosphere(1)
APPROXIMATIONS: dict[str, Approximation] = {
    "Exact": rfgp.Exact(),
    "RandomFeatures": rfgp.RandomFeatures(8),
    "EquispacedFourier": rfgp.EquispacedFourier(),
    "InducingPoints": rfgp.InducingPoints(12),
    "InducingPoints, residual": rfgp.InducingPoints(12, residual=rfgp.Vecchia(100, condition_on="responses")),
    "Vecchia": rfgp.Vecchia(100, condition_on="responses"),
    "SparsePrecision": rfgp.SparsePrecision(),
    "RationalPrecision": rfgp.RationalPrecision(2),
    "RandomWalks": rfgp.RandomWalks(4, exact_hops=0),
    "TruncatedSpectrum": rfgp.TruncatedSpectrum(6),
    "Chebyshev": rfgp.Chebyshev(3),
    "Taylor": rfgp.Taylor(3),
}
OF_PRODUCTS = (
    "Exact",
    "RandomFeatures",
    "InducingPoints",
    "InducingPoints, residual",
    "Vecchia",
    "SparsePrecision",
    "RandomWalks",
    "TruncatedSpectrum",
)
"""The approximations whose products are compared with dense algebra."""


def kernel_of(*names):
    """Return a leaf, or the product of two."""
    found = LEAVES[names[0]]()
    return found.named("term") if len(names) == 1 else (found * LEAVES[names[1]]()).named("term")


@functools.cache
def data_of(*names):
    """Return the data of the term of a kernel."""
    gp = rfgp.GP(kernel_of(*names), approximation=rfgp.Exact(), seed=0).condition(ROWS, Y)
    return gp.spec.term_data(gp.hyperparameters.values, len(Y))[0]


def refusal_of(approximation, *names):
    """Return why an approximation cannot serve a kernel, or None."""
    return APPROXIMATIONS[approximation].unsupported_reason(data_of(*names))


def pairs():
    """Return all products of two different leaves, and of each with itself."""
    return list(itertools.combinations_with_replacement(LEAVES, 2))


def drawn():
    """Return the tables as Markdown."""
    lines = ["| kernel | " + " | ".join(APPROXIMATIONS) + " |", "|---" * (len(APPROXIMATIONS) + 1) + "|"]
    reasons = {}
    for leaf in LEAVES:
        cells = []
        for approximation in APPROXIMATIONS:
            why = refusal_of(approximation, leaf)
            cells.append("yes" if why is None else f"[{reasons.setdefault(why, len(reasons) + 1)}]")
        lines.append(f"| {leaf} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {why[0].upper()}{why[1:]}" for why, number in reasons.items())]
    lines += [
        "",
        f"Supported products of two kernels of the table, of {len(pairs())} pairs. Most pairs share columns:",
        "",
    ]
    for approximation in APPROXIMATIONS:
        refused = [pair for pair in pairs() if refusal_of(approximation, *pair) is not None]
        lines.append(f"- {approximation}: {len(pairs()) - len(refused)}")
    return "\n".join(lines) + "\n"


def redrawn(text):
    """Return the page with its tables drawn again."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + drawn() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
