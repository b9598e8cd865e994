"""Gaussian regression on fixed designs from sufficient statistics.

The model is y = mean + phi diag(s) w + e. The weights are w ~ N(0, I), with prior standard deviations s. The variance
of e is v + noise_n for row n with noise_n of its own. v = noise + delta includes the variance delta that the designs
miss. The row represents w_n observations and has the weights

    P_n = w_n v / (v + noise_n),   Q_n = w_n (v / (v + noise_n))^2,   T_n = w_n (v / (v + noise_n))^3.

With R = diag(s) / sqrt(v), G = phi^T P phi, M = R phi^T Q phi R, the residuals r and the sums N_P and N_Q of P_n and
Q_n,

    A = I + R G R,   c = R phi^T P (y - mean),   u = A^-1 c,
    -2 log p = ((y - mean)^T P (y - mean) - c^T u) / v + log|A| + sum_n w_n log(2 pi (v + noise_n))
    d log p / d log s_j = u_j^2 / v + (A^-1)_jj - 1
    d log p / d log v   = (r^T Q r / v + tr(A^-1 M) - N_P) / 2
    d log p / d mean    = (1^T P (y - mean) - (R phi^T P 1)^T u) / v

Let H = I - A^-1 and o = R phi^T P 1. The Fisher information is

    H_ij^2 / 2                                                    of log s_i^2 and log s_j^2,
    (A^-1 M A^-1)_jj / 2                                          of log s_j^2 and log v,
    (N_Q - 2 tr(A^-1 R phi^T T phi R) + tr((A^-1 M)^2)) / 2       of log v,
    (N_P - o^T A^-1 o) / v                                        of the mean.

P, Q and T depend on v, so that the sums do not hold for other hyperparameters. Without noise of the rows all three are
w_n, the sums hold for any hyperparameters, and A^-1 M = H.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, input_derivatives, with_gradient
from rfgp.blocks import Prior, WeightBlock
from rfgp.blocks.role import ENTRIES
from rfgp.errors import DataError
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
)
from rfgp.solvers.lowrank import Statistics as WeightStatistics
from rfgp.solvers.onepass.sums import (
    Layout,
    RowSums,
    Statistics,
    no_sums,
    quadratic_series,
    row_blocks,
    statistics_of,
    values_on_lattice,
    weighted_by_precision,
    weighted_sums,
)
from rfgp.solvers.role import Functions, Inference, Joint, OnDemand, Shape

# --- The posterior of weights on fixed designs -----------------------------------------------------------------------

FEW_POINTS = 64
"""The maximum number of points for which features are used instead of transforms.

