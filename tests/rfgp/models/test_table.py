import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import rfgp
from rfgp import ExactGP, SparseSpectrumGP, metrics


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    unit = rng.uniform(-1, 1, (n, 3))
    y = 50 + 7 * (np.sin(3 * unit[:, 0]) + unit[:, 1]) + 0.5 * rng.standard_normal(n)
    return unit * [1, 100, 0.01] + [0, 5, 1], y


X, Y = table()
NEW, Y_NEW = table(40, seed=1)


def twin(gp, phi_of):
    """Dense n x n formulas in the user's units, numpy only: log density, latent mean and covariance."""
    h = gp.hyperparameters
    ell, s2, noise, mean = (getattr(h, n).detach().numpy() for n in ("lengthscale", "outputscale", "noise", "mean"))
    phi, new = phi_of(X / ell), phi_of(NEW / ell)
    covariance = s2 * phi @ phi.T + noise * np.eye(len(X))
    density = stats.multivariate_normal(np.full(len(X), mean), covariance).logpdf(Y)
    solved = np.linalg.solve(covariance, s2 * phi @ new.T)
    return density, mean + solved.T @ (Y - mean), s2 * new @ new.T - s2 * new @ phi.T @ solved


@pytest.mark.parametrize("num_frequencies", [5, 200])  # primal and dual
@pytest.mark.parametrize("ard", [True, False])
def test_a_sparse_spectrum_process_equals_its_dense_twin(num_frequencies, ard):
    energy = rfgp.couplings.Energy(weighted=True)
    gp = SparseSpectrumGP(num_frequencies=num_frequencies, coupling=energy, ard=ard, seed=0).condition(X, Y)
    gp.hyperparameters.set(outputscale=30.0, noise=2.0, mean=48.0)
    if ard:
        gp.hyperparameters.set(lengthscale=[0.7, 90.0, 0.008])
    omega, weights = (t.numpy() for t in (gp.feature_map.frequencies.dense(), gp.feature_map.frequencies.weights))

    def phi_of(x):
        angles = x @ omega.T
        root = np.sqrt(weights / num_frequencies)
        return np.concatenate([np.cos(angles) * root, np.sin(angles) * root], 1)

    density, mean, covariance = twin(gp, phi_of)
    p = gp.predict(NEW)
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, rel=1e-8)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(p.covariance, covariance, atol=1e-7)
    np.testing.assert_allclose(p.variance, np.diag(covariance), atol=1e-7)


def test_the_exact_process_against_scikit_learn():
    gp = ExactGP(standardize=False, lengthscale=[0.7, 90.0, 0.008], outputscale=30.0, noise=2.0).condition(X, Y)
    gp.hyperparameters.set(mean=48.0)
    kernel = ConstantKernel(30.0) * RBF([0.7, 90.0, 0.008]) + WhiteKernel(2.0)
    theirs = GaussianProcessRegressor(kernel, optimizer=None).fit(X, Y - 48.0)
    mean, covariance = theirs.predict(NEW, return_cov=True)
    p = gp.predict(NEW)
    np.testing.assert_allclose(p.mean, mean + 48.0, rtol=1e-8)
    np.testing.assert_allclose(p.observed().covariance, covariance, atol=1e-7)
    assert gp.log_marginal_likelihood().item() == pytest.approx(theirs.log_marginal_likelihood(), rel=1e-8)


@pytest.mark.parametrize("make", [ExactGP, lambda **o: SparseSpectrumGP(num_frequencies=30, seed=0, **o)])
def test_standardising_changes_the_units_inside_only(make):
    values = {"lengthscale": [0.7, 90.0, 0.008], "outputscale": 30.0, "noise": 2.0}
    inside, plain = (make(standardize=s, **values).condition(X, Y) for s in (True, False))
    for gp in (inside, plain):
        gp.hyperparameters.set(mean=49.0)
    assert inside.log_marginal_likelihood().item() == pytest.approx(plain.log_marginal_likelihood().item(), rel=1e-8)
    np.testing.assert_allclose(inside.predict(NEW).mean, plain.predict(NEW).mean, rtol=1e-8)
    np.testing.assert_allclose(inside.predict(NEW).covariance, plain.predict(NEW).covariance, atol=1e-7)


