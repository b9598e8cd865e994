"""The posterior of the weights of features, and what points read of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.blocks import Prior, Weights
from rfgp.errors import InvalidArgumentError
from rfgp.solvers.lowrank.covariance import WeightCovariance
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import known_terms


@dataclass(frozen=True, eq=False)
class LowRankPosterior(Posterior):
    """f = Phi w, with the posterior of w; nothing else of the rows.

    Attributes:
        prior: Its features make Phi (n, F).
        weights: The posterior mean of the weights, (F, k).
        uncertainty: Their posterior covariance.
        terms: The names of the terms whose sum is predicted. If None, all.
    """

    prior: Prior
    weights: Tensor
    uncertainty: WeightCovariance
    terms: tuple[str, ...] | None = None

    stored = ("weights",)

    @property
    def width(self) -> int:
        """F."""
        return len(self.weights)

    @property
    def factor(self) -> Tensor | None:
        """The Cholesky factor (F, F) of the precision of the weights, by which rows can be added. None for F > n."""
        return self.uncertainty.tensors().get("factor")

    def project(self, inputs: Tensor) -> Tensor:
        """Return the features of n inputs, (n, F); those of other terms are 0."""
        phi = self.prior.dense.scaled(inputs).double()
        return phi if self.terms is None else phi * self.prior.dense.of(self.terms).to(phi)

    def mean(self, projected: Tensor) -> Tensor:
        """Return the mean (n, k) for features (n, F)."""
        return projected @ self.weights

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""
        return self.uncertainty.variance(projected) + self._residual.residual_variance(inputs, projected)

    def covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the covariance (n, n)."""
        known = self.uncertainty.between(projected, projected)
        return known + self._residual.residual_covariance(inputs, projected)

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        if self._residual.has_residual:
            return super().root(inputs, projected)
        return self.uncertainty.root(projected)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F, k), and factor (F, F) or rows (n, F)."""
        return super().tensors() | self.uncertainty.tensors()

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of weights, and factor or rows, for n rows and k outputs."""
        return {"weights": (self.prior.num_features, k), **self.uncertainty.shapes(n, self.prior.num_features)}

    @property
    def takes_rows(self) -> bool:
        """Whether further rows can be added without the old ones: if the factor is known."""
        return self.factor is not None

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw weights from their posterior: functions of n inputs, (count, n, k).

        Raises:
            InvalidArgumentError: the features are not all of the function.
        """
        if self.prior.dense.has_residual:
            raise InvalidArgumentError(
                "This process has no functions to draw: what its features miss is known at given points only. Sample "
                "from predict(X) there, or draw functions of redraw(diagonal=None)."
            )
        weights = self.weights + self.uncertainty.sample(count, *self.weights.shape, generator=generator)
        return lambda inputs: self.project(inputs) @ weights

    def of(self, names: Sequence[str]) -> "LowRankPosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: there is no such term.
        """
        return replace(self, terms=known_terms(self.prior, names))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between the sums of some terms and of others, at n inputs.

        Raises:
            InvalidArgumentError: there is no such term.
        """
        left, right = self.of(first).project(inputs), self.of(second).project(inputs)
        shared = self.of([name for name in first if name in second])
        residual = self.prior.dense.with_residuals_of(shared.terms)
        known = self.uncertainty.between(left, right)
        return known + residual.residual_covariance(inputs, shared.project(inputs))

    @property
    def _residual(self) -> Weights:
        """The weights with the residuals that are part of what is predicted."""
        return self.prior.dense.with_residuals_of(self.terms)
