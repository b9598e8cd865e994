"""Fitting features and a nearest-neighbor (Vecchia) process by one likelihood.

Distances to neighbors are in lengthscales of that process. Neighbors are fixed during a search and found again after
it. For many rows the likelihood is that of 16,384 of them, each given its neighbors among all rows. Without the other
rows, these would be less dense. If blocks of rows share neighbors and there are no features, 4,096 rows are used.
Features are marginalized, so that only these rows determine the weights. Frequencies are learned in
`rfgp.fitting.learn_frequencies`.

The likelihood has several optima, because features may explain structure that neighbors would explain better. So there
is also a search with neighbors alone. If it ends at a higher likelihood after as many iterations, a second search with
weak features starts there. The result with the better leave-one-out score is kept.

If neighbors are the residual of inducing points, neighbors alone estimate the same kernel in a tenth of the time. So
the search starts with neighbors alone, and points are selected among the rows at the lengthscales found.
"""

import math
from dataclasses import dataclass, replace

import torch

from rfgp.blocks import Prior, VecchiaBlock, predecessors_in_blocks
from rfgp.fitting.context import TermFit
from rfgp.fitting.driver import TOLERANCE, learn_basis, with_renewed_basis
from rfgp.fitting.frequencies import MAX_SCALE, learned_frequencies
from rfgp.fitting.last_stage import conditioned, left_out
from rfgp.fitting.maximize import MIN_GAIN, Bounds, Evaluation, Objective, Plan, maximize, not_searched
from rfgp.fitting.starts import free_lengthscales, with_dense_start, with_shorter_lengthscales
from rfgp.likelihoods.real import normal_log_prob
from rfgp.limits import limits
from rfgp.local import used
from rfgp.models import FitReport, GPState, mean_and_noise
from rfgp.models.report import TIME_OVER
from rfgp.parameters import ParameterValues
from rfgp.rows import gathered
from rfgp.solvers import WarmStart
from rfgp.solvers.whitened import WhitenedSolver, whitened_inference
from rfgp.threads import in_one_thread

ROUNDS = 6
"""The most searches with new neighbors on the same rows."""
FIRST_ROWS = 2**10
"""The number of rows of the first searches with neighbors alone, if a search takes more than twice as many."""
FIRST_ROUNDS, WEAK_FEATURES = 2, math.log(0.1)
"""The number of searches before starts are compared, and the log variance of weak features in variances of the
targets."""

MAX_ROWS_SHARED_NEIGHBORS = 2**12
"""The maximum number of rows of a search in which rows share neighbors. Up to twice as many rows are all used."""
MAX_LOSS, STANDARD_ERRORS, DESIGN_EFFECT = 0.1, 2.0, 4.0
"""The largest loss of all rows against those of a search, in nats a row and in standard errors for unit deviation; and
the number of rows of a block per independent row.

Without noise, a few close rows with different targets dominate the likelihood of all rows."""
MIN_ROUND_GAIN, MIN_GAIN_OF_SUBSET_FIT = 2e-3, 2e-2
"""The smallest gain in nats a row for another search on the same rows, in a full fit and in a subset fit.

A subset fit scores a candidate on a subset of the rows, or continues from such a fit."""
ITERATIONS_PER_ROUND = 25
"""The number of iterations before neighbors are found again."""
FEW_FEATURES = 512
"""The maximum number of features for which matrix products use one thread (1,216 rows: 10 s instead of 16 s)."""
MAX_CHECKED = 2**17
"""The maximum number of rows whose leave-one-out scores are reported, and on which subset fits are checked."""


