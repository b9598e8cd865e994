"""Covariances of priors as GPyTorch kernels.

The chapter has, in this order: sparse features as linear operators; tests of whether inputs are the same rows; the
covariance of two inputs under the priors of a batch of kernels; the base of all kernels that are priors; and states.
"""

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.models import exact_prediction_strategies as strategies
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
from rfgp.errors import InvalidArgumentError
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


# --- Inputs that are the same rows ------------------------------------------------------------------------------------


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


# --- The covariance of two inputs under the priors of a batch of kernels ----------------------------------------------


@dataclass(frozen=True, eq=False)
class CovarianceOfPriors:
    """The covariance of a batch of two inputs with B elements.

    Attributes:
        priors: Priors of the same terms at the values of the hyperparameters of each kernel.
        places: The index of the prior of each element of the batch, in the shape (...) of the batch.
        a: Rows (B, n, D).
        b: Rows (B, m, D), the same tensor if they have equal values.
        is_same: Whether the rows of a and b are the same observations, which share a residual.
        has_new_levels: Whether both may have levels that are not in the training data.
        dtype: The type of the covariance.
    """

    priors: Sequence[Prior]
    places: Tensor
    a: Tensor
    b: Tensor
    is_same: bool
    has_new_levels: bool
    dtype: torch.dtype

    def diagonal(self) -> Tensor:
        """Return the covariances (..., n) of pairs of rows."""
        left, right = self._roots()
        total = (left * right).sum(-1)
        if self.a is self.b:
            total = total + self._by_element(self._variance, self.a)
            noise = self._residuals(left)
            total = total if noise is None else total + noise
        elif self.priors[0].kernels or self.priors[0].graph_features or self.has_new_levels:
            total = total + self._dense().diagonal(dim1=-1, dim2=-2)
        return self._shaped(total)

    def matrix(self) -> LinearOperator | Tensor:
        """Return the covariance (..., n, m)."""
        left, right = self._roots()
        noise = self._residuals(left)
        if not self._is_sum_of_products:
            total = left @ right.mT + self._dense()
            return self._shaped(total if noise is None else total + noise.diag_embed())
        parts = self._sparse_products()
        if left.shape[-1]:
            parts.append(_product(self._shaped(left), self._shaped(right), self.a is self.b))
        if noise is not None:
            parts.append(DiagLinearOperator(self._shaped(noise)))
        first, *others = parts
        return sum(others, start=first)

    def features(self) -> Tensor:
        """Return the features (..., n, F) of the rows a, multiplied by prior standard deviations."""
        return self._shaped(self._features(self.a))

    @property
    def _is_sum_of_products(self) -> bool:
        """Whether the covariance is a sum of products of features, dense or sparse, and of a diagonal.

        Sparse features are those of one set of rows. Elements with other rows have other patterns.
        """
        first = self.priors[0]
        if first.kernels or self.has_new_levels:
            return False
        return not first.graph_features or (is_one_element(self.a) and is_one_element(self.b))

    def _features(self, x: Tensor) -> Tensor:
        """Return the features (B, n, F) of rows (B, n, D), for all elements with the same prior at once."""

        def of_one(prior: Prior, some: Tensor) -> Tensor:
            phi = prior.dense.scaled(some.flatten(0, 1))
            return phi.reshape(*some.shape[:-1], phi.shape[-1])

        if len(self.priors) == 1:
            return of_one(self.priors[0], x)
        own = [(self.places.reshape(-1) == number).nonzero()[:, 0].to(x.device) for number in range(len(self.priors))]
        found = [of_one(prior, x[elements]) for prior, elements in zip(self.priors, own, strict=True)]
        return torch.cat(found)[torch.cat(own).argsort()]

    def _roots(self) -> tuple[Tensor, Tensor]:
        """Return the features of both inputs, (B, n, F) and (B, m, F)."""
        if self.a is self.b:
            both = self._features(self.a)
            return both, both
        both, size = self._features(torch.cat([self.a, self.b], dim=1)), self.a.shape[1]
        return both[:, :size], both[:, size:]

    def _by_element(self, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """Return a function of a prior and of rows (n, ...) for each element of rows (B, n, ...), stacked."""
        places = enumerate(self.places.reshape(-1).tolist())
        return torch.stack([function(self.priors[place], *(x[number] for x in rows)) for number, place in places])

    def _residuals(self, phi: Tensor) -> Tensor | None:
        """Return the variances (B, n) of residuals, which are independent noise of each row a, or None without any."""
        if not (self.is_same and self.priors[0].dense.has_residual):
            return None
        return self._by_element(lambda prior, rows, own: prior.dense.residual_variance(rows, own), self.a, phi)

    def _variance(self, prior: Prior, x: Tensor) -> Tensor:
        """Return the sum (n,) of the variances of all terms at rows (n, D), except dense weights."""
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        total = sum((block.diagonal(x) for block in (*prior.kernels, *prior.graph_features)), start=total)
        if self.has_new_levels:
            total = sum((block.new_variance(x) for block in prior.weights), start=total)
        return total

    def _dense(self) -> Tensor:
        """Return the sum (B, n, m) of the covariances without weights, of sparse features, and of new levels."""

        def of_one(prior: Prior, x: Tensor, z: Tensor) -> Tensor:
            z = x if self.a is self.b else z
            total = torch.zeros(len(x), len(z), dtype=torch.float64, device=x.device)
            total = sum((block.kernel(x, z) for block in (*prior.kernels, *prior.graph_features)), start=total)
            if self.has_new_levels:
                total = sum((block.new_covariance(x, z) for block in prior.weights), start=total)
            return total

        return self._by_element(of_one, self.a, self.b)

    def _sparse_products(self) -> list[LinearOperator]:
        """Return the covariances (..., n, m) of blocks of sparse features, for one set of rows."""
        found: list[LinearOperator] = []
        for blocks in zip(*(prior.graph_features for prior in self.priors), strict=True):
            left = sparse_features(blocks, self.places, self.a[0], self.dtype)
            if self.a is self.b:
                found.append(SparseRootLinearOperator(left))
            else:
                right = sparse_features(blocks, self.places, self.b[0], self.dtype)
                found.append(SparseProductLinearOperator(left, right.mT))
        return found

    def _shaped(self, x: Tensor) -> Tensor:
        return x.reshape(*self.places.shape, *x.shape[1:]).to(self.dtype)


def sparse_features(
    blocks: Sequence[SparseWeightBlock],
    places: Tensor,  # (...)
    x: Tensor,  # (n, D)
    dtype: torch.dtype,
) -> SparseLinearOperator:  # (..., n, N)
    """Return the sparse features of rows for each element of a batch, with the prior scale.

    Args:
        blocks: Blocks of one term at P values of its hyperparameters.
        places: The index of the block of each element.
        x: The rows, (n, D).
        dtype: The type of the features.

    Examples:
        >>> from rfgp.sparse import SparseValues
        >>> pattern = SparsityPattern(np.array([0, 1]), np.array([1]), (1, 2))
        >>> block = SparseWeightBlock(lambda *_: SparseValues(torch.ones(1), pattern), torch.tensor(4.0), 2, seed=0)
        >>> sparse_features([block], torch.tensor(0), torch.zeros(1, 1), torch.float64).to_dense().tolist()
        [[0.0, 2.0]]
    """
    found = [block.features(x, keep=True) for block in blocks]
    values = torch.stack([block.variance.sqrt() * one.values for block, one in zip(blocks, found, strict=True)])
    pattern = found[0].pattern
    if not isinstance(pattern, SparsityPattern):
        pattern = SparsityPattern(pattern.indptr, pattern.indices, pattern.shape)
    return SparseLinearOperator(values[places.to(values.device)].to(dtype), pattern)


def _product(left: Tensor, right: Tensor, is_symmetric: bool) -> LinearOperator:
    """Return the product of features (..., n, F) and (..., m, F)."""
    if not is_symmetric:
        return to_linear_operator(MatmulLinearOperator(left, right.mT))
    return LowRankRootLinearOperator(left) if left.shape[-1] < left.shape[-2] else RootLinearOperator(left)


# --- The base of all kernels that are priors --------------------------------------------------------------------------

_LINEAR_STRATEGY: Any = getattr(strategies, "LinearPredictionStrategy", None)
"""GPyTorch's prediction strategy for products of features, since GPyTorch 1.15, or None."""


class PriorKernel(gpytorch.kernels.Kernel):
    """A GPyTorch kernel that is the covariance of a `rfgp.blocks.Prior`.

    A subclass has the parameters, and makes the prior of each kernel of the batch from them.

    Examples:
        >>> from rfgp.gpytorch import GraphFeatureKernel, RandomFeatureKernel, TermKernel
        >>> [issubclass(one, PriorKernel) for one in (GraphFeatureKernel, RandomFeatureKernel, TermKernel)]
        [True, True, True]
    """

    @abstractmethod
    def priors_of_kernels(self) -> list[Prior]:
        """Return the priors of the terms for all kernels of the batch, one after another, or one for all of them."""

    @property
    def is_low_rank(self) -> bool:
        """Whether the covariance is a product of dense features at all inputs."""
        return False

    def read_rows(self, x: Tensor, kernels: torch.Size) -> tuple[Tensor, bool]:
        """Return the rows (..., n, D) of inputs (..., n, d), and whether they have new levels.

        Args:
            x: The inputs, (..., n, d).
            kernels: The shape of the batch of kernels, against which the batch of inputs is broadcast.
        """
        return x, False

    def forward(
        self,
        x1: Tensor,  # (..., n, d)
        x2: Tensor,  # (..., m, d)
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Tensor | LinearOperator:  # (..., n, m), or (..., n)
        """Return the covariance (..., n, m), or its diagonal (..., n).

        A covariance of features is a linear operator. It has a low rank if there are fewer features than points.

        Args:
            x1: Inputs (..., n, d).
            x2: Inputs (..., m, d).
            diag: Whether to return the diagonal.
            last_dim_is_batch: Whether each column is an input of its own. The covariance then has the batch (..., d).
            params: Not used.
        """
        kernels = self.batch_shape
        if last_dim_is_batch:
            x1, x2, kernels = x1.mT.unsqueeze(-1), x2.mT.unsqueeze(-1), torch.Size([*kernels, 1])
        is_batch = not diag and kernels.numel() == 1 < x1.shape[:-2].numel()
        if is_batch and not is_same_memory(x1, x2) and not have_equal_values(x1, x2) and is_one_element(x2):
            batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], kernels)
            rows = x1.expand(*batch, *x1.shape[-2:]).flatten(0, -2)
            matrix = self._covariance(rows, x2.reshape(-1, *x2.shape[-2:])[0], torch.Size()).matrix()
            return to_linear_operator(matrix).to_dense().reshape(*batch, x1.shape[-2], x2.shape[-2])
        found = self._covariance(x1, x2, kernels)
        return found.diagonal() if diag else found.matrix()

    @property
    def num_features(self) -> int:
        """The number F of features of all terms.

        Raises:
            InvalidArgumentError: If a term is not a product of dense features.
        """
        self._check_low_rank()
        return self.priors_of_kernels()[0].num_features

    def features(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Any:  # (..., n, F)
        """Return features (..., n, F) whose inner products are the covariance.

        Args:
            x: Inputs (..., n, d).

        Raises:
            InvalidArgumentError: If a term is not a product of dense features.
        """
        self._check_low_rank()
        return self._covariance(x, x, self.batch_shape).features()

    def prediction_strategy(self, train_inputs: Any, train_prior_dist: Any, train_labels: Any, likelihood: Any) -> Any:
        """Return GPyTorch's prediction strategy for products of features, if the covariance is one at all inputs.

        It works in F dimensions. Otherwise, and for GPyTorch before 1.15, it is the default one. Arguments are those of
        `gpytorch.kernels.Kernel`.
        """
        strategy = (_LINEAR_STRATEGY if self.is_low_rank else None) or super().prediction_strategy
        return strategy(train_inputs, train_prior_dist, train_labels, likelihood)

    def _check_low_rank(self) -> None:
        if not self.is_low_rank:
            raise InvalidArgumentError(
                "Not all terms are products of dense features at all inputs. Use RandomFeatures(), or "
                "InducingPoints(method='sor'), for all of them. Terms of levels and of residuals are not."
            )

    def _covariance(self, x1: Tensor, x2: Tensor, kernels: torch.Size) -> CovarianceOfPriors:
        """Return the covariance of two inputs, with the shape of the batch of kernels in that of the inputs."""
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], kernels)
        is_same = is_same_memory(x1, x2)
        if is_same or have_equal_values(x1, x2):
            a, has_new_levels = self.read_rows(x1, kernels)
            b = a
        else:
            shape = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
            both = torch.cat([x.expand(*shape, *x.shape[-2:]) for x in (x1, x2)], dim=-2)
            both, has_new_levels = self.read_rows(both, kernels)
            a, b = both[..., : x1.shape[-2], :], both[..., x1.shape[-2] :, :]
        left = a.expand(*batch, *a.shape[-2:]).reshape(batch.numel(), *a.shape[-2:])
        right = left if a is b else b.expand(*batch, *b.shape[-2:]).reshape(batch.numel(), *b.shape[-2:])
        priors = self.priors_of_kernels()
        places = (torch.arange(kernels.numel()) % len(priors)).reshape(kernels).expand(batch)
        dtype = reduce(torch.promote_types, (one.dtype for one in self.parameters()), x1.dtype)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        return CovarianceOfPriors(priors, places, left, right, is_same, has_new_levels, dtype)


