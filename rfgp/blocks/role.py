"""The role of a latent block, and blocks of dense weights, of covariance functions and of sparse weights."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import input_derivatives
from rfgp.grams import Gram
from rfgp.linalg import cholesky, half_solve
from rfgp.sparse import SparseValues, gram, multiply, row_blocks

# --- The role of a latent block: one term of a Gaussian process prior ------------------------------------------------

S = TypeVar("S")

Functions = Callable[[Tensor], Tensor]
"""Functions of the inputs of n points, (n, p)."""


ENTRIES = 2**22
"""The maximum number of entries of features, or of projections of points, that are computed at once (32 MB)."""
CHUNK = 1000
"""The number of rows with new levels whose variances are computed at once."""


@dataclass(frozen=True, eq=False)
class NewLevels:
    """The part of a term at points of which the rows say nothing, for a variance of 1.

    Points with levels without rows are an example. Inputs with the same new level share it.

    Attributes:
        is_new: Maps inputs (n, D) to whether they have such a part, (n,).
        between: Maps such inputs a and b, and the parameters of the block, to the covariance (n_a, n_b) of the part.
        own: Maps such inputs, and the parameters of the block, to the variances (n_a,). If None, they follow from
            `between`.
    """

    is_new: Callable[[Tensor], Tensor]
    between: Callable[..., Tensor]
    own: Callable[..., Tensor] | None = None

    def covariance(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b) of inputs a and b. It is 0 without new levels.

        Args:
            a: The inputs of n_a points, (n_a, D).
            b: The inputs of n_b points, (n_b, D).
            parameters: The parameters of the block.
        """
        out = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
        rows, columns = (self.is_new(x).nonzero()[:, 0] for x in (a, b))
        if len(rows) and len(columns):
            out = out.index_put((rows[:, None], columns), self.between(a[rows], b[columns], *parameters))
        return out

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n_a,) of inputs a.

        Args:
            a: The inputs of n_a points, (n_a, D).
            parameters: The parameters of the block.
        """
        out = torch.zeros(len(a), dtype=torch.float64, device=a.device)
        rows = self.is_new(a).nonzero()[:, 0]
        for chunk in torch.split(rows, CHUNK) if len(rows) else ():
            x = a[chunk]
            values = self.between(x, x, *parameters).diagonal() if self.own is None else self.own(x, *parameters)
            out = out.index_put((chunk,), values)
        return out


class LatentBlock(ABC):
    """A zero-mean Gaussian term f of the prior.

    A solver chooses how to eliminate its latent vector.

    Attributes:
        name: The name of the term, unique within a prior.
    """

    name: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the terms of which the block is the sum."""
        return (self.name,)

    def flags(self, names: Sequence[str] | None) -> Tensor:
        """Return whether each term of the block is among the names, (T,).

        Args:
            names: The names of the terms. If None, all are.
        """
        return torch.tensor([names is None or name in names for name in self.names])

    @property
    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors (...) that may have gradients."""

    @abstractmethod
    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the prior covariance (n_a, n_b) between inputs a and b, float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
            b: The inputs of n_b points, (n_b,) or (n_b, D).
        """

    def gram(self, a: Tensor) -> Gram:
        """Return the prior covariance (n_a, n_a) of inputs, with its gradient.

        It is float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """
        return Gram.of(self.kernel(a, a))

    @abstractmethod
    def diagonal(self, a: Tensor) -> Tensor:
        """Return the prior variances (n_a,), float64.

        Args:
            a: The inputs of n_a points, (n_a,) or (n_a, D).
        """

    def detached(self) -> Self:
        """Return the block without gradients."""
        return detached(self)


def detached(state: S) -> S:
    """Return a frozen dataclass without gradients.

    Its tensors (...), blocks, and tuples of these are detached.

    Args:
        state: The dataclass.
    """
    known: Any = state
    copy: S = replace(known, **{entry.name: _detached(getattr(known, entry.name)) for entry in fields(known)})
    return copy


def _detached(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_detached, value))
    if isinstance(value, LatentBlock):
        return value.detached()
    return value.detach() if isinstance(value, Tensor) else value


