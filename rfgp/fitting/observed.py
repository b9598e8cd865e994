"""Fitting through features under a likelihood that is not normal: on larger and larger subsets, then on all rows.

Hyperparameters are sought with few random features where there are not too many rows, whose matrices cost a fraction;
the posterior is then found once, with all. The few serve for nothing else.
"""

from dataclasses import replace

import torch

from rfgp.fitting.context import FeatureFit
from rfgp.fitting.maximize import SMALL, Plan
from rfgp.fitting.subsets import approach, grow
from rfgp.inference import LaplaceFeatureEvidence
from rfgp.regression import FeatureFamily, FitReport, Regression
from rfgp.regression.observing import left_out_observations
from rfgp.rows import SourceRows, parts_of
from rfgp.threads import in_one_thread

FEW_FREQUENCIES, FEWEST = 128, 64
"""With which the hyperparameters of one function are sought, and of several. (1,800 rows of four classes, 512
frequencies: 57 s with 64, 87 s with 128; leaving rows out, log densities of -.321 and -.316.)"""
MOST_ROWS = 10_000
"""For which that is done: more tell of functions that few features do not follow."""
CLASS_ROWS = 800
"""Rows that the hyperparameters of several classes are learned from: an evaluation takes n^3 a class."""


def fit_observed(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression through features; return the one found, with its posterior, and how it went."""
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
    """Return the regression with fewer random features, where it has many, and rows are not too many for them."""
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
    evidence, rows = regression.evidence(fit.rows), fit.rows
    total = float(evidence.log_marginal_likelihood()) + regression.scaling.targets.log_jacobian(rows.count)
    found = regression.replace(given=evidence.posterior())
    is_read = any(isinstance(part, SourceRows) for part in parts_of(rows))
    left_out = None if is_read else float(left_out_observations(regression, rows, evidence).log_density.mean())
    converged = not reports or reports[-1].converged
    used = evidence.weights_used if isinstance(evidence, LaplaceFeatureEvidence) else None
    message = f"{'converged' if converged else 'stopped'}: {words}" if reports else words
    at_bounds = reports[-1].at_bounds if reports else ()
    report = FitReport(converged, 0, 0, total, message, at_bounds, leave_one_out=left_out, weights_used=used)
    return found, report.with_all(reports)
