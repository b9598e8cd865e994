"""What rows say under features and a local process beside them: f = s phi w + g, y = mean + f + e.

g is approximated by its nearest neighbours (`rfgp.local`), noise within the conditionals, so that g + e has the
precision V^T V with a sparse V. With P = V s phi and u = V (y - mean), whitening leaves a linear model of noise 1:
A = I + P^T P, w = A^-1 P^T u, and

    log density = sum_i log V_ii - (log |A| + |u - P w|^2 + |w|^2 + n log 2 pi) / 2

(k outputs share V and A).
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.dense import repetitions
from rfgp.inference.evidence import Evidence
from rfgp.inference.local.posterior import LocalPosterior
from rfgp.inference.local.prior import LocalPrior
from rfgp.linalg import cholesky
from rfgp.local import whitened, whitened_back
from rfgp.rows import Block
from rfgp.sparse import SparsityPattern

_LOG_2PI = math.log(2 * math.pi)


class LocalEvidence(Evidence):
    """What rows say under features and a local process.

    Args:
        prior: The prior; gradients in its lengthscale and variance, and in the parameters of its features.
        rows: The data, in order.
        mean: (k,).
        noise: Learned variance of one observation, 0-d.
        pattern: The neighbours of the rows, (n, n), or of r of them, (r, n): then the likelihood is that of what these
            say beside their neighbours.
        order: Where the rows stood, (n,); None: as they are.
    """

    def __init__(
        self,
        prior: LocalPrior,
        rows: Block,
        mean: Tensor,
        noise: Tensor,
        pattern: SparsityPattern,
        order: Tensor | None = None,
    ) -> None:
        self._prior, self._rows, self._mean, self._pattern, self._order = prior, rows, mean, pattern, order
        self._noise, x = rows.noise_diag(noise.double()).expand(len(rows)), rows.inputs
        phi = prior.phi(x).double()
        self._entries = prior.inverse_factor(x, self._noise, pattern, phi)
        both = torch.cat([phi, rows.targets - mean], dim=1)
        both = whitened(self._entries, both, pattern)
        self._phi, self._targets = both[:, : prior.num_features], both[:, prior.num_features :]
        self._own = torch.from_numpy(pattern.indices[pattern.indptr[1:] - 1])
        self._repeated = 0.0 if rows.weight is None else repetitions(rows.take(self._own), noise.double())
        with torch.no_grad():
            self._factor, self._weights = solved_weights(self._phi, self._targets)

    @classmethod
    def of(cls, prior: LocalPrior, rows: Block, mean: Tensor, noise: Tensor) -> "LocalEvidence":
        """Return that of n rows as they are given, ordered here, with the nearest neighbours, for a mean (k,)."""
        order = prior.order(len(rows))
        ordered = rows.take(order)
        return cls(prior, ordered, mean, noise, prior.neighbors(ordered.inputs), order)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        n, k = self._targets.shape
        scales = self._entries[torch.from_numpy(self._pattern.indptr[1:] - 1)]
        density: Tensor = _WhiteDensity.apply(self._phi, self._targets, self._factor, self._weights)
        return density + k * (scales.log().sum() - 0.5 * n * _LOG_2PI) + self._repeated

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,), noise included, of each row given all the others.

        The precision of y is C^-1 = V^T (I - P A^-1 P^T) V, and row i has the variance 1 / (C^-1)_ii.
        """
        with torch.no_grad():
            back = whitened_back(
                self._entries, torch.cat([self._targets - self._phi @ self._weights, self._phi], 1), self._pattern
            )
            k = self._targets.shape[1]
            squares = torch.zeros(len(back), dtype=torch.float64)
            squares.index_add_(0, torch.from_numpy(self._pattern.indices), self._entries.detach().square())
            root = torch.linalg.solve_triangular(self._factor, back[:, k:].mT, upper=False)
            variance = 1 / (squares - root.square().sum(0))
            mean = self._rows.targets - back[:, :k] * variance[:, None]
        if self._order is None:
            return mean, variance
        place = torch.argsort(self._order)
        return mean[place], variance[place]

    def posterior(self) -> "LocalPosterior":
        """Return the rows, and weights with their factor."""
        with torch.no_grad():
            centered = self._rows.targets - self._mean
            return LocalPosterior(
                self._prior.detached(), self._rows.inputs, centered, self._noise, self._weights, self._factor
            )


def solved_weights(phi: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor (F, F) of A = I + P^T P, and w = A^-1 P^T u (F, k)."""
    return solved_sums(phi.mT @ phi, phi.mT @ targets)


def solved_sums(squares: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor (F, F) of A = I + P^T P, and w = A^-1 P^T u (F, k), of P^T P and P^T u."""
    matrix = torch.eye(len(squares), dtype=squares.dtype, device=squares.device) + squares
    factor = cholesky(matrix, "The matrix I + P^T P of whitened features")
    return factor, torch.cholesky_solve(sums, factor)


class _WhiteDensity(torch.autograd.Function):
    """-(k log |A| + |u - P w|^2 + |w|^2) / 2, whose gradient is r w^T - k P A^-1 in P and -r in u, r = u - P w."""

    @staticmethod
    def forward(ctx: Any, phi: Tensor, targets: Tensor, factor: Tensor, weights: Tensor) -> Tensor:
        residual = targets - phi @ weights
        ctx.save_for_backward(phi, residual, factor, weights)
        log_determinant = 2 * factor.diagonal().log().sum()
        return -0.5 * (targets.shape[1] * log_determinant + residual.square().sum() + weights.square().sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        phi, residual, factor, weights = ctx.saved_tensors
        in_phi = residual @ weights.mT - weights.shape[1] * torch.cholesky_solve(phi.mT, factor).mT
        return grads[0] * in_phi, -grads[0] * residual, None, None
