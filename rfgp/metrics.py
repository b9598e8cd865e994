"""Scores of predictions against observations, and distances between an approximation and the exact process.

All functions accept log-normal predictions (`Prediction.exp`), with targets in their own units. Predictions under
non-Gaussian likelihoods are scored as distributions of observations. If the model was fitted with exposures, pass
`predict(X).observed(exposure=...)`. Divergences use Laplace pseudo-observations instead.
"""

import math
from typing import Any

import torch
from torch import Tensor

from rfgp.divergences import GaussianDistribution as GaussianDistribution
from rfgp.divergences import KLEstimate as KLEstimate
from rfgp.divergences import OperatorDistribution as OperatorDistribution
from rfgp.divergences import estimate_kl as estimate_kl
from rfgp.divergences import expected_posterior_kl as expected_posterior_kl
from rfgp.divergences import gaussian_of, likelihood_of
from rfgp.divergences import kl_divergence as kl_divergence
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import read_numbers


def rmse(y: Any, prediction: GaussianDistribution | Any) -> float:
    """Return the root mean squared error of a prediction, in the units of y.

    Args:
        y: The observations, (n,).
        prediction: A prediction at n points, or the predicted means, (n,).

    Raises:
        InvalidArgumentError: If y does not have the shape of the mean.

    Examples:
        >>> rmse([1.0, 2.0], [3.0, 4.0])
        2.0
    """
    prediction = _scored(prediction.observed() if likelihood_of(prediction) is not None else prediction)
    mean = prediction.mean_tensor() if hasattr(prediction, "mean_tensor") else _tensor(prediction)
    return float((_matching(y, mean) - mean).square().mean().sqrt())


def nlpd(y: Any, prediction: GaussianDistribution) -> float:
    """Return the mean negative log predictive density of observations.

    It is in nats per point. Marginal densities of observations are used. Units of y that are e times smaller add one
    nat per point.

    Args:
        y: The observations, (n,).
        prediction: A prediction at n points.

    Raises:
        InvalidArgumentError: If y does not have the shape of the mean, or a target of a log-normal prediction is not
            positive.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 50)[:, None]
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(X, np.sin(X[:, 0]))
        >>> rfgp.metrics.nlpd(np.sin(X[:, 0]), gp.predict(X)) < 0
        True
    """
    observed = _scored(gaussian_of(prediction).observed())
    if getattr(observed, "likelihood", None) is not None or _is_mixture(observed):
        return -float(_tensor(observed.log_prob(y)).mean())
    mean, variance = observed.mean_tensor(), observed.variance_tensor()
    targets = _matching(y, mean)
    values = _on_scale_of(prediction, targets)
    jacobian = 0.0 if values is targets else float(values.mean())
    if _has_scales(observed):
        return jacobian - float(_tensor(observed.log_prob(values)).mean())
    squared = (values - mean).square() / variance
    return float(0.5 * (squared + variance.log() + math.log(2 * math.pi)).mean()) + jacobian


def crps(y: Any, prediction: GaussianDistribution) -> float:
    """Return the mean continuous ranked probability score of observations.

    It is in the units of y. Lower is better. The score is the integral of (F(t) - [t >= y])^2 over t, with F the
    marginal distribution function of an observation. For a point prediction it is the absolute error. Closed forms
    exist for Gaussian distributions (Gneiting et al. 2005, Eq. 5), their mixtures (Grimit et al. 2006, Eq. 5) and
    log-normal ones (Baran and Lerch 2015, Eq. 4). Other distributions use 512 draws.

    Args:
        y: The observations, (n,).
        prediction: A prediction at n points.

    Raises:
        InvalidArgumentError: If y does not have the shape of the mean, or the observations are labels without an order.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 50)[:, None]
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(X, np.sin(X[:, 0]))
        >>> rfgp.metrics.crps(np.sin(X[:, 0]), gp.predict(X)) < 0.5
        True
    """
    observed = _scored(gaussian_of(prediction).observed())
    if _is_mixture(observed):
        return _crps_of_mixture(_matching(y, observed.mean_tensor()), observed.marginals())
    if getattr(observed, "likelihood", None) is not None or _has_scales(observed):
        return _crps_of_draws(y, prediction.observed())
    mean, deviation = observed.mean_tensor(), observed.variance_tensor().sqrt()
    targets = _matching(y, mean)
    values = _on_scale_of(prediction, targets)
    if values is targets:
        score = _mean_distance(values - mean, deviation) - deviation / math.sqrt(math.pi)
    else:
        z = (values - mean) / deviation
        shifted = torch.special.ndtr(z - deviation) + torch.special.ndtr(deviation / math.sqrt(2)) - 1
        score = targets * (2 * torch.special.ndtr(z) - 1) - 2 * (mean + 0.5 * deviation.square()).exp() * shifted
    return float(score.mean())


