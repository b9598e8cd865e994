"""Integrals of the latent function over boxes, in the user's units."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.inference import unsupported
from rfgp.inference.integrals import IntegratedGP, rule_for
from rfgp.inference.prediction import Prediction
from rfgp.inference.term_prediction import TermPrediction
from rfgp.regression.base_spec import Inputs
from rfgp.regression.state import GPState, predicted


def integrated(state: GPState, low: Any, high: Any, columns: Any = None) -> Prediction:
    """Return the joint distribution of integrals of the latent function over m boxes.

    Args:
        state: The state of the model.
        low: The lower corners, (m, d).
        high: The upper corners, (m, d).
        columns: The keys of the columns to integrate over. If None, those in which some corners differ.

    Raises:
        DataError: If the corners do not match the data or each other.
        InvalidArgumentError: If there is no such column of numbers, or a box has too many lengthscales.
    """
    (first, output_format), (last, _) = state.points(low), state.points(high)
    maps = state.scaling.inputs
    if first.shape != last.shape or maps is None:
        raise DataError(
            f"low and high must have one shape, got {tuple(first.shape)} and {tuple(last.shape)}. Give two corners for "
            "each box."
        )
    indices = _places(state.spec.inputs, first, last, columns)
    corners = torch.stack([first, last], dim=1)
    priors = [member.prior for member in state.spec.members(state.hyperparameters)]
    rule = rule_for(priors, corners, indices, float(maps.scale.double()[list(indices)].prod()))
    prediction = predicted(state, first, output_format)
    shift = (prediction.location / prediction.scale).reshape(-1)
    process = IntegratedGP(state.posterior, memory=state.process.memory, rule=rule, shift=shift)
    prediction = dataclasses.replace(
        prediction,
        latent=process.at(corners),
        location=0 * prediction.location,
        of_observations=unsupported.raise_unsupported_integrals,
    )
    if isinstance(prediction, TermPrediction):
        prediction = dataclasses.replace(prediction, process=process, inputs=corners)
    return prediction


def _places(inputs: Inputs, low: Tensor, high: Tensor, columns: Any) -> tuple[int, ...]:
    """Return the indices of the columns over which boxes with corners (m, D) extend.

    Raises:
        DataError: If corners differ in another column, or a lower corner is above the upper one.
        InvalidArgumentError: If there is no such column of numbers.
    """
    numbers, differ = inputs.numeric_columns, (low != high).any(0).nonzero()[:, 0].tolist()
    if columns is None:
        indices = [index for index in differ if index in numbers] or ([*numbers] if len(numbers) == 1 else [])
    else:
        given = [columns] if isinstance(columns, str | int) else columns
        indices = [*dict.fromkeys(map(inputs.column_index, given))]
    if not indices and not differ:
        raise InvalidArgumentError("low and high must differ in some column, got the same points. Name columns=.")
    other = next((index for index in differ if index not in indices), None)
    if other is not None:
        row, column = int((low[:, other] != high[:, other]).nonzero()[0]), "a column of levels or places"
        raise DataError(
            "low and high must agree in columns that are not integrated over, got two values in "
            f"{repr(numbers[other]) if other in numbers else column} of row {row}. Give one box for each value."
        )
    wrong = (low > high)[:, indices].nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise InvalidArgumentError(
            f"low must be at most high, got a larger one in the column {numbers[indices[column]]!r} of row {row}. "
            "Exchange the two."
        )
    return tuple(indices)
