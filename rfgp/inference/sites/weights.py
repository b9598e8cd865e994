"""Laplace's approximation through features, by passes over blocks of rows or by fast transforms.

The model is f = mean + Phi w with w ~ N(0, I) and Phi = phi S, with the prior standard deviations S of the weights. Let
g and W be the derivatives of the log density and curvatures at f. A step is then A^-1 (Phi^T g - w) with A = I + Phi^T
W Phi (the weight-space form of Rasmussen and Williams 2006, Algorithm 3.1). One pass computes psi, Phi^T g and Phi^T W
Phi. A second pass is needed only if a step must be shortened. Rows on other machines are summed there.

If the log density is not concave and the curvature does not make A positive definite, W is a majorizer of it.

At the mode w of the weights (`rfgp.inference.sites.weights`)

    log q = sum_i log p(y_i | f_i) - w^T w / 2 - log|A| / 2.

The gradient takes two passes over the rows. The first computes the posterior variances v_i = Phi_i A^-1 Phi_i^T and
s_i = -v_i / 2 dW_i / df_i, for b = A^-1 Phi^T s. The second computes, with u = s - W Phi b (the weight-space form of
`rfgp.inference.sites.newton`),

    d/dPhi = (g + u) w^T + g b^T - W Phi A^-1,    d/dmean = sum_i g_i + u_i,
    d/ds_t^2 = (w_t^T w_t / 2 + b_t^T w_t - (F_t - tr (A^-1)_tt) / 2) / s_t^2,

and the gradient of sum_i log p + (Phi b)_i g_i - v_i W_i / 2 in the parameters of the likelihood. A row with the count
w has w times the log density, g and W.

No features are formed. The notation is that of `rfgp.inference.sites.weights`, with Phi = phi S and features phi that
depend on no hyperparameter. A Newton step needs f at the rows, which is a Fourier series. It also needs the sums phi^T
W phi and phi^T g over the rows with strengths W and g (`rfgp.solvers.onepass`). The gradient of log q needs the
posterior variances v at the rows, which are a series on the doubled lattice. It also needs sums with strengths s = -v /
2 dW / df and W. With b = A^-1 Phi^T s

    d log q / d log S_j = w_j^2 + 2 b_j w_j - 1 + (A^-1)_jj,    d log q / d mean = sum_i (g_i + s_i) - b^T Phi^T W 1,

because Phi^T g = w, Phi^T W Phi = A - I and Phi^T u = b at the mode. Rows are read in blocks, and sums are added up.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from rfgp.autograd import Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.inference.sites.newton import (
    MAX_STEPS,
    STALL_DECREMENT,
    TOLERANCE,
    LikelihoodTerms,
    ModeProblem,
    RowLikelihood,
    State,
    Step,
    cavity,
    find_mode,
)
from rfgp.likelihoods import Likelihood
from rfgp.linalg import cholesky, half_solve
from rfgp.rows import Block, Rows
from rfgp.rows.blocks import Sums, sums_over_parts
from rfgp.solvers import Inference, WarmStart
from rfgp.solvers.lowrank import (
    FactorCovariance,
    LinearModel,
    LowRankPosterior,
    add_symmetric_product,
    gradient_sums,
    quadratic_forms,
    summed,
    symmetrized,
)
from rfgp.solvers.onepass import Layout, SeriesPosterior, Statistics, row_blocks, scale_of, weighted_sums

# --- Sites over the weights of a low-rank model, by passes over blocks of rows ---------------------------------------

FLOAT32_TOLERANCE = 1e-7
"""The decrement, in nats per thousand rows, at which a search with features of single precision has converged."""
FLOAT32_STALL_DECREMENT = 1e-5
"""The rounding error of psi with features of single precision, in nats per square root of rows."""
MAX_MAJORIZER_STEPS = 2000
"""The maximum number of steps if the log density is not concave, because steps by a majorizer converge slowly."""
_MATRIX = "The feature matrix I + Phi^T W Phi"


def search_tolerances(model: LinearModel) -> tuple[float, float]:
    """Return the tolerance and the stall decrement (see `ModeProblem`) for the features.

    Args:
        model: The linear model of the rows.
    """
    block, count = next(iter(model.blocks())), len(model.rows)
    if model.phi(block.take(slice(1))).dtype == torch.float64:
        return TOLERANCE * (1 + count / 1000), STALL_DECREMENT
    return FLOAT32_TOLERANCE * (1 + count / 1000), FLOAT32_STALL_DECREMENT * math.sqrt(count)


class WeightSums(NamedTuple):
    """Sums over the rows at some weights.

    Attributes:
        value: The log density of all rows, 0-d.
        gradient: Phi^T g, in the shape of the weights.
        gram: Phi^T W Phi with the majorizer W, (F, F), or (C, F, F) with W = diag(w p_c) of each function.
        excess: Phi^T W Phi with the majorizer minus the curvature, (F, F). If None, the two are equal.
    """

    value: Tensor
    gradient: Tensor
    gram: Tensor
    excess: Tensor | None = None


def weight_state(position: Tensor, sums: WeightSums) -> State:
    """Return the state of a search at some weights.

    Args:
        position: The weights, (F,), or (F, C) of C functions.
        sums: The sums over the rows there.
    """
    return State(position, float(sums.value - 0.5 * position.square().sum()), sums)


class FeaturePasses:
    """Passes over the rows that evaluate features. This class computes dense features.

    It is pickled for rows on other machines.
    """

    def tolerances(self, model: LinearModel) -> tuple[float, float]:
        """Return the tolerance and the stall decrement of a search (see `ModeProblem`).

        Args:
            model: The linear model of the rows.
        """
        return search_tolerances(model)

    def blocks(self, model: LinearModel) -> Iterator[Block]:
        """Yield the rows in blocks.

        Args:
            model: The linear model of the rows.
        """
        return model.blocks()

    def fitted(self, model: LinearModel, block: Block, weights: Tensor) -> Tensor:
        """Return Phi w (b, m), float64.

        Args:
            model: The linear model of the rows.
            block: The block of b rows.
            weights: The weights w, (F, m).
        """
        return model.fitted(model.phi(block), weights)

    def step(self, model: LinearModel, likelihood: Likelihood, weights: Tensor, is_final: bool) -> Sums:
        """Return the log density, Phi^T g (F,), Phi^T W Phi (F, F) and the excess.

        The excess is omitted if the log density is concave. If `is_final`, it is omitted too, and W is that of
        Laplace's approximation.

        Args:
            model: The linear model of the rows.
            likelihood: The likelihood, with values of all its parameters.
            weights: The weights, (F,).
            is_final: Whether the matrices are those of the mode, with the W of Laplace's approximation.
        """
        value, gradient, *grams = summed(model, partial(_step_sums, likelihood, weights, is_final))
        return value, gradient, *map(symmetrized, grams)


DENSE_FEATURES = FeaturePasses()
"""The passes that compute dense features."""


class WeightProblem(ModeProblem):
    """The posterior of weights given rows in blocks.

    Args:
        model: The rows and their features, without gradients.
        likelihood: The likelihood, with values of all its parameters.
        warm_start: Weights (F,) at hyperparameters close by, or nothing.
        passes: The passes over the rows that evaluate the features.
    """

    def __init__(
        self, model: LinearModel, likelihood: Likelihood, warm_start: WarmStart, passes: FeaturePasses
    ) -> None:
        self.tolerance, self.stall_decrement = passes.tolerances(model)
        self.max_steps = MAX_STEPS if likelihood.is_concave else MAX_MAJORIZER_STEPS
        self._model, self._likelihood, self._warm_start, self._passes = model, likelihood, warm_start, passes

    def initial_positions(self) -> list[Tensor]:
        """Return zeros and the warm start, (F,) each."""
        return [self._model.mean.new_zeros(self._model.num_features), *self._warm_start]

    def objective(self, position: Tensor) -> float:
        """Return psi at weights (F,)."""
        (value,) = summed(self._model, partial(_value_sums, self._passes, self._likelihood, position))
        return float(value - 0.5 * position.square().sum())

    def evaluate(self, position: Tensor) -> State:
        """Return the state at weights (F,)."""
        return weight_state(position, WeightSums(*self._passes.step(self._model, self._likelihood, position, False)))

    def step(self, state: State, last_decrement: float) -> Step:
        """Return Newton's step, or a step by the majorizer if the true curvature is not positive definite.

        Returns:
            The change (F,), the squared Newton decrement in nats, and the lower Cholesky factor of A, (F, F).
        """
        factor, ascent = _step_factor(state.results), state.results.gradient - state.position
        change = torch.cholesky_solve(ascent[:, None], factor)[:, 0]
        return Step(change, float(change @ ascent), factor)


class WeightMode(NamedTuple):
    """The mode of the weights.

    Attributes:
        weights: The weights w, (F,), or (F, C) of C functions.
        factor: The lower Cholesky factor of A at the mode, (F, F), or (C F, C F).
        value: The log density of all rows, 0-d.
    """

    weights: Tensor
    factor: Tensor
    value: Tensor

    @property
    def evidence(self) -> Tensor:
        """Laplace's approximation to the log evidence, 0-d."""
        return self.value - 0.5 * self.weights.square().sum() - self.factor.diagonal().log().sum()


