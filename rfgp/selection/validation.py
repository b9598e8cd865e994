"""The rows on which candidates are fitted and scored.

- Leave-one-out, for few rows and exact candidates: each distinct input is left out in turn, in closed form.
- Folds, if rows are few for the hyperparameters, or come in groups that the user names: candidates are fitted again
  without each fold, since scores of rows that many hyperparameters have seen are too good. Each row is then predicted
  given all others at hyperparameters that have not seen it, as in leave-one-out. Rows of groups, and those with equal
  inputs, are predicted without their fold.
- Held out, for many rows: some are held out and predicted given *all* the others, whatever the number of rows that the
  hyperparameters were fitted to, because neighbors gain from the density of rows. "forward" holds out the last rows.

Rows with equal inputs stay together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import CheckpointError, DataError, RfgpError
from rfgp.fitting import Plan, fit_terms
from rfgp.fitting.context import left_out_densities, observation_densities
from rfgp.local import nearest
from rfgp.regression import FitReport, Regression, mean_and_noise, started
from rfgp.regression.observing import left_out_observations
from rfgp.regression.regression import predicted
from rfgp.regression.spec import ModelSpec, data_summary
from rfgp.rows import ArrayRows, Block, Rows
from rfgp.rows.arrays import Origin
from rfgp.selection.candidates import FEW_ROWS, Candidate
from rfgp.selection.groups import FORWARD, date_column, duplicate_labels, group_labels, merged_pool

MOST_LEFT_OUT = 1000
"""The most rows that are left out in turn."""
HELD_OUT, MOST_HELD_OUT = 0.2, 4000
"""The share of the rows that is held out, and the most of them."""
FOLDS, A_HYPERPARAMETER = 5, 20
"""The number of folds, and the least rows for each hyperparameter of a sum of two kernels without folds."""
ITERATIONS, REFITTED, GAIN = 50, 15, 0.1
"""The most iterations of an exact kernel on some of the rows and without a fold, and the least gain in nats of the last
five iterations if kernels are averaged."""
ROUGH = 2e-4
"""The least gain of the last five iterations, in nats a row, of a search that is scored on held-out rows. Those with
neighbors have rounds of few iterations."""
MOST_GIVEN, AROUND, MOST_PLANNED = 2**17, 2, 20_000
"""The most rows that neighbors are all given to be scored, and beyond them how many times their neighbors are taken
around each held-out row; and the most rows that planned approximations are given, whose size grows with the rows."""


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
        held_out: The rows that are held out. If None, each of the others is left out in turn, alone or with its fold.
        folds: The numbers of the rows of each fold. Empty if there are none.
        conditions_on_fold: Whether each row is predicted given all others, those of its fold included.
        groups: How rows are kept together or ordered: None, "forward", or the key of a column.
        are_exact: Whether all candidates are exact.
    """

    begun: Regression
    plan: Plan
    rows: Block
    held_out: Block | None = None
    folds: tuple[Tensor, ...] = ()
    conditions_on_fold: bool = False
    groups: Any = None
    are_exact: bool = False

    @classmethod
    def of(cls, begun: Regression, plan: Plan, candidates: Sequence[Candidate], groups: Any = None) -> "Validation":
        """Return the validation of a regression.

        Args:
            begun: The regression.
            plan: The options of the fit.
            candidates: The candidates. Left-out scores of learned frequencies would be those of rows that they have
                seen.
            groups: How rows are kept together or ordered: None, "forward", or the key of a column.

        Raises:
            InvalidArgumentError: there is no such column, or no column of dates for "forward".
            DataError: there is one group.
        """
        pool, count = merged_pool(begun)
        generator = random.generator(begun.family.options.seed, random.Role.CHOICE)
        out = min(math.ceil(HELD_OUT * len(pool)), MOST_HELD_OUT)
        if groups == FORWARD:
            order = pool.inputs[:, date_column(begun)].argsort()
        else:
            labels = torch.from_numpy(duplicate_labels(pool) if groups is None else group_labels(begun, pool, groups))
            number = int(labels.max()) + 1
            if number < 2 and groups is not None:
                raise DataError(f"Rows of at least two groups are needed, got one value of {groups!r}.")
            places = torch.randperm(number, generator=generator)[labels]
            if count <= FEW_ROWS and not any(one.learns_frequencies for one in candidates):
                found = cls._of_few(begun, plan, pool, places, groups)
                return replace(found, are_exact=all(one.is_exact for one in candidates))
            order = places.argsort(stable=True)
            out = min(int((places >= places[order[-out]]).sum()), len(pool) - 1)  # whole groups
        held_out, given = order[len(order) - out :], order[: len(order) - out]
        given = given[torch.randperm(len(given), generator=generator)]
        return cls(begun, plan, some(pool, given), some(pool, held_out), groups=groups)

    @classmethod
    def _of_few(cls, begun: Regression, plan: Plan, pool: Block, places: Tensor, groups: Any) -> "Validation":
        """Return the validation of few rows: each left out in turn, or with its fold."""
        if len(pool) > MOST_LEFT_OUT:
            which = places.argsort(stable=True)[:MOST_LEFT_OUT]
            pool, places = some(pool, which), places[which]
        hyperparameters = 2 * pool.inputs.shape[1] + 3
        has_few = begun.family.is_gaussian and len(pool) < A_HYPERPARAMETER * hyperparameters
        count = min(FOLDS, int(places.max()) + 1) if has_few or groups is not None else 0
        members = [(places % count == fold).nonzero()[:, 0] for fold in range(count)]
        conditions_on_fold = groups is None and int(places.max()) + 1 == len(places)
        return cls(begun, plan, pool, None, tuple(one for one in members if len(one)), conditions_on_fold, groups)

    @property
    def validated(self) -> Block:
        """The rows by which candidates are scored."""
        return self.rows if self.held_out is None else self.held_out

    @property
    def name(self) -> str:
        """How rows are predicted, in words."""
        if self.groups is not None:
            return "the last rows" if self.groups == FORWARD else f"groups of {self.groups}"
        return (
            "held out" if self.held_out is not None else f"{len(self.folds)} folds" if self.folds else "leave-one-out"
        )

    @property
    def averages(self) -> bool:
        """Whether candidates are averaged: exact ones with Gaussian noise and one output, whose rows are left out."""
        return self.are_exact and self.held_out is None and self.begun.family.is_gaussian and self.rows.num_outputs == 1

    @property
    def is_all(self) -> bool:
        """Whether all rows are fitted to, so that a fit to them is the last one."""
        return self.held_out is None and self.rows.count == self.begun.needed_rows("a fit").count

    @cached_property
    def constant(self) -> Tensor:
        """The log densities (b,) of validation rows by their mean and variance, in the user's units."""
        rows, weight = self.rows, self.rows.counts()[:, None]
        mean = (weight * rows.targets).sum(0) / weight.sum()
        squares = weight * (rows.targets - mean).square() + (0.0 if rows.scatter is None else rows.scatter)
        variance = (squares.sum(0) / weight.sum()).clamp_min(1e-30)
        return observation_densities(self.validated, mean, variance).mean(1) + self.jacobian

    @property
    def jacobian(self) -> float:
        """The log Jacobian of the standardization of a target."""
        return self.begun.scaling.targets.log_jacobian(1) / self.validated.num_outputs

    # --- fits ------------------------------------------------------------------------------------

    def fitted(
        self, candidate: Candidate, size: int, start: FittedCandidate | None, plan: Plan | None = None
    ) -> FittedCandidate | str:
        """Return a candidate fitted to some rows and scored, or the reason why it cannot be.

        Args:
            candidate: The candidate.
            size: The number of rows that its hyperparameters are fitted to.
            start: A fit of the same candidate, or of one with neighbors of another kernel, at whose hyperparameters
                the search starts.
            plan: The options of the fit. If None, those of all fits.
        """
        try:
            found = self._fitted(candidate, min(size, len(self.rows)), start, plan or self.plan)
        except CheckpointError:
            raise
        except RfgpError as error:
            return str(error)
        return found if bool(torch.isfinite(found.density).all()) else "the density of a row is not finite"

    def plan_of(self, candidate: Candidate, start: FittedCandidate | None, plan: Plan | None = None) -> Plan:
        """Return the options of the fit of a candidate. Searches are shorter if candidates are averaged."""
        plan = replace(plan or self.plan, is_begun=is_warm(candidate, start))
        return replace(plan, enough=GAIN) if self.averages else plan

    def _fitted(self, candidate: Candidate, size: int, start: FittedCandidate | None, plan: Plan) -> FittedCandidate:
        is_all, has_neighbors = size == len(self.rows), candidate.neighbors is not None
        rows: Rows = self.rows if has_neighbors or is_all else some(self.rows, torch.arange(size))
        is_whole = is_all and self.is_all
        if is_whole and self.rows.scatter is None:
            rows = self.begun.needed_rows("a fit")  # the last fit, as it would be without other candidates
        begun = start_of(self.begun, candidate, rows, start)
        most = size if has_neighbors and not is_whole else None
        plan = replace(self.plan_of(candidate, start, plan), most_rows=most)
        if self.held_out is not None and not has_neighbors:
            plan = replace(plan, enough=max(plan.enough, ROUGH * size))
        if candidate.is_exact and not is_whole:
            plan = replace(plan, given_iterations=min(ITERATIONS, plan.max_iterations))
        found, report = fit_terms(begun, plan)
        searched = max([size, *(stage.rows for stage in report.stages)])
        return FittedCandidate(candidate, found, report, self._density(found, candidate), searched, is_whole)

    def without_folds(self, found: FittedCandidate) -> FittedCandidate:
        """Return a fitted candidate with the densities of rows by fits without their folds, which start at its optimum.

        Rows are conditioned on those of their fold, too, unless inputs are equal or in groups. Given only four fifths
        of the rows, noise-free targets have too low a score: by 2 nats a row for 40 rows of a simulator.
        """
        density = torch.empty_like(found.density)
        for fold in self.folds:
            is_in = torch.zeros(len(self.rows), dtype=torch.bool)
            is_in[fold] = True
            others = some(self.rows, (~is_in).nonzero()[:, 0])
            begun = start_of(self.begun, found.candidate, others, None)
            begun = begun.replace(hyperparameters=begun.hyperparameters.replaced(found.regression.hyperparameters.raw))
            plan = replace(self.plan_of(found.candidate, None), is_begun=True)
            refitted, _ = fit_terms(begun, replace(plan, given_iterations=min(REFITTED, plan.max_iterations)))
            if self.conditions_on_fold:
                left_out = self._left_out(found.regression.replace(hyperparameters=refitted.hyperparameters))[fold]
            else:
                left_out = _densities(refitted, self.rows.take(fold))
            density[fold] = left_out + self.jacobian
        return replace(found, density=density)

    def last(self, found: FittedCandidate) -> Regression:
        """Return the regression of a fit to all rows, conditioned on them if it was fitted to merged ones."""
        rows = self.begun.needed_rows("a fit")
        is_merged = self.rows.scatter is not None
        return found.regression.replace(rows=rows, num_observations=len(rows)) if is_merged else found.regression

    # --- densities -------------------------------------------------------------------------------

    def _density(self, found: Regression, candidate: Candidate) -> Tensor:
        """Return the densities of validation rows (b,) given all the others."""
        with torch.no_grad():
            if self.held_out is None:
                return self._left_out(found) + self.jacobian
            others = self._given(found, is_planned=candidate.is_on_lattices)
            family = found.family.covering(found.hyperparameters, others)
            found = found.replace(family=family, rows=others, num_observations=len(others))
            return _densities(found, self.held_out) + self.jacobian

    def _given(self, found: Regression, *, is_planned: bool) -> Block:
        """Return the rows given which held-out ones are predicted: all, unless there are too many."""
        assert self.held_out is not None
        if is_planned:
            return self.rows.take(slice(0, MOST_PLANNED))
        neighbors = found.prior().neighbors
        if len(self.rows) <= MOST_GIVEN or neighbors is None:
            return self.rows
        around = min(AROUND * neighbors.num_neighbors, len(self.rows))
        near = nearest(neighbors.scaled(self.rows.inputs), neighbors.scaled(self.held_out.inputs), around)
        return self.rows.take(torch.from_numpy(np.unique(near)))

    def _left_out(self, found: Regression) -> Tensor:
        if not found.family.is_gaussian:
            return _as_tensor(left_out_observations(found, self.rows).log_prob) - _jacobian(found)
        noise = found.hyperparameters.standardized("noise").double()
        moments = found.replace(rows=self.rows).infer(self.rows).leave_one_out()
        return left_out_densities(moments, self.rows, noise) / self.rows.num_outputs


