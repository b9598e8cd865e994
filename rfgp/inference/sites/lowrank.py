"""Laplace's approximation through features, in blocks of rows.

At the mode w of the weights (`rfgp.inference.sites.weights`)

    log q = sum_i log p(y_i | f_i) - w^T w / 2 - log|A| / 2.

The gradient takes two passes over the rows. The first computes the posterior variances v_i = Phi_i A^-1 Phi_i^T and
s_i = -v_i / 2 dW_i / df_i, for b = A^-1 Phi^T s. The second computes, with u = s - W Phi b (the weight-space form of
`rfgp.inference.sites.laplace`),

    d/dPhi = (g + u) w^T + g b^T - W Phi A^-1,    d/dmean = sum_i g_i + u_i,
    d/ds_t^2 = (w_t^T w_t / 2 + b_t^T w_t - (F_t - tr (A^-1)_tt) / 2) / s_t^2,

and the gradient of sum_i log p + (Phi b)_i g_i - v_i W_i / 2 in the parameters of the likelihood. A row with the count
w has w times the log density, g and W.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.autograd import Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.inference.sites.terms import RowLikelihood
from rfgp.inference.sites.weights import WeightLaplace, terms_at
from rfgp.likelihoods import Likelihood
from rfgp.linalg import half_solve
from rfgp.rows import Block
from rfgp.rows.blocks import Sums
from rfgp.solvers import Inference
from rfgp.solvers.lowrank import FactorCovariance, LinearModel, LowRankPosterior, ParameterGradients, summed

_SAMPLE_ROWS = 2000
"""The number of rows whose curvature decides whether features may be in single precision."""


class LowRankLaplace(WeightLaplace, Inference):
    """Laplace's approximation to the posterior of the weights of features.

    The noise of the model is 1 / mean(W).
    """

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        model = self.model
        return with_gradient(self.evidence, model.mean, model.variances, *model.parameters, *self.learned.values())

    def posterior(self) -> LowRankPosterior:
        """Return the weights and the factor of their precision."""
        prior = Prior(weights=self.model.weights.blocks)
        return LowRankPosterior(prior, self.mode.weights[:, None], FactorCovariance(self.mode.factor))

    def moments_at(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return f at the mode, and its variance, (b,) each."""
        model, mode = self.detached, self.mode
        phi = model.phi(block)
        f = model.mean + model.fitted(phi, mode.weights[:, None])[:, 0]
        return f, half_solve(mode.factor, (model.scale * phi).mT).square().sum(0)

    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients in the mean (1,), the variances (T,), and the parameters of features and likelihood."""
        model, mode, count = self.detached, self.mode, len(self.model.parameters)
        inverse = self.inverse
        covariance = model.scale[:, None] * inverse * model.scale
        learned = {name: value.detach() for name, value in self.learned.items()}
        at_mode = _AtMode(self.likelihood, learned, mode.weights, covariance)
        (pulled,) = summed(model, partial(_implicit_sums, at_mode))
        b = inverse @ pulled
        later_needs = needs[2 : 2 + count], needs[2 + count :]
        in_mean, *others = summed(model, partial(_gradient_sums, at_mode, b, *later_needs))
        explicit = 0.5 * (mode.weights.square() - 1 + inverse.diagonal())
        in_variances = model.weights.by_block(explicit + b * mode.weights) / model.variances
        return [in_mean, in_variances, *(g if need else None for g, need in zip(others, needs[2:], strict=True))]


def with_curvature_noise(model: LinearModel, likelihood: Likelihood) -> LinearModel:
    """Return the model with noise 1 / mean(W).

    W is evaluated at the prior mean, for the first rows.

    Args:
        model: The rows and their features.
        likelihood: The likelihood, with values of all its parameters.
    """
    with torch.no_grad():
        sample = next(iter(model.rows.blocks(_SAMPLE_ROWS)))
        terms = RowLikelihood(likelihood, sample).terms(model.mean.detach().expand(len(sample)))
        return replace(model, noise=1 / terms.weight.mean())


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


def _gradient_sums(at: _AtMode, b: Tensor, features: Needs, learned: Needs, model: LinearModel) -> Sums:
    """Return the gradients in the mean (1,), the features and the likelihood.

    Args:
        at: The mode.
        b: A^-1 Phi^T s, (F,).
        features: Whether each parameter of the features needs a gradient.
        learned: Whether each parameter of the likelihood needs a gradient.
        model: The rows.
    """
    in_mean, in_features = torch.zeros_like(model.mean), ParameterGradients(model, features)
    in_learned = [torch.zeros_like(value) for value in at.learned.values()]
    ends = (model.scale * torch.stack([at.weights, b])).mT
    for block in model.blocks():
        phi = in_features.features(block)
        shift, change = (phi @ ends.to(phi)).double().mT
        f, rows = model.mean + shift, at.rows(block)
        terms = rows.terms(f)
        pushed = phi @ at.covariance.to(phi)
        variance = (pushed * phi).sum(1).double()
        u = -0.5 * variance * terms.weight_slope - terms.weight * change
        in_mean += (terms.gradient + u).sum()
        if in_features.is_needed:
            outer = torch.stack([terms.gradient + u, terms.gradient], dim=1).to(phi) @ ends.to(phi).mT
            in_features.add(outer - terms.weight.to(phi)[:, None] * pushed)
        if any(learned):
            gradients = learned_gradients(at.likelihood, at.learned, learned, block, (f, change, variance))
            for total, gradient in zip(in_learned, gradients, strict=True):
                total += gradient
    return in_mean, *in_features.sums, *in_learned


def learned_gradients(
    likelihood: Likelihood,
    learned: Mapping[str, Tensor],
    needs: Needs,
    block: Block,
    values: tuple[Tensor, Tensor, Tensor],
) -> list[Tensor]:
    """Return the gradients in the learned parameters of a likelihood, 0-d each.

    Args:
        likelihood: The likelihood, with its given parameters.
        learned: The learned parameters, 0-d each.
        needs: Whether each of them needs a gradient.
        block: A block of b rows.
        values: f, Phi b and the posterior variances v of f at these rows, (b,) each.
    """
    with torch.enable_grad():
        leaves = [value.clone().requires_grad_(need) for value, need in zip(learned.values(), needs, strict=True)]
        at_leaves = likelihood.at(dict(zip(learned, leaves, strict=True)))
        total = RowLikelihood(at_leaves, block).parameter_objective(*values)
        gradients = iter(torch.autograd.grad(total, [leaf for leaf in leaves if leaf.requires_grad]))
    return [next(gradients) if need else torch.zeros_like(leaf) for leaf, need in zip(leaves, needs, strict=True)]
