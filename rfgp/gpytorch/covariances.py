"""Covariances of sums of terms for batches of inputs, as linear operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from rfgp.gpytorch.sparse import SparseLinearOperator, SparseProductLinearOperator, SparseRootLinearOperator
from rfgp.sparse import SparsityPattern


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
