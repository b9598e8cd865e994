"""What the texts of a file are: numbers with any decimal mark, dates and booleans, and advice on their format."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError
from rfgp.messages import printable, quoted
from rfgp.number_texts import DATE, NumberFormat
from rfgp.tables.options import TextFormat

_NOT_FINITE = r"^[+-]?(?i:inf|infinity|nan)$"
"""The pattern of infinity and NaN."""
BOOLEAN = r"^(?:True|TRUE|true|False|FALSE|false)$"
"""The pattern of a boolean."""


def title(file: Path | str) -> str:
    """Return the path of a file, or the name of a dataframe, as text for messages.

    Args:
        file: The file, or the name.

    Examples:
        >>> title("table.csv")
        'table.csv'
    """
    return printable(str(file))


def as_numbers(texts: Any, form: NumberFormat) -> Any:
    """Return numbers in a format as Arrow texts (n,) that Arrow reads, null for other texts.

    Args:
        texts: Arrow texts (n,) without blanks around them.
        form: The format of the numbers.

    Examples:
        >>> import pyarrow as pa
        >>> as_numbers(pa.array(["1.200,5", "+7", "x"]), NumberFormat("", "", ",", ".")).to_pylist()
        ['1200.5', '7', None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers, is_number = texts, pc.match_substring_regex(texts, form.pattern)
    if form.prefix or form.suffix:
        numbers = pc.replace_substring_regex(numbers, form.pattern, r"\1\2\3")
    if form.thousands is not None:
        numbers = pc.replace_substring(numbers, form.thousands, "")
    if form.decimal != ".":
        numbers = pc.replace_substring(numbers, form.decimal, ".")
    if not pc.all(is_number).as_py():
        is_number = pc.or_(is_number, pc.match_substring_regex(texts, _NOT_FINITE))
    numbers = pc.if_else(pc.fill_null(is_number, False), numbers, pa.scalar(None, numbers.type))
    return pc.utf8_ltrim(numbers, "+")


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
    return re.match(_NUMBER_LIKE, cell) is not None


def number_like_cells(source: Any) -> list[str]:
    """Return distinct cells that may be numbers with a comma or a point.

    Args:
        source: Arrow cells (n,), or an Arrow type.

    Examples:
        >>> import pyarrow as pa
        >>> number_like_cells(pa.array(["1,5", "2", "x"]))
        ['1,5']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(source, pa.DataType):  # the column cannot be read
        return []
    kind = source.type.value_type if pa.types.is_dictionary(source.type) else source.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return []
    cells = pc.utf8_trim_whitespace(source.unique().cast(kind).drop_null())
    texts: list[str] = cells.filter(pc.match_substring_regex(cells, _NUMBER_LIKE)).to_pylist()
    return texts


_NUMBER_LIKE = r"^[+-]?[0-9.,]*[.,][0-9.,]*(?:[eE][+-]?[0-9]+)?$"


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


def in_format(cells: Any, example: str, first: int = 0) -> Any:
    """Return the numbers (n,) of Arrow texts in the format of an example, null if a text is null.

    Args:
        cells: Arrow texts (n,).
        example: An example of the format, such as "1.234,50 EUR".
        first: The number of preceding rows, for messages.

    Raises:
        DataError: If a text is not in this format. The message names its row.

    Examples:
        >>> import pyarrow as pa
        >>> in_format(pa.array(["1.234,50 EUR", "7,00 EUR"]), "1.234,50 EUR").to_pylist()
        [1234.5, 7.0]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells)
    numbers = as_numbers(cells, NumberFormat.of(example))
    if numbers.null_count > cells.null_count:
        row = pc.index(pc.and_(pc.is_null(numbers), pc.is_valid(cells)), True).as_py()
        raise DataError(
            f"must hold numbers such as {quoted(example)}, got {quoted(str(cells[row]))} in row {first + row}. Correct "
            "the cell, or mark it as missing."
        )
    return numbers.cast(pa.float64())


