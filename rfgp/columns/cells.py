"""Cells of one column as plain arrays, from any container."""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from numbers import Complex, Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns.days import Times, in_known_unit, of_objects_in_time


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


@dataclass(frozen=True, eq=False)
class Cells:
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
        >>> from rfgp.columns.cells import of_objects
        >>> cells = of_objects(["north", None])
        >>> cells.cell_type.value, cells.missing.tolist()
        ('text', [False, True])
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

    def expanded(self) -> "Cells":
        """Return the same cells (n,) without codes."""
        if self.codes is None:
            return self
        values = self.values[self.codes] if len(self.values) else np.zeros(len(self.codes))
        offsets = None if self.offsets is None else self.offsets[self.codes]
        return Cells(self.cell_type, values, self.missing, first=self.first, zone=self.zone, offsets=offsets)

    @property
    def times(self) -> Times:
        """Dates or durations (n,)."""
        return Times(self.values, self.zone, self.offsets)


def of_tensor(
    values: Tensor,  # (n,)
) -> Cells:
    """Return the cells of a tensor, with its gradient and device.

    Args:
        values: Numbers (n,). NaN is missing.

    Examples:
        >>> import torch
        >>> from rfgp.columns.cells import of_tensor
        >>> of_tensor(torch.tensor([1.0, torch.nan])).missing.tolist()
        [False, True]
    """
    missing = values.detach().isnan().cpu().numpy()
    if values.is_complex():
        return Cells(CellType.COMPLEX, values, missing)
    if values.is_floating_point():
        return Cells(CellType.NUMBER, values, missing)
    return Cells(CellType.BOOLEAN if values.dtype == torch.bool else CellType.INTEGER, values, missing)


def of_array(
    values: NDArray[Any],  # (n,)
) -> Cells:
    """Return the cells of a numpy array of any dtype. Masked ones are missing.

    Args:
        values: Values (n,).

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.cells import of_array
        >>> of_array(np.array(["1970-01-03"], dtype="datetime64[D]")).cell_type.value
        'dates'
    """
    if isinstance(values, np.ma.MaskedArray):
        cells = of_array(values.data)
        return Cells(cells.cell_type, cells.values, cells.missing | np.ma.getmaskarray(values))
    kind = values.dtype.kind
    if kind in _BY_DTYPE:
        return Cells(_BY_DTYPE[kind], values, np.isnan(values))
    if kind in "Mm":
        return of_times(Times(in_known_unit(values)))
    return of_objects(values.tolist() if kind == "U" else values.astype(object))


def of_objects(
    column: Iterable[Any],  # (n,)
) -> Cells:
    """Return the cells of Python objects. None, NaN, NaT and pandas.NA are missing.

    Args:
        column: Objects (n,).

    Examples:
        >>> from rfgp.columns.cells import of_objects
        >>> of_objects([1, 2.5]).values.tolist()
        [1.0, 2.5]
    """
    cells = objects(column)
    types = set(map(type, cells.tolist()))
    missing = _missing(cells, types)
    present = cells[~missing] if missing.any() else cells
    types = set(map(type, present.tolist()))
    cell_type = _common({cell_type_of(python_type) for python_type in types})
    if cell_type in (CellType.DATE, CellType.DURATION):
        times = of_objects_in_time(present)
        offsets = None if times.offsets is None else _spread(times.offsets, ~missing)
        return replace(of_times(Times(_spread(times.values, ~missing), times.zone, offsets)), missing=missing)
    values = present if types == {str} else _CONVERT[cell_type](present)
    return Cells(cell_type, _spread(values, ~missing), missing)


