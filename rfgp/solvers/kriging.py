"""Nearest neighbors: the conditional distribution of new points, and latent values with a sparse precision.

The inverse factor V of the process without noise (`rfgp.local.factor`, with a jitter for stability) has Q = V^T V, the
precision of a nearest-neighbor (Vecchia) process of values. d log |Q| and the derivatives of Q follow from those of V.
With weights W on the pattern of Q, sum_ij W_ij dQ_ij = 2 sum_ri (V W)_ri dV_ri.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.precisions.fields import MarkovField, SymmetricPattern
from rfgp.autograd import as_array, input_derivatives, is_differentiated
from rfgp.blocks import (
    AHEAD,
    Array,
    PrecisionBlock,
    Prior,
    Slope,
    VecchiaBlock,
    WeightBlock,
    Weights,
    columns_of,
    detached,
)
from rfgp.errors import InvalidArgumentError, NotDifferentiableError
from rfgp.local import nearest, nearest_before, pattern_of
from rfgp.local.factor import Floats, Indices
from rfgp.sparse import SparseValues, SparsityPattern, gram_on, selection, times_symmetric
from rfgp.torch_context import Recent

# --- The conditional distribution of new points given their nearest rows ---------------------------------------------

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
    block = neighbors_of(prior)
    both = torch.cat([x.double(), points.double()])
    near = nearest_before(block.scaled(both), np.arange(len(x), len(both)), AHEAD * block.num_neighbors)
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
    if is_differentiated(points):
        raise NotDifferentiableError(
            "X must not require gradients for these predictions with nearest neighbors, got X that does. Use "
            "predict(X.detach()), or Exact()."
        )
    is_neighbor, block = near >= 0, neighbors_of(prior)
    rows = np.unique(near[is_neighbor])
    used, count = torch.from_numpy(rows), len(rows)
    indices = np.where(is_neighbor, np.searchsorted(rows, near), -1)
    pattern = pattern_of(indices, count + np.arange(len(points)), count + len(points))
    both, no_noise = torch.cat([x[used].double(), points.double()]), torch.zeros(len(points), dtype=torch.float64)
    phi, flags = explained_features(prior, both), torch.cat([flags[used], predicted])
    with torch.no_grad():
        process, noise = block.process(both, phi, flags), torch.cat([noise[used].double(), no_noise])
        entries = process.root_entries(noise, pattern).numpy()
    is_weight = np.ones(len(entries), dtype=bool)
    is_weight[pattern.indptr[1:] - 1] = False
    starts = np.concatenate([[0], is_neighbor.sum(1).cumsum()])
    weights = sp.csr_array((entries[is_weight], near[is_neighbor], starts), shape=(len(points), len(x)))
    return weights, torch.from_numpy(entries[~is_weight] ** 2)


def _flags(block: VecchiaBlock, x: Tensor, flags: Tensor | None = None) -> Tensor:
    """Return whether each term of a block is in the values at inputs (n, d), (n, T). By default all are."""
    return (block.flags(None) if flags is None else flags).expand(len(x), -1)


# --- Nearest neighbors as a process of positions and parameters ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LatentProcess:
    """Nearest neighbors, and the weights whose residual they model.

    Attributes:
        block: The neighbors.
        explained: The weights. There are none unless the block is a residual.
    """

    block: VecchiaBlock
    explained: tuple[WeightBlock, ...] = ()

    def detached(self) -> "LatentProcess":
        """Return the process without gradients."""
        return detached(self)

    def positions(self, inputs: Tensor) -> Tensor:
        """Return the positions (n, e) of inputs, in double precision.

        Equal positions have equal bytes.

        Columns that the block does not depend on are zeros.

        Args:
            inputs: The inputs, (n, D).
        """
        return self.block.read(inputs).detach().double().contiguous() + 0.0

    @property
    def _tensors(self) -> list[Tensor]:
        """The parameters of the block for a variance of 1, and the relative variance and parameters of each weights."""
        values, variance = self.block.latent_parameters
        parts = [values]
        for weights in self.explained:
            parts += [weights.prior_variance / variance, *(parameter.double() for parameter in weights.parameters)]
        return parts

    @property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """The parameters (p,) of the process for a variance of 1, and its variance, 0-d.

        The parameters of the block are first. For each block of weights, its relative variance and the parameters of
        its features follow.
        """
        return torch.cat([part.reshape(-1) for part in self._tensors]), self.block.latent_parameters[1]

    @property
    def key(self) -> tuple[object, ...]:
        """The objects that define the process, besides positions and parameters."""
        features = (self.block.columns, *(weights.features for weights in self.explained)) if self.explained else ()
        return (*self.block.covariance_key, self.block.num_neighbors, self.block.seed, *features)

    def prior(self, values: Tensor | None = None) -> Prior:
        """Return the prior as a function of positions.

        Args:
            values: The parameters (p,), for a variance of 1. If None, the parameters and the variance of the process.
        """
        if values is None:
            return Prior(weights=self.explained, neighbors=self.block)
        old = self._tensors
        new = torch.split(values, [tensor.numel() for tensor in old])
        parts = iter(part.reshape(tensor.shape) for part, tensor in zip(new, old, strict=True))
        block = self.block.at_latent(next(parts))
        explained = tuple(
            replace(weights, variance=next(parts), parameters=tuple(next(parts) for _ in weights.parameters))
            for weights in self.explained
        )
        return Prior(weights=explained, neighbors=block)


# --- Nearest neighbors as latent values at the rows, with a sparse precision -----------------------------------------


class NeighborsField(MarkovField):
    """Values of a nearest-neighbor process at ordered positions.

    They are a function of the parameters of its covariance.

    Args:
        positions: The distinct positions, (N, d).
        process: The process.
        neighbors: The neighbors of each position, with the position itself as the last, (N, N).
    """

    parameters = ("values",)

    def __init__(self, positions: Tensor, process: LatentProcess, neighbors: SparsityPattern) -> None:
        self.positions, self._process, self._neighbors = positions, process.detached(), neighbors
        columns = columns_of(positions, process.block.columns)
        self.coordinates = columns.numpy() if columns.shape[1] in (2, 3) else None

    @cached_property
    def pattern(self) -> SymmetricPattern:
        """The pairs of values with entries in one row of V."""
        ones = SparseValues(torch.ones(len(self._neighbors.indices)), self._neighbors).matrix()
        product = sp.csr_array(ones.T @ ones)
        product.sort_indices()
        return SymmetricPattern(product.indptr.astype(np.int64), product.indices.astype(np.int32))

    def _factor(self, values: Tensor) -> Tensor:
        """Return the entries (nnz,) of V at parameters (p,), for a variance of 1."""
        prior = self._process.prior(values)
        phi = explained_features(prior, self.positions)
        block = neighbors_of(prior)
        return block.process(self.positions, phi).inverse_factor(block.jitter(self.positions), self._neighbors)

    def inverse_root(
        self,
        values: Array,  # (p,)
    ) -> sp.csr_array:  # (N, N)
        """Return the inverse factor V.

        Args:
            values: The parameters of the covariance.
        """
        with torch.no_grad():
            entries = self._factor(torch.from_numpy(values))
        return SparseValues(entries, self._neighbors).matrix()

    def entries(
        self,
        values: Array,  # (p,)
    ) -> Array:  # (nnz,)
        """Return the entries of Q on its pattern.

        Args:
            values: The parameters of the covariance.
        """
        return gram_on(self.inverse_root(values), self.pattern)

    def pull_back(
        self,
        values: Array,  # (p,)
        weights: Array,  # (nnz,)
    ) -> Array:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters, for symmetric weights.

        Args:
            values: The parameters of the covariance.
            weights: The weights of the entries of Q.
        """
        parameters = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            entries = self._factor(parameters)
            matrix = SparseValues(entries, self._neighbors).matrix()
            upstream = torch.from_numpy(2 * times_symmetric(matrix, self.pattern, weights))
            (in_parameters,) = torch.autograd.grad(entries, parameters, upstream)
        return as_array(in_parameters)

    def log_determinant(
        self,
        values: Array,  # (p,)
    ) -> tuple[float, Array]:
        """Return log |Q| = 2 sum_i log V_ii and its derivatives (p,).

        Args:
            values: The parameters of the covariance.
        """
        parameters = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            diagonal = torch.from_numpy(self._neighbors.indptr[1:] - 1)
            total = 2 * self._factor(parameters)[diagonal].log().sum()
            (in_parameters,) = torch.autograd.grad(total, parameters)
        return total.item(), as_array(in_parameters)


