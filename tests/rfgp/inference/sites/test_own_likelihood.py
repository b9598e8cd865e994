"""A likelihood that is defined in one file, used by Laplace's approximation and by variational inference."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from observed import PRIORS, check_gradient, dense, dense_laplace
from scipy import integrate

import rfgp
from rfgp.inference.sites import infer
from rfgp.likelihoods import InitialMoments, Likelihood, LogProbDerivatives, Parameter
from rfgp.rows import Block
from rfgp.scaling import moments


@dataclass(frozen=True, repr=False)
class Logistic(Likelihood):
    """y = f + scale e with logistic e, whose tails are heavier than normal ones."""

    scale: Any = None
    parameters = (Parameter("scale", 0.3, (1e-3, 1e1), power=1),)
    is_standardized = True

    def check(self, y):
        return None

    def begin(self, y, weight):
        center, deviation = moments(y, weight)
        return InitialMoments(center, deviation.square())

    def slopes(self, y, f):
        scale = torch.as_tensor(self.scale, dtype=f.dtype)
        z = (y - f) / scale
        p = torch.sigmoid(z)
        value = torch.nn.functional.logsigmoid(z) + torch.nn.functional.logsigmoid(-z) - scale.log()
        width = p * (1 - p)
        second = -2 * width / scale.square()
        return LogProbDerivatives(value, (2 * p - 1) / scale, second, second * (2 * p - 1) / scale)

    def mean(self, f):
        return f

    def variance(self, f):
        return (torch.as_tensor(self.scale, dtype=f.dtype) * math.pi).square().expand_as(f) / 3

    def cdf(self, y, f):
        return torch.sigmoid((y - f) / torch.as_tensor(self.scale, dtype=f.dtype))

    def sample(self, f, generator):
        u = torch.rand(f.shape, generator=generator, dtype=f.dtype)
        return f + torch.as_tensor(self.scale, dtype=f.dtype) * u.logit()


THETA = torch.tensor([0.2, 0.5, 0.3, math.log(0.25)], dtype=torch.float64)


def rows(count=25):
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((count, 2)))
    y = Logistic(0.25).sample(torch.sin(2 * x[:, 0]), torch.Generator().manual_seed(2))
    return Block(x, y[:, None])


def inferred(prior, theta, approximation, data=None):
    learned = {"scale": theta[3].exp()}
    data = rows() if data is None else data
    return infer([PRIORS[prior](theta)], data, theta[2:3], Logistic(), learned, approximation)


def test_derivatives_are_those_of_the_value():
    y, f = torch.tensor([0.3, -2.0, 1.0]).double(), torch.tensor([0.1, 0.4, -0.7]).double().requires_grad_()
    found = Logistic(0.5).slopes(y, f)
    for lower, higher in itertools.pairwise(found):
        (expected,) = torch.autograd.grad(lower.sum(), f, retain_graph=True)
        torch.testing.assert_close(higher, expected)


@pytest.mark.parametrize("prior", ["kernel", "two terms", "field and features"])
def test_laplace_matches_the_dense_twin(prior):
    theta, data = THETA.clone().requires_grad_(), rows()
    found = inferred(prior, theta, "laplace")
    value = found.log_marginal_likelihood()
    (gradient,) = torch.autograd.grad(value, theta)
    start = found.fitted.detach()

    def twin(at):
        kernel = dense(prior, at).kernel(data.inputs, data.inputs)
        return dense_laplace(kernel, data, at[2], Logistic(at[3].exp()), start).value

    assert value.item() == pytest.approx(twin(theta.detach()).item(), rel=1e-9)
    check_gradient(twin, theta, gradient)


@pytest.mark.parametrize("prior", ["kernel", "two terms", "field and features"])
def test_variational_gradient_is_that_of_the_bound(prior, monkeypatch):
    monkeypatch.setattr("rfgp.inference.sites.gaussian.TOLERANCE", 1e-12)
    theta = THETA.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(inferred(prior, theta, "variational").log_marginal_likelihood(), theta)
    check_gradient(lambda at: inferred(prior, at, "variational").log_marginal_likelihood(), theta, gradient)


def test_one_row_is_near_quadrature():
    data, likelihood, variance = rows(1), Logistic(0.25), math.exp(0.5)

    def integrand(f):
        prior = math.exp(-0.5 * (f - 0.3) ** 2 / variance) / math.sqrt(2 * math.pi * variance)
        return float(likelihood.log_density(data.targets[:, 0], torch.tensor([f]).double()).exp()) * prior

    expected = math.log(integrate.quad(integrand, -8, 8)[0])
    bound, approximate = (
        float(inferred("kernel", THETA, way, data).log_marginal_likelihood()) for way in ("variational", "laplace")
    )
    assert expected - 0.05 < bound < expected
    assert approximate == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("approximation", ["laplace", "variational"])
def test_models_take_the_object(approximation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.logistic(size=60)
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, likelihood=Logistic(), approximation=approximation, seed=0)
    gp.condition(X, y)
    assert np.corrcoef(gp.predict(X).mean, np.sin(2 * X[:, 0]))[0, 1] > 0.8
