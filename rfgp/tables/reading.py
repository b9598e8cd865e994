"""Readers of training tables, and of the inputs of later files."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.table import labels_of, taken
from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.messages import quoted, unquoted
from rfgp.tables.columns import FileColumn, in_format
from rfgp.tables.encoding import encode_inputs, encode_table
from rfgp.tables.options import (
    PARQUET_SUFFIXES,
    TABLE_SUFFIXES,
    ReadOptions,
    TableOptions,
    TextFormat,
    is_value,
)
from rfgp.tables.table import Inputs, Schema, Table
from rfgp.tables.text import Frame, decoded, find_column, is_readable, number_like_cells, read_parquet_frame, read_text

_DATAFRAME, _PARQUET, _TEXT = "a dataframe", "a Parquet file", "a text file"
"""The kinds of tables, with articles for messages."""


def read_table(path: Any, target: str | int | None = None, **options: Unpack[TableOptions]) -> Table:
    """Read a table with a target from a text file, Parquet or a dataframe.

    Text files end in .csv, .tsv, .txt or .data, perhaps followed by .gz. Their cells are separated by commas,
    semicolons, tabs or blanks. The first line is a header unless all its cells are numbers or dates. Without a header
    the columns are called "0", "1" and so on. Columns of True and False become 0 and 1. A text target becomes classes,
    and `y` has their positions. An unnamed column that counts the rows, such as an index of pandas, is left out with a
    warning.

    Args:
        path: The file, or a dataframe of pandas, polars or Arrow. The index of a dataframe is not read.
        target: The column's name or position (negative: from the end). If None, the last column.
        **options: The keyword arguments below.

    Keyword Args:
        names: The columns' names, for a text file without a header.
        categories: Policy for text columns: "error", "one-hot", "levels" or "drop". "one-hot" makes a column of 0 and 1
            for each level. "levels" makes a column of positions among the levels, with the texts in `frame()`.
        dates: Policy for ISO 8601 dates: "error", "days" (since 1970-01-01T00:00 UTC), or "drop".
        missing: Policy for missing cells: "error"; "drop" (leave out their rows); or "mean". "mean" fills numbers with
            the column's mean and levels with "(missing)", and leaves out rows without a target.
        drop: Columns to leave out, by name or position.
        decimal: The decimal mark, "." or ",".
        comment: The mark of lines to skip. If None, no line is skipped.
        missing_marks: The texts that mark a missing cell.
        encoding: The encoding of the text.
        as_categories: Columns, by name or position, to encode one-hot even if they hold numbers. A target among them
            becomes classes.
        thousands: The separator of groups of three digits, such as "," in 1,200. If None, there is none.
        columns: The input columns to read, by name or position. If None, all except the target.
        levels: Columns whose texts a kernel reads as levels, by name or position. `X` has their positions among the
            sorted levels, `frame()` the texts. Columns of numbers stay numbers.
        numbers: An example of the format of each column of numbers as text with a unit or marks of its own, by name or
            position: `{"price": "1.234,50 EUR", "share": "12 %"}`. Units are left out, so 12 % is 12. If None, there
            is no such column.

    Returns:
        The encoded table.

    Raises:
        DataError: If the file cannot be read, or has cells that cannot become finite numbers. The message names their
            row and column. Row 0 is the first after the header.
        InvalidArgumentError: If there is no such column, choice, encoding or ending of a name.

    Warns:
        IndexColumnWarning: If an unnamed column counts the rows and is left out, or may be an index.

    Examples:
        >>> import pandas as pd, rfgp
        >>> columns = {"color": ["red", "blue"] * 2, "size": [1, 2, 3, 4], "price": [2.0, 3.0, 5.0, 7.0]}
        >>> frame = pd.DataFrame(columns)
        >>> table = rfgp.tables.read_table(frame, "price", categories="one-hot")
        >>> table.columns
        ('color=blue', 'color=red', 'size')
        >>> table.X.shape, table.y.tolist()
        ((4, 3), [2.0, 3.0, 5.0, 7.0])
    """
    return _read(path, _kind_of(path), ReadOptions(target, **options))


def read_csv(path: str | Path, target: str | int | None = None, **options: Unpack[TableOptions]) -> Table:
    r"""Read a text table, plain or gzipped, from a file with any name.

    Args:
        path: The file.
        target: The column's name or position (negative: from the end). If None, the last column.
        **options: Options of `read_table`.

    Returns:
        The encoded table.

    Raises:
        DataError: If the file is missing, empty, not text or ragged, or has cells that cannot become finite numbers.
        InvalidArgumentError: If there is no such column, choice or encoding.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w") as file:
        ...     _ = file.write("size,price\n1,2\n2,4\n")
        ...     file.flush()
        ...     read_csv(file.name, "price").y.tolist()
        [2.0, 4.0]
    """
    return _read(path, _TEXT, ReadOptions(target, **options))


def read_parquet(path: str | Path, target: str | int | None = None, **options: Unpack[TableOptions]) -> Table:
    """Read a Parquet table from a file with any name.

    Args:
        path: The file.
        target: The column's name or position (negative: from the end). If None, the last column.
        **options: Options of `read_table`. Those about the format of cells affect text columns only.

    Returns:
        The encoded table.

    Raises:
        DataError: If the file is missing, damaged, too large, or has cells that cannot become finite numbers.
        InvalidArgumentError: If there is no such column or choice, or `names` is given.

    Examples:
        >>> import tempfile
        >>> import pandas as pd
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     pd.DataFrame({"size": [1, 2], "price": [2.0, 4.0]}).to_parquet(file.name)
        ...     read_parquet(file.name, "price").y.tolist()
        [2.0, 4.0]
    """
    return _read(path, _PARQUET, ReadOptions(target, **options))


def read_inputs(path: Any, schema: Schema, passthrough: Sequence[str | int] = ()) -> Inputs:
    """Read the inputs of a file or dataframe, encoded by the schema of a fitted table.

    Columns are found by name if the fitted file had a header. Their order is free, and other columns are ignored.
    Without a header, columns are found by position. The file may also have the target.

    Args:
        path: The file, or a dataframe.
        schema: `Table.schema`, or `Schema.with_missing` for another policy about missing cells.
        passthrough: Further columns, by name or position, whose texts are returned unchanged.

    Returns:
        The encoded inputs.

    Raises:
        DataError: If the file cannot be read, lacks columns, or has cells that the schema does not know.
        InvalidArgumentError: If the ending of the file's name is unknown, or there is no such column.

    Examples:
        >>> import pandas as pd
        >>> table = read_table(pd.DataFrame({"size": [1, 2], "price": [2.0, 4.0]}), "price")
        >>> read_inputs(pd.DataFrame({"size": [3]}), table.schema).X.tolist()
        [[3.0]]
    """
    return _encoded(_frame_of(path, _kind_of(path), schema.format, header=schema.header), schema, passthrough)


def read_names(path: str | Path, **options: Unpack[TableOptions]) -> tuple[str, ...]:
    r"""Return the names of all columns of a file, or "0", "1", ... if it has no header.

    Args:
        path: The file, as for `read_table`.
        **options: Options of `read_table`.

    Raises:
        DataError: If the file cannot be read.
        InvalidArgumentError: If there is no such choice, encoding or ending of a name.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("size,price\n1,2\n2,4\n")
        ...     file.flush()
        ...     read_names(file.name)
        ('size', 'price')
    """
    read_options = ReadOptions(None, **options)
    return _frame_of(path, _kind_of(path), read_options, names=read_options.names).names


def read_kinds(path: str | Path, **options: Unpack[TableOptions]) -> dict[str, str]:
    r"""Return "number", "date" or "text" for each column of a file by name.

    Args:
        path: The file.
        **options: The options of `read_names`.

    Raises:
        DataError: If the file cannot be read.
        InvalidArgumentError: If there is no such choice, encoding or ending of a name.

    Examples:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("day,price\n2026-01-01,2\n2026-01-02,4\n")
        ...     file.flush()
        ...     read_kinds(file.name)
        {'day': 'date', 'price': 'number'}
    """
    read_options = ReadOptions(None, **options)
    frame = _frame_of(path, _kind_of(path), read_options, names=read_options.names)
    return {name: FileColumn.of(frame, index).kind for index, name in enumerate(frame.names)}


def read_groups(
    path: str | Path,
    column: str | int,
    *,
    rows: NDArray[np.int64] | None = None,  # (n,)
    **options: Unpack[TableOptions],
) -> NDArray[np.int64]:
    r"""Return the group number of each row (n,), by the value of a column.

    Args:
        path: The file.
        column: The name or position of a column of numbers, dates or texts.
        rows: The rows of interest (n,), such as `Table.rows`. The column may have missing cells in other rows. If None,
            all N rows.
        **options: Options of `read_table`. Only those about the format of the file have an effect.

    Returns:
        Group numbers (n,), from 0.

    Raises:
        DataError: If the file cannot be read, or the column has missing cells.
        InvalidArgumentError: If there is no such column.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "table.csv"
        ...     _ = file.write_text("station,level\nnorth,1\nsouth,2\nnorth,3\n")
        ...     read_groups(file, "station").tolist()
        [0, 1, 0]
    """
    texts = _column(path, column, options).as_text()
    chosen = np.arange(len(texts.cells)) if rows is None else rows
    _check_values(texts, chosen, ", so that its group is unknown")
    cells = texts.cells.take(chosen)
    ranks = np.unique(cells.values.astype(str), return_inverse=True)[1].reshape(-1)
    ranks = ranks if cells.codes is None else ranks[cells.codes]
    return np.unique(ranks, return_inverse=True)[1].reshape(-1)


def read_numbers(column: Any, example: str) -> NDArray[np.float64]:  # (n,)
    """Return the numbers (n,) of a column of text with units, decimal commas or separators of thousands.

    Units are left out, so 12 % becomes 12. All cells must have the unit and the marks of the example.

    Args:
        column: Texts (n,): a series of pandas, polars or Arrow, an array or a list. Missing cells become NaN.
        example: A number in this format, such as "1.234,50 EUR", "12 %" or "$3.50".

    Raises:
        DataError: If a cell is not in this format. The message names its row.
        InvalidArgumentError: If the example is not a number, or its marks have two meanings.

    Examples:
        >>> read_numbers(["7,00 EUR", "1.234,50 EUR"], "1.234,50 EUR").tolist()
        [7.0, 1234.5]
    """
    with requires_extra("tables"):
        import pyarrow as pa

    if hasattr(column, "to_arrow"):
        column = column.to_arrow()
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        is_array = isinstance(column, np.ndarray)
        column = pa.array(column.astype(object) if is_array else column, pa.string(), from_pandas=True)
    try:
        return np.asarray(in_format(decoded(column), example), dtype=np.float64)
    except DataError as error:
        raise DataError(f"The column {error}") from None


def read_number_column(
    path: str | Path,
    column: str | int,
    *,
    rows: NDArray[np.int64] | None = None,  # (n,)
    **options: Unpack[TableOptions],
) -> NDArray[np.float64]:
    r"""Return the number of each row (n,) in a column, such as its exposure, noise variance or weight.

    Args:
        path: The file.
        column: The name or position of a column of numbers.
        rows: The rows of interest (n,), as for `read_groups`. If None, all N rows.
        **options: Options of `read_table`. Only those about the format of the file have an effect.

    Raises:
        DataError: If the file cannot be read, or a cell is missing or not a number.
        InvalidArgumentError: If there is no such column.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "table.csv"
        ...     _ = file.write_text("hours,visits\n2,1\n4,3\n")
        ...     read_number_column(file, "hours").tolist()
        [2.0, 4.0]
    """
    found = _column(path, column, options)
    chosen = np.arange(len(found.cells)) if rows is None else rows
    if found.kind != "number":
        raise found.error(f"must hold numbers, got {found.kind}s.")
    _check_values(found, chosen)
    return np.asarray(found.values[chosen], dtype=np.float64)


def _column(path: str | Path, column: str | int, options: TableOptions) -> FileColumn:
    """Return one column of a file."""
    read_options, is_parquet = ReadOptions(**options), Path(path).suffix.lower() in PARQUET_SUFFIXES
    frame = _frame_of(path, _PARQUET if is_parquet else _TEXT, read_options, names=read_options.names)
    return FileColumn.of(frame, find_column(frame.names, column))


def _check_values(column: FileColumn, rows: NDArray[np.int64], consequence: str = "") -> None:
    """Check that a column has values in some rows (n,)."""
    if len(missing := rows[column.missing[rows]]):
        raise column.error(f"has no value in row {int(missing[0])}{consequence}. Give each row a value.")


def _read(path: Any, kind: str, read_options: ReadOptions) -> Table:
    if kind != _TEXT and read_options.names is not None:
        raise InvalidArgumentError(
            f"names must be None for {kind}, which names its columns. Give it for text files without a header."
        )
    return encode_table(_frame_of(path, kind, read_options, names=read_options.names), read_options)


def _frame_of(
    path: Any, kind: str, text_format: TextFormat, *, names: Sequence[str] | None = None, header: bool | None = None
) -> Frame:
    """Return the columns of a dataframe, or of a file. Names and header are those of `read_text`."""
    if kind == _DATAFRAME:
        return read_frame(path, text_format)
    if kind == _PARQUET:
        return read_parquet_frame(Path(path), text_format)
    return read_text(Path(path), text_format, names=names, header=header)


def _encoded(frame: Frame, schema: Schema, passthrough: Sequence[str | int]) -> Inputs:
    """Return the inputs of a file's columns. An error mentions decimal marks that differ from the fitted table."""
    try:
        return encode_inputs(frame, schema, passthrough)
    except DataError as error:
        number_like = (cell for source in frame.sources for cell in number_like_cells(source))
        cells = (cell for cell in number_like if not is_value(cell, frame.text_format))
        if (text := next(cells, None)) is None:
            raise
        mark, other = schema.decimal, "," if schema.decimal == "." else "."
        raise DataError(
            f"{error} The decimal mark is {mark!r}, as in the fitted table, but {quoted(text)} may have another one. "
            f'Use decimal="{other}" if so.'
        ) from error


