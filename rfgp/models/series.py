"""The column of times of a series, and the step between its rows."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns import ColumnKind, InputTable
from rfgp.columns.calendar import Step
from rfgp.columns.days import ATTOSECONDS, dates_of
from rfgp.columns.rules import ColumnSchema
from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.kernels import Periodic, Wiener
from rfgp.messages import listed
from rfgp.models.state import GPState
from rfgp.rows import Rows, gathered

Array = NDArray[np.float64]
MAX_STEPS = 10**6
"""The maximum number of steps of a forecast."""


@dataclass(frozen=True, eq=False)
class TimeColumn:
    """The column of times of a series.

    Attributes:
        rule: The column.
        index: Its index among the columns of the model.
        times: The different times of the rows in ascending order, (m,): days since the origin of the column, or
            numbers.
        step: The step between them.
    """

    rule: ColumnSchema
    index: int
    times: Array
    step: Step

    @classmethod
    def of(cls, state: GPState, frequency: Any = None) -> "TimeColumn":
        """Return the column of times of a model, and its step.

        Args:
            state: The state of the model, with rows.
            frequency: The step between rows, as for `Step.read`. If None, it is inferred.

        Raises:
            InvalidArgumentError: If there is no such column, or several, or the frequency has another form.
            NotFittedError: If the rows are not known.
        """
        index, schema = time_index(state), state.spec.schema
        rule = schema.columns[index]
        rows = state.require_rows(purpose="a forecast without future=")
        times = np.unique(values_of_rows(state, rows, index))
        _check_no_dates(rule, times)
        is_date = rule.is_date
        step = (
            Step.of(times, is_date=is_date, origin=rule.origin / ATTOSECONDS)
            if frequency is None
            else Step.read(frequency, is_date=is_date)
        )
        return cls(rule, index, times, step)

    @property
    def origin(self) -> float:
        """The origin of dates, in days since 1970-01-01."""
        return self.rule.origin / ATTOSECONDS

    @property
    def name(self) -> str:
        """The name of the column of times in results."""
        return self.rule.key if isinstance(self.rule.key, str) else "time"

    def shown(self, times: Array) -> Any:
        """Return times (h,) as in the user's table: dates of pandas, or numbers."""
        if self.rule.is_date:
            return dates_of(times + self.origin, self.rule.zone)
        digits = 12 - math.ceil(math.log10(max(float(np.abs(self.times).max()), float(np.abs(times).max()), 1e-300)))
        return np.round(times, digits)

    def following(self, steps: int) -> tuple[Any, Array]:
        """Return the next times after the last row, as in the user's table (h,) and as numbers (h,).

        Args:
            steps: The number h of steps.
        """
        last, counts = float(self.times[-1]), np.arange(1, steps + 1)
        if self.rule.is_date and self.rule.zone and self.step.unit == "day" and self.step.size < 1:
            with requires_extra("tables"):
                import pandas as pd
            length = np.timedelta64(round(self.step.size * 86_400 * 10**6), "us")
            shown = pd.Series(self.shown(np.array([last]))[0] + counts * pd.Timedelta(length)).array
            return shown, np.asarray(last + counts * self.step.size, np.float64)
        times = self.step.after(last, counts, self.origin)
        return self.shown(times), times

    def steps_until(self, until: Any) -> int:
        """Return the number of steps to the last time that is not after another one.

        Args:
            until: The time, as in the user's table.

        Raises:
            DataError: If it is before the first step, or is not a time.
        """
        with requires_extra("tables"):
            import pandas as pd
        form = "a date such as 2024-12-31" if self.rule.is_date else "a number"
        try:
            end = pd.Timestamp(until) if self.rule.is_date and not isinstance(until, int | float) else until
            has_zone = getattr(end, "tzinfo", None) is not None and not self.rule.zone
            target = (
                0.0 if has_zone else float(self.rule.read(InputTable.of({"until": [end]}).cells("until", "until"))[0])
            )
        except (TypeError, ValueError) as error:
            raise DataError(f"until must be {form}, got {until!r}.") from error
        if has_zone:
            raise DataError(f"until must have no time zone, as the rows, got {until!r}.")
        if math.isnan(target):
            raise DataError(f"until must be {form}, got {until!r}.")
        if not target - self.times[-1] < MAX_STEPS * self.step.days:
            raise DataError(
                f"until must be at most {MAX_STEPS:,} steps ({self.step}) after the last row, got {until!r}."
            )
        guess = max(1, math.ceil((target - self.times[-1]) / self.step.days * 1.5) + 2)
        shown, times = self.following(guess)
        if self.rule.is_date and shown.dtype.kind == "M" and getattr(shown, "tz", None) is not None:
            end = end.tz_localize(shown.tz, ambiguous=False, nonexistent="shift_forward") if end.tz is None else end
            steps = int((shown <= end).sum())
        else:
            steps = int((times <= target + 1e-9).sum())
        if not steps:
            raise DataError(f"until must be after the last row and at least one step ({self.step}), got {until!r}.")
        return steps

    def positions(self, times: Array) -> NDArray[np.int64]:
        """Return times (h,) as numbers of steps after the first row."""
        return self.step.count(times, float(self.times[0]), self.origin)

    @property
    def season(self) -> int:
        """The number of steps of the season that the naive forecast repeats, 1 if it repeats the last value.

        It is a week of hours or days, and a year of longer steps, if the rows cover two of them; otherwise a day of
        hours.
        """
        if not self.rule.is_date:
            return 1
        days, extent = self.step.days, float(self.times[-1] - self.times[0])
        periods = [7.0, 1.0] if days < 6 else [365.2425]
        return next((round(p / days) for p in periods if p >= 1.5 * days and extent >= 2 * p), 1)


