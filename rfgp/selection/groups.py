"""Replicates, groups and the order of rows, by which a selection holds rows out."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.signal import lombscargle
from torch import Tensor

from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Group
from rfgp.limits import limits
from rfgp.models import GPState
from rfgp.rows import Block, input_groups, merge_replicates, rows_in_memory

SPACING = 1e-4
"""The spacing of the grid on which close inputs count as equal, in standard deviations of the columns."""
NUM_FOLDS = 5
"""The number of folds."""
DATE_PERIODS = (1.0, 7.0, 365.2425)
"""The periods of candidate seasons of dates, in days."""
MAX_FALSE_ALARM = 1e-6
"""The largest false-alarm probability at which a period becomes a candidate."""
FORWARD = "forward"
"""The value of `validate` that holds out the last rows."""


def group_levels(state: GPState) -> dict[Any, int]:
    """Return the numbers of levels by key for columns with effects in all candidates.

    Args:
        state: The state of the model before the fit.
    """
    factors = [factor for term in state.spec.options.kernel.terms() for factor in term.factors]
    keys = {key for factor in factors if isinstance(factor, Group) for key in factor.columns or ()}
    return {column.key: column.num_levels for column in _columns(state) if column.key in keys}


def candidate_periods(state: GPState) -> list[tuple[Any, float]]:
    """Return columns with the periods that rows resolve and that occur twice.

    The periods of dates are a day, a week and a year. The period of a single numeric column is estimated from the
    targets.

    Args:
        state: The state of the model before the fit.

    Returns:
        Pairs of the key of a column and a period in its unit, days for dates.
    """
    periods, columns, inputs = list[tuple[Any, float]](), _columns(state), state.scaling.inputs
    if inputs is None:
        return periods
    for index, column in enumerate(columns):
        if not column.is_date and len(columns) > 1:
            continue
        rows = rows_in_memory(state.require_rows(purpose="a fit"))
        x, most = (rows.inputs[:, index].double() * inputs.scale[index]).numpy(), limits().few_rows
        if column.is_date:
            gap, extent = _gap_and_extent(np.unique(x))
            longest = longest_period(extent, gap)
            periods += [(column.key, period) for period in DATE_PERIODS if 4 * gap <= period <= longest]
        else:
            period = dominant_period(x[:most], rows.targets[:most, 0].numpy())
            periods += [] if period is None else [(column.key, period)]
    return periods


def longest_period(extent: float, gap: float) -> float:
    """Return the longest period that rows cover twice, each row up to the next one; 730 days are two years.

    Args:
        extent: From the first row to the last.
        gap: The median distance of rows.

    Examples:
        >>> longest_period(729.0, 1.0) > 365.25 > longest_period(728.0, 1.0)
        True
    """
    return 1.001 * (extent + gap) / 2


def _gap_and_extent(points: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median gap and the extent of sorted points (n,)."""
    return float(np.median(np.diff(points))) if len(points) > 1 else math.inf, float(points[-1] - points[0])


def dominant_period(
    x: NDArray[np.float64],  # (n,)
    y: NDArray[np.float64],  # (n,)
) -> float | None:
    """Return the period of the strongest wave around a quadratic trend, or None.

    The result is None if the false-alarm probability exceeds `MAX_FALSE_ALARM`, or there are fewer than 12 distinct
    inputs. Periods range from four median gaps to half of the extent. On a regular grid, a period within a tenth of a
    cycle of a multiple of the gap becomes that multiple.

    Source: Lomb (1976), Scargle (1982), the periodogram. A wave explains more than a fraction p of the variance of
    noise with the probability (1 - p)^((n - 5) / 2), because a quadratic trend and the wave have five coefficients. The
    false-alarm probability is at most the sum over all periods.

    Args:
        x: The inputs.
        y: The targets.

    Examples:
        >>> import numpy as np
        >>> x = np.arange(120.0)
        >>> dominant_period(x, 0.1 * x + np.sin(2 * np.pi * x / 12))
        12.0
    """
    points = np.unique(x)
    if len(points) < 12:
        return None
    gap, extent = _gap_and_extent(points)
    scaled = (x - points[0]) / extent
    residual = y - np.polyval(np.polyfit(scaled, y, 2), scaled)
    if np.abs(residual).max() <= 1e-9 * np.abs(y).max():  # rounding errors
        return None
    spacing = 0.25
    cycles = np.arange(2.0, min(extent / (4 * gap), len(points)), spacing)
    if not len(cycles):
        return None

    def explained_fraction(count: Any) -> Any:
        frequencies = 2 * np.pi * np.atleast_1d(count)
        return np.atleast_1d(lombscargle(scaled, residual, frequencies, normalize=True, floating_mean=True))

    explained_fractions = explained_fraction(cycles)
    peak = cycles[explained_fractions.argmax()]
    false_alarm = len(cycles) * max(1 - float(explained_fractions.max()), 0.0) ** ((len(points) - 5) / 2)
    if false_alarm > MAX_FALSE_ALARM:
        return None
    bounds = max(2.0, peak - spacing), peak + spacing
    count = minimize_scalar(lambda count: -explained_fraction(count)[0], bounds=bounds, method="bounded").x
    steps = np.diff(points) / gap
    multiple = gap * round(extent / count / gap)
    is_near = np.abs(steps - steps.round()).max() < 0.01 and abs(extent / multiple - count) < 0.1
    return float(multiple if is_near else extent / count)


