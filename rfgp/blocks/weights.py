"""Blocks of dense weights: f = s phi(x) w with w ~ N(0, I)."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from rfgp.autograd import input_derivatives
from rfgp.blocks.role import LatentBlock, NewLevels, detached
from rfgp.grams import Gram


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


def residual_totals(weights: Weights, inputs: Tensor, *parameters: Tensor) -> Tensor | None:
    """Return k_t(x_i, x_i) of the kernels of residuals, (T, n).

    Values are for variances of 1, and 0 for other blocks. Return None if all of them are 1.

    Args:
        weights: The weights.
        inputs: The n points.
        parameters: The parameters of all blocks.
    """
    if all(block.residual is None or block.residual.diagonal is None for block in weights.blocks):
        return None
    totals = []
    for block, own in weights.with_parameters(*parameters):
        diagonal = None if block.residual is None else block.residual.diagonal
        default = torch.full((len(inputs),), float(block.residual is not None), dtype=torch.float64)
        totals.append(default if diagonal is None else diagonal(inputs, *own).double())
    return torch.stack(totals)
