"""From a column of text or of typed values to numbers, dates or text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

NUMBER = r"^[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?$"
_SPECIAL = r"^[+-]?(?i:inf|infinity|nan)$"
_NUMERIC = f"(?:{NUMBER})|(?:{_SPECIAL})"
_TRUTH = r"^(?:True|TRUE|true|False|FALSE|false)$"
DATE = (
    r"^(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.](?P<fraction>[0-9]{1,9}))?)?"
    r" ?(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
_SECOND = 10**9  # nanoseconds
_DAY = 86_400 * _SECOND
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Kind = Literal["number", "date", "text"]


@dataclass(frozen=True, eq=False)
class Column:
    """A column of n cells.

    Attributes:
        kind: What the cells are; a column without any value counts as numbers.
        values: (n,) numbers, or days since 1970-01-01; NaN where missing. In text columns the
            number that a cell happens to be, else NaN.
        cells: (n,) Arrow texts, null where missing; None where the file held typed values.
    """

    kind: Kind
    values: NDArray[np.float64]
    cells: Any = None

    @property
    def missing(self) -> NDArray[np.bool_]:
        """The mask (n,) of missing cells."""
        if self.cells is not None and self.kind != "number":
            return np.asarray(self.cells.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        return np.isnan(self.values)

    def texts(self) -> Any:
        """Return the cells (n,) as Arrow texts, null where missing."""
        import pyarrow as pa

        if self.cells is not None:
            return self.cells
        return pa.array([None if np.isnan(v) else f"{v:.15g}" for v in self.values], pa.string())

    def take(self, rows: NDArray[np.int64]) -> "Column":
        """Return the cells at positions `rows` (m,)."""
        return Column(self.kind, self.values[rows], None if self.cells is None else self.cells.take(rows))


def to_column(values: Any, marks: Sequence[str], decimal: str) -> Column:
    """Return an Arrow array (n,) as a column; the caller has checked that its type is known."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _from_text(array, marks, decimal)
    if pa.types.is_temporal(kind):
        return Column("date", _typed_days(array))
    if pa.types.is_float16(kind):
        return Column("number", np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64))
    return Column("number", _floats(pc.cast(array, pa.float64(), safe=False)))


def is_known(kind: Any) -> bool:
    """Say whether a column of this Arrow type can be read."""
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    tests = (t.is_string, t.is_large_string, t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_null)
    return any(test(kind) for test in (*tests, t.is_date, t.is_timestamp))


def _floats(array: Any) -> NDArray[np.float64]:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def _from_text(cells: Any, marks: Sequence[str], decimal: str) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells)
    gone = pc.is_in(cells, value_set=pa.array(list(marks), cells.type))
    cells = pc.if_else(gone, pa.scalar(None, cells.type), cells)
    numeric, values = _read_numbers(cells, decimal)
    known = pc.is_valid(cells)
    if pc.all(pc.or_(numeric, pc.invert(known))).as_py() is not False:
        return Column("number", values, cells)
    if _all_match(cells, _TRUTH):
        truth = pc.equal(pc.ascii_lower(cells), "true")
        return Column("number", _floats(pc.cast(truth, pa.float64())), cells)
    if _all_match(cells, DATE):
        return Column("date", _text_days(cells), cells)
    return Column("text", values, cells)


def _all_match(cells: Any, pattern: str) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


def _read_numbers(cells: Any, decimal: str) -> tuple[Any, NDArray[np.float64]]:
    """Return the mask (n,) of cells that are numbers, and these numbers (n,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numeric = pa.scalar(True)
    if decimal == ",":
        numeric = pc.invert(pc.match_substring(cells, "."))
        cells = pc.replace_substring(cells, ",", ".")
    numeric = pc.fill_null(pc.and_(pc.match_substring_regex(cells, _NUMERIC), numeric), False)
    numbers = pc.if_else(numeric, cells, pa.scalar(None, cells.type))
    numbers = pc.replace_substring_regex(numbers, r"^[+]", "")
    return numeric, _floats(pc.cast(numbers, pa.float64()))


def _typed_days(array: Any) -> NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    per_day = 86_400 * _UNITS[array.type.unit] if pa.types.is_timestamp(array.type) else 1
    if pa.types.is_date(array.type):
        array = array.cast(pa.date32()).cast(pa.int32())
    units = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    days = units // per_day + (units % per_day) / per_day
    return np.where(array.is_null().to_numpy(zero_copy_only=False), np.nan, days)


def _text_days(cells: Any) -> NDArray[np.float64]:
    """Return days (n,) since 1970-01-01T00:00 UTC; NaN for dates and times that do not exist."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.extract_regex(cells, DATE)

    def whole(texts: Any) -> NDArray[np.int64]:
        texts = pc.fill_null(texts, "")
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar("0", texts.type), texts)
        return np.asarray(pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)

    year, month, day, hour, minute, second = (
        whole(pc.struct_field(parts, name)) for name in ("year", "month", "day", "hour", "minute", "second")
    )
    fraction = whole(pc.utf8_rpad(pc.struct_field(parts, "fraction"), 9, "0"))
    first, length = _months(year, month)
    possible = (month >= 1) & (month <= 12) & (day >= 1) & (day <= length) & (hour < 24) & (minute < 60) & (second < 60)
    offset, known = _offsets(pc.struct_field(parts, "zone"), whole)
    nanoseconds = (hour * 3600 + minute * 60 + second - offset) * _SECOND + fraction
    days = first + day - 1 + nanoseconds // _DAY + (nanoseconds % _DAY) / _DAY
    return np.where(possible & known & cells.is_valid().to_numpy(zero_copy_only=False), days, np.nan)


def _months(year: NDArray[np.int64], month: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each month's first day since 1970 (n,) and its length (n,)."""
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    return first, (months + 1).astype("datetime64[D]").astype(np.int64) - first


def _offsets(zones: Any, whole: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the zones' offsets (n,) in seconds, and the mask (n,) of those that exist."""
    import pyarrow.compute as pc

    zones = pc.fill_null(pc.replace_substring_regex(zones, "[Zz:]", ""), "")
    sign = np.where(pc.starts_with(zones, "-").to_numpy(zero_copy_only=False), -1, 1)
    hours = whole(pc.utf8_slice_codeunits(zones, 1, 3))
    minutes = whole(pc.utf8_slice_codeunits(zones, 3, 5))
    return sign * (hours * 3600 + minutes * 60), (hours < 24) & (minutes < 60)
