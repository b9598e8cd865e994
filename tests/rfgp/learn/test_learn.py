import numpy as np
import pytest
import torch
from checks import fails
from frequency_draws import check_distribution, draws
from scipy import stats

import rfgp
from rfgp import couplings, learn, metrics, random, spectra
from rfgp.couplings.radial import histogram_quantile
from rfgp.learn import norms, pieces, search
from rfgp.learn.attention import SharedNormDistribution

GAUSSIAN = spectra.Gaussian()
X = torch.as_tensor(np.random.default_rng(0).standard_normal((30, 4)) / 2)


class TestPieces:
    def test_every_correlation_matrix_is_reached_and_no_other(self):
        rng = np.random.default_rng(0)
        theta = torch.as_tensor(rng.standard_normal((5, 5)) * 3)
        factor = pieces.factor(theta)
        correlation = factor @ factor.mT
        torch.testing.assert_close(correlation.diagonal(), torch.ones(5, dtype=torch.float64))
        assert torch.linalg.eigvalsh(correlation)[0] > 0
        rows = rng.standard_normal((5, 9))
        wanted = np.corrcoef(rows)
        lower = np.linalg.cholesky(wanted)
        again = pieces.factor(torch.as_tensor(lower / np.diag(lower)[:, None]))
        np.testing.assert_allclose(again @ again.mT, wanted, atol=1e-12)

    @pytest.mark.parametrize("spectrum", [GAUSSIAN, spectra.Matern(1.5)], ids=repr)
    def test_radial_quantiles_of_normals(self, spectrum):
        z = torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)
        expected = spectrum.radial_quantile(torch.as_tensor(stats.norm.cdf(z.detach())), 3)
        torch.testing.assert_close(pieces.Radial.apply(z, spectrum, 3), expected, rtol=1e-9, atol=0)
        assert torch.autograd.gradcheck(lambda v: pieces.Radial.apply(v, spectrum, 3), (z,), rtol=1e-4)
        r = expected.requires_grad_()
        assert torch.autograd.gradcheck(lambda v: pieces.LogDensity.apply(v, spectrum, 3), (r,), rtol=1e-4)

    def test_histograms_are_differentiable(self):
        heights = torch.tensor([1.2, 0.4, 1.4], dtype=torch.float64, requires_grad=True)
        u = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
        assert torch.autograd.gradcheck(lambda h: histogram_quantile(h, u)[0], (heights,))
        assert torch.autograd.gradcheck(lambda h: histogram_quantile(h, u)[1], (heights,))

    def test_gradients_reach_the_frequencies_through_the_features(self):
        omega = torch.randn(3, 4, generator=random.generator(0), dtype=torch.float64, requires_grad=True)
        weights = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64, requires_grad=True)

        def features(matrix, w):
            return rfgp.features.Fourier(couplings.Frequencies(matrix, w))(X[:3])

        assert torch.autograd.gradcheck(features, (omega, weights))
        torch.testing.assert_close(features(omega, weights), features(omega.detach(), weights.detach()))


class TestExpectedDivergence:
    def test_it_is_the_mean_over_targets(self):
        """By conditioning: the means differ by a matrix times y, and the covariance of y is known."""
        s2, n = 0.2, 12
        exact = GAUSSIAN.kernel_between(X, X).numpy()
        phi = rfgp.features.Fourier(couplings.IID().sample(6, 4, generator=random.generator(0)))(X).numpy()
        estimate = phi @ phi.T

        def posterior(k):
            gain = k[n:, :n] @ np.linalg.inv(k[:n, :n] + s2 * np.eye(n))
            return gain, k[n:, n:] + s2 * np.eye(18) - gain @ k[:n, n:]

        (g1, c1), (g2, c2) = posterior(exact), posterior(estimate)
        gaps = (g1 - g2) @ (exact[:n, :n] + s2 * np.eye(n)) @ (g1 - g2).T
        logs = np.linalg.slogdet(c2)[1] - np.linalg.slogdet(c1)[1]
        expected = 0.5 * (np.trace(np.linalg.solve(c2, c1 + gaps)) - 18 + logs)
        matrices = torch.as_tensor(exact), torch.as_tensor(estimate)
        assert float(metrics.expected_posterior_kl(*matrices, n, s2)) == pytest.approx(expected / 18)
        assert float(metrics.expected_posterior_kl(*matrices, n, s2, per_point=False)) == pytest.approx(expected)

    @pytest.mark.parametrize(("num_train", "noise"), [(0, 0.1), (30, 0.1), (5, 0.0)])
    def test_bad_arguments(self, num_train, noise):
        k = GAUSSIAN.kernel_between(X, X)
        with pytest.raises(rfgp.InvalidArgumentError, match="0 < num_train < n"):
            metrics.expected_posterior_kl(k, k, num_train, noise)


def judged(coupling, objective, m, d=4, draws=150):
    generator = random.generator(9)
    with torch.no_grad():
        values = [float(objective(coupling.sample(m, d, generator=generator))) for _ in range(draws)]
    return np.mean(values), np.std(values, ddof=1) / np.sqrt(draws)


