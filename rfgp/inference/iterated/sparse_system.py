"""Linear systems in C = s^2 Phi Phi^T + D with sparse Phi.

Where a few large eigenvalues of Psi Psi^T, Psi = s D^(-1/2) Phi, stand out, as for long lengthscales, a randomised
Nystrom approximation U (L) U^T of it makes a preconditioner P = (I - U U^T) + U (L + 1) / (l + 1) U^T, l the smallest
of L (Frangella, Tropp and Udell 2023, "Randomized Nystrom preconditioning", Eqs. 1.3 and 5.2).
"""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.inference.iterated.systems import Floats, Spread, System, generator
from rfgp.sparse import multiply, row_blocks

_RANK, _LEAST_RANK = 64, 8
STANDS_OUT = 10.0
"""The ratio of the first and the last of so many eigenvalues, from which on a preconditioner is used."""
FILL = 4
"""Phi Phi^T is formed, sparse, where that takes at most so many times the non-zeros of Phi."""


class SparseSystem(System):
    """C = s^2 Phi Phi^T + D for sparse Phi (n, N) and diagonal D; see above.

    Args:
        phi: (n, N).
        variance: s^2.
        noise_diag: D (n,), positive.
        seed: Of the probes, and of the preconditioner.
    """

    advice = "Give the noise a prior or a larger start, fit fewer observations, or use features='spectrum'."

    def __init__(self, phi: sp.csr_array, variance: float, noise_diag: Floats, seed: int) -> None:
        super().__init__(noise_diag, seed)
        rows = np.repeat(variance**0.5 / self._deviation, np.diff(phi.indptr))
        self.columns, psi = _without_empty_columns(phi, phi.data * rows)
        self._psi = psi

    @property
    def num_columns(self) -> int:
        """Of the columns that have entries."""
        return int(self._psi.shape[1])

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p); prepares nothing for further products."""
        scaled = self._scaled(v)
        return self._scaled(scaled + torch.from_numpy(self._psi @ (self._psi.T @ scaled.numpy())))

    def _drawn(self, u: Tensor) -> Tensor:
        return torch.from_numpy(self._psi @ u.numpy())

    def _times(self, v: Tensor) -> Tensor:
        """Return B v, (n, p)."""
        array = v.numpy()
        if self._gram is not None:
            return torch.from_numpy(array + multiply(self._gram, array))
        left, right = self._factors
        return torch.from_numpy(array + multiply(left, multiply(right, array)))

    @cached_property
    def _gram(self) -> list[sp.csr_array] | None:
        """Psi Psi^T, where it is sparse."""
        counts = np.bincount(self._psi.indices, minlength=self._psi.shape[1]).astype(np.float64)
        if counts @ counts > FILL * self._psi.nnz:
            return None
        return row_blocks(sp.csr_array(self._psi @ self._psi.T))

    @cached_property
    def _factors(self) -> tuple[list[sp.csr_array], list[sp.csr_array]]:
        return row_blocks(self._psi), row_blocks(self._psi.T.tocsr())

    @cached_property
    def _preconditioner(self) -> Spread | None:
        n = len(self)
        rank = min(_RANK, n // 4)
        if rank < _LEAST_RANK:
            return None
        test = torch.from_numpy(generator(self.seed, 0).standard_normal((n, rank))) / n**0.5
        return _nystrom(test, self._times(test) - test)


def _nystrom(test: Tensor, image: Tensor) -> Spread | None:
    """Return P from test vectors (n, r) and their images; None where no eigenvalue stands out."""
    shift = torch.finfo(image.dtype).eps * image.norm()
    shifted = image + shift * test
    inner = test.mT @ shifted
    factor, info = torch.linalg.cholesky_ex((inner + inner.mT) / 2)
    if bool(info.any()):
        return None
    root = torch.linalg.solve_triangular(factor, shifted.mT, upper=False).mT
    sizes = torch.linalg.eigvalsh(root.mT @ root)
    if float((sizes[-1] + 1) / (sizes[0] + 1)) < STANDS_OUT:
        return None
    vectors, sizes, _ = torch.linalg.svd(root, full_matrices=False)
    values = (sizes.square() - shift).clamp_min(0)
    return Spread.of(vectors, (values + 1) / (values[-1] + 1))


def _without_empty_columns(phi: sp.csr_array, data: Floats) -> tuple[NDArray[np.int64], sp.csr_array]:
    """Return the columns that have entries, and the matrix of these alone with other data."""
    used = np.zeros(phi.shape[1], dtype=bool)
    used[phi.indices] = True
    columns = np.flatnonzero(used)
    places = np.cumsum(used, dtype=np.int32) - 1
    return columns, sp.csr_array((data, places[phi.indices], phi.indptr), shape=(phi.shape[0], len(columns)))
