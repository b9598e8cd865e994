"""Levels of a category: distinct values as plain Python objects, and their codes."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import Cells, CellType, as_numpy
from rfgp.columns.requests import Level


def factorize(cells: Cells) -> tuple[NDArray[np.int64], list[Level]]:
    """Return the index (n,) of each cell, and the distinct values as Python objects.

    Distinct values are in order of first appearance.

    Args:
        cells: The cells of the column.

    Examples:
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.levels import factorize
        >>> indices, labels = factorize(of_objects(["south", "north", "south"]))
        >>> indices.tolist(), labels
        ([0, 1, 0], ['south', 'north'])
    """
    if cells.codes is None:
        return factorize_values(_python_values(cells.cell_type, cells.values))
    indices, used = factorize_values(cells.codes.tolist())
    merged, labels = factorize_values(_python_values(cells.cell_type, cells.values[used]))
    return merged[indices], labels


def factorize_values(values: Iterable[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the index (n,) of each value, and the distinct values in order of first appearance.

    Args:
        values: Hashable values (n,).

    Examples:
        >>> from rfgp.columns.levels import factorize_values
        >>> factorize_values("aba")[1]
        ['a', 'b']
    """
    listed = list(values)
    index_of = {value: index for index, value in enumerate(dict.fromkeys(listed))}
    return np.fromiter(map(index_of.__getitem__, listed), dtype=np.int64, count=len(listed)), list(index_of)


def ordered(cells: Cells) -> tuple[Level, ...]:
    """Return the levels of a column, sorted or in the order of the user.

    Args:
        cells: The cells (n,) of the column.

    Examples:
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.levels import ordered
        >>> ordered(of_objects(["south", "north"]))
        ('north', 'south')
    """
    if cells.codes is None or not cells.is_ordered:
        return tuple(sorted(factorize(cells)[1]))
    return tuple(dict.fromkeys(_python_values(cells.cell_type, cells.values[np.unique(cells.codes)])))


def codes_of(cells: Cells, levels: tuple[Level, ...]) -> NDArray[np.float64]:
    """Return the codes (n,) of cells among levels.

    New labels get the codes num_levels, num_levels + 1, ... in order of first appearance.

    Args:
        cells: The cells of the column.
        levels: The levels of the training data.

    Examples:
        >>> from rfgp.columns.cells import of_objects
        >>> from rfgp.columns.levels import codes_of
        >>> codes_of(of_objects(["b", "new", "a", "new"]), ("a", "b")).tolist()
        [1.0, 2.0, 0.0, 2.0]
    """
    indices, labels = factorize(cells)
    code_of = {label: code for code, label in enumerate(dict.fromkeys([*levels, *labels]))}
    return np.array([code_of[label] for label in labels], dtype=np.float64)[indices]


def _python_values(cell_type: CellType, values: Any) -> list[Level]:
    """Return the values (n,) of levels as plain Python objects, floats as integers."""
    if cell_type in (CellType.DATE, CellType.DURATION):
        return list(map(str, values))
    listed = as_numpy(values).tolist()
    return list(map(int, listed)) if cell_type is CellType.NUMBER else list(listed)
