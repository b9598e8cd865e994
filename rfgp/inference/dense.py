"""Gaussian regression, both ways: F x F through features, n x n through a kernel matrix.

The model is y = mean + f + e with f zero-mean and e of variance D, a scalar or (n,); k outputs are k such y with one
covariance. Everything is factorised in float64. With the mean taken off:

Primal, f = Phi w with w ~ N(0, I) and D the noise: A = I + Phi^T D^-1 Phi, posterior mean of w
w = A^-1 Phi^T D^-1 y, covariance A^-1, and by the matrix determinant and inversion lemmas

    y^T (Phi Phi^T + D)^-1 y = (y - Phi w)^T D^-1 (y - Phi w) + w^T w,
    log |Phi Phi^T + D| = log |A| + log |D|.

The quadratic form is written with the residual because the usual y^T D^-1 y - b^T A^-1 b cancels
when the noise is small. Dual: the same with K given (Rasmussen and Williams 2006, Algorithm 2.1).
Rows: dual with K = Phi Phi^T, where w = Phi^T a and, with L the Cholesky factor of K + D and
S = L^-1 Phi, the covariance of the weights is I - S^T S.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.evidence import Evidence
from rfgp.inference.posteriors import KernelPosterior, RowCovariance, WeightPosterior
from rfgp.inference.priors import FeaturePrior, KernelPrior, SparsePrior
from rfgp.linalg import cholesky
from rfgp.rows import Block

_LOG_2PI = math.log(2 * math.pi)


class KernelEvidence(Evidence):
    """Gaussian process regression on a kernel.

    Args:
        prior: With a covariance function.
        rows: The data.
        mean: (k,).
        noise: Learned variance of one observation, 0-d.
    """

    def __init__(self, prior: KernelPrior | SparsePrior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._prior, self._inputs = prior, rows.inputs
        self._solution = _Solution(prior.kernel(rows.inputs, rows.inputs), rows, mean, noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        return self._solution.log_density()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all the others."""
        return self._solution.leave_one_out()

    def posterior(self) -> KernelPosterior:
        """Return the training inputs and the factor of their covariance."""
        factor, coefficients = self._solution.solved()
        return KernelPosterior(self._prior, self._inputs, coefficients, factor)


class RowEvidence(Evidence):
    """Bayesian linear regression on more features than data, through the n x n covariance.

    Args:
        prior: Of features.
        rows: The data.
        mean: (k,).
        noise: Learned variance of one observation, 0-d.
    """

    def __init__(self, prior: FeaturePrior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._prior = prior
        self._phi = prior.scaled(rows.inputs).double()
        self._solution = _Solution(_Gram.apply(self._phi), rows, mean, noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        return self._solution.log_density()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all the others."""
        return self._solution.leave_one_out()

    def posterior(self) -> WeightPosterior:
        """Return the weights Phi^T a and the rows S = L^-1 Phi."""
        factor, coefficients = self._solution.solved()
        rows: Tensor = torch.linalg.solve_triangular(factor, self._phi, upper=False)
        return WeightPosterior(self._prior, self._phi.mT @ coefficients, RowCovariance(rows))


class _Gram(torch.autograd.Function):
    """Phi Phi^T, whose gradient (G + G^T) Phi is one product where autograd takes two."""

    @staticmethod
    def forward(ctx: Any, phi: Tensor) -> Tensor:
        ctx.save_for_backward(phi)
        return phi @ phi.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        in_phi: Tensor = (grads[0] + grads[0].mT) @ phi
        return in_phi


class _Solution:
    """C = K + D and a = C^-1 y. The log density has its gradient in closed form, predictions by autograd."""

    def __init__(self, kernel: Tensor, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._targets, self._y, self._each = rows.targets, rows.targets - mean, rows.each
        self._kernel, self._noise = kernel.double(), rows.noise_diag(noise.double()).expand(len(rows))
        self._repeated = 0.0 if rows.weight is None else repetitions(rows, noise.double())
        with torch.no_grad():
            self._factor, self._coefficients = self._solve()

    def log_density(self) -> Tensor:
        """Return log N(y; 0, C) of all observations, 0-d."""
        solved = (self._factor, self._coefficients)
        density: Tensor = _LogDensity.apply(self._kernel, self._noise, self._y, self._each, *solved)
        return density + self._repeated

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return y_i - a_i / (C^-1)_ii (n, k) and 1 / (C^-1)_ii (n,)."""
        variance = 1 / torch.cholesky_inverse(self._factor).diagonal()
        return self._targets - self._coefficients * variance[:, None], variance

    def solved(self) -> tuple[Tensor, Tensor]:
        """Return the Cholesky factor (n, n) of C, and a (n, k), with gradients where C or y has some."""
        wanted = torch.is_grad_enabled() and any(t.requires_grad for t in (self._kernel, self._noise, self._y))
        return self._solve() if wanted else (self._factor, self._coefficients)

    def _solve(self) -> tuple[Tensor, Tensor]:
        covariance = self._kernel.clone()
        covariance.diagonal().add_(self._noise)
        factor = cholesky(covariance, "The covariance K + noise of the training data")
        return factor, torch.cholesky_solve(self._y, factor)


def repetitions(rows: Block, noise: Tensor) -> Tensor:
    """Return what repetitions add to the log density of their means, 0-d.

    w observations of variance D that are all y have the density N(y; f, D / w) (2 pi D)^(-(w - 1) / 2) w^(-1/2).
    """
    weight, each = rows.counts(), rows.observation_noise(noise)
    return -0.5 * rows.num_outputs * ((weight - 1) * (2 * torch.pi * each).log() + weight.log()).sum()


class _LogDensity(torch.autograd.Function):
    """log N(y; 0, C), C = K + D, with its gradient in closed form: 1/2 (a a^T - C^-1) for C, -a for y, a = C^-1 y.

    y (n, k) has independent columns of one covariance C, which count c_j times each. Differentiating the Cholesky
    factorisation itself would cost several times as much.
    """

    @staticmethod
    def forward(
        ctx: Any, kernel: Tensor, noise: Tensor, y: Tensor, each: Tensor, factor: Tensor, solved: Tensor
    ) -> Tensor:
        ctx.save_for_backward(factor, solved, each)
        log_determinant = 2 * factor.diagonal().log().sum()
        return -0.5 * ((y * solved).sum(0) @ each + each.sum() * (log_determinant + len(y) * _LOG_2PI))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        factor, solved, each = ctx.saved_tensors
        in_covariance, counted = torch.cholesky_inverse(factor), solved * each
        in_covariance.addmm_(counted, solved.mT, beta=-float(each.sum())).mul_(0.5 * grads[0])
        return in_covariance, in_covariance.diagonal().clone(), -grads[0] * counted, None, None, None
