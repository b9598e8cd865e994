"""Refinement of vertex separators by sweeps.

Each node is on side 0, on side 1, or in the separator (2), and no edge joins the two sides. A node v of the separator
that moves to a side pulls its neighbors on the other side into the separator. The gain is the weight of v minus theirs.
A sweep makes all moves to one side without a loss. Several sweeps in one direction move the separator through the
graph, across regions of equal weight, and then several in the other direction. The best separator is kept. Sweeps are
the greedy part of a pass of Fiduccia and Mattheyses (1982); for separators Ashcraft and Liu (1997).
"""

import numpy as np

from graphs.compiled import jit

SEPARATOR = np.int8(2)
BALANCE = 0.6
"""The largest share of the weight of a side."""
UNEVEN = 0.1
"""The relative additional cost of a separator whose sides differ by the whole weight."""
STEPS = 12
"""The number of sweeps in one direction."""
ROUNDS = 6
"""The largest number of directions."""


@jit
def side_weights(part, side):
    """Return the weights of the two sides and of the separator, (3,).

    Args:
        part: The part, with m nodes.
        side: The side of each node, (m,): 0, 1, or 2 for the separator.
    """
    weight_of = np.zeros(3, np.int64)
    for v in range(len(side)):
        weight_of[side[v]] += part.weights[v]
    return weight_of


@jit
def is_balanced(weight_of):
    """Return whether no side is empty or heavier than the balance allows.

    Args:
        weight_of: The weights of the two sides and of the separator, (3,).
    """
    return min(weight_of[0], weight_of[1]) > 0 and max(weight_of[0], weight_of[1]) <= BALANCE * weight_of.sum() + 1


@jit
def cost_of(weight_of):
    """Return the weight of a separator, with a penalty for imbalance.

    Args:
        weight_of: The weights of the two sides and of the separator, (3,).
    """
    return weight_of[SEPARATOR] * (1.0 + UNEVEN * abs(weight_of[0] - weight_of[1]) / weight_of.sum())


@jit
def _sweep(part, side, weight_of, to, nodes, count):
    """Move nodes[:count] of the separator to a side; return the new count."""
    limit, kept, end = np.int64(BALANCE * weight_of.sum()) + 1, 0, count
    for q in range(count):
        v = nodes[q]
        pulled, neighbors = np.int64(0), part.indices[part.indptr[v] : part.indptr[v + 1]]
        for u in neighbors:
            if side[u] == 1 - to:
                pulled += part.weights[u]
        if pulled > part.weights[v] or weight_of[to] + part.weights[v] > limit:
            nodes[kept] = v
            kept += 1
            continue
        side[v] = to
        weight_of[to] += part.weights[v]
        weight_of[SEPARATOR] += pulled - part.weights[v]
        weight_of[1 - to] -= pulled
        for u in neighbors:
            if side[u] == 1 - to:
                side[u] = SEPARATOR
                nodes[end] = u
                end += 1
    nodes[kept : kept + end - count] = nodes[count:end].copy()
    return kept + end - count


@jit
def refine(part, side):
    """Improve a separator in place, as long as sweeps help.

    Args:
        part: The part, with m nodes.
        side: The side of each node, (m,): 0, 1, or 2 for the separator. It is overwritten.
    """
    weight_of, nodes = side_weights(part, side), np.empty(2 * len(side), np.int32)
    separator = np.flatnonzero(side == SEPARATOR)
    nodes[: len(separator)], count = separator, len(separator)
    best, least, first, since = side.copy(), cost_of(weight_of), np.int64(weight_of[0] > weight_of[1]), 0
    for turn in range(ROUNDS * STEPS):
        count = _sweep(part, side, weight_of, (first + turn // STEPS) % 2, nodes, count)
        since += 1
        if cost_of(weight_of) < least and is_balanced(weight_of):
            best[:], least, since = side, cost_of(weight_of), 0
        if since == 2 * STEPS:
            break
    side[:] = best
