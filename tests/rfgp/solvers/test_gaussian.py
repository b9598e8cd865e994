"""Gaussian regression through weights and through kernels, and predictions, against dense formulas."""

import weakref

import numpy as np
import pytest
import torch
from checks import assert_mean
from scipy import stats

from rfgp.blocks import KernelBlock, Prior, WeightBlock
from rfgp.inference import ConditionedGP, Prediction
from rfgp.rows import Block, JoinedRows
from rfgp.solvers import solver_for
from rfgp.solvers.dense import DenseSolver
from rfgp.solvers.lowrank import LinearModel, LowRankSolver

ONE = torch.tensor(1.0, dtype=torch.float64)
ZERO = torch.zeros(1, dtype=torch.float64)


def problem(n, features, noise, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((n, features)) / np.sqrt(features)
    new = rng.standard_normal((4, features)) / np.sqrt(features)
    return phi, new, phi @ rng.standard_normal(features) + 0.3 * rng.standard_normal(n), np.broadcast_to(noise, n)


def dense_twin(phi, new, y, noise):
    """The n x n formulas with inverses and scipy's density: shares no code with the package."""
    covariance = phi @ phi.T + np.diag(noise)
    inverse = np.linalg.inv(covariance)
    cross = new @ phi.T
    density = stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
    return density, cross @ inverse @ y, new @ new.T - cross @ inverse @ cross.T


def build(kind, phi, y, noise):
    """Return the solver for features phi. The noise (n,) is that of the rows, beside a learned one of 1e-300."""
    inputs, targets, variance = (torch.as_tensor(np.array(a)) for a in (phi, y, noise))
    if bool((variance == variance[0]).all()):
        rows, learned = Block(inputs, targets[:, None]), variance[0]
    else:
        rows, learned = Block(inputs, targets[:, None], fixed_noise=variance), 1e-300 * ONE
    return of_rows(kind, lambda x: x, rows, learned)


def of_rows(kind, features, rows, noise, parameters=(), variance=ONE, mean=ZERO):
    def phi(x):
        return variance.sqrt() * features(x, *parameters)

    with torch.no_grad():
        width = phi(next(iter(rows.blocks(1))).inputs).shape[1]
    prior = Prior(weights=(WeightBlock(features, width, parameters, variance),))
    if kind == "primal":
        return LowRankSolver(LinearModel(prior.dense, rows, mean, noise))
    if kind == "dual":
        prior = Prior(kernels=(KernelBlock(lambda a, b: phi(a) @ phi(b).T, lambda a: phi(a).square().sum(1)),))
    return DenseSolver(prior, rows, mean, noise)


@pytest.mark.parametrize("kind", ["primal", "dual", "rows"])
@pytest.mark.parametrize(("n", "features"), [(40, 7), (7, 40), (12, 12), (2, 1)])
@pytest.mark.parametrize("noise", [0.3, 1e-3, "vector"])
def test_posteriors_equal_the_dense_twin(kind, n, features, noise):
    noise = np.random.default_rng(1).uniform(0.1, 2, n) if isinstance(noise, str) else noise
    phi, new, y, noise = problem(n, features, noise)
    density, mean, covariance = dense_twin(phi, new, y, noise)
    ours = build(kind, phi, y, noise)
    latent = ConditionedGP(ours.posterior()).at(torch.as_tensor(new))
    assert ours.log_marginal_likelihood().item() == pytest.approx(density, rel=1e-8)
    np.testing.assert_allclose(latent.mean()[:, 0], mean, atol=1e-8)
    np.testing.assert_allclose(latent.covariance(), covariance, atol=1e-8)
    np.testing.assert_allclose(latent.variance(), np.diag(covariance), atol=1e-8)
    root = latent.root()
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-8)


