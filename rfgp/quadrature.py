"""Stochastic Lanczos quadrature for traces of functions of C_1^-1 C_2, from products and solves."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from rfgp.errors import SolverError

MAX_STEPS = 200
TOLERANCE = 1e-4
"""The relative change of all traces below which the Lanczos steps end."""
_WAIT = 3


class Operator(Protocol):
    """A covariance matrix C (n, n) as an operator."""

    def times(self, v: Tensor) -> Tensor:
        """Return C v, (n, p)."""

    def solve(self, v: Tensor) -> Tensor:
        """Return C^-1 v, (n, p)."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, C), (n, count).

        Args:
            count: The number of draws.
            generator: A CPU generator.
        """


def quadrature(
    first: Operator,
    second: Operator,
    draws: Tensor,  # (n, p) of N(0, C_1)
    function: Callable[[Tensor], Tensor],
) -> Tensor:  # (p,)
    """Estimate the sum of a function over the eigenvalues of C_1^-1 C_2 for each draw.

    B = C_1^-1 C_2 is symmetric in <a, b> = a^T C_1 b, and E <w, f(B) w> = tr f(B) for w = C_1^-1 u, u ~ N(0, C_1). The
    ratio of <w, f(B) w> and <w, w> is independent of <w, w>, whose mean is n. Therefore n times the ratio is an
    estimate with a lower variance, which vanishes if f is constant.

    Args:
        first: The covariance C_1.
        second: The covariance C_2.
        draws: Draws of N(0, C_1), (n, p).
        function: f, applied to eigenvalues.

    Returns:
        The estimate for each draw, (p,).

    Raises:
        SolverError: If the traces still change after `MAX_STEPS` steps, or are not finite.

    Examples:
        >>> import torch
        >>> class Scaled:
        ...     def __init__(self, c):
        ...         self.c = c
        ...
        ...     def times(self, v):
        ...         return self.c * v
        ...
        ...     def solve(self, v):
        ...         return v / self.c
        >>> draws = torch.ones(4, 1, dtype=torch.float64)
        >>> round(float(quadrature(Scaled(1.0), Scaled(2.0), draws, torch.log)), 4)  # 4 log 2
        2.7726
    """
    v = first.solve(draws)
    norm = (v * draws).sum(0).sqrt()
    v, image = v / norm, draws / norm  # image = C_1 v
    before, image_before, off_diagonal = torch.zeros_like(v), torch.zeros_like(v), torch.zeros_like(norm)
    diagonals: list[Tensor] = []
    off_diagonals: list[Tensor] = []
    sums: list[Tensor] = []
    for _ in range(min(MAX_STEPS, len(v))):
        y = second.times(v)
        diagonals.append((v * y).sum(0))
        sums.append(len(v) * _gauss(diagonals, off_diagonals, function))
        if _is_settled(sums):
            return sums[-1]
        following = first.solve(y) - diagonals[-1] * v - off_diagonal * before
        image_following = y - diagonals[-1] * image - off_diagonal * image_before
        square = (following * image_following).sum(0)
        if not bool((square > torch.finfo(v.dtype).eps * diagonals[-1] ** 2).all()):
            return sums[-1]  # the space of a probe is exhausted
        before, image_before, off_diagonal = v, image, square.sqrt()
        v, image = following / off_diagonal, image_following / off_diagonal
        off_diagonals.append(off_diagonal)
    if len(v) <= MAX_STEPS:
        return sums[-1]
    raise SolverError(
        f"Traces at {len(v)} points must settle within {MAX_STEPS} Lanczos steps, but still change. Add noise."
    )


def _gauss(diagonals: list[Tensor], off_diagonals: list[Tensor], function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the quadrature by Lanczos matrices with these diagonals (p,) and off-diagonals (p,)."""
    matrices = torch.diag_embed(torch.stack(diagonals, dim=1))
    if off_diagonals:
        off_diagonal = torch.stack(off_diagonals, dim=1)
        matrices = matrices + torch.diag_embed(off_diagonal, 1) + torch.diag_embed(off_diagonal, -1)
    values, vectors = torch.linalg.eigh(matrices)
    out: Tensor = (vectors[:, 0].square() * function(values)).sum(1)
    return out


def _is_settled(sums: list[Tensor]) -> bool:
    if len(sums) <= _WAIT:
        return False
    recent = torch.stack(sums[-_WAIT - 1 :])
    return bool(((recent - recent[-1]).abs().amax(0) <= TOLERANCE * recent[-1].abs()).all())
