"""Low-discrepancy points, scrambled by default, mapped to frequencies by quantiles."""

import warnings
from typing import ClassVar

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from rfgp.couplings.coupling import Coupling
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Gaussian, Spectrum

RANDOMIZATIONS = ("scrambled", "shifted", "none")


class Halton(Coupling):
    """Halton points (scipy), mapped to frequencies.

    Scrambled points are uniform in the cube and cover it evenly.

    Args:
        randomization: "scrambled", the default, permutes the digits at random. "shifted" moves points 1 to m of the
            sequence by one uniform vector modulo 1. Each is then uniform, but the first points are correlated in
            dimensions of large bases. "none" takes the sequence itself, in random order. These points are not random,
            so the estimate is biased. The baseline of Reid et al. (2024) has shifted points, whose frequencies are
            rotated.

    Raises:
        InvalidArgumentError: If the randomization is unknown.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Halton("shifted").sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    needs_isotropy: ClassVar[bool] = False

    def __init__(self, randomization: str = "scrambled") -> None:
        if randomization not in RANDOMIZATIONS:
            raise InvalidArgumentError(
                f"randomization must be one of {', '.join(RANDOMIZATIONS)}, got {randomization!r}."
            )
        self.randomization = randomization

    @property
    def is_biased(self) -> bool:
        """Whether the points are not randomized."""
        return self.randomization == "none"

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        dims = _dims(d, spectrum)
        if self.randomization == "scrambled":
            return _to_frequencies(qmc.Halton(dims, scramble=True, seed=_seed(generator)).random(m), d, spectrum)
        points = qmc.Halton(dims, scramble=False).random(m + 1)[1:]  # the first is 0, which has no quantile
        if self.randomization == "shifted":
            points = (points + _seed(generator).random(dims)) % 1
        return _to_frequencies(points, d, spectrum)

    def __repr__(self) -> str:
        return f"Halton({'' if self.randomization == 'scrambled' else repr(self.randomization)})"


class Sobol(Coupling):
    """Scrambled Sobol points (scipy). They are most even if m is a power of two.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Sobol().sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    needs_isotropy: ClassVar[bool] = False

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return _to_frequencies(_sobol(m, _dims(d, spectrum), _seed(generator)), d, spectrum)


class DigitalNet(Coupling):
    """A digital net in base 2 of scrambled Sobol points (scipy).

    The first coordinate of point i is (i / m + U) mod 1, with one uniform U for all points. It is a baseline of Yu et
    al. (2016, Section 5), the best of the sequences of Yang et al. (2014). They take the matrices of Niederreiter and
    Xing instead of those of Sobol. It is a net if m is a power of two. Each point is uniform for any m.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.DigitalNet().sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    needs_isotropy: ClassVar[bool] = False

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        seed, others = _seed(generator), _dims(d, spectrum) - 1
        first = (np.arange(m) / m + seed.random()) % 1.0
        points = first[:, None] if others == 0 else np.column_stack([first, _sobol(m, others, seed)])
        return _to_frequencies(points, d, spectrum)


def _sobol(m: int, dims: int, seed: np.random.Generator) -> np.ndarray:  # (m, dims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scipy warns if m is not a power of two
        points: np.ndarray = qmc.Sobol(dims, scramble=True, seed=seed).random(m)
    return points


def sobol_points(m: int, dims: int, generator: torch.Generator) -> np.ndarray:  # (m, dims)
    """Return the first m scrambled Sobol points, each of them uniform in the cube.

    Args:
        m: The number of points.
        dims: The dimension of the cube.
        generator: A CPU generator, which seeds the scrambling.

    Returns:
        The points, (m, dims).

    Examples:
        >>> sobol_points(4, 2, torch.Generator().manual_seed(0)).shape
        (4, 2)
    """
    return _sobol(m, dims, _seed(generator))


def _seed(generator: torch.Generator) -> np.random.Generator:
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))


def _by_coordinates(spectrum: Spectrum) -> bool:
    return isinstance(spectrum, Gaussian) or not spectrum.is_isotropic


def _dims(d: int, spectrum: Spectrum) -> int:
    """Return the dimension of the cube.

    It is d for coordinates, or d + 1 for a direction and a norm.
    """
    return d if _by_coordinates(spectrum) else d + 1


def _to_frequencies(
    points: np.ndarray,  # (m, _dims)
    d: int,
    spectrum: Spectrum,
) -> Tensor:  # (m, d)
    """Map points of the cube to frequencies."""
    u = torch.as_tensor(points).clamp(2.0**-53, 1 - 2.0**-53)
    if _by_coordinates(spectrum):
        return spectrum.coordinate_quantile(u)
    normal = Gaussian().coordinate_quantile(u[:, :d])
    rows: Tensor = normal / normal.norm(dim=1, keepdim=True) * spectrum.radial_quantile(u[:, d], d)[:, None]
    return rows
