"""The solver by conjugate gradients and draws.

With C = K + D, the gradient of log N(y; mean, C) in a direction dC is (a^T dC a - tr(C^-1 dC)) / 2. tr(C^-1 dC) is the
mean of w^T dC w for w ~ N(0, C^-1), the pathwise estimator (Lin et al. 2024, "Improving linear system solvers for
hyperparameter optimisation in iterative Gaussian processes"). Each w is scaled to its mean w^T C w = n. w w^T stays
unbiased, because direction and length of a normal vector are independent, and the error of the total scale vanishes. In
sparse features Phi the gradient is s^2 (a (Phi^T a)^T - mean w (Phi^T w)^T). Only its entries on the pattern are
computed.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import SolverError
from rfgp.limits import limits
from rfgp.rows import Block
from rfgp.solvers.bordered.projections import with_feature_residuals
from rfgp.solvers.iterative.conditioned import ENTRIES, ConditionedTerms
from rfgp.solvers.iterative.draws import Draws
from rfgp.solvers.iterative.posterior import PATH_TOLERANCE, TOLERANCE, IterativePosterior
from rfgp.solvers.iterative.role import Term
from rfgp.solvers.iterative.terms import operator_of, terms_of
from rfgp.solvers.role import Inference

NUM_PROBES = 16
"""The number of draws for gradients and the log determinant."""
NUM_PATHS = 64
"""The number of draws for variances."""
SITE_TOLERANCE = 1e-11
"""The relative residual of solves for other targets and noise, in a search for sites."""


class IterativeSolver(Inference):
    """Gaussian regression by conjugate gradients.

    All solves are on demand.

    Args:
        prior: The prior of walks, weights and sparse precisions, with gradients.
        rows: The data.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.
        terms: The terms at the rows. If None, they are created.
        tolerance: The relative residual of the solve for the mean. The default is 1e-9.

    Examples:
        >>> from rfgp.blocks import WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> rows = Block(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double())
        >>> solver = IterativeSolver(prior, rows, torch.zeros(1).double(), torch.tensor(1.0).double())
        >>> solver.fitted.round(decimals=4).tolist()  # x w with w = x^T y / (1 + x^T x) = 5 / 6
        [[0.8333], [1.6667]]
    """

    def __init__(
        self,
        prior: Prior,
        rows: Block,
        mean: Tensor,
        noise: Tensor,
        terms: Sequence[Term] | None = None,
        tolerance: float = TOLERANCE,
    ) -> None:
        self._prior, self._rows, self._mean = prior, rows, mean
        self._terms = terms_of(prior, rows.inputs) if terms is None else terms
        noise, phi = noise.double(), prior.dense.scaled(rows.inputs)
        rows, self._bound, self._missing = with_feature_residuals(prior.dense, rows, noise, phi)
        self._noise_diag = rows.noise_diag(noise).expand(len(rows))
        self._repeated = rows.replicate_log_prob(noise)
        self._operator, self._tolerance = operator_of(self._terms, self._noise_diag.detach()), tolerance

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        It is solved to 1e-11.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        return type(self)(self._prior, rows, mean, noise, self._terms, SITE_TOLERANCE)

    def log_marginal_likelihood(self) -> Tensor:
        """Return an estimate of the log marginal likelihood, 0-d.

        It has an unbiased estimate of its gradient. See `likelihood_error`.
        """
        with torch.no_grad():
            value = self._log_marginal_likelihood() + self._repeated + self._bound
        if not torch.is_grad_enabled():
            return value
        score = self.score()
        return value + (score - score.detach())

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood."""
        return 0.5 * abs(float(self._rows.output_weights.sum())) * self._probes.log_determinant.error

    @property
    def residual(self) -> Tensor:
        """The targets without the mean, (n, k)."""
        return (self._rows.targets - self._mean).detach()

    @cached_property
    def coefficients(self) -> Tensor:
        """The coefficients a = C^-1 (y - mean), (n, k)."""
        with torch.no_grad():
            return self._operator.solve(self.residual, self._tolerance)

    def converges(self, max_iterations: int) -> bool:
        """Return whether conjugate gradients for coefficients converge in few iterations.

        If they do, the coefficients are cached.

        Args:
            max_iterations: The maximum number of iterations of each round.
        """
        try:
            solution = self._operator.solve(self.residual, self._tolerance, max_iterations, fail_early=True)
        except SolverError:
            return False
        self.coefficients = solution
        return bool(torch.isfinite(solution).all())

    @cached_property
    def _probes(self) -> Draws:
        """Draws for gradients and the log determinant."""
        return self._operator.draws(NUM_PROBES, PATH_TOLERANCE)

    @cached_property
    def _paths(self) -> Tensor:
        """Draws for variances, (n, m)."""
        return self._operator.draws(NUM_PATHS, PATH_TOLERANCE).solved

    def _log_marginal_likelihood(self) -> Tensor:
        """Return an estimate of the log marginal likelihood of y, 0-d, without gradients."""
        output_weights, n = self._rows.output_weights, len(self._rows)
        square, k = (self.residual * self.coefficients).sum(0) @ output_weights, float(output_weights.sum())
        return -0.5 * (square + k * (self._probes.log_determinant.value + n * float(np.log(2 * np.pi))))

    @property
    def fitted(self) -> Tensor:
        """The posterior mean K a of f at the rows, (n, k)."""
        return self._operator.covariance_times(self.coefficients)

    @cached_property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,).

        For more than 256 rows they are estimates from draws.
        """
        with torch.no_grad():
            posterior, inputs, weights = self.posterior(), self._rows.inputs, self._prior.dense
            if len(inputs) <= limits().max_solved:
                variance = posterior.variance(inputs, posterior.project(inputs))
            else:
                chunks = torch.split(inputs, max(1, ENTRIES // posterior.width))
                variance = torch.cat([posterior.project(chunk).estimated_variance() for chunk in chunks])
            if not weights.has_residual:
                return variance
            return variance - weights.residual_variance(inputs, weights.scaled(inputs))  # it is not part of f at rows

    @property
    def log_determinant(self) -> Tensor:
        """An estimate of the log determinant of I + K D^-1, 0-d."""
        diagonal = self._noise_diag.detach()
        return self._probes.log_determinant.value - diagonal.log().sum()

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p).

        Args:
            v: The vectors v, (n, p).
        """
        return self._operator.product(v)

    def solve(self, right: Tensor, tolerance: float = PATH_TOLERANCE) -> Tensor:
        """Return C^-1 right, (n, p).

        Args:
            right: The right-hand sides, (n, p).
            tolerance: The relative residual. The default is 1e-5.
        """
        return self._operator.solve(right, tolerance)

    def score(self) -> Tensor:
        """Return a 0-d tensor with the gradient of the log marginal likelihood.

        Its value has no meaning.
        """
        with torch.no_grad():
            output_weights, probes = self._rows.output_weights, self._probes.normalized
            vectors = torch.cat([self.coefficients, probes], dim=1)
            signs = torch.cat([output_weights, (-output_weights.sum() / probes.shape[1]).expand(probes.shape[1])])
            in_noise_diag = 0.5 * (vectors.square() * signs).sum(1)
            in_mean = self.coefficients.sum(0) * output_weights
        total = (self._noise_diag * in_noise_diag).sum() + (self._mean * in_mean).sum()
        return sum((term.score(vectors, signs) for term in self._terms), start=total) + self._repeated + self._bound

    def posterior(self) -> IterativePosterior:
        """Return the posterior, which stores coefficients and draws for the variances."""
        noise_diag, known = self._noise_diag.detach().clone(), None
        if not any(parameter.requires_grad for parameter in self._prior.parameters):
            known = ConditionedTerms(self._terms, self._operator, self.coefficients, self._paths)
        inputs, solved = self._rows.inputs, (self.coefficients, self._paths)
        return IterativePosterior(self._prior.detached(), inputs, noise_diag, *solved, known)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        They are computed from `latent_variances`.

        1 / (C^-1)_ii = D_i / (1 - v_i / D_i), with the latent variance v_i at the row.
        """
        with torch.no_grad():
            variance = self._noise_diag / (1 - self.latent_variances / self._noise_diag).clamp_min(1e-12)
            mean = self._rows.targets - self.coefficients * variance[:, None]
            return mean, variance + self._missing
