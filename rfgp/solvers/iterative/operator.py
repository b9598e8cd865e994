"""Linear systems with the covariance of rows by conjugate gradients, its terms, draws, and preconditioners.

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

A block f has coordinates z = R u, u ~ N(0, I), that a matrix X projects to points. Its covariance at the rows is H H^T
with H = X R, and that of other points with the projections Z and the rows is Z R R^T X^T. All products, covariances,
means and draws follow from X, R and R R^T.

For long lengthscales, Psi Psi^T has a few large eigenvalues. A randomized Nystrom approximation of it is U (L) U^T,
with the smallest eigenvalue l of L. It gives the preconditioner P = (I - U U^T) + U (L + 1) / (l + 1) U^T (Frangella,
Tropp and Udell 2023, "Randomized Nystrom preconditioning", Eqs. 1.3 and 5.2).

For latent nearest neighbors, the covariance of the same rows conditioned on observations is close to C. With V and P of
`rfgp.solvers.whitened` its inverse is V^T (I + P P^T)^-1 V. Most preconditioned eigenvalues are near 1, so that
conjugate gradients take few steps and the estimated part of the log determinant is small.

Products of two kernels: let their columns have N_1 and N_2 distinct positions. Then K = R (K_1 kron K_2) R^T, where R
selects the cells of the grid with rows. With K_s = L_s L_s^T it is X X^T, X = R (L_1 kron L_2). A product takes
O(N_1 N_2 (N_1 + N_2)) operations. Cells may be missing or have several rows.

The preconditioner combines the noise with the largest eigenvalues of K_1 kron K_2 and their eigenvectors at the rows.

The coordinates w ~ N(0, I) of f on the grid are projected to a point x by the Kronecker product of k_1(x, U_1) L_1^-T
and k_2(x, U_2) L_2^-T. Points off the grid have a conditional variance.

Source: "latent Kronecker" structure, Lin et al. (2024), "Scalable Gaussian processes with latent Kronecker structure".

Latent nearest neighbors: if the noise is large, a few neighbors have little information, and that of all other rows is
lost. Therefore the process g of the block is approximated as g = L u (`rfgp.local.factor`), apart from the noise.
`docs/mathematics.md` has the KL divergences from the exact posterior.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.blocks import (
    AHEAD,
    KERNEL_JITTER,
    MAX_CELLS,
    KernelBlock,
    PrecisionBlock,
    Prior,
    SparseWeightBlock,
    WeightBlock,
    products,
)
from rfgp.errors import InvalidArgumentError, SolverError
from rfgp.linalg import cholesky, half_solve
from rfgp.local import LatentRoot
from rfgp.messages import counted
from rfgp.rows import Block
from rfgp.solvers.kriging import (
    explained_columns,
    explained_features,
    features,
    joint_kriging_weights,
    kriging_weights,
    neighbors_of,
)
from rfgp.solvers.whitened import Whitener
from rfgp.sparse import Dense, KroneckerRows, Matrix, Sparse, SparsityPattern, sampled_outer

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
        >>> from rfgp.solvers.iterative.operator import nystrom
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


# --- Interface of a term of a prior at rows: its covariance and projection -------------------------------------------

Projection = Any
"""A matrix of `rfgp.sparse` with `gram` and `squares`: `Dense`, `Sparse` or `KroneckerRows`."""
ALL_COLUMNS = 4
"""The role of the random generator that draws prior weights without effect on the rows."""


class TermProjection(NamedTuple):
    """The projection of a term to n points."""

    matrix: Projection  # X (n, N)
    conditional: Tensor | None = None  # variances (n,) or covariance (n, n) given the coordinates, None for 0


class Term(Matrix):
    """Interface: a block of the prior at rows, as the root H = X R of its covariance.

    The coordinates z = R u of the term, u ~ N(0, I), are projected to points by a matrix X. By default R = s I.

    Attributes:
        name: The name of the term.
        matrix: The projections X of the rows.
        scale: The scale s.
        width: The number of entries of X of a point, 0 if there are few.
        seed: The seed of draws and of the preconditioner.
        dtype: The precision of the coordinates of draws.
        advice: A remedy for the message of a failed solve.
        has_residual: Whether points have a conditional variance given the coordinates.
        depends_on_other_points: Whether the projection of a point may depend on other points.
    """

    name: str
    matrix: Projection
    scale = 1.0
    width = 0
    seed = 0
    dtype = torch.float64
    advice = "Give the noise a prior or a larger start, or fit fewer observations."
    has_residual = False
    depends_on_other_points = False

    def latent(self, u: Tensor) -> Tensor:
        """Return R u, (N, p).

        Args:
            u: The vectors u, (columns, p).
        """
        return u if self.scale == 1.0 else self.scale * u

    def t_latent(self, z: Tensor) -> Tensor:
        """Return R^T z, (columns, p).

        Args:
            z: The vectors z, (N, p).
        """
        return z if self.scale == 1.0 else self.scale * z

    def latent_covariance(self, z: Tensor) -> Tensor:
        """Return R R^T z, (N, p).

        Args:
            z: The vectors z, (N, p).
        """
        return self.scale**2 * z

    def times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        product: Tensor = self.matrix.times(self.latent(u))
        return product

    def t_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (columns, p)."""
        return self.t_latent(self.matrix.t_times(v))

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return the coordinates R u (N, p) of standard normal draws, in their precision.

        Args:
            standard: The standard normal draws u of the columns of H, (columns, p).
            seed: The seed of coordinates without effect on the rows.
        """
        return self.latent(standard)

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return coordinates z (N, p) with X z = K(x, rows) a, for the projections X of points.

        Args:
            coefficients: The coefficients a, (rows, p).
        """
        return self.latent_covariance(self.matrix.t_times(coefficients))

    def gram(self, left: Projection, right: Projection) -> Tensor:
        """Return the prior covariance X R R^T Z^T (n, m) of points, without conditional covariances.

        Args:
            left: The projections X of n points.
            right: The projections Z of m points.
        """
        covariance: Tensor = self.scale**2 * left.gram(right)
        return covariance

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of projections, without conditional ones.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
            projection: The projections of the points by `project`.
        """
        squares: Tensor = self.scale**2 * projection.matrix.squares()
        return squares

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of an operator whose last root is this term.

        Args:
            operator: The operator of all terms.
        """
        return nystrom(operator)

    @abstractmethod
    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the projections of n points, and their conditional variances or, jointly, their covariance.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
            jointly: Whether points may be neighbors of each other.
        """

    @abstractmethod
    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient of sum_j signs_j v_j^T K v_j / 2.

        The gradient is in the parameters of the block.

        Args:
            vectors: The vectors v_j, (rows, p).
            signs: The signs, (p,).
        """

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function with given coordinates.

        Args:
            coordinates: The coordinates z, (N, p).

        Returns:
            A function of the inputs of n points to X z, (n, p), with the projections X by `project`.

        Raises:
            InvalidArgumentError: If points have a conditional variance, so that the block is defined at given points
                only.
        """
        if self.has_residual:
            raise InvalidArgumentError(
                f"The term {self.name!r} has no functions to draw, because it is exact or has a residual, which is "
                "defined at given points only. Use predict(X).sample() instead."
            )
        return lambda inputs: self.project(inputs).matrix.times(coordinates)


# --- Preconditioners of the terms of a prior -------------------------------------------------------------------------

RANK = 64
"""The rank of the Nystrom approximation, without that of dense columns."""
_MIN_RANK = 8
"""The rank below which there is no Nystrom approximation."""
MIN_EIGENVALUE_RATIO = 10.0
"""The minimum ratio of the first to the last of the computed eigenvalues of B for a preconditioner."""


MAX_DENSE_COLUMNS = 1000
"""The maximum number of columns of a sparse root in the preconditioner of another term."""


def nystrom(operator: CGOperator) -> Preconditioner:
    """Return a randomized Nystrom preconditioner, of rank 0 if no eigenvalue is large.

    Args:
        operator: The operator.
    """
    n = len(operator)
    identity = Preconditioner(operator.noise_diag.new_empty(n, 0), operator.noise_diag.new_empty(0))
    rank = min(RANK + sum(root.num_dense for root in operator.roots), n // 4)
    if rank < _MIN_RANK:
        return identity
    test = torch.from_numpy(generator(operator.seed, 0).standard_normal((n, rank))) / n**0.5
    image = operator.scaled_product(test) - test
    shift = torch.finfo(image.dtype).eps * image.norm()
    shifted = image + shift * test
    inner = test.mT @ shifted
    factor, info = torch.linalg.cholesky_ex((inner + inner.mT) / 2)
    if bool(info.any()):
        return identity
    root = half_solve(factor, shifted.mT).mT
    sizes = torch.linalg.eigvalsh(root.mT @ root)
    if float((sizes[-1] + 1) / (sizes[0] + 1)) < MIN_EIGENVALUE_RATIO:
        return identity
    vectors, sizes, _ = torch.linalg.svd(root, full_matrices=False)
    values = (sizes.square() - shift).clamp_min(0)
    return Preconditioner(vectors, (values + 1) / (values[-1] + 1))


def dense_columns_except(operator: CGOperator, term: Term) -> Tensor:
    """Return the columns (n, c) of the other terms, if they are dense or few.

    Args:
        operator: The operator.
        term: The excluded term.
    """
    columns = [operator.noise_diag.new_zeros(len(operator), 0)]
    for root in operator.roots:
        if root is not term and (root.num_dense or root.num_columns <= MAX_DENSE_COLUMNS):
            columns.append(root.dense())
    return torch.cat(columns, dim=1)


# --- Products of two kernels at rows on a grid, by products with two small matrices ----------------------------------

MAX_RANK = 512
"""The maximum number of eigenvectors of a preconditioner."""
MIN_SIGNAL = 0.5
"""The minimum eigenvalue, relative to the noise, whose eigenvector is in a preconditioner."""
MAX_DECOMPOSED = 2048
"""The maximum number of positions of one side whose eigenvectors are computed."""


class KroneckerTerm(Term):
    """A product of two covariances at rows on a grid, with the root H = R (L_1 kron L_2).

    Its coordinates are w, (N_1 N_2,). Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (n, D).

    Raises:
        InvalidArgumentError: If the grid has too many cells.
    """

    dtype = torch.float32
    has_residual = True

    def __init__(self, block: KernelBlock, inputs: Tensor) -> None:
        assert block.sides is not None
        self.name, self._block, self._sides = block.name, block, block.sides
        (first, rows), (second, columns) = (side.distinct(inputs) for side in block.sides)
        if len(first) * len(second) > MAX_CELLS:
            raise InvalidArgumentError(
                f"The term {block.name!r} must have at most {MAX_CELLS:,} pairs of distinct positions with Exact(), "
                f"got {len(first):,} x {len(second):,} at {counted(len(inputs), 'row')}. Round its columns to fewer "
                "distinct values, or use InducingPoints()."
            )
        self._positions = first, second
        self.width, self.num_columns = len(first) + len(second), len(first) * len(second)
        self._kernels = [
            side.covariance(x, x, *block.parameters).double()
            for side, x in zip(self._sides, self._positions, strict=True)
        ]
        self._codes = rows, columns

    @cached_property
    def matrix(self) -> KroneckerRows:
        """The rows of L_1 kron L_2."""
        first, second = (
            cholesky(kernel.detach(), "The kernel matrix of positions", expected=KERNEL_JITTER)
            for kernel in self._kernels
        )
        return KroneckerRows(first, second, *self._codes)

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of the noise and the largest eigenvectors of the grid.

        Other terms of few columns are included. Sides of more than 2,048 positions have a Nystrom preconditioner
        instead.
        """
        if max(map(len, self._kernels)) > MAX_DECOMPOSED:
            return nystrom(operator)
        columns = torch.cat([self._eigenvectors(operator), dense_columns_except(operator, self)], dim=1)
        return Preconditioner.of_features(columns / operator.deviation[:, None])

    def _eigenvectors(self, operator: CGOperator) -> Tensor:
        """Return eigenvectors of the grid at the rows times the roots of their eigenvalues, (n, r)."""
        (first, left), (second, right) = (torch.linalg.eigh(kernel.detach()) for kernel in self._kernels)
        values = (first[:, None] * second).flatten()
        occupied_fraction = len(operator) / len(values)
        count = int((occupied_fraction * values > MIN_SIGNAL * operator.noise_diag.median()).sum())
        rank = min(MAX_RANK, len(operator) // 4, count)
        indices = torch.topk(values, rank).indices
        rows, columns = indices // len(second), indices % len(second)
        vectors: Tensor = left[:, rows][self._codes[0]] * right[:, columns][self._codes[1]]
        return torch.mul(vectors, values[indices].sqrt())

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return X of n points, and the variances (n,) or the covariance (n, n) given the coordinates."""
        factors, codes = [], []
        for side, grid, root in zip(self._sides, self._positions, (self.matrix.first, self.matrix.second), strict=True):
            positions, indices = side.distinct(inputs)
            cross = side.covariance(grid, positions, *self._block.parameters).double()
            factors.append(half_solve(root, cross).mT)
            codes.append(indices)
        matrix = KroneckerRows(*factors, *codes)
        if jointly:
            return TermProjection(matrix, self._block.kernel(inputs, inputs) - matrix.gram(matrix))
        return TermProjection(matrix, (self._block.diagonal(inputs) - matrix.squares()).clamp_min(0))

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in K_1 and K_2.

        With V_j = R^T v_j on the grid it is sum_j signs_j tr(V_j^T dK_1 V_j K_2) / 2, and the same form for dK_2.
        """
        first, second = self._kernels
        cells = self.matrix.scattered(vectors)
        signed = cells * signs
        in_first = torch.einsum("ajp,bjp->ab", signed, second.detach() @ cells)
        by_first = (first.detach() @ cells.reshape(len(first), -1)).reshape(cells.shape)
        in_second = torch.einsum("iap,ibp->ab", signed, by_first)
        return 0.5 * ((first * in_first).sum() + (second * in_second).sum())


# --- Nearest neighbors conditioned on latent values without noise, at ordered rows -----------------------------------


class NeighborsTerm(Term):
    """A process g = L u of ordered rows, without noise.

    Its coordinates are the values of g at the rows. Methods have the arguments of those of `Term`.

    Args:
        prior: The prior, with the features whose residual the block of neighbors models.
        inputs: The inputs of the ordered rows, (rows, d).
    """

    advice = 'Use condition_on="responses".'
    has_residual = True
    depends_on_other_points = True

    def __init__(self, prior: Prior, inputs: Tensor) -> None:
        self._prior, self._inputs = prior.detached(), inputs
        self._block = neighbors_of(self._prior)
        self.name, self.seed, self.num_columns = self._block.name, self._block.seed, len(inputs)
        self.width = AHEAD * self._block.num_neighbors * (inputs.shape[1] + 1)
        self.matrix = Sparse(sp.eye_array(len(inputs), format="csr"))
        self._jitter = self._block.reading_jitter * self._block.diagonal(inputs)  # the noise of values, for projections

    @cached_property
    def _phi(self) -> Tensor:
        """The features (rows, F) of the rows."""
        return features(self._prior, self._prior.dense, self._inputs)

    @cached_property
    def _pattern(self) -> SparsityPattern:
        """The neighbors of the rows."""
        return self._block.predecessors(self._inputs)

    @cached_property
    def _root(self) -> LatentRoot:
        """L of the rows."""
        explained = explained_columns(self._prior, self._phi)
        return self._block.latent_root(self._inputs, self._pattern, explained)

    def latent(self, u: Tensor) -> Tensor:
        """Return L u, (rows, p)."""
        return self._root.times(u)

    def t_latent(self, z: Tensor) -> Tensor:
        """Return L^T z, (rows, p)."""
        return self._root.t_times(z)

    def latent_covariance(self, z: Tensor) -> Tensor:
        """Return L L^T z, (rows, p)."""
        return self.latent(self.t_latent(z))

    def gram(self, left: Projection, right: Projection) -> Tensor:
        """Return X L L^T Z^T, (n, m)."""
        product: Tensor = left.times(self.latent_covariance(right.dense().mT))
        return product

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of the same rows conditioned on observations.

        It includes other terms of few columns.
        """
        whitener = Whitener.of(self._prior, self._inputs, operator.noise_diag, self._phi, self._pattern)
        features = whitener.times(dense_columns_except(operator, self))
        scaled = whitener.matrix @ sp.diags_array(operator.deviation.numpy())
        return Preconditioner.of_features(features, Sparse(sp.csr_array(scaled)))

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the weights (n, rows) of near rows, jointly also of earlier points, and the conditional variances."""
        data = self._prior, self._inputs, self._jitter, inputs
        if jointly:
            weights, covariance = joint_kriging_weights(*data)
            return TermProjection(Dense(torch.from_numpy(weights)), covariance)
        near, variance = kriging_weights(*data)
        return TermProjection(Sparse(near), variance)

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of the block without the conditional ones."""
        assert projection.conditional is not None
        prior = self._block.diagonal(inputs) - explained_features(self._prior, inputs).square().sum(1)
        return (prior - projection.conditional).clamp_min(0)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return 0, 0-d. The gradient is that of neighbors conditioned on observations."""
        return vectors.new_zeros(())


# --- The terms of a prior at rows, and the operator of their covariance ----------------------------------------------


class WeightTerm(Term):
    """A term f = Phi w with w ~ N(0, I) and dense features Phi.

    Phi includes the prior scale. The coordinates of the term are the weights w, (F,).

    Methods have the arguments of those of `Term`.

    Args:
        prior: The prior of all terms. If its neighbors model a residual, features are evaluated in float64.
        block: The block, with gradients.
        inputs: The inputs of the rows, (rows, D), or positions (rows,).
    """

    def __init__(self, prior: Prior, block: WeightBlock, inputs: Tensor) -> None:
        self.name, self.width, self._block = block.name, block.num_features, block
        self._needs_float64 = prior.neighbors is not None and prior.neighbors.is_residual
        self.has_residual = block.residual is not None
        self._phi = self._features(inputs)
        self.matrix = Dense(self._phi.detach())
        self.num_columns, self.num_dense = self.matrix.num_columns, self.matrix.num_columns

    def _features(self, inputs: Tensor) -> Tensor:
        """Return Phi (n, F), float64. If neighbors model a residual, it is evaluated in float64."""
        return self._block.scaled(inputs.double() if self._needs_float64 else inputs).double()

    def dense(self) -> Tensor:
        """Return Phi."""
        return self._phi.detach()

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the features (n, F) of n points, and the variances (n,) or the covariance (n, n) of a residual."""
        phi = self._features(inputs).detach()
        residual = self._block.residual_covariance if jointly else self._block.residual_variance
        return TermProjection(Dense(phi), residual(inputs, phi) if self.has_residual else None)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in Phi."""
        return (self._phi * ((vectors * signs) @ self.t_times(vectors).mT)).sum()


class WalkTerm(Term):
    """A term f = s phi w with sparse phi and the coordinates s w, (N,).

    The columns of H are those of phi with entries at the rows. Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The positions of the rows, (rows,).

    Attributes:
        block_variance: The variance s^2, 0-d, float64, with gradients.
    """

    dtype = torch.float32
    advice = "Give the noise a prior or a larger start, fit fewer observations, or use features='spectrum'."

    def __init__(self, block: SparseWeightBlock, inputs: Tensor) -> None:
        self.name, self.seed, self.block_variance = block.name, block.seed, block.variance.double()
        self.scale = float(self.block_variance.detach()) ** 0.5
        self._block, self._features = block, block.features(inputs, keep=True)
        self.matrix = Sparse(self._features.matrix())
        self._used = torch.from_numpy(np.flatnonzero(np.bincount(self.matrix.matrix.indices)))
        self.num_columns = len(self._used)
        self._root = Sparse(self.scale * self.matrix.matrix[:, self._used.numpy()])

    def times(self, u: Tensor) -> Tensor:
        """Return s phi u, (rows, p)."""
        return self._root.times(u)

    def t_times(self, v: Tensor) -> Tensor:
        """Return s phi^T v, (columns, p)."""
        return self._root.t_times(v)

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return s u, (N, p), with u in single precision."""
        shape = self._block.num_columns, standard.shape[1]
        out = torch.from_numpy(generator(seed, ALL_COLUMNS).standard_normal(shape, dtype=np.float32))
        out[self._used] = standard.float()
        return self.latent(out.to(standard))

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the features (n, N) of n positions."""
        return TermProjection(Sparse(self._block.features(inputs, keep=False).matrix()))

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function of the positions of n points to X z, (n, p)."""
        return self._block.of_weights(coordinates)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in the entries of phi and in s^2.

        The entries of phi are those on its pattern.
        """
        values, pattern = self._features
        right = self.matrix.t_times(vectors)
        in_values = self.scale**2 * sampled_outer(vectors * signs, right, pattern)
        in_variance = 0.5 * (right.square() * signs).sum()
        gradient: Tensor = (values * in_values).sum() + self.block_variance * in_variance
        return gradient


class PrecisionTerm(Term):
    """A term f = A u with the coordinates u, (N,), of precision Q / s^2.

    Its root is H = s A P^T L^-T, with P Q P^T = L L^T.

    Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (rows, D), or positions (rows,).
    """

    def __init__(self, block: PrecisionBlock, inputs: Tensor) -> None:
        self.name, self._block, self.scale = block.name, block, float(block.variance.detach()) ** 0.5
        self.matrix = Sparse(block.projector(inputs))
        self.num_columns = self.matrix.num_columns

    def latent(self, u: Tensor) -> Tensor:
        """Return s Q^(-1/2) u, (N, p)."""
        return self.scale * torch.from_numpy(self._block.factor.sample(u.numpy()))

    def t_latent(self, z: Tensor) -> Tensor:
        """Return s Q^(-1/2) z, (N, p), for the transpose of this root."""
        return self.scale * torch.from_numpy(self._block.factor.half_solve(z.numpy()))

    def latent_covariance(self, z: Tensor) -> Tensor:
        """Return s^2 Q^-1 z, (N, p)."""
        return self.scale**2 * torch.from_numpy(self._block.factor.solve(z.numpy()))

    def gram(self, left: Sparse, right: Sparse) -> Tensor:
        """Return s^2 X Q^-1 Z^T, (n, m)."""
        return torch.from_numpy(self.scale**2 * products(self._block.factor, left.matrix, right.matrix))

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances, (n,)."""
        return self._block.diagonal(inputs)

    def project(self, inputs: Tensor, *, jointly: bool = False) -> TermProjection:
        """Return the projection A (n, N) of n points."""
        return TermProjection(Sparse(self._block.projector(inputs)))

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in the precision parameters and in s^2.

        With t = Q^-1 A^T v, the gradient in the parameters is -s^2 t^T dQ t / 2.
        """
        field, values = self._block.field, self._block.values
        gathered = self.matrix.t_times(vectors).numpy()
        solved = torch.from_numpy(self._block.factor.solve(gathered))
        outer = sampled_outer(solved * signs, solved, field.pattern).numpy()
        in_values = torch.from_numpy(-0.5 * self.scale**2 * field.pull_back(as_array(values), outer))
        in_variance = 0.5 * float(np.einsum("np,np,p->", gathered, solved.numpy(), signs.numpy()))
        return (values * in_values).sum() + self._block.variance * in_variance


def terms_of(prior: Prior, inputs: Tensor) -> list[Term]:
    """Return the terms of a prior at rows.

    They are weights, grids, precisions, walks, and neighbors.

    Args:
        prior: The prior.
        inputs: The inputs of the rows, (rows, D), or positions (rows,). They must be ordered if there are neighbors.

    Raises:
        InvalidArgumentError: If a block has no term of this kind.
    """
    if (prior.kernels and not prior.has_grids) or prior.adds_latent_points:
        raise InvalidArgumentError(
            "Exact kernels and fields with values at the points cannot be added to many walks, to exact products on a "
            "grid, nor to latent neighbors. Use an approximation of the kernel, or a field with fixed values."
        )
    terms: list[Term] = [WeightTerm(prior, block, inputs) for block in prior.weights]
    terms += [KroneckerTerm(block, inputs) for block in prior.kernels]
    terms += [PrecisionTerm(block, inputs) for block in prior.precisions]
    terms += [WalkTerm(block, inputs) for block in prior.graph_features]
    return terms if prior.neighbors is None else [*terms, NeighborsTerm(prior, inputs)]


def operator_of(terms: Sequence[Term], noise_diag: Tensor) -> CGOperator:
    """Return the covariance C = sum_t H_t H_t^T + D of terms at rows.

    It is preconditioned by the last term.

    Args:
        terms: The terms, at least one.
        noise_diag: The diagonal of D, (rows,), positive.
    """
    last = terms[-1]
    return CGOperator(terms, noise_diag, last.seed, last.precondition, last.advice)
