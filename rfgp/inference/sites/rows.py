"""Sites of rows over any solver, with Gaussian regressions as Newton's steps.

Let g be the derivatives of the log density and W > 0 the weights at f. A step leads to the posterior mean of a Gaussian
regression on z = f + g / W with noise 1 / W (Rasmussen and Williams 2006, Algorithm 3.1). Positions are pairs (f -
mean, a) with f - mean = K a. Hence psi(f) = log p(y | f) - (f - mean)^T a / 2 needs no linear algebra.

If the log density is not concave (Student's t), the regression uses a majorizer instead of the curvature (iteratively
reweighted least squares). Conjugate gradients then solve for Newton's step, with this regression as the preconditioner.
Each of their vectors is computed together with K^-1 times it, like a. If conjugate gradients find a direction of
negative curvature, the regression's own step is used.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.sites.newton import TOLERANCE, ModeProblem, Step, find_mode
from rfgp.inference.sites.terms import LikelihoodTerms, RowLikelihood
from rfgp.rows import Block
from rfgp.solvers import Solver, WarmStart
from rfgp.solvers.conjugate_gradients import conjugate_gradients

MAX_CG_ITERATIONS = 100
"""The maximum number of iterations of conjugate gradients for a step."""
CG_TOLERANCE = 1e-8
"""The relative residual of conjugate gradients for a step."""


def regression(
    solver: Solver,
    rows: Block,
    working: Tensor,  # (n, k)
    weight: Tensor,  # (n,)
    mean: Tensor,  # (k,)
    signs: Tensor | None = None,  # (k,)
) -> Solver:
    """Return the Gaussian regression of Laplace pseudo-observations with noise 1 / weight.

    Args:
        solver: A Gaussian regression of the same inputs.
        rows: The rows, whose targets and noise are not used.
        working: The pseudo-observations z.
        weight: The weights W, positive.
        mean: The prior mean of each output.
        signs: The sign of the log likelihood of each output. If None, 1.
    """
    block = Block(rows.inputs, working, fixed_noise=1 / weight, given_output_weights=signs)
    return solver.with_data(block, mean, working.new_zeros(()))


@dataclass(frozen=True, eq=False)
class RowState:
    """A state of the search.

    Attributes:
        position: The pair f - mean and a, (2, n).
        objective: The objective psi, in nats.
        f: The latent values, (n,).
        terms: The log density and its derivatives at f.
    """

    position: Tensor
    objective: float
    f: Tensor
    terms: LikelihoodTerms


class RowProblem(ModeProblem[RowState]):
    """The posterior of one latent function at rows in memory.

    Args:
        solver: A Gaussian regression of the rows, without gradients.
        rows: The rows under their likelihood.
        mean: The prior mean of the latent function, 0-d.
        warm_start: A mode (n,) at hyperparameters close by, or nothing.
    """

    def __init__(self, solver: Solver, rows: RowLikelihood, mean: Tensor, warm_start: WarmStart = ()) -> None:
        self.tolerance = TOLERANCE * (1 + len(rows.rows) / 1000)
        self._solver, self._rows, self._mean, self._warm_start = solver, rows, mean, warm_start

    def initial_positions(self) -> list[Tensor]:
        """Return the prior mean, and a step from the warm start, (2, n) each."""
        positions = [torch.zeros_like(self._rows.targets).expand(2, -1)]
        for f in self._warm_start:
            terms = self._rows.terms(f)
            solver = self._regression(self._solver, f - self._mean + terms.gradient / terms.majorizer, terms)
            positions.append(_position(solver))
        return positions

    def objective(self, position: Tensor) -> float:
        """Return psi at the pair f - mean and a, (2, n)."""
        shift, a = position
        return float(self._rows.log_prob(self._mean + shift) - 0.5 * shift @ a)

    def evaluate(self, position: Tensor) -> RowState:
        """Return the state at the pair f - mean and a, (2, n)."""
        f = self._mean + position[0]
        terms = self._rows.terms(f)
        return RowState(position, float(terms.value - 0.5 * position[0] @ position[1]), f, terms)

    def step(self, state: RowState, last_decrement: float) -> Step:
        """Return Newton's step, or a step by the majorizer."""
        terms, (shift, a) = state.terms, state.position
        solver = self._regression(self._solver, shift + terms.gradient / terms.majorizer, terms)
        change, ascent = _position(solver) - state.position, terms.gradient - a
        if not self._rows.likelihood.is_concave:
            newton = self._newton(solver, terms, ascent)
            change = change if newton is None else newton
        return Step(change, float(change[0] @ ascent))

    def _newton(self, solver: Solver, terms: LikelihoodTerms, ascent: Tensor) -> Tensor | None:
        """Return Newton's step (2, n), or None if the curvature is negative."""
        n, curvature = len(ascent), terms.curvature[:, None]

        def precondition(residual: Tensor) -> Tensor:
            return _position(self._regression(solver, residual[:, 0] / terms.majorizer, terms)).reshape(-1, 1)

        solved = conjugate_gradients(
            lambda v: v[n:] + curvature * v[:n],  # (K^-1 + W) v
            ascent[:, None],
            CG_TOLERANCE,
            MAX_CG_ITERATIONS,
            precondition,
            stop_on_negative_curvature=True,
        )
        change = solved.solution.reshape(2, n)
        return None if bool(solved.is_indefinite) or float(change[0] @ ascent) <= 0 else change

    def _regression(self, solver: Solver, working: Tensor, terms: LikelihoodTerms) -> Solver:
        """Return the regression of Laplace pseudo-observations z - mean (n,) by the majorizer."""
        return regression(solver, self._rows.rows, working[:, None], terms.majorizer, torch.zeros_like(working[:1]))


def _position(solver: Solver) -> Tensor:
    """Return f - mean and a, (2, n), of a regression."""
    return torch.stack([solver.fitted[:, 0], solver.coefficients[:, 0]])


def row_mode(problem: RowProblem) -> RowState:
    """Return the mode of the latent function at its rows, after one more step.

    The step costs only an evaluation, because `find_mode` has solved for it.

    Args:
        problem: The problem.
    """
    state, step = find_mode(problem)
    return problem.move(state, step, state.objective - problem.stall_decrement_at(state)) or state