# --- States that repeat the draws of a kernel -------------------------------------------------------------------------


def encode(state: Mapping[str, Any]) -> Tensor:
    """Return a dictionary as JSON in a tensor (b,) of bytes, since some callers require tensors.

    The length does not depend on whether "num_dims" is known. BoTorch restores saved states element by element, also
    after a draw.

    Args:
        state: The dictionary.

    Examples:
        >>> len(encode({"num_dims": None})) == len(encode({"num_dims": 12}))
        True
    """
    width = len(json.dumps({**state, "num_dims": None})) + 16 if "num_dims" in state else 0
    return torch.frombuffer(bytearray(json.dumps(state).ljust(width).encode()), dtype=torch.uint8)


def decode(
    state: Any,  # (b,)
    own: Mapping[str, Any],
    drawn: Collection[str],
) -> dict[str, Any]:
    """Return the dictionary of a tensor of `encode`.

    Args:
        state: The tensor.
        own: The kernel's own state.
        drawn: The keys whose values may differ, dictionaries in their values only.

    Raises:
        InvalidArgumentError: If the tensor is no such state, or differs from the own one.

    Examples:
        >>> decode(encode({"seed": 1, "size": 8}), {"seed": 0, "size": 8}, drawn=["seed"])
        {'seed': 1, 'size': 8}
    """
    try:
        found = json.loads(bytes(state.detach().cpu().to(torch.uint8).tolist()))
    except (AttributeError, TypeError, ValueError, RecursionError):
        found = None
    if (
        not isinstance(found, dict)
        or found.keys() != own.keys()
        or any(_keys(found[name]) != _keys(own[name]) for name in drawn)
    ):
        raise InvalidArgumentError("This is no state of this kernel. Make the kernel of the same terms.")
    for name in own.keys() - drawn:
        if found[name] != own[name]:
            raise InvalidArgumentError(
                f"The state has other {name}, {found[name]} and not {own[name]}. Make the kernel with the same "
                "arguments and rows."
            )
    return found


def _keys(value: Any) -> Any:
    return set(value) if isinstance(value, dict) else None
