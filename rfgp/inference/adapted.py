"""Distributions of the posteriors that are not yet those of `rfgp.solvers`. They go with these posteriors."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rfgp.inference.averages import AverageLaw
from rfgp.inference.distributions import Distribution
from rfgp.inference.mixture import MixtureDistribution
from rfgp.solvers.operators import LatentOperator


@dataclass(frozen=True, eq=False)
class AdaptedLaw(Distribution):
    """The distribution that a law stands for.

    Attributes:
        law: Has `mean`, `variance`, `covariance` and `root`, and for several functions `spread`.
    """

    law: Any

    @property
    def num_points(self) -> int | None:
        """The number n of points. None if it is not known before they are read."""
        inputs = getattr(self.law, "inputs", None)
        return len(inputs) if isinstance(inputs, Tensor) else None

    @property
    def requires_grad(self) -> bool:
        """Whether the points require a gradient."""
        return bool(getattr(getattr(self.law, "inputs", None), "requires_grad", False))

    @property
    def noise(self) -> Distribution | None:
        """The distribution of the logarithm of the noise at the points, if that is a function of the inputs."""
        law = getattr(self.law, "noise", None)
        return None if law is None else self._cache.get("noise", lambda: AdaptedLaw(law))

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        covariance: Tensor = self.law.spread()
        return covariance

    def operator(self) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves. None if it has to be formed."""
        operator: LatentOperator | None = getattr(self.law, "operator", lambda: None)()
        return operator

    def _mean(self) -> Tensor:
        mean: Tensor = self.law.mean()
        return mean

    def _variance(self) -> Tensor:
        variance: Tensor = self.law.variance()
        return variance

    def _covariance(self) -> Tensor:
        covariance: Tensor = self.law.covariance()
        return covariance

    def _root(self) -> Tensor:
        root: Tensor = self.law.root()
        return root


def adapted(law: Any) -> Distribution:
    """Return the distribution that a law stands for."""
    if isinstance(law, AverageLaw):
        return MixtureDistribution([AdaptedLaw(each) for each in law.laws], law.weights, law.shifts, law.noises)
    return AdaptedLaw(law)
