"""Fitting features and a nearest-neighbor (Vecchia) process by one likelihood.

Distances to neighbors are in lengthscales of that process. Neighbors are fixed during a search and found again after
it. For many rows the likelihood is that of 16,384 of them, each given its neighbors among all rows, because these rows
alone would be less dense. If blocks of rows share neighbors and there are no features, 4,096 rows are used. Features
are marginalized, so that only these rows determine the weights. Frequencies are learned in
`rfgp.fitting.learn_frequencies`.

The likelihood has several optima, because features may explain structure that neighbors would explain better. So there
is also a search with neighbors alone. If it ends at a higher likelihood after as many iterations, a second search with
weak features starts there. The result with the better leave-one-out score is kept.

If neighbors are the residual of inducing points, neighbors alone estimate the same kernel in a tenth of the time. So
the search starts with neighbors alone, and points are selected among the rows at the lengthscales found.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from rfgp.blocks import NeighborBlock, Prior, VecchiaBlock, predecessors_in_blocks
from rfgp.fitting.context import TermFit, spec_of, with_new_basis
from rfgp.fitting.finish import if_finite, left_out
from rfgp.fitting.frequencies import MOST_SCALE, learned_frequencies
from rfgp.fitting.maximize import LEAST_GAIN, Bounds, Evaluation, Objective, Plan, maximize
from rfgp.fitting.starts import free_lengthscales, with_dense_start, with_shorter_lengthscales
from rfgp.inference.distributions import normal_log_prob
from rfgp.local import used
from rfgp.parameters import ParameterValues
from rfgp.regression import FitReport, GPState, mean_and_noise
from rfgp.regression.spec import ModelSpec, learnable_basis, with_learned
from rfgp.rows import Block, gathered
from rfgp.solvers import WarmStart
from rfgp.solvers.whitened import WhitenedSolver, whitened
from rfgp.threads import in_one_thread

MOST_ROWS, MOST_SHARED = 2**14, 2**12
"""The number of rows of a search, and that with shared neighbors alone. Up to twice as many rows are all used.

`benchmarks/races/neighbor_blocks.py` compares them with more rows."""
FIRST_ROWS = 2**10
"""The number of rows of the first searches with neighbors alone, if a search takes more than twice as many."""
MOST_LOSS, STANDARD_ERRORS, DESIGN_EFFECT = 0.1, 2.0, 4.0
"""The largest loss of all rows against those of a search, in nats a row and in standard errors for unit deviation; and
the number of rows of a block per independent row.

