"""Fastfood, a baseline whose frequencies are functions of few random numbers.

Products with its matrices take time m log d if they are not formed. Here they are formed, to compare accuracy.
"""

import math

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling, check_gaussian, random_signs, uniform
from rfgp.couplings.hadamard import hadamard, next_power_of_two
from rfgp.spectra import Spectrum


class Fastfood(Coupling):
    """Fastfood (Le et al., 2013): blocks S H G P H B of D frequencies.

    D is the smallest power of two with D >= d. B has random signs, P is a permutation and G has normal entries. S gives
    each row a chi-distributed length with D degrees of freedom. For given B and P each row of H G P H B is an
    orthogonal transform of the diagonal of G. So its direction is uniform, and the estimate is unbiased. The rows of a
    block share that diagonal, which raises the variance above that of independent frequencies.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Fastfood().sample(8, 3, seed=0).shape
        (8, 3)
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        check_gaussian(self, spectrum)
        size = next_power_of_two(d)
        blocks = torch.cat([self._directions(size, generator) for _ in range(-(-m // size))])[:m, :d]
        return blocks * spectrum.radial_quantile(uniform(m, generator), size)[:, None]

    @staticmethod
    def _directions(size: int, generator: torch.Generator) -> Tensor:
        """Return the unit rows (D, D) of a block."""
        h = hadamard(size)
        signs = random_signs(size, generator)[:, 0]
        order = torch.randperm(size, generator=generator)
        normal = torch.randn(size, generator=generator, dtype=torch.float64)
        rows: Tensor = math.sqrt(size) * ((h * normal) @ (h * signs)[order]) / normal.norm()
        return rows
