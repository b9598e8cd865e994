"""Laplace's approximation for several classes by a softmax, in n x n algebra.

f (n, C) of C independent functions with one covariance K and means m_c. With the probabilities p at f, counts w_i and
D_c = diag(w p_c), the curvature is W = D - D R (R^T D R)^-1 R^T D, R^T v = sum_c v_c, and (Rasmussen and Williams 2006,
Eqs. 3.40-3.47, Algorithm 3.3)

    E_c = (K + D_c^-1)^-1,    S = sum_c E_c,    T = E - E R S^-1 R^T E,    covariance of f: K - K T K,
    log |I + K W| = sum_c log |I + K D_c| + log |S| - sum_i log w_i.

A Newton step has a = b - T K b, b = W (f - m) + g, and f - m = K a. With V_i the covariance (C, C) of f_i, the gradient
of the log evidence is as in `rfgp.inference.laplace.evidence`:

    s_ic = -w_i p_ic / 2 ((V_cc - p^T diag V) - 2 ((V p)_c - p^T V p)),    u = s - T K s,
    d/dK = sum_c (a_c a_c^T / 2 + u_c a_c^T - T_cc / 2),    d/dm_c = sum_i a_ic + u_ic.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.errors import SolverError
from rfgp.inference.evidence import Evidence, Guess
from rfgp.inference.laplace.laws import ClassPosterior
from rfgp.inference.laplace.search import FLOOR, MOST_HALVINGS, MOST_STEPS, NOT_FINITE, ROUNDED, TOLERANCE, lost
from rfgp.likelihoods import Categorical
from rfgp.linalg import cholesky
from rfgp.rows import Block

_LEAST = 1e-10
"""Of w p_c: a class that a row all but excludes is taken to say this much."""


class Algebra(NamedTuple):
    """The matrices at some probabilities."""

    blocks: Tensor  # E (C, n, n)
    factor: Tensor  # (n, n) the lower Cholesky factor of S
    determinant: Tensor  # 0-d, log |I + K W|

    def times(self, v: Tensor) -> Tensor:
        """Return T v, (n, C)."""
        each = torch.einsum("cij,jc->ic", self.blocks, v)
        shared = torch.cholesky_solve(each.sum(1, keepdim=True), self.factor)[:, 0]
        return each - torch.einsum("cij,j->ic", self.blocks, shared)


class ClassMode(NamedTuple):
    """The mode."""

    f: Tensor  # (n, C)
    coefficients: Tensor  # a (n, C)
    value: Tensor  # 0-d, sum_i log p(y_i | f_i)
    algebra: Algebra


@dataclass(frozen=True, eq=False)
class ClassEvidence(Evidence):
    """What labels say under a prior whose covariance of all rows fits in memory.

    Attributes:
        prior: Of each function.
        rows: The data.
        mean: (C,).
        likelihood: With C known.
        near: Where the mode may be.
    """

    prior: Any
    rows: Block
    mean: Tensor
    likelihood: Categorical
    near: Guess = ()

    @cached_property
    def kernel(self) -> Tensor:
        """The covariance K (n, n), with gradients where they are wanted."""
        kernel: Tensor = self.prior.kernel(self.rows.inputs, self.rows.inputs).double()
        return kernel

    @cached_property
    def mode(self) -> ClassMode:
        """The mode."""
        with torch.no_grad():
            known = (self.kernel.detach(), self.rows, self.mean.detach(), self.likelihood)
            return find_mode(*known, *self.near)

    def guess(self) -> Guess:
        """Return the coefficients (n, C)."""
        return (self.mode.coefficients,)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        out: Tensor = _LogEvidence.apply(self, self.kernel, self.mean)
        return out

    def posterior(self) -> ClassPosterior:
        """Return the training inputs and the matrices at the mode."""
        algebra = self.mode.algebra
        shared = torch.linalg.solve_triangular(algebra.factor, algebra.blocks, upper=False)
        return ClassPosterior(self.prior, self.rows.inputs, self.mode.coefficients, algebra.blocks, shared)

    @cached_property
    def variance(self) -> Tensor:
        """The posterior covariances V of the functions at each row, (n, C, C)."""
        with torch.no_grad():
            kernel, algebra = self.kernel.detach(), self.mode.algebra
            pulled = algebra.blocks @ kernel  # E_c K
            shared = torch.linalg.solve_triangular(algebra.factor, pulled, upper=False)
            out = torch.einsum("cki,dki->icd", shared, shared)
            out.diagonal(dim1=1, dim2=2).add_((kernel.diagonal() - (kernel * pulled.mT).sum(2)).mT)
            return out

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return means (n, C) and covariances (n, C, C) of the functions at each row given all others, approximately.

        By Laplace's cavity, as `LaplaceEvidence.leave_one_out`.
        """
        return cavity(self.mode.f, self.variance, self.likelihood, self.rows)


def cavity(f: Tensor, variance: Tensor, likelihood: Categorical, rows: Block) -> tuple[Tensor, Tensor]:
    """Return means (n, C) and covariances (n, C, C) without each row's own factor, of those with it."""
    counts = rows.counts()[:, None]
    first, curvature = counts * likelihood.slopes(rows.targets[:, 0], f).first, weights(f, counts)
    one = torch.eye(f.shape[1], dtype=f.dtype)
    left = torch.linalg.solve(one - variance @ curvature, variance)
    left = (left + left.mT) / 2
    return f - (left @ first[:, :, None])[:, :, 0], left


