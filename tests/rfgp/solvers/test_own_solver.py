"""A solver written by a user: effects of groups alone, in O(n), by textbook formulas and autograd.

With groups g(i), u_g ~ N(0, s^2) and y_i = mean + u_g(i) + e_i, e_i ~ N(0, D_i), the posterior precision of a group is
P_g = 1 / s^2 + sum_i 1 / D_i over its rows, and log |C| = sum_i log D_i + sum_g log(s^2 P_g) (Searle, Casella and
McCulloch 1992, Variance Components, Section 3.2).
"""

import math

import numpy as np
import pytest
import torch
from checks import assert_mean
from dense import DenseGP

import rfgp
from rfgp import kernels as k
from rfgp.solvers import Inference, Posterior

GROUPS = 4


class GroupPosterior(Posterior):
    """Effects u with means (G, k) and variances (G,)."""

    width = 1

    def __init__(self, prior, means, variances):
        self.prior, self.means, self.variances = prior, means, variances

    def project(self, inputs):
        return inputs[:, 0].long()

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
        self.prior, self.rows, self.group, self.variance = prior, rows, rows.inputs[:, 0].long(), block.variance
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
        normalizer = (2 * math.pi * self.noise).log().sum() + (self.variance * self.precision).log().sum()
        squares = (self.residual * coefficients).sum(0)
        return self.repeated - 0.5 * (self.rows.output_weights * (squares + normalizer)).sum()

    def leave_one_out(self):
        noise, residual = self.noise.detach(), self.residual.detach()
        precision = self.precision.detach()[self.group] - 1 / noise
        others = self.by_group(residual / noise[:, None])[self.group] - residual / noise[:, None]
        return self.rows.targets - residual + others / precision[:, None], 1 / precision + noise

    def posterior(self):
        return GroupPosterior(self.prior.detached(), self.effects.detach(), 1 / self.precision.detach())


def drawn():
    """Return levels and targets."""
    rng = np.random.default_rng(0)
    return np.r_[list("abcd"), rng.choice(list("abcd"), 20)], rng.normal(size=24)


LEVELS, Y = drawn()
X, NEW = {"s": LEVELS}, {"s": np.array(list("abcda"))}
BOTH = np.r_[X["s"], NEW["s"]]
PRIOR = {"group(s)": 0.7 * np.equal.outer(BOTH, BOTH)}


@pytest.fixture(autouse=True)
def _chosen(monkeypatch):
    """Have models use the solver."""
    monkeypatch.setattr("rfgp.models.state.solver_for", GroupSolver)


def test_a_model_with_the_solver_is_the_dense_model():
    rng = np.random.default_rng(1)
    noise, weight = rng.uniform(0, 0.3, 24), rng.integers(1, 3, 24).astype(float)
    start, expected = {"outputscale": 0.7, "mean": 0.3, "noise": 0.2}, DenseGP(PRIOR, Y, 0.2 + noise, 0.3, weight)
    gp = rfgp.GP(k.Group("s"), approximation=rfgp.SparsePrecision(), standardize=False, start=start, seed=0)
    gp.condition(X, Y, noise=noise, sample_weight=weight)
    assert isinstance(gp.state.posterior, GroupPosterior)
    found, left = gp.predict(NEW), gp.leave_one_out()
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected.log_marginal_likelihood())
    np.testing.assert_allclose(found.mean, expected.mean_at())
    np.testing.assert_allclose(found.covariance, expected.covariance(), atol=1e-12)
    np.testing.assert_allclose(found.variance, np.diag(found.covariance))
    for name, value in zip(("mean", "variance"), expected.leave_one_out(), strict=True):
        np.testing.assert_allclose(getattr(left, name), value)
    drawn = gp.sample_functions(2000, seed=0)(NEW) - found.mean
    assert_mean(drawn[:, :, None] * drawn[:, None], found.covariance)
