"""The entries of the inverse on the pattern of the factor, from the roots of the tree to its leaves.

With the panel L_JJ, L_RJ of a supernode and Y = L_RJ L_JJ^-1, the inverse Z = (L L^T)^-1 satisfies

    Z_RJ = -Z_RR Y,    Z_JJ = (L_JJ L_JJ^T)^-1 - Y^T Z_RJ,

and Z_RR is part of the front of the parent, whose rows include R (Takahashi, Fagan and Chin 1973; Rouet 2009). The
inverse of a front is kept as long as children need it, on a path from a root.
"""

import numpy as np

from graphs.cholesky.compiled.blas import PLAIN, TRANSPOSED, gemm, potri, symm, trsm
from graphs.cholesky.compiled.fronts import panel_of
from graphs.compiled import jit


@jit
def _invert_one(panel, inverse, y, rows):
    """Fill the first column of the inverse of a front, for a panel of one column."""
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
    """Fill the first columns of the inverse of a front."""
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
def invert(f, first, last, tree, entries, target, first_entries, out, diagonal, path, leaf, y, open_fronts, state):
    """Fill the entries of the inverse at `target`, and its diagonal, for supernodes from `last` down to `first`.

    Args:
        f: Addresses of BLAS.
        first: The first supernode.
        last: One after the last.
        tree: The supernodes, `Supernodes` of `graphs.cholesky.analysis`.
        entries: Entries of the factor.
        target: Indices of wanted entries in the panels, (e,).
        first_entries: The index of the first wanted entry of each supernode, (s + 1,).
        out: Entries of the inverse at `target`, (e,).
        diagonal: The diagonal of the inverse, (n,).
        path: Space for the inverses of fronts on a path.
        leaf: Space for the inverse of a front without children.
        y: Space for a panel.
        open_fronts: Supernodes on the path, and the starts of their inverses, (2, s + 1).
        state: The number of them, and the end of the path, (2,).
    """
    row_pointers, relative_indices, parents = tree.row_pointers, tree.relative_indices, tree.parents
    info = np.zeros(1, np.int32)
    depth, top = state[0], state[1]
    for s in range(last - 1, first - 1, -1):
        columns, rows, panel = panel_of(s, tree, entries)
        while depth > 0 and open_fronts[0, depth - 1] != parents[s]:
            depth -= 1
            top = open_fronts[1, depth]
        known = path[open_fronts[1, depth - 1] :] if columns < rows else path
        inverse = leaf
        if tree.children[s] > 0:
            inverse = path[top:]
            open_fronts[0, depth], open_fronts[1, depth] = s, top
            depth += 1
            top += rows * rows
        if columns < rows:
            height = row_pointers[parents[s] + 1] - row_pointers[parents[s]]
            parent_rows = relative_indices[row_pointers[s] : row_pointers[s + 1]]
            for j in range(columns, rows):
                column = known[np.int64(parent_rows[j]) * height :]
                for i in range(j, rows):
                    inverse[j * rows + i] = column[parent_rows[i]]
        if columns == 1:
            _invert_one(panel, inverse, y, rows)
        else:
            _invert(f, panel, inverse, y, columns, rows, info)
        for j in range(columns):
            diagonal[tree.starts[s] + j] = inverse[j * (rows + 1)]
        for q in range(first_entries[s], first_entries[s + 1]):
            out[q] = inverse[target[q] - tree.panel_pointers[s]]
    state[0], state[1] = depth, top