def weights(f: Tensor, counts: Tensor) -> Tensor:
    """Return the curvature W (n, C, C) at f (n, C), for counts (n, 1)."""
    p = torch.softmax(f, dim=1)
    return counts[:, :, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None])


def weighted(f: Tensor, counts: Tensor, v: Tensor) -> Tensor:
    """Return W v (n, C)."""
    p = torch.softmax(f, dim=1)
    return counts * p * (v - (p * v).sum(1, keepdim=True))


def pull(f: Tensor, counts: Tensor, variance: Tensor) -> Tensor:
    """Return s (n, C) at f (n, C), for counts (n, 1) and covariances (n, C, C)."""
    p = torch.softmax(f, dim=1)
    own = variance.diagonal(dim1=1, dim2=2)
    shared = (variance @ p[:, :, None])[:, :, 0]
    first = own - (p * own).sum(1, keepdim=True)
    return -0.5 * counts * p * (first - 2 * (shared - (p * shared).sum(1, keepdim=True)))


def algebra_at(kernel: Tensor, f: Tensor, counts: Tensor) -> Algebra:
    """Return the matrices at f (n, C), for K (n, n) and counts (n, 1)."""
    weight = (counts * torch.softmax(f, dim=1)).clamp_min(_LEAST)
    blocks, determinant = [], -counts.log().sum()
    for each in weight.T:
        root = each.sqrt()
        inside = root[:, None] * kernel * root
        inside.diagonal().add_(1)
        factor = cholesky(inside, "The matrix I + D^(1/2) K D^(1/2) of a class")
        blocks.append(root[:, None] * torch.cholesky_inverse(factor) * root)
        determinant += 2 * factor.diagonal().log().sum()
    stacked = torch.stack(blocks)
    factor = cholesky(stacked.sum(0), "The sum of the classes' precisions")
    return Algebra(stacked, factor, determinant + 2 * factor.diagonal().log().sum())


def find_mode(
    kernel: Tensor, rows: Block, mean: Tensor, likelihood: Categorical, near: Tensor | None = None
) -> ClassMode:
    """Return the mode, by Newton's method, damped: for a concave log density from anywhere.

    Args:
        kernel: K (n, n).
        rows: The data.
        mean: (C,).
        likelihood: With C known.
        near: Coefficients a (n, C) to begin with; None: zeros.

    Raises:
        SolverError: steps lead nowhere.
    """
    y, counts = rows.targets[:, 0], rows.counts()[:, None]

    def value_at(f: Tensor) -> Tensor:
        return (likelihood.slopes(y, f).value * counts[:, 0]).sum()

    f = mean.expand(len(y), len(mean)).clone()
    a, decrement, tolerance = torch.zeros_like(f), torch.inf, TOLERANCE * (1 + len(y) / 1000)
    likely = value_at(f)
    if near is not None and value_at(mean + kernel @ near) - 0.5 * ((kernel @ near) * near).sum() > likely:
        f, a = mean + kernel @ near, near
        likely = value_at(f)
    if not bool(torch.isfinite(likely)):
        raise SolverError(NOT_FINITE)
    for _ in range(MOST_STEPS):
        value = float(likely - 0.5 * ((f - mean) * a).sum())
        floor = max(FLOOR, ROUNDED * abs(value))
        algebra = algebra_at(kernel, f, counts)
        first = counts * likelihood.slopes(y, f).first
        b = weighted(f, counts, f - mean) + first
        change = b - algebra.times(kernel @ b) - a
        step = kernel @ change
        last, decrement = decrement, float((step * (first - a)).sum())
        if decrement <= tolerance or last <= decrement < floor:
            return ClassMode(f, a, likely, algebra)
        for halvings in range(MOST_HALVINGS):
            length = 0.5**halvings
            tried, reached = f + length * step, a + length * change
            likely = value_at(tried)
            slack = floor if decrement < floor else 0.0
            if float(likely - 0.5 * ((tried - mean) * reached).sum()) >= value - slack:
                f, a = tried, reached
                break
        else:
            raise SolverError(lost(decrement))
    raise SolverError(lost(decrement))


class _LogEvidence(torch.autograd.Function):
    """The log evidence as a function of K (n, n) and the means (C,)."""

    @staticmethod
    def forward(ctx: Any, evidence: ClassEvidence, kernel: Tensor, mean: Tensor) -> Tensor:
        ctx.evidence = evidence
        mode = evidence.mode
        return mode.value - 0.5 * (((mode.f - mean) * mode.coefficients).sum() + mode.algebra.determinant)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        evidence: ClassEvidence = ctx.evidence
        mode, counts, kernel = evidence.mode, evidence.rows.counts()[:, None], evidence.kernel.detach()
        s = pull(mode.f, counts, evidence.variance)
        a, u = mode.coefficients, s - mode.algebra.times(kernel @ s)
        in_kernel = (0.5 * a + u) @ a.mT
        solved = torch.linalg.solve_triangular(mode.algebra.factor, mode.algebra.blocks, upper=False)
        in_kernel -= 0.5 * (mode.algebra.blocks.sum(0) - torch.einsum("cki,ckj->ij", solved, solved))
        return None, grads[0] * (in_kernel + in_kernel.mT) / 2, grads[0] * (a + u).sum(0)
