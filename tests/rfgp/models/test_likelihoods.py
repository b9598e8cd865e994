"""Models of observations that are not normal: every front door, and what is asked of them."""

import networkx as nx
import numpy as np
import pytest
import torch
from model_checks import assert_gradients, assert_update_is_condition
from scipy import stats

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.likelihoods import Bernoulli, NegativeBinomial, Poisson, StudentT
from rfgp.likelihoods.role import learned_parameters

ROWS, NEW = 240, 300
GRID = graphs.Graph.from_networkx(nx.grid_2d_graph(9, 10))
NAMES = ("bernoulli", "poisson", "negative-binomial", "gamma", "student-t")


def function(x):
    return np.sin(2 * x[:, 0]) + 0.7 * x[:, 1]


def observe(name, f, rng):
    if name == "bernoulli":
        return (rng.uniform(size=len(f)) < 1 / (1 + np.exp(-3 * f))).astype(float)
    if name == "poisson":
        return rng.poisson(np.exp(1 + f)).astype(float)
    if name == "negative-binomial":
        return rng.poisson(rng.gamma(2.0, np.exp(1 + f) / 2.0)).astype(float)
    if name == "gamma":
        return rng.gamma(4.0, np.exp(f) / 4.0)
    return 50 + 10 * (f + 0.2 * rng.standard_t(3, size=len(f)))


def table(name, rows=ROWS):
    rng = np.random.default_rng(6)
    x, new = rng.standard_normal((rows, 2)), rng.standard_normal((NEW, 2))
    return x, observe(name, function(x), rng), new, observe(name, function(new), rng)


def model(name, **options):
    """Laplace's approximation, of two classes too; `test_variational` has the other."""
    way = {"inference": "laplace"} if name == "bernoulli" else {}
    return rfgp.SparseSpectrumGP(**{"num_frequencies": 40, "likelihood": name, "seed": 0, **way, **options})


