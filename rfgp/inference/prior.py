"""Zero-mean Gaussian priors on functions, given by features or by a kernel, and their posteriors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.laws import KernelPredictor, Predictor, RowPredictor, WeightPredictor
from rfgp.inference.posterior import DualPosterior, Posterior, PrimalPosterior, RowPosterior


@dataclass(frozen=True, eq=False)
class FeaturePrior:
    """f = Phi w, w ~ N(0, I).

    Attributes:
        features: Maps inputs to Phi (n, F).
        num_features: F.
    """

    features: Callable[[Tensor], Tensor]
    num_features: int

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return Phi(a) Phi(b)^T, (n_a, n_b), float64."""
        return self.features(a).double() @ self.features(b).double().mT

    def diagonal(self, a: Tensor) -> Tensor:
        """Return |phi(a_i)|^2, (n_a,)."""
        return self.features(a).double().square().sum(-1)

    def restore(self, tensors: Mapping[str, Tensor]) -> Predictor:
        """Return the predictor whose `tensors` these are: weights (F,) with factor (F, F) or rows (n, F)."""
        kind = RowPredictor if "rows" in tensors else WeightPredictor
        return kind(self.features, **tensors)


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
        """Return the predictor whose `tensors` these are: inputs, coefficients (n,), factor (n, n)."""
        return KernelPredictor(self.kernel, self.diagonal, **tensors)


def posterior(prior: FeaturePrior | KernelPrior, inputs: Tensor, y: Tensor, noise: Tensor) -> Posterior:
    """Return the posterior: through F x F algebra where features are fewer than data, else n x n.

    Args:
        prior: The prior.
        inputs: The n training inputs.
        y: (n,), with the mean taken off.
        noise: Variance, () or (n,).
    """
    if isinstance(prior, FeaturePrior):
        kind = PrimalPosterior if prior.num_features <= len(y) else RowPosterior
        return kind(prior.features, inputs, y, torch.as_tensor(noise))
    return DualPosterior(prior.kernel, prior.diagonal, inputs, y, torch.as_tensor(noise))
