"""Fits through inducing points with neighbors for the residual."""

import numpy as np
import pytest
from stationary import spec_of

import rfgp
from rfgp.fitting import Plan, fit_terms
from rfgp.fitting.neighbor_fit import ITERATIONS_PER_ROUND
from rfgp.regression import begin
from rfgp.rows import Chunk

AGAIN, ALONE = ", points selected again", ", no points"


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X * [1.0, 5.0, 20.0], np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(n)


NEAR = rfgp.Vecchia(10, seed=1)
RESIDUAL = {"residual": NEAR}


def fitted(plan=None, **more):
    return fitted_by(rfgp.InducingPoints(25, seed=1, **more), plan)


def fitted_by(approximation, plan=None):
    spec = spec_of("matern32", approximation, seed=1)
    return fit_terms(begin(spec, Chunk(*table())), plan or Plan())


def points(state):
    return state.spec.term_priors[0].points


def total(state):
    return state.log_marginal_likelihood().item()


@pytest.fixture(scope="module")
def residual():
    return fitted(**RESIDUAL)


def test_residual_is_more_likely_than_either_part(residual):
    """All three approximate the optimum of the exact likelihood. The residual is closest."""
    found, report = residual
    exact, _ = fitted_by(rfgp.Exact())
    without = [fitted(method="sor"), fitted(method="fitc"), fitted_by(rfgp.Vecchia(10, seed=0))]
    distance = [abs(total(other) - total(exact)) for other in (found, *(one for one, _ in without))]
    assert distance[0] == min(distance), distance
    assert report.converged
    assert report.log_marginal_likelihood == pytest.approx(total(found), rel=1e-12)


def test_points_are_selected_at_lengthscales_of_neighbors(residual, monkeypatch):
    found, report = residual
    assert report.stages[0].name == f"all rows{ALONE}"
    assert report.stages[-1].name.startswith("all rows")
    assert ALONE not in report.stages[-1].name
    monkeypatch.setattr(rfgp.InducingPoints, "rebuild", lambda self, data, seed, prior: prior)
    kept, other = fitted(**RESIDUAL)
    assert report.log_marginal_likelihood > other.log_marginal_likelihood
    assert not np.allclose(points(found), points(kept))


def test_points_are_selected_again_if_lengthscales_change(monkeypatch):
    """A less likely result is dropped."""
    monkeypatch.setattr(rfgp.InducingPoints, "rebuild", lambda self, data, seed, prior: self.build(data, seed))
    found, report = fitted(**RESIDUAL)
    assert any(AGAIN in stage.name for stage in report.stages)
    assert report.log_marginal_likelihood == pytest.approx(total(found), rel=1e-12)


def test_learned_points_move_and_are_more_likely(residual):
    found, report = fitted(**RESIDUAL, learn_locations=True)
    assert report.stages[-1].name == "all rows, basis too"
    assert report.converged
    assert report.stages[-1].iterations > ITERATIONS_PER_ROUND
    assert total(found) > total(residual[0]) + 0.5
    assert not np.allclose(points(found), points(residual[0]))


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_fixed_hyperparameters_stay():
    everything = ("lengthscale", "outputscale", "noise", "mean")
    found, report = fitted(Plan(fixed=everything), **RESIDUAL)
    assert report.message == "every hyperparameter is fixed"
    assert float(found.hyperparameters.standardized("noise")) == pytest.approx(0.1)
    found, _ = fitted(Plan(fixed=("lengthscale",)), **RESIDUAL)
    assert found.hyperparameters.standardized("matern.lengthscale").detach().numpy() == pytest.approx(np.sqrt(3))