def merged_rows(state: GPState) -> tuple[Block, int]:
    """Return the rows in memory, and the number of rows of the fit.

    If there are few rows, replicates are merged, and the number is that of the merged rows. If new rows have inputs of
    known ones, an input keeps up to `NUM_FOLDS` rows, so that each is predicted from the others. For rows that are read
    in blocks, the rows in memory are a sample, and the number is that of all rows.

    Args:
        state: The state of the model before the fit.
    """
    rows = state.require_rows(purpose="a fit")
    block = rows_in_memory(rows)
    few, merged = limits().few_rows, block
    if state.spec.is_gaussian and not block.has_fixed_noise and len(rows) == len(block) <= 2 * few:
        merged = merge_replicates(block, NUM_FOLDS if has_known_inputs(state, block) else 1)
    return (merged, len(merged)) if len(merged) <= few else (block, len(rows))


def has_known_inputs(state: GPState, rows: Block) -> bool:
    """Return whether new rows can be expected to have the inputs of known rows.

    This is the case if there are replicates, and fewer than two distinct inputs for each fold, the fewest from which
    the others may be predicted, or fewer than two for each level of a category. Without its replicates, the level of
    such an input would be unknown.

    Args:
        state: The state of the model before the fit.
        rows: The rows.
    """
    num_inputs = _num_distinct(rows.inputs)
    if num_inputs == len(rows):
        return False
    columns, indicators = _columns(state), state.spec.options.indicators
    named = [{*(f"{key}={level}" for level in levels)} if levels else {key} for key, levels in indicators.items()]
    named += [{column.key} for column in columns if column.kind is ColumnKind.LEVEL]
    indices = [[i for i, column in enumerate(columns) if column.key in keys] for keys in named]
    return num_inputs < 2 * NUM_FOLDS or any(2 * _num_distinct(rows.inputs[:, some]) > num_inputs for some in indices)


def _num_distinct(inputs: Tensor) -> int:
    return int(input_groups(inputs).max()) + 1


def duplicate_labels(state: GPState, rows: Block) -> Any:
    """Return the group of each row (n,), rows with close inputs together.

    If that would merge more than half of the rows, the inputs have to be equal. If new rows have inputs of known ones,
    each row is a group.

    Args:
        state: The state of the model before the fit.
        rows: The rows.
    """
    if has_known_inputs(state, rows):
        return np.arange(len(rows))
    close, equal = input_groups(rows.inputs, SPACING), input_groups(rows.inputs)
    return close if 2 * (close.max() + 1) > equal.max() + 1 else equal


def group_labels(state: GPState, rows: Block, key: Any) -> Any:
    """Return the group of each row (n,) by the values of a column.

    Args:
        state: The state of the model before the fit.
        rows: The rows.
        key: The key of the column.

    Raises:
        InvalidArgumentError: If there is no such column.
    """
    keys = [column.key for column in _columns(state)]
    if key not in keys:
        raise InvalidArgumentError(
            f'validate must be "{FORWARD}" or a column of the inputs, got {key!r}. The columns are '
            f"{', '.join(map(repr, keys[:20]))}."
        )
    return input_groups(rows.inputs[:, [keys.index(key)]])


def date_column(state: GPState) -> int:
    """Return the index of the date column, or of the only column.

    Args:
        state: The state of the model before the fit.

    Raises:
        InvalidArgumentError: If there are several columns, and not one of dates.
    """
    columns = _columns(state)
    dates = [index for index, column in enumerate(columns) if column.is_date]
    if len(dates) != 1 and len(columns) != 1:
        raise InvalidArgumentError(
            f'validate="{FORWARD}" requires one column of dates, or a single column, got {len(dates)} of dates among '
            f"{len(columns)}. Convert the time to dates, or use the column of a group."
        )
    return dates[0] if dates else 0


def last_times(state: GPState) -> dict[str, float]:
    """Return the last time of the rows by column, in the user's units.

    Columns of times are those of dates, and a single column of ascending numbers.

    Args:
        state: The state of a model.
    """
    rows, columns, maps = state.require_rows(purpose="a fit"), _columns(state), state.scaling.inputs
    if maps is None:
        return {}
    steps = rows_in_memory(rows).inputs.diff(dim=0)
    is_ascending = steps.shape[1] == 1 and bool((steps >= 0).all())
    last = maps.inverse(rows.ends[1])
    return {str(column.key): float(last[i]) for i, column in enumerate(columns) if column.is_date or is_ascending}


def _columns(state: GPState) -> Any:
    """Return the schemas of the input columns."""
    schema = state.spec.schema
    assert schema is not None
    return schema.columns
