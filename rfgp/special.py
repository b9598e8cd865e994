"""Numerically delicate functions of the spectra, with their derivations."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from scipy import special
from scipy.interpolate import CubicHermiteSpline
from torch import Tensor

from rfgp.autograd import Array, as_array, numpy_function
from rfgp.errors import InvalidArgumentError

MAX_ORDER = 100.0
"""The largest order of the Matern function. Beyond it the kernel is Gaussian to half a percent."""


_NOTHING = 750.0
"""The largest t. There exp(-t) is 0, and powers of 2 t up to the 12th are finite in single precision."""


def matern(t: Tensor, nu: float) -> Tensor:
    """Return M(t) = 2^(1-nu) / Gamma(nu) t^nu K_nu(t) at t >= 0, (...) -> (...).

    M is differentiable, with M(0) = 1. For nu = p + 1/2 it is a polynomial times an exponential,
    exp(-t) p! / (2p)! sum_i (p + i)! / (i! (p - i)!) (2t)^(p-i). Otherwise K_nu is from scipy, with
    M'(t) = -2^(1-nu) / Gamma(nu) t^nu K_(nu-1)(t). At t = 0, where it may be infinite, the derivative is set to 0.

    Examples:
        >>> matern(torch.tensor([0.0, 1.0]), 0.5).round(decimals=4)
        tensor([1.0000, 0.3679])
    """
    t = t.clamp(max=_NOTHING)
    if has_polynomial(nu):
        return _half_integer(t, round(nu - 0.5))
    return numpy_function(
        t, partial(_matern_values, nu=nu), lambda t, grad: grad * _matern_slope(t, nu), is_elementwise=True
    )


def has_polynomial(nu: float) -> bool:
    """Return whether M is a polynomial times an exponential.

    A degree without sufficient accuracy does not count.

    Examples:
        >>> has_polynomial(1.5), has_polynomial(2.0)
        (True, False)
    """
    return nu - 0.5 == round(nu - 0.5) and nu <= 12.5


def _half_integer(t: Tensor, p: int) -> Tensor:
    scale = math.factorial(p) / math.factorial(2 * p)
    first, *others = (scale * math.factorial(p + i) / math.factorial(i) / math.factorial(p - i) for i in range(p + 1))
    decay = (-t).exp_()
    if not others:
        return decay
    total = (2 * first * t).add_(others[0])
    for coefficient in others[1:]:  # Horner, from the highest power (2t)^p
        total = (total * (2 * t)).add_(coefficient)
    return total * decay


def _matern_values(t: Array, nu: float) -> Array:
    """Return M(t). Three terms of the series at 0 are exact if K_nu overflows, as t^2 / nu is tiny."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        logs = (1 - nu) * math.log(2) - special.gammaln(nu) + nu * np.log(t) + np.log(special.kve(nu, t)) - t
        values = np.exp(logs)
    small = ~np.isfinite(values) | (t == 0)
    x = t[small] ** 2 / 4
    series = 1 - x / (nu - 1) * (1 - x / (2 * (nu - 2))) if nu > 2.5 else np.ones_like(x)
    values[small] = series
    return np.asarray(values)


def _matern_slope(t: Array, nu: float) -> Array:
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_size = (1 - nu) * math.log(2) - special.gammaln(nu) + nu * np.log(t) + np.log(special.kve(nu - 1, t)) - t
        slope = -np.exp(log_size)
    small = ~np.isfinite(slope) | (t == 0)
    x = t[small] ** 2 / 4
    slope[small] = -t[small] / (2 * (nu - 1)) * (1 - x / (nu - 2)) if nu > 2.5 else 0.0
    return np.asarray(slope)


# --- the radial distribution of the rational quadratic kernel ----------------------------------------------------
#
# (1 + r^2 / (2 alpha))^-alpha = E exp(-s r^2 / 2) with s ~ Gamma(alpha, rate alpha), so |omega|^2 = s chi^2_d
# and, with x = rho^2 / (2 s),
#
#     P(|omega| <= rho) = E gammainc(d/2, x),      d/d(log rho) P = 2 E x^(d/2) exp(-x) / Gamma(d/2).
#
# In log s the integrand is smooth, about 1 / sqrt(alpha) wide, and decays at least exponentially on both sides. So
# the trapezoidal rule converges geometrically. With steps of a quarter of that width the error is about 1e-16. The
# quantile is tabulated once for (d, alpha) as log rho over logit P, with its exact slope, and interpolated by
# cubics.

