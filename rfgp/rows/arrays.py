"""Arrays at the door: numpy or torch in, checked tensors inside."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rfgp.counts import counted, not_finite
from rfgp.errors import BooleanTargetWarning, DataError
from rfgp.rows import cells
from rfgp.rows.names import names_of


class Origin(NamedTuple):
    """Where results have to go back to."""

    is_numpy: bool
    template: Tensor  # (0,) of the dtype and device


def read_matrix(X: Any, dtype: torch.dtype | None, first: int = 0) -> tuple[Tensor, Origin]:
    """Return inputs (n, d) as a floating tensor; `first` is what messages call the first row.

    Raises:
        DataError: Not numeric, not a matrix, or a value that is not finite (named by row and column).
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
    return x, Origin(is_numpy, x.new_empty(0))


def _other_columns(
    columns: Tensor,  # (k,)
    names: tuple[str, ...] | None,
) -> str:
    """Return a sentence about the columns of k bad cells, if these lie in several."""
    places, counts = np.unique(columns.cpu().numpy(), return_counts=True)
    if len(places) < 2:
        return ""
    pairs = zip(places[:8].tolist(), counts[:8].tolist(), strict=True)
    listed = ", ".join(f"{place if names is None else repr(names[place])} ({count})" for place, count in pairs)
    rest = f" and {counted(len(places) - 8, 'more column')}" if len(places) > 8 else ""
    return f" They lie in the columns {listed}{rest}."


def read_targets(y: Any, n: int, like: Tensor, dtype: torch.dtype | None, least: int = 2) -> Tensor:
    """Return targets (n,) or (n, k) in the dtype and on the device of `like`; where one row will do, constant too.

    Raises:
        DataError: A wrong shape or length, fewer than `least` rows, values that are not finite, a constant
            target, or a floating dtype other than that of X where no dtype was chosen.
    """
    t = read_target_values(y)
    if len(t) != n:
        raise DataError(f"X has {counted(n, 'row')} and y has {len(t):,}.")
    if n < least:
        raise DataError(f"A process needs at least {'two observations' if least > 1 else 'one observation'}, got {n}.")
    check_dtypes(t, like, dtype)
    t = check_targets(t, n, like)
    if least > 1:
        check_not_constant(t.amin(0), t.amax(0), n)
    return t


def check_dtypes(
    t: Tensor,  # (n,) or (n, k)
    like: Tensor,
    dtype: torch.dtype | None,
) -> None:
    """Refuse targets of another floating dtype than that of the inputs, or integers that this cannot tell apart.

    Where a dtype was chosen, they are converted to it.

    Raises:
        DataError: With both.
    """
    largest = 2 / torch.finfo(like.dtype).eps
    if dtype is None and not t.is_floating_point() and t.numel() and float(t.double().abs().max()) > largest:
        raise DataError(
            f"y holds integers up to {int(t.double().abs().max())}, and {like.dtype}, the type of X, cannot tell those "
            f"beyond {int(largest)} apart. Convert X to float64, or choose dtype= for the model."
        )
    if dtype is None and t.is_floating_point() and t.dtype != like.dtype:
        raise DataError(f"X is {like.dtype} and y is {t.dtype}. Convert one of them, or choose dtype= for the model.")


def check_targets(t: Tensor, n: int, like: Tensor, first: int = 0) -> Tensor:
    """Return targets, (n,) or (n, k), in the dtype and on the device of `like`.

    Raises:
        DataError: Another number of them, or values that are not finite.
    """
    if len(t) != n:
        raise DataError(f"X has {counted(n, 'row')} and y has {len(t):,}.")
    t = t.to(like)
    bad = (~torch.isfinite(t)).nonzero()
    if len(bad):
        place = bad[0].tolist()
        column = f", column {place[1]}" if len(place) > 1 else ""
        value = t[tuple(place)].item()
        row = first + place[0]
        raise DataError(f"y has {not_finite(len(bad))}, the first ({value}) in row {row}{column}.")
    return t


