"""Rows that are weighted means of a function over the points of areas, such as mean incomes of districts.

A row of area i is y_i = sum_p w_ip f(x_p) + noise of the mean, with weights of sum 1. In the matrix of rows (n, D) it
has the number of its area in one column, where points have -1. Every block of the prior is a function of points:
features phi become A phi, and covariances K become A K A^T, with the matrix A of weights. Solvers, left-out rows and
updates therefore see areas as they see other rows.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks import KernelBlock, Prior, Residual, WeightBlock
from rfgp.columns import InputTable
from rfgp.columns.cells import REAL, Column
from rfgp.errors import DataError
from rfgp.messages import short_repr

FEATURE_POINTS = 2**16
"""The number of points whose features are computed at once. Of areas with more, one area is computed at once."""
COVARIANCE_POINTS = 2**10
"""The number of points whose covariances are computed at once for variances of areas."""


class AreaRows(NamedTuple):
    """A user's rows that are points of areas.

    Attributes:
        X: The inputs of n points, as for `GP.fit`.
        key: The key of the column of areas, or the areas (n,).
        weights: The key of the column of weights, or the weights (n,). If None, ones.
    """

    X: Any
    key: Any
    weights: Any = None


@dataclass(frozen=True, eq=False)
class Areas:
    """The points of m areas, one area after the other.

    Attributes:
        points: The points (P, D) in the rows' format.
        weights: Their weights (P,), of sum 1 in each area.
        sizes: The numbers of points of the areas, (m,).
        column: The index of the column with the numbers of areas.
    """

    points: Tensor
    weights: Tensor
    sizes: Tensor
    column: int

    def joined(self, more: "Areas") -> "Areas":
        """Return these areas followed by others."""
        points, weights = torch.cat([self.points, more.points]), torch.cat([self.weights, more.weights])
        return Areas(points, weights, torch.cat([self.sizes, more.sizes]), self.column)

    def expanded(self, x: Tensor) -> "Expanded | None":
        """Return the points of rows (n, D), or None if all rows are points."""
        numbers = x[:, self.column].detach().long()
        is_area = numbers >= 0
        if not bool(is_area.any()):
            return None
        known = numbers.clamp_min(0)
        sizes = torch.where(is_area, self.sizes[known], 1)
        owner = torch.repeat_interleave(sizes)
        within = torch.arange(len(owner)) - (sizes.cumsum(0) - sizes)[owner]
        of_area, first = is_area[owner], (self.sizes.cumsum(0) - self.sizes)[known]  # the first point of each area
        place = torch.where(of_area, first[owner] + within, 0)
        points = torch.where(of_area[:, None], self.points[place].to(x), x[owner])
        return Expanded(points, owner, torch.where(of_area, self.weights[place], 1.0), sizes)


class Expanded(NamedTuple):
    """The N points of n rows.

    Attributes:
        points: The points, (N, D).
        owner: The row of each point, (N,), ascending.
        weights: Its weight, (N,).
        sizes: The number of points of each row, (n,).
    """

    points: Tensor
    owner: Tensor
    weights: Tensor
    sizes: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """Return the weighted means (n, p) of values (N, p) at the points."""
        zeros = values.new_zeros(len(self.sizes), values.shape[1])
        return zeros.index_add(0, self.owner, self.weights.to(values)[:, None] * values)

    def parts(self, most: int) -> Iterator["Expanded"]:
        """Yield successive rows with at most so many points together, or one row with more."""
        ends, first = self.sizes.cumsum(0), 0
        while first < len(self.sizes):
            begin = int(ends[first] - self.sizes[first])
            last = max(int(torch.searchsorted(ends, begin + most, right=True)), first + 1)
            taken = slice(begin, int(ends[last - 1]))
            yield Expanded(self.points[taken], self.owner[taken] - first, self.weights[taken], self.sizes[first:last])
            first = last


@dataclass(frozen=True, eq=False)
class _MeanFeatures:
    """A phi: the features of points averaged over areas."""

    areas: Areas
    features: Callable[..., Tensor]

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features (n, F) of rows x (n, D)."""
        expanded = self.areas.expanded(x)
        if expanded is None:
            return self.features(x, *parameters)
        return torch.cat(
            [part.mean(self.features(part.points, *parameters)) for part in expanded.parts(FEATURE_POINTS)]
        )


@dataclass(frozen=True, eq=False)
class _MeanCovariance:
    """A K B^T: the covariance of points averaged over areas on both sides."""

    areas: Areas
    covariance: Callable[..., Tensor]

    def __call__(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D)."""
        left = self.areas.expanded(a)
        right = left if b is a else self.areas.expanded(b)
        first = a if left is None else left.points
        second = b if right is None else right.points  # the same tensor if b is a
        covariance = self.covariance(first, second, *parameters)
        covariance = covariance if left is None else left.mean(covariance)
        return covariance if right is None else right.mean(covariance.mT).mT


@dataclass(frozen=True, eq=False)
class _MeanVariances:
    """The diagonal of A K A^T."""

    areas: Areas
    covariance: Callable[..., Tensor]
    variances: Callable[..., Tensor] | None

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of rows x (n, D)."""
        expanded = self.areas.expanded(x)
        if expanded is None:
            ones = torch.ones(len(x), dtype=torch.float64)
            return ones if self.variances is None else self.variances(x, *parameters)
        parts = []
        for part in expanded.parts(COVARIANCE_POINTS):
            covariance = self.covariance(part.points, part.points, *parameters)
            parts.append(part.mean(part.mean(covariance).mT).diagonal())
        return torch.cat(parts)


