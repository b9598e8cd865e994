"""Joint Gaussian and log-normal predictions at some points, in the user's units."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.distributions import (
    Distribution,
    LinearFunctionals,
    Marginals,
    NormalMarginals,
    ResultCache,
    check_joint_fits,
    check_level,
    check_probabilities,
    check_values,
    in_caller_form,
    kept,
    read_draws,
    read_real,
)
from rfgp.linalg import covariance_root
from rfgp.messages import counted
from rfgp.solvers.role import LatentOperator
from rfgp.threads import computed
from rfgp.torch_context import unlisted

# --- Implicit covariances of predictions, with products, solves and draws --------------------------------------------


@dataclass(frozen=True, eq=False)
class ObservedOperator:
    """The covariance c^2 (S + D) of observations in the user's units.

    Attributes:
        latent: The covariance S of the latent values.
        noise: The diagonal of D (n,), positive.
        scale: The scale c.
    """

    latent: LatentOperator
    noise: Tensor
    scale: float

    def times(self, v: Tensor) -> Tensor:
        """Return c^2 (S + D) v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.scale**2 * (self.latent.times(v) + self.noise[:, None] * v)

    def solve(self, v: Tensor) -> Tensor:
        """Return (S + D)^-1 v / c^2, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.latent.solve(v, self.noise) / self.scale**2

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, c^2 (S + D)).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.

        Returns:
            The draws, (n, count).
        """
        standard = torch.randn(len(self.noise), count, generator=generator, dtype=torch.float64)
        return self.scale * (self.latent.draw(count, generator) + self.noise.sqrt()[:, None] * standard)


# --- Error messages for operations that a distribution does not support ----------------------------------------------

NO_LOGARITHM = (
    "Observations under this likelihood are not exponentials of Gaussian values. Use predict(X).observed() instead."
)
NO_COVARIANCE = (
    "Observations under this likelihood have no covariance in closed form. Use that of many samples, or that of the "
    "latent function, predict(X).covariance."
)
NO_SUMS = "Sums of observations under this likelihood have no distribution in closed form. Use many samples instead."


ROW_ARGUMENTS: dict[str, tuple[str, Callable[[Tensor], Tensor], str]] = {
    "exposure": (
        "of counts, or of positive values around e^f",
        lambda x: (x > 0) & torch.isfinite(x),
        "positive and finite",
    ),
    "trials": ("binomial", lambda x: (x > 0) & (x == x.round()), "integers 1, 2, ..., the trials of each count"),
    "censored": (
        "of censored values: tobit, lognormal or weibull",
        lambda x: x.abs() * (x.abs() - 1) == 0,
        "-1 (left-censored), 0 (observed) or 1 (right-censored)",
    ),
}
"""The likelihoods that take each number of a row, whether a number is valid, and the valid ones."""


def check_numbers(likelihood: Any, **numbers: Any) -> Any:
    """Return the exposures, trials or codes of censoring, or None if there are none.

    Args:
        likelihood: The likelihood. If None, it is Gaussian.
        **numbers: The numbers, (n,) or one, by their argument, or None.

    Raises:
        InvalidArgumentError: If the likelihood takes no such numbers, or they are not valid.
    """
    found = None
    for name, values in numbers.items():
        needed, is_valid, must = ROW_ARGUMENTS[name]
        if values is None:
            continue
        if name != getattr(likelihood, "row_argument", None):
            raise InvalidArgumentError(
                f"{name} requires a likelihood {needed}, got {likelihood or 'gaussian'!r}. Leave it out."
            )
        if not bool(is_valid(read_real(name, found := values)).all()):
            raise InvalidArgumentError(f"{name} must be {must}.")
    return found


def check_closed_form(has_closed_form: bool, message: str) -> None:
    """Raise unless sums, exponentials and covariances of values have a closed form.

    Args:
        has_closed_form: Whether they have one.
        message: The error message.

    Raises:
        InvalidArgumentError: If they have none.
    """
    if not has_closed_form:
        raise InvalidArgumentError(message)


