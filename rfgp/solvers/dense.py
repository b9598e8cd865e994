"""Gaussian regression through the n x n covariance of the rows.

The model is y = mean + f + e with f zero-mean and e of variance D, a scalar or (n,). k outputs share one covariance.
A noise d is replaced by (d^2 + r^2)^(1/2), with r = n eps times the mean variance of f. For a noise above 1,000 r the
change is negligible, and the likelihood is smooth for any d. All factorizations are in float64. Without the mean
a = C^-1 y for C = K + D (Rasmussen and Williams 2006, Algorithm 2.1). The gradient of the log marginal likelihood is
(a a^T - C^-1) / 2 in C and -a in y. With more features than rows K = Phi Phi^T and the weights are w = Phi^T a. With
the Cholesky factor L of C and S = L^-1 Phi, their covariance is I - S^T S. (`rfgp.solvers.lowrank` has the algebra for
fewer features than rows.)
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, input_derivatives, mixed_derivatives, with_gradient
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.grams import Gram
from rfgp.linalg import cholesky, half_solve
from rfgp.rows import Block
from rfgp.solvers.lowrank import LowRankPosterior, RowCovariance
from rfgp.solvers.role import Functions, Posterior, Shape, Solver, TermwisePosterior, log_density
from rfgp.torch_context import CachedWithoutLock

ROUNDING = torch.finfo(torch.float64).eps
"""The variance of rounding errors, in units of the mean prior variance times the number of rows.

