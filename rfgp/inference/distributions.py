"""Joint Gaussian distributions of standardized latent values, computed lazily."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from graphs.checks import check_fits, counted
from rfgp.errors import InvalidArgumentError
from rfgp.inference.caching import ResultCache
from rfgp.kernels.matrix import COPIES
from rfgp.solvers import Posterior
from rfgp.solvers.operators import LatentOperator

T = TypeVar("T")

ENTRIES = 2**22
"""The maximum number of entries of the projection of a chunk of points."""


class InputBlocks(Protocol):
    """Interface: standardized inputs that are read in blocks."""

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield the inputs in blocks (b, d) of about `size` rows.

        Args:
            size: The number of rows of a block.
        """


@dataclass(frozen=True, eq=False)
class Distribution(ABC):
    """The joint Gaussian distribution of standardized latent values at n points.

    The k outputs of a function share one covariance. C functions that do not share it have variances (n, C),
    covariances (n, n, C) and a root (C n, r), function by function.

    Mean, variance, covariance and root are computed at the first call. They are cached unless gradients may be needed
    (`requires_grad`). They must not be changed in place.
    """

    _cache: ResultCache = field(default_factory=ResultCache, init=False, repr=False)

    @property
    @abstractmethod
    def num_points(self) -> int | None:
        """The number n of points, or None if it is not known before they are read."""

    @property
    @abstractmethod
    def requires_grad(self) -> bool:
        """Whether an input of the distribution requires a gradient."""

    @property
    def noise(self) -> "Distribution | None":
        """The distribution of the log noise at the points, or None for constant noise."""
        return None

    def mean(self) -> Tensor:
        """Return the mean, (n, k)."""
        return self._cached("mean", self._mean)

    def variance(self) -> Tensor:
        """Return the marginal variances (n,), or (n, C) of C functions."""
        return self._cached("variance", self._variance)

    def covariance(self) -> Tensor:
        """Return the covariance (n, n), or (n, n, C) of C functions."""
        return self._cached("covariance", self._covariance)

    def root(self) -> Tensor:
        """Return a matrix R (n, r), or (C n, r) for C functions, such that R R^T is the covariance."""
        return self._cached("root", self._root)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw values from the joint distribution, (count, n, k), or (count, n, C) of C functions.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        root, mean = self.root(), self.mean()
        if len(root) != len(mean):
            return mean + sample_functions_jointly(root, count, mean, generator)
        standard = torch.randn(count, mean.shape[1], root.shape[1], generator=generator, dtype=root.dtype)
        values: Tensor = mean + (standard.to(root.device) @ root.mT).mT
        return values

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        return torch.diag_embed(self.variance())

    def operator(self) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves, or None if it must be formed."""
        return None

    def centered(self) -> "LinearFunctionals":
        """Return the distribution of the values (n,) minus their mean over the points.

        A constant that several terms share cancels, so it does not widen their intervals.
        """
        mean = self.mean()
        check_joint_fits(len(mean))
        weights = torch.eye(len(mean), dtype=mean.dtype, device=mean.device) - 1 / max(len(mean), 1)
        return LinearFunctionals(self, weights, mean.new_zeros(()))

    def _cached(self, name: str, compute: Callable[[], T]) -> T:
        return self._cache.get(name, compute, keep=not self.requires_grad)

    @abstractmethod
    def _mean(self) -> Tensor: ...

    @abstractmethod
    def _variance(self) -> Tensor: ...

    @abstractmethod
    def _covariance(self) -> Tensor: ...

    @abstractmethod
    def _root(self) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class LatentDistribution(Distribution):
    """The posterior distribution of the latent function at n points.

    Points are read in chunks to bound the memory. If one chunk holds all points, its projection is cached. Otherwise
    the pass over the chunks that computes the variances also computes the mean.

    Attributes:
        posterior: The posterior.
        inputs: The points, a table (n, d) or positions (n,), or blocks of them.
        memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
    """

    posterior: Posterior
    inputs: Tensor | InputBlocks
    memory: float | None = None

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if they are read in blocks."""
        return len(self.inputs) if isinstance(self.inputs, Tensor) else None

    @property
    def requires_grad(self) -> bool:
        """Whether the points or parameters of the prior require a gradient."""
        is_input = isinstance(self.inputs, Tensor) and self.inputs.requires_grad
        return is_input or any(parameter.requires_grad for parameter in self.posterior.prior.parameters)

    @property
    def noise(self) -> Distribution | None:
        """The distribution of the log noise at the points, or None for constant noise."""
        posterior = self.posterior.noise_process
        if posterior is None:
            return None
        return self._cached("noise", lambda: LatentDistribution(posterior, self.inputs, self.memory))

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw values from the joint distribution, (count, n, k), by weights if possible.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        values = self.posterior.sample_values(len(in_memory(self.inputs)), count, generator)
        if values is None:
            return super().sample(count, generator)
        return torch.cat([values(x) for x in _chunks(self.inputs, self._chunk_size)], dim=1)

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        return concatenated(self._over_chunks(self.posterior.function_covariance))

    def operator(self) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves, or None if it must be formed."""
        return self.posterior.operator(in_memory(self.inputs))

    def _mean(self) -> Tensor:
        return concatenated(self._over_chunks(lambda inputs, projected: self.posterior.mean(projected)))

    def _variance(self) -> Tensor:
        if self._is_one_chunk:
            return self.posterior.variance(*self._joint())
        means, variances = _Concatenator(), _Concatenator()
        for mean, variance in self._over_chunks(self.posterior.moments):
            means.add(mean)
            variances.add(variance)
        if not self.requires_grad:
            self._cache.put("mean", means.tensor())
        return variances.tensor()

    def _covariance(self) -> Tensor:
        check_joint_fits(len(in_memory(self.inputs)), self.memory, self.posterior.num_functions)
        return self.posterior.covariance(*self._joint())

    def _root(self) -> Tensor:
        check_joint_fits(len(in_memory(self.inputs)), self.memory, self.posterior.num_functions**2)
        return self.posterior.root(*self._joint())

    @property
    def _chunk_size(self) -> int:
        return max(1, ENTRIES // max(self.posterior.width, 1))

    @property
    def _is_one_chunk(self) -> bool:
        return isinstance(self.inputs, Tensor) and len(self.inputs) <= self._chunk_size

    def _over_chunks(self, read: Callable[[Tensor, Any], T]) -> Iterator[T]:
        """Yield read(inputs, projection) of each chunk.

        One projection is in memory at a time.
        """
        if self._is_one_chunk:
            yield read(*self._joint())
            return
        for x in _chunks(self.inputs, self._chunk_size):
            yield read(x, self.posterior.project(x))

    def _joint(self) -> tuple[Tensor, Any]:
        """Return all points and their projection."""
        inputs = in_memory(self.inputs)
        if not self._is_one_chunk:
            return inputs, self.posterior.project(inputs)
        return inputs, self._cached("projection", lambda: self.posterior.project(inputs))


@dataclass(frozen=True, eq=False)
class LinearFunctionals(Distribution):
    """The distribution of linear functionals of latent values, such as differences.

    Attributes:
        latent: The distribution of the values at n points.
        weights: The weights (m, n), one functional a row.
        shift: A constant that is added to the mean at every point, (k,) or ().
    """

    latent: Distribution
    weights: Tensor
    shift: Tensor

    @property
    def num_points(self) -> int:
        """The number m of functionals."""
        return len(self.weights)

    @property
    def requires_grad(self) -> bool:
        """Whether the weights or the values require a gradient."""
        return self.weights.requires_grad or self.latent.requires_grad

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw values of the functionals from their joint distribution, (count, m, k).

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        return self.weights @ (self.latent.sample(count, generator) + self.shift)

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each functional, (m, C, C)."""
        roots = torch.stack(torch.split(self.root(), len(self.weights)), dim=1)  # (m, C, r)
        return roots @ roots.mT

    def _mean(self) -> Tensor:
        return self.weights @ (self.latent.mean() + self.shift)

    def _variance(self) -> Tensor:
        variance = (self.weights @ self._by_function() * self.weights).sum(-1).clamp_min(0)
        return variance if variance.ndim == 1 else variance.mT

    def _covariance(self) -> Tensor:
        covariance = self.weights @ self._by_function() @ self.weights.mT
        return covariance if covariance.ndim == 2 else covariance.movedim(0, -1)

    def _root(self) -> Tensor:
        return torch.cat([self.weights @ root for root in torch.split(self.latent.root(), self.weights.shape[1])])

    def _by_function(self) -> Tensor:
        """Return the covariance of the values, (n, n), or (C, n, n) of C functions."""
        covariance = self.latent.covariance()
        return covariance if covariance.ndim == 2 else covariance.movedim(-1, 0)


