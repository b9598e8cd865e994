"""Vertex separators of a part: borders of the nodes on one side of a plane, refined.

Without coordinates, distances from a few nodes that are far from each other serve as coordinates (Harel and Koren 2002,
Graph drawing by high-dimensional embedding). Means over neighbors make their level sets smoother.
"""

import numpy as np

from graphs import random
from graphs.cholesky.compiled.ordering.refining import SEPARATOR, cost_of, is_balanced, refine, side_weights
from graphs.compiled import jit

PIVOTS = 3
"""The number of nodes from which distances are computed."""
SMOOTHED = 4
"""The number of times that distances are averaged over neighbors."""
SAMPLE = 1000
"""The number of nodes whose coordinates determine the median."""
CLOSE = 1.5
"""The ratio to the cost of the best separator up to which another one is refined."""
WORTH = 0.15
"""The share of the weight above which a separator helps less than minimum degree."""

mix = jit(random.mix)


@jit
def _distances(part, root):
    """Return the distance (m,) of each node from a node, and the last node."""
    m = len(part.weights)
    distance, queue = np.full(m, -1, np.int64), np.empty(m, np.int32)
    head, tail, following = 0, 0, 0
    while head < m:
        if head == tail:  # the next component
            while distance[root] >= 0:
                root, following = following, following + 1
            distance[root] = distance[queue[head - 1]] + 1 if head > 0 else 0
            queue[tail] = root
            tail += 1
        v = queue[head]
        head += 1
        for u in part.indices[part.indptr[v] : part.indptr[v + 1]]:
            if distance[u] < 0:
                distance[u], queue[tail] = distance[v] + 1, u
                tail += 1
    return distance, queue[m - 1]


@jit
def embedded(part):
    """Return smoothed distances (m, PIVOTS) from nodes far from each other.

    Args:
        part: The part, with m nodes.
    """
    m = len(part.weights)
    coordinates, nearest = np.empty((m, PIVOTS)), np.full(m, np.inf)
    _, root = _distances(part, 0)
    for pivot in range(PIVOTS):
        distance, _ = _distances(part, root)
        coordinates[:, pivot] = distance
        nearest = np.minimum(nearest, distance)
        root = np.argmax(nearest)
    for _ in range(SMOOTHED):
        sums = coordinates.copy()
        for v in range(m):
            for u in part.indices[part.indptr[v] : part.indptr[v + 1]]:
                for pivot in range(PIVOTS):
                    sums[v, pivot] += coordinates[u, pivot]
            for pivot in range(PIVOTS):
                sums[v, pivot] /= 1 + part.indptr[v + 1] - part.indptr[v]
        coordinates = sums
    return coordinates


@jit
def helps(part, side):
    """Return whether a separator is balanced and small enough for dissection.

    Args:
        part: The part, with m nodes.
        side: The side of each node, (m,): 0, 1, or 2 for the separator.
    """
    weight_of = side_weights(part, side)
    return is_balanced(weight_of) and weight_of[SEPARATOR] <= WORTH * weight_of.sum()


@jit
def _bordered(part, values, bound):
    """Return sides (m,) of a bound on values (m,), with the border as separator."""
    side = (values >= bound).astype(np.int8)
    for v in range(len(side)):
        if side[v] == 0:
            for k in range(part.indptr[v], part.indptr[v + 1]):
                if side[part.indices[k]] == 1:
                    side[v] = SEPARATOR
                    break
    return side


@jit
def by_plane(part, coordinates):
    """Return the sides (m,) of a vertex separator along a plane.

    The parts have about half the nodes, as a sample shows. All nodes are in the separator if no plane is balanced, for
    example if coordinates are all equal or not finite.

    Args:
        part: The part, with m nodes.
        coordinates: Coordinates (m, d) of the nodes.
    """
    m, d = coordinates.shape
    sample = np.empty(min(m, SAMPLE), np.int64)
    for i in range(len(sample)):
        sample[i] = mix(np.uint64(i)) % np.uint64(m)
    best, least = np.full(m, SEPARATOR), np.inf
    for a in range(d):
        for b in range(-a, a + 1):  # 0: axis a alone; otherwise with axis |b| - 1 added or subtracted
            values = coordinates[:, a] + np.sign(b) * coordinates[:, abs(b) - (b != 0)]
            ordered = np.sort(values[sample])
            candidate, cost = best, np.inf
            for sixteenth in (7, 8, 9):
                side = _bordered(part, values, ordered[sixteenth * len(ordered) // 16])
                weight_of = side_weights(part, side)
                if is_balanced(weight_of) and cost_of(weight_of) < cost:
                    candidate, cost = side, cost_of(weight_of)
            if cost < CLOSE * least:
                refine(part, candidate)
                cost = cost_of(side_weights(part, candidate))
                if cost < least:
                    best, least = candidate, cost
    return best