Without noise, a few close rows with different targets dominate the likelihood of all rows."""
ROUNDS, LEAST_ROUND_GAIN, LEAST_ROUGH_GAIN = 6, 2e-3, 2e-2
"""The most searches with new neighbors on the same rows, and the least gain in nats a row for another search, in a full
fit and in a rough one. A rough fit scores a candidate on some rows, or continues from such a fit."""
FIRST_ROUNDS, WEAK_FEATURES = 2, math.log(0.1)
"""The number of searches before starts are compared, and the log variance of weak features in variances of the
targets."""
ITERATIONS_PER_ROUND = 25
"""The number of iterations before neighbors are found again."""
FEW_FEATURES = 512
"""The most features for which matrix products use one thread (1,216 rows: 10 s instead of 16 s)."""
MOST_CHECKED = 2**17
"""The most rows whose leave-one-out scores are reported, and on which rough searches are checked."""
MOST_REDRAWS = 3
"""The most times that inducing points are selected again on the same rows."""


@dataclass(frozen=True, eq=False)
class NeighborFit:
    """The fit of a model with neighbors.

    Attributes:
        state: The state at its starting values.
        plan: The options of the fit.
        rows: All training rows, in order.
        most: The number of rows of a search, if there are twice as many.
    """

    state: GPState
    plan: Plan
    rows: Block
    most: int

    @classmethod
    def of(cls, state: GPState, plan: Plan) -> "NeighborFit":
        """Return the fit from a model state."""
        rows = gathered(state.needed_rows("a fit"))
        neighbors = neighbors_of(state.prior())
        fit = cls(state, plan, rows.take(neighbors.order(len(rows))), plan.most_rows or MOST_ROWS)
        return replace(fit, most=MOST_SHARED) if fit.shares_neighbors and plan.most_rows is None else fit

    @property
    def spec(self) -> ModelSpec:
        """The specification of the model."""
        return spec_of(self.state)

    @property
    def has_residual(self) -> bool:
        """Whether neighbors approximate the residual of inducing points."""
        return neighbors_of(self.state.prior()).is_residual

    @property
    def shares_neighbors(self) -> bool:
        """Whether the model has no features, and blocks of rows share neighbors."""
        prior = self.state.prior()
        return neighbors_of(prior).block_size > 1 and not self.has_residual and not self.of_features

    @property
    def of_features(self) -> tuple[str, ...]:
        """The paths of hyperparameters that neighbors do not depend on, other than noise and mean."""
        near = neighbors_of(self.state.prior()).names
        neighbor_prefixes = [
            prefix for term in self.spec.terms if term.name in near for prefix in (f"{term.name}.", *term.prefixes)
        ]
        names = self.state.hyperparameters.space.quantities
        return tuple(
            name for name in names if name != "noise" and not any(name.startswith(p) for p in neighbor_prefixes)
        )

    @property
    def feature_scales(self) -> tuple[str, ...]:
        """The paths of the output scales of the terms without neighbors."""
        scales = {term.outputscale for term in self.spec.terms}
        return tuple(name for name in self.of_features if name in scales)

    def with_more(self, values: ParameterValues) -> "NeighborFit":
        """Return the fit on twice as many rows. Rough fits of neighbors alone continue."""
        wider = replace(self, most=2 * self.most)
        if self.plan.most_rows is None or self.of_features or self.has_residual:
            return wider
        return replace(wider, state=self.state.replace(hyperparameters=values))

    def with_spec(self, spec: ModelSpec) -> "NeighborFit":
        """Return the fit with other draws."""
        return replace(self, state=self.state.replace(spec=spec))

    @property
    def size(self) -> int:
        """The number of rows of a search."""
        enough = self.most if self.plan.most_rows else 2 * self.most
        return len(self.rows) if len(self.rows) <= enough else self.most

    def needs_more_rows(self, values: ParameterValues, report: FitReport) -> bool:
        """Return whether all rows are far less likely than those of the search."""
        if self.size == len(self.rows) or not report.stages:
            return False
        with torch.no_grad():
            objective = self._objective(values, alone=False)
            searched = float(objective.log_likelihood(values).value) / objective.count
            every = self._log_likelihood_of_all(values)
        count = objective.count / (DESIGN_EFFECT if neighbors_of(self.state.prior()).block_size > 1 else 1)
        return not every > searched - MOST_LOSS - STANDARD_ERRORS / math.sqrt(count)

    def _log_likelihood_of_all(self, values: ParameterValues) -> float:
        """Return the mean log density of all rows, or of many in a rough search."""
        if self.plan.most_rows is not None and len(self.rows) > MOST_CHECKED:
            wider = replace(self, most=MOST_ROWS)._objective(values, alone=False)
            return float(wider.log_likelihood(values).value) / wider.count
        every = whitened(self.spec.prior(values).detached(), self.rows, *mean_and_noise(values))
        return float(every.log_marginal_likelihood()) / self.rows.count

    def has_gained(self, report: FitReport) -> bool:
        """Return whether a search gained enough to search again with new neighbors."""
        least = LEAST_ROUGH_GAIN if self.plan.is_continued or self.plan.most_rows is not None else LEAST_ROUND_GAIN
        return bool(report.stages) and report.stages[0].gain >= least

    def search(
        self, values: ParameterValues, stage: str, alone: bool = False, last: bool = False
    ) -> tuple[ParameterValues, FitReport]:
        """Search with the neighbors at these values; return the values found and the report.

        Args:
            values: The starting values.
            stage: The end of the name of the stage, after the number of rows.
            alone: Whether to omit the features. Neighbors of a residual then approximate the full kernel.
            last: Whether this search runs to convergence. Otherwise it takes at most 25 iterations.
        """
        size, objective = self.size, self._objective(values, alone)
        plan = (
            self.plan
            if last
            else replace(self.plan, given_iterations=min(ITERATIONS_PER_ROUND, self.plan.max_iterations))
        )
        name = f"{size:,} rows{stage}" if size < len(self.rows) else f"all rows{stage}"
        has_few_features = self.state.prior().num_features <= FEW_FEATURES
        with in_one_thread(has_few_features):  # most time goes into loops over rows, which have their own threads
            tolerance = max(LEAST_GAIN / objective.count, 1e-7)
            held = self.of_features if alone else ()
            return maximize(objective, values, plan, stage=name, held=held, bounds=self._bounds(), tolerance=tolerance)

    def _bounds(self) -> Bounds:
        """Return bounds of the output scales of features without a prior or start.

        Without bounds one of three splits of elevators had an output scale of 18,000 and an RMSE of 1.55 instead of
        0.35. On 12 tables of 159 to 3,338 rows, three splits each, the mean NLPD was the same.
        """
        begin, starts, bounds = self.state.hyperparameters, self.spec.options.starts, {}
        for name in self.feature_scales:
            if name not in starts and name not in begin.space.hyperpriors:
                least, _ = begin.space.quantities[name].bounds
                bounds[name] = float(least.log()), max(math.log(MOST_SCALE), float(begin.raw[name]))
        return bounds

    def left_out_log_prob(self, values: ParameterValues) -> float:
        """Return the mean log density of a row given all others, conditioned on responses."""
        with torch.no_grad():
            means, variances = WhitenedSolver.of(
                self.spec.prior(values), self.rows, *mean_and_noise(values)
            ).leave_one_out()
        return float(normal_log_prob(self.rows.targets, means, variances[:, None]).mean())

    def _objective(self, values: ParameterValues, alone: bool) -> Objective:
        is_whole = self.size == len(self.rows)
        with torch.no_grad():
            near = neighbors_of(self.spec.prior(values))
            pattern, columns = used(predecessors_in_blocks(near, self.rows.inputs, None if is_whole else self.size))
        used_rows = self.rows.take(torch.from_numpy(columns))
        rows = self.rows if is_whole else used_rows.take(torch.from_numpy(pattern.indices[pattern.indptr[1:] - 1]))

        def log_likelihood(values: ParameterValues, warm_start: WarmStart = ()) -> Evaluation:
            prior = self.spec.prior(values)
            prior = Prior(neighbors=_of_full_kernel(neighbors_of(prior))) if alone else prior
            solver = WhitenedSolver(prior, used_rows, *mean_and_noise(values), pattern)
            return Evaluation(solver.log_marginal_likelihood(), values)

        return Objective(log_likelihood, len(rows), rows.count, self.state.scaling.targets.log_jacobian(rows.count))


def neighbors_of(prior: Prior) -> NeighborBlock:
    """Return the block of neighbors of a prior that has one."""
    assert prior.neighbors is not None
    return prior.neighbors


def _of_full_kernel(block: NeighborBlock) -> NeighborBlock:
    """Return a block of neighbors that approximates the full kernel, not a residual."""
    return replace(block, residual_of=None) if isinstance(block, VecchiaBlock) else block


Found = tuple[NeighborFit, ParameterValues, list[FitReport]]
"""The result of a search: the fit with its features, the values, and the reports."""
Search = Callable[[NeighborFit], Found]


def fit_neighbors(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model with neighbors; return its state with the posterior, and the report."""
    fit, values, reports = search_all(NeighborFit.of(_with_start(state, plan), plan))
    frequencies = learned_frequencies(TermFit.of(fit.state, plan))
    basis = {path: tensor for path, tensor in learnable_basis(fit.spec).items() if path not in frequencies}
    if basis and plan.max_iterations:
        initial = values.with_others({path: tensor.clone() for path, tensor in basis.items()}, {})
        values_found, report = fit.search(initial, ", draws too", last=True)
        fit = fit.with_spec(with_learned(fit.spec, {path: values_found.raw[path] for path in basis}))
        values, reports = values.replaced({name: values_found.raw[name] for name in values.raw}), [*reports, report]
    return finalize(fit.state.replace(hyperparameters=values), plan, reports)


