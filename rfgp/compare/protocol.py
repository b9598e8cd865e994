"""Comparisons of approximations with the exact process on one data set: the protocol of `rfgp compare`.

For each split the exact process is fitted to the training set. Then each method draws features several times with the
hyperparameters of the exact process, and is compared with it. All seeds follow from one.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import graphs
from graphs.advice import node_sample
from rfgp import couplings, metrics
from rfgp.approximations import Approximation, Chebyshev, InducingPoints, RandomFeatures, RandomWalks
from rfgp.approximations import Exact as ExactTerm
from rfgp.approximations.nodes import NONZEROS_PER_WALKER, has_small_precision
from rfgp.compare.methods import NODE_METHODS, POINTS, WALKS
from rfgp.compare.plan import Plan
from rfgp.compare.results import Comparison, Draw, Exact, Example
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.inference.prediction import Prediction
from rfgp.kernels import Kernel
from rfgp.messages import counted, not_finite
from rfgp.presets import ExactGP
from rfgp.rows import repeat_groups

MAX_MEASURED, SAMPLED = 5000, 500
"""The maximum number of nodes over all of which kernel errors are computed, and the size of the sample of more."""


Report = Callable[[str, int, int], None]


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
    num_train, num_test = _fit_parts(len(X), num_train, num_test)
    groups = repeat_groups(X if kernel is None else _codes(X), y)
    groups = np.arange(len(X)) if groups is None else groups
    given = getattr(X, "iloc", X)

    def run(split: int) -> tuple[Case, Exact]:
        train, test = plan.parts(split, groups, num_train, num_test)
        rows = np.concatenate([train, test])
        start = time.perf_counter()
        if kernel is not None:
            general = GP(kernel, approximation=ExactTerm(), seed=plan.seed).fit(given[train], y[train])
            term = _approximated(general, features)
            return row_case(general, given[test], y[test], given[rows], features, start, term=term)
        exact = ExactGP(ard=ard).fit(X[train], y[train])
        named = {"adapted": _adapted(exact, X[train], features)}
        return row_case(exact, X[test], y[test], X[rows], features, start, named)

    scales = "one lengthscale per column" if ard else "one lengthscale"
    protocol = (
        f"{num_train} training and {counted(num_test, 'test row')}, {scales if kernel is None else kernel}, "
        f"hyperparameters of the exact process, {features} features, {plan.extent}, seed "
        f"{plan.seed}"
    )
    return run_comparison(title, protocol, "frequencies", methods, sizes, plan, run, report)


def _codes(X: Any) -> NDArray[np.float64]:
    """Return the cells of a dataframe (n, d) as numbers that are equal for equal cells."""
    return np.column_stack([np.unique(X[name].to_numpy(), return_inverse=True)[1] for name in X]).astype(np.float64)


def _approximated(exact: GP, features: str) -> str:
    """Return the first term of a fitted process that has random features.

    Raises:
        InvalidArgumentError: If there is none.
    """
    data, trial = exact.spec.term_data(exact.hyperparameters.values, exact.num_observations), RandomFeatures(2)
    reasons = {entry.term.name: replace(trial, kind=features).unsupported_reason(entry) for entry in data}
    found = next((str(name) for name, reason in reasons.items() if reason is None), None)
    if found is None:
        names = ", ".join(map(str, reasons))
        raise InvalidArgumentError(
            f"kernel must have a term with random features, got {names}. Add one, such as RBF or Matern."
        )
    return found


def _adapted(exact: ExactGP, rows: NDArray[np.float64], features: str) -> Callable[[int, int], GP]:
    """Return a factory of processes with frequencies for rows (n, d)."""

    def make(size: int, seed: int) -> GP:
        coupling = couplings.DataAdapted(rows / exact.hyperparameters.lengthscale.detach().numpy())
        return exact.with_approximation(RandomFeatures(size, kind=features, coupling=coupling, seed=seed))

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
    train_count, test_count = _fit_parts(len(labels), train_count, test_count)

    def run(split: int) -> tuple[Case, Exact]:
        train, test = plan.parts(split, positions, train_count, test_count)
        hidden = [labels[i] for i in test]
        start = time.perf_counter()
        features = "precision" if has_small_precision(graph, graphs.kernels.by_name(kernel)) else "exact"
        exact = GraphGP(graph, kernel, features=features).fit([labels[i] for i in train], y[train])
        permutation = graphs.match_quantiles(graph, exact.fitted_kernel, p_halt) if "sigma" in methods else None
        return node_case(exact, hidden, y[test], p_halt, start, permutation)

    protocol = (
        f"{train_count} training and {counted(test_count, 'test node')} of {graph.num_nodes}, {kernel} "
        "kernel, hyperparameters of "
        f"the exact process, halt {p_halt:g}, stratified walkers have systematic lengths, exact-hops are stratified "
        f"after as many exact hops as fit {NONZEROS_PER_WALKER} non-zeros a row for each walker, {plan.extent}, seed "
        f"{plan.seed}"
    )
    return run_comparison(title, protocol, "walkers", methods, list(sizes), plan, run, report)


class Case(NamedTuple):
    """One split: the exact process, and a function that makes approximations."""

    approximate: Callable[[str, int, int], tuple[Prediction, Callable[[], Any]]]
    kernel: Any
    process: GP
    exact: Prediction
    observed: NDArray[np.float64]
    drawn_once: tuple[str, ...] = ()  # methods without randomness


def row_case(
    exact: GP,
    X: Any,  # (k, d)
    y: NDArray[np.float64],  # (k,)
    rows: Any,  # (n, d)
    features: str,
    start: float,
    named: Mapping[str, Callable[[int, int], GP]] | None = None,
    others: Mapping[str, Approximation] | None = None,
    term: str | None = None,
) -> tuple[Case, Exact]:
    """Return the case of a fitted exact process on a table, and its scores.

    Args:
        exact: The fitted process.
        X: Test inputs (k, d), an array or a dataframe.
        y: Test targets (k,).
        rows: The rows (n, d) over which kernel matrices are compared.
        features: The kind of random features, "fourier" or "laplace".
        start: The start of its fit, by `time.perf_counter`.
        named: Functions of size and seed that make a model, by the names of methods that are not couplings.
        others: The approximations of all other terms, by name. If None, they are exact.
        term: The name of the term that is approximated. If None, the first.
    """
    prediction, first = exact.predict(X), term or exact.spec.terms[0].name

    def approximate(method: str, size: int, seed: int) -> tuple[Prediction, Callable[[], Any]]:
        gp: GP
        if named is not None and method in named:
            gp = named[method](size, seed)
        else:
            approximation: Approximation = (
                InducingPoints(2 * size, method=POINTS[method], seed=seed)
                if method in POINTS
                else RandomFeatures(size, kind=features, coupling=method, seed=seed)
            )
            gp = exact.with_approximation({first: approximation, **(others or {})})
        return gp.predict(X), lambda: unit_kernel(gp, rows)

    scored = _score(prediction, y, start, repr(exact.hyperparameters))
    return Case(approximate, unit_kernel(exact, rows), exact, prediction, y), scored


def node_case(
    exact: GraphGP,
    hidden: list[Any],  # (k,) labels
    y: NDArray[np.float64],  # (k,)
    p_halt: float,
    start: float,
    permutation: NDArray[np.int64] | None = None,
    named: Mapping[str, Callable[[int, int], GraphGP]] | None = None,
) -> tuple[Case, Exact]:
    """Return the case of a fitted exact process on a graph, and its scores.

    Args:
        exact: The fitted process.
        hidden: Labels of the test nodes (k,).
        y: The values (k,) at these nodes.
        p_halt: The halting probability of walks.
        start: The start of its fit, by `time.perf_counter`.
        permutation: The permutation of the quantiles, for "sigma". If None, "sigma" is not compared.
        named: Functions of size and seed that make a model, by the names of methods that are not walks.
    """
    prediction = exact.predict(hidden)
    scored = _score(prediction, y, start, repr(exact.hyperparameters))
    graph = exact.graph
    every = graph.as_nodes(
        np.arange(graph.num_nodes) if graph.num_nodes <= MAX_MEASURED else node_sample(graph, SAMPLED, 0)
    )

    def approximate(method: str, size: int, seed: int) -> tuple[Prediction, Callable[[], Any]]:
        budget = NONZEROS_PER_WALKER * size
        if named is not None and method in named:
            gp = named[method](size, seed)
        elif method == "chebyshev":
            gp = exact.with_approximation(Chebyshev(graphs.max_series_degree(graph, budget)))
        else:
            options: dict[str, Any] = {"permutation": permutation} if method == "sigma" else {}
            walks = RandomWalks(size, p_halt=p_halt, seed=seed, max_nonzeros=budget, **WALKS[method], **options)
            gp = exact.with_approximation(walks)
        return gp.predict(hidden), lambda: unit_kernel(gp, every)

    return Case(
        approximate, unit_kernel(exact, every), exact, prediction, y, ("chebyshev", "taylor", "spectrum")
    ), scored


def run_comparison(
    title: str,
    protocol: str,
    size_name: str,
    methods: Sequence[str],
    sizes: list[int],
    plan: Plan,
    run: Callable[[int], tuple[Case, Exact]],
    report: Report | None,
) -> Comparison:
    """Return the scores of all methods at all sizes on all splits.

    `run` prepares one split. It returns the `Case`, and the scores of the exact process. The other arguments are those
    of `compare_table`. The first method is the baseline.
    """
    tell = report or (lambda step, done, total: None)
    total = plan.splits * plan.draws * len(methods) * len(sizes)
    exact: list[Exact] = []
    draws: list[Draw] = []
    example: Example | None = None
    for split in range(plan.splits):
        tell(f"{title}: exact process, split {split + 1}", len(draws), total)
        case, summary = run(split)
        exact.append(summary)
        if split == 0:
            case.approximate(methods[0], sizes[0], 0)  # compiles, so that no method's seconds contain it
        for size, method, repeat in itertools.product(sizes, methods, range(plan.draws)):
            if repeat and method in case.drawn_once:
                continue
            tell(f"{title}: {method}, {size} {size_name}", len(draws), total)
            start = time.perf_counter()
            prediction, kernel = case.approximate(method, size, plan.draw_seed(split, repeat))
            rmse, nlpd = metrics.rmse(case.observed, prediction), metrics.nlpd(case.observed, prediction)
            seconds = time.perf_counter() - start
            kl = metrics.kl_divergence(case.exact, prediction)
            error = metrics.relative_frobenius_error(kernel(), case.kernel)
            draws.append(Draw(method, size, split, error, kl, rmse, nlpd, seconds))
            if split == 0 and repeat == 0:
                example = Example(case.process, case.observed, case.exact, prediction, method, size)
    assert example is not None
    tell(f"{title}: done", total, total)
    return Comparison(title, protocol, size_name, methods[0], exact, draws, example)


def _score(prediction: Prediction, observed: NDArray[np.float64], start: float, words: str) -> Exact:
    rmse, nlpd = metrics.rmse(observed, prediction), metrics.nlpd(observed, prediction)
    total = float(np.var(observed))
    return Exact(rmse, nlpd, time.perf_counter() - start, words, 1 - rmse**2 / total if total > 0 else None)


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


def _fit_parts(count: int, train: int, test: int) -> tuple[int, int]:
    if train < 2 or test < 1:
        raise InvalidArgumentError(f"num_train must be at least 2 and num_test at least 1, got {train} and {test}.")
    if train + test > count:
        raise DataError(
            f"num_train and num_test must add up to at most {count}, the number of items, got {train} training and "
            f"{test} test items. Use a smaller num_train or num_test."
        )
    return train, test
