"""Nearest neighbours as a block with a sparse precision, whose latent values are those of the process at the rows.

The inverse factor V of the process without noise (`rfgp.local.factor`, with a jitter for the digits) has Q = V^T V: the
precision of a nearest-neighbour (Vecchia) process of values. d log |Q| and the derivatives of Q come from those of V:
with weights W on the pattern of Q, sum_ij W_ij dQ_ij = 2 sum_ri (V W)_ri dV_ri.
"""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.precisions.role import MarkovField, Pattern
from rfgp.blocks.neighbors import AHEAD, VecchiaBlock
from rfgp.blocks.precision import Array, PrecisionBlock
from rfgp.errors import InvalidArgumentError
from rfgp.local import KINDS, inverse_factor, nearest
from rfgp.local.latent import JITTER
from rfgp.sparse import SparseValues, SparsityPattern, gram_on, times_symmetric


class NeighborsField(MarkovField):
    """Values of a nearest-neighbour process of variance 1 at places in order, as a function of the lengthscale.

    Args:
        places: The places (N, d), distinct.
        kind: The kernel, a number of `rfgp.local.KINDS`.
        near: The neighbours of each place, and the place itself as the last, (N, N).
    """

    parameters = ("lengthscale",)

    def __init__(self, places: Tensor, kind: int, near: SparsityPattern) -> None:
        self.places, self._kind, self._near = places, kind, near
        self.coordinates = places.numpy() if places.shape[1] in (2, 3) else None

    @cached_property
    def pattern(self) -> Pattern:
        """Pairs of values that a row of V has entries for."""
        ones = sp.csr_array((np.ones(len(self._near.indices)), self._near.indices, self._near.indptr))
        product = sp.csr_array(ones.T @ ones)
        product.sort_indices()
        return Pattern(product.indptr.astype(np.int64), product.indices.astype(np.int32))

    def _factor(self, lengthscale: Tensor) -> Tensor:
        """Return the entries (nnz,) of V at a lengthscale (d,) or (1,)."""
        one = torch.ones((), dtype=torch.float64)
        jitter = torch.full((len(self.places),), JITTER, dtype=torch.float64)
        return inverse_factor(self.places, lengthscale, one, jitter, self._kind, self._near)

    def entries(
        self,
        values: Array,  # (p,)
    ) -> Array:  # (nnz,)
        """Return the entries of Q at a lengthscale (d,) or (1,)."""
        factor = SparseValues(self._factor(torch.from_numpy(values)), self._near).matrix()
        return gram_on(factor, self.pattern)

    def pull_back(
        self,
        values: Array,  # (p,)
        weights: Array,  # (nnz,)
    ) -> Array:  # (p,)
        """Return sum_e weights_e dQ_e / d lengthscale, for symmetric weights."""
        lengthscale = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            entries = self._factor(lengthscale)
            matrix = SparseValues(entries, self._near).matrix()
            upstream = torch.from_numpy(2 * times_symmetric(matrix, self.pattern, weights))
            (found,) = torch.autograd.grad(entries, lengthscale, upstream)
        return np.asarray(found.numpy())

    def log_determinant(
        self,
        values: Array,  # (p,)
    ) -> tuple[float, Array]:
        """Return log |Q| = 2 sum_i log V_ii and its derivatives (p,)."""
        lengthscale = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            own = torch.from_numpy(self._near.indptr[1:] - 1)
            total = 2 * self._factor(lengthscale)[own].log().sum()
            (found,) = torch.autograd.grad(total, lengthscale)
        return total.item(), np.asarray(found.numpy())


