"""Reports of the selection of features of nodes, and the recommendation of `graphs.advise`."""

import math
from dataclasses import replace
from typing import Any

import graphs
from graphs.advice import Advice, Candidate
from graphs.kernels import GraphKernel
from rfgp.approximations import MeasuredFeatures
from rfgp.approximations.measured import sample_of
from rfgp.approximations.nodes import NodeTerm
from rfgp.regression.graph.checks import features_of
from rfgp.regression.selection_report import ERROR, FLOPS_PER_SECOND, Budget, Score, SelectionReport, Trial
from rfgp.regression.spec import ModelSpec

_SOLVED = ("precision", "rational", "exact")
"""Features with a factorization as solver, instead of conjugate gradients."""
_EVALUATIONS, _PRODUCTS, _BYTES = 30.0, 400.0, 12.0
"""Evaluations of a fit, products with a sparse matrix in each, and bytes of a non-zero with its column index."""
_NONE = Budget()


def selection_of_features(spec: ModelSpec) -> SelectionReport | None:
    """Return the report of the selection of node features, or None if there was none.

    Args:
        spec: The specification of the model.
    """
    if len(spec.term_priors) != 1:
        return None
    (prior,), (approximation,) = spec.term_priors, spec.approximations.values()
    features = features_of(prior)
    if features is None or not isinstance(approximation, MeasuredFeatures):
        return None
    graph = spec.terms[0].term.factors[0].nodes
    if features.name == "exact":
        return exact_selection(graph)
    assert isinstance(prior, NodeTerm)
    return None if prior.advice is None else selection_of(prior.advice, graph, len(sample_of(graph)), features.name)


def selection_of(advice: Advice, graph: graphs.Graph, sampled: int, used: str | None = None) -> SelectionReport:
    """Return the report of measurements on a sample of nodes.

    Args:
        advice: The measurements.
        graph: The graph.
        sampled: The number of nodes in the sample.
        used: The features in use, which a fit keeps unless others are twice as good. If None, the recommended ones.
    """
    trials = tuple(_trial(candidate, graph, sampled) for candidate in advice.candidates)
    names, best, reason = [candidate.features for candidate in advice.candidates], advice.best.features, advice.reason
    if used is not None and used != best and used in names:
        best, reason = used, f"{used}, which was in use, because {best} is not twice as good. {reason}"
    is_measured = len(advice.candidates) > 1
    way = "of a sample, against the exact kernel" if is_measured else ""
    return SelectionReport(
        names.index(best), trials, reason, ERROR, sampled if is_measured else 0, way, rate=FLOPS_PER_SECOND
    )


def exact_selection(graph: graphs.Graph) -> SelectionReport:
    """Return the report for a graph that is small enough for the exact kernel.

    Args:
        graph: The graph.
    """
    N = graph.num_nodes
    trial = Trial("exact", {"features": "exact"}, _EVALUATIONS * 2.0 * N**3 / FLOPS_PER_SECOND, 24.0 * N**2)
    reason = f"exact: the graph has {N:,} nodes, few enough for the exact kernel, so nothing was measured."
    return SelectionReport(0, (trial,), reason, ERROR, rate=FLOPS_PER_SECOND)


def _trial(candidate: Candidate, graph: graphs.Graph, sampled: int) -> Trial:
    """Return the trial of a candidate.

    Costs grow with its non-zeros, or their squares per row for a factor.
    """
    N, nonzeros = graph.num_nodes, candidate.nonzeros
    products = 4.0 * nonzeros**2 if candidate.features in _SOLVED else _PRODUCTS * 4.0 * nonzeros
    shown = ", ".join(f"{name}={value}" for name, value in candidate.options.items())
    options: dict[str, Any] = {"features": candidate.features, **candidate.options}
    scores = (Score(sampled, float(candidate.error), 0.0),)
    seconds, memory = _EVALUATIONS * products * N / FLOPS_PER_SECOND, _BYTES * nonzeros * N
    return Trial(f"{candidate.features}({shown})", plain(options), seconds, memory, scores)


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as numbers, texts and booleans.

    Args:
        options: The options of features, by name.
    """
    return {
        name: value if isinstance(value, str | bool | int | float | None) else str(value)
        for name, value in options.items()
    }


def advised_selection(
    graph: graphs.Graph, kernel: GraphKernel, max_nonzeros: int, seed: int, limits: Budget = _NONE
) -> SelectionReport:
    """Return the recommendation of `graphs.advise` within the limits, as a report.

    Args:
        graph: The graph.
        kernel: The kernel.
        max_nonzeros: The maximal number of non-zeros of a row of the feature matrix.
        seed: The seed of the sample of nodes.
        limits: The limits of time and memory. If no candidate is within them, the cheapest one is selected. By default
            there are none.
    """
    advice = graphs.advise(graph, kernel, max_nonzeros, seed=seed)
    selection = selection_of(advice, graph, min(128, graph.num_nodes))
    return selection if limits is _NONE else _within(selection, limits)


def _within(selection: SelectionReport, limits: Budget) -> SelectionReport:
    """Return the selection among candidates within the limits, or the cheapest if there are none."""
    most = math.inf if limits.time_limit is None else limits.time_limit
    trials = tuple(replace(trial, status=_over_limit(trial, most, limits.memory)) for trial in selection.trials)
    allowed = [number for number, trial in enumerate(trials) if not trial.status]
    best, reason = selection.best, selection.reason
    if best not in allowed:
        numbers = allowed or range(len(trials))
        best = min(numbers, key=lambda number: _error(trials[number]) if allowed else trials[number].seconds)
        choice = "the best within the limits" if allowed else "the cheapest, because none is within the limits"
        reason = f"{trials[best].name}: {choice}; without limits {reason}"
    seconds = 0.0 if limits.time_limit is None else limits.time_limit
    return replace(selection, trials=trials, best=best, reason=reason, time_limit=seconds, memory=limits.memory)


def _over_limit(trial: Trial, seconds: float, memory: float) -> str:
    if trial.memory > memory:
        return f"{trial.memory:.2g} bytes exceed the limit of {memory:.2g}"
    return f"its predicted time exceeds the limit of {seconds:.3g} s" if trial.seconds > seconds else ""


def _error(trial: Trial) -> float:
    return math.inf if trial.last is None else trial.last.value
