"""Models by variational inference, those whose noise varies among them."""

import numpy as np
import pytest
import torch
from model_checks import assert_update_is_condition

import graphs
import rfgp
from rfgp.likelihoods import Bernoulli, Heteroscedastic

ROWS, NEW = 200, 300
UNIT = 10.0


def function(x):
    return np.sin(2 * x[:, 0]) + 0.7 * x[:, 1]


def noise_variance(x):
    return np.exp(1.5 * x[:, 1] - 2)


def noisy(rows=ROWS):
    """Rows with noise that grows with the second column, new ones beside."""
    rng = np.random.default_rng(6)
    x, new = rng.standard_normal((rows, 2)), rng.standard_normal((NEW, 2))
    y, observed = (50 + UNIT * (function(z) + noise_variance(z) ** 0.5 * rng.standard_normal(len(z))) for z in (x, new))
    return x, y, new, observed


def labels():
    rng = np.random.default_rng(7)
    x, new = rng.standard_normal((ROWS, 2)), rng.standard_normal((NEW, 2))
    y, observed = ((rng.uniform(size=len(z)) < 1 / (1 + np.exp(-3 * function(z)))).astype(float) for z in (x, new))
    return x, y, new, observed


def table(**options):
    return rfgp.SparseSpectrumGP(num_frequencies=40, seed=0, **options)


@pytest.fixture(scope="module")
def fitted():
    """Of labels, and of rows whose noise varies."""
    return {
        "bernoulli": table(likelihood="bernoulli", inference="variational").fit(*labels()[:2]),
        "heteroscedastic": table(likelihood="heteroscedastic").fit(*noisy()[:2]),
    }


@pytest.mark.parametrize("name", ["bernoulli", "heteroscedastic"])
class TestEvery:
    def test_the_fit_is_a_maximum_of_the_bound(self, fitted, name):
        gp = fitted[name]
        assert gp.fit_report.converged
        assert gp.state.inference == "variational"
        gp.hyperparameters.zero_grad()
        value = gp.log_marginal_likelihood()
        value.backward()
        assert float(value.detach()) == pytest.approx(gp.fit_report.log_marginal_likelihood, abs=1e-3)
        slopes = {n.replace("/", "."): p.grad.clone() for n, p in gp.hyperparameters.raw.items()}
        inside = {n: slope for n, slope in slopes.items() if n not in gp.fit_report.at_bounds}
        steepest, values = max(float(g.abs().max()) for g in inside.values()), gp.state.hyperparameters
        for step in (0.003, 0.03, 0.3):  # along the gradient, on the scale of logarithms
            moved = values.replaced({n: values.raw[n].detach() + step * g / steepest for n, g in inside.items()})
            found = gp.state.at(moved).log_marginal_likelihood()
            assert float(found.detach()) < float(value.detach()) + 0.02

    def test_it_predicts(self, fitted, name):
        new, observed = (labels if name == "bernoulli" else noisy)()[2:]
        gp = fitted[name]
        found = gp.predict(new).observed().log_prob(observed).mean()
        assert gp.fit_report.leave_one_out == pytest.approx(found, abs=0.25)
        assert gp.leave_one_out().log_prob.mean() == pytest.approx(gp.fit_report.leave_one_out)

    def test_an_update_is_a_condition_on_all_rows(self, fitted, name):
        x, y, new, _ = (labels if name == "bernoulli" else noisy)()
        assert_update_is_condition(fitted[name], x, y, new, 150, rtol=1e-3, atol=1e-3, variance_rtol=1e-3)

    def test_the_exact_process_is_near(self, fitted, name):
        new = noisy()[2]
        exact = fitted[name].exact().predict(new).observed()
        near, far = (
            fitted[name].with_approximation(rfgp.RandomFeatures(m, seed=1)).predict(new).observed() for m in (400, 5)
        )
        assert np.abs(near.mean - exact.mean).mean() < 0.3 * np.abs(far.mean - exact.mean).mean()
        assert np.abs(near.variance - exact.variance).mean() < 0.5 * np.abs(far.variance - exact.variance).mean()

    def test_graph_fields_use_a_precision_or_dense_kernel(self, name):
        grid = graphs.Graph.from_grid((7, 8))
        rng = np.random.default_rng(3)
        nodes = rng.permutation(56)[:40]
        f = np.sin(np.arange(56) / 9)[nodes]
        y = (rng.uniform(size=40) < 1 / (1 + np.exp(-3 * f))).astype(float)
        if name == "heteroscedastic":
            y = f + 0.3 * rng.standard_normal(40)
        kernel, laws = graphs.kernels.Matern(nu=2, kappa=3.0), []
        for features in ("exact", "precision"):
            gp = rfgp.GraphGP(grid, kernel, features, likelihood=name, inference="variational", seed=0)
            gp.condition(nodes, y)
            laws.append((gp.log_marginal_likelihood().detach(), gp.predict(np.arange(56)).observed()))
        assert float(laws[0][0]) == pytest.approx(float(laws[1][0]), abs=1e-4)
        np.testing.assert_allclose(laws[0][1].mean, laws[1][1].mean, atol=1e-3)
        np.testing.assert_allclose(laws[0][1].variance, laws[1][1].variance, rtol=1e-2)


