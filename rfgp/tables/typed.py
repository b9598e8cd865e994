"""Conversion of texts to numbers, dates or booleans, for files that are read in batches."""

from collections.abc import Callable
from typing import Any

from rfgp.errors import DataError
from rfgp.tables.columns import BOOLEAN, DATE, all_match, times_of_texts
from rfgp.tables.decimals import with_decimal_point
from rfgp.tables.options import TextFormat

Reader = Callable[[Any, TextFormat], Any]
"""A function from Arrow texts (b,) to cells of one type. It returns the texts if a cell has another type."""


def reader_of(cells: Any, text_format: TextFormat) -> Reader:
    """Return the reader of a column, given the texts (b,) of its first rows.

    Args:
        cells: Arrow texts (b,).
        text_format: The format of the texts.

    Examples:
        >>> import pyarrow as pa
        >>> reader_of(pa.array(["1", "2"]), TextFormat()).__name__
        'as_numbers'
    """
    readers = (as_numbers, as_dates, as_truth)
    return next((reader for reader in readers if reader(cells, text_format) is not cells), as_texts)


def as_texts(cells: Any, text_format: TextFormat) -> Any:
    """Return texts (b,) unchanged.

    Examples:
        >>> as_texts(["a"], TextFormat())
        ['a']
    """
    return cells


def as_numbers(cells: Any, text_format: TextFormat) -> Any:
    """Return texts (b,) as integers or floating numbers, or unchanged if a cell is neither.

    Args:
        cells: Arrow texts (b,).
        text_format: The format of the texts.

    Examples:
        >>> import pyarrow as pa
        >>> as_numbers(pa.array(["1", "2"]), TextFormat()).to_pylist()
        [1, 2]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = with_decimal_point(pc.utf8_trim_whitespace(cells), text_format)
    for kind in (pa.int64(), pa.float64()):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return cells


def as_dates(cells: Any, text_format: TextFormat) -> Any:
    """Return texts (b,) as dates, or unchanged if a cell is not a date.

    Args:
        cells: Arrow texts (b,).
        text_format: Not used.

    Examples:
        >>> import pyarrow as pa
        >>> as_dates(pa.array(["2024-02-29"]), TextFormat())[0].as_py().date().isoformat()
        '2024-02-29'
    """
    import pyarrow as pa

    if not all_match(cells, DATE):
        return cells
    times = times_of_texts(cells)
    if " " in times.zone:
        raise DataError(
            f"Dates of a file in batches must have one offset from UTC, got {times.zone}. Use rfgp.tables.read_table."
        )
    values = times.values if times.offsets is None else times.values - times.offsets.astype("m8[s]")
    dates = pa.array(values)
    if times.zone:
        dates = dates.cast(pa.timestamp(dates.type.unit, times.zone))
    return dates if dates.null_count == cells.null_count else cells  # some days do not exist


def as_truth(cells: Any, text_format: TextFormat) -> Any:
    """Return texts (b,) as booleans, or unchanged if a cell is not one.

    Args:
        cells: Arrow texts (b,).
        text_format: Not used.

    Examples:
        >>> import pyarrow as pa
        >>> as_truth(pa.array(["true", "false"]), TextFormat()).to_pylist()
        [True, False]
    """
    import pyarrow as pa

    return cells.cast(pa.bool_()) if all_match(cells, BOOLEAN) else cells
