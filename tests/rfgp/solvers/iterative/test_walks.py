"""Graph models through walks by conjugate gradients, against factorisations of the same features."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import assert_mean, assert_mean_of_normals, fails
from grid import CASES, MOST_DENSE, model, observations

import rfgp
from rfgp.blocks import Prior
from rfgp.regression.graph import DrawnFeatures
from rfgp.solvers.iterative import posterior


@pytest.fixture
def iterative(monkeypatch):
    monkeypatch.setattr(MOST_DENSE, 0)


def factorised(gp, monkeypatch, call):
    """Return what a model says by factorisations."""
    with monkeypatch.context() as patch:
        patch.setattr(MOST_DENSE, 10**6)
        return call(gp.redraw())


def reseeded(seed, original=DrawnFeatures.prior):
    """Return priors whose draws have another seed."""

    def prior(self, theta, outputscale):
        (block,) = original(self, theta, outputscale).walks
        return Prior(walks=(replace(block, seed=seed),))

    return prior


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


def test_leave_one_out(monkeypatch, iterative):
    gp = model(observations(), "noise")
    monkeypatch.setattr(posterior, "MOST_SOLVED", 1000)
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
    error = gp.regression.infer(gp.regression.rows).likelihood_error
    assert abs(gp.log_marginal_likelihood().item() - expected) < 6 * error


@pytest.mark.parametrize("most_dense", [0, 10**6])
def test_functions_have_predicted_moments(most_dense, monkeypatch):
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


def test_the_covariance_of_too_many_is_refused(monkeypatch, iterative):
    monkeypatch.setattr("rfgp.solvers.iterative.posterior.MOST_JOINT", 10)
    gp = model(observations())
    with pytest.raises(rfgp.InvalidArgumentError, match="sample_functions"):
        assert gp.predict(np.arange(11)).covariance is None
    assert gp.predict([]).mean.shape == (0,)
    assert gp.predict([]).variance.shape == (0,)
