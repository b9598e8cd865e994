"""Drawing of walks into plain arrays: chunks of start nodes in threads, concatenated in order.

The load of a visit is its importance weight: the product of U_ab / p_ab over the steps of the walk, over
m P(length >= hop). U is the shift operator, p_ab are the transition probabilities, and m is the number of walkers.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs import random
from graphs.arrays import pointers
from graphs.checks import check_fits
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.lengths import STEP_COUPLINGS
from graphs.walks.transitions import Floats, TransitionModel, WalkSettings, mean_exact_visits, prepare_starts

Array = NDArray[Any]

CHUNK_WALKERS = 2**15
"""The largest number of walkers that advance together, enough for their cache misses to overlap."""
_MIN_WALKERS = 2**10
"""The smallest number of walkers of a chunk, if there are so many."""
_PROGRESS_BAR_VISITS = 2e8
"""The number of expected visits above which a progress bar is shown."""
_MIN_VISITS_FOR_THREADS = 2e5
"""The number of expected visits above which threads are used. Starting them costs thousands of visits."""


class VisitArrays(NamedTuple):
    """The merged visits of the walks of n start nodes, one start after another.

    Examples:
        >>> import graphs
        >>> from graphs.walks import draw
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, exact_hops=0, seed=0)
        >>> draw(walks.graph, walks.nodes, walks.settings).node_counts.shape
        (9,)
    """

    node_counts: Array  # (n,) int64: the number of nodes visited from each start
    visit_counts: Array  # (n,) int64: the number of distinct pairs of a node and a hop
    indices: Array  # (nnz,) int32: the nodes, ascending for each start
    hop_counts: Array  # (nnz,) the number of hops of each node
    hops: Array  # (V,) ascending for each node
    loads: Array  # (V,) sums of loads, or numbers of visits


def draw(
    graph: Graph,
    starts: NDArray[np.int64],  # (n,)
    settings: WalkSettings,
    num_threads: int | None = None,
    max_memory: float | None = None,
    progress: bool = False,
) -> VisitArrays:
    """Return the visits of the walks of n start nodes, see `graphs.sample_walks`.

    Args:
        graph: The graph.
        starts: Positions (n,) of the start nodes.
        settings: The settings of the walks.
        num_threads: The number of threads. If None, one per core.
        max_memory: The memory allowed in bytes. If None, that of this machine.
        progress: Whether to show a progress bar.

    Raises:
        InvalidArgumentError: If steps are without replacement ("repelling") and moves are not uniform.
        MemoryBudgetError: If the result would need more than `max_memory`.

    Examples:
        >>> import graphs
        >>> from graphs.walks import draw
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> visits = draw(walks.graph, walks.nodes, walks.settings)
        >>> bool((visits.indices == walks.pattern.indices).all())
        True
    """
    model = TransitionModel(graph, settings.transitions)
    if settings.step_coupling == "repelling" and len(model.cumulative):
        raise InvalidArgumentError(
            'step_coupling="repelling" must have uniform moves, got others. Pass transitions="uniform" and use the '
            "normalized Laplacian."
        )
    _ = model.sqrt_degrees, model.cumulative  # before the threads ask for them
    if settings.max_hops > 0:
        _ = model.load_factors, model.probabilities
    expected, load_type = _expected(model, starts, settings, max_memory)
    size = _chunk_rows(len(starts), settings.num_walkers, num_threads)
    columns = [_GrowableArray(np.int64, len(starts)), _GrowableArray(np.int64, len(starts))]
    columns += [_GrowableArray(kind, expected) for kind in (np.int32, np.uint8, np.uint8, load_type)]
    with _bar(len(starts), progress and expected > _PROGRESS_BAR_VISITS) as advance, _pool(num_threads) as pool:
        chunks = [starts[first : first + size] for first in range(0, len(starts), size)]
        map_chunks = pool.map if len(chunks) > 1 and expected > _MIN_VISITS_FOR_THREADS else map
        drawn = map_chunks(lambda rows: walk_chunk(model, rows, settings), chunks)
        for chunk, arrays in zip(chunks, drawn, strict=True):
            for column, values in zip(columns, arrays, strict=True):
                column.add(values)
            advance(len(chunk))
    return VisitArrays(*(column.trimmed() for column in columns))


def concatenate_visits(parts: Sequence[VisitArrays]) -> VisitArrays:
    """Return the visits of consecutive parts of start nodes as those of one draw.

    Args:
        parts: The visits of at least one part.

    Examples:
        >>> import graphs
        >>> from graphs.walks import concatenate_visits, draw
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> parts = [draw(walks.graph, nodes, walks.settings) for nodes in (walks.nodes[:4], walks.nodes[4:])]
        >>> len(concatenate_visits(parts).node_counts)
        9
    """
    return VisitArrays(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def check_memory(
    graph: Graph,
    starts: NDArray[np.int64],  # (n,)
    settings: WalkSettings,
    max_memory: float | None,
) -> None:
    """Check that the walks of n start nodes fit into memory.

    Args:
        graph: The graph.
        starts: Positions (n,) of the start nodes.
        settings: The settings of the walks.
        max_memory: The memory allowed in bytes. If None, that of this machine.

    Raises:
        MemoryBudgetError: If they would need more.

    Examples:
        >>> import graphs
        >>> from graphs.walks import check_memory
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> check_memory(walks.graph, walks.nodes, walks.settings, max_memory=1e6)
    """
    _expected(TransitionModel(graph, settings.transitions), starts, settings, max_memory)


def _expected(
    model: TransitionModel, starts: NDArray[np.int64], settings: WalkSettings, max_memory: float | None
) -> tuple[float, np.dtype[Any]]:
    """Return the expected number of visits, and the type of their loads."""
    expected = len(starts) * (1 + settings.num_walkers * settings.halting.mean())
    if settings.max_hops > 0:
        expected += len(starts) * mean_exact_visits(model, starts, settings.exact_hops)
    load_type = _load_type(settings, _weights_depend_on_path(model, settings))
    longest = settings.halting.quantile(np.array([1 - 1e-12]))[0] + settings.max_hops
    bytes_per_visit = 4 + 2 * np.min_scalar_type(int(longest)).itemsize + load_type.itemsize
    remedy = "Use fewer walkers or start nodes, or a larger p_halt."
    check_fits("These walks", bytes_per_visit * expected, remedy, max_memory)
    return expected, load_type


def _chunk_rows(num_rows: int, num_walkers: int, num_threads: int | None) -> int:
    """Return the number of start nodes per chunk, several chunks per thread."""
    fair = num_rows // (4 * (num_threads or os.cpu_count() or 1))
    return max(1, min(CHUNK_WALKERS // num_walkers, max(fair, _MIN_WALKERS // num_walkers)))


def walk_chunk(
    model: TransitionModel,
    starts: NDArray[np.int64],  # (n,)
    settings: WalkSettings,
) -> VisitArrays:
    """Return the visits of the walks of n start nodes.

    Args:
        model: The transition probabilities.
        starts: Positions (n,) of the start nodes.
        settings: The settings of the walks.

    Examples:
        >>> import graphs
        >>> from graphs.walks.drawing import walk_chunk
        >>> from graphs.walks.transitions import TransitionModel
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> walk_chunk(TransitionModel(walks.graph, "weights"), walks.nodes[:4], walks.settings).node_counts.shape
        (4,)
    """
    from graphs.walks.loops import merge, walk

    matrix = model.matrix
    keys, lengths = node_draws(starts, settings)
    survival = settings.halting.survival(int(lengths.max(initial=0)))
    prepared, path_dependent = prepare_starts(model, starts, settings), _weights_depend_on_path(model, settings)
    totals = lengths.sum(1) + prepared.counts
    offsets = np.cumsum(totals) - totals
    visits = np.empty(int(totals.sum()), np.uint64)
    path_weights = np.empty(len(visits) if path_dependent else 0)
    exact_slots = np.arange(len(prepared.visits)) + np.repeat(
        offsets - np.cumsum(prepared.counts) + prepared.counts, prepared.counts
    )
    visits[exact_slots] = prepared.visits
    if path_dependent:
        path_weights[exact_slots] = prepared.loads
    cursors = offsets + prepared.counts
    walk(
        matrix.indptr,
        matrix.indices,
        model.cumulative,
        model.load_factors if path_dependent else np.zeros(0),
        prepared.initial_nodes,
        prepared.initial_loads if path_dependent else np.zeros((0, 0)),
        prepared.hops,
        keys,
        lengths,
        survival,
        STEP_COUPLINGS.index(settings.step_coupling),
        cursors,
        visits,
        path_weights,
    )
    small = np.min_scalar_type(len(survival) + settings.max_hops)
    kinds = (np.int32, small, small, _load_type(settings, path_dependent))
    indices, hop_counts, hops, loads = (np.empty(len(visits), kind) for kind in kinds)
    node_counts, visit_counts = merge(offsets, offsets + totals, visits, path_weights, indices, hop_counts, hops, loads)
    nodes, visited = int(node_counts.sum()), int(visit_counts.sum())
    return VisitArrays(node_counts, visit_counts, indices[:nodes], hop_counts[:nodes], hops[:visited], loads[:visited])


def _weights_depend_on_path(model: TransitionModel, settings: WalkSettings) -> bool:
    """Return whether loads depend on the path, so that walkers must keep them."""
    return settings.max_hops > 0 or not model.load_is_path_independent


def _load_type(settings: WalkSettings, path_dependent: bool) -> np.dtype[Any]:
    """Return the type of loads or of numbers of visits."""
    return np.dtype(np.float64) if path_dependent else np.min_scalar_type(settings.num_walkers)


def node_draws(nodes: NDArray[np.int64], settings: WalkSettings) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the step keys (n,) and the lengths (n, m) of n start nodes.

    Args:
        nodes: Positions (n,) of the start nodes.
        settings: The settings of the walks.

    Examples:
        >>> import graphs
        >>> from graphs.walks.drawing import node_draws
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0)
        >>> node_draws(walks.nodes, walks.settings)[1].shape
        (9, 2)
    """
    length_keys = random.derive(random.stream(settings.seed, random.Role.LENGTHS), nodes)
    step_keys = random.derive(random.stream(settings.seed, random.Role.STEPS), nodes)
    return step_keys, settings.length_coupling.draw(length_keys[:, None], settings.num_walkers, settings.halting)


