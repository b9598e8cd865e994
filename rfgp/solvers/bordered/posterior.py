"""The posterior of sparse latent values and dense weights, and what points read of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Prior, Weights
from rfgp.blocks.precision import COLUMNS, products
from rfgp.errors import InvalidArgumentError
from rfgp.solvers.bordered.operator import SparseOperator
from rfgp.solvers.bordered.reads import (
    Reads,
    all_weights,
    bordered_system,
    joined_reads,
    mixes,
    predicted_reads,
    reads_single_points,
)
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import check_joint, known_terms, make_contiguous


@dataclass(frozen=True, eq=False)
class BorderedPosterior(Posterior):
    """The rows, from which the factors are computed again after loading.

    Attributes:
        prior: Precisions, weights and kernels.
        inputs: The inputs of the rows, positions (n,) or (n, d).
        noise_diag: D (n,).
        targets: y - mean, (n, k).
        known: The numbers that were computed for the rows. If None, they are computed when they are needed.
        terms: The names of the terms whose sum is predicted. If None, all.
    """

    prior: Prior
    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    known: BorderedSystem | None = None
    terms: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        make_contiguous(self, "inputs", "noise_diag", "targets")

    @cached_property
    def system(self) -> BorderedSystem:
        """The latent values and weights given the rows."""
        return self.known or self._given(self._blocks)

    @cached_property
    def _blocks(self) -> list[PrecisionBlock]:
        """The sparse precisions, with the rows among their values."""
        return [block.refined(self.inputs) for block in self.prior.precisions]

    @cached_property
    def weights(self) -> Weights:
        """The dense weights, those of kernels at the rows included."""
        return all_weights(self.prior, self.inputs)

    @property
    def width(self) -> int:
        """The number of entries that a point takes: its features, and what it reads of the latent values."""
        return self.weights.num_features + (COLUMNS if reads_single_points(self.prior.precisions) else 1)

    def project(self, inputs: Tensor) -> Reads:
        """Return the reads of n inputs, positions (n,) or rows (n, d): each by itself if all blocks allow it.

        Variances are then right for each point, and `covariance` reads the points anew among the latent values.
        """
        if not reads_single_points(self.prior.precisions):
            return self._project_jointly(inputs)
        read = [block.marginal_reads(inputs) for block in self._blocks]
        return predicted_reads(self.system, self.weights, self._blocks, inputs, read, self.terms)

    def _project_jointly(self, inputs: Tensor) -> Reads:
        """Return the reads of n inputs, positions (n,) or rows (n, d), which are then among the latent values."""
        if self.prior.moves:
            blocks = [block.refined(self.inputs, inputs) for block in self.prior.precisions]
            system = self._given(blocks)
        else:
            blocks, system = self._blocks, self.system
        read = [(block.projector(inputs), block.residual_variance(inputs)) for block in blocks]
        return predicted_reads(system, self.weights, blocks, inputs, read, self.terms)

    def mean(self, projected: Reads) -> Tensor:
        """Return the mean (n, k)."""
        system = projected.system
        mean = projected.dense @ system.weights
        return (
            mean + torch.from_numpy(np.asarray(projected.sparse @ system.values.numpy()))
            if system.elimination.is_sparse
            else mean
        )

    def variance(self, inputs: Tensor, projected: Reads) -> Tensor:
        """Return the marginal variances (n,)."""
        known = projected.system.elimination.variances(projected.sparse, projected.reduced)
        known = known + self._residual.residual_variance(inputs, projected.dense) + projected.left
        return known.clamp_min(0)

    def covariance(self, inputs: Tensor, projected: Reads) -> Tensor:
        """Return the covariance (n, n), of at most 2,000 points."""
        check_joint(len(inputs), "points")
        joint = self._project_jointly(inputs) if self.prior.moves else projected
        found = self._between(joint, joint)
        residual = self._residual.residual_covariance(inputs, joint.dense) + joint.left.diag()
        return (found + found.mT) / 2 + residual

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves, for sparse blocks alone."""
        if self.weights.blocks or mixes(self.prior.precisions):
            return None
        reads = self._project_jointly(inputs)
        return SparseOperator(reads.system, reads.sparse)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior: a map of inputs of n points to (count, n, k).

        u given w has the mean of u less Y (w - E w), and the precision S.

        Raises:
            InvalidArgumentError: a block has values at some places only, or a residual.
        """
        if self.prior.moves or self.weights.has_residual or mixes(self.prior.precisions):
            raise InvalidArgumentError(
                "This process has no functions to draw: it is known at the positions that are asked for. Draw from "
                "predict(X).sample(...)."
            )
        system, k = self.system, self.targets.shape[1]
        sizes = system.elimination.prior.matrix.shape[1], len(system.weights)
        z, e = (torch.randn(size, count * k, generator=generator, dtype=torch.float64) for size in sizes)
        apart = torch.linalg.solve_triangular(system.elimination.border_factor.mT, e, upper=True)
        u = system.values.repeat(1, count) - system.elimination.coupling @ apart
        w = system.weights.repeat(1, count) + apart
        if system.elimination.is_sparse:
            u = u + torch.from_numpy(system.elimination.factor.sample(z.numpy()))

        def functions(inputs: Tensor) -> Tensor:
            reads = self.project(inputs)
            values = reads.dense @ w + torch.from_numpy(np.asarray(reads.sparse @ u.numpy()))
            out: Tensor = values.reshape(len(inputs), count, k).movedim(0, 1)
            return out

        return functions

    def tensors(self) -> dict[str, Tensor]:
        """Return the rows: inputs (n,) or (n, d), noise_diag (n,) and targets (n, k)."""
        return {name: getattr(self, name) for name in ("inputs", "noise_diag", "targets")}

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag and targets, for n rows and k outputs."""
        return {"noise_diag": (n,), "targets": (n, k)}

    def of(self, names: Sequence[str]) -> "BorderedPosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: there is no such term.
        """
        return replace(self, known=self.system, terms=known_terms(self.prior, names))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between the sums of some terms and of others, at n inputs.

        Raises:
            InvalidArgumentError: there is no such term.
        """
        check_joint(len(inputs), "points")
        left, right = self.of(first)._project_jointly(inputs), self.of(second)._project_jointly(inputs)
        shared = self.of([name for name in first if name in second])
        both, residual = shared._project_jointly(inputs), self.weights.with_residuals_of(shared.terms)
        return self._between(left, right) + residual.residual_covariance(inputs, both.dense) + both.left.diag()

    @property
    def _residual(self) -> Weights:
        """The weights with the residuals that are part of what is predicted."""
        return self.weights.with_residuals_of(self.terms)

    def _between(self, left: Reads, right: Reads) -> Tensor:
        """Return the covariance (a, b) of what some points read and others do."""
        known = left.system.elimination
        out = known.half_border(left.reduced) @ known.half_border(right.reduced).mT
        if known.is_sparse:
            out = out + torch.from_numpy(products(known.factor, left.sparse, right.sparse))
        return out

    def _given(self, blocks: Sequence[PrecisionBlock]) -> BorderedSystem:
        """Return the numbers of the rows, for precisions that have them among their values."""
        border = self.weights.scaled(self.inputs).double()
        reads = joined_reads(blocks, self.inputs)
        return bordered_system(blocks, reads, border, self.noise_diag.double(), self.targets, mixes=mixes(blocks))
