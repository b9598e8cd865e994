"""Fitting sums of terms: several starts, a search on a subset of the rows, then on all of them."""

from dataclasses import replace
from typing import cast

import torch

from rfgp import random
from rfgp.approximations.planning import sharing as terms_that_share
from rfgp.errors import InvalidArgumentError
from rfgp.fitting.average_information import maximize_by_scoring
from rfgp.fitting.maximize import SMALL, Objective, Plan, maximize
from rfgp.fitting.starts import SCREENED_ROWS, first_rows, is_one_field, redrawn, spec_of, starts_of
from rfgp.parameters import Values
from rfgp.regression import FitReport, Regression
from rfgp.regression.spec import degrees_of_freedom, learnable_draws, with_learned
from rfgp.rows import Block, gathered, pool_of
from rfgp.solvers.choice import MOST_DENSE, uses_cg
from rfgp.solvers.iterative import IterativeSolver
from rfgp.threads import in_one_thread

FIRST_ROWS = 2000
"""The number of rows of the first search. Hyperparameters of a few thousand rows are close to those of all."""
LAST_GAIN = 0.1
"""The least gain in nats of the last five iterations of the search on all rows, after that on a subset."""
LEARNED_ROWS = 2**14
"""The most rows from which frequencies and inducing points are learned."""
TOLERANCE = 1e-8
"""The tolerance of the relative change of the likelihood of a row in one iteration, for one field."""
OPTIMIZED, MOST_OPTIMIZED = 3, 1500
"""The number of starts from which a field is searched, and the most rows for that."""
FIRST_ROWS_BY_CG = 10_000
"""The number of rows of the first search by conjugate gradients."""
MOST_CHANGES = 2
"""The most times that a search continues with features of nodes drawn anew at the hyperparameters found."""


