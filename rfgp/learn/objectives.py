"""Objectives for learning a coupling."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rfgp import features as feature_maps
from rfgp import metrics
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features import softmax
from rfgp.linalg import finite_rows, real_array
from rfgp.spectra import Gaussian, Spectrum

Objective = Callable[[Frequencies], Tensor]
"""A function of frequencies (m, d) and their weights, differentiable in both. Its value, a 0-d tensor, is minimized."""


def kernel_error(
    x: Any,  # (n, d)
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of Eq. 35 of Reid et al. (2024), the root mean squared kernel error over pairs of inputs.

    Args:
        x: Inputs divided by the lengthscale, (n, d).
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Returns:
        A function of frequencies (m, d) whose value is a 0-d tensor.

    Examples:
        >>> from rfgp import couplings, learn
        >>> objective = learn.kernel_error([[0.0], [1.0]])
        >>> 0 <= float(objective(couplings.by_name("iid").sample(16, 1, seed=0))) < 0.5
        True
    """

    def error(exact: Tensor, estimate: Tensor) -> Tensor:
        return (estimate - exact).square().mean().sqrt()

    return _of_kernels(error, x, spectrum, features)


def posterior_divergence(
    x: Any,  # (n, d)
    num_train: int,
    noise: float,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of the expected KL divergence between posteriors, in nats per test point.

    It compares the exact posterior with that of the features.

    Args:
        x: Inputs divided by the lengthscale, (n, d), training rows first.
        num_train: The number of training rows.
        noise: The noise variance divided by the outputscale.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Returns:
        A function of frequencies (m, d) whose value is a 0-d tensor.

    Examples:
        >>> from rfgp import couplings, learn
        >>> objective = learn.posterior_divergence([[0.0], [1.0], [0.5]], num_train=2, noise=0.1)
        >>> float(objective(couplings.by_name("iid").sample(16, 1, seed=0))) > 0
        True
    """
    divergence = partial(metrics.expected_posterior_kl, num_train=num_train, noise=noise)
    return _of_kernels(divergence, x, spectrum, features)


def _of_kernels(
    compare: Callable[[Tensor, Tensor], Tensor], x: Any, spectrum: Spectrum | None, features: str
) -> Objective:
    """Return a function of frequencies that compares the exact kernel of inputs (n, d) with its estimate."""
    rows, kind = finite_rows(x, least=2), feature_maps.by_name(features)
    exact = (spectrum or Gaussian()).kernel_between(rows, rows)

    def objective(frequencies: Frequencies) -> Tensor:
        phi = kind(frequencies)(rows)
        return compare(exact, phi @ phi.mT)

    return objective


def attention_error(
    queries: Any,  # (..., n, d)
    keys: Any,  # (..., k, d)
    *,
    scale: float | None = None,
) -> Objective:
    """Return the objective of softmax attention, for positive features.

    It is the mean squared error of the normalized scores. A common factor of all scores of a row cancels. So other
    couplings are optimal for this error than for the kernel.

    Source: Reid et al. (2024), section 5, where couplings for it are an open question.

    Args:
        queries: Typical queries, (..., n, d).
        keys: Typical keys, (..., k, d).
        scale: The factor of their products. If None, 1 / sqrt(d).

    Returns:
        A function of frequencies (m, d) whose value is a 0-d tensor.

    Raises:
        InvalidArgumentError: If inputs are not finite, have no rows, or differ in d.

    Examples:
        >>> from rfgp import couplings, learn
        >>> objective = learn.attention_error(torch.eye(2), torch.eye(2))
        >>> 0 < float(objective(couplings.by_name("iid").sample(16, 2, seed=0))) < 1
        True
    """
    q, k = (torch.tensor(real_array(*pair)) for pair in (("Queries", queries), ("Keys", keys)))
    if min(q.ndim, k.ndim) < 2 or q.shape[-1] != k.shape[-1] or q.numel() * k.numel() == 0:
        raise InvalidArgumentError(
            f"Queries (..., n, d) and keys (..., k, d) must share d and have rows, got {tuple(q.shape)} and "
            f"{tuple(k.shape)}."
        )
    if not bool(torch.isfinite(q).all() and torch.isfinite(k).all()):
        raise InvalidArgumentError("Queries and keys must be finite, got entries that are not.")
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    q, k = root * q, root * k
    exact = (q @ k.mT).softmax(-1)

    def objective(frequencies: Frequencies) -> Tensor:
        error: Tensor = (_row_normalised(frequencies, q, k) - exact).square().mean()
        return error

    return objective


def _row_normalised(frequencies: Frequencies, q: Tensor, k: Tensor) -> Tensor:
    """Return the estimated scores (..., n, k) over their row sums, stabilized for each feature."""
    side = softmax.Positive(frequencies).left
    assert isinstance(side, softmax.PositiveMap)
    left, right = side.log_values(q), side.log_values(k)
    peak = right.detach().amax(-2, keepdim=True)
    rows = left + peak
    scores = (rows - rows.detach().amax(-1, keepdim=True)).exp() @ (right - peak).exp().mT
    normalised: Tensor = scores / scores.sum(-1, keepdim=True)
    return normalised
