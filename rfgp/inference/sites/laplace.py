"""Laplace's approximation over any solver, for rows in memory.

At the mode f the posterior is that of a Gaussian regression of Laplace pseudo-observations z = f + g / W with noise 1 /
W (`rfgp.inference.sites.rows`). Let C = K + 1 / W be their covariance and a = C^-1 (z - mean) = g. The log evidence
(Rasmussen and Williams 2006, Eq. 3.32) is

    log q = sum_i log p(y_i | f_i) - (f - mean)^T a / 2 - log|I + K W| / 2.

Its gradient in K has an explicit part, (a a^T - C^-1) / 2, and an implicit one, because log|I + K W| depends on f. With
the posterior variances v of f and s_i = -v_i / 2 dW_i / df_i (Eq. 5.23), the implicit part is

    s^T df = s^T (I + K W)^-1 dK g = u^T dK a,    u = C^-1 (s / W).

Note that a a^T / 2 + (u a^T + a u^T) / 2 = (a + u) (a + u)^T / 2 - u u^T / 2. The sum of both parts is therefore the
gradient of

    log N(z + s / W) - log N(s / W) + log N(0)

under C, with z, s and W constant. These are three outputs of one Gaussian regression with the signs 1, -1 and 1. The
gradient in the mean is that of the same expression. The gradient in the parameters of the likelihood is that of sum_i
log p + (K u)_i g_i - v_i W_i / 2, with f, K u and v constant.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rfgp.inference.sites.rows import RowProblem, RowState, regression, row_mode
from rfgp.inference.sites.terms import RowLikelihood, cavity
from rfgp.likelihoods import Likelihood
from rfgp.rows import Block
from rfgp.solvers import Inference, Posterior, Solver, WarmStart


@dataclass(frozen=True, eq=False)
class Laplace(Inference):
    """Laplace's approximation to the posterior of one latent function.

    Attributes:
        solver: A Gaussian regression of the rows.
        rows: The rows, with one target each.
        mean: The prior mean of the latent function, (1,).
        likelihood: The likelihood, with its given parameters.
        learned: The learned parameters of the likelihood, 0-d each.
        start: A warm start. The default is none.
    """

    solver: Solver
    rows: Block
    mean: Tensor
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    start: WarmStart = ()

    @cached_property
    def mode(self) -> RowState:
        """The mode of the latent function at the rows."""
        likelihood = self.likelihood.at({name: value.detach() for name, value in self.learned.items()})
        with torch.no_grad():
            rows, mean = RowLikelihood(likelihood, self.rows), self.mean.detach()[0]
            return row_mode(RowProblem(self.solver, rows, mean, self.start))

    @property
    def fitted(self) -> Tensor:
        """The latent function at the mode, (n,)."""
        return self.mode.f

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log evidence, or 0 if it is exact."""
        return self._regression.likelihood_error

    def warm_start(self) -> WarmStart:
        """Return the mode (n,)."""
        return (self.mode.f,)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        mode = self.mode
        with torch.no_grad():
            square = (mode.f - self.mean) @ mode.terms.gradient
            value = mode.terms.value - 0.5 * (square + self._regression.log_determinant)
        if not torch.is_grad_enabled():
            return value
        with torch.no_grad():
            pulled = -0.5 * self.variance * mode.terms.weight_slope / mode.terms.weight  # s / W
        zero = torch.zeros_like(self.mean)
        targets = torch.stack([self._working + pulled, pulled, torch.zeros_like(pulled)], dim=1)
        signs, mean = targets.new_tensor([1.0, -1.0, 1.0]), torch.cat([self.mean, zero, zero])
        signed = regression(self._regression, self.rows, targets, mode.terms.weight, mean, signs)
        total = signed.log_marginal_likelihood()
        if any(number.requires_grad for number in self.learned.values()):
            rows = RowLikelihood(self.likelihood.at(self.learned), self.rows)
            total = total + rows.parameter_objective(mode.f, signed.fitted[:, 1].detach(), self.variance)
        return value + (total - total.detach())

    @cached_property
    def variance(self) -> Tensor:
        """The posterior variances of the latent function at the rows, (n,)."""
        with torch.no_grad():
            return self._regression.latent_variances.clamp_min(0)

    def posterior(self) -> Posterior:
        """Return the posterior given the Laplace pseudo-observations."""
        with torch.no_grad():
            return self._regression.posterior()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of f at each row given all others."""
        mean, variance = cavity(self.mode.f, self.variance, self.mode.terms)
        return mean[:, None], variance

    @property
    def _working(self) -> Tensor:
        """The Laplace pseudo-observations z, (n,)."""
        return self.mode.f + self.mode.terms.gradient / self.mode.terms.weight

    @cached_property
    def _regression(self) -> Solver:
        """The Gaussian regression at the mode."""
        with torch.no_grad():
            return regression(
                self.solver, self.rows, self._working[:, None], self.mode.terms.weight, self.mean.detach()
            )
