"""The rows that candidates are measured on, and how dense they say that these are.

Two ways. Where few rows are at hand and no candidate learns frequencies, each row is left out in turn: nothing is kept
from the fit, and all rows judge. Else some rows are kept out, and judge given *all* the others, whatever the number of
those that hyperparameters were found on, because what is local gains with the density of rows. (Leave-one-out densities
under learned frequencies lie: they have seen the row.) Of rows that repeat each other exactly one is measured on, since
the others would tell what it is (`rfgp.rows.repeat_groups`).
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import CheckpointError, RfgpError
from rfgp.fitting import Plan, fit_terms
from rfgp.fitting.context import left_out_densities
from rfgp.inference.distributions import normal_log_density
from rfgp.local import nearest
from rfgp.regression import FitReport, KernelOptions, Regression, mean_and_noise, started
from rfgp.regression.observing import left_out_observations
from rfgp.regression.record import CONSTANT, LINE
from rfgp.regression.spec import ModelSpec, data_summary
from rfgp.regression.table import model_options, table_options
from rfgp.rows import ArrayRows, Block, Rows, pool_of, repeat_groups

MOST_LEFT_OUT = 1000
"""Rows, of at most `rfgp.regression.table.offers.FEW_ROWS`, among which each is left out."""
KEPT_OUT = (0.2, 4000)
"""The share of the rows that is kept out, and at most how many: 1,000 leave a standard error of .04 to differences of
neighbours and features (keggdirected)."""
ENOUGH, GAIN = 50, 0.1
"""Iterations after which the hyperparameters of an exact kernel on some of the rows are good enough to judge it; and
the nats that its last five gain at least, where kernels are averaged: the other half of a search gains tenths."""
MOST_EXACT = 3000
"""Rows that an exact kernel is conditioned on to be judged."""
MOST_GIVEN, AROUND = 2**17, 2
"""Rows up to which a local process is given all to be judged; and of more, how many times its neighbours it is given
around each judged row, by the lengthscales that it found (80 judged of three made tables of 5,000 and 8,000 rows, 30
and 60 neighbours: .004 to .013 nats less likely so than given all, with standard errors of .003 to .005)."""
MOST = 0.7
"""The share of all rows from which on frequencies that were learned from them are not learned again. (NLPD of new rows
so, and anew: elevators, 80 % of 14,900 rows, .363 and .358; kin40k, 256 frequencies of 89 % of 36,000, -1.350 and
-1.338; protein, 80 % of 41,000, 1.031 and 1.034.)"""


@dataclass(frozen=True, eq=False)
class Found:
    """A candidate that was fitted to some rows.

    Attributes:
        regression: Of these rows, with the hyperparameters found.
        report: How it went.
        density: The mean log densities of the values of judged rows, in the user's units, (b,).
        searched: Rows that its hyperparameters were found on: as many as were asked for, or more, where these misled.
        is_whole: Whether it is a fit to all rows.
    """

    regression: Regression
    report: FitReport
    density: Tensor
    searched: int
    is_whole: bool


@dataclass(frozen=True, eq=False)
class Grounds:
    """Rows to measure candidates on.

    Attributes:
        begun: The regression of all rows, before a candidate is taken.
        plan: What the user asked of the fit.
        rows: Those that candidates see, in random order; where each is left out in turn and they are all, as they are.
        judged: Those that are kept out; None: each of the others is left out in turn.
        averages: Whether candidates are averaged: exact kernels of one output with normal noise, each row left out.
    """

    begun: Regression
    plan: Plan
    rows: Block
    judged: Block | None
    averages: bool = False

    @classmethod
    def of(cls, begun: Regression, plan: Plan, keeps_out: bool, are_exact: bool = False) -> "Grounds":
        """Return the grounds of a regression that is open.

        Args:
            begun: The regression.
            plan: What the user asked for.
            keeps_out: Whether to keep rows out rather than to leave each out in turn.
            are_exact: Whether all candidates are exact kernels, several of them.
        """
        pool = _without_repeats(pool_of(begun.needed_rows("a fit")))
        order = torch.randperm(len(pool), generator=random.generator(begun.family.options.seed, random.Role.CHOICE))
        if not keeps_out:
            rows = pool if len(pool) <= MOST_LEFT_OUT else some(pool, order[:MOST_LEFT_OUT])
            averages = are_exact and begun.family.is_normal and pool.num_outputs == 1
            return cls(begun, plan, rows, None, averages)
        out = min(KEPT_OUT[1], math.ceil(KEPT_OUT[0] * len(pool)))
        return cls(begun, plan, some(pool, order[out:]), some(pool, order[:out]))

    @property
    def told(self) -> Block:
        """The rows that judge."""
        return self.rows if self.judged is None else self.judged

    def plan_of(self, options: KernelOptions, start: Found | None) -> Plan:
        """Return the plan of a fit of a candidate; its searches end where an average gains nothing by more."""
        plan = replace(self.plan, is_begun=is_warm(options, start))
        return replace(plan, enough=GAIN) if self.averages else plan

    @cached_property
    def rules(self) -> dict[str, Tensor]:
        """The mean log densities (b,) of judged rows by simple rules, in the user's units, where noise is normal."""
        if not self.begun.family.is_normal:
            return {}
        found = rule_densities(self.rows, self.judged)
        return {name: each + self._jacobian for name, each in found.items() if bool(torch.isfinite(each).all())}

    @property
    def _jacobian(self) -> float:
        return self.begun.scaling.targets.log_jacobian(1) / self.told.num_outputs

    @property
    def is_all(self) -> bool:
        """Whether all rows are seen, so that a fit to them is the last one."""
        return self.judged is None and len(self.rows) == self.begun.num_observations

    def measured(self, options: KernelOptions, size: int, start: Found | None) -> Found | str:
        """Return a candidate fitted to so many rows and judged, or why it could not be.

        Args:
            options: The candidate.
            size: How many rows its hyperparameters are found on.
            start: The same candidate of an earlier round, or one with another local process: its hyperparameters are
                the start.
        """
        try:
            found = self._measured(options, min(size, len(self.rows)), start)
        except CheckpointError:
            raise
        except RfgpError as error:
            return str(error)
        return found if bool(torch.isfinite(found.density).all()) else "the density of a row is not finite"

    def _measured(self, options: KernelOptions, size: int, start: Found | None) -> Found:
        is_whole = self.is_all and size == len(self.rows)
        rows: Rows = self.rows if is_near(options) or size == len(self.rows) else some(self.rows, torch.arange(size))
        if is_whole:  # the last fit, so as it would be alone
            is_anew = has_optima(options) or (start is not None and is_of_another(options, start))
            rows, start = self.begun.needed_rows("a fit"), None if is_anew else start
        begun = start_of(self.begun, options, rows, start)
        some_rows = size if is_near(options) and not is_whole else None
        plan = replace(self.plan_of(options, start), most_rows=some_rows)
        if options.features == "exact" and not is_whole:
            plan = replace(plan, given_iterations=min(ENOUGH, plan.max_iterations))
        found, report = fit_terms(begun, plan)
        searched = max([size, *(stage.rows for stage in report.stages)])
        return Found(found, report, self._density(found), searched, is_whole)

    def _density(self, found: Regression) -> Tensor:
        """Return the densities of judged rows (b,) given all the others."""
        with torch.no_grad():
            if self.judged is None:
                return self._left_out(found) + self._jacobian
            others = self._given(found)
            return _kept_out(found.replace(rows=others, num_observations=len(others)), self.judged) + self._jacobian

    def _given(self, found: Regression) -> Block:
        """Return the rows that kept-out ones are judged given: all, where these are not too many for a candidate."""
        assert self.judged is not None
        if found.prior().kernels:
            return self.rows.take(slice(0, MOST_EXACT))
        neighbors = found.prior().neighbors
        if len(self.rows) <= MOST_GIVEN or neighbors is None:
            return self.rows
        around = min(AROUND * neighbors.num_neighbors, len(self.rows))
        near = nearest(neighbors.scaled(self.rows.inputs), neighbors.scaled(self.judged.inputs), around)
        return self.rows.take(torch.from_numpy(np.unique(near)))

    def num_given(self, options: KernelOptions, size: int) -> int:
        """Return how many rows at most a candidate that was fitted to so many is given to be judged."""
        count = len(self.rows)
        if options.features == "exact":
            return size if self.judged is None else min(count, MOST_EXACT)
        if self.judged is None or count <= MOST_GIVEN or not is_near(options):
            return count
        return min(count, AROUND * options.num_neighbors * len(self.judged))

    def _left_out(self, found: Regression) -> Tensor:
        if not found.family.is_normal:
            return _as_tensor(left_out_observations(found, self.rows).log_density) - _jacobian(found)
        noise = found.hyperparameters.standardized("noise").double()
        moments = found.replace(rows=self.rows).infer(self.rows).leave_one_out()
        return left_out_densities(moments, self.rows, noise) / self.rows.num_outputs


