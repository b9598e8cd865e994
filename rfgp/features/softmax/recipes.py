"""Hybrid estimators of the softmax kernel, and recipes for them."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from rfgp.couplings import Coupling, Frequencies, as_frequencies, by_name
from rfgp.couplings.coupling import check_unpaired
from rfgp.errors import InvalidArgumentError, requires_extra
from rfgp.features.softmax.coefficients import (
    Angular,
    Clusters,
    Coefficient,
    Gaussian,
    GaussianMixture,
    Matched,
)
from rfgp.features.softmax.pairs import (
    Exponential,
    FeatureMap,
    FeaturePair,
    Positive,
    SideMap,
    Trigonometric,
    matching_diagonal,
)
from rfgp.messages import check_count

# --- Hybrid estimators: mixtures of estimators with coefficients of x and y, as one pair of feature maps --------------
#
# A product of two inner products is one of row-wise Kronecker products, (a . b)(c . d) = (a x c) . (b x d), so a
# mixture
#
#     sum_k lambda_k S_k + (1 - sum_k lambda_k) S_0,     lambda_k = a_k + l_k(x) . r_k(y),
#
# has the features (sqrt |a_k|, l_k) x S_k for each k and (sqrt |1 - sum_k a_k|, l_1, l_2, ...) x S_0. The signs of
# negative terms are on the right side, as in the imaginary block of the paper's Lemma 2.3. Features of n vectors take
# time O(n (M d + F)), with M projections of estimators and coefficients together. No matrix larger than that of the
# features is formed.


class _HybridMap(SideMap):
    """One side: coefficients and their estimators.

    If there is a base, it is the last estimator.
    """

    def __init__(
        self,
        coefficients: Sequence[FeatureMap],
        constants: Sequence[float],
        estimators: Sequence[SideMap],
        sign: float,
    ) -> None:
        has_base = len(estimators) > len(coefficients)
        widths = [c.num_features for c in coefficients]
        widths = [*widths, sum(widths)] if has_base else widths
        columns = [width + (a != 0) for width, a in zip(widths, constants, strict=True)]
        num_features = sum(n * e.num_features for n, e in zip(columns, estimators, strict=True))
        super().__init__(estimators[0].kernel, num_features)
        self.coefficients, self.estimators = nn.ModuleList(coefficients), nn.ModuleList(estimators)
        self.constants, self.sign, self.has_base = tuple(constants), sign, has_base

    def forward(self, x: Tensor) -> Tensor:
        estimates = [estimator(x) for estimator in self.estimators]  # these refuse invalid inputs
        coefficients = [coefficient(x) for coefficient in self.coefficients]
        if self.has_base:
            coefficients.append(self.sign * torch.cat(coefficients, dim=-1))
        blocks = [
            _row_products(self._with_constant(values, a), features)
            for values, a, features in zip(coefficients, self.constants, estimates, strict=True)
        ]
        return torch.cat(blocks, dim=-1)

    def _with_constant(self, values: Tensor, constant: float) -> Tensor:
        """Return the features of a coefficient, preceded by that of its constant."""
        if constant == 0:
            return values
        root = math.sqrt(abs(constant)) * (self.sign if constant < 0 else 1.0)
        return torch.cat([values.new_full((*values.shape[:-1], 1), root), values], dim=-1)


class Hybrid(FeaturePair):
    """The estimator sum_k lambda_k S_k + (1 - sum_k lambda_k) S_0.

    It is unbiased if every coefficient is independent of the estimators S. The estimators may have a common draw. If
    the coefficients sum to 1 for all x and y, as those of all pairs of clusters do, there is no S_0. A hybrid is an
    estimator, so hybrids can be nested. Its estimates can be negative.

    Source: Choromanski et al. (2022), Eq. 8 and Lemma 2.3.

    Args:
        base: S_0, or None if the coefficients sum to 1.
        parts: Pairs (lambda_k, S_k).

    Raises:
        InvalidArgumentError: If there are no parts, a part is not such a pair, or estimators have different kernels.

    Examples:
        >>> from rfgp import couplings
        >>> from rfgp.features import softmax
        >>> omega = couplings.by_name("orthogonal").sample(8, 2, seed=0)
        >>> half = softmax.coefficients.Constant(0.5)
        >>> hybrid = Hybrid(softmax.Positive(omega), [(half, softmax.Trigonometric(omega))])
        >>> hybrid(torch.ones(1, 2), torch.zeros(3, 2)).shape
        torch.Size([1, 3])
    """

    def __init__(self, base: FeaturePair | None, parts: Sequence[tuple[Coefficient, FeaturePair]]) -> None:
        pairs = _check_parts(base, parts)
        coefficients = [coefficient for coefficient, _ in parts]
        constants = [coefficient.constant for coefficient in coefficients]
        constants += [1 - math.fsum(constants)] if base is not None else []
        left = _HybridMap([c.left for c in coefficients], constants, [p.left for p in pairs], 1.0)
        right = _HybridMap([c.right for c in coefficients], constants, [p.right for p in pairs], -1.0)
        super().__init__(left, right)


def _check_parts(base: FeaturePair | None, parts: Sequence[tuple[Coefficient, FeaturePair]]) -> list[FeaturePair]:
    """Return the estimators with the base as the last one."""
    if not parts:
        raise InvalidArgumentError("parts must be at least one pair of a coefficient and an estimator, got none.")
    for part in parts:
        if (
            not isinstance(part, tuple)
            or len(part) != 2
            or not isinstance(part[0], Coefficient)
            or not isinstance(part[1], FeaturePair)
        ):
            raise InvalidArgumentError(f"parts must be pairs of a coefficient and an estimator, got {part!r}.")
    pairs = [pair for _, pair in parts] + ([base] if base is not None else [])
    for first, second in pairwise(pairs):
        if first.kernel != second.kernel:
            raise InvalidArgumentError(
                f"The estimators of a hybrid must be of one kernel, got {first.kernel} and {second.kernel}."
            )
    return pairs


def _row_products(
    a: Tensor,  # (..., n, F)
    b: Tensor,  # (..., n, G)
) -> Tensor:  # (..., n, F G)
    """Return the Kronecker product of each row. It is 0 if a is 0 and b overflows."""
    columns, values = a[..., :, None], b[..., None, :]
    lost = (columns == 0) & ~torch.isfinite(values)
    return torch.where(lost, 0, columns * torch.where(lost, 0, values)).flatten(-2)


# --- Hybrid estimators of the paper with frequencies from a coupling --------------------------------------------------


def bipolar(
    frequencies: Frequencies | Tensor,  # (m, d)
    coefficient: Coefficient,
    *,
    other: Frequencies | Tensor | None = None,  # (m', d)
    antithetic: bool = False,
    kernel: str = "softmax",
) -> Hybrid:
    """Return lambda S_positive + (1 - lambda) S_trigonometric.

    With a common draw, the default, the variance is lower, because the two are negatively correlated (`rfgp.theory`).

    Source: Choromanski et al. (2022), Eq. 12 and Theorem 3.1.

    Args:
        frequencies: The frequencies (m, d) of both estimators, or of the positive one if `other` is given.
        coefficient: lambda, independent of the frequencies.
        other: The frequencies of the trigonometric estimator. If None, `frequencies`.
        antithetic: Whether the positive estimator uses -omega as well, which gives it 2 m features.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the kernel is unknown, or the frequencies are antithetic.

    Examples:
        >>> from rfgp.features import softmax
        >>> pair = softmax.bipolar(torch.eye(2), softmax.coefficients.Constant(0.5))
        >>> pair(torch.zeros(1, 2), torch.zeros(1, 2)).round(decimals=4)
        tensor([[1.]])
    """
    drawn = as_frequencies(frequencies)
    if other is None or antithetic:
        check_unpaired(drawn, "", ", and antithetic=True for both signs")
    positive = drawn.with_negatives() if antithetic else drawn
    trigonometric = Trigonometric(drawn if other is None else other, kernel)
    return Hybrid(trigonometric, [(coefficient, Positive(positive, kernel))])


def angular_hybrid(
    num_features: int,
    num_dims: int,
    *,
    num_signs: int = 8,
    coupling: str | Coupling = "orthogonal",
    kernel: str = "softmax",
    generator: torch.Generator,
) -> Hybrid:
    """Return the angular hybrid.

    It is the bipolar estimator whose coefficient is the angle of x and y over pi. The positive estimator has both signs
    of its frequencies, as in the paper.

    Source: Choromanski et al. (2022), Eqs. 12 and 19.

    Args:
        num_features: The largest number of features. A frequency takes 4 (n + 1).
        num_dims: d.
        num_signs: n, the number of sign features.
        coupling: The coupling of the frequencies and, in a separate draw, of the signs.
        kernel: "softmax" or "gaussian".
        generator: A CPU generator. The draws advance it.

    Raises:
        InvalidArgumentError: If `num_features` is too small for one frequency, or for the reasons of `Coupling.sample`.

    Examples:
        >>> from rfgp.features import softmax
        >>> pair = softmax.angular_hybrid(100, 2, num_signs=4, generator=torch.Generator().manual_seed(0))
        >>> pair.num_features
        100
    """
    chosen = by_name(coupling)
    m = _affordable(num_features, 4 * (check_count("num_signs", num_signs) + 1))
    frequencies, signs = (chosen.sample(count, num_dims, generator=generator) for count in (m, num_signs))
    return bipolar(frequencies, Angular(signs), antithetic=True, kernel=kernel)


def gaussian_hybrid(
    num_features: int,
    num_dims: int,
    *,
    num_coefficients: int = 4,
    scale: float = 1.0,
    of: str = "sum",
    length: float | None = None,
    coupling: str | Coupling = "orthogonal",
    kernel: str = "softmax",
    generator: torch.Generator,
) -> Hybrid:
    """Return the bipolar estimator with a Gaussian coefficient.

    For the sum it is exp(-|x + y|^2 / (2 tau^2)), which makes the estimate exact at x = -y. For the difference it is
    1 - exp(-|x - y|^2 / (2 tau^2)), which makes it exact at x = y. The positive estimator has both signs of its
    frequencies. With the length r of all vectors it is normalized: lambda increases from 0 at x = y to 1 at x = -y.

    Source: Choromanski et al. (2022), Appendix F, with rho = 1 if there is no length. For the sum: Eq. 20 with M = I.

    Args:
        num_features: The largest number of features. A frequency takes 2 (4 n + 1).
        num_dims: d.
        num_coefficients: n, the number of frequencies of the coefficient.
        scale: tau.
        of: "sum" or "difference".
        length: r, for the difference, as in `Gaussian`.
        coupling: The coupling of the frequencies and, in a separate draw, of those of the coefficient.
        kernel: "softmax" or "gaussian".
        generator: A CPU generator. The draws advance it.

    Raises:
        InvalidArgumentError: If `num_features` is too small for one frequency, or for the reasons of `Gaussian` and
            `Coupling.sample`.

    Examples:
        >>> from rfgp.features import softmax
        >>> pair = softmax.gaussian_hybrid(100, 2, generator=torch.Generator().manual_seed(0))
        >>> x = torch.ones(1, 2)
        >>> round(float(pair(x, -x)), 4)  # exp(-2)
        0.1353
    """
    chosen, n = by_name(coupling), check_count("num_coefficients", num_coefficients)
    m = _affordable(num_features, 2 * (4 * n + 1))
    frequencies, others = (chosen.sample(count, num_dims, generator=generator) for count in (m, n))
    coefficient = Gaussian(others, scale, of=of, complement=of == "difference", length=length)
    return bipolar(frequencies, coefficient, antithetic=True, kernel=kernel)


def clustered(
    x: Tensor,  # (n, d)
    y: Tensor,  # (k, d)
    num_features: int,
    *,
    num_clusters: int | tuple[int, int] = 2,
    scale: float | None = None,
    spread: float | None = None,
    floor: float = 0.1,
    real: bool = False,
    coupling: str | Coupling = "orthogonal",
    kernel: str = "softmax",
    generator: torch.Generator,
) -> Hybrid:
    """Return an estimator for clustered data.

    x and y are clustered by k-means. Each pair of centers has an `Exponential` with the closed-form diagonal of
    `matching_diagonal` for the spread of the clusters. With spread 0, as in the paper, it is exact if both vectors are
    centers, but inaccurate for wide clusters.

    Source: Choromanski et al. (2022), Definition H.2. Their experiments have `real=True, spread=0.0`.

    Args:
        x: (n, d), examples of the left vectors.
        y: (k, d), examples of the right vectors.
        num_features: The largest number of features. For each pair of clusters a frequency takes one, or two if the
            matrix is complex.
        num_clusters: The number of clusters of x and of y, or one for each.
        scale: The standard deviation of Gaussian responsibilities. If None, each vector belongs to the nearest center.
        spread: As in `matching_diagonal`. If None, the root mean square distance of an entry from its center.
        floor: As in `matching_diagonal`.
        real: As in `matching_diagonal`.
        coupling: The coupling of the frequencies, which all pairs of clusters share.
        kernel: "softmax" or "gaussian".
        generator: A CPU generator. The draw advances it.

    Raises:
        InvalidArgumentError: If there are fewer vectors than clusters, vectors are not finite or have different numbers
            of columns, or `num_features` is too small for one frequency.

    Examples:
        >>> from rfgp.features import softmax
        >>> x = torch.tensor([[0.0], [0.1], [2.0], [2.1]])
        >>> pair = softmax.clustered(x, -x, 32, generator=torch.Generator().manual_seed(0))
        >>> pair(x, -x).shape
        torch.Size([4, 4])
    """
    counts = num_clusters if isinstance(num_clusters, tuple) else (num_clusters, num_clusters)
    if len(counts) != 2:
        raise InvalidArgumentError(f"num_clusters must be one number or two, got {num_clusters!r}.")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise InvalidArgumentError(
            f"x and y must be matrices with as many columns, got {tuple(x.shape)} and {tuple(y.shape)}."
        )
    (left, near), (right, far) = (_centers(*pair, generator) for pair in zip((x, y), counts, strict=True))
    width = 0.5**0.5 * math.hypot(near, far) if spread is None else spread
    complex_ones = [matching_diagonal(r, s, floor=floor, real=real).is_complex() for r in left for s in right]
    m = _affordable(num_features, len(complex_ones) + sum(complex_ones))
    frequencies = by_name(coupling).sample(m, x.shape[1], generator=generator)
    return between_centers(frequencies, left, right, scale=scale, spread=width, floor=floor, real=real, kernel=kernel)


def between_centers(
    frequencies: Frequencies | Tensor,  # (m, d)
    left_centers: Tensor,  # (K, d)
    right_centers: Tensor,  # (L, d)
    *,
    scale: float | None = None,
    spread: float = 0.0,
    floor: float = 0.1,
    real: bool = False,
    kernel: str = "softmax",
) -> Hybrid:
    """Return the estimator of `clustered` for given centers.

    Source: Choromanski et al. (2022), Definition H.2. With a scale the coefficients are ours, see `GaussianMixture`.

    Args:
        frequencies: Gaussian `Frequencies` or a plain (m, d) tensor, for all pairs of centers.
        left_centers: The centers of the x, (K, d).
        right_centers: The centers of the y, (L, d).
        scale: The standard deviation of Gaussian responsibilities. If None, each vector belongs to the nearest center.
        spread: As in `matching_diagonal`.
        floor: As in `matching_diagonal`.
        real: As in `matching_diagonal`.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: For the reasons of `Clusters` and `matching_diagonal`.

    Examples:
        >>> from rfgp.features import softmax
        >>> centers = torch.tensor([[0.5, 1.0], [2.0, 1.0]])
        >>> pair = softmax.between_centers(torch.eye(2), centers, -centers)
        >>> estimate = pair(centers, -centers)  # exact at the centers
        >>> bool(torch.allclose(estimate, softmax.exact(centers, -centers)))
        True
    """
    drawn, centers = as_frequencies(frequencies), (left_centers, right_centers)
    parts: list[tuple[Coefficient, FeaturePair]] = []
    for i, r in enumerate(left_centers):
        for j, s in enumerate(right_centers):
            weight = Clusters(*centers, (i, j)) if scale is None else GaussianMixture(*centers, (i, j), scale)
            a = matching_diagonal(r, s, spread=spread, floor=floor, real=real)
            parts.append((weight, Exponential(drawn, a, kernel)))
    return Hybrid(None, parts)


def gaussian_between_centers(
    base: FeaturePair,
    frequencies: Frequencies | Tensor,  # (m, d)
    coefficient_frequencies: Frequencies | Tensor,  # (n, d)
    left_centers: Tensor,  # (K, d)
    right_centers: Tensor,  # (L, d)
    *,
    scale: float = 1.0,
    estimator: str = "positive",
    spread: float = 0.0,
    floor: float = 0.1,
    real: bool = False,
) -> Hybrid:
    """Return a Gaussian mixture of `Exponential` estimators of pairs of centers.

    A base estimates the remainder.

    The pair (r, s) has the estimated coefficient exp(-|A x + A^-1 y|^2 / (2 tau^2)), with its diagonal A. The base has
    the coefficient 1 minus their sum. Near the centers the coefficient is 1. No vector needs to be assigned to a
    cluster.

    Eq. 93 writes the exponential as a kernel of x and -y. This holds for real A, since then A x . A^-1 y = x . y. For
    imaginary a_k, |a_k x_k + y_k / a_k|^2 = (|a_k| x_k - y_k / |a_k|)^2 has the other sign of y_k, which is used here.
    Without the modulus the coefficient would be above 1 and smallest at the centers.

    Source: Choromanski et al. (2022), Definition H.1.

    Args:
        base: The estimator S_0 of the kernel.
        frequencies: Gaussian `Frequencies` or a plain (m, d) tensor, for all pairs of centers.
        coefficient_frequencies: Frequencies of all coefficients, independent of `frequencies` and of those of the base.
        left_centers: The centers of the x, (K, d).
        right_centers: The centers of the y, (L, d).
        scale: tau.
        estimator: As in `Matched`.
        spread: As in `matching_diagonal`.
        floor: As in `matching_diagonal`.
        real: As in `matching_diagonal`.

    Raises:
        InvalidArgumentError: For the reasons of `Matched`, `matching_diagonal` and `Hybrid`.

    Examples:
        >>> from rfgp.features import softmax
        >>> center = torch.tensor([[0.5, 1.0]])
        >>> pair = softmax.gaussian_between_centers(
        ...     softmax.Positive(torch.eye(2)), torch.eye(2), torch.eye(2).flip(0), center, -center
        ... )
        >>> pair(torch.zeros(3, 2), torch.zeros(4, 2)).shape
        torch.Size([3, 4])
    """
    drawn, others = as_frequencies(frequencies), as_frequencies(coefficient_frequencies)
    parts: list[tuple[Coefficient, FeaturePair]] = []
    for r in left_centers:
        for s in right_centers:
            a = matching_diagonal(r, s, spread=spread, floor=floor, real=real)
            sign = torch.where(a.imag != 0, -1.0, 1.0).to(r) if a.is_complex() else torch.ones_like(r)
            weight = Matched(others, a.abs(), sign / a.abs(), scale, estimator=estimator)
            parts.append((weight, Exponential(drawn, a, base.kernel)))
    return Hybrid(base, parts)


def _centers(points: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, float]:
    """Return the centers (K, d) of clusters by k-means.

    The second result is the root mean square deviation of an entry from them.
    """
    with requires_extra("sklearn"):
        from sklearn.cluster import KMeans

    if check_count("num_clusters", count) > len(points) or not bool(torch.isfinite(points).all()):
        raise InvalidArgumentError(
            f"x and y must be finite vectors, at least {count} for as many clusters, got {len(points)} or others."
        )
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    values = points.detach().cpu().double().numpy()
    clusters = KMeans(count, n_init=10, random_state=seed).fit(values)
    centers = torch.as_tensor(np.asarray(clusters.cluster_centers_, dtype=np.float64))
    return centers, math.sqrt(float(clusters.inertia_) / values.size)


def _affordable(num_features: int, cost: int) -> int:
    """Return the number of frequencies that a number of features allows."""
    return check_count("num_features", num_features, least=cost) // cost
