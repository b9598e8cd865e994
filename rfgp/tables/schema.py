"""What a fitted model must know of its table to read the next one."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.tables.messages import counted, show
from rfgp.tables.options import CHOICES, MISSING_MARKS, TextFormat

_VERSION = 1
_MOST_COLUMNS = 100_000
_MOST_LEVELS = 256
_LONGEST_NAME = 10_000
_MOST_MARKS = 1_000
_ROLES = ("number", "category", "date")

T = TypeVar("T")


@dataclass(frozen=True)
class ColumnRule:
    """How one column of the file becomes numbers.

    Attributes:
        name: The column's name; its position where the file has no header.
        position: Its place in the file, from 0.
        role: "number", "category" or "date" (days since 1970-01-01T00:00 UTC).
        levels: A category's texts, sorted.
    """

    name: str
    position: int
    role: str = "number"
    levels: tuple[str, ...] = ()

    @property
    def encoded(self) -> tuple[str, ...]:
        """The encoded columns' names: "color=red" for each level, else the name itself."""
        return tuple(f"{self.name}={level}" for level in self.levels) if self.role == "category" else (self.name,)


@dataclass(frozen=True)
class Schema:
    """The columns of a table and how they were encoded.

    Attributes:
        inputs: The input columns' rules, in the file's order.
        output: The target column's rule; a category's levels are the classes.
        width: The number of columns of the file.
        header: Whether the file had names of its own.
        dropped: The names of the columns that were left out.
        missing: What is done about missing cells: "error", "drop" or "mean".
        fills: The d means that fill the encoded columns where `missing` is "mean"; else empty.
        decimal: The decimal mark.
        comment: What lines begin with that are skipped.
        missing_marks: The texts that stand for a missing cell.
        encoding: The text's encoding.
    """

    inputs: tuple[ColumnRule, ...] = ()
    output: ColumnRule = ColumnRule("", 0)
    width: int = 1
    header: bool = True
    dropped: tuple[str, ...] = ()
    missing: str = "error"
    fills: tuple[float, ...] = ()
    decimal: str = "."
    comment: str | None = None
    missing_marks: tuple[str, ...] = MISSING_MARKS
    encoding: str = "utf-8"

    @classmethod
    def of_numbers(cls, columns: Sequence[str], target: str) -> "Schema":
        """Return the schema of a file with numeric columns and the target as the last."""
        rules = tuple(ColumnRule(name, place) for place, name in enumerate(columns))
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
        """How a text file spells its cells."""
        return TextFormat(self.decimal, self.comment, self.missing_marks, self.encoding)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema in lists, texts and numbers, ready for JSON."""
        return {"version": _VERSION, **_listed(asdict(self))}

    @classmethod
    def from_dict(cls, content: Any) -> "Schema":
        """Return the schema of `to_dict`, with everything checked; the content may come from anywhere.

        Raises:
            DataError: a field is missing, unknown, of another type or size, or contradicts another.
        """
        fields = _fields(content, {"version", *cls.__dataclass_fields__}, "the schema")
        if (version := fields.pop("version")) != _VERSION or isinstance(version, bool):
            raise _bad(f"its version is {show(str(version))}, and {_VERSION} is the one known")
        comment = fields["comment"]
        schema = cls(
            inputs=tuple(_rule(rule) for rule in _many(fields["inputs"], dict, "inputs", _MOST_COLUMNS)),
            output=_rule(fields["output"]),
            width=_count(fields["width"], "width", _MOST_COLUMNS),
            header=_one(fields["header"], bool, "header"),
            dropped=_texts(fields["dropped"], "dropped", _MOST_COLUMNS),
            missing=_one(fields["missing"], str, "missing"),
            fills=tuple(map(_finite, _many(fields["fills"], int | float, "fills", _MOST_COLUMNS * _MOST_LEVELS))),
            decimal=_one(fields["decimal"], str, "decimal"),
            comment=None if comment is None else _text(comment, "comment"),
            missing_marks=_texts(fields["missing_marks"], "missing_marks", _MOST_MARKS),
            encoding=_text(fields["encoding"], "encoding"),
        )
        _check_whole(schema)
        return schema


def _check_whole(schema: Schema) -> None:
    """Check what concerns more than one field."""
    rules = (*schema.inputs, schema.output)
    if schema.missing not in CHOICES["missing"]:
        raise _bad(f"missing is {show(schema.missing)}")
    if len(schema.fills) != (len(schema.columns) if schema.missing == "mean" else 0):
        raise _bad(f"{counted(len(schema.fills), 'fill')} for {counted(len(schema.columns), 'encoded column')}")
    if not schema.inputs:
        raise _bad("it has no input columns")
    if len({rule.name for rule in rules}) < len(rules) or len({rule.position for rule in rules}) < len(rules):
        raise _bad("two columns share a name or a position")
    if max(rule.position for rule in rules) >= schema.width:
        raise _bad(f"a column lies beyond the width {schema.width}")
    try:
        _ = schema.format
    except InvalidArgumentError as error:
        raise _bad(str(error).rstrip(".")) from error


def _rule(content: Any) -> ColumnRule:
    fields = _fields(content, set(ColumnRule.__dataclass_fields__), "a column")
    name, role = _text(fields["name"], "name"), _one(fields["role"], str, "role")
    levels = _texts(fields["levels"], "levels", _MOST_LEVELS)
    if role not in _ROLES:
        raise _bad(f"column {show(name)} has the role {show(role)}")
    if bool(levels) != (role == "category") or list(levels) != sorted(set(levels)):
        raise _bad(f"column {show(name)} has levels that do not fit its role, or are not sorted and different")
    return ColumnRule(name, _count(fields["position"], "position", _MOST_COLUMNS), role, levels)


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(entry) for key, entry in value.items()}
    return [_listed(entry) for entry in value] if isinstance(value, tuple) else value


def _bad(why: str) -> DataError:
    return DataError(f"This is not a schema that can be used: {why}.")


def _fields(content: Any, names: set[str], what: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise _bad(f"{what} is not a dictionary")
    if odd := names.symmetric_difference(content):
        raise _bad(f"{what} lacks or does not know the field {show(str(min(odd, key=str)))}")
    return dict(content)


def _one(value: Any, kind: type[T], name: str) -> T:
    if not isinstance(value, kind):
        raise _bad(f"{name} is {show(str(type(value).__name__))}, not {kind.__name__}")
    return value


def _many(value: Any, kind: Any, name: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise _bad(f"{name} is not a list of at most {most:,} entries")
    if not all(isinstance(entry, kind) and not isinstance(entry, bool) for entry in value):
        raise _bad(f"{name} holds an entry of a wrong type")
    return value


def _text(value: Any, name: str) -> str:
    text = _one(value, str, name)
    if len(text) > _LONGEST_NAME:
        raise _bad(f"{name} has more than {_LONGEST_NAME:,} characters")
    return text


def _texts(value: Any, name: str, most: int) -> tuple[str, ...]:
    return tuple(_text(entry, name) for entry in _many(value, str, name, most))


def _count(value: Any, name: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _bad(f"{name} is not a whole number from 0 to {most:,}")
    return value


def _finite(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _bad("a fill is not finite")
    return number
