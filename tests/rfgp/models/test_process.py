"""What every model does: it swaps one regression for another, and never half. Odd data, extreme units, warnings."""

import copy
import functools
import pickle
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import graphs
import rfgp
from rfgp import kernels as k


def drawn(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def on_nodes():
    nodes = np.arange(0, 36, 2)
    return nodes, np.sin(nodes / 6) + 0.1 * np.random.default_rng(1).standard_normal(len(nodes))


MODELS = {
    "features": (lambda: rfgp.SparseSpectrumGP(num_frequencies=16, coupling="orthogonal", seed=0), drawn()),
    "exact": (lambda: rfgp.ExactGP(), drawn()),
    "inducing": (
        lambda: rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(16, method="sor"), seed=0),
        drawn(),
    ),
    "neighbors": (lambda: rfgp.GP(k.Matern(), approximation=rfgp.Vecchia(8), seed=0), drawn()),
    "walks": (
        lambda: rfgp.GraphGP(graphs.Graph.from_grid((6, 6)), features="walks", num_walkers=8, seed=0),
        on_nodes(),
    ),
}
pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")


@functools.cache
def first(name):
    make, (X, y) = MODELS[name]
    return make().fit(X, y, max_iterations=5)


@pytest.fixture(params=MODELS)
def fitted(request):
    return copy.deepcopy(first(request.param)), *MODELS[request.param][1]


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
        model.fit(X[:20], y[:20], callback=stop)
    assert_same(model, X, before)
    assert model.hyperparameters is live
    assert model.fit_report is report
    assert model.num_observations == len(X)


def test_refused_calls_change_nothing(fitted):
    model, X, y = fitted
    before = answers(model, X)
    for call in (model.fit, model.condition, model.update):
        with pytest.raises(rfgp.DataError):
            call(X, y[:-1])
    assert_same(model, X, before)


def test_fit_does_not_depend_on_earlier_fits(fitted):
    model, X, y = fitted
    first = answers(model, X)
    model.hyperparameters.set(noise=50.0)
    model.fit(X[:20], y[:20], max_iterations=3)
    assert_same(model.fit(X, y, max_iterations=5), X, first)


def test_the_live_hyperparameters_stay_over_condition_and_update(fitted):
    model, X, y = fitted
    live, names = model.hyperparameters, list(model.hyperparameters.raw)
    model.condition(X[:-6], y[:-6]).update(X[-6:], y[-6:])
    assert model.hyperparameters is live
    assert list(live.raw) == names
    assert names[-1] == "mean"
    assert model.num_observations == len(X)


def test_threads_share_a_model(fitted):
    """Eight threads predict while nobody else does, and each gets the same bits; nothing was computed before."""
    model, X, _ = fitted
    before = answers(model, X)
    fresh, found = pickle.loads(pickle.dumps(model)), []
    start = threading.Barrier(8)

    def ask():
        start.wait()
        found.append(answers(fresh, X))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for values in found:
        for now, then, first in zip(values, before, found[0], strict=True):
            np.testing.assert_allclose(now, then, rtol=1e-9, atol=1e-12)
            np.testing.assert_array_equal(now, first)


def test_a_copy_has_hyperparameters_of_its_own(fitted):
    model, X, _ = fitted
    before, other = answers(model, X), copy.deepcopy(model)
    other.hyperparameters.set(noise=30.0)
    other.predict(X)
    assert_same(model, X, before)
    assert other.hyperparameters.noise.item() == pytest.approx(30.0)


def test_fit_finds_the_function_and_the_noise():
    X, y, new = TABLE
    for gp in (rfgp.ExactGP(), rfgp.SparseSpectrumGP(num_frequencies=40, seed=0, ard=False)):
        gp.fit(X, y)
        assert gp.fit_report.converged
        assert 0.005 < gp.hyperparameters.noise.item() < 0.02  # 0.01
        assert np.abs(gp.predict(new).mean - wave(new)).max() < 0.3
        gp.log_marginal_likelihood().backward()
        assert max(float(raw.grad.abs().max()) for raw in gp.hyperparameters.parameters()) < 0.1


