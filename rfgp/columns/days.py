"""Dates as days on the clock of their time zone, and durations as days, exact for small differences.

A column with a time zone is read on the local clock of that zone: 8:00 in Berlin is 8:00 in summer and in winter, so
seasons of a day follow the clock. The hour that is repeated in autumn has the same input twice, and the skipped hour in
spring is a gap. Dates with UTC offsets and without the name of a zone are read on the clock as they are written.
"""

import datetime
import zoneinfo
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, requires_extra

_PER_DAY = {"D": 1, "h": 24, "m": 1440, "s": 86_400}
_PER_DAY |= {unit: 86_400 * 10 ** (3 * power) for power, unit in enumerate(("ms", "us", "ns", "ps", "fs", "as"), 1)}
ATTOSECONDS = 86_400 * 10**18
"""The number of attoseconds of a day, the unit of origins."""
_UTC = ("", "UTC", "Etc/UTC", "UCT", "Etc/UCT", "GMT", "Etc/GMT", "Zulu", "Z", "+00:00")
"""The names of zones with the clock of UTC."""
_QUARTER = 900
"""The number of seconds of a quarter of an hour, within which offsets of zones rarely change."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LARGEST = 2**62
"""The largest origin in the unit of a column that 64 bits can subtract."""
_MAX_MICROSECOND_DAYS = 1e8
"""The maximum number of days from 1970-01-01 for which microseconds fit into 64 bits."""


class Times(NamedTuple):
    """Dates on a clock, or durations.

    Attributes:
        values: Dates on the local clock, or durations, (n,).
        zone: The name of the time zone, the UTC offsets as in "+01:00 +02:00", or "" without a zone.
        offsets: The offsets (n,) from UTC in seconds, or None without a zone.
    """

    values: NDArray[Any]
    zone: str = ""
    offsets: NDArray[np.int64] | None = None


def to_days(times: NDArray[Any], origin: int = 0) -> NDArray[np.float64]:  # (n,) datetime64 or timedelta64
    """Return dates as days since an origin, or durations as days, (n,).

    The origin is subtracted in integers, so differences of nanoseconds are exact near the origin. NaT becomes NaN.

    Args:
        times: Dates or durations (n,).
        origin: The origin in attoseconds since 1970-01-01, or of a duration.

    Raises:
        DataError: If durations are in months or years, or have no unit.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import to_days
        >>> to_days(np.array(["1970-01-02T12:00", "NaT"], dtype="datetime64[s]")).tolist()
        [1.5, nan]
    """
    times = in_known_unit(times)
    per_day = _PER_DAY[np.datetime_data(times.dtype)[0]]
    whole, rest = divmod(origin, ATTOSECONDS // per_day)
    counts = times.astype(np.int64)
    if abs(whole) < _LARGEST:
        with np.errstate(over="ignore"):
            counts = counts - whole
        days = counts // per_day + (counts % per_day) / per_day if not whole else counts / per_day
    else:
        days = counts / per_day - whole / per_day
    return np.where(np.isnat(times), np.nan, days - rest / ATTOSECONDS)


def origin_of(times: NDArray[Any]) -> int:
    """Return the first of dates or durations (n,) in attoseconds, or 0 if there is none.

    Args:
        times: Dates or durations (n,). NaT is ignored.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import origin_of
        >>> origin_of(np.array(["NaT", "1970-01-01T00:00:02"], dtype="datetime64[s]"))
        2000000000000000000
    """
    times = in_known_unit(times)
    known = times[~np.isnat(times)][:1].astype(np.int64).tolist()
    return ATTOSECONDS // _PER_DAY[np.datetime_data(times.dtype)[0]] * known[0] if known else 0


def in_known_unit(times: NDArray[Any]) -> NDArray[Any]:
    """Return dates or durations (n,) in days or a smaller unit.

    Args:
        times: Dates or durations (n,).

    Raises:
        DataError: If durations are in months or years, or have no unit.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import in_known_unit
        >>> in_known_unit(np.array(["1970-02"], dtype="datetime64[M]")).dtype
        dtype('<M8[D]')
    """
    unit, step = np.datetime_data(times.dtype)
    is_date = times.dtype.kind == "M"
    if not is_date and unit in ("Y", "M", "generic"):
        raise DataError("holds durations in months or years, or without a unit. Convert them to days.")
    if unit in _PER_DAY and step == 1:
        return times
    coarse = unit in ("Y", "M", "W")
    return times.astype(f"{times.dtype.kind}8[{'D' if coarse else unit if unit in _PER_DAY else 'ns'}]")


def on_clock(times: NDArray[Any], zone: str) -> Times:  # (n,) datetime64
    """Return times in UTC on the local clock of a zone.

    Args:
        times: Times in UTC (n,).
        zone: The name of the zone, or an offset from UTC as "+01:00".

    Raises:
        DataError: If the zone is unknown.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import on_clock
        >>> on_clock(np.array(["2024-07-01T10:00"], "M8[s]"), "Europe/Berlin").values.astype(str).tolist()
        ['2024-07-01T12:00:00']
    """
    zone = "UTC" if zone in _UTC else zone
    seconds = times.astype("datetime64[s]").astype(np.int64)
    offsets = np.where(np.isnat(times), 0, _offsets(np.where(np.isnat(times), 0, seconds), zone))
    return Times(times + offsets.astype("timedelta64[s]"), zone, offsets)


def converted(times: Times, zone: str) -> NDArray[Any]:
    """Return dates (n,) on the clock of the training data.

    Args:
        times: The dates, with a zone or offsets if, and only if, the training data have them.
        zone: The zone or the UTC offsets of the training data.

    Raises:
        DataError: If the training data have UTC offsets without a zone, and the dates other offsets.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import converted, on_clock
        >>> tokyo = on_clock(np.array(["2024-07-01T10:00"], "M8[s]"), "Asia/Tokyo")
        >>> converted(tokyo, "Europe/Berlin").astype(str).tolist()
        ['2024-07-01T12:00:00']
    """
    if times.offsets is None or times.zone == zone:
        return times.values
    if zone[0] not in "+-":
        return on_clock(times.values - times.offsets.astype("timedelta64[s]"), zone).values
    new = sorted({_offset_name(offset) for offset in np.unique(times.offsets).tolist()} - set(zone.split()))
    if new:
        raise DataError(
            f"must have the UTC offsets of the training data ({zone}), got {new[0]}. Convert all dates to a time zone "
            "with a name, such as Europe/Berlin."
        )
    return times.values


def of_objects_in_time(cells: NDArray[Any]) -> Times:  # (n,) objects
    """Return date objects on their clocks, or durations.

    Args:
        cells: Dates or durations (n,).

    Raises:
        DataError: If dates with and without a time zone are mixed, or have several zones.

    Examples:
        >>> import datetime
        >>> import numpy as np
        >>> from rfgp.columns.days import of_objects_in_time
        >>> of_objects_in_time(np.array([datetime.date(1970, 1, 3)], dtype=object)).values.tolist()
        [datetime.date(1970, 1, 3)]
    """
    zones = [getattr(cell, "tzinfo", None) for cell in cells]
    aware = [zone is not None for zone in zones]
    if any(aware) and not all(aware):
        raise DataError("holds dates with and without a time zone. Convert all of them to UTC.")
    values = np.array([_scalar(cell) for cell in cells])
    if not any(aware):
        return Times(values)
    offsets = np.array([cell.utcoffset() // datetime.timedelta(seconds=1) for cell in cells], dtype=np.int64)
    return Times(
        values, common_zone({zone_name(zone) for zone in {id(zone): zone for zone in zones}.values()}), offsets
    )


def common_zone(names: set[str]) -> str:
    """Return the clock of dates with these zones: a zone, or UTC offsets.

    Args:
        names: The names of the zones, or offsets from UTC.

    Raises:
        DataError: If there are several zones.

    Examples:
        >>> from rfgp.columns.days import common_zone
        >>> common_zone({"+02:00", "+01:00"})
        '+01:00 +02:00'
    """
    if len(names) == 1:
        return names.pop()
    offsets = {"+00:00" if name == "UTC" else name for name in names}
    if any(name[0] not in "+-" for name in offsets):
        raise DataError(f"holds dates in several time zones ({', '.join(sorted(names))}). Convert them to one zone.")
    return " ".join(sorted(offsets))


def zone_name(zone: Any) -> str:
    """Return the name of a time zone, or its offset from UTC as in "+01:00".

    Args:
        zone: A `datetime.tzinfo`, or a name.

    Raises:
        DataError: If the zone has no name.

    Examples:
        >>> import datetime
        >>> from rfgp.columns.days import zone_name
        >>> zone_name(datetime.timezone(datetime.timedelta(hours=2))), zone_name(datetime.UTC)
        ('+02:00', 'UTC')
    """
    name = zone if isinstance(zone, str) else getattr(zone, "key", None) or getattr(zone, "zone", None)
    offset = zone.utcoffset(None) if name is None else None
    if name is None and offset is None:
        raise DataError(f"has a time zone without a name ({zone}). Convert it to a zone such as Europe/Berlin.")
    name = str(name).removeprefix("UTC") if offset is None else zone_of_offset(int(offset.total_seconds()))
    return "UTC" if name in _UTC else name


def _scalar(cell: Any) -> np.datetime64 | np.timedelta64:
    """Return a date without its zone, or a duration, as a scalar of numpy."""
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return cell
    if isinstance(cell, datetime.timedelta):
        return cell.to_timedelta64() if hasattr(cell, "to_timedelta64") else np.timedelta64(cell)
    cell = cell.replace(tzinfo=None) if isinstance(cell, datetime.datetime) else cell
    return cell.to_datetime64() if hasattr(cell, "to_datetime64") else np.datetime64(cell)


def zone_of_offset(seconds: int) -> str:
    """Return an offset from UTC as "+01:00", or "UTC" without one.

    Args:
        seconds: The offset.

    Examples:
        >>> from rfgp.columns.days import zone_of_offset
        >>> zone_of_offset(-12600), zone_of_offset(0)
        ('-03:30', 'UTC')
    """
    return _offset_name(seconds) if seconds else "UTC"


def _offset_name(seconds: int) -> str:
    """Return an offset from UTC as "+01:00"."""
    minutes, rest = divmod(abs(seconds), 60)
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" + f":{rest:02}" * bool(rest)


def offset_seconds(name: str) -> int:
    """Return an offset from UTC in seconds.

    Args:
        name: The offset, such as "+01:00", "-0330" or "Z".

    Examples:
        >>> from rfgp.columns.days import offset_seconds
        >>> offset_seconds("-03:30"), offset_seconds("Z")
        (-12600, 0)
    """
    digits = f"{name[1:].replace(':', ''):0<6}" if name[:1] in "+-" else "000000"
    return (-1 if name[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6]))


def _offsets(seconds: NDArray[np.int64], zone: str) -> NDArray[np.int64]:
    """Return the offsets (n,) of a zone from UTC in seconds, at seconds (n,) since 1970."""
    if zone == "UTC" or zone[0] in "+-":
        return np.full(len(seconds), 0 if zone == "UTC" else offset_seconds(zone), dtype=np.int64)
    try:
        info = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise DataError(f"has the unknown time zone {zone!r}. Convert it to UTC, or install tzdata.") from error
    limit = 86_400 * 365 * 1900  # dates of Python begin in the year 1 and end in 9999

    def at(moments: NDArray[np.int64]) -> NDArray[np.int64]:
        usable = np.clip(moments, -limit, 4 * limit).tolist()
        moved = ((_EPOCH + datetime.timedelta(seconds=second)).astimezone(info).utcoffset() for second in usable)
        return np.array([(offset or datetime.timedelta()).total_seconds() for offset in moved]).astype(np.int64)

    quarters, index = np.unique(seconds // _QUARTER, return_inverse=True)
    begin, end = at(quarters * _QUARTER), at((quarters + 1) * _QUARTER - 1)
    offsets, changed = begin[index], (begin != end)[index]
    offsets[changed] = at(seconds[changed])
    return offsets


def times_of(days: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Return days (n,) since 1970-01-01 as datetime64 times (n,).

    They are in microseconds, or in seconds beyond `_MAX_MICROSECOND_DAYS`.

    Args:
        days: Days (n,).

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import times_of
        >>> times_of(np.array([0.5])).tolist()
        [datetime.datetime(1970, 1, 1, 12, 0)]
    """
    unit, per_day = ("us", 86_400 * 10**6) if np.abs(days).max(initial=0) < _MAX_MICROSECOND_DAYS else ("s", 86_400)
    return np.round(days * per_day).astype(f"datetime64[{unit}]")


def dates_of(days: NDArray[np.float64], zone: str, times: NDArray[np.datetime64] | None = None) -> Any:
    """Return days (n,) on the clock of a zone as dates of pandas (n,), with the zone if it has a name.

    Args:
        days: Days since 1970-01-01.
        zone: The time zone, UTC offsets, or "".
        times: The dates to the nanosecond. If None, they are rounded to microseconds. NaT is replaced by the days.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.days import dates_of
        >>> dates_of(np.array([0.5]), "Europe/Berlin")[0].isoformat()
        '1970-01-01T12:00:00+01:00'
    """
    with requires_extra("tables"):
        import pandas as pd

    values = times_of(days)
    dates = pd.Series(values if times is None else np.where(np.isnat(times), values, times))
    if zone and " " not in zone:  # any hour of the two that are alike has the same clock
        first = np.zeros(len(dates), dtype=bool)
        dates = dates.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    return dates.array
