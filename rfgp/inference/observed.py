"""The law of an observation under any likelihood, in the user's units."""

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.inference.labels import NO_COVARIANCE, NO_SUMS, ObservedClasses
from rfgp.inference.laws import LinearLaw
from rfgp.inference.mixtures import LatentMixture, Mixture
from rfgp.inference.noisy import NoiseMixture, NoisyLaw
from rfgp.inference.prediction import NO_LOGARITHM, LogNormal, Prediction, probabilities, values_like
from rfgp.likelihoods import Heteroscedastic, Likelihood

_HALVINGS = 60
_ROUNDED = 2.0**-50
"""Of a count: what it is known to."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedPrediction(Prediction):
    """The law of observations at n points under a likelihood that is not normal, in the user's units.

    Its marginal laws are mixtures over the latent function's; draws are joint.

    Attributes:
        likelihood: With all its parameters, of standardised observations.
        offset: What exposures add to the latent function, (n,); None: nothing.
    """

    likelihood: Likelihood | None = None
    offset: Tensor | None = None

    def observed(self, exposure: Any = None) -> "ObservedPrediction":
        """Return the law itself, or that at other exposures, (n,) or one number."""
        return self if exposure is None else replace(self, offset=log_exposure(self, exposure))

    @plain()
    def mean_tensor(self) -> Tensor:
        """Return the mean (n,), float64 tensor."""
        return self._unit * self._moments[0]

    @plain()
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,), float64 tensor."""
        return self._unit**2 * self._moments[1]

    def covariance_tensor(self) -> Tensor:
        """Refuse: (n, n) numbers would be an integral each.

        Raises:
            InvalidArgumentError: always; with what to do.
        """
        raise InvalidArgumentError(NO_COVARIANCE)

    def log_density(self, y: Any) -> Any:
        """Return the log density of each observation (n,) under its marginal law; of counts and labels that of y."""
        values = values_like(y, self._moments[0]) / self._unit
        if (wrong := self._likelihood.check(values)) is not None:
            raise InvalidArgumentError(f"y is no observation: {wrong}.")
        found = self._mixture.log_density(values)
        return self._out(found - (0.0 if self._likelihood.is_discrete else math.log(self._unit)))

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that observations are at most y, one number or (n,)."""
        mean = self._moments[0]
        values = (values_like(y, mean, may_be_one=True) / self._unit).expand_as(mean)
        return self._out(self._mixture.below(values))

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the least y with at least this probability of at most y: (n,), or (q, n) for q probabilities."""
        mean, mixture = self._moments[0], self._mixture
        p = probabilities("probability", probability, mean)
        found = [self._unit * at_least(mixture, self._likelihood, one.expand_as(mean)) for one in p.reshape(-1)]
        return self._out(torch.stack(found).reshape(*p.shape, *mean.shape))

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law, (s, n): functions, and an observation of each value."""
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        return self._out(self._unit * self._mixture.sample(num_samples, generator))

    def linear(self, weights: Any) -> Prediction:
        """Refuse: sums (m, n) of observations have no law in closed form.

        Raises:
            InvalidArgumentError: always; with what to do.
        """
        raise InvalidArgumentError(NO_SUMS)

    def exp(self) -> LogNormal:
        """Refuse: these are observations, not the logarithms of some.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(NO_LOGARITHM)

    def operator(self) -> None:
        """Return that there is none of a covariance (n, n)."""
        return

    def __repr__(self) -> str:
        return f"ObservedPrediction({self.likelihood!r})"

    # --- standardised ----------------------------------------------------------------------------

    @property
    def _likelihood(self) -> Likelihood:
        assert self.likelihood is not None
        return self.likelihood

    @property
    def _unit(self) -> float:
        return float(self.scale)

    @property
    def _mixture(self) -> Mixture:
        law, location = self._likelihood, (self.location / self.scale).double()
        location = location if self.offset is None else location + self.offset
        if not law.has_noise_process:
            return LatentMixture(law, self.law, location)
        return NoiseMixture(
            torch.as_tensor(cast(Heteroscedastic, law).noise).double(), cast(NoisyLaw, self.law), location
        )

    @property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Means and variances (n,), standardised."""
        return self._mixture.moments()


def at_least(mixture: Mixture, law: Likelihood, p: Tensor) -> Tensor:
    """Return the least y (n,) with at least the probabilities p (n,) of at most y, by bisection."""
    center, width = mixture.around()
    low, high = torch.full_like(center, law.lowest), center + width
    if not math.isfinite(law.lowest):
        low = center - width
    for _ in range(200):
        short, far = mixture.below(high) < p, (mixture.below(low) > p) & (not math.isfinite(law.lowest))
        if not bool((short | far).any()):
            break
        width = 2 * width
        low, high = torch.where(far, low - width, low), torch.where(short, high + width, high)
    if law.is_discrete:
        return _least_count(mixture, p, high.ceil())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = mixture.below(middle) < p
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high


def _least_count(mixture: Mixture, p: Tensor, high: Tensor) -> Tensor:
    """Return the least whole numbers (n,) from 0 to `high` with at least these probabilities of at most that."""
    low = torch.full_like(high, -1.0)
    while bool((high - low > (_ROUNDED * high).clamp_min(1)).any()):
        middle = ((low + high) / 2).floor()
        below = mixture.below(middle) < p
        low, high = torch.where(below, middle, low), torch.where(below, high, torch.maximum(middle, low + 1))
    return high


def log_exposure(prediction: Prediction, exposure: Any) -> Tensor:
    """Return the logarithms (n,) of the exposures of points.

    Raises:
        InvalidArgumentError: they are not positive, not as many as there are points, or of no counts.
    """
    law = getattr(prediction, "likelihood", None)
    if law is None or not law.takes_exposure:
        raise InvalidArgumentError(f"exposure is of counts and positive values around e^f, got {law!r}.")
    mean = prediction.law.mean()[:, 0].cpu()
    return values_like(check_exposure(exposure), mean, may_be_one=True).expand_as(mean).log()


def check_exposure(exposure: Any) -> Any:
    """Return exposures, (n,) or one number.

    Raises:
        InvalidArgumentError: they are no positive and finite numbers.
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
    """Return the law of observations under a likelihood where that of the latent function is a prediction.

    Args:
        prediction: Of that.
        likelihood: With all its parameters.
        offset: What exposures add to it, (n,).

    Raises:
        InvalidArgumentError: the prediction is of linear functionals.
    """
    p = prediction
    if isinstance(p.law, LinearLaw):
        raise InvalidArgumentError(
            "Functionals of the latent function have no observations under this likelihood: sample those of the "
            "points, predict(X).observed().sample(...)."
        )
    common = (p.law, p.location, p.scale, p.noise, p.template, p.as_numpy)
    if likelihood.num_latents > 1:
        return ObservedClasses(*common, likelihood=likelihood)
    return ObservedPrediction(*common, likelihood=likelihood, offset=offset)
