"""Laplace's approximation for several classes, with the covariance of all rows in memory.

The latent values f (n, C) have independent columns with one covariance K and means m_c. Classes follow by a softmax.
Let p be the probabilities at f, w_i the counts, D_c = diag(w p_c) and R^T v = sum_c v_c. The curvature is W = D - D R
(R^T D R)^-1 R^T D, and (Rasmussen and Williams 2006, Eqs. 3.40 to 3.47, Algorithm 3.3)

    E_c = (K + D_c^-1)^-1,    S = sum_c E_c,    T = E - E R S^-1 R^T E,    posterior covariance of f: K - K T K,
    log|I + K W| = sum_c log|I + K D_c| + log|S| - sum_i log w_i.

A Newton step has a = b - T K b, b = W (f - m) + g, and f - m = K a. Let V_i be the posterior covariance (C, C) of f_i,
and s that of `softmax.determinant_gradient`. The gradient of the log evidence is as in `rfgp.inference.sites.laplace`:

    u = s - T K s,    d/dK = sum_c (a_c a_c^T / 2 + u_c a_c^T - T_cc / 2),    d/dm_c = sum_i a_ic + u_ic.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.inference.sites import softmax
from rfgp.inference.sites.coupled import CoupledDensePosterior
from rfgp.inference.sites.newton import TOLERANCE, Mode, ModeProblem, Step, find_mode
from rfgp.inference.sites.terms import RowLikelihood
from rfgp.likelihoods import Likelihood
from rfgp.linalg import cholesky, half_solve
from rfgp.rows import Block
from rfgp.solvers import Inference, WarmStart

_MIN_CURVATURE = 1e-10
"""The smallest w p_c, the curvature of a class with a vanishing probability."""


class ClassPrecision(NamedTuple):
    """The matrix T at some probabilities.

    Attributes:
        class_matrices: The matrices E, (C, n, n).
        factor: The lower Cholesky factor of S, (n, n).
        log_determinant: log|I + K W|, 0-d.
    """

    class_matrices: Tensor
    factor: Tensor
    log_determinant: Tensor

    def times(self, v: Tensor) -> Tensor:
        """Return T v, (n, C).

        Args:
            v: The vectors v, (n, C).
        """
        by_class = torch.einsum("cij,jc->ic", self.class_matrices, v)
        common = torch.cholesky_solve(by_class.sum(1, keepdim=True), self.factor)[:, 0]
        return by_class - torch.einsum("cij,j->ic", self.class_matrices, common)

    def coupling_root(self) -> Tensor:
        """Return L^-1 E (C, n, n) with L L^T = S, so that T_cd = E_c 1(c = d) - (L^-1 E_c)^T (L^-1 E_d)."""
        return half_solve(self.factor, self.class_matrices)


def class_precision(
    kernel: Tensor,  # (n, n)
    f: Tensor,  # (n, C)
    counts: Tensor,  # (n, 1)
) -> ClassPrecision:
    """Return the matrix T at f.

    Args:
        kernel: The covariance K of one function, (n, n).
        f: The latent values, (n, C).
        counts: The number of observations of each row, (n, 1).
    """
    weight = (counts * torch.softmax(f, dim=1)).clamp_min(_MIN_CURVATURE)
    matrices, log_determinant = [], -counts.log().sum()
    for class_weight in weight.T:
        root = class_weight.sqrt()
        whitened = root[:, None] * kernel * root
        whitened.diagonal().add_(1)
        factor = cholesky(whitened, "The matrix I + D^(1/2) K D^(1/2) of a class")
        matrices.append(root[:, None] * torch.cholesky_inverse(factor) * root)
        log_determinant += 2 * factor.diagonal().log().sum()
    class_matrices = torch.stack(matrices)
    factor = cholesky(class_matrices.sum(0), "The sum of the classes' precisions")
    return ClassPrecision(class_matrices, factor, log_determinant + 2 * factor.diagonal().log().sum())


@dataclass(frozen=True, eq=False)
class ClassState:
    """A state of the search.

    Attributes:
        position: The pair f - mean and a, (2, n, C).
        objective: The objective psi, in nats.
        f: The latent values, (n, C).
        value: The log density of all rows, 0-d.
    """

    position: Tensor
    objective: float
    f: Tensor
    value: Tensor


class ClassProblem(ModeProblem[ClassState]):
    """The posterior of C latent functions at rows in memory.

    Args:
        kernel: The covariance K of one function, (n, n).
        rows: The rows under their likelihood.
        mean: The prior means, (C,).
        warm_start: Coefficients a (n, C) at hyperparameters close by, or nothing.
    """

    def __init__(self, kernel: Tensor, rows: RowLikelihood, mean: Tensor, warm_start: WarmStart = ()) -> None:
        self.tolerance = TOLERANCE * (1 + len(rows.rows) / 1000)
        self._kernel, self._rows, self._mean, self._warm_start = kernel, rows, mean, warm_start

    def initial_positions(self) -> list[Tensor]:
        """Return the prior mean and the warm start, (2, n, C) each."""
        zeros = self._mean.new_zeros(2, len(self._kernel), len(self._mean))
        return [zeros, *(torch.stack([self._kernel @ a, a]) for a in self._warm_start)]

    def objective(self, position: Tensor) -> float:
        """Return psi at the pair f - mean and a, (2, n, C)."""
        return self.evaluate(position).objective

    def evaluate(self, position: Tensor) -> ClassState:
        """Return the state at the pair f - mean and a, (2, n, C)."""
        f = self._mean + position[0]
        value = self._rows.log_prob(f)
        return ClassState(position, float(value - 0.5 * (position[0] * position[1]).sum()), f, value)

    def step(self, state: ClassState, last_decrement: float) -> Step:
        """Return Newton's step, with the matrices at the state."""
        counts = self._rows.rows.counts()[:, None]
        precision = class_precision(self._kernel, state.f, counts)
        gradient = softmax.log_prob_gradient(self._rows.likelihood, self._rows.rows, state.f)
        b = softmax.curvature_product(state.f, counts, state.position[0]) + gradient
        change = b - precision.times(self._kernel @ b) - state.position[1]
        step = self._kernel @ change
        decrement = (step * (gradient - state.position[1])).sum()
        return Step(torch.stack([step, change]), float(decrement), precision)


