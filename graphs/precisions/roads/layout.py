"""The latent values of a field on road segments, and the entries of the precision from each segment.

The first V latent values are u at the vertices. For alpha = 2 each end of a segment also has u', into the segment, and
by Kirchhoff's condition these sum to 0 at a vertex with d ends. The remaining d - 1 dimensions have the partial sums
S_1, ..., S_(d - 1) over the ends, in any order, as coordinates: the k-th derivative is S_k - S_(k - 1), with S_0 = S_d
= 0. Each derivative then involves at most two latent values, however many roads meet, and the precision stays sparse.
Eliminating one derivative would couple all others. Derivatives are in units of kappa, as in `line`, so the condition
does not depend on kappa. A free end, d = 1, has no latent derivative: u' = 0. An end that continues to infinity keeps
its own, S_1.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.precisions.base import Pattern
from graphs.precisions.roads.segments import FieldSegments

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SIGNS = {1: (1,), 2: (1, 1, -1)}
"""The signs of the slots of an end: u, and for alpha = 2 S_k and S_(k - 1), whose difference is the derivative."""
KINDS = {1: (0,), 2: (0, 1, 1)}
"""The kind of each slot: 0 for u, 1 for its derivative."""
BOUNDARIES = ("neumann", "stationary", "open")
"""The conditions at free ends; see `RoadField`."""


class Layout(NamedTuple):
    """N latent values, their pattern, and the map from blocks of segments to entries.

    Examples:
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 2)]], metric="euclidean")
        >>> graphs.RoadField(roads, alpha=2).layout.owner.tolist()  # u at 3 vertices, a derivative at the middle one
        [0, 1, 2, 1]
    """

    slots: Integers  # (2, c, P) the latent values at the two ends of each segment, -1 for none
    owner: Integers  # (N,) the vertex of each latent value
    pattern: Pattern
    assembly: sp.csr_array  # (nnz, 2 k P) from O and C of the segments (`line.blocks`) to entries of the pattern
    fixed: Floats  # (nnz,) entries that do not depend on the lengthscale


def lay_out(
    segments: FieldSegments,
    alpha: int,
    boundary: str,
) -> Layout:
    """Return the layout of a field.

    Args:
        segments: The segments.
        alpha: 1 or 2.
        boundary: One of `BOUNDARIES`. If free ends continue to infinity, the missing side adds half of the precision I
            of (u, u' / kappa) at a point of the line. See `line`.

    Examples:
        >>> import graphs
        >>> from graphs.precisions.roads.layout import lay_out
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 2)]], metric="euclidean")
        >>> len(lay_out(graphs.RoadField(roads).segments, 1, "neumann").owner)
        3
    """
    num_vertices, num_segments = len(segments.coordinates), len(segments.source)
    ends = np.concatenate([segments.source, segments.target])
    degree = np.bincount(ends, minlength=num_vertices)
    free = (boundary != "neumann") & (degree == 1)
    sums = np.where(free, 1, degree - 1) if alpha == 2 else np.zeros(num_vertices, dtype=np.int64)
    slots = _slots(ends, degree, sums, alpha).reshape(-1, 2, num_segments).swapaxes(0, 1)
    owner = np.concatenate([np.arange(num_vertices), np.repeat(np.arange(num_vertices), sums)])
    own_half = np.flatnonzero(free[owner]) if boundary == "stationary" else np.zeros(0, dtype=np.int64)
    return _assemble(slots, owner, own_half, alpha)


def _slots(ends: Integers, degree: Integers, sums: Integers, alpha: int) -> Integers:
    """Return latent values (c, 2 P) at the ends of segments: u, S_k and S_(k - 1)."""
    if alpha == 1:
        return ends[None]
    order = np.argsort(ends, kind="stable")
    rank = np.empty(len(ends), dtype=np.int64)
    rank[order] = np.arange(len(ends)) - np.repeat(np.cumsum(degree) - degree, degree)
    first = len(degree) + (np.cumsum(sums) - sums)[ends]
    return np.stack([ends, np.where(rank < sums[ends], first + rank, -1), np.where(rank > 0, first + rank - 1, -1)])


def _assemble(slots: Integers, owner: Integers, own_half: Integers, alpha: int) -> Layout:
    """Return the layout, whose pattern has all pairs of latent values of each segment."""
    size, (_, width, num_segments) = len(owner), slots.shape
    num_kinds = 1 if alpha == 1 else 3
    keys, features, signs = [], [], []
    for a, i, b, j in np.ndindex(2, width, 2, width):
        row, column = slots[a, i], slots[b, j]
        present = np.flatnonzero((row >= 0) & (column >= 0))
        kind = KINDS[alpha][i] + KINDS[alpha][j] + (num_kinds if a != b else 0)
        keys.append(row[present] * size + column[present])
        features.append((kind * num_segments + present).astype(np.int32))
        signs.append(np.full(len(present), SIGNS[alpha][i] * SIGNS[alpha][j], dtype=np.int8))
    entry_keys, entry = np.unique(np.concatenate(keys), return_inverse=True)
    shape = (len(entry_keys), 2 * num_kinds * num_segments)
    positions = (entry.reshape(-1).astype(np.int32), np.concatenate(features))
    assembly = sp.csr_array((np.concatenate(signs), positions), shape).astype(np.float64)
    indptr = np.searchsorted(entry_keys, np.arange(size + 1) * size)
    fixed = np.zeros(len(entry_keys))
    fixed[np.searchsorted(entry_keys, own_half * (size + 1))] = 0.5
    return Layout(slots, owner, Pattern(indptr, (entry_keys % size).astype(np.int32)), assembly, fixed)
