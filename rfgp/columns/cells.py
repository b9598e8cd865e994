"""Cells of one column as plain arrays, from any container."""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from numbers import Complex, Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns.days import objects_to_days, to_days


class Content(StrEnum):
    """The content of a column's cells, by its name in messages.

    Examples:
        >>> from rfgp.columns.cells import Content
        >>> str(Content.TRUTH)
        'truth values'
    """

    TRUTH = "truth values"
    INTEGER = "integers"
    NUMBER = "numbers"
    COMPLEX = "complex numbers"
    DATE = "dates"
    DURATION = "durations"
    TEXT = "text"
    OBJECT = "objects"
    """Objects of other types, or of several types."""


REAL = (Content.TRUTH, Content.INTEGER, Content.NUMBER)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column.

    Attributes:
        content: The content of the cells that are not missing.
        values: Numbers, days of dates and durations, or objects, a tensor or array (n,). With codes, (k,) categories.
        missing: Whether each cell is missing, (n,). The value of a missing cell is arbitrary.
        codes: The indices (n,) of the cells among the k categories, -1 if missing. None without categories.
        is_ordered: Whether the user defined the order of the categories.
        first: The number of the first row, for messages.

    Examples:
        >>> from rfgp.columns.cells import of_objects
        >>> cells = of_objects(["north", None])
        >>> cells.content.value, cells.missing.tolist()
        ('text', [False, True])
    """

    content: Content
    values: Any
    missing: NDArray[np.bool_]
    codes: NDArray[np.int64] | None = None
    is_ordered: bool = False
    first: int = 0

    def expanded(self) -> "Cells":
        """Return the same cells (n,) without codes."""
        if self.codes is None:
            return self
        values = self.values[self.codes] if len(self.values) else np.zeros(len(self.codes))
        return Cells(self.content, values, self.missing, first=self.first)


def of_tensor(
    values: Tensor,  # (n,)
) -> Cells:
    """Return the cells of a tensor, which keeps its gradient and device.

    Examples:
        >>> import torch
        >>> from rfgp.columns.cells import of_tensor
        >>> of_tensor(torch.tensor([1.0, torch.nan])).missing.tolist()
        [False, True]
    """
    missing = values.detach().isnan().cpu().numpy()
    if values.is_complex():
        return Cells(Content.COMPLEX, values, missing)
    if values.is_floating_point():
        return Cells(Content.NUMBER, values, missing)
    return Cells(Content.TRUTH if values.dtype == torch.bool else Content.INTEGER, values, missing)


def of_array(
    values: NDArray[Any],  # (n,)
) -> Cells:
    """Return the cells of a numpy array of any dtype. Masked ones are missing.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.cells import of_array
        >>> of_array(np.array(["1970-01-03"], dtype="datetime64[D]")).values.tolist()
        [2.0]
    """
    if isinstance(values, np.ma.MaskedArray):
        cells = of_array(values.data)
        return Cells(cells.content, cells.values, cells.missing | np.ma.getmaskarray(values))
    kind = values.dtype.kind
    if kind in _BY_DTYPE:
        return Cells(_BY_DTYPE[kind], values, np.isnan(values))
    if kind in "Mm":
        days = to_days(values)
        return Cells(Content.DATE if kind == "M" else Content.DURATION, days, np.isnan(days))
    return of_objects(values.tolist() if kind == "U" else values.astype(object))


def of_objects(
    values: Iterable[Any],  # (n,)
) -> Cells:
    """Return the cells of Python objects. None, NaN, NaT and pandas.NA are missing.

    Examples:
        >>> from rfgp.columns.cells import of_objects
        >>> of_objects([1, 2.5]).values.tolist()
        [1.0, 2.5]
    """
    cells = objects(values)
    types = set(map(type, cells.tolist()))
    missing = _missing(cells, types)
    present = cells[~missing] if missing.any() else cells
    types = set(map(type, present.tolist()))
    content = _common({content_of(kind) for kind in types})
    found = present if types == {str} else _CONVERT[content](present)
    if len(found) < len(cells):
        found, some = np.zeros(len(cells), dtype=found.dtype), found
        found[~missing] = some
    return Cells(content, found, missing)


def objects(values: Iterable[Any]) -> NDArray[Any]:
    """Return an array of objects (n,) from an iterable, also if they are tuples.

    Examples:
        >>> from rfgp.columns.cells import objects
        >>> objects([(0, 1), (2, 3)]).shape
        (2,)
    """
    return values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=object)


def content_of(kind: type) -> Content | None:
    """Return the content of cells of one Python type, or None for missing cells.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.cells import content_of
        >>> content_of(np.float32).value, content_of(type(None))
        ('numbers', None)
    """
    if kind is type(None) or kind.__name__ == "NAType":
        return None
    return next((content for types, content in _BY_TYPE if issubclass(kind, types)), Content.OBJECT)


_BY_DTYPE = {"b": Content.TRUTH, "i": Content.INTEGER, "u": Content.INTEGER, "f": Content.NUMBER, "c": Content.COMPLEX}
_BY_TYPE: tuple[
    tuple[tuple[type, ...], Content], ...
] = (  # the first match applies, since a timedelta64 is also an Integral
    ((str,), Content.TEXT),
    ((bool, np.bool_), Content.TRUTH),
    ((datetime.date, np.datetime64), Content.DATE),
    ((datetime.timedelta, np.timedelta64), Content.DURATION),
    ((Integral,), Content.INTEGER),
    ((Real, Decimal), Content.NUMBER),
    ((Complex,), Content.COMPLEX),
)
_MAY_BE_NAN = (Content.NUMBER, Content.COMPLEX, Content.DATE, Content.DURATION)


def _missing(
    cells: NDArray[Any],  # (n,) objects
    types: set[type],
) -> NDArray[np.bool_]:
    """Return whether each of n objects of these types is missing."""
    contents = {kind: content_of(kind) for kind in types}
    gone = {kind for kind, content in contents.items() if content is None}
    odd = {kind for kind, content in contents.items() if content in _MAY_BE_NAN}
    if not gone and not odd:
        return np.zeros(len(cells), dtype=bool)
    found = (type(cell) in gone or (type(cell) in odd and bool(cell != cell)) for cell in cells.tolist())
    return np.fromiter(found, dtype=bool, count=len(cells))


def _common(contents: set[Content | None]) -> Content:
    """Return the common content of cells. Only integers and numbers can be mixed."""
    if contents == {Content.INTEGER, Content.NUMBER}:
        return Content.NUMBER
    (one,) = contents if len(contents) == 1 else (Content.OBJECT,)
    return one or Content.OBJECT


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

    Examples:
        >>> import torch
        >>> from rfgp.columns.cells import as_numpy
        >>> as_numpy(torch.tensor([1.5], dtype=torch.bfloat16)).dtype
        dtype('float64')
    """
    if not isinstance(values, Tensor):
        return np.asarray(values)
    found = values.detach().cpu()
    return np.asarray(found.double() if found.is_floating_point() else found)


def as_float(cell: Any) -> float:
    """Return a number as a float, or inf if it is too large.

    Examples:
        >>> from rfgp.columns.cells import as_float
        >>> as_float(7), as_float(10**400)
        (7.0, inf)
    """
    try:
        return float(cell)
    except OverflowError:
        return float("inf")


_CONVERT: dict[Content, Callable[[NDArray[Any]], NDArray[Any]]] = {
    Content.TRUTH: lambda cells: cells.astype(bool),
    Content.INTEGER: _integers,
    Content.NUMBER: _numbers,
    Content.COMPLEX: lambda cells: cells,
    Content.DATE: objects_to_days,
    Content.DURATION: objects_to_days,
    Content.TEXT: lambda cells: objects(map(str.__str__, cells)),
    Content.OBJECT: lambda cells: cells,
}
