"""Variational inference over any solver, for rows in memory.

The approximation is the prior times a Gaussian factor, or site, for each row. Let f = mean + h with h ~ N(0, K), and
let the factors be exp(beta_i h_i - lambda_i h_i^2 / 2). The approximation is then the posterior of a Gaussian
regression on h = beta / lambda with noise 1 / lambda. Its moments and the bound of the log evidence are

    m = K a,    a = beta - lambda m,    v = diag (K^-1 + lambda)^-1,
    bound = sum_i E_q log p(y_i | f_i) - log|I + K lambda| / 2 + (lambda^T v - m^T a) / 2.

The terms after the first sum E are -KL(q || prior). At the maximum of the bound, lambda = -2 dE/dv and beta = lambda m
+ dE/dm (Opper and Archambeau 2009, Eqs. 9 and 10). A step moves lambda and beta toward these values along the natural
gradient, as far as the bound increases (Khan and Lin 2017, "Conjugate-computation variational inference"). A step is
extrapolated from the last positions if that gives a higher bound. Several functions, each with its own prior, are
independent under the approximation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rfgp.errors import SolverError
from rfgp.inference.mixture import IndependentFunctions
from rfgp.inference.sites.newton import MAX_STEPS, NOT_FINITE, RowLikelihood, cavity, regression
from rfgp.likelihoods import Expected, Likelihood
from rfgp.likelihoods.role import MIN_CURVATURE
from rfgp.rows import Block
from rfgp.solvers import Inference, Posterior, Solver, WarmStart

TOLERANCE = 1e-4
"""The gain of a step, in nats per thousand rows, below which two consecutive steps end a search."""
CLASS_TOLERANCE = 3e-5
"""The same for three or more functions, in nats per row.

