"""Linear systems in C = H H^T + D by conjugate gradients, and the log determinant by Lanczos.

With Psi = D^(-1/2) H everything happens to B = I + Psi Psi^T = D^(-1/2) C D^(-1/2), or with a preconditioner
P = (R^T R)^-1 to A = R B R^T.

log |C| = log |D| + log |P| + tr log A, the trace from probes z on the sphere |z|^2 = n and Gauss quadrature in Krylov
spaces (Ubaru, Chen and Saad 2017, "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature"), without a product
of its own: a draw from N(0, C^-1) solves A x = t with t ~ N(0, A), hence t = A^(1/2) z for a normal z, and with the
Lanczos matrix that its conjugate gradients leave,

    n z^T log(A) z / |z|^2 = n t^T A^-1 log(A) t / t^T A^-1 t.

The spread over draws is the standard error.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import SolverError

Floats = NDArray[np.float64]

MOST_ITERATIONS = 2000
"""Of conjugate gradients, before a solve is said to have failed."""

MOST_NUMBERS, LEAST_COLUMNS = 2**21, 16
"""In right-hand sides that are solved together (n, p), of which thirty are held at once; and columns at least. (60,000
rows, 64 draws, 128 frequencies: 1.16 GB more than before the fit in 108 s, and 1.32 in 104 s with all 64 together.)"""
ROUNDS = 3
_LANCZOS = 1000


class Estimate(NamedTuple):
    """A number from probes, and its standard error."""

    value: float
    error: float


class _Search(NamedTuple):
    """Solutions by conjugate gradients, and the coefficients of their steps, 0 after the last."""

    solution: Tensor  # (n, p)
    alphas: Floats  # (k, p)
    betas: Floats  # (k, p)

    @classmethod
    def joined(cls, parts: Sequence["_Search"]) -> "_Search":
        """Return the searches of blocks of columns as one."""
        steps = max(len(part.alphas) for part in parts)
        alphas, betas = (
            np.concatenate([np.pad(each, ((0, steps - len(each)), (0, 0))) for each in pair], axis=1)
            for pair in zip(*((part.alphas, part.betas) for part in parts), strict=True)
        )
        return cls(torch.cat([part.solution for part in parts], 1), alphas, betas)


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws from N(0, C^-1), and what they tell of log |C|.

    Attributes:
        solved: w (n, m).
        squares: w^T C w (m,), n on average.
        search: Of the solutions.
        log_diagonals: log |D| + log |P|.
    """

    solved: Tensor
    squares: Tensor
    search: _Search
    log_diagonals: float

    @cached_property
    def log_determinant(self) -> Estimate:
        """An estimate of log |C|; of one draw its error is not known, and infinite."""
        values = len(self.solved) * _mean_logs(self.search)
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.inf
        return Estimate(self.log_diagonals + float(values.mean()), float(error))


class Preconditioner(Protocol):
    """The role: P = (R^T R)^-1 beside B."""

    def halved(self, v: Tensor) -> Tensor:
        """Return R v, (n, p)."""

    def halved_back(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p)."""

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|."""


