"""Priors in standardised units: densities, units, files, and searches under sparse ones."""

import numpy as np
import pytest
import torch
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp import priors

SPARSE = {
    "variance": priors.SparseVariances(),
    "lengthscale": priors.SparseLengthscales(),
    "outputscale": priors.LogNormalVariance(),
}
EXACT = {"approximation": rfgp.Exact(), "seed": 0}


def wide(kind, n=100, d=120, seed=0):
    rng = np.random.default_rng(seed)
    X, Z = rng.uniform(size=(n, d)), rng.uniform(size=(500, d))
    f = {
        "linear": lambda x: 3 * x[:, 0] - 2 * x[:, 1],
        "curved": lambda x: np.sin(6 * x[:, 0]) + 4 * (x[:, 1] - 0.5) ** 2,
    }
    y = f[kind](X)
    return X, y + 0.3 * y.std() * rng.normal(size=n), Z, f[kind](Z)


def r2(gp, Z, f):
    return 1 - np.mean((gp.predict(Z).mean - f) ** 2) / f.var()


@pytest.mark.parametrize("scale", [0.03, 1.0])
@pytest.mark.parametrize("d", [1, 25])
def test_density_is_half_cauchy_of_each_effect(scale, d):
    value = torch.from_numpy(np.random.default_rng(0).uniform(0.1, 10, d))
    law = stats.halfcauchy(scale=scale / np.sqrt(d))
    np.testing.assert_allclose(priors.SparseLengthscales(scale).log_prob(value), law.logpdf(1 / value.numpy()))
    np.testing.assert_allclose(priors.SparseVariances(scale).log_prob(value), law.logpdf(np.sqrt(value.numpy())))


@pytest.mark.parametrize("prior", [priors.SparseLengthscales(0.5), priors.SparseVariances(0.5)], ids=repr)
def test_density_of_logarithm_integrates_to_one(prior):
    grid = np.linspace(-25, 25, 5001)
    density = [float(prior.log_prob_of_logarithm(torch.tensor(prior.value(e))).exp()) for e in np.exp(grid)]
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-6)


def test_density_of_a_variance_is_that_of_its_logarithm():
    value = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    expected = stats.norm(np.log(2.0), 0.7).logpdf(np.log(value.numpy()))
    np.testing.assert_allclose(priors.LogNormalVariance(2.0, 0.7).log_prob(value), expected)


def test_density_of_a_deviation_is_half_normal():
    value = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    expected = stats.halfnorm(scale=2.0).logpdf(np.sqrt(value.numpy()))
    np.testing.assert_allclose(priors.HalfNormalDeviation(2.0).log_prob(value), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: priors.SparseVariances(0.0),
        lambda: priors.SparseLengthscales("a"),
        lambda: priors.LogNormalVariance(1, -1),
    ],
)
def test_numbers_that_are_not_positive_are_refused(make):
    with pytest.raises(rfgp.InvalidArgumentError, match="positive"):
        make()


def test_units_of_columns_and_target_do_not_matter():
    X, y, Z, _ = wide("linear", d=12)
    units = 2.0 ** np.random.default_rng(1).integers(-9, 9, 12)
    one = rfgp.GP(k.Linear() + k.RBF(), priors=SPARSE, **EXACT).fit(X, y)
    other = rfgp.GP(k.Linear() + k.RBF(), priors=SPARSE, **EXACT).fit(X * units, 1024 * y)
    np.testing.assert_allclose(other.predict(Z * units).mean / 1024, one.predict(Z).mean, rtol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "curved"])
@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_wide_tables_are_learned_from_few_rows(kind):
    X, y, Z, f = wide(kind)
    gp = rfgp.GP(k.Linear() + k.RBF(), priors=SPARSE, **EXACT).fit(X, y)
    low, high = gp.predict(Z).observed().interval(0.95)
    new = f + 0.3 * f.std() * np.random.default_rng(9).normal(size=len(f))
    assert r2(gp, Z, f) > {"linear": 0.98, "curved": 0.95}[kind]
    assert 0.9 < np.mean((low <= new) & (new <= high)) < 0.99
    inverse = X.std(0) / gp.hyperparameters["rbf.lengthscale"].detach().numpy()
    slopes = X.std(0) * gp.hyperparameters["linear.variance"].detach().sqrt().numpy() / y.std()
    assert max(inverse[2:].max(), slopes[2:].max()) < 0.05


def test_many_columns_mislead_a_search_without_priors():
    X, y, Z, f = wide("linear")
    with pytest.warns(rfgp.OverfittingWarning):
        gp = rfgp.GP(k.RBF(), **EXACT).fit(X, y)
    assert r2(gp, Z, f) < 0.9


@pytest.mark.parametrize("approximation", [rfgp.RandomFeatures(64), rfgp.Vecchia(10)], ids=repr)
@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_other_approximations_take_sparse_priors(approximation):
    X, y, Z, f = wide("curved", n=300, d=20)
    chosen = {name: SPARSE[name] for name in ("lengthscale", "outputscale")}
    gp = rfgp.GP(k.RBF(), approximation=approximation, priors=chosen, seed=0).fit(X, y)
    assert r2(gp, Z, f) > 0.8


def test_slopes_of_several_columns_are_searched():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    gp = rfgp.GP(k.Linear(), **EXACT).fit(X, 3 * X[:, 0] + 0.1 * rng.normal(size=60))
    variance = gp.hyperparameters.variance.detach().numpy()
    assert variance[0] > 100 * variance[1:].max()


def test_files_keep_priors(tmp_path):
    X, y, Z, _ = wide("linear", n=30, d=4)
    gp = rfgp.GP(k.Linear() + k.RBF(), priors=SPARSE, **EXACT).condition(X, y)
    gp.save(tmp_path / "gp.safetensors", data=True)
    loaded = rfgp.load(tmp_path / "gp.safetensors")
    np.testing.assert_array_equal(loaded.predict(Z).mean, gp.predict(Z).mean)
    assert loaded.state.hyperparameters.space.hyperpriors == gp.state.hyperparameters.space.hyperpriors
