"""Likelihoods of shares: counts of a known number of trials, and proportions."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.nn.functional import logsigmoid

from rfgp.likelihoods.labels import START_VARIANCE, WIDEST
from rfgp.likelihoods.role import InitialMoments, Likelihood, LogProbDerivatives, Parameter, drawing, first_where


@dataclass(frozen=True, repr=False)
class Binomial(Likelihood):
    """The number y of successes in n trials with P(success | f) = 1 / (1 + e^-f).

    `GP.fit(X, y, trials=n)` has the numbers of trials of the rows. `predict(X).observed(trials=n)` is the distribution
    of a count of n trials, and `predict(X).observed()` that of one trial, whose mean is the probability.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> x, n = np.linspace(0, 6, 40), np.full(40, 20)
        >>> y = np.random.default_rng(0).binomial(n, 1 / (1 + np.exp(-np.sin(x))))
        >>> p = rfgp.GP(rfgp.kernels.RBF(), "binomial", seed=0).fit(x[:, None], y, trials=n).predict([[1.5]])
        >>> bool(0.5 < p.observed().mean[0] < 0.9), p.observed(trials=20).quantile(0.5)
        (True, array([14.]))
    """

    row_argument: ClassVar[str | None] = "trials"
    is_discrete = is_far_from_normal = True
    lowest, widest = 0.0, WIDEST

    @property
    def trials(self) -> Tensor:
        """The numbers of trials, (n,), or one."""
        return torch.ones((), dtype=torch.float64) if self.row_numbers is None else self.row_numbers

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first target of (n,) that is no count of successes, or None."""
        is_more = y > self.trials
        remedy = "Exchange y and trials if trials holds the successes"
        return first_where((y < 0) | (y != y.round()), y, "counts 0, 1, 2, ...") or first_where(
            is_more, y, "at most the number of trials", remedy
        )

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return the f with the share of successes of y (n,), after adding half a success and half a failure."""
        share = ((weight * y).sum() + 0.5) / ((weight * self.trials).sum() + 1)
        return InitialMoments(share.logit(), torch.full_like(share, START_VARIANCE))

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log probability of y (n,) given f (n,), with its derivatives in f."""
        n, one = self.trials, torch.sigmoid(f)
        ways = torch.lgamma(n + 1) - torch.lgamma(y + 1) - torch.lgamma(n - y + 1)
        width = n * one * torch.sigmoid(-f)
        value = ways + y * logsigmoid(f) + (n - y) * logsigmoid(-f)
        return LogProbDerivatives(value, y - n * one, -width, -width * (1 - 2 * one))

    def mean(self, f: Tensor) -> Tensor:
        """Return the mean number of successes given f, (...)."""
        return self.trials * torch.sigmoid(f)

    def variance(self, f: Tensor) -> Tensor:
        """Return the variance of the number of successes given f, (...)."""
        return self.trials * torch.sigmoid(f) * torch.sigmoid(-f)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) successes given f (...)."""
        n, k = self.trials, y.floor()
        inside = k.clamp_min(0).minimum(n - 1)
        found = special.betainc(*(np.asarray(part) for part in (n - inside, inside + 1, torch.sigmoid(-f))))
        return torch.where(k < 0, 0.0, torch.where(k >= n, 1.0, torch.as_tensor(found, dtype=f.dtype)))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a count for each f, (...) -> (...)."""
        n = self.trials.numpy().astype(np.int64)
        return torch.from_numpy(drawing(generator).binomial(n, torch.sigmoid(f).numpy()).astype(np.float64))


@dataclass(frozen=True, repr=False)
class Beta(Likelihood):
    """Proportions 0 < y < 1 with mean m = 1 / (1 + e^-f) and variance m (1 - m) / (1 + precision).

    They have the beta distribution with parameters m precision and (1 - m) precision. The log density is not concave in
    f. The posterior is variational.

    Source: Ferrari and Cribari-Neto (2004), Beta regression for modelling rates and proportions, Eq. 4.

    Attributes:
        precision: The precision. If None, it is learned.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.Beta(precision=10.0)
        Beta(precision=10)
    """

    precision: Any = None
    parameters = (Parameter("precision", 5.0, (1e-2, 1e6)),)
    is_concave = False
    approximations = ("variational",)
    lowest, widest = 0.0, WIDEST

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first target of (n,) that is not inside (0, 1), or None."""
        remedy = (
            'Use likelihood="binomial" with trials= for counts, or move exact 0 and 1 inside, as (y (n - 1) + 0.5) / n'
        )
        return first_where(~((y > 0) & (y < 1)), y, "proportions strictly between 0 and 1", remedy)

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return the logit of the mean of y (n,) with weights (n,)."""
        center = ((weight * y).sum() / weight.sum()).logit()
        return InitialMoments(center, torch.ones_like(center))

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f.

        With a = m precision and b = (1 - m) precision, whose slopes are w = m (1 - m) precision and -w, the first
        derivative is w t with t = logit(y) - psi(a) + psi(b).
        """
        a, b = self._shapes(f)
        tilt, w = a / (a + b), a * b / (a + b)
        (value, first), t = self.log_prob_and_slope(y, f), y.logit() - torch.digamma(a) + torch.digamma(b)
        t1 = -w * (torch.polygamma(1, a) + torch.polygamma(1, b))
        slope = 1 - 2 * tilt  # w' / w
        t2 = slope * t1 - w.square() * (torch.polygamma(2, a) - torch.polygamma(2, b))
        w1, w2 = w * slope, w * (slope.square() - 2 * w / (a + b))
        return LogProbDerivatives(value, first, w1 * t + w * t1, w2 * t + 2 * w1 * t1 + w * t2)

    def log_prob_and_slope(self, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log density of y (n,) given f (..., n), and its derivative in f, without polygamma functions."""
        a, b = self._shapes(f)
        value = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b) + (a - 1) * y.log() + (b - 1) * (-y).log1p()
        return value, a * b / (a + b) * (y.logit() - torch.digamma(a) + torch.digamma(b))

    def fisher(self, f: Tensor) -> Tensor:
        """Return the Fisher information of f, (n,)."""
        a, b = self._shapes(f)
        return (a * b / (a + b)).square() * (torch.polygamma(1, a) + torch.polygamma(1, b))

    def majorizer(self, slopes: LogProbDerivatives, y: Tensor, f: Tensor) -> Tensor:
        """Return the Fisher information, with which steps are scoring steps, (n,)."""
        return self.fisher(f)

    def mean(self, f: Tensor) -> Tensor:
        """Return the mean given f, (...)."""
        return torch.sigmoid(f)

    def variance(self, f: Tensor) -> Tensor:
        """Return the variance given f, (...)."""
        return torch.sigmoid(f) * torch.sigmoid(-f) / (1 + torch.as_tensor(self.precision, dtype=f.dtype))

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        found = special.betainc(*(np.asarray(part) for part in (*self._shapes(f), y.clamp(0, 1))))
        return torch.as_tensor(found, dtype=f.dtype)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a proportion for each f, (...) -> (...)."""
        a, b = (part.numpy() for part in self._shapes(f))
        return torch.from_numpy(np.asarray(drawing(generator).beta(a, b)))

    def _shapes(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return m precision and (1 - m) precision, (...)."""
        precision = torch.as_tensor(self.precision, dtype=f.dtype)
        first, last = ((precision * torch.sigmoid(one)).clamp_min(1e-100) for one in (f, -f))
        return first, last