def averaged(prior: Prior, areas: Areas) -> Prior:
    """Return the prior of a function at points and of its means over areas.

    Args:
        prior: The prior at points, with blocks of weights and of covariances only.
        areas: The areas, with standardized points.
    """

    def of_weights(block: WeightBlock) -> WeightBlock:
        residual = block.residual
        if residual is not None:
            kernel, diagonal = residual.kernel, _MeanVariances(areas, residual.kernel, residual.diagonal)
            residual = Residual(residual.is_noise, _MeanCovariance(areas, kernel), diagonal)
        features = _MeanFeatures(areas, block.features)
        return replace(block, features=features, residual=residual, design=None, fourier=None)

    def of_kernel(block: KernelBlock) -> KernelBlock:
        variances = _MeanVariances(areas, block.covariance, block.variances)
        covariance = _MeanCovariance(areas, block.covariance)
        return replace(block, covariance=covariance, variances=variances, functions=None, sides=None, own_gram=None)

    return replace(prior, weights=tuple(map(of_weights, prior.weights)), kernels=tuple(map(of_kernel, prior.kernels)))


# --- The areas of a user's rows ---------------------------------------------------------------------------------------


class Grouped(NamedTuple):
    """Rows of a table, grouped by areas.

    Attributes:
        table: All points, without the columns of areas and weights.
        order: The rows, one area after the other, (n,).
        weights: The weights of the rows in this order, (n,).
        sizes: The numbers of points, (m,).
        targets: The row that has the target of each area, (m,).
        y: These targets, (m,).
    """

    table: InputTable
    order: NDArray[np.int64]
    weights: NDArray[np.float64]
    sizes: NDArray[np.int64]
    targets: NDArray[np.int64]
    y: NDArray[np.float64]


def grouped(table: InputTable, y: Any, given: AreaRows, kept: Collection[Any] = ()) -> Grouped:
    """Return the rows of a table grouped by areas.

    Args:
        table: The points.
        y: The targets (n,), NaN in all rows of an area but one, or equal in its rows.
        given: The areas and the weights.
        kept: The keys of the columns that stay in the table even if they are areas or weights.

    Raises:
        DataError: If an area is missing in a row, has no target or two, or a weight is not positive.
    """
    table, areas = _column(table, given.key, "average_over", kept)
    weights: Any = np.ones(table.num_rows)
    if given.weights is not None:
        table, cells = _column(table, given.weights, "weights", kept)
        if cells.cell_type not in REAL:
            raise DataError(f"weights must be numbers, got {cells.cell_type}.")
        weights = np.where(cells.missing, np.nan, np.asarray(cells, dtype=np.float64))
    if areas.missing.any():
        raise DataError(f"average_over must be an area in each row, got none in row {int(areas.missing.argmax())}.")
    wrong = ~(np.isfinite(weights) & (weights > 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"weights must be positive, got {weights[row]:g} in row {row} (rows count from 0).")
    codes, labels = areas.factorized()
    try:
        values = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError("y must be numbers, one for each area, NaN in its other rows.") from error
    if values.shape != codes.shape:
        raise DataError(f"y must have shape {codes.shape}, one target for each row or NaN, got {values.shape}.")
    order, sizes = np.argsort(codes, kind="stable"), np.bincount(codes)
    low, high = np.full(len(sizes), np.inf), np.full(len(sizes), -np.inf)
    known = np.flatnonzero(~np.isnan(values))
    np.minimum.at(low, codes[known], values[known])
    np.maximum.at(high, codes[known], values[known])
    for number in np.flatnonzero(low != high)[:1]:
        got = "none" if low[number] > high[number] else f"{low[number]:g} and {high[number]:g}"
        raise DataError(
            f"Each area must have one target, got {got} for {short_repr(labels[number])}. Give it in one of its rows, "
            "with NaN in the others, or in all of them."
        )
    targets = np.empty(len(sizes), dtype=np.int64)
    targets[codes[known[::-1]]] = known[::-1]  # the first row with a target
    shares = weights / np.bincount(codes, weights=weights)[codes]
    return Grouped(table, order, shares[order], sizes, targets, low)


def _column(table: InputTable, key: Any, name: str, kept: Collection[Any]) -> tuple[InputTable, Column]:
    """Return a table without a column that an argument names, unless it is kept, and its cells (n,)."""
    if isinstance(key, str | int | np.integer) and not isinstance(key, bool):
        known = key if isinstance(key, str) else int(key)
        return (table if known in kept else table.without(known)), table.cells(known)
    if np.ndim(key) != 1 or len(key) != table.num_rows:
        raise DataError(f"{name} must have a value for each of {table.num_rows} rows, got shape {np.shape(key)}.")
    return table, Column.of(key)
