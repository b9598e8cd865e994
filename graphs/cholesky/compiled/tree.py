"""The elimination tree of a symmetric pattern, and the column counts of the factor.

The pattern is CSR with both triangles, and columns are eliminated in their order. The parent of j is the first row
below the diagonal of column j of the factor, -1 for roots (Liu 1990, The role of elimination trees in sparse
factorization).
"""

import numpy as np

from graphs.compiled import jit


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
