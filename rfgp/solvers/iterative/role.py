"""Interface of a term of a prior at rows: its covariance and projection.

A block f has the covariance H H^T at the rows. A matrix X projects coordinates z of the block to points. Draws
u ~ N(0, I) of the columns of H have the coordinates `lifted`(u), and K(x, rows) a is X `weights`(a).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks import SparseBlock
from rfgp.solvers.iterative.operator import CGOperator, Preconditioner, generator
from rfgp.solvers.iterative.parts import Part
from rfgp.solvers.iterative.preconditioners import nystrom
from rfgp.sparse import KhatriRao, KroneckerRows, multiply, row_blocks

Matrix = Any
"""A sparse matrix, a Khatri-Rao product, rows of a Kronecker product, or an array."""
ALL_COLUMNS = 4
"""The role of the seed of prior weights without effect on the rows."""


class Reads(NamedTuple):
    """The projection of a term to n single points."""

    matrix: Matrix  # X (n, N)
    left: Tensor | None = None  # the conditional variance (n,) given the coordinates, None for 0


class Term(ABC):
    """Interface: a block of the prior at rows.

    Attributes:
        name: The name of the term.
        part: The root H of the rows.
        width: The number of entries of X of a point, 0 if there are few.
        seed: The seed of draws and of the preconditioner.
        dtype: The precision of the coordinates of draws.
        advice: A remedy for the message of a failed solve.
        reads_points: Whether a point may depend on other points.
    """

    name: str
    reads_points = False
    width = 0
    seed = 0
    dtype = torch.float64
    advice = "Give the noise a prior or a larger start, or fit fewer observations."

    @property
    @abstractmethod
    def part(self) -> Part:
        """H of the rows."""

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of an operator whose last part belongs to this term.

        Args:
            operator: The operator of all terms.
        """
        return nystrom(operator)

    @abstractmethod
    def read(self, inputs: Tensor) -> Reads:
        """Return the projections X (n, N) of n single points.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
        """

    def read_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor | None]:
        """Return the projections of points that may be neighbors of each other.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).

        Returns:
            X (n, N), and the conditional covariance (n, n) given the coordinates, or None if it is 0.
        """
        return self.read(inputs).matrix, None

    @abstractmethod
    def cross(self, matrix: Matrix) -> Tensor:
        """Return the prior covariance between the rows and n points, (rows, n).

        Args:
            matrix: The projections X, (n, N).
        """

    @abstractmethod
    def covariance(self, matrix: Matrix) -> Tensor:
        """Return the prior covariance of n points, (n, n).

        Args:
            matrix: The projections X, (n, N).
        """

    @abstractmethod
    def variance(self, inputs: Tensor, reads: Reads) -> Tensor:
        """Return the prior variances (n,) of the projections of n points, without conditional ones.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
            reads: The projections of the points by `read`.
        """

    @abstractmethod
    def weights(self, coefficients: Tensor) -> Tensor:
        """Return the coordinates (N, p) whose projection by X is K(x, rows) a.

        Args:
            coefficients: The coefficients a, (rows, p).
        """

    def lifted(self, standard: Tensor, seed: int) -> Tensor:
        """Return the coordinates (N, p) of standard normal draws. By default these are the draws.

        Args:
            standard: The standard normal draws u of the columns of H, (columns, p), in the requested precision.
            seed: The seed of weights without effect on the rows.
        """
        return standard

    def joined(self, inputs: Tensor) -> Part | None:
        """Return the root [H; h] of the rows, followed by points, or None if points have conditional variances.

        Args:
            inputs: The inputs of the points.
        """
        return None

    @abstractmethod
    def score(self, left: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient of sum_j signs_j left_j^T K left_j / 2 in the block's parameters.

        Args:
            left: The vectors left_j, (rows, p).
            signs: The signs, (p,).
        """

    def functions(self, weights: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the map of the inputs of n points to X z, (n, p).

        Args:
            weights: The coordinates z, (N, p).

        Raises:
            InvalidArgumentError: If the block is defined at given points only.
        """
        return lambda inputs: times(self.read(inputs).matrix, weights)


class SparseTerm(ABC):
    """Part of a term f = s phi w with sparse features of nodes, each with F weights, and the coordinates s w, (N F,).

    Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.

    Attributes:
        block_variance: The variance s^2, 0-d, float64, with gradients.
        s2: Its value.
    """

    dtype = torch.float32

    def __init__(self, block: SparseBlock) -> None:
        self.name, self.seed, self._functions = block.name, block.seed, block.of_weights
        self._num_weights, self.block_variance = block.num_columns, block.variance.double()
        self.s2 = float(self.block_variance.detach())

    @property
    @abstractmethod
    def used(self) -> NDArray[np.int64]:
        """The columns (c,) of the features of nodes with entries."""

    def lifted(self, standard: Tensor, seed: int) -> Tensor:
        """Return s u, (N F, p), with u in single precision."""
        shape = self._num_weights, standard.shape[1]
        out = torch.from_numpy(generator(seed, ALL_COLUMNS).standard_normal(shape, dtype=np.float32))
        drawn = standard.float().reshape(len(self.used), -1)
        out.view(-1, drawn.shape[1])[torch.from_numpy(self.used)] = drawn
        lifted: Tensor = out.to(standard) * self.s2**0.5
        return lifted

    def functions(self, weights: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the map of the inputs of n points to X z, (n, p)."""
        return self._functions(weights)


def times(matrix: Matrix, weights: Tensor) -> Tensor:
    """Return X z, (n, p), in the precision of z.

    Args:
        matrix: The projections X, (n, N).
        weights: The coordinates z, (N, p).
    """
    if isinstance(matrix, np.ndarray):
        out: Tensor = torch.from_numpy(matrix) @ weights
        return out
    if isinstance(matrix, KroneckerRows):
        return matrix.times(weights)
    array = weights.numpy()
    if isinstance(matrix, KhatriRao):
        return torch.from_numpy(matrix.times(array))
    return torch.from_numpy(multiply(row_blocks(matrix.astype(array.dtype, copy=False)), array))