def _mean_distance(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return E |Z| for Z ~ N(mean, deviation^2), (...) each."""
    z = mean / deviation
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    out: Tensor = deviation * (2 * density + z * (2 * torch.special.ndtr(z) - 1))
    return out


def _crps_of_mixture(y: Tensor, mixture: Any) -> float:
    """Return the mean of E |Y - y| - E |Y - Y'| / 2 from absolute moments of Gaussians."""
    parts = list(zip(mixture.weights, mixture.means, mixture.squares, strict=True))
    score = torch.zeros_like(y)
    for weight, mean, variance in parts:
        score = score + weight * _mean_distance(y - mean, variance.sqrt())
        for other, m, v in parts:
            score = score - 0.5 * weight * other * _mean_distance(mean - m, (variance + v).sqrt())
    return float(score.mean())


def _crps_of_draws(y: Any, observed: Any) -> float:
    """Return the mean of E |Y - y| - E |Y - Y'| / 2 over draws of observations."""
    likelihood = getattr(observed, "likelihood", None)
    if likelihood is not None and likelihood.num_latents > 1:
        raise InvalidArgumentError("crps needs ordered observations, got labels. Use nlpd instead.")
    draws = _tensor(observed.sample(_DRAWS, seed=0)).sort(0).values
    targets = _matching(y, observed.mean_tensor())
    rank = torch.arange(1, _DRAWS + 1, dtype=torch.float64)[:, None]
    spread = 2 * ((2 * rank - _DRAWS - 1) * draws).sum(0) / (_DRAWS * (_DRAWS - 1))  # E |Y - Y'|
    return float(((draws - targets).abs().mean(0) - 0.5 * spread).mean())


_DRAWS = 512


def standardized_residuals(y: Any, prediction: GaussianDistribution) -> Tensor:
    """Return (y - mean) / sd of the marginal distributions of observations, (n,).

    The residuals are standard normal if the prediction is calibrated. Under a non-Gaussian likelihood or a mixture they
    are quantile residuals Phi^-1(F(y)), at most 8 in size. For counts and classes F is drawn uniformly between F(y - 1)
    and F(y) (Dunn and Smyth 1996, "Randomized quantile residuals").

    Args:
        y: The observations, (n,).
        prediction: A prediction at n points.

    Raises:
        InvalidArgumentError: If y does not have the shape of the mean, or the observations are labels without an order.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 50)[:, None]
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(X, np.sin(X[:, 0]))
        >>> rfgp.metrics.standardized_residuals(np.sin(X[:, 0]), gp.predict(X)).shape
        torch.Size([50])
    """
    observed = _scored(gaussian_of(prediction).observed())
    if _is_mixture(observed) or _has_scales(observed):
        below = _tensor(observed.cdf(_on_scale_of(prediction, _matching(y, observed.mean_tensor()))))
        quantiles: Tensor = torch.special.ndtri(below.clamp(1e-15, 1 - 1e-15)).detach()
        return quantiles
    if getattr(observed, "likelihood", None) is not None:
        return _quantile_residuals(y, observed)
    mean = observed.mean_tensor()
    residuals: Tensor = (_on_scale_of(prediction, _matching(y, mean)) - mean) / observed.variance_tensor().sqrt()
    return residuals.detach()


def _quantile_residuals(y: Any, observed: Any) -> Tensor:
    if observed.likelihood.num_latents > 1:
        raise InvalidArgumentError("Residuals need ordered observations, got labels. Use nlpd instead.")
    targets = _matching(y, observed.mean_tensor())
    high = _tensor(observed.cdf(targets))
    low = _tensor(observed.cdf(targets - 1)) if observed.likelihood.is_discrete else high
    share = torch.rand(len(high), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    out: Tensor = torch.special.ndtri((low + share * (high - low)).clamp(1e-15, 1 - 1e-15))
    return out


def interval_coverage(y: Any, prediction: GaussianDistribution, levels: Any) -> Tensor:
    """Return the share of observations inside central intervals, (k,).

    The intervals are those of the marginal distributions of observations. A calibrated prediction covers a share equal
    to the level.

    Args:
        y: The observations, (n,), or those of several outputs.
        prediction: A prediction at n points.
        levels: The k levels of the intervals, in (0, 1).

    Raises:
        InvalidArgumentError: If a level is not in (0, 1), or for the reasons of `standardized_residuals`.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 50)[:, None]
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(X, np.sin(X[:, 0]))
        >>> rfgp.metrics.interval_coverage(np.sin(X[:, 0]), gp.predict(X), [0.5, 0.9]).shape
        torch.Size([2])
    """
    level = _tensor(levels)
    if not bool(((level > 0) & (level < 1)).all()):
        raise InvalidArgumentError(f"levels must lie strictly between 0 and 1, got {level.tolist()}.")
    reached = torch.special.erf(standardized_residuals(y, prediction).abs() / math.sqrt(2))
    shares: Tensor = (reached.reshape(-1, 1) <= level.to(reached.device)).double().mean(0)
    return shares


def relative_frobenius_error(estimate: Any, exact: Any) -> float:
    """Return |estimate - exact| / |exact| in the Frobenius norm.

    Args:
        estimate: The estimate of the matrix.
        exact: The matrix, of the same shape.

    Raises:
        InvalidArgumentError: If the shapes differ.

    Examples:
        >>> relative_frobenius_error([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]])
        0.5
    """
    a, b = _tensor(estimate), _tensor(exact)
    if a.shape != b.shape:
        raise InvalidArgumentError(f"Both matrices must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}.")
    return float((a - b).norm() / b.norm())


def _scored(observed: Any) -> Any:
    """Return a distribution of observations if it has the exposures that its model needs."""
    if hasattr(observed, "check_scored"):
        observed.check_scored()
    return observed


def _is_mixture(observed: Any) -> bool:
    """Return whether a distribution is a mixture of Gaussians."""
    return getattr(observed, "is_mixture", False)


def _has_scales(observed: Any) -> bool:
    """Return whether a distribution has scales of residuals."""
    return getattr(observed, "scales", None) is not None


def _on_scale_of(prediction: Any, y: Tensor) -> Tensor:
    """Return targets (n,), or their logarithms if the prediction is log-normal.

    Raises:
        InvalidArgumentError: If a target has no logarithm.
    """
    if not hasattr(prediction, "log"):
        return y
    if not bool((y > 0).all()):
        raise InvalidArgumentError(f"Targets of a log-normal prediction must be positive, got {float(y.min()):g}.")
    return y.log()


def _matching(y: Any, mean: Tensor) -> Tensor:
    values = _tensor(y).to(mean.device)
    if values.shape != mean.shape or not mean.numel():
        raise InvalidArgumentError(f"y must have shape {tuple(mean.shape)}, got {tuple(values.shape)}.")
    return values


def _tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor) and not values.is_complex():
        return values.detach().double()
    return torch.tensor(read_numbers("Values", values))


def __dir__() -> list[str]:
    helpers = ("Operator", "gaussian_of", "likelihood_of", "normal_of", "quadrature")
    names = (name for name, value in globals().items() if getattr(value, "__module__", None) == __name__)
    return sorted(name for name in names if name not in helpers)
