"""Softmax sampling: classes drawn in proportion to estimated probabilities, and the errors of these probabilities.

A query x gives class c the probability exp(x . c) / sum_c' exp(x . c'). With features psi(x) . phi(c) instead of the
exponential, the denominator requires only the sum of the classes' features. If all features are positive the estimate
is a mixture, sum_f psi_f(x) Phi_f * (phi_f(c) / Phi_f) with Phi_f = sum_c phi_f(c). First a feature is drawn, then a
class from the distribution of that feature. Its cumulative sums are computed before any query. So a draw takes O(d m +
log C), while the exact softmax takes O(C d). Estimates of other pairs may be negative. Such classes are excluded, and
the report has their share.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.features.softmax import FeaturePair, PositiveMap
from rfgp.messages import check_count, counted
from rfgp.torch_context import own_names

_ENTRIES = 2**24
MAX_DRAWN = 2**30
"""The largest number of classes that are drawn in one call."""
MAX_GROUND = 4000
"""The largest number of classes for a Wasserstein distance over the class vectors."""


@dataclass(frozen=True)
class SamplingReport:
    """The errors of estimated class probabilities, averaged over queries.

    Attributes:
        negative: The share of estimates that are negative.
        wasserstein: The 1-Wasserstein distance between the true and the estimated distribution of the class. With
            `ground` "index" classes are at 0, 1 / (C - 1), ..., 1 in their order, with "vectors" at their vectors.
        kolmogorov_smirnov: The largest difference of the two distribution functions over classes in their order.
        total_variation: Half the sum of the absolute differences.
        unusable: The share of queries for which no estimate is positive. They are excluded from the other averages.

    Examples:
        >>> from rfgp import couplings, sampling
        >>> from rfgp.features import softmax
        >>> pair = softmax.Positive(couplings.by_name("iid").sample(512, 2, seed=0))
        >>> report = sampling.SoftmaxSampler(pair, torch.eye(2)).report(torch.zeros(1, 2))
        >>> report.negative, report.total_variation < 0.1
        (0.0, True)
    """

    negative: float
    wasserstein: float
    kolmogorov_smirnov: float
    total_variation: float
    unusable: float


class SoftmaxSampler:
    """A sampler of classes in proportion to estimated softmax probabilities.

    Source: Choromanski et al. (2022), Section 4.2 and Appendix I.1; Rawat et al. (2019), "Sampled softmax with random
    Fourier features".

    Args:
        pair: An estimator of the softmax kernel, such as `rfgp.features.softmax.Positive`.
        classes: Class vectors (C, d), finite. They are copied, so later changes do not affect the sampler. For an
            inverse temperature, multiply queries and classes by its square root.

    Raises:
        InvalidArgumentError: If it is not a pair, or one for the Gaussian kernel.
        DataError: If the class vectors are not a finite matrix with rows.

    Examples:
        >>> from rfgp import couplings, sampling
        >>> from rfgp.features import softmax
        >>> pair = softmax.Positive(couplings.by_name("iid").sample(64, 2, seed=0))
        >>> sampler = sampling.SoftmaxSampler(pair, torch.randn(1000, 2))
        >>> sampler.sample(torch.zeros(3, 2), 5, seed=0).shape
        torch.Size([3, 5])
    """

    def __init__(self, pair: FeaturePair, classes: Tensor) -> None:
        if not isinstance(pair, FeaturePair):
            raise InvalidArgumentError(f"pair must be a FeaturePair, got {type(pair).__name__}.")
        if pair.kernel != "softmax":
            raise InvalidArgumentError(f"The kernel of the pair must be 'softmax', got {pair.kernel!r}.")
        self.pair, self.classes = pair, _finite(classes, "Class vectors").detach().clone()
        if len(classes) == 0:
            raise DataError("classes must have at least one row, got none.")

    def estimates(
        self,
        queries: Tensor,  # (n, d)
    ) -> Tensor:  # (n, C)
        """Return the estimates of exp(x . c) up to a positive factor for each query.

        Some may be negative.

        Args:
            queries: The queries, (n, d).

        Returns:
            The estimates, (n, C).

        Raises:
            DataError: If the queries are not a finite matrix (n, d).
        """
        x = self._read(queries)
        if self.pair.is_positive:
            return self._weights(x) @ self._class_probabilities.to(x)
        return torch.as_tensor(self.pair.left(x) @ self._right.mT)

    def probabilities(
        self,
        queries: Tensor,  # (n, d)
    ) -> Tensor:  # (n, C)
        """Return the estimated probabilities.

        They are the positive estimates, divided by their sum. Rows without a positive estimate are 0.

        Args:
            queries: The queries, (n, d).

        Returns:
            The probabilities, (n, C).

        Raises:
            DataError: If the queries are not a finite matrix (n, d), or so long that estimates overflow.
        """
        kept = _without_overflow(self.estimates(queries)).clamp_min(0)
        total = kept.sum(-1, keepdim=True)
        return torch.where(total > 0, kept / total, torch.zeros_like(kept))

    def sample(
        self,
        queries: Tensor,  # (n, d)
        num_samples: int = 1,
        *,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:  # (n, s)
        """Draw classes with replacement, (n, s) positions in `classes`, int64.

        Args:
            queries: (n, d).
            num_samples: s.
            seed: An integer. If None, one from the system.
            generator: A CPU generator instead of a seed.

        Raises:
            InvalidArgumentError: If s is not a positive integer, both a seed and a generator are given, or n s is above
                2^30.
            DataError: If the queries are not a finite matrix (n, d), or have no positive estimate.
        """
        num_samples = check_count("num_samples", num_samples)
        generator = random.chosen(seed, generator, random.Role.SAMPLE)
        x = self._read(queries)
        if len(x) * num_samples > MAX_DRAWN:
            raise InvalidArgumentError(
                f"The number of draws must be at most {MAX_DRAWN:,}, got {counted(num_samples, 'sample')} for each of "
                f"{len(x):,} queries, which are {8 * len(x) * num_samples:,} bytes. Draw fewer at once."
            )
        if not self.pair.is_positive:
            return torch.cat([self._dense(rows, num_samples, generator) for rows in torch.split(x, self._rows)])
        feature = _inverse(self._weights(x).double().cumsum(1), _uniform(len(x), num_samples, generator))
        levels, found = _uniform(len(x), num_samples, generator).to(x.device), torch.empty_like(feature)
        for f in np.unique(feature.cpu().numpy()).tolist():
            mine = feature == f
            found[mine] = _inverse(self.cumulative[f : f + 1], levels[mine][None])[0]
        return found

    def report(
        self,
        queries: Tensor,  # (n, d)
        *,
        ground: str = "index",
    ) -> SamplingReport:
        """Compare the estimated distributions with the true ones.

        Args:
            queries: (n, d), at least one.
            ground: The ground metric of the Wasserstein distance: "index" for classes in their order, "vectors" for
                class vectors, by linear programming (POT), for up to 4,000 classes.

        Returns:
            The errors, averaged over queries.

        Raises:
            InvalidArgumentError: If the ground is unknown, or there are too many classes for "vectors".
            DataError: If the queries are not a finite matrix (n, d) with rows.
        """
        if ground not in ("index", "vectors"):
            raise InvalidArgumentError(f"ground must be 'index' or 'vectors', got {ground!r}.")
        if ground == "vectors" and len(self.classes) > MAX_GROUND:
            raise InvalidArgumentError(
                f"The number of classes must be at most {MAX_GROUND} for ground='vectors', got {len(self.classes)}. "
                "Use ground='index', or fewer classes."
            )
        x = self._read(queries).detach()
        if len(x) == 0:
            raise DataError("queries must have at least one row, got none.")
        parts = [self._compare(rows, ground) for rows in torch.split(x, self._rows)]
        negative, usable, distances = (torch.cat(column) for column in zip(*parts, strict=True))
        kept = distances[usable].mean(0) if bool(usable.any()) else torch.full((3,), torch.nan)
        moved, largest, variation = kept.tolist()
        return SamplingReport(float(negative.mean()), moved, largest, variation, 1 - float(usable.double().mean()))

    # --- pieces ----------------------------------------------------------------------------------

    def _read(self, queries: Tensor) -> Tensor:
        x = _finite(queries, "Queries")
        if x.shape[1] != self.classes.shape[1]:
            raise DataError(
                f"Queries must have the {counted(self.classes.shape[1], 'column')} of the classes, got {x.shape[1]}."
            )
        return x.to(self.classes)

    @property
    def _rows(self) -> int:
        return max(1, _ENTRIES // len(self.classes))

    def _weights(self, x: Tensor) -> Tensor:
        """Return the probabilities (n, F) of the features of positive maps, given queries."""
        assert isinstance(self.pair.left, PositiveMap)
        return (self.pair.left.log_values(x) + self.log_totals.to(x)).softmax(-1)

    @cached_property
    def _logs(self) -> Tensor:
        """Logarithms (F, C) of the classes' features of positive maps, float64."""
        assert isinstance(self.pair.right, PositiveMap)
        return self.pair.right.log_values(self.classes).double().mT

    @cached_property
    def log_totals(self) -> Tensor:
        """The log sums (F,) over classes of each feature of positive maps, float64."""
        return self._logs.logsumexp(1)

    @cached_property
    def _class_probabilities(self) -> Tensor:
        """The probabilities (F, C) of the classes given a feature of positive maps, float64."""
        return self._logs.softmax(1)

    @cached_property
    def cumulative(self) -> Tensor:
        """The CDFs (F, C) of the class given a feature of positive maps, float64."""
        return self._class_probabilities.cumsum(1)

    @cached_property
    def _right(self) -> Tensor:
        """The features (C, F) of the classes."""
        return torch.as_tensor(self.pair.right(self.classes))

    def _dense(self, x: Tensor, count: int, generator: torch.Generator) -> Tensor:
        estimated = self.probabilities(x).double()
        if not bool((estimated.sum(1) > 0).all()):
            raise DataError(
                "Each query must have a positive estimate, got none for "
                f"{int((estimated.sum(1) <= 0).sum())} of {counted(len(estimated), 'query', 'queries')}. Use more "
                "features, or positive ones."
            )
        return _inverse(estimated.cumsum(1), _uniform(len(x), count, generator))

    def _compare(self, x: Tensor, ground: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return the share of negative estimates (n,), whether any is positive (n,), and three distances (n, 3)."""
        negative = (self.estimates(x) < 0).double().mean(1)
        estimate, true = self.probabilities(x).double(), (x @ self.classes.mT).double().softmax(-1)
        usable, difference = estimate.sum(1) > 0, estimate - true
        steps = difference.cumsum(1).abs()
        if ground == "index":
            moved = steps[:, :-1].sum(1) / max(len(self.classes) - 1, 1)
        else:
            moved = _transported(true, estimate, self._ground)
        return negative, usable, torch.stack([moved, steps.amax(1), 0.5 * difference.abs().sum(1)], dim=1)

    @cached_property
    def _ground(self) -> Tensor:
        return torch.cdist(self.classes.double(), self.classes.double())


def _transported(first: Tensor, second: Tensor, cost: Tensor) -> Tensor:
    """Return the optimal transport cost (n,) between distributions (n, C) by cost (C, C).

    It is 0 if the second distribution has no mass.
    """
    with requires_extra("graphs"):
        import ot

    matrix, out = cost.cpu().numpy(), torch.zeros(len(first), dtype=torch.float64)
    for i, (p, q) in enumerate(zip(first.cpu().numpy(), second.cpu().numpy(), strict=True)):
        if q.sum() > 0:
            out[i] = float(ot.emd2(p / p.sum(), q / q.sum(), matrix, numItermax=10_000_000))
    return out.to(first)


def _finite(values: Tensor, what: str) -> Tensor:
    if not isinstance(values, Tensor) or values.ndim != 2 or not values.is_floating_point():
        raise DataError(f"{what} must be a floating-point tensor (n, d), got {getattr(values, 'shape', values)!r}.")
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"{what} must be finite; row {int((~torch.isfinite(values)).any(1).nonzero()[0])} is not.")
    return values


def _without_overflow(estimates: Tensor) -> Tensor:
    if not bool(torch.isfinite(estimates).all()):
        raise DataError(
            "Estimates must be finite, got an overflow: queries or classes are too long. Use positive features."
        )
    return estimates


def _uniform(rows: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(rows, count, generator=generator, dtype=torch.float64)


def _inverse(
    cumulative: Tensor,  # (n, k)
    levels: Tensor,  # (n, s)
) -> Tensor:  # (n, s)
    """Return positions by the inverse of cumulative sums at levels in [0, 1)."""
    scaled = levels.to(cumulative) * cumulative[:, -1:]
    return torch.searchsorted(cumulative.contiguous(), scaled, right=True).clamp_max(cumulative.shape[1] - 1)


def __dir__() -> list[str]:
    return own_names(globals())
