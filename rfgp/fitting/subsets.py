"""Fits of exact kernels, features and inducing points: on growing subsets until the optimum converges, then on all.

Few rows are one subset, and exact kernels have no basis: steps 1, 3 and 5 remain.

1. Starts: Several lengthscales are compared by their likelihood on the first subset (`rfgp.fitting.starts`). The best
   two that are far apart are both searched from. With fewer rows than twice the random features and a cheap kernel, the
   exact kernel is used first, because its likelihood costs less and it does not explain few rows by features at short
   lengthscales.
2. Draws: Draws that depend on the hyperparameters, such as inducing points, are made again at those found. The search
   continues with them if they are more likely.
3. Subsets: L-BFGS on n_1, 4 n_1, ... rows, at most 65,536, until a larger subset gains less than 0.001 nats a row. The
   common factor of all variances is solved for at each evaluation of weights (`TermFit.solves`).
4. Frequencies: Adam may learn them (`rfgp.fitting.frequencies`) instead of larger subsets. L-BFGS learns other bases,
   such as inducing points, together with the hyperparameters.
5. All rows: Noise and variances are found again, and the posterior is computed (`rfgp.fitting.last_stage`).
"""

import torch

from rfgp.approximations import Exact, RandomFeatures
from rfgp.fitting.context import SearchEnd, Split, TermFit, in_search_precision, scale_profile_likelihood
from rfgp.fitting.driver import (
    SearchStage,
    best_of_starts,
    learn_basis,
    search,
    search_in_stages,
    with_best_basis,
)
from rfgp.fitting.frequencies import (
    MIN_LEARNED,
    NO_SEARCH,
    Outcome,
    best_start,
    learn,
    learned_frequencies,
    nothing_learned,
)
from rfgp.fitting.last_stage import merged, solve_scales_and_condition, with_leave_one_out_scores
from rfgp.fitting.starts import (
    SCREENED_ROWS,
    free_lengthscales,
    ranked_multipliers,
    scaled,
    search_sparsely,
    sparse_effects,
    start_from_multiplier,
    with_dense_start,
)
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.models.state import with_learned
from rfgp.parameters import ParameterValues
from rfgp.rows import Block

GROWTH, MAX_ROWS = 4, 2**16
"""The growth of subsets, and the maximum number of rows of the last subset. All its features are in memory at once."""
APART = 4.0
"""The smallest ratio of lengthscales of two starts that are both optimized. With one start, 600 rows of bike and gas
end lower by 20 to 95 nats."""
FEW_ROWS, SHORT = 250, 0.2
"""The maximum number of rows for which only the best start is optimized, and the factor of its lengthscales that is an
exception.

At short lengthscales features explain each row by itself. On 18 tables at 50, 150 and 400 rows the usual start gained
more than a nat in 4 of the 8 cases with a best start that short. A second start did so in 3 of the other 42 cases."""
_COARSE_GAIN, _LAST_GAIN = 1e-3, 0.05
"""The smallest gain of an iteration in nats, first with the exact kernel and then with the features.

On 5 tables at 50 to 400 rows, 0.05 ends lower than 1e-3 by 0.03 nats in the median, in two thirds of the time."""
TRIED_MULTIPLIERS = (0.125, 0.25, 0.5)
"""Multiples of the starting lengthscale that are also tried as starts of learning frequencies.

Without them 900 rows of kin40k end lower by 68 nats, and one of ten tables at 300 rows loses 0.2 nats a new row."""
FIRST_ITERATIONS = 10
"""The number of iterations on the first subset before frequencies are learned.

More iterations would remove columns that learned frequencies could use."""


def grow(fit: TermFit) -> tuple[TermFit, list[FitReport]]:
    """Search on growing subsets until the gain is small.

    Args:
        fit: The fit at its starting values.

    Returns:
        The fit, and the reports.
    """
    first, *larger = sizes(fit)
    fit, reports = with_best_basis(*_from_starts(fit, in_search_precision(fit.subset(first))))
    least, before = limits().min_subset_gain, fit
    stages = (SearchStage(in_search_precision(before.subset(size)), least=least) for size in larger)
    fit, reports = search_in_stages(fit, stages, reports)
    has_grown = reports[-1].stages[-1].rows > first
    return with_best_basis(fit, reports) if has_grown else (fit, reports)


def _from_starts(fit: TermFit, rows: Block) -> tuple[TermFit, list[FitReport]]:
    """Search on the rows of the first subset from several starts, first with the exact kernel if that costs less."""
    first, tolerance, score, exact = fit, None, None, None
    if not fit.plan.is_continued and len(rows) < min(2 * fit.num_features, max(fit.num_features, limits().max_dense)):
        exact = with_exact_kernel(fit)
    if exact is not None:
        first, tolerance, log_likelihood = exact, _COARSE_GAIN / rows.count, scale_profile_likelihood(fit, rows)
        score = lambda end, _: 0.0 if fit.plan.is_over() else float(log_likelihood(end.values).value)  # noqa: E731
    if sparse_effects(first):
        end, report = search_sparsely(first, rows, search, tolerance)
    else:
        is_dense = exact is None and not fit.prior.has_weights_only
        starts = [with_dense_start(fit).values] if is_dense else _starts(first, rows)
        end, report = best_of_starts(first, rows, starts, tolerance, score)
    if exact is None:
        return end, [report]
    fit, last = search(fit.at(end.values), rows, tolerance=_LAST_GAIN / rows.count)
    return fit, [report, last]


