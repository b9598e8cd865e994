"""Laws of the latent function at some points: what gives them, standardised and lazily; and in the user's units."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import Cached, plain
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.scaling import Affine

Functions = Callable[[Tensor], Tensor]

ENTRIES = 2**22
"""Of the features, or of the covariances with the data, of a chunk of points."""


class InputBlocks(Protocol):
    """Standardised inputs that are not in memory at once."""

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield the inputs in blocks (b, d) of about `size` rows."""


class Law(Protocol):
    """The role: the joint Gaussian law of the latent function at n points, float64; k outputs share the covariance."""

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""


class Posterior(Protocol):
    """The role: maps inputs to the latent law there."""

    def law(self, inputs: Any) -> Law:
        """Return the latent law at n inputs, tables (n, d) or positions (n,), or blocks of them."""

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior of the latent function: a map of inputs of n points to (count, n, k).

        Args:
            count: How many.
            generator: On the CPU.

        Raises:
            InvalidArgumentError: the prior has no functions to draw.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return by name the tensors that `restore` takes: weights (F, k) or coefficients (n, k) too."""


class ChunkedPosterior(ABC):
    """A posterior by what ties inputs to the data, which is computed for chunks of them."""

    def law(self, inputs: Tensor | InputBlocks) -> "ChunkedLaw":
        """Return the latent law at n inputs, tables (n, d) or positions (n,)."""
        return ChunkedLaw(self, inputs)

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns of what `prepare` returns."""

    @abstractmethod
    def prepare(self, inputs: Tensor) -> Tensor:
        """Return what ties n inputs to the data: features (n, F), or covariances with the training inputs."""

    @abstractmethod
    def mean(self, prepared: Tensor) -> Tensor:
        """Return the mean (n, k) for what `prepare` returned."""

    @abstractmethod
    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""

    @abstractmethod
    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n)."""

    def root(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return root_of(self.covariance(inputs, prepared))

    @abstractmethod
    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior: a map of inputs of n points to (count, n, k)."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return by name the tensors that `restore` takes: weights (F, k) or coefficients (n, k) too."""


@dataclass(frozen=True, eq=False)
class ChunkedLaw:
    """The law that a `ChunkedPosterior` gives.

    Attributes:
        posterior: What the data say.
        inputs: The points, tables (n, d) or positions (n,), or blocks of them.
    """

    posterior: ChunkedPosterior
    inputs: Tensor | InputBlocks

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        return torch.cat([self.posterior.mean(prepared) for _, prepared in self._chunks()])

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        return torch.cat([self.posterior.variance(x, prepared) for x, prepared in self._chunks()])

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        return self.posterior.covariance(*self._whole)

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return self.posterior.root(*self._whole)

    @property
    def _size(self) -> int:
        return max(1, ENTRIES // max(self.posterior.width, 1))

    @Cached
    def _whole(self) -> tuple[Tensor, Tensor]:
        if not isinstance(self.inputs, Tensor):
            raise InvalidArgumentError(
                "The joint law of rows that are read in blocks would not fit in memory. Ask for mean and variance, or "
                "predict at an array of some of the rows."
            )
        return self.inputs, self.posterior.prepare(self.inputs).double()

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield some inputs and what is prepared for them; where one chunk holds them all, that is kept."""
        if isinstance(self.inputs, Tensor) and len(self.inputs) <= self._size:
            yield self._whole
            return
        blocks = (
            torch.split(self.inputs, self._size) if isinstance(self.inputs, Tensor) else self.inputs.blocks(self._size)
        )
        for x in blocks:
            yield x, self.posterior.prepare(x).double()


def normal_log_density(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return the log density of each of some values (...) under normal laws."""
    return -0.5 * ((y - mean).square() / variance + (2 * torch.pi * variance).log())


def root_of(covariance: Tensor) -> Tensor:
    """Return a matrix R (n, n) with R R^T a covariance (n, n), whose eigenvalues below 0 count as 0."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = vectors * values.clamp_min(0).sqrt()
    return root


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

    @plain()
    def sample(self, num_samples: int, *, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law.

        Args:
            num_samples: s.
            generator: A CPU generator; None: a fresh one, seeded by the system.

        Returns:
            (s, n) or (s, n, k).
        """
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = generator or torch.Generator().manual_seed(random.resolve_seed(None))
        root, mean = self.law.root(), self.law.mean()
        count = (num_samples, mean.shape[1])
        standard = torch.randn(*count, root.shape[1], generator=generator, dtype=root.dtype)
        values = mean + (standard.to(root.device) @ root.mT).mT
        if self.has_noise:
            noise = torch.randn(*count, len(root), generator=generator, dtype=root.dtype).to(root.device)
            values = values + (self._noise().sqrt() * noise).mT
        return self._out(self._to_units(values))

    @plain()
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
        return self._out(normal_log_density(values, mean, variance))

    @plain()
    def mean_tensor(self) -> Tensor:
        """Return the mean (n,) or (n, k), float64 tensor."""
        return self._to_units(self.law.mean())

    @plain()
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,) or (n, k), float64 tensor."""
        return self._per_output(self.law.variance() + self._noise())

    @plain()
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
        density = normal_log_density(y, mean, variance)
        out = (value if scale.ndim else value[:, 0] for value in (mean, variance, density))
        out = (value.to(to_units.scale.dtype) for value in out)
        return cls(*(value.cpu().numpy() if as_numpy else value for value in out))
