"""The outputs of an estimator, split into learned and constant ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.rows.sources import constant_message


@dataclass(frozen=True, eq=False)
class Targets:
    """The outputs of training targets (n,) or (n, k).

    A single column counts as a vector.

    Attributes:
        means: The means (k,) of the outputs.
        varies: Whether each output is not constant, (k,).
        is_vector: Whether there is one output. Results then have no axis of outputs.

    Examples:
        >>> targets = Targets.of(np.array([[1.0, 2.0], [3.0, 2.0]]))
        >>> targets.means.tolist(), targets.varies.tolist()
        ([2.0, 2.0], [True, False])
    """

    means: NDArray[Any]
    varies: NDArray[np.bool_]
    is_vector: bool

    @classmethod
    def of(
        cls,
        y: NDArray[Any],  # (n,) or (n, k)
    ) -> "Targets":
        """Return the outputs of floating targets.

        Args:
            y: Targets (n,) or (n, k).
        """
        table = y.reshape(len(y), -1)
        return cls(table.mean(0), np.array([_varies(column) for column in table.T]), table.shape[1] == 1)

    def learned(
        self,
        y: NDArray[Any],  # (n,) or (n, k)
    ) -> NDArray[Any]:  # (n,) or (n, j)
        """Return the j outputs that are not constant.

        Args:
            y: Targets (n,) or (n, k).
        """
        return y.reshape(-1) if self.is_vector else y[:, self.varies]

    def whole(
        self,
        learned: NDArray[Any] | None,  # (...) or (..., j)
        lead: tuple[int, ...],
        constant: Any,
    ) -> NDArray[Any]:  # (...) or (..., k)
        """Return values of all outputs from values of the learned outputs.

        Args:
            learned: Values of shape `lead` for one output, or (*lead, j). None if no output was learned.
            lead: The shape without the axis of outputs.
            constant: The values of constant outputs, () or (k,).
        """
        if learned is not None and bool(self.varies.all()):
            return learned
        like = self.means if learned is None else learned
        out = np.full((*lead, len(self.varies)), constant, dtype=like.dtype)
        if learned is not None:
            out[..., self.varies] = learned
        return out[..., 0] if self.is_vector else out


def _varies(column: NDArray[Any]) -> bool:
    low, high = torch.as_tensor(column.min()), torch.as_tensor(column.max())
    return constant_message(low, high, len(column)) is None
