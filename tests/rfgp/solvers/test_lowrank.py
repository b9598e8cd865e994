"""Statistics of one pass: the best scales, and further rows."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize

from rfgp.blocks import WeightBlock, Weights
from rfgp.rows import Block
from rfgp.solvers.lowrank import (
    LinearModel,
    LowRankSolver,
    accumulate_gram,
    best_common_scale,
    best_scales,
    solve,
    update_gram,
)
from rfgp.solvers.lowrank.statistics import quadratic_form


def linear(n=60, features=7, outputs=1, weights=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    phi = torch.randn(n, features, generator=generator, dtype=torch.float64)
    y = phi @ torch.randn(features, outputs, generator=generator, dtype=torch.float64)
    y = y + 0.5 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    weight = torch.randint(1, 4, (n,), generator=generator).double() if weights else None
    return of_rows(Block(phi, y, None, weight))


def of_rows(rows, factor=1.0):
    """Return the model of rows with a variance of 1.7 and a noise of 0.3, times a factor."""
    one = torch.as_tensor(factor, dtype=torch.float64)
    weights = Weights((WeightBlock(lambda x: x, rows.inputs.shape[1], (), 1.7 * one),))
    return LinearModel(weights, rows, torch.full((rows.num_outputs,), 0.2, dtype=torch.float64), 0.3 * one)


def dense_density(model, variance, noise):
    """The log density of every observation written out, repetitions as rows of their own."""
    rows = model.rows
    counts = np.ones(len(rows), int) if rows.weight is None else rows.weight.numpy().astype(int)
    phi, y = (np.repeat(t.numpy(), counts, axis=0) for t in (rows.inputs, rows.targets))
    covariance = variance * phi @ phi.T + noise * np.eye(len(phi))
    return sum(stats.multivariate_normal(np.full(len(phi), 0.2), covariance).logpdf(column) for column in y.T)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_quadratic_form(outputs, weights):
    model = linear(outputs=outputs, weights=weights)
    statistics = accumulate_gram(model)
    solution = solve(statistics, model.scale, model.noise)
    covariance = 1.7 * model.rows.inputs @ model.rows.inputs.T + torch.diag(0.3 / model.rows.counts())
    residual = model.rows.targets - 0.2
    expected = (residual * torch.linalg.solve(covariance, residual)).sum()
    found = quadratic_form(statistics, solution, model.scale, model.noise)
    assert found.item() == pytest.approx(expected.item())


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_common_scale_is_the_best_one(outputs, weights):
    model = linear(outputs=outputs, weights=weights)
    c, solution = best_common_scale(model, model.rows.count)
    best = minimize(lambda v: -dense_density(model, 1.7 * np.exp(v[0]), 0.3 * np.exp(v[0])), [0.0], tol=1e-10)
    assert c.log().item() == pytest.approx(best.x[0], abs=1e-4)
    at = of_rows(model.rows, c)
    value = LowRankSolver(at, solution).log_marginal_likelihood().item()
    assert value == pytest.approx(dense_density(model, 1.7 * c.item(), 0.3 * c.item()), rel=1e-10)
    assert value == pytest.approx(LowRankSolver(at).log_marginal_likelihood().item(), rel=1e-12)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("ratio", [1e-4, 0.3, 1e3])
def test_both_scales_are_the_best_ones(outputs, weights, ratio):
    model = linear(outputs=outputs, weights=weights)
    best = best_scales(accumulate_gram(model), model.rows.count, ratio, (1e-6, 1e8), (1e-6, 1e2))

    def loss(v):
        return -dense_density(model, *np.exp(v))

    searched = minimize(loss, [0.0, -1.0], tol=1e-12)
    assert loss([best.variance.log().item(), best.noise.log().item()]) == pytest.approx(searched.fun, abs=1e-5)


def test_bounds_are_kept():
    model = linear()
    best = best_scales(accumulate_gram(model), 60, 1.0, (1e-6, 1e8), (0.9, 2.0))
    assert best.noise.item() == pytest.approx(0.9, rel=1e-9)
    best = best_scales(accumulate_gram(model), 60, 1.0, (1e-6, 1e-2), (1e-6, 1e2))
    assert best.variance.item() == pytest.approx(1e-2, rel=1e-9)


@pytest.mark.parametrize("weights", [False, True])
def test_further_rows_give_the_posterior_of_all_rows(weights):
    model = linear(60, 7, 2, weights)
    first, last = (of_rows(model.rows.take(part)) for part in (torch.arange(40), torch.arange(40, 60)))
    before = LowRankSolver(first).posterior()
    grown, statistics = update_gram(last, before)
    whole = LowRankSolver(model).posterior()
    torch.testing.assert_close(grown.weights, whole.weights, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(grown.uncertainty.factor, whole.uncertainty.factor, rtol=1e-9, atol=1e-10)
    assert (statistics.rows.item(), statistics.observations.item()) == (20, last.rows.count)
