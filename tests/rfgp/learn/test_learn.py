"""Learned couplings: their pieces by differences, what they find, and that the result draws as the search did."""

import numpy as np
import pytest
import torch
from frequency_draws import check_distribution, draws
from refusals import refused
from torch.distributions import MultivariateNormal, kl_divergence

import rfgp
from rfgp import couplings, learn, metrics, spectra
from rfgp.learn import learners

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
    @pytest.mark.parametrize("spectrum", [GAUSSIAN, spectra.Matern(1.5)], ids=repr)
    def test_radial_quantiles_of_normals_have_derivatives(self, spectrum):
        z = torch.linspace(-4, 4, 9, dtype=F64, requires_grad=True)
        norms = learners.Radial.apply(z, spectrum, 3)
        expected = spectrum.radial_quantile(torch.special.ndtr(z.detach()), 3)
        torch.testing.assert_close(norms.detach(), expected, rtol=1e-9, atol=0)
        for function, point in ((learners.Radial, z), (learners.LogDensity, norms.detach().requires_grad_())):
            assert torch.autograd.gradcheck(lambda v, f=function: f.apply(v, spectrum, 3), (point,), rtol=1e-4)


class TestObjectives:
    def test_divergence_is_the_mean_over_targets(self):
        """By the chain rule: the divergence of all targets less that of the first ones."""
        s2, drawn = 0.2, couplings.IID().sample(6, 4, seed=0)
        exact = (-0.5 * torch.cdist(X, X) ** 2).exp()
        estimate = ((X[:, None] - X) @ drawn.dense().T).cos().mean(2)

        def divergence(n):
            noise = s2 * torch.eye(n, dtype=F64)
            laws = (MultivariateNormal(torch.zeros(n).double(), k[:n, :n] + noise) for k in (exact, estimate))
            return float(kl_divergence(*laws))

        expected = pytest.approx(divergence(30) - divergence(12))
        assert float(metrics.expected_posterior_kl(exact, estimate, 12, s2, per_point=False)) == expected
        assert 18 * float(metrics.expected_posterior_kl(exact, estimate, 12, s2)) == expected
        assert 18 * float(learn.posterior_divergence(X, 12, s2)(drawn)) == expected
        assert float(learn.kernel_error(X)(drawn)) == pytest.approx(float((estimate - exact).square().mean().sqrt()))

    def test_attention_error_is_that_of_scores_over_their_sums(self):
        q, k = (x[0] for x in attention_inputs(0))
        drawn = couplings.Energy("laplace", weighted=True).sample(6, 8, seed=1)
        x, y = q / 8**0.25, k / 8**0.25
        left, right = ((z @ drawn.dense().T - 0.5 * z.square().sum(1, keepdim=True)).exp() for z in (x, y))
        estimate, exact = ((left * drawn.weights) @ right.T, (x @ y.T).exp())
        errors = estimate / estimate.sum(1, keepdim=True) - exact / exact.sum(1, keepdim=True)
        expected = pytest.approx(float(errors.square().mean()))
        assert float(learn.attention_error(q, k)(drawn)) == expected
        assert float(learn.attention_error(q / 2**0.5, k / 2**0.5, scale=2 / 8**0.5)(drawn)) == expected


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
        correlation = np.array(one.coupling.correlation)
        np.testing.assert_allclose(correlation.diagonal(), np.ones(6))
        assert 0 < np.linalg.eigvalsh(correlation)[0] < 1 - 1e-3
        assert (one.num_steps, one.message) == (11, "All steps were taken.")

    def test_validation_draws_differ_from_training_draws(self):
        seen = {True: set(), False: set()}  # with and without gradients

        def objective(frequencies):
            seen[torch.is_grad_enabled()].add(float(frequencies.dense().detach().abs().sum()))
            return frequencies.dense().square().mean()

        found = learn.learn_copula(objective, 4, 4, num_steps=12, num_draws=2)
        assert len(seen[True]) == 24
        assert len(seen[False]) == 8 * len(found.trace)
        assert not seen[True] & seen[False]

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
        for name in ("monotone-antithetic", "orthogonal"):
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
        (lambda: learn.kernel_error(X[:1]), "2 finite rows"),
        (lambda: learn.learn_attention(ERROR, 7, 8), "even"),
        (lambda: learn.attention_error(Q, K[..., :3]), "share d"),
        *((lambda n=n: metrics.expected_posterior_kl(X @ X.T, X @ X.T, n, 0.1), "num_train") for n in (0, 30)),
    ],
)
def test_bad_arguments_are_named(call, word):
    refused(call, rfgp.InvalidArgumentError, word)
