"""Fitting of exact kernels, features and inducing points: on growing subsets until the optimum converges, then on all.

Few rows are one subset, and exact kernels have no basis: steps 1, 3 and 5 remain.

1. Starts: Several lengthscales are compared by their likelihood on the first subset (`rfgp.fitting.starts`). The best
   two that are far apart are both optimized there. With fewer rows than twice the random features and a cheap kernel,
   the exact kernel is used, because its likelihood costs less. The features start at the optimum where they are more
   likely: at very short lengthscales the exact kernel may fit noise that random features cannot.
2. Draws: Draws that depend on the hyperparameters, such as inducing points, are made again at those found. The search
   continues with them if they are more likely.
3. Subsets: L-BFGS on n_1, 4 n_1, ... rows, at most 65,536, until a larger subset gains less than 0.001 nats a row. The
   common factor of all variances is solved for at each evaluation of weights (`TermFit.solves`).
4. Frequencies: Adam may learn them (`rfgp.fitting.frequencies`) instead of larger subsets. L-BFGS learns other bases,
   such as inducing points, together with the hyperparameters.
5. All rows: Noise and variances are found again, and the posterior is computed (`rfgp.fitting.last_stage`).
"""

import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch

from rfgp.approximations import Exact, RandomFeatures
from rfgp.approximations.planning import names_sharing_budget
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
from rfgp.fitting.maximize import MIN_GAIN, Objective, maximize
from rfgp.fitting.scales import ratio_bounds, scale_profile_likelihood
from rfgp.fitting.sparse import search_sparsely, sparse_effects
from rfgp.fitting.starts import (
    ROUNDED,
    SCREENED_ROWS,
    free_lengthscales,
    ranked_multipliers,
    scaled,
    start_from_multiplier,
    with_dense_start,
)
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.models.diagnostics import degrees_of_freedom
from rfgp.models.state import learnable_basis, with_learned
from rfgp.rows import Block

GROWTH, MAX_ROWS = 4, 2**16
"""The growth of subsets, and the maximum number of rows of the last subset. All its features are in memory at once."""
APART = 4.0
"""The smallest ratio of lengthscales of two starts that are both optimized."""
FEW_ROWS, SHORT = 250, 0.2
"""The maximum number of rows for which only the best start is optimized, and the factor of its lengthscales that is an
exception.

At short lengthscales features explain each row by itself. On 18 tables at 50, 150 and 400 rows the usual start gained
more than a nat in 4 of the 8 cases with a best start that short. A second start did so in 3 of the other 42 cases."""
MAX_EXACT = 4000
"""The number of rows above which starts use the exact kernel only if there are more features than rows."""
_STAGE, BASIS_ROWS = "basis too", 2**14
"""The name of the search for a basis and hyperparameters together, and the maximum number of its rows."""
ROUNDS = 3
"""The maximum number of times that a basis is renewed on one subset."""
_COARSE_GAIN, _LAST_GAIN = 1e-3, 0.05
"""The smallest gain of an iteration in nats, first with the exact kernel and then with the features.

On 5 tables at 50 to 400 rows, 0.05 ends lower than 1e-3 by 0.03 nats in the median, in two thirds of the time."""
TOLERANCE = 1e-7
"""The smallest gain of an iteration on many rows, in nats a row."""
COARSE = 1e-5
"""The smallest gain of an iteration with inducing points and many rows, in nats a row.

Noise and lengthscales compensate each other along a ridge, and another draw of points changes the likelihood by more.
5,000 rows of elevators with 128 points by FITC take 18 s. With 1e-6 they take 36 s, and the NLPD is higher by 0.004."""
TRIED_MULTIPLIERS = (0.125, 0.25, 0.5)
"""Multiples of the starting lengthscale that are also tried as starts of learning frequencies."""
CLEAR_GAIN = 0.2
"""The gain of learning in nats a test row below which fixed frequencies are fitted to convergence and compared."""
FIRST_ITERATIONS = 10
"""The number of iterations on the first subset before frequencies are learned.

More iterations would remove columns that learned frequencies could use."""

F = TypeVar("F", bound=TermFit)
SearchEnd = tuple[TermFit, FitReport]
"""A fit at the end of a search, and the report of the search."""


