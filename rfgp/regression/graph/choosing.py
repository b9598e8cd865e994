"""Selection of features for a kernel on a graph, by their error on a sample of nodes."""

from collections.abc import Callable, Mapping
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
