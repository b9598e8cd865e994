"""The rows on which candidates are fitted and scored.

There are two ways. If rows are few and no candidate learns frequencies, each row is left out in turn. Otherwise some
rows are held out and predicted given *all* the others, whatever the number of rows that the hyperparameters were
fitted to, because neighbours gain from the density of rows. (Leave-one-out scores of learned frequencies are biased,
because the frequencies were fitted to the row.) Of rows that repeat each other exactly one is used
(`rfgp.rows.repeat_groups`).
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
from rfgp.regression import FitReport, Regression, mean_and_noise, started
from rfgp.regression.observing import left_out_observations
from rfgp.regression.regression import predicted
from rfgp.regression.spec import ModelSpec, data_summary
from rfgp.rows import ArrayRows, Block, Rows, pool_of, repeat_groups
from rfgp.rows.arrays import Origin
from rfgp.selection.baselines import baseline_densities
from rfgp.selection.candidates import Candidate

MOST_LEFT_OUT = 1000
"""The most rows that are left out in turn."""
HELD_OUT = (0.2, 4000)
"""The share of the rows that is held out, and the most of them: 1,000 leave a standard error of 0.04 to differences of
neighbours and features (keggdirected)."""
ENOUGH, GAIN = 50, 0.1
"""The iterations after which an exact kernel on some of the rows is scored, and the least gain in nats of the last five
iterations if kernels are averaged."""
MOST_EXACT = 3000
"""The most rows that an exact kernel is conditioned on to be scored."""
MOST_GIVEN, AROUND = 2**17, 2
"""The most rows that neighbours are all given to be scored, and beyond them how many times their neighbours are taken
around each held-out row. (Three made tables: 0.004 to 0.013 nats less, with standard errors of 0.003 to 0.005.)"""
MOST = 0.7
"""The share of all rows from which on learned frequencies are not learned again from all. (NLPD so, and again:
elevators 0.363 and 0.358, kin40k -1.350 and -1.338, protein 1.031 and 1.034.)"""


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """A candidate that was fitted to some rows.

    Attributes:
        candidate: The candidate.
        regression: The regression of these rows, with the hyperparameters found.
        report: The report of the fit.
        density: The mean log densities of the values of validation rows, in the user's units, (b,).
        searched: The number of rows that the hyperparameters were fitted to. It may be larger than what was asked for.
        is_whole: Whether it is a fit to all rows.
    """

    candidate: Candidate
    regression: Regression
    report: FitReport
    density: Tensor
    searched: int
    is_whole: bool


@dataclass(frozen=True, eq=False)
class Validation:
    """The rows on which candidates are fitted, and those on which they are scored.

    Attributes:
        begun: The regression of all rows, before a candidate is taken.
        plan: The options of the fit.
        rows: The rows that candidates are fitted to, in random order if some are held out.
        held_out: The rows that are held out. If None, each of the others is left out in turn.
        averages: Whether candidates are averaged. They are if they are exact, with Gaussian noise, one output, and each
            row left out in turn.
    """

    begun: Regression
    plan: Plan
    rows: Block
    held_out: Block | None
    averages: bool = False

    @classmethod
    def of(cls, begun: Regression, plan: Plan, holds_out: bool, are_exact: bool = False) -> "Validation":
        """Return the validation of a regression.

        Args:
            begun: The regression.
            plan: The options of the fit.
            holds_out: Whether rows are held out. Otherwise each is left out in turn.
            are_exact: Whether there are several candidates, all of them exact.
        """
        pool = _without_repeats(pool_of(begun.needed_rows("a fit")))
        order = torch.randperm(len(pool), generator=random.generator(begun.family.options.seed, random.Role.CHOICE))
        if not holds_out:
            rows = pool if len(pool) <= MOST_LEFT_OUT else some(pool, order[:MOST_LEFT_OUT])
            averages = are_exact and begun.family.is_normal and pool.num_outputs == 1
            return cls(begun, plan, rows, None, averages)
        out = min(HELD_OUT[1], math.ceil(HELD_OUT[0] * len(pool)))
        return cls(begun, plan, some(pool, order[out:]), some(pool, order[:out]))

    @property
    def validated(self) -> Block:
        """The rows by which candidates are scored."""
        return self.rows if self.held_out is None else self.held_out

    def plan_of(self, candidate: Candidate, start: FittedCandidate | None) -> Plan:
        """Return the options of the fit of a candidate. Searches are shorter if candidates are averaged."""
        plan = replace(self.plan, is_begun=is_warm(candidate, start))
        return replace(plan, enough=GAIN) if self.averages else plan

    @cached_property
    def baselines(self) -> dict[str, Tensor]:
        """The mean log densities (b,) of validation rows by the baselines, in the user's units, for Gaussian noise."""
        if not self.begun.family.is_normal:
            return {}
        found = baseline_densities(self.rows, self.held_out)
        return {name: each + self._jacobian for name, each in found.items() if bool(torch.isfinite(each).all())}

    @property
    def _jacobian(self) -> float:
        return self.begun.scaling.targets.log_jacobian(1) / self.validated.num_outputs

    @property
    def is_all(self) -> bool:
        """Whether all rows are fitted to, so that a fit to them is the last one."""
        return self.held_out is None and len(self.rows) == self.begun.num_observations

    def fitted(self, candidate: Candidate, size: int, start: FittedCandidate | None) -> FittedCandidate | str:
        """Return a candidate fitted to some rows and scored, or the reason why it cannot be.

        Args:
            candidate: The candidate.
            size: The number of rows that its hyperparameters are fitted to.
            start: The same candidate of an earlier round, or one with neighbours of another kernel, at whose
                hyperparameters the search starts.
        """
        try:
            found = self._fitted(candidate, min(size, len(self.rows)), start)
        except CheckpointError:
            raise
        except RfgpError as error:
            return str(error)
        return found if bool(torch.isfinite(found.density).all()) else "the density of a row is not finite"

    def _fitted(self, candidate: Candidate, size: int, start: FittedCandidate | None) -> FittedCandidate:
        is_whole, has_neighbors = self.is_all and size == len(self.rows), candidate.neighbors is not None
        rows: Rows = self.rows if has_neighbors or size == len(self.rows) else some(self.rows, torch.arange(size))
        if is_whole:  # the last fit, as it would be without other candidates
            is_anew = has_optima(candidate) or (start is not None and is_of_other_neighbors(candidate, start))
            rows, start = self.begun.needed_rows("a fit"), None if is_anew else start
        begun = start_of(self.begun, candidate if is_whole else candidate.with_few_features(), rows, start)
        plan = replace(self.plan_of(candidate, start), most_rows=size if has_neighbors and not is_whole else None)
        if candidate.is_exact and not is_whole:
            plan = replace(plan, given_iterations=min(ENOUGH, plan.max_iterations))
        found, report = fit_terms(begun, plan)
        searched = max([size, *(stage.rows for stage in report.stages)])
        return FittedCandidate(candidate, found, report, self._density(found), searched, is_whole)

    def _density(self, found: Regression) -> Tensor:
        """Return the densities of validation rows (b,) given all the others."""
        with torch.no_grad():
            if self.held_out is None:
                return self._left_out(found) + self._jacobian
            others = self._given(found)
            family = found.family.covering(found.hyperparameters, others)
            found = found.replace(family=family, rows=others, num_observations=len(others))
            return _held_out(found, self.held_out) + self._jacobian

    def _given(self, found: Regression) -> Block:
        """Return the rows given which held-out ones are predicted: all, unless there are too many for a candidate."""
        assert self.held_out is not None
        if found.prior().kernels:
            return self.rows.take(slice(0, MOST_EXACT))
        neighbors = found.prior().neighbors
        if len(self.rows) <= MOST_GIVEN or neighbors is None:
            return self.rows
        around = min(AROUND * neighbors.num_neighbors, len(self.rows))
        near = nearest(neighbors.scaled(self.rows.inputs), neighbors.scaled(self.held_out.inputs), around)
        return self.rows.take(torch.from_numpy(np.unique(near)))

    def num_given(self, candidate: Candidate, size: int) -> int:
        """Return the most rows given which a candidate that was fitted to some rows is scored."""
        count, neighbors = len(self.rows), candidate.neighbors
        if candidate.is_exact:
            return size if self.held_out is None else min(count, MOST_EXACT)
        if self.held_out is None or count <= MOST_GIVEN or neighbors is None:
            return count
        return min(count, AROUND * neighbors.num_neighbors * len(self.held_out))

    def _left_out(self, found: Regression) -> Tensor:
        if not found.family.is_normal:
            return _as_tensor(left_out_observations(found, self.rows).log_density) - _jacobian(found)
        noise = found.hyperparameters.standardized("noise").double()
        moments = found.replace(rows=self.rows).infer(self.rows).leave_one_out()
        return left_out_densities(moments, self.rows, noise) / self.rows.num_outputs


