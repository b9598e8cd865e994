"""Compiled loops of walks: serial and `nogil`, run by `graphs.walks.drawing` in a thread pool.

A visit is a 64-bit number, node << 32 | hop. If the load of a visit follows from its start, node and hop, only visits
are stored. Otherwise `path_weights` holds their path-dependent loads.
"""

import numpy as np

from graphs import random
from graphs.compiled import jit

# --- Random numbers in compiled code, with the keys of `graphs.random` -----------------------------------------------


mix = jit(random.mix)


@jit
def derive(key, index):
    """Return the child key of `key` at `index`."""
    return mix(key ^ mix(np.uint64(index)))


@jit
def to_unit(bits):
    """Map bits to (0, 1) like `random.to_unit`, through fast signed integers."""
    return (np.float64(np.int64(bits >> np.uint64(12))) + 0.5) * 2.0**-52


@jit
def uniform(key, index):
    """Return the uniform in (0, 1) of `key` at `index`."""
    return to_unit(derive(key, index))


@jit
def shuffle(key, first_index, items):
    """Shuffle items in place (Fisher-Yates) with uniforms of `key`."""
    for q in range(items.size - 1, 0, -1):
        other = np.int64(uniform(key, first_index + q) * (q + 1))
        items[q], items[other] = items[other], items[q]


@jit
def search(cumulative, first, count, x):
    """Return the index of quantile x in (0, 1) in a range of `cumulative`.

    Args:
        cumulative: Cumulative probabilities, ascending within the range.
        first: The first index of the range.
        count: The size of the range.
        x: A number in (0, 1).
    """
    last = first + count
    while first < last - 1:
        middle = (first + last - 1) // 2
        if cumulative[middle] <= x:
            first = middle + 1
        else:
            last = middle + 1
    return first


# --- Steps of walks: the walkers of many start nodes advance together ------------------------------------------------
#
# Each step is a few short loops over all walkers. Reads from the adjacency, which miss the caches, are then independent
# of each other and overlap. The walks of a node depend on its key alone, so chunks can be cut anywhere.


INDEPENDENT, STRATIFIED, REPELLING = 0, 1, 2
"""Codes of the step couplings, in the order of `graphs.lengths.STEP_COUPLINGS`."""

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
def _record(
    nodes, rows, halts, edges, count, first_hops, step, survival, cursors, visits, factors, loads, path_weights
):
    """Record the visits of walkers 0..count-1, or without probabilities of survival only their last ones."""
    for a in range(count):
        if survival.size == 0 and halts[a] > step:
            continue
        start = np.uint64(rows[a])
        slot = np.uint64(cursors[start])
        visits[slot] = (np.uint64(nodes[a]) << _HOP_BITS) | np.uint64(first_hops[start] + step)
        cursors[start] = slot + np.uint64(1)
        if path_weights.size:
            loads[a] *= factors[np.uint64(edges[a])]
            path_weights[slot] = loads[a] / survival[step]


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
    survival,  # (longest + 1,), or (0,) to record only the last visit of each walker
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
            nodes, rows, halts, edges, count, first_hops, step, survival, cursors, visits, factors, loads, path_weights
        )
        count = _drop_finished(nodes, rows, halts, streams, loads, count, step)


# --- Exact first steps of walks, and the draw of the nodes from which walkers continue -------------------------------


@jit
def cumulate(indptr, probabilities):
    """Return the cumulative sums (nnz,) within each row, whose last entry is set to 1."""
    cumulative = np.empty_like(probabilities)
    for row in range(indptr.size - 1):
        total = 0.0
        for edge in range(indptr[row], indptr[row + 1]):
            total += probabilities[edge]
            cumulative[edge] = total
        if indptr[row + 1] > indptr[row]:
            cumulative[indptr[row + 1] - 1] = 1.0
    return cumulative