@pytest.mark.parametrize("make", [ExactGP, lambda **o: SparseSpectrumGP(num_frequencies=40, seed=0, **o)])
@pytest.mark.parametrize("ard", [True, False])
def test_fitting_finds_the_function_and_the_noise(make, ard):
    gp = make(ard=ard).fit(X, Y)
    assert gp.fit_report.converged
    p = gp.predict(NEW)
    assert metrics.rmse(Y_NEW, p) < 1.2
    assert 0.1 < gp.hyperparameters.noise.item() < 1.0  # 0.25
    score = (Y_NEW - p.mean) / np.sqrt(p.observed().variance)
    assert abs(score).max() < 5
    shape = (3,)
    assert gp.hyperparameters.lengthscale.shape == shape
    if ard:
        lengthscale = gp.hyperparameters.lengthscale.detach().numpy() / X.std(0)
        assert lengthscale[2] > 5 * lengthscale[0]  # the third column does nothing


def test_the_gradient_vanishes_where_the_fit_stops():
    gp = ExactGP().fit(X, Y)
    gp.log_marginal_likelihood().backward()
    for name in ("noise", "rbf/outputscale", "mean"):
        assert abs(gp.hyperparameters.raw[name].grad).max() < 1e-2


def test_a_fit_that_stops_early_says_so():
    with pytest.warns(
        rfgp.ConvergenceWarning, match="stopped after 1 iteration without converging.*the iterations ran out"
    ):
        ExactGP().fit(X, Y, max_iterations=1)


@pytest.mark.slow
def test_many_features_approach_the_exact_process():
    exact = ExactGP().fit(X, Y)
    target = exact.predict(NEW)
    kls = [
        np.mean(
            [
                metrics.kl_divergence(target, exact.with_approximation(rfgp.RandomFeatures(m, seed=s)).predict(NEW))
                for s in range(5)
            ]
        )
        for m in (16, 128, 1024)
    ]
    assert kls[0] > 2 * kls[1] > 4 * kls[2]


def test_snapshots_are_untied():
    gp = SparseSpectrumGP(num_frequencies=20, seed=3).fit(X, Y)
    exact, other = gp.exact(), gp.with_approximation(rfgp.RandomFeatures(30, coupling="iid", seed=4))
    before = exact.predict(NEW).mean
    gp.hyperparameters.set(noise=9.0)
    np.testing.assert_array_equal(exact.predict(NEW).mean, before)
    assert other.hyperparameters.noise.item() != 9.0
    same = gp.with_approximation(gp.spec.approximations)
    np.testing.assert_array_equal(same.predict(NEW).mean, gp.predict(NEW).mean)


@pytest.mark.parametrize("wrap", [np.array, torch.as_tensor, pd.DataFrame])
def test_later_changes_of_data_do_not_reach_the_model(wrap):
    x, y = X.copy(), Y.copy()
    inputs = wrap(x)
    gp = SparseSpectrumGP(num_frequencies=20, seed=0).fit(inputs, torch.as_tensor(y) if wrap is torch.as_tensor else y)
    expected = pickle.loads(pickle.dumps(gp)).update(inputs[:5], y[:5]).predict(NEW).mean
    x[:], y[:] = 0.0, 1.0
    np.testing.assert_array_equal(np.asarray(gp.update(wrap(X.copy())[:5], Y[:5]).predict(NEW).mean), expected)


