"""Posteriors through sparse features Phi (n, N) that are too many to factorise a matrix: solves and samples instead.

With C = s^2 Phi Phi^T + D the gradient of log N(y; mean, C) in a direction dC is (a^T dC a - tr(C^-1 dC)) / 2, and
tr(C^-1 dC) is the mean of w^T dC w: the pathwise estimator (Lin et al. 2024, "Improving linear system solvers for
hyperparameter optimisation in iterative Gaussian processes"). Each w is scaled so that w^T C w = n, which is its mean:
that leaves w w^T unbiased (a normal vector's direction and length are independent) and takes the error of the total
scale away. In Phi itself the gradient is s^2 (a (Phi^T a)^T - mean w (Phi^T w)^T), of which only the entries of the
pattern are formed.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.inference.dense import repetitions
from rfgp.inference.evidence import Evidence
from rfgp.inference.iterated.evidence import (
    PATH_TOLERANCE,
    IteratedPosterior,
    Solutions,
    check_joint,
    combined,
)
from rfgp.inference.iterated.sparse_system import SparseSystem
from rfgp.inference.laws import ENTRIES
from rfgp.inference.priors import SparsePrior
from rfgp.rows import Block
from rfgp.sparse import multiply, row_blocks, sampled_outer

PRODUCT_TOLERANCE = 1e-8
"""Of the solves in products with a covariance, relative."""


LEAST_SOLVED = 32
"""Right-hand sides that are solved for at once, however many columns the features have."""


class SparseEvidence(Evidence):
    """Regression on sparse features by conjugate gradients; nothing is solved before it is asked for.

    Args:
        prior: Of sparse features.
        rows: The data.
        mean: (k,).
        noise: Variance of one observation, beside what its row knows, 0-d.
    """

    def __init__(self, prior: SparsePrior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._prior, self._rows, self._mean = prior, rows, mean
        self._phi, self._variance = prior.at(rows.inputs, True), prior.variance.double()
        self._noise_diag = rows.noise_diag(noise).expand(len(rows))
        self._repeated = 0.0 if rows.weight is None else repetitions(rows, noise)
        noise_diag, variance = self._noise_diag.detach(), float(self._variance.detach())
        system = SparseSystem(self._phi.matrix(), variance, noise_diag.numpy(), prior.seed)
        self._solved = Solutions(system, self.residual, rows.each)

    def log_marginal_likelihood(self) -> Tensor:
        """Return an estimate of the log density of y, 0-d, with an unbiased estimate of its gradient.

        See `likelihood_error`.
        """
        with torch.no_grad():
            value = self._solved.log_density() + self._repeated
        if not torch.is_grad_enabled():
            return value
        score = self.score()
        return value + (score - score.detach())

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood."""
        return self._solved.error

    @property
    def residual(self) -> Tensor:
        """The targets without the mean, (n, k)."""
        return (self._rows.targets - self._mean).detach()

    @property
    def coefficients(self) -> Tensor:
        """The coefficients a = C^-1 (y - mean), (n, k)."""
        return self._solved.coefficients

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p)."""
        return self._solved.system.product(v)

    def solve(self, right: Tensor, tolerance: float = PATH_TOLERANCE) -> Tensor:
        """Return C^-1 right, (n, p)."""
        return self._solved.system.solve(right, tolerance)

    def score(self) -> Tensor:
        """Return a 0-d tensor whose gradient is that of the log density; its own value means nothing."""
        with torch.no_grad():
            phi, each, variance, m = self._phi.matrix(), self._rows.each, self._variance, self._probes.shape[1]
            left = torch.cat([self.coefficients, self._probes], dim=1)
            signs = torch.cat([each, (-each.sum() / m).expand(m)])
            right = torch.from_numpy(phi.T @ left.numpy())
            in_values = variance * sampled_outer(left * signs, right, self._phi.pattern)
            in_variance = 0.5 * (right.square() * signs).sum()
            in_noise_diag = 0.5 * (left.square() * signs).sum(1)
            in_mean = self.coefficients.sum(0) * each
        parts = (
            (self._phi.values, in_values),
            (self._variance, in_variance),
            (self._noise_diag, in_noise_diag),
            (self._mean, in_mean),
        )
        total = sum(((tensor * gradient).sum() for tensor, gradient in parts), torch.zeros((), dtype=torch.float64))
        return total + self._repeated

    def posterior(self) -> "SparsePosterior":
        """Return coefficients, and draws for the variances."""
        noise_diag = self._noise_diag.detach().clone()
        return SparsePosterior(self._prior, self._rows.inputs, noise_diag, self.coefficients, self._solved.draws)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all the others, from draws; see `IteratedLaw`.

        1 / (C^-1)_ii = D_i / (1 - v_i / D_i) with v_i the latent variance at the row, all rows known.
        """
        with torch.no_grad():
            latent = self.posterior().law(self._rows.inputs).variance()
            variance = self._noise_diag / (1 - latent / self._noise_diag).clamp_min(1e-12)
        return self._rows.targets - self.coefficients * variance[:, None], variance

    @cached_property
    def _probes(self) -> Tensor:
        """Draws w (n, m) with w^T C w = n."""
        draws = self._solved.probes
        return draws.solved * (len(draws.solved) / draws.squares).sqrt()


