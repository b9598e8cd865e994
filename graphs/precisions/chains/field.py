"""Half-integer Matern processes of one column as Gaussian vectors with a block-tridiagonal precision."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers
from graphs.checks import check_count, is_number, short_repr
from graphs.errors import InvalidArgumentError
from graphs.precisions.base import Floats, MarkovField, Pattern, read_lengthscale
from graphs.precisions.chains.knots import hermite_projector
from graphs.precisions.chains.transition import (
    STATIONARY,
    Step,
    bridge,
    bridge_slopes,
    extrapolation,
    extrapolation_slopes,
    steps,
)


@dataclass(frozen=True, eq=False)
class ChainField(MarkovField):
    """A process of one column with a Matern kernel, nu = alpha - 1/2, at knots.

    The latent values at a knot are f, unit f', ..., unit^(alpha - 1) f^(alpha - 1), next to each other. Their precision
    is exact and block tridiagonal.

    Source: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to temporal Gaussian process
    regression models; the formulas are in `graphs.precisions.chains.transition`.

    Numerics: entries grow like (kappa gap)^(1 - 2 alpha) with kappa = sqrt(2 nu) / lengthscale, and covariances lose as
    many digits. They are accurate to about 1e-8 if gaps are at least `SPACING` of `graphs.precisions.chains.knots` over
    kappa. `place_knots` returns such knots.

    Attributes:
        knots: Distinct ascending numbers (K,).
        alpha: The order 1, 2 or 3, for nu = 1/2, 3/2 or 5/2.
        unit: The unit of the derivatives, in units of the knots.
        parameters: ("lengthscale",), in the units of the knots.
        coordinates: None.

    Raises:
        InvalidArgumentError: If the knots do not ascend, or alpha or the unit is invalid.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions import ChainField
        >>> field = ChainField([0.0, 1.0, 3.0], alpha=2)
        >>> Q = field.factor_at(np.array([2.0]))
        >>> Q.variances[::2].round(6).tolist()  # of f, which is followed by its derivative at each knot
        [1.0, 1.0, 1.0]
    """

    knots: ArrayLike
    alpha: int = 1
    unit: float = 1.0

    parameters = ("lengthscale",)

    def __post_init__(self) -> None:
        check_count("alpha", self.alpha, 1, 3)
        knots = as_numbers(self.knots)
        if knots.ndim != 1 or not len(knots) or not np.isfinite(knots).all() or not (np.diff(knots) > 0).all():
            raise InvalidArgumentError(
                f"knots must be ascending finite numbers (K,), got {short_repr(self.knots)}. Pass np.unique(knots)."
            )
        if not is_number(self.unit) or not 0 < self.unit < np.inf:
            raise InvalidArgumentError(f"unit must be a positive number, got {short_repr(self.unit)}.")
        object.__setattr__(self, "knots", knots)

    @cached_property
    def _block_exists(self) -> NDArray[np.bool_]:
        """A mask of the blocks before, at and after each knot that exist, (K, alpha, 3, alpha)."""
        size = len(self._gaps) + 1
        exists = np.ones((size, self.alpha, 3, self.alpha), dtype=bool)
        exists[0, :, 0], exists[-1, :, 2] = False, False
        return exists

    @cached_property
    def _gaps(self) -> Floats:
        """The distances between knots, (K - 1,)."""
        return np.diff(np.asarray(self.knots))

    @cached_property
    def pattern(self) -> Pattern:
        """Pairs of values at the same knot and at neighboring knots."""
        a, exists = self.alpha, self._block_exists
        first = a * np.arange(len(exists)) - a
        columns = np.broadcast_to(first[:, None, None] + np.arange(3 * a).reshape(3, a), (*exists.shape[:1], 3, a))
        indices = np.broadcast_to(columns[:, None], exists.shape)[exists]
        starts = np.concatenate([[0], np.cumsum(exists.sum((2, 3)).reshape(-1))])
        return Pattern(starts.astype(np.int64), indices.astype(np.int32))

    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries (nnz,) of Q on the pattern for a lengthscale.

        Args:
            values: The lengthscale (1,).

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number.
        """
        kappa = self._kappa(values)
        return self._on_pattern(steps(self.alpha, kappa * self._gaps)[0], kappa)

    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d lengthscale, (1,).

        Args:
            values: The lengthscale (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        kappa = self._kappa(values)
        x = kappa * self._gaps
        step, slope = steps(self.alpha, x)
        dense_weights = np.zeros(self._block_exists.shape)
        dense_weights[self._block_exists] = weights
        dense_weights *= self._scales(kappa)
        diagonal, cross = dense_weights[:, :, 1], dense_weights[:-1, :, 2] + np.swapaxes(dense_weights[1:, :, 0], 1, 2)
        pulled = sum(
            (a * b).sum((1, 2))
            for a, b in ((slope.left, diagonal[:-1]), (slope.right, diagonal[1:]), (slope.cross, cross))
        )
        entries = np.zeros(self._block_exists.shape)
        entries[self._block_exists] = self._on_pattern(step, kappa)
        orders = np.arange(self.alpha)[:, None, None] + np.arange(self.alpha)
        unscaled_weights = np.zeros(self._block_exists.shape)
        unscaled_weights[self._block_exists] = weights
        return np.array([((orders * entries * unscaled_weights).sum() - float(x @ pulled)) / float(values[0])])

    def log_determinant(
        self,
        values: Floats,  # (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivative (1,), from the chain of conditionals.

        Args:
            values: The lengthscale (1,).
        """
        kappa, lengthscale = self._kappa(values), float(values[0])
        x = kappa * self._gaps
        step, slope = steps(self.alpha, x)
        orders = len(self._block_exists) * self.alpha * (self.alpha - 1)  # 2 K sum_j j
        value = float(step.log_determinant.sum()) - float(np.linalg.slogdet(STATIONARY[self.alpha])[1])
        value -= orders * math.log(kappa * self.unit)
        return value, np.array([(orders - float(x @ slope.log_determinant)) / lengthscale])

    def projector(
        self,
        points: ArrayLike,  # (n,)
    ) -> sp.csr_array:  # (n, N)
        """Return the matrix that maps latent values to f at points between the knots.

        It is exact at knots, and Hermite interpolation between them.

        Args:
            points: Numbers (n,) between the first and the last knot, in the units of the knots.

        Raises:
            InvalidArgumentError: If a point is outside the knots.
        """
        return hermite_projector(np.asarray(self.knots), as_numbers(points), self.alpha, self.unit)

    def conditional(
        self,
        values: Floats,  # (1,)
        points: ArrayLike,  # (n,)
    ) -> tuple[sp.csr_array, Floats]:  # (n, N), (n,)
        """Return the conditional mean and variance of f at points, given the latent values.

        The prior variance is 1. Points may be anywhere. At a knot the conditional variance is 0. Errors of points
        between the same knots, or beyond the same end, are correlated.

        Args:
            values: The lengthscale, (1,).
            points: Numbers (n,), in the units of the knots.

        Returns:
            The matrix A (n, N) from latent values to conditional means, and the conditional variances (n,).

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number.
        """
        kappa, knots, given = self._kappa(values), np.asarray(self.knots), as_numbers(points)
        after = np.searchsorted(knots, given)  # knots[after - 1] < point <= knots[after]
        weights, variances = self._evaluate(kappa, given, after, (bridge, extrapolation), 1.0)
        exact = knots[np.minimum(after, len(knots) - 1)] == given
        weights[exact], variances[exact] = 0.0, 0.0
        weights[exact, 1, 0] = 1.0
        return self._matrix(after, weights * self._scales(kappa)[0, 0]), variances

    def conditional_slopes(
        self,
        values: Floats,  # (1,)
        points: ArrayLike,  # (n,)
    ) -> tuple[sp.csr_array, Floats]:  # (n, N), (n,)
        """Return the derivatives of the results of `conditional` in the points.

        For alpha 1 the derivatives on both sides of a knot differ. At a knot their mean is returned.

        Args:
            values: The lengthscale, (1,).
            points: Numbers (n,), in the units of the knots.

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number.
        """
        kappa, knots, given = self._kappa(values), np.asarray(self.knots), as_numbers(points)
        reads, slopes = sp.csr_array((len(given), self.alpha * len(knots))), np.zeros(len(given))
        for after in (np.searchsorted(knots, given, side="left"), np.searchsorted(knots, given, side="right")):
            weights, slope_of_knot = self._evaluate(kappa, given, after, (bridge_slopes, extrapolation_slopes), -1.0)
            reads = reads + self._matrix(after, kappa / 2 * weights * self._scales(kappa)[0, 0])
            slopes += kappa / 2 * slope_of_knot
        return reads, slopes

    def _evaluate(
        self,
        kappa: float,
        points: Floats,  # (n,)
        after: NDArray[np.int64],  # (n,)
        formulas: tuple[Callable[..., tuple[Floats, ...]], Callable[..., tuple[Floats, ...]]],
        sign: float,
    ) -> tuple[Floats, Floats]:  # (n, 2, alpha), (n,)
        """Evaluate formulas of the transition at points among knots.

        Args:
            kappa: sqrt(2 nu) / lengthscale.
            points: Numbers, in the units of the knots.
            after: The indices of the knots after the points.
            formulas: One for points between two states, and one for points after the last state.
            sign: 1, or -1 if the formulas are derivatives, which change their sign before the first state.

        Returns:
            Weights of the states at two knots, and numbers.
        """
        (within, outside), knots = formulas, np.asarray(self.knots)
        weights, numbers = np.zeros((len(points), 2, self.alpha)), np.zeros(len(points))
        first, last = np.flatnonzero(after == 0), np.flatnonzero(after == len(knots))
        weight, number = outside(self.alpha, kappa * (knots[0] - points[first]))
        weights[first, 1] = sign * weight * (-1.0) ** np.arange(self.alpha)  # derivatives in reversed direction
        numbers[first] = sign * number
        weights[last, 0], numbers[last] = outside(self.alpha, kappa * (points[last] - knots[-1]))
        inside = np.flatnonzero((after > 0) & (after < len(knots)))
        x, y = points[inside] - knots[after[inside] - 1], knots[after[inside]] - points[inside]
        weights[inside, 0], weights[inside, 1], numbers[inside] = within(self.alpha, kappa * x, kappa * y)
        return weights, numbers

    def _matrix(self, after: NDArray[np.int64], weights: Floats) -> sp.csr_array:
        """Return the matrix (n, N) of weights (n, 2, alpha) of neighboring states."""
        knots = np.stack([after - 1, after], axis=1)
        columns = self.alpha * knots[:, :, None] + np.arange(self.alpha)
        is_stored = (weights != 0) & ((knots >= 0) & (knots < len(self._block_exists)))[:, :, None]
        starts = np.concatenate([[0], np.cumsum(is_stored.sum((1, 2)))])
        size = self.alpha * len(self._block_exists)
        return sp.csr_array((weights[is_stored], columns[is_stored], starts), shape=(len(after), size))

    def _on_pattern(self, step: Step, kappa: float) -> Floats:
        """Return the entries (nnz,) of the energies of steps and of the first state."""
        blocks = np.zeros(self._block_exists.shape)
        blocks[0, :, 1] = np.linalg.inv(STATIONARY[self.alpha])
        blocks[:-1, :, 1] += step.left
        blocks[1:, :, 1] += step.right
        blocks[:-1, :, 2] = step.cross
        blocks[1:, :, 0] = np.swapaxes(step.cross, 1, 2)
        return np.asarray((blocks * self._scales(kappa))[self._block_exists])

    def _scales(self, kappa: float) -> Floats:
        """Return the factors (alpha, 1, alpha) of entries for derivatives with a unit."""
        powers = (kappa * self.unit) ** -np.arange(float(self.alpha))
        return powers[:, None, None] * powers

    def _kappa(self, values: Floats) -> float:
        """Return sqrt(2 nu) / lengthscale."""
        return math.sqrt(2 * self.alpha - 1) / read_lengthscale(values)
