"""Arguments of kernels, checked."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError

Key = str | int
"""The name of a column, or its number in an array."""


def read_columns(columns: Any) -> tuple[Key, ...] | None:
    """Return the keys of columns as a tuple.

    Args:
        columns: A key or a sequence of keys. None stays None.

    Raises:
        InvalidArgumentError: If a key is no text and no integer, a key occurs twice, or there is none.
    """
    if columns is None:
        return None
    keys = (columns,) if isinstance(columns, str | int) else columns
    if not isinstance(keys, Sequence) or isinstance(keys, bytes):
        raise InvalidArgumentError(f"columns must be a name, a number or a sequence of them, got {columns!r}.")
    for key in keys:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InvalidArgumentError(f"A column must be a name or a number, got {key!r}.")
    if len(set(keys)) < len(keys) or not keys:
        raise InvalidArgumentError(f"columns must be at least one and distinct, got {columns!r}.")
    return tuple(keys)


def check_name(name: Any) -> None:
    """Check that a name is None or a text.

    Args:
        name: The name of a term.

    Raises:
        InvalidArgumentError: If the name has another type, or is empty.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgumentError(f"The name of a term must be a text that is not empty, got {name!r}.")


def read_positives(name: str, value: Any) -> Any:
    """Return a positive number, or one for each column.

    Args:
        name: The name of the argument in messages.
        value: A number or a sequence of numbers. None stays None.

    Returns:
        A float, a tuple of floats, or None.

    Raises:
        InvalidArgumentError: If a number is not positive, or the value is not numeric.
    """
    if value is None:
        return None
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"{name} must be a number or numbers, got {value!r}.") from error
    if numbers.ndim > 1 or not numbers.numel() or not bool((torch.isfinite(numbers) & (numbers > 0)).all()):
        raise InvalidArgumentError(f"{name} must be positive numbers, one or one for each column, got {value!r}.")
    return numbers.item() if numbers.ndim == 0 else tuple(numbers.tolist())


def per_column(name: str, value: Any, like: Tensor) -> Tensor:
    """Return one number, or one for each of c columns, as a tensor (c,).

    Args:
        name: The name of the argument in messages.
        value: One number, or c numbers.
        like: A tensor (c,) with the dtype and the device of the result.

    Raises:
        InvalidArgumentError: If the number of values differs from c.
    """
    numbers = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if numbers.ndim and numbers.shape != like.shape:
        raise InvalidArgumentError(
            f"{name} must be one number or {len(like)}, one for each column, got {len(numbers)}."
        )
    return numbers.expand(like.shape)


def bounds_in(unit: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return the bounds (...) of a hyperparameter from those in a unit (...)."""
    return bounds[0] * unit, bounds[1] * unit
