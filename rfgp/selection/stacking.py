"""Averages of exact Gaussian processes whose scores are close.

With few rows, leave-one-out scores do not determine the best kernel, because the hyperparameters were fitted to the
same rows. An average avoids this choice, and its variance is larger at points where the kernels disagree.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

PRIOR_ROWS = 5.0
"""The prior weight of each candidate, in rows. Without it, sums of kernels with too many hyperparameters get all of the
weight (`benchmarks.races.defaults`)."""
MIN_WEIGHT = 0.02
"""The weight below which a candidate is dropped."""
_MAX_STEPS = 1000
"""The maximum number of steps of expectation maximization."""


def stacking_weights(
    log_probs: Sequence[Tensor],  # (n,) each
    counts: Tensor,  # (n,)
) -> list[float]:
    """Return the stacking weights under a Dirichlet prior.

    They are 0 below `MIN_WEIGHT`. The prior adds `PRIOR_ROWS` rows to each candidate. The objective is concave, and
    maximized by expectation maximization.

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
    total = counts.sum() + PRIOR_ROWS * num_candidates
    for _ in range(_MAX_STEPS):
        responsibilities = likelihoods * weights
        responsibilities = counts[:, None] * responsibilities / responsibilities.sum(1, keepdim=True)
        updated = (responsibilities.sum(0) + PRIOR_ROWS) / total
        has_converged = bool((updated - weights).abs().max() < 1e-6)
        weights = updated
        if has_converged:
            break
    large = torch.where(weights >= min(MIN_WEIGHT, float(weights.max())), weights, 0.0)
    return [float(weight) for weight in large / large.sum()]
