"""How far a prediction is from the truth, and an approximation from the exact process.

Each takes log-normal predictions (`Prediction.exp`) as well, with targets in their own units, and predictions under
likelihoods that are not normal: of their observations, but for divergences, which are of working observations.
"""

import math
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from rfgp.ambient import plain
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, read_numbers
from rfgp.quadrature import Operator, quadrature


class GaussianLaw(Protocol):
    """What is used of a `Prediction`: float64 tensors in the user's units."""

    def observed(self) -> Self:
        """Return the law with noise."""

    def mean_tensor(self) -> Tensor:
        """Return the mean (n,)."""

    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,)."""

    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n)."""


class OperatorLaw(GaussianLaw, Protocol):
    """A law whose covariance need not be formed."""

    def operator(self) -> Operator | None:
        """Return its covariance, or None."""


def kl_divergence(first: GaussianLaw, second: GaussianLaw, *, per_point: bool = False) -> float:
    """Return KL(first || second) of the joint observed laws, in nats.

    Of the observed laws, noise included, because with more points than features the latent law of
    an approximation is singular and its KL would only measure the jitter. Under a likelihood that is not normal the
    two posteriors are Laplace's, of the latent function, seen through working observations: f plus normal noise of the
    variance 1 / W at each point, W the Fisher information at the first's mean. Both are then seen alike, and a point of
    which an observation tells little counts little.

    Args:
        first: Usually the exact process, at n points.
        second: The approximation at the same points.
        per_point: Divide by n.

    Raises:
        InvalidArgumentError: the two are at different numbers of points, or at none, or under different likelihoods.
        NotPositiveDefiniteError: a covariance cannot be factorised.
    """
    p, q, noise = _seen(first, second)
    difference = _same_points(p, q)
    if difference.ndim > 1:
        raise InvalidArgumentError("The laws have several outputs; take the divergence of one at a time.")
    factor_p = cholesky(p.covariance_tensor() + noise, "The first law's covariance")
    factor_q = cholesky(q.covariance_tensor() + noise, "The second law's covariance")
    ratio = torch.linalg.solve_triangular(factor_q, factor_p, upper=False)
    shift = torch.linalg.solve_triangular(factor_q, difference[:, None], upper=False)
    log_ratio = factor_q.diagonal().log().sum() - factor_p.diagonal().log().sum()
    total = 0.5 * (ratio.square().sum() + shift.square().sum() - len(difference)) + log_ratio
    return float(total) / (len(difference) if per_point else 1)


class KLEstimate(NamedTuple):
    """A divergence from probes, nats, and its standard error."""

    value: float
    error: float


@plain()
def estimate_kl(
    first: OperatorLaw,
    second: OperatorLaw,
    *,
    num_probes: int = 8,
    seed: int = 0,
    per_point: bool = False,
) -> KLEstimate:
    """Estimate KL(first || second) of the joint observed laws of one output, in nats, at any number of points.

    For posteriors through sparse precisions and sparse features of graphs, whose covariances C_1 and C_2 are products
    and solves: with r the eigenvalues of C_1^-1 C_2,

        KL = (sum (1 / r - 1 + log r) + (m_1 - m_2)^T C_2^-1 (m_1 - m_2)) / 2,

    the sum by stochastic Lanczos quadrature in the inner product of C_1, each probe scaled to its mean length; the
    second part is solved for. What is solved for by conjugate gradients has a relative residual of 1e-8.

    Args:
        first: Usually the exact process, at n points.
        second: The approximation at the same points.
        num_probes: Draws, at least 2; the standard error falls with their root.
        seed: Of the draws.
        per_point: Divide by n.

    Raises:
        InvalidArgumentError: the two are at different numbers of points, or at none; a law has several outputs, no
            noise, or a covariance that has to be formed, for which there is `kl_divergence`.

    Source: Ubaru, Chen and Saad (2017), "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature", in another
    inner product.
    """
    check_count("num_probes", num_probes, least=2)
    p, q = _normal(first).observed(), _normal(second).observed()
    difference = _same_points(p, q)
    exact, other = _operator(p), _operator(q)
    generator = torch.Generator().manual_seed(seed)
    sums = quadrature(exact, other, exact.draw(num_probes, generator), lambda r: 1 / r - 1 + r.log())
    shift = float(difference @ other.solve(difference[:, None])[:, 0])
    size = len(difference) if per_point else 1
    error = float(sums.std()) / num_probes**0.5
    return KLEstimate((float(sums.mean()) + shift) / 2 / size, error / 2 / size)


