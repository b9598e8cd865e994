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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import Prior, WeightBlock, Weights
from rfgp.linalg import half_solve
from rfgp.rows import Block, Rows, gathered
from rfgp.rows.blocks import Sums
from rfgp.solvers.lowrank.posterior import FactorCovariance, LowRankPosterior
from rfgp.solvers.lowrank.statistics import (
    LinearModel,
    Statistics,
    WeightSolution,
    accumulate_gram,
    add_symmetric_product,
    block_rows,
    gradient_sums,
    needs_root,
    quadratic_form,
    quadratic_forms,
    root_of,
    solve,
    summed,
    symmetrized,
    weighted_blocks,
)
from rfgp.solvers.role import Inference

# --- Bayesian linear regression on features, in blocks of rows, with memory O(block x F + F^2) -----------------------


class RowMoments(NamedTuple):
    """The posterior of f at some rows of weights of features, for moments of rows left out."""

    targets: Tensor  # y, (b, k)
    residual: Tensor  # y minus the posterior mean of f, (b, k)
    known: Tensor  # the posterior variances Phi_i A^-1 Phi_i^T of f, (b,)
    noise_diag: Tensor  # D, () or (b,)
    missing: Tensor  # the residual variances that are not in D, (b,)


def left_out(parts: Iterable[RowMoments]) -> tuple[Tensor, Tensor]:
    """Return the mean (n, k) and variance (n,) of each row given all others.

    C^-1 = D^-1 - D^-1 Phi A^-1 Phi^T D^-1, so (C^-1)_ii = (1 - h_i) / D_i with h_i = Phi_i A^-1 Phi_i^T / D_i.

    Args:
        parts: The moments of the rows, in parts.
    """
    means, variances = [], []
    for targets, residual, known, noise_diag, missing in parts:
        complement = 1 - known / noise_diag  # 1 - h_i
        means.append(targets - residual / complement[:, None])
        variances.append(noise_diag / complement + missing)
    return torch.cat(means), torch.cat(variances)


def update_gram(model: LinearModel, posterior: LowRankPosterior) -> tuple[LowRankPosterior, Statistics]:
    """Return the posterior given old and new rows, and the statistics of the new rows.

    Only the new rows are read. A grows by Phi^T D^-1 Phi and A w by Phi^T D^-1 (y - mean).

    Args:
        model: The new rows. Mean, noise, variances and parameters must be those of the old rows.
        posterior: A posterior with the factor of the weights' precision.
    """
    assert posterior.factor is not None
    before, new = WeightSolution(posterior.factor, posterior.weights), accumulate_gram(model)
    if before.is_ill_conditioned and not len(new.root):
        new = new._replace(root=root_of(model))
    grown = solve(new, model.scale, model.noise, before)
    return LowRankPosterior(posterior.prior, grown.weights, FactorCovariance(grown.factor)), new


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
        return with_gradient(self._value, *self.model.tensors)

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        """Return the value, and its gradients in `LinearModel.tensors`."""
        model, (factor, weights) = self._detached, self.solution
        output_weights, through_noise = model.output_weights, not model.is_homoscedastic and (needs[1] or needs[2])
        inverse, by_row = torch.cholesky_inverse(factor) if any(needs[1:]) else None, None
        if inverse is not None and (any(needs[3:]) or through_noise):
            scale = model.scale.detach()
            by_row = factor if self.solution.is_ill_conditioned else scale[:, None] * inverse * scale
        objective = partial(_log_densities, weights, by_row, self.solution.is_ill_conditioned)
        total, *gradients = summed(model, partial(gradient_sums, objective, needs))
        value = total - 0.5 * (weights.square().sum(0) @ output_weights)
        value = value - output_weights.sum() * factor.diagonal().log().sum()
        if inverse is not None:
            in_noise, in_variances = closed_gradients(model, self.solution, inverse)
            gradients[1:3] = gradients[1] + in_noise, gradients[2] + in_variances
        pairs = zip(gradients, model.tensors, needs, strict=True)
        return value, lambda: [gradient.to(tensor) if need else None for gradient, tensor, need in pairs]

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The effective degrees of freedom of the weights divided by F, (F - tr A^-1) / F."""
        return 1 - float(torch.cholesky_inverse(self.solution.factor).diagonal().mean())

    def leave_one_out(self, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        Args:
            rows: The rows whose moments are returned. If None, all.
        """
        with torch.no_grad():
            return left_out(self._moments(self.model.rows if rows is None else rows))

    def _moments(self, rows: Rows) -> Iterator[RowMoments]:
        """Yield the moments of blocks of rows."""
        model = self._detached
        for block in rows.blocks(block_rows(model.num_features)):
            phi = model.phi(block).double()
            scaled_phi = model.scale * phi
            known = half_solve(self.solution.factor, scaled_phi.mT).square().sum(0)
            residual = block.targets - model.mean - scaled_phi @ self.solution.weights
            as_noise, missing = (model.residual_variances(block, phi, is_noise=flag) for flag in (True, False))
            missing = missing + (1 - 1 / block.counts()) * as_noise  # it is in D once for each repetition
            noise_diag = model.with_fitc_noise(block, phi).noise_diag(model.noise)
            yield RowMoments(block.targets, residual, known, noise_diag, missing)

    def posterior(self) -> LowRankPosterior:
        """Return the posterior of the weights, with gradients if these are enabled."""
        model, solution = self.model, self.solution
        if torch.is_grad_enabled():
            solution = differentiable_solution(model)
        prior = Prior(weights=model.weights.blocks)
        return LowRankPosterior(prior, solution.weights, FactorCovariance(solution.factor))


