"""Merging of visits by start, node and hop, and sums over them."""

import numpy as np

from graphs.compiled import jit

_HOP_BITS, _HOP_MASK = np.uint64(32), np.uint64(0xFFFFFFFF)
"""The number of bits of the hop in a visit, and their mask."""
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
