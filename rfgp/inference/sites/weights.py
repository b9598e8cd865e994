"""Sites over the weights of a low-rank model, by passes over blocks of rows.

The model is f = mean + Phi w with w ~ N(0, I) and Phi = phi S, with the prior standard deviations S of the weights. Let
g and W be the derivatives of the log density and curvatures at f. A step is then A^-1 (Phi^T g - w) with A = I + Phi^T
W Phi (the weight-space form of Rasmussen and Williams 2006, Algorithm 3.1). One pass computes psi, Phi^T g and Phi^T W
Phi. A second pass is needed only if a step must be shortened. Rows on other machines are summed there.

If the log density is not concave and the curvature does not make A positive definite, W is a majorizer of it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs
from rfgp.inference.sites.newton import LENGTHS, MAX_STEPS, STALL_DECREMENT, TOLERANCE, ModeProblem, Step, find_mode
from rfgp.inference.sites.terms import LikelihoodTerms, RowLikelihood, cavity
from rfgp.likelihoods import Likelihood
from rfgp.linalg import cholesky
from rfgp.rows import Block
from rfgp.rows.blocks import Sums
from rfgp.solvers import WarmStart
from rfgp.solvers.lowrank import LinearModel, add_symmetric_product, summed, symmetrized

FLOAT32_TOLERANCE = 1e-7
"""The decrement, in nats per thousand rows, at which a search with features of single precision has converged."""
FLOAT32_STALL_DECREMENT = 1e-5
"""The rounding error of psi with features of single precision, in nats per square root of rows."""
MAX_MAJORIZER_STEPS = 2000
"""The maximum number of steps if the log density is not concave, because steps by a majorizer converge slowly."""
_SHORTER_LENGTHS = (*LENGTHS[1:25], *LENGTHS[26::4])
"""The lengths of shortened steps that are compared in one pass."""
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


@dataclass(frozen=True, eq=False)
class WeightState:
    """A state of the search.

    Attributes:
        position: The weights w, (F,), or (F, C) of C functions.
        value: The log density of all rows, 0-d.
        gradient: Phi^T g, in the shape of the weights.
        gram: Phi^T W Phi with the majorizer W, (F, F), or (C, F, F) with W = diag(w p_c) of each function.
        excess: Phi^T W Phi with the majorizer minus the curvature, (F, F). If None, the two are equal.
    """

    position: Tensor
    value: Tensor
    gradient: Tensor
    gram: Tensor
    excess: Tensor | None = None

    @cached_property
    def objective(self) -> float:
        """psi, in nats."""
        return float(self.value - 0.5 * self.position.square().sum())


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


class WeightProblem(ModeProblem[WeightState]):
    """The posterior of weights given rows in blocks.

    Args:
        model: The rows and their features, without gradients.
        likelihood: The likelihood, with values of all its parameters.
        warm_start: Weights (F,) at hyperparameters close by, or nothing.
        passes: The passes over the rows that evaluate the features. By default they compute dense features.
    """

    def __init__(
        self,
        model: LinearModel,
        likelihood: Likelihood,
        warm_start: WarmStart = (),
        passes: FeaturePasses = DENSE_FEATURES,
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

    def evaluate(self, position: Tensor) -> WeightState:
        """Return the state at weights (F,)."""
        return WeightState(position, *self._passes.step(self._model, self._likelihood, position, False))

    def step(self, state: WeightState, last_decrement: float) -> Step:
        """Return Newton's step, or a step by the majorizer if the true curvature is not positive definite.

        Returns:
            The change (F,), the squared Newton decrement in nats, and the lower Cholesky factor of A, (F, F).
        """
        factor, ascent = _step_factor(state), state.gradient - state.position
        change = torch.cholesky_solve(ascent[:, None], factor)[:, 0]
        return Step(change, float(change @ ascent), factor)

    def move(self, state: WeightState, step: Step, min_objective: float) -> WeightState | None:
        """Return the state after the full step, or the best one along it, or None if none increases the objective."""
        full_step = self.evaluate(state.position + step.change)
        if full_step.objective >= min_objective:
            return full_step
        line = partial(_line_sums, self._passes, self._likelihood, state.position, step.change)
        (values,) = summed(self._model, line)
        ends = state.position + values.new_tensor(_SHORTER_LENGTHS)[:, None] * step.change
        values = values - 0.5 * ends.square().sum(1)
        best = int(torch.where(torch.isfinite(values), values, -torch.inf).argmax())
        return self.evaluate(ends[best]) if float(values[best]) > state.objective else None


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


def weight_mode(
    model: LinearModel, likelihood: Likelihood, warm_start: WarmStart = (), passes: FeaturePasses = DENSE_FEATURES
) -> WeightMode:
    """Return the mode of the weights, with the precision of Laplace's approximation.

    Args:
        model: The rows and their features, without gradients.
        likelihood: The likelihood, with values of all its parameters.
        warm_start: Weights (F,) at hyperparameters close by, or nothing.
        passes: The passes over the rows that evaluate the features. By default they compute dense features.

    Raises:
        SolverError: If no mode is found.
    """
    state, step = find_mode(WeightProblem(model, likelihood, warm_start, passes))
    if likelihood.is_concave:
        return WeightMode(state.position, step.curvature, state.value)
    _, _, gram = passes.step(model, likelihood, state.position, True)
    return WeightMode(state.position, _factor(gram), state.value)


@dataclass(frozen=True, eq=False)
class WeightLaplace(ABC):
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
        """The mode of the weights."""
        with torch.no_grad():
            return weight_mode(self.detached, self.bound_likelihood, self.start, self.passes)

    @property
    def inverse(self) -> Tensor:
        """A^-1 at the mode, (F, F)."""
        return torch.cholesky_inverse(self.mode.factor)

    @cached_property
    def detached(self) -> LinearModel:
        """The model without gradients."""
        return self.model.detached()

    @property
    def bound_likelihood(self) -> Likelihood:
        """The likelihood with values of all its parameters, without gradients."""
        return self.likelihood.at({name: value.detach() for name, value in self.learned.items()})

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

    def evidence(self, needs: Needs) -> tuple[Tensor, Gradients]:
        """Return the approximate log evidence, 0-d, and a function that returns its gradients.

        Args:
            needs: Which gradients are needed.
        """
        return self.mode.evidence, partial(self.gradients, needs)

    @abstractmethod
    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients (...) of the log evidence in the tensors on which it depends, or None.

        Args:
            needs: Which gradients are needed.
        """

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, 1) and variance (n,) of f at each row given all others, by Laplace's cavity."""
        parts = []
        with torch.no_grad():
            for block in self.passes.blocks(self.detached):
                f, variance = self.moments_at(block)
                parts.append(cavity(f, variance, RowLikelihood(self.bound_likelihood, block).terms(f)))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means)[:, None], torch.cat(variances)

    @abstractmethod
    def moments_at(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return f at the mode, and its variance, (b,) each.

        Args:
            block: A block of b rows.
        """


def _factor(gram: Tensor) -> Tensor:
    return cholesky(gram.diagonal_scatter(gram.diagonal() + 1), _MATRIX)


def _step_factor(state: WeightState) -> Tensor:
    """Return the factor of A, with the majorizer unless A is positive definite."""
    if state.excess is not None:
        newton = state.gram - state.excess
        factor, failed = torch.linalg.cholesky_ex(newton.diagonal_scatter(newton.diagonal() + 1))
        if not failed:
            return torch.as_tensor(factor)
    return _factor(state.gram)


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


def _line_sums(
    passes: FeaturePasses, likelihood: Likelihood, weights: Tensor, change: Tensor, model: LinearModel
) -> Sums:
    """Return the log densities (l,) of the rows at each shorter length of a step (F,)."""
    values = model.mean.new_zeros(len(_SHORTER_LENGTHS))
    for block in passes.blocks(model):
        f, slope = passes.fitted(model, block, torch.stack([weights, change], dim=1)).mT
        rows = RowLikelihood(likelihood, block)
        for i, length in enumerate(_SHORTER_LENGTHS):
            values[i] += rows.log_prob(model.mean + f + length * slope)
    return (values,)
