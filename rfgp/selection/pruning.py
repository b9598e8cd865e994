"""Candidates that are not scored because another candidate is clearly better."""

from collections.abc import Sequence

from torch import Tensor

from rfgp.fitting.lattices import crowded_terms
from rfgp.selection.candidates import NEIGHBORS
from rfgp.selection.scores import mean_and_error
from rfgp.selection.states import CandidateState

BEHIND, NOISE = 2.0, 0.01
"""The standard errors by which a candidate is clearly behind, and the most nats a row by which a cheaper one may be
behind, within one standard error, to be taken."""
ANOTHER_KERNEL = 0.05
"""The nats a row by which neighbours may be clearly behind if other kernels of neighbours are scored. (On three of
seven large tables Matern 5/2 was ahead of 3/2, by 0.006, 0.03 and 0.11 nats; by 0.11 where all were far behind.)"""
WITH_FEATURES = 0.3
"""The nats a row by which neighbours alone may be behind if features with neighbours are scored. (128 frequencies
gained at most 0.21 nats on nine tables.)"""


def reason_to_skip(
    state: CandidateState,
    head: CandidateState | None,
    states: Sequence[CandidateState],
    weight: Tensor,  # (b,)
) -> str:
    """Return why a candidate need not be scored, empty if it must be.

    Args:
        state: The candidate.
        head: The candidate of which it is a variant, or None.
        states: All candidates.
        weight: The number of times that each validation row counts.
    """
    one = state.candidate
    if not one.is_lattice and any(_is_complete(other) for other in states):
        return "frequencies on a lattice approximate these kernels better in less time"
    if head is not None and _family(head) == _family(state):
        if one.neighbors is not None and _is_behind(head, states, weight, ANOTHER_KERNEL):
            return "a variant of a candidate that is clearly worse than the best"
        if has_fewer_frequencies(state, head) and _is_behind(head, states, weight, NOISE):
            return "more frequencies are clearly better"
    elif head is None and one.neighbors is not None and one.kind != NEIGHBORS:
        alone = [other for other in states if other.candidate.kind == NEIGHBORS and _have_one_kernel(other, state)]
        if any(_is_behind(other, states, weight, WITH_FEATURES) for other in alone):
            return "nearest neighbours alone are far worse than the best"
    return ""


def _is_complete(state: CandidateState) -> bool:
    """Return whether a candidate was fitted on lattices that leave out hardly anything at its lengthscales."""
    if not state.candidate.is_lattice or state.fitted is None or state.status:
        return False
    return not crowded_terms(state.fitted.regression, state.candidate.approximations)


def has_fewer_frequencies(state: CandidateState, head: CandidateState | None) -> bool:
    """Return whether a candidate has fewer frequencies than the one of which it is a variant."""
    return head is not None and state.candidate.num_frequencies < head.candidate.num_frequencies


def _is_behind(state: CandidateState, states: Sequence[CandidateState], weight: Tensor, least: float) -> bool:
    """Return whether a candidate is clearly behind another one that still goes on, by at least so many nats a row."""
    own = state.densities
    if own is None or state.status:
        return False
    others = [other.densities for other in states if not other.status]
    ahead = [mean_and_error(density - own, weight) for density in others if density is not None]
    return any(mean > max(BEHIND * error, least) for mean, error in ahead)


def _family(state: CandidateState) -> tuple[str, bool]:
    return state.candidate.kind, state.candidate.learns_frequencies


def _have_one_kernel(state: CandidateState, other: CandidateState) -> bool:
    return state.candidate.kernel_of_neighbors == other.candidate.kernel_of_neighbors
