"""Steps of walks: the walkers of many start nodes advance together.

Each step is a few short loops over all walkers. Reads from the adjacency, which miss the caches, are then independent
of each other and overlap. The walks of a node depend on its key alone, so chunks can be cut anywhere.
"""

import numpy as np

from graphs import random
from graphs.compiled import jit
from graphs.walks.compiled.numbers import derive, mix, search, shuffle, to_unit, uniform

INDEPENDENT, STRATIFIED, REPELLING = 0, 1, 2
"""Codes of the step couplings, in the order of `graphs.couplings.STEP_COUPLINGS`."""

_HOP_BITS = np.uint64(32)
"""The number of bits of the hop in a visit."""
_MAX_INSERTION_SORT = 48
"""The largest group of walkers that is sorted by insertion."""


@jit
def _choose_stratified(key, first, degree, cumulative, group, edges):
    """Choose the next edges of a group of walkers at one node, stratified.

    The group is shuffled. Walker q of c gets the point (q + U) / c of the transition distribution, rotated by a second
    uniform V. A walker's rank is uniform, so its point is uniform on (0, 1) for every V, and it follows the transition
    probabilities. The points of a group are 1/c apart. With uniform moves over k neighbors the rotation is a whole
    number of neighbors, so for c <= k no two walkers share one.
    """
    count = group.size
    shift, rotation = uniform(key, 0), uniform(key, 1)
    shuffle(key, 2, group)
    offset = np.int64(rotation * degree)
    for q in range(count):
        x = (q + shift) / count
        if cumulative.size == 0:
            neighbor = min(np.int64(x * degree), degree - 1) + offset
            edges[group[q]] = first + (neighbor if neighbor < degree else neighbor - degree)
        else:
            edges[group[q]] = search(cumulative, first, degree, (x + rotation) % 1.0)


@jit
def _choose_without_replacement(key, first, degree, group, edges, taken):
    """Choose the next edges of a group without replacement, in blocks.

    Each block takes a uniformly random subset of the neighbors (Floyd's algorithm), and the group is shuffled.
    """
    shuffle(key, 0, group)
    count, drawn = group.size, group.size
    for block in range(0, count, degree):
        size = min(degree, count - block)
        for j in range(degree - size, degree):
            neighbor = np.int64(uniform(key, drawn) * (j + 1))
            drawn += 1
            for earlier in range(block, block + size - (degree - j)):
                if taken[earlier] == neighbor:
                    neighbor = np.int64(j)
                    break
            q = block + size - (degree - j)
            taken[q] = neighbor
            edges[group[q]] = first + neighbor


@jit
def _choose_independent(streams, step, firsts, degrees, cumulative, count, edges):
    """Choose the next edges of walkers 0..count-1 independently."""
    offset = np.uint64(step) * random.GOLDEN
    if cumulative.size == 0:
        for a in range(count):
            edges[a] = firsts[a] + np.int64(to_unit(mix(streams[a] + offset)) * np.float64(degrees[a]))
    else:
        for a in range(count):
            edges[a] = search(cumulative, firsts[a], degrees[a], to_unit(mix(streams[a] + offset)))


@jit
def _choose_in_groups(step_coupling, keys, step, rows, nodes, firsts, degrees, cumulative, count, order, edges, taken):
    """Choose the next edges of walkers in groups of one start and one position."""
    start = 0
    while start < count:
        row, end = rows[start], start
        while end < count and rows[end] == row:
            end += 1
        if end - start <= _MAX_INSERTION_SORT:
            for a in range(start, end):  # insertion: a stable order by node
                node, b = nodes[a], a
                while b > start and nodes[order[b - 1]] > node:
                    order[b] = order[b - 1]
                    b -= 1
                order[b] = a
        else:
            order[start:end] = start + np.argsort(nodes[start:end], kind="mergesort")
        step_key = derive(keys[row], step)
        while start < end:
            node, last = nodes[order[start]], start
            while last < end and nodes[order[last]] == node:
                last += 1
            key, group, leader = derive(step_key, node), order[start:last], order[start]
            if step_coupling == STRATIFIED:
                _choose_stratified(key, firsts[leader], degrees[leader], cumulative, group, edges)
            else:
                _choose_without_replacement(key, firsts[leader], degrees[leader], group, edges, taken)
            start = last


@jit
def _walkers(capacity, step_coupling, indptr):
    """Return space for the walkers: streams, start rows, nodes, edges, and four arrays for the choice of edges."""
    streams, rows, nodes = np.empty(capacity, np.uint64), np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    edges, firsts = np.empty(capacity, indptr.dtype), np.empty(capacity, indptr.dtype)
    degrees = np.empty(capacity, np.int32)
    grouped = 0 if step_coupling == INDEPENDENT else capacity
    return streams, rows, nodes, edges, firsts, degrees, np.empty(grouped, np.int32), np.empty(grouped, np.int32)


