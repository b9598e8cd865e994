"""What elimination does to a pattern, without the package: by sets, and by the elimination tree."""

import networkx as nx
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu


def pattern(graph, hops=1):
    """Return the CSR pattern (indptr, indices) of a networkx graph, with its diagonal; of so many hops."""
    A = sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=float, format="csr"))
    return pattern_of(A, hops)


def pattern_of(A, hops=1):
    step = sp.csr_array((abs(A) + sp.eye_array(A.shape[0])) > 0).astype(float)
    out = step
    for _ in range(hops - 1):
        out = sp.csr_array(out @ step)
    out.sort_indices()
    return out.indptr.astype(np.int64), out.indices.astype(np.int32)


def is_permutation(order, n):
    return order.shape == (n,) and order.dtype == np.int64 and np.array_equal(np.sort(order), np.arange(n))


def fill_by_sets(indptr, indices, order):
    """Count the entries of the factor as the definition has it: neighbors of what is eliminated become a clique."""
    near = [set(indices[indptr[v] : indptr[v + 1]].tolist()) - {v} for v in range(len(indptr) - 1)]
    count = 0
    for v in order.tolist():
        count += 1 + len(near[v])
        for u in near[v]:
            near[u] = (near[u] | near[v]) - {u, v}
    return count


def fill_by_tree(indptr, indices, order):
    """Count the entries of the factor row by row: row i holds the ways from its entries up the tree, as far as i."""
    position = np.argsort(order).tolist()
    n, count = len(position), len(position)
    parent, seen, bounds, columns = [-1] * n, [-1] * n, indptr.tolist(), indices.tolist()
    for i, v in enumerate(order.tolist()):
        seen[i] = i
        for j in map(position.__getitem__, columns[bounds[v] : bounds[v + 1]]):
            while j < i and seen[j] != i:
                if parent[j] == -1:
                    parent[j] = i
                seen[j] = i
                count += 1
                j = parent[j]
    return count


def fill_of_superlu(indptr, indices):
    """Return the entries of SuperLU's factor in its order of multiple minimum degree."""
    n = len(indptr) - 1
    A = sp.csc_array((np.full(len(indices), -1.0), indices, indptr), shape=(n, n))
    A.setdiag(1.0 + np.diff(indptr))
    return splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}).L.nnz
