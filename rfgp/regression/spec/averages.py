"""Averages of the posteriors of several models of the same rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from rfgp.columns import Schema
from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import MixturePosterior
from rfgp.regression.base_spec import Member
from rfgp.regression.spec.changes import reassigned, spec_of
from rfgp.regression.spec.spec import ModelSpec
from rfgp.regression.spec.starts import sampled
from rfgp.regression.state import GPState
from rfgp.rows import Rows
from rfgp.scaling import Affine, Scaling

ROUNDING = 1e-9
"""The tolerance for the sum of the weights of an average."""

Share = tuple[float, GPState]
"""The weight of a model in an average, and the model."""


def averaged(state: GPState, weight: float, others: Sequence[Share]) -> GPState:
    """Return the average of models, all conditioned on the rows of the first one.

    Args:
        state: The model with the largest weight.
        weight: Its weight.
        others: Weights and other models with the same columns and scaling, fitted to some of these rows.

    Raises:
        InvalidArgumentError: If columns or scalings differ, or a model has several outputs or a non-Gaussian
            likelihood. Also if the weights are not positive or do not sum to one, or the first is not the largest.
    """
    spec = spec_of(state)
    check_shares([weight, *(share for share, _ in others)])
    if any(share > weight for share, _ in others):
        raise InvalidArgumentError(
            f"The first model of an average must have the largest weight, got {weight}. Change the order."
        )
    check_average(spec, state.scaling)
    members = tuple(_member(share, member, state) for share, member in others)
    return state.replace(spec=replace(spec, weight=weight, other_members=members))


def check_shares(shares: Sequence[Any]) -> None:
    """Check that there are at least two weights, all positive, which sum to one.

    Args:
        shares: The weights, (m,).

    Raises:
        InvalidArgumentError: If they are not.
    """
    are_positive = all(isinstance(share, float) and share > 0 for share in shares)
    if len(shares) < 2 or not are_positive or not abs(math.fsum(shares) - 1) <= ROUNDING:
        raise InvalidArgumentError(f"The weights of an average must be positive and sum to one, got {shares}.")


def check_average(spec: ModelSpec, scaling: Scaling) -> None:
    """Check that a model can be part of an average.

    Args:
        spec: The specification of a model of the average.
        scaling: Its scaling of inputs and targets.

    Raises:
        InvalidArgumentError: If its likelihood is not Gaussian, or it has several outputs.
    """
    if not spec.is_gaussian:
        raise InvalidArgumentError(f"Averages require a Gaussian likelihood, got {spec.options.likelihood!r}.")
    if scaling.targets.scale.numel() > 1:
        raise InvalidArgumentError("Averages require one output. Fit a model for each output.")


def parts_of_average(state: GPState) -> list[Share]:
    """Return the models of an average, each with its weight and posterior.

    Args:
        state: The state of an average, or of a single model.
    """
    members = state.spec.members(state.hyperparameters)
    if len(members) == 1:
        return [(1.0, state)]
    posterior, shares = state.present_posterior, list[Share]()
    for number, member in enumerate(members):
        given = posterior.members[number] if isinstance(posterior, MixturePosterior) else None
        changes = {"spec": member.spec, "hyperparameters": member.values, "given": given}
        shares.append((member.weight, state.replace(**changes)))
    return shares


def largest(state: GPState) -> GPState:
    """Return the model with the largest weight in an average, or a single model.

    Args:
        state: The state of an average, or of a single model.
    """
    return parts_of_average(state)[0][1]


def each_changed(state: GPState, change: Callable[[GPState], GPState]) -> GPState:
    """Return the average of changed models, or a changed single model.

    Args:
        state: The state of an average, or of a single model.
        change: Returns a changed state of a single model.
    """
    (weight, first), *others = [(share, change(one)) for share, one in parts_of_average(state)]
    return averaged(first, weight, others) if others else first


def approximated(state: GPState, approximation: Any) -> GPState:
    """Return a state with other approximations.

    Only the model with the largest weight of an average remains.

    Args:
        state: The state, with its rows.
        approximation: An approximation, or a dict by the names of terms.

    Raises:
        NotFittedError: If there are no rows.
        InvalidArgumentError: If the name of a term is unknown, or a term does not support an approximation.
    """
    rows, first = state.require_rows(purpose="with_approximation"), largest(state)
    spec, values = with_rows(spec_of(first), rows), first.hyperparameters
    chosen = reassigned(spec, approximation, values, len(rows))
    spec = spec.with_approximations(chosen, values, len(rows))
    return first.replace(spec=replace(spec, options=spec.options.changed(approximations=chosen)))  # a fit keeps them


def with_rows(spec: ModelSpec, rows: Rows) -> ModelSpec:
    """Return a specification with a sample of rows, which a loaded one lacks.

    Args:
        spec: The specification.
        rows: The rows.
    """
    assert spec.columns is not None
    if len(spec.columns.sample):
        return spec
    noise = None if spec.noise_process is None else with_rows(spec.noise_process, rows)
    columns = replace(spec.columns, sample=sampled(rows, spec.options.seed).inputs.detach())
    return replace(spec, columns=columns, noise_process=noise)


def _member(share: float, member: GPState, state: GPState) -> Member:
    """Return a model as a member of an average, with the columns of the first model."""
    spec, member_spec = spec_of(state), spec_of(member)
    assert spec.schema is not None
    assert member_spec.schema is not None
    if _columns_of(member_spec.schema) != _columns_of(spec.schema):
        raise InvalidArgumentError(
            "All models of an average must read the same columns in the same order, got "
            f"{_keys(member_spec.schema)} and {_keys(spec.schema)}."
        )
    check_average(member_spec, member.scaling)
    pairs = [(member.scaling.inputs, state.scaling.inputs), (member.scaling.targets, state.scaling.targets)]
    if not all(_are_equal(a, b) for a, b in pairs):
        raise InvalidArgumentError(
            "All models of an average must have the same scaling, got several. Start them from one model."
        )
    alone = replace(member_spec, schema=spec.schema, columns=spec.columns, weight=1.0, other_members=())
    return Member(share, alone, member.hyperparameters.detached())


def _keys(schema: Schema) -> str:
    return ", ".join(repr(column.key) for column in schema.columns)


def _columns_of(schema: Schema) -> list[tuple[Any, ...]]:
    """Return everything in a schema that determines how rows are read."""
    return [
        (c.key, c.kind, c.is_date, c.zone, c.origin, c.levels, None if c.nodes is None else id(c.nodes))
        for c in schema.columns
    ]


def _are_equal(a: Affine | None, b: Affine | None) -> bool:
    """Return whether two maps are equal."""
    if a is None or b is None:
        return a is b
    return torch.equal(a.location, b.location) and torch.equal(a.scale, b.scale)
