"""Candidates of a series: levels, slopes and seasons in time, weighted by likelihood and by forecasts of the last rows.

A candidate is a straight line, a process that wanders or returns to the line, and seasons that are fixed or change
slowly, with the other columns of the table. All of them are fitted to the last `MAX_ROWS` rows, by Kalman filtering, or
with sparse precisions if there are several series. Their scores are

    score = log marginal likelihood - number of free hyperparameters + `FORECAST_ROWS` mean forecast log density,

in nats. The first part is Akaike's criterion, a score of forecasts of one step. The forecasts of `WINDOWS` windows of
the last rows, each given the rows before it, are those of the horizon. Seasons and the form of the other columns are
added one at a time while the score of the first candidate rises. Candidates are averaged with weights proportional to
exp(score / `TEMPERATURE`). See Buckland, Burnham and Augustin (1997), Model selection: an integral part of inference.

The constants were chosen on 16 series apart from those of the race of `benchmarks.races.forecasts`, with up to four
origins each and all seasons in each candidate. The logarithm of the quantile loss, relative to the seasonal naive
forecast, was -0.65 for the average, and -0.62 for the candidate that is best on all series.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.approximations import Approximation, Exact, RandomFeatures, SparsePrecision
from rfgp.columns import ColumnKind
from rfgp.columns.rules import ColumnSchema
from rfgp.errors import DataError, InvalidArgumentError, RfgpError, SolverError
from rfgp.fitting import Plan, fit_terms
from rfgp.kernels import RBF, Group, Harmonics, IntegratedWiener, Kernel, Linear, Matern, Wiener
from rfgp.messages import counted
from rfgp.models import FitReport, GPState, Score, SelectionReport, Trial
from rfgp.models.report import FLOPS_PER_SECOND
from rfgp.models.series import TimeColumn, possible_times, values_of_rows
from rfgp.models.state import averaged
from rfgp.rows import Block, is_read_in_blocks, rows_in_memory
from rfgp.selection.candidates import Candidate
from rfgp.selection.costs import EVALUATION_FLOPS, EVALUATIONS
from rfgp.selection.groups import DATE_PERIODS, FORWARD, dominant_period, longest_period
from rfgp.selection.successive_halving import mixture_log_prob_of
from rfgp.selection.validation import conditioned, initial_state_for, scored, take_rows

FORECAST_ROWS = 4.0
"""The weight of the mean forecast log density of a row in a score, in rows.

