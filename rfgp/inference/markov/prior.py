"""The prior of a field with a sparse precision, observed through a sparse matrix."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import NotPositiveDefiniteError

Array = NDArray[np.float64]

COLUMNS = 64
"""Right-hand sides, as long as the field, that are solved for at once."""


class Factor(Protocol):
    """The role: a Cholesky factor of a sparse matrix (N, N)."""

    @property
    def log_determinant(self) -> float:
        """The logarithm of the determinant."""

    @property
    def inverse(self) -> Array:
        """The entries of A^-1 on the pattern, (nnz,)."""

    def solve(self, b: Array) -> Array:
        """Return A^-1 b, for b (N,) or (N, k)."""

    def sample(self, standard: Array) -> Array:
        """Return draws of N(0, A^-1), of standard normal z (N, k)."""


class Field(Protocol):
    """The role: N values with a sparse precision Q, a function of p parameters; `graphs.precisions.MarkovField`."""

    @property
    def analysis(self) -> Any:
        """Of the pattern, for factors; `num_nonzeros` of which a factor has."""

    @property
    def pattern(self) -> Any:
        """Where Q has entries: indptr (N + 1,) and indices (nnz,) of CSR."""

    def entries(self, values: Array) -> Array:
        """Return the entries of Q (nnz,) at parameters (p,)."""

    def pull_back(self, values: Array, weights: Array) -> Array:
        """Return sum_e weights_e dQ_e / d parameters, (p,)."""

    def log_determinant(self, values: Array) -> tuple[float, Array]:
        """Return log |Q| and its derivatives (p,)."""

    def factor(self, data: Array) -> Factor:
        """Return the factor of a matrix of these entries (nnz,)."""

    def factor_at(self, values: Array) -> Factor:
        """Return the factor of Q at parameters (p,), the last one of which is kept."""


@dataclass(frozen=True, eq=False)
class MarkovPrior:
    """f = A u, where u has the precision Q / s^2.

    Attributes:
        field: Q of its parameters.
        values: Its parameters, (p,).
        variance: s^2, 0-d.
        observe: Maps inputs of n points to A (n, N); two values that a row reads have an entry in Q.
        finer: Returns the field with some inputs among its values, and A of inputs there, for a field that has values
            at some places only; None: A reads the field wherever it is.
    """

    field: Field
    values: Tensor
    variance: Tensor
    observe: Callable[[Tensor], sp.csr_array]
    finer: "Callable[[Tensor], tuple[Field, Callable[[Tensor], sp.csr_array]]] | None" = None

    def seeing(self, *inputs: Tensor) -> "MarkovPrior":
        """Return the same prior with inputs of these points, (n,) or (n, d) each, among its values."""
        if self.finer is None:
            return self
        field, observe = self.finer(torch.cat(inputs))
        return replace(self, field=field, observe=observe, finer=None)

    def detached(self) -> "MarkovPrior":
        """Return the prior without gradients."""
        return replace(self, values=self.values.detach(), variance=self.variance.detach())

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s^2 A_a Q^-1 A_b^T, (n_a, n_b), without gradients."""
        prior = self.seeing(a, b)
        return float(self.variance) * torch.from_numpy(products(prior.factor, prior.observe(a), prior.observe(b)))

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,), without gradients."""
        prior = self.seeing(a)
        return float(self.variance) * torch.from_numpy(squares(prior.field, prior.factor, prior.observe(a)))

    @cached_property
    def factor(self) -> Factor:
        """The factor of Q."""
        return checked(self.field.factor_at, self.values.detach().numpy())


def checked(factorize: Callable[[Array], Factor], given: Array) -> Factor:
    """Return what factorises a matrix returns.

    Raises:
        NotPositiveDefiniteError: the matrix is not positive definite in double precision.
    """
    try:
        return factorize(given)
    except np.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(
            f"{error} A field whose lengthscale is far longer than its parts loses its digits: bound it with priors."
        ) from error


def products(
    factor: Factor,
    left: sp.csr_array,  # (a, N)
    right: sp.csr_array,  # (b, N)
) -> Array:  # (a, b)
    """Return left A^-1 right^T, for the factor of A."""
    out = np.empty((left.shape[0], right.shape[0]))
    for begin in range(0, right.shape[0], COLUMNS):
        out[:, begin : begin + COLUMNS] = left @ factor.solve(right[begin : begin + COLUMNS].T.toarray())
    return out


def squares(
    field: Field,
    factor: Factor,
    observed: sp.csr_array,  # (n, N)
) -> Array:  # (n,)
    """Return the diagonal of observed A^-1 observed^T, where A^-1 is known on the field's pattern."""
    inverse = sp.csr_array((factor.inverse, field.pattern.indices, field.pattern.indptr))
    return np.asarray((observed @ inverse).multiply(observed).sum(axis=1), dtype=np.float64)
