"""Linear systems with the covariance of rows by conjugate gradients, draws and log determinants.

Source: Saad (2003), Iterative methods for sparse linear systems, Algorithm 9.1.

The systems (K + D) a = y - mean and (K + D) z = k(X, x) are solved together by conjugate gradients. Each step computes
K again in blocks of rows. Memory is O(n M), and a step takes O(n^2 (d + q)). The preconditioner is D + U U^T, the
Nystrom approximation with M of the rows. The variance k(x, x) - k(x, X) z decreases to the exact one. The result
contains the largest relative residual of the systems.

log |C| = log |D| + log |P| + tr log A. The trace is estimated by stochastic Lanczos quadrature with probes z on the
sphere |z|^2 = n (Ubaru, Chen and Saad 2017, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature"). It needs
no products of its own, because a draw from N(0, C^-1) solves A x = t with t ~ N(0, A). Hence t = A^(1/2) z for a normal
z, and the Lanczos matrix of its conjugate gradients gives

    n z^T log(A) z / |z|^2 = n t^T A^-1 log(A) t / t^T A^-1 t.

The standard error is computed from the variance over draws.

Let H = [H_1, H_2, ...] and Psi = D^(-1/2) H. All solves are with B = I + Psi Psi^T = D^(-1/2) C D^(-1/2), or with A = R
B R^T for a preconditioner P = (R^T R)^-1.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.blocks.precision import Array
from rfgp.counts import counted
from rfgp.errors import SolverError
from rfgp.linalg import cholesky, half_solve
from rfgp.rows import Block
from rfgp.sparse import multiply, row_blocks

# --- Conjugate gradients for several right-hand sides, with preconditioning ------------------------------------------

Floats = NDArray[np.float64]
Map = Callable[[Tensor], Tensor]


class CGSolution(NamedTuple):
    """Solutions by conjugate gradients, and the coefficients of their steps.

    Attributes:
        solution: The solution x, (n, p), or (n + c, p) if the preconditioner returns c further rows.
        residual: The recursive estimate of |right - A x| / |right| of each column, (p,).
        alphas: The lengths of the steps, (k, p), 0 after the last step of a column.
        betas: The coefficients of the last direction in the next one, (k, p), 0 after the last step of a column.
        is_indefinite: Whether a column stopped at a direction of curvature <= 0, (p,).
    """

    solution: Tensor
    residual: Tensor
    alphas: Floats
    betas: Floats
    is_indefinite: Tensor

    @property
    def num_steps(self) -> int:
        """The largest number of steps of a column."""
        return len(self.alphas)

    @classmethod
    def joined(cls, parts: Sequence["CGSolution"]) -> "CGSolution":
        """Return the solutions of blocks of columns as one solution.

        Args:
            parts: The solutions of the blocks, in order.
        """
        steps = max(part.num_steps for part in parts)
        alphas, betas = (
            np.concatenate([np.pad(values, ((0, steps - len(values)), (0, 0))) for values in pair], axis=1)
            for pair in zip(*((part.alphas, part.betas) for part in parts), strict=True)
        )
        solution = torch.cat([part.solution for part in parts], dim=1)
        residual = torch.cat([part.residual for part in parts])
        return cls(solution, residual, alphas, betas, torch.cat([part.is_indefinite for part in parts]))


def conjugate_gradients(
    product: Map,
    right: Tensor,  # (n, p)
    tolerance: float | Tensor,  # () or (p,)
    max_iterations: int,
    precondition: Map | None = None,
    *,
    stop_on_negative_curvature: bool = False,
) -> CGSolution:
    """Solve A x = right for each column by conjugate gradients, starting at 0.

    Converged columns are frozen.

    `linear_cg` of linear_operator differs: it takes a fixed number of steps if Lanczos matrices are requested, and its
    tolerance is for the mean over columns.

    Args:
        product: Maps v (n, p) to A v (n, p), for a symmetric A (n, n).
        right: The right-hand sides.
        tolerance: A column has converged if |right - A x| <= tolerance |right|.
        max_iterations: The maximum number of steps.
        precondition: Maps r (n, p) to M^-1 r (n, p), for a symmetric and positive definite M near A. It may return
            further rows (n + c, p) that are linear in r, such as K^-1 M^-1 r. Directions and solution then have these
            rows too, and `product` receives them. If None, M = I.
        stop_on_negative_curvature: Whether a column stops at a direction d with d^T A d <= 0. Otherwise A must be
            positive definite.

    Returns:
        The solutions, and the coefficients of the Lanczos matrices.

    Examples:
        >>> import torch
        >>> from rfgp.solvers.iterative.operator import conjugate_gradients
        >>> found = conjugate_gradients(lambda v: 2 * v, torch.tensor([[2.0], [4.0]]), 1e-6, max_iterations=10)
        >>> found.solution.tolist(), found.num_steps
        ([[1.0], [2.0]], 1)
    """
    n, residual = len(right), right.clone()
    z = residual if precondition is None else precondition(residual)
    x, direction = torch.zeros_like(z), z.clone()
    first = square = residual.square().sum(0)
    rho = square if precondition is None else (residual * z[:n]).sum(0)
    limit, steps = square * tolerance**2, 0
    is_indefinite = torch.zeros_like(square, dtype=torch.bool)
    history = right.new_empty(2, max_iterations, right.shape[1])  # one block, so that glibc can reuse large blocks
    while steps < max_iterations and bool((is_active := (square > limit) & (rho > 0) & ~is_indefinite).any()):
        image = product(direction)
        curvature = (direction[:n] * image).sum(0)
        if stop_on_negative_curvature:
            is_indefinite |= is_active & (curvature <= 0)
            is_active &= ~is_indefinite
        alpha = torch.where(is_active, rho / curvature, 0.0)
        x.addcmul_(direction, alpha)
        residual.addcmul_(image, alpha, value=-1)
        square = torch.where(is_active, residual.square().sum(0), square)
        z = residual if precondition is None else precondition(residual)
        new_rho = square if precondition is None else (residual * z[:n]).sum(0)
        beta = torch.where(is_active, new_rho / rho, 0.0)
        direction.mul_(beta).add_(z)
        rho = torch.where(is_active, new_rho, rho)
        history[0, steps], history[1, steps] = alpha, beta
        steps += 1
    alphas, betas = history[:, :steps].cpu().numpy().copy()
    return CGSolution(x, (square / first.where(first > 0, 1.0)).sqrt(), alphas, betas, is_indefinite)


# --- The exact marginal posteriors at a few points, given any number of rows -----------------------------------------

MAX_SOLVE_ITERATIONS = 200
"""The maximum number of iterations of conjugate gradients."""
MARGINAL_TOLERANCE = 1e-4
"""The largest relative residual of a solved system."""
MAX_POINTS = 1000
"""The maximum number of rows of the preconditioner."""
OPERATIONS_PER_ENTRY = 400.0
"""The number of operations for one entry of distances and kernels. Most of the time is memory access."""
ENTRIES = 2**21
"""The number of entries of a block of the matrix."""


@dataclass(frozen=True, eq=False)
class ExactMarginals:
    """The exact marginal posteriors at q points.

    Attributes:
        mean: The means (q, k), standardized.
        variance: The variances (q,), standardized.
        residual: The largest relative residual of the systems.
        steps: The number of steps of conjugate gradients.
    """

    mean: Tensor
    variance: Tensor
    residual: float
    steps: int


def exact_marginals(
    prior: Prior,
    rows: Block,
    mean: Tensor,  # (k,)
    noise: Tensor,  # 0-d
    points: Tensor,  # (q, d)
    *,
    generator: torch.Generator,
) -> ExactMarginals:
    """Return the exact marginal posteriors at q points.

    Args:
        prior: The exact prior.
        rows: The data.
        mean: The prior mean of each output, standardized.
        noise: The variance of one observation, standardized.
        points: The inputs of the points, standardized.
        generator: Draws the rows of the preconditioner.
    """
    x, k = rows.inputs.double(), rows.num_outputs
    cross = prior.kernel(x, points.double())
    right = torch.cat([rows.targets - mean, cross], dim=1)
    diagonal = rows.noise_diag(noise).expand(len(rows)).double()
    nystrom = _nystrom(prior, x, diagonal, generator)
    solved = conjugate_gradients(
        lambda v: _product(prior, x, diagonal, v), right, MARGINAL_TOLERANCE, MAX_SOLVE_ITERATIONS, nystrom
    )
    variance = prior.diagonal(points.double()) - (cross * solved.solution[:, k:]).sum(0)
    fitted = mean + cross.mT @ solved.solution[:, :k]
    return ExactMarginals(fitted, variance.clamp_min(0), float(solved.residual.max()), solved.num_steps)


def step_operations(rows: int, columns: int, points: int) -> float:
    """Return the number of operations of a step of conjugate gradients.

    Args:
        rows: The number of rows.
        columns: The number of input columns.
        points: The number of points.
    """
    return float(rows) ** 2 * (2.0 * columns + 2.0 * (points + 1) + OPERATIONS_PER_ENTRY)


def _nystrom(prior: Prior, x: Tensor, diagonal: Tensor, generator: torch.Generator) -> Map:
    """Return the map of v (n, p) to (D + U U^T)^-1 v, by the inverse of I + U^T D^-1 U."""
    chosen = torch.randperm(len(x), generator=generator)[: min(MAX_POINTS, max(1, len(x) // 2))]
    subset = x[chosen]
    inner = prior.kernel(subset, subset)
    jitter = 1e-6 * inner.diagonal().mean() * torch.eye(len(subset), dtype=inner.dtype)
    root = cholesky(inner + jitter, "the kernel of the preconditioner's rows")
    u = half_solve(root, prior.kernel(subset, x)).mT
    scaled = u / diagonal[:, None]
    within = torch.eye(len(subset), dtype=u.dtype) + u.mT @ scaled
    factor = cholesky(within, "the preconditioner")
    return lambda v: v / diagonal[:, None] - scaled @ torch.cholesky_solve(scaled.mT @ v, factor)


def _product(prior: Prior, x: Tensor, diagonal: Tensor, v: Tensor) -> Tensor:
    """Return (K + D) v (n, p), with K in blocks of rows."""
    size = max(1, ENTRIES // len(x))
    parts = [prior.kernel(x[first : first + size], x) @ v for first in range(0, len(x), size)]
    return torch.cat(parts) + diagonal[:, None] * v


# --- The parts H (n, N) of a covariance H H^T at rows, as products ---------------------------------------------------

MAX_DENSE_COLUMNS = 1000
"""The maximum number of columns of a part that is formed as a dense matrix, unless it is dense."""
MAX_OPERATIONS_PER_ENTRY = 4
"""The maximum ratio of operations for H H^T to nonzeros of a sparse H for which H H^T is formed."""


class Part(ABC):
    """Interface: a root H (n, N) of a covariance H H^T.

    Attributes:
        num_columns: The number N of columns.
        num_dense: The number of dense columns, which have large eigenvalues.
    """

    num_columns: int
    num_dense = 0

    def dense_columns(self) -> Tensor | None:
        """Return H (n, N) as a dense matrix, or None.

        The matrix is returned if it is dense or has at most 1,000 columns.
        """
        eye = torch.eye(self.num_columns, dtype=torch.float64) if self.num_columns <= MAX_DENSE_COLUMNS else None
        return None if eye is None else self.root_times(eye)

    @abstractmethod
    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p).

        Args:
            u: The vectors u, (N, p).
        """

    @abstractmethod
    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N, p).

        Args:
            v: The vectors v, (n, p).
        """

    def times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p).

        Matrices are cached for further products.

        Args:
            v: The vectors v, (n, p).
        """
        return self.root_times(self.transposed_root_times(v))

    def over(self, deviation: Tensor) -> "Part":
        """Return the part D^-1 H.

        Args:
            deviation: The diagonal of D, (n,), positive.
        """
        return _Divided(self, deviation)


