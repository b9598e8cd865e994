"""Fitting tables: the strategy of each family."""

from rfgp.fitting.full_batch import fit_full_batch
from rfgp.fitting.inducing import fit_inducing, fit_residual
from rfgp.fitting.learn_frequencies import fit_learned_with_neighbors
from rfgp.fitting.maximize import Plan
from rfgp.fitting.neighbors import fit_neighbors
from rfgp.fitting.observed import fit_observed
from rfgp.fitting.subsets import fit_features
from rfgp.fitting.variational import fit_variational
from rfgp.regression import FeatureOptions, FitReport, InducingFamily, KernelFamily, LocalFamily, Regression
from rfgp.regression.observing import approximation_of


def fit_table(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression of a table; return it and the report."""
    if approximation_of(regression.family, regression.needed_rows("a fit")) == "variational":
        return fit_variational(regression, plan, _fitted)
    return _fitted(regression, plan)


def _fitted(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    if not regression.family.is_normal and not isinstance(regression.family, KernelFamily):
        return fit_observed(regression, plan)
    if isinstance(regression.family, LocalFamily):
        options = regression.family.options
        is_learned = isinstance(options, FeatureOptions) and options.frequencies == "learned"
        return (fit_learned_with_neighbors if is_learned else fit_neighbors)(regression, plan)
    if isinstance(regression.family, InducingFamily):
        return (fit_residual if regression.family.options.has_residual else fit_inducing)(regression, plan)
    return (fit_full_batch if isinstance(regression.family, KernelFamily) else fit_features)(regression, plan)
