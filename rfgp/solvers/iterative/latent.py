"""Nearest neighbors of latent values, by conjugate gradients."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.local import used
from rfgp.rows import Block
from rfgp.solvers.iterative.posterior import IterativePosterior
from rfgp.solvers.iterative.solver import IterativeSolver
from rfgp.solvers.kriging import check_sum, explained_features, neighbors_of
from rfgp.solvers.role import Inference
from rfgp.solvers.whitened import WhitenedSolver

MIN_NOISE_RATIO = 10.0
"""The minimum ratio of the noise to the variance of rows given their neighbors, for latent values."""
MIN_VARIANCE_RATIO = 1e-3
"""The minimum ratio of the variance of the block to the noise, for latent values."""
MIN_NOISE = 1e-6
"""The minimum ratio of the noise to the variance of the block. Below it the jitter of the root matters."""
MAX_ROWS = 2**18
"""The maximum number of rows conditioned on latent values if `condition_on` is "auto"."""
FEW_ITERATIONS = 50
"""The maximum number of iterations of conjugate gradients if `condition_on` is "auto"."""
_SAMPLE_ROWS = 1000
"""The number of rows from which the signal-to-noise ratio is estimated."""


def prefers_latent(prior: Prior, rows: Block, noise: Tensor) -> bool:
    """Return whether to condition on latent values, by the signal-to-noise ratio.

    Args:
        prior: The prior with neighbors.
        rows: The data.
        noise: The variance of one observation, 0-d.
    """
    prior, count = prior.detached(), len(rows)
    block = neighbors_of(prior)
    typical, variance = (
        float(rows.noise_diag(noise.detach()).median()),
        float(block.diagonal(rows.inputs[:_SAMPLE_ROWS]).mean()),
    )
    if count > MAX_ROWS or not MIN_VARIANCE_RATIO * typical <= variance <= typical / MIN_NOISE:
        return False
    x = rows.inputs[block.order(count)]
    sample = torch.linspace(0, count - 1, min(count, _SAMPLE_ROWS)).long()
    pattern, columns = used(block.predecessors(x, sample))
    near = x[torch.from_numpy(columns)]
    deviations = block.latent_root(near, pattern, explained_features(prior, near)).deviations
    return typical > MIN_NOISE_RATIO * float(np.median(deviations) ** 2)


class LatentSolver(Inference):
    """Rows in the given order under latent nearest neighbors and other blocks.

    The other blocks are weights and sparse precisions.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.
        ordered: The solver of the ordered rows. If None, it is created.

    Raises:
        InvalidArgumentError: If a block cannot be combined with neighbors.
    """

    def __init__(
        self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor, ordered: IterativeSolver | None = None
    ) -> None:
        check_sum(prior)
        self._arguments, self._order = (prior, rows, mean, noise), neighbors_of(prior).order(len(rows))
        if ordered is None:
            ordered = IterativeSolver(prior.detached(), rows.take(self._order), mean.detach(), noise.detach())
        self._ordered = ordered

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        It is solved to 1e-11.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        ordered = self._ordered.with_data(rows.take(self._order), mean.detach(), noise.detach())
        return type(self)(self._arguments[0], rows, mean, noise, ordered)

    def converges_quickly(self) -> bool:
        """Return whether conjugate gradients converge in few iterations."""
        return self._ordered.converges(FEW_ITERATIONS)

    def log_marginal_likelihood(self) -> Tensor:
        """Return an estimate of the log marginal likelihood, 0-d.

        The gradient is that of neighbors conditioned on observations. See `likelihood_error`.
        """
        with torch.no_grad():
            value = self._ordered.log_marginal_likelihood()
        if not self._arguments[0].wants_gradients:
            return value
        likelihood = self._by_observations.log_marginal_likelihood()
        return value + (likelihood - likelihood.detach())

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood."""
        return self._ordered.likelihood_error

    def posterior(self) -> IterativePosterior:
        """Return the posterior of the ordered rows, with draws for the variances."""
        with torch.no_grad():
            return self._ordered.posterior()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        They are conditioned on observations. Latent values would need more precise variances at rows than draws have.
        """
        return self._by_observations.leave_one_out()

    @property
    def coefficients(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return self._in_given_order(self._ordered.coefficients)

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, (n, k)."""
        return self._in_given_order(self._ordered.fitted)

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,).

        For more than 256 rows they are estimates from draws.
        """
        return self._in_given_order(self._ordered.latent_variances)

    @property
    def log_determinant(self) -> Tensor:
        """An estimate of the log determinant of I + K D^-1, 0-d."""
        return self._ordered.log_determinant

    @property
    def _by_observations(self) -> WhitenedSolver:
        return WhitenedSolver.of(*self._arguments)

    def _in_given_order(self, values: Tensor) -> Tensor:
        """Return values (n, ...) of ordered rows in the given order."""
        return values[torch.argsort(self._order)]
