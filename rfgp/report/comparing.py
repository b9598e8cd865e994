"""Comparison of a model, and of other features of the same size, with the exact process."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import graphs
from rfgp.approximations import Exact, InducingPoints, RandomFeatures, SparsePrecision
from rfgp.approximations.nodes import NONZEROS_PER_WALKER, has_small_precision
from rfgp.compare import WALKS, Comparison, Plan, distance_from_exact
from rfgp.compare.protocol import Task, features_of_nodes, features_of_rows, measured_nodes, run_comparison
from rfgp.couplings import Coupling, Energy, by_name, name_of
from rfgp.effects.variables import input_frame
from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError
from rfgp.fields import Field
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.kernels import Term
from rfgp.messages import changed_arguments
from rfgp.metrics import kl_divergence
from rfgp.progress import Report
from rfgp.report.page import sentence
from rfgp.rows import gathered
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


def compare_rows(
    table: Table, model: GP, train: NDArray[np.int64], test: NDArray[np.int64], title: str, seed: int, show: Report
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
    if (reason := without_comparison(model)) is not None:
        return Compared(None, reason)
    frame, near, far = input_frame(table, model), train[:EXACT_ROWS], test[:_TEST_POINTS]
    X, X_test, used = frame.iloc[near], frame.iloc[far], dict(model.spec.approximations)
    sizes = {"num_train": len(near), "num_test": len(far)}
    distance = _distance_on_all_rows(model, frame.iloc[test])
    # The draws of a model are kept by `condition`; the comparison has new ones for other rows.
    small = model.with_approximation(used).condition(X, table.y[near]).with_approximation(used)
    name = next((name for name, value in used.items() if isinstance(value, RandomFeatures | InducingPoints)), None)
    if name is None:
        kl = max(float(kl_divergence(small.exact().predict(X_test), small.predict(X_test), per_point=True)), 0.0)
        return Compared(None, sentence("rows_compared", **sizes, kl=kl) + distance)
    method, m, make_own = _own_features(small, name)
    others = {other: value for other, value in used.items() if other != name}
    data = small.spec.term_data(small.state.hyperparameters, small.num_observations)
    (term,) = (entry for entry in data if entry.term.name == name)
    known = ("iid", "orthogonal") if RandomFeatures(2).unsupported_reason(term) is None else ()
    methods = [*(other for other in known if other != method), method]
    remark = sentence("rows_compared", **sizes, draws=_DRAWS, term=name if others else None)

    def prepare(_: int) -> Task:
        exact = small.exact()
        make_other = features_of_rows(exact, name, getattr(used[name], "kind", "fourier"), others=others)

        def make(of: str, size: int, seed: int) -> GP:
            return make_own(size, seed) if of == method else make_other(of, size, seed)

        return Task(exact, X_test, table.y[far], pd.concat([X, X_test]), make)

    counts = sorted({max(2, size - size % 2) for size in (m // 4, m // 2)} | {m})  # even, for antithetic pairs
    plan = Plan(1, _DRAWS, seed)
    comparison = run_comparison(title, remark, "frequencies", methods, counts, plan, prepare, show)
    try:
        bounds = " " + sentence("bounds", rows=len(train), bounds=model.evidence_bounds())
    except InvalidArgumentError:
        bounds = ""
    return Compared(comparison, f"{remark}{distance}{bounds}", (method, m))


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
    features = {name: value for name, value in used if isinstance(value, RandomFeatures)}
    return model.with_approximation({name: replace(v, learn_frequencies=False) for name, v in features.items()})


def without_comparison(model: GP) -> str | None:
    """Return the reason why there is no comparison with an exact process, or None.

    Args:
        model: The fitted model.
    """
    used = model.spec.approximations.values()
    if all(isinstance(entry, Exact | SparsePrecision) for entry in used):
        return sentence("not_compared", reason="exact")
    if any(isinstance(entry, RandomFeatures) and entry.learn_frequencies for entry in used):
        return sentence("not_compared", reason="learned")
    has_noise_process = not model.spec.is_gaussian and model.spec.options.likelihood.has_noise_process
    return sentence("not_compared", reason="noise") if has_noise_process else None


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


def _own_features(model: GP, name: str) -> tuple[str, int, Callable[[int, int], GP]]:
    """Return the name and m of a term's features, and their factory of (m, seed)."""
    used = model.spec.approximations[name]
    if isinstance(used, RandomFeatures):
        features = used

        def of_frequencies(m: int, seed: int) -> GP:
            return model.with_approximation({name: replace(features, num_frequencies=m, seed=seed)})

        return coupling_label(used.coupling), used.num_frequencies, of_frequencies
    assert isinstance(used, InducingPoints)
    points, count = used, model.state.prior().of([name]).num_features
    half = max(1, count // 2)
    method = "residual" if used.residual is not None else {"sor": "nystrom", None: "fitc"}.get(used.method, used.method)

    def of_points(m: int, seed: int) -> GP:
        return model.with_approximation({name: replace(points, num_points=count if m == half else 2 * m, seed=seed)})

    return str(method), half, of_points


def compare_nodes(
    field: Field, model: GraphGP, train: NDArray[np.int64], test: NDArray[np.int64], title: str, seed: int, show: Report
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
    limit, count = EXACT_NODES_BY_PRECISION if by_precision else EXACT_NODES, field.graph.num_nodes
    if count > limit:
        error = None if model.is_exact else model.diagnose(seed=seed)
        return Compared(None, sentence("many_nodes", count=count, limit=limit, error=error))
    hidden, y = list(field.nodes[test[:_TEST_POINTS]]), field.values[test[:_TEST_POINTS]]
    method, m = _own_method(model), _own_size(model)
    makes_own = method is not None and method not in WALKS
    methods = [*(name for name in _OTHER_WALKS if name != method), *([method] if method else [])]
    sizes = sorted({max(2, m // 4), m} if not _other_options(model) else {m})

    def prepare(_: int) -> Task:
        exact = model.exact()
        make_walks = features_of_nodes(exact, model.walk_options.p_halt)

        def make(of: str, size: int, seed: int) -> GP:
            return _at_size(model, size, m, seed) if makes_own and of == method else make_walks(of, size, seed)

        return Task(exact, hidden, y, measured_nodes(field.graph), make)

    counts = {"num_train": len(train), "num_test": len(hidden), "draws": _DRAWS, "nonzeros": NONZEROS_PER_WALKER}
    remark = sentence("nodes_compared", model=model, process=describe_process(model), m=m, **counts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = Plan(1, _DRAWS, seed)
        comparison = run_comparison(title, remark, "walkers", methods, sizes, plan, prepare, show)
    walks = next((str(w.message) for w in caught if issubclass(w.category, graphs.GraphWarning)), None)
    for entry in caught:
        if not issubclass(entry.category, graphs.GraphWarning):
            warnings.warn(entry.message, stacklevel=3)
    remark += "" if walks is None else f" Warning about the walks of this comparison: {walks}"
    return Compared(comparison, remark, (method, m) if method else None)


def _own_method(model: GraphGP) -> str | None:
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


def _own_size(model: GraphGP) -> int:
    """Return the number of walkers that have as many features as the model."""
    if model.is_exact or model.features == "walks":
        return int(model.walk_options.num_walkers)
    return max(1, -(-num_nonzeros(model) // (NONZEROS_PER_WALKER * model.num_observations)))


def _at_size(model: GraphGP, size: int, m: int, seed: int) -> GraphGP:
    """Return the model with features of another size, where m is that of the model, and seed."""
    sizes = model.feature_size or {"num_walkers": m}
    scaled = {name: max(1, value * size // m) for name, value in sizes.items()}
    return model.with_approximation(replace(model.approximation, seed=seed, **scaled))


# --- The description and the size of processes on graphs, meshes or roads --------------------------------------------


def describe_process(model: GP) -> str:
    """Return a description of the kernel or the features of a process.

    Args:
        model: The model.
    """
    if isinstance(model, GraphGP):
        walkers = model.walk_options.num_walkers
        return sentence("graph_process", features=model.features, sizes=model.feature_size, walkers=walkers)
    return ", and ".join(map(_describe_term, model.kernel.terms()))


def _describe_term(term: Term) -> str:
    """Return a term on roads or a mesh in words, and another by its name."""
    domain = getattr(term.factors[0], "domain", None)
    return f"the term {term.name}" if domain is None or len(term.factors) > 1 else str(domain.description())


def num_nonzeros(model: GP) -> int:
    """Return the number of non-zeros of the features, or of the factor of a precision.

    Args:
        model: The fitted model.

    Raises:
        NotFittedError: If the model has no data.
    """
    prior, rows = model.state.prior(), gathered(model.state.require_rows(purpose="features"))
    if prior.precisions:
        return sum(int(block.refined(rows.inputs).field.analysis.num_nonzeros) for block in prior.precisions)
    if prior.graph_features:
        return sum(len(block.features(rows.inputs, keep=True).values) for block in prior.graph_features)
    if prior.num_features:
        return len(rows) * prior.num_features
    assert isinstance(model, GraphGP)
    return len(rows) * model.graph.num_nodes
