"""Joint distributions of the norms of jointly drawn frequencies, as uniforms that radial quantiles map to norms."""

from typing import Any

import torch
from scipy import special
from torch import Tensor

from rfgp.couplings.coupling import uniform
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import read_numbers


def pairwise(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Return uniforms (m,) whose norms are negatively monotone in pairs.

    Source: Reid et al. (2024, Eq. 7). Within a block of d, positions 2k and 2k + 1 have u + u' = 1. The last one of an
    odd block is independent.

    Args:
        m: The number of uniforms.
        d: The size of a block.
        generator: A CPU generator.

    Examples:
        >>> u = pairwise(4, 2, torch.Generator().manual_seed(0))
        >>> (u[0::2] + u[1::2]).tolist()
        [1.0, 1.0]
    """
    u = uniform(m, generator)
    second = ((torch.arange(m) % d) % 2 == 1).nonzero().squeeze(1)
    u[second] = 1 - u[second - 1]
    return u


def monotone(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Return uniforms (m,) that are equal within each block of d.

    Norms are then positively monotone.

    Args:
        m: The number of uniforms.
        d: The size of a block.
        generator: A CPU generator.

    Examples:
        >>> u = monotone(4, 2, torch.Generator().manual_seed(0))
        >>> bool((u[0::2] == u[1::2]).all())
        True
    """
    u = uniform(-(-m // d), generator)
    return u.repeat_interleave(d)[:m]


def stratified(m: int, generator: torch.Generator, mirrored: bool = False) -> Tensor:
    """Return uniforms (m,), one in each of m equal strata, in ascending order.

    One of them alone is not uniform. In a random order each is.

    Args:
        m: The number of uniforms.
        generator: A CPU generator.
        mirrored: Whether values 2k and 2k + 1 have mirrored positions in their strata, so that a linear function adds
            up to a constant over both. The default is False.

    Returns:
        The uniforms, (m,), float64.

    Examples:
        >>> (stratified(4, torch.Generator().manual_seed(0)) * 4).floor().tolist()
        [0.0, 1.0, 2.0, 3.0]
    """
    within = uniform(m, generator)
    if mirrored:
        within[1::2] = 1 - within[: m - m % 2 : 2]
    return ((torch.arange(m) + within) / m).clamp(2.0**-53, 1 - 2.0**-53)


def copula(m: int, factor: Tensor, generator: torch.Generator) -> Tensor:
    """Return uniforms (m,) with a Gaussian copula in each block of k.

    Args:
        m: The number of uniforms.
        factor: A Cholesky factor (k, k) of the correlation matrix.
        generator: A CPU generator.

    Examples:
        >>> u = copula(4, torch.tensor([[1.0, 0.0], [1.0, 0.0]]).double(), torch.Generator().manual_seed(0))
        >>> bool((u[0::2] == u[1::2]).all())  # the correlation is 1
        True
    """
    k = len(factor)
    normal = torch.randn(-(-m // k), k, generator=generator, dtype=torch.float64) @ factor.mT
    u = torch.as_tensor(special.ndtr(normal.reshape(-1).numpy()))
    return u[:m].clamp(2.0**-53, 1 - 2.0**-53)


def correlation_factor(correlation: Any) -> Tensor:
    """Return the Cholesky factor (k, k) of a correlation matrix (k, k).

    Args:
        correlation: The correlation matrix, (k, k).

    Raises:
        InvalidArgumentError: If it is not a symmetric positive definite matrix with a unit diagonal.

    Examples:
        >>> correlation_factor([[1.0, 0.6], [0.6, 1.0]]).tolist()
        [[1.0, 0.0], [0.6, 0.8]]
    """
    matrix = torch.tensor(read_numbers("A correlation matrix", correlation))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) == 0:
        raise InvalidArgumentError(f"A correlation matrix must be square, got shape {tuple(matrix.shape)}.")
    ones = torch.allclose(matrix.diagonal(), torch.ones(len(matrix), dtype=torch.float64), atol=1e-9)
    if not ones or not torch.allclose(matrix, matrix.mT, atol=1e-9):
        raise InvalidArgumentError("A correlation matrix must be symmetric with ones on its diagonal, got another.")
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if int(info) != 0:
        raise InvalidArgumentError("A correlation matrix must be positive definite, got another.")
    return factor
