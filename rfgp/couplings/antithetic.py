"""Antithetic pairs of frequencies, for positive (Laplace) features."""

from typing import ClassVar

import torch

from rfgp.couplings.coupling import Coupling, WeightedDraws
from rfgp.couplings.frequencies import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Spectrum


class Antithetic(WeightedDraws, Coupling):
    """Pairs omega, -omega of the frequencies of another coupling, in random order.

    For positive (Laplace) features exp(omega . x - |x|^2) the two signs are negatively correlated. Fourier features
    refuse such a draw, because the cosine and the sine of -omega . x repeat those of omega . x. The number m of
    frequencies must be even.

    Args:
        base: The coupling of the m / 2 frequencies omega.

    Raises:
        InvalidArgumentError: If the frequencies of the base come in pairs already.

    Examples:
        >>> from rfgp import couplings
        >>> draw = couplings.Antithetic(couplings.Orthogonal()).sample(6, 3, seed=0)
        >>> draw.antithetic, float(draw.dense().sum().abs().round())
        (True, 0.0)
    """

    needs_isotropy: ClassVar[bool] = False  # the base refuses what it cannot serve

    def __init__(self, base: Coupling) -> None:
        if base.is_antithetic:
            raise InvalidArgumentError(f"base must be a coupling without pairs omega, -omega, got {base!r}.")
        self.base = base

    @property
    def is_biased(self) -> bool:
        """Whether the base is biased."""
        return self.base.is_biased

    @property
    def is_antithetic(self) -> bool:
        """Always True."""
        return True

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        if m % 2:
            raise InvalidArgumentError(f"num_frequencies must be even, got {m}. Antithetic frequencies come in pairs.")
        half = self.base.sample(m // 2, d, spectrum=spectrum, generator=generator)
        return half.with_negatives()

    def __repr__(self) -> str:
        return f"Antithetic({self.base!r})"
