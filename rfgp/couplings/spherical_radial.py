"""Stochastic spherical-radial quadrature, a published alternative to the energy coupling."""

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling, WeightedDraws, check_gaussian
from rfgp.couplings.frequencies import Frequencies
from rfgp.couplings.orthogonal import haar_rows
from rfgp.couplings.simplex import simplex_around
from rfgp.spectra import Spectrum


class SphericalRadial(WeightedDraws, Coupling):
    """Quadrature features of degree (3, 3), for the Gaussian spectrum.

    Source: Munkhoeva et al. (2018, Section 3).

    Each rule has the d + 1 vertices of a randomly rotated simplex at one radius rho. rho is chi-distributed with d + 2
    degrees of freedom, and each node has the weight d / rho^2. The rule's node at the origin has the weight 1 - d /
    rho^2 with mean 0. It is often negative, which no feature can represent. Without it the estimate is still unbiased.
    For d = 1 and 2 the variance of the weights is infinite.

    Args:
        origin: Whether one frequency is the node at the origin, with the mean of its weights. Draws with a negative
            mean are rejected, as in the paper. Then phi(x) . phi(x) = 1, and the estimate is biased.

    Examples:
        >>> from rfgp import couplings
        >>> draw = couplings.SphericalRadial(origin=True).sample(9, 3, seed=0)
        >>> round(float(draw.weights.mean()), 6)
        1.0
    """

    def __init__(self, origin: bool = False) -> None:
        self.origin = bool(origin)

    @property
    def is_biased(self) -> bool:
        """Whether draws with a node at the origin are rejected, so that the others are biased."""
        return self.origin

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        check_gaussian(self, spectrum)
        while (drawn := self._attempt(m, d, generator)) is None:
            pass
        return drawn

    def _attempt(self, m: int, d: int, generator: torch.Generator) -> Frequencies | None:
        """Return a draw, or None if the node at the origin would have a negative weight."""
        rules = -(-m // (d + 1))
        radius = torch.randn(rules, d + 2, generator=generator, dtype=torch.float64).norm(dim=1)
        rotations = haar_rows(rules, d, d, generator).reshape(rules, d, d)
        rows = (radius[:, None, None] * (simplex_around(d) @ rotations)).reshape(-1, d)
        weights = (d / radius**2).repeat_interleave(d + 1)
        order = torch.randperm(m, generator=generator)
        rows, weights = rows[:m][order], weights[:m][order]
        if not self.origin or m == 1:
            return Frequencies(rows, weights)
        if float(weights[:-1].mean()) > 1:
            return None
        rows, weights = self._with_origin(rows, weights)
        order = torch.randperm(m, generator=generator)
        return Frequencies(rows[order], weights[order])

    @staticmethod
    def _with_origin(rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows and weights with the last row moved to the origin.

        Its weight is m less the sum of the others.
        """
        m = len(rows)
        rows[-1] = 0.0
        weights[:-1] *= m / (m - 1)
        weights[-1] = m - weights[:-1].sum()
        return rows, weights

    def __repr__(self) -> str:
        return f"SphericalRadial({'origin=True' if self.origin else ''})"
