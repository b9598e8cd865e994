"""The first pass over the rows of a linear model: statistics for the posterior of its weights and the best scales.

A common prior scale s and the noise both scale the covariance s^2 (phi phi^T + l P^-1), with l = noise / s^2 and P as
in `Statistics`. Here phi includes prior scales relative to s. With A = I + phi^T P phi / l and N observations of k
outputs, including repetitions,

    -2 log likelihood = Q / s^2 + k (log|A| + N log(2 pi l s^2)) + terms without either,
    Q = min_u (y - phi u)^T P (y - phi u) / l + u^T u.

For given l the best s^2 is therefore Q / (N k), and one variable remains.

The condition number of A is at most its trace, because A - I is positive semidefinite. Above `MAX_TRACE` rounding
errors of phi^T P phi would change the posterior. A is then factorized by an orthogonal factorization of
[Phi / noise^(1/2); I], whose condition number is the square root of that of A (Golub and Van Loan 2013, Section 5.3).
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from rfgp.blocks.weights import Weights
from rfgp.linalg import cholesky
from rfgp.rows import Block
from rfgp.rows.blocks import Sums
from rfgp.solvers.lowrank.model import LinearModel, is_local, summed

TILE = 256
"""The number of columns of a tile of a symmetric product."""
MAX_TRACE = 1e12
"""The maximum trace of A for which A is formed. At 1e14, log likelihoods of 200 rows had errors of 1e-3."""


class Statistics(NamedTuple):
    """Sums over the rows, for features phi without scales.

    P = noise / D is 1 for a row of one observation without noise of its own.
    """

    gram: Tensor  # (F, F) phi^T P phi
    target: Tensor  # (F, k) phi^T P (y - mean)
    square: Tensor  # 0-d, tr (y - mean)^T P (y - mean)
    rows: Tensor  # 0-d, the number of rows
    observations: Tensor  # 0-d, the number of observations, repetitions included
    root: Tensor = torch.zeros(0, 0)  # (m, F + k) with the Gram matrix of P^(1/2) [phi, y - mean], or not needed


class WeightSolution(NamedTuple):
    """The posterior of the weights w ~ N(0, I) given the rows.

    It has the precision A = I + Phi^T D^-1 Phi.
    """

    factor: Tensor  # (F, F) the lower Cholesky factor of A
    weights: Tensor  # (F, k)

    @property
    def is_ill_conditioned(self) -> bool:
        """Whether the trace of A exceeds `MAX_TRACE`."""
        return bool(self.factor.square().sum() > MAX_TRACE)


def add_symmetric_product(
    total: Tensor,  # (F, F)
    phi: Tensor,  # (b, F)
) -> None:
    """Add phi^T phi to the upper triangle of a matrix, in tiles.

    This takes half the work of a product. The part below the diagonal tiles is not changed. `symmetrized` fills it.

    Args:
        total: The matrix, (F, F), which is changed.
        phi: The features, (b, F).
    """
    for first in range(0, phi.shape[1], TILE):
        last = first + TILE
        total[first:last, first:] += phi[:, first:last].mT @ phi[:, first:]


def symmetrized(
    total: Tensor,  # (F, F)
) -> Tensor:  # (F, F)
    """Return the symmetric matrix whose upper triangle is given.

    Args:
        total: The matrix. Its entries below the diagonal are ignored.

    Examples:
        >>> symmetrized(torch.tensor([[1.0, 2.0], [0.0, 3.0]])).tolist()
        [[1.0, 2.0], [2.0, 3.0]]
    """
    upper = total.triu()
    return upper + upper.triu(1).mT


def accumulate_gram(model: LinearModel, report: Callable[[int], None] | None = None) -> Statistics:
    """Return the statistics of all rows, in one pass.

    Args:
        model: The model with the rows.
        report: A function of the number of blocks so far, called after each block if all rows are on this machine. If
            None, it is not called.
    """
    reports = report is not None and is_local(model.rows)
    gram, *others = summed(model, partial(_sums, report=report) if reports else _sums)
    statistics = Statistics(symmetrized(gram), *others)
    if needs_root(statistics, model.scale, model.noise):
        return statistics._replace(root=root_of(model))
    return statistics


def needs_root(statistics: Statistics, scale: Tensor, noise: Tensor) -> bool:
    """Return whether the noise is too small for the products of features.

    Args:
        statistics: The sums over the rows.
        scale: The prior standard deviations s of the weights, 0-d or (F,).
        noise: The noise variance, 0-d.
    """
    return not len(statistics.root) and bool((scale.square() * statistics.gram.diagonal()).sum() > MAX_TRACE * noise)


def root_of(model: LinearModel) -> Tensor:
    """Return an upper triangular matrix whose Gram matrix is that of features and targets, (F + k, F + k).

    Rows are added by orthogonal factorizations, in one pass. Those on other machines are factorized there.

    Args:
        model: The model with the rows.
    """
    return summed(model, _root, _stacked)[0]


def _root(model: LinearModel) -> Sums:
    F, k = model.num_features, len(model.mean)
    root: Sums = (model.mean.new_zeros(0, F + k),)
    for block, phi, y in _weighted_blocks(model):
        repeated = y.new_zeros(1, F + k)
        repeated[0, F] = (model.noise * block.weighted_replicate_squares(model.noise).sum()).sqrt()
        root = _stacked(root, (torch.cat([torch.cat([phi.double(), y], dim=1), repeated]),))
    return root


def _stacked(a: Sums, b: Sums) -> Sums:
    """Return the triangular factor of the rows of both."""
    return (torch.linalg.qr(torch.cat([a[0], b[0]]), mode="r").R,)


def _weighted_blocks(model: LinearModel) -> Iterator[tuple[Block, Tensor, Tensor]]:
    """Yield blocks of rows with P^(1/2) phi (b, F) and P^(1/2) (y - mean) (b, k)."""
    for block in model.blocks():
        phi, y = model.phi(block), block.targets - model.mean
        noise_diag = model.with_fitc_noise(block, phi).noise_diag(model.noise)
        if noise_diag.ndim:
            weight = (model.noise / noise_diag).sqrt()[:, None]
            phi, y = phi * weight.to(phi), y * weight
        yield block, phi, y


def _sums(model: LinearModel, report: Callable[[int], None] | None = None) -> Sums:
    """Return the upper triangle of phi^T P phi (F, F), and the other statistics."""
    F, like = model.num_features, model.mean
    gram, target = like.new_zeros(F, F), like.new_zeros(F, len(like))
    square, rows, observations = (like.new_zeros(()) for _ in range(3))
    for done, (block, phi, y) in enumerate(_weighted_blocks(model), 1):
        add_symmetric_product(gram, phi)
        target += (phi.mT @ y.to(phi)).double()
        square += y.square().sum() + model.noise * block.weighted_replicate_squares(model.noise).sum()
        rows += len(block)
        observations += block.count
        if report is not None:
            report(done)
    return gram, target, square, rows, observations


def solve(statistics: Statistics, scale: Tensor, noise: Tensor) -> WeightSolution:
    """Return the posterior of the weights.

    Args:
        statistics: The sums over the rows. Their root is used if it is known.
        scale: The prior standard deviations s of the weights, 0-d or (F,).
        noise: The noise variance, 0-d.
    """
    if len(statistics.root):
        F, k = statistics.target.shape
        rows = torch.cat([scale.expand(F), scale.new_ones(k)]) / noise.sqrt() * statistics.root
        return solve_root(torch.cat([rows, torch.eye(F, F + k).to(rows)]), F)
    matrix = (scale * statistics.gram) * (scale / noise).reshape(-1, 1)
    matrix.diagonal().add_(1)
    factor = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    target = (scale / noise).reshape(-1, 1) * statistics.target
    return WeightSolution(factor, torch.cholesky_solve(target, factor))


def solve_root(
    stacked: Tensor,  # (m, F + k)
    F: int,
) -> WeightSolution:
    """Return the least squares solution of rows of features and targets of noise 1, and rows of the prior.

    Args:
        stacked: The rows, with targets in the last k columns.
        F: The number of features.
    """
    root = torch.linalg.qr(stacked, mode="reduced" if stacked.requires_grad else "r").R[:F]
    root = root * root.diagonal().sign()[:, None]
    weights = torch.linalg.solve_triangular(root[:, :F], root[:, F:], upper=True)
    return WeightSolution(root[:, :F].mT, weights)


def quadratic_form(statistics: Statistics, solution: WeightSolution, scale: Tensor, noise: Tensor) -> Tensor:
    """Return the quadratic form (y - mean)^T C^-1 (y - mean), 0-d.

    It is summed over outputs. It is evaluated at the weights u = s w of the solution, so that errors of u have only a
    second-order effect.

    Args:
        statistics: The sums over the rows.
        solution: The posterior of the weights.
        scale: The prior standard deviations s of the weights, 0-d or (F,).
        noise: The noise variance, 0-d.
    """
    gram, target, square = statistics[:3]
    u = scale.reshape(-1, 1) * solution.weights
    if len(statistics.root):
        difference = statistics.root[:, len(u) :] - statistics.root[:, : len(u)] @ u
        return difference.square().sum() / noise + solution.weights.square().sum()
    residual = square - 2 * (target * u).sum() + (u * (gram @ u)).sum()
    return residual.clamp_min(0) / noise + solution.weights.square().sum()


_MIN_RATIO = 1e-12
"""The minimum noise / variance of a search."""
_MAX_HALF_WIDTH = 40.0
"""The half-width of a search in log(noise / variance) above which it is not widened."""


class Scales(NamedTuple):
    """The noise and the prior variance of the weights that maximize the likelihood.

    Attributes:
        variance: The prior variance of the weights, 0-d.
        noise: The noise variance, 0-d.
        solution: The posterior of the weights at these.
    """

    variance: Tensor
    noise: Tensor
    solution: WeightSolution


def best_common_scale(model: LinearModel, count: float) -> tuple[Tensor, WeightSolution]:
    """Return the factor of variances and noise that maximizes the likelihood.

    Args:
        model: A model whose rows have no noise of their own.
        count: The number N of observations.

    Returns:
        The factor, 0-d, and the posterior of the weights with it.
    """
    with torch.no_grad():
        statistics = accumulate_gram(model)
        solution = solve(statistics, model.scale, model.noise)
        c = quadratic_form(statistics, solution, model.scale, model.noise) / (count * model.rows.num_outputs)
        c = c.clamp(1e-12, 1e12)
        return c, WeightSolution(solution.factor, solution.weights / c.sqrt())


def best_scales(
    statistics: Statistics,
    count: float,
    ratio: float,
    variance_bounds: tuple[float, float],
    noise_bounds: tuple[float, float],
) -> Scales:
    """Return the noise and the variance of one term that maximize the likelihood.

    Both are within bounds.

    Args:
        statistics: The statistics of rows without noise of their own.
        count: The number N of observations.
        ratio: The ratio of noise to variance at which the search starts.
        variance_bounds: The minimum and the maximum variance.
        noise_bounds: The minimum and the maximum noise.
    """
    unit, k = torch.ones_like(statistics.square), statistics.target.shape[1]

    def trial(log_ratio: float) -> tuple[float, Scales]:
        r = math.exp(log_ratio)
        relative = unit * r
        solution = solve(statistics, unit, relative)
        total = quadratic_form(statistics, solution, unit, relative)
        lower, upper = max(variance_bounds[0], noise_bounds[0] / r), min(variance_bounds[1], noise_bounds[1] / r)
        variance = (total / (count * k)).clamp(lower, upper)
        determinant = 2 * solution.factor.diagonal().log().sum()
        value = total / variance + k * (determinant + count * (relative.log() + variance.log()))
        return float(value) / count, Scales(variance, (relative * variance).clamp(*noise_bounds), solution)

    low = math.log(max(noise_bounds[0] / variance_bounds[1], _MIN_RATIO))
    high = math.log(noise_bounds[1] / variance_bounds[0])
    middle, half_width = min(max(math.log(ratio), low), high), 3.0
    while True:
        left, right = max(low, middle - half_width), min(high, middle + half_width)
        best = minimize_scalar(lambda v: trial(v)[0], bounds=(left, right), method="bounded", options={"xatol": 1e-5})
        inside = left + 0.01 < best.x < right - 0.01
        if inside or (left == low and right == high) or half_width > _MAX_HALF_WIDTH:
            break
        middle, half_width = float(best.x), 2 * half_width
    _, scales = trial(float(best.x))
    return scales._replace(solution=solve(statistics, scales.variance.sqrt(), scales.noise))


def best_ratios(
    statistics: Statistics,
    weights: Weights,
    count: float,
    start: Tensor,  # (T,)
) -> tuple[Tensor, Tensor]:
    """Return the variances and the noise that maximize the likelihood.

    With the best noise, -2 log likelihood is N k log q + k log|A| with q = y^T C^-1 y at noise 1. Its derivative in log
    v_t is -N k w_t^T w_t / q + k (F_t - tr (A^-1)_tt), with the weights w at noise 1.

    Args:
        statistics: The statistics of rows without noise of their own.
        weights: The weights of the terms.
        count: The number N of observations.
        start: The ratios at which the search starts, (T,).

    Returns:
        The variances of the terms relative to the noise, (T,), and the noise, 0-d.
    """
    unit, k = torch.ones_like(statistics.square), statistics.target.shape[1]
    sizes = unit.new_tensor(weights.sizes)

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale = weights.by_weight(torch.from_numpy(x).to(unit).mul(0.5).exp())
        solution = solve(statistics, scale, unit)
        q = quadratic_form(statistics, solution, scale, unit)
        dof = sizes - weights.by_block(torch.cholesky_inverse(solution.factor).diagonal())
        gradient = dof - count * weights.by_block(solution.weights.square().sum(1)) / q
        value = count * q.log() + 2 * solution.factor.diagonal().log().sum()
        return float(value) / count, (gradient / count).cpu().numpy()

    limits = [(math.log(_MIN_RATIO), -math.log(_MIN_RATIO))] * len(sizes)
    result = minimize(loss, start.log().cpu().numpy(), jac=True, method="L-BFGS-B", bounds=limits)
    ratios = torch.from_numpy(result.x).to(unit).exp()
    scale = weights.by_weight(ratios.sqrt())
    total = quadratic_form(statistics, solve(statistics, scale, unit), scale, unit)
    return ratios, total / (count * k)
