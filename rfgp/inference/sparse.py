"""Posteriors through sparse features Phi (n, N) that are too many to factorise a matrix: solves and samples instead.

With C = s^2 Phi Phi^T + D, a = C^-1 (y - mean) and m draws w_j ~ N(0, C^-1), which conjugate gradients give:

- The gradient of log N(y; mean, C) in a direction dC is (a^T dC a - tr(C^-1 dC)) / 2, and tr(C^-1 dC) is the mean of
  w^T dC w: the pathwise estimator (Lin et al. 2024, "Improving linear system solvers for hyperparameter optimisation in
  iterative Gaussian processes"). Each w is scaled so that w^T C w = n, which is its mean: that leaves w w^T unbiased
  (a normal vector's direction and length are independent) and takes the error of the total scale away. In Phi itself
  the gradient is s^2 (a (Phi^T a)^T - mean w (Phi^T w)^T), of which only the entries of the pattern are formed.
- The latent mean at x is s^2 phi_x Phi^T a; and p_j = s^2 phi_x Phi^T w_j and r_j = s phi_x u_j - p_j are independent
  draws from laws of variance e and v: what the data explain of the prior variance k = s^2 |phi_x|^2, and what they
  leave. Since k = e + v is known, the mean squares of both estimate v: A from r with the variance 2 v^2 / m, k - B from
  p with 2 e^2 / m. Their best combination has the weights e^2 and v^2, hence the relative standard error
  sqrt(2 / m) e / sqrt(e^2 + v^2): that of m draws where the data explain all, and far less where they explain little.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.dense import repetitions
from rfgp.inference.evidence import Evidence
from rfgp.inference.laws import root_of
from rfgp.inference.posteriors import make_contiguous
from rfgp.inference.priors import SparsePrior
from rfgp.inference.systems import Draws, SparseSystem
from rfgp.rows import Block
from rfgp.sparse import multiply, row_blocks, sampled_outer

TOLERANCE = 1e-9
"""Of the solve for the mean, relative."""
PATH_TOLERANCE = 1e-5
"""Of the solves for draws."""
NUM_PROBES, NUM_PATHS = 16, 64
"""Draws for gradients and the log determinant; and for variances."""
MOST_SOLVED, MOST_JOINT = 256, 2000
"""Points whose variances, and whose joint law, are computed to the tolerance of the solver, a solve each."""

_CHUNK = 2**15


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
        self._phi = prior.at(rows.inputs, True)
        self._noise_diag = rows.noise_diag(noise).expand(len(rows))
        self._repeated = 0.0 if rows.weight is None else repetitions(rows, noise)
        noise_diag, self._variance = self._noise_diag.detach().numpy(), prior.variance.double()
        self._system = SparseSystem(self._phi.matrix(), float(self._variance.detach()), noise_diag, prior.seed)

    def log_marginal_likelihood(self) -> Tensor:
        """Return an estimate of the log density of y, 0-d, with an unbiased estimate of its gradient.

        See `likelihood_error`.
        """
        n, k = self._rows.targets.shape
        with torch.no_grad():
            square = (self.residual * self.coefficients).sum()
            value = -0.5 * (square + k * (self._draws.log_determinant.value + n * float(np.log(2 * np.pi))))
            value += self._repeated
        if not torch.is_grad_enabled():
            return value
        score = self.score()
        return value + (score - score.detach())

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood."""
        return 0.5 * self._rows.num_outputs * self._draws.log_determinant.error

    def score(self) -> Tensor:
        """Return a 0-d tensor whose gradient is that of the log density; its own value means nothing."""
        with torch.no_grad():
            phi, k, variance = self._phi.matrix(), self._rows.num_outputs, self._variance
            left = torch.cat([self.coefficients, self._probes * (k / self._probes.shape[1]) ** 0.5], dim=1)
            signs = torch.ones(left.shape[1], dtype=torch.float64)
            signs[k:] = -1
            right = torch.from_numpy(phi.T @ left.numpy())
            in_values = variance * sampled_outer(left * signs, right, self._phi.pattern)
            in_variance = 0.5 * (right.square() * signs).sum()
            in_noise_diag = 0.5 * (left.square() * signs).sum(1)
            in_mean = self.coefficients.sum(0)
        parts = (
            (self._phi.values, in_values),
            (self._variance, in_variance),
            (self._noise_diag, in_noise_diag),
            (self._mean, in_mean),
        )
        total = sum(((tensor * gradient).sum() for tensor, gradient in parts), torch.zeros((), dtype=torch.float64))
        return total + self._repeated

    def product(self, v: Tensor) -> Tensor:
        """Return C v, (n, p)."""
        return self._system.product(v)

    def solve(self, right: Tensor, tolerance: float = PATH_TOLERANCE) -> Tensor:
        """Return C^-1 right, (n, p)."""
        return self._system.solve(right, tolerance)

    @cached_property
    def coefficients(self) -> Tensor:
        """The coefficients a = C^-1 (y - mean), (n, k)."""
        with torch.no_grad():
            return self._system.solve(self.residual, TOLERANCE)

    def posterior(self) -> "SparsePosterior":
        """Return coefficients, and draws for the variances."""
        draws, noise_diag = self._system.paths(NUM_PATHS, PATH_TOLERANCE).solved, self._noise_diag.detach().clone()
        return SparsePosterior(self._prior, self._rows.inputs, noise_diag, self.coefficients, draws)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all the others, from draws; see `SparseLaw`.

        1 / (C^-1)_ii = D_i / (1 - v_i / D_i) with v_i the latent variance at the row, all rows known.
        """
        with torch.no_grad():
            latent = SparseLaw(self.posterior(), self._rows.inputs).variance()
            variance = self._noise_diag / (1 - latent / self._noise_diag).clamp_min(1e-12)
        return self._rows.targets - self.coefficients * variance[:, None], variance

    @property
    def residual(self) -> Tensor:
        """The targets without the mean, (n, k)."""
        return (self._rows.targets - self._mean).detach()

    @cached_property
    def _draws(self) -> Draws:
        return self._system.paths(NUM_PROBES, PATH_TOLERANCE)

    @cached_property
    def _probes(self) -> Tensor:
        """Draws w (n, m) with w^T C w = n."""
        w = self._draws.solved
        return w * (len(w) / self._draws.squares).sqrt()


@dataclass(frozen=True, eq=False)
class SparsePosterior:
    """Through coefficients of the training rows, which are contiguous, as they come back from a file.

    Attributes:
        prior: Of sparse features.
        inputs: Positions (n,) of the training rows.
        noise_diag: D (n,).
        coefficients: a (n, k).
        draws: w (n, m), of N(0, C^-1).
    """

    prior: SparsePrior
    inputs: Tensor
    noise_diag: Tensor
    coefficients: Tensor
    draws: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "inputs", "noise_diag", "coefficients", "draws")

    def law(self, inputs: Any) -> "SparseLaw":
        """Return the latent law at n positions (n,)."""
        return SparseLaw(self, inputs)

    def tensors(self) -> dict[str, Tensor]:
        """Return inputs (n,), noise_diag (n,), coefficients (n, k) and draws (n, m)."""
        names = ("inputs", "noise_diag", "coefficients", "draws")
        return {name: getattr(self, name) for name in names}

    # --- what the law uses -----------------------------------------------------------------------

    def moments(self, inputs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield mean (b, k) and variance (b,) of some inputs after others."""
        scale = float(self.prior.variance) ** 0.5
        u, explained = self._path_weights
        m = u.shape[1]
        for part in torch.split(inputs, _CHUNK):
            phi = self.prior.at(part, False)
            blocks = row_blocks(phi.matrix(np.float32))
            sums = multiply(blocks, torch.cat([scale * u - explained, explained], 1).numpy())
            left, told = (torch.from_numpy(s).double().square().mean(1) for s in (sums[:, :m], sums[:, m:]))
            prior = float(self.prior.variance) * torch.from_numpy(np.asarray(phi.matrix().power(2).sum(1)))
            yield torch.from_numpy(phi.matrix() @ self._weights.numpy()), combined(left, told, prior)

    def joint(self, inputs: Tensor) -> Tensor:
        """Return the covariance (n, n) at some positions (n,)."""
        return self._joint(self._phi(inputs))

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
        if phi.shape[0] > MOST_JOINT:
            raise InvalidArgumentError(
                f"A joint covariance of {phi.shape[0]} nodes is asked for; at most {MOST_JOINT} are solved for at "
                "once. Ask for fewer, or draw functions: sample_functions."
            )
        variance = float(self.prior.variance)
        cross = variance * (self._training @ phi.T).toarray()
        solved = self._system_of(self.prior.seed).solve(torch.from_numpy(cross), PATH_TOLERANCE)
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


