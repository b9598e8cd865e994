"""Fitting sums of terms: starts by a screening, a search on a subset of the rows, then on all of them."""

import math
from dataclasses import replace

import torch

from rfgp import random
from rfgp.approximations.planning import sharing as terms_that_share
from rfgp.fitting.maximize import SMALL, Objective, Plan, maximize
from rfgp.fitting.nodes import fit_by_scoring
from rfgp.parameters import Values
from rfgp.regression import FitReport, Regression
from rfgp.regression.spec import ModelSpec, degrees_of_freedom, learnable_draws, with_learned
from rfgp.rows import Block, gathered, pool_of
from rfgp.solvers.choice import uses_cg
from rfgp.threads import in_one_thread

FIRST_ROWS = 2000
"""The number of rows of the first search. Hyperparameters of a few thousand rows are close to those of all."""
LAST_GAIN = 0.1
"""The least gain in nats of the last five iterations of the search on all rows, after that on a subset."""
LEARNED_ROWS = 2**14
"""The most rows from which frequencies and inducing points are learned."""
SCREENED_ROWS = 500
"""The number of rows by whose likelihood starting lengthscales are compared."""
FACTORS = (1.0, 0.3, 0.1)
"""The factors of starting lengthscales that are compared. A search from a long one can end with noise alone."""


def fit_terms(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression of terms; return it and the report."""
    rows = regression.needed_rows("a fit")
    pool = pool_of(rows)
    order = torch.randperm(len(pool), generator=random.generator(regression.family.options.seed, random.Role.SAMPLE))
    with in_one_thread(len(pool) <= SMALL):
        values = screened(regression, plan, _first(pool, order, SCREENED_ROWS))
        regression = _drawn_again(regression.replace(hyperparameters=values))
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


def _first(rows: Block, order: torch.Tensor, count: int) -> Block:
    """Return the first rows of a random order (n,), in their own order, so that all rows are the same rows."""
    return rows if len(rows) <= count else rows.take(order[:count].sort().values)


def _spec_of(regression: Regression) -> ModelSpec:
    assert isinstance(regression.family, ModelSpec)
    return regression.family


def screened(regression: Regression, plan: Plan, rows: Block) -> Values:
    """Return starting values whose lengthscales are, one after the other, the likeliest of a few.

    Args:
        regression: The regression at its starting values.
        plan: The options of the fit.
        rows: The rows whose likelihood is compared.
    """
    values, spec = regression.hyperparameters, _spec_of(regression)
    free = values.space.free(plan.fixed)
    for name in (path for path in _open_lengthscales(spec) if path in free):
        ends = [values.shifted(**{name: math.log(factor)}) for factor in FACTORS]
        found = [
            Objective.of(_drawn_again(regression.replace(hyperparameters=end)), rows).likelihood(end) for end in ends
        ]
        values = ends[found.index(max(found))]
    return values


def _open_lengthscales(spec: ModelSpec) -> list[str]:
    """Return the paths of the lengthscales of numbers and places to which nobody gave a start."""
    names = [
        f"{prefix}lengthscale"
        for term in spec.terms
        for factor, _, prefix in term.parts()
        if factor.measure is not None or factor.domain is not None
    ]
    return [name for name in dict.fromkeys(names) if name not in spec.options.starts]


def _learned(regression: Regression, report: FitReport, plan: Plan, rows: Block) -> tuple[Regression, FitReport]:
    """Search for the draws that a fit may change, together with the hyperparameters, if there are some."""
    spec = _spec_of(regression)
    draws = learnable_draws(spec)
    if not draws or not plan.max_iterations:
        return regression, report
    begun = regression.hyperparameters.beside({path: draw.clone() for path, draw in draws.items()}, {})
    values, last = maximize(Objective.of(regression, rows), begun, plan, stage="draws too")
    learned = {path: values.raw[path].detach() for path in draws}
    found = regression.replace(family=with_learned(spec, learned))
    kept = regression.hyperparameters.replaced({name: values.raw[name] for name in regression.hyperparameters.raw})
    return found.replace(hyperparameters=kept), last.with_all([report, last])


def _drawn_again(regression: Regression) -> Regression:
    """Return a regression whose draws that depend on hyperparameters are those for the present ones."""
    spec, values = _spec_of(regression), regression.hyperparameters
    return regression.replace(family=spec.redrawn(values, regression.num_observations))


def _divided(regression: Regression, rows: Block) -> Regression:
    """Return a regression whose terms share the budget of features by their effective degrees of freedom."""
    spec, values = _spec_of(regression), regression.hyperparameters
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
    again = _drawn_again(_divided(regression, rows))
    if again.family is regression.family:
        return regression, report
    objective = Objective.of(again, rows)
    is_divided = _spec_of(again).approximations != _spec_of(regression).approximations
    if not is_divided and not objective.likelihood(values) > report.log_marginal_likelihood:
        return regression, report
    values, last = maximize(objective, values, plan, stage=f"{stage or 'all rows'}, drawn again")
    return again.replace(hyperparameters=values), last.with_all([report, last])
