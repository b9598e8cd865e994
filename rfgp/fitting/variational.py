"""Fitting by the bound of variational inference: it begins where a fit ends that costs a fraction.

That fit is by Laplace's approximation, or with a normal likelihood where there is none; on its way are the starts that
are compared, and the subsets. The bound is then searched once, on all rows.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch

from rfgp.fitting.maximize import SMALL, Objective, Plan, maximize
from rfgp.likelihoods import Normal
from rfgp.parameters import Values
from rfgp.regression import FitReport, Regression, begin
from rfgp.regression.observing import NOISE, left_out_observations
from rfgp.rows import in_memory
from rfgp.threads import in_one_thread

Strategy = Callable[[Regression, Plan], tuple[Regression, FitReport]]


def fit_variational(regression: Regression, plan: Plan, strategy: Strategy) -> tuple[Regression, FitReport]:
    """Fit a regression by the bound; return the one found, with its posterior, and how it went.

    Args:
        regression: With its rows in memory.
        plan: What the user asked for.
        strategy: How the cheaper regression is fitted.

    Raises:
        DataError: some of the rows are read in blocks.
    """
    rows = regression.needed_rows("a fit")
    chunk, _ = in_memory(rows, "variational inference")
    cheaper = _cheaper(regression)
    if isinstance(cheaper.family.options.likelihood, Normal):
        cheaper = begin(cheaper.family, chunk)
    known = tuple(name for name in plan.fixed if name in cheaper.hyperparameters.space.names)
    found, first = strategy(cheaper, replace(plan, fixed=known))
    family = replace(cast(Any, found.family), options=regression.family.options)
    started = regression.replace(family=family, hyperparameters=_started(regression.hyperparameters, found, plan.fixed))
    with torch.no_grad(), in_one_thread(len(rows) <= SMALL):
        values, report = maximize(Objective.of(started, rows), started.hyperparameters, plan, stage="bound")
        ended = started.replace(hyperparameters=values)
        evidence = ended.evidence(rows)
        left_out = float(left_out_observations(ended, rows, evidence).log_density.mean())
        ended = ended.replace(given=evidence.posterior())
    return ended, replace(report, leave_one_out=left_out).with_all([first, report])


def _cheaper(regression: Regression) -> Regression:
    """Return the regression by Laplace's approximation, or with a normal likelihood."""
    family, options = cast(Any, regression.family), cast(Any, regression.family.options)
    if "laplace" in options.likelihood.approximations:
        return regression.replace(family=replace(family, options=replace(options, approximation="laplace")))
    options = replace(options, likelihood=Normal(), approximation=None)
    return regression.replace(family=replace(family, options=options))


def _started(values: Values, found: Regression, fixed: tuple[str, ...]) -> Values:
    """Return values with those found; the noise's logarithm begins with the kernel of the function."""
    reached, names = found.hyperparameters, set(values.space.names) - set(fixed)
    own = {name: reached.value(name) for name in reached.space.names if name in names}
    kernel = set(reached.space.quantities) - {"outputscale", "noise"}
    of_noise = {f"{NOISE}{name}": reached.value(name) for name in kernel if f"{NOISE}{name}" in names}
    return values.given(**own, **of_noise)
