"""Predictive and leave-one-out distributions of observations, in the user's units, also of each term.

Moments without a closed form and cumulative probabilities are integrals of smooth functions against N(mean, variance).
They use the trapezoidal rule, which is exact to rounding for analytic functions. If the standard deviation of y given f
is much smaller than that of f, the error of a probability is at most 0.03. Densities are those of `Likelihood.mixture`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.distributions import (
    CHUNK_SIZE,
    Distribution,
    MarginalMixture,
    Marginals,
    ResultCache,
    check_values,
    kept,
)
from rfgp.inference.prediction import Prediction, check_numbers
from rfgp.likelihoods import Heteroscedastic, Likelihood
from rfgp.likelihoods.role import PLACES, WEIGHTS
from rfgp.messages import counted
from rfgp.threads import computed

# --- Posterior predictive distributions, by integrals over the latent function ---------------------------------------

_BISECTION_STEPS = 60
"""The number of bisection steps for a quantile."""
_MAX_DOUBLINGS = 200
"""The maximum number of doublings of the step that brackets a quantile."""
_ROUNDING = 2.0**-50
"""The relative precision of a quantile of counts."""


@dataclass(frozen=True, eq=False)
class LatentPredictive:
    """The distribution of observations given one latent function.

    Moments and draws are standardized. Densities, probabilities and quantiles are in the user's units.

    Attributes:
        likelihood: The likelihood of standardized observations, with all its parameters.
        latent: The distribution of the function, without its mean.
        location: The mean of the function, 0-d, or (n,) with exposures.
        unit: The unit of observations.
    """

    likelihood: Likelihood
    latent: Distribution
    location: Tensor
    unit: float

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and the variances of standardized observations, (n,) each."""
        likelihood = self.likelihood
        if (moments := likelihood.moments(*self._latent_moments())) is not None:
            return moments
        integrands = (lambda one, f: one.variance(f), lambda one, f: one.mean(f).square(), lambda one, f: one.mean(f))
        within, squares, mean = map(self.expectation, integrands)
        return mean, within + (squares - mean.square()).clamp_min(0)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw standardized observations from the joint distribution, (count, n).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        f = draw_values(self.location, self.latent, count, generator)
        return self.likelihood.sample(f, generator)

    def marginals(self) -> Marginals:
        """Return the distributions of observations."""
        return self

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log densities, or log probabilities, at y, (n,)."""
        parts = self._chunks(y / self.unit)
        log_prob = torch.cat([likelihood.mixture(y, m, v.clamp_min(1e-300)) for likelihood, m, v, y in parts])
        return log_prob - (0.0 if self.likelihood.is_discrete else math.log(self.unit))

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities of observations up to y, (n,)."""
        return self._standardized_cdf(y / self.unit)

    def quantile(self, p: Tensor) -> Tensor:
        """Return the smallest y with a cdf of at least p, (n,), by bisection.

        The search starts at the mean of y at the mean of f. Its first step is the sum of the scales of both
        distributions.
        """
        (mean, variance), likelihood, cdf = self._latent_moments(), self.likelihood, self._standardized_cdf
        center = likelihood.mean(mean)
        step = 1 + variance.sqrt() + likelihood.variance(mean).clamp_max(1e300).sqrt()
        is_bounded = math.isfinite(likelihood.lowest)
        low = torch.full_like(center, likelihood.lowest) if is_bounded else center - step
        high = center + step
        for _ in range(_MAX_DOUBLINGS):
            is_short, is_far = cdf(high) < p, (cdf(low) > p) & (not is_bounded)
            if not bool((is_short | is_far).any()):
                break
            step = 2 * step
            low, high = torch.where(is_far, low - step, low), torch.where(is_short, high + step, high)
        if likelihood.is_discrete:
            return self.unit * _smallest_count(cdf, p, high.ceil())
        for _ in range(_BISECTION_STEPS):
            middle = (low + high) / 2
            is_low = cdf(middle) < p
            low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
        return self.unit * high

    def _standardized_cdf(self, y: Tensor) -> Tensor:
        return self.expectation(lambda one, f, y: one.cdf(y.expand_as(f), f), y).clamp(0, 1)

    def _latent_moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance (n,) of the latent function."""
        return latent_moments(self.latent, self.location)

    def expectation(self, function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """Return the mean of a function over f at each point, (n, ...).

        Args:
            function: A function of the likelihood of b points, f (q, b) and arguments (b,).
            arguments: The other arguments, (n,) each.
        """
        parts = self._chunks(*arguments)
        values = (function(one, m + v.sqrt() * PLACES[:, None], *others) for one, m, v, *others in parts)
        return torch.cat([torch.tensordot(WEIGHTS, value, 1) for value in values])

    def _chunks(self, *columns: Tensor) -> Iterator[Any]:
        """Yield the likelihood of some points, the moments of f there, and columns (b,)."""
        first = 0
        for part in chunks(*self._latent_moments(), *columns):
            yield self.likelihood.of_rows(slice(first, first + len(part[0]))), *part
            first += len(part[0])


def _smallest_count(cdf: Callable[[Tensor], Tensor], p: Tensor, high: Tensor) -> Tensor:
    """Return the smallest integers (n,) from 0 to `high` with a cdf of at least p."""
    low = torch.full_like(high, -1.0)
    while bool((high - low > (_ROUNDING * high).clamp_min(1)).any()):
        middle = ((low + high) / 2).floor()
        is_low = cdf(middle) < p
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, torch.maximum(middle, low + 1))
    return high


@dataclass(frozen=True, eq=False)
class HeteroscedasticPredictive:
    """The distribution of Gaussian observations with the noise variance e^g and Gaussian g.

    Attributes:
        base_noise: The noise variance at g = 0, 0-d.
        latent: The distribution of f, without its mean. Its `noise` is the distribution of g.
        location: The mean of f, 0-d.
        unit: The unit of observations.
    """

    base_noise: Tensor
    latent: Distribution
    location: Tensor
    unit: float

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and the variances of standardized observations, (n,) each."""
        mean, variance = latent_moments(self.latent, self.location)
        log_mean, log_variance = latent_moments(self._noise, torch.zeros_like(self.location))
        return mean, variance + self.base_noise * (log_mean + log_variance / 2).exp()

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw standardized observations from the joint distribution, (count, n).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        f = draw_values(self.location, self.latent, count, generator)
        g = draw_values(torch.zeros_like(self.location), self._noise, count, generator)
        return f + torch.randn(f.shape, generator=generator, dtype=f.dtype) * (self.base_noise * g.exp()).sqrt()

    def marginals(self) -> Marginals:
        """Return the distributions of observations, mixtures over the nodes of a trapezoidal rule for g."""
        mean, variance = latent_moments(self.latent, self.location)
        log_mean, log_variance = latent_moments(self._noise, torch.zeros_like(self.location))
        noise = self.base_noise * (log_mean + log_variance.sqrt() * PLACES[:, None]).exp()
        return MarginalMixture(WEIGHTS, self.unit * mean[None], self.unit**2 * (variance + noise), math.inf)

    @property
    def _noise(self) -> Distribution:
        assert self.latent.noise is not None
        return self.latent.noise


