"""Shift operators U = I - L of the Laplacians L."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDING = 1e-14
"""Diagonal entries below this value are rounding errors of 0."""


def normalized_shift(
    W: sp.csr_array,  # (N, N)
    degrees: Floats,  # (N,)
) -> sp.csr_array:  # (N, N)
    """Return D^(-1/2) W D^(-1/2), with 1 on the diagonal of isolated nodes.

    Powers of two are factored out of the degrees first, so that products of very small numbers keep their digits.

    Args:
        W: The weights (N, N), symmetric.
        degrees: The row sums (N,) of W.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.laplacians import normalized_shift
        >>> W = sp.csr_array([[0, 4.0], [4.0, 0]])
        >>> normalized_shift(W, W.sum(axis=1)).toarray().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    isolated = degrees == 0
    degrees = np.where(isolated, 1.0, degrees)
    power = np.frexp(degrees)[1] // 2
    root = np.sqrt(np.ldexp(degrees, -2 * power))
    rows = np.repeat(np.arange(len(degrees)), np.diff(W.indptr))
    weights = np.ldexp(W.data, -(power[rows] + power[W.indices]))
    values = weights / (root[rows] * root[W.indices])  # the same product for (a, b) and (b, a)
    matrix = sp.csr_array((values, W.indices, W.indptr), shape=W.shape)
    return _canonical(matrix + sp.diags_array(isolated.astype(np.float64))) if isolated.any() else matrix


def combinatorial_shift(
    W: sp.csr_array,  # (N, N)
    degrees: Floats,  # (N,)
) -> sp.csr_array:  # (N, N)
    """Return I - (D - W) / max D.

    Its rows sum to 1. It is I if there are no edges.

    Args:
        W: The weights (N, N), symmetric.
        degrees: The row sums (N,) of W.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.laplacians import combinatorial_shift
        >>> W = sp.csr_array([[0, 1.0, 1.0], [1.0, 0, 0], [1.0, 0, 0]])
        >>> combinatorial_shift(W, W.sum(axis=1)).diagonal().tolist()
        [0.0, 0.5, 0.5]
    """
    largest = degrees.max()
    if largest == 0:
        return sp.csr_array(sp.eye_array(len(degrees)))
    rest = (largest - degrees) / largest
    rest[rest < _ROUNDING] = 0.0
    moves = sp.csr_array((W.data / largest, W.indices, W.indptr), shape=W.shape)
    return _canonical(moves + sp.diags_array(rest))


def _canonical(matrix: sp.sparray) -> sp.csr_array:
    matrix = sp.csr_array(matrix)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


LAPLACIANS: dict[str, Callable[[sp.csr_array, Floats], sp.csr_array]] = {
    "normalized": normalized_shift,
    "combinatorial": combinatorial_shift,
}
