"""Likelihoods, Laplace's approximation and variational inference by numpy and scipy, from their definitions.

Nothing here calls the package. Matrices are dense, and searches take as many steps as they need.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

STEPS = 20_000
PLACES = np.linspace(-9, 9, 181)
"""Nodes of the trapezoidal rule, in standard deviations. It is accurate for smooth functions."""
WEIGHTS = stats.norm.pdf(PLACES) / stats.norm.pdf(PLACES).sum()
FINE = np.linspace(-14, 14, 1401)
FINE_WEIGHTS = stats.norm.pdf(FINE) / stats.norm.pdf(FINE).sum()


@dataclass(frozen=True)
class Law:
    """The distribution of an observation y given f, with parameters by name.

    Attributes:
        distribution: Returns scipy's distribution at f.
        slopes: Returns the first two derivatives of the log density in f.
        information: Returns the curvature of Laplace's approximation. If None, the negative second derivative.
        majorizer: Returns the curvature of steps that never overshoot. If None, the negative second derivative.
    """

    distribution: Callable
    slopes: Callable
    information: Callable | None = None
    majorizer: Callable | None = None

    def log_density(self, y, f, **parameters):
        found = self.distribution(f, **parameters)
        return found.logpmf(y) if hasattr(found.dist, "logpmf") else found.logpdf(y)


def probit_slopes(y, f):
    z = (2 * y - 1) * f
    ratio = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(z))
    return (2 * y - 1) * ratio, -ratio * (z + ratio)


def negative_binomial_slopes(y, f, dispersion):
    m = np.exp(f)
    return (y - m) / (1 + dispersion * m), -m * (1 + dispersion * y) / (1 + dispersion * m) ** 2


def student_slopes(y, f, df, scale):
    total = df * scale**2 + (y - f) ** 2
    return (df + 1) * (y - f) / total, (df + 1) * ((y - f) ** 2 - df * scale**2) / total**2


def logistic_slopes(y, f, scale):
    z = np.tanh((y - f) / (2 * scale))
    return z / scale, -(1 - z**2) / (2 * scale**2)


def like(values, f):
    """Return numbers of rows (n,) with the dimensions of f, whose first axis is that of the rows."""
    return np.reshape(values, np.shape(values) + (1,) * (np.ndim(f) - np.ndim(values)))


class ExtraZeros:
    """Counts that are 0 with a probability, and otherwise have a distribution of scipy, given y > 0 if `is_hurdle`."""

    def __init__(self, base, probability, is_hurdle=False):
        self.base, self.pi, self.dist = base, probability, self
        self.share = (1 - probability) / (1 - base.pmf(0) if is_hurdle else 1.0)  # of the distribution above 0

    def pmf(self, y):
        return np.where(np.equal(y, 0), 1 - self.share * (1 - self.base.pmf(0)), self.share * self.base.pmf(y))

    def logpmf(self, y):
        return np.where(np.equal(y, 0), np.log(self.pmf(0)), np.log(self.share) + self.base.logpmf(y))

    def cdf(self, y):
        return np.where(np.less(y := np.asarray(y), 0), 0.0, 1 - self.share * self.base.sf(y))

    def mean(self):
        return self.share * self.base.mean()

    def var(self):
        return self.share * (self.base.var() + self.base.mean() ** 2) - self.mean() ** 2

    def rvs(self, random_state):
        shape = np.shape(self.base.mean())
        low = 1 - self.share * (1 - self.base.pmf(0))
        u = random_state.uniform(size=shape)
        return np.where(u < low, 0.0, self.base.ppf(1 - (1 - np.maximum(u, low)) / self.share))


class Ordered:
    """Classes with P(y <= k) = Phi(c_k - f). The moments are those of the indicators of the classes."""

    def __init__(self, f, cutpoints):
        self.ends, self.f, self.dist = np.r_[-np.inf, cutpoints, np.inf], np.asarray(f), self

    def pmf(self, y):
        y = np.asarray(y).astype(int)
        low, high = self.ends[y] - self.f, self.ends[y + 1] - self.f
        flip = low + high > 0
        return stats.norm.cdf(np.where(flip, -low, high)) - stats.norm.cdf(np.where(flip, -high, low))

    def logpmf(self, y):
        return np.log(self.pmf(y))

    def cdf(self, y):
        return stats.norm.cdf(
            self.ends[np.clip(np.floor(np.asarray(y)).astype(int) + 1, 0, len(self.ends) - 1)] - self.f
        )

    def mean(self):
        return np.stack([self.pmf(k) for k in range(len(self.ends) - 1)], -1)

    def var(self):
        return self.mean() * (1 - self.mean())

    def rvs(self, random_state):
        return np.searchsorted(self.ends[1:-1], self.f + random_state.normal(size=self.f.shape)).astype(float)


def beta_slopes(y, f, precision):
    a, b = precision * special.expit(f), precision * special.expit(-f)
    tilt, width = special.logit(y) - special.digamma(a) + special.digamma(b), a * b / precision
    curvature = special.polygamma(1, a) + special.polygamma(1, b)
    return width * tilt, width * (b - a) / precision * tilt - width**2 * curvature


def zero_inflated_slopes(y, f, zero_probability, dispersion=0.0):
    """By the chain rule, from dp / df of the probability p of a zero."""
    m = np.exp(f)
    none = np.where(dispersion > 0, (1 + dispersion * m) ** (-1 / max(dispersion, 1e-300)), np.exp(-m))
    d1 = -none * m / (1 + dispersion * m)
    d2 = none * (m / (1 + dispersion * m)) ** 2 - none * m / (1 + dispersion * m) ** 2
    p = zero_probability + (1 - zero_probability) * none
    first, second = (1 - zero_probability) * d1 / p, (1 - zero_probability) * d2 / p
    counts = negative_binomial_slopes(y, f, dispersion)
    return np.where(np.equal(y, 0), first, counts[0]), np.where(np.equal(y, 0), second - first**2, counts[1])


def hurdle_slopes(y, f, zero_probability):
    m = np.exp(f)
    share = m / -np.expm1(-m)
    second = -share * (1 - share * np.exp(-m))
    return np.where(np.equal(y, 0), 0.0, y - share), np.where(np.equal(y, 0), 0.0, second)


def ordinal_slopes(y, f, gaps):
    given = Ordered(f, np.r_[0, np.cumsum(np.asarray(gaps))])
    y = np.asarray(y).astype(int)
    low, high = np.clip(given.ends[y], -50, 50) - f, np.clip(given.ends[y + 1], -50, 50) - f
    first = (stats.norm.pdf(low) - stats.norm.pdf(high)) / given.pmf(y)
    return first, (low * stats.norm.pdf(low) - high * stats.norm.pdf(high)) / given.pmf(y) - first**2


@dataclass(frozen=True)
class CensoredLaw(Law):
    """A law of values that are below y (code -1), equal to y (0) or above y (1)."""

    def log_density(self, y, f, censored=0, **parameters):
        given, codes = self.distribution(f, **parameters), like(censored, f)
        return np.where(codes == 0, given.logpdf(y), np.where(codes > 0, given.logsf(y), given.logcdf(y)))


def normal_slopes(z, rate, codes):
    ratio = np.exp(stats.norm.logpdf(z) - stats.norm.logcdf(-codes * z))
    first = np.where(codes == 0, z, codes * ratio)
    second = np.where(codes == 0, 1.0, ratio * (ratio - codes * z))
    return rate * first, -(rate**2) * second


def weibull_slopes(y, f, shape, censored=0):
    h, codes = (y * np.exp(-f)) ** shape, like(censored, f)
    below = h * np.exp(-h) / -np.expm1(-h)
    first = np.where(codes == 0, h - 1, np.where(codes > 0, h, -below))
    second = np.where(codes < 0, below * (1 - h / -np.expm1(-h)), -h)
    return shape * first, shape**2 * second


LAWS = {
    "gaussian": Law(
        lambda f, noise: stats.norm(f, np.sqrt(noise)), lambda y, f, noise: ((y - f) / noise, 0 * f - 1 / noise)
    ),
    "bernoulli": Law(
        lambda f: stats.bernoulli(special.expit(f)),
        lambda y, f: (y - special.expit(f), -special.expit(f) * special.expit(-f)),
    ),
    "probit": Law(lambda f: stats.bernoulli(stats.norm.cdf(f)), probit_slopes),
    "poisson": Law(lambda f: stats.poisson(np.exp(f)), lambda y, f: (y - np.exp(f), -np.exp(f))),
    "negative-binomial": Law(
        lambda f, dispersion: stats.nbinom(1 / dispersion, 1 / (1 + dispersion * np.exp(f))),
        negative_binomial_slopes,
    ),
    "gamma": Law(
        lambda f, shape: stats.gamma(shape, scale=np.exp(f) / shape),
        lambda y, f, shape: (shape * (y * np.exp(-f) - 1), -shape * y * np.exp(-f)),
    ),
    "student-t": Law(
        lambda f, df, scale: stats.t(df, loc=f, scale=scale),
        student_slopes,
        lambda y, f, df, scale: np.full(len(f), (df + 1) / ((df + 3) * scale**2)),
        lambda y, f, df, scale: (df + 1) / (df * scale**2 + (y - f) ** 2),
    ),
    "logistic": Law(lambda f, scale: stats.logistic(f, scale), logistic_slopes),
    "zero-inflated-poisson": Law(
        lambda f, zero_probability: ExtraZeros(stats.poisson(np.exp(f)), zero_probability), zero_inflated_slopes
    ),
    "zero-inflated-negative-binomial": Law(
        lambda f, dispersion, zero_probability: ExtraZeros(
            stats.nbinom(1 / dispersion, 1 / (1 + dispersion * np.exp(f))), zero_probability
        ),
        zero_inflated_slopes,
    ),
    "hurdle-poisson": Law(
        lambda f, zero_probability: ExtraZeros(stats.poisson(np.exp(f)), zero_probability, is_hurdle=True),
        hurdle_slopes,
    ),
    "ordinal": Law(lambda f, gaps: Ordered(f, np.r_[0, np.cumsum(np.asarray(gaps))]), ordinal_slopes),
    "beta": Law(
        lambda f, precision: stats.beta(precision * special.expit(f), precision * special.expit(-f)), beta_slopes
    ),
    "binomial": Law(
        lambda f, trials=7: stats.binom(like(trials, f), special.expit(f)),
        lambda y, f, trials=7: (
            y - like(trials, f) * special.expit(f),
            -like(trials, f) * special.expit(f) * special.expit(-f),
        ),
    ),
    "weibull": CensoredLaw(lambda f, shape: stats.weibull_min(shape, scale=np.exp(f)), weibull_slopes),
    "tobit": CensoredLaw(
        lambda f, noise: stats.norm(f, np.sqrt(noise)),
        lambda y, f, noise, censored=0: normal_slopes((y - f) / noise**0.5, noise**-0.5, like(censored, f)),
    ),
    "lognormal": CensoredLaw(
        lambda f, noise: stats.lognorm(np.sqrt(noise), scale=np.exp(f)),
        lambda y, f, noise, censored=0: normal_slopes((np.log(y) - f) / noise**0.5, noise**-0.5, like(censored, f)),
    ),
}


class Laplace:
    """Laplace's approximation for one function (Rasmussen and Williams 2006, Sections 3.4 and 3.5).

    Args:
        law: The law of an observation.
        y: The observations (n,).
        kernel: The prior covariance of the rows, (n, n).
        mean: The prior mean, one number.
        weight: The number of times that each row counts, (n,).
        offset: The log exposures, (n,).
        parameters: The parameters of the law.
    """

    def __init__(self, law, y, kernel, mean, weight=1.0, offset=0.0, **parameters):
        self.kernel, self.mean, f = kernel, mean, np.full(len(y), mean)
        for _ in range(STEPS):
            first, second = law.slopes(y, f + offset, **parameters)
            curvature = weight * (-second if law.majorizer is None else law.majorizer(y, f + offset, **parameters))
            target = np.linalg.solve(
                np.eye(len(y)) + kernel * curvature, kernel @ (curvature * (f - mean) + weight * first)
            )
            change = mean + target - f
            f = f + change * min(1.0, 2.0 / np.abs(change).max())
            if np.abs(change).max() < 1e-12:
                break
        else:
            raise AssertionError("the mode was not found")
        first, second = law.slopes(y, f + offset, **parameters)
        information = -second if law.information is None else law.information(y, f + offset, **parameters)
        self.f, self.gradient, self.information = f, weight * first, np.maximum(weight * information, 1e-10)
        inside = np.eye(len(y)) + kernel * self.information
        value = (weight * law.log_density(y, f + offset, **parameters)).sum()
        self.evidence = value - 0.5 * (f - mean) @ self.gradient - 0.5 * np.linalg.slogdet(inside)[1]

    def moments(self, cross, outer):
        """Return the mean (m,) and covariance (m, m) at points with covariances (m, n) with rows and (m, m)."""
        total = self.kernel + np.diag(1 / self.information)
        return self.mean + cross @ self.gradient, outer - cross @ np.linalg.solve(total, cross.T)

    def without_rows(self):
        """Return the moments (n,) of f at each row without its own Gaussian factor."""
        variance = np.diag(self.moments(self.kernel, self.kernel)[1])
        left = 1 / (1 / variance - self.information)
        return self.f - left * self.gradient, left


def slopes_of_expected(law, y, mean, variance, **parameters):
    """Return the derivative of E log p(y | f) in the mean for f ~ N(mean, variance), and -2 times that in the variance.

    Moments and results are (n, 1).
    """
    f = mean + np.sqrt(variance) * PLACES
    first, second = law.slopes(y[:, None], f, **parameters)
    return (first @ WEIGHTS)[:, None], -(second @ WEIGHTS)[:, None]


def expected(law, y, mean, variance, **parameters):
    """Return E log p(y | f) for f ~ N(mean, variance), (n, 1) each."""
    return law.log_density(y[:, None], mean + np.sqrt(variance) * PLACES, **parameters) @ WEIGHTS


def slopes_of_expected_noise(y, mean, variance, noise):
    """Return the same derivatives for y ~ N(f, noise e^g), with moments (n, 2) of f and g."""
    ratio = np.exp(variance[:, 1] / 2 - mean[:, 1]) / noise
    square = ((y - mean[:, 0]) ** 2 + variance[:, 0]) * ratio
    first = np.stack([(y - mean[:, 0]) * ratio, 0.5 * square - 0.5], axis=1)
    return first, np.stack([ratio, 0.5 * square], axis=1)


def expected_noise(y, mean, variance, noise):
    """Return E log p(y | f, g), (n,)."""
    square = ((y - mean[:, 0]) ** 2 + variance[:, 0]) * np.exp(variance[:, 1] / 2 - mean[:, 1]) / noise
    return -0.5 * (np.log(2 * np.pi * noise) + mean[:, 1] + square)


class Variational:
    """The Gaussian with independent functions that maximizes the bound (Opper and Archambeau 2009).

    Args:
        expected: Maps means and variances (n, L) to E log p(y | f), (n,).
        slopes: Maps them to its derivatives in the means, and -2 times those in the variances, (n, L) each.
        kernels: The prior covariances of L functions, (n, n) each.
        means: The prior means, (L,).
        weight: The number of times that each row counts, (n,).
        damping: The length of a step.
    """

    def __init__(self, expected, slopes, kernels, means, weight=1.0, damping=0.5):
        n, self.means, self.kernels = len(kernels[0]), np.asarray(means), kernels
        weight = np.broadcast_to(weight, (n,))[:, None]
        precision, linear = np.full((n, len(kernels)), 1e-3), np.zeros((n, len(kernels)))
        for _ in range(STEPS):
            pairs = list(zip(kernels, precision.T, strict=True))
            covariances = [k - k @ np.linalg.solve(k + np.diag(1 / one), k) for k, one in pairs]
            m = np.stack([c @ b for c, b in zip(covariances, linear.T, strict=True)], axis=1)
            v = np.stack([np.diag(c) for c in covariances], axis=1)
            first, curvature = slopes(self.means + m, v)
            target = np.maximum(weight * curvature, 1e-10)
            changes = target - precision, target * m + weight * first - linear
            if max(np.abs(one).max() for one in changes) < 1e-9:
                break
            precision, linear = precision + damping * changes[0], linear + damping * changes[1]
        else:
            raise AssertionError("the maximum of the bound was not found")
        self.precision, self.linear, self.coefficients = precision, linear, linear - precision * m
        determinants = sum(np.linalg.slogdet(np.eye(n) + k * one)[1] for k, one in pairs)
        divergence = 0.5 * (determinants - (precision * v).sum() + (m * self.coefficients).sum())
        self.m, self.v = m, v
        self.evidence = (weight[:, 0] * expected(self.means + m, v)).sum() - divergence

    def moments(self, cross, outer, function=0):
        """Return the mean (m,) and covariance (m, m) of a function at points."""
        total = self.kernels[function] + np.diag(1 / self.precision[:, function])
        mean = self.means[function] + cross @ self.coefficients[:, function]
        return mean, outer - cross @ np.linalg.solve(total, cross.T)

    def without_rows(self):
        """Return the moments (n, L) of the functions at each row without its own factor."""
        left = 1 / (1 / self.v - self.precision)
        return self.means + left * (self.m / self.v - self.linear), left


class Softmax:
    """Laplace's approximation for C functions of C classes (Rasmussen and Williams 2006, Section 3.5).

    Args:
        labels: The labels (n,).
        kernel: The prior covariance of each function, (n, n).
        means: The prior means, (C,).
        weight: The number of times that each row counts, (n,).
    """

    def __init__(self, labels, kernel, means, weight):
        self.means, n, C = np.asarray(means), len(labels), len(means)
        K, hot = np.kron(np.eye(C), kernel), (np.arange(C)[:, None] == labels).astype(float)
        weight = np.broadcast_to(weight, (n,))
        f = mean = np.repeat(self.means, n)
        for _ in range(STEPS):
            p = special.softmax(f.reshape(C, n), axis=0)
            self.blocks = weight * (np.einsum("ci,cd->cdi", p, np.eye(C)) - np.einsum("ci,di->cdi", p, p))
            W = np.einsum("cdi,ij->cidj", self.blocks, np.eye(n)).reshape(C * n, C * n)
            gradient = (weight * (hot - p)).reshape(-1)
            change = mean + np.linalg.solve(np.eye(C * n) + K @ W, K @ (W @ (f - mean) + gradient)) - f
            f = f + change
            if np.abs(change).max() < 1e-12:
                break
        inside = np.eye(C * n) + K @ W
        value = (weight * (hot * special.log_softmax(f.reshape(C, n), axis=0)).sum(0)).sum()
        self.evidence = value - 0.5 * (f - mean) @ gradient - 0.5 * np.linalg.slogdet(inside)[1]
        self.f, self.gradient = f.reshape(C, n), gradient.reshape(C, n)
        self.total = np.linalg.solve(np.eye(C * n) + W @ K, W).reshape(C, n, C, n)
        self.posterior = np.linalg.solve(inside, K).reshape(C, n, C, n)

    def moments(self, left, right, outer):
        """Return means (m, C) without the prior mean, and covariances (m, m, C, C) of two sums of terms.

        Args:
            left: The covariance (m, n) of the first sum with the rows.
            right: That of the second sum.
            outer: The prior covariance (m, m) between both.
        """
        prior = np.einsum("ij,cd->ijcd", outer, np.eye(len(self.means)))
        return left @ self.gradient.T, prior - np.einsum("ip,cpdq,jq->ijcd", left, self.total, right)

    def without_rows(self):
        """Return means (n, C) and covariances (n, C, C) at each row without its own factor."""
        V = np.einsum("cidi->icd", self.posterior)
        left = np.linalg.inv(np.linalg.inv(V) - np.moveaxis(self.blocks, 2, 0))
        return self.f.T - np.einsum("icd,di->ic", left, self.gradient), left


def probabilities(mean, covariance):
    """Return E softmax(f) for f ~ N(mean, covariance) with three classes, (n, 3), by a product of Gauss's rules."""
    x, weight = np.polynomial.hermite_e.hermegauss(24)
    places = np.stack(np.meshgrid(x, x, x), -1).reshape(-1, 3)
    weights = np.prod(np.meshgrid(weight, weight, weight), 0).reshape(-1) / weight.sum() ** 3
    f = mean[:, None] + places @ np.swapaxes(np.linalg.cholesky(covariance + 1e-12 * np.eye(3)), 1, 2)
    return np.einsum("npc,p->nc", special.softmax(f, axis=2), weights)


