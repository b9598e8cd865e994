"""A warning about random features that are too few, by the exact kernel's leave-one-out densities."""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp.regression.spec import exact_left_out


def step(n=250, seed=0):
    """A step along a line in two of three columns, next to a slope, with hardly any noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, np.tanh(20 * (X[:, 0] - 0.5 + 0.3 * X[:, 1])) + X[:, 2] + 1e-3 * rng.normal(size=n)


def poor_features(gp, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gp.fit(X, y)
    return [str(one.message) for one in caught if issubclass(one.category, rfgp.PoorFeaturesWarning)]


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")  # rows on the step
@pytest.mark.parametrize("seed", [0])
def test_sharp_responses_starve_few_features(seed):
    X, y = step(seed=seed)
    gp = rfgp.GP(k.Matern(), approximation=rfgp.RandomFeatures(256), seed=0)
    (message,) = poor_features(gp, X, y)
    exact = rfgp.GP(k.Matern(), approximation=rfgp.Exact(), seed=0).fit(X, y)
    gap = exact.fit_report.leave_one_out - gp.fit_report.leave_one_out
    said = float(message.partition("by ")[2].partition(" nats")[0])
    assert 0.2 <= said <= 1.5 * gap  # the search with the exact kernel may find a better optimum


@pytest.mark.parametrize("approximation", [rfgp.RandomFeatures(256), rfgp.Exact()], ids=repr)
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_smooth_functions_do_not_warn(approximation, noise):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(250, 3))
    y = np.sin(4 * X[:, 0]) + X[:, 1] ** 2 + noise * rng.normal(size=250)
    assert poor_features(rfgp.GP(k.RBF(), approximation=approximation, seed=0), X, y) == []


def test_left_out_densities_match_each_row_left_out():
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.uniform(size=12)), rng.normal(size=12)
    K = np.exp(-0.5 * ((x[:, None] - x) / 0.2) ** 2)
    found = exact_left_out(torch.from_numpy(K), torch.from_numpy(y)[:, None])

    def log_likelihood(r):
        C = K + r * np.eye(12)
        c = y @ np.linalg.solve(C, y) / 12
        return stats.multivariate_normal(np.zeros(12), c * C).logpdf(y), c * C

    ratios = np.linalg.eigvalsh(K)[-1] * np.logspace(-12, 2, 43)[15:]
    best, C = max((log_likelihood(r) for r in ratios), key=lambda pair: pair[0])
    assert found.likelihood == pytest.approx(best, rel=1e-6)
    for i in range(12):
        rest = np.arange(12) != i
        solved = np.linalg.solve(C[np.ix_(rest, rest)], C[rest, i])
        expected = stats.norm(solved @ y[rest], np.sqrt(C[i, i] - solved @ C[rest, i])).logpdf(y[i])
        assert float(found.log_prob[i, 0]) == pytest.approx(expected, abs=1e-6)


def test_structure_that_is_taken_for_little_noise_is_named():
    """A ripple of 1e-5 of the variance, which a fixed lengthscale cannot follow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 1))
    y = np.sin(5 * X[:, 0]) + 0.006 * np.sin(80 * X[:, 0])
    gp = rfgp.GP(k.RBF(lengthscale=0.3), approximation=rfgp.Exact(), seed=0)
    with pytest.warns(rfgp.UnderfittingWarning, match="neighboring"):
        gp.fit(X, y, fixed=("lengthscale",))
    assert gp.hyperparameters.noise.item() < 1e-3 * y.var()
