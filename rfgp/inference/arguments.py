"""Conversion of arguments and results of predictions between arrays and tensors."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.torch_context import with_torch_defaults


def in_caller_form(value: Tensor, template: Tensor, as_numpy: bool) -> Any:
    """Return a result (...) like a template, or as a numpy array.

    Args:
        value: The result, of any shape (...).
        template: A tensor with the dtype and device of the result.
        as_numpy: Whether the caller passed numpy arrays.
    """
    value = (value.detach() if as_numpy else value).to(template)
    return value.cpu().numpy() if as_numpy else value


def read_real(name: str, values: Any) -> Tensor:
    """Return the caller's numbers as a tensor (...).

    Args:
        name: The name of the argument, for messages.
        values: The caller's numbers, of any shape (...).

    Raises:
        InvalidArgumentError: If they are not numbers.
    """
    try:
        return values if isinstance(values, Tensor) else torch.as_tensor(np.array(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} must be an array of numbers: {str(error)[:100]}.") from error


@with_torch_defaults()
def check_values(y: Any, mean: Tensor, may_be_one: bool = False) -> Tensor:
    """Return values y as a tensor like a mean, (n,) or (n, k), or a single value, ().

    Args:
        y: The values, an array or one number.
        mean: The mean, (n,) or (n, k).
        may_be_one: Whether y may be one number. The default is False.

    Raises:
        InvalidArgumentError: If y is not an array of numbers, or has another shape.
    """
    values = read_real("y", y).to(mean)
    if values.shape != mean.shape and not (may_be_one and values.ndim == 0):
        raise InvalidArgumentError(
            f"y must have the shape of the mean, {tuple(mean.shape)}, got {tuple(values.shape)}. Give one value for "
            "each value of the prediction."
        )
    return values


def check_probabilities(name: str, values: Any, like: Tensor) -> Tensor:
    """Return probabilities, () or (q,).

    Args:
        name: The name of the argument, for messages.
        values: One number or several, (q,).
        like: A tensor with the dtype and device of the result.

    Raises:
        InvalidArgumentError: If they are not numbers strictly between 0 and 1.
    """
    p = read_real(name, values).to(like)
    if p.ndim > 1 or not bool(((p > 0) & (p < 1)).all()):
        raise InvalidArgumentError(f"{name} must be strictly between 0 and 1, got {values!r}.")
    return p


def check_level(level: Any) -> float:
    """Return the level of an interval.

    Args:
        level: One number.

    Raises:
        InvalidArgumentError: If it is not one number strictly between 0 and 1.
    """
    p = check_probabilities("level", level, torch.empty(0, dtype=torch.float64))
    if p.ndim:
        raise InvalidArgumentError(f"level must be one number, got {level!r}. Use quantile for several.")
    return float(p)


def read_draws(num_samples: int, seed: int | None, generator: torch.Generator | None) -> tuple[int, torch.Generator]:
    """Return the number of draws, and a generator for them.

    Args:
        num_samples: The number of draws.
        seed: The seed. If both are None, the system's entropy is used.
        generator: The generator, instead of a seed.

    Raises:
        InvalidArgumentError: If the number is negative, or both a seed and a generator are given.
    """
    return check_count("num_samples", num_samples, least=0), random.chosen(seed, generator, random.Role.FUNCTIONS)