def _with_start(state: GPState, plan: Plan) -> GPState:
    """Return a state at the most likely of several starts."""
    fit = TermFit.of(state, plan)
    if plan.is_continued or not free_lengthscales(fit):
        return state
    with torch.no_grad(), in_one_thread(True):
        fit = with_dense_start(fit)
        near = neighbors_of(fit.prior).names if len(fit.spec.terms) > 1 else ()
        neighbor_lengthscales = [
            f"{prefix}lengthscale" for term in fit.spec.terms if term.name in near for prefix in term.prefixes
        ]
        return fit.at(
            with_shorter_lengthscales(fit, [name for name in free_lengthscales(fit) if name in neighbor_lengthscales])
        ).state


def _search(fit: NeighborFit) -> Found:
    """Search repeatedly with new neighbors until a search gains little."""
    begin, before = fit.state.hyperparameters, list[FitReport]()
    if fit.has_residual:
        begin, before = rounds(fit, begin, ROUNDS, name=", no points", alone=True)
        fit = fit.with_spec(spec_of(with_new_basis(fit.state.replace(hyperparameters=begin))))
    elif fit.size > 2 * FIRST_ROWS and fit.shares_neighbors:
        begin, before = rounds(replace(fit, most=FIRST_ROWS), begin, FIRST_ROUNDS)
    values, reports = rounds(fit, begin, FIRST_ROUNDS)
    is_multistart = fit.plan.max_iterations > 0 and not fit.plan.is_continued
    if fit.has_residual:
        fit, values, reports = _with_points_again(fit, values, reports)
    elif is_multistart and fit.of_features:
        other, more = from_neighbors_alone(fit, begin, reports[-1].log_marginal_likelihood)
        if other is not None and is_better(fit, (other, more[-1]), (values, reports[-1])):
            values, reports = other, [*reports, *more]
        else:
            reports = [*more, *reports]
    values, reports = more_rounds(fit, values, reports)
    return fit, values, [*before, *reports]


