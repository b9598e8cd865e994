"""The inputs of a new file, aligned with the table of a fitted model."""

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError
from rfgp.tables.cells import Column
from rfgp.tables.encoding import Picked, check_dates, check_gaps, class_codes, holds_text, join
from rfgp.tables.frame import Frame
from rfgp.tables.messages import counted, listed, show, title
from rfgp.tables.schema import ColumnRule, Schema
from rfgp.tables.table import Inputs


def encode_inputs(frame: Frame, schema: Schema) -> Inputs:
    """Return the inputs of a file's columns, encoded as the schema says.

    Raises:
        DataError: columns are missing, or hold what the schema does not know.
    """
    places, target = _match(frame, schema)
    columns = [_fetch(frame, rule, place) for rule, place in zip(schema.inputs, places, strict=True)]
    gap = np.zeros(frame.num_rows, dtype=bool)
    for rule, place, column in zip(schema.inputs, places, columns, strict=True):
        missing = column.missing
        check_gaps(frame, Picked(place, column, rule.role), missing, schema.missing)
        gap |= missing
    rows = np.arange(frame.num_rows, dtype=np.int64)
    if schema.missing == "drop" and gap.any():
        rows = np.flatnonzero(~gap).astype(np.int64)
        columns = [column.take(rows) for column in columns]
    if len(rows) == 0:
        raise DataError(f"{title(frame.file)}: every row lacks a value, and rows with gaps are left out.")
    X = join(frame, schema.inputs, columns)
    if schema.missing == "mean" and gap.any():
        X = np.where(np.isnan(X), np.array(schema.fills), X)
    y = None if target is None else _targets(frame, schema.output, target, rows)
    return Inputs(X, rows, frame.num_rows, y)


def _match(frame: Frame, schema: Schema) -> tuple[list[int], int | None]:
    """Return the inputs' places in this file and the target's, if it is there."""
    return _match_names(frame, schema) if schema.header else _match_places(frame, schema)


def _match_names(frame: Frame, schema: Schema) -> tuple[list[int], int | None]:
    found = {name: place for place, name in reversed(list(enumerate(frame.names)))}
    lacking = [rule.name for rule in schema.inputs if rule.name not in found]
    if lacking:
        raise DataError(
            f"{title(frame.file)} lacks {counted(len(lacking), 'column')}: {listed(lacking)}. "
            f"Its columns are {listed(frame.names)}."
        )
    wanted = {rule.name for rule in (*schema.inputs, schema.output)}
    frame.check_names([place for place, name in enumerate(frame.names) if name in wanted])
    return [found[rule.name] for rule in schema.inputs], found.get(schema.target)


def _match_places(frame: Frame, schema: Schema) -> tuple[list[int], int | None]:
    width, target = len(frame.names), schema.output.position
    if width == schema.width:
        return [rule.position for rule in schema.inputs], target
    if width == schema.width - 1:
        return [rule.position - (rule.position > target) for rule in schema.inputs], None
    known = f"{schema.width} columns, or {schema.width - 1} without the target"
    raise DataError(f"{title(frame.file)} has {counted(width, 'column')}; the model knows {known}.")


def _fetch(frame: Frame, rule: ColumnRule, place: int) -> Column:
    """Return a column that is what its rule says."""
    column = frame.column(place)
    missing = column.missing
    if missing.all():
        return Column("number", np.full(frame.num_rows, np.nan))
    if rule.role == "category":
        return _as_texts(frame, rule, place, column)
    if column.kind == "text":
        raise frame.error(place, f"{holds_text(column)}, where the model knows {rule.role}s.")
    if column.kind != rule.role:
        row = int(np.flatnonzero(~missing)[0])
        cell = show(str(column.texts()[row].as_py()))
        raise frame.error(place, f"holds {column.kind}s ({cell} in row {row}), where the model knows {rule.role}s.")
    check_dates(frame, Picked(place, column, rule.role))
    return column


def _as_texts(frame: Frame, rule: ColumnRule, place: int, column: Column) -> Column:
    texts = Column("text", column.values, column.texts())
    unseen = np.flatnonzero(np.isnan(class_codes(rule, texts)) & ~texts.missing)
    if len(unseen):
        row = int(unseen[0])
        cell = show(str(texts.cells[row].as_py()))
        known = f"the model knows {counted(len(rule.levels), 'level')}: {listed(rule.levels)}"
        raise frame.error(place, f"holds {cell} in row {row} ({counted(len(unseen), 'such cell')}); {known}.")
    return texts


def _targets(frame: Frame, rule: ColumnRule, place: int, rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Return the targets (n,) of the rows (n,), None where one is missing."""
    column = _fetch(frame, rule, place).take(rows)
    missing = column.missing
    if missing.any():
        return None
    check_gaps(frame, Picked(place, column, rule.role), missing, "drop")
    return class_codes(rule, column) if rule.role == "category" else column.values
