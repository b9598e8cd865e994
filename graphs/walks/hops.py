"""How many first hops of a start node are computed exactly."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.errors import InvalidArgumentError
from graphs.walks.moves import Moves

Integers = NDArray[np.int64]

_MOST = 1000


@dataclass(frozen=True, eq=False)
class HopRule:
    """How many first hops of a node are exact: the most that its neighbourhood allows.

    It depends on the node and the graph alone, so that a node has the same walks whichever others are asked for.

    Attributes:
        limits: (H + 1,) h hops are taken where at most limits[h] nodes lie within h hops; 0 hops are always allowed.
    """

    limits: Integers

    def __post_init__(self) -> None:
        limits = np.asarray(self.limits)
        if limits.ndim != 1 or not 1 <= len(limits) <= _MOST or not np.issubdtype(limits.dtype, np.integer):
            raise InvalidArgumentError(
                f"A rule for exact hops has integer limits (H + 1,), at most {_MOST} of them, got "
                f"{repr(self.limits)[:200]}."
            )
        object.__setattr__(self, "limits", limits.astype(np.int64))

    @property
    def most(self) -> int:
        """The most hops of any node."""
        return len(self.limits) - 1

    def hops(self, moves: Moves, starts: Integers) -> Integers:
        """Return the numbers of hops (n,) of n start nodes."""
        from graphs.walks import compiled

        matrix = moves.matrix
        limit = min(int(self.limits.max()), matrix.shape[0])
        balls = compiled.reach(matrix.indptr, matrix.indices, starts, self.most, limit)
        fits = balls <= self.limits
        fits[:, 0] = True
        return np.asarray(self.most - np.argmax(fits[:, ::-1], axis=1), dtype=np.int64)


def most_hops(exact_hops: int | HopRule) -> int:
    """Return the most first hops that are exact for any node."""
    return exact_hops.most if isinstance(exact_hops, HopRule) else exact_hops


def hops_of(exact_hops: int | HopRule, moves: Moves, starts: Integers) -> Integers:
    """Return how many first hops are exact (n,) for n start nodes."""
    if isinstance(exact_hops, HopRule):
        return exact_hops.hops(moves, starts)
    return np.full(len(starts), exact_hops, dtype=np.int64)
