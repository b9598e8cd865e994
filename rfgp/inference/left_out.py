"""Leave-one-out predictive distributions."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rfgp.counts import counted
from rfgp.inference.distributions import normal_log_density
from rfgp.scaling import Affine


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut:
    """The distribution of each of n observations given all others, in the user's units; arrays or tensors.

    Attributes:
        mean: The means, (n,) or (n, k).
        variance: The variances of the observations, noise included, (n,) or (n, k).
        log_density: The log densities of the observed values, (n,) or (n, k). Their mean is the leave-one-out log
            predictive density of a value.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 1, 9)[:, None]
        >>> rfgp.ExactGP(noise=0.01).condition(X, X[:, 0]).leave_one_out().mean.shape
        (9,)
    """

    mean: Any
    variance: Any
    log_density: Any

    def __repr__(self) -> str:
        density = float(self.log_density.mean())
        return f"LeaveOneOut({counted(len(self.mean), 'observation')}, mean log density {density:.4g})"

    @classmethod
    def of(
        cls,
        mean: Tensor,  # (n, k)
        variance: Tensor,  # (n,)
        y: Tensor,  # (n, k)
        to_units: Affine,
        as_numpy: bool,
    ) -> "LeaveOneOut":
        """Return the distributions of standardized observations y (n, k) in the user's units."""
        scale = to_units.scale.double()
        mean, y = (to_units.location.double() + scale * value for value in (mean, y))
        variance = (scale**2 * variance[:, None]).expand_as(mean)
        density = normal_log_density(y, mean, variance)
        out = (value if scale.ndim else value[:, 0] for value in (mean, variance, density))
        out = (value.to(to_units.scale.dtype) for value in out)
        return cls(*(value.cpu().numpy() if as_numpy else value for value in out))
