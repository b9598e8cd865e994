"""Calibrated intervals and the coverage of left-out rows, against refits without each row."""

import math

import numpy as np
import pytest
import torch
from average_cases import ROWS, Y, average, model, models_of

import graphs
import rfgp
from rfgp import kernels as k
from rfgp import random
from rfgp.models.process import Fitted

X = np.random.default_rng(0).uniform(0, 10, (24, 2))
NEW = np.random.default_rng(1).uniform(0, 10, (5, 2))
y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(2).standard_normal(24)
LEVELS = np.linspace(0.05, 0.95, 19)


def on_table(approximation, kernel=None, targets=y):
    gp = rfgp.GP(kernel or k.RBF(), approximation=approximation, seed=0, start={"noise": 0.05})
    return gp.condition(X, targets), X, targets, NEW


def of_stores():
    new = {"t": np.array([0.5, 8.0]), "p": np.array([0.1, -2.0]), "store": np.array(["a", "d"])}
    return average(models_of(rfgp.Exact(), rfgp.RandomFeatures(8), rfgp.InducingPoints(9))), ROWS, Y, new


def on_roads():
    net = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 1)]], metric="euclidean")
    table, new = np.stack([np.arange(24) % 2, X[:, 1] / 10], 1), np.array([[0, 0.3], [1, 0.9]])
    gp = rfgp.RoadGP(net, lengthscale=1.0, outputscale=1.0, noise=0.1, seed=0).condition(table, y)
    return gp, table, y, new


CASES = {
    "exact": lambda: on_table(rfgp.Exact()),
    "features": lambda: on_table(rfgp.RandomFeatures(8)),
    "many features": lambda: on_table(rfgp.RandomFeatures(20)),
    "inducing points": lambda: on_table(rfgp.InducingPoints(10)),
    "filter": lambda: on_table(rfgp.SparsePrecision(), k.Matern(0, nu=1.5)),
    "roads": on_roads,
    "two outputs": lambda: on_table(rfgp.Exact(), targets=np.stack([y, y**2 + X[:, 1]], 1)),
    "average": of_stores,
}


def taken(table, rows):
    return {name: column[rows] for name, column in table.items()} if isinstance(table, dict) else table[rows]


def conditioned(gp, table, targets, keep):
    """Return a model of some rows at the same hyperparameters."""
    return rfgp.GP.of(gp.spec, Fitted.of(gp.state)).condition(taken(table, keep), targets[keep])


def ends(means, deviations, scores, level):
    """Return the order statistics that Barber et al. (2021) define, over the first axis."""
    n = len(means)
    alpha = 1 - level
    low, high = np.sort(means - scores * deviations, 0), np.sort(means + scores * deviations, 0)
    return low[math.floor(alpha * (n + 1) + 1e-9) - 1], high[math.ceil((1 - alpha) * (n + 1) - 1e-9) - 1]


@pytest.mark.parametrize("case", CASES)
def test_intervals_and_coverage_equal_refits(case):
    gp, table, targets, new = CASES[case]()
    means, deviations, scores, reached = [], [], [], []
    for i in range(len(targets)):
        other = conditioned(gp, table, targets, np.arange(len(targets)) != i)
        own, at = (other.predict(part).observed() for part in (taken(table, [i]), new))
        scores.append(np.abs(targets[[i]] - own.mean) / own.std)
        means.append(at.mean)
        deviations.append(at.std)
        reached.append(np.abs(2 * own.cdf(targets[[i]]) - 1))
    means, deviations, scores = map(np.array, (means, deviations, scores))
    observed = gp.predict(new).observed()
    for level in (0.3, 0.8, 0.9):
        low, high = np.sort(ends(means, deviations, scores, level), 0)
        np.testing.assert_allclose(observed.interval(level, calibrated=True), (low, high), rtol=1e-8, atol=1e-8)
    calibration = gp.calibration(LEVELS)
    assert (calibration.num_rows, calibration.rows) == (len(targets), "left out one at a time")
    shares = (np.reshape(reached, (-1, 1)) <= LEVELS).mean(0)
    np.testing.assert_allclose(calibration.coverage, shares, atol=1e-12)
    np.testing.assert_allclose(calibration.standard_error**2, LEVELS * (1 - LEVELS) / len(targets))


