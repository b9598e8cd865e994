"""Random walks as a frozen draw: the linear map from a modulation f to sparse features.

A walker that starts at i, stands on a after l steps, and has moved along edges with probabilities
p, adds f(l) prod(U_ab / p_ab) / P(length >= l) to entry (i, a) of Phi, first at l = 0; m walkers are
averaged. The move probabilities cancel in expectation, and so does the halting, so E[Phi] = f(U)
entry by entry (Reid et al. 2024, "General graph random features", Theorem 2.1).

The draw does not contain f: with C_l (rows of start nodes, N) the loads of the visits at step l,
Phi = sum_l f(l) C_l.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.errors import InvalidArgumentError
from graphs.features.base import NodeFeatures, Pattern, as_vector, feature_matrix, resolve_nodes
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.walks import HopRule, VisitArrays, WalkSettings, choose_settings, draw
from graphs.walks.hops import exact_hops_of
from graphs.walks.moments import check_second_moment
from graphs.walks.moves import Moves
from graphs.walks.visits import Visits


@dataclass(frozen=True, eq=False)
class Walks(NodeFeatures):
    """A frozen draw of random walks from n start nodes; make one with `sample_walks`.

    Attributes:
        graph: The graph they walk on.
        nodes: Positions (n,) of the start nodes, one per row of the features.
        settings: How they were drawn; `walks.seed` repeats the draw.
        pattern: The sparsity of the features, shape (n, N).
        visits: What the walkers leave behind, merged, by entry of the pattern and hop.
    """

    graph: Graph
    nodes: NDArray[np.int64]
    settings: WalkSettings
    pattern: Pattern
    visits: Visits

    @classmethod
    def of(
        cls,
        graph: Graph,
        nodes: NDArray[np.int64],  # (n,)
        settings: WalkSettings,
        columns: VisitArrays,
    ) -> "Walks":
        """Return the walks that left these columns behind.

        Args:
            graph: The graph.
            nodes: Positions (n,) of the start nodes.
            settings: How they were drawn.
            columns: What `graphs.walks.draw` returned for these three, or `graphs.walks.joined` of its parts.
        """
        visits = Visits.of(nodes, settings, columns, Moves(graph, settings.transitions).roots)
        pattern = Pattern(visits.indptr, visits.indices, (len(nodes), graph.num_nodes))
        return cls(graph, nodes, settings, pattern, visits)

    @cached_property
    def loads(self) -> sp.csr_array:
        """The loads of each hop, `csr_array` (nnz, L + 1); `values(f)` is its product with f. Formed when asked for."""
        return self.visits.table()

    @property
    def seed(self) -> int:
        """The seed of the draw."""
        return self.settings.seed

    @cached_property
    def exact_hops(self) -> NDArray[np.int64]:
        """How many first hops of each start node are computed exactly, (n,)."""
        return exact_hops_of(self.settings.exact_hops, self.graph, self.nodes)

    @cached_property
    def max_length(self) -> int:
        """The number L of steps of the longest walk."""
        return self.visits.max_length

    @np.errstate(under="ignore")
    def weights(self, kernel: GraphKernel) -> NDArray[np.float64]:
        """Return what `values` wants of a kernel: its modulation (L + 1,)."""
        return kernel.modulation(self.max_length)

    @np.errstate(under="ignore")
    def weights_jacobian(self, kernel: GraphKernel) -> NDArray[np.float64]:
        """Return the derivatives of `weights` in the kernel's parameters, (L + 1, p)."""
        return kernel.modulation_jacobian(self.max_length)

    def features(self, kernel: GraphKernel) -> sp.csr_array:
        """Return Phi, `csr_array` (n, N), for a kernel; rows follow `nodes`, columns are positions.

        E[Phi] = f(U) entry by entry. Phi Phi^T is unbiased for the kernel off the diagonal, where it
        multiplies walks of different nodes, which are independent; each diagonal entry is too large
        in expectation by the trace of the covariance of its row. Two independent draws remove that.

        Warns:
            InfiniteVarianceWarning: walks that halt this often have no finite second moment for this
                kernel, so that no number of walkers gives an error bar.
        """
        self.check_second_moment(kernel)
        return feature_matrix(self, kernel)

    @np.errstate(under="ignore")
    def values(
        self,
        f: ArrayLike,  # (>= L + 1,)
    ) -> NDArray[np.float64]:  # (nnz,)
        """Return the values (nnz,) of Phi on `pattern` for a modulation f_0..f_L; more are not used.

        Raises:
            InvalidArgumentError: f is shorter than the longest walk.
        """
        modulation = np.asarray(f, dtype=np.float64)
        if modulation.ndim != 1 or len(modulation) <= self.max_length:
            raise InvalidArgumentError(
                f"The longest walk has {self.max_length} steps, so f needs shape ({self.max_length + 1},), "
                f"got {modulation.shape}. Pad a shorter power series with zeros."
            )
        return self.visits.values(modulation[: self.max_length + 1])

    @np.errstate(under="ignore")
    def values_adjoint(
        self,
        v: ArrayLike,  # (nnz,)
    ) -> NDArray[np.float64]:  # (L + 1,)
        """Return the adjoint of `values` at v (nnz,): the gradient with respect to f, (L + 1,)."""
        return self.visits.adjoint(as_vector("v", v, len(self.pattern.indices)))

    @np.errstate(under="ignore")
    def at(self, nodes: Iterable[Hashable]) -> "Walks":
        """Return the walks of other start nodes (labels) of the same draw.

        Rows are equal, bit for bit, to those of a draw over all nodes with this seed.

        Raises:
            UnknownNodeError: a label names no node.
        """
        starts = self.graph.index(nodes)
        return Walks.of(self.graph, starts, self.settings, draw(self.graph, starts, self.settings))

    def check_second_moment(self, kernel: GraphKernel) -> None:
        """Warn where these walks estimate the features of `kernel` with a large or infinite variance.

        Warns:
            InfiniteVarianceWarning: with the largest halting probability that works.
            LargeVarianceWarning: a row's total weight has a relative variance above 1, see
                `relative_variance`.
        """
        s = self.settings
        fewest = int(self.exact_hops.min()) if len(self.nodes) else 0
        check_second_moment(self.graph, kernel, s.halting, s.transitions, s.num_walkers, fewest)


