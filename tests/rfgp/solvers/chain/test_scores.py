"""Score and information of a chain against the gradient of the likelihood and dense algebra."""

import math
from dataclasses import replace

import pytest
import torch
from checks import fails
from planting import planted
from priors import ROWS
from solver_cases import solved
from solver_checks import gradients, same
from terms import F64, chain_kernel

from rfgp.solvers.chain import ChainSolver, score, solver


def check_score(kind):
    """The score is the gradient of the log marginal likelihood, with the same value."""
    (found, problem), (other, twin) = solved("chain", ("chain",), kind), solved("chain", ("chain",), kind)
    same(found.score(), other.log_marginal_likelihood())
    pairs = zip(
        gradients(found.score(), problem.theta), gradients(other.log_marginal_likelihood(), twin.theta), strict=True
    )
    for one, expected in pairs:
        same(one, expected)


def check_information(kind):
    """The information of outputs y with the mean C of y y^T is the Fisher information of dense algebra."""
    _, problem = solved("chain", ("chain",), kind)
    rows = problem.rows
    x, n = rows.inputs, len(rows)

    def matrix(coordinates):
        lengthscale, variance, noise = coordinates.exp()
        return chain_kernel(x, x, lengthscale, variance) + rows.noise_diag(noise).expand(n).diag()

    numbers = [problem.theta[name] for name in ("chain lengthscale", "chain variance", "noise")]
    coordinates = torch.stack(numbers).detach().log()
    changes = torch.autograd.functional.jacobian(matrix, coordinates).movedim(2, 0)
    solves = torch.linalg.solve(matrix(coordinates), changes)
    expected = 0.5 * torch.einsum("aij,bji->ab", solves, solves)
    if rows.weight is not None:
        share = problem.noise.detach() / rows.observation_noise(problem.noise.detach())
        expected[2, 2] += 0.5 * ((rows.weight - 1) * share.square()).sum()
    root = math.sqrt(n) * torch.linalg.cholesky(matrix(coordinates))
    outputs = replace(rows, targets=root, given_output_weights=None)
    found = ChainSolver(problem.prior, outputs, torch.zeros(n, dtype=F64), problem.noise)
    same(found.coordinates[:3], coordinates)
    same(found.information[:3, :3] / n, expected)
    total = torch.linalg.inv(matrix(coordinates)).sum()
    same(found.information[3:, 3:], total * torch.eye(n, dtype=F64))


@pytest.mark.parametrize("kind", ROWS)
def test_score_is_the_gradient_of_the_likelihood(kind):
    check_score(kind)


@pytest.mark.parametrize("kind", ["plain", "uneven"])
def test_information_matches_dense_algebra(kind):
    check_information(kind)


PLANTED = [
    (check_score, "plain", solver, "gradient[:1] / lengthscale", "gradient[:1]"),
    (check_score, "uneven", score, "self._learned / (self._learned + as_array(fixed))", "1 / (1 + as_array(fixed))"),
    (check_score, "signs", score, "score += count * (", "score += ("),
    (check_score, "plain", score, "scales[0, 1] = scales[1, -1] = -1.0", "scales[0, 1] = -1.0"),
    (check_information, "uneven", score, "information[2, 2] += 0.5 *", "information[2, 2] += 0.0 *"),
    (check_information, "plain", score, "0.5 * scales @ scores.of_scales", "scales @ scores.of_scales"),
    (check_information, "plain", score, "given.variance**-0.5", "1.0"),
]


@pytest.mark.parametrize(("check", "kind", "module", "right", "wrong"), PLANTED)
def test_planted_errors_are_found(check, kind, module, right, wrong):
    with planted(module, right, wrong):
        assert fails(check, kind)
