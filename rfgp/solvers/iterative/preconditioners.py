"""Preconditioners P of B = I + Psi Psi^T, Psi = D^(-1/2) H.

For long lengthscales, Psi Psi^T has a few large eigenvalues. A randomized Nystrom approximation of it is U (L) U^T,
with the smallest eigenvalue l of L. It gives the preconditioner P = (I - U U^T) + U (L + 1) / (l + 1) U^T (Frangella,
Tropp and Udell 2023, "Randomized Nystrom preconditioning", Eqs. 1.3 and 5.2).

For latent nearest neighbors, the covariance of the same rows conditioned on observations is close to C. With V and P of
`rfgp.solvers.whitened` its inverse is V^T (I + P P^T)^-1 V. Most preconditioned eigenvalues are near 1, so that
conjugate gradients take few steps and the estimated part of the log determinant is small
(`benchmarks/races/latent_neighbors.py`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.linalg import half_solve
from rfgp.solvers.iterative.operator import CGOperator, generator
from rfgp.solvers.whitened.whitening import Whitener
from rfgp.sparse import multiply, row_blocks

RANK = 64
"""The rank of the Nystrom approximation, without that of dense parts."""
_MIN_RANK = 8
"""The rank below which there is no Nystrom approximation."""
MIN_EIGENVALUE_RATIO = 10.0
"""The minimum ratio of the first to the last of the computed eigenvalues of B for a preconditioner."""
_MIN_RELATIVE_EIGENVALUE = 1e-12
"""The eigenvalue of F F^T, relative to the largest, up to which eigenvalues are set to 0."""


class LowRankPreconditioner(NamedTuple):
    """P = I + U diag(p - 1) U^T with orthonormal U (n, r).

    The symmetric inverse root of P is R.

    Examples:
        >>> one = LowRankPreconditioner.of_features(torch.tensor([[2.0], [0.0]]).double())
        >>> one.half_solve(torch.tensor([[1.0], [1.0]]).double()).round(decimals=4).tolist()  # 1 / sqrt(1 + 4)
        [[0.4472], [1.0]]
    """

    vectors: Tensor  # U (n, r)
    factors: Tensor  # 1 / sqrt(p) - 1, (r,)
    logs: Tensor  # log p, (r,)

    @classmethod
    def of(cls, vectors: Tensor, values: Tensor) -> "LowRankPreconditioner":
        """Return the preconditioner P with given eigenvectors.

        Args:
            vectors: The orthonormal eigenvectors U, (n, r).
            values: Their eigenvalues p, (r,), positive.
        """
        return cls(vectors, values.rsqrt() - 1, values.log())

    @classmethod
    def of_features(cls, features: Tensor) -> "LowRankPreconditioner":
        """Return the preconditioner P = I + F F^T.

        Args:
            features: The features F, (n, r).
        """
        values, vectors = torch.linalg.eigh(features.mT @ features)
        is_large = values > _MIN_RELATIVE_EIGENVALUE * values.max() if len(values) else values > 0
        values, vectors = values[is_large], vectors[:, is_large]
        return cls.of(features @ (vectors / values.sqrt()), 1 + values)

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|."""
        return float(self.logs.sum())

    def half_solve(self, v: Tensor) -> Tensor:
        """Return R v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        if not len(self.factors):
            return v
        return v + self.vectors @ (self.factors[:, None] * (self.vectors.mT @ v))

    def half_solve_transposed(self, v: Tensor) -> Tensor:
        """Return R^T v = R v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.half_solve(v)


def nystrom(operator: CGOperator) -> LowRankPreconditioner:
    """Return a randomized Nystrom preconditioner, of rank 0 if no eigenvalue is large.

    Args:
        operator: The operator.
    """
    n = len(operator)
    identity = LowRankPreconditioner.of(operator.noise_diag.new_empty(n, 0), operator.noise_diag.new_empty(0))
    rank = min(RANK + sum(part.num_dense for part in operator.parts), n // 4)
    if rank < _MIN_RANK:
        return identity
    test = torch.from_numpy(generator(operator.seed, 0).standard_normal((n, rank))) / n**0.5
    image = operator.scaled_product(test) - test
    shift = torch.finfo(image.dtype).eps * image.norm()
    shifted = image + shift * test
    inner = test.mT @ shifted
    factor, info = torch.linalg.cholesky_ex((inner + inner.mT) / 2)
    if bool(info.any()):
        return identity
    root = half_solve(factor, shifted.mT).mT
    sizes = torch.linalg.eigvalsh(root.mT @ root)
    if float((sizes[-1] + 1) / (sizes[0] + 1)) < MIN_EIGENVALUE_RATIO:
        return identity
    vectors, sizes, _ = torch.linalg.svd(root, full_matrices=False)
    values = (sizes.square() - shift).clamp_min(0)
    return LowRankPreconditioner.of(vectors, (values + 1) / (values[-1] + 1))


class WhiteningPreconditioner:
    """The preconditioner with R = (I + P P^T)^(-1/2) V D^(1/2).

    Args:
        whitener: The whitening V of rows with the noise D.
        deviation: The standard deviations D^(1/2), (n,).
        features: The features P = V Phi, (n, F).
    """

    def __init__(self, whitener: Whitener, deviation: Tensor, features: Tensor) -> None:
        matrix = whitener.matrix
        self._deviation, self._low_rank = deviation, LowRankPreconditioner.of_features(features)
        self._factor, self._transposed = row_blocks(matrix), row_blocks(matrix.T.tocsr())
        self._logs = float(whitener.log_determinant) + float(deviation.log().sum())

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|, P = (R^T R)^-1."""
        return self._low_rank.log_determinant - 2 * self._logs

    def half_solve(self, v: Tensor) -> Tensor:
        """Return R v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        scaled = (self._deviation[:, None] * v).numpy()
        return self._low_rank.half_solve(torch.from_numpy(multiply(self._factor, scaled)))

    def half_solve_transposed(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        back = multiply(self._transposed, self._low_rank.half_solve_transposed(v).numpy())
        return self._deviation[:, None] * torch.from_numpy(back)