_STEP = 0.25
_KNOTS = 3000
_MAX_LOGIT = 37.5  # of 1 - 2^-53, and a little more


def scaled_bessel(most: int, s: Tensor) -> Tensor:
    """Return exp(-s) I_j(s) for j = 0, ..., J, (J + 1,), at s > 0, 0-d.

    It is differentiable once. The derivative is exp(-s) ((I_(j-1)(s) + I_(j+1)(s)) / 2 - I_j(s)), with I_(-1) = I_1.

    Args:
        most: J.
        s: The argument, float64.

    Examples:
        >>> scaled_bessel(2, torch.tensor(1.0).double()).round(decimals=4).tolist()
        [0.4658, 0.2079, 0.0499]
    """

    def pull_back(s: Array, grad: Array) -> Array:
        values = special.ive(np.arange(most + 2), s)
        before = np.concatenate([values[1:2], values[:most]])
        return np.asarray(grad @ ((before + values[1:]) / 2 - values[:-1]))

    return numpy_function(s, lambda s: np.asarray(special.ive(np.arange(most + 1), s)), pull_back)


def rational_quadratic_quantile(u: Array, d: int, alpha: float) -> Array:
    """Return the quantiles of |omega| in d dimensions at u (...) in (0, 1), (...).

    Examples:
        >>> rational_quadratic_quantile(np.array([0.25, 0.75]), 1, 1.0).round(3).tolist()  # exponential
        [0.203, 0.98]
    """
    return np.asarray(np.exp(_log_quantile(d, alpha)(special.logit(u))))


def rational_quadratic_radial(rho: Array, d: int, alpha: float) -> tuple[Array, Array, Array]:
    """Return P(|omega| <= rho), P(|omega| > rho) and the first's slope in log rho.

    Each is (k,), at rho (k,).

    Examples:
        >>> below, above, _ = rational_quadratic_radial(np.array([1.0]), 2, 1.0)
        >>> round(float(below[0] + above[0]), 6)
        1.0
    """
    with np.errstate(divide="ignore", over="ignore", under="ignore"):  # norms of the heaviest tails reach 0
        log_x, log_weight, log_slope, step = _mixture(rho, d, alpha)
        x, weight, slope = np.exp(log_x), np.exp(log_weight) * step, 2 * np.exp(log_slope)
    return special.gammainc(d / 2, x) @ weight, special.gammaincc(d / 2, x) @ weight, slope @ weight


def rational_quadratic_log_density(r: Array, d: int, alpha: float) -> Array:
    """Return the log density of |omega| in d dimensions at r (...) > 0, (...).

    It uses the same rule in logarithms.

    Examples:
        >>> rational_quadratic_log_density(np.array([1.0]), 2, 1.0).shape
        (1,)
    """
    flat = np.asarray(r, dtype=np.float64).ravel()
    _, log_weight, log_slope, step = _mixture(flat, d, alpha)
    total = special.logsumexp(log_weight + log_slope, axis=1) + math.log(2 * step)
    return np.reshape(total - np.log(flat), np.shape(r))


def _mixture(rho: Array, d: int, alpha: float) -> tuple[Array, Array, Array, float]:
    """Return log x (k, q), log weights (q,) of q nodes, half slopes of P in log rho (k, q) in logs, and the step."""
    step = _STEP / max(1.0, math.sqrt(alpha))
    log_s = np.arange(-40 / alpha - math.sqrt(80 / alpha), math.sqrt(80 / alpha), step)
    log_weight = alpha * math.log(alpha) - special.gammaln(alpha) + alpha * log_s - alpha * np.exp(log_s)
    log_x = 2 * np.log(rho)[:, None] - math.log(2) - log_s
    return log_x, log_weight, d / 2 * log_x - np.exp(log_x) - special.gammaln(d / 2), step


@lru_cache(maxsize=64)
def _log_quantile(d: int, alpha: float) -> CubicHermiteSpline:
    exponent = min(d, 2 * alpha)  # P is about rho^exponent near 0
    log_rho = np.linspace(-(_MAX_LOGIT + 3) / exponent - 3, math.log(60 + 8 * math.sqrt(d / min(alpha, 1.0))), _KNOTS)
    below, above, slope = rational_quadratic_radial(np.exp(log_rho), d, alpha)
    inside = (below > 1e-300) & (above > 1e-300) & (slope > 1e-300)
    log_rho, below, above, slope = (values[inside] for values in (log_rho, below, above, slope))
    logit = np.log(below) - np.log(above)
    rising = np.concatenate(([True], np.diff(logit) > 0))
    per_logit = below * above / slope
    return CubicHermiteSpline(logit[rising], log_rho[rising], per_logit[rising], extrapolate=True)


