"""Coefficients of hybrid estimators: lambda(x, y) = a + left(x) . right(y), estimated as the kernels are.

Source: Choromanski et al. (2022), Eqs. 9 and 10.
"""

import math

import torch
from torch import Tensor

from rfgp.couplings import Frequencies, as_frequencies
from rfgp.couplings.coupling import check_unpaired
from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax.pairs import (
    FeatureMap,
    FeatureProduct,
    Positive,
    SideMap,
    Trigonometric,
    check_matrix,
    times,
)
from rfgp.messages import counted, positive


class Coefficient(FeatureProduct):
    """A coefficient lambda(x, y) = a + left(x) . right(y) of a hybrid estimator.

    It is exact, or estimated from a draw that is independent of the estimators that it mixes.

    Args:
        constant: a.
        left: Features of x.
        right: As many features of y.

    Raises:
        InvalidArgumentError: If a is not finite, or the sides have different numbers of features.

    Examples:
        >>> coefficient = Angular(torch.eye(2))
        >>> coefficient(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 1.0], [-1.0, -1.0]])).round()
        tensor([[0., 1.]])
    """

    def __init__(self, constant: float, left: FeatureMap, right: FeatureMap) -> None:
        super().__init__(left, right)
        if not math.isfinite(constant):
            raise InvalidArgumentError(f"The constant of a coefficient must be finite, got {constant!r}.")
        self.constant = float(constant)

    def forward(
        self,
        x: Tensor,  # (..., n, d)
        y: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the coefficients (..., n, k) of all x (..., n, d) and y (..., k, d)."""
        return self.constant + super().forward(x, y)


class _NoMap(FeatureMap):
    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(*x.shape[:-1], 0)


class Constant(Coefficient):
    """The same coefficient for all x and y.

    Args:
        value: Any finite number.

    Examples:
        >>> Constant(0.25)(torch.zeros(1, 2), torch.zeros(2, 2))
        tensor([[0.2500, 0.2500]])
    """

    def __init__(self, value: float) -> None:
        super().__init__(value, _NoMap(0), _NoMap(0))


class _SignMap(FeatureMap):
    def __init__(self, frequencies: Frequencies, sign: float) -> None:
        super().__init__(frequencies.shape[0])
        self.frequencies, self.sign = frequencies, sign

    def forward(self, x: Tensor) -> Tensor:
        amplitudes: Tensor = 0.5**0.5 * self.frequencies.amplitudes.to(x)
        return self.sign * amplitudes * self.frequencies.project(x).sign()


class Angular(Coefficient):
    """The angle of x and y divided by pi: 0 for equal directions, 1 for opposite ones.

    lambda = 1/2 - 1/(2 n) sum_i sgn(tau_i . x) sgn(tau_i . y), since tau separates x and y with probability theta / pi.
    A zero vector has the coefficient 1/2. The signs have no gradient. The gradient of the estimate is still unbiased,
    because the estimators are unbiased for any coefficient.

    Source: Choromanski et al. (2022), Eq. 19 and Lemma 3.2.

    Args:
        frequencies: tau, `Frequencies` of an isotropic spectrum or a plain (n, d) tensor. Only directions are used.

    Raises:
        InvalidArgumentError: If the frequencies are antithetic.

    Examples:
        >>> Angular(torch.eye(2))(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, -1.0]])).round(decimals=2)
        tensor([[0.5000]])
    """

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        drawn = as_frequencies(frequencies)
        check_unpaired(drawn, "for sign features")
        super().__init__(0.5, _SignMap(drawn, 1.0), _SignMap(drawn, -1.0))


class _LinearMap(FeatureMap):
    """`factor` times the features of A x / scale, or of x / scale."""

    def __init__(self, side: SideMap, scale: float, factor: float, matrix: Tensor | None = None) -> None:
        super().__init__(side.num_features)
        self.side, self.scale, self.factor, self.matrix = side, scale, factor, matrix

    def forward(self, x: Tensor) -> Tensor:
        argument = x if self.matrix is None else times(self.matrix, x)
        out: Tensor = self.factor * self.side(argument / self.scale)
        return out


_ESTIMATORS = {"trigonometric": Trigonometric, "positive": Positive}


def _gaussian_side(frequencies: Frequencies | Tensor, scale: float, estimator: str) -> SideMap:
    """Return features of the Gaussian kernel."""
    positive("scale", scale)
    if estimator not in _ESTIMATORS:
        raise InvalidArgumentError(f'estimator must be "trigonometric" or "positive", got {estimator!r}.')
    return _ESTIMATORS[estimator](frequencies, "gaussian").left


class Gaussian(Coefficient):
    """A Gaussian coefficient by trigonometric or positive features.

    It is exp(-|x - y|^2 / (2 tau^2)), the same function of x + y, or 1 minus one of them. Trigonometric features are
    exact if the argument is 0. So `of="difference", complement=True` is exactly 0 at x = y, where the trigonometric
    estimator is exact. `of="sum"` is exactly 1 at x = -y, where the positive one is exact.

    With the length r of the vectors it is (1 - exp(-|x - y|^2 / (2 tau^2))) / rho, rho = 1 - exp(-2 r^2 / tau^2). This
    is 0 at x = y. It is 1 at x = -y, since |x - y| = 2 r there. Trigonometric features are exact at the first point,
    which makes the bipolar hybrid exact. Positive ones are exact at the second point. tau is 1 / sigma of the paper.

    Source: Choromanski et al. (2022), Appendix F, Eqs. 67 to 70, with rho = 1 without `length`. `of="sum"`: Eq. 20 with
    M = I.

    Args:
        frequencies: Gaussian `Frequencies` or a plain (n, d) tensor.
        scale: tau.
        of: "difference" or "sum".
        complement: Whether the coefficient is 1 minus the exponential.
        length: r of all x and y, for a complement of the difference. If None, the coefficient is not normalized.
        estimator: "trigonometric" with 2 n features, or "positive" with n.

    Raises:
        InvalidArgumentError: If a scale or length is not positive and finite, or `of` or the estimator is unknown. Also
            if a length is given without a complement of the difference, or trigonometric features get antithetic
            frequencies.

    Examples:
        >>> x = torch.ones(1, 2)
        >>> Gaussian(torch.eye(2))(x, x).round(decimals=4)
        tensor([[1.]])
        >>> Gaussian(torch.eye(2), complement=True)(x, x).abs().round(decimals=4)
        tensor([[0.]])
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
    """Return rho = 1 - exp(-2 r^2 / tau^2).

    It normalizes the coefficient of vectors of length r. Source: Choromanski et al. (2022), Eq. 68.

    Args:
        length: r. If None, rho is 1.
        scale: tau.
        is_complement: Whether the coefficient is 1 minus the exponential of the difference.

    Raises:
        InvalidArgumentError: If the length is not positive and finite, or is given for another coefficient.

    Examples:
        >>> round(normalizer(1.0, 2.0, True), 4), normalizer(None, 2.0, False)
        (0.3935, 1.0)
    """
    if length is None:
        return 1.0
    if not is_complement:
        raise InvalidArgumentError(
            f'length must be None unless of="difference" with complement=True, got {length!r}. Leave it out.'
        )
    positive("length", length)
    return -math.expm1(-2 * (length / scale) ** 2)


