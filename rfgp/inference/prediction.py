"""Predictions in the user's units: the joint law at some points, and its logarithmic twin."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import hides, plain
from rfgp.counts import check_count, counted
from rfgp.errors import InvalidArgumentError
from rfgp.inference.laws import Law, LinearLaw, at_points, normal_log_density, root_of
from rfgp.inference.operators import CovarianceOperator, in_units

NO_LOGARITHM = "Observations under this likelihood are predict(X).observed(); they are no exponentials of normal ones."


@hides("law", "location", "scale", "template", "mean_tensor", "variance_tensor", "covariance_tensor", "operator")
@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The joint Gaussian law at n points, in the user's units; with k outputs, independent ones, an axis more.

    Everything is computed when it is asked for: numpy arrays if the inputs of `predict` were, tensors of the inputs'
    dtype and device otherwise. Without noise the law is that of the latent function; `observed()` adds the noise.

    Attributes:
        law: The latent law, standardised.
        location: The user's value is location + scale * standardised value; () or (k,).
        scale: Likewise.
        noise: The noise variance, standardised, () or (n,); of linear functionals the covariance (n, n).
        template: An empty tensor of the dtype and device of the results.
        as_numpy: Whether results are numpy arrays.
        has_noise: Whether the noise is part of the law.
        of_observations: Makes the law of observations of this one, where their likelihood is not normal.
    """

    law: Law
    location: Tensor
    scale: Tensor
    noise: Tensor
    template: Tensor
    as_numpy: bool
    has_noise: bool = False
    of_observations: "Callable[[Prediction], Prediction] | None" = None

    def observed(self, exposure: Any = None) -> "Prediction":
        """Return the law of observations at these points: the same plus independent noise, or under the likelihood.

        Args:
            exposure: Of counts, what their means are in proportion to, (n,) or one number; None: 1.

        Raises:
            InvalidArgumentError: exposures that are not positive, or under a likelihood that has none.
        """
        if self.of_observations is not None:
            law = self.of_observations(self)
            return law if exposure is None else law.observed(exposure)
        if exposure is not None:
            raise InvalidArgumentError("exposure is of counts and positive values around e^f.")
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
    def std(self) -> Any:
        """The marginal standard deviations, (n,) or (n, k)."""
        return self._out(_deviation(self))

    @property
    def covariance(self) -> Any:
        """The covariance matrix, (n, n) or (n, n, k)."""
        return self._out(self.covariance_tensor())

    @plain()
    def quantile(self, probability: Any) -> Any:
        """Return the quantiles of the marginal laws.

        Args:
            probability: Strictly between 0 and 1; a number, or several, (q,).

        Returns:
            (n,) or (n, k); for several probabilities (q, n) or (q, n, k).

        Raises:
            InvalidArgumentError: a probability that is none.
        """
        return self._out(_quantile(self, probability))

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of the central intervals that hold a value with this probability, each (n,) or (n, k).

        Raises:
            InvalidArgumentError: the level is not strictly between 0 and 1.
        """
        return _interval(self, level)

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that values are at most y, under their marginal laws.

        Args:
            y: One number, or one for each value, (n,) or (n, k), in the user's units.

        Returns:
            (n,) or (n, k).

        Raises:
            InvalidArgumentError: y has another shape.
        """
        mean, deviation = self.mean_tensor(), _deviation(self)
        distance = values_like(y, mean, may_be_one=True) - mean
        scale = 2**0.5 * torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        share = 0.5 * torch.special.erfc(-distance / scale)  # ndtr loses the digits of small ones
        return self._out(torch.where(deviation > 0, share, (distance >= 0).to(share)))

    @plain()
    def linear(
        self,
        weights: Any,  # (n,) or (m, n)
    ) -> "Prediction":
        """Return the joint law of linear functionals of the values: of sums, means, differences.

        `p.linear([1, -1])` is the law of f(a) - f(b), `1 - p.linear([1, -1]).cdf(0)` the probability that f(a) > f(b).
        `observed()` has the noise of the observations, where that is normal. All covariances are computed on the way.

        Args:
            weights: A functional a row, (m, n), or one, (n,).

        Returns:
            The law at m "points", the functionals.

        Raises:
            InvalidArgumentError: weights of another shape, or that are not finite.
        """
        mean = self.law.mean()
        w = _real("weights", weights).to(mean)
        w = w[None] if w.ndim == 1 else w
        if w.ndim != 2 or w.shape[1] != len(mean) or not bool(torch.isfinite(w).all()):
            found = f"shape {tuple(w.shape)}{'' if bool(torch.isfinite(w).all()) else ' with values that are not'}"
            raise InvalidArgumentError(f"weights must be finite, (n,) or (m, n) with n = {len(mean)}, got {found}.")
        noise, shift = self.noise.double(), (self.location / self.scale).reshape(-1)
        noise = w @ noise @ w.mT if noise.ndim == 2 else noise * w @ w.mT
        return replace(self, law=LinearLaw(self.law, w, shift), location=0 * self.location, noise=noise)

    def exp(self) -> "LogNormal":
        """Return the law of the values' exponentials: of a target whose logarithm the process was fitted to."""
        return LogNormal(self)

    @plain()
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law.

        Args:
            num_samples: s.
            seed: An integer, or None for one from the system.
            generator: A CPU generator in place of a seed.

        Returns:
            (s, n) or (s, n, k).

        Raises:
            InvalidArgumentError: s is not a natural number, or both a seed and a generator are given.
        """
        num_samples = check_count("num_samples", num_samples, least=0)
        generator = random.chosen(seed, generator, random.Role.FUNCTIONS)
        root, mean = self.law.root(), self.law.mean()
        if len(root) != len(mean):
            return self._out(self._to_units(mean + drawn_together(root, num_samples, mean, generator)))
        count = (num_samples, mean.shape[1])
        standard = torch.randn(*count, root.shape[1], generator=generator, dtype=root.dtype)
        values = mean + (standard.to(root.device) @ root.mT).mT
        if self.has_noise:
            noise = torch.randn(*count, len(root), generator=generator, dtype=root.dtype).to(root.device)
            spread = self.noise.double()
            errors = noise @ root_of(spread).mT if spread.ndim == 2 else spread.sqrt() * noise
            values = values + errors.mT
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
        return self._out(normal_log_density(values_like(y, mean), mean, variance))

    @plain()
    def mean_tensor(self) -> Tensor:
        """Return the mean (n,) or (n, k), float64 tensor."""
        return self._to_units(self.law.mean())

    @plain()
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,) or (n, k), float64 tensor."""
        noise = _noise(self)
        return _per_output(self, self.law.variance() + (noise.diagonal() if noise.ndim == 2 else noise))

    @plain()
    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n) or (n, n, k), float64 tensor."""
        covariance, noise = self.law.covariance(), _noise(self)
        if covariance.ndim == 3:  # of several functions that do not share it
            return self.scale**2 * covariance
        noise = noise if noise.ndim == 2 else torch.diag(noise.expand(len(covariance)))
        return _per_output(self, covariance + noise)

    def operator(self) -> CovarianceOperator | None:
        """Return the covariance (n, n) in the user's units as products and solves; None where it has to be formed."""
        return in_units(self.law, self.scale, _noise(self))

    def __repr__(self) -> str:
        outputs = f", {counted(len(self.scale), 'output')}" if self.scale.ndim else ""
        return f"Prediction({'observations' if self.has_noise else 'latent function'}{at_points(self.law)}{outputs})"

    def _to_units(self, values: Tensor) -> Tensor:
        """Return standardised values (..., k) in the user's units, without the last axis where there is one output."""
        out = self.location + self.scale * values
        return out[..., 0] if self.location.ndim == 0 else out

    def _out(self, value: Tensor) -> Any:
        return given_back(value, self.template, self.as_numpy)


