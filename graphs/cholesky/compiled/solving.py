"""Solves with a factor of panels, in place, for right-hand sides x (n, k) by rows.

A matrix (columns, k) by rows is (k, columns) by columns, so L X = B is X^T <- B^T L^-T for BLAS.
"""

import numpy as np

from graphs.cholesky.compiled.blas import PLAIN, TRANSPOSED, gemm, trsm
from graphs.cholesky.compiled.fronts import panel_of
from graphs.compiled import jit


@jit
def _forward_one(panel, below, x, start, columns, rows):
    for j in range(columns):
        value = x[start + j, 0] / panel[j * (rows + 1)]
        x[start + j, 0] = value
        for i in range(j + 1, columns):
            x[start + i, 0] -= value * panel[j * rows + i]
        for i in range(columns, rows):
            x[below[i - columns], 0] -= value * panel[j * rows + i]


@jit
def _backward_one(panel, below, x, start, columns, rows):
    for j in range(columns - 1, -1, -1):
        value = x[start + j, 0]
        for i in range(j + 1, columns):
            value -= x[start + i, 0] * panel[j * rows + i]
        for i in range(columns, rows):
            value -= x[below[i - columns], 0] * panel[j * rows + i]
        x[start + j, 0] = value / panel[j * (rows + 1)]


@jit
def _supernode(s, tree, entries):
    """Return the first column, the numbers of columns and rows, the panel, and the rows below of a supernode."""
    columns, rows, panel = panel_of(s, tree, entries)
    below = tree.rows[tree.row_pointers[s] + columns : tree.row_pointers[s + 1]]
    return np.int64(tree.starts[s]), columns, rows, panel, below


@jit
def forward(f, tree, entries, x, workspace):
    """Overwrite x (n, k) with L^-1 x.

    Args:
        f: Addresses of BLAS.
        tree: The supernodes, `Supernodes` of `graphs.cholesky.analysis`.
        entries: Entries of the factor.
        x: Right-hand sides (n, k) by rows, in the elimination order.
        workspace: Space for the rows of the highest panel.
    """
    k = x.shape[1]
    flat = x.reshape(-1)
    for s in range(len(tree.parents)):
        start, columns, rows, panel, below = _supernode(s, tree, entries)
        block = flat[start * k :]
        if k == 1:
            _forward_one(panel, below, x, start, columns, rows)
            continue
        trsm(f, TRANSPOSED, k, columns, panel, rows, block, k)
        if len(below) == 0:
            continue
        gemm(f, PLAIN, TRANSPOSED, k, len(below), columns, 1.0, block, k, panel[columns:], rows, 0.0, workspace, k)
        for i in range(len(below)):
            for c in range(k):
                x[below[i], c] -= workspace[i * k + c]


@jit
def backward(f, tree, entries, x, workspace):
    """Overwrite x (n, k) with L^-T x; arguments as for `forward`."""
    k = x.shape[1]
    flat = x.reshape(-1)
    for s in range(len(tree.parents) - 1, -1, -1):
        start, columns, rows, panel, below = _supernode(s, tree, entries)
        block = flat[start * k :]
        if k == 1:
            _backward_one(panel, below, x, start, columns, rows)
            continue
        for i in range(len(below)):
            for c in range(k):
                workspace[i * k + c] = x[below[i], c]
        if len(below) > 0:
            gemm(f, PLAIN, PLAIN, k, columns, len(below), -1.0, workspace, k, panel[columns:], rows, 1.0, block, k)
        trsm(f, PLAIN, k, columns, panel, rows, block, k)
