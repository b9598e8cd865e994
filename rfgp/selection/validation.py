"""Scores of candidates on held-out rows or folds, and weights of averages.

- Leave-one-out, for few rows and exact candidates: each distinct input is left out in turn, in closed form. The
  hyperparameters were fitted to the same rows, so `OPTIMISM` is subtracted for each.
- Folds, for few rows in groups that the user names: candidates are refitted without each fold.
- Held out, for many rows: held-out rows are predicted given *all* the others, because neighbors gain from density. This
  does not depend on the number of rows that the hyperparameters were fitted to. "forward" holds out the last rows.

Rows with equal inputs stay together, unless new rows are expected to have known inputs.

With few rows, leave-one-out scores do not determine the best kernel, because the hyperparameters were fitted to the
same rows. An average avoids this choice, and its variance is larger at points where the kernels disagree.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import DataError, SolverError
from rfgp.fitting import Plan, fit_terms
from rfgp.fitting.context import observation_log_prob, of_observations
from rfgp.fitting.frequencies import mean_and_standard_error
from rfgp.fitting.maximize import Coordinates
from rfgp.limits import limits
from rfgp.local import nearest
from rfgp.models import FitReport, GPState, Score, initial_state, mean_and_noise
from rfgp.models.state import data_summary, predicted, row_numbers
from rfgp.rows import ArrayRows, Block, Rows, is_read_in_blocks
from rfgp.rows.sources import OutputFormat
from rfgp.selection.candidates import Candidate
from rfgp.selection.groups import FORWARD, NUM_FOLDS, date_column, duplicate_labels, group_labels, merged_rows

# --- The rows on which candidates are fitted and scored --------------------------------------------------------------

LEAVE_ONE_OUT = "leave-one-out"
"""The name of the validation by all rows, each given all others."""
HELD_OUT_FRACTION = 0.2
"""The fraction of rows that are held out."""
OPTIMISM = 2.0
"""The nats by which all leave-one-out densities of a fit exceed those of new rows, for each free hyperparameter.

Akaike's criterion counts one for the likelihood. Chosen from 1 to 4 on tables that no
benchmark has, where scores are then 0.01 nats a row too high with the noise chosen."""
MIN_SHARE = 0.01
"""The share of the largest variance of a linear kernel below which that of a column does not count."""
OPTIMISM_ERROR = 0.5
"""The standard error of this number, as a part of it.

There 68 of 72 printed scores are within two standard errors of those of new rows, errors of both sides included."""
SUBSET_ITERATIONS = 15
"""The maximum number of iterations of an exact candidate on a subset or without a fold.

With 10, 1,000 rows of Friedman's first function take a tenth longer, at the same density."""
AVERAGING_GAIN = 1e-3
"""The gain of the last five iterations, in nats a row, below which a search ends if candidates are averaged.

At 1,000 rows of ten columns it halves the evaluations, and scores fall by up to 0.005 nats a row."""
HELD_OUT_GAIN = 2e-4
"""The gain of the last five iterations, in nats a row, below which a search ends if it is scored on held-out rows.
Searches with neighbors have short rounds instead."""
MAX_CONDITIONING_ROWS = 2**17
"""The number of rows above which a score with neighbors is conditioned on the nearest rows of each held-out row."""


ScoredRows = tuple[Tensor, tuple[Tensor, Tensor] | None]
"""The log densities of rows (b,), and their predictive means and variances, (b,) each, if these determine them."""


