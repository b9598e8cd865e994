"""Drawing walks: chunks of start nodes over threads, put together in order."""

import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs import random
from graphs.couplings import DIRECTIONS, LENGTHS, Halting, LengthCoupling, Sigma, as_halting, match_quantiles
from graphs.errors import InvalidArgumentError, MemoryBudgetError
from graphs.graph import Graph
from graphs.kernels import GraphKernel, RegularizedLaplacian
from graphs.walks.halting import choose_halt
from graphs.walks.moves import Moves, check_transitions
from graphs.walks.visits import Visits
from graphs.walks.walks import Pattern, Walks, WalkSettings

Array = NDArray[Any]

_CHUNK_WALKERS = 2**15
"""Walkers that advance in step, at most: enough for their cache misses to overlap."""

_LEAST_WALKERS = 2**10

_MOST_STEPS = 1e8
_MOST_HOPS, _MOST_QUANTILES = 10_000, 10_000
_LONG = 2e8


def sample_walks(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,) labels
    num_walkers: int = 16,
    halt: float | str | ArrayLike = 0.1,
    lengths: str = "systematic",
    directions: str = "stratified",
    exact_hops: int | str = "auto",
    max_nonzeros: int = 64,
    kernel: GraphKernel | None = None,
    seed: int | None = None,
    *,
    transitions: str = "weights",
    num_quantiles: int = 50,
    permutation: ArrayLike | None = None,  # (num_quantiles,)
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
        halt: The probability to halt before each step, in (0, 1); or an array of survival
            probabilities P(length >= l), l = 0, 1, ... (longer powers are then left out of E[Phi]), such as
            `survival_for(kernel)`; or "auto": `choose_halt` for `kernel`.
        lengths: The coupling of a node's lengths: "iid", "antithetic" (pairs), "sigma" (pairs
            matched by a permutation) or "systematic" (all m from one uniform).
        directions: "independent"; "stratified": walkers of one start node that stand on the same
            node spread over its neighbours; or "repelling": they take neighbours without replacement, in blocks of as
            many walkers as there are neighbours (uniform moves only).
        exact_hops: h: the first h steps are computed exactly, and the walkers begin at the nodes that h steps reach,
            drawn from their law, and halt only from there on. "auto" is 0 in this version.
        max_nonzeros: What "auto" may spend on exact hops; of no effect in this version.
        kernel: What "sigma" and "auto" are tuned to; None: `RegularizedLaplacian(order=2, sigma=1)`.
        seed: An integer, or None for one from the system, kept as `walks.seed`.
        transitions: "weights": move to a neighbour in proportion to the weight of the edge;
            "uniform": to every neighbour alike. The same for unweighted graphs.
        num_quantiles: Bins of the permutation for "sigma".
        permutation: A permutation (num_quantiles,) for "sigma", from `match_quantiles` on this or
            another graph; None: matched on this graph.
        num_threads: Threads; None: one per core. The walks do not depend on it.
        max_memory: In bytes. The result takes some 7 bytes for each step, 14 where loads do not follow from the ends
            of a walk (exact hops; uniform moves on weighted graphs); that is estimated, and compared, beforehand.
        progress: Whether to show a progress bar on a terminal, if it takes some seconds.

    Sources: general graph random features, Reid et al. (2024); antithetic termination, Reid et al.
    (2023); sigma, Reid et al. (2024, "Variance-reducing couplings for random features",
    section 4); repelling walks, Reid et al. (2024, "Repelling random walks").

    Raises:
        InvalidArgumentError: an argument out of range, named with what is allowed.
        MemoryBudgetError: the result would take more than `max_memory`.
        UnknownNodeError: a label names no node.
    """
    if not isinstance(graph, Graph):
        raise InvalidArgumentError(
            f"A graphs.Graph is needed, got {type(graph).__name__}; build one, for example with Graph.from_networkx."
        )
    _check(num_walkers, directions, exact_hops, max_nonzeros, transitions)
    if kernel is not None and not isinstance(kernel, GraphKernel):
        raise InvalidArgumentError(f"kernel must be one of graphs.kernels, got {kernel!r}.")
    if num_threads is not None and not (isinstance(num_threads, int) and num_threads > 0):
        raise InvalidArgumentError(f"num_threads must be a positive integer or None, got {num_threads!r}.")
    if max_memory is not None and not (isinstance(max_memory, int | float) and max_memory > 0):
        raise InvalidArgumentError(f"max_memory must be a positive number of bytes or None, got {max_memory!r}.")
    hops = 0 if exact_hops == "auto" else int(exact_hops)
    if isinstance(halt, str) and halt == "auto":
        tuned = kernel or RegularizedLaplacian()
        halt = choose_halt(graph, tuned, num_walkers, transitions=transitions, exact_hops=hops)
    halting = as_halting(halt)
    coupling = _length_coupling(graph, lengths, halting, kernel, num_quantiles, permutation)
    _check_size(num_walkers, halting)
    settings = WalkSettings(
        int(num_walkers), halting, lengths, directions, transitions, random.resolve_seed(seed), coupling, hops
    )
    starts = np.arange(graph.num_nodes, dtype=np.int64) if nodes is None else graph.index(nodes)
    return draw(graph, starts, settings, num_threads, max_memory, progress)


def draw(
    graph: Graph,
    starts: NDArray[np.int64],  # (n,)
    settings: WalkSettings,
    num_threads: int | None = None,
    max_memory: float | None = None,
    progress: bool = False,
) -> Walks:
    """Return the walks of n start nodes (positions); see `sample_walks`."""
    moves = Moves(graph, settings.transitions)
    if settings.directions == "repelling" and len(moves.cumulative):
        raise InvalidArgumentError('directions="repelling" needs uniform moves; give transitions="uniform".')
    _ = moves.roots, moves.cumulative  # before the threads ask for them
    expected = len(starts) * (1 + settings.num_walkers * settings.halting.mean())
    if settings.exact_hops:
        _ = moves.factors, moves.probabilities
        expected += len(starts) * _mean_reach(moves, starts, settings.exact_hops)
    carries = settings.exact_hops > 0 or not moves.telescopes
    load_type = _load_type(settings, carries)
    longest = settings.halting.quantile(np.array([1 - 1e-12]))[0] + settings.exact_hops
    bytes_per_visit = 4 + 2 * np.min_scalar_type(int(longest)).itemsize + load_type.itemsize
    if max_memory is not None and bytes_per_visit * expected > max_memory:
        raise MemoryBudgetError(
            f"These walks take up to {bytes_per_visit * expected / 2**20:.4g} MiB, more than max_memory allows "
            f"({max_memory / 2**20:.4g} MiB). Use fewer walkers or start nodes, or a larger halt."
        )
    chunk = _chunk_rows(len(starts), settings.num_walkers, num_threads)
    columns = [_Column(np.int64, len(starts)), _Column(np.int64, len(starts))]
    columns += [_Column(kind, expected) for kind in (np.int32, np.uint8, np.uint8, load_type)]
    with _bar(len(starts), progress and expected > _LONG) as advance, _pool(num_threads) as pool:
        pieces = [starts[first : first + chunk] for first in range(0, len(starts), chunk)]
        for piece, part in zip(pieces, pool.map(lambda rows: _chunk(moves, rows, settings), pieces), strict=True):
            for column, values in zip(columns, part, strict=True):
                column.add(values)
            advance(len(piece))
    return _assemble(moves, starts, settings, [column.done() for column in columns])


def _chunk_rows(num_rows: int, num_walkers: int, num_threads: int | None) -> int:
    """Return how many start nodes walk together: some chunks for each thread, unless they get too small."""
    fair = num_rows // (4 * (num_threads or os.cpu_count() or 1))
    return max(1, min(_CHUNK_WALKERS // num_walkers, max(fair, _LEAST_WALKERS // num_walkers)))


def _chunk(moves: Moves, starts: NDArray[np.int64], settings: WalkSettings) -> tuple[Array, ...]:
    """Return row_counts, columns, hop_counts, hops and loads of some start nodes."""
    from graphs.walks import compiled

    matrix = moves.matrix
    keys, lengths = node_draws(starts, settings)
    survival = settings.halting.survival(int(lengths.max(initial=0)))
    known, begins, first_loads = _first_hops(moves, starts, settings)
    carries = settings.exact_hops > 0 or not moves.telescopes
    totals = lengths.sum(1) + known.counts
    offsets = np.cumsum(totals) - totals
    visits = np.empty(int(totals.sum()), np.uint64)
    carried = np.empty(len(visits) if carries else 0)
    places = np.arange(len(known.visits)) + np.repeat(offsets - np.cumsum(known.counts) + known.counts, known.counts)
    visits[places] = known.visits
    if carries:
        carried[places] = known.loads
    cursors = offsets + known.counts
    compiled.walk(
        matrix.indptr,
        matrix.indices,
        moves.cumulative,
        moves.factors if carries else np.zeros(0),
        begins,
        first_loads if carries else np.zeros((0, 0)),
        settings.exact_hops,
        keys,
        lengths,
        survival,
        DIRECTIONS.index(settings.directions),
        cursors,
        visits,
        carried,
    )
    small = np.min_scalar_type(len(survival) + settings.exact_hops)
    kinds = (np.int32, small, small, _load_type(settings, carries))
    columns, hop_counts, hops, loads = (np.empty(len(visits), kind) for kind in kinds)
    counts = compiled.merge(offsets, offsets + totals, visits, carried, columns, hop_counts, hops, loads)
    found, visited = (int(count.sum()) for count in counts)
    return (*counts, columns[:found], hop_counts[:found], hops[:visited], loads[:visited])


def _load_type(settings: WalkSettings, carries: bool) -> np.dtype[Any]:
    """Return the type of loads, or of numbers of visits."""
    return np.dtype(np.float64) if carries else np.min_scalar_type(settings.num_walkers)


class _Known(NamedTuple):
    """What is known exactly of each start: visits, ascending in hop, and their loads."""

    counts: NDArray[np.int64]  # (n,)
    visits: NDArray[np.uint64]  # (counts.sum(),)
    loads: NDArray[np.float64]  # (counts.sum(),)


def _first_hops(moves: Moves, starts: NDArray[np.int64], settings: WalkSettings) -> tuple[_Known, Array, Array]:
    """Return what is known, and the nodes (n, m) and loads (n, m) with which the walkers begin."""
    m, n = settings.num_walkers, len(starts)
    if settings.exact_hops == 0:
        known = _Known(np.ones(n, np.int64), starts.astype(np.uint64) << np.uint64(32), np.ones(n))
        return known, np.broadcast_to(starts.astype(np.int32)[:, None], (n, m)), np.full((n, m), 1 / m)
    from graphs.walks import compiled

    matrix = moves.matrix
    ends, nodes, mass, loads = compiled.push(
        matrix.indptr, matrix.indices, moves.probabilities, moves.roots, starts, settings.exact_hops
    )
    per_hop = np.diff(np.concatenate([[0], ends.ravel()])).reshape(ends.shape)
    hops = np.repeat(np.tile(np.arange(settings.exact_hops + 1, dtype=np.uint64), n), per_hop.ravel())
    known = _Known(per_hop.sum(1), (nodes.astype(np.uint64) << np.uint64(32)) | hops, loads)
    keys = random.derive(random.stream(settings.seed, random.Role.BEGINNINGS), starts)
    places = compiled.begin_after(ends, mass, keys, m, settings.directions != "independent")
    begins = nodes[places]
    return known, begins, moves.roots[starts][:, None] / moves.roots[begins] / m


def node_draws(nodes: NDArray[np.int64], settings: WalkSettings) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the direction keys (n,) and the lengths (n, m) of n start nodes."""
    length_keys = random.derive(random.stream(settings.seed, random.Role.LENGTHS), nodes)
    direction_keys = random.derive(random.stream(settings.seed, random.Role.DIRECTIONS), nodes)
    return direction_keys, settings.coupling.draw(length_keys[:, None], settings.num_walkers, settings.halting)


