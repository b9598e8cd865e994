"""Sums of terms under likelihoods that are not Gaussian, and dense twins of Laplace's approximation."""

import pickle
from copy import copy
from typing import NamedTuple

import numpy as np
import pytest
import torch
from priors import TERMS, Problem, table
from reference import ReferenceSolver
from scipy import integrate

from rfgp.inference.sites import Laplace, Variational, infer
from rfgp.likelihoods import (
    Bernoulli,
    Categorical,
    Gamma,
    Gaussian,
    Heteroscedastic,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from rfgp.rows import Block
from rfgp.solvers.choice import solver_in_memory

ROWS = 36
LIKELIHOODS = {
    "gaussian": (Gaussian(), {"noise": 0.3}),
    "bernoulli": (Bernoulli(), {}),
    "probit": (Bernoulli(link="probit"), {}),
    "poisson": (Poisson(), {}),
    "negative-binomial": (NegativeBinomial(), {"dispersion": 0.4}),
    "student-t": (StudentT(), {"df": 4.0, "scale": 0.4}),
    "gamma": (Gamma(), {"shape": 3.0}),
    "heteroscedastic": (Heteroscedastic(), {"noise": 0.3}),
    "categorical": (Categorical(3), {}),
}
"""Likelihoods of one function, of a function and its log noise, and of three functions, with their parameters."""
OF_ONE = [name for name in LIKELIHOODS if name not in ("heteroscedastic", "categorical")]

SUMS = [
    ("exact",),
    ("smooth",),
    ("smooth", "rough", "linear"),
    ("wide",),
    ("exact", "walks"),
    ("field",),
    ("groups", "smooth"),
    ("smooth", "neighbors"),
    ("smooth", "linear", "exact", "field", "groups"),
]
"""Sums of terms in `priors.TERMS`: by rows, by weights, with more features than rows, and by sparse precisions."""


def observations(name, weighted=True, count=ROWS):
    """Return rows with observations of a smooth function, some of which count twice."""
    likelihood, learned = LIKELIHOODS[name]
    x, generator = table(count), torch.Generator().manual_seed(7)
    f = torch.sin(2 * x[:, 0]) + x[:, 1]
    if likelihood.num_latents > 1:
        f = torch.stack([f, x[:, 1], -x[:, 0]], dim=1)
    bound = likelihood.at({key: torch.tensor(value).double() for key, value in learned.items()})
    weight = torch.from_numpy(np.random.default_rng(8).integers(1, 3, count).astype(float)) if weighted else None
    return Block(x, bound.sample(f, generator)[:, None], weight=weight)


class PlainPrior(NamedTuple):
    """A sum of plain kernels."""

    kernels: tuple

    def kernel(self, a, b):
        return sum(kernel(a, b) for kernel in self.kernels)


class Observed(Problem):
    """Rows under a sum of terms and a likelihood, at hyperparameters `theta` by name.

    Args:
        names: Those of some terms.
        name: That of a likelihood.
        rows: The rows. If None, those of `observations`.
    """

    def __init__(self, names, name="poisson", rows=None):
        super().__init__(names, "plain", 1)
        self.name, (self.likelihood, learned) = name, LIKELIHOODS[name]
        self.rows = observations(name) if rows is None else rows
        own = {f"{term} {key}": self.theta[f"{term} {key}"].tolist() for term in names for key in TERMS[term].start}
        if self.likelihood.has_noise_process:
            own |= {f"noise {key}": value if "variance" in key else 0.9 * np.array(value) for key, value in own.items()}
        own |= {"mean": [0.3, -0.2, 0.1][: self.likelihood.num_latents] if name == "categorical" else [0.3]}
        self.learned_names = tuple(learned)
        self.theta = {
            key: torch.as_tensor(value, dtype=torch.float64).requires_grad_() for key, value in (own | learned).items()
        }

    @property
    def learned(self):
        return {key: self.theta[key] for key in self.learned_names}

    @property
    def bound(self):
        """The likelihood with its parameters."""
        return self.likelihood.at(self.learned)

    @property
    def functions(self):
        """The problem, and that of the log noise if there is one."""
        if not self.likelihood.has_noise_process:
            return [self]
        noise = copy(self)
        noise.theta = {key: self.theta.get(f"noise {key}", value) for key, value in self.theta.items()}
        return [self, noise]

    @property
    def plain(self):
        """The prior as a sum of kernels that share no code with the blocks."""
        return PlainPrior(tuple(TERMS[name].plain.at(self.of(name)).kernel for name in self.names))

    @property
    def covariance(self):
        """The prior covariance of the rows by plain kernels, (n, n)."""
        return self.plain.kernel(self.rows.inputs, self.rows.inputs)

    def infer(self, approximation="laplace", warm_start=()):
        priors = [function.prior for function in self.functions]
        return infer(priors, self.rows, self.mean, self.likelihood, self.learned, approximation, warm_start)

    def by(self, solver, approximation="laplace"):
        """Return inference by a function of (prior, rows, mean, noise) that returns a solver."""
        one = torch.ones((), dtype=torch.float64)
        functions = self.functions
        is_plain = solver is ReferenceSolver
        solvers = [solver(f.plain if is_plain else f.prior, self.rows, self.mean[:1], one) for f in functions]
        solvers *= self.likelihood.num_latents
        if approximation == "laplace":
            return Laplace(solvers[0], self.rows, self.mean, self.likelihood, self.learned)
        mean = torch.cat([self.mean, self.mean.new_zeros(len(functions) - 1)])
        return Variational(solvers, self.rows, mean, self.likelihood, self.learned)

    def moved(self, step, changes=None):
        """Return the problem at hyperparameters moved so far in one direction, without gradients, and changed."""
        other = copy(self)
        other.theta = {}
        for i, (key, value) in enumerate(self.theta.items()):
            direction = (0.4 + 0.25 * (i % 4)) * (1 if i % 3 else -1)
            other.theta[key] = value.detach() + step * direction * torch.linspace(1, 0.6, value.numel()).view_as(value)
        other.theta |= {key: torch.tensor(value, dtype=torch.float64) for key, value in (changes or {}).items()}
        return other


def check_gradient(problem, value, function):
    """Check the gradient of a value in all hyperparameters, in one direction, by differences of a function."""
    leaves = list(problem.theta.values())
    gradients = torch.autograd.grad(value, leaves, materialize_grads=True)
    assert all(bool(gradient.any()) for gradient in gradients)
    ends = [problem.moved(step) for step in (1e-4, -1e-4)]
    directions = [(a - b) / 2e-4 for a, b in zip(*(end.theta.values() for end in ends), strict=True)]
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
    with torch.no_grad():
        values = [float(function(end)) for end in ends]
    assert slope == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-5, abs=1e-5)