@pytest.fixture(scope="module")
def fitted():
    return {name: model(name).fit(*table(name)[:2]) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
class TestEvery:
    @pytest.mark.filterwarnings("ignore::rfgp.OverdispersionWarning")  # a constant rate for counts that vary
    def test_a_fit_predicts_better_than_no_inputs(self, fitted, name):
        x, y, new, observed = table(name)
        gp = fitted[name]
        assert gp.fit_report.converged
        found = gp.predict(new).observed().log_prob(observed).mean()
        constant = model(name, lengthscale=1e3, outputscale=1e-3).fit(x, y, fixed=("lengthscale", "outputscale"))
        assert found > constant.predict(new).observed().log_prob(observed).mean() + 0.05
        assert gp.fit_report.leave_one_out == pytest.approx(found, abs=0.25)

    def test_the_fit_is_a_maximum(self, fitted, name):
        gp = fitted[name]
        gp.hyperparameters.zero_grad()
        gp.hyperparameters.requires_grad_(True)
        value = gp.log_marginal_likelihood()
        value.backward()
        assert float(value.detach()) == pytest.approx(gp.fit_report.log_marginal_likelihood, abs=1e-6)
        inside = [p.grad for n, p in gp.hyperparameters.raw.items() if n not in gp.fit_report.at_bounds]
        assert max(float(g.abs().max()) for g in inside) < 0.2

    def test_an_update_is_a_condition_on_all_rows(self, fitted, name):
        x, y, new, _ = table(name)
        assert_update_is_condition(fitted[name], x, y, new, 150, rtol=1e-6, atol=1e-7, variance_rtol=1e-6)

    def test_observed_distribution_is_a_mixture(self, fitted, name):
        """Moments, probabilities and quantiles against many draws; densities against sums and integrals."""
        p = fitted[name].predict(table(name)[2][:8])
        law = p.observed()
        draws = law.sample(40_000, seed=1)
        spread = draws.std(0) / 200
        np.testing.assert_array_less(np.abs(law.mean - draws.mean(0)), 6 * spread)
        if name != "student-t":
            np.testing.assert_allclose(law.variance, draws.var(0), rtol=0.15)
        q = law.quantile([0.1, 0.5, 0.9])
        assert q.shape == (3, 8)
        for level, edge in zip((0.1, 0.5, 0.9), q, strict=True):
            assert (law.cdf(edge) >= level - 1e-9).all()
            assert (law.cdf(edge - (1 if law.likelihood.is_discrete else 1e-3)) < level).all()
            np.testing.assert_allclose((draws <= edge).mean(0), law.cdf(edge), atol=6 * 0.5 / 200)
        places = np.arange(400.0) if law.likelihood.is_discrete else np.linspace(q[1] - 40, q[1] + 40, 40_001)
        places = np.broadcast_to(places.reshape(len(places), -1), (len(places), 8))
        if name == "bernoulli":
            places = places[:2]
        if name == "gamma":
            places = np.broadcast_to(np.geomspace(1e-6, 1e3, 500)[:, None], (500, 8))
        places = places[:: max(1, len(places) // 500)]
        density = np.exp([law.log_prob(row) for row in places])
        step = 1 if law.likelihood.is_discrete else np.gradient(places, axis=0)
        np.testing.assert_allclose((density * step).sum(0), 1, atol=0.03)

    def test_metrics_are_of_observations(self, fitted, name):
        new, observed = table(name)[2:]
        p = fitted[name].predict(new)
        law = p.observed()
        assert rfgp.metrics.nlpd(observed, p) == pytest.approx(-law.log_prob(observed).mean())
        assert rfgp.metrics.rmse(observed, p) == pytest.approx(np.sqrt(np.mean((law.mean - observed) ** 2)))
        score = rfgp.metrics.crps(observed, p)
        if name == "bernoulli":
            assert score == pytest.approx(np.mean((law.mean - observed) ** 2), rel=0.03)  # Brier's
        assert 0 < score < np.abs(np.median(observed) - observed).mean() + 0.05
        residuals = rfgp.metrics.standardized_residuals(observed, p).numpy()
        assert abs(residuals.mean()) < 0.3  # an error of the function is common to many points
        assert residuals.std() == pytest.approx(1.0, abs=0.2)
        assert rfgp.metrics.interval_coverage(observed, p, [0.8]).item() == pytest.approx(0.8, abs=0.1)

    def test_divergences_are_of_working_observations(self, fitted, name):
        gp, new = fitted[name], table(name)[2][:40]
        exact = gp.exact()
        p = exact.predict(new)
        assert rfgp.metrics.kl_divergence(p, p) == pytest.approx(0, abs=1e-8)
        few, many = (gp.with_approximation(rfgp.RandomFeatures(m, seed=1)).predict(new) for m in (10, 400))
        assert rfgp.metrics.kl_divergence(p, many) < rfgp.metrics.kl_divergence(p, few)
        unit = float(p.scale)
        law = p.observed().likelihood
        noise = unit**2 / law.fisher(torch.from_numpy(p.mean) / unit).numpy()
        a, b = (q.covariance + np.diag(noise) for q in (p, few))
        shift = p.mean - few.mean
        solved = np.linalg.solve(b, a)
        expected = 0.5 * (np.trace(solved) - 40 + shift @ np.linalg.solve(b, shift) - np.linalg.slogdet(solved)[1])
        assert rfgp.metrics.kl_divergence(p, few) == pytest.approx(expected, rel=1e-6)

    def test_tensors_stay_tensors(self, fitted, name):
        new = torch.from_numpy(table(name)[2])
        law = fitted[name].predict(new).observed()
        assert isinstance(law.mean, torch.Tensor)
        assert law.observed() is law
        np.testing.assert_allclose(law.mean.numpy(), fitted[name].predict(new.numpy()).observed().mean)

    def test_the_exact_process_is_near(self, name):
        x, y, new, _ = table(name, 120)
        gp = model(name, num_frequencies=400).fit(x, y)
        exact = gp.exact()
        assert exact.spec.options.likelihood == gp.spec.options.likelihood
        p, q = gp.predict(new), exact.predict(new)
        np.testing.assert_allclose(p.mean, q.mean, atol=0.35 * q.std.max())
        one, other = (float(each.log_marginal_likelihood()) for each in (gp, exact))
        assert one == pytest.approx(other, abs=2.0)

    def test_an_exact_fit(self, name):
        x, y, new, observed = table(name, 100)
        gp = rfgp.ExactGP(likelihood=name).fit(x, y)
        assert gp.fit_report.converged
        assert np.isfinite(gp.predict(new).observed().log_prob(observed)).all()
        assert np.isfinite(gp.leave_one_out().log_prob).all()


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "student-t"])
def test_a_sparse_precision_and_the_dense_kernel_are_the_same(name):
    rng = np.random.default_rng(2)
    nodes = list(range(90))
    y = observe(name, np.sin(np.arange(90) / 9.0), rng)
    kernel = graphs.kernels.Matern(2.0, 2.0)
    labels = GRID.labels
    found = []
    for features in ("precision", "exact"):
        gp = rfgp.GraphGP(GRID, kernel, features=features, likelihood=name, outputscale=1.0, seed=0)
        gp.condition([labels[i] for i in nodes[:70]], y[:70])
        gp.hyperparameters.requires_grad_(True)
        value = gp.log_marginal_likelihood()
        value.backward()
        slopes = {n: p.grad for n, p in gp.hyperparameters.named_parameters()}
        p, left = gp.predict([labels[i] for i in nodes[70:]]), gp.leave_one_out()
        found.append((value.detach(), slopes, p.mean, p.variance, left.log_prob))
    one, other = found
    torch.testing.assert_close(one[0], other[0], rtol=1e-7, atol=1e-7)
    for n, slope in one[1].items():
        torch.testing.assert_close(slope, other[1][n], rtol=1e-4, atol=1e-5)
    for a, b in zip(one[2:], other[2:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_many_nodes_through_sparse_features(limits):
    """By conjugate gradients, against the matrix of all pairs; their hyperparameters are learned from fewer."""
    rng = np.random.default_rng(2)
    y = rng.poisson(np.exp(np.sin(np.arange(90) / 9.0))).astype(float)
    labels = GRID.labels
    options = {"features": "walks", "num_walkers": 32, "likelihood": "poisson", "outputscale": 1.0, "seed": 0}
    kernel = graphs.kernels.Diffusion(lengthscale=2.0)
    dense = rfgp.GraphGP(GRID, kernel, **options).condition(labels[:70], y[:70])
    expected = dense.predict(labels[70:])
    mean, std = expected.mean, expected.std
    limits(max_dense=50)
    sparse = rfgp.GraphGP(GRID, kernel, **options).condition(labels[:70], y[:70])
    found = sparse.predict(labels[70:])
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.std, std, rtol=1e-3)
    value = float(sparse.log_marginal_likelihood())
    assert value == pytest.approx(float(dense.log_marginal_likelihood()), abs=3.0)  # a determinant by 16 probes
    with pytest.raises(rfgp.InvalidArgumentError, match="condition on all"):
        rfgp.GraphGP(GRID, kernel, **options).fit(labels[:70], y[:70])


def test_fields_on_roads_and_meshes_take_likelihoods(tmp_path):
    corners = [[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 4.0]]
    square = graphs.RoadNetwork.from_lines([[corners[i], corners[(i + 1) % 4]] for i in range(4)])
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.integers(0, 4, 120), rng.uniform(size=120)]).astype(float)
    y = rng.poisson(np.exp(1 + np.sin(np.pi * (x[:, 0] + x[:, 1]) / 2))).astype(float)
    gp = rfgp.RoadGP(square, likelihood="poisson", seed=0).fit(x, y)
    assert gp.fit_report.converged
    assert gp.fit_report.log_marginal_likelihood > stats.poisson(y.mean()).logpmf(y).sum()
    gp.save(tmp_path / "roads", data=True)
    np.testing.assert_array_equal(rfgp.load(tmp_path / "roads").predict(x).mean, gp.predict(x).mean)


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"likelihood": "cauchy"}, "got 'cauchy'"),
            ({"likelihood": "poisson", "start": {"noise": 0.1}}, "noise"),
            ({"likelihood": rfgp.likelihoods.Gaussian(noise=0.3)}, "Use noise="),
            ({"likelihood": "bernoulli", "approximation": rfgp.RandomFeatures(8, learn_frequencies=True)}, "Gaussian"),
            ({"likelihood": "bernoulli", "approximation": rfgp.InducingPoints(8, method="fitc")}, "Gaussian"),
        ],
    )
    def test_options(self, options, words):
        with pytest.raises(rfgp.InvalidArgumentError, match=words):
            rfgp.GP(k.RBF(), **options).condition(*table("bernoulli")[:2])

    def test_targets(self):
        x = np.random.default_rng(0).standard_normal((20, 2))
        with pytest.raises(rfgp.DataError, match="0 or 1, got 2 in row 3"):
            model("bernoulli").fit(x, np.array([0.0, 1, 0, 2] * 5))
        with pytest.raises(rfgp.DataError, match="requires one output"):
            model("poisson").fit(x, np.arange(40.0).reshape(20, 2))
        gp = model("poisson").fit(x, np.arange(20.0))
        with pytest.raises(rfgp.DataError, match="counts"):
            gp.update(x, np.full(20, 0.5) + np.arange(20))
        with pytest.raises(rfgp.InvalidArgumentError, match="possible observations"):
            gp.predict(x).observed().log_prob(np.full(20, -1.0))
        with pytest.raises(rfgp.DataError, match="noise"):
            gp.condition(x, np.arange(20.0), noise=np.ones(20))

    def test_observations_refuse_covariance_and_exponentials(self, fitted):
        new = table("poisson")[2]
        law = fitted["poisson"].predict(new).observed()
        with pytest.raises(rfgp.InvalidArgumentError, match="covariance"):
            law.covariance  # noqa: B018
        with pytest.raises(rfgp.InvalidArgumentError, match="Sums of observations"):
            law.linear(np.ones(NEW))
        assert law.operator() is None
        with pytest.raises(rfgp.InvalidArgumentError, match="not exponentials"):
            law.exp()
        with pytest.raises(rfgp.InvalidArgumentError, match="not exponentials"):
            fitted["poisson"].predict(new).exp().observed()
        other = fitted["gamma"].predict(new)
        with pytest.raises(rfgp.InvalidArgumentError, match="same likelihood"):
            rfgp.metrics.kl_divergence(fitted["poisson"].predict(new), other)
        assert "Poisson" in repr(law)


