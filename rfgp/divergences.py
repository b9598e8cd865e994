"""Divergences between Gaussian predictions and processes: exact, estimated by probes, and expected over targets."""

from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky
from rfgp.quadrature import Operator, quadrature
from rfgp.torch_context import with_torch_defaults


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
