"""Likelihoods of labels: two classes, or several by a softmax of latent functions."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor
from torch.nn.functional import logsigmoid

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.likelihoods.role import (
    Expected,
    InitialMoments,
    Likelihood,
    LogProbDerivatives,
    Parameter,
    drawing,
    first_where,
)
from rfgp.messages import check_count

START_VARIANCE = 2.0
"""The variance of the latent function before a fit. Typical probabilities are then 0.2 and 0.8."""
WIDEST = 1e3
"""The largest ratio of the latent variance to its start. Without it, separable classes have no maximum."""
LOGISTIC = torch.arange(-36.0, 36.1, 0.75, dtype=torch.float64)[:, None]
"""The places (r, 1) of the trapezoidal rule for the standard logistic distribution."""
WIDE = 4.0
"""The variance of the latent function from which the logit is integrated over the logistic distribution."""


@dataclass(frozen=True, repr=False)
class Bernoulli(Likelihood):
    """P(y = 1 | f) = 1 / (1 + e^-f), or the normal distribution function of f.

    Attributes:
        link: "logit" or "probit".

    Raises:
        InvalidArgumentError: If the link is unknown.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 30)[:, None]
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), "bernoulli", seed=0).condition(X, (X[:, 0] > 5).astype(float))
        >>> gp.predict([[10.0]]).observed().mean > 0.5
        array([ True])
    """

    link: str = "logit"
    is_discrete = is_far_from_normal = True
    lowest, widest = 0.0, WIDEST

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in ("logit", "probit"):
            raise InvalidArgumentError(f'link must be "logit" or "probit", got {self.link!r}.')

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first target of (n,) that is not 0 or 1, or None."""
        return first_where((y != 0) & (y != 1), y, "0 or 1")

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return the f with the fraction of ones in y (n,), after adding half an observation of each class."""
        share = ((weight * y).sum() + 0.5) / (weight.sum() + 1)
        center = share.logit() if self.link == "logit" else torch.special.ndtri(share)
        return InitialMoments(center, torch.full_like(center, START_VARIANCE))

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of y (n,) given f (n,), with its derivatives in f."""
        if self.link == "logit":
            one = torch.sigmoid(f)
            width = one * torch.sigmoid(-f)
            return LogProbDerivatives(logsigmoid((2 * y - 1) * f), y - one, -width, -width * (1 - 2 * one))
        return probit(2 * y - 1, f)

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over observations given f, (n,)."""
        ones, zeros = (self.slopes(torch.full_like(f, y), f).second for y in (1.0, 0.0))
        return -(self.mean(f) * ones + self.mean(-f) * zeros)

    def mixture(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the log probability of y (n,) for f ~ N(mean, variance).

        For the probit link and s = 2 y - 1 it is log Phi(s mean / sqrt(1 + variance)). For the logit it is
        log P(s f + e > 0) with a logistic e. If f has a large variance, the logit is a step in f, and the mean of
        Phi((s mean + e) / sqrt(variance)) over e is smooth. In far tails the default rule remains.
        """
        signed: Tensor = (2 * y - 1) * mean
        if self.link == "probit":
            log_probability: Tensor = torch.special.log_ndtr(signed / (1 + variance).sqrt())
            return log_probability
        is_wide = (variance > WIDE) & (signed > -variance - 20)
        narrow = super().mixture(y, mean, torch.where(is_wide, WIDE, variance))
        weights = torch.log_softmax(logsigmoid(LOGISTIC) + logsigmoid(-LOGISTIC), dim=0)
        wide = torch.logsumexp(weights + torch.special.log_ndtr((signed + LOGISTIC) / variance.sqrt()), dim=0)
        return torch.where(is_wide, wide, narrow)

    def mean(self, f: Tensor) -> Tensor:
        """Return P(y = 1) given f, (...)."""
        return torch.sigmoid(f) if self.link == "logit" else torch.special.ndtr(f)

    def variance(self, f: Tensor) -> Tensor:
        """Return P(y = 1) P(y = 0) given f, (...)."""
        return self.mean(f) * self.mean(-f)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of at most y (...) given f (...)."""
        zero = self.mean(-f)
        return torch.where(y < 0, torch.zeros_like(zero), torch.where(y < 1, zero, torch.ones_like(zero)))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return 0 or 1 for each f, (...) -> (...)."""
        return torch.from_numpy(drawing(generator).random(f.shape) < self.mean(f).numpy()).to(f)


