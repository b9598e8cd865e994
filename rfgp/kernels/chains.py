"""Half-integer Matern kernels of one column as fields with a sparse precision."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.precisions import ChainField
from graphs.precisions.chains import place_knots
from graphs.precisions.chains.knots import SPACING
from rfgp.autograd import Array, as_array
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import LatentField, Projector, Values

ORDERS = {0.5: 1, 1.5: 2, 2.5: 3}
"""The number of latent values at a knot, by nu."""
_RECENT = 4
"""The number of chains that are kept, of rows and of points of predictions. Their analysis serves a whole fit."""


@dataclass(frozen=True, eq=False)
class ColumnField:
    """A Matern process of one column, at the distinct values of rows.

    If values are closer than about 0.007 lengthscales (nu = 3/2), or 0.05 (nu = 5/2), the process is interpolated
    between knots, see `graphs.precisions.chains.knots`. The knot spacing follows the lengthscale by powers of 2.

    Attributes:
        order: The number of latent values at a knot, nu + 1/2.
        spacing: The smallest distance of knots. If None, `at` selects it.
    """

    order: int
    spacing: float | None = None
    is_refined = True

    @property
    def field(self) -> Any:
        """The process at one knot, 0."""
        return _unplaced(self.order)

    def at(self, values: Values) -> LatentField:
        """Return the field with the knots for a lengthscale."""
        kappa = math.sqrt(2 * self.order - 1) / float(values["lengthscale"].detach())
        return replace(self, spacing=2.0 ** math.floor(math.log2(SPACING[self.order] / kappa)))

    def parameters(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return the lengthscale (1,), and the factor 1."""
        return values["lengthscale"].double().reshape(1), torch.ones((), dtype=torch.float64)

    def projector(self, a: Tensor) -> sp.csr_array:
        """Raise an error for rows a (n, 1), because the field has values only at knots.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError("Rows must be knots of the process of a column, got others. Use `refine` first.")

    def refine(self, a: Tensor) -> tuple[Any, Projector]:
        """Return the field with rows a (n, 1) between its knots, and its projector.

        Raises:
            InvalidArgumentError: If the field has no lengthscale yet. See `at`.
        """
        if self.spacing is None:
            raise InvalidArgumentError("A process of a column must have a lengthscale, got none. Use `at` first.")
        chain = _chain(np.unique(_values(a)).tobytes(), self.order, self.spacing)
        return chain, partial(_read, chain)

    def between(self, field: Any, values: Array, a: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection A (n, N) of rows to a refined field, and variances (n,)."""
        reads, left = field.conditional(values, _values(a))
        return reads, left

    def slopes(self, field: Any, values: Array, a: Tensor) -> list[tuple[sp.csr_array, Array]]:
        """Return the derivatives of the results of `between` in rows a (n, 1)."""
        return [field.conditional_slopes(values, _values(a))]


def _read(chain: ChainField, a: Tensor) -> sp.csr_array:
    return chain.projector(_values(a))


def _values(a: Tensor) -> Any:
    return as_array(a)[:, 0].astype(np.float64)


@lru_cache
def _unplaced(order: int) -> ChainField:
    return ChainField(np.zeros(1), order)


@lru_cache(maxsize=_RECENT)
def _chain(values: bytes, order: int, spacing: float) -> ChainField:
    """Return the chain for distinct ascending values."""
    return ChainField(place_knots(np.frombuffer(values), spacing), order, spacing)