def in_formats(file: Path, batches: Iterable[Any], numbers: Mapping[str, str]) -> Iterator[Any]:
    """Yield Arrow batches in which the texts of some columns are numbers in the format of an example.

    Args:
        file: The file, for messages.
        batches: The batches.
        numbers: The examples by the names of columns. Columns that a batch does not have are ignored.

    Raises:
        DataError: If a cell is not in the format of its column.

    Examples:
        >>> import pyarrow as pa
        >>> batch = pa.RecordBatch.from_pydict({"price": ["$1.50"]})
        >>> next(in_formats(Path("table.csv"), [batch], {"price": "$3.50"}))["price"].to_pylist()
        [1.5]
    """
    import pyarrow as pa

    first = 0
    for batch in batches:
        out = {name: batch.column(name) for name in batch.schema.names}
        for name in [name for name in out if name in numbers]:
            texts = out[name].dictionary_decode() if pa.types.is_dictionary(out[name].type) else out[name]
            try:
                out[name] = in_format(texts, numbers[name], first)
            except DataError as error:
                raise DataError(f"{title(file)}: column {quoted(name)} {error}") from None
        first += batch.num_rows
        yield pa.RecordBatch.from_pydict(out) if set(numbers) & set(out) else batch


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is that of texts, perhaps with a dictionary.

    Examples:
        >>> import pyarrow as pa
        >>> is_text(pa.large_string()), is_text(pa.int64())
        (True, False)
    """
    import pyarrow.types as t

    kind = kind.value_type if t.is_dictionary(kind) else kind
    return bool(t.is_string(kind) or t.is_large_string(kind))


def as_texts(cells: Any) -> Any:
    """Return Arrow texts (n,) without a dictionary.

    Examples:
        >>> import pyarrow as pa
        >>> as_texts(pa.array(["a", "a"]).dictionary_encode()).to_pylist()
        ['a', 'a']
    """
    import pyarrow.types as t

    return cells.cast(cells.type.value_type) if t.is_dictionary(cells.type) else cells


def as_floats(array: Any) -> NDArray[np.float64]:
    """Return Arrow numbers, booleans or texts of numbers as floats (n,), NaN if null."""
    import pyarrow as pa

    if not pa.types.is_floating(array.type):
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array, dtype=np.float64)


def with_nulls(cells: Any, text_format: TextFormat) -> Any:
    """Return the cells without blanks around them, null if they are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.utf8_trim_whitespace(cells)
    is_missing = pc.is_in(cells, value_set=pa.array(list(text_format.missing_marks), cells.type))
    return pc.if_else(is_missing, pa.scalar(None, cells.type), cells)


def all_match(cells: Any, pattern: str) -> bool:
    """Return whether all Arrow texts (n,) that are not missing match a pattern.

    Examples:
        >>> import pyarrow as pa
        >>> all_match(pa.array(["True", "false"]), BOOLEAN)
        True
    """
    import pyarrow.compute as pc

    return bool(pc.all(pc.match_substring_regex(cells, pattern)).as_py())


_OFFSET = r"^(.{11}[0-9:.]+) ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)$"
"""The pattern of a time with an offset from UTC."""


