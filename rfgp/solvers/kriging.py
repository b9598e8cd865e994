"""The conditional distribution of new points given their nearest rows."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks import NeighborBlock, Prior, Weights
from rfgp.blocks.neighbors import AHEAD
from rfgp.errors import InvalidArgumentError
from rfgp.local import nearest, nearest_before
from rfgp.local.neighbors import Floats, Indices


def neighbors_of(prior: Prior) -> NeighborBlock:
    """Return the block of nearest neighbors of a prior that has one.

    Args:
        prior: The prior.
    """
    assert prior.neighbors is not None
    return prior.neighbors


def check_sum(prior: Prior) -> None:
    """Raise unless all other blocks can be combined with a block of neighbors.

    Args:
        prior: The prior.

    Raises:
        InvalidArgumentError: If there are sparse features, exact products on a grid, or a residual that bounds the
            likelihood.
    """
    if prior.has_grids:
        raise InvalidArgumentError(
            "Neighbors cannot be added to exact products on a grid. Use SparsePrecision(), InducingPoints() or "
            "RandomFeatures() for the product."
        )
    if prior.graph_features or any(
        block.residual is not None and not block.residual.is_noise for block in prior.weights
    ):
        raise InvalidArgumentError(
            "Neighbors cannot be added to sparse features, nor to inducing points whose residual bounds the "
            'likelihood. Leave out one of the two, or use method="fitc".'
        )


def features(prior: Prior, weights: Weights, x: Tensor) -> Tensor:
    """Return the features Phi (n, F), float64.

    If the block of neighbors is a residual of weights, the features are evaluated in float64.

    Args:
        prior: The prior with neighbors.
        weights: The dense weights.
        x: The inputs, (n, d).
    """
    return weights.scaled(x.double() if neighbors_of(prior).is_residual else x).double()


def explained_features(prior: Prior, x: Tensor) -> Tensor:
    """Return the inducing-point features (n, M). The neighbors model their residual.

    There are no columns if the neighbors do not model a residual.

    Args:
        prior: The prior with neighbors.
        x: The inputs, (n, d).
    """
    return features(prior, Weights(prior.explained), x)


def explained_columns(prior: Prior, phi: Tensor) -> Tensor:
    """Return the columns of `explained_features` among given features, (n, M).

    Args:
        prior: The prior with neighbors.
        phi: The features of the dense weights, and possibly further ones, (n, F).
    """
    parts = torch.split(phi[:, : prior.num_features], prior.dense.sizes, dim=1)
    pairs = zip(prior.weights, parts, strict=True)
    explained = [part for block, part in pairs if block in prior.explained]
    return explained[0] if len(explained) == 1 else torch.cat([phi[:, :0], *explained], dim=1)


def kriging_weights(
    prior: Prior,
    x: Tensor,  # (n, d)
    noise: Tensor,  # (n,)
    points: Tensor,  # (q, d)
    flags: Tensor | None = None,  # (T,) or (q, T)
) -> tuple[sp.csr_array, Tensor]:  # (q, n), (q,)
    """Return the kriging weights of rows at single points.

    The conditional variances of the block of neighbors are returned too.

    Args:
        prior: The prior.
        x: The inputs of the rows.
        noise: The noise variances of the rows. Zeros denote values of the block itself.
        points: The inputs of the points.
        flags: Whether each term of the block is predicted at each point. If None, all are.
    """
    block = neighbors_of(prior)
    near = nearest(block.scaled(x), block.scaled(points), AHEAD * block.num_neighbors)
    return _conditioned(prior, (x, noise, _flags(block, x)), (points, _flags(block, points, flags)), near)


def sequential_kriging_weights(
    prior: Prior,
    x: Tensor,  # (n, d)
    noise: Tensor,  # (n,)
    points: Tensor,  # (q, d)
    flags: Tensor | None = None,  # (T,) or (q, T)
) -> tuple[sp.csr_array, Tensor]:  # (q, n + q), (q,)
    """Return the kriging weights of rows and of earlier points at each point.

    The conditional variances are returned too.

    Args:
        prior: The prior.
        x: The inputs of the rows.
        noise: The noise variances of the rows. Points have none.
        points: The inputs of the points, which may be neighbors of each other.
        flags: Whether each term of the block is predicted at each point. If None, all are.
    """
    block = neighbors_of(prior)
    both = torch.cat([x.double(), points.double()])
    near = nearest_before(block.scaled(both), len(x), AHEAD * block.num_neighbors)
    noise = torch.cat([noise, torch.zeros(len(points), dtype=noise.dtype)])
    point_flags = _flags(block, points, flags)
    return _conditioned(prior, (both, noise, torch.cat([_flags(block, x), point_flags])), (points, point_flags), near)


def joint_kriging_weights(
    prior: Prior,
    x: Tensor,  # (n, d)
    noise: Tensor,  # (n,)
    points: Tensor,  # (q, d)
    flags: Tensor | None = None,  # (T,) or (q, T)
) -> tuple[Floats, Tensor]:  # (q, n), (q, q)
    """Return the kriging weights of rows at points.

    The points may be neighbors of each other. The conditional covariance is returned too.

    Args:
        prior: The prior.
        x: The inputs of the rows.
        noise: The noise variances of the rows. Zeros denote values of the block itself.
        points: The inputs of the points.
        flags: Whether each term of the block is predicted at each point. If None, all are.
    """
    weights, variance = sequential_kriging_weights(prior, x, noise, points, flags)
    among = torch.eye(len(points), dtype=torch.float64) - torch.from_numpy(weights[:, len(x) :].toarray())
    right = torch.cat([torch.from_numpy(weights[:, : len(x)].toarray()), variance.sqrt().diag()], dim=1)
    solved = torch.linalg.solve_triangular(among, right, upper=False, unitriangular=True)
    of_points = solved[:, len(x) :]
    return solved[:, : len(x)].numpy(), of_points @ of_points.mT


def no_functions() -> InvalidArgumentError:
    """Return the error for draws of functions of nearest neighbors."""
    return InvalidArgumentError(
        "A process with nearest neighbors has no functions to draw, because each point has its own neighbors. Use "
        "predict(X).sample() instead."
    )


def _conditioned(
    prior: Prior,
    known: tuple[Tensor, Tensor, Tensor],  # (n, d), (n,), (n, T)
    new: tuple[Tensor, Tensor],  # (q, d), (q, T)
    near: Indices,  # (q, k)
) -> tuple[sp.csr_array, Tensor]:  # (q, n), (q,)
    """Return the weights of rows near points, and the conditional variances.

    Args:
        prior: The prior.
        known: The inputs of rows, their noise variances, and flags of the terms in them.
        new: The inputs of points, and flags of the terms predicted at them.
        near: The rows that each point is conditioned on, or -1.
    """
    (x, noise, flags), (points, predicted) = known, new
    block, is_neighbor = neighbors_of(prior), near >= 0
    rows = np.unique(near[is_neighbor])
    used, indices = torch.from_numpy(rows), np.where(is_neighbor, np.searchsorted(rows, near), -1)
    features_at = [explained_features(prior, inputs) for inputs in (points, x[used])]
    given = x[used], features_at[1], noise[used]
    weights, variance = block.conditionals((points, features_at[0]), given, indices, (flags[used], predicted))
    starts = np.concatenate([[0], is_neighbor.sum(1).cumsum()])
    entries = weights.numpy()[is_neighbor], near[is_neighbor], starts
    return sp.csr_array(entries, shape=(len(points), len(x))), variance


def _flags(block: NeighborBlock, x: Tensor, flags: Tensor | None = None) -> Tensor:
    """Return whether each term of a block is in the values at inputs (n, d), (n, T). By default all are."""
    return (block.flags(None) if flags is None else flags).expand(len(x), -1)
