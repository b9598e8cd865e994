"""What all stages of a fit through features have in common."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp import random
from rfgp.couplings import Frequencies
from rfgp.fitting.plan import Plan
from rfgp.inference import Evidence, LinearModel
from rfgp.parameters import Values
from rfgp.regression import FeatureFamily, Regression, mean_and_noise
from rfgp.rows import Block, Rows, SourceRows, gathered

KEPT_OUT = (0.1, 2000)
"""The share of the rows that is kept out of learning frequencies, and at most how many."""


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
    family: FeatureFamily
    rows: Rows
    pool: Block
    order: Tensor
    solves_scales: bool

    @classmethod
    def of(cls, regression: Regression, plan: Plan) -> "FeatureFit":
        """Return the fit of a regression."""
        family, rows = regression.family, regression.needed_rows("a fit")
        assert isinstance(family, FeatureFamily)
        pool = rows.sample if isinstance(rows, SourceRows) else gathered(rows)
        assert pool is not None  # a fit's own data are surveyed
        order = torch.randperm(len(pool), generator=random.generator(family.options.seed, random.Role.SAMPLE))
        tied = {"noise", "outputscale"} & {*plan.fixed, *(family.options.priors or {})}
        return cls(regression, plan, family, rows, pool, order, not tied and not rows.has_fixed_noise)

    @property
    def free(self) -> list[str]:
        """The names of hyperparameters that are not fixed."""
        return self.regression.hyperparameters.space.free(self.plan.fixed)

    def with_frequencies(self, frequencies: Frequencies) -> "FeatureFit":
        """Return the fit through other frequencies."""
        family = self.family.with_frequencies(frequencies)
        return replace(self, family=family, regression=self.regression.replace(family=family))

    def subset(self, size: int) -> Block:
        """Return so many rows of the pool in random order: those of a smaller subset and more, or all as they are."""
        return self.pool if size >= len(self.pool) else self.pool.take(self.order[:size])

    def held_out(self) -> HeldOut:
        """Return the division of the pool for learning frequencies."""
        out = min(KEPT_OUT[1], math.ceil(KEPT_OUT[0] * len(self.pool)))
        learned_from, kept = self.order[: len(self.order) - out], self.order[len(self.order) - out :]
        half = (out + 1) // 2
        return HeldOut(*(self.pool.take(rows) for rows in (learned_from, kept[:half], kept[half:], kept)))

    def solves(self, rows: Rows) -> bool:
        """Whether the output scale is solved for on some rows."""
        return self.solves_scales and self.family.num_features <= len(rows)

    def linear(self, values: Values, rows: Rows) -> LinearModel:
        """Return the linear model of rows at some hyperparameters."""
        mean, noise = mean_and_noise(values)
        return LinearModel(self.family.prior(values), rows, mean.double(), noise.double())

    def evidence(self, values: Values, rows: Rows) -> Evidence:
        """Return what rows say at some hyperparameters."""
        return self.regression.replace(hyperparameters=values).evidence(rows)