@pytest.mark.parametrize(("level", "fewest"), [(0.95, 19), (0.9, 9), (0.8, 4)])
def test_smallest_number_of_rows_takes_extreme_ends(level, fewest):
    gp = rfgp.ExactGP(noise=0.1).condition(X[:fewest], y[:fewest])
    left_out = gp.leave_one_out()
    residuals = np.abs(y[:fewest] - left_out.mean) / np.sqrt(left_out.variance)
    far = rfgp.ExactGP(noise=0.1).condition(X[:fewest], y[:fewest]).predict([[1e4, 1e4]]).observed()
    low, high = far.interval(level, calibrated=True)  # where no row is informative
    np.testing.assert_allclose([low, high], far.mean + np.array([[-1], [1]]) * residuals.max() * far.std, rtol=1e-9)
    few = rfgp.ExactGP(noise=0.1).condition(X[: fewest - 1], y[: fewest - 1]).predict(NEW).observed()
    with pytest.raises(rfgp.InvalidArgumentError, match=f"requires {fewest} left-out rows, got {fewest - 1}"):
        few.interval(level, calibrated=True)


@pytest.mark.parametrize("outputs", [1, 2])
def test_many_rows_are_split(outputs):
    rng = np.random.default_rng(3)
    table = rng.uniform(0, 10, (2001, 1))
    targets = np.sin(table) * np.arange(1, outputs + 1) + 0.3 * rng.standard_normal((2001, outputs))
    targets = targets[:, 0] if outputs == 1 else targets
    gp, again, other = (
        rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(8), seed=seed).condition(table, targets)
        for seed in (0, 0, 1)
    )
    order = torch.randperm(2001, generator=random.generator(0, random.Role.CALIBRATION)).numpy()
    held_out = conditioned(gp, table, targets, order[400:]).predict(table[order[:400]]).observed()
    scores = np.sort(np.abs(targets[order[:400]] - held_out.mean) / held_out.std, 0)
    new = np.linspace(0, 12, 7)[:, None]
    at, intervals = conditioned(gp, table, targets, order[400:]).predict(new).observed(), []
    for one in (gp, again, other):
        intervals.append(one.predict(new).observed().interval(0.95, calibrated=True))
    half = scores[math.ceil(0.95 * 401) - 1] * at.std
    np.testing.assert_allclose(intervals[0], (at.mean - half, at.mean + half), rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(intervals[0], intervals[1])
    assert np.abs(np.subtract(intervals[0], intervals[2])).max() > 1e-6
    calibration = gp.calibration([0.5, 0.95])
    assert (calibration.num_rows, calibration.rows) == (400, "held out")
    expected = [(scores <= half).mean() for half in (0.6744897501960817, 1.959963984540054)]
    np.testing.assert_allclose(calibration.coverage, expected, atol=1e-12)


def test_neighbors_are_split():
    table = np.random.default_rng(4).uniform(0, 10, (100, 1))
    targets = np.sin(table[:, 0]) + 0.3 * np.random.default_rng(5).standard_normal(100)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Vecchia(5), seed=0).condition(table, targets)
    low, high = gp.predict(NEW[:, :1]).observed().interval(0.9, calibrated=True)
    assert (low < high).all()
    with pytest.raises(rfgp.InvalidArgumentError, match="requires 99 left-out rows, got 20"):
        gp.predict(NEW[:, :1]).observed().interval(0.99, calibrated=True)


@pytest.mark.parametrize("noise", [1e-3, 10.0])
def test_calibrated_intervals_cover_new_rows_of_wrong_models(noise):
    rng = np.random.default_rng(6)
    table = rng.uniform(0, 10, (1200, 1))
    targets = np.sign(np.sin(2 * table[:, 0])) + 0.3 * rng.standard_t(3, 1200)
    gp = rfgp.ExactGP(lengthscale=1.0, noise=noise).condition(table[:200], targets[:200])
    observed = gp.predict(table[200:]).observed()
    plain, calibrated = (observed.interval(0.9, calibrated=value) for value in (False, True))
    shares = [np.mean((targets[200:] >= low) & (targets[200:] <= high)) for low, high in (plain, calibrated)]
    error = np.sqrt(0.09 / 1000 + 0.09 / 200)  # of new rows, and of the calibration
    assert abs(shares[0] - 0.9) > 4 * error
    assert abs(shares[1] - 0.9) < 4 * error


