"""One column of cells from any container: their type, values and levels."""

import datetime
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from numbers import Complex, Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns.days import Times, in_known_unit, of_objects_in_time, on_clock, to_days, zone_name
from rfgp.errors import requires_extra
from rfgp.number_texts import is_date

Level = str | int | bool
"""A level of a category."""


class CellType(StrEnum):
    """The type of the cells of a column, by its name in messages.

    Examples:
        >>> from rfgp.columns.cells import CellType
        >>> str(CellType.BOOLEAN)
        'booleans'
    """

    BOOLEAN = "booleans"
    INTEGER = "integers"
    NUMBER = "numbers"
    COMPLEX = "complex numbers"
    DATE = "dates"
    DURATION = "durations"
    TEXT = "text"
    OBJECT = "objects"
    """Objects of other types, or of several types."""


REAL = (CellType.BOOLEAN, CellType.INTEGER, CellType.NUMBER)
IN_TIME = (CellType.DATE, CellType.DURATION)
_BY_DTYPE = {
    "b": CellType.BOOLEAN,
    "i": CellType.INTEGER,
    "u": CellType.INTEGER,
    "f": CellType.NUMBER,
    "c": CellType.COMPLEX,
}
_BY_TYPE: tuple[tuple[Any, CellType], ...] = (  # the first match applies, since a timedelta64 is also an Integral
    (str, CellType.TEXT),
    ((bool, np.bool_), CellType.BOOLEAN),
    ((datetime.date, np.datetime64), CellType.DATE),
    ((datetime.timedelta, np.timedelta64), CellType.DURATION),
    (Integral, CellType.INTEGER),
    ((Real, Decimal), CellType.NUMBER),
    (Complex, CellType.COMPLEX),
)