@dataclass(frozen=True, eq=False)
class MarginalDistribution(Distribution):
    """The marginal distributions of values at n points, without joint distribution.

    Attributes:
        means: The means (n, 1), or (n, C) of C functions.
        variances: The variances (n,), or the covariances (n, C, C) of C functions.
        noise: The distribution of the log noise. If None, the noise is not a function of the inputs.

    Examples:
        >>> import torch
        >>> from rfgp.inference import MarginalDistribution
        >>> MarginalDistribution(torch.zeros(2, 1), torch.tensor([1.0, 4.0])).variance().tolist()
        [1.0, 4.0]
    """

    means: Tensor
    variances: Tensor
    noise: "MarginalDistribution | None" = None

    @property
    def num_points(self) -> int:
        """The number n of points."""
        return len(self.means)

    @property
    def requires_grad(self) -> bool:
        """Whether the means or the variances require a gradient."""
        return self.means.requires_grad or self.variances.requires_grad

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        return self.variances

    def _mean(self) -> Tensor:
        return self.means

    def _variance(self) -> Tensor:
        return self.variances if self.variances.ndim == 1 else self.variances.diagonal(dim1=1, dim2=2)

    def _covariance(self) -> Tensor:
        raise InvalidArgumentError("A marginal distribution has no covariance. Use its mean and variance.")

    def _root(self) -> Tensor:
        return self._covariance()