SearchEnd = tuple["NeighborFit", list[FitReport]]
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

    def with_more(self, values: ParameterValues) -> "NeighborFit":
        """Return the fit on twice as many rows.

        Args:
            values: The values found. A subset fit of neighbors alone starts there. Other fits keep their starting
                values.
        """
        wider = replace(self, most=2 * self.most)
        keeps_start = self.plan.most_rows is None or self.of_features or self.near.is_residual
        return wider if keeps_start else wider.at(values)

    @property
    def size(self) -> int:
        """The number of rows of a search."""
        enough = self.most if self.plan.most_rows else 2 * self.most
        return len(self.rows) if len(self.rows) <= enough else self.most

    def needs_more_rows(self, report: FitReport) -> bool:
        """Return whether all rows are far less likely than those of the search.

        Args:
            report: The report of the search that found these values.
        """
        if self.size == len(self.rows) or not report.stages or self.plan.is_over():
            return False
        with torch.no_grad():
            objective = self._objective(alone=False)
            searched = float(objective.log_likelihood(self.values).value) / objective.count
            every = self._log_likelihood_of_all()
        count = objective.count / (DESIGN_EFFECT if self.near.block_size > 1 else 1)
        return not every > searched - MAX_LOSS - STANDARD_ERRORS / math.sqrt(count)

    def _log_likelihood_of_all(self) -> float:
        """Return the mean log likelihood of all rows, or of many in a subset fit."""
        if self.plan.most_rows is not None and len(self.rows) > MAX_CHECKED:
            wider = replace(self, most=limits().neighbor_rows)._objective(alone=False)
            return float(wider.log_likelihood(self.values).value) / wider.count
        prior = self.spec.prior(self.values).detached()
        every = whitened_inference(prior, self.pool, *mean_and_noise(self.values))
        return float(every.log_marginal_likelihood()) / self.rows.count

    def has_gained(self, report: FitReport) -> bool:
        """Return whether a search gained enough to search again with new neighbors.

        Args:
            report: The report of the search.
        """
        is_subset_fit = self.plan.is_continued or self.plan.most_rows is not None
        least = MIN_GAIN_OF_SUBSET_FIT if is_subset_fit else MIN_ROUND_GAIN
        return bool(report.stages) and report.stages[0].gain >= least

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
        return self.at(values), report

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

    def left_out_log_prob(self) -> float:
        """Return the mean log density of a row given all others, conditioned on responses."""
        with torch.no_grad():
            solver = WhitenedSolver.of(self.spec.prior(self.values), self.pool, *mean_and_noise(self.values))
            means, variances = solver.leave_one_out()
        return float(normal_log_prob(self.pool.targets, means, variances[:, None]).mean())

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
    fit, reports = search_all(NeighborFit.of(_with_start(state, plan), plan))
    fixed = learned_frequencies(TermFit.of(fit.state, plan))
    fit, reports = learn_basis(fit, reports, lambda initial: initial.search(", basis too", is_last=True), fixed)
    return conditioned_on_all_rows(fit.state, plan, reports)


def _with_start(state: GPState, plan: Plan) -> GPState:
    """Return a state at the most likely of several starts."""
    fit = TermFit.of(state, plan)
    if plan.is_continued or not free_lengthscales(fit):
        return state
    with torch.no_grad(), in_one_thread(True):
        fit = with_dense_start(fit)
        near = neighbors_of(fit.prior).names if len(fit.spec.terms) > 1 else ()
        terms = [term for term in fit.spec.terms if term.name in near]
        names = {f"{prefix}lengthscale" for term in terms for prefix in term.prefixes}
        return fit.at(with_shorter_lengthscales(fit, [name for name in free_lengthscales(fit) if name in names])).state


def search_all(begin: NeighborFit) -> SearchEnd:
    """Search on more rows until all rows are about as likely as those of the search.

    Args:
        begin: The fit at its start, with the fewest rows.

    Returns:
        The fit at the values found, and all reports.
    """
    fit, reports = _search(begin)
    while fit.needs_more_rows(reports[-1]):
        begin = begin.with_more(fit.values)
        fit, more = _search(begin)
        reports = [*reports, *more]
    return fit, reports


