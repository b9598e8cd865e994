"""The energy of jointly drawn frequencies and its gradient, in a few nanoseconds per pair.

The energy is the mean squared kernel error up to a constant.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.couplings.energy.potential import Potential
from rfgp.threads import single_threaded_blas

Array = NDArray[Any]

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
        >>> from rfgp.couplings.energy.potential import make_potential
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
