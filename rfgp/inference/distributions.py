"""Distributions of standardized latent values, computed lazily, and marginal distributions of observations."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from scipy import special
from torch import Tensor

from graphs.checks import check_fits, counted
from rfgp import random
from rfgp.autograd import as_array, numpy_function
from rfgp.blocks import ENTRIES, PrecisionBlock, Prior, WeightBlock
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import COPIES
from rfgp.lattices.design import LatticeDesign
from rfgp.likelihoods.real import normal_log_prob
from rfgp.linalg import covariance_root
from rfgp.messages import check_count
from rfgp.solvers import Posterior
from rfgp.solvers.lowrank import extensions
from rfgp.solvers.role import LatentOperator, known_terms
from rfgp.torch_context import with_torch_defaults

# --- Conversion of arguments and results of predictions between arrays and tensors -----------------------------------


def in_caller_form(value: Tensor, template: Tensor, as_numpy: bool) -> Any:
    """Return a result (...) like a template, or as a numpy array.

    Args:
        value: The result, of any shape (...).
        template: A tensor with the dtype and device of the result.
        as_numpy: Whether the caller passed numpy arrays.
    """
    value = (value.detach() if as_numpy else value).to(template)
    return value.cpu().numpy() if as_numpy else value


def read_real(name: str, values: Any) -> Tensor:
    """Return the caller's numbers as a tensor (...).

    Args:
        name: The name of the argument, for messages.
        values: The caller's numbers, of any shape (...).

    Raises:
        InvalidArgumentError: If they are not numbers.
    """
    try:
        return values if isinstance(values, Tensor) else torch.as_tensor(np.array(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name} must be an array of numbers: {str(error)[:100]}.") from error


@with_torch_defaults()
def check_values(y: Any, mean: Tensor, may_be_one: bool = False) -> Tensor:
    """Return values y as a tensor like a mean, (n,) or (n, k), or a single value, ().

    Args:
        y: The values, an array or one number.
        mean: The mean, (n,) or (n, k).
        may_be_one: Whether y may be one number. The default is False.

    Raises:
        InvalidArgumentError: If y is not an array of numbers, or has another shape.
    """
    values = read_real("y", y).to(mean)
    if values.shape != mean.shape and not (may_be_one and values.ndim == 0):
        raise InvalidArgumentError(
            f"y must have the shape of the mean, {tuple(mean.shape)}, got {tuple(values.shape)}. Give one value for "
            "each value of the prediction."
        )
    return values


def check_probabilities(name: str, values: Any, like: Tensor) -> Tensor:
    """Return probabilities, () or (q,).

    Args:
        name: The name of the argument, for messages.
        values: One number or several, (q,).
        like: A tensor with the dtype and device of the result.

    Raises:
        InvalidArgumentError: If they are not numbers strictly between 0 and 1.
    """
    p = read_real(name, values).to(like)
    if p.ndim > 1 or not bool(((p > 0) & (p < 1)).all()):
        raise InvalidArgumentError(f"{name} must be strictly between 0 and 1, got {values!r}.")
    return p


def check_level(level: Any) -> float:
    """Return the level of an interval.

    Args:
        level: One number.

    Raises:
        InvalidArgumentError: If it is not one number strictly between 0 and 1.
    """
    p = check_probabilities("level", level, torch.empty(0, dtype=torch.float64))
    if p.ndim:
        raise InvalidArgumentError(f"level must be one number, got {level!r}. Use quantile for several.")
    return float(p)


def read_draws(num_samples: int, seed: int | None, generator: torch.Generator | None) -> tuple[int, torch.Generator]:
    """Return the number of draws, and a generator for them.

    Args:
        num_samples: The number of draws.
        seed: The seed. If both are None, the system's entropy is used.
        generator: The generator, instead of a seed.

    Raises:
        InvalidArgumentError: If the number is negative, or both a seed and a generator are given.
    """
    return check_count("num_samples", num_samples, least=0), random.chosen(seed, generator, random.Role.FUNCTIONS)


# --- A cache of results that is safe with gradients ------------------------------------------------------------------

D = TypeVar("D")
T = TypeVar("T")


class ResultCache:
    """A cache of results by name that is safe with gradients.

    - A result that requires a gradient is not kept, because a backward pass may free its graph.
    - A result computed with gradients disabled is returned only while they are disabled.
    - A tensor made in inference mode is not kept.

    No lock is held during a computation. Threads may compute the same result twice, but all get the same one. A copy or
    a pickle of a cache is empty.

    Examples:
        >>> import torch
        >>> from rfgp.inference.distributions import ResultCache
        >>> cache = ResultCache()
        >>> cache.get("sum", lambda: torch.ones(3).sum())
        tensor(3.)
        >>> cache.get("sum", lambda: torch.zeros(3).sum())
        tensor(3.)
    """

    def __init__(self) -> None:
        self._results: dict[tuple[str, bool], Any] = {}

    def get(self, name: str, compute: Callable[[], T]) -> T:
        """Return the result of a name, and compute it if necessary.

        Args:
            name: The name of the result.
            compute: A function that returns the result.
        """
        modes = (True,) if torch.is_grad_enabled() else (False, True)
        for mode in modes:
            if (name, mode) in self._results:
                result: T = self._results[name, mode]
                return result
        return self.put(name, compute())

    def put(self, name: str, result: T) -> T:
        """Keep a result if that is safe, and return the kept result or else the given one.

        Args:
            name: The name of the result.
            result: The result, a tensor or a nested tuple or list of tensors.
        """
        if any(tensor.requires_grad or tensor.is_inference() for tensor in _tensors_in(result)):
            return result
        cached: T = self._results.setdefault((name, torch.is_grad_enabled()), result)
        return cached

    def __reduce__(self) -> tuple[type["ResultCache"], tuple[()]]:
        return ResultCache, ()


def kept(method: Callable[[D], T]) -> Callable[[D], T]:
    """Return a method whose result is kept in the `ResultCache` `_cache` of its object.

    Args:
        method: The method, which returns a tensor or a nested tuple of tensors.
    """

    @wraps(method)
    def inner(self: D) -> T:
        cache: ResultCache = vars(self)["_cache"]
        return cache.get(method.__name__, lambda: method(self))

    return inner


def _tensors_in(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _tensors_in(part)


# --- Joint Gaussian distributions of standardized latent values, computed lazily -------------------------------------


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

    Mean, variance, covariance and root are computed at the first call, and kept unless they require a gradient. They
    must not be changed in place.

    Attributes:
        noise: The distribution of the log noise at the points. If None, the noise is not a function of the inputs.
    """

    noise: "Distribution | None" = field(default=None, kw_only=True)
    _cache: ResultCache = field(default_factory=ResultCache, init=False, repr=False)
    not_divided: ClassVar[str] = (
        "This prediction is not divided into terms. Select terms of predict(X), before observed(), centered() or "
        "linear()."
    )
    """The error message of a distribution without terms."""

    @abstractmethod
    def mean(self) -> Tensor:
        """Return the mean, (n, k)."""

    @abstractmethod
    def variance(self) -> Tensor:
        """Return the marginal variances (n,), or (n, C) of C functions."""

    @abstractmethod
    def covariance(self) -> Tensor:
        """Return the covariance (n, n), or (n, n, C) of C functions."""

    @abstractmethod
    def root(self) -> Tensor:
        """Return a matrix R (n, r), or (C n, r) for C functions, such that R R^T is the covariance."""

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw values from the joint distribution, (count, n, k), or (count, n, C) of C functions.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        root, mean = self.root(), self.mean()
        if len(root) != len(mean):
            standard = torch.randn(count, root.shape[1], generator=generator, dtype=root.dtype).to(root.device)
            return mean + (standard @ root.mT).reshape(count, *mean.mT.shape).mT
        standard = torch.randn(count, mean.shape[1], root.shape[1], generator=generator, dtype=root.dtype)
        values: Tensor = mean + (standard.to(root.device) @ root.mT).mT
        return values

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        return torch.diag_embed(self.variance())

    def operator(self) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves, or None if it must be formed."""
        return None

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if the values are not at points, or points are read in blocks."""
        return None

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of all terms.

        Raises:
            InvalidArgumentError: If the distribution is not divided into terms.
        """
        raise InvalidArgumentError(self.not_divided)

    def of(self, *names: str) -> "Distribution":
        """Return the distribution of the sum of some terms.

        Args:
            names: The names of the terms.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        raise InvalidArgumentError(self.not_divided)

    def cross_covariance(self, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the covariance between two sums of terms, (n, n), or (n, n, C) of C functions.

        Args:
            first: The names of the terms of the first sum, along the rows.
            second: The names of the terms of the second sum, along the columns.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        raise InvalidArgumentError(self.not_divided)


LevelBlock = WeightBlock | PrecisionBlock
"""A block that may have new levels."""
CHUNK_SIZE = 2**14
"""The number of points whose new levels, scales or integrals over the latent function are computed at once."""
FUNCTION_COST = 2**15
"""The square of the number of points beyond which a draw as a function costs less than a root, per draw.

A root of 300 points takes as long as 3 draws as functions, and one of 2,000 points as long as 120."""


def blocks_with_new_levels(prior: Prior) -> tuple[LevelBlock, ...]:
    """Return the blocks of a prior that may have new levels.

    Args:
        prior: The prior.
    """
    blocks: list[LevelBlock] = [*prior.weights, *prior.precisions]
    return tuple(block for block in blocks if block.new_levels is not None)


def prior_kernel(prior: Prior, inputs: Tensor, memory: float | None) -> Tensor:
    """Return the prior covariance (n, n) at n inputs, including new levels, float64.

    Args:
        prior: The prior.
        inputs: The inputs, (n, D) or (n,).
        memory: The memory limit in bytes. If None, the memory of this machine.

    Raises:
        MemoryBudgetError: If the covariance does not fit into memory.
    """
    check_joint_fits(len(inputs), memory)
    new = (block.new_covariance(inputs, inputs) for block in prior.weights)
    return sum(new, start=prior.kernel(inputs, inputs))


@dataclass(frozen=True, eq=False)
class LatentDistribution(Distribution):
    """The posterior distribution of the latent function at n points, plus independent effects of new levels.

    Points are read in chunks to bound the memory. If one chunk holds all points, its projection is cached. Otherwise
    the pass over the chunks that computes the variances also computes the mean.

    Attributes:
        posterior: The posterior, of all terms or of some.
        inputs: The points, a table (n, d) or positions (n,), or blocks of them.
        memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
        all_blocks: The blocks of all terms that may have levels without training rows, or points outside the box of a
            lattice.
        names: The names of the terms of the sum. If None, all terms.
    """

    posterior: Posterior
    inputs: Tensor | InputBlocks
    memory: float | None = None
    all_blocks: tuple[LevelBlock, ...] = ()
    names: tuple[str, ...] | None = None

    @property
    def blocks(self) -> tuple[LevelBlock, ...]:
        """Those of `all_blocks` that are in the sum."""
        return tuple(block for block in self.all_blocks if self.names is None or block.name in self.names)

    @classmethod
    def at(cls, posterior: Posterior, inputs: Tensor | InputBlocks, memory: float | None) -> "LatentDistribution":
        """Return the distribution of the sum of all terms, with that of the log noise if it has one.

        Args:
            posterior: The posterior of all terms.
            inputs: The points, (n, d), or positions (n,), or blocks of them.
            memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
        """
        process = posterior.noise_process
        noise = None if process is None else cls.at(process, inputs, memory)
        return cls(posterior, inputs, memory, blocks_with_new_levels(posterior.prior), noise=noise)

    @property
    def num_points(self) -> int | None:
        """The number n of points, or None if they are read in blocks."""
        return len(self.inputs) if isinstance(self.inputs, Tensor) else None

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of all terms of the prior."""
        return self.posterior.prior.names

    def of(self, *names: str) -> "LatentDistribution":
        """Return the distribution of the sum of some terms."""
        return replace(self, posterior=self.posterior.of(names), names=names, noise=None)

    def differentiated(self, column: int) -> "LatentDistribution":
        """Return the distribution of the derivative of the function in a column.

        Args:
            column: The index of the column among those of the inputs.

        Raises:
            InvalidArgumentError: If a term has no derivative, or the posterior is not one of features.
        """
        return replace(self, posterior=self.posterior.differentiated(column), all_blocks=(), noise=None)

    def cross_covariance(self, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the covariance between two sums of terms, (n, n), or (n, n, C) of C functions."""
        inputs, names = in_memory(self.inputs), [known_terms(self.posterior.prior, names) for names in (first, second)]
        check_joint_fits(len(inputs), self.memory, self.posterior.num_functions)
        base = self.posterior.cross_covariance(inputs, *names)
        blocks = (block for block in self.all_blocks if block.name in names[0] and block.name in names[1])
        new = (block.new_covariance(inputs, inputs) for block in blocks)
        return sum((covariance[..., None] if base.ndim > 2 else covariance for covariance in new), start=base)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw values from the joint distribution, (count, n, k), by weights if possible.

        Args:
            count: The number of draws.
            generator: A generator on the CPU.
        """
        if self.blocks:
            return self._with_new_effects(self._known().sample(count, generator), generator)
        values = self.posterior.sample_values(len(in_memory(self.inputs)), count, generator)
        if values is None:
            return super().sample(count, generator)
        return torch.cat([values(x) for x in chunks_of(self.inputs, self._chunk_size)], dim=1)

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        covariance = torch.cat(list(self._over_chunks(self.posterior.function_covariance)))
        if not self.blocks:
            return covariance
        return covariance + torch.diag_embed(self._new_variance()[:, None].expand(covariance.shape[:2]))

    def operator(self) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves, or None if it must be formed."""
        return self.posterior.operator(in_memory(self.inputs))

    @kept
    def mean(self) -> Tensor:
        """Return the mean, (n, k)."""
        return torch.cat(list(self._over_chunks(lambda inputs, projected: self.posterior.mean(projected))))

    @kept
    def variance(self) -> Tensor:
        """Return the marginal variances (n,), or (n, C) of C functions."""
        if self._is_one_chunk:
            variance = self.posterior.variance(*self._joint())
        else:
            means, variance = map(torch.cat, zip(*self._over_chunks(self.posterior.moments), strict=True))
            self._cache.put("mean", means)
        if not self.blocks:
            return variance
        new = self._new_variance()
        return variance + (new[:, None] if variance.ndim > 1 else new)

    @kept
    def covariance(self) -> Tensor:
        """Return the covariance (n, n), or (n, n, C) of C functions."""
        check_joint_fits(len(in_memory(self.inputs)), self.memory, self.posterior.num_functions)
        covariance, rows = self.posterior.covariance(*self._joint()), self._new_rows()
        if not len(rows):
            return covariance
        new = self._new_covariance(rows)
        return covariance.index_put(
            (rows[:, None], rows), new[..., None] if covariance.ndim > 2 else new, accumulate=True
        )

    @kept
    def root(self) -> Tensor:
        """Return a matrix R (n, r), or (C n, r) for C functions, such that R R^T is the covariance."""
        check_joint_fits(len(in_memory(self.inputs)), self.memory, self.posterior.num_functions**2)
        root, rows = self.posterior.root(*self._joint()), self._new_rows()
        if not len(rows):
            return root
        part = self._new_root(rows)
        new_root = part.new_zeros(len(in_memory(self.inputs)), part.shape[1]).index_put((rows,), part)
        functions = torch.eye(len(root) // len(new_root), dtype=new_root.dtype)
        return torch.cat([root, torch.kron(functions, new_root)], dim=1)

    # --- the effects of new levels ----------------------------------------------------------------

    @kept
    def _known(self) -> "LatentDistribution":
        return replace(self, all_blocks=())

    def _new_variance(self) -> Tensor:
        """Return the variances of new levels, (n,)."""
        chunks = chunks_of(self.inputs, CHUNK_SIZE)
        return torch.cat([torch.stack([block.new_variance(x) for block in self.blocks]).sum(0) for x in chunks])

    def _new_rows(self) -> Tensor:
        """Return the indices of the points with new levels, (r,)."""
        return self._new_variance().detach().nonzero()[:, 0] if self.blocks else torch.zeros(0, dtype=torch.long)

    def _new_covariance(self, rows: Tensor) -> Tensor:
        """Return the covariance of new levels at some points, (r, r)."""
        check_joint_fits(len(rows), self.memory)
        x = in_memory(self.inputs)[rows]
        first, *others = (block.new_covariance(x, x) for block in self.blocks)
        return sum(others, start=first)

    def _new_root(self, rows: Tensor) -> Tensor:
        """Return a root (r, q) of the covariance of new levels at some points."""
        covariance = self._new_covariance(rows)
        if not self._on_lattices:
            return covariance_root(covariance)
        values, vectors = torch.linalg.eigh(covariance)  # a difference of two matrices, whose rounding may be negative
        root: Tensor = vectors * values.clamp_min(0).sqrt()
        return root

    @property
    def _on_lattices(self) -> list[WeightBlock]:
        """The blocks with points outside the box of a lattice."""
        weights = (block for block in self.blocks if isinstance(block, WeightBlock))
        return [block for block in weights if isinstance(block.design, LatticeDesign)]

    def _with_new_effects(self, values: Tensor, generator: torch.Generator) -> Tensor:
        """Return draws (s, n, k) plus draws of the effects of new levels.

        Effects of many points outside the box of a lattice are drawn as functions.
        """
        rows, lattices, (count, _, k) = self._new_rows(), self._on_lattices, values.shape
        if not len(rows):
            return values
        if lattices and len(rows) ** 2 > FUNCTION_COST * count:
            functions = extensions(lattices, count, k, generator)
            values = values.index_add(1, rows, functions(in_memory(self.inputs)[rows]).to(values))
            others = tuple(block for block in self.blocks if block not in lattices)
            return replace(self, all_blocks=others)._with_new_effects(values, generator)
        root = self._new_root(rows)
        standard = torch.randn(count, k, root.shape[1], generator=generator, dtype=root.dtype)
        return values.index_add(1, rows, (standard @ root.mT).mT.to(values))

    # --- chunks of points -------------------------------------------------------------------------

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
        for x in chunks_of(self.inputs, self._chunk_size):
            yield read(x, self.posterior.project(x))

    def _joint(self) -> tuple[Tensor, Any]:
        """Return all points and their projection."""
        inputs = in_memory(self.inputs)
        if not self._is_one_chunk:
            return inputs, self.posterior.project(inputs)
        parameters = self.posterior.prior.parameters
        if inputs.requires_grad or any(parameter.requires_grad for parameter in parameters):
            return inputs, self.posterior.project(inputs)  # a backward pass may free its graph
        return inputs, self._cache.get("projection", lambda: self.posterior.project(inputs))


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

    @kept
    def mean(self) -> Tensor:
        """Return the mean, (m, k)."""
        return self.weights @ (self.latent.mean() + self.shift)

    @kept
    def variance(self) -> Tensor:
        """Return the marginal variances (m,), or (m, C) of C functions."""
        variance = (self.weights @ self._by_function() * self.weights).sum(-1).clamp_min(0)
        return variance if variance.ndim == 1 else variance.mT

    @kept
    def covariance(self) -> Tensor:
        """Return the covariance (m, m), or (m, m, C) of C functions."""
        covariance = self.weights @ self._by_function() @ self.weights.mT
        return covariance if covariance.ndim == 2 else covariance.movedim(0, -1)

    @kept
    def root(self) -> Tensor:
        """Return a matrix R (n, r), or (C n, r) for C functions, such that R R^T is the covariance."""
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

    Examples:
        >>> import torch
        >>> from rfgp.inference import MarginalDistribution
        >>> MarginalDistribution(torch.zeros(2, 1), torch.tensor([1.0, 4.0])).variance().tolist()
        [1.0, 4.0]
    """

    means: Tensor
    variances: Tensor

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each point, (n, C, C)."""
        return self.variances

    def mean(self) -> Tensor:
        """Return the mean, (n, k)."""
        return self.means

    def variance(self) -> Tensor:
        """Return the marginal variances (n,), or (n, C) of C functions."""
        return self.variances if self.variances.ndim == 1 else self.variances.diagonal(dim1=1, dim2=2)

    def covariance(self) -> Tensor:
        """Return the covariance (n, n), or (n, n, C) of C functions."""
        raise InvalidArgumentError("A marginal distribution has no covariance. Use its mean and variance.")

    def root(self) -> Tensor:
        """Return a matrix R (n, r), or (C n, r) for C functions, such that R R^T is the covariance."""
        return self.covariance()


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


def chunks_of(inputs: Tensor | InputBlocks, size: int) -> Iterable[Tensor]:
    """Return inputs (n, ...) in chunks of similar lengths.

    Args:
        inputs: The inputs, (n, ...), or blocks of them.
        size: The largest number of points of a chunk, which blocks exceed slightly.
    """
    if isinstance(inputs, Tensor):
        return torch.tensor_split(inputs, max(1, -(-len(inputs) // size)))
    return inputs.blocks(size)


def normal_cdf(difference: Tensor, deviation: Tensor) -> Tensor:
    """Return the probabilities (...) that N(0, deviation^2) is at most `difference`.

    Args:
        difference: The signed differences (...) from the mean.
        deviation: The standard deviations (...), which may be 0.
    """
    scale = 2**0.5 * torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    probability = 0.5 * torch.special.erfc(-difference / scale)  # ndtr loses the digits of small probabilities
    return torch.where(deviation > 0, probability, (difference >= 0).to(probability))


# --- Marginal distributions: normal, and mixtures of normal or Student-t distributions -------------------------------


class Marginals(Protocol):
    """Interface: the marginal distributions of values (...)."""

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log densities at y, (...).

        Args:
            y: The values, (...).
        """

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities of values up to y, (...).

        Args:
            y: The values, (...).
        """

    def quantile(self, p: Tensor) -> Tensor:
        """Return the quantiles at probabilities p, (...).

        Args:
            p: The probabilities, (...).
        """


class NormalMarginals(NamedTuple):
    """Normal distributions with means (...) and variances (...)."""

    mean: Tensor
    variance: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log densities at y, (...)."""
        return normal_log_prob(y, self.mean, self.variance)

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities of values up to y, (...)."""
        return normal_cdf(y - self.mean, self.variance.clamp_min(0).sqrt())

    def quantile(self, p: Tensor) -> Tensor:
        """Return the quantiles at probabilities p, (...)."""
        standard: Tensor = torch.special.ndtri(p)
        return self.mean + self.variance.clamp_min(0).sqrt() * standard


_MAX_STEPS = 80
"""The maximum number of steps of a search for a quantile."""


def _in_chunks(method: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """Return a method of mixtures that reads many points in chunks, which bounds its temporary memory."""

    @wraps(method)
    def over_points(self: "MarginalMixture", values: Tensor) -> Tensor:
        size = max(1, ENTRIES // len(self.weights))
        if values.ndim == 0 or len(values) <= size:
            return method(self, values)
        columns = (torch.split(part, size, dim=-1) for part in (self.means, self.squares, values))
        return torch.cat([method(self._replace(means=m, squares=s), v) for m, s, v in zip(*columns, strict=True)])

    return over_points


class MarginalMixture(NamedTuple):
    """Marginal distributions of observations at n points: mixtures of p Student-t or normal distributions.

    Attributes:
        weights: The weights of the parts, (p,).
        means: Their means, (p, n) or (1, n).
        squares: Their squared scales, (p, n).
        df: The degrees of freedom, or inf.

    Examples:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> mixture = MarginalMixture(one[0], 0 * one, one, math.inf)
        >>> round(mixture.quantile(torch.tensor([0.975], dtype=torch.float64)).item(), 3)
        1.96
    """

    weights: Tensor
    means: Tensor
    squares: Tensor
    df: float

    @_in_chunks
    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log densities at y, (n,)."""
        parts = _t_log_prob(y.to(self.means) - self.means, self.squares, self.df)
        return torch.logsumexp(self.weights.log()[:, None] + parts, dim=0)

    def interval_log_prob(self, y: Tensor, width: float) -> Tensor:
        """Return log(P(y - width / 2 < Y < y + width / 2) / width), (n,)."""
        scale, left, half = self.squares.sqrt(), -(y - self.means).abs(), 0.5 * width
        mass = (_cdf(left + half, scale, self.df) - _cdf(left - half, scale, self.df)) / width
        density = _t_log_prob(left, self.squares, self.df).exp()
        return (self.weights @ torch.where(half < 1e-3 * scale, density, mass)).clamp_min(1e-300).log()

    @_in_chunks
    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities of values up to y, (n,)."""
        return self.weights @ _cdf(y.to(self.means) - self.means, self.squares.sqrt(), self.df)

    @_in_chunks
    def quantile(self, p: Tensor) -> Tensor:
        """Return the quantiles at probabilities p, (n,), by Newton steps within brackets.

        The last step is differentiable.
        """
        with torch.no_grad():
            p = p.to(self.means)
            is_normal = math.isinf(self.df)
            standard = torch.special.ndtri(p) if is_normal else torch.as_tensor(special.stdtrit(self.df, as_array(p)))
            ends = self.means + self.squares.sqrt() * standard
            low, high = ends.amin(0), ends.amax(0)
            y, tolerance = (low + high) / 2, 1e-13 * (1 + ends.abs().amax(0))
            for _ in range(_MAX_STEPS):
                excess = self.cdf(y) - p
                low, high = torch.where(excess < 0, y, low), torch.where(excess < 0, high, y)
                newton = y - excess / self.log_prob(y).exp()
                is_inside = (newton > low) & (newton < high)
                new = torch.where(is_inside, newton, (low + high) / 2)
                done, y = bool(((new - y).abs() <= tolerance).all()), new
                if done:
                    break
        if not (self.means.requires_grad or self.squares.requires_grad):
            return y
        return y - (self.cdf(y) - p) / self.log_prob(y).exp().detach()

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and variances, (n,) each."""
        mean = self.weights @ self.means.expand_as(self.squares)
        return mean, self.weights @ ((self.means - mean).square() + variance_ratio(self.df) * self.squares)


def variance_ratio(df: float) -> float:
    """Return the variance of Student's t relative to its squared scale, for more than two degrees of freedom."""
    return 1.0 if math.isinf(df) else df / (df - 2)


def _t_log_prob(r: Tensor, square: Tensor, df: float) -> Tensor:
    """Return the log densities of Student's t, or a normal distribution, with squared scales (...)."""
    if math.isinf(df):
        return -0.5 * ((2 * math.pi * square).log() + r.square() / square)
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(math.pi * df)
    return constant - 0.5 * square.log() - (df + 1) / 2 * (r.square() / (df * square)).log1p()


def _cdf(difference: Tensor, scale: Tensor, df: float) -> Tensor:
    """Return the probabilities (...) of at most `difference` from the mean, with scales that may be 0 if normal."""
    if math.isinf(df):
        return normal_cdf(difference, scale)
    return numpy_function(
        difference / scale,
        lambda z: special.stdtr(df, z),
        lambda z, gradient: gradient * as_array(_t_log_prob(torch.from_numpy(z), torch.ones(()), df).exp()),
        is_elementwise=True,
    )
