"""The interface of estimators of the softmax kernel: two feature maps with a common draw.

There are two kernels of vectors that are divided by the lengthscale (in attention: by the fourth root of d):

    softmax(x, y) = exp(x . y),        gaussian(x, y) = exp(-|x - y|^2 / 2) = softmax(x, y) exp(-|x|^2 / 2 - |y|^2 / 2).

The features of one are those of the other times a factor of each vector. Estimators with complex features are written
in real ones: Re(a b) = (Re a, Im a) . (Re b, -Im b). Hence the two maps differ.

The chapter has, in this order: the interface; the trigonometric and the positive estimator; and general exponential
features, whose matrix A interpolates the two.
"""

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from rfgp.couplings import Frequencies, as_frequencies
from rfgp.couplings.coupling import check_unpaired
from rfgp.errors import InvalidArgumentError
from rfgp.messages import counted

KERNELS = ("softmax", "gaussian")


class FeatureMap(nn.Module, ABC):
    """One of the two feature maps of an estimator or of a coefficient.

    Attributes:
        num_features: The number F of features, which may be 0.

    Examples:
        >>> from rfgp.features import softmax
        >>> isinstance(softmax.Positive(torch.eye(2)).left, FeatureMap)
        True
    """

    def __init__(self, num_features: int | None = None) -> None:
        super().__init__()
        if num_features is not None:
            self.num_features = num_features

    @abstractmethod
    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, F)
        """Return the features of x, in its dtype and on its device.

        Args:
            x: The vectors divided by the lengthscale, (..., n, d).

        Returns:
            The features, (..., n, F).
        """


class SideMap(FeatureMap):
    """One of the two feature maps of an estimator.

    Args:
        kernel: "softmax" or "gaussian".
        num_features: The number F of features. If None, the class has a property of this name.

    Examples:
        >>> from rfgp.features import softmax
        >>> side = softmax.Positive(torch.eye(2)).left
        >>> isinstance(side, SideMap), side.num_features
        (True, 2)
    """

    def __init__(self, kernel: str, num_features: int | None = None) -> None:
        super().__init__(num_features)
        self.kernel = check_kernel(kernel)

    def shift(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, 1)
        """Return the logarithm of the factor from softmax features to those of the kernel of this map.

        Args:
            x: The vectors, (..., n, d).

        Returns:
            The logarithms, (..., n, 1).
        """
        square = x.square().sum(-1, keepdim=True)
        return -0.5 * square if self.kernel == "gaussian" else torch.zeros_like(square)


@runtime_checkable
class PositiveMap(Protocol):
    """A feature map with positive features, given by their logarithms.

    Logarithms do not overflow.

    Examples:
        >>> from rfgp.features import softmax
        >>> isinstance(softmax.Positive(torch.eye(2)).left, PositiveMap)
        True
    """

    def log_values(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, F)
        """Return the logarithms of the features of x.

        Args:
            x: The vectors, (..., n, d).

        Returns:
            The logarithms, (..., n, F).
        """


