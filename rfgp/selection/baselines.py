"""Baselines that a selection must beat: a constant and a linear model."""

import math

import torch
from torch import Tensor

from rfgp.inference.distributions import normal_log_density
from rfgp.regression.selection_report import CONSTANT, LINE
from rfgp.rows import Block

_RIDGE = 1e-6
"""The ridge of the baselines, relative to the mean sum of squares of the columns, which may be collinear."""


def baseline_densities(
    rows: Block,
    held_out: Block | None,
) -> dict[str, Tensor]:
    """Return the mean standardised log densities (b,) of validation rows by each baseline.

    Args:
        rows: The rows that the baselines are fitted to.
        held_out: The validation rows. If None, each of the rows is left out in turn.
    """
    x = rows.inputs.double()
    names = {CONSTANT: x[:, :0]} | ({LINE: x} if x.shape[1] + 2 < len(x) else {})
    return {name: _density(rows, held_out, columns.shape[1]) for name, columns in names.items()}


def _density(rows: Block, held_out: Block | None, width: int) -> Tensor:
    validated = rows if held_out is None else held_out
    design, weight = _design(rows, width), rows.counts()[:, None]
    gram = design.mT @ (weight * design)
    gram = gram + _RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    slopes = torch.linalg.solve(gram, design.mT @ (weight * rows.targets))
    new = _design(validated, width)
    errors = validated.targets - new @ slopes
    if held_out is None:
        left = weight * (design * torch.linalg.solve(gram, design.mT).mT).sum(1, keepdim=True)
        errors = errors / (1 - left).clamp_min(1e-6)
    variance = _variance(rows, design, slopes, errors if held_out is None else None)
    return normal_log_density(validated.targets, validated.targets - errors, variance.expand_as(errors)).mean(1)


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
