"""Faces that are too thin for double precision, and the same surface without them.

Let a face have a longest side L and a height h = t L above it. Its cotangents are of order 1 / t, so that entries of
the precision of order alpha are of order t^-alpha. They cancel for smooth functions, which leaves a relative error of
variances of about eps r^(alpha - 1) t^-alpha, with r the lengthscale in units of L. A surface without the face differs
from the given one by t. Both errors are equal at t = (eps r^(alpha - 1))^(1 / (alpha + 1)). Thinner faces are left out:

- A side shorter than t L is contracted: one of its two vertices takes the place of the other.
- Otherwise one corner is near the inside of the longest side. The other faces of this side are divided at that corner
  if this makes faces thicker. At a boundary the thin face is dropped.

Both move the surface by at most t L and keep it connected. They are repeated until there is nothing to do. Small faces
of a usual shape, as in graded meshes, stay, and so do thin ones that cannot be replaced, as in a narrow strip.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LENGTHSCALE = 30.0
"""The lengthscale r in units of a longest side. Fields that are resolved well have 3 to 30."""
_LARGEST = 5e-3
"""The largest tolerance t. Usable meshes have faces as thin as 1 / 100, which alpha > 3 must not lose."""
_FLAT = 1e-10
"""The height, in units of the longest side, of faces without area, as in `graphs.builders.triangles`."""
_MAX_ROUNDS = 100
"""The largest number of rounds, against endless loops. A round ends a thin face in each neighborhood."""


class SoundFaces(NamedTuple):
    """The faces of a surface without thin ones.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.thinness import sound_faces
        >>> vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1e-9, 0, 0]])
        >>> found = sound_faces(vertices, np.array([[3, 1, 2], [0, 3, 2]]), 1e-5)
        >>> found.faces.tolist(), found.owners.tolist(), found.num_divided
        ([[0, 1, 2]], [0, 1, 2, 0], 0)
    """

    faces: Integers  # (M, 3)
    owners: Integers  # (V,) the vertex that took the place of each vertex, usually itself
    num_divided: int  # the number of sides that were divided
    num_sound: int  # the number of faces that are not thin


def tolerance_of(alpha: int) -> float:
    """Return the ratio t of height and longest side below which a face is too thin.

    Args:
        alpha: The order of the field.

    Examples:
        >>> from graphs.precisions.thinness import tolerance_of
        >>> [float(f"{tolerance_of(alpha):.0e}") for alpha in (1, 2, 3, 4)]
        [1e-08, 2e-05, 0.0007, 0.005]
    """
    eps = float(np.finfo(np.float64).eps)
    return min(_LARGEST, float((eps * _LENGTHSCALE ** (alpha - 1)) ** (1 / (alpha + 1))))


def relative_heights(
    points: Floats,  # (V, 3)
    faces: Integers,  # (F, 3)
) -> Floats:  # (F,)
    """Return the height (F,) of each face above its longest side, in units of this side, or 0 for a point.

    Args:
        points: Vertices (V, 3).
        faces: Corners (F, 3).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.thinness import relative_heights
        >>> relative_heights(np.array([[0.0, 0, 0], [2, 0, 0], [1, 0.5, 0]]), np.array([[0, 1, 2]])).tolist()
        [0.25]
    """
    return _shapes(points, faces)[1]


def sound_faces(
    points: Floats,  # (V, 3)
    faces: Integers,  # (F, 3)
    tolerance: float,
) -> SoundFaces:
    """Return the faces of a surface with short sides contracted, and long sides of thin faces divided.

    Args:
        points: Vertices (V, 3).
        faces: Corners (F, 3), without repeated faces.
        tolerance: The ratio t of height and longest side at which a face is too thin.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.thinness import sound_faces
        >>> kite = np.array([[0.0, 0, 0], [2, 0, 0], [1, 1, 0], [1, 0, 0], [1, -1, 0]])
        >>> sound_faces(kite, np.array([[0, 1, 2], [0, 3, 1], [0, 3, 4], [3, 1, 4]]), 1e-5).faces.tolist()
        [[0, 3, 4], [3, 1, 4], [0, 3, 2], [1, 3, 2]]
    """
    owners, num_divided = np.arange(len(points)), 0
    for _ in range(_MAX_ROUNDS):
        faces = faces[(faces != np.roll(faces, -1, axis=1)).all(axis=1)]
        faces = faces[np.sort(np.unique(np.sort(faces, axis=1), axis=0, return_index=True)[1])]
        lengths, heights = _shapes(points, faces)
        short = lengths <= tolerance * lengths.max(axis=1, keepdims=True)
        if short.any():
            moved = _contracted(faces, lengths, short, len(points))
            owners, faces = moved[owners], moved[faces]
        else:
            before = len(faces)
            faces, divided = _divided(points, faces, lengths, heights, tolerance)
            num_divided += divided
            if not divided and len(faces) == before:
                break
    return SoundFaces(faces, owners, num_divided, int((heights > tolerance).sum()))


def _shapes(points: Floats, faces: Integers) -> tuple[Floats, Floats]:
    """Return sides (F, 3), from corner j to j + 1, and heights (F,) in units of the longest side."""
    corners = points[faces]
    sides = np.roll(corners, -1, axis=1) - corners
    sizes = np.abs(sides).max(axis=(1, 2))  # about the longest side; squares of short ones would underflow
    sides = sides / np.where(sizes > 0, sizes, 1.0)[:, None, None]
    lengths = np.linalg.norm(sides, axis=2)
    heights = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1) / np.maximum(lengths.max(axis=1), 1.0) ** 2
    return lengths * sizes[:, None], heights


def _contracted(faces: Integers, lengths: Floats, short: NDArray[np.bool_], num_vertices: int) -> Integers:
    """Return the vertex (V,) that takes the place of each vertex, by the shortest sides first.

    A vertex that took another's place stays, and one that is gone takes no place, so that chains of short sides do not
    end in one point.
    """
    ends = np.stack([faces, np.roll(faces, -1, axis=1)], axis=2)[short]
    order = np.lexsort((ends.max(axis=1), ends.min(axis=1), lengths[short]))
    owners, stays = np.arange(num_vertices), np.zeros(num_vertices, dtype=bool)
    for first, second in np.sort(ends[order], axis=1).tolist():
        kept, gone = (second, first) if stays[second] and not stays[first] else (first, second)
        if owners[kept] == kept and owners[gone] == gone and not stays[gone]:
            owners[gone], stays[kept] = kept, True
    return owners


def _divided(
    points: Floats, faces: Integers, lengths: Floats, heights: Floats, tolerance: float
) -> tuple[Integers, int]:
    """Return faces without thin ones, whose longest side is divided in other faces, and the number of divided sides.

    The longest sides come first. A thin face waits if a neighbor was changed, or has a longer side of its own: in a fan
    of thin faces with corners on one line, turning diagonals would have no end.
    """
    thin = np.flatnonzero(heights <= tolerance)
    thin = thin[np.argsort(-lengths[thin].max(axis=1), kind="stable")]
    starts, ends = faces, np.roll(faces, -1, axis=1)
    keys = np.minimum(starts, ends) * len(points) + np.maximum(starts, ends)  # (M, 3) of sides
    longest = dict(zip(thin.tolist(), keys[thin, lengths[thin].argmax(axis=1)].tolist(), strict=True))
    wanted = np.isin(keys, list(longest.values()))
    sharing: dict[int, list[int]] = {}
    for key, face in zip(keys[wanted].tolist(), np.nonzero(wanted)[0].tolist(), strict=True):
        sharing.setdefault(key, []).append(face)
    uses = np.bincount(faces.ravel(), minlength=len(points))
    is_held = np.bincount(faces[heights > tolerance].ravel(), minlength=len(points)) > 0
    gone, added, num_divided = np.zeros(len(faces), dtype=bool), [faces[:0]], 0
    for face, key in longest.items():
        start, end = divmod(key, len(points))
        others = [other for other in sharing[key] if other != face]
        if gone[sharing[key]].any() or any(longest.get(other, key) != key for other in others):
            continue
        (apex,) = set(faces[face].tolist()) - {start, end}
        if not others or uses[apex] == 1:  # at a boundary, or a fin
            gone[face] = bool(others) or is_held[apex] or heights[face] <= _FLAT
            continue
        opposite = [corner for other in others for corner in faces[other].tolist() if corner not in (start, end)]
        new = np.array([(at, apex, corner) for corner in opposite for at in (start, end)])
        if all(other in longest for other in others) or _shapes(points, new)[1].min() > heights[face]:
            gone[[face, *others]] = True
            added.append(new)
            num_divided += 1
    return np.concatenate([faces[~gone], *added]), num_divided
