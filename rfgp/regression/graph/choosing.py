"""Selection of features for a kernel on a graph, by their error on a sample of nodes, and the record of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphs
from graphs.advice import (
    Advice,
    Candidate,
    exact_block,
    feature_matrix,
    node_sample,
    precision_candidate,
    solved_candidate,
)
from graphs.kernels import GraphKernel
from rfgp.approximations.node_features import DrawnFeatures, NodeFeatures, SpectrumFeatures
from rfgp.regression.record import ERROR, RATE, Choice, Limits, Measurement, Trial

EXACT_LIMIT = 2000
"""The number of nodes up to which "auto" is the exact kernel by its eigenvectors."""
SAMPLED, MOST_ENTRIES = 128, 2**25
"""The number of nodes of the sample, and the most entries of that many columns over all nodes."""
MOST_EIGENPAIRS = 2_500_000
"""The most entries of eigenvectors of a truncated spectrum that is measured: Lanczos would take over a minute."""
_DRAWS = 3
_WORTH = 2.0
"""The factor of the error by which another kind must be better for a fit to start again."""


def sample_of(graph: graphs.Graph) -> NDArray[np.int64]:
    """Return the positions (n,) over which features are measured."""
    return node_sample(graph, max(16, min(SAMPLED, MOST_ENTRIES // graph.num_nodes)), 0)


def exact_features(graph: graphs.Graph, kernel: GraphKernel) -> str:
    """Return the features of the exact process: "precision" on many nodes if its factor is small, else "exact"."""
    if graph.num_nodes <= EXACT_LIMIT or precision_candidate(graph, kernel) is None:
        return "exact"
    return "precision"


def choose(
    graph: graphs.Graph,
    kernel: GraphKernel,
    make: Callable[[str, int], NodeFeatures],
    rank: int,
) -> Advice:
    """Return a sparse precision if its factor is small, else the kind of features with the least measured error.

    Args:
        graph: The graph.
        kernel: The kernel.
        make: Makes features of a kind with a seed.
        rank: The rank of the truncated spectrum.
    """
    solved = solved_candidate(graph, kernel)
    if solved is not None:
        close = f"its spectrum is right to {solved.error:.1g}" if solved.error else "it is exact"
        reason = f"{solved.features} for {kernel} on {graph.num_nodes:,} nodes: {close}, and its factor is small."
        return Advice(solved, (solved,), reason)
    sample = sample_of(graph)
    exact = exact_block(graph, kernel, sample)
    kinds = ["chebyshev", "walks", *(["spectrum"] if rank * graph.num_nodes <= MOST_EIGENPAIRS else [])]
    candidates = [measure(make, kind, kernel, sample, exact) for kind in kinds]
    candidates.sort(key=lambda candidate: (max(candidate.error, 1e-12), candidate.features == "walks"))
    best, second = candidates[0], candidates[1]
    reason = (
        f"{best.features} for {kernel} on {graph.num_nodes} nodes: error {best.error:.2g} of the kernel on "
        f"{len(sample)} of them, against {second.error:.2g} of {second.features}."
    )
    return Advice(best, tuple(candidates), reason)


def measure(
    make: Callable[[str, int], NodeFeatures],
    kind: str,
    kernel: GraphKernel,
    sample: NDArray[np.int64],  # (n,)
    exact: NDArray[np.float64],  # (n, n)
) -> Candidate:
    """Return the error of features of a kind on a sample: |Phi Phi^T - K| / |K|, of walks the root mean square."""
    errors, nonzeros, options = [], 0.0, {}
    for seed in range(_DRAWS if kind == "walks" else 1):
        features = make(kind, seed)
        assert isinstance(features, DrawnFeatures | SpectrumFeatures)
        phi = feature_matrix(features.draw.at(features.draw.graph.named(sample)), kernel)
        errors.append(np.linalg.norm((phi @ phi.T).toarray() - exact) / np.linalg.norm(exact))
        nonzeros, options = phi.nnz / len(sample), options_of(features)
    return Candidate(kind, options, float(np.sqrt(np.mean(np.square(errors)))), nonzeros)


def options_of(features: NodeFeatures) -> dict[str, Any]:
    """Return the size of features of one kind, for messages."""
    if features.walks is not None:
        return {"num_walkers": features.walks.settings.num_walkers, "halt": features.walks.settings.halting.halt}
    return features.size


def is_worth_it(advice: Advice, present: str) -> bool:
    """Return whether recommended features are so much better than the present ones that a fit should start again."""
    errors: Mapping[str, float] = {candidate.features: candidate.error for candidate in advice.candidates}
    return advice.best.features != present and errors.get(present, np.inf) > _WORTH * advice.best.error


_SOLVED = ("precision", "rational", "exact")
"""Features that are solved by a factor rather than by conjugate gradients."""
_EVALUATIONS, _PRODUCTS, _BYTES = 30.0, 400.0, 12.0
"""Of a fit; products of a sparse matrix in each of its evaluations; and bytes of a non-zero, its column with it."""
_NONE = Limits()


def choice_of(advice: Advice, graph: graphs.Graph, sampled: int, used: str | None = None) -> Choice:
    """Return the record of what was measured on so many nodes.

    Args:
        advice: What was measured.
        graph: The graph.
        sampled: How many nodes it was measured on.
        used: The features in use, which a fit keeps where others are not twice as good; None: those recommended.
    """
    trials = tuple(_trial(candidate, graph, sampled) for candidate in advice.candidates)
    names, best, reason = [candidate.features for candidate in advice.candidates], advice.best.features, advice.reason
    if used is not None and used != best and used in names:
        best, reason = used, f"{used}, which was in use, for {best} is not twice as good. {reason}"
    is_measured = len(advice.candidates) > 1
    way = "of a sample, against the exact kernel" if is_measured else ""
    return Choice(names.index(best), trials, reason, ERROR, sampled if is_measured else 0, way, rate=RATE)


def exact_choice(graph: graphs.Graph) -> Choice:
    """Return the record where the exact kernel is taken because nodes are few."""
    N = graph.num_nodes
    trial = Trial("exact", {"features": "exact"}, _EVALUATIONS * 2.0 * N**3 / RATE, 24.0 * N**2)
    reason = f"exact: {N:,} nodes are few enough for the kernel itself, so nothing was measured."
    return Choice(0, (trial,), reason, ERROR, rate=RATE)


def _trial(candidate: Candidate, graph: graphs.Graph, sampled: int) -> Trial:
    """Return the record of a candidate; costs go by its non-zeros, of a factor by their squares a row."""
    N, nonzeros = graph.num_nodes, candidate.nonzeros
    each = 4.0 * nonzeros**2 if candidate.features in _SOLVED else _PRODUCTS * 4.0 * nonzeros
    shown = ", ".join(f"{name}={value}" for name, value in candidate.options.items())
    options: dict[str, Any] = {"features": candidate.features, **candidate.options}
    measured = (Measurement(sampled, float(candidate.error), 0.0),)
    seconds, memory = _EVALUATIONS * each * N / RATE, _BYTES * nonzeros * N
    return Trial(f"{candidate.features}({shown})", plain(options), seconds, memory, measured)


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as numbers, texts and truth values."""
    return {
        name: value if isinstance(value, str | bool | int | float | None) else str(value)
        for name, value in options.items()
    }