def test_coverage_has_weights_noise_and_counts():
    noise, weight = np.linspace(0.01, 0.5, 24), np.arange(24) % 3 + 1.0
    gp = rfgp.ExactGP(noise=0.1).condition(X, y, noise=noise, sample_weight=weight)
    left_out = gp.leave_one_out()
    z = np.abs(y - left_out.mean) / np.sqrt(left_out.variance)
    assert gp.calibration([0.5]).coverage == pytest.approx((z <= 0.6744897501960817).mean())
    rng = np.random.default_rng(7)
    table, units = rng.uniform(0, 10, (300, 1)), rng.uniform(0.5, 2, 300)
    counts = rng.poisson(units * np.exp(1 + np.sin(table[:, 0])))
    gp = rfgp.GP(k.RBF(), "poisson", approximation=rfgp.RandomFeatures(16), seed=0)
    calibration = gp.fit(table, counts, exposure=units).calibration()
    assert np.abs((calibration.coverage - calibration.levels) / calibration.standard_error).max() < 4
    lines = str(calibration).splitlines()
    assert lines[0] == "Coverage of central intervals for 300 rows, left out one at a time"
    assert len(lines) == 13


def test_saved_rows_calibrate_a_loaded_model(tmp_path):
    gp = model(k.RBF("t"), rfgp.RandomFeatures(8))
    gp.save(tmp_path / "with", data=True)
    gp.save(tmp_path / "without")
    intervals = [one.predict(ROWS).observed().interval(calibrated=True) for one in (gp, rfgp.load(tmp_path / "with"))]
    np.testing.assert_allclose(*intervals, rtol=1e-10)
    loaded = rfgp.load(tmp_path / "without")
    for call in (loaded.calibration, lambda: loaded.predict(ROWS).observed().interval(calibrated=True)):
        with pytest.raises(rfgp.NotFittedError, match="rows must be known"):
            call()


def forgotten():
    gp = on_table(rfgp.EquispacedFourier(), k.RBF(0))[0]
    return gp.forget(X[:2], y[:2]).predict(NEW).observed()


def selected(validate):
    t = np.arange(40.0)
    table = {"t": t, "site": t // 5} if validate == "site" else {"t": t}
    return rfgp.GP(validate=validate, seed=0).fit(table, np.sin(t / 3)).predict(table).observed()


def exact(**options):
    return rfgp.ExactGP(noise=0.1).condition(X, y, **options).predict(NEW)


@pytest.mark.parametrize(
    ("prediction", "error", "message"),
    [
        (exact, rfgp.InvalidArgumentError, "latent function"),
        (lambda: exact().linear(np.ones(5)).observed(), rfgp.InvalidArgumentError, "observations of all terms"),
        (lambda: exact().terms["rbf"].observed(), rfgp.InvalidArgumentError, "observations of all terms"),
        (lambda: exact().centered().observed(), rfgp.InvalidArgumentError, "observations of all terms"),
        (lambda: of_stores()[0].predict(ROWS).linear(np.ones(30)).observed(), rfgp.InvalidArgumentError, "all terms"),
        (lambda: exact(noise=np.ones(24)).observed(), rfgp.InvalidArgumentError, "exchangeable"),
        (lambda: exact(sample_weight=np.arange(1, 25)).observed(), rfgp.InvalidArgumentError, "exchangeable"),
        pytest.param(lambda: selected("forward"), rfgp.InvalidArgumentError, "last rows", marks=pytest.mark.slow),
        pytest.param(lambda: selected("site"), rfgp.InvalidArgumentError, "groups of site", marks=pytest.mark.slow),
        (forgotten, rfgp.NotFittedError, "after forget"),
        (
            lambda: rfgp.GP(k.RBF(), "student-t").condition(X, y).predict(NEW).observed(),
            rfgp.InvalidArgumentError,
            "Gaussian likelihood",
        ),
    ],
)
def test_unsupported_predictions_are_refused(prediction, error, message):
    found = prediction()
    with pytest.raises(error, match=message):
        found.interval(0.5, calibrated=True)
    with pytest.raises(rfgp.RfgpError):
        found.interval(1.5, calibrated=True)