@dataclass(frozen=True, eq=False)
class WeightLaplace(Inference):
    """Shared methods of Laplace's approximations over weights.

    Attributes:
        model: The rows, with one target each, and their features.
        likelihood: The likelihood, with its given parameters.
        learned: The learned parameters of the likelihood, 0-d each.
        start: A warm start. The default is none.
    """

    model: LinearModel
    likelihood: Likelihood
    learned: Mapping[str, Tensor]
    start: WarmStart = ()

    passes: ClassVar[FeaturePasses] = DENSE_FEATURES
    """The passes over the rows that evaluate the features."""

    @cached_property
    def mode(self) -> WeightMode:
        """The mode of the weights, with the precision of Laplace's approximation."""
        model, likelihood, passes = self.detached, self.bound_likelihood, self.passes
        with torch.no_grad():
            state, step = find_mode(WeightProblem(model, likelihood, self.start, passes))
            if likelihood.is_concave:
                return WeightMode(state.position, step.curvature, state.results.value)
            _, _, gram = passes.step(model, likelihood, state.position, True)
            return WeightMode(state.position, _factor(gram), state.results.value)

    @property
    def inverse(self) -> Tensor:
        """A^-1 at the mode, (F, F), or (C F, C F) of C functions."""
        return torch.cholesky_inverse(self.mode.factor)

    @cached_property
    def detached(self) -> LinearModel:
        """The model without gradients."""
        return self.model.detached()

    @property
    def bound_likelihood(self) -> Likelihood:
        """The likelihood with values of all its parameters, without gradients."""
        return self.likelihood.at({name: value.detach() for name, value in self.learned.items()})

    @property
    def prior(self) -> Prior:
        """The prior, without gradients."""
        return Prior(weights=self.detached.weights.blocks)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors (...) on which the evidence depends, the last ones those of the likelihood."""
        return *self.model.tensors, *self.learned.values()

    def warm_start(self) -> WarmStart:
        """Return a tuple of one tensor: the posterior mode of the weights, (F,)."""
        return (self.mode.weights,)

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The fraction of the weights that the rows determine, (F - tr A^-1) / F."""
        return 1 - float(self.inverse.diagonal().mean())

    @property
    def fitted(self) -> Tensor:
        """The latent function at the mode, (n,)."""
        model, weights = self.detached, self.mode.weights[:, None]
        with torch.no_grad():
            parts = [self.passes.fitted(model, block, weights)[:, 0] for block in self.passes.blocks(model)]
            return model.mean + torch.cat(parts)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        return with_gradient(lambda needs: (self.mode.evidence, partial(self.gradients, needs)), *self.tensors)

    @abstractmethod
    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients (...) of the log evidence in `tensors`, or None.

        Args:
            needs: Which gradients are needed.
        """

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of f at each row given all others, by Laplace's cavity."""
        parts = []
        with torch.no_grad():
            for block in self.passes.blocks(self.detached):
                f, variance = self.moments_at(block)
                terms = RowLikelihood(self.bound_likelihood, block).terms(f)
                parts.append(cavity(f, variance, terms.gradient, terms.weight))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means)[:, None], torch.cat(variances)

    def moments_at(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return f at the mode, and its variance, (b,) each.

        Args:
            block: A block of b rows.
        """
        model, mode = self.detached, self.mode
        phi = model.phi(block)
        f = model.mean + model.fitted(phi, mode.weights[:, None])[:, 0]
        return f, half_solve(mode.factor, (model.scale * phi).mT).square().sum(0)


def _factor(gram: Tensor) -> Tensor:
    return cholesky(gram.diagonal_scatter(gram.diagonal() + 1), _MATRIX)


def _step_factor(sums: WeightSums) -> Tensor:
    """Return the factor of A, with the majorizer unless A is positive definite."""
    if sums.excess is not None:
        newton = sums.gram - sums.excess
        factor, failed = torch.linalg.cholesky_ex(newton.diagonal_scatter(newton.diagonal() + 1))
        if not failed:
            return torch.as_tensor(factor)
    return _factor(sums.gram)


# --- passes over the rows ------------------------------------------------------------------------------


def terms_at(
    model: LinearModel,
    likelihood: Likelihood,
    weights: Tensor,  # (F,)
    block: Block,
) -> tuple[Tensor, Tensor, LikelihoodTerms]:
    """Return the features (b, F) of a block, f (b,) at given weights, and the derivatives of the log density there.

    Args:
        model: The linear model of the rows.
        likelihood: The likelihood.
        weights: The weights, (F,).
        block: A block of b rows.
    """
    phi = model.phi(block)
    f = model.mean + model.fitted(phi, weights[:, None])[:, 0]
    return phi, f, RowLikelihood(likelihood, block).terms(f)


def _step_sums(likelihood: Likelihood, weights: Tensor, is_final: bool, model: LinearModel) -> Sums:
    """Return the sums of `FeaturePasses.step`, with upper triangles of matrices (F, F)."""
    like, scale, F = model.mean, model.scale, model.num_features
    value, gradient, gram = like.new_zeros(()), like.new_zeros(F), like.new_zeros(F, F)
    excess = None if is_final or likelihood.is_concave else like.new_zeros(F, F)
    for block in model.blocks():
        phi, _, terms = terms_at(model, likelihood, weights, block)
        value += terms.value
        gradient += (phi.mT @ terms.gradient.to(phi)).double()
        weight = terms.weight if is_final else terms.majorizer
        add_symmetric_product(gram, phi * weight.sqrt().to(phi)[:, None])
        if excess is not None:
            extra = (terms.majorizer - terms.curvature).clamp_min(0)
            add_symmetric_product(excess, phi * extra.sqrt().to(phi)[:, None])
    outer = scale[:, None] * scale
    sums = value, scale * gradient, gram.mul_(outer)
    return sums if excess is None else (*sums, excess.mul_(outer))


def _value_sums(passes: FeaturePasses, likelihood: Likelihood, weights: Tensor, model: LinearModel) -> Sums:
    """Return the log density of the rows at weights (F,), 0-d, or -inf if it is not finite."""
    total = model.mean.new_zeros(())
    for block in passes.blocks(model):
        f = torch.zeros_like(block.targets[:, 0])
        if bool(weights.any()):
            f = passes.fitted(model, block, weights[:, None])[:, 0]
        total += RowLikelihood(likelihood, block).log_prob(model.mean + f)
    return (total,)


# --- Laplace's approximation through features, in blocks of rows -----------------------------------------------------

_SAMPLE_ROWS = 2000
"""The number of rows whose curvature decides whether features may be in single precision."""


class LowRankLaplace(WeightLaplace):
    """Laplace's approximation to the posterior of the weights of features. The noise of the model has no effect."""

    @cached_property
    def detached(self) -> LinearModel:
        """The model without gradients, with the noise 1 / mean(W) for W at the prior mean of the first rows."""
        model = self.model.detached()
        sample = next(iter(model.rows.blocks(_SAMPLE_ROWS)))
        terms = RowLikelihood(self.bound_likelihood, sample).terms(model.mean.expand(len(sample)))
        return replace(model, noise=1 / terms.weight.mean())

    def posterior(self) -> LowRankPosterior:
        """Return the weights and the factor of their precision."""
        return LowRankPosterior(self.prior, self.mode.weights[:, None], FactorCovariance(self.mode.factor))

    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients in the tensors of the model and in the learned parameters of the likelihood."""
        model, mode, inverse = self.detached, self.mode, self.inverse
        learned = {name: value.detach() for name, value in self.learned.items()}
        at_mode = _AtMode(self.likelihood, learned, mode.weights, model.scale[:, None] * inverse * model.scale)
        (pulled,) = summed(model, partial(_implicit_sums, at_mode))
        b = inverse @ pulled
        objective, further = partial(_objective, at_mode, b), tuple(learned.values())
        _, *gradients = summed(model, partial(gradient_sums, objective, needs, further=further))
        explicit = 0.5 * (mode.weights.square() - 1 + inverse.diagonal())
        gradients[2] = model.weights.by_block(explicit + b * mode.weights) / model.variances
        return [gradient if need else None for gradient, need in zip(gradients, needs, strict=True)]


# --- passes over the rows ------------------------------------------------------------------------------


class _AtMode(NamedTuple):
    """The mode, for passes over the rows."""

    likelihood: Likelihood  # with its given parameters
    learned: dict[str, Tensor]  # the learned ones, 0-d each
    weights: Tensor  # (F,)
    covariance: Tensor  # (F, F), of the weights times their scales

    def rows(self, block: Block) -> RowLikelihood:
        """Return a block of rows under the likelihood."""
        return RowLikelihood(self.likelihood.at(self.learned), block)


def _implicit_sums(at: _AtMode, model: LinearModel) -> Sums:
    """Return Phi^T s (F,)."""
    total = model.mean.new_zeros(model.num_features)
    for block in model.blocks():
        phi, _, terms = terms_at(model, at.rows(block).likelihood, at.weights, block)
        variance = ((phi @ at.covariance.to(phi)) * phi).sum(1).double()
        total += (phi.mT @ (-0.5 * variance * terms.weight_slope).to(phi)).double()
    return (model.scale * total,)


def _objective(at: _AtMode, b: Tensor, model: LinearModel, block: Block, *learned: Tensor) -> tuple[Tensor, Tensor]:
    """Return a scalar of a block, twice, whose gradient is that of the evidence, 0-d.

    Args:
        at: The mode.
        b: A^-1 Phi^T s, (F,).
        model: The model.
        block: A block of its rows.
        learned: The learned parameters of the likelihood, 0-d each.
    """
    phi, ends = model.phi(block), (model.scale.detach() * torch.stack([at.weights, b])).mT
    shift, change = (phi @ ends.to(phi)).double().mT
    variance = quadratic_forms(phi, phi.detach() @ at.covariance.to(phi))
    rows = RowLikelihood(at.likelihood.at(dict(zip(at.learned, learned, strict=True))), block)
    scalar = rows.evidence_terms(model.mean + shift, change, variance)
    return scalar, scalar


# --- Laplace's approximation through features on lattices, by fast transforms ----------------------------------------


class SeriesPasses(FeaturePasses):
    """Passes over the rows that evaluate features by fast transforms."""

    def tolerances(self, model: LinearModel) -> tuple[float, float]:
        """Return the tolerance and the stall decrement of a search."""
        return TOLERANCE * (1 + len(model.rows) / 1000), STALL_DECREMENT

    def blocks(self, model: LinearModel) -> Iterator[Block]:
        """Yield the rows in blocks."""
        return row_blocks(Layout.of(model.weights.blocks), model.rows)

    def fitted(self, model: LinearModel, block: Block, weights: Tensor) -> Tensor:
        """Return Phi w (b, m), float64."""
        return _series(model, weights).mean_within(block.inputs)

    def step(self, model: LinearModel, likelihood: Likelihood, weights: Tensor, is_final: bool) -> Sums:
        """Return the log density, Phi^T g (F,), Phi^T W Phi (F, F) and the excess (F, F) of the majorizer."""
        has_excess, layout = not (is_final or likelihood.is_concave), Layout.of(model.weights.blocks)
        at, scale = _Rows(_series(model, weights[:, None]), model.mean, likelihood), scale_of(model.weights.blocks)
        weigh = partial(_newton_weights, at, is_final, has_excess)
        sums, (value,) = weighted_sums(layout, model.rows, weigh, 1 + has_excess, num_values=1)
        statistics = [Statistics(layout, of_series) for of_series in sums]
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


class LatticeLaplace(WeightLaplace):
    """Laplace's approximation to the posterior of weights on fixed designs, one of them on a lattice.

    The noise of the model has no effect.
    """

    passes: ClassVar[FeaturePasses] = SERIES_FEATURES
    without_gradients: ClassVar[tuple[str, ...]] = ("mode", "_posterior", "_implicit")
    """The names of the results that inferences at equal hyperparameters may share."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The mean (1,), the scales (F,) and the learned parameters of the likelihood, 0-d each."""
        return self.model.mean, scale_of(self.model.weights.blocks), *self.learned.values()

    def posterior(self) -> SeriesPosterior:
        """Return the weights and the factor of their precision."""
        return self._posterior

    @cached_property
    def _posterior(self) -> SeriesPosterior:
        return SeriesPosterior(self.prior, self.mode.weights[:, None], FactorCovariance(self.mode.factor))

    @property
    def inverse(self) -> Tensor:
        """A^-1 at the mode, (F, F)."""
        return self._posterior.inverse

    def moments_at(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return f at the mode, and its variance, (b,) each."""
        series = self._posterior
        rows = _Rows(series, self.model.mean.detach(), self.bound_likelihood)
        return rows.values(block), series.known_variance(block.inputs)

    @cached_property
    def _implicit(self) -> _Implicit:
        """The sums of the pass that gradients and information need."""
        model, layout = self.detached, Layout.of(self.detached.weights.blocks)
        at, scale = _Rows(self._posterior, model.mean, self.bound_likelihood), scale_of(model.weights.blocks)
        (sums,), (total,) = weighted_sums(layout, model.rows, partial(_implicit_weights, at), num_values=1)
        statistics = Statistics(layout, sums)
        return _Implicit(scale * statistics.ones, scale * statistics.target[:, 0], total, sums.observations)

    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients in the mean (1,), the scales (F,) and the parameters of the likelihood."""
        model, weights, series = self.detached, self.mode.weights, self._posterior
        scale, layout = scale_of(model.weights.blocks), Layout.of(model.weights.blocks)
        b = series.inverse @ self._implicit.pulled
        in_mean = (self._implicit.total - b @ self._implicit.curved).reshape(1)
        in_log_scale = weights.square() + 2 * b * weights - 1 + series.inverse.diagonal()
        in_scale = torch.where(scale > 0, in_log_scale / scale, 0.0)
        in_learned: Sums = ()
        if any(needs[2:]):
            learned = {name: value.detach() for name, value in self.learned.items()}
            both = _Rows(_series(model, torch.stack([weights, b], dim=1)), model.mean, self.likelihood)
            in_learned = sums_over_parts(model.rows, partial(_learned_sums, layout, both, series, learned))
        gradients = (in_mean, in_scale, *(in_learned or [None] * len(needs[2:])))
        return [gradient if need else None for gradient, need in zip(gradients, needs, strict=True)]

    def score(self) -> Tensor:
        """Return a 0-d tensor whose gradient is that of the log marginal likelihood."""
        return self.log_marginal_likelihood()

    def information(self, in_mean: Tensor, in_variance: Tensor, in_scale: Tensor) -> Tensor:
        """Return the Fisher information (p, p) of the regression of Laplace pseudo-observations.

        It is an approximation, because W in the noise 1 / W is held constant. See `rfgp.solvers.onepass`.
        """
        with torch.no_grad():
            inverse, implicit = self.inverse, self._implicit
            weights = inverse.square() @ in_scale + (1 - 2 * inverse.diagonal())[:, None] * in_scale
            of_mean = implicit.weight - implicit.curved @ inverse @ implicit.curved
            return 0.5 * in_scale.mT @ weights + of_mean * (in_mean.mT @ in_mean)


def _series(model: LinearModel, weights: Tensor) -> SeriesPosterior:
    """Return the moments of functions with weights (F, m).

    Only their means are defined.
    """
    return SeriesPosterior(Prior(weights=model.weights.blocks), weights, FactorCovariance(weights.new_zeros(0, 0)))


# --- passes over the rows ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rows:
    """The latent function and the likelihood, for passes over the rows."""

    series: SeriesPosterior
    mean: Tensor  # (1,)
    likelihood: Likelihood

    def values(self, block: Block) -> Tensor:
        """Return f (b,)."""
        return self.mean + self.series.mean_within(block.inputs)[:, 0]


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
    layout: Layout, both: _Rows, series: SeriesPosterior, learned: Mapping[str, Tensor], rows: Rows
) -> Sums:
    """Return the gradients in the parameters of the likelihood, 0-d each.

    Args:
        layout: The designs.
        both: The functions with weights w and b, and the likelihood with its given parameters.
        series: The posterior moments.
        learned: The learned parameters of the likelihood.
        rows: The rows.
    """
    leaves = {name: value.clone().requires_grad_() for name, value in learned.items()}
    totals = [torch.zeros_like(value) for value in learned.values()]
    for block in row_blocks(layout, rows):
        shift, change = both.series.mean_within(block.inputs).mT
        values = (both.mean + shift, change, series.known_variance(block.inputs))
        with torch.enable_grad():
            objective = RowLikelihood(both.likelihood.at(leaves), block).evidence_terms(*values)
        totals = list(map(torch.add, totals, torch.autograd.grad(objective, list(leaves.values()))))
    return tuple(totals)


__all__ = ["LatticeLaplace", "SeriesPasses"]