def grow(fit: TermFit) -> tuple[TermFit, list[FitReport], str]:
    """Optimize on growing subsets.

    Args:
        fit: The fit at its starting values.

    Returns:
        The fit, the reports, and a message.
    """
    fit, reports = with_best_basis(*begin(fit))
    first = reports[-1].stages[-1].rows
    fit, reports, words = enlarge(fit, reports)
    if reports[-1].stages[-1].rows > first:
        fit, reports = with_best_basis(fit, reports)
    return fit, reports, words


def begin(fit: TermFit) -> tuple[TermFit, list[FitReport]]:
    """Optimize on the smallest subset from several starts.

    Args:
        fit: The fit at its starting values.

    Returns:
        The fit at the best end, and the reports.
    """
    rows = in_search_precision(fit.subset(sizes(fit)[0]))
    if fit.plan.is_continued:
        fit, report = optimize(fit, rows)
        return fit, [report]
    exact = None if len(rows) >= min(2 * fit.num_features, max(fit.num_features, MAX_EXACT)) else with_exact_kernel(fit)
    if exact is None:
        ends = _ends_of_starts(fit, rows)
        fit, report = max(ends, key=lambda end: round(end[1].log_marginal_likelihood, ROUNDED))
        return fit, [report.merged_with([report for _, report in ends])]
    ends = _ends_of_starts(exact, rows, _COARSE_GAIN / rows.count, replaces_features=True)
    log_likelihood = scale_profile_likelihood(fit, rows)
    best, _ = (
        ends[0]
        if fit.plan.is_over()
        else max(ends, key=lambda end: round(float(log_likelihood(end[0].values)[0]), ROUNDED))
    )
    initial = ends[-1][1].merged_with([report for _, report in ends])
    fit, report = optimize(fit.at(best.values), rows, tolerance=_LAST_GAIN / rows.count)
    return fit, [initial, report]


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


def fit_coarsely(fit: TermFit, most: int, compared: int | None = None, tolerance: float | None = None) -> SearchEnd:
    """Optimize on some rows from the best start, to a coarse tolerance.

    Args:
        fit: The fit.
        most: The maximum number of rows.
        compared: The maximum number of rows on which starts are compared. If None, all rows of the search.
        tolerance: The smallest gain of an iteration in nats a row. If None, 0.001 nats in total.

    Returns:
        The fit at the values found, and the report.
    """
    rows = in_search_precision(fit.subset(most))
    some = rows if compared is None else in_search_precision(fit.subset(compared))
    initial = fit.at(start_from_multiplier(fit, ranked_multipliers(fit, some)[0]))
    return optimize(initial, rows, tolerance=tolerance or _COARSE_GAIN / rows.count)


def enlarge(fit: TermFit, reports: list[FitReport]) -> tuple[TermFit, list[FitReport], str]:
    """Optimize on the larger subsets until the gain is small.

    Args:
        fit: The fit at the end of the search on the smallest subset.
        reports: The reports so far.

    Returns:
        The fit, all reports, and a message.
    """
    least, begin = limits().min_subset_gain, fit
    stages = (SearchStage(in_search_precision(begin.subset(size)), least=least) for size in sizes(begin)[1:])
    fit, reports = search_in_stages(fit, stages, reports)
    last = reports[-1].stages[0]
    if last.rows == len(fit.rows):
        return fit, reports, f"on all {last.rows:,} rows ({reports[-1].message})"
    if len(sizes(fit)) == 1:
        return fit, reports, f"on {last.rows:,} of {len(fit.rows):,} rows ({reports[-1].message})"
    gain = f"{last.rows:,} rows gained {last.gain:.1g} nats a row on the subset before"
    return fit, reports, gain if last.gain < limits().min_subset_gain else f"{gain}, and no larger subset is searched"


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


# --- starts ----------------------------------------------------------------------------------------


def _ends_of_starts(
    fit: TermFit, rows: Block, tolerance: float | None = None, *, replaces_features: bool = False
) -> list[SearchEnd]:
    """Optimize from the best start and, unless rows are few, from another one.

    The other start is the usual one if the best one is short, and otherwise one far away. Dense algebra has a single
    start, unless it replaces random features.
    """
    if sparse_effects(fit):
        return [search_sparsely(fit, rows, optimize, tolerance)]
    if not fit.prior.has_weights_only and not replaces_features:
        return [optimize(with_dense_start(fit), rows, tolerance=tolerance)]
    order = ranked_multipliers(fit, rows)
    if order[0] <= SHORT:
        others = [1.0]
    elif len(rows) <= FEW_ROWS:
        others = []
    else:
        others = [factor for factor in order if not 1 / APART < factor / order[0] < APART][:1]
    starts = enumerate(start_from_multiplier(fit, multiplier) for multiplier in (order[0], *others))
    return [optimize(fit.at(start), rows, restart=number, tolerance=tolerance) for number, start in starts]


