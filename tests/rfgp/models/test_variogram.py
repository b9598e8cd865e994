"""Variograms: of rows by a double loop, and of the model by values of its kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from refusals import refused

import rfgp
from rfgp import kernels as k
from rfgp import plotting

PLACES = {"x": np.random.default_rng(0).uniform(0, 30, 60), "y": np.random.default_rng(1).uniform(0, 10, 60)}
Y = 3 + np.sin(PLACES["x"] / 4) + 0.2 * PLACES["y"] + 0.1 * np.random.default_rng(2).normal(size=60)
START = {"space.outputscale": 2.0, "noise": 0.3, "mean": 2.5}
ONE = k.Matern(("x", "y"), nu=0.5, ard=False, lengthscale=4.0, name="space")


def model(kernel=ONE, start=START, **options):
    return rfgp.GP(kernel, start=start, seed=0, standardize=False, **options).condition(PLACES, Y)


def by_loop(values, coordinates, lengths, axes, width, count):
    """Return mean distances, mean semivariances and numbers of pairs, (axes, count), by the definition."""
    pairs = {}
    for i in range(len(values)):
        for j in range(i):
            apart = [abs(column[i] - column[j]) for column in coordinates]
            axis = max(range(len(apart)), key=lambda c: apart[c]) if axes > 1 else 0
            h = np.hypot(*apart) * lengths[axis]
            if h <= width[axis] * count:
                pairs.setdefault((axis, int(h / width[axis])), []).append((h, (values[i] - values[j]) ** 2 / 2))
    shape = axes, count
    means = [np.full(shape, np.nan), np.full(shape, np.nan)]
    for place, found in pairs.items():
        for mean, column in zip(means, zip(*found, strict=True), strict=True):
            mean[place] = np.mean(column)
    return *means, np.array([[len(pairs.get((a, b), ())) for b in range(count)] for a in range(axes)])


def assert_rows(variogram, expected):
    for found, wanted in zip((variogram.distances, variogram.semivariances, variogram.counts), expected, strict=True):
        assert_allclose(found, wanted, rtol=1e-9)


def test_rows_are_those_of_a_double_loop():
    found = model().variogram(max_distance=12, num_bins=4)
    assert_rows(found, by_loop(Y, [PLACES["x"] / 4, PLACES["y"] / 4], [4.0], 1, [3.0], 4))
    assert (found.directions, found.removed, found.num_pairs) == (("distance",), (), 60 * 59 // 2)


def test_a_trend_is_subtracted_from_the_rows():
    gp = model(ONE + k.Linear("y", origin=0.0, name="slope"), {**START, "slope.variance": 0.5})
    found = gp.variogram(max_distance=12, num_bins=4)
    trend = gp.predict(PLACES).terms["slope"].mean
    assert_rows(found, by_loop(Y - trend, [PLACES["x"] / 4, PLACES["y"] / 4], [4.0], 1, [3.0], 4))
    assert found.removed == ("slope",)
    assert found.terms == ("space",)


@pytest.mark.parametrize("standardize", [True, False])
def test_rotated_axes_have_variograms_of_their_own(standardize):
    kernel = k.RBF(("x", "y"), lengthscale=(6.0, 2.0), rotation=30, name="space")
    gp = rfgp.GP(kernel, start=START, seed=0, standardize=standardize).condition(PLACES, Y)
    cos, sin = np.cos(np.pi / 6), np.sin(np.pi / 6)
    along = cos * PLACES["x"] + sin * PLACES["y"], cos * PLACES["y"] - sin * PLACES["x"]
    found = gp.variogram(num_bins=5)
    reach = np.sqrt(-2 * np.log(0.05)) * np.array([6.0, 2.0])
    assert_allclose(found.practical_ranges, reach, rtol=1e-6)
    cutoffs = np.minimum([np.ptp(axis) / 2 for axis in along], 2 * reach)
    assert_allclose(found.model_distances[:, -1], cutoffs)
    assert_rows(found, by_loop(Y, [along[0] / 6, along[1] / 2], [6.0, 2.0], 2, cutoffs / 5, 5))
    assert found.directions == ("30 degrees", "120 degrees")


@pytest.mark.parametrize("standardize", [True, False])
def test_the_model_has_the_values_of_its_kernel(standardize):
    """A sum on the same columns: along each column, noise plus the variance less the covariance."""
    kernel = k.Matern(("x", "y"), nu=0.5, lengthscale=(6.0, 2.0), name="space") + k.RBF("y", lengthscale=1.0, name="y")
    start = {**START, "y.outputscale": 0.5}
    gp = rfgp.GP(kernel, start=start, seed=0, standardize=standardize).condition(PLACES, Y)
    found = gp.variogram()
    assert found.directions == ("x", "y")
    assert set(found.terms) == {"space", "y"}
    assert np.isinf(found.practical_ranges[0])  # the second term does not change along x
    assert (found.nugget, found.sill) == (pytest.approx(0.3), pytest.approx(2.8))
    for axis, distances in enumerate(found.model_distances):
        shifted = [distances if axis == column else np.zeros_like(distances) for column in range(2)]
        space = np.exp(-np.hypot(shifted[0] / 6, shifted[1] / 2))
        expected = 0.3 + 2.0 * (1 - space) + 0.5 * (1 - np.exp(-(shifted[1] ** 2) / 2))
        assert_allclose(found.model_semivariances[axis], expected, rtol=1e-9)
    assert "nugget 0.3, sill 2.8" in str(found)


def test_many_pairs_are_sampled_by_a_seed():
    gp = model()
    every, some, again, other = (
        gp.variogram(max_distance=12, num_bins=3, num_pairs=most, seed=seed)
        for most, seed in ((1_000_000, 0), (1000, 0), (1000, 0), (1000, 1))
    )
    assert some.num_pairs == 1000
    assert_allclose(some.semivariances, again.semivariances)
    assert not np.array_equal(some.semivariances, other.semivariances)
    assert_allclose(some.semivariances, every.semivariances, rtol=0.2)
    assert_allclose(some.counts / 1000, every.counts / every.num_pairs, atol=0.06)


def test_the_nugget_has_the_known_noise_of_rows():
    gp = rfgp.GP(ONE, start=START, seed=0).condition(PLACES, Y, noise=np.linspace(0, 0.4, 60))
    assert gp.variogram().nugget == pytest.approx(0.3 + 0.2)


def test_the_picture_has_the_rows_and_the_model():
    found = model().variogram(num_bins=4)
    axes = plotting.plot_variogram(found)
    lines = [line.get_xydata() for line in axes.lines]
    assert any(np.shape(line) == (200, 2) and np.allclose(line[:, 1], found.model_semivariances[0]) for line in lines)
    assert any(np.shape(line) == (4, 2) and np.allclose(line[:, 1], found.semivariances[0]) for line in lines)


REFUSED = [
    (lambda: model(k.Linear("x"), {}).variogram(), rfgp.InvalidArgumentError, "stationary kernel"),
    (lambda: model().variogram("spice"), rfgp.InvalidArgumentError, "'spice'"),
    (lambda: model().variogram(num_bins=0), rfgp.InvalidArgumentError, "num_bins"),
    (lambda: model().variogram(num_pairs=1.5), rfgp.InvalidArgumentError, "num_pairs"),
    (lambda: model().variogram(max_distance=np.nan), rfgp.InvalidArgumentError, "max_distance"),
    (lambda: rfgp.GP(ONE).variogram(), rfgp.NotFittedError, "no data"),
    (
        lambda: rfgp.GP(ONE, "poisson", seed=0).condition(PLACES, np.arange(60)).variogram(),
        rfgp.InvalidArgumentError,
        "one target",
    ),
    (lambda: rfgp.GP(ONE).condition(PLACES, np.stack([Y, -Y], 1)).variogram(), rfgp.InvalidArgumentError, "one target"),
    (
        lambda: rfgp.GP(k.RBF("x")).condition({"x": np.ones(5)}, Y[:5]).variogram(),
        rfgp.DataError,
        "one position",
    ),
]


@pytest.mark.parametrize(("call", "error", "word"), REFUSED)
def test_what_has_no_variogram_is_refused(call, error, word):
    refused(call, error, word)