@dataclass(frozen=True, eq=False)
class CoupledDenseLaplace(Inference):
    """Laplace's approximation to the posterior of C latent functions, by n x n matrices.

    Attributes:
        prior: The prior of each function.
        rows: The rows, with labels as targets.
        mean: The prior means, (C,).
        likelihood: The likelihood of C classes.
        start: A warm start. The default is none.
    """

    prior: Prior
    rows: Block
    mean: Tensor
    likelihood: Likelihood
    start: WarmStart = ()

    @cached_property
    def kernel(self) -> Tensor:
        """The covariance K (n, n), with gradients if they are enabled."""
        return self.prior.kernel(self.rows.inputs, self.rows.inputs)

    @cached_property
    def mode(self) -> Mode[ClassState]:
        """The mode, with the matrices there."""
        with torch.no_grad():
            rows = RowLikelihood(self.likelihood, self.rows)
            return find_mode(ClassProblem(self.kernel.detach(), rows, self.mean.detach(), self.start))

    @property
    def coefficients(self) -> Tensor:
        """The coefficients a, (n, C)."""
        return self.mode.state.position[1]

    @property
    def precision(self) -> ClassPrecision:
        """The matrix T at the mode."""
        precision: ClassPrecision = self.mode.step.curvature
        return precision

    def warm_start(self) -> WarmStart:
        """Return the coefficients (n, C)."""
        return (self.coefficients,)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        return with_gradient(self._evidence, self.kernel, self.mean)

    def posterior(self) -> CoupledDensePosterior:
        """Return the training inputs and the matrices at the mode."""
        matrices = self.precision.class_matrices, self.precision.coupling_root()
        return CoupledDensePosterior(self.prior, self.rows.inputs, self.coefficients, *matrices)

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariances V of the functions at each row, (n, C, C)."""
        with torch.no_grad():
            kernel, precision = self.kernel.detach(), self.precision
            pulled = precision.class_matrices @ kernel  # E_c K
            half = half_solve(precision.factor, pulled)
            out = torch.einsum("cki,dki->icd", half, half)
            out.diagonal(dim1=1, dim2=2).add_((kernel.diagonal() - (kernel * pulled.mT).sum(2)).mT)
            return out

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the means (n, C) and covariances (n, C, C) of f at each row given all others."""
        return softmax.softmax_cavity(self.likelihood, self.rows, self.mode.state.f, self.covariance)

    def _evidence(self, needs: Needs) -> tuple[Tensor, Gradients]:
        state = self.mode.state
        square = (state.position[0] * state.position[1]).sum()
        return state.value - 0.5 * (square + self.precision.log_determinant), self._gradients

    def _gradients(self) -> tuple[Tensor, Tensor]:
        """Return the gradients in K (n, n) and in the means (C,)."""
        kernel, precision, a = self.kernel.detach(), self.precision, self.coefficients
        counts = self.rows.counts()[:, None]
        s = softmax.determinant_gradient(self.mode.state.f, counts, self.covariance)
        u = s - precision.times(kernel @ s)
        root = precision.coupling_root()
        in_kernel = (0.5 * a + u) @ a.mT
        in_kernel -= 0.5 * (precision.class_matrices.sum(0) - torch.einsum("cki,ckj->ij", root, root))
        return (in_kernel + in_kernel.mT) / 2, (a + u).sum(0)