def _kept_out(found: Regression, rows: Block) -> Tensor:
    """Return the mean standardised densities of the values of rows (b,) given those of a regression."""
    if not found.family.is_normal:
        assert found.scaling.inputs is not None
        latent = found.predict(found.scaling.inputs.inverse(rows.inputs))
        observed = latent.observed() if rows.fixed_noise is None else latent.observed(rows.fixed_noise)  # exposures
        return _as_tensor(observed.log_density(found.scaling.targets.inverse(rows.targets[:, 0]))) - _jacobian(found)
    function, (mean, noise) = found.process.at(rows.inputs), mean_and_noise(found.hyperparameters)
    variance = function.variance() + rows.observation_noise(noise)
    return normal_log_density(rows.targets, function.mean() + mean, variance[:, None]).mean(1)


def _jacobian(found: Regression) -> float:
    return found.scaling.targets.log_jacobian(1)


def _as_tensor(values: object) -> Tensor:
    return torch.as_tensor(values).double().reshape(-1)


def _without_repeats(pool: Block) -> Block:
    """Return the rows without those that repeat another exactly, which would tell the row that is left out."""
    groups = repeat_groups(pool.inputs.detach().cpu().numpy(), pool.targets.detach().cpu().numpy())
    if groups is None:
        return pool
    return some(pool, torch.from_numpy(np.sort(np.unique(groups, return_index=True)[1])))