class _Reads:
    """What points read of values at places: the value at a place, or the weights of places near a point."""

    def __init__(self, block: VecchiaBlock, places: Tensor) -> None:
        self._block, self._places = block.detached(), places
        self._numbers = {place.tobytes(): number for number, place in enumerate(places.numpy())}
        self._last: tuple[Tensor, tuple[sp.csr_array, Tensor]] | None = None

    def __call__(self, inputs: Tensor) -> sp.csr_array:
        """Return A (n, N)."""
        return self._read(inputs)[0]

    def residual(self, inputs: Tensor) -> Tensor:
        """Return the variances (n,) that A leaves; 0 at a place."""
        return self._read(inputs)[1]

    def _read(self, inputs: Tensor) -> tuple[sp.csr_array, Tensor]:
        if self._last is None or self._last[0] is not inputs:
            self._last = inputs, self._conditioned(distinct(inputs))
        return self._last[1]

    def _conditioned(self, points: Tensor) -> tuple[sp.csr_array, Tensor]:
        """Return A and the variances that are left, for points (n, d) in double precision."""
        block, count = self._block, len(self._places)
        numbers = np.array([self._numbers.get(point.tobytes(), -1) for point in points.numpy()], dtype=np.int64)
        others = np.flatnonzero(numbers < 0)
        left, near = torch.zeros(len(points), dtype=torch.float64), np.zeros((0, 0), dtype=np.int64)
        weights = torch.zeros(near.shape, dtype=torch.float64)
        if len(others):
            some = points[torch.from_numpy(others)]
            near = nearest(block.scaled(self._places), block.scaled(some), AHEAD * block.num_neighbors)
            jitter = (JITTER * block.variance.double()).expand(count)
            none = points.new_zeros(len(some), 0), points.new_zeros(count, 0)
            weights, found = block.conditionals((some, none[0]), (self._places, none[1], jitter), near)
            left[torch.from_numpy(others)] = found
        sizes = np.where(numbers < 0, near.shape[1], 1)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        is_other = np.repeat(numbers < 0, sizes)
        columns, data = np.repeat(numbers, sizes), np.ones(starts[-1])
        columns[is_other], data[is_other] = near.reshape(-1), weights.numpy().reshape(-1)
        return sp.csr_array((data, columns, starts), shape=(len(points), count)), left


def distinct(inputs: Tensor) -> Tensor:
    """Return inputs (n, d) in double precision, in which equal rows have equal bytes."""
    return inputs.detach().double().contiguous() + 0.0


def latent_precision(block: VecchiaBlock, inputs: Tensor, field: NeighborsField | None = None) -> PrecisionBlock:
    """Return nearest neighbours as latent values at the places of rows, in order, with their sparse precision.

    Rows read their own value. A new point reads the values at the places near it, which leave a `residual` variance:
    that is exact for each point by itself, and taken as independent between points.

    Args:
        block: The block.
        inputs: The inputs of the rows, (n, d). Equal rows are one place.
        field: That of the same block and inputs at another lengthscale, whose neighbours are kept. If None, they are
            found.

    Raises:
        InvalidArgumentError: the block is the residual of features.

    Examples:
        >>> import torch
        >>> from rfgp.blocks import VecchiaBlock
        >>> from rfgp.solvers.bordered.latent_neighbors import latent_precision
        >>> one = torch.ones((), dtype=torch.float64)
        >>> near = VecchiaBlock("matern32", one, one, num_neighbors=1, seed=0)
        >>> block = latent_precision(near, torch.tensor([[0.0], [1.0], [1.0]]))
        >>> block.size
        2
        >>> block.projector(torch.tensor([[0.0], [1.0]])).nnz
        2
    """
    if block.is_residual:
        raise InvalidArgumentError(
            "Neighbours that are the residual of inducing points have no sparse precision. Use neighbours that are "
            "responses, or conjugate gradients."
        )
    if field is None:
        rows = distinct(inputs)
        first = np.unique(rows.numpy(), axis=0, return_index=True)[1]
        places = rows[torch.from_numpy(np.sort(first))]
        places = places[block.order(len(places))]
        field = NeighborsField(places, KINDS[block.kernel_name], block.predecessors(places))
    reads = _Reads(block, field.places)
    lengthscale = block.lengthscale.double().reshape(-1)
    return PrecisionBlock(field, lengthscale, block.variance.double(), reads, None, block.name, reads.residual)
