"""The role of a likelihood: the law of an observation y given the value f of the latent function at its row."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import DataError, InvalidArgumentError

LEAST_CURVATURE = 1e-10
"""Of a row: where an observation says less than this of f, as much is taken."""


class Parameter(NamedTuple):
    """A positive number of a likelihood that is learned unless it is given."""

    name: str
    start: float
    bounds: tuple[float, float]
    has_unit: bool = False  # that of the targets, as a scale has


class Slopes(NamedTuple):
    """The log density of observations (n,), and its derivatives in f."""

    value: Tensor  # (n,)
    first: Tensor  # (n,)
    second: Tensor  # (n,)
    third: Tensor  # (n,)


class Begin(NamedTuple):
    """What targets tell of the latent function before a fit."""

    center: Tensor  # 0-d
    variance: Tensor  # 0-d


@dataclass(frozen=True, repr=False)
class Likelihood(ABC):
    """The law of an observation given the latent function; its fields are parameters, learned where they are None.

    Laws: derivatives are in closed form, of float64, and differentiable in the parameters, so that theirs in f and a
    parameter follow by differentiation. `information` is what the Laplace approximation takes for the negative second
    derivative: that itself where the log density is concave, else its mean over observations, which must not depend on
    f (Fisher information).
    """

    parameters: ClassVar[tuple[Parameter, ...]] = ()
    is_standardized: ClassVar[bool] = False
    """Whether targets are standardised: where they are shifted and scaled with f."""
    is_concave: ClassVar[bool] = True
    """Whether the log density is concave in f."""
    is_discrete: ClassVar[bool] = False
    """Whether observations are counts or labels."""
    lowest: ClassVar[float] = -torch.inf
    """The least observation that there may be."""

    def __post_init__(self) -> None:
        for name, value in self.given.items():
            number = torch.as_tensor(value)
            if number.ndim or not bool(torch.isfinite(number) & (number > 0)):
                raise InvalidArgumentError(f"{name} must be positive and finite, or None to be learned, got {number}.")

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that are not learned, by name."""
        known = {parameter.name for parameter in self.parameters}
        all_fields = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in all_fields.items() if name in known and value is not None}

    @property
    def learned(self) -> tuple[Parameter, ...]:
        """The parameters that are learned."""
        return tuple(parameter for parameter in self.parameters if parameter.name not in self.given)

    def at(self, numbers: Mapping[str, Tensor]) -> Self:
        """Return the likelihood with its learned parameters (0-d each) by name."""
        return replace(self, **numbers)

    def standardized(self, unit: float) -> Self:
        """Return the likelihood of targets that were divided by a unit, as a given scale is here."""
        given = {p.name: self.given[p.name] / unit for p in self.parameters if p.has_unit and p.name in self.given}
        return replace(self, **given)

    @property
    def num_latents(self) -> int:
        """The number of latent functions of a row."""
        return 1

    def seeing(self, y: Tensor) -> Self:
        """Return the likelihood with what it takes from its data (n,)."""
        return self

    @abstractmethod
    def check(self, y: Tensor) -> str | None:
        """Return what is wrong with the first of some targets (n,) that is no observation, in words; None: nothing."""

    @abstractmethod
    def begin(self, y: Tensor, weight: Tensor) -> Begin:
        """Return where the latent function may begin, from standardised targets (n,) that count so often, (n,)."""

    @abstractmethod
    def slopes(self, y: Tensor, f: Tensor) -> Slopes:
        """Return the log density of targets (n,) given f (n,), with its derivatives in f."""

    def log_density(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the log density of targets (...) given f (...), which broadcast."""
        return self.slopes(y, f).value

    def information(self, slopes: Slopes, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return the curvature W (n,) of the Laplace approximation at f (n,), and its derivative in f."""
        return -slopes.second, -slopes.third

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over observations given f, (n,)."""
        return -self.slopes(self.mean(f), f).second

    def uphill(self, slopes: Slopes, y: Tensor, f: Tensor) -> Tensor:
        """Return the curvature (n,), not negative, by which a step leads uphill: at least the log density's own."""
        return -slopes.second

    def mixture(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor | None:
        """Return the log density of y (n,) for f ~ N(mean, variance), (n,) each, where there is a form of its own."""
        return None

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return mean and variance of observations for f ~ N(mean, variance), (n,) each, where they have a form."""
        return None

    # --- the law of an observation given f -------------------------------------------------------

    @abstractmethod
    def mean(self, f: Tensor) -> Tensor:
        """Return the mean of an observation given f, (...) -> (...)."""

    @abstractmethod
    def variance(self, f: Tensor) -> Tensor:
        """Return the variance of an observation given f, (...) -> (...)."""

    @abstractmethod
    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...), which broadcast."""

    @abstractmethod
    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Draw an observation for each f, (...) -> (...)."""

    def __repr__(self) -> str:
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        told = ", ".join(f"{name}={_short(value)}" for name, value in chosen.items() if value is not None)
        return f"{type(self).__name__}({told})"


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, str) else f"{float(value):.4g}"


def refuse(likelihood: Likelihood, y: Tensor) -> None:
    """Refuse targets (n,) that are no observations of a likelihood.

    Raises:
        DataError: with the first of them.
    """
    if (wrong := likelihood.check(y)) is not None:
        raise DataError(f"{wrong} (likelihood {type(likelihood).__name__}).")


def drawing(generator: torch.Generator) -> np.random.Generator:
    """Return numpy's generator that goes on from torch's: it has the laws that torch draws from no generator."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))


def first_where(bad: Tensor, y: Tensor, must: str) -> str | None:
    """Return what is said of the first target (n,) that is bad (n,); None: none is."""
    rows = bad.nonzero()
    return f"Targets must be {must}; row {int(rows[0])} is {float(y[rows[0]]):g}" if len(rows) else None
