"""The noise of rows on fixed designs: one noise for all rows, or one each.

Row n with noise_n has the weight P_n = w_n v / (v + noise_n) in A, c and u of `rfgp.solvers.onepass.solver`. With
Q_n = w_n (v / (v + noise_n))^2, M = R phi^T Q phi R, the residuals r and the sum N_P of P_n,

    d log p / d log v = (r^T Q r / v + tr(A^-1 M) - N_P) / 2.

The Fisher information of log s_j^2 and log v is (A^-1 M A^-1)_jj / 2, and of log v half of

    sum_n Q_n - 2 tr(A^-1 R phi^T T phi R) + tr((A^-1 M)^2),   T_n = w_n (v / (v + noise_n))^3.

P, Q and T depend on v, so that the sums do not hold for other hyperparameters. Without noise of the rows all three are
w_n, and the sums hold for any hyperparameters.
"""

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rfgp.blocks.weights import Design
from rfgp.rows import Block, Rows
from rfgp.solvers.onepass.posterior import WeightState, weighted_by_precision
from rfgp.solvers.onepass.statistics import Statistics, assemble, statistics_of
from rfgp.solvers.onepass.sums import Layout, weighted_sums

_LOG_2PI = math.log(2 * math.pi)


class WeightPosterior(NamedTuple):
    """The posterior of the weights at some hyperparameters."""

    state: WeightState
    inverse: Tensor  # A^-1, (F, F)
    mean: Tensor  # (k,)
    scale: Tensor  # (F,)


class SharedNoise:
    """Rows of one noise, by statistics for any hyperparameters.

    Args:
        designs: The designs of all blocks.
        rows: The rows.
        variance: The variance v, 0-d.
    """

    def __init__(self, designs: Sequence[Design], rows: Rows, variance: Tensor) -> None:
        self._variance, self.statistics = variance, statistics_of(designs, rows)

    def has_sums_of(self, other: Any) -> bool:
        """Return whether another object has the same sums over the rows.

        Args:
            other: A `SharedNoise` or `RowNoises`.
        """
        return isinstance(other, SharedNoise) and self.statistics is other.statistics

    @property
    def logs(self) -> Tensor:
        """The sum of log(2 pi D) over the observations with their noise variances D, 0-d."""
        return self.statistics.observations * (_LOG_2PI + self._variance.log())

    def in_log_variance(self, solved: WeightPosterior, residual_square: Tensor) -> Tensor:
        """Return the derivative of the log marginal likelihood in log v, 0-d.

        Args:
            solved: The posterior of the weights.
            residual_square: |y - mean|^2 - c^T u of all outputs, 0-d.
        """
        diagonal = solved.inverse.diagonal()
        residual = residual_square - solved.state.scores.square().sum()
        free = self.statistics.observations - len(diagonal) + diagonal.sum()
        return 0.5 * (residual / self._variance - len(solved.mean) * free)

    def information(self, solved: WeightPosterior) -> tuple[Tensor, Tensor]:
        """Return twice the Fisher information of one output.

        Args:
            solved: The posterior of the weights.

        Returns:
            The information of log v and log s^2, (F,), and of log v, 0-d.
        """
        diagonal, rows = solved.inverse.diagonal(), solved.inverse.square().sum(1)
        return diagonal - rows, self.statistics.observations - len(diagonal) + rows.sum()


class RowNoises:
    """Rows with noise of their own.

    One pass over them gives the likelihood, and another gives its derivatives.

    Args:
        designs: The designs of all blocks.
        rows: The rows.
        variance: The variance v, 0-d.
    """

    def __init__(self, designs: Sequence[Design], rows: Rows, variance: Tensor) -> None:
        self._layout, self._rows, self._variance = Layout.of(designs), rows, variance

    def has_sums_of(self, other: Any) -> bool:
        """Return whether another object has the same sums over the rows.

        Args:
            other: A `SharedNoise` or `RowNoises`.
        """
        if not isinstance(other, RowNoises) or self._layout.designs != other._layout.designs:
            return False
        return self._rows is other._rows and bool(self._variance == other._variance)

    @cached_property
    def _first_pass(self) -> tuple[Statistics, Tensor]:
        """The statistics with P, and the sum of log(2 pi D), 0-d."""
        with torch.no_grad():
            weigh = partial(_with_logs, self._variance)
            (sums,), (logs,) = weighted_sums(self._layout, self._rows, weigh, num_values=1)
            return assemble(self._layout, sums), logs

    @cached_property
    def _second_pass(self) -> tuple[Statistics, Statistics]:
        """The statistics with Q and with T."""
        weigh = partial(weighted_by_precision, self._variance, (2, 3))
        (second, third), _ = weighted_sums(self._layout, self._rows, weigh, count=2)
        return assemble(self._layout, second), assemble(self._layout, third)

    @property
    def statistics(self) -> Statistics:
        """The statistics with P."""
        return self._first_pass[0]

    @property
    def logs(self) -> Tensor:
        """The sum of log(2 pi D) over the observations with their noise variances D, 0-d."""
        return self._first_pass[1]

    def in_log_variance(self, solved: WeightPosterior, residual_square: Tensor) -> Tensor:
        """Return the derivative of the log marginal likelihood in log v, 0-d.

        Args:
            solved: The posterior of the weights.
            residual_square: Not used, because the residual is computed from the sums of the second pass.
        """
        pass_sums, mean = self._second_pass[0], solved.mean
        root = solved.scale / self._variance.sqrt()
        weights = root[:, None] * solved.state.scores
        squares = pass_sums.squares - 2 * mean * pass_sums.totals + mean.square() * pass_sums.observations
        target = pass_sums.target - pass_sums.ones[:, None] * mean
        residual = (squares + (weights * (pass_sums.gram @ weights - 2 * target)).sum(0)).sum()
        used = (solved.inverse * (root[:, None] * pass_sums.gram * root)).sum() - self.statistics.observations
        return 0.5 * (residual / self._variance + len(mean) * used)

    def information(self, solved: WeightPosterior) -> tuple[Tensor, Tensor]:
        """Return twice the Fisher information of one output.

        Args:
            solved: The posterior of the weights.

        Returns:
            The information of log v and log s^2, (F,), and of log v, 0-d.
        """
        second, third = self._second_pass
        root, inverse = solved.scale / self._variance.sqrt(), solved.inverse
        product = inverse @ (root[:, None] * second.gram * root)
        cubed = (inverse * (root[:, None] * third.gram * root)).sum()
        return (product * inverse).sum(1), second.observations - 2 * cubed + (product * product.mT).sum()


def _with_logs(variance: Tensor, block: Block) -> tuple[Sequence[Block], Sequence[Tensor]]:
    """Return rows with the weights P, and the sum of w_n log(2 pi (v + noise_n)), 0-d."""
    logs = (block.counts() * (_LOG_2PI + block.observation_noise(variance).log())).sum()
    return weighted_by_precision(variance, (1,), block)[0], (logs,)
