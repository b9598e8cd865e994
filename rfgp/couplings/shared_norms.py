"""Norms that are shared within blocks and correlated between them, for row-normalized attention."""

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
    """Orthogonal directions of equal norm within each block, with correlated norms of any distribution.

    It extends `Monotone` by two degrees of freedom. A correlation between the blocks adds a common factor to all
    estimates, which cancels in row-normalized attention. The norms may have any distribution, with importance weights,
    which also contain such a factor. Both make kernel estimates worse. With a correlation, neither their variance nor
    the error of attention vanishes as m grows, so the best values depend on m. `rfgp.learn.learn_attention` finds them.
    Use "shared-norms-antithetic" for positive features.

    Args:
        correlation: The correlation of the Gaussian copula of the blocks' norms, from 0 (`Monotone`) to 1 (one norm).
        tilt: Heights of a histogram by which the distribution of F(|omega|) is changed, F the radial distribution
            function. If None, it is not changed.
        broadening: The factor of the norms.

    Raises:
        InvalidArgumentError: If an option is out of range.

    Examples:
        >>> from rfgp import couplings
        >>> norms = couplings.SharedNorms(correlation=1.0).sample(6, 3, seed=0).dense().norm(dim=1)
        >>> bool(norms.std() < 1e-12)
        True
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
