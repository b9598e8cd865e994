"""The entries of the inverse on the pattern of the factor, from the roots of the tree to its leaves.

With the panel L_JJ, L_RJ of a supernode and Y = L_RJ L_JJ^-1, the inverse Z = (L L^T)^-1 has

    Z_RJ = -Z_RR Y,    Z_JJ = (L_JJ L_JJ^T)^-1 - Y^T Z_RJ,

and Z_RR is part of what the parent knows, whose rows have all of R (Takahashi, Fagan and Chin 1973; Rouet 2009). The
inverse of a front is kept as long as children need it, on a path from a root.
"""

import numpy as np

from graphs.cholesky.compiled.blas import PLAIN, TRANSPOSED, gemm, potri, symm, trsm
from graphs.compiled import jit


@jit
def _invert_one(panel, inverse, y, rows):
    """Fill the first column of a front's inverse, for a panel of one column."""
    below, pivot = rows - 1, panel[0]
    for i in range(below):
        y[i] = panel[1 + i] / pivot
        inverse[1 + i] = 0.0
    for j in range(below):
        column = inverse[(1 + j) * rows + 1 :]
        value, total = y[j], column[j] * y[j]
        for i in range(j + 1, below):
            inverse[1 + i] -= column[i] * value
            total += column[i] * y[i]
        inverse[1 + j] -= total
    total = 1.0 / (pivot * pivot)
    for i in range(below):
        total -= y[i] * inverse[1 + i]
    inverse[0] = total


@jit
def _invert(f, panel, inverse, y, columns, rows, info):
    """Fill the first columns of a front's inverse."""
    below = rows - columns
    for j in range(columns):
        for i in range(j, columns):
            inverse[j * rows + i] = panel[j * rows + i]
        for i in range(below):
            y[j * below + i] = panel[j * rows + columns + i]
    potri(f, columns, inverse, rows, info)
    if below == 0:
        return
    trsm(f, PLAIN, below, columns, panel, rows, y, below)
    symm(f, below, columns, -1.0, inverse[columns * rows + columns :], rows, y, below, 0.0, inverse[columns:], rows)
    for j in range(columns):  # gemm fills both triangles
        for i in range(j):
            inverse[j * rows + i] = inverse[i * rows + j]
    gemm(f, TRANSPOSED, PLAIN, columns, columns, below, -1.0, y, below, inverse[columns:], rows, 1.0, inverse, rows)


@jit
def invert(
    f,
    first,
    last,
    starts,
    tops,
    there,
    above,
    children,
    panels,
    entries,
    target,
    begins,
    out,
    diagonal,
    path,
    leaf,
    y,
    open_fronts,
    state,
):
    """Fill the entries of the inverse at `target`, and its diagonal, for supernodes from `last` down to `first`.

    Args:
        f: Addresses of BLAS.
        first: A supernode.
        last: One after the last.
        starts: Columns where supernodes begin, (s + 1,).
        tops: Where the rows of panels begin, (s + 1,).
        there: Of each row of a panel below its own columns, where it is in the parent's panel.
        above: The parents of supernodes, (s,).
        children: How many each supernode has, (s,).
        panels: Where panels begin, (s + 1,).
        entries: Of the factor.
        target: Where wanted entries are in the panels, (e,), ...
        begins: ... which begin here for each supernode, (s + 1,).
        out: Of the inverse at these, (e,).
        diagonal: Of the inverse, (n,).
        path: Room for the inverses of fronts on a path.
        leaf: Room for that of a front without children.
        y: Room for a panel.
        open_fronts: Supernodes on the path, and where their inverses begin, (2, s + 1).
        state: How many there are, and where the path ends, (2,).
    """
    info = np.zeros(1, np.int32)
    depth, top = state[0], state[1]
    for s in range(last - 1, first - 1, -1):
        columns, rows = np.int64(starts[s + 1] - starts[s]), tops[s + 1] - tops[s]
        while depth > 0 and open_fronts[0, depth - 1] != above[s]:
            depth -= 1
            top = open_fronts[1, depth]
        known = path[open_fronts[1, depth - 1] :] if columns < rows else path
        inverse = leaf
        if children[s] > 0:
            inverse = path[top:]
            open_fronts[0, depth], open_fronts[1, depth] = s, top
            depth += 1
            top += rows * rows
        if columns < rows:
            height = tops[above[s] + 1] - tops[above[s]]
            places = there[tops[s] : tops[s + 1]]
            for j in range(columns, rows):
                column = known[np.int64(places[j]) * height :]
                for i in range(j, rows):
                    inverse[j * rows + i] = column[places[i]]
        panel = entries[panels[s] : panels[s + 1]]
        if columns == 1:
            _invert_one(panel, inverse, y, rows)
        else:
            _invert(f, panel, inverse, y, columns, rows, info)
        for j in range(columns):
            diagonal[starts[s] + j] = inverse[j * (rows + 1)]
        for q in range(begins[s], begins[s + 1]):
            out[q] = inverse[target[q] - panels[s]]
    state[0], state[1] = depth, top