If inputs separate classes, the last tenth of a nat takes hundreds of steps. The value is a bound after any number of
steps, and each evaluation of a fit continues from the last one."""
ROUNDING = 1e-12
"""The relative rounding error of the bound."""
MEMORY = 10
"""The number of positions from which a step is extrapolated."""
MAX_RATIO = 1e3
"""The largest factor by which lambda may change in a step. Moments of e^f far from the optimum are unreliable."""
_MIN_LENGTH = 1e-4
"""The smallest length of a step."""
_RIDGE = 1e-10
"""The ridge of the Gram matrix of an extrapolation, relative to its largest diagonal entry."""
_MIN_VARIANCE = 1e-14
"""The smallest posterior variance v of a latent value. Smaller ones are raised to it."""


class Sites(NamedTuple):
    """Gaussian factors of n rows for L functions.

    Attributes:
        precision: The precisions lambda, (n, L).
        linear: The linear parameters beta, (n, L).
    """

    precision: Tensor
    linear: Tensor


@dataclass(frozen=True, eq=False)
class Approximation:
    """The approximate posterior with given sites.

    Attributes:
        sites: The sites.
        mean: The mean m without the prior mean, (n, L).
        variance: The variances v, (n, L).
        expected: The mean log density of one observation of each row, with derivatives.
        bound: The lower bound of the log evidence, 0-d.
        solvers: The Gaussian regression of each function.
    """

    sites: Sites
    mean: Tensor
    variance: Tensor
    expected: Expected
    bound: Tensor
    solvers: tuple[Solver, ...]

    def natural_gradient_step(self, counts: Tensor, length: float) -> Sites:
        """Return the sites after a step along the natural gradient.

        Args:
            counts: The numbers of observations of the rows, (n, 1).
            length: The length of the step, in (0, 1]. At 1 the new sites are optimal for the current moments.
        """
        precision = self.clamped_precision(counts * self.expected.curvature)
        linear = precision * self.mean + counts * self.expected.first
        pairs = zip(self.sites, (precision, linear), strict=True)
        return Sites(*((1 - length) * old + length * target for old, target in pairs))

    def clamped_precision(self, precision: Tensor) -> Tensor:
        """Return precisions that are positive and within the largest ratio to those of the sites, (n, L).

        Args:
            precision: The proposed precisions lambda, (n, L).
        """
        lowest = (self.sites.precision / MAX_RATIO).clamp_min(MIN_CURVATURE)
        return precision.clamp(lowest, self.sites.precision * MAX_RATIO)


@dataclass(frozen=True, eq=False)
class VariationalProblem:
    """Rows under a likelihood, and the priors of L functions.

    Attributes:
        likelihood: The likelihood, with values of all its parameters.
        rows: The rows, in memory.
        mean: The prior means, (L,).
        solvers: A Gaussian regression of the rows under the prior of each function.
    """

    likelihood: Likelihood
    rows: Block
    mean: Tensor
    solvers: Sequence[Solver]

    @property
    def counts(self) -> Tensor:
        """The numbers of observations of the rows, (n, 1)."""
        return self.rows.counts()[:, None]

    def bound(self, sites: Sites) -> float:
        """Return the bound, or -inf instead of NaN.

        Args:
            sites: The sites.
        """
        value = float(self.at(sites).bound)
        return -math.inf if math.isnan(value) else value

    def at(self, sites: Sites) -> Approximation:
        """Return the approximation with given sites.

        Args:
            sites: The sites.
        """
        zero = self.mean.new_zeros(1)
        working = torch.split(sites.linear / sites.precision, 1, dim=1)
        triples = zip(self.solvers, working, sites.precision.mT, strict=True)
        solvers = tuple(regression(solver, self.rows, z, weight, zero) for solver, z, weight in triples)
        mean = torch.cat([solver.fitted for solver in solvers], dim=1)
        variance = torch.stack([solver.latent_variances for solver in solvers], dim=1).clamp_min(_MIN_VARIANCE)
        expected = RowLikelihood(self.likelihood, self.rows).expected(self.mean + mean, variance)
        precision, linear = sites
        quadratic = (precision * variance).sum() - (mean * (linear - precision * mean)).sum()
        determinants = torch.stack([solver.log_determinant for solver in solvers]).sum()
        bound = (self.rows.counts() * expected.value).sum() + 0.5 * (quadratic - determinants)
        return Approximation(sites, mean, variance, expected, bound, solvers)


def find_sites(problem: VariationalProblem, start: Sites) -> Approximation:
    """Return the best approximation found by a search from given sites.

    Args:
        problem: The rows and the priors.
        start: The starting sites.

    Raises:
        SolverError: If the bound is not finite at the start.
    """
    current, history = problem.at(start), list[Tensor]()
    if not bool(torch.isfinite(current.bound)):
        raise SolverError(NOT_FINITE)
    tolerance, num_small, length = TOLERANCE * (1 + len(problem.rows) / 1000), 0, 1.0
    if len(problem.solvers) > 2:
        tolerance = max(tolerance, CLASS_TOLERANCE * len(problem.rows))
    for _ in range(MAX_STEPS):
        proposal = _extrapolated(problem, current, history)
        if proposal is None:
            proposal, length = _damped_step(problem, current, length)
        if proposal is None:
            break
        num_small = num_small + 1 if float(proposal.bound - current.bound) < tolerance else 0
        current = proposal
        if num_small == 2:
            break
    return current


def _damped_step(
    problem: VariationalProblem, current: Approximation, length: float
) -> tuple[Approximation | None, float]:
    """Return an approximation with a bound that is no lower, and the next length."""
    min_bound = current.bound - ROUNDING * current.bound.abs()
    while length >= _MIN_LENGTH:
        proposal = problem.at(current.natural_gradient_step(problem.counts, length))
        if bool(proposal.bound >= min_bound):
            return proposal, min(1.0, 1.5 * length)
        length /= 2
    return None, length


def _extrapolated(problem: VariationalProblem, current: Approximation, history: list[Tensor]) -> Approximation | None:
    """Return the approximation at a position extrapolated from the last ones, or None if its bound is no higher.

    A step of length 1 maps sites x to x + g(x). The result is the affine combination of the last positions and steps,
    which are appended to the history, at which a linear g would be 0 (Anderson acceleration, Walker and Ni 2011).
    """
    position = torch.stack(current.sites)
    step = torch.stack(current.natural_gradient_step(problem.counts, 1.0)) - position
    history.append(torch.stack([position, step]))
    del history[:-MEMORY]
    if len(history) == 1:
        return None
    moved, changes = torch.stack(history).diff(dim=0).flatten(2).unbind(1)
    gram = changes @ changes.mT
    gram.diagonal().add_(_RIDGE * gram.diagonal().max() + torch.finfo(gram.dtype).tiny)
    shares = torch.linalg.solve(gram, changes @ step.reshape(-1))
    precision, linear = position + step - (shares @ (moved + changes)).reshape(step.shape)
    proposal = problem.at(Sites(current.clamped_precision(precision), linear))
    if bool(proposal.bound > current.bound):
        return proposal
    history.clear()
    return None


@dataclass(frozen=True, eq=False)
class Variational(Inference):
    """Variational inference by Gaussian sites, which maximize a lower bound of the evidence.

    At the maximum, the gradient of the bound in the hyperparameters is that with constant sites. It is the sum of the
    gradients of Gaussian regressions on z = mean + beta / lambda with noise 1 / lambda, and of the mean log density.

    Attributes:
        solvers: A Gaussian regression of the rows for each of L functions.
        rows: The rows, with one target each.
        mean: The prior means, (L,).
        likelihood: The likelihood, with its given parameters.
        learned: The learned parameters of the likelihood, 0-d each.
        laplace: A function that returns Laplace's approximation for one latent function, at whose mode the search
            starts. If None, or for several classes, it starts from the prior, and for a function and its log noise at
            their prior means.
        start: The sites lambda and beta of an earlier search, used instead of the mode and of the prior means. If
            empty, there is no warm start. A search that would start from the prior starts at these sites if they have
            the higher bound.
    """

    solvers: Sequence[Solver]
    rows: Block
    mean: Tensor
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    laplace: Callable[[], Any] | None = None
    start: WarmStart = ()

    @cached_property
    def approximation(self) -> Approximation:
        """The approximate posterior."""
        with torch.no_grad():
            likelihood = self.likelihood.at({name: value.detach() for name, value in self.learned.items()})
            problem = VariationalProblem(likelihood, self.rows, self.mean.detach(), self.solvers)
            return find_sites(problem, self._start(problem))

    def _start(self, problem: VariationalProblem) -> Sites:
        """Return the initial sites: the last ones, those of Laplace's approximation, or the optimal ones of a guess.

        The guess is the prior, or its mean if the noise is a process.
        """
        rows, is_process = problem.rows, self.likelihood.has_noise_process
        if self.start and (is_process or (self.likelihood.num_latents == 1 and self.laplace is not None)):
            return Sites(*self.start)
        if self.likelihood.num_latents == 1 and self.laplace is not None:
            terms = RowLikelihood(problem.likelihood, rows).terms(f := self.laplace().fitted)
            return Sites(terms.weight[:, None], (terms.gradient + terms.weight * (f - problem.mean))[:, None])
        mean = problem.mean.expand(len(rows), -1)
        if is_process:
            like = torch.full_like(mean, _MIN_VARIANCE)
            expected = RowLikelihood(problem.likelihood, rows).expected(mean, like)
        else:
            expected = problem.at(Sites(torch.full_like(mean, MIN_CURVATURE), torch.zeros_like(mean))).expected
        precision = (problem.counts * expected.curvature).clamp_min(MIN_CURVATURE)
        cold = Sites(precision, problem.counts * expected.first)
        return max([cold, Sites(*self.start)], key=problem.bound) if self.start else cold

    def warm_start(self) -> WarmStart:
        """Return lambda and beta of the sites, (n, L) each."""
        return tuple(self.approximation.sites)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the lower bound of the log evidence, 0-d."""
        approximation = self.approximation
        if not torch.is_grad_enabled():
            return approximation.bound
        total = torch.stack([solver.log_marginal_likelihood() for solver in self._regressions()]).sum()
        if any(number.requires_grad for number in self.learned.values()):
            rows = RowLikelihood(self.likelihood.at(self.learned), self.rows)
            expected = rows.expected(self.mean.detach() + approximation.mean, approximation.variance)
            total = total + (self.rows.counts() * expected.value).sum()
        return approximation.bound + (total - total.detach())

    def posterior(self) -> Posterior:
        """Return the posterior of one function, of several, or of a function and its log noise."""
        with torch.no_grad():
            posteriors = [solver.posterior() for solver in self.approximation.solvers]
        if self.likelihood.has_noise_process:
            return posteriors[0].with_noise_process(posteriors[1])
        return posteriors[0] if len(posteriors) == 1 else IndependentFunctions(tuple(posteriors))

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the moments of the functions at each row given all others, with the same sites.

        Returns:
            The means and variances. One function has (n, 1) and (n,), and a function with its log noise (n, 2) and (n,
            2). The functions of several classes have means (n, L) and covariances (n, L, L).
        """
        (precision, linear), found = self.approximation.sites, self.approximation
        gradient = linear - precision * found.mean
        mean, variance = cavity(self.mean.detach() + found.mean, found.variance, gradient, precision)
        if self.likelihood.num_latents > 1:
            return mean, torch.diag_embed(variance)
        return mean, variance[:, 0] if len(self.solvers) == 1 else variance

    def _regressions(self) -> list[Solver]:
        """Return the Gaussian regressions at the sites, with gradients."""
        precision, linear = self.approximation.sites
        working = torch.split(self.mean.detach() + linear / precision, 1, dim=1)
        functions = zip(self.approximation.solvers, working, precision.mT, torch.split(self.mean, 1), strict=True)
        return [regression(solver, self.rows, z, weight, mean) for solver, z, weight, mean in functions]
