"""Features of inducing points, and the choice of the points.

The Nystrom approximation of a kernel at M points Z is Q(x, x') = k(x, Z) k(Z, Z)^-1 k(Z, x'); k - Q is positive
semidefinite: the covariance of what is left of the process once its values at Z are known. The features are
phi(x) = L^-1 k(Z, x) with L L^T = k(Z, Z) + j I, and a Gaussian process through them is the subset of regressors, or
deterministic training conditional, of these inducing points (Quinonero-Candela and Rasmussen 2005). The jitter j takes
a little from Q, so that k - Q stays positive semidefinite.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from torch import Tensor, nn

from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky
from rfgp.spectra import Spectrum

JITTER = {torch.float64: 1e-8, torch.float32: 1e-5}
"""By the dtype of the features; the factor is computed in float64. Of float32 rounding of k, 6e-8, reaches phi times
1 / sqrt(j) at most."""
SAMPLED, LEAST_SAMPLE = 20, 10_000
"""Rows of a sample that points are chosen from: so many for each, and at least."""
ITERATIONS = 10
"""Of Lloyd's algorithm."""
_SPENT = 1e-10
"""Of the mean variance: where no more is left, more points would say nothing."""


class Nystrom(nn.Module):
    """Features phi(x) = L^-1 k(Z, x) of the kernel of a spectrum at inducing points; see above.

    phi(x) . phi(z) is the Nystrom approximation (Williams and Seeger 2001), k(x, x) at most on the diagonal.

    Args:
        points: Z (M, d), in lengthscales, as inputs are.
        spectrum: Of the kernel.

    Raises:
        InvalidArgumentError: there are no points.
    """

    def __init__(self, points: Tensor, spectrum: Spectrum) -> None:
        super().__init__()
        if points.ndim != 2 or len(points) == 0:
            raise InvalidArgumentError(f"Inducing points must be (M, d) with M > 0, got {tuple(points.shape)}.")
        self.points, self.spectrum = points, spectrum

    @property
    def num_features(self) -> int:
        """The number M of features."""
        return len(self.points)

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, M)
        """Return the features of x, in its dtype; differentiable in x and the points."""
        z = self.points.double()
        gram = self.spectrum.kernel_between(z, z)
        jitter = JITTER.get(x.dtype, JITTER[torch.float32]) * torch.eye(len(z), dtype=z.dtype)
        factor = cholesky(gram + jitter, "The kernel at the inducing points")
        whitening = torch.linalg.solve_triangular(factor, torch.eye(len(z), dtype=z.dtype), upper=False)
        out: Tensor = self.spectrum.kernel_between(x, self.points.to(x)) @ whitening.mT.to(x)
        return out


def by_k_means(
    x: Tensor,  # (n, d)
    count: int,
    generator: np.random.Generator,
) -> Tensor:  # (M, d)
    """Return `count` centres of rows by Lloyd's algorithm from a k-means++ start, or all distinct rows if fewer.

    Source: Arthur and Vassilvitskii (2007) for the start.
    """
    rows = np.unique(x.double().numpy(), axis=0)
    if len(rows) <= count:
        return torch.from_numpy(rows)
    centers = rows[_spread_out(rows, count, generator)]
    found, _ = kmeans2(rows, centers, iter=ITERATIONS, minit="matrix", missing="warn")
    return torch.from_numpy(np.unique(found, axis=0))


def _spread_out(rows: NDArray[Any], count: int, generator: np.random.Generator) -> list[int]:
    """Return the numbers of rows, each drawn by its squared distance from the nearest of those before."""
    chosen = [int(generator.integers(len(rows)))]
    left = np.full(len(rows), np.inf)
    while len(chosen) < count:
        left = np.minimum(left, np.square(rows - rows[chosen[-1]]).sum(1))
        chosen.append(int(generator.choice(len(rows), p=left / left.sum())))
    return chosen


def by_pivots(
    x: Tensor,  # (n, d)
    count: int,
    spectrum: Spectrum,
    generator: np.random.Generator,
) -> Tensor:  # (M, d)
    """Return `count` rows, in lengthscales, each drawn by the variance that those before it leave; or fewer that do.

    Source: Chen, Epperly, Tropp and Webber (2023), randomly pivoted Cholesky, Algorithm 2.1.
    """
    x = x.double()
    columns, left = x.new_zeros(len(x), min(count, len(x))), x.new_ones(len(x))
    chosen: list[int] = []
    for j in range(columns.shape[1]):
        if float(left.mean()) <= _SPENT:
            break
        i = int(generator.choice(len(x), p=(left / left.sum()).numpy()))
        column = spectrum.kernel_between(x, x[i : i + 1])[:, 0] - columns[:, :j] @ columns[i, :j]
        columns[:, j] = column / left[i].sqrt()
        left = (left - columns[:, j].square()).clamp_min(0)
        left[i] = 0
        chosen.append(i)
    return x[chosen]
