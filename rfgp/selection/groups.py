"""How rows of a selection are merged, grouped and ordered before some are held out."""

import math
from typing import Any

import numpy as np

from rfgp.errors import InvalidArgumentError
from rfgp.regression import Regression
from rfgp.regression.spec import ModelSpec
from rfgp.rows import Block, input_groups, merge_replicates, pool_of
from rfgp.selection.candidates import FEW_ROWS

SPACING = 1e-4
"""The grid, in standard deviations of the columns, on which rows with equal inputs stay together."""
MOST_MERGED = 4000
"""The most rows that are conditioned on after a fit to their distinct inputs."""
PERIODS = (1.0, 7.0, 365.2425)
"""The periods of seasons, in days."""
FORWARD = "forward"
"""The option that holds out the last rows."""


def num_distinct(begun: Regression) -> int:
    """Return the number of rows of a selection: those with distinct inputs if they can be merged."""
    return merged_pool(begun)[1]


def seasons_of(begun: Regression) -> list[tuple[Any, float]]:
    """Return the columns of dates with the periods in days that their rows resolve, and that return at least once."""
    found, inputs = list[tuple[Any, float]](), begun.scaling.inputs
    for place, column in enumerate(_schema(begun).columns):
        if column.is_date and inputs is not None:
            rows = pool_of(begun.needed_rows("a fit"))
            days = np.unique((rows.inputs[:, place].double() * inputs.scale[place]).numpy())
            gap, extent = float(np.median(np.diff(days))) if len(days) > 1 else math.inf, float(days[-1] - days[0])
            found += [(column.key, period) for period in PERIODS if 4 * gap <= period <= extent / 2]
    return found


def merged_pool(begun: Regression) -> tuple[Block, int]:
    """Return the rows in memory, merged if few of many have distinct inputs, and their number."""
    rows = begun.needed_rows("a fit")
    pool = pool_of(rows)
    takes_merged = begun.family.is_gaussian and not pool.has_fixed_noise and len(rows) == len(pool) <= MOST_MERGED
    merged = merge_replicates(pool) if takes_merged else pool
    if len(merged) <= FEW_ROWS:
        return merged, len(merged)
    return pool, len(rows)


def duplicate_labels(pool: Block) -> Any:
    """Return the number of the group of each row (n,) with near inputs, or with equal ones if half of them are near."""
    near, equal = input_groups(pool.inputs, SPACING), input_groups(pool.inputs)
    return near if 2 * (near.max() + 1) > equal.max() + 1 else equal


def group_labels(begun: Regression, pool: Block, key: Any) -> Any:
    """Return the number of the group of each row (n,) by a column."""
    return input_groups(pool.inputs[:, [_place(begun, key)]])


def _place(begun: Regression, key: Any) -> int:
    """Return the place of a column."""
    keys = [column.key for column in _schema(begun).columns]
    if key not in keys:
        raise InvalidArgumentError(
            f'validate must be "{FORWARD}" or a column of the inputs, got {key!r}. The columns are '
            f"{', '.join(map(repr, keys[:20]))}."
        )
    return keys.index(key)


def date_column(begun: Regression) -> int:
    """Return the place of the column of dates, or of the only column."""
    columns = _schema(begun).columns
    dates = [place for place, column in enumerate(columns) if column.is_date]
    if len(dates) != 1 and len(columns) != 1:
        raise InvalidArgumentError(
            f'validate="{FORWARD}" requires one column of dates, or a single column, got {len(dates)} of dates among '
            f"{len(columns)}. Convert the time to dates, or use the column of a group."
        )
    return dates[0] if dates else 0


def _schema(begun: Regression) -> Any:
    assert isinstance(begun.family, ModelSpec)
    return begun.family.schema