Rows of one window depend on each other. With 10, and half of the likelihood, the logarithm above is -0.63."""
TEMPERATURE = 2.0
"""The number by which scores are divided in weights. With 3, the logarithm above changes by less than 0.01."""
WINDOWS = 4
"""The number of windows of the last rows."""
MIN_WEIGHT = 0.02
"""The weight below which a candidate is dropped."""
MAX_ROWS = {False: 50_000, True: 20_000}
"""The number of the last rows on which candidates are fitted and scored, by whether there are several series."""
MIN_ROWS = 10
"""The number of rows from which models of a series are compared. Half of them come before the first window."""
SEASONS = "day", "week", "year", "season", "weekdays"
"""The names of seasons."""
MIN_STEPS = 3.9
"""The number of steps of a season, a little less than the quarters of a year."""
MAX_ROWS_OF_WAVE = 2000
"""The number of the last rows in which a wave is searched."""
CHANGE = 10.0
"""The starting lengthscale of the change of a season, in periods."""
WEEKDAYS, MAX_ROWS_WITH_WEEKDAYS = SEASONS[-1], 20_000
"""The season of days of different shapes, a product of a day and a week, and the most rows for which it is tried."""
MAX_ITERATIONS = 20
"""The maximum number of iterations on all rows, from the values found on the last ones."""
NUM_FREQUENCIES = 64
"""The frequencies of smooth effects of the other columns."""


@dataclass(frozen=True)
class Season:
    """A season: its name, its period in the unit of the column, and the number of harmonics."""

    name: str
    period: float
    num_harmonics: int


class SeriesModel(NamedTuple):
    """A candidate: its name, its model, and the names of its fixed hyperparameters."""

    name: str
    candidate: Candidate
    fixed: tuple[str, ...] = ()


@dataclass(eq=False)
class SeriesFit:
    """A candidate that was fitted and scored.

    Attributes:
        model: The candidate.
        state: The fitted state.
        report: The report of the fit.
        score: The score, in nats.
        log_prob: The log densities of the rows of all windows, (r,).
        weight: The weight in the average.
    """

    model: SeriesModel
    state: GPState
    report: FitReport
    score: float
    log_prob: Tensor
    weight: float = 0.0


def is_series(state: GPState, plan: Plan) -> bool:
    """Return whether a selection compares models of a series.

    That is so if the user gave a horizon or validate="forward", or if dates are the only input, or there is one row a
    step. The likelihood must be Gaussian with one output, the approximations automatic, and the rows in memory.

    Args:
        state: The state of the model before the fit.
        plan: The options of the fit, with the horizon and the column of the series if the user gave them.

    Raises:
        DataError: If the user gave them, and there are fewer than `MIN_ROWS` rows.
        InvalidArgumentError: If the user gave them, and there is no column of times, or other options contradict.
    """
    options, rows = state.spec.options, state.require_rows(purpose="a fit")
    space, columns = options.search_space, state.spec.schema.columns
    is_asked = plan.horizon is not None or plan.by is not None
    if state.spec.areas is not None:
        if is_asked:
            raise InvalidArgumentError("horizon and by require rows that are points, got means over areas.")
        return False
    if is_asked and len(rows) < MIN_ROWS:
        raise DataError(
            f"A series must have at least {MIN_ROWS} rows, got {len(rows)}. With fewer, give the kernel too."
        )
    if is_asked and space.validate not in (None, FORWARD):
        raise InvalidArgumentError(
            f"validate must be None if horizon or by is given, got {space.validate!r}. Forecasts are then scored."
        )
    is_plain = state.spec.is_gaussian and options.approximations == "auto" and not is_read_in_blocks(rows)
    is_plain = is_plain and rows_in_memory(rows).num_outputs == 1
    if plan.by is not None and not is_plain:
        raise InvalidArgumentError(
            "by requires the Gaussian likelihood, one output, automatic approximations, and rows in memory. Give the "
            "kernel too, with k.Group."
        )
    if not is_plain or space.validate not in (None, FORWARD) or len(rows) < MIN_ROWS:
        return False
    dates, numbers = possible_times(state)
    if is_asked or space.validate == FORWARD:
        if is_asked and len(dates) != 1 and len(numbers) != 1:
            raise InvalidArgumentError(
                f"horizon and by require one column of dates, or a single column of numbers, got {len(dates)} of dates "
                f"and {len(numbers)} of numbers. Convert the times to dates, or give the kernel too."
            )
        return len(dates) == 1 or len(numbers) == 1
    if len(dates) != 1:
        return False
    column = TimeColumn.of(state)
    return len(columns) == 1 or (len(column.times) == len(rows) and column.step.is_regular)


class SeriesSelection:
    """The selection of a model of a series.

    Args:
        state: The state of the model before the fit.
        plan: The options of the fits.
    """

    def __init__(self, state: GPState, plan: Plan) -> None:
        self.state, self.plan = state, plan
        self.column = TimeColumn.of(state)
        rows = rows_in_memory(state.require_rows(purpose="a fit"))
        times = values_of_rows(state, rows, self.column.index)
        order = np.argsort(times, kind="stable")[-MAX_ROWS[plan.by is not None] :]
        first = _first_of_copies(rows, order)
        self.num_copies, order = len(order) - len(first), order[first]
        self.rows: Any = state.require_rows(purpose="a fit")
        if len(order) < len(rows):
            self.rows = rows = take_rows(rows, torch.from_numpy(np.sort(order)))
        self.block: Block = rows_in_memory(self.rows)
        self.times = values_of_rows(state, self.block, self.column.index)
        self.positions = self.column.positions(self.times)
        steps = int(self.positions.max() - self.positions.min())
        self.horizon = max(1, min(plan.horizon or max(steps // 10, 1), steps // 6))
        self.failed, self.lost = list[Trial](), list[SeriesFit]()
        self.has_fit = False

    @property
    def note(self) -> str:
        """A sentence about a horizon that the rows do not allow, and about rows that no candidate was fitted to."""
        note, wanted = "", self.plan.horizon
        if wanted is not None and wanted > self.horizon:
            note += f" There are too few rows to score forecasts of {wanted:,} steps."
        if self.num_copies:
            note += (
                f" {counted(self.num_copies, 'exact copy', 'exact copies')} of rows were left out of the comparison."
            )
        if len(self.block) + self.num_copies < len(self.state.require_rows(purpose="a fit")):
            note += f" Candidates were compared on the last {len(self.block):,} rows."
        repeated = len(self.times) - len(np.unique(self.times))
        if self.plan.by is None and repeated > len(self.times) / 4:
            note += " Times have several rows: if they are those of several series, name their column with by=."
        return note

    # --- candidates ------------------------------------------------------------------------------

    @property
    def seasons(self) -> list[Season]:
        """The seasons that the rows resolve and cover twice: of dates, or the strongest wave of numbers."""
        column, gap = self.column, self.column.step.days
        if not column.rule.is_date:
            last = np.argsort(self.times, kind="stable")[-MAX_ROWS_OF_WAVE:]
            period = dominant_period(self.times[last], self.block.targets[torch.from_numpy(last), 0].numpy())
            return [] if period is None else [Season("season", period, _num_harmonics(period, gap, 6))]
        extent, names = float(np.ptp(self.times)), ("day", "week", "year")
        most = {"day": 6, "week": 3, "year": 6 if gap > 20 else 4}
        return [
            Season(name, period, _num_harmonics(period, gap, most[name]))
            for name, period in zip(names, DATE_PERIODS, strict=True)
            if MIN_STEPS * gap <= period <= longest_period(extent, gap)
        ]

    def _kernels(self, seasons: Sequence[Season], *, is_changing: bool) -> list[Kernel]:
        """Return the terms of seasons."""
        key, kernels = self.column.rule.key, list[Kernel]()
        for season in seasons:
            fixed = Harmonics(key, season.period, num_harmonics=season.num_harmonics, name=season.name)
            if season.name == WEEKDAYS:
                kernels.append((Harmonics(key, 1.0, num_harmonics=4) * fixed).named(WEEKDAYS))
            elif is_changing:
                lengthscale = max(CHANGE * season.period, 60 * self.column.step.days)
                kernels.append((fixed * Matern(key, nu=0.5, lengthscale=lengthscale)).named(season.name))
            else:
                kernels.append(fixed)
        return kernels

    def _regressors(self, form: str) -> list[Kernel]:
        """Return the terms of the other columns."""
        if not form:
            return []
        others = list(filter(self._is_other, self.state.spec.schema.columns))
        numbers = tuple(column.key for column in others if column.kind is ColumnKind.NUMBER)
        levels = [column for column in others if column.num_levels > 1]
        linear = [Linear(numbers, name="effects")] if numbers else []
        smooth = [RBF(numbers, name="smooth effects")] if numbers and form == "smooth" else []
        return [*linear, *smooth, *(Group(column.key) for column in levels)]

    def _is_other(self, column: ColumnSchema) -> bool:
        """Return whether a column is neither that of times nor that of the series."""
        return column.key not in (self.column.rule.key, self.plan.by)

    def candidates(self, seasons: Sequence[Season], form: str) -> Iterator["SeriesModel"]:
        """Yield the candidates, that of the search for seasons first.

        Args:
            seasons: The seasons.
            form: The form of the other columns: "", "linear" or "smooth".
        """
        key, others = self.column.rule.key, self._regressors(form)
        origin = float(self.column.times[0])  # of all rows, of which the last are fitted
        line, level = Linear(key, name="line"), Wiener(key, origin=origin, name="level")
        slope = IntegratedWiener(key, origin=origin, name="slope")
        rough, smooth = (Matern(key, nu=nu, name="deviation") for nu in (0.5, 1.5))
        fixed, changing = (self._kernels(seasons, is_changing=is_changing) for is_changing in (False, True))
        if self.plan.by is not None:
            yield from self._of_panel([line, *fixed, *others])
            return
        yield self._model("wandering slope and deviations", [line, slope, rough, *fixed, *others])
        yield self._model("wandering level", [line, level, *fixed, *others])
        yield self._model("wandering slope and level", [line, slope, level, *fixed, *others])
        yield self._model("line and smooth deviations", [line, smooth, *fixed, *others])
        if seasons:
            parts = {"slope and deviations": [line, slope, rough], "level": [line, level]}
            for name, some in parts.items():
                yield self._model(f"wandering {name}, changing seasons", [*some, *changing, *others])

    def _of_panel(self, shared: list[Kernel]) -> Iterator["SeriesModel"]:
        """Yield the candidates of several series, which have a level together and one each.

        A level that wanders is a process that returns to its mean after ten times the extent of the rows.

        Args:
            shared: The terms of all series.
        """
        key, by, extent = self.column.rule.key, self.plan.by, float(np.ptp(self.column.times))
        own = f"{by} level"

        def level(*, wanders: bool) -> Kernel:
            return Matern(key, nu=0.5, lengthscale=(10 if wanders else 0.1) * extent)

        for both in ((True, True), (True, False), (False, False)):
            names = ["wandering" if wanders else "returning" for wanders in both]
            kernels = [level(wanders=both[0]).named("level"), (level(wanders=both[1]) * Group(by)).named(own)]
            fixed = [path for path, wanders in zip(("level", f"{own}.matern"), both, strict=True) if wanders]
            parts = [*kernels, Group(by, name=str(by)), (Group(by) * Linear(key)).named(f"{by} line"), *shared]
            yield self._model(
                f"{names[0]} level and {names[1]} levels of {by}", parts, [f"{path}.lengthscale" for path in fixed]
            )

    def _model(self, name: str, kernels: Sequence[Kernel], fixed: Sequence[str] = ()) -> "SeriesModel":
        """Return a candidate, whose name lists its seasons and effects."""
        kernel = reduce(add, kernels)
        more = [term.name for term in kernel.summands if term.name in (*SEASONS, "effects", "smooth effects")]
        name = " + ".join([name, *map(str, more)])
        used = {str(term.name): _approximation(term.factors) for term in kernel.terms()}
        options = self.state.spec.options.changed(kernel=kernel, approximations=used, search_space=None)
        return SeriesModel(name, Candidate(options), tuple(fixed))

    # --- scores ----------------------------------------------------------------------------------

    def run(self) -> list[SeriesFit]:
        """Fit and score the candidates, and return them by descending score, with their weights.

        Raises:
            RfgpError: If no candidate could be fitted.
        """
        seasons, form = list[Season](), ""
        best = self._fit(next(self.candidates(seasons, form)))
        for season, other in self._additions():
            proposal = [*seasons, *season], other or form
            trial = self._fit(next(self.candidates(*proposal)))
            if trial is not None and (best is None or trial.score > best.score):
                self.lost += [] if best is None else [best]
                (seasons, form), best = proposal, trial
            elif trial is not None:
                self.lost.append(trial)
        models = list(self.candidates(seasons, form))
        fits = [fit for fit in (best, *(self._fit(model) for model in models[1:])) if fit is not None]
        if not fits:
            raise SolverError(f"no model of the series could be fitted: {self.failed[0].status}")
        scores = np.array([fit.score for fit in fits]) / TEMPERATURE
        weights = np.exp(scores - scores.max())
        weights = np.where(weights / weights.sum() >= MIN_WEIGHT, weights, 0.0)
        for fit, weight in zip(fits, (weights / weights.sum()).tolist(), strict=True):
            fit.weight = weight
        return sorted([*fits, *self.lost], key=lambda fit: -fit.score)

    def _additions(self) -> Iterator[tuple[list[Season], str]]:
        """Yield seasons and forms of the other columns, which are kept if they improve the first candidate."""
        for season in self.seasons:
            yield [season], ""
        if {"day", "week"} <= {season.name for season in self.seasons} and len(self.block) <= MAX_ROWS_WITH_WEEKDAYS:
            yield [Season(WEEKDAYS, 7.0, 3)], ""
        if any(map(self._is_other, self.state.spec.schema.columns)):
            for form in ("linear", "smooth"):
                yield [], form

    def _fit(self, model: "SeriesModel") -> SeriesFit | None:
        """Return a candidate that was fitted and scored, or None if that failed or time is over."""
        name, candidate, fixed = model
        if self.plan.is_over() and self.has_fit:
            self.failed.append(Trial(name, candidate.gp_arguments, 0.0, 0.0, (), self.plan.deadline.reason))
            return None
        try:
            with self.plan.reporter.about(f"selection, {name}"):
                begun = initial_state_for(self.state, candidate, self.rows, None)
                plan = replace(self.plan, fixed=(*self.plan.fixed, *fixed), deadline=self.plan.deadline.part())
                state, report = fit_terms(begun, plan)
                log_prob = self._forecasts(state)
        except RfgpError as error:
            self.failed.append(Trial(name, candidate.gp_arguments, 0.0, 0.0, (), str(error)))
            return None
        self.has_fit = True
        free = sum(state.hyperparameters.raw[one].numel() for one in state.hyperparameters.space.free(plan.fixed))
        score = report.log_marginal_likelihood - free + FORECAST_ROWS * self.score(log_prob, log_prob).value
        return SeriesFit(model, state, report, score, log_prob)

    @cached_property
    def windows(self) -> list[tuple[Block, Block]]:
        """The rows before each of the last windows, and those in it."""
        last, windows = int(self.positions.max()), list[tuple[Block, Block]]()
        for number in range(WINDOWS, 0, -1):
            origin = last - number * self.horizon
            known = np.flatnonzero(self.positions <= origin)
            after = np.flatnonzero((self.positions > origin) & (self.positions <= origin + self.horizon))
            if len(known) >= MIN_ROWS // 2 and len(after):
                first, second = (take_rows(self.block, torch.from_numpy(chosen)) for chosen in (known, after))
                windows.append((first, second))
        return windows

    def _forecasts(self, state: GPState) -> Tensor:
        """Return the log densities of the rows of all windows, (r,), each given the rows before its window."""
        log_probs = [scored(conditioned(state, known), after)[0].double() for known, after in self.windows]
        log_prob = torch.cat([torch.empty(0).double(), *log_probs])
        if not bool(torch.isfinite(log_prob).all()):
            raise SolverError("the density of a row is not finite")
        return log_prob

    def score(self, log_prob: Tensor, other: Tensor) -> Score:
        """Return the mean log density of forecasts, with standard errors over windows.

        Args:
            log_prob: The log densities of the rows of all windows, (r,).
            other: Those of another forecast, (r,), for the difference.
        """
        sizes = [len(after) for _, after in self.windows]
        pairs = zip(torch.split(log_prob, sizes), torch.split(other, sizes), strict=True) if sizes else ()
        means = np.array([[float(mine.mean()), float((better - mine).mean())] for mine, better in pairs]).reshape(-1, 2)
        if not len(means):
            return Score(len(self.block), 0.0, 0.0)
        errors = means.std(0, ddof=1) / math.sqrt(len(means)) if len(means) > 1 else np.zeros(2)
        return Score(
            len(self.block), float(means[:, 0].mean()), float(errors[0]), float(means[:, 1].mean()), float(errors[1])
        )


def _first_of_copies(rows: Block, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of rows without exact copies before them, which would say that there is no noise.

    Args:
        rows: The rows.
        order: The numbers of some rows, (m,).
    """
    cells = torch.cat([rows.inputs, rows.targets.to(rows.inputs)], dim=1)[torch.from_numpy(order)].cpu().numpy()
    return np.sort(np.unique(cells, axis=0, return_index=True)[1])


