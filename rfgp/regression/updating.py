"""States with other rows: new ones, additional ones, or fewer."""

import dataclasses

import torch

from rfgp.errors import InvalidArgumentError
from rfgp.inference.scales import ScaleModel
from rfgp.regression.base_spec import mean_and_noise
from rfgp.regression.observing import check_blocks, check_rows, has_exposures
from rfgp.regression.state import GPState, predicted
from rfgp.rows import (
    ArrayRows,
    Chunk,
    JoinedRows,
    Rows,
    SourceRows,
    gathered,
    is_read_in_blocks,
    parts_of,
    read_additional_rows,
    read_training,
)
from rfgp.rows.arrays import OutputFormat
from rfgp.solvers import Posterior
from rfgp.solvers.lowrank import LinearModel, LowRankPosterior, update_gram
from rfgp.solvers.onepass import SeriesPosterior


def conditioned(state: GPState, data: Chunk) -> GPState:
    """Return a state with other data.

    Rows of a source are processed immediately, because the source may be unavailable later.

    Args:
        state: The state of the model.
        data: The data that replace the present ones.

    Raises:
        DataError: If the data cannot be used. The message names the row and the column.
    """
    (spec, data), scaling = state.spec.with_data(data), state.scaling
    given = read_training(spec.inputs, data, spec.options.seed, 1, scaling.columns)
    scaling = scaling if scaling.columns is not None else dataclasses.replace(scaling, columns=given.names)
    rows = given.rows(scaling)
    check_rows(spec, rows)
    spec = spec.extended_to_range(state.hyperparameters, rows)
    changes = {"spec": spec, "rows": rows, "scaling": scaling, "num_observations": len(rows)}
    scales = _with_weights(state, rows)
    return solved_if_read(
        state.replace(**changes, scale_model=scales, has_forgotten=False, has_exposures=has_exposures(spec, rows))
    )


def extended(state: GPState, data: Chunk) -> GPState:
    """Return a state with additional data.

    If the present posterior can be updated without the old rows, only the new rows are read.

    Args:
        state: The state of the model.
        data: The additional data.

    Raises:
        DataError: If the data cannot be used. The message names the row and the column.
        NotFittedError: If the old rows are needed but not known.
    """
    posterior = state.present_posterior if state.spec.is_gaussian else None
    posterior = posterior if posterior is not None and posterior.can_update else None
    weights = None if state.scale_model is None else state.scale_model.row_weights
    posterior = posterior if weights is None else None
    spec, data = state.spec.with_data(data)
    posterior = posterior if spec is state.spec else None  # new levels add weights
    if posterior is None:
        state.require_rows(purpose="update")
    more = read_additional_rows(spec.inputs, data, spec.options.seed, state.scaling)
    check_rows(spec, more)
    if posterior is not None and _needs_all(state, posterior, more):
        posterior, _ = None, state.require_rows(purpose="new rows outside the range of the old ones")
    grown = None
    if posterior is not None:
        grown, more = _updated(state, posterior, more)
    elif isinstance(more, SourceRows) and more.num_rows is None:
        more = more.read_once()
    rows = None if state.rows is None else JoinedRows([*parts_of(state.rows), more])
    count = state.num_observations + len(more)
    spec = spec if rows is None or grown is not None else spec.extended_to_range(state.hyperparameters, rows)
    exposed = state.has_exposures or has_exposures(spec, more)
    scales = _with_weights(state, more)
    if scales is not None and scales.row_weights is not None and weights is not None:
        scales = dataclasses.replace(scales, row_weights=torch.cat([weights, scales.row_weights]))
    changes = {"spec": spec, "rows": rows, "given": grown, "num_observations": count, "scale_model": scales}
    new = state.replace(**changes, has_exposures=exposed)
    return new if isinstance(more, ArrayRows) else solved_if_read(new)


def reduced(state: GPState, data: Chunk) -> GPState:
    """Return a state without some of its rows, by subtraction of sums over them.

    The new state stores no rows.

    Args:
        state: The state of the model.
        data: The rows to remove.

    Raises:
        DataError: If the data cannot be used, or no rows would remain.
        InvalidArgumentError: If the posterior has no sums over rows.
    """
    posterior = state.posterior if state.spec.is_gaussian else None
    if not (isinstance(posterior, SeriesPosterior) and posterior.can_update):
        raise InvalidArgumentError(
            "forget requires a Gaussian likelihood and fixed features in all terms, some by EquispacedFourier(), got "
            "another model. Call condition(X, y) with the remaining rows."
        )
    spec, data = state.spec.with_data(data)
    rows = read_additional_rows(spec.inputs, data, spec.options.seed, state.scaling)
    check_rows(spec, rows)
    if isinstance(rows, SourceRows) and rows.num_rows is None:
        rows = rows.read_once()
    count = state.num_observations - len(rows)
    left = posterior.with_rows(rows, sign=-1)
    return state.replace(rows=None, given=left, num_observations=count, has_forgotten=True)


def _with_weights(state: GPState, rows: Rows) -> ScaleModel | None:
    """Return the model of scales, with weights of new rows by the present prediction if the old ones have weights."""
    model = state.scale_model
    if model is None or model.row_weights is None or is_read_in_blocks(rows):
        return None if model is None else dataclasses.replace(model, row_weights=None, row_nodes=None)
    block = gathered(rows)
    with torch.no_grad():
        mixture = predicted(state, block.inputs, OutputFormat(False, block.targets.new_empty(0))).scales.mixture()
        mean, variance = (mixture.weights @ values for values in (mixture.means, mixture.variances))
        weights = model.weights_of(block.targets[:, 0].double().cpu(), block.inputs.cpu(), mean, variance)
        return dataclasses.replace(model, row_weights=weights, row_nodes=None)


MANY = 4
"""The growth factor of the number of rows after which an update recomputes lattices, if the old rows are known."""


def _needs_all(state: GPState, posterior: Posterior, rows: ArrayRows | SourceRows) -> bool:
    """Return whether lattices do not cover the new rows, so that all are needed."""
    if not isinstance(posterior, SeriesPosterior):
        return False
    if isinstance(rows, ArrayRows) and bool(posterior.is_outside(rows.inputs).any()):
        return True
    before = state.num_observations
    return state.rows is not None and before + len(rows) > MANY * before


def solved_if_read(state: GPState) -> GPState:
    """Return a state, with its posterior if rows are read in blocks.

    Args:
        state: The state of the model. The source of its rows may disappear.

    Raises:
        InvalidArgumentError: If rows are read in blocks, and a term needs them in memory.
    """
    if state.rows is None or not is_read_in_blocks(state.rows):
        return state
    check_blocks(state.spec, state.hyperparameters, state.rows)
    return state.replace(given=state.posterior)


def _updated(
    state: GPState, posterior: Posterior, more: ArrayRows | SourceRows
) -> tuple[Posterior, ArrayRows | SourceRows]:
    """Return the posterior with additional rows, and these rows with their count."""
    if isinstance(posterior, SeriesPosterior):
        more = more.read_once() if isinstance(more, SourceRows) and more.num_rows is None else more
        return posterior.with_rows(more), more
    assert isinstance(posterior, LowRankPosterior)
    with torch.no_grad():
        model = LinearModel(state.prior().dense, more, *mean_and_noise(state.hyperparameters))
        grown, statistics = update_gram(model, posterior)
    if isinstance(more, SourceRows) and more.num_rows is None:
        more = more.counted(int(statistics.rows), float(statistics.observations))
    return grown, more
