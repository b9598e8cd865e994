"""Two spectral facts about a graph: the distribution of its eigenvalues, and how second moments grow."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal, eigvalsh
from scipy.sparse.linalg import eigsh

from graphs.graph import Graph

_DENSE = 1500
_PROBES = 8
_LANCZOS_STEPS = 40


def spectral_measure(graph: Graph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points u in [-1, 1] and weights with sum_k w_k h(u_k) = tr h(U) / N, both (k,).

    Exact up to 1500 nodes; beyond, stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017) with
    8 Rademacher probes of a fixed internal seed and 40 steps, so a graph always gets the same answer.
    """
    matrix = graph.shift_operator
    size = graph.num_nodes
    if size <= _DENSE:
        return np.clip(eigvalsh(matrix.toarray()), -1.0, 1.0), np.full(size, 1 / size)
    generator = np.random.default_rng(0)
    points, weights = [], []
    for _ in range(_PROBES):
        diagonal, off_diagonal = _lanczos(matrix, generator.choice([-1.0, 1.0], size))
        ritz, vectors = eigh_tridiagonal(diagonal, off_diagonal)
        points.append(np.clip(ritz, -1.0, 1.0))
        weights.append(vectors[0] ** 2 / _PROBES)
    return np.concatenate(points), np.concatenate(weights)


def _lanczos(matrix: sp.csr_array, start: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tridiagonalise with full reorthogonalisation: (steps,) diagonal, (steps - 1,) off-diagonal."""
    basis = [start / np.linalg.norm(start)]
    diagonal, off_diagonal = [], []
    for _ in range(_LANCZOS_STEPS):
        following = matrix @ basis[-1]
        diagonal.append(float(following @ basis[-1]))
        stacked = np.stack(basis)
        for _twice in range(2):
            following = following - stacked.T @ (stacked @ following)
        norm = float(np.linalg.norm(following))
        if norm < 1e-10 or len(diagonal) == _LANCZOS_STEPS:
            break
        off_diagonal.append(norm)
        basis.append(following / norm)
    return np.array(diagonal), np.array(off_diagonal)


def squared_growth(graph: Graph, transitions: str) -> float:
    """Return the spectral radius of V, V_ab = U_ab^2 / p_ab: the growth of a walk's squared load.

    For moves in proportion to weight V_ab = W_ab / d_b, whose columns sum to 1, so it is 1. For
    uniform moves V_ab = k_a U_ab^2 with k_a neighbours, similar to the symmetric
    sqrt(k_a k_b) U_ab^2, whose largest eigenvalue is found by Lanczos.
    """
    if transitions == "weights":
        return 1.0
    matrix = graph.shift_operator
    root = sp.diags_array(np.sqrt(np.diff(matrix.indptr)))
    symmetric = root @ matrix.multiply(matrix) @ root
    if graph.num_nodes < 50:
        return float(eigvalsh(symmetric.toarray())[-1])
    start = np.ones(graph.num_nodes)
    return float(eigsh(sp.csr_array(symmetric), k=1, which="LA", v0=start, return_eigenvectors=False)[0])