@dataclass(frozen=True, eq=False)
class Column:
    """The cells of one column.

    Attributes:
        cell_type: The type of the cells that are not missing.
        values: Numbers, times or objects, a tensor or array (n,). With codes, (k,) categories. Dates are on the clock
            of their zone, as datetime64, and durations are timedelta64.
        missing: Whether each cell is missing, (n,). The value of a missing cell is arbitrary.
        codes: The indices (n,) of the cells among the k categories, -1 if missing. None without categories.
        is_ordered: Whether the user defined the order of the categories.
        first: The number of the first row, for messages.
        is_category: Whether the type of the user's column is a category. Text with codes is not.
        zone: The time zone or the UTC offsets of dates, as in `days.Times`, or "".
        offsets: The offsets of dates from UTC in seconds, as `values`. None without a zone.

    Examples:
        >>> from rfgp.columns.cells import Column
        >>> column = Column.of(["south", None, "north"])
        >>> column.cell_type.value, column.missing.tolist(), column.levels
        ('text', [False, True, False], ('north', 'south'))
    """

    cell_type: CellType
    values: Any
    missing: NDArray[np.bool_]
    codes: NDArray[np.int64] | None = None
    is_ordered: bool = False
    first: int = 0
    is_category: bool = False
    zone: str = ""
    offsets: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, column: Any) -> "Column":
        """Return the column of a container.

        None, NaN, NaT, pandas.NA and masked cells are missing. A tensor keeps its gradient and device.

        Args:
            column: A series, array, tensor, list or other sequence (n,), or a column, which is returned.

        Raises:
            DataError: If the dates or durations of the column cannot be converted to days.

        Examples:
            >>> import torch
            >>> from rfgp.columns.cells import Column
            >>> Column.of([True, False]).cell_type.value
            'booleans'
            >>> Column.of(torch.tensor([1.0, torch.nan])).missing.tolist()
            [False, True]
        """
        if isinstance(column, Column):
            return column
        if isinstance(column, Tensor):
            kind = CellType.BOOLEAN if column.dtype == torch.bool else CellType.INTEGER
            kind = CellType.COMPLEX if column.is_complex() else kind
            kind = CellType.NUMBER if column.is_floating_point() else kind
            return cls(kind, column, column.detach().isnan().cpu().numpy())
        package = type(column).__module__.split(".")[0]
        if package in ("pandas", "polars", "pyarrow"):
            return _of_series(column, package)
        if isinstance(column, list | tuple | range):
            return _of_objects(column)
        return _of_array(column if isinstance(column, np.ndarray) else np.asarray(column))

    def expanded(self) -> "Column":
        """Return the same cells (n,) without codes."""
        if self.codes is None:
            return self
        values = self.values[self.codes] if len(self.values) else np.zeros(len(self.codes))
        offsets = None if self.offsets is None else self.offsets[self.codes]
        return Column(self.cell_type, values, self.missing, first=self.first, zone=self.zone, offsets=offsets)

    @property
    def times(self) -> Times:
        """Dates or durations (n,)."""
        return Times(self.values, self.zone, self.offsets)

    @property
    def has_levels(self) -> bool:
        """Whether the cells are texts or categories."""
        return self.cell_type is CellType.TEXT or (self.codes is not None and self.cell_type is not CellType.NUMBER)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The distinct values, sorted or in the order of the user."""
        if self.codes is None or not self.is_ordered:
            return tuple(sorted(self.factorized()[1]))
        used = np.unique(self.codes[~self.missing])
        return tuple(dict.fromkeys(_as_levels(self.cell_type, self.values[used])))

    def factorized(self) -> tuple[NDArray[np.int64], list[Level]]:
        """Return the index (n,) of each cell among the distinct values, -1 if missing, and these values.

        Distinct values are plain Python objects in order of first appearance.

        Examples:
            >>> from rfgp.columns.cells import Column
            >>> indices, labels = Column.of(["south", None, "north", "south"]).factorized()
            >>> indices.tolist(), labels
            ([0, -1, 1, 0], ['south', 'north'])
        """
        if self.codes is None:
            present = ~self.missing if self.missing.any() else slice(None)
            found, labels = factorize(_as_levels(self.cell_type, as_numpy(self.values)[present]))
            return _spread(found, ~self.missing, missing=-1), labels
        first_rows = np.full(len(self.values) + 1, len(self))  # the last entry is that of the code -1
        first_rows[self.codes[::-1]] = np.arange(len(self))[::-1]
        used = np.argsort(first_rows[:-1], kind="stable")[: np.count_nonzero(first_rows[:-1] < len(self))]
        merged, labels = factorize(_as_levels(self.cell_type, self.values[used]))
        index_of = np.full(len(self.values) + 1, -1)
        index_of[used] = merged
        return index_of[self.codes], labels

    def numbers(self) -> NDArray[np.float64]:
        """Return cells (n,) as numbers: dates as days since 1970-01-01, NaN if missing.

        Examples:
            >>> from rfgp.columns.cells import Column
            >>> Column.of([True, None]).numbers().tolist()
            [1.0, nan]
        """
        cells = self.expanded()
        values = to_days(cells.values) if self.cell_type is CellType.DATE else as_numpy(cells.values)
        values = as_floats(values) if values.dtype == object else values.astype(np.float64, copy=False)
        return np.where(self.missing, np.nan, values) if self.missing.any() else values

    def coded(self, levels: Iterable[Level]) -> tuple[NDArray[np.int64], list[Level]]:
        """Return the code (n,) of each cell, and the labels that are no levels, in order of first appearance.

        Args:
            levels: The levels, with the codes 0, 1 and so on. Other labels have the codes after theirs, and missing
                cells -1.

        Examples:
            >>> from rfgp.columns.cells import Column
            >>> codes, new = Column.of(["south", None, "west", "north"]).coded(["north", "south"])
            >>> codes.tolist(), new
            ([1, -1, 2, 0], ['west'])
        """
        indices, labels = self.factorized()
        code_of = {level: code for code, level in enumerate(levels)}
        new = [label for label in labels if label not in code_of]
        code_of |= {label: code for code, label in enumerate(new, len(code_of))}
        return np.array([*map(code_of.__getitem__, labels), -1])[indices], new  # the index of a missing cell is -1

    def filled(self, label: Level) -> "Column":
        """Return cells with codes, in which missing cells have their own level.

        Args:
            label: The level.
        """
        assert self.codes is not None
        codes = np.where(self.missing, len(self.values), self.codes)
        values = objects([*self.values.tolist(), label])
        return replace(self, values=values, codes=codes, missing=np.zeros_like(self.missing))

    def with_dates(self) -> "Column":
        """Return texts as dates if all of them are ISO dates, with or without times, and other cells unchanged.

        Examples:
            >>> from rfgp.columns.cells import Column
            >>> Column.of(["2026-01-31 12:00", None]).with_dates().cell_type.value
            'dates'
        """
        if self.cell_type is not CellType.TEXT or self.is_category or self.missing.all():
            return self
        cells = self.expanded()
        if not is_date(cells.values[~cells.missing][0]):
            return self
        read = datetime.datetime.fromisoformat
        try:
            dates = Column.of(
                [None if gone else read(text.strip()) for text, gone in zip(cells.values, cells.missing, strict=True)]
            )
        except ValueError:  # no such date, or dates with and without a zone
            return self
        return replace(dates, first=self.first)

    def take(self, rows: NDArray[np.int64]) -> "Column":
        """Return the cells at positions `rows` (m,)."""
        missing = self.missing[rows]
        if self.codes is not None:
            return replace(self, missing=missing, codes=self.codes[rows])
        offsets = None if self.offsets is None else self.offsets[rows]
        return replace(self, values=self.values[rows], missing=missing, offsets=offsets)

    def __len__(self) -> int:
        return len(self.missing)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(as_numpy(self.expanded().values), dtype=dtype)


def factorize(values: Iterable[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the index (n,) of each value, and the distinct values in order of first appearance.

    Args:
        values: Hashable values (n,).

    Examples:
        >>> from rfgp.columns.cells import factorize
        >>> factorize("aba")[1]
        ['a', 'b']
    """
    listed = list(values)
    index_of = {value: index for index, value in enumerate(dict.fromkeys(listed))}
    return np.fromiter(map(index_of.__getitem__, listed), dtype=np.int64, count=len(listed)), list(index_of)