The eigenvalues of an (n, n) covariance have errors of about n eps times its mean diagonal entry. Without this variance,
some factorizations fail if the noise is small."""
_MIN_REPORTED_ROUNDING = 0.1
"""The minimum fraction of the noise due to rounding that a report mentions."""
_DERIVATIVES = 64
"""The number of points whose derivatives have their covariance formed at once, for variances."""
_MAX_SPARSE_DENSITY = 0.05
"""The fraction of nonzero covariances with the rows below which products are sparse."""


class DenseSolver(Solver):
    """Rows under any prior, through the factor of their covariance.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
        gram: The covariance K (n, n) of the rows and its gradient. If None, it is computed from the prior.

    Examples:
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> rows = Block(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double())
        >>> solver = DenseSolver(prior, rows, torch.zeros(1).double(), torch.tensor(1.0).double())
        >>> solver.fitted.round(decimals=4)  # x w with w = x^T y / (1 + x^T x) = 5 / 6
        tensor([[0.8333],
                [1.6667]], dtype=torch.float64)
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor, gram: Gram | None = None) -> None:
        super().__init__(rows, mean, noise)
        self._prior, self._given_noise = prior, self._noise
        if gram is not None:
            vars(self)["_gram"] = gram
        self._rounding = ROUNDING * len(rows) * self._mean_variance
        self._noise = torch.hypot(self._given_noise.detach(), self._rounding)

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> "DenseSolver":
        """Return the solver for other targets and noise of the same inputs.

        For the same noise the factor is reused.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        other = DenseSolver(self._prior, rows, mean, noise, self._gram)
        if "_factor" in vars(self) and torch.equal(other._noise, self._noise):
            vars(other)["_factor"] = self._factor
        return other

    @cached_property
    def _gram(self) -> Gram:
        """K (n, n) and its gradient."""
        return self._prior.gram(self._rows.inputs)

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        """The tensors (...) that K depends on."""
        return self._gram.tensors

    @property
    def _mean_variance(self) -> Tensor:
        """The mean of the prior variances of the rows, 0-d."""
        return self._kernel.diagonal().mean()

    @property
    def _kernel(self) -> Tensor:
        """K (n, n), without gradients."""
        return self._gram.covariance

    @cached_property
    def _factor(self) -> Tensor:
        """The lower Cholesky factor of C, (n, n), without gradients."""
        return _factorized(self._kernel, self._noise)

    @cached_property
    def solved(self) -> Tensor:
        """The coefficients a = C^-1 (y - mean), (n, k), without gradients."""
        return torch.cholesky_solve(self._residual.detach(), self._factor)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        return with_gradient(self._value, *self._tensors, self._given_noise, self._residual) + self._other_terms

    def likelihood_and_gradients(self) -> tuple[Tensor, list[Tensor | None]]:
        """Return the log marginal likelihood, 0-d, and its gradients.

        The rows have no weights. The gradients are in the tensors of the covariance, in the noise of each row (n,), and
        in the residual (n, k).
        """
        value, gradients = self._value(())
        return value + self._other_terms, list(gradients())

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        squares = (self._residual.detach() * self.solved).sum(0)
        return log_density(squares, self._log_determinant, self._rows.output_weights, len(self._rows)), self._gradients

    def _gradients(self) -> list[Tensor | None]:
        """Return the gradients in the tensors of the prior, in the given noise, and in the residual.

        With the noise (d^2 + r^2)^(1/2) and r = eps sum_i K_ii, a gradient g in the noise is g d / noise in d. It adds
        eps sum_i g_i r / noise_i to the gradient in each K_ii.
        """
        output_weights = self._rows.output_weights
        in_covariance, counted = torch.cholesky_inverse(self._factor), self.solved * output_weights
        in_covariance.addmm_(counted, self.solved.mT, beta=-0.5 * float(output_weights.sum()), alpha=0.5)
        in_noise = in_covariance.diagonal() / self._noise
        in_given = in_noise * self._given_noise.detach()
        in_covariance.diagonal().add_(ROUNDING * self._rounding * in_noise.sum())
        return [*self._gram.pull_back(in_covariance), in_given, -counted]

    @cached_property
    def precisions(self) -> Tensor:
        """The diagonal of C^-1, (n,)."""
        return torch.cholesky_inverse(self._factor).diagonal()

    @property
    def remark(self) -> str:
        """A clause on the variance added for rounding, if the noise is not much larger."""
        rounding, min_noise = float(self._rounding), float(self._noise.min())
        if rounding < _MIN_REPORTED_ROUNDING * min_noise:
            return ""
        fraction = rounding / max(float(self._kernel.diagonal().mean()), 1e-300)
        return f" (for rounding, {fraction:.0e} of the prior variance is added to the noise)"

    @property
    def fitted(self) -> Tensor:
        """The posterior mean K a of f at the rows, (n, k)."""
        return self._kernel @ self.solved

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances D - D C^-1 D = D C^-1 K of f at the rows, (n,).

        Each is computed in the form without cancellation: the second one if the noise exceeds the prior variance.
        """
        noise, kernel, inverse = self._noise, self._kernel, torch.cholesky_inverse(self._factor)
        fractions = torch.where(noise > kernel.diagonal(), (kernel * inverse).sum(1), 1 - noise * inverse.diagonal())
        return noise * fractions

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        return self._log_determinant - self._noise.log().sum()

    @property
    def _log_determinant(self) -> Tensor:
        """The log determinant of C, 0-d."""
        return 2 * self._factor.diagonal().log().sum()

    def posterior(self) -> Posterior:
        """Return the posterior, with gradients if C or y has some.

        If the prior has dense weights only, without a residual, it is a `LowRankPosterior`. Otherwise it is a
        `DensePosterior` with the factor of C.
        """
        factor, coefficients = self._factor, self.solved
        tensors = *self._tensors, self._given_noise, self._residual
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            kernel = self._prior.kernel(self._rows.inputs, self._rows.inputs).double()
            factor = _factorized(kernel, torch.hypot(self._given_noise, rounding_variance(kernel)))
            coefficients = torch.cholesky_solve(self._residual, factor)
        if not self._prior.has_weights_only or self._prior.dense.has_residual:
            return DensePosterior(self._prior, self._rows.inputs, coefficients, factor)
        phi = self._prior.dense.scaled(self._rows.inputs).double()
        return LowRankPosterior(self._prior, phi.mT @ coefficients, RowCovariance(half_solve(factor, phi)))


