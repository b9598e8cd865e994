"""Regression on rows that are whitened by their nearest neighbors, with weights and sparse precisions.

Let V^T V = (G + D)^-1, with the covariance G of the block of neighbors at the rows (`rfgp.local.factor`). V (y - mean)
is a linear model of noise 1: V Phi w + V A u + e, e ~ N(0, I), with u of a sparse precision.

Given y, let a new point x have the nearest rows N, b = C_NN^-1 c and d = v - b^T c. The function at x is

    (Phi_x - b^T Phi_N) w + (A_x - b^T A_N) u + b^T (y_N - mean) + e',    e' ~ N(0, d).

The block of neighbors contributes b^T (y_N - mean - Phi_N w - A_N u) + e', weights contribute Phi_x w, and a sparse
precision A_x u. Each has the posterior of w and u. Means of terms add up to that of the sum. Given their neighbors, new
points are independent in the block of neighbors. Variances of terms are therefore those of single points. They are
exact for the given neighbors, and fully exact if these are all rows.

The joint distribution of several points also has earlier points as neighbors (`WhitenedPosterior.root`). Its
correlations are rescaled to the variances of single points, so that covariances of terms between points need not add
up.

f = Phi w + A u + g, y = mean + f + e. g + e has the precision V^T V with a sparse V (`rfgp.local.factor`). The noise is
within the conditionals (Vecchia 1988; Katzfuss and Guinness 2021). Whitened rows are a linear model of noise 1
(`rfgp.solvers.bordered`) with P = V Phi, B = V A and the targets V (y - mean):

    log N(y) = log|V| + log N(V (y - mean); 0, I + P P^T + B Q^-1 B^T).

Its gradient in B gives that in V on its pattern, d/dV_ij = sum_k (d/dB)_ik A_jk. Without sparse precisions, only
C = I + P^T P is factorized.

The random order of a good nearest-neighbor process scatters the neighbors of a row over the order, but they are near it
in space. Rows are therefore whitened in blocks of near rows with mostly common neighbors, so that few features of other
rows are computed. Of P = V Phi only P^T P and P^T V (y - mean) are stored. There are no gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient, with_slopes
from rfgp.blocks import AHEAD, PrecisionBlock, Prior, Weights, predecessors_in_blocks, solved_forms
from rfgp.errors import NotDifferentiableError
from rfgp.limits import limits
from rfgp.linalg import covariance_root
from rfgp.local import StationaryProcess, spatial_blocks, used, whitened, whitened_transpose
from rfgp.rows import Block
from rfgp.solvers.bordered import (
    BorderedProjection,
    BorderedSystem,
    all_weights,
    bordered_system,
    joint_projector,
)
from rfgp.solvers.kriging import (
    check_sum,
    explained_columns,
    features,
    kriging_slopes,
    kriging_weights,
    neighbors_of,
    no_functions,
    sequential_kriging_weights,
)
from rfgp.solvers.lowrank import Statistics, solve
from rfgp.solvers.role import (
    Functions,
    Inference,
    Joint,
    OnDemand,
    Shape,
    Solver,
    TermwisePosterior,
    joint_scales,
    log_density,
    with_feature_residuals,
)
from rfgp.sparse import EntryPattern, SparseValues, times_sparse

# --- The whitening of rows under a block of nearest neighbors with noise ---------------------------------------------


@dataclass(frozen=True, eq=False)
class Whitener:
    """The whitener V (r, n) of n ordered rows, or of r of them given their neighbors.

    Attributes:
        entries: The entries of V (nnz,), with gradients.
        pattern: The neighbors of each row, with the row itself as the last, (r, n).
    """

    entries: Tensor
    pattern: EntryPattern

    @classmethod
    def of(
        cls,
        prior: Prior,
        x: Tensor,  # (n, d)
        noise: Tensor,  # (n,)
        phi: Tensor,  # (n, F)
        pattern: EntryPattern,  # (r, n)
    ) -> "Whitener":
        """Return the whitener of ordered rows.

        Args:
            prior: The prior with neighbors.
            x: The inputs of the rows.
            noise: The noise variances of the rows.
            phi: The features of the dense weights, and possibly further ones, at the rows.
            pattern: The neighbors of each row, with the row itself as the last.
        """
        columns = explained_columns(prior, phi)
        return cls(neighbors_of(prior).process(x, columns).inverse_factor(noise, pattern), pattern)

    def times(self, dense: Tensor) -> Tensor:
        """Return V B, (r, c), float64.

        Args:
            dense: The matrix B, (n, c).
        """
        return whitened(self.entries, dense, self.pattern)

    def back(self, dense: Tensor) -> Tensor:
        """Return V^T B, (n, c), float64, without gradients.

        Args:
            dense: The matrix B, (r, c).
        """
        return whitened_transpose(self.entries, dense, self.pattern)

    def times_sparse(self, projector: sp.csr_array) -> SparseValues:
        """Return V A, (r, N).

        Args:
            projector: The projection A, (n, N).
        """
        return times_sparse(self.entries, self.pattern, projector)

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant log|V|, the sum of the logarithms of its diagonal, 0-d."""
        return self.entries[torch.from_numpy(self.pattern.indptr[1:] - 1)].log().sum()

    @property
    def matrix(self) -> sp.csr_array:
        """V (r, n), without gradients."""
        return SparseValues(self.entries, self.pattern).matrix()

    @property
    def row_indices(self) -> Tensor:
        """The indices of the whitened rows, (r,)."""
        return torch.from_numpy(self.pattern.indices[self.pattern.indptr[1:] - 1])

    @property
    def precisions(self) -> Tensor:
        """The diagonal of V^T V, (n,), without gradients."""
        squares = self.entries.detach().square()
        zeros = torch.zeros(self.pattern.shape[1], dtype=torch.float64)
        return zeros.index_add(0, torch.from_numpy(self.pattern.indices), squares)


