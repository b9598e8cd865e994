"""States with other rows: new ones, additional ones, or fewer."""

import dataclasses

import torch

from rfgp.errors import InvalidArgumentError
from rfgp.regression.base_spec import mean_and_noise
from rfgp.regression.observing import check_blocks, check_rows
from rfgp.regression.state import GPState
from rfgp.rows import (
    ArrayRows,
    Chunk,
    JoinedRows,
    SourceRows,
    is_read_in_blocks,
    parts_of,
    read_more,
    read_training,
)
from rfgp.solvers import Posterior
from rfgp.solvers.lowrank import LinearModel, LowRankPosterior, update_gram
from rfgp.solvers.onepass import SeriesPosterior


def conditioned(regression: GPState, data: Chunk) -> GPState:
    """Return a state with other data. Its posterior is computed at once if a source can be read only now.

    Raises:
        DataError: The data cannot be used. The message names the place.
    """
    (spec, data), scaling = regression.spec.with_data(data), regression.scaling
    given = read_training(spec.inputs, data, spec.options.seed, 1, scaling.columns)
    scaling = scaling if scaling.columns is not None else dataclasses.replace(scaling, columns=given.names)
    rows = given.rows(scaling)
    check_rows(spec, rows)
    spec = spec.extended_to_range(regression.hyperparameters, rows)
    changes = {"spec": spec, "rows": rows, "scaling": scaling, "num_observations": len(rows)}
    return solved_if_read(regression.replace(**changes, has_forgotten=False))


def extended(regression: GPState, data: Chunk) -> GPState:
    """Return a state with additional data.

    If the known posterior can be updated without the old rows, only the new rows are read.

    Raises:
        DataError: The data cannot be used. The message names the place.
        NotFittedError: The old rows are needed but not known.
    """
    posterior = regression.present_posterior if regression.spec.is_gaussian else None
    posterior = posterior if posterior is not None and posterior.takes_rows else None
    spec, data = regression.spec.with_data(data)
    posterior = posterior if spec is regression.spec else None  # new levels add weights
    if posterior is None:
        regression.needed_rows("update")
    more = read_more(spec.inputs, data, spec.options.seed, regression.scaling)
    check_rows(spec, more)
    if posterior is not None and _needs_all(regression, posterior, more):
        posterior, _ = None, regression.needed_rows("new rows outside the range of the old ones")
    grown = None
    if posterior is not None:
        grown, more = _updated(regression, posterior, more)
    elif isinstance(more, SourceRows) and more.num_rows is None:
        more = more.read_once()
    rows = None if regression.rows is None else JoinedRows([*parts_of(regression.rows), more])
    count = regression.num_observations + len(more)
    spec = spec if rows is None or grown is not None else spec.extended_to_range(regression.hyperparameters, rows)
    new = regression.replace(spec=spec, rows=rows, given=grown, num_observations=count)
    return new if isinstance(more, ArrayRows) else solved_if_read(new)


def reduced(regression: GPState, data: Chunk) -> GPState:
    """Return a state without some of its rows, by subtraction of sums over them. It stores no rows.

    Raises:
        DataError: The data cannot be used, or no rows would remain.
        InvalidArgumentError: The posterior has no sums over rows.
    """
    posterior = regression.posterior if regression.spec.is_gaussian else None
    if not (isinstance(posterior, SeriesPosterior) and posterior.takes_rows):
        raise InvalidArgumentError(
            "forget requires a Gaussian likelihood and fixed features in all terms, some by EquispacedFourier(), got "
            "another model. Call condition(X, y) with the remaining rows."
        )
    spec, data = regression.spec.with_data(data)
    rows = read_more(spec.inputs, data, spec.options.seed, regression.scaling)
    check_rows(spec, rows)
    if isinstance(rows, SourceRows) and rows.num_rows is None:
        rows = rows.read_once()
    count = regression.num_observations - len(rows)
    left = posterior.with_rows(rows, sign=-1)
    return regression.replace(rows=None, given=left, num_observations=count, has_forgotten=True)


MANY = 4
"""The growth factor of the number of rows after which an update recomputes lattices, if the old rows are known."""


def _needs_all(regression: GPState, posterior: Posterior, rows: ArrayRows | SourceRows) -> bool:
    """Return whether an update needs all rows, because the lattices do not cover the new ones."""
    if not isinstance(posterior, SeriesPosterior):
        return False
    if isinstance(rows, ArrayRows) and bool(posterior.is_outside(rows.inputs).any()):
        return True
    before = regression.num_observations
    return regression.rows is not None and before + len(rows) > MANY * before


def solved_if_read(regression: GPState) -> GPState:
    """Return a state, with its posterior if rows are read in blocks, since their source may disappear.

    Raises:
        InvalidArgumentError: Rows are read in blocks, and a term needs them in memory.
    """
    if regression.rows is None or not is_read_in_blocks(regression.rows):
        return regression
    check_blocks(regression.spec, regression.hyperparameters, regression.rows)
    return regression.replace(given=regression.posterior)


def _updated(
    regression: GPState, posterior: Posterior, more: ArrayRows | SourceRows
) -> tuple[Posterior, ArrayRows | SourceRows]:
    """Return the posterior with additional rows, and these rows with their final count."""
    if isinstance(posterior, SeriesPosterior):
        more = more.read_once() if isinstance(more, SourceRows) and more.num_rows is None else more
        return posterior.with_rows(more), more
    assert isinstance(posterior, LowRankPosterior)
    with torch.no_grad():
        model = LinearModel(regression.prior().dense, more, *mean_and_noise(regression.hyperparameters))
        grown, statistics = update_gram(model, posterior)
    if isinstance(more, SourceRows) and more.num_rows is None:
        more = more.counted(int(statistics.rows), float(statistics.observations))
    return grown, more
