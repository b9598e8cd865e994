"""Fitting features and a nearest-neighbor (Vecchia) process by one likelihood.

Distances to neighbors are in lengthscales of that process. Neighbors are fixed during a search and found again after
it. For many rows the likelihood is that of 16,384 of them, each given its neighbors among all rows. Without the other
rows, these would be less dense. If blocks of rows share neighbors and there are no features, 4,096 rows are used.
Features are marginalized, so that only these rows determine the weights. Frequencies are learned in
`fit_learned_with_neighbors`.

The likelihood has several optima, because features may explain structure that neighbors would explain better. So there
is also a search with neighbors alone. If it ends at a higher likelihood after as many iterations, a second search with
weak features starts there. The likelier result is kept.

If neighbors are the residual of inducing points, neighbors alone estimate the same kernel in a tenth of the time. So
the search starts with neighbors alone, and points are selected among the rows at the lengthscales found.

Learning frequencies together with a nearest-neighbor process.
Frequencies that are learned alone explain structure that neighbors would explain better. With neighbors they overfit
few rows. So a tenth of the rows is held out, at most 2,000, and scores these candidates by their log predictive
density:

1. Fixed frequencies and neighbors, fitted by their likelihood.
2. Learned frequencies alone (`rfgp.fitting.frequencies`), with neighbors switched off.
3. Frequencies, neighbors and hyperparameters, fitted by one likelihood from the better of the two. After every 25
   iterations the neighbors are found again and the held-out rows are scored. The best of these steps is kept.

Half of the held-out rows, for validation, selects steps and candidates. The first candidate is kept unless the selected
one is better on the test half by more than a standard error. There are at most n / (10 d) frequencies, because
neighbors replace many of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal

from rfgp.approximations import RandomFeatures
from rfgp.blocks import Prior, VecchiaBlock, predecessors_in_blocks
from rfgp.fitting.context import HELD_OUT, TOLERANCE, TermFit
from rfgp.fitting.driver import ROUNDS, in_rounds, learn_basis, with_renewed_basis
from rfgp.fitting.frequencies import MAX_SCALE, MIN_LEARNED, PRIOR_SCALE, learned_frequencies, mean_and_standard_error
from rfgp.fitting.last_stage import if_finite, with_leave_one_out_scores
from rfgp.fitting.maximize import MIN_GAIN, Bounds, Evaluation, Objective, Plan, maximize, not_searched
from rfgp.fitting.starts import with_dense_start
from rfgp.fitting.subsets import fit_basis_functions
from rfgp.likelihoods.real import normal_log_prob
from rfgp.limits import limits
from rfgp.local import used
from rfgp.messages import counted
from rfgp.models import FitReport, GPState, mean_and_noise
from rfgp.models.report import TIME_OVER
from rfgp.models.state import some_terms, values_of_terms, with_basis_of, with_learned
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, gathered
from rfgp.solvers import WarmStart
from rfgp.solvers.whitened import WhitenedSolver
from rfgp.threads import in_one_thread

FIRST_ROWS = 2**10
"""The number of rows of the first searches with neighbors alone, if a search takes more than twice as many.

Without them 20,000 rows of three tables take 1.2 times as long."""
FIRST_ROUNDS, WEAK_FEATURES = 2, math.log(0.1)
"""The number of searches before starts are compared, and the log variance of weak features in variances of the targets.

Without the start from neighbors alone 600 rows of bike end lower by 287 nats."""

MAX_ROWS_SHARED_NEIGHBORS = 2**12
"""The maximum number of rows of a search in which rows share neighbors. Up to twice as many rows are all used."""
MIN_ROUND_GAIN, MIN_GAIN_OF_SUBSET_FIT = 2e-3, 2e-2
"""The smallest gain in nats a row for another search on the same rows, in a full fit and in a subset fit.

