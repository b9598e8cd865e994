"""Pairs of opposite frequencies, for positive features."""

from typing import ClassVar

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling
from rfgp.couplings.frequencies import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Spectrum


class Antithetic(Coupling):
    """m / 2 frequencies of another coupling, each beside its negative; the pairs are shuffled, m is even.

    For positive features exp(omega . x) the two signs are negatively correlated. Fourier features refuse such a
    draw: cos and sin of -omega . x repeat those of omega . x.

    Args:
        base: The coupling of the m / 2.
    """

    needs_isotropy: ClassVar[bool] = False  # the base refuses what it cannot serve

    def __init__(self, base: Coupling) -> None:
        if base.is_antithetic:
            raise InvalidArgumentError(f"{base!r} comes in pairs already.")
        self.base = base

    @property
    def is_biased(self) -> bool:
        """Whether the base is."""
        return self.base.is_biased

    @property
    def is_antithetic(self) -> bool:
        """True."""
        return True

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        if m % 2:
            raise InvalidArgumentError(f"Antithetic frequencies come in pairs, so their number must be even, got {m}.")
        half = self.base.sample(m // 2, d, spectrum=spectrum, generator=generator)
        return half.with_negatives()

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).dense()

    def __repr__(self) -> str:
        return f"Antithetic({self.base!r})"
