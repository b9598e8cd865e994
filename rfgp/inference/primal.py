"""Bayesian linear regression on features, in blocks of rows: memory O(block x F + F^2), however many rows.

In the notation of `rfgp.inference.dense`, with Phi = s phi and s^2 the prior variance of the weights. A first pass
over the rows gathers phi^T D^-1 phi and phi^T D^-1 y, which is all that prediction needs. A second one computes the
residuals r = y - Phi w, and with them the log density and, where asked for, its gradient: since w minimises the
quadratic form and d log|A| = tr(A^-1 dA),

    d/dphi = s D^-1 (r w^T - Phi A^-1),     d/dmean = sum_i r_i / D_i,     d/ds^2 = (w^T w - F + tr A^-1) / (2 s^2),
    d/dD_i = (r_i^2 / D_i^2 + Phi_i A^-1 Phi_i^T / D_i^2 - 1 / D_i) / 2,

the first of which is pulled back through the features of one block at a time. Features are computed twice and never
kept. The first pass is `rfgp.inference.linear`.

k outputs share A: y, r and w have k columns, the quadratic forms add up, and what comes of log|A| counts k times. A row
of weight w_i (see `rfgp.rows.blocks`) has D_i = (noise + fixed_i) / w_i, and with the factor that its observations
leave beside their mean its -1/2 log(2 pi D_i) becomes -w_i/2 log(2 pi (noise + fixed_i)).

What features miss of a kernel, s^2 r_i with r_i = 1 - phi_i phi_i^T (`rfgp.inference.priors.Residual`), may be noise of
each observation beside fixed_i (FITC, Snelson and Ghahramani 2006); the slope g_i in it reaches s^2 as g_i r_i and
phi_i as -2 s^2 g_i phi_i. Or the density is a lower bound of the exact one's (VFE, Titsias 2009, Eq. 9), with the
term -k/2 sum_i w_i s^2 r_i / (noise + fixed_i).
"""

import math
from functools import partial
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.evidence import Evidence
from rfgp.inference.laws import Posterior
from rfgp.inference.linear import LinearModel, Solved, Statistics, block_rows, gather, solve, summed
from rfgp.inference.posteriors import FactorCovariance, WeightPosterior
from rfgp.linalg import cholesky
from rfgp.rows import Block, Rows, gathered
from rfgp.rows.blocks import Sums

_LOG_2PI = math.log(2 * math.pi)


def absorbs(posterior: Posterior | None) -> TypeGuard[WeightPosterior]:
    """Return whether a posterior takes new rows without the old ones."""
    return isinstance(posterior, WeightPosterior) and isinstance(posterior.uncertainty, FactorCovariance)


def absorb(
    model: LinearModel,
    weights: Tensor,  # (F, k)
    factor: Tensor,  # (F, F)
) -> tuple[WeightPosterior, Statistics]:
    """Return the posterior given the rows of `weights` and `factor` and those of `model`, reading only the latter.

    A grows by s^2 phi^T D^-1 phi and A w by s phi^T D^-1 (y - mean).

    Args:
        model: The new rows; mean, noise, variance and parameters are those of the old ones.
        weights: (F, k), the posterior mean given the old rows.
        factor: (F, F), the Cholesky factor of their A.

    Returns:
        The posterior, and the statistics of the new rows.
    """
    new, scale = gather(model), model.variance.sqrt()
    matrix = factor @ factor.mT + (model.variance / model.noise) * new.gram
    target = factor @ (factor.mT @ weights) + (scale / model.noise) * new.target
    grown = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    weights = torch.cholesky_solve(target, grown)
    return WeightPosterior(model.prior, weights, FactorCovariance(grown)), new


