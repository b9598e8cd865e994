"""Noise and output scale from the statistics of the features, without another pass over the rows.

Both scale the covariance s^2 (phi phi^T + l P^-1), l = noise / s^2 (P as in `rfgp.inference.primal`). With A = I +
phi^T P phi / l and N observations of k outputs, repetitions counted,

    -2 log density = Q / s^2 + k (log|A| + N log(2 pi l s^2)) + terms without either,
    Q = min_u (y - phi u)^T P (y - phi u) / l + u^T u,

so for given l the best s^2 is Q / (N k), and one variable is left. Q is computed at the u that the factor of A gives:
a small error of u changes it in the second order only.
"""

import math
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rfgp.inference.linear import LinearModel, Solved, Statistics, gather, solve


class Scales(NamedTuple):
    """The best noise and prior variance of the weights, 0-d, and the posterior of the weights with them."""

    variance: Tensor
    noise: Tensor
    solved: Solved


def quadratic(statistics: Statistics, solved: Solved, variance: Tensor, noise: Tensor) -> Tensor:
    """Return (y - mean)^T C^-1 (y - mean), summed over outputs, 0-d."""
    gram, target, square = statistics
    u = variance.sqrt() * solved.weights
    residual = square - 2 * (target * u).sum() + (u * (gram @ u)).sum()
    return residual.clamp_min(0) / noise + solved.weights.square().sum()


def best_common_scale(model: LinearModel, count: float) -> tuple[Tensor, Solved]:
    """Return the factor c (0-d) by which variance and noise maximise the likelihood, and the weights' posterior then.

    Args:
        model: No row knows a noise of its own.
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
        statistics: Of rows of which none knows a noise of its own.
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
        found = minimize_scalar(lambda v: at(v)[0], bounds=(left, right), method="bounded", options={"xatol": 1e-5})
        inside = left + 0.01 < found.x < right - 0.01
        if inside or (left == low and right == high) or reach > 40:
            break
        middle, reach = float(found.x), 2 * reach
    _, best = at(float(found.x))
    return Scales(best.variance, best.noise, solve(statistics, best.variance, best.noise))
