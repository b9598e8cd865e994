"""Scoring steps on estimated gradients: their end, bounds, priors and information."""

import numpy as np
import pytest
import torch
from grid import model, observations

import rfgp
from rfgp.fitting import Plan, maximize
from rfgp.fitting.average_information import AverageInformation
from rfgp.fitting.maximize import Objective
from rfgp.parameters import Hyperparameter, ParameterSpace
from rfgp.rows import Block
from rfgp.scaling import Affine


@pytest.fixture
def iterative(limits):
    limits(max_dense=0)


def ascended(state, values=None, **plan):
    """Return the hyperparameters found by scoring, from those of the regression or others, and the report."""
    rows = state.rows

    def infer(values):
        return state.replace(hyperparameters=values).infer(rows)

    jacobian = state.scaling.targets.log_jacobian(rows.count)
    return AverageInformation(infer, rows, jacobian, values or state.hyperparameters, Plan(**plan)).run()


def test_scoring_ends_within_its_error_of_the_maximum():
    exact = model(observations()).state
    best, report = maximize(Objective.of(exact, exact.rows), exact.hyperparameters, Plan())
    likelihood = exact.replace(hyperparameters=best).log_marginal_likelihood()
    with rfgp.testing.limits(max_dense=0):
        state = model(observations()).state
        values, scored = ascended(state)
    assert scored.converged
    assert scored.iterations < 20
    assert abs(scored.log_marginal_likelihood - report.log_marginal_likelihood) < 6 * scored.likelihood_error
    lost = likelihood - state.replace(hyperparameters=values).log_marginal_likelihood()
    assert 0 <= lost.item() < 1.0  # 1/16 of 4 parameters / 2 = .125 nats are expected


def search_within(low, high):
    """Return a search over one hyperparameter for each pair of bounds, and the bounds in its order."""
    one, flat = torch.ones((), dtype=torch.float64), Affine.identity(torch.ones(1, dtype=torch.float64))
    bounds = [
        tuple(torch.tensor(end, dtype=torch.float64).exp() for end in ends) for ends in zip(low, high, strict=True)
    ]
    space = ParameterSpace.of({f"q{i}": Hyperparameter(one, one, ends) for i, ends in enumerate(bounds)}, flat, flat)
    rows = Block(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.float64))
    search = AverageInformation(None, rows, 0.0, space.start, Plan(fixed=("mean",)), "all rows")
    return search, *np.array([space.bounds(name)[0] for name in space.quantities]).T


def test_steps_are_optimal_within_radius_and_bounds():
    rng = np.random.default_rng(0)

    def are_met(step, point, gradient, information, low, high):
        """The conditions of Karush, Kuhn and Tucker for radius 0.05."""
        low, high = np.maximum(low - point, -0.05), np.minimum(high - point, 0.05)
        slope = (gradient - information @ step) / np.abs(gradient).max()
        best = (np.abs(slope) < 1e-6) | ((slope > 0) & (step > high - 1e-12)) | ((slope < 0) & (step < low + 1e-12))
        return bool((best & (step >= low) & (step <= high)).all())

    failures = 0
    for _ in range(50):
        root = rng.standard_normal((8, 4)) * [100, 30, 1, 3]
        information, gradient = root.T @ root, rng.standard_normal(4) * [100, 30, 1, 3]
        point = rng.uniform(-0.1, 0.1, 4)
        search, low, high = search_within([-1, -1, -0.1, -0.1], [1, 1, np.inf, 0.1])
        step, _ = search.step(point, gradient, information, 0.05)
        assert are_met(step, point, gradient, information, low, high)
        search, _, _ = search_within([-np.inf] * 4, [np.inf] * 4)
        newton = np.linalg.solve(information, gradient)
        step, expected = search.step(point, gradient, information, np.inf)
        np.testing.assert_allclose(step, newton, rtol=1e-6, atol=1e-8)
        assert expected == pytest.approx(gradient @ newton)
        search, low, high = search_within(point, point + np.array([0, 1, 1, 0]))  # two of them fixed by their bounds
        step, _ = search.step(low, gradient, information, 0.05)
        assert (step[[0, 3]] == 0).all()
        assert are_met(step, low, gradient, information, low, high)
        shortened = newton * min(1.0, 0.05 / np.abs(newton).max())  # the planted error
        failures += not are_met(shortened, low, gradient, information, low, high)
    assert failures > 40


@pytest.mark.parametrize("name", ["noise", "nodes.lengthscale"])
def test_scoring_starts_within_bounds(name, iterative):
    state = model(observations()).state
    ((_, high),) = state.hyperparameters.space.bounds(name)
    outside = state.hyperparameters.with_values(**{name: 1e9})
    beside = outside.replaced({name: torch.tensor(np.nextafter(high, -np.inf))})  # missed by rounding
    for start in (outside, beside):
        assert start.raw[name].item() != high
        values, report = ascended(state, start, iteration_limit=0)
        assert values.raw[name].item() == high
        assert report.at_bounds == (name,)
    if name == "noise":
        values, report = ascended(state, outside)
        assert report.converged
        assert values.value("noise").item() < 1


def test_scoring_respects_priors_and_fixed_values(iterative):
    one = torch.ones((), dtype=torch.float64)
    tight = torch.distributions.Normal(one, 1e-3 * one)
    state = model(observations(), lengthscale=1.2, priors={"lengthscale": tight}).state
    values, report = ascended(state, fixed=("noise",))
    assert report.converged
    assert values.value("nodes.lengthscale").item() == pytest.approx(1.0, abs=5e-3)
    assert values.value("noise").item() == state.hyperparameters.value("noise").item()
    same, everything = ascended(state, fixed=state.hyperparameters.space.names)
    assert everything.iterations == 0
    assert everything.likelihood_error > 0
    assert report.trace[0] == pytest.approx(everything.log_marginal_likelihood, rel=1e-9)
    assert torch.equal(same.flat(), state.hyperparameters.flat())


def test_average_information_matches_dense_algebra(iterative):
    state = model(observations(), "noise").state
    rows, values = state.rows, state.hyperparameters

    def infer(values):
        return state.replace(hyperparameters=values).infer(rows)

    free = values.space.free(())
    names = [name for name in free for _ in range(values.raw[name].numel())]
    point, one = values.vector(free), np.ones(len(rows))

    def covariance(point):
        return infer(values.moved(free, point)).product(torch.eye(len(rows), dtype=torch.float64)).numpy()

    shifts = 1e-5 * np.eye(len(point))
    slopes = [(covariance(point + s) - covariance(point - s)) / 2e-5 for s in shifts]
    inverse = np.linalg.inv(covariance(point))
    a = inverse @ infer(values).residual[:, 0].numpy()
    expected = np.array([[a @ s @ inverse @ t @ a / 2 for t in slopes] for s in slopes])
    mean = names.index("mean")
    expected[mean, mean] = one @ inverse @ one
    found = AverageInformation(infer, rows, 0.0, values, Plan(), "all rows").information(point, infer(values))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
