"""Learning random draws: frequencies by `rfgp.fitting.frequencies`, other draws by L-BFGS with the hyperparameters."""

import math
from collections.abc import Container

import torch

from rfgp.fitting.context import HeldOut, TermFit, searched
from rfgp.fitting.finish import finish
from rfgp.fitting.frequencies import (
    LEAST_LEARNED,
    NOTHING_BEFORE,
    Outcome,
    best_start,
    judged,
    learn,
    learned_frequencies,
    mean_and_error,
    refusal,
)
from rfgp.fitting.maximize import Objective, maximize
from rfgp.fitting.starts import open_scales, ranked_factors, scaled
from rfgp.fitting.subsets import grow, optimize, sizes
from rfgp.regression import FitReport, GPState
from rfgp.regression.spec import learnable_draws, with_learned

TRIED = (0.125, 0.25, 0.5)
"""Multiples of the starting lengthscale from which learning of frequencies is tried as well."""
CLOSE = 0.2
"""The gain of learning in nats a test row below which fixed frequencies are fitted to convergence and compared."""
BEGINNING = 10
"""The number of iterations on the first subset before frequencies are learned.

More of them remove columns that learned frequencies could use."""
MOST_ROWS = 2**14
"""The most rows that other draws, such as inducing points, are learned from."""


def fit_draws(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit with random draws that are learned, or with those that were made; return the regression and the report."""
    return _fit_learned(fit) if learned_frequencies(fit) else _fit_fixed(fit)


def _fit_fixed(fit: TermFit, outcome: Outcome | None = None) -> tuple[GPState, FitReport]:
    """Fit with the frequencies as they were drawn, after learning was tried or not."""
    if not fit.free:
        return finish(fit, [], "every hyperparameter is fixed", True, outcome)
    fit, reports, words = grow(fit)
    if outcome is not None:
        if outcome.frequencies is not None:
            ahead, _ = mean_and_error(outcome.judged - judged(fit, outcome.held_out))
            if ahead > 0:
                words = f"{outcome.words}; {ahead:.2g} ahead of fixed ones, fitted to the end"
                return _finish_learned(fit, outcome._replace(words=words), reports)
            outcome = outcome.refused(f"fixed ones, fitted to the end, are {-ahead:.2g} ahead and were taken")
        words = f"{words}; {outcome.words}"
    fit, reports, words = with_draws(fit, reports, words, learned_frequencies(fit))
    return finish(fit, reports, words, reports[-1].stages[-1].rows == len(fit.rows), outcome)


def _fit_learned(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit with learned frequencies unless fixed ones are as good. If unsure, fixed ones are fitted to convergence.

    It is unsure if the scores are close, or if rows are fewer than the numbers that are learned from them. If fixed
    ones are a candidate of their own, they are compared elsewhere, and not searched here.
    """
    outcome = _learned(fit)
    if fit.plan.has_rivals and outcome.frequencies is None:
        return finish(fit, [outcome.begun], outcome.words, False, outcome)
    entries = sum(math.prod(draw.shape) for draw in (outcome.frequencies or {}).values())
    is_sure = fit.plan.has_rivals or (outcome.gain >= CLOSE and entries <= len(outcome.held_out.learned_from))
    is_close = outcome.frequencies is None or (bool(fit.free) and not is_sure)
    return _fit_fixed(fit, outcome) if is_close else _finish_learned(fit, outcome, [])


def _finish_learned(fit: TermFit, outcome: Outcome, beside: list[FitReport]) -> tuple[GPState, FitReport]:
    assert outcome.frequencies is not None
    learned = fit.through(with_learned(fit.spec, outcome.frequencies)).at(outcome.values)
    return finish(learned, [*beside, outcome.begun], outcome.words, False, outcome)


def _learned(fit: TermFit) -> Outcome:
    """Return the outcome of learning the frequencies."""
    held_out = fit.held_out()
    if len(fit.pool) < LEAST_LEARNED or fit.plan.steps == 0:
        return refusal(fit, held_out)
    begun, report = _begun(fit, held_out)
    names = [] if fit.plan.is_begun else open_scales(fit)
    others = [scaled(fit.values, names, factor) for factor in TRIED if names]
    return learn(begun, held_out, best_start(fit, held_out, [begun.values, *others]), report)


def _begun(fit: TermFit, held_out: HeldOut) -> tuple[TermFit, FitReport]:
    """Return the fit after some iterations on the first subset of the rows that frequencies are learned from."""
    pool = held_out.learned_from
    if not fit.free:
        return fit, NOTHING_BEFORE
    rows = searched(pool.take(torch.arange(min(sizes(fit)[0], len(pool)))))
    factor = ranked_factors(fit, rows)[0]
    start = scaled(fit.values, open_scales(fit), factor) if factor != 1 else fit.values
    return optimize(fit.at(start), rows, BEGINNING)


def with_draws(
    fit: TermFit, reports: list[FitReport], words: str, others: Container[str] = ()
) -> tuple[TermFit, list[FitReport], str]:
    """Search for the draws that a fit may change together with the hyperparameters, by L-BFGS, if there are some.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports of the searches.
        words: The message of the report.
        others: The paths of draws that stay.
    """
    draws = {path: draw for path, draw in learnable_draws(fit.spec).items() if path not in others}
    if not draws or not fit.plan.max_iterations:
        return fit, reports, words
    rows = searched(fit.subset(MOST_ROWS))
    begun = fit.values.with_others({path: draw.clone() for path, draw in draws.items()}, {})
    with torch.enable_grad():
        found, report = maximize(Objective.of(fit.regression, rows), begun, fit.plan, stage="draws too", tolerance=1e-6)
    learned = {path: found.raw[path].detach() for path in draws}
    values = fit.values.replaced({name: found.raw[name] for name in fit.values.raw})
    words = f"draws learned from {len(rows):,} rows ({report.message})"
    return fit.through(with_learned(fit.spec, learned)).at(values), [*reports, report], words