def _densities(found: Regression, rows: Block) -> Tensor:
    """Return the mean standardised densities (b,) of the values of rows given those of a regression."""
    with torch.no_grad():
        if not found.family.is_gaussian:
            latent = predicted(found, rows.inputs, Origin(False, rows.targets.new_empty(0)))
            observed = latent.observed() if rows.fixed_noise is None else latent.observed(rows.fixed_noise)  # exposures
            targets = found.scaling.targets.inverse(rows.targets[:, 0])
            return _as_tensor(observed.log_prob(targets)) - _jacobian(found)
        function, (mean, noise) = found.process.at(rows.inputs), mean_and_noise(found.hyperparameters)
        variance = function.variance() + rows.observation_noise(noise)
        return observation_densities(rows, function.mean() + mean, variance[:, None]).mean(1)


def _jacobian(found: Regression) -> float:
    return found.scaling.targets.log_jacobian(1)


def _as_tensor(values: object) -> Tensor:
    return torch.as_tensor(values).double().reshape(-1)


def some(
    rows: Block,
    which: Tensor,  # (r,)
) -> Block:
    """Return some of the rows, with the arrays that the user gave for them if they are known."""
    if not isinstance(rows, ArrayRows):
        return rows.take(which)
    return ArrayRows(rows.given.take(which), rows.as_numpy, rows.scaling)


def start_of(begun: Regression, candidate: Candidate, rows: Rows, start: FittedCandidate | None) -> Regression:
    """Return the regression of rows under a candidate, at the hyperparameters of a start if it is used."""
    spec = begun.family
    assert isinstance(spec, ModelSpec)
    kept = {name: getattr(spec.options, name) for name in ("likelihood", "seed", "indicators")}
    first = started(spec.with_options(candidate.model.changed(**kept)), data_summary(begun), rows)
    if start is None or not is_warm(candidate, start):
        return first
    is_same = start.candidate is candidate and not candidate.is_on_lattices
    family = start.regression.family if is_same else first.family  # with its draws
    return first.replace(family=family, hyperparameters=start.regression.hyperparameters)


def is_warm(candidate: Candidate, start: FittedCandidate | None) -> bool:
    """Return whether a search starts at the hyperparameters of an earlier one.

    Learned frequencies start at their draw again, and exact kernels anew after few rows, which drive lengthscales to
    their bounds.
    """
    if start is None or candidate.learns_frequencies:
        return False
    return not candidate.is_exact or start.regression.num_observations >= MOST_LEFT_OUT
