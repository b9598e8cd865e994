"""From a file's columns to a matrix of numbers, and the same again for the next file."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.tables import content
from rfgp.tables.cells import Column
from rfgp.tables.frame import Frame
from rfgp.tables.messages import counted, show, title
from rfgp.tables.options import Request
from rfgp.tables.schema import ColumnRule, Schema
from rfgp.tables.table import Table

MOST_LEVELS = 256
_BLOCK_ROWS = 4096
Choose = Callable[[Frame, "Picked", Request], str]


class Picked(NamedTuple):
    """A column with its place in the file and its role."""

    place: int
    column: Column
    role: str


def encode_table(frame: Frame, request: Request) -> Table:
    """Return the table of a file's columns, as the request says.

    Raises:
        DataError: a column is text, a date or incomplete where the request does not allow it.
        InvalidArgumentError: there is no such target or dropped column.
    """
    inputs, output, dropped = _pick(frame, request)
    rows, gaps = _complete_rows(frame, inputs, output, request.missing)
    if len(rows) < frame.num_rows:
        inputs = [item._replace(column=item.column.take(rows)) for item in inputs]
        output = output._replace(column=output.column.take(rows))
    rules = tuple(_rule(frame, item) for item in inputs)
    target = _rule(frame, output)
    X = join(frame, rules, [item.column for item in inputs])
    y = class_codes(target, output.column) if target.role == "category" else output.column.values
    fills: tuple[float, ...] = ()
    if request.missing == "mean":
        means = np.nanmean(X, axis=0)
        fills = tuple(float(mean) for mean in means)
        X = np.where(np.isnan(X), means, X) if gaps else X
    form = frame.form
    schema = Schema(
        rules,
        target,
        len(frame.names),
        frame.header,
        tuple(frame.names[i] for i in dropped),
        request.missing,
        fills,
        form.decimal,
        form.comment,
        form.missing_marks,
        form.encoding,
    )
    return Table(X, y, schema.columns, schema.target, schema, schema.classes, rows, frame.num_rows)


def _pick(frame: Frame, request: Request) -> tuple[list[Picked], Picked, list[int]]:
    """Return the input columns, the target, and the places of the columns left out."""
    dropped = {frame.find(name) for name in request.left_out}
    kept = [place for place in range(len(frame.names)) if place not in dropped]
    if len(frame.names) < 2:
        raise DataError(f"{title(frame.file)} has one column; a table needs inputs and a target.")
    target = frame.find(request.target) if request.target is not None else kept[-1] if kept else 0
    if target in dropped:
        raise InvalidArgumentError(f"The target {show(frame.names[target])} is among the columns to drop.")
    frame.check_names(kept)
    forced = {frame.find(name) for name in request.forced}
    inputs = _read_all(frame, [place for place in kept if place != target], request, forced)
    dropped |= {item.place for item in inputs if item.role == "drop"}
    inputs = [item for item in inputs if item.role != "drop"]
    if not inputs:
        raise DataError(f"{title(frame.file)} has no input columns left; the others were dropped.")
    return inputs, _read(frame, target, request, target in forced, _choose_target), sorted(dropped)


def _read_all(frame: Frame, places: list[int], request: Request, forced: set[int]) -> list[Picked]:
    """Return the input columns; where several cannot be used, one message names them all."""
    found, faults = [], []
    for place in places:
        try:
            found.append(_read(frame, place, request, place in forced, _choose))
        except DataError as error:
            faults.append(str(error))
    if len(faults) > 1:
        prefix = f"{title(frame.file)}: "
        more = [fault.removeprefix(prefix) for fault in faults[1:_MOST_FAULTS]]
        rest = f"\n(and {len(faults) - _MOST_FAULTS} columns more)" if len(faults) > _MOST_FAULTS else ""
        raise DataError("\n".join([faults[0], *more]) + rest)
    if faults:
        raise DataError(faults[0])
    return found


_MOST_FAULTS = 8


def _read(frame: Frame, place: int, request: Request, forced: bool, choose: Choose) -> Picked:
    """Return a column and the role that was chosen or forced."""
    column = frame.column(place)
    if forced and not column.missing.all():
        return Picked(place, Column("text", column.values, column.texts()), "category")
    return Picked(place, column, choose(frame, Picked(place, column, ""), request))


def _choose(frame: Frame, item: Picked, request: Request) -> str:
    """Return an input's role, or "drop"."""
    place, column, _ = item
    if column.kind == "number":
        return "number"
    if column.kind == "date":
        check_dates(frame, item)
        if request.dates == "error":
            raise frame.error(place, f'{_holds_dates(column)} Give dates="days" or leave them out with dates="drop".')
        return "date" if request.dates == "days" else "drop"
    _check_mixed(frame, item)
    if request.categories == "error":
        remedy = f'Give categories="one-hot" or leave the column out ({_drop(frame, place)} or categories="drop").'
        raise frame.error(place, f"{holds_text(column)}. {_hint(column, frame)}{remedy}")
    return "category" if request.categories == "one-hot" else "drop"


