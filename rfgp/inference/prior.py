"""Zero-mean Gaussian priors on functions, given by features or by a kernel, and their posteriors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.laws import KernelPredictor, Predictor, RowPredictor, WeightPredictor
from rfgp.inference.posterior import DualPosterior, Posterior, RowPosterior
from rfgp.inference.primal import PrimalPosterior


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
        return phi if self.variance is None else self.variance.sqrt() * phi

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return Phi(a) Phi(b)^T, (n_a, n_b), float64."""
        return self.scaled(a).double() @ self.scaled(b).double().mT

    def diagonal(self, a: Tensor) -> Tensor:
        """Return |phi(a_i)|^2, (n_a,)."""
        return self.scaled(a).double().square().sum(-1)

    def restore(self, tensors: Mapping[str, Tensor]) -> Predictor:
        """Return the predictor whose `tensors` these are: weights (F,) with factor (F, F) or rows (n, F)."""
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
        if prior.num_features > len(y):
            return RowPosterior(prior.scaled, inputs, y, torch.as_tensor(noise))
        return PrimalPosterior(prior.features, inputs, y, torch.as_tensor(noise), prior.parameters, prior.variance)
    return DualPosterior(prior.kernel, prior.diagonal, inputs, y, torch.as_tensor(noise))
