"""Norms that are shared within blocks and alike between them, for row-normalised attention."""

import math
from collections.abc import Sequence

import torch
from scipy import special
from torch import Tensor

from rfgp.couplings.coupling import Coupling
from rfgp.couplings.frequencies import Frequencies
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.couplings.radial import RadialDistribution, check_histogram
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Spectrum


class SharedNorms(Coupling):
    """Orthogonal directions of equal norm within each block, the norms of blocks correlated, their law changed.

    `Monotone` with two degrees of freedom more. A correlation between the blocks adds a common factor to all estimates,
    which row-normalised attention does not see; the law of the norms may be any other, made up for by weights, which in
    part are such a factor too. Kernel estimates get worse by both: with a correlation their variance does not vanish as
    m grows, and neither does the error of attention, so what is best depends on m. `rfgp.learn.learn_attention` finds
    it. For positive features take pairs, "shared-norms-antithetic".

    Args:
        correlation: Of a Gaussian copula between the blocks' norms, from 0, which is `Monotone`, to 1, one norm.
        tilt: Heights of a histogram by which the law of F(|omega|) is changed, F the radial distribution function.
        broadening: The factor of the norms.

    Raises:
        InvalidArgumentError: an option out of range.
    """

    def __init__(self, correlation: float = 0.0, tilt: Sequence[float] | None = None, broadening: float = 1.0) -> None:
        if not 0 <= correlation <= 1:
            raise InvalidArgumentError(f"correlation must be between 0 and 1, got {correlation!r}.")
        if not 0 < broadening < math.inf:
            raise InvalidArgumentError(f"broadening must be positive and finite, got {broadening!r}.")
        self.correlation, self.broadening = float(correlation), float(broadening)
        self.tilt = None if tilt is None else tuple(float(h) for h in check_histogram(tilt))

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        directions, u = haar_blocks(m, d, generator), self._uniforms(-(-m // d), generator)
        lengths, weights = RadialDistribution(spectrum, d, self.broadening, self.tilt).draw(u)
        lengths, weights = (x.repeat_interleave(d)[:m] for x in (lengths, weights))
        order = torch.randperm(m, generator=generator)
        return Frequencies((directions * lengths[:, None])[order], weights[order])

    def _uniforms(self, blocks: int, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(1 + blocks, generator=generator, dtype=torch.float64)
        normal = math.sqrt(self.correlation) * drawn[0] + math.sqrt(1 - self.correlation) * drawn[1:]
        return torch.as_tensor(special.ndtr(normal.numpy())).clamp(2.0**-53, 1 - 2.0**-53)

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).dense()

    def __repr__(self) -> str:
        return f"SharedNorms(correlation={self.correlation}, tilt={self.tilt}, broadening={self.broadening})"
