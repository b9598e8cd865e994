"""Supernodes and their fronts: ranges of columns whose factor is one dense panel.

The panel of a supernode holds its rows, its own columns first, ascending. It is stored by columns. Its other rows are
among the rows of the panel of its parent (Duff and Reid 1983; Liu 1992). Small supernodes are merged with their parents
if that adds few zeros (Ashcraft and Grimes 1989), since a few zeros are cheaper than small fronts.
"""

import numpy as np

from graphs.compiled import jit

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
        tree: The supernodes, `Supernodes` of `graphs.cholesky.analysis`.
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
        tree: The supernodes, `Supernodes` of `graphs.cholesky.analysis`.

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
        tree: The supernodes, `Supernodes` of `graphs.cholesky.analysis`.
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
