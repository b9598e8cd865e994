"""The laws of observations given all the others."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rfgp.counts import counted
from rfgp.inference.laws import normal_log_density
from rfgp.scaling import Affine


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut:
    """The law of each of n observations given all the others, in the user's units; arrays or tensors.

    Attributes:
        mean: (n,) or (n, k).
        variance: Of the observation, noise included, (n,) or (n, k).
        log_density: Of what was observed, (n,) or (n, k); its mean is the leave-one-out log predictive density of a
            value.
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
        """Return the laws of standardised observations y (n, k) in the user's units."""
        scale = to_units.scale.double()
        mean, y = (to_units.location.double() + scale * value for value in (mean, y))
        variance = (scale**2 * variance[:, None]).expand_as(mean)
        density = normal_log_density(y, mean, variance)
        out = (value if scale.ndim else value[:, 0] for value in (mean, variance, density))
        out = (value.to(to_units.scale.dtype) for value in out)
        return cls(*(value.cpu().numpy() if as_numpy else value for value in out))
