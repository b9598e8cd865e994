"""Blocks of sparse features of nodes times dense features of columns: f = s (phi_x kron psi_x) w, w ~ N(0, I)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.kernel import PriorFunctions
from rfgp.blocks.role import Functions, LatentBlock, NewLevels
from rfgp.blocks.sparse_weights import SparseWeightBlock
from rfgp.sparse import KhatriRaoValues, SparseValues

_CHUNK = 2**15


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