def differentiable_solution(model: LinearModel) -> WeightSolution:
    """Return the posterior of the weights for autograd, from one block of all rows.

    Args:
        model: The rows and their features.
    """
    blocks = [(phi.double(), y) for _, phi, y in weighted_blocks(replace(model, rows=gathered(model.rows)))]
    phi, y = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    one = torch.ones_like(model.noise)
    statistics = Statistics(phi.mT @ phi, phi.mT @ y, y.square().sum(), one, one)
    if needs_root(statistics, model.scale, model.noise):
        statistics = statistics._replace(root=torch.cat([phi, y], dim=1))
    return solve(statistics, model.scale, model.noise)


def _log_densities(
    weights: Tensor,  # (F, k)
    matrix: Tensor | None,  # (F, F)
    is_factor: bool,
    model: LinearModel,
    block: Block,
) -> tuple[Tensor, Tensor]:
    """Return the log density of a block given the weights, 0-d, and a scalar for its gradient, 0-d.

    The scalar adds -k/2 sum_i Phi_i A^-1 Phi_i^T / D_i, the part of log|A| that depends on rows.

    Args:
        weights: The posterior mean w.
        matrix: S A^-1 S for the scales S of the features. If None, no gradient needs it by row.
        is_factor: Whether the matrix is the factor of A. For an ill-conditioned A, products with A^-1 would multiply by
            large numbers that cancel.
        model: The model.
        block: A block of its rows.
    """
    phi, output_weights, scale = model.phi(block), model.output_weights, model.scale.detach()
    rows = model.with_fitc_noise(block, phi)
    noise, noise_diag = rows.observation_noise(model.noise), rows.noise_diag(model.noise)
    residual = rows.targets - model.mean - (phi @ (scale[:, None] * weights).to(phi)).double()
    squares = ((residual.square() @ output_weights) / noise_diag).sum()
    squares = squares + rows.weighted_replicate_squares(model.noise).sum()
    logs = rows.counts() * (2 * math.pi * noise).log()
    if model.weights.has_residual:  # that of VFE bounds the likelihood
        missing = model.residual_variances(block, phi, is_noise=False)
        logs = logs + rows.counts() * missing / noise
    value = -0.5 * (squares + output_weights.sum() * logs.sum())
    if matrix is None:
        return value, value
    with torch.no_grad():
        if is_factor:
            pushed = torch.cholesky_solve((scale * phi).mT, matrix.to(phi)).mT * scale
        else:
            pushed = phi @ matrix.to(phi)
    noise_diag = noise_diag.detach() if model.is_homoscedastic else noise_diag
    return value, value - 0.5 * output_weights.sum() * (quadratic_forms(phi, pushed) / noise_diag).sum()


def closed_gradients(model: LinearModel, solution: WeightSolution, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of the gradients in noise and variances that are no sums over rows.

    With one noise for all rows, sum_i Phi_i A^-1 Phi_i^T / D = F - tr A^-1.

    Args:
        model: The model.
        solution: The posterior of the weights.
        inverse: A^-1, (F, F).

    Returns:
        The parts of the gradients, 0-d and (T,).
    """
    diagonal, k = inverse.diagonal(), model.output_weights.sum()
    moments = model.weights.by_block(solution.weights.square() @ model.output_weights + k * (diagonal - 1))
    in_noise = 0.5 * k * (1 - diagonal).sum() / model.noise if model.is_homoscedastic else torch.zeros_like(model.noise)
    return in_noise, 0.5 * moments / model.variances


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
    output_weights, weights = model.output_weights, solution.weights
    squares = (residual.square() @ output_weights).sum() / noise
    logs = 2 * solution.factor.diagonal().log().sum() + count * torch.log(2 * torch.pi * noise)
    value = -0.5 * (squares + weights.square().sum(0) @ output_weights + output_weights.sum() * logs)

    def gradients() -> list[Tensor | None]:
        inverse = torch.cholesky_inverse(solution.factor)
        in_noise, in_variances = closed_gradients(model, solution, inverse)
        in_noise = in_noise + 0.5 / noise * (squares - output_weights.sum() * count)
        in_mean = residual.sum(0) / noise * output_weights
        found = in_mean, in_noise, in_variances, in_frequencies(inverse) if needs[3] else None
        return [gradient if need else None for gradient, need in zip(found, needs, strict=True)]

    def in_frequencies(inverse: Tensor) -> Tensor:
        total = torch.zeros(m, x.shape[1], dtype=torch.float64, device=x.device)
        for r, (w_cos, w_sin) in zip((residual * output_weights).mT, scaled_weights.mT.reshape(-1, 2, m), strict=True):
            in_cos, in_sin = (phi.mT @ (r[:, None].to(x) * x)).double().split(m)
            total += w_sin[:, None] * in_cos - w_cos[:, None] * in_sin
        subset = phi[trace_rows]
        pushed = subset @ (model.scale[:, None] * inverse * model.scale).to(x)
        in_angles = subset[:, :m] * pushed[:, m:] - subset[:, m:] * pushed[:, :m]
        factor = float(output_weights.sum()) * len(phi) / len(subset)
        return (total - factor * (in_angles.mT @ x[trace_rows]).double()) / noise

    return value, gradients


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
        residual_variance = model.residual_variances(block, model.phi(block), is_noise=False)
        total += (residual_variance / block.noise_diag(model.noise)).sum()
    return (total,)
