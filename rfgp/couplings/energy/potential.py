"""The energy of directions: pair potentials, their sums and gradients."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rfgp.errors import InvalidArgumentError
from rfgp.linalg import finite_rows, real_array
from rfgp.special import log_sphere_cosh, sphere_cosine
from rfgp.spectra import Spectrum
from rfgp.threads import single_threaded_blas

# --- The repulsion potential of frequencies: the second moment of a kernel estimate, as a table -----------------------
#
# Let omega_i = r_i u_i R, with one Haar rotation R for all frequencies. The estimate of k at distance z is
# k_hat(z) = sum_i w_i / m cos(omega_i . z). The cosines of sums and differences are averaged over R. Let
# C(t) = E cos(t u_1), with u uniform on the sphere. Then
#
#     E k_hat^2 = sum_ij w_i w_j / m^2 [C(|omega_i + omega_j| z) + C(|omega_i - omega_j| z)] / 2,
#     E k_hat   = sum_i  w_i / m C(r_i z).
#
# Source: Reid et al. (2024), Eqs. 16 to 18, before directions are restricted to orthogonal ones. For pairs omega,
# -omega of positive (Laplace) features exp(omega . x - |x|^2) the same holds with cosh instead of cos and v = |x + y|
# instead of z. The moments then have the factor exp(-2 |x|^2 - 2 |y|^2) = exp(-v^2 - |x - y|^2).
#
# k is fixed and the norms do not depend on directions. So as a function of directions the second moment is the mean
# squared error up to a constant. It is called the energy.

Array = NDArray[Any]

KINDS = ("fourier", "laplace")
DEFAULT_DISTANCES = np.linspace(0.3, 3.0, 10)
"""The default distances in lengthscales, over which a kernel decays from nearly 1 to nearly 0."""

_KNOTS = 4096
_MAX_DISTANCE, _MAX_DISTANCE_POSITIVE = 1e4, 20.0


@dataclass(frozen=True, eq=False)
class Potential:
    """A weighted sum of second moments over distances z (or v).

    It is a function of s = |omega_i +- omega_j|.

    Attributes:
        kind: "fourier" or "laplace".
        num_dims: d.
        distances: (k,), z or v, in lengthscales.
        log_distance_weights: (k,), log c_k, with c_k the weights of the second moments.
        means: (k,), E k_hat without the factor: k(z), or exp(v^2 / 2).

    Examples:
        >>> from rfgp import spectra
        >>> potential = make_potential("fourier", spectra.Gaussian(), 3)
        >>> potential.pair(np.array([0.0, 2.0])).round(3).tolist()  # the weights c_k add up to 1
        [1.0, 0.872]
    """

    kind: str
    num_dims: int
    distances: Array
    log_distance_weights: Array
    means: Array

    def pair(
        self,
        s: Array,  # (...)
    ) -> Array:  # (...)
        """Return V(s) = sum_k c_k C(s z_k).

        Args:
            s: The lengths |omega_i +- omega_j|, (...).
        """
        return self._sum(s, self.num_dims, np.ones_like(self.distances))

    def slope(
        self,
        s: Array,  # (...)
    ) -> Array:  # (...)
        """Return dV / d(s^2).

        C'(t) / (2 t) is -C(t) / (2 d) in d + 2 dimensions, with the sign + for cosh.
        """
        sign = -1.0 if self.kind == "fourier" else 1.0
        return self._sum(s, self.num_dims + 2, sign * self.distances**2 / (2 * self.num_dims))

    def mean_term(
        self,
        r: Array,  # (...)
    ) -> Array:  # (...)
        """Return sum_k c_k E[k_hat(z_k)] C(r z_k).

        It is the term of the error that is linear in the weights.

        Args:
            r: The norms, (...).
        """
        return self._sum(r, self.num_dims, self.means)

    def table(self, table_end: float) -> tuple[Array, Array, float]:
        """Tabulate V and its slope at equal steps of s.

        Args:
            table_end: The largest s.

        Returns:
            V and dV / d(s^2) at the knots, and the number of steps per unit of s.
        """
        s = np.linspace(0.0, table_end, _KNOTS)
        return self.pair(s), self.slope(s), (_KNOTS - 1) / table_end

    def _sum(self, s: Array, num_dims: int, factors: Array) -> Array:
        total = np.zeros_like(s, dtype=np.float64)
        for z, log_weight, factor in zip(self.distances, self.log_distance_weights, factors, strict=True):
            if self.kind == "fourier":
                total += factor * np.exp(log_weight) * sphere_cosine(s * z, num_dims)
            else:
                total += factor * np.exp(log_weight + log_sphere_cosh(s * z, num_dims))
        return total


def make_potential(kind: str, spectrum: Spectrum, num_dims: int, distances: Any = None) -> Potential:
    """Return the potential of a kind of features.

    Args:
        kind: "fourier" or "laplace".
        spectrum: Isotropic.
        num_dims: d.
        distances: (k, 2): distances in lengthscales and the weights of their squared errors, as `distances_between`
            returns them. If None, ten from 0.3 to 3. Each second moment is then divided by the variance of independent
            frequencies there, so that all lengthscales count alike. For positive features, it is divided by the
            variance of independent pairs omega, -omega, and multiplied by exp(-z^2), the squared scale of these
            features at x = y.

    Raises:
        InvalidArgumentError: If distances are invalid, or too large for positive features.

    Examples:
        >>> from rfgp import spectra
        >>> make_potential("laplace", spectra.Gaussian(), 3, [[1.0, 1.0]]).means.round(4).tolist()
        [1.6487]
    """
    if distances is not None:
        z, weights = check_distances(distances).T
        log_weights = np.log(weights)
    else:
        z, log_weights = DEFAULT_DISTANCES, np.zeros_like(DEFAULT_DISTANCES)
    if kind == "laplace":
        if z.max() > _MAX_DISTANCE_POSITIVE:
            raise InvalidArgumentError(
                f"|x + y| must be at most {_MAX_DISTANCE_POSITIVE:g} lengthscales for positive features, got "
                f"{z.max():.3g}. Center the inputs, or use Fourier features."
            )
        log_weights = log_weights - z**2
        if distances is None:
            log_weights -= 2 * np.log(np.expm1(z**2))  # E cosh(omega . s)^2 - (E cosh)^2, |s| = v, is half its square
        means = np.exp(z**2 / 2)
    else:
        means = spectrum.kernel(torch.as_tensor(z)).numpy()
        if distances is None:
            double = spectrum.kernel(torch.as_tensor(2 * z)).numpy()
            log_weights = -np.log((1 + double) / 2 - means**2)
    return Potential(kind, num_dims, z, log_weights - np.logaddexp.reduce(log_weights), means)


def check_distances(distances: Any) -> Array:
    """Return distances and weights (k, 2), float64.

    Args:
        distances: Distances in lengthscales and their weights, (k, 2).

    Raises:
        InvalidArgumentError: If the shape differs, or an entry is not positive and finite.

    Examples:
        >>> check_distances([[1, 0.5], [2, 0.5]]).tolist()
        [[1.0, 0.5], [2.0, 0.5]]
    """
    table = real_array("distances", distances)
    if table.ndim != 2 or table.shape[1] != 2 or len(table) == 0 or not np.isfinite(table).all() or table.min() <= 0:
        raise InvalidArgumentError(
            "distances must be (k, 2): positive distances and positive weights, as distances_between returns them."
        )
    if table[:, 0].max() > _MAX_DISTANCE:
        raise InvalidArgumentError(
            f"distances must be at most {_MAX_DISTANCE:g} lengthscales, got {table[:, 0].max():.3g}."
        )
    return table


def distances_between(
    x: Any,  # (n, d)
    kind: str = "fourier",
    num_distances: int = 10,
    num_pairs: int = 20_000,
) -> Array:  # (k, 2)
    """Return distances of scaled inputs with weights.

    They are an argument of `Energy(distances=...)`.

    Args:
        x: Inputs divided by the lengthscale, (n, d), n >= 2.
        kind: "fourier" for |x - y| over pairs with equal weights. "laplace" for |x + y|, each weighted by the mean of
            exp(-|x - y|^2) over its pairs.
        num_distances: k, the number of quantile groups. Each is represented by its root mean square.
        num_pairs: The largest number of pairs. They are spread evenly over all pairs.

    Returns:
        The distances in lengthscales and their weights, (k, 2).

    Raises:
        InvalidArgumentError: If there are fewer than two rows, values are not finite, or all rows coincide.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.distances_between([[0.0], [1.0], [3.0]], num_distances=3).tolist()
        [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]
    """
    rows = finite_rows(x, least=2).numpy()
    if np.abs(rows).max() > 1e100:
        raise InvalidArgumentError("x must be at most 1e100 in absolute value. Divide the inputs by the lengthscale.")
    if kind not in KINDS:
        raise InvalidArgumentError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if num_distances < 1 or num_pairs < 1:
        raise InvalidArgumentError(
            f"num_distances and num_pairs must be positive, got {num_distances!r} and {num_pairs!r}."
        )
    positions = np.unique(np.linspace(0, len(rows) * (len(rows) - 1) // 2 - 1, num_pairs).astype(np.int64))
    first, second = pair_at(positions)
    between = np.linalg.norm(rows[first] - rows[second], axis=1)
    lengths = between if kind == "fourier" else np.linalg.norm(rows[first] + rows[second], axis=1)
    weights = np.ones_like(between) if kind == "fourier" else np.exp(-(between**2))
    keep = lengths > 1e-9
    if not keep.any():
        raise InvalidArgumentError("x must have at least two distinct rows, got equal ones.")
    order = np.flatnonzero(keep)[np.argsort(lengths[keep], kind="stable")]
    groups = [group for group in np.array_split(order, num_distances) if len(group)]
    table = [(float(np.sqrt(np.mean(lengths[g] ** 2))), float(weights[g].mean())) for g in groups]
    return np.array([(z, max(weight, 1e-300)) for z, weight in table])


def pair_at(positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column indices of entries below the diagonal of a matrix.

    Args:
        positions: Positions in the row-by-row order of these entries, (k,).

    Returns:
        The indices i and j < i, (k,) each.

    Examples:
        >>> [indices.tolist() for indices in pair_at(np.arange(3))]
        [[1, 2, 2], [0, 0, 1]]
    """
    i = ((1 + np.sqrt(1 + 8 * positions.astype(np.float64))) / 2).astype(np.int64)
    i -= i * (i - 1) // 2 > positions  # from 10^8 rows on the root at the end of a row is rounded up
    return i, positions - i * (i - 1) // 2


