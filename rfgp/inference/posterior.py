"""Gaussian posteriors, both ways: F x F through features, n x n through a kernel matrix.

The model is y = f + e with f zero-mean (the caller subtracts the mean) and e of variance noise,
a scalar or (n,). Everything is factorised in float64.

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
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.laws import KernelPredictor, Law, Predictor, RowPredictor
from rfgp.linalg import cholesky

_LOG_2PI = math.log(2 * math.pi)


class Posterior(ABC):
    """What the data say; differentiable in whatever it was built from."""

    @abstractmethod
    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d, constants included."""

    @abstractmethod
    def predictor(self) -> Predictor:
        """Return what prediction needs of the posterior."""

    @abstractmethod
    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n,) and variance (n,), noise included, of each y_i given all the others."""

    def law(self, inputs: Tensor) -> Law:
        """Return the latent law at n inputs, tables (n, d) or positions (n,)."""
        return self.predictor().law(inputs)


class DualPosterior(Posterior):
    """Gaussian process regression on a kernel.

    Args:
        kernel: (a, b) -> (n_a, n_b), the prior covariance.
        diagonal: a -> (n_a,), its diagonal.
        inputs: The training inputs.
        y: Targets (n,) with the mean taken off.
        noise: Variance, () or (n,).
    """

    def __init__(
        self,
        kernel: Callable[[Tensor, Tensor], Tensor],
        diagonal: Callable[[Tensor], Tensor],
        inputs: Tensor,
        y: Tensor,
        noise: Tensor,
    ) -> None:
        self.kernel, self.diagonal, self.inputs = kernel, diagonal, inputs
        self._solution = _Solution(kernel(inputs, inputs), y, noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        return self._solution.log_density()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n,) and variance (n,) of each y_i given all the others."""
        return self._solution.leave_one_out()

    def predictor(self) -> KernelPredictor:
        """Return the training inputs and the factor of their covariance."""
        factor, coefficients = self._solution.solved()
        return KernelPredictor(self.kernel, self.diagonal, self.inputs, coefficients, factor)


class RowPosterior(Posterior):
    """Bayesian linear regression on more features than data, through the n x n covariance.

    Args:
        features: Maps inputs to Phi (n, F), scaled so that w ~ N(0, I).
        inputs: The training inputs.
        y: Targets (n,) with the mean taken off.
        noise: Variance, () or (n,).
    """

    def __init__(self, features: Callable[[Tensor], Tensor], inputs: Tensor, y: Tensor, noise: Tensor) -> None:
        self._features = features
        self._phi = features(inputs).double()
        self._solution = _Solution(self._phi @ self._phi.mT, y, noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        return self._solution.log_density()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n,) and variance (n,) of each y_i given all the others."""
        return self._solution.leave_one_out()

    def predictor(self) -> RowPredictor:
        """Return the weights Phi^T a and the rows S = L^-1 Phi."""
        factor, coefficients = self._solution.solved()
        rows: Tensor = torch.linalg.solve_triangular(factor, self._phi, upper=False)
        return RowPredictor(self._features, self._phi.mT @ coefficients, rows)


class _Solution:
    """C = K + D and a = C^-1 y. The log density has its gradient in closed form, predictions by autograd."""

    def __init__(self, kernel: Tensor, y: Tensor, noise: Tensor) -> None:
        self._y = y.double()
        self._covariance = kernel.double() + torch.diag(noise.double().expand(len(y)))
        with torch.no_grad():
            self._factor, self._coefficients = self._solve()

    def log_density(self) -> Tensor:
        """Return log N(y; 0, C), 0-d."""
        density: Tensor = _LogDensity.apply(self._covariance, self._y, self._factor, self._coefficients)
        return density

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return y_i - a_i / (C^-1)_ii (n,) and 1 / (C^-1)_ii (n,)."""
        variance = 1 / torch.cholesky_inverse(self._factor).diagonal()
        return self._y - self._coefficients * variance, variance

    def solved(self) -> tuple[Tensor, Tensor]:
        """Return the Cholesky factor (n, n) of C, and a (n,), with gradients where C or y has some."""
        wanted = torch.is_grad_enabled() and (self._covariance.requires_grad or self._y.requires_grad)
        return self._solve() if wanted else (self._factor, self._coefficients)

    def _solve(self) -> tuple[Tensor, Tensor]:
        factor = cholesky(self._covariance, "The covariance K + noise of the training data")
        return factor, torch.cholesky_solve(self._y[:, None], factor)[:, 0]


class _LogDensity(torch.autograd.Function):
    """log N(y; 0, C) with its gradient in closed form, 1/2 (a a^T - C^-1) for C and -a for y, a = C^-1 y.

    Differentiating the Cholesky factorisation itself would cost several times as much.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, y: Tensor, factor: Tensor, solved: Tensor) -> Tensor:
        ctx.save_for_backward(factor, solved)
        log_determinant = 2 * factor.diagonal().log().sum()
        return -0.5 * (y @ solved + log_determinant + len(y) * _LOG_2PI)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        factor, solved = ctx.saved_tensors
        in_covariance = torch.outer(solved, solved) - torch.cholesky_inverse(factor)
        return 0.5 * grads[0] * in_covariance, -grads[0] * solved, None, None
