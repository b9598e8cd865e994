"""Features of inducing points, and the selection of the points.

The Nystrom approximation of a kernel at M points Z is Q(x, x') = k(x, Z) k(Z, Z)^-1 k(Z, x'). k - Q is positive
semidefinite: it is the covariance of the process conditioned on its values at Z. The features are
phi(x) = L^-1 k(Z, x) with L L^T = k(Z, Z) + j I. A Gaussian process with these features is the subset of regressors
(deterministic training conditional) of the inducing points (Quinonero-Candela and Rasmussen 2005). The jitter j lowers
Q a little, so that k - Q stays positive semidefinite.

Rounding. Float32 values of k(Z, x) have errors of about u = 6e-8, and L^-1 multiplies them by up to 1 / sqrt(j). So
phi_32 = phi + e with E |e|^2 about u^2 tr (k(Z, Z) + j I)^-1. Most of e lies in directions of the weights that no row
determines. There it adds all of s^2 |e|^2 to the posterior variance of a point, which is about noise / n for each
degree of freedom. A larger j rounds less but lowers Q more. With 1e-5 some standard deviations were up to 25 % too
small and others too large. So a Gaussian process has one j for both precisions. Features of new points are float64.
Features of rows are float32 only if n s^2 E |e|^2 / noise is small (`rfgp.solvers.lowrank`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from torch import Tensor, nn

from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, half_solve
from rfgp.spectra import Spectrum

JITTER = {torch.float64: 1e-8, torch.float32: 1e-5}
"""The default jitter of `Nystrom` by the dtype of its inputs. The factor is computed in float64."""
MEASURED = 128
"""The largest number of inducing points at which rounding errors are measured."""
SAMPLED, MIN_SAMPLE = {"kmeans": 20, "pivoted-cholesky": 2}, 10_000
"""The rows that points are selected from: a number for each point, and the minimum number of rows. Pivots take M n
numbers and M^2 n operations for n rows."""
ITERATIONS = 10
"""The number of iterations of Lloyd's algorithm."""
_MIN_RESIDUAL_FRACTION = 1e-10
"""The fraction of the total variance below which further pivots are not informative."""


class Nystrom(nn.Module):
    """Features phi(x) = L^-1 k(Z, x) of the kernel of a spectrum at inducing points.

    phi(x) . phi(z) is the Nystrom approximation (Williams and Seeger 2001). Up to rounding it is at most k(x, x) on the
    diagonal. The factor L is kept, unless gradients in the points are required.

    Args:
        points: Z (M, d), in lengthscales, as the inputs are.
        spectrum: The spectrum of the kernel.
        jitter: j, positive. If None, 1e-8, and 1e-5 for float32 inputs, whose rounding errors it bounds.

    Raises:
        InvalidArgumentError: If there are no points.

    Examples:
        >>> from rfgp import features, spectra
        >>> phi = features.Nystrom(torch.linspace(-2, 2, 9)[:, None], spectra.Gaussian())
        >>> z = phi(torch.tensor([[0.3]]).double())
        >>> z.shape, round(float(z @ z.mT), 4)
        (torch.Size([1, 9]), 1.0)
    """

    def __init__(self, points: Tensor, spectrum: Spectrum, jitter: float | None = None) -> None:
        super().__init__()
        if points.ndim != 2 or len(points) == 0:
            raise InvalidArgumentError(f"Inducing points must be (M, d) with M > 0, got {tuple(points.shape)}.")
        self.points, self.spectrum, self.jitter = points, spectrum, jitter
        self._kept: dict[float, Tensor] = {}

    @property
    def num_features(self) -> int:
        """The number M of features."""
        return len(self.points)

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, M)
        """Return the features of x, in its dtype.

        They are differentiable in x and the points.

        Args:
            x: The inputs divided by the lengthscale, (..., n, d).

        Returns:
            The features, (..., n, M).
        """
        return self.spectrum.kernel_between(x, self.points.to(x)) @ self._whitening(x.dtype).mT.to(x)

    def _whitening(self, dtype: torch.dtype) -> Tensor:
        """Return L^-1 (M, M), float64, with the jitter of features of this dtype."""
        jitter = JITTER.get(dtype, JITTER[torch.float32]) if self.jitter is None else self.jitter
        if jitter in self._kept:
            return self._kept[jitter]
        z = self.points.double()
        whitening = whitening_of(self.spectrum.kernel_between(z, z), jitter)
        if not self.points.requires_grad:
            self._kept[jitter] = whitening
        return whitening


def whitening_of(
    kernel: Tensor,  # (M, M)
    jitter: Tensor | float,
) -> Tensor:  # (M, M)
    """Return L^-1 with L L^T = K + jitter I.

    Args:
        kernel: K, the kernel at the inducing points, (M, M).
        jitter: The jitter.

    Examples:
        >>> whitening_of(torch.eye(1), 3.0).tolist()
        [[0.5]]
    """
    identity = torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    return half_solve(cholesky(kernel + jitter * identity, "The kernel at the inducing points"), identity)


