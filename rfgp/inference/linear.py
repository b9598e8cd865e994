"""A linear model on features, the first pass over its rows, and what follows from that alone.

The statistics of the pass are all that the posterior of the weights needs.

Products of features are of their dtype within a block, sums over blocks and everything F x F are float64. Products of
float32 features lose what the noise is to tell apart: with phi^T phi of n rows off by about sqrt(n b) 6e-8, b rows to a
block, the density of a row was off by less than 3e-4 where e = sqrt(n b) 6e-8 s^2 / noise was below .3, by about 1e-3
at .7, .01 at 2, .02 at 6 and .1 beyond (`benchmarks/papers/own/rounding.py`). From `most_rounding` of e on, blocks of
features are cast to float64 first.

The arithmetic of some features (those of inducing points) multiplies rounding errors. Let d^2 be the mean over rows of
|phi_32(x) - phi(x)|^2. The errors add n s^2 d^2 / noise to tr A: half of that, at most, to log|A| / 2, and the noise
times that to the sum of the rows' posterior variances, noise times degrees of freedom. Means are off by more, since
weights multiply the errors. So e = 4 (n s^2 d^2 / noise)^1/2 has the same limit, from which on these features are
computed in float64. With either e just below it, standard deviations were within 0.9 % and means within 0.0033 s of
those from float64; at a 16th of the noise 1.4 % and 0.007 s, at a 160th 9 % and 0.02 s.

Rows that lie on other machines are summed there (`summed`), part by part.

Noise and output scale need no other pass. Both scale the covariance s^2 (phi phi^T + l P^-1), l = noise / s^2 (P as in
`Statistics`). With A = I + phi^T P phi / l and N observations of k outputs, repetitions counted,

    -2 log density = Q / s^2 + k (log|A| + N log(2 pi l s^2)) + terms without either,
    Q = min_u (y - phi u)^T P (y - phi u) / l + u^T u,

so for given l the best s^2 is Q / (N k), and one variable is left. Q is computed at the u that the factor of A gives:
a small error of u changes it in the second order only.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rfgp.inference.priors import FeaturePrior
from rfgp.linalg import cholesky
from rfgp.rows import Block, DistributedRows, Rows, parts_of
from rfgp.rows.blocks import Sums

ENTRIES = 2**22
"""Of a block of features."""
LEAST_ROWS, MOST_ROWS = 256, 8192
_ROUNDING = 6e-8
"""Of float32."""
_AMPLIFIED = 4.0
"""The factor of the errors of features in e."""
TILE = 256
"""Columns of a tile of a symmetric product."""


def add_symmetric_product(
    total: Tensor,  # (F, F)
    phi: Tensor,  # (b, F)
) -> None:
    """Add phi^T phi to the upper triangle of `total`, in tiles: half the work of a product, on any device.

    What stands below the tiles of the diagonal is left alone; `symmetrized` fills it.
    """
    for first in range(0, phi.shape[1], TILE):
        last = first + TILE
        total[first:last, first:] += phi[:, first:last].mT @ phi[:, first:]


def symmetrized(
    total: Tensor,  # (F, F)
) -> Tensor:  # (F, F)
    """Return the symmetric matrix whose upper triangle is given."""
    upper = total.triu()
    return upper + upper.triu(1).mT


def block_rows(num_features: int) -> int:
    """Return the number of rows whose features make one block."""
    return max(LEAST_ROWS, min(MOST_ROWS, ENTRIES // max(num_features, 1)))


@dataclass(frozen=True, eq=False)
class LinearModel:
    """y = mean + s phi(x) w + e, with w ~ N(0, I) and e of variance `noise` beside the fixed noise of the rows.

    Attributes:
        prior: Of the function: phi, its parameters, and s^2.
        rows: The data.
        mean: (k,), float64.
        noise: 0-d, float64.
        most_rounding: Of each e above; beyond it features and their products are float64.
        part_of_uniform: Where the rows are a part of others: whether none of all these has a weight or a noise.
    """

    prior: FeaturePrior
    rows: Rows
    mean: Tensor
    noise: Tensor
    most_rounding: float = 0.3
    part_of_uniform: bool | None = None

    @property
    def num_features(self) -> int:
        """F."""
        return self.prior.num_features

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Tensors that the features depend on, 0-d, (d,) or (m, d)."""
        return self.prior.parameters

    @cached_property
    def variance(self) -> Tensor:
        """s^2, 0-d, float64."""
        variance = self.prior.variance
        return torch.ones_like(self.noise) if variance is None else variance.double()

    @property
    def is_uniform(self) -> bool:
        """Whether no row has a weight or a noise of its own, those that these are a part of included."""
        if self.adds_noise:
            return False
        return self.rows.is_uniform if self.part_of_uniform is None else self.part_of_uniform

    @property
    def adds_noise(self) -> bool:
        """Whether what the features miss is noise of the rows."""
        return self.prior.residual is not None and self.prior.residual.is_noise

    def completed(self, block: Block, phi: Tensor) -> Block:
        """Return a block with what its features (b, F) miss of the variance for noise of its rows, if it is."""
        if not self.adds_noise:
            return block
        assert self.prior.residual is not None
        missing = self.variance * self.prior.residual.missing(phi)
        return replace(block, fixed_noise=missing if block.fixed_noise is None else block.fixed_noise + missing)

    @cached_property
    def is_precise(self) -> bool:
        """Whether features of float32 inputs and their products have to be float64."""
        n, size = len(self.rows), block_rows(self.num_features)
        ratio = float(self.variance.detach() / self.noise.detach())
        if math.sqrt(n * min(n, size)) * _ROUNDING * ratio > self.most_rounding:
            return True
        error = 0.0 if self.prior.rounding is None else self.prior.rounding(*self.parameters)
        return _AMPLIFIED * math.sqrt(n * ratio * error) > self.most_rounding

    def phi(self, block: Block, *parameters: Tensor) -> Tensor:
        """Return the features of a block, (b, F), at other parameters if these are given."""
        is_precise = block.inputs.dtype != torch.float64 and self.is_precise
        inputs = block.inputs.double() if is_precise and self.prior.rounding is not None else block.inputs
        out: Tensor = self.prior.features(inputs, *(parameters or self.parameters))
        return out.double() if is_precise else out

    def blocks(self) -> Iterator[Block]:
        """Yield block after block of rows."""
        yield from self.rows.blocks(block_rows(self.num_features))

    def detached(self) -> "LinearModel":
        """Return the model without gradients."""
        return replace(self, prior=self.prior.detached(), mean=self.mean.detach(), noise=self.noise.detach())