def _check_no_dates(rule: ColumnSchema, times: Array) -> None:
    """Raise if numbers are dates such as 20241231, whose distances are not those of days.

    Raises:
        DataError: If they are.
    """
    whole = np.round(times)
    if rule.is_date or not ((whole > 1.8e7) & (whole < 2.2e7)).all() or np.abs(times - whole).max() > 1e-3:
        return
    month, day = whole // 100 % 100, whole % 100
    if ((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all() and len(times) > 1:
        raise DataError(
            f"Column {rule.key!r} holds dates as numbers, such as {int(whole[0])}. Convert it with "
            'pandas.to_datetime(..., format="%Y%m%d").'
        )


def values_of_rows(state: GPState, rows: Rows, index: int) -> Array:
    """Return the values of a column of rows (n,): numbers, or days since the origin of its dates.

    Args:
        state: The state of the model.
        rows: The rows.
        index: The index of the column.
    """
    return values_of_inputs(state, gathered(rows).inputs, index)


def values_of_inputs(state: GPState, inputs: Tensor, index: int) -> Array:
    """Return the values of a column of standardized inputs (n,): numbers, or days since the origin of its dates.

    Args:
        state: The state of the model.
        inputs: The standardized inputs, (n, d).
        index: The index of the column.
    """
    maps, inputs = state.scaling.inputs, inputs.double()
    return np.asarray((inputs if maps is None else maps.inverse(inputs))[:, index].cpu(), dtype=np.float64)


def possible_times(state: GPState) -> tuple[list[int], list[int]]:
    """Return the indices of the columns of dates, and of all numbers that are not names of series too.

    Args:
        state: The state of the model.
    """
    columns = state.spec.schema.columns
    levels = {column.key for column in columns if column.kind is ColumnKind.LEVEL}
    numbers = [i for i, c in enumerate(columns) if c.kind is ColumnKind.NUMBER and c.key not in levels]
    return [i for i in numbers if columns[i].is_date], numbers


def time_index(state: GPState) -> int:
    """Return the index of the column of times: of dates, of a Wiener process or a season, or the only column.

    Args:
        state: The state of the model.

    Raises:
        InvalidArgumentError: If there is no such column, or there are several.
    """
    columns, (dates, numbers) = state.spec.schema.columns, possible_times(state)
    parts = [part for term in state.spec.terms for part in term.parts()]
    used = {i for part in parts if isinstance(part.factor, Periodic | Wiener) for i in part.indices}
    for found in (dates, sorted(used), numbers):
        if len(found) == 1:
            return found[0]
    names = listed([repr(column.key) for column in columns])
    raise InvalidArgumentError(
        f"A forecast requires one column of times, got the columns {names}. Convert the times to dates."
    )
