"""How walks are drawn: with the graph and the start nodes that determines every one of them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.couplings import HaltingDistribution, LengthCoupling
from graphs.errors import InvalidArgumentError

TRANSITIONS = ("weights", "uniform")

_MAX = 1000


@dataclass(frozen=True, eq=False)
class HopRule:
    """How many first hops of a node are exact: the most that its neighbourhood allows.

    It depends on the node and the graph alone, so that a node has the same walks whichever others are asked for.

    Attributes:
        limits: (H + 1,) h hops are taken where at most limits[h] nodes lie within h hops; 0 hops are always allowed.
    """

    limits: NDArray[np.int64]

    def __post_init__(self) -> None:
        limits = np.asarray(self.limits)
        if limits.ndim != 1 or not 1 <= len(limits) <= _MAX or not np.issubdtype(limits.dtype, np.integer):
            raise InvalidArgumentError(
                f"A rule for exact hops has integer limits (H + 1,), at most {_MAX} of them, got "
                f"{repr(self.limits)[:200]}."
            )
        object.__setattr__(self, "limits", limits.astype(np.int64))

    @property
    def most(self) -> int:
        """The most hops of any node."""
        return len(self.limits) - 1


@dataclass(frozen=True, eq=False)
class WalkSettings:
    """How walks are drawn; with the graph and the start nodes it determines every one of them."""

    num_walkers: int
    halting: HaltingDistribution
    lengths: str
    directions: str
    transitions: str
    seed: int
    coupling: LengthCoupling
    exact_hops: int | HopRule = 0

    @property
    def most_hops(self) -> int:
        """The most first hops that are exact for any node."""
        return self.exact_hops.most if isinstance(self.exact_hops, HopRule) else self.exact_hops
