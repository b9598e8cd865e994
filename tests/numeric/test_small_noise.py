"""A noise of 1e-10 with features and neighbors, compared with algebra in 60 digits."""

import mpmath as mp
import numpy as np
import pytest

import rfgp
from rfgp import kernels as k

NOISE, N, M = 1e-10, 40, 5


def exact_kernel(x, scale, lengthscale):
    """Return a Gaussian kernel of rows, from their floats."""
    out = mp.matrix(len(x), len(x))
    for i, j in np.ndindex(len(x), len(x)):
        square = sum((mp.mpf(a) - mp.mpf(b)) ** 2 for a, b in zip(x[i], x[j], strict=True))
        out[i, j] = scale * mp.exp(-square / (2 * mp.mpf(lengthscale) ** 2))
    return out


def feature_kernel(gp, x, scale, lengthscale):
    """Return the kernel of the frequencies of a draw."""
    frequencies = gp.feature_map.frequencies.dense().numpy()
    out = mp.matrix(len(x), len(x))
    angles = [
        [sum(mp.mpf(w) * mp.mpf(a) for w, a in zip(f, row, strict=True)) / lengthscale for f in frequencies]
        for row in x
    ]
    for i, j in np.ndindex(len(x), len(x)):
        out[i, j] = scale * sum(mp.cos(a - b) for a, b in zip(angles[i], angles[j], strict=True)) / len(frequencies)
    return out


def answers(prior, y):
    """Return means and deviations at new points, those of rows given all others, and the log density."""
    C = prior[:N, :N] + mp.mpf(NOISE) * mp.eye(N)
    inverse, targets = mp.inverse(C), mp.matrix([mp.mpf(value) for value in y])
    a, cross = inverse * targets, prior[N:, :N]
    variances = [prior[N + i, N + i] - (cross[i, :] * inverse * cross[i, :].T)[0] for i in range(M)]
    density = -(mp.log(mp.det(C)) + (targets.T * a)[0] + N * mp.log(2 * mp.pi)) / 2
    left = [targets[i] - a[i] / inverse[i, i] for i in range(N)], [1 / mp.sqrt(inverse[i, i]) for i in range(N)]
    found = cross * a, [mp.sqrt(variance) for variance in variances], *left
    return *(np.array([float(value) for value in values]) for values in found), float(density)


@pytest.mark.parametrize("case", ["features", "neighbors"])
def test_answers_have_enough_digits(case):
    rng, scale, lengthscale = np.random.default_rng(0), 1e4, 0.5 if case == "features" else 2.0
    X, new = rng.uniform(size=(N, 2)), rng.uniform(size=(M, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + np.sqrt(NOISE) * rng.standard_normal(N)
    start = {"noise": NOISE, "outputscale": scale, "lengthscale": lengthscale}
    if case == "features":
        gp = rfgp.SparseSpectrumGP(num_frequencies=16, coupling="iid", standardize=False, seed=0, **start)
    else:
        gp = rfgp.GP(k.RBF(), approximation=rfgp.Vecchia(300), standardize=False, start=start, seed=0)
    gp.condition(X, y).hyperparameters.set(mean=0.0)
    own = scale, lengthscale
    with mp.workdps(60):
        rows = np.concatenate([X, new])
        prior = exact_kernel(rows, *own) if case == "neighbors" else feature_kernel(gp, rows, *own)
        mean, std, left_mean, left_std, density = answers(prior, y)
    found, left = gp.predict(new), gp.leave_one_out()
    assert np.abs(found.mean - mean).max() < 1e-5 * y.std()
    np.testing.assert_allclose(found.std, std, rtol=0.01)
    assert np.abs(left.mean - left_mean).max() < 1e-5 * y.std()
    np.testing.assert_allclose(np.sqrt(left.variance), left_std, rtol=0.01)
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, abs=1e-3 * N)
