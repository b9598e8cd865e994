"""What very many rows say under features and a local process: their features are computed again, never kept.

The neighbours of a row lie anywhere in the random order that makes a nearest-neighbour process good, but near it in
space. So rows are whitened by blocks of rows that are near each other: they have most of their neighbours in common, so
that few features beside their own are computed. Of P = V Phi only P^T P and P^T u are kept. Without gradients.
"""

import math

import torch
from torch import Tensor

from rfgp.inference.dense import repetitions
from rfgp.inference.evidence import Evidence
from rfgp.inference.local.evidence import LocalEvidence, solved_sums
from rfgp.inference.local.posterior import LocalPosterior
from rfgp.inference.local.prior import LocalPrior
from rfgp.local import near_each_other, of_rows, used, whitened
from rfgp.rows import Block

MOST_FEATURES = 2**27
"""Numbers in the features of all rows (a gigabyte) from which on these are not kept."""
BLOCK_FEATURES = 2**23
"""Numbers in the features of the rows of a block."""


def is_large(prior: LocalPrior, count: int) -> bool:
    """Return whether the features of so many rows are not kept; where gradients are wanted they are."""
    return prior.num_features * count > MOST_FEATURES and not prior.wants_gradients


class BlockedLocalEvidence(Evidence):
    """What n rows say, as they are given, for a mean (k,) and the variance of an observation (0-d).

    Args:
        prior: The prior.
        rows: The data.
        mean: (k,).
        noise: 0-d.
    """

    def __init__(self, prior: LocalPrior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._given = prior.detached(), rows, mean, noise
        self._prior, self._mean = prior.detached(), mean
        self._rows = rows.take(prior.order(len(rows)))
        self._noise = self._rows.noise_diag(noise.double()).expand(len(rows))
        self._pattern = self._prior.neighbors(self._rows.inputs)
        with torch.no_grad():
            squares, sums, self._square, self._log_scales = self._sums()
            self._factor, self._weights = solved_sums(squares, sums)
            self._explained = (sums * self._weights).sum()
        self._repeated = 0.0 if rows.weight is None else repetitions(rows, noise.double())

    def _sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return P^T P (F, F), P^T u (F, k), |u|^2 and log |V|, block by block of rows near each other."""
        F, k, x = self._prior.num_features, self._rows.num_outputs, self._rows.inputs
        total, log_scales = torch.zeros(F + k, F + k, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
        for block in near_each_other(self._prior.scaled(x), max(1, BLOCK_FEATURES // (F + k))):
            pattern, columns = used(of_rows(self._pattern, block))
            known = torch.from_numpy(columns)
            beside, noise = self._rows.take(known), self._noise[known]
            phi = self._prior.phi(beside.inputs).double()
            entries = self._prior.inverse_factor(beside.inputs, noise, pattern, phi)
            both = whitened(entries, torch.cat([phi, beside.targets - self._mean], dim=1), pattern)
            total += both.mT @ both
            log_scales += entries[torch.from_numpy(pattern.indptr[1:] - 1)].log().sum()
        return total[:F, :F], total[:F, F:], total[F:, F:].diagonal().sum(), log_scales

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d, without gradients."""
        n, k = self._rows.targets.shape
        log_determinant = 2 * self._factor.diagonal().log().sum()
        squares = self._square - self._explained + k * (log_determinant + n * math.log(2 * math.pi))
        return k * self._log_scales - 0.5 * squares + self._repeated

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return means (n, k) and variances (n,) of each row given all the others, with the features of all kept."""
        return LocalEvidence.of(*self._given).leave_one_out()

    def posterior(self) -> LocalPosterior:
        """Return the rows, and weights with their factor."""
        centered = self._rows.targets - self._mean
        return LocalPosterior(self._prior, self._rows.inputs, centered, self._noise, self._weights, self._factor)
