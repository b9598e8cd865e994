"""Refinement of vertex separators by moves of single nodes.

Each node is on side 0, on side 1, or in the separator (2), and no edge joins the two sides. A node v of the separator
that moves to a side pulls its neighbors on the other side into the separator. The gain is the weight of v minus theirs.
A pass moves each node at most once, the best allowed one first, even at a loss. It then undoes the moves after the best
separator found (Fiduccia and Mattheyses 1982; for separators Ashcraft and Liu 1997).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.compiled import jit

SEPARATOR = np.int8(2)
BALANCE = 0.6
"""The largest share of the weight of a side."""
PASSES, PATIENCE = 8, 300
"""The largest number of passes, and the number of moves without a better separator that ends a pass."""


class Moves(NamedTuple):
    """The remaining moves of a pass: for each side a heap of nodes of the separator by gain."""

    gain: NDArray[np.int64]  # (2, m) of a node's move to each side
    heap: NDArray[np.int32]  # (2, m) nodes
    place: NDArray[np.int32]  # (2, m) index of each node in the heap, -1 for none
    size: NDArray[np.int64]  # (2,)
    moved: NDArray[np.bool_]  # (m,)


@jit
def _sift(moves, to, i, v):
    """Put v at or around the free place i of a heap."""
    heap, place, gain, size = moves.heap[to], moves.place[to], moves.gain[to], moves.size[to]
    while i > 0 and gain[heap[(i - 1) >> 1]] < gain[v]:
        heap[i] = heap[(i - 1) >> 1]
        place[heap[i]] = i
        i = (i - 1) >> 1
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and gain[heap[child + 1]] > gain[heap[child]]:
            child += 1
        if gain[heap[child]] <= gain[v]:
            break
        heap[i] = heap[child]
        place[heap[i]] = i
        i = child
    heap[i], place[v] = v, i


@jit
def _change(moves, to, v, more):
    """Add to the gain of a move, and update the heap."""
    moves.gain[to, v] += more
    if moves.place[to, v] != -1:
        _sift(moves, to, moves.place[to, v], v)


@jit
def _enter(part, side, moves, v):
    """Insert the moves of a node of the separator into the heaps."""
    moves.gain[0, v] = moves.gain[1, v] = part.weights[v]
    for k in range(part.indptr[v], part.indptr[v + 1]):
        u = part.indices[k]
        if side[u] != SEPARATOR:
            moves.gain[1 - side[u], v] -= part.weights[u]
    for to in range(2):
        moves.size[to] += 1
        _sift(moves, to, moves.size[to] - 1, v)


@jit
def _leave(moves, v):
    """Remove the moves of a node from the heaps."""
    for to in range(2):
        i = moves.place[to, v]
        moves.place[to, v] = -1
        moves.size[to] -= 1
        if i < moves.size[to]:
            _sift(moves, to, i, moves.heap[to, moves.size[to]])


@jit
def _choose(part, moves, share, limit):
    """Return the node and side of the best move that keeps the balance, (-1, 0) for none."""
    best, chosen, most = -1, 0, 0
    for to in range(2):
        if moves.size[to] == 0:
            continue
        v = moves.heap[to, 0]
        if share[to] + part.weights[v] > limit:
            continue
        gain = moves.gain[to, v]
        if best == -1 or gain > most or (gain == most and share[to] < share[0]):
            best, chosen, most = v, to, gain
    return best, chosen


@jit
def _put(part, side, share, v, to):
    share[side[v]] -= part.weights[v]
    share[to] += part.weights[v]
    side[v] = to


@jit
def _move(part, side, share, moves, v, to, log, count):
    """Move a node of the separator to a side; log it and pulled nodes; return the length of the log."""
    _leave(moves, v)
    moves.moved[v] = True
    _put(part, side, share, v, to)
    log[count] = v
    for k in range(part.indptr[v], part.indptr[v + 1]):
        u = np.int64(part.indices[k])
        if side[u] == SEPARATOR:
            _change(moves, 1 - to, u, -part.weights[v])
        elif side[u] == 1 - to:
            count += 1
            log[count] = u
            _put(part, side, share, u, np.int64(SEPARATOR))
            for c in range(part.indptr[u], part.indptr[u + 1]):
                if side[part.indices[c]] == SEPARATOR:
                    _change(moves, to, part.indices[c], part.weights[u])
            if not moves.moved[u]:
                _enter(part, side, moves, u)
    return count + 1


@jit
def shares(part, side):
    """Return the weights of the two sides and of the separator, (3,)."""
    share = np.zeros(3, np.int64)
    for v in range(len(side)):
        share[side[v]] += part.weights[v]
    return share


@jit
def _pass(part, side, share, moves, limit, log, was):
    """Make one pass; return whether it found a better separator."""
    count, kept, since = np.int64(0), np.int64(0), 0  # typed, so that `_move` is compiled once
    weight, gap, better = share[SEPARATOR], abs(share[0] - share[1]), False
    while since <= PATIENCE:
        v, to = _choose(part, moves, share, limit)
        if v == -1:
            break
        was[count] = SEPARATOR
        end = _move(part, side, share, moves, v, to, log, count)
        was[count + 1 : end] = 1 - to
        count, since = end, since + 1
        if share[SEPARATOR] < weight or (share[SEPARATOR] == weight and abs(share[0] - share[1]) < gap):
            weight, gap, better = share[SEPARATOR], abs(share[0] - share[1]), True
            kept, since = count, 0
    moves.moved[log[:count]] = False
    while count > kept:
        count -= 1
        _put(part, side, share, np.int64(log[count]), np.int64(was[count]))
    return better


@jit
def refine(part, side):
    """Improve a separator in place, by passes as long as they help."""
    n, share = len(side), shares(part, side)
    limit = np.int64(BALANCE * share.sum()) + 1
    gain, heap, place = np.empty((2, n), np.int64), np.empty((2, n), np.int32), np.full((2, n), np.int32(-1))
    moves = Moves(gain, heap, place, np.zeros(2, np.int64), np.zeros(n, np.bool_))
    log, was = np.empty(3 * n + 1, np.int32), np.empty(3 * n + 1, np.int8)  # a node enters, moves, and enters again
    for _ in range(PASSES):
        for v in range(n):
            if side[v] == SEPARATOR:
                _enter(part, side, moves, v)
        if not _pass(part, side, share, moves, limit, log, was):
            break
        for to in range(2):
            place[to, heap[to, : moves.size[to]]] = -1
            moves.size[to] = 0
