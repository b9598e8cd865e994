"""Bayesian linear regression on features, in blocks of rows, and bounds of the exact log marginal likelihood.

The notation is that of `rfgp.solvers.dense`, with Phi = [s_1 phi_1, s_2 phi_2, ...]. The first pass over the rows
accumulates phi^T D^-1 phi and phi^T D^-1 y, which suffice for predictions (`rfgp.solvers.lowrank.statistics`). The
second pass computes the residuals r = y - mean - Phi w, the log marginal likelihood and, on demand, its gradient. w
minimizes the quadratic form, and d log|A| = tr(A^-1 dA). Hence

    d/dphi_t = s_t D^-1 (r w_t^T - (Phi A^-1)_t),    d/dmean = sum_i r_i / D_i,
    d/ds_t^2 = (w_t^T w_t - F_t + tr (A^-1)_tt) / (2 s_t^2),
    d/dD_i = (r_i^2 / D_i^2 + Phi_i A^-1 Phi_i^T / D_i^2 - 1 / D_i) / 2.

The derivative in phi_t is propagated to the parameters of the features block by block. Features are computed twice and
never stored. k outputs share A. The quadratic form of output j has the weight c_j, and the determinants the weight
sum_j c_j. A row of weight w_i (see `rfgp.rows.blocks`) has D_i = (noise + fixed_i) / w_i. With the sum of squares of
its observations about their mean, its -1/2 log(2 pi D_i) becomes -w_i/2 log(2 pi (noise + fixed_i)).

The residual of a kernel is s_t^2 q_i with q_i = 1 - phi_ti phi_ti^T (`rfgp.blocks.Residual`). It may be noise of each
observation, added to fixed_i (FITC, Snelson and Ghahramani 2006). Then a derivative g_i in it adds g_i q_i to the
gradient in s_t^2 and -2 s_t^2 g_i phi_ti to that in phi_ti. Otherwise the likelihood is a lower bound of the exact one
(VFE, Titsias 2009, Eq. 9), with the term -k/2 sum_i w_i s_t^2 q_i / (noise + fixed_i).

For one term phi = [a cos(x W^T), a sin(x W^T)] and one noise D for all rows, `rfgp.solvers.lowrank.solver` has

    d/dphi = s D^-1 (r w^T - k Phi A^-1).

The first part has rank k. Its derivative in the frequencies needs one product of F rows,

    d/dW = s/D sum_j diag(w_sin,j) C^T (r_j x) - diag(w_cos,j) S^T (r_j x),    phi = [C, S].

The second part is a sum over rows of products with A^-1, a third of all operations. Given A it can be estimated from
`trace_rows`, without bias if these rows are random. This suffices for steps of stochastic gradients.

The notation is that of `rfgp.solvers.lowrank.solver`. Let Q = Phi Phi^T, K = sum_t s_t^2 k_t, and let
t = sum_i s^2 q_i / D_i be the trace of D^-1/2 (K - Q) D^-1/2. Then Q <= K <= Q + t D in the order of positive
semidefinite matrices:

    log N(y; mean, Q + D) - k t / 2  <=  log N(y; mean, K + D)
                                     <=  log N(y; mean, Q + D) + (a(1) - a(1 + t)) / 2,
    a(c) = (y - mean)^T (Q + c D)^-1 (y - mean).

The first is Titsias' variational bound (2009, Eq. 9). The second follows from |K + D| >= |Q + D| and the order above
(Titsias 2014, "Variational inference for Gaussian and determinantal point processes", Section 2). The first bound's gap
is the Kullback-Leibler divergence from the variational posterior to the exact one, at most the distance of both bounds
(Burt, Rasmussen and van der Wilk 2019).
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import Prior, WeightBlock, Weights
from rfgp.linalg import cholesky, half_solve
from rfgp.rows import Block, Rows, gathered
from rfgp.rows.blocks import Sums
from rfgp.solvers.lowrank.posterior import FactorCovariance, LowRankPosterior
from rfgp.solvers.lowrank.statistics import (
    LinearModel,
    ParameterGradients,
    Statistics,
    WeightSolution,
    accumulate_gram,
    add_symmetric_product,
    block_rows,
    needs_root,
    quadratic_form,
    root_of,
    solve,
    solve_root,
    summed,
    symmetrized,
)
from rfgp.solvers.role import Inference

# --- Bayesian linear regression on features, in blocks of rows, with memory O(block x F + F^2) -----------------------

_LOG_2PI = math.log(2 * math.pi)


def update_gram(model: LinearModel, posterior: LowRankPosterior) -> tuple[LowRankPosterior, Statistics]:
    """Return the posterior given old and new rows, and the statistics of the new rows.

    Only the new rows are read. A grows by Phi^T D^-1 Phi and A w by Phi^T D^-1 (y - mean).

    Args:
        model: The new rows. Mean, noise, variances and parameters must be those of the old rows.
        posterior: A posterior with the factor of the weights' precision.
    """
    factor, new = posterior.factor, accumulate_gram(model)
    assert factor is not None
    scale = (model.scale / model.noise)[:, None]
    if WeightSolution(factor, posterior.weights).is_ill_conditioned:
        before = factor.mT @ torch.cat([torch.eye(len(factor)).to(factor), posterior.weights], dim=1)
        rows = root_of(model) * torch.cat([model.scale, torch.ones_like(model.mean)]) / model.noise.sqrt()
        grown, weights = solve_root(torch.cat([before, rows]), len(factor))
        return LowRankPosterior(posterior.prior, weights, FactorCovariance(grown)), new
    matrix = factor @ factor.mT + scale * new.gram * model.scale
    target = factor @ (factor.mT @ posterior.weights) + scale * new.target
    grown = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    weights = torch.cholesky_solve(target, grown)
    return LowRankPosterior(posterior.prior, weights, FactorCovariance(grown)), new


class LowRankSolver(Inference):
    """Rows under dense weights, through F x F algebra.

    Args:
        model: The rows and their features. The likelihood is differentiable in mean, noise, variances and parameters.
        solution: The posterior of the weights. If None, it is computed in one pass over the rows.

    Examples:
        >>> from rfgp.blocks import WeightBlock, Weights
        >>> weights = Weights((WeightBlock(lambda x: x, num_features=1),))
        >>> rows = Block(torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0]]).double())
        >>> model = LinearModel(weights, rows, torch.zeros(1).double(), torch.tensor(1.0).double())
        >>> LowRankSolver(model).posterior().weights.round(decimals=4).tolist()  # x^T y / (1 + x^T x)
        [[0.8333]]
    """

    def __init__(self, model: LinearModel, solution: WeightSolution | None = None) -> None:
        self.model, self._detached = model, model.detached()
        if solution is None:
            with torch.no_grad():
                solution = solve(accumulate_gram(self._detached), self._detached.scale, self._detached.noise)
        self.solution = solution

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, with its gradient.

        Both take one pass over the rows.
        """
        model = self.model
        return with_gradient(self._value, model.mean, model.noise, model.variances, *model.parameters)

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        required = RequiredGradients(needs[1], needs[2], needs[3:], self.solution.is_ill_conditioned)
        inverse = torch.cholesky_inverse(self.solution.factor) if required.inverse else None
        by_row = inverse if required.by_row(self._detached) else None
        by_row = self.solution.factor if required.by_solves and by_row is not None else by_row
        totals = Totals.of(summed(self._detached, partial(_second_pass, self.solution.weights, required, by_row)))
        grad_parameters = [
            total.to(p) for total, p in zip(totals.grad_parameters, self._detached.parameters, strict=True)
        ]
        all_gradients = [*closed_gradients(self._detached, self.solution, totals, inverse), *grad_parameters]
        gradients = [gradient if need else None for gradient, need in zip(all_gradients, needs, strict=True)]
        return log_marginal_likelihood_of(self._detached, self.solution, totals), lambda: gradients

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The effective degrees of freedom of the weights divided by F, (F - tr A^-1) / F."""
        return 1 - float(torch.cholesky_inverse(self.solution.factor).diagonal().mean())

    def leave_one_out(self, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        C^-1 = D^-1 - D^-1 Phi A^-1 Phi^T D^-1, so (C^-1)_ii = (1 - h_i) / D_i with h_i = Phi_i A^-1 Phi_i^T / D_i.

        Args:
            rows: The rows whose moments are returned. If None, all.
        """
        means, variances, model = [], [], self._detached
        with torch.no_grad():
            for block in (model.rows if rows is None else rows).blocks(block_rows(model.num_features)):
                phi = model.phi(block).double()
                scaled_phi = model.scale * phi
                noise_diag = model.with_fitc_noise(block, phi).noise_diag(model.noise)
                root = half_solve(self.solution.factor, scaled_phi.mT)
                complement = 1 - root.square().sum(0) / noise_diag  # 1 - h_i
                residual = block.targets - model.mean - scaled_phi @ self.solution.weights
                means.append(block.targets - residual / complement[:, None])
                once = 1 - 1 / block.counts()  # residual noise is in D once for each repetition
                residual_variances = model.weights.unscaled_residual_variances(phi, block.inputs)
                fitc, vfe = model.fitc_variances @ residual_variances, model.vfe_variances @ residual_variances
                variances.append(noise_diag / complement + once * fitc + vfe)
        return torch.cat(means), torch.cat(variances)

    def posterior(self) -> LowRankPosterior:
        """Return the posterior of the weights, with gradients if these are enabled."""
        model, solution = self.model, self.solution
        if torch.is_grad_enabled():
            solution = solve(_differentiable_statistics(model), model.scale, model.noise)
        prior = Prior(weights=model.weights.blocks)
        return LowRankPosterior(prior, solution.weights, FactorCovariance(solution.factor))