@jit
def _choose_edges(
    indptr, cumulative, step_coupling, keys, step, count, streams, rows, nodes, edges, firsts, degrees, order, taken
):
    """Choose the next edges of walkers 0..count-1; the last five arrays are outputs."""
    for a in range(count):
        node = np.uint64(nodes[a])
        firsts[a] = indptr[node]
        degrees[a] = indptr[node + np.uint64(1)] - firsts[a]
    if step_coupling == INDEPENDENT:
        _choose_independent(streams, step, firsts, degrees, cumulative, count, edges)
    else:
        _choose_in_groups(
            step_coupling, keys, step, rows, nodes, firsts, degrees, cumulative, count, order, edges, taken
        )


@jit
def _record(nodes, rows, edges, count, first_hops, step, survival, cursors, visits, factors, loads, path_weights):
    """Record the visits of walkers 0..count-1."""
    for a in range(count):
        start = np.uint64(rows[a])
        slot = np.uint64(cursors[start])
        visits[slot] = (np.uint64(nodes[a]) << _HOP_BITS) | np.uint64(first_hops[start] + step)
        cursors[start] = slot + np.uint64(1)
        if path_weights.size:
            loads[a] *= factors[np.uint64(edges[a])]
            path_weights[slot] = loads[a] / survival


@jit
def _drop_finished(nodes, rows, halts, streams, loads, count, step):
    """Remove walkers that have reached their length; return the number of the others."""
    active = np.uint64(0)
    for a in range(count):
        nodes[active], rows[active], halts[active], streams[active] = nodes[a], rows[a], halts[a], streams[a]
        if loads.size:
            loads[active] = loads[a]
        active += np.uint64(halts[a] > step)
    return np.int64(active)


@jit
def walk(
    indptr,  # (N + 1,) int32 or int64, the rows of U
    indices,  # (nnz,) int32
    cumulative,  # (nnz,) cumulative transition probabilities of each row, or (0,) if they are uniform
    factors,  # (nnz,) U_ab / p_ab, or (0,) if loads do not depend on the path
    initial_nodes,  # (n, m) int32, the nodes at which walkers start
    initial_loads,  # (n, m) their loads there, or (0, 0)
    first_hops,  # (n,) the hops at which they start
    keys,  # (n,) uint64, one per start
    lengths,  # (n, m) int64
    survival,  # (longest + 1,)
    step_coupling,
    cursors,  # (n,) index of the next visit of each start
    visits,  # uint64
    path_weights,  # path-dependent loads, like `visits`, or (0,)
):
    """Walk with m walkers of n start nodes and append their visits."""
    capacity = lengths.size
    walkers = _walkers(capacity, step_coupling, indptr)
    streams, rows, nodes, edges = walkers[:4]
    halts, loads = np.empty(capacity, np.int32), np.empty(capacity if path_weights.size else 0)
    count = np.int64(0)
    for row in range(lengths.shape[0]):
        for walker in range(lengths.shape[1]):
            if lengths[row, walker] > 0:
                nodes[count], rows[count], halts[count] = initial_nodes[row, walker], row, lengths[row, walker]
                streams[count] = derive(keys[row], walker)
                if path_weights.size:
                    loads[count] = initial_loads[row, walker]
                count += 1
    step = 0
    while count > 0:
        _choose_edges(indptr, cumulative, step_coupling, keys, step, count, *walkers)
        for a in range(count):
            nodes[a] = indices[np.uint64(edges[a])]
        step += 1
        _record(
            nodes, rows, edges, count, first_hops, step, survival[step], cursors, visits, factors, loads, path_weights
        )
        count = _drop_finished(nodes, rows, halts, streams, loads, count, step)


@jit
def final_nodes(
    indptr,  # (N + 1,) the rows of U
    indices,
    cumulative,  # (nnz,) or (0,)
    starts,  # (n,) int64
    keys,  # (n,) uint64
    lengths,  # (n, m) int64
    step_coupling,
):
    """Return the last nodes (n m,) of the walkers of n start nodes, in no particular order."""
    capacity = lengths.size
    walkers = _walkers(capacity, step_coupling, indptr)
    streams, rows, nodes, edges = walkers[:4]
    halts, ends = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    count = ended = np.int64(0)
    for row in range(lengths.shape[0]):
        for walker in range(lengths.shape[1]):
            if lengths[row, walker] == 0:
                ends[ended] = starts[row]
                ended += 1
                continue
            nodes[count], rows[count], halts[count] = starts[row], row, lengths[row, walker]
            streams[count] = derive(keys[row], walker)
            count += 1
    step = 0
    while count > 0:
        _choose_edges(indptr, cumulative, step_coupling, keys, step, count, *walkers)
        step += 1
        active = np.int64(0)
        for a in range(count):
            node = indices[np.uint64(edges[a])]
            if halts[a] == step:
                ends[ended] = node
                ended += 1
            else:
                nodes[active], rows[active], halts[active], streams[active] = node, rows[a], halts[a], streams[a]
                active += 1
        count = active
    return ends
