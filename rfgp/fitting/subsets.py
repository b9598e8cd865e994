"""Fitting through features: on growing subsets of the rows until the optimum stops moving, then on all rows.

1. Starts: several common lengthscales are compared by their likelihood on the first subset. The best two that are far
   apart are both optimised there. If the rows are fewer than twice the features, and the kernel is cheap, this is done
   with the exact kernel, whose likelihood then costs less. The features start at the one of its optima where they are
   likelier: at very short lengthscales the exact kernel may fit noise that random features cannot.
2. Subsets: L-BFGS on n_1, 4 n_1, ... rows, at most 65,536, until a larger subset gains less than 0.001 nats a row. The
   output scale is solved for at each evaluation.
3. Learned frequencies (`rfgp.fitting.frequencies`), instead of larger subsets.
4. All rows (`rfgp.fitting.finish`): noise and output scale again, and the posterior.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rfgp.fitting.context import FeatureFit
from rfgp.fitting.finish import finish
from rfgp.fitting.frequencies import (
    LEAST_LEARNED,
    NOTHING_BEFORE,
    Outcome,
    best_start,
    has_prior,
    judged,
    learn,
    mean_and_error,
    refusal,
)
from rfgp.fitting.maximize import ENOUGH, SMALL, Density, Evaluation, Objective, Plan, maximize, plain_density
from rfgp.parameters import Values
from rfgp.regression import FitReport, InducingFamily, KernelFamily, Regression
from rfgp.rows import Block
from rfgp.solvers import WarmStart
from rfgp.solvers.lowrank import LowRankSolver, best_common_scale
from rfgp.threads import in_one_thread

LEAST_ROWS = 2000
"""The fewest rows of the first subset."""
GROWTH, MOST_ROWS = 4, 2**16
"""The factor of the size of the next subset, and the most rows of the last, whose features are in memory at once."""
SETTLED = 1e-3
"""The gain of a larger subset in nats a row below which the optimum has converged."""
STARTS = (1 / 32, 1 / 16, 1 / 8, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the starting lengthscale."""
APART = 4.0
"""The factor between the lengthscales of two starts that are both optimised."""
FEW_ROWS, SHORT = 250, 0.2
"""The most rows for which only the best start is optimised, unless its lengthscales are shorter than that factor.

Features explain each row by itself at short lengthscales. On 18 tables at 50, 150 and 400 rows the usual start gained
more than a nat in 4 of the 8 cases with a best start that short; a second start did so in 3 of the other 42."""
MOST_EXACT = 4000
"""The number of rows above which starts use the exact kernel only if features are more than rows."""
_ROUNDED = 6
"""The number of decimals, in nats, to which likelihoods are compared."""
_APPROACHED, _POLISHED = 1e-3, 0.05
"""The least gain of an iteration in nats, on the exact kernel's likelihood and then on that of the features.

On 5 tables at 50 to 400 rows, 0.05 ends lower than 1e-3 by 0.03 nats in the median, in two thirds of the time.
"""
TRIED = (0.125, 0.25, 0.5)
"""Multiples of the starting lengthscale from which learning of frequencies is tried as well."""
CLOSE = 0.2
"""The gain of learning in nats a test row below which fixed frequencies are fitted to convergence and compared."""
BEGINNING = 10
"""The number of iterations on the first subset before frequencies are learned.

More of them remove columns that learned frequencies could use."""
TOLERANCE = 1e-7
"""The least gain of an iteration on many rows, in nats a row."""
COARSE = 1e-5
"""The least gain of an iteration with inducing points and many rows, in nats a row.

Noise and lengthscales compensate each other along a ridge, and other points change the likelihood by more. (5,000 rows
of elevators, 128 points, FITC: 18 s; with 1e-6 36 s, and an NLPD that is higher by 0.004.)"""
_LOG_RATIO = (-27.0, 9.0)
"""The bounds of log(noise / output scale) while their common scale is solved for."""


