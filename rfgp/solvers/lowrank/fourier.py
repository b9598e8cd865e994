"""The log marginal likelihood of rows under random Fourier features.

For one term phi = [a cos(x W^T), a sin(x W^T)] and one noise D for all rows, `rfgp.solvers.lowrank.solver` has

    d/dphi = s D^-1 (r w^T - k Phi A^-1).

The first part has rank k. Its derivative in the frequencies needs one product of F rows,

    d/dW = s/D sum_j diag(w_sin,j) C^T (r_j x) - diag(w_cos,j) S^T (r_j x),    phi = [C, S].

The second part is a sum over rows of products with A^-1, a third of all operations. Given A it can be estimated from
`trace_rows`, without bias if these rows are random. This suffices for steps of stochastic gradients.
"""

from functools import partial

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.rows import gathered
from rfgp.solvers.lowrank.model import LinearModel
from rfgp.solvers.lowrank.solver import Totals, closed_gradients, log_marginal_likelihood_of
from rfgp.solvers.lowrank.statistics import Statistics, add_symmetric_product, solve, symmetrized


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