def _held_out(found: Regression, rows: Block) -> Tensor:
    """Return the mean standardised densities (b,) of the values of rows given those of a regression."""
    if not found.family.is_normal:
        latent = predicted(found, rows.inputs, Origin(False, rows.targets.new_empty(0)))
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
    """Return the rows without those that repeat another exactly, and would give the left-out row away."""
    groups = repeat_groups(pool.inputs.detach().cpu().numpy(), pool.targets.detach().cpu().numpy())
    if groups is None:
        return pool
    return some(pool, torch.from_numpy(np.sort(np.unique(groups, return_index=True)[1])))


def some(
    rows: Block,
    which: Tensor,  # (r,)
) -> Block:
    """Return some of the rows, with the arrays that the user gave for them if they are known."""
    if not isinstance(rows, ArrayRows):
        return rows.take(which)
    return ArrayRows(rows.given.take(which), rows.as_numpy, rows.scaling)


def is_conditioned_only(candidate: Candidate, searched: int, rows: int) -> bool:
    """Return whether a candidate fitted to some of the rows is conditioned on the others, and not fitted again."""
    return candidate.neighbors is None and candidate.learns_frequencies and searched >= MOST * rows


def is_of_other_neighbors(candidate: Candidate, start: FittedCandidate) -> bool:
    """Return whether a start is of a candidate with neighbours of another kernel."""
    return start.candidate.kernel_of_neighbors != candidate.kernel_of_neighbors


