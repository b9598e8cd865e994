"""Bayesian linear regression on features, in blocks of rows: memory O(block x F + F^2), however many rows.

In the notation of `rfgp.inference.posterior`, with Phi = s phi and s^2 the prior variance of the weights. A first pass
over the rows gathers phi^T D^-1 phi and phi^T D^-1 y, which is all that prediction needs. A second one computes the
residuals r = y - Phi w, and with them the log density and, where asked for, its gradient: since w minimises the
quadratic form and d log|A| = tr(A^-1 dA),

    d/dphi = s D^-1 (r w^T - Phi A^-1),     d/dmean = sum_i r_i / D_i,     d/ds^2 = (w^T w - F + tr A^-1) / (2 s^2),
    d/dD_i = (r_i^2 / D_i^2 + Phi_i A^-1 Phi_i^T / D_i^2 - 1 / D_i) / 2,

the first of which is pulled back through the features of one block at a time. Features are computed twice and never
kept; products of features are of their dtype within a block, sums over blocks and everything F x F are float64.

Products of float32 features lose what the noise is to tell apart: with phi^T phi of n rows off by about
sqrt(n b) 6e-8, b rows to a block, the density of a row was off by less than 3e-4 where e = sqrt(n b) 6e-8 s^2 / noise
was below .3, by 2e-3 at .7, and matrices were indefinite from 6 on (`benchmarks/rounding.py`).
From `most_rounding` of e on, blocks of features are cast to float64 first.

k outputs share A: y, r and w have k columns, the quadratic forms add up, and what comes of log|A| counts k times. A row
of weight w_i (see `rfgp.inference.rows`) has D_i = (noise + known_i) / w_i, and with the factor that its observations
leave beside their mean its -1/2 log(2 pi D_i) becomes -w_i/2 log(2 pi (noise + known_i)).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.laws import WeightPredictor
from rfgp.inference.posterior import Posterior
from rfgp.inference.rows import Block, Rows
from rfgp.linalg import cholesky

_LOG_2PI = math.log(2 * math.pi)
_ENTRIES = 2**22
"""Of a block of features."""
_LEAST_ROWS, _MOST_ROWS = 256, 8192
_ROUNDING = 6e-8
"""Of float32."""
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


def block_rows(num_features: int) -> int:
    """Return the number of rows whose features make one block."""
    return max(_LEAST_ROWS, min(_MOST_ROWS, _ENTRIES // max(num_features, 1)))


@dataclass(frozen=True, eq=False)
class LinearModel:
    """y = mean + s phi(x) w + e, with w ~ N(0, I) and e of variance `noise` beside what the rows know of theirs.

    Attributes:
        features: (inputs, *parameters) -> phi (b, F).
        rows: The data.
        mean: (k,), float64.
        noise: 0-d, float64.
        variance: s^2, 0-d, float64.
        num_features: F.
        parameters: Tensors that the features depend on.
        most_rounding: Of e above; beyond it products of features are float64.
    """

    features: Callable[..., Tensor]
    rows: Rows
    mean: Tensor
    noise: Tensor
    variance: Tensor
    num_features: int
    parameters: tuple[Tensor, ...] = ()
    most_rounding: float = 0.3

    @cached_property
    def is_precise(self) -> bool:
        """Whether products of features have to be float64."""
        n, size = len(self.rows), block_rows(self.num_features)
        rounding = math.sqrt(n * min(n, size)) * _ROUNDING * float(self.variance.detach() / self.noise.detach())
        return rounding > self.most_rounding

    def phi(self, block: Block, *parameters: Tensor) -> Tensor:
        """Return the features of a block, (b, F), at other parameters if these are given."""
        out: Tensor = self.features(block.inputs, *(parameters or self.parameters))
        return out.double() if self.is_precise else out

    def blocks(self) -> Iterator[Block]:
        """Yield block after block of rows."""
        yield from self.rows.blocks(block_rows(self.num_features))

    def detached(self) -> "LinearModel":
        """Return the model without gradients."""
        parameters = tuple(p.detach() for p in self.parameters)
        mean, noise, variance = (t.detach() for t in (self.mean, self.noise, self.variance))
        return replace(self, mean=mean, noise=noise, variance=variance, parameters=parameters)


class Statistics(NamedTuple):
    """What the rows say of the weights; P = noise / D is 1 where a row counts once and knows no noise of its own."""

    gram: Tensor  # (F, F) phi^T P phi
    target: Tensor  # (F, k) phi^T P (y - mean)
    square: Tensor  # 0-d, tr (y - mean)^T P (y - mean)


class Solved(NamedTuple):
    """The posterior of the weights w ~ N(0, I) given the data."""

    factor: Tensor  # (F, F) the lower Cholesky factor of A
    weights: Tensor  # (F, k)


def gather(model: LinearModel) -> Statistics:
    """Return the statistics of all rows, in one pass."""
    count, like = model.num_features, model.mean
    gram, target = like.new_zeros(count, count), like.new_zeros(count, len(like))
    square = like.new_zeros(())
    for block in model.blocks():
        phi, y = model.phi(block), block.targets - model.mean
        spread = block.spread(model.noise)
        if spread.ndim:
            root = (model.noise / spread).sqrt()[:, None]
            phi, y = phi * root.to(phi), y * root
        add_symmetric_product(gram, phi)
        target += (phi.mT @ y.to(phi)).double()
        square += y.square().sum()
    return Statistics(symmetrized(gram), target, square)


def solve(statistics: Statistics, variance: Tensor, noise: Tensor) -> Solved:
    """Return the posterior of the weights for s^2 and the noise, 0-d each."""
    matrix = (variance / noise) * statistics.gram
    matrix.diagonal().add_(1)
    factor = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    return Solved(factor, torch.cholesky_solve((variance.sqrt() / noise) * statistics.target, factor))


ABSORBING = {"weights", "factor"}
"""Names of the tensors of a predictor that `absorb` can add rows to."""


def absorb(
    model: LinearModel,
    weights: Tensor,  # (F, k)
    factor: Tensor,  # (F, F)
) -> WeightPredictor:
    """Return the predictor for the rows of `weights` and `factor` and those of `model`, reading only the latter.

    A grows by s^2 phi^T D^-1 phi and A w by s phi^T D^-1 (y - mean).

    Args:
        model: The new rows; mean, noise, variance and parameters are those of the old ones.
        weights: (F, k), the posterior mean given the old rows.
        factor: (F, F), the Cholesky factor of their A.
    """
    new, scale = gather(model), model.variance.sqrt()
    matrix = factor @ factor.mT + (model.variance / model.noise) * new.gram
    target = factor @ (factor.mT @ weights) + (scale / model.noise) * new.target
    grown = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    return WeightPredictor(_scaled_features(model), torch.cholesky_solve(target, grown), grown)


def _scaled_features(model: LinearModel) -> Callable[[Tensor], Tensor]:
    def features(x: Tensor) -> Tensor:
        phi: Tensor = model.variance.sqrt() * model.features(x, *model.parameters)
        return phi

    return features


class PrimalPosterior(Posterior):
    """Bayesian linear regression on features.

    Args:
        model: The data and what they are a function of; the likelihood is differentiable in its mean, noise, variance
            and parameters.
        solved: The posterior of the weights, where it is known; None: one pass over the rows.
    """

    def __init__(self, model: LinearModel, solved: Solved | None = None) -> None:
        self.model, self._known = model, model.detached()
        if solved is None:
            with torch.no_grad():
                solved = solve(gather(self._known), self._known.variance, self._known.noise)
        self._solved = solved

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        model = self.model
        evaluate: Callable[..., Tensor] = _LogDensity.apply
        return evaluate(self._known, self._solved, model.mean, model.noise, model.variance, *model.parameters)

    @property
    def weights_used(self) -> float:
        """The share of the weights that the data determine, (F - tr A^-1) / F."""
        count = len(self._solved.factor)
        return 1 - float(torch.cholesky_inverse(self._solved.factor).diagonal().sum()) / count

    def leave_one_out(self, some: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each y_i given all the other rows; of `some` of them, if given.

        With C^-1 = D^-1 - D^-1 Phi A^-1 Phi^T D^-1: (C^-1)_ii = (1 - h_i) / D_i, h_i = Phi_i A^-1 Phi_i^T / D_i.
        """
        means, variances, model = [], [], self._known
        with torch.no_grad():
            for block in (model.rows if some is None else some).blocks(block_rows(model.num_features)):
                phi, spread = model.variance.sqrt() * model.phi(block).double(), block.spread(model.noise)
                root = torch.linalg.solve_triangular(self._solved.factor, phi.mT, upper=False)
                kept = 1 - root.square().sum(0) / spread
                residual = block.targets - model.mean - phi @ self._solved.weights
                means.append(block.targets - residual / kept[:, None])
                variances.append(spread / kept)
        return torch.cat(means), torch.cat(variances)

    def predictor(self) -> WeightPredictor:
        """Return the weights and the factor of their precision; with gradients where these are enabled."""
        model = self.model
        solved = self._solved
        if torch.is_grad_enabled():
            statistics = _differentiable_statistics(model)
            solved = solve(statistics, model.variance, model.noise)
        return WeightPredictor(_scaled_features(model), solved.weights, solved.factor)


