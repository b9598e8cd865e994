"""Very many rows under nearest neighbors and weights.

The random order of a good nearest-neighbor process scatters the neighbors of a row over the order, but they are near it
in space. Rows are therefore whitened in blocks of near rows with mostly common neighbors, so that few features of other
rows are computed. Of P = V Phi only P^T P and P^T V (y - mean) are stored. There are no gradients.
"""

import math

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import Prior, predecessors_in_blocks
from rfgp.limits import limits
from rfgp.linalg import cholesky
from rfgp.local import spatial_blocks, used
from rfgp.rows import Block
from rfgp.solvers.bordered.projections import with_feature_residuals
from rfgp.solvers.kriging import features, neighbors_of
from rfgp.solvers.role import Inference
from rfgp.solvers.whitened.posterior import WhitenedPosterior
from rfgp.solvers.whitened.solver import WhitenedSolver
from rfgp.solvers.whitened.whitening import Whitener


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


def whitened(prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> Inference:
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
            squares, sums, self._square, self._others = self._sums()
            self._factor = cholesky(torch.eye(len(squares)).double() + squares, "The matrix I + P^T P of features")
            self._weights = torch.cholesky_solve(sums, self._factor)
            self._explained = ((sums * self._weights).sum(0)) @ rows.output_weights

    def _sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return P^T P (F, F), P^T V r (F, k), |V r|^2, and the other terms of the log marginal likelihood.

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
        return total[:F, :F], total[:F, F:], total[F:, F:].diagonal() @ output_weights, others

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, without gradients."""
        log_determinant = 2 * self._factor.diagonal().log().sum()
        constants = self._rows.output_weights.sum() * (log_determinant + len(self._rows) * math.log(2 * math.pi))
        return self._others - 0.5 * (self._square - self._explained + constants)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        The features of all rows are stored.
        """
        return WhitenedSolver.of(*self._arguments).leave_one_out()

    def posterior(self) -> WhitenedPosterior:
        """Return the posterior, which stores the rows and the posterior of the weights."""
        centered = self._rows.targets - self._mean
        return WhitenedPosterior(
            self._prior, self._rows.inputs, centered, self._noise_diag, self._weights, self._factor
        )
