"""Scores of predictions against observations, and distances between an approximation and the exact process.

All functions accept log-normal predictions (`Prediction.exp`), with targets in their own units. Predictions under
non-Gaussian likelihoods are scored as distributions of observations. If the model was fitted with exposures, pass
`predict(X).observed(exposure=...)`, and likewise trials and censoring. Divergences use Laplace pseudo-observations.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError, SolverError
from rfgp.linalg import cholesky, real_array
from rfgp.messages import check_count
from rfgp.torch_context import own_names, with_torch_defaults

# --- Stochastic Lanczos quadrature for traces of functions of C_1^-1 C_2, from products and solves -------------------

MAX_STEPS = 200
TOLERANCE = 1e-4
"""The relative change of all traces below which the Lanczos steps end."""
_WAIT = 3


class Operator(Protocol):
    """A covariance matrix C (n, n) as an operator."""

    def times(self, v: Tensor) -> Tensor:
        """Return C v, (n, p)."""

    def solve(self, v: Tensor) -> Tensor:
        """Return C^-1 v, (n, p)."""

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of N(0, C), (n, count).

        Args:
            count: The number of draws.
            generator: A CPU generator.
        """


def quadrature(
    first: Operator,
    second: Operator,
    draws: Tensor,  # (n, p) of N(0, C_1)
    function: Callable[[Tensor], Tensor],
) -> Tensor:  # (p,)
    """Estimate the sum of a function over the eigenvalues of C_1^-1 C_2 for each draw.

    B = C_1^-1 C_2 is symmetric in <a, b> = a^T C_1 b, and E <w, f(B) w> = tr f(B) for w = C_1^-1 u, u ~ N(0, C_1). The
    ratio of <w, f(B) w> and <w, w> is independent of <w, w>, whose mean is n. Therefore n times the ratio is an
    estimate with a lower variance, which vanishes if f is constant.

    Args:
        first: The covariance C_1.
        second: The covariance C_2.
        draws: Draws of N(0, C_1), (n, p).
        function: f, applied to eigenvalues.

    Returns:
        The estimate for each draw, (p,).

    Raises:
        SolverError: If the traces still change after `MAX_STEPS` steps, or are not finite.

    Examples:
        >>> import torch
        >>> class Scaled:
        ...     def __init__(self, c):
        ...         self.c = c
        ...
        ...     def times(self, v):
        ...         return self.c * v
        ...
        ...     def solve(self, v):
        ...         return v / self.c
        >>> draws = torch.ones(4, 1, dtype=torch.float64)
        >>> round(float(quadrature(Scaled(1.0), Scaled(2.0), draws, torch.log)), 4)  # 4 log 2
        2.7726
    """
    v = first.solve(draws)
    norm = (v * draws).sum(0).sqrt()
    v, image = v / norm, draws / norm  # image = C_1 v
    before, image_before, off_diagonal = torch.zeros_like(v), torch.zeros_like(v), torch.zeros_like(norm)
    diagonals: list[Tensor] = []
    off_diagonals: list[Tensor] = []
    sums: list[Tensor] = []
    for _ in range(min(MAX_STEPS, len(v))):
        y = second.times(v)
        diagonals.append((v * y).sum(0))
        sums.append(len(v) * _gauss(diagonals, off_diagonals, function))
        if _is_settled(sums):
            return sums[-1]
        following = first.solve(y) - diagonals[-1] * v - off_diagonal * before
        image_following = y - diagonals[-1] * image - off_diagonal * image_before
        square = (following * image_following).sum(0)
        if not bool((square > torch.finfo(v.dtype).eps * diagonals[-1] ** 2).all()):
            return sums[-1]  # the space of a probe is exhausted
        before, image_before, off_diagonal = v, image, square.sqrt()
        v, image = following / off_diagonal, image_following / off_diagonal
        off_diagonals.append(off_diagonal)
    if len(v) <= MAX_STEPS:
        return sums[-1]
    raise SolverError(
        f"Traces at {len(v)} points must settle within {MAX_STEPS} Lanczos steps, but still change. Add noise."
    )


