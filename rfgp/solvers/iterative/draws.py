"""Draws from N(0, C^-1), and an estimate of the log determinant of C from them.

log |C| = log |D| + log |P| + tr log A. The trace is estimated by stochastic Lanczos quadrature with probes z on the
sphere |z|^2 = n (Ubaru, Chen and Saad 2017, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature"). It needs
no products of its own, because a draw from N(0, C^-1) solves A x = t with t ~ N(0, A). Hence t = A^(1/2) z for a normal
z, and the Lanczos matrix of its conjugate gradients gives

    n z^T log(A) z / |z|^2 = n t^T A^-1 log(A) t / t^T A^-1 t.

The standard error is computed from the variance over draws.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
from torch import Tensor

from rfgp.solvers.conjugate_gradients import CGSolution, Floats

_MAX_LANCZOS_STEPS = 1000
"""The maximum number of steps of conjugate gradients in a Lanczos matrix."""


class Estimate(NamedTuple):
    """An estimate from draws.

    Attributes:
        value: The estimate.
        error: Its standard error.
    """

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws from N(0, C^-1).

    Attributes:
        solved: The draws w, (n, m).
        squares: The squares w^T C w, (m,), n on average.
        cg_solution: The conjugate gradients of the solves.
        log_diagonals: The sum log |D| + log |P|.
    """

    solved: Tensor
    squares: Tensor
    cg_solution: CGSolution
    log_diagonals: float

    @cached_property
    def log_determinant(self) -> Estimate:
        """An estimate of log |C|. The error of a single draw is infinite."""
        values = len(self.solved) * _mean_logs(self.cg_solution)
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.inf
        return Estimate(self.log_diagonals + float(values.mean()), float(error))

    @cached_property
    def normalized(self) -> Tensor:
        """The draws w (n, m) scaled to w^T C w = n."""
        return self.solved * (len(self.solved) / self.squares).sqrt()


def _mean_logs(cg: CGSolution) -> Floats:
    """Return t^T A^-1 log(A) t / t^T A^-1 t for each of the right-hand sides t of the solution, (p,)."""
    means = []
    for alpha, beta in zip(cg.alphas[:_MAX_LANCZOS_STEPS].T, cg.betas[:_MAX_LANCZOS_STEPS].T, strict=True):
        steps = alpha > 0
        a, b = alpha[steps], beta[steps]
        diagonal = 1 / a
        diagonal[1:] += b[:-1] / a[:-1]
        values, vectors = _eigenpairs(diagonal, np.sqrt(b[:-1]) / a[:-1])
        weights = vectors[0] ** 2 / values
        means.append(weights @ np.log(values) / weights.sum())
    return np.array(means)


def _eigenpairs(diagonal: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Return eigenvalues and -vectors of a symmetric tridiagonal matrix.

    LAPACK's fast method fails on large ones.
    """
    try:
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, second)
    except np.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, second, lapack_driver="stev")
    return values, vectors
