"""Independent values of variance 1, such as the effects of the levels of a group."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.precisions.base import Floats, MarkovField, Pattern


@dataclass(frozen=True, eq=False)
class IndependentField(MarkovField):
    """A vector u ~ N(0, I) without parameters.

    Attributes:
        size: The number N of values.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions import IndependentField
        >>> IndependentField(3).entries(np.zeros(0)).tolist()
        [1.0, 1.0, 1.0]
    """

    size: int
    parameters = ()

    @cached_property
    def pattern(self) -> Pattern:
        """The diagonal."""
        return Pattern(np.arange(self.size + 1, dtype=np.int64), np.arange(self.size, dtype=np.int32))

    def entries(
        self,
        values: Floats,  # (0,)
    ) -> Floats:  # (N,)
        """Return ones."""
        return np.ones(self.size)

    def pull_back(
        self,
        values: Floats,  # (0,)
        weights: Floats,  # (N,)
    ) -> Floats:  # (0,)
        """Return no derivatives, since there are no parameters."""
        return np.zeros(0)

    def log_determinant(
        self,
        values: Floats,  # (0,)
    ) -> tuple[float, Floats]:
        """Return 0 and no derivatives."""
        return 0.0, np.zeros(0)