class Observed:
    """Observations for f ~ N(mean, variance), (n,) each, by sums over a fine grid of f."""

    def __init__(self, law, mean, variance, offset=0.0, **parameters):
        f = (mean + offset)[:, None] + np.sqrt(variance)[:, None] * FINE
        of_values = {name: value for name, value in parameters.items() if name != "censored"}
        self.given = law.distribution(f, **of_values)
        self.log_density = lambda y: law.log_density(y, f, **parameters)
        mean, spread = (np.moveaxis(part, 1, -1) for part in (self.given.mean(), self.given.var()))
        self.mean = mean @ FINE_WEIGHTS
        self.variance = (spread + mean**2) @ FINE_WEIGHTS - self.mean**2

    def log_prob(self, y):
        """Return the log densities at y, (n,)."""
        return special.logsumexp(self.log_density(np.asarray(y)[:, None]), b=FINE_WEIGHTS, axis=1)

    def cdf(self, y):
        """Return the probabilities of at most y, (n,)."""
        return self.given.cdf(np.asarray(y)[:, None]) @ FINE_WEIGHTS


NOISY = Law(lambda g, center, spread, noise: stats.norm(center, np.sqrt(spread + noise * np.exp(g))), None)
"""y ~ N(center, spread + noise e^g) as a distribution given the log noise g."""


def observed_noise(mean, variance, noise):
    """Return observations for y ~ N(f, noise e^g) with moments (n, 2) of f and g."""
    own = {"center": mean[:, :1], "spread": variance[:, :1], "noise": noise}
    return Observed(NOISY, mean[:, 1], variance[:, 1], **own)
