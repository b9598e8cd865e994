import numpy as np
import pytest
import torch
from checks import assert_mean, fails

import graphs
import rfgp
from rfgp import metrics
from rfgp.solvers.iterative.operator import CGOperator

GRID = graphs.Graph.from_grid((12, 12))
KERNEL = graphs.kernels.RegularizedLaplacian(2, 2.0)
SEEN = np.random.default_rng(0).permutation(144)[:90]
Y = np.sin(SEEN / 20) + 0.1 * np.random.default_rng(1).standard_normal(90)
POINTS = np.arange(20, 120)


@pytest.fixture(scope="module")
def exact():
    return rfgp.GraphGP(GRID, KERNEL, features="precision", noise=0.05, seed=0).condition(SEEN, 3 * Y)


@pytest.fixture
def walks(exact, monkeypatch):
    monkeypatch.setattr("rfgp.solvers.choice.MOST_DENSE", 10)
    return exact.redraw(features="walks", num_walkers=8, seed=1)


@pytest.mark.parametrize("name", ["exact", "walks"])
def test_operators_are_the_covariance(name, request):
    law = request.getfixturevalue(name).predict(POINTS)
    assert law.operator() is None  # without noise there is nothing to solve with
    operator, covariance = law.observed().operator(), law.observed().covariance_tensor()
    v = torch.from_numpy(np.random.default_rng(1).standard_normal((100, 3)))
    torch.testing.assert_close(operator.times(v), covariance @ v, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(operator.solve(covariance @ v), v, rtol=1e-3, atol=1e-3)
    draws = operator.draw(4000, torch.Generator().manual_seed(0))
    variance = covariance.diagonal()
    squares = (draws.square() / variance[:, None]).T.numpy()
    assert_mean(squares, 1)
    assert_mean(draws.T.numpy(), 0)
    assert fails(assert_mean, squares * variance.numpy(), float(variance.mean()))


@pytest.mark.slow
def test_estimates_of_the_divergence_agree_with_it_in_both_directions(exact, walks):
    """|z| < 7 of a mean of 1,024 light-tailed probes: a false-alarm rate below 1e-10 for each of the two."""
    p, q = exact.predict(POINTS), walks.predict(POINTS)
    found = {}
    for name, a, b in (("there", p, q), ("back", q, p)):
        estimate, expected = metrics.estimate_kl(a, b, num_probes=1024, seed=1), metrics.kl_divergence(a, b)
        assert abs(estimate.value - expected) < 7 * estimate.error
        found[name] = estimate
        each = metrics.estimate_kl(a, b, num_probes=1024, seed=1, per_point=True)
        assert (each.value, each.error) == pytest.approx((estimate.value / 100, estimate.error / 100), rel=1e-12)
    assert abs(found["there"].value - found["back"].value) > 7 * (found["there"].error + found["back"].error)
    same = metrics.estimate_kl(p, p)
    assert abs(same.value) < 1e-9


def test_fields_on_roads_have_operators_too():
    """|t| < 7 with 255 degrees of freedom: a false-alarm rate below 1e-10."""
    roads = rfgp.datasets.make_roads(seed=0)
    X = np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)
    gps = [
        rfgp.RoadGP(graphs.RoadNetwork.from_roads(roads), lengthscale=scale, seed=0).condition(X, roads.values)
        for scale in (300.0, 600.0)
    ]
    p, q = (gp.predict(X[:50]) for gp in gps)
    estimate, expected = metrics.estimate_kl(p, q, num_probes=256), metrics.kl_divergence(p, q)
    assert abs(estimate.value - expected) < 7 * estimate.error


def test_laws_without_operators_are_refused(exact):
    dense = exact.redraw(features="spectrum", rank=20)
    with pytest.raises(rfgp.InvalidArgumentError, match="kl_divergence takes any law of up to 2,000 points"):
        metrics.estimate_kl(exact.predict(POINTS), dense.predict(POINTS))
    two = rfgp.GraphGP(GRID, KERNEL, features="precision", seed=0).condition(SEEN, np.stack([Y, Y**2], axis=1))
    with pytest.raises(rfgp.InvalidArgumentError, match="one output"):
        metrics.estimate_kl(two.predict(POINTS), two.predict(POINTS))
    with pytest.raises(rfgp.InvalidArgumentError, match="num_probes"):
        metrics.estimate_kl(exact.predict(POINTS), exact.predict(POINTS), num_probes=1)
    with pytest.raises(rfgp.InvalidArgumentError, match="points"):
        metrics.estimate_kl(exact.predict(POINTS), exact.predict(POINTS[:4]))


def test_joint_laws_are_solved_for_a_few_points_at_a_time(walks, monkeypatch):
    whole, solved = walks.predict(POINTS).covariance, []
    solve = CGOperator.solve
    monkeypatch.setattr("rfgp.solvers.iterative.given.ENTRIES", 7 * 144)
    monkeypatch.setattr("rfgp.solvers.iterative.posterior.LEAST_SOLVED", 1)
    monkeypatch.setattr(CGOperator, "solve", lambda self, v, t: solved.append(v.shape[1]) or solve(self, v, t))
    np.testing.assert_allclose(walks.predict(POINTS).covariance, whole, atol=1e-4)
    assert solved == [7] * 14 + [2]
