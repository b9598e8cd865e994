"""Laplace's approximation through features, in blocks of rows: memory O(block x F + F^2), however many rows.

f = mean + Phi w, w ~ N(0, I), Phi = s phi. Newton's method on the F weights (the twin of Rasmussen and Williams 2006,
Algorithms 3.1 and 5.1): with the derivatives g of the log density and weights W at f

    A = I + Phi^T W Phi,    step = A^-1 (Phi^T g - w),    log q = sum_i log p(y_i | f_i) - w^T w / 2 - log|A| / 2,

one pass over the rows each, which also tells the value; another only where a step has to be shortened. The gradient of
log q takes two more: first the posterior variances v_i = Phi_i A^-1 Phi_i^T and s_i = -v_i / 2 dW_i / df_i, for b =
A^-1 Phi^T s, and then, with u = s - W Phi b (in the notation of `rfgp.inference.laplace.evidence`, of which this is the
other form),

    d/dPhi = (g + u) w^T + g b^T - W Phi A^-1,    d/dmean = sum_i g_i + u_i,
    d/ds^2 = (w^T w / 2 + b^T w - (F - tr A^-1) / 2) / s^2,

and in the parameters of the likelihood that of sum_i log p + (Phi b)_i g_i - v_i W_i / 2. A row that counts w times has
w times the log density, g and W. Rows that lie on other machines are summed there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.evidence import Evidence, Guess
from rfgp.inference.laplace.search import Observed
from rfgp.inference.laplace.weights import Mode, find_mode, seen_at
from rfgp.inference.linear import LinearModel, summed
from rfgp.inference.posteriors import FactorCovariance, WeightPosterior
from rfgp.likelihoods import Likelihood
from rfgp.rows import Block
from rfgp.rows.blocks import Sums


@dataclass(frozen=True, eq=False)
class LaplaceFeatureEvidence(Evidence):
    """What rows say of the weights of features under a likelihood that is not normal.

    Attributes:
        model: The data, of one target each, and the features; its noise is about 1 / W.
        likelihood: With its given parameters.
        learned: Its others, 0-d each, with gradients where they have some.
        near: Where the mode may be.
    """

    model: LinearModel
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    near: Guess = ()

    @cached_property
    def mode(self) -> Mode:
        """The mode."""
        with torch.no_grad():
            return find_mode(self._detached, self._law, *self.near)

    def guess(self) -> Guess:
        """Return the mode of the weights, (F,)."""
        return (self.mode.weights,)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        model, given = self.model, _Given(tuple(self.learned), self.likelihood, self._detached, self.mode)
        others = (*model.parameters, *self.learned.values())
        out: Tensor = _LogEvidence.apply(given, model.mean, model.variance, *others)
        return out

    @property
    def weights_used(self) -> float:
        """The share of the weights that the data determine, (F - tr A^-1) / F."""
        count = len(self.mode.factor)
        return 1 - float(torch.cholesky_inverse(self.mode.factor).diagonal().sum()) / count

    def at_rows(self) -> Tensor:
        """Return the latent function at the mode, (n,)."""
        with torch.no_grad():
            parts = [
                seen_at(self._detached, self._law, self.mode.weights, block)[1].f for block in self._detached.blocks()
            ]
        return torch.cat(parts)

    def posterior(self) -> WeightPosterior:
        """Return the weights and the factor of their precision."""
        return WeightPosterior(self.model.prior, self.mode.weights[:, None], FactorCovariance(self.mode.factor))

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of the latent function at each row given all others, approximately.

        By Laplace's cavity, as `LaplaceEvidence.leave_one_out`.
        """
        parts = []
        with torch.no_grad():
            for block in self._detached.blocks():
                phi, now = seen_at(self._detached, self._law, self.mode.weights, block)
                scaled = self._detached.variance.sqrt() * phi.double()
                root = torch.linalg.solve_triangular(self.mode.factor, scaled.mT, upper=False)
                explained = root.square().sum(0)
                cavity = explained / (1 - explained * now.weight).clamp_min(1e-12)
                parts.append((now.f - cavity * now.first, cavity))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means)[:, None], torch.cat(variances)

    @cached_property
    def _detached(self) -> LinearModel:
        return self.model.detached()

    @property
    def _law(self) -> Likelihood:
        return self.likelihood.at({name: value.detach() for name, value in self.learned.items()})


# --- passes over the rows ------------------------------------------------------------------------------


def _pull_sums(law: Likelihood, mode: Mode, inverse: Tensor, model: LinearModel) -> Sums:
    """Return Phi^T s (F,)."""
    total = model.mean.new_zeros(model.num_features)
    for block in model.blocks():
        phi, now = seen_at(model, law, mode.weights, block)
        explained = ((phi @ inverse.to(phi)) * phi).sum(1).double() * model.variance
        total += (phi.mT @ (-0.5 * explained * now.change).to(phi)).double()
    return (model.variance.sqrt() * total,)


class _Wanted(NamedTuple):
    """What the last pass is to add up."""

    parameters: tuple[bool, ...]  # of the features
    names: tuple[str, ...]  # of the likelihood's parameters
    learned: tuple[bool, ...]


