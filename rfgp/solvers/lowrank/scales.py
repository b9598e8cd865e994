"""The noise and the common prior scale that maximise the likelihood of a linear model, by the statistics of one pass.

Both scale the covariance s^2 (phi phi^T + l P^-1), l = noise / s^2 (P as in `Statistics`, prior scales relative to s
within phi). With A = I + phi^T P phi / l and N observations of k outputs, repetitions counted,

    -2 log density = Q / s^2 + k (log|A| + N log(2 pi l s^2)) + terms without either,
    Q = min_u (y - phi u)^T P (y - phi u) / l + u^T u,

so for given l the best s^2 is Q / (N k), and one variable is left.
"""

import math
from typing import NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rfgp.solvers.lowrank.model import LinearModel
from rfgp.solvers.lowrank.statistics import Statistics, WeightSolution, accumulate_gram, quadratic_form, solve

_LEAST_RATIO, _WIDEST = 1e-12, 40.0
"""The least noise / variance of a search, and the reach in its logarithm beyond which the search ends."""


class Scales(NamedTuple):
    """The best noise and prior variance of the weights, 0-d, and the posterior of the weights with them."""

    variance: Tensor
    noise: Tensor
    solution: WeightSolution


def best_common_scale(model: LinearModel, count: float) -> tuple[Tensor, WeightSolution]:
    """Return the factor c (0-d) of variances and noise that maximises the likelihood, and the posterior with it.

    Args:
        model: A model none of whose rows has a noise of its own.
        count: The number N of observations.
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
    """Return the noise and the variance of one term that maximise the likelihood; at a bound, for their best ratio.

    Args:
        statistics: Those of rows none of which has a noise of its own.
        count: The number N of observations.
        ratio: The noise / variance at which the search starts.
        variance_bounds: The least and the largest variance.
        noise_bounds: The least and the largest noise.
    """
    one, k = torch.ones_like(statistics.square), statistics.target.shape[1]

    def at(log_ratio: float) -> tuple[float, Scales]:
        relative = one * math.exp(log_ratio)
        solution = solve(statistics, one, relative)
        total = quadratic_form(statistics, solution, one, relative)
        variance = (total / (count * k)).clamp(*variance_bounds)
        noise = (relative * variance).clamp(*noise_bounds)
        determinant = 2 * solution.factor.diagonal().log().sum()
        value = total / variance + k * (determinant + count * (relative.log() + variance.log()))
        return float(value) / count, Scales(variance, noise, solution)

    low = math.log(max(noise_bounds[0] / variance_bounds[1], _LEAST_RATIO))
    high = math.log(noise_bounds[1] / variance_bounds[0])
    middle, reach = min(max(math.log(ratio), low), high), 3.0
    while True:
        left, right = max(low, middle - reach), min(high, middle + reach)
        best = minimize_scalar(lambda v: at(v)[0], bounds=(left, right), method="bounded", options={"xatol": 1e-5})
        inside = left + 0.01 < best.x < right - 0.01
        if inside or (left == low and right == high) or reach > _WIDEST:
            break
        middle, reach = float(best.x), 2 * reach
    _, scales = at(float(best.x))
    return scales._replace(solution=solve(statistics, scales.variance.sqrt(), scales.noise))