def test_given_parameters_are_held_and_others_learned():
    x, y, _, _ = table("student-t")
    gp = model(StudentT(df=3.0)).fit(x, y)
    assert "df" not in gp.hyperparameters.names
    assert float(gp.hyperparameters.scale) == pytest.approx(2.0, rel=0.4)  # in the unit of the targets
    held = model(StudentT(df=3.0, scale=2.0)).fit(x, y)
    assert set(held.hyperparameters.names) == {"rbf.lengthscale", "rbf.outputscale", "mean"}
    assert float(held.log_marginal_likelihood()) <= float(gp.log_marginal_likelihood()) + 1e-6
    assert learned_parameters(model(NegativeBinomial(dispersion=0.5)).spec.options.likelihood) == ()


def test_the_unit_of_a_target_with_outliers_does_not_matter():
    x, y, new, _ = table("student-t")
    one = model("student-t").fit(x, y)
    other = model("student-t").fit(x, 1e3 * y)
    np.testing.assert_allclose(other.predict(new).mean, 1e3 * one.predict(new).mean, rtol=1e-4)
    np.testing.assert_allclose(
        other.predict(new).observed().variance, 1e6 * one.predict(new).observed().variance, rtol=1e-3
    )
    one_lml, other_lml = (float(gp.log_marginal_likelihood()) for gp in (one, other))
    assert other_lml == pytest.approx(one_lml - len(y) * np.log(1e3), abs=1e-2)


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")  # 24 rows are off by 200
def test_outliers_move_student_t_less_than_gaussian():
    x, y, new, _ = table("student-t")
    rng = np.random.default_rng(1)
    y = y.copy()
    y[rng.choice(ROWS, 24, replace=False)] += rng.choice([-1, 1], 24) * 200
    truth = 50 + 10 * function(new)
    errors = {
        name: np.abs(model(name).fit(x, y).predict(new).mean - truth).mean() for name in ("student-t", "gaussian")
    }
    assert errors["student-t"] < 0.5 * errors["gaussian"]


