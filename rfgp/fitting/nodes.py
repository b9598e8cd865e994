"""Fitting a process on nodes: starts are compared, and searches start from the best of them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError, SolverError
from rfgp.fitting.average_information import maximize_by_scoring
from rfgp.fitting.maximize import Objective, Plan, maximize
from rfgp.fitting.variational import fit_variational
from rfgp.parameters import Values
from rfgp.regression import FitReport, Regression
from rfgp.regression.observing import approximation_of
from rfgp.rows import Block, gathered
from rfgp.solvers.choice import MOST_DENSE, uses_cg
from rfgp.solvers.iterative import IterativeSolver
from rfgp.threads import in_one_thread

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Factors of the kernel's parameters for starts."""
NOISES, SOLVED_NOISES = (0.1, 0.01, 1e-4), (0.1, 0.01)
"""Noise variances of starts, in variances of the targets; and for conjugate gradients, slow for little noise."""
TOLERANCE = 1e-8
"""The tolerance of the relative change of the likelihood of a row in one iteration."""
COMPARED_ROWS, MOST_COMPARED = 1000, 10_000
"""The number of rows on which starts are compared, by factorisation and by conjugate gradients."""
OPTIMISED, MOST_OPTIMISED = 3, 1500
"""The number of starts with different kernels that are all optimised, and the most rows for that."""
SMALL = 300
"""The number of rows up to which one thread is faster than several."""
_MOST_CHANGES = 2
"""The most times that a fit continues with better features for the fitted kernel."""


