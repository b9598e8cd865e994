"""Halting probabilities and length distributions for a kernel."""

import numpy as np
from numpy.typing import NDArray

from graphs.couplings import truncated_modulation
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.spectral import squared_growth
from graphs.walks.moments import max_p_halt, relative_variance

_MAX_P_HALT = 0.5
"""The largest halting probability that is considered."""
_MIN_P_HALT = 1e-3
"""The smallest halting probability that is considered."""
_MAX_OMITTED = 1e-9
"""The fraction of the modulation that the longest walk may omit."""


@np.errstate(under="ignore")
def choose_p_halt(
    graph: Graph,
    kernel: GraphKernel,
    num_walkers: int = 16,
    *,
    transitions: str = "weights",
    exact_hops: int = 0,
    max_variance: float = 0.1,
) -> float:
    """Return the largest halting probability whose variance is small enough.

    It is between 0.001 and 0.5, and at most half of `max_p_halt`, above which the second moment is infinite. With it, m
    independent lengths give the total weight of a row a relative variance of at most `max_variance`
    (`relative_variance`).

    Args:
        graph: The graph.
        kernel: The kernel.
        num_walkers: The number m of walkers.
        transitions: "weights" or "uniform".
        exact_hops: The number of exact first hops.
        max_variance: The relative variance allowed.

    Raises:
        InvalidArgumentError: If no halting probability of at least 0.001 is small enough.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((9, 9))
        >>> graphs.choose_p_halt(g, graphs.kernels.Diffusion(1.0))
        0.5
    """
    limit = max_p_halt(graph, kernel, transitions=transitions) / 2
    growth = max(1.0, squared_growth(graph, transitions))

    def good(p_halt: float) -> bool:
        return relative_variance(kernel, p_halt, exact_hops, growth=growth) <= max_variance * num_walkers

    low, high = _MIN_P_HALT, min(_MAX_P_HALT, limit)
    if high < low or not good(low):
        raise InvalidArgumentError(
            f"The variance must be at most {max_variance:g} for a halting probability of at least {_MIN_P_HALT:g}, got "
            f"more with {num_walkers} walkers for {kernel}. Use more walkers, exact hops, or features without walks."
        )
    if good(high):
        return high
    while high - low > 1e-3 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


@np.errstate(under="ignore")
def optimal_survival(kernel: GraphKernel, mean_length: float = 9.0) -> NDArray[np.float64]:  # (L + 1,)
    """Return survival probabilities of least variance for a given mean length.

    The second moment of the total weight of a walker is sum_l f_l (2 F_l - f_l) / S_l with F_l = f_l + f_(l+1) + ....
    The mean length is sum_(l >= 1) S_l. The second moment is minimized over S with a given mean length, S_l <= 1 and
    S_(l+1) <= S_l. Without these bounds the minimizer is proportional to sqrt(f_l (2 F_l - f_l)). Walks have at most L
    steps, where F_L is 1e-9 of F_0.

    Args:
        kernel: A kernel with a non-negative modulation.
        mean_length: The mean number of steps of a walker, positive.

    Raises:
        InvalidArgumentError: If the mean length is not positive or exceeds L, or the modulation has negative terms.

    Examples:
        >>> import graphs
        >>> survival = graphs.optimal_survival(graphs.kernels.Diffusion(2.0), mean_length=3.0)
        >>> float(survival[0]), round(float(survival[1:].sum()), 6)
        (1.0, 3.0)
    """
    f = truncated_modulation(kernel)
    if f.min() < -1e-12 * f.max():
        raise InvalidArgumentError(
            f"kernel must have a non-negative modulation, got {kernel}. Use a halting probability instead."
        )
    tails = np.cumsum(f[::-1])[::-1]
    f, tails = f[tails > _MAX_OMITTED * tails[0]], tails[tails > _MAX_OMITTED * tails[0]]
    if not 0 < mean_length <= len(f) - 1:
        raise InvalidArgumentError(
            f"mean_length must lie between 0 and {len(f) - 1}, the length of the longest walk, got {mean_length!r}."
        )
    shape = np.sqrt(np.maximum(f * (2 * tails - f), 0.0))
    shape = np.maximum.accumulate(shape[::-1])[::-1]
    shape = np.maximum(shape / shape.max(), 1e-12)
    low, high = 0.0, 1 / shape[-1]
    for _ in range(200):
        scale = (low + high) / 2
        total = np.minimum(1.0, scale * shape[1:]).sum()
        low, high = (scale, high) if total < mean_length else (low, scale)
    return np.concatenate([[1.0], np.minimum(1.0, high * shape[1:])])
