"""The settings of walks, which with the graph and the start nodes determine every walk.

With h exact hops, the powers U^0 to U^h of the shift operator are summed exactly before walkers start. Walkers start at
nodes after h hops and estimate the higher powers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs import random
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.lengths import HaltingDistribution, LengthCoupling

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TRANSITIONS = ("weights", "uniform")
"""The names of transition probabilities."""
_MAX = 1000
"""The largest number of limits of a rule."""


@dataclass(frozen=True, eq=False)
class HopRule:
    """A rule for the number of exact first hops, by the size of the neighborhood.

    The number depends only on the node and the graph, so the walks of a node do not depend on the other start nodes.

    Attributes:
        limits: Limits (H + 1,). A node may have h exact hops if at most limits[h] nodes lie within h hops. 0 hops are
            always allowed.

    Raises:
        InvalidArgumentError: If limits are not integers (H + 1,), or H is too large.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> rule = graphs.HopRule(np.array([1, 5, 13]))
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((9, 9)), exact_hops=rule, seed=0)
        >>> int(walks.exact_hops.max())
        2
    """

    limits: NDArray[np.int64]

    def __post_init__(self) -> None:
        limits = np.asarray(self.limits)
        if limits.ndim != 1 or not 1 <= len(limits) <= _MAX or not np.issubdtype(limits.dtype, np.integer):
            raise InvalidArgumentError(
                f"A HopRule must have integer limits (H + 1,), at most {_MAX} of them, got {repr(self.limits)[:200]}."
            )
        object.__setattr__(self, "limits", limits.astype(np.int64))

    @property
    def max_hops(self) -> int:
        """The largest number of hops of any node."""
        return len(self.limits) - 1


@dataclass(frozen=True, eq=False)
class WalkSettings:
    """The settings of walks.

    Attributes:
        num_walkers: The number m of walkers per node.
        halting: The distribution of lengths.
        lengths: The name of `length_coupling`, as in `graphs.sample_walks(lengths=)`.
        step_coupling: The coupling of steps: "independent", "stratified" or "repelling" (neighbors without
            replacement).
        transitions: "weights" or "uniform".
        seed: The seed.
        length_coupling: The coupling of lengths.
        exact_hops: The number h of exact first hops, or a rule. See the docstring of the module.

    Examples:
        >>> import graphs
        >>> settings = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), p_halt=0.2, seed=0).settings
        >>> settings.halting.p_halt, settings.lengths
        (0.2, 'systematic')
    """

    num_walkers: int
    halting: HaltingDistribution
    lengths: str
    step_coupling: str
    transitions: str
    seed: int
    length_coupling: LengthCoupling
    exact_hops: int | HopRule = 0

    @property
    def max_hops(self) -> int:
        """The largest number of exact first hops of any node."""
        return self.exact_hops.max_hops if isinstance(self.exact_hops, HopRule) else self.exact_hops


# --- Transitions of a walk: their probabilities, and the factors by which they change the load -----------------------


@dataclass(frozen=True, eq=False)
class TransitionModel:
    """Transition probabilities of walks, and the importance weights of steps.

    The load of a walk is its importance weight, the product of U_ab / p_ab over its steps. With transitions in
    proportion to weight, p_ab = U_ab r_b / r_a, and a step multiplies the load by U_ab / p_ab = r_a / r_b. The load of
    a walk from i to a is then r_i / r_a on any path. For the normalized Laplacian r_a = sqrt(d_a), so p_ab = W_ab /
    d_a. For the combinatorial Laplacian r_a = 1, and walks stay at a node with probability U_aa.

    U = I - L is the shift operator: D^(-1/2) W D^(-1/2) for the normalized Laplacian L, and I - (D - W) / max_a d_a for
    the combinatorial one.

    Attributes:
        graph: The graph.
        transitions: "weights" or "uniform".

    Examples:
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> model = TransitionModel(graphs.Graph.from_edges([(0, 1), (1, 2)], [1.0, 3.0]), "weights")
        >>> model.probabilities.round(6).tolist(), model.load_is_path_independent
        ([1.0, 0.25, 0.75, 1.0], True)
    """

    graph: Graph
    transitions: str

    @property
    def matrix(self) -> sp.csr_array:
        """The shift operator U, (N, N)."""
        return self.graph.shift_operator

    @cached_property
    def sqrt_degrees(self) -> Floats:  # (N,)
        """Square roots r (N,) of the degrees for the normalized Laplacian, 1 at isolated nodes.

        For the combinatorial Laplacian, r is 1 at all nodes.
        """
        if self.graph.laplacian == "combinatorial":
            return np.ones(self.graph.num_nodes)
        return np.sqrt(np.where(self.graph.degrees > 0, self.graph.degrees, 1.0))

    @cached_property
    def probabilities(self) -> Floats:  # (nnz,)
        """Transition probabilities p_ab in proportion to weight, (0,) if they are uniform."""
        matrix, counts = self.matrix, np.diff(self.matrix.indptr)
        weights = self.graph.adjacency.data
        if self.graph.laplacian == "normalized" and (len(weights) == 0 or weights.min() == weights.max()):
            return np.zeros(0)
        p = matrix.data * self.sqrt_degrees[matrix.indices] / np.repeat(self.sqrt_degrees, counts)
        return np.zeros(0) if np.allclose(p, 1 / np.repeat(counts, counts), rtol=1e-12, atol=0) else p

    @property
    def load_is_path_independent(self) -> bool:
        """Whether the load of a walk depends only on its first and last node."""
        return self.transitions == "weights" or len(self.probabilities) == 0

    @cached_property
    def cumulative(self) -> Floats:  # (nnz,)
        """Cumulative transition probabilities of each row, (0,) if uniform."""
        if self.transitions == "uniform" or len(self.probabilities) == 0:
            return np.zeros(0)
        from graphs.walks.loops import cumulate

        return np.asarray(cumulate(self.matrix.indptr, self.probabilities))

    @cached_property
    def load_factors(self) -> Floats:  # (nnz,)
        """Factors U_ab / p_ab by which steps multiply the load."""
        matrix, counts = self.matrix, np.diff(self.matrix.indptr)
        if self.load_is_path_independent:
            return np.asarray(np.repeat(self.sqrt_degrees, counts) / self.sqrt_degrees[matrix.indices])
        return np.asarray(matrix.data * np.repeat(counts, counts))


# --- The number of exact first hops of start nodes -------------------------------------------------------------------


def exact_hops_of(exact_hops: int | HopRule, graph: Graph, starts: Integers) -> Integers:
    """Return the number (n,) of exact first hops of n start nodes.

    Args:
        exact_hops: The number of hops, or a rule.
        graph: The graph.
        starts: Positions (n,) of the start nodes.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.transitions import exact_hops_of
        >>> g, rule = graphs.Graph.from_grid((5, 5)), graphs.HopRule(np.array([1, 4]))
        >>> exact_hops_of(rule, g, np.array([0, 12])).tolist()  # a corner has 3 nodes within 1 hop, the center 5
        [1, 0]
    """
    if not isinstance(exact_hops, HopRule):
        return np.full(len(starts), exact_hops, dtype=np.int64)
    limit = min(int(exact_hops.limits.max()), graph.num_nodes)
    fits = count_within_hops(graph, starts, exact_hops.max_hops, limit) <= exact_hops.limits
    fits[:, 0] = True
    return np.asarray(exact_hops.max_hops - np.argmax(fits[:, ::-1], axis=1), dtype=np.int64)


def count_within_hops(graph: Graph, starts: Integers, max_hops: int, limit: int) -> Integers:
    """Return the numbers (n, max_hops + 1) of nodes within 0, 1, ... hops of n nodes.

    The search ends when more than `limit` are found. This and the later hops then have a count above the limit.

    Args:
        graph: The graph.
        starts: Positions (n,) of the start nodes.
        max_hops: The largest number of hops.
        limit: The number of nodes at which the search ends.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.transitions import count_within_hops
        >>> count_within_hops(graphs.Graph.from_grid((5, 5)), np.array([12]), 2, 25).tolist()
        [[1, 5, 13]]
    """
    from graphs.walks.loops import reach

    matrix = graph.shift_operator
    return np.asarray(reach(matrix.indptr, matrix.indices, starts, max_hops, limit))


# --- Exact first hops, and the nodes from which walkers continue -----------------------------------------------------


class ExactFirstHops(NamedTuple):
    """The exact visits of n start nodes, and the nodes from which their m walkers continue.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> from graphs.walks.transitions import prepare_starts
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=4, exact_hops=1, seed=0)
        >>> prepare_starts(TransitionModel(walks.graph, "weights"), walks.nodes, walks.settings).initial_nodes.shape
        (9, 4)
    """

    hops: Integers  # (n,) the number of exact hops
    counts: Integers  # (n,) the number of exact visits
    visits: NDArray[np.uint64]  # (counts.sum(),) ascending in hop for each start
    loads: NDArray[np.float64]  # (counts.sum(),)
    initial_nodes: NDArray[np.int32]  # (n, m)
    initial_loads: NDArray[np.float64]  # (n, m)


def prepare_starts(model: TransitionModel, starts: Integers, settings: WalkSettings) -> ExactFirstHops:
    """Return the exact first hops of start nodes, and the nodes where walkers continue.

    Walkers continue at nodes that are drawn from the distribution after the exact hops. Without exact hops, they
    continue at the start node, each with the load 1 / m.

    Args:
        model: The transition probabilities.
        starts: Positions (n,) of the start nodes.
        settings: The settings of the walks: walkers, exact hops, step coupling and seed.

    Returns:
        The exact visits, and the nodes and loads (n, m) at which the m walkers of each start node continue.

    Examples:
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> from graphs.walks.transitions import prepare_starts
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=4, exact_hops=1, seed=0)
        >>> int(
        ...     prepare_starts(TransitionModel(walks.graph, "weights"), walks.nodes, walks.settings).counts[4]
        ... )  # the center
        5
    """
    m, n = settings.num_walkers, len(starts)
    if settings.max_hops == 0:
        visits = starts.astype(np.uint64) << np.uint64(32)
        nodes = np.repeat(starts.astype(np.int32)[:, None], m, axis=1)  # contiguous, so that `walk` is compiled once
        counts, loads = np.ones(n, np.int64), np.full((n, m), 1 / m)
        return ExactFirstHops(np.zeros(n, np.int64), counts, visits, np.ones(n), nodes, loads)
    from graphs.walks.loops import draw_starts

    num_hops = exact_hops_of(settings.exact_hops, model.graph, starts)
    ends, nodes, mass, loads = _push(model, starts, num_hops)
    per_hop = np.diff(np.concatenate([[0], ends.ravel()])).reshape(ends.shape)
    hops = np.repeat(np.tile(np.arange(ends.shape[1], dtype=np.uint64), n), per_hop.ravel())
    visits = (nodes.astype(np.uint64) << np.uint64(32)) | hops
    keys = random.derive(random.stream(settings.seed, random.Role.STARTS), starts)
    indices = draw_starts(ends, num_hops, mass, keys, m, settings.step_coupling != "independent")
    initial_nodes = nodes[indices]
    initial_loads = model.sqrt_degrees[starts][:, None] / model.sqrt_degrees[initial_nodes] / m
    return ExactFirstHops(num_hops, per_hop.sum(1), visits, loads, initial_nodes, initial_loads)


def mean_exact_visits(model: TransitionModel, starts: Integers, exact_hops: int | HopRule) -> float:
    """Return an estimate of the mean number of exact visits of a start node, from a sample.

    Args:
        model: The transition probabilities.
        starts: Positions (n,) of the start nodes.
        exact_hops: The number of exact first hops, or a rule.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> from graphs.walks.transitions import mean_exact_visits
        >>> mean_exact_visits(TransitionModel(graphs.Graph.from_grid((3, 3)), "weights"), np.array([4]), 1)
        5.0
    """
    sample = starts[np.linspace(0, len(starts) - 1, min(len(starts), 32), dtype=np.int64)]
    ends, *_ = _push(model, sample, exact_hops_of(exact_hops, model.graph, sample))
    return float(ends[-1, -1]) / len(sample) if len(sample) else 0.0


def _push(model: TransitionModel, starts: Integers, num_hops: Integers) -> tuple[NDArray[Any], ...]:
    """Return ends, nodes, probabilities and loads of first hops, as `loops.push`."""
    from graphs.walks.loops import push

    matrix = model.matrix
    pushed: tuple[NDArray[Any], ...] = push(
        matrix.indptr, matrix.indices, model.probabilities, model.sqrt_degrees, starts, num_hops
    )
    return pushed
