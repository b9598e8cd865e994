"""Laplace's approximation through features, by passes over blocks of rows or by fast transforms, also of classes.

The model is f = mean + Phi w with w ~ N(0, I) and Phi = phi S, with the prior standard deviations S of the weights. Let
g and W be the derivatives of the log density and curvatures at f. A step is then A^-1 (Phi^T g - w) with A = I + Phi^T
W Phi (the weight-space form of Rasmussen and Williams 2006, Algorithm 3.1). One pass computes psi, Phi^T g and Phi^T W
Phi. A second pass is needed only if a step must be shortened. Rows on other machines are summed there.

If the log density is not concave and the curvature does not make A positive definite, W is a majorizer of it.

At the mode w of the weights

    log q = sum_i log p(y_i | f_i) - w^T w / 2 - log|A| / 2.

The gradient takes two passes over the rows. The first computes the posterior variances v_i = Phi_i A^-1 Phi_i^T and
s_i = -v_i / 2 dW_i / df_i, for b = A^-1 Phi^T s. The second computes, with u = s - W Phi b (the weight-space form of
`rfgp.inference.sites.newton`),

    d/dPhi = (g + u) w^T + g b^T - W Phi A^-1,    d/dmean = sum_i g_i + u_i,
    d/ds_t^2 = (w_t^T w_t / 2 + b_t^T w_t - (F_t - tr (A^-1)_tt) / 2) / s_t^2,

and the gradient of sum_i log p + (Phi b)_i g_i - v_i W_i / 2 in the parameters of the likelihood. A row with the count
w has w times the log density, g and W.

Lattices: No features are formed. The notation is the same, with Phi = phi S and features phi that
depend on no hyperparameter. A Newton step needs f at the rows, which is a Fourier series. It also needs the sums phi^T
W phi and phi^T g over the rows with strengths W and g (`rfgp.solvers.onepass`). The gradient of log q needs the
posterior variances v at the rows, which are a series on the doubled lattice. It also needs sums with strengths s = -v /
2 dW / df and W. With b = A^-1 Phi^T s

    d log q / d log S_j = w_j^2 + 2 b_j w_j - 1 + (A^-1)_jj,    d log q / d mean = sum_i (g_i + s_i) - b^T Phi^T W 1,

because Phi^T g = w, Phi^T W Phi = A - I and Phi^T u = b at the mode. Rows are read in blocks, and sums are added up.

Several classes: with the probabilities p at f and the count w of a row, the curvature of its log density is
W = w (diag(p) - p p^T). The latent values are f_i (C,) = m + W^T Phi_i, with standard normal weights W (F, C). Classes
follow by a softmax. With the probabilities p_i, counts w_i and G_c = Phi^T diag(w p_c) Phi, the precision of all C F
weights is

    A = I + blockdiag(G_c) - sum_i w_i (p_i x Phi_i) (p_i x Phi_i)^T.

It is at most the block-diagonal matrix B without the last term. Conjugate gradients solve for Newton's steps, with C
matrices of F x F a step and products in O(n F C), while A itself takes O(n F^2 C^2). The preconditioner is the sum of
B^-1 and Z Z^T, the mean over classes. A common change of all classes does not change the labels, so that A is 1 there
and B is far from it. A is formed and factorized once, at the mode, for the posterior, the evidence and its gradient.
Let s be that of -log|A| / 2 in f, b = A^-1 Phi^T s and u = s - W Phi b. The gradient of the log evidence is (the
weight-space form of Rasmussen and Williams 2006, Section 3.5)

    d/dPhi = sum_c (g_c + u_c) w_c^T + g_c b_c^T - sum_d W_cd Phi (A^-1)_cd,    d/dm_c = sum_i g_ic + u_ic,
    d/ds_t^2 = (tr W_t^T W_t / 2 + tr b_t^T W_t - (F_t C - tr (A^-1)_tt) / 2) / s_t^2.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from rfgp.autograd import Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import block_diagonal
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
from rfgp.solvers.iterative.operator import conjugate_gradients
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
from rfgp.solvers.role import Shape

# --- Sites over the weights of a low-rank model, by passes over blocks of rows ---------------------------------------

FLOAT32_TOLERANCE = 1e-7
"""The decrement, in nats per thousand rows, at which a search with features of single precision has converged."""
FLOAT32_STALL_DECREMENT = 1e-5
"""The rounding error of psi with features of single precision, in nats per square root of rows."""
MAX_MAJORIZER_STEPS = 2000
"""The maximum number of steps if the log density is not concave, because steps by a majorizer converge slowly."""
_MATRIX = "The feature matrix I + Phi^T W Phi"


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
        block, count = next(iter(model.blocks())), len(model.rows)
        if model.phi(block.take(slice(1))).dtype == torch.float64:
            return TOLERANCE * (1 + count / 1000), STALL_DECREMENT
        return FLOAT32_TOLERANCE * (1 + count / 1000), FLOAT32_STALL_DECREMENT * math.sqrt(count)

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


# --- Derivatives of the softmax likelihood of C latent functions -----------------------------------------------------


def curvature(
    f: Tensor,  # (n, C)
    counts: Tensor,  # (n, 1)
) -> Tensor:  # (n, C, C)
    """Return the curvature W of the log density, (n, C, C).

    Args:
        f: The latent values, (n, C).
        counts: The number of observations of each row, (n, 1).
    """
    p = torch.softmax(f, dim=1)
    return counts[:, :, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None])


def log_prob_gradient(
    likelihood: Likelihood,
    rows: Block,
    f: Tensor,  # (n, C)
) -> Tensor:  # (n, C)
    """Return the gradient g of the log density of all rows in f.

    Args:
        likelihood: The likelihood.
        rows: The rows.
        f: The latent values, (n, C).
    """
    return rows.counts()[:, None] * likelihood.slopes(rows.targets[:, 0], f).first


def softmax_cavity(
    likelihood: Likelihood,
    rows: Block,
    f: Tensor,  # (n, C)
    covariance: Tensor,  # (n, C, C)
) -> tuple[Tensor, Tensor]:
    """Return the mean (n, C) and covariance (n, C, C) of f at each row without its own site.

    The mode of the other rows is not searched again (Laplace's cavity).

    Args:
        likelihood: The likelihood.
        rows: The rows.
        f: The mode, (n, C).
        covariance: The posterior covariances of the functions at each row.
    """
    gradient, weight = log_prob_gradient(likelihood, rows, f), curvature(f, rows.counts()[:, None])
    without = torch.linalg.solve(torch.eye(f.shape[1], dtype=f.dtype) - covariance @ weight, covariance)
    without = (without + without.mT) / 2
    return f - (without @ gradient[:, :, None])[:, :, 0], without


# --- Posteriors of C dependent latent functions, such as those of several classes ------------------------------------


@dataclass(frozen=True, eq=False)
class CoupledCovariance(FactorCovariance):
    """The covariance A^-1 of the weights of C functions, through a factor (C F, C F), function by function.

    Attributes:
        num_functions: The number C of functions.
    """

    num_functions: int

    def variance(self, scaled_phi: Tensor) -> Tensor:
        """Return the variances of each function at n points, (n, C)."""
        blocks = self._of_functions
        return torch.stack([(scaled_phi @ block * scaled_phi).sum(1) for block in blocks], dim=1).clamp_min(0)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariances of each function between two sets of points, (a, b, C)."""
        return torch.stack([left @ block @ right.mT for block in self._of_functions], dim=-1)

    def root(self, scaled_phi: Tensor) -> Tensor:
        """Return a matrix R (C n, C F) such that R R^T is the covariance of all values, function by function."""
        return super().root(block_diagonal([scaled_phi] * self.num_functions))

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights with mean 0, (count, F, C)."""
        count, F, C = shape
        return super().sample(C * F, count, generator=generator).mT.reshape(count, C, F).mT

    def shapes(self, n: int, num_features: int) -> dict[str, Shape]:
        """Return the shape of the factor by name."""
        return super().shapes(n, num_features * self.num_functions)

    @cached_property
    def inverse(self) -> Tensor:
        """The blocks of A^-1, (C, F, C F)."""
        size = len(self.factor)
        return torch.cholesky_inverse(self.factor).reshape(self.num_functions, -1, size)

    @property
    def _of_functions(self) -> Iterator[Tensor]:
        """The diagonal blocks (F, F) of A^-1, one for each function."""
        F = self.inverse.shape[1]
        return (row[:, c * F : (c + 1) * F] for c, row in enumerate(self.inverse))


@dataclass(frozen=True, eq=False)
class CoupledLowRankPosterior(LowRankPosterior):
    """The posterior of C functions through the weights (F, C) of features."""

    uncertainty: CoupledCovariance

    @property
    def width(self) -> int:
        """The number of entries of one point in memory: F for each pair of classes."""
        return self.weights.numel() * self.num_functions

    @property
    def num_functions(self) -> int:
        """The number C of functions."""
        return self.uncertainty.num_functions

    def function_covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        return function_covariance(projected, self.uncertainty.inverse)[1]


def function_covariance(
    phi: Tensor,  # (n, F)
    inverse: Tensor,  # (C, F, C F)
) -> tuple[Tensor, Tensor]:
    """Return Phi (A^-1)_cd (n, C, C, F) and the covariances of functions (n, C, C).

    Args:
        phi: The features at n points, (n, F).
        inverse: The blocks of A^-1, (C, F, C F).
    """
    C, F = inverse.shape[:2]
    products = torch.einsum("bf,cfg->bcg", phi, inverse).reshape(len(phi), C, C, F)
    return products, torch.einsum("bcdf,bf->bcd", products, phi)


# --- Laplace's approximation for several classes through features, in blocks of rows ---------------------------------

MAX_CACHED_ENTRIES = 2**26
"""The maximum number of entries of the features of all rows that are cached for a search."""


def transposed_product(
    phi: Tensor,  # (b, F)
    v: Tensor,  # (b, C)
) -> Tensor:  # (F, C)
    """Return phi^T v, float64.

    It is computed as (v^T phi)^T. With few columns, BLAS is several times faster if it reads the features row by row.

    Args:
        phi: The features, (b, F).
        v: The columns, (b, C).
    """
    return (v.to(phi).mT @ phi).mT.double()


MAX_WEIGHTS = 24_000
"""The maximum number C F of weights, for which A takes 4.6 GB."""
MAX_ITERATIONS = 300
"""The maximum number of iterations of conjugate gradients for a step."""
CG_TOLERANCES = (1e-9, 1e-2)
"""The relative residuals of conjugate gradients at and far from the mode."""


class ClassWeightProblem(ModeProblem):
    """The posterior of the weights of C functions given rows in blocks.

    Args:
        model: The rows and their features, without gradients. Its mean is (C,).
        likelihood: The likelihood of C classes.
        warm_start: Weights (F, C) at hyperparameters close by, or nothing.
    """

    def __init__(self, model: LinearModel, likelihood: Likelihood, warm_start: WarmStart = ()) -> None:
        self.tolerance, self.stall_decrement = DENSE_FEATURES.tolerances(model)
        self._model, self._likelihood, self._warm_start = model, likelihood, warm_start
        is_small = len(model.rows) * model.num_features <= MAX_CACHED_ENTRIES
        self._cached = [(block, model.phi(block)) for block in model.blocks()] if is_small else None

    def initial_positions(self) -> list[Tensor]:
        """Return zeros and the warm start, (F, C) each."""
        return [self._model.mean.new_zeros(self._model.num_features, len(self._model.mean)), *self._warm_start]

    def objective(self, position: Tensor) -> float:
        """Return psi at weights (F, C)."""
        rows = ((RowLikelihood(self._likelihood, block), self._f(phi, position)) for block, phi in self._features())
        return float(sum(likelihood.log_prob(f) for likelihood, f in rows) - 0.5 * position.square().sum())

    def evaluate(self, position: Tensor) -> State:
        """Return the state at weights (F, C)."""
        F, C = position.shape
        value, gradient = position.new_zeros(()), torch.zeros_like(position)
        grams = position.new_zeros(C, F, F)
        for block, phi in self._features():
            f, counts = self._f(phi, position), block.counts()[:, None]
            derivatives = self._likelihood.slopes(block.targets[:, 0], f)
            value += (derivatives.value * counts[:, 0]).sum()
            gradient += transposed_product(phi, derivatives.first * counts)
            roots = (torch.softmax(f, dim=1) * counts).sqrt().to(phi)
            for c in range(C):
                add_symmetric_product(grams[c], phi * roots[:, c, None])
        scale = self._model.scale
        scaled = torch.stack([symmetrized(gram) for gram in grams]).mul_(scale[:, None] * scale)
        return weight_state(position, WeightSums(value, scale[:, None] * gradient, scaled))

    def step(self, state: State, last_decrement: float) -> Step:
        """Return Newton's step, solved to a residual that decreases with the decrement."""
        precisions = state.results.gram.clone()
        precisions.diagonal(dim1=1, dim2=2).add_(1)
        factors = torch.stack([cholesky(matrix, "The precision of the weights of a class") for matrix in precisions])
        shape = state.position.shape

        def precondition(residual: Tensor) -> Tensor:
            v = residual.reshape(shape)
            separate = torch.cholesky_solve(v.mT[:, :, None], factors)[:, :, 0].mT
            return (separate + v.mean(1, keepdim=True)).reshape(-1, 1)

        ascent = state.results.gradient - state.position
        tolerance = min(max(0.1 * last_decrement, CG_TOLERANCES[0]), CG_TOLERANCES[1])
        product = self._precision_product(state.position)
        solved = conjugate_gradients(product, ascent.reshape(-1, 1), tolerance, MAX_ITERATIONS, precondition)
        change = solved.solution.reshape(shape)
        return Step(change, float((change * ascent).sum()))

    def _precision_product(self, position: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the map of v (F C, 1) to A v at weights (F, C)."""
        scale = self._model.scale[:, None]
        values = [torch.softmax(self._f(phi, position), dim=1) for _, phi in self._features()]

        def product(v: Tensor) -> Tensor:
            weights = v.reshape(position.shape)
            out = weights.clone()
            for p, (block, phi) in zip(values, self._features(), strict=True):
                change = self._model.fitted(phi, weights)
                turned = block.counts()[:, None] * p * (change - (p * change).sum(1, keepdim=True))  # W v
                out += scale * transposed_product(phi, turned)
            return out.reshape(-1, 1)

        return product

    def _features(self) -> Iterable[tuple[Block, Tensor]]:
        """Return the blocks of rows with their features, (b, F)."""
        return self._cached or ((block, self._model.phi(block)) for block in self._model.blocks())

    def _f(self, phi: Tensor, position: Tensor) -> Tensor:
        """Return f (b, C) at weights (F, C), for features (b, F) without scales."""
        return self._model.mean + self._model.fitted(phi, position)


class CoupledLowRankLaplace(WeightLaplace):
    """Laplace's approximation to the posterior of the weights of C functions.

    The mean of the model is (C,).

    Raises:
        InvalidArgumentError: If the precision of all weights would not fit in memory.
    """

    def __post_init__(self) -> None:
        size = self.model.num_features * len(self.model.mean)
        if size > MAX_WEIGHTS:
            raise InvalidArgumentError(
                f"The number of weights must be at most {MAX_WEIGHTS:,}, got {size:,}: {self.model.num_features:,} "
                f"features for each of {len(self.model.mean)} classes. Lower num_frequencies or num_points."
            )

    @cached_property
    def mode(self) -> WeightMode:
        """The mode of the weights (F, C), with the factor of A, (C F, C F), class by class."""
        with torch.no_grad():
            state, _ = find_mode(ClassWeightProblem(self.detached, self.likelihood, self.start))
            return WeightMode(state.position, self._factor(state), state.results.value)

    def _factor(self, state: State) -> Tensor:
        """Return the lower Cholesky factor of A at the mode."""
        model, C = self.detached, len(self.model.mean)
        F = model.num_features
        matrix = model.mean.new_zeros(C * F, C * F)
        for block in model.blocks():
            phi = model.phi(block)
            f = model.mean + model.fitted(phi, state.position)
            p = torch.softmax(f, dim=1) * block.counts().sqrt()[:, None]
            add_symmetric_product(matrix, (phi[:, None] * p[:, :, None].to(phi)).reshape(len(phi), C * F))
        scale = model.scale.repeat(C)
        matrix = symmetrized(matrix.mul_(-scale[:, None]).mul_(scale))
        for c, gram in enumerate(state.results.gram):
            of_class = slice(c * F, (c + 1) * F)
            matrix[of_class, of_class] += gram
        matrix.diagonal().add_(1)
        return cholesky(matrix, "The precision of the weights of all classes")

    @cached_property
    def _covariance(self) -> CoupledCovariance:
        return CoupledCovariance(self.mode.factor, len(self.model.mean))

    def posterior(self) -> CoupledLowRankPosterior:
        """Return the weights and the factor of their precision."""
        return CoupledLowRankPosterior(self.prior, self.mode.weights, self._covariance)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the means (n, C) and covariances (n, C, C) of f at each row given all others."""
        inverse = self._covariance.inverse
        with torch.no_grad():
            parts = [
                softmax_cavity(self.likelihood, block, f, function_covariance(phi, inverse)[1])
                for block, phi, f in self._at_mode()
            ]
        means, covariances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(covariances)

    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients in the tensors of the model."""
        model, W, inverse = self.detached, self.mode.weights, self._covariance.inverse
        (C, F, size), pulled = inverse.shape, torch.zeros_like(W)  # Phi^T s
        for block, phi, f in self._at_mode():
            covariance = function_covariance(phi, inverse)[1]
            with torch.enable_grad():
                f = f.requires_grad_()
                determinant = -0.5 * (curvature(f, block.counts()[:, None]) * covariance).sum()
            pulled += transposed_product(phi, *torch.autograd.grad(determinant, f))
        b = (inverse.reshape(size, size) @ pulled.mT.reshape(-1)).reshape(C, F).mT
        _, *gradients = gradient_sums(partial(_class_objective, self.likelihood, W, b, inverse), needs, model)
        diagonal = inverse.reshape(size, size).diagonal().reshape(C, F).mT
        gradients[2] = model.weights.by_block((0.5 * (W.square() - 1 + diagonal) + b * W).sum(1)) / model.variances
        return [g.to(t) if need else None for g, t, need in zip(gradients, model.tensors, needs, strict=True)]

    def _at_mode(self) -> Iterator[tuple[Block, Tensor, Tensor]]:
        """Yield blocks of b rows, with their features times scales (b, F) and f (b, C) at the mode, float64."""
        model = self.detached
        for block in model.blocks():
            phi = model.phi(block).double()
            yield block, model.scale * phi, model.mean + model.fitted(phi, self.mode.weights)


def _class_objective(
    likelihood: Likelihood,
    weights: Tensor,  # (F, C)
    b: Tensor,  # (F, C)
    inverse: Tensor,  # (C, F, C F)
    model: LinearModel,
    block: Block,
) -> tuple[Tensor, Tensor]:
    """Return a scalar of a block, twice, whose gradient is that of the evidence, 0-d.

    It is the sum of log p + (Phi b)^T g - tr(V W) / 2 over the rows, with the posterior covariances V of the functions.
    """
    phi, counts = model.scale.detach() * model.phi(block).double(), block.counts()[:, None]
    f, change = model.mean + phi @ weights, phi @ b
    with torch.no_grad():
        pushed, covariance = function_covariance(phi, inverse)
    moving = 2 * torch.einsum("bcdf,bf->bcd", pushed, phi) - covariance  # V, with the gradient of a quadratic form
    gradient = log_prob_gradient(likelihood, block, f)
    scalar = RowLikelihood(likelihood, block).log_prob(f) + (gradient * change).sum()
    scalar = scalar - 0.5 * (curvature(f, counts) * moving).sum()
    return scalar, scalar
