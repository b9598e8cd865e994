"""The solver of sparse precisions and dense weights, for rows in memory."""

from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import PrecisionBlock, Prior
from rfgp.rows import Block
from rfgp.solvers.bordered.points import PointProjector
from rfgp.solvers.bordered.posterior import BorderedPosterior
from rfgp.solvers.bordered.projections import (
    all_weights,
    bordered_system,
    has_residuals,
    joint_projector,
    sparse_blocks,
    with_feature_residuals,
)
from rfgp.solvers.bordered.system import BorderedSystem
from rfgp.solvers.lowrank import FactorCovariance, LowRankPosterior
from rfgp.solvers.role import Inference, Posterior


class BorderedSolver(Inference):
    """Rows under a sum of sparse precisions and dense weights, exactly.

    Blocks with a covariance function become weights at the rows (`KernelBlock.as_weights`). Nearest neighbors become
    latent values (`latent_precision`).

    Args:
        prior: Precisions, weights, kernels and neighbors, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
        like: A solver of the same prior and inputs whose algebra is shared. If None, it is computed.

    Examples:
        >>> from rfgp.blocks import WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> rows = Block(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double())
        >>> solver = BorderedSolver(prior, rows, torch.zeros(1).double(), torch.tensor(1.0).double())
        >>> solver.fitted.round(decimals=4).tolist()  # x w with w = x^T y / (1 + x^T x) = 5 / 6
        [[0.8333], [1.6667]]
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor, like: "Self | None" = None) -> None:
        self._prior, self._rows, self._like = prior, rows, like
        self._blocks: list[PrecisionBlock] = []
        if like is None:
            self._blocks = [block.refined(rows.inputs) for block in sparse_blocks(prior, rows.inputs)]
            self._border: Tensor = all_weights(prior, rows.inputs).scaled(rows.inputs).double()
        else:
            self._blocks, self._border = like._blocks, like._border
        rows, self._bound, self._missing = with_feature_residuals(prior.dense, rows, noise, self._border)
        self._noise, self._residual = rows.noise_diag(noise).expand(len(rows)), rows.targets - mean
        self._repeated = rows.replicate_log_prob(noise)

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        For the same noise the factors are reused.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        return type(self)(self._prior, rows, mean, noise, self)

    @cached_property
    def system(self) -> BorderedSystem:
        """The linear algebra of the rows."""
        numbers = self._noise.detach(), self._residual.detach(), self._rows.output_weights
        if self._like is not None:
            like, self._like = self._like, None  # a chain of solvers would keep the algebra of all of them
            return like.system.with_data(*numbers)
        data = joint_projector(self._blocks, self._rows.inputs), self._border, *numbers
        return bordered_system(self._blocks, *data, combines_non_neighbors=has_residuals(self._blocks))

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        of_fields = [tensor.double() for block in self._blocks for tensor in (block.values, block.variance)]
        inputs = (self._border, self._noise, self._residual, *of_fields)
        return with_gradient(self._value, *inputs) + self._repeated + self._bound

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        return self.system.log_prob(), self._gradients

    def _gradients(self) -> list[Tensor]:
        system = self.system
        return [system.in_border(), system.in_noise(), system.in_residual(), *system.in_fields()]

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        The precision of row i is (C^-1)_ii = (D_i - v_i) / D_i^2, with the posterior variance v_i of f at the row.
        """
        noise = self.system.noise
        variance = noise.square() / (noise - self.system.elimination.row_variances)
        mean = self._rows.targets - self.system.residual_of_mean * (variance / noise)[:, None]
        return mean, variance + self._missing.detach()

    @property
    def coefficients(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return self.system.residual_of_mean / self.system.noise[:, None]

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, (n, k)."""
        return self.system.fitted

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,)."""
        return self.system.elimination.row_variances

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        return self.system.noise.new_tensor(self.system.elimination.log_determinant)

    @property
    def effective_dof_fraction(self) -> float | None:
        """The effective degrees of freedom of the F weights over F, or None without any."""
        factor = self.system.elimination.border_factor
        return 1 - float(torch.cholesky_inverse(factor).diagonal().mean()) if len(factor) else None

    def posterior(self) -> Posterior:
        """Return the posterior for predictions, without gradients.

        If the prior has dense weights only, it is a `LowRankPosterior`, which does not store the rows. Otherwise it is
        a `BorderedPosterior` with the rows and their factorization.
        """
        if self._prior.has_weights_only:
            covariance = FactorCovariance(self.system.elimination.border_factor)
            return LowRankPosterior(self._prior.detached(), self.system.weights, covariance)
        prior, rows, system = self._prior.detached(), self._rows.inputs, self.system
        known = PointProjector(system, all_weights(prior, rows), [block.detached() for block in self._blocks])
        return BorderedPosterior(prior, rows, system.noise, system.residual, known)
