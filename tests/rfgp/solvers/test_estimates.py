"""Likelihoods, gradients and variances that are estimated from draws: no bias, and the stated error."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import assert_mean_of_normals, fails
from priors import Problem
from solver_cases import solved
from solver_checks import gradients, same
from terms import table

from rfgp.solvers.iterative import IterativeSolver, posterior


def seeded(problem, seed):
    """Return the solver whose draws have another seed."""
    prior = problem.prior
    walks = tuple(replace(block, seed=seed) for block in prior.walks)
    return IterativeSolver(replace(prior, walks=walks), problem.rows, problem.mean, problem.noise)


def test_likelihood_and_gradient_have_no_bias():
    problem = Problem(["smooth", "field", "groups", "walks", "fitc"], "uneven")

    def numbers(value):
        slopes = gradients(value, problem.theta)
        return torch.cat([value.detach().reshape(1), *(slope.reshape(-1) for slope in slopes)])

    expected = numbers(problem.twin.log_marginal_likelihood())
    found = [seeded(problem, seed) for seed in range(60)]
    samples = torch.stack([numbers(each.log_marginal_likelihood()) for each in found])
    same(samples[:, -1:].mean(0), expected[-1:], 1e-6)  # that of the mean needs no draws
    assert_mean_of_normals(samples[:, :-1], expected[:-1].numpy())
    assert fails(assert_mean_of_normals, samples[:, :-1], expected[:-1].numpy() + 0.2 * abs(expected[:-1].numpy()))
    stated = np.sqrt(np.mean([each.likelihood_error**2 for each in found]))
    assert 0.6 < stated / float(samples[:, 0].std()) < 1.6  # 59 degrees of freedom: seven deviations of a chi-square


@pytest.mark.parametrize(("name", "terms"), [("iterative", ("smooth", "field", "walks")), ("latent", ("neighbors",))])
def test_variances_by_draws_have_stated_error(name, terms, monkeypatch):
    """Of 4,096 draws, by six standard errors: 2e-9 of false alarms a point."""
    monkeypatch.setattr("rfgp.solvers.iterative.solutions.NUM_PATHS", 4096)
    new, (found, problem) = table(20, seed=9), solved(name, terms, "uneven")
    one = found.posterior()
    read, variance = one.project(new), problem.twin.predicted_covariance(new).diagonal().detach()
    explained = problem.twin.kernel(new, new).diagonal().detach() - variance
    stated = np.sqrt(2 / 4096) * explained / torch.hypot(explained, variance)
    error = one.estimated_variance(new, read) / variance - 1
    assert bool((error.abs() < 6 * stated + 1e-5).all())
    assert float(error.abs().max()) > 1e-4
    assert torch.equal(one.moments(new, read)[1], one.variance(new, read))
    monkeypatch.setattr(posterior, "MOST_SOLVED", 0)
    assert torch.equal(one.variance(new, read), one.estimated_variance(new, read))
