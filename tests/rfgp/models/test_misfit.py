"""Warnings of outliers that inflate a Gaussian noise, and of overdispersed counts."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k


def table(n, seed=0):
    """Return inputs and a smooth function of them, (n,) each."""
    x = np.random.default_rng(seed).uniform(0, 10, n)
    return x, np.sin(x)


@pytest.mark.parametrize(
    ("n", "approximation"),
    [
        (80, rfgp.Exact()),
        pytest.param(100, rfgp.RandomFeatures(32), marks=pytest.mark.slow),
        pytest.param(2100, rfgp.RandomFeatures(32), marks=pytest.mark.slow),
        pytest.param(80, rfgp.Vecchia(8), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_rows_that_inflate_the_noise_are_named(n, approximation):
    x, f = table(n)
    y = f + 0.1 * np.random.default_rng(1).normal(size=n)
    model = rfgp.GP(k.RBF("x"), approximation=approximation, seed=0)
    assert model.fit({"x": x}, y).fit_report.outliers == ()  # and no warning
    rows = (7, 20, 50)
    y[list(rows)] += np.array([5.0, -5.0, 8.0]) * (1 if n < 1000 else 3)
    with pytest.warns(rfgp.OutlierWarning, match="student-t"):
        model.fit({"x": x}, y)
    found = model.fit_report.outliers
    assert found
    assert set(found[:3]) <= set(rows)  # the largest come first; 2,000 of 2,100 rows are checked


@pytest.mark.parametrize("dispersion", [0.2, *(pytest.param(value, marks=pytest.mark.slow) for value in (0.5, 1.0))])
@pytest.mark.parametrize("seed", [2, 4])
def test_overdispersed_counts_are_named(dispersion, seed):
    rng = np.random.default_rng(seed)
    x, f = table(300, seed)
    y = rng.poisson(np.exp(1.5 + f) * rng.gamma(1 / dispersion, dispersion, 300))
    with pytest.warns(rfgp.OverdispersionWarning, match="negative-binomial"):
        rfgp.GP(k.RBF("x"), "poisson", seed=0).fit({"x": x}, y)


@pytest.mark.parametrize("rate", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("size", [0.0, 1.0])
def test_poisson_counts_are_not_called_overdispersed(rate, size):
    x, f = table(120)
    y = np.random.default_rng(5).poisson(rate * np.exp(size * f))
    gp = rfgp.GP(k.RBF("x"), "poisson", seed=0).fit({"x": x}, y)  # warnings are errors
    assert gp.fit_report.dispersion_zscore < 4


def test_the_negative_binomial_remedy_does_not_warn():
    rng = np.random.default_rng(2)
    x, f = table(150, 2)
    y = rng.poisson(np.exp(1.5 + f) * rng.gamma(2.0, 0.5, 150))
    gp = rfgp.GP(k.RBF("x"), "negative-binomial", seed=0).fit({"x": x}, y)
    assert np.sqrt(np.mean((gp.predict({"x": x}).mean - 1.5 - f) ** 2)) < 0.4


def test_a_saved_report_keeps_outliers(tmp_path):
    x, f = table(60)
    y = f + 0.1 * np.random.default_rng(1).normal(size=60)
    y[7] = 9.0
    with pytest.warns(rfgp.OutlierWarning, match=r"\(7\)"):
        gp = rfgp.GP(k.RBF("x"), approximation=rfgp.RandomFeatures(16), seed=0).fit({"x": x}, y)
    gp.save(tmp_path / "model")
    assert rfgp.load(tmp_path / "model").fit_report.outliers == (7,)
