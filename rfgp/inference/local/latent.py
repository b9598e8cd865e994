"""Neighbours of the function itself: a local process whose rows are conditioned on values without noise.

Where the noise is large, the observations of a row's neighbours say little of it, and what all the others know is lost:
with 2,000 rows in the plane, a lengthscale of .3 of its width and noise of the variance of g, 60 observations leave a
KL of .036 of the marginal law of a new point from the exact one, and 60 values of the function .0003 (ten times the
noise: .21, .0001). So g is approximated as g = L u (`rfgp.local.latent`), the noise apart from it, and

    C = s^2 Phi Phi^T + L L^T + D

has no sparse factor. But the same rows conditioned on observations are a matrix close to it, whose inverse is at hand:
with V and P of `rfgp.inference.local.evidence` it is V^T (I + P P^T)^-1 V. As a preconditioner it leaves eigenvalues
between .2 and 11, most of them near 1, where those of C reach from the noise (1e-3 to 10) to 2,000 (2,000 rows in 2 to
8 columns, without features). Conjugate gradients took 5 to 40 steps (20,000 rows, 256 features), and the logarithm of
the determinant has little left to estimate.
"""

from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.errors import SolverError
from rfgp.inference.dense import repetitions
from rfgp.inference.evidence import Evidence
from rfgp.inference.iterated.evidence import (
    MOST_JOINT,
    MOST_SOLVED,
    TOLERANCE,
    IteratedPosterior,
    Solutions,
    check_joint,
    combined,
)
from rfgp.inference.iterated.systems import Spread, System
from rfgp.inference.laws import ENTRIES, Functions
from rfgp.inference.local.evidence import LocalEvidence
from rfgp.inference.local.nearby import AHEAD, beside_rows, in_order, no_functions
from rfgp.inference.local.prior import LocalPrior
from rfgp.local import used
from rfgp.rows import Block
from rfgp.sparse import SparseValues, multiply, row_blocks

LOUD, AUDIBLE = 10.0, 1e-3
"""Noise from which on rows are conditioned on the function, in what the function at its neighbours leaves of it; and
the variance of the local process below which it does not matter, in noise."""
LEAST_NOISE = 1e-6
"""In the variance of the local process: less is near the jitter of its root."""
MOST_ROWS = 2**18
"""Rows up to which conjugate gradients are taken where they are not asked for."""
MOST_NUMBERS = 2**27
"""In a covariance of rows and points (a gigabyte), of which a joint law takes several."""
ENOUGH = 50
"""Iterations of conjugate gradients at most, where they are not asked for."""
_SOME = 1000
_SMALLEST = 1e-12
"""Of the eigenvalues of P P^T, the smallest in the largest that is told from 0."""


def is_loud(prior: LocalPrior, rows: Block, noise: Tensor) -> bool:
    """Return whether noise (0-d) hides what a row's neighbours say of it; by some of the rows."""
    prior, count = prior.detached(), len(rows)
    typical, variance = float(rows.noise_diag(noise.detach()).median()), float(prior.variance)
    if count > MOST_ROWS or not AUDIBLE * typical <= variance <= typical / LEAST_NOISE:
        return False
    x = rows.inputs[prior.order(count)]
    some = torch.linspace(0, count - 1, min(count, _SOME)).long()
    pattern, columns = used(prior.neighbors(x, some))
    left = prior.latent_root(x[torch.from_numpy(columns)], pattern).deviations
    return typical > LOUD * float(np.median(left) ** 2)


