"""Blocks of sparse features, such as those of random walks, at rows."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks import SparseWeightBlock
from rfgp.solvers.iterative.operator import generator
from rfgp.solvers.iterative.parts import SparsePart
from rfgp.solvers.iterative.role import Matrix, Reads, Term
from rfgp.sparse import sampled_outer

_ALL_COLUMNS = 4
"""The role of the seed of prior weights that the rows do not read."""


class WalkTerm(Term):
    """f = s phi w with sparse phi; the coordinates are s w, (N,).

    Args:
        block: The block, with gradients.
        inputs: The positions of the rows.
    """

    dtype = torch.float32
    advice = "Give the noise a prior or a larger start, fit fewer observations, or use features='spectrum'."

    def __init__(self, block: SparseWeightBlock, inputs: Tensor) -> None:
        self.name, self.seed, self._block = block.name, block.seed, block
        self._features, self._variance = block.features(inputs, keep=True), block.variance.double()
        self._s2 = float(self._variance.detach())

    @cached_property
    def _phi(self) -> sp.csr_array:
        """The features (rows, N) of the rows."""
        return self._features.matrix()

    @cached_property
    def _columns(self) -> NDArray[np.int64]:
        """The columns of phi that have entries."""
        used = np.zeros(self._phi.shape[1], dtype=bool)
        used[self._phi.indices] = True
        return np.flatnonzero(used)

    @cached_property
    def part(self) -> SparsePart:
        """The columns of s phi that have entries."""
        places = np.zeros(self._phi.shape[1], dtype=np.int32)
        places[self._columns] = np.arange(len(self._columns), dtype=np.int32)
        shape = self._phi.shape[0], len(self._columns)
        kept = sp.csr_array((self._phi.data, places[self._phi.indices], self._phi.indptr), shape=shape)
        return SparsePart(kept, self._s2**0.5)

    def read(self, inputs: Tensor) -> Reads:
        """Return the features (n, N) of n positions."""
        return Reads(self._block.features(inputs, keep=False).matrix())

    def cross(self, matrix: Matrix) -> Tensor:
        """Return s^2 phi X^T, (rows, n)."""
        return torch.from_numpy(self._s2 * (self._phi @ matrix.T).toarray())

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return s^2 X X^T, (n, n)."""
        return torch.from_numpy(self._s2 * (matrix @ matrix.T).toarray())

    def variance(self, inputs: Tensor, reads: Reads) -> Tensor:
        """Return s^2 |X_i|^2, (n,)."""
        return torch.from_numpy(self._s2 * np.asarray(reads.matrix.power(2).sum(1)))

    def weights(self, coefficients: Tensor) -> Tensor:
        """Return s^2 phi^T a, (N, p), in the precision of a."""
        array = coefficients.numpy()
        return torch.from_numpy(self._phi.astype(array.dtype, copy=False).T @ array) * self._s2

    def lifted(self, standard: Tensor, seed: int) -> Tensor:
        """Return s u, (N, p), with u of single precision; columns without entries have weights of their own."""
        shape = self._phi.shape[1], standard.shape[1]
        out = torch.from_numpy(generator(seed, _ALL_COLUMNS).standard_normal(shape, dtype=np.float32))
        out[torch.from_numpy(self._columns)] = standard.float()
        lifted: Tensor = out.to(standard) * self._s2**0.5
        return lifted

    def joined(self, inputs: Tensor) -> SparsePart:
        """Return all columns of s phi (rows + n, N) of the rows and of positions after them."""
        return SparsePart(sp.csr_array(sp.vstack([self._phi, self.read(inputs).matrix])), self._s2**0.5)

    def score(self, left: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in the entries of phi, on its pattern, and in s^2."""
        values, pattern = self._features
        right = torch.from_numpy(self._phi.T @ left.numpy())
        in_values = self._s2 * sampled_outer(left * signs, right, pattern)
        in_variance = 0.5 * (right.square() * signs).sum()
        return (values * in_values).sum() + self._variance * in_variance

    def functions(self, weights: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> phi_x z, (n, p)."""
        return self._block.of_weights(weights)
