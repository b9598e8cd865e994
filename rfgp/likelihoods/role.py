"""The base class of likelihoods, distributions of an observation y given a latent value f."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.scaling import Affine

L = TypeVar("L", bound="Likelihood")

APPROXIMATIONS = ("laplace", "variational")
_MAD = 1.4826
"""The ratio of the standard deviation of a normal distribution to its median absolute deviation."""
_MIN_SPREAD = 1e-3
"""The smallest latent variance before a fit, as a fraction of the variance of the targets."""
MIN_CURVATURE = 1e-10
"""The smallest curvature of a row's log density in f. Smaller ones are raised to it."""

PLACES = torch.arange(-8.0, 8.125, 0.125, dtype=torch.float64)
"""Nodes of the trapezoidal rule for normal means, in standard deviations. It is accurate for analytic functions."""
WEIGHTS = torch.exp(-0.5 * PLACES.square()) / torch.exp(-0.5 * PLACES.square()).sum()
_HERMITE_NODES = 40
"""The number of nodes of the Gauss-Hermite rule."""
_MAX_NEWTON_STEPS = 50
"""The maximum number of Newton steps to the peak of an integrand."""


class Parameter(NamedTuple):
    """A positive parameter of a likelihood, one number or several. It is learned unless the user gives it.

    Examples:
        >>> Parameter("scale", 0.3, (1e-3, 1e1), power=1).start
        0.3
    """

    name: str
    start: Any  # () or (p,)
    bounds: tuple[float, float]
    power: int = 0  # the power of the unit of the targets: 1 for a scale, 2 for a variance


class LogProbDerivatives(NamedTuple):
    """The log density of observations (n,) and its first three derivatives in f.

    Examples:
        >>> import torch
        >>> from rfgp import likelihoods
        >>> zero = torch.zeros(1, dtype=torch.float64)
        >>> likelihoods.Poisson().slopes(zero, zero).first.item()  # y - exp(f)
        -1.0
    """

    value: Tensor  # (n,)
    first: Tensor  # (n,)
    second: Tensor  # (n,)
    third: Tensor  # (n,)


class Expected(NamedTuple):
    """The mean of the log density for normal f, and its derivatives in the moments of f, (n, L) each.

    Examples:
        >>> import torch
        >>> from rfgp import likelihoods
        >>> y, mean, variance = torch.zeros(1), torch.zeros(1, 1), torch.ones(1, 1)
        >>> round(likelihoods.Poisson().expected(y, mean, variance).value.item(), 4)  # -exp(1 / 2)
        -1.6487
    """

    value: Tensor  # (n,)
    first: Tensor  # (n, L), in the mean
    curvature: Tensor  # (n, L), -2 times that in the variance


class InitialMoments(NamedTuple):
    """Moments of the latent function before a fit.

    Examples:
        >>> import torch
        >>> from rfgp import likelihoods
        >>> y = torch.tensor([1.0, 3.0], dtype=torch.float64)
        >>> round(likelihoods.Poisson().begin(y, torch.ones_like(y)).center.item(), 3)
        0.514
    """

    center: Tensor  # 0-d
    variance: Tensor  # 0-d


