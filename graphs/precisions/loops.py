"""The loop of the flips of edges (`graphs.precisions.delaunay`), imported on first use to delay numba.

The half-edge 3 f + s starts at corner s of triangle f and ends at the next corner.
"""

import math

import numpy as np

from graphs.compiled import jit

_TOLERANCE = 1e-9
"""The sum of cotangents below zero at which an edge is flipped. Rounding errors are smaller and do not flip it back."""
_MAX_FLIPS = 100
"""The largest number of visits of each half-edge, which ends the loop if rounding errors are larger after all."""


@jit
def area_of(a, b, c):
    """Return the area of a triangle by a stable form of Heron's formula, positive also if rounding leaves none."""
    low, high = min(a, b, c), max(a, b, c)
    middle = a + b + c - low - high
    product = (high + (middle + low)) * (low - (high - middle)) * (low + (high - middle)) * (high + (middle - low))
    return max(math.sqrt(max(product, 0.0)) / 4, 1e-15 * high * high)


@jit
def _cotangent(h, lengths):
    """Return the cotangent of the angle opposite to a half-edge."""
    b, c = h - h % 3 + (h + 1) % 3, h - h % 3 + (h + 2) % 3
    area = area_of(lengths[h], lengths[b], lengths[c])
    return (lengths[b] ** 2 + lengths[c] ** 2 - lengths[h] ** 2) / (4 * area)


@jit
def flip(tails, twins, lengths):
    """Flip edges in place until all are Delaunay. All arrays are of half-edges."""
    count = len(tails)
    stack, is_waiting, size = np.arange(count), np.ones(count, np.bool_), count
    for _ in range(_MAX_FLIPS * count):
        if size == 0:
            break
        size -= 1
        h = stack[size]
        is_waiting[h] = False
        g = twins[h]
        if g // 3 == h // 3 or _cotangent(h, lengths) + _cotangent(g, lengths) > -_TOLERANCE:
            continue
        f, e = h - h % 3, g - g % 3
        b, c = f + (h + 1) % 3, f + (h + 2) % 3  # h: i -> j, b: j -> k, c: k -> i
        p, q = e + (g + 1) % 3, e + (g + 2) % 3  # g: j -> i, p: i -> m, q: m -> j
        angle = math.acos(_cosine(lengths[h], lengths[c], lengths[b]))
        angle += math.acos(_cosine(lengths[g], lengths[p], lengths[q]))
        x, y = lengths[c], lengths[p]
        across = math.sqrt(max((x - y) ** 2 + 4 * x * y * math.sin(angle / 2) ** 2, 0.0))
        old = np.array([p, c, q, b])
        new = np.array([f, f + 2, e, e + 1])  # the triangles i, m, k and m, j, k
        ends, sides, glued = tails[old], lengths[old], twins[old]
        m, k = tails[q], tails[c]
        for side in range(4):
            for other in range(4):
                if glued[side] == old[other]:
                    glued[side] = new[other]
                    break
        for side in range(4):
            tails[new[side]], lengths[new[side]], twins[new[side]] = ends[side], sides[side], glued[side]
            twins[glued[side]] = new[side]
        tails[f + 1], tails[e + 2] = m, k
        lengths[f + 1] = lengths[e + 2] = across
        twins[f + 1], twins[e + 2] = e + 2, f + 1
        for side in range(4):
            if not is_waiting[new[side]]:
                is_waiting[new[side]] = True
                stack[size] = new[side]
                size += 1


@jit
def _cosine(a, b, c):
    """Return the cosine of the angle between sides a and b of a triangle, opposite to side c."""
    return min(max((a * a + b * b - c * c) / (2 * a * b), -1.0), 1.0)
