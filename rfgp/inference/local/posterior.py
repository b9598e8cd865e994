"""The law of new points under features and a local process whose neighbours are observations.

Given y, the function at a new point x with its nearest rows N, b = C^-1 c and d = v - b^T c, is
(s phi_x - b^T s Phi_N) w + b^T (y_N - mean) + e' with e' ~ N(0, d): the local process is taken as independent between
new points given their neighbours, which holds for one point. Covariances and samples of several are those of points
that may be each other's neighbours (`LocalPosterior.root`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rfgp.inference.laws import ChunkedPosterior, Functions
from rfgp.inference.local.nearby import AHEAD, beside_rows, in_order, no_functions
from rfgp.inference.local.prior import LocalPrior
from rfgp.inference.posteriors import make_contiguous


@dataclass(frozen=True, eq=False)
class LocalPosterior(ChunkedPosterior):
    """Through the weights of features and the neighbours of new points.

    Attributes:
        prior: Features and local process.
        inputs: The rows (n, d), in order.
        targets: y - mean, (n, k).
        noise: Of the rows' observations, (n,).
        weights: Posterior mean of the features' weights, (F, k).
        factor: Cholesky factor (F, F) of their precision A.
    """

    prior: LocalPrior
    inputs: Tensor
    targets: Tensor
    noise: Tensor
    weights: Tensor
    factor: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "inputs", "targets", "noise", "weights", "factor")

    @property
    def width(self) -> int:
        """F + k + 1, and what the neighbours of a point take."""
        return sum(self.weights.shape) + 1 + AHEAD * self.prior.num_neighbors * (self.inputs.shape[1] + 1)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return what ties n inputs to the data, each by itself, (n, F + k + 1).

        phi_x - b^T Phi_N, what the neighbours say of the mean, and the variance left.
        """
        spread, left = beside_rows(self.prior, self.inputs, self.noise, inputs)
        rows = np.unique(spread.indices)
        known = torch.from_numpy(rows)
        both = torch.cat([self.prior.phi(self.inputs[known]).double(), -self.targets[known]], dim=1)
        own = torch.cat([self.prior.phi(inputs).double(), torch.zeros(len(inputs), self.targets.shape[1])], dim=1)
        return torch.cat([own - torch.from_numpy(spread[:, rows] @ both.numpy()), left[:, None]], dim=1)

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the mean (n, k)."""
        features = len(self.weights)
        return prepared[:, :features] @ self.weights + prepared[:, features:-1]

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n,)."""
        return self._rooted(prepared[:, : len(self.weights)]).square().sum(1) + prepared[:, -1]

    def covariance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance (n, n); see `root`."""
        root = self.root(inputs, prepared)
        return root @ root.mT

    def root(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return a matrix R (n, n + F) with R R^T the covariance of points of which each may be another's neighbour.

        With the new points after the rows, g_new = B_r (y - mean - Phi w) + B_new g_new + e, e ~ N(0, diag d), so with
        T = (I - B_new)^-1 the function is T (B_r (y - mean) + e) + (Phi_new - T B_r Phi) w. The correlations are those
        of this law, the variances those of `variance`, where all neighbours are rows.
        """
        count, rows = len(inputs), len(self.inputs)
        spread, left = in_order(self.prior, self.inputs, self.noise, inputs)
        among = torch.eye(count, dtype=torch.float64) - torch.from_numpy(spread[:, rows:].toarray())
        used = np.unique(spread.indices[spread.indices < rows])
        through = spread[:, used] @ self.prior.phi(self.inputs[torch.from_numpy(used)]).double().numpy()
        right = torch.cat([left.sqrt().diag(), torch.from_numpy(through)], dim=1)
        solved = torch.linalg.solve_triangular(among, right, upper=False, unitriangular=True)
        features = self.prior.phi(inputs).double() - solved[:, count:]
        root = torch.cat([solved[:, :count], self._rooted(features)], dim=1)
        return root * (self.variance(inputs, prepared) / root.square().sum(1)).sqrt()[:, None]

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Refuse: a local process is defined at the points that are asked for.

        Raises:
            InvalidArgumentError: always.
        """
        raise no_functions()

    def tensors(self) -> dict[str, Tensor]:
        """Return the rows: inputs (n, d), targets (n, k), noise (n,); and weights (F, k) with their factor (F, F)."""
        names = ("inputs", "targets", "noise", "weights", "factor")
        return {name: getattr(self, name) for name in names}

    def _rooted(self, phi: Tensor) -> Tensor:
        root: Tensor = torch.linalg.solve_triangular(self.factor, phi.mT, upper=False).mT
        return root