def _differentiable_statistics(model: LinearModel) -> Statistics:
    """Return the statistics of one block of all rows, for autograd."""
    all_rows = gathered(model.rows)
    phi = model.phi(all_rows).double()
    noise_diag = model.with_fitc_noise(all_rows, phi).noise_diag(model.noise)
    root = (model.noise / noise_diag).sqrt().expand(len(all_rows))[:, None]
    phi, y = phi * root, (all_rows.targets - model.mean) * root
    rows, count = (y.new_tensor(float(number)) for number in (len(all_rows), all_rows.count))
    statistics = Statistics(phi.mT @ phi, phi.mT @ y, y.square().sum(), rows, count)
    is_needed = needs_root(statistics, model.scale, model.noise)
    return statistics._replace(root=torch.cat([phi, y], dim=1)) if is_needed else statistics


class RequiredGradients(NamedTuple):
    """Which gradients are required. The gradient in the mean is always computed.

    Attributes:
        noise: Whether the gradient in the noise is required.
        variances: Whether the gradient in the variances of the terms is required.
        parameters: Whether the gradient in each parameter of the features is required.
        by_solves: Whether A is so ill-conditioned that products with A^-1 need solves.
    """

    noise: bool
    variances: bool
    parameters: Needs
    by_solves: bool = False

    @property
    def through_features(self) -> bool:
        """Whether the gradient in a parameter of the features is required."""
        return any(self.parameters)

    def by_row(self, model: LinearModel) -> bool:
        """Return whether a gradient is a sum over rows of terms in A^-1.

        Args:
            model: The linear model of the rows.
        """
        through_noise = self.noise or (self.variances and model.weights.adds_noise)
        return self.through_features or (through_noise and not model.is_homoscedastic)

    @property
    def inverse(self) -> bool:
        """Whether A^-1 is required."""
        return self.noise or self.variances or self.through_features


