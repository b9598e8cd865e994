"""Names of columns, and conversion of the user's targets, noise and weights to checked tensors."""

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import BooleanTargetWarning, DataError, IndexColumnWarning, NewLevelWarning
from rfgp.messages import counted, listed, not_finite, short_repr
from rfgp.number_texts import example_of, numbers_remedy

# --- Names of the columns of dataframes, and the match of columns to those of the training data ----------------------

K = TypeVar("K")

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
    """Return the column names of a dataframe of pandas, Arrow or polars as texts, or None for other objects.

    Args:
        X: The inputs.

    Raises:
        DataError: If several columns have the same name.
    """
    if not hasattr(X, "__array__") or isinstance(X, np.ndarray | Tensor):
        return None
    arrows = None if hasattr(X, "iloc") else getattr(X, "column_names", None)  # in pandas it could be a column
    labels = getattr(X, "columns", None) if arrows is None else arrows
    if labels is None:
        return None
    names = tuple(map(str, labels))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"Columns of X must have unique names, got {twice!r} twice. Rename them, or pass X.to_numpy().")
    return names


def without_index(
    keys: Sequence[K],
    column: Callable[[K], Any],
    where: str = "X",
    drop: str = "X.drop(columns={!r})",
    stacklevel: int = 2,
) -> tuple[K, ...]:
    """Return the keys of columns without those of an index, with a warning.

    If no column would remain, all are kept.

    Args:
        keys: The keys of the columns.
        column: A function from a key to the column (n,), or to its first rows.
        where: The file or object with the columns. The default is "X".
        drop: The code that leaves a column out, with {!r} for its name.
        stacklevel: As for `warnings.warn`.
    """
    unnamed = [key for key in keys if isinstance(key, str) and is_index_name(key)]
    counts = {key for key in unnamed if counts_rows(np.asarray(column(key)))}
    if len(counts) == len(keys):
        return tuple(keys)
    for key in unnamed:
        warn_of_index(where, key, key in counts, drop.format(key), stacklevel + 1)
    return tuple(key for key in keys if key not in counts)


# --- Cells that are not numbers. Missing ones become NaN, others raise errors ----------------------------------------


class Problem(NamedTuple):
    """Cells of one kind in one column.

    Attributes:
        column: The column's name or index. None if there is only one.
        kind: "text", "dates", "missing values", or the name of another type.
        row: The first row with such a cell.
        cell: The cell as text for messages.
        number: The number of such cells.
    """

    column: str | int | None
    kind: str
    row: int
    cell: str
    number: int

    def __str__(self) -> str:
        where = "it" if self.column is None else f"column {self.column!r}"
        if self.kind == "missing values":
            return f"{where} has {counted(self.number, 'missing value')}, the first in row {self.row}"
        return f"{where} holds {self.kind} ({self.cell} in row {self.row}, {counted(self.number, 'such cell')})"


def _with_nan(
    cells: NDArray[Any],  # (...), objects
) -> NDArray[Any]:
    """Return objects with NaN instead of pandas.NA and NaT, which have no float value."""
    pandas = sys.modules.get("pandas")  # imported already if a cell is one of its missing values
    return cells if pandas is None else np.where(pandas.isna(cells), np.nan, cells)


def _problem_of(
    values: Any,  # (n,) or (n, k)
    name: str,
) -> str | None:
    """Return a text about the first cell that is not a number, with a remedy, or None if there are none."""
    try:
        cells = _with_nan(np.asarray(values, dtype=object))
    except (TypeError, ValueError):
        return None
    for place, cell in np.ndenumerate(cells):
        kind = _kind_of(cell)
        if not kind:
            continue
        key, *_ = [*place[1:], None]
        number = sum(_kind_of(other) == kind for other in cells[:, *place[1:]])
        shown = str(cell) if hasattr(cell, "isoformat") else repr(cell)
        problem = Problem(key, kind, place[0], " ".join(shown.split())[:40], number)
        example = example_of([cell]) if isinstance(cell, str) else None
        if example is not None:
            return f"{problem}. {numbers_remedy(name if key is None else key, example)}"
        more = " rfgp.sklearn.GPClassifier takes classes as text." * (name == "y")
        return f"{problem}. Encode text and dates as numbers, for example with rfgp.tables.read_table.{more}"
    return None