def test_rows_in_blocks_are_those_in_memory():
    x, y, new, _ = table("poisson", 3000)
    source = rfgp.tables.Batches(lambda: ((x[i : i + 700], y[i : i + 700]) for i in range(0, len(x), 700)))
    options = {"lengthscale": np.array([1.0, 1.5]), "outputscale": 1.0}
    whole, blocks = (model("poisson", **options).condition(*given) for given in ((x, y), (source,)))
    for gp in (whole, blocks):
        gp.hyperparameters.mean = 1.0
    blocks.condition(source)
    whole.condition(x, y)
    np.testing.assert_allclose(blocks.predict(new).mean, whole.predict(new).mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(blocks.predict(new).std, whole.predict(new).std, rtol=1e-7)
    assert float(blocks.log_marginal_likelihood()) == pytest.approx(float(whole.log_marginal_likelihood()), abs=1e-6)


def test_a_killed_fit_goes_on(tmp_path):
    x, y, new, _ = table("bernoulli")

    def stop(done, _):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model("bernoulli").fit(x, y, checkpoint=tmp_path / "c", callback=stop)
    again = model("bernoulli").fit(x, y, checkpoint=tmp_path / "c")
    straight = model("bernoulli").fit(x, y)
    np.testing.assert_array_equal(again.predict(new).mean, straight.predict(new).mean)
    with pytest.raises(rfgp.CheckpointError):
        model(Bernoulli(link="probit")).fit(x, y, checkpoint=tmp_path / "c")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [ROWS, 9000])
