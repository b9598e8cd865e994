"""Gaussian regression on latent values with a sparse precision and a dense border of weights, without gradients.

y = mean + A u + Phi w + e with u ~ N(0, Q^-1), Q = blockdiag(Q_t / s_t^2), w ~ N(0, I) and e of variance D. With
r = y - mean,

    S = Q + A^T D^-1 A,    Y = S^-1 A^T D^-1 Phi,    Psi = Phi - A Y,    C = I + Phi^T D^-1 Psi,
    w = C^-1 Psi^T D^-1 r,    u = S^-1 A^T D^-1 (r - Phi w),    e = r - A u - Phi w,
    -2 log N(y) = n log 2 pi + log|D| + log|S| + log|C| - log|Q| + e^T D^-1 e + u^T Q u + w^T w.

The posterior covariance is C^-1 of w, -Y C^-1 between u and w, and S^-1 + Y C^-1 Y^T of u. u and w minimize the
quadratic form. With the posterior variances v at the rows, the derivatives of the log marginal likelihood are therefore

    in Q    (Q^-1 - S^-1 - Y C^-1 Y^T - u u^T) / 2 on its pattern, the selected inverse of S with the border,
    in Phi  D^-1 (e w^T - Psi C^-1),
    in A    D^-1 (e u^T - A S^-1 + Psi C^-1 Y^T),
    in D_i  ((e_i^2 + v_i) / D_i^2 - 1 / D_i) / 2,
    in r    -D^-1 e.

k outputs share S and C, with weights c_j. Without a border this is regression on a Markov field (Rue and Held 2005,
Gaussian Markov Random Fields, Section 2.3). Without latent values it is the primal form of `rfgp.solvers.dense`.
"""

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.precision import Array
from rfgp.solvers.bordered.elimination import Elimination
from rfgp.solvers.lowrank.statistics import MAX_TRACE
from rfgp.sparse import add_outer, times_symmetric

_LOG_2PI = math.log(2 * math.pi)


class BorderedSystem:
    """Rows given sparse latent values and dense weights.

    Args:
        elimination: The latent values and weights at the rows, for their noise.
        residual: The residual r, (n, k), float64.
        output_weights: The weight of the log marginal likelihood of each output, (k,). If None, 1.
    """

    def __init__(self, elimination: Elimination, residual: Tensor, output_weights: Tensor | None = None) -> None:
        self.elimination, self.residual = elimination, residual
        self.output_weights = residual.new_ones(residual.shape[1]) if output_weights is None else output_weights

    def with_data(self, noise: Tensor, residual: Tensor, output_weights: Tensor) -> "BorderedSystem":
        """Return the system with other noise, residuals and weights of the outputs.

        For the same noise the factors are reused.

        Args:
            noise: The noise D, (n,), float64.
            residual: The residual r, (n, k), float64.
            output_weights: The weight of the log marginal likelihood of each output, (k,).
        """
        return BorderedSystem(self.elimination.with_noise(noise), residual, output_weights)

    @property
    def noise(self) -> Tensor:
        """D (n,)."""
        return self.elimination.noise

    @cached_property
    def weights(self) -> Tensor:
        """The posterior mean w, (F, k)."""
        elimination = self.elimination
        if not elimination.is_sparse and elimination.border_factor.square().sum() > MAX_TRACE:
            return elimination.by_orthogonalization(self.residual).weights
        target = elimination.reduced.mT @ elimination.over_noise(self.residual)
        return torch.cholesky_solve(target, elimination.border_factor)

    @cached_property
    def values(self) -> Tensor:
        """The posterior mean u, (N, k)."""
        elimination = self.elimination
        residual = elimination.over_noise(self.residual - elimination.border @ self.weights)
        return elimination.solve(elimination.prior.transposed_times(residual))

    @cached_property
    def fitted(self) -> Tensor:
        """The posterior mean A u + Phi w of f at the rows, (n, k)."""
        elimination = self.elimination
        fitted = elimination.border @ self.weights
        return fitted + elimination.prior.project(self.values) if elimination.is_sparse else fitted

    @cached_property
    def residual_of_mean(self) -> Tensor:
        """The residual e of the posterior mean, (n, k)."""
        return self.residual - self.fitted

    def log_prob(self) -> Tensor:
        """Return the log marginal likelihood of y over all outputs, 0-d."""
        elimination, n, k = self.elimination, len(self.noise), self.output_weights.sum()
        determinants = self.noise.log().sum() + elimination.log_determinant
        squares = (self.residual_of_mean.square() / self.noise[:, None]).sum(0) + self.weights.square().sum(0)
        if elimination.is_sparse:
            squares = squares + (self.values * elimination.prior.times(self.values)).sum(0)
        return -0.5 * (k * (n * _LOG_2PI + determinants) + squares @ self.output_weights)

    # --- the gradient ----------------------------------------------------------------------------

    def in_border(self) -> Tensor:
        """Return the derivatives of the log marginal likelihood in Phi, (n, F)."""
        elimination = self.elimination
        gradient: Tensor = torch.linalg.solve_triangular(
            elimination.border_factor, elimination.half_reduced, upper=False, left=False
        )
        gradient.mul_(-self.output_weights.sum()).addmm_(self._counted, self.weights.mT)
        return elimination.over_noise(gradient)

    def in_noise(self) -> Tensor:
        """Return the derivatives of the log marginal likelihood in D, (n,)."""
        k, noise, variances = self.output_weights.sum(), self.noise, self.elimination.row_variances
        squares = self.residual_of_mean.square() @ self.output_weights
        return 0.5 * ((k * variances + squares) / noise.square() - k / noise)

    def in_residual(self) -> Tensor:
        """Return the derivatives of the log marginal likelihood in r, (n, k)."""
        return -self.elimination.over_noise(self._counted)

    def in_projector(self) -> Tensor:
        """Return derivatives of the log marginal likelihood in the entries of A, (nnz,)."""
        k, elimination, projector = float(self.output_weights.sum()), self.elimination, self.elimination.prior.matrix
        rows = np.repeat(np.arange(projector.shape[0]), np.diff(projector.indptr))
        entries = times_symmetric(projector, elimination.prior.pattern.csr, elimination.factor.inverse)  # A S^-1
        entries = k * (elimination.border_products.on_projector - entries)
        add_outer(self._counted.numpy(), self.values.numpy(), rows, projector.indices, entries)
        return torch.from_numpy(entries) / self.noise[torch.from_numpy(rows)]

    @property
    def _counted(self) -> Tensor:
        """The residual e times the weight of each output, (n, k)."""
        return self.residual_of_mean * self.output_weights

    def in_fields(self) -> list[Tensor]:
        """Return the derivatives of the likelihood in the parameters of each field.

        For each field these are the derivatives in the parameters (p,) and in the variance, 0-d.
        """
        if not self.elimination.is_sparse:
            return []
        k = float(self.output_weights.sum())
        return self.elimination.prior.pull_back(self._second_moments(k), k)

    def _second_moments(self, k: float) -> Array:
        """Return the entries of k (S^-1 + Y C^-1 Y^T) + sum_j c_j u_j u_j^T on the pattern, (nnz,)."""
        factor = self.elimination.factor
        values, (rows, columns) = self.values.numpy()[factor.analysis.order], factor.analysis.pairs
        out = k * self.elimination.border_products.on_triangle
        add_outer(values * self.output_weights.numpy(), values, rows, columns, out)
        return np.asarray(k * factor.inverse + factor.analysis.mirrored(out))
