"""Predictive and leave-one-out distributions of observations, in the user's units."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import InvalidArgumentError
from rfgp.inference.arguments import check_probabilities, check_values, read_draws
from rfgp.inference.distributions import quantiles_by_bisection
from rfgp.inference.prediction import Prediction
from rfgp.inference.predictive import HeteroscedasticPredictive, LatentPredictive, Predictive
from rfgp.inference.unsupported import NO_EXPOSURE
from rfgp.likelihoods import Heteroscedastic, Likelihood
from rfgp.threads import computed


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


_SOBOL_DRAWS = 512
"""The number of draws of a Sobol sequence for the mean of a softmax."""
_CHUNK = 2**14
"""The number of points times classes that are averaged at once."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedClasses(Prediction):
    """The distribution of labels at n points, with a probability of each class.

    Methods are those of `Prediction`. Probabilities are means of softmaxes over the joint Gaussian distribution of the
    C functions at a point. They use 512 draws of a Sobol sequence. Their error is about 0.002 for wide distributions.

    Attributes:
        likelihood: The likelihood, with the number C of classes.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 1, 12)[:, None]
        >>> gp = rfgp.ExactGP(likelihood="categorical", lengthscale=0.3).condition(X, np.arange(12) // 4)
        >>> gp.predict([[0.0], [0.5], [1.0]]).observed().labels.tolist()
        [0.0, 1.0, 2.0]
    """

    likelihood: Likelihood = field(kw_only=True)
    _has_closed_form = False

    def observed(self, exposure: Any = None) -> "ObservedClasses":
        """Return the distribution itself, or raise an InvalidArgumentError if an exposure is given."""
        if exposure is not None:
            raise InvalidArgumentError(NO_EXPOSURE)
        return self

    @property
    def probabilities(self) -> Any:
        """The probabilities of the classes, (n, C)."""
        return self.mean

    @property
    def labels(self) -> Any:
        """The most probable classes, (n,)."""
        return self._out(self._probabilities().argmax(-1))

    @computed
    def mean_tensor(self) -> Tensor:
        """Return the probabilities (n, C), float64 tensor."""
        return self._probabilities().clone()

    @computed
    def variance_tensor(self) -> Tensor:
        """Return the variances of the classes' indicators, (n, C), float64 tensor."""
        p = self._probabilities()
        return p * (1 - p)

    def log_prob(self, y: Any) -> Any:
        """Return the logarithm of the probability of each label.

        Raises:
            InvalidArgumentError: If y has another shape than the labels, or has values that are not labels.
        """
        p = self._probabilities()
        values = check_values(y, p[:, 0])
        if (wrong := self.likelihood.check(values)) is not None:
            raise InvalidArgumentError(f"y must be labels: {wrong}.")
        return self._out(p.gather(1, values.long()[:, None])[:, 0].log())

    def cdf(self, y: Any) -> Any:
        """Return the probabilities (n,) that labels are at most y, one number or (n,)."""
        p = self._probabilities()
        values = check_values(y, p[:, 0], may_be_one=True).expand(len(p))
        labels = torch.arange(p.shape[1], dtype=values.dtype)
        return self._out((p * (labels <= values[:, None])).sum(1))

    @computed
    def quantile(self, probability: Any) -> Any:
        """Return the quantiles of labels, (n,), or (q, n) for q probabilities.

        A quantile is the smallest label with a cdf of at least the probability.
        """
        probabilities = self._probabilities()
        p = check_probabilities("probability", probability, probabilities)
        cumulative = probabilities.cumsum(1).clamp_max(1.0)
        cumulative[:, -1] = 1.0
        return self._out((cumulative < p[..., None, None]).sum(-1))

    @computed
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw labels from their joint distribution, (s, n)."""
        num_samples, generator = read_draws(num_samples, seed, generator)
        f = (self.location.double() + self.latent.sample(num_samples, generator)).cpu()
        return self._out(self.likelihood.sample(f, generator))

    def __repr__(self) -> str:
        return f"ObservedClasses({self.likelihood!r})"

    def _probabilities(self) -> Tensor:
        """Return the probabilities (n, C), and keep them."""
        with torch.no_grad():
            return self._cache.get("probabilities", self._averaged_softmax, keep=not self.latent.requires_grad)

    def _averaged_softmax(self) -> Tensor:
        covariance = self.latent.function_covariance()
        return averaged_softmax((self.location.double() + self.latent.mean()).cpu(), covariance.cpu())


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
    size = max(1, _CHUNK // num_classes)
    parts = zip(torch.split(mean, size), torch.split(roots, size), strict=True)
    return torch.cat([torch.softmax(m[:, None] + standard @ root.mT, dim=2).mean(1) for m, root in parts])


_BISECTION_STEPS = 60
"""The number of bisection steps for a quantile."""
_MAX_DOUBLINGS = 200
"""The maximum number of doublings of the step that brackets a quantile."""
_ROUNDING = 2.0**-50
"""The relative precision of a quantile of counts."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedPrediction(Prediction):
    """The distribution of observations under a likelihood that is not Gaussian.

    Methods are those of `Prediction`. Marginal distributions are integrals over the latent function. Draws are joint.

    Attributes:
        likelihood: The likelihood of standardized observations, with all its parameters.
        offset: The log exposures, (n,), which are added to the latent function. If None, 0.
        is_per_unit: Whether the training rows have exposures, so that the offset must be given for scores.

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
    is_per_unit: bool = False
    _has_closed_form = False

    def observed(self, exposure: Any = None) -> "ObservedPrediction":
        """Return the distribution itself, or that at other exposures, (n,) or one number."""
        return self if exposure is None else replace(self, offset=log_exposure(self, exposure), is_per_unit=False)

    def check_scored(self) -> None:
        """Check that the exposures of observations are known.

        Raises:
            InvalidArgumentError: If the model was fitted with exposures, and none are given here.
        """
        if self.is_per_unit:
            raise InvalidArgumentError(
                "exposure must be given for scores of a model with exposures, got None. Score predict(X).observed("
                "exposure=...) instead, with exposure=1.0 for observations of one unit."
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
            InvalidArgumentError: If y has another shape than the mean, or is impossible under the likelihood. Also if
                the model was fitted with exposures, and none are given here.
        """
        self.check_scored()
        values = check_values(y, self._moments()[0]) / self._unit
        if (wrong := self.likelihood.check(values)) is not None:
            raise InvalidArgumentError(f"y must be possible observations: {wrong}.")
        log_prob = self._predictive.log_prob(values)
        return self._out(log_prob - (0.0 if self.likelihood.is_discrete else math.log(self._unit)))

    def cdf(self, y: Any) -> Any:
        """Return the probabilities (n,) that observations are at most y, one number or (n,)."""
        mean = self._moments()[0]
        values = (check_values(y, mean, may_be_one=True) / self._unit).expand_as(mean)
        return self._out(self._predictive.cdf(values))

    @computed
    def quantile(self, probability: Any) -> Any:
        """Return the quantiles of observations, (n,), or (q, n) for q probabilities.

        A quantile is the smallest y with a cdf of at least the probability.
        """
        mean, predictive = self._moments()[0], self._predictive
        p = check_probabilities("probability", probability, mean)
        levels = (level.expand_as(mean) for level in p.reshape(-1))
        quantiles = torch.stack([self._unit * quantile_of(predictive, self.likelihood, level) for level in levels])
        return self._out(quantiles.reshape(*p.shape, *mean.shape))

    @computed
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw observations from the joint distribution, (s, n)."""
        num_samples, generator = read_draws(num_samples, seed, generator)
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
        base_noise = torch.as_tensor(cast(Heteroscedastic, likelihood).noise, dtype=torch.float64)
        return HeteroscedasticPredictive(base_noise, self.latent, location)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and variances (n,), and keep them."""
        return self._cache.get("moments", self._predictive.moments, keep=not self.latent.requires_grad)


