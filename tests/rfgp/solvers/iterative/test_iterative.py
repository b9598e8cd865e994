"""Gradients and variances of terms from draws against dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import assert_mean_of_normals, fails
from planting import planted
from priors import Problem
from solver_checks import gradients, same
from terms import table

import rfgp
from rfgp.solvers.iterative import IterativeSolver, conditioned, operator, solver, terms

SUMS = {
    "walks": ("walks",),
    "weights": ("walks", "smooth", "linear"),
    "fields": ("walks", "field", "groups", "smooth"),
    "residuals": ("walks", "fitc", "vfe"),
}


def problem_of(name, kind="uneven", count=48):
    return Problem(SUMS[name], kind, count=count)


def solved(problem, seed=0):
    prior = problem.prior
    prior = replace(prior, graph_features=tuple(replace(block, seed=seed) for block in prior.graph_features))
    return IterativeSolver(prior, problem.rows, problem.mean, problem.noise)


def value_and_gradient(value, problem):
    return torch.cat([value.detach().reshape(1), *(g.reshape(-1) for g in gradients(value, problem.theta))]).numpy()


def samples_of(problem, count=30):
    return np.array([value_and_gradient(solved(problem, s).log_marginal_likelihood(), problem) for s in range(count)])


@pytest.mark.parametrize("name", ["fields", *(pytest.param(n, marks=pytest.mark.slow) for n in SUMS if n != "fields")])
def test_likelihood_and_gradient_are_unbiased(name):
    problem = problem_of(name, "signs")
    expected = value_and_gradient(problem.twin.log_marginal_likelihood(), problem)
    samples = samples_of(problem)
    assert_mean_of_normals(samples, expected)
    at = 1 + sum(t.numel() for key, t in problem.theta.items() if key != "mean")
    np.testing.assert_allclose(samples[:, at:], np.broadcast_to(expected[at:], samples[:, at:].shape), rtol=1e-6)
    assert fails(assert_mean_of_normals, samples, expected + 0.1 * abs(expected) + 3)


FAULTS = {
    "walks' variance": (terms, "0.5 * (right.square() * signs).sum()", "(right.square() * signs).sum()", "walks"),
    "walks' values": (terms, "self.s2 * sampled_outer", "sampled_outer", "walks"),
    "field's parameters": (terms, "-0.5 * self._s2 * field", "0.5 * self._s2 * field", "fields"),
    "weights": (terms, "((vectors * signs) @", "(vectors @", "weights"),
    "noise": (solver, "0.5 * (vectors.square() * signs).sum(1)", "(vectors.square() * signs).sum(1)", "walks"),
    "draws' share": (solver, "-output_weights.sum() / probes", "-0.5 * output_weights.sum() / probes", "weights"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("module", "right", "wrong", "name"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_in_gradients_are_seen(module, right, wrong, name):
    problem = problem_of(name, "signs")
    with planted(module, right, wrong):
        samples = samples_of(problem, 20)
    expected = value_and_gradient(problem.twin.log_marginal_likelihood(), problem)
    assert fails(assert_mean_of_normals, samples, expected)


@pytest.mark.parametrize("name", ["fields", "residuals"])
def test_many_variances_are_estimated_from_draws(name, monkeypatch, limits):
    """Errors of the sum and of terms are within 6.6 stated standard errors."""
    monkeypatch.setattr(solver, "NUM_PATHS", 4096)
    limits(max_solved=0)
    problem, new = problem_of(name, "plain"), table(30, seed=9)
    found = solved(problem).posterior()
    with torch.no_grad():
        for names in (None, *([own] for own in problem.names)):
            one = found if names is None else found.of(names)
            estimated = one.variance(new, one.project(new))
            exact = problem.twin.predicted_covariance(new, names, names).diagonal()
            terms = problem.twin.terms
            left = sum(terms[own].missing(new).diagonal() for own in names or terms)
            prior = problem.twin.kernel(new, new, names).diagonal()
            known, explained = exact - left, prior + left - exact
            stated = np.sqrt(2 / 4096) * explained / torch.hypot(explained, known) * known
            assert float(((estimated - exact).abs() / stated.clamp_min(1e-7)).max()) < 6.6, names


def test_joint_distributions_of_too_many_points_are_refused():
    found, new = solved(problem_of("walks")).posterior(), table(2001)
    with pytest.raises(rfgp.InvalidArgumentError, match="sample_functions"):
        found.covariance(new, found.project(new))
    empty = found.project(new[:0])
    assert found.mean(empty).shape == (0, 1)
    assert found.variance(new[:0], empty).shape == (0,)


def test_covariances_are_solved_for_a_few_points_at_a_time(monkeypatch):
    problem, new, columns, solve = problem_of("walks"), table(100, seed=9), [], operator.CGOperator.solve
    monkeypatch.setattr(conditioned, "ENTRIES", 7 * 12)
    monkeypatch.setattr(conditioned, "MIN_SOLVED", 1)
    monkeypatch.setattr(
        operator.CGOperator, "solve", lambda self, v, t: columns.append(v.shape[1]) or solve(self, v, t)
    )
    found = solved(problem).posterior()
    same(found.covariance(new, found.project(new)), problem.twin.predicted_covariance(new), 1e-7)
    assert columns == [1, *[7] * 14, 2]  # the mean first


def test_scores_have_products_solves_and_residuals():
    """The gradient of the score is that of the likelihood."""
    problem = problem_of("weights")
    found, C = solved(problem), torch.linalg.inv(problem.twin.inverse)
    v = table(48, seed=3)[:, :2]
    same(found.product(v), C @ v, 1e-10)
    same(found.solve(v, 1e-10), problem.twin.inverse @ v)
    same(found.residual, problem.twin.residual)
    likelihood = solved(problem).log_marginal_likelihood()
    for a, b in zip(gradients(found.score(), problem.theta), gradients(likelihood, problem.theta), strict=True):
        assert torch.equal(a, b)
