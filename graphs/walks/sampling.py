"""The public way to walks: arguments are checked, couplings and exact hops chosen, walks drawn."""

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from graphs import random
from graphs.couplings import DIRECTIONS, LENGTHS, Halting, LengthCoupling, Sigma, Tuples, as_halting
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel, RegularizedLaplacian
from graphs.matching import couple_quantiles, match_quantiles
from graphs.matching.pairs import check_graph_and_kernel
from graphs.walks.drawing import draw
from graphs.walks.halting import choose_halt
from graphs.walks.hops import HopRule
from graphs.walks.moves import check_transitions
from graphs.walks.pilot import choose_hops
from graphs.walks.walks import Walks, WalkSettings

_MOST_STEPS = 1e8
_MOST_HOPS, _MOST_QUANTILES = 10_000, 10_000


def sample_walks(
    graph: Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,) labels
    num_walkers: int = 16,
    halt: float | str | ArrayLike = 0.1,
    lengths: str = "systematic",
    directions: str = "stratified",
    exact_hops: int | str | HopRule = "auto",
    max_nonzeros: int = 64,
    kernel: GraphKernel | None = None,
    seed: int | None = None,
    *,
    transitions: str = "weights",
    num_quantiles: int = 50,
    permutation: ArrayLike | None = None,  # (num_quantiles,)
    tuples: ArrayLike | None = None,  # (S, num_walkers)
    num_threads: int | None = None,
    max_memory: float | None = None,
    progress: bool = True,
) -> Walks:
    """Draw random walks from n nodes of a graph; they serve any kernel afterwards.

    Each walker has the law of a single independent walk, whatever the coupling: its length follows
    the halting law, its moves the transition law. Walkers of different start nodes are independent.

    Args:
        graph: The graph.
        nodes: Labels of the start nodes (n,), repeats allowed; None: every node.
        num_walkers: The number m of walkers per node; even for "antithetic" and "sigma".
        halt: The probability to halt before each step, in (0, 1); or an array of survival
            probabilities P(length >= l), l = 0, 1, ... (longer powers are then left out of E[Phi]), such as
            `survival_for(kernel)`; or "auto": `choose_halt` for `kernel`.
        lengths: The coupling of a node's lengths: "iid", "antithetic" (pairs), "sigma" (pairs
            matched by a permutation), "systematic" (all m from one uniform) or "learned" (all m from a learned law).
        directions: "independent"; "stratified": walkers of one start node that stand on the same
            node spread over its neighbours; or "repelling": they take neighbours without replacement, in blocks of as
            many walkers as there are neighbours (uniform moves only).
        exact_hops: h: the first h steps are computed exactly, and the walkers begin at the nodes that h steps reach,
            drawn from their law, and halt only from there on. "auto": for each node as many as `max_nonzeros` holds
            and the variance rewards, by a pilot of other walks (`walks.pilot.choose_hops`); the rule it finds is
            `walks.settings.exact_hops`, and the numbers `walks.exact_hops` (n,). A rule serves in place of a number.
        max_nonzeros: What rows of Phi may have, in expectation, the walkers' part included, for "auto" to add hops: on
            average over nodes with neighbourhoods of similar size, so that single rows may have some more. Walks that
            have more without exact hops keep what they have.
        kernel: What "sigma" and "auto" are tuned to; None: `RegularizedLaplacian(order=2, sigma=1)`.
        seed: An integer, or None for one from the system, kept as `walks.seed`.
        transitions: "weights": move in proportion to the entries of a row of U, which for the normalised Laplacian are
            the edges' weights; "uniform": to every neighbour alike, the same where weights are equal. With the
            combinatorial Laplacian a node is a neighbour of its own, and loads of uniform moves grow fast.
        num_quantiles: Bins of the permutation for "sigma", or of what is "learned".
        permutation: A permutation (num_quantiles,) for "sigma", from `match_quantiles` on this or
            another graph; None: matched on this graph.
        tuples: A table (S, num_walkers) for "learned", from `couple_quantiles`; None: learned for this graph.
        num_threads: Threads; None: one per core. The walks do not depend on it.
        max_memory: In bytes. The result takes some 7 bytes for each step, 14 where loads do not follow from the ends
            of a walk (exact hops; uniform moves on weighted graphs); that is estimated, and compared, beforehand.
        progress: Whether to show a progress bar on a terminal, if it takes some seconds.

    Sources: general graph random features, Reid et al. (2024); antithetic termination, Reid et al.
    (2023); sigma, Reid et al. (2024, "Variance-reducing couplings for random features",
    section 4); repelling walks, Reid et al. (2024, "Repelling random walks").

    Raises:
        InvalidArgumentError: an argument out of range, named with what is allowed.
        MemoryBudgetError: the result would take more than `max_memory`.
        UnknownNodeError: a label names no node.
    """
    tuned = RegularizedLaplacian() if kernel is None else kernel
    check_graph_and_kernel(graph, tuned)
    _check(num_walkers, directions, exact_hops, max_nonzeros, transitions)
    if num_threads is not None and not (isinstance(num_threads, int) and num_threads > 0):
        raise InvalidArgumentError(f"num_threads must be a positive integer or None, got {num_threads!r}.")
    if max_memory is not None and not (isinstance(max_memory, int | float) and max_memory > 0):
        raise InvalidArgumentError(f"max_memory must be a positive number of bytes or None, got {max_memory!r}.")
    hops = exact_hops if isinstance(exact_hops, HopRule) else 0 if isinstance(exact_hops, str) else int(exact_hops)
    if isinstance(halt, str) and halt == "auto":
        fewest = hops if isinstance(hops, int) else 0
        halt = choose_halt(graph, tuned, num_walkers, transitions=transitions, exact_hops=fewest)
    halting = as_halting(halt)
    coupling = _length_coupling(graph, lengths, halting, tuned, num_quantiles, permutation, tuples, num_walkers)
    _check_size(num_walkers, halting)
    settings = WalkSettings(
        int(num_walkers), halting, lengths, directions, transitions, random.resolve_seed(seed), coupling, hops
    )
    if isinstance(exact_hops, str):
        settings = replace(settings, exact_hops=choose_hops(graph, tuned, settings, int(max_nonzeros), num_threads))
    starts = np.arange(graph.num_nodes, dtype=np.int64) if nodes is None else graph.index(nodes)
    return draw(graph, starts, settings, num_threads, max_memory, progress)