def times_of_texts(cells: Any) -> Any:
    """Return ISO 8601 dates (n,) on the clock as they are written, as `rfgp.columns.days.Times`.

    Dates that do not exist become NaT.

    Args:
        cells: Arrow texts (n,).

    Raises:
        DataError: If some times have an offset from UTC and others do not.

    Examples:
        >>> import pyarrow as pa
        >>> times = times_of_texts(pa.array(["2026-01-01T00:00+01:00", "2026-02-30T00:00+01:00"]))
        >>> times.zone, np.isnat(times.values).tolist()
        ('+01:00', [False, True])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from rfgp.columns.days import Times, common_zone, offset_seconds, zone_of_offset

    has_offset = pc.fill_null(pc.match_substring_regex(cells, _OFFSET), False)
    num_offsets = pc.sum(has_offset).as_py() or 0
    if num_offsets and num_offsets < len(cells) - cells.null_count:
        raise DataError("holds dates with and without an offset from UTC. Write all of them alike.")
    local = pc.replace_substring_regex(pc.replace_substring_regex(cells, _OFFSET, r"\1"), r"^(.{10})$", r"\1T00:00")
    kind = pa.timestamp("ns" if pc.any(pc.match_substring_regex(local, r"[.][0-9]{7}")).as_py() else "us")
    try:
        stamps = local.cast(kind)
    except pa.ArrowInvalid:
        stamps = pa.array([_as_stamp(cell, kind) for cell in local], kind)
    values = np.asarray(stamps)
    if not num_offsets:
        return Times(values)
    names = pc.replace_substring_regex(cells, _OFFSET, r"\2").fill_null("").to_pylist()
    seconds = {name: offset_seconds(name) if name else 0 for name in set(names)}
    zone = common_zone({zone_of_offset(seconds[name]) for name in seconds if name})
    return Times(values, zone, np.array([seconds[name] for name in names], dtype=np.int64))


def _as_stamp(text: Any, kind: Any) -> Any:
    """Return an Arrow text as a time, or None if there is no such date."""
    import pyarrow as pa

    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def is_value(cell: str, text_format: TextFormat) -> bool:
    """Return whether a text is a number or a date.

    Examples:
        >>> is_value("1e3", TextFormat()), is_value("2026-01-01", TextFormat()), is_value("red", TextFormat())
        (True, True, False)
    """
    return re.match(text_format.number.pattern, cell) is not None or re.match(DATE, cell) is not None


# --- Batches of texts: the type of the first rows is that of all --------------------------------------------------

Reader = Callable[[Any, TextFormat], Any]
"""A function from Arrow texts (b,) to cells of one type. It returns the texts if a cell has another type."""


def reader_of(cells: Any, text_format: TextFormat) -> Reader | None:
    """Return the reader of a column, given the texts (b,) of its first rows, or None if it stays text.

    Args:
        cells: Arrow texts (b,).
        text_format: The format of the texts.

    Examples:
        >>> import pyarrow as pa
        >>> reader_of(pa.array(["1", "2"]), TextFormat()).__name__
        'typed_numbers'
    """
    readers = (typed_numbers, as_dates, as_truth)
    return next((reader for reader in readers if reader(cells, text_format) is not cells), None)


def typed_numbers(cells: Any, text_format: TextFormat) -> Any:
    """Return texts (b,) as integers or floating numbers, or unchanged if a cell is neither.

    Args:
        cells: Arrow texts (b,).
        text_format: The format of the texts.

    Examples:
        >>> import pyarrow as pa
        >>> typed_numbers(pa.array(["1", "2"]), TextFormat()).to_pylist()
        [1, 2]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(cells)
    texts = texts if text_format.is_plain else as_numbers(texts, text_format.number)
    if texts.null_count > cells.null_count:
        return cells
    for kind in (pa.int64(), pa.float64()):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return cells


def as_dates(cells: Any, text_format: TextFormat) -> Any:
    """Return texts (b,) as dates, or unchanged if a cell is not a date.

    Args:
        cells: Arrow texts (b,).
        text_format: Not used.

    Examples:
        >>> import pyarrow as pa
        >>> as_dates(pa.array(["2024-02-29"]), TextFormat())[0].as_py().date().isoformat()
        '2024-02-29'
    """
    import pyarrow as pa

    if not all_match(cells, DATE):
        return cells
    times = times_of_texts(cells)
    if " " in times.zone:
        raise DataError(
            f"Dates of a file in batches must have one offset from UTC, got {times.zone}. Use rfgp.tables.read_table."
        )
    values = times.values if times.offsets is None else times.values - times.offsets.astype("m8[s]")
    dates = pa.array(values)
    if times.zone:
        dates = dates.cast(pa.timestamp(dates.type.unit, times.zone))
    return dates if dates.null_count == cells.null_count else cells  # some days do not exist


def as_truth(cells: Any, text_format: TextFormat) -> Any:
    """Return texts (b,) as booleans, or unchanged if a cell is not one.

    Args:
        cells: Arrow texts (b,).
        text_format: Not used.

    Examples:
        >>> import pyarrow as pa
        >>> as_truth(pa.array(["true", "false"]), TextFormat()).to_pylist()
        [True, False]
    """
    import pyarrow as pa

    return cells.cast(pa.bool_()) if all_match(cells, BOOLEAN) else cells
