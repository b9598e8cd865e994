"""Posterior predictive distributions of observations under any likelihood, in the user's units."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.inference.arguments import check_probabilities, check_values
from rfgp.inference.labels import ObservedClasses
from rfgp.inference.prediction import Prediction
from rfgp.inference.predictive import HeteroscedasticPredictive, LatentPredictive, Predictive
from rfgp.inference.refusals import NO_EXPOSURE
from rfgp.likelihoods import Heteroscedastic, Likelihood

_HALVINGS = 60
"""The number of halvings of the interval of a quantile."""
_MAX_DOUBLINGS = 200
"""The largest number of doublings of the step that looks for such an interval."""
_ROUNDING = 2.0**-50
"""The relative precision of a quantile of counts."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedPrediction(Prediction):
    """The distribution of observations at n points under a likelihood that is not Gaussian, in the user's units.

    Marginal distributions are integrals over the latent function. Draws are joint.

    Attributes:
        likelihood: The likelihood of standardized observations, with all its parameters.
        offset: The logarithms of exposures, which are added to the latent function, (n,). If None, 0.

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
    offset: Tensor | None = None
    _has_closed_form = False

    def observed(self, exposure: Any = None) -> "ObservedPrediction":
        """Return the distribution itself, or that at other exposures, (n,) or one number."""
        return self if exposure is None else replace(self, offset=log_exposure(self, exposure))

    @plain()
    def mean_tensor(self) -> Tensor:
        """Return the mean (n,), float64 tensor."""
        return self._unit * self._moments()[0]

    @plain()
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,), float64 tensor."""
        return self._unit**2 * self._moments()[1]

    def log_density(self, y: Any) -> Any:
        """Return the log density of each observation (n,), or the log probability of counts and labels.

        Raises:
            InvalidArgumentError: y has another shape than the mean, or is no observation under the likelihood.
        """
        values = check_values(y, self._moments()[0]) / self._unit
        if (wrong := self.likelihood.check(values)) is not None:
            raise InvalidArgumentError(f"y is no observation: {wrong}.")
        found = self._predictive.log_density(values)
        return self._out(found - (0.0 if self.likelihood.is_discrete else math.log(self._unit)))

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that observations are at most y, one number or (n,)."""
        mean = self._moments()[0]
        values = (check_values(y, mean, may_be_one=True) / self._unit).expand_as(mean)
        return self._out(self._predictive.cdf(values))

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the smallest y with cdf(y) at least a probability: (n,), or (q, n) for q probabilities."""
        mean, predictive = self._moments()[0], self._predictive
        p = check_probabilities("probability", probability, mean)
        found = [self._unit * quantile_of(predictive, self.likelihood, one.expand_as(mean)) for one in p.reshape(-1)]
        return self._out(torch.stack(found).reshape(*p.shape, *mean.shape))

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint distribution, (s, n): functions, and an observation of each value."""
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        return self._out(self._unit * self._predictive.sample(num_samples, generator))

    def __repr__(self) -> str:
        return f"ObservedPrediction({self.likelihood!r})"

    # --- standardized ----------------------------------------------------------------------------

    @property
    def _unit(self) -> float:
        return float(self.scale)

    @property
    def _predictive(self) -> Predictive:
        likelihood, location = self.likelihood, (self.location / self.scale).double()
        location = location if self.offset is None else location + self.offset
        if not likelihood.has_noise_process:
            return LatentPredictive(likelihood, self.latent, location)
        level = torch.as_tensor(cast(Heteroscedastic, likelihood).noise, dtype=torch.float64)
        return HeteroscedasticPredictive(level, self.latent, location)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return means and variances (n,), which are kept."""
        return self._cache.get("moments", self._predictive.moments, keep=not self.latent.requires_grad)


def quantile_of(
    predictive: Predictive,
    likelihood: Likelihood,
    p: Tensor,  # (n,)
) -> Tensor:  # (n,)
    """Return the smallest values with at least the probabilities p of at most that value, by bisection."""
    center, step = predictive.bracket()
    is_bounded = math.isfinite(likelihood.lowest)
    low = torch.full_like(center, likelihood.lowest) if is_bounded else center - step
    high = center + step
    for _ in range(_MAX_DOUBLINGS):
        is_short, is_far = predictive.cdf(high) < p, (predictive.cdf(low) > p) & (not is_bounded)
        if not bool((is_short | is_far).any()):
            break
        step = 2 * step
        low, high = torch.where(is_far, low - step, low), torch.where(is_short, high + step, high)
    if likelihood.is_discrete:
        return _quantile_of_counts(predictive, p, high.ceil())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_low = predictive.cdf(middle) < p
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    return high


def _quantile_of_counts(predictive: Predictive, p: Tensor, high: Tensor) -> Tensor:
    """Return the smallest whole numbers (n,) from 0 to `high` with at least the probabilities p of at most that."""
    low = torch.full_like(high, -1.0)
    while bool((high - low > (_ROUNDING * high).clamp_min(1)).any()):
        middle = ((low + high) / 2).floor()
        is_low = predictive.cdf(middle) < p
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, torch.maximum(middle, low + 1))
    return high


def log_exposure(prediction: Prediction, exposure: Any) -> Tensor:
    """Return the logarithms (n,) of the exposures of points.

    Raises:
        InvalidArgumentError: they are not positive, not as many as the points, or the likelihood has no exposures.
    """
    likelihood = getattr(prediction, "likelihood", None)
    if likelihood is None or not likelihood.takes_exposure:
        raise InvalidArgumentError(f"{NO_EXPOSURE[:-1]}, got {likelihood!r}.")
    mean = prediction.latent.mean()[:, 0].cpu()
    return check_values(check_exposure(exposure), mean, may_be_one=True).expand_as(mean).log()


def check_exposure(exposure: Any) -> Any:
    """Return exposures, (n,) or one number.

    Raises:
        InvalidArgumentError: they are not positive and finite numbers.
    """
    try:
        values = torch.as_tensor(exposure, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"exposure is not an array of numbers: {str(error)[:100]}.") from error
    if not bool(((values > 0) & torch.isfinite(values)).all()):
        raise InvalidArgumentError("exposure must be positive and finite.")
    return exposure


def observations(
    prediction: Prediction, likelihood: Likelihood, offset: Tensor | None = None
) -> ObservedPrediction | ObservedClasses:
    """Return the distribution of observations for a prediction of the latent function.

    Args:
        prediction: The prediction.
        likelihood: The likelihood, with all its parameters.
        offset: The logarithms of exposures, which are added to the latent function, (n,). If None, 0.
    """
    p = prediction
    common = (p.latent, p.location, p.scale, p.noise, p.template, p.as_numpy)
    if likelihood.num_latents > 1:
        return ObservedClasses(*common, likelihood=likelihood)
    return ObservedPrediction(*common, likelihood=likelihood, offset=offset)
