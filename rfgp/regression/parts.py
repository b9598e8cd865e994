"""Warnings about connected parts of a graph, a mesh or roads without an observation."""

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
    """Yield a warning if a connected part has no observation.

    Args:
        links: A sparse matrix with an entry for each pair of connected values.
        observed: The indices of observed values, with repetitions.
        what: The beginning of the message, such as "The graph falls".
        hint: A sentence about a way to join parts. The default is none.
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
    """Return a matrix (N, N) of ones with the sparsity pattern of a precision.

    Args:
        pattern: The sparsity pattern, with N rows.
    """
    size = len(pattern.indptr) - 1
    ones = np.ones(len(pattern.indices), dtype=np.int8)
    return sp.csr_array((ones, pattern.indices, pattern.indptr), shape=(size, size))
