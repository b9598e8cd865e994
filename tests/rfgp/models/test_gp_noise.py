"""Noise with a kernel of its own: against the kernel of the function, dense algebra, and a noise that is planted."""

import pickle

import numpy as np
import pytest
import torch

import rfgp
from rfgp import kernels as k
from rfgp.likelihoods import Heteroscedastic

N = 60
SMOOTH = k.Matern("a", nu=1.5, name="smooth")
KERNEL = SMOOTH + k.Linear("b", name="slope") + k.Group("site", name="site")
NEIGHBORS = rfgp.Vecchia(8)
SPARSE = {"site": rfgp.SparsePrecision(), "smooth": rfgp.Exact()}


def data(seed=3, n=N):
    rng = np.random.default_rng(seed)
    X = {"a": rng.uniform(0, 6, n), "b": rng.normal(size=n), "site": rng.choice(list("abcd"), n)}
    return X, np.sin(X["a"]) + 0.2 * np.exp(0.5 * X["b"]) * rng.normal(size=n)


def model(kernel, noise, approximation="auto", **options):
    return rfgp.GP(kernel, Heteroscedastic(kernel=noise), approximation, seed=0, **options)


def noise_variance(gp, X):
    p = gp.predict(X)
    return p.observed().variance - p.variance


@pytest.mark.parametrize(
    "approximation",
    ["auto", rfgp.Exact(), rfgp.RandomFeatures(8), rfgp.InducingPoints(10), NEIGHBORS, SPARSE],
    ids=repr,
)
def test_equal_kernels_are_that_of_the_function(approximation):
    X, y = data()
    start = {"noise.smooth.lengthscale": 2.0, "noise.site.outputscale": 0.7, "noise.slope.variance": 0.3}
    expected = model(KERNEL, None, approximation, start=start).condition(X, y)
    if isinstance(approximation, dict):
        approximation = approximation | {f"noise.{name}": one for name, one in approximation.items()}
    found = model(KERNEL, KERNEL, approximation, start=start).condition(X, y)
    assert list(found.hyperparameters.quantities) == list(expected.hyperparameters.quantities)
    for gp in (found, expected):
        gp.log_marginal_likelihood().backward()
    assert found.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood().item(), abs=1e-8)
    for name, raw in expected.hyperparameters.raw.items():
        np.testing.assert_allclose(found.hyperparameters.raw[name].grad, raw.grad, atol=1e-8)
    for function in (noise_variance, lambda gp, X: gp.predict(X).mean, lambda gp, X: gp.predict(X).std):
        np.testing.assert_allclose(function(found, X), function(expected, X), atol=1e-8)


def test_the_bound_is_that_of_dense_algebra():
    X, y = data(n=30)
    own = k.RBF("b", lengthscale=0.8) + 0.5 * k.Group("site")
    gp = model(SMOOTH, own, rfgp.Exact(), standardize=False, start={"mean": 0.1}).condition(X, y)
    latent = gp.state.process.at(gp.state.points(X)[0])
    found = {name: gp.hyperparameters[name].detach() for name in gp.hyperparameters.names}
    of_noise = {name.removeprefix("noise."): value for name, value in found.items() if name.startswith("noise.")}
    of_function = {name: value for name, value in found.items() if name.startswith("smooth.")}
    with torch.no_grad():
        mean, covariance = latent.mean()[:, 0], latent.covariance()
        g, of_g = latent.noise.mean()[:, 0], latent.noise.covariance()
        square = (torch.tensor(y) - 0.1 - mean).square() + covariance.diagonal()
        share = square * (of_g.diagonal() / 2 - g).exp() / found["noise"]
        bound = -0.5 * ((2 * torch.pi * found["noise"]).log() + g + share).sum()
        priors = SMOOTH.matrix(X, values=of_function), own.matrix(X, values=of_noise)
        for m, c, prior in zip((mean, g), (covariance, of_g), priors, strict=True):
            jitter = 1e-9 * torch.eye(30)
            posterior = torch.distributions.MultivariateNormal(m, c + jitter)
            bound -= torch.distributions.kl_divergence(
                posterior, torch.distributions.MultivariateNormal(0 * m, prior + jitter)
            )
    assert gp.log_marginal_likelihood().item() == pytest.approx(bound.item(), abs=1e-4)


@pytest.mark.parametrize("approximation", [rfgp.RandomFeatures(16), rfgp.InducingPoints(20)], ids=repr)
def test_noise_of_another_column_is_recovered(approximation):
    rng = np.random.default_rng(5)
    X = {"t": rng.uniform(0, 6, 300), "u": rng.uniform(-2, 2, 300)}
    y = np.sin(X["t"]) + 0.1 * np.exp(0.8 * X["u"]) * rng.normal(size=300)
    gp = model(k.RBF("t"), k.RBF("u"), approximation).fit(X, y)
    new = {"t": np.linspace(0, 6, 9), "u": np.linspace(-1.8, 1.8, 9)}
    ratio = np.sqrt(noise_variance(gp, new)) / (0.1 * np.exp(0.8 * new["u"]))
    assert 0.8 < ratio.min() < ratio.max() < 1.25
    np.testing.assert_allclose(noise_variance(gp, new | {"t": new["t"][::-1]}), noise_variance(gp, new), rtol=1e-6)
    assert np.abs(gp.predict(new).mean - np.sin(new["t"])).max() < 0.1


