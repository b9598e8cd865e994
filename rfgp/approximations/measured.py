"""Selection of features of nodes by their measured error on a sample of nodes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

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
    sparse_factor_candidate,
)
from graphs.kernels import GraphKernel
from rfgp.approximations.node_features import (
    NONZEROS_PER_WALKER,
    DrawnFeatures,
    ExactFeatures,
    NodeFeatures,
    SpectrumFeatures,
)
from rfgp.approximations.nodes import (
    NodeApproximation,
    NodeTerm,
    RandomWalks,
    node_term,
    nodes_of,
    retuned,
    with_more_fields,
)
from rfgp.approximations.role import TermData, TermPrior

MAX_EXACT_NODES = 2000
"""The maximum number of nodes for which the exact kernel by eigenvectors is the default."""
SAMPLED, MAX_ENTRIES = 128, 2**25
"""The number of nodes of the sample, and the maximum number of entries of its columns over all nodes."""
MAX_EIGENPAIRS = 2_500_000
"""The maximum number of entries of eigenvectors of a truncated spectrum that is measured. More take Lanczos over a
minute."""
DRAWS = 3
"""The number of draws of walks over which the squared error is averaged."""
WORTH = 2.0
"""The factor of the error by which another kind must be better for a fit to start again."""


@dataclass(frozen=True, repr=False)
class MeasuredFeatures(NodeApproximation):
    """The features of nodes with the smallest measured error.

    Up to 2,000 nodes the kernel is exact. Beyond that, a sparse precision is used if its factor is small. Otherwise
    random walks and a Chebyshev series are compared, and a truncated spectrum on graphs of moderate size. The error
    |Phi Phi^T - K| / |K| is measured on a sample of nodes, at the starting kernel and at the fitted one.

    Attributes:
        walks: The options of the random walks.
        degree: The degree of the series. If None, the largest with as many non-zero features as the walks.
        rank: The rank of the truncated spectrum. If None, four for each walker.

    Examples:
        >>> import rfgp
        >>> rfgp.MeasuredFeatures(rfgp.RandomWalks(16))
        MeasuredFeatures(walks=RandomWalks(num_walkers=16))
    """

    walks: RandomWalks = field(default_factory=RandomWalks)
    degree: int | None = None
    rank: int | None = None
    kind: ClassVar[str] = "measured features"

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the features of all kinds."""
        return {**self.walks.options, "degree": self.degree, "rank": self.rank}

    def draw(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with the features of the smallest error.

        On few nodes it has the kernel itself.
        """
        graph, kernel, _ = nodes_of(data)
        if graph.num_nodes <= MAX_EXACT_NODES:
            return node_term(data, ExactFeatures(graph, kernel))
        return self._drawn(data, seed, self.measured(data, seed))

    def redraw(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with other features if their error is less than half.

        Otherwise its own features are tuned again.
        """
        assert isinstance(prior, NodeTerm)
        if not nodes_of(data)[2] or prior.features.name == "exact":
            return prior
        try:
            advice = self.measured(data, seed)
        except graphs.InvalidArgumentError:  # no series converges to this kernel
            return prior
        if is_worth_it(advice, prior.features.name):
            return self._drawn(data, seed, advice)
        if prior.features.walks is not None and self.walks.exact_hops == "auto":
            prior = retuned(prior, self.make(data, "walks", seed, self.options))
        if prior.features.name == "rational" and self.degree is None:
            prior = with_more_fields(prior, self.make(data, "rational", seed, self.options))
        return replace(prior, advice=advice)

    def measured(self, data: TermData, seed: int) -> Advice:
        """Return the measured errors of all kinds of features at the hyperparameters.

        Args:
            data: The term.
            seed: The seed for the term.
        """
        graph, kernel, _ = nodes_of(data)
        rank = self.rank or NONZEROS_PER_WALKER * int(self.walks.num_walkers)
        make = partial(self._made, data)
        return choose(graph, kernel, make, min(rank, graph.num_nodes))

    def _made(self, data: TermData, kind: str, seed: int) -> NodeFeatures:
        return replace(self, seed=None).make(data, kind, seed, self.options)

    def _drawn(self, data: TermData, seed: int, advice: Advice) -> NodeTerm:
        return node_term(data, self.make(data, advice.best.features, seed, self.options), advice)


def sample_of(graph: graphs.Graph) -> NDArray[np.int64]:
    """Return the positions (n,) over which features are measured.

    Args:
        graph: The graph.
    """
    return node_sample(graph, max(16, min(SAMPLED, MAX_ENTRIES // graph.num_nodes)), 0)


def choose(
    graph: graphs.Graph,
    kernel: GraphKernel,
    make: Callable[[str, int], NodeFeatures],
    rank: int,
) -> Advice:
    """Return a sparse precision with a small factor, or the features of least error.

    Args:
        graph: The graph.
        kernel: The kernel.
        make: Makes features of a kind with a seed.
        rank: The rank of the truncated spectrum.

    Returns:
        The selected features, all candidates and the reason.
    """
    solved = sparse_factor_candidate(graph, kernel)
    if solved is not None:
        close = f"its spectrum is right to {solved.error:.1g}" if solved.error else "it is exact"
        reason = f"{solved.features} for {kernel} on {graph.num_nodes:,} nodes: {close}, and its factor is small."
        return Advice(solved, (solved,), reason)
    sample = sample_of(graph)
    exact = exact_block(graph, kernel, sample)
    kinds = ["chebyshev", "walks", *(["spectrum"] if rank * graph.num_nodes <= MAX_EIGENPAIRS else [])]
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
    """Return features of one kind with their error |Phi Phi^T - K| / |K| on a sample.

    Args:
        make: Makes features of a kind with a seed.
        kind: The kind of features.
        kernel: The kernel.
        sample: The positions of the nodes, (n,).
        exact: The kernel of the sample, (n, n).
    """
    errors, nonzeros, options = [], 0.0, {}
    for seed in range(DRAWS if kind == "walks" else 1):
        features = make(kind, seed)
        assert isinstance(features, DrawnFeatures | SpectrumFeatures)
        phi = feature_matrix(features.draw.at(features.draw.graph.as_nodes(sample)), kernel)
        errors.append(np.linalg.norm((phi @ phi.T).toarray() - exact) / np.linalg.norm(exact))
        nonzeros, options = phi.nnz / len(sample), options_of(features)
    return Candidate(kind, options, float(np.sqrt(np.mean(np.square(errors)))), nonzeros)


def options_of(features: NodeFeatures) -> dict[str, Any]:
    """Return the size of features of one kind, for messages.

    Args:
        features: The features.
    """
    if features.walks is not None:
        return {"num_walkers": features.walks.settings.num_walkers, "p_halt": features.walks.settings.halting.p_halt}
    return features.size


def is_worth_it(advice: Advice, present: str) -> bool:
    """Return whether recommended features are much better than the present ones.

    Args:
        advice: The measured errors of all kinds.
        present: The kind of the present features.
    """
    errors: Mapping[str, float] = {candidate.features: candidate.error for candidate in advice.candidates}
    return advice.best.features != present and errors.get(present, np.inf) > WORTH * advice.best.error


def has_small_precision(graph: graphs.Graph, kernel: GraphKernel) -> bool:
    """Return whether a kernel of many nodes has a precision with a small factor.

    Args:
        graph: The graph. With at most 2,000 nodes the result is False.
        kernel: The kernel.
    """
    return graph.num_nodes > MAX_EXACT_NODES and precision_candidate(graph, kernel) is not None