class LatentSystem(System):
    """C = s^2 Phi Phi^T + L L^T + D of rows in order; see above.

    Args:
        prior: Without gradients.
        x: The rows (n, d).
        noise_diag: D (n,).
    """

    advice = 'Take conditioning="observations".'

    def __init__(self, prior: LocalPrior, x: Tensor, noise_diag: Tensor) -> None:
        super().__init__(noise_diag.numpy(), prior.seed)
        self.phi, pattern = prior.phi(x).double(), prior.neighbors(x)
        self.root = prior.latent_root(x, pattern, self.phi)
        entries = prior.inverse_factor(x, noise_diag, pattern, self.phi)
        self._factor = SparseValues(entries, pattern).matrix()

    @property
    def num_columns(self) -> int:
        """F and n."""
        return self.phi.shape[1] + len(self)

    def spread(self, u: Tensor) -> Tensor:
        """Return H u, (n, p), of u (F + n, p)."""
        features = self.phi.shape[1]
        out: Tensor = self.phi @ u[:features] + self.root.spread(u[features:])
        return out

    def gather(self, v: Tensor) -> Tensor:
        """Return H^T v, (F + n, p)."""
        return torch.cat([self.phi.mT @ v, self.root.gather(v)])

    def _drawn(self, u: Tensor) -> Tensor:
        return self._unscaled(self.spread(u))

    def _times(self, v: Tensor) -> Tensor:
        return v + self._drawn(self.gather(self._unscaled(v)))

    @cached_property
    def _preconditioner(self) -> "_Whitening":
        white = torch.from_numpy(multiply(row_blocks(self._factor), self.phi.numpy()))
        values, vectors = torch.linalg.eigh(white.mT @ white)
        kept = values > _SMALLEST * values.max() if len(values) else values > 0
        values, vectors = values[kept], vectors[:, kept]
        features = Spread.of(white @ (vectors / values.sqrt()), 1 + values)
        return _Whitening(self._factor, torch.from_numpy(self._deviation), features)


class _Whitening:
    """R = (I + P P^T)^(-1/2) V D^(1/2)."""

    def __init__(self, factor: sp.csr_array, deviation: Tensor, features: Spread) -> None:
        self._own, self._deviation, self._features = factor.diagonal(), deviation, features
        self._factor, self._transposed = row_blocks(factor), row_blocks(factor.T.tocsr())

    @property
    def log_determinant(self) -> float:
        """The logarithm of |P|, P = (R^T R)^-1."""
        own = float(np.log(self._own).sum()) + float(self._deviation.log().sum())
        return self._features.log_determinant - 2 * own

    def halved(self, v: Tensor) -> Tensor:
        """Return R v, (n, p)."""
        scaled = (self._deviation[:, None] * v).numpy()
        return self._features.halved(torch.from_numpy(multiply(self._factor, scaled)))

    def halved_back(self, v: Tensor) -> Tensor:
        """Return R^T v, (n, p)."""
        back = multiply(self._transposed, self._features.halved_back(v).numpy())
        return self._deviation[:, None] * torch.from_numpy(back)


