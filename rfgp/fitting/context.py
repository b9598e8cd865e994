"""What all stages of a fit through features have in common: rows, models of them, noise and scale solved on them."""

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
from rfgp.inference import Evidence, FeatureEvidence, FeaturePrior, LinearModel
from rfgp.inference.laws import normal_log_density
from rfgp.inference.linear import Statistics, best_scales, gather, solve
from rfgp.parameters import Values
from rfgp.regression import FeatureFamily, InducingFamily, Regression, mean_and_noise
from rfgp.rows import Block, Rows, SourceRows, gathered, repeat_groups

KEPT_OUT = (0.1, 2000)
"""The share of the rows that is kept out of learning frequencies, and at most how many."""
_REACH, _SHRINKAGE = 1.5, 0.3
"""Of the logarithm of a calibrated noise: how far it may move, and the standard deviation of its prior."""


class HeldOut(NamedTuple):
    """A division of the pool for learning frequencies."""

    learned_from: Block
    chosen_by: Block  # rows that choose the step
    judged_by: Block  # rows that nothing is chosen by
    kept_out: Block  # both of these


@dataclass(frozen=True, eq=False)
class FeatureFit:
    """A regression through features that is to be fitted, and the rows that its stages see.

    Attributes:
        regression: At its starting values.
        plan: What the user asked for.
        family: Of the regression.
        rows: All of them.
        pool: Those in memory: all, or a random sample.
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
        pool = rows.sample if isinstance(rows, SourceRows) else gathered(rows)
        assert pool is not None  # a fit's own data are surveyed
        order = torch.randperm(len(pool), generator=random.generator(family.options.seed, random.Role.SAMPLE))
        tied = {"noise", "outputscale"} & {*plan.fixed, *(family.options.priors or {})}
        solves = family.is_normal and not tied and not rows.has_fixed_noise and not _has_residual(family)
        return cls(regression, plan, family, rows, pool, order, solves)

    @property
    def free(self) -> list[str]:
        """The names of hyperparameters that are not fixed."""
        return self.regression.hyperparameters.space.free(self.plan.fixed)

    @property
    def drawn(self) -> FeatureFamily:
        """The family, where it has frequencies."""
        assert isinstance(self.family, FeatureFamily)
        return self.family

    def with_frequencies(self, frequencies: Frequencies) -> "FeatureFit":
        """Return the fit through other frequencies."""
        return self.through(self.drawn.with_frequencies(frequencies))

    def through(self, family: FeatureFamily | InducingFamily) -> "FeatureFit":
        """Return the fit through other features."""
        return replace(self, family=family, regression=self.regression.replace(family=family))

    def subset(self, size: int) -> Block:
        """Return so many rows of the pool in random order: those of a smaller subset and more, or all as they are."""
        return self.pool if size >= len(self.pool) else self.pool.take(self.order[:size])

    def held_out(self) -> HeldOut:
        """Return the division of the pool for learning frequencies."""
        out = min(KEPT_OUT[1], math.ceil(KEPT_OUT[0] * len(self.pool)))
        learned_from, kept = self.order[: len(self.order) - out], self.order[len(self.order) - out :]
        groups = repeat_groups(self.pool.inputs.detach().cpu().numpy(), self.pool.targets.detach().cpu().numpy())
        if groups is not None:  # a copy would tell a row that is kept out
            learned_from = learned_from[~np.isin(groups[learned_from], groups[kept])]
        half = (out + 1) // 2
        return HeldOut(*(self.pool.take(rows) for rows in (learned_from, kept[:half], kept[half:], kept)))

    def solves(self, rows: Rows) -> bool:
        """Whether the output scale is solved for on some rows."""
        return self.solves_scales and self.family.num_features <= len(rows)

    def linear(self, values: Values, rows: Rows) -> LinearModel:
        """Return the linear model of rows at some hyperparameters."""
        prior, (mean, noise) = self.family.prior(values), mean_and_noise(values)
        assert isinstance(prior, FeaturePrior)  # others are fitted by their neighbours
        return LinearModel(prior, rows, mean.double(), noise.double())

    def evidence(self, values: Values, rows: Rows) -> Evidence:
        """Return what rows say at some hyperparameters."""
        return self.regression.replace(hyperparameters=values).evidence(rows)


def _has_residual(family: FeatureFamily | InducingFamily) -> bool:
    """Return whether the likelihood depends on noise and output scale in more than their ratio and common scale."""
    return isinstance(family, InducingFamily) and family.options.diagonal is not None


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
    return normal_log_density(rows.targets, mean, variance).sum(1)


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
