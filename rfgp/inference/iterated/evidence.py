"""What rows say by conjugate gradients and draws, whatever the system; and the laws of its posteriors.

With C = H H^T + D, a = C^-1 (y - mean) and m draws w_j ~ N(0, C^-1), which conjugate gradients give:

- The latent function at x, h_x (u_j - H^T w_j) and h_x H^T w_j are independent draws from laws of variance v and e:
  what the data leave of the prior variance k = |h_x|^2, and what they explain. Since k = e + v is known, the mean
  squares of both estimate v: A from the first with the variance 2 v^2 / m, k - B from the second with 2 e^2 / m. Their
  best combination has the weights e^2 and v^2, hence the relative standard error sqrt(2 / m) e / sqrt(e^2 + v^2): that
  of m draws where the data explain all, and far less where they explain little.
- log |C| is estimated on the way (`rfgp.inference.iterated.systems`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.iterated.systems import Draws, System
from rfgp.inference.laws import Functions, InputBlocks, chunks_of, in_memory, root_of
from rfgp.inference.operators import LatentOperator
from rfgp.inference.posteriors import make_contiguous

TOLERANCE = 1e-9
"""Of the solve for the mean, relative."""
PATH_TOLERANCE = 1e-5
"""Of the solves for draws."""
NUM_PROBES, NUM_PATHS = 16, 64
"""Draws for gradients and the log determinant; and for variances."""
MOST_SOLVED, MOST_JOINT = 256, 2000
"""Points whose variances, and whose joint law, are computed to the tolerance of the solver, a solve each."""
_TENSORS = ("inputs", "noise_diag", "coefficients", "draws")
P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class IteratedPosterior(ABC, Generic[P]):
    """Through coefficients of the training rows, and draws, which are contiguous, as they come back from a file.

    Attributes:
        prior: Of the function.
        inputs: Of the training rows, positions (n,) or rows of a table (n, d).
        noise_diag: D (n,).
        coefficients: a (n, k).
        draws: w (n, m), of N(0, C^-1).
    """

    prior: P
    inputs: Tensor
    noise_diag: Tensor
    coefficients: Tensor
    draws: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, *_TENSORS)

    def law(self, inputs: Tensor | InputBlocks) -> "IteratedLaw":
        """Return the latent law at positions (n,) or rows (n, d), or blocks of them."""
        return IteratedLaw(self, inputs)

    def tensors(self) -> dict[str, Tensor]:
        """Return inputs (n,) or (n, d), noise_diag (n,), coefficients (n, k) and draws (n, m)."""
        return {name: getattr(self, name) for name in _TENSORS}

    @property
    @abstractmethod
    def chunk(self) -> int:
        """The most inputs of `moments`."""

    @abstractmethod
    def moments(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (n, k) and variance (n,) at some inputs, at most `chunk`."""

    @abstractmethod
    def joint(self, inputs: Tensor) -> Tensor:
        """Return the covariance (n, n) at some inputs."""

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the covariance at inputs of n points, which is not formed; None: it has to be."""
        return None

    @abstractmethod
    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior: a map of inputs of n points to (count, n, k)."""


class Solutions:
    """What conjugate gradients say of rows; nothing is solved before it is asked for.

    Args:
        system: In C.
        residual: y - mean, (n, k).
        each: How often the log density of an output counts, (k,).
    """

    def __init__(self, system: System, residual: Tensor, each: Tensor) -> None:
        self.system, self._residual, self._each = system, residual.detach(), each

    @cached_property
    def coefficients(self) -> Tensor:
        """The coefficients a = C^-1 (y - mean), (n, k)."""
        with torch.no_grad():
            return self.system.solve(self._residual, TOLERANCE)

    @cached_property
    def probes(self) -> Draws:
        """Draws for gradients and the log determinant."""
        return self.system.paths(NUM_PROBES, PATH_TOLERANCE)

    @cached_property
    def draws(self) -> Tensor:
        """Draws for variances, (n, m)."""
        return self.system.paths(NUM_PATHS, PATH_TOLERANCE).solved

    def log_density(self) -> Tensor:
        """Return an estimate of the log density of y, 0-d, without gradients."""
        n, k = len(self._residual), float(self._each.sum())
        square = (self._residual * self.coefficients).sum(0) @ self._each
        out: Tensor = -0.5 * (square + k * (self.probes.log_determinant.value + n * float(np.log(2 * np.pi))))
        return out

    @property
    def error(self) -> float:
        """The standard error of the log density."""
        return 0.5 * abs(float(self._each.sum())) * self.probes.log_determinant.error


@dataclass(frozen=True, eq=False)
class IteratedLaw:
    """The law that a posterior by conjugate gradients gives.

    Up to 256 points variances come from a solve for each; beyond they are estimated from draws, all points alike,
    with the relative standard error sqrt(2 / m) e / sqrt(e^2 + v^2) of the variance (half of that for the deviation).

    Attributes:
        posterior: What the data say.
        inputs: Positions (n,), or rows of a table (n, d), or blocks of them.
    """

    posterior: IteratedPosterior[Any]
    inputs: Tensor | InputBlocks

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        return self._moments[0]

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        if isinstance(self.inputs, Tensor) and len(self.inputs) <= MOST_SOLVED:
            return self.covariance().diagonal().clamp_min(0)
        return self._moments[1]

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        return self._covariance

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return root_of(self._covariance)

    def operator(self) -> LatentOperator | None:
        """Return the covariance (n, n), which is not formed; None where the posterior has no products with it."""
        return self.posterior.operator(in_memory(self.inputs))

    @cached_property
    def _covariance(self) -> Tensor:
        return self.posterior.joint(in_memory(self.inputs))

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        chunks = chunks_of(self.inputs, self.posterior.chunk)
        means, variances = zip(*[self.posterior.moments(x) for x in chunks], strict=True)
        return torch.cat(means), torch.cat(variances)


def combined(left: Tensor, explained: Tensor, prior: Tensor) -> Tensor:
    """Return the best estimate (n,) of variances that are estimated by `left` and by prior - `explained`, (n,) each."""
    share = explained.square() / (left.square() + explained.square()).clamp_min(torch.finfo(left.dtype).tiny)
    return torch.maximum(share * left + (1 - share) * (prior - explained), 0.1 * left)


def check_joint(count: int, points: str, advice: str, most: int | None = None) -> None:
    """Raise unless a joint law of so many points may be solved for.

    Args:
        count: How many they are.
        points: What they are called.
        advice: What else can be done.
        most: How many may be; None: 2,000.

    Raises:
        InvalidArgumentError: they are too many.
    """
    most = MOST_JOINT if most is None else most
    if count > most:
        raise InvalidArgumentError(
            f"A joint covariance of {count} {points} is asked for; at most {most} are solved for at once. Ask for "
            f"fewer{advice}."
        )
