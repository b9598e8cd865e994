"""Graph coarsening: pairs of nodes are merged (Karypis and Kumar 1998, A fast and high quality multilevel scheme)."""

import numpy as np

from graphs import random
from graphs.cholesky.compiled.ordering.parts import Part
from graphs.compiled import jit

_LIGHT = 32
"""The largest degree of unmatched nodes that are matched through a common neighbor."""
_FEW = 0.85
"""The share of unmatched nodes above which they are matched through common neighbors."""
_BLOCK = 1024
"""The number of nodes that are shuffled together."""

mix = jit(random.mix)


@jit
def _shuffled(n, seed):
    """Return 0, ..., n - 1, shuffled in blocks to preserve memory locality, as the seed determines."""
    out, key = np.arange(n).astype(np.int32), mix(np.uint64(seed))
    for first in range(0, n, _BLOCK):
        for i in range(min(_BLOCK, n - first) - 1, 0, -1):
            j = np.int64(mix(key ^ np.uint64(first + i)) >> np.uint64(32)) * (i + 1) >> 32
            out[first + i], out[first + j] = out[first + j], out[first + i]
    return out


@jit
def _matched(part, heaviest, seed):
    """Return each node's partner (m,): the free neighbor with the most edges, or itself."""
    indptr, indices, edges, weights = part
    mate, left = np.full(len(weights), -1, np.int32), len(weights)
    for v in _shuffled(len(weights), seed):
        if mate[v] != -1:
            continue
        best, most = v, 0
        for k in range(indptr[v], indptr[v + 1]):
            u = indices[k]
            if mate[u] == -1 and edges[k] > most and weights[u] + weights[v] <= heaviest:
                best, most = u, edges[k]
        mate[v], mate[best] = best, v
        left -= best != v
    if left > _FEW * len(weights):
        _match_over_neighbors(part, heaviest, mate)
    return mate


@jit
def _match_over_neighbors(part, heaviest, mate):
    """Match unmatched nodes of low degree with a common neighbor, such as the leaves of a star."""
    indptr, indices, _, weights = part
    waiting = np.full(len(mate), -1, np.int32)
    for v in range(len(mate)):
        if mate[v] != v or indptr[v + 1] - indptr[v] > _LIGHT:
            continue
        for k in range(indptr[v], indptr[v + 1]):
            u = waiting[indices[k]]
            if u != -1 and mate[u] == u and weights[u] + weights[v] <= heaviest:
                mate[u], mate[v] = v, u
                break
            waiting[indices[k]] = v


@jit
def matching(part, heaviest, seed):
    """Return each node's pair (m,), and the number of pairs, some of which have one node.

    Pairs are numbered from 0 in the order of their nodes. Nodes choose in an order that the seed determines, and no
    pair is heavier than `heaviest`.
    """
    mate = _matched(part, heaviest, seed)
    pair, count = np.empty(len(mate), np.int32), 0
    for v in range(len(mate)):
        if mate[v] < v:
            pair[v] = pair[mate[v]]
        else:
            pair[v] = count
            count += 1
    return pair, count


@jit
def contracted(part, pair, count):
    """Return the graph whose nodes are the pairs."""
    indptr, indices, edges, weights = part
    start = np.zeros(count + 1, np.int64)
    for v in range(len(pair)):
        start[pair[v] + 1] += 1
    start = np.cumsum(start)
    members, at = np.empty(len(pair), np.int32), start.copy()
    for v in range(len(pair)):
        members[at[pair[v]]] = v
        at[pair[v]] += 1
    starts, columns, sums = np.zeros(count + 1, np.int64), np.empty(len(indices), np.int32), np.empty_like(edges)
    heavier, where, end = np.zeros(count, np.int64), np.full(count, -1, np.int64), 0
    for c in range(count):
        begin = end
        for m in range(start[c], start[c + 1]):
            v = members[m]
            heavier[c] += weights[v]
            for k in range(indptr[v], indptr[v + 1]):
                d = pair[indices[k]]
                if d == c:
                    continue
                if where[d] >= begin:
                    sums[where[d]] += edges[k]
                else:
                    where[d], columns[end], sums[end] = end, d, edges[k]
                    end += 1
        starts[c + 1] = end
    return Part(starts, columns[:end].copy(), sums[:end].copy(), heavier)
