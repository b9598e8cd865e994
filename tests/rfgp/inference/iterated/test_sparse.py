"""Likelihoods, gradients and predictions by conjugate gradients against factorisations of the same features."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from checks import assert_mean, assert_mean_of_normals, fails
from grid import CASES, MOST_DENSE, grid, model, observations
from rfgp.inference.iterated import evidence

import graphs
import rfgp
from rfgp.inference import SparseEvidence, SparsePrior
from rfgp.regression.graph import DrawnFeatures
from rfgp.rows import Block
from rfgp.sparse import SparseValues


@pytest.fixture
def iterative(monkeypatch):
    monkeypatch.setattr(MOST_DENSE, 0)


def factorised(gp, monkeypatch, call):
    """Return what a model says of itself by factorisations."""
    with monkeypatch.context() as patch:
        patch.setattr(MOST_DENSE, 10**6)
        return call(gp.redraw())


def reseeded(seed, original=DrawnFeatures.prior):
    """Return priors whose draws have another seed."""
    return lambda self, theta, outputscale: replace(original(self, theta, outputscale), seed=seed)


def value_and_gradient(gp):
    value = gp.log_marginal_likelihood()
    gradients = torch.autograd.grad(value, list(gp.hyperparameters.parameters()))
    return torch.cat([value.detach().reshape(1), *(g.reshape(-1) for g in gradients)]).numpy()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_likelihood_and_gradient_are_unbiased(case, monkeypatch):
    gp = model(observations(), case)
    expected = value_and_gradient(gp)
    monkeypatch.setattr(MOST_DENSE, 0)
    samples = []
    for seed in range(30):
        monkeypatch.setattr(DrawnFeatures, "prior", reseeded(seed))
        samples.append(value_and_gradient(gp))
    samples = np.array(samples)
    assert_mean_of_normals(samples[:, :-1], expected[:-1])
    np.testing.assert_allclose(samples[:, -1], expected[-1], rtol=1e-6)  # of the mean: no draws in it
    assert fails(assert_mean_of_normals, samples[:, :-1], expected[:-1] + 0.1 * abs(expected[:-1]) + 3)


@pytest.mark.parametrize("case", CASES)
def test_predictions_equal_those_of_factorisations(case, monkeypatch, iterative):
    gp, nodes = model(observations(), case), np.arange(100, 200)

    def moments(other):
        p = other.predict(nodes)
        return p.mean, p.covariance

    mean, covariance = factorised(gp, monkeypatch, moments)
    p = gp.predict(nodes)
    assert set(gp.regression.posterior.tensors()) == {"inputs", "noise_diag", "coefficients", "draws"}
    np.testing.assert_allclose(p.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(p.covariance, covariance, atol=2e-5 * covariance.max())
    np.testing.assert_allclose(p.variance, np.diag(covariance), rtol=1e-4)
    samples = p.sample(4000, generator=torch.Generator().manual_seed(0))
    assert_mean(samples[:, ::10], mean[::10])


@pytest.mark.slow
def test_many_variances_come_from_draws(monkeypatch, iterative):
    gp, nodes = model(observations()), np.arange(900)

    def moments(other):
        p = other.predict(nodes)
        return p.mean, p.variance

    mean, variance = factorised(gp, monkeypatch, moments)
    errors = []
    for seed in range(40):
        monkeypatch.setattr(DrawnFeatures, "prior", reseeded(seed))
        p = gp.regression.replace().predict(nodes)  # without the posterior of other draws
        np.testing.assert_allclose(p.mean, mean, atol=1e-7)
        errors.append(p.variance / variance - 1)
    errors = np.array(errors)
    prior = gp.regression.prior().diagonal(torch.arange(900)).detach().numpy()
    explained = prior * gp.regression.scaling.targets.scale.item() ** 2 - variance
    stated = np.sqrt(2 / evidence.NUM_PATHS) * explained / np.hypot(explained, variance)
    ratio = errors.std(0) / stated
    assert 0.8 < np.median(ratio) < 1.25
    assert np.abs(errors.mean(0)).max() < 0.15  # the weights are estimated too: a bias of second order
    assert np.median(np.abs(errors)) / 2 < 0.06


def test_leave_one_out(monkeypatch, iterative):
    gp = model(observations(), "noise")
    monkeypatch.setattr(evidence, "MOST_SOLVED", 1000)
    ours = gp.leave_one_out()
    expected = factorised(gp, monkeypatch, lambda other: other.leave_one_out())
    np.testing.assert_allclose(ours.variance, expected.variance, rtol=1e-3)
    np.testing.assert_allclose(ours.mean, expected.mean, atol=1e-3)


def test_several_outputs(monkeypatch, iterative):
    data, nodes = observations(), np.arange(300)
    gp = model(data, y=np.stack([data.y, 3 - 2 * data.y[::-1]], axis=1))
    assert gp.sample_functions(5, seed=0)(nodes).shape == (5, 300, 2)
    expected = factorised(gp, monkeypatch, lambda other: other.predict(nodes).mean)
    np.testing.assert_allclose(gp.predict(nodes).mean, expected, rtol=1e-6, atol=1e-7)
    expected = factorised(gp, monkeypatch, lambda other: other.log_marginal_likelihood().item())
    error = gp.regression.evidence(gp.regression.rows).likelihood_error
    assert abs(gp.log_marginal_likelihood().item() - expected) < 6 * error


@pytest.mark.parametrize("most_dense", [0, 10**6])
def test_functions_have_the_law_of_the_prediction(most_dense, monkeypatch):
    monkeypatch.setattr(MOST_DENSE, most_dense)
    gp, nodes = model(observations(), "noise"), np.arange(0, 900, 90)
    values = gp.sample_functions(3000, seed=1)(nodes)
    p = gp.predict(nodes)
    assert_mean(values, p.mean)
    deviations = values - p.mean
    products = deviations[:, :, None] * deviations[:, None, :]
    assert_mean(products.reshape(3000, -1), p.covariance.ravel())
    assert fails(assert_mean, values, p.mean + 0.3 * np.sqrt(p.variance))
    again = gp.sample_functions(2, seed=1)
    np.testing.assert_array_equal(again(nodes)[:, 3], again(nodes[3:4])[:, 0])


@pytest.mark.filterwarnings("error")
def test_one_function(iterative):
    assert np.isfinite(model(observations()).sample_functions(1, seed=0)([3])).all()


def test_the_joint_law_of_too_many_is_refused(monkeypatch, iterative):
    monkeypatch.setattr(evidence, "MOST_JOINT", 10)
    gp = model(observations())
    with pytest.raises(rfgp.InvalidArgumentError, match="sample_functions"):
        assert gp.predict(np.arange(11)).covariance is None
    assert gp.predict([]).mean.shape == (0,)
    assert gp.predict([]).variance.shape == (0,)


def test_values_have_gradients():
    """The gradient in the values of Phi, against differences of the dense likelihood; with every draw's error."""
    data = observations()
    walks = graphs.sample_walks(grid(), data.nodes[:40], num_walkers=4, exact_hops=0, seed=0)
    values = torch.from_numpy(walks.values(walks.weights(graphs.kernels.Diffusion(2.0)))).requires_grad_()
    one, targets = torch.ones((), dtype=torch.float64), torch.from_numpy(data.y[:40, None])
    rows = Block(torch.from_numpy(data.nodes[:40]), targets)
    indptr, indices, shape = walks.pattern
    samples = []
    for seed in range(200):
        prior = SparsePrior(lambda positions, keep: SparseValues(values, walks.pattern), 5 * one, 900, seed)
        ours = SparseEvidence(prior, rows, 0 * one.reshape(1), 0.1 * one)
        (gradient,) = torch.autograd.grad(ours.score(), values)
        samples.append(gradient[:12].numpy())
    matrix = sp.csr_array((values.detach().numpy(), indices, indptr), shape=shape)
    dense_phi = torch.from_numpy(matrix.toarray()).requires_grad_()
    C = 5 * dense_phi @ dense_phi.mT + 0.1 * torch.eye(40, dtype=torch.float64)
    density = torch.distributions.MultivariateNormal(torch.zeros(40, dtype=torch.float64), C).log_prob(targets[:, 0])
    (exact,) = torch.autograd.grad(density, dense_phi)
    entries = np.repeat(np.arange(40), np.diff(indptr))[:12], indices[:12]
    assert_mean_of_normals(np.array(samples), exact.numpy()[entries])
    assert fails(assert_mean_of_normals, np.array(samples), 2 * exact.numpy()[entries])
