"""The interface of estimators of the softmax kernel: two feature maps with a common draw.

There are two kernels of vectors that are divided by the lengthscale (in attention: by the fourth root of d):

    softmax(x, y) = exp(x . y),        gaussian(x, y) = exp(-|x - y|^2 / 2) = softmax(x, y) exp(-|x|^2 / 2 - |y|^2 / 2).

The features of one are those of the other times a factor of each vector. Estimators with complex features are written
in real ones: Re(a b) = (Re a, Im a) . (Re b, -Im b). Hence the two maps differ.
"""

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from rfgp.errors import InvalidArgumentError
from rfgp.messages import counted

KERNELS = ("softmax", "gaussian")


class SideMap(nn.Module, ABC):
    """One of the two feature maps of an estimator.

    Args:
        kernel: "softmax" or "gaussian".

    Examples:
        >>> from rfgp.features import softmax
        >>> side = softmax.Positive(torch.eye(2)).left
        >>> isinstance(side, SideMap), side.num_features
        (True, 2)
    """

    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.kernel = check_kernel(kernel)

    @property
    @abstractmethod
    def num_features(self) -> int:
        """The number F of features."""

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


class FeaturePair(nn.Module):
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
        super().__init__()
        if left.num_features != right.num_features or left.kernel != right.kernel:
            raise InvalidArgumentError(
                "left and right must have equal kernels and numbers of features, got "
                f"{counted(left.num_features, 'feature')} of the {left.kernel} kernel and {right.num_features} of the "
                f"{right.kernel} kernel."
            )
        self.left, self.right = left, right

    @property
    def kernel(self) -> str:
        """The estimated kernel, "softmax" or "gaussian"."""
        return self.left.kernel

    @property
    def num_features(self) -> int:
        """The number F of features of each side."""
        return self.left.num_features

    @property
    def is_positive(self) -> bool:
        """Whether all estimates are positive."""
        return isinstance(self.left, PositiveMap) and isinstance(self.right, PositiveMap)

    def forward(
        self,
        x: Tensor,  # (..., n, d)
        y: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the estimates of the kernel between all x and y.

        Args:
            x: Inputs, (..., n, d).
            y: Inputs, (..., k, d).

        Returns:
            The estimates, (..., n, k).
        """
        out: Tensor = self.left(x) @ self.right(y).mT
        return out


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