def _differentiable_statistics(model: LinearModel) -> Statistics:
    """Return the statistics of one block of all rows, for autograd."""
    block = next(iter(model.rows.blocks(len(model.rows))))
    root = (model.noise / block.spread(model.noise)).sqrt().expand(len(block.targets))[:, None]
    phi, y = model.phi(block).double() * root, (block.targets - model.mean) * root
    return Statistics(phi.mT @ phi, phi.mT @ y, y.square().sum())


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
        second = _SecondPass(model, solved, _Wanted(needs[0], needs[1], needs[2], tuple(needs[3:])))
        for block in model.blocks():
            second.add(block)
        ctx.save_for_backward(*second.gradients())
        return second.value()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = (grads[0] * gradient if gradient is not None else None for gradient in ctx.saved_tensors)
        return (None, None, *saved)


class _SecondPass:
    """Sums over the rows of what the log density and its gradient are made of."""

    def __init__(self, model: LinearModel, solved: Solved, wanted: _Wanted) -> None:
        zero = model.noise.new_zeros(())
        self._model, self._solved, self._wanted = model, solved, wanted
        self._scale = model.variance.sqrt()
        self._square, self._logs = zero.clone(), zero.clone()
        self._in_mean, self._in_noise = torch.zeros_like(model.mean), zero.clone()
        self._in_parameters = [
            torch.zeros_like(p, dtype=torch.float64) if w else None
            for p, w in zip(model.parameters, wanted.parameters, strict=True)
        ]
        needed = wanted.noise or wanted.variance or wanted.through_features
        self._inverse = torch.cholesky_inverse(solved.factor) if needed else None
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
        if through or (self._wanted.noise and not model.rows.is_uniform):
            self._add_gradients(block, phi, leaves, residual)

    def _add_gradients(self, block: Block, phi: Tensor, leaves: tuple[Tensor, ...], residual: Tensor) -> None:
        """Add to the gradient in the features' parameters, and in the noise where it is not that of all rows."""
        k, spread = residual.shape[1], block.spread(self._model.noise)
        if self._spread is None:
            assert self._inverse is not None
            self._spread = (self._scale.square() * self._inverse).to(phi)
        pushed = phi.detach() @ self._spread
        if not self._model.rows.is_uniform:
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
        if not self._model.rows.is_uniform:
            return self._in_noise
        k, n = self._model.rows.num_outputs, len(self._model.rows)
        used = len(self._inverse) - self._inverse.diagonal().sum()
        return 0.5 / self._model.noise * (self._square + k * (used - n))
