"""Conversion of arrays, dataframes and tensors to checked tensors."""

import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.counts import counted, not_finite
from rfgp.errors import BooleanTargetWarning, DataError, IndexColumnWarning, NewLevelWarning
from rfgp.messages import listed, short_repr
from rfgp.number_texts import example_of, numbers_remedy

# --- Names of the columns of dataframes, and the match of columns to those of the training data ----------------------

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


# --- Cells of arrays and dataframes that are not numbers. Missing ones become NaN, others raise errors ---------------

_MAX_COLUMNS = 8
"""The maximum number of columns in a message."""
_OPTIONS = {"text": 'categories="one-hot"', "dates": 'dates="days"', "missing values": 'missing="drop"'}
"""The option of `rfgp.tables.read_table` that encodes cells of each kind."""


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


def with_nan(
    cells: NDArray[Any],  # (...), objects
) -> NDArray[Any]:
    """Return objects with NaN instead of pandas.NA and NaT, which have no float value.

    Args:
        cells: Objects (...).
    """
    pandas = sys.modules.get("pandas")  # imported already if a cell is one of its missing values
    if pandas is None:
        return cells
    is_missing = pandas.isna(cells)
    return np.where(is_missing, np.nan, cells) if is_missing.any() else cells


def problems_of(
    values: Any,  # (n,) or (n, d)
    names: tuple[str, ...] | None,
) -> list[Problem]:
    """Return the problems of a matrix or column that is not numeric.

    Args:
        values: A column (n,) or matrix (n, d).
        names: The names of the columns. If None, their indices.
    """
    try:
        cells = with_nan(np.asarray(values, dtype=object))
    except (TypeError, ValueError):
        return []
    if cells.ndim == 1:
        return _of_column(cells, None)
    if cells.ndim != 2:
        return []
    labels: Sequence[str | int] = range(cells.shape[1]) if names is None else names
    return [problem for index, label in enumerate(labels) for problem in _of_column(cells[:, index], label)]


def listed_problems(problems: list[Problem]) -> str:
    """Return the problems of at most eight columns as text.

    Args:
        problems: The problems, one for each column and kind.
    """
    columns = list(dict.fromkeys(problem.column for problem in problems))
    words = [str(problem) for problem in problems if problem.column in columns[:_MAX_COLUMNS]]
    rest = len(columns) - _MAX_COLUMNS
    return "; ".join([*words, f"and {counted(rest, 'more column')}"] if rest > 0 else words)


def remedy(problems: list[Problem], is_frame: bool) -> str:
    """Return a sentence with a remedy for problems.

    Args:
        problems: The problems.
        is_frame: Whether the cells are from a dataframe.
    """
    texts = (
        ("y" if problem.column is None else problem.column, [problem.cell.strip("'")])
        for problem in problems
        if problem.kind == "text"
    )
    numbers = [(column, example) for column, text in texts if (example := example_of(text)) is not None]
    if numbers:
        return numbers_remedy(*numbers[0])
    if is_frame:
        options = [option for kind, option in _OPTIONS.items() if any(problem.kind == kind for problem in problems)]
        call = ", ".join(["table", "target", *options])
        return f"Encode them as numbers with rfgp.tables.read_table({call}), for a dataframe with the target."
    return (
        "Encode text and dates as numbers, for example with rfgp.tables.read_table. rfgp.sklearn.GPClassifier takes "
        "classes as text."
    )


def _of_column(cells: NDArray[Any], label: str | int | None) -> list[Problem]:
    try:
        is_missing, kinds = np.isnan(cells.astype(np.float64)), {}
    except (TypeError, ValueError):
        is_missing, kinds = np.zeros(len(cells), dtype=bool), dict[str, list[int]]()
        for row, cell in enumerate(cells):
            kind = _kind(cell)
            if kind == "missing values":
                is_missing[row] = True
            elif kind is not None:
                kinds.setdefault(kind, []).append(row)
    problems = [Problem(label, kind, rows[0], _shown(cells[rows[0]]), len(rows)) for kind, rows in kinds.items()]
    if is_missing.any():
        problems.append(Problem(label, "missing values", int(is_missing.argmax()), "", int(is_missing.sum())))
    return problems