@dataclass(frozen=True, eq=False)
class DensePosterior(TermwisePosterior):
    """The posterior of rows with a dense covariance C, through the factor of C.

    Its mean is k(x, X) a, and its covariance is k(x, x) - k(x, X) C^-1 k(X, x). Methods have the arguments of those of
    `Posterior`.

    Attributes:
        prior: The prior with a covariance.
        inputs: The inputs X of the rows, (n, d) or positions (n,).
        coefficients: The coefficients a, (n, k).
        factor: The lower Cholesky factor (n, n) of C.
        derivative_column: The index of the column of the derivative. If None, the function is not differentiated.
    """

    inputs: Tensor
    coefficients: Tensor
    factor: Tensor
    derivative_column: int | None = None

    serialized_fields = ("inputs", "coefficients", "factor")

    @property
    def width(self) -> int:
        """The number n of rows."""
        return len(self.coefficients)

    def project(self, inputs: Tensor) -> Tensor:
        """Return the covariances of n points with the rows, (n, n_rows)."""
        if self.derivative_column is not None:
            return input_derivatives(lambda z: self._own.kernel(z, self.inputs), inputs, self.derivative_column)
        return self._own.kernel(inputs, self.inputs)

    def mean(self, projected: Tensor) -> Tensor:
        """Return the posterior mean, (n, k)."""
        return projected @ self.coefficients

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        is_sparse = int(torch.count_nonzero(projected)) < _MAX_SPARSE_DENSITY * projected.numel()
        if is_sparse and not projected.requires_grad:
            rows = sp.csr_array(projected.numpy())
            explained = torch.from_numpy(np.asarray(rows.multiply(rows @ self._precision.numpy()).sum(1)))
        else:
            explained = half_solve(self.factor, projected.mT).square().sum(0)
        return (self._prior_variances(inputs) - explained).clamp_min(0)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the explained covariance -k(x, X) C^-1 k(X, x), (n, n)."""
        solved = half_solve(self.factor, left.mT)
        return -solved.mT @ (solved if left is right else half_solve(self.factor, right.mT))

    def residual_covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the prior covariance (n, n) of the predicted terms or of their derivatives."""
        if self.derivative_column is not None:
            return mixed_derivatives(self._own.kernel, inputs, inputs, self.derivative_column)
        return self._own.kernel(inputs, inputs).double()

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of coefficients and factor by name."""
        return {"coefficients": (n, k), "factor": (n, n)}

    def differentiated(self, column: int) -> "DensePosterior":
        """Return the posterior of the derivative of the function in one column.

        Raises:
            InvalidArgumentError: If a term has no derivative.
        """
        out = replace(self, derivative_column=column)
        out._prior_variances(self.inputs[:1])
        return out

    def _prior_variances(self, inputs: Tensor) -> Tensor:
        """Return the prior variances (n,) of the predicted terms or of their derivatives."""
        if self.derivative_column is None:
            return self._own.diagonal(inputs).double()
        parts = torch.split(inputs, _DERIVATIVES)
        return torch.cat([self.residual_covariance(part, part).diagonal() for part in parts])

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions by pathwise conditioning (Wilson et al. 2020).

        f(x) = mean(x) + g(x) - k(x, X) C^-1 (g(X) + e), with g from the prior and e of the variance D = C - K.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If the prior has no functions to draw.
        """
        if self.prior.functions is None:
            raise InvalidArgumentError(
                "This process has no functions to draw, because its prior is defined at given points only. Use "
                "predict(X).sample() instead, or an approximation."
            )
        n, k = self.coefficients.shape
        prior = self.prior.functions.draw(count * k, generator)
        noise_diag = (self.factor.square().sum(1) - self.prior.diagonal(self.inputs).double()).clamp_min(0)
        noise = torch.randn(n, count * k, generator=generator, dtype=torch.float64).to(noise_diag)
        observed = prior(self.inputs) + noise_diag.sqrt()[:, None] * noise
        coefficients = self.coefficients.repeat(1, count) - torch.cholesky_solve(observed, self.factor)
        data = self.prior.functions.kernel_expansion(self.inputs, coefficients)
        return lambda inputs: (prior(inputs) + data(inputs)).reshape(len(inputs), count, k).movedim(0, 1)

    @CachedWithoutLock
    def _own(self) -> Prior:
        """The terms of the predicted sum."""
        return self.prior if self.terms is None else self.prior.of(self.terms)

    @CachedWithoutLock
    def _precision(self) -> Tensor:
        """C^-1 (n, n)."""
        return torch.cholesky_inverse(self.factor)


def _factorized(kernel: Tensor, noise: Tensor) -> Tensor:
    """Return the lower Cholesky factor (n, n) of K (n, n) with the noise (n,) on its diagonal."""
    covariance = kernel.clone()
    covariance.diagonal().add_(noise)
    return cholesky(covariance, "The covariance K + noise of the training data")


def rounding_variance(covariance: Tensor) -> Tensor:
    """Return the variance r, 0-d, below which rounding of a covariance loses a noise.

    Args:
        covariance: The covariance, (n, n), float64.
    """
    return ROUNDING * len(covariance) * covariance.diagonal().mean()