@pytest.mark.parametrize("per_row", ["uniform", "noise", "weight", "both"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("kind", ["primal", "dual", "rows"])
def test_the_likelihood_is_differentiable(kind, outputs, per_row):
    phi, _, _, _ = problem(9, 4, 0.2)
    generator = torch.Generator().manual_seed(1)
    y, fixed, weight = (torch.rand(s, generator=generator, dtype=torch.float64) + 0.1 for s in ((9, outputs), 9, 9))
    fixed, weight = (v if per_row in (name, "both") else None for name, v in (("noise", fixed), ("weight", weight)))
    rows = Block(torch.as_tensor(phi), y, fixed, weight)

    def likelihood(scale, noise, variance, mean):
        said = of_rows(kind, lambda x, s: x * s, rows, noise, (scale,), variance, mean)
        return said.log_marginal_likelihood()

    values = ([0.7, 1.2, 1.0, 2.0], 0.2, 1.3, [0.1] * outputs)
    leaves = tuple(torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values)
    assert torch.autograd.gradcheck(likelihood, leaves)


def test_small_noise_does_not_cancel():
    phi, new, y, _ = problem(60, 5, 1.0)
    y = phi @ np.ones(5)  # in the span: the quadratic form is small and a difference of large numbers
    ours = build("primal", phi, y, np.full(60, 1e-10))
    latent = ConditionedGP(ours.posterior()).at(torch.as_tensor(new))
    np.testing.assert_allclose(latent.mean()[:, 0], new @ np.ones(5), atol=1e-8)
    expected = build("dual", phi.astype(np.float64), y, np.full(60, 1e-10)).log_marginal_likelihood().item()
    assert ours.log_marginal_likelihood().item() == pytest.approx(expected, rel=1e-4)


def test_the_smaller_side_is_factorised():
    for count, kind in ((3, LowRankSolver), (5, LowRankSolver), (6, DenseSolver)):
        phi = torch.ones(5, count, dtype=torch.float64)
        prior = Prior(weights=(WeightBlock(lambda x: x, count),))
        assert isinstance(solver_for(prior, Block(phi, torch.ones(5, 1).double()), ZERO, ONE), kind)


def prediction(n=40, as_numpy=True):
    phi, new, y, noise = problem(n, 7, 0.3)
    latent = ConditionedGP(build("primal", phi, y, noise).posterior()).at(torch.as_tensor(new))
    tensors = (torch.tensor(v, dtype=torch.float64) for v in (10.0, 2.0, 0.3))
    return Prediction(latent, *tensors, torch.empty(0, dtype=torch.float32), as_numpy)


def test_predictions_are_in_the_users_units():
    p = prediction()
    np.testing.assert_allclose(p.mean, 10 + 2 * p.latent.mean()[:, 0], rtol=1e-6)
    np.testing.assert_allclose(p.variance, 4 * p.latent.variance(), rtol=1e-6)
    np.testing.assert_allclose(np.diag(p.covariance), p.variance, rtol=1e-6)
    np.testing.assert_allclose(p.observed().variance, p.variance + 4 * 0.3, rtol=1e-6)
    np.testing.assert_allclose(p.observed().covariance - p.covariance, 1.2 * np.eye(4), atol=1e-6)
    assert p.mean.dtype == np.float32
    assert isinstance(prediction(as_numpy=False).mean, torch.Tensor)


@pytest.mark.parametrize("observed", [False, True])
def test_samples_have_the_predicted_moments(observed):
    p = prediction().observed() if observed else prediction()
    generator = torch.Generator().manual_seed(0)
    samples = p.sample(20_000, generator=generator).astype(np.float64)
    assert samples.shape == (20_000, 4)
    centred = samples - p.mean
    assert_mean(samples, p.mean)
    assert_mean(centred[:, :, None] * centred[:, None, :], p.covariance.astype(np.float64))
    assert not np.array_equal(p.sample(1), p.sample(1))


@pytest.mark.parametrize("kind", ["primal", "dual", "rows"])
def test_predictions_are_differentiable(kind):
    phi, new, y, _ = problem(9, 4, 0.2)
    point = torch.as_tensor(new)

    def predict(scale, noise):
        rows = Block(torch.as_tensor(phi), torch.as_tensor(y)[:, None])
        scaled = of_rows(kind, lambda x, s: s * x, rows, noise, (scale,))
        latent = ConditionedGP(scaled.posterior()).at(point)
        return latent.mean(), latent.variance()

    inputs = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.3, 0.2))
    assert torch.autograd.gradcheck(predict, tuple(inputs))


