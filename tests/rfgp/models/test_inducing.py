"""Processes through inducing points: their twin in a dozen lines of numpy, their fits, and their lives."""

import numpy as np
import pytest
import torch
from model_checks import assert_gradients
from stationary import model_of

import rfgp
from rfgp.approximations.inducing_points import RESELECTION_RATIO
from rfgp.blocks import Prior, Residual
from rfgp.features.inducing import SAMPLED
from rfgp.regression import mean_and_noise
from rfgp.regression.spec import ModelSpec
from rfgp.solvers import solver_for
from rfgp.tables import Batches

POINTS = ("num_points", "init", "method", "learn_locations", "residual")
"""The arguments of `rfgp.InducingPoints`."""
METHODS = ("sor", "fitc", "vfe")
pytestmark = pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")


def table(n=120, seed=0, outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    y = np.stack([np.sin(4 * X[:, 0] + j) + 0.5 * X[:, 1] for j in range(outputs)], axis=1)
    y = y + 0.1 * rng.standard_normal(y.shape)
    return X * [1.0, 30.0, 0.1], 5 + 2 * (y if outputs > 1 else y[:, 0])


def model(spectrum="gaussian", **more):
    chosen = {"num_points": 20, "method": "sor"} | {name: more.pop(name) for name in POINTS if name in more}
    return model_of(spectrum, rfgp.InducingPoints(**chosen), **more)


def points_of(gp):
    """Return the standardised points (M, d)."""
    return gp.spec.term_priors[0].points


def twin(gp, X, y, new, weight=None, noise=0.0):
    """Return means, covariances of each output, and the log density or its bound; everything dense.

    Of the subset of regressors; with what it misses for noise (FITC); or left over, of which rows say nothing (VFE).
    """
    p, scaling = gp.hyperparameters, gp.state.scaling.inputs
    ((_, term),) = gp.terms.items()
    spectrum, method = term.kernel.terms()[0].factors[0].measure, term.approximation.method
    length, z = p.lengthscale.detach().numpy(), (points_of(gp) * scaling.scale + scaling.location).numpy()

    def kernel(a, b):
        return spectrum.kernel_between(torch.from_numpy(a / length), torch.from_numpy(b / length)).numpy()

    def estimate(a, b):
        jitter = 1e-8 * np.eye(len(z))
        return kernel(a, z) @ np.linalg.solve(kernel(z, z) + jitter, kernel(z, b))

    laws = []
    for j, target in enumerate(y.reshape(len(y), -1).T):
        mean, v, s = (getattr(p, name).detach().reshape(-1)[j].item() for name in ("mean", "outputscale", "noise"))
        missed = v * np.diag(kernel(X, X) - estimate(X, X))
        D, weights = (
            s + noise * np.ones(len(y)) + (method == "fitc") * missed,
            np.ones(len(y)) if weight is None else weight,
        )
        C, across = v * estimate(X, X) + np.diag(D / weights), v * estimate(new, X)
        solved = np.linalg.solve(C, target - mean)
        total = -0.5 * ((target - mean) @ solved + np.linalg.slogdet(2 * np.pi * C)[1])
        total -= 0.5 * (method == "vfe") * np.sum(weights * missed / D)
        left = {"sor": 0.0, "vfe": v * (kernel(new, new) - estimate(new, new))}
        left["fitc"] = np.diag(np.diag(left["vfe"]))
        covariance = v * estimate(new, new) - across @ np.linalg.solve(C, across.T) + left[method]
        laws.append((mean + across @ solved, covariance, total))
    means, covariances = (np.stack([law[i] for law in laws], axis=-1) for i in range(2))
    return means.reshape(-1, *y.shape[1:]), covariances, sum(law[2] for law in laws)


def variances(covariances, like):
    return np.einsum("iik->ik", covariances).reshape(like.shape)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("spectrum", ["gaussian", rfgp.spectra.Matern(1.5)], ids=["gaussian", "matern"])
def test_it_is_its_twin_through_fit_and_update(spectrum, method):
    """Among new points are a row of the data, and one twice."""
    (X, y), (more, z), new = table(outputs=2), table(15, seed=1, outputs=2), table(9, seed=2)[0]
    new[0], new[2] = X[0], new[1]
    gp = model(spectrum=spectrum, method=method).fit(X, y, max_iterations=5)
    for rows, targets in ((X, y), (np.concatenate([X, more]), np.concatenate([y, z]))):
        if len(rows) > len(X):
            gp.update(more, z)
        means, covariances, total = twin(gp, rows, targets, new)
        p = gp.predict(new)
        np.testing.assert_allclose(p.mean, means, rtol=1e-8)
        np.testing.assert_allclose(p.variance, variances(covariances, means), rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(p.covariance, covariances, rtol=1e-7, atol=1e-9)
        assert gp.log_marginal_likelihood().item() == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_weights_count_rows_and_noise_may_be_known(method):
    (X, y), new, rng = table(60), table(9, seed=2)[0], np.random.default_rng(3)
    weight, noise = rng.integers(1, 4, 60), rng.uniform(0, 0.3, 60)
    gp = model(method=method).fit(X, y, noise=noise, sample_weight=weight.astype(float), max_iterations=3)
    means, covariances, _ = twin(gp, X, y, new, weight, noise)
    np.testing.assert_allclose(gp.predict(new).mean, means, rtol=1e-8)
    np.testing.assert_allclose(gp.predict(new).variance, variances(covariances, means), rtol=1e-7, atol=1e-10)
    X, y, noise = (np.repeat(each, weight, axis=0) for each in (X, y, noise))
    assert gp.log_marginal_likelihood().item() == pytest.approx(twin(gp, X, y, new, noise=noise)[2], rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_left_out_rows_are_predicted_by_the_others(method):
    X, y = table(40)
    weight = np.ones(40)
    weight[17] = 3.0
    gp = model(num_points=10, method=method).fit(X, y, sample_weight=weight, max_iterations=3)
    left = gp.leave_one_out()
    for i in (0, 17):
        rest = np.arange(40) != i
        means, covariances, _ = twin(gp, X[rest], y[rest], X[i : i + 1], weight[rest])
        assert left.mean[i] == pytest.approx(means[0], rel=1e-8)
        assert left.variance[i] == pytest.approx(covariances.item() + gp.hyperparameters.noise.item(), rel=1e-8)


def test_with_all_rows_for_points_it_is_the_exact_process():
    (X, y), new = table(80), table(9, seed=2)[0]
    gp = model(num_points=80, spectrum=rfgp.spectra.Matern(0.5)).fit(X, y, max_iterations=10)
    assert len(points_of(gp)) == 80
    assert gp.log_marginal_likelihood().item() == pytest.approx(gp.exact().log_marginal_likelihood().item(), abs=1e-3)
    np.testing.assert_allclose(gp.predict(new).mean, gp.exact().predict(new).mean, atol=1e-4)
    more = model(num_points=500).condition(X, y)
    assert len(points_of(more)) == 80


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_gradients_in_all_hyperparameters(method, weighted):
    weight = np.random.default_rng(3).integers(1, 4, 60).astype(float) if weighted else None
    gp = model(init="pivoted-cholesky", method=method, num_points=10).condition(*table(60), sample_weight=weight)
    assert_gradients(gp, abs=1e-4)


def test_points_are_chosen_again_where_lengthscales_have_moved():
    X, y = table(400)
    gp, begun = model().fit(X, y), model().condition(X, y)
    assert not torch.equal(points_of(gp), points_of(begun))
    ratio = gp.spec.term_priors[0].lengthscales / gp.hyperparameters.values.standardized("rbf.lengthscale").detach()
    assert ratio.max() / ratio.min() < RESELECTION_RATIO
    assert len([stage for stage in gp.fit_report.stages if stage.name.startswith("all rows")]) > 1


def test_points_that_are_learned_say_more():
    X, y = table(400)
    options = {"num_points": 8, "noise": 0.05}
    fixed, learned = model(**options).fit(X, y), model(learn_locations=True, **options).fit(X, y)
    assert learned.fit_report.stages[-1].name.endswith("basis too")
    assert learned.log_marginal_likelihood() > fixed.log_marginal_likelihood() + 1  # 2.7 to 6, by the last bits
    new, _ = table(200, seed=1)
    means, *_ = twin(learned, X, y, new)
    np.testing.assert_allclose(learned.predict(new).mean, means, rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_in_points(method):
    gp = model(method=method, num_points=4, learn_locations=True).condition(*table(60))
    now, values = gp.state, gp.hyperparameters.values.detached()
    known = {name: values.standardized(name) for name in values.space.names if name != "mean"}

    def density(points):
        prior = Prior.of_terms([gp.spec.term_priors[0].at({**known, "rbf.points": points}, gp.spec.columns)])
        return solver_for(prior, now.rows, *mean_and_noise(values)).log_marginal_likelihood()

    points = points_of(gp).clone().requires_grad_()
    (slope,) = torch.autograd.grad(density(points), points)
    for i, j in ((0, 0), (1, 2), (3, 1)):
        step = torch.zeros_like(slope)
        step[i, j] = 1e-5
        with torch.no_grad():
            expected = (density(points + step) - density(points - step)) / 2e-5
        assert slope[i, j].item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-4)


def test_bounds_and_noise_are_as_theory_says():
    """VFE is below the exact density, more points raise it, and FITC lays on features what VFE takes for noise."""
    X, y = table(200)
    exact = rfgp.ExactGP().condition(X, y)
    options = {"init": "pivoted-cholesky", "seed": 0}
    bounds = [model(method="vfe", num_points=m, **options).condition(X, y) for m in (5, 20, 80)]
    totals = [gp.log_marginal_likelihood().item() for gp in bounds]
    assert totals == sorted(totals)
    assert totals[-1] < exact.log_marginal_likelihood().item() < totals[-1] + 1
    fitted = {d: model(method=d, num_points=8, learn_locations=True).fit(X, y) for d in ("fitc", "vfe")}
    noise = {d: gp.hyperparameters.noise.item() for d, gp in fitted.items()}
    assert noise["fitc"] < 0.04 * 0.9 < noise["vfe"]  # the truth is .04


def test_far_from_the_points_the_variance_is_that_of_the_process():
    X, y = table()
    for method in METHODS:
        gp = model(method=method).fit(X, y, max_iterations=3)
        far = gp.predict(1e5 + X[:1]).variance[0] / gp.hyperparameters.outputscale.item()
        assert far == pytest.approx(0.0 if method == "sor" else 1.0)


def test_residual_of_features_has_no_functions():
    X, y = table()
    gp = model(method="fitc").condition(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        gp.sample_functions(2)
    without = gp.with_approximation(rfgp.InducingPoints(20, method="sor"))
    assert without.sample_functions(2, seed=0)(X).shape == (2, 120)
    assert gp.predict(X[:5]).sample(3, seed=0).shape == (3, 5)


@pytest.mark.parametrize("method", ["fitc", "vfe"])
def test_fewer_rows_than_points(method):
    (X, y), new = table(), table(9, seed=2)[0]
    gp = model(method=method).fit(X, y, max_iterations=3).condition(X[:7], y[:7])
    means, covariances, _ = twin(gp, X[:7], y[:7], new)
    np.testing.assert_allclose(gp.predict(new).mean, means, rtol=1e-8)
    np.testing.assert_allclose(gp.predict(new).variance, variances(covariances, means), rtol=1e-7)


def test_rows_that_are_read_in_blocks_are_a_sample_for_points(monkeypatch):
    (X, y), new = table(300), table(9, seed=2)[0]
    monkeypatch.setattr("rfgp.approximations.inducing_points.MIN_SAMPLE", 30)
    monkeypatch.setitem(SAMPLED, "kmeans", 1)
    gp = model(num_points=30).fit(Batches([(X[:100], y[:100]), (X[100:], y[100:])]), max_iterations=3)
    scaling = gp.state.scaling.inputs
    points = (points_of(gp) * scaling.scale + scaling.location).numpy()
    assert np.abs(points[:, None] - X[None]).max(2).min(1).max() < 1e-9  # 30 rows of the table, as many as were sampled
    means, _, total = twin(gp, X, y, new)
    np.testing.assert_allclose(gp.predict(new).mean, means, rtol=1e-7)
    assert gp.log_marginal_likelihood().item() == pytest.approx(total, rel=1e-8)


def test_more_points_are_closer_to_the_exact_process():
    (X, y), new = table(), table(9, seed=2)[0]
    gp = model(learn_locations=True).fit(X, y, max_iterations=3)
    more = gp.with_approximation(rfgp.InducingPoints(60, init="pivoted-cholesky", method="sor"))
    exact = gp.exact().predict(new).mean
    assert np.abs(more.predict(new).mean - exact).max() < np.abs(gp.predict(new).mean - exact).max()


@pytest.mark.filterwarnings("ignore::rfgp.UnderfittingWarning")
@pytest.mark.parametrize("stop", [3, 40])
def test_a_fit_that_was_interrupted_goes_on(stop, tmp_path):
    X, y = table(200)
    options, given = {"learn_locations": True, "num_points": 6}, {"checkpoint": tmp_path / "c"}

    def interrupt(progress):
        if len(seen.append(progress) or seen) == stop:
            raise KeyboardInterrupt

    seen = []
    whole = model(**options).fit(X, y)
    with pytest.raises(KeyboardInterrupt):
        model(**options).fit(X, y, progress=interrupt, **given)
    seen = []
    again = model(**options).fit(X, y, progress=lambda progress: seen.append(progress), **given)
    assert np.array_equal(whole.predict(X).mean, again.predict(X).mean)
    assert whole.fit_report.message == again.fit_report.message


def test_points_of_short_lengthscales_are_chosen_again():
    x = np.random.default_rng(0).uniform(-1, 1, (600, 1))
    z = np.sin(40 * x[:, 0]) + 0.03 * np.random.default_rng(1).standard_normal(600)
    short = model(num_points=100, init="pivoted-cholesky").fit(x, z)
    assert len(points_of(short)) == 100
    assert np.sqrt(np.mean((short.predict(x).mean - np.sin(40 * x[:, 0])) ** 2)) < 0.03


@pytest.mark.slow
def test_float32_is_searched_in_double():
    """Else rounding would end line searches."""
    X, y = table(300)
    options = {"learn_locations": True, "num_points": 8, "seed": 0}
    one, two = (model(dtype=dtype, **options).fit(X, y).fit_report for dtype in (torch.float32, torch.float64))
    assert one.evaluations / one.iterations < 1.2 * two.evaluations / two.iterations
    assert one.log_marginal_likelihood > two.log_marginal_likelihood - 20


def test_warnings_name_a_remedy():
    X, y = table(300)
    with pytest.warns(rfgp.UnderfittingWarning, match="Raise the number of inducing points, learn their locations"):
        model(num_points=3).fit(X, y)
    with pytest.warns(rfgp.UnderfittingWarning, match="Raise the number of inducing points"):
        model(num_points=1, learn_locations=True).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_points": 0}, "num_points"),
        ({"init": "random"}, "init"),
        ({"learn_locations": 1}, "learn_locations"),
        ({"method": "dtc"}, "method"),
        ({"residual": rfgp.Vecchia(), "method": "fitc"}, "residual"),
        ({"residual": rfgp.RandomFeatures(4)}, "residual"),
        ({"residual": rfgp.Vecchia(), "spectrum": rfgp.spectra.Matern(2.2)}, "residual"),
        ({"local_outputscale": 1.0}, "second term"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        model(**options).condition(*table())


@pytest.mark.parametrize("fault", ["rbf.lengthscale", "rbf.outputscale", "residual"])
def test_planted_errors_are_seen(fault, monkeypatch):
    (X, y), new = table(), table(9, seed=2)[0]
    if fault == "residual":
        monkeypatch.setattr(Residual, "variance", lambda self, phi, *rest: 0.999 - phi.square().sum(-1))
        gp = model(method="fitc").condition(X, y)
        assert gp.log_marginal_likelihood().item() != pytest.approx(twin(gp, X, y, new)[2], rel=1e-9)
    else:
        original = ModelSpec.prior
        monkeypatch.setattr(ModelSpec, "prior", lambda self, values: original(self, values.shifted(**{fault: 1e-3})))
        gp = model().condition(X, y)
    assert not np.allclose(gp.predict(new).mean, twin(gp, X, y, new)[0], rtol=1e-8)


@pytest.mark.filterwarnings("ignore::rfgp.OverfittingWarning")
def test_few_rows_and_constant_columns():
    X, y = table(6)
    gp = model(num_points=30).fit(np.column_stack([X, np.ones(6)]), y, max_iterations=3)
    assert len(points_of(gp)) == 6
    assert np.isfinite(gp.predict(np.column_stack([X, np.ones(6)])).variance).all()


@pytest.mark.parametrize(
    "approximation",
    [
        rfgp.InducingPoints(20, method="sor"),
        rfgp.InducingPoints(20, method="fitc"),
        rfgp.InducingPoints(20, residual=rfgp.Vecchia()),
        rfgp.Exact(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("single", [False, True])
def test_a_far_point_changes_nothing_for_the_others(approximation, single):
    """One matrix product for all distances was centred by the mean of the new points: off by .02 deviations at 1e6."""
    (X, y), new = table(), table(9, seed=2)[0]
    dtype, close = (np.float32, 1e-3) if single else (np.float64, 1e-7)
    gp = model_of("gaussian", approximation).condition(X.astype(dtype), y.astype(dtype))
    alone = gp.predict(new.astype(dtype))
    for far in (1e3, 1e6, *([] if single else [1e12, 1e30, 1e90])):
        both = gp.predict(np.vstack([new, np.full((2, 3), far)]).astype(dtype))
        assert np.allclose(both.mean[:9], alone.mean, rtol=0, atol=close * y.std())
        assert np.allclose(both.std[:9], alone.std, rtol=0, atol=close * y.std())
        assert np.isfinite(both.mean).all()
    with pytest.raises(rfgp.DataError, match="must lie within"):
        gp.predict(np.full((1, 3), 1e30 if single else 1e160).astype(dtype))
