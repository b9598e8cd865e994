"""Projections of rows to fields and to Kronecker products of fields."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.checks import check_fits
from graphs.precisions import KroneckerField, ReplicatedField
from rfgp.approximations.parts import TermFeatures
from rfgp.autograd import Array, as_array
from rfgp.blocks.precision import Slope
from rfgp.kernels.role import LatentField, Projector
from rfgp.sparse import quadratic_forms

BYTES_PER_VALUE = 12_000.0
"""The memory in bytes per latent value of a product of fields, including the factor and its inverse.

It is measured in `benchmarks/races/separable.py`."""


@dataclass(frozen=True, eq=False)
class FieldReader:
    """The projection of rows (n, D) to a product of fields.

    There may be several copies of the product, multiplied by functions.

    Attributes:
        latents: The fields, at least one.
        indices: The indices of the columns of each field.
        features: The functions (n, F) that multiply the copies of the product. If None, there are none.
        projectors: The maps of the columns of each field to A (n, N_i).
    """

    latents: tuple[LatentField, ...]
    indices: tuple[list[int], ...]
    features: TermFeatures | None
    projectors: tuple[Projector, ...]

    @property
    def copies(self) -> int:
        """The number F of independent copies of the product."""
        return 1 if self.features is None else self.features.size

    @property
    def is_refined(self) -> bool:
        """Whether a field has values at some positions only."""
        return any(latent.is_refined for latent in self.latents)

    @property
    def field(self) -> Any:
        """The copies, without rows among their values."""
        product = product_of if self.is_refined else cached_product_of
        return product(tuple(latent.field for latent in self.latents), self.copies)

    def __call__(self, inputs: Tensor) -> sp.csr_array:
        """Return A (n, F N_1 N_2 ...) of rows (n, D)."""
        pairs = zip(self.projectors, self.indices, strict=True)
        projection = reduce(row_products, (projector(inputs[:, indices]) for projector, indices in pairs))
        return projection if self.features is None else row_products(self._functions(self.features, inputs), projection)

    def refine(self, inputs: Tensor) -> "tuple[Any, FieldReader]":
        """Return the fields with further latent values at n inputs, and their reader.

        Args:
            inputs: The inputs, (n, D).

        Returns:
            The field whose latent values include those at the inputs, and a reader whose A projects them to inputs.

        Raises:
            MemoryBudgetError: If a product of two or more fields is estimated to exceed the memory.
        """
        pairs = zip(self.latents, self.indices, strict=True)
        refined = [latent.refine(inputs[:, indices]) for latent, indices in pairs]
        fields, projectors = zip(*refined, strict=True)
        sizes = [len(field.pattern.indptr) - 1 for field in fields]
        if len(sizes) > 1:
            check_fits(
                f"{' x '.join(f'{size:,}' for size in sizes)} latent values",
                BYTES_PER_VALUE * self.copies * math.prod(sizes),
                "Use fewer points at once, or round the columns to fewer distinct values.",
            )
        return cached_product_of(fields, self.copies), replace(self, projectors=projectors)

    def between(self, field: Any, values: Array, inputs: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection of single rows to refined copies.

        Let v_i + r_i be the variances of the fields at a row, with residual variances r_i given their values. The
        product has the variance prod_i (v_i + r_i), and its values explain prod_i v_i.

        Args:
            field: The copies, from `refine`.
            values: The parameters of the fields, (p,).
            inputs: The rows, (n, D).

        Returns:
            The projection A (n, F N) and the residual variances (n,).
        """
        projection, residual = _product(self._parts(field, values, inputs))
        if self.features is None:
            return projection, residual
        functions = self._functions(self.features, inputs)
        return row_products(functions, projection), np.square(functions).sum(axis=1) * residual

    def slopes(self, field: Any, values: Array, inputs: Tensor) -> Iterator[Slope]:
        """Yield the derivatives of the results of `between` in columns of the rows.

        Columns of labels are omitted. With the variances v_i of projections and T_i = v_i + r_i, the residual variance
        prod T_i - prod v_i of a product has the derivative dT_i prod_j T_j - dv_i prod_j v_j over the others j.

        Args:
            field: The copies, from `refine`.
            values: The parameters of the fields, (p,).
            inputs: The rows, (n, D).

        Yields:
            The derivatives in one column of the rows.
        """
        parts = self._parts(field, values, inputs)
        functions = np.ones((len(inputs), 1)) if self.features is None else self._functions(self.features, inputs)
        for number, (part, indices) in enumerate(zip(parts, self.indices, strict=True)):
            if part.latent.slopes is None:
                continue
            slopes = part.latent.slopes(part.field, part.values, part.rows)
            others = [one for i, one in enumerate(parts) if i != number]
            for column, (derivative, slope) in zip(indices, slopes, strict=True):
                projection = reduce(
                    row_products, [derivative if i == number else one.between[0] for i, one in enumerate(parts)]
                )
                if others:
                    change, explained = part.explained_slope(derivative), [one.explained for one in others]
                    totals = [one.explained + one.between[1] for one in others]
                    slope = (change + slope) * np.prod(totals, axis=0) - change * np.prod(explained, axis=0)
                yield Slope(column, row_products(functions, projection), np.square(functions).sum(axis=1) * slope)
        if self.features is not None:
            projection, residual = _product(parts)
            for column, slopes in enumerate(_jacobian(self.features, inputs)):
                if slopes.any():
                    yield Slope(
                        column, row_products(slopes, projection), 2 * (functions * slopes).sum(axis=1) * residual
                    )

    def _parts(self, field: Any, values: Array, inputs: Tensor) -> "list[_Part]":
        """Return the fields of refined copies.

        Each has its parameters and its columns of the rows (n, D).
        """
        fields = factors_of(field if self.copies == 1 else field.base, len(self.latents))
        counts = np.cumsum([len(field.parameters) for field in fields])[:-1]
        rows = [inputs[:, indices] for indices in self.indices]
        return [_Part(*part) for part in zip(self.latents, fields, np.split(values, counts), rows, strict=True)]

    def _functions(self, features: TermFeatures, inputs: Tensor) -> Array:
        """Return the functions (n, F) at rows (n, D)."""
        return as_array(features(inputs.double()))


