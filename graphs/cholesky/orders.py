"""Elimination orders by name."""

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphs.checks import check_choice, short_repr
from graphs.cholesky.dissection import minimum_degree_order, nested_dissection, without_loops
from graphs.errors import InvalidArgumentError, requires_extra

Floats = NDArray[np.float64]

METHODS = ("auto", "metis", "dissection", "minimum-degree", "natural")
"""The names of elimination orders."""


def order(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
    coordinates: Floats | None = None,  # (n, d)
    method: str = "auto",
) -> NDArray[np.int64]:  # (n,)
    """Return an elimination order (n,) of a symmetric pattern.

    Entry k of the order is eliminated k-th.

    Args:
        indptr: Pointers (n + 1,) of the pattern in CSR form.
        indices: Indices (nnz,) of the pattern, with both triangles, each entry once. The diagonal is optional.
        coordinates: Coordinates (n, d) of the nodes with d up to 3, for "dissection". If None, they are unknown.
        method: "dissection" (`nested_dissection`), "metis" (METIS by pymetis), "minimum-degree"
            (`minimum_degree_order`), "natural" (the given order) or "auto". The latter is "dissection" with
            coordinates, or without pymetis. Otherwise it is "metis".

    Raises:
        InvalidArgumentError: If the arrays are not a CSR pattern, coordinates have another shape, or the method is
            unknown.
        MissingDependencyError: If the method is "metis" and pymetis is not installed: pip install 'rfgp[metis]'.

    Examples:
        >>> import graphs
        >>> from graphs.cholesky.orders import order
        >>> W = graphs.Graph.from_grid((2, 2)).adjacency
        >>> order(W.indptr, W.indices, method="natural").tolist()
        [0, 1, 2, 3]
    """
    check_choice("method", method, METHODS)
    starts, columns = _read_pattern(indptr, indices)
    if method == "auto":
        method = "metis" if coordinates is None and find_spec("pymetis") else "dissection"
    if method == "metis":
        return _metis(starts, columns)
    if method == "minimum-degree":
        return minimum_degree_order(starts, columns)
    if method == "natural":
        return np.arange(len(starts) - 1)
    return nested_dissection(starts, columns, coordinates)


def _read_pattern(indptr: Any, indices: Any) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the pattern, (n + 1,) and (nnz,), checked so that compiled loops stay within bounds."""
    starts, columns = np.asarray(indptr), np.asarray(indices)
    if starts.ndim != 1 or columns.ndim != 1 or starts.dtype.kind not in "iu" or columns.dtype.kind not in "iu":
        raise InvalidArgumentError(
            "indptr and indices must be vectors of integers, got others. Pass those of a CSR array."
        )
    n = len(starts) - 1
    if n < 0 or starts[0] != 0 or starts[-1] != len(columns) or (np.diff(starts.astype(np.int64)) < 0).any():
        raise InvalidArgumentError(
            f"indptr must ascend from 0 to the number of indices, {len(columns)}, got {short_repr(indptr)}."
        )
    if len(columns) and not (columns.min() >= 0 and columns.max() < n):
        raise InvalidArgumentError(f"indices must be nodes, from 0 to {n - 1}, got {columns.min()} to {columns.max()}.")
    return starts.astype(np.int64), columns.astype(np.int32)


def _metis(
    indptr: NDArray[np.int64],  # (n + 1,)
    indices: NDArray[np.int32],  # (nnz,)
) -> NDArray[np.int64]:  # (n,)
    """Return the order (n,) of METIS (Karypis and Kumar 1998)."""
    with requires_extra("metis"):
        import pymetis

    A = without_loops(indptr, indices)
    if A.nnz == 0:
        return np.arange(A.shape[0])
    permutation, _ = pymetis.nested_dissection(pymetis.CSRAdjacency(A.indptr, A.indices))
    return np.asarray(permutation, dtype=np.int64)
