"""The posterior of sparse latent values and dense weights at points."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import Prior, Weights
from rfgp.blocks.precision import COLUMNS
from rfgp.errors import InvalidArgumentError
from rfgp.solvers.bordered.operator import SparseOperator
from rfgp.solvers.bordered.points import BorderedProjection, PointProjector, between, check_joint_size, projects_singly
from rfgp.solvers.bordered.projections import (
    all_weights,
    bordered_system,
    has_residuals,
    joint_projector,
    sparse_blocks,
)
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import check_divided, known_terms


@dataclass(frozen=True, eq=False)
class BorderedPosterior(Posterior):
    """The posterior of sparse latent values and dense weights, stored as the rows.

    After loading, the factors are computed again from the rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of precisions, weights, kernels and neighbors.
        inputs: The inputs of the rows, positions (n,) or (n, d).
        noise_diag: The noise D, (n,).
        targets: The centered targets y - mean, (n, k).
        known: The computed posterior of the terms given the rows. If None, it is computed on demand.
        terms: The names of the terms whose sum is predicted. If None, all.
    """

    prior: Prior
    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    known: PointProjector | None = None
    terms: tuple[str, ...] | None = None

    serialized_fields = ("inputs", "noise_diag", "targets")

    @property
    def system(self) -> BorderedSystem:
        """The latent values and weights given the rows."""
        return self._projector.system

    @cached_property
    def weights(self) -> Weights:
        """The dense weights, including those of kernels at the rows."""
        return all_weights(self.prior, self.inputs) if self.known is None else self.known.weights

    @property
    def width(self) -> int:
        """The number of entries of a point: features and projections of latent values."""
        return self.weights.num_features + (COLUMNS if projects_singly(self.prior.precisions) else 1)

    def project(self, inputs: Tensor) -> BorderedProjection:
        """Return the projections of n single points, (n, d) or positions (n,)."""
        projector = self._projector if projects_singly(self.prior.precisions) else self._projector_with(inputs)
        return projector.project(inputs)

    def mean(self, projected: BorderedProjection) -> Tensor:
        """Return the posterior mean, (n, k)."""
        return projected.mean

    def variance(self, inputs: Tensor, projected: BorderedProjection) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        return projected.variances

    def covariance(self, inputs: Tensor, projected: BorderedProjection) -> Tensor:
        """Return the posterior covariance (n, n) of at most 2,000 points.

        With nearest neighbors, points may be neighbors of each other. Their correlations are those of the joint
        distribution, and their variances those of single points.

        Raises:
            InvalidArgumentError: If there are more points.
            NotDifferentiableError: If inputs of sparse blocks require gradients.
        """
        check_joint_size(self._projector.blocks, len(inputs), len(self.inputs))
        self._projector.check_constant(inputs)
        projection, scales = self._projector_with(inputs).project_jointly(inputs)
        covariance = between(projection, projection)
        return ((covariance + covariance.mT) / 2 + projection.conditional_variance) * scales[:, None] * scales

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the posterior covariance (n, n) as products and solves, or None.

        The result is None if the covariance must be formed. It must be formed if there are dense weights, residuals, or
        inputs that require gradients.
        """
        if self.weights.blocks or has_residuals(self._projector.blocks) or self._projector.needs_gradient(inputs):
            return None
        projection = self._projector_with(inputs).project(inputs)
        return SparseOperator(projection.system, projection.sparse)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior.

        Given w, u has the mean of u minus Y (w - E w), and the precision S.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If a block is defined at given positions only, or has a residual.
        """
        if self.prior.adds_latent_points or self.weights.has_residual or has_residuals(self._projector.blocks):
            raise InvalidArgumentError(
                "This process has no functions to draw, because it is defined at given positions only. Use "
                "predict(X).sample() instead."
            )
        system, k = self.system, self.targets.shape[1]
        sizes = system.elimination.prior.matrix.shape[1], len(system.weights)
        z, e = (torch.randn(size, count * k, generator=generator, dtype=torch.float64) for size in sizes)
        deviation = torch.linalg.solve_triangular(system.elimination.border_factor.mT, e, upper=True)
        u = system.values.repeat(1, count) - system.elimination.coupling @ deviation
        w = system.weights.repeat(1, count) + deviation
        if system.elimination.is_sparse:
            u = u + torch.from_numpy(system.elimination.factor.sample(z.numpy()))

        def functions(inputs: Tensor) -> Tensor:
            projection = self.project(inputs)
            values = projection.dense @ w + torch.from_numpy(np.asarray(projection.sparse @ u.numpy()))
            out: Tensor = values.reshape(len(inputs), count, k).movedim(0, 1)
            return out

        return functions

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag and targets by name."""
        return {"noise_diag": (n,), "targets": (n, k)}

    def of(self, names: Sequence[str]) -> "BorderedPosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return replace(self, known=self._projector, terms=known_terms(self.prior, names))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between sums of terms.

        Raises:
            InvalidArgumentError: If a term is unknown, none is named, latent neighbors are divided, or there are too
                many points.
            NotDifferentiableError: If inputs of sparse blocks require gradients.
        """
        check_joint_size(self._projector.blocks, len(inputs), len(self.inputs))
        first_terms, second_terms = known_terms(self.prior, first), known_terms(self.prior, second)
        check_divided(self.prior, first_terms, second_terms)
        replace(self._projector, terms=(*first_terms, *second_terms)).check_constant(inputs)
        shared, projector = [name for name in first_terms if name in second_terms], self._projector_with(inputs)
        parts = (replace(projector, terms=part).project_jointly(inputs) for part in (first_terms, second_terms, shared))
        (left, rows), (right, columns), (both, _) = parts
        return (between(left, right) + both.conditional_variance) * rows[:, None] * columns

    @cached_property
    def _projector(self) -> PointProjector:
        """The predicted terms, with the rows among the values of refined fields."""
        return self._projector_given(self.inputs) if self.known is None else replace(self.known, terms=self.terms)

    def _projector_with(self, inputs: Tensor) -> PointProjector:
        """Return the predicted terms, with n inputs, (n,) or (n, d), among the values of refined fields too."""
        return self._projector_given(self.inputs, inputs) if self.prior.adds_latent_points else self._projector

    def _projector_given(self, *inputs: Tensor) -> PointProjector:
        """Return the predicted terms given the rows, with some inputs among the values of refined fields."""
        blocks = [block.refined(*inputs) for block in sparse_blocks(self.prior, self.inputs)]
        border, noise = self.weights.scaled(self.inputs).double(), self.noise_diag.double()
        data = joint_projector(blocks, self.inputs), border, noise, self.targets
        system = bordered_system(blocks, *data, combines_non_neighbors=has_residuals(blocks))
        return PointProjector(system, self.weights, blocks, self.terms)
