"""Gaussian regression on fixed designs from sufficient statistics.

Row n with noise_n has the weight P_n = w_n v / (v + noise_n) in A, c and u of `rfgp.solvers.onepass.solver`. With
Q_n = w_n (v / (v + noise_n))^2, M = R phi^T Q phi R, the residuals r and the sum N_P of P_n,

    d log p / d log v = (r^T Q r / v + tr(A^-1 M) - N_P) / 2.

The Fisher information of log s_j^2 and log v is (A^-1 M A^-1)_jj / 2, and of log v half of

    sum_n Q_n - 2 tr(A^-1 R phi^T T phi R) + tr((A^-1 M)^2),   T_n = w_n (v / (v + noise_n))^3.

P, Q and T depend on v, so that the sums do not hold for other hyperparameters. Without noise of the rows all three are
w_n, and the sums hold for any hyperparameters.

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

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, input_derivatives, with_gradient
from rfgp.blocks import Prior, WeightBlock
from rfgp.blocks.role import Design
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.lattices.design import Complex, LatticeDesign, series_at_points
from rfgp.rows import Block, Rows
from rfgp.solvers.lowrank import (
    FactorCovariance,
    LinearModel,
    LowRankPosterior,
    RowMoments,
    WeightSolution,
    differentiable_solution,
    left_out,
    quadratic_form,
    solve,
    with_noise,
)
from rfgp.solvers.lowrank import Statistics as WeightStatistics
from rfgp.solvers.onepass.sums import (
    Layout,
    RowSums,
    Statistics,
    assemble,
    cached_sums,
    no_sums,
    quadratic_series,
    row_blocks,
    statistics_of,
    values_on_lattice,
    weighted_sums,
)
from rfgp.solvers.role import Functions, Inference, Joint, Shape

# --- The posterior of weights on fixed designs -----------------------------------------------------------------------

DENSE_ENTRIES = 2**22
"""The maximum number of entries of features of points in one chunk, if transforms do not apply."""
FEW_POINTS = 64
"""The maximum number of points for which features are used instead of transforms."""


class RowSumsForUpdates(NamedTuple):
    """The sums of the rows of a Gaussian posterior, for adding and removing rows.

    Attributes:
        sums: The sums over the rows, weighted by their precision relative to that of rows without noise of their own.
            See `rfgp.solvers.onepass.solver`.
        mean: The mean of the rows, (k,).
        noise: The variance of one observation, 0-d.
    """

    sums: RowSums
    mean: Tensor
    noise: Tensor


@dataclass(frozen=True, eq=False)
class SeriesPosterior(LowRankPosterior):
    """The posterior of f = phi diag(s) w plus the variance that designs miss.

    Moments at points are computed by Fourier series. Methods have the arguments of those of `Posterior`.

    Attributes:
        row_sums: The sums over the rows. If None, as under a likelihood that is not Gaussian, no rows can be added.
    """

    row_sums: RowSumsForUpdates | None = None

    @property
    def width(self) -> int:
        """The number of entries of a point in memory: its columns and its dense features."""
        return 8 + 4 * self._layout.num_dense

    def project(self, inputs: Tensor) -> Tensor:
        """Return the points (n, D) themselves, because moments need no features."""
        return inputs

    def mean(self, projected: Tensor) -> Tensor:
        """Return the posterior mean at points (n, D), (n, k)."""
        return self._over(projected, self.mean_within, lambda phi, _: phi @ self.weights)

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        by_features = super().variance
        return self._over(inputs, self.variance_within, lambda phi, x: by_features(x, phi))

    def joints(self, inputs: Tensor, parts: Sequence[LowRankPosterior], projected: Sequence[Tensor]) -> Sequence[Joint]:
        """Return the features of points for sums of terms."""
        return [Joint(part.features(inputs)) for part in parts]

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance."""
        return super().root(inputs, self.features(inputs))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n inputs, (count, n, k), from weights and the kernel.

        The kernel is used outside the box of the rows only. The variance that the modes miss is excluded.
        """
        return self._extended(self._functions(count, generator), count, generator)

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, (count, b, k) at b of them, or None if a root costs less."""
        is_slope = self.derivative_column is not None  # beyond the rows, points share a part of it
        if is_slope or not self.uncertainty.draws_weights(num_points, count):
            return None
        functions = self._functions(count, generator)
        return lambda inputs: with_noise(functions(inputs), self._missing_variance(inputs), generator)

    def _functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw the sums of the features, a map of inputs to (count, n, k)."""
        drawn = self._sample_weights(count, generator)  # (count, F, k)
        draws = replace(self, weights=drawn.movedim(0, 1).flatten(1))
        return lambda inputs: draws.mean(inputs).reshape(len(inputs), count, -1).movedim(0, 1)

    def _missing_variance(self, inputs: Tensor) -> Tensor:
        """Return the variances (n,) that the modes miss at points (n, D). They are 0 outside the box of a lattice."""
        total = torch.zeros(len(inputs), dtype=torch.float64)
        for block in self.prior.dense.with_residuals_of(self.terms).blocks:
            if block.residual is not None and isinstance(block.design, LatticeDesign):
                variance = block.prior_variance * block.design.residual_variance(*block.parameters)
                total = total + torch.where(block.design.is_outside(inputs), 0.0, variance)
        return total

    # --- rows ------------------------------------------------------------------------------------

    @property
    def can_update(self) -> bool:
        """Whether there are sums over the rows, to which rows can be added."""
        return self.row_sums is not None

    def with_rows(self, rows: Rows, sign: int = 1) -> "SeriesPosterior":
        """Return the posterior with more rows, or without some of its rows.

        Only these rows are read. They may have noise of their own.

        Args:
            rows: The rows to add or to remove.
            sign: 1 to add the rows, which is the default, or -1 to remove them.

        Raises:
            DataError: If rows are outside the box of the lattice, or all rows would be removed.
        """
        assert self.row_sums is not None
        sums, mean, noise = self.row_sums
        variance = (noise + residual_variance_of(self.prior)).detach()
        (change,), _ = weighted_sums(self._layout, rows, partial(weighted_by_precision, variance, (1,)))
        n, m = sums.num_rows, change.num_rows
        if sign < 0 and m >= n:
            raise DataError(f"The number of rows to remove must be below {n:,}, got {m:,}. Remove fewer rows.")
        return posterior_of(self.prior, sums.plus(change, sign), mean, noise)

    # --- files -----------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums over the rows (...), the mean (k,) and the noise, 0-d.

        If there are no sums, the weights and the factor are returned.
        """
        if self.row_sums is None:
            return super().tensors()
        sums, mean, noise = self.row_sums
        by_name = dict(zip(sum_names(self._layout), sums.flat(), strict=True))
        return {**by_name, "mean": mean.contiguous(), "noise": noise.contiguous()}

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of these tensors for k outputs."""
        if self.row_sums is None:
            return super().shapes(n, k)
        empty = no_sums(self._layout, k).flat()
        shapes: dict[str, Shape] = {
            name: tuple(tensor.shape) for name, tensor in zip(sum_names(self._layout), empty, strict=True)
        }
        return {**shapes, "mean": (k,), "noise": ()}

    # --- series ----------------------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(designs_of(self.prior))

    def _over(
        self, inputs: Tensor, by_series: Callable[[Tensor], Tensor], by_features: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return a moment (n, ...) at points (n, D), by series within the box and by features elsewhere."""
        size = max(1, DENSE_ENTRIES // max(len(self.weights), 1))

        def from_features(x: Tensor) -> Tensor:
            return torch.cat([by_features(self.features(chunk), chunk) for chunk in torch.split(x, size)])

        wants_gradient = inputs.requires_grad or self.weights.requires_grad
        if wants_gradient or (len(inputs) <= FEW_POINTS and self.derivative_column is None):
            return from_features(inputs)
        is_out = self.is_outside(inputs)
        if not bool(is_out.any()):
            return by_series(inputs)
        inside = by_series(inputs[~is_out])
        out = inside.new_zeros(len(inputs), *inside.shape[1:])
        out[~is_out] = inside
        out[is_out] = from_features(inputs[is_out])
        return out

    def is_outside(self, inputs: Tensor) -> Tensor:
        """Return whether points are outside the box of a lattice, (n,).

        Args:
            inputs: The inputs of the points, (n, D).
        """
        out = torch.zeros(len(inputs), dtype=torch.bool)
        for block, _ in self._own:
            if isinstance(block.design, LatticeDesign):
                out |= block.design.is_outside(inputs)
        return out

    @cached_property
    def _own(self) -> list[tuple[WeightBlock, slice]]:
        """The blocks of the predicted sum, with the positions of their weights."""
        blocks, predicted = self.prior.weights, self.predicted
        ends = np.cumsum([0, *self.prior.dense.sizes])
        columns = (slice(int(a), int(b)) for a, b in itertools.pairwise(ends))
        return [(block, part) for block, part in zip(blocks, columns, strict=True) if block in predicted]

    @cached_property
    def _scales(self) -> list[Tensor]:
        """The prior standard deviations of the weights of these blocks, (F_b,) each."""
        return [b.prior_variance.sqrt() * b.design.scale(*b.parameters) for b, _ in self._own if b.design is not None]

    def mean_within(self, inputs: Tensor) -> Tensor:
        """Return the posterior mean at points in the box of the rows, (n, k).

        It is a Fourier series on each lattice.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        out = torch.zeros(len(inputs), self.weights.shape[1], dtype=torch.float64)
        for (block, columns), scale in zip(self._own, self._scales, strict=True):
            weights = self._as_slopes(block, scale[:, None] * self.weights[columns])
            if isinstance(block.design, LatticeDesign):
                out += values_on_lattice(block.design, inputs, weights)
            else:
                out += self._dense_features(block, inputs) @ weights
        return out

    def variance_within(self, inputs: Tensor) -> Tensor:
        """Return the marginal posterior variances at points in the box, (n,), including those of missing modes.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        known = self.known_variance(inputs)
        if self.derivative_column is not None:
            return known + self.missing_derivative_variances(inputs)
        residual = [(block, block.design) for block, _ in self._own if block.residual is not None and block.design]
        pairs = ((block.prior_variance, design.residual_variance(*block.parameters)) for block, design in residual)
        return known + sum(float(scale * variance) for scale, variance in pairs)

    def known_variance(self, inputs: Tensor) -> Tensor:
        """Return the posterior variances of the sums of features at points in the box, (n,).

        Those of missing modes are excluded. They are a series on each doubled lattice and on the product of each two
        lattices. Its coefficients are sums along the diagonals of the covariance of the weights.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        dense = [
            None if isinstance(block.design, LatticeDesign) else self._dense_features(block, inputs)
            for block, _ in self._own
        ]
        total = torch.zeros(len(inputs), dtype=torch.float64)
        for a in range(len(self._own)):
            for b in range(a + 1):
                total += (1 if a == b else 2) * self._pair(inputs, a, b, dense)
        return total.clamp_min(0)

    def _dense_features(self, block: WeightBlock, inputs: Tensor) -> Tensor:
        """Return the features of a dense design at points (n, D), or their derivatives, (n, F), float64."""
        assert block.design is not None
        if self.derivative_column is None:
            return block.design.fixed_features(inputs).double()
        return input_derivatives(block.design.fixed_features, inputs, self.derivative_column)

    def _as_slopes(self, block: WeightBlock, weights: Tensor) -> Tensor:
        """Return the weights (F, m) of the derivative of features on a lattice.

        Other weights are returned unchanged.

        The derivative of a cos(w x) + b sin(w x) is w b cos(w x) - w a sin(w x).
        """
        design = block.design
        if self.derivative_column is None or not isinstance(design, LatticeDesign):
            return weights
        if self.derivative_column not in design.lattice.column_indices:
            return torch.zeros_like(weights)
        column = design.lattice.column_indices.index(self.derivative_column)
        rates = 2 * math.pi * design.modes.frequencies[1:, column, None]
        first, cosines, sines = torch.split(weights, [1, len(rates), len(rates)])
        return torch.cat([torch.zeros_like(first), rates * sines, -rates * cosines])

    def _pair(self, inputs: Tensor, a: int, b: int, dense: Sequence[Tensor | None]) -> Tensor:
        """Return the covariance (n,) of two blocks at the same points."""
        (first, _), (second, _) = self._own[a], self._own[b]
        left, right = dense[a], dense[b]
        covariance = self._covariance_of(a, b)
        if left is not None and right is not None:
            return ((left @ covariance) * right).sum(1)
        if left is None and right is None:
            assert isinstance(first.design, LatticeDesign)
            assert isinstance(second.design, LatticeDesign)
            lattices = [first.design.lattice]
            if not lattices[0].same_as(second.design.lattice):
                lattices.append(second.design.lattice)
            angles = np.hstack([lattice.angles(lattice.columns(inputs)) for lattice in lattices])
            return torch.as_tensor(series_at_points(angles, self._series[a, b]).real)
        lattice, features, rows = (first, right, covariance) if left is None else (second, left, covariance.mT)
        assert isinstance(lattice.design, LatticeDesign)
        assert features is not None
        return (values_on_lattice(lattice.design, inputs, rows) * features).sum(1)

    @cached_property
    def _series(self) -> dict[tuple[int, int], Complex]:
        """The series of the covariance of each pair of blocks on lattices."""
        designs = [block.design for block, _ in self._own]
        lattices = [(index, design) for index, design in enumerate(designs) if isinstance(design, LatticeDesign)]
        pairs = ((first, second) for first in lattices for second in lattices if second[0] <= first[0])
        return {
            (a, b): quadratic_series(self._covariance_of(a, b).numpy(), first.modes, second.modes)
            for (a, first), (b, second) in pairs
        }

    def _covariance_of(self, a: int, b: int) -> Tensor:
        """Return the posterior covariance (F_a, F_b) of the weights of two blocks, times prior standard deviations."""
        (_, rows), (_, columns) = self._own[a], self._own[b]
        covariance = self._scales[a][:, None] * self.inverse[rows, columns] * self._scales[b]
        covariance = self._as_slopes(self._own[a][0], covariance)
        return self._as_slopes(self._own[b][0], covariance.mT).mT

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        assert self.factor is not None
        return torch.cholesky_inverse(self.factor)


def weighted_by_precision(
    variance: Tensor, powers: Sequence[int], block: Block
) -> tuple[Sequence[Block], Sequence[Tensor]]:
    """Return rows with weights w_n (v / (v + noise_n))^power, for noise_n of the rows.

    Args:
        variance: The variance v, 0-d.
        powers: The powers. Power 1 gives precisions relative to those of rows without noise of their own.
        block: The rows.
    """
    if block.fixed_noise is None:
        return (block,) * len(powers), ()
    ratio, without_noise = variance / (variance + block.fixed_noise), replace(block, fixed_noise=None)
    return [replace(without_noise, weight=block.counts() * ratio**power) for power in powers], ()


def sum_names(layout: Layout) -> list[str]:
    """Return the names of tensors of sums in a file, in the order of `RowSums.flat`.

    Args:
        layout: The layout of the designs.
    """
    count = len(layout.lattices)
    names = [f"{kind}_{index}" for kind in ("generator", "projection") for index in range(count)]
    return [*names, *(f"cross_{index}" for index in range(len(layout.pairs))), "gram", "num_rows"]


def posterior_of(prior: Prior, sums: RowSums, mean: Tensor, noise: Tensor) -> SeriesPosterior:
    """Return the posterior given sums over the rows.

    Args:
        prior: The prior.
        sums: The sums over the rows.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.
    """
    with torch.no_grad():
        statistics = assemble(Layout.of(designs_of(prior)), sums).centered(mean)
        weights = solve(statistics, scale_of(prior), noise + residual_variance_of(prior))
        return _posterior(prior, weights, RowSumsForUpdates(sums, mean, noise))


def _posterior(prior: Prior, solution: WeightSolution, row_sums: RowSumsForUpdates) -> SeriesPosterior:
    return SeriesPosterior(prior, solution.weights, FactorCovariance(solution.factor), row_sums=row_sums)


def restored(prior: Prior, tensors: Mapping[str, Tensor]) -> SeriesPosterior:
    """Return the posterior with saved sums.

    Args:
        prior: The prior.
        tensors: The tensors (...) of `SeriesPosterior.tensors`, by name.
    """
    layout = Layout.of(designs_of(prior))
    empty = no_sums(layout, len(tensors["mean"]))
    sums = empty.of_flat([tensors[name] for name in sum_names(layout)])
    return posterior_of(prior, sums, tensors["mean"], tensors["noise"])


def has_lattices(prior: Prior) -> bool:
    """Return whether all blocks are fixed designs with transforms, one on a lattice.

    Args:
        prior: The prior.
    """
    known = [block.design for block in prior.weights if block.design is not None]
    if not prior.has_weights_only or len(known) < len(prior.weights):
        return False
    return any(isinstance(design, LatticeDesign) for design in known) and Layout.of(known).is_joint


def designs_of(prior: Prior) -> list[Design]:
    """Return the designs of the blocks of a prior.

    Args:
        prior: The prior.

    Raises:
        InvalidArgumentError: If a block has no design.
    """
    designs = [block.design for block in prior.weights if block.design is not None]
    if len(designs) < len(prior.blocks):
        raise InvalidArgumentError(
            "Each term must have features without hyperparameters, got one without a design. Use EquispacedFourier()."
        )
    return designs


def scale_of(prior: Prior) -> Tensor:
    """Return the prior standard deviations of all weights, (F,), float64.

    Args:
        prior: The prior. All its blocks must have designs.
    """
    parts = [
        block.prior_variance.sqrt() * block.design.scale(*block.parameters) for block in prior.weights if block.design
    ]
    return torch.cat(parts)


def residual_variance_of(prior: Prior) -> Tensor:
    """Return the sum of the variances that the designs miss, 0-d, float64.

    Args:
        prior: The prior. All its blocks must have designs.
    """
    zero = torch.zeros((), dtype=torch.float64)
    return sum(
        (b.prior_variance * b.design.residual_variance(*b.parameters) for b in prior.weights if b.design), start=zero
    )


# --- The noise of rows on fixed designs: one noise for all rows, or one each -----------------------------------------

_LOG_2PI = math.log(2 * math.pi)


class SharedNoise:
    """Rows of one noise, by statistics for any hyperparameters.

    Args:
        designs: The designs of all blocks.
        rows: The rows.
        variance: The variance v, 0-d.
    """

    def __init__(self, designs: Sequence[Design], rows: Rows, variance: Tensor) -> None:
        self._variance, self.statistics = variance, statistics_of(designs, rows)

    @property
    def logs(self) -> Tensor:
        """The sum of log(2 pi D) over the observations with their noise variances D, 0-d."""
        return self.statistics.observations * (_LOG_2PI + self._variance.log())

    def in_log_variance(self, solver: "OnePassSolver") -> Tensor:
        """Return the derivative of the log marginal likelihood in log v, 0-d.

        Args:
            solver: The solver of the rows.
        """
        diagonal = solver.inverse.diagonal()
        free = self.statistics.observations - len(diagonal) + diagonal.sum()
        return 0.5 * (solver.square - solver.solution.weights.square().sum() - len(solver.mean) * free)

    def information(self, solver: "OnePassSolver") -> tuple[Tensor, Tensor]:
        """Return twice the Fisher information of one output.

        Args:
            solver: The solver of the rows.

        Returns:
            The information of log v and log s^2, (F,), and of log v, 0-d.
        """
        diagonal, rows = solver.inverse.diagonal(), solver.inverse.square().sum(1)
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
        key = *self._layout.designs, float(variance)
        self.statistics, self.logs = cached_sums(rows, key, self._first_pass)

    def _first_pass(self) -> tuple[Statistics, Tensor]:
        """Return the statistics with P, and the sum of log(2 pi D), 0-d."""
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

    def in_log_variance(self, solver: "OnePassSolver") -> Tensor:
        """Return the derivative of the log marginal likelihood in log v, 0-d.

        Args:
            solver: The solver of the rows.
        """
        statistics, root = self._second_pass[0], solver.scale.detach() / self._variance.sqrt()
        squares = quadratic_form(
            statistics.centered(solver.mean.detach()), solver.solution, solver.scale.detach(), self._variance
        )
        residual = squares - solver.solution.weights.square().sum()
        used = (solver.inverse * (root[:, None] * statistics.gram * root)).sum() - self.statistics.observations
        return 0.5 * (residual + len(solver.mean) * used)

    def information(self, solver: "OnePassSolver") -> tuple[Tensor, Tensor]:
        """Return twice the Fisher information of one output.

        Args:
            solver: The solver of the rows.

        Returns:
            The information of log v and log s^2, (F,), and of log v, 0-d.
        """
        second, third = self._second_pass
        root, inverse = solver.scale.detach() / self._variance.sqrt(), solver.inverse
        product = inverse @ (root[:, None] * second.gram * root)
        cubed = (inverse * (root[:, None] * third.gram * root)).sum()
        return (product * inverse).sum(1), second.observations - 2 * cubed + (product * product.mT).sum()


def _with_logs(variance: Tensor, block: Block) -> tuple[Sequence[Block], Sequence[Tensor]]:
    """Return rows with the weights P, and the sum of w_n log(2 pi (v + noise_n)), 0-d."""
    logs = (block.counts() * (_LOG_2PI + block.observation_noise(variance).log())).sum()
    return weighted_by_precision(variance, (1,), block)[0], (logs,)


# --- Gaussian regression on fixed designs from sufficient statistics -------------------------------------------------


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
        if self.noises.statistics is other.noises.statistics:
            self.noises = other.noises
            vars(self).update({name: vars(other)[name] for name in ("solution", "inverse") if name in vars(other)})
        return self

    @property
    def is_solved(self) -> bool:
        """Whether the posterior of the weights has been computed."""
        return "solution" in vars(self)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, from the statistics alone."""
        return with_gradient(self._value, self.mean, self.variance, self.scale)

    @cached_property
    def _statistics(self) -> WeightStatistics:
        """The statistics of the rows about the mean."""
        return self.noises.statistics.centered(self.mean)

    @cached_property
    def solution(self) -> WeightSolution:
        """The posterior of the weights."""
        with torch.no_grad():
            return solve(self._statistics, self.scale, self.variance)

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        return torch.cholesky_inverse(self.solution.factor)

    @cached_property
    def square(self) -> Tensor:
        """The quadratic form (y - mean)^T C^-1 (y - mean) of all outputs, 0-d."""
        with torch.no_grad():
            return quadratic_form(self._statistics, self.solution, self.scale, self.variance)

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        (factor, weights), k = self.solution, len(self.mean)
        value = -0.5 * (self.square + k * (2 * factor.diagonal().log().sum() + self.noises.logs))

        def gradients() -> Sequence[Tensor | None]:
            statistics, scale, variance = self.noises.statistics, self.scale.detach(), self.variance.detach()
            in_log_scale = weights.square().sum(1) + k * (self.inverse.diagonal() - 1)
            in_variance = self.noises.in_log_variance(self) / variance
            totals = statistics.totals - statistics.observations * self.mean.detach()
            in_mean = (totals - (scale * statistics.ones) @ weights) / variance
            in_scale = torch.where(scale > 0, in_log_scale / scale, 0.0)
            return [
                gradient if need else None
                for gradient, need in zip((in_mean, in_variance, in_scale), needs, strict=True)
            ]

        return value, gradients

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
            inverse, k = self.inverse, len(self.mean)
            diagonal = inverse.diagonal()
            (in_both, of_variance), squared = self.noises.information(self), inverse.square()
            weights = squared @ in_scale + (1 - 2 * diagonal)[:, None] * in_scale  # H o H = A^-1 o A^-1 + diag(1 - 2 d)
            cross = in_scale.mT @ in_both
            total = in_scale.mT @ weights + of_variance * torch.outer(in_variance, in_variance)
            total = 0.5 * k * (total + torch.outer(cross, in_variance) + torch.outer(in_variance, cross))
            ones = self.scale / self.variance.sqrt() * self.noises.statistics.ones
            solved = torch.cholesky_solve(ones[:, None], self.solution.factor)[:, 0]
            of_mean = (self.noises.statistics.observations - ones @ solved) / self.variance
            return total + of_mean * (in_mean.mT @ in_mean)

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The effective degrees of freedom of the weights divided by F, (F - tr A^-1) / F."""
        return 1 - float(self.inverse.diagonal().mean())

    def posterior(self) -> SeriesPosterior:
        """Return the posterior of the weights, with the sums over the rows for updates."""
        sums = self.noises.statistics.sums
        if not (torch.is_grad_enabled() and (self.scale.requires_grad or self.variance.requires_grad)):
            row_sums = RowSumsForUpdates(sums, self.mean.detach(), self.noise.detach())
            return _posterior(self.prior.detached(), self.solution, row_sums)
        if self.rows.has_fixed_noise:  # sums depend on the noise, and have no gradient in it
            solution = differentiable_solution(LinearModel(self.prior.dense, self.rows, self.mean, self.noise))
        else:
            solution = solve(self._statistics, self.scale, self.variance)
        return _posterior(self.prior, solution, RowSumsForUpdates(sums, self.mean, self.noise))

    def leave_one_out(self, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        Args:
            rows: The rows whose moments are returned, in a second pass. If None, all.
        """
        with torch.no_grad():
            return left_out(self._moments(self.rows if rows is None else rows))

    def _moments(self, rows: Rows) -> Iterator[RowMoments]:
        """Yield the moments of blocks of rows."""
        posterior, missing = self.posterior(), residual_variance_of(self.prior)
        for block in row_blocks(Layout.of(designs_of(self.prior)), rows):
            residual = block.targets - self.mean - posterior.mean_within(block.inputs)
            known, noise_diag = posterior.known_variance(block.inputs), block.noise_diag(self.variance)
            once = 1 - 1 / block.counts()  # the variance missed by designs is in D once for each repetition
            yield RowMoments(block.targets, residual, known, noise_diag, once * missing)
