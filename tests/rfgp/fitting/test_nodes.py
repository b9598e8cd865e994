"""Fits of many nodes, by conjugate gradients instead of factorizations."""

import numpy as np
import pytest
import torch
from grid import field, grid, observations

import rfgp
from rfgp import GraphGP
from rfgp.solvers.iterative import operator


@pytest.fixture
def iterative(limits):
    limits(max_dense=0)


def fitted(**options):
    data = observations()
    return GraphGP(grid(), features="walks", num_walkers=64, seed=0).fit(data.nodes, data.y, **options)


@pytest.fixture(scope="module")
def whole():
    """A model fitted by conjugate gradients on all rows, and the arguments of its callback."""
    told = []
    with rfgp.testing.limits(max_dense=0):
        return fitted(callback=lambda *iteration: told.append(iteration)), told


@pytest.mark.slow
def test_fit_by_conjugate_gradients(whole, iterative):
    gp, told = whole
    report = gp.fit_report
    assert report.converged
    assert report.likelihood_error > 0
    assert len(told) == report.iterations
    truth, p = field(np.arange(900)), gp.predict(np.arange(900))
    assert rfgp.metrics.rmse(truth, p) < 0.15
    assert 0.3 < np.mean((p.mean - truth) ** 2 / p.variance) < 3


@pytest.mark.slow
def test_many_rows_start_from_a_subset(whole, monkeypatch, limits, iterative):
    whole, _ = whole
    assert {(stage.name, stage.rows) for stage in whole.fit_report.stages} == {("all rows", 253)}
    monkeypatch.setattr("rfgp.fitting.terms.FIRST_ROWS_BY_CG", 120)
    gp = fitted()
    first, *others = gp.fit_report.stages
    assert (first.name, first.rows) == ("subset of 120", 120)
    assert {(stage.name, stage.rows) for stage in others} == {("all rows", 253)}  # with tuned walks, not again
    assert gp.fit_report.iterations == sum(stage.iterations for stage in gp.fit_report.stages)
    limits(max_dense=10**6)
    lost = whole.log_marginal_likelihood() - gp.log_marginal_likelihood()
    assert abs(lost.item()) < 1.0  # both are within 1/16 of 4 parameters / 2 of the maximum, on average


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [1, 12])
def test_starts_that_fail_are_skipped(iterations, monkeypatch, iterative):
    """If all starts fail, as in one step, the search starts at the values of the model."""
    monkeypatch.setattr(operator, "MAX_ITERATIONS", iterations)
    searched = []
    monkeypatch.setattr(
        "rfgp.fitting.terms.AverageInformation", lambda *arguments: searched.append(arguments[3]) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        fitted()
    (values,) = searched
    data = observations()
    own = GraphGP(grid(), features="walks", num_walkers=64, seed=0).condition(data.nodes, data.y).state
    assert torch.equal(values.flat(), own.hyperparameters.flat()) == (iterations == 1)
