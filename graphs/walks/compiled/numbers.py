"""Random numbers in compiled code, with the keys of `graphs.random`."""

import numpy as np

from graphs import random
from graphs.compiled import jit

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