def fit_terms(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression of terms; return it and the report."""
    rows = regression.needed_rows("a fit")
    pool = pool_of(rows)
    order = torch.randperm(len(pool), generator=random.generator(regression.family.options.seed, random.Role.SAMPLE))
    with in_one_thread(len(pool) <= SMALL):
        starts = starts_of(regression, plan, pool, order)
        if is_one_field(spec_of(regression)):
            return _fit_field(regression, starts, plan)
        regression = redrawn(regression.replace(hyperparameters=starts[0]))
        if uses_cg(regression.prior(), rows):
            return fit_by_scoring(regression, plan)
        if len(rows) <= 2 * FIRST_ROWS:
            return _learned(*_with_new_draws(regression, plan, gathered(rows), None), plan, gathered(rows))
        subset = pool.take(order[:FIRST_ROWS])
        regression, first = _with_new_draws(regression, plan, subset, "a subset")
        regression, first = _learned(regression, first, plan, pool.take(order[:LEARNED_ROWS]))
    last = replace(plan, enough=max(plan.enough, LAST_GAIN))
    values, report = maximize(Objective.of(regression, rows), regression.hyperparameters, last)
    return regression.replace(hyperparameters=values), report.with_all([first, report])


def _fit_field(regression: Regression, starts: list[Values], plan: Plan) -> tuple[Regression, FitReport]:
    """Fit one kernel on nodes, roads or a mesh, with features drawn anew at the hyperparameters found."""
    regression, report = _searched(regression, starts, plan, is_continued=False)
    for _ in range(MOST_CHANGES):
        ((before,), again) = spec_of(regression).priors, redrawn(regression)
        regression = again
        if spec_of(again).priors[0].has_draws_of(before):
            break
        regression, more = _searched(again, [again.hyperparameters], plan, is_continued=True)
        report = more.with_all([report, more])
    return regression, report


def _searched(
    regression: Regression, starts: list[Values], plan: Plan, *, is_continued: bool
) -> tuple[Regression, FitReport]:
    """Search on all rows from several starts, or by conjugate gradients from the first; return the best."""
    rows, best = regression.needed_rows("a fit"), None
    if uses_cg(regression.prior(), rows):
        return fit_by_scoring(regression.replace(hyperparameters=starts[0]), plan, has_subset=not is_continued)
    objective, reports = Objective.of(regression, rows), []
    for number, start in enumerate(starts[: OPTIMIZED if len(rows) <= MOST_OPTIMIZED else 1]):
        stage = f"all rows, start {number + 1}" if number else "all rows"
        values, report = maximize(objective, start, plan, stage=stage, tolerance=TOLERANCE)
        reports.append(report)
        score = report.log_marginal_likelihood + float(values.log_hyperprior().detach())
        best = (score, values, report) if best is None or score > best[0] else best
    assert best is not None
    return regression.replace(hyperparameters=best[1]), best[2].with_all(reports)


def fit_by_scoring(regression: Regression, plan: Plan, *, has_subset: bool = True) -> tuple[Regression, FitReport]:
    """Take scoring steps, whose gradients conjugate gradients compute; return the regression and the report.

    Args:
        regression: The regression at its starting values.
        plan: The options of the fit.
        has_subset: Whether steps are first taken on a subset, so that those on all rows start close to the optimum.
    """
    rows = gathered(regression.needed_rows("a fit"))
    if not regression.family.is_normal:
        raise InvalidArgumentError(
            f"Under {regression.family.options.likelihood!r} hyperparameters are learned through sparse features from "
            f"at most {MOST_DENSE:,} observations, got {len(rows):,}. Learn from fewer and condition on all, or use "
            "SparsePrecision() if the kernel has one."
        )
    values, reports = regression.hyperparameters, []
    first = [(_subset(rows), f"subset of {FIRST_ROWS_BY_CG}")]
    stages = first if has_subset and len(rows) >= 2 * FIRST_ROWS_BY_CG else []
    for some, stage in (*stages, (rows, "all rows")):
        jacobian = regression.scaling.targets.log_jacobian(some.count)

        def infer(values: Values, some: Block = some) -> IterativeSolver:
            return cast(IterativeSolver, regression.replace(hyperparameters=values).infer(some))

        values, report = maximize_by_scoring(infer, some, jacobian, values, plan, stage)
        reports.append(report)
    return regression.replace(hyperparameters=values), report.with_all(reports)


def _subset(rows: Block) -> Block:
    """Return some random rows in their order, or all."""
    order = torch.randperm(len(rows), generator=random.generator(0, random.Role.SAMPLE))
    return first_rows(rows, order, FIRST_ROWS_BY_CG)


def _learned(regression: Regression, report: FitReport, plan: Plan, rows: Block) -> tuple[Regression, FitReport]:
    """Search for the draws that a fit may change, together with the hyperparameters, if there are some."""
    spec = spec_of(regression)
    draws = learnable_draws(spec)
    if not draws or not plan.max_iterations:
        return regression, report
    begun = regression.hyperparameters.beside({path: draw.clone() for path, draw in draws.items()}, {})
    values, last = maximize(Objective.of(regression, rows), begun, plan, stage="draws too")
    learned = {path: values.raw[path].detach() for path in draws}
    found = regression.replace(family=with_learned(spec, learned))
    kept = regression.hyperparameters.replaced({name: values.raw[name] for name in regression.hyperparameters.raw})
    return found.replace(hyperparameters=kept), last.with_all([report, last])


def _divided(regression: Regression, rows: Block) -> Regression:
    """Return a regression whose terms share the budget of features by their effective degrees of freedom."""
    spec, values = spec_of(regression), regression.hyperparameters
    sharing = terms_that_share(spec.options.approximations, spec.approximations)
    if spec.options.budget is None or len(sharing) < 2 or not spec.is_normal:
        return regression
    pilot = regression.replace(rows=rows, num_observations=len(rows))
    freedom = degrees_of_freedom(pilot, rows.inputs[:SCREENED_ROWS])
    shares = {name: max(freedom[name], 1e-3) for name in sharing}
    return regression.replace(family=spec.drawn(spec.approximations, values, regression.num_observations, shares))


def _with_new_draws(regression: Regression, plan: Plan, rows: Block, stage: str | None) -> tuple[Regression, FitReport]:
    """Search on some rows; draw again at the hyperparameters found, and search from there if that is likelier."""
    objective = Objective.of(regression, rows)
    values, report = maximize(objective, regression.hyperparameters, plan, stage=stage or "all rows")
    regression = regression.replace(hyperparameters=values)
    again = redrawn(_divided(regression, rows))
    if again.family is regression.family:
        return regression, report
    objective = Objective.of(again, rows)
    is_divided = spec_of(again).approximations != spec_of(regression).approximations
    if not is_divided and not objective.likelihood(values) > report.log_marginal_likelihood:
        return regression, report
    values, last = maximize(objective, values, plan, stage=f"{stage or 'all rows'}, drawn again")
    return again.replace(hyperparameters=values), last.with_all([report, last])
