"""Encoded tables, and the encoded inputs of a file to predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, requires_extra
from rfgp.messages import counted, listed, quoted
from rfgp.tables.schema import ColumnRule, Schema
from rfgp.torch_context import unlisted

_MAX_MICROSECOND_DAYS = 1e8
"""The maximum number of days from 1970-01-01 for which microseconds fit into 64 bits."""


@unlisted("check_numeric_target")
@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table from a file with a target column, encoded as numbers.

    In contrast, `rfgp.columns.Table` has the unencoded inputs of a model.

    Attributes:
        X: Inputs (n, d), float64.
        y: Targets (n,), float64. For a text target, positions in `classes`.
        columns: The names of the d encoded columns, such as "color=red". They are "0", "1", ... without a header.
        target: The name of the target column.
        schema: The encoding, by which later files are read. By default, that of numeric columns.
        classes: The sorted levels of a text target. None for numbers.
        rows: The positions (n,) of the rows in the file, from 0 after the header. By default, all.
        num_rows: The number of rows of the file, at least n.
        times: Dates (n,) that days do not represent to the microsecond, by the names of columns.

    Examples:
        >>> import numpy as np
        >>> Table(np.zeros((3, 2)), np.ones(3), ("size", "age"), "price")
        Table(3 rows, 2 columns (size, age), target 'price')
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    columns: tuple[str, ...]
    target: str
    schema: Schema = field(default_factory=Schema)
    classes: tuple[str, ...] | None = None
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    num_rows: int = 0
    times: Mapping[str, NDArray[np.datetime64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.schema.inputs:
            object.__setattr__(self, "schema", Schema.of_numbers(self.columns, self.target))
        if len(self.rows) == 0:
            object.__setattr__(self, "rows", np.arange(len(self.y), dtype=np.int64))
        if self.num_rows == 0:
            object.__setattr__(self, "num_rows", len(self.y))

    def __repr__(self) -> str:
        n, d = self.X.shape
        classes = "" if self.classes is None else f" of {len(self.classes)} classes"
        size = f"{counted(n, 'row')}, {counted(d, 'column')} ({listed(self.columns)})"
        return f"Table({size}, target {quoted(self.target)}{classes})"

    def frame(self) -> Any:
        """Return the inputs as a pandas DataFrame (n, d) to fit a model by column names.

        Levels are categories of text, dates are times, and others are numbers.
        """
        return frame_of(self.schema.inputs, self.X, self.times)

    def check_numeric_target(self, most_classes: int = 0) -> None:
        """Check that the target is numeric, or has few enough classes.

        Args:
            most_classes: The largest number of classes of the likelihood.

        Raises:
            DataError: If the target has more classes. The message names a model for them.
        """
        if self.classes is None or len(self.classes) <= most_classes:
            return
        advice = "Choose another target, or fit classes with rfgp.sklearn.GPClassifier."
        if len(self.classes) == 2:
            advice = f'Use likelihood="bernoulli" (--likelihood bernoulli) to predict {quoted(self.classes[1])}.'
        raise DataError(
            f"The target {quoted(self.target)} must have numbers, got the classes {listed(self.classes)}. " + advice
        )


@dataclass(frozen=True, eq=False, repr=False)
class Inputs:
    """The encoded inputs of a file, for predictions.

    Attributes:
        X: Inputs (n, d), float64, encoded by the schema.
        rows: The positions (n,) of the rows in the file, from 0 after the header.
        num_rows: The number of rows of the file, at least n.
        y: Targets (n,), or None if the file has no target column, or missing values in it.
        rules: The rules of the columns, with the levels of this file after those of the fitted table.
        passthrough: The texts of further columns (n,) by name.
        times: Dates (n,) that days do not represent to the microsecond, by the names of columns.

    Examples:
        >>> import numpy as np
        >>> Inputs(np.zeros((3, 2)), np.arange(3), 3)
        Inputs(3 rows, 2 columns, no targets)
    """

    X: NDArray[np.float64]
    rows: NDArray[np.int64]
    num_rows: int
    y: NDArray[np.float64] | None = None
    rules: tuple[ColumnRule, ...] = ()
    passthrough: Mapping[str, Sequence[str]] = field(default_factory=dict)
    times: Mapping[str, NDArray[np.datetime64]] = field(default_factory=dict)

    def frame(self) -> Any:
        """Return the inputs as a pandas DataFrame (n, d).

        Levels are categories of text, dates are times, and others are numbers.
        """
        return frame_of(self.rules, self.X, self.times)

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"Inputs({counted(n, 'row')}, {counted(d, 'column')}, {'no' if self.y is None else 'with'} targets)"


def times_of(days: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Return days (n,) since 1970-01-01 as datetime64 times (n,).

    They are in microseconds, or in seconds beyond `_MAX_MICROSECOND_DAYS`.

    Args:
        days: Days (n,).

    Examples:
        >>> import numpy as np
        >>> times_of(np.array([0.5])).tolist()
        [datetime.datetime(1970, 1, 1, 12, 0)]
    """
    unit, per_day = ("us", 86_400 * 10**6) if np.abs(days).max(initial=0) < _MAX_MICROSECOND_DAYS else ("s", 86_400)
    return np.round(days * per_day).astype(f"datetime64[{unit}]")


def dates_of(days: NDArray[np.float64], zone: str, times: NDArray[np.datetime64] | None = None) -> Any:
    """Return days (n,) on the clock of a zone as dates of pandas (n,), with the zone if it has a name.

    Args:
        days: Days since 1970-01-01.
        zone: The time zone, UTC offsets, or "".
        times: The dates to the nanosecond. If None, they are rounded to microseconds. NaT is replaced by the days.

    Examples:
        >>> import numpy as np
        >>> dates_of(np.array([0.5]), "Europe/Berlin")[0].isoformat()
        '1970-01-01T12:00:00+01:00'
    """
    with requires_extra("tables"):
        import pandas as pd

    values = times_of(days)
    dates = pd.Series(values if times is None else np.where(np.isnat(times), values, times))
    if zone and " " not in zone:  # any hour of the two that are alike has the same clock
        first = np.zeros(len(dates), dtype=bool)
        dates = dates.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    return dates.array


def frame_of(
    rules: Sequence[ColumnRule],
    X: NDArray[np.float64],
    times: Mapping[str, NDArray[np.datetime64]] | None = None,
) -> Any:
    """Return encoded inputs (n, d) as a DataFrame with levels and dates.

    Args:
        rules: The encodings of the columns.
        X: Encoded inputs (n, d).
        times: Dates (n,) that days do not represent to the microsecond, by the names of columns. If None, none.

    Examples:
        >>> import numpy as np
        >>> frame_of([ColumnRule("color", 0, "level", ("blue", "red"))], np.array([[1.0]]))["color"].tolist()
        ['red']
    """
    with requires_extra("tables"):
        import pandas as pd

    frame = pd.DataFrame(X, columns=[name for rule in rules for name in rule.encoded])
    index = 0
    for rule in rules:
        if rule.role == "level":
            frame.isetitem(index, pd.Categorical.from_codes(X[:, index].astype(np.int64), list(rule.levels)))
        elif rule.role == "date":
            frame.isetitem(index, dates_of(X[:, index], rule.zone, (times or {}).get(rule.name)))
        index += len(rule.encoded)
    return frame
