"""The conditional distribution of new points given their nearest rows."""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import input_derivatives, is_differentiated
from rfgp.blocks import Prior, VecchiaBlock, Weights
from rfgp.blocks.neighbors import AHEAD
from rfgp.blocks.precision import Slope
from rfgp.errors import InvalidArgumentError, NotDifferentiableError
from rfgp.local import nearest, nearest_before
from rfgp.local.factor import Floats, Indices

SLOPE_POINTS = 32
"""The number of points whose derivatives are computed at once. All covariances of their neighbors are formed."""


def neighbors_of(prior: Prior) -> VecchiaBlock:
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

    Raises:
        NotDifferentiableError: If the points require gradients. See `kriging_slopes`.
    """
    _check_constant(points)
    block, near = neighbors_of(prior), _nearest(prior, x, points)
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
    _check_constant(points)
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


def kriging_slopes(
    prior: Prior,
    x: Tensor,  # (n, d)
    noise: Tensor,  # (n,)
    points: Tensor,  # (q, d)
    terms: Sequence[str] | None = None,
) -> Iterator[Slope]:
    """Yield the derivatives of `kriging_weights` in columns of the points, at fixed neighbors.

    With the covariance c of a point and its neighbors, M of the neighbors with noise and v of the point, the weights
    M^-1 c have the derivatives M^-1 dc, and the conditional variance v - c^T M^-1 c has dv - 2 c^T M^-1 dc.

    Args:
        prior: The prior.
        x: The inputs of the rows.
        noise: The noise variances of the rows. Zeros denote values of the block itself.
        points: The inputs of the points.
        terms: The names of the predicted terms. If None, all.

    Yields:
        The derivatives in each column on which the predicted terms depend.
    """
    prior, rows, points = prior.detached(), x.double(), points.detach().double()
    own = prior if terms is None else prior.of(terms)
    if own.neighbors is None:
        return
    near, entries, slopes = _nearest(prior, x, points), [], []
    for begin in range(0, len(points), SLOPE_POINTS):
        part = slice(begin, begin + SLOPE_POINTS)
        solved, change = _conditional_slopes(prior, own, (rows, noise), points[part], near[part])
        entries.append(solved)
        slopes.append(change)
    solved, change = torch.cat(entries, dim=1), torch.cat(slopes, dim=1)  # (d, q, k), (d, q)
    starts = np.arange(0, near.size + 1, near.shape[1])
    for column in range(len(solved)):
        if bool(solved[column].any()) or bool(change[column].any()):
            matrix = sp.csr_array(
                (solved[column].numpy().reshape(-1), near.reshape(-1), starts), shape=(len(points), len(x))
            )
            yield Slope(column, matrix, change[column].numpy())


def _conditional_slopes(
    prior: Prior, own: Prior, rows: tuple[Tensor, Tensor], points: Tensor, near: Indices
) -> tuple[Tensor, Tensor]:
    """Return the derivatives (d, q, k) of weights and (d, q) of conditional variances in columns of points.

    Args:
        prior: The prior of the rows.
        own: The prior of the predicted terms.
        rows: The inputs of the rows (n, d), and their noise variances (n,).
        points: The inputs of the points, (q, d).
        near: The rows near the points, (q, k).
    """
    used = torch.from_numpy(np.unique(near))
    index, inputs, noise = torch.searchsorted(used, torch.from_numpy(near)), rows[0][used], rows[1].double()[used]
    among = _covariance(prior, inputs, inputs)[index[:, :, None], index[:, None, :]] + torch.diag_embed(noise[index])
    at_points = torch.arange(len(points))[:, None]
    cross = _covariance(own, points, inputs)[at_points, index]

    def moments(z: Tensor) -> Tensor:
        variances = neighbors_of(own).diagonal(z) - explained_features(own, z).square().sum(1)
        return torch.cat([_covariance(own, z, inputs), variances[:, None]], dim=1)

    slopes = torch.stack([input_derivatives(moments, points, column) for column in range(points.shape[1])])
    of_cross = slopes[:, at_points, index]  # (d, q, k)
    solved = torch.linalg.solve(among, of_cross.movedim(0, 2)).movedim(2, 0)
    return solved, slopes[:, :, -1] - 2 * (solved * cross).sum(2)


def _covariance(prior: Prior, a: Tensor, b: Tensor) -> Tensor:
    """Return the covariance (n, m) of the block of neighbors, of the residual if it is one."""
    return neighbors_of(prior).kernel(a, b) - explained_features(prior, a) @ explained_features(prior, b).mT


def _nearest(prior: Prior, x: Tensor, points: Tensor) -> Indices:
    """Return the rows near points (q, d), (q, k)."""
    block = neighbors_of(prior)
    return nearest(block.scaled(x), block.scaled(points), AHEAD * block.num_neighbors)


def _check_constant(points: Tensor) -> None:
    """Raise if points (q, d) require gradients, which kriging weights do not have."""
    if is_differentiated(points):
        raise NotDifferentiableError(
            "X must not require gradients for these predictions with nearest neighbors, got X that does. Use "
            "predict(X.detach()), or Exact()."
        )


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


def _flags(block: VecchiaBlock, x: Tensor, flags: Tensor | None = None) -> Tensor:
    """Return whether each term of a block is in the values at inputs (n, d), (n, T). By default all are."""
    return (block.flags(None) if flags is None else flags).expand(len(x), -1)
