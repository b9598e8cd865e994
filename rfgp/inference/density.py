"""The second pass over the rows of a linear model: the log density and, along with it, its gradient.

The derivation stands in `rfgp.inference.primal`.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.linear import LinearModel, Solved, summed
from rfgp.inference.rows import Block, Sums

_LOG_2PI = math.log(2 * math.pi)


def log_density(model: LinearModel, known: LinearModel, solved: Solved) -> Tensor:
    """Return log N(y; mean, s^2 phi phi^T + D), 0-d, differentiable in mean, noise, variance and parameters.

    Args:
        model: With gradients where they are wanted.
        known: The same without.
        solved: The posterior of its weights.
    """
    out: Tensor = _LogDensity.apply(known, solved, model.mean, model.noise, model.variance, *model.parameters)
    return out


class _Wanted(NamedTuple):
    """Which gradients are asked for."""

    mean: bool
    noise: bool
    variance: bool
    parameters: tuple[bool, ...]

    @property
    def through_features(self) -> bool:
        """Whether any is that of a parameter of the features."""
        return any(self.parameters)

    @property
    def inverse(self) -> bool:
        """Whether A^-1 is needed."""
        return self.noise or self.variance or self.through_features


def _second_sums(solved: Solved, wanted: _Wanted, inverse: Tensor | None, model: LinearModel) -> Sums:
    second = _SecondPass(model, solved, wanted, inverse)
    for block in model.blocks():
        second.add(block)
    return second.sums()


class _LogDensity(torch.autograd.Function):
    """log N(y; mean, s^2 phi phi^T + D), its gradient computed along with it."""

    @staticmethod
    def forward(
        ctx: Any,
        model: LinearModel,
        solved: Solved,
        mean: Tensor,
        noise: Tensor,
        variance: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        _, _, *needs = ctx.needs_input_grad
        wanted = _Wanted(needs[0], needs[1], needs[2], tuple(needs[3:]))
        inverse = torch.cholesky_inverse(solved.factor) if wanted.inverse else None
        second = _SecondPass(model, solved, wanted, inverse)
        for_sums = inverse if wanted.through_features or (wanted.noise and not model.is_uniform) else None
        few = solved._replace(factor=solved.factor.new_empty(0, 0))  # sums may be taken far away, and need no more
        second.take(summed(model, partial(_second_sums, few, wanted, for_sums)))
        ctx.save_for_backward(*second.gradients())
        return second.value()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = (grads[0] * gradient if gradient is not None else None for gradient in ctx.saved_tensors)
        return (None, None, *saved)


class _SecondPass:
    """Sums over the rows of what the log density and its gradient are made of."""

    def __init__(self, model: LinearModel, solved: Solved, wanted: _Wanted, inverse: Tensor | None) -> None:
        zero = model.noise.new_zeros(())
        self._model, self._solved, self._wanted = model, solved, wanted
        self._scale = model.variance.sqrt()
        self._square, self._logs = zero.clone(), zero.clone()
        self._in_mean, self._in_noise = torch.zeros_like(model.mean), zero.clone()
        self._in_parameters = [
            torch.zeros_like(p, dtype=torch.float64) if w else None
            for p, w in zip(model.parameters, wanted.parameters, strict=True)
        ]
        self._inverse = inverse
        self._spread: Tensor | None = None  # s^2 A^-1 and s w, in the dtype of the features
        self._weights: Tensor | None = None

    def add(self, block: Block) -> None:
        """Add a block of rows."""
        model = self._model
        through = self._wanted.through_features
        with torch.set_grad_enabled(through):
            pairs = zip(model.parameters, self._wanted.parameters, strict=True)
            leaves = tuple(p.detach().requires_grad_(w) for p, w in pairs)
            phi = model.phi(block, *leaves)
        known = phi.detach()
        if self._weights is None:
            self._weights = (self._scale * self._solved.weights).to(phi)
        residual = block.targets - model.mean - (known @ self._weights).double()
        noise, spread = block.noise(model.noise), block.spread(model.noise)
        precision = 1 / spread
        self._square += (residual.square().sum(1) * precision).sum()
        self._logs += (block.counts() * (_LOG_2PI + noise.log())).sum()
        self._in_mean += (residual * precision.reshape(-1, 1)).sum(0)
        if through or (self._wanted.noise and not model.is_uniform):
            self._add_gradients(block, phi, leaves, residual)

    def _add_gradients(self, block: Block, phi: Tensor, leaves: tuple[Tensor, ...], residual: Tensor) -> None:
        """Add to the gradient in the features' parameters, and in the noise where it is not that of all rows."""
        k, spread = residual.shape[1], block.spread(self._model.noise)
        if self._spread is None:
            assert self._inverse is not None
            self._spread = (self._scale.square() * self._inverse).to(phi)
        pushed = phi.detach() @ self._spread
        if not self._model.is_uniform:
            leverage = (pushed * phi.detach()).sum(1).double()
            slope = (residual.square().sum(1) + k * leverage) / spread - k * block.counts()
            self._in_noise += 0.5 * (slope / block.noise(self._model.noise)).sum()
        if not self._wanted.through_features:
            return
        assert self._weights is not None
        upstream = torch.addmm(pushed, residual.to(phi), self._weights.mT, beta=-k)
        upstream *= (1 / spread).to(phi).reshape(-1, 1)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad(phi, wanted, upstream))
        for total, leaf in zip(self._in_parameters, leaves, strict=True):
            if total is not None and leaf.requires_grad:
                total += next(found)

    def sums(self) -> Sums:
        """Return what has been added up."""
        in_parameters = (total for total in self._in_parameters if total is not None)
        return (self._square, self._logs, self._in_mean, self._in_noise, *in_parameters)

    def take(self, sums: Sums) -> None:
        """Put sums in the place of one's own."""
        self._square, self._logs, self._in_mean, self._in_noise, *others = sums
        left = iter(others)
        self._in_parameters = [None if total is None else next(left) for total in self._in_parameters]

    def value(self) -> Tensor:
        """Return the log density, 0-d."""
        solved, k = self._solved, self._model.rows.num_outputs
        determinant = 2 * solved.factor.diagonal().log().sum()
        return -0.5 * (self._square + solved.weights.square().sum() + k * (determinant + self._logs))

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Return the gradients in mean, noise, variance and the parameters, None where not asked for."""
        model, wanted = self._model, self._wanted
        in_parameters = [
            None if total is None else total.to(p)
            for p, total in zip(model.parameters, self._in_parameters, strict=True)
        ]
        return (
            self._in_mean if wanted.mean else None,
            self._total_in_noise() if wanted.noise else None,
            self._total_in_variance() if wanted.variance else None,
            *in_parameters,
        )

    def _total_in_variance(self) -> Tensor:
        assert self._inverse is not None
        k, count = self._model.rows.num_outputs, len(self._inverse)
        trace = self._inverse.diagonal().sum()
        return 0.5 / self._model.variance * (self._solved.weights.square().sum() + k * (trace - count))

    def _total_in_noise(self) -> Tensor:
        """Return the gradient in the noise; with D = noise everywhere, sum_i Phi_i A^-1 Phi_i^T / D = F - tr A^-1."""
        assert self._inverse is not None
        if not self._model.is_uniform:
            return self._in_noise
        k, n = self._model.rows.num_outputs, len(self._model.rows)
        used = len(self._inverse) - self._inverse.diagonal().sum()
        return 0.5 / self._model.noise * (self._square + k * (used - n))
