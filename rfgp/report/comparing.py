"""Comparison of a model, and of other features of the same size, with the exact process."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import graphs
from rfgp.approximations import Approximation, InducingPoints, RandomFeatures, SparsePrecision
from rfgp.approximations import Exact as ExactTerm
from rfgp.approximations.nodes import NONZEROS_PER_WALKER, has_small_precision
from rfgp.compare import WALKS, Comparison, Exact, Plan, distance_from_exact
from rfgp.compare.protocol import Case, Report, node_case, row_case, run_comparison
from rfgp.couplings import Coupling, Energy, by_name, name_of
from rfgp.effects.variables import input_frame
from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError
from rfgp.fields import Field
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.messages import changed_arguments, counted
from rfgp.metrics import kl_divergence
from rfgp.report.processes import describe_process, num_nonzeros
from rfgp.tables import Table

EXACT_ROWS = 800
"""The maximum number of training rows, at random, on which a model of a table is compared with the exact process."""

EXACT_NODES = 5000
"""The maximum number of nodes of a graph on which features are compared with the exact process by eigenvectors."""

EXACT_NODES_BY_PRECISION = 20_000
"""The maximum number of nodes if the exact process has a sparse precision; random walks on more nodes take minutes."""

DISTANCE = "1min"
"""The most predicted time of the exact process given all rows; it suffices for 15,000 rows on one core."""
SOLVED = 1e-2
"""The relative residual above which the exact process is not accurate."""
_TEST_POINTS = 300
_DRAWS = 5
_OTHER_WALKS = ("iid", "systematic", "stratified")


class Compared(NamedTuple):
    """A comparison, or the reason why there is none, with the method and the size of the model."""

    comparison: Comparison | None
    remark: str
    method_and_size: tuple[str, int] | None = None


NOT_COMPARED = Compared(None, "The comparison with the exact process was switched off.")
EXACT = "The model is exact: nothing is approximated."
_NOISE = "Models whose noise is a process of its own are not compared with the exact process."


def coupling_label(coupling: str | Coupling) -> str:
    """Return the name of a coupling, or its repr if it has no name.

    Args:
        coupling: The coupling, or its name.
    """
    if isinstance(coupling, str):
        return coupling
    try:
        name = name_of(coupling)
    except InvalidArgumentError:
        return repr(coupling)
    is_named = not isinstance(coupling, Energy) and repr(by_name(name)) == repr(coupling)  # the weighted Energy is
    return name if is_named else repr(coupling)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Training rows and held-out rows of a comparison of a model with the exact process."""

    X: Any  # a dataframe (n, d)
    y: NDArray[np.float64]  # (n,)
    X_test: Any  # a dataframe (k, d)
    y_test: NDArray[np.float64]  # (k,)

    @property
    def words(self) -> str:
        """A sentence about the numbers of rows."""
        return (
            f"The exact process and the model are given the same {counted(len(self.y), 'training row')} and predict "
            f"the same {counted(len(self.y_test), 'held-out row')}, with the fitted hyperparameters"
        )