def fit_nodes(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression on the nodes of a graph; return it, and the report.

    Features that were selected or tuned are so again for the fitted kernel, and the fit continues with them.
    """
    if approximation_of(regression.family, regression.needed_rows("a fit")) == "variational":
        return fit_variational(regression, plan, _chosen)
    return _chosen(regression, plan)


def _chosen(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    with in_one_thread(len(regression.needed_rows("a fit")) <= SMALL):
        regression, report = _fitted(regression, plan)
        return regression, replace(report, choice=regression.family.choice)


def _fitted(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    regression, report = _trained(regression, plan, regression.family.open_starts)
    for _ in range(_MOST_CHANGES):
        family, goes_on = regression.family.retuned(regression.hyperparameters)
        regression = regression.replace(family=family)
        if not goes_on:
            break
        regression, more = _trained(regression, plan, frozenset(), is_continued=True)
        report = more.with_all([report, more])
    return regression, report


def _trained(
    regression: Regression, plan: Plan, open_starts: frozenset[str], *, is_continued: bool = False
) -> tuple[Regression, FitReport]:
    """Learn the hyperparameters.

    Args:
        regression: The regression, with its features.
        plan: The options of the fit.
        open_starts: The hyperparameters whose starts are compared: "outputscale", "noise", and "kernel" for its
            parameters.
        is_continued: Whether the hyperparameters are from a fit to the same data with other features.
    """
    rows, names = gathered(regression.needed_rows("a fit")), regression.family.kernel_names
    starts = [regression.hyperparameters]
    if "kernel" in open_starts and names and not set(names) & set(plan.fixed):
        starts = _ranked_starts(regression, plan, open_starts - set(plan.fixed), rows)
    if uses_cg(regression.prior(), rows):
        if not regression.family.is_normal:
            raise InvalidArgumentError(
                f"Under {regression.family.options.likelihood!r} hyperparameters are learned through sparse features "
                f"from at most {MOST_DENSE:,} observations, got {len(rows):,}. Learn from fewer and condition on all, "
                'or take features="precision" where the kernel has one.'
            )
        return fit_by_scoring(regression.replace(hyperparameters=starts[0]), plan, has_subset=not is_continued)
    values, report = _best_of(starts[: OPTIMISED if len(rows) <= MOST_OPTIMISED else 1], regression, rows, plan)
    return regression.replace(hyperparameters=values), report


def fit_by_scoring(regression: Regression, plan: Plan, *, has_subset: bool = True) -> tuple[Regression, FitReport]:
    """Take scoring steps, whose gradients conjugate gradients compute; return the regression and the report.

    Args:
        regression: The regression at its starting values.
        plan: The options of the fit.
        has_subset: Whether steps are first taken on a subset, so that those on all rows start close to the optimum.
    """
    rows = gathered(regression.needed_rows("a fit"))
    values, reports = regression.hyperparameters, []
    first = [(_subset(rows, MOST_COMPARED), f"subset of {MOST_COMPARED}")]
    stages = first if has_subset and len(rows) >= 2 * MOST_COMPARED else []
    for some, stage in (*stages, (rows, "all rows")):
        jacobian = regression.scaling.targets.log_jacobian(some.count)

        def infer(values: Values, some: Block = some) -> IterativeSolver:
            return cast(IterativeSolver, regression.replace(hyperparameters=values).infer(some))

        values, report = maximize_by_scoring(infer, some, jacobian, values, plan, stage)
        reports.append(report)
    return regression.replace(hyperparameters=values), report.with_all(reports)


def _subset(rows: Block, size: int) -> Block:
    """Return so many random rows in their order, or all."""
    order = torch.randperm(len(rows), generator=random.generator(0, random.Role.SAMPLE))
    return rows.take(order[:size].sort().values) if size < len(rows) else rows


def _best_of(starts: list[Values], regression: Regression, rows: Block, plan: Plan) -> tuple[Values, FitReport]:
    """Optimise from each start: the likelihood of a smooth kernel has several maxima; return the best."""
    objective, ends = Objective.of(regression, rows), []
    for number, start in enumerate(starts):
        stage = f"all rows, start {number + 1}" if number else "all rows"
        values, report = maximize(objective, start, plan, stage=stage, tolerance=TOLERANCE)
        ends.append((report.log_marginal_likelihood + float(values.log_hyperprior().detach()), values, report))
    _, best, report = max(ends, key=lambda end: end[0])
    return best, report.with_all([report for _, _, report in ends])


def _ranked_starts(regression: Regression, plan: Plan, open_starts: frozenset[str], rows: Block) -> list[Values]:
    """Return starts, at least one, the best for each factor of the kernel's parameters, by likelihood of some rows."""
    is_solved = uses_cg(regression.prior(), rows)
    some = _subset(rows, MOST_COMPARED if is_solved else COMPARED_ROWS)
    noises = SOLVED_NOISES if is_solved else NOISES
    starts = [list(_starts(regression, factor, noises, open_starts, some)) for factor in FACTORS]

    def compute() -> dict[str, Tensor]:
        totals = [_likelihood(regression, values, some) for same_factor in starts for values in same_factor]
        return {"likelihoods": torch.stack(totals)}

    likelihoods = plan.journal.memoize("starts", compute)["likelihoods"].reshape(len(FACTORS), -1)
    best, which = torch.where(torch.isfinite(likelihoods), likelihoods, -torch.inf).max(1)
    usable = [i for i in best.argsort(descending=True, stable=True).tolist() if math.isfinite(best[i])]
    return [starts[i][int(which[i])] for i in usable] or [regression.hyperparameters]


def _starts(
    regression: Regression, factor: float, noises: tuple[float, ...], open_starts: frozenset[str], some: Block
) -> Iterator[Values]:
    """Yield starts with the kernel's parameters times a factor, except parameters that are factors themselves."""
    family = regression.family
    names = [name for name in family.kernel_names if not name.startswith("factor_")]
    begun = regression.hyperparameters.shifted(**dict.fromkeys(names, math.log(factor)))
    for share in noises if "noise" in open_starts else (None,):
        values = (
            begun if share is None else begun.replaced({"noise": torch.tensor(math.log(share), dtype=torch.float64)})
        )
        if "outputscale" in open_starts:
            values = family.normalized(values.replaced({"outputscale": torch.zeros((), dtype=torch.float64)}), some)
        yield values


def _likelihood(regression: Regression, values: Values, rows: Block) -> Tensor:
    """Return the likelihood of rows with the hyperpriors, -inf for a start that cannot be evaluated."""
    try:
        with torch.no_grad():
            likelihood = regression.replace(hyperparameters=values).infer(rows).log_marginal_likelihood()
            return likelihood + values.log_hyperprior()
    except (SolverError, NotPositiveDefiniteError):
        return torch.full((), -torch.inf, dtype=torch.float64)
