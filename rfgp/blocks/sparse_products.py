"""Blocks of sparse features of nodes times dense features of columns: f = s (phi_x kron psi_x) w with w ~ N(0, I)."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.role import Functions
from rfgp.blocks.sparse_weights import SparseWeightBlock
from rfgp.sparse import KhatriRaoValues, SparseValues

_CHUNK = 2**15


@dataclass(frozen=True, eq=False)
class SparseProductBlock(SparseWeightBlock):
    """f(x) = s (phi_x kron psi_x) w, w ~ N(0, I), with sparse phi of x's node and dense psi of its columns.

    `at`, `position` and the first of `parameters` belong to phi, which is drawn once for each different node.

    Attributes:
        columns: Maps the inputs of n points, and `parameters` after the first, to psi (n, F).
        num_functions: F. There are `num_columns` = N F weights.
    """

    columns: Callable[..., Tensor] = field(kw_only=True)
    num_functions: int = field(kw_only=True)

    def factors(self, inputs: Tensor, *, keep: bool) -> KhatriRaoValues:
        """Return phi and psi of the inputs of n points, which stand for the features (n, N F).

        Args:
            inputs: The inputs, (n, D).
            keep: Whether to keep what is drawn, for rows that are read again.
        """
        theta, *others = self.parameters
        positions = inputs if self.position is None else self.position(inputs)
        _, first, rows = np.unique(positions.numpy(), return_index=True, return_inverse=True)
        left = self.at(inputs[torch.from_numpy(first)], keep, theta)
        return KhatriRaoValues(left, rows.reshape(-1), self.columns(inputs.double(), *others).double())

    def features(self, inputs: Tensor, *, keep: bool) -> SparseValues:
        """Return phi kron psi (n, N F) of the inputs of n points.

        Args:
            inputs: The inputs, (n, D).
            keep: Whether to keep what is drawn, for rows that are read again.
        """
        return self.factors(inputs, keep=keep).formed()

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s^2 (phi_a phi_b^T) * (psi_a psi_b^T), (n_a, n_b), dense. Draws for b are kept."""
        right = self.factors(b, keep=True)
        left = right if a is b else self.factors(a, keep=False)
        return self.variance * left.gram(right)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return s^2 |phi_i|^2 |psi_i|^2, (n_a,)."""
        return self.variance * self.factors(a, keep=False).squares()

    def through(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> s^2 (phi_x kron psi_x) Phi^T coefficients, for inputs (n, D) and coefficients (n, p)."""
        weights = self.factors(inputs, keep=True).matrix().transposed_times(coefficients.numpy())
        return self.of_weights(float(self.variance) * torch.from_numpy(weights))

    def of_weights(self, weights: Tensor) -> Functions:
        """Return x -> (phi_x kron psi_x) @ weights, (n, D) -> (n, p), for weights (N F, p)."""
        array = np.ascontiguousarray(weights.numpy())

        def values(inputs: Tensor) -> Tensor:
            chunks = torch.split(inputs, _CHUNK) if len(inputs) else ()
            parts = [self.factors(part, keep=False).matrix().times(array) for part in chunks]
            return torch.from_numpy(np.concatenate([array[:0], *parts]))

        return values
