"""The rows on which candidates are fitted and scored.

- Leave-one-out, for few rows and exact candidates: each distinct input is left out in turn, in closed form.
- Folds, for few rows per hyperparameter and for groups that the user names: candidates are refitted without each fold.
  Scores of rows to which many hyperparameters were fitted are too optimistic. Each row is predicted given all others at
  hyperparameters that were fitted without its fold. Groups and equal inputs are predicted without the rows of their
  fold.
- Held out, for many rows: held-out rows are predicted given *all* the others, because neighbors gain from density. This
  does not depend on the number of rows that the hyperparameters were fitted to. "forward" holds out the last rows.

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
from rfgp.errors import DataError, SolverError
from rfgp.fitting import Plan, fit_terms
from rfgp.fitting.context import left_out_log_prob, observation_log_prob
from rfgp.local import nearest
from rfgp.regression import FitReport, GPState, initial_state, mean_and_noise
from rfgp.regression.observing import left_out_observations
from rfgp.regression.spec import data_summary, spec_of
from rfgp.regression.state import predicted
from rfgp.rows import ArrayRows, Block, Rows
from rfgp.rows.arrays import OutputFormat
from rfgp.selection.candidates import FEW_ROWS, Candidate
from rfgp.selection.groups import FORWARD, date_column, duplicate_labels, group_labels, merged_rows

MAX_LEFT_OUT = 1000
"""The largest number of rows of a leave-one-out score."""
HELD_OUT, MAX_HELD_OUT = 0.2, 4000
"""The share of rows that are held out, and their largest number."""
NUM_FOLDS, ROWS_PER_HYPERPARAMETER = 5, 20
"""The number of folds, and the rows per hyperparameter of a sum of two kernels below which folds are used."""
SUBSET_ITERATIONS, AVERAGING_GAIN = 15, 0.1
"""The largest number of iterations of an exact candidate on a subset or without a fold, and the gain of the last five
iterations, in nats, below which a search ends if candidates are averaged."""
HELD_OUT_GAIN = 2e-4
"""The gain of the last five iterations, in nats a row, below which a search ends if it is scored on held-out rows.
Searches with neighbors have short rounds instead."""
MAX_CONDITIONED, NEIGHBOR_FACTOR, MAX_AUTOMATIC = 2**17, 2, 20_000
"""The largest number of rows that a score with neighbors is conditioned on. Beyond it, the nearest rows of each
held-out row are used, `NEIGHBOR_FACTOR` times the number of neighbors. The last limit is for automatic ones."""


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """A candidate that was fitted to some rows.

    Attributes:
        candidate: The candidate.
        state: The model state of these rows, with the hyperparameters found.
        report: The report of the fit.
        log_prob: The mean log densities of the values of validation rows, in the user's units, (b,).
        searched: The number of rows that the hyperparameters were fitted to, at least the requested number.
        used_all_rows: Whether the fit used all rows.
    """

    candidate: Candidate
    state: GPState
    report: FitReport
    log_prob: Tensor
    searched: int
    used_all_rows: bool


@dataclass(frozen=True, eq=False)
class Validation:
    """The rows on which candidates are fitted, and those on which they are scored.

    Attributes:
        state: The model state of all rows before a candidate is chosen.
        plan: The options of the fit.
        rows: The rows that candidates are fitted to, in random order if some are held out.
        held_out: The held-out rows. If None, each row is left out in turn, alone or with its fold.
        folds: The row numbers of each fold. Empty if there are none.
        conditions_on_fold: Whether each row is predicted given all others, those of its fold included.
        groups: How rows are kept together or ordered: None, "forward", or the key of a column.
        are_exact: Whether all candidates are exact.
    """

    state: GPState
    plan: Plan
    rows: Block
    held_out: Block | None = None
    folds: tuple[Tensor, ...] = ()
    conditions_on_fold: bool = False
    groups: Any = None
    are_exact: bool = False

    @classmethod
    def of(cls, state: GPState, plan: Plan, candidates: Sequence[Candidate], groups: Any = None) -> "Validation":
        """Return the validation of a model.

        Args:
            state: The state of the model.
            plan: The options of the fit.
            candidates: The candidates. Learned frequencies need held-out rows, because they were fitted to the others.
            groups: How rows are kept together or ordered: None, "forward", or the key of a column.

        Raises:
            InvalidArgumentError: If there is no such column, or no column of dates for "forward".
            DataError: If there is one group.
        """
        rows, count = merged_rows(state)
        generator = random.generator(state.spec.options.seed, random.Role.CHOICE)
        num_held_out = min(math.ceil(HELD_OUT * len(rows)), MAX_HELD_OUT)
        if groups == FORWARD:
            order = rows.inputs[:, date_column(state)].argsort()
        else:
            of_rows = duplicate_labels(rows) if groups is None else group_labels(state, rows, groups)
            labels = torch.from_numpy(of_rows)
            num_groups = int(labels.max()) + 1
            if num_groups < 2 and groups is not None:
                raise DataError(f"Rows of at least two groups are needed, got one value of {groups!r}.")
            ranks = torch.randperm(num_groups, generator=generator)[labels]
            if count <= FEW_ROWS and not any(candidate.learns_frequencies for candidate in candidates):
                validation = cls._of_few(state, plan, rows, ranks, groups)
                return replace(validation, are_exact=all(candidate.is_exact for candidate in candidates))
            order = ranks.argsort(stable=True)
            num_held_out = min(int((ranks >= ranks[order[-num_held_out]]).sum()), len(rows) - 1)  # whole groups
        held_out, training = order[len(order) - num_held_out :], order[: len(order) - num_held_out]
        training = training[torch.randperm(len(training), generator=generator)]
        return cls(state, plan, some(rows, training), some(rows, held_out), groups=groups)

    @classmethod
    def _of_few(cls, state: GPState, plan: Plan, rows: Block, ranks: Tensor, groups: Any) -> "Validation":
        """Return leave-one-out or folds, given the ranks (n,) of the rows' groups."""
        if len(rows) > MAX_LEFT_OUT:
            indices = ranks.argsort(stable=True)[:MAX_LEFT_OUT]
            rows, ranks = some(rows, indices), ranks[indices]
        hyperparameters, num_groups = 2 * rows.inputs.shape[1] + 3, int(ranks.max()) + 1
        has_few = state.spec.is_gaussian and len(rows) < ROWS_PER_HYPERPARAMETER * hyperparameters
        num_folds = min(NUM_FOLDS, num_groups) if num_groups > 1 and (has_few or groups is not None) else 0
        folds = [(ranks % num_folds == fold).nonzero()[:, 0] for fold in range(num_folds)]
        conditions_on_fold = groups is None and num_groups == len(ranks)
        return cls(state, plan, rows, None, tuple(fold for fold in folds if len(fold)), conditions_on_fold, groups)

    @property
    def validated(self) -> Block:
        """The rows on which candidates are scored."""
        return self.rows if self.held_out is None else self.held_out

    @property
    def name(self) -> str:
        """The method of validation in words."""
        if self.groups is not None:
            return "the last rows" if self.groups == FORWARD else f"groups of {self.groups}"
        if self.held_out is not None:
            return "held out"
        return f"{len(self.folds)} folds" if self.folds else "leave-one-out"

    @property
    def averages(self) -> bool:
        """Whether candidates are averaged: exact ones with Gaussian noise and one output."""
        is_simple = self.state.spec.is_gaussian and self.rows.num_outputs == 1
        return self.are_exact and self.held_out is None and is_simple

    @property
    def fits_all_rows(self) -> bool:
        """Whether candidates are fitted to all rows, so that no fit has to follow."""
        return self.held_out is None and self.rows.count == self.state.require_rows(purpose="a fit").count

    @cached_property
    def constant(self) -> Tensor:
        """The log densities (b,) of validation rows under a constant prediction."""
        rows, weight = self.rows, self.rows.counts()[:, None]
        mean = (weight * rows.targets).sum(0) / weight.sum()
        squares = weight * (rows.targets - mean).square() + (
            0.0 if rows.replicate_sum_of_squares is None else rows.replicate_sum_of_squares
        )
        variance = (squares.sum(0) / weight.sum()).clamp_min(1e-30)
        return observation_log_prob(self.validated, mean, variance).mean(1) + self.jacobian

    @property
    def jacobian(self) -> float:
        """The log Jacobian of the standardization of a target."""
        return self.state.scaling.targets.log_jacobian(1) / self.validated.num_outputs

    # --- fits ------------------------------------------------------------------------------------

    def plan_of(self, candidate: Candidate, start: FittedCandidate | None, plan: Plan | None = None) -> Plan:
        """Return the options of a fit, whose search is shorter if candidates are averaged.

        Args:
            candidate: The candidate.
            start: The fit at which the search may start, or None.
            plan: The options to change. If None, those of the validation.
        """
        plan = replace(plan or self.plan, is_continued=is_warm(candidate, start))
        return replace(plan, least_gain=AVERAGING_GAIN) if self.averages else plan

    def fitted(
        self, candidate: Candidate, size: int, start: FittedCandidate | None, plan: Plan | None = None
    ) -> FittedCandidate:
        """Fit a candidate to some rows and score it.

        Args:
            candidate: The candidate.
            size: The number of rows that its hyperparameters are fitted to. If there are fewer, all rows.
            start: A fit at whose hyperparameters the search starts: of the candidate, or of one with neighbors and
                another kernel.
            plan: The options of the fit. If None, those of the validation.

        Returns:
            The fitted candidate, with its log densities of validation rows.

        Raises:
            SolverError: If the density of a row is not finite.
            RfgpError: If the fit failed.
        """
        size, plan = min(size, len(self.rows)), self.plan_of(candidate, start, plan)
        uses_all, has_neighbors = size == len(self.rows), candidate.neighbors is not None
        is_final = uses_all and self.fits_all_rows
        rows: Rows = self.rows if has_neighbors or uses_all else some(self.rows, torch.arange(size))
        if is_final and self.rows.replicate_sum_of_squares is None:
            rows = self.state.require_rows(purpose="a fit")  # the last fit, as it would be without other candidates
        plan = replace(plan, most_rows=size if has_neighbors and not is_final else None)
        if self.held_out is not None and not has_neighbors:
            plan = replace(plan, least_gain=max(plan.least_gain, HELD_OUT_GAIN * size))
        if candidate.is_exact and not is_final:
            plan = replace(plan, iteration_limit=min(SUBSET_ITERATIONS, plan.max_iterations))
        state, report = fit_terms(start_of(self.state, candidate, rows, start), plan)
        log_prob, searched = self._log_prob(state, candidate), max([size, *(stage.rows for stage in report.stages)])
        if not bool(torch.isfinite(log_prob).all()):
            raise SolverError("the density of a row is not finite")
        return FittedCandidate(candidate, state, report, log_prob, searched, is_final)

    def scored_in_folds(self, fitted: FittedCandidate) -> FittedCandidate:
        """Return a fitted candidate with log densities from refits without each fold.

        Rows are conditioned on the others of their fold as well, unless inputs are equal or grouped. Conditioned on
        four fifths of the rows, noise-free targets get a score that is too low.

        Args:
            fitted: The candidate, fitted to all rows.
        """
        log_prob, hyperparameters = torch.empty_like(fitted.log_prob), fitted.state.hyperparameters
        plan = replace(self.plan_of(fitted.candidate, None), is_continued=True)
        plan = replace(plan, iteration_limit=min(SUBSET_ITERATIONS, plan.max_iterations))
        for fold in self.folds:
            is_in_fold = torch.zeros(len(self.rows), dtype=torch.bool)
            is_in_fold[fold] = True
            others = some(self.rows, (~is_in_fold).nonzero()[:, 0])
            initial = start_of(self.state, fitted.candidate, others, None)
            initial = initial.replace(hyperparameters=initial.hyperparameters.replaced(hyperparameters.raw))
            refitted, _ = fit_terms(initial, plan)
            if self.conditions_on_fold:
                left_out = self._left_out(fitted.state.replace(hyperparameters=refitted.hyperparameters))[fold]
            else:
                left_out = _observation_log_prob(refitted, self.rows.take(fold))
            log_prob[fold] = left_out + self.jacobian
        return replace(fitted, log_prob=log_prob)

    # --- log densities -----------------------------------------------------------------------------

    def _log_prob(self, state: GPState, candidate: Candidate) -> Tensor:
        """Return the log densities of validation rows (b,) given all the others."""
        with torch.no_grad():
            if self.held_out is None:
                return self._left_out(state) + self.jacobian
            rows = self._conditioning_rows(state, candidate, self.held_out)
            spec = state.spec.extended_to_range(state.hyperparameters, rows)
            state = state.replace(spec=spec, rows=rows, num_observations=len(rows))
            return _observation_log_prob(state, self.held_out) + self.jacobian

    def _conditioning_rows(self, state: GPState, candidate: Candidate, held_out: Block) -> Block:
        """Return the rows that held-out predictions are conditioned on."""
        if candidate.is_equispaced_or_automatic:
            return self.rows.take(slice(0, MAX_AUTOMATIC))
        neighbors = state.prior().neighbors
        if len(self.rows) <= MAX_CONDITIONED or neighbors is None:
            return self.rows
        around = min(NEIGHBOR_FACTOR * neighbors.num_neighbors, len(self.rows))
        near = nearest(neighbors.scaled(self.rows.inputs), neighbors.scaled(held_out.inputs), around)
        return self.rows.take(torch.from_numpy(np.unique(near)))

    def _left_out(self, state: GPState) -> Tensor:
        """Return the standardized log densities of each row given all others (b,)."""
        if not state.spec.is_gaussian:
            return _as_standardized(state, left_out_observations(state, self.rows).log_prob)
        noise = state.hyperparameters.standardized("noise").double()
        moments = state.replace(rows=self.rows).infer(self.rows).leave_one_out()
        return left_out_log_prob(moments, self.rows, noise) / self.rows.num_outputs


