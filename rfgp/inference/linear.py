"""A linear model on features, and the first pass over its rows: all that the posterior of the weights needs.

Products of features are of their dtype within a block, sums over blocks and everything F x F are float64. Products of
float32 features lose what the noise is to tell apart: with phi^T phi of n rows off by about sqrt(n b) 6e-8, b rows to a
block, the density of a row was off by less than 3e-4 where e = sqrt(n b) 6e-8 s^2 / noise was below .3, by 2e-3 at .7,
and matrices were indefinite from 6 on (`benchmarks/rounding.py`). From `most_rounding` of e on, blocks of features are
cast to float64 first.

Rows that lie on other machines are summed there (`summed`), part by part.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.inference.rows import ArrayRows, Block, DistributedRows, JoinedRows, Rows, Sums
from rfgp.linalg import cholesky

_ENTRIES = 2**22
"""Of a block of features."""
_LEAST_ROWS, _MOST_ROWS = 256, 8192
_ROUNDING = 6e-8
"""Of float32."""
_TILE = 256
"""Columns of a tile of a symmetric product."""


def add_symmetric_product(
    total: Tensor,  # (F, F)
    phi: Tensor,  # (b, F)
) -> None:
    """Add phi^T phi to the upper triangle of `total`, in tiles: half the work of a product, on any device.

    What stands below the tiles of the diagonal is left alone; `symmetrized` fills it.
    """
    for first in range(0, phi.shape[1], _TILE):
        last = first + _TILE
        total[first:last, first:] += phi[:, first:last].mT @ phi[:, first:]


def symmetrized(
    total: Tensor,  # (F, F)
) -> Tensor:  # (F, F)
    """Return the symmetric matrix whose upper triangle is given."""
    upper = total.triu()
    return upper + upper.triu(1).mT


def block_rows(num_features: int) -> int:
    """Return the number of rows whose features make one block."""
    return max(_LEAST_ROWS, min(_MOST_ROWS, _ENTRIES // max(num_features, 1)))


@dataclass(frozen=True, eq=False)
class LinearModel:
    """y = mean + s phi(x) w + e, with w ~ N(0, I) and e of variance `noise` beside what the rows know of theirs.

    Attributes:
        features: (inputs, *parameters) -> phi (b, F).
        rows: The data.
        mean: (k,), float64.
        noise: 0-d, float64.
        variance: s^2, 0-d, float64.
        num_features: F.
        parameters: Tensors that the features depend on.
        most_rounding: Of e above; beyond it products of features are float64.
        part_of_uniform: Where the rows are a part of others: whether none of all these has a weight or a noise.
    """

    features: Callable[..., Tensor]
    rows: Rows
    mean: Tensor
    noise: Tensor
    variance: Tensor
    num_features: int
    parameters: tuple[Tensor, ...] = ()
    most_rounding: float = 0.3
    part_of_uniform: bool | None = None

    @property
    def is_uniform(self) -> bool:
        """Whether no row has a weight or a noise of its own, those that these are a part of included."""
        return self.rows.is_uniform if self.part_of_uniform is None else self.part_of_uniform

    @cached_property
    def is_precise(self) -> bool:
        """Whether products of features have to be float64."""
        n, size = len(self.rows), block_rows(self.num_features)
        rounding = math.sqrt(n * min(n, size)) * _ROUNDING * float(self.variance.detach() / self.noise.detach())
        return rounding > self.most_rounding

    def phi(self, block: Block, *parameters: Tensor) -> Tensor:
        """Return the features of a block, (b, F), at other parameters if these are given."""
        out: Tensor = self.features(block.inputs, *(parameters or self.parameters))
        return out.double() if self.is_precise else out

    def blocks(self) -> Iterator[Block]:
        """Yield block after block of rows."""
        yield from self.rows.blocks(block_rows(self.num_features))

    def detached(self) -> "LinearModel":
        """Return the model without gradients."""
        parameters = tuple(p.detach() for p in self.parameters)
        mean, noise, variance = (t.detach() for t in (self.mean, self.noise, self.variance))
        return replace(self, mean=mean, noise=noise, variance=variance, parameters=parameters)


class Statistics(NamedTuple):
    """What the rows say of the weights; P = noise / D is 1 where a row counts once and knows no noise of its own."""

    gram: Tensor  # (F, F) phi^T P phi
    target: Tensor  # (F, k) phi^T P (y - mean)
    square: Tensor  # 0-d, tr (y - mean)^T P (y - mean)


class Solved(NamedTuple):
    """The posterior of the weights w ~ N(0, I) given the data."""

    factor: Tensor  # (F, F) the lower Cholesky factor of A
    weights: Tensor  # (F, k)


def gather(model: LinearModel) -> Statistics:
    """Return the statistics of all rows, in one pass."""
    gram, target, square = summed(model, _statistics)
    return Statistics(symmetrized(gram), target, square)


def summed(model: LinearModel, function: Callable[[LinearModel], Sums]) -> Sums:
    """Return the sums that a function takes over the model's rows; of rows elsewhere, taken there part by part."""
    rows = model.rows
    parts = list(rows.parts) if isinstance(rows, JoinedRows) else [rows]
    if not any(isinstance(part, DistributedRows) for part in parts):
        return function(model)
    none, kind = ArrayRows(model.mean[:0].clone(), model.mean[:0].clone()), model.is_uniform
    settled = replace(model.detached(), rows=none, most_rounding=_settled(model), part_of_uniform=kind)
    found = [
        part.total(partial(_of_part, settled, function))
        if isinstance(part, DistributedRows)
        else _of_part(settled, function, part)
        for part in parts
    ]
    return tuple(sum(column[1:], column[0]) for column in zip(*found, strict=True))


def _settled(model: LinearModel) -> float:
    """Return the `most_rounding` by which a part, which has fewer rows, decides as the whole does."""
    return -1.0 if model.is_precise else math.inf


def _of_part(model: LinearModel, function: Callable[[LinearModel], Sums], rows: Rows) -> Sums:
    with torch.no_grad():
        return function(replace(model, rows=rows))


def _statistics(model: LinearModel) -> Sums:
    """Return the upper triangle of phi^T P phi (F, F), and the other two statistics."""
    count, like = model.num_features, model.mean
    gram, target = like.new_zeros(count, count), like.new_zeros(count, len(like))
    square = like.new_zeros(())
    for block in model.blocks():
        phi, y = model.phi(block), block.targets - model.mean
        spread = block.spread(model.noise)
        if spread.ndim:
            root = (model.noise / spread).sqrt()[:, None]
            phi, y = phi * root.to(phi), y * root
        add_symmetric_product(gram, phi)
        target += (phi.mT @ y.to(phi)).double()
        square += y.square().sum()
    return gram, target, square


def solve(statistics: Statistics, variance: Tensor, noise: Tensor) -> Solved:
    """Return the posterior of the weights for s^2 and the noise, 0-d each."""
    matrix = (variance / noise) * statistics.gram
    matrix.diagonal().add_(1)
    factor = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    return Solved(factor, torch.cholesky_solve((variance.sqrt() / noise) * statistics.target, factor))