def test_single_precision_is_near_double(rows):
    x, y, new, _ = table("bernoulli", rows)
    one, other = (model("bernoulli", dtype=dtype).fit(x, y) for dtype in (torch.float64, torch.float32))
    np.testing.assert_allclose(other.predict(new).observed().mean, one.predict(new).observed().mean, atol=0.02)


def test_classes_that_columns_separate_have_a_finite_fit():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((150, 2))
    gp = model("bernoulli").fit(x, (x[:, 0] > 0).astype(float))
    p = gp.predict(x).observed().mean
    assert np.isfinite(p).all()
    assert ((p > 0.5) == (x[:, 0] > 0)).mean() > 0.97


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rfgp.VarianceStarvationWarning", "ignore::rfgp.JitterWarning")
@pytest.mark.filterwarnings("ignore::rfgp.LatentVarianceWarning")
@pytest.mark.thinned(100, slow=3)
@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "gamma", "student-t", "bernoulli"])
def test_extreme_targets_have_finite_fits(name, is_exact):
    """Counts to 10^7, values over sixty orders, Cauchy's errors, one success, and rows that repeat each other."""
    rng = np.random.default_rng(0)
    extreme = {
        "poisson": rng.integers(0, 10**7, 40),
        "negative-binomial": np.r_[10**7, np.zeros(39)],
        "gamma": np.exp(rng.normal(0, 20, 40)),
        "student-t": 1e12 * rng.standard_cauchy(40),
        "bernoulli": np.r_[1, np.zeros(39)],
    }[name].astype(float)
    for X in (rng.standard_normal((40, 2)), np.repeat(rng.standard_normal((2, 2)), 20, axis=0)):
        coupling = rfgp.couplings.Energy()  # with weights no mode is found for the largest counts
        approximation = rfgp.Exact() if is_exact else rfgp.RandomFeatures(6, coupling=coupling, seed=0)
        gp = rfgp.GP(k.RBF(), name, approximation, seed=0).fit(X, extreme)
        law = gp.predict(np.vstack([X[:2], [[1e3, 1e3]]])).observed()
        assert np.isfinite(law.log_prob(extreme[:3])[:2]).all()
        assert np.isfinite(law.quantile(0.9)[:2]).all()
        assert not np.isnan(law.log_prob(extreme[:3])[2])  # e^f may overflow, as far from the rows as that is
        assert law.quantile(0.9)[2] >= law.quantile(0.1)[2]
        assert np.isfinite(gp.leave_one_out().log_prob).all()


def test_options_are_shown():
    assert "likelihood=Poisson()" in repr(model(Poisson()))
    assert "likelihood" not in repr(rfgp.GP())


