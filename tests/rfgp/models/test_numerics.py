"""Degenerate tables, extreme units and single precision: a usable model or a clear error, never nonsense."""

import warnings

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from model_checks import assert_gradients

import rfgp
from rfgp import SparseSpectrumGP
from rfgp import kernels as k

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")


def drawn():
    """120 rows of three columns with their targets, and 15 new rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(120), rng.standard_normal((15, 3))


X, Y, NEW = drawn()


def spread(y):
    return float(np.std(np.asarray(y, float)))


@pytest.mark.parametrize("m", [10, 90])
def test_gradients_equal_finite_differences(m):
    gp = SparseSpectrumGP(num_frequencies=m, seed=0).condition(X, Y)
    gp.hyperparameters.set(noise=0.05, lengthscale=[1.0, 2.0, 3.0], mean=0.1)
    assert_gradients(gp)


@pytest.mark.parametrize(("unit", "offset"), [(1e12, 0.0), (1e-12, 1e3), (1e150, 1e3), (1e-150, 0.0)])
@pytest.mark.thinned(100, slow=4)
@pytest.mark.parametrize("kind", ["fixed", "learned"])
def test_the_unit_of_the_target_does_not_matter(unit, offset, kind):
    def make():
        return SparseSpectrumGP(num_frequencies=20, seed=0, learn_frequencies=kind == "learned")

    plain = make().fit(X, Y + offset, max_iterations=40)
    gp = make().fit(X, unit * (Y + offset), max_iterations=40)
    np.testing.assert_allclose(gp.predict(NEW).mean / unit, plain.predict(NEW).mean, atol=1e-3)
    np.testing.assert_allclose(
        gp.predict(NEW).variance / unit / unit, plain.predict(NEW).variance, rtol=0.05, atol=1e-4
    )
    shift = 120 * np.log(unit)
    a, b = gp.fit_report.log_marginal_likelihood + shift, plain.fit_report.log_marginal_likelihood
    assert a == pytest.approx(b, abs=0.05)


@pytest.mark.parametrize("unit", [1e12, 1e-12])
def test_the_unit_of_a_column_does_not_matter(unit):
    plain = SparseSpectrumGP(num_frequencies=20, seed=0).fit(X, Y)
    gp = SparseSpectrumGP(num_frequencies=20, seed=0).fit(X * [1, unit, 1], Y)
    np.testing.assert_allclose(gp.predict(NEW * [1, unit, 1]).mean, plain.predict(NEW).mean, atol=1e-4)
    assert gp.hyperparameters.lengthscale[1].item() == pytest.approx(
        unit * plain.hyperparameters.lengthscale[1].item(), rel=0.05
    )


HUGE, TINY = 2.0**664, 2.0**-664
"""About 1e200 and 1e-200; powers of two, so that not one digit may differ."""
UNITS = {
    "huge": HUGE,
    "tiny": TINY,
    "1e300": 2.0**996,
    "one huge": np.array([HUGE, 1, 1]),
    "mixed": np.array([HUGE, 1, TINY]),
}
KINDS = {
    "features": (k.RBF(), rfgp.RandomFeatures(16)),
    "learned": (k.RBF(), rfgp.RandomFeatures(16, learn_frequencies=True)),
    "exact": (k.Matern(nu=1.5), rfgp.Exact()),
    "points": (k.RBF(), rfgp.InducingPoints(20, method="fitc")),
    "neighbors": (k.Matern(nu=1.5), rfgp.Vecchia()),
}


@pytest.mark.thinned(3, slow=2)
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_huge_and_tiny_columns_change_nothing(kind, unit):
    def fitted(factor):
        kernel, approximation = kind
        return rfgp.GP(kernel, approximation=approximation, seed=0).fit(X * factor, Y, max_iterations=10)

    expected, found = fitted(1.0).predict(NEW), fitted(unit).predict(NEW * unit)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.variance, expected.variance)


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_huge_and_tiny_columns_in_blocks(unit):
    def fitted(factor):
        blocks = [(X[first : first + 50] * factor, Y[first : first + 50]) for first in range(0, 120, 50)]
        return SparseSpectrumGP(num_frequencies=16, seed=0).fit(rfgp.tables.Batches(blocks), max_iterations=5)

    np.testing.assert_array_equal(fitted(unit).predict(NEW * unit).mean, fitted(1.0).predict(NEW).mean)


@pytest.mark.parametrize("value", [1e-300, 1e20, 1e160, 1e300])
def test_a_constant_column_of_any_size_adds_nothing(value):
    def fitted(*more):
        return SparseSpectrumGP(num_frequencies=200, seed=0).fit(np.c_[X, *more], Y)

    column = np.full(120, value)
    found = fitted(column).predict(np.c_[NEW, column[:15]]).mean
    np.testing.assert_allclose(found, fitted(np.ones(120)).predict(np.c_[NEW, np.ones(15)]).mean, atol=1e-6)
    assert np.isfinite(fitted(column).predict(np.c_[NEW, 2 * column[:15]]).mean).all()


@pytest.mark.parametrize("unit", [HUGE, TINY])
def test_inputs_of_any_size_without_standardizing(unit):
    X, Y, NEW = np.tile(drawn()[0], (2, 1)), np.tile(drawn()[1], 2), drawn()[2]
    expected, found = (
        SparseSpectrumGP(num_frequencies=16, standardize=False, seed=0).fit(X * f, Y, max_iterations=5).predict(NEW * f)
        for f in (1.0, unit)
    )
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_targets_whose_variance_has_no_number_are_named(unit):
    with pytest.raises(rfgp.DataError, match="Divide y by"):
        SparseSpectrumGP(num_frequencies=16, seed=0).fit(X, Y * unit)


DEGENERATE = {
    "duplicates": (np.repeat(X[:30], 4, axis=0), np.repeat(Y[:30], 4)),
    "duplicates that disagree": (np.repeat(X[:30], 4, axis=0), Y),
    "one place": (np.ones((120, 3)), Y),
    "constant column": (np.c_[X, np.full(120, 7.0)], Y),
    "collinear": (np.c_[X, X[:, 0] * 2 - 1, X[:, 0] + X[:, 1]], Y),
    "equal columns": (X[:, [0, 0, 0]], Y),
    "integers": (
        np.random.default_rng(1).integers(0, 3, (120, 3)),
        np.random.default_rng(2).integers(0, 5, 120).astype(float),
    ),
    "binary target": (X, (X[:, 0] > 0).astype(float)),
    "no noise": (X, X[:, 0]),
    "outlier": (np.r_[X, [[1e6, 0, 0]]], np.r_[Y, 0.0]),
    "target outlier": (X, np.r_[Y[:-1], 1e9]),
    "far offset": (X + 1e8, Y),
    "two rows": (X[:2], Y[:2]),
    "three rows": (X[:3], Y[:3]),
    "one column": (X[:, :1], Y),
    "n = F": (X[:40], Y[:40]),
    "n = F + 1": (X[:41], Y[:41]),
    "n = F - 1": (X[:39], Y[:39]),
}


@pytest.mark.parametrize("name", ["one place", "two rows", "three rows"])
def test_a_default_fit_of_a_degenerate_table_is_finite(name):
    p = rfgp.GP(seed=0).fit(*DEGENERATE[name]).predict(X[:5]).observed()
    assert np.isfinite(p.mean).all()
    assert (p.variance > 0).all()


@pytest.mark.parametrize("kind", ["fixed", "learned"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.thinned(100, slow=3)
@pytest.mark.slow
def test_degenerate_tables_give_a_usable_model(name, dtype, kind):
    inputs, y = DEGENERATE[name]
    inputs, y = (inputs if inputs.dtype.kind == "i" else inputs.astype(dtype)), y.astype(dtype)
    if inputs.dtype.kind == "i":
        y = y.astype(np.float64)
    gp = SparseSpectrumGP(num_frequencies=20, seed=0, learn_frequencies=kind == "learned").fit(
        inputs, y, max_iterations=30
    )
    p = gp.predict(inputs).observed()
    assert np.isfinite(p.mean).all()
    assert (p.variance > 0).all()
    assert np.isfinite(gp.fit_report.log_marginal_likelihood)
    assert abs(p.mean - y).max() <= 3 * np.ptp(y)  # nowhere far outside of what was seen
    for quantity in gp.hyperparameters.names:
        assert torch.isfinite(getattr(gp.hyperparameters, quantity)).all()
    far = gp.predict(inputs[:5] + (1 if inputs.dtype.kind == "i" else 1000)).observed()
    assert np.isfinite(far.mean).all()
    assert (far.variance > 0).all()


@pytest.mark.parametrize("m", [10, 40, 90])
def test_single_precision_stays_within_its_bounds(m):
    """With noise of a thousandth: means to 2e-3 of the target's deviation, standard deviations to 2 %."""
    gp = SparseSpectrumGP(num_frequencies=m, seed=0).condition(X, Y)
    gp.hyperparameters.set(noise=1e-3, lengthscale=[1.0, 1.5, 2.0])
    single = SparseSpectrumGP(num_frequencies=m, seed=0).condition(X.astype(np.float32), Y.astype(np.float32))
    single.hyperparameters.set(noise=1e-3, lengthscale=[1.0, 1.5, 2.0])
    p, q = gp.predict(NEW), single.predict(NEW.astype(np.float32))
    np.testing.assert_allclose(q.mean, p.mean, atol=2e-3 * spread(Y))
    np.testing.assert_allclose(q.variance**0.5, p.variance**0.5, rtol=0.02, atol=1e-4)
    a, b = gp.log_marginal_likelihood().item(), single.log_marginal_likelihood().item()
    assert b == pytest.approx(a, rel=1e-4, abs=0.05)


