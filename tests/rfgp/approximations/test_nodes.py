"""Walks, series, truncated spectra and rational precisions of terms on nodes, beside other terms."""

import numpy as np
import pytest
import torch
from field_cases import NEW, ROWS, Y, ring

import graphs
import rfgp
from rfgp import kernels as k

GRAPH = ring()
LINEAR = k.Linear("pressure", name="slope")
CASES = {
    "chebyshev": ("diffusion", rfgp.Chebyshev(30), 1e-6),
    "taylor": ("diffusion", rfgp.Taylor(40), 1e-6),
    "spectrum": ("diffusion", rfgp.TruncatedSpectrum(40), 1e-8),
    "rational": (graphs.kernels.Matern(nu=1.5, kappa=1.5), rfgp.RationalPrecision(6), 1e-2),
    "walks": ("diffusion", rfgp.RandomWalks(2000, exact_hops=6), 0.1),
}


@pytest.mark.parametrize("name", CASES)
def test_approximations_are_near_the_exact_kernel(name):
    kernel, approximation, atol = CASES[name]
    exact = rfgp.GP(k.Nodes(GRAPH, kernel, name="nodes") + LINEAR, start={"noise": 0.1}, seed=0).condition(ROWS, Y)
    exact = exact.exact()
    gp = exact.with_approximation({"nodes": approximation})
    assert gp.terms["nodes"].approximation == approximation
    prediction, expected = gp.predict(NEW), exact.predict(NEW)
    found = gp.log_marginal_likelihood()
    assert found.item() == pytest.approx(exact.log_marginal_likelihood().item(), abs=10 * atol)
    np.testing.assert_allclose(prediction.mean, expected.mean, atol=atol)
    np.testing.assert_allclose(prediction.std, expected.std, atol=atol)
    for term in ("nodes", "slope"):
        np.testing.assert_allclose(prediction.terms[term].mean, expected.terms[term].mean, atol=atol)
        np.testing.assert_allclose(prediction.terms[term].std, expected.terms[term].std, atol=atol)
    found.backward()
    assert all(raw.grad is not None for raw in gp.hyperparameters.raw.values())


@pytest.mark.parametrize("approximation", [rfgp.RandomWalks(8, exact_hops=0), rfgp.Chebyshev(4)])
def test_sums_with_sparse_features_match_dense_algebra(approximation):
    gp = rfgp.GP(
        k.Nodes(GRAPH, "diffusion", name="nodes") + LINEAR + k.Matern("hour", name="trend"),
        approximation={"nodes": approximation, "trend": rfgp.RandomFeatures(16)},
        start={"noise": 0.1},
        seed=0,
    ).condition(ROWS, Y)
    with torch.no_grad():
        both = {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
        kernel = gp.prior_covariance(both).numpy()
    n = len(Y)
    total = kernel[:n, :n] + 0.1 * np.eye(n)
    mean = gp.hyperparameters.mean.item()
    np.testing.assert_allclose(
        gp.predict(NEW).mean, mean + kernel[n:, :n] @ np.linalg.solve(total, Y - mean), atol=1e-6
    )
    variance = np.diag(kernel[n:, n:] - kernel[n:, :n] @ np.linalg.solve(total, kernel[:n, n:]))
    np.testing.assert_allclose(gp.predict(NEW).variance, variance, atol=1e-6)
    sign, log_determinant = np.linalg.slogdet(2 * np.pi * total)
    expected = -0.5 * (log_determinant + (Y - mean) @ np.linalg.solve(total, Y - mean))
    assert sign == 1
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, abs=1e-5)


def test_large_graphs_without_a_sparse_precision_use_walks():
    graph, rng = ring(3000), np.random.default_rng(0)
    rows = {"node": [f"n{i}" for i in rng.integers(0, 3000, 200)], "p": rng.normal(size=200)}
    gp = rfgp.GP(k.Nodes(graph, "diffusion", name="nodes") + k.Linear("p"), seed=0).condition(
        rows, rng.normal(size=200)
    )
    assert isinstance(gp.terms["nodes"].approximation, rfgp.RandomWalks)


@pytest.mark.parametrize(
    ("kernel", "approximation", "message"),
    [
        (k.RBF("hour"), rfgp.RandomWalks(4), "no factor on the nodes"),
        (k.Nodes(GRAPH), rfgp.RationalPrecision(), "not a power of the resolvent"),
        (k.Nodes(GRAPH), rfgp.SparsePrecision(), "no factor has a sparse precision"),
        (k.Nodes(GRAPH), rfgp.RandomFeatures(4), "no spectral measure"),
    ],
)
def test_terms_that_cannot_be_served_are_named(kernel, approximation, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        rfgp.GP(kernel, approximation=approximation).fit(ROWS, Y)