# --- The energy of jointly drawn frequencies and its gradient, in a few nanoseconds per pair --------------------------
#
# The energy is the mean squared kernel error up to a constant.

_ROWS = 256
"""The number of rows of a block. It is fixed, so that results do not depend on the number of threads."""


def cores() -> int:
    """Return the number of cores that this process may use.

    Examples:
        >>> cores() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Repulsion:
    """The second moment of jointly drawn frequencies and its gradient, from a tabulated potential V.

    It is sum_ij w_i w_j [V(|omega_i + omega_j|) + V(|omega_i - omega_j|)] / 2.

    Args:
        potential: V.
        table_end: The largest |omega_i +- omega_j| in the table. Beyond it the last value and slope hold.

    Examples:
        >>> from rfgp import spectra
        >>> repulsion = Repulsion(make_potential("fourier", spectra.Gaussian(), 2), 8.0)
        >>> gradient, weight_gradient = repulsion(np.array([[0.0, 0.0], [1.0, 0.0]]), np.ones(2))
        >>> gradient.shape, weight_gradient.shape
        ((2, 2), (2,))
    """

    def __init__(self, potential: Potential, table_end: float) -> None:
        value, slope, per_length = potential.table(table_end)
        if not (np.isfinite(value).all() and np.isfinite(slope).all()):
            raise ArithmeticError("The potential is not finite.")
        self._value, self._slope = value.astype(np.float32), slope.astype(np.float32)
        self._per_length = np.float32(per_length)
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def threads(self) -> Iterator["Repulsion"]:
        """Run blocks of rows on all cores, with one BLAS thread each.

        Yields:
            The object itself.
        """
        with single_threaded_blas(), ThreadPoolExecutor(cores()) as pool:
            self._pool = pool
            try:
                yield self
            finally:
                self._pool = None

    def __call__(
        self,
        frequencies: Array,  # (m, d)
        weights: Array,  # (m,)
        with_weight_gradient: bool = True,
    ) -> tuple[Array, Array]:
        """Return the gradients in the frequencies and in the weights.

        Half the product of the second one with the weights is the second moment.

        Args:
            frequencies: The frequencies, (m, d).
            weights: The weights, (m,).
            with_weight_gradient: Whether the gradient in the weights is computed. The default is True.

        Returns:
            The gradients (m, d) and (m,), float64. The second one is empty if `with_weight_gradient` is False.
        """
        from rfgp.couplings.energy.loops import repel

        omega, w = np.ascontiguousarray(frequencies, np.float32), np.ascontiguousarray(weights, np.float32)
        squares = (omega**2).sum(1)
        if not np.isfinite(squares).all():  # the loop turns lengths into indices of a table
            raise ArithmeticError("The frequencies are not finite.")
        gradient, push = np.empty_like(omega), np.empty_like(squares)
        tables = self._value, self._slope, self._per_length
        weight_slopes = np.empty(len(omega) if with_weight_gradient else 0, np.float32)

        def block(start: int) -> None:
            rows = slice(start, start + _ROWS)
            gram = omega[rows] @ omega.T
            repel(gram, squares[rows], squares, w, *tables, push[rows], weight_slopes[rows])
            gradient[rows] = push[rows, None] * omega[rows] + gram @ omega

        starts = range(0, len(omega), _ROWS)
        _ = list(self._pool.map(block, starts) if self._pool else map(block, starts))
        return 2 * weights[:, None] * gradient, 2 * weight_slopes.astype(np.float64)