def _seen(first: Any, second: Any) -> tuple[Any, Any, Tensor]:
    """Return two laws to compare, and the noise (n, n) that both are seen through beside their own."""
    p, q = _normal(first), _normal(second)  # logarithms of both have the same divergence
    laws = [_likelihood_of(law) for law in (p, q)]
    if type(laws[0]) is not type(laws[1]):
        raise InvalidArgumentError(f"The laws are under different likelihoods, {laws[0]!r} and {laws[1]!r}.")
    if laws[0] is None:
        return p.observed(), q.observed(), torch.zeros((), dtype=torch.float64)
    if laws[0].num_latents > 1:
        raise InvalidArgumentError("The laws have several outputs; compare their probabilities.")
    unit = float(p.scale)
    return p, q, (unit**2 / laws[0].fisher(p.mean_tensor().detach() / unit)).diag()


def _likelihood_of(law: Any) -> Any:
    """Return the likelihood of a law's observations, where it is not normal."""
    return None if getattr(law, "of_observations", None) is None else law.observed().likelihood


def _operator(law: OperatorLaw) -> Operator:
    operator = law.operator()
    if operator is None:
        raise InvalidArgumentError(
            "Estimates are of laws of one output with noise, through a sparse precision or sparse features of a graph "
            "by conjugate gradients; kl_divergence takes any law of up to 2,000 points."
        )
    return operator


def expected_posterior_kl(
    kernel: Tensor,  # (n, n)
    approximate: Tensor,  # (n, n)
    num_train: int,
    noise: float,
    *,
    per_point: bool = True,
) -> Tensor:  # ()
    """Return the mean over training targets of KL(exact || approximate) between posteriors, in nats; differentiable.

    Both are the laws of noisy targets at the last rows, given those at the first. By the chain rule the mean over the
    exact process's own targets is the KL of the joint prior laws less that of the training rows' alone:
    there is no y in it.

    Args:
        kernel: The exact kernel matrix, training rows first.
        approximate: Its estimate.
        num_train: The number of training rows, at least 1 and below n.
        noise: The noise variance, in the kernel's units, positive.
        per_point: Divide by the number of test rows.

    Raises:
        InvalidArgumentError: num_train or noise out of range, or matrices of other shapes.
        NotPositiveDefiniteError: a matrix cannot be factorised.
    """
    n = len(kernel) if isinstance(kernel, Tensor) and kernel.ndim else 0
    check_count("num_train", num_train, least=0)
    if not all(isinstance(matrix, Tensor) and matrix.dtype in _FACTORED for matrix in (kernel, approximate)):
        raise InvalidArgumentError("Two kernel matrices are needed, tensors of float32 or float64.")
    if kernel.shape != (n, n) or approximate.shape != (n, n) or not 0 < num_train < n or not noise > 0:
        raise InvalidArgumentError("Two (n, n) matrices, 0 < num_train < n and a positive noise are needed.")
    part = slice(0, num_train)
    total = _prior_kl(kernel, approximate, noise) - _prior_kl(kernel[part, part], approximate[part, part], noise)
    out: Tensor = total / (n - num_train if per_point else 1)
    return out


_FACTORED = (torch.float32, torch.float64)


def _prior_kl(kernel: Tensor, approximate: Tensor, noise: float) -> Tensor:
    """KL of two centred normal laws with noise."""
    eye = noise * torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    first = cholesky(kernel + eye, "The exact kernel matrix")
    second = cholesky(approximate + eye, "The approximate kernel matrix")
    ratio = torch.linalg.solve_triangular(second, first, upper=False)
    logs = second.diagonal().log().sum() - first.diagonal().log().sum()
    total: Tensor = 0.5 * (ratio.square().sum() - len(kernel)) + logs
    return total


