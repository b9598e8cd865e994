"""The checked options of a reader of tables, and advice on those that read a text as a number."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from rfgp.errors import InvalidArgumentError
from rfgp.messages import printable, quoted
from rfgp.number_texts import DATE, SEPARATORS, NumberFormat

Categories = Literal["error", "one-hot", "levels", "drop"]
Dates = Literal["error", "days", "drop"]
Missing = Literal["error", "drop", "mean"]
Decimal = Literal[".", ","]

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".gz")
"""The endings of the names of text files."""
PARQUET_SUFFIXES = (".parquet", ".pq")
"""The endings of the names of Parquet files."""
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *PARQUET_SUFFIXES)
"""The endings of the names of all files that can be read."""
MISSING_MARKS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL")
"""The texts that mark a missing cell by default."""
NUMBER_LIKE = r"^[+-]?[0-9.,]*[.,][0-9.,]*(?:[eE][+-]?[0-9]+)?$"
"""The pattern of a text that could be a number with a comma or a point."""
CHOICES: dict[str, tuple[str, ...]] = {
    "categories": ("error", "one-hot", "levels", "drop"),
    "dates": ("error", "days", "drop"),
    "missing": ("error", "drop", "mean"),
    "decimal": (".", ","),
}
"""The values of each option."""


@dataclass(frozen=True, kw_only=True)
class TextFormat:
    """The format of the cells of a text file.

    Attributes:
        decimal: The decimal mark, "." or ",".
        comment: The mark of lines to skip. If None, no line is skipped.
        missing_marks: The texts that mark a missing cell.
        encoding: The encoding of the file.
        thousands: The separator of groups of three digits. If None, there is none.

    Raises:
        InvalidArgumentError: If a field has an invalid value.

    Examples:
        >>> TextFormat(decimal=",", thousands=".").decimal
        ','
    """

    decimal: str = "."
    comment: str | None = None
    missing_marks: Sequence[str] = MISSING_MARKS
    encoding: str = "utf-8"
    thousands: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in CHOICES["decimal"]:
            raise no_choice("decimal", self.decimal)
        if self.thousands is not None and (self.thousands not in SEPARATORS or self.thousands == self.decimal):
            choices = ", ".join(repr(mark) for mark in SEPARATORS if mark != self.decimal)
            raise InvalidArgumentError(
                f"thousands must be one of {choices} with the decimal mark {self.decimal!r}, "
                f"got {quoted(self.thousands)}."
            )
        if self.comment is not None and not re.fullmatch(r"\S{1,10}", self.comment):
            raise InvalidArgumentError(
                f"comment must be one to ten characters without blanks, got {quoted(self.comment)}."
            )
        try:
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", self.encoding):
                raise LookupError
            b"a".decode(self.encoding, "replace")  # also refuses codecs of bytes, such as "zip"
        except (LookupError, UnicodeError):
            raise InvalidArgumentError(
                f"encoding must be a text encoding, got {quoted(self.encoding)}. Try utf-8 or latin-1."
            ) from None

    @property
    def number(self) -> NumberFormat:
        """The format of numbers without a unit."""
        return NumberFormat("", "", self.decimal, self.thousands)

    @property
    def is_plain(self) -> bool:
        """Whether numbers are as in Python."""
        return self.decimal == "." and self.thousands is None

    @property
    def example(self) -> str:
        """An example of a number without a unit."""
        return f"1{self.thousands or ''}234{self.decimal}5"

    @classmethod
    def of(cls, options: Any) -> "TextFormat":
        """Return the format among the fields of other options.

        Args:
            options: An object with these fields.
        """
        return TextFormat(**{field.name: getattr(options, field.name) for field in fields(TextFormat)})


class TableOptions(TypedDict, total=False):
    """The keyword arguments of `read_table`.

    Examples:
        >>> options: TableOptions = {"missing": "drop", "decimal": ","}
        >>> sorted(options)
        ['decimal', 'missing']
    """

    names: Sequence[str] | None
    categories: Categories
    dates: Dates
    missing: Missing
    drop: str | int | Sequence[str | int]
    as_categories: str | int | Sequence[str | int]
    decimal: Decimal
    comment: str | None
    missing_marks: Sequence[str]
    encoding: str
    thousands: str | None
    columns: str | int | Sequence[str | int] | None
    levels: str | int | Sequence[str | int]
    numbers: Mapping[str | int, str] | None


@dataclass(frozen=True)
class ReadOptions(TextFormat):
    """The checked arguments of `read_table`, as fields. Columns are tuples of names and positions.

    Raises:
        InvalidArgumentError: If an argument has an invalid value.

    Examples:
        >>> ReadOptions("price", drop="id").drop
        ('id',)
    """

    target: str | int | None = None
    names: Sequence[str] | None = None
    categories: str = "error"
    dates: str = "error"
    missing: str = "error"
    drop: Any = ()
    as_categories: Any = ()
    columns: Any = None
    levels: Any = ()
    numbers: Mapping[str | int, str] | None = None

    def __post_init__(self) -> None:
        for option in ("categories", "dates", "missing"):
            if getattr(self, option) not in CHOICES[option]:
                raise no_choice(option, getattr(self, option))
        for option in ("names", "missing_marks"):
            value = getattr(self, option)
            if value is not None and (isinstance(value, str) or not all(isinstance(name, str) for name in value)):
                raise InvalidArgumentError(f"{option} must be a list of texts, got {quoted(str(value))}.")
        object.__setattr__(self, "missing_marks", tuple(self.missing_marks))
        for option in ("drop", "as_categories", "columns", "levels"):
            value = getattr(self, option)
            if value is not None:
                object.__setattr__(self, option, (value,) if isinstance(value, str | int) else tuple(value))
        check_numbers(self.numbers or {})
        super().__post_init__()


def check_numbers(numbers: object) -> None:
    """Check that the formats of columns are examples of numbers by the name of the column.

    Args:
        numbers: The option `numbers` of a reader.

    Raises:
        InvalidArgumentError: If it is not a dictionary, or an example is not a number.

    Examples:
        >>> check_numbers({"price": "1.234,50 EUR"})
    """
    if not isinstance(numbers, Mapping):
        raise InvalidArgumentError(
            f"numbers must be a dictionary of examples such as {{'price': '1.234,50 EUR'}}, got {quoted(str(numbers))}."
        )
    for example in numbers.values():
        NumberFormat.of(example)


def no_choice(option: str, value: object) -> InvalidArgumentError:
    """Return the error for an option with an invalid value.

    Args:
        option: The name of the option.
        value: The invalid value.

    Examples:
        >>> str(no_choice("decimal", ";"))
        "decimal must be one of '.', ',', got ';'."
    """
    choices = ", ".join(repr(choice) for choice in CHOICES[option])
    return InvalidArgumentError(f"{option} must be one of {choices}, got {quoted(str(value))}.")


# --- Texts that may be numbers with a comma or a point ---------------------------------------------------------------


def title(file: Path | str) -> str:
    """Return the path of a file, or the name of a dataframe, as text for messages.

    Args:
        file: The file, or the name.

    Examples:
        >>> title("table.csv")
        'table.csv'
    """
    return printable(str(file))


def decimal_advice(columns: Mapping[str, Sequence[str]], name: str, text_format: TextFormat) -> str:
    """Return advice on the options that read a column's numbers, or "".

    The recommended options do not change the scale of the numbers in other columns. A separator of thousands in one
    column is never recommended as a decimal mark.

    Args:
        columns: The cells that could be numbers with a comma or a point (`number_like_cells`), by column name.
        name: The column that cannot be read.
        text_format: The format of the current options.

    Examples:
        >>> decimal_advice({"price": ["0,5", "1,25"]}, "price", TextFormat())
        'Use decimal="," if a comma is the decimal mark. '
    """
    if text_format.thousands is not None:
        return ""
    uses = {key: _use(cells, text_format.decimal) for key, cells in columns.items()}
    known = set(uses.values()) - {""}
    mark, word = (",", "comma") if text_format.decimal == "." else (".", "point")
    if uses[name] not in ("thousands", "decimal", "both"):
        return ""
    if known <= {"thousands", "present"}:
        return f'Use thousands="{mark}" if a {word} separates thousands. '
    if known <= {"decimal", "both"}:
        more = f' and thousands="{text_format.decimal}"' if "both" in known else ""
        return f'Use decimal="{mark}"{more} if a {word} is the decimal mark. '
    if "thousands" in known and known & {"decimal", "both"}:
        pair = [
            next(cell for key, use in uses.items() if use in kinds for cell in columns[key] if mark in cell)
            for kinds in (("decimal", "both"), ("thousands",))
        ]
        return (
            f"In {quoted(pair[0])} the {word} is a decimal mark, in {quoted(pair[1])} it may separate thousands. Use "
            f'decimal="{mark}" only if it is a decimal mark in all columns. Otherwise write the numbers alike. '
        )
    return "Some numbers have a decimal comma and some a decimal point. Write them alike. "


def is_number_like(cell: str) -> bool:
    """Return whether a text could be a number with a comma or a point.

    Args:
        cell: The cell.

    Examples:
        >>> is_number_like("1,200"), is_number_like("1200")
        (True, False)
    """
    return re.match(NUMBER_LIKE, cell) is not None


def _use(cells: Sequence[str], decimal: str) -> str:
    """Return the role of the other mark, comma or point, in number-like cells of a column.

    The roles "thousands" and "decimal" are those of a separator of thousands and a decimal mark. "both" is a decimal
    mark, and the given decimal mark then separates thousands. The other roles are "present" (only the given decimal
    mark occurs), "mixed" (none of these) and "" (there are no marks).
    """
    mark = "," if decimal == "." else "."
    with_mark = [cell for cell in cells if mark in cell]
    if not with_mark:
        return "present" if cells else ""
    if all(re.match(NumberFormat("", "", decimal, mark).pattern, cell) for cell in with_mark):
        return "thousands"
    if all(re.match(NumberFormat("", "", mark, None).pattern, cell) for cell in cells):
        return "decimal"
    return "both" if all(re.match(NumberFormat("", "", mark, decimal).pattern, cell) for cell in cells) else "mixed"


def is_value(cell: str, text_format: TextFormat) -> bool:
    """Return whether a text is a number or a date.

    Examples:
        >>> is_value("1e3", TextFormat()), is_value("2026-01-01", TextFormat()), is_value("red", TextFormat())
        (True, True, False)
    """
    return re.match(text_format.number.pattern, cell) is not None or re.match(DATE, cell) is not None
