"""Laplace's approximation over any solver: sites of rows and damped Newton steps.

The objective is psi(x) = sum_i log p(y_i | f_i) + the log prior density of f. The position x is the latent values at
the rows, or the weights of features. With the gradient g of psi and an approximation -H < 0 of its Hessian, a step is
d = H^-1 g. Its decrement g^T d is twice the gain for a quadratic psi. A step is shortened until psi increases, so the
method converges from any start if psi is concave (Boyd and Vandenberghe 2004, Convex optimization, Section 9.5). If psi
is not concave, the step rule of a problem returns an ascent direction.

Let g be the derivatives of the log density and W > 0 the weights at f. A step leads to the posterior mean of a Gaussian
regression on z = f + g / W with noise 1 / W (Rasmussen and Williams 2006, Algorithm 3.1). Positions are pairs (f -
mean, a) with f - mean = K a. Hence psi(f) = log p(y | f) - (f - mean)^T a / 2 needs no linear algebra.

If the log density is not concave (Student's t), the regression uses a majorizer instead of the curvature (iteratively
reweighted least squares). Conjugate gradients then solve for Newton's step, with this regression as the preconditioner.
Each of their vectors is computed together with K^-1 times it, like a. If conjugate gradients find a direction of
negative curvature, the regression's own step is used.

At the mode f the posterior is that of a Gaussian regression of Laplace pseudo-observations z = f + g / W with noise 1 /
W (`rfgp.inference.sites.newton`). Let C = K + 1 / W be their covariance and a = C^-1 (z - mean) = g. The log evidence
(Rasmussen and Williams 2006, Eq. 3.32) is

    log q = sum_i log p(y_i | f_i) - (f - mean)^T a / 2 - log|I + K W| / 2.

Its gradient in K has an explicit part, (a a^T - C^-1) / 2, and an implicit one, because log|I + K W| depends on f. With
the posterior variances v of f and s_i = -v_i / 2 dW_i / df_i (Eq. 5.23), the implicit part is

    s^T df = s^T (I + K W)^-1 dK g = u^T dK a,    u = C^-1 (s / W).

Note that a a^T / 2 + (u a^T + a u^T) / 2 = (a + u) (a + u)^T / 2 - u u^T / 2. The sum of both parts is therefore the
gradient of

    log N(z + s / W) - log N(s / W) + log N(0)

under C, with z, s and W constant. These are three outputs of one Gaussian regression with the signs 1, -1 and 1. The
gradient in the mean is that of the same expression. The gradient in the parameters of the likelihood is that of sum_i
log p + (K u)_i g_i - v_i W_i / 2, with f, K u and v constant.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rfgp.errors import SolverError
from rfgp.likelihoods import Expected, Likelihood
from rfgp.likelihoods.role import MIN_CURVATURE
from rfgp.rows import Block
from rfgp.solvers import Inference, Posterior, Solver, WarmStart
from rfgp.solvers.iterative.operator import conjugate_gradients

# --- Sums of log densities over rows, with the derivatives that sites need -------------------------------------------


class LikelihoodTerms(NamedTuple):
    """The log density of rows at latent values f, with derivatives, times the counts.

    Attributes:
        f: The latent values, (n,).
        value: The log density of all rows, 0-d.
        gradient: Its derivatives g, (n,).
        weight: The curvature W of the Laplace approximation, positive, (n,).
        weight_slope: The derivatives dW / df, (n,).
        curvature: The negative second derivatives, (n,). They may be negative.
        majorizer: Positive upper bounds of the curvature, (n,).
    """

    f: Tensor
    value: Tensor
    gradient: Tensor
    weight: Tensor
    weight_slope: Tensor
    curvature: Tensor
    majorizer: Tensor


@dataclass(frozen=True, eq=False)
class RowLikelihood:
    """Rows under a likelihood, which is bound to their exposures, trials or codes of censoring.

    Latent values exclude the log exposures of the rows.

    Attributes:
        likelihood: The likelihood, with values of all its parameters.
        rows: The rows, with one target each.
    """

    likelihood: Likelihood
    rows: Block

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", self.likelihood.at_rows(self.rows.fixed_noise))

    @property
    def targets(self) -> Tensor:
        """The targets (n,)."""
        return self.rows.targets[:, 0]

    def terms(self, f: Tensor) -> LikelihoodTerms:
        """Return the log density of the rows with its derivatives.

        Args:
            f: The latent values, (n,).
        """
        shifted, counts = f + self.likelihood.log_exposure, self.rows.counts()
        slopes = self.likelihood.slopes(self.targets, shifted)
        weight, weight_slope = self.likelihood.information(slopes, shifted)
        majorizer = self.likelihood.majorizer(slopes, self.targets, shifted)
        return LikelihoodTerms(
            f,
            (slopes.value * counts).sum(),
            slopes.first * counts,
            (weight * counts).clamp_min(MIN_CURVATURE),
            weight_slope * counts,
            -slopes.second * counts,
            (majorizer * counts).clamp_min(MIN_CURVATURE),
        )

    def log_prob(self, f: Tensor) -> Tensor:
        """Return the log density of all rows, 0-d, or -inf if it is not finite.

        Args:
            f: The latent values, (n,) or (n, C).
        """
        log_prob = self.likelihood.log_prob(self.targets, f + self.likelihood.log_exposure)
        total = (log_prob * self.rows.counts()).sum()
        return torch.where(torch.isfinite(total), total, -torch.inf)

    def expected(self, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean log density of one observation of each row over independent normal functions.

        Args:
            mean: The means (n, L) of the L functions.
            variance: Their variances (n, L).
        """
        offset = self.likelihood.log_exposure
        shifted = mean + (offset[:, None] if isinstance(offset, Tensor) else offset)
        return self.likelihood.expected(self.targets, shifted, variance)

    def evidence_terms(self, f: Tensor, change: Tensor, variance: Tensor) -> Tensor:
        """Return log p(y | f) + change^T g - variance^T W / 2, 0-d, with the gradient of the evidence.

        At a given mode, it is the gradient in the likelihood. Through weights, it is also that in the features of f,
        change and variance.

        Args:
            f: The mode, (n,).
            change: The product K u of `rfgp.inference.sites.newton`, or Phi b of `rfgp.inference.sites.weights`, (n,).
            variance: The posterior variances of f, (n,).
        """
        shifted = f + self.likelihood.log_exposure
        slopes = self.likelihood.slopes(self.targets, shifted)
        weight, _ = self.likelihood.information(slopes, shifted)
        return (self.rows.counts() * (slopes.value + change * slopes.first - 0.5 * variance * weight)).sum()


