"""Conversion of numpy arrays and tensors from users to checked tensors."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rfgp.counts import counted, not_finite
from rfgp.errors import BooleanTargetWarning, DataError
from rfgp.rows import cells
from rfgp.rows.names import names_of


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
            array = cells.with_nan(array).astype(np.float64)
        elif array.dtype.kind not in "fiub":
            raise TypeError(f"it holds {array.dtype} values")
    except (TypeError, ValueError) as error:
        problems = cells.problems_of(values, columns)
        advice = cells.remedy(problems, hasattr(values, "columns") or hasattr(values, "column_names"))
        raise DataError(f"{name} must hold numbers, but {cells.listed(problems) or error}. {advice}") from error
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
