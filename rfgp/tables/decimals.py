"""Decimal marks and separators of thousands: reading them, and advice if they differ from the options."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rfgp.errors import DataError
from rfgp.number_texts import NumberFormat
from rfgp.tables.messages import quoted, title
from rfgp.tables.options import TextFormat


def with_decimal_point(
    cells: Any,  # (n,)
    text_format: TextFormat,
) -> Any:
    """Return Arrow texts (n,) with decimal points and without separators of thousands.

    A separator that is not between groups of three digits is kept, so the cell is not a number.

    Args:
        cells: Arrow texts (n,).
        text_format: The format of the texts.

    Examples:
        >>> import pyarrow as pa
        >>> with_decimal_point(pa.array(["1.200,5"]), TextFormat(decimal=",", thousands=".")).to_pylist()
        ['1200.5']
    """
    import pyarrow.compute as pc

    if text_format.thousands is not None:
        grouped = pc.match_substring_regex(cells, _grouped(text_format.thousands, text_format.decimal))
        cells = pc.if_else(grouped, pc.replace_substring(cells, text_format.thousands, ""), cells)
    if text_format.decimal == ".":
        return cells
    return pc.replace_substring(pc.replace_substring(cells, ".", "no number"), ",", ".")


def cell_with_decimal_point(cell: str, text_format: TextFormat) -> str:
    """Return a cell with a decimal point and without separators of thousands.

    If the cell has a wrong decimal mark, the result is a text that is not a number.

    Args:
        cell: The cell.
        text_format: The format of the cell.

    Examples:
        >>> cell_with_decimal_point("1.200,5", TextFormat(decimal=",", thousands="."))
        '1200.5'
    """
    if text_format.thousands is not None and re.match(_grouped(text_format.thousands, text_format.decimal), cell):
        cell = cell.replace(text_format.thousands, "")
    if text_format.decimal == ".":
        return cell
    return "text" if "." in cell else cell.replace(",", ".")


def _grouped(thousands: str, decimal: str) -> str:
    """Return a pattern of numbers with separators of thousands, as 1,200.5."""
    groups = rf"[+-]?[1-9][0-9]{{0,2}}(?:{re.escape(thousands)}[0-9]{{3}})+"
    return rf"^{groups}(?:{re.escape(decimal)}[0-9]*)?(?:[eE][+-]?[0-9]+)?$"


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
    if all(re.match(_grouped(mark, decimal), cell) for cell in with_mark):
        return "thousands"
    single = rf"^[+-]?[0-9]*{re.escape(mark)}[0-9]+(?:[eE][+-]?[0-9]+)?$"
    if all(re.match(single, cell) for cell in cells):
        return "decimal"
    groups = _grouped(decimal, mark)
    return "both" if all(re.match(single, cell) or re.match(groups, cell) for cell in cells) else "mixed"


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

    form = NumberFormat.of(example)
    cells = pc.utf8_trim_whitespace(cells)
    is_wrong = pc.fill_null(pc.invert(pc.match_substring_regex(cells, form.pattern)), False)
    if pc.any(is_wrong).as_py():
        row = pc.index(is_wrong, True).as_py()
        raise DataError(
            f"must hold numbers such as {quoted(example)}, got {quoted(str(cells[row]))} in row {first + row}. Correct "
            "the cell, or mark it as missing."
        )
    numbers = pc.replace_substring_regex(cells, form.pattern, r"\1\2\3")
    if form.thousands is not None:
        numbers = pc.replace_substring(numbers, form.thousands, "")
    numbers = pc.replace_substring(numbers, form.decimal, ".")
    return pc.replace_substring_regex(numbers, "^[+]", "").cast(pa.float64())


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


def batch_with_numbers(file: Path, batch: Any, columns: Sequence[str], text_format: TextFormat) -> Any:
    """Return an Arrow batch in which the texts of some columns are numbers.

    Args:
        file: The file, for messages.
        batch: The batch of Arrow texts.
        columns: The names of the columns of numbers.
        text_format: The format of the texts.

    Raises:
        DataError: If a cell of these columns is not a number with these marks.

    Examples:
        >>> import pyarrow as pa
        >>> batch = pa.RecordBatch.from_pydict({"price": ["1,5"]})
        >>> batch_with_numbers(Path("table.csv"), batch, ["price"], TextFormat(decimal=","))["price"].to_pylist()
        [1.5]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, out = pa.float64(), {name: batch.column(name) for name in batch.schema.names}
    for name in columns:
        cells = pc.utf8_trim_whitespace(batch.column(name))
        try:
            out[name] = with_decimal_point(cells, text_format).cast(kind)
        except pa.ArrowInvalid as error:
            numbers = zip(cells.to_pylist(), with_decimal_point(cells, text_format), strict=True)
            cell = next(cell for cell, number in numbers if cell is not None and cast_or_none(number, kind) is None)
            marks = f"the decimal mark {text_format.decimal!r} and the separator of thousands {text_format.thousands!r}"
            raise DataError(
                f"{title(file)}: column {quoted(name)} must hold numbers with {marks}, got {quoted(cell)}."
            ) from error
    return pa.RecordBatch.from_pydict(out)


def cast_or_none(cell: Any, kind: Any) -> Any:
    """Return an Arrow scalar as one of another Arrow type, or None if it has no value of this type.

    Examples:
        >>> import pyarrow as pa
        >>> cast_or_none(pa.scalar("1"), pa.int64()).as_py(), cast_or_none(pa.scalar("x"), pa.int64())
        (1, None)
    """
    import pyarrow as pa

    try:
        return cell.cast(kind)
    except pa.ArrowInvalid:
        return None
