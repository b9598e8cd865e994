"""The normal law nearest to a posterior, of the form that it has: prior times a normal factor for each row.

For f = mean + h, h ~ N(0, K), and factors exp(beta_i h_i - lambda_i h_i^2 / 2),
with L L^T = I + lambda^1/2 K lambda^1/2,

    m = K a,  a = beta - lambda m,    v = diag (K^-1 + lambda)^-1,
    bound = sum_i E_q log p(y_i | f_i) - log|L| + (lambda^T v - m^T a) / 2,

the last two being -KL(q || prior). It is largest where lambda = -2 dE/dv and beta = lambda m + dE/dm, E the sum (Opper
and Archambeau 2009, Eqs. 9 and 10), which a step goes towards as far as the bound rises: steps in the natural
parameters, along its natural gradient (Khan and Lin 2017, "Conjugate-computation variational inference"). The search
begins at Laplace's approximation where there is one. Of two functions, each with a prior of its own, the law is that of
independent ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.errors import SolverError
from rfgp.inference.laplace.search import NOT_FINITE, Observed
from rfgp.likelihoods import Expected, Likelihood
from rfgp.likelihoods.role import LEAST_CURVATURE
from rfgp.rows import Block

MOST_STEPS = 300
TOLERANCE = 1e-6
"""Nats a thousand rows: what two steps in a row gain less than ends the search."""
ROUNDED = 1e-12
"""Of the bound: what may be rounding."""
_LEAST_STEP, _LEAST_VARIANCE = 1e-4, 1e-14


class Smoothed(NamedTuple):
    """Of one function under its factors."""

    mean: Tensor  # m (n,)
    variance: Tensor  # v (n,)
    determinant: Tensor  # 0-d, log|L|


Smooth = Callable[[Tensor, Tensor], Smoothed]
"""From lambda and beta (n,) to the law of a function at the rows."""


@dataclass(frozen=True, eq=False)
class Sites:
    """The factors, and what is to be known of the law that they give.

    Attributes:
        precision: lambda (n, L).
        pull: beta (n, L).
        mean: m (n, L), without that of the prior.
        variance: v (n, L).
        expected: Of the likelihood; of one observation of each row.
        bound: Of the log evidence, 0-d.
    """

    precision: Tensor
    pull: Tensor
    mean: Tensor
    variance: Tensor
    expected: Expected
    bound: Tensor

    def towards(self, counts: Tensor, length: float) -> tuple[Tensor, Tensor]:
        """Return lambda and beta (n, L), gone so far towards those that the law asks for."""
        precision = (counts * self.expected.curvature).clamp_min(LEAST_CURVATURE)
        pull = precision * self.mean + counts * self.expected.first
        return (
            (1 - length) * self.precision + length * precision,
            (1 - length) * self.pull + length * pull,
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows under a likelihood, and the priors of the functions.

    Attributes:
        likelihood: With all its parameters.
        rows: The data.
        mean: (L,).
        smooth: Of each function.
    """

    likelihood: Likelihood
    rows: Block
    mean: Tensor
    smooth: Sequence[Smooth]

    @property
    def counts(self) -> Tensor:
        """How often the rows count, (n, 1)."""
        return self.rows.counts()[:, None]

    def at(self, precision: Tensor, pull: Tensor) -> Sites:
        """Return the law for factors (n, L)."""
        laws = [one(precision[:, i], pull[:, i]) for i, one in enumerate(self.smooth)]
        mean = torch.stack([law.mean for law in laws], dim=1)
        variance = torch.stack([law.variance for law in laws], dim=1).clamp_min(_LEAST_VARIANCE)
        seen = self.mean + mean + self.rows.offset()[:, None]
        expected = self.likelihood.expected(self.rows.targets[:, 0], seen, variance)
        inside = 0.5 * ((precision * variance).sum() - (mean * (pull - precision * mean)).sum())
        bound = (self.rows.counts() * expected.value).sum() + inside - torch.stack([x.determinant for x in laws]).sum()
        return Sites(precision, pull, mean, variance, expected, bound)


def find_sites(problem: Problem, precision: Tensor, pull: Tensor) -> Sites:
    """Return the best factors, from lambda and beta (n, L).

    Raises:
        SolverError: the bound has no finite value there.
    """
    now, length, few = problem.at(precision, pull), 1.0, 0
    if not bool(torch.isfinite(now.bound)):
        raise SolverError(NOT_FINITE)
    tolerance = TOLERANCE * (1 + len(problem.rows) / 1000)
    for _ in range(MOST_STEPS):
        tried = problem.at(*now.towards(problem.counts, length))
        gain = float(tried.bound - now.bound)
        if gain >= -ROUNDED * abs(float(now.bound)):
            now, few = tried, few + 1 if gain < tolerance else 0
            if few == 2:
                break
            length = min(1.0, 1.5 * length)
        else:  # also where it is no number
            length /= 2
            if length < _LEAST_STEP:
                break
    return now


def around(problem: Problem, f: Tensor) -> tuple[Tensor, Tensor]:
    """Return Laplace's lambda and beta (n, 1) at the mode f (n,)."""
    now = Observed(problem.likelihood, problem.rows).at(f)
    return now.weight[:, None], (now.first + now.weight * (f - problem.mean))[:, None]


def at_means(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return what rows say of functions (n, L) that are as good as known to be their means."""
    law, rows, counts = problem.likelihood, problem.rows, problem.counts
    mean = problem.mean.expand(len(rows), -1)
    expected = law.expected(rows.targets[:, 0], mean, torch.full_like(mean, _LEAST_VARIANCE))
    return (counts * expected.curvature).clamp_min(LEAST_CURVATURE), counts * expected.first