def _choose_target(frame: Frame, item: Picked, request: Request) -> str:
    place, column, _ = item
    if column.kind == "number":
        return "number"
    if column.kind == "date":
        check_dates(frame, item)
        if request.dates != "days":
            raise frame.error(place, f'{_holds_dates(column)} It is the target; give dates="days".')
        return "date"
    _check_mixed(frame, item)
    return "category"


def _drop(frame: Frame, place: int) -> str:
    return f"drop={show(frame.names[place])}" if frame.header else f"drop={place}"


def _first_text(column: Column) -> tuple[int, str, int]:
    """Return the row and spelling of the first cell that is no number, and their count."""
    odd = np.flatnonzero(np.isnan(column.values) & ~column.missing)
    return int(odd[0]), str(column.cells[int(odd[0])].as_py()), len(odd)


def holds_text(column: Column) -> str:
    """Return "holds text ('x' in row 1, 1 such cells)"."""
    row, cell, count = _first_text(column)
    return f"holds text ({show(cell)} in row {row}, {count} such cells)"


def _holds_dates(column: Column) -> str:
    first = int(np.flatnonzero(~column.missing)[0])
    return f"holds dates ({_spell(column, first)} in row {first})."


def _spell(column: Column, row: int) -> str:
    if column.cells is not None:
        return show(str(column.cells[row].as_py()))
    if column.kind == "date":
        return f"day {column.values[row]:.10g}"
    return f"{column.values[row]:.10g}"


