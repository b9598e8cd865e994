"""Gaussian regression by dense inverses and autograd: the twin of every solver, with no code of the package.

A row that counts w times is w observations, each with a noise of its own.
"""

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import torch


class PlainTerm(NamedTuple):
    """A term as functions of inputs a (n, d) and b (m, d).

    Attributes:
        kernel: Its covariance k(a, b), (n, m).
        whole: The kernel of which k is an approximation from below. If None, k is the kernel.
        is_noise: Whether whole - k is noise of each observation (FITC). Otherwise it is a part of the function at new
            points, and the likelihood is a bound (VFE).
    """

    kernel: Callable
    whole: Callable | None = None
    is_noise: bool = False

    def at(self, hyperparameters):
        """Return the term at hyperparameters by name."""
        whole = None if self.whole is None else partial(self.whole, **hyperparameters)
        return PlainTerm(partial(self.kernel, **hyperparameters), whole, self.is_noise)

    def missing(self, a):
        """Return the covariance (n, n) of the residual."""
        if self.whole is None:
            return a.new_zeros(len(a), len(a))
        residual = self.whole(a, a) - self.kernel(a, a)
        return residual.diagonal().diag() if self.is_noise else residual


class DenseTwin:
    """y = mean + sum of terms + noise.

    Args:
        terms: By name.
        rows: A block.
        mean: (k,).
        noise: 0-d.
    """

    def __init__(self, terms, rows, mean, noise):
        self.terms, self.rows, self.mean = terms, rows, mean
        self.residual = rows.targets - mean
        self.counts = torch.ones(len(rows)).double() if rows.weight is None else rows.weight
        self.output_weights = (
            torch.ones(len(mean)).double() if rows.given_output_weights is None else rows.given_output_weights
        )
        self.own = noise if rows.fixed_noise is None else noise + rows.fixed_noise  # of one observation, without FITC
        self.own = self.own.expand(len(rows))
        missing = {name: term.missing(rows.inputs).diagonal() for name, term in terms.items()}
        self.as_noise = sum((missing[name] for name in terms if terms[name].is_noise), start=0 * self.own)
        self.as_bound = sum((missing[name] for name in terms if not terms[name].is_noise), start=0 * self.own)
        self.noise_diag = (self.own + self.as_noise) / self.counts

    def kernel(self, a, b, names=None):
        return sum(self.terms[name].kernel(a, b) for name in (self.terms if names is None else names))

    @cached_property
    def prior(self):
        return self.kernel(self.rows.inputs, self.rows.inputs)

    @cached_property
    def inverse(self):
        return torch.linalg.inv(self.prior + self.noise_diag.diag())

    # --- the rows ---

    def log_marginal_likelihood(self):
        """Return the log density of all observations, written out one by one, and the bound's penalty."""
        observed = torch.arange(len(self.rows)).repeat_interleave(self.counts.long())
        C = self.prior[observed][:, observed] + (self.own + self.as_noise)[observed].diag()
        y = self.residual[observed]
        squares = (y * (torch.linalg.inv(C) @ y)).sum(0)
        normaliser = torch.linalg.slogdet(C)[1] + len(y) * math.log(2 * math.pi)
        penalty = (self.as_bound / self.noise_diag).sum()
        return -0.5 * (self.output_weights * (squares + normaliser + penalty)).sum()

    @property
    def coefficients(self):
        return self.inverse @ self.residual

    @property
    def fitted(self):
        return self.prior @ self.coefficients

    @property
    def latent_variances(self):
        return (self.prior - self.prior @ self.inverse @ self.prior).diagonal()

    @property
    def log_determinant(self):
        return torch.linalg.slogdet(torch.eye(len(self.rows)) + self.prior / self.noise_diag)[1]

    def dof_fraction(self, names, num_weights):
        """Return the share of the weights of some terms that the rows determine."""
        K = self.kernel(self.rows.inputs, self.rows.inputs, names)
        return (K * self.inverse).sum() / num_weights

    def leave_one_out(self):
        """Return mean (n, k) and variance (n,) of each row's mean observation, by n regressions without it."""
        means, variances = [], []
        for i in range(len(self.rows)):
            others = [j for j in range(len(self.rows)) if j != i]
            inverse = torch.linalg.inv(self.prior[others][:, others] + self.noise_diag[others].diag())
            cross = self.prior[i, others]
            means.append(self.mean + cross @ inverse @ self.residual[others])
            residual = self.as_noise[i] + self.as_bound[i]
            variances.append(self.prior[i, i] - cross @ inverse @ cross + residual + self.own[i] / self.counts[i])
        return torch.stack(means), torch.stack(variances)

    # --- new points ---

    def predicted_mean(self, new, names=None):
        return self.kernel(new, self.rows.inputs, names) @ self.coefficients

    def predicted_covariance(self, new, first=None, second=None):
        """Return the covariance (n, n) between the sums of some terms and of others; of all terms if None."""
        first, second = (self.terms if names is None else names for names in (first, second))
        shared = [self.terms[name] for name in first if name in second]
        prior = sum(term.kernel(new, new) + term.missing(new) for term in shared)
        left, right = (self.kernel(new, self.rows.inputs, names) for names in (first, second))
        return prior - left @ self.inverse @ right.mT