class System(ABC):
    """C = H H^T + D for H (n, N) and diagonal D; see above.

    Args:
        noise_diag: D (n,), positive.
        seed: Of the probes.

    Attributes:
        most_iterations: Of conjugate gradients, before a solve is said to have failed.
        is_hurried: Whether a solve has failed as well where a search leaves more of the residual than its share of
            the way, for what follows it is seldom faster.
    """

    def __init__(self, noise_diag: Floats, seed: int) -> None:
        self._deviation, self.seed = np.sqrt(noise_diag), seed
        self.most_iterations, self.is_hurried = MOST_ITERATIONS, False

    def __len__(self) -> int:
        return len(self._deviation)

    @property
    @abstractmethod
    def advice(self) -> str:
        """What to do where a solve fails."""

    @property
    @abstractmethod
    def num_columns(self) -> int:
        """N."""

    @abstractmethod
    def _drawn(self, u: Tensor) -> Tensor:
        """Return Psi u, (n, p)."""

    @abstractmethod
    def _times(self, v: Tensor) -> Tensor:
        """Return B v, (n, p)."""

    @property
    @abstractmethod
    def _preconditioner(self) -> Preconditioner | None:
        """P, where one is worth it."""

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p)."""
        return self._scaled(self._times(self._scaled(v)))

    def solve(self, right: Tensor, tolerance: float) -> Tensor:
        """Return C^-1 right, (n, p).

        Args:
            right: (n, p).
            tolerance: Of |D^(-1/2) (C x - right)| / |D^(-1/2) right|, for each column.

        Raises:
            SolverError: it was not reached; with what was.
        """
        return self._searched(right, tolerance)[0]

    def paths(self, probes: int, tolerance: float) -> Draws:
        """Draw w (n, m) = C^-1 (H u + D^(1/2) e) with u (N, m) and e ~ N(0, I), those of `prior_weights`.

        Each w ~ N(0, C^-1), and u - H^T w are the weights of a draw from the posterior of zeros: pathwise conditioning
        (Wilson et al. 2020).

        Raises:
            SolverError: as `solve`.
        """
        u, e = self.prior_weights(probes)
        right = self._scaled(self._drawn(u) + e)
        w, search = self._searched(right, tolerance)
        logs = 2 * float(np.log(self._deviation).sum())
        if self._preconditioner is not None:
            logs += self._preconditioner.log_determinant
        return Draws(w, (w * right).sum(0), search, logs)

    def prior_weights(self, probes: int) -> tuple[Tensor, Tensor]:
        """Return u (N, m) and e (n, m), standard normal; the same at every call."""
        shapes = ((self.num_columns, probes), (len(self), probes))
        u, e = (torch.from_numpy(generator(self.seed, 2 + i).standard_normal(shape)) for i, shape in enumerate(shapes))
        return u, e

    def _searched(self, right: Tensor, tolerance: float) -> tuple[Tensor, _Search]:
        """Return C^-1 right, (n, p), and the first of the searches that led there, which took nearly all steps."""
        width = at_once(len(self))
        if right.shape[1] <= width:
            return self._searched_together(right, tolerance)
        parts = [self._searched_together(part, tolerance) for part in torch.split(right, width, dim=1)]
        solved, searches = zip(*parts, strict=True)
        return torch.cat(solved, 1), _Search.joined(searches)

    def _searched_together(self, right: Tensor, tolerance: float) -> tuple[Tensor, _Search]:
        """Return the same of columns that fit side by side."""
        b = self._unscaled(right)
        largest = b.abs().amax(0)
        if not bool(torch.isfinite(largest).all()):
            raise SolverError("A linear system of the fit is not finite: features, noise or signal overflow.")
        largest = largest.where(largest > 0, 1.0)  # squares of what is left neither overflow nor vanish
        b = b / largest
        first = _conjugate_gradients(self._preconditioned, self._halved(b), 0.1 * tolerance, self.most_iterations)
        x, sizes = self._halved_back(first.solution), b.norm(dim=0)
        for attempt in range(1, ROUNDS + 1):  # the residual that a search updates drifts from the true one
            rest = b - self._times(x)
            residual = rest.norm(dim=0) / sizes.where(sizes > 0, 1.0)
            if bool((residual <= tolerance).all()):
                return self._unscaled(largest * x), first
            if self.is_hurried and bool((residual > tolerance ** (attempt / ROUNDS)).any()):
                break
            if attempt < ROUNDS:
                again = _conjugate_gradients(
                    self._preconditioned, self._halved(rest), 0.1 * tolerance / residual, self.most_iterations
                )
                x = x + self._halved_back(again.solution)
        worst = float(residual.max())
        raise SolverError(
            f"Conjugate gradients on {counted(len(self), 'observation')} reached a relative residual of "
            f"{worst:.1e}, not "
            f"{tolerance:.0e}, in {attempt} x {counted(self.most_iterations, 'iteration')}: "
            "the noise is too small beside the "
            f"signal. {self.advice}"
        )

    # --- B, and its preconditioned form ----------------------------------------------------------

    def _preconditioned(self, v: Tensor) -> Tensor:
        return self._halved(self._times(self._halved_back(v)))

    def _halved(self, v: Tensor) -> Tensor:
        """Return R v, (n, p)."""
        return v if self._preconditioner is None else self._preconditioner.halved(v)

    def _halved_back(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p)."""
        return v if self._preconditioner is None else self._preconditioner.halved_back(v)

    def _scaled(self, v: Tensor) -> Tensor:
        return torch.from_numpy(self._deviation)[:, None] * v

    def _unscaled(self, v: Tensor) -> Tensor:
        return v / torch.from_numpy(self._deviation)[:, None]