A subset fit scores a candidate on a subset of the rows, or continues from such a fit."""
ITERATIONS_PER_ROUND = 25
"""The number of iterations before neighbors are found again."""
FEW_FEATURES = 512
"""The maximum number of features for which matrix products use one thread (1,216 rows: 10 s instead of 16 s)."""

Rounds = tuple["NeighborFit", list[FitReport]]
"""The fit at the end of some searches, and their reports."""


@dataclass(frozen=True, eq=False)
class NeighborFit(TermFit):
    """The fit of a model with neighbors, whose rows are in their order.

    Attributes:
        most: The number of rows of a search, if there are twice as many.
    """

    most: int

    @classmethod
    def of(cls, state: GPState, plan: Plan) -> "NeighborFit":
        """Return the fit from a model state.

        Args:
            state: The model state with rows and neighbors, at its starting values.
            plan: The options of the fit.
        """
        rows = gathered(state.require_rows(purpose="a fit"))
        order = neighbors_of(state.prior()).order(len(rows))
        rows = rows.take(order)
        fit = cls(state, plan, rows, rows, order, plan.most_rows or limits().neighbor_rows)
        return replace(fit, most=MAX_ROWS_SHARED_NEIGHBORS) if fit.shares_neighbors and plan.most_rows is None else fit

    @property
    def near(self) -> VecchiaBlock:
        """The block of neighbors."""
        return neighbors_of(self.prior)

    @property
    def shares_neighbors(self) -> bool:
        """Whether the model has no features, and blocks of rows share neighbors."""
        return self.near.block_size > 1 and not self.near.is_residual and not self.of_features

    @property
    def of_features(self) -> tuple[str, ...]:
        """The dotted names of hyperparameters of features.

        Neighbors do not depend on them.
        """
        terms = [term for term in self.spec.terms if term.name in self.near.names]
        prefixes = tuple(prefix for term in terms for prefix in (f"{term.name}.", *term.prefixes))
        names = self.values.space.quantities
        return tuple(name for name in names if name != "noise" and not name.startswith(prefixes))

    @property
    def feature_scales(self) -> tuple[str, ...]:
        """The dotted names of the output scales of the terms without neighbors."""
        scales = {term.outputscale for term in self.spec.terms}
        return tuple(name for name in self.of_features if name in scales)

    @property
    def size(self) -> int:
        """The number of rows of a search."""
        enough = self.most if self.plan.most_rows else 2 * self.most
        return len(self.rows) if len(self.rows) <= enough else self.most

    def search(self, stage: str = "", *, alone: bool = False, is_last: bool = False) -> tuple["NeighborFit", FitReport]:
        """Search with the neighbors at the present values.

        Args:
            stage: The end of the name of the stage, after the number of rows.
            alone: Whether to omit the features. Neighbors of a residual then approximate the full kernel.
            is_last: Whether this search runs to convergence. Otherwise it takes at most 25 iterations.

        Returns:
            The fit at the values found, and the report.
        """
        size = self.size
        name = f"{size:,} rows{stage}" if size < len(self.rows) else f"all rows{stage}"
        if self.plan.is_over():
            return self, not_searched(name, size)
        objective = self._objective(alone)
        plan = self.plan
        if not is_last:
            plan = replace(plan, iteration_limit=min(ITERATIONS_PER_ROUND, plan.max_iterations))
        held, tolerance = self.of_features if alone else (), max(MIN_GAIN / objective.count, TOLERANCE)
        has_few_features = self.num_features <= FEW_FEATURES
        with in_one_thread(has_few_features):  # most time goes into loops over rows, which have their own threads
            values, report = maximize(
                objective, self.values, plan, stage=name, held=held, bounds=self._bounds(), tolerance=tolerance
            )
        if not report.converged and report.iterations and self.has_settled(report) and report.message != TIME_OVER:
            report = replace(report, converged=True, message="new neighbors gained little")
        return self.at(values), report

    def has_settled(self, report: FitReport) -> bool:
        """Return whether a search gained too little to search again with new neighbors.

        Args:
            report: The report of the search.
        """
        is_subset_fit = self.plan.is_continued or self.plan.most_rows is not None
        least = MIN_GAIN_OF_SUBSET_FIT if is_subset_fit else MIN_ROUND_GAIN
        return not report.stages or report.stages[0].gain < least

    def _bounds(self) -> Bounds:
        """Return bounds of the output scales of features without a prior or start.

        Without bounds one of three splits of elevators had an output scale of 18,000 and an RMSE of 1.55 instead of
        0.35. On 12 tables of 159 to 3,338 rows, three splits each, the mean NLPD was the same.
        """
        begin, starts, bounds = self.values, self.spec.options.starts, {}
        for name in self.feature_scales:
            if name not in starts and name not in begin.space.hyperpriors:
                least, _ = begin.space.quantities[name].bounds
                bounds[name] = float(least.log()), max(math.log(MAX_SCALE), float(begin.raw[name]))
        return bounds

    def _objective(self, alone: bool) -> Objective:
        is_whole = self.size == len(self.pool)
        with torch.no_grad():
            near = neighbors_of(self.spec.prior(self.values))
            pattern, columns = used(predecessors_in_blocks(near, self.pool.inputs, None if is_whole else self.size))
        used_rows = self.pool.take(torch.from_numpy(columns))
        rows = self.pool if is_whole else used_rows.take(torch.from_numpy(pattern.indices[pattern.indptr[1:] - 1]))

        def log_likelihood(values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
            prior = self.spec.prior(values)
            prior = Prior(neighbors=replace(neighbors_of(prior), residual_of=None)) if alone else prior
            solver = WhitenedSolver(prior, used_rows, *mean_and_noise(values), pattern)
            return Evaluation(solver.log_marginal_likelihood(), values)

        return Objective(log_likelihood, len(rows), rows.count, self.state.scaling.targets.log_jacobian(rows.count))


def neighbors_of(prior: Prior) -> VecchiaBlock:
    """Return the block of neighbors of a prior that has one.

    Args:
        prior: The prior.
    """
    assert prior.neighbors is not None
    return prior.neighbors


def fit_neighbors(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model with neighbors.

    Args:
        state: The model state with rows, at its starting values.
        plan: The options of the fit.

    Returns:
        The state with its posterior, and the report. There is no posterior if the plan limits the rows of a search.
    """
    with torch.no_grad(), in_one_thread(True):
        state = with_dense_start(TermFit.of(state, plan)).state
    fit, reports = search_all(NeighborFit.of(state, plan))
    fixed = learned_frequencies(TermFit.of(fit.state, plan))
    fit, reports = learn_basis(fit, reports, lambda initial: initial.search(", basis too", is_last=True), fixed)
    return finished(fit.state, plan, reports)