def _as_levels(cell_type: CellType, values: NDArray[Any]) -> list[Level]:
    """Return the values (n,) of levels as plain Python objects, floats as integers."""
    if cell_type in IN_TIME:
        return list(map(str, values))
    return list(map(int, values.tolist())) if cell_type is CellType.NUMBER else list(values.tolist())


# --- Containers ------------------------------------------------------------------------------------------------------


def _of_array(values: NDArray[Any]) -> Column:
    """Return the column of a numpy array (n,) of any dtype."""
    if isinstance(values, np.ma.MaskedArray):
        column = _of_array(values.data)
        return replace(column, missing=column.missing | np.ma.getmaskarray(values))
    kind = values.dtype.kind
    if kind in _BY_DTYPE:
        return Column(_BY_DTYPE[kind], values, np.isnan(values))
    if kind in "Mm":
        return _of_times(Times(in_known_unit(values)))
    return _of_objects(values.tolist() if kind == "U" else values.astype(object))


def _of_times(times: Times) -> Column:
    """Return the column of dates or durations (n,)."""
    kind = CellType.DATE if times.values.dtype.kind == "M" else CellType.DURATION
    return Column(kind, times.values, np.isnat(times.values), zone=times.zone, offsets=times.offsets)


def _of_objects(cells: Iterable[Any]) -> Column:
    """Return the column of Python objects (n,)."""
    cells = objects(cells)
    missing = _missing(cells)
    present = cells[~missing] if missing.any() else cells
    types = set(map(type, present.tolist()))
    cell_type = _common({cell_type_of(python_type) for python_type in types})
    if cell_type in IN_TIME:
        times = of_objects_in_time(present)
        offsets = None if times.offsets is None else _spread(times.offsets, ~missing)
        column = _of_times(Times(_spread(times.values, ~missing), times.zone, offsets))
        return replace(column, missing=missing)
    return Column(cell_type, _spread(_values(cell_type, present, types), ~missing), missing)


def _of_series(column: Any, package: str) -> Column:
    """Return the column of a series of pandas, polars or Arrow, or of an index of pandas."""
    import narwhals as nw

    if package == "pandas":
        column = sys.modules["pandas"].Series(column)
    elif package == "pyarrow" and not hasattr(column, "chunks"):
        column = sys.modules["pyarrow"].chunked_array([column])
    if package == "pandas" and hasattr(column.array, "categories"):
        return _of_categories(column.array.categories, np.asarray(column.array.codes, dtype=np.int64), is_ordered=True)
    if package == "pandas" and column.dtype == object:
        return _of_objects(column.to_numpy())
    series = nw.from_native(column, series_only=True)
    kind = series.dtype
    if isinstance(kind, nw.Categorical | nw.Enum | nw.String):
        return _of_words(series, is_category=not isinstance(kind, nw.String))
    zone = getattr(kind, "time_zone", None)
    values = series.to_numpy()
    if zone is not None:  # narwhals returns such dates in UTC
        return _of_times(on_clock(in_known_unit(values), zone_name(zone)))
    found = _of_array(values)
    return replace(found, missing=found.missing | series.is_null().to_numpy())


def _of_words(series: Any, is_category: bool) -> Column:
    """Return the column of texts or categories of a series of narwhals."""
    with requires_extra("tables"):
        import pyarrow as pa

    array = series.to_arrow()
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = np.asarray(array.indices.cast(pa.int64()).fill_null(-1))
    is_text = not pa.types.is_nested(array.dictionary.type) and "string" in str(array.dictionary.type)
    words = array.dictionary.to_pylist() if is_text else array.dictionary
    return replace(_of_categories(words, codes, is_ordered=bool(array.type.ordered)), is_category=is_category)


