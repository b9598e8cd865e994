"""A linear model of rows on features, in blocks of rows.

Products of features within a block have their dtype. Sums over blocks and all F x F algebra are float64. With float32
features, phi^T phi of n rows has an error of about sqrt(n b) 6e-8 for b rows in a block. The rounding ratio is sqrt(n
b) 6e-8 s^2 / noise, with the prior variance s^2 of all terms together. Above a ratio of `max_float32_error`, blocks of
features are cast to float64 first (`benchmarks/papers/own/rounding.py`).

The arithmetic of some features (those of inducing points) amplifies rounding errors. Let d^2 be the mean over rows of
|phi_32(x) - phi(x)|^2. The errors add n s^2 d^2 / noise to tr A. They add at most half of that to log|A| / 2, and the
noise times that to the sum of the rows' posterior variances, noise times degrees of freedom. Means have larger errors,
because weights multiply them. So the rounding ratio of features is 4 (n s^2 d^2 / noise)^1/2, with the same limit,
above which these features are computed in float64.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from rfgp.blocks import Weights
from rfgp.blocks.weights import residual_totals
from rfgp.rows import Block, DistributedRows, Rows, parts_of
from rfgp.rows.blocks import Sums, added, sums_over_parts

ENTRIES = 2**22
"""The number of entries of a block of features."""
MIN_ROWS = 256
"""The minimum number of rows of a block."""
MAX_ROWS = 8192
"""The maximum number of rows of a block."""
_FLOAT32_ERROR = 6e-8
"""The relative rounding error of float32."""
_AMPLIFICATION = 4.0
"""The factor of the error of features in their rounding ratio."""


def block_rows(num_features: int) -> int:
    """Return the number of rows of a block of features.

    Args:
        num_features: The number of features.

    Examples:
        >>> block_rows(1024)
        4096
    """
    return max(MIN_ROWS, min(MAX_ROWS, ENTRIES // max(num_features, 1)))


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A Bayesian linear model on the features of several terms.

    y = mean + [s_1 phi_1(x), s_2 phi_2(x), ...] w + e with w ~ N(0, I). The variance of e is `noise` plus that of the
    row.

    Features phi exclude the prior scales s_t. Statistics of one pass over the rows therefore hold for any scales.

    Attributes:
        weights: The features of all terms, their parameters and prior variances.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
        max_float32_error: The maximum of both rounding ratios for which features and their products may be float32.
            The default is 0.3.
        all_rows_homoscedastic: If `rows` are a part of all rows, whether none of all rows has a weight or its own
            noise. If None, `rows` are all.
    """

    weights: Weights
    rows: Rows
    mean: Tensor
    noise: Tensor
    max_float32_error: float = 0.3
    all_rows_homoscedastic: bool | None = None

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return self.weights.num_features

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors (...) that the features depend on."""
        return self.weights.parameters

    @cached_property
    def variances(self) -> Tensor:
        """The prior variances s_t^2 of the terms, (T,), float64."""
        return self.weights.variances

    @cached_property
    def variance(self) -> Tensor:
        """The prior variance of all terms together, 0-d, float64."""
        return self.variances.sum()

    @cached_property
    def scale(self) -> Tensor:
        """The prior standard deviations of the weights, (F,), float64."""
        return self.weights.scale

    @cached_property
    def output_weights(self) -> Tensor:
        """The weights of the log likelihoods of the outputs, (k,).

        Only rows in memory have other weights than 1.
        """
        return self.rows.output_weights if isinstance(self.rows, Block) else torch.ones_like(self.mean)

    @property
    def is_homoscedastic(self) -> bool:
        """Whether none of all rows has a weight or its own noise."""
        if self.weights.adds_noise:
            return False
        return self.rows.is_homoscedastic if self.all_rows_homoscedastic is None else self.all_rows_homoscedastic

    def with_fitc_noise(self, block: Block, phi: Tensor) -> Block:
        """Return a block whose rows have the residual variance of FITC terms as noise.

        Args:
            block: The block of b rows.
            phi: Their features without scales, (b, F).
        """
        if not self.weights.adds_noise:
            return block
        noise = self.fitc_variances @ self.weights.unscaled_residual_variances(phi, block.inputs)
        return block.with_more_noise(noise)

    @cached_property
    def fitc_variances(self) -> Tensor:
        """The prior variances of terms with a FITC residual, and 0 for others, (T,)."""
        flags = [block.residual is not None and block.residual.is_noise for block in self.weights.blocks]
        return self.variances * self.variances.new_tensor(flags)

    @cached_property
    def vfe_variances(self) -> Tensor:
        """The prior variances of terms with a VFE residual, and 0 for others, (T,)."""
        flags = [block.residual is not None and not block.residual.is_noise for block in self.weights.blocks]
        return self.variances * self.variances.new_tensor(flags)

    @cached_property
    def needs_float64(self) -> bool:
        """Whether features of float32 inputs and their products are computed in float64."""
        n, size, noise = len(self.rows), block_rows(self.num_features), float(self.noise.detach())
        if (
            math.sqrt(n * min(n, size)) * _FLOAT32_ERROR * float(self.variance.detach()) / noise
            > self.max_float32_error
        ):
            return True
        return _AMPLIFICATION * math.sqrt(n * self.weights.rounding_variance / noise) > self.max_float32_error

    def phi(self, block: Block, *parameters: Tensor) -> Tensor:
        """Return the features of a block without scales, (b, F).

        Args:
            block: The rows.
            parameters: The parameters of the features. If none are given, those of the model.
        """
        in_float64 = block.inputs.dtype != torch.float64 and self.needs_float64
        out: Tensor = self.weights.features(block.inputs, *parameters, in_float64=in_float64)
        return out.double() if in_float64 else out

    def fitted(self, phi: Tensor, weights: Tensor) -> Tensor:
        """Return Phi w, (b, k), float64.

        The weights are stored column by column, for which BLAS is several times faster with few columns.

        Args:
            phi: The features without scales, (b, F).
            weights: The weights w, (F, k).
        """
        return (phi @ (self.scale * weights.mT).to(phi).contiguous().mT).double()

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks."""
        yield from self.rows.blocks(block_rows(self.num_features))

    def detached(self) -> "LinearModel":
        """Return the model without gradients."""
        return replace(self, weights=self.weights.detached(), mean=self.mean.detach(), noise=self.noise.detach())


