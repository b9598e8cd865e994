"""Traces of functions of C_1^-1 C_2 by Lanczos steps in the inner product of C_1, from products and solves alone."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from rfgp.errors import SolverError

MOST_STEPS = 200
TOLERANCE = 1e-4
"""Of the traces: steps end where the last ones changed each by less."""
_WAIT = 3


class Operator(Protocol):
    """The role: a covariance C (n, n)."""

    def times(self, v: Tensor) -> Tensor:
        """Return C v, (n, p)."""

    def solve(self, v: Tensor) -> Tensor:
        """Return C^-1 v, (n, p)."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, C), (n, count)."""


def quadrature(
    first: Operator,
    second: Operator,
    draws: Tensor,  # (n, p) of N(0, C_1)
    function: Callable[[Tensor], Tensor],
) -> Tensor:  # (p,)
    """Return for each draw an estimate of the sum of a function over the eigenvalues of C_1^-1 C_2.

    B = C_1^-1 C_2 is symmetric in <a, b> = a^T C_1 b, and E <w, f(B) w> = tr f(B) for w = C_1^-1 u, u ~ N(0, C_1). The
    ratio of <w, f(B) w> and <w, w> is independent of <w, w>, whose mean is n where f is constant on what w is made of;
    n times the ratio varies less, and as little as f does.

    Raises:
        SolverError: the traces still change after `MOST_STEPS` steps, or are not finite.
    """
    v = first.solve(draws)
    norm = (v * draws).sum(0).sqrt()
    v, image = v / norm, draws / norm  # image = C_1 v
    before, image_before, beside = torch.zeros_like(v), torch.zeros_like(v), torch.zeros_like(norm)
    diagonals: list[Tensor] = []
    besides: list[Tensor] = []
    sums: list[Tensor] = []
    for _ in range(min(MOST_STEPS, len(v))):
        y = second.times(v)
        diagonals.append((v * y).sum(0))
        sums.append(len(v) * _gauss(diagonals, besides, function))
        if _is_settled(sums):
            return sums[-1]
        following = first.solve(y) - diagonals[-1] * v - beside * before
        image_following = y - diagonals[-1] * image - beside * image_before
        square = (following * image_following).sum(0)
        if not bool((square > torch.finfo(v.dtype).eps * diagonals[-1] ** 2).all()):
            return sums[-1]  # the space of a probe is exhausted
        before, image_before, beside = v, image, square.sqrt()
        v, image = following / beside, image_following / beside
        besides.append(beside)
    if len(v) <= MOST_STEPS:
        return sums[-1]
    raise SolverError(f"A trace of {len(v)} points still changes after {MOST_STEPS} Lanczos steps.")


def _gauss(diagonals: list[Tensor], besides: list[Tensor], function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the quadrature of a function by Lanczos matrices of these diagonals (p,) and entries beside them, (p,)."""
    matrices = torch.diag_embed(torch.stack(diagonals, dim=1))
    if besides:
        beside = torch.stack(besides, dim=1)
        matrices = matrices + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    values, vectors = torch.linalg.eigh(matrices)
    out: Tensor = (vectors[:, 0].square() * function(values)).sum(1)
    return out


def _is_settled(sums: list[Tensor]) -> bool:
    if len(sums) <= _WAIT:
        return False
    recent = torch.stack(sums[-_WAIT - 1 :])
    return bool(((recent - recent[-1]).abs().amax(0) <= TOLERANCE * recent[-1].abs()).all())