@dataclass(eq=False)
class WhiteRows:
    """Ordered rows under neighbors and other blocks, whitened.

    Attributes:
        prior: The prior of neighbors, weights, kernels and sparse precisions.
        inputs: The inputs of the rows, (n, d).
        targets: The centered targets y - mean, (n, k).
        noise: The noise variances of the rows, (n,).
        blocks: The sparse precisions, which may be refined.
        pattern: The neighbors of the rows, (n, n), or of r of them, (r, n). If None, they are computed on demand.
        output_weights: The weight of the log marginal likelihood of each output. If None, 1.
    """

    prior: Prior
    inputs: Tensor
    targets: Tensor
    noise: Tensor
    blocks: Sequence[PrecisionBlock]
    pattern: EntryPattern | None = None
    output_weights: Tensor | None = None

    def with_blocks(self, blocks: Sequence[PrecisionBlock]) -> "WhiteRows":
        """Return the same rows with other refined precisions.

        Args:
            blocks: The sparse precisions.
        """
        other = replace(self, blocks=blocks)
        other.phi, other.whitener, other.whitened = self.phi, self.whitener, self.whitened
        return other

    @cached_property
    def weights(self) -> Weights:
        """The dense weights, including those of kernels at the rows."""
        return all_weights(self.prior, self.inputs)

    @cached_property
    def phi(self) -> Tensor:
        """The features Phi of the rows, (n, F)."""
        return features(self.prior, self.weights, self.inputs)

    @cached_property
    def whitener(self) -> Whitener:
        """The whitener V."""
        pattern = self.pattern or predecessors_in_blocks(neighbors_of(self.prior), self.inputs)
        return Whitener.of(self.prior, self.inputs, self.noise, self.phi, pattern)

    @cached_property
    def whitened(self) -> tuple[Tensor, Tensor]:
        """The features V Phi (r, F) and the targets V (y - mean) (r, k)."""
        both = self.whitener.times(torch.cat([self.phi, self.targets], dim=1))
        return both[:, : self.phi.shape[1]], both[:, self.phi.shape[1] :]

    @cached_property
    def projector(self) -> SparseValues:
        """The projections V A of sparse precisions, (r, N)."""
        return self.whitener.times_sparse(joint_projector(self.blocks, self.inputs))

    @cached_property
    def system(self) -> BorderedSystem:
        """The regression of whitened targets on whitened projections and features."""
        (dense, targets), projector = self.whitened, self.projector.matrix()
        data = projector, dense, torch.ones(len(targets), dtype=torch.float64), targets
        return bordered_system(self.blocks, *data, self.output_weights, combines_non_neighbors=True)

    def weighted_sums(self, blocks: Sequence[PrecisionBlock], weights: sp.csr_array) -> tuple[Tensor, sp.csr_array]:
        """Return weighted sums of the features (q, F) and the projections (q, N) of rows.

        Args:
            blocks: The sparse precisions.
            weights: The weights of the rows, (q, n).
        """
        rows = np.unique(weights.indices)
        inputs = self.inputs[torch.from_numpy(rows)]
        weights = sp.csr_array(weights[:, rows])
        dense = features(self.prior, self.weights, inputs).numpy()
        return torch.from_numpy(weights @ dense), sp.csr_array(weights @ joint_projector(blocks, inputs))


