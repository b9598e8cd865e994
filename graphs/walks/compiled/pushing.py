"""Exact first steps of walks, and the draw of the nodes from which walkers continue."""

import numpy as np

from graphs.compiled import jit
from graphs.walks.compiled.numbers import shuffle, uniform


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
