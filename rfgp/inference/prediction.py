"""Predictions: the law of the latent function at some points, lazily."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rfgp import random
from rfgp.inference.laws import Law


@dataclass(frozen=True, eq=False)
class Prediction:
    """The joint Gaussian law at n points, in the user's units.

    `mean`, `variance`, `covariance` and `sample` are computed when asked for. They are numpy arrays
    if the inputs of `predict` were, tensors of the inputs' dtype and device otherwise. Without
    noise the law is that of the latent function; `observed()` adds the noise.

    Attributes:
        law: The latent law, standardised.
        location: The user's value is location + scale * standardised value.
        scale: Likewise.
        noise: The noise variance, standardised, () or (n,).
        template: An empty tensor of the dtype and device of the results.
        as_numpy: Whether results are numpy arrays.
        has_noise: Whether the noise is part of the law.
    """

    law: Law
    location: Tensor
    scale: Tensor
    noise: Tensor
    template: Tensor
    as_numpy: bool
    has_noise: bool = False

    def observed(self) -> "Prediction":
        """Return the law of observations at these points: the same plus independent noise."""
        return replace(self, has_noise=True)

    @property
    def mean(self) -> Any:
        """The mean (n,)."""
        return self._out(self.mean_tensor())

    @property
    def variance(self) -> Any:
        """The marginal variances (n,)."""
        return self._out(self.variance_tensor())

    @property
    def covariance(self) -> Any:
        """The covariance matrix (n, n)."""
        return self._out(self.covariance_tensor())

    def sample(self, num_samples: int, *, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law.

        Args:
            num_samples: k.
            generator: A CPU generator; None: a fresh one, seeded by the system.

        Returns:
            (k, n).
        """
        generator = generator or torch.Generator().manual_seed(random.resolve_seed(None))
        root = self.law.root()
        standard = torch.randn(num_samples, root.shape[1], generator=generator, dtype=root.dtype)
        values = self.law.mean() + standard.to(root.device) @ root.mT
        if self.has_noise:
            noise = torch.randn(values.shape, generator=generator, dtype=root.dtype).to(root.device)
            values = values + self.noise.double().sqrt() * noise
        return self._out(self.location + self.scale * values)

    def mean_tensor(self) -> Tensor:
        """Return the mean (n,), float64 tensor."""
        return self.location + self.scale * self.law.mean()

    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,), float64 tensor."""
        return self.scale**2 * (self.law.variance() + self._noise())

    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n), float64 tensor."""
        covariance = self.law.covariance()
        return self.scale**2 * (covariance + torch.diag(self._noise().expand(len(covariance))))

    def _noise(self) -> Tensor:
        return self.noise.double() if self.has_noise else torch.zeros_like(self.noise, dtype=torch.float64)

    def _out(self, value: Tensor) -> Any:
        value = value.detach() if self.as_numpy else value
        value = value.to(self.template)
        return value.cpu().numpy() if self.as_numpy else value


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The law of each of n observations given all the others, in the user's units; arrays or tensors.

    Attributes:
        mean: (n,)
        variance: (n,) of the observation, noise included.
        log_density: (n,) of what was observed; its mean is the leave-one-out log predictive density of a row.
    """

    mean: Any
    variance: Any
    log_density: Any

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, y: Tensor, as_numpy: bool) -> "LeaveOneOut":
        """Return the laws with means (n,) and variances (n,) of observations y (n,)."""
        density = -0.5 * ((y.double() - mean).square() / variance + (2 * torch.pi * variance).log())
        out = (value.to(y) for value in (mean, variance, density))
        return cls(*(value.cpu().numpy() if as_numpy else value for value in out))