class _Divided(Part):
    """D^-1 H."""

    def __init__(self, part: Part, deviation: Tensor) -> None:
        self._part, self._deviation, self.num_columns = part, deviation[:, None], part.num_columns

    def root_times(self, u: Tensor) -> Tensor:
        return self._part.root_times(u) / self._deviation

    def transposed_root_times(self, v: Tensor) -> Tensor:
        return self._part.transposed_root_times(v / self._deviation)


class SparsePart(Part):
    """A sparse H = diag(s) M, such as the features of random walks.

    Methods have the arguments of those of `Part`.

    Args:
        matrix: The matrix M, (n, N).
        scale: The scale s, (n,), or one for all rows.
    """

    def __init__(self, matrix: sp.csr_array, scale: float | Array) -> None:
        self._unscaled, self._scale = matrix, np.broadcast_to(scale, matrix.shape[:1])
        self.num_columns = int(matrix.shape[1])
        entries = matrix.data * np.repeat(self._scale, np.diff(matrix.indptr))
        self._matrix = sp.csr_array((entries, matrix.indices, matrix.indptr), shape=matrix.shape)

    def over(self, deviation: Tensor) -> "SparsePart":
        """Return the part D^-1 H, for a diagonal D (n,)."""
        return SparsePart(self._unscaled, self._scale / deviation.numpy())

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        return torch.from_numpy(self._matrix @ u.numpy())

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N, p)."""
        return torch.from_numpy(self._matrix.T @ v.numpy())

    def times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p), in threads, through H H^T if it is sparse."""
        if self._gram is not None:
            return torch.from_numpy(multiply(self._gram, v.numpy()))
        left, right = self._factors
        return torch.from_numpy(multiply(left, multiply(right, v.numpy())))

    @cached_property
    def _gram(self) -> list[sp.csr_array] | None:
        """H H^T if it is sparse, and None otherwise."""
        counts = np.bincount(self._matrix.indices, minlength=self.num_columns).astype(np.float64)
        if counts @ counts > MAX_OPERATIONS_PER_ENTRY * self._matrix.nnz:
            return None
        return row_blocks(sp.csr_array(self._matrix @ self._matrix.T))

    @cached_property
    def _factors(self) -> tuple[list[sp.csr_array], list[sp.csr_array]]:
        return row_blocks(self._matrix), row_blocks(self._matrix.T.tocsr())


