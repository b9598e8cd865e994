"""Random walk features: a frozen draw that maps a modulation f linearly to sparse features.

A walker starts at i and is at a after l = 0, 1, ... steps, along edges with probabilities p. It adds f(l) times its
load prod(U_ab / p_ab) / P(length >= l) to entry (i, a) of Phi. The contributions of m walkers are averaged. The
probabilities of moves and of halting cancel in expectation, so E[Phi] = f(U) (Reid et al. 2024, "General graph random
features", Theorem 2.1).

The draw does not depend on f: with C_l (rows of start nodes, N) the loads of the visits at step l, Phi = sum_l f(l)
C_l.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.signal import fftconvolve

from graphs.checks import check_choice, check_count, check_counts, counted, is_count, resolve_seed
from graphs.errors import InvalidArgumentError
from graphs.features.base import NodeFeatures, Sparsity, as_vector, feature_matrix, resolve_nodes
from graphs.graph import Graph
from graphs.kernels import GraphKernel, Modulated, RegularizedLaplacian
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.lengths import (
    LENGTHS,
    STEP_COUPLINGS,
    HaltingDistribution,
    LengthCoupling,
    Sigma,
    Tuples,
    as_halting_distribution,
    quantile_survival,
)
from graphs.matching import MAX_QUANTILES, complete_modulation, couple_quantiles, match_quantiles
from graphs.walks import TRANSITIONS, HopRule, VisitArrays, WalkSettings, choose_p_halt, draw
from graphs.walks.drawing import Visits
from graphs.walks.sampling import check_second_moment, choose_hops
from graphs.walks.transitions import TransitionModel, exact_hops_of

Floats = NDArray[np.float64]


_MAX_STEPS = 1e8
"""The largest expected number of steps per node."""
_MAX_HOPS = 10_000
"""The largest number of exact hops."""


@dataclass(frozen=True, eq=False)
class Walks(NodeFeatures):
    """A frozen draw of random walks from n start nodes, from `sample_walks`.

    Attributes:
        graph: The graph.
        nodes: Positions (n,) of the start nodes, one per row of the features.
        settings: The settings of the draw; `walks.seed` repeats it.
        pattern: The sparsity of the features, (n, N).
        visits: The merged visits of the walkers, by entry of the pattern and hop.

    Examples:
        >>> import graphs
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((9, 9)), num_walkers=8, seed=0)
        >>> walks.features(graphs.kernels.Diffusion(1.0)).shape
        (81, 81)
    """

    graph: Graph
    nodes: NDArray[np.int64]
    settings: WalkSettings
    pattern: Sparsity
    visits: Visits

    @classmethod
    def of(
        cls,
        graph: Graph,
        nodes: NDArray[np.int64],  # (n,)
        settings: WalkSettings,
        columns: VisitArrays,
    ) -> "Walks":
        """Return the walks of given visits.

        Args:
            graph: The graph.
            nodes: Positions (n,) of the start nodes.
            settings: The settings of the draw.
            columns: The result of `graphs.walks.draw` for these three, or of `graphs.walks.concatenate_visits` for its
                parts.
        """
        visits = Visits.of(nodes, settings, columns, TransitionModel(graph, settings.transitions).sqrt_degrees)
        pattern = Sparsity(visits.indptr, visits.indices, (len(nodes), graph.num_nodes))
        return cls(graph, nodes, settings, pattern, visits)

    @cached_property
    def loads(self) -> sp.csr_array:
        """The loads of each hop, `csr_array` (nnz, L + 1); `values(f)` is loads @ f."""
        return self.visits.to_csr()

    @property
    def seed(self) -> int:
        """The seed of the draw."""
        return self.settings.seed

    @cached_property
    def exact_hops(self) -> NDArray[np.int64]:
        """The number (n,) of first hops of each start node that are computed exactly."""
        return exact_hops_of(self.settings.exact_hops, self.graph, self.nodes)

    @cached_property
    def max_length(self) -> int:
        """The number L of steps of the longest walk."""
        return self.visits.max_length

    @np.errstate(under="ignore")
    def weights(self, kernel: GraphKernel) -> NDArray[np.float64]:
        """Return the modulation (L + 1,) of a kernel, for `values`.

        Args:
            kernel: The kernel.
        """
        return kernel.modulation(self.max_length)

    @np.errstate(under="ignore")
    def weights_jacobian(self, kernel: GraphKernel) -> NDArray[np.float64]:
        """Return the derivatives (L + 1, p) of the modulation in the parameters.

        Args:
            kernel: The kernel, with p parameters.
        """
        return kernel.modulation_jacobian(self.max_length)

    def features(self, kernel: GraphKernel) -> sp.csr_array:
        """Return Phi, `csr_array` (n, N), for a kernel.

        Rows follow `nodes`, and columns are positions.

        E[Phi] = f(U) entry by entry. Off the diagonal Phi Phi^T is unbiased for the kernel, since walks of different
        nodes are independent. Each diagonal entry is too large in expectation by the trace of the covariance of its
        row. Two independent draws remove this bias.

        Args:
            kernel: The kernel.

        Warns:
            InfiniteVarianceWarning: If walks with this halting probability have no finite second moment for the kernel.
            LargeVarianceWarning: If their variance is large.
        """
        self.check_second_moment(kernel)
        return feature_matrix(self, kernel)

    @np.errstate(under="ignore")
    def values(
        self,
        f: ArrayLike,  # (>= L + 1,)
    ) -> NDArray[np.float64]:  # (nnz,)
        """Return the values (nnz,) of Phi on `pattern` for a modulation.

        Args:
            f: The modulation f_0..f_L, (L + 1,). Further terms are ignored.

        Raises:
            InvalidArgumentError: If f is shorter than the longest walk.
        """
        modulation = np.asarray(f, dtype=np.float64)
        if modulation.ndim != 1 or len(modulation) <= self.max_length:
            raise InvalidArgumentError(
                f"f must have at least {self.max_length + 1} terms of shape (L + 1,), as the longest walk has "
                f"{self.max_length} steps, got shape {modulation.shape}. Pad a shorter power series with zeros."
            )
        return self.visits.values(modulation[: self.max_length + 1])

    @np.errstate(under="ignore")
    def values_adjoint(
        self,
        v: ArrayLike,  # (nnz,)
    ) -> NDArray[np.float64]:  # (L + 1,)
        """Return the adjoint of `values`: the gradient (L + 1,) in the modulation.

        Args:
            v: The gradient (nnz,) in the values.
        """
        return self.visits.adjoint(as_vector("v", v, len(self.pattern.indices)))

    @np.errstate(under="ignore")
    def at(self, nodes: Iterable[Hashable]) -> "Walks":
        """Return the walks of other start nodes (labels) of the same draw.

        Rows equal those of a draw over all nodes with this seed, bit by bit.

        Args:
            nodes: The labels of the start nodes.

        Raises:
            UnknownNodeError: If a label is not a node.
        """
        starts = self.graph.index(nodes)
        return Walks.of(self.graph, starts, self.settings, draw(self.graph, starts, self.settings))

    def check_second_moment(self, kernel: GraphKernel) -> None:
        """Warn if these walks estimate a kernel with a large or infinite variance.

        Args:
            kernel: The kernel.

        Warns:
            InfiniteVarianceWarning: If the second moment is infinite. The message has the largest halting probability.
            LargeVarianceWarning: If the total weight of a row has a relative variance above 1, see `relative_variance`.
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
    step_coupling: str = "stratified",
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
    """Draw random walks from n nodes of a graph, which serve any kernel afterwards.

    Each walker has the distribution of a single independent walk, whatever the coupling. Walkers of different start
    nodes are independent.

    Sources: general graph random features, Reid et al. (2024); antithetic termination, Reid et al. (2023); sigma, Reid
    et al. (2024, "Variance-reducing couplings for random features", Definition 4.2); repelling walks, Reid et al.
    (2024, "Repelling random walks").

    Args:
        graph: The graph.
        nodes: Labels (n,) of the start nodes, repeats allowed. If None, every node.
        num_walkers: The number m of walkers per node, even for "antithetic" and "sigma".
        p_halt: The probability to halt before each step, in (0, 1). Or survival probabilities P(length >= l), l = 0, 1,
            ..., such as `optimal_survival(kernel)`; E[Phi] then omits higher powers. Or "auto" for `choose_p_halt` for
            `kernel`.
        lengths: The coupling of the lengths of a node: "iid", "antithetic" (pairs), "sigma" (pairs matched by a
            permutation), "systematic" (all m from one uniform) or "learned" (all m from a learned joint distribution).
        step_coupling: "independent", "stratified" or "repelling". Stratified walkers of one start node that meet spread
            over the neighbors. Repelling ones take neighbors without replacement, in blocks (uniform moves only).
        exact_hops: The number h of first steps that are computed exactly. Walkers start at nodes that h steps reach,
            and halt only from there on. "auto" chooses h for each node, as many as `max_nonzeros` allows and a pilot of
            other walks finds useful. A `HopRule` repeats such a choice, see `walks.settings.exact_hops`.
        max_nonzeros: The budget of expected non-zeros per row of Phi for "auto", a mean over nodes with neighborhoods
            of similar size. Walks that exceed it without exact hops are kept.
        kernel: The kernel that "sigma", "learned" and "auto" are tuned to. If None, `RegularizedLaplacian(order=2,
            sigma=1)`.
        seed: An integer. If None, one from the system, stored as `walks.seed`.
        transitions: "weights" moves in proportion to the entries of a row of U, which are the weights for the
            normalized Laplacian. "uniform" moves to each neighbor with the same probability. With the combinatorial
            Laplacian a node is its own neighbor, and the loads of uniform moves grow fast.
        num_quantiles: The number of bins of the permutation of "sigma" or the table of "learned".
        permutation: The permutation (num_quantiles,) of "sigma", from `match_quantiles` on this or another graph. If
            None, it is matched on this graph.
        tuples: The table (S, num_walkers) of "learned", from `couple_quantiles`. If None, it is learned for this graph.
        num_threads: The number of threads. If None, one per core. It does not change the walks.
        max_memory: The memory allowed in bytes, compared with an estimate beforehand. The result takes about 7 bytes
            per step, or 14 with exact hops or uniform moves on weighted graphs. If None, that of this machine.
        progress: Whether to show a progress bar on a terminal for long draws.

    Returns:
        The walks of the start nodes. Their features have one row per start node.

    Raises:
        InvalidArgumentError: If an argument is out of range.
        MemoryBudgetError: If the result would need more than `max_memory`.
        UnknownNodeError: If a label is not a node.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((9, 9)), graphs.kernels.Diffusion(1.0)
        >>> walks = graphs.sample_walks(g, num_walkers=64, p_halt=0.2, seed=0)
        >>> phi = walks.features(kernel)
        >>> bool(np.abs((phi @ phi.T).toarray() - kernel.exact(g)).max() < 0.1)
        True
    """
    if max_memory is not None and not (isinstance(max_memory, int | float) and max_memory > 0):
        raise InvalidArgumentError(f"max_memory must be a positive number of bytes or None, got {max_memory!r}.")
    tuned = RegularizedLaplacian() if kernel is None else kernel
    check_graph_and_kernel(graph, tuned)
    check_counts(num_walkers=num_walkers, max_nonzeros=max_nonzeros)
    check_choice("step_coupling", step_coupling, STEP_COUPLINGS)
    check_choice("transitions", transitions, TRANSITIONS)
    if num_threads is not None:
        check_count("num_threads", num_threads)
    hops = _initial_hops(exact_hops)
    if isinstance(p_halt, str) and p_halt == "auto":
        fewest = hops if isinstance(hops, int) else 0
        p_halt = choose_p_halt(graph, tuned, num_walkers, transitions=transitions, exact_hops=fewest)
    halting = as_halting_distribution(p_halt)
    coupling = _length_coupling(graph, lengths, halting, tuned, num_quantiles, permutation, tuples, num_walkers)
    _check_size(num_walkers, halting)
    settings = WalkSettings(
        int(num_walkers), halting, lengths, step_coupling, transitions, resolve_seed(seed), coupling, hops
    )
    if isinstance(exact_hops, str):
        settings = replace(settings, exact_hops=choose_hops(graph, tuned, settings, int(max_nonzeros), num_threads))
    starts = resolve_nodes(graph, nodes)
    return Walks.of(graph, starts, settings, draw(graph, starts, settings, num_threads, max_memory, progress))


