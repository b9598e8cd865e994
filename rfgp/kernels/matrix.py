"""Covariance matrices of kernels on a user's tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphs.checks import check_fits
from rfgp.columns import Schema, Table
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, Term, bind, check_points, constants_of, hyperparameters_of, requests_of
from rfgp.parameters import Hyperparameter
from rfgp.paths import find_path

COPIES = 8
"""The largest number of matrices of all points that are in memory during a computation with one covariance.

Measured at 5,000 points: 3 to 6 for covariances and draws, 7 for log-normal covariances and 8 for divergences."""


def covariance_matrix(terms: Sequence[Term], A: Table, B: Table | None, values: Mapping[str, Any]) -> Tensor:
    """Return the covariance (n, m) of the rows of two tables, or of one.

    Args:
        terms: Terms with explicit columns and names.
        A: The rows.
        B: The columns. If None, the rows.
        values: Hyperparameters in the user's units by path or unique suffix. Output scales are 1 unless they are among
            them.

    Raises:
        InvalidArgumentError: If a value has the name of no hyperparameter, or one is missing.
    """
    schema = Schema.fit(requests_of(terms), A)
    bound = bind(terms, schema.column_of)
    left = schema.read(A)
    right = left if B is None else schema.read(B)
    size = 8.0 * COPIES * len(left) * len(right)
    check_fits(f"The covariances of {len(left):,} and {len(right):,} rows", size, "Use fewer rows at a time.")
    check_points(bound, torch.cat([left, right]))
    summary = ColumnSummary.of(left.detach(), tuple(column.num_levels for column in schema.columns))
    known = _known_values(bound, hyperparameters_of(bound, summary), values, left)
    known |= constants_of(bound, summary)
    parts = [term.covariance(left, right, known) for term in bound]
    return torch.stack([part.expand(len(left), len(right)) for part in parts]).sum(0)


def _known_values(
    terms: Sequence[BoundTerm], quantities: Mapping[str, Hyperparameter], values: Mapping[str, Any], like: Tensor
) -> dict[str, Tensor]:
    """Return all hyperparameters (...) by path, from the given values, starting values, or 1 for variances."""
    scales = [term.outputscale for term in terms if term.outputscale is not None]
    paths = [*quantities, *scales]
    given = {find_path(name, paths): value for name, value in values.items()}
    starts = {
        f"{prefix}{name}": value
        for term in terms
        for factor, _, prefix in term.parts()
        for name, value in factor.starts.items()
        if value is not None
    }
    units = dict.fromkeys((*scales, *(path for path, quantity in quantities.items() if quantity.is_variance)), 1.0)
    usual = {
        f"{prefix}{name}": value
        for term in terms
        for factor, _, prefix in term.parts()
        if factor.graph_kernel is not None
        for name, value in zip(factor.graph_kernel.parameters, factor.graph_kernel.values.tolist(), strict=True)
    }
    known = {**units, **usual, **starts, **given}
    missing = [path for path in paths if path not in known]
    if missing:
        raise InvalidArgumentError(
            f"The kernel must have values of {', '.join(missing)}, got none. Give starting values, such as "
            "lengthscale=1.0, or "
            f"values={{{missing[0]!r}: 1.0}}."
        )
    return {path: _as_tensor(path, known[path], quantities.get(path), like) for path in paths}


def _as_tensor(path: str, value: Any, quantity: Hyperparameter | None, like: Tensor) -> Tensor:
    """Return a value in the shape of its hyperparameter, (...), float64.

    Raises:
        InvalidArgumentError: If the shape is wrong.
    """
    number = torch.as_tensor(value, dtype=torch.float64, device=like.device)
    shape = torch.Size([]) if quantity is None else quantity.start.shape
    if quantity is not None and quantity.is_shared and number.shape == quantity.unit.shape:
        return number
    if number.shape not in (shape, torch.Size([])):
        raise InvalidArgumentError(f"{path} must have the shape {tuple(shape)}, got {tuple(number.shape)}.")
    return number.expand(shape)