# --- searches --------------------------------------------------------------------------------------


def optimize(
    fit: TermFit,
    rows: Block,
    most: int | None = None,
    restart: int = 0,
    tolerance: float | None = None,
    again: bool = False,
) -> SearchEnd:
    """Run L-BFGS on rows, solving for the common factor of variances if possible.

    Args:
        fit: The fit at its starting values.
        rows: The rows.
        most: The maximum number of iterations. If None, those of the plan.
        restart: The number of the start, 0 for the first.
        tolerance: The smallest gain of an iteration, in nats a row. If None, a default for the model and rows.
        again: Whether the basis was renewed.

    Returns:
        The fit at the values found, and the report.
    """
    plan, values, reports = fit.plan, fit.values, list[FitReport]()
    stage = "all rows" if len(rows) == len(fit.rows) else f"subset of {len(rows)}"
    stage += ", exact kernel" * bool(fit.prior.kernels)
    ending = f", start {restart + 1}" * bool(restart) + ", new basis" * again
    if most is not None:
        plan = replace(plan, iteration_limit=min(most, plan.max_iterations))
    tolerance = _tolerance(fit, rows) if tolerance is None else tolerance
    if fit.solves(rows):
        objective, held = Objective.of(fit.state, rows, scale_profile_likelihood(fit, rows)), fit.scales[:1]
        options: dict[str, Any] = {"held": held, "bounds": ratio_bounds(fit), "tolerance": tolerance}
        values, report = maximize(objective, values, plan, stage=stage + ending, **options)
        inside, was_outside = values.clamped((*fit.scales, "noise"))
        if not was_outside:
            return fit.at(values), report
        values, reports, stage = inside, [report], f"{stage} within bounds"
    objective = Objective.of(fit.state, rows)
    values, report = maximize(objective, values, plan, stage=stage + ending, tolerance=tolerance)
    return fit.at(values), report.merged_with([*reports, report])


def _tolerance(fit: TermFit, rows: Block) -> float:
    if fit.prior.dense.has_residual and len(fit.rows) > limits().subset_rows:
        return COARSE
    return MIN_GAIN / rows.count if len(rows) <= limits().subset_rows else TOLERANCE


class SearchStage(NamedTuple):
    """A stage of a fit: a search on some rows.

    A stage with a least gain is left out if time is over. Other stages then report that they were not searched.
    """

    rows: Block
    search: "Callable[[TermFit, Block], SearchEnd] | None" = None  # by L-BFGS if None
    with_basis: bool = False  # whether the basis is renewed and learned
    least: float = -math.inf  # the gain in nats a row below which later stages are left out


def search_in_stages(
    fit: TermFit, stages: Iterable[SearchStage], reports: Sequence[FitReport] = ()
) -> tuple[TermFit, list[FitReport]]:
    """Search on the rows of one stage after the other, until a stage gains little.

    Args:
        fit: The fit at its starting values.
        stages: The stages.
        reports: The reports so far.

    Returns:
        The fit at the values found, and all reports.
    """
    reports = list(reports)
    for stage in stages:
        if stage.least > -math.inf and fit.plan.is_over():
            break
        fit, report = (stage.search or optimize)(fit, stage.rows)
        reports.append(report)
        if stage.with_basis:
            fit, reports = learn_basis(*with_best_basis(fit, reports))
        if report.stages and report.stages[0].gain < stage.least:
            break
    return fit, reports


# --- bases -----------------------------------------------------------------------------------------


def with_renewed_basis(
    fit: F,
    reports: list[FitReport],
    search: Callable[[F], tuple[F, FitReport]],
    least: float,
    divided: F | None = None,
) -> tuple[F, list[FitReport]]:
    """Renew the basis and search again, while the likelihood grows.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports so far.
        search: Searches on the rows of the last search.
        least: The smallest gain in nats of a search after which the basis is renewed once more.
        divided: The fit with features divided again, which is kept even if the likelihood does not grow. If None, they
            are not divided.

    Returns:
        The most likely fit, and the reports of all searches, its own report last.
    """
    for number in range(ROUNDS if reports[-1].stages else 0):
        begin = fit if divided is None or number else divided
        other = fit if fit.plan.is_over() else begin.with_new_basis()
        if other.spec is fit.spec:
            break
        end, last = search(other)
        gain = last.log_marginal_likelihood - reports[-1].log_marginal_likelihood
        if not gain > 0 and begin is fit:
            return fit, [*reports[:-1], last, reports[-1]]
        fit, reports = end, [*reports, last]
        if gain < least:
            break
    return fit, reports