def _mean_reach(moves: Moves, starts: NDArray[np.int64], num_hops: int) -> float:
    """Return how many entries the exact hops of a start node have, on average over some of them."""
    from graphs.walks import compiled

    some = starts[np.linspace(0, len(starts) - 1, min(len(starts), 32), dtype=np.int64)]
    matrix = moves.matrix
    ends, *_ = compiled.push(matrix.indptr, matrix.indices, moves.probabilities, moves.roots, some, num_hops)
    return float(ends[-1, -1]) / len(some) if len(some) else 0.0


class _Column:
    """An array that grows, in length and in type. Memory that was never written to is not taken from the system."""

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

    def done(self) -> Array:
        """Return what was appended, in place."""
        self._array.resize(self._used, refcheck=False)
        return self._array


@contextmanager
def _pool(num_threads: int | None) -> Iterator[ThreadPoolExecutor]:
    """A pool that, when interrupted, drops what has not begun."""
    with ThreadPoolExecutor(num_threads or os.cpu_count()) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, or nothing."""
    if not wanted or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("walking", total=total)
        yield lambda count: bar.advance(task, count)


def _assemble(moves: Moves, starts: NDArray[np.int64], settings: WalkSettings, columns: list[Array]) -> Walks:
    node_counts, visit_counts, indices, hop_counts, hops, loads = columns
    indptr, visit_indptr = (np.concatenate(([0], np.cumsum(counts))) for counts in (node_counts, visit_counts))
    shares, roots = np.zeros(0), np.zeros(0)
    if loads.dtype != np.float64:
        longest = int(hops.max(initial=0))
        shares, roots = 1 / (settings.num_walkers * settings.halting.survival(longest)), moves.roots
        shares[0] = 1.0
    for array in (indptr, indices, visit_indptr, hop_counts, hops, loads, shares, roots):
        array.flags.writeable = False
    graph, visits = moves.graph, Visits(visit_indptr, hop_counts, hops, loads, shares, roots)
    return Walks(graph, starts, settings, Pattern(indptr, indices, (len(starts), graph.num_nodes)), visits)


def _length_coupling(
    graph: Graph,
    lengths: str,
    halting: Halting,
    kernel: GraphKernel | None,
    num_quantiles: int,
    permutation: ArrayLike | None,
) -> LengthCoupling:
    if not isinstance(num_quantiles, int | np.integer) or num_quantiles > _MOST_QUANTILES:
        raise InvalidArgumentError(f"num_quantiles must be an integer up to {_MOST_QUANTILES}, got {num_quantiles!r}.")
    if not isinstance(lengths, str) or lengths not in LENGTHS:
        raise InvalidArgumentError(f"lengths must be one of {', '.join(map(repr, LENGTHS))}, got {lengths!r}.")
    if lengths != "sigma":
        return LENGTHS[lengths]()
    if permutation is None:
        permutation = match_quantiles(graph, kernel or RegularizedLaplacian(), halting.halt, num_quantiles)
    return Sigma.checked(permutation)


def _check(num_walkers: int, directions: str, exact_hops: int | str, max_nonzeros: int, transitions: str) -> None:
    for name, value in (("num_walkers", num_walkers), ("max_nonzeros", max_nonzeros)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InvalidArgumentError(f"{name} must be a positive integer, got {value!r}.")
    if directions not in DIRECTIONS:
        raise InvalidArgumentError(f"directions must be one of {', '.join(map(repr, DIRECTIONS))}, got {directions!r}.")
    check_transitions(transitions)
    known = isinstance(exact_hops, str) and exact_hops == "auto"
    if isinstance(exact_hops, int | np.integer) and not isinstance(exact_hops, bool):
        known = 0 <= exact_hops <= _MOST_HOPS
    if not known:
        raise InvalidArgumentError(
            f'exact_hops must be an integer from 0 to {_MOST_HOPS}, or "auto", got {exact_hops!r}.'
        )


def _check_size(num_walkers: int, halting: Halting) -> None:
    steps = num_walkers * (1 / halting.halt if isinstance(halting.halt, float) else len(halting.halt))
    if steps > _MOST_STEPS:
        raise InvalidArgumentError(
            f"{num_walkers} walkers with this halting law take about {steps:.1e} steps per node; at most "
            f"{_MOST_STEPS:.0e} are allowed. Raise halt or use fewer walkers."
        )