def test_stopped_fits_and_values_at_bounds_are_reported():
    X, y, _ = TABLE
    with pytest.warns(rfgp.ConvergenceWarning, match="stopped after 1 iteration"):
        rfgp.ExactGP().fit(X, y, max_iterations=1)
    report = rfgp.ExactGP().fit(X, np.sin(X[:, 0])).fit_report
    assert "noise" in report.at_bounds
    assert not rfgp.GP(k.Matern(), approximation=rfgp.Vecchia(5)).fit(X, y, max_iterations=0).fit_report.converged


# --- odd data ------------------------------------------------------------------------------------


def wave(x):
    return np.sin(x[:, 0]) + 0.5 * x[:, 1]


def table():
    """Return 120 rows of three columns, their targets, and 15 new rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    return X, wave(X) + 0.1 * rng.standard_normal(120), rng.standard_normal((15, 3))


TABLE = table()
X, Y, NEW = TABLE


def with_value(value, row=3, column=1):
    x = X.copy()
    x[row, column] = value
    return x


REFUSED = [
    (with_value(np.nan), Y, "1 missing value, the first in row 3"),
    (with_value(np.inf), Y, "inf"),
    (X, np.where(np.arange(120) == 7, np.nan, Y), "row 7"),
    (X, np.full(120, 4.0), "constant"),
    (X, np.where(np.arange(120) % 2, 0.1 * 3, 0.3), "constant"),
    (X[:1], Y[:1], "at least two"),
    (X[:0], Y[:0], "without rows"),
    (X[:5], Y[:6], "5 rows"),
    (X[0], Y, "shape"),
    (X[:, :0], Y, "shape"),
    (X, Y[:, None, None], "shape"),
    (X, Y * 1e200, "Divide y"),
    (X, Y[:, None] * [1.0, 0.0], "Output 1 is constant"),
    ([["a", "b"], ["c", "d"]], [1.0, 2.0], "text"),
    ([[1, {}], [2, 3]], [1.0, 2.0], "dict"),
    (X.astype(complex), Y, "complex"),
    (np.ma.array(X, mask=X > 1), Y, "missing"),
    (torch.as_tensor(X).float(), torch.as_tensor(Y), "dtype"),
    (torch.as_tensor(X, device="meta"), torch.as_tensor(Y), "meta"),
    (X.astype(np.float32), 20_000_000 + np.arange(120), "float32"),
]


@pytest.mark.parametrize(("x", "y", "message"), REFUSED)
def test_bad_data_are_named(x, y, message):
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    with pytest.raises(rfgp.DataError, match=message):
        gp.fit(x, y)
    with pytest.raises(rfgp.NotFittedError, match="fit"):
        gp.predict(NEW)


def test_new_rows_must_be_like_the_rows():
    gp = rfgp.ExactGP().condition(X, Y)
    for call in (
        lambda: gp.predict(NEW[:, :2]),
        lambda: gp.update(NEW, Y[:15][:, None]),
        lambda: gp.update(NEW, ["a"] * 15),
    ):
        with pytest.raises(rfgp.DataError):
            call()
    two = rfgp.ExactGP().condition(X, np.c_[Y, 100 * Y])
    with pytest.raises(rfgp.DataError, match="scale"):
        two.condition(X, np.c_[Y, 100 * Y], noise=np.full(120, 0.1))


@pytest.mark.parametrize("options", [{"noise": -1.0}, {"lengthscale": [1.0, 2.0]}, {"outputscale": 0.0}, {"noise": {}}])
def test_bad_starting_values_are_named(options):
    with pytest.raises(rfgp.InvalidArgumentError, match=next(iter(options))):
        rfgp.SparseSpectrumGP(num_frequencies=4, **options).fit(X, Y)


@pytest.mark.parametrize(
    "options", [{"num_frequencies": 0}, {"spectrum": "cosine"}, {"coupling": "sorf"}, {"kind": "cosine"}, {"seed": -3}]
)
def test_bad_options_are_named_at_once(options):
    with pytest.raises(rfgp.InvalidArgumentError, match=next(iter(options))):
        rfgp.SparseSpectrumGP(**options)


def test_odd_arrays_are_read_like_plain_ones():
    expected = rfgp.ExactGP().condition(X, Y).predict(NEW).mean
    odd = [(np.asfortranarray(X), Y[::-1][::-1]), (X.astype(">f8"), pd.Series(Y)), (X.tolist(), Y.tolist())]
    for x, y in [*odd, (np.ma.array(X), Y), (pd.DataFrame(X), Y)]:
        np.testing.assert_allclose(
            rfgp.ExactGP().condition(x, y).predict(type(x)(NEW) if isinstance(x, pd.DataFrame) else NEW).mean,
            expected,
            rtol=1e-12,
        )
    tensors = rfgp.ExactGP().condition(torch.as_tensor(X), torch.as_tensor(Y)).predict(torch.as_tensor(NEW))
    np.testing.assert_allclose(tensors.mean.numpy(), expected)


@pytest.mark.parametrize("wrap", [np.array, torch.as_tensor, pd.DataFrame])
def test_later_changes_of_data_do_not_reach_the_model(wrap):
    x, y = X.copy(), Y.copy()
    gp = rfgp.SparseSpectrumGP(num_frequencies=20, seed=0)
    gp.condition(wrap(x), torch.as_tensor(y) if wrap is torch.as_tensor else y)
    expected = copy.deepcopy(gp).update(wrap(X[:5].copy()), Y[:5]).predict(NEW).mean
    x[:], y[:] = 0.0, 1.0
    np.testing.assert_array_equal(gp.update(wrap(X[:5].copy()), Y[:5]).predict(NEW).mean, expected)


def test_predictions_and_functions_are_of_the_moment_they_were_made():
    gp = rfgp.SparseSpectrumGP(num_frequencies=20, seed=0).condition(X, Y)
    early, functions = gp.predict(NEW), gp.sample_functions(3, seed=0)
    covariance, values, late = early.covariance, functions(NEW), gp.predict(NEW)
    gp.hyperparameters.set(noise=1e3, lengthscale=0.1, outputscale=1.0)
    gp.condition(X, -Y)
    np.testing.assert_array_equal(late.covariance, covariance)
    np.testing.assert_array_equal(functions(NEW), values)
    with pytest.raises(rfgp.InvalidArgumentError, match="num_samples"):
        gp.sample_functions(1.5)


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


@pytest.mark.parametrize(("unit", "offset"), [(1e12, 1e3), (1e-150, 0.0)])
def test_the_unit_of_the_target_does_not_matter(unit, offset):
    plain, gp = (rfgp.ExactGP().fit(X, factor * (Y + offset), max_iterations=20) for factor in (1.0, unit))
    np.testing.assert_allclose(gp.predict(NEW).mean / unit, plain.predict(NEW).mean, atol=1e-3)
    found, expected = (one.fit_report.log_marginal_likelihood for one in (gp, plain))
    assert found + 120 * np.log(unit) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("make", [rfgp.ExactGP, lambda **o: rfgp.SparseSpectrumGP(num_frequencies=30, seed=0, **o)])
def test_standardizing_changes_the_units_inside_only(make):
    values = {"lengthscale": [0.7, 2.0, 0.8], "outputscale": 3.0, "noise": 0.2}
    inside, plain = (make(standardize=s, **values).condition(X, Y) for s in (True, False))
    for gp in (inside, plain):
        gp.hyperparameters.set(mean=0.4)
    assert inside.log_marginal_likelihood().item() == pytest.approx(plain.log_marginal_likelihood().item(), rel=1e-8)
    np.testing.assert_allclose(inside.predict(NEW).covariance, plain.predict(NEW).covariance, atol=1e-7)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one place", "two rows"])
def test_a_default_fit_of_a_degenerate_table_is_finite(name):
    found = rfgp.GP(seed=0).fit(*DEGENERATE[name]).predict(X[:5]).observed()
    assert np.isfinite(found.mean).all()
    assert (found.variance > 0).all()


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
    rng = np.random.default_rng(0)
    X, new = (rng.standard_normal((n, 2)).astype(np.float32) for n in (300, 40))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    found = []
    for dtype in (np.float64, np.float32):
        start = {"noise": noise, "lengthscale": 1.0}
        gp = rfgp.GP(kernel, approximation=approximation, start=start, seed=0).condition(
            X.astype(dtype), y.astype(dtype)
        )
        prediction, left = gp.predict(new.astype(dtype)), gp.leave_one_out()
        found.append(
            (prediction.mean, prediction.std, np.sqrt(left.variance), gp.log_marginal_likelihood().item() / 300)
        )
    double, single = found
    assert single[0].dtype == np.float32
    assert np.abs(single[0] - double[0]).max() < 4e-3 * y.std()
    for i in (1, 2):
        np.testing.assert_allclose(single[i], double[i], rtol=0.02)
    assert abs(single[3] - double[3]) < 1e-3 * max(1.0, abs(double[3]))


# --- what is warned of ---------------------------------------------------------------------------


def truth(n=30):
    X = np.random.default_rng(0).standard_normal((n, 2))
    return X, X[:, 0] > 0


def as_blocks(X, y):
    return (rfgp.tables.Batches(lambda: iter([(X[:20], y[:20]), (X[20:], y[20:])])),)


def as_named_blocks(X, y):
    block = {"a": X[:, 0], "b": X[:, 1], "y": y}
    return (rfgp.tables.Batches([block, block], target="y"),)


WAYS_IN = {
    "array": lambda X, y: (X, y),
    "several": lambda X, y: (X, np.stack([y, X[:, 1] > 0], axis=1)),
    "list": lambda X, y: (X, y.tolist()),
    "tensor": lambda X, y: (torch.as_tensor(X), torch.as_tensor(y)),
    "series": lambda X, y: (X, pd.Series(y)),
    "nullable": lambda X, y: (X, pd.Series(y, dtype="boolean")),
    "frame": lambda X, y: (X, pd.DataFrame({"y": y})),
    "blocks": as_blocks,
    "named blocks": as_named_blocks,
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_boolean_targets_warn_once(way):
    for verb in ("fit", "condition"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gp = rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0)
            getattr(gp, verb)(*WAYS_IN[way](*truth()))
        found = [entry for entry in caught if issubclass(entry.category, rfgp.BooleanTargetWarning)]
        assert len(found) == 1
        assert "hold booleans" in str(found[0].message).replace("holds", "hold")


def test_boolean_targets_of_other_inputs_warn(tmp_path):
    X, y = truth()
    pd.DataFrame({"a": X[:, 0], "y": y}).to_parquet(tmp_path / "t.parquet")
    with pytest.warns(rfgp.BooleanTargetWarning, match="t.parquet: 'y' holds booleans") as caught:
        rfgp.tables.Parquet(tmp_path / "t.parquet", target="y")
    assert [entry.filename for entry in caught] == [__file__]
    gp = rfgp.GraphGP(graphs.Graph.from_edges([(i, i + 1) for i in range(29)]), seed=0)
    with pytest.warns(rfgp.BooleanTargetWarning) as caught:
        gp.condition(range(30), y)
    assert [entry.filename for entry in caught] == [__file__]
    with pytest.warns(rfgp.BooleanTargetWarning) as caught:
        rfgp.sklearn.GPRegressor(k.RBF(), rfgp.RandomFeatures(4), random_state=0, max_iter=200).fit(X, y)
    assert [entry.category for entry in caught].count(rfgp.BooleanTargetWarning) == 1


def test_overfitting_warns_if_rows_are_too_few():
    X = np.random.default_rng(0).standard_normal((8, 4))
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    with pytest.warns(rfgp.OverfittingWarning, match=r"7 observations cannot determine 7 hyperp.* \(try ard=False, or"):
        gp.fit(X[:7], X[:7, 0])
    gp.fit(X, X[:, 0])
    rfgp.SparseSpectrumGP(num_frequencies=4, seed=0, ard=False).fit(X[:5], X[:5, 0])
    rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(X[:7], X[:7, 0], fixed="noise")