# --- The posterior under nearest neighbors of observations, at new points --------------------------------------------


@dataclass(frozen=True, eq=False)
class WhitenedPosterior(TermwisePosterior):
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
    """

    inputs: Tensor
    targets: Tensor
    noise: Tensor
    weights: Tensor
    factor: Tensor
    known: WhiteRows | None = None

    serialized_fields = ("inputs", "targets", "noise", "weights", "factor")

    @property
    def width(self) -> int:
        """The number of entries of a point.

        They are features, latent values, outputs, and those of its neighbors.
        """
        latent = sum(block.size for block in self.prior.precisions)
        near = AHEAD * neighbors_of(self.prior).num_neighbors * (self.inputs.shape[1] + 1)
        return sum(self.weights.shape) + 1 + latent + near

    def project(self, inputs: Tensor) -> BorderedProjection:
        """Return the projections of n single points, (n, d)."""
        blocks, system = self._regression_for(inputs)
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
            if blocks:
                raise NotDifferentiableError(
                    "X must not require gradients with sparse precisions and neighbors of responses, got X that does. "
                    'Use predict(X.detach()), or Vecchia(condition_on="latent").'
                )
            dense, offset, conditional = self._with_slopes(inputs, dense, offset, conditional)
        return BorderedProjection(system, sparse, dense, conditional + residual, offset)

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

    def joints(
        self,
        inputs: Tensor,
        parts: Sequence["WhitenedPosterior"],
        projected: Sequence[OnDemand],
    ) -> Sequence[Joint]:
        """Return roots of the joint covariances of sums of terms. See `root`.

        At each point, the covariance of two sums is exact for the neighbors of that point. The values of two terms
        approximated by their sum may be neighbors of each other.
        """
        block, pairs = (
            neighbors_of(self.prior),
            [(part, own()) for part, own in zip(parts[:2], projected, strict=False)],
        )
        flags = [block.flags(part.terms) for part in parts[:2]]
        if len(flags) == 2 and all(bool(own.any()) for own in flags) and not torch.equal(*flags):
            joints = _joint_roots(pairs, inputs)
        else:
            joints = [joint for pair in pairs for joint in _joint_roots([pair], inputs)]
        return [*joints, *map(Joint, parts[2:])]  # residuals of the shared terms need no projection

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance (n, n) of sums with the roots (n, r)."""
        return left @ right.mT

    def residual_covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the covariance (n, n) of the residuals of features, or 0."""
        return self._residual.residual_covariance(inputs, self._own_projections((), inputs)[0])

    def root(self, inputs: Tensor, projected: BorderedProjection) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance of points.

        The points may be neighbors of each other.

        With the new points after the rows, g_new = B_r (y - mean - Phi w - A u) + B_new g_new + e, e ~ N(0, diag d).
        With T = (I - B_new)^-1 the function is T (B_r (y - mean) + e) + (Phi_new - T B_r Phi) w + (A_new - T B_r A) u.
        The correlations are those of this distribution. The variances are those of `variance`, for which all neighbors
        are rows.
        """
        (joint,) = _joint_roots([(self, projected)], inputs)
        root: Tensor = joint.projected
        if self._residual.has_residual:
            root = torch.cat([root, covariance_root(self.residual_covariance(inputs, None))], dim=1)
        return root if joint.scales is None else root * joint.scales[:, None]

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

    def of(self, names: Sequence[str]) -> Self:
        """Return the posterior of the sum of some terms, with the same rows.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return replace(super().of(names), known=self._rows)

    # --- the terms -------------------------------------------------------------------------------

    @property
    def _has_neighbors(self) -> bool:
        return bool(neighbors_of(self.prior).flags(self.terms).any())

    @cached_property
    def _rows(self) -> WhiteRows:
        """The rows."""
        return self.known or WhiteRows(self.prior, self.inputs, self.targets, self.noise, self.prior.precisions)

    def _regression_for(self, inputs: Tensor) -> tuple[Sequence[PrecisionBlock], BorderedSystem]:
        """Return the sparse precisions for new points (n, d), and the regression of the rows.

        Refined precisions have the new points among their values.
        """
        if not self.prior.precisions:
            return (), BorderedSystem.of_weights(self.weights, self.factor)
        rows = self._rows
        if self.prior.adds_latent_points:
            rows = rows.with_blocks([block.refined(self.inputs, inputs) for block in self.prior.precisions])
        return rows.blocks, rows.system

    @property
    def _residual(self) -> Weights:
        """The weights with the residuals of the predicted terms."""
        return self._rows.weights.with_residuals_of(self.terms)

    def _own_projections(self, blocks: Sequence[PrecisionBlock], inputs: Tensor) -> tuple[Tensor, sp.csr_array]:
        """Return features (n, F) and projections of latent values (n, N) of points, 0 for other terms."""
        dense, sparse = features(self.prior, self._rows.weights, inputs), joint_projector(blocks, inputs)
        if self.terms is None:
            return dense, sparse
        flags = [np.full(block.size, float(block.name in self.terms)) for block in blocks]
        return dense * self._rows.weights.of(self.terms), sp.csr_array(
            sparse @ sp.diags_array(np.concatenate([*flags, []]))
        )


def _joint_roots(sums: Sequence[tuple[WhitenedPosterior, BorderedProjection]], inputs: Tensor) -> list[Joint]:
    """Return roots of the joint covariance of several sums of terms of one posterior, without residuals.

    Args:
        sums: The posterior, restricted to the terms of each of P sums, and the projections of single points. If there
            are several, the block of neighbors is divided into terms.
        inputs: The points, (n, d).

    Returns:
        The roots (n, P n + F + N) of each sum, and the scales of their rows.
    """
    parts, projected = zip(*sums, strict=True)
    first, count = parts[0], len(parts) * len(inputs)
    blocks, system = first._regression_for(inputs)
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
    square = torch.cat(residual)
    root = torch.cat([of_neighbors, BorderedProjection(system, sparse, dense, square).root], dim=1)
    square = square + root.square().sum(1)
    single = torch.cat([part.variance(inputs, own) for part, own in zip(parts, projected, strict=True)])
    halves = (torch.split(values, len(inputs)) for values in (root, joint_scales(single, square)))
    return [Joint(*half) for half in zip(*halves, strict=True)]


# --- Rows under nearest neighbors of observations, weights and sparse precisions -------------------------------------


class WhitenedSolver(Solver):
    """Rows under nearest neighbors with weights, kernels and sparse precisions.

    The nearest neighbors are one block. Other noise changes the whitener. `with_data` therefore shares only the order
    and the neighbors of the rows.

    Args:
        prior: The prior, with gradients.
        rows: The ordered data.
        mean: The prior mean, (k,).
        noise: The learned variance of one observation, 0-d.
        pattern: The neighbors of the rows, (n, n), or of r of them, (r, n). Then the likelihood is that of these rows
            given the others.
        order: The place of each row in the given order, (n,). If None, the rows were given in order.

    Raises:
        InvalidArgumentError: If a block cannot be combined with neighbors.

    Examples:
        >>> import torch
        >>> from rfgp.blocks import Prior, VecchiaBlock
        >>> from rfgp.rows import Block
        >>> from rfgp.solvers.whitened import WhitenedSolver
        >>> one = torch.ones((), dtype=torch.float64)
        >>> rows = Block(torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[1.0], [1.0]]).double())
        >>> prior = Prior(neighbors=VecchiaBlock.stationary("matern32", one, one, num_neighbors=1, seed=0))
        >>> solver = WhitenedSolver.of(prior, rows, 0 * one.reshape(1), one)
        >>> [round(value, 3) for value in solver.fitted[:, 0].tolist()]
        [0.597, 0.597]
    """

    def __init__(
        self,
        prior: Prior,
        rows: Block,
        mean: Tensor,
        noise: Tensor,
        pattern: EntryPattern,
        order: Tensor | None = None,
    ) -> None:
        check_sum(prior)
        self._prior, self._pattern = prior, pattern
        phi = features(prior, all_weights(prior, rows.inputs), rows.inputs)
        super().__init__(rows, mean, noise.double(), features=(prior.dense, phi), order=order)
        blocks = [block.refined(rows.inputs) for block in prior.precisions]
        data = rows.inputs, self._residual, self._noise, blocks, pattern, rows.output_weights
        self._white = WhiteRows(prior, *data)
        self._white.phi = phi
        last = torch.from_numpy(pattern.indices[pattern.indptr[1:] - 1])
        self._other_terms = self._rows.take(last).replicate_log_prob(noise.double())

    @classmethod
    def of(cls, prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver of rows in the given order.

        The rows are ordered at random. Their neighbors are the nearest earlier ones.

        Args:
            prior: The prior, with gradients.
            rows: The data, in the given order.
            mean: The prior mean, (k,).
            noise: The learned variance of one observation, 0-d.
        """
        block = neighbors_of(prior)
        order = block.order(len(rows))
        ordered = rows.take(order)
        return cls(prior, ordered, mean, noise, predecessors_in_blocks(block, ordered.inputs), order)

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        Args:
            rows: The same inputs with targets (n, k), noise and weights, in the given order.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        ordered = rows if self._order is None else rows.take(self._order)
        return type(self)(self._prior, ordered, mean, noise, self._pattern, self._order)

    @property
    def system(self) -> BorderedSystem:
        """The regression of the whitened rows."""
        return self._white.system

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        white = self._white
        if not white.blocks and not white.phi.shape[1] and self._prior.wants_gradients:
            rows, process = self._rows, neighbors_of(self._prior).process(self._rows.inputs, white.phi)
            if isinstance(process, StationaryProcess):
                value = process.log_prob(self._noise, self._residual, rows.output_weights, self._pattern)
                return value + self._other_terms
        of_fields = [tensor.double() for block in white.blocks for tensor in (block.values, block.variance)]
        value = with_gradient(self._value, white.projector.values, *white.whitened, *of_fields)
        return value + self._rows.output_weights.sum() * white.whitener.log_determinant + self._other_terms

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        return self.system.log_prob(), self._gradients

    def _gradients(self) -> list[Tensor | None]:
        system = self.system
        in_projector = system.in_projector() if system.elimination.is_sparse else None
        return [in_projector, system.in_border(), system.in_residual(), *system.in_fields()]

    @cached_property
    def solved(self) -> Tensor:
        """The coefficients C^-1 (y - mean) of ordered rows, (n, k)."""
        return self._white.whitener.back(self.system.residual_of_mean)

    @cached_property
    def precisions(self) -> Tensor:
        """The diagonal of C^-1 = V^T (I - B S^-1 B^T - Psi C^-1 Psi^T) V, (n,), of ordered rows."""
        elimination, whitener = self.system.elimination, self._white.whitener
        explained = elimination.half_border(whitener.back(elimination.reduced)).square().sum(1)
        if elimination.is_sparse:
            projector = sp.csr_array(whitener.matrix.T @ elimination.prior.matrix)
            explained += torch.from_numpy(solved_forms(elimination.factor, projector))
        return whitener.precisions - explained

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        with torch.no_grad():
            return (
                self.system.elimination.log_determinant
                - 2 * self._white.whitener.log_determinant
                - self._noise.log().sum()
            )

    def posterior(self) -> WhitenedPosterior:
        """Return the posterior, which stores the rows and the posterior of the weights."""
        with torch.no_grad():
            system, prior = self.system, self._prior.detached()
            rows = self._rows.inputs, self._residual, self._noise
            known = WhiteRows(prior, *rows, prior.precisions)
            known.system = system
            return WhitenedPosterior(prior, *rows, system.weights, system.elimination.border_factor, known)