def _length_coupling(
    graph: Graph,
    lengths: str,
    halting: HaltingDistribution,
    kernel: GraphKernel,
    num_quantiles: int,
    permutation: ArrayLike | None,
    tuples: ArrayLike | None,
    num_walkers: int,
) -> LengthCoupling:
    check_choice("lengths", lengths, LENGTHS)
    check_count("num_quantiles", num_quantiles, most=MAX_QUANTILES)
    if lengths == "learned":
        if tuples is None:
            tuples = couple_quantiles(graph, kernel, halting.p_halt, num_walkers, num_quantiles)
        return Tuples.from_array(tuples, num_walkers)
    if lengths != "sigma":
        return LENGTHS[lengths]()
    if permutation is None:
        permutation = match_quantiles(graph, kernel, halting.p_halt, num_quantiles)
    return Sigma.from_array(permutation)


def _initial_hops(exact_hops: Any) -> int | HopRule:
    """Return the number of exact hops before any are chosen, 0 for "auto"."""
    if isinstance(exact_hops, HopRule):
        return exact_hops
    if isinstance(exact_hops, str) and exact_hops == "auto":
        return 0
    if is_count(exact_hops) and 0 <= exact_hops <= _MAX_HOPS:
        return int(exact_hops)
    raise InvalidArgumentError(
        f'exact_hops must be an integer from 0 to {_MAX_HOPS}, "auto" or a HopRule, got {exact_hops!r}.'
    )


