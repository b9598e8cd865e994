"""Baselines whose frequencies are functions of few random numbers: Fastfood and circulant matrices.

Products with them take time m log d if the matrices are not formed. Here they are formed, for comparisons of accuracy.
"""

import math

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling, uniform
from rfgp.couplings.hadamard import hadamard, next_power_of_two
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Gaussian, Spectrum


class Fastfood(Coupling):
    """Fastfood (Le et al. 2013): blocks S H G P H B of D frequencies, D the smallest power of two with D >= d.

    B has random signs, P is a permutation and G has normal entries. S gives each row a chi-distributed length with D
    degrees of freedom. For given B and P each row of H G P H B is an orthogonal transform of the diagonal of G. So its
    direction is uniform, and the estimate is unbiased. The rows of a block share that diagonal, which raises the
    variance above that of independent frequencies.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Fastfood().sample(8, 3, seed=0).shape
        (8, 3)
    """

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        if not isinstance(spectrum, Gaussian):
            raise InvalidArgumentError(f"The spectrum of {self!r} must be Gaussian, got {spectrum!r}.")
        size = next_power_of_two(d)
        blocks = torch.cat([self._directions(size, generator) for _ in range(-(-m // size))])[:m, :d]
        return blocks * spectrum.radial_quantile(uniform(m, generator), size)[:, None]

    @staticmethod
    def _directions(size: int, generator: torch.Generator) -> Tensor:
        """Return the unit rows (D, D) of a block."""
        h = hadamard(size)
        signs = _signs(size, generator)
        order = torch.randperm(size, generator=generator)
        normal = torch.randn(size, generator=generator, dtype=torch.float64)
        rows: Tensor = math.sqrt(size) * ((h * normal) @ (h * signs)[order]) / normal.norm()
        return rows


class Circulant(Coupling):
    """Circulant frequencies (Yu et al. 2015, "Compact nonlinear maps and circulant extensions"): blocks of d shifts.

    A block is the circulant matrix of one frequency with random signs of the columns. Each row has the spectral
    measure, so the estimate is unbiased. The rows of a block have equal lengths.

    Examples:
        >>> from rfgp import couplings
        >>> rows = couplings.Circulant().sample(3, 3, seed=0).dense()
        >>> bool(rows.norm(dim=1).std() < 1e-12)
        True
    """

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        blocks = -(-m // d)
        first = torch.randn(blocks, d, generator=generator, dtype=torch.float64)
        first *= (spectrum.radial_quantile(uniform(blocks, generator), d) / first.norm(dim=1))[:, None]
        shifts = (torch.arange(d) - torch.arange(d)[:, None]) % d
        rows = first[:, shifts] * torch.stack([_signs(d, generator) for _ in range(blocks)])[:, None]
        return rows.reshape(-1, d)[:m]


def _signs(count: int, generator: torch.Generator) -> Tensor:
    """Return signs (count,), float64."""
    return 2 * torch.randint(0, 2, (count,), generator=generator).double() - 1