def _of_categories(categories: Any, codes: NDArray[Any], is_ordered: bool) -> Column:
    """Return the column of codes (n,) of categories (k,), -1 if missing. A category may be missing, too."""
    found = Column.of(categories).expanded()
    missing = (codes < 0) | found.missing[codes] if len(found.missing) else codes < 0
    codes = np.where(missing, -1, codes)
    return replace(found, missing=missing, codes=codes, is_ordered=is_ordered, is_category=True)


# --- Objects ---------------------------------------------------------------------------------------------------------


def objects(values: Iterable[Any]) -> NDArray[Any]:
    """Return an array of objects (n,) from an iterable, also if they are tuples.

    Args:
        values: Objects (n,).

    Examples:
        >>> from rfgp.columns.cells import objects
        >>> objects([(0, 1), (2, 3)]).shape
        (2,)
    """
    return values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=object)


def cell_type_of(python_type: type) -> CellType | None:
    """Return the type of cells of a Python type, or None for missing cells.

    Args:
        python_type: The type of a cell.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.cells import cell_type_of
        >>> cell_type_of(np.float32).value, cell_type_of(type(None))
        ('numbers', None)
    """
    if python_type is type(None) or python_type.__name__ == "NAType":
        return None
    return next((cell_type for types, cell_type in _BY_TYPE if issubclass(python_type, types)), CellType.OBJECT)


def _missing(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each of n objects is missing."""
    types = {python_type: cell_type_of(python_type) for python_type in set(map(type, cells.tolist()))}
    missing = {python_type for python_type, kind in types.items() if kind is None}
    numbers = (CellType.NUMBER, CellType.COMPLEX, *IN_TIME)
    may_be_nan = {python_type for python_type, kind in types.items() if kind in numbers}
    if not missing and not may_be_nan:
        return np.zeros(len(cells), dtype=bool)
    flags = (type(cell) in missing or (type(cell) in may_be_nan and bool(cell != cell)) for cell in cells.tolist())
    return np.fromiter(flags, dtype=bool, count=len(cells))


def _common(cell_types: set[CellType | None]) -> CellType:
    """Return the common type of cells. Only integers and numbers can be mixed."""
    if cell_types == {CellType.INTEGER, CellType.NUMBER}:
        return CellType.NUMBER
    return (cell_types.pop() if len(cell_types) == 1 else None) or CellType.OBJECT


def _values(cell_type: CellType, cells: NDArray[Any], types: set[type]) -> NDArray[Any]:
    """Return objects (n,) of a type as an array of it. Integers that do not fit stay objects."""
    if cell_type is CellType.BOOLEAN:
        return cells.astype(bool)
    if cell_type is CellType.TEXT and types != {str}:
        return objects(map(str.__str__, cells))
    if cell_type is CellType.NUMBER:
        return as_floats(cells)
    if cell_type is not CellType.INTEGER:
        return cells
    try:
        return np.array(cells.tolist(), dtype=np.int64)
    except OverflowError:
        return objects(map(int, cells))


def _spread(values: Any, present: NDArray[np.bool_], missing: Any = 0) -> Any:
    """Return values of the n cells that are present, with another value elsewhere, (n,)."""
    if len(values) == len(present):
        return values
    spread = np.full(len(present), missing, dtype=values.dtype)
    spread[present] = values
    return spread


def as_numpy(values: Any) -> NDArray[Any]:
    """Return a tensor or array (n,) as an array, without gradient.

    Args:
        values: Values (n,).

    Examples:
        >>> import torch
        >>> from rfgp.columns.cells import as_numpy
        >>> as_numpy(torch.tensor([1.5], dtype=torch.bfloat16)).dtype
        dtype('float64')
    """
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray(values.double() if values.is_floating_point() else values)


def as_floats(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Return objects (n,) that are numbers as float64, inf if they are too large.

    Args:
        numbers: The numbers.

    Examples:
        >>> from rfgp.columns.cells import as_floats, objects
        >>> as_floats(objects([7, 10**400])).tolist()
        [7.0, inf]
    """

    def as_float(number: Any) -> float:
        try:
            return float(number)
        except OverflowError:
            return float("inf")

    try:
        return np.array(numbers.tolist(), dtype=np.float64)
    except OverflowError:
        return np.array(list(map(as_float, numbers.tolist())))
