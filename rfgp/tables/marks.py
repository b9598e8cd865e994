"""Marks within numbers: the decimal mark and the separator of thousands, read, and advised where they look unlike."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rfgp.tables.messages import show
from rfgp.tables.options import TextFormat


def pointed(
    cells: Any,  # (n,)
    form: TextFormat,
) -> Any:
    """Return Arrow texts (n,) with a point as the decimal mark and without separators of thousands.

    Where a separator does not stand between groups of three digits, it stays, and the cell is no number.
    """
    import pyarrow.compute as pc

    if form.thousands is not None:
        grouped = pc.match_substring_regex(cells, _grouped(form.thousands, form.decimal))
        cells = pc.if_else(grouped, pc.replace_substring(cells, form.thousands, ""), cells)
    if form.decimal == ".":
        return cells
    return pc.replace_substring(pc.replace_substring(cells, ".", "no number"), ",", ".")


def pointed_text(cell: str, form: TextFormat) -> str:
    """Return one cell likewise; a text that is no number where it cannot be one."""
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
    """Return which marks to give so that the numbers of a column can be read; "" where that is not sure.

    Nothing is advised by which the numbers of another column would get another scale: what separates thousands there is
    never to be the decimal mark, nor the other way round.

    Args:
        columns: By name, the cells that could be numbers with marks (`marked`).
        name: Of the column that cannot be read.
        form: How cells are spelled, as far as is known.
    """
    if form.thousands is not None:
        return ""
    uses = {key: _use(cells, form.decimal) for key, cells in columns.items()}
    found = set(uses.values()) - {""}
    mark, word = (",", "comma") if form.decimal == "." else (".", "point")
    if uses[name] not in ("thousands", "decimal", "both"):
        return ""
    if found <= {"thousands", "present"}:
        return f'Give thousands="{mark}" where a {word} separates thousands. '
    if found <= {"decimal", "both"}:
        more = f' and thousands="{form.decimal}"' if "both" in found else ""
        return f'Give decimal="{mark}"{more} where a {word} is the decimal mark. '
    if "thousands" in found and found & {"decimal", "both"}:
        pair = [
            next(cell for key, use in uses.items() if use in kinds for cell in columns[key] if mark in cell)
            for kinds in (("decimal", "both"), ("thousands",))
        ]
        return (
            f"In {show(pair[0])} the {word} is a decimal mark, in {show(pair[1])} it may separate thousands. Give "
            f'decimal="{mark}" only if it is a decimal mark in all columns; else spell the numbers alike. '
        )
    return "Some numbers have a decimal comma and some a decimal point: spell them alike. "


def has_marks(cell: str) -> bool:
    """Return whether a text could be a number with a comma or a point."""
    return re.match(_MARKED, cell) is not None


def marked(source: Any) -> list[str]:
    """Return the different cells of a column of Arrow cells (n,) that could be numbers with a comma or a point."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(source, pa.DataType):  # of a column that cannot be read
        return []
    kind = source.type.value_type if pa.types.is_dictionary(source.type) else source.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return []
    cells = pc.utf8_trim_whitespace(source.unique().cast(kind).drop_null())
    found: list[str] = cells.filter(pc.match_substring_regex(cells, _MARKED)).to_pylist()
    return found


_MARKED = r"^[+-]?[0-9.,]*[.,][0-9.,]*(?:[eE][+-]?[0-9]+)?$"


def _use(cells: Sequence[str], decimal: str) -> str:
    """Return what the mark that is not said to be the decimal one does in a column's cells with marks.

    It separates "thousands", is the "decimal" mark, or that while the other one separates thousands ("both"); "present"
    where there is the present decimal mark alone, "odd" where nothing of this is so, "" where there are no marks.
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