@jit
def push(
    indptr,
    indices,
    probabilities,  # (nnz,) of moves in proportion to weight, or (0,) if they are uniform
    sqrt_degrees,  # (N,) sqrt of the stationary mass
    starts,  # (n,) int64
    num_hops,  # (n,) int64
):
    """Compute the distributions of the first steps of a walk exactly.

    Returns: ends (n, H + 1), the ends of the entries of each hop of each start, with H the largest number of hops.
        Then, in this order, the nodes, ascending within a hop, their probabilities, and the loads U^hop, which are
        probabilities times a ratio of sqrt_degrees.
    """
    max_hops = num_hops.max() if num_hops.size else 0
    ends = np.empty((starts.size, max_hops + 1), np.int64)
    nodes, mass, loads = np.empty(1024, np.int32), np.empty(1024), np.empty(1024)
    mass_at, seen, touched = (
        np.zeros(sqrt_degrees.size),
        np.zeros(sqrt_degrees.size, np.int64),
        np.empty(1024, np.int32),
    )
    num_entries = 0
    for row in range(starts.size):
        start = num_entries
        for hop in range(num_hops[row] + 1):
            num_reached, mark = 0, row * (max_hops + 1) + hop + 1
            if hop == 0:
                mass_at[starts[row]] = 1.0
                touched[0], num_reached = starts[row], 1
            for source in range(start, num_entries if hop > 0 else start):
                node = nodes[source]
                first, last = indptr[node], indptr[node + 1]
                while num_reached + last - first > touched.size:
                    touched = np.concatenate((touched, np.empty_like(touched)))
                for edge in range(first, last):
                    other = indices[edge]
                    if seen[other] != mark:
                        seen[other] = mark
                        touched[num_reached] = other
                        num_reached += 1
                    mass_at[other] += mass[source] * (
                        probabilities[edge] if probabilities.size else 1.0 / (last - first)
                    )
            here = touched[:num_reached][
                np.argsort(touched[:num_reached], kind="mergesort")
            ]  # np.sort has a quadratic case
            while num_entries + num_reached > nodes.size:
                nodes, mass = np.concatenate((nodes, np.empty_like(nodes))), np.concatenate((mass, np.empty_like(mass)))
                loads = np.concatenate((loads, np.empty_like(loads)))
            start = num_entries
            for other in here:
                nodes[num_entries], mass[num_entries] = other, mass_at[other]
                loads[num_entries] = mass_at[other] * (sqrt_degrees[starts[row]] / sqrt_degrees[other])
                mass_at[other] = 0.0
                num_entries += 1
            ends[row, hop] = num_entries
        ends[row, num_hops[row] :] = num_entries
    return ends, nodes[:num_entries], mass[:num_entries], loads[:num_entries]


@jit
def reach(
    indptr,
    indices,
    starts,  # (n,) int64
    max_hops,
    limit,
):
    """Count the nodes within 0, 1, ... hops of each start, (n, max_hops + 1).

    The search ends when more than `limit` are found. This and the later hops then have a count above the limit.
    """
    neighborhood_sizes = np.empty((starts.size, max_hops + 1), np.int64)
    seen, touched = np.zeros(indptr.size - 1, np.int64), np.empty(max(limit, 0) + 2, np.int32)
    for row in range(starts.size):
        mark = row + 1
        seen[starts[row]], touched[0] = mark, starts[row]
        neighborhood_sizes[row, 0], num_reached, start = 1, 1, 0
        for hop in range(1, max_hops + 1):
            last, i = num_reached, start
            while i < last and num_reached <= limit:
                for edge in range(indptr[touched[i]], indptr[touched[i] + 1]):
                    other = indices[edge]
                    if seen[other] != mark:
                        seen[other] = mark
                        touched[num_reached] = other
                        num_reached += 1
                        if num_reached > limit:
                            break
                i += 1
            start, neighborhood_sizes[row, hop] = last, num_reached
    return neighborhood_sizes


@jit
def draw_starts(
    ends,  # (n, H + 1)
    num_hops,  # (n,)
    mass,  # with `ends` from `push`
    keys,  # (n,) uint64
    num_walkers,
    systematic,  # bool
):
    """Draw nodes for the walkers of each start, from the distribution of its last hop.

    If `systematic` is true, by systematic sampling in a random order, otherwise independently. Returns indices (n, m)
    into `mass`.
    """
    drawn = np.empty((keys.size, num_walkers), np.int64)
    for row in range(keys.size):
        last = num_hops[row]
        first = ends[row, last - 1] if last > 0 else (ends[row - 1, -1] if row > 0 else 0)
        count = ends[row, last] - first
        cumulative = np.cumsum(mass[first : ends[row, last]])
        total = cumulative[count - 1]
        shift = uniform(keys[row], 0)
        for walker in range(num_walkers):
            x = (walker + shift) / num_walkers if systematic else uniform(keys[row], 1 + walker)
            drawn[row, walker] = first + min(np.searchsorted(cumulative, x * total, side="right"), count - 1)
        if systematic:
            shuffle(keys[row], 1, drawn[row])
    return drawn


# --- Merging of visits by start, node and hop, and sums over them ----------------------------------------------------


_HOP_MASK = np.uint64(0xFFFFFFFF)
"""The mask of the hop in a visit."""
_DIGIT_BITS, _DIGIT_MASK, _NUM_DIGITS = np.uint64(7), np.uint64(127), 128
"""The number of bits of a digit of the radix sort, their mask, and the number of digits."""