def test_odd_arrays_are_read_like_plain_ones():
    expected = ExactGP().condition(X, Y).predict(NEW).mean
    for x, y in ((np.asfortranarray(X), Y[::-1][::-1]), (X.astype(">f8"), pd.Series(Y)), (X.tolist(), Y.tolist())):
        np.testing.assert_array_equal(ExactGP().condition(x, y).predict(NEW).mean, expected)
    np.testing.assert_array_equal(ExactGP().condition(np.ma.array(X), Y).predict(NEW).mean, expected)
    for x, y, message in ((np.ma.array(X, mask=X > 50), Y, "missing value"), (X, np.ma.array(Y), "masked array")):
        with pytest.raises(rfgp.DataError, match=message):
            ExactGP().condition(x, y)
    with pytest.raises(rfgp.DataError, match="constant"):
        ExactGP().fit(X, np.where(np.arange(120) % 2, 0.1 * 3, 0.3))
    with torch.no_grad():
        assert ExactGP().fit(X, Y, fixed="noise").fit_report.converged


@pytest.mark.parametrize("make", [ExactGP, lambda: SparseSpectrumGP(num_frequencies=20, seed=0)])
def test_condition_and_update(make):
    gp = make().fit(X[:80], Y[:80])
    noise = gp.hyperparameters.noise.item()
    whole = make().fit(X[:80], Y[:80]).condition(X, Y).predict(NEW)
    np.testing.assert_allclose(gp.update(X[80:], Y[80:]).predict(NEW).mean, whole.mean)
    assert gp.hyperparameters.noise.item() == noise
    for x, y, message in (
        (X[:2, :2], Y[:2], "3 columns"),
        (X[:2], Y[:3], "y must have 2 rows like X, got 3"),
        (X[:1], ["a"], "y must hold numbers"),
    ):
        with pytest.raises(rfgp.DataError, match=message):
            gp.update(x, y)


@pytest.mark.parametrize("make", [ExactGP, lambda **o: SparseSpectrumGP(num_frequencies=20, seed=0, **o)])
def test_dtypes_and_kinds(make):
    x, y = torch.as_tensor(X), torch.as_tensor(Y)
    p = make().condition(x, y).predict(torch.as_tensor(NEW))
    assert isinstance(p.mean, torch.Tensor)
    np.testing.assert_allclose(p.mean.numpy(), make().condition(X, Y).predict(NEW).mean)
    single = make().condition(x.float(), y.float()).predict(torch.as_tensor(NEW).float())
    assert single.mean.dtype == torch.float32
    torch.testing.assert_close(single.mean, p.mean.float(), rtol=1e-3, atol=1e-2)
    assert make(dtype=torch.float32).condition(X, Y).predict(NEW).mean.dtype == np.float32
    with pytest.raises(rfgp.DataError, match=r"one dtype, got torch.float32 and torch.float64"):
        make().condition(x.float(), y)
    whole = make().condition(np.arange(12).reshape(6, 2), np.array([1, 2, 3, 4, 5, 7]))
    assert whole.predict(np.zeros((1, 2), int)).mean.dtype == np.float64


@pytest.mark.parametrize("make", [ExactGP, lambda: SparseSpectrumGP(num_frequencies=200, seed=0)])
def test_a_prediction_is_of_the_moment_it_was_made(make):
    gp = make().condition(X, Y)
    early, late = gp.predict(NEW), gp.predict(NEW)
    expected = early.covariance
    gp.hyperparameters.set(noise=1e3, lengthscale=0.1, outputscale=1.0)
    np.testing.assert_array_equal(late.covariance, expected)


def test_variances_at_training_points_are_not_negative():
    gp = SparseSpectrumGP(num_frequencies=20, seed=0).condition(X, Y)
    assert (gp.predict(X).variance >= 0).all()


