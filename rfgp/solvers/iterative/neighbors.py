"""Nearest neighbors conditioned on latent values without noise, at ordered rows.

If the noise is large, the observations of a few neighbors have little information, and that of all other rows is lost.
Therefore g is approximated as g = L u (`rfgp.local.latent`), apart from the noise. `docs/mathematics.md` has the KL
divergences from the exact posterior.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.blocks.neighbors import AHEAD
from rfgp.solvers.iterative.operator import CGOperator, dense_columns_except
from rfgp.solvers.iterative.parts import RootPart
from rfgp.solvers.iterative.preconditioners import WhiteningPreconditioner
from rfgp.solvers.iterative.role import Matrix, Term, TermProjection
from rfgp.solvers.kriging import (
    explained_columns,
    explained_features,
    features,
    joint_kriging_weights,
    kriging_weights,
    neighbors_of,
    no_functions,
)
from rfgp.solvers.whitened.whitening import Whitener
from rfgp.sparse import SparsityPattern


class NeighborsTerm(Term):
    """A process g = L u of ordered rows, without noise.

    Its coordinates are the values of g at the rows. Methods have the arguments of those of `Term`.

    Args:
        prior: The prior, with the features whose residual the block of neighbors models.
        inputs: The inputs of the ordered rows, (rows, d).
    """

    advice = 'Use condition_on="responses".'
    depends_on_other_points = True

    def __init__(self, prior: Prior, inputs: Tensor) -> None:
        self._prior, self._inputs = prior.detached(), inputs
        self._block = neighbors_of(self._prior)
        self.name, self.seed = self._block.name, self._block.seed
        self.width = AHEAD * self._block.num_neighbors * (inputs.shape[1] + 1)

    @cached_property
    def _phi(self) -> Tensor:
        """The features (rows, F) of the rows."""
        return features(self._prior, self._prior.dense, self._inputs)

    @cached_property
    def _pattern(self) -> SparsityPattern:
        """The neighbors of the rows."""
        return self._block.predecessors(self._inputs)

    @cached_property
    def part(self) -> RootPart:
        """L of the rows."""
        explained = explained_columns(self._prior, self._phi)
        return RootPart(self._block.latent_root(self._inputs, self._pattern, explained))

    def precondition(self, operator: CGOperator) -> WhiteningPreconditioner:
        """Return a preconditioner of the same rows conditioned on observations.

        It includes other terms of few columns.
        """
        whitener = Whitener.of(self._prior, self._inputs, operator.noise_diag, self._phi, self._pattern)
        features = whitener.times(dense_columns_except(operator, self.part))
        return WhiteningPreconditioner(whitener, operator.deviation, features)

    def project(self, inputs: Tensor) -> TermProjection:
        """Return the weights (n, rows) of near rows, and conditional variances (n,)."""
        return TermProjection(*kriging_weights(self._prior, self._inputs, self._jitter, inputs))

    def project_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor | None]:
        """Return the weights (n, rows) of points, and the conditional covariance.

        Points have earlier points as neighbors.
        """
        return joint_kriging_weights(self._prior, self._inputs, self._jitter, inputs)

    def cross(self, matrix: Matrix) -> Tensor:
        """Return L L^T X^T, (rows, n)."""
        return self.part.times(_transposed(matrix))

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return X L L^T X^T, (n, n)."""
        root = self.part.transposed_root_times(_transposed(matrix))
        return root.mT @ root

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of the block without the conditional ones."""
        prior = self._block.diagonal(inputs)
        prior = prior - explained_features(self._prior, inputs).square().sum(1)
        conditional = projection.conditional_variance
        return prior if conditional is None else (prior - conditional).clamp_min(0)

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return L L^T a, (rows, p)."""
        return self.part.times(coefficients)

    def sample_coordinates(self, standard: Tensor, seed: int) -> Tensor:
        """Return L u, (rows, p)."""
        return self.part.root_times(standard)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return 0, 0-d. The gradient is that of neighbors conditioned on observations."""
        return vectors.new_zeros(())

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Raise an error, because coordinates (rows, p) do not define functions.

        Raises:
            InvalidArgumentError: Always.
        """
        raise no_functions()

    @cached_property
    def _jitter(self) -> Tensor:
        """The noise (rows,) of the values of rows, for the projection to points."""
        return self._block.reading_jitter * self._block.diagonal(self._inputs)


def _transposed(matrix: Matrix) -> Tensor:
    """Return X^T (rows, n), dense."""
    return torch.from_numpy(matrix if isinstance(matrix, np.ndarray) else matrix.toarray()).mT
