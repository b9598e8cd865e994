"""Bayesian linear regression as a posterior of two named terms, and its dense twin by kernel matrices."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rfgp.blocks import Prior, WeightBlock
from rfgp.solvers import Posterior

NOISE = 0.3


def trend(x):
    return torch.cat([torch.ones(len(x), 1, dtype=x.dtype), x], dim=1)


def season(x):
    return torch.cat([torch.sin(4 * x), torch.cos(4 * x)], dim=1)


PRIOR = Prior(weights=(WeightBlock(trend, 2, name="trend"), WeightBlock(season, 2, name="season")))


def data(outputs=1, rows=12):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, 1, generator=generator, dtype=torch.float64) * 3
    y = torch.sin(4 * x) + x + 0.5 * torch.randn(rows, outputs, generator=generator, dtype=torch.float64)
    return x, y


def points(n=25, offset=0.0):
    return torch.linspace(-1 + offset, 4, n, dtype=torch.float64)[:, None]


@dataclass(frozen=True, eq=False)
class LinearPosterior(Posterior):
    """w ~ N(weights, precision^-1), read through the features of the terms in `names`; it logs what it projects."""

    prior: Prior
    weights: Tensor
    precision: Tensor
    names: tuple[str, ...] = ("trend", "season")
    projected: list[int] = field(default_factory=list)
    width = 4

    @classmethod
    def given(cls, x, y, prior=PRIOR):
        phi = prior.dense.scaled(x)
        precision = torch.eye(4, dtype=torch.float64) + phi.mT @ phi / NOISE
        return cls(prior, torch.linalg.solve(precision, phi.mT @ y / NOISE), precision)

    def features(self, inputs, names):
        return self.prior.dense.scaled(inputs) * self.prior.dense.of(names)

    def project(self, inputs):
        self.projected.append(len(inputs))
        return self.features(inputs, self.names)

    def mean(self, projected):
        return projected @ self.weights

    def variance(self, inputs, projected):
        return (projected * torch.linalg.solve(self.precision, projected.mT).mT).sum(1)

    def covariance(self, inputs, projected):
        return projected @ torch.linalg.solve(self.precision, projected.mT)

    def sample_functions(self, count, generator):
        standard = torch.randn(count, 4, 1, generator=generator, dtype=torch.float64)
        w = self.weights + torch.linalg.solve(torch.linalg.cholesky(self.precision).mT, standard)
        return lambda inputs: self.features(inputs, self.names) @ w

    def tensors(self):
        return {"weights": self.weights, "precision": self.precision}

    def shapes(self, n, k):
        return {"weights": (4, k), "precision": (4, 4)}

    def of(self, names):
        return LinearPosterior(self.prior, self.weights, self.precision, tuple(names), self.projected)

    def cross_covariance(self, inputs, first, second):
        return self.features(inputs, first) @ torch.linalg.solve(self.precision, self.features(inputs, second).mT)


def dense(x, y, new, first=("trend", "season"), second=None, prior=PRIOR):
    """Return the mean (n, k) of the sum of some terms, and its covariance (n, n) with that of others, by kernels."""
    second = first if second is None else second

    def kernel(names, a, b):
        return sum(block.kernel(a, b) for block in prior.blocks if block.name in names)

    inverse = torch.linalg.inv(prior.kernel(x, x.clone()) + NOISE * torch.eye(len(x), dtype=torch.float64))
    left, right = kernel(first, new, x), kernel(second, new, x)
    shared = [name for name in first if name in second]
    between = kernel(shared, new, new.clone()) if shared else 0.0
    return left @ inverse @ y, between - left @ inverse @ right.mT