class FeatureEvidence(Evidence):
    """Bayesian linear regression on features.

    Args:
        model: The data and what they are a function of; the likelihood is differentiable in its mean, noise, variance
            and parameters.
        solved: The posterior of the weights, where it is known; None: one pass over the rows.
    """

    def __init__(self, model: LinearModel, solved: Solved | None = None) -> None:
        self.model, self._detached = model, model.detached()
        if solved is None:
            with torch.no_grad():
                solved = solve(gather(self._detached), self._detached.variance, self._detached.noise)
        self._solved = solved

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        return log_density(self.model, self._detached, self._solved)

    @property
    def weights_used(self) -> float:
        """The share of the weights that the data determine, (F - tr A^-1) / F."""
        count = len(self._solved.factor)
        return 1 - float(torch.cholesky_inverse(self._solved.factor).diagonal().sum()) / count

    def leave_one_out(self, some: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each y_i given all the other rows; of `some` of them, if given.

        With C^-1 = D^-1 - D^-1 Phi A^-1 Phi^T D^-1: (C^-1)_ii = (1 - h_i) / D_i, h_i = Phi_i A^-1 Phi_i^T / D_i.
        """
        means, variances, model = [], [], self._detached
        with torch.no_grad():
            for block in (model.rows if some is None else some).blocks(block_rows(model.num_features)):
                unit = model.phi(block).double()
                phi, noise_diag = model.variance.sqrt() * unit, model.completed(block, unit).noise_diag(model.noise)
                root = torch.linalg.solve_triangular(self._solved.factor, phi.mT, upper=False)
                left = 1 - root.square().sum(0) / noise_diag
                residual = block.targets - model.mean - phi @ self._solved.weights
                means.append(block.targets - residual / left[:, None])
                once = 1 - 1 / block.counts() if model.adds_noise else 1.0  # of a residual that D_i has, or has not
                variances.append(noise_diag / left + once * model.prior.missing(phi))
        return torch.cat(means), torch.cat(variances)

    def posterior(self) -> WeightPosterior:
        """Return the weights and the factor of their precision; with gradients where these are enabled."""
        model, solved = self.model, self._solved
        if torch.is_grad_enabled():
            solved = solve(_differentiable_statistics(model), model.variance, model.noise)
        return WeightPosterior(model.prior, solved.weights, FactorCovariance(solved.factor))


def _differentiable_statistics(model: LinearModel) -> Statistics:
    """Return the statistics of one block of all rows, for autograd."""
    block = gathered(model.rows)
    phi = model.phi(block).double()
    noise_diag = model.completed(block, phi).noise_diag(model.noise)
    root = (model.noise / noise_diag).sqrt().expand(len(block))[:, None]
    phi, y = phi * root, (block.targets - model.mean) * root
    rows, count = (y.new_tensor(float(number)) for number in (len(block), block.count))
    return Statistics(phi.mT @ phi, phi.mT @ y, y.square().sum(), rows, count)


def log_density(model: LinearModel, detached: LinearModel, solved: Solved) -> Tensor:
    """Return log N(y; mean, s^2 phi phi^T + D), 0-d, differentiable in mean, noise, variance and parameters.

    Args:
        model: With gradients where they are wanted.
        detached: The same without.
        solved: The posterior of its weights.
    """
    out: Tensor = _LogDensity.apply(detached, solved, model.mean, model.noise, model.variance, *model.parameters)
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

    def by_row(self, model: LinearModel) -> bool:
        """Whether any is a sum over rows of what A^-1 says of each."""
        in_noise = self.noise or (self.variance and model.adds_noise)
        return self.through_features or (in_noise and not model.is_uniform)

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
        for_sums = inverse if wanted.by_row(model) else None
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
        self._bound, self._bound_in_noise, self._in_residual = zero.clone(), zero.clone(), zero.clone()
        self._in_parameters = [
            torch.zeros_like(p, dtype=torch.float64) if w else None
            for p, w in zip(model.parameters, wanted.parameters, strict=True)
        ]
        self._inverse = inverse
        self._covariance: Tensor | None = None  # s^2 A^-1 and s w, in the dtype of the features
        self._weights: Tensor | None = None

    def add(self, block: Block) -> None:
        """Add a block of rows."""
        model = self._model
        through = self._wanted.through_features
        with torch.set_grad_enabled(through):
            pairs = zip(model.parameters, self._wanted.parameters, strict=True)
            leaves = tuple(p.detach().requires_grad_(w) for p, w in pairs)
            phi = model.phi(block, *leaves)
        if self._weights is None:
            self._weights = (self._scale * self._solved.weights).to(phi.detach())
        block = model.completed(block, phi.detach())
        residual = block.targets - model.mean - (phi.detach() @ self._weights).double()
        noise, precision = block.observation_noise(model.noise), 1 / block.noise_diag(model.noise)
        self._square += (residual.square().sum(1) * precision).sum()
        self._logs += (block.counts() * (_LOG_2PI + noise.log())).sum()
        self._in_mean += (residual * precision.reshape(-1, 1)).sum(0)
        if model.prior.residual is not None and not model.adds_noise:
            self._add_bound(block, phi.detach())
        if self._wanted.by_row(model):
            self._add_gradients(block, phi, leaves, residual)

    def _add_bound(self, block: Block, phi: Tensor) -> None:
        """Add to the sum of w_i s^2 r_i / (noise + fixed_i), half of which a bound is less than the density."""
        assert self._model.prior.residual is not None
        share = block.counts() * self._model.prior.residual.missing(phi) / block.observation_noise(self._model.noise)
        self._in_residual -= 0.5 * block.num_outputs * share.sum()
        self._bound += self._model.variance * share.sum()
        by_noise = self._model.variance * (share / block.observation_noise(self._model.noise)).sum()
        self._bound_in_noise += 0.5 * block.num_outputs * by_noise

    def _add_gradients(self, block: Block, phi: Tensor, leaves: tuple[Tensor, ...], residual: Tensor) -> None:
        """Add to the gradient in the features' parameters, and in the noise where it is not that of all rows."""
        k, noise_diag = residual.shape[1], block.noise_diag(self._model.noise)
        if self._covariance is None:
            assert self._inverse is not None
            self._covariance = (self._scale.square() * self._inverse).to(phi)
        pushed = phi.detach() @ self._covariance
        if not self._model.is_uniform:
            leverage = (pushed * phi.detach()).sum(1).double()
            slope = (residual.square().sum(1) + k * leverage) / noise_diag - k * block.counts()
            slope *= 0.5 / block.observation_noise(self._model.noise)
            self._in_noise += slope.sum()
            if self._model.adds_noise and self._model.prior.residual is not None:
                self._in_residual += (slope * self._model.prior.residual.missing(phi.detach())).sum()
        if not self._wanted.through_features:
            return
        assert self._weights is not None
        upstream = torch.addmm(pushed, residual.to(phi), self._weights.mT, beta=-k)
        upstream *= (1 / noise_diag).to(phi).reshape(-1, 1)
        if self._model.prior.residual is not None:
            by_row = slope if self._model.adds_noise else -0.5 * k / noise_diag
            upstream -= 2 * (self._model.variance * by_row).to(phi).reshape(-1, 1) * phi.detach()
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        gradients = iter(torch.autograd.grad(phi, wanted, upstream))
        for total, leaf in zip(self._in_parameters, leaves, strict=True):
            if total is not None and leaf.requires_grad:
                total += next(gradients)

    def sums(self) -> Sums:
        """Return what has been added up."""
        in_parameters = (total for total in self._in_parameters if total is not None)
        bound = (self._bound, self._bound_in_noise, self._in_residual)
        return (self._square, self._logs, self._in_mean, self._in_noise, *bound, *in_parameters)

    def take(self, sums: Sums) -> None:
        """Put sums in the place of one's own."""
        self._square, self._logs, self._in_mean, self._in_noise, *others = sums
        self._bound, self._bound_in_noise, self._in_residual, *others = others
        left = iter(others)
        self._in_parameters = [None if total is None else next(left) for total in self._in_parameters]

    def value(self) -> Tensor:
        """Return the log density, 0-d."""
        solved, k = self._solved, self._model.rows.num_outputs
        determinant = 2 * solved.factor.diagonal().log().sum()
        return -0.5 * (self._square + solved.weights.square().sum() + k * (determinant + self._logs + self._bound))

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Return the gradients in mean, noise, variance and the parameters, None where not asked for."""
        model, wanted = self._model, self._wanted
        in_parameters = [
            None if total is None else total.to(p)
            for p, total in zip(model.parameters, self._in_parameters, strict=True)
        ]
        return (
            self._in_mean if wanted.mean else None,
            self._total_in_noise() + self._bound_in_noise if wanted.noise else None,
            self._total_in_variance() + self._in_residual if wanted.variance else None,
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
