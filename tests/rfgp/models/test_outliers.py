"""Outliers in targets and inputs: units, bounds and starts come from the robust scale, with a warning."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k

X = np.random.default_rng(0).uniform(0, 1, 80)
F = np.sin(12 * X)
Y = F + 0.1 * np.random.default_rng(1).normal(size=80)
POINTS = np.linspace(0.05, 0.95, 40)


def rmse(gp):
    """Return the error of predictions."""
    return np.sqrt(np.mean((gp.predict(POINTS[:, None]).mean - np.sin(12 * POINTS)) ** 2))


def with_values(values, rows, value):
    """Return a copy of values (n,) with one value in some rows."""
    changed = values.copy()
    changed[rows] = value
    return changed


def blocks(x, y):
    """Return the rows of x (n,) and y (n,) in blocks."""
    return rfgp.tables.Batches([(x[i : i + 30, None], y[i : i + 30]) for i in range(0, len(x), 30)])


@pytest.mark.parametrize("standardize", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("outlier", [-9999.0, 1e8])
def test_student_t_ignores_outliers_of_any_size(outlier, standardize):
    gp = rfgp.GP(k.RBF(), "student-t", standardize=standardize, seed=0)
    with pytest.warns(rfgp.OutlierWarning, match=r"2 rows \(20, 50"):
        gp.fit(X[:, None], with_values(Y, [20, 50], outlier))
    assert rmse(gp) < 0.08  # 0.7 for a constant


@pytest.mark.parametrize("wild", [9999.0, 1e6])
@pytest.mark.parametrize("kernel", [k.RBF(), k.RBF(ard=False), k.Linear() + k.RBF()], ids=str)
@pytest.mark.parametrize("standardize", [True, False])
def test_a_wild_input_does_not_change_a_fit(kernel, wild, standardize):
    gp = rfgp.GP(kernel, standardize=standardize, seed=0)
    with pytest.warns(rfgp.OutlierWarning, match=r"\(7;"):
        gp.fit(with_values(X, 7, wild)[:, None], Y)
    assert rmse(gp) < 0.08


def test_outliers_of_rows_in_blocks_are_named():
    gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(32), seed=0)
    with pytest.warns(rfgp.OutlierWarning, match=r"\(45;"):
        gp.condition(blocks(with_values(X, 45, 1e6), Y))
    assert gp.hyperparameters["rbf.lengthscale"].item() < 1


def test_weights_count_as_repeated_rows_in_robust_units():
    rows, weight = np.arange(80), np.ones(80)
    weight[:20] = 2.0
    repeated = np.concatenate([rows, rows[:20]])
    wild, units = with_values(X, 7, 1e6)[:, None], []
    with pytest.warns(rfgp.OutlierWarning):
        units.append(rfgp.GP(k.RBF(), seed=0).condition(wild, Y, sample_weight=weight))
    with pytest.warns(rfgp.OutlierWarning):
        units.append(rfgp.GP(k.RBF(), seed=0).condition(wild[repeated], Y[repeated]))
    first, second = (gp.hyperparameters["rbf.lengthscale"].item() for gp in units)
    assert first == pytest.approx(second, rel=1e-12)
    assert first < 1  # the standard deviation is above 1e5


def test_outliers_with_their_own_noise_do_not_hide_the_rest():
    noise = with_values(np.full(80, 1e-4), [20, 50], 1e12)
    gp = rfgp.GP(k.RBF(), seed=0)
    with pytest.warns(rfgp.OutlierWarning, match="20"):
        gp.fit(X[:, None], with_values(Y, [20, 50], 1e6), noise=noise)
    assert rmse(gp) < 0.08


@pytest.mark.parametrize(
    "y",
    [
        pytest.param(np.where(np.arange(80) % 10, 0.0, 1e6), id="zero-inflated"),
        pytest.param(np.exp(np.random.default_rng(3).normal(size=80)), id="log-normal"),
    ],
)
def test_heavy_tails_within_ten_robust_scales_do_not_warn(y):
    gp = rfgp.GP(k.RBF(), seed=0).condition(X[:, None], y)
    assert gp.hyperparameters["noise"].item() == pytest.approx(0.1 * np.var(y, ddof=1))


def test_condition_and_update_keep_robust_units():
    with pytest.warns(rfgp.OutlierWarning):
        gp = rfgp.GP(k.RBF(), seed=0).fit(with_values(X, 7, 1e6)[:, None], Y)
    before = gp.hyperparameters["rbf.lengthscale"].item()
    gp.condition(X[:, None], Y).update([[1e6]], [0.0])
    assert gp.hyperparameters["rbf.lengthscale"].item() == before
    assert rmse(gp) < 0.08


def test_an_outlier_in_one_output_does_not_change_the_other():
    outputs = [np.column_stack([Y, second]) for second in (F, with_values(F, 3, 1e6))]
    gps = [rfgp.GP(k.RBF(), seed=0).condition(X[:, None], both) for both in outputs]
    first, second = (gp.predict(POINTS[:, None]).mean[:, 0] for gp in gps)
    np.testing.assert_allclose(first, second, rtol=1e-9)


def test_a_saved_model_keeps_robust_units(tmp_path):
    with pytest.warns(rfgp.OutlierWarning):
        gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(32), seed=0).fit(with_values(X, 7, 1e6)[:, None], Y)
    gp.save(tmp_path / "model")
    again = rfgp.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(POINTS[:, None]).mean, gp.predict(POINTS[:, None]).mean)
