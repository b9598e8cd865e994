"""Problems with likelihoods that are not Gaussian, their priors by every solver, and dense twins."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from reference import ReferenceSolver

import graphs
from graphs.precisions.resolvent import resolvent_field
from rfgp.blocks import KernelBlock, PrecisionBlock, Prior, WeightBlock
from rfgp.inference.sites import Laplace, Variational, infer
from rfgp.likelihoods import Bernoulli, Gamma, Heteroscedastic, NegativeBinomial, Normal, Poisson, StudentT
from rfgp.rows import Block
from rfgp.solvers.choice import solver_in_memory

ROWS = 40
NODES = 12
LIKELIHOODS = {
    "normal": (Normal(), {"noise": 0.3}),
    "bernoulli": (Bernoulli(), {}),
    "probit": (Bernoulli(link="probit"), {}),
    "poisson": (Poisson(), {}),
    "negative-binomial": (NegativeBinomial(), {"dispersion": 0.4}),
    "student-t": (StudentT(), {"df": 4.0, "scale": 0.4}),
    "gamma": (Gamma(), {"shape": 3.0}),
    "heteroscedastic": (Heteroscedastic(), {"noise": 0.3}),
}


def rows(name, weighted=True, count=ROWS):
    """Rows with observations of a smooth function, some of which count twice."""
    likelihood, learned = LIKELIHOODS[name]
    x = torch.from_numpy(np.random.default_rng(4).standard_normal((count, 2)))
    f = torch.sin(2 * x[:, 0]) + x[:, 1]
    bound = likelihood.at({key: torch.tensor(value) for key, value in learned.items()})
    y = bound.sample(f, torch.Generator().manual_seed(7))
    weight = torch.from_numpy(np.random.default_rng(8).integers(1, 3, count).astype(float)) if weighted else None
    return Block(x, y[:, None], weight=weight)


def numbers(name):
    """Logarithms of lengthscale and variance, the mean, and logarithms of the likelihood's parameters."""
    return torch.tensor([0.2, 0.5, 0.3, *np.log(list(LIKELIHOODS[name][1].values()))], dtype=torch.float64)


# --- priors: functions of the numbers ------------------------------------------------------------------


def cosines(x, lengthscale, count=10, seed=3):
    """Random features (n, 2 count)."""
    omega = torch.from_numpy(np.random.default_rng(seed).standard_normal((count, 2)))
    p = (x / lengthscale) @ omega.T
    return torch.cat([p.cos(), p.sin()], 1) / count**0.5


def lines(x, lengthscale):
    """Features of another term: the inputs (n, 2), and their product."""
    return torch.cat([x, x.prod(1, keepdim=True)], 1) / lengthscale.square()


def padded(x, lengthscale):
    """The random features as more features than rows."""
    return torch.cat([cosines(x, lengthscale), x.new_zeros(len(x), 90)], 1)


def weights(features, count, theta, power=1.0, name="weights"):
    return WeightBlock(features, count, (theta[:1].exp(),), (power * theta[1]).exp(), name=name)


