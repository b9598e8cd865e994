"""The tables of docs/explanations/fit.md are those of the code, and its block prints the output that stands below it.

`PYTHONPATH=.:tests/support python -m tests.house.test_defaults` draws them again.
"""

import contextlib
import importlib
import io
import re
from pathlib import Path

import numpy as np
import pytest
import trimesh
from field_cases import network, ring

import graphs
import rfgp
from rfgp import kernels as k

PAGE = Path(__file__).parents[2] / "docs" / "explanations" / "fit.md"
PARTS = re.compile(r"(<!-- drawn: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)

# --- data in standard units, so that standardized values are those of the user ---------------------------------------

COLUMNS = ("a", "b", "c", "d")
NET, GRAPH, BALL = network(), ring(), trimesh.creation.icosphere(1)
TARGETS = {
    "counts": lambda rng, size: rng.poisson(2.0, size),
    "positive": lambda rng, size: rng.gamma(2.0, size=size),
    "shares": lambda rng, size: rng.uniform(0.1, 0.9, size),
    "labels": lambda rng, size: rng.permutation(size) % 2,
}


def in_units(x):
    return (x - x.mean(0)) / x.std(0, ddof=1)


def data_of(kind, size=60):
    """Return a table with columns of all kinds, and targets of one kind."""
    rng = np.random.default_rng(0)
    table = {name: in_units(rng.normal(size=size)) for name in COLUMNS}
    table |= {"group": np.tile(list("pqrs"), size // 4), "node": [f"n{i % 40}" for i in range(size)]}
    table |= {"lon": rng.uniform(0, 50, size), "lat": rng.uniform(0, 50, size)}
    table |= {"road": rng.integers(0, 3, size), "fraction": rng.uniform(0, 1, size)}
    table |= dict(zip("xyz", BALL.vertices[rng.integers(0, len(BALL.vertices), size)].T, strict=True))
    return table, TARGETS[kind](rng, size) if kind in TARGETS else in_units(rng.normal(size=size))


def quantity(path, kernel, likelihood="gaussian", kind="numbers", approximation=None):
    """Return start and bounds of a hyperparameter, and the name of its default prior."""
    approximation = rfgp.Exact() if approximation is None else approximation
    gp = rfgp.GP(kernel, likelihood, approximation, seed=0).condition(*data_of(kind))
    space = gp.hyperparameters.space
    name = gp.hyperparameters.path(path)
    found, prior = space.quantities[name], space.hyperpriors.get(name)
    numbers = (float(end.reshape(-1)[0]) for end in (found.start, *found.bounds))
    return (*numbers, "none" if prior is None else shown(prior))


def shown(prior):
    """Return a prior as text."""
    if isinstance(prior, rfgp.priors.HalfNormalDeviation):
        return f"`HalfNormalDeviation({prior.scale:g})`"
    return {"BoundaryAvoiding": "log density log(noise) / 2"}[type(prior).__name__]


STATIONARY = [k.RBF, k.Matern, k.RationalQuadratic, k.Stationary]
IN_DEVIATIONS, IN_VARIANCES = "standard deviations of the column", "variances of the target"
DIFFUSION = graphs.kernels.Diffusion(lengthscale=1.0)
HYPERPARAMETERS = {
    ("`lengthscale`, one column", "`RBF`, `Matern`, `RationalQuadratic`, `Stationary`", IN_DEVIATIONS): [
        ("lengthscale", kernel("a")) for kernel in STATIONARY
    ],
    ("`lengthscale`, 4 columns", "the same: sqrt(number of columns)", IN_DEVIATIONS): [
        ("lengthscale", kernel(COLUMNS)) for kernel in STATIONARY
    ],
    ("`lengthscale`, second term on the same column", "the same", IN_DEVIATIONS): [
        ("matern(a).lengthscale", k.RBF("a") + k.Matern("a"))
    ],
    ("`rotation`", '`rotation="learn"`', "radians"): [("rotation", k.RBF(("a", "b"), rotation="learn"))],
    ("`lengthscale`", "`Periodic`, `Harmonics`", "lengths of the sine"): [
        ("lengthscale", kernel("a", 1.0)) for kernel in (k.Periodic, k.Harmonics)
    ],
    ("`period`", "`learn_period=True`, otherwise fixed", "given periods"): [
        ("period", k.Periodic("a", 1.0, learn_period=True))
    ],
    ("`lengthscale`", "`Roads`, `Mesh`", "extents of the domain"): [
        ("lengthscale", k.Roads(NET), float(k.Roads(NET).domain.extent)),
        ("lengthscale", k.Mesh(BALL), float(k.Mesh(BALL).domain.extent)),
    ],
    ("a parameter of `Nodes`", "`Diffusion(lengthscale=1)`: as given", "the kernel's own"): [
        ("lengthscale", k.Nodes(GRAPH, DIFFUSION))
    ],
    ("`outputscale`", "each kernel without its own `variance`", IN_VARIANCES): [("outputscale", k.RBF("a"))],
    ("`outputscale`, two terms", "the same: one over the number of terms", IN_VARIANCES): [
        ("group(group).outputscale", k.RBF("a") + k.Group("group"))
    ],
    ("`outputscale`, second term on the same column", "the same", IN_VARIANCES): [
        ("matern(a).outputscale", k.RBF("a") + k.Matern("a"))
    ],
    ("`variance`, one column", "`Linear`, `Wiener`, `IntegratedWiener`", f"{IN_VARIANCES}, standardized column"): [
        ("variance", kernel("a")) for kernel in (k.Linear, k.Wiener, k.IntegratedWiener)
    ],
    ("`variance`, 4 columns", "`Linear`: one over the number of columns", f"{IN_VARIANCES}, standardized column"): [
        ("variance", k.Linear(COLUMNS))
    ],
    ("`offset`", "`Polynomial`", "standardized columns"): [("offset", k.Polynomial("a"))],
    ("`correlation`", "`Categorical`", "none"): [("correlation", k.Categorical("group"))],
    ("`loadings`, first factor", "`Coregionalization`", "none"): [("loadings", k.Coregionalization("group"))],
    ("`diagonal`", "`Coregionalization`", "none"): [("diagonal", k.Coregionalization("group"))],
    ("`noise`", "`Exact`, `RandomFeatures`, FITC, `Vecchia`", IN_VARIANCES): [
        ("noise", k.RBF("a"), 1.0, "gaussian", "numbers", approximation)
        for approximation in (None, rfgp.RandomFeatures(8), rfgp.InducingPoints(8), rfgp.Vecchia(5))
    ],
    ("`noise`", "SOR, VFE, `EquispacedFourier`, `SparsePrecision`", IN_VARIANCES): [
        ("noise", k.Matern("a", nu=0.5), 1.0, "gaussian", "numbers", approximation)
        for approximation in (
            *(rfgp.InducingPoints(8, method=method) for method in ("sor", "vfe")),
            *(rfgp.EquispacedFourier(), rfgp.SparsePrecision()),
        )
    ],
    ("`noise`", "`Nodes`, `Roads`, `Mesh`", IN_VARIANCES): [
        ("noise", kernel) for kernel in (k.Nodes(GRAPH, DIFFUSION), k.Roads(NET), k.Mesh(BALL))
    ],
    ("`outputscale`", '`"poisson"`, `"negative-binomial"`', "a robust variance of the log counts"): [
        ("outputscale", k.RBF("a"), None, name, "counts") for name in ("poisson", "negative-binomial")
    ],
    ("`outputscale`", '`"bernoulli"`', "none"): [("outputscale", k.RBF("a"), 1.0, "bernoulli", "labels")],
    ("`dispersion`", '`"negative-binomial"`', "none"): [("dispersion", k.RBF("a"), 1.0, "negative-binomial", "counts")],
    ("`df`", '`"student-t"`', "none"): [("df", k.RBF("a"), 1.0, "student-t")],
    ("`scale`", '`"student-t"`', "standard deviations of the target"): [("scale", k.RBF("a"), 1.0, "student-t")],
    ("`shape`", '`"gamma"`', "none"): [("shape", k.RBF("a"), 1.0, "gamma", "positive")],
    ("`precision`", '`"beta"`', "none"): [("precision", k.RBF("a"), 1.0, "beta", "shares")],
}
"""The rows of the table: three cells, and models whose hyperparameter it shows. A unit of None is the start."""


def number(value):
    """Return a number with four digits, a power of ten as 1e6."""
    return re.sub(r"e([+-])0*(\d)", lambda found: f"e{found[1].strip('+')}{found[2]}", f"{value:.4g}")


def hyperparameters():
    lines = [
        "| hyperparameter | kernel, approximation or likelihood | unit | start | bounds | prior |",
        "|---" * 6 + "|",
    ]
    for cells, models in HYPERPARAMETERS.items():
        found = set()
        for path, kernel, *others in models:
            unit, *rest = others or [1.0]
            *numbers, prior = quantity(path, kernel, *rest)
            found.add((*(number(value / (unit or numbers[0])) for value in numbers), prior))
        assert len(found) == 1, (cells, found)
        ((start, low, high, prior),) = found
        lines.append(f"| {' | '.join(cells)} | {start} | {low} to {high} | {prior} |")
    return lines


# --- constants of the search -----------------------------------------------------------------------------------------

CONSTANTS = {
    "rows of the first search on an equispaced grid": "rfgp.limits.Limits.lattice_rows",
    "multiples of all starting lengthscales that are compared": "rfgp.fitting.starts.STARTS",
    "multiples for one term of a sum after the other": "rfgp.fitting.starts.MULTIPLIERS",
    "gain of an iteration that ends a search, nats (up to 2,000 rows)": "rfgp.fitting.maximize.MIN_GAIN",
    "the same, nats a row (more rows)": "rfgp.fitting.context.TOLERANCE",
    "the same, inducing points": "rfgp.fitting.driver.COARSE",
    "the same, several classes": "rfgp.fitting.driver.CLASS_GAIN",
    "searches with a new basis, at most": "rfgp.fitting.driver.ROUNDS",
}
"""The place of each constant by what it is."""
STATED = {
    "rfgp.limits.Limits.max_exact_rows": "is exact up to {} rows",
    "rfgp.limits.Limits.subset_rows": "random subsets: {} rows or more",
    "rfgp.fitting.subsets.GROWTH": "each {} times larger",
    "rfgp.fitting.subsets.MAX_ROWS": "end at {} rows",
    "rfgp.limits.Limits.min_subset_gain": "gains less than {} nats a row",
    "rfgp.limits.Limits.neighbor_rows": "uses at most {} rows",
    "rfgp.fitting.neighbors.MAX_ROWS_SHARED_NEIGHBORS": "or {} if blocks of rows share neighbors",
    "rfgp.fitting.starts.MATRIX_ROWS": "multiples on {} rows",
    "rfgp.fitting.starts.CLEAR_ADVANTAGE": "must gain {} nats",
    "rfgp.fitting.subsets.APART": "at least {} times longer or shorter",
    "rfgp.fitting.starts.NUM_PEAKS": "{} peaks of the periodogram",
    "rfgp.fitting.starts.NUM_ANGLES": "and {} angles",
    "rfgp.scaling.MAX_RATIO": "exceeds {} robust scales",
    "rfgp.fitting.last_stage.CHECKED_ROWS": "at most {} for features",
}
"""The constants that the prose of the page states, as numbers or as words."""
WORDS = {3: "three", 4: "four", 10: "ten"}


def constant(place):
    """Return a constant of a module or a default of a class, by its place."""
    module, _, name = place.rpartition(".")
    if module.endswith(".Limits"):
        return getattr(rfgp.limits.Limits(), name)
    return getattr(importlib.import_module(module), name)


def constants():
    lines = ["| what | value | where |", "|---|---|---|"]
    for words, place in CONSTANTS.items():
        value = constant(place)
        many = value if isinstance(value, tuple) else (value,)
        text = ", ".join(f"{one:,}" if isinstance(one, int) else number(one) for one in many)
        lines.append(f"| {words} | {text} | `{place.removeprefix('rfgp.').replace('Limits.', '')}` |")
    return lines


def stated(value):
    """Return a number as the prose may have it."""
    return {f"{value:,}" if isinstance(value, int) else number(value), WORDS.get(value, "")} - {""}


# --- the block of the page and its output ----------------------------------------------------------------------------


def output():
    block, stream = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1], io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile(block, PAGE.name, "exec"), {})
    return ["```text", *stream.getvalue().rstrip().splitlines(), "```"]


DRAWN = {"hyperparameters": hyperparameters, "constants": constants, "output": output}


def redrawn(text):
    """Return the page with its parts drawn again."""
    return PARTS.sub(lambda part: part[1] + "\n".join(DRAWN[part[2]]()) + "\n" + part[3], text)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_the_page_shows_the_code(name):
    parts = {part[2]: part[0] for part in PARTS.finditer(PAGE.read_text(encoding="utf-8"))}
    assert redrawn(parts[name]) == parts[name], __doc__


@pytest.mark.parametrize("place", STATED)
def test_the_prose_states_the_constants(place):
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert any(STATED[place].format(one) in page for one in stated(constant(place)))


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
