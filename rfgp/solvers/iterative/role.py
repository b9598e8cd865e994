"""Interface of a term of a prior at rows: its covariance and projection.

A block f has the covariance H H^T at the rows. A matrix X projects coordinates z of the block to points. For draws
u ~ N(0, I) of the columns of H, X `sample_coordinates(u)` is a draw of f. X `coordinates(a)` is K(x, rows) a.
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
"""The role of the random generator that draws prior weights without effect on the rows."""


class TermProjection(NamedTuple):
    """The projection of a term to n single points."""

    matrix: Matrix  # X (n, N)
    conditional_variance: Tensor | None = None  # (n,), given the coordinates, None for 0


class Term(ABC):
    """Interface: a block of the prior at rows.

    Attributes:
        name: The name of the term.
        part: The root H of the rows.
        width: The number of entries of X of a point, 0 if there are few.
        seed: The seed of draws and of the preconditioner.
        dtype: The precision of the coordinates of draws.
        advice: A remedy for the message of a failed solve.
        depends_on_other_points: Whether the projection of a point may depend on other points.
    """

    name: str
    depends_on_other_points = False
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
    def project(self, inputs: Tensor) -> TermProjection:
        """Return the projections X (n, N) of n single points.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
        """

    def project_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor | None]:
        """Return the projections of points that may be neighbors of each other.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).

        Returns:
            X (n, N), and the conditional covariance (n, n) given the coordinates, or None if it is 0.
        """
        return self.project(inputs).matrix, None

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
    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of projections, without conditional ones.

        Args:
            inputs: The inputs of the points, (n, D), or positions (n,).
            projection: The projections of the points by `project`.
        """

    @abstractmethod
    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return coordinates z (N, p) with X z = K(x, rows) a.

        Args:
            coefficients: The coefficients a, (rows, p).
        """

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return the coordinates (N, p) of standard normal draws.

        By default these are the draws.

        Args:
            standard: The standard normal draws u of the columns of H, (columns, p), in the requested precision.
            seed: The seed of weights without effect on the rows.
        """
        return standard

    def joined(self, inputs: Tensor) -> Part | None:
        """Return the root [H; h] of the rows, followed by points, or None.

        The result is None if points have conditional variances.

        Args:
            inputs: The inputs of the points.
        """
        return None

    @abstractmethod
    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient of sum_j signs_j v_j^T K v_j / 2.

        The gradient is in the parameters of the block.

        Args:
            vectors: The vectors v_j, (rows, p).
            signs: The signs, (p,).
        """

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function with given coordinates.

        The conditional variance given the coordinates is excluded.

        Args:
            coordinates: The coordinates z, (N, p).

        Returns:
            A function of the inputs of n points to X z, (n, p), with the projections X by `project`.

        Raises:
            InvalidArgumentError: If the block is defined at given points only, such as a block with a residual.
        """
        return lambda inputs: times(self.project(inputs).matrix, coordinates)


class SparseTerm(ABC):
    """Part of a term f = s phi w with sparse features of nodes.

    Each node has F weights. The coordinates are s w, (N F,). Methods have the arguments of those of `Term`.

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

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return s u, (N F, p), with u in single precision."""
        shape = self._num_weights, standard.shape[1]
        out = torch.from_numpy(generator(seed, ALL_COLUMNS).standard_normal(shape, dtype=np.float32))
        drawn = standard.float().reshape(len(self.used), -1)
        out.view(-1, drawn.shape[1])[torch.from_numpy(self.used)] = drawn
        coordinates: Tensor = out.to(standard) * self.s2**0.5
        return coordinates

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the function of the inputs of n points to X z, (n, p)."""
        return self._functions(coordinates)


def times(matrix: Matrix, coordinates: Tensor) -> Tensor:
    """Return X z, (n, p), in the precision of z.

    Args:
        matrix: The projections X, (n, N).
        coordinates: The coordinates z, (N, p).
    """
    if isinstance(matrix, np.ndarray):
        out: Tensor = torch.from_numpy(matrix) @ coordinates
        return out
    if isinstance(matrix, KroneckerRows):
        return matrix.times(coordinates)
    array = coordinates.numpy()
    if isinstance(matrix, KhatriRao):
        return torch.from_numpy(matrix.times(array))
    return torch.from_numpy(multiply(row_blocks(matrix.astype(array.dtype, copy=False)), array))