def mean_square_error(
    features: Callable[[Tensor], Tensor],
    points: Tensor,  # (M, d)
) -> float:
    """Return the mean squared error of float32 features over inducing points x.

    It is E |phi_32(x) - phi(x)|^2.

    Args:
        features: phi, which maps inputs (n, d) to features in their dtype.
        points: Z, scaled as the inputs are. At most `MEASURED` of them are used.

    Examples:
        >>> from rfgp import features, spectra
        >>> points = torch.linspace(-2, 2, 5)[:, None]
        >>> 0 < mean_square_error(features.Nystrom(points, spectra.Gaussian(), 1e-5), points) < 1e-8
        True
    """
    x = points.detach()[:: -(-len(points) // MEASURED)].float()
    with torch.no_grad():
        errors = features(x).double() - features(x.double())
    return float(errors.square().sum(1).mean())


def by_k_means(
    x: Tensor,  # (n, d)
    count: int,
    generator: np.random.Generator,
) -> Tensor:  # (M, d)
    """Return `count` centers of rows by Lloyd's algorithm from a k-means++ start.

    If there are at most `count` distinct rows, these are returned.

    Source: Arthur and Vassilvitskii (2007) for the start.

    Args:
        x: The rows, (n, d).
        count: The number of centers.
        generator: The generator of the start.

    Returns:
        The centers, (M, d), float64.

    Examples:
        >>> x = torch.tensor([[0.0], [0.2], [5.0], [5.2]])
        >>> by_k_means(x, 2, np.random.default_rng(0)).numpy().round(3).tolist()
        [[0.1], [5.1]]
    """
    rows = np.unique(x.double().numpy(), axis=0)
    if len(rows) <= count:
        return torch.from_numpy(rows)
    centers = rows[_spread_out(rows, count, generator)]
    means, _ = kmeans2(rows, centers, iter=ITERATIONS, minit="matrix", missing="warn")
    return torch.from_numpy(np.unique(means, axis=0))


def _spread_out(rows: NDArray[Any], count: int, generator: np.random.Generator) -> list[int]:
    """Return indices of rows for the start of k-means++.

    Each row is drawn in proportion to its squared distance from the nearest earlier one.
    """
    chosen = [int(generator.integers(len(rows)))]
    squares = np.full(len(rows), np.inf)
    while len(chosen) < count:
        squares = np.minimum(squares, np.square(rows - rows[chosen[-1]]).sum(1))
        if squares.sum() == 0:  # the squares underflow
            break
        chosen.append(int(generator.choice(len(rows), p=squares / squares.sum())))
    return chosen


def by_pivots(
    x: Tensor,  # (n, d)
    count: int,
    covariance: Callable[[Tensor, Tensor], Tensor],
    generator: np.random.Generator,
    variances: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:  # (M, d)
    """Select distinct rows by randomly pivoted Cholesky.

    Each row is drawn in proportion to its variance given the earlier ones. If no variance remains, the others are drawn
    with equal probabilities, as shorter lengthscales will need them.

    Source: Chen, Epperly, Tropp and Webber (2023), randomly pivoted Cholesky, Algorithm 2.1.

    Args:
        x: The rows.
        count: The number of rows to select. All distinct rows are returned if there are fewer.
        covariance: Maps rows a and b to their covariance (n_a, n_b).
        generator: The generator of the draws.
        variances: Maps rows a to their variances (n_a,). If None, they are 1.

    Returns:
        The selected rows, (M, d), float64.

    Examples:
        >>> from rfgp import spectra
        >>> x = torch.linspace(0, 1, 50)[:, None].double()
        >>> by_pivots(x, 3, spectra.Gaussian().kernel_between, np.random.default_rng(0)).shape
        torch.Size([3, 1])
    """
    rows, counts = np.unique(x.double().numpy(), axis=0, return_counts=True)
    x, repetitions, count = torch.from_numpy(rows), torch.from_numpy(counts), min(count, len(rows))
    columns = x.new_zeros(count, len(x))
    variance_left = x.new_ones(len(x)) if variances is None else variances(x).clone()
    spent = _MIN_RESIDUAL_FRACTION * float((repetitions * variance_left).sum())
    chosen: list[int] = []
    for j in range(count):
        chances = repetitions * variance_left
        if float(chances.sum()) <= spent:
            break
        i = int(generator.choice(len(x), p=(chances / chances.sum()).numpy()))
        column = covariance(x, x[i : i + 1])[:, 0] - columns[:j, i] @ columns[:j]
        columns[j] = column / variance_left[i].sqrt()
        variance_left = (variance_left - columns[j].square()).clamp_min(0)
        variance_left[i] = 0
        chosen.append(i)
    others = np.setdiff1d(np.arange(len(x)), chosen)
    return x[[*chosen, *generator.permutation(others)[: count - len(chosen)].tolist()]]