class _Projector:
    """The projection of values to points: the value at a position, or the weights of positions near a point.

    Terms of a sum have weights at a position too, because its value is that of the sum.

    Args:
        process: The process.
        positions: The positions, (N, d).
        terms: The names of the predicted terms. If None, all.
    """

    def __init__(self, process: LatentProcess, positions: Tensor, terms: Sequence[str] | None = None) -> None:
        self._process, self._positions, self._terms = process.detached(), positions, terms
        self._prior = self._process.prior()
        self._flags = process.block.flags(terms)
        self._noise = process.block.reading_jitter * self._prior.diagonal(positions)
        known = positions.numpy() if bool(self._flags.all()) else ()
        self._index_of = {position.tobytes(): number for number, position in enumerate(known)}

    def __call__(self, inputs: Tensor) -> sp.csr_array:
        """Return A (n, N)."""
        return self._read(inputs, kriging_weights)[0]

    def between(self, field: Any, values: Array, inputs: Tensor) -> tuple[sp.csr_array, Array]:
        """Return A and the conditional variances (n,) of single points, in units of the variance of the block.

        They are 0 at a position.

        Args:
            field: The field. It is not used.
            values: Its parameters, (p,). They are not used.
            inputs: The inputs of the points, (n, D).
        """
        (matrix, others, residual), variance = self._read(inputs, kriging_weights), np.zeros(len(inputs))
        variance[others.numpy()] = residual.numpy() / float(self._process.parameters[1])
        return matrix, variance

    def joint(self, inputs: Tensor) -> tuple[sp.csr_array, Tensor]:
        """Return A and the conditional covariance (n, n) of points.

        The points may be neighbors of each other.
        """
        matrix, others, residual = self._read(inputs, joint_kriging_weights)
        covariance = torch.zeros(len(inputs), len(inputs), dtype=torch.float64)
        covariance[others[:, None], others] = residual
        return matrix, covariance

    def slopes(self, field: Any, values: Array, inputs: Tensor) -> Iterator[Slope]:
        """Yield the derivatives of A and of the conditional variances in columns of inputs, at fixed neighbors.

        Args:
            field: The field. It is not used.
            values: Its parameters, (p,). They are not used.
            inputs: The inputs of the points, (n, D).

        Yields:
            The derivatives, in units of the variance of the block.
        """
        numbers = torch.arange(inputs.shape[1], dtype=torch.float64)[None]
        columns = self._process.positions(numbers)[0]  # the number of the column of the inputs for each position
        data = self._positions, self._noise, self._process.positions(inputs)
        variance = float(self._process.parameters[1])
        for slope in kriging_slopes(self._prior, *data, self._terms):
            yield Slope(int(columns[slope.column]), slope.projector, slope.conditional_variance / variance)

    def _read(self, inputs: Tensor, weigh: Callable[..., tuple[Any, Tensor]]) -> tuple[sp.csr_array, Tensor, Tensor]:
        """Return A (n, N), the points without a position, and their conditional variances or covariance."""
        points = self._process.positions(inputs)
        numbers = torch.tensor([self._index_of.get(point.tobytes(), -1) for point in points.numpy()]).long()
        known, others = (flags.nonzero()[:, 0] for flags in (numbers >= 0, numbers < 0))
        weights, residual = weigh(self._prior, self._positions, self._noise, points[others], self._flags)
        values, order = selection(numbers[known], len(self._positions)), torch.argsort(torch.cat([known, others]))
        stacked = sp.csr_array(sp.vstack([values, sp.csr_array(weights)], format="csr"))
        return sp.csr_array(stacked[order.numpy()]), others, residual


