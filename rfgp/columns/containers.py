"""Columns of pandas, polars and Arrow, and lists, as cells."""

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from rfgp.columns.cells import Cells, of_array, of_objects, of_tensor, of_times
from rfgp.columns.days import in_known_unit, on_clock, zone_name
from rfgp.errors import requires_extra


def read_cells(
    column: Any,  # (n,)
) -> Cells:
    """Return the cells (n,) of a column in any container.

    Args:
        column: A series, array, tensor, list or other sequence (n,).

    Raises:
        DataError: If the dates or durations of the column cannot be converted to days.

    Examples:
        >>> from rfgp.columns.containers import read_cells
        >>> read_cells([True, False]).cell_type.value
        'booleans'
    """
    if isinstance(column, Tensor):
        return of_tensor(column)
    if isinstance(column, np.ndarray):
        return of_array(column)
    if isinstance(column, list | tuple | range):
        return of_objects(column)
    package = type(column).__module__.split(".")[0]
    if package == "pandas":
        return _of_pandas(column)
    if package in ("polars", "pyarrow"):
        return _of_arrow(column.to_arrow() if package == "polars" else column)
    return of_array(np.asarray(column))


def _of_pandas(column: Any) -> Cells:
    """Return the cells (n,) of a series, index or extension array of pandas."""
    cells, kind = getattr(column, "array", column), column.dtype
    if hasattr(cells, "categories"):
        categories = read_cells(cells.categories)
        codes = np.asarray(cells.codes, dtype=np.int64)
        return replace(categories, missing=codes < 0, codes=codes, is_ordered=True, is_category=True)
    if getattr(kind, "tz", None) is not None:  # pandas stores such dates in UTC
        return _on_clock(np.asarray(cells, dtype=f"datetime64[{kind.unit}]"), kind.tz)
    if not isinstance(kind, np.dtype) and hasattr(cells, "__arrow_array__"):
        return _of_arrow(cells.__arrow_array__())
    return of_array(np.asarray(column))


def _of_arrow(column: Any) -> Cells:
    """Return the cells (n,) of an array or chunked array of Arrow."""
    with requires_extra("tables"):
        import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ExtensionArray):  # periods and intervals of pandas
        return of_objects(np.asarray(array.to_pandas(), dtype=object))
    if isinstance(array, pa.DictionaryArray):
        return replace(_of_dictionary(array), is_category=True)
    if "string" in str(array.type):
        return _of_dictionary(array.dictionary_encode())
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    numbers = array.to_numpy(zero_copy_only=False)
    present = of_array(numbers)
    if getattr(array.type, "tz", None) is not None:
        present = _on_clock(numbers, array.type.tz)
    return replace(present, missing=present.missing | np.asarray(array.is_null()))


def _on_clock(times: Any, zone: Any) -> Cells:
    """Return the cells (n,) of times in UTC, on the clock of a zone."""
    return of_times(on_clock(in_known_unit(times), zone_name(zone)))


def _of_dictionary(array: Any) -> Cells:
    """Return the cells (n,) of an Arrow dictionary array, perhaps with nulls."""
    words = array.dictionary
    categories = of_objects(words.to_pylist()) if "string" in str(words.type) else _of_arrow(words).expanded()
    codes = np.asarray(array.indices.fill_null(0), dtype=np.int64)
    missing = np.asarray(array.is_null())
    if len(words):
        missing = missing | categories.missing[codes]
    return replace(categories, missing=missing, codes=np.where(missing, -1, codes), is_ordered=bool(array.type.ordered))
