"""Scrambled low-discrepancy points, mapped to frequencies by quantiles."""

import warnings
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from rfgp.couplings.coupling import Coupling
from rfgp.spectra import Gaussian, Spectrum


class Halton(Coupling):
    """Scrambled Halton points (scipy): each is uniform in the cube, together they cover it evenly."""

    needs_isotropy: ClassVar[bool] = False

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return _rows(qmc.Halton, m, d, spectrum, generator)


class Sobol(Coupling):
    """Scrambled Sobol points (scipy), most even where m is a power of two."""

    needs_isotropy: ClassVar[bool] = False

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return _rows(qmc.Sobol, m, d, spectrum, generator)


class DigitalNet(Coupling):
    """A digital net in base 2: scrambled Sobol points (scipy) beside the coordinate (i / m + U) mod 1, U uniform.

    A baseline of Yu et al. (2016, Section 5): the best of the sequences of Yang et al. (2014), who take the matrices of
    Niederreiter and Xing instead of Sobol's. A net where m is a power of two; each point is uniform for any m.
    """

    needs_isotropy: ClassVar[bool] = False

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return _rows(_Net, m, d, spectrum, generator)


class _Net:
    """The net as an engine of scipy's kind; all its points are drawn at once."""

    def __init__(self, d: int, scramble: bool, seed: np.random.Generator) -> None:
        self.shift = seed.random()
        self.others = qmc.Sobol(d - 1, scramble=scramble, seed=seed) if d > 1 else None

    def random(self, m: int) -> Any:
        """Return m points (m, d) of the cube."""
        first = (np.arange(m) / m + self.shift) % 1.0
        return first[:, None] if self.others is None else np.column_stack([first, self.others.random(m)])


def _rows(engine: Any, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
    """Map points of the cube to frequencies: by coordinates, or by a direction and a norm in one dimension more."""
    by_coordinates = isinstance(spectrum, Gaussian) or not spectrum.is_isotropic
    seed = int(torch.randint(2**62, (1,), generator=generator))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that m is no power of two
        points = engine(d if by_coordinates else d + 1, scramble=True, seed=np.random.default_rng(seed)).random(m)
    u = torch.as_tensor(points).clamp(2.0**-53, 1 - 2.0**-53)
    if by_coordinates:
        return spectrum.coordinate_quantile(u)
    normal = Gaussian().coordinate_quantile(u[:, :d])
    rows: Tensor = normal / normal.norm(dim=1, keepdim=True) * spectrum.radial_quantile(u[:, d], d)[:, None]
    return rows
