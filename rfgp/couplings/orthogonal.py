"""Blocks of orthogonal directions, with independent or coupled norms."""

import math
from typing import Any

import torch
from torch import Tensor

from rfgp.couplings import norms
from rfgp.couplings.coupling import Coupling, uniform
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Gaussian, Spectrum


class Orthogonal(Coupling):
    """Orthogonal random features (Yu et al. 2016, Eq. 2): blocks of d Haar directions, independent norms."""

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(uniform(m, generator), d)[:, None]


class Pairwise(Coupling):
    """Orthogonal directions whose norms are coupled in pairs (PNC, Reid et al. 2024, Def. 3.3).

    Within a block the norms of directions 2k and 2k + 1 are negatively monotone: F(r) + F(r') = 1
    with F the radial law. The last direction of a block of odd size has an independent norm.

    For Fourier features the coupling is optimal for small distances only (Theorem 3.2 there): for the Gaussian kernel
    up to 1.75 to 2.2 lengthscales. From 2.3 to 2.9 lengthscales on, independent norms can be better
    (`benchmarks/papers/own/norms.py`).
    """

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(norms.pairwise(m, d, generator), d)[:, None]


class ConstantNorm(Coupling):
    """ORF' (Yu et al. 2016, section 4, Eq. 4): orthogonal directions, all norms sqrt(d); for the Gaussian spectrum.

    The estimate's mean is C(sqrt(d) z) = E cos(sqrt(d) z u) for one coordinate u of a uniform direction, not the kernel
    exp(-z^2 / 2): the bias is about -z^4 / (4 d) exp(-z^2 / 2) (their Theorem 2), and below 0.9 / d for d > 1.
    """

    @property
    def is_biased(self) -> bool:
        """True."""
        return True

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        if not isinstance(spectrum, Gaussian):
            raise InvalidArgumentError(f"{self!r} is for the Gaussian spectrum only, not {spectrum!r}.")
        return math.sqrt(d) * haar_blocks(m, d, generator)


class Monotone(Coupling):
    """Orthogonal directions of equal norm within each block: positively monotone norms (PM).

    The largest positive dependence that norms can have, where pairwise coupling has the largest negative
    one. It makes kernel estimates worse and row-normalised attention better (Reid et al. 2024, App. B.3).
    """

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(norms.monotone(m, d, generator), d)[:, None]


class Stratified(Coupling):
    """Orthogonal directions whose norms have one value in each of m quantiles of the radial law.

    The strata are dealt to the directions at random, so that no block has the small ones.
    """

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        directions = haar_blocks(m, d, generator)
        u = norms.stratified(m, generator)[torch.randperm(m, generator=generator)]
        return directions * spectrum.radial_quantile(u, d)[:, None]


class Copula(Coupling):
    """Orthogonal directions whose norms have a Gaussian copula (Reid et al. 2024, Def. A.7).

    Args:
        correlation: The copula's correlation matrix (k, k) of k consecutive norms: k = d couples those of a block,
            as in the paper, k = m all of them. None: independent norms, which is `Orthogonal`.

    Raises:
        InvalidArgumentError: at `sample`, where it is no correlation matrix.
    """

    def __init__(self, correlation: Any = None) -> None:
        self.correlation = correlation

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        factor = norms.correlation_factor([[1.0]] if self.correlation is None else self.correlation)
        directions = haar_blocks(m, d, generator)
        return directions * spectrum.radial_quantile(norms.copula(m, factor, generator), d)[:, None]

    def __repr__(self) -> str:
        return f"Copula({'' if self.correlation is None else 'correlation=...'})"


def haar_blocks(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Return m unit directions (m, d): blocks of d rows of Haar-distributed orthogonal matrices.

    The Q of a QR factorisation of a Gaussian matrix is Haar only once R has a positive diagonal
    (Mezzadri 2007), hence the signs. The last block may have fewer rows.
    """
    whole = haar_rows(m // d, d, d, generator)
    return torch.cat([whole, haar_rows(1, m % d, d, generator)]) if m % d else whole


def haar_rows(blocks: int, k: int, d: int, generator: torch.Generator) -> Tensor:
    """Return blocks * k rows (blocks * k, d): the first k rows of Haar-distributed d x d matrices."""
    gaussian = torch.randn(blocks, d, k, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(gaussian)
    signs = torch.where(torch.diagonal(r, dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q)
    rows: Tensor = (q * signs[:, None, :]).mT.reshape(-1, d)
    return rows
