"""The posterior of sparse latent values and dense weights, and what points read of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.blocks import PrecisionBlock, Prior, Weights
from rfgp.blocks.precision import COLUMNS
from rfgp.errors import InvalidArgumentError
from rfgp.solvers.bordered.operator import SparseOperator
from rfgp.solvers.bordered.points import LEAST_JOINT, MOST_NUMBERS, Reads, between, left_alone, read_jointly
from rfgp.solvers.bordered.reads import all_weights, bordered_system, joined_reads, mixes, sparse_blocks
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import MOST_JOINT, check_joint, known_terms, make_contiguous


@dataclass(frozen=True, eq=False)
class BorderedPosterior(Posterior):
    """The rows, from which the factors are computed again after loading.

    Attributes:
        prior: Precisions, weights, kernels and neighbours.
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
        return self.known or self._given([block.refined(self.inputs) for block in self._precisions])

    @cached_property
    def weights(self) -> Weights:
        """The dense weights, those of kernels at the rows included."""
        return all_weights(self.prior, self.inputs)

    @property
    def width(self) -> int:
        """The number of entries that a point takes: its features, and what it reads of the latent values."""
        return self.weights.num_features + (1 if self.prior.moves else COLUMNS)

    def project(self, inputs: Tensor) -> Reads:
        """Return what n inputs, positions (n,) or rows (n, d), read."""
        blocks, system = self._precisions, self.system if not self.prior.moves else None
        if system is None:
            blocks = tuple(block.refined(self.inputs, inputs) for block in blocks)
            system = self._given(blocks)
        dense = self.weights.scaled(inputs).double()
        sparse = joined_reads(blocks, inputs)
        if self.terms is not None:
            dense = dense * self.weights.of(self.terms)
            sizes = [block.size for block in blocks]
            kept = np.repeat([float(block.name in self.terms) for block in blocks], sizes)
            sparse = sp.csr_array(sparse @ sp.diags_array(kept))
        return Reads(system, sparse, dense)

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
        known = known + self._residual.residual_variance(inputs, projected.dense)
        known = known + left_alone(self._precisions, self.terms, inputs)
        return known.clamp_min(0)

    def covariance(self, inputs: Tensor, projected: Reads) -> Tensor:
        """Return the covariance (n, n), of at most 2,000 points.

        If points read neighbours, each may be another's neighbour. Their correlations are those of that joint
        distribution, and their variances those of one point each.
        """
        reads, left, scales = self._joint(inputs, projected)
        found = between(reads, reads)
        residual = self._residual.residual_covariance(inputs, projected.dense) + left
        return ((found + found.mT) / 2 + residual) * scales[:, None] * scales

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves, for sparse blocks alone."""
        if self.weights.blocks or mixes(self._precisions):
            return None
        reads = self.project(inputs)
        return SparseOperator(reads.system, reads.sparse)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior: a map of inputs of n points to (count, n, k).

        u given w has the mean of u less Y (w - E w), and the precision S.

        Raises:
            InvalidArgumentError: a block has values at some places only, or a residual.
        """
        if self.prior.moves or self.weights.has_residual or mixes(self._precisions):
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
            InvalidArgumentError: there is no such term, or none is named.
        """
        return self._of(known_terms(self.prior, names))

    def _of(self, names: Sequence[str]) -> "BorderedPosterior":
        """Return the posterior of the sum of some terms, which may be none."""
        return replace(self, known=self.system, terms=tuple(names))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between the sums of some terms and of others, at n inputs.

        Raises:
            InvalidArgumentError: there is no such term, or none is named.
        """
        shared = self._of([name for name in first if name in second])
        parts = (one._joint(inputs, one.project(inputs)) for one in (shared, self.of(first), self.of(second)))
        (both, own, _), (left, _, rows), (right, _, columns) = parts
        own = own + shared._residual.residual_covariance(inputs, both.dense)
        return (between(left, right) + own) * rows[:, None] * columns

    @property
    def _residual(self) -> Weights:
        """The weights with the residuals that are part of what is predicted."""
        return self.weights.with_residuals_of(self.terms)

    @cached_property
    def _precisions(self) -> tuple[PrecisionBlock, ...]:
        """The sparse blocks, neighbours as latent values among them."""
        return sparse_blocks(self.prior, self.inputs)

    def _joint(self, inputs: Tensor, projected: Reads) -> tuple[Reads, Tensor, Tensor]:
        """Return what points read if they may be each other's neighbours.

        Returns:
            The reads, the covariance (n, n) that those of the sparse terms leave, and the ratios (n,) of the deviations
            of points each by itself and in this joint distribution.
        """
        blocks = self._precisions
        if not mixes(blocks):
            return projected, left_alone(blocks, self.terms, inputs).diag(), projected.dense.new_ones(len(inputs))
        check_joint(len(inputs), "points", most=min(MOST_JOINT, max(LEAST_JOINT, MOST_NUMBERS // len(self.inputs))))
        reads, left = read_jointly(blocks, self.terms, inputs, projected)
        variance = reads.system.elimination.variances(reads.sparse, reads.reduced) + left.diagonal()
        variance = variance + self._residual.residual_variance(inputs, projected.dense)
        single = self.variance(inputs, projected)
        return reads, left, (single / variance.clamp_min(torch.finfo(single.dtype).tiny)).sqrt()

    def _given(self, blocks: Sequence[PrecisionBlock]) -> BorderedSystem:
        """Return the numbers of the rows, for precisions that have them among their values."""
        border = self.weights.scaled(self.inputs).double()
        reads = joined_reads(blocks, self.inputs)
        return bordered_system(blocks, reads, border, self.noise_diag.double(), self.targets, mixes=mixes(blocks))
