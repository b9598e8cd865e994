"""The role of a likelihood: the law of an observation y given the value f of the latent function at its row."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import DataError, InvalidArgumentError

L = TypeVar("L", bound="Likelihood")

APPROXIMATIONS = ("laplace", "variational")
LEAST_CURVATURE = 1e-10
"""Of a row: where an observation says less than this of f, as much is taken."""

PLACES = torch.arange(-8.0, 8.125, 0.125, dtype=torch.float64)
"""Of the trapezoidal rule against a normal law, in standard deviations: exact to rounding for analytic functions."""
WEIGHTS = torch.exp(-0.5 * PLACES.square()) / torch.exp(-0.5 * PLACES.square()).sum()


class Parameter(NamedTuple):
    """A positive number of a likelihood that is learned unless it is given."""

    name: str
    start: float
    bounds: tuple[float, float]
    power: int = 0  # of the unit of the targets, which a scale has, and its square a variance


class Slopes(NamedTuple):
    """The log density of observations (n,), and its derivatives in f."""

    value: Tensor  # (n,)
    first: Tensor  # (n,)
    second: Tensor  # (n,)
    third: Tensor  # (n,)


class Expected(NamedTuple):
    """The mean of the log density under a normal law of f, and its derivatives in that law's moments, (n, L) each."""

    value: Tensor  # (n,)
    first: Tensor  # (n, L), in the mean
    curvature: Tensor  # (n, L), -2 times that in the variance


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
    approximations: ClassVar[tuple[str, ...]] = APPROXIMATIONS
    """How a posterior may be approximated, the usual way first; none where nothing is."""
    is_far_from_normal: ClassVar[bool] = False
    """Whether posteriors are skewed: the mode of labels that inputs separate is far from the mean."""
    has_noise_process: ClassVar[bool] = False
    """Whether the logarithm of the noise is a second latent function."""
    widest: ClassVar[float] = 1e5
    """The most variance of the latent function that there may be, in those that it begins with."""
    widest_by_laplace: ClassVar[float] = 1e5
    """The most where Laplace's approximation is made."""
    takes_exposure: ClassVar[bool] = False
    """Whether f is the logarithm of a mean, to which that of a row's exposure may be added."""
    is_discrete: ClassVar[bool] = False
    """Whether observations are counts or labels."""
    lowest: ClassVar[float] = -torch.inf
    """The least observation that there may be."""

    def __post_init__(self) -> None:
        for name, value in given(self).items():
            number = torch.as_tensor(value)
            if number.ndim or not bool(torch.isfinite(number) & (number > 0)):
                raise InvalidArgumentError(f"{name} must be positive and finite, or None to be learned, got {number}.")

    def at(self, numbers: Mapping[str, Tensor]) -> Self:
        """Return the likelihood with its learned parameters (0-d each) by name."""
        return replace(self, **numbers)

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

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of y (n,) for independent f ~ N(mean, variance), (n, L) each.

        By the trapezoidal rule here; curvatures may be negative where the log density is not concave.
        """
        deviation = variance.sqrt()
        f, y = mean + deviation * PLACES, y[:, None].expand(-1, len(PLACES))
        slopes = self.slopes(y, f)
        first, curvature = slopes.first @ WEIGHTS, -(slopes.first * PLACES) @ WEIGHTS / deviation[:, 0]
        return Expected(slopes.value @ WEIGHTS, first[:, None], curvature[:, None])

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


def given(likelihood: Likelihood) -> dict[str, Any]:
    """Return the parameters that are not learned, by name."""
    values = {parameter.name: getattr(likelihood, parameter.name) for parameter in likelihood.parameters}
    return {name: value for name, value in values.items() if value is not None}


def learned(likelihood: Likelihood) -> tuple[Parameter, ...]:
    """Return the parameters that are learned."""
    return tuple(parameter for parameter in likelihood.parameters if getattr(likelihood, parameter.name) is None)


def standardized(likelihood: L, unit: float) -> L:
    """Return a likelihood of targets that were divided by a unit, as a given scale is here."""
    held = given(likelihood)
    units = {p.name: unit**p.power for p in likelihood.parameters if p.name in held}
    return replace(likelihood, **{name: held[name] / units[name] for name in units})


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