def finished(state: GPState, plan: Plan, reports: Sequence[FitReport], words: str = "") -> tuple[GPState, FitReport]:
    """Compute the posterior given all rows, and the report of all searches.

    Args:
        state: The state at the values found.
        plan: The options of the fit. If it limits the rows of a search, no posterior is computed.
        reports: The reports of the searches.
        words: The message of the report if validation rows decided. If empty, that of the last search.
    """
    report = reports[-1].merged_with(reports)
    if words:
        report = replace(report, converged=True, message=words)
    return (state, report) if plan.most_rows is not None else with_leave_one_out_scores(TermFit.of(state, plan), report)


def search_all(begin: NeighborFit) -> Rounds:
    """Search from a start until new neighbors gain little.

    Args:
        begin: The fit at its start.

    Returns:
        The fit at the values found, and all reports.
    """
    before, is_residual = list[FitReport](), begin.near.is_residual
    if is_residual:
        begin, before = rounds(begin, ROUNDS, ", no points", alone=True)
        begin = begin.with_new_basis()
    elif begin.size > 2 * FIRST_ROWS and begin.shares_neighbors:
        few, before = rounds(replace(begin, most=FIRST_ROWS), FIRST_ROUNDS)
        begin = begin.at(few.values)
    fit, reports = rounds(begin, FIRST_ROUNDS)
    if is_residual:
        least = MIN_ROUND_GAIN * fit.size
        fit, reports = with_renewed_basis(fit, reports, lambda other: other.search(", points selected again"), least)
    elif fit.of_features and fit.plan.max_iterations > 0 and not fit.plan.is_continued:
        alone, more = rounds(begin, FIRST_ROUNDS, ", neighbors alone", alone=True)
        if more[-1].log_marginal_likelihood > reports[-1].log_marginal_likelihood:
            scales = set(fit.feature_scales) & set(fit.free)
            weak = {name: torch.full_like(fit.values.raw[name], WEAK_FEATURES) for name in scales}
            other, last = rounds(begin.at(alone.values.replaced(weak)), FIRST_ROUNDS, ", from neighbors alone")
            more = [*more, *last]
            if more[-1].log_marginal_likelihood > reports[-1].log_marginal_likelihood:
                fit, reports, more = other, more, reports
        reports = [*more, *reports]
    if not fit.has_settled(reports[-1]):
        fit, more = rounds(fit, ROUNDS - FIRST_ROUNDS, ", again")
        reports = [*reports, *more]
    return fit, [*before, *reports]


