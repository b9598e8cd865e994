"""Stationary kernels, their periodic and additive variants, and Matern kernels of one column as chains."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.precisions import ChainField
from graphs.precisions.chains import SPACING, place_knots
from rfgp import spectra
from rfgp.autograd import Array, as_array
from rfgp.chains import StateModel, harmonics, matern
from rfgp.columns import ColumnKind, InputSchema, InputTable
from rfgp.columns.rules import Key, SphereKey
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.grams import in_frame, rotated, scaled_gram
from rfgp.kernels.kernel import Kernel, Sum
from rfgp.kernels.role import (
    ColumnSummary,
    Functions,
    LatentField,
    Projector,
    Term,
    Values,
    bounds_in,
    label_of,
    read_positives,
    requests_of,
)
from rfgp.messages import check_count, positive, short_repr
from rfgp.parameters import Hyperparameter
from rfgp.special import scaled_bessel
from rfgp.spectra import Spectrum

# --- Half-integer Matern kernels of one column as fields with a sparse precision -------------------------------------

ORDERS = {0.5: 1, 1.5: 2, 2.5: 3}
"""The number of latent values at a knot, by nu."""
_RECENT = 4
"""The number of chains that are kept, of rows and of points of predictions. Their analysis serves a whole fit."""


@dataclass(frozen=True, eq=False)
class ColumnField(LatentField):
    """A Matern process of one column, at the distinct values of rows.

    If values are closer than about 0.007 lengthscales (nu = 3/2), or 0.05 (nu = 5/2), the process is interpolated
    between knots, see `graphs.precisions.chains`. The knot spacing follows the lengthscale by powers of 2.

    Attributes:
        order: The number of latent values at a knot, nu + 1/2.
        spacing: The smallest distance of knots. If None, `at` selects it.
    """

    order: int
    spacing: float | None = None
    is_refined = True

    @property
    def field(self) -> Any:
        """The process at one knot, 0."""
        return _unplaced(self.order)

    def at(self, values: Values) -> LatentField:
        """Return the field with the knots for a lengthscale."""
        kappa = math.sqrt(2 * self.order - 1) / float(values["lengthscale"].detach())
        return replace(self, spacing=2.0 ** math.floor(math.log2(SPACING[self.order] / kappa)))

    def refine(self, a: Tensor) -> tuple[Any, Projector]:
        """Return the field with rows a (n, 1) between its knots, and its projector. The field is that of `at`."""
        assert self.spacing is not None
        chain = _chain(np.unique(_values(a)).tobytes(), self.order, self.spacing)
        return chain, partial(_read, chain)

    def between(self, field: Any, values: Array, a: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection A (n, N) of rows to a refined field, and variances (n,)."""
        reads, left = field.conditional(values, _values(a))
        return reads, left

    def slopes(self, field: Any, values: Array, a: Tensor) -> list[tuple[sp.csr_array, Array]]:
        """Return the derivatives of the results of `between` in rows a (n, 1)."""
        return [field.conditional_slopes(values, _values(a))]


def _read(chain: ChainField, a: Tensor) -> sp.csr_array:
    return chain.projector(_values(a))


def _values(a: Tensor) -> Any:
    return as_array(a)[:, 0].astype(np.float64)


@lru_cache
def _unplaced(order: int) -> ChainField:
    return ChainField(np.zeros(1), order)


@lru_cache(maxsize=_RECENT)
def _chain(values: bytes, order: int, spacing: float) -> ChainField:
    """Return the chain for distinct ascending values."""
    return ChainField(place_knots(np.frombuffer(values), spacing), order, spacing)


# --- Stationary kernels: functions of the difference of two rows in lengthscales -------------------------------------

LENGTHSCALE_BOUNDS = (1e-3, 1e4)
"""The bounds of a lengthscale, in standard deviations of the column."""
LEARN, TURN = "learn", 360
"""The `rotation` that a fit learns, and the largest angle in degrees."""


