"""Bayesian linear regression on features, in blocks of rows: memory O(block x F + F^2), however many rows.

In the notation of `rfgp.inference.posterior`, with Phi = s phi and s^2 the prior variance of the weights. A first pass
over the rows gathers phi^T D^-1 phi and phi^T D^-1 y, which is all that prediction needs. A second one computes the
residuals r = y - Phi w, and with them the log density and, where asked for, its gradient: since w minimises the
quadratic form and d log|A| = tr(A^-1 dA),

    d/dphi = s D^-1 (r w^T - Phi A^-1),     d/dy = -D^-1 r,     d/ds^2 = (w^T w - F + tr A^-1) / (2 s^2),
    d/dD_i = (r_i^2 / D_i^2 + Phi_i A^-1 Phi_i^T / D_i^2 - 1 / D_i) / 2,

the first of which is pulled back through the features of one block at a time. Features are computed twice and never
kept; products of features are of their dtype within a block, sums over blocks and everything F x F are float64.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.laws import WeightPredictor
from rfgp.inference.posterior import Posterior
from rfgp.linalg import cholesky

_LOG_2PI = math.log(2 * math.pi)
_ENTRIES = 2**22
"""Of a block of features."""
_LEAST_ROWS, _MOST_ROWS = 256, 8192
_TILE = 256
"""Columns of a tile of a symmetric product."""


def add_symmetric_product(
    total: Tensor,  # (F, F)
    phi: Tensor,  # (b, F)
) -> None:
    """Add phi^T phi to the upper triangle of `total`, in tiles: half the work of a product, on any device.

    What stands below the tiles of the diagonal is left alone; `symmetrized` fills it.
    """
    for first in range(0, phi.shape[1], _TILE):
        last = first + _TILE
        total[first:last, first:] += phi[:, first:last].mT @ phi[:, first:]


def symmetrized(
    total: Tensor,  # (F, F)
) -> Tensor:  # (F, F)
    """Return the symmetric matrix whose upper triangle is given."""
    upper = total.triu()
    return upper + upper.triu(1).mT


@dataclass(frozen=True, eq=False)
class Rows:
    """The data of a regression: n rows of inputs, their targets and noise.

    Attributes:
        features: (rows, *parameters) -> (rows, F).
        parameters: Tensors that the features depend on, and through which the likelihood is differentiable.
        inputs: (n, d).
        y: (n,), float64.
        noise: Variance, () or (n,), float64.
    """

    features: Callable[..., Tensor]
    parameters: tuple[Tensor, ...]
    inputs: Tensor
    y: Tensor
    noise: Tensor

    @cached_property
    def num_features(self) -> int:
        """F."""
        with torch.no_grad():
            return int(self.features(self.inputs[:1], *self.parameters).shape[1])

    def blocks(self) -> Iterator[slice]:
        """Yield block after block of rows."""
        size = max(_LEAST_ROWS, min(_MOST_ROWS, _ENTRIES // max(self.num_features, 1)))
        for first in range(0, len(self.y), size):
            yield slice(first, first + size)


class _Solved(NamedTuple):
    """The posterior of the weights w ~ N(0, I) given the data."""

    factor: Tensor  # (F, F) the lower Cholesky factor of A
    weights: Tensor  # (F,)


class PrimalPosterior(Posterior):
    """Bayesian linear regression on features.

    Args:
        features: Maps inputs (and `parameters`) to phi (n, F).
        inputs: The training inputs.
        y: Targets (n,) with the mean taken off.
        noise: Variance, () or (n,).
        parameters: Tensors that `features` takes after the inputs; the likelihood is differentiable in these, in
            `inputs`, `y`, `noise` and `variance`.
        variance: Prior variance s^2 of the weights, 0-d; None: 1.
    """

    def __init__(
        self,
        features: Callable[..., Tensor],
        inputs: Tensor,
        y: Tensor,
        noise: Tensor,
        parameters: tuple[Tensor, ...] = (),
        variance: Tensor | None = None,
    ) -> None:
        y, noise = y.double(), noise.double()
        self._variance = (torch.ones_like(y.new_empty(())) if variance is None else variance).double()
        self._rows = Rows(features, parameters, inputs, y, noise)
        with torch.no_grad():
            self._solved = _solve(*_gather(self._rows), self._variance)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        rows = self._rows
        evaluate: Callable[..., Tensor] = _LogDensity.apply
        return evaluate(rows, self._solved, rows.inputs, rows.y, rows.noise, self._variance, *rows.parameters)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n,) and variance (n,) of each y_i given all the others.

        With C^-1 = D^-1 - D^-1 Phi A^-1 Phi^T D^-1: (C^-1)_ii = (1 - h_i) / D_i, h_i = Phi_i A^-1 Phi_i^T / D_i.
        """
        rows, noise = self._rows, self._rows.noise.expand(len(self._rows.y))
        mean, variance = torch.empty_like(rows.y), torch.empty_like(rows.y)
        with torch.no_grad():
            for block in rows.blocks():
                phi = self._variance.sqrt() * rows.features(rows.inputs[block], *rows.parameters).double()
                spread = torch.linalg.solve_triangular(self._solved.factor, phi.mT, upper=False)
                kept = 1 - spread.square().sum(0) / noise[block]
                mean[block] = rows.y[block] - (rows.y[block] - phi @ self._solved.weights) / kept
                variance[block] = noise[block] / kept
        return mean, variance

    def predictor(self) -> WeightPredictor:
        """Return the weights and the factor of their precision; with gradients where these are enabled."""
        rows = self._rows
        solved = self._differentiable() if torch.is_grad_enabled() else self._solved

        def features(x: Tensor) -> Tensor:
            return self._variance.sqrt() * rows.features(x, *rows.parameters)

        return WeightPredictor(features, solved.weights, solved.factor)

    def _differentiable(self) -> _Solved:
        rows = self._rows
        weighted = (
            rows.features(rows.inputs, *rows.parameters).double() / rows.noise.expand(len(rows.y)).sqrt()[:, None]
        )
        gram = weighted.mT @ weighted
        return _solve(gram, weighted.mT @ (rows.y / rows.noise.expand(len(rows.y)).sqrt()), self._variance)