def _kind(cell: Any) -> str | None:
    """Return the kind of a cell, or None for a number."""
    if hasattr(cell, "isoformat") or isinstance(cell, np.datetime64):
        return "dates"
    try:
        return "missing values" if np.isnan(float(cell)) else None
    except (TypeError, ValueError):
        if cell is None:
            return "missing values"
        return "text" if isinstance(cell, str | bytes) else f"values of type {type(cell).__name__}"


def _shown(cell: Any) -> str:
    word = str(cell) if hasattr(cell, "isoformat") else repr(cell)
    return " ".join(word.split())[:40]


# --- Conversion of numpy arrays and tensors from users to checked tensors --------------------------------------------


class OutputFormat(NamedTuple):
    """The container of results: numpy or torch, with the dtype and the device."""

    is_numpy: bool
    like: Tensor  # (0,) of the dtype and device


def read_matrix(X: Any, dtype: torch.dtype | None, first: int = 0) -> tuple[Tensor, OutputFormat]:
    """Return inputs (n, d) as a floating tensor, and the format of results.

    Args:
        X: The inputs of the user: a dataframe, an array, a tensor or a list of rows.
        dtype: The dtype of the inputs. If None, that of X, or float64 for other numbers.
        first: The number of the first row, for messages.

    Raises:
        DataError: If the inputs are not a numeric matrix, or a value is not finite. The message names its position.

    Examples:
        >>> read_matrix([[0.0], [1.0]], None)[0].shape
        torch.Size([2, 1])
    """
    names = names_of(X)
    x, is_numpy = _to_tensor(X, "X", names)
    if x.ndim != 2 or x.shape[1] == 0:
        raise DataError(f"X must be a matrix (n, d) with d >= 1, got shape {tuple(x.shape)}.")
    x = x.to(dtype or (x.dtype if x.is_floating_point() else torch.float64))
    bad = (~torch.isfinite(x)).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        named = "" if names is None else f" ({names[column]!r})"
        raise DataError(
            f"X has {not_finite(len(bad))}, the first ({x[row, column].item()}) in row {first + row}, "
            f"column {column}{named}.{_other_columns(bad[:, 1], names)} Leave such rows out, or fill them."
        )
    return x, OutputFormat(is_numpy, x.new_empty(0))


def _other_columns(
    columns: Tensor,  # (k,)
    names: tuple[str, ...] | None,
) -> str:
    """Return a sentence about the columns of k invalid cells, if there are several."""
    indices, counts = np.unique(columns.cpu().numpy(), return_counts=True)
    if len(indices) < 2:
        return ""
    pairs = zip(indices[:8].tolist(), counts[:8].tolist(), strict=True)
    listed = ", ".join(f"{index if names is None else repr(names[index])} ({count})" for index, count in pairs)
    rest = f" and {counted(len(indices) - 8, 'more column')}" if len(indices) > 8 else ""
    return f" They lie in the columns {listed}{rest}."


def read_targets(y: Any, n: int, like: Tensor, dtype: torch.dtype | None, min_rows: int = 2) -> Tensor:
    """Return targets (n,) or (n, k) in the dtype and on the device of `like`.

    Args:
        y: The targets of the user.
        n: The number of rows of X.
        like: A tensor with the dtype and device of X.
        dtype: The dtype that the user selected. If None, that of X.
        min_rows: The smallest number of rows.

    Raises:
        DataError: If the shape or length is wrong, there are too few rows, or values are not finite. Also if the
            floating dtype differs from that of X and the user selected none.
    """
    t = read_target_values(y)
    if len(t) != n:
        raise DataError(f"y must have {counted(n, 'row')} like X, got {len(t):,}. Pass one target per row.")
    if n < min_rows:
        raise DataError(f"There must be at least {'two observations' if min_rows > 1 else 'one observation'}, got {n}.")
    check_dtypes(t, like, dtype)
    return check_targets(t, n, like)


