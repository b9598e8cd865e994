"""A solver written by a user: effects of groups alone, in O(n), by textbook formulas and autograd.

With groups g(i), u_g ~ N(0, s^2) and y_i = mean + u_g(i) + e_i, e_i ~ N(0, D_i), the posterior precision of a group is
P_g = 1 / s^2 + sum_i 1 / D_i over its rows, and log |C| = sum_i log D_i + sum_g log(s^2 P_g) (Searle, Casella and
McCulloch 1992, Variance Components, Section 3.2).
"""

import math

import pytest
import torch
from observed import Observed
from priors import ROWS, Problem
from reference import ReferenceSolver
from solver_checks import (
    check_draws,
    check_leave_one_out,
    check_likelihood,
    check_other_targets,
    check_predictions,
    check_rows,
    gradients,
    same,
)
from terms import GROUPS, table

from rfgp.inference.conditioned import ConditionedGP
from rfgp.solvers import Inference, Posterior


class GroupPosterior(Posterior):
    """Effects u with means (G, k) and variances (G,)."""

    width = 1

    def __init__(self, prior, means, variances):
        self.prior, self.means, self.variances = prior, means, variances

    def project(self, inputs):
        return inputs[:, 4].long()

    def mean(self, projected):
        return self.means[projected]

    def variance(self, inputs, projected):
        return self.variances[projected]

    def covariance(self, inputs, projected):
        return self.variances[projected] * (projected[:, None] == projected)

    def sample_functions(self, count, generator):
        standard = torch.randn(count, *self.means.shape, generator=generator, dtype=torch.float64)
        drawn = self.means + self.variances.sqrt()[:, None] * standard
        return lambda inputs: drawn[:, self.project(inputs)]

    def tensors(self):
        return {"means": self.means, "variances": self.variances}

    def shapes(self, n, k):
        return {"means": (GROUPS, k), "variances": (GROUPS,)}


class GroupSolver(Inference):
    """Rows with effects of groups as the only term."""

    def __init__(self, prior, rows, mean, noise):
        (block,) = prior.precisions
        self.prior, self.rows, self.group, self.variance = prior, rows, rows.inputs[:, 4].long(), block.variance
        self.repeated = rows.replicate_log_prob(noise)
        self.noise, self.residual = rows.noise_diag(noise).expand(len(rows)), rows.targets - mean
        self.precision = 1 / self.variance + self.by_group(1 / self.noise[:, None])[:, 0]
        self.effects = self.by_group(self.residual / self.noise[:, None]) / self.precision[:, None]

    def by_group(self, values):
        return values.new_zeros(GROUPS, values.shape[1]).index_add(0, self.group, values)

    def with_data(self, rows, mean, noise):
        return type(self)(self.prior, rows, mean, noise)

    @property
    def coefficients(self):
        return ((self.residual - self.effects[self.group]) / self.noise[:, None]).detach()

    @property
    def fitted(self):
        return self.effects[self.group].detach()

    @property
    def latent_variances(self):
        return (1 / self.precision)[self.group].detach()

    @property
    def log_determinant(self):
        return (self.variance * self.precision).log().sum().detach()

    def log_marginal_likelihood(self):
        coefficients = (self.residual - self.effects[self.group]) / self.noise[:, None]
        normaliser = (2 * math.pi * self.noise).log().sum() + (self.variance * self.precision).log().sum()
        squares = (self.residual * coefficients).sum(0)
        return self.repeated - 0.5 * (self.rows.output_weights * (squares + normaliser)).sum()

    def leave_one_out(self):
        noise, residual = self.noise.detach(), self.residual.detach()
        precision = self.precision.detach()[self.group] - 1 / noise
        others = self.by_group(residual / noise[:, None])[self.group] - residual / noise[:, None]
        return self.rows.targets - residual + others / precision[:, None], 1 / precision + noise

    def posterior(self):
        return GroupPosterior(self.prior.detached(), self.effects.detach(), 1 / self.precision.detach())


def solved(kind):
    problem = Problem(["groups"], kind)
    return GroupSolver(problem.prior, problem.rows, problem.mean, problem.noise), problem


@pytest.mark.parametrize("kind", ROWS)
def test_solver_matches_dense_algebra(kind):
    found, problem = solved(kind)
    check_likelihood(found, problem)
    check_rows(found, problem)
    check_leave_one_out(found, problem)
    check_other_targets(found, problem)


def test_posterior_matches_dense_algebra():
    found, problem = solved("outputs")
    new = table(5, seed=9)
    check_predictions(found, problem, new)
    check_draws(found.posterior(), problem, new)


@pytest.mark.parametrize(("name", "approximation"), [("poisson", "laplace"), ("categorical", "variational")])
def test_sites_accept_the_solver(name, approximation):
    problem = Observed(("groups",), name)
    values = [problem.by(solver, approximation).log_marginal_likelihood() for solver in (GroupSolver, ReferenceSolver)]
    same(values[0], values[1])
    for slope, twin in zip(*(gradients(value, problem.theta) for value in values), strict=True):
        same(slope, twin, 1e-5)


def test_conditioned_process_accepts_the_posterior():
    found, problem = solved("outputs")
    new = table(5, seed=9)
    distribution = ConditionedGP(found.posterior()).at(new)
    same(distribution.mean(), problem.twin.predicted_mean(new))
    same(distribution.covariance(), problem.twin.predicted_covariance(new))