class TestNoiseThatVaries:
    def test_it_is_found(self, fitted):
        _, _, new, observed = noisy()
        gp = fitted["heteroscedastic"]
        p = gp.predict(new)
        own = p.observed().variance - p.variance
        truth = UNIT**2 * noise_variance(new)
        assert np.corrcoef(np.log(own), np.log(truth))[0, 1] > 0.9
        assert np.abs(np.log(own / truth)).mean() < 0.5
        plain = table().fit(*noisy()[:2])
        assert rfgp.metrics.nlpd(observed, p) < rfgp.metrics.nlpd(observed, plain.predict(new)) - 0.2
        assert {"noise", "noise.rbf.lengthscale", "noise.rbf.outputscale"} <= set(gp.hyperparameters.names)

    def test_noise_that_does_not_vary_is_found_too(self):
        rng = np.random.default_rng(8)
        x = rng.standard_normal((150, 1))
        y = np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(150)
        gp = table(likelihood="heteroscedastic").fit(x, y)
        new = np.linspace(-1.3, 1.3, 20)[:, None]  # within nine tenths of the rows
        own = gp.predict(new).observed().variance - gp.predict(new).variance
        np.testing.assert_allclose(own, 0.09, rtol=0.35)

    def test_distribution_of_an_observation(self, fitted):
        """Moments, probabilities and quantiles against draws; the density against its integral."""
        law = fitted["heteroscedastic"].predict(noisy()[2][:6]).observed()
        draws = law.sample(40_000, seed=1)
        np.testing.assert_array_less(np.abs(law.mean - draws.mean(0)), 6 * draws.std(0) / 200)
        np.testing.assert_allclose(law.variance, draws.var(0), rtol=0.1)
        q = law.quantile([0.1, 0.5, 0.9])
        for level, edge in zip((0.1, 0.5, 0.9), q, strict=True):
            np.testing.assert_allclose(law.cdf(edge), level, atol=1e-6)
            np.testing.assert_allclose((draws <= edge).mean(0), level, atol=6 * 0.5 / 200)
        places = np.linspace(q[1] - 150, q[1] + 150, 3001)
        density = np.exp([law.log_prob(row) for row in places])
        np.testing.assert_allclose((density * (places[1] - places[0])).sum(0), 1, atol=1e-3)
        assert law.observed() is law
        assert np.isfinite(rfgp.metrics.crps(noisy()[3][:6], law))

    def test_the_unit_of_the_targets_does_not_matter(self, fitted):
        x, y, new, _ = noisy()
        other = table(likelihood="heteroscedastic").fit(x, 1000 * y - 7)
        one, two = (gp.predict(new).observed() for gp in (fitted["heteroscedastic"], other))
        np.testing.assert_allclose(1000 * one.mean - 7, two.mean, rtol=1e-3)
        np.testing.assert_allclose(1e6 * one.variance, two.variance, rtol=2e-2)
        ratio = float(other.hyperparameters.noise / fitted["heteroscedastic"].hyperparameters.noise)
        assert ratio == pytest.approx(1e6, rel=0.02)

    def test_functions_and_divergences_are_of_the_function(self, fitted):
        gp, new = fitted["heteroscedastic"], noisy()[2][:5]
        drawn = gp.sample_functions(4000, seed=0)(new)
        assert drawn.shape == (4000, 5)
        np.testing.assert_allclose(drawn.mean(0), gp.predict(new).mean, atol=6 * drawn.std() / 4000**0.5)
        p = gp.predict(new)
        assert rfgp.metrics.kl_divergence(p, p) == pytest.approx(0, abs=1e-8)

    def test_a_given_noise_is_held(self):
        x, y, _, _ = noisy(80)
        gp = table(likelihood=Heteroscedastic(noise=5.0)).condition(x, y)
        assert "noise" not in gp.hyperparameters.names
        assert gp.predict(x[:3]).observed().likelihood.noise == pytest.approx(5.0 / y.std(ddof=1) ** 2, rel=1e-6)

    def test_fields_on_roads(self, tmp_path):
        made = rfgp.datasets.make_roads(seed=0)
        network = graphs.RoadNetwork.from_roads(made)
        sensors = np.stack([made.sensor_edges, made.sensor_fractions], axis=1)
        known = ~np.isnan(made.values)
        gp = rfgp.RoadGP(network, likelihood="heteroscedastic", seed=0)
        gp.condition(sensors[known], made.values[known])
        gp.save(tmp_path / "m")
        one, two = (each.predict([[0, 0.25], [3, 0.5]]).observed() for each in (gp, rfgp.load(tmp_path / "m")))
        np.testing.assert_allclose(one.interval(0.9), two.interval(0.9))