class TestExposure:
    """y ~ e e^f: of counts it is an offset of the latent function."""

    def rows(self, rows=200):
        rng = np.random.default_rng(12)
        x, exposure = rng.standard_normal((rows, 2)), rng.uniform(0.2, 8.0, rows)
        return x, rng.poisson(exposure * np.exp(function(x))).astype(float), exposure

    @pytest.mark.parametrize(
        "options",
        [
            {"kernel": k.RBF(), "approximation": rfgp.RandomFeatures(30)},
            {"kernel": k.RBF(), "approximation": rfgp.RandomFeatures(30), "inference": "variational"},
            {"approximation": rfgp.Exact()},
        ],
    )
    @pytest.mark.filterwarnings("ignore::rfgp.OverdispersionWarning")  # of counts whose exposures are left out
    def test_the_log_rate_is_that_of_one_unit(self, options):
        x, y, exposure = self.rows()
        gp = rfgp.GP(**options, likelihood="poisson", seed=0).fit(x, y, exposure=exposure)
        blind = rfgp.GP(**options, likelihood="poisson", seed=0).fit(x, y)
        new = np.random.default_rng(13).uniform(-1, 1, (50, 2))
        assert np.sqrt(np.mean((gp.predict(new).mean - function(new)) ** 2)) < 0.3
        assert np.sqrt(np.mean((blind.predict(new).mean - function(new)) ** 2)) > 0.8
        assert gp.fit_report.log_marginal_likelihood > blind.fit_report.log_marginal_likelihood + 20

    def test_a_constant_exposure_moves_the_mean_alone(self):
        x, y, _ = self.rows()
        gp = model("poisson").condition(x, y)
        gp.hyperparameters.set(mean=float(gp.hyperparameters.mean))
        other = model("poisson").condition(x, y, exposure=np.full(len(y), 4.0))
        numbers = {name: gp.hyperparameters.value(name).detach() for name in gp.hyperparameters.names}
        other.hyperparameters.set(**{**numbers, "mean": float(gp.hyperparameters.mean) - np.log(4)})
        one, two = gp.predict(x), other.predict(x)
        np.testing.assert_allclose(one.mean - np.log(4), two.mean, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(one.observed().mean, two.observed(exposure=4.0).mean, rtol=1e-6)
        np.testing.assert_allclose(one.observed().quantile(0.9), two.observed(exposure=[4.0] * len(y)).quantile(0.9))
        np.testing.assert_allclose(gp.leave_one_out().log_prob, other.leave_one_out().log_prob, rtol=1e-5)
        assert float(gp.log_marginal_likelihood().detach()) == pytest.approx(
            float(other.log_marginal_likelihood().detach()), abs=1e-6
        )

    def test_the_gradient_is_that_of_the_evidence(self):
        x, y, exposure = self.rows(60)
        gp = model("negative-binomial").condition(x, y, exposure=exposure)
        assert_gradients(gp, step=1e-4, rel=1e-4, abs=1e-4)

    def test_it_stays_with_the_data(self, tmp_path):
        x, y, exposure = self.rows()
        gp = model("poisson").condition(x[:150], y[:150], exposure=exposure[:150])
        gp.save(tmp_path / "m", data=True)
        again = rfgp.load(tmp_path / "m").update(x[150:], y[150:], exposure=exposure[150:])
        whole = model("poisson").condition(x, y, exposure=exposure)
        again.hyperparameters.set(
            **{name: whole.hyperparameters.value(name).detach() for name in whole.hyperparameters.names}
        )
        np.testing.assert_allclose(again.predict(x).mean, whole.predict(x).mean, rtol=1e-5, atol=1e-6)

    def test_rows_joined_without_one_have_one(self):
        x, y, exposure = self.rows(60)
        mixed = model("poisson").condition(x[:30], y[:30], exposure=exposure[:30]).update(x[30:], y[30:])
        ones = model("poisson").condition(x[:30], y[:30], exposure=exposure[:30])
        ones.update(x[30:], y[30:], exposure=np.ones(30))
        np.testing.assert_allclose(mixed.predict(x).mean, ones.predict(x).mean, rtol=1e-7, atol=1e-9)

    def test_errors(self):
        x, y, exposure = self.rows(30)
        with pytest.raises(rfgp.InvalidArgumentError, match="positive and finite"):
            model("poisson").fit(x, y, exposure=-exposure)
        with pytest.raises(rfgp.DataError, match="one value for each target"):
            model("poisson").fit(x, y, exposure=exposure[:3])
        with pytest.raises(rfgp.InvalidArgumentError, match="counts or positive values"):
            model("bernoulli").fit(x, (y > 2).astype(float), exposure=exposure)
        with pytest.raises(rfgp.DataError, match="noise requires a Gaussian"):
            model("poisson").fit(x, y, noise=exposure)
        with pytest.raises(rfgp.InvalidArgumentError, match="exposure requires a likelihood of counts"):
            rfgp.ExactGP().condition(x, y).predict(x).observed(exposure=2.0)
        with pytest.raises(rfgp.InvalidArgumentError, match="positive and finite"):
            model("poisson").condition(x, y).predict(x).observed(exposure=0.0)
