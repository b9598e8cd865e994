"""Linear systems in C = sum_t H_t H_t^T + D, and draws from N(0, C^-1).

Let H = [H_1, H_2, ...] and Psi = D^(-1/2) H. All solves are with B = I + Psi Psi^T = D^(-1/2) C D^(-1/2), or with A = R
B R^T for a preconditioner P = (R^T R)^-1.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import SolverError
from rfgp.solvers.conjugate_gradients import CGSolution, conjugate_gradients
from rfgp.solvers.iterative.draws import Draws
from rfgp.solvers.iterative.parts import Part

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


class CGOperator:
    """The covariance C = sum_t H_t H_t^T + D for parts H_t (n, N_t) and a diagonal D.

    Args:
        parts: The parts.
        noise_diag: The diagonal D, (n,), positive.
        seed: The seed of draws and of the preconditioner.
        precondition: Returns a preconditioner for an operator.
        advice: A remedy for the message of a failed solve.

    Examples:
        >>> from rfgp.solvers.iterative.parts import DensePart
        >>> from rfgp.solvers.iterative.preconditioners import nystrom
        >>> H = torch.tensor([[1.0], [2.0]]).double()
        >>> operator = CGOperator([DensePart(H)], torch.ones(2).double(), 0, nystrom, "Add noise.")
        >>> operator.solve(operator.product(H), 1e-9).round(decimals=6).tolist()
        [[1.0], [2.0]]
    """

    def __init__(
        self,
        parts: Sequence[Part],
        noise_diag: Tensor,
        seed: int,
        precondition: "Callable[[CGOperator], Preconditioner]",
        advice: str,
    ) -> None:
        self.parts, self.noise_diag, self.seed = parts, noise_diag, seed
        self._precondition, self._advice = precondition, advice

    def replaced(
        self, *, parts: Sequence[Part] | None = None, noise_diag: Tensor | None = None, seed: int | None = None
    ) -> "CGOperator":
        """Return the operator with other parts, another diagonal or another seed.

        Args:
            parts: The parts. If None, those of this operator.
            noise_diag: The diagonal of D, (n,), positive. If None, that of this operator.
            seed: The seed. If None, that of this operator.
        """
        parts, noise_diag = parts or self.parts, self.noise_diag if noise_diag is None else noise_diag
        seed = self.seed if seed is None else seed
        return CGOperator(parts, noise_diag, seed, self._precondition, self._advice)

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
        return self._precondition(self)

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
        """Return H H^T v, (n, p), without caching.

        Args:
            v: The vectors v, (n, p).
        """
        return total([part.root_times(part.transposed_root_times(v)) for part in self.parts])

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p), without caching.

        Args:
            v: The vectors v, (n, p).
        """
        scaled = self.deviation[:, None] * v
        image = scaled + total([part.root_times(part.transposed_root_times(scaled)) for part in self._scaled_parts])
        return self.deviation[:, None] * image

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
        blocks = torch.split(right, columns_at_once(len(self)), dim=1)
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
            f"gradients. The noise is too small for the signal. {self._advice}"
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
