"""Zero-mean Gaussian priors on functions, given by features or by a kernel, and their posteriors."""

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rfgp.features import gram
from rfgp.inference.laws import KernelPredictor, Predictor, PriorFunctions, RowPredictor, WeightPredictor
from rfgp.inference.linear import LinearModel
from rfgp.inference.posterior import DualPosterior, Posterior, RowPosterior
from rfgp.inference.primal import PrimalPosterior
from rfgp.inference.rows import Rows, gathered
from rfgp.inference.sparse import SparseFeatures, SparsePosterior, SparsePredictor

MOST_DENSE = 4000
"""Rows up to which a matrix of all pairs is factorised where features are sparse."""


@dataclass(frozen=True, eq=False)
class FeaturePrior:
    """f = phi w, w ~ N(0, s^2 I).

    Attributes:
        features: Maps inputs, and `parameters` after them, to phi (n, F).
        num_features: F.
        parameters: Tensors that the features depend on.
        variance: s^2, 0-d; None: 1.
    """

    features: Callable[..., Tensor]
    num_features: int
    parameters: tuple[Tensor, ...] = ()
    variance: Tensor | None = None

    def scaled(self, inputs: Tensor) -> Tensor:
        """Return Phi = s phi, (n, F)."""
        phi: Tensor = self.features(inputs, *self.parameters)
        return phi if self.variance is None else self.variance.double().sqrt() * phi

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return Phi(a) Phi(b)^T, (n_a, n_b), float64."""
        return self.scaled(a).double() @ self.scaled(b).double().mT

    def diagonal(self, a: Tensor) -> Tensor:
        """Return |phi(a_i)|^2, (n_a,)."""
        return self.scaled(a).double().square().sum(-1)

    def model(self, rows: Rows, mean: Tensor, noise: Tensor) -> LinearModel:
        """Return the model of the rows, with mean (k,) and noise 0-d."""
        variance = torch.ones_like(noise) if self.variance is None else self.variance
        mean, noise, variance = mean.double(), noise.double(), variance.double()
        return LinearModel(self.features, rows, mean, noise, variance, self.num_features, self.parameters)

    def restore(self, tensors: Mapping[str, Tensor]) -> Predictor:
        """Return the predictor whose `tensors` these are: weights (F, k) with factor (F, F) or rows (n, F)."""
        kind = RowPredictor if "rows" in tensors else WeightPredictor
        return kind(self.scaled, **tensors)


@dataclass(frozen=True, eq=False)
class KernelPrior:
    """f with a covariance function.

    Attributes:
        kernel: (a, b) -> (n_a, n_b).
        diagonal: a -> (n_a,).
        functions: Of the prior, where it has some.
    """

    kernel: Callable[[Tensor, Tensor], Tensor]
    diagonal: Callable[[Tensor], Tensor]
    functions: PriorFunctions | None = None

    def restore(self, tensors: Mapping[str, Tensor]) -> Predictor:
        """Return the predictor whose `tensors` these are: inputs, coefficients (n, k), factor (n, n)."""
        return KernelPredictor(self.kernel, self.diagonal, **tensors, functions=self.functions)


@dataclass(frozen=True, eq=False)
class SparsePrior:
    """f = s phi w, w ~ N(0, I), with sparse phi.

    Attributes:
        features: The features of positions, and s^2.
    """

    features: SparseFeatures

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s^2 Phi(a) Phi(b)^T, (n_a, n_b), dense; what is drawn for b is kept."""
        right = self.features.at(b, True)
        left = right if a is b else self.features.at(a, False)
        return self.features.variance * gram(left.values, left.pattern, right.values, right.pattern)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return s^2 |phi(a_i)|^2, (n_a,)."""
        values, pattern = self.features.at(a, False)
        rows = torch.from_numpy(np.repeat(np.arange(len(a)), np.diff(pattern.indptr)))
        return self.features.variance * values.new_zeros(len(a)).index_add(0, rows, values.square())

    def restore(self, tensors: Mapping[str, Tensor]) -> Predictor:
        """Return the predictor whose `tensors` these are: draws (n, m) or a factor (n, n) beside the inputs."""
        if "draws" in tensors:
            return SparsePredictor(self.features, **tensors)
        return KernelPredictor(self.kernel, self.diagonal, **tensors, functions=self)

    def draw(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions of n positions, (n, count)."""
        weights = torch.randn(self.features.num_columns, count, generator=generator, dtype=torch.float64)
        return self.features.functions(float(self.features.variance) ** 0.5 * weights)

    def through(self, inputs: Tensor, coefficients: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> s^2 phi_x Phi^T coefficients, for positions (n,) and coefficients (n, p)."""
        weights = self.features.at(inputs, True).matrix().T @ coefficients.numpy()
        return self.features.functions(float(self.features.variance) * torch.from_numpy(weights))


Prior = FeaturePrior | KernelPrior | SparsePrior
"""A zero-mean prior on functions."""


def iterates(prior: Prior, rows: Sized) -> bool:
    """Whether the posterior given so many rows is computed by conjugate gradients."""
    return isinstance(prior, SparsePrior) and len(rows) > MOST_DENSE


def posterior(prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> Posterior:
    """Return the posterior: through F x F algebra where features are fewer than data, else n x n, all in memory.

    Through sparse features by conjugate gradients beyond 4,000 rows.

    Args:
        prior: The prior.
        rows: The data.
        mean: (k,).
        noise: Variance of one observation, beside what its row knows, 0-d.
    """
    mean, noise = mean.double(), noise.double()
    if isinstance(prior, KernelPrior):
        return DualPosterior(prior.kernel, prior.diagonal, gathered(rows), mean, noise, prior.functions)
    if isinstance(prior, SparsePrior):
        known = gathered(rows)
        if iterates(prior, known):
            return SparsePosterior(prior.features, known, mean, noise)
        return DualPosterior(prior.kernel, prior.diagonal, known, mean, noise, prior)
    if prior.num_features > len(rows):
        return RowPosterior(prior.scaled, gathered(rows), mean, noise)
    return PrimalPosterior(prior.model(rows, mean, noise))