def has_optima(candidate: Candidate) -> bool:
    """Return whether a fit to all rows compares starts again, because few rows may lead to a lesser optimum.

    36,000 rows of kin40k, 128 frequencies and neighbours: held-out rows -0.714 from the optimum of 4,000, -0.809 anew.
    """
    return candidate.is_sum and not candidate.is_exact


def start_of(begun: Regression, candidate: Candidate, rows: Rows, start: FittedCandidate | None) -> Regression:
    """Return the regression of rows under a candidate, at the hyperparameters of a start if it is used."""
    spec = begun.family
    assert isinstance(spec, ModelSpec)
    kept = {name: getattr(spec.options, name) for name in ("likelihood", "seed", "indicators")}
    chosen = candidate.model.changed(**kept)
    first = started(spec.with_options(chosen), data_summary(begun), rows)
    if start is None or not is_warm(candidate, start):
        return first
    if candidate.is_lattice:  # its lattices are laid anew
        return first.replace(hyperparameters=start.regression.hyperparameters)
    family = first.family if is_of_other_neighbors(candidate, start) else start.regression.family  # with its draw
    return first.replace(family=family, hyperparameters=start.regression.hyperparameters)


def is_warm(candidate: Candidate, start: FittedCandidate | None) -> bool:
    """Return whether a search starts at the hyperparameters of an earlier one.

    Learned frequencies start at their draw again. Exact kernels start anew after few rows, which drive lengthscales to
    their bounds (concrete, the sum of two kernels: 52 evaluations anew, 88 and 248 from the optimum of 300 rows).
    """
    if start is None or candidate.learns_frequencies:
        return False
    return not candidate.is_exact or start.regression.num_observations >= MOST_LEFT_OUT
