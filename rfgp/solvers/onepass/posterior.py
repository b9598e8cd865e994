"""The posterior of weights on fixed designs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.blocks.weights import Design
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.lattices.design import LatticeDesign
from rfgp.linalg import cholesky
from rfgp.rows import Block, Rows
from rfgp.solvers.extensions import Extensions
from rfgp.solvers.lowrank import FactorCovariance, LowRankPosterior, with_noise
from rfgp.solvers.onepass.moments import SeriesMoments
from rfgp.solvers.onepass.statistics import Statistics, assemble
from rfgp.solvers.onepass.sums import Layout, RowSums, no_sums, weighted_sums
from rfgp.solvers.role import Functions, Posterior, Shape

DENSE_ENTRIES = 2**22
"""The maximum number of entries of features of points in one chunk, if transforms do not apply."""
FEW_POINTS = 64
"""The maximum number of points for which features are used instead of transforms."""


class WeightState(NamedTuple):
    """The posterior of weights from statistics, as in `rfgp.solvers.onepass.solver`."""

    factor: Tensor  # (F, F), the lower Cholesky factor of A
    target: Tensor  # c, (F, k)
    scores: Tensor  # u, (F, k)
    ones: Tensor  # R phi^T P 1, (F,)
    squares: Tensor  # |y - mean|^2, (k,)
    totals: Tensor  # 1^T P (y - mean), (k,)
    variance: Tensor  # v, 0-d

    @classmethod
    def of(cls, statistics: Statistics, mean: Tensor, variance: Tensor, scale: Tensor) -> "WeightState":
        """Return the posterior of the weights.

        Args:
            statistics: The sums over the rows.
            mean: The prior mean, (k,).
            variance: The variance v, 0-d.
            scale: The prior standard deviations of the weights, (F,).
        """
        root, n = scale / variance.sqrt(), statistics.observations
        matrix = statistics.gram * root * root[:, None]
        matrix.diagonal().add_(1)
        factor = cholesky(matrix, "The matrix I + R G R of the lattice")
        ones = root * statistics.ones
        target = root[:, None] * statistics.target - ones[:, None] * mean
        squares = statistics.squares - 2 * mean * statistics.totals + mean.square() * n
        scores = torch.cholesky_solve(target, factor)
        return cls(factor, target, scores, ones, squares, statistics.totals - n * mean, variance)


class RowSumsForUpdates(NamedTuple):
    """The sums of the rows of a Gaussian posterior, for adding and removing rows.

    Attributes:
        sums: The sums over the rows, weighted by their precision relative to that of rows without noise of their own.
            See `rfgp.solvers.onepass.noises`.
        mean: The mean of the rows, (k,).
        noise: The variance of one observation, 0-d.
    """

    sums: RowSums
    mean: Tensor
    noise: Tensor


@dataclass(frozen=True, eq=False)
class SeriesPosterior(Posterior):
    """The posterior of f = phi diag(s) w plus the variance that designs miss.

    Moments at points are computed by Fourier series. Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior.
        dense: The posterior of the weights, with features of points.
        row_sums: The sums over the rows. If None, as under a likelihood that is not Gaussian, no rows can be added.
    """

    prior: Prior
    dense: LowRankPosterior
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
        return self._over(projected, self.moments_at_rows.mean, lambda phi, _: self.dense.mean(phi))

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        return self._over(inputs, self.moments_at_rows.variance, lambda phi, x: self.dense.variance(x, phi))

    def covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the posterior covariance, (n, n)."""
        return self.dense.covariance(inputs, self.dense.project(inputs))

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance."""
        return self.dense.root(inputs, self.dense.project(inputs))

    def root_of_sums(self, inputs: Tensor, weights: Tensor) -> Tensor | None:
        """Return a covariance root (m, r) of sums over points (m, q, D) by weights (m, q)."""
        return self.dense.root_of_sums(inputs, weights)

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between sums of terms at n inputs.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return self.dense.cross_covariance(inputs, first, second)

    def of(self, names: Sequence[str]) -> "SeriesPosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return replace(self, dense=self.dense.of(names))

    def differentiated(self, column: int) -> "SeriesPosterior":
        """Return the posterior of the derivative of the function in one column.

        Raises:
            InvalidArgumentError: If a term has no derivative.
        """
        return replace(self, dense=self.dense.differentiated(column))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n inputs, (count, n, k), from weights and the kernel.

        The kernel is used outside the box of the rows only. The variance that the modes miss is excluded.
        """
        values = self._functions(count, generator)
        extensions = Extensions.of(self.prior, self.dense.terms, count, self.dense.weights.shape[1], generator)
        return lambda inputs: values(inputs) + extensions.evaluate(inputs)

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, (count, b, k) at b of them, or None if a root costs less."""
        is_slope = self.dense.derivative_column is not None  # beyond the rows, points share a part of it
        if is_slope or not self.dense.uncertainty.draws_weights(num_points, count):
            return None
        functions = self._functions(count, generator)
        return lambda inputs: with_noise(functions(inputs), self._missing_variance(inputs), generator)

    def _functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw the sums of the features, (count, n, k)."""
        drawn = self.dense.sample_weights(count, generator)  # (count, F, k)
        draws = replace(self.dense, weights=drawn.movedim(0, 1).flatten(1))
        series = SeriesMoments(draws)

        def functions(inputs: Tensor) -> Tensor:
            values = self._over(inputs, series.mean, lambda phi, _: draws.mean(phi))
            return values.reshape(len(inputs), count, -1).movedim(0, 1)

        return functions

    def _missing_variance(self, inputs: Tensor) -> Tensor:
        """Return the variances (n,) that the modes miss at points (n, D). They are 0 outside the box of a lattice."""
        total = torch.zeros(len(inputs), dtype=torch.float64)
        for block in self.prior.dense.with_residuals_of(self.dense.terms).blocks:
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
            return self.dense.tensors()
        sums, mean, noise = self.row_sums
        by_name = dict(zip(sum_names(self._layout), sums.flat(), strict=True))
        return {**by_name, "mean": mean.contiguous(), "noise": noise.contiguous()}

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of these tensors for k outputs."""
        if self.row_sums is None:
            return self.dense.shapes(n, k)
        empty = no_sums(self._layout, k).flat()
        shapes: dict[str, Shape] = {
            name: tuple(tensor.shape) for name, tensor in zip(sum_names(self._layout), empty, strict=True)
        }
        return {**shapes, "mean": (k,), "noise": ()}

    # --- series ----------------------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(designs_of(self.prior))

    @cached_property
    def moments_at_rows(self) -> SeriesMoments:
        """The moments at points in the box of the rows."""
        return SeriesMoments(self.dense)

    def is_outside(self, inputs: Tensor) -> Tensor:
        """Return whether points (n, D) are outside the box of a lattice, (n,)."""
        return self.moments_at_rows.is_outside(inputs)

    def _over(
        self, inputs: Tensor, by_series: Callable[[Tensor], Tensor], by_features: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return a moment (n, ...) at points (n, D), by series within the box and by features elsewhere."""
        size = max(1, DENSE_ENTRIES // max(len(self.dense.weights), 1))

        def from_features(x: Tensor) -> Tensor:
            return torch.cat([by_features(self.dense.project(chunk), chunk) for chunk in torch.split(x, size)])

        wants_gradient = inputs.requires_grad or self.dense.weights.requires_grad
        if wants_gradient or (len(inputs) <= FEW_POINTS and self.dense.derivative_column is None):
            return from_features(inputs)
        is_out = self.is_outside(inputs)
        if not bool(is_out.any()):
            return by_series(inputs)
        inside = by_series(inputs[~is_out])
        out = inside.new_zeros(len(inputs), *inside.shape[1:])
        out[~is_out] = inside
        out[is_out] = from_features(inputs[is_out])
        return out


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


def posterior_with(prior: Prior, state: WeightState, sums: RowSums, mean: Tensor, noise: Tensor) -> SeriesPosterior:
    """Return the posterior of weights on fixed designs.

    Args:
        prior: The prior.
        state: The posterior of the weights.
        sums: The sums over the rows.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.
    """
    weights = state.scores / state.variance.sqrt()
    dense = LowRankPosterior(prior, weights, FactorCovariance(state.factor))
    return SeriesPosterior(prior, dense, RowSumsForUpdates(sums, mean, noise))


def posterior_of(prior: Prior, sums: RowSums, mean: Tensor, noise: Tensor) -> SeriesPosterior:
    """Return the posterior given sums over the rows.

    Args:
        prior: The prior.
        sums: The sums over the rows.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.
    """
    with torch.no_grad():
        statistics = assemble(Layout.of(designs_of(prior)), sums)
        state = WeightState.of(statistics, mean, noise + residual_variance_of(prior), scale_of(prior))
        return posterior_with(prior, state, sums, mean, noise)


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