class LatentEvidence(Evidence):
    """What rows say, as they are given, where neighbours are values of the function.

    Args:
        prior: The prior.
        rows: The data.
        mean: (k,).
        noise: 0-d.
    """

    def __init__(self, prior: LocalPrior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._given, self._prior = (prior, rows, mean, noise), prior.detached()
        self._rows = rows.take(prior.order(len(rows)))
        self._noise_diag = self._rows.noise_diag(noise.detach()).expand(len(rows))
        self._repeated = 0.0 if rows.weight is None else repetitions(rows, noise.detach())
        self._residual = self._rows.targets - mean.detach()

    @cached_property
    def solved(self) -> Solutions:
        """The solutions of the system in C, for the rows in order."""
        return Solutions(
            LatentSystem(self._prior, self._rows.inputs, self._noise_diag), self._residual, self._rows.each
        )

    def is_solved(self) -> bool:
        """Return whether conjugate gradients reach the coefficients in few iterations."""
        system = self.solved.system
        usual = system.most_iterations
        system.most_iterations, system.is_hurried = ENOUGH, True
        try:
            return bool(torch.isfinite(self.solved.coefficients).all())
        except SolverError:
            return False
        finally:
            system.most_iterations, system.is_hurried = usual, False

    def log_marginal_likelihood(self) -> Tensor:
        """Return an estimate of the log density of y, 0-d, with the gradient of that by observations.

        See `likelihood_error`.
        """
        with torch.no_grad():
            value = self.solved.log_density() + self._repeated
        if not self._given[0].wants_gradients:
            return value
        likelihood = self._by_observations.log_marginal_likelihood()
        return value + (likelihood - likelihood.detach())

    @property
    def likelihood_error(self) -> float:
        """The standard error of the log marginal likelihood."""
        return self.solved.error

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all the others, by their observations.

        Those of values would need each row's variance to within less than draws tell where the others leave much.
        """
        return self._by_observations.leave_one_out()

    @property
    def _by_observations(self) -> LocalEvidence:
        return LocalEvidence.of(*self._given)

    def posterior(self) -> "LatentPosterior":
        """Return coefficients, and draws for the variances."""
        with torch.no_grad():
            solved, inputs = self.solved, self._rows.inputs
            return LatentPosterior(self._prior, inputs, self._noise_diag, solved.coefficients, solved.draws)


class LatentPosterior(IteratedPosterior[LocalPrior]):
    """Through coefficients of the rows in order; what new points need of them is computed when it is asked for."""

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Refuse: a local process is defined at the points that are asked for.

        Raises:
            InvalidArgumentError: always.
        """
        raise no_functions()

    @property
    def chunk(self) -> int:
        """The most inputs of `moments`."""
        width = self.prior.num_features + AHEAD * self.prior.num_neighbors * (self.inputs.shape[1] + 1)
        return max(1, ENTRIES // (width + 2 * self.draws.shape[1]))

    def moments(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (n, k) and variance (n,) at points (n, d): what neighbours leave is added to that of draws."""
        spread, rest = self._beside(inputs)
        sums = self.prior.phi(inputs).double() @ self._told[0] + torch.from_numpy(spread @ self._told[1].numpy())
        k, m = self.coefficients.shape[1], self.draws.shape[1]
        left, explained = (part.square().mean(1) for part in torch.split(sums[:, k:], m, dim=1))
        prior = self.prior.diagonal(inputs).double()
        return sums[:, :k], combined(left, explained, (prior - rest).clamp_min(0)) + rest

    def joint(self, inputs: Tensor) -> Tensor:
        """Return the covariance (n, n) of points of which each may be another's neighbour.

        As in `LocalPosterior.root` the correlations are those of this law, and the variances those of one point each.
        """
        check_joint(len(inputs), "points", "", max(MOST_SOLVED, min(MOST_JOINT, MOST_NUMBERS // len(self.inputs))))
        count, features = len(inputs), self.prior.phi(inputs).double()
        own, rest = self._beside(inputs)
        ordered, left = in_order(self.prior, self.inputs, torch.zeros_like(self.noise_diag), inputs)
        among = torch.eye(count, dtype=torch.float64) - torch.from_numpy(ordered[:, len(self.inputs) :].toarray())
        solve = partial(torch.linalg.solve_triangular, upper=False, unitriangular=True)
        spread = solve(among, torch.from_numpy(ordered[:, : len(self.inputs)].toarray()))
        noise = solve(among, left.sqrt().diag())
        covariance = self._given(features, spread) + noise @ noise.mT
        variance = self._given(features, torch.from_numpy(own.toarray())).diagonal() + rest
        least = torch.finfo(variance.dtype).tiny
        scale = (variance.clamp_min(0) / covariance.diagonal().clamp_min(least)).sqrt()
        out: Tensor = covariance * scale[:, None] * scale
        return out

    def _given(self, features: Tensor, weights: Tensor) -> Tensor:
        """Return the covariance (q, q) of features (q, F) of the weights and weights (q, n) of the rows' g."""
        rows = torch.cat([features.mT, self._system.root.gather(weights.mT)])
        cross = self._system.spread(rows)
        out = rows.mT @ rows - cross.mT @ self._system.solve(cross, TOLERANCE)
        return (out + out.mT) / 2

    def _beside(self, inputs: Tensor) -> tuple[sp.csr_array, Tensor]:
        return beside_rows(self.prior, self.inputs, torch.zeros_like(self.noise_diag), inputs)

    @cached_property
    def _system(self) -> LatentSystem:
        return LatentSystem(self.prior, self.inputs, self.noise_diag)

    @cached_property
    def _told(self) -> tuple[Tensor, Tensor]:
        """Of features' weights (F, c) and of g at the rows (n, c): means, what draws leave, and what they explain."""
        system, features = self._system, self.prior.num_features
        u, _ = system.prior_weights(self.draws.shape[1])
        means, explained = system.gather(self.coefficients), system.gather(self.draws)
        all_of = torch.cat([means, u - explained, explained], dim=1)
        return all_of[:features], system.root.spread(all_of[features:])