@dataclass(frozen=True, eq=False)
class SparseLaw:
    """The law that a `SparsePosterior` gives.

    Up to 256 points variances come from a solve for each; beyond they are estimated from draws, all points alike,
    with the relative standard error sqrt(2 / m) e / sqrt(e^2 + v^2) of the variance (half of that for the deviation).

    Attributes:
        posterior: What the data say.
        inputs: Positions (n,).
    """

    posterior: SparsePosterior
    inputs: Tensor

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        return self._moments[0]

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        if len(self.inputs) <= MOST_SOLVED:
            return self.covariance().diagonal().clamp_min(0)
        return self._moments[1]

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        return self._covariance

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return root_of(self._covariance)

    @cached_property
    def _covariance(self) -> Tensor:
        return self.posterior.joint(self.inputs)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        moments = list(self.posterior.moments(self.inputs))
        if not moments:
            return torch.zeros(0, self.posterior.coefficients.shape[1], dtype=torch.float64), torch.zeros(0)
        means, variances = zip(*moments, strict=True)
        return torch.cat(means), torch.cat(variances)


def combined(left: Tensor, explained: Tensor, prior: Tensor) -> Tensor:
    """Return the best estimate (n,) of variances that are estimated by `left` and by prior - `explained`, (n,) each."""
    share = explained.square() / (left.square() + explained.square()).clamp_min(torch.finfo(left.dtype).tiny)
    return torch.maximum(share * left + (1 - share) * (prior - explained), 0.1 * left)
