"""Every kernel and products of two with every approximation: dense algebra, or a refusal that says why.

`PYTHONPATH=tests/support python -m tests.contracts.test_table` draws the matrix of docs/terms.md again.
"""

import functools
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import trimesh
from dense import DenseGP
from field_cases import NEW, ROWS, Y, network, ring
from refusals import refused

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.approximations import Approximation

PAGE = Path(__file__).parents[2] / "docs" / "terms.md"
BEGIN, END = (
    "<!-- drawn by `PYTHONPATH=tests/support python -m tests.contracts.test_table` -->\n",
    "<!-- end of the drawn part -->\n",
)

LEAVES = {
    "RBF": lambda: k.RBF(("hour", "pressure")),
    "Matern": lambda: k.Matern(("hour", "pressure"), nu=1.5),
    "Matern of one column": lambda: k.Matern("hour", nu=1.5),
    "RationalQuadratic": lambda: k.RationalQuadratic("pressure"),
    "Stationary": lambda: k.Stationary("pressure", spectrum="product-laplace"),
    "Sphere": lambda: k.Sphere(("hour", "pressure"), k.RBF(), radius=10.0),
    "Periodic": lambda: k.Periodic("hour", 24.0),
    "Harmonics": lambda: k.Harmonics("hour", 24.0, num_harmonics=3),
    "Wiener": lambda: k.Wiener("hour"),
    "IntegratedWiener": lambda: k.IntegratedWiener("hour"),
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
    "smooth Mesh": lambda: k.Mesh(BALL, np.inf),
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


CLASSES = {
    "P": ("No sparse precision.", "no factor has a sparse precision|not a power of the resolvent"),
    "N": ("Not a kernel on the nodes of one graph.", "no factor on the nodes of exactly one graph"),
    "S": (
        "Not stationary, or no spectral density in closed form.",
        "is not stationary|no spectral measure|no spectral density",
    ),
    "E": (
        "Has an exact form that costs less: `Exact()` has the weights of finitely many functions, and "
        "`SparsePrecision()` serves integer orders.",
        "finitely many functions|has an integer order",
    ),
    "C": ("Reads no columns of numbers.", "reads no column|requires columns of numbers|have no coordinates"),
    "O": (
        'Needs another option: `coupling="iid"`, or no residual. Compiled loops of residuals exist for Gaussian '
        "kernels, and for Matern kernels with nu 0.5, 1.5 or 2.5.",
        "Use coupling=|a residual requires a Gaussian kernel",
    ),
}
"""The classes of reasons by their letters: what the page says, and a pattern of the messages."""
YES = "\N{CHECK MARK}"


def letter(why):
    """Return the letter of the only class of a reason."""
    (found,) = (letter for letter, (_, pattern) in CLASSES.items() if re.search(pattern, why))
    return found


def merged(rows):
    """Return a list of (names, marks) in which names with equal marks are one entry."""
    found = {}
    for name, marks in rows.items():
        found.setdefault(tuple(marks), []).append(name)
    return [(names, marks) for marks, names in found.items()]


def drawn():
    """Return the matrix and the classes of reasons as HTML. Equal rows, and equal columns, are one."""
    reasons = {leaf: [refusal_of(approximation, leaf) for approximation in APPROXIMATIONS] for leaf in LEAVES}
    rows = merged({leaf: [YES if why is None else letter(why) for why in found] for leaf, found in reasons.items()})
    columns = merged(dict(zip(APPROXIMATIONS, zip(*(marks for _, marks in rows), strict=True), strict=True)))
    head = "".join(f"<th><span>{',<br>'.join(names)}</span>\n" for names, _ in columns)
    lines = [f'<table class="matrix">\n<thead><tr><th>kernel\n{head.rstrip()}\n<tbody>']
    for (leaves, _), marks in zip(rows, zip(*(marks for _, marks in columns), strict=True), strict=True):
        cells = [f"<td class={'Y' if mark == YES else mark}>{mark}" for mark in marks]
        lines += [f"<tr><th>{', '.join(leaves)}" + "".join(cells[:4]), "".join(cells[4:])]
    words = {YES: "The approximation serves the kernel."} | {mark: text for mark, (text, _) in CLASSES.items()}
    lines += ["</table>", "", '<table class="matrix reasons">']
    for mark, text in words.items():
        lines.append(
            f"<tr><td class={'Y' if mark == YES else mark}>{mark}<th>" + re.sub("`(.*?)`", r"<code>\1</code>", text)
        )
    lines.append("</table>")
    return "\n".join(lines) + "\n"


def redrawn(text):
    """Return the page with its matrix drawn again."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + drawn() + END + rest.split(END)[1]


def check(approximation, *names):
    """Compare a model with dense algebra of its prior covariance, or expect the refusal."""
    value, why = APPROXIMATIONS[approximation], refusal_of(approximation, *names)
    gp = rfgp.GP(kernel_of(*names), approximation=value, start={"noise": 0.2, "mean": 0.3}, seed=0)
    if why is not None:
        words = "cannot be used for the term 'term', because"
        refused(lambda: gp.condition(ROWS, Y), rfgp.InvalidArgumentError, words)
        return
    gp.condition(ROWS, Y)
    prior = gp.prior_covariance({key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}).detach().numpy()
    expected, found = DenseGP({"term": prior}, Y, np.full(len(Y), 0.2), 0.3), gp.predict(NEW)
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood(), abs=1e-4, rel=1e-6)
    np.testing.assert_allclose(found.mean, expected.mean_at(), atol=1e-5)
    np.testing.assert_allclose(found.variance, np.diag(expected.covariance()), atol=1e-5)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("leaf", LEAVES)
def test_leaves(leaf, approximation):
    check(approximation, leaf)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, len(pairs()), 2))
def test_products(number):
    """Every second pair of kernels has one of the approximations, in turn."""
    check(OF_PRODUCTS[number // 2 % len(OF_PRODUCTS)], *pairs()[number])


@pytest.mark.slow
def test_the_page_shows_the_table():
    text = PAGE.read_text(encoding="utf-8")
    assert redrawn(text) == text, "PYTHONPATH=tests/support python -m tests.contracts.test_table draws it again"


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
