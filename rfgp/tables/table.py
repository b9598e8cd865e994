"""Encoded tables, the encoded inputs of a file to predict, and the schema by which later files are read."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.days import dates_of
from rfgp.errors import DataError, InvalidArgumentError, requires_extra
from rfgp.files import from_json, not_usable
from rfgp.messages import counted, listed, quoted
from rfgp.number_texts import NumberFormat
from rfgp.tables.options import CHOICES, MISSING_MARKS, TextFormat, no_choice
from rfgp.torch_context import unlisted

_VERSION = 1
"""The version of the format of schemas."""
_ROLES = ("number", "category", "date", "level")
"""The roles of columns."""
_WITH_LEVELS = ("category", "level")
"""The roles of columns with levels."""
_OPTIONAL = ("thousands", "example", "zone")
"""Fields that are left out of files at their defaults."""


@dataclass(frozen=True)
class ColumnRule:
    """The encoding of one column of a file as numbers.

    Attributes:
        name: The column's name, or its position if the file has no header.
        position: Its position in the file, from 0.
        role: "number", "category", "date" or "level". A category becomes one column of 0 and 1 for each level. A date
            becomes days since 1970-01-01T00:00. A level becomes one column of positions among the levels.
        levels: The texts of a category or of levels, sorted.
        example: An example of the format of numbers as text, such as "1.234,50 EUR". If empty, that of the file.
        zone: The time zone or the UTC offsets of dates, whose days are on its clock. Empty without a zone.

    Examples:
        >>> ColumnRule("color", 0, "category", ("blue", "red")).encoded
        ('color=blue', 'color=red')
    """

    name: str
    position: int
    role: str = "number"
    levels: tuple[str, ...] = ()
    example: str = ""
    zone: str = ""

    @property
    def encoded(self) -> tuple[str, ...]:
        """The names of the encoded columns: "color=red" for each level of a category, otherwise the name itself."""
        return tuple(f"{self.name}={level}" for level in self.levels) if self.role == "category" else (self.name,)


@dataclass(frozen=True)
class Schema:
    """The encoding of a table from a file, as numbers, dates, levels or one-hot columns.

    Attributes:
        inputs: The encodings of the input columns, in the order of the file.
        output: The encoding of the target column. Levels of a category are the classes.
        width: The number of columns of the file.
        header: Whether the file had a header.
        dropped: The names of the columns that were left out.
        missing: The policy for missing cells: "error", "drop" or "mean".
        imputed_means: The means (d,) that replace missing values of the encoded columns. Empty unless `missing` is
            "mean".
        decimal: The decimal mark.
        comment: The mark of lines that are skipped.
        missing_marks: The texts that mark a missing cell.
        encoding: The encoding of the text.
        thousands: The separator of thousands.

    Examples:
        >>> schema = Schema.of_numbers(("size", "age"), "price")
        >>> schema.columns, schema.target
        (('size', 'age'), 'price')
        >>> Schema.from_dict(schema.to_dict()) == schema
        True
    """

    inputs: tuple[ColumnRule, ...] = ()
    output: ColumnRule = ColumnRule("", 0)
    width: int = 1
    header: bool = True
    dropped: tuple[str, ...] = ()
    missing: str = "error"
    imputed_means: tuple[float, ...] = ()
    decimal: str = "."
    comment: str | None = None
    missing_marks: tuple[str, ...] = MISSING_MARKS
    encoding: str = "utf-8"
    thousands: str | None = None

    @classmethod
    def of_numbers(cls, columns: Sequence[str], target: str) -> "Schema":
        """Return the schema of a file with numeric columns, the target last.

        Args:
            columns: The names of the d inputs, in the order of the file.
            target: The name of the target.
        """
        rules = tuple(ColumnRule(name, index) for index, name in enumerate(columns))
        return cls(rules, ColumnRule(target, len(rules)), len(rules) + 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The d encoded columns' names."""
        return tuple(name for rule in self.inputs for name in rule.encoded)

    @property
    def target(self) -> str:
        """The target column's name."""
        return self.output.name

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes of a text target, sorted; None for numbers."""
        return self.output.levels if self.output.role == "category" else None

    @property
    def format(self) -> TextFormat:
        """The format of the cells of a text file."""
        return TextFormat.of(self)

    def with_missing(self, missing: str) -> "Schema":
        """Return the schema with another policy about missing cells.

        Args:
            missing: The policy: "error", "drop" or "mean".

        Raises:
            InvalidArgumentError: If the policy is unknown, or needs means that the fitted table does not have.
        """
        if missing not in CHOICES["missing"]:
            raise no_choice("missing", missing)
        if missing == "mean" and not self.imputed_means:
            raise InvalidArgumentError(
                'missing="mean" needs the means of the fitted table, which was read without them. Give '
                'missing="drop", or read and fit it with missing="mean" again.'
            )
        return replace(self, missing=missing, imputed_means=self.imputed_means if missing == "mean" else ())

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as dicts, lists, texts and numbers, for JSON."""
        content: dict[str, Any] = {"version": _VERSION, **json.loads(json.dumps(asdict(self)))}  # tuples become lists
        for part in (content, *content["inputs"], content["output"]):
            for name in _OPTIONAL:
                if not part.get(name, True):
                    del part[name]
        return content

    @classmethod
    def from_dict(cls, content: Any) -> "Schema":
        """Return the schema that `to_dict` wrote, with all content checked.

        Args:
            content: The result of `to_dict`, perhaps from JSON.

        Raises:
            DataError: If a field is missing, unknown, of another type or size, or contradicts another.
        """
        if not isinstance(content, dict) or "version" not in content:
            raise not_usable("it is not a dictionary with a version")
        known = {name: value for name, value in content.items() if name != "version"}
        version = content["version"]
        if type(version) is not int or version != _VERSION:
            raise not_usable(f"its version is {quoted(str(version))}, and {_VERSION} is the one known")
        schema: Schema = from_json(cls, known, "the schema", _OPTIONAL)
        _check(schema)
        return schema


