"""New points given their nearest rows: the weights of these, and the variance that they leave."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.local.prior import LocalPrior
from rfgp.local import nearest, nearest_before
from rfgp.local.neighbors import Indices

AHEAD = 2
"""Times as many neighbours for new points: those of rows cost k^3 at each step of a fit, these once.

On protein with k = 30 the RMSE falls from .495 to .494 and the NLPD rises from .509 to .511; on kin40k they fall from
.133 to .114 and from -.66 to -.81.
"""


def beside_rows(
    prior: LocalPrior,
    x: Tensor,  # (n, d)
    noise: Tensor,  # (n,)
    points: Tensor,  # (q, d)
) -> tuple[sp.csr_array, Tensor]:  # (q, n), (q,)
    """Return the weights of rows, and what is left of the local process, at points of which each is by itself."""
    near = nearest(prior.scaled(x), prior.scaled(points), AHEAD * prior.num_neighbors)
    return _conditioned(prior, x, noise, points, near)


def in_order(
    prior: LocalPrior,
    x: Tensor,  # (n, d)
    noise: Tensor,  # (n,)
    points: Tensor,  # (q, d)
) -> tuple[sp.csr_array, Tensor]:  # (q, n + q), (q,)
    """Return those of rows and of points before it, at points that may be each other's neighbours."""
    both = torch.cat([x.double(), points.double()])
    near = nearest_before(prior.scaled(both), len(x), AHEAD * prior.num_neighbors)
    noise = torch.cat([noise, torch.zeros(len(points), dtype=noise.dtype)])
    return _conditioned(prior, both, noise, points, near)


def no_functions() -> InvalidArgumentError:
    """Return what is raised where functions are to be drawn."""
    return InvalidArgumentError(
        "A local process has no functions to draw, for it is given by the neighbours of each point. Draw values at "
        "points: predict(X).sample(count)."
    )


def _conditioned(
    prior: LocalPrior, x: Tensor, noise: Tensor, points: Tensor, near: Indices
) -> tuple[sp.csr_array, Tensor]:
    is_there = near >= 0
    rows = np.unique(near[is_there])
    used, places = torch.from_numpy(rows), np.where(is_there, np.searchsorted(rows, near), -1)
    weights, left = prior.conditionals(points, x[used], noise[used], places)
    starts = np.concatenate([[0], is_there.sum(1).cumsum()])
    return sp.csr_array((weights.numpy()[is_there], near[is_there], starts), shape=(len(points), len(x))), left
