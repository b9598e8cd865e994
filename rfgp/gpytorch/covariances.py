"""Covariances of sums of terms for batches of inputs, and sparse features, as linear operators."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from linear_operator import to_linear_operator
from linear_operator.operators import (
    DiagLinearOperator,
    LinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)
from torch import Tensor

from rfgp.blocks import Prior, SparseWeightBlock
from rfgp.sparse import SparsityPattern, gram, product

# --- Sparse features as linear operators, which are differentiable in their values only -------------------------------
#
# `linear_operator` splits an operator into tensors and rebuilds it. It differentiates in each tensor, and indexes and
# expands it by batch. The indices of a sparse matrix must not take part in this. They are therefore in a frozen object
# that is not a tensor, and are passed as a keyword argument.


class SparseLinearOperator(LinearOperator):
    """A sparse matrix (..., n, N), or a batch of them on one pattern.

    Args:
        values: Values (..., nnz) of the entries of the pattern.
        pattern: The sparsity pattern (n, N).

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from rfgp.gpytorch import SparseLinearOperator
        >>> from rfgp.sparse import SparsityPattern
        >>> pattern = SparsityPattern(indptr=np.array([0, 1, 3]), indices=np.array([0, 0, 1]), shape=(2, 2))
        >>> SparseLinearOperator(torch.tensor([1.0, 3.0, 2.0]), pattern).to_dense().tolist()
        [[1.0, 0.0], [3.0, 2.0]]
    """

    def __init__(self, values: Tensor, pattern: SparsityPattern) -> None:
        super().__init__(values, pattern=pattern)
        self.values, self.pattern = values, pattern

    def take(
        self,
        rows: Tensor,  # (b,)
    ) -> "SparseLinearOperator":  # (..., b, N)
        """Return some of the rows.

        Args:
            rows: The indices (b,) of the rows.
        """
        pattern, entries = self.pattern.take(rows.cpu().numpy())
        return SparseLinearOperator(self.values[..., entries.to(self.device)], pattern)

    def squares(self) -> Tensor:
        """Return the sums of the squares of the rows, (..., n)."""
        out = self.values.new_zeros(*self.batch_shape, self.pattern.shape[0])
        return out.index_add(-1, _tensor(self.pattern.rows, self.values), self.values.square())

    def to_dense(self) -> Tensor:
        """Return the matrix (..., n, N)."""
        flat = self.values.new_zeros(*self.batch_shape, math.prod(self.pattern.shape))
        flat = flat.index_copy(-1, _tensor(self.pattern.keys, self.values), self.values)
        return flat.reshape(self._size())

    def _size(self) -> torch.Size:
        return torch.Size((*self.values.shape[:-1], *self.pattern.shape))

    def _matmul(self, rhs: Tensor) -> Tensor:
        return product(self.values, rhs, self.pattern)

    def _t_matmul(self, rhs: Tensor) -> Tensor:
        return self._transpose_nonbatch()._matmul(rhs)

    def _transpose_nonbatch(self) -> "SparseLinearOperator":
        pattern, order = self.pattern.transposed
        return SparseLinearOperator(self.values[..., order.to(self.device)], pattern)

    def _expand_batch(self, batch_shape: Any) -> "SparseLinearOperator":
        return SparseLinearOperator(self.values.expand(*batch_shape, self.values.shape[-1]), self.pattern)

    def _mul_constant(self, other: Tensor) -> LinearOperator:
        return SparseLinearOperator(self.values * other.unsqueeze(-1), self.pattern)

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        keys = row_index.cpu().numpy() * self.pattern.shape[1] + col_index.cpu().numpy()
        own = self.pattern.keys
        if len(own) == 0:
            return self.values.new_zeros(keys.shape)
        places = np.minimum(np.searchsorted(own, keys), len(own) - 1)
        stored = own[places] == keys
        found = self.values[(*batch_indices, _tensor(places, self.values))]
        return torch.where(_tensor(stored, self.values), found, 0)

    def _getitem(self, row_index: Any, col_index: Any, *batch_indices: Any) -> LinearOperator:
        plain = isinstance(col_index, slice) and col_index == slice(None)
        plain = plain and not any(isinstance(index, Tensor) for index in batch_indices)
        plain = plain and (isinstance(row_index, slice) or row_index.ndim == 1)
        if not plain:
            return super()._getitem(row_index, col_index, *batch_indices)
        part = SparseLinearOperator(self.values[batch_indices], self.pattern) if batch_indices else self
        if isinstance(row_index, slice) and row_index == slice(None):
            return part
        rows = torch.arange(self.pattern.shape[0], device=self.device)
        return part.take(rows[row_index])


class SparseRootLinearOperator(RootLinearOperator):
    """Phi Phi^T (..., n, n) for sparse Phi (..., n, N).

    Args:
        root: Phi. Other operators or tensors give a `RootLinearOperator`.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from rfgp.gpytorch import SparseLinearOperator, SparseRootLinearOperator
        >>> from rfgp.sparse import SparsityPattern
        >>> pattern = SparsityPattern(indptr=np.array([0, 1, 3]), indices=np.array([0, 0, 1]), shape=(2, 2))
        >>> SparseRootLinearOperator(SparseLinearOperator(torch.tensor([1.0, 3.0, 2.0]), pattern)).to_dense().tolist()
        [[1.0, 3.0], [3.0, 13.0]]
    """

    def to_dense(self) -> Tensor:
        """Return the matrix (..., n, n)."""
        return _dense_gram(self.root, self.root) if _is_single(self.root) else super().to_dense()

    def _diagonal(self) -> Tensor:
        return self.root.squares() if isinstance(self.root, SparseLinearOperator) else super()._diagonal()

    def _prod_batch(self, dim: int) -> LinearOperator:
        # linear_operator pads an odd batch by a root of the wrong scale where roots are not square
        return to_linear_operator(self.to_dense().prod(dim))

    def _get_indices(self, row_index: Tensor, col_index: Tensor, *batch_indices: Tensor) -> Tensor:
        if not _is_single(self.root):
            return super()._get_indices(row_index, col_index, *batch_indices)
        rows, places = torch.cat([row_index.reshape(-1), col_index.reshape(-1)]).unique(return_inverse=True)
        some = self.root.take(rows)
        left, right = places[: row_index.numel()], places[row_index.numel() :]
        return _dense_gram(some, some)[left.reshape(row_index.shape), right.reshape(row_index.shape)]


class SparseProductLinearOperator(MatmulLinearOperator):
    """Phi_1 Phi_2^T (..., n, k) for sparse factors with the same number of columns.

    Args:
        left: Phi_1 (..., n, N).
        right: Phi_2^T (..., N, k).
    """

    def to_dense(self) -> Tensor:
        """Return the matrix (..., n, k)."""
        left, right = self.left_linear_op, self.right_linear_op
        if _is_single(left) and _is_single(right):
            return _dense_gram(left, right._transpose_nonbatch())
        return super().to_dense()


def _is_single(operator: Any) -> bool:
    return isinstance(operator, SparseLinearOperator) and operator.values.ndim == 1


def _dense_gram(a: SparseLinearOperator, b: SparseLinearOperator) -> Tensor:
    return gram(a.values, a.pattern, b.values, b.pattern)


def _tensor(array: Any, like: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(array)).to(like.device)


# --- Covariances of sums of terms for batches of inputs, as linear operators ------------------------------------------


def is_same_memory(x: Tensor, z: Tensor) -> bool:
    """Return whether two inputs (..., n, d) are views of the same rows.

    GPyTorch slices the inputs of a joint covariance, which returns views of one memory. Inputs with equal values in
    other memory are different rows. So are different leaf tensors that require gradients.

    Args:
        x: Inputs (..., n, d).
        z: Other inputs (..., m, d).

    Examples:
        >>> x = torch.ones(3, 2)
        >>> is_same_memory(x, x[:]), is_same_memory(x, x.clone())
        (True, False)
    """
    if x is z:
        return True
    is_view = x.data_ptr() == z.data_ptr() and x.shape == z.shape and x.stride() == z.stride() and x.dtype == z.dtype
    has_leaf = any(one.requires_grad and one.is_leaf for one in (x, z))
    return is_view and x.device == z.device and x.requires_grad == z.requires_grad and not has_leaf


def have_equal_values(x: Tensor, z: Tensor) -> bool:
    """Return whether two inputs have equal values and require no gradients.

    Args:
        x: Inputs (..., n, d).
        z: Other inputs (..., m, d).

    Examples:
        >>> x = torch.ones(3, 2)
        >>> have_equal_values(x, x.clone()), have_equal_values(x, 2 * x)
        (True, False)
    """
    return not (x.requires_grad or z.requires_grad) and torch.equal(x, z)


def is_one_element(x: Tensor) -> bool:
    """Return whether a batch of inputs has one element, or equal elements without gradients.

    Args:
        x: Inputs (..., n, d).

    Examples:
        >>> x = torch.arange(6.0).reshape(3, 2)
        >>> is_one_element(x), is_one_element(torch.stack([x, x])), is_one_element(torch.stack([x, 2 * x]))
        (True, True, False)
    """
    count = x.shape[:-2].numel()
    if count == 1 or x.requires_grad:
        return count == 1
    return torch.equal(x, x.reshape(count, *x.shape[-2:])[:1].expand(x.shape))


@dataclass(frozen=True, eq=False)
class BatchOfPriors:
    """The priors of a batch of kernels, for a batch of B inputs.

    Attributes:
        priors: Priors of the same terms at P values of the hyperparameters.
        places: The index of the prior of each element of the batch of inputs, (B,).
    """

    priors: Sequence[Prior]
    places: Tensor

    @property
    def has_weights_only(self) -> bool:
        """Whether all terms have weights, so that the covariance has a low rank."""
        return not self.priors[0].kernels and (not self.priors[0].graph_features or self.is_single)

    @property
    def is_single(self) -> bool:
        """Whether there is one element."""
        return len(self.places) == 1

    def by_element(
        self,
        function: Callable[..., Tensor],
        *rows: Tensor,  # (B, n, ...)
    ) -> Tensor:  # (B, ...)
        """Return the results of a function for each element, stacked.

        Args:
            function: A function of a prior and rows (n, ...).
            rows: Rows (B, n, ...), one argument of the function each.
        """
        found = [
            function(self.priors[place], *(x[number] for x in rows))
            for number, place in enumerate(self.places.tolist())
        ]
        return torch.stack(found)

    def roots(
        self,
        x: Tensor,  # (B, n, D)
    ) -> Tensor:  # (B, n, F)
        """Return the features of terms with dense weights, multiplied by prior standard deviations.

        The features of all elements with the same prior are computed at once.

        Args:
            x: Rows (B, n, D).
        """
        found, order = [], []
        for number, prior in enumerate(self.priors):
            own = (self.places == number).nonzero()[:, 0]
            some = x if len(self.priors) == 1 else x[own.to(x.device)]
            phi = prior.dense.scaled(some.flatten(0, 1))
            found.append(phi.reshape(*some.shape[:-1], phi.shape[-1]))
            order.append(own)
        return found[0] if len(found) == 1 else torch.cat(found)[torch.cat(order).argsort().to(x.device)]

    def residuals(
        self,
        x: Tensor,  # (B, n, D)
        phi: Tensor,  # (B, n, F)
    ) -> Tensor | None:  # (B, n)
        """Return the variances of residuals (B, n), or None if there are none.

        A residual is independent noise of a row.

        Args:
            x: Rows (B, n, D).
            phi: The features (B, n, F) of the rows.
        """
        if not self.priors[0].dense.has_residual:
            return None
        return self.by_element(lambda prior, rows, own: prior.dense.residual_variance(rows, own), x, phi)

    def dense(
        self,
        a: Tensor,  # (B, n, D)
        b: Tensor,  # (B, m, D)
        has_new_levels: bool,
    ) -> Tensor:  # (B, n, m)
        """Return the sum of the covariances of terms without weights, of sparse features and of new levels.

        Args:
            a: Rows (B, n, D).
            b: Rows (B, m, D), or the same tensor as `a`.
            has_new_levels: Whether rows may have levels that are not in the training data.
        """

        def of_one(prior: Prior, x: Tensor, z: Tensor) -> Tensor:
            z = x if a is b else z
            blocks = (*prior.kernels, *prior.graph_features)
            total = torch.zeros(len(x), len(z), dtype=torch.float64, device=x.device)
            total = sum((block.kernel(x, z) for block in blocks), start=total)
            if has_new_levels:
                total = sum((block.new_covariance(x, z) for block in prior.weights), start=total)
            return total

        return self.by_element(of_one, a, b)

    def variances(
        self,
        x: Tensor,  # (B, n, D)
        has_new_levels: bool,
    ) -> Tensor:  # (B, n)
        """Return the sum of the variances of all terms except dense weights.

        Args:
            x: Rows (B, n, D).
            has_new_levels: Whether rows may have levels that are not in the training data.
        """

        def of_one(prior: Prior, rows: Tensor) -> Tensor:
            total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
            total = sum((block.diagonal(rows) for block in (*prior.kernels, *prior.graph_features)), start=total)
            if has_new_levels:
                total = sum((block.new_variance(rows) for block in prior.weights), start=total)
            return total

        return self.by_element(of_one, x)


@dataclass(frozen=True, eq=False)
class InputPair:
    """Two inputs with a requested covariance.

    Attributes:
        a: Rows (B, n, D).
        b: Rows (B, m, D), the same tensor if they have equal values.
        is_same: Whether the rows of a and b are the same observations, which share a residual.
        has_new_levels: Whether both may have levels that are not in the training data.
        dtype: The type of the covariance.
    """

    a: Tensor
    b: Tensor
    is_same: bool
    has_new_levels: bool
    dtype: torch.dtype

    def diagonal(self, priors: BatchOfPriors) -> Tensor:
        """Return the covariances (B, n) of pairs of rows.

        Args:
            priors: The priors of the batch.
        """
        left, right = self._roots(priors)
        if self.a is not self.b:
            dense = priors.dense(self.a, self.b, self.has_new_levels).diagonal(dim1=-1, dim2=-2)
            return ((left * right).sum(-1) + dense).to(self.dtype)
        total = left.square().sum(-1) + priors.variances(self.a, self.has_new_levels)
        noise = priors.residuals(self.a, left) if self.is_same else None
        return (total if noise is None else total + noise).to(self.dtype)

    def covariance(self, priors: BatchOfPriors, batch: torch.Size) -> LinearOperator | Tensor:
        """Return the covariance of the two inputs, (..., n, m).

        Args:
            priors: The priors of the batch.
            batch: The shape of the batch, with B elements.
        """
        left, right = self._roots(priors)
        noise = priors.residuals(self.a, left) if self.is_same else None
        if priors.has_weights_only and not self.has_new_levels:
            parts = self._sparse(priors) if priors.priors[0].graph_features else []
            if left.shape[-1]:
                parts.append(_product(self._shaped(left, batch), self._shaped(right, batch), self.a is self.b))
            if noise is not None:
                parts.append(DiagLinearOperator(self._shaped(noise, batch)))
            first, *others = parts
            return sum(others, start=first)
        total = left @ right.mT + priors.dense(self.a, self.b, self.has_new_levels)
        return self._shaped(total if noise is None else total + noise.diag_embed(), batch)

    def _roots(self, priors: BatchOfPriors) -> tuple[Tensor, Tensor]:
        """Return the features of both inputs, (B, n, F) and (B, m, F)."""
        if self.a is self.b:
            both = priors.roots(self.a)
            return both, both
        both, size = priors.roots(torch.cat([self.a, self.b], dim=1)), self.a.shape[1]
        return both[:, :size], both[:, size:]

    def _sparse(self, priors: BatchOfPriors) -> list[LinearOperator]:
        """Return the covariances (n, m) of blocks of sparse features."""
        (place,) = priors.places.tolist()
        found: list[LinearOperator] = []
        for block in priors.priors[place].graph_features:
            left = _sparse_root(block, self.a[0], self.dtype)
            if self.a is self.b:
                found.append(SparseRootLinearOperator(left))
            else:
                found.append(SparseProductLinearOperator(left, _sparse_root(block, self.b[0], self.dtype).mT))
        return found

    def _shaped(self, x: Tensor, batch: torch.Size) -> Tensor:
        return x.reshape(*batch, *x.shape[1:]).to(self.dtype)


def _sparse_root(block: SparseWeightBlock, x: Tensor, dtype: torch.dtype) -> SparseLinearOperator:
    """Return the sparse features of rows (n, D), with the prior scale, (n, N)."""
    values, pattern = block.features(x, keep=True)
    where = SparsityPattern(pattern.indptr, pattern.indices, pattern.shape)
    return SparseLinearOperator((block.variance.sqrt() * values).to(dtype), where)


def _product(left: Tensor, right: Tensor, is_symmetric: bool) -> LinearOperator:
    """Return the product of features (..., n, F) and (..., m, F)."""
    if not is_symmetric:
        return to_linear_operator(MatmulLinearOperator(left, right.mT))
    return LowRankRootLinearOperator(left) if left.shape[-1] < left.shape[-2] else RootLinearOperator(left)
