"""Predictions at no point, at one, within the range of the rows, beyond it, and both, for every approximation."""

import numpy as np
import pandas as pd
import pytest
from commands import succeed

import rfgp
from rfgp import kernels as k

FOURIER, NEAR = rfgp.EquispacedFourier(), rfgp.Vecchia(8)
TREND, WEEK, SIDE = k.RBF("t", name="trend"), k.Periodic("t", period=7, name="week"), k.RBF("a", name="side")
CASES = {
    "exact": (TREND + WEEK, rfgp.Exact()),
    "random features": (TREND + WEEK, rfgp.RandomFeatures(32)),
    "lattice with a season": (TREND + WEEK, FOURIER),
    "lattice with levels": (TREND + k.Group("g"), FOURIER),
    "lattice with a slope": (TREND + k.Linear("a"), {"trend": FOURIER}),
    "two lattices": (TREND + SIDE, FOURIER),
    "lattice with neighbors": (TREND + SIDE, {"trend": FOURIER, "side": NEAR}),
    "lattice with inducing points": (TREND + SIDE, {"trend": FOURIER, "side": rfgp.InducingPoints(15)}),
    "lattice with a chain": (TREND + k.Matern("a", nu=1.5, name="side"), {"trend": FOURIER}),
    "inducing points": (TREND * WEEK, rfgp.InducingPoints(30)),
    "neighbors": (k.Matern("t", nu=1.5) * WEEK, NEAR),
    "chain": (k.Matern("t", nu=1.5), rfgp.SparsePrecision()),
    "chain with levels": (k.Matern("t", nu=1.5, name="trend") + k.Group("g"), {"trend": rfgp.SparsePrecision()}),
}
INSIDE, BEYOND = np.linspace(1, 29, 70), np.linspace(31, 60, 70)  # more than `FEW_POINTS` of a lattice
PLACES = {"one": [40.0], "inside": INSIDE, "beyond": BEYOND, "both": [*INSIDE, *BEYOND], "one beyond": [*INSIDE, 40.0]}


def points(t):
    return {"t": np.asarray(t, dtype=float), "a": np.full(len(t), 0.1), "g": np.full(len(t), "x")}


def series(n=120):
    rng = np.random.default_rng(0)
    X = {"t": np.sort(rng.uniform(0, 30, n)), "a": rng.normal(size=n), "g": rng.choice(["x", "y"], n)}
    return X, np.sin(X["t"]) + 0.3 * X["a"] + 0.1 * rng.normal(size=n)


TAILED = ["exact", "lattice with a season", "two lattices", "inducing points", "neighbors", "chain with levels"]
PAIRS = [(case, "gaussian") for case in CASES] + [(case, "student-t") for case in TAILED]


@pytest.mark.parametrize(("case", "likelihood"), PAIRS)
def test_predictions_do_not_depend_on_other_points(case, likelihood):
    kernel, approximation = CASES[case]
    gp = rfgp.GP(kernel, likelihood, approximation=approximation, seed=0).condition(*series())
    for t in PLACES.values():
        found, some = gp.predict(points(t)), np.asarray(t)[:: max(1, len(t) // 3)]
        one_by_one = [gp.predict(points([each])) for each in some]
        each = slice(None, None, max(1, len(t) // 3))
        for name in ("mean", "std"):
            expected = [getattr(prediction, name)[0] for prediction in one_by_one]
            np.testing.assert_allclose(getattr(found, name)[each], expected, atol=1e-6)
        assert np.isfinite(found.observed().interval(0.95)).all()
    with pytest.raises(rfgp.DataError, match="at least one"):
        gp.predict(points([]))


def test_forecasts_return_to_the_trend_and_season():
    t = np.arange(3000.0)
    rng = np.random.default_rng(1)
    y = np.sin(2 * np.pi * t / 7) + 0.3 * rng.normal(size=3000)
    gp = rfgp.GP(k.RBF("t") + k.Periodic("t", period=7), seed=0).fit({"t": t}, y)
    later = 3000 + np.arange(100.0)
    forecast = gp.predict({"t": later})
    assert np.abs(forecast.mean - np.sin(2 * np.pi * later / 7)).max() < 0.15
    assert (forecast.std < 0.2).all()


@pytest.mark.slow
def test_command_line_forecasts_the_last_rows(tmp_path, monkeypatch, capsys):
    t = np.arange(400.0)
    y = np.sin(2 * np.pi * t / 7) + 0.1 * np.random.default_rng(2).normal(size=400)
    rows, later, folder, out = (tmp_path / name for name in ("rows.csv", "later.csv", "fit", "out.csv"))
    pd.DataFrame({"t": t, "y": y}).to_csv(rows, index=False)
    pd.DataFrame({"t": 400 + np.arange(100.0)}).to_csv(later, index=False)
    kernel = ["--kernel", "RBF(t) + Periodic(t, period=7)", "--approximation", "EquispacedFourier()"]
    succeed(monkeypatch, capsys, "fit", rows, "--target", "y", *kernel, "--holdout", "last", "--out", folder)
    succeed(monkeypatch, capsys, "predict", folder / "model.safetensors", later, "--out", out)
    found = pd.read_csv(out)
    assert np.abs(found["mean"] - np.sin(2 * np.pi * (400 + np.arange(100)) / 7)).max() < 0.15