def some(
    rows: Block,
    which: Tensor,  # (r,)
) -> Block:
    """Return some of the rows, with what was given for them where that is known."""
    block = rows.take(which)
    if not isinstance(rows, ArrayRows):
        return block
    parts = (block.inputs, block.targets, block.fixed_noise, block.weight)
    return ArrayRows(*parts, given=rows.given.take(which), as_numpy=rows.as_numpy)


def is_near(options: KernelOptions) -> bool:
    """Return whether a candidate has neighbours."""
    return options.local is not None and options.features != "exact"


def is_told_all(options: KernelOptions, searched: int, rows: int) -> bool:
    """Return whether a candidate that was measured on so many of all rows is told the others, and not fitted again."""
    are_learned = options.local is None and getattr(options, "frequencies", "fixed") == "learned"
    return are_learned and searched >= MOST * rows


def is_of_another(options: KernelOptions, start: Found) -> bool:
    """Return whether what was found is of a candidate with another local process."""
    spec = start.regression.family
    assert isinstance(spec, ModelSpec)
    return table_options(spec).local != options.local


def has_optima(options: KernelOptions) -> bool:
    """Return whether all rows are to look around again, for few may lead to a lesser optimum.

    36,000 rows of kin40k, 128 frequencies and neighbours: held-out rows -.714 from the optimum of 4,000, -.809 anew.
    """
    return options.has_both and options.features != "exact"


def start_of(begun: Regression, options: KernelOptions, rows: Rows, start: Found | None) -> Regression:
    """Return the regression of rows under a candidate, at what was found of it where that is a start."""
    spec = begun.family
    assert isinstance(spec, ModelSpec)
    chosen = model_options(options).changed(likelihood=spec.options.likelihood, seed=spec.options.seed)
    first = started(spec.with_options(chosen), data_summary(begun), rows)
    if start is None or not is_warm(options, start):
        return first
    family = first.family if is_of_another(options, start) else start.regression.family  # which of features has a draw
    return first.replace(family=family, hyperparameters=start.regression.hyperparameters)


def is_warm(options: KernelOptions, start: Found | None) -> bool:
    """Return whether a search goes on from what was found.

    Learned frequencies are learned from their draw again. Exact kernels begin anew after few rows, which drive
    lengthscales of columns to their bounds, from which the way back is longer (concrete, the sum of two kernels: 52
    evaluations anew, 88 and 248 from the optimum of 300 rows).
    """
    if start is None or getattr(options, "frequencies", "fixed") == "learned":
        return False
    return options.features != "exact" or start.regression.num_observations >= MOST_LEFT_OUT


_RIDGE = 1e-6
"""Of the sums of squares of the columns, which may depend on each other."""


def rule_densities(
    rows: Block,
    judged: Block | None,
) -> dict[str, Tensor]:
    """Return the mean standardised log densities of the values of judged rows (b,) by each rule, fitted to the others.

    Args:
        rows: Those that the rules learn from.
        judged: Those that are kept out; None: each of the others is left out in turn.
    """
    x = rows.inputs.double()
    names = {CONSTANT: x[:, :0]} | ({LINE: x} if x.shape[1] + 2 < len(x) else {})
    return {name: _density(rows, judged, columns.shape[1]) for name, columns in names.items()}


def _density(rows: Block, judged: Block | None, width: int) -> Tensor:
    told = rows if judged is None else judged
    design, weight = _design(rows, width), rows.counts()[:, None]
    gram = design.mT @ (weight * design)
    gram = gram + _RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    slopes = torch.linalg.solve(gram, design.mT @ (weight * rows.targets))
    new = _design(told, width)
    errors = told.targets - new @ slopes
    if judged is None:
        left = weight * (design * torch.linalg.solve(gram, design.mT).mT).sum(1, keepdim=True)
        errors = errors / (1 - left).clamp_min(1e-6)
    variance = _variance(rows, design, slopes, errors if judged is None else None)
    return normal_log_density(told.targets, told.targets - errors, variance.expand_as(errors)).mean(1)


def _variance(rows: Block, design: Tensor, slopes: Tensor, left_out: Tensor | None) -> Tensor:
    """Return the variances of errors (k,), of rows left out where these are known."""
    errors = rows.targets - design @ slopes if left_out is None else left_out
    weight, lost = rows.counts()[:, None], 0 if left_out is not None else design.shape[1]
    freedom = max(float(rows.count) - lost, 1.0)
    return ((weight * errors.square()).sum(0) / freedom).clamp_min(math.ulp(1.0) ** 2)


def _design(rows: Block, width: int) -> Tensor:
    """Return a column of ones and the first columns (b, 1 + width)."""
    x = rows.inputs[:, :width].double()
    return torch.cat([torch.ones(len(x), 1, dtype=x.dtype, device=x.device), x], dim=1)
