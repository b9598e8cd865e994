"""Comparisons of approximations with the exact process on one data set: the protocol of `rfgp compare` and of reports.

For each split there is an exact process with fitted hyperparameters. Then each method draws features several times with
the same hyperparameters, and is compared with it. All seeds follow from one.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import graphs
from graphs.advice import node_sample
from graphs.builders.mesh_files import MESH_SUFFIXES
from graphs.checks import printable
from rfgp import couplings, metrics
from rfgp.approximations import Approximation, Chebyshev, InducingPoints, RandomFeatures, RandomWalks
from rfgp.approximations import Exact as ExactTerm
from rfgp.approximations.nodes import NONZEROS_PER_WALKER, has_small_precision
from rfgp.compare.results import Comparison, Draw, Exact, Example, Plan
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields import Field, NodePosterior, posterior_at_nodes, read_field, read_mesh_field
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.kernels import Kernel
from rfgp.messages import counted, not_finite
from rfgp.presets import ExactGP
from rfgp.progress import Report
from rfgp.rows import repeat_groups
from rfgp.tables import TABLE_SUFFIXES, read_table

MAX_MEASURED, SAMPLED = 5000, 500
"""The maximum number of nodes over all of which kernel errors are computed, and the size of the sample of more."""
WALKS: dict[str, dict[str, Any]] = {
    name: {"lengths": lengths, "step_coupling": step_coupling, "exact_hops": hops}
    for name, lengths, step_coupling, hops in (
        ("iid", "iid", "independent", 0),
        ("antithetic", "antithetic", "independent", 0),
        ("sigma", "sigma", "independent", 0),
        ("systematic", "systematic", "independent", 0),
        ("stratified", "systematic", "stratified", 0),
        ("exact-hops", "systematic", "stratified", "auto"),
    )
}
"""The options of walks of each method. "stratified" has systematic lengths as well, the others independent steps."""
POINTS = {"nystrom": "sor", "fitc": "fitc", "vfe": "vfe"}
"""Further methods of `compare_table`, with the method of `rfgp.InducingPoints`: 2 m points by k-means, as many as there
are Fourier features."""
NODE_METHODS = (*WALKS, "chebyshev")
"""The methods of `compare_nodes`. "chebyshev" has the largest degree with no more non-zeros than "exact-hops"."""
_DRAWN_ONCE = ("chebyshev", "taylor", "spectrum")
"""Methods without randomness."""
_PART = 256
"""The default number of rows of a table to train on, and to hold out."""

Make = Callable[[str, int, int], GP]
"""A function that makes the approximation of a method, a size and a seed."""


class Task(NamedTuple):
    """One split: the exact process, test inputs (k, d), targets (k,), points of kernel errors, and approximations."""

    exact: GP
    X: Any
    y: NDArray[np.float64]
    points: Any
    make: Make


def compare_table(
    X: Any,  # (n, d)
    y: NDArray[np.float64],  # (n,)
    *,
    title: str = "table",
    methods: Sequence[str] = ("iid", "orthogonal", "pairwise", "energy"),
    sizes: Sequence[int] | None = None,
    features: str = "fourier",
    num_train: int = 256,
    num_test: int = 256,
    ard: bool = False,
    kernel: Kernel | None = None,
    plan: Plan | None = None,
    report: Report | None = None,
) -> Comparison:
    """Compare couplings of frequencies with the exact Gaussian process on a table.

    The kernel error is over all training and test rows of a split. Equal rows are in the same part of a split, so the
    test set may be slightly smaller than requested.

    Args:
        X: Inputs (n, d), an array, or a dataframe for a kernel of named columns.
        y: Targets (n,).
        title: The name of the table.
        methods: Names of couplings ("adapted" to the training rows), or of `POINTS`. The first is the baseline.
        sizes: The numbers of frequencies. If None, 4 d and 16 d.
        features: The kind of random features, "fourier" or "laplace".
        num_train: The number of training rows per split.
        num_test: The number of test rows per split.
        ard: Whether each column has its own lengthscale.
        kernel: A kernel, whose first term that has random features is approximated. Its other terms stay exact. If
            None, an RBF kernel of all columns.
        plan: The splits, draws and seed. If None, one split and ten draws.
        report: A function that is called with the step as text, the number of draws so far and their total. If None,
            there is no report.

    Returns:
        The scores of all draws.

    Raises:
        DataError: If there are too few rows for the two parts, or rows cannot be used.
        InvalidArgumentError: If a method is unknown, or no term of the kernel has random features.

    Examples:
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table
        >>> X, plan = np.linspace(0, 1, 40)[:, None], Plan(draws=2)
        >>> methods = ("iid", "orthogonal")
        >>> compare_table(X, X[:, 0] ** 2, methods=methods, sizes=(8,), num_train=30, num_test=10, plan=plan).groups()
        [('iid', 8), ('orthogonal', 8)]
    """
    plan = plan or Plan()
    for name in methods:
        if name not in POINTS:
            couplings.for_features(name, features if name == "adapted" else "fourier")
    sizes = list(sizes) if sizes else [4 * X.shape[1], 16 * X.shape[1]]
    y = np.asarray(y, dtype=np.float64)
    if kernel is None:
        X = np.asarray(X, dtype=np.float64)
        _check_finite("X", X)
    _check_finite("y", y)
    _check_parts(len(X), num_train, num_test)
    groups = repeat_groups(X if kernel is None else _codes(X), y)
    groups = np.arange(len(X)) if groups is None else groups
    given = getattr(X, "iloc", X)

    def prepare(split: int) -> Task:
        train, test = plan.parts(split, groups, num_train, num_test)
        exact: GP = ExactGP(ard=ard) if kernel is None else GP(kernel, approximation=ExactTerm(), seed=plan.seed)
        exact.fit(given[train], y[train])
        if kernel is not None:
            make = features_of_rows(exact, _first(exact, features), features)
        else:
            scaled = X[train] / exact.hyperparameters.lengthscale.detach().numpy() if "adapted" in methods else None
            make = features_of_rows(exact, exact.spec.terms[0].name, features, scaled)
        return Task(exact, given[test], y[test], given[np.concatenate([train, test])], make)

    scales = "one lengthscale per column" if ard else "one lengthscale"
    protocol = (
        f"{num_train} training and {counted(num_test, 'test row')}, {scales if kernel is None else kernel}, "
        f"hyperparameters of the exact process, {features} features, {plan.extent}, seed {plan.seed}"
    )
    return run_comparison(title, protocol, "frequencies", methods, sizes, plan, prepare, report)


def _codes(X: Any) -> NDArray[np.float64]:
    """Return the cells of a dataframe (n, d) as numbers that are equal for equal cells."""
    return np.column_stack([np.unique(X[name].to_numpy(), return_inverse=True)[1] for name in X]).astype(np.float64)


def _first(exact: GP, features: str) -> str:
    """Return the first term of a fitted process that has random features.

    Raises:
        InvalidArgumentError: If there is none.
    """
    trial = RandomFeatures(2, kind=features)
    data = exact.spec.term_data(exact.hyperparameters.values, exact.num_observations)
    reasons = {entry.term.name: trial.unsupported_reason(entry) for entry in data}
    found = next((str(name) for name, reason in reasons.items() if reason is None), None)
    if found is None:
        names = ", ".join(map(str, reasons))
        raise InvalidArgumentError(
            f"kernel must have a term with random features, got {names}. Add one, such as RBF or Matern."
        )
    return found


def features_of_rows(
    exact: GP,
    term: str,
    features: str,
    scaled: NDArray[np.float64] | None = None,
    others: Mapping[str, Approximation] | None = None,
) -> Make:
    """Return a function that approximates a term of an exact process of rows.

    Args:
        exact: The exact process.
        term: The name of the term.
        features: The kind of random features, "fourier" or "laplace".
        scaled: The rows (n, d) in lengthscales, for "adapted". If None, that is no method.
        others: The approximations of other terms by name. If None, they are exact.
    """

    def make(method: str, size: int, seed: int) -> GP:
        if method in POINTS:
            chosen: Approximation = InducingPoints(2 * size, method=POINTS[method], seed=seed)
        else:
            adapted = method == "adapted" and scaled is not None
            coupling = couplings.DataAdapted(scaled) if adapted else method
            chosen = RandomFeatures(size, kind=features, coupling=coupling, seed=seed)
        return exact.with_approximation({term: chosen, **(others or {})})

    return make


def compare_nodes(
    graph: graphs.Graph,
    nodes: Sequence[Any] | NDArray[Any],  # (n,) labels
    y: NDArray[np.float64],  # (n,)
    *,
    title: str = "graph",
    methods: Sequence[str] = tuple(WALKS),
    sizes: Sequence[int] = (16, 64),
    kernel: str = "diffusion",
    p_halt: float = 0.1,
    num_train: int | None = None,
    num_test: int | None = None,
    plan: Plan | None = None,
    report: Report | None = None,
) -> Comparison:
    """Compare couplings of walks with the exact Gaussian process on the nodes of a graph.

    The kernel error is over all nodes, the diagonal included, or over 500 in neighborhoods of more than 5,000. The
    permutation of "sigma" is matched to the fitted kernel on the graph itself. Observations of one node are in the same
    part of a split, so the parts may be slightly smaller than requested.

    Args:
        graph: The graph, with at most 20,000 nodes unless the kernel has a sparse precision.
        nodes: Labels of the observed nodes (n,).
        y: The values (n,) at the nodes.
        title: The name of the graph.
        methods: The names of methods, from `NODE_METHODS`. The first is the baseline.
        sizes: The numbers of walkers.
        kernel: The name of a graph kernel.
        p_halt: The halting probability.
        num_train: The number of training nodes per split. If None, 95 % of the n nodes.
        num_test: The number of test nodes per split. If None, all other nodes.
        plan: The splits, draws and seed. If None, one split and ten draws.
        report: A function that is called with the step as text, the number of draws so far and their total. If None,
            there is no report.

    Returns:
        The scores of all draws.

    Raises:
        DataError: If there are too few nodes for the two parts.
        InvalidArgumentError: If a method is unknown.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from rfgp.compare import Plan, compare_nodes
        >>> graph, y = graphs.Graph.from_grid((6, 6)), np.sin(np.arange(36.0))
        >>> methods = ("iid", "systematic")
        >>> compare_nodes(graph, list(graph.labels), y, methods=methods, sizes=(4,), plan=Plan(draws=2)).groups()
        [('iid', 4), ('systematic', 4)]
    """
    plan = plan or Plan()
    unknown = [name for name in methods if name not in NODE_METHODS]
    if unknown:
        raise InvalidArgumentError(f"methods must be among {', '.join(NODE_METHODS)}, got {unknown[0]!r}.")
    labels, y, positions = list(nodes), np.asarray(y, dtype=np.float64), graph.index(nodes)
    _check_finite("y", y)
    train_count = round(0.95 * len(labels)) if num_train is None else num_train
    test_count = len(labels) - train_count if num_test is None else num_test
    _check_parts(len(labels), train_count, test_count)

    def prepare(split: int) -> Task:
        train, test = plan.parts(split, positions, train_count, test_count)
        features = "precision" if has_small_precision(graph, graphs.kernels.by_name(kernel)) else "exact"
        exact = GraphGP(graph, kernel, features=features).fit([labels[i] for i in train], y[train])
        permutation = graphs.match_quantiles(graph, exact.fitted_kernel, p_halt) if "sigma" in methods else None
        make = features_of_nodes(exact, p_halt, permutation)
        return Task(exact, [labels[i] for i in test], y[test], measured_nodes(graph), make)

    protocol = (
        f"{train_count} training and {counted(test_count, 'test node')} of {graph.num_nodes}, {kernel} kernel, "
        f"hyperparameters of the exact process, halt {p_halt:g}, stratified walkers have systematic lengths, "
        f"exact-hops are stratified after as many exact hops as fit {NONZEROS_PER_WALKER} non-zeros a row for each "
        f"walker, {plan.extent}, seed {plan.seed}"
    )
    return run_comparison(title, protocol, "walkers", methods, list(sizes), plan, prepare, report)


def features_of_nodes(exact: GraphGP, p_halt: float, permutation: NDArray[np.int64] | None = None) -> Make:
    """Return a function that approximates an exact process on a graph.

    Args:
        exact: The exact process.
        p_halt: The halting probability of walks.
        permutation: The permutation of the quantiles, for "sigma". If None, that is no method.
    """

    def make(method: str, size: int, seed: int) -> GP:
        budget = NONZEROS_PER_WALKER * size
        if method == "chebyshev":
            return exact.with_approximation(Chebyshev(graphs.max_series_degree(exact.graph, budget)))
        options: dict[str, Any] = {"permutation": permutation} if method == "sigma" else {}
        walks = RandomWalks(size, p_halt=p_halt, seed=seed, max_nonzeros=budget, **WALKS[method], **options)
        return exact.with_approximation(walks)

    return make


def measured_nodes(graph: graphs.Graph) -> Any:
    """Return the labels of the nodes over which kernel errors are computed: all, or a sample of many."""
    few = graph.num_nodes <= MAX_MEASURED
    return graph.as_nodes(np.arange(graph.num_nodes) if few else node_sample(graph, SAMPLED, 0))


def compare_file(
    file: str | Path,
    *,
    target: str | None = None,
    table_options: Mapping[str, Any] | None = None,
    metric: str | None = None,
    methods: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
    features: str = "fourier",
    ard: bool = False,
    kernel: str | Kernel | None = None,
    p_halt: float = 0.1,
    num_train: int | None = None,
    num_test: int | None = None,
    plan: Plan | None = None,
    report: Report | None = None,
) -> tuple[Comparison, Callable[[], tuple[Field, NodePosterior]] | None]:
    """Compare approximations on a table, a mesh, or roads with sensors.

    On a mesh the target is the z component of the normals of its faces, unless a property is given.

    Args:
        file: The file of a table, a mesh or roads.
        target: A column of a table, a property of the sensors in GeoJSON, or a property of a mesh file. If None, the
            last column, "value", or the z component of the normals.
        table_options: Options of `rfgp.tables.read_table`.
        metric: The metric of roads, as for `rfgp.fields.read_road_field`.
        methods: As for `compare_table` or `compare_nodes`. If None, their default.
        sizes: As for `compare_table` or `compare_nodes`. If None, their default.
        features: As for `compare_table`.
        ard: As for `compare_table`.
        kernel: The name of a graph kernel, or for a table a kernel as for `compare_table`, with options of the table
            that read its columns. If None, diffusion or an RBF kernel of all columns.
        p_halt: As for `compare_nodes`.
        num_train: The number of training rows or nodes per split. If None, 256 rows of a table, or three quarters of
            fewer than 512 rows, at most 256. For graphs the fraction `train_share` of the field.
        num_test: The number of test rows or nodes per split. If None, 256 rows of a table, or a quarter of fewer than
            512 rows. For graphs all other nodes.
        plan: The splits, draws and seed. If None, as for `compare_table`.
        report: As for `compare_table`.

    Returns:
        The comparison, and None for tables. For graphs the second result is a function that returns the field and the
        exact posterior at all nodes, given the training set of the first split.

    Raises:
        InvalidArgumentError: If it is not a path, the ending of the file's name is unknown, or the kernel of a table is
            a name.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets
        >>> from rfgp.compare import Plan, compare_file
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     comparison, _ = compare_file(datasets.write_all(folder)[0], **few)
        >>> comparison.title
        'table.csv, target yield'
    """
    if not isinstance(file, str | Path):
        raise InvalidArgumentError(f"file must be the path of a file, got {type(file).__name__}. Use compare_nodes.")
    file = Path(file)
    named: dict[str, Any] = {"plan": plan, "report": report} | ({} if methods is None else {"methods": methods})
    if file.suffix.lower() in TABLE_SUFFIXES:
        table = read_table(file, target, **(table_options or {}))
        table.check_numeric_target()
        if isinstance(kernel, str):
            raise InvalidArgumentError(
                f"kernel must be a kernel of columns for a table, got {kernel!r}. Use rfgp.kernels."
            )
        num_train, num_test = _usual_parts(len(table.y), num_train, num_test)
        comparison = compare_table(
            table.X if kernel is None else table.frame(),
            table.y,
            title=printable(f"{file.name}, target {table.target}"),
            **named,
            sizes=sizes,
            features=features,
            ard=ard,
            kernel=kernel,
            num_train=num_train,
            num_test=num_test,
        )
        return comparison, None
    if target is not None and file.suffix.lower() in MESH_SUFFIXES:
        field = read_mesh_field(file, target=target)
    else:
        field = read_field(file, "value" if target is None else target, metric)
    usual = round(field.train_share * len(field.values))
    comparison = compare_nodes(
        field.graph,
        field.nodes,
        field.values,
        title=printable(file.name),
        **named,
        sizes=sizes or (16, 64),
        kernel="diffusion" if kernel is None else str(kernel),
        p_halt=p_halt,
        num_train=usual if num_train is None else num_train,
        num_test=num_test,
    )
    return comparison, lambda: (field, posterior_at_nodes(comparison.example.process, field))


def _usual_parts(count: int, train: int | None, test: int | None) -> tuple[int, int]:
    """Return default numbers of rows to train on and to hold out."""
    if test is None:
        left = count - _PART if train is None else count - train
        test = _PART if left >= _PART else max(1, count // 4 if train is None else left)
    return (min(_PART, max(2, count - test)) if train is None else train), test


def run_comparison(
    title: str,
    protocol: str,
    size_name: str,
    methods: Sequence[str],
    sizes: Sequence[int],
    plan: Plan,
    prepare: Callable[[int], Task],
    report: Report | None,
) -> Comparison:
    """Return the scores of all methods at all sizes on all splits.

    `prepare` makes the exact process of one split. The other arguments are those of `compare_table`. The first method
    is the baseline.
    """
    tell = report or (lambda step, done, total: None)
    total = plan.splits * plan.draws * len(methods) * len(sizes)
    exact: list[Exact] = []
    draws: list[Draw] = []
    example: Example | None = None
    for split in range(plan.splits):
        tell(f"{title}: exact process, split {split + 1}", len(draws), total)
        start = time.perf_counter()
        task = prepare(split)
        reference, scores = _scored(task.exact, task, start)
        spread = float(np.var(task.y))
        share = 1 - scores["rmse"] ** 2 / spread if spread > 0 else None
        exact.append(Exact(hyperparameters=repr(task.exact.hyperparameters), r_squared=share, **scores))
        kernel = unit_kernel(task.exact, task.points)
        if split == 0:
            task.make(methods[0], sizes[0], 0).predict(task.X)  # compiles, so that no method's seconds contain it
        for size, method, repeat in itertools.product(sizes, methods, range(plan.draws)):
            if repeat and method in _DRAWN_ONCE:
                continue
            tell(f"{title}: {method}, {size} {size_name}", len(draws), total)
            start = time.perf_counter()
            model = task.make(method, size, plan.draw_seed(split, repeat))
            prediction, scores = _scored(model, task, start)
            kl = metrics.kl_divergence(reference, prediction)
            error = metrics.relative_frobenius_error(unit_kernel(model, task.points), kernel)
            draws.append(Draw(method, size, split, error, kl, **scores))
            if split == 0 and repeat == 0:
                example = Example(task.exact, task.y, reference, prediction, method, size)
    assert example is not None
    tell(f"{title}: done", total, total)
    return Comparison(title, protocol, size_name, methods[0], exact, draws, example)


def _scored(model: GP, task: Task, start: float) -> tuple[Any, dict[str, float]]:
    """Return the prediction of the test inputs with its errors and the seconds since the start."""
    prediction = model.predict(task.X)
    scores = {"rmse": metrics.rmse(task.y, prediction), "nlpd": metrics.nlpd(task.y, prediction)}
    return prediction, {**scores, "seconds": time.perf_counter() - start}


def unit_kernel(gp: Any, X: Any) -> torch.Tensor:
    """Return the prior covariance (n, n), divided by the sum of output scales.

    For a model without an output scale, such as one of linear terms, the covariance is not divided.

    Args:
        gp: The model.
        X: Inputs (n, d).
    """
    values = gp.hyperparameters.values
    scales = [name for name in values.space.names if name.rpartition(".")[2] == "outputscale"]
    with torch.no_grad():
        covariance: torch.Tensor = gp.prior_covariance(X) / (sum(values.value(name) for name in scales) or 1.0)
        return covariance


def _check_finite(name: str, values: NDArray[np.float64]) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        where = ", column ".join(str(i) for i in bad[0])
        raise DataError(f"{name} has {not_finite(len(bad))}, the first in row {where}.")


def _check_parts(count: int, train: int, test: int) -> None:
    """Check that there are enough items for a training set and a test set."""
    if train < 2 or test < 1:
        raise InvalidArgumentError(f"num_train must be at least 2 and num_test at least 1, got {train} and {test}.")
    if train + test > count:
        raise DataError(
            f"num_train and num_test must add up to at most {count}, the number of items, got {train} training and "
            f"{test} test items. Use a smaller num_train or num_test."
        )
