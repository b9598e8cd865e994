"""Warnings about connected components of a graph, a mesh or roads without an observation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import graphs
from graphs.precisions.base import Pattern


def warnings_of_components(
    links: Any,  # sparse (N, N)
    observed: NDArray[np.integer[Any]],
    subject: str,
    hint: str = "",
) -> Iterator[Warning]:
    """Yield a warning if a connected component has no observation.

    Args:
        links: A sparse matrix with an entry for each pair of connected values.
        observed: The indices of observed values, with repetitions.
        subject: The beginning of the message, such as "The graph has".
        hint: A sentence about a way to join components. The default is none.
    """
    count, component = connected_components(links, directed=False)
    is_unobserved = np.ones(count, dtype=bool)
    is_unobserved[component[observed]] = False
    if is_unobserved.any():
        yield graphs.DisconnectedWarning(
            f"{subject} {count:,} connected components, {int(is_unobserved.sum()):,} of them without an "
            f"observation, which hold {is_unobserved[component].mean():.1%} of all values. Predictions there "
            f"are those of the prior.{hint}"
        )


def pattern_links(pattern: Pattern) -> sp.csr_array:
    """Return a matrix (N, N) of ones with the sparsity pattern of a precision.

    Args:
        pattern: The sparsity pattern, with N rows.
    """
    size = len(pattern.indptr) - 1
    ones = np.ones(len(pattern.indices), dtype=np.int8)
    return sp.csr_array((ones, pattern.indices, pattern.indptr), shape=(size, size))