@dataclass(frozen=True, eq=False, repr=False)
class LogNormal:
    """The joint law of exp(value), where `log` is that of the values: positive, and skewed to the right.

    For targets that are positive and spread over orders of magnitude: `gp.fit(X, np.log(y))`, then
    `gp.predict(X_new).exp()` is the law of the latent function and `gp.predict(X_new).observed().exp()` that of an
    observation, both in the units of y. The mean is larger than the median, which minimises the absolute error. Results
    are arrays or tensors, shaped as those of `log`.

    Attributes:
        log: The law of the logarithm.
    """

    log: Prediction

    def observed(self) -> "LogNormal":
        """Return the law of observations: with the noise of the logarithm, which here is a factor.

        Raises:
            InvalidArgumentError: the likelihood is not that of a normal logarithm.
        """
        if self.log.of_observations is not None:
            raise InvalidArgumentError(NO_LOGARITHM)
        return LogNormal(self.log.observed())

    @property
    def median(self) -> Any:
        """The medians, (n,) or (n, k)."""
        return self.quantile(0.5)

    @property
    def mean(self) -> Any:
        """The means, (n,) or (n, k)."""
        return self._as_log(self.mean_tensor())

    @property
    def variance(self) -> Any:
        """The marginal variances, (n,) or (n, k)."""
        return self._as_log(self.mean_tensor() ** 2 * self.log.variance_tensor().expm1())

    @property
    def std(self) -> Any:
        """The marginal standard deviations, (n,) or (n, k)."""
        return self._as_log(self.mean_tensor() * self.log.variance_tensor().expm1().clamp_min(0).sqrt())

    @property
    def covariance(self) -> Any:
        """The covariance matrix, (n, n) or (n, n, k)."""
        mean = self.mean_tensor()
        return self._as_log(mean[:, None] * mean * self.log.covariance_tensor().expm1())

    def quantile(self, probability: Any) -> Any:
        """Return the quantiles of the marginal laws, as `Prediction.quantile`: (n,), or (q, n) for q probabilities."""
        return self._as_log(_quantile(self.log, probability).exp())

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of the central intervals that hold a value with this probability, each (n,) or (n, k)."""
        return _interval(self, level)

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that values are at most y, a number or as many as there are values, (n,)."""
        return self.log.cdf(values_like(y, self.log.mean_tensor(), may_be_one=True).clamp_min(0).log())

    def log_density(self, y: Any) -> Any:
        """Return the log density of each value (n,) under its marginal law; of what is not positive -inf."""
        values = values_like(y, self.log.mean_tensor())
        log = values.clamp_min(torch.finfo(values.dtype).tiny).log()
        mean, variance = self.log.mean_tensor(), self.log.variance_tensor()
        density = normal_log_density(log, mean, variance) - log
        return self._as_log(torch.where(values > 0, density, -torch.inf))

    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint law, as `Prediction.sample`: (s, n) or (s, n, k)."""
        return self._as_log(torch.as_tensor(self.log.sample(num_samples, seed=seed, generator=generator)).exp())

    def mean_tensor(self) -> Tensor:
        """Return the means (n,) or (n, k), float64 tensor."""
        return (self.log.mean_tensor() + self.log.variance_tensor() / 2).exp()

    def __repr__(self) -> str:
        return f"LogNormal({self.log})"

    def _as_log(self, value: Tensor) -> Any:
        return given_back(value, self.log.template, self.log.as_numpy)


def drawn_together(root: Tensor, count: int, mean: Tensor, generator: torch.Generator) -> Tensor:
    """Return draws (count, n, C) of several functions by a root (C n, r) of their covariance, for means (n, C)."""
    standard = torch.randn(count, root.shape[1], generator=generator, dtype=root.dtype).to(root.device)
    return (standard @ root.mT).reshape(count, *mean.mT.shape).mT


def _per_output(law: Prediction, variance: Tensor) -> Tensor:
    """Return standardised variances in the user's units, with an axis more where there are several outputs."""
    return law.scale**2 * (variance[..., None] if law.scale.ndim else variance)


