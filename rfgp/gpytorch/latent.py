"""Latent functions of nodes with a variational posterior, and the softmax likelihood without global randomness."""

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.distributions import Categorical

from rfgp import random

_EDGE = 1e-9
"""How near to 0 and 1 uniform numbers may come before they are turned into normal ones."""


class LatentFunctions(gpytorch.models.ApproximateGP):
    """One latent function, or several that share one kernel, with Gaussian posteriors at fixed inducing nodes.

    The posterior is whitened: u = mean + L v, K_ZZ = L L^T, q(v) = N(m, S), which starts at the prior N(0, I).

    Args:
        inducing: Positions (M, 1).
        kernel: The kernel of positions, without an output scale.
        outputscale: Its start.
        count: The number C of functions.
    """

    def __init__(self, inducing: Tensor, kernel: gpytorch.kernels.Kernel, outputscale: float, count: int) -> None:
        batch = torch.Size([count] if count > 1 else [])
        variational = CholeskyVariationalDistribution(len(inducing), batch_shape=batch)
        strategy = VariationalStrategy(self, inducing, variational, learn_inducing_locations=False)
        strategy.variational_params_initialized.fill_(1)  # gpytorch would add noise of the global random state
        several = IndependentMultitaskVariationalStrategy(strategy, count) if count > 1 else strategy
        super().__init__(several)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        positive = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel, outputscale_constraint=positive)
        self.double()
        self.covar_module.outputscale = outputscale

    @property
    def strategy(self) -> Any:
        """GPyTorch's variational strategy of the C functions as a batch."""
        outer: Any = self.variational_strategy
        return getattr(outer, "base_variational_strategy", outer)

    @property
    def inducing(self) -> Tensor:
        """The positions (M, 1) of the inducing nodes."""
        return self.strategy.inducing_points

    @property
    def variational_parameters(self) -> tuple[Tensor, Tensor]:
        """The mean m (..., M) of q and a matrix (..., M, M) whose lower triangle is R, S = R R^T."""
        variational = self.strategy._variational_distribution
        return variational.variational_mean, variational.chol_variational_covar

    def root(self) -> Tensor:
        """Return L (M, M), with the jitter of GPyTorch's strategy."""
        jitter = gpytorch.settings.variational_cholesky_jitter.value(torch.float64)
        covariance: Tensor = self.covar_module(self.inducing).to_dense()
        return psd_safe_cholesky(covariance + jitter * torch.eye(len(covariance), dtype=covariance.dtype))

    def forward(
        self,
        x: Tensor,  # (n, 1)
    ) -> MultivariateNormal:
        """Return the prior at the positions x (n, 1)."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SoftmaxLikelihood(gpytorch.likelihoods.SoftmaxLikelihood):
    """The softmax likelihood P(class c | f) = exp(f_c) / sum_k exp(f_k), with seeded expectations.

    Only the last term of E log p(y | f) = mean_y - E logsumexp(f) needs draws. They are scrambled Sobol points (Owen,
    1995). `redraw` rotates them modulo 1 for each observation (Cranley and Patterson, 1976), so that expectations are
    unbiased and their errors independent. `marginal` uses the same points for all nodes, so that the probabilities of a
    node do not depend on the others. GPyTorch's own class uses the global random state, and confuses the axes of C
    observations of C classes.

    Args:
        num_classes: The number C of classes.
        seed: Seed of the points.
        training_draws: The number of points in `expected_log_prob`, a power of 2.
        marginal_draws: The number of points in `marginal`, a power of 2.

    Examples:
        >>> from rfgp.gpytorch.classifier import Moments
        >>> latent = Moments(torch.zeros(2, 3).double(), torch.ones(2, 3).double())
        >>> probabilities = SoftmaxLikelihood(3, seed=0).marginal(latent).probs
        >>> bool((probabilities.mean(0) - 1 / 3).abs().max() < 0.01)
        True
    """

    def __init__(self, num_classes: int, seed: int, training_draws: int = 64, marginal_draws: int = 512) -> None:
        super().__init__(
            num_classes=num_classes, mixing_weights=None
        )  # gpytorch 1.11 takes False for a wish for weights
        self._uniform = _sobol(training_draws, num_classes, random.child_seed(seed, random.Role.SAMPLE, 0))
        self._normal = _to_normal(_sobol(marginal_draws, num_classes, random.child_seed(seed, random.Role.SAMPLE, 1)))
        self._rotated = _to_normal(self._uniform).unsqueeze(1)

    @property
    def marginal_draws(self) -> int:
        """The number of points in `marginal`."""
        return len(self._normal)

    def redraw(self, count: int, generator: torch.Generator) -> None:
        """Rotate the points of `expected_log_prob` for each of so many observations."""
        shift = torch.rand(count, self.num_classes, generator=generator, dtype=torch.float64)
        self._rotated = _to_normal((self._uniform.unsqueeze(1) + shift) % 1)  # (draws, n, C)

    def expected_log_prob(
        self,
        observations: Tensor,  # (n,)
        function_dist: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:  # (n,)
        """Return E log p(y | f) for classes (n,), 0..C-1, and independent Gaussians of f, (n, C)."""
        mean = function_dist.mean
        samples = mean + function_dist.variance.sqrt() * self._rotated
        chosen = mean.gather(-1, observations.unsqueeze(-1)).squeeze(-1)
        return chosen - samples.logsumexp(-1).mean(0)

    def marginal(self, function_dist: Any, *args: Any, **kwargs: Any) -> Categorical:
        """Return the predictive distribution of classes (n,), given independent Gaussians of f, (n, C)."""
        samples = function_dist.mean + function_dist.variance.sqrt() * self._normal.unsqueeze(1)
        return Categorical(probs=samples.softmax(-1).mean(0))


def _sobol(draws: int, dimension: int, seed: int) -> Tensor:
    """Return scrambled Sobol points, (draws, dimension), in [0, 1)."""
    return torch.quasirandom.SobolEngine(dimension, scramble=True, seed=seed).draw(draws, dtype=torch.float64)


def _to_normal(uniform: Tensor) -> Tensor:
    return torch.special.ndtri(uniform.clamp(_EDGE, 1 - _EDGE))
