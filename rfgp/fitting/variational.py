"""Fitting by the bound of variational inference, on all rows.

With random features the bound is searched with few of them, whose matrices cost a fraction, and the posterior is then
computed once with all. Otherwise the search starts at the end of a cheaper fit, by Laplace's approximation or with a
Gaussian likelihood. For several classes no fit is cheaper.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch

from rfgp.fitting.context import FeatureFit
from rfgp.fitting.maximize import SMALL, Objective, Plan, maximize
from rfgp.fitting.observed import with_few
from rfgp.fitting.subsets import approach
from rfgp.likelihoods import Normal
from rfgp.parameters import Values
from rfgp.regression import FeatureFamily, FitReport, Regression
from rfgp.regression.observing import left_out_observations
from rfgp.regression.regression import restarted
from rfgp.rows import in_memory
from rfgp.solvers import Inference
from rfgp.threads import in_one_thread

Strategy = Callable[[Regression, Plan], tuple[Regression, FitReport]]

COMPARED = 500
"""The number of rows on which starts are compared."""
OF_CLASSES = 1e-4
"""The least gain of an iteration for several classes, in nats a row.

If inputs separate the classes, searches would continue for a hundred evaluations that gain 0.1 nats each."""


def fit_variational(regression: Regression, plan: Plan, strategy: Strategy) -> tuple[Regression, FitReport]:
    """Fit a regression by the bound; return it with its posterior, and the report.

    Args:
        regression: The regression, with its rows in memory.
        plan: The options of the fit.
        strategy: The fit of a cheaper regression.

    Raises:
        DataError: some of the rows are read in blocks.
    """
    rows = regression.needed_rows("a fit")
    in_memory(rows, "variational inference")
    few = with_few(regression)
    is_searched = isinstance(few.family, FeatureFamily) and not few.family.options.likelihood.has_noise_process
    with torch.no_grad(), in_one_thread(len(rows) <= SMALL):
        found, report, inference = _searched(few, plan) if is_searched else _approached(few, plan, strategy)
        if few is not regression:
            found = regression.replace(hyperparameters=found.hyperparameters)
            inference = found.infer(rows, inference.warm_start())
        left_out = float(left_out_observations(found, rows, inference).log_density.mean())
        total = float(inference.log_marginal_likelihood()) + found.scaling.targets.log_jacobian(rows.count)
        found = found.replace(given=inference.posterior())
    return found, replace(report, leave_one_out=left_out, log_marginal_likelihood=total)


def _searched(regression: Regression, plan: Plan) -> tuple[Regression, FitReport, Inference]:
    """Return the regression through features with the highest bound, the report, and the inference."""
    rows = regression.needed_rows("a fit")
    tolerance = OF_CLASSES if regression.family.options.likelihood.num_latents > 1 else None
    fit = FeatureFit.of(regression, plan)
    values, report = approach(fit, regression.hyperparameters, len(rows), COMPARED, tolerance)
    found = regression.replace(hyperparameters=values)
    return found, report, found.infer(rows)


def _approached(regression: Regression, plan: Plan, strategy: Strategy) -> tuple[Regression, FitReport, Inference]:
    """Return the regression fitted from the end of a cheaper one, the report, and the inference."""
    rows, law = regression.needed_rows("a fit"), regression.family.options.likelihood
    if law.num_latents > 1:
        found, report = strategy(regression, plan)
        return found, report, found.infer(rows)
    cheaper = _cheaper(regression)
    if law.has_noise_process:
        cheaper = restarted(regression, cheaper.family)
    known = tuple(name for name in plan.fixed if name in cheaper.hyperparameters.space.names)
    reached, first = strategy(cheaper, replace(plan, fixed=known))
    family = replace(cast(Any, reached.family), options=regression.family.options)
    begun = regression.replace(family=family, hyperparameters=_started(regression.hyperparameters, reached, plan.fixed))
    values, report = maximize(Objective.of(begun, rows), begun.hyperparameters, plan, stage="bound")
    found = begun.replace(hyperparameters=values)
    return found, report.with_all([first, report]), found.infer(rows)


def _cheaper(regression: Regression) -> Regression:
    """Return the regression by Laplace's approximation, or with a Gaussian likelihood."""
    family, options = cast(Any, regression.family), cast(Any, regression.family.options)
    if "laplace" in options.likelihood.approximations:
        return regression.replace(family=replace(family, options=replace(options, approximation="laplace")))
    options = replace(options, likelihood=Normal(), approximation=None)
    return regression.replace(family=replace(family, options=options))


def _started(values: Values, found: Regression, fixed: tuple[str, ...]) -> Values:
    """Return values with those found. The logarithm of the noise starts with the kernel of the function."""
    reached, names = found.hyperparameters, set(values.space.names) - set(fixed)
    own = {name: reached.value(name) for name in reached.space.names if name in names}
    kernel = set(reached.space.quantities) - {"outputscale", "noise"}
    prefix = found.family.noise_prefix
    of_noise = {f"{prefix}{name}": reached.value(name) for name in kernel if f"{prefix}{name}" in names}
    return values.given(**own, **of_noise)
