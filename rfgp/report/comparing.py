"""The model of a report against the exact process, beside other features of the same size."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from rfgp.approximations import InducingPoints, RandomFeatures
from rfgp.approximations.measured import has_small_precision
from rfgp.approximations.node_features import NONZEROS_PER_WALKER
from rfgp.compare import WALKS, Comparison, Exact, Plan, distance_from_exact
from rfgp.compare.protocol import Case, Report, node_case, row_case, run_comparison
from rfgp.counts import counted
from rfgp.couplings import Coupling, Energy, by_name, name_of
from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError
from rfgp.fields import Field
from rfgp.metrics import kl_divergence
from rfgp.models import SparseSpectrumGP, TableGP
from rfgp.models.gp import GP
from rfgp.models.graph import GraphGP
from rfgp.regression import FeatureOptions, InducingOptions
from rfgp.report.processes import describe_process, num_nonzeros
from rfgp.tables import Table
from rfgp.values import changed_arguments

TableModel = SparseSpectrumGP | TableGP

EXACT_ROWS = 800
"""Training rows, at random, on which an approximation on a table is compared with the exact process."""

EXACT_NODES = 5000
"""The largest graph on which features are compared with the exact process by eigenvectors."""

EXACT_NODES_BY_PRECISION = 20_000
"""The same where the exact process goes through a sparse precision: what walks on more nodes take is minutes."""

DISTANCE = "1min"
"""What the exact process given all rows may take in a report, as predicted: some 15,000 rows on one core."""
SOLVED = 1e-2
"""The relative residual beyond which the exact process is not known."""
_TEST_POINTS = 300
_DRAWS = 5
_OTHER_WALKS = ("iid", "systematic", "stratified")


class Compared(NamedTuple):
    """The comparison of a `Study`, or why there is none; and which method and size of it is the model's own."""

    comparison: Comparison | None
    remark: str
    own: tuple[str, int] | None = None


NOT_ASKED = Compared(None, "The comparison with the exact process was not asked for.")


def coupling_label(coupling: str | Coupling) -> str:
    """Return a coupling's name, or its description where it has options or is the user's own."""
    if isinstance(coupling, str):
        return coupling
    try:
        name = name_of(coupling)
    except InvalidArgumentError:
        return repr(coupling)
    is_other = isinstance(coupling, Energy) or repr(by_name(name)) != repr(
        coupling
    )  # the name is the weighted Energy's
    return repr(coupling) if is_other else name