def _gauss(diagonals: list[Tensor], off_diagonals: list[Tensor], function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the quadrature by Lanczos matrices with these diagonals (p,) and off-diagonals (p,)."""
    matrices = torch.diag_embed(torch.stack(diagonals, dim=1))
    if off_diagonals:
        off_diagonal = torch.stack(off_diagonals, dim=1)
        matrices = matrices + torch.diag_embed(off_diagonal, 1) + torch.diag_embed(off_diagonal, -1)
    values, vectors = torch.linalg.eigh(matrices)
    out: Tensor = (vectors[:, 0].square() * function(values)).sum(1)
    return out


def _is_settled(sums: list[Tensor]) -> bool:
    if len(sums) <= _WAIT:
        return False
    recent = torch.stack(sums[-_WAIT - 1 :])
    return bool(((recent - recent[-1]).abs().amax(0) <= TOLERANCE * recent[-1].abs()).all())


# --- Divergences between Gaussian predictions and processes ----------------------------------------------------------


class GaussianDistribution(Protocol):
    """The part of a `Prediction` that the metrics use.

    It consists of float64 tensors in the user's units.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.ExactGP().condition([[0.0], [1.0]], [0.0, 1.0])
        >>> rfgp.metrics.kl_divergence(gp.predict([[0.5]]), gp.predict([[0.5]]))  # a `Prediction` is one
        0.0
    """

    def observed(self) -> Self:
        """Return the distribution of observations, noise included."""

    def mean_tensor(self) -> Tensor:
        """Return the mean (n,)."""

    def variance_tensor(self) -> Tensor:
        """Return the marginal variances (n,)."""

    def covariance_tensor(self) -> Tensor:
        """Return the covariance (n, n)."""


class OperatorDistribution(GaussianDistribution, Protocol):
    """A distribution whose covariance matrix need not be formed.

    Examples:
        >>> import graphs
        >>> import rfgp
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 2)]], metric="euclidean")
        >>> gp = rfgp.RoadGP(roads, seed=0).condition([(0, 0.2), (1, 0.5)], [1.0, 2.0])
        >>> gp.predict([(0, 0.5), (1, 0.1)]).observed().operator() is not None
        True
    """

    def operator(self) -> Operator | None:
        """Return the covariance as an operator. None if it has to be formed."""


def kl_divergence(first: GaussianDistribution, second: GaussianDistribution, *, per_point: bool = False) -> float:
    """Return KL(first || second) of the joint distributions of observations, in nats.

    The noise is included. Without it, an approximation with fewer features than points has a singular covariance, and
    the divergence would only measure the jitter.

    Under a non-Gaussian likelihood both latent posteriors are compared through Laplace pseudo-observations: f plus
    Gaussian noise of variance 1 / W at each point. W is the Fisher information at the mean of `first`. Points with
    little information about f therefore have little weight.

    Args:
        first: Usually the exact process, at n points.
        second: The approximation at the same points.
        per_point: Whether to divide by n.

    Raises:
        InvalidArgumentError: If the two have different numbers of points, no points, or different likelihoods.
        NotPositiveDefiniteError: If a covariance cannot be factorized.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> exact = rfgp.GP(k.RBF(), approximation=rfgp.Exact()).condition(X, np.sin(X[:, 0]))
        >>> p = exact.predict(X[:5])
        >>> abs(rfgp.metrics.kl_divergence(p, p)) < 1e-9
        True
    """
    p, q, noise = _seen(first, second)
    difference = _same_points(p, q)
    if difference.ndim > 1:
        raise InvalidArgumentError("Predictions must have one output, got several. Compare one output at a time.")
    factor_p = cholesky(p.covariance_tensor() + noise, "The first covariance")
    factor_q = cholesky(q.covariance_tensor() + noise, "The second covariance")
    shift = torch.linalg.solve_triangular(factor_q, difference[:, None], upper=False)
    total = _kl_of_factors(factor_p, factor_q) + 0.5 * shift.square().sum()
    return float(total) / (len(difference) if per_point else 1)


class KLEstimate(NamedTuple):
    """A stochastic estimate of a divergence, in nats.

    Attributes:
        value: The estimate.
        error: Its standard error.

    Examples:
        >>> import rfgp
        >>> rfgp.metrics.KLEstimate(value=1.5, error=0.1).value
        1.5
    """

    value: float
    error: float


@with_torch_defaults()
def estimate_kl(
    first: OperatorDistribution,
    second: OperatorDistribution,
    *,
    num_probes: int = 8,
    seed: int = 0,
    per_point: bool = False,
) -> KLEstimate:
    """Estimate KL(first || second) of joint distributions of observations, in nats.

    The estimate is for any number of points. It applies to one output, and to sparse precisions and sparse features of
    graphs. Their covariances C_1 and C_2 are only multiplied with and solved for. Let r be the eigenvalues of
    C_1^-1 C_2. Then

        KL = (sum (1 / r - 1 + log r) + (m_1 - m_2)^T C_2^-1 (m_1 - m_2)) / 2.

    The sum is estimated by stochastic Lanczos quadrature in the inner product of C_1, with each probe scaled to its
    mean length. The quadratic form is solved. Conjugate gradients stop at a relative residual of 1e-8.

    Args:
        first: Usually the exact process, at n points.
        second: The approximation at the same points.
        num_probes: The number of random probes, at least 2. The standard error falls with their square root.
        seed: Seed of the probes.
        per_point: Whether to divide by n.

    Returns:
        The estimate and its standard error.

    Raises:
        InvalidArgumentError: If the two have different numbers of points, or none. Also if a distribution has several
            outputs, no noise, or a covariance that has to be formed. Use `kl_divergence` for those.

    Source: Ubaru, Chen and Saad (2017), "Fast estimation of tr(f(A)) via stochastic Lanczos quadrature", in another
    inner product.

    Examples:
        >>> import graphs
        >>> import rfgp
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 2)]], metric="euclidean")
        >>> places, y = [(0, 0.2), (1, 0.5), (1, 0.9)], [1.0, 2.0, 1.0]
        >>> p, q = (rfgp.RoadGP(roads, lengthscale=s, seed=0).condition(places, y).predict(places) for s in (1.0, 2.0))
        >>> estimate = rfgp.metrics.estimate_kl(p, q, num_probes=256)
        >>> abs(estimate.value - rfgp.metrics.kl_divergence(p, q)) < 5 * estimate.error
        True
    """
    check_count("num_probes", num_probes, least=2)
    p, q = normal_of(first).observed(), normal_of(second).observed()
    difference = _same_points(p, q)
    exact, other = _operator(p), _operator(q)
    generator = torch.Generator().manual_seed(seed)
    sums = quadrature(exact, other, exact.draw(num_probes, generator), lambda r: 1 / r - 1 + r.log())
    shift = float(difference @ other.solve(difference[:, None])[:, 0])
    size = len(difference) if per_point else 1
    error = float(sums.std()) / num_probes**0.5
    return KLEstimate((float(sums.mean()) + shift) / 2 / size, error / 2 / size)


def _seen(first: Any, second: Any) -> tuple[Any, Any, Tensor]:
    """Return two distributions to compare, and the additional noise (n, n) of Laplace pseudo-observations."""
    p, q = normal_of(first), normal_of(second)  # logarithms of both have the same divergence
    likelihoods = [likelihood_of(one) for one in (p, q)]
    if type(likelihoods[0]) is not type(likelihoods[1]):
        raise InvalidArgumentError(
            f"Both predictions must have the same likelihood, got {likelihoods[0]!r} and {likelihoods[1]!r}."
        )
    if likelihoods[0] is None:
        return p.observed(), q.observed(), torch.zeros((), dtype=torch.float64)
    if likelihoods[0].num_latents > 1:
        raise InvalidArgumentError("Predictions must have one latent function. Compare their probabilities instead.")
    unit = float(p.scale)
    return p, q, (unit**2 / likelihoods[0].fisher(p.mean_tensor().detach() / unit)).diag()


def _operator(distribution: OperatorDistribution) -> Operator:
    operator = distribution.operator()
    if operator is None:
        raise InvalidArgumentError(
            "estimate_kl needs one output with noise, through a sparse precision or sparse features of a graph by "
            "conjugate gradients. Use kl_divergence, which takes any prediction at up to 2,000 points."
        )
    return operator


_FACTORED = (torch.float32, torch.float64)


def expected_posterior_kl(
    kernel: Tensor,  # (n, n)
    approximate: Tensor,  # (n, n)
    num_train: int,
    noise: float,
    *,
    per_point: bool = True,
) -> Tensor:  # ()
    """Return the expected KL(exact || approximate) between posteriors, in nats.

    The expectation is over training targets. The posteriors are those of noisy targets at the last rows, given noisy
    targets at the first. Training targets are drawn from the exact prior. By the chain rule their mean is the KL of the
    joint priors minus that of the priors at the training rows, so no targets are needed. The result is differentiable.

    Args:
        kernel: The exact kernel matrix, training rows first.
        approximate: Its estimate.
        num_train: The number of training rows, at least 1 and below n.
        noise: The noise variance, in the kernel's units, positive.
        per_point: Whether to divide by the number of test rows.

    Raises:
        InvalidArgumentError: If num_train or noise is out of range, or the matrices have other shapes.
        NotPositiveDefiniteError: If a matrix cannot be factorized.

    Examples:
        >>> import torch
        >>> x = torch.linspace(0, 1, 6, dtype=torch.float64)
        >>> kernel = torch.exp(-(x[:, None] - x).square())
        >>> float(expected_posterior_kl(kernel, kernel, num_train=4, noise=0.1))
        0.0
    """
    n = len(kernel) if isinstance(kernel, Tensor) and kernel.ndim else 0
    check_count("num_train", num_train, least=0)
    if not all(isinstance(matrix, Tensor) and matrix.dtype in _FACTORED for matrix in (kernel, approximate)):
        raise InvalidArgumentError("kernel and approximate must be tensors of float32 or float64.")
    if kernel.shape != (n, n) or approximate.shape != (n, n) or not 0 < num_train < n or not noise > 0:
        raise InvalidArgumentError("kernel and approximate must be (n, n), with 0 < num_train < n and noise > 0.")
    part = slice(0, num_train)
    total = _prior_kl(kernel, approximate, noise) - _prior_kl(kernel[part, part], approximate[part, part], noise)
    out: Tensor = total / (n - num_train if per_point else 1)
    return out


def _prior_kl(kernel: Tensor, approximate: Tensor, noise: float) -> Tensor:
    """Return the KL of two centered Gaussian distributions with noise."""
    eye = noise * torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    first = cholesky(kernel + eye, "The exact kernel matrix")
    second = cholesky(approximate + eye, "The approximate kernel matrix")
    return _kl_of_factors(first, second)


def _kl_of_factors(first: Tensor, second: Tensor) -> Tensor:
    """Return the divergence between normal distributions of one mean from Cholesky factors of their covariances."""
    ratio = torch.linalg.solve_triangular(second, first, upper=False)
    logs = second.diagonal().log().sum() - first.diagonal().log().sum()
    total: Tensor = 0.5 * (ratio.square().sum() - len(first)) + logs
    return total


def likelihood_of(prediction: Any) -> Any:
    """Return the likelihood of a prediction's observations, or None if it is Gaussian.

    Args:
        prediction: The prediction.
    """
    return None if getattr(prediction, "of_observations", None) is None else prediction.observed().likelihood


def normal_of(prediction: Any) -> Any:
    """Return the joint normal prediction, of the logarithm if it is log-normal, without scales of residuals.

    Args:
        prediction: The prediction.
    """
    return getattr(gaussian_of(prediction), "unscaled", gaussian_of(prediction))


def gaussian_of(prediction: Any) -> Any:
    """Return a prediction, or that of the logarithm if the prediction is log-normal.

    Args:
        prediction: The prediction.
    """
    return getattr(prediction, "log", prediction)


def _same_points(p: GaussianDistribution, q: GaussianDistribution) -> Tensor:
    mean_p, mean_q = p.mean_tensor().detach(), q.mean_tensor().detach()
    if mean_p.shape != mean_q.shape or not len(mean_p):
        raise InvalidArgumentError(
            f"Both predictions must have the same points, at least one, got {len(mean_p)} and {len(mean_q)}."
        )
    return mean_p - mean_q.to(mean_p.device)


# --- Scores of predictions against observations ----------------------------------------------------------------------


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
    if likelihood is not None and likelihood.has_classes:
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
    if observed.likelihood.has_classes:
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
    """Return a distribution of observations if it has the exposures or trials that its model needs."""
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
    return torch.tensor(real_array("Values", values))


def __dir__() -> list[str]:
    helpers = ("Operator", "gaussian_of", "likelihood_of", "normal_of", "quadrature")
    return [name for name in own_names(globals()) if name not in helpers]
