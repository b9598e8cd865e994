"""The rows, objective and searches of a model with nearest neighbors (Vecchia)."""

import math
from dataclasses import dataclass, replace

import torch

from rfgp.blocks import Prior, VecchiaBlock, predecessors_in_blocks
from rfgp.fitting.frequencies import MAX_SCALE
from rfgp.fitting.maximize import MIN_GAIN, Bounds, Evaluation, Objective, Plan, maximize, not_searched
from rfgp.likelihoods.real import normal_log_prob
from rfgp.limits import limits
from rfgp.local import used
from rfgp.parameters import ParameterValues
from rfgp.regression import FitReport, GPState, mean_and_noise
from rfgp.regression.spec import ModelSpec
from rfgp.rows import Block, gathered
from rfgp.solvers import WarmStart
from rfgp.solvers.whitened import WhitenedSolver, whitened_inference
from rfgp.threads import in_one_thread

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
        """Return the fit from a model state.

        Args:
            state: The model state with rows and neighbors, at its starting values.
            plan: The options of the fit.
        """
        rows = gathered(state.require_rows(purpose="a fit"))
        neighbors = neighbors_of(state.prior())
        fit = cls(state, plan, rows.take(neighbors.order(len(rows))), plan.most_rows or limits().neighbor_rows)
        return replace(fit, most=MAX_ROWS_SHARED_NEIGHBORS) if fit.shares_neighbors and plan.most_rows is None else fit

    @property
    def spec(self) -> ModelSpec:
        """The specification of the model."""
        return self.state.spec

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
        """The dotted names of hyperparameters of features.

        Neighbors do not depend on them.
        """
        near = neighbors_of(self.state.prior()).names
        terms = [term for term in self.spec.terms if term.name in near]
        prefixes = tuple(prefix for term in terms for prefix in (f"{term.name}.", *term.prefixes))
        names = self.state.hyperparameters.space.quantities
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
        if self.plan.most_rows is None or self.of_features or self.has_residual:
            return wider
        return replace(wider, state=self.state.replace(hyperparameters=values))

    def with_spec(self, spec: ModelSpec) -> "NeighborFit":
        """Return the fit with another specification, such as one with a new basis."""
        return replace(self, state=self.state.replace(spec=spec))

    @property
    def size(self) -> int:
        """The number of rows of a search."""
        enough = self.most if self.plan.most_rows else 2 * self.most
        return len(self.rows) if len(self.rows) <= enough else self.most

    def needs_more_rows(self, values: ParameterValues, report: FitReport) -> bool:
        """Return whether all rows are far less likely than those of the search.

        Args:
            values: The values found.
            report: The report of the search.
        """
        if self.size == len(self.rows) or not report.stages or self.plan.is_over():
            return False
        with torch.no_grad():
            objective = self._objective(values, alone=False)
            searched = float(objective.log_likelihood(values).value) / objective.count
            every = self._log_likelihood_of_all(values)
        count = objective.count / (DESIGN_EFFECT if neighbors_of(self.state.prior()).block_size > 1 else 1)
        return not every > searched - MAX_LOSS - STANDARD_ERRORS / math.sqrt(count)

    def _log_likelihood_of_all(self, values: ParameterValues) -> float:
        """Return the mean log likelihood of all rows, or of many in a subset fit."""
        if self.plan.most_rows is not None and len(self.rows) > MAX_CHECKED:
            wider = replace(self, most=limits().neighbor_rows)._objective(values, alone=False)
            return float(wider.log_likelihood(values).value) / wider.count
        every = whitened_inference(self.spec.prior(values).detached(), self.rows, *mean_and_noise(values))
        return float(every.log_marginal_likelihood()) / self.rows.count

    def has_gained(self, report: FitReport) -> bool:
        """Return whether a search gained enough to search again with new neighbors.

        Args:
            report: The report of the search.
        """
        is_subset_fit = self.plan.is_continued or self.plan.most_rows is not None
        least = MIN_GAIN_OF_SUBSET_FIT if is_subset_fit else MIN_ROUND_GAIN
        return bool(report.stages) and report.stages[0].gain >= least

    def search(
        self, values: ParameterValues, stage: str, alone: bool = False, last: bool = False
    ) -> tuple[ParameterValues, FitReport]:
        """Search with the neighbors at given values.

        Args:
            values: The starting values.
            stage: The end of the name of the stage, after the number of rows.
            alone: Whether to omit the features. Neighbors of a residual then approximate the full kernel.
            last: Whether this search runs to convergence. Otherwise it takes at most 25 iterations.

        Returns:
            The values found, and the report.
        """
        size, plan = self.size, self.plan
        if plan.is_over():
            return values, not_searched(f"{size:,} rows{stage}", size)
        objective = self._objective(values, alone)
        if not last:
            plan = replace(plan, iteration_limit=min(ITERATIONS_PER_ROUND, plan.max_iterations))
        name = f"{size:,} rows{stage}" if size < len(self.rows) else f"all rows{stage}"
        has_few_features = self.state.prior().num_features <= FEW_FEATURES
        with in_one_thread(has_few_features):  # most time goes into loops over rows, which have their own threads
            tolerance = max(MIN_GAIN / objective.count, 1e-7)
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
                bounds[name] = float(least.log()), max(math.log(MAX_SCALE), float(begin.raw[name]))
        return bounds

    def left_out_log_prob(self, values: ParameterValues) -> float:
        """Return the mean log density of a row given all others, conditioned on responses.

        Args:
            values: The hyperparameters.
        """
        with torch.no_grad():
            solver = WhitenedSolver.of(self.spec.prior(values), self.rows, *mean_and_noise(values))
            means, variances = solver.leave_one_out()
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