@dataclass(frozen=True, eq=False, repr=False)
class Stationary(Kernel):
    """The stationary kernel k(x, z) = E cos(omega . (x - z) / lengthscale).

    The distribution of omega is a spectrum of `rfgp.spectra`. With a rotation by the angle a, the difference d = x - z
    has the components cos(a) d_1 + sin(a) d_2, in the first lengthscale, and cos(a) d_2 - sin(a) d_1, in the second.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        spectrum: The spectrum, or its name.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units, one number or one for each column. If None, the
            data decide.
        rotation: The angle of the first of two lengthscales against the first of two columns, in degrees
            counterclockwise. The second lengthscale is at right angles. Angles that differ by 180 degrees are the same.
            "learn": a fit learns it, from several starts, or with ("learn", 30) from 30 degrees. If None, each
            lengthscale is along its column.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If there is no such spectrum, a lengthscale is not positive, a rotation is no angle, or
            there is one without two columns, two lengthscales and an isotropic spectrum.

    Examples:
        >>> from rfgp import kernels as k
        >>> kernel = k.Stationary("t", spectrum="product-laplace", lengthscale=2.0)
        >>> kernel.matrix({"t": [0.0, 2.0]}).shape
        torch.Size([2, 2])
        >>> turned = k.Matern(("x", "y"), nu=0.5, lengthscale=(2.0, 1.0), rotation=45)  # 2 lengthscales apart
        >>> round(turned.matrix({"x": [0.0, 8**0.5], "y": [0.0, 8**0.5]})[0, 1].item(), 6)
        0.135335
    """

    spectrum: Any = "gaussian"
    ard: bool = field(default=True, kw_only=True)
    lengthscale: Any = field(default=None, kw_only=True)
    rotation: Any = field(default=None, kw_only=True, metadata={"since": "0.2.0"})
    has_unit_variance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "spectrum", spectra.by_name(self.spectrum))
        object.__setattr__(self, "lengthscale", read_positives("lengthscale", self.lengthscale))
        if not self.is_rotated:
            return
        learns, angle = self._turn
        is_number = isinstance(angle, int | float) and not isinstance(angle, bool) and -TURN <= angle <= TURN
        if not is_number and not (learns and angle is None):
            raise InvalidArgumentError(
                f'rotation must be a number of degrees from -360 to 360, "{LEARN}" or None, got '
                f"{short_repr(self.rotation)}."
            )
        needed = {
            "two columns": self.columns is None or len(self.columns) == 2,
            "two lengthscales": self.ard,
            "an isotropic spectrum": self.spectrum.is_isotropic,
        }
        for name, is_present in needed.items():
            if not is_present:
                raise InvalidArgumentError(f"rotation requires {name}, got {self!r}. Use rotation=None.")

    @property
    def _turn(self) -> tuple[bool, Any]:
        """Whether the angle is learned, and the angle or its start in degrees, or None."""
        first, *angle = self.rotation if isinstance(self.rotation, tuple) and self.rotation else (self.rotation,)
        learns = isinstance(first, str) and first == LEARN and len(angle) < 2
        return learns, next(iter(angle), None) if learns else self.rotation

    @property
    def measure(self) -> Spectrum:
        """The spectral measure at unit lengthscale."""
        measure: Spectrum = self.spectrum
        return measure

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting lengthscale and the angle, if they were given."""
        return {"lengthscale": self.lengthscale, **({"rotation": self._turn[1]} if self.is_rotated else {})}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with starts, also of a learned angle."""
        angle = starts.get("rotation")
        learned = {"rotation": (LEARN, math.fmod(angle, TURN))} if self._turn[0] and angle is not None else {}
        return replace(self, **{**starts, **learned})

    @property
    def embedding(self) -> Any:
        """The map of rows to positions along rotated axes, or None."""
        return _along_axes if self.is_rotated else None

    @property
    def is_rotated(self) -> bool:
        """Whether the axes of the lengthscales are rotated."""
        return self.rotation is not None

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""
        if a is b and not a.requires_grad:
            x, lengthscale = in_frame(a, values["lengthscale"], values.get("rotation"))
            return scaled_gram(self.measure, x, lengthscale.to(x), torch.ones((), dtype=x.dtype, device=x.device))
        return self.measure.kernel_between(_along_axes(a, values), _along_axes(b, values))

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the dict of the hyperparameter "lengthscale", and of the angle "rotation" if there is one.

        It has one number for each of the c columns, or one number if `ard` is False. Each starts at sqrt(c) standard
        deviations of its column (of their mean, if `ard` is False), and is within `LENGTHSCALE_BOUNDS` of them. In
        standard deviations, sqrt(c) is the root mean square distance of a row from the mean. The root mean square
        distance of two rows is sqrt(2 c).

        Along rotated axes, the lengthscales start at 2 and 1 root mean square deviations of the two columns. At equal
        lengthscales the likelihood would not depend on the angle.

        Args:
            columns: The summary of the c columns, with their standard deviations.
        """
        spread, unit, others = columns.spread, columns.scale, dict[str, Hyperparameter]()
        if not self.ard:
            spread = spread.mean()
        start = math.sqrt(columns.num_columns) * spread
        if self.is_rotated:
            spread = spread.square().mean().sqrt().expand(2)
            start, one = spread * spread.new_tensor([2.0, 1.0]), torch.ones_like(spread[0])
            angle = math.radians(self._turn[1] or 0.0) * one
            bounds = angle - 2 * math.pi, angle + 2 * math.pi
            others["rotation"] = Hyperparameter(
                angle, math.degrees(1.0) * one, bounds, is_fixed=not self._turn[0], is_positive=False
            )
        bounds = bounds_in(spread, LENGTHSCALE_BOUNDS)
        return {"lengthscale": Hyperparameter(start, unit, bounds, saturates=True), **others}


def _along_axes(a: Tensor, values: Values) -> Tensor:
    """Return rows a (n, c) in lengthscales, along the axes of the lengthscales."""
    return rotated(a, values.get("rotation")) / values["lengthscale"].to(a.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class RBF(Stationary):
    """The Gaussian (squared exponential) kernel exp(-r^2 / 2).

    r is the distance in lengthscales.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units. If None, the data decide.
        rotation: The angle of the first of two lengthscales against the first of two columns, in degrees
            counterclockwise. The second lengthscale is at right angles. Angles that differ by 180 degrees are the same.
            "learn": a fit learns it, from several starts, or with ("learn", 30) from 30 degrees. If None, each
            lengthscale is along its column.
        name: The name of the term. If None, the class and the columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.RBF(lengthscale=1.0).matrix([[0.0], [2.0]])[0, 1].item()
        0.1353352832366127
    """

    spectrum: Any = field(default="gaussian", init=False)


@dataclass(frozen=True, eq=False, repr=False)
class Matern(Stationary):
    """The Matern kernel of smoothness nu.

    For nu = 1/2 it is exp(-r), for nu = 3/2 (1 + sqrt(3) r) exp(-sqrt(3) r), with r the distance in lengthscales.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        nu: The smoothness, positive.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units. If None, the data decide.
        rotation: The angle of the first of two lengthscales against the first of two columns, in degrees
            counterclockwise. The second lengthscale is at right angles. Angles that differ by 180 degrees are the same.
            "learn": a fit learns it, from several starts, or with ("learn", 30) from 30 degrees. If None, each
            lengthscale is along its column.
        name: The name of the term. If None, the class and the columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> round(k.Matern("t", nu=0.5, lengthscale=1.0).matrix({"t": [0.0, 2.0]})[0, 1].item(), 6)
        0.135335
    """

    spectrum: Any = field(default=None, init=False)
    nu: float = 1.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "spectrum", spectra.Matern(self.nu))
        super().__post_init__()

    def latent_field(self, columns: ColumnSummary) -> LatentField | None:
        """Return the process at distinct values if nu is 1/2, 3/2 or 5/2, otherwise None."""
        order = ORDERS.get(float(self.nu))
        return ColumnField(order) if order is not None and columns.num_columns == 1 else None

    def chain(self, columns: ColumnSummary) -> Callable[[Values], StateModel] | None:
        """Return the process of one column if nu is 1/2, 3/2 or 5/2, otherwise None."""
        order = ORDERS.get(float(self.nu))
        if order is None or columns.num_columns > 1:
            return None
        return lambda values: matern(order, values["lengthscale"].double().reshape(()))


@dataclass(frozen=True, eq=False, repr=False)
class RationalQuadratic(Stationary):
    """The rational quadratic kernel (1 + r^2 / (2 alpha))^-alpha.

    r is the distance in lengthscales.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        alpha: The exponent, positive.
        ard: Whether each column has its own lengthscale. Otherwise the standardized columns share one. For one in the
            columns' own unit, such as that of a map, also set `standardize=False` in `rfgp.GP`.
        lengthscale: The starting lengthscale in the columns' units. If None, the data decide.
        rotation: The angle of the first of two lengthscales against the first of two columns, in degrees
            counterclockwise. The second lengthscale is at right angles. Angles that differ by 180 degrees are the same.
            "learn": a fit learns it, from several starts, or with ("learn", 30) from 30 degrees. If None, each
            lengthscale is along its column.
        name: The name of the term. If None, the class and the columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> round(k.RationalQuadratic(lengthscale=1.0).matrix([[0.0], [2.0]])[0, 1].item(), 6)
        0.333333
    """

    spectrum: Any = field(default=None, init=False)
    alpha: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "spectrum", spectra.RationalQuadratic(self.alpha))
        super().__post_init__()


# --- Points on a sphere ----------------------------------------------------------------------------------------------

LONGITUDES, LATITUDES = ("lon", "longitude", "lng", "long"), ("lat", "latitude")
"""The names of columns of angles, in lower case."""


def angles_among(keys: Sequence[Key]) -> tuple[Key, Key] | None:
    """Return the columns of longitudes and latitudes by their names, or None if there is not one of each.

    Args:
        keys: The keys of columns.
    """
    found = [[key for key in keys if str(key).lower() in names] for names in (LONGITUDES, LATITUDES)]
    return (found[0][0], found[1][0]) if [len(some) for some in found] == [1, 1] else None


def are_degrees(table: InputTable, angles: Sequence[Key]) -> bool:
    """Return whether columns of longitudes and latitudes can be read as angles in degrees.

    Args:
        table: The table.
        angles: The keys of the longitude and of the latitude.
    """
    try:
        InputSchema.fit(requests_of(Sphere(tuple(angles)).terms()), table)
    except DataError:
        return False
    return True


@dataclass(frozen=True, eq=False, repr=False)
class Sphere(Kernel):
    """A kernel of points on a sphere, such as the globe: a stationary kernel of R^3 at their chord.

    Two points at the central angle t have the chord 2 radius sin(t / 2). A stationary kernel of R^3 at the chord is
    positive definite on the sphere. Matern kernels with nu > 1/2 of the distance along the surface are not. There is
    one lengthscale, so that rotations of the sphere change nothing, and coordinates are not standardized.

    Source: Gneiting (2013), Strictly and non-strictly positive definite functions on spheres, Sections 2.1 and 4.5.

    Attributes:
        columns: The keys of the longitude and of the latitude, in degrees. Longitudes are from -360 to 360. If None,
            the columns with names such as "lon" and "lat", or the first two of an array.
        kernel: The stationary kernel, without columns. Its `lengthscale` is the start, in the unit of the radius.
        radius: The radius of the sphere: that of the earth in km by default.
        distance: "chord", the only one.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If the columns are not two, or by their names a latitude and a longitude, or the kernel is
            not stationary or has columns, or the distance is another.

    Examples:
        >>> from rfgp import kernels as k
        >>> globe = k.Sphere(("lon", "lat"), k.Matern(nu=0.5, lengthscale=1000.0))
        >>> places = {"lon": [179.0, -179.0, 0.0], "lat": [0.0, 0.0, 90.0]}
        >>> [round(value, 3) for value in globe.matrix(places)[0].tolist()]  # 222 and 9,010 km apart
        [1.0, 0.801, 0.0]
    """

    kernel: Stationary = field(default_factory=Matern)
    radius: float = 6371.0088
    distance: str = field(default="chord", kw_only=True)
    kind: ClassVar[ColumnKind] = ColumnKind.SPHERE
    has_unit_variance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "radius", positive("radius", self.radius))
        names = () if self.columns is None else self.columns
        if self.columns is not None and len(names) != 2:
            raise InvalidArgumentError(f"Sphere must have two columns, longitude and latitude, got {self.columns!r}.")
        if angles_among(names) not in (None, names):
            raise InvalidArgumentError(f"columns must be the longitude, then the latitude, got {names!r}. Swap them.")
        kernel = self.kernel
        if not isinstance(kernel, Stationary) or kernel.columns is not None or kernel.rotation is not None:
            raise InvalidArgumentError(
                "kernel must be a stationary kernel without columns and rotation, such as k.Matern(nu=1.5), got "
                f"{kernel!r}."
            )
        if not kernel.measure.is_isotropic:
            raise InvalidArgumentError(f"kernel must be isotropic, so that rotations change nothing, got {kernel!r}.")
        if isinstance(self.kernel.lengthscale, tuple):
            raise InvalidArgumentError(f"lengthscale must be one number, got {self.kernel.lengthscale!r}.")
        if self.distance != "chord":
            raise InvalidArgumentError(
                f"distance must be 'chord', got {self.distance!r}. Smooth kernels of the distance along the surface "
                "are not positive definite, for example Matern kernels with nu > 1/2. Chords are only 0.1 % shorter at "
                "1,000 km."
            )

    @property
    def keys(self) -> tuple[SphereKey, ...]:
        """The keys of the three coordinates of points."""
        if self.columns is None:
            return ()
        longitude, latitude = self.columns
        return tuple(SphereKey(longitude, latitude, axis, self.radius) for axis in range(3))

    def expanded(self, keys: Sequence[Key]) -> Kernel:
        """Return the kernel with the columns of angles by their names, or with the first two of an array.

        Args:
            keys: All columns but the target.

        Raises:
            InvalidArgumentError: If there are no such columns.
        """
        found = angles_among(keys) or (
            tuple(keys[:2]) if len(keys) > 1 and all(isinstance(k, int) for k in keys) else None
        )
        if self.columns is None and found is None:
            raise InvalidArgumentError(
                "Sphere reads one column with a name such as lon and one such as lat, which X does not have. Give "
                "columns=, the longitude first."
            )
        return self if self.columns is not None else replace(self, columns=found)

    @property
    def measure(self) -> Spectrum:
        """The spectral measure at unit lengthscale."""
        return self.kernel.measure

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting lengthscale, if it was given."""
        return self.kernel.starts

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with a starting lengthscale."""
        return replace(self, kernel=replace(self.kernel, **starts))

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of points a (n, 3) and b (m, 3)."""
        return self.kernel.covariance(a, b, values)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the lengthscale. It starts at the root mean square distance from the center of the rows."""
        spread = columns.spread.square().sum().sqrt()
        bounds = bounds_in(spread, LENGTHSCALE_BOUNDS)
        return {"lengthscale": Hyperparameter(spread, torch.ones_like(spread), bounds, saturates=True)}


# --- The periodic kernel, and its Fourier series ---------------------------------------------------------------------

PERIODIC_BOUNDS = (0.05, 50.0)
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
    has_unit_variance: ClassVar[bool] = True

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

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the lengthscale and the period."""
        unit, scale = torch.ones_like(columns.scale[0]), columns.scale[0]
        period = self.period / scale
        return {
            "lengthscale": Hyperparameter(unit, unit, bounds_in(unit, PERIODIC_BOUNDS)),
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
        size = self.shares(values)
        return sum(((size[j] * (j * angles).cos()) for j in range(1, len(size))), start=size[0].expand(angles.shape))

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, 1)."""
        return self.shares(values).sum().expand(len(a))

    def chain(self, columns: ColumnSummary) -> Callable[[Values], StateModel]:
        """Return the constant, cosines and sines as a process."""
        return lambda values: harmonics(values["period"].double(), self.shares(values))

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

    def series(self, values: Values) -> "Harmonics":
        """Return the kernel itself."""
        return self

    def shares(self, values: Values) -> Tensor:
        """Return the shares c_j of the constant and of each harmonic in the variance, (J + 1,).

        Args:
            values: The hyperparameters.
        """
        return self._amplitudes(values).square()

    def _amplitudes(self, values: Values) -> Tensor:
        """Return the roots of the shares c_j, (J + 1,)."""
        size = scaled_bessel(self.num_harmonics, values["lengthscale"].double() ** -2)
        return torch.cat([size[:1], 2 * size[1:]]).clamp_min(1e-300).sqrt()


# --- Additive kernels: a term for each column and each pair, identified by zero mean (OAK) ---------------------------

NODES = 64
"""The number of quantiles that represent the distribution of a column."""


@dataclass(frozen=True, eq=False, repr=False)
class Centered(Kernel):
    """A kernel of one column, conditioned on a mean of 0 over the column.

    It is k(x, z) - c(x) c(z) / C for the base kernel k. Here c(x) = E k(x, X) and C = E k(X, X'), with X uniform on
    `points`.

    Source: Lu, Boukouvalas and Hensman (2022), Additive Gaussian processes revisited, Equation 9.

    Attributes:
        columns: The name or index of the column.
        base: A kernel of one column of numbers.
        points: Values (p,) in the units of the column that represent its distribution. If None, 64 quantiles of the
            training rows, so that the kernel has no values before a fit.
        name: The name of the term. If None, that of the base kernel.

    Raises:
        InvalidArgumentError: If `columns` is not the one column of the base kernel, or there are no points.

    Examples:
        >>> from rfgp import kernels as k
        >>> kernel = k.Centered("x", k.RBF("x", lengthscale=1.0), points=(0.0, 1.0))
        >>> abs(kernel.matrix({"x": [0.0, 1.0]}).sum().item()) < 1e-12
        True
    """

    columns: Any = field()
    base: Kernel
    points: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is None or self.columns != self.base.columns or len(self.columns) != 1:
            raise InvalidArgumentError(f"Centered must have the one column of its base kernel, got {self.columns!r}.")
        if self.points is not None and not len(self.points):
            raise InvalidArgumentError("points must have at least one value, or be None for quantiles, got none.")

    @property
    def starts(self) -> Any:
        """The starts of the base kernel."""
        return self.base.starts

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, 1) and b (m, 1)."""
        points = values["points"].to(a)[:, None]
        left, total = self._means(a, points, values)
        right = left if b is a else self._means(b, points, values)[0]
        return self.base.covariance(a, b, values) - left[:, None] * right / total

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, 1)."""
        means, total = self._means(a, values["points"].to(a)[:, None], values)
        return self.base.variances(a, values) - means.square() / total

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the hyperparameters of the base kernel."""
        return self.base.hyperparameters(columns)

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the standardized points (p,) and the base kernel's constants.

        Args:
            columns: The training rows in the column of the kernel.

        Raises:
            InvalidArgumentError: If the kernel has no points, because it was not resolved with rows.
        """
        if self.points is None:
            raise InvalidArgumentError(
                f"{label_of(self)} must have points for its integrals, got none. Give points=, or use gp.kernel of a "
                "fitted model."
            )
        points = torch.tensor(self.points, dtype=columns.scale.dtype, device=columns.scale.device)
        standardized = (points - columns.location[0]) / columns.scale[0]
        return {**self.base.constants(columns), "points": standardized}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with quantiles of the rows as points, and with starts."""
        base = self.base.resolved(columns, starts)
        if self.points is not None:
            return replace(self, base=base)
        levels = (torch.arange(NODES, dtype=torch.float64) + 0.5) / NODES
        points = torch.quantile(columns.sample[:, 0].double(), levels.to(columns.sample.device))
        return replace(self, base=base, points=tuple((columns.location[0] + columns.scale[0] * points).tolist()))

    def _means(self, a: Tensor, points: Tensor, values: Values) -> tuple[Tensor, Tensor]:
        """Return c(a) (n,) and C, 0-d."""
        total = self.base.covariance(points, points, values).mean()
        return self.base.covariance(a, points, values).mean(1), total


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Additive(Kernel):
    """A sum of one term for each column and, with order 2, for each pair of columns.

    Each term has zero mean over the rows. The effects of single columns and of pairs are therefore identifiable.

    Source: Lu, Boukouvalas and Hensman (2022), Additive Gaussian processes revisited, Sections 3 and 4.

    Attributes:
        base: A function of a key that returns the kernel of one column, such as `k.RBF` or
            `functools.partial(k.Matern, nu=2.5)`.
        columns: The keys of its columns. If None, all columns but the target.
        order: 1, or 2 for pairs of columns as well.
        name: A prefix of the names of the terms. If None, "additive".

    Raises:
        InvalidArgumentError: If the order is neither 1 nor 2, or the base does not return a kernel.

    Examples:
        >>> from rfgp import kernels as k
        >>> [term.name for term in k.Additive(columns=("a", "b"), order=2).terms()]
        ['additive(a)', 'additive(b)', 'additive(a, b)']
    """

    base: Callable[[Key], Kernel] = RBF
    order: int = 1

    def __init__(
        self,
        base: Callable[[Key], Kernel] = RBF,
        columns: Any = None,
        order: int = 1,
        *,
        name: str | None = None,
    ) -> None:
        if isinstance(order, bool) or order not in (1, 2):
            raise InvalidArgumentError(f"order must be 1 or 2, got {order!r}.")
        if not callable(base):
            raise InvalidArgumentError(
                f"base must map the key of a column to a kernel, such as k.RBF does, got {base!r}."
            )
        for key, value in (("columns", columns), ("name", name), ("base", base), ("order", order)):
            object.__setattr__(self, key, value)
        self.__post_init__()

    @property
    def summands(self) -> tuple[Term, ...]:
        """The terms, or the kernel itself before its columns are set."""
        if self.columns is None:
            return (Term((self,), self.name),)
        factors = {key: Centered(key, self._base_of(key)) for key in self.columns}
        prefix = self.name or "additive"
        single = [Term((factor,), f"{prefix}({key})") for key, factor in factors.items()]
        if self.order == 1:
            return tuple(single)
        pairs = itertools.combinations(factors, 2)
        return (*single, *(Term((factors[a], factors[b]), f"{prefix}({a}, {b})") for a, b in pairs))

    def expanded(self, keys: Sequence[Key]) -> Kernel:
        """Return the sum of the terms.

        Args:
            keys: All columns but the target.
        """
        return Sum(replace(self, columns=self.columns or tuple(keys)).summands)

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Raise an error for rows (n, c), because the columns are not set yet.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            "Additive must know its columns, got None. Give columns=, or use gp.kernel after a fit."
        )

    def _base_of(self, key: Key) -> Kernel:
        kernel = self.base(key)
        if not isinstance(kernel, Kernel):
            raise InvalidArgumentError(f"base must return a kernel, got {kernel!r} for the column {key!r}.")
        return kernel