def advised_choice(
    graph: graphs.Graph, kernel: GraphKernel, max_nonzeros: int, seed: int, limits: Limits = _NONE
) -> Choice:
    """Return what `graphs.advise` recommends, as the record of a choice; within limits the best that keeps to them."""
    advice = graphs.advise(graph, kernel, max_nonzeros, seed=seed)
    choice = choice_of(advice, graph, min(128, graph.num_nodes))
    return choice if limits is _NONE else _within(choice, limits)


def _within(choice: Choice, limits: Limits) -> Choice:
    """Return the choice among what is not too dear; of nothing the cheapest."""
    most = math.inf if limits.budget is None else limits.budget
    trials = tuple(replace(trial, remark=_too_dear(trial, most, limits.memory)) for trial in choice.trials)
    allowed = [number for number, trial in enumerate(trials) if not trial.remark]
    best, reason = choice.best, choice.reason
    if best not in allowed:
        numbers = allowed or range(len(trials))
        best = min(numbers, key=lambda number: _error(trials[number]) if allowed else trials[number].seconds)
        said = "the best that keeps to the limits" if allowed else "the cheapest, for nothing keeps to the limits"
        reason = f"{trials[best].name}: {said}; without them {reason}"
    budget = 0.0 if limits.budget is None else limits.budget
    return replace(choice, trials=trials, best=best, reason=reason, budget=budget, memory=limits.memory)


def _too_dear(trial: Trial, seconds: float, memory: float) -> str:
    if trial.memory > memory:
        return f"{trial.memory:.2g} bytes are over the {memory:.2g} allowed"
    return f"over the budget of {seconds:.3g} s" if trial.seconds > seconds else ""


def _error(trial: Trial) -> float:
    return math.inf if trial.last is None else trial.last.value
