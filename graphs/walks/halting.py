"""Halting laws chosen for a kernel."""

import numpy as np
from numpy.typing import NDArray

from graphs.couplings import truncated_modulation
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.spectral import squared_growth
from graphs.walks.moments import max_p_halt, relative_variance

_LARGEST, _SMALLEST = 0.5, 1e-3
_LEFT_OUT = 1e-9


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
    """Return the largest halting probability with which the walks of a kernel have a good second moment.

    Good: below half of `max_p_halt` in 1 - halt, where the second moment would be infinite, and such that m
    independent lengths give a row's total weight a relative variance of at most `max_variance`
    (`relative_variance`). Between 0.001 and 0.5.

    Args:
        graph: The graph.
        kernel: The kernel.
        num_walkers: m.
        transitions: "weights" or "uniform".
        exact_hops: Of the walks.
        max_variance: The relative variance that is good enough.

    Raises:
        InvalidArgumentError: no halting probability from 0.001 on is good enough.
    """
    limit = max_p_halt(graph, kernel, transitions=transitions) / 2
    growth = max(1.0, squared_growth(graph, transitions))

    def good(p_halt: float) -> bool:
        return relative_variance(kernel, p_halt, exact_hops, growth=growth) <= max_variance * num_walkers

    low, high = _SMALLEST, min(_LARGEST, limit)
    if high < low or not good(low):
        raise InvalidArgumentError(
            f"No halting probability from {_SMALLEST:g} on gives {num_walkers} walkers a good second moment for "
            f"{kernel}. Use more walkers, exact hops, or features without walks."
        )
    if good(high):
        return high
    while high - low > 1e-3 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


@np.errstate(under="ignore")
def optimal_survival(kernel: GraphKernel, mean_length: float = 9.0) -> NDArray[np.float64]:  # (L + 1,)
    """Return the survival probabilities of the lengths that serve a kernel best, for a mean length.

    The second moment of a walker's total weight is sum_l f_l (2 F_l - f_l) / S_l, F_l = f_l + f_(l+1) + ...; for a
    given mean length sum_(l >= 1) S_l it is least where S_l is in proportion to the root of f_l (2 F_l - f_l), but for
    S_l <= 1 and a sequence that never rises. L is where F_l is 1e-9 of F_0; what comes after is left out.

    Args:
        kernel: With a modulation that is not negative.
        mean_length: Steps of a walker on average, positive.

    Raises:
        InvalidArgumentError: the mean length is not positive, or too long for L; or the modulation has negative terms.
    """
    f = truncated_modulation(kernel)
    if f.min() < -1e-12 * f.max():
        raise InvalidArgumentError(f"{kernel} has a modulation with negative terms; give a halting probability.")
    tails = np.cumsum(f[::-1])[::-1]
    f, tails = f[tails > _LEFT_OUT * tails[0]], tails[tails > _LEFT_OUT * tails[0]]
    if not 0 < mean_length <= len(f) - 1:
        raise InvalidArgumentError(
            f"mean_length must lie between 0 and {len(f) - 1}, the longest walk that counts, got {mean_length!r}."
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
