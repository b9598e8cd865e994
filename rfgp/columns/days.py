"""Dates as days since 1970-01-01 UTC, and durations as days."""

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError

_PER_DAY = {"D": 1, "h": 24, "m": 1440, "s": 86_400}
_PER_DAY |= {"ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_EPOCH = datetime.datetime(1970, 1, 1)
_DAY = datetime.timedelta(days=1)


def to_days(
    times: NDArray[Any],  # (n,) datetime64 or timedelta64
) -> NDArray[np.float64]:
    """Return dates as days since 1970-01-01, or durations as days, (n,).

    NaT becomes NaN.

    Args:
        times: Dates or durations (n,).

    Raises:
        DataError: If durations are in months or years, or have no unit.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import to_days
        >>> to_days(np.array(["1970-01-02T12:00", "NaT"], dtype="datetime64[s]")).tolist()
        [1.5, nan]
    """
    unit, step = np.datetime_data(times.dtype)
    is_date = times.dtype.kind == "M"
    if not is_date and unit in ("Y", "M", "generic"):
        raise DataError("holds durations in months or years, or without a unit. Convert them to days.")
    if unit not in _PER_DAY or step != 1:
        coarse = unit in ("Y", "M", "W")
        unit = "D" if coarse else unit if unit in _PER_DAY else "ns"
        times = times.astype(f"{times.dtype.kind}8[{unit}]")
    counts, per_day = times.astype(np.int64), _PER_DAY[unit]
    days = counts // per_day + (counts % per_day) / per_day
    return np.where(np.isnat(times), np.nan, days)


def objects_to_days(
    cells: NDArray[Any],  # (n,) objects
) -> NDArray[np.float64]:
    """Return date objects as days since 1970-01-01 UTC, or durations as days, (n,).

    Args:
        cells: Dates or durations (n,).

    Raises:
        DataError: If dates with and without a time zone are mixed.

    Examples:
        >>> import datetime
        >>> import numpy as np
        >>> from rfgp.columns.days import objects_to_days
        >>> objects_to_days(np.array([datetime.date(1970, 1, 3)], dtype=object)).tolist()
        [2.0]
    """
    aware = [getattr(cell, "tzinfo", None) is not None for cell in cells]
    if any(aware) and not all(aware):
        raise DataError("holds dates with and without a time zone. Convert all of them to UTC.")
    return np.array([_object_to_days(cell) for cell in cells], dtype=np.float64)


def _object_to_days(cell: Any) -> float:
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return float(to_days(np.array([cell]))[0])
    if isinstance(cell, datetime.datetime):
        epoch = _EPOCH if cell.tzinfo is None else _EPOCH.replace(tzinfo=datetime.UTC)
        return float((cell - epoch) / _DAY)
    if isinstance(cell, datetime.date):
        return float(cell.toordinal() - _EPOCH.toordinal())
    return float(cell / _DAY)
