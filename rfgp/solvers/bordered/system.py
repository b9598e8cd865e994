"""Gaussian regression on latent values with a sparse precision and a dense border of weights; numbers alone.

y = mean + A u + Phi w + e with u ~ N(0, Q^-1), Q = blockdiag(Q_t / s_t^2), w ~ N(0, I) and e of variance D. With
r = y - mean,

    S = Q + A^T D^-1 A,    Y = S^-1 A^T D^-1 Phi,    Psi = Phi - A Y,    C = I + Phi^T D^-1 Psi,
    w = C^-1 Psi^T D^-1 r,    u = S^-1 A^T D^-1 (r - Phi w),    e = r - A u - Phi w,
    -2 log N(y) = n log 2 pi + log|D| + log|S| + log|C| - log|Q| + e^T D^-1 e + u^T Q u + w^T w.

The posterior covariance is C^-1 of w, -Y C^-1 between u and w, and S^-1 + Y C^-1 Y^T of u. Since u and w minimise the
quadratic form, the derivatives of the log density are, with v the posterior variances at the rows,

    in Q    (Q^-1 - S^-1 - Y C^-1 Y^T - u u^T) / 2 on its pattern, the selected inverse of S with the border,
    in Phi  D^-1 (e w^T - Psi C^-1),
    in A    D^-1 (e u^T - A S^-1 + Psi C^-1 Y^T),
    in D_i  ((e_i^2 + v_i) / D_i^2 - 1 / D_i) / 2,
    in r    -D^-1 e.

k outputs share S and C and count c_j times each. Without a border this is regression on a Markov field (Rue and Held
2005, Gaussian Markov Random Fields, Section 2.3); without latent values it is the primal form of `rfgp.solvers.dense`.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks.precision import Array, Factor, Field, quadratic_forms, solved_forms
from rfgp.linalg import cholesky
from rfgp.solvers.bordered.pattern import JointPattern
from rfgp.sparse import sampled_outer, times_symmetric

_LOG_2PI = math.log(2 * math.pi)

_OF_PRIOR = ("pattern", "prior_entries", "_prior_determinants", "_transposed")
_OF_NOISE = ("entries", "factor", "coupling", "reduced", "border_factor", "log_determinant", "row_variances")


class Latent(NamedTuple):
    """Latent values with a sparse precision at given hyperparameters."""

    field: Field
    values: Array  # (p,)
    variance: float  # s^2


class Gradient(NamedTuple):
    """Derivatives of the log density."""

    in_fields: Sequence[tuple[Array, float]]  # of each field in its parameters (p,) and in s^2
    in_border: Tensor  # in Phi (n, F)
    in_noise: Tensor  # in D (n,)
    in_residual: Tensor  # in r (n, k)


class BorderedSystem:
    """Rows given sparse latent values and dense weights.

    Args:
        latents: The sparse blocks, in the order of the columns of A. There may be none.
        reads: A (n, N).
        border: Phi (n, F), float64. F may be 0.
        noise: D (n,), float64.
        residual: r (n, k), float64.
        each: How often the log density of each output counts, (k,). If None, once.
        mixes: Whether a row may read pairs of values of one block that have no entry in its precision.
    """

    def __init__(
        self,
        latents: Sequence[Latent],
        reads: sp.csr_array,
        border: Tensor,
        noise: Tensor,
        residual: Tensor,
        each: Tensor | None = None,
        *,
        mixes: bool = False,
    ) -> None:
        self.latents, self.reads, self.border = latents, reads, border
        self.noise, self.residual, self._mixes = noise, residual, mixes
        self.each = residual.new_ones(residual.shape[1]) if each is None else each

    def at(self, noise: Tensor, residual: Tensor, each: Tensor) -> "BorderedSystem":
        """Return the system with other noise (n,), residuals (n, k) and counts (k,), and the prior's numbers.

        For the same noise the factors are kept.
        """
        other = BorderedSystem(self.latents, self.reads, self.border, noise, residual, each, mixes=self._mixes)
        if self.latents:
            vars(other).update({name: getattr(self, name) for name in _OF_PRIOR})
        if torch.equal(noise, self.noise):
            vars(other).update({name: vars(self)[name] for name in _OF_NOISE if name in vars(self)})
        return other

    # --- the posterior ---------------------------------------------------------------------------

    @cached_property
    def pattern(self) -> JointPattern:
        """The pattern of S."""
        return JointPattern.of([latent.field for latent in self.latents], self.reads, mixes=self._mixes)

    @cached_property
    def prior_entries(self) -> list[Array]:
        """The entries of Q_t / s_t^2, (nnz_t,) each."""
        return [latent.field.entries(latent.values) / latent.variance for latent in self.latents]

    @cached_property
    def entries(self) -> Array:
        """The entries of S on its pattern, (nnz,)."""
        return self.pattern.add_gram(self.pattern.total(self.prior_entries), self.reads, (1 / self.noise).numpy())

    @cached_property
    def factor(self) -> Factor:
        """The factor of S."""
        return self.pattern.factor(self.entries)

    def further(self, reads: sp.csr_array, noise: Array) -> Factor:
        """Return the factor of S + B^T E^-1 B, for further observations through B (m, N) with variances E (m,)."""
        every = sp.csr_array(sp.vstack([self.reads, reads], format="csr"))
        precision = np.concatenate([1 / self.noise.numpy(), 1 / noise])
        pattern = JointPattern.of([latent.field for latent in self.latents], every)
        return pattern.factor(pattern.add_gram(pattern.total(self.prior_entries), every, precision))

    def solve(self, b: Tensor) -> Tensor:
        """Return S^-1 b, (N, p)."""
        if not self.latents or not b.shape[1]:
            return b.new_zeros(self.reads.shape[1], b.shape[1])
        return torch.from_numpy(self.factor.solve(b.numpy()))

    def read(self, u: Tensor) -> Tensor:
        """Return A u, (n, p)."""
        return _product(self.reads, u)

    def gather(self, v: Tensor) -> Tensor:
        """Return A^T v, (N, p)."""
        return _product(self._transposed, v)

    @cached_property
    def _transposed(self) -> sp.csr_array:
        return sp.csr_array(self.reads.T)

    @cached_property
    def _is_white(self) -> bool:
        """Whether the noise is 1, as that of whitened rows: then no copies are made for it."""
        return bool((self.noise == 1).all())

    def _over_noise(self, v: Tensor) -> Tensor:
        """Return D^-1 v, (n, p)."""
        return v if self._is_white else v / self.noise[:, None]

    @cached_property
    def coupling(self) -> Tensor:
        """Y = S^-1 A^T D^-1 Phi, (N, F)."""
        return self.solve(self.gather(self._over_noise(self.border)))

    @cached_property
    def reduced(self) -> Tensor:
        """Psi = Phi - A Y, (n, F)."""
        return self.border - self.read(self.coupling) if self.latents else self.border

    @cached_property
    def border_factor(self) -> Tensor:
        """The lower Cholesky factor of C, (F, F)."""
        matrix = self._over_noise(self.border).mT @ self.reduced
        matrix = (matrix + matrix.mT) / 2
        matrix.diagonal().add_(1)
        return cholesky(matrix, "The precision of the weights")

    @cached_property
    def weights(self) -> Tensor:
        """The posterior mean w, (F, k)."""
        return torch.cholesky_solve(self.reduced.mT @ self._over_noise(self.residual), self.border_factor)

    @cached_property
    def values(self) -> Tensor:
        """The posterior mean u, (N, k)."""
        return self.solve(self.gather(self._over_noise(self.residual - self.border @ self.weights)))

    @cached_property
    def fitted(self) -> Tensor:
        """The posterior mean A u + Phi w of f at the rows, (n, k)."""
        fitted = self.border @ self.weights
        return fitted + self.read(self.values) if self.latents else fitted

    @cached_property
    def left(self) -> Tensor:
        """The residual e of the posterior mean, (n, k)."""
        return self.residual - self.fitted

    # --- the likelihood --------------------------------------------------------------------------

    @cached_property
    def _prior_determinants(self) -> list[tuple[float, Array]]:
        """The log determinants of Q_t and their derivatives in its parameters."""
        return [latent.field.log_determinant(latent.values) for latent in self.latents]

    @cached_property
    def log_determinant(self) -> float:
        """The log determinant of I + K D^-1, for the prior covariance K of the rows."""
        total = 2 * float(self.border_factor.diagonal().log().sum())
        if self.latents:
            total += self.factor.log_determinant
        pairs = zip(self._prior_determinants, self.prior_entries, self.latents, strict=True)
        for (prior, _), _, latent in pairs:
            total += _size(latent) * math.log(latent.variance) - prior
        return total

    def log_density(self) -> Tensor:
        """Return the log density of y over all outputs, 0-d."""
        n, k = len(self.noise), self.each.sum()
        determinants = self.noise.log().sum() + self.log_determinant
        squares = (self.left.square() / self.noise[:, None]).sum(0) + self.weights.square().sum(0)
        if self.latents:
            squares = squares + (self.values * self._pulled).sum(0)
        return -0.5 * (k * (n * _LOG_2PI + determinants) + squares @ self.each)

    @cached_property
    def _pulled(self) -> Tensor:
        """Q u, (N, k)."""
        indptr, indices = self.pattern.csr
        prior = sp.csr_array((self.pattern.total(self.prior_entries), indices, indptr), shape=(len(indptr) - 1,) * 2)
        return _product(prior, self.values)

    # --- variances -------------------------------------------------------------------------------

    @cached_property
    def half_coupling(self) -> Tensor:
        """Y L_C^-T, (N, F), whose products with itself are Y C^-1 Y^T."""
        out: Tensor = torch.linalg.solve_triangular(self.border_factor, self.coupling.mT, upper=False).mT
        return out.contiguous()

    def half_border(self, reduced: Tensor) -> Tensor:
        """Return Psi L_C^-T, (n, F)."""
        out: Tensor = torch.linalg.solve_triangular(self.border_factor, reduced.mT, upper=False).mT
        return out

    @cached_property
    def row_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,)."""
        return self.variances(self.reads, self.reduced)

    def variances(self, reads: sp.csr_array, reduced: Tensor) -> Tensor:
        """Return the posterior variances at points.

        Args:
            reads: A (n, N) of the points.
            reduced: Psi = Phi - A Y of the points, (n, F).

        Returns:
            (n,).
        """
        border = self.half_border(reduced).square().sum(1)
        if not self.latents:
            return border
        return border + torch.from_numpy(self._sparse_variances(reads))

    def _sparse_variances(self, reads: sp.csr_array) -> Array:
        """Return the diagonal of A S^-1 A^T, by the selected inverse where that has all entries and by solves else."""
        covered = self.pattern.covers(reads)
        if covered.all():
            return quadratic_forms(self.pattern.csr, self.factor.inverse, reads)
        out = np.empty(reads.shape[0])
        out[covered] = quadratic_forms(self.pattern.csr, self.factor.inverse, reads[covered])
        out[~covered] = solved_forms(self.factor, reads[~covered])
        return out

    # --- the gradient ----------------------------------------------------------------------------

    def gradient(self) -> Gradient:
        """Return the derivatives of the log density."""
        return Gradient(self.in_fields(), self.in_border(), self.in_noise(), self.in_residual())

    def in_border(self) -> Tensor:
        """Return the derivatives of the log density in Phi, (n, F)."""
        found: Tensor = torch.cholesky_solve(self.reduced.mT, self.border_factor).mT
        found.mul_(-self.each.sum()).addmm_(self._counted, self.weights.mT)
        return self._over_noise(found)

    def in_noise(self) -> Tensor:
        """Return the derivatives of the log density in D, (n,)."""
        k, noise = self.each.sum(), self.noise
        return 0.5 * ((k * self.row_variances + self.left.square() @ self.each) / noise.square() - k / noise)

    def in_residual(self) -> Tensor:
        """Return the derivatives of the log density in r, (n, k)."""
        return -self._over_noise(self._counted)

    def in_reads(self) -> Tensor:
        """Return the derivatives of the log density in the entries of A, (nnz,)."""
        k, reads = self.each.sum(), self.reads
        covered = torch.from_numpy(times_symmetric(reads, self.pattern.csr, self.factor.inverse))  # of A S^-1
        left = torch.cat([self._counted, k * self.half_border(self.reduced)], dim=1)
        right = torch.cat([self.values, self.half_coupling], dim=1)
        rows = torch.from_numpy(np.repeat(np.arange(reads.shape[0]), np.diff(reads.indptr)))
        found: Tensor = (sampled_outer(left, right, reads) - k * covered) / self.noise[rows]
        return found

    @property
    def _counted(self) -> Tensor:
        """The residual e, each output as often as it counts, (n, k)."""
        return self.left * self.each

    def in_fields(self) -> list[tuple[Array, float]]:
        """Return the derivatives of the log density in the parameters (p,) and the variance of each field."""
        if not self.latents:
            return []
        k = float(self.each.sum())
        second, out = self._second_moments(k), list[tuple[Array, float]]()
        parts = zip(self.latents, self.prior_entries, self._prior_determinants, strict=True)
        for number, (latent, prior, (_, slopes)) in enumerate(parts):
            own = self.pattern.own(number, second)
            in_values = 0.5 * (k * slopes - latent.field.pull_back(latent.values, own) / latent.variance)
            in_variance = 0.5 * (float(own @ prior) - k * _size(latent)) / latent.variance
            out.append((in_values, in_variance))
        return out

    def _second_moments(self, k: float) -> Array:
        """Return the entries of k (S^-1 + Y C^-1 Y^T) + sum_j c_j u_j u_j^T on the pattern, (nnz,)."""
        out = k * self.factor.inverse
        left, right = self.values * self.each, self.values
        if self.border.shape[1]:
            left, right = torch.cat([left, k * self.half_coupling], 1), torch.cat([right, self.half_coupling], 1)
        if left.shape[1] == 1:
            out += left.numpy()[self.pattern.rows, 0] * right.numpy()[self.pattern.csr.indices, 0]
        else:
            out += sampled_outer(left, right, self.pattern.csr).numpy()
        return out


def _size(latent: Latent) -> int:
    return len(latent.field.pattern.indptr) - 1


def _product(matrix: sp.csr_array, v: Tensor) -> Tensor:
    return torch.from_numpy(np.asarray(matrix @ v.numpy()))
