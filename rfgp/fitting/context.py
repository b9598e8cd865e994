"""The parts that all stages of a fit share: a fit with its rows, and optimal variances of terms and noise."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rfgp import random
from rfgp.blocks import Prior
from rfgp.fitting.maximize import Bounds, Evaluation, LogLikelihood, Plan, marginal_likelihood
from rfgp.likelihoods.real import normal_log_prob
from rfgp.models import FitReport, GPState, mean_and_noise
from rfgp.models.diagnostics import best_noise
from rfgp.models.spec import ModelSpec
from rfgp.models.state import block_scales, variance_paths
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, Rows, repeat_groups, rows_in_memory
from rfgp.solvers import WarmStart
from rfgp.solvers.lowrank import (
    LinearModel,
    LowRankSolver,
    Statistics,
    best_common_scale,
    best_ratios,
    solve,
)

PRECISE_ROWS = 2000
"""The maximum number of rows of a search that always runs in double precision. Rounding would stop its line
searches."""
TOLERANCE = 1e-7
"""The smallest gain of an iteration on many rows, in nats a row."""
HELD_OUT = (0.1, 2000)
"""The share and the maximum number of rows that are held out when frequencies are learned."""


class Split(NamedTuple):
    """A split of the pool for learning frequencies."""

    training: Block
    validation: Block  # these select the step
    test: Block  # these select nothing
    held_out: Block  # validation rows, then test rows


@dataclass(frozen=True, eq=False)
class TermFit:
    """A fit of a model of terms, and the rows of its stages.

    Attributes:
        state: The model state at the present hyperparameters and basis.
        plan: The options of the fit.
        rows: All rows.
        pool: The rows in memory: all, or a random sample.
        order: A random order of the pool (n,).
    """

    state: GPState
    plan: Plan
    rows: Rows
    pool: Block
    order: Tensor

    @classmethod
    def of(cls, state: GPState, plan: Plan) -> "TermFit":
        """Return the fit from a model state.

        Args:
            state: The model state with rows, at its starting values.
            plan: The options of the fit.
        """
        rows = state.require_rows(purpose="a fit")
        pool, seed = rows_in_memory(rows), state.spec.options.seed
        order = torch.randperm(len(pool), generator=random.generator(seed, random.Role.SAMPLE))
        return cls(state, plan, rows, pool, order)

    @property
    def spec(self) -> ModelSpec:
        """The specification of the model."""
        return self.state.spec

    @property
    def values(self) -> ParameterValues:
        """The present hyperparameters."""
        return self.state.hyperparameters

    @cached_property
    def prior(self) -> Prior:
        """The prior at the present hyperparameters."""
        return self.state.prior()

    @property
    def num_features(self) -> int:
        """The number F of dense weights."""
        return self.prior.num_features

    @property
    def free(self) -> list[str]:
        """The names of hyperparameters that are not fixed."""
        return self.values.space.free(self.plan.fixed)

    def at(self, values: ParameterValues) -> Self:
        """Return the fit at other hyperparameters."""
        return replace(self, state=self.state.replace(hyperparameters=values))

    def with_spec(self, spec: ModelSpec) -> Self:
        """Return the fit with another specification, such as one with a new basis."""
        return replace(self, state=self.state.replace(spec=spec))

    def with_new_basis(self) -> Self:
        """Return the fit with a new basis for its hyperparameters, or itself if none depends on them."""
        spec = self.spec.with_new_basis(self.values, self.state.num_observations)
        return self if spec is self.spec else self.with_spec(spec)

    def stage(self, rows: Rows) -> str:
        """Return the name of a search on some rows."""
        return "all rows" if len(rows) == len(self.rows) else f"subset of {len(rows)}"

    def subset(self, size: int) -> Block:
        """Return `size` rows of the pool in random order. Subsets are nested.

        Args:
            size: The number of rows. All rows of the pool are returned if it has no more.
        """
        return self.pool if size >= len(self.pool) else self.pool.take(self.order[:size])

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """The names of all variances, if their common factor has a closed-form optimum.

        The names are dotted. The factor has an optimum in closed form for weights without a residual, given the ratios
        of all variances. No variance may be fixed, have a prior, or be several numbers, such as those of slopes.
        """
        variances, prior = variance_paths(self.spec), self.prior
        is_open = {*variances, "noise"} <= set(self.free) - set(self.values.space.hyperpriors)
        is_open = is_open and all(self.values.raw[name].numel() == 1 for name in variances)
        is_linear = self.spec.is_gaussian and prior.has_weights_only and not prior.dense.has_residual
        return variances if is_linear and is_open and not self.rows.has_fixed_noise else ()

    def solves(self, rows: Rows) -> bool:
        """Return whether the common factor of variances is solved for on some rows.

        Args:
            rows: The rows.
        """
        return bool(self.scales) and self.is_primal(rows)

    def is_primal(self, rows: Rows) -> bool:
        """Return whether all terms are weights, at most as many as the rows."""
        return self.prior.has_weights_only and self.num_features <= len(rows)

    def linear(self, values: ParameterValues, rows: Rows, max_float32_error: float | None = None) -> LinearModel:
        """Return the linear model of rows at some hyperparameters.

        Args:
            values: The hyperparameters.
            rows: The rows.
            max_float32_error: The error above which the model uses double precision. If None, the default of
                `LinearModel`.
        """
        dense = self.spec.prior(values).dense
        model = LinearModel(dense, rows, *mean_and_noise(values))
        return model if max_float32_error is None else replace(model, max_float32_error=max_float32_error)

    def split(self) -> Split:
        """Return the split of the pool for learning frequencies."""
        out = min(HELD_OUT[1], math.ceil(HELD_OUT[0] * len(self.pool)))
        training, kept = self.order[: len(self.order) - out], self.order[len(self.order) - out :]
        groups = repeat_groups(self.pool.inputs.detach().cpu().numpy(), self.pool.targets.detach().cpu().numpy())
        if groups is not None:  # a copy of a held-out row would leak its target
            training = training[~np.isin(groups[training], groups[kept])]
        half = (out + 1) // 2
        return Split(*(self.pool.take(rows) for rows in (training, kept[:half], kept[half:], kept)))


SearchEnd = tuple[TermFit, FitReport]
"""A fit at the end of a search, and the report of the search."""


def in_search_precision(rows: Block) -> Block:
    """Return rows for a search. Few rows are in double precision.

    Args:
        rows: The rows, in any precision.
    """
    return replace(rows.standardized_block, inputs=rows.inputs.double()) if len(rows) <= PRECISE_ROWS else rows


def left_out_log_prob(
    moments: tuple[Tensor, Tensor],  # (b, k), (b,)
    rows: Block,
    noise: Tensor,  # 0-d
) -> Tensor:  # (b,)
    """Return the standardized leave-one-out log densities of rows, (b,).

    Args:
        moments: The mean and variance of each row given all others, as `Inference.leave_one_out` returns them.
        rows: The rows.
        noise: The variance of one observation, 0-d.
    """
    return observation_log_prob(rows, *of_observations(moments, rows, noise)).sum(1)


def observation_log_prob(
    rows: Block,
    mean: Tensor,  # (b, k)
    variance: Tensor,  # (b, 1) or (k,)
) -> Tensor:  # (b, k)
    """Return the mean log densities (b, k) of the observations of rows.

    Args:
        rows: The rows, with k outputs. A row may represent several observations.
        mean: The predicted mean of an observation, (b, k).
        variance: The predicted variance of an observation, (b, 1) or (k,).
    """
    log_prob = normal_log_prob(rows.targets, mean, variance)
    if rows.replicate_sum_of_squares is None:
        return log_prob
    return log_prob - 0.5 * rows.replicate_sum_of_squares / (rows.counts()[:, None] * variance)


def of_observations(
    moments: tuple[Tensor, Tensor],  # (b, k), (b,)
    rows: Block,
    noise: Tensor,  # 0-d
) -> tuple[Tensor, Tensor]:  # (b, k), (b, 1)
    """Return the mean (b, k) and variance (b, 1) of one observation of each row.

    Args:
        moments: The mean (b, k) and variance (b,) of the mean of the observations of each row.
        rows: The rows.
        noise: The variance of one observation, 0-d.
    """
    mean, variance = moments
    return mean, (variance + rows.observation_noise(noise) - rows.noise_diag(noise))[:, None]


# --- Optimal variances of terms and noise from statistics of the rows -----------------------------

_LOG_RATIO, _LOG_RATIO_OF_SUM, _LOG_RATIO_OF_TERM = (-27.0, 9.0), (-18.0, 9.0), (-14.0, 10.0)
"""The bounds of log(noise / variance of the first term), for one term and for several, and of log(variance / variance
of the first term), while the common factor is solved for."""
_RATIOS = -8.0, 2.0, 41
"""The log10 of the least and the largest noise, relative to the largest eigenvalue, and the number of noises."""
_MAX_CHANGE, _SHRINKAGE = 1.5, 0.3
"""The largest change of the logarithm of a calibrated noise, and the standard deviation of its prior.

Without calibration ten tables of 300 and 900 rows lose 0.002 and 0.019 nats a new row in the mean."""


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

    See `rfgp.models.diagnostics.best_noise`. If the two cannot be solved for, it is the likelihood at the given values.

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
