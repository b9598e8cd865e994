"""Forecasts of series, and backtests of forecasts by lead time beside the seasonal naive one.

A backtest makes forecasts from several origins in the past, each from a fit to the rows before it, and compares them
with the rows that followed. The seasonal naive forecast repeats the last season. Its errors are normal with the
variance of the differences of one season, times the number of seasons ahead.

A backtest of at least `LEAST_ORIGINS` origins can widen bands. The distance from the median to an end of a band is
multiplied by the quantile of |y - median| over this distance, at the level of the band, over all origins and a third of
the lead times. The factor is at least 1. This is split conformal prediction with normalized scores (Lei et al. 2018,
Distribution-free predictive inference for regression, Section 5.2), except that errors of one origin depend on each
other.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns import InputTable
from rfgp.errors import DataError, ForecastWarning, InvalidArgumentError, NotFittedError, requires_extra, warn
from rfgp.fitting import Plan, fit_terms
from rfgp.inference.distributions import NormalMarginals, check_level
from rfgp.messages import check_count, counted, listed
from rfgp.models import FitReport, GPState
from rfgp.models.diagnostics import forecast_warnings
from rfgp.models.series import MAX_STEPS, Array, TimeColumn, time_index, values_of_inputs, values_of_rows
from rfgp.models.state import averaged, parts_of_average, predicted, row_numbers
from rfgp.rows import Block, gathered
from rfgp.rows.sources import OutputFormat

LEAST_ORIGINS = 10
"""The number of origins from which a backtest widens bands."""
PROBABILITIES = np.arange(1, 20) / 20
"""The probabilities of the quantile loss."""


# --- Forecasts --------------------------------------------------------------------------------------------------------


def forecast(
    state: GPState,
    steps: int | None = None,
    until: Any = None,
    level: float = 0.95,
    future: Any = None,
    frequency: Any = None,
    backtest: "Backtest | None" = None,
    by: Any = None,
    *,
    log: bool = False,
    report: FitReport | None = None,
) -> Any:
    """Return the forecast of the rows that follow, as `rfgp.GP.forecast` describes.

    Args:
        state: The state of the model.
        steps: The number of steps.
        until: The last time.
        level: The level of the bands.
        future: Known columns of the rows to forecast.
        frequency: The step.
        backtest: The backtest that widens the bands.
        by: The column of the series.
        log: Whether the model is one of the logarithm of the target.
        report: The report of the fit. If None, there was none.

    Raises:
        InvalidArgumentError: If arguments contradict each other.
        DataError: If columns are missing.
    """
    with requires_extra("tables"):
        import pandas as pd
    level = check_level(level)
    if state.scaling.targets.scale.ndim:
        raise InvalidArgumentError("A forecast requires one output, got several. Fit a model for each.")
    if backtest is not None and (backtest.by, backtest.log) != (by, log):
        raise InvalidArgumentError(f"by and log must be those of the backtest, {backtest.by!r} and {backtest.log}.")
    known = state, steps, until, future, frequency, by
    rows, shown, counts = _rows_to_forecast(*known, needs_counts=backtest is not None)
    inputs, output_format = state.points(rows)
    for warning in forecast_warnings(state, report, inputs):
        warn(warning)
    prediction = predicted(state, inputs, output_format._replace(is_numpy=True))
    observed = prediction.observed()
    low, middle, high = (_numbers(values) for values in observed.quantile([(1 - level) / 2, 0.5, (1 + level) / 2]))
    factor = np.ones(1)
    if backtest is not None:
        factor = backtest.widening(level, counts)
        low, high = middle - factor * (middle - low), middle + factor * (high - middle)
    terms = {name: mean for name, (mean, _) in components(state, inputs).items()}
    mean = _numbers((observed.exp() if log else observed).mean)
    if log:
        low, high, terms = np.exp(low), np.exp(high), {name: np.exp(term) for name, term in terms.items()}
    parts = {"mean": mean, "lower": low, "upper": high}
    _check_names(shown, parts)
    own = {f"{name} (term)" if name in (*shown, *parts) else name: term for name, term in terms.items()}
    frame = pd.DataFrame({**shown, **parts, **own})
    frame.attrs = {"level": level, "log": log, "widening": float(factor.max())}
    with suppress(NotFittedError):  # a model without rows
        frame.attrs["frequency"] = str(TimeColumn.of(state, frequency).step)
    return frame


def _check_names(columns: Iterable[str], results: Iterable[str]) -> None:
    """Raise if a column of the user has the name of a result.

    Raises:
        InvalidArgumentError: If one has.
    """
    for name in set(columns) & set(results):
        raise InvalidArgumentError(f"{name!r} must not be the name of a column, since a result has it. Rename it.")


def _numbers(values: Any) -> Array:
    """Return values as an array of float64."""
    return np.asarray(values, dtype=np.float64)


def components(state: GPState, inputs: Tensor, *, centered: bool = False) -> dict[str, tuple[Array, Array]]:
    """Return the means and standard deviations of the terms (h,) by name, of the mixture for an average of models.

    Args:
        state: The state of the model.
        inputs: The standardized rows, (h, d).
        centered: Whether the mean of each term over the rows is subtracted, so that a constant that terms share does
            not count.
    """
    moments = dict[str, list[Array]]()
    for share, member in parts_of_average(state):
        terms = predicted(member, inputs, OutputFormat(True, inputs.new_empty(0))).terms
        for name, term in terms.items():
            shown = term.centered() if centered else term
            mean, variance = _numbers(shown.mean), _numbers(shown.variance)
            old = moments.get(name, [np.zeros(len(mean)), np.zeros(len(mean))])
            moments[name] = [old[0] + share * mean, old[1] + share * (variance + mean**2)]
    return {name: (mean, np.sqrt(np.maximum(square - mean**2, 0.0))) for name, (mean, square) in moments.items()}


def history(state: GPState, by: Any = None, *, log: bool = False) -> Any:
    """Return the rows of a series as a pandas frame of the times, the series and "y", in the order of the times.

    Args:
        state: The state of the model, with rows and one output.
        by: The column of the series. If None, there is none.
        log: Whether targets are logarithms. They are then shown in their own unit.
    """
    with requires_extra("tables"):
        import pandas as pd
    column, rows = TimeColumn.of(state), gathered(state.require_rows(purpose="a picture of a series"))
    y = _numbers(state.scaling.targets.inverse(rows.targets[:, 0]))
    times = values_of_rows(state, rows, column.index)
    series = {} if by is None else {str(by): _series_of_rows(state, rows, by)}
    frame = pd.DataFrame({column.name: column.shown(times), **series, "y": np.exp(y) if log else y})
    return frame.iloc[np.argsort(times, kind="stable")].reset_index(drop=True)


def _rows_to_forecast(
    state: GPState, steps: Any, until: Any, future: Any, frequency: Any, by: Any, *, needs_counts: bool
) -> tuple[Any, dict[str, Any], NDArray[np.int64]]:
    """Return the inputs of a forecast, the columns that the result shows, and the steps (h,) after the last row."""
    schema, index = state.spec.schema, time_index(state)
    key, indicators = schema.columns[index].key, state.spec.options.indicators
    sources = {f"{source}={level}": source for source, levels in indicators.items() for level in levels}
    others = list(dict.fromkeys(sources.get(str(one), one) for one in schema.sources if one != key))
    columns = {} if future is None else _columns_of(future)
    if steps is not None:
        check_count("steps", steps)
    _check_series(by, others)
    levels = _levels(state, by) if others == [by] and by not in columns else []
    missing = [] if levels else [one for one in others if one not in columns]
    if missing:
        known = {column.key for column in schema.columns if column.levels} | {*indicators}
        hint = f", or by={others[0]!r} for each of its levels" if len(others) == 1 and others[0] in known else ""
        raise DataError(
            f"The model reads {listed([repr(one) for one in missing])}, whose future values are not known. Give them "
            f"by future=, a table with the rows to forecast{hint}."
        )
    if by in columns and key not in columns:
        raise DataError(f"future= must have the times {key!r} too if it has the series of its rows.")
    num_rows = len(next(iter(columns.values()))) if columns and not levels else None
    name = key if isinstance(key, str) else "time"
    if key in columns:
        size = len(columns[key]) // (len(set(map(str, columns[by]))) if by in columns else 1)
        if until is not None or steps not in (None, size):
            given = f"until={until!r}" if steps is None else f"steps={steps!r}"
            raise InvalidArgumentError(
                f"steps and until must be None if future= has the times of the forecast ({counted(size, 'step')}), got "
                f"{given}."
            )
        counts = np.zeros(0, np.int64)
        if needs_counts:
            column = TimeColumn.of(state, frequency)
            times = values_of_inputs(state, state.points(columns)[0], index)
            counts = column.positions(times) - column.positions(column.times[-1:])
        shown = {name: columns[key], **{str(one): columns[one] for one in others}}
        return columns, shown, counts
    if steps is not None and until is not None:
        raise InvalidArgumentError("steps or until must be given, got both.")
    column = TimeColumn.of(state, frequency)
    if until is not None:
        steps = column.steps_until(until)
    elif steps is None and num_rows is None:
        raise InvalidArgumentError("steps must be the number of steps, or until the last time, got neither.")
    size = check_count("steps", num_rows if steps is None else steps)
    if size > MAX_STEPS:
        raise InvalidArgumentError(f"steps must be at most {MAX_STEPS:,}, got {size:,}.")
    if num_rows is not None and num_rows != size:
        raise DataError(f"future= must have one row for each step, got {num_rows} for {counted(size, 'step')}.")
    times, _ = column.following(size)
    if levels:  # all steps of each series
        columns, numbers = {by: [one for one in levels for _ in range(size)]}, np.tile(np.arange(size), len(levels))
        times, size = times[numbers], len(numbers)
        return {key: times, **columns}, {str(by): columns[by], name: times}, numbers + 1
    return {key: times, **columns}, {name: times, **{str(k): columns[k] for k in others}}, np.arange(1, size + 1)


def _check_series(by: Any, keys: Sequence[Any]) -> None:
    """Raise if a model does not read the column of the series.

    Raises:
        InvalidArgumentError: If it does not.
    """
    if by is not None and by not in keys:
        known = f"The others are {listed([repr(key) for key in keys])}" if keys else "There is no other"
        raise InvalidArgumentError(f"by must be a column that the model reads beside the times, got {by!r}. {known}.")


def _levels(state: GPState, by: Any) -> list[Any]:
    """Return the series of a model: the levels of a column, or its different numbers."""
    schema, known = state.spec.schema, state.spec.options.indicators.get(by, ())
    if known:
        return list(known)
    index = schema.keys.index(by) if by in schema.keys else 0
    if schema.columns[index].levels:
        return list(schema.columns[index].levels)
    rows = state.require_rows(purpose="a forecast by series")
    return sorted(set(_plain(values_of_rows(state, rows, index))))


def _series_of_rows(state: GPState, rows: Any, by: Any) -> list[Any]:
    """Return the series of each row."""
    schema, known, inputs = state.spec.schema, state.spec.options.indicators.get(by, ()), gathered(rows).inputs
    if known:
        indices = [schema.keys.index(f"{by}={level}") for level in known]
        return [known[code] for code in inputs[:, indices].argmax(1).tolist()]
    index = schema.keys.index(by)
    if schema.columns[index].levels:
        return schema.labels(index, inputs[:, index].tolist())
    return _plain(values_of_rows(state, rows, index))


def _plain(numbers: Array) -> list[Any]:
    """Return numbers (n,) without rounding errors, integers if all are."""
    rounded = np.round(numbers, 9)
    return list((rounded.astype(np.int64) if (rounded == np.round(rounded)).all() else rounded).tolist())


def _columns_of(future: Any) -> dict[Any, Any]:
    """Return the columns of a table by key."""
    table = InputTable.of(future)
    return {key: future[key] if hasattr(future, "keys") else table.cells(key, "future").values for key in table.keys}


# --- Backtests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Backtest:
    """Forecasts from several origins in the past, compared with what followed.

    Attributes:
        frame: A pandas frame with a row for each forecast row: "origin" and the time, "lead" (steps after the origin),
            "y", "mean", "median", "lower", "upper", "loss", and "naive median", "naive lower", "naive upper" and "naive
            loss" of the seasonal naive forecast. A loss is the mean of twice the quantile losses at 5, 10, ..., 95 %.
        horizon: The number of steps of each forecast.
        level: The level of the bands.
        frequency: The step between rows, as text.
        season: The number of steps of the season that the naive forecast repeats.
        origins: The number of origins.
        by: The column of the series, which is a column of the frame too. If None, there is one.
        log: Whether the model is one of the logarithm of the target, in whose unit the frame is.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> t = np.arange(60.0)
        >>> gp = rfgp.GP(rfgp.kernels.Wiener("t"), seed=0).fit({"t": t}, np.cumsum(np.cos(t)))
        >>> backtest = gp.backtest(horizon=6, folds=4)
        >>> backtest.origins, len(backtest.frame)
        (4, 24)
    """

    frame: Any
    horizon: int
    level: float
    frequency: str
    season: int
    origins: int
    by: Any = None
    log: bool = False

    @property
    def _ends(self) -> list[int]:
        """The ends of the thirds of the horizon, or of the lead times if there are fewer than three."""
        parts = min(3, self.horizon)
        return [round(self.horizon * part / parts) for part in range(parts + 1)]

    @property
    def _thirds(self) -> dict[str, NDArray[np.bool_]]:
        """The rows of the frame by thirds of the horizon."""
        leads, ends = np.asarray(self.frame["lead"]), pairwise(self._ends)
        return {f"{a + 1} to {b}" if b > a + 1 else f"{b}": (leads > a) & (leads <= b) for a, b in ends}

    @cached_property
    def scores(self) -> Any:
        """A pandas frame of scores by thirds of the horizon, and of all: coverage, errors and losses."""
        with requires_extra("tables"):
            import pandas as pd
        groups = self._thirds | {"all": np.ones(len(self.frame), bool)}
        return pd.DataFrame({name: self._scores_of(self.frame[chosen]) for name, chosen in groups.items()}).T

    @property
    def scores_by_series(self) -> Any:
        """A pandas frame of scores by series.

        Raises:
            InvalidArgumentError: If there is one series.
        """
        if self.by is None:
            raise InvalidArgumentError("There is one series. Use backtest(horizon, by=column) for several.")
        with requires_extra("tables"):
            import pandas as pd
        return pd.DataFrame({name: self._scores_of(part) for name, part in self.frame.groupby(str(self.by))}).T

    def _scores_of(self, frame: Any) -> dict[str, float]:
        y = frame["y"]
        return {
            "coverage": float(((frame["lower"] <= y) & (y <= frame["upper"])).mean()),
            "absolute error": float((y - frame["median"]).abs().mean()),
            "loss": float(frame["loss"].mean()),
            "naive coverage": float(((frame["naive lower"] <= y) & (y <= frame["naive upper"])).mean()),
            "naive absolute error": float((y - frame["naive median"]).abs().mean()),
            "naive loss": float(frame["naive loss"].mean()),
        }

    def widening(self, level: float, leads: NDArray[np.int64]) -> Array:
        """Return the factors (h,) by which distances of the ends of a band from the median grow, at least 1.

        Args:
            level: The level of the band.
            leads: The steps after the last row, (h,). Beyond the horizon the factor is that of its end. Distances are
                those of logarithms if the model is one of logarithms.

        Raises:
            InvalidArgumentError: If the level is not that of the backtest.

        Warns:
            ForecastWarning: If there are fewer than `LEAST_ORIGINS` origins. The factors are then 1.
        """
        if level != self.level:
            raise InvalidArgumentError(f"level must be that of the backtest, {self.level:g}, got {level:g}.")
        if self.origins < LEAST_ORIGINS:
            warnings.warn(
                ForecastWarning(
                    f"A backtest widens bands if it has at least {LEAST_ORIGINS} origins, got {self.origins}. Bands "
                    "are those of the model."
                ),
                stacklevel=4,
            )
            return np.ones(len(leads))
        columns = (np.asarray(self.frame[name]) for name in ("y", "median", "lower", "upper"))
        y, middle, low, high = map(np.log, columns) if self.log else columns
        ratios = np.abs(y - middle) / np.maximum(np.where(y < middle, middle - low, high - middle), 1e-300)
        by_third = []
        for chosen in self._thirds.values():
            near = np.sort(ratios[chosen])
            rank = min(math.ceil((len(near) + 1) * level), len(near))
            by_third.append(max(1.0, float(near[rank - 1])) if rank else 1.0)
        third = np.searchsorted(self._ends[1:], leads)
        return np.asarray(by_third)[np.minimum(third, len(by_third) - 1)]

    def __repr__(self) -> str:
        return f"Backtest({counted(self.origins, 'origin')}, {counted(self.horizon, 'step')} of {self.frequency})"

    def __str__(self) -> str:
        lines = [
            f"{counted(self.origins, 'origin')}, {counted(self.horizon, 'step')} ahead (a step is {self.frequency}); "
            f"bands of {self.level:.0%}; the naive forecast repeats {counted(self.season, 'step')}.",
            f"  {'steps':<12} {'coverage':>9} {'error':>9} {'loss':>9} {'naive: coverage':>16} {'error':>9} "
            f"{'loss':>9}",
        ]
        for name, row in self.scores.iterrows():
            coverage, error, loss, *naive = row
            lines.append(
                f"  {name:<12} {coverage:>9.0%} {error:>9.4g} {loss:>9.4g} {naive[0]:>16.0%} {naive[1]:>9.4g} "
                f"{naive[2]:>9.4g}"
            )
        return "\n".join(lines)


def backtest(
    state: GPState,
    horizon: int,
    folds: int = LEAST_ORIGINS,
    level: float = 0.95,
    report: FitReport | None = None,
    *,
    refit: bool = True,
    frequency: Any = None,
    by: Any = None,
    log: bool = False,
) -> Backtest:
    """Return the backtest of a model, as `rfgp.GP.backtest` describes.

    Args:
        state: The state of the model, with rows.
        horizon: The number of steps of each forecast.
        folds: The number of origins.
        level: The level of the bands.
        report: The report of the fit. If None, there was none.
        refit: Whether hyperparameters are searched again at each origin.
        frequency: The step between rows.
        by: The column of the series.
        log: Whether the model is one of the logarithm of the target.

    Raises:
        DataError: If there are too few rows.
    """
    with requires_extra("tables"):
        import pandas as pd
    horizon, folds, level = check_count("horizon", horizon), check_count("folds", folds), check_level(level)
    column = TimeColumn.of(state, frequency)
    rows = gathered(state.require_rows(purpose="a backtest"))
    _check_backtest(state, rows, column.name, by)
    row_times = values_of_rows(state, rows, column.index)
    y = np.asarray(state.scaling.targets.inverse(rows.targets[:, 0]).double().cpu())
    positions = column.positions(row_times)
    labels = [None] * len(y) if by is None else _series_of_rows(state, rows, by)
    series = np.unique(np.array([str(label) for label in labels]), return_inverse=True)[1]
    if report is not None and report.hyperparameter_posterior is not None:
        refit = False  # values that are integrated over
    p = np.array([(1 - level) / 2, *PROBABILITIES, (1 + level) / 2])
    fixed, frames = () if report is None else report.fixed, list[dict[str, Any]]()
    for origin in _origins(positions, horizon, folds):
        is_known = positions <= origin
        is_next = (positions > origin) & (positions <= origin + horizon) & np.isin(series, series[is_known])
        given, after = (rows.take(torch.from_numpy(np.flatnonzero(chosen))) for chosen in (is_known, is_next))
        if not len(after):
            continue  # a gap
        begun = state.replace(rows=given, num_observations=len(given))
        fitted = _refitted(begun, fixed) if refit else begun
        prediction = predicted(fitted, after.inputs, OutputFormat(True, rows.targets.new_empty(0)))
        observed = prediction.observed(**row_numbers(state, after))
        naive = _naive(positions, y, is_known, is_next, series, column.season)
        own, repeated = _numbers(observed.quantile(p)), _numbers(naive.quantile(torch.from_numpy(p)[:, None]))
        own, repeated, target = map(np.exp if log else np.asarray, (own, repeated, y[is_next]))
        last, next_times = float(row_times[is_known].max()), row_times[is_next]
        frames.append(
            {
                "origin": column.shown(np.full(len(after), last)),
                column.name: column.shown(next_times),
                **({} if by is None else {str(by): [labels[i] for i in np.flatnonzero(is_next)]}),
                "lead": positions[is_next] - origin,
                "y": target,
                "mean": _numbers((observed.exp() if log else observed).mean),
                **_bands(own, target),
                **_bands(repeated, target, "naive "),
            }
        )
    joined = pd.concat(map(pd.DataFrame, frames), ignore_index=True)
    return Backtest(joined, horizon, level, str(column.step), column.season, len(frames), by, log)


def _check_backtest(state: GPState, rows: Block, time: str, by: Any) -> None:
    """Check that a backtest can score rows.

    Raises:
        InvalidArgumentError: If there are several outputs, known noise, or no column of the series, or a column has
            the name of a result.
    """
    if rows.num_outputs > 1:
        raise InvalidArgumentError(f"A backtest requires one output, got {rows.num_outputs}. Fit a model for each.")
    if rows.has_fixed_noise and not state.has_exposures:
        raise InvalidArgumentError("A backtest requires rows without known noise, which later rows would need too.")
    keys, indicators = state.spec.schema.sources, state.spec.options.indicators
    _check_series(by, [*keys, *indicators])
    own = ("median", "lower", "upper", "loss")
    results = ("origin", "lead", "y", "mean", *own, *(f"naive {name}" for name in own))
    _check_names([time, *([] if by is None else [str(by)])], results)


def _origins(positions: NDArray[np.int64], horizon: int, folds: int) -> list[int]:
    """Return the origins of a backtest, ascending, in steps after the first row.

    Forecasts do not overlap if half of the rows leave room for them.

    Args:
        positions: The rows, in steps after the first, (n,).
        horizon: The number of steps of each forecast.
        folds: The number of origins.

    Raises:
        DataError: If fewer than half of the times remain for the first fit.
    """
    known = np.unique(positions)
    last, first = int(known[-1]) - horizon, int(known[(len(known) - 1) // 2])
    room = last - first
    if room < 0 or len(known) < 4:
        raise DataError(
            f"horizon must be at most half of the {counted(len(known), 'time')} of the rows, got "
            f"{counted(horizon, 'step')}. Forecast fewer steps, or give more rows."
        )
    stride = horizon if (folds - 1) * horizon <= room else max(room // max(folds - 1, 1), 1)
    wanted = [last - stride * fold for fold in range(folds - 1, -1, -1) if stride * fold <= room]
    places = np.searchsorted(known, wanted, side="right") - 1  # the last known times, if an origin is in a gap
    return list(dict.fromkeys(known[places].tolist()))


def _refitted(state: GPState, fixed: Sequence[str]) -> GPState:
    """Return a state whose hyperparameters, those of each member of an average, are searched from their values.

    Args:
        state: The state.
        fixed: The names of hyperparameters that keep their values.
    """
    members = list[tuple[float, GPState]]()
    for share, member in parts_of_average(state):
        names = member.hyperparameters.space.names if "*" in fixed else fixed
        known = tuple(name for name in names if name in member.hyperparameters.space.names)
        members.append((share, fit_terms(member, Plan(known, is_continued=True))[0]))
    (share, first), *others = members
    return averaged(first, share, others) if others else first


def _naive(
    positions: NDArray[np.int64],
    y: Array,
    is_known: NDArray[np.bool_],
    is_next: NDArray[np.bool_],
    series: NDArray[np.int64],
    season: int,
) -> NormalMarginals:
    """Return the seasonal naive forecast: the last known value a number of seasons before.

    Args:
        positions: The rows, in steps, (n,).
        y: Their values, (n,). The mean counts for rows of a series at one time.
        is_known: Whether a row is known, (n,).
        is_next: Whether it is forecast, (n,).
        series: The number of its series, (n,).
        season: The number of steps of a season.
    """
    means, deviations = np.empty(len(y)), np.empty(len(y))
    for number in np.unique(series[is_next]):
        mine = series == number
        known, after = mine & is_known, mine & is_next
        steps, inverse = np.unique(positions[known], return_inverse=True)
        values = np.bincount(inverse, y[known]) / np.bincount(inverse)
        at = dict(zip(steps.tolist(), values.tolist(), strict=True))
        seasons = -(-(positions[after] - int(steps[-1])) // season)
        before = positions[after] - seasons * season
        means[after] = [
            next((at[b] for b in range(step, int(steps[0]) - 1, -season) if b in at), values[-1])
            for step in before.tolist()
        ]
        differences = [at[step] - at[step - season] for step in at if step - season in at]
        spread = math.sqrt(float(np.mean(np.square(differences)))) if differences else float(np.std(values))
        deviations[after] = spread * np.sqrt(seasons)
    return NormalMarginals(*map(torch.from_numpy, (means[is_next], deviations[is_next] ** 2)))


def _bands(quantiles: Array, y: Array, prefix: str = "") -> dict[str, Array]:
    """Return the median, the ends of the band and the loss of a forecast, by name.

    Args:
        quantiles: The quantiles, (21, h): of the lower end, at `PROBABILITIES`, and of the upper end.
        y: The observations, (h,).
        prefix: The beginning of the names.
    """
    low, *middle, high = quantiles
    error, p = y - np.stack(middle), PROBABILITIES[:, None]
    loss = 2 * np.maximum(p * error, (p - 1) * error).mean(0)
    return {f"{prefix}median": middle[9], f"{prefix}lower": low, f"{prefix}upper": high, f"{prefix}loss": loss}
