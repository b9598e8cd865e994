"""Averages of exact Gaussian processes whose scores are close.

With few rows, leave-one-out scores do not determine the best kernel, because the hyperparameters were fitted to the
same rows. An average avoids this choice, and its variance is larger at points where the kernels disagree.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

PRIOR = 5.0
"""The prior weight of each candidate, in rows. Without it, sums of kernels with too many hyperparameters get all of the
weight (`benchmarks.races.defaults`)."""
LEAST = 0.02
"""The weight below which a candidate is dropped."""
_STEPS = 1000
"""The largest number of steps of expectation maximization."""


def stacking_weights(
    log_probs: Sequence[Tensor],  # (n,) each
    counts: Tensor,  # (n,)
) -> list[float]:
    """Return the stacking weights under a Dirichlet prior.

    They are 0 below `LEAST`. The prior adds `PRIOR` rows to each candidate. The objective is concave, and maximized by
    expectation maximization.

    Source: Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive distributions",
    Bayesian Analysis 13(3), Section 3.2, without the prior.

    Args:
        log_probs: The log densities of each row given all others, by each candidate.
        counts: The number of observations of each row.

    Returns:
        The weight of each candidate. The weights sum to 1.
    """
    log_likelihoods = torch.stack(list(log_probs), dim=1).double()  # (n, k)
    likelihoods = (log_likelihoods - log_likelihoods.max(1, keepdim=True).values).exp()
    num_candidates = likelihoods.shape[1]
    weights = torch.full_like(likelihoods[0], 1 / num_candidates)
    total = counts.sum() + PRIOR * num_candidates
    for _ in range(_STEPS):
        shares = likelihoods * weights
        shares = counts[:, None] * shares / shares.sum(1, keepdim=True)
        new = (shares.sum(0) + PRIOR) / total
        has_converged = bool((new - weights).abs().max() < 1e-6)
        weights = new
        if has_converged:
            break
    kept = torch.where(weights >= min(LEAST, float(weights.max())), weights, 0.0)
    return [float(weight) for weight in kept / kept.sum()]