def with_best_basis(fit: TermFit, reports: list[FitReport]) -> tuple[TermFit, list[FitReport]]:
    """Divide features that share a budget, and renew the basis while the likelihood of the last rows grows.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports so far.

    Returns:
        The most likely fit, and the reports of all searches, its own report last.
    """
    if not reports[-1].stages:
        return fit, reports
    rows = in_search_precision(fit.subset(reports[-1].stages[-1].rows))
    divided = None if fit.plan.is_over() else _divided(fit, rows)
    least = limits().min_subset_gain * len(rows)
    return with_renewed_basis(fit, reports, lambda other: optimize(other, rows, again=True), least, divided=divided)


def learn_basis(
    fit: F,
    reports: list[FitReport],
    search: Callable[[F], tuple[F, FitReport]] | None = None,
    fixed: Container[str] = (),
) -> tuple[F, list[FitReport]]:
    """Learn bases and hyperparameters together by L-BFGS, if the fit may change any.

    Args:
        fit: The fit at the hyperparameters found.
        reports: The reports of the searches.
        search: Searches from a fit whose hyperparameters include the basis. If None, on at most 16,384 rows.
        fixed: The dotted names of parts of the basis that stay fixed.

    Returns:
        The fit with the learned basis, and all reports. If there is nothing to learn, the arguments themselves.
    """
    basis = {path: tensor for path, tensor in learnable_basis(fit.spec).items() if path not in fixed}
    if not basis or not fit.plan.max_iterations or fit.plan.is_over():
        return fit, reports
    initial = fit.at(fit.values.with_extra_tensors({path: tensor.clone() for path, tensor in basis.items()}, {}))
    end, report = (search or _search_with_basis)(initial)
    values = fit.values.replaced({name: end.values.raw[name] for name in fit.values.raw})
    learned = {path: end.values.raw[path].detach() for path in basis}
    return fit.with_spec(with_learned(fit.spec, learned)).at(values), [*reports, report]


def message_of(reports: Sequence[FitReport], words: str) -> str:
    """Return the message of a report of searches, the last of which may be for a basis.

    Args:
        reports: The reports of the searches.
        words: The message if it is not.
    """
    stages = reports[-1].stages
    if not stages or stages[-1].name != _STAGE:
        return words
    return f"basis learned from {stages[-1].rows:,} rows ({reports[-1].message})"


def _search_with_basis(initial: F) -> tuple[F, FitReport]:
    """Search from a fit whose hyperparameters include the basis; return its end and the report."""
    rows = in_search_precision(initial.subset(BASIS_ROWS))
    with torch.enable_grad():
        objective = Objective.of(initial.state, rows)
        values, report = maximize(objective, initial.values, initial.plan, stage=_STAGE, tolerance=1e-6)
    return initial.at(values), report


def _divided(fit: TermFit, rows: Block) -> TermFit:
    """Return a fit with features divided by the terms' effective degrees of freedom."""
    spec = fit.spec
    names = names_sharing_budget(spec.options.approximations, spec.approximations)
    if spec.options.budget is None or len(names) < 2 or not spec.is_gaussian:
        return fit
    pilot = fit.state.replace(rows=rows, num_observations=len(rows))
    with torch.no_grad():
        freedom = degrees_of_freedom(pilot, rows.inputs[:SCREENED_ROWS])
    shares = {name: max(freedom[name], 1e-3) for name in names}
    changed = spec.with_approximations(spec.approximations, fit.values, fit.state.num_observations, shares)
    return fit.with_spec(changed)


# --- fixed or learned frequencies --------------------------------------------------------------------


def fit_basis_functions(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit exact kernels, or features and points that are learned or fixed.

    Args:
        fit: The fit at its starting values.

    Returns:
        The state with its posterior, and the report.
    """
    return _fit_learned(fit) if learned_frequencies(fit) else _fit_fixed(fit)


def _fit_fixed(fit: TermFit, outcome: Outcome | None = None) -> tuple[GPState, FitReport]:
    """Fit without a basis or with a fixed one, after an outcome of learning or None."""
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