class Statistics(NamedTuple):
    """What the rows say of the weights; P = noise / D is 1 where a row counts once and has no noise of its own."""

    gram: Tensor  # (F, F) phi^T P phi
    target: Tensor  # (F, k) phi^T P (y - mean)
    square: Tensor  # 0-d, tr (y - mean)^T P (y - mean)
    rows: Tensor  # 0-d, their number
    observations: Tensor  # 0-d, their number, repetitions included


class Solved(NamedTuple):
    """The posterior of the weights w ~ N(0, I) given the data."""

    factor: Tensor  # (F, F) the lower Cholesky factor of A
    weights: Tensor  # (F, k)


def gather(model: LinearModel, tell: Callable[[int], None] | None = None) -> Statistics:
    """Return the statistics of all rows, in one pass.

    Args:
        model: With the rows.
        tell: Called after each block with their number so far; not where rows lie on other machines.
    """
    tells = tell is not None and not any(isinstance(part, DistributedRows) for part in parts_of(model.rows))
    gram, *others = summed(model, partial(_statistics, tell=tell) if tells else _statistics)
    return Statistics(symmetrized(gram), *others)


def summed(model: LinearModel, function: Callable[[LinearModel], Sums]) -> Sums:
    """Return the sums that a function takes over the model's rows; of rows elsewhere, taken there part by part."""
    parts = parts_of(model.rows)
    if not any(isinstance(part, DistributedRows) for part in parts):
        return function(model)
    none, kind = Block(model.mean[:0].clone(), model.mean[:0].clone()), model.is_uniform
    settled = replace(model.detached(), rows=none, most_rounding=_settled(model), part_of_uniform=kind)
    sums = [
        part.total(partial(_of_part, settled, function))
        if isinstance(part, DistributedRows)
        else _of_part(settled, function, part)
        for part in parts
    ]
    return tuple(sum(column[1:], column[0]) for column in zip(*sums, strict=True))


def _settled(model: LinearModel) -> float:
    """Return the `most_rounding` by which a part, which has fewer rows, decides as the whole does."""
    return -1.0 if model.is_precise else math.inf


def _of_part(model: LinearModel, function: Callable[[LinearModel], Sums], rows: Rows) -> Sums:
    with torch.no_grad():
        return function(replace(model, rows=rows))


