"""Conjugate gradients for several right-hand sides, with preconditioning.

Source: Saad (2003), Iterative methods for sparse linear systems, Algorithm 9.1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Map = Callable[[Tensor], Tensor]


class CGSolution(NamedTuple):
    """Solutions by conjugate gradients, and the coefficients of their steps.

    Attributes:
        solution: The solution x, (n, p), or (n + c, p) if the preconditioner returns c further rows.
        residual: The recursive estimate of |right - A x| / |right| of each column, (p,).
        alphas: The lengths of the steps, (k, p), 0 after the last step of a column.
        betas: The coefficients of the last direction in the next one, (k, p), 0 after the last step of a column.
        is_indefinite: Whether a column stopped at a direction of curvature <= 0, (p,).
    """

    solution: Tensor
    residual: Tensor
    alphas: Floats
    betas: Floats
    is_indefinite: Tensor

    @property
    def num_steps(self) -> int:
        """The largest number of steps of a column."""
        return len(self.alphas)

    @classmethod
    def joined(cls, parts: Sequence["CGSolution"]) -> "CGSolution":
        """Return the solutions of blocks of columns as one solution.

        Args:
            parts: The solutions of the blocks, in order.
        """
        steps = max(part.num_steps for part in parts)
        alphas, betas = (
            np.concatenate([np.pad(values, ((0, steps - len(values)), (0, 0))) for values in pair], axis=1)
            for pair in zip(*((part.alphas, part.betas) for part in parts), strict=True)
        )
        solution = torch.cat([part.solution for part in parts], dim=1)
        residual = torch.cat([part.residual for part in parts])
        return cls(solution, residual, alphas, betas, torch.cat([part.is_indefinite for part in parts]))


def conjugate_gradients(
    product: Map,
    right: Tensor,  # (n, p)
    tolerance: float | Tensor,  # () or (p,)
    max_iterations: int,
    precondition: Map | None = None,
    *,
    stop_on_negative_curvature: bool = False,
) -> CGSolution:
    """Solve A x = right for each column by conjugate gradients, starting at 0.

    Converged columns are frozen.

    `linear_cg` of linear_operator differs: it takes a fixed number of steps if Lanczos matrices are requested, and its
    tolerance is for the mean over columns.

    Args:
        product: Maps v (n, p) to A v (n, p), for a symmetric A (n, n).
        right: The right-hand sides.
        tolerance: A column has converged if |right - A x| <= tolerance |right|.
        max_iterations: The maximum number of steps.
        precondition: Maps r (n, p) to M^-1 r (n, p), for a symmetric and positive definite M near A. It may return
            further rows (n + c, p) that are linear in r, such as K^-1 M^-1 r. Directions and solution then have these
            rows too, and `product` receives them. If None, M = I.
        stop_on_negative_curvature: Whether a column stops at a direction d with d^T A d <= 0. Otherwise A must be
            positive definite.

    Returns:
        The solutions, and the coefficients of the Lanczos matrices.

    Examples:
        >>> import torch
        >>> from rfgp.solvers.conjugate_gradients import conjugate_gradients
        >>> found = conjugate_gradients(lambda v: 2 * v, torch.tensor([[2.0], [4.0]]), 1e-6, max_iterations=10)
        >>> found.solution.tolist(), found.num_steps
        ([[1.0], [2.0]], 1)
    """
    n, residual = len(right), right.clone()
    z = residual if precondition is None else precondition(residual)
    x, direction = torch.zeros_like(z), z.clone()
    first = square = residual.square().sum(0)
    rho = square if precondition is None else (residual * z[:n]).sum(0)
    limit, steps = square * tolerance**2, 0
    is_indefinite = torch.zeros_like(square, dtype=torch.bool)
    history = right.new_empty(2, max_iterations, right.shape[1])  # one block, so that glibc can reuse large blocks
    while steps < max_iterations and bool((is_active := (square > limit) & (rho > 0) & ~is_indefinite).any()):
        image = product(direction)
        curvature = (direction[:n] * image).sum(0)
        if stop_on_negative_curvature:
            is_indefinite |= is_active & (curvature <= 0)
            is_active &= ~is_indefinite
        alpha = torch.where(is_active, rho / curvature, 0.0)
        x.addcmul_(direction, alpha)
        residual.addcmul_(image, alpha, value=-1)
        square = torch.where(is_active, residual.square().sum(0), square)
        z = residual if precondition is None else precondition(residual)
        new_rho = square if precondition is None else (residual * z[:n]).sum(0)
        beta = torch.where(is_active, new_rho / rho, 0.0)
        direction.mul_(beta).add_(z)
        rho = torch.where(is_active, new_rho, rho)
        history[0, steps], history[1, steps] = alpha, beta
        steps += 1
    alphas, betas = history[:, :steps].cpu().numpy().copy()
    return CGSolution(x, (square / first.where(first > 0, 1.0)).sqrt(), alphas, betas, is_indefinite)