def of_times(times: Times) -> Cells:
    """Return the cells of dates or durations. NaT is missing.

    Args:
        times: The dates on their clock, or the durations, (n,).

    Examples:
        >>> from rfgp.columns.cells import of_times
        >>> from rfgp.columns.days import Times
        >>> of_times(Times(np.array(["NaT"], "M8[s]"))).missing.tolist()
        [True]
    """
    cell_type = CellType.DATE if times.values.dtype.kind == "M" else CellType.DURATION
    return Cells(cell_type, times.values, np.isnat(times.values), zone=times.zone, offsets=times.offsets)


def _spread(values: Any, present: NDArray[np.bool_]) -> Any:
    """Return values of the n cells that are present, with zeros elsewhere, (n,)."""
    if len(values) == len(present):
        return values
    spread = np.zeros(len(present), dtype=values.dtype)
    spread[present] = values
    return spread


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


_BY_DTYPE = {
    "b": CellType.BOOLEAN,
    "i": CellType.INTEGER,
    "u": CellType.INTEGER,
    "f": CellType.NUMBER,
    "c": CellType.COMPLEX,
}
_BY_TYPE: tuple[
    tuple[tuple[type, ...], CellType], ...
] = (  # the first match applies, since a timedelta64 is also an Integral
    ((str,), CellType.TEXT),
    ((bool, np.bool_), CellType.BOOLEAN),
    ((datetime.date, np.datetime64), CellType.DATE),
    ((datetime.timedelta, np.timedelta64), CellType.DURATION),
    ((Integral,), CellType.INTEGER),
    ((Real, Decimal), CellType.NUMBER),
    ((Complex,), CellType.COMPLEX),
)
_MAY_BE_NAN = (CellType.NUMBER, CellType.COMPLEX, CellType.DATE, CellType.DURATION)


def _missing(
    cells: NDArray[Any],  # (n,) objects
    types: set[type],
) -> NDArray[np.bool_]:
    """Return whether each of n objects of these types is missing."""
    missing = {python_type for python_type in types if cell_type_of(python_type) is None}
    may_be_nan = {python_type for python_type in types if cell_type_of(python_type) in _MAY_BE_NAN}
    if not missing and not may_be_nan:
        return np.zeros(len(cells), dtype=bool)
    flags = (type(cell) in missing or (type(cell) in may_be_nan and bool(cell != cell)) for cell in cells.tolist())
    return np.fromiter(flags, dtype=bool, count=len(cells))


def _common(cell_types: set[CellType | None]) -> CellType:
    """Return the common type of cells. Only integers and numbers can be mixed."""
    if cell_types == {CellType.INTEGER, CellType.NUMBER}:
        return CellType.NUMBER
    return (cell_types.pop() if len(cell_types) == 1 else None) or CellType.OBJECT


def _integers(cells: NDArray[Any]) -> NDArray[Any]:
    """Return integers (n,) as int64, or as objects if they do not fit."""
    try:
        return np.array(cells.tolist(), dtype=np.int64)
    except OverflowError:
        return objects(map(int, cells))


def _numbers(cells: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers (n,) as float64, inf if they do not fit."""
    try:
        return np.array(cells.tolist(), dtype=np.float64)
    except OverflowError:
        return np.array([as_float(cell) for cell in cells])


def as_numpy(
    values: Any,  # (n,)
) -> NDArray[Any]:
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


def as_float(cell: Any) -> float:
    """Return a number as a float, or inf if it is too large.

    Args:
        cell: The number.

    Examples:
        >>> from rfgp.columns.cells import as_float
        >>> as_float(7), as_float(10**400)
        (7.0, inf)
    """
    try:
        return float(cell)
    except OverflowError:
        return float("inf")


_CONVERT: dict[CellType, Callable[[NDArray[Any]], NDArray[Any]]] = {
    CellType.BOOLEAN: lambda cells: cells.astype(bool),
    CellType.INTEGER: _integers,
    CellType.NUMBER: _numbers,
    CellType.COMPLEX: lambda cells: cells,
    CellType.TEXT: lambda cells: objects(map(str.__str__, cells)),
    CellType.OBJECT: lambda cells: cells,
}