def is_local(rows: Rows) -> bool:
    """Return whether all rows are on this machine.

    Args:
        rows: The rows.
    """
    return not any(isinstance(part, DistributedRows) for part in parts_of(rows))


def summed(
    model: LinearModel,
    function: Callable[[LinearModel], Sums],
    combine: Callable[[Sums, Sums], Sums] = added,
) -> Sums:
    """Return the sums of a function over the model's rows.

    Rows on other machines are summed there.

    Args:
        model: The model with all rows.
        function: Maps the model of some rows to sums over these. It is pickled if rows are on other machines.
        combine: A function of the sums over two neighboring parts. The default adds them.
    """
    if is_local(model.rows):
        return function(model)
    no_rows, is_homoscedastic = Block(model.mean[:0].clone(), model.mean[:0].clone()), model.is_homoscedastic
    max_error = -1.0 if model.needs_float64 else math.inf  # a part has fewer rows, but rounds like the whole
    common = replace(
        model.detached(), rows=no_rows, max_float32_error=max_error, all_rows_homoscedastic=is_homoscedastic
    )
    return sums_over_parts(model.rows, partial(_of_part, common, function), combine)


def _of_part(model: LinearModel, function: Callable[[LinearModel], Sums], rows: Rows) -> Sums:
    with torch.no_grad():
        return function(replace(model, rows=rows))


class ParameterGradients:
    """Sums over blocks of rows of a gradient in the parameters of features.

    Args:
        model: The rows and their features.
        needs: Whether each parameter needs a gradient.

    Attributes:
        sums: The accumulated gradients in all parameters, float64, in their shapes, 0 if not needed.
    """

    def __init__(self, model: LinearModel, needs: Sequence[bool]) -> None:
        self._model, self._needs = model, tuple(needs)
        self.sums = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in model.parameters]

    @property
    def is_needed(self) -> bool:
        """Whether any parameter needs a gradient."""
        return any(self._needs)

    def features(self, block: Block) -> Tensor:
        """Return the features of the next block without scales, (b, F).

        Args:
            block: The rows.
        """
        with torch.set_grad_enabled(self.is_needed):
            pairs = zip(self._model.parameters, self._needs, strict=True)
            self._leaves = tuple(parameter.detach().requires_grad_(need) for parameter, need in pairs)
            self._phi = self._model.phi(block, *self._leaves)
            self._totals = residual_totals(self._model.weights, block.inputs, *self._leaves)
        return self._phi.detach()

    def add(self, grad_features: Tensor, grad_residual: Tensor | None = None) -> None:
        """Add the gradient for derivatives in the last block.

        Args:
            grad_features: The derivatives in the features, (b, F).
            grad_residual: The derivatives in the variances of the kernels of residuals, (T, b). If None, they are 0.
        """
        outputs, gradients = [self._phi], [grad_features.to(self._phi)]
        if grad_residual is not None and self._totals is not None and self._totals.requires_grad:
            outputs, gradients = [self._phi, self._totals], [*gradients, grad_residual]
        leaves = [leaf for leaf in self._leaves if leaf.requires_grad]
        in_leaves = iter(torch.autograd.grad(outputs, leaves, gradients, allow_unused=True))
        for total, need in zip(self.sums, self._needs, strict=True):
            if need and (gradient := next(in_leaves)) is not None:
                total += gradient