def quantile_of(
    predictive: Predictive,
    likelihood: Likelihood,
    p: Tensor,  # (n,)
) -> Tensor:  # (n,)
    """Return the smallest values with a cdf of at least p, by bisection.

    Args:
        predictive: The predictive distribution at n points.
        likelihood: The likelihood.
        p: The probabilities, (n,).
    """
    center, step = predictive.quantile_search_start()
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
    return quantiles_by_bisection(predictive.cdf, p, low, high, _BISECTION_STEPS)


def _quantile_of_counts(predictive: Predictive, p: Tensor, high: Tensor) -> Tensor:
    """Return the smallest integers (n,) from 0 to `high` with a cdf of at least p."""
    low = torch.full_like(high, -1.0)
    while bool((high - low > (_ROUNDING * high).clamp_min(1)).any()):
        middle = ((low + high) / 2).floor()
        is_low = predictive.cdf(middle) < p
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, torch.maximum(middle, low + 1))
    return high


def log_exposure(prediction: Prediction, exposure: Any) -> Tensor:
    """Return the log exposures (n,) of points.

    Args:
        prediction: The prediction at n points.
        exposure: The exposures, (n,) or one number.

    Raises:
        InvalidArgumentError: If they are not positive, not one for each point, or the likelihood has no exposures.
    """
    likelihood = getattr(prediction, "likelihood", None)
    if likelihood is None or not likelihood.takes_exposure:
        raise InvalidArgumentError(f"{NO_EXPOSURE[:-1]}, got {likelihood!r}.")
    mean = prediction.latent.mean()[:, 0].cpu()
    return check_values(check_exposure(exposure), mean, may_be_one=True).expand_as(mean).log()


def check_exposure(exposure: Any) -> Any:
    """Return exposures, (n,) or one number.

    Args:
        exposure: The exposures, (n,) or one number.

    Raises:
        InvalidArgumentError: If they are not positive and finite numbers.
    """
    try:
        values = torch.as_tensor(exposure, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"exposure must be an array of numbers: {str(error)[:100]}.") from error
    if not bool(((values > 0) & torch.isfinite(values)).all()):
        raise InvalidArgumentError("exposure must be positive and finite.")
    return exposure


def observations(
    prediction: Prediction, likelihood: Likelihood, offset: Tensor | None = None, *, is_per_unit: bool = False
) -> ObservedPrediction | ObservedClasses:
    """Return the distribution of observations for a prediction of the latent function.

    Args:
        prediction: The prediction.
        likelihood: The likelihood, with all its parameters.
        offset: The log exposures, (n,), which are added to the latent function. If None, 0.
        is_per_unit: Whether the training rows have exposures, so that the offset must be given for scores.
    """
    p = prediction
    common = (p.latent, p.location, p.scale, p.noise, p.template, p.as_numpy)
    if likelihood.num_latents > 1:
        return ObservedClasses(*common, likelihood=likelihood, is_small=p.is_small)
    return ObservedPrediction(
        *common, likelihood=likelihood, offset=offset, is_per_unit=is_per_unit, is_small=p.is_small
    )
