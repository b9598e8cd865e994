"""The RF-conformity of positive (Laplace) features, and its minimization (Reid et al. 2023, Eqs. 10 to 12).

Importing this file gives the coupling "simplex-optimized" its name.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
from torch import Tensor

from rfgp import couplings
from rfgp.couplings.coupling import Coupling, check_gaussian
from rfgp.couplings.orthogonal import norm_adapted_simplices, norms_of_blocks, rotated
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import real_array
from rfgp.special import direction_average
from rfgp.spectra import Spectrum

Array = NDArray[np.float64]

FARTHEST = 5.0
"""The largest |x + y|, in lengthscales, for which directions can be optimized."""


class SimplexOptimized(Coupling):
    """Blocks of d directions that minimize the RF-conformity.

    The objective is Eq. 12 of Reid et al. (2023). `SimplexPlus` lowers the first term of the power series in |x + y|.
    This coupling minimizes the whole series at one distance, by L-BFGS from the solution of `SimplexPlus`. A random
    rotation of each block makes every direction uniform. The gain over "simplex-plus" is some hundredths at |x + y| =
    1. A block takes tens of evaluations of time d^3 each.

    Args:
        distance: |x + y| in lengthscales at which the conformity is minimized, at most 5.

    Raises:
        InvalidArgumentError: If the distance is not in (0, 5].

    Examples:
        >>> SimplexOptimized(2.0).sample(6, 3, seed=0).shape
        (6, 3)
    """

    def __init__(self, distance: float = 1.0) -> None:
        if not 0 < distance <= FARTHEST:
            raise InvalidArgumentError(f"distance must be positive and at most {FARTHEST:g}, got {distance!r}.")
        self.distance = float(distance)

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        check_gaussian(self, spectrum)
        starts = norm_adapted_simplices(norms_of_blocks(m, d, spectrum, generator), 20).numpy()
        vectors = np.array([least_conformity(block, self.distance) for block in starts])
        return rotated(torch.as_tensor(vectors), generator)[:m]

    def __repr__(self) -> str:
        return f"SimplexOptimized(distance={self.distance:g})"


def conformity(
    vectors: Any,  # (m, d)
    distances: Any,  # (k,)
) -> Array:  # (k,)
    """Return the RF-conformity of vectors (Reid et al. 2023, Eq. 12).

    It is the mean over i != j of H(|omega_i + omega_j| v), H(t) = E cosh(t u) for one coordinate u of a uniform
    direction. Theorem 3.2 there gives the mean squared error of positive features exp(omega . x - |x|^2), on average
    over the norms. At v = |x + y| it is

        exp(-2 |x|^2 - 2 |y|^2) / m [exp(2 v^2) - exp(v^2) + (m - 1) (conformity - exp(v^2))].

    Args:
        vectors: (m, d), at least two frequencies.
        distances: (k,), v in lengthscales.

    Raises:
        InvalidArgumentError: If the vectors are not a matrix of at least two rows.

    Examples:
        >>> conformity([[1.0, 0.0], [-1.0, 0.0]], [1.0]).tolist()  # the least that is possible
        [1.0]
        >>> conformity([[1.0, 0.0], [0.0, 1.0]], [1.0]).round(3).tolist()
        [1.566]
    """
    omega = real_array("vectors", vectors)
    if omega.ndim != 2 or len(omega) < 2:
        raise InvalidArgumentError(f"vectors must be a matrix (m, d) of at least two rows, got shape {omega.shape}.")
    lengths = np.sqrt(_squared_sums(omega)[~np.eye(len(omega), dtype=bool)])
    average = direction_average("laplace", omega.shape[1])
    return np.array([average(lengths * v).mean() for v in np.atleast_1d(real_array("distances", distances))])


def least_conformity(
    vectors: Array,  # (m, d)
    distance: float,
) -> Array:  # (m, d)
    """Return vectors of the same lengths whose directions minimize the conformity.

    The search is L-BFGS from the given directions.

    Args:
        vectors: The initial vectors, (m, d).
        distance: |x + y| in lengthscales.

    Returns:
        The vectors, (m, d).

    Examples:
        >>> vectors = least_conformity(np.eye(2), 1.0)
        >>> np.linalg.norm(vectors, axis=1).round(6).tolist(), conformity(vectors, [1.0]).round(3).tolist()
        ([1.0, 1.0], [1.0])
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)

    def objective(raw: Array) -> tuple[float, Array]:
        free = raw.reshape(vectors.shape)
        size = np.linalg.norm(free, axis=1, keepdims=True)
        unit = free / size
        value, slope = _pairs(norms * unit, distance)
        slope = slope - (slope * unit).sum(1, keepdims=True) * unit
        return value, (slope * norms / size).ravel()

    options = {"maxiter": 200, "ftol": 1e-8, "gtol": 1e-6}
    result = optimize.minimize(objective, (vectors / norms).ravel(), jac=True, method="L-BFGS-B", options=options)
    free = result.x.reshape(vectors.shape)
    return np.asarray(norms * free / np.linalg.norm(free, axis=1, keepdims=True))


def _pairs(omega: Array, distance: float) -> tuple[float, Array]:
    """Return log mean H over pairs i != j, and its gradient (m, d).

    H(t) = 0F1(; d/2; t^2 / 4).
    """
    m, d = omega.shape
    x = _squared_sums(omega) * distance**2 / 4
    off_diagonal = 1 - np.eye(m)
    total = (special.hyp0f1(d / 2, x) * off_diagonal).sum()
    slope = special.hyp0f1(d / 2 + 1, x) * off_diagonal * distance**2 / (2 * d)  # dH / d|omega_i + omega_j|^2
    gradient = 4 * (slope.sum(1, keepdims=True) * omega + slope @ omega)
    return float(np.log(total / (m * (m - 1)))), gradient / total


def _squared_sums(omega: Array) -> Array:
    """Return |omega_i + omega_j|^2 (m, m)."""
    squares = (omega**2).sum(1)
    return np.asarray(np.maximum(squares[:, None] + squares + 2 * omega @ omega.T, 0.0))


couplings.register("simplex-optimized", SimplexOptimized)
