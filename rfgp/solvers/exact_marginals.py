"""The exact marginal posteriors at a few points, given any number of rows.

The systems (K + D) a = y - mean and (K + D) z = k(X, x) are solved together by conjugate gradients. Each step computes
K again in blocks of rows. Memory is O(n M), and a step takes O(n^2 (d + q)). The preconditioner is D + U U^T, the
Nystrom approximation with M of the rows. The variance k(x, x) - k(x, X) z decreases to the exact one. The result
contains the largest relative residual of the systems.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.linalg import cholesky, half_solve
from rfgp.rows import Block
from rfgp.solvers.conjugate_gradients import Map, conjugate_gradients

MAX_ITERATIONS = 200
"""The maximum number of iterations of conjugate gradients."""
MAX_POINTS = 1000
"""The maximum number of rows of the preconditioner."""
OPERATIONS_PER_ENTRY = 400.0
"""The number of operations for one entry of distances and kernels. Most of the time is memory access."""
ENTRIES = 2**21
"""The number of entries of a block of the matrix."""


@dataclass(frozen=True, eq=False)
class ExactMarginals:
    """The exact marginal posteriors at q points.

    Attributes:
        mean: The means (q, k), standardized.
        variance: The variances (q,), standardized.
        residual: The largest relative residual of the systems.
        steps: The number of steps of conjugate gradients.
    """

    mean: Tensor
    variance: Tensor
    residual: float
    steps: int


def exact_marginals(
    prior: Prior,
    rows: Block,
    mean: Tensor,  # (k,)
    noise: Tensor,  # 0-d
    points: Tensor,  # (q, d)
    *,
    generator: torch.Generator,
    tolerance: float = 1e-4,
    max_iterations: int = MAX_ITERATIONS,
) -> ExactMarginals:
    """Return the exact marginal posteriors at q points.

    Args:
        prior: The exact prior.
        rows: The data.
        mean: The prior mean of each output, standardized.
        noise: The variance of one observation, standardized.
        points: The inputs of the points, standardized.
        generator: Draws the rows of the preconditioner.
        tolerance: The largest relative residual of a solved system. The default is 1e-4.
        max_iterations: The maximum number of iterations. The default is 200.
    """
    x, k = rows.inputs.double(), rows.num_outputs
    cross = prior.kernel(x, points.double())
    right = torch.cat([rows.targets - mean, cross], dim=1)
    diagonal = rows.noise_diag(noise).expand(len(rows)).double()
    nystrom = _nystrom(prior, x, diagonal, generator)
    solved = conjugate_gradients(lambda v: _product(prior, x, diagonal, v), right, tolerance, max_iterations, nystrom)
    variance = prior.diagonal(points.double()) - (cross * solved.solution[:, k:]).sum(0)
    fitted = mean + cross.mT @ solved.solution[:, :k]
    return ExactMarginals(fitted, variance.clamp_min(0), float(solved.residual.max()), solved.num_steps)


def step_operations(rows: int, columns: int, points: int) -> float:
    """Return the number of operations of a step of conjugate gradients.

    Args:
        rows: The number of rows.
        columns: The number of input columns.
        points: The number of points.
    """
    return float(rows) ** 2 * (2.0 * columns + 2.0 * (points + 1) + OPERATIONS_PER_ENTRY)


def _nystrom(prior: Prior, x: Tensor, diagonal: Tensor, generator: torch.Generator) -> Map:
    """Return the map of v (n, p) to (D + U U^T)^-1 v, by the inverse of I + U^T D^-1 U."""
    chosen = torch.randperm(len(x), generator=generator)[: min(MAX_POINTS, max(1, len(x) // 2))]
    subset = x[chosen]
    inner = prior.kernel(subset, subset)
    jitter = 1e-6 * inner.diagonal().mean() * torch.eye(len(subset), dtype=inner.dtype)
    root = cholesky(inner + jitter, "the kernel of the preconditioner's rows")
    u = half_solve(root, prior.kernel(subset, x)).mT
    scaled = u / diagonal[:, None]
    within = torch.eye(len(subset), dtype=u.dtype) + u.mT @ scaled
    factor = cholesky(within, "the preconditioner")
    return lambda v: v / diagonal[:, None] - scaled @ torch.cholesky_solve(scaled.mT @ v, factor)


def _product(prior: Prior, x: Tensor, diagonal: Tensor, v: Tensor) -> Tensor:
    """Return (K + D) v (n, p), with K in blocks of rows."""
    size = max(1, ENTRIES // len(x))
    parts = [prior.kernel(x[first : first + size], x) @ v for first in range(0, len(x), size)]
    return torch.cat(parts) + diagonal[:, None] * v