class SparsePosterior(IteratedPosterior[SparsePrior]):
    """Through coefficients of the training rows and sparse features of positions."""

    @property
    def chunk(self) -> int:
        """The most inputs of `moments`."""
        return 2**15

    def moments(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (n, k) and variance (n,) at some positions (n,)."""
        scale = float(self.prior.variance) ** 0.5
        u, explained = self._path_weights
        m = u.shape[1]
        phi = self.prior.at(inputs, False)
        blocks = row_blocks(phi.matrix(np.float32))
        sums = multiply(blocks, torch.cat([scale * u - explained, explained], 1).numpy())
        left, told = (torch.from_numpy(s).double().square().mean(1) for s in (sums[:, :m], sums[:, m:]))
        prior = float(self.prior.variance) * torch.from_numpy(np.asarray(phi.matrix().power(2).sum(1)))
        return torch.from_numpy(phi.matrix() @ self._weights.numpy()), combined(left, told, prior)

    def joint(self, inputs: Tensor) -> Tensor:
        """Return the covariance (n, n) at some positions (n,)."""
        return self._joint(self._phi(inputs))

    def operator(self, inputs: Tensor) -> "SparseOperator":
        """Return the covariance at some positions (n,), which is not formed."""
        return SparseOperator(
            self._training, self._phi(inputs), float(self.prior.variance), self.noise_diag, self.prior.seed
        )

    def sample_functions(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions of n positions, (count, n, k), by pathwise conditioning (Wilson et al. 2020)."""
        k = self.coefficients.shape[1]
        system = self._system_of(int(torch.randint(2**62, (), generator=generator)))
        w = system.paths(count * k, PATH_TOLERANCE).solved
        u = self._all_prior_weights(system, count * k)
        scale = float(self.prior.variance) ** 0.5
        weights = scale * u.double() - scale**2 * torch.from_numpy(self._training.T @ w.numpy())
        weights = weights.reshape(-1, count, k) + self._weights[:, None]
        values = self.prior.of_weights(weights.reshape(len(weights), -1))
        return lambda inputs: values(inputs).reshape(len(inputs), count, k).movedim(0, 1)

    def _phi(self, inputs: Tensor) -> sp.csr_array:
        return self.prior.at(inputs, False).matrix()

    def _joint(self, phi: sp.csr_array) -> Tensor:
        check_joint(phi.shape[0], "nodes", ", or draw functions: sample_functions")
        variance = float(self.prior.variance)
        cross = variance * (self._training @ phi.T).toarray()
        system, width = self._system_of(self.prior.seed), max(LEAST_SOLVED, ENTRIES // self.prior.num_columns)
        parts = torch.split(torch.from_numpy(cross), width, dim=1)
        solved = torch.cat([system.solve(part, PATH_TOLERANCE) for part in parts], dim=1)
        out = torch.from_numpy(variance * (phi @ phi.T).toarray()) - torch.from_numpy(cross).mT @ solved
        return (out + out.mT) / 2

    def _system_of(self, seed: int) -> SparseSystem:
        return SparseSystem(self._training, float(self.prior.variance), self.noise_diag.numpy(), seed)

    @cached_property
    def _training(self) -> sp.csr_array:
        return self.prior.at(self.inputs, True).matrix()

    @cached_property
    def _weights(self) -> Tensor:
        """s^2 Phi^T a, (N, k)."""
        return float(self.prior.variance) * torch.from_numpy(self._training.T @ self.coefficients.numpy())

    @cached_property
    def _path_weights(self) -> tuple[Tensor, Tensor]:
        """The weights u (N, m) and s^2 Phi^T w (N, m) of paths, single precision."""
        u = self._all_prior_weights(self._system_of(self.prior.seed), self.draws.shape[1])
        explained = self._training.astype(np.float32).T @ self.draws.float().numpy()
        return u, float(self.prior.variance) * torch.from_numpy(explained)

    def _all_prior_weights(self, system: SparseSystem, count: int) -> Tensor:
        """Return u (N, m), of which the system's `paths` has the rows of columns with training entries."""
        generator = np.random.default_rng(np.random.SeedSequence(system.seed, spawn_key=(4,)))
        out = torch.from_numpy(generator.standard_normal((self.prior.num_columns, count), dtype=np.float32))
        out[torch.from_numpy(system.columns)] = system.prior_weights(count)[0].float()
        return out


class SparseOperator:
    """S = s^2 Psi Psi^T - s^4 Psi Phi^T C^-1 Phi Psi^T, C = s^2 Phi Phi^T + D, never formed.

    Args:
        training: Phi (n, N), of the rows.
        points: Psi (m, N).
        variance: s^2.
        noise_diag: D (n,).
        seed: Of the preconditioner.
    """

    def __init__(
        self, training: sp.csr_array, points: sp.csr_array, variance: float, noise_diag: Tensor, seed: int
    ) -> None:
        self._training, self._points, self._variance = training, points, variance
        self._noise_diag, self._seed = noise_diag, seed
        self._rows = SparseSystem(training, variance, noise_diag.numpy(), seed)

    def __len__(self) -> int:
        return int(self._points.shape[0])

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (m, p)."""
        weights = self._variance * (self._points.T @ v.numpy())
        told = self._rows.solve(torch.from_numpy(self._training @ weights), PRODUCT_TOLERANCE)
        weights -= self._variance * (self._training.T @ told.numpy())
        return torch.from_numpy(self._points @ weights)

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + E)^-1 v, (m, p): the coefficients of v at the points where the rows are zeros, E (m,)."""
        both = sp.csr_array(sp.vstack([self._training, self._points]))
        diag = np.concatenate([self._noise_diag.numpy(), noise.numpy()])
        right = torch.cat([v.new_zeros(len(self._noise_diag), v.shape[1]), v])
        solved = SparseSystem(both, self._variance, diag, self._seed).solve(right, PRODUCT_TOLERANCE)
        return solved[len(self._noise_diag) :]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, S), (m, count), by pathwise conditioning."""
        u, e = (torch.randn(size, count, generator=generator, dtype=torch.float64).numpy() for size in self._sizes)
        deviation = self._variance**0.5
        rows = deviation * (self._training @ u) + self._noise_diag.sqrt()[:, None].numpy() * e
        told = self._rows.solve(torch.from_numpy(rows), PRODUCT_TOLERANCE).numpy()
        return torch.from_numpy(self._points @ (deviation * u - self._variance * (self._training.T @ told)))

    @property
    def _sizes(self) -> tuple[int, int]:
        return int(self._training.shape[1]), int(self._training.shape[0])
