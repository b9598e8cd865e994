"""Coefficients of hybrid estimators: lambda(x, y) = a + left(x) . right(y), estimated like the kernels themselves.

Source: Choromanski et al. (2022), Eqs. 9 and 10.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rfgp.counts import counted
from rfgp.couplings import Frequencies, as_frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax.basic import Positive, Trigonometric
from rfgp.features.softmax.pair import SideMap, check_matrix, times


class CoefficientMap(nn.Module, ABC):
    """One side of a coefficient."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """The number of features, which may be 0."""

    @abstractmethod
    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, F)
        """Return the features of x, in its dtype and on its device."""


class Coefficient(nn.Module):
    """A coefficient lambda(x, y) = a + left(x) . right(y) of a hybrid estimator.

    It may be estimated, then from a draw independent of the estimators that it mixes, or known.

    Args:
        constant: a.
        left: Features of x.
        right: Features of y, as many.

    Raises:
        InvalidArgumentError: a is not finite, or the sides have different numbers of features.
    """

    def __init__(self, constant: float, left: CoefficientMap, right: CoefficientMap) -> None:
        super().__init__()
        if not math.isfinite(constant):
            raise InvalidArgumentError(f"The constant of a coefficient must be finite, got {constant!r}.")
        if left.num_features != right.num_features:
            raise InvalidArgumentError(
                f"A coefficient needs as many features on both sides, got {left.num_features} and {right.num_features}."
            )
        self.constant, self.left, self.right = float(constant), left, right

    @property
    def num_features(self) -> int:
        """The number of features of each side."""
        return self.left.num_features

    def forward(
        self,
        x: Tensor,  # (..., n, d)
        y: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the coefficients of all x and y."""
        out: Tensor = self.constant + self.left(x) @ self.right(y).mT
        return out


class _NoMap(CoefficientMap):
    @property
    def num_features(self) -> int:
        return 0

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(*x.shape[:-1], 0)


class Constant(Coefficient):
    """The same coefficient for all x and y.

    Args:
        value: Any finite number.
    """

    def __init__(self, value: float) -> None:
        super().__init__(value, _NoMap(), _NoMap())


class _SignMap(CoefficientMap):
    def __init__(self, frequencies: Frequencies, sign: float) -> None:
        super().__init__()
        self.frequencies, self.sign = frequencies, sign

    @property
    def num_features(self) -> int:
        return self.frequencies.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        amplitudes: Tensor = 0.5**0.5 * self.frequencies.amplitudes.to(x)
        return self.sign * amplitudes * self.frequencies.project(x).sign()


class Angular(Coefficient):
    """The angle of x and y over pi: 0 where they point the same way, 1 where they are opposite.

    lambda = 1/2 - 1/(2 n) sum_i sgn(tau_i . x) sgn(tau_i . y), since tau parts x from y with probability theta / pi. A
    zero vector has the coefficient 1/2. The signs have no gradient, and none is missed: the mean of an estimator's
    gradient is that of the kernel whatever the coefficient.

    Source: Choromanski et al. (2022), Eq. 19 and Lemma 3.2.

    Args:
        frequencies: tau, `Frequencies` of an isotropic spectrum or a plain (n, d) tensor; only directions matter.

    Raises:
        InvalidArgumentError: antithetic frequencies, whose features repeat each other.
    """

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        drawn = as_frequencies(frequencies)
        if drawn.antithetic:
            raise InvalidArgumentError(
                "Signs of antithetic frequencies repeat each other. Use the coupling without -antithetic."
            )
        super().__init__(0.5, _SignMap(drawn, 1.0), _SignMap(drawn, -1.0))


class _LinearMap(CoefficientMap):
    """`factor` times the features of A x, or of x, divided by `scale`."""

    def __init__(self, side: SideMap, scale: float, factor: float, matrix: Tensor | None = None) -> None:
        super().__init__()
        self.side, self.scale, self.factor, self.matrix = side, scale, factor, matrix

    @property
    def num_features(self) -> int:
        return self.side.num_features

    def forward(self, x: Tensor) -> Tensor:
        argument = x if self.matrix is None else times(self.matrix, x)
        out: Tensor = self.factor * self.side(argument / self.scale)
        return out


