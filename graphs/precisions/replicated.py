"""Independent copies of a field, for example one for each level of a group."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.precisions.base import Floats, MarkovField, Pattern


@dataclass(frozen=True, eq=False)
class ReplicatedField(MarkovField):
    """F independent copies of a field with shared parameters; precision I_F x Q.

    Attributes:
        base: The field, of N values.
        copies: The number F of copies.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions import IndependentField, ReplicatedField
        >>> ReplicatedField(IndependentField(3), 2).entries(np.zeros(0)).tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """

    base: MarkovField
    copies: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", self.base.parameters)
        if self.base.coordinates is not None:
            object.__setattr__(self, "coordinates", np.tile(self.base.coordinates, (self.copies, 1)))

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern of the base, F times on the diagonal."""
        starts, indices = self.base.pattern
        size, count = len(starts) - 1, len(indices)
        shift = np.arange(self.copies)[:, None]
        heads = (starts[:-1] + shift * count).reshape(-1)
        columns = (indices.astype(np.int64) + shift * size).reshape(-1)
        return Pattern(np.append(heads, self.copies * count).astype(np.int64), columns.astype(np.int32))

    def entries(
        self,
        values: Floats,  # (p,)
    ) -> Floats:  # (F nnz,)
        """Return the entries of the base, F times.

        Args:
            values: The parameters (p,) of the base.
        """
        return np.tile(self.base.entries(values), self.copies)

    def pull_back(
        self,
        values: Floats,  # (p,)
        weights: Floats,  # (F nnz,)
    ) -> Floats:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters, over all entries of all copies.

        Args:
            values: The parameters (p,) of the base.
            weights: The derivative (F nnz,) of a scalar in each entry of Q.
        """
        return self.base.pull_back(values, weights.reshape(self.copies, -1).sum(0))

    def log_determinant(
        self,
        values: Floats,  # (p,)
    ) -> tuple[float, Floats]:
        """Return log |Q| of all copies and its derivatives (p,).

        Args:
            values: The parameters (p,) of the base.
        """
        value, slopes = self.base.log_determinant(values)
        return self.copies * value, self.copies * slopes
