"""A noise of 1e-10 with features and neighbors, compared with algebra in 90 digits."""

import functools
import operator

import mpmath as mp
import numpy as np
import pytest
import torch
from exact_algebra import fixed, product, regression

import rfgp
from rfgp import kernels as k

NOISE = 1e-10
CASES = {
    "features": ({"a": k.RBF()}, {"a": rfgp.RandomFeatures(16, coupling="iid")}, {"a": (1e4, 0.5)}),
    "neighbors": ({"b": k.RBF()}, {"b": rfgp.Vecchia(300)}, {"b": (1e5, 10.0)}),
    "rough neighbors": ({"b": k.Matern(nu=2.5)}, {"b": rfgp.Vecchia(300)}, {"b": (1e5, 30.0)}),
    "both": (
        {"a": k.RBF(), "b": k.RBF()},
        {"a": rfgp.RandomFeatures(16, coupling="iid"), "b": rfgp.Vecchia(300)},
        {"a": (1e4, 0.5), "b": (1.0, 0.5)},
    ),
}
"""Kernels and approximations of terms, with output scales and lengthscales. All earlier rows are neighbors."""


def kernel_and_slope(kernel, scale, lengthscale, a, b):
    """Return a kernel and its derivative in the logarithm of the lengthscale, (n, m) each, in fixed point."""
    out = np.empty((2, len(a), len(b)), dtype=object)
    for i, j in np.ndindex(len(a), len(b)):
        square = sum((mp.mpf(u) - mp.mpf(v)) ** 2 for u, v in zip(a[i], b[j], strict=True)) / mp.mpf(lengthscale) ** 2
        if isinstance(kernel, k.RBF):
            value = mp.exp(-square / 2)
            out[:, i, j] = scale * value, scale * value * square
        else:
            t = mp.sqrt(5 * square)
            out[:, i, j] = scale * mp.exp(-t) * (1 + t + t**2 / 3), scale * mp.exp(-t) * t**2 * (1 + t) / 3
    return fixed(out)


def features_and_slope(gp, x):
    """Return the features of a model (n, F) and their derivative in the logarithm of the lengthscale."""
    weights, x = gp.state.prior().dense.detached(), torch.as_tensor(x)

    def features(*parameters):
        return weights.features(x, *parameters) * weights.scale

    return (fixed(part.numpy()) for part in torch.autograd.functional.jvp(features, *[weights.parameters] * 2))


def found_and_expected(name, n):
    """Return a model of n rows, its new points, and the expected answers."""
    kernels, approximations, values = CASES[name]
    rng = np.random.default_rng(0)
    X, new = rng.uniform(size=(n, 2)), rng.uniform(size=(10, 2))
    wave = 300 * np.sin(X @ [0.1, 0.07] + 0.5) if name.endswith("neighbors") else np.sin(3 * X[:, 0]) + X[:, 1]
    y = wave + np.sqrt(NOISE) * rng.standard_normal(n)
    start = {"noise": NOISE, "mean": 0.0}
    for term, pair in values.items():
        start |= dict(zip((f"{term}.outputscale", f"{term}.lengthscale"), pair, strict=True))
    kernel = functools.reduce(operator.add, (value.named(term) for term, value in kernels.items()))
    gp = rfgp.GP(kernel, approximation=approximations, standardize=False, start=start, seed=0).condition(X, y)
    total, cross, variances, slopes = 0, 0, 0, {}
    with mp.workdps(60):
        for term, (scale, lengthscale) in values.items():
            if term == "a":
                (phi, slope), (at_new, _) = features_and_slope(gp, X), features_and_slope(gp, new)
                own, rest = product(phi, phi.T), product(slope, phi.T)
                parts, prior = (own, rest + rest.T), (at_new * at_new).sum(1) >> 300
                cross = cross + product(at_new, phi.T)
            else:
                parts = kernel_and_slope(kernels[term], scale, lengthscale, X, X)
                cross = cross + kernel_and_slope(kernels[term], scale, lengthscale, new, X)[0]
                prior = fixed(np.full(len(new), scale))
            slopes |= {f"{term}.outputscale": parts[0], f"{term}.lengthscale": parts[1]}
            total, variances = total + parts[0], variances + prior
        return gp, new, y, regression(total, cross, variances, NOISE, y, slopes)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *((name, 40) for name in CASES),
        *(pytest.param(name, 300, marks=pytest.mark.slow) for name in ("features", "neighbors")),
    ],
)
def test_answers_have_enough_digits(name, n):
    gp, new, y, expected = found_and_expected(name, n)
    prediction, left_out, value = gp.predict(new), gp.leave_one_out(), gp.log_marginal_likelihood()
    value.backward()
    spread = np.hypot(expected.std, np.sqrt(NOISE))
    assert np.abs(prediction.mean - expected.mean).max() < 1e-7 * y.std()
    assert (np.abs(prediction.mean - expected.mean) / spread).max() < 0.01
    np.testing.assert_allclose(prediction.std, expected.std, rtol=0.01)
    np.testing.assert_allclose(prediction.observed().std, spread, rtol=1e-3)
    assert np.abs(left_out.mean - expected.left_out_mean).max() < 1e-7 * y.std()
    np.testing.assert_allclose(np.sqrt(left_out.variance), expected.left_out_std, rtol=0.01)
    assert value.item() == pytest.approx(expected.log_prob, abs=1e-3 * n)
    for path, gradient in expected.gradients.items():
        found = gp.hyperparameters.raw[path.replace(".", "/")].grad.sum().item()
        assert found == pytest.approx(gradient, rel=0.01, abs=0.01), path


def test_equal_rows_have_finite_gradients_at_small_noise():
    X = np.repeat(np.random.default_rng(0).uniform(size=(40, 2)), 2, axis=0)
    start = {"noise": 1e-10, "lengthscale": 100.0, "outputscale": 100.0}
    gp = rfgp.GP(k.Matern(nu=0.5), approximation=rfgp.Exact(), start=start, seed=0)
    gp.condition(X, np.sin(9 * X[:, 0]) + np.arange(80))
    gp.log_marginal_likelihood().backward()
    assert all(bool(torch.isfinite(raw.grad).all()) for raw in gp.hyperparameters.raw.values())
