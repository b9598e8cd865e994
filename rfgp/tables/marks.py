"""Decimal marks and separators of thousands: reading them, and advice if they differ from the options."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rfgp.errors import DataError
from rfgp.tables.messages import quoted, title
from rfgp.tables.options import TextFormat


def pointed(
    cells: Any,  # (n,)
    form: TextFormat,
) -> Any:
    """Return Arrow texts (n,) with decimal points and without separators of thousands.

    A separator that is not between groups of three digits is kept, so the cell is not a number.

    Args:
        cells: Arrow texts (n,).
        form: The format of the texts.

    Examples:
        >>> import pyarrow as pa
        >>> pointed(pa.array(["1.200,5"]), TextFormat(decimal=",", thousands=".")).to_pylist()
        ['1200.5']
    """
    import pyarrow.compute as pc

    if form.thousands is not None:
        grouped = pc.match_substring_regex(cells, _grouped(form.thousands, form.decimal))
        cells = pc.if_else(grouped, pc.replace_substring(cells, form.thousands, ""), cells)
    if form.decimal == ".":
        return cells
    return pc.replace_substring(pc.replace_substring(cells, ".", "no number"), ",", ".")


def pointed_text(cell: str, form: TextFormat) -> str:
    """Return a cell with a decimal point and without separators of thousands.

    If the cell has an invalid mark, the result is a text that is not a number.

    Args:
        cell: The cell.
        form: The format of the cell.

    Examples:
        >>> pointed_text("1.200,5", TextFormat(decimal=",", thousands="."))
        '1200.5'
    """
    if form.thousands is not None and re.match(_grouped(form.thousands, form.decimal), cell):
        cell = cell.replace(form.thousands, "")
    if form.decimal == ".":
        return cell
    return "text" if "." in cell else cell.replace(",", ".")


def _grouped(thousands: str, decimal: str) -> str:
    """Return a pattern of numbers with separators of thousands, as 1,200.5."""
    groups = rf"[+-]?[1-9][0-9]{{0,2}}(?:{re.escape(thousands)}[0-9]{{3}})+"
    return rf"^{groups}(?:{re.escape(decimal)}[0-9]*)?(?:[eE][+-]?[0-9]+)?$"


def advice(columns: Mapping[str, Sequence[str]], name: str, form: TextFormat) -> str:
    """Return advice on the options that read a column's numbers, or "".

    The recommended options do not change the scale of the numbers in other columns. A separator of thousands in one
    column is never recommended as a decimal mark.

    Args:
        columns: The cells that could be numbers with marks (`marked`), by column name.
        name: The column that cannot be read.
        form: The format of the current options.

    Examples:
        >>> advice({"price": ["0,5", "1,25"]}, "price", TextFormat())
        'Give decimal="," if a comma is the decimal mark. '
    """
    if form.thousands is not None:
        return ""
    uses = {key: _use(cells, form.decimal) for key, cells in columns.items()}
    known = set(uses.values()) - {""}
    mark, word = (",", "comma") if form.decimal == "." else (".", "point")
    if uses[name] not in ("thousands", "decimal", "both"):
        return ""
    if known <= {"thousands", "present"}:
        return f'Give thousands="{mark}" if a {word} separates thousands. '
    if known <= {"decimal", "both"}:
        more = f' and thousands="{form.decimal}"' if "both" in known else ""
        return f'Give decimal="{mark}"{more} if a {word} is the decimal mark. '
    if "thousands" in known and known & {"decimal", "both"}:
        pair = [
            next(cell for key, use in uses.items() if use in kinds for cell in columns[key] if mark in cell)
            for kinds in (("decimal", "both"), ("thousands",))
        ]
        return (
            f"In {quoted(pair[0])} the {word} is a decimal mark, in {quoted(pair[1])} it may separate thousands. Give "
            f'decimal="{mark}" only if it is a decimal mark in all columns. Otherwise spell the numbers alike. '
        )
    return "Some numbers have a decimal comma and some a decimal point. Spell them alike. "


def has_marks(cell: str) -> bool:
    """Return whether a text could be a number with a comma or a point.

    Args:
        cell: The cell.

    Examples:
        >>> has_marks("1,200"), has_marks("1200")
        (True, False)
    """
    return re.match(_MARKED, cell) is not None


def marked(source: Any) -> list[str]:
    """Return distinct cells that may be numbers with a comma or a point.

    Args:
        source: Arrow cells (n,), or an Arrow type.

    Examples:
        >>> import pyarrow as pa
        >>> marked(pa.array(["1,5", "2", "x"]))
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
    texts: list[str] = cells.filter(pc.match_substring_regex(cells, _MARKED)).to_pylist()
    return texts


_MARKED = r"^[+-]?[0-9.,]*[.,][0-9.,]*(?:[eE][+-]?[0-9]+)?$"


def _use(cells: Sequence[str], decimal: str) -> str:
    """Return the role of the other mark, comma or point, in the cells of a column that have marks.

    The roles "thousands" and "decimal" are those of a separator of thousands and a decimal mark. "both" is a decimal
    mark, and the given decimal mark then separates thousands. The other roles are "present" (only the given decimal
    mark occurs), "odd" (none of these) and "" (there are no marks).
    """
    mark = "," if decimal == "." else "."
    unlike = [cell for cell in cells if mark in cell]
    if not unlike:
        return "present" if cells else ""
    if all(re.match(_grouped(mark, decimal), cell) for cell in unlike):
        return "thousands"
    single = rf"^[+-]?[0-9]*{re.escape(mark)}[0-9]+(?:[eE][+-]?[0-9]+)?$"
    if all(re.match(single, cell) for cell in cells):
        return "decimal"
    groups = _grouped(decimal, mark)
    return "both" if all(re.match(single, cell) or re.match(groups, cell) for cell in cells) else "odd"


def pointed_batch(file: Path, batch: Any, columns: Sequence[str], form: TextFormat) -> Any:
    """Return an Arrow batch in which the texts of some columns are numbers.

    Args:
        file: The file, for messages.
        batch: The batch of Arrow texts.
        columns: The names of the columns of numbers.
        form: The format of the texts.

    Raises:
        DataError: If a cell of these columns is not a number with these marks.

    Examples:
        >>> import pyarrow as pa
        >>> batch = pa.RecordBatch.from_pydict({"price": ["1,5"]})
        >>> pointed_batch(Path("table.csv"), batch, ["price"], TextFormat(decimal=","))["price"].to_pylist()
        [1.5]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, out = pa.float64(), {name: batch.column(name) for name in batch.schema.names}
    for name in columns:
        cells = pc.utf8_trim_whitespace(batch.column(name))
        try:
            out[name] = pointed(cells, form).cast(kind)
        except pa.ArrowInvalid as error:
            numbers = zip(cells.to_pylist(), pointed(cells, form), strict=True)
            cell = next(cell for cell, number in numbers if cell is not None and cast_or_none(number, kind) is None)
            marks = f"the decimal mark {form.decimal!r} and the separator of thousands {form.thousands!r}"
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