def check_dtypes(
    t: Tensor,  # (n,) or (n, k)
    like: Tensor,
    dtype: torch.dtype | None,
) -> None:
    """Check that targets have the dtype of the inputs, or are exact integers.

    If the user selected a dtype, all targets are valid, since they are converted to it.

    Args:
        t: The targets.
        like: A tensor with the dtype of the inputs.
        dtype: The dtype that the user selected, or None.

    Raises:
        DataError: If floating targets have another dtype, or integers are not exact in the dtype of the inputs.
    """
    largest = 2 / torch.finfo(like.dtype).eps
    if dtype is None and not t.is_floating_point() and t.numel() and float(t.double().abs().max()) > largest:
        raise DataError(
            f"y must hold integers up to {int(largest)} that {like.dtype}, the dtype of X, represents exactly, got "
            f"{int(t.double().abs().max())}. Convert X to float64, or choose dtype= for the model."
        )
    if dtype is None and t.is_floating_point() and t.dtype != like.dtype:
        raise DataError(
            f"X and y must have one dtype, got {like.dtype} and {t.dtype}. Convert one, or choose dtype= for the model."
        )


def check_targets(t: Tensor, n: int, like: Tensor, first: int = 0) -> Tensor:
    """Return targets, (n,) or (n, k), in the dtype and on the device of `like`.

    Args:
        t: The targets.
        n: The number of rows of X.
        like: A tensor with the dtype and device of the result.
        first: The number of the first row, for messages.

    Raises:
        DataError: If the number of targets is wrong, or values are not finite.
    """
    if len(t) != n:
        raise DataError(f"y must have {counted(n, 'row')} like X, got {len(t):,}. Pass one target per row.")
    t = t.to(like)
    bad = (~torch.isfinite(t)).nonzero()
    if len(bad):
        index = bad[0].tolist()
        column = f", column {index[1]}" if len(index) > 1 else ""
        value = t[tuple(index)].item()
        row = first + index[0]
        raise DataError(f"y has {not_finite(len(bad))}, the first ({value}) in row {row}{column}.")
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


def read_target_values(y: Any) -> Tensor:
    """Return targets (n,) or (n, k) as a tensor with an unchanged dtype.

    Args:
        y: The targets of the user.

    Raises:
        DataError: If the targets are not numeric, or have another shape.
    """
    t, _ = _to_tensor(y, "y")
    if t.ndim not in (1, 2) or (t.ndim == 2 and t.shape[1] == 0):
        raise DataError(f"y must have shape (n,), or (n, k) for k outputs, got {tuple(t.shape)}.")
    return t


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
    t, _ = _to_tensor(values, name)
    if t.shape != (n,):
        raise DataError(f"{name} must have one value for each of the {counted(n, 'row')}, got shape {tuple(t.shape)}.")
    t = t.to(like.device, torch.float64)
    bad = (~torch.isfinite(t) | (t < 0) | (t <= 0 if positive else torch.zeros_like(t, dtype=torch.bool))).nonzero()
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
    return t.clone()


_SMALLEST = 1e-150
"""The minimum positive number per row. Its inverse is the maximum."""


def _to_tensor(values: Any, name: str, columns: tuple[str, ...] | None = None) -> tuple[Tensor, bool]:
    if isinstance(values, Tensor):
        if values.is_complex():
            raise DataError(f"{name} must be real, got complex numbers. Use two columns, real and imaginary part.")
        if values.is_meta:
            raise DataError(f"{name} must have values, got a tensor on torch's meta device. Make it on another one.")
        return values, False
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{name} must not be masked, got a masked array. Drop or fill its masked entries.")
    try:
        array = np.asarray(values)
        if array.dtype == object:
            array = with_nan(array).astype(np.float64)
        elif array.dtype.kind not in "fiub":
            raise TypeError(f"it holds {array.dtype} values")
    except (TypeError, ValueError) as error:
        problems = problems_of(values, columns)
        advice = remedy(problems, hasattr(values, "columns") or hasattr(values, "column_names"))
        raise DataError(f"{name} must hold numbers, but {listed_problems(problems) or error}. {advice}") from error
    if array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    # Copy: the user may change the array later, and torch supports neither foreign byte orders, nor negative
    # strides, nor read-only arrays.
    return torch.as_tensor(np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)), True


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
