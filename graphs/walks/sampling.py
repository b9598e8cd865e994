"""Settings of walks from the arguments of users: checks, couplings and exact hops."""

from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from graphs.checks import check_choice, check_count, check_counts, counted, is_count, resolve_seed
from graphs.couplings import (
    LENGTHS,
    STEP_COUPLINGS,
    HaltingDistribution,
    LengthCoupling,
    Sigma,
    Tuples,
    as_halting_distribution,
)
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel, RegularizedLaplacian
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.matching import couple_quantiles, match_quantiles
from graphs.walks.halting import choose_p_halt
from graphs.walks.pilot import choose_hops
from graphs.walks.settings import TRANSITIONS, HopRule, WalkSettings

_MAX_STEPS = 1e8
"""The largest expected number of steps per node."""
_MAX_HOPS = 10_000
"""The largest number of exact hops."""
_MAX_QUANTILES = 10_000
"""The largest number of quantiles."""


def choose_settings(
    graph: Graph,
    kernel: GraphKernel | None,
    *,
    num_walkers: int,
    p_halt: float | str | ArrayLike,
    lengths: str,
    step_coupling: str,
    exact_hops: int | str | HopRule,
    max_nonzeros: int,
    seed: int | None,
    transitions: str,
    num_quantiles: int,
    permutation: ArrayLike | None,  # (num_quantiles,)
    tuples: ArrayLike | None,  # (S, num_walkers)
    num_threads: int | None,
) -> WalkSettings:
    """Return the settings of walks from the arguments of `graphs.sample_walks`.

    Raises:
        InvalidArgumentError: If an argument is out of range.

    Examples:
        >>> import graphs
        >>> graphs.sample_walks(graphs.Graph.from_grid((3, 3)), exact_hops=1, seed=0).settings.exact_hops
        1
    """
    tuned = RegularizedLaplacian() if kernel is None else kernel
    check_graph_and_kernel(graph, tuned)
    check_counts(num_walkers=num_walkers, max_nonzeros=max_nonzeros)
    check_choice("step_coupling", step_coupling, STEP_COUPLINGS)
    check_choice("transitions", transitions, TRANSITIONS)
    if num_threads is not None:
        check_count("num_threads", num_threads)
    hops = _initial_hops(exact_hops)
    if isinstance(p_halt, str) and p_halt == "auto":
        fewest = hops if isinstance(hops, int) else 0
        p_halt = choose_p_halt(graph, tuned, num_walkers, transitions=transitions, exact_hops=fewest)
    halting = as_halting_distribution(p_halt)
    coupling = _length_coupling(graph, lengths, halting, tuned, num_quantiles, permutation, tuples, num_walkers)
    _check_size(num_walkers, halting)
    settings = WalkSettings(
        int(num_walkers), halting, lengths, step_coupling, transitions, resolve_seed(seed), coupling, hops
    )
    if not isinstance(exact_hops, str):
        return settings
    return replace(settings, exact_hops=choose_hops(graph, tuned, settings, int(max_nonzeros), num_threads))


def _length_coupling(
    graph: Graph,
    lengths: str,
    halting: HaltingDistribution,
    kernel: GraphKernel,
    num_quantiles: int,
    permutation: ArrayLike | None,
    tuples: ArrayLike | None,
    num_walkers: int,
) -> LengthCoupling:
    check_choice("lengths", lengths, LENGTHS)
    check_count("num_quantiles", num_quantiles, most=_MAX_QUANTILES)
    if lengths == "learned":
        if tuples is None:
            tuples = couple_quantiles(graph, kernel, halting.p_halt, num_walkers, num_quantiles)
        return Tuples.from_array(tuples, num_walkers)
    if lengths != "sigma":
        return LENGTHS[lengths]()
    if permutation is None:
        permutation = match_quantiles(graph, kernel, halting.p_halt, num_quantiles)
    return Sigma.from_array(permutation)


def _initial_hops(exact_hops: Any) -> int | HopRule:
    """Return the number of exact hops before any are chosen, 0 for "auto"."""
    if isinstance(exact_hops, HopRule):
        return exact_hops
    if isinstance(exact_hops, str) and exact_hops == "auto":
        return 0
    if is_count(exact_hops) and 0 <= exact_hops <= _MAX_HOPS:
        return int(exact_hops)
    raise InvalidArgumentError(
        f'exact_hops must be an integer from 0 to {_MAX_HOPS}, "auto" or a HopRule, got {exact_hops!r}.'
    )


def _check_size(num_walkers: int, halting: HaltingDistribution) -> None:
    steps = num_walkers * (1 / halting.p_halt if isinstance(halting.p_halt, float) else len(halting.p_halt))
    if steps > _MAX_STEPS:
        raise InvalidArgumentError(
            f"Walks must take at most {_MAX_STEPS:.0e} steps per node, got about {steps:.1e} steps per node for "
            f"{counted(num_walkers, 'walker')}. Use a larger p_halt or fewer walkers."
        )