def compare_rows(
    table: Table,
    model: TableModel,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    tell: Report,
) -> Compared:
    """Compare a fitted model of a table on some of its training rows (n,) and held-out rows (k,)."""
    rows, points = train[:EXACT_ROWS], test[:_TEST_POINTS]
    X, y = table.X[points], table.y[points]
    if (remark := _without_twin(model)) is not None:
        return Compared(None, remark)
    if not isinstance(model.options, FeatureOptions | InducingOptions):
        return Compared(None, _of_neighbors(model, table, rows, points) + _of_all(model, table, test))
    small = of_rows(model, table, rows)
    both = np.concatenate([table.X[rows], X])
    own, m, make = _own_rows(small)
    methods = [*(name for name in ("iid", "orthogonal") if name != own), own]
    sizes = sorted({max(2, size - size % 2) for size in (m // 4, m // 2)} | {m})  # even, for antithetic pairs
    kind = model.options.features if isinstance(model.options, FeatureOptions) else "fourier"
    others = dict(list(small.family.approximations.items())[1:])

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return row_case(small.exact(), X, y, both, kind, start, {own: make}, others)

    remark = (
        f"The exact process and the features condition on the same {counted(len(rows), 'training row')} and "
        "predict the same "
        f"{counted(len(points), 'held-out row')}, with the hyperparameters fitted above; {_DRAWS} draws each."
    )
    comparison = run_comparison(title, remark, "frequencies", methods, sizes, Plan(1, _DRAWS, seed), run, tell)
    remark += _of_all(model, table, test)
    if isinstance(model, TableGP) and isinstance(model.options, InducingOptions):
        bounds = str(model.evidence_bounds()).replace("The", "the", 1)
        remark += (
            " Inducing points are twice as many as m, like features. On all "
            f"{counted(len(train), 'training row')} {bounds}"
        )
    return Compared(comparison, remark, (own, m))


def _of_all(model: TableModel, table: Table, test: NDArray[np.int64]) -> str:
    """Say how far a model is from the exact process given all rows that it has, or why that is not known."""
    try:
        found = distance_from_exact(model, table.X[test], budget=DISTANCE)
    except (InvalidArgumentError, NotPositiveDefiniteError) as error:
        return f" Given all rows: {error}"
    said = str(found).replace("given", "Given", 1)
    return f" {said}." if found.residual <= SOLVED else f" {said}, which is not far enough to rely on it."


def _without_twin(model: TableModel) -> str | None:
    """Say why a model is compared with no exact process, where it is not."""
    if model.options.features == "exact":
        return "The process is exact: nothing of it is approximated."
    if isinstance(model.options, FeatureOptions) and model.options.frequencies == "learned":
        return (
            "Learned frequencies are a kernel of their own, and no estimate of another: there is no exact process that "
            "they are compared with."
        )
    return None


def _of_neighbors(model: TableModel, table: Table, rows: NDArray[np.int64], points: NDArray[np.int64]) -> str:
    """Say how far a local process is from the exact one, given some training rows (n,), at held-out rows (k,)."""
    small = of_rows(model, table, rows)
    there = table.X[points]
    divergence = float(kl_divergence(small.exact().predict(there), small.predict(there), per_point=True))
    return (
        f"Given the same {counted(len(rows), 'training row')}, the exact process is "
        f"{max(divergence, 0.0):.2g} nats of KL a point "
        f"from this one at {counted(len(points), 'held-out row')}, with the hyperparameters fitted above."
    )


def of_rows(model: TableModel, table: Table, rows: NDArray[np.int64]) -> GP:
    """Return the model of some rows (n,) of a table, with the same hyperparameters and draws made for these rows."""
    small = model.with_approximation(dict(model.family.approximations))
    return small.condition(table.X[rows], table.y[rows]).with_approximation(dict(model.family.approximations))


def _own_rows(model: GP) -> tuple[str, int, Callable[[int, int], GP]]:
    """Return what the model's features are called, their m, and what makes them in another size, with a seed."""
    name, own = next(iter(model.family.approximations.items()))
    if isinstance(own, InducingPoints):
        count, points = model.regression.prior().num_features, own
        half = max(1, count // 2)
        label = "residual" if own.residual is not None else {"sor": "nystrom"}.get(str(own.method), own.method)

        def of_points(m: int, seed: int) -> GP:
            size = count if m == half else 2 * m
            return model.with_approximation({name: replace(points, num_points=size, seed=seed)})

        return str(label), half, of_points
    assert isinstance(own, RandomFeatures)
    features = own

    def of_frequencies(m: int, seed: int) -> GP:
        return model.with_approximation({name: replace(features, num_frequencies=m, seed=seed)})

    return coupling_label(own.coupling), own.num_frequencies, of_frequencies


def compare_nodes(
    field: Field,
    model: GraphGP,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    tell: Report,
) -> Compared:
    """Compare a fitted model of a field, given observations (n,), on held-out ones (k,), with the exact process."""
    by_precision = has_small_precision(field.graph, model.fitted_kernel)
    if field.graph.num_nodes > (EXACT_NODES_BY_PRECISION if by_precision else EXACT_NODES):
        remark = (
            f"The exact process was not computed beside: {field.graph.num_nodes:,} nodes are more than "
            f"{EXACT_NODES_BY_PRECISION if by_precision else EXACT_NODES:,}."
        )
        if model.is_exact:
            return Compared(None, f"{remark} The model itself is exact.")
        return Compared(None, f"{remark} Without it the error is known as follows: {model.diagnose(seed=seed)}.")
    hidden, y = list(field.nodes[test[:_TEST_POINTS]]), field.values[test[:_TEST_POINTS]]
    halt, own, m = model.walk_options.halt, _own_method(model), _own_size(model)

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return node_case(model.exact(), hidden, y, halt, start, named=named)

    named = {} if own is None or own in WALKS else {own: _at_size(model, m)}
    methods = [*(name for name in _OTHER_WALKS if name != own), *([own] if own else [])]
    sizes = sorted({max(2, m // 4), m} if not _other_options(model) else {m})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        remark = _remark(model, m, len(train), len(hidden))
        plan = Plan(1, _DRAWS, seed)
        comparison = run_comparison(title, remark, "walkers", methods, sizes, plan, run, tell)
    walks = next((str(w.message) for w in caught if issubclass(w.category, graphs.GraphWarning)), None)
    for entry in caught:
        if not issubclass(entry.category, graphs.GraphWarning):
            warnings.warn(entry.message, stacklevel=3)
    remark += "" if walks is None else f" About the walks of this comparison: {walks}"
    return Compared(comparison, remark, (own, m) if own else None)


def _remark(model: GraphGP, m: int, num_train: int, num_hidden: int) -> str:
    remark = (
        f"The exact process and the features condition on the same {counted(num_train, 'observation')} and "
        "predict the same "
        f"{num_hidden} held-out ones, with the hyperparameters fitted above; {_DRAWS} draws each of what is random."
    )
    if model.is_exact:
        return f"{remark} The model itself is exact; walks would do as shown."
    if model.features == "walks":
        return remark
    return (
        f"{remark} The model in use, {describe_process(model)}, stands at m = {m}: it has as many features a node as "
        f"{counted(m, 'walker')}, at {NONZEROS_PER_WALKER} for each."
    )


def _own_method(model: GraphGP) -> str | None:
    """Return the name of the features in use, and for walks that of their coupling if it has one."""
    if model.features != "walks":
        return None if model.is_exact else model.features
    if _other_options(model):
        return "walks"
    options = model.walk_options.options
    names = (name for name, entry in WALKS.items() if name != "sigma" and entry.items() <= options.items())
    return next(names, "walks")


def _other_options(model: GraphGP) -> set[str]:
    """Return the names of the options of walks that differ from the usual ones and are not of a coupling."""
    changed = {name for name, _ in changed_arguments(model.walk_options)}
    return changed - {"num_walkers", "halt", "seed", *WALKS["iid"]}


def _own_size(model: GraphGP) -> int:
    """Return the number of walkers that have as many features as the model."""
    if model.is_exact or model.features == "walks":
        return int(model.walk_options.num_walkers)
    return max(1, -(-num_nonzeros(model) // (NONZEROS_PER_WALKER * model.num_observations)))


def _at_size(model: GraphGP, m: int) -> Callable[[int, int], GraphGP]:
    """Return a function that makes the model with features of another size, given a seed."""
    sizes = model.feature_size or {"num_walkers": m}

    def make(size: int, seed: int) -> GraphGP:
        scaled = {name: max(1, value * size // m) for name, value in sizes.items()}
        return model.with_approximation(replace(model.approximation, seed=seed, **scaled))

    return make