def _starts(fit: TermFit, rows: Block) -> list[ParameterValues]:
    """Return the best start and, unless rows are few, another one.

    The other start is the usual one if the best one is short, and otherwise one far away.
    """
    order = ranked_multipliers(fit, rows)
    if order[0] <= SHORT:
        others = [1.0]
    elif len(rows) <= FEW_ROWS:
        others = []
    else:
        others = [factor for factor in order if not 1 / APART < factor / order[0] < APART][:1]
    return [start_from_multiplier(fit, multiplier) for multiplier in (order[0], *others)]


def sizes(fit: TermFit) -> list[int]:
    """Return the sizes of the subsets, the largest last.

    Args:
        fit: The fit.
    """
    n, size, subset_sizes = min(len(fit.pool), MAX_ROWS), max(limits().subset_rows, 2 * fit.num_features), list[int]()
    while size * 2 < n:
        subset_sizes.append(size)
        size *= GROWTH
    return [*subset_sizes, n]


def with_exact_kernel(fit: TermFit) -> TermFit | None:
    """Return the fit with the exact kernel instead of random features, or None.

    Args:
        fit: The fit. The result is None if it has no random features, or if the exact kernel costs too much.
    """
    spec = fit.spec
    features = [
        name for name, approximation in spec.approximations.items() if isinstance(approximation, RandomFeatures)
    ]
    measures = [
        factor.measure for term in spec.terms if term.name in features for factor in term.term.factors if factor.measure
    ]
    if not features or not spec.is_gaussian or not all(measure.is_quick for measure in measures):
        return None
    if any(block.residual is not None for block in fit.prior.weights) or not fit.prior.has_weights_only:
        return None
    chosen = {**spec.approximations, **dict.fromkeys(features, Exact())}
    return fit.with_spec(spec.with_approximations(chosen, fit.values, len(fit.pool)))


def fit_coarsely(fit: TermFit, most: int) -> SearchEnd:
    """Search on some rows from the best start, to a coarse tolerance.

    Args:
        fit: The fit.
        most: The maximum number of rows.

    Returns:
        The fit at the values found, and the report.
    """
    rows, some = (in_search_precision(fit.subset(size)) for size in (most, min(most, SCREENED_ROWS)))
    initial = fit.at(start_from_multiplier(fit, ranked_multipliers(fit, some)[0]))
    has_classes = fit.spec.options.likelihood.num_latents > 1
    return search(initial, rows, tolerance=None if has_classes else _COARSE_GAIN / rows.count)


# --- fixed or learned frequencies --------------------------------------------------------------------


def fit_basis_functions(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit exact kernels, or features and points that are learned or fixed.

    Args:
        fit: The fit at its starting values.

    Returns:
        The state with its posterior, and the report.
    """
    outcome = _learned(fit) if learned_frequencies(fit) else None
    if outcome is not None and outcome.frequencies is not None:
        learned = fit.with_spec(with_learned(fit.spec, outcome.frequencies)).at(outcome.values)
        return solve_scales_and_condition(learned, [outcome.initial_report], outcome)
    if outcome is not None and (fit.plan.is_over() or fit.plan.fixed_also_compared):
        return solve_scales_and_condition(fit.at(outcome.values), [outcome.initial_report], outcome)
    if not fit.free:
        return solve_scales_and_condition(fit, [], outcome)
    if len(fit.prior.blocks) == len(fit.prior.kernels) and len(sizes(fit)) == 1:
        return fit_exact(fit)
    fit, reports = learn_basis(*grow(fit), fixed=learned_frequencies(fit))
    return solve_scales_and_condition(fit, reports, outcome)


def fit_exact(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit exact kernels to few rows: start, search, condition.

    Args:
        fit: The fit at its starting values, with free hyperparameters.

    Returns:
        The state with its posterior, and the report.
    """
    rows = in_search_precision(fit.pool)
    if sparse_effects(fit):
        fit, report = search_sparsely(fit, rows, search, None)
    else:
        fit, report = search(with_dense_start(fit), rows)
    return with_leave_one_out_scores(fit, merged(fit, [report]))


def _learned(fit: TermFit) -> Outcome:
    """Return the outcome of learning frequencies."""
    split = fit.split()
    if len(fit.pool) < MIN_LEARNED or fit.plan.steps == 0 or fit.plan.is_over():
        return nothing_learned(fit, split)
    initialized, report = _initialized(fit, split)
    names = [] if fit.plan.is_continued else free_lengthscales(fit)
    others = [scaled(fit.values, names, multiplier) for multiplier in TRIED_MULTIPLIERS if names]
    return learn(initialized, split, best_start(fit, split, [initialized.values, *others]), report)


def _initialized(fit: TermFit, split: Split) -> SearchEnd:
    """Return the fit after a few iterations on the first training rows, and a report."""
    pool = split.training
    if not fit.free:
        return fit, NO_SEARCH
    rows = in_search_precision(pool.take(torch.arange(min(sizes(fit)[0], len(pool)))))
    multiplier = ranked_multipliers(fit, rows)[0]
    return search(fit.at(scaled(fit.values, free_lengthscales(fit), multiplier)), rows, most=FIRST_ITERATIONS)
