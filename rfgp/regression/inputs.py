"""Mixed columns and sources of rows as inputs of a model."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

import graphs
from rfgp.columns import ColumnKind, Schema, Table
from rfgp.columns.indicators import (
    Indicators,
    LevelCounts,
    count_levels,
    has_levels,
    keys_of_many_levels,
    learn_indicators,
    with_indicators,
)
from rfgp.counts import counted
from rfgp.errors import DataError
from rfgp.kernels import Group, Kernel
from rfgp.kernels.role import BoundTerm, ColumnSummary, check_points, hyperparameters_of
from rfgp.parameters import Hyperparameter
from rfgp.regression.options import ModelOptions
from rfgp.regression.starts import NARROWER, repetitions, shares_of
from rfgp.rows import Chunk, DistributedSource, InputReader, RowSource, TableSource
from rfgp.rows.arrays import OutputFormat, without_index

# --- Sources of rows that a model reads by column names, block by block ----------------------------------------------

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


# --- Mixed columns as inputs of a model ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """The columns of a kernel, read as one matrix (n, D).

    Attributes:
        schema: The columns. None before there are data.
        terms: The terms, with the indices of their columns.
        columns: The summary of the training rows. None before there are data.
        dtype: The dtype from the user. If None, that of the data.
        standardize: Whether numbers and targets are standardized.
        noise_terms: The terms of the kernel of the noise, if any.
        other_terms: The terms of the other models of an average.
        reads_all: Whether the first term reads all columns in order. Columns are then matched by position if names are
            missing.
        indicators: The levels of columns that are read as indicators, by key.
    """

    schema: Schema | None
    terms: Sequence[BoundTerm]
    columns: ColumnSummary | None
    dtype: torch.dtype | None
    standardize: bool
    noise_terms: Sequence[BoundTerm] = ()
    other_terms: Sequence[BoundTerm] = ()
    reads_all: bool = False
    indicators: Indicators = field(default_factory=dict)

    def read(self, inputs: Any) -> tuple[Tensor, OutputFormat]:
        """Return the columns of a table as a matrix (n, D), and the table's output format.

        Args:
            inputs: A table in any supported format.
        """
        assert self.schema is not None
        graph = self.terms[0].term.factors[0].nodes if len(self.schema.columns) == 1 else None
        table = self.named(with_indicators(table_of(inputs, graph), self.indicators))
        inputs = self.schema.read(table)
        inputs = inputs if self.dtype is None else inputs.to(self.dtype)
        check_points(self._all_terms, inputs)
        if self.columns is not None:
            check_near(self.schema, self.columns, inputs.detach())
        return inputs, OutputFormat(table.output_format.is_numpy, inputs.new_empty(0))

    def named(self, table: Table) -> Table:
        """Return a table with the training column names if one of the two has no names.

        Args:
            table: The table.

        Raises:
            DataError: If the first term reads all columns, and an array has another number of columns.
        """
        names = () if self.schema is None else tuple(column.key for column in self.schema.columns)
        if not names or not self.reads_all:
            return table
        is_array, has_names = table.source == "array", all(isinstance(name, str) for name in names)
        if is_array and len(table.keys) != len(names) and (has_names or names == tuple(range(len(names)))):
            raise DataError(
                f"X must have {counted(len(names), 'column')}, as the training data have, got {len(table.keys)}."
            )
        are_numbered = names == tuple(range(len(names))) and all(isinstance(key, str) for key in table.keys)
        if len(table.keys) != len(names) or not (has_names if is_array else are_numbered):
            return table
        columns = {name: table.columns[key] for name, key in zip(names, table.keys, strict=True)}
        return replace(table, keys=names, columns=columns)

    def coded(self, source: RowSource) -> RowSource:
        """Return a source whose blocks are matrices (b, D).

        Args:
            source: The source of the user's rows.
        """
        assert self.schema is not None
        origin = {f"{key}={level}": key for key, levels in self.indicators.items() for level in levels}
        keys = dict.fromkeys(origin.get(str(column.key), column.key) for column in self.schema.columns)
        return coded(source, self, tuple(keys))

    def quantities(self) -> dict[str, Hyperparameter]:
        """Return the hyperparameters of the kernel by dotted name.

        Variances of slopes share the variance of the target with the other terms. Several terms on the same columns
        start at different lengthscales.
        """
        assert self.columns is not None
        parameters = hyperparameters_of(self.terms, self.columns)
        shares = shares_of(self.terms)
        share = max(shares.values(), default=1.0)
        parameters = {
            path: replace(parameter, start=share * parameter.start) if parameter.is_variance else parameter
            for path, parameter in parameters.items()
        }
        for name, count in repetitions(self.terms).items():
            path = f"{name}.lengthscale"
            if count and path in parameters:
                parameters[path] = replace(parameters[path], start=NARROWER**count * parameters[path].start)
        return parameters

    def column_index(self, key: Any) -> int:
        """Return the index of a column of numbers.

        Args:
            key: The key of the column.

        Raises:
            InvalidArgumentError: If there is no such column of numbers.
        """
        assert self.schema is not None
        return self.schema.column_of(key, ColumnKind.NUMBER)

    @property
    def numeric_columns(self) -> dict[int, Any]:
        """The keys of the columns of numbers by index."""
        assert self.schema is not None
        return {
            index: column.key for index, column in enumerate(self.schema.columns) if column.kind is ColumnKind.NUMBER
        }

    def check(self, inputs: Tensor) -> None:
        """Check rows in the format of `read` for training rows.

        Args:
            inputs: The rows, (n, D).

        Raises:
            DataError: If the shape is wrong, or a level, node or point is unknown.
        """
        assert self.schema is not None
        assert self.columns is not None
        if inputs.ndim != 2 or inputs.shape[1] != len(self.schema.columns):
            raise DataError(f"The rows must have shape (n, {len(self.schema.columns)}), got {tuple(inputs.shape)}.")
        check_columns(self._all_terms, self.columns, inputs)

    @property
    def _all_terms(self) -> tuple[BoundTerm, ...]:
        return *self.terms, *self.noise_terms, *self.other_terms


def check_columns(terms: Sequence[BoundTerm], columns: ColumnSummary, inputs: Tensor) -> None:
    """Check that terms know the levels, nodes and points of rows.

    Args:
        terms: The terms.
        columns: The summary of the training columns.
        inputs: The rows, (n, D).

    Raises:
        DataError: If they do not. The message names the term.
    """
    for term in terms:
        for factor, indices, _ in term.parts():
            for index in indices if factor.kind in (ColumnKind.LEVEL, ColumnKind.NODE) else []:
                size = columns.num_levels[index] if factor.nodes is None else int(factor.nodes.num_nodes)
                cells = inputs[:, index]
                if not bool(((cells >= 0) & (cells < size) & (cells == cells.floor())).all()):
                    raise DataError(
                        f"The term {term.name!r} must have the {factor.kind.value}s of all rows, got another."
                    )
    check_points(terms, inputs)


def check_near(schema: Schema, columns: ColumnSummary, inputs: Tensor) -> None:
    """Check that numbers in rows are not too far from the training data.

    Args:
        schema: The schema of the columns.
        columns: The summary of the training columns.
        inputs: The rows, (n, D).

    Raises:
        DataError: If a number is too far away. The message names the column.
    """
    if not len(inputs):
        return
    most, scale = torch.finfo(inputs.dtype).max ** (1 / 3), columns.scale.double()
    ends = torch.stack(torch.aminmax(inputs, dim=0)).double()
    distances = ((ends - columns.location) / scale).abs().amax(0) / columns.spread
    for index in (~(distances <= most)).nonzero()[:, 0].tolist():
        if schema.columns[index].kind is ColumnKind.NUMBER:
            row = int(((inputs[:, index].double() - columns.location[index]) / scale[index]).abs().argmax())
            raise DataError(
                f"Column {schema.columns[index].key!r} must lie within {most:.0e} standard deviations of the training "
                f"data, got {float(inputs[row, index]):g} in row {row}. Check its unit."
            )


def with_levels_of(options: ModelOptions, table: Table, source: RowSource | None = None) -> ModelOptions:
    """Return the options of a model that reads levels as indicators.

    It does so if its kernel reads all columns. If the kernel is selected, it has a `Group` for each column with too
    many levels for indicators.

    Args:
        options: The options.
        table: The training data, or their first rows.
        source: The training data, if they are read in blocks. If None, the table has them all.

    Raises:
        DataError: If a column has missing cells, too many levels, or cells of different types.
    """
    if not any(factor.columns is None and factor.kind is ColumnKind.NUMBER for factor in _factors(options.kernel)):
        return options
    others = _keys_of_levels(options.kernel)
    counts = count_levels(table) if source is None else levels_of_source(source, table, others)
    if options.search_space is not None:
        options = options.changed(kernel=reduce(add, map(Group, keys_of_many_levels(counts)), options.kernel))
    return options.changed(indicators=learn_indicators(table, counts, _keys_of_levels(options.kernel)))


def open_keys(table: Table, kernel: Kernel) -> tuple[str | int, ...]:
    """Return the keys of the columns that a kernel reads by default.

    These are all columns except the index of a dataframe and texts that another kernel reads as levels.

    Args:
        table: The table.
        kernel: The kernel.

    Warns:
        IndexColumnWarning: If a column without a name may be an index, or is one and is left out.
    """
    if all(factor.columns is not None for factor in _factors(kernel)):
        return table.keys
    levels = _keys_of_levels(kernel)
    return tuple(key for key in _without_index(table) if key not in levels or not has_levels(table.cells(key)))


def _factors(kernel: Kernel) -> list[Kernel]:
    return [factor for term in kernel.terms() for factor in term.factors]


def _keys_of_levels(kernel: Kernel) -> set[str | int]:
    """Return the keys of named columns that a kernel reads as levels."""
    return {key for factor in _factors(kernel) if factor.kind is ColumnKind.LEVEL for key in factor.columns or ()}


def _without_index(table: Table) -> tuple[str | int, ...]:
    """Return the keys of the columns of a table without the index of a dataframe."""
    return without_index(table.keys, table.column, stacklevel=9) if table.source == "dataframe" else table.keys


def graph_of(kernel: Kernel) -> graphs.Graph | None:
    """Return the graph of a kernel that reads only nodes of one graph, or None.

    Args:
        kernel: The kernel.
    """
    nodes = {factor.nodes for term in kernel.terms() for factor in term.factors}
    return nodes.pop() if len(nodes) == 1 else None


def table_of(X: Any, graph: graphs.Graph | None) -> Table:
    """Return inputs as a table.

    If a kernel reads only nodes of a graph, labels may be tuples.

    Args:
        X: A dataframe, an array (n, D), or node labels (n,).
        graph: The graph of node labels. If None, X has columns.
    """
    if graph is not None and graph.labels is not None and isinstance(graph.labels[0], tuple):
        rows = X.tolist() if isinstance(X, Tensor | np.ndarray) else X
        size = len(graph.labels[0])
        if isinstance(rows, list | tuple) and any(isinstance(row, list | tuple) and len(row) == size for row in rows):
            labels = np.empty(len(rows), dtype=object)
            labels[:] = [tuple(row) if isinstance(row, list) else row for row in rows]
            return Table.of(labels)
    return Table.of(X)


def without_missing(given: Chunk, kernel: Kernel) -> Chunk:
    """Leave out rows with NaN in y if a kernel reads only nodes of one graph.

    Args:
        given: The training data, with y (n,) or (n, k).
        kernel: The kernel.

    Raises:
        DataError: If a row lacks some outputs but not all, or every row is missing.
    """
    graph, y, is_table = graph_of(kernel), given.y, isinstance(given.X, Mapping) or hasattr(given.X, "columns")
    if graph is None or is_table or isinstance(y, str):
        return given
    try:
        values = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y if y is not None else 0.0)
    except ValueError:  # ragged targets raise an error in their reader
        return given
    if values.dtype.kind != "f" or values.ndim not in (1, 2) or not np.isnan(values).any():
        return given
    missing = np.isnan(values).reshape(len(values), -1)
    partly = missing.any(1) & ~missing.all(1)
    if partly.any():
        raise DataError(
            f"A row must have values for all outputs or none, got {int(partly.sum())} rows with some, the first in row "
            f"{int(partly.argmax())}. Outputs share one posterior covariance, so fit a model for each output."
        )
    if missing.all():
        raise DataError(f"y must have a value, got {len(values)} missing ones (NaN).")
    graph.index(given.X.tolist() if isinstance(given.X, Tensor) else given.X)  # check the labels of all rows
    present = np.flatnonzero(~missing.all(1))
    return Chunk(*(_take(column, present, len(values)) for column in given[:4]))


def _take(column: Any, rows: Any, count: int) -> Any:
    if column is None or not hasattr(column, "__len__") or len(column) != count:
        return column  # a wrong length raises an error in its reader
    if isinstance(column, Tensor):
        return column[torch.from_numpy(rows)]
    if isinstance(column, list | tuple):
        return [column[i] for i in rows]
    return np.asarray(column)[rows]
