"""Kernels of levels and slopes that wander: the Wiener process and its integral.

They have no stationary distribution: their variances grow without bound, so that the band of a forecast widens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from rfgp.chains import StateModel, since_origin, wiener
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import ColumnSummary, Values, per_column


@dataclass(frozen=True, eq=False, repr=False)
class Wiener(Kernel):
    """The Wiener process (Brownian motion) from an origin: min(x, z) - origin, in standard deviations of the column.

    It models a level that wanders. At the origin it is 0, so add `k.Constant()` with a wide prior for the level there.
    The variance of the term is that of a change over one standard deviation of the column.

    Attributes:
        columns: The key of its column.
        origin: The origin, in the unit of the column. If None, the smallest value of the rows, and 0 without data.
        name: The name of the term. If None, the class and the column.

    Raises:
        InvalidArgumentError: If there are several columns.
        DataError: If a row is before the origin.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.Wiener("t").matrix({"t": [1.0, 3.0]}).tolist()
        [[1.0, 1.0], [1.0, 3.0]]
    """

    columns: Any = field()
    origin: Any = field(default=None, kw_only=True)
    order: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is None or len(self.columns) != 1:
            raise InvalidArgumentError(
                f"{type(self).__name__} must have one column, got {self.columns!r}. Add or multiply several."
            )

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, 1) and b (m, 1)."""
        first, second = (since_origin(x[:, 0].double(), values["origin"]) for x in (a, b))
        first, second = first[:, None], second[None, :]
        return self._between(torch.minimum(first, second), torch.maximum(first, second))

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, 1)."""
        since = since_origin(a[:, 0].double(), values["origin"])
        return self._between(since, since)

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the origin, 0-d."""
        origin = per_column("origin", 0.0 if self.origin is None else self.origin, columns.scale)
        return {"origin": columns.standardized(origin)[0]}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with its origin, the smallest value of the rows if the user gave none."""
        if self.origin is not None:
            return self
        low = columns.location + columns.scale * columns.ends[0]
        return replace(self, origin=float(low[0]))

    def chain(self, columns: ColumnSummary) -> Callable[[Values], StateModel]:
        """Return the process."""
        return partial(_process, self.order)

    def _between(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the covariances (...) of earlier and later times since the origin."""
        return first


@dataclass(frozen=True, eq=False, repr=False)
class IntegratedWiener(Wiener):
    """The integral of a Wiener process from an origin: s^2 t / 2 - s^3 / 6 for times s <= t since the origin.

    Times are in standard deviations of the column. It models a slope that wanders. At the origin it and its slope are
    0, so add `k.Constant()` and `k.Linear(column)` with wide priors for the level and the slope there. Its posterior
    mean is a cubic spline (Wahba 1978, Improper priors, spline smoothing and the problem of guarding against model
    errors in regression).

    Attributes:
        columns: The key of its column.
        origin: The origin, in the unit of the column. If None, the smallest value of the rows, and 0 without data.
        name: The name of the term. If None, the class and the column.

    Raises:
        InvalidArgumentError: If there are several columns.
        DataError: If a row is before the origin.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.IntegratedWiener("t").matrix({"t": [0.0, 3.0]}).tolist()
        [[0.0, 0.0], [0.0, 9.0]]
    """

    order: ClassVar[int] = 2

    def _between(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the covariances (...) of earlier and later times since the origin."""
        return first.square() * second / 2 - first**3 / 6


def _process(order: int, values: Values) -> StateModel:
    return wiener(order, values["origin"].double())
