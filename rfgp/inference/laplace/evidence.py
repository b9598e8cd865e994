"""Laplace's approximation by the algebra of Gaussian regression: any prior whose rows are in memory.

At the mode f of the latent function the posterior is taken to be that of a Gaussian regression on working observations
z = f + g / W of noise 1 / W (`rfgp.inference.laplace.search`); C = K + 1 / W is their covariance, a = C^-1 (z - mean) =
g. The log evidence (Rasmussen and Williams 2006, Eq. 3.32) is

    log q = sum_i log p(y_i | f_i) - (f - mean)^T a / 2 - (log |C| + sum_i log W_i) / 2.

Its gradient in K has an explicit part, (a a^T - C^-1) / 2, and one through f, on which log|I + K W| depends: with the
posterior variances v of f and s_i = -v_i / 2 dW_i / df_i (Eq. 5.23),

    s^T df = s^T (I + K W)^-1 dK g = u^T dK a,    u = C^-1 (s / W).

Since a a^T / 2 + (u a^T + a u^T) / 2 = (a + u) (a + u)^T / 2 - u u^T / 2, all of it is that of

    log N(z + s / W) - log N(s / W) + log N(0)

under C with z, s and W held: three outputs of one Gaussian regression, which count 1, -1 and 1 times. That of the mean
is the same, and in the parameters of the likelihood it is that of sum_i log p + (K u)_i g_i - v_i W_i / 2 with f, K u
and v held.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rfgp.inference.evidence import Evidence, Guess
from rfgp.inference.laplace.search import Counted, Observed, Solve, find_mode
from rfgp.inference.laws import Posterior
from rfgp.likelihoods import Likelihood
from rfgp.rows import Block

LOG_2PI = math.log(2 * math.pi)

Gaussian = Callable[[Block, Tensor, Tensor], Evidence]
"""From rows, a mean (k,) and a noise (0-d) to what they say in a Gaussian regression."""


@dataclass(frozen=True, eq=False)
class LaplaceEvidence(Evidence):
    """What rows say under a likelihood that is not normal, through the mode of the latent function.

    Attributes:
        gaussian: The Gaussian regression under the prior, with its gradients.
        solve: Its solution alone, without gradients.
        rows: The data, with one target each.
        mean: Of the latent function, (1,).
        likelihood: With its given parameters.
        learned: Its others, 0-d each, with gradients where they have some.
        near: Where the mode may be.
    """

    gaussian: Gaussian
    solve: Solve
    rows: Block
    mean: Tensor
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    near: Guess = ()

    @cached_property
    def mode(self) -> Counted:
        """The mode."""
        with torch.no_grad():
            return find_mode(self._observed, self.solve, self.mean.detach()[0], *self.near)

    def guess(self) -> Guess:
        """Return the mode (n,)."""
        return (self.mode.f,)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        with torch.no_grad():
            value = self._value
        if not torch.is_grad_enabled():
            return value
        with torch.no_grad():
            pulled = -0.5 * self.variance * self.mode.change  # s
            shifted, zero = pulled / self.mode.weight, torch.zeros_like(pulled)
        targets = torch.stack([self._working + shifted, shifted, zero], dim=1)
        none = torch.zeros_like(self.mean)
        signed = self._regression(targets, torch.cat([self.mean, none, none]), targets.new_tensor([1.0, -1.0, 1.0]))
        total = signed.log_marginal_likelihood() + self._in_parameters(shifted)
        return value + (total - total.detach())

    @cached_property
    def variance(self) -> Tensor:
        """The posterior variances v of the latent function at the rows, (n,)."""
        with torch.no_grad():
            noise = 1 / self.mode.weight
            return (noise * (1 - noise / self._settled.leave_one_out()[1])).clamp_min(0)

    def at_rows(self) -> Tensor:
        """Return the latent function at the mode, (n,)."""
        return self.mode.f

    def posterior(self) -> Posterior:
        """Return the posterior of the working observations."""
        return self._settled.posterior()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of the latent function at each row given all others, approximately.

        By Laplace's cavity: the row's factor, as it is at the mode, is taken from the posterior there; mean and
        curvature of the others are not found again.
        """
        cavity = self.variance / (1 - self.variance * self.mode.weight).clamp_min(1e-12)
        return (self.mode.f - cavity * self.mode.first)[:, None], cavity

    @property
    def _observed(self) -> Observed:
        return Observed(self._law({name: value.detach() for name, value in self.learned.items()}), self.rows)

    def _law(self, learned: Mapping[str, Tensor]) -> Likelihood:
        return self.likelihood.at(learned)

    @property
    def _working(self) -> Tensor:
        """The working observations z, (n,)."""
        return self.mode.f + self.mode.first / self.mode.weight

    @cached_property
    def _settled(self) -> Evidence:
        """The Gaussian regression at the mode."""
        return self._regression(self._working[:, None], self.mean.detach())

    def _regression(self, targets: Tensor, mean: Tensor, signs: Tensor | None = None) -> Evidence:
        rows = Block(self.rows.inputs, targets, fixed_noise=1 / self.mode.weight, signs=signs)
        return self.gaussian(rows, mean, targets.new_zeros(()))

    @cached_property
    def _value(self) -> Tensor:
        mode, mean = self.mode, self.mean.detach()
        a = mode.first
        square = (self._working - mean) @ a
        determinant = -2 * self._settled.log_marginal_likelihood() - square - len(a) * LOG_2PI  # of C
        return mode.value - 0.5 * ((mode.f - mean) @ a + determinant + mode.weight.log().sum())

    def _in_parameters(self, shifted: Tensor) -> Tensor:
        """Return what has the gradient in the parameters of the likelihood, 0-d, for s / W (n,)."""
        if not any(value.requires_grad for value in self.learned.values()):
            return shifted.new_zeros(())
        told, _ = self.solve(self.mode.weight)(shifted)  # K u
        law, y, counts = self._law(self.learned), self.rows.targets[:, 0], self.rows.counts()
        f = self.mode.f + self.rows.offset()
        slopes = law.slopes(y, f)
        weight, _ = law.information(slopes, f)
        return (counts * (slopes.value + told * slopes.first - 0.5 * self.variance * weight)).sum()
