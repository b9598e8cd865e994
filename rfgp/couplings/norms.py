"""Joint laws of the norms of one ensemble, as uniforms: each norm is the radial quantile of its own."""

from typing import Any

import torch
from scipy import special
from torch import Tensor

from rfgp.couplings.coupling import uniform
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import read_numbers


def pairwise(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Return uniforms (m,) whose norms are negatively monotone in pairs (Reid et al. 2024, Eq. 7).

    Within a block of d the places 2k and 2k + 1 have u + u' = 1; the last of an odd block is on its own.
    """
    u = uniform(m, generator)
    second = ((torch.arange(m) % d) % 2 == 1).nonzero().squeeze(1)
    u[second] = 1 - u[second - 1]
    return u


def monotone(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Return uniforms (m,) that are equal within each block of d: positively monotone norms."""
    u = uniform(-(-m // d), generator)
    return u.repeat_interleave(d)[:m]


def stratified(m: int, generator: torch.Generator, mirrored: bool = False) -> Tensor:
    """Return uniforms (m,), one in each of m equal strata, in order.

    One of them alone is not uniform; in a random order each is.

    Args:
        m: How many.
        generator: A CPU generator.
        mirrored: Whether neighbours 2k and 2k + 1 have mirrored places in their strata, so that what is linear
            over both adds up to a constant.
    """
    places = uniform(m, generator)
    if mirrored:
        places[1::2] = 1 - places[: m - m % 2 : 2]
    return ((torch.arange(m) + places) / m).clamp(2.0**-53, 1 - 2.0**-53)


def copula(m: int, factor: Tensor, generator: torch.Generator) -> Tensor:
    """Return uniforms (m,) with a Gaussian copula in each block of k.

    Args:
        m: How many.
        factor: A Cholesky factor (k, k) of the correlation matrix.
        generator: A CPU generator.
    """
    k = len(factor)
    normal = torch.randn(-(-m // k), k, generator=generator, dtype=torch.float64) @ factor.mT
    u = torch.as_tensor(special.ndtr(normal.reshape(-1).numpy()))
    return u[:m].clamp(2.0**-53, 1 - 2.0**-53)


def correlation_factor(correlation: Any) -> Tensor:
    """Return the Cholesky factor (k, k) of a correlation matrix (k, k).

    Raises:
        InvalidArgumentError: it is no matrix of numbers, not symmetric with a unit diagonal, not positive definite, or
            not square.
    """
    matrix = torch.tensor(read_numbers("A correlation matrix", correlation))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) == 0:
        raise InvalidArgumentError(f"A correlation matrix is square, got shape {tuple(matrix.shape)}.")
    ones = torch.allclose(matrix.diagonal(), torch.ones(len(matrix), dtype=torch.float64), atol=1e-9)
    if not ones or not torch.allclose(matrix, matrix.mT, atol=1e-9):
        raise InvalidArgumentError("A correlation matrix is symmetric with ones on its diagonal.")
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info) != 0:
        raise InvalidArgumentError("The correlation matrix is not positive definite.")
    return factor