# --- Very many rows under nearest neighbors and weights --------------------------------------------------------------


def is_large(prior: Prior, count: int) -> bool:
    """Return whether the features of all rows have too many entries to be stored.

    They are always stored with gradients, kernels or sparse precisions.

    Args:
        prior: The prior with neighbors.
        count: The number of rows.
    """
    if prior.wants_gradients or prior.precisions or prior.kernels:
        return False
    return prior.num_features * count > limits().max_whitened


def whitened_inference(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> Inference:
    """Return the inference of rows with nearest neighbors of observations.

    It is in blocks if there are many rows.

    Args:
        prior: The prior.
        rows: The data, in the given order.
        mean: The prior mean, (k,).
        noise: The learned variance of one observation, 0-d.
    """
    if is_large(prior, len(rows)):
        return BlockedInference(prior, rows, mean, noise)
    return WhitenedSolver.of(prior, rows, mean, noise)


class BlockedInference(Inference):
    """Inference of very many rows under nearest neighbors and weights.

    There are no gradients.

    Args:
        prior: The prior.
        rows: The data, in the given order.
        mean: The prior mean, (k,).
        noise: The learned variance of one observation, 0-d.
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._arguments = prior.detached(), rows, mean, noise
        self._prior, self._mean, self._noise = prior.detached(), mean, noise.double()
        block = neighbors_of(prior)
        self._rows = rows.take(block.order(len(rows)))
        self._pattern = predecessors_in_blocks(block, self._rows.inputs)
        self._noise_diag = torch.zeros(len(rows), dtype=torch.float64)
        with torch.no_grad():
            total, self._others = self._sums()
            F, one = prior.num_features, torch.ones((), dtype=torch.float64)
            squares = total[F:, F:].diagonal()
            self._solution = solve(Statistics(total[:F, :F], total[:F, F:], squares.sum(), one, one), one, one)
            self._squares = squares - (total[:F, F:] * self._solution.weights).sum(0)

    def _sums(self) -> tuple[Tensor, Tensor]:
        """Return the Gram matrix of [P, V r], (F + k, F + k), and the other terms of the log marginal likelihood.

        They are summed over blocks of near rows.
        """
        F, k, output_weights = self._prior.num_features, self._rows.num_outputs, self._rows.output_weights
        total, others = torch.zeros(F + k, F + k, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        last = self._pattern.indices[self._pattern.indptr[1:] - 1]
        positions = neighbors_of(self._prior).scaled(self._rows.inputs)[last]
        for block in spatial_blocks(positions, max(1, limits().whitened_block // (F + k))):
            pattern, columns = used(self._pattern.take(np.sort(block))[0])
            rows = torch.from_numpy(columns)
            near = self._rows.take(rows)
            phi = features(self._prior, self._prior.dense, near.inputs)
            near, _, _ = with_feature_residuals(self._prior.dense, near, self._noise, phi)
            self._noise_diag[rows] = near.noise_diag(self._noise).expand(len(rows))
            whitener = Whitener.of(self._prior, near.inputs, self._noise_diag[rows], phi, pattern)
            both = whitener.times(torch.cat([phi, near.targets - self._mean], dim=1))
            total += both.mT @ both
            repeated = near.take(whitener.row_indices).replicate_log_prob(self._noise)
            others += output_weights.sum() * whitener.log_determinant + repeated
        return total, others

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, without gradients."""
        log_determinant = 2 * self._solution.factor.diagonal().log().sum()
        others, output_weights = self._others, self._rows.output_weights
        return others + log_density(self._squares, log_determinant, output_weights, len(self._rows))

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        The features of all rows are stored.
        """
        return WhitenedSolver.of(*self._arguments).leave_one_out()

    def posterior(self) -> WhitenedPosterior:
        """Return the posterior, which stores the rows and the posterior of the weights."""
        rows = self._rows.inputs, self._rows.targets - self._mean, self._noise_diag
        return WhitenedPosterior(self._prior, *rows, self._solution.weights, self._solution.factor)