def _kind_of(cell: Any) -> str:
    """Return the kind of a cell, or "" for a number or a missing cell."""
    if hasattr(cell, "isoformat") or isinstance(cell, np.datetime64):
        return "dates"
    try:
        float(cell)
    except (TypeError, ValueError):
        if cell is not None:
            return "text" if isinstance(cell, str | bytes) else f"values of type {type(cell).__name__}"
    return ""


# --- Conversion of numpy arrays and tensors from users to checked tensors --------------------------------------------


class OutputFormat(NamedTuple):
    """The container of results: numpy or torch, with the dtype and the device."""

    is_numpy: bool
    like: Tensor  # (0,) of the dtype and device


def read_targets(y: Any, n: int, like: Tensor, dtype: torch.dtype | None, first: int = 0) -> Tensor:
    """Return a copy of targets (n,) or (n, k) in the dtype and on the device of `like`.

    Args:
        y: The targets of the user.
        n: The number of rows of X.
        like: A tensor with the dtype and device of X.
        dtype: The dtype that the user selected, to which targets are converted. If None, that of X.
        first: The number of the first row, for messages.

    Raises:
        DataError: If targets are not numeric, the shape or length is wrong, or values are not finite. If the user
            selected no dtype, also if floating targets have another one than X, or integers are not exact in it.

    Examples:
        >>> read_targets([0, 1], 2, torch.empty(0), None)
        tensor([0., 1.])
    """
    if y is None:
        raise DataError("y must have targets, got None. Pass y with X, or name the target column of the source.")
    t = _to_tensor(y, "y").detach()
    if t.ndim not in (1, 2) or (t.ndim == 2 and t.shape[1] == 0):
        raise DataError(f"y must have shape (n,), or (n, k) for k outputs, got {tuple(t.shape)}.")
    if len(t) != n:
        raise DataError(f"y must have {counted(n, 'row')} like X, got {len(t):,}. Pass one target per row.")
    if dtype is None and t.is_floating_point() and t.dtype != like.dtype:
        raise DataError(
            f"X and y must have one dtype, got {like.dtype} and {t.dtype}. Convert one, or choose dtype= for the model."
        )
    largest = 2 / torch.finfo(like.dtype).eps
    if dtype is None and not t.is_floating_point() and n and float(t.double().abs().max()) > largest:
        raise DataError(
            f"y must hold integers up to {int(largest)} that {like.dtype}, the dtype of X, represents exactly, got "
            f"{int(t.double().abs().max())}. Convert X to float64, or choose dtype= for the model."
        )
    t = t.to(like, copy=True)
    bad = (~torch.isfinite(t)).nonzero()
    if len(bad):
        index = bad[0].tolist()
        column = f", column {index[1]}" if len(index) > 1 else ""
        value = t[tuple(index)].item()
        raise DataError(f"y has {not_finite(len(bad))}, the first ({value}) in row {first + index[0]}{column}.")
    return t


def constant_message(
    low: Tensor,  # () or (k,)
    high: Tensor,  # () or (k,)
    n: int,
) -> str | None:
    """Return a message about the first target that is constant up to rounding errors, or None.

    Args:
        low: The smallest value of each target.
        high: The largest value of each target.
        n: The number of rows, for the message.
    """
    constant = (high - low) <= _ROUNDING[low.dtype] * torch.maximum(low.abs(), high.abs())
    if not bool(constant.any()):
        return None
    k = int(constant.reshape(-1).nonzero()[0])
    subject = "The target" if low.ndim == 0 else f"Output {k}"
    return f"{subject} is constant ({low.reshape(-1)[k].item():g} in all {counted(n, 'row')})"


_ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}
"""The maximum relative range of a constant target by dtype."""


def read_per_row(
    values: Any,  # (n,)
    name: str,
    n: int,
    like: Tensor,
    *,
    positive: bool,
    first: int = 0,
) -> Tensor | None:
    """Return one number per row (n,) as float64, or None if there are no values.

    Args:
        values: The numbers of the user, or None.
        name: The name of the argument, for messages.
        n: The number of rows.
        like: A tensor with the device of the result.
        positive: Whether 0 is invalid.
        first: The number of the first row, for messages.

    Raises:
        DataError: If the shape is wrong, or values are not finite, negative, or zero if they must be positive. Squares
            of positive values must not overflow or underflow.
    """
    if values is None:
        return None
    t = _to_tensor(values, name)
    if t.shape != (n,):
        raise DataError(f"{name} must have one value for each of the {counted(n, 'row')}, got shape {tuple(t.shape)}.")
    t = t.to(like.device, torch.float64, copy=True)
    bad = (~torch.isfinite(t) | ((t <= 0) if positive else (t < 0))).nonzero()
    if len(bad):
        row = int(bad[0])
        kind = "positive" if positive else "not negative"
        raise DataError(f"{name} must be finite and {kind}, got {t[row].item():g} in row {first + row}.")
    extreme = ((t < _SMALLEST) | (t > 1 / _SMALLEST)).nonzero()
    if positive and len(extreme):
        row = int(extreme[0])
        raise DataError(
            f"{name} must lie between {_SMALLEST:.0e} and {1 / _SMALLEST:.0e}, so that squares are in range, got "
            f"{t[row].item():g} in row {first + row}. Leave out rows that do not count."
        )
    return t