def rounds(fit: NeighborFit, most: int, name: str = "", *, alone: bool = False) -> Rounds:
    """Search several times, each time with new neighbors, until a search gains little.

    Args:
        fit: The fit at its starting values.
        most: The most searches.
        name: The end of the names of stages.
        alone: Whether to omit the features.

    Returns:
        The fit at the values found, and the reports of these searches.
    """

    def search_round(fit: NeighborFit, number: int) -> tuple[NeighborFit, FitReport]:
        return fit.search(name + f", neighbors {number + 1}" * bool(number), alone=alone)

    return in_rounds(fit, search_round, most, lambda _, after, report: after.has_settled(report))


# --- Frequencies learned together with neighbors --------------------------------------------------

FEWEST, A_ROW = 4, 0.1
"""The minimum number of frequencies, and the most of their entries for each row."""
PATIENCE = 2
"""The number of consecutive searches without a better validation score after which learning ends."""


class Candidate(NamedTuple):
    """A state of the training rows, and its predictions of held-out rows."""

    state: GPState
    name: str
    errors: Tensor  # (b, k), each over its standard deviation
    log_prob: Tensor  # (b,)

    @classmethod
    def of(cls, state: GPState, name: str, held_out: Block) -> "Candidate":
        """Return the candidate of a state at its rows.

        Args:
            state: The state with a posterior at its rows.
            name: The name of the candidate in the message of the report.
            held_out: The held-out rows, validation rows first.
        """
        mean, noise = mean_and_noise(state.hyperparameters.detached())
        with torch.no_grad():
            latent = state.latent(held_out.inputs)
            means = latent.mean() + mean
            variance = (latent.variance() + held_out.observation_noise(noise))[:, None]
            log_prob = normal_log_prob(held_out.targets, means, variance).sum(1)
            return cls(state, name, (held_out.targets - means) / variance.sqrt(), log_prob)

    @property
    def half(self) -> int:
        """The number of validation rows. The others are test rows."""
        return (len(self.log_prob) + 1) // 2

    @property
    def score(self) -> float:
        """The mean log density of the validation rows."""
        score = float(self.log_prob[: self.half].mean())
        return score if math.isfinite(score) else -math.inf