@dataclass(frozen=True, eq=False)
class FittedCandidate:
    """A candidate that was fitted to rows.

    Attributes:
        candidate: The candidate.
        state: The model state of these rows, with the hyperparameters found.
        report: The report of the fit.
        log_prob: The mean log densities of the values of validation rows, in the user's units, (b,).
        num_search_rows: The number of rows that the hyperparameters were fitted to, at least the requested number.
        optimism: The nats a row that were subtracted from log densities of rows that the fit used.
        moments: The standardized means and predictive variances of an observation of each validation row, (b,) each.
            None if the likelihood is not Gaussian, or there are several outputs.
    """

    candidate: Candidate
    state: GPState
    report: FitReport
    log_prob: Tensor
    num_search_rows: int
    optimism: float = 0.0
    moments: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Validation:
    """The rows on which candidates are fitted, and those on which they are scored.

    Attributes:
        state: The model state of all rows before a candidate is chosen.
        plan: The options of the fit.
        rows: The rows that candidates are fitted to, in random order if some are held out.
        order: The row numbers in random order, of which the first are those of a round with fewer rows.
        held_out: The held-out rows. If None, each row is left out in turn, alone or with its fold.
        folds: The row numbers of each fold. Empty if there are none.
        groups: How rows are kept together or ordered: None, "forward", or the key of a column.
        all_candidates_exact: Whether all candidates are exact.
    """

    state: GPState
    plan: Plan
    rows: Block
    order: Tensor
    held_out: Block | None = None
    folds: tuple[Tensor, ...] = ()
    groups: Any = None
    all_candidates_exact: bool = False

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
        num_held_out = min(math.ceil(HELD_OUT_FRACTION * len(rows)), limits().max_held_out)
        if groups == FORWARD:
            order = rows.inputs[:, date_column(state)].argsort()
        else:
            of_rows = duplicate_labels(state, rows) if groups is None else group_labels(state, rows, groups)
            labels = torch.from_numpy(of_rows)
            num_groups = int(labels.max()) + 1
            if num_groups < 2 and groups is not None:
                raise DataError(f"Rows of at least two groups are needed, got one value of {groups!r}.")
            group_order = torch.randperm(num_groups, generator=generator)[labels]
            if count <= limits().few_rows and not any(candidate.learns_frequencies for candidate in candidates):
                if len(rows) > limits().first_rows:
                    indices = _across(group_order)[: limits().first_rows]
                    rows, group_order = take_rows(rows, indices), group_order[indices]
                group_order = torch.from_numpy(np.unique(group_order.numpy(), return_inverse=True)[1])
                num_groups = int(group_order.max()) + 1
                has_folds = groups is not None or (state.spec.is_gaussian and num_groups < len(rows))
                num_folds = min(NUM_FOLDS, num_groups) if has_folds and num_groups > 1 else 0
                folds = tuple((group_order % num_folds == fold).nonzero()[:, 0] for fold in range(num_folds))
                are_exact = all(candidate.is_exact for candidate in candidates)
                return cls(state, plan, rows, group_order.argsort(stable=True), None, folds, groups, are_exact)
            order = group_order.argsort(stable=True)
            is_held_out = group_order >= group_order[order[-num_held_out]]  # whole groups
            num_held_out = min(int(is_held_out.sum()), len(rows) - 1)
        held_out, training = order[len(order) - num_held_out :], order[: len(order) - num_held_out]
        training = training[torch.randperm(len(training), generator=generator)]
        order = torch.arange(len(training))
        return cls(state, plan, take_rows(rows, training), order, take_rows(rows, held_out), groups=groups)

    @property
    def validation_rows(self) -> Block:
        """The rows on which candidates are scored."""
        return self.rows if self.held_out is None else self.held_out

    @property
    def name(self) -> str:
        """The name of the validation method, such as "leave-one-out", or "5 folds" of rows with equal inputs."""
        if self.groups is not None:
            return "the last rows" if self.groups == FORWARD else f"groups of {self.groups}"
        if self.folds:
            return f"{len(self.folds)} folds"
        return LEAVE_ONE_OUT if self.held_out is None else "held out"

    @property
    def uses_stacking(self) -> bool:
        """Whether to average, which needs exact candidates, Gaussian noise and one output."""
        is_simple = self.state.spec.is_gaussian and self.rows.num_outputs == 1
        return self.all_candidates_exact and self.held_out is None and is_simple

    def is_final(self, num_rows: float) -> bool:
        """Return whether a fit to so many rows uses all rows, so that no fit has to follow."""
        fits_all_rows = self.held_out is None and self.rows.count == self.state.require_rows(purpose="a fit").count
        return fits_all_rows and num_rows >= len(self.rows)

    @property
    def constant_log_prob(self) -> Tensor:
        """The log densities (b,) of validation rows under a constant prediction."""
        rows, weight, squares = self.rows, self.rows.counts()[:, None], self.rows.replicate_sum_of_squares
        mean = (weight * rows.targets).sum(0) / weight.sum()
        squares = weight * (rows.targets - mean).square() + (0.0 if squares is None else squares)
        variance = (squares.sum(0) / weight.sum()).clamp_min(1e-30)
        return observation_log_prob(self.validation_rows, mean, variance).mean(1) + jacobian(self.state, rows)

    # --- fits ------------------------------------------------------------------------------------

    def plan_for(self, start: FittedCandidate | None, plan: Plan | None = None) -> Plan:
        """Return the options of a fit, whose search is shorter if candidates are averaged.

        Args:
            start: The fit at which the search starts, or None.
            plan: The options to change. If None, those of the validation.
        """
        plan = replace(plan or self.plan, is_continued=start is not None)
        return replace(plan, least_gain=AVERAGING_GAIN * len(self.rows)) if self.uses_stacking else plan

    def fitted(self, candidate: Candidate, size: int, start: FittedCandidate | None, plan: Plan) -> FittedCandidate:
        """Fit a candidate and score it.

        Args:
            candidate: The candidate.
            size: The number of rows that its hyperparameters are fitted to. If there are fewer, all rows.
            start: A fit at whose hyperparameters the search starts: of the candidate, or of one with neighbors and
                another kernel.
            plan: The options of the fit.

        Returns:
            The fitted candidate, with its log densities of validation rows.

        Raises:
            SolverError: If the density of a row is not finite.
            RfgpError: If the fit failed.
        """
        size, plan = min(size, len(self.rows)), self.plan_for(start, plan)
        is_final, has_neighbors = self.is_final(size), candidate.neighbors is not None
        rows: Rows = self.rows
        if size < len(self.rows) and not has_neighbors:
            rows = take_rows(self.rows, self.order[:size])
        if is_final and self.rows.replicate_sum_of_squares is None:
            rows = self.state.require_rows(purpose="a fit")  # the last fit, as it would be without other candidates
        plan = replace(plan, most_rows=size if has_neighbors and not is_final else None)
        if self.held_out is not None and not has_neighbors:
            plan = replace(plan, least_gain=max(plan.least_gain, HELD_OUT_GAIN * size))
        if candidate.is_exact and not is_final:
            plan = replace(plan, iteration_limit=min(SUBSET_ITERATIONS, plan.max_iterations))
        state, report = fit_terms(initial_state_for(self.state, candidate, rows, start), plan)
        if self.held_out is None:
            log_prob, moments = scored(state, self.rows, is_left_out=True)
        else:
            given = self._conditioning_rows(state, candidate, self.held_out)
            log_prob, moments = scored(conditioned(state, given), self.held_out)
        optimism = optimism_of(state, plan.fixed, self.rows.count) if self.held_out is None else 0.0
        log_prob = log_prob - optimism
        searched = max([size, *(stage.rows for stage in report.stages)])
        if not bool(torch.isfinite(log_prob).all()):
            raise SolverError("the density of a row is not finite")
        return FittedCandidate(candidate, state, report, log_prob, searched, optimism, moments)

    def scored_in_folds(self, fitted: FittedCandidate) -> FittedCandidate:
        """Return a fitted candidate with log densities from refits without each fold.

        Args:
            fitted: The candidate, fitted to all rows.

        Raises:
            SolverError: If the density of a row is not finite.
        """
        log_prob, moments = torch.empty_like(fitted.log_prob), fitted.moments
        moments = moments and (torch.empty_like(moments[0]), torch.empty_like(moments[1]))
        plan = self.plan_for(fitted)
        plan = replace(plan, iteration_limit=min(SUBSET_ITERATIONS, plan.max_iterations))
        for fold in self.folds:
            others = take_rows(self.rows, torch.from_numpy(np.setdiff1d(np.arange(len(self.rows)), fold.numpy())))
            refitted, _ = fit_terms(initial_state_for(self.state, fitted.candidate, others, fitted), plan)
            log_prob[fold], of_fold = scored(refitted, self.rows.take(fold))
            for all_rows, of_rows in zip(moments or (), of_fold or (), strict=True):
                all_rows[fold] = of_rows
        if not bool(torch.isfinite(log_prob).all()):
            raise SolverError("the density of a row is not finite")
        return replace(fitted, log_prob=log_prob, moments=moments, optimism=0.0)

    def _conditioning_rows(self, state: GPState, candidate: Candidate, held_out: Block) -> Block:
        """Return the rows that predictions of held-out rows are conditioned on."""
        if candidate.is_equispaced_or_automatic:
            return self.rows.take(slice(0, limits().lattice_rows))
        with torch.no_grad():
            neighbors = state.prior().neighbors
        if len(self.rows) <= MAX_CONDITIONING_ROWS or neighbors is None:
            return self.rows
        around = min(2 * neighbors.num_neighbors, len(self.rows))
        indices = nearest(neighbors.scaled(self.rows.inputs), neighbors.scaled(held_out.inputs), around)
        return self.rows.take(torch.from_numpy(np.unique(indices)))


