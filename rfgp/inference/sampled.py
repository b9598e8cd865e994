"""The exact posterior at some points, given any number of rows, without the matrix between these.

The systems (K + D) a = y - mean and (K + D) z = k(X, x) are solved together by conjugate gradients, K in blocks of rows
that are computed again in each step, so that memory is O(n M) and a step takes O(n^2 (d + q)). The preconditioner is
D + U U^T, the Nystrom approximation through M of the rows. The variance k(x, x) - k(x, X) z falls towards the exact one
with the steps. How far from solved the worst system is, relative to its right side, is part of the result.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.priors import KernelPrior
from rfgp.linalg import cholesky
from rfgp.rows import Block

MOST_STEPS, MOST_POINTS = 200, 1000
"""Of conjugate gradients; and rows of the preconditioner."""
PASSES = 400.0
"""Operations that distances and kernels take for an entry, most of it memory."""
ENTRIES = 2**21
"""Of a block of the matrix."""


@dataclass(frozen=True, eq=False)
class SampledLaw:
    """The exact latent law at q points, each by itself.

    Attributes:
        mean: (q, k), standardised.
        variance: (q,), standardised.
        residual: The largest relative residual of the systems.
        steps: Of conjugate gradients.
    """

    mean: Tensor
    variance: Tensor
    residual: float
    steps: int


def sampled_law(
    prior: KernelPrior,
    rows: Block,
    mean: Tensor,  # (k,)
    noise: Tensor,  # 0-d
    points: Tensor,  # (q, d)
    *,
    generator: torch.Generator,
    tolerance: float = 1e-4,
    most: int = MOST_STEPS,
) -> SampledLaw:
    """Return the exact law at some points.

    Args:
        prior: Of the exact kernel.
        rows: The data.
        mean: Standardised.
        noise: Of one observation, standardised.
        points: Standardised.
        generator: Of the choice of rows for the preconditioner.
        tolerance: Of the relative residuals.
        most: Steps.
    """
    x, k = rows.inputs.double(), rows.num_outputs
    beside = prior.kernel(x, points.double())
    right = torch.cat([rows.targets - mean, beside], dim=1)
    diagonal = rows.noise_diag(noise).expand(len(rows)).double()
    condition = _Preconditioner.of(prior, x, diagonal, generator)
    solved, residual, steps = _solved(prior, x, diagonal, right, condition, tolerance, most)
    variance = prior.diagonal(points.double()) - (beside * solved[:, k:]).sum(0)
    return SampledLaw(mean + beside.mT @ solved[:, :k], variance.clamp_min(0), residual, steps)


def step_operations(rows: int, columns: int, points: int) -> float:
    """Return what a step takes."""
    return float(rows) ** 2 * (2.0 * columns + 2.0 * (points + 1) + PASSES)


@dataclass(frozen=True, eq=False)
class _Preconditioner:
    """(D + U U^T)^-1 by the inverse of I + U^T D^-1 U."""

    diagonal: Tensor  # (n,)
    scaled: Tensor  # D^-1 U (n, M)
    factor: Tensor  # of I + U^T D^-1 U (M, M)

    @classmethod
    def of(cls, prior: KernelPrior, x: Tensor, diagonal: Tensor, generator: torch.Generator) -> "_Preconditioner":
        chosen = torch.randperm(len(x), generator=generator)[: min(MOST_POINTS, max(1, len(x) // 2))]
        some = x[chosen]
        inner = prior.kernel(some, some)
        jitter = 1e-6 * inner.diagonal().mean() * torch.eye(len(some), dtype=inner.dtype)
        root = cholesky(inner + jitter, "the kernel of the preconditioner's rows")
        u = torch.linalg.solve_triangular(root, prior.kernel(some, x), upper=False).mT
        scaled = u / diagonal[:, None]
        within = torch.eye(len(some), dtype=u.dtype) + u.mT @ scaled
        return cls(diagonal, scaled, cholesky(within, "the preconditioner"))

    def __call__(self, v: Tensor) -> Tensor:
        inner = torch.cholesky_solve(self.scaled.mT @ v, self.factor)
        return v / self.diagonal[:, None] - self.scaled @ inner


def _product(prior: KernelPrior, x: Tensor, diagonal: Tensor, v: Tensor) -> Tensor:
    """Return (K + D) v (n, p), K in blocks of rows."""
    size = max(1, ENTRIES // len(x))
    parts = [prior.kernel(x[first : first + size], x) @ v for first in range(0, len(x), size)]
    return torch.cat(parts) + diagonal[:, None] * v


def _solved(
    prior: KernelPrior,
    x: Tensor,
    diagonal: Tensor,
    right: Tensor,
    condition: _Preconditioner,
    tolerance: float,
    most: int,
) -> tuple[Tensor, float, int]:
    """Return solutions (n, p), the largest relative residual, and the steps that were taken."""
    solution, residual, size = torch.zeros_like(right), right, right.norm(dim=0).clamp_min(1e-300)
    preconditioned = condition(residual)
    direction, product, steps = preconditioned, (residual * preconditioned).sum(0), 0
    while float((residual.norm(dim=0) / size).max()) > tolerance and steps < most:
        image = _product(prior, x, diagonal, direction)
        alpha = product / (direction * image).sum(0).clamp_min(1e-300)
        solution, residual = solution + alpha * direction, residual - alpha * image
        preconditioned = condition(residual)
        following = (residual * preconditioned).sum(0)
        direction, product = preconditioned + following / product.clamp_min(1e-300) * direction, following
        steps += 1
    return solution, float((residual.norm(dim=0) / size).max()), steps