class TestCopula:
    @pytest.mark.slow
    def test_it_finds_that_norms_should_be_opposite(self):
        """For two orthogonal frequencies the best copula is negatively monotone (Reid et al., 2024, Theorem 3.2)."""
        objective = learn.kernel_error(X[:, :2])
        found = learn.learn_copula(objective, 2, 2, num_steps=150, num_draws=8, learning_rate=0.2)
        assert found.coupling.correlation[0][1] < -0.8
        assert found.best < found.trace[0]
        assert found.best == min(found.trace)
        check_distribution(draws(found.coupling, 2, 2)[0], GAUSSIAN)

    def test_the_same_seed_gives_the_same_copula(self):
        options = {"num_steps": 20, "num_draws": 2, "size": 6, "seed": 3}
        one, two = (learn.learn_copula(learn.kernel_error(X), 6, 4, **options) for _ in range(2))
        assert one.coupling.correlation == two.coupling.correlation
        assert one.trace == two.trace
        assert len(one.coupling.correlation) == 6
        assert one.num_steps == 20
        assert one.message == "All steps were taken."

    def test_it_stops_when_nothing_improves(self):
        def flat(frequencies):
            return 1.0 + 0 * frequencies.dense().sum()

        found = learn.learn_copula(flat, 4, 4, num_draws=1, patience=2)
        assert found.num_steps == 20
        assert found.message == "No improvement in 20 steps."

    def test_objectives_that_cannot_be_used(self):
        for wrong in (lambda f: 1.0, lambda f: f.dense(), lambda f: f.dense().sum() * float("nan")):
            with pytest.raises(rfgp.InvalidArgumentError, match="finite 0-d tensor"):
                learn.learn_copula(wrong, 4, 4)
        with pytest.raises(rfgp.InvalidArgumentError, match="differentiable"):
            learn.learn_copula(lambda f: torch.tensor(1.0), 4, 4)
        with pytest.raises(rfgp.InvalidArgumentError, match="size must be a positive"):
            learn.learn_copula(learn.kernel_error(X), 4, 4, size=0)
        with pytest.raises(rfgp.InvalidArgumentError, match="num_draws must be a positive"):
            learn.learn_radial_distribution(learn.kernel_error(X), 4, 4, num_draws=0)
        with pytest.raises(rfgp.InvalidArgumentError, match="num_steps must be a positive integer"):
            learn.learn_copula(learn.kernel_error(X), 4, 4, num_steps=0)
        for learn_something in (learn.learn_copula, learn.learn_radial_distribution):
            with pytest.raises(rfgp.InvalidArgumentError, match="learning_rate must be positive, got nan"):
                learn_something(learn.kernel_error(X), 4, 4, learning_rate=float("nan"))
        with pytest.raises(rfgp.InvalidArgumentError, match="at least 2 finite rows"):
            learn.kernel_error(X[:1])


class TestSearch:
    def search(self, draw, theta, **options):
        chosen = {"num_steps": 60, "num_draws": 2, "learning_rate": 2.0, "patience": 20, "seed": 0, **options}
        return search.Search(lambda f: f.dense().square().mean(), draw, [theta], **chosen)

    def test_the_best_parameters_are_left_in_place(self):
        theta = torch.full((1, 1), 1e-3, dtype=torch.float64, requires_grad=True)
        trace, _, _ = self.search(lambda g: couplings.Frequencies(theta), theta, num_steps=10).run(progress=False)
        assert trace[-1] > trace[0]
        assert theta.item() == 1e-3

    def test_validation_draws_differ_from_training_draws(self):
        theta, seen = torch.ones(1, 1, dtype=torch.float64, requires_grad=True), []

        def draw(generator):
            seen.append((torch.rand(1, generator=generator).item(), torch.is_grad_enabled()))
            return couplings.Frequencies(theta)

        self.search(draw, theta, num_steps=12).run(progress=False)
        teach, judge = ({value for value, grad in seen if grad == kind} for kind in (True, False))
        assert (len(teach), len(judge)) == (24, 8)
        assert not teach & judge


class TestRadialDistribution:
    @pytest.mark.parametrize("kind", ["fourier", "laplace"])
    @pytest.mark.slow
    def test_its_draws_are_those_of_the_coupling_it_returns(self, kind):
        scale = 1.0 if kind == "fourier" else 0.4
        objective = learn.kernel_error(scale * X, features=kind)
        found = learn.learn_radial_distribution(objective, 12, 4, features=kind, num_bins=4, num_steps=30)
        value, error = judged(found.coupling, objective, 12)
        start, _ = judged(couplings.Energy(kind, weighted=True), objective, 12)
        assert abs(value - found.best) < 0.1 * found.best + 6 * error
        assert value < start + 6 * error
        omega, weights = draws(found.coupling, 12, 4)
        check_distribution(omega, GAUSSIAN, weights)

    def test_the_start_is_returned_where_it_is_better(self, monkeypatch):
        class Spoiled(couplings.Energy):
            def _draw(self, *arguments):
                drawn = super()._draw(*arguments)
                return couplings.Frequencies(3 * drawn.dense()) if self.proposal_histogram else drawn

        monkeypatch.setattr(norms, "Energy", Spoiled)
        found = learn.learn_radial_distribution(learn.kernel_error(X), 12, 4, num_bins=4, num_steps=1, num_draws=1)
        assert found.coupling.weighted
        assert found.best == pytest.approx(found.trace[0], rel=0.5)

    @pytest.mark.slow
    def test_it_lowers_the_divergence_of_posteriors(self):
        objective = learn.posterior_divergence(2 * X, 20, 0.05)
        found = learn.learn_radial_distribution(objective, 24, 4, num_bins=8, num_steps=80, num_draws=2)
        judges = (couplings.Energy(), couplings.Energy(weighted=True), found.coupling)
        (plain, a), (weighted, c), (learned, b) = (judged(coupling, objective, 24) for coupling in judges)
        assert (plain - learned) / np.hypot(a, b) > 6
        assert (learned - weighted) / np.hypot(b, c) < 4