def compare_rows(
    table: Table,
    model: GP,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    show: Report,
) -> Compared:
    """Return the comparison of a fitted model of a table with its exact process.

    Both are conditioned on some of the training rows, and predict some of the held-out rows.

    Args:
        table: The table.
        model: The model, fitted to the training rows.
        train: The positions (n,) of the training rows.
        test: The positions (k,) of the held-out rows.
        title: The name of the table.
        seed: The seed of the draws.
        show: A function that is called with the progress.
    """
    model = _with_fixed_frequencies(model)
    if (remark := without_comparison(model)) is not None:
        return Compared(None, remark)
    frame, near, far = input_frame(table, model), train[:EXACT_ROWS], test[:_TEST_POINTS]
    rows = _Rows(frame.iloc[near], table.y[near], frame.iloc[far], table.y[far])
    distance = _distance_on_all_rows(model, frame.iloc[test])
    name = _term_of_features(model)
    if name is None:
        return Compared(None, _of_other_approximations(model, rows) + distance)
    small = of_rows(model, rows.X, rows.y)
    method, m, make = _fitted_features(small, name)
    methods = [*(other_method for other_method in _other_couplings(small, name) if other_method != method), method]
    sizes = sorted({max(2, size - size % 2) for size in (m // 4, m // 2)} | {m})  # even, for antithetic pairs
    used = small.spec.approximations
    kind = getattr(used[name], "kind", "fourier")
    others = {other: approximation for other, approximation in used.items() if other != name}
    both = pd.concat([rows.X, rows.X_test])

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return row_case(small.exact(), rows.X_test, rows.y_test, both, kind, start, {method: make}, others, name)

    remark = f"{rows.words}. Each method has {_DRAWS} draws{_of_term(used, name)}."
    comparison = run_comparison(title, remark, "frequencies", methods, sizes, Plan(1, _DRAWS, seed), run, show)
    return Compared(comparison, remark + distance + _of_bounds(model, len(train)), (method, m))


def _of_term(used: Mapping[str, Approximation], name: str) -> str:
    """Return a phrase that names the compared term, if there are several terms."""
    return "" if len(used) == 1 else f" of the term {name}; other terms keep their approximations"


def _of_bounds(model: GP, count: int) -> str:
    """Return the bounds of the exact log marginal likelihood, or an empty text."""
    try:
        bounds = str(model.evidence_bounds()).replace("The", "the", 1)
    except InvalidArgumentError:
        return ""
    return f" Inducing points are twice as many as m, like features. On all {counted(count, 'training row')} {bounds}"


def _distance_on_all_rows(model: GP, points: Any) -> str:
    """Return the divergence from the exact process given all rows, at points (k, d)."""
    try:
        distance = distance_from_exact(model, points, budget=DISTANCE)
    except (InvalidArgumentError, NotPositiveDefiniteError) as error:
        return f" Given all rows: {error}"
    text = str(distance).replace("given", "Given", 1)
    return f" {text}." if distance.residual <= SOLVED else f" {text}, a residual too large to rely on."


def _with_fixed_frequencies(model: GP) -> GP:
    """Return the model, with fixed frequencies if a fit rejected learned ones."""
    if model.fit_report is None or not model.fit_report.learned_frequencies_rejected:
        return model
    used = model.spec.approximations.items()
    features = {name: approximation for name, approximation in used if isinstance(approximation, RandomFeatures)}
    return model.with_approximation(
        {name: replace(approximation, learn_frequencies=False) for name, approximation in features.items()}
    )


def without_comparison(model: GP) -> str | None:
    """Return the reason why there is no comparison with an exact process, or None.

    Args:
        model: The fitted model.
    """
    used = model.spec.approximations.values()
    if all(isinstance(entry, ExactTerm | SparsePrecision) for entry in used):
        return EXACT
    if any(isinstance(entry, RandomFeatures) and entry.learn_frequencies for entry in used):
        return (
            "The frequencies are learned. They are a kernel of their own and approximate no other, so that there is no "
            "exact process to compare with."
        )
    return None if model.spec.is_gaussian or not model.spec.options.likelihood.has_noise_process else _NOISE


def _term_of_features(model: GP) -> str | None:
    """Return the first term with random features or inducing points, or None."""
    used = model.spec.approximations.items()
    return next(
        (name for name, approximation in used if isinstance(approximation, RandomFeatures | InducingPoints)), None
    )


def _other_couplings(model: GP, name: str) -> tuple[str, ...]:
    """Return the couplings with which the random features of a term are compared."""
    data = model.spec.term_data(model.state.hyperparameters, model.num_observations)
    (term,) = (entry for entry in data if entry.term.name == name)
    return ("iid", "orthogonal") if RandomFeatures(2).unsupported_reason(term) is None else ()


def _of_other_approximations(model: GP, rows: _Rows) -> str:
    """Return the divergence of a model without features from the exact process."""
    small = of_rows(model, rows.X, rows.y)
    exact, approximate = (gp.predict(rows.X_test) for gp in (small.exact(), small))
    divergence = max(float(kl_divergence(exact, approximate, per_point=True)), 0.0)
    return f"{rows.words}. The KL from the exact process is {divergence:.2g} nats a point."


def of_rows(
    model: GP,
    X: Any,  # a dataframe (n, d)
    y: NDArray[np.float64],  # (n,)
) -> GP:
    """Return the model conditioned on other rows, with the same hyperparameters and new draws.

    Args:
        model: The model.
        X: The inputs, a dataframe (n, d).
        y: The targets (n,).
    """
    small = model.with_approximation(dict(model.spec.approximations)).condition(X, y)
    return small.with_approximation(dict(model.spec.approximations))


def _fitted_features(model: GP, name: str) -> tuple[str, int, Callable[[int, int], GP]]:
    """Return the name and m of a term's features, and their factory of (m, seed)."""
    approximation = model.spec.approximations[name]
    if isinstance(approximation, InducingPoints):
        points, count = approximation, model.state.prior().of([name]).num_features
        half = max(1, count // 2)
        label = (
            "residual"
            if approximation.residual is not None
            else {"sor": "nystrom"}.get(str(approximation.method), approximation.method)
        )

        def of_points(m: int, seed: int) -> GP:
            size = count if m == half else 2 * m
            return model.with_approximation({name: replace(points, num_points=size, seed=seed)})

        return str(label or "fitc"), half, of_points
    assert isinstance(approximation, RandomFeatures)
    features = approximation

    def of_frequencies(m: int, seed: int) -> GP:
        return model.with_approximation({name: replace(features, num_frequencies=m, seed=seed)})

    return coupling_label(approximation.coupling), approximation.num_frequencies, of_frequencies


def compare_nodes(
    field: Field,
    model: GraphGP,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    show: Report,
) -> Compared:
    """Return the comparison of a fitted model of a field with its exact process.

    Both are conditioned on the training observations, and predict the held-out ones.

    Args:
        field: The field.
        model: The model, fitted to the training observations.
        train: The positions (n,) of the training observations.
        test: The positions (k,) of the held-out observations.
        title: The name of the field.
        seed: The seed of the draws.
        show: A function that is called with the progress.
    """
    by_precision = has_small_precision(field.graph, model.fitted_kernel)
    if field.graph.num_nodes > (EXACT_NODES_BY_PRECISION if by_precision else EXACT_NODES):
        remark = (
            f"The exact process was not computed: {field.graph.num_nodes:,} nodes are more than "
            f"{EXACT_NODES_BY_PRECISION if by_precision else EXACT_NODES:,}."
        )
        if model.is_exact:
            return Compared(None, f"{remark} The model itself is exact.")
        return Compared(None, f"{remark} Estimate of the error without it: {model.diagnose(seed=seed)}.")
    hidden, y = list(field.nodes[test[:_TEST_POINTS]]), field.values[test[:_TEST_POINTS]]
    p_halt, method, m = model.walk_options.p_halt, _fitted_method(model), _fitted_size(model)

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return node_case(model.exact(), hidden, y, p_halt, start, named=factories)

    factories = {} if method is None or method in WALKS else {method: _at_size(model, m)}
    methods = [*(name for name in _OTHER_WALKS if name != method), *([method] if method else [])]
    sizes = sorted({max(2, m // 4), m} if not _other_options(model) else {m})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        remark = _remark(model, m, len(train), len(hidden))
        plan = Plan(1, _DRAWS, seed)
        comparison = run_comparison(title, remark, "walkers", methods, sizes, plan, run, show)
    walks = next((str(w.message) for w in caught if issubclass(w.category, graphs.GraphWarning)), None)
    for entry in caught:
        if not issubclass(entry.category, graphs.GraphWarning):
            warnings.warn(entry.message, stacklevel=3)
    remark += "" if walks is None else f" Warning about the walks of this comparison: {walks}"
    return Compared(comparison, remark, (method, m) if method else None)


def _remark(model: GraphGP, m: int, num_train: int, num_hidden: int) -> str:
    remark = (
        f"The exact process and the features are given the same {counted(num_train, 'observation')} and predict the "
        f"same {num_hidden} held-out ones, with the fitted hyperparameters. Random features have {_DRAWS} draws each."
    )
    if model.is_exact:
        return f"{remark} The model itself is exact; random walks are shown for comparison."
    if model.features == "walks":
        return remark
    return (
        f"{remark} The model itself, {describe_process(model)}, is shown at m = {m}, since it has as many features a "
        f"node as {counted(m, 'walker')}, at {NONZEROS_PER_WALKER} for each."
    )


def _fitted_method(model: GraphGP) -> str | None:
    """Return the name of the features of the model. For coupled walks it is that of the coupling."""
    if model.features != "walks":
        return None if model.is_exact else model.features
    if _other_options(model):
        return "walks"
    options = model.walk_options.options
    names = (name for name, entry in WALKS.items() if name != "sigma" and entry.items() <= options.items())
    return next(names, "walks")


def _other_options(model: GraphGP) -> set[str]:
    """Return the changed options of walks that do not belong to a coupling."""
    changed = {name for name, _ in changed_arguments(model.walk_options)}
    return changed - {"num_walkers", "p_halt", "seed", *WALKS["iid"]}


def _fitted_size(model: GraphGP) -> int:
    """Return the number of walkers that have as many features as the model."""
    if model.is_exact or model.features == "walks":
        return int(model.walk_options.num_walkers)
    return max(1, -(-num_nonzeros(model) // (NONZEROS_PER_WALKER * model.num_observations)))


def _at_size(model: GraphGP, m: int) -> Callable[[int, int], GraphGP]:
    """Return a function that makes the model with features of a size and a seed."""
    sizes = model.feature_size or {"num_walkers": m}

    def make(size: int, seed: int) -> GraphGP:
        scaled = {name: max(1, value * size // m) for name, value in sizes.items()}
        return model.with_approximation(replace(model.approximation, seed=seed, **scaled))

    return make
