"""Predictions: the law of the latent function at some points, lazily."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import InvalidArgumentError
from rfgp.inference.laws import Law
from rfgp.scaling import Affine


@dataclass(frozen=True, eq=False)
class Prediction:
    """The joint Gaussian law at n points, in the user's units; with k outputs, independent ones, an axis more.

    `mean`, `variance`, `covariance` and `sample` are computed when asked for. They are numpy arrays
    if the inputs of `predict` were, tensors of the inputs' dtype and device otherwise. Without
    noise the law is that of the latent function; `observed()` adds the noise.

    Attributes:
        law: The latent law, standardised.
        location: The user's value is location + scale * standardised value; () or (k,).
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
        """The mean, (n,) or (n, k)."""
        return self._out(self.mean_tensor())

    @property
    def variance(self) -> Any:
        """The marginal variances, (n,) or (n, k)."""
        return self._out(self.variance_tensor())

    @property
    def covariance(self) -> Any:
        """The covariance matrix, (n, n) or (n, n, k)."""
        return self._out(self.covariance_tensor())

    def sample(self, num_samples: int, *, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law.

        Args:
            num_samples: s.
            generator: A CPU generator; None: a fresh one, seeded by the system.

        Returns:
            (s, n) or (s, n, k).
        """
        if isinstance(num_samples, bool) or not isinstance(num_samples, int | np.integer) or num_samples < 0:
            raise InvalidArgumentError(f"num_samples must be an integer that is not negative, got {num_samples!r}.")
        generator = generator or torch.Generator().manual_seed(random.resolve_seed(None))
        root, mean = self.law.root(), self.law.mean()
        count = (int(num_samples), mean.shape[1])
        standard = torch.randn(*count, root.shape[1], generator=generator, dtype=root.dtype)
        values = mean + (standard.to(root.device) @ root.mT).mT
        if self.has_noise:
            noise = torch.randn(*count, len(root), generator=generator, dtype=root.dtype).to(root.device)
            values = values + (self._noise().sqrt() * noise).mT
        return self._out(self._to_units(values))

    def log_density(self, y: Any) -> Any:
        """Return the log density of each value under its marginal law; `observed().log_density(y)` for observations.

        Its mean over held-out observations is the log predictive density of a point, the negative of
        `rfgp.metrics.nlpd`.

        Args:
            y: Values (n,) or (n, k), in the user's units.

        Returns:
            (n,) or (n, k).

        Raises:
            InvalidArgumentError: y has another shape than the mean.
        """
        mean, variance = self.mean_tensor(), self.variance_tensor()
        try:
            values = (y if isinstance(y, Tensor) else torch.as_tensor(np.array(y, dtype=np.float64))).to(mean)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"y is not an array of numbers: {str(error)[:100]}.") from error
        if values.shape != mean.shape:
            raise InvalidArgumentError(f"y has shape {tuple(values.shape)}, the mean {tuple(mean.shape)}.")
        return self._out(-0.5 * ((values - mean).square() / variance + (2 * torch.pi * variance).log()))

    def mean_tensor(self) -> Tensor:
        """Return the mean (n,) or (n, k), float64 tensor."""
        return self._to_units(self.law.mean())

    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,) or (n, k), float64 tensor."""
        return self._per_output(self.law.variance() + self._noise())

    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n) or (n, n, k), float64 tensor."""
        covariance = self.law.covariance()
        return self._per_output(covariance + torch.diag(self._noise().expand(len(covariance))))

    def _to_units(self, values: Tensor) -> Tensor:
        """Return standardised values (..., k) in the user's units, without the last axis where there is one output."""
        out = self.location + self.scale * values
        return out[..., 0] if self.location.ndim == 0 else out

    def _per_output(self, variance: Tensor) -> Tensor:
        """Return standardised variances in the user's units, with an axis more where there are several outputs."""
        return self.scale**2 * (variance[..., None] if self.scale.ndim else variance)

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
        mean: (n,) or (n, k).
        variance: Of the observation, noise included, (n,) or (n, k).
        log_density: Of what was observed, (n,) or (n, k); its mean is the leave-one-out log predictive density of a
            value.
    """

    mean: Any
    variance: Any
    log_density: Any

    @classmethod
    def of(
        cls,
        mean: Tensor,  # (n, k)
        variance: Tensor,  # (n,)
        y: Tensor,  # (n, k)
        to_units: Affine,
        as_numpy: bool,
    ) -> "LeaveOneOut":
        """Return the laws of standardised observations y (n, k) in the user's units."""
        scale = to_units.scale.double()
        mean, y = (to_units.location.double() + scale * value for value in (mean, y))
        variance = (scale**2 * variance[:, None]).expand_as(mean)
        density = -0.5 * ((y - mean).square() / variance + (2 * torch.pi * variance).log())
        out = (value if scale.ndim else value[:, 0] for value in (mean, variance, density))
        out = (value.to(to_units.scale.dtype) for value in out)
        return cls(*(value.cpu().numpy() if as_numpy else value for value in out))
