"""Blocks of orthogonal directions, with independent or coupled norms."""

import math
from typing import Any

import torch
from scipy import special
from torch import Tensor

from rfgp.couplings.coupling import Coupling, check_gaussian, uniform
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import real_array
from rfgp.spectra import Spectrum

# --- Joint distributions of the norms of jointly drawn frequencies, as uniforms that radial quantiles map to norms ----


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
    matrix = torch.tensor(real_array("A correlation matrix", correlation))
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


# --- Blocks of orthogonal directions, with independent or coupled norms -----------------------------------------------


class Orthogonal(Coupling):
    """Orthogonal random features (Yu et al., 2016, Eq. 2).

    Frequencies come in blocks of d. The directions of a block are orthogonal, and the norms are independent.

    Examples:
        >>> from rfgp import couplings
        >>> rows = couplings.Orthogonal().sample(3, 3, seed=0).dense()
        >>> bool((rows @ rows.mT).fill_diagonal_(0).abs().max() < 1e-12)
        True
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(uniform(m, generator), d)[:, None]


class Pairwise(Coupling):
    """Orthogonal directions with pairwise norm coupling (PNC).

    Source: Reid et al. (2024, Def. 3.3).

    Within a block the norms r and r' of directions 2k and 2k + 1 are negatively monotone: F(r) + F(r') = 1, with F the
    radial distribution function. The last direction of a block of odd size has an independent norm.

    For Fourier features the coupling is optimal for small distances only (Theorem 3.2 there). For the Gaussian kernel
    they reach up to 1.75 to 2.2 lengthscales. From 2.3 to 2.9 lengthscales on, independent norms can be better
    (`benchmarks/papers/own/norms.py`).

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Pairwise().sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(pairwise(m, d, generator), d)[:, None]


class ConstantNorm(Coupling):
    """Orthogonal directions with norms sqrt(d), for the Gaussian spectrum.

    This is ORF' of Yu et al. (2016, Section 4, Eq. 4).

    For one coordinate u of a uniform direction, the mean of the estimate is C(sqrt(d) z) = E cos(sqrt(d) z u). The
    kernel is exp(-z^2 / 2). The bias is about -z^4 / (4 d) exp(-z^2 / 2) (Theorem 2 there). For d > 1 it is below
    0.9 / d.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.ConstantNorm().sample(4, 4, seed=0).dense().norm(dim=1).round(decimals=6).tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    @property
    def is_biased(self) -> bool:
        """Always True."""
        return True

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        check_gaussian(self, spectrum)
        return math.sqrt(d) * haar_blocks(m, d, generator)


class Monotone(Coupling):
    """Orthogonal directions with positively monotone (PM) norms.

    All directions of a block have the same norm. This is the largest positive dependence of norms, as pairwise coupling
    has the largest negative one. It makes kernel estimates worse and softmax attention better (Reid et al. 2024,
    App. B.3).

    Examples:
        >>> from rfgp import couplings
        >>> norms = couplings.Monotone().sample(3, 3, seed=0).dense().norm(dim=1)
        >>> bool(norms.std() < 1e-12)
        True
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(monotone(m, d, generator), d)[:, None]


class Stratified(Coupling):
    """Orthogonal directions with stratified norms.

    The norms have one value in each of m equally probable intervals of the radial distribution. The strata are assigned
    to the directions at random, so that small norms are spread over the blocks.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Stratified().sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        u = stratified(m, generator)[torch.randperm(m, generator=generator)]
        return directions * spectrum.radial_quantile(u, d)[:, None]


class Copula(Coupling):
    """Orthogonal directions whose norms have a Gaussian copula.

    Source: Reid et al. (2024, Def. A.7).

    Args:
        correlation: The correlation matrix (k, k) of k consecutive norms. k = d couples the norms of a block, as in the
            paper, and k = m couples all norms. If None, norms are independent, which is `Orthogonal`.

    Raises:
        InvalidArgumentError: In `sample`, if it is not a correlation matrix.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Copula([[1.0, -0.5], [-0.5, 1.0]]).sample(4, 2, seed=0)
        Frequencies(m=4, d=2)
    """

    def __init__(self, correlation: Any = None) -> None:
        self.correlation = correlation

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        factor = correlation_factor([[1.0]] if self.correlation is None else self.correlation)
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(copula(m, factor, generator), d)[:, None]

    def __repr__(self) -> str:
        return f"Copula({'' if self.correlation is None else 'correlation=...'})"


def haar_blocks(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Return m unit directions (m, d), in blocks of d orthogonal rows.

    Each block has rows of a Haar-distributed orthogonal matrix. The Q of a QR factorization of a Gaussian matrix is
    Haar only if R has a positive diagonal (Mezzadri 2007). Hence the signs are corrected. The last block may have fewer
    rows.

    Args:
        m: The number of directions.
        d: The number of dimensions.
        generator: A CPU generator.

    Examples:
        >>> haar_blocks(5, 2, torch.Generator().manual_seed(0)).norm(dim=1).round(decimals=6).tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    whole = haar_rows(m // d, d, d, generator)
    return torch.cat([whole, haar_rows(1, m % d, d, generator)]) if m % d else whole


def haar_rows(blocks: int, k: int, d: int, generator: torch.Generator) -> Tensor:
    """Return the first k rows of Haar-distributed d x d orthogonal matrices.

    Args:
        blocks: The number of matrices.
        k: The number of rows of each matrix, at most d.
        d: The number of columns.
        generator: A CPU generator.

    Returns:
        The rows of all matrices, (blocks * k, d), float64.

    Examples:
        >>> haar_rows(2, 1, 3, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3])
    """
    gaussian = torch.randn(blocks, d, k, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    signs = torch.where(torch.diagonal(r, dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q)
    rows: Tensor = (q * signs[:, None, :]).mT.reshape(-1, d)
    return rows
