"""Second moments of walks: when they are finite, and how large they are."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from graphs.checks import check_choice
from graphs.couplings import HaltingDistribution, as_halting_distribution, truncated_modulation
from graphs.errors import InfiniteVarianceWarning, InvalidArgumentError, LargeVarianceWarning
from graphs.graph import Graph, check_graph
from graphs.kernels import GraphKernel
from graphs.spectral import squared_growth
from graphs.walks.settings import TRANSITIONS


@np.errstate(under="ignore")
def relative_variance(
    kernel: GraphKernel, p_halt: float | ArrayLike | HaltingDistribution, exact_hops: int = 0, *, growth: float = 1.0
) -> float:
    """Return the relative variance of the total weight of the row of one walker.

    The total weight sum_l f_l [length >= l] / S_l has the mean sum_l f_l and the second moment sum_{kl} f_k f_l /
    S_min(k, l). This is the effect of the lengths alone, on a regular graph. It is relative to (sum_l |f_l|)^2, and
    infinite if it cannot be evaluated. With h exact hops a walker carries f_(h+1), f_(h+2), ... and halts only from
    there on.

    Args:
        kernel: The kernel.
        p_halt: The halting probability, or survival probabilities.
        exact_hops: The number h of exact first hops.
        growth: The growth of the squared load of a walk per step, 1 for moves in proportion to weight.

    Raises:
        InvalidArgumentError: If an argument is out of range.

    Examples:
        >>> import graphs
        >>> kernel = graphs.kernels.Diffusion(2.0)
        >>> graphs.relative_variance(kernel, 0.1) < graphs.relative_variance(kernel, 0.4)
        True
    """
    halting = p_halt if isinstance(p_halt, HaltingDistribution) else as_halting_distribution(p_halt)
    if exact_hops < 0:
        raise InvalidArgumentError(f"exact_hops must be an integer of at least 0, got {exact_hops!r}.")
    ends = None if halting.is_geometric else int(np.size(halting.p_halt)) - 1 + exact_hops
    whole = truncated_modulation(kernel) if ends is None else kernel.modulation(ends)
    f = whole[min(exact_hops, len(whole) - 1) :]
    survival = halting.survival(len(f) - 1) * np.exp(-np.log(growth) * np.arange(len(f)))
    f = f[survival > 0]
    later = np.cumsum(f[::-1])[::-1]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        second = np.sum(f * (2 * later - f) / survival[survival > 0])
        ratio = (second - f.sum() ** 2) / np.abs(whole[: exact_hops + len(survival)]).sum() ** 2
    return float(ratio) if np.isfinite(ratio) else np.inf


@np.errstate(under="ignore")
def max_p_halt(graph: Graph, kernel: GraphKernel, *, transitions: str = "weights") -> float:
    """Return the supremum of the halting probabilities with a finite second moment.

    The squared load of a walk grows by rho per step, the spectral radius of U_ab^2 / (p_ab (1 - p_halt)). The second
    moment is finite if sum_l f_l^2 rho^l is, that is for rho below the squared radius of convergence of f. A result of
    1 means that every halting probability works, and 0 that none does.

    Args:
        graph: The graph.
        kernel: The kernel.
        transitions: "weights" or "uniform", as for `sample_walks`.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((9, 9))
        >>> graphs.max_p_halt(g, graphs.kernels.Diffusion()), graphs.max_p_halt(g, graphs.kernels.Matern(kappa=2.0))
        (1.0, 0.6734693877551021)
    """
    check_graph(graph)
    check_choice("transitions", transitions, TRANSITIONS)
    if np.isinf(kernel.radius):
        return 1.0
    return max(0.0, 1 - squared_growth(graph, transitions) / kernel.radius**2)


def check_second_moment(
    graph: Graph, kernel: GraphKernel, halting: HaltingDistribution, transitions: str, num_walkers: int, exact_hops: int
) -> None:
    """Warn if walks estimate a kernel with a large or infinite variance.

    Args:
        graph: The graph.
        kernel: The kernel.
        halting: The distribution of the length.
        transitions: "weights" or "uniform".
        num_walkers: The number m of walkers.
        exact_hops: The number of exact first hops.

    Warns:
        InfiniteVarianceWarning: If the second moment is infinite. The message has the largest halting probability.
        LargeVarianceWarning: If the total weight of a row has a relative variance above 1.

    Examples:
        >>> import graphs
        >>> from graphs.couplings import HaltingDistribution
        >>> from graphs.walks.moments import check_second_moment
        >>> g, kernel = graphs.Graph.from_grid((3, 3)), graphs.kernels.Diffusion(1.0)
        >>> check_second_moment(g, kernel, HaltingDistribution(0.1), "weights", 16, 0)
    """
    limit = max_p_halt(graph, kernel, transitions=transitions)
    if isinstance(halting.p_halt, float) and halting.p_halt >= limit:
        remedy = f"Use a p_halt below {limit:.3g}, or features without walks." if limit > 0 else "Use other features."
        message = (
            f"The features of {kernel} have no finite second moment with p_halt = {halting.p_halt:g}, since the loads "
            f"of long walks grow faster than the modulation decays. {remedy}"
        )
        warnings.warn(InfiniteVarianceWarning(message), stacklevel=4)
        return
    growth = max(1.0, squared_growth(graph, transitions))
    variance = relative_variance(kernel, halting, exact_hops, growth=growth) / num_walkers
    if variance > 1:
        message = (
            f"The features of {kernel} need longer walks: with {num_walkers} independent lengths the total weight of a "
            f"row has a relative variance of {variance:.2g}. Use a smaller p_halt or more walkers, or compare with the "
            "exact kernel before trusting error bars."
        )
        warnings.warn(LargeVarianceWarning(message), stacklevel=4)
