"""What a coupling can be learned for."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rfgp import features as feature_maps
from rfgp import metrics
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features import softmax
from rfgp.linalg import finite_rows, read_numbers
from rfgp.spectra import Gaussian, Spectrum

Objective = Callable[[Frequencies], Tensor]
"""From frequencies (m, d) and weights, differentiable in both, to what is minimised, 0-d."""


def kernel_error(
    x: Any,  # (n, d)
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of the couplings paper's Eq. 35, the root mean squared kernel error over pairs of inputs.

    Args:
        x: Inputs divided by the lengthscale, (n, d).
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    rows, kind = finite_rows(x, least=2), feature_maps.by_name(features)
    exact = (spectrum or Gaussian()).kernel_between(rows, rows)

    def objective(frequencies: Frequencies) -> Tensor:
        phi = kind(frequencies)(rows)
        error: Tensor = (phi @ phi.mT - exact).square().mean().sqrt()
        return error

    return objective


def posterior_divergence(
    x: Any,  # (n, d)
    num_train: int,
    noise: float,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of the expected KL between exact and approximate posteriors, in nats per test point.

    Args:
        x: Inputs divided by the lengthscale, (n, d), training rows first.
        num_train: The number of training rows.
        noise: The noise variance divided by the outputscale.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    rows, kind = finite_rows(x, least=2), feature_maps.by_name(features)
    exact = (spectrum or Gaussian()).kernel_between(rows, rows)

    def objective(frequencies: Frequencies) -> Tensor:
        phi = kind(frequencies)(rows)
        return metrics.expected_posterior_kl(exact, phi @ phi.mT, num_train, noise)

    return objective


def attention_error(
    queries: Any,  # (..., n, d)
    keys: Any,  # (..., k, d)
    *,
    scale: float | None = None,
) -> Objective:
    """Return the objective of attention, the mean squared error of the row-normalised scores of positive features.

    A factor that a row's scores have in common costs nothing here, which is why other couplings are best for it than
    for the kernel.

    Source: Reid et al. (2024), section 5, where couplings for it are an open question.

    Args:
        queries: As attention meets them, (..., n, d).
        keys: (..., k, d).
        scale: Of their products; None: 1 / sqrt(d).

    Raises:
        InvalidArgumentError: inputs that are not finite, have no rows, or do not belong together.
    """
    q, k = (torch.tensor(read_numbers(*pair)) for pair in (("Queries", queries), ("Keys", keys)))
    if min(q.ndim, k.ndim) < 2 or q.shape[-1] != k.shape[-1] or q.numel() * k.numel() == 0:
        raise InvalidArgumentError(
            f"Queries (..., n, d) and keys (..., k, d) must share d, got {tuple(q.shape)} and {tuple(k.shape)}."
        )
    if not bool(torch.isfinite(q).all() and torch.isfinite(k).all()):
        raise InvalidArgumentError("Queries and keys must be finite.")
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    q, k = root * q, root * k
    exact = (q @ k.mT).softmax(-1)

    def objective(frequencies: Frequencies) -> Tensor:
        error: Tensor = (_row_normalised(frequencies, q, k) - exact).square().mean()
        return error

    return objective


def _row_normalised(frequencies: Frequencies, q: Tensor, k: Tensor) -> Tensor:
    """Return the estimated scores (..., n, k) over their row sums, stabilised for each feature."""
    side = softmax.Positive(frequencies).left
    assert isinstance(side, softmax.PositiveMap)
    left, right = side.log_values(q), side.log_values(k)
    peak = right.detach().amax(-2, keepdim=True)
    rows = left + peak
    scores = (rows - rows.detach().amax(-1, keepdim=True)).exp() @ (right - peak).exp().mT
    normalised: Tensor = scores / scores.sum(-1, keepdim=True)
    return normalised
