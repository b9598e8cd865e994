"""Sparse latent values at given hyperparameters, and their projection to rows."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks.precision import Array, Field
from rfgp.solvers.bordered.pattern import JointPattern


class Latent(NamedTuple):
    """Latent values with a sparse precision at given hyperparameters."""

    field: Field
    values: Array  # (p,)
    variance: float  # the variance s^2

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.field.pattern.indptr) - 1


class SparseLatents:
    """Latent values u ~ N(0, Q^-1) and their projection to rows.

    The precision is Q = blockdiag(Q_t / s_t^2).

    Args:
        latents: The sparse blocks, in the order of the columns of A. There may be none.
        matrix: The projection A, (n, N).
        combines_non_neighbors: Whether a row depends on two values of a block that have no joint entry in Q.
    """

    def __init__(
        self, latents: Sequence[Latent], matrix: sp.csr_array, *, combines_non_neighbors: bool = False
    ) -> None:
        self.latents, self.matrix, self._combines_non_neighbors = latents, matrix, combines_non_neighbors

    @cached_property
    def pattern(self) -> JointPattern:
        """The pattern of Q + A^T D^-1 A."""
        fields = [latent.field for latent in self.latents]
        return JointPattern.of(fields, self.matrix, combines_non_neighbors=self._combines_non_neighbors)

    @cached_property
    def entries(self) -> list[Array]:
        """The entries of Q_t / s_t^2, (nnz_t,) each."""
        return [latent.field.entries(latent.values) / latent.variance for latent in self.latents]

    @cached_property
    def determinants(self) -> list[tuple[float, Array]]:
        """The log determinants of Q_t and their derivatives in its parameters."""
        return [latent.field.log_determinant(latent.values) for latent in self.latents]

    @property
    def log_determinant(self) -> float:
        """The log determinant of Q."""
        pairs = zip(self.determinants, self.latents, strict=True)
        return sum(prior - latent.size * math.log(latent.variance) for (prior, _), latent in pairs)

    def project(self, u: Tensor) -> Tensor:
        """Return A u, (n, p).

        Args:
            u: The latent values u, (N, p).
        """
        return torch.from_numpy(np.asarray(self.matrix @ u.numpy()))

    def transposed_times(self, v: Tensor) -> Tensor:
        """Return A^T v, (N, p).

        Args:
            v: The values v at the rows, (n, p).
        """
        return torch.from_numpy(np.asarray(self._transposed @ v.numpy()))

    @cached_property
    def _transposed(self) -> sp.csr_array:
        return sp.csr_array(self.matrix.T)

    def times(self, u: Tensor) -> Tensor:
        """Return Q u, (N, p).

        Args:
            u: The latent values u, (N, p).
        """
        indptr, indices = self.pattern.csr
        prior = sp.csr_array((self.pattern.total(self.entries), indices, indptr), shape=(len(indptr) - 1,) * 2)
        return torch.from_numpy(np.asarray(prior @ u.numpy()))

    def pull_back(self, second: Array, k: float) -> list[Tensor]:
        """Return the derivatives of (k log|Q| - tr(Q M)) / 2.

        They are those in the parameters (p,) and the variance of each block.

        Args:
            second: The entries of M on the pattern, (nnz,).
            k: The factor.
        """
        out = list[Tensor]()
        parts = zip(self.latents, self.entries, self.determinants, strict=True)
        for number, (latent, prior, (_, slopes)) in enumerate(parts):
            entries = self.pattern.block(number, second)
            in_values = 0.5 * (k * slopes - latent.field.pull_back(latent.values, entries) / latent.variance)
            in_variance = 0.5 * (float(entries @ prior) - k * latent.size) / latent.variance
            out += [torch.as_tensor(slope, dtype=torch.float64) for slope in (in_values, in_variance)]
        return out