def rmse(y: Any, prediction: GaussianLaw | Any) -> float:
    """Return the root mean squared error of a mean (n,) or a prediction against y (n,), in y's units."""
    if _likelihood_of(prediction) is not None:
        prediction = prediction.observed()
    mean = prediction.mean_tensor() if hasattr(prediction, "mean_tensor") else _tensor(prediction)
    return float((_matching(y, mean) - mean).square().mean().sqrt())


def nlpd(y: Any, prediction: GaussianLaw) -> float:
    """Return the mean negative log predictive density of observations y (n,), nats per point.

    Marginal densities of the observed law; one nat more per point if y is counted in units e times smaller.
    """
    observed = _normal(prediction).observed()
    if getattr(observed, "likelihood", None) is not None or _is_mixture(observed):
        return -float(_tensor(observed.log_prob(y)).mean())
    mean, variance = observed.mean_tensor(), observed.variance_tensor()
    targets = _matching(y, mean)
    values = _as_the_law(targets, prediction)
    squared = (values - mean).square() / variance
    jacobian = 0.0 if values is targets else float(values.mean())
    return float(0.5 * (squared + variance.log() + math.log(2 * math.pi)).mean()) + jacobian


def crps(y: Any, prediction: GaussianLaw) -> float:
    """Return the mean continuous ranked probability score of observations y (n,), in y's units; less is better.

    The integral of (F(t) - [t >= y])^2 over t, F the distribution function of the marginal observed law: the mean
    absolute error where that is a point. In closed form for normal laws (Gneiting et al. 2005, Eq. 5), mixtures of such
    (Grimit et al. 2006, Eq. 5) and log-normal ones (Baran and Lerch 2015, Eq. 4); of others by 512 draws.
    """
    observed = _normal(prediction).observed()
    if _is_mixture(observed):
        return _crps_of_mixture(_matching(y, observed.mean_tensor()), list(observed.parts()))
    if getattr(observed, "likelihood", None) is not None:
        return _crps_of_draws(y, observed)
    mean, deviation = observed.mean_tensor(), observed.variance_tensor().sqrt()
    targets = _matching(y, mean)
    values = _as_the_law(targets, prediction)
    z = (values - mean) / deviation
    below = torch.special.ndtr(z)
    if values is targets:
        density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
        score = deviation * (z * (2 * below - 1) + 2 * density - 1 / math.sqrt(math.pi))
    else:
        shifted = torch.special.ndtr(z - deviation) + torch.special.ndtr(deviation / math.sqrt(2)) - 1
        score = targets * (2 * below - 1) - 2 * (mean + 0.5 * deviation.square()).exp() * shifted
    return float(score.mean())


def _crps_of_mixture(y: Tensor, parts: Any) -> float:
    """Return the mean of E |Y - y| - E |Y - Y'| / 2, by the means of the absolute values of normal variables."""

    def far(mean: Tensor, variance: Tensor) -> Tensor:
        z = mean / variance.sqrt()
        density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
        mean_of_absolute: Tensor = variance.sqrt() * (2 * density + z * (2 * torch.special.ndtr(z) - 1))
        return mean_of_absolute

    score = torch.zeros_like(y)
    for weight, mean, variance in parts:
        score = score + weight * far(y - mean, variance)
        for other, m, v in parts:
            score = score - 0.5 * weight * other * far(mean - m, variance + v)
    return float(score.mean())


def _crps_of_draws(y: Any, observed: Any) -> float:
    """Return the mean of E |Y - y| - E |Y - Y'| / 2 over draws of observations."""
    if observed.likelihood.num_latents > 1:
        raise InvalidArgumentError("Labels have no order, and so no ranked probability score; take nlpd.")
    draws = _tensor(observed.sample(_DRAWS, seed=0)).sort(0).values
    targets = _matching(y, observed.mean_tensor())
    rank = torch.arange(1, _DRAWS + 1, dtype=torch.float64)[:, None]
    spread = 2 * ((2 * rank - _DRAWS - 1) * draws).sum(0) / (_DRAWS * (_DRAWS - 1))  # E |Y - Y'|
    return float(((draws - targets).abs().mean(0) - 0.5 * spread).mean())


_DRAWS = 512