def scored(state: GPState, rows: Block, *, is_left_out: bool = False) -> ScoredRows:
    """Return the mean log densities of the values of rows in the user's units, and their moments.

    Args:
        state: The model state.
        rows: The rows.
        is_left_out: Whether each row is predicted from all others of them, and not from those of the state.
    """
    with torch.no_grad():
        if not state.spec.is_gaussian:
            if is_left_out:
                log_prob = state.leave_one_out(rows).log_prob
            else:
                latent = predicted(state, rows.inputs, OutputFormat(False, rows.targets.new_empty(0)))
                log_prob = latent.observed(**row_numbers(state, rows)).log_prob(
                    state.scaling.targets.inverse(rows.targets[:, 0])
                )
            return torch.as_tensor(log_prob).double().reshape(-1), None
        if is_left_out:
            noise = state.hyperparameters.standardized("noise").double()
            left_out = state.replace(rows=rows).infer(rows).leave_one_out()
            mean, variance = of_observations(left_out, rows, noise)
        else:
            function, (center, noise) = state.latent(rows.inputs), mean_and_noise(state.hyperparameters)
            mean, variance = function.mean() + center, (function.variance() + rows.observation_noise(noise))[:, None]
        log_prob = observation_log_prob(rows, mean, variance).mean(1) + jacobian(state, rows)
        return log_prob, (mean[:, 0], variance[:, 0]) if mean.shape[1] == 1 else None


