"""The first pass over the rows of a linear model: all that the posterior of its weights needs."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.linalg import cholesky
from rfgp.rows.blocks import Sums
from rfgp.solvers.lowrank.model import LinearModel, is_local, summed

TILE = 256
"""The number of columns of a tile of a symmetric product."""


class Statistics(NamedTuple):
    """Sums over the rows, for features phi without scales; P = noise / D is 1 if a row counts once without noise."""

    gram: Tensor  # (F, F) phi^T P phi
    target: Tensor  # (F, k) phi^T P (y - mean)
    square: Tensor  # 0-d, tr (y - mean)^T P (y - mean)
    rows: Tensor  # 0-d, their number
    observations: Tensor  # 0-d, their number, repetitions included


class WeightSolution(NamedTuple):
    """The posterior of the weights w ~ N(0, I) given the rows, with the precision A = I + Phi^T D^-1 Phi."""

    factor: Tensor  # (F, F) the lower Cholesky factor of A
    weights: Tensor  # (F, k)


def add_symmetric_product(
    total: Tensor,  # (F, F)
    phi: Tensor,  # (b, F)
) -> None:
    """Add phi^T phi to the upper triangle of `total`, in tiles: half the work of a product, on any device.

    The part below the tiles of the diagonal is left alone; `symmetrized` fills it.
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


def accumulate_gram(model: LinearModel, report: Callable[[int], None] | None = None) -> Statistics:
    """Return the statistics of all rows, in one pass.

    Args:
        model: With the rows.
        report: Called after each block with their number so far, unless rows lie on other machines. If None, it is not.
    """
    reports = report is not None and is_local(model.rows)
    gram, *others = summed(model, partial(_sums, report=report) if reports else _sums)
    return Statistics(symmetrized(gram), *others)


def _sums(model: LinearModel, report: Callable[[int], None] | None = None) -> Sums:
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
        if report is not None:
            report(done)
    return gram, target, square, rows, observations


def solve(statistics: Statistics, scale: Tensor, noise: Tensor) -> WeightSolution:
    """Return the posterior of the weights for prior standard deviations s, 0-d or (F,), and the noise, 0-d."""
    matrix = (scale * statistics.gram) * (scale / noise).reshape(-1, 1)
    matrix.diagonal().add_(1)
    factor = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    target = (scale / noise).reshape(-1, 1) * statistics.target
    return WeightSolution(factor, torch.cholesky_solve(target, factor))


def quadratic_form(statistics: Statistics, solution: WeightSolution, scale: Tensor, noise: Tensor) -> Tensor:
    """Return (y - mean)^T C^-1 (y - mean), summed over outputs, 0-d.

    It is evaluated at the weights u = s w of the solution, where an error of u changes it in the second order only.
    """
    gram, target, square = statistics[:3]
    u = scale.reshape(-1, 1) * solution.weights
    residual = square - 2 * (target * u).sum() + (u * (gram @ u)).sum()
    return residual.clamp_min(0) / noise + solution.weights.square().sum()