def probit(sign: Tensor | float, f: Tensor) -> LogProbDerivatives:
    """Return log Phi(z), z = sign f, (n,), with its derivatives in f.

    With h = phi(z) / Phi(z) they are h, -h (z + h) and h ((z + h)^2 + h (z + h) - 1). Odd ones are multiplied by the
    sign. h is computed as a scaled complementary error function, which is accurate if both phi and Phi underflow.

    Args:
        sign: 1 or -1, or one for each value.
        f: The values, (n,).

    Examples:
        >>> round(probit(1, torch.zeros(1).double()).value.exp().item(), 3)
        0.5
    """
    z = sign * f
    h = math.sqrt(2 / math.pi) / torch.special.erfcx(-z / math.sqrt(2))
    rest = z + h
    value: Tensor = torch.special.log_ndtr(z)
    return LogProbDerivatives(value, sign * h, -h * rest, sign * h * (rest.square() + h * rest - 1))


MAX_CLASSES = 1000
WIDEST_BY_LAPLACE = 5.0
"""The largest ratio of the latent variance to its start under Laplace's approximation. For separable classes, larger
variances increase the likelihood, but make probabilities too cautious."""
PLACES_OF_MANY = 128
"""The smallest number of points of the rule for means of softmaxes. It is 4 C if that is larger."""
_CHUNK = 2**21
"""The largest number of observations times classes times points in one evaluation."""


@dataclass(frozen=True, repr=False)
class Categorical(Likelihood):
    """P(y = c | f) = e^(f_c) / sum_k e^(f_k) for C independent functions with one kernel and different means.

    Attributes:
        num_classes: C. If None, one more than the largest label in the data.

    Raises:
        InvalidArgumentError: If there are fewer than two classes, or more than 1,000.

    Examples:
        >>> import rfgp
        >>> rfgp.likelihoods.Categorical(3)
        Categorical(num_classes=3)
    """

    num_classes: int | None = None
    is_discrete = is_far_from_normal = has_classes = True
    lowest, widest, widest_by_laplace = 0.0, WIDEST, WIDEST_BY_LAPLACE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_classes is not None and check_count("num_classes", self.num_classes, 2) > MAX_CLASSES:
            raise InvalidArgumentError(f"num_classes must be at most {MAX_CLASSES:,}, got {self.num_classes:,}.")

    @property
    def num_latents(self) -> int:
        """The number C of latent functions. It is 2 until the data are known."""
        return self.num_classes or 2

    def with_targets(self, y: Tensor) -> Self:
        """Return the likelihood with the number of classes of its targets (n,)."""
        if self.num_classes is not None or self.check(y) is not None:
            return self
        return replace(self, num_classes=max(2, int(y.max()) + 1))

    def check(self, y: Tensor) -> str | None:
        """Return a message about the first target of (n,) that is not a label from 0 to C - 1, or None."""
        most = MAX_CLASSES if self.num_classes is None else self.num_classes
        return first_where((y < 0) | (y != y.round()) | (y >= most), y, f"labels 0, 1, ..., at most {most - 1}")

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return the logarithms of the classes' fractions of y (n,), minus their mean, (C,)."""
        counts = torch.bincount(y.long(), weight, minlength=self.num_latents).double() + 0.5
        logs = counts.log()
        return InitialMoments(logs - logs.mean(), torch.full((), START_VARIANCE, dtype=torch.float64))

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log density of labels (n,) given f (n, C), with its derivatives (n, C)."""
        p = torch.softmax(f, dim=-1)
        own = torch.nn.functional.one_hot(y.long(), self.num_latents).to(p)
        value = (own * torch.log_softmax(f, dim=-1)).sum(-1)
        return LogProbDerivatives(value, own - p, -p * (1 - p), -p * (1 - p) * (1 - 2 * p))

    def expected(self, y: Tensor, mean: Tensor, variance: Tensor) -> Expected:
        """Return the mean of the log density of labels (n,) for independent f ~ N(mean, variance), (n, C) each.

        The quadrature points come in mirrored pairs and have the first two moments of a standard normal distribution.
        The derivatives are those of this sum.
        """
        places, parts = normal_places(self.num_latents), []
        size = max(1, _CHUNK // places.numel())
        for m, deviation in zip(torch.split(mean, size), torch.split(variance.sqrt(), size), strict=True):
            f = m[:, None] + deviation[:, None] * places
            total = torch.logsumexp(f, dim=2)
            p = torch.exp(f - total[:, :, None])
            parts.append((total.mean(1), p.mean(1), torch.einsum("npc,pc->nc", p, places) / len(places) / deviation))
        total, p, curvature = map(torch.cat, zip(*parts, strict=True))
        own = torch.nn.functional.one_hot(y.long(), self.num_latents).to(p)
        return Expected((own * mean).sum(1) - total, own - p, curvature)

    def mean(self, f: Tensor) -> Tensor:
        """Return the probabilities of the classes given f, (..., C) -> (..., C)."""
        return torch.softmax(f, dim=-1)

    def variance(self, f: Tensor) -> Tensor:
        """Return the variances of the indicators of the classes given f, (..., C) -> (..., C)."""
        p = self.mean(f)
        return p * (1 - p)

    def cdf(self, y: Tensor, f: Tensor) -> Tensor:
        """Return the probability of a label of at most y (...) given f (..., C)."""
        p = self.mean(f)
        return (p * (torch.arange(p.shape[-1], dtype=f.dtype) <= y[..., None])).sum(-1)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a label for each f, (..., C) -> (...)."""
        gumbel = torch.from_numpy(drawing(generator).gumbel(size=tuple(f.shape)))
        return (f + gumbel).argmax(-1).to(f)