def _hint(column: Column, frame: Frame) -> str:
    """Return what the first text cell suggests."""
    cell = _first_text(column)[1]
    if frame.form.decimal == "." and re.fullmatch(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?", cell):
        return 'Give decimal="," where a comma is the decimal mark. '
    if re.fullmatch(r"\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}(?:\D.*)?", cell):
        return "Dates must be ISO (YYYY-MM-DD). "
    return ""


def _check_mixed(frame: Frame, item: Picked) -> None:
    """Refuse a column of numbers with some texts among them."""
    column = item.column
    numbers = int(np.count_nonzero(~np.isnan(column.values)))
    if 2 * numbers >= int(np.count_nonzero(~column.missing)):
        remedy = "Correct these cells, add them to missing_marks, name the column in as_categories or leave it out"
        found = f"{holds_text(column)} among {counted(numbers, 'number')}. {_hint(column, frame)}"
        raise frame.error(item.place, f"{found}{remedy} ({_drop(frame, item.place)}).")


def check_dates(frame: Frame, item: Picked) -> None:
    """Name a date that does not exist, as February 30.

    Raises:
        DataError: there is one.
    """
    odd = np.flatnonzero(np.isnan(item.column.values) & ~item.column.missing)
    if len(odd):
        row = int(odd[0])
        raise frame.error(item.place, f"holds a date that does not exist ({_spell(item.column, row)} in row {row}).")


def _complete_rows(frame: Frame, inputs: list[Picked], output: Picked, policy: str) -> tuple[NDArray[np.int64], bool]:
    """Return the rows (n,) to keep and whether inputs are missing in them."""
    gap = np.zeros(frame.num_rows, dtype=bool)
    for item in sorted((*inputs, output), key=lambda item: item.place):
        missing = item.column.missing
        if missing.all():
            raise frame.error(item.place, f"has no values, all {missing.size:,} are missing. {frame.drop(item.place)}")
        is_target = item.place == output.place
        check_gaps(frame, item, missing, "target" if is_target and policy == "mean" else policy)
        gap |= missing
    if policy == "mean" or not gap.any():
        return np.arange(frame.num_rows, dtype=np.int64), bool(gap.any())
    if gap.all():
        raise DataError(f"{title(frame.file)}: every row lacks a value; leave out the columns with the most gaps.")
    return np.flatnonzero(~gap).astype(np.int64), False


def check_gaps(frame: Frame, item: Picked, missing: NDArray[np.bool_], policy: str) -> None:
    """Name infinite cells, and missing ones (mask (n,)) where the policy is not to drop or fill them.

    Raises:
        DataError: there are such cells.
    """
    infinite = np.isinf(item.column.values) if item.column.kind == "number" else np.zeros_like(missing)
    if policy in ("drop", "mean"):
        bad, remedy = infinite, "Correct these cells first."
    else:
        bad = infinite | missing
        remedy = 'Give missing="drop", or missing="mean".' if policy == "error" else 'Give missing="drop".'
    if not bad.any():
        return
    row = int(np.flatnonzero(bad)[0])
    what = "missing" if missing[row] else _spell(item.column, row)
    remedy = "Correct these cells first." if not missing[row] else remedy
    role = "(the target) " if policy == "target" else ""
    count = int(np.count_nonzero(bad))
    raise frame.error(
        item.place, f"{role}has {count} missing or infinite values, the first in row {row} ({what}). {remedy}"
    )


def _rule(frame: Frame, item: Picked) -> ColumnRule:
    name = frame.names[item.place]
    if item.role != "category":
        return ColumnRule(name, item.place, item.role)
    import pyarrow.compute as pc

    levels = pc.unique(item.column.cells.drop_null())
    cells = len(item.column.cells) - item.column.cells.null_count
    if len(levels) > MOST_LEVELS or len(levels) == cells:
        found = f"has {len(levels):,} different texts in {counted(cells, 'cell')}; it looks like an identifier"
        raise frame.error(item.place, f"{found}. {_hint(item.column, frame)}{frame.drop(item.place)}")
    return ColumnRule(name, item.place, "category", tuple(sorted(levels.to_pylist())))


def join(frame: Frame, rules: tuple[ColumnRule, ...], columns: list[Column]) -> NDArray[np.float64]:
    """Return the encoded matrix (n, d), NaN where missing.

    Raises:
        DataError: it would be larger than 1 GiB.
    """
    n, width = len(columns[0].values), sum(len(rule.encoded) for rule in rules)
    if n * width * 8 > content.MOST_BYTES:
        found = f"{n:,} rows and {width:,} encoded columns"
        raise DataError(f"{title(frame.file)}: {found} are more than {content.MOST_BYTES:,} bytes.")
    pairs = list(zip(rules, columns, strict=True))
    values = [class_codes(rule, column) if rule.role == "category" else column.values for rule, column in pairs]
    X = np.empty((n, width))
    for begin in range(0, n, _BLOCK_ROWS):  # a block stays in the cache while its columns are interleaved
        rows = slice(begin, begin + _BLOCK_ROWS)
        place = 0
        for rule, entries in zip(rules, values, strict=True):
            end = place + len(rule.encoded)
            X[rows, place:end] = _one_hot(rule, entries[rows])
            place = end
    return X


def _one_hot(rule: ColumnRule, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a column's values (n,) as (n, 1), a category's as its levels' indicators (n, k)."""
    column = values[:, None]
    return np.where(np.isnan(column), np.nan, column == np.arange(len(rule.levels))) if rule.levels else column


def class_codes(rule: ColumnRule, column: Column) -> NDArray[np.float64]:
    """Return the positions (n,) of the cells among the levels, NaN where missing or unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = column.texts()
    places = pc.index_in(cells, value_set=pa.array(rule.levels, cells.type), skip_nulls=True)
    return np.asarray(pc.cast(places, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
