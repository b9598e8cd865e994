"""A likelihood defined in one file, for Laplace's approximation and variational inference."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from observed import LIKELIHOODS, Observed, check_gradient, dense_laplace, evidence_of_a_row, observations

import rfgp
from rfgp.likelihoods import InitialMoments, Likelihood, LogProbDerivatives, Parameter
from rfgp.scaling import moments


@dataclass(frozen=True, repr=False)
class Logistic(Likelihood):
    """y = f + scale e with logistic e, which has heavier tails than a Gaussian."""

    scale: Any = None
    parameters = (Parameter("scale", 0.3, (1e-3, 1e1), power=1),)
    is_standardized = True

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

    def variance(self, f):
        return (torch.as_tensor(self.scale, dtype=f.dtype) * math.pi).square().expand_as(f) / 3

    def cdf(self, y, f):
        return torch.sigmoid((y - f) / torch.as_tensor(self.scale, dtype=f.dtype))

    def sample(self, f, generator):
        u = torch.rand(f.shape, generator=generator, dtype=f.dtype)
        return f + torch.as_tensor(self.scale, dtype=f.dtype) * u.logit()


NAMES = [("exact",), ("smooth", "linear"), ("field", "smooth")]


def problem_of(names, monkeypatch, count=25):
    monkeypatch.setitem(LIKELIHOODS, "logistic", (Logistic(), {"scale": 0.25}))
    return Observed(names, "logistic", observations("logistic", weighted=False, count=count))


@pytest.mark.parametrize("names", NAMES)
def test_laplace_matches_the_dense_twin(names, monkeypatch):
    problem = problem_of(names, monkeypatch)
    found = problem.infer()
    value, start = found.log_marginal_likelihood(), found.fitted.detach()
    assert value.item() == pytest.approx(dense_laplace(problem, start).value.item(), rel=1e-9)
    check_gradient(problem, value, lambda at: dense_laplace(at, start).value)


@pytest.mark.parametrize("names", NAMES)
def test_variational_gradient_is_that_of_the_bound(names, monkeypatch):
    monkeypatch.setattr("rfgp.inference.sites.variational.TOLERANCE", 1e-12)
    problem = problem_of(names, monkeypatch)
    value = problem.infer("variational").log_marginal_likelihood()
    check_gradient(problem, value, lambda at: at.infer("variational").log_marginal_likelihood())


def test_one_row_is_near_quadrature(monkeypatch):
    problem = problem_of(("exact",), monkeypatch, count=1).moved(0.0)
    expected = evidence_of_a_row(problem)
    bound, approximate = (float(problem.infer(way).log_marginal_likelihood()) for way in ("variational", "laplace"))
    assert expected - 0.05 < bound < expected
    assert approximate == pytest.approx(expected, abs=0.15)


@pytest.mark.parametrize("approximation", ["laplace", "variational"])
def test_models_take_the_object(approximation):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.logistic(size=60)
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, likelihood=Logistic(), inference=approximation, seed=0)
    gp.condition(X, y)
    assert np.corrcoef(gp.predict(X).mean, np.sin(2 * X[:, 0]))[0, 1] > 0.8