def jacobian(state: GPState, rows: Block) -> float:
    """Return the log Jacobian of the standardization of a target.

    Args:
        state: The model state.
        rows: Some of its rows.
    """
    return state.scaling.targets.log_jacobian(1) / rows.num_outputs


def optimism_of(state: GPState, fixed: tuple[str, ...], count: float) -> float:
    """Return the nats a row by which leave-one-out densities exceed those of new rows.

    Lengthscales and variances of columns that have no effect do not count as free.

    Args:
        state: The state at the hyperparameters found.
        fixed: The names of fixed hyperparameters.
        count: The number of rows that are scored.
    """
    values = state.hyperparameters
    free = values.space.free(fixed)
    if not free:
        return 0.0
    active = values.vector(free) < Coordinates.of(values.space, free).saturation
    sizes = [values.raw[name] for name in free]
    shares = torch.cat([(raw - raw.max()).exp().reshape(-1) for raw in sizes]).detach().cpu().numpy()
    of_variances = np.repeat([name.endswith("variance") for name in free], [raw.numel() for raw in sizes])
    return OPTIMISM * float(np.sum(active & ~(of_variances & (shares < MIN_SHARE)))) / count


def _across(group_order: Tensor) -> Tensor:
    """Return row numbers (n,): one row of each group in the groups' order, then another one of each, and so on."""
    by_group, counts = group_order.argsort(stable=True), group_order.bincount()
    ranks = torch.arange(len(group_order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return by_group[ranks.argsort(stable=True)]


def take_rows(
    rows: Block,
    indices: Tensor,  # (r,)
) -> Block:
    """Return rows with given indices, with the user's arrays if the rows have them.

    Args:
        rows: The rows.
        indices: The indices of the rows, (r,).
    """
    if not isinstance(rows, ArrayRows):
        return rows.take(indices)
    return ArrayRows(rows.chunk.take(indices), rows.as_numpy, rows.scaling)


def initial_state_for(state: GPState, candidate: Candidate, rows: Rows, start: FittedCandidate | None) -> GPState:
    """Return the initial state of a fit, at earlier hyperparameters if possible.

    Args:
        state: The state of the model before the fit.
        candidate: The candidate.
        rows: The rows.
        start: A fit at whose hyperparameters the search starts, or None.
    """
    spec = state.spec
    common = {name: getattr(spec.options, name) for name in ("likelihood", "seed", "indicators", "selects_noise")}
    initial = initial_state(spec.with_options(candidate.model.changed(**common)), data_summary(state), rows)
    if candidate.is_equispaced_or_automatic and len(rows) < state.num_observations:
        initial = _as_planned_for(initial, state)
    if start is None:
        return initial
    keeps_draws = start.candidate is candidate and not candidate.is_equispaced_or_automatic
    used = start.state.spec if keeps_draws else initial.spec
    return initial.replace(spec=used, hyperparameters=start.state.hyperparameters)


def _as_planned_for(initial: GPState, state: GPState) -> GPState:
    """Return the initial state of few rows with the approximations of more rows, so that their score is that of these.

    With 100,000 rows, equispaced grids for at most 20,000 rows take half the time, and the cube of
    `benchmarks/races/low_dimensions.py` has the same score.

    Args:
        initial: The initial state of few rows.
        state: The state of the model before the fit, with all rows.
    """
    spec, in_blocks = initial.spec, is_read_in_blocks(state.require_rows(purpose="a fit"))
    given, values = spec.options.approximations, initial.hyperparameters
    num_rows = min(state.num_observations, limits().lattice_rows)
    planned = spec.with_approximations(given, values, num_rows, in_blocks=in_blocks).approximations
    return initial.replace(spec=spec.with_approximations(planned, values, initial.num_observations))


def conditioned(state: GPState, rows: Rows) -> GPState:
    """Return a model state given other rows, with lattices over their range.

    Args:
        state: The state at the hyperparameters found.
        rows: The rows.
    """
    spec = state.spec.extended_to_range(state.hyperparameters, rows)
    return state.replace(spec=spec, rows=rows, num_observations=len(rows))


# --- Scores ----------------------------------------------------------------------------------------------------------


def score_of(rows: int, log_prob: Tensor, other: Tensor, weight: Tensor, optimism: float = 0.0) -> Score:
    """Return a score, and the difference of another one from it.

    Args:
        rows: The number of rows of the fit.
        log_prob: The log densities of validation rows, (b,).
        other: Those of the other one, (b,).
        weight: The number of times that each validation row counts, (b,).
        optimism: The nats a row that were subtracted from the log densities, with an error.
    """
    mean, error = mean_and_standard_error(log_prob, weight)
    error = math.hypot(error, OPTIMISM_ERROR * optimism)
    return Score(rows, mean, error, *mean_and_standard_error(other - log_prob, weight))


# --- Averages of exact Gaussian processes whose scores are close -----------------------------------------------------

PRIOR_ROWS = 5.0
"""The prior weight of each candidate, in rows. Without it, sums of kernels with too many hyperparameters get all of the
weight (`benchmarks.races.defaults`)."""
MIN_WEIGHT = 0.02
"""The weight below which a candidate is dropped."""


def stacking_weights(
    log_probs: Sequence[Tensor],  # (n,) each
    counts: Tensor,  # (n,)
) -> list[float]:
    """Return the stacking weights under a Dirichlet prior.

    They are 0 below `MIN_WEIGHT`. The prior adds `PRIOR_ROWS` rows to each candidate. The objective is concave, and
    maximized by expectation maximization.

    Source: Yao, Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive distributions",
    Bayesian Analysis 13(3), Section 3.2, without the prior.

    Args:
        log_probs: The log densities of each row given all others, by each candidate.
        counts: The number of observations of each row.

    Returns:
        The weight of each candidate. The weights sum to 1.
    """
    log_likelihoods = torch.stack(list(log_probs), dim=1).double()  # (n, k)
    likelihoods = (log_likelihoods - log_likelihoods.max(1, keepdim=True).values).exp()
    num_candidates = likelihoods.shape[1]
    weights = torch.full_like(likelihoods[0], 1 / num_candidates)
    total = counts.sum() + PRIOR_ROWS * num_candidates
    for _ in range(1000):
        responsibilities = likelihoods * weights
        responsibilities = counts[:, None] * responsibilities / responsibilities.sum(1, keepdim=True)
        updated = (responsibilities.sum(0) + PRIOR_ROWS) / total
        has_converged = bool((updated - weights).abs().max() < 1e-6)
        weights = updated
        if has_converged:
            break
    large = torch.where(weights >= min(MIN_WEIGHT, float(weights.max())), weights, 0.0)
    return [float(weight) for weight in large / large.sum()]