_ESTIMATORS = {"trigonometric": Trigonometric, "positive": Positive}


def _gaussian_side(frequencies: Frequencies | Tensor, scale: float, estimator: str) -> SideMap:
    """Return features of the Gaussian kernel."""
    if not 0 < scale < math.inf:
        raise InvalidArgumentError(f"scale must be positive and finite, got {scale!r}.")
    if estimator not in _ESTIMATORS:
        raise InvalidArgumentError(f'estimator must be "trigonometric" or "positive", got {estimator!r}.')
    return _ESTIMATORS[estimator](frequencies, "gaussian").left


class Gaussian(Coefficient):
    """exp(-|x - y|^2 / (2 tau^2)), or with x + y, or one less that, by trigonometric or positive features.

    By trigonometric features it is known exactly where its argument is 0: `of="difference", complement=True` is 0 at
    x = y, where the trigonometric estimator is exact, and `of="sum"` is 1 at x = -y, where the positive one is.

    With the length r of the vectors, (1 - exp(-|x - y|^2 / (2 tau^2))) / rho, rho = 1 - exp(-2 r^2 / tau^2), is 0 at
    x = y and 1 at x = -y, since |x - y| = 2 r there. Trigonometric features know it at the first, where the bipolar
    hybrid is then exact, positive ones at the second; tau is 1 / sigma of the paper.

    Source: Choromanski et al. (2022), Appendix F, Eqs. 67 to 70, where rho = 1 without `length`; `of="sum"`: Eq. 20
    with M = I.

    Args:
        frequencies: Gaussian `Frequencies` or a plain (n, d) tensor.
        scale: tau.
        of: "difference" or "sum".
        complement: Whether the coefficient is one less the exponential.
        length: r, of all x and y, for a complement of the difference; None: not normalized.
        estimator: "trigonometric", 2 n features, or "positive", n.

    Raises:
        InvalidArgumentError: a scale or length that is not positive and finite, another `of` or estimator, a length
            without a complement of the difference, or antithetic frequencies of trigonometric features.
    """

    def __init__(
        self,
        frequencies: Frequencies | Tensor,
        scale: float = 1.0,
        *,
        of: str = "difference",
        complement: bool = False,
        length: float | None = None,
        estimator: str = "trigonometric",
    ) -> None:
        if of not in ("difference", "sum"):
            raise InvalidArgumentError(f'of must be "difference" or "sum", got {of!r}.')
        side = _gaussian_side(frequencies, scale, estimator)
        rho = normalizer(length, scale, of == "difference" and complement)
        left = _LinearMap(side, scale, 1 / rho)
        right = _LinearMap(side, scale if of == "difference" else -scale, -1.0 if complement else 1.0)
        super().__init__(1 / rho if complement else 0.0, left, right)


def normalizer(length: float | None, scale: float, is_complement: bool) -> float:
    """Return rho = 1 - exp(-2 r^2 / tau^2), by which the coefficient of vectors of length r is divided; without it 1.

    Source: Choromanski et al. (2022), Eq. 68.

    Args:
        length: r.
        scale: tau.
        is_complement: Whether the coefficient is one less the exponential of the difference.

    Raises:
        InvalidArgumentError: a length of another coefficient, or one that is not positive and finite.
    """
    if length is None:
        return 1.0
    if not is_complement:
        raise InvalidArgumentError('length belongs to of="difference" with complement=True.')
    if not 0 < length < math.inf:
        raise InvalidArgumentError(f"length must be positive and finite, got {length!r}.")
    return -math.expm1(-2 * (length / scale) ** 2)


