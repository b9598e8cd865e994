"""Fitting through inducing points: hyperparameters and points in turn, and at the end the points as well if wanted.

Hyperparameters are searched for as with random features (`rfgp.fitting.subsets`), the points staying where they are.
Where two columns' lengthscales have then changed by factors more than two apart, points are chosen again among the
rows as these lie in the new lengthscales, and the search goes on from where it was, on the last subset; three times at
most, and until that gains less than a thousandth of a nat a row. Points that are learned move by the same likelihood,
with all hyperparameters, on at most 16,384 rows.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rfgp.fitting.context import FeatureFit
from rfgp.fitting.finish import finish
from rfgp.fitting.maximize import SMALL, Objective, Plan, maximize
from rfgp.fitting.subsets import SETTLED, grow, optimize
from rfgp.inference import FeatureEvidence, LinearModel, evidence
from rfgp.parameters import Values
from rfgp.regression import FitReport, InducingFamily, Regression, mean_and_noise
from rfgp.rows import Block
from rfgp.threads import in_one_thread

ROUNDS = 3
"""Choices of points after the first, at most."""
MOST_ROWS = 2**14
"""Rows that points are learned from."""
POINTS = "inducing"
"""The name of points (M, d) among values that are searched."""


def fit_inducing(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression through inducing points; return the one found, with its posterior, and how it went."""
    fit = FeatureFit.of(regression, plan)
    with torch.no_grad(), in_one_thread(len(fit.rows) <= SMALL):
        values = regression.hyperparameters
        reports, words = list[FitReport](), "every hyperparameter is fixed"
        if fit.free:
            values, reports, words = grow(fit, values)
            fit, values, more = _chosen_again(fit, values, reports[-1].stages[-1].rows)
            reports += more
        if _family(fit).options.learn_inducing and plan.max_iterations:
            fit, values, report = _learned(fit, values)
            reports.append(report)
            words = f"points learned from {report.stages[-1].rows:,} rows ({report.message})"
        is_done = not reports or reports[-1].stages[-1].rows == len(fit.rows)
        return finish(fit, values, reports, words, is_done)


def _family(fit: FeatureFit) -> InducingFamily:
    assert isinstance(fit.family, InducingFamily)
    return fit.family


def _chosen_again(fit: FeatureFit, values: Values, size: int) -> tuple[FeatureFit, Values, list[FitReport]]:
    """Choose points anew and search on so many rows, while lengthscales move and it pays."""
    reports = list[FitReport]()
    for _ in range(ROUNDS):
        if not _family(fit).has_moved(values):
            break
        fit = fit.through(_family(fit).chosen(values, fit.pool))
        values, report = optimize(fit, values, fit.subset(size))
        reports.append(report)
        if report.stages[0].gain < SETTLED:
            break
    return fit, values, reports


def _learned(fit: FeatureFit, values: Values) -> tuple[FeatureFit, Values, FitReport]:
    """Search for the points and all free hyperparameters."""
    family, rows = _family(fit), fit.subset(MOST_ROWS)
    begin = values.beside({POINTS: family.drawn_points.clone()}, {})

    def density(values: Values) -> tuple[Tensor, Values]:
        return _likelihood(family, values, rows), values

    with torch.enable_grad():
        objective = Objective.of(fit.regression, rows, density)
        found, report = maximize(objective, begin, fit.plan, stage=f"points too, {len(rows):,} rows", tolerance=1e-6)
    family = family.with_points(found.raw[POINTS])
    raw = {name: found.raw[name] for name in values.raw}
    return fit.through(family), values.replaced(raw), replace(report)


def _likelihood(family: InducingFamily, values: Values, rows: Block) -> Tensor:
    prior, (mean, noise) = family.prior_of(values.raw[POINTS], values), mean_and_noise(values)
    if family.num_features <= len(rows):
        return FeatureEvidence(LinearModel(prior, rows, mean.double(), noise.double())).log_marginal_likelihood()
    return evidence(prior, rows, mean, noise).log_marginal_likelihood()