def _check(schema: Schema) -> None:
    """Check conditions on more than the type of one field."""
    rules = (*schema.inputs, schema.output)
    for rule in rules:
        if rule.role not in _ROLES:
            raise not_usable(f"column {quoted(rule.name)} has the role {quoted(rule.role)}")
        if bool(rule.levels) != (rule.role in _WITH_LEVELS) or list(rule.levels) != sorted(set(rule.levels)):
            raise not_usable(
                f"column {quoted(rule.name)} has levels that do not fit its role, or are not sorted and different"
            )
        if rule.role == "level" and rule is schema.output:
            raise not_usable(f"the target {quoted(rule.name)} has the role 'level'")
        if not 0 <= rule.position < schema.width:
            raise not_usable(
                f"column {quoted(rule.name)} has a position that is not among {counted(schema.width, 'column')}"
            )
    if schema.missing not in CHOICES["missing"]:
        raise not_usable(f"missing is {quoted(schema.missing)}")
    if len(schema.imputed_means) != (len(schema.columns) if schema.missing == "mean" else 0):
        sizes = f"{counted(len(schema.imputed_means), 'mean')} for {counted(len(schema.columns), 'encoded column')}"
        raise not_usable(f"it has {sizes}")
    if not all(map(math.isfinite, schema.imputed_means)):
        raise not_usable("a mean is not finite")
    if not schema.inputs:
        raise not_usable("it has no input columns")
    if len({rule.name for rule in rules}) < len(rules) or len({rule.position for rule in rules}) < len(rules):
        raise not_usable("two columns share a name or a position")
    try:
        _ = schema.format, [NumberFormat.of(rule.example) for rule in rules if rule.example]
    except InvalidArgumentError as error:
        raise not_usable(str(error).rstrip(".")) from error


# --- Encoded tables and inputs ----------------------------------------------------------------------------------------


@unlisted("check_numeric_target")
@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table from a file with a target column, encoded as numbers.

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
