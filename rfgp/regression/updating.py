"""Regressions with other rows: conditioned on new ones, with further ones, and without some of them."""

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
    """Return a regression with other data. Its posterior is computed now if a source may be read only now.

    Raises:
        DataError: The data cannot be used; the message names the place.
    """
    (spec, data), scaling = regression.spec.with_data(data), regression.scaling
    given = read_training(spec.inputs, data, spec.options.seed, 1, scaling.columns)
    scaling = scaling if scaling.columns is not None else dataclasses.replace(scaling, columns=given.names)
    rows = given.rows(scaling)
    check_rows(spec, rows)
    spec = spec.covering(regression.hyperparameters, rows)
    changes = {"spec": spec, "rows": rows, "scaling": scaling, "num_observations": len(rows)}
    return solved_if_read(regression.replace(**changes, has_forgotten=False))


def extended(regression: GPState, data: Chunk) -> GPState:
    """Return a regression with further data.

    If its posterior is known and takes new rows without the old ones, only the new rows are read.

    Raises:
        DataError: The data cannot be used; the message names the place.
        NotFittedError: The old rows are needed but not known.
    """
    posterior = regression.present_posterior if regression.spec.is_gaussian else None
    posterior = posterior if posterior is not None and posterior.takes_rows else None
    spec, data = regression.spec.with_data(data)
    posterior = posterior if spec is regression.spec else None  # new levels are further weights
    if posterior is None:
        regression.needed_rows("update")
    more = read_more(spec.inputs, data, spec.options.seed, regression.scaling)
    check_rows(spec, more)
    if posterior is not None and _needs_all(regression, posterior, more):
        posterior, _ = None, regression.needed_rows("rows outside the range of those before")
    grown = None
    if posterior is not None:
        grown, more = _updated(regression, posterior, more)
    elif isinstance(more, SourceRows) and more.num_rows is None:
        more = more.read_once()
    rows = None if regression.rows is None else JoinedRows([*parts_of(regression.rows), more])
    count = regression.num_observations + len(more)
    spec = spec if rows is None or grown is not None else spec.covering(regression.hyperparameters, rows)
    new = regression.replace(spec=spec, rows=rows, given=grown, num_observations=count)
    return new if isinstance(more, ArrayRows) else solved_if_read(new)


def reduced(regression: GPState, data: Chunk) -> GPState:
    """Return a regression without some of its rows, by sums over these rows alone. It keeps no rows.

    Raises:
        DataError: The data cannot be used, or are as many as all rows.
        InvalidArgumentError: The posterior has no sums over rows that can be taken away.
    """
    posterior = regression.posterior if regression.spec.is_gaussian else None
    if not (isinstance(posterior, SeriesPosterior) and posterior.takes_rows):
        raise InvalidArgumentError(
            "Only a Gaussian model whose terms have fixed features, one of them by EquispacedFourier(), forgets rows. "
            "Call condition(X, y) with the rows that are left."
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
"""The factor of the number of rows after which lattices are laid anew for an update, if the old rows are known."""


def _needs_all(regression: GPState, posterior: Posterior, rows: ArrayRows | SourceRows) -> bool:
    """Return whether an update needs all rows: if the lattices do not serve the new ones."""
    if not isinstance(posterior, SeriesPosterior):
        return False
    if isinstance(rows, ArrayRows) and bool(posterior.is_outside(rows.inputs).any()):
        return True
    before = regression.num_observations
    return regression.rows is not None and before + len(rows) > MANY * before


def solved_if_read(regression: GPState) -> GPState:
    """Return a regression, with its posterior if rows are read in blocks: later their source may be gone.

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
    """Return the posterior with further rows, and these rows, counted as they were read."""
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