@jit
def _sort(visits, path_weights, other_visits, other_weights, counts):
    """Sort visits by node, stably, by digits of 7 bits; return both arrays."""
    size = visits.size
    differing = np.uint64(0)
    for a in range(size):
        differing |= visits[a] ^ visits[0]
    differing >>= _HOP_BITS
    shift = _HOP_BITS
    while differing > np.uint64(0):
        if differing & _DIGIT_MASK:
            counts[:] = 0
            for a in range(size):
                counts[((visits[a] >> shift) & _DIGIT_MASK) + np.uint64(1)] += 1
            for digit in range(_NUM_DIGITS):
                counts[digit + 1] += counts[digit]
            for a in range(size):
                digit = (visits[a] >> shift) & _DIGIT_MASK
                slot = np.uint64(counts[digit])
                other_visits[slot] = visits[a]
                if path_weights.size:
                    other_weights[slot] = path_weights[a]
                counts[digit] += 1
            visits, other_visits = other_visits, visits
            path_weights, other_weights = other_weights, path_weights
        shift += _DIGIT_BITS
        differing >>= _DIGIT_BITS
    return visits, path_weights


@jit
def merge(
    offsets,  # (n,) beginnings of the visits of each start
    ends,  # (n,) their ends
    visits,
    path_weights,  # path-dependent loads, like `visits`, or (0,)
    columns,  # this and the following arrays are outputs of the size of `visits`
    hop_counts,
    hops,
    loads,
):
    """Merge the visits of each start by node and hop; they must ascend in the hop.

    A load is the sum of the path-dependent loads, or the number of visits. Writes columns and hop_counts per distinct
    node, and hops and loads per distinct visit. Returns the number of nodes and of visits of each start, (n,) and (n,).
    """
    node_counts, visit_counts = np.empty(offsets.size, np.int64), np.empty(offsets.size, np.int64)
    widest = 0
    for row in range(offsets.size):
        widest = max(widest, ends[row] - offsets[row])
    spare, spare_weights = np.empty(widest, np.uint64), np.empty(widest if path_weights.size else 0)
    counts = np.empty(_NUM_DIGITS + 1, np.int32)
    entry = visit = np.int64(-1)
    for row in range(offsets.size):
        inside, size = slice(offsets[row], ends[row]), ends[row] - offsets[row]
        held = path_weights[inside] if path_weights.size else path_weights
        keys, values = _sort(visits[inside], held, spare[:size], spare_weights[:size], counts)
        first_entry, first_visit = entry, visit
        previous_node = previous = ~np.uint64(0)
        for a in range(size):
            key = keys[a]
            if key == previous:
                loads[visit] += values[a] if path_weights.size else 1
                continue
            node = key >> _HOP_BITS
            if node != previous_node:
                entry += 1
                columns[entry], hop_counts[entry], previous_node = node, 0, node
            visit += 1
            hop_counts[entry] += 1
            hops[visit], loads[visit] = key & _HOP_MASK, values[a] if path_weights.size else 1
            previous = key
        node_counts[row], visit_counts[row] = entry - first_entry, visit - first_visit
    return node_counts, visit_counts


@jit
def gather(
    visit_indptr,  # (n + 1,)
    indptr,  # (n + 1,)
    indices,
    hop_counts,
    hops,
    loads,
    weights,  # (L + 1,)
    left,  # (n,) factors of rows, or (0,)
    right,  # (N,) and of columns
):
    """Return sum_l weights_l load_l (nnz,), times the factors of rows and columns."""
    out = np.empty(indices.size)
    for row in range(indptr.size - 1):
        visit = visit_indptr[row]
        for entry in range(indptr[row], indptr[row + 1]):
            total = 0.0
            for _ in range(hop_counts[entry]):
                total += weights[hops[visit]] * loads[visit]
                visit += 1
            out[entry] = total * left[row] * right[indices[entry]] if left.size else total
    return out


@jit
def scatter(visit_indptr, indptr, indices, hop_counts, hops, loads, v, left, right, length):
    """Return the adjoint of `gather` in the weights at v (nnz,), (length + 1,).

    The other arguments are those of `gather`.
    """
    out = np.zeros(length + 1)
    for row in range(indptr.size - 1):
        visit = visit_indptr[row]
        for entry in range(indptr[row], indptr[row + 1]):
            value = v[entry] * left[row] * right[indices[entry]] if left.size else v[entry]
            for _ in range(hop_counts[entry]):
                out[hops[visit]] += value * loads[visit]
                visit += 1
    return out
