"""Damped Newton's method for the mode of a posterior.

The objective is psi(x) = sum_i log p(y_i | f_i) + the log prior density of f. The position x is the latent values at
the rows, or the weights of features. With the gradient g of psi and an approximation -H < 0 of its Hessian, a step is
d = H^-1 g. Its decrement g^T d is twice the gain for a quadratic psi. A step is shortened until psi increases, so the
method converges from any start if psi is concave (Boyd and Vandenberghe 2004, Convex optimization, Section 9.5). If psi
is not concave, the step rule of a problem returns an ascent direction.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from rfgp.errors import SolverError

MAX_STEPS = 300
"""The maximum number of steps of a search."""
LENGTHS = tuple(0.5**i for i in range(90))
"""The step lengths, in the order in which they are tried."""
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


class State(Protocol):
    """Interface: a position of the search, with the results of a problem there."""

    @property
    def position(self) -> Tensor:
        """The position, (...)."""

    @property
    def objective(self) -> float:
        """psi, in nats."""


S = TypeVar("S", bound=State)


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


class ModeProblem(ABC, Generic[S]):
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
    def evaluate(self, position: Tensor) -> S:
        """Return the state at a position.

        Args:
            position: The position, (...).
        """

    @abstractmethod
    def step(self, state: S, last_decrement: float) -> Step:
        """Return Newton's step from a state, or one by a step rule of the problem.

        Args:
            state: The state.
            last_decrement: The decrement of the last step, or inf for the first. It may set the tolerance of inexact
                steps.
        """

    def stall_decrement_at(self, state: S) -> float:
        """Return the stall decrement at a state, at least the rounding error of psi there.

        Args:
            state: The state.
        """
        return max(self.stall_decrement, ROUNDING * abs(state.objective))

    def move(self, state: S, step: Step, min_objective: float) -> S | None:
        """Return the state after the longest step that reaches `min_objective`, or None.

        Args:
            state: The state.
            step: The step from it.
            min_objective: The smallest accepted objective of the new state, in nats.
        """
        for length in LENGTHS:
            position = state.position + length * step.change
            if self.objective(position) >= min_objective:
                return self.evaluate(position)
        return None


class Mode(NamedTuple, Generic[S]):
    """The mode of an objective.

    Attributes:
        state: The last state of the search.
        step: The next step from it.
    """

    state: S
    step: Step


def find_mode(problem: ModeProblem[S]) -> Mode[S]:
    """Return the mode of a problem's objective.

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
        stall_decrement = problem.stall_decrement_at(state)
        if decrement <= problem.tolerance or last_decrement <= decrement < stall_decrement:
            return Mode(state, step)
        max_loss = stall_decrement if decrement < stall_decrement else problem.tolerance
        next_state = problem.move(state, step, state.objective - max_loss)
        if next_state is None:
            break
        state = next_state
    limit = max(stall_decrement, MAX_FINAL_DECREMENT)
    if decrement < limit:
        return Mode(state, problem.step(state, decrement))
    raise SolverError(
        f"The mode of the latent function was not found: the last decrement must be below {limit:.1e} nats, got "
        f"{decrement:.1e}. The prior may be too wide for the likelihood. Set a prior on outputscale, rescale the "
        "targets, or use dtype=torch.float64."
    )