def _noise(law: Prediction) -> Tensor:
    """Return the standardised noise that is part of a law, (), (n,) or (n, n)."""
    return law.noise.double() if law.has_noise else torch.zeros_like(law.noise, dtype=torch.float64)


def _deviation(law: Prediction) -> Tensor:
    """Return the marginal standard deviations (n,) or (n, k), float64."""
    return law.variance_tensor().clamp_min(0).sqrt()


def _quantile(law: Prediction, probability: Any) -> Tensor:
    """Return the marginal quantiles (n,) or (n, k), float64; (q, n) or (q, n, k) for q probabilities."""
    mean = law.mean_tensor()
    p = probabilities("probability", probability, mean)
    standard: Tensor = torch.special.ndtri(p.reshape(*p.shape, *(1 for _ in mean.shape)))
    return mean + _deviation(law) * standard


def _interval(law: Prediction | LogNormal, level: float) -> tuple[Any, Any]:
    """Return the quantiles between which a value lies with a probability `level`, () each as the law's mean."""
    p = float(probabilities("level", level, torch.empty(0, dtype=torch.float64)).reshape(()))
    low, high = law.quantile([(1 - p) / 2, (1 + p) / 2])
    return low, high


def given_back(value: Tensor, template: Tensor, as_numpy: bool) -> Any:
    """Return results (...) in the dtype and on the device of a template, or as an array."""
    value = (value.detach() if as_numpy else value).to(template)
    return value.cpu().numpy() if as_numpy else value


def _real(name: str, values: Any) -> Tensor:
    """Return what a caller gave as a tensor (...).

    Raises:
        InvalidArgumentError: they are no numbers.
    """
    try:
        return values if isinstance(values, Tensor) else torch.as_tensor(np.array(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} is not an array of numbers: {str(error)[:100]}.") from error


@plain()
def values_like(y: Any, mean: Tensor, may_be_one: bool = False) -> Tensor:
    """Return values of y shaped as a mean (n,) or (n, k), or one of them, ()."""
    values = _real("y", y).to(mean)
    if values.shape != mean.shape and not (may_be_one and values.ndim == 0):
        raise InvalidArgumentError(f"y has shape {tuple(values.shape)}, the mean {tuple(mean.shape)}.")
    return values


def probabilities(name: str, values: Any, like: Tensor) -> Tensor:
    """Return numbers strictly between 0 and 1, () or (q,)."""
    p = _real(name, values).to(like)
    if p.ndim > 1 or not bool(((p > 0) & (p < 1)).all()):
        raise InvalidArgumentError(f"{name} must be strictly between 0 and 1, got {values!r}.")
    return p
