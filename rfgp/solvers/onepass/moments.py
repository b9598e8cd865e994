"""Means and variances of weights on fixed designs, by fast Fourier transforms."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import input_derivatives
from rfgp.blocks import WeightBlock
from rfgp.lattices.design import LatticeDesign
from rfgp.lattices.transforms import Complex, Floats, series_at_points
from rfgp.solvers.lowrank import LowRankPosterior
from rfgp.solvers.onepass.products import quadratic_series, real_series


def values_on_lattice(design: LatticeDesign, inputs: Tensor, coefficients: Tensor) -> Tensor:
    """Return sums of features on a lattice times coefficients, (n, m).

    Two columns of coefficients take one transform.

    Args:
        design: The design on a lattice.
        inputs: The inputs of the points, (n, D).
        coefficients: The coefficients, (F, m).
    """
    angles, values = design.lattice.angles(design.lattice.columns(inputs)), list[Floats]()
    columns = [real_series(column, design.modes) for column in coefficients.detach().numpy().T]
    for index in range(0, len(columns), 2):
        pair = columns[index : index + 2]
        both = series_at_points(angles, pair[0] if len(pair) == 1 else pair[0] + 1j * pair[1])
        values += [both.real, both.imag][: len(pair)]
    return torch.as_tensor(np.stack(values, axis=1))


@dataclass(frozen=True, eq=False)
class SeriesMoments:
    """The moments of f = phi diag(s) w at points in the box of the rows.

    The mean is a Fourier series on each lattice. The variance is a series on each doubled lattice and on the product of
    each two lattices. Its coefficients are sums along the diagonals of the covariance of the weights.

    Attributes:
        posterior: The posterior of the weights.
    """

    posterior: LowRankPosterior

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
        ends = np.cumsum([0, *self.posterior.prior.dense.sizes])
        pairs = zip(
            self.posterior.prior.weights, (slice(int(a), int(b)) for a, b in itertools.pairwise(ends)), strict=True
        )
        return [
            (block, columns)
            for block, columns in pairs
            if self.posterior.terms is None or block.name in self.posterior.terms
        ]

    @cached_property
    def _scales(self) -> list[Tensor]:
        """The prior standard deviations of the weights of these blocks, (F_b,) each."""
        return [b.prior_variance.sqrt() * b.design.scale(*b.parameters) for b, _ in self._own if b.design is not None]

    def mean(self, inputs: Tensor) -> Tensor:
        """Return the posterior mean, (n, k).

        Args:
            inputs: The inputs of the points, (n, D).
        """
        out = torch.zeros(len(inputs), self.posterior.weights.shape[1], dtype=torch.float64)
        for (block, columns), scale in zip(self._own, self._scales, strict=True):
            weights = self._as_slopes(block, scale[:, None] * self.posterior.weights[columns])
            if isinstance(block.design, LatticeDesign):
                out += values_on_lattice(block.design, inputs, weights)
            else:
                out += self._dense_features(block, inputs) @ weights
        return out

    def variance(self, inputs: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,), including those of missing modes.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        known = self.known_variance(inputs)
        if self.posterior.derivative_column is not None:
            return known + self.posterior.missing_derivative_variances(inputs)
        residual = [(block, block.design) for block, _ in self._own if block.residual is not None and block.design]
        pairs = ((block.prior_variance, design.residual_variance(*block.parameters)) for block, design in residual)
        return known + sum(float(scale * variance) for scale, variance in pairs)

    def known_variance(self, inputs: Tensor) -> Tensor:
        """Return the posterior variances of the sums of features, (n,).

        Those of missing modes are excluded.

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
        if self.posterior.derivative_column is None:
            return block.design.fixed_features(inputs).double()
        return input_derivatives(block.design.fixed_features, inputs, self.posterior.derivative_column)

    def _as_slopes(self, block: WeightBlock, weights: Tensor) -> Tensor:
        """Return the weights (F, m) of the derivative of features on a lattice.

        Other weights are returned unchanged.

        The derivative of a cos(w x) + b sin(w x) is w b cos(w x) - w a sin(w x).
        """
        design = block.design
        if self.posterior.derivative_column is None or not isinstance(design, LatticeDesign):
            return weights
        if self.posterior.derivative_column not in design.lattice.column_indices:
            return torch.zeros_like(weights)
        column = design.lattice.column_indices.index(self.posterior.derivative_column)
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
            return torch.as_tensor(series_at_points(*self._quadratic(inputs, first.design, second.design, a, b)).real)
        lattice, features, rows = (first, right, covariance) if left is None else (second, left, covariance.mT)
        assert isinstance(lattice.design, LatticeDesign)
        assert features is not None
        return (values_on_lattice(lattice.design, inputs, rows) * features).sum(1)

    def _quadratic(
        self, inputs: Tensor, first: LatticeDesign, second: LatticeDesign, a: int, b: int
    ) -> tuple[Floats, Complex]:
        """Return the angles of points and the series of the covariance of two blocks on lattices."""
        angles = first.lattice.angles(first.lattice.columns(inputs))
        if not first.lattice.same_as(second.lattice):
            angles = np.hstack([angles, second.lattice.angles(second.lattice.columns(inputs))])
        key = a, b
        if key not in self._series:
            self._series[key] = quadratic_series(self._covariance_of(a, b).numpy(), first.modes, second.modes)
        return angles, self._series[key]

    @cached_property
    def _series(self) -> dict[tuple[int, int], Complex]:
        return {}

    def _covariance_of(self, a: int, b: int) -> Tensor:
        """Return the posterior covariance (F_a, F_b) of the weights of two blocks, times prior standard deviations."""
        (_, rows), (_, columns) = self._own[a], self._own[b]
        covariance = self._scales[a][:, None] * self.inverse[rows, columns] * self._scales[b]
        covariance = self._as_slopes(self._own[a][0], covariance)
        return self._as_slopes(self._own[b][0], covariance.mT).mT

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        assert self.posterior.factor is not None
        return torch.cholesky_inverse(self.posterior.factor)
