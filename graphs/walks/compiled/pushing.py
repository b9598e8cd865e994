"""Exact first steps of walks, and the draw of walkers that begin after them."""

import numpy as np

from graphs.compiled import jit
from graphs.walks.compiled.numbers import shuffle, uniform


@jit
def cumulate(indptr, probabilities):
    """Return the cumulative sums (nnz,) within each row, whose last entry is set to 1."""
    cumulative = np.empty_like(probabilities)
    for row in range(indptr.size - 1):
        total = 0.0
        for place in range(indptr[row], indptr[row + 1]):
            total += probabilities[place]
            cumulative[place] = total
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
    held, seen, touched = np.zeros(sqrt_degrees.size), np.zeros(sqrt_degrees.size, np.int64), np.empty(1024, np.int32)
    used = 0
    for row in range(starts.size):
        begin = used
        for hop in range(num_hops[row] + 1):
            reached, mark = 0, row * (max_hops + 1) + hop + 1
            if hop == 0:
                held[starts[row]] = 1.0
                touched[0], reached = starts[row], 1
            for place in range(begin, used if hop > 0 else begin):
                node = nodes[place]
                first, last = indptr[node], indptr[node + 1]
                while reached + last - first > touched.size:
                    touched = np.concatenate((touched, np.empty_like(touched)))
                for edge in range(first, last):
                    other = indices[edge]
                    if seen[other] != mark:
                        seen[other] = mark
                        touched[reached] = other
                        reached += 1
                    held[other] += mass[place] * (probabilities[edge] if probabilities.size else 1.0 / (last - first))
            here = touched[:reached][np.argsort(touched[:reached], kind="mergesort")]  # np.sort has a quadratic case
            while used + reached > nodes.size:
                nodes, mass = np.concatenate((nodes, np.empty_like(nodes))), np.concatenate((mass, np.empty_like(mass)))
                loads = np.concatenate((loads, np.empty_like(loads)))
            begin = used
            for other in here:
                nodes[used], mass[used] = other, held[other]
                loads[used] = held[other] * (sqrt_degrees[starts[row]] / sqrt_degrees[other])
                held[other] = 0.0
                used += 1
            ends[row, hop] = used
        ends[row, num_hops[row] :] = used
    return ends, nodes[:used], mass[:used], loads[:used]


@jit
def reach(
    indptr,
    indices,
    starts,  # (n,) int64
    max_hops,
    limit,
):
    """Count the nodes within 0, 1, ..., `max_hops` hops of each start, (n, max_hops + 1).

    The search ends when more than `limit` are found. This and the later hops then have a count above the limit.
    """
    neighborhood_sizes = np.empty((starts.size, max_hops + 1), np.int64)
    seen, touched = np.zeros(indptr.size - 1, np.int64), np.empty(max(limit, 0) + 2, np.int32)
    for row in range(starts.size):
        mark = row + 1
        seen[starts[row]], touched[0] = mark, starts[row]
        neighborhood_sizes[row, 0], found, begin = 1, 1, 0
        for hop in range(1, max_hops + 1):
            last, place = found, begin
            while place < last and found <= limit:
                for edge in range(indptr[touched[place]], indptr[touched[place] + 1]):
                    other = indices[edge]
                    if seen[other] != mark:
                        seen[other] = mark
                        touched[found] = other
                        found += 1
                        if found > limit:
                            break
                place += 1
            begin, neighborhood_sizes[row, hop] = last, found
    return neighborhood_sizes


@jit
def draw_starts(
    ends,  # (n, H + 1)
    num_hops,  # (n,)
    mass,  # with `ends` from `push`
    keys,  # (n,) uint64
    num_walkers,
    together,  # bool
):
    """Draw nodes for the walkers of each start, from the distribution of its last hop.

    If `together` is true, by systematic sampling in a random order, otherwise independently. Returns indices (n, m)
    into `mass`.
    """
    places = np.empty((keys.size, num_walkers), np.int64)
    for row in range(keys.size):
        last = num_hops[row]
        first = ends[row, last - 1] if last > 0 else (ends[row - 1, -1] if row > 0 else 0)
        count = ends[row, last] - first
        cumulative = np.cumsum(mass[first : ends[row, last]])
        total = cumulative[count - 1]
        shift = uniform(keys[row], 0)
        for walker in range(num_walkers):
            x = (walker + shift) / num_walkers if together else uniform(keys[row], 1 + walker)
            places[row, walker] = first + min(np.searchsorted(cumulative, x * total, side="right"), count - 1)
        if together:
            shuffle(keys[row], 1, places[row])
    return places
