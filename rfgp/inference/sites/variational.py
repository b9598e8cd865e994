"""Variational inference over any solver, for rows in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rfgp.inference.composite import HeteroscedasticPosterior, IndependentFunctions
from rfgp.inference.sites.gaussian import (
    MOST_CLASS_STEPS,
    MOST_STEPS,
    MOST_WARM_STEPS,
    Approximation,
    Sites,
    VariationalProblem,
    find_sites,
    laplace_sites,
    mean_sites,
    prior_sites,
)
from rfgp.inference.sites.rows import regression
from rfgp.likelihoods import Likelihood
from rfgp.rows import Block
from rfgp.solvers import Inference, Posterior, Solver, WarmStart


@dataclass(frozen=True, eq=False)
class Variational(Inference):
    """The Gaussian nearest to the posterior of one or several functions.

    The bound is largest in the sites of `rfgp.inference.sites.gaussian`, so its gradient is that with the sites held:
    of Gaussian regressions on z = mean + beta / lambda with noise 1 / lambda, and of the mean log density.

    Attributes:
        solvers: Gaussian regression of the rows under the prior of each of L functions.
        rows: The rows, with one target each.
        mean: The prior means, (L,).
        likelihood: The likelihood, with its given parameters.
        learned: Its other parameters, 0-d each.
        mode: Returns the mode (n,) of one function, around which the search begins. If None, it begins at the means.
        start: A warm start, which is used in its place. The default is none.
    """

    solvers: Sequence[Solver]
    rows: Block
    mean: Tensor
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    mode: Callable[[], Tensor] | None = None
    start: WarmStart = ()

    @cached_property
    def approximation(self) -> Approximation:
        """The approximate posterior."""
        with torch.no_grad():
            likelihood = self.likelihood.at({name: value.detach() for name, value in self.learned.items()})
            problem = VariationalProblem(likelihood, self.rows, self.mean.detach(), self.solvers)
            is_warm, has_classes = bool(self.start), likelihood.num_latents > 1
            start = self._class_start(problem) if has_classes else self._start(problem)
            most_steps = MOST_WARM_STEPS if is_warm else MOST_CLASS_STEPS
            return find_sites(problem, start, most_steps if has_classes else MOST_STEPS)

    def _start(self, problem: VariationalProblem) -> Sites:
        """Return the sites at which the search for one function, or one and its log noise, begins."""
        if self.start:
            return Sites(*self.start)
        return mean_sites(problem) if self.mode is None else laplace_sites(problem, self.mode())

    def _class_start(self, problem: VariationalProblem) -> Sites:
        """Return the sites at which the search for functions of several classes begins: the better of two, if warm."""
        cold = prior_sites(problem)
        return max([cold, Sites(*self.start)], key=problem.bound) if self.start else cold

    def warm_start(self) -> WarmStart:
        """Return lambda and beta of the sites, (n, L) each."""
        return tuple(self.approximation.sites)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the lower bound of the log evidence, 0-d."""
        found = self.approximation
        if not torch.is_grad_enabled():
            return found.bound
        total = torch.stack([each.log_marginal_likelihood() for each in self._regressions()]).sum()
        if any(number.requires_grad for number in self.learned.values()):
            shifted = self.mean.detach() + found.mean + self.rows.offset()[:, None]
            expected = self.likelihood.at(self.learned).expected(self.rows.targets[:, 0], shifted, found.variance)
            total = total + (self.rows.counts() * expected.value).sum()
        return found.bound + (total - total.detach())

    def posterior(self) -> Posterior:
        """Return the posterior of the function, of several, or with that of the logarithm of the noise."""
        with torch.no_grad():
            each = [solver.posterior() for solver in self.approximation.solvers]
        if self.likelihood.has_noise_process:
            return HeteroscedasticPosterior(*each)
        return each[0] if len(each) == 1 else IndependentFunctions(tuple(each))

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the moments of the functions at each row given all others, without searching their sites again.

        Returns:
            Means and variances: (n, 1) and (n,) of one function, (n, 2) and (n, 2) of a function and its log noise,
            (n, L) and (n, L, L) of those of several classes.
        """
        found = self.approximation
        left = 1 / (1 / found.variance - found.sites.precision).clamp_min(1e-12)
        mean = self.mean.detach() + left * (found.mean / found.variance - found.sites.linear)
        if self.likelihood.num_latents > 1:
            return mean, torch.diag_embed(left)
        return mean, left[:, 0] if len(self.solvers) == 1 else left

    def _regressions(self) -> list[Solver]:
        """Return the Gaussian regressions at the sites, with gradients in the priors and the means."""
        precision, linear = self.approximation.sites
        working = torch.split(self.mean.detach() + linear / precision, 1, dim=1)
        each = zip(self.approximation.solvers, working, precision.mT, torch.split(self.mean, 1), strict=True)
        return [regression(solver, self.rows, z, weight, mean) for solver, z, weight, mean in each]
