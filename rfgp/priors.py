"""Priors of hyperparameters in standardized units, for `priors=` of a model. Distributions of torch work too.

Under a sparse prior most columns have no effect. A point estimate maximizes the posterior density of the inverse
lengthscales, or of the standard deviations of slopes. Their prior density is largest at 0.

Source: Eriksson and Jankowiak (2021), "High-dimensional Bayesian optimization with sparse axis-aligned subspaces",
Equation 5, with squared inverse lengthscales. Carvalho, Polson and Scott (2010), "The horseshoe estimator for sparse
signals".
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rfgp.messages import positive
from rfgp.torch_context import own_names

SCALE = 0.03
"""The default scale of half-Cauchy priors, before division by the square root of the number of columns.

With 0.1, RBF fits to linear tables ended at a large variance without relevant columns."""


@dataclass(frozen=True)
class SparsePrior(ABC):
    """A half-Cauchy prior of the effects of d columns.

    Its scale is tau = scale / sqrt(d). An effect of size 1 costs about 2 log(1 / tau) nats more than none. Up to a
    constant this is log(d), the expected gain of the best of d irrelevant columns.

    Attributes:
        scale: The scale for one column, positive.

    Raises:
        InvalidArgumentError: If the scale is not a positive number.

    Examples:
        >>> import rfgp
        >>> prior = rfgp.priors.SparseLengthscales(scale=0.1)
        >>> isinstance(prior, rfgp.priors.SparsePrior), prior.tau(4)  # 4 columns
        (True, 0.05)
    """

    scale: float = SCALE
    is_standardized: ClassVar[bool] = True
    """Whether values are in units of standardized columns and targets."""
    effects: ClassVar[Sequence[float]] = (1.0,)
    """The effects of a column at which a search may start."""

    def __post_init__(self) -> None:
        check_positive(self, "scale")

    @abstractmethod
    def effect(self, value: Tensor) -> Tensor:
        """Return the effects of values of the hyperparameter, 0-d or (d,)."""

    @abstractmethod
    def value(self, effect: float) -> float:
        """Return the hyperparameter's value where a column has an effect of a given size."""

    def tau(self, count: int) -> float:
        """Return the scale tau for a number of columns."""
        return self.scale / math.sqrt(max(count, 1))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log half-Cauchy density of each effect, 0-d or (d,)."""
        tau = self.tau(value.numel())
        return math.log(2 / (math.pi * tau)) - torch.log1p((self.effect(value) / tau).square())

    def log_prob_of_logarithm(self, value: Tensor) -> Tensor:
        """Return the log density of the logarithm of each effect, 0-d or (d,)."""
        return self.log_prob(value) + self.effect(value).log()


@dataclass(frozen=True)
class SparseLengthscales(SparsePrior):
    """A sparse prior of inverse lengthscales.

    The prior is 1 / lengthscale ~ half-Cauchy(scale / sqrt(d)). Use it with `LogNormalVariance` for the output scale.
    Otherwise a large variance and many long lengthscales give a linear function of all columns at no cost.

    Attributes:
        scale: The scale for one column, in inverse standard deviations of the column.

    Examples:
        >>> import torch
        >>> from rfgp import priors
        >>> prior = priors.SparseLengthscales()
        >>> short, long = prior.log_prob(torch.tensor([1.0, 1000.0]))
        >>> bool(long > short + 5)
        True
    """

    effects: ClassVar[Sequence[float]] = (1.0, 0.3)

    def effect(self, value: Tensor) -> Tensor:
        """Return 1 / lengthscale, 0-d or (d,)."""
        return 1 / value

    def value(self, effect: float) -> float:
        """Return the lengthscale 1 / effect."""
        return 1 / effect


@dataclass(frozen=True)
class SparseVariances(SparsePrior):
    """A sparse prior of variances of slopes.

    The prior is sqrt(variance) ~ half-Cauchy(scale / sqrt(d)).

    Attributes:
        scale: The scale for one column, in standard deviations of the target over those of the column.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k, priors
        >>> X = np.random.default_rng(0).normal(size=(60, 100))
        >>> y = 2 * X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=60)
        >>> gp = rfgp.GP(k.Linear(), approximation=rfgp.Exact(), priors={"variance": priors.SparseVariances()}, seed=0)
        >>> found = gp.fit(X, y).hyperparameters.variance
        >>> int(found.argmax()), bool(found[0] > 1000 * found[1:].max())
        (0, True)
    """

    def effect(self, value: Tensor) -> Tensor:
        """Return the standard deviations of slopes, 0-d or (d,)."""
        return value.sqrt()

    def value(self, effect: float) -> float:
        """Return the variance effect^2."""
        return effect**2


@dataclass(frozen=True)
class LogNormalVariance:
    """A log-normal prior of a variance around a multiple of the target's variance.

    The density is that of the logarithm, so that the mode is the median.

    Attributes:
        median: The median, in variances of the target.
        deviation: The standard deviation of the logarithm.

    Raises:
        InvalidArgumentError: If the median or the deviation is not a positive number.

    Examples:
        >>> import torch
        >>> from rfgp import priors
        >>> priors.LogNormalVariance().log_prob(torch.tensor(1.0)) > priors.LogNormalVariance().log_prob(
        ...     torch.tensor(9.0)
        ... )
        tensor(True)
    """

    median: float = 1.0
    deviation: float = 1.0
    is_standardized: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(self, "median", "deviation")

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of the logarithm of each entry, 0-d or (d,)."""
        z = (value / self.median).log() / self.deviation
        return -0.5 * z.square() - math.log(self.deviation * math.sqrt(2 * math.pi))

    log_prob_of_logarithm = log_prob


@dataclass(frozen=True)
class HalfNormalDeviation:
    """A half-normal prior of the square root of a variance.

    The density is that of the square root, so that the mode is at 0. Models of counts use it for the output scale of
    each term, with scale 2 in units of the log rate. `priors={"outputscale": None}` fits without it.

    Source: Gelman (2006), "Prior distributions for variance parameters in hierarchical models", Section 7.1.

    Attributes:
        scale: The scale of the standard deviation, in the user's units.

    Raises:
        InvalidArgumentError: If the scale is not a positive number.

    Examples:
        >>> import torch
        >>> from rfgp import priors
        >>> one, far = priors.HalfNormalDeviation(2.0).log_prob(torch.tensor([1.0, 400.0]))
        >>> bool(one > far + 49)
        True
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "scale")

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of the square root of each entry, 0-d or (d,)."""
        return -0.5 * value / self.scale**2 + 0.5 * math.log(2 / math.pi) - math.log(self.scale)

    def log_prob_of_logarithm(self, value: Tensor) -> Tensor:
        """Return the log density of the logarithm of the square root of each entry, 0-d or (d,)."""
        return self.log_prob(value) + 0.5 * value.log()


def check_positive(prior: object, *names: str) -> None:
    """Check that attributes of a prior are positive numbers.

    Args:
        prior: The prior.
        names: The names of the attributes.

    Raises:
        InvalidArgumentError: If an attribute is not positive. The message names the first.

    Examples:
        >>> check_positive(HalfNormalDeviation(2.0), "scale")
    """
    for name in names:
        positive(name, getattr(prior, name))


OWN = {kind.__name__: kind for kind in (SparseLengthscales, SparseVariances, LogNormalVariance, HalfNormalDeviation)}
"""The priors of this module by name, for files."""


def __dir__() -> list[str]:
    return own_names(globals())