# --- Blocks of dense weights: f = s phi(x) w with w ~ N(0, I) --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Residual:
    """The part of a kernel k that features miss.

    k - phi phi^T is positive semidefinite.

    Attributes:
        is_noise: Whether the residual is independent between observations, like noise (FITC). Otherwise it belongs to
            the function, and the marginal likelihood is the variational bound (VFE).
        kernel: Maps (a, b) and the parameters of the block to k (n_a, n_b).
        diagonal: Maps a and the parameters of the block to k(a_i, a_i) (n_a,). If None, it is 1.

    Examples:
        >>> residual = Residual(is_noise=True, kernel=lambda a, b: torch.exp(-torch.cdist(a, b)))
        >>> x, phi = torch.zeros(1, 1), torch.tensor([[0.5]])
        >>> residual.variance(phi, x, ()).tolist()  # 1 - 0.5^2
        [0.75]
    """

    is_noise: bool
    kernel: Callable[..., Tensor]
    diagonal: Callable[..., Tensor] | None = None

    def variance(self, phi: Tensor, inputs: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Return k(x_i, x_i) - |phi_i|^2, (n,), float64.

        Args:
            phi: The features of n points, (n, F).
            inputs: The n points.
            parameters: The parameters of the block.
        """
        total = 1.0 if self.diagonal is None else self.diagonal(inputs, *parameters).double()
        variance: Tensor = total - phi.double().square().sum(-1)
        return variance.clamp_min(0)


class Design(Protocol):
    """Interface: features without hyperparameters, times prior standard deviations.

    The prior standard deviations depend on the hyperparameters. Sums of products of such features over the rows hold
    for any hyperparameters.
    """

    @property
    def num_features(self) -> int:
        """The number F of features."""

    def fixed_features(self, x: Tensor) -> Tensor:
        """Return the features of training rows (n, D), (n, F), float64."""

    def scale(self, *parameters: Tensor) -> Tensor:
        """Return the prior standard deviations of the weights, (F,), for a variance of 1."""

    def residual_variance(self, *parameters: Tensor) -> Tensor:
        """Return the variance that the features miss at each row, 0-d.

        The variance of the term is 1.
        """

    def residual_derivative_variance(self, column: int, *parameters: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Return the variance that the features miss of a derivative, 0-d or (n,).

        The variance of the term is 1.

        Args:
            column: The index of the column of the derivative.
            parameters: The hyperparameters.
            inputs: The inputs of n points, (n, D). If None, a point among the rows.

        Raises:
            InvalidArgumentError: If the term has no derivative.
        """

    def residual_derivative_covariance(self, inputs: Tensor, column: int, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, n) of the part of a derivative that points beyond the rows share.

        The variance of the term is 1.

        Args:
            inputs: The inputs of n points, (n, D).
            column: The index of the column of the derivative.
            parameters: The hyperparameters.
        """


@dataclass(frozen=True, eq=False)
class WeightBlock(LatentBlock):
    """A process f = s phi(x) w with w ~ N(0, I).

    If there is a residual, s times the residual is added.

    Attributes:
        features: Maps inputs, and `parameters`, to phi (n, F).
        num_features: The number F of features.
        parameters: The tensors that the features depend on.
        variance: The variance s^2, 0-d. If None, 1.
        residual: The part of the kernel that the features miss. If None, it is omitted.
        rounding: Maps `parameters` to the mean of |phi_32(x) - phi(x)|^2, the error of features in float32 arithmetic.
            If None, it is the negligible error of rounding phi.
        name: The name of the term.
        new_levels: The covariance of f between inputs with levels that no row has, for a variance of 1. If None, 0.
        design: The features of rows as a design without hyperparameters. If None, there is none.
        fourier: Maps `parameters` to frequencies (m, c), the indices of c columns, and amplitudes (m,), if phi are
            cosines followed by sines. If None, they are not.

    Examples:
        >>> block = WeightBlock(lambda x: x, num_features=2, variance=torch.tensor(2.0))
        >>> block.kernel(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 0.0]])).round(decimals=4).tolist()
        [[2.0]]
    """

    features: Callable[..., Tensor]
    num_features: int
    parameters: tuple[Tensor, ...] = ()
    variance: Tensor | None = None
    residual: Residual | None = None
    rounding: Callable[..., float] | None = None
    name: str = "weights"
    new_levels: NewLevels | None = None
    design: Design | None = None
    fourier: Callable[..., tuple[Tensor, list[int], Tensor]] | None = None

    @property
    def prior_variance(self) -> Tensor:
        """The prior variance s^2, 0-d, float64."""
        return torch.ones((), dtype=torch.float64) if self.variance is None else self.variance.double()

    def scaled(self, inputs: Tensor) -> Tensor:
        """Return Phi = s phi, (n, F).

        It is float64 if float32 arithmetic is not precise enough.
        """
        phi: Tensor = self.features(self.precise(inputs), *self.parameters)
        return phi if self.variance is None else self.prior_variance.sqrt() * phi

    def precise(self, inputs: Tensor) -> Tensor:
        """Return the inputs, (n, d) or (n,).

        They are float64 if float32 arithmetic is not precise enough.
        """
        return inputs if self.rounding is None else inputs.double()

    def input_derivatives(self, inputs: Tensor, column: int) -> Tensor:
        """Return the derivatives of Phi = s phi in one column, (n, F), float64.

        Args:
            inputs: The inputs, (n, D).
            column: The index of the column.
        """
        return input_derivatives(self.scaled, inputs, column)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b).

        A residual that is noise is independent between points.
        """
        left = self.scaled(a).double()
        if a is b:
            return left @ left.mT + self.residual_covariance(a, left)
        if self.residual is None or self.residual.is_noise:
            return left @ self.scaled(b).double().mT
        return self.prior_variance * self.residual.kernel(a, b, *self.parameters).double()

    def gram(self, a: Tensor) -> Gram:
        """Return the covariance (n_a, n_a) of inputs with themselves, and its gradient."""
        return super().gram(a) if self.residual is not None else Gram.of_features(self.scaled(a).double())

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,)."""
        phi = self.scaled(a).double()
        return phi.square().sum(-1) + self.residual_variance(a, phi)

    def residual_variance(self, a: Tensor, scaled: Tensor) -> Tensor:
        """Return the variances (n,) of the residual, zeros without a residual.

        Args:
            a: The n points.
            scaled: Their features Phi, (n, F).
        """
        if self.residual is None:
            return scaled.new_zeros(len(scaled), dtype=torch.float64)
        return self.prior_variance * self.residual.variance(scaled / self.prior_variance.sqrt(), a, self.parameters)

    def residual_covariance(self, a: Tensor, scaled: Tensor) -> Tensor:
        """Return the covariance (n, n) of the residual at points with features Phi (n, F)."""
        if self.residual is None or self.residual.is_noise:
            return self.residual_variance(a, scaled).diag()
        estimate = scaled.double() @ scaled.double().mT
        return self.prior_variance * self.residual.kernel(a, a, *self.parameters).double() - estimate

    def new_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b) at levels without rows, float64."""
        if self.new_levels is None:
            return torch.zeros(len(a), len(b), dtype=torch.float64)
        return self.prior_variance * self.new_levels.covariance(a, b, *self.parameters)

    def new_variance(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,) at levels without rows, float64."""
        if self.new_levels is None:
            return torch.zeros(len(a), dtype=torch.float64)
        return self.prior_variance * self.new_levels.variances(a, *self.parameters)


@dataclass(frozen=True, eq=False)
class Weights:
    """The concatenated weights of several blocks: Phi = [s_1 phi_1, s_2 phi_2, ...].

    Attributes:
        blocks: The terms, in order. There may be none.

    Examples:
        >>> blocks = [WeightBlock(lambda x: x, 1), WeightBlock(lambda x: x**2, 1, variance=torch.tensor(4.0))]
        >>> Weights(tuple(blocks)).scaled(torch.tensor([[3.0]])).tolist()
        [[3.0, 18.0]]
    """

    blocks: tuple[WeightBlock, ...]

    @cached_property
    def num_features(self) -> int:
        """The number F of all weights."""
        return sum(block.num_features for block in self.blocks)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors (...) that the features depend on, block by block."""
        return tuple(parameter for block in self.blocks for parameter in block.parameters)

    @cached_property
    def variances(self) -> Tensor:
        """The prior variances s_t^2 of the blocks, (T,), float64."""
        return torch.stack([block.prior_variance for block in self.blocks])

    @cached_property
    def sizes(self) -> list[int]:
        """The number of weights of each block."""
        return [block.num_features for block in self.blocks]

    @property
    def has_residual(self) -> bool:
        """Whether a block has a residual."""
        return any(block.residual is not None for block in self.blocks)

    @property
    def adds_noise(self) -> bool:
        """Whether a residual is noise of the observations."""
        return any(block.residual is not None and block.residual.is_noise for block in self.blocks)

    def by_weight(self, values: Tensor) -> Tensor:
        """Return values (T,) of the blocks as values (F,) of the weights."""
        sizes = torch.tensor(self.sizes, dtype=torch.int64, device=values.device)
        return values.repeat_interleave(sizes, output_size=self.num_features)

    def by_block(self, values: Tensor) -> Tensor:
        """Return the sums (T,) of values (F,) over the weights of each block."""
        return torch.stack([part.sum() for part in torch.split(values, self.sizes)])

    @property
    def scale(self) -> Tensor:
        """The prior standard deviations of the weights, (F,), float64."""
        return self.by_weight(self.variances.sqrt())

    @property
    def rounding_variance(self) -> float:
        """The variance of errors of float32 arithmetic.

        It is the mean of sum_t s_t^2 |phi_t32(x) - phi_t(x)|^2.
        """
        rounded = [block for block in self.blocks if block.rounding is not None]
        return sum(
            float(b.prior_variance.detach()) * b.rounding(*b.parameters) for b in rounded if b.rounding is not None
        )

    def features(self, inputs: Tensor, *parameters: Tensor, in_float64: bool = False) -> Tensor:
        """Return [phi_1, phi_2, ...] (n, F), without prior scales.

        Args:
            inputs: The n points.
            parameters: The parameters of all blocks. If none are given, the blocks' own.
            in_float64: Whether features whose float32 arithmetic is not precise enough are in float64. The default is
                False.
        """
        parts = [
            block.features(block.precise(inputs) if in_float64 else inputs, *own)
            for block, own in self.with_parameters(*parameters)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def with_parameters(self, *parameters: Tensor) -> Iterator[tuple[WeightBlock, tuple[Tensor, ...]]]:
        """Yield the blocks with their parameters (...).

        Args:
            parameters: The parameters of all blocks. If none are given, the blocks' own.
        """
        remaining = iter(parameters or self.parameters)
        for block in self.blocks:
            yield block, tuple(itertools.islice(remaining, len(block.parameters)))

    def scaled(self, inputs: Tensor) -> Tensor:
        """Return Phi (n, F), with prior scales.

        Without blocks it has no columns and is float64.
        """
        if not self.blocks:
            return torch.zeros(len(inputs), 0, dtype=torch.float64)
        parts = [block.scaled(inputs) for block in self.blocks]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def unscaled_residual_variances(self, phi: Tensor, inputs: Tensor) -> Tensor:
        """Return the residual variances of the blocks for variances of 1, (T, n).

        They are k_t(x_i, x_i) - |phi_ti|^2 for blocks with a residual and 0 for others.

        Args:
            phi: The features without scales, (n, F).
            inputs: The n points.
        """
        parts = torch.split(phi, self.sizes, dim=1)
        zero = torch.zeros(len(phi), dtype=torch.float64, device=phi.device)
        pairs = zip(self.blocks, parts, strict=True)
        rows = [zero if b.residual is None else b.residual.variance(part, inputs, b.parameters) for b, part in pairs]
        return torch.stack(rows)

    def residual_variance(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Return the variances (n,) of all residuals.

        Args:
            inputs: The n points.
            scaled: Their features Phi, (n, F).
        """
        return _residual_sum(self, scaled, lambda block, part: block.residual_variance(inputs, part))

    def residual_covariance(self, inputs: Tensor, scaled: Tensor) -> Tensor:
        """Return the covariance (n, n) of all residuals.

        Args:
            inputs: The n points.
            scaled: Their features Phi, (n, F).
        """
        return _residual_sum(self, scaled, lambda block, part: block.residual_covariance(inputs, part))

    def of(self, names: Sequence[str]) -> Tensor:
        """Return whether each weight belongs to the named blocks, (F,) bool."""
        flags = torch.tensor([block.name in names for block in self.blocks], dtype=torch.bool)
        return self.by_weight(flags)

    def with_residuals_of(self, names: Sequence[str] | None) -> "Weights":
        """Return the weights with the residuals of the named blocks only.

        Args:
            names: The names of the blocks. If None, all residuals are kept.
        """
        if names is None:
            return self
        return Weights(tuple(block if block.name in names else replace(block, residual=None) for block in self.blocks))

    def detached(self) -> "Weights":
        """Return the weights without gradients."""
        return detached(self)


def _residual_sum(weights: Weights, scaled: Tensor, function: Callable[[WeightBlock, Tensor], Tensor]) -> Tensor:
    """Return a sum over the blocks with a residual.

    The function is that of a block and its features. The result is (n,) or (n, n), or 0.
    """
    pairs = zip(weights.blocks, torch.split(scaled, weights.sizes, dim=1), strict=True)
    zero = scaled.new_zeros((), dtype=torch.float64)
    return sum((function(block, part) for block, part in pairs if block.residual is not None), start=zero)


# --- Blocks with a covariance function -------------------------------------------------------------------------------

JITTER = 1e-8
"""The largest jitter of a kernel matrix, relative to the variance, that raises no warning."""


MAX_CELLS = 2**20
"""The maximum number of pairs of positions of a product covariance. Draws for variances then take 512 MB."""


@dataclass(frozen=True, eq=False)
class Side:
    """One of two kernels on disjoint columns whose product is a covariance.

    Attributes:
        covariance: Maps inputs a and b, and the parameters of the product, to (n_a, n_b).
        column_indices: The indices of its columns.
    """

    covariance: Callable[..., Tensor]
    column_indices: tuple[int, ...]

    def distinct(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distinct positions of inputs (n, D) in the columns of the side.

        Args:
            inputs: The inputs, (n, D).

        Returns:
            Inputs (N, D) at the N positions, and the index of the position of each row (n,).
        """
        columns = inputs[:, list(self.column_indices)].detach().numpy()
        _, first, codes = np.unique(columns, axis=0, return_index=True, return_inverse=True)
        return inputs[torch.from_numpy(first)], torch.from_numpy(codes.reshape(-1))


class PriorFunctions(Protocol):
    """Interface: functions drawn from a prior, for pathwise conditioning."""

    def draw(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of the inputs of n points, (n, count).

        Args:
            count: The number of functions.
            generator: The generator of the draws.
        """

    def kernel_expansion(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> k(x, inputs) @ coefficients.

        Args:
            inputs: The inputs of n points.
            coefficients: The coefficients, (n, p).
        """


@dataclass(frozen=True, eq=False)
class KernelBlock(LatentBlock):
    """A process f whose covariance function is evaluated exactly.

    Attributes:
        covariance: Maps inputs a and b, and `parameters`, to k(a, b) (n_a, n_b).
        variances: Maps inputs a, and `parameters`, to k(a_i, a_i) (n_a,).
        parameters: The tensors that the covariance depends on.
        functions: The functions drawn from the prior. If None, the prior is defined at given points only.
        name: The name of the term.
        own_gram: Maps inputs a, and `parameters`, to k(a, a) and its gradient. If None, autograd computes the gradient.
        sides: Two kernels whose product is the covariance, for rows on a grid of their positions. If None, the
            covariance is not computed as a product.

    Examples:
        >>> block = KernelBlock(lambda a, b: torch.exp(-torch.cdist(a, b)), lambda a: torch.ones(len(a)))
        >>> x = torch.tensor([[0.0], [1.0]]).double()
        >>> features = block.as_weights(x).scaled(x)
        >>> torch.allclose(features @ features.mT, block.kernel(x, x))
        True
    """

    covariance: Callable[..., Tensor]
    variances: Callable[..., Tensor]
    parameters: tuple[Tensor, ...] = ()
    functions: PriorFunctions | None = None
    name: str = "kernel"
    sides: tuple[Side, Side] | None = None
    own_gram: Callable[..., Gram] | None = None

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return k(a, b), (n_a, n_b)."""
        return self.covariance(a, b, *self.parameters).double()

    def gram(self, a: Tensor) -> Gram:
        """Return the covariance (n_a, n_a) of inputs with themselves, and its gradient."""
        return super().gram(a) if self.own_gram is None else self.own_gram(a, *self.parameters)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,)."""
        return self.variances(a, *self.parameters).double()

    def as_weights(self, inputs: Tensor) -> WeightBlock:
        """Return the block as weights with a residual.

        f(x) = k(x, X) L^-T w + residual with w ~ N(0, I) and L L^T = k(X, X).

        Args:
            inputs: The inputs X of the rows, (n, d) or (n,). The block has n weights.
        """
        features = _RootFeatures(self.covariance, inputs)
        residual = Residual(False, self.covariance, self.variances)
        return WeightBlock(features, len(inputs), self.parameters, residual=residual, name=self.name)


@dataclass(frozen=True, eq=False)
class _RootFeatures:
    """The features k(x, X) L^-T of inputs x and the parameters of k."""

    covariance: Callable[..., Tensor]
    rows: Tensor

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features (n, N)."""
        kernel = self.covariance(self.rows, self.rows, *parameters).double()
        factor = cholesky(kernel, "The kernel matrix of the rows", expected=JITTER)  # the residual includes the jitter
        if x is self.rows:
            return factor
        cross = self.covariance(self.rows, x, *parameters).double()
        return half_solve(factor, cross).mT


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
