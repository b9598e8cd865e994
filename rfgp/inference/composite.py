"""Posteriors composed of the posteriors of several functions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.solvers import Posterior
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.role import Functions, Shape

T = TypeVar("T")

NOISE_PREFIX = "noise"
"""The prefix of the names of the tensors of a noise process."""


@dataclass(frozen=True, eq=False)
class IndependentFunctions(Posterior):
    """The posterior of C independent functions.

    Attributes:
        functions: The posterior of each function, with one output.
        prior: The prior of the first function.
    """

    functions: tuple[Posterior, ...]
    prior: Prior = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", self.functions[0].prior)

    @property
    def width(self) -> int:
        """The number of entries of one point in memory, for all functions."""
        return sum(function.width for function in self.functions)

    def project(self, inputs: Tensor) -> tuple[Any, ...]:
        """Return the projections of n points, such as (n, F), one for each function."""
        return tuple(function.project(inputs) for function in self.functions)

    def mean(self, projected: tuple[Any, ...]) -> Tensor:
        """Return the posterior means, (n, C)."""
        return torch.cat([f.mean(reads) for f, reads in zip(self.functions, projected, strict=True)], dim=1)

    def variance(self, inputs: Tensor, projected: tuple[Any, ...]) -> Tensor:
        """Return the marginal posterior variances, (n, C)."""
        pairs = zip(self.functions, projected, strict=True)
        return torch.stack([function.variance(inputs, reads) for function, reads in pairs], dim=1)

    def covariance(self, inputs: Tensor, projected: tuple[Any, ...]) -> Tensor:
        """Return the posterior covariances of each function between points, (n, n, C)."""
        pairs = zip(self.functions, projected, strict=True)
        return torch.stack([function.covariance(inputs, reads) for function, reads in pairs], dim=2)

    def root(self, inputs: Tensor, projected: tuple[Any, ...]) -> Tensor:
        """Return a matrix R (C n, r) such that R R^T is the covariance of all values, function by function."""
        return block_diagonal(f.root(inputs, reads) for f, reads in zip(self.functions, projected, strict=True))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions from the posterior.

        Returns:
            A map of the inputs of n points to (count, n, C).
        """
        samples = [function.sample_functions(count, generator) for function in self.functions]
        return lambda inputs: torch.cat([sample(inputs) for sample in samples], dim=2)

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, (count, b, C) at b of them, or None if a function has no weights."""
        samples = [function.sample_values(num_points, count, generator) for function in self.functions]
        known = [sample for sample in samples if sample is not None]
        if len(known) < len(samples):
            return None
        return lambda inputs: torch.cat([sample(inputs) for sample in known], dim=2)

    @property
    def num_functions(self) -> int:
        """The number C of functions."""
        return len(self.functions)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors (...) of all functions, with names such as "0.weights"."""
        return numbered(function.tensors() for function in self.functions)

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of the tensors of all functions by name."""
        return numbered(function.shapes(n, 1) for function in self.functions)

    def of(self, names: Sequence[str]) -> "IndependentFunctions":
        """Return the posterior of the sum of some terms of each function."""
        return IndependentFunctions(tuple(function.of(names) for function in self.functions))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariances (n, n, C) between two sums of terms of each function."""
        parts = [function.cross_covariance(inputs, first, second) for function in self.functions]
        return torch.stack(parts, dim=2)


@dataclass(frozen=True, eq=False)
class HeteroscedasticPosterior(Posterior):
    """The posterior of a function f and, independently, of its log noise g.

    Predictions are those of f. `LatentDistribution.noise` is the distribution of g.

    Attributes:
        function: The posterior of f.
        noise_process: The posterior of g.
        prior: The prior of f.
    """

    function: Posterior
    noise_process: Posterior = field()
    prior: Prior = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", self.function.prior)

    @property
    def width(self) -> int:
        """The number of entries of one point in memory."""
        return self.function.width

    def project(self, inputs: Tensor) -> Any:
        """Return the projection of n points for f, such as (n, F)."""
        return self.function.project(inputs)

    def mean(self, projected: Any) -> Tensor:
        """Return the posterior mean of f, (n, 1)."""
        return self.function.mean(projected)

    def variance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the marginal posterior variances of f, (n,)."""
        return self.function.variance(inputs, projected)

    def covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the posterior covariance of f, (n, n)."""
        return self.function.covariance(inputs, projected)

    def root(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance of f."""
        return self.function.root(inputs, projected)

    def moments(self, inputs: Tensor, projected: Any) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and the marginal variances (n,) of f."""
        return self.function.moments(inputs, projected)

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the covariance (n, n) of f as products and solves, or None if it must be formed."""
        return self.function.operator(inputs)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions f from the posterior.

        Returns:
            A map of the inputs of n points to (count, n, 1).
        """
        return self.function.sample_functions(count, generator)

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values of f at n points, (count, b, 1) at b of them, or None."""
        return self.function.sample_values(num_points, count, generator)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors (...) of f and g by name.

        Those of g have names such as "noise.weights".
        """
        return self.function.tensors() | prefixed(NOISE_PREFIX, self.noise_process.tensors())

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of the tensors of f and g by name."""
        return self.function.shapes(n, k) | prefixed(NOISE_PREFIX, self.noise_process.shapes(n, k))

    def of(self, names: Sequence[str]) -> "HeteroscedasticPosterior":
        """Return the posterior of the sum of some terms of f."""
        return replace(self, function=self.function.of(names))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between two sums of terms of f."""
        return self.function.cross_covariance(inputs, first, second)


def block_diagonal(
    blocks: Iterable[Tensor],  # (n, r) each
) -> Tensor:  # (C n, C r)
    """Return the block-diagonal matrix of the given blocks.

    Args:
        blocks: The blocks, (a_i, b_i) each.
    """
    out: Tensor = torch.block_diag(*blocks)
    return out


def prefixed(prefix: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return values by name, with a prefix and a dot before the names.

    Args:
        prefix: The prefix.
        values: The values by name, such as tensors (...).
    """
    return {f"{prefix}.{name}": value for name, value in values.items()}


def numbered(values: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Return values (...) of several posteriors by name, with the index of the posterior as a prefix.

    Args:
        values: The tensors (...) by name of each posterior.
    """
    tensors: dict[str, T] = {}
    for number, part in enumerate(values):
        tensors |= prefixed(str(number), part)
    return tensors


def tensors_by_prefix(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return tensors grouped by the part of their names before the last dot, or "".

    Args:
        tensors: The tensors (...) by name.

    Examples:
        >>> from rfgp.inference.composite import tensors_by_prefix
        >>> tensors_by_prefix({"weights": 1, "noise.weights": 2})
        {'': {'weights': 1}, 'noise': {'weights': 2}}
    """
    by_prefix: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        prefix, _, last = name.rpartition(".")
        by_prefix.setdefault(prefix, {})[last] = tensor
    return by_prefix
