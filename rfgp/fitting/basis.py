"""Fits with a basis of features: frequencies learned by Adam, others by L-BFGS.

The basis is the drawn part of an approximation: its frequencies, inducing points or grid.
"""

import math

import torch

from rfgp.fitting.context import Split, TermFit, in_search_precision
from rfgp.fitting.frequencies import (
    MIN_LEARNED,
    NO_SEARCH,
    Outcome,
    best_start,
    fixed_log_prob,
    learn,
    learned_frequencies,
    mean_and_standard_error,
    nothing_learned,
)
from rfgp.fitting.last_stage import solve_scales_and_condition
from rfgp.fitting.starts import free_lengthscales, ranked_multipliers, scaled
from rfgp.fitting.subsets import grow, learn_basis, message_of, optimize, sizes
from rfgp.regression import FitReport, GPState
from rfgp.regression.state import with_learned

TRIED_MULTIPLIERS = (0.125, 0.25, 0.5)
"""Multiples of the starting lengthscale that are also tried as starts of learning frequencies."""
CLEAR_GAIN = 0.2
"""The gain of learning in nats a test row below which fixed frequencies are fitted to convergence and compared."""
FIRST_ITERATIONS = 10
"""The number of iterations on the first subset before frequencies are learned.

More iterations would remove columns that learned frequencies could use."""


def fit_basis_functions(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit with a learned or fixed basis.

    Args:
        fit: The fit at its starting values.

    Returns:
        The state with its posterior, and the report.
    """
    return _fit_learned(fit) if learned_frequencies(fit) else _fit_fixed(fit)


def _fit_fixed(fit: TermFit, outcome: Outcome | None = None) -> tuple[GPState, FitReport]:
    """Fit with fixed frequencies, after an outcome of learning or None."""
    if not fit.free:
        return solve_scales_and_condition(fit, [], "every hyperparameter is fixed", outcome)
    fit, reports, words = grow(fit)
    if outcome is not None:
        if outcome.frequencies is not None:
            ahead, _ = mean_and_standard_error(outcome.test_log_prob - fixed_log_prob(fit, outcome.split))
            if ahead > 0:
                words = f"{outcome.report.message}; {ahead:.2g} ahead of fixed ones, fitted to the end"
                return _finish_learned(fit, outcome.with_message(words), reports)
            outcome = outcome.rejected(f"fixed ones, fitted to the end, are {-ahead:.2g} ahead and were taken")
        words = f"{words}; {outcome.report.message}"
    fit, reports = learn_basis(fit, reports, fixed=learned_frequencies(fit))
    return solve_scales_and_condition(fit, reports, message_of(reports, words), outcome)


def _fit_learned(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit with learned frequencies, unless fixed frequencies are as good.

    Fixed frequencies are fitted to convergence for a comparison if the scores are close, or if there are more learned
    numbers than training rows. This is not done if fixed frequencies are a candidate of their own.
    """
    outcome = _learned(fit)
    is_over = fit.plan.is_over()
    if is_over and outcome.frequencies is None:
        fit = fit.at(outcome.values)
    if (is_over or fit.plan.fixed_also_compared) and outcome.frequencies is None:
        return solve_scales_and_condition(fit, [outcome.initial_report], outcome.report.message, outcome)
    entries = sum(math.prod(frequencies.shape) for frequencies in (outcome.frequencies or {}).values())
    is_sure = (
        is_over
        or fit.plan.fixed_also_compared
        or (outcome.gain >= CLEAR_GAIN and entries <= len(outcome.split.training))
    )
    is_close = outcome.frequencies is None or (bool(fit.free) and not is_sure)
    return _fit_fixed(fit, outcome) if is_close else _finish_learned(fit, outcome, [])


def _finish_learned(fit: TermFit, outcome: Outcome, earlier: list[FitReport]) -> tuple[GPState, FitReport]:
    assert outcome.frequencies is not None
    learned = fit.with_spec(with_learned(fit.spec, outcome.frequencies)).at(outcome.values)
    reports = [*earlier, outcome.initial_report]
    return solve_scales_and_condition(learned, reports, outcome.report.message, outcome)


def _learned(fit: TermFit) -> Outcome:
    """Return the outcome of learning frequencies."""
    split = fit.split()
    if len(fit.pool) < MIN_LEARNED or fit.plan.steps == 0 or fit.plan.is_over():
        return nothing_learned(fit, split)
    initialized, report = _initialized(fit, split)
    names = [] if fit.plan.is_continued else free_lengthscales(fit)
    others = [scaled(fit.values, names, multiplier) for multiplier in TRIED_MULTIPLIERS if names]
    return learn(initialized, split, best_start(fit, split, [initialized.values, *others]), report)


def _initialized(fit: TermFit, split: Split) -> tuple[TermFit, FitReport]:
    """Return the fit after a few iterations on the first training rows, and a report."""
    pool = split.training
    if not fit.free:
        return fit, NO_SEARCH
    rows = in_search_precision(pool.take(torch.arange(min(sizes(fit)[0], len(pool)))))
    multiplier = ranked_multipliers(fit, rows)[0]
    start = scaled(fit.values, free_lengthscales(fit), multiplier) if multiplier != 1 else fit.values
    return optimize(fit.at(start), rows, FIRST_ITERATIONS)
