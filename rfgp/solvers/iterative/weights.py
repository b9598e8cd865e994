"""Blocks of dense weights at rows."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import Prior, WeightBlock
from rfgp.errors import InvalidArgumentError
from rfgp.solvers.iterative.parts import DensePart
from rfgp.solvers.iterative.role import Matrix, Reads, Term


class WeightTerm(Term):
    """f = Phi w with dense Phi; the coordinates are w, (F,).

    Args:
        prior: The prior.
        block: The block, with gradients.
        inputs: The inputs of the rows.
    """

    def __init__(self, prior: Prior, block: WeightBlock, inputs: Tensor) -> None:
        self.name, self.width, self._block = block.name, block.num_features, block
        self._is_precise = prior.neighbors is not None and prior.neighbors.is_residual
        self._phi = self._features(inputs)

    def _features(self, inputs: Tensor) -> Tensor:
        """Return Phi (n, F), float64; evaluated in float64 if a residual is what it leaves."""
        return self._block.scaled(inputs.double() if self._is_precise else inputs).double()

    @cached_property
    def part(self) -> DensePart:
        """Phi of the rows."""
        return DensePart(self._phi.detach())

    def read(self, inputs: Tensor) -> Reads:
        """Return the features (n, F) of n points, and the variance (n,) of a residual."""
        phi = self._features(inputs).detach()
        left = None if self._block.residual is None else self._block.residual_variance(inputs, phi)
        return Reads(phi.numpy(), left)

    def read_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor | None]:
        """Return the features (n, F) of n points, and the covariance (n, n) of a residual."""
        phi = self._features(inputs).detach()
        left = None if self._block.residual is None else self._block.residual_covariance(inputs, phi)
        return phi.numpy(), left

    def cross(self, matrix: Matrix) -> Tensor:
        """Return Phi X^T, (rows, n)."""
        return self.part.spread(torch.from_numpy(np.asarray(matrix)).mT)

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return X X^T, (n, n)."""
        return torch.from_numpy(np.asarray(matrix @ matrix.T))

    def variance(self, inputs: Tensor, reads: Reads) -> Tensor:
        """Return |X_i|^2, (n,)."""
        return torch.from_numpy(np.square(reads.matrix).sum(1))

    def weights(self, coefficients: Tensor) -> Tensor:
        """Return Phi^T a, (F, p)."""
        return self.part.gather(coefficients)

    def lifted(self, standard: Tensor, seed: int) -> Tensor:
        """Return u, (F, p)."""
        return standard

    def joined(self, inputs: Tensor) -> DensePart | None:
        """Return Phi of the rows and of points after them. None if there is a residual."""
        if self._block.residual is not None:
            return None
        return DensePart(torch.cat([self._phi.detach(), self._features(inputs).detach()]))

    def score(self, left: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in Phi."""
        return (self._phi * ((left * signs) @ self.part.gather(left).mT)).sum()

    def functions(self, weights: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> Phi_x z, (n, p).

        Raises:
            InvalidArgumentError: the features are not all of the block.
        """
        if self._block.residual is not None:
            raise InvalidArgumentError(
                "This process has no functions to draw, since what its features miss is known at given points only. "
                "Sample from predict(X) there."
            )
        return super().functions(weights)
