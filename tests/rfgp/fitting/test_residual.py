"""Fits through inducing points whose residual neighbours take up."""

import numpy as np
import pytest

import rfgp
from rfgp.fitting import Plan, fit_terms
from rfgp.fitting.neighbors import EACH
from rfgp.regression import begin
from rfgp.regression.spec import ModelSpec
from rfgp.regression.table import model_options, options_of
from rfgp.rows import Chunk

AGAIN, ALONE = ", points chosen again", ", no points"


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X * [1.0, 5.0, 20.0], np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(n)


def fitted(plan=None, **more):
    options = options_of(features="nystrom", spectrum=rfgp.spectra.Matern(1.5), num_inducing=25, seed=1, **more)
    return fit_terms(begin(ModelSpec(model_options(options)), Chunk(*table())), plan or Plan())


def points(regression):
    return regression.family.priors[0].points


def total(regression):
    return regression.log_marginal_likelihood().item()


@pytest.fixture(scope="module")
def residual():
    return fitted(local="residual", num_neighbors=10)


def test_it_is_likelier_than_either_part_alone(residual):
    """The exact likelihood at its optimum is what both estimate: the residual comes nearest to it."""
    found, report = residual
    exactly = model_options(options_of(features="exact", spectrum=rfgp.spectra.Matern(1.5)))
    near = model_options(options_of(features=None, local="matern32", num_neighbors=10, seed=0))
    exact, _ = fit_terms(begin(ModelSpec(exactly), Chunk(*table())), Plan())
    without = [
        fitted(),
        fitted(diagonal="fitc"),
        fit_terms(begin(ModelSpec(near), Chunk(*table())), Plan()),
    ]
    distance = [abs(total(other) - total(exact)) for other in (found, *(one for one, _ in without))]
    assert distance[0] == min(distance), distance
    assert report.converged
    assert report.log_marginal_likelihood == pytest.approx(total(found), rel=1e-12)


def test_neighbors_come_first_and_points_suit_the_lengthscales_that_they_find(residual, monkeypatch):
    found, report = residual
    assert report.stages[0].name == f"all rows{ALONE}"
    assert report.stages[-1].name.startswith("all rows")
    assert ALONE not in report.stages[-1].name
    monkeypatch.setattr(rfgp.InducingPoints, "redraw", lambda self, data, seed, prior: prior)
    kept, other = fitted(local="residual", num_neighbors=10)
    assert report.log_marginal_likelihood > other.log_marginal_likelihood
    assert not np.allclose(points(found), points(kept))


def test_points_are_chosen_again_where_lengthscales_move_once_more(monkeypatch):
    """What is less likely does not stand."""
    monkeypatch.setattr(rfgp.InducingPoints, "redraw", lambda self, data, seed, prior: self.draw(data, seed))
    found, report = fitted(local="residual", num_neighbors=10)
    assert any(AGAIN in stage.name for stage in report.stages)
    assert report.log_marginal_likelihood == pytest.approx(total(found), rel=1e-12)


def test_learned_points_move_and_are_likelier(residual):
    found, report = fitted(local="residual", num_neighbors=10, learn_inducing=True)
    assert report.stages[-1].name == "all rows, draws too"
    assert report.converged
    assert report.stages[-1].iterations > EACH
    assert total(found) > total(residual[0]) + 0.5
    assert not np.allclose(points(found), points(residual[0]))


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_what_is_fixed_stays():
    everything = ("lengthscale", "outputscale", "noise", "mean")
    found, report = fitted(Plan(fixed=everything), local="residual", num_neighbors=10)
    assert report.message == "every hyperparameter is fixed"
    assert float(found.hyperparameters.standardized("noise")) == pytest.approx(0.1)
    found, _ = fitted(Plan(fixed=("lengthscale",)), local="residual", num_neighbors=10)
    assert found.hyperparameters.standardized("matern.lengthscale").detach().numpy() == pytest.approx(np.sqrt(3))