def by_rows(prior, rows, mean, noise):
    """Return the solver in memory, of weights that `infer` reads in blocks too."""
    return solver_in_memory(prior, rows, mean, noise)


def grid(first, second, fast):
    """Return all pairs for a parametrised test. Those for which `fast` is false are slow tests."""
    pairs = [(one, other) for other in second for one in first]
    return [pytest.param(*pair, marks=[] if fast(*pair) else pytest.mark.slow) for pair in pairs]


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


def dense_laplace(problem, start):
    """Return Laplace's approximation for a problem, from latent values (n,) near the mode."""
    data, likelihood, mean, kernel = problem.rows, problem.bound, problem.mean[0], problem.covariance
    y, counts, eye = data.targets[:, 0], data.counts(), torch.eye(len(data), dtype=torch.float64)
    f = start
    for _ in range(30):
        found, last = likelihood.slopes(y, f), f
        weight, gradient = -counts * found.second, counts * found.first
        f = mean + torch.linalg.solve(eye + kernel * weight, kernel @ (weight * (f - mean) + gradient))
        if float((f - last).detach().abs().max()) < 1e-12:
            break
    found = likelihood.slopes(y, f)
    inside = eye + kernel * (counts * likelihood.information(found, f)[0])
    square = (f - mean) @ (counts * found.first)
    value = (counts * found.value).sum() - 0.5 * (square + torch.logdet(inside))
    return DenseLaplace(f, value, torch.linalg.solve(inside, kernel))


def evidence_of_a_row(problem):
    """Return the log evidence of one row by a one-dimensional integral, at the prior mean 0.3."""
    variance = float(problem.theta["exact variance"])

    def integrand(f):
        at = torch.tensor([f], dtype=torch.float64)
        prior = np.exp(-0.5 * (f - 0.3) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
        return float(problem.bound.log_prob(problem.rows.targets[:, 0], at).exp()) * prior

    return np.log(integrate.quad(integrand, -9, 9)[0])


class SentRows:
    """Rows on another machine. Functions are sent to it as bytes."""

    def __init__(self, block):
        self.block, self.num_outputs = block, block.num_outputs
        self.is_homoscedastic, self.has_fixed_noise, self.count = (
            block.is_homoscedastic,
            block.has_fixed_noise,
            block.count,
        )

    def __len__(self):
        return len(self.block)

    def blocks(self, size):
        return self.block.blocks(size)

    def total(self, function, combine):
        return pickle.loads(pickle.dumps(function))(self.block)
