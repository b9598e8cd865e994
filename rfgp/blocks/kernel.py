"""Blocks with a covariance function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.role import Functions, LatentBlock
from rfgp.blocks.weights import Residual, WeightBlock
from rfgp.grams import Gram
from rfgp.linalg import cholesky, half_solve

JITTER = 1e-8
"""The largest jitter of a kernel matrix, relative to the variance, that raises no warning."""


MAX_CELLS = 2**20
"""The maximum number of pairs of positions of a product covariance. Draws for variances then take 512 MB."""


@dataclass(frozen=True, eq=False)
class Side:
    """One of two kernels on disjoint columns whose product is a covariance.

    Attributes:
        covariance: Maps inputs a and b, and the parameters of the product, to (n_a, n_b).
        column_indices: The indices of its columns.
    """

    covariance: Callable[..., Tensor]
    column_indices: tuple[int, ...]

    def distinct(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distinct positions of inputs (n, D) in the columns of the side.

        Args:
            inputs: The inputs, (n, D).

        Returns:
            Inputs (N, D) at the N positions, and the index of the position of each row (n,).
        """
        columns = inputs[:, list(self.column_indices)].detach().numpy()
        _, first, codes = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        return inputs[torch.from_numpy(first)], torch.from_numpy(codes.reshape(-1))


class PriorFunctions(Protocol):
    """Interface: functions drawn from a prior, for pathwise conditioning."""

    def draw(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of the inputs of n points, (n, count).

        Args:
            count: The number of functions.
            generator: The generator of the draws.
        """

    def kernel_expansion(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> k(x, inputs) @ coefficients.

        Args:
            inputs: The inputs of n points.
            coefficients: The coefficients, (n, p).
        """


@dataclass(frozen=True, eq=False)
class KernelBlock(LatentBlock):
    """A process f whose covariance function is evaluated exactly.

    Attributes:
        covariance: Maps inputs a and b, and `parameters`, to k(a, b) (n_a, n_b).
        variances: Maps inputs a, and `parameters`, to k(a_i, a_i) (n_a,).
        parameters: The tensors that the covariance depends on.
        functions: The functions drawn from the prior. If None, the prior is defined at given points only.
        name: The name of the term.
        own_gram: Maps inputs a, and `parameters`, to k(a, a) and its gradient. If None, autograd computes the gradient.
        sides: Two kernels whose product is the covariance, for rows on a grid of their positions. If None, the
            covariance is not computed as a product.

    Examples:
        >>> block = KernelBlock(lambda a, b: torch.exp(-torch.cdist(a, b)), lambda a: torch.ones(len(a)))
        >>> x = torch.tensor([[0.0], [1.0]]).double()
        >>> features = block.as_weights(x).scaled(x)
        >>> torch.allclose(features @ features.mT, block.kernel(x, x))
        True
    """

    covariance: Callable[..., Tensor]
    variances: Callable[..., Tensor]
    parameters: tuple[Tensor, ...] = ()
    functions: PriorFunctions | None = None
    name: str = "kernel"
    sides: tuple[Side, Side] | None = None
    own_gram: Callable[..., Gram] | None = None

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), (n_a, n_b)."""
        return self.covariance(a, b, *self.parameters).double()

    def gram(self, a: Tensor) -> Gram:
        """Return the covariance (n_a, n_a) of inputs with themselves, and its gradient."""
        return super().gram(a) if self.own_gram is None else self.own_gram(a, *self.parameters)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,)."""
        return self.variances(a, *self.parameters).double()

    def as_weights(self, inputs: Tensor) -> WeightBlock:
        """Return the block as weights with a residual.

        f(x) = k(x, X) L^-T w + residual with w ~ N(0, I) and L L^T = k(X, X).

        Args:
            inputs: The inputs X of the rows, (n, d) or (n,). The block has n weights.
        """
        features = _RootFeatures(self.covariance, inputs)
        residual = Residual(False, self.covariance, self.variances)
        return WeightBlock(features, len(inputs), self.parameters, residual=residual, name=self.name)


@dataclass(frozen=True, eq=False)
class _RootFeatures:
    """The features k(x, X) L^-T of inputs x and the parameters of k."""

    covariance: Callable[..., Tensor]
    rows: Tensor

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features (n, N)."""
        kernel = self.covariance(self.rows, self.rows, *parameters).double()
        factor = cholesky(kernel, "The kernel matrix of the rows", expected=JITTER)  # the residual includes the jitter
        if x is self.rows:
            return factor
        cross = self.covariance(self.rows, x, *parameters).double()
        return half_solve(factor, cross).mT