class Spread(NamedTuple):
    """P = I + U diag(p - 1) U^T with orthonormal U (n, r), and R its symmetric root."""

    vectors: Tensor  # U (n, r)
    factors: Tensor  # of R on U, less one (r,): 1 / sqrt(p) - 1
    logs: Tensor  # log p (r,)

    @classmethod
    def of(cls, vectors: Tensor, values: Tensor) -> "Spread":
        """Return P with eigenvectors U (n, r) and their eigenvalues p (r,)."""
        return cls(vectors, values.rsqrt() - 1, values.log())

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|."""
        return float(self.logs.sum())

    def halved(self, v: Tensor) -> Tensor:
        """Return R v, (n, p)."""
        out: Tensor = v + self.vectors @ (self.factors[:, None] * (self.vectors.mT @ v))
        return out

    def halved_back(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p): the same."""
        return self.halved(v)


def at_once(rows: int) -> int:
    """Return how many right-hand sides of a system of so many rows are solved together."""
    return max(MOST_NUMBERS // max(rows, 1), LEAST_COLUMNS)


def _conjugate_gradients(
    product: Callable[[Tensor], Tensor],
    right: Tensor,  # (n, p)
    tolerance: float | Tensor,  # of the norm of each column, 0-d or (p,)
    most: int,
) -> _Search:
    """Solve for each column; those that are done stand still while others go on.

    linear_operator's `linear_cg` takes a fixed number of steps where Lanczos matrices are asked for, and watches the
    mean over columns.
    """
    x, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    square = residual.square().sum(0)
    limit, steps = square * tolerance**2, 0
    kept = right.new_empty(2, most, right.shape[1])  # one block: small ones keep glibc from using large ones again
    while steps < most and bool((goes_on := square > limit).any()):
        image = product(direction)
        alpha = torch.where(goes_on, square / (direction * image).sum(0), 0.0)
        x.addcmul_(direction, alpha)
        residual.addcmul_(image, alpha, value=-1)
        reached = residual.square().sum(0)
        beta = torch.where(goes_on, reached / square, 0.0)
        direction.mul_(beta).add_(residual)
        square = torch.where(goes_on, reached, square)
        kept[0, steps], kept[1, steps] = alpha, beta
        steps += 1
    alphas, betas = kept[:, :steps].numpy().copy()
    return _Search(x, alphas, betas)


def _mean_logs(search: _Search) -> Floats:
    """Return t^T A^-1 log(A) t / t^T A^-1 t for each of the right-hand sides t of a search, (p,), from 1,000 steps."""
    means = []
    for alpha, beta in zip(search.alphas[:_LANCZOS].T, search.betas[:_LANCZOS].T, strict=True):
        steps = alpha > 0
        a, b = alpha[steps], beta[steps]
        diagonal = 1 / a
        diagonal[1:] += b[:-1] / a[:-1]
        values, vectors = _eigenpairs(diagonal, np.sqrt(b[:-1]) / a[:-1])
        weights = vectors[0] ** 2 / values
        means.append(weights @ np.log(values) / weights.sum())
    return np.array(means)


def _eigenpairs(diagonal: Floats, beside: Floats) -> tuple[Floats, Floats]:
    """Return those of a symmetric tridiagonal matrix; LAPACK's fast method fails on some large ones."""
    try:
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, beside)
    except np.linalg.LinAlgError:
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, beside, lapack_driver="stev")
    return values, vectors


def generator(seed: int, role: int) -> np.random.Generator:
    """Return the generator of one of the roles of a system's seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(role,)))
