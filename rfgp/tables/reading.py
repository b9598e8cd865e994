"""Read a table to fit a model to, and the inputs of the next file."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.tables.columns import Frame, is_value
from rfgp.tables.encoding import encode_table
from rfgp.tables.frames import is_frame, read_frame
from rfgp.tables.inputs import encode_inputs
from rfgp.tables.marks import marked
from rfgp.tables.messages import plain, show
from rfgp.tables.options import (
    MISSING_MARKS,
    PARQUET_SUFFIXES,
    TABLE_SUFFIXES,
    Categories,
    Dates,
    Decimal,
    Missing,
    Request,
    TableOptions,
)
from rfgp.tables.parquet import read_parquet_frame
from rfgp.tables.schema import Schema
from rfgp.tables.table import Inputs, Table
from rfgp.tables.text import read_text


def read_table(
    path: Any,
    target: str | int | None = None,
    *,
    names: Sequence[str] | None = None,
    categories: Categories = "error",
    dates: Dates = "error",
    missing: Missing = "error",
    drop: str | int | Sequence[str | int] = (),
    decimal: Decimal = ".",
    comment: str | None = None,
    missing_marks: Sequence[str] = MISSING_MARKS,
    encoding: str = "utf-8",
    as_categories: str | int | Sequence[str | int] = (),
    thousands: str | None = None,
    columns: str | int | Sequence[str | int] | None = None,
    levels: str | int | Sequence[str | int] = (),
) -> Table:
    """Read a table with a target column from a text file (.csv, .tsv, .txt, .data, also .gz), Parquet or a dataframe.

    Text is separated by commas, semicolons, tabs or blanks. Its first line is a header unless every
    cell of it is a number or date; columns then are called "0", "1", .... Columns of True and False
    are numbers 0 and 1. A text target becomes classes; the targets are then positions in them. A column
    without a name that counts the rows, as pandas writes its index, is left out with a warning.

    Args:
        path: The file, or a dataframe of pandas, polars or Arrow, whose index is not read.
        target: A column's name or position (negative: from the end); None: the last column.
        names: The columns' names, for a text file without a header.
        categories: Text columns are an error, one column of 0 and 1 for each level ("one-hot"), one column of the
            positions of levels ("levels", with texts in `frame()`), or left out.
        dates: ISO 8601 dates are an error, days since 1970-01-01T00:00 UTC ("days"), or left out.
        missing: Missing cells are an error; their rows are left out ("drop"); or the column's mean fills them, in
            columns of levels the level "(missing)", and rows without a target are left out ("mean").
        drop: Columns to leave out, by name or position.
        decimal: The decimal mark, "." or ",".
        comment: Lines that begin with this mark are skipped.
        missing_marks: The texts that stand for a missing cell.
        encoding: The text's encoding.
        as_categories: Columns, by name or position, that are one-hot encoded whatever they hold, numbers
            among texts too; for the target: that become classes.
        thousands: What separates groups of three digits before the decimal mark, such as "," in 1,200; None: nothing.
        columns: The input columns to read, by name or position. If None, all but the target.
        levels: Columns whose texts a kernel reads as levels, by name or position. `X` has their positions among the
            sorted levels, `frame()` the texts. Columns of numbers stay numbers.

    Raises:
        DataError: the file cannot be read, or has cells that cannot become finite numbers (named by
            row and column; row 0 is the first after the header).
        InvalidArgumentError: there is no such column, choice, encoding or ending of a name.

    Warns:
        IndexColumnWarning: a column without a name counts the rows and is left out, or may be an index.

    Example:
        >>> import pandas as pd, rfgp
        >>> frame = pd.DataFrame({"color": ["red", "blue"] * 2, "size": [1, 2, 3, 4], "price": [2.0, 3.0, 5.0, 7.0]})
        >>> table = rfgp.tables.read_table(frame, "price", categories="one-hot")
        >>> table.columns
        ('color=blue', 'color=red', 'size')
        >>> table.X.shape, table.y.tolist()
        ((4, 3), [2.0, 3.0, 5.0, 7.0])
    """
    request = Request(
        target,
        names,
        categories,
        dates,
        missing,
        drop,
        decimal,
        comment,
        missing_marks,
        encoding,
        as_categories,
        thousands,
        columns,
        levels,
    )
    if is_frame(path):
        return _read_frame(path, request)
    return _read_parquet(path, request) if _is_parquet(path) else _read_csv(path, request)


def read_csv(path: str | Path, target: str | int | None = None, **options: Unpack[TableOptions]) -> Table:
    """Read a text table, plain or gzipped, whatever its name.

    Args:
        path: The file.
        target: A column's name or position (negative: from the end); None: the last column.
        **options: Those of `read_table`.

    Raises:
        DataError: the file is missing, empty, not text, ragged, or has cells that cannot become
            finite numbers (named by row and column).
        InvalidArgumentError: there is no such column, choice or encoding.
    """
    return _read_csv(path, Request(target, **options))


def read_parquet(path: str | Path, target: str | int | None = None, **options: Unpack[TableOptions]) -> Table:
    """Read a Parquet table, whatever its name.

    Args:
        path: The file.
        target: A column's name or position (negative: from the end); None: the last column.
        **options: Those of `read_table`; those about the spelling of text concern text columns only.

    Raises:
        DataError: the file is missing, damaged, too large, or has cells that cannot become finite numbers.
        InvalidArgumentError: there is no such column or choice, or `names` is given.
    """
    return _read_parquet(path, Request(target, **options))


def read_inputs(path: Any, schema: Schema, carried: Sequence[str | int] = ()) -> Inputs:
    """Read the inputs of a file or dataframe as the schema of a fitted table says.

    Columns are found by name where that table's file had a header (others are ignored, their order is
    free), else by position, with or without the target column.

    Args:
        path: The file, or a dataframe.
        schema: `Table.schema`; `Schema.with_missing` has another policy about missing cells.
        carried: Further columns, by name or position, whose texts are returned as they are.

    Raises:
        DataError: the file cannot be read, lacks columns, or has cells that the schema does not know.
        InvalidArgumentError: the ending of the file's name is not known, or there is no such further column.
    """
    if is_frame(path):
        return _encoded(read_frame(path, schema.format), schema, carried)
    if _is_parquet(path):
        return _encoded(read_parquet_frame(Path(path), schema.format), schema, carried)
    return _encoded(read_text(Path(path), schema.format, header=schema.header), schema, carried)


def read_names(path: str | Path, **options: Unpack[TableOptions]) -> tuple[str, ...]:
    """Return the names of all columns of a file, in its order; "0", "1", ... where it has no header.

    Args:
        path: The file, as for `read_table`.
        **options: Those of `read_table`.

    Raises:
        DataError: the file cannot be read.
        InvalidArgumentError: there is no such choice, encoding or ending of a name.
    """
    return _frame_of(path, Request(None, **options)).names


def read_kinds(path: str | Path, **options: Unpack[TableOptions]) -> dict[str, str]:
    """Return "number", "date" or "text" for each column of a file by name, in its order; arguments as for `read_names`.

    Raises:
        DataError: the file cannot be read.
        InvalidArgumentError: there is no such choice, encoding or ending of a name.
    """
    frame = _frame_of(path, Request(None, **options))
    return {name: frame.column(place).kind for place, name in enumerate(frame.names)}


def _frame_of(path: str | Path, request: Request) -> Frame:
    if _is_parquet(path):
        return read_parquet_frame(Path(path), request.format)
    return read_text(Path(path), request.format, names=request.names)


def _encoded(frame: Frame, schema: Schema, carried: Sequence[str | int]) -> Inputs:
    """Return the inputs of a file's columns; what is wrong with them may be marks unlike those of the fitted table."""
    try:
        return encode_inputs(frame, schema, carried)
    except DataError as error:
        cells = (cell for source in frame.sources for cell in marked(source) if not is_value(cell, frame.form))
        if (odd := next(cells, None)) is None:
            raise
        mark, other = schema.decimal, "," if schema.decimal == "." else "."
        raise DataError(
            f"{error} The numbers are read as in the fitted table, where the decimal mark is {mark!r}; in {show(odd)} "
            f'it may be another: give decimal="{other}" if so.'
        ) from error


def _read_csv(path: str | Path, request: Request) -> Table:
    return encode_table(read_text(Path(path), request.format, names=request.names), request)


def _read_parquet(path: str | Path, request: Request) -> Table:
    _refuse_names(request, "A Parquet file")
    return encode_table(read_parquet_frame(Path(path), request.format), request)


def _read_frame(table: Any, request: Request) -> Table:
    _refuse_names(request, "A dataframe")
    return encode_table(read_frame(table, request.format), request)


def _refuse_names(request: Request, what: str) -> None:
    if request.names is not None:
        raise InvalidArgumentError(f"{what} names its columns; names is for text files without a header.")


def _is_parquet(path: Any) -> bool:
    if not isinstance(path, str | PathLike):
        raise InvalidArgumentError(
            f"path must be a file or a dataframe, got {type(path).__name__}. A model takes arrays as they are."
        )
    suffix = Path(path).suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        endings = ", ".join(TABLE_SUFFIXES)
        raise InvalidArgumentError(
            f"{plain(Path(path).name)}: what it holds is not clear; known endings are {endings}."
        )
    return suffix in PARQUET_SUFFIXES