def latent_precision(
    block: VecchiaBlock,
    inputs: Tensor,
    explained: Sequence[WeightBlock] = (),
) -> PrecisionBlock:
    """Return nearest neighbors as latent values at the ordered positions of rows.

    The latent values have a sparse precision. The projection of a row is its own value. A new point depends on the
    values at near positions, with a conditional variance. This is exact for single points. In a joint
    distribution points may be neighbors of each other (`joint`).

    Args:
        block: The block.
        inputs: The inputs of the rows, (n, d). Equal rows share a position.
        explained: The weights whose residual the neighbors model.

    Examples:
        >>> import torch
        >>> from rfgp.blocks import VecchiaBlock
        >>> from rfgp.solvers.kriging import latent_precision
        >>> one = torch.ones((), dtype=torch.float64)
        >>> near = VecchiaBlock.stationary("matern32", one, one, num_neighbors=1, seed=0)
        >>> block = latent_precision(near, torch.tensor([[0.0], [1.0], [1.0]]))
        >>> block.size
        2
        >>> block.projector(torch.tensor([[0.0], [1.0]])).nnz
        2
    """
    process = LatentProcess(block, tuple(explained))
    field = _field(process.detached(), process.positions(inputs))
    positions, (values, variance) = field.positions, process.parameters

    def of_terms(names: Sequence[str] | None) -> PrecisionBlock:
        reader = _Projector(process, positions, names)
        return PrecisionBlock(
            *(field, values, variance, reader),
            name=block.name,
            combines_non_neighbors=True,
            joint=reader.joint,
            between=reader.between,
            restricted=restricted if len(block.names) > 1 else None,
            slopes=reader.slopes,
        )

    def restricted(names: Sequence[str]) -> PrecisionBlock | None:
        return of_terms(names) if bool(block.flags(names).any()) else None

    return of_terms(None)


def _field(process: LatentProcess, rows: Tensor) -> NeighborsField:
    """Return the field of the positions of rows (n, d), or one of the last two with its analysis if it is the same."""
    digest = hashlib.sha256(rows.numpy().tobytes() + process.parameters[0].numpy().tobytes()).digest()

    def compute() -> NeighborsField:
        first = np.unique(rows.numpy(), axis=0, return_index=True)[1]
        positions = rows[torch.from_numpy(np.sort(first))]
        block = neighbors_of(process.prior())
        positions = positions[block.order(len(positions))]
        return NeighborsField(positions, process, block.predecessors(positions))

    return _FIELDS.find((digest, rows.shape, process.key), compute)


_FIELDS: Recent[NeighborsField] = Recent(2)
"""The last fields. A model needs its field for the likelihood and for predictions."""
