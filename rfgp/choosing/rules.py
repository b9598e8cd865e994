"""Simple rules that a model should beat: a constant, and a straight line through all columns."""

import math

import torch
from torch import Tensor

from rfgp.inference.distributions import normal_log_density
from rfgp.regression.record import CONSTANT, LINE
from rfgp.rows import Block

_RIDGE = 1e-6
"""Of the sums of squares of the columns, which may depend on each other."""


def rule_densities(
    rows: Block,
    judged: Block | None,
) -> dict[str, Tensor]:
    """Return the mean standardised log densities of the values of judged rows (b,) by each rule, fitted to the others.

    Args:
        rows: Those that the rules learn from.
        judged: Those that are kept out; None: each of the others is left out in turn.
    """
    x = rows.inputs.double()
    names = {CONSTANT: x[:, :0]} | ({LINE: x} if x.shape[1] + 2 < len(x) else {})
    return {name: _density(rows, judged, columns.shape[1]) for name, columns in names.items()}


def _density(rows: Block, judged: Block | None, width: int) -> Tensor:
    told = rows if judged is None else judged
    design, weight = _design(rows, width), rows.counts()[:, None]
    gram = design.mT @ (weight * design)
    gram = gram + _RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    slopes = torch.linalg.solve(gram, design.mT @ (weight * rows.targets))
    new = _design(told, width)
    errors = told.targets - new @ slopes
    if judged is None:
        left = weight * (design * torch.linalg.solve(gram, design.mT).mT).sum(1, keepdim=True)
        errors = errors / (1 - left).clamp_min(1e-6)
    variance = _variance(rows, design, slopes, errors if judged is None else None)
    return normal_log_density(told.targets, told.targets - errors, variance.expand_as(errors)).mean(1)


def _variance(rows: Block, design: Tensor, slopes: Tensor, left_out: Tensor | None) -> Tensor:
    """Return the variances of errors (k,), of rows left out where these are known."""
    errors = rows.targets - design @ slopes if left_out is None else left_out
    weight, lost = rows.counts()[:, None], 0 if left_out is not None else design.shape[1]
    freedom = max(float(rows.count) - lost, 1.0)
    return ((weight * errors.square()).sum(0) / freedom).clamp_min(math.ulp(1.0) ** 2)


def _design(rows: Block, width: int) -> Tensor:
    """Return a column of ones and the first columns (b, 1 + width)."""
    x = rows.inputs[:, :width].double()
    return torch.cat([torch.ones(len(x), 1, dtype=x.dtype, device=x.device), x], dim=1)
