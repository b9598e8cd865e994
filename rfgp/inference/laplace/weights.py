"""The mode of the weights of features under a likelihood, by damped Newton steps in passes over blocks of rows.

Formulas are those of `rfgp.inference.laplace.primal`.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rfgp.errors import SolverError
from rfgp.inference.laplace.search import FLOOR, MOST_STEPS, NOT_FINITE, ROUNDED, Counted, Observed
from rfgp.inference.linear import LinearModel, add_symmetric_product, summed, symmetrized
from rfgp.likelihoods import Likelihood
from rfgp.linalg import cholesky
from rfgp.rows import Block
from rfgp.rows.blocks import Sums

TOLERANCE, ROUNDED_TOLERANCE = 1e-14, 1e-7
"""Of the square of Newton's decrement, in nats a thousand rows, for features of double and of single precision."""
MOST_UNEVEN = 2000
"""Steps where the log density is not concave, for reweighted least squares are slow."""
ROUNDED_FLOOR = 1e-5
"""What rounding changes the value by, nats a root of rows, with features of single precision."""
_LENGTHS = tuple(0.5**i for i in (*range(1, 25), *range(26, 90, 4)))
"""Of a step that goes too far, of which the best is taken."""
_MATRIX = "The feature matrix I + Phi^T W Phi"


class Mode(NamedTuple):
    """The mode of the weights, and what the rows say there."""

    weights: Tensor  # w (F,)
    factor: Tensor  # (F, F), the lower Cholesky factor of A
    value: Tensor  # 0-d, sum_i log p(y_i | f_i)


class _Step(NamedTuple):
    """What a pass over the rows tells of weights w."""

    value: Tensor  # 0-d
    gradient: Tensor  # (F,) Phi^T g
    gram: Tensor  # (F, F) Phi^T W Phi, with W by which a step leads uphill
    missing: Tensor  # (F, F) what that is more than by the curvature, negative; (0, 0) where it is the same


def find_mode(model: LinearModel, law: Likelihood, near: Tensor | None = None) -> Mode:
    """Return the mode of the weights.

    Args:
        model: Without gradients.
        law: With all its parameters.
        near: Where it may be (F,).

    Raises:
        SolverError: steps lead nowhere: the log density has no finite value, or no mode is reached.
    """
    weights = _begun(model, law, near)
    is_double, count = _is_double(model), len(model.rows)
    tolerance = (TOLERANCE if is_double else ROUNDED_TOLERANCE) * (1 + count / 1000)
    least = FLOOR if is_double else ROUNDED_FLOOR * math.sqrt(count)
    before, step = -torch.inf, torch.zeros_like(weights)
    decrement = torch.inf
    for _ in range(MOST_STEPS if law.is_concave else MOST_UNEVEN):
        told = _Step(*_summed(model, partial(_step_sums, law, weights, False)))
        value = float(told.value - 0.5 * weights.square().sum())
        if not torch.isfinite(told.value) and before == -torch.inf:
            raise SolverError(NOT_FINITE)
        floor = max(least, ROUNDED * abs(value if before == -torch.inf else before))
        if not value >= before - (floor if decrement < floor else tolerance):
            weights = _shortened(model, law, weights - step, step, before, decrement)
            before = -torch.inf  # the shortened step is known to be better
            step = torch.zeros_like(step)
            continue
        factor = _uphill(told)
        ascent = told.gradient - weights
        step = torch.cholesky_solve(ascent[:, None], factor)[:, 0]
        last, decrement = decrement, float(step @ ascent)
        if decrement <= tolerance or last <= decrement < floor:
            return _settled(model, law, weights, Mode(weights, factor, told.value))
        weights, before = weights + step, value
    raise SolverError(_lost(decrement))


def _begun(model: LinearModel, law: Likelihood, near: Tensor | None) -> Tensor:
    """Return weights (F,) where the mode may be, if they are better than zeros; else these."""
    zeros = model.mean.new_zeros(model.num_features)
    if near is None:
        return zeros
    ends = [float(summed(model, partial(_value_at, law, weights))[0]) for weights in (zeros, near)]
    return near if ends[1] - 0.5 * float(near.square().sum()) > ends[0] else zeros


def _settled(model: LinearModel, law: Likelihood, weights: Tensor, mode: Mode) -> Mode:
    """Return the mode with the curvature of the approximation, where the log density's own may be negative."""
    if law.is_concave:
        return mode
    told = _Step(*_summed(model, partial(_step_sums, law, weights, True)))
    factor = cholesky(told.gram.diagonal_scatter(told.gram.diagonal() + 1), _MATRIX)
    return Mode(weights, factor, told.value)


