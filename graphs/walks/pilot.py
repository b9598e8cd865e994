"""Exact hops chosen by a pilot: walks of some nodes, with every number of hops that their neighbourhoods allow.

Hops are worth having where they lower the variance of the features, and as many as the budget of non-zeros holds. A
pilot measures both. Its walks are independent of every draw of the user, so the choice leaves these unbiased.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.walks.drawing import draw
from graphs.walks.hops import HopRule
from graphs.walks.moves import Moves
from graphs.walks.walks import WalkSettings

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_SAMPLE, _DRAWS = 128, 8
_MOST = 32
_PILOT = 0x9111_07
"""The pilot's seeds begin here; a user's seed may be the same only on purpose."""


class _Measured(NamedTuple):
    """Of the nodes of the sample, by number of hops; NaN where their neighbourhoods exceed the budget."""

    nonzeros: Floats  # (n, H + 1) expected non-zeros of the row
    variances: Floats  # (n, H + 1) sums of the variances of its entries


def choose_hops(graph: Graph, kernel: GraphKernel, settings: WalkSettings, max_nonzeros: int) -> int | HopRule:
    """Return a rule for exact hops: as many as `max_nonzeros` allows and the predicted variance rewards.

    With B_h the nodes within h hops, a row has B_h non-zeros and those that its walkers find outside. h hops
    are taken where B_h + (what walkers find outside, on average over the sample) <= max_nonzeros, and where, over the
    nodes of the sample that could take them, the variance is below that of every smaller number. Where zero hops
    exceed the budget already, they are all there is.

    Args:
        graph: The graph.
        kernel: The kernel whose features are to have a small variance.
        settings: Of the walks; the number of hops aside.
        max_nonzeros: The budget of a row of Phi, in expectation.
    """
    moves = Moves(graph, settings.transitions)
    sample = np.random.default_rng(0).permutation(graph.num_nodes)[:_SAMPLE]
    sample.sort()
    balls = _balls(moves, sample, max_nonzeros)
    if balls.shape[1] == 1:
        return 0
    measured = _measure(graph, kernel, settings, sample, balls, max_nonzeros)
    limits = np.full(balls.shape[1], -1, dtype=np.int64)
    limits[0] = 1
    for hops in range(1, balls.shape[1]):
        outside = measured.nonzeros[:, hops] - balls[:, hops]
        could = np.isfinite(outside)
        limit = int(np.floor(max_nonzeros - outside[could].mean()))
        could &= balls[:, hops] <= limit
        if could.any():
            totals = measured.variances[could, : hops + 1].sum(0)
            if totals[hops] < totals[:hops].min():
                limits[hops] = limit
    taken = int(np.flatnonzero(limits > 0).max())
    return HopRule(limits[: taken + 1]) if taken > 0 else 0


def _balls(moves: Moves, sample: Integers, max_nonzeros: int) -> Integers:
    """Return the nodes within 0..H hops (n, H + 1), H the most hops with which any stays within the budget."""
    from graphs.walks import compiled

    matrix = moves.matrix
    balls = compiled.reach(matrix.indptr, matrix.indices, sample, _MOST, max_nonzeros)
    return np.asarray(balls[:, (balls <= max_nonzeros).any(0)])


def _measure(
    graph: Graph, kernel: GraphKernel, settings: WalkSettings, sample: Integers, balls: Integers, max_nonzeros: int
) -> _Measured:
    """Walk from the nodes of the sample with every number of hops, several times."""
    nonzeros, variances = np.full(balls.shape, np.nan), np.full(balls.shape, np.nan)
    for hops in range(balls.shape[1]):
        rows = np.flatnonzero(balls[:, hops] <= max_nonzeros)
        phis = []
        for k in range(_DRAWS):
            walks = draw(graph, sample[rows], replace(settings, exact_hops=hops, seed=_PILOT + k))
            indptr, indices, shape = walks.pattern
            phis.append(sp.csr_array((walks.values(walks.weights(kernel)), indices, indptr), shape=shape))
        nonzeros[rows, hops] = np.mean([np.diff(phi.indptr) for phi in phis], axis=0)
        squares = sum(phi.power(2).sum(1) for phi in phis)
        variances[rows, hops] = (squares - sum(phis).power(2).sum(1) / _DRAWS) / (_DRAWS - 1)
    return _Measured(nonzeros, variances)
