"""Bayesian linear regression on features, in passes over blocks of rows.

Notation:

    n, k          the numbers of rows and of outputs
    T, F          the numbers of terms and of features of all terms
    y             the targets, (n, k)
    phi           the features without prior scales, (n, F), `phi` in code
    s             the prior standard deviations of the weights, (F,), s_t for those of term t
    Phi = phi s   the features times their prior scales, (n, F), `scaled_phi` in code
    w             the weights, (F, k), with the prior N(0, I)
    D             the noise variances of the rows, (n,)
    A             the posterior precision of w, I + Phi^T D^-1 Phi, (F, F)

In bounds, K is the exact prior covariance of the rows, (n, n), and t a trace. w_i is the weight of row i, and k_t is
the kernel of term t.

Products of features within a block have their dtype. Sums over blocks and all F x F algebra are float64. With float32
features, phi^T phi of n rows has an error of about sqrt(n b) 6e-8 for b rows in a block. The rounding ratio is sqrt(n
b) 6e-8 s^2 / noise, with the prior variance s^2 of all terms together. Above a ratio of `max_float32_error`, blocks of
features are cast to float64 first (`benchmarks/papers/own/rounding.py`).

The arithmetic of some features (those of inducing points) amplifies rounding errors. Let d^2 be the mean over rows of
|phi_32(x) - phi(x)|^2. The errors add n s^2 d^2 / noise to tr A. They add at most half of that to log|A| / 2, and the
noise times that to the sum of the rows' posterior variances, noise times degrees of freedom. Means have larger errors,
because weights multiply them. So the rounding ratio of features is 4 (n s^2 d^2 / noise)^1/2, with the same limit,
above which these features are computed in float64.

A common prior scale s and the noise both scale the covariance s^2 (phi phi^T + l P^-1), with l = noise / s^2 and P as
in `Statistics`. Here phi includes prior scales relative to s. With A = I + phi^T P phi / l and N observations of k
outputs, including repetitions,

    -2 log likelihood = Q / s^2 + k (log|A| + N log(2 pi l s^2)) + terms without either,
    Q = min_u (y - phi u)^T P (y - phi u) / l + u^T u.

For given l the best s^2 is therefore Q / (N k).

The condition number of A is at most its trace, because A - I is positive semidefinite. Above `MAX_TRACE` rounding
errors of phi^T P phi would change the posterior. A is then factorized by an orthogonal factorization of
[Phi / noise^(1/2); I], whose condition number is the square root of that of A (Golub and Van Loan 2013, Section 5.3).

Outside the box of a lattice, f = W f(U) + r (`rfgp.lattices.design`), and r = g - W g(U) for a draw g of the kernel
(Matheron's rule). Each draw is one function, for any number of evaluations. g is a sum of cosines with its own random
frequencies.

Source: Wilson et al. (2020), Efficiently sampling functions from Gaussian process posteriors, Equation 9.

The model is that of `rfgp.solvers.dense`, with Phi = [s_1 phi_1, s_2 phi_2, ...]. The first pass over the rows
accumulates phi^T D^-1 phi and phi^T D^-1 y, which suffice for predictions. The second pass computes the residuals
r = y - mean - Phi w, the log marginal likelihood and, on demand, its gradient. w minimizes the quadratic form, and
d log|A| = tr(A^-1 dA). Hence

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

For one term phi = [a cos(x W^T), a sin(x W^T)] and one noise D for all rows the above is

    d/dphi = s D^-1 (r w^T - k Phi A^-1).

The first part has rank k. Its derivative in the frequencies needs one product of F rows,

    d/dW = s/D sum_j diag(w_sin,j) C^T (r_j x) - diag(w_cos,j) S^T (r_j x),    phi = [C, S].

The second part is a sum over rows of products with A^-1, a third of all operations. Given A it can be estimated from
`trace_rows`, without bias if these rows are random. This suffices for steps of stochastic gradients.

Let Q = Phi Phi^T, K = sum_t s_t^2 k_t, and let t = sum_i s^2 q_i / D_i be the trace of D^-1/2 (K - Q) D^-1/2. Then
Q <= K <= Q + t D in the order of positive semidefinite matrices:

    log N(y; mean, Q + D) - k t / 2  <=  log N(y; mean, K + D)
                                     <=  log N(y; mean, Q + D) + (a(1) - a(1 + t)) / 2,
    a(c) = (y - mean)^T (Q + c D)^-1 (y - mean).

The first is Titsias' variational bound (2009, Eq. 9). The second follows from |K + D| >= |Q + D| and the order above
(Titsias 2014, "Variational inference for Gaussian and determinantal point processes", Section 2). The first bound's gap
is the Kullback-Leibler divergence from the variational posterior to the exact one, at most the distance of both bounds
(Burt, Rasmussen and van der Wilk 2019).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import ENTRIES, Design, Prior, WeightBlock, Weights
from rfgp.errors import InvalidArgumentError
from rfgp.lattices.design import LatticeDesign
from rfgp.linalg import cholesky, covariance_root, half_solve
from rfgp.rows import Block, DistributedRows, Rows, gathered, parts_of
from rfgp.rows.blocks import Sums, added, sums_over_parts
from rfgp.solvers.role import Functions, Inference, Shape, TermwisePosterior, make_contiguous

# --- A linear model of rows on features, in blocks of rows -----------------------------------------------------------

MIN_ROWS = 256
"""The minimum number of rows of a block."""
MAX_ROWS = 8192
"""The maximum number of rows of a block."""
_FLOAT32_ERROR = 6e-8
"""The relative rounding error of float32."""
_AMPLIFICATION = 4.0
"""The factor of the error of features in their rounding ratio."""


def block_rows(num_features: int) -> int:
    """Return the number of rows of a block of features.

    Args:
        num_features: The number of features.

    Examples:
        >>> block_rows(1024)
        4096
    """
    return max(MIN_ROWS, min(MAX_ROWS, ENTRIES // max(num_features, 1)))


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A Bayesian linear model on the features of several terms.

    y = mean + [s_1 phi_1(x), s_2 phi_2(x), ...] w + e with w ~ N(0, I). The variance of e is `noise` plus that of the
    row.

    Features phi exclude the prior scales s_t. Statistics of one pass over the rows therefore hold for any scales.

    Attributes:
        weights: The features of all terms, their parameters and prior variances.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
        max_float32_error: The maximum of both rounding ratios for which features and their products may be float32.
            The default is 0.3.
        all_rows_homoscedastic: If `rows` are a part of all rows, whether none of all rows has a weight or its own
            noise. If None, `rows` are all.
        in_float64: Whether features of float32 inputs are computed in float64. If None, it depends on the rounding
            ratios.
    """

    weights: Weights
    rows: Rows
    mean: Tensor
    noise: Tensor
    max_float32_error: float = 0.3
    all_rows_homoscedastic: bool | None = None
    in_float64: bool | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the model depends on: mean, noise, variances of the terms, and parameters of features."""
        return self.mean, self.noise, self.variances, *self.parameters

    def at(self, mean: Tensor, noise: Tensor, variances: Tensor, *parameters: Tensor) -> "LinearModel":
        """Return the model at other `tensors`, in their order."""
        pairs = zip(self.weights.with_parameters(*parameters), variances, strict=True)
        blocks = tuple(replace(block, parameters=own, variance=variance) for (block, own), variance in pairs)
        return replace(self, weights=Weights(blocks), mean=mean, noise=noise)

    @property
    def num_features(self) -> int:
        """The number F of features."""
        return self.weights.num_features

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors (...) that the features depend on."""
        return self.weights.parameters

    @cached_property
    def variances(self) -> Tensor:
        """The prior variances s_t^2 of the terms, (T,), float64."""
        return self.weights.variances

    @cached_property
    def variance(self) -> Tensor:
        """The prior variance of all terms together, 0-d, float64."""
        return self.variances.sum()

    @cached_property
    def scale(self) -> Tensor:
        """The prior standard deviations of the weights, (F,), float64."""
        return self.weights.scale

    @cached_property
    def output_weights(self) -> Tensor:
        """The weights of the log likelihoods of the outputs, (k,).

        Only rows in memory have other weights than 1.
        """
        return self.rows.output_weights if isinstance(self.rows, Block) else torch.ones_like(self.mean)

    @property
    def is_homoscedastic(self) -> bool:
        """Whether none of all rows has a weight or its own noise."""
        if self.weights.adds_noise:
            return False
        return self.rows.is_homoscedastic if self.all_rows_homoscedastic is None else self.all_rows_homoscedastic

    def with_fitc_noise(self, block: Block, phi: Tensor) -> Block:
        """Return a block whose rows have the residual variance of FITC terms as noise.

        Args:
            block: The block of b rows.
            phi: Their features without scales, (b, F).
        """
        if not self.weights.adds_noise:
            return block
        return block.with_more_noise(self.residual_variances(block, phi, is_noise=True))

    def residual_variances(self, block: Block, phi: Tensor, *, is_noise: bool) -> Tensor:
        """Return the residual variances (b,) of FITC terms, which are noise, or of VFE terms.

        Args:
            block: The rows.
            phi: Their features, (b, F).
            is_noise: Whether the terms are those of FITC.
        """
        flags = [term.residual is not None and term.residual.is_noise == is_noise for term in self.weights.blocks]
        by_term = self.weights.unscaled_residual_variances(phi, block.inputs)
        return (self.variances * self.variances.new_tensor(flags)) @ by_term

    @cached_property
    def needs_float64(self) -> bool:
        """Whether features of float32 inputs and their products are computed in float64."""
        if self.in_float64 is not None:
            return self.in_float64
        n, size, noise = len(self.rows), block_rows(self.num_features), float(self.noise.detach())
        if (
            math.sqrt(n * min(n, size)) * _FLOAT32_ERROR * float(self.variance.detach()) / noise
            > self.max_float32_error
        ):
            return True
        return _AMPLIFICATION * math.sqrt(n * self.weights.rounding_variance / noise) > self.max_float32_error

    def phi(self, block: Block) -> Tensor:
        """Return the features of a block without scales, (b, F).

        Args:
            block: The rows.
        """
        in_float64 = block.inputs.dtype != torch.float64 and self.needs_float64
        out: Tensor = self.weights.features(block.inputs, in_float64=in_float64)
        return out.double() if in_float64 else out

    def fitted(self, phi: Tensor, weights: Tensor) -> Tensor:
        """Return Phi w, (b, k), float64.

        The weights are stored column by column, for which BLAS is several times faster with few columns.

        Args:
            phi: The features without scales, (b, F).
            weights: The weights w, (F, k).
        """
        return (phi @ (self.scale * weights.mT).to(phi).contiguous().mT).double()

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in blocks."""
        yield from self.rows.blocks(block_rows(self.num_features))

    def detached(self) -> "LinearModel":
        """Return the model without gradients."""
        return replace(self, weights=self.weights.detached(), mean=self.mean.detach(), noise=self.noise.detach())


def is_local(rows: Rows) -> bool:
    """Return whether all rows are on this machine.

    Args:
        rows: The rows.
    """
    return not any(isinstance(part, DistributedRows) for part in parts_of(rows))


def summed(
    model: LinearModel,
    function: Callable[[LinearModel], Sums],
    combine: Callable[[Sums, Sums], Sums] = added,
) -> Sums:
    """Return the sums of a function over the model's rows.

    Rows on other machines are summed there.

    Args:
        model: The model with all rows.
        function: Maps the model of some rows to sums over these. It is pickled if rows are on other machines.
        combine: A function of the sums over two neighboring parts. The default adds them.
    """
    if is_local(model.rows):
        return function(model)
    no_rows, is_homoscedastic = Block(model.mean[:0].clone(), model.mean[:0].clone()), model.is_homoscedastic
    common = replace(  # a part has fewer rows, but rounds like the whole
        model.detached(), rows=no_rows, in_float64=model.needs_float64, all_rows_homoscedastic=is_homoscedastic
    )
    return sums_over_parts(model.rows, partial(_of_part, common, function), combine)


def _of_part(model: LinearModel, function: Callable[[LinearModel], Sums], rows: Rows) -> Sums:
    with torch.no_grad():
        return function(replace(model, rows=rows))


Objective = Callable[..., tuple[Tensor, Tensor]]
"""Maps a model, a block of its rows and further tensors to a value, and to a scalar whose gradient is summed."""


def gradient_sums(
    objective: Objective, needs: Sequence[bool], model: LinearModel, further: Sequence[Tensor] = ()
) -> Sums:
    """Return sums over blocks of rows of a value and of the gradient of a scalar.

    At solved weights, the gradient of a marginal likelihood is that of a sum over rows. The weights are at an optimum,
    and the log determinant is linear in products of features at a given A^-1. One block of features is in memory at
    once.

    Args:
        objective: The value and the scalar of a block.
        needs: Whether each of the tensors of the model, and of the further ones, needs a gradient.
        model: The model, without gradients.
        further: Further tensors on which the scalar depends. The default is none.

    Returns:
        The value, 0-d, and the gradients in all of these tensors, float64, 0 if not needed.
    """
    model, tensors = replace(model, in_float64=model.needs_float64), (*model.tensors, *further)
    total, sums = model.noise.new_zeros(()), [torch.zeros_like(t, dtype=torch.float64) for t in tensors]
    wanted, count = [number for number, need in enumerate(needs) if need], len(model.tensors)
    for block in model.blocks():
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in zip(tensors, needs, strict=True)]
        with torch.set_grad_enabled(bool(wanted)):
            value, scalar = objective(model.at(*leaves[:count]), block, *leaves[count:])
        total += value.detach()
        if scalar.requires_grad:
            found = torch.autograd.grad(scalar, [leaves[number] for number in wanted], allow_unused=True)
            for number, gradient in zip(wanted, found, strict=True):
                if gradient is not None:
                    sums[number] += gradient
    return total, *sums


def quadratic_forms(phi: Tensor, pushed: Tensor) -> Tensor:
    """Return phi_i^T M phi_i for a symmetric M, (b,) float64, differentiable once in phi.

    The gradient takes no further product.

    Args:
        phi: The features, (b, F).
        pushed: phi M without gradients, (b, F).
    """
    products = (phi * pushed).sum(1).double()
    return 2 * products - products.detach()


# --- The first pass over the rows: statistics for the posterior of the weights ----------------------------------------

TILE = 256
"""The number of columns of a tile of a symmetric product."""
MAX_TRACE = 1e12
"""The maximum trace of A for which A is formed. At 1e14, log likelihoods of 200 rows had errors of 1e-3."""


class Statistics(NamedTuple):
    """Sums over the rows, for features phi without scales.

    P = noise / D is 1 for a row of one observation without noise of its own.
    """

    gram: Tensor  # (F, F) phi^T P phi
    target: Tensor  # (F, k) phi^T P (y - mean)
    square: Tensor  # 0-d, tr (y - mean)^T P (y - mean)
    rows: Tensor  # 0-d, the number of rows
    observations: Tensor  # 0-d, the number of observations, repetitions included
    root: Tensor = torch.zeros(0, 0)  # (m, F + k) with the Gram matrix of P^(1/2) [phi, y - mean], or not needed


class WeightSolution(NamedTuple):
    """The posterior of the weights w ~ N(0, I) given the rows.

    It has the precision A = I + Phi^T D^-1 Phi.
    """

    factor: Tensor  # (F, F) the lower Cholesky factor of A
    weights: Tensor  # (F, k)

    @property
    def is_ill_conditioned(self) -> bool:
        """Whether the trace of A exceeds `MAX_TRACE`."""
        return bool(self.factor.square().sum() > MAX_TRACE)

    @property
    def root(self) -> Tensor:
        """Rows of features and targets (F, F + k), with noise 1, whose likelihood is proportional to the posterior."""
        return torch.cat([self.factor.mT, self.factor.mT @ self.weights], dim=1)


def add_symmetric_product(
    total: Tensor,  # (F, F)
    phi: Tensor,  # (b, F)
) -> None:
    """Add phi^T phi to the upper triangle of a matrix, in tiles.

    This takes half the work of a product. The part below the diagonal tiles is not changed. `symmetrized` fills it.

    Args:
        total: The matrix, (F, F), which is changed.
        phi: The features, (b, F).
    """
    for first in range(0, phi.shape[1], TILE):
        last = first + TILE
        total[first:last, first:] += phi[:, first:last].mT @ phi[:, first:]


def symmetrized(
    total: Tensor,  # (F, F)
) -> Tensor:  # (F, F)
    """Return the symmetric matrix whose upper triangle is given.

    Args:
        total: The matrix. Its entries below the diagonal are ignored.

    Examples:
        >>> symmetrized(torch.tensor([[1.0, 2.0], [0.0, 3.0]])).tolist()
        [[1.0, 2.0], [2.0, 3.0]]
    """
    upper = total.triu()
    return upper + upper.triu(1).mT


def accumulate_gram(model: LinearModel, report: Callable[[int], None] | None = None) -> Statistics:
    """Return the statistics of all rows, in one pass.

    Args:
        model: The model with the rows.
        report: A function of the number of blocks so far, called after each block if all rows are on this machine. If
            None, it is not called.
    """
    reports = report is not None and is_local(model.rows)
    gram, *others = summed(model, partial(_sums, report=report) if reports else _sums)
    statistics = Statistics(symmetrized(gram), *others)
    if needs_root(statistics, model.scale, model.noise):
        return statistics._replace(root=root_of(model))
    return statistics


def needs_root(statistics: Statistics, scale: Tensor, noise: Tensor) -> bool:
    """Return whether the noise is too small for the products of features.

    Args:
        statistics: The sums over the rows.
        scale: The prior standard deviations s of the weights, 0-d or (F,).
        noise: The noise variance, 0-d.
    """
    return not len(statistics.root) and bool((scale.square() * statistics.gram.diagonal()).sum() > MAX_TRACE * noise)


def root_of(model: LinearModel) -> Tensor:
    """Return an upper triangular matrix whose Gram matrix is that of features and targets, (F + k, F + k).

    Rows are added by orthogonal factorizations, in one pass. Those on other machines are factorized there.

    Args:
        model: The model with the rows.
    """
    return summed(model, _root, _stacked)[0]


def _root(model: LinearModel) -> Sums:
    F, k = model.num_features, len(model.mean)
    root: Sums = (model.mean.new_zeros(0, F + k),)
    for block, phi, y in weighted_blocks(model):
        repeated = y.new_zeros(1, F + k)
        repeated[0, F] = (model.noise * block.weighted_replicate_squares(model.noise).sum()).sqrt()
        root = _stacked(root, (torch.cat([torch.cat([phi.double(), y], dim=1), repeated]),))
    return root


def _stacked(a: Sums, b: Sums) -> Sums:
    """Return the triangular factor of the rows of both."""
    return (torch.linalg.qr(torch.cat([a[0], b[0]]), mode="r").R,)


def weighted_blocks(model: LinearModel) -> Iterator[tuple[Block, Tensor, Tensor]]:
    """Yield blocks of rows with P^(1/2) phi (b, F) and P^(1/2) (y - mean) (b, k)."""
    for block in model.blocks():
        phi, y = model.phi(block), block.targets - model.mean
        noise_diag = model.with_fitc_noise(block, phi).noise_diag(model.noise)
        if noise_diag.ndim:
            weight = (model.noise / noise_diag).sqrt()[:, None]
            phi, y = phi * weight.to(phi), y * weight
        yield block, phi, y


def _sums(model: LinearModel, report: Callable[[int], None] | None = None) -> Sums:
    """Return the upper triangle of phi^T P phi (F, F), and the other statistics."""
    F, like = model.num_features, model.mean
    gram, target = like.new_zeros(F, F), like.new_zeros(F, len(like))
    square, rows, observations = (like.new_zeros(()) for _ in range(3))
    for done, (block, phi, y) in enumerate(weighted_blocks(model), 1):
        add_symmetric_product(gram, phi)
        target += (phi.mT @ y.to(phi)).double()
        square += y.square().sum() + model.noise * block.weighted_replicate_squares(model.noise).sum()
        rows += len(block)
        observations += block.count
        if report is not None:
            report(done)
    return gram, target, square, rows, observations


def solve(statistics: Statistics, scale: Tensor, noise: Tensor, before: WeightSolution | None = None) -> WeightSolution:
    """Return the posterior of the weights.

    Args:
        statistics: The sums over the rows. Their root is used if it is known.
        scale: The prior standard deviations s of the weights, 0-d or (F,).
        noise: The noise variance, 0-d.
        before: The posterior given other rows. If None, there are none.
    """
    F, k = statistics.target.shape
    if len(statistics.root):
        rows = torch.cat([scale.expand(F), scale.new_ones(k)]) / noise.sqrt() * statistics.root
        known = torch.eye(F, F + k).to(rows) if before is None else before.root
        return solve_root(torch.cat([rows, known]), F)
    matrix = (scale * statistics.gram) * (scale / noise).reshape(-1, 1)
    target = (scale / noise).reshape(-1, 1) * statistics.target
    if before is None:
        matrix.diagonal().add_(1)
    else:
        known = before.factor @ before.root
        matrix, target = matrix + known[:, :F], target + known[:, F:]
    factor = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    return WeightSolution(factor, torch.cholesky_solve(target, factor))


def solve_root(
    stacked: Tensor,  # (m, F + k)
    F: int,
) -> WeightSolution:
    """Return the least squares solution of rows of features and targets of noise 1, and rows of the prior.

    Args:
        stacked: The rows, with targets in the last k columns.
        F: The number of features.
    """
    root = torch.linalg.qr(stacked, mode="reduced" if stacked.requires_grad else "r").R[:F]
    root = root * root.diagonal().sign()[:, None]
    weights = torch.linalg.solve_triangular(root[:, :F], root[:, F:], upper=True)
    return WeightSolution(root[:, :F].mT, weights)


def quadratic_form(statistics: Statistics, solution: WeightSolution, scale: Tensor, noise: Tensor) -> Tensor:
    """Return the quadratic form (y - mean)^T C^-1 (y - mean), 0-d.

    It is summed over outputs. It is evaluated at the weights u = s w of the solution, so that errors of u have only a
    second-order effect.

    Args:
        statistics: The sums over the rows.
        solution: The posterior of the weights.
        scale: The prior standard deviations s of the weights, 0-d or (F,).
        noise: The noise variance, 0-d.
    """
    gram, target, square = statistics[:3]
    u = scale.reshape(-1, 1) * solution.weights
    if len(statistics.root):
        difference = statistics.root[:, len(u) :] - statistics.root[:, : len(u)] @ u
        return difference.square().sum() / noise + solution.weights.square().sum()
    residual = square - 2 * (target * u).sum() + (u * (gram @ u)).sum()
    return residual.clamp_min(0) / noise + solution.weights.square().sum()


_MIN_RATIO = 1e-12
"""The minimum of noise / variance and of variance / noise in a search."""


def best_common_scale(model: LinearModel, count: float) -> tuple[Tensor, WeightSolution]:
    """Return the factor of variances and noise that maximizes the likelihood.

    Args:
        model: A model whose rows have no noise of their own.
        count: The number N of observations.

    Returns:
        The factor, 0-d, and the posterior of the weights with it.
    """
    with torch.no_grad():
        statistics = accumulate_gram(model)
        solution = solve(statistics, model.scale, model.noise)
        c = quadratic_form(statistics, solution, model.scale, model.noise) / (count * model.rows.num_outputs)
        c = c.clamp(1e-12, 1e12)
        return c, WeightSolution(solution.factor, solution.weights / c.sqrt())


def best_ratios(
    statistics: Statistics,
    weights: Weights,
    count: float,
    start: Tensor,  # (T,)
    bounds: Sequence[tuple[float, float]],
) -> tuple[Tensor, Tensor]:
    """Return the variances and the noise that maximize the likelihood.

    At the noise s, -2 log likelihood is q / s + N k log s + k log|A| with q = y^T C^-1 y at noise 1. The best noise is
    q / (N k) within its bounds. The derivative in log v_t is -w_t^T w_t / s + k (F_t - tr (A^-1)_tt), with the weights
    w at noise 1.

    Args:
        statistics: The statistics of rows without noise of their own.
        weights: The weights of the terms.
        count: The number N of observations.
        start: The ratios at which the search starts, (T,).
        bounds: The least and the largest variance of each term, then of the noise. They bound the ratios.

    Returns:
        The variances of the terms relative to the noise, (T,), and the noise, 0-d.
    """
    unit, k = torch.ones_like(statistics.square), statistics.target.shape[1]
    sizes = unit.new_tensor(weights.sizes)

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scale = weights.by_weight(torch.from_numpy(x).to(unit).mul(0.5).exp())
        solution = solve(statistics, scale, unit)
        q = quadratic_form(statistics, solution, scale, unit)
        dof = sizes - weights.by_block(torch.cholesky_inverse(solution.factor).diagonal())
        noise = (q / (count * k)).clamp(least, most)
        gradient = dof - weights.by_block(solution.weights.square().sum(1)) / (noise * k)
        value = q / (noise * k) + count * noise.log() + 2 * solution.factor.diagonal().log().sum()
        return float(value) / count, (gradient / count).cpu().numpy()

    *of_terms, (least, most) = bounds
    ends = [
        (math.log(max(low / most, _MIN_RATIO)), math.log(min(high / least, 1 / _MIN_RATIO))) for low, high in of_terms
    ]
    options = {"ftol": 1e-12, "gtol": 1e-8}
    result = minimize(loss, start.log().cpu().numpy(), jac=True, method="L-BFGS-B", bounds=ends, options=options)
    ratios = torch.from_numpy(result.x).to(unit).exp()
    scale = weights.by_weight(ratios.sqrt())
    total = quadratic_form(statistics, solve(statistics, scale, unit), scale, unit)
    return ratios, (total / (count * k)).clamp(least, most)


# --- Draws of functions outside the box of a lattice -----------------------------------------------------------------

NUM_COSINES = 256
"""The number of cosines of a draw. Over draws the covariance is exact for any number."""


def kernel_draws(
    design: LatticeDesign, parameters: Sequence[Tensor], count: int, k: int, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Draw functions g of the stationary kernel of a design.

    They are g = sum_j a_j sqrt(2 / J) cos(omega_j . x / l + b_j), with random frequencies omega, phases b and standard
    normal amplitudes a of each draw, and the lengthscales l.

    Args:
        design: The design on a lattice, with its kernel.
        parameters: The hyperparameters of the kernel, () or (d,) each, in the order of the design's names.
        count: The number of draws.
        k: The number of outputs of a draw.
        generator: A generator on the CPU.

    Returns:
        A map of points in the columns of the lattice, (n, d), to the values draw by draw, (n, count k).
    """
    frequencies = design.product.sample(count * NUM_COSINES, generator).reshape(count, NUM_COSINES, -1)
    phases = 2 * math.pi * torch.rand(count, NUM_COSINES, generator=generator, dtype=torch.float64)
    amplitudes = torch.randn(count, NUM_COSINES, k, generator=generator, dtype=torch.float64)
    known = dict(zip(design.names, parameters, strict=True))

    def values(points: Tensor) -> Tensor:
        scaled = design.product.turned(points, known) / design.product.lengthscales(known)
        draws = zip(frequencies, phases, amplitudes, strict=True)
        parts = [(scaled @ omega.mT + phase).cos() @ amplitude for omega, phase, amplitude in draws]
        return math.sqrt(2 / NUM_COSINES) * torch.cat(parts, dim=1)

    return values


