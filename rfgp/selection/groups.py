"""Replicates, groups and the order of rows, by which a selection holds rows out."""

import math
from typing import Any

import numpy as np

from rfgp.errors import InvalidArgumentError
from rfgp.regression import GPState
from rfgp.regression.spec import ModelSpec
from rfgp.rows import Block, input_groups, merge_replicates, pool_of
from rfgp.selection.candidates import FEW_ROWS

SPACING = 1e-4
"""The spacing of the grid on which near inputs count as equal, in standard deviations of the columns."""
MOST_MERGED = 4000
"""The largest number of rows whose replicates are merged."""
PERIODS = (1.0, 7.0, 365.2425)
"""The periods of candidate seasons, in days."""
FORWARD = "forward"
"""The value of `validate` that holds out the last rows."""


def num_distinct(regression: GPState) -> int:
    """Return the number of rows of a selection, after merging replicates."""
    return merged_pool(regression)[1]


def seasons_of(regression: GPState) -> list[tuple[Any, float]]:
    """Return date columns with the periods that rows resolve and that occur twice."""
    found, inputs = list[tuple[Any, float]](), regression.scaling.inputs
    for place, column in enumerate(_schema(regression).columns):
        if column.is_date and inputs is not None:
            rows = pool_of(regression.needed_rows("a fit"))
            days = np.unique((rows.inputs[:, place].double() * inputs.scale[place]).numpy())
            gap, extent = float(np.median(np.diff(days))) if len(days) > 1 else math.inf, float(days[-1] - days[0])
            found += [(column.key, period) for period in PERIODS if 4 * gap <= period <= extent / 2]
    return found


def merged_pool(regression: GPState) -> tuple[Block, int]:
    """Return the rows in memory and their number, after merging replicates."""
    rows = regression.needed_rows("a fit")
    pool = pool_of(rows)
    takes_merged = regression.spec.is_gaussian and not pool.has_fixed_noise and len(rows) == len(pool) <= MOST_MERGED
    merged = merge_replicates(pool) if takes_merged else pool
    if len(merged) <= FEW_ROWS:
        return merged, len(merged)
    return pool, len(rows)


def duplicate_labels(pool: Block) -> Any:
    """Return the group of each row (n,) with near inputs.

    If that would merge more than half of the rows, the inputs have to be equal.
    """
    near, equal = input_groups(pool.inputs, SPACING), input_groups(pool.inputs)
    return near if 2 * (near.max() + 1) > equal.max() + 1 else equal


def group_labels(regression: GPState, pool: Block, key: Any) -> Any:
    """Return the group of each row (n,) by the values of a column."""
    return input_groups(pool.inputs[:, [_place(regression, key)]])


def _place(regression: GPState, key: Any) -> int:
    """Return the position of a column."""
    keys = [column.key for column in _schema(regression).columns]
    if key not in keys:
        raise InvalidArgumentError(
            f'validate must be "{FORWARD}" or a column of the inputs, got {key!r}. The columns are '
            f"{', '.join(map(repr, keys[:20]))}."
        )
    return keys.index(key)


def date_column(regression: GPState) -> int:
    """Return the position of the date column, or of the only column."""
    columns = _schema(regression).columns
    dates = [place for place, column in enumerate(columns) if column.is_date]
    if len(dates) != 1 and len(columns) != 1:
        raise InvalidArgumentError(
            f'validate="{FORWARD}" requires one column of dates, or a single column, got {len(dates)} of dates among '
            f"{len(columns)}. Convert the time to dates, or use the column of a group."
        )
    return dates[0] if dates else 0


def _schema(regression: GPState) -> Any:
    assert isinstance(regression.spec, ModelSpec)
    return regression.spec.schema
