"""Blocks of sparse features, also times dense features of columns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.role import Functions, LatentBlock, NewLevels, PriorFunctions
from rfgp.sparse import KhatriRaoValues, SparseValues, gram, multiply, row_blocks

# --- Blocks of sparse features: f = s phi_x w with w ~ N(0, I) and few nonzero entries in each phi_x -----------------

_CHUNK, _MANY = 2**15, 8


@dataclass(frozen=True, eq=False)
class SparseWeightBlock(LatentBlock):
    """A process f(x) = s phi_x w, w ~ N(0, I), with sparse phi of positions x.

    Random walks on a graph are an example.

    Attributes:
        at: Maps positions (n,), whether to cache the draws, and `parameters` to phi (n, N).
        variance: The variance s^2, 0-d.
        num_columns: The number N of weights.
        seed: The seed of probes and of pathwise draws.
        parameters: The tensors that the entries of phi depend on.
        times: Maps a matrix (N, p) to its product with Phi of all N positions. If None, products are computed row by
            row.
        name: The name of the term.
        position: Maps n points to the positions of their nodes, (n,). If None, inputs are positions.

    Examples:
        >>> from rfgp.sparse import SparsityPattern
        >>> pattern = SparsityPattern(np.array([0, 1, 3]), np.array([0, 0, 1]), (2, 2))
        >>> def at(nodes, keep, *parameters):
        ...     own, entries = pattern.take(nodes.numpy())
        ...     return SparseValues(torch.tensor([1.0, 2.0, 3.0]).double()[entries], own)
        >>> block, nodes = SparseWeightBlock(at, torch.tensor(1.0), num_columns=2, seed=0), torch.tensor([0, 1])
        >>> block.kernel(nodes, nodes).tolist()
        [[1.0, 2.0], [2.0, 13.0]]
    """

    at: Callable[..., SparseValues]
    variance: Tensor
    num_columns: int
    seed: int
    parameters: tuple[Tensor, ...] = ()
    times: Callable[[Any], Any] | None = None
    name: str = "walks"
    position: Callable[[Tensor], Tensor] | None = None

    @property
    def functions(self) -> PriorFunctions:
        """The block itself. It draws functions from its prior."""
        return self

    def features(self, inputs: Tensor, *, keep: bool) -> SparseValues:
        """Return phi (n, N) of positions (n,).

        Args:
            inputs: The positions.
            keep: Whether to cache the draws.
        """
        return self.at(inputs, keep, *self.parameters)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s^2 Phi(a) Phi(b)^T, (n_a, n_b), dense. Draws for b are cached."""
        right = self.features(b, keep=True)
        left = right if a is b else self.features(a, keep=False)
        return self.variance * gram(left.values, left.pattern, right.values, right.pattern)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return s^2 |phi(a_i)|^2, (n_a,)."""
        return self.variance * self.features(a, keep=False).squares()

    def draw(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n positions, (n, count).

        Args:
            count: The number of functions.
            generator: The generator of the weights.
        """
        weights = torch.randn(self.num_columns, count, generator=generator, dtype=torch.float64)
        return self.of_weights(float(self.variance) ** 0.5 * weights)

    def kernel_expansion(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> s^2 phi_x Phi^T coefficients.

        Args:
            inputs: The positions, (n,).
            coefficients: (n, p).
        """
        weights = self.features(inputs, keep=True).matrix().T @ coefficients.numpy()
        return self.of_weights(float(self.variance) * torch.from_numpy(weights))

    def of_weights(self, weights: Tensor) -> Functions:
        """Return x -> phi_x @ weights, (n,) -> (n, p).

        Args:
            weights: The weights, (N, p).
        """
        array = np.ascontiguousarray(weights.numpy())
        everywhere: list[Tensor] = []

        def values(inputs: Tensor) -> Tensor:
            if self.times is not None and _MANY * len(inputs) > self.num_columns:
                if not everywhere:
                    everywhere.append(torch.from_numpy(self.times(array)))
                return everywhere[0][inputs if self.position is None else self.position(inputs)]
            chunks = torch.split(inputs, _CHUNK)
            parts = [multiply(row_blocks(self.features(part, keep=False).matrix()), array) for part in chunks]
            return torch.from_numpy(np.concatenate(parts)) if len(inputs) else weights.new_zeros(0, array.shape[1])

        return values


# --- Blocks of sparse features of nodes times dense features of columns -----------------------------------------------


@dataclass(frozen=True, eq=False)
class SparseProductBlock(LatentBlock):
    """A process f(x) = s (phi_x kron psi_x) w, w ~ N(0, I).

    phi of nodes is sparse, and psi of columns is dense.

    Attributes:
        nodes: The block of phi, with the variance s^2 and the seed. The phi of a node is drawn once.
        columns: Maps n points, and `others`, to psi (n, F).
        num_functions: The number F of dense features.
        others: The tensors that psi depends on.
        new_levels: The covariance of f between inputs with levels that no row has, for a variance of 1. If None, 0.
        name: The name of the term.
    """

    nodes: SparseWeightBlock
    columns: Callable[..., Tensor]
    num_functions: int
    others: tuple[Tensor, ...] = ()
    new_levels: NewLevels | None = None
    name: str = "products"

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors (...) that phi and psi depend on."""
        return (*self.nodes.parameters, *self.others)

    @property
    def variance(self) -> Tensor:
        """The prior variance s^2, 0-d."""
        return self.nodes.variance

    @property
    def seed(self) -> int:
        """The seed of probes and of pathwise draws."""
        return self.nodes.seed

    @property
    def num_columns(self) -> int:
        """The number N F of weights."""
        return self.nodes.num_columns * self.num_functions

    @property
    def functions(self) -> PriorFunctions:
        """The block itself. It draws functions from its prior."""
        return self

    def factors(self, inputs: Tensor, *, keep: bool) -> KhatriRaoValues:
        """Return the factors phi and psi of the features (n, N F) of n points.

        Args:
            inputs: The inputs, (n, D).
            keep: Whether to cache the draws.
        """
        position = self.nodes.position
        positions = inputs if position is None else position(inputs)
        _, first, rows = np.unique(positions.numpy(), return_index=True, return_inverse=True)
        left = self.nodes.features(inputs[torch.from_numpy(first)], keep=keep)
        return KhatriRaoValues(left, rows.reshape(-1), self.columns(inputs.double(), *self.others).double())

    def features(self, inputs: Tensor, *, keep: bool) -> SparseValues:
        """Return the features phi kron psi (n, N F) of n points.

        Args:
            inputs: The inputs, (n, D).
            keep: Whether to cache the draws.
        """
        return self.factors(inputs, keep=keep).formed()

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s^2 (phi_a phi_b^T) * (psi_a psi_b^T), (n_a, n_b), dense.

        Draws for b are cached.
        """
        right = self.factors(b, keep=True)
        left = right if a is b else self.factors(a, keep=False)
        return self.variance * left.gram(right)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return s^2 |phi_i|^2 |psi_i|^2, (n_a,)."""
        return self.variance * self.factors(a, keep=False).squares()

    def draw(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of inputs (n, D), (n, count).

        Args:
            count: The number of functions.
            generator: The generator of the weights.
        """
        weights = torch.randn(self.num_columns, count, generator=generator, dtype=torch.float64)
        return self.of_weights(float(self.variance) ** 0.5 * weights)

    def kernel_expansion(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> s^2 (phi_x kron psi_x) Phi^T coefficients.

        Args:
            inputs: The inputs, (n, D).
            coefficients: (n, p).
        """
        weights = self.factors(inputs, keep=True).matrix().transposed_times(coefficients.numpy())
        return self.of_weights(float(self.variance) * torch.from_numpy(weights))

    def of_weights(self, weights: Tensor) -> Functions:
        """Return x -> (phi_x kron psi_x) @ weights, (n, D) -> (n, p).

        Args:
            weights: (N F, p).
        """
        array = np.ascontiguousarray(weights.numpy())

        def values(inputs: Tensor) -> Tensor:
            chunks = torch.split(inputs, _CHUNK) if len(inputs) else ()
            parts = [self.factors(part, keep=False).matrix().times(array) for part in chunks]
            return torch.from_numpy(np.concatenate([array[:0], *parts]))

        return values

    def new_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b) at levels without rows, float64."""
        if self.new_levels is None:
            return torch.zeros(len(a), len(b), dtype=torch.float64)
        return self.variance * self.new_levels.covariance(a, b, *self.parameters)

    def new_variance(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,) at levels without rows, float64."""
        if self.new_levels is None:
            return torch.zeros(len(a), dtype=torch.float64)
        return self.variance * self.new_levels.variances(a, *self.parameters)


SparseBlock = SparseWeightBlock | SparseProductBlock
"""A block of sparse features of nodes, or of nodes times columns."""