class _GrowableArray:
    """An array that grows in length and type. Unused memory is not committed."""

    def __init__(self, kind: Any, expected: float) -> None:
        self._array: Array = np.empty(int(1.1 * expected) + 1024, kind)
        self._used = 0

    def add(self, values: Array) -> None:
        """Append."""
        need = self._used + len(values)
        if values.dtype.itemsize > self._array.itemsize:
            self._array = self._array.astype(values.dtype)
        if need > len(self._array):
            self._array.resize(int(1.3 * need), refcheck=False)
        self._array[self._used : need] = values
        self._used = need

    def trimmed(self) -> Array:
        """Return the appended values without a copy."""
        self._array.resize(self._used, refcheck=False)
        return self._array


@contextmanager
def _pool(num_threads: int | None) -> Iterator[ThreadPoolExecutor]:
    """Return a thread pool that cancels pending work when interrupted."""
    with ThreadPoolExecutor(num_threads or os.cpu_count()) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, or nothing."""
    if not wanted or not sys.stderr.isatty() or find_spec("rich") is None:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("walking", total=total)
        yield lambda count: bar.advance(task, count)


# --- Merged visits of walks, with a few bytes each -------------------------------------------------------------------
#
# The modulation of a kernel K is the sequence of coefficients f_l of K^(1/2) = sum_l f_l U^l, with the shift operator
# U = I - L.


@dataclass(frozen=True, eq=False)
class Visits:
    """Loads by start, node and hop: the linear map from a modulation to features.

    The load of a visit is its importance weight. It is the product of U_ab / p_ab over the steps of the walk, over the
    number of walkers m times P(length >= hop). A feature is the sum over visits of modulation[hop] times load. For
    moves in proportion to weight the load of a visit of node a from node i is sqrt(d_i / d_a) / (m P(length >= hop)).
    Then only the number of visits is stored, an integer of one or two bytes.

    Attributes:
        starts: Positions (n,) of the start nodes.
        indptr: The first entry (n + 1,) of each start in the pattern of the features.
        indices: The nodes (nnz,) of the entries.
        visit_indptr: The first visit (n + 1,) of each start.
        hop_counts: The number of hops (nnz,) of each entry of the pattern.
        hops: Hops (V,), ascending in each entry.
        loads: Sums of loads (V,), or numbers of visits.
        load_per_visit: The load (L + 1,) of one visit if `loads` are numbers of visits, otherwise (0,).
        sqrt_degrees: sqrt(d) (N,) if `loads` are numbers of visits, otherwise (0,). All 1 for the combinatorial
            Laplacian.

    Examples:
        >>> import graphs
        >>> visits = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0).visits
        >>> len(visits.loads) == int(visits.hop_counts.sum())
        True
    """

    starts: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    visit_indptr: NDArray[np.int64]
    hop_counts: Array
    hops: Array
    loads: Array
    load_per_visit: Floats
    sqrt_degrees: Floats

    @classmethod
    def of(
        cls,
        starts: NDArray[np.int64],  # (n,)
        settings: WalkSettings,
        columns: VisitArrays,
        sqrt_degrees: Floats,  # (N,)
    ) -> "Visits":
        """Return drawn visits, with read-only arrays.

        Args:
            starts: Positions (n,) of the start nodes.
            settings: The settings of the walks.
            columns: The arrays of the visits, from `graphs.walks.draw`.
            sqrt_degrees: The square roots (N,) of the degrees of the transition model.
        """
        node_counts, visit_counts, indices, hop_counts, hops, loads = columns
        load_per_visit = np.zeros(0)
        if loads.dtype == np.float64:
            sqrt_degrees = np.zeros(0)
        else:
            load_per_visit = 1 / (settings.num_walkers * settings.halting.survival(int(hops.max(initial=0))))
            load_per_visit[0] = 1.0
        arrays = (
            pointers(node_counts),
            indices,
            pointers(visit_counts),
            hop_counts,
            hops,
            loads,
            load_per_visit,
            sqrt_degrees,
        )
        for array in arrays:
            array.flags.writeable = False
        return cls(starts, *arrays)

    @property
    def max_length(self) -> int:
        """The last hop."""
        return int(self.hops.max(initial=0))

    def values(
        self,
        f: Floats,  # (>= L + 1,)
    ) -> Floats:  # (nnz,)
        """Return sum_l f_l times the load at hop l, of each entry.

        Args:
            f: The modulation (L + 1,). Further terms are ignored.
        """
        from graphs.walks.loops import gather

        weights = f[: len(self.load_per_visit)] * self.load_per_visit if len(self.load_per_visit) else f
        return np.asarray(gather(*self._arrays, weights, *self._factors))

    def adjoint(
        self,
        v: Floats,  # (nnz,)
    ) -> Floats:  # (L + 1,)
        """Return the adjoint of `values`: the gradient (L + 1,) in the modulation.

        Args:
            v: The gradient (nnz,) in the values.
        """
        from graphs.walks.loops import scatter

        out = scatter(*self._arrays, v, *self._factors, self.max_length)
        return np.asarray(out * self.load_per_visit if len(self.load_per_visit) else out)

    def to_csr(self) -> sp.csr_array:
        """Return the loads as a `csr_array` (nnz, L + 1)."""
        loads, shape = self.loads.astype(np.float64), (len(self.indices), self.max_length + 1)
        if len(self.load_per_visit):
            left, right = self._factors
            factors = np.repeat(left, np.diff(self.indptr)) * right[self.indices]
            loads *= np.repeat(factors, self.hop_counts) * self.load_per_visit[self.hops]
        return sp.csr_array((loads, self.hops.astype(np.int32), pointers(self.hop_counts)), shape=shape)

    @property
    def _arrays(self) -> tuple[Array, ...]:
        return self.visit_indptr, self.indptr, self.indices, self.hop_counts, self.hops, self.loads

    @property
    def _factors(self) -> tuple[Floats, Floats]:
        return (
            (self.sqrt_degrees[self.starts], 1 / self.sqrt_degrees)
            if len(self.sqrt_degrees)
            else (np.zeros(0), np.zeros(0))
        )
