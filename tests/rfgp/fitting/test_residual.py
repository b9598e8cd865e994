"""Fits through inducing points whose residual neighbours take up."""

import numpy as np
import pytest
from rfgp.fitting.inducing import AGAIN, ALONE

import rfgp
from rfgp.fitting import Plan, fit_table
from rfgp.fitting.neighbors import EACH
from rfgp.regression import begin, family_of, options_of
from rfgp.regression.table import InducingFamily
from rfgp.rows import Chunk


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X * [1.0, 5.0, 20.0], np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(n)


def fitted(plan=None, **more):
    options = options_of(features="nystrom", spectrum=rfgp.spectra.Matern(1.5), num_inducing=25, seed=0, **more)
    return fit_table(begin(family_of(options), Chunk(*table())), plan or Plan())


def total(regression):
    return regression.log_marginal_likelihood().item()


@pytest.fixture(scope="module")
def residual():
    return fitted(local="residual", num_neighbors=10)


def test_it_is_likelier_than_either_part_alone(residual):
    """The exact likelihood at its optimum is what both estimate: the residual comes nearest to it."""
    found, report = residual
    exact, _ = fit_table(found.replace(family=found.family.exact(), given=None), Plan())
    without = [
        fitted(),
        fitted(diagonal="fitc"),
        fit_table(
            begin(family_of(options_of(features=None, local="matern32", num_neighbors=10, seed=0)), Chunk(*table())),
            Plan(),
        ),
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
    monkeypatch.setattr(InducingFamily, "has_moved", lambda self, values: False)
    kept, other = fitted(local="residual", num_neighbors=10)
    assert report.log_marginal_likelihood > other.log_marginal_likelihood
    assert not np.allclose(found.family.drawn_points, kept.family.drawn_points)


def test_points_are_chosen_again_where_lengthscales_move_once_more(monkeypatch):
    """What is less likely does not stand."""
    monkeypatch.setattr(InducingFamily, "has_moved", lambda self, values: True)
    found, report = fitted(local="residual", num_neighbors=10)
    assert any(AGAIN in stage.name for stage in report.stages)
    assert report.log_marginal_likelihood == pytest.approx(total(found), rel=1e-12)


def test_learned_points_move_and_are_likelier(residual):
    found, report = fitted(local="residual", num_neighbors=10, learn_inducing=True)
    assert report.stages[-1].name == "all rows, points too"
    assert report.converged
    assert report.stages[-1].iterations > EACH
    assert total(found) > total(residual[0]) + 0.5
    assert not np.allclose(found.family.drawn_points, residual[0].family.drawn_points)


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_what_is_fixed_stays():
    everything = ("lengthscale", "outputscale", "noise", "mean")
    found, report = fitted(Plan(fixed=everything), local="residual", num_neighbors=10)
    assert report.message == "every hyperparameter is fixed"
    assert float(found.hyperparameters.standardized("noise")) == pytest.approx(0.1)
    found, _ = fitted(Plan(fixed=("lengthscale",)), local="residual", num_neighbors=10)
    assert found.hyperparameters.standardized("lengthscale").detach().numpy() == pytest.approx(np.sqrt(3))
