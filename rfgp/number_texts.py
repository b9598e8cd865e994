"""What a text is: a number with a unit by an example such as "1.234,50 EUR", a date, or an identifier."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from rfgp.errors import InvalidArgumentError
from rfgp.messages import quoted, short_repr

DATE = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,9})?)?"
    r" ?(?:[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)
"""The pattern of an ISO 8601 date, with or without a time and a time zone."""
SEPARATORS = (",", ".", "'", "_", " ", "\u00a0", "\u202f", "\u2019")
"""The separators of thousands that are read. Non-breaking blanks and typographic apostrophes are among them."""
BLANKS = "[ \t\u00a0\u202f]*"
"""The pattern of blanks around a unit."""
MAX_LEVELS = 50
"""The maximum number of levels of a column that is read as indicators. Each has a lengthscale."""
FEW_TEXTS = 100
"""The number of different texts that may be levels even if most of them occur once."""
_MARKS = re.escape("".join(SEPARATORS))
_NUMBER = rf"(?:(?<![^\W\d_])[.,])?\d(?:[\d{_MARKS}]*\d)?(?:[eE][+-]?\d+)?"
_TEXT = re.compile(rf"([+-]?){BLANKS}([^\d+-]*?){BLANKS}([+-]?)({_NUMBER}){BLANKS}(\D*)")
"""Matches a number with a unit before or after it."""
_UNIT = re.compile(
    r"|[%\u2030]|[A-Z]{0,3}[$\u00a2-\u00a5\u058f\u20a0-\u20cf]|[A-Z]{3}|Fr\.|kr\.?|Rs\.?|z\u0142|K\u010d"
)
"""Matches a currency, a sign of percent or per mille, or nothing."""
_SUFFIX = re.compile(rf"(?:{_UNIT.pattern})|\u00b0?[^\W\d_]{{1,5}}[\u00b2\u00b3]?(?:/[^\W\d_]{{1,5}}[\u00b2\u00b3]?)?")
"""Matches the same or another short unit, such as kg or km/h."""


@dataclass(frozen=True)
class NumberFormat:
    """The format of the numbers in a column of text.

    Attributes:
        prefix: The unit before the number, or "".
        suffix: The unit after the number, or "".
        decimal: The decimal mark, "." or ",".
        thousands: The separator of groups of three digits. If None, there is none.

    Examples:
        >>> NumberFormat.of("1.234,50 EUR")
        NumberFormat(prefix='', suffix='EUR', decimal=',', thousands='.')
    """

    prefix: str
    suffix: str
    decimal: str
    thousands: str | None

    @classmethod
    def of(cls, example: str) -> "NumberFormat":
        """Return the format of an example.

        Args:
            example: A number in this format, with its unit. It shows the decimal mark and the separator of thousands.

        Raises:
            InvalidArgumentError: If the example is not a number, or one mark could be either of the two.
        """
        match = _TEXT.fullmatch(example.strip()) if isinstance(example, str) else None
        if match is None:
            raise InvalidArgumentError(
                f"The example of a format must be a number with a unit, got {quoted(str(example))}. Give one such as "
                "'1.234,50 EUR'."
            )
        marks = [character for character in match[4] if character in SEPARATORS]
        kinds = list(dict.fromkeys(marks))
        if len(kinds) > 2 or (
            len(kinds) == 2 and (kinds[1] not in (",", ".") or marks.index(kinds[1]) < len(marks) - 1)
        ):
            raise InvalidArgumentError(
                f"The example of a format must have one decimal mark, got {quoted(example)}. Give one such as "
                "'1.234,50 EUR'."
            )
        decimal, thousands = ".", None
        if len(kinds) == 2:
            thousands, decimal = kinds
        elif len(marks) > 1 or (marks and kinds[0] not in (",", ".")):
            thousands = kinds[0]
            decimal = "," if thousands == "." else "."
        elif marks:
            decimal = kinds[0]
            if re.fullmatch(r"[1-9]\d{0,2}[.,]\d{3}", match[4]):
                written = quoted(example.replace(match[4], match[4] + (",00" if decimal == "." else ".00")))
                raise InvalidArgumentError(
                    f"The example of a format must show the decimal mark, got {quoted(example)}. Write {written} if "
                    f"{quoted(decimal)} separates thousands, or add a digit if it is the decimal mark."
                )
        return cls(match[2], match[5].rstrip(), decimal, thousands)

    @property
    def pattern(self) -> str:
        """The pattern of a text in this format. Its groups are a sign before or after the prefix, and the number."""
        mark, group = re.escape(self.decimal), re.escape(self.thousands or "")
        grouped = rf"|[1-9][0-9]{{0,2}}(?:{group}[0-9]{{3}})+" * bool(group)
        number = rf"((?:(?:[0-9]+{grouped})(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?)"
        prefix, suffix = re.escape(self.prefix), re.escape(self.suffix)
        if not prefix and not suffix:
            return rf"^([+-]?)(){number}$"
        return rf"^(?:([+-]?){BLANKS}{prefix}|{prefix}{BLANKS}([+-])){BLANKS}{number}{BLANKS}{suffix}$"


def example_of(texts: Collection[str], least_share: float = 0.5) -> str | None:
    """Return an example of the format of texts if enough of them are numbers in one format, otherwise None.

    Units are currencies, signs of percent, and short words after the number, such as kg.

    Args:
        texts: Distinct texts.
        least_share: The least share of the texts in this format.

    Examples:
        >>> example_of(["7,00 EUR", "1.234,50 EUR", "unknown"])
        '1.234,50 EUR'
        >>> example_of(["north", "south"]) is None
        True
    """
    by_unit = dict[tuple[str, str], list[str]]()
    for text in map(str.strip, texts):
        match = _TEXT.fullmatch(text)
        if match is not None and _UNIT.fullmatch(match[2]) and _SUFFIX.fullmatch(match[5]):
            by_unit.setdefault((match[2], match[5]), []).append(text)
    most = max(by_unit.values(), key=lambda found: len(found), default=list[str]())
    found = sorted(most, key=lambda text: -sum(map(text.count, SEPARATORS)))
    examples = dict[NumberFormat, str]()
    for form, example in map(_example, found):
        if form is not None:
            examples.setdefault(form, example)
    counts = {form: sum(re.match(form.pattern, text) is not None for text in found) for form in examples}
    best = max(counts, key=counts.__getitem__, default=None)
    return None if best is None or counts[best] < least_share * len(texts) else examples[best]


def number_of(texts: Collection[str], num_cells: int) -> str | None:
    """Return an example of the numbers that the texts of a column are, or None if they may be levels.

    They may if they are no numbers, or are at most half of the cells and few enough for indicators.

    Args:
        texts: Distinct texts.
        num_cells: The number of cells.

    Examples:
        >>> number_of(["5 %", "7,5 %", "8 %"], 4)
        '7,5 %'
        >>> number_of(["5 %", "10 %"], 4) is None
        True
    """
    return example_of(texts) if len(texts) > MAX_LEVELS or 2 * len(texts) > num_cells else None


def is_identifier(num_texts: int, num_cells: int) -> bool:
    """Return whether the texts of a column are all different, or too many for levels, as those of an identifier.

    Args:
        num_texts: The number of different texts.
        num_cells: The number of cells.

    Examples:
        >>> is_identifier(120, 200), is_identifier(120, 1000), is_identifier(4, 4)
        (True, False, True)
    """
    return num_texts == num_cells or (num_texts > FEW_TEXTS and 2 * num_texts > num_cells)


def is_date(text: str) -> bool:
    """Return whether a text is an ISO date, with or without a time.

    Args:
        text: The text.

    Examples:
        >>> is_date("2026-01-31 12:00"), is_date("31 January")
        (True, False)
    """
    return re.match(DATE, text.strip()) is not None


def numbers_remedy(column: object, example: str) -> str:
    """Return a sentence about the options that read a column of numbers as text.

    Args:
        column: The name of the column.
        example: An example of its numbers.

    Examples:
        >>> numbers_remedy("price", "$3.50")
        "Read the file with numbers={'price': '$3.50'}, or use rfgp.tables.read_numbers(column, '$3.50')."
    """
    if NumberFormat.of(example) == NumberFormat("", "", ".", None):
        return "Convert it with pandas.to_numeric."
    return (
        f"Read the file with numbers={{{short_repr(column)}: {short_repr(example)}}}, or use "
        f"rfgp.tables.read_numbers(column, {short_repr(example)})."
    )


def _example(text: str) -> tuple[NumberFormat | None, str]:
    """Return the format of a number, and an example that shows it. The format is None if the text has none."""
    for example in (text, re.sub(r"([.,])(\d{3})(?!.*\d)", lambda m: m[0] + (",00" if m[1] == "." else ".00"), text)):
        try:
            return NumberFormat.of(example), example
        except InvalidArgumentError:
            continue
    return None, text