class Matched(Coefficient):
    """exp(-|L x + R y|^2 / (2 tau^2)), the Gaussian kernel of L x and -R y.

    It is 1 for L x = -R y, and small far from there. With L = I and R = M it is large if x is near -M y. With a real A,
    L = A and R = A^-T, it is large where the estimator `Exponential` of A is accurate.

    Source: Choromanski et al. (2022), Eq. 20 (L = I), and Definition H.1 with Eqs. 93 to 96 (L = A, R = A^-T, positive
    features). Eq. 93 does not hold for a complex A. See `gaussian_between_centers`.

    Args:
        frequencies: Gaussian `Frequencies` or a plain (n, d) tensor. Coefficients may share them, but not with
            estimators.
        left: L, real, (d, d), or its diagonal (d,). If None, the identity.
        right: R, real, (d, d), or its diagonal (d,). If None, the identity.
        scale: tau.
        estimator: "trigonometric" with 2 n features, or "positive" with n.

    Raises:
        InvalidArgumentError: If the scale is not positive and finite, the estimator is unknown, or a matrix is not real
            and finite or has another shape. Also if trigonometric features get antithetic frequencies.

    Examples:
        >>> x = torch.ones(1, 2)
        >>> Matched(torch.eye(2), right=torch.tensor([0.5, 2.0]))(x, torch.tensor([[-2.0, -0.5]])).round(decimals=4)
        tensor([[1.]])
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


class _ClusterMap(FeatureMap):
    """Whether a vector belongs to a cluster, or its responsibility with a scale."""

    def __init__(self, centers: Tensor, index: int, scale: float | None) -> None:
        super().__init__(1)
        if centers.ndim != 2 or 0 in centers.shape or not bool(torch.isfinite(centers).all()):
            raise InvalidArgumentError(f"Centers must be a finite matrix (K, d), got shape {tuple(centers.shape)}.")
        if not 0 <= index < len(centers):
            raise InvalidArgumentError(f"pair must be positions of centers below {len(centers)}, got {index}.")
        self.centers, self.index, self.scale = centers, index, scale

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
    """1 if x is nearest to one center and y to another, otherwise 0.

    Over all pairs of centers the coefficients sum to 1.

    Source: Choromanski et al. (2022), Definition H.2.

    Args:
        left_centers: The centers of the x, (K, d).
        right_centers: The centers of the y, (L, d).
        pair: (i, j), the positions of the two centers.

    Raises:
        InvalidArgumentError: If the centers are not a finite matrix, or a position does not exist.

    Examples:
        >>> centers = torch.tensor([[0.0], [4.0]])
        >>> Clusters(centers, centers, (0, 1))(torch.tensor([[1.0], [3.0]]), torch.tensor([[3.0]]))
        tensor([[1.],
                [0.]])
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

    Responsibilities exp(-|x - r_i|^2 / (2 scale^2)) are normalized over i. So the coefficients of all pairs of centers
    sum to 1. As the scale goes to 0 they become those of `Clusters`.

    Source: ours, a softer Definition H.2 of Choromanski et al. (2022). The coefficients of their Definition H.1 are
    `Matched`: they are estimated and not normalized.

    Args:
        left_centers: The centers of the x, (K, d).
        right_centers: The centers of the y, (L, d).
        pair: (i, j), the positions of the two centers.
        scale: The standard deviation of a cluster.

    Raises:
        InvalidArgumentError: If the scale is not positive and finite, or for the reasons of `Clusters`.

    Examples:
        >>> centers = torch.tensor([[0.0], [4.0]])
        >>> GaussianMixture(centers, centers, (0, 0))(torch.tensor([[2.0]]), torch.tensor([[2.0]]))
        tensor([[0.2500]])
    """

    def __init__(
        self,
        left_centers: Tensor,  # (K, d)
        right_centers: Tensor,  # (L, d)
        pair: tuple[int, int],
        scale: float = 1.0,
    ) -> None:
        positive("scale", scale)
        super().__init__(0.0, _ClusterMap(left_centers, pair[0], scale), _ClusterMap(right_centers, pair[1], scale))
