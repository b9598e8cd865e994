"""Stochastic spherical-radial quadrature, a published rival of the energy coupling."""

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling
from rfgp.couplings.frequencies import Frequencies
from rfgp.couplings.orthogonal import haar_rows
from rfgp.couplings.simplex import simplex_around
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Gaussian, Spectrum


class SphericalRadial(Coupling):
    """Quadrature-based features of degree (3, 3) (Munkhoeva et al. 2018, section 3), for the Gaussian spectrum.

    Each rule has the d + 1 corners of a randomly rotated simplex at one radius rho, chi with d + 2 degrees, each
    with the weight d / rho^2, which makes up for the radius. The rule's node at the origin, of weight 1 - d / rho^2
    and mean 0, is negative half of the time, which no feature can carry; the paper rejects such draws, here it is
    left out, so that the estimate stays unbiased.
    """

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        if not isinstance(spectrum, Gaussian):
            raise InvalidArgumentError(f"{self!r} is for the Gaussian spectrum only, not {spectrum!r}.")
        rules = -(-m // (d + 1))
        radius = torch.randn(rules, d + 2, generator=generator, dtype=torch.float64).norm(dim=1)
        rotations = haar_rows(rules, d, d, generator).reshape(rules, d, d)
        rows = (radius[:, None, None] * (simplex_around(d) @ rotations)).reshape(-1, d)
        weights = (d / radius**2).repeat_interleave(d + 1)
        order = torch.randperm(m, generator=generator)
        return Frequencies(rows[:m][order], weights[:m][order])

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).matrix