def extensions(blocks: Iterable[WeightBlock], count: int, k: int, generator: torch.Generator) -> Functions:
    """Draw r, the part of the sum of terms outside the boxes of lattices, independent of the values within.

    Args:
        blocks: The blocks. Those that are not on a lattice have no extension.
        count: The number of draws.
        k: The number of outputs of a draw.
        generator: A generator on the CPU.

    Returns:
        A map of the inputs of n points to (count, n, k).
    """
    parts = [
        (block, block.design, kernel_draws(block.design, block.parameters, count, k, generator))
        for block in blocks
        if isinstance(block.design, LatticeDesign)
    ]

    def values(inputs: Tensor) -> Tensor:
        total = torch.zeros(len(inputs), count * k, dtype=torch.float64)
        for block, design, draws in parts:
            total = total + block.prior_variance.sqrt() * design.extend(inputs, draws, *block.parameters)
        return total.reshape(len(inputs), count, k).movedim(0, 1)

    return values


# --- The posterior of the weights of features, and its projection to points ------------------------------------------


@dataclass(frozen=True, eq=False)
class FactorCovariance:
    """The covariance A^-1, through the factor of the weights' precision.

    Attributes:
        factor: The lower Cholesky factor of A, (F, F).

    Examples:
        >>> FactorCovariance(torch.tensor([[2.0]]).double()).variance(torch.tensor([[1.0]]).double()).tolist()
        [0.25]
    """

    factor: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "factor")

    def variance(self, scaled_phi: Tensor) -> Tensor:
        """Return the variances of functions at n points, (n,).

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        return self.root(scaled_phi).square().sum(1)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance of functions between two sets of points, (a, b).

        Args:
            left: The scaled features of the first points, (a, F).
            right: The scaled features of the second points, (b, F).
        """
        root = self.root(left)
        return root @ (root if left is right else self.root(right)).mT

    def root(self, scaled_phi: Tensor) -> Tensor:
        """Return a matrix R (n, F) such that R R^T is the covariance of functions.

        The functions are those at n points.

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        return half_solve(self.factor, scaled_phi.mT).mT

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights with mean 0, (count, F, k).

        Args:
            *shape: The shape of the draws: count, F and k.
            generator: A generator on the CPU.
        """
        standard = torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.factor)
        out: Tensor = torch.linalg.solve_triangular(self.factor.mT, standard, upper=True)
        return out

    def draws_weights(self, num_points: int, count: int) -> bool:
        """Return whether draws of weights cost less than a root at n points.

        Args:
            num_points: The number n of points.
            count: The number of draws.
        """
        return count < num_points

    def tensors(self) -> dict[str, Tensor]:
        """Return the factor (F, F) by name."""
        return {"factor": self.factor}

    def shapes(self, n: int, num_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of the factor by name.

        Args:
            n: The number of rows.
            num_features: The number F of features.
        """
        return {"factor": (num_features, num_features)}


@dataclass(frozen=True, eq=False)
class RowCovariance:
    """The covariance I - S^T S, for more features than rows.

    Attributes:
        rows: S = L^-1 Phi (n, F), with the Cholesky factor L of Phi Phi^T + D.

    Examples:
        >>> covariance = RowCovariance(torch.tensor([[0.6, 0.0]]).double())  # I - S^T S
        >>> covariance.variance(torch.eye(2).double()).round(decimals=4).tolist()
        [0.64, 1.0]
    """

    rows: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "rows")

    def variance(self, scaled_phi: Tensor) -> Tensor:
        """Return the variances of functions at n points, (n,).

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        explained = (scaled_phi @ self.rows.mT).square().sum(1)
        return (scaled_phi.square().sum(1) - explained).clamp_min(0)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance of functions between two sets of points, (a, b).

        Args:
            left: The scaled features of the first points, (a, F).
            right: The scaled features of the second points, (b, F).
        """
        return left @ right.mT - (left @ self.rows.mT) @ (right @ self.rows.mT).mT

    def root(self, scaled_phi: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance of functions.

        The functions are those at n points.

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        return covariance_root(self.between(scaled_phi, scaled_phi))

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights with mean 0, (count, F, k).

        z - S^T (S z + e) with z ~ N(0, I) and e ~ N(0, I - S S^T) is pathwise conditioning (Wilson et al. 2020) with
        whitened noise. Its covariance is (I - S^T S)^2 + S^T (I - S S^T) S = I - S^T S.

        Args:
            *shape: The shape of the draws: count, F and k.
            generator: A generator on the CPU.
        """
        count, _, k = shape
        z = torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.rows)
        covariance = torch.eye(len(self.rows), dtype=z.dtype, device=z.device) - self.rows @ self.rows.mT
        root = covariance_root(covariance)
        e = root @ torch.randn(count, root.shape[1], k, generator=generator, dtype=torch.float64).to(self.rows)
        return z - self.rows.mT @ (self.rows @ z + e)

    def draws_weights(self, num_points: int, count: int) -> bool:
        """Return whether draws of weights cost less than a root at n points.

        Args:
            num_points: The number n of points.
            count: The number of draws.
        """
        return max(count, len(self.rows)) < num_points

    def tensors(self) -> dict[str, Tensor]:
        """Return S (n, F) by name."""
        return {"rows": self.rows}

    def shapes(self, n: int, num_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of S by name.

        Args:
            n: The number of rows.
            num_features: The number F of features.
        """
        return {"rows": (n, num_features)}


WeightCovariance = FactorCovariance | RowCovariance
"""The posterior covariance of weights (F,)."""


def with_noise(values: Tensor, variance: Tensor, generator: torch.Generator) -> Tensor:
    """Return values (count, n, k) plus independent noise.

    Args:
        values: The values.
        variance: The variances of the noise, (n,) or ().
        generator: A generator on the CPU.
    """
    if not bool((variance > 0).any()):
        return values
    standard = torch.randn(*values.shape, generator=generator, dtype=torch.float64).to(values)
    deviation = variance.clamp_min(1e-300).sqrt()  # the root has no gradient at 0
    return values + deviation.expand(values.shape[1])[:, None] * standard


@dataclass(frozen=True, eq=False)
class LowRankPosterior(TermwisePosterior):
    """The process f = Phi w with the posterior of w, without the rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior with the scaled features Phi (n, F).
        weights: The posterior mean of the weights, (F, k).
        uncertainty: The posterior covariance of the weights.
        derivative_column: The index of the column of the derivative. If None, the function is not differentiated.

    Examples:
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> two = torch.full((1, 1), 2.0).double()
        >>> posterior = LowRankPosterior(prior, weights=3 * two, uncertainty=FactorCovariance(two))
        >>> scaled_phi = posterior.project(two)
        >>> posterior.mean(scaled_phi).tolist(), posterior.variance(two, scaled_phi).tolist()  # 2 * 6 and 2^2 / 2^2
        ([[12.0]], [1.0])
    """

    weights: Tensor
    uncertainty: WeightCovariance
    derivative_column: int | None = None

    serialized_fields = ("weights",)

    @property
    def width(self) -> int:
        """The number F of features."""
        return len(self.weights)

    @property
    def factor(self) -> Tensor | None:
        """The Cholesky factor (F, F) of the precision of the weights.

        New rows are added to it. It is None if there are more features than rows.
        """
        return self.uncertainty.tensors().get("factor")

    def project(self, inputs: Tensor) -> Tensor:
        """Return the scaled features of n points, (n, F)."""
        return self.features(inputs)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the scaled features of n points, (n, F).

        They are 0 for terms that are not predicted.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        blocks, column = self.prior.weights, self.derivative_column
        if column is None:
            scaled_phi = self.prior.dense.scaled(inputs).double()
        else:
            scaled_phi = torch.cat([block.input_derivatives(inputs, column) for block in blocks], dim=1)
        return scaled_phi if self.terms is None else scaled_phi * self.prior.dense.of(self.terms).to(scaled_phi)

    def mean(self, projected: Tensor) -> Tensor:
        """Return the posterior mean, (n, k)."""
        return projected @ self.weights

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,), or (n, C) of C functions."""
        variance, missing = self.uncertainty.variance(projected), self.residual_variance(inputs, projected)
        return variance + (missing if variance.ndim == 1 else missing[..., None])

    def residual_variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the variances (n,) or () that the features miss."""
        if self.derivative_column is not None:
            return self.missing_derivative_variances(inputs)
        return self._residual.residual_variance(inputs, projected)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance (n, n) of functions with features (n, F)."""
        return self.uncertainty.between(left, right)

    def residual_covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the covariance (n, n) that the features miss, or 0."""
        if self.derivative_column is not None:
            return self._missing_derivative_covariance(inputs)
        return self._residual.residual_covariance(inputs, projected)

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance."""
        if self._residual.has_residual or self.derivative_column is not None:
            return super().root(inputs, projected)
        return self.uncertainty.root(projected)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F, k), and factor (F, F) or rows (n, F), by name."""
        return super().tensors() | self.uncertainty.tensors()

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of weights, and factor or rows, by name."""
        return {"weights": (self.prior.num_features, k), **self.uncertainty.shapes(n, self.prior.num_features)}

    @property
    def can_update(self) -> bool:
        """Whether rows can be added without the old ones, because the factor is known."""
        return self.factor is not None

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions by weights from their posterior, and by the kernel outside the box of a lattice.

        The variance that the modes of a lattice miss is excluded.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If other features miss a part of the function.
        """
        if any(block.residual is not None and block.design is None for block in self.prior.weights):
            raise InvalidArgumentError(
                "This process has no functions to draw, because its residual is defined at given points only. Use "
                "predict(X).sample(), or InducingPoints(method='sor')."
            )
        functions = self._functions(count, generator)
        if not any(isinstance(block.design, LatticeDesign) for block in self.predicted):
            return functions
        outside = extensions(self.predicted, count, self.weights.shape[1], generator)
        return lambda inputs: functions(inputs) + outside(inputs)

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, (count, b, k) at b of them.

        The result is None if a root costs less, or if features miss a part of the function that points share.
        """
        is_slope = self.derivative_column is not None  # beyond the rows, points share a part of it
        shares_residual = is_slope or any(
            b.residual is not None and not b.residual.is_noise for b in self._residual.blocks
        )
        if shares_residual or not self.uncertainty.draws_weights(num_points, count):
            return None
        functions = self._functions(count, generator)
        if not self._residual.has_residual:
            return functions
        return lambda x: with_noise(functions(x), self.residual_variance(x, self.project(x)), generator)

    def _sample_weights(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw weights from their posterior, (count, F, k)."""
        return self.weights + self.uncertainty.sample(count, *self.weights.shape, generator=generator)

    def _functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw the sums of the features, a map of inputs to (count, n, k)."""
        weights = self._sample_weights(count, generator)
        return lambda inputs: self.features(inputs) @ weights

    def differentiated(self, column: int) -> "LowRankPosterior":
        """Return the posterior of the derivative of the function in one column.

        Raises:
            InvalidArgumentError: If a term has no derivative, or its features miss a part of it.
        """
        for block in self.prior.weights:
            if block.design is not None:
                block.design.residual_derivative_variance(column, *block.parameters)
            elif block.residual is not None:
                raise InvalidArgumentError(
                    f"The features of the term {block.name!r} must not miss a part of its derivative, got some that "
                    "do. Use RandomFeatures(), EquispacedFourier() or InducingPoints(method='sor')."
                )
        return replace(self, derivative_column=column)

    def missing_derivative_variances(self, inputs: Tensor) -> Tensor:
        """Return the variances (n,) that features miss of the derivative of the predicted terms.

        Args:
            inputs: The inputs of n points, (n, D).
        """
        assert self.derivative_column is not None
        total = torch.zeros(len(inputs), dtype=torch.float64)
        for block, design in self._with_missing_parts:
            missing = design.residual_derivative_variance(self.derivative_column, *block.parameters, inputs=inputs)
            total = total + block.prior_variance * missing
        return total

    def _missing_derivative_covariance(self, inputs: Tensor) -> Tensor:
        """Return the covariance (n, n) that features miss of the derivative of the predicted terms.

        Missing modes are independent between points. Outside the box of the rows, residuals of points are correlated.
        """
        column, total = self.derivative_column, self.missing_derivative_variances(inputs).diag()
        assert column is not None
        for block, design in self._with_missing_parts:
            between = block.prior_variance * design.residual_derivative_covariance(inputs, column, *block.parameters)
            total = total + between - between.diagonal().diag()
        return total

    @property
    def _with_missing_parts(self) -> list[tuple[WeightBlock, Design]]:
        """The predicted terms on designs whose features miss a part, and these designs."""
        return [(b, b.design) for b in self.predicted if b.residual is not None and b.design is not None]

    @property
    def predicted(self) -> list[WeightBlock]:
        """The blocks of the predicted terms."""
        return [block for block in self.prior.weights if self.terms is None or block.name in self.terms]

    @property
    def _residual(self) -> Weights:
        """The weights with the residuals of the predicted terms."""
        return self.prior.dense.with_residuals_of(self.terms)


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