NO_FUNCTIONALS = (
    "Functionals of the latent function have no observations under this likelihood. Use observations at the points, "
    "predict(X).observed().sample(...), instead."
)
NO_OBSERVED_TERMS = (
    "A term has no observations of its own under a likelihood that is not Gaussian. Use the latent distribution, or "
    "predict(X).observed() of all terms."
)
NO_OBSERVED_DERIVATIVE = "A derivative has no observations. Use its latent distribution."
NO_OBSERVED_INTEGRAL = "An integral has no observations. Use its latent distribution."


# --- Joint Gaussian and log-normal predictions at some points, in the user's units -----------------------------------


P = TypeVar("P", bound="Prediction")


@unlisted(
    "latent",
    "location",
    "scale",
    "template",
    "mean_tensor",
    "variance_tensor",
    "covariance_tensor",
    "operator",
    "draws",
    "values_like",
    "as_kind",
    "is_small",
    "calibrated_ends",
    "grid",
)
@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The joint Gaussian distribution at n points, in the user's units. k independent outputs add an axis.

    Moments are computed at the first access, and kept. Results are numpy arrays if the inputs of `predict` were, and
    otherwise tensors of the inputs' dtype and device. The distribution is that of the latent function. `observed()`
    adds the noise, and shares the computed moments.

    Attributes:
        latent: The standardized distribution of the latent function.
        location: The location, () or (k,). A value in the user's units is location + scale * standardized value.
        scale: The scale, () or (k,).
        noise: The standardized noise variance, () or (n,). For linear functionals it is the covariance (m, m).
        template: An empty tensor with the dtype and device of the results.
        as_numpy: Whether results are numpy arrays.
        has_noise: Whether the distribution includes the noise.
        of_observations: A function that returns the distribution of observations for a prediction of the latent
            function, or an error message if there is none. If None, the likelihood is Gaussian.
        is_small: Whether rows and points are so few that one thread computes.
        scales: The scales of residuals at the points, which depend on the inputs. If None, they are constant.
        calibrated_ends: A function of a level to the ends of calibrated intervals of observations, in the user's units.
            If None, there are none.
        grid: The coordinates of xarray and the sizes of the dimensions, if points are the cells of a grid. Or None.

    Examples:
        >>> import rfgp
        >>> p = rfgp.ExactGP(noise=0.01).condition([[0.0], [0.5], [1.0]], [0.0, 1.0, 0.2]).predict([[0.3], [0.6]])
        >>> p.mean.shape, (p.observed().std > p.std).tolist(), p.covariance.shape, p.sample(5, seed=0).shape
        ((2,), [True, True], (2, 2), (5, 2))
        >>> p.cdf(p.quantile(0.9)).round(2).tolist(), p.linear([1, -1]).mean.shape, p.log_prob([0.7, 0.9]).shape
        ([0.9, 0.9], (1,), (2,))
        >>> from rfgp import kernels as k
        >>> X = {"t": [0.0, 0.5, 1.0, 1.5], "store": ["a", "b", "a", "b"]}
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Group("store")).condition(X, [0.0, 1.0, 0.3, 0.8])
        >>> gp.predict(X).terms["trend"].mean.shape
        (4,)
    """

    latent: Distribution
    location: Tensor
    scale: Tensor
    noise: Tensor
    template: Tensor
    as_numpy: bool
    has_noise: bool = False
    of_observations: "Callable[[Prediction], Prediction] | str | None" = None
    is_small: bool = field(default=False, kw_only=True)
    scales: Any = field(default=None, kw_only=True)
    calibrated_ends: Callable[[float], tuple[Tensor, Tensor]] | None = field(default=None, kw_only=True)
    grid: Any = field(default=None, kw_only=True)
    _cache: ResultCache = field(default_factory=ResultCache, init=False)
    _has_closed_form: ClassVar[bool] = True
    """Whether sums, exponentials and covariances of the values have a closed form."""

    def observed(self, exposure: Any = None, trials: Any = None, censored: Any = None) -> "Prediction":
        """Return the posterior predictive distribution of observations at these points.

        Args:
            exposure: For counts, the factor of their means, (n,) or one number. If None, 1. Scores of a model that was
                fitted with exposures need them here.
            trials: For a binomial likelihood, the numbers of trials, (n,) or one number. If None, 1. Scores need them.
            censored: For scores of censored observations, their codes, (n,) or one number: -1 left-censored, 0
                observed, 1 right-censored. `log_prob` is then the log probability beyond the limit. If None, 0.

        Raises:
            InvalidArgumentError: If a number is not valid, or the likelihood takes none. Also if there are no
                observations, as of derivatives.
        """
        if isinstance(of_observations := self.of_observations, str):
            raise InvalidArgumentError(of_observations)
        if of_observations is not None:
            observed = self._cache.get("observed", lambda: of_observations(self))
            return observed.observed(exposure, trials, censored)
        check_numbers(None, exposure=exposure, trials=trials, censored=censored)
        if self.scales is not None:
            scaled: Prediction = self._cache.get("observed", lambda: self.scales.observed(self))
            return scaled
        return replace(self, has_noise=True)

    @property
    def unscaled(self) -> "Prediction":
        """The prediction of the process without scales of residuals, for which joint distributions are normal."""
        return self if self.scales is None else replace(self, latent=self.scales.latent, scales=None)

    def as_kind(self, kind: type[P], **changes: Any) -> P:
        """Return a prediction of another class with the attributes of this one.

        Args:
            kind: The class.
            **changes: Other values of attributes, and those of the class.
        """
        common = {one.name: getattr(self, one.name) for one in fields(Prediction) if one.init}
        return kind(**{**common, **changes})

    def _with_moments(self) -> Self:
        """Return the prediction with normal observations, which have the variances of the scaled ones."""
        if self.scales is None:
            return self
        return replace(self, noise=self.scales.extra_noise().to(self.scale.device), scales=None)

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
        return self._out(self.variance_tensor().clamp_min(0).sqrt())

    @property
    def covariance(self) -> Any:
        """The covariance matrix, (n, n) or (n, n, k).

        It raises a `graphs.MemoryBudgetError` if it does not fit into memory.
        """
        return self._out(self.covariance_tensor())

    def to_xarray(self) -> Any:
        """Return the mean and the standard deviation as a Dataset of xarray, on the grid that was predicted.

        Several outputs have the dimension "output".

        Raises:
            InvalidArgumentError: If the points are not the cells of a Dataset or DataArray.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> import xarray as xr
            >>> seen = xr.DataArray(np.eye(4), {"y": range(4), "x": range(4)}, name="height")
            >>> gp = rfgp.GP(rfgp.kernels.RBF(("x", "y"), lengthscale=1.0), seed=0).condition(seen, "height")
            >>> found = gp.predict(seen).to_xarray()
            >>> dict(found.sizes), list(found)
            ({'y': 4, 'x': 4}, ['mean', 'std'])
        """
        if self.grid is None:
            raise InvalidArgumentError(
                "to_xarray requires a prediction at the cells of a Dataset of xarray, got other points. Use "
                "gp.predict(dataset).to_xarray()."
            )
        coordinates, sizes = self.grid
        outputs = ("output",) if self.mean_tensor().ndim > 1 else ()
        moments = (("mean", self.mean), ("std", self.std))
        return coordinates.assign(
            {name: ((*sizes, *outputs), v.reshape((*sizes.values(), *v.shape[1:]))) for name, v in moments}
        )

    @computed
    def quantile(self, probability: Any) -> Any:
        """Return the quantiles of the marginal distributions.

        Args:
            probability: One number strictly between 0 and 1, or several, (q,).

        Returns:
            (n,) or (n, k). For several probabilities, (q, n) or (q, n, k).

        Raises:
            InvalidArgumentError: If a probability is not strictly between 0 and 1.
        """
        marginals, like = self.marginals(), self.values_like()
        p = check_probabilities("probability", probability, like)
        quantiles = torch.stack([marginals.quantile(level.expand_as(like)) for level in p.reshape(-1)])
        return self._out(quantiles.reshape(*p.shape, *like.shape))

    @computed
    def interval(self, level: float = 0.95, *, calibrated: bool = False) -> tuple[Any, Any]:
        """Return the lower and upper ends of central intervals, each (n,) or (n, k).

        Calibrated intervals of observations scale the predictive deviation by residuals of left-out rows. They cover
        new rows even if the kernel or the noise is wrong. Up to 2,000 rows they are jackknife+ intervals from
        leave-one-out predictions in closed form. A level 1 - a then has the guaranteed coverage 1 - 2 a, and mostly
        about 1 - a. With more rows, or with nearest neighbors, they are split conformal: a fifth of the rows, at most
        4,000, is held out, and intervals are around the mean given the others. A level 1 - a then has the guaranteed
        coverage 1 - a. Both guarantees are for new rows that are exchangeable with the training rows, on average over
        both. They are approximate, because hyperparameters learned from all rows are kept.

        Args:
            level: The probability that a value is inside its interval.
            calibrated: Whether intervals are calibrated by left-out rows, after `observed()`. The default is False.

        Raises:
            InvalidArgumentError: If the level is not strictly between 0 and 1. For calibrated intervals, also if this
                is not the prediction of observations under a Gaussian likelihood, rows have weights or known noise, the
                kernel was selected with `validate=`, or there are too few rows for the level.

        Source: Jaber et al. (2024), "Conformal approach to Gaussian process surrogate evaluation with coverage
        guarantees" (J+GP).

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 60)[:, None]
            >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(60)
            >>> p = rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(X, y).predict([[2.5]]).observed()
            >>> [end.round(3).tolist() for end in p.interval(0.9)]
            [[0.407], [0.69]]
            >>> [end.round(3).tolist() for end in p.interval(0.9, calibrated=True)]
            [[0.404], [0.691]]
        """
        if not calibrated:
            p = check_level(level)
            low, high = self.quantile([(1 - p) / 2, (1 + p) / 2])
            return low, high
        if self.calibrated_ends is None or not self.has_noise:
            raise InvalidArgumentError(
                "calibrated=True requires the observations of all terms at points, under a Gaussian likelihood, got "
                f"{self!r}. Use predict(X).observed().interval(level, calibrated=True), or calibrated=False."
            )
        low, high = self.calibrated_ends(level)
        return self._out(low), self._out(high)

    def cdf(self, y: Any) -> Any:
        """Return the probabilities that values are at most y.

        Args:
            y: One number, or one for each value, (n,) or (n, k), in the user's units.

        Returns:
            (n,) or (n, k).

        Raises:
            InvalidArgumentError: If y has another shape.
        """
        marginals, like = self.marginals(), self.values_like()
        return self._out(marginals.cdf(check_values(y, like, may_be_one=True).expand_as(like)))

    @computed
    def linear(
        self,
        weights: Any,  # (n,) or (m, n)
    ) -> "Prediction":
        """Return the joint distribution of linear functionals, such as sums.

        `p.linear([1, -1])` is the distribution of f(a) - f(b), and `1 - p.linear([1, -1]).cdf(0)` the probability that
        f(a) > f(b). `observed()` adds the noise of the observations, if it is Gaussian. The covariance of all points is
        computed.

        Args:
            weights: One functional a row, (m, n), or one functional, (n,).

        Returns:
            The distribution of the functionals, as m points.

        Raises:
            InvalidArgumentError: If the weights have another shape or are not finite, or there is no closed form.
        """
        check_closed_form(self._has_closed_form, NO_SUMS)
        mean = self.latent.mean()
        w = read_real("weights", weights).to(mean)
        w = w[None] if w.ndim == 1 else w
        if w.ndim != 2 or w.shape[1] != len(mean) or not bool(torch.isfinite(w).all()):
            shape = f"shape {tuple(w.shape)}{'' if bool(torch.isfinite(w).all()) else ' with NaN or infinity'}"
            raise InvalidArgumentError(f"weights must be finite, (n,) or (m, n) with n = {len(mean)}, got {shape}.")
        noise, shift = self._with_moments().noise.double(), (self.location / self.scale).reshape(-1)
        noise = w @ noise @ w.mT if noise.ndim == 2 else noise * w @ w.mT
        return replace(
            self,
            latent=LinearFunctionals(self.latent, w, shift),
            location=0 * self.location,
            noise=noise,
            of_observations=self.of_observations and NO_FUNCTIONALS,
            calibrated_ends=None,
            scales=None,
            grid=None,
        )

    @property
    def terms(self) -> "Terms":
        """The prediction of each term by name, without the mean of the model."""
        return Terms(self, self._divided.terms)

    def of(self, *terms: str) -> "Prediction":
        """Return the prediction of the sum of some terms, without the mean of the model.

        Args:
            terms: The names of the terms.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        return replace(
            self.unscaled,
            latent=self._divided.of(*terms),
            location=torch.zeros_like(self.location),
            of_observations=self.of_observations and NO_OBSERVED_TERMS,
            calibrated_ends=None,
        )

    def without(self, *terms: str) -> "Prediction":
        """Return the prediction of the sum of all other terms, without the mean of the model.

        Args:
            terms: The names of the terms that are left out.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, no term remains, or the posterior is not
                divided into terms.
        """
        names = self._divided.terms
        unknown = [name for name in terms if name not in names]
        return self.of(*unknown, *(name for name in names if terms and name not in terms))

    def centered(self) -> "Prediction":
        """Return the prediction of the values minus their mean over the points.

        A constant that several terms share cancels, so it does not widen their intervals.
        """
        n = len(self.latent.mean())
        check_joint_fits(n)
        return self.linear(torch.eye(n, dtype=torch.float64) - 1 / max(n, 1))

    def cross_covariance(self, first: Any, second: Any) -> Any:
        """Return the posterior covariance between two sums of terms at the points.

        Args:
            first: The names of the terms of the first sum, along the rows, or one name.
            second: The names of the terms of the second sum, along the columns, or one name.

        Returns:
            The covariance (n, n), or (n, n, k) for k outputs.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        names = ([terms] if isinstance(terms, str) else terms for terms in (first, second))
        return self._out(_per_output(self, self._divided.cross_covariance(*names)))

    @property
    def _divided(self) -> Distribution:
        """The latent distribution of all terms, for which joint distributions are normal."""
        check_closed_form(self._has_closed_form, Distribution.not_divided)
        return self.unscaled.latent

    def exp(self) -> "LogNormal":
        """Return the log-normal distribution of exponentials, or raise InvalidArgumentError without a closed form."""
        check_closed_form(self._has_closed_form, NO_LOGARITHM)
        return self.as_kind(LogNormal, calibrated_ends=None, log=self)

    @computed
    def sample(self, num_samples: int, *, seed: int | None = None, generator: torch.Generator | None = None) -> Any:
        """Draw from the joint distribution.

        If there are fewer draws than points and all terms have weights, such as random features, weights are drawn. The
        covariance is then not formed. Draws have the distribution of the covariance: they include new levels, and
        variances that features miss.

        Args:
            num_samples: The number s of draws.
            seed: An integer. If None, the system's entropy is used.
            generator: A generator on the CPU, instead of a seed. If None, the seed determines the draws.

        Returns:
            (s, n) or (s, n, k).

        Raises:
            InvalidArgumentError: If s is not a natural number, or both a seed and a generator are given.
            MemoryBudgetError: If the covariance is needed and does not fit into memory.
        """
        return self._out(self.draws(*read_draws(num_samples, seed, generator)))

    def draws(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from the joint distribution, (s, n) or (s, n, k), float64 tensor.

        Args:
            count: The number s of draws.
            generator: A generator on the CPU.
        """
        values = self.latent.sample(count, generator)
        if self.has_noise:
            _, n, k = values.shape
            values = values + _noise_draws(self.noise, (count, k), n, generator).to(values).mT
        return self._to_units(values)

    def log_prob(self, y: Any) -> Any:
        """Return the log density of each value under its marginal distribution.

        The mean of `observed().log_prob(y)` over held-out observations y is the negative of `rfgp.metrics.nlpd`.

        Args:
            y: Values (n,) or (n, k), in the user's units.

        Returns:
            (n,) or (n, k).

        Raises:
            InvalidArgumentError: If y has another shape than the mean.
        """
        return self._out(self.marginals().log_prob(check_values(y, self.values_like())))

    @kept
    def marginals(self) -> Marginals:
        """Return the marginal distributions of the values, in the user's units."""
        variance = self.variance_tensor()  # first: its pass over the points finds the mean too
        return NormalMarginals(self.mean_tensor(), variance)

    def values_like(self) -> Tensor:
        """Return a tensor with the shape and type of values, (n,) or (n, k)."""
        return self.mean_tensor()

    @computed
    def mean_tensor(self) -> Tensor:
        """Return the mean (n,) or (n, k), float64 tensor."""
        return self._to_units(self.latent.mean())

    @computed
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,) or (n, k), float64 tensor."""
        variance, noise = self.latent.variance(), _noise(self)
        if variance.ndim == 2:  # functions with variances of their own
            return self.scale**2 * variance
        return _per_output(self, variance + (noise.diagonal() if noise.ndim == 2 else noise))

    @computed
    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n) or (n, n, k), float64 tensor."""
        check_closed_form(self._has_closed_form, NO_COVARIANCE)
        covariance, noise = self.latent.covariance(), _noise(self)
        if covariance.ndim == 3:  # functions with covariances of their own
            return self.scale**2 * covariance
        check_joint_fits(len(covariance), num_matrices=self.scale.numel())
        if noise.ndim == 2:
            return _per_output(self, covariance + noise)
        total = covariance.clone()
        total.diagonal().add_(noise)
        return _per_output(self, total)

    def operator(self) -> ObservedOperator | None:
        """Return the covariance (n, n) as products and solves, or None if it must be formed."""
        noise = _noise(self)
        if not self._has_closed_form or self.scale.ndim or noise.ndim == 2 or not bool((noise > 0).all()):
            return None
        latent = self.latent.operator()
        if latent is None:
            return None
        return ObservedOperator(latent, noise.detach().double().cpu().expand(len(latent)), float(self.scale))

    def __repr__(self) -> str:
        outputs = f", {counted(len(self.scale), 'output')}" if self.scale.ndim else ""
        points = "" if self.latent.num_points is None else f" at {counted(self.latent.num_points, 'point')}"
        return f"Prediction({'observations' if self.has_noise else 'latent function'}{points}{outputs})"

    def _to_units(self, values: Tensor) -> Tensor:
        """Return standardized values (..., k) in the user's units, without the last axis for one output."""
        out = self.location + self.scale * values
        return out[..., 0] if self.location.ndim == 0 else out

    def _out(self, value: Tensor) -> Any:
        return in_caller_form(value, self.template, self.as_numpy)