def _length_coupling(
    graph: Graph,
    lengths: str,
    halting: Halting,
    kernel: GraphKernel,
    num_quantiles: int,
    permutation: ArrayLike | None,
    tuples: ArrayLike | None,
    num_walkers: int,
) -> LengthCoupling:
    if not isinstance(num_quantiles, int | np.integer) or num_quantiles > _MOST_QUANTILES:
        raise InvalidArgumentError(f"num_quantiles must be an integer up to {_MOST_QUANTILES}, got {num_quantiles!r}.")
    if not isinstance(lengths, str) or lengths not in LENGTHS:
        raise InvalidArgumentError(f"lengths must be one of {', '.join(map(repr, LENGTHS))}, got {lengths!r}.")
    if lengths == "learned":
        if tuples is None:
            tuples = couple_quantiles(graph, kernel, halting.halt, num_walkers, num_quantiles)
        return Tuples.checked(tuples, num_walkers)
    if lengths != "sigma":
        return LENGTHS[lengths]()
    if permutation is None:
        permutation = match_quantiles(graph, kernel, halting.halt, num_quantiles)
    return Sigma.checked(permutation)


def _check(
    num_walkers: int, directions: str, exact_hops: int | str | HopRule, max_nonzeros: int, transitions: str
) -> None:
    for name, value in (("num_walkers", num_walkers), ("max_nonzeros", max_nonzeros)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InvalidArgumentError(f"{name} must be a positive integer, got {value!r}.")
    if directions not in DIRECTIONS:
        raise InvalidArgumentError(f"directions must be one of {', '.join(map(repr, DIRECTIONS))}, got {directions!r}.")
    check_transitions(transitions)
    known = isinstance(exact_hops, HopRule) or (isinstance(exact_hops, str) and exact_hops == "auto")
    if isinstance(exact_hops, int | np.integer) and not isinstance(exact_hops, bool):
        known = 0 <= exact_hops <= _MOST_HOPS
    if not known:
        raise InvalidArgumentError(
            f'exact_hops must be an integer from 0 to {_MOST_HOPS}, "auto" or a HopRule, got {exact_hops!r}.'
        )


def _check_size(num_walkers: int, halting: Halting) -> None:
    steps = num_walkers * (1 / halting.halt if isinstance(halting.halt, float) else len(halting.halt))
    if steps > _MOST_STEPS:
        raise InvalidArgumentError(
            f"{num_walkers} walkers with this halting law take about {steps:.1e} steps per node; at most "
            f"{_MOST_STEPS:.0e} are allowed. Raise halt or use fewer walkers."
        )