def fit_features(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression through features of a table; return it with its posterior, and the report."""
    fit = FeatureFit.of(regression, plan)
    with torch.no_grad(), in_one_thread(len(fit.rows) <= SMALL):
        if fit.feature_family.options.frequencies == "learned":
            return _fit_learned(fit)
        return _fit_fixed(fit)


def _fit_fixed(fit: FeatureFit, outcome: Outcome | None = None) -> tuple[Regression, FitReport]:
    """Fit with the frequencies as they were drawn, after learning was tried or not."""
    values = fit.regression.hyperparameters
    if not fit.free:
        return finish(fit, values, [], "every hyperparameter is fixed", True, outcome)
    values, reports, words = grow(fit, values)
    if outcome is not None:
        if outcome.frequencies is not None:
            ahead, _ = mean_and_error(outcome.judged - judged(fit, outcome.held_out, values))
            if ahead > 0:
                words = f"{outcome.words}; {ahead:.2g} ahead of fixed ones, fitted to the end"
                return _finish_learned(fit, outcome._replace(words=words), reports)
            outcome = outcome.refused(f"fixed ones, fitted to the end, are {-ahead:.2g} ahead and were taken")
        words = f"{words}; {outcome.words}"
    return finish(fit, values, reports, words, reports[-1].stages[-1].rows == len(fit.rows), outcome)


def _fit_learned(fit: FeatureFit) -> tuple[Regression, FitReport]:
    """Fit with learned frequencies unless fixed ones are as good. If unsure, fixed ones are fitted to convergence.

    It is unsure if the scores are close, or if rows are fewer than the numbers that are learned from them. If fixed
    ones are a candidate of their own, they are compared elsewhere.
    """
    outcome = _learned(fit)
    entries = 0 if outcome.frequencies is None else math.prod(outcome.frequencies.shape)
    is_sure = fit.plan.has_rivals or (outcome.gain >= CLOSE and entries <= len(outcome.held_out.learned_from))
    is_close = outcome.frequencies is None or (bool(fit.free) and not is_sure)
    return _fit_fixed(fit, outcome) if is_close else _finish_learned(fit, outcome)


def _finish_learned(
    fit: FeatureFit, outcome: Outcome, beside: Sequence[FitReport] = ()
) -> tuple[Regression, FitReport]:
    assert outcome.frequencies is not None
    learned = fit.with_frequencies(outcome.frequencies)
    return finish(learned, outcome.values, [*beside, outcome.begun], outcome.words, False, outcome)


def grow(fit: FeatureFit, values: Values) -> tuple[Values, list[FitReport], str]:
    """Optimise on growing subsets; return the values, the reports, and a message."""
    return enlarge(fit, *begin(fit, values))


def begin(fit: FeatureFit, values: Values) -> tuple[Values, list[FitReport]]:
    """Optimise on the smallest subset, from several starts; return the values and the reports."""
    rows, features = searched(fit.subset(_sizes(fit)[0])), fit.family.num_features
    if fit.plan.is_begun:
        values, report = optimize(fit, values, rows)
        return values, [report]
    if len(rows) >= min(2 * features, max(features, MOST_EXACT)) or not fit.family.options.spectrum.is_quick:
        ends = _ends_of_starts(fit, values, rows)
        values, report = max(ends, key=lambda end: round(end[1].log_marginal_likelihood, _ROUNDED))
        return values, [report.with_all([report for _, report in ends])]
    exact = replace(fit, regression=fit.regression.replace(family=fit.family.exact()), solves_scales=False)
    ends = _ends_of_starts(exact, values, rows, _APPROACHED / rows.count)
    density = _density(fit, values, rows)
    values, _ = max(ends, key=lambda end: round(float(density(end[0])[0]), _ROUNDED))
    begun = ends[-1][1].with_all([report for _, report in ends])
    values, report = optimize(fit, values, rows, tolerance=_POLISHED / rows.count)
    return values, [begun, report]


def approach(
    fit: FeatureFit, values: Values, most: int, compared: int | None = None, tolerance: float | None = None
) -> tuple[Values, FitReport]:
    """Optimise on at most so many rows from the best start, to a coarse tolerance; return the values and the report.

    Args:
        fit: The fit.
        values: The starting values.
        most: The most rows.
        compared: The most rows on which starts are compared. If None, all of these.
        tolerance: The least gain of an iteration in nats a row. If None, 0.001 nats in total.
    """
    rows = searched(fit.subset(most))
    best = _ranked_starts(fit, values, rows if compared is None else searched(fit.subset(compared)))[0]
    return optimize(fit, _scaled(values, best), rows, tolerance=tolerance or _APPROACHED / rows.count)


def enlarge(fit: FeatureFit, values: Values, reports: list[FitReport]) -> tuple[Values, list[FitReport], str]:
    """Optimise on the larger subsets; return the values, all reports, and a message."""
    for size in _sizes(fit)[1:]:
        values, report = optimize(fit, values, searched(fit.subset(size)))
        reports.append(report)
        if report.stages[0].gain < SETTLED:
            break
    last = reports[-1].stages[0]
    if last.rows == len(fit.rows):
        return values, reports, f"on all {last.rows:,} rows ({reports[-1].message})"
    if len(_sizes(fit)) == 1:
        return values, reports, f"on {last.rows:,} of {len(fit.rows):,} rows ({reports[-1].message})"
    gain = f"{last.rows:,} rows gained {last.gain:.1g} nats a row on the subset before"
    return values, reports, gain if last.gain < SETTLED else f"{gain}, and no more are searched on"


def _sizes(fit: FeatureFit) -> list[int]:
    n, size, sizes = min(len(fit.pool), MOST_ROWS), max(LEAST_ROWS, 2 * fit.family.num_features), []
    while size * 2 < n:
        sizes.append(size)
        size *= GROWTH
    return [*sizes, n]


def searched(rows: Block) -> Block:
    """Return rows for a search; few rows in double precision, since rounding would stop line searches."""
    return replace(rows, inputs=rows.inputs.double()) if len(rows) <= LEAST_ROWS else rows


# --- starts ----------------------------------------------------------------------------------------


def _ends_of_starts(
    fit: FeatureFit, values: Values, rows: Block, tolerance: float | None = None
) -> list[tuple[Values, FitReport]]:
    """Optimise from the best start, and from the usual one if that is short, else from one far away."""
    order = _ranked_starts(fit, values, rows)
    if order[0] <= SHORT:
        others = [1.0]
    elif len(rows) <= FEW_ROWS:
        others = []
    else:
        others = [factor for factor in order if not 1 / APART < factor / order[0] < APART][:1]
    starts = enumerate([order[0], *others])
    return [
        optimize(fit, _scaled(values, factor), rows, restart=number, tolerance=tolerance) for number, factor in starts
    ]


def _ranked_starts(fit: FeatureFit, values: Values, rows: Block) -> list[float]:
    """Return multiples of the starting lengthscale, ranked by the likelihood of rows, the longer of equals first.

    Lengthscales shorter than all distances are equal up to rounding.
    """
    if not _may_scale(fit):
        return [1.0]
    density = _density(fit, values, rows)

    def likelihood(factor: float) -> float:
        scaled = _scaled(values, factor)
        if not has_prior(scaled):
            return -math.inf
        total, reached, _ = density(scaled)
        return float(total + reached.log_hyperprior())

    def compute() -> dict[str, Tensor]:
        return {"values": torch.tensor([likelihood(factor) for factor in STARTS], dtype=torch.float64)}

    likelihoods = fit.plan.journal.memoize("starts", compute)["values"].tolist()
    ranked = sorted(zip(likelihoods, STARTS, strict=True), key=lambda pair: (round(pair[0], _ROUNDED), pair[1]))
    return [factor for _, factor in reversed(ranked)]


def _may_scale(fit: FeatureFit) -> bool:
    return not fit.plan.is_begun and fit.family.options.lengthscale is None and "lengthscale" not in fit.plan.fixed


def _scaled(values: Values, factor: float) -> Values:
    return values.shifted(lengthscale=math.log(factor))


# --- searches --------------------------------------------------------------------------------------


def optimize(
    fit: FeatureFit,
    values: Values,
    rows: Block,
    most: int | None = None,
    restart: int = 0,
    tolerance: float | None = None,
) -> tuple[Values, FitReport]:
    """Run L-BFGS on rows, with the output scale solved for unless that leaves the bounds."""
    stage = "all rows" if len(rows) == len(fit.rows) else f"subset of {len(rows)}"
    stage += ", exact kernel" * isinstance(fit.regression.family, KernelFamily)
    plan, again, reports = fit.plan, ", second start" * restart, list[FitReport]()
    if most is not None:
        plan = replace(plan, given_iterations=min(most, plan.max_iterations))
    tolerance = _tolerance(fit, rows) if tolerance is None else tolerance
    if fit.solves(rows):
        objective, held = Objective.of(fit.regression, rows, _density(fit, values, rows)), ("outputscale",)
        scale = float(values.raw["outputscale"])  # it is held, and their common scale is solved for
        bounds = {"noise": (scale + _LOG_RATIO[0], scale + _LOG_RATIO[1])}
        found = maximize(objective, values, plan, stage=stage + again, held=held, bounds=bounds, tolerance=tolerance)
        inside, was_outside = found[0].clamped(("noise", "outputscale"))
        if not was_outside:
            return found
        values, reports, stage = inside, [found[1]], f"{stage} within bounds"
    values, report = maximize(
        Objective.of(fit.regression, rows), values, plan, stage=stage + again, tolerance=tolerance
    )
    return values, report.with_all([*reports, report])


def _tolerance(fit: FeatureFit, rows: Block) -> float:
    if isinstance(fit.family, InducingFamily) and len(fit.rows) > LEAST_ROWS:
        return COARSE
    return ENOUGH / rows.count if len(rows) <= LEAST_ROWS else TOLERANCE


def _density(fit: FeatureFit, start: Values, rows: Block) -> Density:
    """Return the log density of rows, with the output scale solved for if possible.

    The search varies noise / output scale, as the noise with the output scale of the start.
    """
    if not fit.solves(rows):
        return plain_density(fit.regression, rows)

    def density(values: Values, warm_start: WarmStart = ()) -> Evaluation:
        begun = values.replaced({"outputscale": start.raw["outputscale"]})
        with torch.no_grad():
            c, solution = best_common_scale(fit.linear(begun.detached(), rows), rows.count)
        wanted = [name for name, raw in values.raw.items() if raw.requires_grad]
        reached = begun.shifted(outputscale=c.log(), noise=c.log()).leaves(wanted)
        return Evaluation(LowRankSolver(fit.linear(reached, rows), solution).log_marginal_likelihood(), reached)

    return density


def _learned(fit: FeatureFit) -> Outcome:
    """Return the outcome of learning the frequencies."""
    held_out = fit.held_out()
    if len(fit.pool) < LEAST_LEARNED or fit.plan.steps == 0:
        return refusal(fit, held_out)
    values, report, pool = fit.regression.hyperparameters, NOTHING_BEFORE, held_out.learned_from
    if fit.free:
        rows = searched(pool.take(torch.arange(min(_sizes(fit)[0], len(pool)))))
        start = _scaled(values, _ranked_starts(fit, values, rows)[0])
        values, report = optimize(fit, start, rows, BEGINNING)
    others = [_scaled(fit.regression.hyperparameters, factor) for factor in TRIED if _may_scale(fit)]
    return learn(fit, held_out, values, best_start(fit, held_out, [values, *others]), report)