def _kind_of(path: Any) -> str:
    """Return whether a table is a dataframe, a Parquet file or a text file, by the ending of its name.

    Raises:
        InvalidArgumentError: If it is none of them.
    """
    if is_frame(path):
        return _DATAFRAME
    if not isinstance(path, str | PathLike):
        raise InvalidArgumentError(
            f"path must be the path of a file, or a dataframe, got {type(path).__name__}. Pass arrays to gp.fit(X, y)."
        )
    suffix = Path(path).suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        endings = ", ".join(TABLE_SUFFIXES)
        raise InvalidArgumentError(f"The ending of path must be one of {endings}, got {unquoted(Path(path).name)}.")
    return _PARQUET if suffix in PARQUET_SUFFIXES else _TEXT


# --- Dataframes ---------------------------------------------------------------------------------

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
    labels = labels_of(table)
    columns = [_arrow(taken(table, label, index)) for index, label in enumerate(labels)]
    num_rows = len(columns[0]) if columns else 0
    if num_rows == 0:
        raise DataError(f"{_NAME} has {'columns and no rows' if labels else 'no columns'}.")
    sources = [column if is_readable(column.type) else column.type for column in columns]
    return Frame(_NAME, tuple(str(label).strip() for label in labels), True, sources, num_rows, text_format)


def _arrow(column: Any) -> Any:
    """Return a column of a dataframe as Arrow cells (n,); objects of several types as texts."""
    with requires_extra("tables"):
        import pyarrow as pa

    if not hasattr(column, "isna"):  # of polars or Arrow
        array = column.to_arrow() if hasattr(column, "to_arrow") else column
    else:
        try:
            array = pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            pairs = zip(column, column.isna(), strict=True)
            array = pa.array([None if is_missing else str(cell) for cell, is_missing in pairs], pa.string())
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
