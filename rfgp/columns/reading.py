"""Columns of a matrix: numbers, codes of levels and positions of nodes, from checked cells."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns.cells import Cells, CellType, as_float, as_numpy
from rfgp.columns.days import converted, origin_of, to_days
from rfgp.columns.kinds import ColumnKind
from rfgp.columns.levels import codes_of, factorize, factorize_values, ordered
from rfgp.columns.problems import cell_errors, type_errors
from rfgp.columns.requests import ColumnSchema
from rfgp.errors import DataError
from rfgp.messages import counted, one_line, short_repr

_EXACT = 2**53
"""The largest integer up to which float64 represents all integers."""
_MAX_LABELS = 8
"""The maximum number of unknown labels in one message."""


def fit_column(column: ColumnSchema, cells: Cells) -> ColumnSchema:
    """Return a column's schema fitted to its cells (n,): levels, or dates.

    Args:
        column: The schema before the fit.
        cells: The cells of the training data.

    Raises:
        DataError: If the cells cannot be read as the column's kind. The message lists every reason.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.reading import fit_column
        >>> fit_column(ColumnSchema("store", ColumnKind.LEVEL), of_objects(["south", "north"])).levels
        ('north', 'south')
    """
    _check(cell_errors(column, cells))
    if column.kind is ColumnKind.LEVEL:
        return replace(column, levels=ordered(cells))
    if column.kind is ColumnKind.NODE:
        positions_of(column, cells.expanded())
        return column
    cells = cells.expanded()
    return replace(column, is_date=cells.cell_type is CellType.DATE, zone=cells.zone, origin=_origin(column, cells))


def extend_column(column: ColumnSchema, cells: Cells) -> ColumnSchema:
    """Return a column's schema extended by new levels of cells (n,).

    Args:
        column: The schema of the training data.
        cells: The cells of additional training data.

    Raises:
        DataError: If the cells cannot be read as the column's kind, or differ in type from the training data.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.reading import extend_column
        >>> extend_column(
        ...     ColumnSchema("store", ColumnKind.LEVEL, levels=("north",)), of_objects(["south", "north"])
        ... ).levels
        ('north', 'south')
    """
    _check(cell_errors(column, cells) or type_errors(column, cells))
    if column.kind is not ColumnKind.LEVEL:
        return column
    return replace(column, levels=tuple(dict.fromkeys([*column.levels, *factorize(cells)[1]])))


def read_column(column: ColumnSchema, cells: Cells) -> Tensor:
    """Return the cells (n,) of a column as floating numbers.

    They are float64 unless the cells have another floating dtype.

    Args:
        column: The fitted schema.
        cells: The cells.

    Raises:
        DataError: If the cells cannot be read as the column's kind, or differ in type from the training data.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.reading import read_column
        >>> read_column(ColumnSchema("t", ColumnKind.NUMBER), of_objects([1, 2])).tolist()
        [1.0, 2.0]
    """
    _check(cell_errors(column, cells) or type_errors(column, cells))
    if column.kind is ColumnKind.LEVEL:
        return torch.from_numpy(codes_of(cells, column.levels))
    if column.kind is ColumnKind.NODE:
        return torch.from_numpy(positions_of(column, cells.expanded()).astype(np.float64))
    return _differences(column, cells.expanded())


def _origin(column: ColumnSchema, cells: Cells) -> int:
    """Return the first date in attoseconds, or the first of large integers. It is 0 for others."""
    if column.kind is not ColumnKind.NUMBER:
        return 0
    if cells.cell_type is CellType.DATE:
        return origin_of(cells.values)
    if cells.cell_type is not CellType.INTEGER or not len(cells.values):
        return 0
    first, largest = (int(cells.values[0]), max(abs(int(cells.values.max())), abs(int(cells.values.min()))))
    return first if largest > _EXACT else 0


def _differences(column: ColumnSchema, cells: Cells) -> Tensor:
    """Return the numbers (n,) of cells, minus the origin of the column."""
    if column.is_date:
        try:
            return _floating(to_days(converted(cells.times, column.zone), column.origin))
        except DataError as error:
            raise DataError(f"Column {short_repr(column.key)} {error}") from error
    if cells.cell_type is CellType.DURATION:
        return _floating(to_days(cells.values))
    values, origin = cells.values, column.origin
    if not origin:
        return _floating(values)
    if isinstance(values, Tensor):
        return _floating(values - origin)
    if cells.cell_type is CellType.INTEGER:
        return _floating(np.array([value - origin for value in values.tolist()], dtype=np.float64))
    return _floating((values - float(origin)) - float(origin - int(float(origin))))


def positions_of(column: ColumnSchema, cells: Cells) -> NDArray[np.int64]:
    """Return the positions (n,) of nodes with given labels.

    Args:
        column: The schema, with the graph of the labels.
        cells: The labels of the nodes.

    Raises:
        DataError: If the graph does not have some labels. The message lists several.

    Examples:
        >>> import graphs
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.reading import positions_of
        >>> line = graphs.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> positions_of(ColumnSchema("node", ColumnKind.NODE, nodes=line), of_objects(["c", "a"])).tolist()
        [2, 0]
    """
    if cells.cell_type is CellType.OBJECT:  # may be unhashable, or have both 1 and True as labels
        return _index(column, cells.values.tolist())
    indices, labels = factorize(cells)
    return _index(column, labels)[indices]


def _index(column: ColumnSchema, labels: list[Any]) -> NDArray[np.int64]:
    assert column.nodes is not None
    try:
        return np.asarray(column.nodes.index(labels), dtype=np.int64)
    except MemoryError:
        raise
    except Exception as error:  # from a graph, or from a label of a user's class
        raise DataError(_unknown(column, labels, error)) from error


def _unknown(column: ColumnSchema, labels: list[Any], error: Exception) -> str:
    """Return a sentence about labels that are not in the graph."""
    reason = f"{one_line(error).removesuffix('.')}."
    where = f"Column {short_repr(column.key)}, which {column.readers} reads,"
    try:
        candidates = factorize_values(labels)[1]
    except TypeError:  # some cannot be hashed
        candidates = labels
    unknown = [label for label in candidates if not _has(column, label)]
    if not unknown:
        return f"{where} must hold labels of nodes. {reason}"
    words = ", ".join(map(short_repr, unknown[:_MAX_LABELS])) + ", ..." * (len(unknown) > _MAX_LABELS)
    return f"{where} names {counted(len(unknown), 'node')} that the graph does not have: {words}. {reason}"


def _has(column: ColumnSchema, label: Any) -> bool:
    assert column.nodes is not None
    try:
        return len(column.nodes.index([label])) == 1
    except Exception:
        return False


def _floating(values: Any) -> Tensor:
    """Return numbers (n,) as a floating tensor, a copy unless they are one."""
    if isinstance(values, Tensor):
        return values if values.is_floating_point() else values.double()
    if values.dtype == object:
        values = np.array([as_float(value) for value in values.tolist()])
    kind = np.float32 if values.dtype.type is np.float32 else np.float64
    return torch.from_numpy(np.array(as_numpy(values), dtype=kind))


def _check(problems: list[str]) -> None:
    if problems:
        raise DataError("\n".join(problems))
