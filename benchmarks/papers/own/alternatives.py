"""Published couplings with which the energy coupling is compared. Importing this file gives them names."""

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from rfgp import couplings, random
from rfgp.couplings.coupling import Coupling, Frequencies, WeightedDraws, check_gaussian, uniform
from rfgp.couplings.orthogonal import haar_blocks, haar_rows, simplex_around
from rfgp.couplings.radial import RadialDistribution, check_histogram
from rfgp.spectra import Spectrum

_STEPS, _RATE, _DELTA, _ROWS = 200, 0.1, 0.1, 512


class Leverage(WeightedDraws, Coupling):
    """Independent frequencies whose norms follow a ridge leverage.

    Source: Avron et al. (2017) and Li et al. (2019).

    Importance weights keep the kernel estimate unbiased.

    Args:
        proposal_histogram: A histogram from `leverage_histogram`. If None, it is flat, which is `IID`.

    Raises:
        InvalidArgumentError: If the proposal histogram is not positive.

    Examples:
        >>> import torch
        >>> from rfgp import couplings
        >>> x = torch.linspace(-2, 2, 30)[:, None]
        >>> Leverage(couplings.leverage_histogram(x, noise=0.1)).sample(8, 1, seed=0)
        Frequencies(m=8, d=1)
    """

    def __init__(self, proposal_histogram: Sequence[float] | None = None) -> None:
        self.proposal_histogram = None if proposal_histogram is None else check_histogram(proposal_histogram).tolist()

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        gaussian = torch.randn(m, d, generator=generator, dtype=torch.float64)
        norms, weights = RadialDistribution(spectrum, d, proposal_histogram=self.proposal_histogram).draw(
            uniform(m, generator)
        )
        return Frequencies(gaussian / gaussian.norm(dim=1, keepdim=True) * norms[:, None], weights)

    def __repr__(self) -> str:
        return f"Leverage({'' if self.proposal_histogram is None else 'proposal_histogram=...'})"


class NearOrthogonal(Coupling):
    """Near-orthogonal Monte Carlo with independent norms.

    Source: Lin et al. (2020, Algorithm 1).

    All m directions together minimize sum_ij delta / (delta + |u_i - u_j|^2) by gradient descent from orthogonal
    blocks. They are solved once for each m and d in a process, and each draw rotates them at random. The first draw
    takes 200 steps over all pairs, about 20 s for m = 4096 and d = 64.

    Examples:
        >>> NearOrthogonal().sample(6, 3, seed=0)
        Frequencies(m=6, d=3)
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        rotation = haar_rows(1, d, d, generator)
        return (_directions(m, d) @ rotation) * spectrum.radial_quantile(uniform(m, generator), d)[:, None]


@lru_cache(maxsize=32)
def _directions(m: int, d: int) -> Tensor:
    """Return m unit directions (m, d) from a fixed seed.

    Up to d of them are orthogonal. A simplex has less energy, but orthogonal directions a smaller error of the kernel.
    """
    u = haar_blocks(m, d, random.generator(0, m, d))
    if m <= d or d == 1:
        return u
    for step in range(_STEPS):
        gradient = _gradient(u)
        gradient -= (gradient * u).sum(1, keepdim=True) * u
        rate = _RATE * 0.5 * (1 + math.cos(math.pi * step / _STEPS))
        u = u - rate * gradient / gradient.norm(dim=1).max().clamp_min(1e-300)
        u = u / u.norm(dim=1, keepdim=True)
    return u


def _gradient(u: Tensor) -> Tensor:
    """Return the gradient (m, d) of the energy.

    On the sphere |u_i - u_j|^2 = 2 - 2 u_i . u_j.
    """
    out = torch.empty_like(u)
    for start in range(0, len(u), _ROWS):
        rows = u[start : start + _ROWS]
        out[start : start + _ROWS] = (4 * _DELTA / (_DELTA + 2 - 2 * (rows @ u.mT)) ** 2) @ u
    return out


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
        >>> draw = SphericalRadial(origin=True).sample(9, 3, seed=0)
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


couplings.register("near-orthogonal", NearOrthogonal)
couplings.register("spherical-radial", SphericalRadial)
couplings.register("leverage", Leverage)
