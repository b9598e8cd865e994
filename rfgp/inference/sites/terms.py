"""Sums of log densities over rows, with the derivatives that sites need."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.role import MIN_CURVATURE
from rfgp.rows import Block


class LikelihoodTerms(NamedTuple):
    """The log density of rows at latent values f, with derivatives, times the counts.

    Attributes:
        value: The log density of all rows, 0-d.
        gradient: Its derivatives g, (n,).
        weight: The curvature W of the Laplace approximation, positive, (n,).
        weight_slope: The derivatives dW / df, (n,).
        curvature: The negative second derivatives, (n,). They may be negative.
        majorizer: Positive upper bounds of the curvature, (n,).
    """

    value: Tensor
    gradient: Tensor
    weight: Tensor
    weight_slope: Tensor
    curvature: Tensor
    majorizer: Tensor


@dataclass(frozen=True, eq=False)
class RowLikelihood:
    """Rows under a likelihood.

    Latent values exclude the log exposures of the rows.

    Attributes:
        likelihood: The likelihood, with values of all its parameters.
        rows: The rows, with one target each.
    """

    likelihood: Likelihood
    rows: Block

    @property
    def targets(self) -> Tensor:
        """The targets (n,)."""
        return self.rows.targets[:, 0]

    def terms(self, f: Tensor) -> LikelihoodTerms:
        """Return the log density of the rows with its derivatives.

        Args:
            f: The latent values, (n,).
        """
        shifted, counts = f + self.rows.log_exposure(), self.rows.counts()
        slopes = self.likelihood.slopes(self.targets, shifted)
        weight, weight_slope = self.likelihood.information(slopes, shifted)
        majorizer = self.likelihood.majorizer(slopes, self.targets, shifted)
        return LikelihoodTerms(
            (slopes.value * counts).sum(),
            slopes.first * counts,
            (weight * counts).clamp_min(MIN_CURVATURE),
            weight_slope * counts,
            -slopes.second * counts,
            (majorizer * counts).clamp_min(MIN_CURVATURE),
        )

    def log_prob(self, f: Tensor) -> Tensor:
        """Return the log density of all rows, 0-d, or -inf if it is not finite.

        Args:
            f: The latent values, (n,) or (n, C).
        """
        offset = self.rows.log_exposure() if f.ndim == 1 else self.rows.log_exposure()[:, None]
        total = (self.likelihood.log_prob(self.targets, f + offset) * self.rows.counts()).sum()
        return torch.where(torch.isfinite(total), total, -torch.inf)

    def parameter_objective(self, f: Tensor, change: Tensor, variance: Tensor) -> Tensor:
        """Return a sum, 0-d, with the gradient of the evidence in the likelihood.

        The sum is log p(y | f) + change^T g - variance^T W / 2, with constant latent values.

        Args:
            f: The mode, (n,).
            change: The product K u of `rfgp.inference.sites.laplace`, (n,).
            variance: The posterior variances of f, (n,).
        """
        shifted = f + self.rows.log_exposure()
        slopes = self.likelihood.slopes(self.targets, shifted)
        weight, _ = self.likelihood.information(slopes, shifted)
        return (self.rows.counts() * (slopes.value + change * slopes.first - 0.5 * variance * weight)).sum()


def cavity(f: Tensor, variance: Tensor, terms: LikelihoodTerms) -> tuple[Tensor, Tensor]:
    """Return the mean (n,) and variance (n,) of f at each row without its own site.

    The mode of the other rows is not searched again (Laplace's cavity).

    Args:
        f: The mode, (n,).
        variance: The posterior variances, (n,).
        terms: The derivatives at the mode.
    """
    without = variance / (1 - variance * terms.weight).clamp_min(1e-12)
    return f - without * terms.gradient, without
