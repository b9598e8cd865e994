"""A Gaussian process prior as a sum of independent latent blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from rfgp.blocks.neighbors import VecchiaBlock, joined_neighbors
from rfgp.blocks.precision import PrecisionBlock
from rfgp.blocks.role import KernelBlock, LatentBlock, PriorFunctions, SparseWeightBlock, WeightBlock, Weights, detached
from rfgp.grams import Gram

B = TypeVar("B", bound=LatentBlock)


@dataclass(frozen=True, eq=False)
class Prior:
    """The sum of independent zero-mean blocks.

    They are grouped by the elimination of their latent vectors.

    Attributes:
        weights: Blocks of dense weights.
        kernels: Blocks with a covariance function.
        graph_features: Blocks of sparse features of nodes.
        precisions: Blocks with a sparse precision.
        neighbors: A block with nearest neighbors, or None.
        order: The names of the first terms in lists. Others follow.

    Examples:
        >>> import torch
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> linear = WeightBlock(lambda x: x, num_features=2)
        >>> x = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
        >>> Prior(weights=(linear,)).kernel(x, x).tolist()
        [[5.0, 2.0], [2.0, 1.0]]
    """

    weights: tuple[WeightBlock, ...] = ()
    kernels: tuple[KernelBlock, ...] = ()
    graph_features: tuple[SparseWeightBlock, ...] = ()
    precisions: tuple[PrecisionBlock, ...] = ()
    neighbors: VecchiaBlock | None = None
    order: tuple[str, ...] = ()

    @classmethod
    def of_terms(cls, priors: "Sequence[Prior]") -> "Prior":
        """Return the sum of independent priors.

        Args:
            priors: The priors. Names of terms are unique.

        Raises:
            InvalidArgumentError: If several have nearest neighbors with different options.
        """
        return cls(
            tuple(block for prior in priors for block in prior.weights),
            tuple(block for prior in priors for block in prior.kernels),
            tuple(block for prior in priors for block in prior.graph_features),
            tuple(block for prior in priors for block in prior.precisions),
            joined_neighbors([prior.neighbors for prior in priors if prior.neighbors is not None]),
            tuple(dict.fromkeys(name for prior in priors for block in prior.blocks for name in block.names)),
        )

    @property
    def blocks(self) -> tuple[LatentBlock, ...]:
        """All blocks, by kind."""
        last = () if self.neighbors is None else (self.neighbors,)
        return (*self.weights, *self.kernels, *self.graph_features, *self.precisions, *last)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms. A term may have several blocks."""
        names = dict.fromkeys(name for block in self.blocks for name in block.names)
        return (*(name for name in self.order if name in names), *(name for name in names if name not in self.order))

    @cached_property
    def dense(self) -> Weights:
        """The concatenated dense weights."""
        return Weights(self.weights)

    @property
    def explained(self) -> tuple[WeightBlock, ...]:
        """The blocks of weights whose residual the block of neighbors is."""
        near = self.neighbors
        if near is None or not near.is_residual:
            return ()
        return tuple(block for block in self.weights if near.residual_of == block.name)

    @property
    def num_features(self) -> int:
        """The number F of dense weights."""
        return self.dense.num_features

    @property
    def has_weights_only(self) -> bool:
        """Whether all blocks are dense weights."""
        return not (self.kernels or self.graph_features or self.precisions or self.neighbors)

    @property
    def has_grids(self) -> bool:
        """Whether there are covariances, and all of them are products at rows on a grid."""
        return bool(self.kernels) and all(block.sides is not None for block in self.kernels)

    @property
    def adds_latent_points(self) -> bool:
        """Whether a block adds points to its latent values."""
        return any(block.refine is not None for block in self.precisions)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """All tensors (...) that may have gradients."""
        scales = tuple(block.variance for block in self.weights if block.variance is not None)
        scales += tuple(block.variance for block in self.graph_features)
        return (*(parameter for block in self.blocks for parameter in block.parameters), *scales)

    @property
    def wants_gradients(self) -> bool:
        """Whether gradients are enabled and a parameter requires one."""
        return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters)

    @property
    def functions(self) -> PriorFunctions | None:
        """The functions drawn from the prior, or None.

        They exist if a single block defines them.
        """
        drawn = [block.functions for block in self.kernels] + [block.functions for block in self.graph_features]
        return drawn[0] if len(self.blocks) == len(drawn) == 1 else None

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the prior covariance (n_a, n_b) between inputs a and b, float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
            b: The inputs of n_b points, (n_b,) or (n_b, D).
        """
        return _total(block.kernel(a, b) for block in self._summands)

    def gram(self, a: Tensor) -> Gram:
        """Return the prior covariance (n_a, n_a) of inputs, with its gradient.

        It is float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """
        return Gram.total([block.gram(a) for block in self._summands])

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the prior variances (n_a,), float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """
        return _total(block.diagonal(a) for block in self._summands)

    def of(self, names: Sequence[str]) -> "Prior":
        """Return the sum of the named blocks.

        Args:
            names: The names of the terms. Names of other terms have no effect.
        """

        def kept(blocks: tuple[B, ...]) -> tuple[B, ...]:
            return tuple(block for block in blocks if block.name in names)

        near = None if self.neighbors is None else self.neighbors.of(names)
        return Prior(
            kept(self.weights), kept(self.kernels), kept(self.graph_features), kept(self.precisions), near, self.order
        )

    def detached(self) -> "Prior":
        """Return the prior without gradients."""
        return detached(self)

    @property
    def _summands(self) -> tuple[LatentBlock, ...]:
        """The blocks whose covariances add up.

        A residual includes the weights whose residual it is.
        """
        return tuple(block for block in self.blocks if block not in self.explained)


def _total(values: Iterator[Tensor]) -> Tensor:
    first, *others = values
    return sum(others, start=first)
