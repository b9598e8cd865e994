"""Selection of features of nodes by their measured error on a sample of nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from rfgp.approximations.nodes import (
    NONZEROS_PER_WALKER,
    DrawnFeatures,
    ExactFeatures,
    NodeApproximation,
    NodeTerm,
    RandomWalks,
    SpectrumFeatures,
    node_term,
    nodes_of,
)
from rfgp.approximations.role import TermData, TermPrior
from rfgp.limits import limits

MAX_SAMPLED = 128
"""The maximum number of nodes of the sample."""
MAX_ENTRIES = 2**25
"""The maximum number of entries of the kernel columns of the sampled nodes. At least 16 nodes are sampled."""
MAX_EIGENVECTOR_ENTRIES = 2_500_000
"""The maximum number of entries of measured eigenvectors. Above it, Lanczos takes more than a minute."""
DRAWS = 3
"""The number of draws of walks over which the squared error is averaged."""
SWITCH_ERROR_RATIO = 2.0
"""The ratio of the present to the best error above which a fit changes its features."""


@dataclass(frozen=True, repr=False)
class MeasuredFeatures(NodeApproximation):
    """The features of nodes with the smallest measured error.

    Up to 2,000 nodes the kernel is exact. Beyond that, a sparse precision is used if its factor is small. Otherwise
    random walks and a Chebyshev series are compared, and on graphs of moderate size a truncated spectrum. The error
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

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with the features of the smallest error.

        On few nodes it has the kernel itself.
        """
        graph, kernel, _ = nodes_of(data)
        if graph.num_nodes <= limits().max_exact_nodes:
            return node_term(data, ExactFeatures(graph, kernel))
        return self._built(data, seed, self.measured(data))

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with other features if their error is less than half.

        Otherwise its exact hops or its number of fields follow the new hyperparameters.
        """
        assert isinstance(prior, NodeTerm)
        if not nodes_of(data)[2] or prior.basis.name == "exact":
            return prior
        try:
            advice = self.measured(data)
        except graphs.InvalidArgumentError:  # no series converges to this kernel
            return prior
        errors, present = {one.features: one.error for one in advice.candidates}, prior.basis.name
        is_other = advice.best.features != present
        if is_other and errors.get(present, np.inf) > SWITCH_ERROR_RATIO * advice.best.error:
            return self._built(data, seed, advice)
        follows = {"walks": self.walks.exact_hops == "auto", "rational": self.degree is None}
        prior = self.renewed(data, seed, prior) if follows.get(present, False) else prior
        return replace(prior, advice=advice)

    def measured(self, data: TermData) -> Advice:
        """Measure the errors of candidate features at the hyperparameters of a term.

        A sparse precision with a small Cholesky factor is the only candidate if it exists. Otherwise a Chebyshev
        series and random walks are measured. A truncated spectrum is measured if its eigenvectors have at most
        2,500,000 entries.

        Args:
            data: The term.

        Returns:
            The best features, all candidates with their errors |Phi Phi^T - K| / |K| on a sample, and the reason.

        Raises:
            graphs.InvalidArgumentError: If the graph has more than 2,000 nodes and no Chebyshev series resolves the
                kernel. Also if the kernel overflows or underflows.
        """
        graph, kernel, _ = nodes_of(data)
        sparse = sparse_factor_candidate(graph, kernel)
        if sparse is not None:
            accuracy = f"the relative error of its spectrum is {sparse.error:.1g}" if sparse.error else "it is exact"
            words = f"{sparse.features} for {kernel} on {graph.num_nodes:,} nodes: {accuracy}, and its factor is small."
            return Advice(sparse, (sparse,), words)
        sample = sample_of(graph)
        exact = exact_block(graph, kernel, sample)
        rank = min(self.rank or NONZEROS_PER_WALKER * int(self.walks.num_walkers), graph.num_nodes)
        kinds = ["chebyshev", "walks", *(["spectrum"] if rank * graph.num_nodes <= MAX_EIGENVECTOR_ENTRIES else [])]
        candidates = [self._measured(data, kind, sample, exact) for kind in kinds]
        candidates.sort(key=lambda candidate: (max(candidate.error, 1e-12), candidate.features == "walks"))
        best, second = candidates[0], candidates[1]
        reason = (
            f"{best.features} for {kernel} on {graph.num_nodes} nodes: error {best.error:.2g} of the kernel on "
            f"{len(sample)} of them, against {second.error:.2g} of {second.features}."
        )
        return Advice(best, tuple(candidates), reason)

    def _measured(
        self,
        data: TermData,
        kind: str,
        sample: NDArray[np.int64],  # (n,)
        exact: NDArray[np.float64],  # (n, n)
    ) -> Candidate:
        """Return features of one kind with their error |Phi Phi^T - K| / |K| for the kernel K of a sample of nodes."""
        errors, nonzeros, options, maker = [], 0.0, dict[str, Any](), replace(self, seed=None)
        for seed in range(DRAWS if kind == "walks" else 1):
            features = maker.make(data, kind, seed, self.options)
            assert isinstance(features, DrawnFeatures | SpectrumFeatures)
            phi = feature_matrix(features.draw.at(features.draw.graph.as_nodes(sample)), nodes_of(data)[1])
            errors.append(np.linalg.norm((phi @ phi.T).toarray() - exact) / np.linalg.norm(exact))
            nonzeros, options = phi.nnz / len(sample), features.size_options
            if features.walks is not None:
                settings = features.walks.settings
                options = {"num_walkers": settings.num_walkers, "p_halt": settings.halting.p_halt}
        return Candidate(kind, options, float(np.sqrt(np.mean(np.square(errors)))), nonzeros)

    def _built(self, data: TermData, seed: int, advice: Advice) -> NodeTerm:
        return node_term(data, self.make(data, advice.best.features, seed, self.options), advice)


def sample_of(graph: graphs.Graph) -> NDArray[np.int64]:
    """Return the positions (n,) over which features are measured.

    Args:
        graph: The graph.
    """
    return node_sample(graph, max(16, min(MAX_SAMPLED, MAX_ENTRIES // graph.num_nodes)), 0)


def has_small_precision(graph: graphs.Graph, kernel: GraphKernel) -> bool:
    """Return whether a kernel of many nodes has a precision with a small factor.

    Args:
        graph: The graph. With at most 2,000 nodes the result is False.
        kernel: The kernel.
    """
    return graph.num_nodes > limits().max_exact_nodes and precision_candidate(graph, kernel) is not None
