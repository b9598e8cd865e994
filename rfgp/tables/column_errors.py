"""Errors for columns that cannot be encoded as numbers. Each names a cell and the remedy."""

import re
import warnings

import numpy as np

from rfgp.errors import DataError, IdentifierWarning
from rfgp.number_texts import is_identifier as are_identifiers
from rfgp.number_texts import number_of, numbers_remedy
from rfgp.tables.columns import Column, Frame
from rfgp.tables.decimals import decimal_advice, number_like_cells
from rfgp.tables.messages import counted, quoted, title

_CORRECT = "Correct these cells first."
"""The remedy for infinite values."""


def dates_error(column: Column, is_target: bool) -> DataError:
    """Return the error for a column of dates if no option encodes them.

    Args:
        column: The column.
        is_target: Whether the column is the target.

    Examples:
        >>> column = Column("t.csv", "day", 0, True, "date", np.array([19_000.0]))
        >>> "holds dates" in str(dates_error(column, is_target=False))
        True
    """
    row = np.flatnonzero(~column.missing)[0]
    remedy = 'Use dates="days" or leave them out with dates="drop".'
    remedy = 'The target must be a number. Use dates="days".' if is_target else remedy
    return column.error(f"holds dates ({column.cell_text(row)} in row {row}). {remedy}")


def text_error(column: Column, frame: Frame, *, is_named: bool = False) -> DataError:
    """Return the error for a column of text if no option encodes it.

    Args:
        column: The column.
        frame: The file.
        is_named: Whether a kernel names the column.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.frames import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> "holds text ('red' in row 0, 3 such cells)" in str(text_error(frame.column(0), frame))
        True
    """
    if is_named and not column.is_target:
        remedy = f"The kernel reads numbers there. Use a kernel of levels, such as Group({quoted(column.name)})."
        return column.error(f"{text_phrase(column)}. {format_advice(column, frame)}{remedy}")
    if are_all_different(column):
        kind = f"{counted(len(column.cells.drop_null().unique()), 'different text')}, like an identifier"
        return column.error(f"{text_phrase(column)}, {kind}. {format_advice(column, frame)}{column.drop_advice}")
    remedy = f'Use categories="one-hot" or leave the column out ({column.drop_option} or categories="drop").'
    return column.error(f"{text_phrase(column)}. {format_advice(column, frame)}{remedy}")


def are_all_different(column: Column) -> bool:
    """Return whether the texts of a column are all different, or too many for categories.

    Args:
        column: The column of texts.

    Examples:
        >>> import pyarrow as pa
        >>> texts = pa.array(["a", "b", "a"])
        >>> are_all_different(Column("t.csv", "id", 0, True, "text", np.full(3, np.nan), texts))
        False
    """
    cells = column.cells.drop_null()
    levels = len(cells.unique())
    return levels == len(cells) or (are_identifiers(levels, len(cells)) and not column.is_category)


def check_identifier(column: Column, frame: Frame) -> None:
    """Check that the texts of a column can be categories.

    Args:
        column: The column of texts.
        frame: The file, for a remedy.

    Raises:
        DataError: If the texts are all different, or too many.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.frames import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> check_identifier(frame.column(0), frame)  # no error
    """
    if are_all_different(column):
        cells = column.cells.drop_null()
        different = f"has {counted(len(cells.unique()), 'different text')} in {counted(len(cells), 'cell')}"
        raise column.error(
            f"{different}; it looks like an identifier. {format_advice(column, frame).rstrip() or column.drop_advice}"
        )


def is_identifier(column: Column, frame: Frame) -> bool:
    """Return whether all texts of a column differ, and warn if they do.

    Args:
        column: The column of texts.
        frame: The file, for a remedy.

    Raises:
        DataError: If the texts may be numbers or dates in another format, or are too many for levels.

    Warns:
        IdentifierWarning: If all texts of the column differ.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.frames import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> is_identifier(frame.column(0), frame)
        False
    """
    if advice := format_advice(column, frame):
        raise column.error(f"{text_phrase(column)}. {advice}Or leave it out ({column.drop_option}).")
    cells = column.cells.drop_null()
    different = len(cells.unique())
    if different < len(cells) and are_identifiers(different, len(cells)):
        sizes = f"{counted(different, 'different text')} in {counted(len(cells), 'cell')}"
        raise column.error(
            f"has {sizes}, like an identifier. Leave it out ({column.drop_option}), or use "
            f"as_categories={quoted(column.name)} if they are levels."
        )
    if different < len(cells):
        return False
    begin = f"{title(column.file)}: column {quoted(column.name)} is left out: each of its {len(cells):,} texts is "
    warnings.warn(
        IdentifierWarning(f"{begin}different, such as {column.cell_text(column.unparsed_rows[0])}."),
        stacklevel=11,
    )
    return True


