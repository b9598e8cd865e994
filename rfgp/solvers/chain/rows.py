"""Rows of one column in ascending order, and the states of a process given them."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import Array, as_array
from rfgp.blocks import Prior
from rfgp.blocks.precision import MaternColumn, PrecisionBlock
from rfgp.solvers.chain.states import ChainStates


@dataclass(frozen=True, eq=False)
class Ascending:
    """The values of a column in ascending order.

    Attributes:
        times: The values, (n,).
        order: The places of the rows in that order, (n,). If None, the rows ascend.
    """

    times: Array
    order: NDArray[np.int64] | None

    @classmethod
    def of(cls, values: Array) -> "Ascending":
        """Return the order of values (n,)."""
        if (values[1:] >= values[:-1]).all():
            return cls(np.ascontiguousarray(values), None)
        order = np.argsort(values, kind="stable")
        return cls(values[order], order)

    def sorted(self, values: Array) -> Array:
        """Return numbers (n, ...) of the rows in ascending order of these."""
        return values if self.order is None else values[self.order]

    def unsorted(self, values: Array) -> Array:
        """Return numbers (n, ...) in ascending order of the rows in the order of the rows."""
        if self.order is None:
            return values
        out = np.empty_like(values)
        out[self.order] = values
        return out


_KEPT: "weakref.WeakKeyDictionary[Tensor, tuple[int, Ascending]]" = weakref.WeakKeyDictionary()


def ascending(inputs: Tensor, place: int) -> Ascending:
    """Return the order of rows (n, D) by one column, which is kept as long as their tensor."""
    kept = _KEPT.get(inputs)
    if kept is None or kept[0] != place:
        kept = _KEPT[inputs] = place, Ascending.of(as_array(inputs[:, place]))
    return kept[1]