def with_value(value, row=3, column=1):
    x = X.copy()
    x[row, column] = value
    return x


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (with_value(np.nan), Y, "Column 1 has 1 missing value, the first in row 3"),
        (with_value(np.inf), Y, r"Column 1 has .* \(inf\) in row 3"),
        (X, np.where(np.arange(120) == 7, np.nan, Y), "y has 1 value that is not finite.*row 7"),
        (X, np.full(120, 4.0), r"constant \(4 in all 120 rows\)"),
        (X[:1], Y[:1], "at least two observations, got 1"),
        (X[:0], Y[:0], "without rows"),
        (X[:5], Y[:6], "y must have 5 rows like X, got 6"),
        (X[0], Y, r"shape \(n, d\)"),
        (X[:, :0], Y, r"shape \(n, d\)"),
        (X, Y[:, None, None], r"y must have shape \(n,\), or \(n, k\)"),
        (
            [["a", "b"], ["c", "d"]],
            [1.0, 2.0],
            r"(?s)Column 0 holds text \('a' in row 0, 2 such cells\).*Column 1 holds text",
        ),
        ([[1, None], [2, 3]], [1.0, 2.0], "Column 1 has 1 missing value"),
        ([[1, {}], [2, 3]], [1.0, 2.0], r"Column 1 holds values of type dict \({} in row 0"),
        (X.astype(complex), Y, "complex"),
        (X, torch.as_tensor(Y).to(torch.complex128), "complex"),
    ],
)
def test_bad_data_are_named(x, y, message):
    for gp in (ExactGP(), SparseSpectrumGP(num_frequencies=4, seed=0)):
        with pytest.raises(rfgp.DataError, match=message):
            gp.fit(x, y)


def test_a_refused_fit_leaves_no_half_model():
    gp = SparseSpectrumGP(num_frequencies=40, seed=0)
    with pytest.raises(rfgp.DataError):
        gp.fit(with_value(np.nan), Y)
    for use in (lambda: gp.hyperparameters, lambda: gp.predict(NEW), gp.log_marginal_likelihood, gp.exact):
        with pytest.raises(rfgp.NotFittedError, match="fit"):
            use()


def test_new_inputs_must_have_the_same_columns():
    with pytest.raises(rfgp.DataError, match="X must have 3 columns"):
        ExactGP().condition(X, Y).predict(NEW[:, :2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frequencies": 0}, "num_frequencies must be"),
        ({"spectrum": "cosine"}, "got 'cosine'"),
        ({"coupling": "sorf"}, "got 'sorf'"),
        ({"kind": "cosine"}, "kind must be one of fourier, laplace"),
        ({"learn_frequencies": "free"}, "learn_frequencies must be"),
        ({"seed": -3}, "seed must be"),
    ],
)
def test_bad_options_are_named_at_once(options, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        SparseSpectrumGP(**options)


@pytest.mark.parametrize(
    "options",
    [{"noise": -1.0}, {"lengthscale": [1.0, 2.0]}, {"outputscale": 0.0}, {"lengthscale": "long"}, {"noise": {}}],
)
def test_bad_starting_values_are_named(options):
    with pytest.raises(rfgp.InvalidArgumentError, match=next(iter(options))):
        SparseSpectrumGP(num_frequencies=4, **options).fit(X, Y)


def test_reports_name_values_at_a_bound():
    assert "noise" in ExactGP().fit(X, np.sin(X[:, 0])).fit_report.at_bounds
    assert ExactGP().fit(X[:, :2], Y).fit_report.at_bounds == ()


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("scale", [1e12, 1e-12])
def test_targets_of_extreme_size(scale, standardize):
    plain, scaled = (ExactGP(standardize=standardize).fit(X, y) for y in (Y, Y * scale))
    assert scaled.hyperparameters.noise.item() == pytest.approx(scale**2 * plain.hyperparameters.noise.item(), rel=1e-2)
    np.testing.assert_allclose(scaled.predict(NEW).mean, scale * plain.predict(NEW).mean, rtol=1e-4)


def test_constant_duplicate_and_collinear_columns():
    x = np.column_stack([X, X[:, 0], np.full(len(X), 3.0)])
    new = np.column_stack([NEW, NEW[:, 0], np.full(len(NEW), 3.0)])
    gp = ExactGP().fit(np.concatenate([x, x[:5]]), np.concatenate([Y, Y[:5]]))
    assert metrics.rmse(Y_NEW, gp.predict(new)) < 1.2


def test_laplace_features_approximate_too():
    exact = ExactGP(lengthscale=3.0, ard=False).condition(X, Y)
    p = exact.with_approximation(rfgp.RandomFeatures(600, kind="laplace", seed=0)).predict(NEW)
    assert metrics.rmse(exact.predict(NEW).mean, p) < 0.5
