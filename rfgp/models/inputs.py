"""Mixed columns and sources of rows as inputs of a model, and starting values from them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

import graphs
from graphs.checks import machine_memory
from rfgp import random
from rfgp.approximations import Approximation
from rfgp.approximations.role import TermData
from rfgp.blocks import Prior
from rfgp.columns import ColumnKind, InputSchema, InputTable
from rfgp.columns.indicators import Indicators, LevelCounts, count_levels, with_indicators
from rfgp.columns.table import frame_of_grid, is_grid, without_index
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.kernels import Kernel
from rfgp.kernels.role import BoundTerm, ColumnSummary
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, Chunk, DistributedSource, InputReader, Rows, RowSource, TableSource, rows_in_memory
from rfgp.scaling import moments

# --- Sources of rows that a model reads by column names, block by block ----------------------------------------------

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class CodedSource:
    """The rows of a source as matrices of numbers: codes of levels, and days of dates.

    Attributes:
        source: The user's rows.
        reader: The reader of tables.
        keys: The names of the columns to read.
        first: The number of preceding rows, for messages.
    """

    source: RowSource
    reader: InputReader
    keys: tuple[str | int, ...]
    first: int = 0

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in blocks."""
        for table, chunk in tables_of(self.source, self.keys, self.first):
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
        return over_parts(self.source, partial(_of_coded_part, self.reader, self.keys, function), combine)


def _of_coded_part(
    reader: InputReader,
    keys: tuple[str | int, ...],
    function: Callable[[RowSource, int], T],
    part: RowSource,
    first: int,
) -> T:
    return function(CodedSource(part, reader, keys, first), first)


def over_parts(source: RowSource, function: Callable[[RowSource, int], T], combine: Callable[[T, T], T]) -> T:
    """Return the results of a function of all parts of a source, combined in order.

    Args:
        source: The rows. Unless they are distributed they are one part.
        function: Maps a part and the number of rows before it to a result.
        combine: Combines two results.
    """
    return source.reduce(function, combine) if isinstance(source, DistributedSource) else function(source, 0)


def tables_of(
    source: RowSource, keys: Collection[str | int] | None = None, first: int = 0
) -> Iterator[tuple[InputTable, Chunk]]:
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
            table = replace(InputTable.of(X), first=first)
            first += table.num_rows
            yield table, chunk


def first_table(source: RowSource) -> InputTable:
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
    source: RowSource, first: InputTable, others: Collection[str | int] = ()
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
    return over_parts(source, partial(_counts_of_part, keys), _merged_counts)


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


def with_all_levels(schema: InputSchema, source: RowSource, indicators: Indicators, *, is_new: bool) -> InputSchema:
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
    begun = InputSchema(tuple(schema.columns[index] for index in level_indices))
    booleans: Indicators = {key: () for key in begun.sources if indicators.get(key) == ()}
    known = over_parts(source, partial(_levels_of_part, begun, booleans), _merged)
    columns = list(schema.columns)
    for index, column in zip(level_indices, known.columns, strict=True):
        columns[index] = replace(column, levels=tuple(sorted(column.levels))) if is_new else column
    return InputSchema(tuple(columns))


def _levels_of_part(schema: InputSchema, booleans: Indicators, source: RowSource, first: int) -> InputSchema:
    """Return a schema extended by new levels of a part of a source."""
    for table, _ in tables_of(source, schema.sources, first):
        schema = schema.extended(with_indicators(table, booleans))
    return schema


def _merged(first: InputSchema, second: InputSchema) -> InputSchema:
    """Return a schema extended by new levels of another."""
    pairs = zip(first.columns, second.columns, strict=True)
    return InputSchema(tuple(replace(a, levels=tuple(dict.fromkeys([*a.levels, *b.levels]))) for a, b in pairs))


def _of_one_type(X: Tensor, y: Any) -> tuple[Tensor, Any]:
    """Return inputs (b, D) and targets as float64, unless all are float32."""
    if isinstance(y, np.ndarray) and y.dtype in (np.float32, np.float64):
        is_single = X.dtype == torch.float32 and y.dtype == np.float32
        return (X, y) if is_single else (X.double(), y.astype(np.float64))
    return X, y