class FeatureProduct(nn.Module):
    """The inner products of two feature maps.

    Args:
        left: The map of x.
        right: The map of y, with as many features.

    Raises:
        InvalidArgumentError: If the two maps have different numbers of features.

    Examples:
        >>> from rfgp.features import softmax
        >>> side = softmax.Positive(torch.eye(2)).left
        >>> FeatureProduct(side, side)(torch.zeros(4, 2), torch.zeros(3, 2)).shape
        torch.Size([4, 3])
    """

    def __init__(self, left: FeatureMap, right: FeatureMap) -> None:
        super().__init__()
        if left.num_features != right.num_features:
            raise InvalidArgumentError(
                "left and right must have as many features, got "
                f"{counted(left.num_features, 'feature')} and {right.num_features}."
            )
        self.left, self.right = left, right

    @property
    def num_features(self) -> int:
        """The number F of features of each side."""
        return self.left.num_features

    def forward(
        self,
        x: Tensor,  # (..., n, d)
        y: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the estimates between all x and y.

        Args:
            x: Inputs, (..., n, d).
            y: Inputs, (..., k, d).

        Returns:
            The estimates, (..., n, k).
        """
        out: Tensor = self.left(x) @ self.right(y).mT
        return out


class FeaturePair(FeatureProduct):
    """Two feature maps with a common draw: E[left(x) . right(y)] is the kernel.

    The draw is not a parameter or buffer: `state_dict` is empty, and a pair is constructed from its frequencies.
    `rfgp.attention.RandomFeatureAttention` keeps them in its state.

    Args:
        left: The map of x, a `PositiveMap` if its features are positive.
        right: The map of y, with as many features and for the same kernel.

    Raises:
        InvalidArgumentError: If the two maps have different kernels or numbers of features.

    Examples:
        >>> from rfgp.features import softmax
        >>> pair = softmax.Positive(torch.eye(2))
        >>> pair(torch.zeros(4, 2), torch.zeros(3, 2)).shape, pair.kernel
        (torch.Size([4, 3]), 'softmax')
    """

    def __init__(self, left: SideMap, right: SideMap) -> None:
        super().__init__(left, right)
        if left.kernel != right.kernel:
            raise InvalidArgumentError(
                f"left and right must have equal kernels, got the {left.kernel} and the {right.kernel} kernel."
            )
        self.left: SideMap
        self.right: SideMap

    @property
    def kernel(self) -> str:
        """The estimated kernel, "softmax" or "gaussian"."""
        return self.left.kernel

    @property
    def is_positive(self) -> bool:
        """Whether all estimates are positive."""
        return isinstance(self.left, PositiveMap) and isinstance(self.right, PositiveMap)


def check_kernel(kernel: str) -> str:
    """Return the name of a kernel.

    Args:
        kernel: The name.

    Raises:
        InvalidArgumentError: If it is not "softmax" or "gaussian".

    Examples:
        >>> check_kernel("softmax")
        'softmax'
    """
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise InvalidArgumentError(f"kernel must be one of {', '.join(map(repr, KERNELS))}, got {kernel!r}.")
    return kernel


def check_matrix(
    matrix: Tensor,  # (d, d) or (d,)
    num_dims: int,
) -> Tensor:  # as the matrix
    """Check a matrix or its diagonal, and return it.

    Args:
        matrix: A, (d, d), or its diagonal (d,).
        num_dims: d.

    Raises:
        InvalidArgumentError: If it has another shape or dtype, or entries that are not finite.

    Examples:
        >>> check_matrix(torch.ones(2), 2)
        tensor([1., 1.])
    """
    if not isinstance(matrix, Tensor) or not (matrix.is_floating_point() or matrix.is_complex()):
        kind = matrix.dtype if isinstance(matrix, Tensor) else type(matrix).__name__
        raise InvalidArgumentError(f"The matrix A must be a real or complex floating-point tensor, got {kind}.")
    if matrix.shape not in ((num_dims,), (num_dims, num_dims)):
        raise InvalidArgumentError(
            f"The matrix A must be of shape ({num_dims}, {num_dims}) or a diagonal ({num_dims},) for frequencies in "
            f"{num_dims} dimensions, got {tuple(matrix.shape)}."
        )
    if not bool(torch.isfinite(matrix).all()):
        raise InvalidArgumentError("The matrix A must be finite, got entries that are not.")
    return matrix


def times(
    matrix: Tensor,  # (d, d) or (d,)
    x: Tensor,  # (..., n, d)
) -> Tensor:  # (..., n, d)
    """Return A x for each row, with A a matrix or its diagonal.

    Args:
        matrix: A, (d, d), or its diagonal (d,).
        x: The rows, (..., n, d).

    Returns:
        The products, (..., n, d).

    Examples:
        >>> times(torch.tensor([2.0, 3.0]), torch.ones(1, 2))
        tensor([[2., 3.]])
    """
    return x * matrix.to(x) if matrix.ndim == 1 else x @ matrix.to(x).mT


def exact(
    x: Tensor,  # (..., n, d)
    y: Tensor,  # (..., k, d)
    kernel: str = "softmax",
) -> Tensor:  # (..., n, k)
    """Return the kernel between all x and y.

    Args:
        x: (..., n, d).
        y: (..., k, d).
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the kernel is unknown.

    Examples:
        >>> from rfgp.features import softmax
        >>> softmax.exact(torch.zeros(1, 2), torch.ones(1, 2), "gaussian").round(decimals=4)
        tensor([[0.3679]])
    """
    if check_kernel(kernel) == "softmax":
        return (x @ y.mT).exp()
    return (-0.5 * torch.cdist(x, y).square()).exp()


# --- The two basic estimators of the softmax kernel: trigonometric and positive ---------------------------------------


class _TrigonometricMap(SideMap):
    def __init__(self, frequencies: Frequencies, kernel: str) -> None:
        super().__init__(kernel, 2 * frequencies.shape[0])
        self.frequencies = frequencies

    def forward(self, x: Tensor) -> Tensor:
        angles = self.frequencies.project(x)
        size = self.shift(x) + 0.5 * x.square().sum(-1, keepdim=True)
        amplitude = size.exp() * self.frequencies.amplitudes.to(x)
        return torch.cat([amplitude * angles.cos(), amplitude * angles.sin()], dim=-1)


class _ExponentialMap(SideMap):
    """Features exp(omega . x - |x|^2 / 2) of the softmax kernel."""

    def __init__(self, frequencies: Frequencies, kernel: str) -> None:
        super().__init__(kernel, frequencies.shape[0])
        self.frequencies = frequencies

    def forward(self, x: Tensor) -> Tensor:
        return self.log_values(x).exp()

    def log_values(self, x: Tensor) -> Tensor:
        projected = self.frequencies.project(x)
        amplitude = self.frequencies.amplitudes.log().to(x)
        return projected - 0.5 * x.square().sum(-1, keepdim=True) + self.shift(x) + amplitude


class Trigonometric(FeaturePair):
    """The trigonometric estimator of the softmax kernel.

    Its features are exp(|x|^2 / 2) (cos(omega . x), sin(omega . x)). It is accurate for small x - y and exact for x =
    y. For the Gaussian kernel it is `rfgp.features.Fourier`.

    Source: Rahimi and Recht (2007); Choromanski et al. (2022), Eq. 2.

    Args:
        frequencies: Gaussian `Frequencies`, or a plain (m, d) tensor.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the kernel is unknown, or the frequencies are antithetic.

    Examples:
        >>> from rfgp import couplings
        >>> pair = Trigonometric(couplings.by_name("orthogonal").sample(8, 2, seed=0), "gaussian")
        >>> x = torch.ones(1, 2)
        >>> round(float(pair(x, x)), 6)
        1.0
    """

    def __init__(self, frequencies: Frequencies | Tensor, kernel: str = "softmax") -> None:
        drawn = as_frequencies(frequencies)
        check_unpaired(drawn, "for trigonometric features", ", or positive features")
        side = _TrigonometricMap(drawn, kernel)
        super().__init__(side, side)


class Positive(FeaturePair):
    """The positive estimator (FAVOR+) of the softmax kernel.

    Its features are exp(omega . x - |x|^2 / 2). It is accurate for small x + y and exact for x = -y. For the Gaussian
    kernel it is `rfgp.features.Laplace`.

    Source: Choromanski et al. (2021), Lemma 1; Choromanski et al. (2022), Eq. 3.

    Args:
        frequencies: Gaussian `Frequencies`, or a plain (m, d) tensor.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the kernel is unknown.

    Examples:
        >>> from rfgp import couplings
        >>> pair = Positive(couplings.by_name("orthogonal").sample(8, 2, seed=0))
        >>> x = torch.ones(1, 2)
        >>> round(float(pair(x, -x)), 4), pair.is_positive  # exp(-2)
        (0.1353, True)
    """

    def __init__(self, frequencies: Frequencies | Tensor, kernel: str = "softmax") -> None:
        side = _ExponentialMap(as_frequencies(frequencies), kernel)
        super().__init__(side, side)


# --- General complex exponential features: a matrix A interpolates the positive and the trigonometric estimator -------
#
# For a frequency omega and an invertible matrix A let c = A x + A^-T y. With u^2 = u^T u, no conjugate,
#
#     E exp(omega . c) = exp(c^2 / 2) = exp((A x)^2 / 2 + (A^-T y)^2 / 2 + x . y),
#
# so exp(omega . (A x) - (A x)^2 / 2) and exp(omega . (A^-T y) - (A^-T y)^2 / 2) are features of the softmax kernel.
# With A x = u + i v the real part of their exponent is omega . u - (|u|^2 - |v|^2) / 2. The imaginary part is omega . v
# - u . v. The code uses real numbers only.


class _RealMap(SideMap):
    """The features of A x."""

    def __init__(self, frequencies: Frequencies, matrix: Tensor, kernel: str) -> None:
        super().__init__(kernel, frequencies.shape[0])
        self.plain, self.matrix = _ExponentialMap(frequencies, "softmax"), matrix

    def forward(self, x: Tensor) -> Tensor:
        return self.log_values(x).exp()

    def log_values(self, x: Tensor) -> Tensor:
        self.plain.frequencies.check_inputs(x)
        return self.plain.log_values(times(self.matrix, x)) + self.shift(x)


class _ComplexMap(SideMap):
    """The real parts, then the imaginary parts times `sign`."""

    def __init__(self, frequencies: Frequencies, matrix: Tensor, kernel: str, sign: float) -> None:
        super().__init__(kernel, 2 * frequencies.shape[0])
        self.frequencies, self.real, self.imaginary, self.sign = frequencies, matrix.real, matrix.imag, sign
        self.is_imaginary = not bool((self.real != 0).any())

    def forward(self, x: Tensor) -> Tensor:
        self.frequencies.check_inputs(x)
        u, v = times(self.real, x), times(self.imaginary, x)
        size = self.shift(x) + 0.5 * (v.square() - u.square()).sum(-1, keepdim=True)
        if not self.is_imaginary:
            size = size + self.frequencies.project(u)
        angles = self.frequencies.project(v) - (u * v).sum(-1, keepdim=True)
        values = size.exp() * self.frequencies.amplitudes.to(x)
        return torch.cat([values * angles.cos(), self.sign * values * angles.sin()], dim=-1)


class Exponential(FeaturePair):
    """General exponential features with a matrix A.

    They are exp(omega . (A x) - (A x)^2 / 2) and exp(omega . (A^-T y) - (A^-T y)^2 / 2).

    A = I gives `Positive`, and A = i I `Trigonometric`. The estimate is exact for A x + A^-T y = 0. A real A gives m
    positive features, and a complex one 2 m. To learn A, construct the pair in each step.

    Source: Choromanski et al. (2022), Eqs. 14 to 16. With A = I it is the estimator of one sign. Eq. 3 has both signs.

    Args:
        frequencies: Gaussian `Frequencies`, or a plain (m, d) tensor.
        matrix: A, real or complex, (d, d), or its diagonal (d,).
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the kernel is unknown, or the matrix has another shape, is singular or is not finite.
            Also if it is imaginary and the frequencies are antithetic.

    Examples:
        >>> from rfgp import couplings
        >>> pair = Exponential(couplings.by_name("orthogonal").sample(8, 2, seed=0), torch.tensor([2.0, 0.5]))
        >>> x, y = torch.tensor([[1.0, 1.0]]), torch.tensor([[-4.0, -0.25]])  # A x + A^-T y = 0
        >>> round(float(pair(x, y) / (x @ y.mT).exp()), 4)
        1.0
    """

    def __init__(
        self,
        frequencies: Frequencies | Tensor,  # (m, d)
        matrix: Tensor,  # (d, d) or (d,)
        kernel: str = "softmax",
    ) -> None:
        drawn = as_frequencies(frequencies)
        inverse = inverse_transpose(matrix, drawn.shape[1])
        self_conjugate = not matrix.is_complex() or not bool((matrix.imag != 0).any())
        if self_conjugate:
            sides = [_RealMap(drawn, a.real if a.is_complex() else a, kernel) for a in (matrix, inverse)]
            super().__init__(sides[0], sides[1])
            return
        if not bool((matrix.real != 0).any()):
            check_unpaired(drawn, "for an imaginary matrix")
        super().__init__(_ComplexMap(drawn, matrix, kernel, 1.0), _ComplexMap(drawn, inverse, kernel, -1.0))


def matching_diagonal(
    r: Tensor,  # (d,)
    s: Tensor,  # (d,)
    *,
    spread: float = 0.0,
    floor: float = 0.1,
    real: bool = False,
) -> Tensor:  # (d,)
    """Return the diagonal of an A with A r + A^-T s = 0.

    `Exponential` is then exact at (r, s).

    a_k^2 r_k = -s_k has the solution a_k = sqrt(-s_k / r_k), real if the signs differ and imaginary if they agree. If
    one of the two is zero there is no solution. So the sizes of entries are raised to the floor, which keeps a_k
    moderate. If both are zero, a_k = 1.

    For real diagonals (a r + s / a)^2 is a^2 r^2 + s^2 / a^2 + 2 r s. It is minimal for a_k = sqrt |s_k / r_k|, for any
    signs. If these agree, |A r + A^-1 s|^2 is 4 r_k s_k in that entry.

    Around the points the variance grows with sum_k |a_k x_k + y_k / a_k|^2. Let x and y be independent with the means r
    and s and the variance spread^2 of each entry. Then its mean is minimal for

        |a_k|^4 = E y_k^2 / E x_k^2 = (s_k^2 + spread^2) / (r_k^2 + spread^2),

    with the same signs. For wide clusters this is far better, though it is not exact at any point.

    Source: Choromanski et al. (2022), Eqs. 85 to 87, real ones Eq. 88. For spread > 0 it is derived above.

    Args:
        r: (d,).
        s: (d,).
        spread: The standard deviation of an entry around the points. 0 makes the estimate exact at the points.
        floor: The smallest size of an entry, relative to the root mean square entry of r and s.
        real: Whether the diagonal is real even if signs agree. Features are then positive and half as many.

    Returns:
        (d,), real if all entries are, otherwise complex.

    Raises:
        InvalidArgumentError: If shapes differ, entries are not finite, or a floor or spread is out of range.

    Examples:
        >>> matching_diagonal(torch.tensor([1.0, 2.0]), torch.tensor([-4.0, -2.0]))
        tensor([2., 1.])
        >>> matching_diagonal(torch.tensor([1.0]), torch.tensor([4.0]))  # the signs agree
        tensor([0.+2.j])
    """
    floating = r.is_floating_point() and s.is_floating_point()
    if not floating or r.ndim != 1 or r.shape != s.shape or not bool((torch.isfinite(r) & torch.isfinite(s)).all()):
        raise InvalidArgumentError(
            f"r and s must be finite floating-point vectors (d,), got {r.dtype} {tuple(r.shape)} and "
            f"{s.dtype} {tuple(s.shape)}."
        )
    if not 0 < floor < float("inf"):
        raise InvalidArgumentError(f"floor must be positive, got {floor!r}.")
    if not 0 <= spread < float("inf"):
        raise InvalidArgumentError(f"spread must be finite and not negative, got {spread!r}.")
    least = floor * (0.5 * (r.square() + s.square()).mean()).sqrt().clamp_min(torch.finfo(r.dtype).tiny ** 0.5)
    squares = [v.abs().maximum(least).square() + spread**2 for v in (r, s)]
    size = (squares[1] / squares[0]) ** 0.25
    same = (r * s > 0) & (not real)
    return torch.complex(size * ~same, size * same) if bool(same.any()) else size


def inverse_transpose(
    matrix: Tensor,  # (d, d) or (d,)
    num_dims: int,
) -> Tensor:  # as the matrix
    """Return A^-T, or its diagonal.

    Args:
        matrix: A, (d, d), or its diagonal (d,).
        num_dims: d.

    Raises:
        InvalidArgumentError: If A is singular.

    Examples:
        >>> inverse_transpose(torch.tensor([2.0, 4.0]), 2)
        tensor([0.5000, 0.2500])
    """
    a = check_matrix(matrix, num_dims).detach()
    sizes = a.abs() if matrix.ndim == 1 else torch.linalg.svdvals(a)
    if float(sizes.min()) <= num_dims * torch.finfo(sizes.dtype).eps * float(sizes.max()):
        raise InvalidArgumentError(
            f"The matrix A must be invertible, got singular values between {float(sizes.min()):.2g} and "
            f"{float(sizes.max()):.2g}, which is singular. Add to the diagonal, or choose another A."
        )
    return matrix.reciprocal() if matrix.ndim == 1 else torch.linalg.inv(matrix).mT