def _observation_log_prob(state: GPState, rows: Block) -> Tensor:
    """Return the mean log densities (b,) of standardized targets given a model state."""
    with torch.no_grad():
        if not state.spec.is_gaussian:
            latent = predicted(state, rows.inputs, OutputFormat(False, rows.targets.new_empty(0)))
            observed = latent.observed() if rows.fixed_noise is None else latent.observed(rows.fixed_noise)  # exposures
            targets = state.scaling.targets.inverse(rows.targets[:, 0])
            return _as_standardized(state, observed.log_prob(targets))
        function, (mean, noise) = state.process.at(rows.inputs), mean_and_noise(state.hyperparameters)
        variance = function.variance() + rows.observation_noise(noise)
        return observation_log_prob(rows, function.mean() + mean, variance[:, None]).mean(1)


def _as_standardized(state: GPState, log_prob: object) -> Tensor:
    """Return log densities (b,) in the user's units as those of standardized targets."""
    return torch.as_tensor(log_prob).double().reshape(-1) - state.scaling.targets.log_jacobian(1)


def some(
    rows: Block,
    indices: Tensor,  # (r,)
) -> Block:
    """Return some of the rows, with the arrays that the user gave if the rows have them.

    Args:
        rows: The rows.
        indices: The indices of the rows, (r,).
    """
    if not isinstance(rows, ArrayRows):
        return rows.take(indices)
    return ArrayRows(rows.chunk.take(indices), rows.as_numpy, rows.scaling)


