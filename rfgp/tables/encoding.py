"""From a file's columns to a matrix of numbers: of the file to fit to, and of the next one."""

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import BooleanTargetWarning, DataError, InvalidArgumentError
from rfgp.tables import content
from rfgp.tables.columns import Column, Frame
from rfgp.tables.marks import advice, marked
from rfgp.tables.messages import counted, like, listed, show, title
from rfgp.tables.options import Request
from rfgp.tables.schema import ColumnRule, Schema
from rfgp.tables.table import Inputs, Table

T = TypeVar("T")

_MOST_LEVELS = 256
_MOST_FAULTS = 8
_CORRECT = "Correct these cells first."


def encode_table(frame: Frame, request: Request) -> Table:
    """Return the table of a file's columns, as the request says.

    Raises:
        DataError: a column is text, a date or incomplete where the request does not allow it.
        InvalidArgumentError: there is no such target or dropped column.
    """
    inputs, output = _choose(frame, request)
    columns = sorted((*inputs, output), key=lambda column: column.place)
    _all(frame, [partial(_check_cells, column, request.missing) for column in columns])
    gap = np.any([column.missing for column in columns], axis=0)
    rows = _used_rows(frame, gap, request.missing, "; leave out the columns with the most gaps")
    if frame.holds_truth(output):
        said = f"{title(frame.file)}: the target {show(output.name)} holds truth values; they are fitted as 0 and 1."
        warnings.warn(BooleanTargetWarning(said), stacklevel=4)
    inputs, output = [column.take(rows) for column in inputs], output.take(rows)
    *rules, target = _all(frame, [partial(_rule, column, frame) for column in (*inputs, output)])
    X, y = join(tuple(rules), inputs), class_codes(target, output)
    used = {column.place for column in (*inputs, output)}
    schema = Schema(
        tuple(rules),
        target,
        width=len(frame.names),
        header=frame.header,
        dropped=tuple(name for place, name in enumerate(frame.names) if place not in used),
        missing=request.missing,
        fills=tuple(np.nanmean(X, axis=0).tolist()) if request.missing == "mean" else (),
        **asdict(frame.form),
    )
    return Table(_filled(X, schema), y, schema.columns, schema.target, schema, schema.classes, rows, frame.num_rows)


def encode_inputs(frame: Frame, schema: Schema) -> Inputs:
    """Return the inputs of a file's columns, encoded as the schema says.

    Raises:
        DataError: columns are missing, or hold what the schema does not know.
    """
    places, target = _match_names(frame, schema) if schema.header else _match_places(frame, schema)
    policy = "inputs" if schema.missing == "error" else schema.missing

    def follow(rule: ColumnRule, place: int) -> Column:
        column = _follow(rule, frame.column(place))
        check_gaps(column, policy)
        return column

    columns = _all(frame, [partial(follow, *pair) for pair in zip(schema.inputs, places, strict=True)])
    gap = np.any([column.missing for column in columns], axis=0)
    rows = _used_rows(frame, gap, schema.missing, ", and rows with gaps are left out")
    X = join(schema.inputs, [column.take(rows) for column in columns])
    y = None
    if target is not None:
        (output,) = _all(frame, [partial(_target, frame, schema.output, target)])
        output = output.take(rows)
        y = None if output.missing.any() else class_codes(schema.output, output)
    return Inputs(_filled(X, schema), rows, frame.num_rows, y)


def _choose(frame: Frame, request: Request) -> tuple[list[Column], Column]:
    """Return the input columns and the target."""
    dropped = {frame.find(name) for name in request.left_out}
    places = [place for place in range(len(frame.names)) if place not in dropped]
    if len(frame.names) < 2:
        raise DataError(f"{title(frame.file)} has one column; a table needs inputs and a target.")
    target = frame.find(request.target) if request.target is not None else places[-1] if places else 0
    if target in dropped:
        raise InvalidArgumentError(f"The target {show(frame.names[target])} is among the columns to drop.")
    frame.check_names(places)
    forced = {frame.find(name) for name in request.forced}
    read = [partial(_used, frame, place, request, place in forced, place == target) for place in places]
    found = dict(zip(places, _all(frame, read), strict=True))
    output = found.pop(target)
    inputs = [column for column in found.values() if column is not None]
    if not inputs:
        raise DataError(f"{title(frame.file)} has no input columns left; the others were dropped.")
    assert output is not None
    return inputs, output