# --- powers times Bessel functions ---------------------------------------------------------------------------


def log_power_bessel(squares: Tensor, order: float) -> Tensor:
    """Return log(z^v K_v(z)) at squares z^2 >= 0, v > 0, (...) -> (...), float64.

    Its derivative in z is -K_(v-1)(z) / K_v(z). At z = 0 it is log(2^(v-1) Gamma(v)). Its derivative in z^2 may be
    infinite there, and is set to 0. The order is v.

    Examples:
        >>> log_power_bessel(torch.tensor([0.0, 1.0]).double(), 0.5).diff().round(decimals=4).tolist()
        [-1.0]
    """

    def value(squares: Array) -> Array:
        z = np.sqrt(squares)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = order * np.log(z) + np.log(special.kve(order, z)) - z
        limit = (order - 1) * math.log(2) + math.lgamma(order)
        return np.where(np.isfinite(found), np.minimum(found, limit), limit)

    def pull_back(squares: Array, grad: Array) -> Array:
        z = np.sqrt(squares)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = -special.kve(order - 1, z) / special.kve(order, z) / (2 * z)
        return grad * np.where(np.isfinite(slope), slope, 0.0)

    return numpy_function(squares, value, pull_back, is_elementwise=True)


def gamma_mixture_log_density(squares: Tensor, d: int, alpha: float) -> Tensor:
    """Return the log density of omega in d dimensions at |omega|^2, (F,) -> (F,).

    For the rational quadratic kernel, omega is Gaussian with a Gamma-distributed variance of shape and rate alpha.
    With v = alpha - d / 2 > 0 and z = sqrt(2 alpha) |omega| the density is
    (2 pi)^(-d/2) alpha^(d/2) 2^(1-v) / Gamma(alpha) z^v K_v(z).

    Examples:
        >>> squares = torch.linspace(-20, 20, 2001).double().square()
        >>> round(float(gamma_mixture_log_density(squares, 1, 2.0).exp().sum() * 0.02), 3)
        1.0
    """
    order = alpha - d / 2
    constant = 0.5 * d * math.log(alpha / (2 * math.pi)) + (1 - order) * math.log(2) - math.lgamma(alpha)
    return constant + log_power_bessel(2 * alpha * squares, order)


def student_t_log_density(squares: Tensor, d: int, freedom: float) -> Tensor:
    """Return the log density of the d-variate t at |omega|^2, (F,) -> (F,), float64.

    Examples:
        >>> student_t_log_density(torch.zeros(1).double(), 1, 1.0).exp().round(decimals=4).tolist()  # 1 / pi
        [0.3183]
    """
    half = freedom / 2
    constant = math.lgamma(half + d / 2) - math.lgamma(half) - 0.5 * d * math.log(freedom * math.pi)
    return constant - (half + d / 2) * torch.log1p(squares / freedom)


def elementwise(function: Any, values: Tensor) -> Tensor:
    """Apply a numpy function elementwise on the CPU, (...) -> (...), float64.

    Examples:
        >>> elementwise(np.sqrt, torch.tensor([4.0]))
        tensor([2.], dtype=torch.float64)
    """
    return torch.as_tensor(np.asarray(function(as_array(values)), dtype=np.float64))


# --- averages over a uniform direction ---------------------------------------------------------------------
#
# For u uniform on the unit sphere of R^d, E cos(t u_1) = 0F1(; d/2; -t^2/4) and E cosh(t u_1) = 0F1(; d/2; t^2/4),
# both 1 at t = 0 (Abramowitz and Stegun 9.1.20, 9.1.69). scipy computes the function to 1e-10 up to d = 100. From about
# d = 200 on its Bessel functions underflow at small t. Then the power series is summed, whose terms add up to at most
# exp(t^2 / (2 d)). If that is below e^18, the absolute error is 1e-8. Otherwise the value itself is below 2e-8.

_MAX_SCIPY = 100
_MAX_EXPONENT = 18.0


