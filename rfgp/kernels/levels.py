"""Kernels of levels, groups and categories, and of finitely many functions."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.precisions import IndependentField
from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import ColumnSummary, Functions, LatentField, Values, bounds_in, per_column, read_positives
from rfgp.linalg import cholesky
from rfgp.messages import check_count
from rfgp.parameters import Hyperparameter

# --- Kernels of finitely many functions: linear, polynomial and constant ---------------------------------------------

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
    has_unit_variance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Leave the columns empty."""

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return ones (n, m)."""
        return torch.ones(len(a), len(b), dtype=torch.float64, device=a.device)

    def _features(self, a: Tensor, values: Values) -> Tensor:
        """Return ones (n, 1)."""
        return torch.ones(len(a), 1, dtype=a.dtype, device=a.device)

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the constant 1."""
        return Functions(1, self._features)


# --- Kernels of levels: groups, categories and coregionalization -----------------------------------------------------

CORRELATION_BOUNDS = (1e-4, 1 - 1e-4)
"""The bounds of a correlation that is learned."""
LOADING_START = 0.5
"""The start of the loadings. With a diagonal of 1 two levels begin with a correlation of 0.2."""
DIAGONAL_BOUNDS = (1e-4, 1e4)
"""The bounds of the diagonal d of a coregionalization, in squared loadings."""


def are_equal(a: Tensor, b: Tensor) -> Tensor:
    """Return whether rows a (n, c) and b (m, c) have equal levels, (n, m)."""
    same = torch.ones(len(a), len(b), dtype=torch.bool, device=a.device)
    for left, right in zip(a.unbind(1), b.unbind(1), strict=True):
        same &= left[:, None] == right
    return same


def codes_of(a: Tensor, num_levels: Sequence[int]) -> Tensor:
    """Return the index of the combination of levels in each row, (n,).

    Args:
        a: Levels (n, c).
        num_levels: The number of levels of each column. A row with another level has the index -1.
    """
    codes = torch.zeros(len(a), dtype=torch.int64, device=a.device)
    known = torch.ones(len(a), dtype=torch.bool, device=a.device)
    for column, size in zip(a.unbind(1), num_levels, strict=True):
        known &= column < size
        codes = codes * size + column.long()
    return torch.where(known, codes, -1)


def one_hot(num_levels: Sequence[int], a: Tensor, values: Values) -> Tensor:
    """Return the indicators (n, L) of the levels of rows, 0 for new levels.

    Args:
        num_levels: The number of levels of each column.
        a: The levels, (n, c).
        values: The hyperparameters, which have no effect.
    """
    codes, size = codes_of(a, num_levels), math.prod(num_levels)
    out = torch.zeros(len(codes), size + 1, dtype=torch.float64, device=codes.device)
    out.scatter_(1, torch.where(codes < 0, size, codes)[:, None], 1.0)
    return out[:, :size]


