"""The loops of the sparse Cholesky factorization, imported on first use to delay numba."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from graphs.compiled import jit

# --- The elimination tree of a symmetric pattern, and the column counts of the factor --------------------------------
#
# The pattern is CSR with both triangles, and columns are eliminated in their order. The parent of j is the first row
# below the diagonal of column j of the factor, -1 for roots (Liu 1990, The role of elimination trees in sparse
# factorization).


@jit
def peeled(indptr, indices):
    """Return the nodes (k,) that have degree <= 1 once previous ones are removed.

    Args:
        indptr: Pointers (n + 1,) of the pattern, without its diagonal.
        indices: Indices of the pattern.
    """
    n = len(indptr) - 1
    degrees, out, count = indptr[1:] - indptr[:-1], np.empty(n, np.int32), 0
    for v in range(n):
        if degrees[v] <= 1:
            out[count] = v
            count += 1
    done = 0
    while done < count:
        v = out[done]
        done += 1
        for k in range(indptr[v], indptr[v + 1]):
            u = indices[k]
            degrees[u] -= 1
            if degrees[u] == 1:
                out[count] = u
                count += 1
    return out[:count]


@jit
def elimination_tree(indptr, indices):
    """Return the parent (n,) of each column in the elimination tree, -1 for roots.

    Args:
        indptr: Pointers (n + 1,) of the pattern.
        indices: Indices (nnz,) of the pattern.
    """
    n = len(indptr) - 1
    parent = np.full(n, -1, np.int32)
    ancestor = np.full(n, -1, np.int32)  # paths to the roots so far, shortened as they are walked
    for j in range(n):
        for k in range(indptr[j], indptr[j + 1]):
            i = indices[k]
            while i != -1 and i < j:
                following = ancestor[i]
                ancestor[i] = j
                if following == -1:
                    parent[i] = j
                i = following
    return parent


@jit
def postorder(parent):
    """Return the columns (n,) in an order in which subtrees are ranges.

    Args:
        parent: The elimination tree (n,), -1 for roots.
    """
    n = len(parent)
    child = np.full(n + 1, -1, np.int32)  # the first remaining child; n is the parent of roots
    sibling = np.full(n, -1, np.int32)
    for j in range(n - 1, -1, -1):
        parent_of_j = parent[j] if parent[j] >= 0 else n
        sibling[j] = child[parent_of_j]
        child[parent_of_j] = j
    out, stack = np.empty(n, np.int32), np.empty(n + 1, np.int32)
    stack[0], top, count = n, 1, 0
    while top:
        j = stack[top - 1]
        below = child[j]
        if below != -1:
            child[j] = sibling[below]
            stack[top] = below
            top += 1
            continue
        top -= 1
        if j < n:
            out[count] = j
            count += 1
    return out


@jit
def _first_descendants(parent, counts):
    """Return the first column of each subtree, (n,); set counts to 1 at leaves."""
    n = len(parent)
    first = np.full(n, -1, np.int32)
    for j in range(n):
        counts[j] = 1 if first[j] == -1 else 0
        i = j
        while i != -1 and first[i] == -1:
            first[i] = j
            i = parent[i]
    return first


@jit
def column_counts(indptr, indices, parent):
    """Return the number (n,) of entries of the factor's columns in postorder.

    The diagonal is included. Source: Gilbert, Ng and Peyton (1994), An efficient algorithm to compute row and column
    counts for sparse Cholesky factorization. The row i of the factor is the subtree of i with the leaves j of its
    entries. Each leaf adds one to its column and subtracts one from the least common ancestor with the previous leaf.
    Sums over subtrees are the counts.

    Args:
        indptr: Pointers (n + 1,) of the pattern in postorder.
        indices: Indices (nnz,) of the pattern in postorder.
        parent: The elimination tree (n,) in postorder, -1 for roots.
    """
    n = len(parent)
    counts = np.zeros(n, np.int64)
    first = _first_descendants(parent, counts)
    ancestor = np.arange(n).astype(np.int32)
    latest = np.full(n, -1, np.int32)  # of row i: the first descendant of its last leaf, and that leaf
    leaf = np.full(n, -1, np.int32)
    for j in range(n):
        parent_of_j = parent[j]
        if parent_of_j != -1:
            counts[parent_of_j] -= 1
        for k in range(indptr[j], indptr[j + 1]):
            i = indices[k]
            if i <= j or first[j] <= latest[i]:
                continue
            latest[i] = first[j]
            before = leaf[i]
            leaf[i] = j
            counts[j] += 1
            if before == -1:
                continue
            common = before
            while common != ancestor[common]:
                common = ancestor[common]
            while before != common:
                following = ancestor[before]
                ancestor[before] = common
                before = following
            counts[common] -= 1
        if parent_of_j != -1:
            ancestor[j] = parent_of_j
    for j in range(n):
        if parent[j] != -1:
            counts[parent[j]] += counts[j]
    return counts


# --- Supernodes and their fronts: ranges of columns whose factor is one dense panel ----------------------------------
#
# The panel of a supernode holds its rows, its own columns first, ascending. It is stored by columns. Its other rows are
# among the rows of the panel of its parent (Duff and Reid 1983; Liu 1992). Small supernodes are merged with their
# parents if that adds few zeros (Ashcraft and Grimes 1989), since a few zeros are cheaper than small fronts.


MERGE_WIDTHS = (4, 16, 48)
"""The numbers of columns up to which supernodes always merge, or merge below the first or second fraction of zeros."""
MAX_ZERO_FRACTIONS = (0.8, 0.1, 0.05)
"""The fractions of zeros below which supernodes merge. The last one is for more columns than the last width."""


@jit
def _fundamental(parent, counts):
    """Return the first columns of supernodes without zeros, (s + 1,)."""
    n = len(parent)
    children = np.zeros(n, np.int32)
    for j in range(n):
        if parent[j] >= 0:
            children[parent[j]] += 1
    starts, count = np.empty(n + 1, np.int32), 0
    for j in range(n):
        follows = j > 0 and parent[j - 1] == j and counts[j - 1] == counts[j] + 1 and children[j] <= 1
        if not follows:
            starts[count] = j
            count += 1
    starts[count] = n
    return starts[: count + 1]


@jit
def _should_merge(columns, zeros, entries):
    always, narrow, wide = MERGE_WIDTHS
    allowed = MAX_ZERO_FRACTIONS[0 if columns <= narrow else (1 if columns <= wide else 2)]
    return columns <= always or zeros / entries < allowed


@jit
def supernodes(parent, counts):
    """Return the first columns of supernodes (s + 1,), and the heights of panels (s,).

    Args:
        parent: The elimination tree (n,) in postorder, -1 for roots.
        counts: The numbers (n,) of entries of the columns of the factor.
    """
    starts = _fundamental(parent, counts)
    count = len(starts) - 1
    first_columns, width, height = np.empty(count, np.int32), np.empty(count, np.int64), np.empty(count, np.int64)
    zeros, top = np.empty(count), 0
    for s in range(count):
        first, columns, rows, empty = starts[s], np.int64(starts[s + 1] - starts[s]), counts[starts[s]], 0.0
        while top > 0:  # merge with the ranges before it that are its children
            last = first_columns[top - 1] + width[top - 1] - 1
            if parent[last] < first or parent[last] >= starts[s + 1]:
                break
            together, taller = width[top - 1] + columns, width[top - 1] + rows
            more = zeros[top - 1] + empty + width[top - 1] * (taller - height[top - 1])
            if not _should_merge(together, more, together * taller - together * (together - 1) / 2):
                break
            top -= 1
            first, columns, rows, empty = first_columns[top], together, taller, more
        first_columns[top], width[top], height[top], zeros[top] = first, columns, rows, empty
        top += 1
    out = np.empty(top + 1, np.int32)
    out[:top] = first_columns[:top]
    out[top] = len(parent)
    return out, height[:top].copy()


@jit
def supernode_tree(parent, starts):
    """Return the parents (s,) and the numbers of children (s,) of supernodes.

    Args:
        parent: The elimination tree (n,) in postorder, -1 for roots.
        starts: The first column of each supernode, (s + 1,).
    """
    count = len(starts) - 1
    of = np.empty(len(parent), np.int32)
    for s in range(count):
        of[starts[s] : starts[s + 1]] = s
    parents, children = np.full(count, -1, np.int32), np.zeros(count, np.int32)
    for s in range(count):
        p = parent[starts[s + 1] - 1]
        if p >= 0:
            parents[s] = of[p]
            children[of[p]] += 1
    return parents, children


@jit
def panel_rows(indptr, indices, starts, parents, row_pointers):
    """Return the rows of each panel, and their indices in the parent's panel.

    Args:
        indptr: Pointers (n + 1,) of the permuted pattern.
        indices: Indices (nnz,) of the permuted pattern.
        starts: The first column of each supernode, (s + 1,).
        parents: The parents of supernodes (s,), -1 for roots.
        row_pointers: The index of the first row of each panel, (s + 1,).
    """
    count, n = len(starts) - 1, len(indptr) - 1
    rows, relative_indices = np.empty(row_pointers[count], np.int32), np.zeros(row_pointers[count], np.int32)
    mark, local_row = np.full(n, -1, np.int32), np.empty(n, np.int32)
    child, sibling = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    for s in range(count):
        first, last = starts[s], starts[s + 1]
        k = row_pointers[s]
        for j in range(first, last):
            rows[k] = j
            k += 1
        first_update = k
        for j in range(first, last):
            for q in range(indptr[j], indptr[j + 1]):
                i = indices[q]
                if i >= last and mark[i] != s:
                    mark[i] = s
                    rows[k] = i
                    k += 1
        c = child[s]
        while c != -1:
            for q in range(row_pointers[c] + starts[c + 1] - starts[c], row_pointers[c + 1]):
                i = rows[q]
                if i >= last and mark[i] != s:
                    mark[i] = s
                    rows[k] = i
                    k += 1
            c = sibling[c]
        rows[first_update:k].sort()
        for q in range(row_pointers[s], k):
            local_row[rows[q]] = q - row_pointers[s]
        c = child[s]
        while c != -1:
            for q in range(row_pointers[c] + starts[c + 1] - starts[c], row_pointers[c + 1]):
                relative_indices[q] = local_row[rows[q]]
            c = sibling[c]
        if parents[s] >= 0:
            sibling[s] = child[parents[s]]
            child[parents[s]] = s
    return rows, relative_indices


@jit
def panel_of(s, tree, entries):
    """Return the numbers of columns and rows, and the panel of a supernode.

    Args:
        s: The supernode.
        tree: The supernodes, `Supernodes` of `graphs.cholesky.factor`.
        entries: Entries of all panels.
    """
    columns = np.int64(tree.starts[s + 1] - tree.starts[s])
    panel = entries[tree.panel_pointers[s] : tree.panel_pointers[s + 1]]
    return columns, tree.row_pointers[s + 1] - tree.row_pointers[s], panel


@jit
def scatter_indices(indptr, indices, order, inverse_order, tree):
    """Return the indices of factored entries in the matrix and in the panels.

    Args:
        indptr: Pointers (n + 1,) of the pattern.
        indices: Indices (nnz,) of the pattern.
        order: The elimination order (n,).
        inverse_order: The inverse (n,) of the order.
        tree: The supernodes, `Supernodes` of `graphs.cholesky.factor`.

    Returns:
        Indices (e,) in the matrix, indices (e,) in the panels, and the first entry of each supernode, (s + 1,). Entries
        are in the order of the supernodes.
    """
    starts, row_pointers, rows, panel_pointers = tree.starts, tree.row_pointers, tree.rows, tree.panel_pointers
    count, n = len(starts) - 1, len(order)
    total = 0
    for i in range(n):
        for q in range(indptr[i], indptr[i + 1]):
            total += inverse_order[indices[q]] >= inverse_order[i]
    source, target = np.empty(total, np.int64), np.empty(total, np.int64)
    first_entries, local_row, k = np.zeros(count + 1, np.int64), np.empty(n, np.int64), 0
    for s in range(count):
        height = row_pointers[s + 1] - row_pointers[s]
        for q in range(row_pointers[s], row_pointers[s + 1]):
            local_row[rows[q]] = q - row_pointers[s]
        for j in range(starts[s], starts[s + 1]):
            for q in range(indptr[order[j]], indptr[order[j] + 1]):
                i = inverse_order[indices[q]]
                if i >= j:
                    source[k] = q
                    target[k] = panel_pointers[s] + (j - starts[s]) * height + local_row[i]
                    k += 1
        first_entries[s + 1] = k
    return source, target, first_entries


@jit
def peaks(tree):
    """Return the peak numbers of entries: stack, one update, path of fronts, one front.

    Args:
        tree: The supernodes, `Supernodes` of `graphs.cholesky.factor`.
    """
    starts, row_pointers, parents = tree.starts, tree.row_pointers, tree.parents
    count = len(parents)
    waiting, below = 0, np.zeros(count, np.int64)
    stack = update = path = front = 0
    for s in range(count):
        rows = row_pointers[s + 1] - row_pointers[s]
        size = (rows - (starts[s + 1] - starts[s])) ** 2
        update, front = max(update, size), max(front, rows * rows)
        waiting += size - below[s]
        stack = max(stack, waiting + below[s])
        if parents[s] >= 0:
            below[parents[s]] += size
    depth = np.zeros(count, np.int64)
    for s in range(count - 1, -1, -1):
        rows = row_pointers[s + 1] - row_pointers[s]
        depth[s] = (depth[parents[s]] if parents[s] >= 0 else 0) + (rows * rows if tree.children[s] else 0)
        path = max(path, depth[s])
    return stack, update, path, front


# --- BLAS and LAPACK of SciPy in compiled loops ----------------------------------------------------------------------
#
# SciPy exports the addresses of its routines (`scipy.linalg.cython_blas`). They are passed to the loops as integers in
# an array, `ADDRESSES`, since function pointers could not be cached on disk. Matrices are column-major, given as
# one-dimensional arrays from their first entry on, with the distance of columns ("ld").


_NAMES = ("blas.dgemm", "blas.dsyrk", "blas.dtrsm", "blas.dsymm", "lapack.dpotrf", "lapack.dpotri")
_GEMM, _SYRK, _TRSM, _SYMM, _POTRF, _POTRI = range(len(_NAMES))
ADDRESSES = np.array(
    [
        get_cython_function_address("scipy.linalg.cython_" + library, name)
        for library, name in (n.split(".") for n in _NAMES)
    ],
    dtype=np.int64,
)
LOWER, PLAIN, TRANSPOSED, LEFT, RIGHT = (np.uint8(ord(letter)) for letter in "LNTLR")
_NOT_UNIT = PLAIN


@intrinsic
def _call(typing_context, address, arguments):
    """Call the C function at an address; numbers are passed by reference, addresses (uintp) directly."""

    def generate(context, builder, signature, values):
        byte = ir.IntType(8).as_pointer()
        passed = []
        for kind, value in zip(signature.args[1], cgutils.unpack_tuple(builder, values[1]), strict=True):
            if kind == types.uintp:
                passed.append(builder.inttoptr(value, byte))
            else:
                passed.append(builder.bitcast(cgutils.alloca_once_value(builder, value), byte))
        kind = ir.FunctionType(ir.VoidType(), [byte] * len(passed))
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), generate


@jit
def gemm(f, a_is, b_is, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """Overwrite C (m, n) with alpha op(A) op(B) + beta C, op(A) (m, k); `a_is`, `b_is` are PLAIN or TRANSPOSED."""
    sizes, left, right = (
        (np.int32(m), np.int32(n), np.int32(k)),
        (a.ctypes.data, np.int32(lda)),
        (b.ctypes.data, np.int32(ldb)),
    )
    _call(f[_GEMM], (a_is, b_is, *sizes, float(alpha), *left, *right, float(beta), c.ctypes.data, np.int32(ldc)))


@jit
def syrk(f, n, k, alpha, a, lda, beta, c, ldc):
    """Overwrite the lower triangle of C (n, n) with alpha A A^T + beta C, A (n, k)."""
    sizes, left = (np.int32(n), np.int32(k)), (a.ctypes.data, np.int32(lda))
    _call(f[_SYRK], (LOWER, PLAIN, *sizes, float(alpha), *left, float(beta), c.ctypes.data, np.int32(ldc)))


@jit
def symm(f, m, n, alpha, a, lda, b, ldb, beta, c, ldc):
    """Overwrite C (m, n) with alpha A B + beta C, given the lower triangle of A (m, m)."""
    sizes, left, right = (np.int32(m), np.int32(n)), (a.ctypes.data, np.int32(lda)), (b.ctypes.data, np.int32(ldb))
    _call(f[_SYMM], (LEFT, LOWER, *sizes, float(alpha), *left, *right, float(beta), c.ctypes.data, np.int32(ldc)))


@jit
def trsm(f, a_is, m, n, a, lda, b, ldb):
    """Overwrite B (m, n) with B op(A)^-1, A lower triangular; `a_is` is PLAIN or TRANSPOSED."""
    sizes, left = (np.int32(m), np.int32(n)), (a.ctypes.data, np.int32(lda))
    _call(f[_TRSM], (RIGHT, LOWER, a_is, _NOT_UNIT, *sizes, 1.0, *left, b.ctypes.data, np.int32(ldb)))


@jit
def potrf(f, n, a, lda, info):
    """Overwrite A (n, n) with its lower Cholesky factor.

    Returns:
        0, or the number, from 1, of a pivot that is not positive.
    """
    _call(f[_POTRF], (LOWER, np.int32(n), a.ctypes.data, np.int32(lda), info.ctypes.data))
    return info[0]


@jit
def potri(f, n, a, lda, info):
    """Overwrite the lower triangle of A (n, n), a Cholesky factor L, with that of (L L^T)^-1."""
    _call(f[_POTRI], (LOWER, np.int32(n), a.ctypes.data, np.int32(lda), info.ctypes.data))


# --- The multifrontal factorization: the panels of the factor, supernode by supernode --------------------------------
#
# A front consists of the panel of a supernode and the update matrix of the rows below its columns. The update matrices
# of the children are added to both. Then the panel is factored, L_JJ L_JJ^T and L_RJ = A_RJ L_JJ^-T, and its update
# matrix U
# - L_RJ L_RJ^T stays on a stack until the parent takes it.


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
        tree: The supernodes, `Supernodes` of `graphs.cholesky.factor`.
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
        tree: The supernodes, `Supernodes` of `graphs.cholesky.factor`.
        entries: Entries of the factor.
    """
    total = 0.0
    for s in range(len(tree.parents)):
        columns, rows, panel = panel_of(s, tree, entries)
        for j in range(columns):
            total += np.log(panel[j * (rows + 1)])
    return total


# --- The entries of the inverse on the pattern of the factor, from the roots of the tree to its leaves ---------------
#
# With the panel L_JJ, L_RJ of a supernode and Y = L_RJ L_JJ^-1, the inverse Z = (L L^T)^-1 satisfies
#
#     Z_RJ = -Z_RR Y,    Z_JJ = (L_JJ L_JJ^T)^-1 - Y^T Z_RJ,
#
# and Z_RR is part of the front of the parent, whose rows include R (Takahashi, Fagan and Chin 1973; Rouet 2009). The
# inverse of a front is kept as long as children need it, on a path from a root.


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
        tree: The supernodes, `Supernodes` of `graphs.cholesky.factor`.
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


# --- Solves with a factor of panels, in place, for right-hand sides x (n, k) by rows ---------------------------------
#
# A matrix (columns, k) by rows is (k, columns) by columns, so L X = B is X^T <- B^T L^-T for BLAS.


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
        tree: The supernodes, `Supernodes` of `graphs.cholesky.factor`.
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
