from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

import graphs
import rfgp
from rfgp import metrics


@dataclass
class Law:
    """A prediction with given moments, noise included."""

    mu: np.ndarray
    sigma: np.ndarray

    def observed(self):
        return self

    def mean_tensor(self):
        return torch.as_tensor(self.mu)

    def variance_tensor(self):
        return torch.as_tensor(np.diag(self.sigma).copy())

    def covariance_tensor(self):
        return torch.as_tensor(self.sigma)


def random_law(n, seed):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, n))
    return Law(rng.standard_normal(n), root @ root.T + np.eye(n))


def test_kl_against_torch_and_its_axioms():
    p, q = random_law(6, 0), random_law(6, 1)
    laws = [torch.distributions.MultivariateNormal(torch.as_tensor(x.mu), torch.as_tensor(x.sigma)) for x in (p, q)]
    expected = torch.distributions.kl_divergence(*laws).item()
    assert metrics.kl_divergence(p, q) == pytest.approx(expected, rel=1e-10)
    assert metrics.kl_divergence(p, q, per_point=True) == pytest.approx(expected / 6, rel=1e-10)
    assert metrics.kl_divergence(p, p) == pytest.approx(0, abs=1e-12)
    assert metrics.kl_divergence(q, p) != pytest.approx(expected)


def test_crps_by_quadrature():
    p, y = random_law(4, 2), np.array([0.1, 2.5, -3.0, 40.0])
    scores = []
    for mean, variance, value in zip(p.mu, np.diag(p.sigma), y, strict=True):
        law = stats.norm(mean, variance**0.5)
        parts = [quad(lambda t: law.cdf(t) ** 2, -60, value), quad(lambda t: law.sf(t) ** 2, value, 90)]  # noqa: B023
        scores.append(sum(part[0] for part in parts))
    assert metrics.crps(y, p) == pytest.approx(np.mean(scores), rel=1e-6)
    assert metrics.crps(p.mu, Law(p.mu, 1e-12 * np.eye(4))) == pytest.approx(0, abs=1e-5)


def test_crps_of_log_normal_matches_quadrature():
    gp = rfgp.ExactGP().condition(np.arange(6.0)[:, None], np.linspace(0, 1, 6))
    p = gp.predict(np.array([[2.5]]))
    law = p.observed()
    own = stats.lognorm(law.variance[0] ** 0.5, scale=np.exp(law.mean[0]))
    parts = [quad(lambda t: own.cdf(t) ** 2, 0, 1.9), quad(lambda t: own.sf(t) ** 2, 1.9, 200)]
    assert metrics.crps(np.array([1.9]), p.exp()) == pytest.approx(sum(part[0] for part in parts), rel=1e-6)


def test_nlpd_is_the_marginal_density():
    p = random_law(5, 2)
    y = np.arange(5.0)
    expected = -stats.norm(p.mu, np.sqrt(np.diag(p.sigma))).logpdf(y).mean()
    assert metrics.nlpd(y, p) == pytest.approx(expected)


def test_rmse_of_predictions_and_arrays():
    p = random_law(5, 3)
    assert metrics.rmse(p.mu + 2, p) == pytest.approx(2)
    assert metrics.rmse([0.0, 0.0], torch.tensor([3.0, 4.0])) == pytest.approx(12.5**0.5)


def test_relative_frobenius_error():
    assert metrics.relative_frobenius_error(1.1 * np.ones((3, 2)), np.ones((3, 2))) == pytest.approx(0.1)


def test_shapes_that_do_not_match():
    p, q = random_law(3, 0), random_law(4, 0)
    nothing = Law(np.zeros(0), np.zeros((0, 0)))
    with pytest.raises(rfgp.InvalidArgumentError, match="same points"):
        metrics.kl_divergence(p, q)
    with pytest.raises(rfgp.InvalidArgumentError, match="at least one"):
        metrics.kl_divergence(nothing, nothing)
    with pytest.raises(rfgp.InvalidArgumentError, match="y must have"):
        metrics.nlpd([1.0], p)
    with pytest.raises(rfgp.InvalidArgumentError, match="one shape"):
        metrics.relative_frobenius_error(np.ones((2, 2)), np.ones((2, 3)))


class TestEstimates:
    """Divergences at any number of points, by products with covariances that are never formed."""

    grid = graphs.Graph.from_grid((12, 12))
    kernel = graphs.kernels.RegularizedLaplacian(2, 2.0)
    points = np.arange(20, 120)

    def model(self, outputs=1):
        seen = np.random.default_rng(0).permutation(144)[:90]
        y = np.sin(seen / 20) + 0.1 * np.random.default_rng(1).standard_normal(90)
        gp = rfgp.GraphGP(self.grid, self.kernel, features="precision", noise=0.05, seed=0)
        return gp.condition(seen, np.stack([y, y**2], axis=1) if outputs == 2 else 3 * y)

    @pytest.mark.slow
    def test_they_agree_with_the_divergence_in_both_directions(self, limits):
        """|t| < 7 with 383 degrees of freedom: a false-alarm rate below 1e-10 for each of the two."""
        limits(max_dense=10)
        exact, found = self.model(), []
        p, q = exact.predict(self.points), exact.with_approximation(rfgp.RandomWalks(8, seed=1)).predict(self.points)
        for a, b in ((p, q), (q, p)):
            estimate, expected = metrics.estimate_kl(a, b, num_probes=384, seed=1), metrics.kl_divergence(a, b)
            assert abs(estimate.value - expected) < 7 * estimate.error
            found.append(estimate)
        total, each = (metrics.estimate_kl(p, q, num_probes=4, seed=1, per_point=share) for share in (False, True))
        assert (each.value, each.error) == pytest.approx((total.value / 100, total.error / 100), rel=1e-12)
        assert abs(found[0].value - found[1].value) > 7 * (found[0].error + found[1].error)
        assert abs(metrics.estimate_kl(p, p, num_probes=8).value) < 1e-9

    def test_fields_on_roads_have_them(self):
        """|t| < 7 with 255 degrees of freedom: a false-alarm rate below 1e-10."""
        roads = rfgp.datasets.make_roads(seed=0)
        X = np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)
        network = graphs.RoadNetwork.from_roads(roads)
        p, q = (
            rfgp.RoadGP(network, lengthscale=scale, seed=0).condition(X, roads.values).predict(X[:50])
            for scale in (300.0, 600.0)
        )
        estimate, expected = metrics.estimate_kl(p, q, num_probes=256), metrics.kl_divergence(p, q)
        assert abs(estimate.value - expected) < 7 * estimate.error

    def test_estimate_refuses_dense_and_mismatched_posteriors(self):
        exact, two = self.model(), self.model(outputs=2).predict(self.points)
        p, dense = exact.predict(self.points), exact.with_approximation(rfgp.TruncatedSpectrum(20))
        with pytest.raises(rfgp.InvalidArgumentError, match="kl_divergence"):
            metrics.estimate_kl(p, dense.predict(self.points))
        with pytest.raises(rfgp.InvalidArgumentError, match="one output"):
            metrics.estimate_kl(two, two)
        with pytest.raises(rfgp.InvalidArgumentError, match="num_probes must be an integer of at least 2, got 1"):
            metrics.estimate_kl(p, p, num_probes=1)
        with pytest.raises(rfgp.InvalidArgumentError, match="points"):
            metrics.estimate_kl(p, exact.predict(self.points[:4]))