class DensePart(Part):
    """A dense H, such as random features.

    Methods have the arguments of those of `Part`.

    Args:
        matrix: The matrix H, (n, F), float64.

    Examples:
        >>> part = DensePart(torch.tensor([[1.0], [2.0]]).double())
        >>> part.times(torch.tensor([[1.0], [1.0]]).double()).tolist()
        [[3.0], [6.0]]
    """

    def __init__(self, matrix: Tensor) -> None:
        self._matrix, self.num_columns, self.num_dense = matrix, matrix.shape[1], matrix.shape[1]

    def dense_columns(self) -> Tensor:
        """Return H (n, F)."""
        return self._matrix

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        return self._matrix @ u

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (F, p)."""
        return self._matrix.mT @ v


# --- Draws from N(0, C^-1), and an estimate of the log determinant of C from them ------------------------------------

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


# --- Linear systems in C = sum_t H_t H_t^T + D, and draws from N(0, C^-1) --------------------------------------------

MAX_ITERATIONS = 2000
"""The maximum number of iterations of a round, after which conjugate gradients restart from the true residual."""
ROUNDS = 3
"""The maximum number of rounds, including the first."""
MAX_NUMBERS = 2**21
"""The maximum number of entries of right-hand sides (n, p) in one solve. About 30 such arrays are in memory at once."""
MIN_COLUMNS = 16
"""The minimum number of columns of right-hand sides in one solve."""


class Preconditioner(Protocol):
    """Interface: P = (R^T R)^-1, an approximation of B.

    The matrix B is I + D^(-1/2) (sum_t H_t H_t^T) D^(-1/2).
    """

    def half_solve(self, v: Tensor) -> Tensor:
        """Return R v, (n, p), for the root R of P^-1.

        Args:
            v: The p right-hand sides, (n, p).
        """

    def half_solve_transposed(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p).

        Args:
            v: The p right-hand sides, (n, p).
        """

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|."""


@dataclass(frozen=True, eq=False)
class CGOperator:
    """The covariance C = sum_t H_t H_t^T + D for parts H_t (n, N_t) and a diagonal D.

    Attributes:
        parts: The parts.
        noise_diag: The diagonal D, (n,), positive.
        seed: The seed of draws and of the preconditioner.
        precondition: Returns a preconditioner for an operator.
        advice: A remedy for the message of a failed solve.

    Examples:
        >>> from rfgp.solvers.iterative.operator import DensePart
        >>> from rfgp.solvers.iterative.products import nystrom
        >>> H = torch.tensor([[1.0], [2.0]]).double()
        >>> operator = CGOperator([DensePart(H)], torch.ones(2).double(), 0, nystrom, "Add noise.")
        >>> operator.solve(operator.product(H), 1e-9).round(decimals=6).tolist()
        [[1.0], [2.0]]
    """

    parts: Sequence[Part]
    noise_diag: Tensor
    seed: int
    precondition: "Callable[[CGOperator], Preconditioner]"
    advice: str

    def __len__(self) -> int:
        return len(self.noise_diag)

    @cached_property
    def deviation(self) -> Tensor:
        """D^(1/2), (n,)."""
        return self.noise_diag.sqrt()

    @property
    def num_columns(self) -> int:
        """The number of columns of H."""
        return sum(part.num_columns for part in self.parts)

    @cached_property
    def preconditioner(self) -> Preconditioner:
        """The preconditioner."""
        return self.precondition(self)

    def split(self, u: Tensor) -> Sequence[Tensor]:
        """Return the rows (N_t, p) of u that belong to each part.

        Args:
            u: The vectors u, (N, p).
        """
        return torch.split(u, [part.num_columns for part in self.parts])

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p).

        Args:
            u: The vectors u, (N, p).
        """
        return total([part.root_times(values) for part, values in zip(self.parts, self.split(u), strict=True)])

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N, p).

        Args:
            v: The vectors v, (n, p).
        """
        return torch.cat([part.transposed_root_times(v) for part in self.parts])

    @cached_property
    def _scaled_parts(self) -> list[Part]:
        """D^(-1/2) H_t."""
        return [part.over(self.deviation) for part in self.parts]

    def covariance_times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return total([part.root_times(part.transposed_root_times(v)) for part in self.parts])

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.deviation[:, None] * self.scaled_product(self.deviation[:, None] * v)

    def scaled_product(self, v: Tensor) -> Tensor:
        """Return B v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return v + total([part.times(v) for part in self._scaled_parts])

    def solve(
        self, right: Tensor, tolerance: float, max_iterations: int | None = None, *, fail_early: bool = False
    ) -> Tensor:
        """Return C^-1 right, (n, p).

        There are up to three rounds. Each continues from the true residual of the last one.

        Args:
            right: The right-hand sides, (n, p).
            tolerance: The largest |D^(-1/2) (C x - right)| / |D^(-1/2) right| over all columns.
            max_iterations: The maximum number of iterations of each round. If None, 2,000.
            fail_early: Whether to fail after round i if a relative residual exceeds tolerance^(i / 3). The default is
                False.

        Raises:
            SolverError: If the tolerance is not reached, or D^(-1/2) right is not finite.
        """
        return self._solve_with_history(right, tolerance, max_iterations, fail_early)[0]

    def draws(self, count: int, tolerance: float) -> Draws:
        """Draw w = C^-1 (H u + D^(1/2) e), with u and e from `prior_weights`.

        Each w ~ N(0, C^-1), and u - H^T w are the weights of a draw from the posterior for targets of zero, by pathwise
        conditioning (Wilson et al. 2020).

        Args:
            count: The number m of draws.
            tolerance: The relative residual of the solves.

        Raises:
            SolverError: If the tolerance is not reached.
        """
        u, e = self.prior_weights(count)
        parts = zip(self._scaled_parts, self.split(u), strict=True)
        right = self.deviation[:, None] * (total([part.root_times(values) for part, values in parts]) + e)
        w, cg = self._solve_with_history(right, tolerance)
        logs = 2 * float(self.deviation.log().sum()) + self.preconditioner.log_determinant
        return Draws(w, (w * right).sum(0), cg, logs)

    def prior_weights(self, count: int) -> tuple[Tensor, Tensor]:
        """Return standard normal u (N, m) and e (n, m), the same at every call.

        Args:
            count: The number m of draws.
        """
        shapes = ((self.num_columns, count), (len(self), count))
        u, e = (torch.from_numpy(generator(self.seed, 2 + i).standard_normal(shape)) for i, shape in enumerate(shapes))
        return u, e

    def _solve_with_history(
        self, right: Tensor, tolerance: float, max_iterations: int | None = None, fail_early: bool = False
    ) -> tuple[Tensor, CGSolution]:
        """Return C^-1 right, (n, p), and the CG run of the first round, which takes nearly all steps."""
        blocks = torch.split(right, columns_at_once(max(len(self), self.num_columns // 2)), dim=1)
        parts = [self._solve_block(block, tolerance, max_iterations or MAX_ITERATIONS, fail_early) for block in blocks]
        if len(parts) == 1:
            return parts[0]
        solved, runs = zip(*parts, strict=True)
        return torch.cat(solved, 1), CGSolution.joined(runs)

    def _solve_block(
        self, right: Tensor, tolerance: float, max_iterations: int, fail_early: bool
    ) -> tuple[Tensor, CGSolution]:
        """Return the result of `_solve_with_history` for columns that fit in memory."""
        b, precondition = right / self.deviation[:, None], self.preconditioner
        largest = b.abs().amax(0)
        if not bool(torch.isfinite(largest).all()):
            raise SolverError(
                "A linear system of the fit must be finite, got an overflow. Scale features, noise or targets."
            )
        largest = largest.where(largest > 0, 1.0)  # squares of the scaled residual neither overflow nor vanish
        b = b / largest
        first = self._run_cg(b, 0.1 * tolerance, max_iterations)
        x, sizes = precondition.half_solve_transposed(first.solution), b.norm(dim=0)
        for attempt in range(1, ROUNDS + 1):  # the recursive residual of a run drifts from the true one
            rest = b - self.scaled_product(x)
            residual = rest.norm(dim=0) / sizes.where(sizes > 0, 1.0)
            if bool((residual <= tolerance).all()):
                return largest * x / self.deviation[:, None], first
            if fail_early and bool((residual > tolerance ** (attempt / ROUNDS)).any()):
                break
            if attempt < ROUNDS:
                again = self._run_cg(rest, 0.1 * tolerance / residual, max_iterations)
                x = x + precondition.half_solve_transposed(again.solution)
        raise SolverError(
            f"The relative residual of {counted(len(self), 'observation')} must be at most {tolerance:.0e}, got "
            f"{float(residual.max()):.1e} after {attempt} x {counted(max_iterations, 'iteration')} of conjugate "
            f"gradients. The noise is too small for the signal. {self.advice}"
        )

    def _run_cg(self, b: Tensor, tolerance: float | Tensor, max_iterations: int) -> CGSolution:
        """Return the solution of R B R^T x = R b."""
        precondition = self.preconditioner

        def product(v: Tensor) -> Tensor:
            return precondition.half_solve(self.scaled_product(precondition.half_solve_transposed(v)))

        return conjugate_gradients(product, precondition.half_solve(b), tolerance, max_iterations)


def dense_columns_except(operator: CGOperator, part: Part) -> Tensor:
    """Return the columns (n, c) of the other parts, if they are dense or few.

    Args:
        operator: The operator.
        part: The excluded part.
    """
    others = [other.dense_columns() for other in operator.parts if other is not part]
    none = operator.noise_diag.new_zeros(len(operator), 0)
    return torch.cat([none, *(columns for columns in others if columns is not None)], dim=1)


def columns_at_once(rows: int) -> int:
    """Return the number of right-hand sides in one solve.

    Args:
        rows: The number of rows of the system.
    """
    return max(MAX_NUMBERS // max(rows, 1), MIN_COLUMNS)


def generator(seed: int, role: int) -> np.random.Generator:
    """Return the random generator for one of the roles of an operator's seed.

    Args:
        seed: The seed.
        role: The index of the role.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(role,)))


def total(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of a common shape, (...).

    Args:
        parts: The tensors, at least one.
    """
    return sum(parts[1:], start=parts[0])
