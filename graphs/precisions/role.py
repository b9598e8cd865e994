"""The role of a field with a sparse precision: a Gaussian vector, as a function of its parameters."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Pattern(NamedTuple):
    """Where a symmetric matrix (N, N) may have entries, in CSR form: both triangles and the whole diagonal."""

    indptr: NDArray[np.int64]  # (N + 1,)
    indices: NDArray[np.int32]  # (nnz,) ascending in each row


class MarkovField(ABC):
    """A Gaussian vector of N latent values with mean 0 and a sparse precision Q, for any of its parameters.

    Laws: `entries` are those of a symmetric positive definite matrix on `pattern`, and `pull_back` is the adjoint of
    their derivative in the parameters.

    Attributes:
        parameters: Names of the p parameters that can be learned, all positive.
        pattern: Where Q has entries, whatever the parameters.
        coordinates: Places of the N values, (N, 2) or (N, 3), for orderings; or None.
    """

    parameters: tuple[str, ...]
    coordinates: Floats | None = None

    @property
    @abstractmethod
    def pattern(self) -> Pattern:
        """Where Q has entries."""

    @abstractmethod
    def entries(
        self,
        values: Floats,  # (p,)
    ) -> Floats:  # (nnz,)
        """Return the entries of Q on the pattern, at some values of the parameters."""

    @abstractmethod
    def pull_back(
        self,
        values: Floats,  # (p,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters, over all entries e of the pattern."""
