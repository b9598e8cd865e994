"""Orthogonal directions with coupled norms, and simplex directions."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from rfgp.couplings.coupling import Coupling, check_gaussian, uniform
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import real_array
from rfgp.messages import check_count
from rfgp.spectra import Spectrum

# --- Uniforms that radial quantiles map to norms ---------------------------------------------------------------------


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
        return directions * spectrum.radial_quantile(self._uniforms(m, d, generator), d)[:, None]

    def _uniforms(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        """Return uniforms (m,), whose radial quantiles are the norms of the directions in blocks of d."""
        return uniform(m, generator)


class Pairwise(Orthogonal):
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

    def _uniforms(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        u = uniform(m, generator)
        second = ((torch.arange(m) % d) % 2 == 1).nonzero().squeeze(1)
        u[second] = 1 - u[second - 1]
        return u


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


class Monotone(Orthogonal):
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

    def _uniforms(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        return uniform(-(-m // d), generator).repeat_interleave(d)[:m]


class Stratified(Orthogonal):
    """Orthogonal directions with stratified norms.

    The norms have one value in each of m equally probable intervals of the radial distribution. The strata are assigned
    to the directions at random, so that small norms are spread over the blocks.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Stratified().sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    def _uniforms(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        return stratified(m, generator)[torch.randperm(m, generator=generator)]


class Copula(Orthogonal):
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
        self._factor()  # refused before the draw
        return super()._frequencies(m, d, spectrum, generator)

    def _uniforms(self, m: int, d: int, generator: torch.Generator) -> Tensor:
        factor = self._factor()
        k = len(factor)
        normal = torch.randn(-(-m // k), k, generator=generator, dtype=torch.float64) @ factor.mT
        u = torch.as_tensor(special.ndtr(normal.reshape(-1).numpy()))
        return u[:m].clamp(2.0**-53, 1 - 2.0**-53)

    def _factor(self) -> Tensor:
        return correlation_factor([[1.0]] if self.correlation is None else self.correlation)

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


# --- Simplex directions -----------------------------------------------------------------------------------------------

Array = NDArray[Any]


class Simplex(Coupling):
    """Simplex random features (Reid et al., 2023, Eqs. 8 and 9).

    Directions come in blocks of d that are as far apart as possible. Any two of a block have the cosine -1 / (d - 1). A
    random rotation of the block makes each direction uniform. Norms are independent. The coupling is intended for
    positive features. For d = 2 a block is an antipodal pair, whose Fourier features repeat each other. For d = 1 there
    is no simplex.

    Examples:
        >>> from rfgp import couplings
        >>> rows = couplings.Simplex().sample(3, 3, seed=0).dense()
        >>> unit = rows / rows.norm(dim=1, keepdim=True)
        >>> round(float(unit[0] @ unit[1]), 6)
        -0.5
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        check_simplex_dims(d)
        norms = spectrum.radial_quantile(uniform(m, generator), d)
        return rotated(simplex(d).expand(-(-m // d), d, d), generator)[:m] * norms[:, None]


class SimplexPlus(Coupling):
    """Simplex random features whose directions depend on the norms.

    Source: Reid et al. (2023, Eq. 17). In sweeps over a block, every vector is turned to the opposite of the sum of the
    others. This lowers the length of the sum, and with it the variance of positive features.

    Args:
        num_sweeps: The number of sweeps. The default is 20.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.SimplexPlus().sample(6, 3, seed=0)
        Frequencies(m=6, d=3)
    """

    def __init__(self, num_sweeps: int = 20) -> None:
        self.num_sweeps = check_count("num_sweeps", num_sweeps, least=0)

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        norms = norms_of_blocks(m, d, spectrum, generator)
        return rotated(norm_adapted_simplices(norms, self.num_sweeps), generator)[:m]

    def __repr__(self) -> str:
        return f"SimplexPlus(num_sweeps={self.num_sweeps})"


def simplex(d: int) -> Tensor:
    """Return d unit vectors (d, d) at the vertices of a regular simplex around 0.

    Their last coordinates are 0.

    Args:
        d: The number of vectors, at least 2.

    Examples:
        >>> corners = simplex(3)
        >>> (corners @ corners.mT).round(decimals=6)[0].tolist()
        [1.0, -0.5, -0.5]
    """
    corners = math.sqrt(d / (d - 1)) * torch.eye(d, dtype=torch.float64)
    corners[: d - 1, : d - 1] -= (math.sqrt(d) + 1) / (d - 1) ** 1.5
    corners[d - 1] = 0
    corners[d - 1, : d - 1] = 1 / math.sqrt(d - 1)
    return corners


def simplex_around(d: int) -> Tensor:
    """Return d + 1 unit vectors (d + 1, d) at the vertices of a regular simplex.

    The simplex spans all of R^d.

    Args:
        d: The number of dimensions, at least 1.

    Examples:
        >>> simplex_around(2).sum(0).abs().max().round(decimals=6).item()
        0.0
    """
    flat = simplex(d + 1)  # in d + 1 dimensions, with the last coordinates 0
    return flat[:, :d]


def norm_adapted_simplices(
    norms: Tensor,  # (b, d)
    num_sweeps: int,
) -> Tensor:  # (b, d, d)
    """Return blocks of vectors with given norms and the directions of `SimplexPlus`.

    The blocks are not rotated at random yet.

    Args:
        norms: The norm of each vector, (b, d).
        num_sweeps: The number of sweeps over each block.

    Returns:
        The vectors, (b, d, d), float64.

    Examples:
        >>> vectors = norm_adapted_simplices(torch.tensor([[1.0, 1.0, 1.9]]).double(), 20)
        >>> vectors.sum(1).norm().round(decimals=3).item()  # nearly opposite to each other
        0.0
    """
    d = norms.shape[1]
    return torch.as_tensor(
        _with_opposed_directions((simplex(d) * norms[:, :, None]).numpy(), norms.numpy(), num_sweeps)
    )


def _with_opposed_directions(
    vectors: Array,  # (b, d, d)
    norms: Array,  # (b, d)
    num_sweeps: int,
) -> Array:  # (b, d, d)
    """Turn each vector of a block to the opposite of the sum of the others.

    The vectors are turned one after another, in sweeps.
    """
    columns = np.ascontiguousarray(vectors.transpose(1, 0, 2))  # one contiguous (b, d) per vector
    total = columns.sum(0)
    for _ in range(num_sweeps):
        for vector, norm in zip(columns, norms.T, strict=True):
            total -= vector
            length = np.sqrt(np.einsum("ij,ij->i", total, total))
            np.multiply(total, -(norm / np.maximum(length, 1e-300))[:, None], out=vector)
            total += vector
    return columns.transpose(1, 0, 2)


def rotated(blocks: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate each block of rows by an independent Haar-distributed matrix.

    Args:
        blocks: The blocks, (b, d, d).
        generator: A CPU generator.

    Returns:
        The rows of all blocks, (b d, d).

    Examples:
        >>> rotated(torch.eye(2).double()[None], torch.Generator().manual_seed(0)).norm(dim=1).round(
        ...     decimals=6
        ... ).tolist()
        [1.0, 1.0]
    """
    count, _, d = blocks.shape
    rotations = haar_rows(count, d, d, generator).reshape(count, d, d)
    return (blocks @ rotations).reshape(-1, d)


def norms_of_blocks(
    m: int,
    d: int,
    spectrum: Spectrum,
    generator: torch.Generator,
) -> Tensor:  # (b, d)
    """Return the norms of enough simplices of d vectors for m frequencies.

    Args:
        m: The number of frequencies.
        d: The number of dimensions.
        spectrum: The spectrum of the norms.
        generator: A CPU generator.

    Raises:
        InvalidArgumentError: If d is 1.

    Examples:
        >>> from rfgp import spectra
        >>> norms_of_blocks(4, 3, spectra.Gaussian(), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3])
    """
    check_simplex_dims(d)
    blocks = -(-m // d)
    return spectrum.radial_quantile(uniform(blocks * d, generator), d).reshape(blocks, d)


def check_simplex_dims(d: int) -> None:
    """Refuse a single dimension, which has no simplex.

    Args:
        d: The number of dimensions.

    Raises:
        InvalidArgumentError: If d is 1.

    Examples:
        >>> check_simplex_dims(2)
    """
    if d < 2:
        raise InvalidArgumentError(f"num_dims must be at least 2 for a simplex, got {d}.")
