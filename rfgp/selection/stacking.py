"""Averages of exact Gaussian processes whose leave-one-out scores are close.

On few rows leave-one-out scores do not say which kernel is best, because the hyperparameters were fitted to the same
rows. An average needs no such choice, and its variance is larger at points where the kernels disagree.

On random 100, 200 and 400 rows of eleven tables (three splits each, up to 2,000 test rows) the average is ahead of
scikit-learn's Gaussian process by 0.05, 0.09 and 0.10 nats a row in the median, and behind by at most 0.27, 0.06 and
0.06 (`python -m benchmarks.races.defaults --rows 100 --seeds 3 --racers default,sklearn`). The best kernel alone was
ahead by 0.00, 0.00 and 0.06 on other splits, and behind by at most 10, 318 and 1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rfgp.selection.states import CandidateState

PRIOR = 5.0
"""The prior weight of each candidate, in rows: the best of 0, 2, 5, 10 and 20 on the tables above. Without a prior,
sums of kernels with too many hyperparameters get all of the weight."""
LEAST = 0.02
"""The weight below which a candidate is left out."""
TAILS, QUIET = 0.01, 1e-3
"""The weight of a candidate with noise if all others have none, and the noise that counts as none, in variances of the
target."""
_STEPS = 1000
"""The most steps of expectation maximisation."""


def stacking_weights(
    densities: Sequence[Tensor],  # (n,) each
    counts: Tensor,  # (n,)
) -> list[float]:
    """Return the weights that maximise the leave-one-out log density of the mixture plus a Dirichlet prior.

    The prior adds PRIOR rows to each candidate. The objective is concave, and maximised by expectation maximisation.

    Source: Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive distributions",
    Bayesian Analysis 13(3), Section 3.2; there without a prior.

    Args:
        densities: The log densities of each row given all others, by each candidate.
        counts: The number of times that each row counts.
    """
    each = torch.stack(list(densities), dim=1).double()
    likelihoods = (each - each.max(1, keepdim=True).values).exp()
    weights = torch.full_like(each[0], 1 / each.shape[1])
    total = counts.sum() + PRIOR * each.shape[1]
    for _ in range(_STEPS):
        shares = likelihoods * weights
        shares = counts[:, None] * shares / shares.sum(1, keepdim=True)
        new = (shares.sum(0) + PRIOR) / total
        if bool((new - weights).abs().max() < 1e-6):
            break
        weights = new
    return [float(weight) for weight in new]


def shares(
    densities: Sequence[Tensor],  # (n,) each
    counts: Tensor,  # (n,)
) -> list[float]:
    """Return the weights of candidates in their average, 0 for those below LEAST.

    Args:
        densities: As for `stacking_weights`.
        counts: Likewise.
    """
    weights = stacking_weights(densities, counts)
    kept = [weight if weight >= min(LEAST, max(weights)) else 0.0 for weight in weights]
    return [weight / sum(kept) for weight in kept]


def with_tails(
    parts: list[tuple[CandidateState, float]], states: Sequence[CandidateState]
) -> list[tuple[CandidateState, float]]:
    """Return the parts of an average, with a candidate with noise added if none of them has any.

    Without noise a new row at the place of a training row with another value has no density: two million nats on 2,000
    rows of protein.
    """
    with_noise = [each for each in states if each.fitted is not None and each.noise > QUIET]
    if not with_noise or any(state.noise > QUIET for state, _ in parts):
        return parts
    holder = max(with_noise, key=lambda state: state.score)
    return [*((state, (1 - TAILS) * weight) for state, weight in parts), (holder, TAILS)]


def mixture_density(
    densities: Sequence[Tensor],  # (n,) each
    weights: Sequence[float],
) -> Tensor:  # (n,)
    """Return the log densities of a mixture, from those of its parts."""
    each = torch.stack(list(densities), dim=1)
    return torch.logsumexp(each + each.new_tensor(weights).log(), dim=1)