def test_single_precision_is_near_double(fitted):
    x, y, new, _ = labels()
    gp = fitted["bernoulli"]
    single = table(likelihood="bernoulli", inference="variational", dtype=torch.float32)
    single.condition(x.astype(np.float32), y.astype(np.float32))
    single.hyperparameters.set(**{name: gp.hyperparameters.value(name).detach() for name in gp.hyperparameters.names})
    np.testing.assert_allclose(
        single.predict(new.astype(np.float32)).observed().mean, gp.predict(new).observed().mean, atol=0.02
    )


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"likelihood": "student-t", "inference": "variational"}, "must be 'laplace'"),
            ({"likelihood": "heteroscedastic", "inference": "laplace"}, "must be 'variational'"),
            ({"inference": "variational"}, "must be None"),
            ({"likelihood": "bernoulli", "inference": "mcmc"}, "'laplace' or 'variational'"),
        ],
    )
    def test_options(self, options, words):
        with pytest.raises(rfgp.InvalidArgumentError, match=words):
            rfgp.SparseSpectrumGP(**options)

    def test_functionals_have_no_observations(self, fitted):
        p = fitted["bernoulli"].predict(noisy()[2][:2]).linear([1, -1])
        assert np.isfinite(p.mean).all()
        with pytest.raises(rfgp.InvalidArgumentError, match="no observations under this likelihood"):
            p.observed()

    def test_rows_in_blocks(self):
        x, y, _, _ = labels()
        source = rfgp.tables.Batches(lambda: iter([(x, y)]))
        with pytest.raises(rfgp.InvalidArgumentError, match="Variational inference needs all rows in memory"):
            table(likelihood=Bernoulli(), inference="variational").fit(source)