# --- Mixed columns as inputs of a model ------------------------------------------------------------------------------


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
            if factor.domain is not None:  # whose columns are not standardized
                factor.check_rows(inputs[:, indices])


def check_near(schema: InputSchema, columns: ColumnSummary, inputs: Tensor) -> None:
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


def open_keys(table: InputTable, kernel: Kernel) -> tuple[str | int, ...]:
    """Return the keys of the columns that a kernel reads by default.

    These are all columns except the index of a dataframe and texts that another kernel reads as levels.

    Args:
        table: The table.
        kernel: The kernel.

    Warns:
        IndexColumnWarning: If a column without a name may be an index, or is one and is left out.
    """
    if all(factor.columns is not None for factor in factors_of(kernel)):
        return table.keys
    levels = keys_of_levels(kernel)
    return tuple(key for key in _without_index(table) if key not in levels or not table.cells(key).has_levels)


def factors_of(kernel: Kernel) -> list[Kernel]:
    """Return the factors of all terms of a kernel.

    Args:
        kernel: The kernel.
    """
    return [factor for term in kernel.terms() for factor in term.factors]


def keys_of_levels(kernel: Kernel) -> set[str | int]:
    """Return the keys of named columns that a kernel reads as levels.

    Args:
        kernel: The kernel.
    """
    return {key for factor in factors_of(kernel) if factor.kind is ColumnKind.LEVEL for key in factor.columns or ()}


def _without_index(table: InputTable) -> tuple[str | int, ...]:
    """Return the keys of the columns of a table without the index of a dataframe."""
    return without_index(table.keys, table.column) if table.source == "dataframe" else table.keys


def graph_of(kernel: Kernel) -> graphs.Graph | None:
    """Return the graph of a kernel that reads only nodes of one graph, or None.

    Args:
        kernel: The kernel.
    """
    nodes = {factor.nodes for factor in factors_of(kernel)}
    return nodes.pop() if len(nodes) == 1 else None


def table_of(X: Any, graph: graphs.Graph | None) -> InputTable:
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
            return InputTable.of(labels)
    return InputTable.of(X)


def of_grid(given: Chunk, *, is_averaged: bool = False) -> Chunk:
    """Return a grid of xarray as a dataframe without the cells whose targets are missing, and other data as they are.

    Args:
        given: The training data, with the name of y, or several.
        is_averaged: Whether all cells are kept, because one of an area has its target.
    """
    if not is_grid(given.X):
        return given
    frame, names = frame_of_grid(given.X), [given.y] if isinstance(given.y, str) else given.y
    if is_averaged or not isinstance(names, list) or not set(names) <= set(frame.columns):
        return given._replace(X=frame)  # a wrong name raises an error in its reader
    present = np.flatnonzero(frame[names].notna().any(axis=1))
    others = (_take(column, present, len(frame)) for column in given[2:4])
    return Chunk(frame.iloc[present].reset_index(drop=True), given.y, *others)


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


# --- The memory of all terms -----------------------------------------------------------------------------------------

MEMORY_SHARE = 0.8
"""The default memory limit of a model, as a fraction of the machine's memory."""


def check_memory(chosen: Mapping[str, Approximation], terms: Sequence[TermData], limit: float | None) -> None:
    """Check that terms fit into memory, before anything is allocated.

    Args:
        chosen: The approximations of all terms by name.
        terms: The terms.
        limit: The memory limit in bytes. If None, a fixed fraction of the machine's memory.

    Raises:
        InvalidArgumentError: If they do not. The message names the largest term, its memory and a remedy.
    """
    allowed = MEMORY_SHARE * machine_memory() if limit is None else limit
    costs = {data.term.name: chosen[data.term.name].cost(data) for data in terms}
    total = sum(cost.memory for cost in costs.values())
    if total > allowed:
        name = max(costs, key=lambda term: costs[term].memory)
        raise InvalidArgumentError(
            f"The model must fit into {allowed / 2**30:,.3g} GiB, got {total / 2**30:,.3g} GiB. The term {name!r} "
            f"takes {costs[name].memory / 2**30:,.3g} GiB by {costs[name].note}. Give it another approximation, such "
            "as rfgp.RandomFeatures() or rfgp.InducingPoints() with fewer features."
        )