def _with_points_again(fit: NeighborFit, values: ParameterValues, reports: list[FitReport]) -> Found:
    """Select points again and search on the same rows, while the likelihood grows."""
    for _ in range(MOST_REDRAWS if reports[-1].stages else 0):
        spec = spec_of(with_new_basis(fit.state.replace(hyperparameters=values)))
        if spec is fit.spec:
            break
        values_found, last = fit.with_spec(spec).search(values, ", points selected again")
        gain = last.log_marginal_likelihood - reports[-1].log_marginal_likelihood
        if not gain > 0:
            return fit, values, [*reports[:-1], last, reports[-1]]
        fit, values, reports = fit.with_spec(spec), values_found, [*reports, last]
        if gain < LEAST_ROUND_GAIN * last.stages[-1].rows:
            break
    return fit, values, reports


def search_all(fit: NeighborFit, search: Search = _search) -> Found:
    """Search on more and more rows until all rows are about as likely as those of the search.

    Args:
        fit: The fit, with the fewest rows.
        search: Searches on the rows of a fit.

    Returns:
        The fit, the values and all reports.
    """
    end, values, reports = search(fit)
    while end.needs_more_rows(values, reports[-1]):
        fit = fit.with_more(values)
        end, values, more = search(fit)
        reports = [*reports, *more]
    return end, values, reports