class _Known(NamedTuple):
    """What the last pass knows of all rows."""

    mode: Mode
    inverse: Tensor  # A^-1 (F, F)
    pulled: Tensor  # b (F,)
    learned: tuple[Tensor, ...]


def _gradient_sums(likelihood: Likelihood, known: _Known, wanted: _Wanted, model: LinearModel) -> Sums:
    """Return the gradient in the mean (1,), in the features' parameters and in the likelihood's, those wanted."""
    law = likelihood.at(dict(zip(wanted.names, known.learned, strict=True)))
    scale, mode = model.variance.sqrt(), known.mode
    in_mean = torch.zeros_like(model.mean)
    in_features = [torch.zeros_like(p, dtype=torch.float64) for p in model.parameters]
    in_law = [torch.zeros_like(value) for value in known.learned]
    for block in model.blocks():
        with torch.set_grad_enabled(any(wanted.parameters)):
            leaves = tuple(
                p.detach().requires_grad_(w) for p, w in zip(model.parameters, wanted.parameters, strict=True)
            )
            phi = model.phi(block, *leaves)
        own = phi.detach()
        ends = (scale * torch.stack([mode.weights, known.pulled], dim=1)).to(own)
        f, told = (own @ ends).double().T
        now = Observed(law, block).at(model.mean + f)
        pushed = own @ (model.variance * known.inverse).to(own)
        explained = (pushed * own).sum(1).double()
        u = -0.5 * explained * now.change - now.weight * told
        in_mean += (now.first + u).sum()
        if any(wanted.parameters):
            upstream = (
                torch.stack([now.first + u, now.first], dim=1).to(own) @ ends.mT - now.weight.to(own)[:, None] * pushed
            )
            asked = [leaf for leaf in leaves if leaf.requires_grad]
            found = iter(torch.autograd.grad(phi, asked, upstream))
            for total, leaf in zip(in_features, leaves, strict=True):
                if leaf.requires_grad:
                    total += next(found)
        if any(wanted.learned):
            _add_in_law(in_law, likelihood, known, wanted, (block, now.f, told, explained))
    return in_mean, *in_features, *in_law


def _add_in_law(
    totals: list[Tensor],
    likelihood: Likelihood,
    known: _Known,
    wanted: _Wanted,
    rows: tuple[Block, Tensor, Tensor, Tensor],
) -> None:
    """Add the gradient in the likelihood's parameters, for a block, f, Phi b and v (b,) each."""
    block, f, told, explained = rows
    with torch.enable_grad():
        leaves = [v.detach().requires_grad_(w) for v, w in zip(known.learned, wanted.learned, strict=True)]
        law = likelihood.at(dict(zip(wanted.names, leaves, strict=True)))
        seen = f + block.offset()
        slopes = law.slopes(block.targets[:, 0], seen)
        weight, _ = law.information(slopes, seen)
        value = (block.counts() * (slopes.value + told * slopes.first - 0.5 * explained * weight)).sum()
        asked = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad(value, asked))
    for total, leaf in zip(totals, leaves, strict=True):
        if leaf.requires_grad:
            total += next(found)


class _Given(NamedTuple):
    """What the evidence is computed of."""

    names: tuple[str, ...]  # of the likelihood's parameters
    likelihood: Likelihood
    model: LinearModel
    mode: Mode


class _LogEvidence(torch.autograd.Function):
    """log q as a function of mean, s^2 and the parameters of features and likelihood, with its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        given: _Given,
        mean: Tensor,
        variance: Tensor,
        *others: Tensor,
    ) -> Tensor:
        names, likelihood, model, mode = given
        needs = ctx.needs_input_grad[3:]
        count = len(model.parameters)
        wanted = _Wanted(tuple(needs[:count]), names, tuple(needs[count:]))
        if any(ctx.needs_input_grad):
            learned = tuple(value.detach() for value in others[count:])
            law = likelihood.at(dict(zip(names, learned, strict=True)))
            inverse = torch.cholesky_inverse(mode.factor)
            (pull,) = summed(model, partial(_pull_sums, law, mode._replace(factor=inverse[:0]), inverse))
            pulled = inverse @ pull
            known = _Known(mode._replace(factor=inverse[:0]), inverse, pulled, learned)
            in_mean, *in_others = summed(model, partial(_gradient_sums, likelihood, known, wanted))
            spread = 0.5 * (mode.weights.square().sum() - len(inverse) + inverse.diagonal().sum())
            in_variance = (spread + pulled @ mode.weights) / model.variance
            asked = (g.to(o) if w else None for g, o, w in zip(in_others, others, needs, strict=True))
            ctx.save_for_backward(in_mean, in_variance, *asked)
        determinant = mode.factor.diagonal().log().sum()
        return mode.value - 0.5 * mode.weights.square().sum() - determinant

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = (grads[0] * gradient if gradient is not None else None for gradient in ctx.saved_tensors)
        return (None, *saved)


def model_of(model: LinearModel, law: Likelihood, some: Block) -> LinearModel:
    """Return a model whose noise is about 1 / W: that of some rows at the mean, by which rounding is judged."""
    with torch.no_grad():
        now = Observed(law, some).at(model.mean.detach().expand(len(some)))
        return replace(model, noise=1 / now.weight.mean())