def _statistics(model: LinearModel, tell: Callable[[int], None] | None = None) -> Sums:
    """Return the upper triangle of phi^T P phi (F, F), and the other statistics."""
    F, like = model.num_features, model.mean
    gram, target = like.new_zeros(F, F), like.new_zeros(F, len(like))
    square, rows, observations = (like.new_zeros(()) for _ in range(3))
    for done, block in enumerate(model.blocks(), 1):
        phi, y = model.phi(block), block.targets - model.mean
        noise_diag = model.completed(block, phi).noise_diag(model.noise)
        if noise_diag.ndim:
            root = (model.noise / noise_diag).sqrt()[:, None]
            phi, y = phi * root.to(phi), y * root
        add_symmetric_product(gram, phi)
        target += (phi.mT @ y.to(phi)).double()
        square += y.square().sum()
        rows += len(block)
        observations += block.count
        if tell is not None:
            tell(done)
    return gram, target, square, rows, observations


def solve(statistics: Statistics, variance: Tensor, noise: Tensor) -> Solved:
    """Return the posterior of the weights for s^2 and the noise, 0-d each."""
    matrix = (variance / noise) * statistics.gram
    matrix.diagonal().add_(1)
    factor = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    return Solved(factor, torch.cholesky_solve((variance.sqrt() / noise) * statistics.target, factor))


class Scales(NamedTuple):
    """The best noise and prior variance of the weights, 0-d, and the posterior of the weights with them."""

    variance: Tensor
    noise: Tensor
    solved: Solved


def quadratic(statistics: Statistics, solved: Solved, variance: Tensor, noise: Tensor) -> Tensor:
    """Return (y - mean)^T C^-1 (y - mean), summed over outputs, 0-d."""
    gram, target, square = statistics[:3]
    u = variance.sqrt() * solved.weights
    residual = square - 2 * (target * u).sum() + (u * (gram @ u)).sum()
    return residual.clamp_min(0) / noise + solved.weights.square().sum()


def best_common_scale(model: LinearModel, count: float) -> tuple[Tensor, Solved]:
    """Return the factor c (0-d) by which variance and noise maximise the likelihood, and the weights' posterior then.

    Args:
        model: No row has a noise of its own.
        count: The number N of observations.
    """
    with torch.no_grad():
        statistics = gather(model)
        solved = solve(statistics, model.variance, model.noise)
        c = quadratic(statistics, solved, model.variance, model.noise) / (count * model.rows.num_outputs)
        c = c.clamp(1e-12, 1e12)
        return c, Solved(solved.factor, solved.weights / c.sqrt())


def best_scales(
    statistics: Statistics,
    count: float,
    ratio: float,
    variance_bounds: tuple[float, float],
    noise_bounds: tuple[float, float],
) -> Scales:
    """Return the noise and the variance that maximise the likelihood; at a bound, for the best ratio of the two.

    Args:
        statistics: Of rows of which none has a noise of its own.
        count: The number N of observations.
        ratio: Where the search for noise / variance starts.
        variance_bounds: Least and largest variance.
        noise_bounds: Least and largest noise.
    """
    one, k = torch.ones_like(statistics.square), statistics.target.shape[1]

    def at(log_ratio: float) -> tuple[float, Scales]:
        relative = one * math.exp(log_ratio)
        solved = solve(statistics, one, relative)
        total = quadratic(statistics, solved, one, relative)
        variance = (total / (count * k)).clamp(*variance_bounds)
        noise = (relative * variance).clamp(*noise_bounds)
        determinant = 2 * solved.factor.diagonal().log().sum()
        value = total / variance + k * (determinant + count * (relative.log() + variance.log()))
        return float(value) / count, Scales(variance, noise, solved)

    low = math.log(max(noise_bounds[0] / variance_bounds[1], 1e-12))
    high = math.log(noise_bounds[1] / variance_bounds[0])
    middle, reach = min(max(math.log(ratio), low), high), 3.0
    while True:
        left, right = max(low, middle - reach), min(high, middle + reach)
        best = minimize_scalar(lambda v: at(v)[0], bounds=(left, right), method="bounded", options={"xatol": 1e-5})
        inside = left + 0.01 < best.x < right - 0.01
        if inside or (left == low and right == high) or reach > 40:
            break
        middle, reach = float(best.x), 2 * reach
    _, scales = at(float(best.x))
    return Scales(scales.variance, scales.noise, solve(statistics, scales.variance, scales.noise))