def standardized_residuals(y: Any, prediction: GaussianLaw) -> Tensor:
    """Return (y - mean) / sd (n,) of the marginal observed law: standard normal if the law is right.

    Under a likelihood that is not normal they are quantiles of the normal law at the probability of at most y, at
    random between those of less than and of at most y where y is a count or one of two classes (Dunn and Smyth 1996,
    "Randomized quantile residuals"). Under a mixture they are those quantiles, 8 at most.
    """
    observed = _normal(prediction).observed()
    if _is_mixture(observed):
        below = _tensor(observed.cdf(_matching(y, observed.mean_tensor())))
        quantiles: Tensor = torch.special.ndtri(below.clamp(1e-15, 1 - 1e-15)).detach()
        return quantiles
    if getattr(observed, "likelihood", None) is not None:
        return _quantile_residuals(y, observed)
    mean = observed.mean_tensor()
    residuals: Tensor = (_as_the_law(_matching(y, mean), prediction) - mean) / observed.variance_tensor().sqrt()
    return residuals.detach()


def _quantile_residuals(y: Any, observed: Any) -> Tensor:
    if observed.likelihood.num_latents > 1:
        raise InvalidArgumentError("Labels have no order, and so no residuals.")
    targets = _matching(y, observed.mean_tensor())
    high = _tensor(observed.cdf(targets))
    low = _tensor(observed.cdf(targets - 1)) if observed.likelihood.is_discrete else high
    share = torch.rand(len(high), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    out: Tensor = torch.special.ndtri((low + share * (high - low)).clamp(1e-15, 1 - 1e-15))
    return out


def interval_coverage(y: Any, prediction: GaussianLaw, levels: Any) -> Tensor:
    """Return the share (k,) of observations y (n,) inside the central intervals of k levels in (0, 1).

    The intervals are those of the marginal observed law; a calibrated one covers a share equal to the level.
    """
    level = _tensor(levels)
    if not bool(((level > 0) & (level < 1)).all()):
        raise InvalidArgumentError("Levels lie strictly between 0 and 1.")
    reached = torch.special.erf(standardized_residuals(y, prediction).abs() / math.sqrt(2))
    shares: Tensor = (reached[:, None] <= level.to(reached.device)).double().mean(0)
    return shares


def relative_frobenius_error(estimate: Any, exact: Any) -> float:
    """Return |estimate - exact| / |exact| in the Frobenius norm, for two matrices of one shape."""
    a, b = _tensor(estimate), _tensor(exact)
    if a.shape != b.shape:
        raise InvalidArgumentError(f"The matrices have shapes {tuple(a.shape)} and {tuple(b.shape)}.")
    return float((a - b).norm() / b.norm())


def _is_mixture(observed: Any) -> bool:
    """Return whether a law is a mixture of normal ones."""
    return getattr(observed, "parts", None) is not None


def _normal(law: Any) -> Any:
    """Return a normal law, of the logarithm where a law is log-normal."""
    return getattr(law, "log", law)


def _as_the_law(y: Tensor, law: Any) -> Tensor:
    """Return targets (n,) as they are, or their logarithms where a law is log-normal.

    Raises:
        InvalidArgumentError: a target has no logarithm.
    """
    if not hasattr(law, "log"):
        return y
    if not bool((y > 0).all()):
        raise InvalidArgumentError(f"A log-normal law is of positive targets, got {float(y.min()):g}.")
    return y.log()


def _same_points(p: GaussianLaw, q: GaussianLaw) -> Tensor:
    mean_p, mean_q = p.mean_tensor().detach(), q.mean_tensor().detach()
    if mean_p.shape != mean_q.shape or not len(mean_p):
        raise InvalidArgumentError(
            f"Both laws must be at the same points, at least one; got {len(mean_p)} and {len(mean_q)}."
        )
    return mean_p - mean_q.to(mean_p.device)


def _matching(y: Any, mean: Tensor) -> Tensor:
    values = _tensor(y).to(mean.device)
    if values.shape != mean.shape or not mean.numel():
        raise InvalidArgumentError(f"y has shape {tuple(values.shape)}, the prediction {tuple(mean.shape)}.")
    return values


def _tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor) and not values.is_complex():
        return values.detach().double()
    return torch.tensor(read_numbers("Values", values))


def __dir__() -> list[str]:
    return sorted(name for name, value in globals().items() if getattr(value, "__module__", None) == __name__)
