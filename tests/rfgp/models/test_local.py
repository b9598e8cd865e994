"""Tables with a local process, as users hold them."""

import warnings

import numpy as np
import pytest
from stationary import model_of

import rfgp

FEATURES = rfgp.RandomFeatures(6)


def near(count, condition_on="auto"):
    return rfgp.Vecchia(count, condition_on=condition_on)


def residual(count, condition_on="auto"):
    return rfgp.InducingPoints(9, residual=near(count, condition_on))


KINDS = {
    "features": lambda count: ("gaussian", FEATURES),
    "exact": lambda count: ("gaussian", rfgp.Exact()),
    "exact and local": lambda count: ("gaussian", rfgp.Exact(), "matern12"),
    "local": lambda count: ("matern32", near(count)),
    "latent": lambda count: ("matern32", near(count, "latent")),
    "features and latent": lambda count: ("gaussian", FEATURES, "matern32", near(count, "latent")),
    "features and local": lambda count: ("gaussian", FEATURES, "matern52", near(count)),
    "residual": lambda count: ("matern32", residual(count)),
    "latent residual": lambda count: ("matern32", residual(count, "latent")),
    "fast features and local": lambda count: (
        "gaussian",
        rfgp.RandomFeatures(6, coupling="structured"),
        "gaussian",
        near(count),
    ),
}
"""The arguments of a model by its kind, with the number of neighbours."""


