"""Indicator columns, one for each level, which kernels of numbers can read."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from rfgp.columns.cells import CellType, Column, Level, objects
from rfgp.columns.problems import cell_errors, join_errors, numbers_as_text
from rfgp.columns.rules import ColumnKind, ColumnSchema, Key
from rfgp.columns.table import InputTable, warn_of_levels
from rfgp.errors import DataError
from rfgp.messages import MISSING_LABEL, counted, short_repr
from rfgp.number_texts import MAX_LEVELS, is_date, is_identifier, number_of

MAX_COUNTED_LEVELS = 10**6
"""The maximum number of levels of a column of a source that are counted."""

Indicators = Mapping[Key, tuple[Level, ...]]
"""The levels of columns that are read as indicators, by key. Booleans have no levels."""


@dataclass(frozen=True)
class LevelCounts:
    """The levels of the cells of a column of text, categories or booleans.

    Attributes:
        levels: The levels, sorted or in the order of the user.
        num_cells: The number of cells that are not missing.
        num_missing: The number of missing cells.
        is_boolean: Whether the cells are booleans, which need no levels.
        is_category: Whether the user's container says that the column is a category.

    Examples:
        >>> from rfgp.columns.cells import Column
        >>> LevelCounts.of(Column.of(["south", "north", "south"])).levels
        ('north', 'south')
    """

    levels: tuple[Level, ...]
    num_cells: int
    num_missing: int = 0
    is_boolean: bool = False
    is_category: bool = False

    @classmethod
    def of(cls, cells: Column) -> Self:
        """Return the levels of cells (n,).

        Args:
            cells: The cells of the column.
        """
        num_missing = int(cells.missing.sum())
        if cells.cell_type is CellType.BOOLEAN and cells.codes is None:
            return cls((), len(cells.missing) - num_missing, num_missing, is_boolean=True)
        return cls(cells.levels, len(cells.missing) - num_missing, num_missing, is_category=cells.is_category)

    def merged(self, other: "LevelCounts", key: Key) -> "LevelCounts":
        """Return the levels of these cells and of others of the same column.

        Args:
            other: The levels of the other cells.
            key: The key of the column, for messages.

        Raises:
            DataError: If the cells have different types, or too many levels.
        """
        if self.num_cells and other.num_cells and self._types != other._types:
            raise DataError(
                f"Column {short_repr(key)} must hold cells of one type in all blocks of the source, got "
                f"{self._types} and {other._types}. Convert it."
            )
        num_cells, num_missing = self.num_cells + other.num_cells, self.num_missing + other.num_missing
        levels, new = self.levels, set(other.levels).difference(self.levels)
        if new:
            levels = tuple(sorted(new.union(levels)))
        if len(levels) > MAX_COUNTED_LEVELS:
            raise DataError(
                f"Column {short_repr(key)} has more than {MAX_COUNTED_LEVELS:,} levels, like an identifier. Drop it, "
                f"or add k.Group({key!r}) to the kernel."
            )
        is_boolean = self.is_boolean if self.num_cells else other.is_boolean
        return LevelCounts(levels, num_cells, num_missing, is_boolean, self.is_category and other.is_category)

    @property
    def _types(self) -> str:
        """The types of the cells in words."""
        names = {str: "text", int: "integers"}
        kinds = {names.get(type(level), type(level).__name__) for level in self.levels}
        return "truth values" if self.is_boolean else " and ".join(sorted(kinds))

    @property
    def sizes(self) -> str:
        """The numbers of different texts and of cells in words."""
        return f"{counted(len(self.levels), 'different text')} in {counted(self.num_cells, 'cell')}"

    @property
    def is_identifier(self) -> bool:
        """Whether there are too many different texts for levels. A category may have them."""
        return not self.is_category and self.num_cells > 0 and is_identifier(len(self.levels), self.num_cells)

    @property
    def number(self) -> str | None:
        """An example of the numbers that the texts are, if they are too many for levels. Otherwise None."""
        texts = [level for level in self.levels if isinstance(level, str)]
        return None if self.is_category else number_of(texts, self.num_cells)

    @property
    def are_dates(self) -> bool:
        """Whether there are levels and all are dates as text."""
        return bool(self.levels) and all(isinstance(level, str) and is_date(level) for level in self.levels)


def count_levels(table: InputTable, keys: Collection[Key] | None = None) -> dict[Key, LevelCounts]:
    """Return the levels of the columns of text, categories and booleans of a table, by key.

    Columns of ISO dates as text are dates.

    Args:
        table: The table. The result of an array is empty.
        keys: The keys of columns that must have levels. If None, all columns that have.

    Raises:
        DataError: If one of these columns has no levels.

    Examples:
        >>> from rfgp.columns import InputTable
        >>> from rfgp.columns.indicators import count_levels
        >>> count_levels(InputTable.of({"t": [0.5, 1.5], "store": ["south", "north"]}))["store"].levels
        ('north', 'south')
    """
    if table.source not in ("dataframe", "dict"):
        return {}
    found = dict[Key, LevelCounts]()
    for key in table.keys:
        if keys is not None and key not in keys:
            continue
        cells = table.cells(key)
        if keys is None and cells.with_dates() is not cells:
            continue
        if cells.has_levels or cells.cell_type is CellType.BOOLEAN:
            found[key] = LevelCounts.of(cells)
        elif keys is not None and cells.missing.all():
            found[key] = LevelCounts((), 0, len(cells.missing))
        elif keys is not None:
            raise DataError(
                f"Column {short_repr(key)} must hold text or truth values in all blocks of the source, got "
                f"{cells.cell_type} in the block that starts at row {table.first:,}. Convert it."
            )
    return found


def learn_indicators(
    table: InputTable, counts: Mapping[Key, LevelCounts], others: Collection[Key] = ()
) -> dict[Key, tuple[Level, ...]]:
    """Return the levels of columns that are read as indicators, by key.

    Args:
        table: The training data, or their first rows.
        counts: The levels of all training data.
        others: The keys of columns that the kernel reads as levels. They have no indicators.

    Raises:
        DataError: If columns have missing cells, too many levels, or dates as text. The message lists the problems of
            all columns.

    Examples:
        >>> from rfgp.columns import InputTable
        >>> from rfgp.columns.indicators import count_levels, learn_indicators
        >>> table = InputTable.of({"t": [0.5, 1.5, 2.5], "store": ["south", "north", "south"]})
        >>> learn_indicators(table, count_levels(table))
        {'store': ('north', 'south')}
    """
    counts = {key: column for key, column in counts.items() if column.is_boolean or key not in others}
    problems = [
        problem for key, column in counts.items() if not column.is_boolean for problem in _problems(key, column)
    ]
    if problems:
        numbers = (key for key in table.keys if key not in counts and key not in others)
        read = (cell_errors(ColumnSchema(key, ColumnKind.NUMBER), table.cells(key)) for key in numbers)
        raise DataError(join_errors([*problems, *itertools.chain(*read)]))
    return {key: column.levels for key, column in counts.items()}


def keys_of_many_levels(counts: Mapping[Key, LevelCounts]) -> list[Key]:
    """Return the keys of columns of text or categories with too many levels for indicators.

    Columns of dates or numbers as text are not among them, nor those that look like identifiers.

    Args:
        counts: The levels of the training data.

    Examples:
        >>> from rfgp.columns import InputTable
        >>> from rfgp.columns.indicators import count_levels, keys_of_many_levels
        >>> table = InputTable.of({"t": [0.5] * 120, "store": [f"s{i // 2}" for i in range(120)]})
        >>> keys_of_many_levels(count_levels(table))
        ['store']
    """
    return [
        key
        for key, column in counts.items()
        if len(column.levels) > MAX_LEVELS
        and not (column.is_identifier or column.are_dates or column.number is not None)
    ]


def _problems(key: Key, column: LevelCounts) -> list[str]:
    """Return sentences about a column that cannot be read as indicators."""
    if column.are_dates:
        return [
            f"Column {short_repr(key)} holds dates as text, such as {short_repr(column.levels[0])}. Convert it with "
            "pandas.to_datetime."
        ]
    if (number := column.number) is not None:
        return [f"Column {short_repr(key)} holds {numbers_as_text(key, column.levels, number)}"]
    if column.is_identifier:
        return [
            f"Column {short_repr(key)} has {column.sizes}, like an identifier. Drop it, or add k.Group({key!r}) to the "
            "kernel if the texts are levels."
        ]
    problems = []
    if len(column.levels) > MAX_LEVELS:
        problems.append(
            f"Column {short_repr(key)} must have at most {MAX_LEVELS} levels to be read as indicators, got "
            f"{len(column.levels):,}. Add k.Group({key!r}) to the kernel, or drop the column."
        )
    if column.num_missing:
        num_missing = counted(column.num_missing, "missing cell")
        problems.append(
            f"Column {short_repr(key)} has {num_missing}. Give them a value such as 'unknown', or leave the rows out."
        )
    return problems


def with_indicators(table: InputTable, indicators: Indicators) -> InputTable:
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
        >>> from rfgp.columns import InputTable
        >>> from rfgp.columns.indicators import with_indicators
        >>> with_indicators(InputTable.of({"t": [0.5, 1.5], "store": ["b", "a"]}), {"store": ("a", "b")}).keys
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
            if name != key and (name in table.columns or name in columns):
                raise DataError(
                    f"X has a column {short_repr(name)}, the name of an indicator of {short_repr(key)}. Rename it."
                )
            columns[name] = column
    others = {key: column for key, column in table.columns.items() if key not in table.keys}  # of an index
    return replace(table, keys=tuple(columns), columns={**others, **columns})


def _indicators(key: Key, cells: Column, levels: tuple[Level, ...]) -> dict[Key, Any]:
    """Return the indicator columns (n,) of one column of levels by name."""
    if cells.missing.any() and MISSING_LABEL not in levels:
        num_missing = counted(int(cells.missing.sum()), "missing cell")
        raise DataError(
            f"Column {short_repr(key)} has {num_missing}. Give them one of its levels, or leave the rows out."
        )
    if not levels:
        if cells.cell_type in (CellType.TEXT, CellType.OBJECT, CellType.DATE):
            raise DataError(f"Column {short_repr(key)} must hold truth values, got {cells.cell_type}. Convert it.")
        return {key: np.asarray(cells.expanded().values, dtype=np.float64)}
    cells = _as_texts(cells) if all(isinstance(level, str) for level in levels) else cells
    codes, new = cells.coded(levels)
    if new:
        warn_of_levels(key, new)
    if cells.missing.any():
        codes = np.where(cells.missing, levels.index(MISSING_LABEL), codes)
    return {f"{key}={level}": (codes == code).astype(np.float64) for code, level in enumerate(levels)}


def _as_texts(cells: Column) -> Column:
    """Return cells (n,) as texts, since levels that are texts match numbers with the same text."""
    indices, labels = cells.factorized()
    return replace(cells, cell_type=CellType.TEXT, values=objects(map(str, labels)), codes=indices)
