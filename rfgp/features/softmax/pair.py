"""The role of an estimator of the softmax kernel: two feature maps with a common draw.

Two kernels, of vectors that are divided by the lengthscale (in attention: by the fourth root of d) already:

    softmax(x, y) = exp(x . y),        gaussian(x, y) = exp(-|x - y|^2 / 2) = softmax(x, y) exp(-|x|^2 / 2 - |y|^2 / 2),

so features of the one are those of the other times a factor of their own vector. An estimator whose features are
complex is written in real ones: Re(a b) = (Re a, Im a) . (Re b, -Im b), which is why the two maps differ.
"""

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from rfgp.counts import counted
from rfgp.errors import InvalidArgumentError

KERNELS = ("softmax", "gaussian")


class SideMap(nn.Module, ABC):
    """One side of an estimator.

    Args:
        kernel: "softmax" or "gaussian".
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
        """Return the features of x, in its dtype and on its device."""

    def shift(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, 1)
        """Return the logarithm of what features of the softmax kernel are multiplied by for this map's kernel."""
        square = x.square().sum(-1, keepdim=True)
        return -0.5 * square if self.kernel == "gaussian" else torch.zeros_like(square)


@runtime_checkable
class PositiveMap(Protocol):
    """A side map whose features are positive, and known by their logarithms, which do not overflow."""

    def log_values(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, F)
        """Return the logarithms of the features of x."""


class FeaturePair(nn.Module):
    """Two feature maps with a common draw: E[left(x) . right(y)] is the kernel.

    The draw is no parameter or buffer: `state_dict` is empty, and a pair is made again from its frequencies.
    `rfgp.attention.RandomFeatureAttention` keeps them in its state.

    Args:
        left: Of x; a `PositiveMap` where its features are positive.
        right: Of y, with as many features and for the same kernel.

    Raises:
        InvalidArgumentError: the two do not belong together.
    """

    def __init__(self, left: SideMap, right: SideMap) -> None:
        super().__init__()
        if left.num_features != right.num_features or left.kernel != right.kernel:
            raise InvalidArgumentError(
                f"{counted(left.num_features, 'feature')} for the {left.kernel} kernel on the left and "
                f"{right.num_features} for "
                f"the {right.kernel} kernel on the right are no pair."
            )
        self.left, self.right = left, right

    @property
    def kernel(self) -> str:
        """What is estimated: "softmax" or "gaussian"."""
        return self.left.kernel

    @property
    def num_features(self) -> int:
        """The number F of features of each side."""
        return self.left.num_features

    @property
    def is_positive(self) -> bool:
        """Whether no estimate can be negative."""
        return isinstance(self.left, PositiveMap) and isinstance(self.right, PositiveMap)

    def forward(
        self,
        x: Tensor,  # (..., n, d)
        y: Tensor,  # (..., k, d)
    ) -> Tensor:  # (..., n, k)
        """Return the estimates of the kernel between all x and y."""
        out: Tensor = self.left(x) @ self.right(y).mT
        return out


def check_kernel(kernel: str) -> str:
    """Return the name of a kernel.

    Raises:
        InvalidArgumentError: it is not "softmax" or "gaussian".
    """
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise InvalidArgumentError(f"kernel must be one of {', '.join(map(repr, KERNELS))}, got {kernel!r}.")
    return kernel


def check_matrix(
    matrix: Tensor,  # (d, d) or (d,)
    num_dims: int,
) -> Tensor:  # as the matrix
    """Return a matrix or its diagonal.

    Raises:
        InvalidArgumentError: it is neither, or has entries that are not finite.
    """
    if not isinstance(matrix, Tensor) or not (matrix.is_floating_point() or matrix.is_complex()):
        kind = matrix.dtype if isinstance(matrix, Tensor) else type(matrix).__name__
        raise InvalidArgumentError(f"The matrix A must be a real or complex floating-point tensor, got {kind}.")
    if matrix.shape not in ((num_dims,), (num_dims, num_dims)):
        raise InvalidArgumentError(
            f"Frequencies in {num_dims} dimensions need a matrix A of shape ({num_dims}, {num_dims}) or a diagonal "
            f"({num_dims},), got {tuple(matrix.shape)}."
        )
    if not bool(torch.isfinite(matrix).all()):
        raise InvalidArgumentError("The matrix A has entries that are not finite.")
    return matrix


def times(
    matrix: Tensor,  # (d, d) or (d,)
    x: Tensor,  # (..., n, d)
) -> Tensor:  # (..., n, d)
    """Return A x for each row, A being a matrix or its diagonal."""
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
        InvalidArgumentError: another kernel.
    """
    if check_kernel(kernel) == "softmax":
        return (x @ y.mT).exp()
    return (-0.5 * torch.cdist(x, y).square()).exp()