def _all(frame: Frame, steps: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the steps return, one for each column.

    Raises:
        DataError: with what all of those say that fail.
    """
    found, faults = [], []
    for step in steps:
        try:
            found.append(step())
        except DataError as error:
            faults.append(str(error))
    if faults:
        raise DataError(_joined(faults, frame))
    return found


def _joined(faults: list[str], frame: Frame) -> str:
    """Return one message of several that begin with the file's name."""
    more = [fault.removeprefix(f"{title(frame.file)}: ") for fault in faults[1:_MOST_FAULTS]]
    rest = [f"(and {len(faults) - _MOST_FAULTS} columns more)"] if len(faults) > _MOST_FAULTS else []
    message = "\n".join([faults[0], *more, *rest])
    names_row = re.search(r"\brow \d", message) is not None
    return message + f" Rows count from 0{', after the header' if frame.header else ''}." * names_row


def _used(frame: Frame, place: int, request: Request, forced: bool, is_target: bool = False) -> Column | None:
    """Return a column that can be used, one of text as a category; None where it is to be left out."""
    column = frame.column(place, is_target)
    if forced and not column.missing.all():
        return column.as_text()
    if column.kind == "number":
        return column
    is_date = column.kind == "date"
    choice = request.dates if is_date else request.categories
    if is_date:
        check_dates(column)
    else:
        _check_mixed(column, frame)
    if choice in ("days", "one-hot") or (is_target and not is_date):
        return column
    if choice == "drop" and not is_target:
        return None
    if column.missing.all():
        return column
    raise _refused_dates(column, is_target) if is_date else _refused_text(column, frame)


def _refused_dates(column: Column, is_target: bool) -> DataError:
    row = np.flatnonzero(~column.missing)[0]
    remedy = 'Give dates="days" or leave them out with dates="drop".'
    remedy = 'It is the target; give dates="days".' if is_target else remedy
    return column.error(f"holds dates ({column.spell(row)} in row {row}). {remedy}")


def _refused_text(column: Column, frame: Frame) -> DataError:
    remedy = f'Give categories="one-hot" or leave the column out ({column.drop} or categories="drop").'
    return column.error(f"{_holds_text(column)}. {_hint(column, frame)}{remedy}")


def _holds_text(column: Column) -> str:
    """Return "holds text ('x' in row 1, 1 such cell)"."""
    row = column.odd[0]
    return f"holds text ({column.spell(row)} in row {row}, {counted(len(column.odd), 'such cell')})"


def _hint(column: Column, frame: Frame) -> str:
    """Return what the text cells suggest."""
    cells = {name: marked(source) for name, source in zip(frame.names, frame.sources, strict=True)}
    cells[column.name] = marked(frame.sources[column.place])
    if hint := advice(cells, column.name, frame.form):
        return hint
    cell = str(column.cells[column.odd[0]]) if len(column.odd) else ""
    if re.fullmatch(r"\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}(?:\D.*)?", cell):
        return "Dates must be ISO (YYYY-MM-DD). "
    return ""


def _check_mixed(column: Column, frame: Frame) -> None:
    """Refuse a column of numbers with some texts among them."""
    numbers = int(np.count_nonzero(~np.isnan(column.values)))
    if 2 * numbers >= int(np.count_nonzero(~column.missing)):
        remedy = "Correct these cells, add them to missing_marks, name the column in as_categories or "
        remedy += "choose another target" if column.is_target else f"leave it out ({column.drop})"
        fault = f"{_holds_text(column)} among {counted(numbers, 'number')}. {_hint(column, frame)}"
        raise column.error(f"{fault}{remedy}.")


def _check_cells(column: Column, policy: str) -> None:
    """Refuse a column without any values, and gaps where the policy does."""
    if column.missing.all():
        count = len(column.values)
        raise column.error(f"has no values, all {count:,} are missing. {column.without}")
    check_gaps(column, policy)


def check_dates(column: Column) -> None:
    """Name a date that does not exist, as February 30.

    Raises:
        DataError: there is one.
    """
    for row in column.odd[:1]:
        raise column.error(f"holds a date that does not exist ({column.spell(row)} in row {row}).")


def check_gaps(column: Column, policy: str) -> None:
    """Name infinite cells, and missing ones where the policy is not to drop or fill them; no mean fills a target.

    Raises:
        DataError: there are such cells.
    """
    missing = column.missing
    bad = np.isinf(column.values) if column.kind == "number" else np.zeros_like(missing)
    if policy != "drop" and (policy != "mean" or column.is_target):
        bad |= missing
    if not bad.any():
        return
    row, count = np.flatnonzero(bad)[0], np.count_nonzero(bad)
    cell, remedy = column.spell(row), _CORRECT
    if missing[row]:
        may_fill = policy == "error" and not column.is_target
        cell, remedy = "missing", 'Give missing="drop", or missing="mean".' if may_fill else 'Give missing="drop".'
    role = "(the target) " * column.is_target
    values = counted(int(count), "missing or infinite value")
    raise column.error(f"{role}has {values}, the first in row {row} ({cell}). {remedy}")


def _used_rows(frame: Frame, gap: NDArray[np.bool_], policy: str, remedy: str) -> NDArray[np.int64]:
    """Return the rows (n,) to use of those with gaps (mask)."""
    rows = np.arange(frame.num_rows, dtype=np.int64)
    if policy != "drop":
        return rows
    if gap.all():
        raise DataError(f"{title(frame.file)}: every row lacks a value{remedy}.")
    return rows[~gap]


def _rule(column: Column, frame: Frame) -> ColumnRule:
    if column.kind != "text":
        return ColumnRule(column.name, column.place, column.kind)
    cells = column.cells.drop_null()
    levels = cells.unique()
    if len(levels) > _MOST_LEVELS or len(levels) == len(cells):
        fault = f"has {len(levels):,} different texts in {counted(len(cells), 'cell')}; it looks like an identifier"
        raise column.error(f"{fault}. {_hint(column, frame)}{column.without}")
    return ColumnRule(column.name, column.place, "category", tuple(sorted(levels.to_pylist())))


def join(rules: tuple[ColumnRule, ...], columns: list[Column]) -> NDArray[np.float64]:
    """Return the encoded matrix (n, d), NaN where missing.

    Raises:
        DataError: it would be larger than 1 GiB.
    """
    n, width = len(columns[0].values), sum(len(rule.encoded) for rule in rules)
    if n * width * 8 > content.MOST_BYTES:
        size = f"{n:,} rows and {width:,} encoded columns"
        raise DataError(f"{title(columns[0].file)}: {size} are more than {content.MOST_BYTES:,} bytes.")
    X = np.empty((n, width))
    place = 0
    for rule, column in zip(rules, columns, strict=True):
        codes = class_codes(rule, column)[:, None]
        if rule.levels:
            codes = np.where(np.isnan(codes), np.nan, codes == np.arange(len(rule.levels)))
        X[:, place : place + codes.shape[1]] = codes
        place += codes.shape[1]
    return X


def class_codes(rule: ColumnRule, column: Column) -> NDArray[np.float64]:
    """Return a category's positions (n,) among its levels, NaN where missing or unknown; else the values (n,)."""
    if rule.role != "category":
        return column.values
    import pyarrow as pa
    import pyarrow.compute as pc

    places = pc.index_in(column.cells, value_set=pa.array(rule.levels, column.cells.type), skip_nulls=True)
    return np.asarray(places.cast(pa.float64()))


def _filled(X: NDArray[np.float64], schema: Schema) -> NDArray[np.float64]:
    """Return the matrix (n, d) with the schema's means in its gaps."""
    return np.where(np.isnan(X), np.array(schema.fills), X) if schema.fills and np.isnan(X).any() else X


def _match_names(frame: Frame, schema: Schema) -> tuple[list[int], int | None]:
    """Return the inputs' places in this file and the target's, if it is there."""
    place_of = {name: place for place, name in reversed(list(enumerate(frame.names)))}
    lacking = [rule.name for rule in schema.inputs if rule.name not in place_of]
    if lacking:
        raise DataError(
            f"{title(frame.file)} lacks {counted(len(lacking), 'column')}: {listed(lacking)}. "
            f"Its columns are {listed(frame.names)}.{like(lacking[0], frame.names)}"
        )
    wanted = {rule.name for rule in (*schema.inputs, schema.output)}
    frame.check_names([place for place, name in enumerate(frame.names) if name in wanted])
    return [place_of[rule.name] for rule in schema.inputs], place_of.get(schema.target)


def _match_places(frame: Frame, schema: Schema) -> tuple[list[int], int | None]:
    width, target = len(frame.names), schema.output.position
    if width == schema.width:
        return [rule.position for rule in schema.inputs], target
    if width == schema.width - 1:
        return [rule.position - (rule.position > target) for rule in schema.inputs], None
    expected = f"{schema.width} columns, or {schema.width - 1} without the target"
    raise DataError(f"{title(frame.file)} has {counted(width, 'column')}; the model knows {expected}.")


def _follow(rule: ColumnRule, column: Column) -> Column:
    """Return a column that is what its rule says."""
    if rule.role == "category":
        return _check_levels(rule, column.as_text())
    if column.missing.all():
        return column
    if column.kind == "text":
        raise column.error(f"{_holds_text(column)}, where the model knows {rule.role}s.")
    if column.kind != rule.role:
        row = np.flatnonzero(~column.missing)[0]
        raise column.error(
            f"holds {column.kind}s ({column.as_text().spell(row)} in row {row}), where the model knows {rule.role}s."
        )
    check_dates(column)
    return column


def _target(frame: Frame, rule: ColumnRule, place: int) -> Column:
    """Return the target's column of a file to predict, which may have gaps."""
    column = _follow(rule, frame.column(place))
    check_gaps(column, "drop")
    return column


def _check_levels(rule: ColumnRule, column: Column) -> Column:
    unseen = np.flatnonzero(np.isnan(class_codes(rule, column)) & ~column.missing)
    if len(unseen):
        row, cell = unseen[0], column.spell(unseen[0])
        levels = f"the model knows {counted(len(rule.levels), 'level')}: {listed(rule.levels)}"
        raise column.error(f"holds {cell} in row {row} ({counted(len(unseen), 'such cell')}); {levels}.")
    return column
