"""Gaussian regression on fixed designs whose rows have a noise of their own, by transforms with weights."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Self

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.rows import Block, Rows
from rfgp.solvers.lowrank import LinearModel, LowRankSolver
from rfgp.solvers.onepass.posterior import OnePassPosterior, designs_of, weighted_by_precision
from rfgp.solvers.onepass.solver import LOG_2PI, OnePassSolver
from rfgp.solvers.onepass.statistics import Statistics, assemble
from rfgp.solvers.onepass.sums import Layout, weighted_sums


class RowNoiseSolver(OnePassSolver):
    """Rows with a noise of their own under weights with fixed designs, by transforms with weights.

    Row n counts by P_n = w_n v / (v + noise_n), by which A, c and u are those of `rfgp.solvers.onepass.solver`. With
    Q_n = w_n (v / (v + noise_n))^2, M = R phi^T Q phi R, r the residuals and N_P the sum of P_n,

        d log p / d log v = (r^T Q r / v + tr(A^-1 M) - N_P) / 2,

    and the Fisher information of log s_j^2 and log v is (A^-1 M A^-1)_jj / 2, and of log v half of
    sum_n Q_n - 2 tr(A^-1 R phi^T T phi R) + tr((A^-1 M)^2) with T_n = w_n (v / (v + noise_n))^3.

    P, Q and T depend on v: each evaluation takes a pass over the rows for the likelihood and one for its derivatives.
    """

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(designs_of(self.prior))

    @cached_property
    def _first_pass(self) -> tuple[Statistics, Tensor]:
        """The statistics with P, and the sum of log(2 pi D) over the observations, 0-d."""
        with torch.no_grad():
            weigh = partial(_with_logs, self.variance.detach())
            (sums,), (logs,) = weighted_sums(self._layout, self.rows, weigh, num_values=1)
            return assemble(self._layout, sums), logs

    @cached_property
    def statistics(self) -> Statistics:
        """The statistics with P."""
        return self._first_pass[0]

    @property
    def log_noises(self) -> Tensor:
        """The sum of log(2 pi D) over the observations with their noise variances D, 0-d."""
        return self._first_pass[1]

    @cached_property
    def _second_pass(self) -> tuple[Statistics, Statistics]:
        """The statistics with Q and with T."""
        weigh = partial(weighted_by_precision, self.variance.detach(), (2, 3))
        (second, third), _ = weighted_sums(self._layout, self.rows, weigh, count=2)
        return assemble(self._layout, second), assemble(self._layout, third)

    def with_factors_of(self, other: "OnePassSolver") -> Self:
        """Return the solver with what another has computed at the same hyperparameters, on the same rows.

        Args:
            other: The other solver. If its rows, features or variance are not the same, nothing is taken from it.
        """
        has_same = self.rows is other.rows and designs_of(self.prior) == designs_of(other.prior)
        if has_same and bool(self.variance == other.variance):
            kept = ("state", "inverse", "_first_pass", "_second_pass", "_middle")
            vars(self).update({name: vars(other)[name] for name in kept if name in vars(other)})
        return self

    @cached_property
    def _root(self) -> Tensor:
        """The diagonal of R, (F,)."""
        return self.scale.detach() / self.variance.detach().sqrt()

    def in_log_variance(self, left: Tensor) -> Tensor:
        """Return the derivative of the log marginal likelihood in log v, 0-d."""
        found, mean, weights = self._second_pass[0], self.mean.detach(), self._root[:, None] * self.state.scores
        squares = found.squares - 2 * mean * found.totals + mean.square() * found.observations
        target = found.target - found.ones[:, None] * mean
        residual = (squares + (weights * (found.gram @ weights - 2 * target)).sum(0)).sum()
        used = (self.inverse * self._middle).sum() - self.statistics.observations
        return 0.5 * (residual / self.variance.detach() + len(mean) * used)

    @cached_property
    def _middle(self) -> Tensor:
        """M, (F, F)."""
        return self._root[:, None] * self._second_pass[0].gram * self._root

    def information_of_variance(self) -> tuple[Tensor, Tensor]:
        """Return twice the Fisher information of log v and log s^2 (F,), and of log v, 0-d, of one output."""
        second, product = self._second_pass[1], self.inverse @ self._middle
        cubed = (self.inverse * (self._root[:, None] * second.gram * self._root)).sum()
        of_variance = self._second_pass[0].observations - 2 * cubed + (product * product.mT).sum()
        return (product * self.inverse).sum(1), of_variance

    def posterior(self) -> OnePassPosterior:
        """Return the weights, the factor of their precision, and the sums over the rows; with gradients if needed."""
        wants_gradient = torch.is_grad_enabled() and (self.scale.requires_grad or self.variance.requires_grad)
        with torch.no_grad():
            found = super().posterior()
        if not wants_gradient:
            return found
        dense = LowRankSolver(LinearModel(self.prior.dense, self.rows, self.mean, self.noise)).posterior()
        return replace(found, prior=self.prior, dense=dense)


def _with_logs(variance: Tensor, block: Block) -> tuple[Sequence[Block], Sequence[Tensor]]:
    """Return rows with the weights P, and the sum of w_n log(2 pi (v + noise_n)), 0-d."""
    logs = (block.counts() * (LOG_2PI + block.observation_noise(variance).log())).sum()
    return weighted_by_precision(variance, (1,), block)[0], (logs,)


def solver_of(prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> OnePassSolver:
    """Return the solver of rows that `serves` accepts.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """
    return (RowNoiseSolver if rows.has_fixed_noise else OnePassSolver)(prior, rows, mean, noise)