def _search(begin: NeighborFit) -> SearchEnd:
    """Search repeatedly with new neighbors until a search gains little."""
    before, is_residual = list[FitReport](), begin.near.is_residual
    if is_residual:
        begin, before = rounds(begin, ROUNDS, name=", no points", alone=True)
        begin = begin.with_new_basis()
    elif begin.size > 2 * FIRST_ROWS and begin.shares_neighbors:
        few, before = rounds(replace(begin, most=FIRST_ROWS), FIRST_ROUNDS)
        begin = begin.at(few.values)
    fit, reports = rounds(begin, FIRST_ROUNDS)
    is_multistart = fit.plan.max_iterations > 0 and not fit.plan.is_continued
    if is_residual:
        least = MIN_ROUND_GAIN * fit.size
        fit, reports = with_renewed_basis(fit, reports, lambda other: other.search(", points selected again"), least)
    elif is_multistart and fit.of_features:
        other, more = _from_neighbors_alone(begin, reports[-1].log_marginal_likelihood)
        if other is not None and _is_better((other, more[-1]), (fit, reports[-1])):
            fit, reports = other, [*reports, *more]
        else:
            reports = [*more, *reports]
    if fit.has_gained(reports[-1]):
        fit, more = rounds(fit, ROUNDS - FIRST_ROUNDS, FIRST_ROUNDS)
        reports = [*reports, *more]
    return fit, [*before, *reports]


def rounds(fit: NeighborFit, most: int, before: int = 0, name: str = "", alone: bool = False) -> SearchEnd:
    """Search several times, each time with new neighbors, until a search gains little.

    Args:
        fit: The fit at its starting values.
        most: The most searches.
        before: The number of earlier searches, for the names of stages.
        name: The end of the names of stages.
        alone: Whether to omit the features.

    Returns:
        The fit at the values found, and the reports of these searches.
    """
    reports = list[FitReport]()
    for number in range(before, before + most):
        fit, report = fit.search(name + f", neighbors {number + 1}" * bool(number), alone=alone)
        reports.append(report)
        if not fit.has_gained(report):
            break
    return fit, reports


def _from_neighbors_alone(begin: NeighborFit, likelihood: float) -> tuple[NeighborFit | None, list[FitReport]]:
    """Search with neighbors alone; if that is likelier, search again with weak features from there.

    Args:
        begin: The fit at its start.
        likelihood: The log marginal likelihood to exceed, of the search with features.

    Returns:
        The end of the search with features, or None if there was none, and the reports.
    """
    fit, reports = rounds(begin, FIRST_ROUNDS, name=", neighbors alone", alone=True)
    if not reports[-1].log_marginal_likelihood > likelihood:
        return None, reports
    weak = set(fit.feature_scales) & set(fit.free)
    start = fit.values.replaced({name: torch.full_like(fit.values.raw[name], WEAK_FEATURES) for name in weak})
    fit, more = rounds(begin.at(start), FIRST_ROUNDS, name=", from neighbors alone")
    return fit, [*reports, *more]


def _is_better(first: tuple[NeighborFit, FitReport], second: tuple[NeighborFit, FitReport]) -> bool:
    """Return whether the first of two ends is better.

    The criterion is the leave-one-out score, or the log marginal likelihood for more than 131,072 rows.
    """
    if len(first[0].rows) <= MAX_CHECKED:
        return first[0].left_out_log_prob() > second[0].left_out_log_prob()
    return first[1].log_marginal_likelihood > second[1].log_marginal_likelihood


def conditioned_on_all_rows(
    state: GPState, plan: Plan, reports: list[FitReport], words: str = ""
) -> tuple[GPState, FitReport]:
    """Compute the posterior given all rows, and the report of all searches.

    If the plan limits the rows of a search, no posterior is computed.

    Args:
        state: The state at the values found.
        plan: The options of the fit.
        reports: The reports of the searches. The fit has converged if the last search did, or if its new neighbors
            gained little.
        words: The message of the report if validation rows decided. If empty, that of the last search.

    Returns:
        The state, and the report.
    """
    last = reports[-1]
    if plan.most_rows is not None:
        return state, last.merged_with(reports)
    least = MIN_GAIN_OF_SUBSET_FIT if plan.is_continued else MIN_ROUND_GAIN
    has_settled = last.iterations > 0 and last.stages[0].gain < least and last.message != TIME_OVER
    converged = last.converged or bool(words) or has_settled
    message = last.message if last.converged else "new neighbors gained little" if converged else last.message
    report = replace(last.merged_with(reports), converged=converged, message=words or message)
    rows = gathered(state.require_rows(purpose="a fit"))
    with torch.no_grad():
        inference = state.infer(rows)
        scores = left_out(state, inference.leave_one_out(), rows) if len(rows) <= MAX_CHECKED else None
        return conditioned(state, inference, report, scores)
