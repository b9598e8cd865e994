"""What every model does: it swaps one regression for another, and never half. Odd data, extreme units, warnings."""

import copy
import functools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused

import graphs
import rfgp
from rfgp import kernels as k


def wave(x):
    return np.sin(x[:, 0]) + 0.5 * x[:, 1]


def table():
    """Return 120 rows of three columns, their targets, and 15 new rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    return X, wave(X) + 0.1 * rng.standard_normal(120), rng.standard_normal((15, 3))


X, Y, NEW = table()
NODES = np.arange(0, 36, 2)
MODELS = {
    "features": lambda: rfgp.SparseSpectrumGP(num_frequencies=16, coupling="orthogonal", seed=0),
    "exact": rfgp.ExactGP,
    "inducing": lambda: rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(16, method="sor"), seed=0),
    "neighbors": lambda: rfgp.GP(k.Matern(), approximation=rfgp.Vecchia(8), seed=0),
    "walks": lambda: rfgp.GraphGP(graphs.Graph.from_grid((6, 6)), features="walks", num_walkers=8, seed=0),
}
pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")


@functools.cache
def first(name):
    rows, y = (NODES, np.sin(NODES / 6)) if name == "walks" else (X, Y)
    return MODELS[name]().fit(rows, y, max_iterations=5), rows, y


@pytest.fixture(params=MODELS)
def fitted(request):
    return copy.deepcopy(first(request.param))


def answers(model, X):
    p = model.predict(X)
    return [p.mean, p.variance, *(raw.detach().numpy().copy() for raw in model.hyperparameters.raw.values())]


def assert_same(model, X, before):
    for now, then in zip(answers(model, X), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_fit_that_is_stopped_changes_nothing(fitted, error):
    model, X, y = fitted
    before, live, report = answers(model, X), model.hyperparameters, model.fit_report

    def stop(done, value):
        raise error

    with pytest.raises(error):
        model.fit(X[:15], y[:15], callback=stop)
    assert_same(model, X, before)
    assert model.hyperparameters is live
    assert model.fit_report is report
    assert model.num_observations == len(X)


def test_refused_calls_change_nothing(fitted):
    model, X, y = fitted
    before = answers(model, X)
    for call in (model.fit, model.condition, model.update):
        refused(lambda call=call: call(X, y[:-1]), rfgp.DataError, "rows")
    assert_same(model, X, before)
    new = rfgp.GP(k.RBF("x"), seed=0)
    refused(lambda: new.fit({"t": [1.0, 2.0]}, [1.0, 2.0]), rfgp.DataError, "no column 'x'")
    refused(lambda: new.predict({"x": [1.0]}), rfgp.NotFittedError, "fit")
    assert "not fitted" in repr(new)


def test_fit_does_not_depend_on_earlier_fits(fitted):
    model, X, y = fitted
    first = answers(model, X)
    model.hyperparameters.set(noise=50.0)
    model.fit(X[:15], y[:15], max_iterations=3)
    assert_same(model.fit(X, y, max_iterations=5), X, first)


def test_the_live_hyperparameters_stay_over_condition_and_update(fitted):
    model, X, y = fitted
    live, names = model.hyperparameters, list(model.hyperparameters.raw)
    model.condition(X[:-6], y[:-6]).update(X[-6:], y[-6:])
    assert model.hyperparameters is live
    assert list(live.raw) == names
    assert names[-1] == "mean"
    assert model.num_observations == len(X)


def test_values_at_bounds_are_reported():
    assert "noise" in rfgp.ExactGP().fit(X, np.sin(X[:, 0])).fit_report.at_bounds


def test_predictions_and_functions_are_of_the_moment_they_were_made():
    gp = rfgp.SparseSpectrumGP(num_frequencies=20, seed=0).condition(X, Y)
    early, functions = gp.predict(NEW), gp.sample_functions(3, seed=0)
    covariance, values, late = early.covariance, functions(NEW), gp.predict(NEW)
    gp.hyperparameters.set(noise=1e3, lengthscale=0.1, outputscale=1.0)
    gp.condition(X, -Y)
    np.testing.assert_array_equal(late.covariance, covariance)
    np.testing.assert_array_equal(functions(NEW), values)


# --- odd data ------------------------------------------------------------------------------------


def with_value(value):
    x = X.copy()
    x[3, 1] = value
    return x


BAD = [
    (with_value(np.nan), Y, "1 missing value, the first in row 3"),
    (with_value(np.inf), Y, "inf"),
    (X, np.where(np.arange(120) == 7, np.nan, Y), "row 7"),
    (X, np.where(np.arange(120) % 2, 0.1 * 3, 0.3), "constant"),
    (X[:1], Y[:1], "at least two"),
    (X[:5], Y[:6], "5 rows"),
    (X[0], Y, "shape"),
    (X, Y[:, None, None], "shape"),
    (X, Y * 1e200, "Divide y"),
    (X, Y[:, None] * [1.0, 0.0], "Output 1 is constant"),
    (X.astype(complex), Y, "complex"),
    (np.ma.array(X, mask=X > 1), Y, "missing"),
    (torch.as_tensor(X).float(), torch.as_tensor(Y), "dtype"),
    (torch.as_tensor(X, device="meta"), torch.as_tensor(Y), "meta"),
    (X.astype(np.float32), 20_000_000 + np.arange(120), "float32"),
]


@pytest.mark.parametrize(("x", "y", "word"), BAD)
def test_bad_data_are_named(x, y, word):
    refused(lambda: rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(x, y), rfgp.DataError, word)


def test_new_rows_and_outputs_must_be_like_the_rows():
    gp, two = rfgp.ExactGP().condition(X, Y), rfgp.ExactGP().condition(X, np.c_[Y, 100 * Y])
    noise = np.full(120, 0.1)
    for call, word in (
        (lambda: gp.predict(NEW[:, :2]), "columns"),
        (lambda: gp.update(NEW, Y[:15][:, None]), "shape"),
        (lambda: gp.update(NEW, ["a"] * 15), "text"),
        (lambda: two.condition(X, np.c_[Y, 100 * Y], noise=noise), "scale"),
    ):
        refused(call, rfgp.DataError, word)


# --- extreme units and precision -----------------------------------------------------------------

HUGE, TINY = 2.0**664, 2.0**-664
"""About 1e200 and 1e-200; powers of two, so that not one digit may differ."""
KINDS = {
    "features": (k.RBF(), rfgp.RandomFeatures(16)),
    "learned": (k.RBF(), rfgp.RandomFeatures(16, learn_frequencies=True)),
    "exact": (k.Matern(nu=1.5), rfgp.Exact()),
    "points": (k.RBF(), rfgp.InducingPoints(20, method="fitc")),
    "neighbors": (k.Matern(nu=1.5), rfgp.Vecchia()),
}


@pytest.mark.parametrize("unit", [np.array([HUGE, 1, TINY]), pytest.param(2.0**996, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_huge_and_tiny_columns_change_nothing(kind, unit):
    kernel, approximation = KINDS[kind]
    means = []
    for factor in (1.0, unit):
        gp = rfgp.GP(kernel, approximation=approximation, seed=0).fit(X * factor, Y, max_iterations=4)
        means.append(gp.predict(NEW * factor).mean)
    np.testing.assert_array_equal(*means)


DEGENERATE = {
    "duplicates that disagree": (np.repeat(X[:30], 4, axis=0), Y),
    "one place": (np.ones((120, 3)), Y),
    "constant column": (np.c_[X, np.full(120, 1e160)], Y),
    "collinear": (np.c_[X, X[:, 0] * 2 - 1, X[:, 0] + X[:, 1]], Y),
    "integers": (np.random.default_rng(1).integers(0, 3, (120, 3)), np.round(Y)),
    "no noise": (X, X[:, 0]),
    "outlier": (np.r_[X, [[1e6, 0, 0]]], np.r_[Y, 0.0]),
    "target outlier": (X, np.r_[Y[:-1], 1e9]),
    "far offset": (X + 1e8, Y),
    "two rows": (X[:2], Y[:2]),
}


@pytest.mark.parametrize("kind", ["features", pytest.param("learned", marks=pytest.mark.slow), "neighbors"])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_give_a_usable_model(name, kind):
    (inputs, y), (kernel, approximation) = DEGENERATE[name], KINDS[kind]
    gp = rfgp.GP(kernel, approximation=approximation, seed=0).fit(inputs, y, max_iterations=10)
    found, far = gp.predict(inputs).observed(), gp.predict(inputs[:5] + 1000).observed()
    assert np.abs(found.mean - y).max() <= 3 * np.ptp(y)
    assert (found.variance > 0).all()
    assert np.isfinite(far.mean).all()
    assert (far.variance > 0).all()


def test_far_points_are_predicted_until_squares_overflow():
    for kernel, approximation in KINDS.values():
        gp = rfgp.GP(kernel, approximation=approximation, seed=0).condition(X, Y).update(np.full((1, 3), 1e95), [5.0])
        assert np.isfinite(gp.predict(np.array([[1e90, 0.0, 0.0], [0.1, 3.0, 0.0]])).variance).all()
        with pytest.raises(rfgp.DataError, match="must lie within"):
            gp.predict(np.full((1, 3), 1e160))


@pytest.mark.parametrize("noise", [1e-6, 1e-3])
@pytest.mark.parametrize("kind", ["features", "points", "neighbors"])
def test_single_precision_stays_within_its_bounds(kind, noise):
    """Means to 4e-3 of the deviation of the targets, standard deviations to 2 %, likelihoods to 1e-3 nats a row."""
    kernel, approximation = KINDS[kind]
    rng, found = np.random.default_rng(0), []
    X, new = (rng.standard_normal((n, 2)).astype(np.float32) for n in (300, 40))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    for dtype in (np.float64, np.float32):
        gp = rfgp.GP(kernel, approximation=approximation, start={"noise": noise, "lengthscale": 1.0}, seed=0)
        gp.condition(X.astype(dtype), y.astype(dtype))
        prediction, deviations = gp.predict(new.astype(dtype)), np.sqrt(gp.leave_one_out().variance)
        found.append((prediction.mean, prediction.std, deviations, gp.log_marginal_likelihood().item() / 300))
    double, single = found
    assert single[0].dtype == np.float32
    assert np.abs(single[0] - double[0]).max() < 4e-3 * y.std()
    for i in (1, 2):
        np.testing.assert_allclose(single[i], double[i], rtol=0.02)
    assert abs(single[3] - double[3]) < 1e-3 * max(1.0, abs(double[3]))


# --- what is warned of ---------------------------------------------------------------------------


TRUE, FLAGS = X[:30], X[:30, 0] > 0
BLOCK = {"a": TRUE[:, 0], "b": TRUE[:, 1], "y": FLAGS}
WAYS_IN = {
    "several": (TRUE, np.stack([FLAGS, TRUE[:, 1] > 0], axis=1)),
    "tensor": (torch.as_tensor(TRUE), torch.as_tensor(FLAGS)),
    "nullable": (TRUE, pd.Series(FLAGS, dtype="boolean")),
    "blocks": (rfgp.tables.Batches([(TRUE[:20], FLAGS[:20]), (TRUE[20:], FLAGS[20:])]),),
    "named blocks": (rfgp.tables.Batches([BLOCK, BLOCK], target="y"),),
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_boolean_targets_warn_once(way):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0).fit(*WAYS_IN[way], max_iterations=2)
    found = [entry for entry in caught if issubclass(entry.category, rfgp.BooleanTargetWarning)]
    assert [entry.filename for entry in found] == [__file__]
    assert "hold booleans" in str(found[0].message).replace("holds", "hold")


def test_boolean_targets_of_other_inputs_warn(tmp_path):
    pd.DataFrame({"a": TRUE[:, 0], "y": FLAGS}).to_parquet(tmp_path / "t.parquet")
    with pytest.warns(rfgp.BooleanTargetWarning, match="t.parquet: 'y' holds booleans") as caught:
        rfgp.tables.Parquet(tmp_path / "t.parquet", target="y")
    assert [entry.filename for entry in caught] == [__file__]
    with pytest.warns(rfgp.BooleanTargetWarning) as caught:
        rfgp.sklearn.GPRegressor(k.RBF(), rfgp.RandomFeatures(4), random_state=0, max_iter=2).fit(TRUE, FLAGS)
    assert [entry.category for entry in caught].count(rfgp.BooleanTargetWarning) == 1
