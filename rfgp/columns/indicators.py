"""Indicator columns, one for each level, which kernels of numbers can read."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import Cells, CellType
from rfgp.columns.kinds import ColumnKind
from rfgp.columns.levels import factorize, ordered
from rfgp.columns.problems import invalid_cells, is_date, joined
from rfgp.columns.requests import ColumnSchema, Key, Level
from rfgp.columns.table import Table
from rfgp.counts import counted
from rfgp.errors import DataError
from rfgp.messages import MISSING_LABEL, short_repr
from rfgp.rows.names import warn_of_levels

MAX_LEVELS = 50
"""The largest number of levels of a column that is read as indicators. Each has a lengthscale."""

Indicators = Mapping[Key, tuple[Level, ...]]
"""The levels of columns that are read as indicators, by key. Booleans have no levels."""


def learn_indicators(table: Table, others: Collection[Key] = ()) -> dict[Key, tuple[Level, ...]]:
    """Return the levels of the columns of text, categories and booleans of a table.

    Args:
        table: The training data. The result of an array is empty.
        others: The keys of columns that the kernel reads as levels. They have no indicators.

    Raises:
        DataError: If columns have missing cells, too many levels, or dates as text. The message lists the problems of
            all columns.

    Examples:
        >>> from rfgp.columns import Table
        >>> from rfgp.columns.indicators import learn_indicators
        >>> learn_indicators(Table.of({"t": [0.5, 1.5], "store": ["south", "north"]}))
        {'store': ('north', 'south')}
    """
    if table.source not in ("dataframe", "dict"):
        return {}
    levels: dict[Key, tuple[Level, ...]] = {}
    problems: list[str] = []
    for key in table.keys:
        cells = table.cells(key)
        if cells.cell_type is CellType.BOOLEAN and cells.codes is None:
            levels[key] = ()
        elif has_levels(cells) and key not in others:
            problems += (found := _problems(key, cells))
            levels[key] = () if found else ordered(cells)
    if problems:
        numbers = (key for key in table.keys if key not in levels and key not in others)
        read = (invalid_cells(ColumnSchema(key, ColumnKind.NUMBER), table.cells(key)) for key in numbers)
        raise DataError(joined([*problems, *itertools.chain(*read)]))
    return levels


def keys_of_many_levels(table: Table) -> list[Key]:
    """Return the keys of columns of text or categories with too many levels for indicators.

    Columns of dates as text are not among them, nor those with a different level in each row.

    Args:
        table: The training data.

    Examples:
        >>> from rfgp.columns import Table
        >>> from rfgp.columns.indicators import keys_of_many_levels
        >>> keys_of_many_levels(Table.of({"t": [0.5] * 120, "store": [f"s{i // 2}" for i in range(120)]}))
        ['store']
    """
    if table.source not in ("dataframe", "dict"):
        return []
    keys = []
    for key in table.keys:
        cells = table.cells(key)
        if has_levels(cells):
            labels = _labels(cells)
            if MAX_LEVELS < len(labels) < np.sum(~cells.missing) and not _are_dates(labels):
                keys.append(key)
    return keys


def has_levels(cells: Cells) -> bool:
    """Return whether the cells (n,) of a column are texts or categories.

    Args:
        cells: The cells of the column.

    Examples:
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.indicators import has_levels
        >>> has_levels(of_objects(["north"])), has_levels(of_objects([7]))
        (True, False)
    """
    return cells.cell_type is CellType.TEXT or cells.codes is not None


def _labels(cells: Cells) -> list[Level]:
    """Return the different levels of cells (n,)."""
    codes, labels = factorize(cells)
    return [labels[index] for index in np.unique(codes[~cells.missing])]


def _are_dates(labels: Sequence[Level]) -> bool:
    """Return whether there are labels and all are dates as text."""
    return bool(labels) and all(isinstance(label, str) and is_date(label) for label in labels)


def _problems(key: Key, cells: Cells) -> list[str]:
    """Return sentences about cells (n,) of a column that cannot be read as levels."""
    labels = _labels(cells)
    if _are_dates(labels):
        return [
            f"Column {short_repr(key)} holds dates as text, such as {short_repr(labels[0])}. Convert it with "
            "pandas.to_datetime."
        ]
    if len(labels) == np.sum(~cells.missing) > MAX_LEVELS:
        return [f"Column {short_repr(key)} has a different level in each row, like an identifier. Drop it."]
    problems = []
    if len(labels) > MAX_LEVELS:
        problems.append(
            f"Column {short_repr(key)} must have at most {MAX_LEVELS} levels to be read as indicators, got "
            f"{len(labels):,}. Add k.Group({key!r}) to the kernel, or drop the column."
        )
    if cells.missing.any():
        num_missing = counted(int(cells.missing.sum()), "missing cell")
        problems.append(
            f"Column {short_repr(key)} has {num_missing}. Give them a value such as 'unknown', or leave the rows out."
        )
    return problems


def with_indicators(table: Table, indicators: Indicators) -> Table:
    """Return a table with columns "key=level" of 0 and 1 for levels.

    A new level is 0 in all of them. A missing cell has the level "(missing)" if the training data have it. Booleans are
    0 and 1 under their key. A table that already has the indicators keeps them.

    Args:
        table: The table.
        indicators: The levels of each column, from `learn_indicators`.

    Raises:
        DataError: If a column or a cell is missing, or a column has the name of an indicator.

    Warns:
        NewLevelWarning: If a column has levels that are not in the training data.

    Examples:
        >>> from rfgp.columns import Table
        >>> from rfgp.columns.indicators import with_indicators
        >>> with_indicators(Table.of({"t": [0.5, 1.5], "store": ["b", "a"]}), {"store": ("a", "b")}).keys
        ('t', 'store=a', 'store=b')
    """
    if not indicators:
        return table
    columns: dict[Key, Any] = {}
    for key in dict.fromkeys([*table.keys, *indicators]):
        names = [f"{key}={level}" for level in indicators.get(key, ())]
        if key not in table.columns and names and all(name in table.columns for name in names):
            continue
        if key not in indicators:
            columns[key] = table.column(key)
            continue
        for name, column in _indicators(key, table.cells(key), indicators[key]).items():
            if name != key and name in table.columns:
                raise DataError(
                    f"X has a column {short_repr(name)}, the name of an indicator of {short_repr(key)}. Rename it."
                )
            columns[name] = column
    return replace(table, keys=tuple(columns), columns=columns)


def _indicators(key: Key, cells: Cells, levels: tuple[Level, ...]) -> dict[Key, Any]:
    """Return the indicator columns (n,) of one column of levels by name."""
    if cells.missing.any() and MISSING_LABEL not in levels:
        num_missing = counted(int(cells.missing.sum()), "missing cell")
        raise DataError(
            f"Column {short_repr(key)} has {num_missing}. Give them one of its levels, or leave the rows out."
        )
    if not levels:
        return {key: np.asarray(cells.expanded().values, dtype=np.float64)}
    codes = _codes(key, cells, levels)
    return {f"{key}={level}": (codes == code).astype(np.float64) for code, level in enumerate(levels)}


def _codes(key: Key, cells: Cells, levels: tuple[Level, ...]) -> NDArray[np.int64]:
    """Return the indices (n,) of cells among the levels, -1 for new levels.

    Numbers match levels that are their text.
    """
    indices, labels = factorize(cells)
    if all(isinstance(level, str) for level in levels):
        labels = list(map(str, labels))
    code_of = {level: index for index, level in enumerate(levels)}
    codes = np.array([code_of.get(label, -1) for label in labels], dtype=np.int64)[indices]
    codes[cells.missing] = code_of.get(MISSING_LABEL, -1)
    new = np.unique(indices[(codes < 0) & ~cells.missing])
    if len(new):
        warn_of_levels(key, [labels[index] for index in new], stacklevel=11)
    return codes
