"""The search for modes, on functions of a few variables."""

import math
from dataclasses import dataclass

import pytest
import torch

from rfgp import SolverError
from rfgp.inference.sites import newton
from rfgp.inference.sites.newton import ModeProblem, Step, find_mode


@dataclass
class State:
    position: torch.Tensor
    objective: float


class LogCosh(ModeProblem[State]):
    """-sum_i log cosh(x_i - c_i), whose undamped Newton steps diverge from far away."""

    tolerance = 1e-14

    def __init__(self, center, starts, direction=1.0):
        self.center, self._starts, self.direction = center, starts, direction
        self.evaluated = 0

    def initial_positions(self):
        return self._starts

    def objective(self, position):
        value = -(position - self.center).cosh().log().sum()
        return float(torch.where(torch.isfinite(value), value, -torch.inf))

    def evaluate(self, position):
        self.evaluated += 1
        return State(position, self.objective(position))

    def step(self, state, last_decrement):
        slope = -(state.position - self.center).tanh()
        curvature = 1 - slope.square()
        change = self.direction * slope / curvature.clamp_min(1e-12)
        return Step(change, float((change * slope).sum()) * self.direction, curvature)


CENTER = torch.tensor([1.0, -2.0], dtype=torch.float64)


def test_mode_is_found_from_far_away():
    problem = LogCosh(CENTER, [CENTER + torch.tensor([3.0, -20.0]).double()])
    found = find_mode(problem)
    torch.testing.assert_close(found.state.position, CENTER, atol=1e-6, rtol=0)
    assert found.step.decrement <= problem.tolerance
    torch.testing.assert_close(found.step.curvature, torch.ones_like(CENTER), atol=1e-10, rtol=0)


def test_best_of_several_starts_is_taken():
    near = CENTER + 1e-3
    for starts in ([CENTER + 5, near], [near, CENTER + 5]):
        problem = LogCosh(CENTER, starts)
        find_mode(problem)
        assert problem.evaluated <= 3


def test_start_that_is_not_finite_is_an_error():
    with pytest.raises(SolverError, match="must be finite"):
        find_mode(LogCosh(CENTER, [CENTER + torch.inf]))


def test_steps_that_gain_nothing_are_an_error():
    with pytest.raises(SolverError, match="not found"):
        find_mode(LogCosh(CENTER, [CENTER + 1.0], direction=-1.0))


def test_steps_that_gain_rounding_end_a_search():
    """A decrement below the stall decrement that stops decreasing is rounding."""

    class Rounded(LogCosh):
        tolerance = 0.0

        def step(self, state, last_decrement):
            found = super().step(state, last_decrement)
            return found._replace(decrement=max(found.decrement, 1e-9))

    found = find_mode(Rounded(CENTER, [CENTER + 1.0]))
    torch.testing.assert_close(found.state.position, CENTER, atol=1e-4, rtol=0)


def test_stall_decrement_grows_with_the_objective():
    problem = LogCosh(CENTER, [CENTER])
    assert problem.stall_decrement_at(State(CENTER, 0.0)) == newton.STALL_DECREMENT
    assert problem.stall_decrement_at(State(CENTER, -1e9)) == newton.ROUNDING * 1e9


def test_search_ends_after_the_most_steps(monkeypatch):
    monkeypatch.setattr(LogCosh, "max_steps", 2)
    with pytest.raises(SolverError, match="not found"):
        find_mode(LogCosh(CENTER, [CENTER + 15.0]))


def test_steps_see_the_last_decrement():
    seen = []

    class Watching(LogCosh):
        def step(self, state, last_decrement):
            seen.append(last_decrement)
            return super().step(state, last_decrement)

    find_mode(Watching(CENTER, [CENTER + 1.0]))
    assert seen[0] == math.inf
    assert seen[1:] == sorted(seen[1:], reverse=True)
