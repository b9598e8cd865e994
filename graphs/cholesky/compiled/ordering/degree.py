"""Approximate minimum degree (Amestoy, Davis and Duff 1996, An approximate minimum degree ordering algorithm).

The graph after some eliminations is stored as a quotient graph, whose lists never take more space than those of the
first graph. A variable i is a remaining node, or several indistinguishable ones, whose number is its weight. An element
e is an eliminated variable, and its list L_e has the variables of the clique that it formed. The list of a variable has
its elements, then its neighbors A_i that are in no element. The pivot p, a variable of least degree, becomes an element
with

    L_p = (A_p + the union of L_e over its elements e) - p,

which absorbs these elements. The degree of each i in L_p is then bounded by

    |L_p - i| + |A_i - L_p| + sum over its other elements e of |L_e - L_p|,

and the sizes |L_e - L_p| of all e come from one scan of the lists of L_p. An element with L_e within L_p is absorbed
too. A variable i without neighbors outside L_p is eliminated with p. Variables of L_p with equal lists are merged.

Nodes of the halo are eliminated after all others. They count in degrees, and are never pivots.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphs.compiled import jit

_SWALLOWED = -1


class Quotient(NamedTuple):
    """The quotient graph of m nodes, the first of which are to be eliminated."""

    entries: NDArray[np.int32]  # (room,) the lists
    begin: NDArray[np.int64]  # (m,) the begin of each list
    elements: NDArray[np.int32]  # (m,) the number of elements at the begin of each variable's list
    length: NDArray[np.int32]  # (m,) the length of each list
    weight: NDArray[np.int64]  # (m,) of a variable; negative while it is in L_p; 0: eliminated, or part of another
    degree: NDArray[np.int64]  # (m,) bound of a variable's degree, or the weight of L_e
    mark: NDArray[np.int64]  # (m,) of an element: stamp + |L_e - L_p|
    head: NDArray[np.int32]  # (total weight + 1,) the first variable of each degree
    following: NDArray[np.int32]  # (m,) the next one of its degree, or of its hash
    previous: NDArray[np.int32]  # (m,)
    bucket: NDArray[np.int32]  # (m,) the first variable of L_p of each hash
    after: NDArray[np.int32]  # (m,) the node that is eliminated right after a node, within one variable
    last: NDArray[np.int32]  # (m,) the last node of a variable


@jit
def _quotient(indptr, indices, weights):
    m, room = len(indptr) - 1, 2 * len(indices) + len(indptr)
    entries = np.empty(room, np.int32)
    entries[: len(indices)] = indices
    length = (indptr[1:] - indptr[:-1]).astype(np.int32)
    degree, total = np.zeros(m, np.int64), weights.sum()
    for i in range(m):
        for k in range(indptr[i], indptr[i + 1]):
            degree[i] += weights[indices[k]]
        degree[i] = min(degree[i], total)  # so that no pattern, though it had entries twice, leads out of `head`
    return Quotient(
        entries,
        indptr[:-1].copy(),
        np.zeros(m, np.int32),
        length,
        weights.copy(),
        degree,
        np.zeros(m, np.int64),
        np.full(total + 1, -1, np.int32),
        np.full(m, -1, np.int32),
        np.full(m, -1, np.int32),
        np.full(m, -1, np.int32),
        np.full(m, -1, np.int32),
        np.arange(m).astype(np.int32),
    )


@jit
def _link(q, i):
    """Insert a variable at the head of the list of its degree."""
    d = q.degree[i]
    if q.head[d] != -1:
        q.previous[q.head[d]] = i
    q.following[i], q.previous[i], q.head[d] = q.head[d], -1, i


@jit
def _unlink(q, i):
    before, behind = q.previous[i], q.following[i]
    if before == -1:
        q.head[q.degree[i]] = behind
    else:
        q.following[before] = behind
    if behind != -1:
        q.previous[behind] = before


@jit
def _join(q, i, j):
    """Eliminate j right after i, as part of it."""
    q.weight[j], q.mark[j] = 0, _SWALLOWED
    q.after[q.last[i]] = j
    q.last[i] = q.last[j]


@jit
def _compact(q):
    """Move the used lists together; return the begin of the free space."""
    old, free = q.entries.copy(), 0
    for i in range(len(q.begin)):
        used = q.weight[i] > 0 or (q.weight[i] == 0 and q.mark[i] > _SWALLOWED)
        start, q.begin[i] = q.begin[i], free
        for k in range(start, start + (q.length[i] if used else 0)):
            q.entries[free] = old[k]
            free += 1
    return free


@jit
def _gather(q, start, stop, free, num_interior):
    """Append variables of a list that are not in L_p to its end; return the new end."""
    for k in range(start, stop):
        i = q.entries[k]
        if q.weight[i] > 0:
            if i < num_interior:
                _unlink(q, i)
            q.weight[i] = -q.weight[i]
            q.entries[free] = i
            free += 1
    return free


@jit
def _form(q, p, free, num_interior):
    """Write L_p from `free` on with negated weights; return its end and its weight."""
    begin, middle, end = q.begin[p], q.begin[p] + q.elements[p], q.begin[p] + q.length[p]
    stop = _gather(q, middle, end, free, num_interior)
    for k in range(begin, middle):
        e = q.entries[k]
        stop = _gather(q, q.begin[e], q.begin[e] + q.length[e], stop, num_interior)
        q.mark[e] = _SWALLOWED
    total = np.int64(0)
    for k in range(free, stop):
        total -= q.weight[q.entries[k]]
    return stop, total


@jit
def _measure(q, first, stop, stamp):
    """Mark the elements of the variables of L_p with stamp + |L_e - L_p|."""
    for k in range(first, stop):
        i = q.entries[k]
        for c in range(q.begin[i], q.begin[i] + q.elements[i]):
            e = q.entries[c]
            if q.mark[e] >= stamp:
                q.mark[e] += q.weight[i]
            elif q.mark[e] > _SWALLOWED:
                q.mark[e] = stamp + q.degree[e] + q.weight[i]


@jit
def _rewrite(q, i, p, stamp):
    """Rewrite the list of i with p first; return a degree bound and a hash.

    There is space for p, since i lost p itself or an element that p absorbed.
    """
    begin, middle, end = q.begin[i], q.begin[i] + q.elements[i], q.begin[i] + q.length[i]
    to, beyond, key = begin, np.int64(0), np.int64(0)
    for c in range(begin, middle):
        e = q.entries[c]
        if q.mark[e] > stamp:
            q.entries[to] = e
            to += 1
            beyond += q.mark[e] - stamp
            key += e
        else:
            q.mark[e] = _SWALLOWED
    kept = to
    for c in range(middle, end):
        j = q.entries[c]
        if q.weight[j] > 0:
            q.entries[to] = j
            to += 1
            beyond += q.weight[j]
            key += j
    q.entries[to] = q.entries[kept]
    q.entries[kept] = q.entries[begin]
    q.entries[begin] = p
    q.elements[i], q.length[i] = kept - begin + 1, to - begin + 1
    return beyond, key % len(q.begin)


@jit
def _are_alike(q, i, j, stamp, num_interior):
    """Return whether i, whose list has the stamp, and j are indistinguishable."""
    if q.length[i] != q.length[j] or q.elements[i] != q.elements[j] or (i < num_interior) != (j < num_interior):
        return False
    c, end = q.begin[j], q.begin[j] + q.length[j]
    while c < end and q.mark[q.entries[c]] == stamp:
        c += 1
    return c == end


@jit
def _merge(q, first, stop, stamp, num_interior, keys):
    """Merge variables of L_p with equal lists; return the last stamp."""
    for k in range(first, stop):
        i = q.entries[k]
        if q.weight[i] == 0:
            continue
        key = keys[k - first]
        i = q.bucket[key]
        q.bucket[key] = -1
        while i != -1:
            stamp += 1
            if q.following[i] != -1:
                for c in range(q.begin[i], q.begin[i] + q.length[i]):
                    q.mark[q.entries[c]] = stamp
            before, j = i, q.following[i]
            while j != -1:
                if _are_alike(q, i, j, stamp, num_interior):
                    q.weight[i] += q.weight[j]
                    _join(q, i, j)
                    q.following[before] = q.following[j]
                else:
                    before = j
                j = q.following[j]
            i = q.following[i]
    return stamp


@jit
def _update(q, p, first, stop, stamp, num_interior):
    """Update the variables of L_p; return the weight that joins p, and the last stamp."""
    more, keys = np.int64(0), np.empty(stop - first, np.int64)
    for k in range(first, stop):
        i = q.entries[k]
        beyond, key = _rewrite(q, i, p, stamp)
        keys[k - first] = key
        if beyond == 0 and i < num_interior:
            more -= q.weight[i]
            _join(q, p, i)
            continue
        q.degree[i] = min(q.degree[i], beyond)
        q.following[i] = q.bucket[key]
        q.bucket[key] = i
    return more, _merge(q, first, stop, stamp + len(q.head), num_interior, keys)


@jit
def _finish(q, p, first, stop, weight, left, num_interior):
    """Store L_p as the list of p; return its end and the least degree."""
    to, least = first, left
    for k in range(first, stop):
        i = q.entries[k]
        if q.weight[i] == 0:
            continue
        q.weight[i] = -q.weight[i]
        q.degree[i] = min(q.degree[i] + weight, left) - q.weight[i]
        if i < num_interior:
            _link(q, i)
            least = min(least, q.degree[i])
        q.entries[to] = i
        to += 1
    q.begin[p], q.length[p], q.degree[p] = first, to - first, weight
    q.mark[p] = 0 if to > first else _SWALLOWED
    return to, least


@jit
def minimum_degree(indptr, indices, weights, num_interior):
    """Return the elimination order of the first `num_interior` nodes of a graph.

    The other nodes are its halo.

    Args:
        indptr: Pointers (m + 1,) of the pattern, without its diagonal.
        indices: Indices of the pattern.
        weights: The number of original nodes of each node, (m,).
        num_interior: The number of nodes to eliminate.
    """
    q = _quotient(indptr, indices, weights)
    for i in range(num_interior - 1, -1, -1):
        _link(q, i)
    order, done = np.empty(num_interior, np.int32), 0
    left, free, stamp, least = weights.sum(), np.int64(len(indices)), np.int64(1), np.int64(0)
    while done < num_interior:
        while q.head[least] == -1:
            least += 1
        p = q.head[least]
        _unlink(q, p)
        if free + len(q.begin) > len(q.entries):
            free = _compact(q)
        pivot, first = q.weight[p], free
        q.weight[p] = -pivot
        stop, weight = _form(q, p, first, num_interior)
        _measure(q, first, stop, stamp)
        more, stamp = _update(q, p, first, stop, stamp, num_interior)
        left -= pivot + more
        q.weight[p] = 0
        free, low = _finish(q, p, first, stop, weight - more, left, num_interior)
        least = min(least, low)
        stamp += 1
        i = p
        while i != -1:
            order[done] = i
            done += 1
            i = q.after[i]
    return order
