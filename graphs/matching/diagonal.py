"""The diagonal objective: couplings of pairs of walkers by random projections.

Over pairs of nodes i = j, with A_i = sum_q v_i(q) v_i(q)^T and v_i(q) = psi_i(q) + psi_i(sigma(q)), the objective is
sum_i |A_i|_F^2 / (16 n^2). A matrix G_i makes sum_i <G_i, A_i> linear in sigma. Each draw of the G_i gives a candidate
by linear assignment, and the best candidate for the objective itself is kept.

Lemma C.2 of Reid et al. (2024) draws G_i with independent normal entries. It claims that sigma is found once G is
nearly orthogonal to its A, the shortest, and to no other. This cannot hold, since some G is orthogonal to any two given
matrices. Moreover the least signed <G, A> belongs to the matrix most opposed to G. G_i = g_i g_i^T with normal g_i
avoids the signs: <G_i, A_i> = sum_q (g_i . v_i(q))^2 >= 0 is small if A is. Both are only sources of candidates.

The psi_i(q) enter through inner products only. A Gaussian matrix (N, d) may therefore first reduce them to d dimensions
(Johnson and Lindenstrauss, as in Eq. 62 for the A), at the cost of d vectors per power of U.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from graphs.checks import check_fits
from graphs.couplings import HaltingDistribution, quantile_survival
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.matching.costs import averaged_features, complete_modulation

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_EXACT_NODES = 1500
"""The largest number of nodes for which vectors are reduced by the eigendecomposition."""
_SEED = 0x3A7C
"""The seed of the sampled nodes and vectors."""
_MAX_NODES = 512
"""The largest number of nodes in the objective."""
_MAX_OMITTED = 1e-6
"""The fraction of the modulation that may be omitted."""
_MAX_POWERS = 4096
"""The largest number of powers of U."""


def reduced_vectors(
    graph: Graph, kernel: GraphKernel, halting: HaltingDistribution, num_quantiles: int, dimension: int
) -> Floats:  # (n, nodes, d)
    """Return psi_i(q) of up to 512 nodes, projected to d dimensions.

    Args:
        graph: The graph.
        kernel: The kernel.
        halting: The distribution of the length.
        num_quantiles: The number n of quantiles.
        dimension: The number d of dimensions. It is at most the number of nodes.

    Raises:
        InvalidArgumentError: If the graph has more than 1,500 nodes and the kernel needs too many powers of U.
        MemoryBudgetError: If the vectors do not fit into memory.

    Examples:
        >>> import graphs
        >>> from graphs.couplings import HaltingDistribution
        >>> from graphs.matching.diagonal import reduced_vectors
        >>> g, kernel = graphs.Graph.from_grid((3, 3)), graphs.kernels.Diffusion(1.0)
        >>> reduced_vectors(g, kernel, HaltingDistribution(0.1), 4, 5).shape
        (4, 9, 5)
    """
    U, size = graph.shift_operator, graph.num_nodes
    generator = np.random.default_rng(_SEED)
    nodes = np.sort(generator.permutation(size)[:_MAX_NODES])
    is_exact = dimension >= size
    width = min(dimension, size)
    check_fits(f"Vectors in {width} dimensions", 8.0 * width * (size + 2 * num_quantiles * len(nodes)), "Use fewer.")
    now = np.eye(size) if is_exact else generator.standard_normal((size, dimension)) / np.sqrt(dimension)
    if size <= MAX_EXACT_NODES:
        eigenvalues, vectors = graph.spectrum
        g = averaged_features(kernel, halting, num_quantiles, 1 - eigenvalues)
        return np.asarray(np.einsum("ik,qk,kd->qid", vectors[nodes], g, vectors.T @ now, optimize=True))
    f = complete_modulation(kernel)
    rest = np.cumsum(np.abs(f[::-1]))[::-1]
    f = f[rest > _MAX_OMITTED * rest[0]]
    if len(f) > _MAX_POWERS:
        raise InvalidArgumentError(
            f'objective="diagonal" must need at most {_MAX_POWERS} powers of U on {size} nodes, got more for '
            f'{kernel}. Use objective="linear", or a graph of at most {MAX_EXACT_NODES} nodes like it.'
        )
    modulations = quantile_survival(halting, num_quantiles, len(f) - 1) * f
    out = np.zeros((num_quantiles, len(nodes), now.shape[1]))
    for column in modulations.T:
        out += column[:, None, None] * now[nodes]
        now = U @ now
    return out


def diagonal_objective(
    grams: Floats,  # (nodes, n, n)
    permutation: Integers,  # (n,)
) -> float:
    """Return sum_i |A_i|_F^2 / (16 n^2) from products psi_i(q) . psi_i(r).

    Args:
        grams: Inner products (nodes, n, n) of the psi_i(q) of each node.
        permutation: The permutation (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.diagonal import diagonal_objective
        >>> diagonal_objective(np.eye(2)[None], np.array([1, 0]))
        0.25
    """
    half = grams + grams[:, permutation]
    return float(np.sum((half + half[:, :, permutation]) ** 2) / (16 * len(permutation) ** 2))


def best_projection(
    reduced: Floats, num_projections: int, assign: Callable[[Floats], Integers], kinds: Sequence[str]
) -> Integers:
    """Return the candidate with the least diagonal objective.

    Args:
        reduced: Vectors (n, nodes, d), from `reduced_vectors`.
        num_projections: The number of candidates for each kind of projection.
        assign: A function from costs (n, n) to the permutation of least cost.
        kinds: The kinds of projections, "positive" and "gaussian".

    Returns:
        The permutation (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.diagonal import best_projection
        >>> from graphs.matching.pairs import assign_by_scipy
        >>> reduced = np.arange(3.0)[:, None, None] * np.ones((3, 2, 4))  # quantiles, nodes, dimensions
        >>> best_projection(reduced, 2, assign_by_scipy, ["positive"]).tolist()
        [2, 1, 0]
    """
    grams = np.einsum("qid,rid->iqr", reduced, reduced, optimize=True)
    candidates = [assign(grams.sum(0))]
    for kind in kinds:
        generator, project = np.random.default_rng(_SEED + 1), PROJECTIONS[kind]
        candidates += [assign(project(reduced, generator)) for _ in range(num_projections)]
    return min(candidates, key=lambda sigma: diagonal_objective(grams, sigma))


def positive_projection(
    reduced: Floats,  # (n, nodes, d)
    generator: np.random.Generator,
) -> Floats:  # (n, n)
    """Return sum_i psi_i(q)^T G_i psi_i(r) with G_i = g_i g_i^T and normal g_i.

    Args:
        reduced: Vectors psi_i(q), (n, nodes, d).
        generator: The generator of g_i.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.diagonal import positive_projection
        >>> positive_projection(np.ones((3, 2, 4)), np.random.default_rng(0)).shape
        (3, 3)
    """
    seen = np.einsum("qid,id->qi", reduced, generator.standard_normal(reduced.shape[1:]))
    return np.asarray(seen @ seen.T)


def gaussian_projection(
    reduced: Floats,  # (n, nodes, d)
    generator: np.random.Generator,
) -> Floats:  # (n, n)
    """Return the symmetrized sum_i psi_i(q)^T G_i psi_i(r) with normal entries of G_i.

    Args:
        reduced: Vectors psi_i(q), (n, nodes, d).
        generator: The generator of G_i.

    Examples:
        >>> import numpy as np
        >>> from graphs.matching.diagonal import gaussian_projection
        >>> gaussian_projection(np.ones((3, 2, 4)), np.random.default_rng(0)).shape
        (3, 3)
    """
    _, nodes, d = reduced.shape
    turned = np.stack([generator.standard_normal((d, d)) @ reduced[:, i].T for i in range(nodes)])  # (nodes, d, n)
    half = np.einsum("qid,idr->qr", reduced, turned, optimize=True)
    return np.asarray(half + half.T)


PROJECTIONS = {"positive": positive_projection, "gaussian": gaussian_projection}
