"""Zero-mean Gaussian priors on functions, given by features or by a kernel, and their posteriors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.laws import KernelPredictor, Predictor, RowPredictor, WeightPredictor
from rfgp.inference.linear import LinearModel
from rfgp.inference.posterior import DualPosterior, Posterior, RowPosterior
from rfgp.inference.primal import PrimalPosterior
from rfgp.inference.rows import Rows, gathered


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
    """

    kernel: Callable[[Tensor, Tensor], Tensor]
    diagonal: Callable[[Tensor], Tensor]

    def restore(self, tensors: Mapping[str, Tensor]) -> Predictor:
        """Return the predictor whose `tensors` these are: inputs, coefficients (n, k), factor (n, n)."""
        return KernelPredictor(self.kernel, self.diagonal, **tensors)


def posterior(prior: FeaturePrior | KernelPrior, rows: Rows, mean: Tensor, noise: Tensor) -> Posterior:
    """Return the posterior: through F x F algebra where features are fewer than data, else n x n, all in memory.

    Args:
        prior: The prior.
        rows: The data.
        mean: (k,).
        noise: Variance of one observation, beside what its row knows, 0-d.
    """
    mean, noise = mean.double(), noise.double()
    if isinstance(prior, KernelPrior):
        return DualPosterior(prior.kernel, prior.diagonal, gathered(rows), mean, noise)
    if prior.num_features > len(rows):
        return RowPosterior(prior.scaled, gathered(rows), mean, noise)
    return PrimalPosterior(prior.model(rows, mean, noise))