@dataclass(frozen=True, eq=False)
class _Part:
    """A refined field of a product, with its parameters (p,) and rows (n, c)."""

    latent: LatentField
    field: Any
    values: Array
    rows: Tensor

    @cached_property
    def between(self) -> tuple[sp.csr_array, Array]:
        """The projection A (n, N) of the rows, and residual variances (n,)."""
        return self.latent.between(self.field, self.values, self.rows)

    @cached_property
    def explained(self) -> Array:
        """The variances (n,) of the projections."""
        return self._variances(self.between[0])

    def explained_slope(self, derivative: sp.csr_array) -> Array:
        """Return the derivatives (n,) of the variances of the projections A along A' (n, N).

        They are 2 a^T Q^-1 a' = (v(a + a') - v(a - a')) / 2.
        """
        ends = [self._variances(sp.csr_array(self.between[0] + sign * derivative)) for sign in (1.0, -1.0)]
        return np.asarray((ends[0] - ends[1]) / 2)

    def _variances(self, reads: sp.csr_array) -> Array:
        """Return the variances (n,) of projections (n, N)."""
        return quadratic_forms(reads, self.field.pattern, self.field.factor_at(self.values).inverse)[0]


def _product(parts: Sequence[_Part]) -> tuple[sp.csr_array, Array]:
    """Return the projection of rows to a product of fields.

    The second result has the residual variances (n,).
    """
    projections, residuals = zip(*(part.between for part in parts), strict=True)
    projection = reduce(row_products, projections)
    if len(parts) == 1:
        return projection, residuals[0]
    explained = [part.explained for part in parts]
    total = np.prod([one + residual for one, residual in zip(explained, residuals, strict=True)], axis=0)
    return projection, np.maximum(total - np.prod(explained, axis=0), 0.0)


def _jacobian(features: TermFeatures, inputs: Tensor) -> Array:
    """Return the derivatives of functions of rows (n, D) in each column, (D, n, F)."""
    with torch.enable_grad():
        rows = inputs.detach().double().requires_grad_()
        functions = features(rows)
        if not functions.requires_grad:
            return np.zeros((rows.shape[1], *functions.shape))
        slopes = [torch.autograd.grad(function.sum(), rows, retain_graph=True)[0] for function in functions.mT]
    return as_array(torch.stack(slopes, dim=2).movedim(1, 0))


def condition_of(field: Any, values: Array) -> float:
    """Return the largest product of a diagonal entry of Q and of Q^-1.

    Rounding errors are proportional to it.

    Args:
        field: The field.
        values: Its parameters, (p,).
    """
    indptr, indices = field.pattern
    diagonal = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) == indices
    try:
        inverse = field.factor_at(values).inverse[diagonal]
    except np.linalg.LinAlgError:
        return math.inf
    return float((field.entries(values)[diagonal] * inverse).max())


def product_of(fields: tuple[Any, ...], copies: int) -> Any:
    """Return independent copies of the Kronecker product of fields.

    Args:
        fields: At least one field.
        copies: The number of copies.
    """
    product = reduce(KroneckerField, fields)
    return product if copies == 1 else ReplicatedField(product, copies)


cached_product_of = lru_cache(maxsize=8)(product_of)
"""`product_of` with a cache of the last products and the symbolic analyses of their patterns."""


def factors_of(product: Any, count: int) -> list[Any]:
    """Return the fields of a product from `product_of`.

    Args:
        product: The product, without copies.
        count: The number of fields.
    """
    return [product] if count == 1 else [*factors_of(product.first, count - 1), product.second]


def row_products(
    left: Any,  # (n, F)
    right: sp.csr_array,  # (n, N)
) -> sp.csr_array:  # (n, F N)
    """Return the row-wise Kronecker product of two matrices.

    Args:
        left: A dense or sparse matrix, (n, F).
        right: A sparse matrix, (n, N).

    Returns:
        The product, (n, F N).
    """
    left = sp.csr_array(left)
    left.eliminate_zeros()
    size = right.shape[1]
    left_counts, right_counts = np.diff(left.indptr), np.diff(right.indptr)
    counts = left_counts * right_counts
    starts = np.concatenate([[0], np.cumsum(counts)])
    row = np.repeat(np.arange(len(left_counts)), counts)
    offset = np.arange(starts[-1]) - starts[row]
    first = left.indptr[row] + offset // right_counts[row]
    second = right.indptr[row] + offset % right_counts[row]
    columns = left.indices[first].astype(np.int64) * size + right.indices[second]
    product = sp.csr_array(
        (left.data[first] * right.data[second], columns, starts), shape=(len(left_counts), left.shape[1] * size)
    )
    product.sort_indices()
    return product
