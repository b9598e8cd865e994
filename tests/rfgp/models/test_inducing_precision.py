"""Inducing points in single precision: predictions of float32 models against those of float64 ones at any noise."""

import numpy as np
import pytest
import torch
from stationary import model_of

import rfgp
from rfgp.blocks import WeightBlock
from rfgp.features import Nystrom
from rfgp.features.inducing import mean_square_error
from rfgp.regression import mean_and_noise
from rfgp.solvers.lowrank.model import LinearModel

STD, MEAN, DENSITY = 0.02, 0.004, 1e-3
"""The most that float32 may change: standard deviations (relative), means (in those of the targets), nats a row."""
KERNELS = [("gaussian", 1), ("gaussian", 2), ("matern32", 1), ("matern32", 4)]
"""With the number of columns. The condition of k(Z, Z) + j I is 1e10 for the first, and 1e3 for the last."""


def table(columns, rows=1000, seed=0):
    """Return float32 inputs (n, d) and targets (n,) of unit deviation."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + 0.05 * rng.standard_normal(rows)
    return X, (y / y.std()).astype(np.float32)


def model(spectrum, columns, noise, dtype, points=128, lengthscale=1.0, method="sor"):
    """Return a model of the table."""
    gp = model_of(
        spectrum,
        rfgp.InducingPoints(points, method=method, seed=0),
        standardize=False,
        lengthscale=[lengthscale] * columns,
        outputscale=1.0,
        noise=noise,
        dtype=dtype,
    )
    return gp.condition(*table(columns))


def answers(gp, columns):
    """Return what a model answers at new inputs, and about its rows."""
    prediction = gp.predict(table(columns, 200, seed=1)[0])
    density = gp.log_marginal_likelihood().item() / gp.num_observations
    return {
        "std": prediction.std,
        "mean": prediction.mean,
        "left out": np.sqrt(gp.leave_one_out().variance),
        "density": density,
    }


def apart(single, double):
    """Return how far answers in float32 are from those in float64, as shares of what they may be."""
    ratios = {name: np.abs(np.log(single[name] / double[name])).max() / STD for name in ("std", "left out")}
    mean = np.abs(single["mean"] - double["mean"]).max() / MEAN
    density = abs(single["density"] - double["density"]) / DENSITY
    return {**ratios, "mean": mean, "density": density / max(1, abs(double["density"]) / 1000)}


def assert_close(*options, **more):
    """A float32 model answers as the float64 one does."""
    double, single = (model(*options, dtype=dtype, **more) for dtype in (torch.float64, torch.float32))
    found = apart(answers(single, options[1]), answers(double, options[1]))
    assert max(found.values()) < 1, found


def linear(gp):
    """Return the linear model of the rows of a conditioned model."""
    now = gp.state
    return LinearModel(now.prior().dense, now.rows, *mean_and_noise(now.hyperparameters))


def dtype_of_features(gp):
    """Return the dtype of the features of rows."""
    model = linear(gp)
    return model.phi(next(model.blocks())).dtype


@pytest.mark.thinned(3)
@pytest.mark.parametrize("noise", [1e-6, 1e-5, 1e-3, 0.1])
@pytest.mark.parametrize(("spectrum", "columns"), KERNELS)
def test_float32_matches_float64(spectrum, columns, noise):
    assert_close(spectrum, columns, noise)


@pytest.mark.slow
@pytest.mark.thinned(1000, slow=5)
@pytest.mark.parametrize("method", ["sor", "fitc", "vfe"])
@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("lengthscale", [0.3, 3.0])
@pytest.mark.parametrize("points", [32, 256])
@pytest.mark.parametrize(("spectrum", "columns"), KERNELS)
def test_float32_matches_float64_slow(spectrum, columns, points, lengthscale, noise, method):
    assert_close(spectrum, columns, noise, points=points, lengthscale=lengthscale, method=method)


@pytest.mark.parametrize("points", [32, 128])
@pytest.mark.parametrize(("spectrum", "columns"), KERNELS)
def test_rows_are_float32_up_to_the_limit(spectrum, columns, points):
    """On either side of the noise from which on the arithmetic of rows is float64, answers are right."""
    weights = linear(model(spectrum, columns, 1.0, torch.float32, points)).weights
    limits = 16 * 1000 * weights.rounding_variance / 0.3**2, 1000 * 6e-8 / 0.3
    for factor, dtype in ((1.05, torch.float32), (0.95, torch.float64)):
        noise = factor * max(limits)
        assert dtype_of_features(model(spectrum, columns, noise, torch.float32, points)) == dtype
        assert_close(spectrum, columns, noise, points=points)


def test_rows_stay_float32_if_that_is_harmless():
    assert dtype_of_features(model("matern32", 4, 0.01, torch.float32)) == torch.float32
    assert dtype_of_features(model("gaussian", 1, 0.1, torch.float32)) == torch.float64


@pytest.mark.parametrize(
    ("fault", "noise", "seen"),
    [
        ("rows", 1e-3, {"std", "left out"}),
        ("rows", 0.01, {"std"}),
        ("points", 1e-3, {"std"}),
        ("points", 1e-5, {"std"}),
    ],
)
def test_planted_rounding_is_seen(fault, noise, seen, monkeypatch):
    """The rule for rows is off, or new points are float32."""
    right = answers(model("gaussian", 1, noise, torch.float64), 1)
    if fault == "rows":
        monkeypatch.setattr("rfgp.approximations.inducing_points.mean_square_error", lambda features, points: 0.0)
    else:
        monkeypatch.setattr(WeightBlock, "scaled", lambda self, x: self.features(x, *self.parameters))
    found = apart(answers(model("gaussian", 1, noise, torch.float32), 1), right)
    assert {name for name in found if found[name] > 1} >= seen, found


def test_the_error_of_features_is_measured():
    """At the points it is that at rows; without float32 arithmetic there is none."""
    points = torch.randn(200, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    features = Nystrom(points, rfgp.spectra.Matern(1.5), 1e-8)
    x = torch.randn(1000, 1, generator=torch.Generator().manual_seed(1))
    found = mean_square_error(features, points)
    there = (features(x).double() - features(x.double())).square().sum(1).mean().item()
    assert 0.5 < there / found < 2
    assert mean_square_error(lambda x: features(x.double()), points) == 0
