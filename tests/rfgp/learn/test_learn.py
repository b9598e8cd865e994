"""Learned couplings: their pieces by differences, what they find, and that the result draws as the search did."""

import numpy as np
import pytest
import torch
from frequency_draws import check_distribution, draws
from scipy import stats

import rfgp
from rfgp import couplings, learn, metrics, spectra
from rfgp.learn import pieces

F64 = torch.float64
GAUSSIAN = spectra.Gaussian()
X = torch.as_tensor(np.random.default_rng(0).standard_normal((30, 4)) / 2)


def attention_inputs(seed, n=24, d=8):
    rng = np.random.default_rng(seed)
    return (torch.from_numpy(rng.standard_normal((4, n, d))) for _ in range(2))


def judged(coupling, objective, m, d=4, count=150):
    """Return the mean of an objective over draws, and its standard error."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        values = [float(objective(coupling.sample(m, d, generator=generator))) for _ in range(count)]
    return np.mean(values), np.std(values, ddof=1) / np.sqrt(count)


class TestPieces:
    def test_every_correlation_matrix_is_reached_and_no_other(self):
        rng = np.random.default_rng(0)
        factor = pieces.factor(torch.as_tensor(rng.standard_normal((5, 5)) * 3))
        torch.testing.assert_close((factor @ factor.mT).diagonal(), torch.ones(5, dtype=F64))
        wanted = np.corrcoef(rng.standard_normal((5, 9)))
        lower = np.linalg.cholesky(wanted)
        again = pieces.factor(torch.as_tensor(lower / np.diag(lower)[:, None]))
        np.testing.assert_allclose(again @ again.mT, wanted, atol=1e-12)

    @pytest.mark.parametrize(
        ("spectrum", "quantile"),
        [(GAUSSIAN, stats.chi(3).ppf), (spectra.Matern(1.5), lambda u: np.sqrt(3 * stats.f.ppf(u, 3, 3)))],
        ids=["gaussian", "matern"],
    )
    def test_radial_quantiles_of_normals_have_derivatives(self, spectrum, quantile):
        z = torch.linspace(-4, 4, 9, dtype=F64, requires_grad=True)
        norms = pieces.Radial.apply(z, spectrum, 3)
        np.testing.assert_allclose(norms.detach(), quantile(stats.norm.cdf(z.detach())), rtol=1e-9)
        assert torch.autograd.gradcheck(lambda v: pieces.Radial.apply(v, spectrum, 3), (z,), rtol=1e-4)
        r = norms.detach().requires_grad_()
        assert torch.autograd.gradcheck(lambda v: pieces.LogDensity.apply(v, spectrum, 3), (r,), rtol=1e-4)


class TestObjectives:
    def test_divergence_is_the_mean_over_targets(self):
        """By conditioning: the means differ by a matrix times y, and the covariance of y is known."""
        s2, n = 0.2, 12
        drawn = couplings.IID().sample(6, 4, seed=0)
        exact = (-0.5 * torch.cdist(X, X) ** 2).exp().numpy()
        angles = (X[:, None] - X) @ drawn.dense().T
        estimate = angles.cos().mean(2).numpy()

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
        assert float(learn.posterior_divergence(X, n, s2)(drawn)) == pytest.approx(expected / 18)
        assert float(learn.kernel_error(X)(drawn)) == pytest.approx(np.sqrt(np.mean((estimate - exact) ** 2)))

    def test_attention_error_is_that_of_scores_over_their_sums(self):
        q, k = (x[0] for x in attention_inputs(0))
        drawn = couplings.Energy("laplace", weighted=True).sample(6, 8, seed=1)
        omega, w = drawn.dense().numpy(), drawn.weights.numpy()
        x, y = (z.numpy() / 8**0.25 for z in (q, k))
        left, right = (np.exp(z @ omega.T - 0.5 * (z**2).sum(1, keepdims=True)) for z in (x, y))
        estimate, exact = (left * w) @ right.T, np.exp(x @ y.T)
        errors = estimate / estimate.sum(1, keepdims=True) - exact / exact.sum(1, keepdims=True)
        assert float(learn.attention_error(q, k)(drawn)) == pytest.approx((errors**2).mean())
        halved = learn.attention_error(q / 2**0.5, k / 2**0.5, scale=2 / 8**0.5)
        assert float(halved(drawn)) == pytest.approx((errors**2).mean())

    @pytest.mark.parametrize(
        "objective",
        [
            learn.attention_error(*(x[:, :3, :4] for x in attention_inputs(0))),
            learn.posterior_divergence(X[:8], 4, 0.1),
            learn.kernel_error(X[:6] / 2, features="laplace"),
        ],
        ids=["attention", "divergence", "kernel"],
    )
    def test_objectives_are_differentiable(self, objective):
        omega = couplings.IID().sample(3, 4, seed=0).dense().requires_grad_()
        weights = torch.tensor([0.5, 1.0, 1.5], dtype=F64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda m, w: objective(couplings.Frequencies(m, w)), (omega, weights))


class TestCopula:
    @pytest.mark.slow
    def test_it_finds_that_norms_should_be_opposite(self):
        """For two orthogonal frequencies the best copula is negatively monotone (Reid et al., 2024, Theorem 3.2)."""
        objective = learn.kernel_error(X[:, :2])
        found = learn.learn_copula(objective, 2, 2, num_steps=100, num_draws=8, learning_rate=0.2)
        assert found.coupling.correlation[0][1] < -0.8
        assert found.best == min(found.trace) < found.trace[0]
        check_distribution(draws(found.coupling, 2, 2)[0], GAUSSIAN)

    def test_the_same_seed_gives_the_same_copula(self):
        options = {"num_steps": 11, "num_draws": 1, "size": 6, "seed": 3}
        one, two = (learn.learn_copula(learn.kernel_error(X), 6, 4, **options) for _ in range(2))
        assert one.coupling.correlation == two.coupling.correlation
        assert one.trace == two.trace
        assert len(one.trace) == 3
        assert len(one.coupling.correlation) == 6
        assert (one.num_steps, one.message) == (11, "All steps were taken.")

    def test_validation_draws_differ_from_training_draws(self):
        seen = []

        def objective(frequencies):
            seen.append((float(frequencies.dense().detach().abs().sum()), torch.is_grad_enabled()))
            return frequencies.dense().square().mean()

        found = learn.learn_copula(objective, 4, 4, num_steps=12, num_draws=2)
        teach, judge = ({value for value, grad in seen if grad == kind} for kind in (True, False))
        assert len(teach) == 24
        assert len(judge) == 8 * len(found.trace)
        assert not teach & judge

    def test_it_stops_when_nothing_improves(self):
        found = learn.learn_copula(lambda f: 1.0 + 0 * f.dense().sum(), 4, 4, num_draws=1, patience=2)
        assert (found.num_steps, found.message) == (20, "No improvement in 20 steps.")
        assert np.allclose(found.coupling.correlation, np.eye(4))


class TestRadialDistribution:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["fourier", "laplace"])
    def test_its_draws_are_those_of_the_coupling_it_returns(self, kind):
        objective = learn.kernel_error((1.0 if kind == "fourier" else 0.4) * X, features=kind)
        found = learn.learn_radial_distribution(objective, 12, 4, features=kind, num_bins=4, num_steps=30)
        value, error = judged(found.coupling, objective, 12)
        start, _ = judged(couplings.Energy(kind, weighted=True), objective, 12)
        assert abs(value - found.best) < 0.1 * found.best + 6 * error
        assert value < start + 6 * error
        omega, weights = draws(found.coupling, 12, 4)
        check_distribution(omega, GAUSSIAN, weights)


class TestAttention:
    @pytest.mark.slow
    def test_learned_spectrum_is_better_on_other_inputs(self):
        found = learn.learn_attention(learn.attention_error(*attention_inputs(0)), 32, 8, num_steps=100, num_draws=4)
        assert isinstance(found.coupling.base, couplings.SharedNorms)
        objective = learn.attention_error(*attention_inputs(1))
        mine, a = judged(found.coupling, objective, 32, 8, 200)
        assert mine == pytest.approx(found.best, rel=0.2)
        for name in ("monotone-antithetic", "orthogonal", "pairwise"):
            value, b = judged(couplings.by_name(name), objective, 32, 8, 200)
            assert (value - mine) / np.hypot(a, b) > 6
        omega, weights = draws(found.coupling, 32, 8)
        check_distribution(omega, GAUSSIAN, weights)

    def test_the_start_is_returned_where_nothing_is_better(self):
        def flat(frequencies):
            return 1.0 + frequencies.weights.sub(1).abs().sum() + 0 * frequencies.dense().sum()

        found = learn.learn_attention(flat, 8, 4, num_draws=1, patience=1)
        assert isinstance(found.coupling.base, couplings.Monotone)


ERROR, (Q, K) = learn.kernel_error(X), attention_inputs(0)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        *(
            (lambda f=f: learn.learn_copula(f, 4, 4), "finite 0-d tensor")
            for f in (lambda f: 1.0, lambda f: f.dense(), lambda f: f.dense().sum() * float("nan"))
        ),
        (lambda: learn.learn_copula(lambda f: torch.tensor(1.0), 4, 4), "differentiable"),
        (lambda: learn.learn_copula(ERROR, 4, 4, size=0), "size"),
        (lambda: learn.learn_copula(ERROR, 4, 4, num_steps=0), "num_steps"),
        (lambda: learn.learn_radial_distribution(ERROR, 4, 4, num_draws=0), "num_draws"),
        (lambda: learn.learn_radial_distribution(ERROR, 4, 4, learning_rate=float("nan")), "learning_rate"),
        (lambda: learn.kernel_error(X[:1]), "2 finite rows"),
        (lambda: learn.learn_attention(ERROR, 7, 8), "even"),
        (lambda: learn.attention_error(Q, K[..., :3]), "share d"),
        (lambda: learn.attention_error(Q, K * float("nan")), "finite"),
        *(
            (lambda n=n, s=s: metrics.expected_posterior_kl(X @ X.T, X @ X.T, n, s), "num_train")
            for n, s in ((0, 0.1), (30, 0.1), (5, 0.0))
        ),
    ],
)
def test_bad_arguments_are_named(call, word):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        call()