def test_singular_matrices_have_the_noise_of_rounding():
    """Without noise the matrix of a process on 40 equal rows is singular, of ones alone exactly: errors grow."""
    gp = rfgp.ExactGP(standardize=False, outputscale=1.0, noise=1e-6).condition(np.zeros((40, 1)), Y[:40])
    gp.hyperparameters.raw["noise"].data.fill_(-80.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gp.predict(np.zeros((1, 1)))
    np.testing.assert_allclose(found.mean, Y[:40].mean(), atol=0.2 * Y.std())


@st.composite
def tables(draw):
    n, d = draw(st.integers(2, 60)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    inputs = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-6, 7, d) + 10.0 ** rng.integers(-3, 4, d)
    inputs[:, rng.random(d) < 0.2] = 5.0
    if draw(st.booleans()):
        inputs = inputs[rng.integers(0, n, n)]
    y = rng.standard_normal((n, draw(st.integers(1, 3)))) * 10.0 ** draw(st.integers(-9, 9))
    y[0] += 1e-3 * abs(y).max() + 1e-12  # never constant
    y = y[:, 0] if draw(st.booleans()) else y
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    return inputs.astype(dtype), y.astype(dtype), draw(st.integers(1, 40)), draw(st.sampled_from(["iid", "energy"]))


@pytest.mark.slow
@hypothesis.settings(max_examples=40, deadline=None, derandomize=True)
@hypothesis.given(tables())
def test_any_table_is_fitted_or_refused_by_name(table):
    inputs, y, m, coupling = table
    gp = SparseSpectrumGP(num_frequencies=m, coupling=coupling, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            gp.fit(inputs, y, max_iterations=5)
        except rfgp.RfgpError:
            return
        p = gp.predict(inputs)
    assert p.mean.shape == p.variance.shape == y.shape
    assert p.mean.dtype == inputs.dtype
    assert np.isfinite(p.mean).all()
    assert (p.variance >= 0).all()
    assert np.isfinite(gp.log_marginal_likelihood().item())
    assert np.isfinite(gp.leave_one_out().log_prob).all()