def text_phrase(column: Column) -> str:
    """Return "holds text ('x' in row 1, 1 such cell)".

    Args:
        column: A column with texts among its cells.

    Examples:
        >>> import pyarrow as pa
        >>> text_phrase(Column("t.csv", "size", 0, True, "text", np.array([1.0, np.nan]), pa.array(["1", "x"])))
        "holds text ('x' in row 1, 1 such cell)"
    """
    row = column.unparsed_rows[0]
    return f"holds text ({column.cell_text(row)} in row {row}, {counted(len(column.unparsed_rows), 'such cell')})"


def format_advice(column: Column, frame: Frame) -> str:
    """Return advice on the number or date format of the text cells of a column, or "".

    Args:
        column: The column.
        frame: The file.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.frames import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"day": ["31/12/2024", "30/12/2024"]}), TextFormat())
        >>> format_advice(frame.column(0), frame)
        'Dates must be ISO (YYYY-MM-DD). '
    """
    cells = {name: number_like_cells(source) for name, source in zip(frame.names, frame.sources, strict=True)}
    cells[column.name] = number_like_cells(frame.sources[column.position])
    if advice := decimal_advice(cells, column.name, frame.text_format):
        return advice
    texts = column.cells.drop_null()
    if (example := number_of(texts.unique().to_pylist(), len(texts))) is not None:
        return f"{numbers_remedy(column.name, example)} "
    cell = str(column.cells[column.unparsed_rows[0]]) if len(column.unparsed_rows) else ""
    if re.fullmatch(r"\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}(?:\D.*)?", cell):
        return "Dates must be ISO (YYYY-MM-DD). "
    return ""


def check_mixed(column: Column, frame: Frame) -> None:
    """Check that a column of texts does not mainly hold numbers.

    Args:
        column: The column.
        frame: The file, for a remedy.

    Raises:
        DataError: If at least half of the cells are numbers.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.frames import read_frame
        >>> from rfgp.tables.options import TextFormat
        >>> frame = read_frame(pd.DataFrame({"color": ["red", "blue", "red"]}), TextFormat())
        >>> check_mixed(frame.column(0), frame)  # no error, as there are no numbers
    """
    numbers = int(np.count_nonzero(~np.isnan(column.values)))
    if 2 * numbers >= int(np.count_nonzero(~column.missing)):
        remedy = "Correct these cells, add them to missing_marks, name the column in as_categories or "
        remedy += "choose another target" if column.is_target else f"leave it out ({column.drop_option})"
        problem = f"{text_phrase(column)} among {counted(numbers, 'number')}. {format_advice(column, frame)}"
        raise column.error(f"{problem}{remedy}.")


def check_cells(column: Column, policy: str) -> None:
    """Check that a column has values, and missing cells only if the policy allows them.

    Args:
        column: The column.
        policy: The policy for missing cells: "error", "drop" or "mean".

    Raises:
        DataError: If all cells are missing, or a cell is missing against the policy or infinite.

    Examples:
        >>> column = Column("t.csv", "size", 0, True, "number", np.array([1.0, np.nan]))
        >>> check_cells(column, "drop")  # no error, as rows with missing values are dropped
    """
    if column.missing.all():
        count = len(column.values)
        raise column.error(f"has no values, all {count:,} are missing. {column.drop_advice}")
    check_missing_values(column, policy)


def check_dates(column: Column) -> None:
    """Check that all dates of a column exist.

    Args:
        column: The column of dates.

    Raises:
        DataError: If a date does not exist, such as February 30.

    Examples:
        >>> import pyarrow as pa
        >>> values, texts = np.array([19_000.0]), pa.array(["2022-01-08"])
        >>> check_dates(Column("t.csv", "day", 0, True, "date", values, texts))  # no error
    """
    for row in column.unparsed_rows[:1]:
        raise column.error(f"holds a date that does not exist ({column.cell_text(row)} in row {row}).")


def check_missing_values(column: Column, policy: str) -> None:
    """Check that no cell is infinite, and that missing cells are allowed by the policy.

    With the policy "mean", rows without a target are dropped. Numbers that are levels are never filled.

    Args:
        column: The column.
        policy: The policy for missing cells: "error", "drop" or "mean".

    Raises:
        DataError: If a cell is infinite, or missing against the policy.

    Examples:
        >>> column = Column("t.csv", "size", 0, True, "number", np.array([1.0, np.nan]))
        >>> check_missing_values(column, "drop")  # no error, as rows with missing values are dropped
    """
    missing = column.missing
    bad = np.isinf(column.values) if column.kind == "number" else np.zeros_like(missing)
    if policy not in ("drop", "mean") or (policy == "mean" and column.is_level):
        bad |= missing
    if not bad.any():
        return
    row, count = np.flatnonzero(bad)[0], np.count_nonzero(bad)
    cell, remedy = column.cell_text(row), _CORRECT
    if missing[row]:
        may_fill = policy == "error" and not column.is_target and (not column.is_level or column.kind == "text")
        cell, remedy = "missing", 'Use missing="drop", or missing="mean".' if may_fill else 'Use missing="drop".'
    role = "(the target) " * column.is_target
    values = counted(int(count), "missing or infinite value")
    raise column.error(f"{role}has {values}, the first in row {row} ({cell}). {remedy}")