_SMALLEST = 1e-150
"""The minimum positive number per row. Its inverse is the maximum."""


def _to_tensor(values: Any, name: str) -> Tensor:
    """Return real numbers as a tensor with an unchanged dtype, for the caller to copy."""
    if isinstance(values, Tensor):
        if values.is_complex():
            raise DataError(f"{name} must be real, got complex numbers. Use two columns, real and imaginary part.")
        if values.is_meta:
            raise DataError(f"{name} must have values, got a tensor on torch's meta device. Make it on another one.")
        return values
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{name} must not be masked, got a masked array. Drop or fill its masked entries.")
    try:
        array = np.asarray(values)
        if array.dtype == object:
            array = _with_nan(array).astype(np.float64)
        elif array.dtype.kind not in "fiub":
            raise TypeError(f"it holds {array.dtype} values")
    except (TypeError, ValueError) as error:
        problem = _problem_of(values, name) or f"{error}. Convert it to a numpy array of numbers."
        raise DataError(f"{name} must hold numbers, but {problem}") from error
    if array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    # torch supports neither foreign byte orders, nor negative strides, nor read-only arrays
    return torch.as_tensor(np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True))


def warn_of_booleans(y: Any, name: str = "y", stacklevel: int = 4) -> bool:
    """Return whether targets are boolean, and warn if they are.

    Args:
        y: Targets (n,) or (n, k).
        name: The name of the argument, for the message.
        stacklevel: As for `warnings.warn`.

    Warns:
        BooleanTargetWarning: If the targets are boolean.
    """
    kind = str(getattr(y, "dtype", "object"))
    objects: Any = y if isinstance(y, list) else ()
    if kind == "object" and hasattr(y, "__array__"):
        objects = np.asarray(y).reshape(-1)
    is_boolean = kind.removeprefix("torch.") in ("bool", "boolean")
    is_boolean |= len(objects) > 0 and all(isinstance(cell, bool | np.bool_) for cell in objects)
    if is_boolean:
        message = f"{name} holds booleans, which are fitted as 0 and 1. Pass numbers to avoid this warning."
        warnings.warn(BooleanTargetWarning(message), stacklevel=stacklevel)
    return is_boolean


# --- Hashes of rows -------------------------------------------------------------------------------------------------

_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""The multiplier of the hash, 2^64 over the golden ratio (Fibonacci hashing). As it is odd, steps are invertible."""


def row_hashes(
    columns: Iterable[NDArray[Any]],  # each (n,)
    seeds: NDArray[np.uint64] | None = None,  # (n,)
) -> NDArray[np.uint64]:  # (n,)
    """Return a hash of each row. Different rows collide with probability 2^-64.

    Args:
        columns: At least one column of numbers. A negative zero equals zero.
        seeds: Numbers of which the hashes depend, too. If None, zeros.

    Examples:
        >>> hashes = row_hashes([np.array([1.0, 2.0, 1.0])])
        >>> bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
        (True, False)
    """
    hashes = np.uint64(0) if seeds is None else seeds
    for column in columns:
        bits = (column.astype(np.float64) + 0.0).view(np.uint64)  # no negative zero
        hashes = (hashes ^ bits) * _HASH_MULTIPLIER
        hashes ^= hashes >> np.uint64(29)
    return np.asarray(hashes)


def numbered_rows(
    columns: Iterable[NDArray[Any]],  # each (n,)
) -> NDArray[np.int64]:  # (n,)
    """Return a number for each row, from 0, shared by equal rows.

    Args:
        columns: At least one column of numbers.

    Examples:
        >>> int(numbered_rows([np.array([1.0, 2.0, 1.0])]).max())
        1
    """
    return np.unique(row_hashes(columns), return_inverse=True)[1].reshape(-1)  # numpy 2.0 returns another shape