_FAR = 1e5
"""The end of the interval of the first and the last class, which stands for infinity."""


@dataclass(frozen=True, repr=False)
class Ordinal(Categorical):
    """Ordered classes 0 to K - 1 of one function: P(y <= k | f) = Phi(c_k - f) with cutpoints c_0 = 0 < c_1 < ...

    The link is probit, the standard of Gaussian processes of ordered classes, so f has noise of variance 1. The first
    cutpoint is 0, since the mean of f is learned. The other K - 2 follow from gaps between neighbors. Classes may be
    numbers, or texts in an order: that of an ordered pandas.Categorical, or of `classes`.

    Source: Chu and Ghahramani (2005), Gaussian processes for ordinal regression, Eqs. 5 to 9.

    Attributes:
        num_classes: K, at least 3. If None, one more than the largest class in the data.
        gaps: The gaps between cutpoints, (K - 2,). If None, they are learned.
        classes: The texts of the classes, in order. If None, those of an ordered categorical target, or there are none.

    Raises:
        InvalidArgumentError: If there are fewer than three classes, or more than 1,000.

    Examples:
        >>> import numpy as np
        >>> import pandas as pd
        >>> import rfgp
        >>> x = np.linspace(0, 10, 60)
        >>> y = pd.cut(x, [-1, 3, 7, 10], labels=["low", "medium", "high"])
        >>> found = rfgp.GP(rfgp.kernels.RBF(), "ordinal", seed=0).fit(x[:, None], y).predict([[1.0], [9.0]]).observed()
        >>> found.labels.tolist(), found.probabilities.shape
        (['low', 'high'], (2, 3))
    """

    gaps: Any = None
    classes: tuple[str, ...] | None = None
    widest_by_laplace = WIDEST
    num_latents, expected = 1, Likelihood.expected

    def __post_init__(self) -> None:
        count = self.num_classes
        if self.classes is not None:
            texts = tuple(map(str, self.classes)) if np.ndim(self.classes) == 1 else ()
            if len(texts) > len(set(texts)) or not texts:
                raise InvalidArgumentError(f"classes must be different texts in an order, got {self.classes!r}.")
            vars(self)["classes"], count = texts, len(texts)
        elif self.gaps is not None and np.ndim(self.gaps) == 1:
            count = len(self.gaps) + 2
        if check_count("num_classes", count or 3) < 3:
            raise InvalidArgumentError(
                f'num_classes must be at least 3 for ordered classes, got {count}. Use likelihood="bernoulli" for two.'
            )
        vars(self)["num_classes"] = count
        self._start_at(torch.ones((count or 3) - 2, dtype=torch.float64))
        super().__post_init__()

    def _start_at(self, gaps: Tensor) -> None:
        vars(self)["parameters"] = (Parameter("gaps", gaps, (1e-3, 1e2)),)

    @property
    def cutpoints(self) -> Tensor:
        """The cutpoints, (K - 1,), increasing from 0."""
        return self._ends[1:-1]

    @property
    def _ends(self) -> Tensor:
        """The ends of the intervals of the classes, (K + 1,)."""
        gaps = torch.as_tensor(self.gaps, dtype=torch.float64)
        return torch.cat([gaps.new_tensor([-_FAR, 0.0]), gaps.cumsum(0), gaps.new_tensor([_FAR])])

    def read(self, y: Any) -> tuple[Self, Any]:
        """Return the likelihood with the texts of the classes, and the targets as numbers (n,).

        Args:
            y: Numbers, texts of `classes`, or an ordered categorical column.

        Raises:
            DataError: If categories have no order, or a text is not one of the classes.
        """
        kind = getattr(y, "dtype", None)
        categories = getattr(kind, "categories", None)
        if categories is not None and not getattr(kind, "ordered", True):
            raise DataError(
                "Ordered classes must have an order, got categories without one. Use pandas.Categorical(y, categories="
                "[...], ordered=True), or Ordinal(classes=[...])."
            )
        new = self if self.classes is not None or categories is None else replace(self, classes=tuple(categories))
        cells = np.asarray(y)
        if cells.dtype.kind in "iufb" or (new.classes is None and not any(isinstance(one, str) for one in cells.flat)):
            return new, y
        if new.classes is None:
            raise DataError(
                "Ordered classes must have an order, got texts. Use Ordinal(classes=[...]) with all of them."
            )
        codes = {text: number for number, text in enumerate(new.classes)}
        unknown = next((cell for cell in map(str, cells.reshape(-1)) if cell not in codes), None)
        if unknown is not None:
            raise DataError(
                f"y must be one of {', '.join(new.classes)}, got {unknown!r}. Name all classes, or drop the row."
            )
        return new, np.array([codes[str(cell)] for cell in cells], dtype=np.float64)

    def with_targets(self, y: Tensor) -> Self:
        """Return the likelihood with the number of classes of its targets (n,), and cutpoints that start at shares."""
        if self.check(y) is not None:
            return self
        count = self.num_classes or int(y.max()) + 1
        new = replace(self, num_classes=count)
        new._start_at(self._places(y, torch.ones_like(y), count).diff().clamp_min(0.01))
        return new

    def _places(self, y: Tensor, weight: Tensor, count: int) -> Tensor:
        """Return cutpoints (K - 1,) at the cumulative shares of the classes, for f of mean 0 and variance 1."""
        shares = torch.bincount(y.long(), weight, minlength=count).double() + 0.5
        out: Tensor = math.sqrt(2) * torch.special.ndtri(shares.cumsum(0)[:-1] / shares.sum())
        return out

    def begin(self, y: Tensor, weight: Tensor) -> InitialMoments:
        """Return the mean of f at which the first class of y (n,) has its share."""
        center = -self._places(y, weight, self.num_classes or 3)[0]
        return InitialMoments(center, torch.ones_like(center))

    def slopes(self, y: Tensor, f: Tensor) -> LogProbDerivatives:
        """Return the log probability of classes (n,) given f (n,), with its derivatives in f.

        It is log(Phi(u) - Phi(l)) at the ends u and l of the interval of the class, minus f. With the ratios r of the
        densities there to the probability, the slope is r(l) - r(u), and the slope of each ratio is r (end - slope).
        """
        low, high = (self._ends[y.long() + k] - f for k in (0, 1))
        is_above = low + high > 0  # both tails are computed on the left, where differences are accurate
        below, above = torch.where(is_above, -high, low), torch.where(is_above, -low, high)
        top = torch.special.log_ndtr(above)
        value = top + (-torch.expm1(torch.special.log_ndtr(below) - top)).log()
        ratios = [(-0.5 * end.square() - value).exp() / math.sqrt(2 * math.pi) for end in (low, high)]
        first = ratios[0] - ratios[1]
        slopes = [ratio * (end - first) for ratio, end in zip(ratios, (low, high), strict=True)]
        second = slopes[0] - slopes[1]
        third = [s * (end - first) - r * (1 + second) for s, r, end in zip(slopes, ratios, (low, high), strict=True)]
        return LogProbDerivatives(value, first, second, third[0] - third[1])

    def fisher(self, f: Tensor) -> Tensor:
        """Return the mean of the curvature over classes given f, (n,)."""
        slopes = [self.slopes(torch.full_like(f, k), f) for k in range(len(self.cutpoints) + 1)]
        return -torch.stack([one.value.exp() * one.second for one in slopes]).sum(0)

    def mean(self, f: Tensor) -> Tensor:
        """Return the probabilities of the classes given f, (...) -> (..., K)."""
        out: Tensor = torch.special.ndtr(self._ends - f[..., None]).diff(dim=-1)
        return out

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Return a class for each f, (...) -> (...)."""
        noisy = f + torch.randn(f.shape, generator=generator, dtype=f.dtype)
        return torch.bucketize(noisy, self.cutpoints).to(f)


def normal_places(count: int) -> Tensor:
    """Return points (p, count) of equal weight with mean 0 and covariance I.

    They are a Sobol sequence and its mirror image.

    Args:
        count: The dimension of the points.

    Examples:
        >>> points = normal_places(2)
        >>> torch.allclose(points.mT @ points / len(points), torch.eye(2, dtype=points.dtype))
        True
    """
    pairs = max(PLACES_OF_MANY, 4 * count) // 2
    half = torch.from_numpy(qmc.MultivariateNormalQMC(np.zeros(count), seed=0).random(1 << (pairs - 1).bit_length()))
    factor = torch.linalg.cholesky(half.mT @ half / len(half))
    half = torch.linalg.solve_triangular(factor, half.mT, upper=False).mT
    return torch.cat([half, -half])
