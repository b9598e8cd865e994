"""Warnings about forecasts by models that were selected by interpolation."""

import warnings

import numpy as np
import pandas as pd
import pytest
from commands import succeed
from selection_cases import among, candidate

import rfgp
import rfgp.sklearn
from rfgp import kernels as k

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "default::rfgp.ForecastWarning")
DAYS = pd.date_range("2024-01-01", periods=60)
A = np.sin(np.arange(60.0))
INPUTS = {
    "dates": {"day": DAYS},
    "dates and numbers": {"a": A, "day": DAYS},
    "ascending numbers": {"t": np.arange(60.0)},
    "numbers": {"t": np.r_[30:60, 0:30].astype(float)},
}


def selected(X, **options):
    """Return a model of the first 40 rows, whose kernel is selected."""
    gp = among(*(candidate(kernel, rfgp.RandomFeatures(4)) for kernel in (k.RBF(), k.Matern())), **options)
    return gp.fit(rows(X, 0, 40), A[:40], max_iterations=1)


def rows(X, first, last):
    return {name: column[first:last] for name, column in X.items()}


def forecasts(predict, X):
    """Return the warnings about forecasts of a call."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        predict(X)
    return [str(entry.message) for entry in caught if entry.category is rfgp.ForecastWarning]


@pytest.mark.parametrize("kind", [kind for kind in INPUTS if kind != "numbers"])
def test_forecasts_of_an_interpolating_selection_warn_once(kind, tmp_path):
    X = INPUTS[kind]
    gp = selected(X)
    assert 'validate="forward"' in gp.selection.reason
    (message,) = forecasts(gp.predict, rows(X, 40, 60))
    assert f"{list(X)[-1]!r}" in message
    assert 'validate="forward"' in message
    gp.save(tmp_path / "model", data=False)
    assert forecasts(rfgp.load(tmp_path / "model").predict, rows(X, 40, 41)) == [message]
    assert not forecasts(gp.predict, rows(X, 39, 60))
    assert not forecasts(gp.update(rows(X, 40, 50), A[40:50]).predict, rows(X, 45, 50))
    assert forecasts(gp.predict, rows(X, 50, 60))


def test_forward_selections_and_given_kernels_do_not_warn():
    X = INPUTS["dates"]
    gp = selected(X, validate="forward")
    assert "forecast" not in gp.selection.reason
    given = rfgp.GP(k.RBF("day"), seed=0).fit(rows(X, 0, 40), A[:40])
    assert not forecasts(gp.predict, rows(X, 40, 60)) + forecasts(given.predict, rows(X, 40, 60))


def test_numbers_in_any_order_are_no_times():
    gp = selected(INPUTS["numbers"])
    assert "forecast" not in gp.selection.reason
    assert not forecasts(gp.predict, {"t": [70.0]})


def test_command_and_scikit_learn_warn_of_forecasts(monkeypatch, capsys, tmp_path):
    table = pd.DataFrame({"day": DAYS, "y": A})
    table[:40].to_csv(tmp_path / "t.csv", index=False)
    table[40:].to_csv(tmp_path / "new.csv", index=False)
    fit = "--target", "y", "--approximation", "RandomFeatures(4)", "--no-compare", "--out", tmp_path / "out"
    succeed(monkeypatch, capsys, "fit", tmp_path / "t.csv", *fit)
    _, err = succeed(monkeypatch, capsys, "predict", tmp_path / "out" / "model.safetensors", tmp_path / "new.csv")
    assert err.count("ForecastWarning") == 1
    model = rfgp.sklearn.GPRegressor(approximation=rfgp.RandomFeatures(4), random_state=0)
    assert len(forecasts(model.fit(table[["day"]][:40], A[:40]).predict, table[["day"]][40:])) == 1