def kernel_block(theta):
    ell, variance = theta[:1].exp(), theta[1].exp()

    def covariance(a, b):
        return variance * torch.exp(
            -0.5 * torch.cdist(a / ell, b / ell, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        )

    return KernelBlock(covariance, lambda a: variance.expand(len(a)))


def node_of(x):
    """The nodes of a path (n,) that rows read."""
    return ((x[:, 0] + 2.5) / 5 * NODES).long().clamp(0, NODES - 1)


@cache
def path():
    return graphs.Graph.from_edges([(i, i + 1) for i in range(NODES - 1)])


def field_block(theta):
    def projector(x):
        entries = np.ones(len(x)), node_of(x).numpy(), np.arange(len(x) + 1)
        return sp.csr_array(entries, shape=(len(x), NODES))

    return PrecisionBlock(resolvent_field(path(), 2), theta[:1].exp(), 0.5 * theta[1].exp(), projector)


def field_kernel(theta):
    """The covariance of `field_block`, dense."""
    eye = torch.eye(NODES, dtype=torch.float64)
    shifted = (1 + theta[0].exp()) * eye - torch.from_numpy(path().shift_operator.toarray())
    covariance = 0.5 * theta[1].exp() * torch.linalg.inv(shifted @ shifted)
    return KernelBlock(lambda a, b: covariance[node_of(a)][:, node_of(b)], lambda a: covariance.diagonal()[node_of(a)])


def two_terms(theta):
    """Two terms of features with scales of their own."""
    return weights(cosines, 20, theta), weights(lines, 3, theta, -2.0, name="lines")


PRIORS = {
    "kernel": lambda theta: Prior(kernels=(kernel_block(theta),)),
    "features": lambda theta: Prior(weights=(weights(cosines, 20, theta),)),
    "two terms": lambda theta: Prior(weights=two_terms(theta)),
    "more features than rows": lambda theta: Prior(weights=(weights(padded, 110, theta),)),
    "field": lambda theta: Prior(precisions=(field_block(theta),)),
    "field and features": lambda theta: Prior(weights=two_terms(theta), precisions=(field_block(theta),)),
}
"""Priors by name, as functions of the numbers."""


class DensePrior(NamedTuple):
    """The sum of the covariances of blocks, differentiable."""

    blocks: tuple

    def kernel(self, a, b):
        return sum(block.kernel(a, b) for block in self.blocks)


def dense(name, theta):
    """Return the prior of a name as a sum of covariances."""
    prior = PRIORS[name](theta)
    field = (field_kernel(theta),) if prior.precisions else ()
    return DensePrior((*prior.weights, *prior.kernels, *field))


def solver_of(prior, data):
    one = torch.ones((), dtype=torch.float64)
    return solver_in_memory(prior, data, one[None], one)


def learned_of(name, theta, first=3):
    return dict(zip(LIKELIHOODS[name][1], theta[first:].exp(), strict=True))


def inferred(prior, name, theta, approximation="laplace", data=None):
    """Return inference under a prior and a likelihood, by their names.

    "reference" stands for the kernel by the reference solver, "features in memory" for features by a solver over rows.
    """
    data, likelihood = rows(name) if data is None else data, LIKELIHOODS[name][0]
    given = theta[2:3], likelihood, learned_of(name, theta)
    if prior not in ("reference", "features in memory"):
        return infer([PRIORS[prior](theta)], data, *given, approximation)
    one = torch.ones((), dtype=torch.float64)
    if prior == "reference":
        solver = ReferenceSolver(dense("kernel", theta), data, theta[2:3], one)
    else:
        solver = solver_of(PRIORS["features"](theta), data)
    return Laplace(solver, data, *given) if approximation == "laplace" else Variational([solver], data, *given)


def twin_of(prior):
    """Return the name of the prior of which the dense twin is."""
    return {"reference": "kernel", "features in memory": "features"}.get(prior, prior)


def grid(solvers, names, fast):
    """Return all pairs of a solver and a likelihood. Those for which `fast` is false are slow tests."""
    pairs = [(solver, name) for name in names for solver in solvers]
    return [pytest.param(*pair, marks=[] if fast(*pair) else pytest.mark.slow) for pair in pairs]


def check_gradient(function, theta, gradient):
    """Check the derivative of a function in one direction, of the numbers theta (p,), by differences."""
    direction = torch.tensor([1.0, -0.7, 0.4, 1.3, -0.9, 0.6], dtype=torch.float64)[: len(theta)]
    with torch.no_grad():
        ends = [float(function(theta + step * direction)) for step in (1e-4, -1e-4)]
    assert float(gradient @ direction) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-5, abs=1e-5)


# --- the dense twin of Laplace's approximation ---------------------------------------------------------


class DenseLaplace(NamedTuple):
    """Laplace's approximation by n x n matrices, as Rasmussen and Williams (2006), Section 3.4, define it."""

    f: torch.Tensor  # (n,)
    value: torch.Tensor  # 0-d
    covariance: torch.Tensor  # (n, n), of f

    def without(self, gradient, weight):
        """Return the moments (n,) of f at each row without its own Gaussian factor."""
        variance = self.covariance.diagonal()
        left = 1 / (1 / variance - weight)
        return left * (self.f / variance - (gradient + weight * self.f)), left


def dense_laplace(kernel, data, mean, likelihood, start):
    """Return Laplace's approximation for a kernel (n, n), from latent values (n,) near the mode."""
    y, counts, eye = data.targets[:, 0], data.counts(), torch.eye(len(data), dtype=torch.float64)
    f = start
    for _ in range(30):
        found, last = likelihood.slopes(y, f), f
        weight, gradient = -counts * found.second, counts * found.first
        f = mean + torch.linalg.solve(eye + kernel * weight, kernel @ (weight * (f - mean) + gradient))
        if float((f - last).detach().abs().max()) < 1e-12:
            break
    found = likelihood.slopes(y, f)
    weight = counts * likelihood.information(found, f)[0]
    inside = eye + kernel * weight
    square = (f - mean) @ (counts * found.first)
    value = (counts * found.value).sum() - 0.5 * (square + torch.logdet(inside))
    return DenseLaplace(f, value, torch.linalg.solve(inside, kernel))
