"""Laplace's approximation through features on lattices, by fast transforms.

No features are formed. The notation is that of `rfgp.inference.sites.lowrank`, with Phi = phi S and features phi that
depend on no hyperparameter. A Newton step needs f at the rows, which is a Fourier series. It also needs the sums phi^T
W phi and phi^T g over the rows with strengths W and g (`rfgp.solvers.onepass.sums`). The gradient of log q needs the
posterior variances v at the rows, which are a series on the doubled lattice. It also needs sums with strengths s = -v /
2 dW / df and W. With b = A^-1 Phi^T s

    d log q / d log S_j = w_j^2 + 2 b_j w_j - 1 + (A^-1)_jj,    d log q / d mean = sum_i (g_i + s_i) - b^T Phi^T W 1,

because Phi^T g = w, Phi^T W Phi = A - I and Phi^T u = b at the mode. Rows are read in blocks, and sums are added up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from rfgp.autograd import Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.inference.sites.lowrank import learned_gradients
from rfgp.inference.sites.newton import STALL_DECREMENT, TOLERANCE
from rfgp.inference.sites.terms import RowLikelihood
from rfgp.inference.sites.weights import FeaturePasses, WeightLaplace
from rfgp.likelihoods import Likelihood
from rfgp.rows import Block, Rows
from rfgp.rows.blocks import Sums, sums_over_parts
from rfgp.solvers import Inference
from rfgp.solvers.lowrank import FactorCovariance, LinearModel, LowRankPosterior
from rfgp.solvers.onepass import SeriesMoments, SeriesPosterior, designs_of, scale_of
from rfgp.solvers.onepass.statistics import assemble, projected
from rfgp.solvers.onepass.sums import Layout, row_blocks, weighted_sums


class SeriesPasses(FeaturePasses):
    """Passes over the rows that evaluate features by fast transforms."""

    def tolerances(self, model: LinearModel) -> tuple[float, float]:
        """Return the tolerance and the stall decrement of a search."""
        return TOLERANCE * (1 + len(model.rows) / 1000), STALL_DECREMENT

    def blocks(self, model: LinearModel) -> Iterator[Block]:
        """Yield the rows in blocks."""
        return row_blocks(_layout_of(model), model.rows)

    def fitted(self, model: LinearModel, block: Block, weights: Tensor) -> Tensor:
        """Return Phi w (b, m), float64."""
        return _series(model, weights).mean(block.inputs)

    def step(self, model: LinearModel, likelihood: Likelihood, weights: Tensor, is_final: bool) -> Sums:
        """Return the log density, Phi^T g (F,), Phi^T W Phi (F, F) and the excess (F, F) of the majorizer."""
        has_excess, layout, scale = not (is_final or likelihood.is_concave), _layout_of(model), _scale_of(model)
        at = _Rows(_series(model, weights[:, None]), model.mean, likelihood)
        weigh = partial(_newton_weights, at, is_final, has_excess)
        sums, (value,) = weighted_sums(layout, model.rows, weigh, 1 + has_excess, num_values=1)
        statistics = [assemble(layout, of_series) for of_series in sums]
        gradient = scale * statistics[0].target[:, 0]
        return value, gradient, *(of_series.gram.mul_(scale[:, None] * scale) for of_series in statistics)


SERIES_FEATURES = SeriesPasses()
"""The passes that evaluate features by fast transforms."""


class _Implicit(NamedTuple):
    """Sums over the rows at the mode."""

    curved: Tensor  # Phi^T W 1, (F,)
    pulled: Tensor  # Phi^T s, (F,)
    total: Tensor  # sum_i (g_i + s_i), 0-d
    weight: float  # sum_i W_i


class LatticeLaplace(WeightLaplace, Inference):
    """Laplace's approximation to the posterior of weights on fixed designs, one of them on a lattice.

    The noise of the model has no effect.
    """

    passes: ClassVar[FeaturePasses] = SERIES_FEATURES

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        return with_gradient(self.evidence, self.model.mean, self.scale, *self.learned.values())

    def posterior(self) -> SeriesPosterior:
        """Return the weights and the factor of their precision."""
        return self._posterior

    @cached_property
    def _posterior(self) -> SeriesPosterior:
        prior = _prior_of(self.detached)
        dense = LowRankPosterior(prior, self.mode.weights[:, None], FactorCovariance(self.mode.factor))
        return SeriesPosterior(prior, dense)

    @property
    def inverse(self) -> Tensor:
        """A^-1 at the mode, (F, F)."""
        return self._posterior.moments_at_rows.inverse

    def moments_at(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return f at the mode, and its variance, (b,) each."""
        series = self._posterior.moments_at_rows
        rows = _Rows(series, self.model.mean.detach(), self.bound_likelihood)
        return rows.values(block), series.known_variance(block.inputs)

    @cached_property
    def _implicit(self) -> _Implicit:
        """The sums of the pass that gradients and information need."""
        model, layout = self.detached, _layout_of(self.detached)
        at = _Rows(self._posterior.moments_at_rows, model.mean, self.bound_likelihood)
        (sums,), (total,) = weighted_sums(layout, model.rows, partial(_implicit_weights, at), num_values=1)
        curved, pulled = (_scale_of(model)[:, None] * projected(layout, sums)[:, :2]).mT
        return _Implicit(curved, pulled, total, sums.observations)

    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients in the mean (1,), the scales (F,) and the parameters of the likelihood."""
        model, weights, layout = self.detached, self.mode.weights, _layout_of(self.detached)
        scale, series = _scale_of(model), self._posterior.moments_at_rows
        b = series.inverse @ self._implicit.pulled
        in_mean = (self._implicit.total - b @ self._implicit.curved).reshape(1)
        in_log_scale = weights.square() + 2 * b * weights - 1 + series.inverse.diagonal()
        in_scale = torch.where(scale > 0, in_log_scale / scale, 0.0)
        in_learned: Sums = ()
        if any(needs[2:]):
            learned = {name: value.detach() for name, value in self.learned.items()}
            both = _Rows(_series(model, torch.stack([weights, b], dim=1)), model.mean, self.likelihood)
            in_learned = sums_over_parts(model.rows, partial(_learned_sums, layout, both, series, learned, needs[2:]))
        gradients = (in_mean, in_scale, *(in_learned or [None] * len(needs[2:])))
        return [gradient if need else None for gradient, need in zip(gradients, needs, strict=True)]

    # --- the search for hyperparameters -----------------------------------------------------------

    @property
    def is_solved(self) -> bool:
        """Whether the mode has been computed."""
        return "mode" in vars(self)

    @property
    def mean(self) -> Tensor:
        """The prior mean of the latent function, (1,)."""
        return self.model.mean

    @property
    def variance(self) -> Tensor:
        """A noise of 1, 0-d. It has no effect."""
        return torch.ones_like(self.model.noise)

    @property
    def scale(self) -> Tensor:
        """The prior standard deviations of the weights, (F,)."""
        return _scale_of(self.model)

    def score(self) -> Tensor:
        """Return a 0-d tensor whose gradient is that of the log marginal likelihood."""
        return self.log_marginal_likelihood()

    def with_factors_of(self, other: "LatticeLaplace") -> Self:
        """Return the inference with the results of another at the same hyperparameters and rows."""
        cached = ("mode", "_posterior", "_implicit")
        vars(self).update({name: vars(other)[name] for name in cached if name in vars(other)})
        return self

    def information(self, in_mean: Tensor, in_variance: Tensor, in_scale: Tensor) -> Tensor:
        """Return the Fisher information (p, p) of the regression of Laplace pseudo-observations.

        It is an approximation, because W in the noise 1 / W is held constant. See `rfgp.solvers.onepass.solver`.
        """
        with torch.no_grad():
            inverse, implicit = self.inverse, self._implicit
            weights = inverse.square() @ in_scale + (1 - 2 * inverse.diagonal())[:, None] * in_scale
            of_mean = implicit.weight - implicit.curved @ inverse @ implicit.curved
            return 0.5 * in_scale.mT @ weights + of_mean * (in_mean.mT @ in_mean)


def _prior_of(model: LinearModel) -> Prior:
    return Prior(weights=model.weights.blocks)


def _layout_of(model: LinearModel) -> Layout:
    return Layout.of(designs_of(_prior_of(model)))


def _scale_of(model: LinearModel) -> Tensor:
    """Return the prior standard deviations of the weights, including those on a lattice, (F,)."""
    return scale_of(_prior_of(model))


def _series(model: LinearModel, weights: Tensor) -> SeriesMoments:
    """Return the moments of functions with weights (F, m).

    Only their means are defined.
    """
    return SeriesMoments(LowRankPosterior(_prior_of(model), weights, FactorCovariance(weights.new_zeros(0, 0))))


# --- passes over the rows ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """The latent function and the likelihood, for passes over the rows."""

    series: SeriesMoments
    mean: Tensor  # (1,)
    likelihood: Likelihood

    def values(self, block: Block) -> Tensor:
        """Return f (b,)."""
        return self.mean + self.series.mean(block.inputs)[:, 0]


def _weighted(block: Block, weight: Tensor, target: Tensor) -> Block:
    """Return rows whose sums are those with strengths `weight` and `target`, (b,) each."""
    return Block(block.inputs, (target / weight)[:, None], weight=weight)


def _newton_weights(
    at: _Rows, is_final: bool, has_excess: bool, block: Block
) -> tuple[Sequence[Block], Sequence[Tensor]]:
    """Return rows for the sums of a Newton step, and the log density, 0-d.

    The first rows have the strengths W and g, and the second, if any, the majorizer's excess.
    """
    terms = RowLikelihood(at.likelihood, block).terms(at.values(block))
    weighted = [_weighted(block, terms.weight if is_final else terms.majorizer, terms.gradient)]
    if has_excess:
        excess = (terms.majorizer - terms.curvature).clamp_min(0)
        weighted.append(Block(block.inputs, torch.zeros_like(block.targets), weight=excess))
    return weighted, (terms.value,)


def _implicit_weights(at: _Rows, block: Block) -> tuple[Sequence[Block], Sequence[Tensor]]:
    """Return rows with strengths W and s, and the sum of g + s, 0-d."""
    terms = RowLikelihood(at.likelihood, block).terms(at.values(block))
    s = -0.5 * at.series.known_variance(block.inputs) * terms.weight_slope
    return (_weighted(block, terms.weight, s),), ((terms.gradient + s).sum(),)


def _learned_sums(
    layout: Layout, both: _Rows, series: SeriesMoments, learned: Mapping[str, Tensor], needs: Needs, rows: Rows
) -> Sums:
    """Return the gradients in the parameters of the likelihood, 0-d each.

    Args:
        layout: The designs.
        both: The functions with weights w and b, and the likelihood with its given parameters.
        series: The posterior moments.
        learned: The learned parameters of the likelihood.
        needs: Whether each of them needs a gradient.
        rows: The rows.
    """
    totals = [torch.zeros_like(value) for value in learned.values()]
    for block in row_blocks(layout, rows):
        shift, change = both.series.mean(block.inputs).mT
        values = (both.mean + shift, change, series.known_variance(block.inputs))
        gradients = learned_gradients(both.likelihood, learned, needs, block, values)
        totals = [total + gradient for total, gradient in zip(totals, gradients, strict=True)]
    return tuple(totals)


__all__ = ["LatticeLaplace", "SeriesPasses"]
