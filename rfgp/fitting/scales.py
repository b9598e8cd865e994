"""Optimal variances of terms and noise from statistics of the rows."""

import math
from dataclasses import replace

import torch
from scipy.optimize import minimize_scalar

from rfgp.fitting.context import TermFit, left_out_log_prob
from rfgp.fitting.maximize import Bounds, Evaluation, LogLikelihood, marginal_likelihood
from rfgp.models import mean_and_noise
from rfgp.models.diagnostics import best_noise
from rfgp.models.state import block_scales, variance_paths
from rfgp.parameters import ParameterValues
from rfgp.rows import Block
from rfgp.solvers import WarmStart
from rfgp.solvers.lowrank import (
    LinearModel,
    LowRankSolver,
    Statistics,
    best_common_scale,
    best_ratios,
    solve,
)

_LOG_RATIO, _LOG_RATIO_OF_SUM, _LOG_RATIO_OF_TERM = (-27.0, 9.0), (-18.0, 9.0), (-14.0, 10.0)
"""The bounds of log(noise / variance of the first term), for one term and for several, and of log(variance / variance
of the first term), while the common factor is solved for."""
_RATIOS = -8.0, 2.0, 41
"""The log10 of the least and the largest noise, relative to the largest eigenvalue, and the number of noises."""
_MAX_CHANGE, _SHRINKAGE = 1.5, 0.3
"""The largest change of the logarithm of a calibrated noise, and the standard deviation of its prior."""


def scale_profile_likelihood(fit: TermFit, rows: Block) -> LogLikelihood:
    """Return the likelihood of rows, maximized over a common factor of all variances.

    If the optimal factor has no closed form, it is not maximized.

    A search then varies the ratios to the variance of the first term, which stays at its starting value.

    Args:
        fit: The fit.
        rows: The rows.
    """
    if not fit.solves(rows):
        return marginal_likelihood(fit.state, rows)
    first, start = fit.scales[0], fit.values

    def log_likelihood(values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
        initial = values.replaced({first: start.raw[first]})
        with torch.no_grad():
            c, solution = best_common_scale(fit.linear(initial.detached(), rows), rows.count)
        wanted = [name for name, raw in values.raw.items() if raw.requires_grad]
        reached = initial.shifted(**dict.fromkeys((*fit.scales, "noise"), c.log())).leaves(wanted)
        return Evaluation(LowRankSolver(fit.linear(reached, rows), solution).log_marginal_likelihood(), reached)

    return log_likelihood


def can_profile(fit: TermFit, rows: Block) -> bool:
    """Return whether dense algebra can solve for noise and a common factor of terms.

    Args:
        fit: The fit.
        rows: The rows.
    """
    names = variance_paths(fit.spec)
    is_open = {*names, "noise"} <= set(fit.free) - set(fit.values.space.hyperpriors)
    return bool(names) and is_open and fit.spec.is_gaussian and rows.is_homoscedastic


def noise_profile_likelihood(fit: TermFit, rows: Block) -> LogLikelihood:
    """Return the likelihood of rows, maximized over noise and a common factor.

    See `rfgp.models.spec.best_noise`. If the two cannot be solved for, it is the likelihood at the given values.

    Args:
        fit: The fit.
        rows: The rows.
    """
    if not can_profile(fit, rows):
        return marginal_likelihood(fit.state, rows)
    names = variance_paths(fit.spec)

    def log_likelihood(values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
        with torch.no_grad():
            mean, _ = mean_and_noise(values)
            eigenvalues, vectors = torch.linalg.eigh(fit.spec.prior(values).kernel(rows.inputs, rows.inputs))
            squares = (vectors.mT @ (rows.targets.double() - mean)).square()
            likelihood, common, ratio = best_noise(eigenvalues, squares, _RATIOS)
            reached = values.shifted(**dict.fromkeys(names, common.log()))
            reached = reached.replaced({"noise": (common * ratio).log()})
        return Evaluation(likelihood, reached.clamped((*names, "noise"))[0])

    return log_likelihood


def noise_only_log_likelihood(fit: TermFit, rows: Block) -> float:
    """Return the log posterior of the mean and the best noise, without any term.

    Args:
        fit: The fit.
        rows: The rows.

    Returns:
        The log posterior in standardized units, in nats.
    """
    with torch.no_grad():
        mean, _ = mean_and_noise(fit.values)
        variances = (rows.targets.double() - mean).square().mean(0).clamp_min(1e-300)
        total = -0.5 * len(rows) * (variances.mean().log() + 1 + math.log(2 * math.pi)) * rows.num_outputs
        return float(total + fit.values.log_hyperprior())


def ratio_bounds(fit: TermFit) -> Bounds:
    """Return bounds of raw values while the variance of the first term is fixed.

    Args:
        fit: The fit.

    Returns:
        The lower and upper bounds of raw values, by the dotted name of a variance or "noise".
    """
    first, *others = fit.scales
    scale = float(fit.values.raw[first])
    ratios = dict.fromkeys(others, _LOG_RATIO_OF_TERM) | {"noise": _LOG_RATIO_OF_SUM if others else _LOG_RATIO}
    return {name: (scale + low, scale + high) for name, (low, high) in ratios.items()}


def solve_scales(fit: TermFit, model: LinearModel, statistics: Statistics) -> ParameterValues:
    """Return hyperparameters with the most likely noise and variances of terms.

    Args:
        fit: The fit at these hyperparameters. Its variances are free.
        model: The linear model of the rows. No row has a noise of its own.
        statistics: The statistics of the rows.
    """
    values, names = fit.values, block_scales(fit.spec, fit.prior)
    bounds = (values.space.quantities[name].bounds for name in (*names, "noise"))
    limits, count = [(float(low), float(high)) for low, high in bounds], model.rows.count
    with torch.no_grad():
        ratios, common = best_ratios(statistics, model.weights, count, model.variances / model.noise, limits)
        best_variances = {
            name: (common * ratio).clamp(*ends) for name, ratio, ends in zip(names, ratios, limits, strict=False)
        }
        best_variances["noise"] = common.clamp(*limits[-1])
        return values.replaced({name: value.log() for name, value in best_variances.items()})


def calibrate_noise(
    model: LinearModel, values: ParameterValues, statistics: Statistics, held_out: Block
) -> ParameterValues:
    """Return hyperparameters with the noise that predicts held-out rows best.

    Learned frequencies fit some of the noise of the training rows, so their likelihood underestimates the noise. The
    leave-one-out log density of held-out rows does not. A Gaussian prior keeps the log noise near its estimate.

    Args:
        model: The model at these hyperparameters. No row has a noise of its own.
        values: The hyperparameters.
        statistics: The statistics of all rows, including the held-out ones.
        held_out: The held-out rows.
    """
    start = math.log(float(model.noise))

    def loss(log_noise: float) -> float:
        changed = replace(model, noise=torch.full_like(model.noise, math.exp(log_noise)))
        solver = LowRankSolver(changed, solve(statistics, changed.scale, changed.noise))
        log_prob = left_out_log_prob(solver.leave_one_out(held_out), held_out, changed.noise)
        return 0.5 * ((log_noise - start) / _SHRINKAGE) ** 2 - float(log_prob.sum())

    with torch.no_grad():
        bounds = (start - _MAX_CHANGE, start + _MAX_CHANGE)
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01})
        low, high = (float(bound) for bound in values.space.quantities["noise"].bounds)
        noise = min(max(float(best.x), math.log(low)), math.log(high))
        return values.replaced({"noise": torch.tensor(noise, dtype=torch.float64)})
