"""Uncertain hyperparameters: the design, integrals against quadrature by numpy, files, options and refusals."""

import itertools

import numpy as np
import pytest
import torch
from dense import DenseGP
from refusals import refused
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp.fitting.integrated import design
from rfgp.parameters import BoundaryAvoiding
from rfgp.sklearn import GPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
INTEGRATED = {"approximation": rfgp.Exact(), "hyperparameter_posterior": "integrated", "seed": 0}
NEW = np.linspace(-3, 3, 13)[:, None]


def series(count=20, noise=0.3, seed=0):
    """Return rows and targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, 1))
    return X, 1 + np.sin(2 * X[:, 0]) + noise * rng.standard_normal(count)


def rbf(A, B, lengthscale):
    return np.exp(-0.5 * ((A[:, None] - B[None]) / lengthscale).sum(-1) ** 2)


def dense(X, y, lengthscale, outputscale, noise, mean):
    every = np.concatenate([X, NEW])
    kernel = outputscale * rbf(every, every, lengthscale)
    return DenseGP({"rbf": kernel}, y, np.full(len(y), noise), mean)


# --- the design ------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 7, 13, 14, 16, 17, 31])
def test_design_integrates_moments_of_a_standard_normal(m):
    points, weights = design(m)
    assert len(points) <= 60
    assert not points[0].any()
    assert weights.min() > 0
    np.testing.assert_allclose(weights.sum(), 1)
    np.testing.assert_allclose(weights @ points, 0, atol=1e-12)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(m), atol=1e-12)
    if m <= 16:
        np.testing.assert_allclose(np.einsum("n,ni,nj,nk", weights, points, points, points), 0, atol=1e-12)


# --- integrals -------------------------------------------------------------------------------------


def test_normal_posterior_of_the_mean_is_integrated_exactly():
    X, y = series()
    start = {"lengthscale": 0.7, "outputscale": 1.0, "noise": 0.1}
    gp = rfgp.GP(k.RBF(), start=start, **INTEGRATED).fit(X, y, fixed=tuple(start))
    nodes = np.polynomial.hermite_e.hermegauss(5)[1] / np.sqrt(2 * np.pi)
    np.testing.assert_allclose([weight for weight, _ in gp.members], np.sort(nodes)[::-1], rtol=1e-4)
    every = np.concatenate([X, NEW])
    with_mean = dense(X, y, 0.7, 1.0, 0.1, y.mean())
    with_mean.priors["mean"] = np.full((len(every), len(every)), y.var(ddof=1))  # the prior is N(mean, variance) of y
    p = gp.predict(NEW)
    np.testing.assert_allclose(p.mean, with_mean.mean_at(), rtol=1e-6)
    np.testing.assert_allclose(p.variance, np.diag(with_mean.covariance()), rtol=1e-5)
    posterior = gp.hyperparameters.posterior()
    precision = np.ones(len(X)) @ dense(X, y, 0.7, 1.0, 0.1, 0.0).inverse
    variance = 1 / (precision.sum() + 1 / y.var(ddof=1))
    assert posterior.means[0] == pytest.approx(variance * (precision @ y + y.mean() / y.var(ddof=1)), rel=1e-2)
    assert posterior.deviations[0] == pytest.approx(np.sqrt(variance), rel=1e-4)
    assert posterior.names == ("mean",)
    assert posterior.quantiles[0][2] == pytest.approx(posterior.means[0] + 1.645 * np.sqrt(variance), abs=0.05)


def log_priors(X, y):
    """Return log densities of the default priors of logarithms: around 1 deviation, and 0.1 variances of y."""
    scale, variance = X.std(ddof=1), y.var(ddof=1)

    def log_prior(lengthscale, noise):
        of_length = stats.norm.logpdf(np.log(lengthscale / scale), 0, 1.5)
        return of_length + stats.norm.logpdf(np.log(noise / variance), np.log(0.1), 2.0)

    return log_prior


def test_two_hyperparameters_agree_with_quadrature():
    X, y = series(25)
    start = {"outputscale": 1.0, "mean": 1.0}
    gp = rfgp.GP(k.RBF(), start=start, **INTEGRATED).fit(X, y, fixed=tuple(start))
    log_prior, logs, moments, at = log_priors(X, y), [], [], []
    for length, noise in itertools.product(np.linspace(-3, 4, 60), np.linspace(-7, 2, 60)):
        model = dense(X, y, np.exp(length), 1.0, np.exp(noise), 1.0)
        logs.append(model.log_marginal_likelihood() + log_prior(np.exp(length), np.exp(noise)))
        moments.append((model.mean_at(), np.diag(model.covariance())))
        at.append((length, noise))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    means, variances = np.array(moments).transpose(1, 0, 2)
    mean = weights @ means
    deviation = np.sqrt(weights @ (variances + (means - mean) ** 2))
    p = gp.predict(NEW)
    assert np.abs((p.mean - mean) / deviation).max() < 0.1
    np.testing.assert_allclose(p.std, deviation, rtol=0.05)
    posterior, at = gp.hyperparameters.posterior(), np.array(at)
    expected = np.sqrt(weights @ (at - weights @ at) ** 2)
    np.testing.assert_allclose(posterior.raw_deviations, expected, rtol=0.15)
    np.testing.assert_allclose(np.log([q[1] for q in posterior.quantiles]), weights @ at, atol=0.2)


def test_log_density_is_that_of_numpy_with_gradient():
    X, y = series()
    start = {"lengthscale": 0.7, "outputscale": 2.0, "noise": 0.1, "mean": 1.2}
    priors = {"outputscale": torch.distributions.Gamma(*torch.tensor([2.0, 1.0]).double()), "noise": BoundaryAvoiding()}
    gp = rfgp.GP(k.RBF(), start=start, priors=priors, approximation=rfgp.Exact(), seed=0).condition(X, y)
    expected = dense(X, y, 0.7, 2.0, 0.1, 1.2).log_marginal_likelihood() + log_priors(X, y)(0.7, 0.1)
    expected += stats.gamma(2.0).logpdf(2.0) + np.log(2.0)  # the Jacobian of the logarithm
    expected += stats.norm.logpdf((1.2 - y.mean()) / y.std(ddof=1))
    x = gp.hyperparameters.unconstrained()
    assert gp.log_density(x).item() == pytest.approx(expected, rel=1e-7)
    assert torch.autograd.gradcheck(gp.log_density, (x.requires_grad_(),))
    given = gp.hyperparameters.at(x)
    assert {name: value.item() for name, value in given.items()} == pytest.approx(
        {"rbf.lengthscale": 0.7, "rbf.outputscale": 2.0, "noise": 0.1, "mean": 1.2}
    )
    part = gp.hyperparameters.unconstrained(fixed=("noise", "mean"))
    without = stats.norm.logpdf(np.log(0.1 / y.var(ddof=1)), np.log(0.1), 2.0) + stats.norm.logpdf(
        (1.2 - y.mean()) / y.std(ddof=1)
    )
    assert gp.log_density(part, fixed=("noise", "mean")).item() == pytest.approx(expected - without, rel=1e-7)


def test_density_without_a_factor_is_zero():
    X = np.repeat(np.linspace(0, 1, 5), 4)[:, None]
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).condition(X, np.arange(20.0))
    x = gp.hyperparameters.unconstrained()
    x[2] = -800.0  # the noise of equal rows
    assert gp.log_density(x) == -np.inf


def test_sparse_and_log_normal_priors_are_densities_of_logarithms():
    X, y = series()
    X = np.concatenate([X, np.random.default_rng(1).uniform(size=(20, 3))], axis=1)
    sparse = {"lengthscale": rfgp.priors.SparseLengthscales(), "outputscale": rfgp.priors.LogNormalVariance()}
    gp = rfgp.GP(k.RBF(), priors=sparse, **INTEGRATED).fit(X, y)
    posterior = gp.hyperparameters.posterior()
    assert {*posterior.names, *posterior.at_mode} == {
        *(f"rbf.lengthscale[{i}]" for i in range(4)),
        *("rbf.outputscale", "noise", "mean"),
    }
    assert np.isfinite(gp.predict(X).std).all()


# --- hyperparameters that stay at the mode ---------------------------------------------------------


def test_hyperparameters_without_curvature_stay_at_the_mode():
    X, y = series(40)
    group = np.arange(40) % 4
    table = {"x": X[:, 0], "g": list("abcd" * 10)}
    sharp = torch.distributions.LogNormal(np.log(1e-3), 0.3)  # the likelihood rises from here, and is convex
    gp = rfgp.GP(k.RBF("x") + k.Group("g"), priors={"group(g).outputscale": sharp}, **INTEGRATED)
    gp = gp.fit(table, y + 3.0 * group)
    assert gp.hyperparameters.posterior().at_mode == ("group(g).outputscale",)
    assert "at the mode" in str(gp.hyperparameters.posterior())


class Growing:
    """A prior that drives a value to its upper bound."""

    def log_prob(self, value):
        return 50 * value.log()


def test_hyperparameters_at_a_bound_stay_there():
    X, y = series()
    gp = rfgp.GP(k.RBF(), priors={"outputscale": Growing()}, **INTEGRATED).fit(X, y)
    assert gp.hyperparameters.posterior().at_mode == ("rbf.outputscale",)
    _, high = gp.hyperparameters.quantities["rbf.outputscale"].bounds
    assert gp.hyperparameters.outputscale.item() == pytest.approx(high.item() * y.var(ddof=1), rel=1e-3)


def test_fixed_hyperparameters_are_not_integrated():
    X, y = series()
    one = rfgp.GP(k.RBF(), **INTEGRATED).fit(X, y, fixed=("lengthscale", "noise", "mean"))
    assert one.hyperparameters.posterior().names == ("rbf.outputscale",)
    assert len(one.members) == 5
    none = rfgp.GP(k.RBF(), mean="zero", **INTEGRATED).fit(X, y, fixed="*")
    assert none.members == ()
    zero = rfgp.GP(k.RBF(), mean="zero", **INTEGRATED).fit(X, y)
    assert "mean" not in zero.hyperparameters.posterior().names


# --- options, files and other rows -----------------------------------------------------------------


def test_integrated_models_are_saved_and_updated(tmp_path):
    X, y = series()
    gp = rfgp.GP(k.Matern(nu=2.5), **INTEGRATED).fit(X, y)
    gp.save(tmp_path / "model.safetensors", data=True)
    loaded = rfgp.load(tmp_path / "model.safetensors")
    assert loaded.hyperparameters.posterior() == gp.hyperparameters.posterior()
    assert loaded.spec.options.hyperparameter_posterior == "integrated"
    for model in (gp, loaded):
        model.update([[2.5]], [0.0])
    np.testing.assert_allclose(loaded.predict(NEW).std, gp.predict(NEW).std, rtol=1e-9)
    parts = [(weight, member.predict(NEW).mean) for weight, member in gp.members]
    np.testing.assert_allclose(gp.predict(NEW).mean, sum(weight * mean for weight, mean in parts))
    assert np.isfinite(gp.leave_one_out().log_prob).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda **more: rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0, **more),
        lambda **more: rfgp.ExactGP(**more),
        lambda **more: rfgp.SparseSpectrumGP(num_frequencies=32, seed=0, **more),
        lambda **more: rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(8), seed=0, **more),
        lambda **more: rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.Vecchia(5), seed=0, **more),
        lambda **more: rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.SparsePrecision(), seed=0, **more),
        lambda **more: rfgp.GP(k.RBF(), approximation=rfgp.EquispacedFourier(), seed=0, **more),
    ],
    ids=["exact", "preset", "frequencies", "points", "neighbors", "precision", "equispaced"],
)
def test_auto_integrates_few_rows(make):
    X, y = series(30)
    few = make(hyperparameter_posterior="auto").fit(X, y)
    assert len(few.members) > 10
    point = make().fit(X, y)
    assert point.members == ()
    assert few.predict(NEW).std.mean() > point.predict(NEW).std.mean()
    X, y = series(45)
    assert make(hyperparameter_posterior="auto").fit(X, y).members == ()


def test_lattices_are_those_of_each_lengthscale(tmp_path):
    X, y = series(25)
    exact = rfgp.GP(k.RBF(), **INTEGRATED).fit(X, y).predict(NEW)
    gp = rfgp.GP(k.RBF(), **INTEGRATED | {"approximation": rfgp.EquispacedFourier()}).fit(X, y)
    found = gp.predict(NEW)
    np.testing.assert_allclose(found.std, exact.std, rtol=0.05)
    assert np.abs((found.mean - exact.mean) / exact.std).max() < 0.1
    gp.save(tmp_path / "model.safetensors")
    np.testing.assert_allclose(rfgp.load(tmp_path / "model.safetensors").predict(NEW).std, found.std, rtol=1e-9)


def test_other_likelihoods_keep_the_point_with_auto():
    X, y = series(30)
    gp = rfgp.GP(k.RBF(), "poisson", rfgp.Exact(), hyperparameter_posterior="auto", seed=0)
    assert gp.fit(X, np.round(np.exp(y))).members == ()


def test_estimators_pass_the_option():
    X, y = series()
    model = GPRegressor(k.RBF(), hyperparameter_posterior="integrated", random_state=0).fit(X, y)
    assert len(model.gp_.members) > 10


def test_end_of_the_time_keeps_the_point_fit():
    X, y = series()
    gp = rfgp.GP(k.RBF(), time_limit=1e-6, **INTEGRATED).fit(X, y)
    assert gp.members == ()
    assert "not integrated" in gp.fit_report.message


def test_noise_free_targets_have_finite_predictions():
    X = np.linspace(-2, 2, 15)[:, None]
    gp = rfgp.GP(k.RBF(), **INTEGRATED).fit(X, np.exp(-(X[:, 0] ** 2)))
    p = gp.predict(NEW)
    assert np.isfinite(p.mean).all()
    assert (p.std > 0).all()


@pytest.mark.slow
def test_largest_model_of_an_average_is_integrated():
    X, y = series()
    point, gp = (rfgp.GP(seed=0, hyperparameter_posterior=kind).fit(X, y) for kind in ("point", "integrated"))
    weights = [weight for weight, _ in point.members]
    posterior = gp.hyperparameters.posterior()
    assert len(gp.members) == len(posterior.weights) + len(weights) - 1
    assert sum(weight for weight, _ in gp.members) == pytest.approx(1)
    assert np.isfinite(gp.predict(NEW).observed().interval(0.9)).all()


# --- refusals --------------------------------------------------------------------------------------


def count_model(X, y):
    return rfgp.GP(k.RBF(), "poisson", rfgp.Exact(), hyperparameter_posterior="integrated").fit(X, np.round(y**2))


def test_models_that_cannot_be_integrated_are_refused():
    X, y = series()
    point = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(X, y)
    wrong = rfgp.InvalidArgumentError
    refused(lambda: rfgp.GP(hyperparameter_posterior="mean"), wrong, "hyperparameter_posterior")
    refused(lambda: count_model(X, y), wrong, "Gaussian likelihood")
    refused(lambda: rfgp.GP(k.RBF(), **INTEGRATED).fit(X, np.stack([y, -y], 1)), wrong, "one output")
    refused(lambda: point.log_density([0.0]), wrong, "shape (4,)")
    refused(lambda: point.hyperparameters.posterior(), rfgp.NotFittedError, "hyperparameter_posterior='integrated'")
    blocks = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(8), hyperparameter_posterior="integrated", seed=0)
    refused(lambda: blocks.fit(rfgp.tables.Batches(lambda: iter([(X, y)]))), wrong, "in blocks")
