"""The settings of walks, which with the graph and the start nodes determine every walk.

With h exact hops, the powers U^0 to U^h of the shift operator are summed exactly before walkers start. Walkers start at
nodes after h hops and estimate the higher powers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.couplings import HaltingDistribution, LengthCoupling
from graphs.errors import InvalidArgumentError

TRANSITIONS = ("weights", "uniform")
"""The names of transition probabilities."""
_MAX = 1000
"""The largest number of limits of a rule."""


@dataclass(frozen=True, eq=False)
class HopRule:
    """A rule for the number of exact first hops, by the size of the neighborhood.

    The number depends only on the node and the graph, so the walks of a node do not depend on the other start nodes.

    Attributes:
        limits: Limits (H + 1,). A node may have h exact hops if at most limits[h] nodes lie within h hops. 0 hops are
            always allowed.

    Raises:
        InvalidArgumentError: If limits are not integers (H + 1,), or H is too large.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> rule = graphs.HopRule(np.array([1, 5, 13]))
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((9, 9)), exact_hops=rule, seed=0)
        >>> int(walks.exact_hops.max())
        2
    """

    limits: NDArray[np.int64]

    def __post_init__(self) -> None:
        limits = np.asarray(self.limits)
        if limits.ndim != 1 or not 1 <= len(limits) <= _MAX or not np.issubdtype(limits.dtype, np.integer):
            raise InvalidArgumentError(
                f"A HopRule must have integer limits (H + 1,), at most {_MAX} of them, got {repr(self.limits)[:200]}."
            )
        object.__setattr__(self, "limits", limits.astype(np.int64))

    @property
    def max_hops(self) -> int:
        """The largest number of hops of any node."""
        return len(self.limits) - 1


@dataclass(frozen=True, eq=False)
class WalkSettings:
    """The settings of walks.

    Attributes:
        num_walkers: The number m of walkers per node.
        halting: The distribution of lengths.
        lengths: The name of `length_coupling`, as in `graphs.sample_walks(lengths=)`.
        step_coupling: The coupling of steps: "independent", "stratified" or "repelling" (neighbors without
            replacement).
        transitions: "weights" or "uniform".
        seed: The seed.
        length_coupling: The coupling of lengths.
        exact_hops: The number h of exact first hops, or a rule. See the docstring of the module.

    Examples:
        >>> import graphs
        >>> settings = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), p_halt=0.2, seed=0).settings
        >>> settings.halting.p_halt, settings.lengths
        (0.2, 'systematic')
    """

    num_walkers: int
    halting: HaltingDistribution
    lengths: str
    step_coupling: str
    transitions: str
    seed: int
    length_coupling: LengthCoupling
    exact_hops: int | HopRule = 0

    @property
    def max_hops(self) -> int:
        """The largest number of exact first hops of any node."""
        return self.exact_hops.max_hops if isinstance(self.exact_hops, HopRule) else self.exact_hops