class Totals(NamedTuple):
    """Sums over the rows for the log marginal likelihood and its gradient."""

    square: Tensor  # 0-d, sum over rows and outputs of c_j r_ij^2 / D_i
    logs: Tensor  # 0-d, sum of w_i log(2 pi (noise + fixed_i))
    bound: Tensor  # (T,), sum of w_i q_ti / (noise + fixed_i) over residuals that bound the likelihood
    bound_grad_noise: Tensor  # 0-d, the derivative of -k/2 sum_t s_t^2 bound_t in the noise
    grad_mean: Tensor  # (k,)
    grad_noise: Tensor  # 0-d
    grad_fitc: Tensor  # (T,), the derivative in s_t^2 through residuals that are noise
    grad_parameters: tuple[Tensor, ...]  # 0 if not needed

    @classmethod
    def of(cls, sums: Sums) -> "Totals":
        """Return the totals from a flat tuple of their fields.

        The gradients in the parameters are last.

        Args:
            sums: The fields.
        """
        square, logs, bound, bound_grad_noise, grad_mean, grad_noise, grad_fitc, *grad_parameters = sums
        return cls(square, logs, bound, bound_grad_noise, grad_mean, grad_noise, grad_fitc, tuple(grad_parameters))


class _SecondPass:
    """The second pass over some rows.

    Args:
        weights: The posterior mean w, (F, k).
        needs: The required gradients.
        inverse: A^-1 (F, F), or the factor of A for solves, if a gradient needs it by row.
        model: The model with the rows.
    """

    def __init__(self, weights: Tensor, needs: RequiredGradients, inverse: Tensor | None, model: LinearModel) -> None:
        self._model, self._needs, self._scaled_weights = model, needs, model.scale[:, None] * weights
        self._inverse = inverse
        if inverse is not None and not needs.by_solves:
            self._inverse = model.scale[:, None] * inverse * model.scale
        zero, terms = model.noise.new_zeros(()), torch.zeros_like(model.variances)
        self._square, self._logs, self._grad_noise, self._bound_grad_noise = (zero.clone() for _ in range(4))
        self._bound, self._grad_fitc = terms.clone(), terms.clone()
        self._grad_mean, self._output_weights = torch.zeros_like(model.mean), model.output_weights
        self._grad_parameters = ParameterGradients(model, needs.parameters)

    def add(self, block: Block) -> None:
        """Add a block of rows."""
        model, phi = self._model, self._grad_parameters.features(block)
        block = model.with_fitc_noise(block, phi)
        residual = block.targets - model.mean - (phi @ self._scaled_weights.to(phi)).double()
        noise, precision = block.observation_noise(model.noise), 1 / block.noise_diag(model.noise)
        self._square += ((residual.square() @ self._output_weights) * precision).sum()
        self._square += block.weighted_replicate_squares(model.noise).sum()
        self._logs += (block.counts() * (_LOG_2PI + noise.log())).sum()
        self._grad_mean += (residual * precision.reshape(-1, 1)).sum(0) * self._output_weights
        bound_noise_gradient = self._add_bound(block, phi) if model.weights.has_residual else None
        if self._needs.by_row(model):
            noise_gradient = self._add_noise(block, phi, residual, bound_noise_gradient)
            if self._grad_parameters.is_needed:
                grad_residual = self._grad_residual(block, noise_gradient) if model.weights.has_residual else None
                self._grad_parameters.add(self._grad_features(block, phi, residual, grad_residual), grad_residual)

    def _add_bound(self, block: Block, phi: Tensor) -> Tensor:
        """Add to the sums of w_i q_ti / (noise + fixed_i) of residuals with a VFE bound.

        Return the derivative of their term -k/2 sum_t s_t^2 bound_t in each row's noise, (b,).
        """
        noise = block.observation_noise(self._model.noise)
        ratios = self._model.weights.unscaled_residual_variances(phi, block.inputs) * (block.counts() / noise)
        self._bound += torch.where(self._model.vfe_variances > 0, ratios.sum(1), 0.0)
        noise_gradient = 0.5 * self._output_weights.sum() * (self._model.vfe_variances @ (ratios / noise))
        self._bound_grad_noise += noise_gradient.sum()
        return noise_gradient

    def _add_noise(
        self, block: Block, phi: Tensor, residual: Tensor, bound_noise_gradient: Tensor | None
    ) -> Tensor | None:
        """Add to the gradients in the noise and in residuals.

        Return the gradient in each row's noise, (b,), or None if all rows have the same noise.
        """
        model = self._model
        assert self._inverse is not None
        self._inverse = self._inverse.to(phi)
        if self._needs.by_solves:  # A^-1 itself would be multiplied by large numbers that cancel
            self._phi_inverse = torch.cholesky_solve((model.scale * phi).mT, self._inverse).mT * model.scale
        else:
            self._phi_inverse = phi @ self._inverse
        if model.is_homoscedastic:
            return None
        leverage, k = (self._phi_inverse * phi).sum(1).double(), self._output_weights.sum()
        noise_gradient = (residual.square() @ self._output_weights + k * leverage) / block.noise_diag(
            model.noise
        ) - k * block.counts()
        noise_gradient = noise_gradient + block.weighted_replicate_squares(model.noise)
        noise_gradient = noise_gradient * (0.5 / block.observation_noise(model.noise))
        self._grad_noise += noise_gradient.sum()
        if bound_noise_gradient is not None:
            noise_gradient = noise_gradient + bound_noise_gradient
        if model.weights.adds_noise:
            grad_fitc = model.weights.unscaled_residual_variances(phi, block.inputs) @ noise_gradient
            self._grad_fitc += torch.where(model.fitc_variances > 0, grad_fitc, 0.0)
        return noise_gradient

    def _grad_residual(self, block: Block, noise_gradient: Tensor | None) -> Tensor:
        """Return the derivatives in the variances of residuals, (T, b).

        Args:
            block: The rows.
            noise_gradient: The derivative in each row's noise, (b,). If None, no residual is noise.
        """
        model = self._model
        bound = (-0.5 * self._output_weights.sum() / block.noise_diag(model.noise)).expand(len(block))
        grad_residual = model.vfe_variances[:, None] * bound
        return (
            grad_residual if noise_gradient is None else grad_residual + model.fitc_variances[:, None] * noise_gradient
        )

    def _grad_features(self, block: Block, phi: Tensor, residual: Tensor, grad_residual: Tensor | None) -> Tensor:
        """Return the derivatives in the features of a block, (b, F).

        Args:
            block: The rows.
            phi: The features without the prior scales, (b, F).
            residual: The targets minus the predicted means, (b, k).
            grad_residual: The derivatives in the variances of residuals, (T, b). If None, there are no residuals.
        """
        model, k, noise_diag = self._model, self._output_weights.sum(), block.noise_diag(self._model.noise)
        weighted = (residual * self._output_weights).to(phi)
        out = torch.addmm(self._phi_inverse, weighted, self._scaled_weights.to(phi).mT, beta=-float(k))
        out *= (1 / noise_diag).to(phi).reshape(-1, 1)
        if grad_residual is not None:
            out -= 2 * grad_residual.repeat_interleave(torch.tensor(model.weights.sizes), dim=0).mT.to(phi) * phi
        return out

    def sums(self) -> Sums:
        """Return the totals as a flat tuple."""
        values = (self._square, self._logs, self._bound, self._bound_grad_noise)
        return (*values, self._grad_mean, self._grad_noise, self._grad_fitc, *self._grad_parameters.sums)


