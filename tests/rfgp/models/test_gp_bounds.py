"""Bounds of the exact log marginal likelihood of sums of terms, against dense algebra."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp import kernels as k

N = 70
SMOOTH = k.RBF("a", lengthscale=0.8, name="smooth")
ROUGH = k.Matern("b", nu=1.5, lengthscale=0.7, name="rough")
FINITE = k.Linear("b", origin=0.0, name="slope") + k.Group("site", name="site")
KERNELS = {
    "one": SMOOTH,
    "two": 0.5 * SMOOTH + 2.0 * ROUGH,
    "with finite terms": SMOOTH + FINITE,
    "product": (SMOOTH * k.Group("site")).named("own") + ROUGH,
    "not stationary": k.Polynomial("a", degree=2, name="square") + ROUGH,
}
POINTS = rfgp.InducingPoints


def data(outputs=1):
    rng = np.random.default_rng(3)
    X = {"a": rng.uniform(0, 6, N), "b": rng.normal(size=N), "site": rng.choice(list("abc"), N)}
    y = 5 + np.sin(X["a"]) + 0.4 * X["b"] + 0.3 * rng.normal(size=N)
    return X, y if outputs == 1 else np.stack([y, 3 * y[::-1]], axis=1)


def chosen(case, num_points=10, **options):
    names = [term.name for term in KERNELS[case].terms() if term.name not in ("slope", "site")]
    return dict.fromkeys(names, POINTS(num_points, **options))


def model(case, *points, **options):
    return rfgp.GP(KERNELS[case], approximation=chosen(case, *points, **options), seed=0)


def density(matrix, residual):
    """Return the log density of a residual (n,) of a normal distribution with this covariance (n, n)."""
    return -0.5 * (np.linalg.slogdet(2 * np.pi * matrix)[1] + residual @ np.linalg.solve(matrix, residual))


@pytest.mark.parametrize("method", ["sor", "fitc", "vfe"])
@pytest.mark.parametrize("case", KERNELS)
def test_bounds_are_those_of_dense_algebra(case, method):
    X, y = data()
    gp = model(case, method=method).condition(X, y)
    noise, residual = gp.hyperparameters.noise.item(), y - gp.hyperparameters.mean.item()
    K, one = gp.exact().prior_covariance(X).numpy(), noise * np.eye(N)
    Q = gp.with_approximation(chosen(case, method="sor")).prior_covariance(X).numpy()
    t = np.trace(K - Q) / noise
    lower = density(Q + one, residual) - t / 2
    quadratics = [residual @ np.linalg.solve(Q + c * one, residual) for c in (1, 1 + t)]
    found = gp.evidence_bounds()
    assert found.lower == pytest.approx(lower, rel=1e-8)
    assert found.upper == pytest.approx(lower + t / 2 + (quadratics[0] - quadratics[1]) / 2, rel=1e-8)
    assert found.lower < density(K + one, residual) < found.upper


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("case", KERNELS)
def test_more_points_bring_the_bounds_together(case, outputs):
    X, y = data(outputs)
    rows = {"sample_weight": np.arange(N) % 3 + 1.0} | ({"noise": np.full(N, 0.1)} if outputs == 1 else {})
    last = np.inf
    for num_points in (4, 16, N):
        gp = model(case, num_points, init="pivoted-cholesky").condition(X, y, **rows)
        found, exact = gp.evidence_bounds(), gp.exact().log_marginal_likelihood().item()
        assert found.lower < exact + 1e-4
        assert exact - 1e-4 < found.upper
        assert found.divergence < last
        last = found.divergence
    assert last < 0.1


def test_the_lower_bound_is_the_likelihood_of_vfe():
    gp = model("with finite terms", method="vfe").condition(*data())
    assert gp.evidence_bounds().lower == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-12)


def test_bounds_of_finite_terms_are_equal():
    gp = rfgp.GP(FINITE, seed=0).condition(*data())
    found, exact = gp.evidence_bounds(), gp.log_marginal_likelihood().item()
    assert (found.lower, found.upper) == pytest.approx((exact, exact), rel=1e-10)


def test_the_distance_of_the_bounds_bounds_the_divergence():
    X, y = data()
    gp = model("with finite terms", 6, method="vfe").condition(X, y)
    found, exact = (
        torch.distributions.MultivariateNormal(*map(torch.tensor, (p.mean, p.covariance + 1e-9 * np.eye(N))))
        for p in (gp.predict(X), gp.exact().predict(X))
    )
    divergence = torch.distributions.kl_divergence(found, exact).item()
    assert 0.01 < divergence < gp.evidence_bounds().divergence
    assert "at most" in str(gp.evidence_bounds())


@pytest.mark.parametrize(
    ("approximation", "likelihood", "message"),
    [
        (rfgp.RandomFeatures(8), "gaussian", "requires inducing points.*RandomFeatures.*'smooth'"),
        (rfgp.Vecchia(8), "gaussian", "requires inducing points.*Vecchia"),
        (rfgp.Exact(), "gaussian", "requires inducing points.*Exact.*'smooth'"),
        ({"smooth": POINTS(8), "site": rfgp.SparsePrecision()}, "gaussian", "SparsePrecision.*'site'"),
        (POINTS(8), "student-t", "requires a Gaussian likelihood"),
    ],
)
def test_models_without_bounds_are_refused(approximation, likelihood, message):
    gp = rfgp.GP(KERNELS["with finite terms"], likelihood, approximation, seed=0).condition(*data())
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        gp.evidence_bounds()


def test_bounds_require_rows(tmp_path):
    gp = model("one")
    with pytest.raises(rfgp.NotFittedError):
        gp.evidence_bounds()
    gp.condition(*data()).save(tmp_path / "m", data=False)
    with pytest.raises(rfgp.NotFittedError, match="evidence_bounds"):
        rfgp.load(tmp_path / "m").evidence_bounds()
