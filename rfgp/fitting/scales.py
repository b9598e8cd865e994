"""Noise and output scale of a model, solved through its features."""

import math
from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rfgp.inference import Evidence, FeatureEvidence, LinearModel
from rfgp.inference.linear import Statistics, best_scales, gather, solve
from rfgp.parameters import Values
from rfgp.rows import Block

_REACH, _SHRINKAGE = 1.5, 0.3
"""Of the logarithm of a calibrated noise: how far it may move, and the standard deviation of its prior."""


def solve_scales(model: LinearModel, values: Values, count: float, statistics: Statistics | None = None) -> Values:
    """Return hyperparameters with the noise and the output scale that maximise the likelihood of the model's rows.

    Args:
        model: At these hyperparameters; no row has a noise of its own.
        values: The hyperparameters.
        count: The number of observations.
        statistics: Of the rows, where there are some; None: one pass over them.
    """
    with torch.no_grad():
        gathered = gather(model) if statistics is None else statistics
        quantities = (values.space.quantities[name] for name in ("outputscale", "noise"))
        variances, noises = ((float(low), float(high)) for low, high in (q.bounds for q in quantities))
        best = best_scales(gathered, count, float(model.noise / model.variance), variances, noises)
        return values.replaced({"outputscale": best.variance.log(), "noise": best.noise.log()})


def calibrate_noise(model: LinearModel, values: Values, statistics: Statistics, kept_out: Block) -> Values:
    """Return hyperparameters with the noise that predicts rows best that frequencies were not learned from.

    The likelihood of the rows that they were learned from takes some of their noise for signal, and its noise is too
    small; the leave-one-out density of the others does not. A normal prior keeps the logarithm near that of the
    likelihood where few rows were kept out.

    Args:
        model: At these hyperparameters; no row has a noise of its own.
        values: The hyperparameters.
        statistics: Of all rows.
        kept_out: Some of them.
    """
    start = math.log(float(model.noise))

    def loss(log_noise: float) -> float:
        changed = replace(model, noise=torch.full_like(model.noise, math.exp(log_noise)))
        evidence = FeatureEvidence(changed, solve(statistics, changed.variance, changed.noise))
        far = (log_noise - start) / _SHRINKAGE
        return 0.5 * far**2 - float(leave_one_out_densities(evidence, kept_out, changed.noise).sum())

    with torch.no_grad():
        bounds = (start - _REACH, start + _REACH)
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01})
        low, high = (float(bound) for bound in values.space.quantities["noise"].bounds)
        noise = min(max(float(best.x), math.log(low)), math.log(high))
        return values.replaced({"noise": torch.tensor(noise, dtype=torch.float64)})


def leave_one_out_densities(
    evidence: Evidence,
    rows: Block,
    noise: Tensor,  # 0-d
) -> Tensor:  # (b,)
    """Return the leave-one-out log densities of rows, standardised, summed over outputs, (b,).

    Args:
        evidence: Of these rows and, for features fewer than rows, others.
        rows: The first ones of its rows, or where there are fewer features any.
        noise: 0-d.
    """
    mean, variance = leave_one_out(evidence, rows, noise)
    each = -0.5 * ((rows.targets - mean).square() / variance + (2 * torch.pi * variance).log())
    return each.sum(1)


def leave_one_out(
    evidence: Evidence,
    rows: Block,
    noise: Tensor,  # 0-d
) -> tuple[Tensor, Tensor]:  # (b, k), (b, 1)
    """Return means (b, k) and variances (b, 1) of an observation of each row given all the other rows."""
    if isinstance(evidence, FeatureEvidence):
        mean, variance = evidence.leave_one_out(rows)
    else:
        mean, variance = (value[: len(rows)] for value in evidence.leave_one_out())
    return mean, (variance + rows.observation_noise(noise) - rows.noise_diag(noise))[:, None]