def cavity(f: Tensor, variance: Tensor, gradient: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and variance (...) of f at each row without its own site.

    The posterior of the other rows is not searched again (Laplace's cavity).

    Args:
        f: The posterior means or the mode, (...).
        variance: The posterior variances, (...).
        gradient: The derivatives of the logarithms of the sites at f, (...).
        weight: The precisions of the sites, (...).
    """
    without = variance / (1 - variance * weight).clamp_min(1e-12)
    return f - without * gradient, without


# --- Damped Newton's method for the mode of a posterior --------------------------------------------------------------

MAX_STEPS = 300
"""The maximum number of steps of a search."""
LENGTHS = tuple(0.5**i for i in range(1, 90))
"""The lengths of shortened steps, in the order in which they are tried."""
TOLERANCE = 1e-14
"""The decrement, in nats per thousand rows, at which a search has converged."""
STALL_DECREMENT = 1e-6
"""The decrement, in nats, below which a search without progress has converged up to rounding."""
MAX_FINAL_DECREMENT = 1e-3
"""The decrement, in nats, below which a search succeeds although no step length increases the objective."""
ROUNDING = 1e-11
"""The relative rounding error of the objective."""

NOT_FINITE = (
    "The log density of the targets must be finite at the start of the search for the mode. Check the targets and the "
    "mean."
)


class State(NamedTuple):
    """A position of the search, with the results of a problem there.

    Attributes:
        position: The position, (...).
        objective: psi, in nats.
        results: The results from which a problem computes its step.
    """

    position: Tensor
    objective: float
    results: Any


class Step(NamedTuple):
    """A step from a state.

    Attributes:
        change: The change (...) of the position at length 1.
        decrement: The product of the gradient and the change, in nats.
        curvature: The factorized matrix of the step, in a form that depends on the problem.
    """

    change: Tensor
    decrement: float
    curvature: Any = None


class ModeProblem(ABC):
    """Interface: an objective with Newton's steps.

    Attributes:
        tolerance: The decrement, in nats, at which the search has converged.
        stall_decrement: The decrement, in nats, below which a search without progress has converged up to rounding.
        max_steps: The maximum number of steps.
    """

    tolerance: float
    stall_decrement: float = STALL_DECREMENT
    max_steps: int = MAX_STEPS

    @abstractmethod
    def initial_positions(self) -> Sequence[Tensor]:
        """Return initial positions (...). The search starts at the best of them."""

    @abstractmethod
    def objective(self, position: Tensor) -> float:
        """Return psi, or -inf if it is not finite.

        Args:
            position: The position, (...).
        """

    @abstractmethod
    def evaluate(self, position: Tensor) -> State:
        """Return the state at a position.

        Args:
            position: The position, (...).
        """

    @abstractmethod
    def step(self, state: State, last_decrement: float) -> Step:
        """Return Newton's step from a state, or one by a step rule of the problem.

        Args:
            state: The state.
            last_decrement: The decrement of the last step, or inf for the first. It may set the tolerance of inexact
                steps.
        """


def find_mode(problem: ModeProblem) -> tuple[State, Step]:
    """Return the last state of a search for the mode of a problem's objective, and the next step from it.

    Args:
        problem: The objective with its steps.

    Raises:
        SolverError: If the objective is not finite at the start, or no step increases it.
    """
    initial = problem.initial_positions()
    state = problem.evaluate(initial[0] if len(initial) == 1 else max(initial, key=problem.objective))
    if not math.isfinite(state.objective):
        raise SolverError(NOT_FINITE)
    decrement = math.inf
    for _ in range(problem.max_steps):
        step = problem.step(state, decrement)
        last_decrement, decrement = decrement, step.decrement
        stall_decrement = max(problem.stall_decrement, ROUNDING * abs(state.objective))
        if decrement <= problem.tolerance or last_decrement <= decrement < stall_decrement:
            return state, step
        max_loss = stall_decrement if decrement < stall_decrement else problem.tolerance
        next_state = _moved(problem, state, step, max_loss)
        if next_state is None:
            break
        state = next_state
    limit = max(stall_decrement, MAX_FINAL_DECREMENT)
    if decrement < limit:
        return state, problem.step(state, decrement)
    raise SolverError(
        f"The mode of the latent function was not found: the last decrement must be below {limit:.1e} nats, got "
        f"{decrement:.1e}. The prior may be too wide for the likelihood. Set a prior on outputscale, rescale the "
        "targets, or use dtype=torch.float64."
    )


def _moved(problem: ModeProblem, state: State, step: Step, max_loss: float) -> State | None:
    """Return the state after the full step, or the longest shorter one without a larger loss of psi, or None."""
    full_step = problem.evaluate(state.position + step.change)
    if full_step.objective >= state.objective - max_loss:
        return full_step
    for length in LENGTHS:
        position = state.position + length * step.change
        if problem.objective(position) >= state.objective - max_loss:
            return problem.evaluate(position)
    return None


# --- Sites of rows over any solver, with Gaussian regressions as Newton's steps --------------------------------------

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


class RowProblem(ModeProblem):
    """The posterior of one latent function at rows in memory. Positions are pairs f - mean and a, (2, n).

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

    def evaluate(self, position: Tensor) -> State:
        """Return the state at the pair f - mean and a, (2, n)."""
        terms = self._rows.terms(self._mean + position[0])
        return State(position, float(terms.value - 0.5 * position[0] @ position[1]), terms)

    def step(self, state: State, last_decrement: float) -> Step:
        """Return Newton's step, or a step by the majorizer."""
        terms, (shift, a) = state.results, state.position
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


# --- Laplace's approximation over any solver, for rows in memory -----------------------------------------------------


@dataclass(frozen=True, eq=False)
class Laplace(Inference):
    """Laplace's approximation to the posterior of one latent function.

    Attributes:
        solver: A Gaussian regression of the rows.
        rows: The rows, with one target each.
        mean: The prior mean of the latent function, (1,).
        likelihood: The likelihood, with its given parameters.
        learned: The learned parameters of the likelihood, 0-d each.
        start: A warm start. The default is none.
    """

    solver: Solver
    rows: Block
    mean: Tensor
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    start: WarmStart = ()

    @cached_property
    def mode(self) -> LikelihoodTerms:
        """The mode of the latent function at the rows, after one more step, which `find_mode` has solved for."""
        likelihood = self.likelihood.at({name: value.detach() for name, value in self.learned.items()})
        with torch.no_grad():
            rows, mean = RowLikelihood(likelihood, self.rows), self.mean.detach()[0]
            problem = RowProblem(self.solver, rows, mean, self.start)
            state, step = find_mode(problem)
            max_loss = max(problem.stall_decrement, ROUNDING * abs(state.objective))
            results: LikelihoodTerms = (_moved(problem, state, step, max_loss) or state).results
            return results

    @property
    def fitted(self) -> Tensor:
        """The latent function at the mode, (n,)."""
        return self.mode.f

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log evidence, or 0 if it is exact."""
        return self._regression.likelihood_error

    def warm_start(self) -> WarmStart:
        """Return the mode (n,)."""
        return (self.mode.f,)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        mode = self.mode
        with torch.no_grad():
            square = (mode.f - self.mean) @ mode.gradient
            value = mode.value - 0.5 * (square + self._regression.log_determinant)
        if not torch.is_grad_enabled():
            return value
        with torch.no_grad():
            pulled = -0.5 * self.variance * mode.weight_slope / mode.weight  # s / W
        zero = torch.zeros_like(self.mean)
        targets = torch.stack([self._working + pulled, pulled, torch.zeros_like(pulled)], dim=1)
        signs, mean = targets.new_tensor([1.0, -1.0, 1.0]), torch.cat([self.mean, zero, zero])
        signed = regression(self._regression, self.rows, targets, mode.weight, mean, signs)
        total = signed.log_marginal_likelihood()
        if any(number.requires_grad for number in self.learned.values()):
            rows = RowLikelihood(self.likelihood.at(self.learned), self.rows)
            total = total + rows.evidence_terms(mode.f, signed.fitted[:, 1].detach(), self.variance)
        return value + (total - total.detach())

    @cached_property
    def variance(self) -> Tensor:
        """The posterior variances of the latent function at the rows, (n,)."""
        with torch.no_grad():
            return self._regression.latent_variances.clamp_min(0)

    def posterior(self) -> Posterior:
        """Return the posterior given the Laplace pseudo-observations."""
        with torch.no_grad():
            return self._regression.posterior()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of f at each row given all others."""
        mean, variance = cavity(self.mode.f, self.variance, self.mode.gradient, self.mode.weight)
        return mean[:, None], variance

    @property
    def _working(self) -> Tensor:
        """The Laplace pseudo-observations z, (n,)."""
        return self.mode.f + self.mode.gradient / self.mode.weight

    @cached_property
    def _regression(self) -> Solver:
        """The Gaussian regression at the mode."""
        with torch.no_grad():
            return regression(self.solver, self.rows, self._working[:, None], self.mode.weight, self.mean.detach())