class Matched(Coefficient):
    """exp(-|L x + R y|^2 / (2 tau^2)), the Gaussian kernel of L x and -R y: 1 where L x = -R y, and small far from it.

    With L = I and R = M it fires where x is near -M y; with a real A, L = A and R = A^-T, where the estimator
    `Exponential` of A is accurate.

    Source: Choromanski et al. (2022), Eq. 20 (L = I), and Definition H.1 with Eqs. 93 to 96 (L = A, R = A^-T, positive
    features). For a complex A Eq. 93 does not hold: see `gaussian_between_centers`.

    Args:
        frequencies: Gaussian `Frequencies` or a plain (n, d) tensor, which coefficients may share, not with estimators.
        left: L, real, (d, d), or its diagonal (d,); None: the identity.
        right: R, likewise.
        scale: tau.
        estimator: "trigonometric", 2 n features, or "positive", n.

    Raises:
        InvalidArgumentError: a scale that is not positive and finite, another estimator, matrices that are not real and
            finite or of another shape, or antithetic frequencies of trigonometric features.
    """

    def __init__(
        self,
        frequencies: Frequencies | Tensor,
        left: Tensor | None = None,  # (d, d) or (d,)
        right: Tensor | None = None,  # (d, d) or (d,)
        scale: float = 1.0,
        *,
        estimator: str = "trigonometric",
    ) -> None:
        drawn = as_frequencies(frequencies)
        side = _gaussian_side(drawn, scale, estimator)
        for matrix in (left, right):
            if matrix is not None and check_matrix(matrix, drawn.shape[1]).is_complex():
                raise InvalidArgumentError("The matrices of a Gaussian coefficient must be real.")
        super().__init__(0.0, _LinearMap(side, scale, 1.0, left), _LinearMap(side, -scale, 1.0, right))


class _ClusterMap(CoefficientMap):
    """Whether a vector belongs to a cluster, or with a scale: how far."""

    def __init__(self, centers: Tensor, index: int, scale: float | None) -> None:
        super().__init__()
        if centers.ndim != 2 or 0 in centers.shape or not bool(torch.isfinite(centers).all()):
            raise InvalidArgumentError(f"Centers must be a finite matrix (K, d), got shape {tuple(centers.shape)}.")
        if not 0 <= index < len(centers):
            raise InvalidArgumentError(f"There is no cluster {index} among {len(centers)}.")
        self.centers, self.index, self.scale = centers, index, scale

    @property
    def num_features(self) -> int:
        return 1

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.centers.shape[1]:
            raise InvalidArgumentError(
                f"Inputs must have {counted(self.centers.shape[1], 'column')}, got {tuple(x.shape)}."
            )
        squares = (x[..., None, :] - self.centers.to(x)).square().sum(-1)
        if self.scale is None:
            return (squares.argmin(-1, keepdim=True) == self.index).to(x)
        return (-0.5 / self.scale**2 * squares).softmax(-1)[..., self.index, None]


class Clusters(Coefficient):
    """1 where x is nearest to one center and y to another, otherwise 0.

    Over all pairs of centers they sum to 1.

    Source: Choromanski et al. (2022), Definition H.2.

    Args:
        left_centers: Of the x, (K, d).
        right_centers: Of the y, (L, d).
        pair: (i, j), the positions of the two centers.

    Raises:
        InvalidArgumentError: centers that are not finite or no matrix, or positions that do not exist.
    """

    def __init__(
        self,
        left_centers: Tensor,  # (K, d)
        right_centers: Tensor,  # (L, d)
        pair: tuple[int, int],
    ) -> None:
        super().__init__(0.0, _ClusterMap(left_centers, pair[0], None), _ClusterMap(right_centers, pair[1], None))


class GaussianMixture(Coefficient):
    """The responsibility of one center for x times that of another for y.

    Responsibilities exp(-|x - r_i|^2 / (2 scale^2)) are normalized over i, so that over all pairs of centers the
    coefficients sum to 1; as the scale goes to 0 they become those of `Clusters`.

    Source: ours, a softer Definition H.2 of Choromanski et al. (2022). The coefficients of their Definition H.1 are
    `Matched`: estimated, and not normalized.

    Args:
        left_centers: Of the x, (K, d).
        right_centers: Of the y, (L, d).
        pair: (i, j), the positions of the two centers.
        scale: Of a cluster.

    Raises:
        InvalidArgumentError: a scale that is not positive and finite, or as for `Clusters`.
    """

    def __init__(
        self,
        left_centers: Tensor,  # (K, d)
        right_centers: Tensor,  # (L, d)
        pair: tuple[int, int],
        scale: float = 1.0,
    ) -> None:
        if not 0 < scale < math.inf:
            raise InvalidArgumentError(f"scale must be positive and finite, got {scale!r}.")
        super().__init__(0.0, _ClusterMap(left_centers, pair[0], scale), _ClusterMap(right_centers, pair[1], scale))