class LogNormalMarginals(NamedTuple):
    """The distributions of the exponentials of values."""

    log: Marginals

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log densities at y, (...), -inf unless it is positive."""
        log = y.clamp_min(torch.finfo(y.dtype).tiny).log()
        return torch.where(y > 0, self.log.log_prob(log) - log, -torch.inf)

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities of values up to y, (...)."""
        return self.log.cdf(y.clamp_min(0).log())

    def quantile(self, p: Tensor) -> Tensor:
        """Return the quantiles at probabilities p, (...)."""
        return self.log.quantile(p).exp()


@dataclass(frozen=True, eq=False, repr=False)
class LogNormal(Prediction):
    """The joint log-normal distribution of exp(value) for Gaussian values. Methods are those of `Prediction`.

    It suits positive targets that span orders of magnitude. After `gp.fit(X, np.log(y))`, `gp.predict(X_new).exp()` is
    the distribution of the latent function and `gp.predict(X_new).observed().exp()` that of an observation, in the
    units of y. The mean is larger than the median. Arguments and results have the shapes of those of `Prediction`.

    Observations whose logarithms have scales of their own, with Student-t tails, have no mean. Their mean and variance
    are then those of a log-normal distribution with the same moments of the logarithm.

    Attributes:
        log: The distribution of the logarithm.

    Examples:
        >>> import rfgp
        >>> log = rfgp.ExactGP(noise=0.01).condition([[0.0], [0.5], [1.0]], [0.0, 1.0, 0.2]).predict([[0.3], [0.6]])
        >>> (log.exp().mean > log.exp().median).tolist(), log.exp().std.shape, log.exp().sample(5, seed=0).shape
        ([True, True], (2,), (5, 2))
        >>> (log.exp().quantile(0.05) == log.exp().interval(0.9)[0]).tolist(), log.exp().cdf([2.0, 2.5]).shape
        ([True, True], (2,))
    """

    log: Prediction = field(kw_only=True)
    _has_closed_form = False

    def observed(self, exposure: Any = None, trials: Any = None, censored: Any = None) -> "LogNormal":
        """Return the distribution of observations, with multiplicative noise.

        Args:
            exposure: It must be None.
            trials: It must be None.
            censored: It must be None.

        Raises:
            InvalidArgumentError: If the likelihood is not Gaussian.
        """
        check_closed_form(self.of_observations is None, NO_LOGARITHM)
        return self.log.observed(exposure, trials, censored).exp()

    @property
    def median(self) -> Any:
        """The medians, (n,) or (n, k)."""
        return self.quantile(0.5)

    @kept
    def marginals(self) -> Marginals:
        """Return the marginal distributions of the exponentials."""
        return LogNormalMarginals(self.log.marginals())

    def draws(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from the joint distribution, (s, n) or (s, n, k), float64 tensor."""
        return self.log.draws(count, generator).exp()

    @computed
    def mean_tensor(self) -> Tensor:
        """Return the means (n,) or (n, k), float64 tensor."""
        variance = self.log.variance_tensor()
        return (self.log.mean_tensor() + variance / 2).exp()

    @computed
    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,) or (n, k), float64 tensor."""
        return self.mean_tensor() ** 2 * self.log.variance_tensor().expm1()

    @computed
    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n) or (n, n, k), float64 tensor."""
        covariance, mean = self.log.covariance_tensor(), self.mean_tensor()
        return mean[:, None] * mean * covariance.expm1()

    def __repr__(self) -> str:
        return f"LogNormal({self.log})"


@dataclass(frozen=True)
class Terms(Mapping[str, Prediction]):
    """The predictions of the terms by name.

    Attributes:
        total: The prediction of their sum.
        names: The names of the terms.
    """

    total: Prediction
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> Prediction:
        return self.total.of(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _per_output(prediction: Prediction, variance: Tensor) -> Tensor:
    """Return standardized variances in the user's units. Several outputs add an axis."""
    return prediction.scale**2 * (variance[..., None] if prediction.scale.ndim else variance)


def _noise(prediction: Prediction) -> Tensor:
    """Return the standardized noise of a distribution, (), (n,) or (n, n)."""
    noise = prediction.noise
    return noise.double() if prediction.has_noise else torch.zeros_like(noise, dtype=torch.float64)


def _noise_draws(noise: Tensor, count: tuple[int, int], n: int, generator: torch.Generator) -> Tensor:
    """Return draws (s, k, n) of noise with a variance, (n,) or (), or (n, n)."""
    noise = noise.double().cpu()
    if noise.ndim < 2:
        return noise.sqrt() * torch.randn(*count, n, generator=generator, dtype=torch.float64)
    root = covariance_root(noise)
    return torch.randn(*count, root.shape[1], generator=generator, dtype=torch.float64) @ root.mT