@np.errstate(under="ignore")
def sample_walks(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,) labels
    num_walkers: int = 16,
    p_halt: float | str | ArrayLike = 0.1,
    lengths: str = "systematic",
    directions: str = "stratified",
    exact_hops: int | str | HopRule = "auto",
    max_nonzeros: int = 64,
    kernel: GraphKernel | None = None,
    seed: int | None = None,
    *,
    transitions: str = "weights",
    num_quantiles: int = 50,
    permutation: ArrayLike | None = None,  # (num_quantiles,)
    tuples: ArrayLike | None = None,  # (S, num_walkers)
    num_threads: int | None = None,
    max_memory: float | None = None,
    progress: bool = True,
) -> Walks:
    """Draw random walks from n nodes of a graph; they serve any kernel afterwards.

    Each walker has the law of a single independent walk, whatever the coupling: its length follows
    the halting law, its moves the transition law. Walkers of different start nodes are independent.

    Args:
        graph: The graph.
        nodes: Labels of the start nodes (n,), repeats allowed; None: every node.
        num_walkers: The number m of walkers per node; even for "antithetic" and "sigma".
        p_halt: The probability to halt before each step, in (0, 1); or an array of survival
            probabilities P(length >= l), l = 0, 1, ... (longer powers are then left out of E[Phi]), such as
            `optimal_survival(kernel)`; or "auto": `choose_p_halt` for `kernel`.
        lengths: The coupling of a node's lengths: "iid", "antithetic" (pairs), "sigma" (pairs
            matched by a permutation), "systematic" (all m from one uniform) or "learned" (all m from a learned law).
        directions: "independent"; "stratified": walkers of one start node that stand on the same
            node spread over its neighbours; or "repelling": they take neighbours without replacement, in blocks of as
            many walkers as there are neighbours (uniform moves only).
        exact_hops: h: the first h steps are computed exactly, and the walkers begin at the nodes that h steps reach,
            drawn from their law, and halt only from there on. "auto": for each node as many as `max_nonzeros` holds
            and the variance rewards, by a pilot of other walks (`walks.pilot.choose_hops`); the rule it finds is
            `walks.settings.exact_hops`, and the numbers `walks.exact_hops` (n,). A rule serves in place of a number.
        max_nonzeros: What rows of Phi may have, in expectation, the walkers' part included, for "auto" to add hops: on
            average over nodes with neighbourhoods of similar size, so that single rows may have some more. Walks that
            have more without exact hops keep what they have.
        kernel: What "sigma" and "auto" are tuned to; None: `RegularizedLaplacian(order=2, sigma=1)`.
        seed: An integer, or None for one from the system, kept as `walks.seed`.
        transitions: "weights": move in proportion to the entries of a row of U, which for the normalised Laplacian are
            the edges' weights; "uniform": to every neighbour alike, the same where weights are equal. With the
            combinatorial Laplacian a node is a neighbour of its own, and loads of uniform moves grow fast.
        num_quantiles: Bins of the permutation for "sigma", or of what is "learned".
        permutation: A permutation (num_quantiles,) for "sigma", from `match_quantiles` on this or
            another graph; None: matched on this graph.
        tuples: A table (S, num_walkers) for "learned", from `couple_quantiles`; None: learned for this graph.
        num_threads: Threads; None: one per core. The walks do not depend on it.
        max_memory: In bytes. The result takes some 7 bytes for each step, 14 where loads do not follow from the ends
            of a walk (exact hops; uniform moves on weighted graphs); that is estimated, and compared, beforehand.
        progress: Whether to show a progress bar on a terminal, if it takes some seconds.

    Sources: general graph random features, Reid et al. (2024); antithetic termination, Reid et al.
    (2023); sigma, Reid et al. (2024, "Variance-reducing couplings for random features",
    Definition 4.2); repelling walks, Reid et al. (2024, "Repelling random walks").

    Raises:
        InvalidArgumentError: an argument out of range, named with what is allowed.
        MemoryBudgetError: the result would take more than `max_memory`.
        UnknownNodeError: a label names no node.
    """
    if max_memory is not None and not (isinstance(max_memory, int | float) and max_memory > 0):
        raise InvalidArgumentError(f"max_memory must be a positive number of bytes or None, got {max_memory!r}.")
    settings = choose_settings(
        graph,
        kernel,
        num_walkers=num_walkers,
        p_halt=p_halt,
        lengths=lengths,
        directions=directions,
        exact_hops=exact_hops,
        max_nonzeros=max_nonzeros,
        seed=seed,
        transitions=transitions,
        num_quantiles=num_quantiles,
        permutation=permutation,
        tuples=tuples,
        num_threads=num_threads,
    )
    starts = resolve_nodes(graph, nodes)
    return Walks.of(graph, starts, settings, draw(graph, starts, settings, num_threads, max_memory, progress))