def test_terms_of_the_noise_have_approximations_of_their_own():
    X, y = data()
    chosen = {"smooth": rfgp.RandomFeatures(4), "noise.rbf(b)": rfgp.InducingPoints(7)}
    gp = model(SMOOTH, k.RBF("b") + k.Group("site"), chosen).condition(X, y)
    found = {name: report.approximation for name, report in gp.terms.items()}
    assert found == chosen | {"noise.group(site)": rfgp.Exact()}
    assert list(gp.predict(X).terms) == ["smooth"]
    changed = gp.with_approximation({"noise.rbf(b)": rfgp.Exact()})
    assert changed.terms["noise.rbf(b)"].approximation == rfgp.Exact()
    assert changed.terms["smooth"].approximation == chosen["smooth"]
    assert {report.approximation for report in gp.exact().terms.values()} == {rfgp.Exact()}
    only = model(k.Linear("a"), k.RBF("b"), rfgp.RandomFeatures(5)).condition(X, y)
    assert only.terms["noise.rbf(b)"].approximation == rfgp.RandomFeatures(5)
    assert only.terms["linear(a)"].approximation == rfgp.Exact()


@pytest.mark.parametrize("learns", [True, False])
def test_points_of_the_noise_are_learned_on_demand(learns):
    X, y = data()
    points = rfgp.InducingPoints(4, learn_locations=learns)
    gp = model(SMOOTH, k.RBF("b", lengthscale=1.0), {"noise.rbf(b)": points}).condition(X, y)
    before = gp.spec.noise_process.term_priors[0].points
    gp.fit(X, y, fixed="noise.rbf(b).lengthscale")
    assert torch.allclose(gp.spec.noise_process.term_priors[0].points, before) != learns


def test_new_levels_of_the_noise_are_learned():
    X, y = data()
    gp = model(SMOOTH, k.Group("site"), start={"noise.group(site).outputscale": 1.0}).condition(X, y)
    new = {name: values[:6] for name, values in X.items()} | {"site": np.array(["z"] * 6)}
    before = noise_variance(gp, new)
    gp.update(new, y[:6] + np.array([5.0, -5.0] * 3))
    assert (noise_variance(gp, new) > 2 * before).all()


def test_starts_and_pickles_keep_the_kernel_of_the_noise():
    X, y = data()
    gp = model(SMOOTH, 0.3 * k.RBF("b", lengthscale=1.5), start={"noise": 0.1}).condition(X, y)
    found = {name: gp.hyperparameters[f"noise.rbf(b).{name}"].item() for name in ("outputscale", "lengthscale")}
    assert found == pytest.approx({"outputscale": 0.3, "lengthscale": 1.5})
    again = pickle.loads(pickle.dumps(gp))
    np.testing.assert_array_equal(noise_variance(again, X), noise_variance(gp, X))
    fitted = gp.fit(X, y, fixed="noise.*").hyperparameters
    assert fitted["noise.rbf(b).lengthscale"].item() == pytest.approx(1.5)


def test_terms_of_the_noise_count_in_the_memory():
    X, y = data()
    each = model(SMOOTH, None).condition(X, y).terms["smooth"].cost.memory
    assert len(model(SMOOTH, k.RBF("b"), memory=2.1 * each).condition(X, y).terms) == 2
    with pytest.raises(rfgp.InvalidArgumentError, match="must fit into"):
        model(SMOOTH, k.RBF("b"), memory=1.9 * each).condition(X, y)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: rfgp.GP(SMOOTH, Heteroscedastic(kernel="rbf")), "kernel of the noise must be a kernel"),
        (lambda: rfgp.GP("rbf", Heteroscedastic(kernel=SMOOTH)), "kernel must be a kernel"),
        (lambda: model(SMOOTH.named("noise.a"), k.RBF("b")), "must not begin with 'noise'"),
        (lambda: model(SMOOTH, k.RBF("b"), {"noise.a": rfgp.Exact()}), "no term 'noise.a'"),
        (lambda: model(SMOOTH, k.RBF("b"), rfgp.Chebyshev()), "cannot be used for the term 'smooth'"),
        (lambda: model(SMOOTH, k.RBF("b"), start={"lengthscale": 1.0}), "one hyperparameter"),
        (lambda: model(SMOOTH, k.RBF("nothing")), "no column 'nothing'"),
    ],
)
def test_invalid_kernels_of_the_noise_are_refused(build, message):
    with pytest.raises(rfgp.RfgpError, match=message):
        build().condition(*data())


@pytest.mark.parametrize("fixed", ["rbf(a).lengthscale", "*.lengthscale"])
@pytest.mark.parametrize("name", ["bernoulli", "heteroscedastic"])
def test_fixed_values_stay_after_a_cheaper_first_fit(name, fixed):
    X, y = data()
    y, options = (y > 0, {"inference": "variational"}) if name == "bernoulli" else (y, {})
    gp = rfgp.GP(k.RBF("a", lengthscale=3.0), name, rfgp.Exact(), seed=0, **options)
    assert gp.fit(X, y, fixed=fixed).hyperparameters["rbf(a).lengthscale"].item() == pytest.approx(3.0)