def more_rounds(
    fit: NeighborFit, values: ParameterValues, reports: list[FitReport]
) -> tuple[ParameterValues, list[FitReport]]:
    """Search further with new neighbors if the last search gained enough."""
    if not fit.has_gained(reports[-1]):
        return values, reports
    values, more = rounds(fit, values, ROUNDS - FIRST_ROUNDS, FIRST_ROUNDS)
    return values, [*reports, *more]


def rounds(
    fit: NeighborFit, values: ParameterValues, most: int, before: int = 0, name: str = "", alone: bool = False
) -> tuple[ParameterValues, list[FitReport]]:
    """Search at most `most` times with new neighbors, after `before` earlier searches."""
    reports = list[FitReport]()
    for number in range(before, before + most):
        values, report = fit.search(values, name + f", neighbors {number + 1}" * bool(number), alone)
        reports.append(report)
        if not fit.has_gained(report):
            break
    return values, reports


def from_neighbors_alone(
    fit: NeighborFit, begin: ParameterValues, likelihood: float
) -> tuple[ParameterValues | None, list[FitReport]]:
    """Search with neighbors alone, and with features from there if that is likely."""
    values, reports = rounds(fit, begin, FIRST_ROUNDS, name=", neighbors alone", alone=True)
    if not reports[-1].log_marginal_likelihood > likelihood:
        return None, reports
    weak = set(fit.feature_scales) & set(values.space.free(fit.plan.fixed))
    values = values.replaced({name: torch.full_like(values.raw[name], WEAK_FEATURES) for name in weak})
    values, more = rounds(fit, values, FIRST_ROUNDS, name=", from neighbors alone")
    return values, [*reports, *more]


def is_better(
    fit: NeighborFit, first: tuple[ParameterValues, FitReport], second: tuple[ParameterValues, FitReport]
) -> bool:
    """Return whether the first result has the better leave-one-out score."""
    if len(fit.rows) <= MOST_CHECKED:
        return fit.left_out_log_prob(first[0]) > fit.left_out_log_prob(second[0])
    return first[1].log_marginal_likelihood > second[1].log_marginal_likelihood


def finalize(state: GPState, plan: Plan, reports: list[FitReport], words: str = "") -> tuple[GPState, FitReport]:
    """Return a state with its posterior, and the report of all searches.

    If the plan limits the rows of a search, no posterior is computed.

    Args:
        state: The state at the values found.
        plan: The options of the fit.
        reports: The reports of the searches. The fit has converged if the last search did, or if its new neighbors
            gained little.
        words: The message of the report if validation rows decided. If empty, that of the last search.
    """
    last = reports[-1]
    if plan.most_rows is not None:
        return state, last.with_all(reports)
    least = LEAST_ROUGH_GAIN if plan.is_continued else LEAST_ROUND_GAIN
    converged = last.converged or bool(words) or (last.iterations > 0 and last.stages[0].gain < least)
    message = last.message if last.converged else "new neighbors gained little" if converged else last.message
    rows = gathered(state.needed_rows("a fit"))
    with torch.no_grad():
        inference = state.infer(rows)
        total = float(inference.log_marginal_likelihood()) + state.scaling.targets.log_jacobian(rows.count)
        is_checked = len(rows) <= MOST_CHECKED
        left = left_out(state, inference.leave_one_out(), rows) if is_checked else (math.nan,) * 3
        calibration, log_prob, neighbors = map(if_finite, left)
        report = replace(
            last.with_all(reports),
            converged=converged,
            message=words or message,
            log_marginal_likelihood=total,
            likelihood_error=inference.likelihood_error,
            mean_squared_zscore=calibration,
            leave_one_out=log_prob,
            residual_autocorrelation=neighbors,
        )
        return state.replace(given=inference.posterior()), report
