"""Sources of rows that a model reads by column names, block by block."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rfgp.columns import ColumnKind, Schema, Table
from rfgp.columns.indicators import Indicators, LevelCounts, count_levels, with_indicators
from rfgp.errors import DataError
from rfgp.rows import Chunk, DistributedSource, InputReader, RowSource, TableSource

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class CodedSource:
    """The rows of a source as matrices of numbers: codes of levels, and days of dates.

    Attributes:
        source: The user's rows.
        reader: The reader of tables.
        keys: The names of the columns to read.
    """

    source: RowSource
    reader: InputReader
    keys: tuple[str | int, ...]

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in blocks."""
        yield from self.coded(self.source)

    def coded(self, source: RowSource, first: int = 0) -> Iterator[Chunk]:
        """Yield the rows of a part of the source in blocks.

        Args:
            source: The part.
            first: The number of preceding rows, for messages. The default is 0.
        """
        for table, chunk in tables_of(source, self.keys, first):
            inputs, output_format = self.reader.read(table)
            y, is_matrix = chunk.y, isinstance(chunk.X, np.ndarray | Tensor)
            if not is_matrix and self.reader.dtype is None:  # columns may have different dtypes
                inputs, y = _of_one_type(inputs, y)
            yield chunk._replace(X=inputs.numpy() if output_format.is_numpy else inputs, y=y, names=None)


class CodedPartitions(CodedSource):
    """The rows of a `DistributedSource`, coded on the workers that hold its parts."""

    def reduce(self, function: Callable[[RowSource, int], T], combine: Callable[[T, T], T]) -> T:
        """Return the results of a function of all coded parts, combined in order.

        Args:
            function: Maps a part and the number of rows before it to a result.
            combine: Combines two results.
        """
        assert isinstance(self.source, DistributedSource)
        whole = CodedSource(_Nothing(), self.reader, self.keys)
        return self.source.reduce(partial(_of_coded_part, whole, function), combine)


@dataclass(frozen=True, eq=False)
class _CodedPart:
    """The coded rows of one part."""

    whole: CodedSource
    part: RowSource
    first: int

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in blocks."""
        yield from self.whole.coded(self.part, self.first)


class _Nothing:
    """A source without rows, which replaces a source that is not sent to workers."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield nothing."""
        yield from ()


def _of_coded_part(whole: CodedSource, function: Callable[[RowSource, int], T], part: RowSource, first: int) -> T:
    return function(_CodedPart(whole, part, first), first)


def coded(source: RowSource, reader: InputReader, keys: tuple[str | int, ...]) -> CodedSource:
    """Return a source as matrices of numbers, from a reader of these columns.

    Args:
        source: The source of rows.
        reader: Reads columns as numbers.
        keys: The keys of the columns.
    """
    return (CodedPartitions if isinstance(source, DistributedSource) else CodedSource)(source, reader, keys)


def tables_of(
    source: RowSource, keys: Collection[str | int] | None = None, first: int = 0
) -> Iterator[tuple[Table, Chunk]]:
    """Yield the tables of a source's inputs, each with its rows.

    Args:
        source: The rows.
        keys: The keys of the columns to read. If None, all.
        first: The number of preceding rows, for messages.
    """
    for chunk in source.tables(keys) if isinstance(source, TableSource) else source.chunks():
        X = chunk.X
        if chunk.names is not None and isinstance(X, np.ndarray | Tensor):
            X = {name: X[:, index] for index, name in enumerate(chunk.names)}
        if len(next(iter(X.values()), ()) if isinstance(X, Mapping) else X):
            table = replace(Table.of(X), first=first)
            first += table.num_rows
            yield table, chunk


def first_table(source: RowSource) -> Table:
    """Return the first table of a source.

    Args:
        source: The source of rows.

    Raises:
        DataError: If the source has no rows.
    """
    for table, _ in tables_of(source):
        return table
    raise DataError("The source must have rows, got none. Check its path or its filter.")


def levels_of_source(
    source: RowSource, first: Table, others: Collection[str | int] = ()
) -> dict[str | int, LevelCounts]:
    """Return the levels of columns of text, categories and booleans of a source.

    The source is read if there are any such columns.

    Args:
        source: The rows.
        first: The first table of the source, which says which columns have levels.
        others: The keys of columns that the kernel reads as levels. Only booleans among them are counted.

    Raises:
        DataError: If a column has cells of different types, or too many levels.
    """
    keys = tuple(key for key, counts in count_levels(first).items() if counts.is_boolean or key not in others)
    if not keys:
        return {}
    if isinstance(source, DistributedSource):
        return source.reduce(partial(_counts_of_part, keys), _merged_counts)
    return _counts_of_part(keys, source, 0)


def _counts_of_part(keys: Collection[str | int], source: RowSource, first: int) -> dict[str | int, LevelCounts]:
    """Return the levels of columns in a part of a source."""
    counts = dict[str | int, LevelCounts]()
    for table, _ in tables_of(source, keys, first):
        counts = _merged_counts(counts, count_levels(table, keys))
    return counts


def _merged_counts(
    first: dict[str | int, LevelCounts], second: dict[str | int, LevelCounts]
) -> dict[str | int, LevelCounts]:
    """Return the levels of two parts."""
    return first | {key: first[key].merged(column, key) if key in first else column for key, column in second.items()}


def with_all_levels(schema: Schema, source: RowSource, indicators: Indicators, *, is_new: bool) -> Schema:
    """Return a schema with the levels of all rows of a source.

    The rows are read if a column has levels.

    Args:
        schema: The schema.
        source: The rows.
        indicators: The levels of columns that are read as indicators. Booleans among the levels are 0 and 1.
        is_new: Whether the schema is that of the first table, so that levels are sorted. Otherwise new levels come
            last.

    Raises:
        DataError: If a column cannot be read as levels.
    """
    level_indices = [index for index, column in enumerate(schema.columns) if column.kind is ColumnKind.LEVEL]
    if not level_indices:
        return schema
    begun = Schema(tuple(schema.columns[index] for index in level_indices))
    booleans = {column.key: () for column in begun.columns if indicators.get(column.key) == ()}
    if isinstance(source, DistributedSource):
        known = source.reduce(partial(_levels_of_part, begun, booleans), _merged)
    else:
        known = _levels_of_part(begun, booleans, source, 0)
    columns = list(schema.columns)
    for index, column in zip(level_indices, known.columns, strict=True):
        columns[index] = replace(column, levels=tuple(sorted(column.levels))) if is_new else column
    return Schema(tuple(columns))


def _levels_of_part(schema: Schema, booleans: Indicators, source: RowSource, first: int) -> Schema:
    """Return a schema extended by new levels of a part of a source."""
    for table, _ in tables_of(source, [column.key for column in schema.columns], first):
        schema = schema.extended(with_indicators(table, booleans))
    return schema


def _merged(first: Schema, second: Schema) -> Schema:
    """Return a schema extended by new levels of another."""
    pairs = zip(first.columns, second.columns, strict=True)
    return Schema(tuple(replace(a, levels=tuple(dict.fromkeys([*a.levels, *b.levels]))) for a, b in pairs))


def _of_one_type(X: Tensor, y: Any) -> tuple[Tensor, Any]:
    """Return inputs (b, D) and targets as float64, unless all are float32."""
    if isinstance(y, np.ndarray) and y.dtype in (np.float32, np.float64):
        is_single = X.dtype == torch.float32 and y.dtype == np.float32
        return (X, y) if is_single else (X.double(), y.astype(np.float64))
    return X, y
