"""The posterior under nearest neighbors of observations, at new points.

Given y, let a new point x have the nearest rows N, b = C_NN^-1 c and d = v - b^T c. The function at x is

    (Phi_x - b^T Phi_N) w + (A_x - b^T A_N) u + b^T (y_N - mean) + e',    e' ~ N(0, d).

The block of neighbors contributes b^T (y_N - mean - Phi_N w - A_N u) + e', weights contribute Phi_x w, and a sparse
precision A_x u. Each has the posterior of w and u. Means of terms add up to that of the sum. Given their neighbors, new
points are independent in the block of neighbors. Variances of terms are therefore those of single points. They are
exact for the given neighbors, and fully exact if these are all rows.

The joint distribution of several points also has earlier points as neighbors (`WhitenedPosterior.root`). Its
correlations are rescaled to the variances of single points, so that covariances of terms between points need not add
up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import with_slopes
from rfgp.blocks import PrecisionBlock, Prior, Weights
from rfgp.blocks.neighbors import AHEAD
from rfgp.errors import NotDifferentiableError
from rfgp.linalg import covariance_root
from rfgp.solvers.bordered.projections import joint_projector
from rfgp.solvers.kriging import (
    features,
    kriging_slopes,
    kriging_weights,
    neighbors_of,
    no_functions,
    sequential_kriging_weights,
)
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import known_terms
from rfgp.solvers.whitened.whitening import WhiteRows, half_solved


class WhitenedProjection(NamedTuple):
    """The projection of weights and latent values to n single points.

    It is given the observations near the points.
    """

    dense: Tensor  # the features minus those of the neighbors, (n, F)
    offset: Tensor  # the mean without the part of the dense weights, (n, k)
    root: Tensor  # a root of the covariance of the projections, (n, F + N)
    conditional_variance: Tensor  # the variance of e' and of residuals, (n,)


@dataclass(frozen=True, eq=False)
class WhitenedPosterior(Posterior):
    """The posterior under nearest neighbors, stored as the weights and the rows.

    The rows are needed for the neighbors of new points.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of neighbors, weights, kernels and sparse precisions.
        inputs: The inputs of the ordered rows, (n, d).
        targets: The centered targets y - mean, (n, k).
        noise: The noise variances of the rows, (n,).
        weights: The posterior mean of the dense weights, (F, k).
        factor: The Cholesky factor (F, F) of the precision of the weights.
        known: The rows with their computed algebra. If None, it is computed on demand.
        terms: The names of the terms whose sum is predicted. If None, all.
    """

    prior: Prior
    inputs: Tensor
    targets: Tensor
    noise: Tensor
    weights: Tensor
    factor: Tensor
    known: WhiteRows | None = None
    terms: tuple[str, ...] | None = None

    serialized_fields = ("inputs", "targets", "noise", "weights", "factor")

    @property
    def width(self) -> int:
        """The number of entries of a point.

        They are features, latent values, outputs, and those of its neighbors.
        """
        latent = sum(block.size for block in self.prior.precisions)
        near = AHEAD * neighbors_of(self.prior).num_neighbors * (self.inputs.shape[1] + 1)
        return sum(self.weights.shape) + 1 + latent + near

    def project(self, inputs: Tensor) -> WhitenedProjection:
        """Return the projections of n single points, (n, d)."""
        blocks, system = self._rows.regression_for(inputs)
        dense, sparse = self._own_projections(blocks, inputs)
        offset = self.targets.new_zeros(len(inputs), self.targets.shape[1])
        conditional, residual = dense.new_zeros(len(inputs)), self._residual.residual_variance(inputs, dense)
        if self._has_neighbors:
            flags = neighbors_of(self.prior).flags(self.terms)
            weights, conditional = kriging_weights(self.prior, self.inputs, self.noise, inputs.detach(), flags)
            of_near = self._rows.weighted_sums(blocks, weights)
            dense, sparse = dense - of_near[0], sp.csr_array(sparse - of_near[1])
            offset = torch.from_numpy(weights @ self.targets.numpy())
        if torch.is_grad_enabled() and inputs.requires_grad:
            if system is not None:
                raise NotDifferentiableError(
                    "X must not require gradients with sparse precisions and neighbors of responses, got X that does. "
                    'Use predict(X.detach()), or Vecchia(condition_on="latent").'
                )
            dense, offset, conditional = self._with_slopes(inputs, dense, offset, conditional)
        if system is not None:
            offset = offset + torch.from_numpy(np.asarray(sparse @ system.values.numpy()))
        root = half_solved(system, self.factor, dense, sparse)
        return WhitenedProjection(dense, offset, root, conditional + residual)

    def _with_slopes(self, inputs: Tensor, *parts: Tensor) -> Iterator[Tensor]:
        """Yield features (n, F), offset (n, k) and conditional variances (n,) with gradients in the inputs.

        The neighbors of each point are fixed.
        """
        slopes = list(kriging_slopes(self.prior, self.inputs, self.noise, inputs, self.terms))
        derivatives = [
            (
                -self._rows.weighted_sums((), slope.projector)[0].numpy(),
                slope.projector @ self.targets.numpy(),
                slope.conditional_variance,
            )
            for slope in slopes
        ]
        columns = [slope.column for slope in slopes]
        for number, part in enumerate(parts):
            pairs = zip(columns, (one[number] for one in derivatives), strict=True)
            yield with_slopes(part, inputs, list(pairs))

    def mean(self, projected: WhitenedProjection) -> Tensor:
        """Return the posterior mean, (n, k)."""
        return projected.dense @ self.weights + projected.offset

    def variance(self, inputs: Tensor, projected: WhitenedProjection) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        return projected.root.square().sum(1) + projected.conditional_variance

    def covariance(self, inputs: Tensor, projected: WhitenedProjection) -> Tensor:
        """Return the posterior covariance (n, n). See `root`."""
        root = self.root(inputs, projected)
        return root @ root.mT

    def root(self, inputs: Tensor, projected: WhitenedProjection) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance of points.

        The points may be neighbors of each other.

        With the new points after the rows, g_new = B_r (y - mean - Phi w - A u) + B_new g_new + e, e ~ N(0, diag d).
        With T = (I - B_new)^-1 the function is T (B_r (y - mean) + e) + (Phi_new - T B_r Phi) w + (A_new - T B_r A) u.
        The correlations are those of this distribution. The variances are those of `variance`, for which all neighbors
        are rows.
        """
        root, scale = _joint_root([self], inputs, [projected])
        if self._residual.has_residual:
            root = torch.cat([root, covariance_root(self._residual_covariance(inputs))], dim=1)
        return root * scale[:, None]

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between sums of terms.

        At each point it is exact for the neighbors of that point. For pairs of points see `root`. The values of two
        terms approximated by their sum may be neighbors of each other.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        parts, count = [self.of(names) for names in (first, second)], len(inputs)
        flags = [neighbors_of(self.prior).flags(part.terms) for part in parts]
        projections = [part.project(inputs) for part in parts]
        if all(bool(part_flags.any()) for part_flags in flags) and not torch.equal(*flags):
            root, scale = _joint_root(parts, inputs, projections)
            left, right, rows, columns = root[:count], root[count:], scale[:count], scale[count:]
        else:
            pairs = zip(parts, projections, strict=True)
            (left, rows), (right, columns) = (_joint_root([part], inputs, [own]) for part, own in pairs)
        shared = replace(self, terms=tuple(name for name in first if name in second))
        return (left @ right.mT + shared._residual_covariance(inputs)) * rows[:, None] * columns

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Raise an error, because the block of neighbors is defined at given points only.

        Raises:
            InvalidArgumentError: Always.
        """
        raise no_functions()

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of targets, noise, weights and factor by name."""
        size = self.prior.num_features + n * len(self.prior.kernels)
        return {"targets": (n, k), "noise": (n,), "weights": (size, k), "factor": (size, size)}

    def of(self, names: Sequence[str]) -> "WhitenedPosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return replace(self, known=self._rows, terms=known_terms(self.prior, names))

    # --- the terms -------------------------------------------------------------------------------

    @property
    def _has_neighbors(self) -> bool:
        return bool(neighbors_of(self.prior).flags(self.terms).any())

    @cached_property
    def _rows(self) -> WhiteRows:
        """The rows."""
        return self.known or WhiteRows(self.prior, self.inputs, self.targets, self.noise)

    @property
    def _residual(self) -> Weights:
        """The weights with the residuals of the predicted terms."""
        return self._rows.weights.with_residuals_of(self.terms)

    def _residual_covariance(self, inputs: Tensor) -> Tensor:
        """Return the covariance (n, n) of these residuals, or 0."""
        return self._residual.residual_covariance(inputs, self._own_projections((), inputs)[0])

    def _own_projections(self, blocks: Sequence[PrecisionBlock], inputs: Tensor) -> tuple[Tensor, sp.csr_array]:
        """Return features (n, F) and projections of latent values (n, N) of points, 0 for other terms."""
        dense, sparse = features(self.prior, self._rows.weights, inputs), joint_projector(blocks, inputs)
        if self.terms is None:
            return dense, sparse
        flags = [np.full(block.size, float(block.name in self.terms)) for block in blocks]
        return dense * self._rows.weights.of(self.terms), sp.csr_array(
            sparse @ sp.diags_array(np.concatenate([*flags, []]))
        )


