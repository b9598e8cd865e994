"""The normal law nearest to a posterior, of the form that it has: prior times a normal factor for each row.

For f = mean + h, h ~ N(0, K), and factors exp(beta_i h_i - lambda_i h_i^2 / 2),
with L L^T = I + lambda^1/2 K lambda^1/2,

    m = K a,  a = beta - lambda m,    v = diag (K^-1 + lambda)^-1,
    bound = sum_i E_q log p(y_i | f_i) - log|L| + (lambda^T v - m^T a) / 2,

the last two being -KL(q || prior). It is largest where lambda = -2 dE/dv and beta = lambda m + dE/dm, E the sum (Opper
and Archambeau 2009, Eqs. 9 and 10), which a step goes towards as far as the bound rises: steps in the natural
parameters, along its natural gradient (Khan and Lin 2017, "Conjugate-computation variational inference"), each
extrapolated from the last ones where that leads higher. The search begins at Laplace's approximation where there is
one. Of several functions, which may each have a prior of its own, the law is that of independent ones.
"""

import math
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
STEPS_OF_CLASSES, STEPS_NEAR = 60, 20
"""Steps for several classes, and from factors close by. Where inputs separate classes the last tenth of a nat takes
hundreds; each evaluation of a fit goes on where the last one ended, and a bound it is anywhere."""
TOLERANCE, A_ROW = 1e-4, 3e-5
"""Nats a thousand rows, and of several classes nats a row: what two steps in a row gain less than ends the search. Of
twenty steps for ten classes the last fifteen gain 2e-5 a row together."""
ROUNDED = 1e-12
"""Of the bound: what may be rounding."""
REMEMBERED = 10
"""Places from which a step is extrapolated. Of 26 problems those that took more than 40 steps without took .1 to .4 of
them with several classes, .2 to .8 with noise that varies, and ended no lower."""
FARTHEST = 1e3
"""The factor by which lambda may change in a step: far from the law e^f may be anything."""
_LEAST_STEP, _LEAST_VARIANCE, _RIDGE = 1e-4, 1e-14, 1e-10


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
        precision = self.within_reach(counts * self.expected.curvature)
        pull = precision * self.mean + counts * self.expected.first
        return (
            (1 - length) * self.precision + length * precision,
            (1 - length) * self.pull + length * pull,
        )

    def within_reach(self, precision: Tensor) -> Tensor:
        """Return lambda (n, L) no further off than a step may go, and positive."""
        least = (self.precision / FARTHEST).clamp_min(LEAST_CURVATURE)
        return precision.clamp(least, self.precision * FARTHEST)


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

    def value_at(self, precision: Tensor, pull: Tensor) -> float:
        """Return the bound for factors (n, L), less than all others where it is no number."""
        value = float(self.at(precision, pull).bound)
        return -math.inf if math.isnan(value) else value

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


def find_sites(problem: Problem, precision: Tensor, pull: Tensor, most: int = MOST_STEPS) -> Sites:
    """Return the best factors, from lambda and beta (n, L), or those that so many steps at most lead to.

    Raises:
        SolverError: the bound has no finite value there.
    """
    now, leaps = problem.at(precision, pull), Leaps(problem)
    if not bool(torch.isfinite(now.bound)):
        raise SolverError(NOT_FINITE)
    tolerance, few, length = TOLERANCE * (1 + len(problem.rows) / 1000), 0, 1.0
    if len(problem.smooth) > 2:
        tolerance = max(tolerance, A_ROW * len(problem.rows))
    for _ in range(most):
        tried = leaps.beyond(now)
        if tried is None:
            tried, length = _stepped(problem, now, length)
        if tried is None:
            break
        few = few + 1 if float(tried.bound - now.bound) < tolerance else 0
        now = tried
        if few == 2:
            break
    return now


def _stepped(problem: Problem, now: Sites, length: float) -> tuple[Sites | None, float]:
    """Return a law that is no worse, if one is found, and the length that a next step may have."""
    while length >= _LEAST_STEP:
        tried = problem.at(*now.towards(problem.counts, length))
        if float(tried.bound - now.bound) >= -ROUNDED * abs(float(now.bound)):  # which no number is not
            return tried, min(1.0, 1.5 * length)
        length /= 2
    return None, length


class Leaps:
    """Where steps lead that are extrapolated from the last ones: Anderson's mixing (Walker and Ni 2011).

    A step of length 1 maps the factors x to x + g(x). Of the last places and steps it takes the combination, of weights
    that sum to one, at which linear g would be smallest.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._places: list[Tensor] = []
        self._steps: list[Tensor] = []

    def beyond(self, now: Sites) -> Sites | None:
        """Return the law that the last places lead to, if there are two, and it is better than this one."""
        place = torch.stack([now.precision, now.pull]).reshape(-1)
        step = torch.stack(now.towards(self._problem.counts, 1.0)).reshape(-1) - place
        self._places, self._steps = [*self._places, place][-REMEMBERED:], [*self._steps, step][-REMEMBERED:]
        if len(self._places) == 1:
            return None
        steps = torch.stack(self._steps).diff(dim=0)
        gram = steps @ steps.mT
        gram.diagonal().add_(_RIDGE * gram.diagonal().max() + torch.finfo(gram.dtype).tiny)
        shares = torch.linalg.solve(gram, steps @ step)
        reached = place + step - shares @ (torch.stack(self._places).diff(dim=0) + steps)
        precision, pull = reached.reshape(2, *now.precision.shape)
        tried = self._problem.at(now.within_reach(precision), pull)
        if bool(tried.bound > now.bound):
            return tried
        self._places, self._steps = [], []
        return None


def around(problem: Problem, f: Tensor) -> tuple[Tensor, Tensor]:
    """Return Laplace's lambda and beta (n, 1) at the mode f (n,)."""
    now = Observed(problem.likelihood, problem.rows).at(f)
    return now.weight[:, None], (now.first + now.weight * (f - problem.mean))[:, None]


def from_priors(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return what rows say of functions (n, L) that are as wide as their priors."""
    none = problem.mean.new_zeros(len(problem.rows), len(problem.smooth))
    widest = problem.at(none + LEAST_CURVATURE, none)
    precision = (problem.counts * widest.expected.curvature).clamp_min(LEAST_CURVATURE)
    return precision, problem.counts * widest.expected.first


def at_means(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return what rows say of functions (n, L) that are as good as known to be their means."""
    law, rows, counts = problem.likelihood, problem.rows, problem.counts
    mean = problem.mean.expand(len(rows), -1)
    expected = law.expected(rows.targets[:, 0], mean, torch.full_like(mean, _LEAST_VARIANCE))
    return (counts * expected.curvature).clamp_min(LEAST_CURVATURE), counts * expected.first
