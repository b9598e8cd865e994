"""Gaussian regression by n x n matrices as the textbook has it: the slow twin of every solver."""

import math
from functools import cached_property

import torch

from rfgp.solvers import Inference, Posterior


class ReferenceSolver(Inference):
    """y = mean + f + e with f ~ N(0, K) and e ~ N(0, D), differentiable by autograd.

    Args:
        prior: What has `kernel` and `diagonal`.
        rows: A block.
        mean: (k,).
        noise: 0-d.
        kernel: K, if it is known.
    """

    def __init__(self, prior, rows, mean, noise, kernel=None):
        self.prior, self.rows, self.mean, self.noise = prior, rows, mean, noise
        self.kernel = prior.kernel(rows.inputs, rows.inputs) if kernel is None else kernel
        self.variances = rows.noise_diag(noise).expand(len(rows))
        self.residual = rows.targets - mean

    def with_data(self, rows, mean, noise):
        return type(self)(self.prior, rows, mean, noise, self.kernel)

    @cached_property
    def factor(self):
        return torch.linalg.cholesky(self.kernel + self.variances.diag())

    @property
    def coefficients(self):
        return torch.cholesky_solve(self.residual, self.factor)

    @property
    def fitted(self):
        return self.kernel @ self.coefficients

    @property
    def latent_variances(self):
        half = torch.linalg.solve_triangular(self.factor, self.kernel, upper=False)
        return self.kernel.diagonal() - half.square().sum(0)

    @property
    def log_determinant(self):
        return 2 * self.factor.diagonal().log().sum() - self.variances.log().sum()

    def log_marginal_likelihood(self):
        squares = (self.residual * self.coefficients).sum(0)
        determinant = 2 * self.factor.diagonal().log().sum() + len(self.rows) * math.log(2 * math.pi)
        weight, each = self.rows.counts(), self.rows.observation_noise(self.noise)  # of repeated observations
        repeated = ((weight - 1) * (2 * math.pi * each).log() + weight.log()).sum()
        return -0.5 * (self.rows.output_weights * (squares + determinant + repeated)).sum()

    def posterior(self):
        return ReferencePosterior(self)

    def leave_one_out(self):
        variance = 1 / torch.cholesky_inverse(self.factor).diagonal()
        return self.rows.targets - self.coefficients * variance[:, None], variance


class ReferencePosterior(Posterior):
    """The posterior of f by n x n matrices."""

    def __init__(self, solver):
        self.solver, self.prior = solver, solver.prior

    @property
    def width(self):
        return len(self.solver.rows)

    def project(self, inputs):
        return self.prior.kernel(inputs, self.solver.rows.inputs)

    def mean(self, projected):
        return projected @ self.solver.coefficients

    def variance(self, inputs, projected):
        return self.covariance(inputs, projected).diagonal()

    def covariance(self, inputs, projected):
        half = torch.linalg.solve_triangular(self.solver.factor, projected.mT, upper=False)
        return self.prior.kernel(inputs, inputs) - half.mT @ half

    def sample_functions(self, count, generator):
        raise NotImplementedError

    def tensors(self):
        return {"coefficients": self.solver.coefficients}

    def shapes(self, n, k):
        return {"coefficients": (n, k)}
