"""Second moments of walks: which halting probabilities have one, and when it is too large to be of use."""

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
    """Return the relative variance of the total weight sum_l f_l [length >= l] / S_l of one walker's row.

    It has mean sum_l f_l and second moment sum_{kl} f_k f_l / S_min(k, l): what the lengths alone do to a row, on a
    regular graph; relative to (sum_l |f_l|)^2, infinite where that cannot be evaluated. With exact hops h the walker
    carries f_(h+1), f_(h+2), ... and halts only from there on.

    Args:
        kernel: The kernel.
        p_halt: The halting law.
        exact_hops: h.
        growth: Of a walk's squared load with each step, 1 for moves in proportion to weight.
    """
    halting = p_halt if isinstance(p_halt, HaltingDistribution) else as_halting_distribution(p_halt)
    if exact_hops < 0:
        raise InvalidArgumentError(f"exact_hops must be an integer from 0 on, got {exact_hops!r}.")
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

    The squared load of a walk grows by rho per step, the spectral radius of U_ab^2 / (p_ab (1 -
    halt)), so the second moment is finite where sum_l f_l^2 rho^l is: for rho below the squared
    radius of convergence of f. Above the returned value it is infinite; 1 means any halt will do, 0
    that none does.

    Args:
        graph: The graph.
        kernel: The kernel.
        transitions: "weights" or "uniform", as for `sample_walks`.
    """
    check_graph(graph)
    check_choice("transitions", transitions, TRANSITIONS)
    if np.isinf(kernel.radius):
        return 1.0
    return max(0.0, 1 - squared_growth(graph, transitions) / kernel.radius**2)


def check_second_moment(
    graph: Graph, kernel: GraphKernel, halting: HaltingDistribution, transitions: str, num_walkers: int, exact_hops: int
) -> None:
    """Warn where walks estimate the features of a kernel with a large or infinite variance.

    Warns:
        InfiniteVarianceWarning: with the largest halting probability that works.
        LargeVarianceWarning: a row's total weight has a relative variance above 1.
    """
    limit = max_p_halt(graph, kernel, transitions=transitions)
    if isinstance(halting.p_halt, float) and halting.p_halt >= limit:
        remedy = f"Walk with halt below {limit:.3g}" if limit > 0 else "No halting probability works"
        message = (
            f"With halt = {halting.p_halt:g} the features of {kernel} have no finite second moment: the "
            f"loads of long walks grow faster than the modulation falls. {remedy}, or use features without walks."
        )
        warnings.warn(InfiniteVarianceWarning(message), stacklevel=4)
        return
    growth = max(1.0, squared_growth(graph, transitions))
    variance = relative_variance(kernel, halting, exact_hops, growth=growth) / num_walkers
    if variance > 1:
        message = (
            f"The features of {kernel} need longer walks than these: with {num_walkers} independent "
            f"lengths a row's total weight has a relative variance of {variance:.2g}. Walk with a smaller halt or "
            "more walkers, or compare with the exact kernel before trusting error bars."
        )
        warnings.warn(LargeVarianceWarning(message), stacklevel=4)