def fit_learned_with_neighbors(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit features, their frequencies and neighbors.

    Args:
        state: The model state with rows, at its starting values.
        plan: The options of the fit.

    Returns:
        The state with its posterior, and the report.
    """
    fit = NeighborFit.of(state, plan)
    if len(fit.rows) < MIN_LEARNED or plan.steps == 0:
        why = f"{counted(len(fit.rows), 'row')} are too few to learn frequencies from" if plan.steps else "no steps"
        fitted, report = fit_neighbors(state, plan)
        return fitted, replace(report, frequencies="rejected", message=f"{report.message}; {why}")
    out = min(HELD_OUT[1], math.ceil(HELD_OUT[0] * len(fit.rows)))
    parts = (torch.arange(len(fit.rows) - out), torch.arange(len(fit.rows) - out, len(fit.rows)))
    training, held_out = (fit.pool.take(part) for part in parts)
    part = state.replace(rows=training, num_observations=len(training))
    candidates, reports = _candidates(part, plan, held_out)
    first, best = candidates[0], max(candidates, key=lambda candidate: candidate.score)
    gain, error = mean_and_standard_error((best.log_prob - first.log_prob)[best.half :])
    best = best if gain > error else first  # test rows reject what validation rows selected
    message = f"{best.name}: nothing learned was ahead on held-out rows by more than a standard error"
    if best is not first:
        message = f"{best.name}, {gain:.2g} (standard error {error:.1g}) nats a held-out row ahead of {first.name}"
    changed = {"rows": state.rows, "num_observations": state.num_observations}
    fitted, report = finished(best.state.replace(**changed), plan, reports, message)
    errors = best.errors[best.half :]
    return fitted, replace(
        report,
        frequencies="rejected" if best is first else "learned",
        mean_squared_zscore=if_finite(float(errors.square().mean())),
    )


def _candidates(state: GPState, plan: Plan, held_out: Block) -> tuple[list[Candidate], list[FitReport]]:
    """Return the candidates, fixed frequencies first, and the reports of all searches."""
    fit, reports = search_all(NeighborFit.of(_with_fewer(state), plan))
    candidates = [Candidate.of(fit.state, "fixed frequencies and neighbors", held_out)]
    if plan.is_over():
        return candidates, reports
    alone, report = fit_basis_functions(TermFit.of(_without_neighbors(state), plan))
    alone = _with_neighbors(state, alone)
    reports.append(report)
    candidates.append(Candidate.of(alone, "learned frequencies alone", held_out))
    if plan.is_over():
        return candidates, reports
    best = max(candidates, key=lambda candidate: candidate.score)
    joint, more = _learn_jointly(best.state, plan, held_out)
    return [*candidates, *joint], [*reports, *more]


def _learn_jointly(start: GPState, plan: Plan, held_out: Block) -> tuple[list[Candidate], list[FitReport]]:
    """Return candidates from joint searches over frequencies and hyperparameters."""
    fit, omega, steps = NeighborFit.of(start, plan), learned_frequencies(TermFit.of(start, plan)), list[Candidate]()
    hyperpriors = {p: Normal(w, torch.full_like(w, PRIOR_SCALE), validate_args=False) for p, w in omega.items()}
    frequencies = {path: drawn.clone() for path, drawn in omega.items()}

    def has_settled(_: NeighborFit, after: NeighborFit, report: FitReport) -> bool:
        raw = after.values.raw
        learned = with_learned(start.spec, {path: raw[path] for path in omega})
        hyperparameters = start.hyperparameters.replaced({name: raw[name] for name in start.hyperparameters.raw})
        state = start.replace(spec=learned, hyperparameters=hyperparameters)
        steps.append(Candidate.of(state, "everything by one likelihood", held_out))
        best = max(range(len(steps)), key=lambda i: steps[i].score)
        return len(steps) - 1 - best >= PATIENCE or report.stages[0].gain < MIN_ROUND_GAIN

    def search_round(before: NeighborFit, number: int) -> tuple[NeighborFit, FitReport]:
        return before.search(f", frequencies too, neighbors {number + 1}")

    fit = fit.at(start.hyperparameters.with_extra_tensors(frequencies, hyperpriors))
    _, reports = in_rounds(fit, search_round, -(-plan.steps // ITERATIONS_PER_ROUND), has_settled)
    return steps, reports


# --- models of some of the terms -------------------------------------------------------------------


def _with_fewer(state: GPState) -> GPState:
    """Return a state with at most n / (10 d) learned frequencies."""
    spec, values, count = state.spec, state.hyperparameters, state.num_observations
    changed = dict(spec.approximations)
    for data in spec.term_data(values, count):
        name, approximation = data.term.name, changed[data.term.name]
        if isinstance(approximation, RandomFeatures) and approximation.learn_frequencies:
            columns = sum(len(indices) for factor, indices, _ in data.term.parts() if factor.measure is not None)
            few = max(FEWEST, int(A_ROW * count / max(columns, 1)))
            changed[name] = replace(approximation, num_frequencies=min(few, approximation.num_frequencies))
    if changed == spec.approximations:
        return state
    return state.replace(spec=spec.with_approximations(changed, values, count))


def _without_neighbors(state: GPState) -> GPState:
    """Return a state of the terms without neighbors."""
    near = neighbors_of(state.prior()).names
    alone = some_terms(state.spec, [term.name for term in state.spec.terms if term.name not in near])
    return state.replace(spec=alone, hyperparameters=values_of_terms(alone, state.hyperparameters))


def _with_neighbors(state: GPState, alone: GPState) -> GPState:
    """Return a state with the features of `alone`, and neighbors of least variance."""
    values, spec = state.hyperparameters, state.spec
    near = neighbors_of(state.prior()).names
    scales = [term.outputscale for term in spec.terms if term.name in near and term.outputscale is not None]
    least = {name: values.space.quantities[name].bounds[0].log() for name in scales}
    raw = {name: tensor for name, tensor in alone.hyperparameters.raw.items() if name in values.raw}
    return state.replace(spec=with_basis_of(spec, alone.spec), hyperparameters=values.replaced({**raw, **least}))