class _Concatenator:
    """A concatenation of tensors (b, ...).

    It holds few parts, because many small parts fragment the memory.
    """

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, part: Tensor) -> None:
        """Add a tensor (b, ...), and concatenate the last parts of similar lengths."""
        self._parts.append(part)
        while len(self._parts) > 1 and 2 * len(self._parts[-1]) > len(self._parts[-2]):
            self._parts[-2:] = [torch.cat(self._parts[-2:])]

    def tensor(self) -> Tensor:
        """Return all parts as one tensor (n, ...)."""
        return torch.cat(self._parts)


def concatenated(parts: Iterable[Tensor]) -> Tensor:
    """Return the concatenation (n, ...) of tensors (b, ...).

    Args:
        parts: The tensors. Few of them are in memory at a time.
    """
    result = _Concatenator()
    for part in parts:
        result.add(part)
    return result.tensor()


def in_memory(inputs: Tensor | InputBlocks) -> Tensor:
    """Return the inputs (n, ...) of a joint distribution.

    Args:
        inputs: The inputs (n, ...), or blocks of them.

    Raises:
        InvalidArgumentError: If they are read in blocks.
    """
    if isinstance(inputs, Tensor):
        return inputs
    raise InvalidArgumentError(
        "A joint distribution requires rows in memory, got rows that are read in blocks. Use the mean and variance, or "
        "predict at an array of some of the rows."
    )


def check_joint_fits(num_points: int, memory: float | None = None, num_matrices: int = 1) -> None:
    """Check that a joint distribution of n points fits into memory, before it is computed.

    Args:
        num_points: The number n of points.
        memory: The memory limit in bytes. If None, the memory of this machine.
        num_matrices: The number of matrices (n, n). The default is 1.

    Raises:
        MemoryBudgetError: If it does not.
    """
    check_fits(
        f"The covariances of {counted(num_points, 'point')}",
        8.0 * COPIES * num_matrices * num_points**2,
        "Use the mean, the variance or gp.sample_functions(...), or predict at fewer points.",
        memory,
        option="memory",
    )


def _chunks(inputs: Tensor | InputBlocks, size: int) -> Iterable[Tensor]:
    """Return inputs (n, ...) in chunks of at most `size` points of similar lengths."""
    if isinstance(inputs, Tensor):
        return torch.tensor_split(inputs, max(1, -(-len(inputs) // size)))
    return inputs.blocks(size)


def sample_functions_jointly(
    root: Tensor,  # (C n, r)
    count: int,
    mean: Tensor,  # (n, C)
    generator: torch.Generator,
) -> Tensor:  # (count, n, C)
    """Draw values of C functions with mean 0 from a root of their joint covariance.

    Args:
        root: The root, function by function.
        count: The number of draws.
        mean: A tensor with the shape of one draw.
        generator: A generator on the CPU.
    """
    standard = torch.randn(count, root.shape[1], generator=generator, dtype=root.dtype).to(root.device)
    return (standard @ root.mT).reshape(count, *mean.mT.shape).mT


def normal_cdf(difference: Tensor, deviation: Tensor) -> Tensor:
    """Return the probabilities (...) that N(0, deviation^2) is at most `difference`.

    Args:
        difference: The signed differences (...) from the mean.
        deviation: The standard deviations (...), which may be 0.
    """
    scale = 2**0.5 * torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    probability = 0.5 * torch.special.erfc(-difference / scale)  # ndtr loses the digits of small probabilities
    return torch.where(deviation > 0, probability, (difference >= 0).to(probability))


def quantiles_by_bisection(
    cdf: Callable[[Tensor], Tensor], p: Tensor, low: Tensor, high: Tensor, num_steps: int
) -> Tensor:
    """Return quantiles (...) by bisection, as upper ends of the last intervals.

    Args:
        cdf: A function that maps values (...) to the probabilities that a draw is at most each of them.
        p: The probabilities (...).
        low: The lower ends (...) of the initial intervals.
        high: The upper ends (...) of the initial intervals.
        num_steps: The number of bisection steps.
    """
    for _ in range(num_steps):
        middle = (low + high) / 2
        is_low = cdf(middle) < p
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    return high
