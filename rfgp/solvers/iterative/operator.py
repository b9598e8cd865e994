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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import SolverError
from rfgp.linalg import cholesky, half_solve
from rfgp.messages import counted
from rfgp.rows import Block
from rfgp.sparse import Matrix, Sparse

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
        >>> found.solution.tolist(), len(found.alphas)
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
    return ExactMarginals(fitted, variance.clamp_min(0), float(solved.residual.max()), len(solved.alphas))


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
    size = max(1, MAX_NUMBERS // len(x))
    parts = [prior.kernel(x[first : first + size], x) @ v for first in range(0, len(x), size)]
    return torch.cat(parts) + diagonal[:, None] * v


# --- Draws from N(0, C^-1), and an estimate of the log determinant of C from them ------------------------------------


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws from N(0, C^-1).

    Attributes:
        solved: The draws w, (n, m).
        squares: The squares w^T C w, (m,), n on average.
        solutions: The conjugate gradients of the solves, in blocks of draws.
        log_diagonals: The sum log |D| + log |P|.
    """

    solved: Tensor
    squares: Tensor
    solutions: Sequence[CGSolution]
    log_diagonals: float

    @cached_property
    def log_determinant(self) -> tuple[float, float]:
        """An estimate of log |C| and its standard error, which is infinite for a single draw."""
        values = len(self.solved) * np.concatenate([_mean_logs(solution) for solution in self.solutions])
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.inf
        return self.log_diagonals + float(values.mean()), float(error)

    @cached_property
    def normalized(self) -> Tensor:
        """The draws w (n, m) scaled to w^T C w = n."""
        return self.solved * (len(self.solved) / self.squares).sqrt()


def _mean_logs(cg: CGSolution) -> Floats:
    """Return t^T A^-1 log(A) t / t^T A^-1 t for each of the right-hand sides t of the solution, (p,)."""
    means = []
    for alpha, beta in zip(cg.alphas.T, cg.betas.T, strict=True):
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


# --- Preconditioners of B = I + Psi Psi^T, Psi = D^(-1/2) H ----------------------------------------------------------

_MIN_RELATIVE_EIGENVALUE = 1e-12
"""The eigenvalue of F F^T, relative to the largest, up to which eigenvalues are set to 0."""


class Preconditioner(NamedTuple):
    """P = (R^T R)^-1 with R = (I + U diag(p - 1) U^T)^(-1/2) W, for orthonormal U (n, r).

    Examples:
        >>> one = Preconditioner.of_features(torch.tensor([[2.0], [0.0]]).double())
        >>> one.half_solve(torch.tensor([[1.0], [1.0]]).double()).round(decimals=4).tolist()  # 1 / sqrt(1 + 4)
        [[0.4472], [1.0]]
    """

    vectors: Tensor  # U (n, r)
    values: Tensor  # p (r,), positive
    whitener: Sparse | None = None  # W (n, n), lower triangular, None for I

    @classmethod
    def of_features(cls, features: Tensor, whitener: Sparse | None = None) -> "Preconditioner":
        """Return the preconditioner with W P W^T = I + F F^T.

        Args:
            features: The features F, (n, r).
            whitener: The matrix W. If None, I.
        """
        values, vectors = torch.linalg.eigh(features.mT @ features)
        is_large = values > _MIN_RELATIVE_EIGENVALUE * values.max() if len(values) else values > 0
        values, vectors = values[is_large], vectors[:, is_large]
        return cls(features @ (vectors / values.sqrt()), 1 + values, whitener)

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|."""
        logs = float(self.values.log().sum())
        return logs if self.whitener is None else logs - 2 * float(np.log(self.whitener.matrix.diagonal()).sum())

    def half_solve(self, v: Tensor) -> Tensor:
        """Return R v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self._low_rank(v if self.whitener is None else self.whitener.times(v))

    def half_solve_transposed(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self._low_rank(v) if self.whitener is None else self.whitener.t_times(self._low_rank(v))

    def _low_rank(self, v: Tensor) -> Tensor:
        """Return (I + U diag(p - 1) U^T)^(-1/2) v, (n, p)."""
        if not len(self.values):
            return v
        return v + self.vectors @ ((self.values.rsqrt() - 1)[:, None] * (self.vectors.mT @ v))


# --- Linear systems in C = sum_t H_t H_t^T + D, and draws from N(0, C^-1) --------------------------------------------

MAX_ITERATIONS = 2000
"""The maximum number of iterations of a round, after which conjugate gradients restart from the true residual."""
ROUNDS = 3
"""The maximum number of rounds, including the first."""
MAX_NUMBERS = 2**21
"""The maximum number of entries of right-hand sides (n, p) in one solve. About 30 such arrays are in memory at once."""
MIN_COLUMNS = 16
"""The minimum number of columns of right-hand sides in one solve."""


@dataclass(frozen=True, eq=False)
class CGOperator:
    """The covariance C = sum_t H_t H_t^T + D for roots H_t (n, N_t) and a diagonal D.

    Attributes:
        roots: The roots.
        noise_diag: The diagonal D, (n,), positive.
        seed: The seed of draws and of the preconditioner.
        precondition: Returns a preconditioner for an operator.
        advice: A remedy for the message of a failed solve.

    Examples:
        >>> from rfgp.solvers.iterative.products import nystrom
        >>> from rfgp.sparse import Dense
        >>> H = torch.tensor([[1.0], [2.0]]).double()
        >>> operator = CGOperator([Dense(H)], torch.ones(2).double(), 0, nystrom, "Add noise.")
        >>> operator.solve(operator.product(H), 1e-9).round(decimals=6).tolist()
        [[1.0], [2.0]]
    """

    roots: Sequence[Matrix]
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
        return sum(root.num_columns for root in self.roots)

    @cached_property
    def preconditioner(self) -> Preconditioner:
        """The preconditioner."""
        return self.precondition(self)

    def split(self, u: Tensor) -> Sequence[Tensor]:
        """Return the rows (N_t, p) of u that belong to each root.

        Args:
            u: The vectors u, (N, p).
        """
        return torch.split(u, [root.num_columns for root in self.roots])

    def times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p).

        Args:
            u: The vectors u, (N, p).
        """
        return total([root.times(values) for root, values in zip(self.roots, self.split(u), strict=True)])

    def t_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N, p).

        Args:
            v: The vectors v, (n, p).
        """
        return torch.cat([root.t_times(v) for root in self.roots])

    def covariance_times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return total([root.times(root.t_times(v)) for root in self.roots])

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self.covariance_times(v) + self.noise_diag[:, None] * v

    def scaled_product(self, v: Tensor) -> Tensor:
        """Return B v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        scale = 1 / self.deviation[:, None]
        return torch.addcmul(v, self.covariance_times(v * scale), scale)

    def solve(self, right: Tensor, tolerance: float, max_iterations: int = MAX_ITERATIONS) -> Tensor:
        """Return C^-1 right, (n, p).

        There are up to three rounds. Each continues from the true residual of the last one.

        Args:
            right: The right-hand sides, (n, p).
            tolerance: The largest |D^(-1/2) (C x - right)| / |D^(-1/2) right| over all columns.
            max_iterations: The maximum number of iterations of each round. The default is 2,000.

        Raises:
            SolverError: If the tolerance is not reached, or D^(-1/2) right is not finite.
        """
        return self._solve_with_history(right, tolerance, max_iterations)[0]

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
        right = self.times(u) + self.deviation[:, None] * e
        w, solutions = self._solve_with_history(right, tolerance)
        logs = 2 * float(self.deviation.log().sum()) + self.preconditioner.log_determinant
        return Draws(w, (w * right).sum(0), solutions, logs)

    def prior_weights(self, count: int) -> tuple[Tensor, Tensor]:
        """Return standard normal u (N, m) and e (n, m), the same at every call.

        Args:
            count: The number m of draws.
        """
        shapes = ((self.num_columns, count), (len(self), count))
        u, e = (torch.from_numpy(generator(self.seed, 2 + i).standard_normal(shape)) for i, shape in enumerate(shapes))
        return u, e

    def _solve_with_history(
        self, right: Tensor, tolerance: float, max_iterations: int = MAX_ITERATIONS
    ) -> tuple[Tensor, Sequence[CGSolution]]:
        """Return C^-1 right, (n, p), and the CG runs of the first round in blocks of columns, which take most steps."""
        columns = max(MAX_NUMBERS // max(len(self), self.num_columns // 2, 1), MIN_COLUMNS)
        blocks = torch.split(right, columns, dim=1)
        solved, runs = zip(*(self._solve_block(block, tolerance, max_iterations) for block in blocks), strict=True)
        return torch.cat(solved, dim=1), runs

    def _solve_block(self, right: Tensor, tolerance: float, max_iterations: int) -> tuple[Tensor, CGSolution]:
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
            if attempt < ROUNDS:
                again = self._run_cg(rest, 0.1 * tolerance / residual, max_iterations)
                x = x + precondition.half_solve_transposed(again.solution)
        raise SolverError(
            f"The relative residual of {counted(len(self), 'observation')} must be at most {tolerance:.0e}, got "
            f"{float(residual.max()):.1e} after {ROUNDS} x {counted(max_iterations, 'iteration')} of conjugate "
            f"gradients. The noise is too small for the signal. {self.advice}"
        )

    def _run_cg(self, b: Tensor, tolerance: float | Tensor, max_iterations: int) -> CGSolution:
        """Return the solution of R B R^T x = R b."""
        precondition = self.preconditioner

        def product(v: Tensor) -> Tensor:
            return precondition.half_solve(self.scaled_product(precondition.half_solve_transposed(v)))

        return conjugate_gradients(product, precondition.half_solve(b), tolerance, max_iterations)


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
