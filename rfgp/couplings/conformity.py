"""The RF-conformity of positive features, and directions that minimise it (Reid et al. 2023, Eqs. 10-12)."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
from torch import Tensor

from rfgp.couplings.coupling import Coupling, uniform
from rfgp.couplings.simplex import rotated, turned_blocks
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import read_numbers
from rfgp.special import direction_average
from rfgp.spectra import Gaussian, Spectrum

Array = NDArray[np.float64]

FARTHEST = 5.0
"""Of the distances |x + y| for which directions are optimised, in lengthscales."""


class SimplexOptimized(Coupling):
    """Blocks of d directions that minimise the RF-conformity for their norms (Reid et al. 2023, Eq. 12, Fig. 4).

    Where `SimplexPlus` lowers the first term of the series in |x + y| only, this lowers the whole, at one distance, by
    L-BFGS from its solution; a random rotation of each block leaves every direction uniform. It shows what is left to
    be won over "simplex-plus": some hundredths at |x + y| = 1. A block takes tens of evaluations of time d^3.

    Args:
        distance: |x + y| in lengthscales at which the conformity is least, at most 5.

    Raises:
        InvalidArgumentError: a distance out of range.
    """

    def __init__(self, distance: float = 1.0) -> None:
        if not 0 < distance <= FARTHEST:
            raise InvalidArgumentError(f"distance must be positive and at most {FARTHEST:g}, got {distance!r}.")
        self.distance = float(distance)

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        if not isinstance(spectrum, Gaussian):
            raise InvalidArgumentError(f"{self!r} is for the Gaussian spectrum only, not {spectrum!r}.")
        if d < 2:
            raise InvalidArgumentError("A simplex needs at least two dimensions.")
        blocks = -(-m // d)
        norms = spectrum.radial_quantile(uniform(blocks * d, generator), d).reshape(blocks, d)
        vectors = np.array([least_conformity(block, self.distance) for block in turned_blocks(norms, 20).numpy()])
        return rotated(torch.as_tensor(vectors), generator)[:m]

    def __repr__(self) -> str:
        return f"SimplexOptimized(distance={self.distance:g})"


def conformity(
    vectors: Any,  # (m, d)
    distances: Any,  # (k,)
) -> Array:  # (k,)
    """Return the RF-conformity of some vectors (Reid et al. 2023, Eq. 12).

    The mean over i != j of H(|omega_i + omega_j| v), where H(t) = E cosh(t u) over one coordinate u of a uniform
    direction. With it the mean squared error of positive features is exp(-2 |x|^2 - 2 |y|^2) / m times exp(2 v^2) -
    exp(v^2) + (m - 1) (conformity - exp(v^2)) at v = |x + y|, on average over draws of the norms (Theorem 3.2 there).

    Args:
        vectors: At least two frequencies.
        distances: v, in lengthscales.

    Raises:
        InvalidArgumentError: no matrix of at least two rows.
    """
    omega = read_numbers("vectors", vectors)
    if omega.ndim != 2 or len(omega) < 2:
        raise InvalidArgumentError(f"At least two vectors (m, d) are needed, got shape {omega.shape}.")
    lengths = np.sqrt(_squared_sums(omega)[~np.eye(len(omega), dtype=bool)])
    average = direction_average("laplace", omega.shape[1])
    return np.array([average(lengths * v).mean() for v in np.atleast_1d(read_numbers("distances", distances))])


def least_conformity(
    vectors: Array,  # (m, d)
    distance: float,
) -> Array:  # (m, d)
    """Return vectors of the same lengths whose directions minimise the conformity at a distance, from these on."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)

    def objective(raw: Array) -> tuple[float, Array]:
        free = raw.reshape(vectors.shape)
        size = np.linalg.norm(free, axis=1, keepdims=True)
        unit = free / size
        value, slope = _pairs(norms * unit, distance)
        slope = slope - (slope * unit).sum(1, keepdims=True) * unit
        return value, (slope * norms / size).ravel()

    options = {"maxiter": 200, "ftol": 1e-8, "gtol": 1e-6}
    found = optimize.minimize(objective, (vectors / norms).ravel(), jac=True, method="L-BFGS-B", options=options)
    free = found.x.reshape(vectors.shape)
    return np.asarray(norms * free / np.linalg.norm(free, axis=1, keepdims=True))


def _pairs(omega: Array, distance: float) -> tuple[float, Array]:
    """Return log mean H over pairs i != j, and its gradient (m, d); H(t) = 0F1(; d/2; t^2 / 4)."""
    m, d = omega.shape
    x = _squared_sums(omega) * distance**2 / 4
    apart = 1 - np.eye(m)
    total = (special.hyp0f1(d / 2, x) * apart).sum()
    slope = special.hyp0f1(d / 2 + 1, x) * apart * distance**2 / (2 * d)  # dH / d|omega_i + omega_j|^2
    gradient = 4 * (slope.sum(1, keepdims=True) * omega + slope @ omega)
    return float(np.log(total / (m * (m - 1)))), gradient / total


def _squared_sums(omega: Array) -> Array:
    """Return |omega_i + omega_j|^2 (m, m)."""
    squares = (omega**2).sum(1)
    return np.asarray(np.maximum(squares[:, None] + squares + 2 * omega @ omega.T, 0.0))
