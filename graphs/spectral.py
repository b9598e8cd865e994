"""Spectral properties of a graph: the distribution of eigenvalues, and the growth of loads."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh_tridiagonal, eigvalsh
from scipy.sparse.linalg import eigsh

from graphs.checks import check_count, check_fits, short_repr
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph, check_graph

MAX_EXACT_NODES = 1500
"""The largest number of nodes for which spectral measures, projections and traces are exact."""
_PROBES = 8
"""The number of random vectors whose spectral measures are averaged."""
_LANCZOS_STEPS = 40
"""The largest number of steps of the Lanczos method."""
_MAX_MOMENTS = 100_000
"""The largest number of Chebyshev moments."""


def spectral_measure(graph: Graph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points u and weights (k,) with sum_k w_k h(u_k) = tr h(U) / N.

    The measure is exact up to 1500 nodes. On larger graphs it is estimated by stochastic Lanczos quadrature (Ubaru,
    Chen and Saad 2017) with 8 Rademacher probes and 40 steps. The internal seed is fixed, so the result of a graph is
    reproducible.

    Args:
        graph: The graph.

    Examples:
        >>> import graphs
        >>> from graphs.spectral import spectral_measure
        >>> u, w = spectral_measure(graphs.Graph.from_grid((4,)))
        >>> bool(abs(w.sum() - 1) < 1e-12), round(float(u.max()), 12)
        (True, 1.0)
    """
    check_graph(graph)
    matrix = graph.shift_operator
    size = graph.num_nodes
    if size <= MAX_EXACT_NODES:
        return np.clip(eigvalsh(matrix.toarray()), -1.0, 1.0), np.full(size, 1 / size)
    generator = np.random.default_rng(0)
    points, weights = [], []
    for _ in range(_PROBES):
        diagonal, off_diagonal = lanczos(matrix, generator.choice([-1.0, 1.0], size))
        ritz, vectors = eigh_tridiagonal(diagonal, off_diagonal)
        points.append(np.clip(ritz, -1.0, 1.0))
        weights.append(vectors[0] ** 2 / _PROBES)
    return np.concatenate(points), np.concatenate(weights)


def lanczos(
    matrix: sp.csr_array,  # (N, N)
    start: NDArray[np.float64],  # (N,)
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the tridiagonal matrix of Lanczos' method with full reorthogonalization.

    It has the diagonal (steps,) and the off-diagonal (steps - 1,).

    Args:
        matrix: A symmetric matrix (N, N).
        start: The first vector (N,).

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.spectral import lanczos
        >>> diagonal, off_diagonal = lanczos(graphs.Graph.from_grid((4,)).shift_operator, np.arange(4.0))
        >>> len(diagonal), len(off_diagonal)
        (4, 3)
    """
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
    """Return the growth of squared loads per step, a spectral radius.

    It is the spectral radius of a matrix V. For moves in proportion to weight V_ab = W_ab / d_b. Its columns sum to 1,
    so its radius is 1. For uniform moves V_ab = k_a U_ab^2, and node a has k_a neighbors. This matrix is similar to the
    symmetric sqrt(k_a k_b) U_ab^2, whose largest eigenvalue is found by Lanczos' method.

    Args:
        graph: The graph.
        transitions: "weights" or "uniform".

    Examples:
        >>> import graphs
        >>> from graphs.spectral import squared_growth
        >>> squared_growth(graphs.Graph.from_grid((4, 4)), "weights")
        1.0
    """
    check_graph(graph)
    if transitions == "weights":
        return 1.0
    matrix = graph.shift_operator
    root = sp.diags_array(np.sqrt(np.diff(matrix.indptr)))
    symmetric = root @ matrix.multiply(matrix) @ root
    if graph.num_nodes < 50:
        return float(eigvalsh(symmetric.toarray())[-1])
    start = np.ones(graph.num_nodes)
    return float(eigsh(sp.csr_array(symmetric), k=1, which="LA", v0=start, return_eigenvectors=False)[0])


@np.errstate(under="ignore")
def spectral_density(
    graph: Graph,
    eigenvalues: ArrayLike,  # (n,)
    *,
    num_moments: int = 100,
    num_probes: int = 8,
    seed: int = 0,
) -> NDArray[np.float64]:  # (n,)
    """Estimate the density (n,) of the eigenvalues of the Laplacian.

    Its integral over [0, 2] is 1. The kernel polynomial method with Jackson's kernel resolves peaks of a width of about
    pi / `num_moments` (Weisse et al. 2006, "The kernel polynomial method", Eqs. 62 and 71).

    Args:
        graph: The graph.
        eigenvalues: Points (n,) in [0, 2].
        num_moments: The number of Chebyshev moments; each takes one sparse product.
        num_probes: The number of random vectors over which moments are averaged.
        seed: The seed of the vectors.

    Raises:
        InvalidArgumentError: If a point is outside [0, 2], or a count is not positive.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> x = np.linspace(0.005, 1.995, 200)
        >>> density = graphs.spectral_density(graphs.Graph.from_grid((30, 30)), x)
        >>> round(float(density.sum()) * 0.01, 1)
        1.0
    """
    check_graph(graph)
    where = np.asarray(eigenvalues, dtype=np.float64)
    if where.ndim != 1 or not ((where >= 0) & (where <= 2)).all():
        raise InvalidArgumentError(
            f"eigenvalues must be numbers (n,) in [0, 2], got {short_repr(eigenvalues)}. The Laplacian has no others."
        )
    check_count("num_moments", num_moments, 2, _MAX_MOMENTS)
    check_count("num_probes", num_probes)
    size = 32.0 * (graph.num_nodes * num_probes + len(where) * num_moments)
    check_fits(f"{num_probes} probes and {num_moments} moments", size, "Use fewer.")
    U, rng = graph.shift_operator, np.random.default_rng(seed)
    probes = rng.choice([-1.0, 1.0], (graph.num_nodes, num_probes))
    before, now = probes, U @ probes
    moments = [1.0, float((probes * now).mean())]
    for _ in range(2, num_moments):
        before, now = now, 2 * (U @ now) - before
        moments.append(float((probes * now).mean()))
    k, n = np.arange(num_moments), num_moments + 1
    damping = ((n - k) * np.cos(np.pi * k / n) + np.sin(np.pi * k / n) / np.tan(np.pi / n)) / n
    u = np.clip(1 - where, -1 + 1e-6, 1 - 1e-6)
    series = np.cos(np.outer(np.arccos(u), k)) @ (damping * moments * np.where(k > 0, 2, 1))
    return np.asarray(np.maximum(series, 0) / (np.pi * np.sqrt(1 - u**2)))
