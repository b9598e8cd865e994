"""Variances of terms and the noise, solved for from statistics of the rows."""

import math
from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar

from rfgp.fitting.context import TermFit, left_out_densities
from rfgp.fitting.maximize import Bounds, Density, Evaluation, plain_density
from rfgp.parameters import Values
from rfgp.regression import mean_and_noise
from rfgp.regression.spec import block_scales, variance_paths
from rfgp.rows import Block
from rfgp.solvers import WarmStart
from rfgp.solvers.lowrank import (
    LinearModel,
    LowRankSolver,
    Statistics,
    best_common_scale,
    best_ratios,
    best_scales,
    solve,
)

_LOG_RATIO, _LOG_RATIO_OF_SUM, _LOG_RATIO_OF_TERM = (-27.0, 9.0), (-18.0, 9.0), (-14.0, 10.0)
"""The bounds of log(noise / variance of the first term) while their common factor is solved for, of one term and of
several, and of log(variance / variance of the first term)."""
_RATIOS = -8.0, 2.0, 41
"""The decimal logarithms of the least and the largest noise, in largest eigenvalues, and the number of noises."""
_REACH, _SHRINKAGE = 1.5, 0.3
"""The reach of the logarithm of a calibrated noise, and the standard deviation of its prior."""


def density_of(fit: TermFit, rows: Block) -> Density:
    """Return the log density of rows, with the common factor of all variances and the noise solved for if possible.

    A search then varies their ratios to the variance of the first term, which keeps the value of the start.
    """
    if not fit.solves(rows):
        return plain_density(fit.regression, rows)
    first, start = fit.scales[0], fit.values

    def density(values: Values, warm_start: WarmStart = ()) -> Evaluation:
        initial = values.replaced({first: start.raw[first]})
        with torch.no_grad():
            c, solution = best_common_scale(fit.linear(initial.detached(), rows), rows.count)
        wanted = [name for name, raw in values.raw.items() if raw.requires_grad]
        reached = initial.shifted(**dict.fromkeys((*fit.scales, "noise"), c.log())).leaves(wanted)
        return Evaluation(LowRankSolver(fit.linear(reached, rows), solution).log_marginal_likelihood(), reached)

    return density


def can_profile(fit: TermFit, rows: Block) -> bool:
    """Return whether the noise and the common factor of all terms may be solved for with matrices of rows."""
    names = variance_paths(fit.spec)
    is_open = {*names, "noise"} <= set(fit.free) - set(fit.values.space.hyperpriors)
    return bool(names) and is_open and fit.spec.is_gaussian and rows.is_uniform


def profiled_density(fit: TermFit, rows: Block) -> Density:
    """Return the log density of rows under matrices of all rows, the noise and the common factor of terms solved for.

    With the eigenvalues l of their covariance K, -2 log density is N k log q(r) + k sum log(l + r) and a constant, with
    q(r) = y^T (K + r)^-1 y, at the noise r c, the factor c and c = q / (N k). If they cannot be solved for, it is the
    density at the values.
    """
    if not can_profile(fit, rows):
        return plain_density(fit.regression, rows)
    names = variance_paths(fit.spec)

    def density(values: Values, warm_start: WarmStart = ()) -> Evaluation:
        with torch.no_grad():
            mean, _ = mean_and_noise(values)
            own, vectors = torch.linalg.eigh(fit.spec.prior(values).kernel(rows.inputs, rows.inputs))
            squares = (vectors.mT @ (rows.targets.double() - mean)).square()
            size, k = squares.shape
            ratios = own.max() * torch.logspace(*_RATIOS, dtype=own.dtype)
            spectra = own.clamp_min(0) + ratios[:, None]
            common = (squares.sum(1) / spectra).sum(1) / (size * k)
            totals = size * k * (common.log() + 1 + math.log(2 * math.pi)) + k * spectra.log().sum(1)
            best = totals.argmin()
            reached = values.shifted(**dict.fromkeys(names, common[best].log()))
            reached = reached.replaced({"noise": (common[best] * ratios[best]).log()})
        return Evaluation(-0.5 * totals[best], reached.clamped((*names, "noise"))[0])

    return density


def noise_alone(fit: TermFit, rows: Block) -> float:
    """Return the log density of rows under the mean and the best noise, without terms, and of the hyperpriors."""
    with torch.no_grad():
        mean, _ = mean_and_noise(fit.values)
        variances = (rows.targets.double() - mean).square().mean(0).clamp_min(1e-300)
        total = -0.5 * len(rows) * (variances.mean().log() + 1 + math.log(2 * math.pi)) * rows.num_outputs
        return float(total + fit.values.log_hyperprior())


def ratio_bounds(fit: TermFit) -> Bounds:
    """Return bounds of raw values while the variance of the first term is held."""
    first, *others = fit.scales
    scale = float(fit.values.raw[first])
    ratios = dict.fromkeys(others, _LOG_RATIO_OF_TERM) | {"noise": _LOG_RATIO_OF_SUM if others else _LOG_RATIO}
    return {name: (scale + low, scale + high) for name, (low, high) in ratios.items()}


def solve_scales(fit: TermFit, model: LinearModel, statistics: Statistics) -> Values:
    """Return hyperparameters with the noise and the variances of terms that maximize the likelihood of a model's rows.

    Args:
        fit: The fit at these hyperparameters. Its variances are free.
        model: The linear model of the rows, none of which has a noise of its own.
        statistics: The statistics of the rows.
    """
    values, names = fit.values, block_scales(fit.spec, fit.prior)
    bounds = (values.space.quantities[name].bounds for name in (*names, "noise"))
    limits, count = [(float(low), float(high)) for low, high in bounds], model.rows.count
    with torch.no_grad():
        if len(names) == 1:
            ratio = float(model.noise / model.variance)
            best = best_scales(statistics, count, ratio, limits[0], limits[1])
            return values.replaced({names[0]: best.variance.log(), "noise": best.noise.log()})
        ratios, common = best_ratios(statistics, model.weights, count, model.variances / model.noise)
        found = {name: (common * ratio).clamp(*ends) for name, ratio, ends in zip(names, ratios, limits, strict=False)}
        found["noise"] = common.clamp(*limits[-1])
        return values.replaced({name: value.log() for name, value in found.items()})


def calibrate_noise(model: LinearModel, values: Values, statistics: Statistics, held_out: Block) -> Values:
    """Return hyperparameters with the noise that predicts held-out rows best.

    The likelihood of the rows that frequencies were learned from takes some of their noise for signal, so that its
    noise is too small. The leave-one-out density of held-out rows does not. A Gaussian prior keeps the logarithm near
    that of the likelihood.

    Args:
        model: The model at these hyperparameters. No row has a noise of its own.
        values: The hyperparameters.
        statistics: The statistics of all rows.
        held_out: The held-out rows, which are among them.
    """
    start = math.log(float(model.noise))

    def loss(log_noise: float) -> float:
        changed = replace(model, noise=torch.full_like(model.noise, math.exp(log_noise)))
        solver = LowRankSolver(changed, solve(statistics, changed.scale, changed.noise))
        densities = left_out_densities(solver.leave_one_out(held_out), held_out, changed.noise)
        return 0.5 * ((log_noise - start) / _SHRINKAGE) ** 2 - float(densities.sum())

    with torch.no_grad():
        bounds = (start - _REACH, start + _REACH)
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01})
        low, high = (float(bound) for bound in values.space.quantities["noise"].bounds)
        noise = min(max(float(best.x), math.log(low)), math.log(high))
        return values.replaced({"noise": torch.tensor(noise, dtype=torch.float64)})
