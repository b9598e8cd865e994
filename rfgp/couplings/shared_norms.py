"""Norms that are shared within blocks and correlated between them, for softmax attention."""

import math
from collections.abc import Sequence

import torch
from scipy import special
from torch import Tensor

from rfgp.couplings.coupling import Coupling, WeightedDraws
from rfgp.couplings.frequencies import Frequencies
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.couplings.radial import RadialDistribution, check_histogram
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Spectrum


class SharedNorms(WeightedDraws, Coupling):
    """Orthogonal directions with one norm for each block, correlated over blocks.

    It extends `Monotone` by two degrees of freedom. A correlation between the blocks adds a common factor to all
    estimates, which cancels in softmax attention. The norms may have any distribution, with importance weights, which
    also contain such a factor. Both make kernel estimates worse. With a correlation, neither their variance nor the
    error of attention vanishes as m grows, so the best values depend on m. `rfgp.learn.learn_attention` finds them. Use
    "shared-norms-antithetic" for positive (Laplace) features.

    Args:
        correlation: The correlation of the Gaussian copula of the blocks' norms, from 0 (`Monotone`) to 1 (one norm).
        proposal_histogram: Heights of the density of F(|omega|) on (0, 1) in bins of equal width, with F the radial
            distribution function. If None, the density is uniform.
        proposal_scale: The factor of the norms, positive. The default is 1.

    Raises:
        InvalidArgumentError: If an option is out of range.

    Examples:
        >>> from rfgp import couplings
        >>> norms = couplings.SharedNorms(correlation=1.0).sample(6, 3, seed=0).dense().norm(dim=1)
        >>> bool(norms.std() < 1e-12)
        True
    """

    def __init__(
        self, correlation: float = 0.0, proposal_histogram: Sequence[float] | None = None, proposal_scale: float = 1.0
    ) -> None:
        if not 0 <= correlation <= 1:
            raise InvalidArgumentError(f"correlation must be between 0 and 1, got {correlation!r}.")
        if not 0 < proposal_scale < math.inf:
            raise InvalidArgumentError(f"proposal_scale must be positive and finite, got {proposal_scale!r}.")
        self.correlation = float(correlation)
        self.proposal_histogram = (
            None if proposal_histogram is None else tuple(float(h) for h in check_histogram(proposal_histogram))
        )
        self.proposal_scale = float(proposal_scale)

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        directions, u = haar_blocks(m, d, generator), self._uniforms(-(-m // d), generator)
        lengths, weights = RadialDistribution(spectrum, d, self.proposal_scale, self.proposal_histogram).draw(u)
        lengths, weights = (x.repeat_interleave(d)[:m] for x in (lengths, weights))
        order = torch.randperm(m, generator=generator)
        return Frequencies((directions * lengths[:, None])[order], weights[order])

    def _uniforms(self, blocks: int, generator: torch.Generator) -> Tensor:
        drawn = torch.randn(1 + blocks, generator=generator, dtype=torch.float64)
        normal = math.sqrt(self.correlation) * drawn[0] + math.sqrt(1 - self.correlation) * drawn[1:]
        return torch.as_tensor(special.ndtr(normal.numpy())).clamp(2.0**-53, 1 - 2.0**-53)

    def __repr__(self) -> str:
        options = (f"{name}={value}" for name, value in vars(self).items())
        return f"SharedNorms({', '.join(options)})"
