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
"""Step lengths in the order in which they are tried."""
TOLERANCE = 1e-14
"""The decrement, in nats per thousand rows, at which a search has converged."""
FLOOR = 1e-6
"""The decrement, in nats, below which a search without progress has converged up to rounding."""
NEGLIGIBLE = 1e-3
"""The decrement, in nats, below which a search may end because no length of a step gains."""
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
        floor: The decrement, in nats, below which a search without progress has converged up to rounding.
        most_steps: The maximal number of steps.
    """

    tolerance: float
    floor: float = FLOOR
    most_steps: int = MAX_STEPS

    @abstractmethod
    def starts(self) -> Sequence[Tensor]:
        """Return starting positions (...). The search starts at the best of them."""

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

    def floor_at(self, state: S) -> float:
        """Return the floor at a state, at least the rounding error of the objective there.

        Args:
            state: The state.
        """
        return max(self.floor, ROUNDING * abs(state.objective))

    def move(self, state: S, step: Step, least: float) -> S | None:
        """Return the state after the longest step with an objective of at least `least`, or None if there is none.

        Args:
            state: The state.
            step: The step from it.
            least: The smallest objective of the new state, in nats.
        """
        for length in LENGTHS:
            position = state.position + length * step.change
            if self.objective(position) >= least:
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
    starts = problem.starts()
    state = problem.evaluate(starts[0] if len(starts) == 1 else max(starts, key=problem.objective))
    if not math.isfinite(state.objective):
        raise SolverError(NOT_FINITE)
    decrement = math.inf
    for _ in range(problem.most_steps):
        step = problem.step(state, decrement)
        last, decrement = decrement, step.decrement
        floor = problem.floor_at(state)
        if decrement <= problem.tolerance or last <= decrement < floor:
            return Mode(state, step)
        moved = problem.move(state, step, state.objective - (floor if decrement < floor else problem.tolerance))
        if moved is None:
            break
        state = moved
    if decrement < max(floor, NEGLIGIBLE):
        return Mode(state, problem.step(state, decrement))
    limit = max(floor, NEGLIGIBLE)
    raise SolverError(
        f"The mode of the latent function was not found: the last decrement must be below {limit:.1e} nats, got "
        f"{decrement:.1e}. The prior may be too wide for the likelihood. Set a prior on outputscale, rescale the "
        "targets, or use dtype=torch.float64."
    )
