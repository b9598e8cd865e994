"""Fitting through features under a likelihood that is not Gaussian: on growing subsets, then on all rows.

Unless rows are many, hyperparameters are searched for with few random features, whose matrices cost a fraction. The
posterior is then computed once, with all features.
"""

from dataclasses import replace

import torch

from rfgp.fitting.context import FeatureFit
from rfgp.fitting.maximize import SMALL, Plan
from rfgp.fitting.subsets import approach, grow
from rfgp.regression import FeatureFamily, FitReport, Regression
from rfgp.regression.observing import left_out_observations
from rfgp.rows import SourceRows, parts_of
from rfgp.threads import in_one_thread

FEW_FREQUENCIES, FEWEST = 128, 64
"""The number of frequencies of a search for the hyperparameters of one function, and of several.

1,800 rows of four classes, 512 frequencies: 57 s with 64 and 87 s with 128, leave-one-out log densities -0.321 and
-0.316."""
MOST_ROWS = 10_000
"""The most rows of a search with few frequencies: more rows determine functions that few features cannot follow."""
CLASS_ROWS = 800
"""The most rows for the hyperparameters of several classes: an evaluation costs n^3 a class."""


def fit_observed(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression through features; return it with its posterior, and the report."""
    few = with_few(regression)
    fit = FeatureFit.of(few, plan)
    with torch.no_grad(), in_one_thread(len(fit.rows) <= SMALL):
        values, words = regression.hyperparameters, "every hyperparameter is fixed"
        reports: list[FitReport] = []
        if fit.free and regression.family.options.likelihood.num_latents > 1:
            values, report = approach(fit, values, CLASS_ROWS)
            reports, words = [report], f"on {report.stages[-1].rows:,} rows ({report.message})"
        elif fit.free:
            values, reports, words = grow(fit, values)
        if few is not regression:
            words = f"{words}, with fewer frequencies"
        return _finished(fit, regression.replace(hyperparameters=values), reports, words)


def with_few(regression: Regression) -> Regression:
    """Return the regression with fewer random features, if it has many features and not too many rows."""
    family = regression.family
    if not isinstance(family, FeatureFamily) or len(regression.needed_rows("a fit")) > MOST_ROWS:
        return regression
    few = FEW_FREQUENCIES if family.options.likelihood.num_latents == 1 else FEWEST
    if family.options.num_frequencies <= few:
        return regression
    options = replace(family.options, num_frequencies=few)
    return regression.replace(family=replace(family, options=options).with_sample(regression.scaling))


def _finished(
    fit: FeatureFit, regression: Regression, reports: list[FitReport], words: str
) -> tuple[Regression, FitReport]:
    """Return the regression with its posterior given all rows, and the report."""
    inference, rows = regression.infer(fit.rows), fit.rows
    total = float(inference.log_marginal_likelihood()) + regression.scaling.targets.log_jacobian(rows.count)
    found = regression.replace(given=inference.posterior())
    is_read = any(isinstance(part, SourceRows) for part in parts_of(rows))
    left_out = None if is_read else float(left_out_observations(regression, rows, inference).log_density.mean())
    converged = not reports or reports[-1].converged
    used = inference.effective_dof_fraction
    message = f"{'converged' if converged else 'stopped'}: {words}" if reports else words
    at_bounds = reports[-1].at_bounds if reports else ()
    report = FitReport(converged, 0, 0, total, message, at_bounds, leave_one_out=left_out, weights_used=used)
    return found, report.with_all(reports)
