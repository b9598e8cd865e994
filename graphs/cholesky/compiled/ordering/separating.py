"""Vertex separators of a part: multilevel, or along a plane."""

import numpy as np

from graphs.cholesky.compiled.ordering.coarsening import contracted, matching, mix
from graphs.cholesky.compiled.ordering.refining import BALANCE, SEPARATOR, refine, shares
from graphs.compiled import jit

COARSEST = np.int64(80)
"""The number of nodes of the coarsest graph."""
TRIALS = 6
"""The number of separators that are tried on it."""
LARGE, RUNS = 3000, np.int64(4)
"""The number of nodes above which the best of several separators is taken, and their number."""
SMALLER = 8
"""The least factor by which the graph is coarsened before several separators are computed."""
SAMPLE = 1000
"""The number of nodes whose coordinates determine the median."""
UNEVEN = 0.1
"""The relative additional cost of a separator whose sides differ by the whole weight."""
WORTH = 0.15
"""The share of the weight above which a separator helps less than minimum degree."""
_STUCK = 0.95
"""The ratio of nodes after and before a matching above which coarsening stops."""


@jit
def _border(part, side):
    """Move the nodes of side 0 with neighbors on side 1 to the separator."""
    for v in range(len(side)):
        if side[v] == 0:
            for k in range(part.indptr[v], part.indptr[v + 1]):
                if side[part.indices[k]] == 1:
                    side[v] = SEPARATOR
                    break


@jit
def _grown(part, seed):
    """Return the sides after a breadth-first search from a node has reached half the weight."""
    n, total = len(part.weights), part.weights.sum()
    side, queue, seen = np.ones(n, np.int8), np.empty(n, np.int32), np.zeros(n, np.bool_)
    head, tail, weight, root = 0, 0, np.int64(0), seed
    while 2 * weight < total:
        if head == tail:  # the next component
            while seen[root]:
                root = (root + 1) % n
            queue[tail], seen[root] = root, True
            tail += 1
        v = queue[head]
        head += 1
        side[v] = 0
        weight += part.weights[v]
        for u in part.indices[part.indptr[v] : part.indptr[v + 1]]:
            if not seen[u]:
                queue[tail], seen[u] = u, True
                tail += 1
    _border(part, side)
    return side


@jit
def _best_grown(part):
    """Return the lightest separator of a small graph from several nodes."""
    n = len(part.weights)
    best, least = np.full(n, SEPARATOR), np.inf
    for trial in range(TRIALS):
        side = _grown(part, np.int64(mix(np.uint64(trial)) % np.uint64(n)))
        refine(part, side)
        share = shares(part, side)
        if is_balanced(share) and cost_of(share) < least:
            best, least = side, cost_of(share)
    return best


@jit
def is_balanced(share):
    """Return whether no side is empty or heavier than the balance allows."""
    return min(share[0], share[1]) > 0 and max(share[0], share[1]) <= BALANCE * share.sum() + 1


@jit
def cost_of(share):
    """Return the weight of a separator, with a penalty for imbalance."""
    return share[SEPARATOR] * (1.0 + UNEVEN * abs(share[0] - share[1]) / share.sum())


@jit
def helps(part, side):
    """Return whether to dissect along a separator."""
    share = shares(part, side)
    return is_balanced(share) and share[SEPARATOR] <= WORTH * share.sum()


@jit
def _coarsened(part, size, seed):
    """Return graphs of decreasing size, down to at most `size` nodes if possible, and the pairs."""
    parts, pairs = [part], [np.zeros(0, np.int32)]
    heaviest = max(3 * part.weights.sum() // (2 * size), 2)
    while len(parts[-1].weights) > size:
        pair, count = matching(parts[-1], heaviest, seed)
        if count > _STUCK * len(pair):
            break
        parts.append(contracted(parts[-1], pair, count))
        pairs.append(pair)
    return parts, pairs


@jit
def _raised(parts, pairs, side):
    """Return the sides of the first graph from those of the coarsest, refined on each level."""
    for level in range(len(parts) - 2, -1, -1):
        side = side[pairs[level + 1]]
        refine(parts[level], side)
    return side


@jit
def by_levels(part):
    """Return the sides (m,) of a vertex separator from a coarse graph, refined on each finer level.

    For large parts it is the best of several separators of a coarser graph, each with its own levels.
    """
    n = len(part.weights)
    parts, pairs = _coarsened(part, min(n // SMALLER, LARGE) if n > LARGE else n, RUNS)
    coarse = parts[-1]
    best, least = np.full(len(coarse.weights), SEPARATOR), np.inf
    for run in range(RUNS if n > LARGE else 1):
        coarser, its_pairs = _coarsened(coarse, COARSEST, run)
        side = _raised(coarser, its_pairs, _best_grown(coarser[-1]))
        share = shares(coarse, side)
        if is_balanced(share) and cost_of(share) < least:
            best, least = side, cost_of(share)
    return _raised(parts, pairs, best)


@jit
def _beside(part, values, bound):
    """Return the sides (m,) with values (m,) below a bound on side 0, and the border as separator."""
    side = (values >= bound).astype(np.int8)
    _border(part, side)
    return side


@jit
def by_plane(part, coordinates):
    """Return the sides (m,) of a vertex separator along a plane, from parts along axes and diagonals.

    The parts have about half the nodes, as a sample shows. All nodes are in the separator if no plane is balanced, for
    example if coordinates are all equal or not finite.
    """
    n, d = coordinates.shape
    sample = np.empty(min(n, SAMPLE), np.int64)
    for i in range(len(sample)):
        sample[i] = mix(np.uint64(i)) % np.uint64(n)
    best, least = np.full(n, SEPARATOR), np.inf
    for a in range(d):
        for b in range(-a, a + 1):  # 0: axis a alone; otherwise with axis |b| - 1 added, or taken away
            values = coordinates[:, a] + np.sign(b) * coordinates[:, abs(b) - (b != 0)]
            ordered = np.sort(values[sample])
            for sixteenth in (7, 8, 9):
                side = _beside(part, values, ordered[sixteenth * len(ordered) // 16])
                share = shares(part, side)
                if is_balanced(share) and cost_of(share) < least:
                    best, least = side, cost_of(share)
    if least < np.inf:
        refine(part, best)
    return best
