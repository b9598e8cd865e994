"""The automatic approximation of terms under likelihoods that are not Gaussian."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k


def data(n):
    rng = np.random.default_rng(0)
    X = {"t": rng.uniform(0, 1, n), "u": rng.uniform(0, 1, n), "g": np.resize(["a", "b"], n)}
    return X, (np.sin(9 * X["t"]) + 0.5 * rng.normal(size=n) > 0).astype(float)


def approximations(kernel, n, likelihood="bernoulli", approximation="auto"):
    gp = rfgp.GP(kernel, likelihood, approximation=approximation, seed=0).condition(*data(n))
    return [type(chosen).__name__ for chosen in gp.state.spec.approximations.values()]


RBF = k.RBF("t", lengthscale=0.3)


@pytest.mark.parametrize(
    ("kernel", "n", "likelihood", "expected"),
    [
        (RBF, 1100, "bernoulli", "EquispacedFourier"),
        (RBF, 1100, "student-t", "EquispacedFourier"),
        (RBF, 900, "bernoulli", "Exact"),
        (RBF, 1100, "gaussian", "Exact"),
        (k.RBF("t", lengthscale=0.0005), 1100, "bernoulli", "Exact"),
        (k.RBF(["t", "u"], lengthscale=0.3), 1100, "bernoulli", "Exact"),
    ],
)
def test_exact_kernels_of_one_column_are_replaced(kernel, n, likelihood, expected):
    assert approximations(kernel, n, likelihood)[0] == expected


def test_terms_are_replaced_only_if_all_have_weights():
    assert approximations(RBF + k.Group("g"), 1100) == ["EquispacedFourier", "Exact"]
    assert approximations(RBF + k.RBF("u", lengthscale=0.3), 1100) == ["Exact", "Exact"]
    assert approximations(RBF, 1100, approximation=rfgp.Exact()) == ["Exact"]


@pytest.mark.parametrize("likelihood", ["bernoulli", "student-t", "poisson"])
def test_replaced_kernels_have_the_exact_evidence_and_scores(likelihood):
    X, y = data(1100)
    y = np.sin(9 * X["t"]) + 0.3 * np.random.default_rng(1).standard_t(3, 1100) if likelihood == "student-t" else y
    chosen, exact = (rfgp.GP(RBF, likelihood, approximation=a, seed=0).condition(X, y) for a in ("auto", rfgp.Exact()))
    evidence = [gp.log_marginal_likelihood().item() for gp in (chosen, exact)]
    assert abs(evidence[0] - evidence[1]) < 0.2  # nats, of 1,100 rows
    new = {"t": np.linspace(0, 1, 50)}
    scores = (gp.predict(new).observed().log_prob(np.ones(50)) for gp in (chosen, exact))
    assert np.abs(np.subtract(*scores)).max() < 5e-3