def attention_inputs(seed, n=24, d=8):
    generator = random.generator(seed)
    return (torch.randn(4, n, d, generator=generator, dtype=torch.float64) for _ in range(2))


class TestAttention:
    def test_the_objective_is_the_error_of_scores_over_their_sums(self):
        q, k = (x[0] for x in attention_inputs(0))
        drawn = couplings.Energy("laplace", weighted=True).sample(6, 8, generator=random.generator(1))
        omega, w = drawn.dense().numpy(), drawn.weights.numpy()
        x, y = (z.numpy() / 8**0.25 for z in (q, k))
        left, right = (np.exp(z @ omega.T - 0.5 * (z**2).sum(1, keepdims=True)) for z in (x, y))
        estimate, exact = (left * w) @ right.T, np.exp(x @ y.T)
        errors = estimate / estimate.sum(1, keepdims=True) - exact / exact.sum(1, keepdims=True)
        assert float(learn.attention_error(q, k)(drawn)) == pytest.approx((errors**2).mean())
        halved = learn.attention_error(q / 2**0.5, k / 2**0.5, scale=2 / 8**0.5)
        assert float(halved(drawn)) == pytest.approx((errors**2).mean())

    def test_it_is_differentiable(self):
        objective = learn.attention_error(*(x[:, :3] for x in attention_inputs(0)))
        omega = torch.randn(3, 8, generator=random.generator(0), dtype=torch.float64, requires_grad=True)
        weights = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda m, w: objective(couplings.Frequencies(m, w)), (omega, weights))

    @pytest.mark.slow
    def test_learned_spectrum_is_better_on_other_inputs(self):
        found = learn.learn_attention(learn.attention_error(*attention_inputs(0)), 32, 8, num_steps=100, num_draws=4)
        assert isinstance(found.coupling.base, couplings.SharedNorms)
        objective = learn.attention_error(*attention_inputs(1))
        rivals = ("monotone-antithetic", "orthogonal", "pairwise")
        (mine, a), *others = (judged(couplings.by_name(c), objective, 32, 8, 200) for c in (found.coupling, *rivals))
        for value, b in others:
            assert (value - mine) / np.hypot(a, b) > 6
        omega, weights = draws(found.coupling, 32, 8)
        check_distribution(omega, GAUSSIAN, weights)

    def test_its_draws_are_those_of_the_coupling(self):
        shared = SharedNormDistribution(half=10, num_dims=4, num_bins=3)
        with torch.no_grad():
            shared.angle.fill_(0.9), shared.log_b.fill_(-0.1), shared.logits.copy_(torch.tensor([0.3, 0.5, -0.4]))
        coupling = shared.coupling()
        assert coupling.base.correlation == pytest.approx(np.sin(0.9) ** 2)
        drawn = coupling.sample(20, 4, generator=random.generator(0))

        def same_rows(other):
            """The same norms and weights, in any order: all of a block share theirs, blocks are correlated."""
            mine = other.draw(random.generator(0))
            for a, b in ((mine.weights, drawn.weights), (mine.dense().norm(dim=1), drawn.dense().norm(dim=1))):
                torch.testing.assert_close(a.detach().sort().values, b.sort().values)

        same_rows(shared)
        with torch.no_grad():
            shared.angle.fill_(0.8)  # the planted error: another correlation
        assert fails(same_rows, shared)

    def test_the_start_is_returned_where_nothing_is_better(self):
        def flat(frequencies):
            return 1.0 + frequencies.weights.sub(1).abs().sum() + 0 * frequencies.dense().sum()

        found = learn.learn_attention(flat, 8, 4, num_draws=1, patience=1)
        assert isinstance(found.coupling.base, couplings.Monotone)

    def test_bad_arguments(self):
        q, k = attention_inputs(0)
        with pytest.raises(rfgp.InvalidArgumentError, match="must be even, got 7"):
            learn.learn_attention(learn.attention_error(q, k), 7, 8)
        with pytest.raises(rfgp.InvalidArgumentError, match="must share d"):
            learn.attention_error(q, k[..., :3])
        with pytest.raises(rfgp.InvalidArgumentError, match="finite"):
            learn.attention_error(q, k * float("nan"))