def check_not_constant(
    low: Tensor,  # () or (k,)
    high: Tensor,  # () or (k,)
    n: int,
) -> None:
    """Refuse targets whose smallest and largest values are the same but for rounding.

    Raises:
        DataError: With the value, and the output where there are several.
    """
    constant = (high - low) <= _ROUNDING[low.dtype] * torch.maximum(low.abs(), high.abs())
    if not bool(constant.any()):
        return
    if low.ndim == 0:
        raise DataError(
            f"The target is constant ({low.item():g} in all {counted(n, 'row')}); there is nothing to learn."
        )
    k = int(constant.nonzero()[0])
    raise DataError(
        f"Output {k} is constant ({low[k].item():g} in all {counted(n, 'row')}); there is nothing to learn in it."
    )


_ROUNDING = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def read_target_values(y: Any) -> Tensor:
    """Return targets (n,) or (n, k) as a tensor of their own dtype.

    Raises:
        DataError: Not numeric, or of another shape.
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
    """Return one number per row (n,) as float64 on the device of `like`; None for None.

    `first` is what messages call the first row.

    Raises:
        DataError: Another shape, values that are not finite, negative, or zero where they must be positive; there also
            those whose square leaves double precision, by which rows would be multiplied or divided.
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
        raise DataError(f"{name} must be finite and {kind}, but is {t[row].item():g} in row {first + row}.")
    lost = ((t < _SMALLEST) | (t > 1 / _SMALLEST)).nonzero()
    if positive and len(lost):
        row = int(lost[0])
        raise DataError(
            f"{name} is {t[row].item():g} in row {first + row}, whose square is out of double precision; it must lie "
            f"between {_SMALLEST:.0e} and {1 / _SMALLEST:.0e}. Leave rows out that do not count."
        )
    return t.clone()


_SMALLEST = 1e-150


def _to_tensor(values: Any, name: str, columns: tuple[str, ...] | None = None) -> tuple[Tensor, bool]:
    if isinstance(values, Tensor):
        if values.is_complex():
            raise DataError(f"{name} is complex; a real Gaussian process needs real numbers.")
        if values.is_meta:
            raise DataError(f"{name} is on torch's meta device, where tensors have no values. Make it on another one.")
        return values, False
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(f"{name} is a masked array; drop or fill its masked entries first.")
    try:
        array = np.asarray(values)
        if array.dtype == object:
            array = cells.without_marks(array).astype(np.float64)
        elif array.dtype.kind not in "fiub":
            raise TypeError(f"it holds {array.dtype} values")
    except (TypeError, ValueError) as error:
        found = cells.faults(values, columns)
        advice = cells.remedy(found, hasattr(values, "columns") or hasattr(values, "column_names"))
        raise DataError(f"{name} must hold numbers, but {cells.listed(found) or error}. {advice}") from error
    if array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    # A copy of its own: later changes of the caller's array do not reach the model, and torch takes
    # neither foreign byte orders, nor negative strides, nor read-only arrays.
    return torch.as_tensor(np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)), True


def warn_of_truth(y: Any, name: str = "y", stacklevel: int = 4) -> bool:
    """Warn of targets, (n,) or (n, k), that are truth values; return whether they are."""
    kind = str(getattr(y, "dtype", "object"))
    objects: Any = y if isinstance(y, list) else ()
    if kind == "object" and hasattr(y, "__array__"):
        objects = np.asarray(y).reshape(-1)
    found = kind.removeprefix("torch.") in ("bool", "boolean")
    found |= len(objects) > 0 and all(isinstance(cell, bool | np.bool_) for cell in objects)
    if found:
        said = f"{name} holds truth values; they are fitted as 0 and 1. Pass them as numbers to say that this is meant."
        warnings.warn(BooleanTargetWarning(said), stacklevel=stacklevel)
    return found