def table(n=60, seed=0, outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = np.stack([np.sin(3 * X[:, 0] + j) + 0.3 * np.sign(np.sin(9 * X[:, 1])) for j in range(outputs)], axis=1)
    return X * [1.0, 30.0], 5 + 2 * (y if outputs > 1 else y[:, 0])


def model(kind, num_neighbors=8, **options):
    return model_of(*KINDS[kind](num_neighbors), **options)


def same(a, b, X):
    p, q = a.predict(X), b.predict(X)
    assert np.array_equal(p.mean, q.mean)
    assert np.array_equal(p.variance, q.variance)


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning", "ignore::rfgp.OutlierWarning")  # after 3 iterations
@pytest.mark.parametrize(
    "kind", ["local", "features and local", "latent", "features and latent", "residual", "latent residual"]
)
def test_all_neighbors_match_the_exact_process(kind):
    """With features the twin has the features' covariance: that of a local process of the same rows plus theirs."""
    (X, y), (more, z), new = table(), table(10, seed=1), table(20, seed=2)[0]
    weight = np.random.default_rng(3).integers(1, 4, 60).astype(float)
    gp = model(kind, num_neighbors=100).fit(X, y, sample_weight=weight, max_iterations=3).update(more, z)
    rows, noise = np.concatenate([X, more]), gp.hyperparameters.noise.item()
    K = gp.prior_covariance(np.concatenate([rows, new])).numpy()
    C = K[:70, :70] + noise * np.diag(1 / np.concatenate([weight, np.ones(10)]))
    mean = gp.hyperparameters.mean.item()
    expected = mean + K[70:, :70] @ np.linalg.solve(C, np.concatenate([y, z]) - mean)
    covariance = K[70:, 70:] - K[70:, :70] @ np.linalg.solve(C, K[:70, 70:])
    p = gp.predict(new)
    assert np.allclose(p.mean, expected, rtol=0, atol=1e-7)
    assert np.allclose(p.covariance, covariance, rtol=0, atol=1e-7)
    assert np.allclose(p.variance, covariance.diagonal(), rtol=0, atol=1e-7)


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_targets_without_noise_leave_rounding_no_room():
    """A smooth kernel, and noise at its lower bound: means were off by 3e-5 of the deviation where that was 1e-10."""
    X = np.random.default_rng(3).uniform(-1, 1, (26, 2))
    y = X[:6] @ [1.0, 2.0]
    gp = model_of("gaussian", near(100)).fit(X[:6], y, max_iterations=30)
    K = gp.prior_covariance(X).numpy()
    mean, noise = gp.hyperparameters.mean.item(), gp.hyperparameters.noise.item()
    assert noise < 2e-8 * y.var()
    solved = np.linalg.solve(K[:6, :6] + noise * np.eye(6), y - mean)
    assert np.allclose(gp.predict(X[6:]).mean, mean + K[6:, :6] @ solved, rtol=0, atol=5e-6 * y.std())


def test_the_exact_twin_has_the_sum_of_the_kernels():
    X, y = table()
    gp = model("features and local", lengthscale=1.0, local_lengthscale=0.3).condition(X, y)
    exact = gp.exact()
    h = {name: exact.hyperparameters.value(name).detach().numpy() for name in exact.hyperparameters.names}
    K = h["rbf.outputscale"] * np.exp(-0.5 * square(X / h["rbf.lengthscale"]))
    r = np.sqrt(5 * square(X / h["local.lengthscale"]))
    K += h["local.outputscale"] * (1 + r + r**2 / 3) * np.exp(-r)
    assert np.allclose(exact.prior_covariance(X).numpy(), K, rtol=1e-10)
    same(gp, exact.with_approximation(gp.spec.approximations), X)
    assert {type(term.approximation) for term in model("local").condition(X, y).exact().terms.values()} == {rfgp.Exact}


def square(z):
    return ((z[:, None] - z[None]) ** 2).sum(-1)


def test_the_other_classes_are_members():
    (X, y), new = table(), table(9, seed=1)[0]
    pairs = [
        (rfgp.SparseSpectrumGP(num_frequencies=6, seed=0, local="matern52", num_neighbors=8), "features and local"),
        (rfgp.SparseSpectrumGP(num_frequencies=6, seed=0), "features"),
        (rfgp.ExactGP(local="matern12"), "exact and local"),
        (rfgp.ExactGP(), "exact"),
    ]
    for gp, kind in pairs:
        own = gp.spec.options.approximations  # with the seed of the preset
        same(gp.condition(X, y), model(kind).condition(X, y).with_approximation(own), new)


def test_the_order_of_rows_is_that_of_the_seed():
    (X, y), new = table(), table(9, seed=1)[0]
    gp = model("local", num_neighbors=3).condition(X, y)
    same(gp, model("local", num_neighbors=3).condition(X, y), new)
    other = gp.with_approximation(rfgp.Vecchia(3, seed=1))
    assert gp.log_marginal_likelihood() != other.log_marginal_likelihood()


@pytest.mark.parametrize("kind", ["local", "features and local", "latent", "features and latent", "residual"])
def test_single_precision_is_within_its_bounds(kind):
    """The local process is computed in double precision, features in single: .002 deviations of the target."""
    (X, y), new = table(300), table(50, seed=1)[0]
    near, far = X.astype(np.float32), new.astype(np.float32)
    double, single = (
        model(kind, noise=0.004).condition(a, y.astype(a.dtype)).predict(b)
        for a, b in ((near.astype(float), far.astype(float)), (near, far))
    )
    assert single.mean.dtype == np.float32
    assert np.abs(single.mean - double.mean).max() < 0.002 * y.std()
    assert np.abs(single.std / double.std - 1).max() < 0.02


def test_copies_of_rows_constant_columns_and_no_noise_are_safe():
    X, y = table(80)
    X, y = np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]])
    X = np.concatenate([X, np.ones((100, 1))], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rfgp.RfgpWarning)
        warnings.simplefilter("error", rfgp.JitterWarning)
        gp = model("features and local", noise=1e-6).fit(X, y, fixed=["noise"], max_iterations=5)
    p = gp.predict(X)
    assert np.allclose(p.mean, y, atol=0.05)
    assert (p.variance >= 0).all()
    assert np.isfinite(gp.log_marginal_likelihood().item())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rfgp.Vecchia(0), "num_neighbors"),
        (lambda: rfgp.Vecchia(condition_on="both"), "condition_on"),
        (lambda: rfgp.SparseSpectrumGP(local="cubic"), "local"),
        (lambda: rfgp.SparseSpectrumGP(local_lengthscale=1.0), "second term"),
        (lambda: rfgp.ExactGP(local_outputscale=1.0), "second term"),
    ],
)
def test_wrong_options_are_named(make, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        make()


def test_impossible_options_are_named():
    gp = model("local").condition(*table())
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        gp.sample_functions(2)


@pytest.mark.parametrize("kind", ["local", "features and local", "residual", "latent"])
def test_far_points_are_predicted_until_squares_overflow(kind):
    X, y = table()
    gp = model(kind).condition(X, y).update(np.full((1, 2), 1e95), [5.0])
    p = gp.predict(np.array([[1e90, 0.0], [0.1, 3.0]]))
    assert np.isfinite(p.mean).all()
    assert np.isfinite(p.variance).all()
    assert np.isfinite(gp.update(np.full((1, 2), -1e99), [4.0]).predict(X[:3]).mean).all()
    for call in (gp.predict, lambda new: gp.update(new, [4.0])):
        with pytest.raises(rfgp.DataError, match="must lie within"):
            call(np.full((1, 2), 1e160))


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_no_iterations_are_no_convergence():
    assert not model("local").fit(*table(), max_iterations=0).fit_report.converged
