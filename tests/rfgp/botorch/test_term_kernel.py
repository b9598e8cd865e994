"""Kernels of terms as the covariance of BoTorch's models."""

import gpytorch
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_matheron_paths

import rfgp
import rfgp.botorch
from rfgp import kernels as k
from rfgp.gpytorch import kernel_of

X = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.sin(6 * X[:, :1]) + X[:, 1:].square()
TERMS = k.Matern((0, 1), nu=2.5, name="smooth") + k.Linear(0)
APPROXIMATIONS = [rfgp.Exact(), rfgp.RandomFeatures(32), rfgp.InducingPoints(10)]


@pytest.mark.parametrize("approximation", APPROXIMATIONS, ids=repr)
def test_a_model_is_fitted_and_an_acquisition_optimized(approximation):
    kernel = kernel_of(TERMS, approximation, X=X, seed=0)
    model = SingleTaskGP(X, Y, covar_module=kernel)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def value():
        model.train()
        return objective(model(*model.train_inputs), model.train_targets).item()

    before = value()
    fit_gpytorch_mll(objective)
    assert value() > before + 0.1
    model.eval()
    acquisition = LogExpectedImprovement(model, best_f=Y.max())
    points = torch.rand(3, 1, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(acquisition, points, atol=1e-4)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    options = {"seed": 0}
    found, best = optimize_acqf(acquisition, bounds, q=1, num_restarts=2, raw_samples=16, options=options)
    assert found.shape == (1, 2)
    assert best >= acquisition(points.detach()).max()


def test_several_outputs_are_a_batch():
    both = torch.cat([Y, -Y], dim=1)
    kernel = kernel_of(TERMS, rfgp.RandomFeatures(16), X=X, seed=0, batch_shape=torch.Size([2]))
    model = SingleTaskGP(X, both, covar_module=kernel)
    mean = model.posterior(X[:5]).mean
    assert mean.shape == (5, 2)
    torch.testing.assert_close(mean[:, 0], -mean[:, 1])


def test_pathwise_draws_take_the_features():
    kernel = kernel_of(TERMS, rfgp.RandomFeatures(64), X=X, seed=0)
    model = SingleTaskGP(X, Y, covar_module=kernel, outcome_transform=None)
    model.likelihood.noise = 1e-3
    model.eval()
    torch.manual_seed(0)
    paths = draw_matheron_paths(model, torch.Size([2000]))
    values = paths(X[:4]).squeeze(-1)
    expected = model(X[:4])
    error = (values.mean(0) - expected.mean) / (expected.variance / 2000).sqrt()
    assert error.abs().max() < 5.5  # two-sided, 4 values: a false-alarm rate below 2e-7
    with pytest.raises(rfgp.InvalidArgumentError, match="features"):
        draw_matheron_paths(SingleTaskGP(X, Y, covar_module=kernel.exact()), torch.Size([1]))
