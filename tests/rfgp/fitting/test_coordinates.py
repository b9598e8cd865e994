"""The coordinates of a search."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp.fitting.coordinates import Coordinates
from rfgp.parameters import Hyperparameter, ParameterSpace
from rfgp.scaling import Affine


def space():
    one = torch.ones((), dtype=torch.float64)
    flat = Affine(0 * one, one)
    bounds = (torch.tensor([1e-3, 2e-3]), torch.tensor([1e4, 2e4]))
    lengthscale = Hyperparameter(torch.ones(2), one, tuple(b.double() for b in bounds), saturates=True)
    return ParameterSpace.of(
        {"lengthscale": lengthscale, "noise": Hyperparameter(one, one, (1e-6 * one, one))}, flat, flat
    )


def test_raw_numbers_round_trip():
    there = Coordinates.of(space(), ["noise", "lengthscale", "mean"])
    np.testing.assert_allclose(np.exp(there.saturation), [np.inf, 1e3, 2e3, np.inf])
    for x in (np.array([-3.0, -2.0, 3.0, 0.5]), np.array([-3.0, np.log(1e4), np.log(2e4), -7.0])):
        u = there.at(x)
        np.testing.assert_allclose(there.raw(u), x, rtol=1e-10)
        expected = [x[0], *(-0.5 * np.log(np.exp(-2 * x[1:3]) + np.exp(-2 * there.saturation[1:3]))), x[3]]
        np.testing.assert_allclose(u, expected, rtol=1e-12)
        step = 1e-7 * np.exp(-2 * (x - np.minimum(there.saturation, 50))).clip(0, 1)
        slope = (there.raw(u + step) - there.raw(u - step)) / (2 * step)
        np.testing.assert_allclose(there.slope(x)[1:3], slope[1:3], rtol=1e-5)
        np.testing.assert_array_equal(there.slope(x)[[0, 3]], 1.0)


def test_bounds_map_like_points():
    there = Coordinates.of(space(), ["lengthscale", "mean"])
    ends = (np.log(1e-3), np.log(1e4))
    limits = there.limits([ends, ends, (None, 1.0)])
    assert limits[0] == tuple(there.at(np.array([end, 0.0, 0.0]))[0] for end in ends)
    assert limits[2] == (None, 1.0)


@pytest.mark.parametrize("model", [rfgp.ExactGP, lambda **o: rfgp.SparseSpectrumGP(num_frequencies=64, seed=0, **o)])
def test_faded_column_comes_back(model):
    """The slope in the log lengthscale there is 10^-8 times that of a relevant column."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.05 * rng.standard_normal(60)
    gp = model(lengthscale=[1.0, 9e3]).fit(X, y)
    assert gp.hyperparameters.lengthscale[1] < 100
    np.testing.assert_allclose(gp.predict(X).mean, y, atol=0.2)


def test_better_of_two_ends_is_returned(monkeypatch):
    """A restarted search that ends lower is dropped together with its trace."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = np.sin(2 * X[:, 0]) + 0.05 * rng.standard_normal(40)
    alone = rfgp.ExactGP().fit(X, y)
    poor = np.log(1e-3)
    monkeypatch.setattr(Coordinates, "restart", lambda self, x, gradient: np.where(np.isinf(self.saturation), x, poor))
    gp = rfgp.ExactGP().fit(X, y)
    assert gp.fit_report.evaluations > alone.fit_report.evaluations
    assert gp.fit_report.log_marginal_likelihood == alone.fit_report.log_marginal_likelihood
    assert gp.fit_report.trace == alone.fit_report.trace
    assert gp.log_marginal_likelihood().item() == pytest.approx(alone.log_marginal_likelihood().item(), rel=1e-12)
