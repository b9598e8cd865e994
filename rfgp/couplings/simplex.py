"""Blocks of directions at the vertices of a simplex, for positive (Laplace) features (Reid et al. 2023)."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.couplings.coupling import Coupling, uniform
from rfgp.couplings.orthogonal import haar_rows
from rfgp.errors import InvalidArgumentError
from rfgp.messages import check_count
from rfgp.spectra import Spectrum

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
