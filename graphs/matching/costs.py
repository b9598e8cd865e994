"""Costs of pairs of length quantiles, from the spectral measure of the graph.

A walker whose length falls into quantile q of n gives node i the features psi_i(q) = g_q(U) e_i, averaged over its
directions. Here g_q(x) = sum_l f_l P(length >= l | q) / P(length >= l) x^l (Reid et al. 2024, "Variance-reducing
couplings for random features", section 4). `graphs.matching.pairs` derives the costs.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_count, check_fits
from graphs.couplings import HaltingDistribution, as_halting_distribution, quantile_survival, truncated_modulation
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.spectral import spectral_measure

Floats = NDArray[np.float64]

MAX_QUANTILES = 10_000
"""The largest number of quantiles."""
_BLOCK = 4096
"""The number of powers of U that are summed at once."""
_SHORT = 0.05
"""The largest relative difference of the sum of a modulation and sqrt(k(0))."""


@np.errstate(under="ignore")
def quantile_costs(
    graph: Graph, kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, num_quantiles: int
) -> Floats:  # (n, n)
    """Return tr(g_q(U) K g_q'(U)) / N for all pairs of quantiles, (n, n).

    Args:
        graph: The graph.
        kernel: The kernel.
        p_halt: The halting probability, survival probabilities (L + 1,), or their distribution.
        num_quantiles: The number n of quantiles.

    Examples:
        >>> import graphs
        >>> graphs.quantile_costs(graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion(), 0.1, 4).shape
        (4, 4)
    """
    u, mass, g = _quantile_features(graph, kernel, p_halt, num_quantiles)
    return np.asarray((g * (mass * kernel.spectral(1 - u))) @ g.T)


@np.errstate(under="ignore")
def quartic_costs(
    graph: Graph, kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, num_quantiles: int
) -> Floats:  # (n, n)
    """Return the costs (n, n) of pairs of n quantiles in Eq. 56 of Reid et al. (2024).

    They are the mean over i, j of [(psi_i(q) + psi_i(r)) . (psi_j(q) + psi_j(r))]^2. The paper estimates it by walks.
    Here it is tr (g_q + g_r)(U)^4 / N^2 exactly, by the spectral measure. `graphs.matching.pairs` compares it with
    `quantile_costs`.

    Args:
        graph: The graph.
        kernel: The kernel.
        p_halt: The halting probability, or survival probabilities.
        num_quantiles: The number n of quantiles.

    Examples:
        >>> import graphs
        >>> graphs.quartic_costs(graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion(), 0.1, 4).shape
        (4, 4)
    """
    _, mass, g = _quantile_features(graph, kernel, p_halt, num_quantiles)
    square, mixed = g**2, g * mass
    cubes, fourths = (g * square) @ mixed.T, square**2 @ mass
    both = 4 * (cubes + cubes.T) + 6 * (square * mass) @ square.T + fourths[:, None] + fourths
    return np.asarray(both / graph.num_nodes)


def _quantile_features(
    graph: Graph, kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, num_quantiles: int
) -> tuple[Floats, Floats, Floats]:
    """Return the spectral measure, (k,) and (k,), and quantile features (n, k)."""
    check_graph_and_kernel(graph, kernel)
    check_count("num_quantiles", num_quantiles, most=MAX_QUANTILES)
    halting = p_halt if isinstance(p_halt, HaltingDistribution) else as_halting_distribution(p_halt)
    u, mass = spectral_measure(graph)
    return u, mass, averaged_features(kernel, halting, num_quantiles, u)


def averaged_features(
    kernel: GraphKernel,
    halting: HaltingDistribution,
    num_quantiles: int,
    u: Floats,  # (k,)
) -> Floats:  # (n, k)
    """Return g_q(u) of n quantiles at k eigenvalues of U.

    Args:
        kernel: The kernel.
        halting: The distribution of the length.
        num_quantiles: The number n of quantiles.
        u: Eigenvalues (k,) of U.

    Examples:
        >>> import numpy as np
        >>> from graphs import kernels
        >>> from graphs.couplings import HaltingDistribution
        >>> from graphs.matching.costs import averaged_features
        >>> averaged_features(kernels.Diffusion(1.0), HaltingDistribution(0.1), 4, np.array([1.0, 0.5])).shape
        (4, 2)
    """
    f = complete_modulation(kernel)
    check_fits(f"{num_quantiles} quantiles", 8.0 * num_quantiles * (3 * len(f) + len(u)), "Use fewer of them.")
    modulations = quantile_survival(halting, num_quantiles, len(f) - 1) * f
    out = np.zeros((num_quantiles, len(u)))
    for first in range(0, len(f), _BLOCK):
        block = modulations[:, first : first + _BLOCK]
        out += block @ (u[None, :] ** np.arange(first, first + block.shape[1])[:, None])
    return out


def complete_modulation(kernel: GraphKernel) -> Floats:  # (L + 1,)
    """Return f_0..f_L, up to 65,536 of them, that sum nearly to sqrt(k(0)).

    Args:
        kernel: The kernel.

    Raises:
        InvalidArgumentError: If they are not enough.

    Examples:
        >>> from graphs import kernels
        >>> from graphs.matching.pairs import complete_modulation
        >>> len(complete_modulation(kernels.Diffusion(1.0)))
        65
    """
    f, total = truncated_modulation(kernel), float(np.sqrt(kernel.spectral(np.zeros(1))[0]))
    if abs(f.sum() - total) > _SHORT * total:
        raise InvalidArgumentError(
            f"kernel must need at most {len(f):,} powers of U to match lengths, got {kernel}. Use a smoother one."
        )
    return f