_SOBOL_DRAWS = 512
"""The number of draws of a Sobol sequence for the mean of a softmax."""


def averaged_softmax(
    mean: Tensor,  # (n, C)
    covariance: Tensor,  # (n, C, C)
) -> Tensor:  # (n, C)
    """Return the means of softmaxes of f ~ N(mean, covariance) at each point.

    Args:
        mean: The means of f, (n, C).
        covariance: The covariances of f at each point, (n, C, C).
    """
    num_classes = mean.shape[1]
    standard = torch.from_numpy(qmc.MultivariateNormalQMC(np.zeros(num_classes), seed=0).random(_SOBOL_DRAWS))
    values, vectors = torch.linalg.eigh(covariance)
    roots = vectors * values.clamp_min(0).sqrt()[:, None]
    size = max(1, CHUNK_SIZE // num_classes)
    parts = zip(torch.split(mean, size), torch.split(roots, size), strict=True)
    return torch.cat([torch.softmax(m[:, None] + standard @ root.mT, dim=2).mean(1) for m, root in parts])


@dataclass(frozen=True, eq=False)
class ClassPredictive:
    """The distribution of labels given C latent functions, or one function of ordered classes.

    Attributes:
        likelihood: The likelihood, with the number C of classes.
        latent: The distribution of the functions, without their means.
        location: The means of the functions, (C,), or that of the only one, 0-d.
    """

    likelihood: Likelihood
    latent: Distribution
    location: Tensor
    _cache: ResultCache = field(default_factory=ResultCache, init=False)

    @kept
    @torch.no_grad()
    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the probabilities of the classes and the variances of their indicators, (n, C) each."""
        if self.likelihood.num_latents == 1:
            p = LatentPredictive(self.likelihood, self.latent, self.location, 1.0).expectation(
                type(self.likelihood).mean
            )
            return p, p * (1 - p)
        covariance = self.latent.function_covariance()
        p = averaged_softmax((self.location + self.latent.mean()).cpu(), covariance.cpu())
        return p, p * (1 - p)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw labels from their joint distribution, (count, n).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        if self.likelihood.num_latents == 1:
            return self.likelihood.sample(draw_values(self.location, self.latent, count, generator), generator)
        return self.likelihood.sample((self.location + self.latent.sample(count, generator)).cpu(), generator)

    def marginals(self) -> Marginals:
        """Return the distributions of labels."""
        return LabelMarginals(self.moments()[0])


class LabelMarginals(NamedTuple):
    """The distributions of labels at n points, given the probabilities (n, C)."""

    probabilities: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log probabilities of labels y, (n,)."""
        return self.probabilities.gather(1, y.long()[:, None])[:, 0].log()

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities of labels up to y, (n,)."""
        labels = torch.arange(self.probabilities.shape[1], dtype=y.dtype)
        return (self.probabilities * (labels <= y[:, None])).sum(1)

    def quantile(self, p: Tensor) -> Tensor:
        """Return the smallest labels with a cdf of at least p, (n,)."""
        cumulative = self.probabilities.cumsum(1)[:, :-1].clamp_max(1.0)
        return (cumulative < p[:, None]).sum(-1)


def latent_moments(latent: Distribution, location: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and variance (n,) of the first function of a distribution.

    Args:
        latent: The distribution of the functions at n points.
        location: The mean of the first function, 0-d.
    """
    variance = latent.variance().clamp_min(0).double().cpu()  # first: its pass over the points finds the mean too
    return (location + latent.mean()[:, 0]).double().cpu(), variance


def draw_values(location: Tensor, latent: Distribution, count: int, generator: torch.Generator) -> Tensor:
    """Draw values of the first function from the joint distribution at n points, (count, n).

    Args:
        location: The mean of the first function, () or (n,).
        latent: The joint distribution at n points, without the mean of the first function.
        count: The number of draws.
        generator: A generator on the CPU.
    """
    return (location + latent.sample(count, generator)[..., 0]).double().cpu()


def chunks(*columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield columns in chunks of rows, at least one chunk.

    Args:
        columns: The columns, (n,) each.
    """
    return zip(*(torch.split(column, CHUNK_SIZE) for column in columns), strict=True)


# --- Predictive and leave-one-out distributions of observations, in the user's units ---------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut:
    """The distribution of each of n observations given all others, in user units.

    Attributes:
        mean: The means, (n,) or (n, k), as an array or tensor.
        variance: The variances of the observations, noise included, (n,) or (n, k).
        log_prob: The log densities of the observed values, (n,) or (n, k). Their mean is the leave-one-out log
            predictive density.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 1, 9)[:, None]
        >>> rfgp.ExactGP(noise=0.01).condition(X, X[:, 0]).leave_one_out().mean.shape
        (9,)
    """

    mean: Any
    variance: Any
    log_prob: Any

    def __repr__(self) -> str:
        log_prob = float(self.log_prob.mean())
        return f"LeaveOneOut({counted(len(self.mean), 'observation')}, mean log density {log_prob:.4g})"


@dataclass(frozen=True, eq=False, repr=False)
class ObservedPrediction(Prediction):
    """The distribution of observations under a likelihood that is not Gaussian.

    Methods are those of `Prediction`. Marginal distributions are integrals over the latent function. Draws are joint.

    Attributes:
        likelihood: The likelihood of standardized observations, with all its parameters, and exposures, trials or codes
            of censoring if they are given.
        is_per_unit: Whether the training rows have exposures or trials, which must then be given for scores.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 1, 20)[:, None]
        >>> gp = rfgp.ExactGP(likelihood="poisson", lengthscale=0.5).condition(X, np.arange(20) // 5)
        >>> observed = gp.predict([[0.0], [1.0]]).observed()
        >>> bool(observed.mean[1] > observed.mean[0])
        True
    """

    likelihood: Likelihood = field(kw_only=True)
    is_per_unit: bool = False
    _has_closed_form = False

    def observed(self, exposure: Any = None, trials: Any = None, censored: Any = None) -> "ObservedPrediction":
        """Return the distribution itself, or that at other exposures, trials or censoring, (n,) or one number."""
        numbers = check_numbers(self.likelihood, exposure=exposure, trials=trials, censored=censored)
        if numbers is None:
            return self
        mean = self.latent.mean()[:, 0].cpu().double()
        values = check_values(numbers, mean, may_be_one=True).expand_as(mean)
        return replace(self, likelihood=self.likelihood.at_rows(values), is_per_unit=False)

    def check_scored(self) -> None:
        """Check that the exposures or trials of observations are known.

        Raises:
            InvalidArgumentError: If the model was fitted with exposures or trials, and none are given here.
        """
        if self.is_per_unit:
            name = self.likelihood.row_argument
            raise InvalidArgumentError(
                f"{name} must be given for scores of a model that was fitted with it, got None. Score predict(X)."
                f"observed({name}=...) instead, with {name}=1 for observations of one unit."
            )

    @computed
    def mean_tensor(self) -> Tensor:
        """Return the mean (n,), float64 tensor."""
        return self._unit * self._moments()[0]

    @computed
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,), float64 tensor."""
        return self._unit**2 * self._moments()[1]

    def log_prob(self, y: Any) -> Any:
        """Return the log density, or log probability, of each observation, (n,).

        Raises:
            InvalidArgumentError: If y has another shape than the mean or the labels, or is impossible under the
                likelihood. Also if the model was fitted with exposures or trials, and none are given here.
        """
        self.check_scored()
        if (wrong := self.likelihood.check(check_values(y, self.values_like()) / self._unit)) is not None:
            raise InvalidArgumentError(f"y must be possible observations: {wrong}.")
        return super().log_prob(y)

    def values_like(self) -> Tensor:
        """Return a tensor with the shape and type of observations, (n,)."""
        mean = self._moments()[0]
        return mean if mean.ndim == 1 else mean[:, 0]

    @kept
    def marginals(self) -> Marginals:
        """Return the distributions of observations in the user's units."""
        return self._predictive.marginals()

    def draws(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw observations from the joint distribution, (s, n), float64 tensor."""
        return self._unit * self._predictive.sample(count, generator)

    def __repr__(self) -> str:
        return f"ObservedPrediction({self.likelihood!r})"

    # --- standardized ----------------------------------------------------------------------------

    @property
    def _unit(self) -> float:
        return float(self.scale)

    @property
    @kept
    def _predictive(self) -> LatentPredictive | HeteroscedasticPredictive | ClassPredictive:
        likelihood, location = self.likelihood, (self.location / self.scale).double()
        location = location + likelihood.log_exposure
        if likelihood.has_classes:
            return ClassPredictive(likelihood, self.latent, location)
        if not likelihood.has_noise_process:
            return LatentPredictive(likelihood, self.latent, location, self._unit)
        base_noise = torch.as_tensor(cast(Heteroscedastic, likelihood).noise, dtype=torch.float64)
        return HeteroscedasticPredictive(base_noise, self.latent, location, self._unit)

    @kept
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and variances (n,)."""
        return self._predictive.moments()


@dataclass(frozen=True, eq=False, repr=False)
class ObservedClasses(ObservedPrediction):
    """The distribution of labels at n points, with a probability of each class.

    Methods are those of `Prediction`. Probabilities are means of softmaxes over the joint Gaussian distribution of the
    C functions at a point. They use 512 draws of a Sobol sequence. Their error is about 0.002 for wide distributions.
    Those of ordered classes are means over one function.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 1, 12)[:, None]
        >>> gp = rfgp.ExactGP(likelihood="categorical", lengthscale=0.3).condition(X, np.arange(12) // 4)
        >>> gp.predict([[0.0], [0.5], [1.0]]).observed().labels.tolist()
        [0.0, 1.0, 2.0]
    """

    @property
    def probabilities(self) -> Any:
        """The probabilities of the classes, (n, C)."""
        return self.mean

    @property
    def labels(self) -> Any:
        """The most probable classes, (n,): numbers, or texts if the likelihood has those."""
        labels, texts = self._moments()[0].argmax(-1), getattr(self.likelihood, "classes", None)
        return self._out(labels) if texts is None else np.array(texts)[labels.numpy()]

    def __repr__(self) -> str:
        return f"ObservedClasses({self.likelihood!r})"


def observations(prediction: Prediction, likelihood: Likelihood, *, is_per_unit: bool = False) -> ObservedPrediction:
    """Return the distribution of observations for a prediction of the latent function.

    Args:
        prediction: The prediction.
        likelihood: The likelihood, with all its parameters.
        is_per_unit: Whether the training rows have exposures or trials, which must then be given for scores.
    """
    return prediction.as_kind(
        ObservedClasses if likelihood.has_classes else ObservedPrediction,
        of_observations=None,
        calibrated_ends=None,
        likelihood=likelihood,
        is_per_unit=is_per_unit,
    )
