"""Scores of candidates: mean log densities of validation rows, with standard errors."""

import math
from collections.abc import Sequence

from torch import Tensor

from rfgp.regression import Score


def mean_and_error(
    values: Tensor,  # (b,)
    weight: Tensor,  # (b,)
) -> tuple[float, float]:
    """Return the weighted mean of independent values (b,) and its standard error."""
    share = weight / weight.sum()
    mean = float((share * values).sum())
    error = math.sqrt(float((share.square() * (values - mean).square()).sum()))
    return mean, error * math.sqrt(len(values) / max(len(values) - 1, 1))


def scores_of(
    densities: Sequence[Tensor],  # (b,) each
    weight: Tensor,  # (b,)
    rows: Sequence[int],
) -> list[Score]:
    """Return the scores of candidates, and the difference of each from the best.

    Args:
        densities: The log densities of validation rows by each candidate.
        weight: The number of times that each row counts.
        rows: The number of rows that each candidate was fitted to.
    """
    means = [mean_and_error(density, weight) for density in densities]
    best = densities[max(range(len(means)), key=lambda number: means[number][0])]
    triples = zip(rows, means, densities, strict=True)
    return [Score(n, *mean, *mean_and_error(best - density, weight)) for n, mean, density in triples]
