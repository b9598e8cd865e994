"""Coefficients, draws and the log density of rows by conjugate gradients."""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.errors import SolverError
from rfgp.solvers.iterative.draws import Draws
from rfgp.solvers.iterative.operator import CGOperator

TOLERANCE = 1e-9
"""The relative residual of the solve for the mean."""
PATH_TOLERANCE = 1e-5
"""The relative residual of the solves for draws."""
NUM_PROBES, NUM_PATHS = 16, 64
"""The number of draws for gradients and the log determinant, and for variances."""


class Solutions:
    """The solutions for rows; nothing is solved before it is needed.

    Args:
        operator: C.
        residual: y - mean, (n, k).
        each: How often the log density of an output counts, (k,).
        tolerance: The relative residual of the solve for the mean.
    """

    def __init__(self, operator: CGOperator, residual: Tensor, each: Tensor, tolerance: float = TOLERANCE) -> None:
        self.operator, self._residual, self._each, self._tolerance = operator, residual.detach(), each, tolerance

    @cached_property
    def coefficients(self) -> Tensor:
        """The coefficients a = C^-1 (y - mean), (n, k)."""
        with torch.no_grad():
            return self.operator.solve(self._residual, self._tolerance)

    def converges(self, most: int) -> bool:
        """Return whether the coefficients are found in about so many iterations; then they are kept."""
        try:
            found = self.operator.solve(self._residual, self._tolerance, most, is_hurried=True)
        except SolverError:
            return False
        self.coefficients = found
        return bool(torch.isfinite(found).all())

    @cached_property
    def probes(self) -> Draws:
        """Draws for gradients and the log determinant."""
        return self.operator.draws(NUM_PROBES, PATH_TOLERANCE)

    @cached_property
    def draws(self) -> Tensor:
        """Draws for variances, (n, m)."""
        return self.operator.draws(NUM_PATHS, PATH_TOLERANCE).solved

    def log_density(self) -> Tensor:
        """Return an estimate of the log density of y, 0-d, without gradients."""
        n, k = len(self._residual), float(self._each.sum())
        square = (self._residual * self.coefficients).sum(0) @ self._each
        out: Tensor = -0.5 * (square + k * (self.probes.log_determinant.value + n * float(np.log(2 * np.pi))))
        return out

    @property
    def error(self) -> float:
        """The standard error of the log density."""
        return 0.5 * abs(float(self._each.sum())) * self.probes.log_determinant.error
