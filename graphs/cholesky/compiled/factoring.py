"""The multifrontal factorisation: the panels of the factor, supernode by supernode.

A front is the panel of a supernode beside its update matrix, of the rows below its own columns. What the children's
update matrices add goes into both; then the panel is factored, L_JJ L_JJ^T and L_RJ = A_RJ L_JJ^-T, and its update
matrix U - L_RJ L_RJ^T waits on a stack until the parent takes it.
"""

import numpy as np

from graphs.cholesky.compiled.blas import TRANSPOSED, potrf, syrk, trsm
from graphs.compiled import jit


@jit
def _assemble(panel, update, added, there, columns, rows, width):
    """Add the lower triangle of a child's update matrix (width, width) to the front of its parent.

    `there` says where the child's rows are among the `rows` of the front, the first `columns` of which are the panel's.
    """
    below = rows - columns
    for j in range(width):
        to = np.int64(there[j])
        if to < columns:
            for i in range(j, width):
                panel[to * rows + there[i]] += added[j * width + i]
        else:
            for i in range(j, width):
                update[(to - columns) * below + there[i] - columns] += added[j * width + i]


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
    """Factor a panel; return 0, or the number of the column from 1 on whose pivot is not positive."""
    below = rows - columns
    wrong = potrf(f, columns, panel, rows, info)
    if wrong == 0 and below > 0:
        trsm(f, TRANSPOSED, below, columns, panel, rows, panel[columns:], rows)
        syrk(f, below, columns, -1.0, panel[columns:], rows, 1.0, update, below)
    return wrong


@jit
def factorize(f, first, last, starts, tops, there, children, panels, entries, stack, update, waiting, state):
    """Factor the supernodes from `first` to `last`, in place of the `entries` of the panels.

    Args:
        f: Addresses of BLAS.
        first: A supernode.
        last: One after the last.
        starts: Columns where supernodes begin, (s + 1,).
        tops: Where the rows of panels begin, (s + 1,).
        there: Of each row of a panel below its own columns, where it is in the parent's panel.
        children: How many each supernode has, (s,).
        panels: Where panels begin, (s + 1,).
        entries: Of all panels: those of the matrix before, of the factor after.
        stack: Update matrices that wait, one after another.
        update: Room for one.
        waiting: Supernodes whose update matrices wait, and where these begin, (2, s + 1).
        state: How many wait, and where the stack ends, (2,).

    Returns:
        -1, or the column whose pivot is not positive.
    """
    info = np.zeros(1, np.int32)
    depth, top = state[0], state[1]
    for s in range(first, last):
        columns, rows = np.int64(starts[s + 1] - starts[s]), tops[s + 1] - tops[s]
        below = rows - columns
        panel = entries[panels[s] : panels[s + 1]]
        for j in range(below):
            update[j * (below + 1) : (j + 1) * below] = 0.0
        for _ in range(children[s]):
            depth -= 1
            c, top = waiting[0, depth], waiting[1, depth]
            own = np.int64(starts[c + 1] - starts[c])
            width = tops[c + 1] - tops[c] - own
            _assemble(panel, update, stack[top:], there[tops[c] + own :], columns, rows, width)
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
def sum_of_logarithms(starts, tops, panels, entries):
    """Return the sum of the logarithms of the factor's diagonal."""
    total = 0.0
    for s in range(len(starts) - 1):
        rows = tops[s + 1] - tops[s]
        for j in range(starts[s + 1] - starts[s]):
            total += np.log(entries[panels[s] + j * (rows + 1)])
    return total
