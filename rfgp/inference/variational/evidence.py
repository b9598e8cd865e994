"""Variational inference by the algebra of Gaussian regression."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.inference.evidence import Evidence, Guess
from rfgp.inference.independent import IndependentPosterior
from rfgp.inference.laplace.evidence import Gaussian
from rfgp.inference.laws import Posterior
from rfgp.inference.noisy import NoisyPosterior
from rfgp.inference.variational.sites import (
    STEPS_NEAR,
    STEPS_OF_CLASSES,
    Problem,
    Sites,
    Smooth,
    around,
    at_means,
    find_sites,
    from_priors,
)
from rfgp.likelihoods import Likelihood
from rfgp.rows import Block


class Function(NamedTuple):
    """One of the functions that a row sees: its Gaussian regression, and the law at the rows alone."""

    gaussian: Gaussian
    smooth: Smooth


@dataclass(frozen=True, eq=False)
class VariationalEvidence(Evidence):
    """What rows say under a likelihood that is not normal, through the normal law nearest to the posterior.

    The bound is largest in the factors of `rfgp.inference.variational.sites`, so its gradient is that with these held:
    of a Gaussian regression on z = mean + beta / lambda with the noise 1 / lambda, and of the mean log density.

    Attributes:
        functions: L of them.
        rows: The data, with one target each.
        mean: Of the functions, (L,).
        likelihood: With its given parameters.
        learned: Its others, 0-d each, with gradients where they have some.
        mode: Returns the mode (n,) of the posterior, around which the search begins; None: at the means.
        near: Factors to begin with in its place.
    """

    functions: Sequence[Function]
    rows: Block
    mean: Tensor
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    mode: Callable[[], Tensor] | None = None
    near: Guess = ()

    @cached_property
    def sites(self) -> Sites:
        """The factors."""
        with torch.no_grad():
            law = self.likelihood.at({name: value.detach() for name, value in self.learned.items()})
            problem = Problem(law, self.rows, self.mean.detach(), [each.smooth for each in self.functions])
            if law.num_latents > 1:
                return self._of_classes(problem)
            begun = around(problem, self.mode()) if self.mode is not None and not self.near else at_means(problem)
            precision, pull = self.near or begun
            return find_sites(problem, precision, pull)

    def _of_classes(self, problem: Problem) -> Sites:
        """Return the factors of several classes, from the better of two starts where there are two."""
        starts = [from_priors(problem), *([(self.near[0], self.near[1])] if self.near else [])]
        precision, pull = max(starts, key=lambda start: problem.value_at(*start))
        return find_sites(problem, precision, pull, STEPS_NEAR if self.near else STEPS_OF_CLASSES)

    def guess(self) -> Guess:
        """Return the factors' lambda and beta, (n, L) each."""
        return self.sites.precision, self.sites.pull

    def log_marginal_likelihood(self) -> Tensor:
        """Return the lower bound of the log evidence, 0-d."""
        value = self.sites.bound
        if not torch.is_grad_enabled():
            return value
        parts = [each.log_marginal_likelihood() for each in self._regressions(self.mean)]
        if any(number.requires_grad for number in self.learned.values()):
            law = self.likelihood.at(self.learned)
            mean = self.mean.detach() + self.sites.mean + self.rows.offset()[:, None]
            expected = law.expected(self.rows.targets[:, 0], mean, self.sites.variance)
            parts.append((self.rows.counts() * expected.value).sum())
        total = torch.stack(parts).sum()
        return value + (total - total.detach())

    def posterior(self) -> Posterior:
        """Return the posterior of the latent function, or of several, or with that of the noise where it is one."""
        with torch.no_grad():
            each = [one.posterior() for one in self._regressions(self.mean.detach())]
        if len(each) == 1:
            return each[0]
        return NoisyPosterior(*each) if self.likelihood.has_noise_process else IndependentPosterior(each)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the means (n, L) of the functions at each row given all others, and variances (n, L), approximately.

        The row's factor is taken from the law, the others are not found again. Of one function (n, 1) and (n,), of
        those of classes (n, L) and (n, L, L).
        """
        sites = self.sites
        left = 1 / (1 / sites.variance - sites.precision).clamp_min(1e-12)
        mean = self.mean.detach() + left * (sites.mean / sites.variance - sites.pull)
        if self.likelihood.num_latents > 1:
            return mean, torch.diag_embed(left)
        return mean, left[:, 0] if len(self.functions) == 1 else left

    def _regressions(self, mean: Tensor) -> list[Evidence]:
        """Return the Gaussian regressions whose posteriors are the law's, for means (L,)."""
        noise = 1 / self.sites.precision
        targets, least = self.mean.detach() + noise * self.sites.pull, noise.amin(0)
        blocks = [
            Block(self.rows.inputs, targets[:, i : i + 1], fixed_noise=noise[:, i] - least[i])
            for i in range(len(self.functions))
        ]
        return [
            each.gaussian(block, mean[i : i + 1], least[i])
            for i, (each, block) in enumerate(zip(self.functions, blocks, strict=True))
        ]