def start_of(state: GPState, candidate: Candidate, rows: Rows, start: FittedCandidate | None) -> GPState:
    """Return the model state of rows under a candidate, at a start if it is warm.

    Args:
        state: The state of the model before the fit.
        candidate: The candidate.
        rows: The rows.
        start: A fit at whose hyperparameters the search may start, or None.
    """
    spec = spec_of(state)
    kept = {name: getattr(spec.options, name) for name in ("likelihood", "seed", "indicators")}
    initial = initial_state(spec.with_options(candidate.model.changed(**kept)), data_summary(state), rows)
    if start is None or not is_warm(candidate, start):
        return initial
    keeps_draws = start.candidate is candidate and not candidate.is_equispaced_or_automatic
    used = start.state.spec if keeps_draws else initial.spec
    return initial.replace(spec=used, hyperparameters=start.state.hyperparameters)


def is_warm(candidate: Candidate, start: FittedCandidate | None) -> bool:
    """Return whether a search starts at the hyperparameters of an earlier one.

    Learned frequencies start at their draw. Exact kernels start anew after few rows, which drive lengthscales to their
    bounds.

    Args:
        candidate: The candidate.
        start: The earlier fit, or None.
    """
    if start is None or candidate.learns_frequencies:
        return False
    return not candidate.is_exact or start.state.num_observations >= MAX_LEFT_OUT
