"""Averages of the candidates for few rows, in place of the one that seems best.

Where hyperparameters are found on few rows, the rows that are left out do not tell which kernel is best: they have
been seen. An average of the posteriors needs no such choice, and it knows where they disagree.

On random 100, 200 and 400 rows of the eleven tables that this was designed on (three splits each, up to 2,000 other
rows to judge by) the average is ahead of scikit-learn's Gaussian process by .05, .09 and .10 nats a row in the median,
and behind by .27, .06 and .06 at most (`python -m benchmarks.races.defaults --rows 100 --seeds 3 --racers
default,sklearn`). One of the kernels, taken by rows left out or by the evidence, was ahead by .00, .00 and .06 on other
such splits, and behind by 10, 318 and 1 at most, where a noise went to zero.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rfgp.choosing.entries import Entry
from rfgp.regression import Measurement

PRIOR = 5.0
"""Rows for which each candidate counts before there are any: of 0, 2, 5, 10 and 20 the one that was best on the tables
above. Without a prior sums of kernels with too many hyperparameters get all of the weight."""
LEAST = 0.02
"""The share below which a candidate is left out. Those that are far behind keep the share of the prior: where all
others are too sure, as those are that interpolate a hundred rows, it is what holds the mixture's tails."""
TAILS, QUIET = 0.01, 1e-3
"""The share of a candidate with noise where no other has any; and noise, in the targets' variance, that is as good as
none."""
_STEPS = 1000


def stacking_weights(
    densities: Sequence[Tensor],  # (n,) each
    counts: Tensor,  # (n,)
) -> list[float]:
    """Return the weights under which rows that are left out are likeliest by the mixture, and a Dirichlet prior.

    The prior adds PRIOR rows to each candidate. By expectation maximisation: the objective is concave.

    Source: Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive distributions",
    Bayesian Analysis 13(3), Section 3.2; there without a prior.

    Args:
        densities: Log densities of each row given all others, by each candidate.
        counts: How often a row counts.
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


def mean_and_error(
    values: Tensor,  # (b,)
    weight: Tensor,  # (b,)
) -> tuple[float, float]:
    """Return the weighted mean of independent values (b,) and its standard error."""
    share = weight / weight.sum()
    mean = float((share * values).sum())
    error = math.sqrt(float((share.square() * (values - mean).square()).sum()))
    return mean, error * math.sqrt(len(values) / max(len(values) - 1, 1))


def measured(
    densities: Sequence[Tensor],  # (b,) each
    weight: Tensor,  # (b,)
    rows: Sequence[int],
) -> list[Measurement]:
    """Return what candidates that were fitted to so many rows each come to, and how far each is behind the best."""
    means = [mean_and_error(density, weight) for density in densities]
    best = densities[max(range(len(means)), key=lambda number: means[number][0])]
    triples = zip(rows, means, densities, strict=True)
    return [Measurement(n, *mean, *mean_and_error(best - density, weight)) for n, mean, density in triples]


def shares(
    densities: Sequence[Tensor],  # (n,) each
    counts: Tensor,  # (n,)
) -> list[float]:
    """Return the shares of candidates in their average, 0 of those that would have little.

    Args:
        densities: As for `stacking_weights`.
        counts: Likewise.
    """
    weights = stacking_weights(densities, counts)
    kept = [weight if weight >= min(LEAST, max(weights)) else 0.0 for weight in weights]
    return [weight / sum(kept) for weight in kept]


def with_tails(parts: list[tuple[Entry, float]], entries: Sequence[Entry]) -> list[tuple[Entry, float]]:
    """Return the parts of an average, with the likeliest candidate that sees noise beside them where they see none.

    It has the hyperparameters that were found last, if of few rows. Of 2,000 rows of protein none have a twin, so that
    rough kernels find no noise; a new row that is a twin with another value then cost two million nats.
    """
    seen = [each for each in entries if each.found is not None and each.noise > QUIET]
    if not seen or any(entry.noise > QUIET for entry, _ in parts):
        return parts
    holder = max(seen, key=lambda entry: entry.density)
    return [*((entry, (1 - TAILS) * weight) for entry, weight in parts), (holder, TAILS)]


def mixture_density(
    densities: Sequence[Tensor],  # (n,) each
    weights: Sequence[float],
) -> Tensor:  # (n,)
    """Return the log densities of a mixture, from those of its parts."""
    each = torch.stack(list(densities), dim=1)
    return torch.logsumexp(each + each.new_tensor(weights).log(), dim=1)
