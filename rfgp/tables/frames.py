"""Dataframes of pandas, polars and Arrow, as the columns of a file."""

from typing import Any

from rfgp.errors import DataError, requires_extra
from rfgp.tables.columns import Frame, is_readable
from rfgp.tables.options import TextFormat

_NAME = "The dataframe"
"""The title of dataframes in messages."""


def is_frame(table: Any) -> bool:
    """Return whether a table is a dataframe and not a path.

    Args:
        table: The dataframe or path.

    Examples:
        >>> import pandas as pd
        >>> is_frame(pd.DataFrame()), is_frame("table.csv")
        (True, False)
    """
    return hasattr(table, "columns") and (hasattr(table, "__array__") or hasattr(table, "to_arrow"))


def read_frame(table: Any, text_format: TextFormat) -> Frame:
    """Return the columns of a dataframe (n, d), without an index of pandas.

    Args:
        table: A dataframe of pandas, polars or Arrow.
        text_format: The format of text cells.

    Raises:
        DataError: If the dataframe has no rows or columns.

    Examples:
        >>> import pandas as pd
        >>> read_frame(pd.DataFrame({"size": [1, 2]}), TextFormat()).names
        ('size',)
    """
    names = tuple(str(name).strip() for name in getattr(table, "column_names", table.columns))
    columns = [_arrow(table, index) for index in range(len(names))]
    num_rows = len(columns[0]) if columns else 0
    if num_rows == 0:
        raise DataError(f"{_NAME} has {'columns and no rows' if names else 'no columns'}.")
    sources = [column if is_readable(column.type) else column.type for column in columns]
    return Frame(_NAME, names, True, sources, num_rows, text_format)


def _arrow(table: Any, index: int) -> Any:
    """Return a column as Arrow cells (n,); objects of several types as texts."""
    with requires_extra("tables"):
        import pyarrow as pa

    if isinstance(table, pa.Table):
        return table.column(index)
    if hasattr(table, "to_arrow"):
        return table.select([table.columns[index]]).to_arrow().column(0)
    cells = table.iloc[:, index]
    try:
        array = pa.array(cells, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pairs = zip(cells, cells.isna(), strict=True)
        array = pa.array([None if is_missing else str(cell) for cell, is_missing in pairs], pa.string())
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