def _num_harmonics(period: float, gap: float, most: int) -> int:
    """Return the number of harmonics that steps of a length resolve, at most `most`."""
    return max(1, min(most, round(period / (2 * gap) - 0.4)))


def _approximation(factors: Sequence[Kernel]) -> Approximation:
    """Return the approximation of a term: processes in time are filtered or sparse, the others have few weights."""
    if any(isinstance(factor, Matern | Wiener) for factor in factors):
        return SparsePrecision()
    return RandomFeatures(NUM_FREQUENCIES) if isinstance(factors[0], RBF) else Exact()


def fit_series(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Select a model of a series, or an average, and condition it on all rows.

    Args:
        state: The state of the model before the fit (`is_series`).
        plan: The options of the fits.

    Returns:
        The state of the fitted model, and the report with the selection.
    """
    fits, selection, report_of_selection = _selected(state, plan)
    rows = state.require_rows(purpose="a fit")
    best, *others = [fit for fit in fits if fit.weight]
    fitted, report = best.state, best.report
    if len(selection.block) < len(rows):
        fitted = begun = conditioned(best.state, rows)
    if len(selection.block) + selection.num_copies < len(rows):
        plan = replace(plan, fixed=(*plan.fixed, *best.model.fixed), is_continued=True, iteration_limit=MAX_ITERATIONS)
        fitted, report = fit_terms(begun, plan)
        report = replace(report, converged=report.converged or best.report.converged)  # from values of many rows
    if others:
        fitted = averaged(fitted, best.weight, [(one.weight, one.state) for one in others])
    fixed = tuple(dict.fromkeys(name for one in (best, *others) for name in one.model.fixed))
    return fitted, replace(report, selection=report_of_selection, fixed=fixed)


def series_report(state: GPState, plan: Plan) -> SelectionReport:
    """Return the report of the selection of a model of a series.

    Args:
        state: The state of the model before the fit (`is_series`).
        plan: The options of the fits.
    """
    return _selected(state, plan)[2]


def _selected(state: GPState, plan: Plan) -> tuple[list[SeriesFit], SeriesSelection, SelectionReport]:
    """Return the fits of the candidates, the best first, the selection, and its report."""
    start_time, selection = time.monotonic(), SeriesSelection(state, plan)
    fits = selection.run()
    return fits, selection, _report(selection, fits, time.monotonic() - start_time)


def _cost(state: GPState) -> tuple[float, float]:
    """Return the predicted seconds and bytes of a search, by the numbers of states and weights."""
    prior = state.prior()
    states = sum(sum(block.process.sizes) for block in prior.chains) + 2 * len(prior.precisions)
    of_row = 30.0 * states**2 + 4 * states * prior.num_features + 2 * prior.num_features**2
    seconds = EVALUATIONS * (state.num_observations * of_row + EVALUATION_FLOPS) / FLOPS_PER_SECOND
    return seconds, 8.0 * state.num_observations * (4 + 2 * prior.num_features)


def _report(selection: SeriesSelection, fits: Sequence[SeriesFit], seconds: float) -> SelectionReport:
    """Return the report of a selection."""
    best, chosen = fits[0], [fit for fit in fits if fit.weight]
    mixture = mixture_log_prob_of(chosen)
    of_mixture = selection.score(mixture, mixture)
    names = ", ".join(f"{fit.model.name} ({fit.weight:.2g})" for fit in chosen)
    trials = [
        Trial(
            fit.model.name,
            fit.model.candidate.gp_arguments,
            *_cost(fit.state),
            (selection.score(fit.log_prob, mixture),),
            "" if fit.weight else f"its score is {best.score - fit.score:.2g} nats below the best",
        )
        for fit in fits
    ]
    name = best.model.name if len(chosen) == 1 else f"The average of {names}"
    forecasts = f"{counted(len(selection.windows), 'forecast')} of {counted(selection.horizon, 'step')}"
    return SelectionReport(
        best=0,
        trials=(*trials, *selection.failed),
        reason=(
            f"{name}: log density {of_mixture.value:.3f} of a row in {forecasts} of {selection.column.step} (standard "
            f"error {of_mixture.error:.2g}). Rows are in time, so candidates are scored by their likelihoods and by "
            f"these forecasts.{selection.note}"
        ),
        num_validation=len(mixture),
        validation="the last rows",
        rate=FLOPS_PER_SECOND,
        weights=(*(fit.weight for fit in fits), *[0.0] * len(selection.failed)) if len(chosen) > 1 else (),
        seconds=seconds,
    )
