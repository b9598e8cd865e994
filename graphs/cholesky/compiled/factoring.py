"""The multifrontal factorization: the panels of the factor, supernode by supernode.

A front consists of the panel of a supernode and the update matrix of the rows below its columns. The update matrices of
the children are added to both. Then the panel is factored, L_JJ L_JJ^T and L_RJ = A_RJ L_JJ^-T, and its update matrix U
- L_RJ L_RJ^T stays on a stack until the parent takes it.
"""

import numpy as np

from graphs.cholesky.compiled.blas import TRANSPOSED, potrf, syrk, trsm
from graphs.cholesky.compiled.fronts import panel_of
from graphs.compiled import jit


@jit
def _assemble(panel, update, added, relative_indices, columns, rows, width):
    """Add the lower triangle of a child's update (width, width) to the parent.

    `relative_indices` has the indices of the child's rows among the `rows` of the front, the first `columns` of which
    are in the panel.
    """
    below = rows - columns
    for j in range(width):
        to = np.int64(relative_indices[j])
        if to < columns:
            for i in range(j, width):
                panel[to * rows + relative_indices[i]] += added[j * width + i]
        else:
            for i in range(j, width):
                update[(to - columns) * below + relative_indices[i] - columns] += added[j * width + i]


@jit
def _eliminate_one(panel, update, rows):
    """Factor a panel of one column; return whether its pivot is positive."""
    if not panel[0] > 0:
        return False
    root = np.sqrt(panel[0])
    panel[0] = root
    for i in range(1, rows):
        panel[i] /= root
    below = rows - 1
    for j in range(below):
        value = panel[1 + j]
        for i in range(j, below):
            update[j * below + i] -= value * panel[1 + i]
    return True


@jit
def _eliminate(f, panel, update, columns, rows, info):
    """Factor a panel; return 0, or the number of the first non-positive pivot."""
    below = rows - columns
    wrong = potrf(f, columns, panel, rows, info)
    if wrong == 0 and below > 0:
        trsm(f, TRANSPOSED, below, columns, panel, rows, panel[columns:], rows)
        syrk(f, below, columns, -1.0, panel[columns:], rows, 1.0, update, below)
    return wrong


@jit
def factorize(f, first, last, tree, entries, stack, update, waiting, state):
    """Factor the supernodes from `first` to `last`; panels overwrite `entries`.

    Args:
        f: Addresses of BLAS.
        first: The first supernode.
        last: One after the last.
        tree: The supernodes, `Supernodes` of `graphs.cholesky.analysis`.
        entries: Entries of all panels, of the matrix before and of the factor after.
        stack: Space for pending update matrices, one after another.
        update: Space for one update matrix.
        waiting: Supernodes with pending update matrices, and the starts of these, (2, s + 1).
        state: The number of pending ones, and the end of the stack, (2,).

    Returns:
        -1, or the column whose pivot is not positive.
    """
    starts, row_pointers, relative_indices = tree.starts, tree.row_pointers, tree.relative_indices
    info = np.zeros(1, np.int32)
    depth, top = state[0], state[1]
    for s in range(first, last):
        columns, rows, panel = panel_of(s, tree, entries)
        below = rows - columns
        for j in range(below):
            update[j * (below + 1) : (j + 1) * below] = 0.0
        for _ in range(tree.children[s]):
            depth -= 1
            c, top = waiting[0, depth], waiting[1, depth]
            num_columns = np.int64(starts[c + 1] - starts[c])
            width = row_pointers[c + 1] - row_pointers[c] - num_columns
            _assemble(
                panel, update, stack[top:], relative_indices[row_pointers[c] + num_columns :], columns, rows, width
            )
        if columns == 1:
            wrong = 0 if _eliminate_one(panel, update, rows) else 1
        else:
            wrong = _eliminate(f, panel, update, columns, rows, info)
        if wrong != 0:
            return starts[s] + wrong - 1
        if below > 0:
            waiting[0, depth], waiting[1, depth] = s, top
            for j in range(below):
                stack[top + j * (below + 1) : top + (j + 1) * below] = update[j * (below + 1) : (j + 1) * below]
            depth += 1
            top += below * below
    state[0], state[1] = depth, top
    return -1


@jit
def sum_of_logarithms(tree, entries):
    """Return the sum of the logarithms of the factor's diagonal.

    Args:
        tree: The supernodes, `Supernodes` of `graphs.cholesky.analysis`.
        entries: Entries of the factor.
    """
    total = 0.0
    for s in range(len(tree.parents)):
        columns, rows, panel = panel_of(s, tree, entries)
        for j in range(columns):
            total += np.log(panel[j * (rows + 1)])
    return total
