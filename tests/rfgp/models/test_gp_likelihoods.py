"""Likelihoods of terms: every approximation that is exact in a limit against exact covariance matrices."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k

N = 60
RNG = np.random.default_rng
KERNEL = (
    k.Matern("a", nu=1.5, lengthscale=1.3, name="smooth")
    + k.Linear("b", origin=0.0, name="slope")
    + k.Group("site", name="site")
)
START = {"smooth.outputscale": 0.5, "slope.variance": 0.2, "site.outputscale": 0.3, "mean": 0.2}


def data(likelihood, seed=3):
    rng = RNG(seed)
    X = {"a": rng.uniform(0, 6, N), "b": rng.normal(size=N), "site": rng.choice(list("abcd"), N)}
    f = np.sin(X["a"]) + 0.4 * X["b"] + 0.5 * (X["site"] == "a")
    y = {
        "bernoulli": lambda: (rng.uniform(size=N) < 1 / (1 + np.exp(-2 * f))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(f)).astype(float),
        "negative-binomial": lambda: rng.poisson(np.exp(f) * rng.gamma(3, 1 / 3, N)).astype(float),
        "gamma": lambda: np.exp(f) * rng.gamma(5, 0.2, N),
        "student-t": lambda: f + 0.1 * rng.standard_t(4, N),
        "heteroscedastic": lambda: f + 0.1 * np.exp(0.5 * X["b"]) * rng.normal(size=N),
        "categorical": lambda: (f > 0.2).astype(int) + (f > 0.9),
    }
    return X, y[likelihood]()


LIKELIHOODS = [
    *(
        (name, how)
        for name in ("bernoulli", "poisson", "negative-binomial", "gamma")
        for how in ("laplace", "variational")
    ),
    ("student-t", "laplace"),
    ("heteroscedastic", "variational"),
]
APPROXIMATIONS = {
    "inducing": ({"smooth": rfgp.InducingPoints(100, method="sor")}, 1e-4),
    "neighbours": ({"smooth": rfgp.Vecchia(100)}, 2e-2),
    "residual": ({"smooth": rfgp.InducingPoints(8, residual=rfgp.Vecchia(100))}, 1e-4),
    "sparse": ({"site": rfgp.SparsePrecision(), "smooth": rfgp.Exact()}, 1e-5),
}


@pytest.mark.thinned(3, slow=2)
@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize(("likelihood", "inference"), LIKELIHOODS)
def test_approximations_agree_with_exact_covariances(likelihood, inference, approximation):
    (X, y), (chosen, atol) = data(likelihood), APPROXIMATIONS[approximation]
    start = START if likelihood != "heteroscedastic" else {**START, "noise.smooth.lengthscale": 2.0}
    options = {"likelihood": likelihood, "inference": inference, "start": start, "seed": 0}
    exact = rfgp.GP(KERNEL, approximation=rfgp.Exact(), **options).condition(X, y)
    gp = rfgp.GP(KERNEL, approximation=chosen, **options).condition(X, y)
    expected = exact.log_marginal_likelihood().item()
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, abs=30 * atol)
    found, other = gp.predict(X), exact.predict(X)
    np.testing.assert_allclose(found.mean, other.mean, atol=atol)
    if approximation != "inducing":
        np.testing.assert_allclose(found.std, other.std, atol=atol)
    for name in found.terms:
        np.testing.assert_allclose(found.terms[name].mean, other.terms[name].mean, atol=atol)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "categorical"])
@pytest.mark.parametrize("approximation", ["auto", rfgp.RandomFeatures(16)])
def test_fits_order_the_observations(likelihood, approximation):
    X, y = data(likelihood)
    gp = rfgp.GP(KERNEL, likelihood, approximation, seed=0).fit(X, y)
    observed = gp.predict(X).observed()
    if likelihood == "categorical":
        assert np.mean(np.argmax(observed.probabilities, axis=1) == y) > 0.6
    else:
        assert np.corrcoef(observed.mean, y)[0, 1] > 0.5
    with pytest.raises(rfgp.InvalidArgumentError, match="A term has no observations of its own"):
        gp.predict(X).terms["smooth"].observed().sample(1)


def test_exposures_and_weights_reach_the_terms():
    X, y = data("poisson")
    exposure = RNG(1).uniform(0.5, 2.0, N)
    options = {"likelihood": "poisson", "start": START, "seed": 0}
    plain = rfgp.GP(KERNEL, **options).condition(X, y)
    exposed = rfgp.GP(KERNEL, **options).condition(X, y, exposure=exposure)
    assert np.abs(plain.predict(X).mean - exposed.predict(X).mean).max() > 0.01
    twice = {key: np.concatenate([value, value]) for key, value in X.items()}
    weighted = rfgp.GP(KERNEL, **options).condition(X, y, sample_weight=np.full(N, 2.0))
    repeated = rfgp.GP(KERNEL, **options).condition(twice, np.concatenate([y, y]))
    np.testing.assert_allclose(weighted.predict(X).mean, repeated.predict(X).mean, atol=1e-5)