Transforms first need A^-1 and its series, which take F^3 operations. Features take F^2 of them for each point."""


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

    Moments at points within the box of the rows are Fourier series. Elsewhere they are computed by features, as those
    of other weights. Methods have the arguments of those of `Posterior`.

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
        return self._over(projected, self.mean_within, lambda phi: phi @ self.weights)

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        known = self._over(inputs, self.known_variance, self.uncertainty.variance)
        return known + self.residual_variance(inputs, projected)

    def residual_variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the variances (n,) that the modes miss. They are 0 outside the box of a lattice."""
        if self.derivative_column is not None:
            return self.missing_derivative_variances(inputs)
        total = torch.zeros(len(inputs), dtype=torch.float64)
        for block in self.predicted:
            if block.residual is not None and isinstance(block.design, LatticeDesign):
                variance = block.prior_variance * block.design.residual_variance(*block.parameters)
                total = total + torch.where(block.design.is_outside(inputs), 0.0, variance)
        return total

    def joints(
        self, inputs: Tensor, parts: Sequence[LowRankPosterior], projected: Sequence[OnDemand]
    ) -> Sequence[Joint]:
        """Return the features of points for sums of terms."""
        return [Joint(part.features(inputs)) for part in parts]

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance."""
        return super().root(inputs, self.features(inputs))

    def _functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw the sums of the features, a map of inputs to (count, n, k)."""
        drawn = self._sample_weights(count, generator)  # (count, F, k)
        draws = replace(self, weights=drawn.movedim(0, 1).flatten(1))
        return lambda inputs: draws.mean(inputs).reshape(len(inputs), count, -1).movedim(0, 1)

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
        variance = (noise + residual_variance_of(self.prior.weights)).detach()
        (change,), _ = weighted_sums(self._layout, rows, partial(weighted_by_precision, variance, (1,)), num_values=2)
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
        return {**sums.tensors(), "mean": mean.contiguous(), "noise": noise.contiguous()}

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of these tensors for k outputs."""
        if self.row_sums is None:
            return super().shapes(n, k)
        shapes: dict[str, Shape] = {
            name: tuple(sum_.shape) for name, sum_ in no_sums(self._layout, k).tensors().items()
        }
        return {**shapes, "mean": (k,), "noise": ()}

    # --- series ----------------------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(self.prior.weights)

    def _over(
        self, inputs: Tensor, by_series: Callable[[Tensor], Tensor], by_features: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return a moment (n, ...) at points (n, D), by series within the box and by features elsewhere.

        Features (n, F) are also used for few points and for gradients.
        """
        is_few = len(inputs) <= FEW_POINTS and self.derivative_column is None
        if is_few or inputs.requires_grad or self.weights.requires_grad:
            is_out = torch.ones(len(inputs), dtype=torch.bool)
        else:
            is_out = self.is_outside(inputs)
        size = max(1, ENTRIES // max(len(self.weights), 1))
        parts = [by_features(self.features(chunk)) for chunk in torch.split(inputs[is_out], size)]
        if bool(is_out.all()):
            return torch.cat(parts)
        inside = by_series(inputs[~is_out])
        out = inside.new_zeros(len(inputs), *inside.shape[1:])
        out[is_out], out[~is_out] = torch.cat(parts), inside
        return out

    def is_outside(self, inputs: Tensor) -> Tensor:
        """Return whether points are outside the box of a lattice, (n,).

        Args:
            inputs: The inputs of the points, (n, D).
        """
        out = torch.zeros(len(inputs), dtype=torch.bool)
        for _, design, _ in self._on_lattices:
            out |= design.is_outside(inputs)
        return out

    @cached_property
    def _parts(self) -> list[tuple[int, WeightBlock, slice]]:
        """The number of each predicted block, the block, and the positions of its weights."""
        ends, blocks = np.cumsum([0, *self.prior.dense.sizes]).tolist(), self.prior.weights
        every = ((i, block, slice(ends[i], ends[i + 1])) for i, block in enumerate(blocks))
        return [part for part in every if part[1] in self.predicted]

    @property
    def _on_lattices(self) -> list[tuple[int, LatticeDesign, slice]]:
        """The number of the lattice of each predicted block, its design, and the positions of its weights."""
        lattices, parts = self._layout.lattice_of, self._parts
        return [(lattices[i], b.design, part) for i, b, part in parts if isinstance(b.design, LatticeDesign)]

    @cached_property
    def _dense_weights(self) -> Tensor:
        """The positions (F_d,) of the weights of predicted blocks that are not on a lattice."""
        positions, lattices = torch.arange(self.prior.num_features), self._layout.lattice_of
        return torch.cat([positions[:0], *(positions[part] for i, _, part in self._parts if lattices[i] < 0)])

    def _dense_features(self, inputs: Tensor) -> Tensor:
        """Return the features (n, F_d) of these weights at points (n, D), or their derivatives, float64."""
        found, column = [torch.zeros(len(inputs), 0, dtype=torch.float64)], self.derivative_column
        for i, block, _ in self._parts:
            if block.design is not None and self._layout.lattice_of[i] < 0:
                features = block.design.fixed_features
                found.append(
                    features(inputs).double() if column is None else input_derivatives(features, inputs, column)
                )
        return torch.cat(found, dim=1)

    def mean_within(self, inputs: Tensor) -> Tensor:
        """Return the posterior mean at points in the box of the rows, (n, k).

        It is a Fourier series on each lattice.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        weights = self._as_slopes(scale_of(self.prior.weights)[:, None] * self.weights)
        out = self._dense_features(inputs) @ weights[self._dense_weights]
        for _, design, part in self._on_lattices:
            out += values_on_lattice(design, inputs, weights[part])
        return out

    def known_variance(self, inputs: Tensor) -> Tensor:
        """Return the posterior variances of the sums of features at points in the box, (n,).

        Those of missing modes are excluded. They are a series on each doubled lattice and on the product of each two
        lattices. Its coefficients are sums along the diagonals of the covariance of the weights.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        (series, covariance), features = self._series, self._dense_features(inputs)
        total = ((features @ covariance[self._dense_weights]) * features).sum(1)
        if features.shape[1]:
            for _, design, part in self._on_lattices:
                total += 2 * (values_on_lattice(design, inputs, covariance[part]) * features).sum(1)
        for numbers, coefficients in series.items():
            lattices = [self._layout.lattices[number] for number in dict.fromkeys(numbers)]
            angles = np.hstack([lattice.angles(lattice.columns(inputs)) for lattice in lattices])
            total += torch.as_tensor(series_at_points(angles, coefficients).real)
        return total.clamp_min(0)

    @cached_property
    def _series(self) -> tuple[dict[tuple[int, int], Complex], Tensor]:
        """The series of covariances on each pair of lattices, and the covariances (F, F_d) with other weights."""
        scale, series = scale_of(self.prior.weights), dict[tuple[int, int], Complex]()
        covariance = self._as_slopes(self._as_slopes(scale[:, None] * self.inverse * scale).mT)
        lattices = self._on_lattices
        for count, (i, first, rows) in enumerate(lattices, 1):
            for j, second, columns in lattices[:count]:
                found = quadratic_series(covariance[rows, columns].numpy(), first.modes, second.modes)
                times = 1 if rows == columns else 2
                series[i, j] = series.get((i, j), 0) + times * found
        return series, covariance[:, self._dense_weights]

    def _as_slopes(self, weights: Tensor) -> Tensor:
        """Return the weights (F, m) of the derivative of a function, or the weights if there is no derivative."""
        column = self.derivative_column
        if column is None:
            return weights
        designs, parts = self._layout.designs, torch.split(weights, self.prior.dense.sizes)
        pairs = zip(designs, parts, strict=True)
        return torch.cat([d.modes.slopes(part, column) if isinstance(d, LatticeDesign) else part for d, part in pairs])

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        assert self.factor is not None
        return torch.cholesky_inverse(self.factor)


def posterior_of(prior: Prior, sums: RowSums, mean: Tensor, noise: Tensor) -> SeriesPosterior:
    """Return the posterior given sums over the rows.

    Args:
        prior: The prior.
        sums: The sums over the rows.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.
    """
    with torch.no_grad():
        blocks = prior.weights
        statistics = Statistics(Layout.of(blocks), sums).centered(mean)
        solution = solve(statistics, scale_of(blocks), noise + residual_variance_of(blocks))
        return _posterior(prior, solution, RowSumsForUpdates(sums, mean, noise))


def _posterior(prior: Prior, solution: WeightSolution, row_sums: RowSumsForUpdates) -> SeriesPosterior:
    return SeriesPosterior(prior, solution.weights, FactorCovariance(solution.factor), row_sums=row_sums)


def restored(prior: Prior, tensors: Mapping[str, Tensor]) -> SeriesPosterior:
    """Return the posterior with saved sums.

    Args:
        prior: The prior.
        tensors: The tensors (...) of `SeriesPosterior.tensors`, by name.
    """
    empty = no_sums(Layout.of(prior.weights), len(tensors["mean"]))
    sums = empty.of_tensors([tensors[name] for name in empty.arrays])
    return posterior_of(prior, sums, tensors["mean"], tensors["noise"])


def has_lattices(prior: Prior) -> bool:
    """Return whether all blocks are fixed designs with transforms, one on a lattice.

    Args:
        prior: The prior.
    """
    if not prior.has_weights_only or any(block.design is None for block in prior.weights):
        return False
    layout = Layout.of(prior.weights)
    return bool(layout.lattices) and layout.is_joint


def scale_of(blocks: Sequence[WeightBlock]) -> Tensor:
    """Return the prior standard deviations of all weights, (F,), float64.

    Args:
        blocks: The blocks of weights. All have designs.
    """
    return torch.cat([b.prior_variance.sqrt() * b.design.scale(*b.parameters) for b in blocks if b.design])


def residual_variance_of(blocks: Sequence[WeightBlock]) -> Tensor:
    """Return the sum of the variances that the designs miss, 0-d, float64.

    Args:
        blocks: The blocks of weights. All have designs.
    """
    zero = torch.zeros((), dtype=torch.float64)
    return sum((b.prior_variance * b.design.residual_variance(*b.parameters) for b in blocks if b.design), start=zero)


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

    It uses statistics of one pass over the rows. Noise of the rows themselves takes another pass for derivatives.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """

    without_gradients: ClassVar[tuple[str, ...]] = ("solution", "inverse")
    """The names of the results that solvers at equal hyperparameters may share."""

    def __init__(self, prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> None:
        self.prior, self.rows, self.mean, self.noise = prior, rows, mean, noise

    @cached_property
    def scale(self) -> Tensor:
        """The prior standard deviations of the weights, (F,)."""
        return scale_of(self.prior.weights)

    @cached_property
    def variance(self) -> Tensor:
        """The variance of the noise plus that missed by the designs, 0-d."""
        return self.noise + residual_variance_of(self.prior.weights)

    @cached_property
    def statistics(self) -> Statistics:
        """The statistics of the rows with weights P."""
        with torch.no_grad():
            return statistics_of(self.prior.weights, self.rows, self.variance.detach())

    @cached_property
    def _higher(self) -> tuple[Statistics, Statistics]:
        """The statistics with weights Q and T."""
        if not self.rows.has_fixed_noise:
            return self.statistics, self.statistics
        layout, weigh = self.statistics.layout, partial(weighted_by_precision, self.variance.detach(), (2, 3))
        (second, third), _ = weighted_sums(layout, self.rows, weigh, count=2, num_values=2)
        return Statistics(layout, second), Statistics(layout, third)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, from the statistics alone."""
        return with_gradient(self._value, self.mean, self.variance, self.scale)

    @cached_property
    def _centered(self) -> WeightStatistics:
        """The statistics of the rows about the mean."""
        return self.statistics.centered(self.mean)

    @cached_property
    def solution(self) -> WeightSolution:
        """The posterior of the weights."""
        with torch.no_grad():
            return solve(self._centered, self.scale, self.variance)

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        return torch.cholesky_inverse(self.solution.factor)

    def _spread(self, statistics: Statistics) -> Tensor:
        """Return R phi^T W phi R, (F, F), for the weights W of statistics."""
        root = self.scale.detach() / self.variance.detach().sqrt()
        return root[:, None] * statistics.gram * root

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        (factor, weights), k, statistics = self.solution, len(self.mean), self.statistics
        scale, variance, mean = self.scale.detach(), self.variance.detach(), self.mean.detach()
        square = quadratic_form(statistics.centered(mean), self.solution, scale, variance)
        count, logs = statistics.values
        logs = logs + count * (math.log(2 * math.pi) + variance.log())
        value = -0.5 * (square + k * (2 * factor.diagonal().log().sum() + logs))

        def gradients() -> Sequence[Tensor | None]:
            inverse, (second, _), residual = self.inverse.diagonal(), self._higher, square
            used = len(inverse) - inverse.sum()  # tr A^-1 M
            if self.rows.has_fixed_noise:
                residual = quadratic_form(second.centered(mean), self.solution, scale, variance)
                used = (self.inverse * self._spread(second)).sum()
            in_log_scale = weights.square().sum(1) + k * (inverse - 1)
            in_log_variance = residual - weights.square().sum() + k * (used - statistics.observations)
            totals = statistics.totals - statistics.observations * mean
            in_mean = (totals - (scale * statistics.ones) @ weights) / variance
            in_scale = torch.where(scale > 0, in_log_scale / scale, 0.0)
            found = in_mean, 0.5 * in_log_variance / variance, in_scale
            return [gradient if need else None for gradient, need in zip(found, needs, strict=True)]

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
            inverse, k, (second, third) = self.inverse, len(self.mean), self._higher
            diagonal, squared = inverse.diagonal(), inverse.square()
            if self.rows.has_fixed_noise:
                product = inverse @ self._spread(second)  # A^-1 M
                in_both, used = (product * inverse).sum(1), (inverse * self._spread(third)).sum()
                of_variance = second.observations - 2 * used + (product * product.mT).sum()
            else:
                in_both = diagonal - squared.sum(1)
                of_variance = second.observations - len(diagonal) + squared.sum()
            weights = squared @ in_scale + (1 - 2 * diagonal)[:, None] * in_scale  # H o H = A^-1 o A^-1 + diag(1 - 2 d)
            cross = in_scale.mT @ in_both
            total = in_scale.mT @ weights + of_variance * torch.outer(in_variance, in_variance)
            total = 0.5 * k * (total + torch.outer(cross, in_variance) + torch.outer(in_variance, cross))
            ones = self.scale / self.variance.sqrt() * self.statistics.ones
            solved = torch.cholesky_solve(ones[:, None], self.solution.factor)[:, 0]
            of_mean = (self.statistics.observations - ones @ solved) / self.variance
            return total + of_mean * (in_mean.mT @ in_mean)

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The effective degrees of freedom of the weights divided by F, (F - tr A^-1) / F."""
        return 1 - float(self.inverse.diagonal().mean())

    def posterior(self) -> SeriesPosterior:
        """Return the posterior of the weights, with the sums over the rows for updates."""
        sums = self.statistics.sums
        if not (torch.is_grad_enabled() and (self.scale.requires_grad or self.variance.requires_grad)):
            row_sums = RowSumsForUpdates(sums, self.mean.detach(), self.noise.detach())
            return _posterior(self.prior.detached(), self.solution, row_sums)
        if self.rows.has_fixed_noise:  # sums depend on the noise, and have no gradient in it
            solution = differentiable_solution(LinearModel(self.prior.dense, self.rows, self.mean, self.noise))
        else:
            solution = solve(self._centered, self.scale, self.variance)
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
        posterior, missing = self.posterior(), residual_variance_of(self.prior.weights)
        for block in row_blocks(self.statistics.layout, rows):
            residual = block.targets - self.mean - posterior.mean_within(block.inputs)
            known, noise_diag = posterior.known_variance(block.inputs), block.noise_diag(self.variance)
            once = 1 - 1 / block.counts()  # the variance missed by designs is in D once for each repetition
            yield RowMoments(block.targets, residual, known, noise_diag, once * missing)
