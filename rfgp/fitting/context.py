"""The common parts of all stages of a fit through features: rows, linear models, and solved noise and scale."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rfgp import random
from rfgp.couplings import Frequencies
from rfgp.fitting.maximize import Plan
from rfgp.inference.distributions import normal_log_density
from rfgp.parameters import Values
from rfgp.regression import FeatureFamily, InducingFamily, Regression, mean_and_noise
from rfgp.rows import Block, Rows, pool_of, repeat_groups
from rfgp.solvers import Inference
from rfgp.solvers.lowrank import LinearModel, LowRankSolver, Statistics, accumulate_gram, best_scales, solve

KEPT_OUT = (0.1, 2000)
"""The share of the rows that is held out of learning frequencies, and the most rows."""
_REACH, _SHRINKAGE = 1.5, 0.3
"""The reach of the logarithm of a calibrated noise, and the standard deviation of its prior."""


class HeldOut(NamedTuple):
    """A division of the pool for learning frequencies."""

    learned_from: Block
    chosen_by: Block  # validation rows, which select the step
    judged_by: Block  # test rows, which select nothing
    kept_out: Block  # both of these


@dataclass(frozen=True, eq=False)
class FeatureFit:
    """The fit of a regression through features, and the rows of its stages.

    Attributes:
        regression: The regression at its starting values.
        plan: The options of the fit.
        family: The family of the regression.
        rows: All rows.
        pool: The rows in memory: all, or a random sample.
        order: A random order of the pool (n,).
        solves_scales: Whether noise and output scale may be solved for.
    """

    regression: Regression
    plan: Plan
    family: FeatureFamily | InducingFamily
    rows: Rows
    pool: Block
    order: Tensor
    solves_scales: bool

    @classmethod
    def of(cls, regression: Regression, plan: Plan) -> "FeatureFit":
        """Return the fit of a regression."""
        family, rows = regression.family, regression.needed_rows("a fit")
        assert isinstance(family, FeatureFamily | InducingFamily)
        pool = pool_of(rows)
        order = torch.randperm(len(pool), generator=random.generator(family.options.seed, random.Role.SAMPLE))
        tied = {"noise", "outputscale"} & {*plan.fixed, *(family.options.priors or {})}
        solves = family.is_normal and not tied and not rows.has_fixed_noise and not _has_residual(family)
        return cls(regression, plan, family, rows, pool, order, solves)

    @property
    def free(self) -> list[str]:
        """The names of hyperparameters that are not fixed."""
        return self.regression.hyperparameters.space.free(self.plan.fixed)

    @property
    def feature_family(self) -> FeatureFamily:
        """The family, if it has frequencies."""
        assert isinstance(self.family, FeatureFamily)
        return self.family

    def with_frequencies(self, frequencies: Frequencies) -> "FeatureFit":
        """Return the fit through other frequencies."""
        return self.through(self.feature_family.with_frequencies(frequencies))

    def through(self, family: FeatureFamily | InducingFamily) -> "FeatureFit":
        """Return the fit through other features."""
        return replace(self, family=family, regression=self.regression.replace(family=family))

    def subset(self, size: int) -> Block:
        """Return so many rows of the pool in random order, which include those of smaller subsets."""
        return self.pool if size >= len(self.pool) else self.pool.take(self.order[:size])

    def held_out(self) -> HeldOut:
        """Return the division of the pool for learning frequencies."""
        out = min(KEPT_OUT[1], math.ceil(KEPT_OUT[0] * len(self.pool)))
        learned_from, kept = self.order[: len(self.order) - out], self.order[len(self.order) - out :]
        groups = repeat_groups(self.pool.inputs.detach().cpu().numpy(), self.pool.targets.detach().cpu().numpy())
        if groups is not None:  # a copy of a held-out row would leak its target
            learned_from = learned_from[~np.isin(groups[learned_from], groups[kept])]
        half = (out + 1) // 2
        return HeldOut(*(self.pool.take(rows) for rows in (learned_from, kept[:half], kept[half:], kept)))

    def solves(self, rows: Rows) -> bool:
        """Whether the output scale is solved for on some rows."""
        return self.solves_scales and self.is_primal(rows)

    def is_primal(self, rows: Rows) -> bool:
        """Whether features are at most as many as some rows, so that matrices are F x F."""
        return self.family.num_features <= len(rows)

    def linear(self, values: Values, rows: Rows) -> LinearModel:
        """Return the linear model of rows at some hyperparameters."""
        return LinearModel(self.family.prior(values).dense, rows, *mean_and_noise(values))

    def infer(self, values: Values, rows: Rows) -> Inference:
        """Return the inference from rows at some hyperparameters."""
        return self.regression.replace(hyperparameters=values).infer(rows)


def _has_residual(family: FeatureFamily | InducingFamily) -> bool:
    """Return whether the likelihood depends on noise and output scale in more than their ratio and common scale."""
    return isinstance(family, InducingFamily) and family.options.diagonal is not None


def solve_scales(model: LinearModel, values: Values, count: float, statistics: Statistics | None = None) -> Values:
    """Return hyperparameters with the noise and the output scale that maximise the likelihood of the model's rows.

    Args:
        model: The model at these hyperparameters. No row has a noise of its own.
        values: The hyperparameters.
        count: The number of observations.
        statistics: The statistics of the rows. If None, they take one pass.
    """
    with torch.no_grad():
        found = accumulate_gram(model) if statistics is None else statistics
        quantities = (values.space.quantities[name] for name in ("outputscale", "noise"))
        variances, noises = ((float(low), float(high)) for low, high in (q.bounds for q in quantities))
        best = best_scales(found, count, float(model.noise / model.variance), variances, noises)
        return values.replaced({"outputscale": best.variance.log(), "noise": best.noise.log()})


def calibrate_noise(model: LinearModel, values: Values, statistics: Statistics, kept_out: Block) -> Values:
    """Return hyperparameters with the noise that predicts held-out rows best.

    The likelihood of the rows that frequencies were learned from takes some of their noise for signal, so that its
    noise is too small. The leave-one-out density of held-out rows does not. A Gaussian prior keeps the logarithm near
    that of the likelihood.

    Args:
        model: The model at these hyperparameters. No row has a noise of its own.
        values: The hyperparameters.
        statistics: The statistics of all rows.
        kept_out: The held-out rows, which are among them.
    """
    start = math.log(float(model.noise))

    def loss(log_noise: float) -> float:
        changed = replace(model, noise=torch.full_like(model.noise, math.exp(log_noise)))
        solver = LowRankSolver(changed, solve(statistics, changed.scale, changed.noise))
        densities = left_out_densities(solver.leave_one_out(kept_out), kept_out, changed.noise)
        return 0.5 * ((log_noise - start) / _SHRINKAGE) ** 2 - float(densities.sum())

    with torch.no_grad():
        bounds = (start - _REACH, start + _REACH)
        best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01})
        low, high = (float(bound) for bound in values.space.quantities["noise"].bounds)
        noise = min(max(float(best.x), math.log(low)), math.log(high))
        return values.replaced({"noise": torch.tensor(noise, dtype=torch.float64)})


def left_out_densities(
    moments: tuple[Tensor, Tensor],  # (b, k), (b,)
    rows: Block,
    noise: Tensor,  # 0-d
) -> Tensor:  # (b,)
    """Return the leave-one-out log densities of rows, standardised, summed over outputs, (b,).

    Args:
        moments: The mean and variance of each row given all others, as `Inference.leave_one_out` returns them.
        rows: The rows.
        noise: The variance of one observation, 0-d.
    """
    mean, variance = of_observations(moments, rows, noise)
    return normal_log_density(rows.targets, mean, variance).sum(1)


def of_observations(
    moments: tuple[Tensor, Tensor],  # (b, k), (b,)
    rows: Block,
    noise: Tensor,  # 0-d
) -> tuple[Tensor, Tensor]:  # (b, k), (b, 1)
    """Return the mean (b, k) and variance (b, 1) of one observation of each row, given those of their mean."""
    mean, variance = moments
    return mean, (variance + rows.observation_noise(noise) - rows.noise_diag(noise))[:, None]