def _second_pass(weights: Tensor, needs: RequiredGradients, inverse: Tensor | None, model: LinearModel) -> Sums:
    """Return the totals of a model's rows."""
    second = _SecondPass(weights, needs, inverse, model)
    for block in model.blocks():
        second.add(block)
    return second.sums()


def log_marginal_likelihood_of(model: LinearModel, solution: WeightSolution, totals: Totals) -> Tensor:
    """Return the log marginal likelihood, 0-d, from the totals of the second pass.

    Args:
        model: The linear model of the rows.
        solution: The posterior of the weights.
        totals: The sums over the rows.
    """
    output_weights, log_determinant = model.output_weights, 2 * solution.factor.diagonal().log().sum()
    bound = model.variances @ totals.bound
    squares = totals.square + solution.weights.square().sum(0) @ output_weights
    return -0.5 * (squares + output_weights.sum() * (log_determinant + totals.logs + bound))


def closed_gradients(
    model: LinearModel, solution: WeightSolution, totals: Totals, inverse: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients in mean, noise and variances.

    Args:
        model: The model.
        solution: The posterior of the weights.
        totals: The sums of the second pass.
        inverse: A^-1, (F, F). If None, only the gradient in the mean is computed.

    Returns:
        The gradients (k,), 0-d and (T,).
    """
    k, grad_noise, grad_variances = model.output_weights.sum(), None, None
    if inverse is not None:
        moments = model.weights.by_block(
            solution.weights.square() @ model.output_weights + k * (inverse.diagonal() - 1)
        )
        bound = -0.5 * k * totals.bound
        grad_variances = 0.5 * moments / model.variances + totals.grad_fitc + bound
        grad_noise = totals.grad_noise + totals.bound_grad_noise
        if model.is_homoscedastic:  # sum_i Phi_i A^-1 Phi_i^T / D = F - tr A^-1
            dof = len(inverse) - inverse.diagonal().sum()
            grad_noise = 0.5 / model.noise * (totals.square + k * (dof - len(model.rows))) + totals.bound_grad_noise
    return totals.grad_mean, grad_noise, grad_variances


# --- The log marginal likelihood of rows under random Fourier features -----------------------------------------------


def has_fourier_features(model: LinearModel) -> bool:
    """Return whether `fourier_log_likelihood` supports the terms and noise of a model.

    There must be one term of cosine and sine features without a residual, and no row with a weight or noise of its own.

    Args:
        model: The linear model of the rows.
    """
    blocks = model.weights.blocks
    return len(blocks) == 1 and blocks[0].fourier is not None and blocks[0].residual is None and model.is_homoscedastic


def fourier_log_likelihood(model: LinearModel, trace_rows: slice) -> Tensor:
    """Return the log marginal likelihood of random Fourier features, 0-d.

    It is differentiable once in all hyperparameters and frequencies.

    Args:
        model: One block of rows in memory that satisfies `has_fourier_features`.
        trace_rows: The rows that estimate the derivative of log|A| in the frequencies.
    """
    (block,) = model.weights.blocks
    assert block.fourier is not None
    frequencies, columns, amplitudes = block.fourier(*block.parameters)
    compute = partial(_value, model.detached(), frequencies.detach(), columns, amplitudes.detach(), trace_rows)
    return with_gradient(compute, model.mean, model.noise, model.variances, frequencies)


def _value(
    model: LinearModel, frequencies: Tensor, columns: list[int], amplitudes: Tensor, trace_rows: slice, needs: Needs
) -> tuple[Tensor, Gradients]:
    rows, noise, m = gathered(model.rows), model.noise, len(frequencies)
    x = rows.inputs[:, columns]
    x = x.double() if model.needs_float64 else x
    phi = x.new_empty(len(x), 2 * m)
    angles = x @ frequencies.to(x).mT
    torch.cos(angles, out=phi[:, :m])
    torch.sin(angles, out=phi[:, m:])
    phi.view(len(x), 2, m).mul_(amplitudes.to(x))
    centered = rows.targets - model.mean
    gram = torch.zeros(2 * m, 2 * m, dtype=torch.float64, device=x.device)
    add_symmetric_product(gram, phi)
    target = (phi.mT @ centered.to(x)).double()
    count = centered.new_tensor(float(len(x)))
    solution = solve(Statistics(symmetrized(gram), target, centered.square().sum(), count, count), model.scale, noise)
    scaled_weights = model.scale[:, None] * solution.weights
    residual = centered - (phi @ scaled_weights.to(x)).double()
    zero, terms, output_weights = noise.new_zeros(()), torch.zeros_like(model.variances), model.output_weights
    square = (residual.square() @ output_weights).sum() / noise
    logs = count * torch.log(2 * torch.pi * noise)
    grad_mean = residual.sum(0) / noise * output_weights
    totals = Totals(square, logs, terms, zero, grad_mean, zero, terms, ())
    inverse = torch.cholesky_inverse(solution.factor)

    def gradients() -> list[Tensor | None]:
        grad_frequencies = None
        if needs[3]:
            scaled_inverse = (model.scale[:, None] * inverse * model.scale).to(x)
            grad_frequencies = (
                frequency_gradient(
                    phi, x, residual * output_weights, scaled_weights, scaled_inverse, output_weights.sum(), trace_rows
                )
                / noise
            )
        closed = closed_gradients(model, solution, totals, inverse)
        return [g if need else None for g, need in zip((*closed, grad_frequencies), needs, strict=True)]

    return log_marginal_likelihood_of(model, solution, totals), gradients


def frequency_gradient(
    phi: Tensor,  # (b, 2m)
    x: Tensor,  # (b, c)
    residual: Tensor,  # (b, k)
    weights: Tensor,  # (2m, k)
    inverse: Tensor,  # (2m, 2m) s A^-1 s
    outputs: Tensor,  # 0-d
    trace_rows: slice,
) -> Tensor:  # (m, c)
    """Return the gradient in the frequencies, times the noise.

    Args:
        phi: The features, (b, 2m).
        x: The inputs, (b, c).
        residual: The targets minus the predicted means, times the weights of the outputs, (b, k).
        weights: The posterior mean of the weights times their prior standard deviations, (2m, k).
        inverse: s A^-1 s, (2m, 2m).
        outputs: The sum of the weights of the outputs, 0-d.
        trace_rows: The rows that estimate the derivative of log|A|.

    Returns:
        The gradient, (m, c), float64.
    """
    m = phi.shape[1] // 2
    total = torch.zeros(m, x.shape[1], dtype=torch.float64, device=x.device)
    for r, (w_cos, w_sin) in zip(residual.mT, weights.mT.reshape(-1, 2, m), strict=True):
        grad_cos, grad_sin = (phi.mT @ (r[:, None].to(x) * x)).double().split(m)
        total += w_sin[:, None] * grad_cos - w_cos[:, None] * grad_sin
    subset = phi[trace_rows]
    pushed = subset @ inverse
    grad_angles = subset[:, :m] * pushed[:, m:] - subset[:, m:] * pushed[:, :m]
    factor = float(outputs) * len(phi) / len(subset)
    return total - factor * (grad_angles.mT @ x[trace_rows]).double()


# --- Bounds of the exact log marginal likelihood from features of kernels --------------------------------------------


@dataclass(frozen=True)
class EvidenceBounds:
    """Bounds of the log marginal likelihood of the exact process.

    They hold at the hyperparameters of a model.

    Attributes:
        lower: The lower bound in nats, including constants and units.
        upper: The upper bound in nats.
        count: The number of observations.

    Examples:
        >>> bounds = EvidenceBounds(lower=-10.0, upper=-9.5, count=20)
        >>> bounds.divergence
        0.5
    """

    lower: float
    upper: float
    count: float

    @property
    def divergence(self) -> float:
        """An upper bound of the divergence of the variational from the exact posterior.

        The variational posterior is that of VFE. The divergence is the Kullback-Leibler divergence in nats, for whole
        functions and all observations together.
        """
        return self.upper - self.lower

    def __str__(self) -> str:
        return (
            f"The exact log marginal likelihood is between {self.lower:.6g} and {self.upper:.6g}, so the variational "
            f"posterior (VFE) is at most {self.divergence:.2g} nats from the exact one"
            f" ({self.count:,.6g} observations)."
        )


def evidence_bounds(model: LinearModel, log_jacobian: float = 0.0) -> EvidenceBounds:
    """Return bounds of the exact log marginal likelihood.

    They take three passes over the rows with O(n F^2) operations.

    Args:
        model: A model whose terms have a residual of either kind, or are exact.
        log_jacobian: The log Jacobian of the scaling of targets, added to both bounds. The default is 0.
    """
    with torch.no_grad():
        blocks = tuple(_bounding(block) for block in model.weights.detached().blocks)
        model = replace(model.detached(), weights=Weights(blocks))
        statistics, scale, noise = accumulate_gram(model), model.scale, model.noise
        solution = solve(statistics, scale, noise)
        lower = float(LowRankSolver(model, solution).log_marginal_likelihood())
        trace = float(summed(model, _trace)[0])
        inflated = noise * (1 + trace)
        smaller = quadratic_form(statistics, solve(statistics, scale, inflated), scale, inflated)
        gain = 0.5 * float(quadratic_form(statistics, solution, scale, noise) - smaller)
        upper = lower + 0.5 * model.rows.num_outputs * trace + gain
    return EvidenceBounds(lower + log_jacobian, upper + log_jacobian, model.rows.count)


def _bounding(block: WeightBlock) -> WeightBlock:
    return block if block.residual is None else replace(block, residual=replace(block.residual, is_noise=False))


def _trace(model: LinearModel) -> Sums:
    """Return the trace sum_i s^2 q_i / D_i, 0-d."""
    total = torch.zeros_like(model.noise)
    for block in model.blocks():
        residual_variance = model.vfe_variances @ model.weights.unscaled_residual_variances(
            model.phi(block), block.inputs
        )
        total += (residual_variance / block.noise_diag(model.noise)).sum()
    return (total,)