def _joint_root(
    parts: Sequence[WhitenedPosterior], inputs: Tensor, projected: Sequence[WhitenedProjection]
) -> tuple[Tensor, Tensor]:
    """Return a root of the joint covariance of several sums of terms of one posterior, without residuals.

    Args:
        parts: The posterior, restricted to the terms of each of P sums. If there are several, the block of neighbors is
            divided into terms.
        inputs: The points, (n, d).
        projected: The projections of the points for each of them.

    Returns:
        The root (P n, P n + F + N), one sum after the other, and the scales (P n,) of its rows.
    """
    first, count = parts[0], len(parts) * len(inputs)
    blocks, system = first._rows.regression_for(inputs)
    projections = [part._own_projections(blocks, inputs) for part in parts]
    pairs, zeros = zip(parts, projections, strict=True), torch.zeros(len(inputs), dtype=torch.float64)
    residual = [zeros + part._residual.residual_variance(inputs, features) for part, (features, _) in pairs]
    dense = torch.cat([features for features, _ in projections])
    sparse = sp.csr_array(sp.vstack([of_values for _, of_values in projections]))
    of_neighbors = dense.new_zeros(count, count)
    if any(part._has_neighbors for part in parts):
        block, rows = neighbors_of(first.prior), len(first.inputs)
        flags = torch.cat([block.flags(part.terms).expand(len(inputs), -1) for part in parts])
        points = torch.cat([inputs] * len(parts))
        weights, variance = sequential_kriging_weights(first.prior, first.inputs, first.noise, points, flags)
        among = torch.eye(count, dtype=torch.float64) - torch.from_numpy(weights[:, rows:].toarray())
        of_near = first._rows.weighted_sums(blocks, sp.csr_array(weights[:, :rows]))
        right = torch.cat([variance.sqrt().diag(), of_near[0], torch.from_numpy(of_near[1].toarray())], dim=1)
        solved = torch.linalg.solve_triangular(among, right, upper=False, unitriangular=True)
        of_neighbors, features, latent = torch.split(solved, [count, *dense.shape[1:], *sparse.shape[1:]], dim=1)
        dense, sparse = dense - features, sp.csr_array(sparse - latent.numpy())
    root = torch.cat([of_neighbors, half_solved(system, first.factor, dense, sparse)], dim=1)
    square = root.square().sum(1) + torch.cat(residual)
    single = torch.cat([part.variance(inputs, own) for part, own in zip(parts, projected, strict=True)])
    return root, (single / square.clamp_min(torch.finfo(square.dtype).tiny)).sqrt()
