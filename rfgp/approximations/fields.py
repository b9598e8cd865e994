"""Fields, and Kronecker products of fields, as rows read them."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from graphs.checks import check_fits
from graphs.precisions import KroneckerField, ReplicatedField
from rfgp.approximations.parts import TermFeatures
from rfgp.autograd import Array, as_array
from rfgp.kernels.role import LatentField, Projector
from rfgp.sparse import quadratic_forms

BYTES = 12_000.0
"""The memory of a latent value of a product of fields in bytes, the factor and its inverse included. Measured in
`benchmarks/races/separable.py`."""


@dataclass(frozen=True, eq=False)
class FieldReader:
    """A product of fields, or copies of it that functions multiply, and how rows (n, D) read it.

    Attributes:
        latents: The fields, at least one.
        places: The places of the columns of each.
        features: The functions (n, F) that multiply the product, a copy of it for each. If None, there are none.
        projectors: Map the columns of each field of rows to A (n, N_i).
    """

    latents: tuple[LatentField, ...]
    places: tuple[list[int], ...]
    features: TermFeatures | None
    projectors: tuple[Projector, ...]

    @property
    def copies(self) -> int:
        """The number F of independent copies of the product."""
        return 1 if self.features is None else self.features.size

    @property
    def is_refined(self) -> bool:
        """Whether a field has values at some places only."""
        return any(latent.is_refined for latent in self.latents)

    @property
    def field(self) -> Any:
        """The copies, without rows among their values."""
        product = product_of if self.is_refined else kept_product_of
        return product(tuple(latent.field for latent in self.latents), self.copies)

    def __call__(self, inputs: Tensor) -> sp.csr_array:
        """Return A (n, F N_1 N_2 ...) of rows (n, D)."""
        pairs = zip(self.projectors, self.places, strict=True)
        reads = reduce(row_products, (projector(inputs[:, places]) for projector, places in pairs))
        return reads if self.features is None else row_products(self._functions(self.features, inputs), reads)

    def refine(self, inputs: Tensor) -> "tuple[Any, FieldReader]":
        """Return the copies with rows (n, D) among their values, and what reads these.

        Raises:
            MemoryBudgetError: the pairs of positions and values exceed the memory.
        """
        pairs = zip(self.latents, self.places, strict=True)
        found = [latent.refine(inputs[:, places]) for latent, places in pairs]
        fields, projectors = zip(*found, strict=True)
        sizes = [len(field.pattern.indptr) - 1 for field in fields]
        if len(sizes) > 1:
            check_fits(
                f"{' x '.join(f'{size:,}' for size in sizes)} latent values",
                BYTES * self.copies * math.prod(sizes),
                "Use fewer points at once, or round the columns to fewer distinct values.",
            )
        return kept_product_of(fields, self.copies), replace(self, projectors=projectors)

    def between(self, field: Any, values: Array, inputs: Tensor) -> tuple[sp.csr_array, Array]:
        """Return how rows (n, D) read refined copies, each by itself: A (n, F N) and variances (n,).

        With variances v_i + r_i of the fields at a row, of which their values leave r_i, the product has the variance
        prod_i (v_i + r_i), and its values explain prod_i v_i.
        """
        fields = factors_of(field if self.copies == 1 else field.base, len(self.latents))
        counts = np.cumsum([len(one.parameters) for one in fields])[:-1]
        parts = list(zip(self.latents, fields, np.split(values, counts), self.places, strict=True))
        found = [latent.between(one, own, inputs[:, places]) for latent, one, own, places in parts]
        reads, left = reduce(row_products, (one for one, _ in found)), found[0][1]
        if len(found) > 1:
            known = [_explained(one, own, read) for (_, one, own, _), (read, _) in zip(parts, found, strict=True)]
            whole = [v + r for v, (_, r) in zip(known, found, strict=True)]
            left = np.maximum(np.prod(whole, axis=0) - np.prod(known, axis=0), 0.0)
        if self.features is None:
            return reads, left
        functions = self._functions(self.features, inputs)
        return row_products(functions, reads), np.square(functions).sum(axis=1) * left

    def _functions(self, features: TermFeatures, inputs: Tensor) -> Array:
        """Return the functions (n, F) at rows (n, D)."""
        return as_array(features(inputs.double()))


def _explained(field: Any, values: Array, reads: sp.csr_array) -> Array:
    """Return the variances (n,) of what rows read of a field through A (n, N)."""
    return quadratic_forms(reads, field.pattern, field.factor_at(values).inverse)[0]


def condition_of(field: Any, values: Array) -> float:
    """Return the largest product of a diagonal entry of Q and of Q^-1, in whose proportion rounding errors grow.

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
    whole = reduce(KroneckerField, fields)
    return whole if copies == 1 else ReplicatedField(whole, copies)


kept_product_of = lru_cache(maxsize=8)(product_of)
"""The same, with the last products and the analyses of their patterns, which serve a whole fit."""


def factors_of(product: Any, count: int) -> list[Any]:
    """Return the fields of a product of so many fields from `product_of`."""
    return [product] if count == 1 else [*factors_of(product.first, count - 1), product.second]


def row_products(
    left: Any,  # (n, F)
    right: sp.csr_array,  # (n, N)
) -> sp.csr_array:  # (n, F N)
    """Return the matrix whose row i is the Kronecker product of those of left, which may be dense, and right."""
    left = sp.csr_array(left)
    left.eliminate_zeros()
    size = right.shape[1]
    own, other = np.diff(left.indptr), np.diff(right.indptr)
    counts = own * other
    starts = np.concatenate([[0], np.cumsum(counts)])
    row = np.repeat(np.arange(len(own)), counts)
    place = np.arange(starts[-1]) - starts[row]
    first = left.indptr[row] + place // other[row]
    second = right.indptr[row] + place % other[row]
    columns = left.indices[first].astype(np.int64) * size + right.indices[second]
    found = sp.csr_array(
        (left.data[first] * right.data[second], columns, starts), shape=(len(own), left.shape[1] * size)
    )
    found.sort_indices()
    return found
