"""A linear model of rows on features, and its sufficient statistics from one pass over the rows.

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

For given l the best s^2 is therefore Q / (N k), and one variable remains.

The condition number of A is at most its trace, because A - I is positive semidefinite. Above `MAX_TRACE` rounding
errors of phi^T P phi would change the posterior. A is then factorized by an orthogonal factorization of
[Phi / noise^(1/2); I], whose condition number is the square root of that of A (Golub and Van Loan 2013, Section 5.3).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from rfgp.blocks import Weights
from rfgp.blocks.role import ENTRIES
from rfgp.linalg import cholesky
from rfgp.rows import Block, DistributedRows, Rows, parts_of
from rfgp.rows.blocks import Sums, added, sums_over_parts

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

    With the best noise, -2 log likelihood is N k log q + k log|A| with q = y^T C^-1 y at noise 1. Its derivative in log
    v_t is -N k w_t^T w_t / q + k (F_t - tr (A^-1)_tt), with the weights w at noise 1.

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
        gradient = dof - count * weights.by_block(solution.weights.square().sum(1)) / q
        value = count * q.log() + 2 * solution.factor.diagonal().log().sum()
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
    return ratios, total / (count * k)
