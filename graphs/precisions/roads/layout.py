"""Which latent values a field on pieces of road has, and which entries of its precision each piece adds to.

The first V latent values are u at the vertices. For alpha = 2 each end of a piece has u' as well, into the piece, and
Kirchhoff's condition at a vertex with d ends is that these sum to 0. Coordinates of the d - 1 dimensions that are left
are the partial sums S_1, ..., S_(d - 1) over the ends in any order: the k-th derivative is S_k - S_(k - 1), where S_0 =
S_d = 0. So each derivative has two latent values at most, however many roads meet, and a precision on them stays
sparse; eliminating one derivative would tie all others. Derivatives are in units of kappa, as in `line`, and the
condition has no kappa. A free end, d = 1, has no latent derivative: u' = 0. An end that shall look like a point of the
line keeps its own, S_1.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.precisions.base import Pattern
from graphs.precisions.roads.pieces import Pieces

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SIGNS = {1: (1,), 2: (1, 1, -1)}
"""Of the slots of an end: u; for alpha = 2 also S_k and S_(k - 1), whose difference is the derivative."""
KINDS = {1: (0,), 2: (0, 1, 1)}
"""What each slot is part of: 0 for u, 1 for its derivative."""


BOUNDARIES = ("neumann", "stationary", "open")


class Layout(NamedTuple):
    """The N latent values of a field, its pattern, and the linear map from blocks of pieces to entries."""

    slots: Integers  # (2, c, P) the latent values at the two ends of each piece, -1 where there is none
    owner: Integers  # (N,) the vertex of each latent value
    pattern: Pattern
    spread: sp.csr_array  # (nnz, 2 k P) from O and C of the pieces (`line.blocks`) to entries of the pattern
    fixed: Floats  # (nnz,) entries that do not depend on the lengthscale


def lay_out(
    pieces: Pieces,
    alpha: int,
    boundary: str,
) -> Layout:
    """Return the layout of a field.

    Args:
        pieces: The pieces.
        alpha: 1 or 2.
        boundary: One of `BOUNDARIES`. Where free ends look like points of an infinite line, the side that is not built
            lacks its half of the precision I of (u, u' / kappa) at a point of the line, see `line`.
    """
    num_vertices, num_pieces = len(pieces.coordinates), len(pieces.source)
    ends = np.concatenate([pieces.source, pieces.target])
    degree = np.bincount(ends, minlength=num_vertices)
    free = (boundary != "neumann") & (degree == 1)
    sums = np.where(free, 1, degree - 1) if alpha == 2 else np.zeros(num_vertices, dtype=np.int64)
    slots = _slots(ends, degree, sums, alpha).reshape(-1, 2, num_pieces).swapaxes(0, 1)
    owner = np.concatenate([np.arange(num_vertices), np.repeat(np.arange(num_vertices), sums)])
    own_half = np.flatnonzero(free[owner]) if boundary == "stationary" else np.zeros(0, dtype=np.int64)
    return _assemble(slots, owner, own_half, alpha)


def _slots(ends: Integers, degree: Integers, sums: Integers, alpha: int) -> Integers:
    """Return the latent values (c, 2 P) at ends of pieces, given their vertices (2 P,): u, S_k and S_(k - 1)."""
    if alpha == 1:
        return ends[None]
    order = np.argsort(ends, kind="stable")
    rank = np.empty(len(ends), dtype=np.int64)
    rank[order] = np.arange(len(ends)) - np.repeat(np.cumsum(degree) - degree, degree)
    first = len(degree) + (np.cumsum(sums) - sums)[ends]
    return np.stack([ends, np.where(rank < sums[ends], first + rank, -1), np.where(rank > 0, first + rank - 1, -1)])


def _assemble(slots: Integers, owner: Integers, own_half: Integers, alpha: int) -> Layout:
    """Return the layout, whose pattern has all pairs of latent values of a piece."""
    size, (_, width, num_pieces) = len(owner), slots.shape
    num_kinds = 1 if alpha == 1 else 3
    keys, features, signs = [], [], []
    for a, i, b, j in np.ndindex(2, width, 2, width):
        row, column = slots[a, i], slots[b, j]
        there = np.flatnonzero((row >= 0) & (column >= 0))
        kind = KINDS[alpha][i] + KINDS[alpha][j] + (num_kinds if a != b else 0)
        keys.append(row[there] * size + column[there])
        features.append((kind * num_pieces + there).astype(np.int32))
        signs.append(np.full(len(there), SIGNS[alpha][i] * SIGNS[alpha][j], dtype=np.int8))
    places, entry = np.unique(np.concatenate(keys), return_inverse=True)
    shape = (len(places), 2 * num_kinds * num_pieces)
    where = (entry.reshape(-1).astype(np.int32), np.concatenate(features))
    spread = sp.csr_array((np.concatenate(signs), where), shape).astype(np.float64)
    indptr = np.searchsorted(places, np.arange(size + 1) * size)
    fixed = np.zeros(len(places))
    fixed[np.searchsorted(places, own_half * (size + 1))] = 0.5
    return Layout(slots, owner, Pattern(indptr, (places % size).astype(np.int32)), spread, fixed)