# --- Starting values of kernels, and samples of rows for their computation -------------------------------------------

MAX_SAMPLED = 10_000
"""The maximum number of rows whose columns are summarised for starting values and random draws."""
FREEDOM = 0.5
"""The prior standard deviation of the logarithm of a factor of a free modulation."""


def kernel_starts(terms: Sequence[BoundTerm]) -> Iterator[tuple[str, Any]]:
    """Yield the starting values of kernels by dotted name, in the user's units.

    Args:
        terms: The terms.

    Raises:
        InvalidArgumentError: If a term has a starting variance but no output scale.
    """
    for term in terms:
        for factor, _, prefix in term.parts():
            for name, value in factor.starts.items():
                if value is not None:
                    yield f"{prefix}{name}", value
        if term.term.variance is not None:
            if term.outputscale is None:
                raise InvalidArgumentError(
                    f"The term {term.name!r} has no output scale to start at {term.term.variance:g}. Give start= for "
                    "its variance."
                )
            yield term.outputscale, term.term.variance


NARROWER, WEAKER = 0.5, 0.25
"""The factors of the starting lengthscale and variance for each earlier term on the same columns.

Equal starts ended 20 to 110 nats lower for a sum of a Gaussian and a Matern kernel on 927 rows of concrete."""


def repetitions(terms: Sequence[BoundTerm]) -> dict[str, int]:
    """Return the number of earlier stationary terms on the same columns by term name.

    Args:
        terms: The terms.
    """
    counts, seen = dict[str, int](), list[tuple[int, ...]]()
    for term in terms:
        is_stationary = len(term.column_indices) == 1 and term.term.factors[0].measure is not None
        indices = tuple(sorted(term.column_indices[0])) if is_stationary else ()
        counts[term.name] = seen.count(indices) if indices else 0
        seen += [indices] if indices else []
    return counts


def shares_of(terms: Sequence[BoundTerm]) -> dict[str, float]:
    """Return the starting variances of terms by name, in variances of the target.

    Args:
        terms: The terms.
    """
    earlier = repetitions(terms)
    first = sum(count == 0 for count in earlier.values())
    return {name: WEAKER**count / first for name, count in earlier.items()}


def sampled(rows: Rows, seed: int, most: int = MAX_SAMPLED) -> Block:
    """Return all rows, or a random sample of them.

    Args:
        rows: The rows.
        seed: The seed of the sample.
        most: The largest number of rows.
    """
    block = rows_in_memory(rows)
    if len(block) <= most:
        return block
    order = torch.randperm(len(block), generator=random.generator(seed, random.Role.SAMPLE))
    return block.take(order[:most])


def mean_variance(prior: Prior, term: BoundTerm, values: ParameterValues, rows: Block) -> Tensor:
    """Return the mean prior variance of a term over rows at an output scale of 1, 0-d.

    Args:
        prior: The prior at the values.
        term: The term.
        values: The hyperparameters.
        rows: The rows.
    """
    assert term.outputscale is not None
    total = moments(prior.of([term.name]).diagonal(rows.inputs), rows.weight)[0]
    return total / values.standardized(term.outputscale).double()


def parameters_of_nodes(terms: Sequence[BoundTerm]) -> dict[str, tuple[str, ...]]:
    """Return dotted names of graph-kernel parameters by that of their output scale.

    Args:
        terms: The terms.
    """
    paths = dict[str, tuple[str, ...]]()
    for term in terms:
        names = [
            f"{prefix}{name}"
            for factor, _, prefix in term.parts()
            if factor.nodes is not None
            for name in factor.starts
        ]
        if term.outputscale is not None and names:
            paths[term.outputscale] = tuple(names)
    return paths
