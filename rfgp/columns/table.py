"""Tables: dataframes, dicts, arrays and sequences of labels, with keys for their columns."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns.cells import IN_TIME, REAL, Column, objects
from rfgp.columns.rules import AREA_KEY, ColumnKind, ColumnSchema, Key, MatrixKey, SphereKey
from rfgp.errors import DataError, IndexColumnWarning, NewLevelWarning, warn
from rfgp.messages import counted, did_you_mean, listed, one_line, short_repr

K = TypeVar("K")

_INDEX_NAME = re.compile(r"(?:Unnamed: \d+(?:\.\d+)*|__index_level_\d+__)?")
"""Matches the names that pandas and Parquet give to an unnamed index."""
ROUNDING = 1e-6
"""The number of degrees by which angles may be too large. It exceeds the rounding of float32."""
NODE_KEY = "node"
"""The key of a sequence of node labels."""


class OutputFormat(NamedTuple):
    """The container of results: numpy or torch, with the dtype and the device."""

    is_numpy: bool
    like: Tensor  # (0,) of the dtype and device


@dataclass(frozen=True, eq=False, repr=False)
class InputTable:
    """The inputs of a model, as columns with keys. Build it with `InputTable.of`.

    Attributes:
        keys: The names of the columns, or their numbers in an array.
        num_rows: The number n of rows.
        columns: The columns (n,) by key, in the user's container. A column may have two keys.
        source: "dataframe", "dict", "array" or "sequence".
        first: The number of the first row, for messages.
        array: The array or tensor (n, d) with the columns of `keys`. If None, the table was made of something else.

    Examples:
        >>> from rfgp.columns import InputTable
        >>> InputTable.of({"t": [0.5, 1.5], "store": ["north", "south"]})
        InputTable(2 rows, 2 columns: t, store)
    """

    keys: tuple[Key, ...]
    num_rows: int
    columns: Mapping[Key, Any]
    source: str
    first: int = 0
    array: Any = None

    @classmethod
    def of(cls, X: Any, target: Key | None = None) -> "InputTable":
        """Return a dataframe, dict, array (n, d) or sequence (n,) as a table.

        Args:
            X: A dataframe of pandas, polars or Arrow, a Dataset or DataArray of xarray, a dict of arrays, lists or
                tensors (n,), or an InputTable. An array, tensor or list of rows (n, d) has keys 0 to d - 1. A sequence
                (n,) of labels has the key "node" or 0.
            target: The key of a column that is left out. If None, all columns are kept.

        Raises:
            DataError: If two columns have the same name, columns differ in length or are not one-dimensional, or there
                are no rows or columns. Also if the target is not a column.

        Examples:
            >>> from rfgp.columns import InputTable
            >>> InputTable.of([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).keys
            (0, 1)
            >>> InputTable.of({"t": [0.5, 1.5], "units": [3, 4]}, target="units").keys
            ('t',)
        """
        try:
            table = X if isinstance(X, InputTable) else _read(X)
        except (DataError, MemoryError):
            raise
        except Exception as error:  # from a user's class
            raise DataError(f"X must be a table, but a {type(X).__name__} cannot be read: {one_line(error)}") from error
        return table if target is None else table.without(target)

    @property
    def output_format(self) -> OutputFormat:
        """The container of predictions: numpy or torch, dtype and device."""
        tensors = [column for column in self.columns.values() if isinstance(column, Tensor)]
        types = [_floating_type(self.columns[key]) for key in self.keys] or [torch.float64]
        dtype = functools.reduce(torch.promote_types, types)
        return OutputFormat(not tensors, torch.empty(0, dtype=dtype, device=tensors[0].device if tensors else "cpu"))

    def column(self, key: Key, term_name: str = "") -> Any:
        """Return a column (n,) in its container: a tensor, an array, a list or a series.

        Args:
            key: The column's name, or its number in an array.
            term_name: The kernel term that reads it, for messages. If empty, no term is named.

        Raises:
            DataError: If there is no such column. The message lists the columns.

        Examples:
            >>> from rfgp.columns import InputTable
            >>> InputTable.of({"t": [0.5, 1.5]}).column("t")
            [0.5, 1.5]
        """
        if isinstance(key, str | int | np.integer) and not isinstance(key, bool) and key in self.columns:
            return self.columns[key]
        raise DataError(
            f"X has no column {short_repr(key)}{_read_by(term_name).removesuffix(',')}. {self._remedy(key)}"
        )

    def floats(self, keys: Sequence[Key]) -> Tensor | None:
        """Return columns of an array of finite floating numbers as a matrix (n, len(keys)), or None for other tables.

        Args:
            keys: The keys of the columns.

        Examples:
            >>> from rfgp.columns import InputTable
            >>> InputTable.of(np.array([[0.5, 1.0, 2.0]])).floats([0, 2]).tolist()
            [[0.5, 2.0]]
        """
        array, places = self.array, {key: place for place, key in enumerate(self.keys)}
        if array is None or array.shape[1] != len(places) or any(key not in places for key in keys):
            return None
        indices = [places[key] for key in keys]
        if isinstance(array, np.ndarray) and array.dtype in (np.float32, np.float64):
            found = torch.from_numpy(np.take(np.asarray(array), indices, axis=1))
        elif type(array) is Tensor and array.dtype in (torch.float32, torch.float64):
            found = array[:, indices]
        else:
            return None
        return found if bool(torch.isfinite(found.detach()).all()) else None

    def cells(self, key: MatrixKey, term_name: str = "") -> Column:
        """Return the cells (n,) of a column, independent of the container.

        Args:
            key: The column's name, or its number in an array.
            term_name: The kernel term that reads it, for messages. If empty, no term is named.

        Raises:
            DataError: If there is no such column, or it cannot be read.

        Examples:
            >>> from rfgp.columns import InputTable
            >>> InputTable.of({"t": [0.5, 1.5]}).cells("t").cell_type.value
            'numbers'
        """
        if key == AREA_KEY and key not in self.columns:  # the rows are points
            return Column.of(np.full(self.num_rows, -1.0))
        if isinstance(key, SphereKey):
            longitude, latitude = self._angles(key.longitude, term_name, 360), self._angles(key.latitude, term_name, 90)
            return Column.of(key.coordinate(longitude, latitude))
        column = self.column(key, term_name)
        try:
            return replace(Column.of(column), first=self.first)
        except DataError as error:
            raise DataError(f"Column {short_repr(key)}{_read_by(term_name)} {error}") from error
        except MemoryError:
            raise
        except Exception as error:  # from a user's class
            reason = f"cannot be read: {one_line(error).removesuffix('.')}. Convert it to a numpy array."
            raise DataError(f"Column {short_repr(key)}{_read_by(term_name)} {reason}") from error

    def take(self, rows: NDArray[np.int64], more: Mapping[Key, Any] | None = None) -> "InputTable":
        """Return some rows of the table, with further columns that are not among its keys.

        Args:
            rows: The positions of the rows, (m,).
            more: The further columns (m,) by key. If None, there are none.

        Examples:
            >>> from rfgp.columns import InputTable
            >>> InputTable.of({"t": [0.5, 1.5, 2.5]}).take(np.array([2, 0])).cells("t").values.tolist()
            [2.5, 0.5]
        """

        def taken(column: Any) -> Any:
            if isinstance(column, Tensor):
                return column[torch.from_numpy(rows)]
            is_array = isinstance(column, np.ndarray) and not isinstance(column, np.ma.MaskedArray)
            return column[rows] if is_array else Column.of(column).take(rows)

        columns = {key: taken(column) for key, column in self.columns.items()}
        return replace(self, num_rows=len(rows), columns={**columns, **(more or {})}, array=None)

    def _angles(self, key: Key, term_name: str, most: float) -> Tensor:
        """Return a column (n,) of degrees as numbers, all of them within `most` degrees of 0."""
        cells = self.cells(key, term_name)
        degrees = ColumnSchema(key, ColumnKind.SPHERE).read(cells)
        is_inside = degrees.detach().abs() <= most + ROUNDING
        if not bool(is_inside.all()):
            row = int((~is_inside).int().argmax())
            raise DataError(
                f"Column {short_repr(key)}{_read_by(term_name)} must lie between -{most:g} and {most:g} degrees, got "
                f"{float(degrees[row]):.9g} in row {cells.first + row}. The first column of Sphere is the longitude "
                "and the second the latitude, and projected coordinates have other kernels, such as k.Matern."
            )
        return degrees

    def without(self, target: Key) -> "InputTable":
        """Return the table without the column of the target.

        Args:
            target: The key of the column.

        Raises:
            DataError: If there is no such column.

        Examples:
            >>> from rfgp.columns import InputTable
            >>> InputTable.of({"t": [0.5, 1.5], "units": [3, 4]}).without("units").keys
            ('t',)
        """
        self.column(target)
        others = {key: column for key, column in self.columns.items() if key != target}
        return replace(self, keys=tuple(key for key in self.keys if key != target), columns=others)

    def split(self, y: Any) -> tuple["InputTable", Any]:
        """Return the table without its targets, and the targets (n,) or (n, k).

        Args:
            y: The targets, the key of their column in a dataframe or dict, or a list of k names.

        Raises:
            DataError: If there is no such column.

        Examples:
            >>> from rfgp.columns import InputTable
            >>> table, y = InputTable.of({"t": [0.5, 1.5], "units": [3, 4], "returns": [0, 1]}).split(
            ...     ["units", "returns"]
            ... )
            >>> table.keys, y.tolist()
            (('t',), [[3, 0], [4, 1]])
        """
        is_number = isinstance(y, int | np.integer) and not isinstance(y, bool)
        if isinstance(y, str) or (is_number and self.source in ("dataframe", "dict")):
            return self.without(y), self.column(y)
        if not isinstance(y, list | tuple) or not y or not all(isinstance(key, str) and key in self.keys for key in y):
            return self, y
        columns = [self.column(key) for key in y]
        are_tensors = all(isinstance(column, Tensor) for column in columns)
        targets: Any = torch.stack(columns, 1) if are_tensors else np.stack([np.asarray(c) for c in columns], axis=1)
        return functools.reduce(InputTable.without, y, self), targets

    def check_labels(self) -> None:
        """Check that the table is no sequence (n,) of numbers or dates.

        Raises:
            DataError: If X is a sequence instead of a matrix (n, d).

        Examples:
            >>> from rfgp.columns import InputTable
            >>> InputTable.of(["a", "b"]).check_labels()
        """
        if self.source == "sequence" and self.cells(NODE_KEY).cell_type in (*REAL, *IN_TIME):
            raise DataError(
                f"X must have shape (n, d), got ({self.num_rows},). Use X.reshape(-1, 1) for one column, or "
                "X.reshape(1, -1) for one row. A series of pandas has X.to_frame()."
            )

    def _remedy(self, key: Any) -> str:
        """Return a remedy for an unknown key."""
        names = [str(known) for known in self.keys]
        if self.source == "array":
            range_ = f"0 to {len(names) - 1}" if len(names) > 1 else "0"
            more = " Pass a dataframe or a dict to use names." if isinstance(key, str) else ""
            return f"X is an array, whose columns are numbered {range_}.{more}"
        if self.source == "sequence":
            return f'X is a sequence of labels, whose only column is "{NODE_KEY}".'
        known = f"Its columns are: {listed(names) or 'none'}."
        index = [str(key) for key in self.columns if key not in self.keys]
        known += f" Its index is {listed(index)}." * bool(index)
        if isinstance(key, str):
            return known + did_you_mean(key, [name for name in self.keys if isinstance(name, str)])
        usable = isinstance(key, int | np.integer) and 0 <= key < len(self.keys)
        name = f" Use {short_repr(self.keys[key])} for the column at position {key}." if usable else ""
        return f"The columns of a {self.source} are read by their names. {known}{name}"

    def __repr__(self) -> str:
        sizes = f"{counted(self.num_rows, 'row')}, {counted(len(self.keys), 'column')}"
        return f"InputTable({sizes}: {listed([str(key) for key in self.keys])})"


def _read_by(term_name: str) -> str:
    return f", which {term_name} reads," * bool(term_name)


def _floating_type(column: Any) -> torch.dtype:
    """Return the floating dtype of a column (n,) after reading."""
    if isinstance(column, Tensor) and column.is_floating_point():
        return column.dtype
    return torch.float32 if getattr(column, "dtype", None) == np.dtype(np.float32) else torch.float64


def _read(X: Any) -> InputTable:
    """Return the table of X.

    Raises:
        DataError: If X is not a table.
    """
    if is_grid(X):
        return _of_frame(frame_of_grid(X))
    if isinstance(X, Mapping):
        return _of_dict(X)
    if isinstance(X, Tensor):
        return _of_array(_usable(X))
    if names_of(X) is not None:
        return _of_frame(X)
    if isinstance(X, str | bytes) or not (hasattr(X, "__array__") or isinstance(X, list | tuple | range)):
        lazy = " Call its collect() first." if hasattr(X, "collect") else ""
        lazy = " Use X.toarray()." if hasattr(X, "toarray") else lazy
        raise DataError(
            f"X must be a dataframe, a dict of columns, an array (n, d) or a sequence of labels, got "
            f"{short_repr(X)}.{lazy}"
        )
    if isinstance(X, list | tuple | range):
        return _of_list(list(X))
    array = X if isinstance(X, np.ma.MaskedArray) else np.asarray(X)
    if array.dtype.names:
        return _of_dict({name: array[name] for name in array.dtype.names})
    if array.ndim != 1:
        return _of_array(array)
    labels = X if type(X).__module__.startswith("pandas") else array
    is_date = "datetime64" in str(labels.dtype) or getattr(labels.dtype, "kind", "") == "M"
    return _table({0: labels}, "array") if is_date else _of_sequence(labels)


def is_grid(X: Any) -> bool:
    """Return whether X is a Dataset or a DataArray of xarray.

    Args:
        X: The inputs, in any format.
    """
    return type(X).__module__.startswith("xarray.") and hasattr(X, "to_dataframe")


def frame_of_grid(X: Any) -> Any:
    """Return a Dataset or DataArray of xarray as a dataframe with a row for each cell.

    Its columns are the dimensions, coordinates and variables. The last dimension varies fastest.

    Args:
        X: The Dataset or DataArray. If a DataArray has no name, its column is "values".
    """
    data: Any = X if isinstance(X, Mapping) else X.to_dataset(name="values" if X.name is None else X.name)
    data = data if data.sizes else data.expand_dims("cell")
    return data.to_dataframe(dim_order=list(X.sizes) or ["cell"]).reset_index()


def _usable(x: Tensor) -> Tensor:  # (...)
    """Return a tensor unchanged.

    Raises:
        DataError: If the tensor is sparse, or has no values.
    """
    if x.layout != torch.strided or x.is_quantized:
        raise DataError("X must be a dense tensor. Use X.to_dense().")
    if x.is_meta:
        raise DataError("X must have values, got a tensor on torch's meta device. Make it on another one.")
    return x


def _of_array(x: Any) -> InputTable:  # (n, d) or (n,)
    if x.ndim == 1:
        return _of_sequence(x)
    if x.ndim != 2 or x.shape[1] == 0:
        remedy = " Use X.reshape(len(X), -1)." if x.ndim > 2 else ""
        raise DataError(f"X must have shape (n, d) with d >= 1, got {tuple(x.shape)}.{remedy}")
    table = _table({index: x[:, index] for index in range(x.shape[1])}, "array")
    return table if isinstance(x, np.ma.MaskedArray) else replace(table, array=x)


def _of_list(rows: list[Any]) -> InputTable:
    """Return the table of a list of rows (n, d) or labels (n,). Tuples can be either."""
    cells = objects(rows)
    kinds = set(map(type, rows))
    if not rows or not kinds <= {list, tuple, np.ndarray}:
        return _of_sequence(cells)
    widths = {len(row) for row in rows}
    if kinds == {tuple} and len(widths) > 1:
        return _of_sequence(cells)
    if len(widths) > 1:
        raise DataError(f"X must have rows of equal length, got rows of {min(widths)} to {max(widths)} values.")
    if widths == {0} or any(np.ndim(row[0]) for row in rows):
        raise DataError(f"X must have shape (n, d) with d >= 1, got rows such as {short_repr(rows[0])}.")
    columns: dict[Key, Any] = {index: list(column) for index, column in enumerate(zip(*rows, strict=True))}
    table = _table(columns, "array")
    return replace(table, columns={**columns, NODE_KEY: cells}) if kinds == {tuple} else table


def _of_sequence(labels: Any) -> InputTable:
    table = _table({NODE_KEY: labels}, "sequence")
    return replace(table, columns={NODE_KEY: labels, 0: labels})


def _of_frame(frame: Any) -> InputTable:
    """Return the table of a dataframe of pandas, polars or Arrow."""
    columns: dict[Key, Any] = {}
    for index, label in enumerate(labels_of(frame)):
        is_number = isinstance(label, int | np.integer) and not isinstance(label, bool)
        if not is_number and not isinstance(label, str):
            raise DataError(
                f"The columns of X must have names of text or integers, got {short_repr(label)}. Rename them."
            )
        columns[int(label) if is_number else label] = taken(frame, label, index)
    levels = _index(frame)
    if not columns and levels:
        return InputTable((), len(frame.index), levels, "dataframe")
    return replace(_table(columns, "dataframe"), columns={**levels, **columns})


def _index(frame: Any) -> dict[Key, Any]:
    """Return the index of a dataframe of pandas by name, "index" if it has none.

    Terms can read it by name. It is no key of a table, so a kernel of all columns does not read it.
    """
    index = getattr(frame, "index", None) if hasattr(frame, "iloc") else None
    if index is None or (index.name is None and getattr(index, "step", None) is not None):  # it counts the rows
        return {}
    names = [(level, name) for level, name in enumerate(index.names) if isinstance(name, str | None)]
    return {"index" if name is None else name: index.get_level_values(level) for level, name in names}


def labels_of(frame: Any) -> list[Any]:
    """Return the labels of the columns of a dataframe of pandas, polars or Arrow.

    Args:
        frame: The dataframe.
    """
    names = None if hasattr(frame, "iloc") else getattr(frame, "column_names", None)  # in pandas it could be a column
    return list(frame.columns if names is None else names)


def taken(frame: Any, label: Any, index: int) -> Any:
    """Return one column (n,) of a dataframe of pandas, polars or Arrow.

    Args:
        frame: The dataframe.
        label: The label of the column.
        index: Its position.
    """
    if hasattr(frame, "iloc"):
        return frame.iloc[:, index]
    return frame.column(index) if hasattr(frame, "column") else frame[label]


def _of_dict(columns: Mapping[Any, Any]) -> InputTable:
    checked: dict[Key, Any] = {}
    for key, column in columns.items():
        if not isinstance(key, str | int | np.integer) or isinstance(key, bool):
            raise DataError(f"The keys of X must be names or integers, got {short_repr(key)}. Rename them.")
        checked[key if isinstance(key, str) else int(key)] = _one_dimensional(key, column)
    return _table(checked, "dict")


def _one_dimensional(key: Any, column: Any) -> Any:
    """Return a column (n,) of a dict.

    Raises:
        DataError: If the column has another shape.
    """
    if isinstance(column, list | tuple | range):
        return column
    if isinstance(column, Tensor):
        _usable(column)
    elif not hasattr(column, "__array__"):
        raise DataError(f"Column {short_repr(key)} of X must be an array or a list, got {short_repr(column)}.")
    shape = np.shape(column) if not hasattr(column, "shape") else tuple(column.shape)
    if len(shape) != 1:
        raise DataError(
            f"Column {short_repr(key)} of X must have shape (n,), got {shape}. Use reshape(-1) if it is one column."
        )
    return column


def _table(columns: dict[Key, Any], source: str) -> InputTable:
    """Return the table of columns by key.

    Raises:
        DataError: If there are no columns, no rows, or columns of different lengths or on several devices.
    """
    if not columns:
        raise DataError(f"X is a {source} without columns. It must have at least one.")
    lengths = {key: len(column) for key, column in columns.items()}
    (first, num_rows), *_ = lengths.items()
    shorter = next((key for key, length in lengths.items() if length != num_rows), None)
    if shorter is not None:
        raise DataError(
            f"The columns of X must have one length, but {short_repr(first)} has {counted(num_rows, 'row')} and "
            f"{short_repr(shorter)} has {lengths[shorter]:,}."
        )
    if num_rows == 0:
        raise DataError(f"X is {'an' if source == 'array' else 'a'} {source} without rows. It must have at least one.")
    devices = {str(column.device) for column in columns.values() if isinstance(column, Tensor)}
    if len(devices) > 1:
        raise DataError(f"The columns of X must be on one device, got {', '.join(sorted(devices))}.")
    return InputTable(tuple(columns), num_rows, columns, source)


# --- Names of the columns of dataframes, and columns that are an index ------------------------------------------------


def is_index_name(name: str) -> bool:
    """Return whether a name is one that pandas or Parquet give to an unnamed index.

    Args:
        name: The name.
    """
    return _INDEX_NAME.fullmatch(name.strip()) is not None


def warn_of_levels(key: Any, levels: Sequence[Any]) -> None:
    """Warn of levels of a column that are not in the training data.

    Args:
        key: The name of the column.
        levels: The new levels.
    """
    names = listed(list(map(str, levels)))
    message = (
        f"Column {short_repr(key)} has {counted(len(levels), 'level')} without training rows: {names}. "
        "Rows with a new level are predicted with zeros in all indicators of the column. A kernel with "
        f"Group({short_repr(key)}) gives a new level its prior variance."
    )
    warn(NewLevelWarning(message))


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a dataframe of pandas, Arrow or polars as texts, or None for other objects.

    Args:
        X: The inputs.

    Raises:
        DataError: If several columns have the same name.
    """
    if not hasattr(X, "__array__") or isinstance(X, np.ndarray | Tensor):
        return None
    if not hasattr(X, "columns"):
        return None
    names = tuple(map(str, labels_of(X)))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Columns of X must have unique names, got {twice!r} twice. Rename them, or pass X.to_numpy().")
    return names


def without_index(
    keys: Sequence[K],
    column: Callable[[K], Any],
    where: str = "X",
    drop: str = "X.drop(columns={!r})",
    *,
    warns_of_inputs: bool = True,
) -> tuple[K, ...]:
    """Return the keys of columns without those of an index, with a warning for each.

    An unnamed column that counts its rows, from 0 like pandas or from 1 like R, is an index. If no column would remain,
    all are kept.

    Args:
        keys: The keys of the columns.
        column: A function from a key to the column (n,), or to its first rows, or to none if they cannot be seen.
        where: The file or object with the columns. The default is "X".
        drop: The code that leaves a column out, with {!r} for its name.
        warns_of_inputs: Whether to warn of unnamed inputs, too. The default is True.

    Warns:
        IndexColumnWarning: If an unnamed column is left out, or is an input.

    Examples:
        >>> without_index(["size", "age"], {"size": [1.5, 2.0], "age": [3, 4]}.__getitem__)
        ('size', 'age')
    """
    unnamed = [key for key in keys if isinstance(key, str) and is_index_name(key)]
    counts = {key for key in unnamed if _counts_rows(np.asarray(column(key)))}
    if len(counts) == len(keys):
        return tuple(keys)
    for key in unnamed:
        message = f"{where}: column {key!r} is an input, but may be an unnamed index. Leave it out with "
        message += drop.format(key)
        if key in counts:
            message = f"{where}: column {key!r} is left out, because it counts the rows like an unnamed index. Write "
            message += "files with DataFrame.to_csv(index=False)"
        if key in counts or warns_of_inputs:
            warn(IndexColumnWarning(f"{message}, or give it a name to use it."))
    return tuple(key for key in keys if key not in counts)


def _counts_rows(values: NDArray[Any]) -> bool:  # (n,)
    if values.dtype.kind not in "fiu" or len(values) < 2 or values[0] not in (0, 1):
        return False
    return bool(np.array_equal(values, values[0] + np.arange(len(values))))
