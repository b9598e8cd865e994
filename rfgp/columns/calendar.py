"""Steps of a calendar: the time between the rows of a series, and the times that follow."""

import datetime
import math
import numbers
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import InvalidArgumentError
from rfgp.messages import short_repr

_UNITS = {"s": 1 / 86_400, "min": 1 / 1440, "h": 1 / 24, "D": 1.0, "W": 7.0}
_MONTHS = {"M": 1, "ME": 1, "MS": 1, "Q": 3, "QE": 3, "QS": 3, "Y": 12, "YE": 12, "YS": 12}
_SECONDS = {"week": 604_800, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}
_MEAN_DAYS = {"month": 365.2425 / 12, "month end": 365.2425 / 12, "business day": 7 / 5}
_ROUNDING = 1e-6
"""The largest difference of equal steps, relative to a step."""
_MICROSECONDS = 86_400 * 10**6


@dataclass(frozen=True)
class Step:
    """The step between the rows of a series.

    Attributes:
        size: The number of months, business days, or units of the column (days for dates).
        unit: "month", "month end", "business day", "day" for a fixed number of days, or "" for numbers.
        is_regular: Whether all distances of rows are multiples of the step. If not, it is the median distance.

    Examples:
        >>> import numpy as np
        >>> step = Step.of(np.array([0.0, 31.0, 59.0]))  # January, February, March of 1970
        >>> str(step), step.after(59.0, np.array([1, 2])).tolist()
        ('1 month', [90.0, 120.0])
    """

    size: float
    unit: str = "day"
    is_regular: bool = True

    @classmethod
    def of(cls, times: NDArray[np.float64], *, is_date: bool = True, origin: float = 0.0) -> "Step":
        """Return the step between times, of which some may be missing.

        Args:
            times: Different times in ascending order, (n,): days on a local clock, or numbers.
            is_date: Whether times are dates.
            origin: The origin of dates, in days since 1970-01-01.

        Examples:
            >>> import numpy as np
            >>> str(Step.of(np.array([0.0, 1.0, 2.0, 5.0])))
            '1 day'
        """
        gaps = np.diff(times)
        if not len(gaps):
            return cls(1.0, "day" if is_date else "")
        if is_date and (step := _calendar_step(times + origin, gaps)) is not None:
            return step
        values, counts = np.unique(np.round(gaps / (_ROUNDING * gaps.max())), return_counts=True)
        common = float(np.median(gaps[np.abs(gaps / gaps.max() - values[counts.argmax()] * _ROUNDING) < _ROUNDING]))
        multiples = gaps / common
        is_regular = bool((np.abs(multiples - multiples.round()) <= 100 * _ROUNDING * multiples).all())
        size = common if is_regular and multiples.min() > 0.5 else float(np.median(gaps))
        rounded = round(size * _MICROSECONDS) / _MICROSECONDS if is_date else size
        return cls(rounded or size, "day" if is_date else "", is_regular)

    @classmethod
    def read(cls, frequency: Any, *, is_date: bool = True) -> "Step":
        """Return the step of a frequency that the user gave.

        Args:
            frequency: For dates a text as in pandas, such as "h", "15min", "D", "W", "B", "MS", "ME", "QS" or "YS", or
                a `timedelta`. Otherwise a positive number in the unit of the column.
            is_date: Whether times are dates.

        Raises:
            InvalidArgumentError: If the frequency has another form.

        Examples:
            >>> str(Step.read("15min")), str(Step.read("QS")), str(Step.read(0.5, is_date=False))
            ('15 minutes', '3 months', '0.5')
        """
        if isinstance(frequency, str) and is_date:
            found = re.fullmatch(r"(\d*)([A-Za-z]+)(-[A-Z]{3})?", frequency)  # weeks from Monday are W-MON
            count, unit = (int(found[1] or 1), found[2]) if found else (0, "")
            if count and unit in _UNITS:
                return cls(count * _UNITS[unit])
            if count and unit in _MONTHS:
                return cls(count * _MONTHS[unit], "month" if unit.endswith("S") else "month end")
            if count and unit == "B":
                return cls(count, "business day")
        else:
            is_duration = isinstance(frequency, datetime.timedelta | np.timedelta64)
            size = frequency
            if is_duration:
                with suppress(TypeError):  # months have no length
                    size = np.timedelta64(frequency) / np.timedelta64(1, "D")
            if isinstance(size, numbers.Real) and not isinstance(size, bool) and 0 < float(size) < math.inf:
                return cls(float(size), "day" if is_date else "")
        form = 'a text such as "h", "15min", "D", "W", "B", "MS", "QS" or "YS"' if is_date else "a positive number"
        raise InvalidArgumentError(f"frequency must be {form}, got {short_repr(frequency)}.")

    def after(self, time: float, counts: NDArray[np.int64], origin: float = 0.0) -> NDArray[np.float64]:
        """Return the times some steps after another one, (h,).

        Args:
            time: The time, days since the origin for dates.
            counts: The numbers of steps, (h,). They may be negative.
            origin: The origin of dates, in days since 1970-01-01.
        """
        if self.unit in ("", "day"):
            return np.asarray(time + counts * self.size, dtype=np.float64)
        day = math.floor(time + origin + _ROUNDING)
        rest = time - day
        if self.unit in ("month", "month end"):
            month = np.datetime64(day, "D").astype("datetime64[M]")
            offset = day - float(month.astype("datetime64[D]").astype(np.int64))
            months = month + (counts * int(self.size)).astype("timedelta64[M]")
            first, next_first = (one.astype("datetime64[D]").astype(np.float64) for one in (months, months + 1))
            days: Any = np.minimum(first + offset if self.unit == "month" else next_first, next_first - 1)
        else:
            dates = np.busday_offset(np.datetime64(day, "D"), counts * int(self.size), roll="backward")
            days = dates.astype("datetime64[D]").astype(np.float64)
        return np.asarray(days + rest, dtype=np.float64)

    def count(self, times: NDArray[np.float64], first: float, origin: float = 0.0) -> NDArray[np.int64]:
        """Return times as numbers of steps after the first one, rounded, (n,).

        Args:
            times: The times, (n,): days since the origin for dates.
            first: The first time.
            origin: The origin of dates, in days since 1970-01-01.
        """
        if self.unit in ("", "day"):
            return np.round((times - first) / self.size).astype(np.int64)
        days = np.floor(np.append(times, first) + origin + _ROUNDING).astype(np.int64).astype("datetime64[D]")
        if self.unit == "business day":
            steps = np.busday_count(days[-1], days[:-1]).astype(np.float64)
        else:
            months = days.astype("datetime64[M]").astype(np.int64)
            steps = (months[:-1] - months[-1]).astype(np.float64)
        return np.round(steps / self.size).astype(np.int64)

    @property
    def days(self) -> float:
        """The mean length of a step, in days for dates."""
        return self.size * _MEAN_DAYS.get(self.unit, 1.0)

    def __str__(self) -> str:
        if not self.is_regular:
            return f"irregular, about {self.size:.3g}" + " days" * bool(self.unit)
        if not self.unit:
            return f"{self.size:g}"
        if self.unit == "day":
            seconds = round(self.size * 86_400, 6)
            name = next((name for name, size in _SECONDS.items() if seconds >= size and seconds % size == 0), "second")
            count = seconds / _SECONDS[name]
        elif self.unit == "business day":
            name, count = self.unit, self.size
        else:
            name, count = ("month", self.size) if self.size % 12 else ("year", self.size / 12)
        return f"{count:.6g} {name}" + "s" * (count != 1)


def _calendar_step(times: NDArray[np.float64], gaps: NDArray[np.float64]) -> Step | None:
    """Return the step of months or business days between days, or None."""
    whole = np.floor(times + _ROUNDING)
    if (np.abs(times - whole - (times[0] - whole[0])) > _ROUNDING).any():
        return None
    days = whole.astype(np.int64).astype("datetime64[D]")
    if gaps.min() > 27.5:
        months = days.astype("datetime64[M]")
        of_month = (days - months.astype("datetime64[D]")).astype(np.int64)
        is_last = ((months + 1).astype("datetime64[D]") - days).astype(np.int64) == 1
        is_same = of_month == of_month.max()
        if is_last.all() or (is_same | (is_last & (of_month.max() > 27))).all():
            size = int(np.gcd.reduce(np.diff(months.astype(np.int64))))
            return Step(size, "month end" if is_last.all() and not is_same.all() else "month")
    is_weekday = np.is_busday(days)
    if is_weekday.all() and np.median(gaps) == 1 and times[-1] - times[0] >= 14:
        return Step(1, "business day")
    return None