def test_second_derivatives_of_the_closed_form_are_refused():
    phi, _, y, _ = problem(5, 9, 0.2)
    noise = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    rows = Block(torch.as_tensor(phi), torch.as_tensor(y)[:, None])
    likelihood = of_rows("rows", lambda x: x, rows, noise).log_marginal_likelihood()
    (gradient,) = torch.autograd.grad(likelihood, noise, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        torch.autograd.grad(gradient, noise)


class TestBlocks:
    """Regression on features in blocks of rows, against dense formulas differentiated by autograd."""

    def arguments(self, n=30, d=3, seed=0):
        generator = torch.Generator().manual_seed(seed)
        x, omega = (torch.randn(n, d, generator=generator, dtype=torch.float64) for n in (n, 5))
        y = torch.sin(x[:, 0]) + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
        noise = 0.1 + torch.rand(n, generator=generator, dtype=torch.float64)
        return x, omega, y, noise, torch.tensor([0.7, 1.1, 2.0], dtype=torch.float64), torch.tensor(1.7).double()

    def features(self, omega):
        return lambda x, scale: torch.cat([((x / scale) @ omega.T).cos(), ((x / scale) @ omega.T).sin()], 1)

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch):
        monkeypatch.setattr("rfgp.solvers.lowrank.model.LEAST_ROWS", 1)
        monkeypatch.setattr("rfgp.solvers.lowrank.model.ENTRIES", 70)  # blocks of 7 rows; 30 are no multiple
        monkeypatch.setattr("rfgp.solvers.lowrank.statistics.TILE", 4)

    @pytest.mark.parametrize("joined", [False, True])
    @pytest.mark.parametrize("per_row", [False, True])
    def test_value_and_gradients_are_those_of_the_dense_density(self, per_row, joined):
        x, omega, y, fixed, scale, variance = self.arguments()
        fixed, noise = fixed if per_row else torch.zeros_like(fixed), torch.tensor(0.3).double()
        parts = [Block(x[:13], y[:13, None]), Block(x[13:], y[13:, None], fixed[13:] if per_row else None)]
        if joined:
            fixed = torch.cat([torch.zeros(13).double(), fixed[13:]])
            rows = JoinedRows(parts)
        else:
            rows = Block(x, y[:, None], fixed if per_row else None)
        leaves = [a.clone().requires_grad_() for a in (noise, scale, variance, torch.tensor([0.4]).double())]

        def ours(noise, scale, variance, mean):
            return of_rows("primal", self.features(omega), rows, noise, (scale,), variance, mean)

        def dense(noise, scale, variance, mean):
            phi = self.features(omega)(x, scale)
            covariance = variance * phi @ phi.T + torch.diag(noise + fixed)
            return torch.distributions.MultivariateNormal(mean.expand(len(y)), covariance).log_prob(y)

        a, b = ours(*leaves).log_marginal_likelihood(), dense(*leaves)
        assert a.item() == pytest.approx(b.item(), rel=1e-10)
        for one, other in zip(torch.autograd.grad(a, leaves), torch.autograd.grad(b, leaves), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)

    def test_only_what_is_asked_for_is_differentiated(self):
        x, omega, y, fixed, scale, variance = self.arguments()
        rows = Block(x, y[:, None], fixed)
        for k in range(4):
            mean = torch.zeros(1).double()
            leaves = [a.clone().requires_grad_(i == k) for i, a in enumerate((fixed[0], scale, variance, mean))]
            ours = of_rows("primal", self.features(omega), rows, leaves[0], (leaves[1],), *leaves[2:])
            (gradient,) = torch.autograd.grad(ours.log_marginal_likelihood(), [leaves[k]])
            assert gradient.shape == leaves[k].shape
            assert torch.isfinite(gradient).all()

    def test_no_more_than_a_block_of_features_is_alive(self):
        """Every block of features is gone before the next but one is computed."""
        x, omega, y, noise, scale, variance = self.arguments(300)
        alive, most, plain = weakref.WeakSet(), [0], self.features(omega)

        def counted(x, scale):
            phi = plain(x, scale)
            alive.add(phi)
            most[0] = max(most[0], len(alive))
            return phi

        scale.requires_grad_()
        ours = of_rows("primal", counted, Block(x, y[:, None]), noise[0], (scale,), variance)
        ours.log_marginal_likelihood().backward()
        assert most[0] <= 2

    def test_single_precision_stays_near(self, monkeypatch):
        """Features of 32 bits: the density to 1e-5 of its value, gradients to 1e-4 of theirs."""
        monkeypatch.setattr("rfgp.solvers.lowrank.model.ENTRIES", 2**22)
        x, omega, y, _, scale, variance = self.arguments(5000)
        values = []
        for dtype in (torch.float64, torch.float32):
            ell = scale.clone().requires_grad_()
            noise = torch.tensor(1e-3, dtype=torch.float64, requires_grad=True)
            rows = Block(x.to(dtype), y[:, None])
            made = of_rows("primal", self.features(omega.to(dtype)), rows, noise, (ell.to(dtype),), variance)
            value = made.log_marginal_likelihood()
            values.append((value, *torch.autograd.grad(value, (ell, noise))))
        for one, other, bound in zip(*values, (1e-5, 1e-4, 1e-4), strict=True):
            assert (one - other).abs().max() <= bound * one.abs().max()
        assert values[0][0].item() != values[1][0].item()
