"""Blocks of sparse features: f = s phi_x w with w ~ N(0, I) and few nonzero entries in each phi_x."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.role import Functions, LatentBlock, PriorFunctions
from rfgp.sparse import SparseValues, gram, multiply, row_blocks

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
        return self.at(inputs if self.position is None else self.position(inputs), keep, *self.parameters)

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
