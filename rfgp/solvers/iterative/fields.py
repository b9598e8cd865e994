"""Blocks with a sparse precision at rows."""

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.blocks import PrecisionBlock
from rfgp.blocks.precision import products
from rfgp.solvers.iterative.parts import PrecisionPart
from rfgp.solvers.iterative.role import Matrix, Reads, Term
from rfgp.sparse import sampled_outer


class PrecisionTerm(Term):
    """f = A u with u of the precision Q / s^2; the coordinates are u, (N,).

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows.
    """

    def __init__(self, block: PrecisionBlock, inputs: Tensor) -> None:
        self.name, self._block, self._reads = block.name, block, block.projector(inputs)
        self._s2 = float(block.variance.detach())

    @cached_property
    def part(self) -> PrecisionPart:
        """A Q^(-1/2) of the rows."""
        return PrecisionPart(self._block.factor, self._reads, self._s2**0.5)

    def read(self, inputs: Tensor) -> Reads:
        """Return A (n, N) of n points."""
        return Reads(self._block.projector(inputs))

    def cross(self, matrix: Matrix) -> Tensor:
        """Return s^2 A Q^-1 X^T, (rows, n)."""
        return torch.from_numpy(self._s2 * products(self._block.factor, self._reads, matrix))

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return s^2 X Q^-1 X^T, (n, n)."""
        return torch.from_numpy(self._s2 * products(self._block.factor, matrix, matrix))

    def variance(self, inputs: Tensor, reads: Reads) -> Tensor:
        """Return the prior variances, (n,)."""
        return self._block.diagonal(inputs)

    def weights(self, coefficients: Tensor) -> Tensor:
        """Return s^2 Q^-1 A^T a, (N, p)."""
        return torch.from_numpy(self._s2 * self._block.factor.solve(self._reads.T @ coefficients.numpy()))

    def lifted(self, standard: Tensor, seed: int) -> Tensor:
        """Return draws of N(0, s^2 Q^-1), (N, p)."""
        return torch.from_numpy(self._s2**0.5 * self._block.factor.sample(standard.numpy()))

    def joined(self, inputs: Tensor) -> PrecisionPart:
        """Return A Q^(-1/2) of the rows and of points after them."""
        reads = sp.csr_array(sp.vstack([self._reads, self._block.projector(inputs)]))
        return PrecisionPart(self._block.factor, reads, self._s2**0.5)

    def score(self, left: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient: with t = Q^-1 A^T left it is -s^2 t^T dQ t / 2 in the parameters."""
        field, values = self._block.field, self._block.values
        gathered = self._reads.T @ left.numpy()
        solved = torch.from_numpy(self._block.factor.solve(gathered))
        outer = sampled_outer(solved * signs, solved, field.pattern).numpy()
        in_values = torch.from_numpy(-0.5 * self._s2 * field.pull_back(as_array(values), outer))
        in_variance = 0.5 * float(np.einsum("np,np,p->", gathered, solved.numpy(), signs.numpy()))
        return (values * in_values).sum() + self._block.variance * in_variance
