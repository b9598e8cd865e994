"""Names of the columns of dataframes, and the match of columns to those of the training data."""

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import DataError, IndexColumnWarning, NewLevelWarning
from rfgp.messages import listed, short_repr

_NAMES = re.compile(r"(?:Unnamed: \d+(?:\.\d+)*|__index_level_\d+__)?")
"""Matches the names that pandas and Parquet give to an unnamed index."""


def is_index_name(name: str) -> bool:
    """Return whether a name is one that pandas or Parquet give to an unnamed index.

    Args:
        name: The name.
    """
    return _NAMES.fullmatch(name.strip()) is not None


def counts_rows(
    values: NDArray[Any],  # (n,)
) -> bool:
    """Return whether a column counts its rows, from 0 like pandas or from 1 like R.

    Args:
        values: The column (n,).
    """
    if values.dtype.kind not in "fiu" or len(values) < 2 or values[0] not in (0, 1):
        return False
    return bool(np.array_equal(values, values[0] + np.arange(len(values))))


def warn_of_index(where: str, name: str, is_left_out: bool, drop: str, stacklevel: int) -> None:
    """Warn of a column with the name of an index.

    Args:
        where: The file or object with the column.
        name: The column's name.
        is_left_out: Whether the column counts the rows and is left out. Otherwise it is an input.
        drop: The code that leaves the column out.
        stacklevel: As for `warnings.warn`.
    """
    message = f"{where}: column {name!r} is an input, but may be an unnamed index. Leave it out with {drop}"
    if is_left_out:
        message = f"{where}: column {name!r} is left out, because it counts the rows like an unnamed index. Write files"
        message += " with DataFrame.to_csv(index=False)"
    warnings.warn(IndexColumnWarning(f"{message}, or give it a name to use it."), stacklevel=stacklevel)


def warn_of_levels(key: Any, levels: Sequence[Any], stacklevel: int) -> None:
    """Warn of levels of a column that are not in the training data.

    Args:
        key: The name of the column.
        levels: The new levels.
        stacklevel: As for `warnings.warn`.
    """
    names = listed(list(map(str, levels)))
    message = (
        f"Column {short_repr(key)} has {counted(len(levels), 'level')} without training rows: {names}. "
        "Rows with a new level are predicted with zeros in all indicators of the column. A kernel with "
        f"Group({short_repr(key)}) gives a new level its prior variance."
    )
    warnings.warn(NewLevelWarning(message), stacklevel=stacklevel)


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a dataframe as texts, or None for other objects.

    Args:
        X: The inputs.

    Raises:
        DataError: If several columns have the same name.
    """
    labels = _labels(X)
    if labels is None:
        return None
    names = tuple(map(str, labels))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Columns of X must have unique names, got {twice!r} twice. Rename them, or pass X.to_numpy().")
    return names


def _labels(X: Any) -> Any:
    """Return the labels of the columns of a dataframe of pandas, Arrow or polars. None for other objects."""
    if not hasattr(X, "__array__") or isinstance(X, np.ndarray | Tensor):
        return None
    arrows = None if hasattr(X, "iloc") else getattr(X, "column_names", None)  # in pandas it could be a column
    return getattr(X, "columns", None) if arrows is None else arrows


def without_index(X: Any, names: tuple[str, ...], stacklevel: int = 2) -> tuple[str, ...]:
    """Return the column names of a dataframe without those of an index, with a warning.

    If no column would remain, all are kept.

    Args:
        X: The dataframe.
        names: The names of its columns.
        stacklevel: As for `warnings.warn`.
    """
    unnamed = [index for index, name in enumerate(names) if is_index_name(name)]
    counts = {index for index in unnamed if counts_rows(np.asarray(_taken(X, [index])).reshape(-1))}
    if len(counts) == len(names):
        return names
    for index in unnamed:
        drop = f"X.drop(columns={names[index]!r})"
        warn_of_index("X", names[index], index in counts, drop, stacklevel + 1)
    return tuple(name for index, name in enumerate(names) if index not in counts)


def arranged(X: Any, wanted: tuple[str, ...] | None, names: tuple[str, ...] | None = None) -> Any:
    """Return inputs (n, d) with only the wanted columns, in order.

    Args:
        X: Inputs: a dataframe, or an array.
        wanted: The names of the training columns. If None, columns are matched by position.
        names: The names of the columns of X. If None, those of X, if any. Without names, columns are matched by
            position.

    Raises:
        DataError: If a wanted column is missing.
    """
    names = names_of(X) if wanted is not None and names is None else names
    if wanted is None or names is None or names == wanted:
        return X
    index_of = {name: index for index, name in enumerate(names)}
    missing = [name for name in wanted if name not in index_of]
    if missing:
        raise DataError(
            f"X must have the column {missing[0]!r} of the training data, got {', '.join(names)[:200]} "
            f"({len(missing)} of {len(wanted)} are missing). Rename columns, or match them by position: X.to_numpy()."
        )
    return _taken(X, [index_of[name] for name in wanted])


def _taken(X: Any, indices: list[int]) -> Any:
    """Return some columns of inputs (n, d)."""
    if hasattr(X, "iloc"):
        return X.iloc[:, indices]
    if hasattr(X, "select") and not isinstance(X, Tensor):  # polars and Arrow; a tensor's select differs
        labels = _labels(X)
        return X.select([labels[index] for index in indices])
    return X[:, indices] if isinstance(X, Tensor) else np.asarray(X)[:, indices]
