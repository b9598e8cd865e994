"""Neighbors conditioned on latent values against dense algebra.

Cases with all predecessors as neighbors are in `test_solvers`.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from priors import Problem
from solver_checks import gradients, same
from terms import F64, table

import rfgp
from rfgp.local import latent as roots
from rfgp.solvers import solver_for
from rfgp.solvers.bordered import BorderedSolver
from rfgp.solvers.iterative import (
    LatentSolver,
    latent,
    operator,
    preconditioners,
    prefers_latent,
    solver,
)
from rfgp.solvers.iterative.terms import operator_of, terms_of
from rfgp.solvers.whitened import WhitenedSolver


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


class LowSignal(Problem):
    """Rows with a low signal-to-noise ratio."""

    def __init__(self, names=(), kind="plain", neighbors=1000, count=24, noise=2.0, length=1.0, variance=None):
        super().__init__(("neighbors", *names), kind, count, num_neighbors=neighbors)
        self.theta["noise"] = torch.tensor(noise, dtype=F64, requires_grad=True)
        self.theta["neighbors lengthscale"] = (self.theta["neighbors lengthscale"] * length).detach().requires_grad_()
        if variance is not None:
            self.theta["neighbors variance"] = torch.tensor(variance, dtype=F64, requires_grad=True)


def divergence(posterior, problem, new):
    """Return the mean KL of the exact marginal distributions from those of a posterior."""
    read, exact = posterior.project(new), problem.twin.predicted_covariance(new).diagonal()
    variance, mean = posterior.variance(new, read), problem.twin.predicted_mean(new)
    square = (posterior.mean(read) - mean).square()[:, 0]
    return float((0.5 * (exact / variance + square / variance - 1 - (exact / variance).log())).mean())


def test_few_values_are_more_informative_than_observations():
    problem, new = LowSignal(neighbors=10, count=300, length=4.0), table(100, seed=9)
    by_observations = divergence(WhitenedSolver.of(*problem.given).posterior(), problem, new)
    by_values = divergence(LatentSolver(*problem.given).posterior(), problem, new)
    assert by_values < 0.2 * by_observations, (by_values, by_observations)


def definition(problem):
    """Return the operator of ordered rows, and the dense C from conditionals in numpy."""
    prior, n = problem.prior.detached(), len(problem.rows)
    rows = problem.rows.take(prior.neighbors.order(n))
    x, pattern = rows.inputs, prior.neighbors.predecessors(rows.inputs)
    kernel, B, d = problem.twin.kernel(x, x, ["neighbors"]).numpy(), np.zeros((n, n)), np.empty(n)
    for i in range(n):
        near = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1] - 1]
        B[i, near] = np.linalg.solve(kernel[np.ix_(near, near)], kernel[near, i])
        d[i] = kernel[i, i] - B[i] @ kernel[:, i]
    noise_diag, T = rows.noise_diag(problem.noise).expand(n), np.linalg.inv(np.eye(n) - B)
    others = problem.twin.kernel(x, x, problem.names[1:]).numpy() if problem.names[1:] else 0
    return operator_of(terms_of(prior, x), noise_diag), others + T @ np.diag(d) @ T.T + np.diag(noise_diag.numpy())


@pytest.mark.parametrize("names", [(), ("smooth", "groups")])
def test_operator_follows_the_definition_of_few_neighbors(names):
    ours, C = definition(LowSignal(names, "uneven", neighbors=6, count=120, noise=1.0))
    right = table(120, seed=3)[:, :3]
    np.testing.assert_allclose(ours.product(right), C @ right.numpy(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.solve(right, 1e-12), np.linalg.solve(C, right.numpy()), rtol=1e-7, atol=1e-8)
    log_determinant = ours.draws(200, 1e-9).log_determinant
    assert 0 < log_determinant.error < 0.5
    assert abs(log_determinant.value - np.linalg.slogdet(C)[1]) < 6.6 * log_determinant.error


def test_preconditioner_bounds_the_number_of_steps(monkeypatch):
    monkeypatch.setattr(operator, "ROUNDS", 1)
    problem, right = LowSignal(("smooth",), neighbors=12, count=300, noise=0.01), table(300, seed=3)[:, :2]
    definition(problem)[0].solve(right, 1e-4, max_iterations=12)
    monkeypatch.setattr(preconditioners, "multiply", lambda blocks, v: v)
    with pytest.raises(rfgp.SolverError, match='Use condition_on="responses"'):
        definition(problem)[0].solve(right, 1e-4, max_iterations=12)


def test_draws_estimate_the_variances(monkeypatch, limits):
    monkeypatch.setattr(solver, "NUM_PATHS", 4096)
    problem, new = LowSignal(("smooth",), neighbors=8, count=120), table(30, seed=9)
    found = LatentSolver(*problem.given).posterior()
    read, prior = found.project(new), problem.twin.kernel(new, new).diagonal()
    mean, exact = found.mean(read), found.variance(new, read)
    limits(max_solved=0)
    estimated, explained = found.variance(new, read), prior - exact
    stated = np.sqrt(2 / 4096) * explained / torch.hypot(explained, exact)
    assert float(((estimated - exact) / (stated * exact)).abs().max()) < 6.6
    assert torch.equal(mean, found.moments(new, read)[0])


def test_joint_distribution_has_the_variances_of_single_points():
    problem, new = LowSignal(("smooth", "groups"), neighbors=5, count=120), table(8, seed=9)
    whole = LatentSolver(*problem.given).posterior()
    for found in (whole, whole.of(["neighbors"]), whole.of(["neighbors", "groups"])):
        covariance = found.covariance(new, found.project(new))
        assert float(torch.linalg.eigvalsh(covariance)[0]) > -1e-10
        single = torch.cat([found.variance(x[None], found.project(x[None])) for x in new])
        assert torch.allclose(covariance.diagonal(), single, rtol=1e-6)


def test_joint_distribution_is_limited_by_memory(limits):
    found = LatentSolver(*LowSignal(neighbors=5, count=120).given).posterior()

    def covariance(count):
        new = table(count)
        return found.covariance(new, found.project(new))

    with pytest.raises(rfgp.InvalidArgumentError, match="points, got 2001"):
        covariance(2001)
    limits(max_joint_numbers=120 * 300)
    with pytest.raises(rfgp.InvalidArgumentError, match="at most 300 points, got 301"):
        covariance(301)
    limits(max_joint_numbers=1)
    with pytest.raises(rfgp.InvalidArgumentError, match="at most 256"):
        covariance(257)


@pytest.mark.parametrize(
    ("noise", "variance", "wanted"), [(2, 0.8, True), (1e-3, 0.8, False), (2, 1e-4, False), (2, 3e6, False)]
)
def test_latent_values_are_used_if_noise_is_large(noise, variance, wanted):
    problem = LowSignal(neighbors=10, count=300, noise=float(noise), variance=variance, length=2.0)
    assert prefers_latent(problem.prior, problem.rows, problem.noise) is wanted
    assert type(solver_for(*problem.given)) is (BorderedSolver if wanted else WhitenedSolver)
    for condition_on, kind in (("latent", BorderedSolver), ("responses", WhitenedSolver)):
        near = replace(problem.prior.neighbors, condition_on=condition_on)
        assert type(solver_for(replace(problem.prior, neighbors=near), *problem.given[1:])) is kind


def test_observations_are_used_with_other_blocks():
    problem = LowSignal(("exact",), neighbors=10, count=100)
    assert type(solver_for(*problem.given)) is WhitenedSolver


@pytest.mark.filterwarnings("error")
def test_gradient_is_conditioned_on_observations():
    problem = LowSignal(("smooth",), "signs", neighbors=10, count=300, length=2.0)
    value = LatentSolver(*problem.given).log_marginal_likelihood()
    with torch.enable_grad():
        ours, other = LatentSolver(*problem.given), WhitenedSolver.of(*problem.given)
        likelihoods = [each.log_marginal_likelihood() for each in (ours, other)]
        slopes = [gradients(each, problem.theta) for each in likelihoods]
    assert likelihoods[0].item() == value.item()
    assert abs(likelihoods[1].item() - value.item()) > 0.1
    for a, b in zip(*slopes, strict=True):
        same(a, b, 1e-12)


def test_observations_are_used_if_solves_are_slow(monkeypatch, limits):
    problem = LowSignal(neighbors=5, count=300, length=2.0)
    limits(max_elimination_flops=0)
    assert isinstance(solver_for(*problem.given), LatentSolver)
    products, root_times = [], roots.LatentRoot.root_times
    monkeypatch.setattr(latent, "FEW_ITERATIONS", 1)
    monkeypatch.setattr(roots.LatentRoot, "root_times", lambda self, u: products.append(u) or root_times(self, u))
    assert isinstance(solver_for(*problem.given), WhitenedSolver)
    assert len(products) == 2  # one step and its residual
