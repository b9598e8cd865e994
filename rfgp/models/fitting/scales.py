"""Noise and output scale of a model, solved through its features."""

import math
from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rfgp.inference import ArrayRows, LinearModel, Posterior, PrimalPosterior
from rfgp.inference.linear import Statistics, gather, solve
from rfgp.inference.scales import best_scales
from rfgp.parameters import Hyperparameters

_REACH, _SHRINKAGE = 1.5, 0.3
"""Of the logarithm of a calibrated noise: how far it may move, and the standard deviation of its prior."""


def solve_scales(
    model: LinearModel, known: Hyperparameters, count: float, statistics: Statistics | None = None
) -> None:
    """Set noise and output scale to what maximises the likelihood of the model's rows, in place.

    Args:
        model: At the present hyperparameters; no row knows a noise of its own.
        known: The hyperparameters.
        count: The number of observations.
        statistics: Of the rows, where they are known; None: one pass over them.
    """
    with torch.no_grad():
        found = gather(model) if statistics is None else statistics
        quantities = (known.quantities[name] for name in ("outputscale", "noise"))
        variances, noises = ((float(low), float(high)) for low, high in (q.bounds for q in quantities))
        best = best_scales(found, count, float(model.noise / model.variance), variances, noises)
        known.raw["outputscale"].copy_(best.variance.log())
        known.raw["noise"].copy_(best.noise.log())


def calibrate_noise(model: LinearModel, known: Hyperparameters, statistics: Statistics, kept_out: ArrayRows) -> None:
    """Set the noise to what predicts rows best that frequencies were not learned from, in place.

    The likelihood of the rows that they were learned from takes some of their noise for signal, and its noise is too
    small; the leave-one-out density of the others does not. A normal prior keeps the logarithm near that of the
    likelihood where few rows were kept out.

    Args:
        model: At the present hyperparameters; no row knows a noise of its own.
        known: The hyperparameters.
        statistics: Of all rows.
        kept_out: Some of them.
    """
    start = math.log(float(model.noise))

    def loss(log_noise: float) -> float:
        changed = replace(model, noise=torch.full_like(model.noise, math.exp(log_noise)))
        found = PrimalPosterior(changed, solve(statistics, changed.variance, changed.noise))
        far = (log_noise - start) / _SHRINKAGE
        return 0.5 * far**2 - float(leave_one_out_densities(found, kept_out, changed.noise).sum())

    with torch.no_grad():
        bounds = (start - _REACH, start + _REACH)
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01})
        low, high = (float(bound) for bound in known.quantities["noise"].bounds)
        known.raw["noise"].fill_(min(max(float(best.x), math.log(low)), math.log(high)))


def leave_one_out_densities(
    found: Posterior,
    rows: ArrayRows,
    noise: Tensor,  # 0-d
) -> Tensor:  # (b,)
    """Return the leave-one-out log densities of rows, standardised, summed over outputs, (b,).

    Args:
        found: The posterior given these rows and, for features fewer than rows, others.
        rows: The first ones of its rows, or where there are fewer features any.
        noise: 0-d.
    """
    mean, variance = leave_one_out(found, rows, noise)
    each = -0.5 * ((rows.targets - mean).square() / variance + (2 * torch.pi * variance).log())
    return each.sum(1)


def leave_one_out(
    found: Posterior,
    rows: ArrayRows,
    noise: Tensor,  # 0-d
) -> tuple[Tensor, Tensor]:  # (b, k), (b, 1)
    """Return means (b, k) and variances (b, 1) of an observation of each row given all the other rows."""
    if isinstance(found, PrimalPosterior):
        mean, variance = found.leave_one_out(rows)
    else:
        mean, variance = (value[: len(rows)] for value in found.leave_one_out())
    (block,) = rows.blocks(len(rows))
    return mean, (variance + block.noise(noise) - block.spread(noise))[:, None]
