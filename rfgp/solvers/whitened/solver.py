"""Rows under nearest neighbors of observations, weights and sparse precisions.

f = Phi w + A u + g, y = mean + f + e. g + e has the precision V^T V with a sparse V (`rfgp.local.factor`). The noise is
within the conditionals (Vecchia 1988; Katzfuss and Guinness 2021). Whitened rows are a linear model of noise 1
(`rfgp.solvers.bordered.system`) with P = V Phi, B = V A and the targets V (y - mean):

    log N(y) = log|V| + log N(V (y - mean); 0, I + P P^T + B Q^-1 B^T).

Its gradient in B gives that in V on its pattern, d/dV_ij = sum_k (d/dB)_ik A_jk. Without sparse precisions, only
C = I + P^T P is factorized.
"""

from functools import cached_property
from typing import Self

import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import Prior, predecessors_in_blocks
from rfgp.blocks.precision import solved_forms
from rfgp.rows import Block
from rfgp.solvers.bordered.projections import all_weights, joint_projector, with_feature_residuals
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.kriging import check_sum, features, neighbors_of
from rfgp.solvers.role import Inference
from rfgp.solvers.whitened.posterior import WhitenedPosterior
from rfgp.solvers.whitened.whitening import Whitener, WhiteRows, white_system
from rfgp.sparse import EntryPattern, SparseValues


class WhitenedSolver(Inference):
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
        >>> prior = Prior(neighbors=VecchiaBlock("matern32", one, one, num_neighbors=1, seed=0))
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
        self._prior, self._rows, self._mean, self._pattern, self._order = prior, rows, mean, pattern, order
        self._blocks = [block.refined(rows.inputs) for block in prior.precisions]
        self._phi = features(prior, all_weights(prior, rows.inputs), rows.inputs)
        rows, _, self._missing = with_feature_residuals(prior.dense, rows, noise.double(), self._phi)
        self._noise = rows.noise_diag(noise.double()).expand(len(rows))
        last = torch.from_numpy(pattern.indices[pattern.indptr[1:] - 1])
        self._repeated = rows.take(last).replicate_log_prob(noise.double())

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

    @cached_property
    def _whitener(self) -> Whitener:
        return Whitener.of(self._prior, self._rows.inputs, self._noise, self._phi, self._pattern)

    @cached_property
    def _white(self) -> tuple[Tensor, Tensor]:
        """The features (r, F) and the targets (r, k), whitened."""
        both = self._whitener.times(torch.cat([self._phi, self._rows.targets - self._mean], dim=1))
        return both[:, : self._phi.shape[1]], both[:, self._phi.shape[1] :]

    @cached_property
    def _projector(self) -> SparseValues:
        """The whitened projections of sparse precisions, (r, N)."""
        return self._whitener.times_sparse(joint_projector(self._blocks, self._rows.inputs))

    @cached_property
    def system(self) -> BorderedSystem:
        """The regression of the whitened rows."""
        return white_system(self._blocks, self._projector.matrix(), *self._white, self._rows.output_weights)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        if not self._blocks and not self._phi.shape[1] and self._prior.wants_gradients:
            residual, output_weights = self._rows.targets - self._mean, self._rows.output_weights
            block, x = neighbors_of(self._prior), self._rows.inputs
            value = block.log_prob(x, self._noise, residual, output_weights, self._pattern)
            if value is not None:
                return value + self._repeated
        of_fields = [tensor.double() for block in self._blocks for tensor in (block.values, block.variance)]
        value = with_gradient(self._value, self._projector.values, *self._white, *of_fields)
        return value + self._rows.output_weights.sum() * self._whitener.log_determinant + self._repeated

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        return self.system.log_prob(), self._gradients

    def _gradients(self) -> list[Tensor | None]:
        system = self.system
        in_projector = system.in_projector() if system.elimination.is_sparse else None
        return [in_projector, system.in_border(), system.in_residual(), *system.in_fields()]

    @cached_property
    def _precisions(self) -> Tensor:
        """The diagonal of C^-1 = V^T (I - B S^-1 B^T - Psi C^-1 Psi^T) V, (n,), of ordered rows."""
        elimination, whitener = self.system.elimination, self._whitener
        explained = elimination.half_border(whitener.back(elimination.reduced)).square().sum(1)
        if elimination.is_sparse:
            projector = sp.csr_array(whitener.matrix.T @ elimination.prior.matrix)
            explained += torch.from_numpy(solved_forms(elimination.factor, projector))
        return whitener.precisions - explained

    def _ordered_coefficients(self) -> Tensor:
        """Return the coefficients (n, k) of ordered rows."""
        return self._whitener.back(self.system.residual_of_mean)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        The rows are in the given order.
        """
        with torch.no_grad():
            variance = 1 / self._precisions
            mean = self._rows.targets - self._ordered_coefficients() * variance[:, None]
            return self._in_given_order(mean), self._in_given_order(variance + self._missing)

    @property
    def coefficients(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return self._in_given_order(self._ordered_coefficients())

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, y - mean - D C^-1 (y - mean), (n, k)."""
        with torch.no_grad():
            residual = self._noise[:, None] * self._ordered_coefficients()
            return self._in_given_order(self._rows.targets - self._mean - residual)

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances D - D (C^-1) D of f at the rows, (n,)."""
        with torch.no_grad():
            return self._in_given_order(self._noise * (1 - self._noise * self._precisions))

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        with torch.no_grad():
            return (
                self.system.elimination.log_determinant - 2 * self._whitener.log_determinant - self._noise.log().sum()
            )

    def posterior(self) -> WhitenedPosterior:
        """Return the posterior, which stores the rows and the posterior of the weights."""
        with torch.no_grad():
            system, prior = self.system, self._prior.detached()
            rows = self._rows.inputs, self._rows.targets - self._mean, self._noise
            known = WhiteRows(prior, *rows, system if self._blocks else None)
            return WhitenedPosterior(prior, *rows, system.weights, system.elimination.border_factor, known)

    def _in_given_order(self, values: Tensor) -> Tensor:
        """Return values (n, ...) of ordered rows in the given order."""
        return values if self._order is None else values[torch.argsort(self._order)]
