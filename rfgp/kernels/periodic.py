"""The periodic kernel, and its Fourier series."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.arguments import bounds_in
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import Functions, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.parameters import Hyperparameter
from rfgp.special import scaled_bessel
from rfgp.spectra.spectrum import positive

LENGTHSCALE_BOUNDS = (0.05, 50.0)
"""The bounds of the lengthscale: 0.05 needs about 70 harmonics, and 50 gives a variance of 4e-4."""
PERIOD_BOUNDS = (0.5, 2.0)
"""The bounds of a period that is learned, in starting periods."""
TAIL = 1e-6
"""The share of the variance that the Fourier series may miss."""
MIN_HARMONICS = 4
"""The minimum number of harmonics, so that a fit can shorten the lengthscale."""
MAX_HARMONICS = 128
"""The largest number of harmonics of the Fourier series, sufficient for `TAIL` at the smallest lengthscale."""


@dataclass(frozen=True, eq=False, repr=False)
class Periodic(Kernel):
    """The periodic kernel exp(-2 sin^2(pi (x - z) / period) / lengthscale^2).

    Source: MacKay (1998), Introduction to Gaussian processes, Section 5.

    Attributes:
        columns: The key of its column.
        period: The period, in the column's units. For dates it is in days.
        learn_period: Whether a fit changes the period, by at most a factor of 2.
        lengthscale: The starting lengthscale, in units of the sine. If None, 1.
        name: The name of the term. If None, the class and the column.

    Raises:
        InvalidArgumentError: If there are several columns, or a number is not positive.

    Examples:
        >>> from rfgp import kernels as k
        >>> season = k.Periodic("month", period=12.0, lengthscale=1.0)
        >>> round(season.matrix({"month": [1.0, 13.0]})[0, 1].item(), 6)
        1.0
    """

    columns: Any = field()
    period: float
    learn_period: bool = field(default=False, kw_only=True)
    lengthscale: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is None or len(self.columns) != 1:
            raise InvalidArgumentError(f"Periodic must have one column, got {self.columns!r}. Add or multiply several.")
        object.__setattr__(self, "period", positive("period", self.period))
        if self.lengthscale is not None:
            object.__setattr__(self, "lengthscale", positive("lengthscale", self.lengthscale))

    @staticmethod
    def embedding(a: Tensor, values: Values) -> Tensor:
        """Return positions (n, 2) on a circle, at which k is exp(-r^2 / 2)."""
        angles = 2 * math.pi * a / values["period"]
        return torch.cat([angles.cos(), angles.sin()], dim=1) / values["lengthscale"]

    @property
    def starts(self) -> Mapping[str, Any]:
        """The period, and the starting lengthscale if it was given."""
        return {"lengthscale": self.lengthscale, "period": self.period}

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, 1) and b (m, 1)."""
        sine = torch.sin(math.pi * (a - b.mT) / values["period"])
        return torch.exp(-2 * (sine / values["lengthscale"]).square())

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return ones (n,)."""
        return torch.ones(len(a), dtype=torch.float64, device=a.device)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the lengthscale and the period."""
        unit, scale = torch.ones_like(columns.scale[0]), columns.scale[0]
        period = self.period / scale
        return {
            "lengthscale": Hyperparameter(unit, unit, bounds_in(unit, LENGTHSCALE_BOUNDS)),
            "period": Hyperparameter(period, scale, bounds_in(period, PERIOD_BOUNDS), is_fixed=not self.learn_period),
        }

    def series(self, values: Values) -> "Harmonics":
        """Return the kernel of the first harmonics, with all variance but `TAIL`."""
        size = scaled_bessel(MAX_HARMONICS, values["lengthscale"].detach().double() ** -2)
        missing = 1 - (2 * size.cumsum(0) - size[0])
        count = min(int((missing > TAIL).sum()), MAX_HARMONICS)
        return Harmonics(
            self.columns,
            self.period,
            max(count, MIN_HARMONICS),
            learn_period=self.learn_period,
            lengthscale=self.lengthscale,
            name=self.name,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Harmonics(Periodic):
    """The first J harmonics of the periodic kernel: a sum of 2 J + 1 functions.

    k = sum_j c_j cos(2 pi j d / period) with c_j = (2 - [j = 0]) exp(-s) I_j(s) and s = lengthscale^-2. This follows
    from exp(-2 s sin^2(t / 2)) = exp(-s) exp(s cos t) and exp(s cos t) = I_0(s) + 2 sum_j I_j(s) cos(j t).

    Source: Solin and Sarkka (2014), Explicit link between periodic covariance functions and state space models,
    Section 3.2.

    Attributes:
        columns: The key of its column.
        period: The period, in the column's units. For dates it is in days.
        num_harmonics: The number J of harmonics.
        learn_period: Whether a fit changes the period, by at most a factor of 2.
        lengthscale: The starting lengthscale, in units of the sine. If None, 1.
        name: The name of the term. If None, the class and the column.

    Examples:
        >>> from rfgp import kernels as k
        >>> season = k.Harmonics("month", 12.0, num_harmonics=4, lengthscale=1.0)
        >>> round(season.matrix({"month": [1.0, 13.0]})[0, 1].item(), 3)
        1.0
    """

    num_harmonics: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_harmonics", check_count("num_harmonics", self.num_harmonics))

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, 1) and b (m, 1)."""
        angles = 2 * math.pi * (a - b.mT) / values["period"]
        size = self._amplitudes(values).square()
        return sum(((size[j] * (j * angles).cos()) for j in range(1, len(size))), start=size[0].expand(angles.shape))

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, 1)."""
        return self._amplitudes(values).square().sum().expand(len(a))

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the 2 J + 1 cosines and sines."""
        size = 2 * self.num_harmonics + 1
        if self.learn_period:
            return Functions(size, self._features)
        return Functions(size, self._features, self._design, self._scale, ("period",))

    def _features(self, a: Tensor, values: Values) -> Tensor:
        """Return the cosines and sines phi (n, 2 J + 1) of rows a (n, 1)."""
        return self._design(a, values) * self._scale(values).to(a.dtype)

    def _design(self, a: Tensor, values: Values) -> Tensor:
        """Return the cosines and sines (n, 2 J + 1) of rows a (n, 1), of amplitude 1."""
        angles = 2 * math.pi * a / values["period"] * torch.arange(self.num_harmonics + 1, device=a.device)
        return torch.cat([angles.cos(), angles.sin()[:, 1:]], dim=1)

    def _scale(self, values: Values) -> Tensor:
        """Return the amplitudes of cosines and sines, (2 J + 1,)."""
        amplitude = self._amplitudes(values)
        return torch.cat([amplitude, amplitude[1:]])

    def _amplitudes(self, values: Values) -> Tensor:
        """Return the roots of the shares c_j, (J + 1,)."""
        size = scaled_bessel(self.num_harmonics, values["lengthscale"].double() ** -2)
        return torch.cat([size[:1], 2 * size[1:]]).clamp_min(1e-300).sqrt()
