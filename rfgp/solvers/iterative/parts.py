"""The parts H (n, N) of a covariance H H^T at rows, as products."""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks.precision import Array, Factor
from rfgp.local import LatentRoot
from rfgp.sparse import multiply, row_blocks

MAX_DENSE_COLUMNS = 1000
"""The maximum number of columns of a part that is formed as a dense matrix, unless it is dense."""
MAX_OPERATIONS_PER_ENTRY = 4
"""The maximum ratio of operations for H H^T to nonzeros of a sparse H for which H H^T is formed."""


class Part(ABC):
    """Interface: a root H (n, N) of a covariance H H^T.

    Attributes:
        num_columns: The number N of columns.
        num_dense: The number of dense columns, which have large eigenvalues.
    """

    num_columns: int
    num_dense = 0

    def dense_columns(self) -> Tensor | None:
        """Return H (n, N) as a dense matrix, or None.

        The matrix is returned if it is dense or has at most 1,000 columns.
        """
        eye = torch.eye(self.num_columns, dtype=torch.float64) if self.num_columns <= MAX_DENSE_COLUMNS else None
        return None if eye is None else self.root_times(eye)

    @abstractmethod
    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p).

        Args:
            u: The vectors u, (N, p).
        """

    @abstractmethod
    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N, p).

        Args:
            v: The vectors v, (n, p).
        """

    def times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p).

        Matrices are cached for further products.

        Args:
            v: The vectors v, (n, p).
        """
        return self.root_times(self.transposed_root_times(v))

    def over(self, deviation: Tensor) -> "Part":
        """Return the part D^-1 H.

        Args:
            deviation: The diagonal of D, (n,), positive.
        """
        return _Divided(self, deviation)


class _Divided(Part):
    """D^-1 H."""

    def __init__(self, part: Part, deviation: Tensor) -> None:
        self._part, self._deviation, self.num_columns = part, deviation[:, None], part.num_columns

    def root_times(self, u: Tensor) -> Tensor:
        return self._part.root_times(u) / self._deviation

    def transposed_root_times(self, v: Tensor) -> Tensor:
        return self._part.transposed_root_times(v / self._deviation)


class SparsePart(Part):
    """A sparse H = diag(s) M, such as the features of random walks.

    Methods have the arguments of those of `Part`.

    Args:
        matrix: The matrix M, (n, N).
        scale: The scale s, (n,), or one for all rows.
    """

    def __init__(self, matrix: sp.csr_array, scale: float | Array) -> None:
        self._unscaled, self._scale = matrix, np.broadcast_to(scale, matrix.shape[:1])
        self.num_columns = int(matrix.shape[1])
        entries = matrix.data * np.repeat(self._scale, np.diff(matrix.indptr))
        self._matrix = sp.csr_array((entries, matrix.indices, matrix.indptr), shape=matrix.shape)

    def over(self, deviation: Tensor) -> "SparsePart":
        """Return the part D^-1 H, for a diagonal D (n,)."""
        return SparsePart(self._unscaled, self._scale / deviation.numpy())

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        return torch.from_numpy(self._matrix @ u.numpy())

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N, p)."""
        return torch.from_numpy(self._matrix.T @ v.numpy())

    def times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p), in threads, through H H^T if it is sparse."""
        if self._gram is not None:
            return torch.from_numpy(multiply(self._gram, v.numpy()))
        left, right = self._factors
        return torch.from_numpy(multiply(left, multiply(right, v.numpy())))

    @cached_property
    def _gram(self) -> list[sp.csr_array] | None:
        """H H^T if it is sparse, and None otherwise."""
        counts = np.bincount(self._matrix.indices, minlength=self.num_columns).astype(np.float64)
        if counts @ counts > MAX_OPERATIONS_PER_ENTRY * self._matrix.nnz:
            return None
        return row_blocks(sp.csr_array(self._matrix @ self._matrix.T))

    @cached_property
    def _factors(self) -> tuple[list[sp.csr_array], list[sp.csr_array]]:
        return row_blocks(self._matrix), row_blocks(self._matrix.T.tocsr())


class DensePart(Part):
    """A dense H, such as random features.

    Methods have the arguments of those of `Part`.

    Args:
        matrix: The matrix H, (n, F), float64.

    Examples:
        >>> part = DensePart(torch.tensor([[1.0], [2.0]]).double())
        >>> part.times(torch.tensor([[1.0], [1.0]]).double()).tolist()
        [[3.0], [6.0]]
    """

    def __init__(self, matrix: Tensor) -> None:
        self._matrix, self.num_columns, self.num_dense = matrix, matrix.shape[1], matrix.shape[1]

    def dense_columns(self) -> Tensor:
        """Return H (n, F)."""
        return self._matrix

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        return self._matrix @ u

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (F, p)."""
        return self._matrix.mT @ v


class PrecisionPart(Part):
    """H = s A P^T L^-T for projections A (n, N) of latent values.

    The latent values have the precision Q / s^2, and P Q P^T = L L^T. Methods have the arguments of those of `Part`.

    Args:
        factor: The factor of Q.
        projector: The projection A.
        deviation: The standard deviation s.
    """

    def __init__(self, factor: Factor, projector: sp.csr_array, deviation: float) -> None:
        self._factor, self._projector, self._deviation = factor, projector, deviation
        self.num_columns = int(projector.shape[1])

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        return torch.from_numpy(self._deviation * (self._projector @ self._factor.sample(u.numpy())))

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N, p)."""
        return torch.from_numpy(self._deviation * self._factor.half_solve(self._projector.T @ v.numpy()))


class RootPart(Part):
    """H = L, the root of nearest neighbors without noise.

    Methods have the arguments of those of `Part`.

    Args:
        root: The root L, (n, n).
    """

    def __init__(self, root: LatentRoot) -> None:
        self._root, self.num_columns = root, int(root.pattern.shape[1])

    def root_times(self, u: Tensor) -> Tensor:
        """Return L u, (n, p)."""
        return self._root.root_times(u)

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return L^T v, (n, p)."""
        return self._root.transposed_root_times(v)
