"""Rows of one column in ascending order, and a Matern process given them."""

import math
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from rfgp.autograd import Array, as_array
from rfgp.blocks import Prior
from rfgp.blocks.precision import MaternColumn
from rfgp.rows import Block
from rfgp.solvers.chain.states import ChainStates


@dataclass(frozen=True, eq=False)
class Ascending:
    """Values in ascending order.

    Attributes:
        values: The values, (n,).
        order: The original positions of the values, (n,). If None, the given values were in ascending order.
    """

    values: Array
    order: NDArray[np.int64] | None

    @classmethod
    def of(cls, values: Array) -> "Ascending":
        """Return values in ascending order.

        Args:
            values: The values, (n,).
        """
        if (values[1:] >= values[:-1]).all():
            return cls(np.ascontiguousarray(values), None)
        order = np.argsort(values, kind="stable")
        return cls(values[order], order)

    def sorted(self, numbers: Array) -> Array:
        """Return numbers (n,) in the ascending order of the values.

        Args:
            numbers: Numbers in the original order of the values, (n,).
        """
        return np.ascontiguousarray(numbers) if self.order is None else numbers[self.order]

    def restored(self, numbers: Array) -> Array:
        """Return numbers in the original order of the values, (n, ...).

        Args:
            numbers: Numbers in the ascending order of the values, (n, ...).
        """
        if self.order is None:
            return numbers
        out = np.empty_like(numbers)
        out[self.order] = numbers
        return out


class ChainRows:
    """A Matern process given rows.

    Args:
        prior: The prior of one block.
        inputs: The inputs of the rows, (n, d).
        noise: The noise D, (1,) or (n,).
        residual: The residual y - mean, (n, k).
    """

    def __init__(self, prior: Prior, inputs: Tensor, noise: Tensor, residual: Tensor) -> None:
        (block,) = prior.precisions
        self.column, self.order = column_of(prior), ascending(inputs, column_of(prior).position)
        self.lengthscale, self.variance = float(block.values.detach()), float(block.variance.detach())
        self._noise, self._residual = as_array(noise), as_array(residual)

    @cached_property
    def noise(self) -> Array:
        """The noise D of the rows in ascending order, (n,), or (1,) if all are equal."""
        given = self._noise
        return given[:1] if (given == given[0]).all() else self.order.sorted(given)

    @cached_property
    def states(self) -> list[ChainStates]:
        """The process over its standard deviation s, given each output over s."""
        noise, times = self.noise / self.variance, self.order.values
        targets = (self.order.sorted(output) / math.sqrt(self.variance) for output in self._residual.T)
        return [ChainStates(self.column.order, self.lengthscale, times, target, noise) for target in targets]

    @cached_property
    def coefficients(self) -> Array:
        """C^-1 (y - mean) of the rows in ascending order, (n, k)."""
        coefficients: Array = np.stack([state.smoothed.coefficients for state in self.states], axis=1)
        return coefficients / math.sqrt(self.variance)

    @cached_property
    def precisions(self) -> Array:
        """The diagonal of C^-1 of the rows in ascending order, (n,)."""
        return self.states[0].smoothed.precisions / self.variance


_CACHE: MutableMapping[Tensor, tuple[int, Ascending]] = WeakTensorKeyDictionary()
"""The index and the ascending values of the last column of each tensor of inputs."""


def ascending(inputs: Tensor, column: int) -> Ascending:
    """Return a column of rows in ascending order.

    The result is cached for the lifetime of the tensor of inputs.

    Args:
        inputs: The inputs of the rows, (n, d).
        column: The index of the column.
    """
    cached = _CACHE.get(inputs)
    if cached is None or cached[0] != column:
        cached = column, Ascending.of(as_array(inputs[:, column]))
        _CACHE[inputs] = cached
    return cached[1]


def supports(prior: Prior) -> bool:
    """Return whether a prior is a Matern process of one column alone.

    Args:
        prior: The prior.
    """
    return len(prior.blocks) == len(prior.precisions) == 1 and prior.precisions[0].column is not None


def column_of(prior: Prior) -> MaternColumn:
    """Return the column of the process of a prior.

    Args:
        prior: A prior that satisfies `supports`.
    """
    column = prior.precisions[0].column
    assert column is not None
    return column


def as_tensor(array: Array) -> Tensor:
    """Return a tensor (...) of the same numbers.

    Args:
        array: The numbers.
    """
    return torch.from_numpy(np.ascontiguousarray(array))


def ascending_rows(prior: Prior, rows: Block) -> Block:
    """Return rows in ascending order of the column of a prior.

    Args:
        prior: A prior that satisfies `supports`.
        rows: The data.
    """
    order = ascending(rows.inputs, column_of(prior).position).order
    return rows if order is None else rows.take(torch.from_numpy(order))