def _gather(rows: Rows) -> tuple[Tensor, Tensor]:
    """Return phi^T D^-1 phi (F, F) and phi^T D^-1 y (F,)."""
    count = rows.num_features
    gram, target = rows.y.new_zeros(count, count), rows.y.new_zeros(count)
    for block in rows.blocks():
        phi, y = rows.features(rows.inputs[block], *rows.parameters), rows.y[block]
        if rows.noise.ndim:
            root = rows.noise[block].rsqrt()
            phi, y = phi * root.to(phi)[:, None], y * root
        add_symmetric_product(gram, phi)
        target += (y.to(phi) @ phi).double()
    scale = 1.0 if rows.noise.ndim else 1 / rows.noise
    return symmetrized(gram) * scale, target * scale


def _solve(gram: Tensor, target: Tensor, variance: Tensor) -> _Solved:
    matrix = variance * gram
    matrix = matrix + torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    factor = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    return _Solved(factor, torch.cholesky_solve((variance.sqrt() * target)[:, None], factor)[:, 0])


class _Wanted(NamedTuple):
    """Which gradients are asked for."""

    inputs: bool
    y: bool
    noise: bool
    variance: bool
    parameters: tuple[bool, ...]


class _LogDensity(torch.autograd.Function):
    """log N(y; 0, s^2 phi phi^T + D), its gradient computed along with it."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Rows,
        solved: _Solved,
        inputs: Tensor,
        y: Tensor,
        noise: Tensor,
        variance: Tensor,
        *parameters: Tensor,
    ) -> Tensor:
        _, _, *needs = ctx.needs_input_grad
        wanted = _Wanted(needs[0], needs[1], needs[2], needs[3], tuple(needs[4:]))
        value, gradients = _second_pass(rows, solved, variance, wanted)
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = (grads[0] * gradient if gradient is not None else None for gradient in ctx.saved_tensors)
        return (None, None, *saved)


def _second_pass(
    rows: Rows, solved: _Solved, variance: Tensor, wanted: _Wanted
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """Return the log density, and its gradients in inputs, y, noise, variance and the parameters."""
    n, count, scale = len(rows.y), rows.num_features, variance.sqrt()
    through = wanted.inputs or any(wanted.parameters)
    inverse = torch.cholesky_inverse(solved.factor) if through or wanted.noise or wanted.variance else None
    pull = _Pull(rows, solved, inverse, scale, wanted) if through or (wanted.noise and rows.noise.ndim) else None
    residual = torch.empty_like(rows.y)
    for block in rows.blocks():
        with torch.set_grad_enabled(through):
            x, parameters = rows.inputs[block], rows.parameters
            if pull is not None:
                x, parameters = pull.leaves(x)
            phi = rows.features(x, *parameters)
        fitted = phi.detach() @ (scale * solved.weights).to(phi)
        residual[block] = rows.y[block] - fitted.double()
        if pull is not None:
            pull.add(block, x, parameters, phi, residual[block])
    noise = rows.noise.expand(n)
    square = (residual.square() / noise).sum()
    log_determinant = 2 * solved.factor.diagonal().log().sum() + noise.log().sum()
    value = -0.5 * (square + solved.weights.square().sum() + log_determinant + n * _LOG_2PI)
    in_noise = in_variance = None
    if inverse is not None:
        trace, squared = inverse.diagonal().sum(), solved.weights.square().sum()
        in_variance = 0.5 / variance * (squared - count + trace)
        in_noise = 0.5 / rows.noise * (square + count - trace - n)
        if rows.noise.ndim and pull is not None and pull.leverage is not None:
            in_noise = 0.5 / noise * (residual.square() / noise + pull.leverage / noise - 1)
    in_inputs, in_parameters = (None, (None,) * len(rows.parameters)) if pull is None else pull.gradients()
    in_y = -residual / noise if wanted.y else None
    return value, (in_inputs, in_y, in_noise if wanted.noise else None, in_variance, *in_parameters)


class _Pull:
    """Pulls d/dphi of one block after the other back to inputs and parameters."""

    def __init__(self, rows: Rows, solved: _Solved, inverse: Tensor | None, scale: Tensor, wanted: _Wanted) -> None:
        assert inverse is not None
        self._rows, self._scale, self._wanted = rows, scale, wanted
        self._weights, self._inverse = solved.weights, scale.square() * inverse  # s^2 A^-1
        self._through = wanted.inputs or any(wanted.parameters)
        self._inputs = torch.zeros_like(rows.inputs) if wanted.inputs else None
        self._parameters = [
            torch.zeros_like(p, dtype=torch.float64) if w else None
            for p, w in zip(rows.parameters, wanted.parameters, strict=True)
        ]
        self.leverage = torch.empty_like(rows.y) if wanted.noise and rows.noise.ndim else None

    def leaves(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return inputs (b, d) and the parameters as leaves of a graph of their own."""
        x = x.detach().requires_grad_(self._wanted.inputs)
        pairs = zip(self._rows.parameters, self._wanted.parameters, strict=True)
        return x, tuple(p.detach().requires_grad_(w) for p, w in pairs)

    def add(self, block: slice, x: Tensor, parameters: tuple[Tensor, ...], phi: Tensor, residual: Tensor) -> None:
        """Add the part of a block: inputs (b, d), features (b, F), residuals (b,)."""
        noise = self._rows.noise.expand(len(self._rows.y))[block]
        self._inverse = self._inverse.to(phi)  # once: features of all blocks have one dtype
        spread = phi.detach() @ self._inverse
        if self.leverage is not None:
            self.leverage[block] = (spread * phi.detach()).sum(1).double()
        if not self._through:
            return
        upstream = spread.neg_().addr_((self._scale * residual).to(phi), self._weights.to(phi))
        upstream.div_(noise.to(phi)[:, None])
        leaves = [leaf for leaf in (x, *parameters) if leaf.requires_grad]
        found = dict(zip(map(id, leaves), torch.autograd.grad(phi, leaves, upstream), strict=True))
        if self._inputs is not None:
            self._inputs[block] = found[id(x)]
        for total, leaf in zip(self._parameters, parameters, strict=True):
            if total is not None:
                total += found[id(leaf)]

    def gradients(self) -> tuple[Tensor | None, tuple[Tensor | None, ...]]:
        """Return the gradients in the inputs (n, d) and in the parameters."""
        pairs = zip(self._rows.parameters, self._parameters, strict=True)
        return self._inputs, tuple(None if total is None else total.to(p) for p, total in pairs)