def _uphill(told: _Step) -> Tensor:
    """Return the factor of a matrix whose steps lead uphill: Newton's, if that is positive definite."""
    positive = told.gram.diagonal_scatter(told.gram.diagonal() + 1)
    if told.missing.numel():
        factor, failed = torch.linalg.cholesky_ex(positive + told.missing)
        if not failed:
            return torch.as_tensor(factor)
    return cholesky(positive, _MATRIX)


def _shortened(
    model: LinearModel, law: Likelihood, weights: Tensor, step: Tensor, before: float, decrement: float
) -> Tensor:
    """Return the best weights (F,) along a step that goes too far.

    Raises:
        SolverError: none is better.
    """
    (values,) = summed(model, partial(_value_sums, law, weights, step))
    ends = torch.stack([weights + length * step for length in _LENGTHS])
    values = values - 0.5 * ends.square().sum(1)
    best = int(torch.where(torch.isfinite(values), values, -torch.inf).argmax())
    if not float(values[best]) > before:
        raise SolverError(_lost(decrement))
    return ends[best]


def _lost(decrement: float) -> str:
    return (
        f"The mode of the weights was not found: a step promises {decrement:.1e} nats and does not gain them. The "
        "prior may be too wide for the likelihood: bound outputscale with a prior, or use dtype=torch.float64."
    )


def _is_double(model: LinearModel) -> bool:
    """Return whether features are of double precision, or cast to it."""
    block = next(iter(model.blocks()))
    return model.phi(block.take(slice(1))).dtype == torch.float64


# --- passes over the rows ------------------------------------------------------------------------------


def seen_at(model: LinearModel, law: Likelihood, weights: Tensor, block: Block) -> tuple[Tensor, Counted]:
    """Return the features (b, F) of a block, and what is to be known of its rows at weights (F,)."""
    phi = model.phi(block)
    f = model.mean + (phi @ (model.variance.sqrt() * weights).to(phi)).double()
    return phi, Observed(law, block).at(f)


def _summed(model: LinearModel, function: Any) -> Sums:
    value, gradient, gram, missing = summed(model, function)
    return value, gradient, symmetrized(gram), symmetrized(missing)


def _step_sums(law: Likelihood, weights: Tensor, is_final: bool, model: LinearModel) -> Sums:
    """Return the value, Phi^T g (F,) and the upper triangles of Phi^T W Phi (F, F), by the curvature or the final W."""
    like, scale = model.mean, model.variance.sqrt()
    F = model.num_features
    value, gradient, gram = like.new_zeros(()), like.new_zeros(F), like.new_zeros(F, F)
    is_signed = not (is_final or law.is_concave)
    missing = like.new_zeros(F, F) if is_signed else like.new_zeros(0, 0)
    for block in model.blocks():
        phi, now = seen_at(model, law, weights, block)
        value += now.value
        gradient += (phi.mT @ now.first.to(phi)).double()
        weight = now.weight if is_final else now.uphill
        add_symmetric_product(gram, phi * weight.sqrt().to(phi)[:, None])
        if is_signed:
            more = (now.uphill - now.curvature).clamp_min(0)
            add_symmetric_product(missing, phi * more.sqrt().to(phi)[:, None])
    return value, scale * gradient, model.variance * gram, -model.variance * missing


def _value_at(law: Likelihood, weights: Tensor, model: LinearModel) -> Sums:
    """Return the value of the rows, 0-d, -inf where it is no number."""
    total = torch.zeros_like(model.variance)
    for block in model.blocks():
        f = torch.zeros_like(block.targets[:, 0])
        if bool(weights.any()):
            phi = model.phi(block)
            f = (phi @ (model.variance.sqrt() * weights).to(phi)).double()
        total += Observed(law, block).value(model.mean + f)
    return (total,)


def _value_sums(law: Likelihood, weights: Tensor, step: Tensor, model: LinearModel) -> Sums:
    """Return the values (l,) of the rows at each length of a step."""
    lengths = model.mean.new_tensor(_LENGTHS)
    values = torch.zeros_like(lengths)
    for block in model.blocks():
        phi = model.phi(block)
        both = (model.variance.sqrt() * torch.stack([weights, step], dim=1)).to(phi)
        f, change = (phi @ both).double().T
        for i, length in enumerate(lengths):
            ends = model.mean + f + length * change + block.offset()
            values[i] += (law.log_density(block.targets[:, 0], ends) * block.counts()).sum()
    return (values,)
