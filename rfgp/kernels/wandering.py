"""Kernels of levels and slopes that wander: the Wiener process and its integral.

They have no stationary distribution: their variances grow without bound, so that the band of a forecast widens.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from rfgp.chains import StateModel, since_origin, wiener
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.levels import VARIANCE_BOUNDS
from rfgp.kernels.role import ColumnSummary, Values, per_column
from rfgp.messages import positive
from rfgp.parameters import Hyperparameter


@dataclass(frozen=True, eq=False, repr=False)
class Wiener(Kernel):
    """The Wiener process (Brownian motion) from an origin: v (min(x, z) - origin).

    It models a level that wanders. At the origin it is 0, so add `k.Constant()` for the level there. Its hyperparameter
    `variance`, 0-d, replaces the output scale. It is the variance of a change over one unit of the column (a day for
    dates).

    Attributes:
        columns: The key of its column.
        origin: The origin, a number in the unit of the column: days from the first row for dates. If None, the smallest
            value of the rows, and 0 without data.
        variance: The starting variance v. If None, the data decide.
        name: The name of the term. If None, the class and the column.

    Raises:
        InvalidArgumentError: If there are several columns, the variance is not positive, or the origin is no number.
        DataError: If a row is before the origin.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.Wiener("t").matrix({"t": [1.0, 3.0]}).tolist()
        [[1.0, 1.0], [1.0, 3.0]]
    """

    columns: Any = field()
    origin: Any = field(default=None, kw_only=True)
    variance: Any = field(default=None, kw_only=True)
    has_own_variance: ClassVar[bool] = True
    order: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is None or len(self.columns) != 1:
            raise InvalidArgumentError(
                f"{type(self).__name__} must have one column, got {self.columns!r}. Add one kernel for each."
            )
        is_number = isinstance(self.origin, int | float) and math.isfinite(self.origin)
        if self.origin is not None and not is_number:
            raise InvalidArgumentError(
                f"origin must be a finite number in the unit of the column, days from the first row for dates, got "
                f"{self.origin!r}."
            )
        if self.variance is not None:
            object.__setattr__(self, "variance", positive("variance", self.variance))

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting variance, if it was given."""
        return {"variance": self.variance}

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, 1) and b (m, 1)."""
        first, second = (since_origin(x[:, 0].double(), values["origin"]) for x in (a, b))
        first, second = first[:, None], second[None, :]
        return values["variance"] * self._between(torch.minimum(first, second), torch.maximum(first, second))

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, 1)."""
        since = since_origin(a[:, 0].double(), values["origin"])
        return values["variance"] * self._between(since, since)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the variance. It starts where the process has that of the target after a standard deviation."""
        power = 2 * self.order - 1
        size, unit = columns.spread[0] ** power, columns.scale[0] ** -power
        bounds = VARIANCE_BOUNDS[0] / size, VARIANCE_BOUNDS[1] / size
        return {"variance": Hyperparameter(1 / size, unit, bounds, is_variance=True)}

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the origin, 0-d."""
        origin = per_column("origin", 0.0 if self.origin is None else self.origin, columns.scale)
        return {"origin": columns.standardized(origin)[0]}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with its starting variance and its origin, the smallest value of the rows if not given."""
        if self.origin is not None:
            return replace(self, **starts)
        low = columns.location + columns.scale * columns.ends[0]
        return replace(self, **starts, origin=float(low[0]))

    def chain(self, columns: ColumnSummary) -> Callable[[Values], StateModel]:
        """Return the process."""
        return partial(_process, self.order)

    def check_rows(self, rows: Tensor) -> None:
        """Raise if a row is before the origin."""
        if self.origin is not None:
            since_origin(rows[:, 0].double(), torch.tensor(float(self.origin), dtype=torch.float64))

    def _between(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the covariances (...) of earlier and later times since the origin, for a variance of 1."""
        return first


@dataclass(frozen=True, eq=False, repr=False)
class IntegratedWiener(Wiener):
    """The integral of a Wiener process from an origin: v (s^2 t / 2 - s^3 / 6) for times s <= t since the origin.

    It models a slope that wanders. At the origin it and its slope are 0, so add `k.Constant()` and `k.Linear(column)`
    for the level and the slope there. Its hyperparameter `variance`, 0-d, replaces the output scale. It is the variance
    of a change of the slope over one unit of the column. The posterior mean is a cubic spline (Wahba 1978, Improper
    priors, spline smoothing and the problem of guarding against model errors in regression).

    Attributes:
        columns: The key of its column.
        origin: The origin, a number in the unit of the column: days from the first row for dates. If None, the smallest
            value of the rows, and 0 without data.
        variance: The starting variance v. If None, the data decide.
        name: The name of the term. If None, the class and the column.

    Raises:
        InvalidArgumentError: If there are several columns, the variance is not positive, or the origin is no number.
        DataError: If a row is before the origin.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.IntegratedWiener("t").matrix({"t": [0.0, 3.0]}).tolist()
        [[0.0, 0.0], [0.0, 9.0]]
    """

    order: ClassVar[int] = 2

    def _between(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the covariances (...) of earlier and later times since the origin, for a variance of 1."""
        return first.square() * second / 2 - first**3 / 6


def _process(order: int, values: Values) -> StateModel:
    return wiener(order, values["origin"].double()).scaled(values["variance"].double())