def _check_size(num_walkers: int, halting: HaltingDistribution) -> None:
    steps = num_walkers * (1 / halting.p_halt if isinstance(halting.p_halt, float) else len(halting.p_halt))
    if steps > _MAX_STEPS:
        raise InvalidArgumentError(
            f"Walks must take at most {_MAX_STEPS:.0e} steps per node, got about {steps:.1e} steps per node for "
            f"{counted(num_walkers, 'walker')}. Use a larger p_halt or fewer walkers."
        )


# --- Monte Carlo estimates of the costs of pairs of length quantiles -------------------------------------------------


@np.errstate(under="ignore")
def walk_costs(
    graph: Graph,
    kernel: GraphKernel,
    p_halt: float | ArrayLike = 0.1,
    num_quantiles: int = 50,
    *,
    num_nodes: int = 256,
    num_walkers: int = 64,
    exact_hops: int | str = "auto",
    seed: int | None = None,
) -> Floats:  # (n, n)
    """Return an unbiased estimate of `quantile_costs`, tr(g_q(U) K g_q'(U)) / N.

    (f g_q)(U) e_i is a feature row of the modulation f * (f ratio_q). The cost is the mean over nodes of the inner
    product of two such rows, from two independent draws. Time and memory do not grow with the graph.

    Args:
        graph: The graph.
        kernel: The kernel.
        p_halt: The halting probability, or survival probabilities, whose quantiles are paired.
        num_quantiles: The number n of quantiles.
        num_nodes: The number of random start nodes.
        num_walkers: The number of walkers per node.
        exact_hops: As for `sample_walks`.
        seed: The seed of nodes and walks. If None, one from the system.

    Raises:
        InvalidArgumentError: If an argument is out of range, or walks have a large second moment for the kernel.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((5, 5))
        >>> graphs.walk_costs(g, graphs.kernels.Diffusion(1.0), num_quantiles=4, seed=0).shape
        (4, 4)
    """
    check_graph_and_kernel(graph, kernel)
    check_count("num_quantiles", num_quantiles, most=MAX_QUANTILES)
    check_counts(num_nodes=num_nodes, num_walkers=num_walkers)
    generator = np.random.default_rng(resolve_seed(seed))
    nodes = generator.permutation(graph.num_nodes)[:num_nodes]
    labels = graph.as_nodes(nodes)
    f = complete_modulation(kernel)
    modulations = fftconvolve(
        quantile_survival(as_halting_distribution(p_halt), num_quantiles, len(f) - 1) * f, f[None, :], axes=1
    )
    halting = choose_p_halt(graph, Modulated(tuple(modulations[-1].tolist())), num_walkers)
    seeds = (int(generator.integers(2**62)) for _ in range(2))
    draws = [
        sample_walks(graph, labels, num_walkers, p_halt=halting, exact_hops=exact_hops, kernel=kernel, seed=walk_seed)
        for walk_seed in seeds
    ]
    (first, a), (second, b) = (_rows(draw, modulations) for draw in draws)
    _, here, there = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    product = a[:, here] @ b[:, there].T / len(nodes)
    return np.asarray((product + product.T) / 2)


def _rows(walks: Walks, modulations: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the entries (nnz,), row N + column, and values (n, nnz) of modulations."""
    indptr, indices, (_, size) = walks.pattern
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    longest = walks.max_length + 1
    padded = np.zeros((len(modulations), longest))
    padded[:, : min(longest, modulations.shape[1])] = modulations[:, :longest]
    return rows * size + indices, np.stack([walks.values(f) for f in padded])
