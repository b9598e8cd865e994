"""The variables of a table, and their dataframe for models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rfgp.columns import ColumnKind
from rfgp.columns.cells import Column
from rfgp.columns.days import dates_of, to_days
from rfgp.gp import GP
from rfgp.tables import Table
from rfgp.tables.table import ColumnRule

NUMBER, DATE, CATEGORY = "number", "date", "category"
"""The roles of variables, as in `rfgp.tables.table.ColumnRule`."""
LOG_TARGET = "log of "
"""The begin of the name of a target of logarithms, as `rfgp fit --log` writes it."""
_LEVEL = "level"
"""The role of a column of the file whose texts are in the dataframe."""


@dataclass(frozen=True)
class Variable:
    """A column of a file, with the columns of a dataframe that represent it.

    Attributes:
        name: The name of the column of the file.
        role: "number", "date" (in days since 1970-01-01) or "category".
        column: The column of the dataframe with the values, dates as times, or None.
        indicators: The level of each column of zeros and ones, by the name of that column.
        levels: The levels of a category.
        is_typical_of_row: Whether the typical value is that of the first row, as for coordinates.
        is_discrete: Whether the typical value is the most frequent one.
        zone: The time zone of dates, or "".

    Examples:
        >>> Variable("color", CATEGORY, None, {"color=red": "red", "color=blue": "blue"}).cells(["red"])
        {'color=red': array([1.]), 'color=blue': array([0.])}
    """

    name: str
    role: str
    column: str | None
    indicators: Mapping[str, str]
    levels: tuple[Any, ...] = ()
    is_typical_of_row: bool = False
    is_discrete: bool = False
    zone: str = ""

    @property
    def columns(self) -> frozenset[str]:
        """The names of the columns of the dataframe, and of indicators that a model makes of the levels."""
        if self.column is None:
            return frozenset(self.indicators)
        made = (f"{self.column}={level}" for level in self.levels)
        return frozenset((self.column, *self.indicators, *made))

    def values(self, frame: Any) -> NDArray[Any]:  # (n,)
        """Return the value of each row of a dataframe (n, d).

        Args:
            frame: The dataframe (n, d).
        """
        if self.column is not None:
            if self.role == DATE:
                return to_days(Column.of(frame[self.column]).values)
            cells: NDArray[Any] = frame[self.column].to_numpy()
            return cells
        shares = frame[list(self.indicators)].to_numpy()
        levels: NDArray[Any] = np.array(list(self.indicators.values()), dtype=object)
        return np.asarray(levels[shares.argmax(axis=1)])

    def texts(self, values: NDArray[Any]) -> list[str]:
        """Return values of the variable as texts.

        Args:
            values: The values (n,).
        """
        if self.role == DATE:
            return as_dates(values)
        return [f"{value:g}" if isinstance(value, float) else str(value) for value in values]

    def typical(self, frame: Any) -> Any:
        """Return the typical value: the median of a number, or the most frequent level.

        Args:
            frame: The dataframe (n, d).
        """
        values = self.values(frame)
        if self.is_typical_of_row:
            return values[0]
        if self.role != CATEGORY and not self.is_discrete:
            return float(np.median(values))
        return self.frequent(frame, 1)[0]

    def frequent(self, frame: Any, most: int) -> list[Any]:
        """Return the most frequent values in ascending order.

        Args:
            frame: The dataframe (n, d).
            most: The largest number of values.
        """
        levels, counts = np.unique(self.values(frame), return_counts=True)
        return list(levels[np.sort(np.argsort(-counts, kind="stable")[:most])])

    def cells(self, values: ArrayLike) -> dict[str, NDArray[Any]]:
        """Return the columns of the dataframe for given values of the variable.

        Args:
            values: The values (n,).
        """
        known = np.asarray(values, dtype=object if self.role == CATEGORY else None)
        by_column = {name: (known == level).astype(np.float64) for name, level in self.indicators.items()}
        if self.column is None:
            return by_column
        return {self.column: dates_of(known, self.zone) if self.role == DATE else known, **by_column}


def is_of_logarithms(table: Table) -> bool:
    """Return whether the targets of a table are logarithms, by their name.

    Args:
        table: The table.

    Examples:
        >>> is_of_logarithms(Table(np.zeros((2, 1)), np.zeros(2), ("x",), "log of price"))
        True
    """
    return table.target.startswith(LOG_TARGET)


def in_own_units(table: Table) -> Table:
    """Return a table with the exponentials of its targets if the targets are logarithms.

    Args:
        table: The table.

    Examples:
        >>> in_own_units(Table(np.zeros((2, 1)), np.zeros(2), ("x",), "log of price")).y.tolist()
        [1.0, 1.0]
    """
    if not is_of_logarithms(table):
        return table
    return replace(table, y=np.exp(table.y), target=table.target.removeprefix(LOG_TARGET))


def input_frame(table: Table, model: GP) -> Any:
    """Return the inputs of a table as the dataframe that a model reads.

    A category is a column of zeros and ones for each level, and a column of texts if the kernel names it.

    Args:
        table: The table.
        model: A model of a table.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.report import input_frame
        >>> from rfgp.tables import Table
        >>> from rfgp.tables.table import ColumnRule, Schema
        >>> schema = Schema((ColumnRule("color", 0, "category", ("blue", "red")),), ColumnRule("y", 1), 2)
        >>> table = Table(np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros(2), ("color=blue", "color=red"), "y", schema)
        >>> input_frame(table, rfgp.GP(k.Group("color")))["color"].tolist()
        ['red', 'blue']
    """
    frame, named = table.frame(), _kinds(model)
    for rule in table.schema.inputs:
        if rule.role == CATEGORY and rule.name in named and rule.name not in frame.columns:
            codes = frame[list(rule.encoded)].to_numpy().argmax(axis=1)
            frame[rule.name] = np.array(rule.levels, dtype=object)[codes]
    return frame


def variables_of(table: Table, model: GP, frame: Any) -> list[Variable]:
    """Return the variables of a table, in the order of the file.

    Args:
        table: The table.
        model: The model of the table.
        frame: The result of `input_frame`.
    """
    kinds = _kinds(model)
    variables = [_variable(rule, frame, kinds.get(rule.name, set())) for rule in table.schema.inputs]
    return [variable for variable in variables if variable.columns]


def variables_in(frame: Any, model: GP) -> list[Variable]:
    """Return the variables of a dataframe (n, d) that a model reads.

    Args:
        frame: The dataframe (n, d) of inputs, with texts as names.
        model: The fitted model.
    """
    kinds, variables = _kinds(model), list[Variable]()
    for name in frame.columns:
        kind = frame[name].dtype.kind
        role = DATE if kind == "M" else NUMBER if kind in "biuf" else CATEGORY
        levels = tuple(sorted(set(map(str, frame[name])))) if role == CATEGORY else ()
        rule = ColumnRule(name, len(variables), _LEVEL if levels else role, levels)
        variable = _variable(rule, frame, kinds.get(name, set()))
        variables += [variable] if variable.columns & set(kinds) else []
    return variables


def typical_row(variables: Sequence[Variable], frame: Any, count: int) -> dict[str, NDArray[Any]]:
    """Return columns of a dataframe at typical values of all variables.

    Args:
        variables: The variables.
        frame: The dataframe (n, d) of the table.
        count: The number of rows of the result.
    """
    cells: dict[str, NDArray[Any]] = {}
    for variable in variables:
        cells |= variable.cells(np.array([variable.typical(frame)] * count))
    return cells


def columns_of_hyperparameter(model: GP, path: str) -> list[str]:
    """Return the columns of the factor that has a given hyperparameter.

    The noise, the mean and output scales have no columns. Rotated lengthscales have axes in their place.

    Args:
        model: A fitted model.
        path: The path of the hyperparameter.
    """
    if not isinstance(model, GP) or model.spec.schema is None:
        return []
    for term in model.spec.terms:
        for factor, _, prefix in term.parts():
            if path.startswith(prefix) and "." not in path[len(prefix) :] and path != term.outputscale:
                return ["first axis", "second axis"] if factor.is_rotated else list(map(str, factor.columns or ()))
    return []


def as_dates(days: ArrayLike) -> list[str]:
    """Return days since 1970-01-01 as dates, with times unless all are midnights.

    Args:
        days: Days (n,).

    Examples:
        >>> as_dates([0, 0.5])
        ['1970-01-01T00:00:00', '1970-01-01T12:00:00']
    """
    numbers = np.asarray(days, dtype=np.float64).reshape(-1)
    times = np.datetime64("1970-01-01T00:00:00") + np.round(numbers * 86_400).astype("timedelta64[s]")
    is_whole = bool(np.all(numbers == np.round(numbers)))
    return [str(time) for time in (times.astype("datetime64[D]") if is_whole else times)]


def _variable(rule: ColumnRule, frame: Any, kinds: set[ColumnKind]) -> Variable:
    column = rule.name if rule.name in frame.columns else None
    levels = rule.levels if rule.role == CATEGORY else ()
    indicators = {name: level for name, level in zip(rule.encoded, levels, strict=False) if name in frame.columns}
    is_discrete = bool(kinds & {ColumnKind.LEVEL, ColumnKind.NODE})
    role = CATEGORY if rule.role == _LEVEL else rule.role
    is_point = not kinds.isdisjoint((ColumnKind.COORDINATE, ColumnKind.SPHERE))
    return Variable(rule.name, role, column, indicators, rule.levels, is_point, is_discrete, rule.zone)


def _kinds(model: GP) -> dict[str, set[ColumnKind]]:
    """Return the kinds of the columns that the kernel, and the kernel of the noise if there is one, name."""
    kernels = [model.kernel, getattr(model.spec.options.likelihood, "kernel", None)]
    terms = [term for kernel in kernels if kernel is not None for term in kernel.terms()]
    kinds: dict[str, set[ColumnKind]] = {}
    for factor in (factor for term in terms for factor in term.factors):
        for key in factor.columns or ():
            kinds.setdefault(str(key), set()).add(factor.kind)
    return kinds