def sphere_cosine(t: Array, d: int) -> Array:
    """Return E cos(t u_1), u uniform on the sphere of R^d, at t (...), (...).

    Examples:
        >>> sphere_cosine(np.array([0.0, np.pi]), 1).round(6).tolist()  # the cosine
        [1.0, -1.0]
    """
    t = np.asarray(t, dtype=np.float64)
    if d <= _MAX_SCIPY:
        return np.asarray(special.hyp0f1(d / 2, -(t**2) / 4))
    far = t**2 / (2 * d) > _MAX_EXPONENT
    x = np.where(far, 0.0, -(t**2) / 4)
    total, term = np.ones_like(x), np.ones_like(x)
    for k in range(1, 200):
        term = term * x / (k * (d / 2 + k - 1))
        total += term
        if np.abs(term).max(initial=0.0) < 1e-18:
            break
    return np.asarray(np.where(far, 0.0, total))


def log_sphere_cosh(t: Array, d: int) -> Array:
    """Return log E cosh(t u_1), u uniform on the sphere of R^d, t (...) >= 0, (...).

    Examples:
        >>> np.exp(log_sphere_cosh(np.array([1.0]), 1)).round(4).tolist()  # cosh(1)
        [1.5431]
    """
    t = np.asarray(t, dtype=np.float64)
    far = t > 600.0
    near = np.log(special.hyp0f1(d / 2, np.where(far, 0.0, t) ** 2 / 4))
    return np.where(far, _log_cosh_series(np.where(far, t, 1.0), d), near) if far.any() else np.asarray(near)


def _log_cosh_series(t: Array, d: int) -> Array:
    """Return the power series in logarithms. Its largest term is at k < t / 2, and 40 sqrt(t) further terms suffice."""
    k = np.arange(int(t.max() / 2 + 40 * math.sqrt(t.max())))
    constants = special.gammaln(d / 2) - special.gammaln(k + 1) - special.gammaln(d / 2 + k)
    flat = [special.logsumexp(2 * k * math.log(value / 2) + constants) for value in t.ravel()]
    return np.reshape(flat, t.shape)


def kummer(d: int, x: Array) -> Array:
    """Return 1F1(d; d/2; x), (...) -> (...).

    For negative x, Kummer's transformation gives exp(x) 1F1(-d/2; d/2; -x). Below -500 it is the leading term at
    infinity, Gamma(d/2) / Gamma(-d/2) (-x)^-d, which is 0 for even d and below 10^-2 d. Above 500 it is inf.

    Examples:
        >>> kummer(2, np.array([-1.0, 0.0])).round(4).tolist()
        [0.0, 1.0]
    """
    x = np.asarray(x, dtype=np.float64)
    near = np.clip(x, -500.0, 500.0)
    positive = np.where(x > 500, np.inf, special.hyp1f1(d, d / 2, np.maximum(near, 0)))
    negative = np.exp(np.minimum(near, 0)) * special.hyp1f1(-d / 2, d / 2, np.maximum(-near, 0))
    with np.errstate(under="ignore", over="ignore"):
        size = np.exp(special.gammaln(d / 2) - special.gammaln(-d / 2) - d * np.log(np.maximum(-x, 500.0)))
    far = 0.0 if d % 2 == 0 else special.gammasgn(-d / 2) * size
    return np.asarray(np.where(x >= 0, positive, np.where(x < -500, far, negative)))


def unit_quadrature() -> tuple[Array, Array]:
    """Return 200 nodes (200,) in (0, 1) and weights (200,) with sum 1.

    It is Gauss-Legendre quadrature in t after u = t^3 (10 - 15 t + 6 t^2), which smooths functions with singular ends.

    Examples:
        >>> u, weights = unit_quadrature()
        >>> round(float(weights @ np.log(u)), 6)
        -1.0
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    t = (nodes + 1) / 2
    return t**3 * (10 - 15 * t + 6 * t**2), weights / 2 * 30 * t**2 * (1 - t) ** 2


def direction_average(features: str, num_dims: int) -> Callable[[Array], Array]:
    """Return C of Fourier features or H of positive ones in R^d, (...) -> (...).

    Raises:
        InvalidArgumentError: If the features are unknown.

    Examples:
        >>> direction_average("fourier", 3)(np.array([0.0])).tolist()
        [1.0]
    """
    if features == "fourier":
        return lambda t: sphere_cosine(t, num_dims)
    if features == "laplace":
        return lambda t: np.exp(log_sphere_cosh(t, num_dims))
    raise InvalidArgumentError(f"features must be one of fourier, laplace, got {features!r}.")