@dataclass(frozen=True, repr=False)
class Likelihood(ABC):
    """The distribution of an observation given the latent function.

    Fields are parameters. If a field is None, the parameter is learned.

    A likelihood of one latent value implements `log_prob`, or `slopes` if derivatives in closed form are faster. All
    numbers are float64, and differentiable in the parameters. `information` is the curvature W of the Laplace
    approximation. If the log density is concave, it is the negative second derivative. Otherwise it is the
    mean of that over observations (Fisher information), which must not depend on f.

    Rows may have a number each that the likelihood needs beside the target: the argument `row_argument` of `GP.fit`.
    `at_rows` binds these numbers. The last axis of y and f is then that of the rows.

    Examples:
        >>> from rfgp import likelihoods
        >>> poisson = likelihoods.by_name("poisson")
        >>> poisson.mean(torch.zeros(1)).item(), poisson.row_argument
        (1.0, 'exposure')
    """

    parameters: ClassVar[tuple[Parameter, ...]] = ()
    is_standardized: ClassVar[bool] = False
    """Whether targets are standardized. The likelihood must then be invariant to shifts and scales of y and f."""
    is_concave: ClassVar[bool] = True
    """Whether the log density is concave in f."""
    approximations: ClassVar[tuple[str, ...]] = APPROXIMATIONS
    """The supported approximations of the posterior, the default first. Empty if it is exact."""
    is_far_from_normal: ClassVar[bool] = False
    """Whether posteriors are skewed, so that their mode is far from their mean."""
    has_noise_process: ClassVar[bool] = False
    """Whether the logarithm of the noise is a second latent function."""
    noise_kernel: ClassVar[Any] = None
    """The kernel of the logarithm of the noise. If None, it is that of the function."""
    widest: ClassVar[float] = 1e5
    """The largest ratio of the latent variance to its start."""
    widest_by_laplace: ClassVar[float] = 1e5
    """The largest ratio of the latent variance to its start under Laplace's approximation."""
    row_argument: ClassVar[str | None] = None
    """The argument of `GP.fit` with a number for each row: "exposure", "trials" or "censored". If None, there is none.
    An exposure multiplies the mean e^f."""
    row_numbers: ClassVar[Tensor | None] = None
    """These numbers, (n,), which `at_rows` binds. If None, rows have none."""
    unit: ClassVar[float] = 1.0
    """The unit by which targets are divided, which `standardized` binds."""
    has_log_link: ClassVar[bool] = False
    """Whether the mean of an observation is proportional to e^f."""
    has_classes: ClassVar[bool] = False
    """Whether observations are classes, so that `mean` returns their probabilities (..., C)."""
    has_fixed_dispersion: ClassVar[bool] = False
    """Whether the mean of an observation determines its variance, which the data may exceed."""
    latent_deviation: ClassVar[float | None] = None
    """The scale of the default prior of each term's latent standard deviation. If None, there is no prior."""
    is_discrete: ClassVar[bool] = False
    """Whether observations are counts or labels."""
    lowest: ClassVar[float] = -torch.inf
    """The smallest possible observation."""

    def __post_init__(self) -> None:
        if type(self).slopes is Likelihood.slopes and type(self).log_prob is Likelihood.log_prob:
            raise InvalidArgumentError(f"{type(self).__name__} must implement log_prob or slopes. Add one of them.")
        for name, value in given_parameters(self).items():
            number, (start,) = torch.as_tensor(value), (p.start for p in self.parameters if p.name == name)
            if number.shape != np.shape(start) or not bool((torch.isfinite(number) & (number > 0)).all()):
                raise InvalidArgumentError(f"{name} must be positive and finite, or None to be learned, got {number}.")

    def at(self, numbers: Mapping[str, Tensor]) -> Self:
        """Return the likelihood with values of its learned parameters.

        Args:
            numbers: Values, of the shape of their starts, by the name of the parameter.
        """
        return _bound(self, **numbers)

    def at_rows(self, numbers: Tensor | None) -> Self:
        """Return the likelihood of n rows with their numbers (see `row_argument`).

        Args:
            numbers: The exposures, trials or codes of censoring, (n,). If None, there are none.
        """
        return _bound(self, row_numbers=None if self.row_argument is None else numbers)

    def of_rows(self, rows: slice) -> Self:
        """Return the likelihood of some of its rows.

        Args:
            rows: A slice of the rows.
        """
        return self if self.row_numbers is None else self.at_rows(self.row_numbers[rows])

    @property
    def log_exposure(self) -> Tensor | float:
        """The logarithms of the exposures, (n,) or 0, which are added to the latent function."""
        if self.row_numbers is None or self.row_argument != "exposure":
            return 0.0
        return torch.where(self.row_numbers > 0, self.row_numbers, 1.0).log()  # joined rows may have none

    @property
    def num_latents(self) -> int:
        """The number of latent functions of a row."""
        return 1

    def with_targets(self, y: Tensor) -> Self:
        """Return the likelihood with attributes from targets (n,), such as the number of classes.

        Args:
            y: The targets (n,).
        """
        return self

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first invalid target, or None if all are valid.

        Args:
            y: The targets (n,).
        """
        return None

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return initial moments of f.

        By default the mean is the median of y, and the variance follows from the median absolute deviation.

        Args:
            y: Targets (n,), standardized if `is_standardized`.
            weight: The weights (n,) of the targets.
        """
        center = _median(y, weight)
        spread = _MAD * _median((y - center).abs(), weight)
        least = _MIN_SPREAD * Affine.standardizing(y, weight).robust(y, weight).scale.square()
        return InitialMoments(center, spread.square().clamp_min(least).clamp_min(1e-12))

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of targets given f, with its first three derivatives in f.

        By default they follow from `log_prob` by automatic differentiation.

        Args:
            y: The targets (n,).
            f: The latent function (n,), or (n, L) for L latent functions.
        """
        is_differentiable = self.log_prob(y, f).requires_grad
        with torch.enable_grad():
            f = f if f.requires_grad else f.detach().requires_grad_()
            found = [self.log_prob(y, f)]
            while len(found) < 4:  # a derivative may be constant
                found += torch.autograd.grad(found[-1].sum() + 0 * f.sum(), f, create_graph=True)
        return LogProbDerivatives(*(found if is_differentiable else (part.detach() for part in found)))

    def log_prob(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the log density of targets (...) given f (...), which broadcast.

        By default it is that of `slopes`.

        Args:
            y: The targets (...).
            f: The latent function (...).
        """
        return self.slopes(y, f).value

    def log_prob_and_slope(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log density of targets given f, and its derivative in f.

        By default they are those of `slopes`, whose other derivatives may cost more.

        Args:
            y: The targets (n,).
            f: The latent function (..., n).
        """
        return self.slopes(y, f)[:2]

    def information(self, slopes: LogProbDerivatives, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return the curvature W (n,) of the Laplace approximation at f, and its derivative in f.

        Args:
            slopes: The result of `slopes` at f.
            f: The latent function (n,).
        """
        return (-slopes.second, -slopes.third) if self.is_concave else (self.fisher(f), torch.zeros_like(f))

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over observations given f, (n,).

        Args:
            f: The latent function (n,).
        """
        return -self.slopes(self.mean(f), f).second

    def majorizer(self, slopes: LogProbDerivatives, y: Tensor, f: Tensor) -> Tensor:
        """Return a nonnegative curvature (n,) that is at least that of the log density.

        Steps with this curvature never lower the posterior density.

        Args:
            slopes: The result of `slopes` at f.
            y: The targets (n,).
            f: The latent function (n,).
        """
        return -slopes.second

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of targets over independent normal f.

        It uses the trapezoidal rule. Curvatures may be negative if the log density is not concave.

        Args:
            y: The targets (n,).
            mean: The means (n, L) of the L latent functions.
            variance: The variances (n, L) of the latent functions.
        """
        deviation = variance[:, 0].sqrt()
        f = mean[:, 0] + deviation * PLACES[:, None]
        value, slope = self.log_prob_and_slope(y, f)
        first, curvature = WEIGHTS @ slope, -(WEIGHTS * PLACES) @ slope / deviation
        return Expected(WEIGHTS @ value, first[:, None], curvature[:, None])

    def mixture(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the log density (n,) of targets for normal f.

        By default it uses a Gauss-Hermite rule at the peak of the integrand, to which `majorizer` leads (adaptive
        Gauss-Hermite quadrature, Liu and Pierce 1994).

        Args:
            y: The targets (n,).
            mean: The means (n,) of f.
            variance: The variances (n,) of f, positive.
        """
        f = mean.clone()
        for _ in range(_MAX_NEWTON_STEPS):
            slopes = self.slopes(y, f)
            precision = 1 / variance + self.majorizer(slopes, y, f).clamp_min(0)
            step = (slopes.first - (f - mean) / variance) / precision
            f = f + step.clamp(-2.0, 2.0)  # e^f changes by a factor of at most 7, so no step overflows
            if bool((step.abs() < 1e-8 * (1 + f.abs())).all()):
                break
        width = (1 / variance + self.majorizer(self.slopes(y, f), y, f).clamp_min(0)).rsqrt()
        nodes, weights = (
            torch.from_numpy(part)[:, None] for part in np.polynomial.hermite_e.hermegauss(_HERMITE_NODES)
        )
        values = f + width * nodes
        prior = -0.5 * (values - mean).square() / variance
        log_ratio = self.log_prob(y, values) + prior + 0.5 * nodes.square()
        log_prob = torch.logsumexp(log_ratio + weights.log(), dim=0) + (width / variance.sqrt()).log()
        log_prob = log_prob - 0.5 * math.log(2 * math.pi)
        return torch.where(log_prob.isnan(), -torch.inf, log_prob)  # e^f overflows

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the mean and variance of observations for normal f, or None without a closed form.

        Standardized observations have the mean f, and a variance that does not depend on f.

        Args:
            mean: The means (n,) of f.
            variance: The variances (n,) of f.
        """
        return (mean, variance + self.variance(mean)) if self.is_standardized else None

    # --- the distribution of an observation given f -----------------------------------------------

    def mean(self, f: Tensor) -> Tensor:
        """Return the mean of an observation given f, (...) -> (...).

        By default it is f.

        Args:
            f: The latent function (...).
        """
        return f

    @abstractmethod
    def variance(self, f: Tensor) -> Tensor:
        """Return the variance of an observation given f, (...) -> (...).

        Args:
            f: The latent function (...).
        """

    @abstractmethod
    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of an observation of at most y given f.

        Args:
            y: Observations (...).
            f: The latent function (...). It broadcasts with y.
        """

    @abstractmethod
    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random observation for each f, (...) -> (...).

        Args:
            f: The latent function (...).
            generator: The generator of the observations.
        """

    def __repr__(self) -> str:
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        shown = ", ".join(f"{name}={_short(value)}" for name, value in chosen.items() if value is not None)
        return f"{type(self).__name__}({shown})"


def given_parameters(likelihood: Likelihood) -> dict[str, Any]:
    """Return the values of the parameters that the user gave, by name.

    Args:
        likelihood: The likelihood.
    """
    values = {parameter.name: getattr(likelihood, parameter.name) for parameter in likelihood.parameters}
    return {name: value for name, value in values.items() if value is not None}


def learned_parameters(likelihood: Likelihood) -> tuple[Parameter, ...]:
    """Return the parameters without a given value.

    Args:
        likelihood: The likelihood.
    """
    return tuple(parameter for parameter in likelihood.parameters if getattr(likelihood, parameter.name) is None)


def standardized(likelihood: L, unit: float) -> L:
    """Return the likelihood of targets that are divided by a unit.

    Scales are divided by the unit, variances by its square. The likelihood keeps the unit.

    Args:
        likelihood: The likelihood.
        unit: The unit, positive.
    """
    held = given_parameters(likelihood)
    units = {p.name: unit**p.power for p in likelihood.parameters if p.name in held}
    return _bound(likelihood, unit=unit, **{name: held[name] / units[name] for name in units})


def _bound(likelihood: L, **values: Any) -> L:
    """Return a likelihood with other attributes, also those that are no arguments."""
    new = copy(likelihood)
    vars(new).update(values)
    return new


def _median(values: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted median of values (n,) with weights (n,), 0-d."""
    order = values.argsort()
    below = weight[order].cumsum(0)
    return values[order][int((below < 0.5 * below[-1]).sum())]


def _short(value: Any) -> str:
    return f"{float(value):.4g}" if hasattr(value, "__float__") else repr(value)


def refuse(likelihood: Likelihood, y: Tensor) -> None:
    """Check that targets (n,) are valid observations of a likelihood.

    Args:
        likelihood: The likelihood.
        y: The targets (n,).

    Raises:
        DataError: If a target, or a number of a row, is invalid. The message names the first.
    """
    if (wrong := likelihood.check(y)) is not None:
        raise DataError(f"{wrong} (likelihood {type(likelihood).__name__}).")


def drawing(generator: torch.Generator) -> np.random.Generator:
    """Return a numpy generator seeded by a torch one, for distributions that torch cannot sample.

    Args:
        generator: The generator that gives the seed.
    """
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))


def first_where(bad: Tensor, y: Tensor, must: str, remedy: str = "", *, what: str = "Targets") -> str | None:
    """Return a message about the first invalid target, or None.

    Args:
        bad: Whether each target is invalid, (n,).
        y: The targets (n,).
        must: The valid values, for the message.
        remedy: A sentence with a remedy. The default is none.
        what: The name of the values. The default is targets.
    """
    rows = bad.nonzero()
    if not len(rows):
        return None
    return f"{what} must be {must}, got {float(y[rows[0]]):g} in row {int(rows[0])}{remedy and f'. {remedy}'}"
