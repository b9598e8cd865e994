"""Parts of a graph, a mesh or a road network that have no observation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import graphs
from graphs.precisions.base import Pattern


def warnings_of_parts(
    links: Any,  # sparse (N, N)
    observed: NDArray[np.integer[Any]],
    what: str,
    hint: str = "",
) -> Iterator[Warning]:
    """Yield a warning if there are parts without an observation.

    Args:
        links: A sparse matrix with an entry for each pair of values that depend on each other.
        observed: Numbers of the values that are observed, each any number of times.
        what: The subject of the sentence, such as "The graph falls".
        hint: A sentence that says how parts may be joined.
    """
    count, part = connected_components(links, directed=False)
    silent = np.ones(count, dtype=bool)
    silent[part[observed]] = False
    if silent.any():
        yield graphs.DisconnectedWarning(
            f"{what} into {count:,} parts, {int(silent.sum()):,} of them without an observation, which hold "
            f"{silent[part].mean():.1%} of all values. Predictions there are those of the prior.{hint}"
        )


def pattern_links(pattern: Pattern) -> sp.csr_array:
    """Return a matrix (N, N) with ones where a precision may have entries."""
    size = len(pattern.indptr) - 1
    ones = np.ones(len(pattern.indices), dtype=np.int8)
    return sp.csr_array((ones, pattern.indices, pattern.indptr), shape=(size, size))
