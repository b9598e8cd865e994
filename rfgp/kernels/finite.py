"""Kernels of finitely many functions: linear, polynomial and constant."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rfgp.counts import check_count
from rfgp.kernels.arguments import bounds_in, per_column, read_positives
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import Functions, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.parameters import Hyperparameter

VARIANCE_BOUNDS = (1e-10, 1e8)
"""The bounds of the variance of a slope, in variances of the target over those of the column."""
OFFSET_BOUNDS = (1e-3, 1e3)
"""The bounds of the offset of a polynomial kernel, in standardized columns."""


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Kernel):
    """The linear kernel sum_c v_c (x_c - o_c)(z_c - o_c).

    v are the variances of the slopes, and o is the origin.
    Its hyperparameter `variance`, (c,), replaces the output scale. Its units are those of the target squared over those
    of the columns squared. With several outputs, the variance of each output replaces the squared unit of the target.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        origin: The origin o, one number for each column. If None, the mean of the rows, and 0 without data.
        variance: The starting variances v, one number or one for each column. If None, the data decide.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If a variance is not positive.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.Linear("x").matrix({"x": [1.0, 3.0]}).tolist()
        [[1.0, 3.0], [3.0, 9.0]]
    """

    origin: Any = field(default=None, kw_only=True)
    variance: Any = field(default=None, kw_only=True)
    has_own_variance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "variance", read_positives("variance", self.variance))

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting variances, if they were given."""
        return {"variance": self.variance}

    @staticmethod
    def embedding(a: Tensor, values: Values) -> Tensor:
        """Return rows a (n, c) scaled by the prior deviations of the slopes."""
        return a * values["variance"].sqrt()

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""
        return (self._centered(a, values) * values["variance"]) @ self._centered(b, values).mT

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, c)."""
        return (self._centered(a, values).square() * values["variance"]).sum(1)

    def _features(self, a: Tensor, values: Values) -> Tensor:
        """Return sqrt(v) (x - o) of rows (n, c), (n, c)."""
        return self._centered(a, values) * values["variance"].sqrt()

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the c deviations from the origin, in prior standard deviations of slopes."""
        return Functions(columns.num_columns, self._features, self._centered, _slopes)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the variances, which together start at the variance of the target."""
        size = columns.spread.square()
        bounds = (VARIANCE_BOUNDS[0] / size, VARIANCE_BOUNDS[1] / size)
        start = 1 / (columns.num_columns * size)
        return {"variance": Hyperparameter(start, columns.scale**-2, bounds, is_variance=True)}

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the origin, (c,)."""
        return {"origin": columns.standardized(_origin(self.origin, columns))}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with starting values and an origin.

        The means of the columns are the origin if the user gave none.
        """
        return replace(self, **starts, origin=_center(columns) if self.origin is None else self.origin)

    def _centered(self, a: Tensor, values: Values) -> Tensor:
        return a - values["origin"]


@dataclass(frozen=True, eq=False, repr=False)
class Polynomial(Kernel):
    """The polynomial kernel (offset + u . v)^degree.

    Inputs are scaled: u = (x - origin) / scale and v = (z - origin) / scale.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        degree: The degree, at least 1.
        origin: One number for each column. If None, the mean of the rows, and 0 without data.
        scale: One number for each column. If None, the standard deviation of the rows, and 1 without data.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If the degree is not a positive integer.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.Polynomial("x", degree=2).matrix({"x": [0.0, 2.0]}, values={"offset": 1.0}).tolist()
        [[1.0, 1.0], [1.0, 25.0]]
    """

    degree: int = 2
    origin: Any = field(default=None, kw_only=True)
    scale: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degree", check_count("degree", self.degree))

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""
        product = self._scaled(a, values) @ self._scaled(b, values).mT
        return (values["offset"] + product) ** self.degree

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, c)."""
        return (values["offset"] + self._scaled(a, values).square().sum(1)) ** self.degree

    def _features(self, a: Tensor, values: Values) -> Tensor:
        """Return the monomials phi (n, binom(c + degree, degree)) of rows (n, c) with phi phi^T the kernel.

        By the multinomial theorem, the squared factor of x^p is degree! / (p_0! p!) offset^p_0, p_0 = degree - |p|.
        """
        z = self._scaled(a, values)
        extended = torch.cat([values["offset"].to(z).sqrt().expand(len(z), 1), z], dim=1)
        columns = []
        for powers in itertools.combinations_with_replacement(range(extended.shape[1]), self.degree):
            repeats = math.prod(math.factorial(powers.count(power)) for power in set(powers))
            size = math.sqrt(math.factorial(self.degree) / repeats)
            columns.append(size * extended[:, list(powers)].prod(1))
        return torch.stack(columns, dim=1)

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the binom(c + degree, degree) monomials."""
        return Functions(math.comb(columns.num_columns + self.degree, self.degree), self._features)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the offset."""
        unit = torch.ones_like(columns.scale[0])
        return {"offset": Hyperparameter(unit, unit, bounds_in(unit, OFFSET_BOUNDS))}

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the origin and the scale in standardized units, (c,) each."""
        scale = per_column("scale", 1.0 if self.scale is None else self.scale, columns.scale)
        return {"origin": columns.standardized(_origin(self.origin, columns)), "scale": scale / columns.scale}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with its origin and its scale."""
        origin = _center(columns) if self.origin is None else self.origin
        scale = tuple((columns.spread * columns.scale).tolist()) if self.scale is None else self.scale
        return replace(self, origin=origin, scale=scale)

    def _scaled(self, a: Tensor, values: Values) -> Tensor:
        return (a - values["origin"]) / values["scale"]


def _slopes(values: Values) -> Tensor:
    """Return the prior standard deviations of slopes, (c,)."""
    return values["variance"].sqrt()


def _origin(origin: Any, columns: ColumnSummary) -> Tensor:
    """Return an origin in the user's units, (c,), 0 if it is None."""
    return per_column("origin", 0.0 if origin is None else origin, columns.scale)


def _center(columns: ColumnSummary) -> tuple[float, ...]:
    """Return the centers of the columns in the user's units."""
    return tuple((columns.location + columns.scale * columns.center).tolist())


@dataclass(frozen=True, eq=False, repr=False)
class Constant(Kernel):
    """The constant kernel 1: a random constant that is added to all rows.

    Attributes:
        name: The name of the term. If None, "constant".

    Examples:
        >>> from rfgp import kernels as k
        >>> k.Constant().matrix({"x": [1.0, 3.0]}).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """

    columns: Any = field(default=(), init=False)

    def __post_init__(self) -> None:
        """Leave the columns empty."""

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return ones (n, m)."""
        return torch.ones(len(a), len(b), dtype=torch.float64, device=a.device)

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return ones (n,)."""
        return torch.ones(len(a), dtype=torch.float64, device=a.device)

    def _features(self, a: Tensor, values: Values) -> Tensor:
        """Return ones (n, 1)."""
        return torch.ones(len(a), 1, dtype=a.dtype, device=a.device)

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the constant 1."""
        return Functions(1, self._features)