@dataclass(frozen=True, eq=False)
class LevelField(LatentField):
    """Independent values of variance 1, one for each combination of levels.

    Attributes:
        num_levels: The number of levels of each column.
    """

    num_levels: tuple[int, ...]

    @cached_property
    def field(self) -> Any:
        """The identity matrix as a precision."""
        return IndependentField(math.prod(self.num_levels))

    def parameters(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return no parameters, (0,), and the factor 1."""
        return torch.zeros(0, dtype=torch.float64), torch.ones((), dtype=torch.float64)

    def projector(self, a: Tensor) -> sp.csr_array:
        """Return the matrix (n, L) that selects levels a (n, c), 0 for new ones."""
        codes = codes_of(a, self.num_levels).numpy()
        known = codes >= 0
        starts = np.concatenate([[0], np.cumsum(known)])
        shape = len(codes), math.prod(self.num_levels)
        return sp.csr_array((np.ones(starts[-1]), codes[known], starts), shape=shape)


@dataclass(frozen=True, eq=False, repr=False)
class Group(Kernel):
    """Independent random effects of levels: 1 within a level, 0 between.

    Several columns give one level for each combination of their levels. Levels without training rows have the prior
    variance.

    Attributes:
        columns: The keys of its columns.
        name: The name of the term. If None, the class and the columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.Group("store").matrix({"store": ["a", "b", "a"]}).tolist()
        [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    kind: ClassVar[ColumnKind] = ColumnKind.LEVEL
    has_unit_variance: ClassVar[bool] = True

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""
        return are_equal(a, b).double()

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return the indicators of the L combinations of levels."""
        return Functions(math.prod(columns.num_levels), partial(one_hot, columns.num_levels))

    def latent_field(self, columns: ColumnSummary) -> LatentField:
        """Return the effects of the combinations of levels, which are independent."""
        return LevelField(columns.num_levels)


@dataclass(frozen=True, eq=False, repr=False)
class Categorical(Kernel):
    """Effects of levels with one correlation (compound symmetry).

    Source: Roustant et al. (2020), Group kernels for Gaussian process metamodels with categorical
    inputs, Section 2.

    Attributes:
        columns: The keys of its columns.
        correlation: The correlation of two levels, from 0 to below 1. If None, it is learned.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If the correlation is not in its range.

    Examples:
        >>> from rfgp import kernels as k
        >>> k.Categorical("colour", correlation=0.5).matrix({"colour": ["red", "blue"]}).tolist()
        [[1.0, 0.5], [0.5, 1.0]]
    """

    kind: ClassVar[ColumnKind] = ColumnKind.LEVEL
    has_unit_variance: ClassVar[bool] = True
    correlation: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        value = self.correlation
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value < 1):
            raise InvalidArgumentError(f"correlation must be None or a number from 0 to below 1, got {value!r}.")

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c)."""
        correlation = values["correlation"]
        return correlation + (1 - correlation) * are_equal(a, b).double()

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the correlation, unless it was given."""
        if self.correlation is not None:
            return {}
        unit = torch.ones_like(columns.scale[0])
        return {"correlation": Hyperparameter(0.5 * unit, unit, bounds_in(unit, CORRELATION_BOUNDS))}

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the correlation, 0-d, if it was given."""
        if self.correlation is None:
            return {}
        return {"correlation": torch.tensor(self.correlation, dtype=torch.float64, device=columns.scale.device)}

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return 1 + L functions: an effect that all L levels share, and one of each."""
        return Functions(1 + math.prod(columns.num_levels), partial(self._features, columns.num_levels))

    def _features(self, num_levels: Sequence[int], a: Tensor, values: Values) -> Tensor:
        """Return sqrt(correlation) and sqrt(1 - correlation) times the indicators, (n, 1 + L), of rows a (n, c)."""
        correlation = values["correlation"].double()
        indicators = (1 - correlation).sqrt() * one_hot(num_levels, a, values)
        return torch.cat([correlation.sqrt().expand(len(a), 1), indicators], dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class Coregionalization(Kernel):
    """Effects of L levels with a covariance proportional to W W^T + diag(d).

    It is divided by the mean of its diagonal.
    W is (L, rank). Correlations of levels may be negative. Levels without training rows have the variance 1 and are
    uncorrelated with others.

    Source: Bonilla, Chai and Williams (2007), Multi-task Gaussian process prediction, Section 2.

    Attributes:
        columns: The key of its column.
        rank: The number of columns of W.
        name: The name of the term. If None, the class and the column.

    Raises:
        InvalidArgumentError: If there are several columns, or the rank is not a positive integer.

    Examples:
        >>> from rfgp import kernels as k
        >>> values = {"loadings": [[1.0], [-1.0]], "diagonal": [1.0, 1.0]}
        >>> k.Coregionalization("output").matrix({"output": ["a", "b"]}, values=values).tolist()
        [[1.0, -0.5], [-0.5, 1.0]]
    """

    kind: ClassVar[ColumnKind] = ColumnKind.LEVEL
    rank: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None and len(self.columns) != 1:
            raise InvalidArgumentError(f"Coregionalization must have one column, got {self.columns!r}.")
        object.__setattr__(self, "rank", check_count("rank", self.rank))

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, 1) and b (m, 1)."""
        levels, size = self.between_levels(values), len(values["loadings"])
        left, right = a[:, 0].long(), b[:, 0].long()
        are_known = (left < size)[:, None] & (right < size)
        between = levels[left.clamp(max=size - 1)][:, right.clamp(max=size - 1)]
        return torch.where(are_known, between, are_equal(a, b).to(between))

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, 1)."""
        levels, size = self.between_levels(values).diagonal(), len(values["loadings"])
        codes = a[:, 0].long()
        return torch.where(codes < size, levels[codes.clamp(max=size - 1)], torch.ones_like(levels[:1]))

    def between_levels(self, values: Values) -> Tensor:
        """Return the covariance of the levels, (L, L).

        Args:
            values: The hyperparameters "loadings" (L, rank) and "diagonal" (L,).
        """
        loadings = values["loadings"].double()
        covariance = loadings @ loadings.mT + values["diagonal"].double().diag()
        return covariance / covariance.diagonal().mean()

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the loadings W (L, rank) and the diagonal (L,)."""
        size = columns.num_levels[0]
        ones = torch.ones(size, dtype=torch.float64, device=columns.scale.device)
        signs = torch.stack([(-1.0) ** ((torch.arange(size) // 2**j) * (j > 0)) for j in range(self.rank)], 1)
        loadings = (LOADING_START * signs).to(ones)
        unit = torch.ones_like(loadings)
        return {
            "loadings": Hyperparameter(loadings, unit, (-1e3 * unit, 1e3 * unit), is_positive=False),
            "diagonal": Hyperparameter(ones, ones, bounds_in(ones, DIAGONAL_BOUNDS)),
        }

    def functions(self, columns: ColumnSummary) -> Functions:
        """Return L functions, the columns of a root of the covariance of the levels."""
        return Functions(columns.num_levels[0], self._features)

    def _features(self, a: Tensor, values: Values) -> Tensor:
        """Return the rows (n, L) of a root of the covariance of the levels, zero for new levels, of rows a (n, 1)."""
        root = cholesky(self.between_levels(values), "The covariance of the levels")
        codes = codes_of(a, [len(root)])
        return torch.where((codes < 0)[:, None], 0.0, root[codes.clamp_min(0)])
