"""Gaussian regression on fixed designs from sufficient statistics.

The model is y = mean + phi diag(s) w + e. The weights are w ~ N(0, I), with prior standard deviations s. The variance
of e is v = noise + delta, with the variance delta that the designs miss. With R = diag(s) / sqrt(v), G = phi^T P phi
and N observations,

    A = I + R G R,   c = R phi^T P (y - mean),   u = A^-1 c,
    -2 log p = (|y - mean|^2 - c^T u) / v + log|A| + N log(2 pi v)
    d log p / d log s_j = u_j^2 / v + (A^-1)_jj - 1
    d log p / d log v   = ((|y - mean|^2 - c^T u - u^T u) / v - N + F - tr A^-1) / 2
    d log p / d mean    = (1^T P (y - mean) - (R phi^T P 1)^T u) / v

Let H = I - A^-1 and o = R phi^T P 1. The Fisher information is

    H_ij^2 / 2                          of log s_i^2 and log s_j^2,
    ((A^-1)_jj - (A^-2)_jj) / 2         of log s_j^2 and log v,
    (N - F + |A^-1|_F^2) / 2            of log v,
    (N - o^T A^-1 o) / v                of the mean.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.rows import Block, Rows
from rfgp.solvers.lowrank import LinearModel, LowRankSolver
from rfgp.solvers.onepass.noises import RowNoises, SharedNoise, WeightPosterior
from rfgp.solvers.onepass.posterior import (
    RowSumsForUpdates,
    SeriesPosterior,
    WeightState,
    designs_of,
    has_lattices,
    posterior_with,
    residual_variance_of,
    scale_of,
)
from rfgp.solvers.onepass.sums import Layout, row_blocks
from rfgp.solvers.role import Inference


def supports(prior: Prior, rows: Rows) -> bool:
    """Return whether sums by transforms apply.

    Args:
        prior: The prior. All its blocks must be fixed designs.
        rows: The rows, without signs of outputs.
    """
    return has_lattices(prior) and not (isinstance(rows, Block) and rows.given_output_weights is not None)


class OnePassSolver(Inference):
    """Inference of rows under weights with fixed designs.

    It uses statistics of one pass over the rows.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """

    def __init__(self, prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> None:
        self.prior, self.rows, self.mean, self.noise = prior, rows, mean, noise

    @cached_property
    def noises(self) -> SharedNoise | RowNoises:
        """The sums over the rows, and their dependence on the noise."""
        designs = designs_of(self.prior)
        if self.rows.has_fixed_noise:
            return RowNoises(designs, self.rows, self.variance.detach())
        return SharedNoise(designs, self.rows, self.variance.detach())

    @cached_property
    def scale(self) -> Tensor:
        """The prior standard deviations of the weights, (F,)."""
        return scale_of(self.prior)

    @cached_property
    def variance(self) -> Tensor:
        """The variance of the noise plus that missed by the designs, 0-d."""
        return self.noise + residual_variance_of(self.prior)

    def with_factors_of(self, other: "OnePassSolver") -> Self:
        """Return the solver with the factors of another one.

        The other one has the same hyperparameters and rows.

        Args:
            other: The other solver. If its sums over the rows differ, nothing is copied.
        """
        if self.noises.has_sums_of(other.noises):
            self.noises = other.noises
            vars(self).update({name: vars(other)[name] for name in ("state", "inverse") if name in vars(other)})
        return self

    @property
    def is_solved(self) -> bool:
        """Whether the posterior of the weights has been computed."""
        return "state" in vars(self)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, from the statistics alone."""
        return with_gradient(self._value, self.mean, self.variance, self.scale)

    @cached_property
    def state(self) -> "WeightState":
        """The posterior of the weights."""
        with torch.no_grad():
            return WeightState.of(self.noises.statistics, self.mean, self.variance, self.scale)

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        return torch.cholesky_inverse(self.state.factor)

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        state = self.state
        variance, k = self.variance.detach(), len(self.mean)
        residual_square = (state.squares - (state.target * state.scores).sum(0)).sum()
        determinant = 2 * state.factor.diagonal().log().sum()
        value = -0.5 * (residual_square / variance + k * (determinant + self.noises.logs))

        def gradients() -> Sequence[Tensor | None]:
            diagonal = self.inverse.diagonal()
            in_log_scale = state.scores.square().sum(1) / variance + k * (diagonal - 1)
            in_variance = self.noises.in_log_variance(self._solved, residual_square) / variance
            in_mean = (state.totals - state.ones @ state.scores) / variance
            scale = self.scale.detach()
            in_scale = torch.where(scale > 0, in_log_scale / scale, 0.0)
            return [
                gradient if need else None
                for gradient, need in zip((in_mean, in_variance, in_scale), needs, strict=True)
            ]

        return value, gradients

    @property
    def _solved(self) -> WeightPosterior:
        return WeightPosterior(self.state, self.inverse, self.mean.detach(), self.scale.detach())

    def score(self) -> Tensor:
        """Return a 0-d tensor whose gradient is that of the log marginal likelihood."""
        return self.log_marginal_likelihood()

    def information(self, in_mean: Tensor, in_variance: Tensor, in_scale: Tensor) -> Tensor:
        """Return the Fisher information (p, p) of p parameters.

        Args:
            in_mean: The derivatives of the mean in the parameters, (k, p).
            in_variance: The derivatives of log v, (p,).
            in_scale: The derivatives of log s^2, (F, p).
        """
        with torch.no_grad():
            state, inverse, k = self.state, self.inverse, len(self.mean)
            variance, diagonal = self.variance.detach(), inverse.diagonal()
            (in_both, of_variance), squared = self.noises.information(self._solved), inverse.square()
            weights = squared @ in_scale + (1 - 2 * diagonal)[:, None] * in_scale  # H o H = A^-1 o A^-1 + diag(1 - 2 d)
            cross = in_scale.mT @ in_both
            total = in_scale.mT @ weights + of_variance * torch.outer(in_variance, in_variance)
            total = 0.5 * k * (total + torch.outer(cross, in_variance) + torch.outer(in_variance, cross))
            solved = torch.cholesky_solve(state.ones[:, None], state.factor)[:, 0]
            of_mean = (self.noises.statistics.observations - state.ones @ solved) / variance
            return total + of_mean * (in_mean.mT @ in_mean)

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The effective degrees of freedom of the weights divided by F, (F - tr A^-1) / F."""
        return 1 - float(self.inverse.diagonal().mean())

    def posterior(self) -> SeriesPosterior:
        """Return the posterior of the weights, with the sums over the rows for updates."""
        sums, prior = self.noises.statistics.sums, self.prior.detached()
        if not (torch.is_grad_enabled() and (self.scale.requires_grad or self.variance.requires_grad)):
            return posterior_with(prior, self.state, sums, self.mean.detach(), self.noise.detach())
        if self.rows.has_fixed_noise:  # sums depend on the noise, and have no gradient in it
            dense = LowRankSolver(LinearModel(self.prior.dense, self.rows, self.mean, self.noise)).posterior()
            return SeriesPosterior(self.prior, dense, RowSumsForUpdates(sums, self.mean, self.noise))
        state = WeightState.of(self.noises.statistics, self.mean, self.variance, self.scale)
        return posterior_with(self.prior, state, sums, self.mean, self.noise)

    def leave_one_out(self, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        See `LowRankSolver.leave_one_out`.

        Args:
            rows: The rows whose moments are returned, in a second pass. If None, all.
        """
        means, variances = [], []
        with torch.no_grad():
            moments, missing = self.posterior().moments_at_rows, residual_variance_of(self.prior)
            for block in row_blocks(Layout.of(designs_of(self.prior)), self.rows if rows is None else rows):
                noise_diag = block.noise_diag(self.variance.detach())
                fitted, known = moments.mean(block.inputs), moments.known_variance(block.inputs)
                complement = 1 - known / noise_diag
                residual = block.targets - self.mean - fitted
                means.append(block.targets - residual / complement[:, None])
                once = 1 - 1 / block.counts()  # the variance missed by designs is in D once for each repetition
                variances.append(noise_diag / complement + once * missing)
        return torch.cat(means), torch.cat(variances)
