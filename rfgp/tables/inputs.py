"""The inputs of a file to predict, encoded by the schema of a fitted table."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.days import Times, converted
from rfgp.columns.table import warn_of_levels
from rfgp.errors import DataError
from rfgp.tables.column_errors import check_dates, check_missing_values, text_phrase
from rfgp.tables.columns import Column, Frame
from rfgp.tables.encoding import all_of, class_codes, encoded_matrix, exact_times, used_rows, with_imputed_means
from rfgp.tables.messages import counted, did_you_mean, listed, title
from rfgp.tables.schema import ColumnRule, Schema
from rfgp.tables.table import Inputs


def encode_inputs(frame: Frame, schema: Schema, passthrough: Sequence[str | int] = ()) -> Inputs:
    """Return the inputs of a file encoded by the schema, and further texts.

    Args:
        frame: The columns of the file.
        schema: The schema of the fitted table.
        passthrough: Further columns, by name or position, whose texts are returned.

    Raises:
        DataError: If columns are missing, or hold cells that the schema does not know.
        InvalidArgumentError: If there is no such further column.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.frames import read_frame
        >>> schema = Schema.of_numbers(("size",), "price")
        >>> encode_inputs(read_frame(pd.DataFrame({"size": [3.0]}), schema.format), schema).X.tolist()
        [[3.0]]
    """
    indices, target = _match_by_name(frame, schema) if schema.header else _match_by_position(frame, schema)
    others = [frame.find(wanted) for wanted in passthrough]
    policy = "inputs" if schema.missing == "error" else schema.missing

    def follow(rule_and_index: tuple[ColumnRule, int]) -> Column:
        rule, index = rule_and_index
        column = _follow(rule, frame.column(index, example=rule.example))
        column = column.with_missing_level() if rule.role == "level" and policy == "mean" else column
        check_missing_values(column, policy)
        return column

    columns = all_of(frame, follow, zip(schema.inputs, indices, strict=True))
    has_missing = np.any([column.missing for column in columns], axis=0) & (policy == "drop")
    rows = used_rows(frame, has_missing, schema.missing, "Rows with missing values are left out.")
    columns = [column.take(rows) for column in columns]
    rules = tuple(_extended(*pair) for pair in zip(schema.inputs, columns, strict=True))
    X = encoded_matrix(rules, columns)
    y = None
    if target is not None:
        (output,) = all_of(frame, lambda index: _target(frame, schema.output, index), [target])
        output = output.take(rows)
        y = None if output.missing.any() else class_codes(schema.output, output)
    texts = {frame.names[index]: frame.texts(index, rows) for index in others}
    return Inputs(with_imputed_means(X, schema), rows, frame.num_rows, y, rules, texts, exact_times(columns))


def _match_by_name(frame: Frame, schema: Schema) -> tuple[list[int], int | None]:
    """Return the positions of the inputs, and of the target or None."""
    index_of = {name: index for index, name in reversed(list(enumerate(frame.names)))}
    missing_names = [rule.name for rule in schema.inputs if rule.name not in index_of]
    if missing_names:
        raise DataError(
            f"{title(frame.file)} lacks {counted(len(missing_names), 'column')}: {listed(missing_names)}. "
            f"Its columns are {listed(frame.names)}.{did_you_mean(missing_names[0], frame.names)}"
        )
    wanted = {rule.name for rule in (*schema.inputs, schema.output)}
    frame.check_names([index for index, name in enumerate(frame.names) if name in wanted])
    return [index_of[rule.name] for rule in schema.inputs], index_of.get(schema.target)


def _match_by_position(frame: Frame, schema: Schema) -> tuple[list[int], int | None]:
    width, target = len(frame.names), schema.output.position
    if width == schema.width:
        return [rule.position for rule in schema.inputs], target
    if width == schema.width - 1:
        return [rule.position - (rule.position > target) for rule in schema.inputs], None
    expected = f"{counted(schema.width, 'column')}, or {schema.width - 1} without the target"
    raise DataError(f"{title(frame.file)} has {counted(width, 'column')}; the model needs {expected}.")


def _follow(rule: ColumnRule, column: Column) -> Column:
    """Return a column that has the type of its rule."""
    if rule.role == "category":
        column = column.as_text()
        if unseen := [column.cells[int(row)].as_py() for row in _unseen(rule, column)]:
            warn_of_levels(rule.name, sorted(set(unseen)), stacklevel=2)
        return column
    if rule.role == "level":
        return replace(column.as_text(), is_level=True)
    if column.missing.all():
        return column
    if column.kind == "text":
        raise column.error(f"{text_phrase(column)}, but the model needs {rule.role}s.")
    if column.kind != rule.role:
        row = np.flatnonzero(~column.missing)[0]
        hint = " Dates must be ISO (YYYY-MM-DD)." if rule.role == "date" else ""
        raise column.error(
            f"holds {column.kind}s ({column.as_text().cell_text(row)} in row {row}), but the model needs {rule.role}s."
            f"{hint}"
        )
    check_dates(column)
    return _on_clock(rule, column) if rule.role == "date" else column


def _on_clock(rule: ColumnRule, column: Column) -> Column:
    """Return a column of dates on the clock of the fitted table.

    Raises:
        DataError: If only one of the two has a time zone, or offsets from UTC that the other does not have.
    """
    if bool(rule.zone) != bool(column.zone):
        expected = (
            f"a time zone, as the fitted table ({rule.zone})" if rule.zone else "no time zone, as the fitted table"
        )
        raise column.error(f"must have {expected}, got {column.zone or 'none'}. Write the dates alike.")
    try:
        return column.with_times(Times(converted(column.times, rule.zone), rule.zone))
    except DataError as error:
        raise column.error(str(error)) from None


def _target(frame: Frame, rule: ColumnRule, index: int) -> Column:
    """Return the target's column of a file to predict, which may have missing values.

    Raises:
        DataError: If there is a class that the fitted table does not have, or a cell of another type.
    """
    column = frame.column(index, example=rule.example)
    if rule.role != "category":
        column = _follow(rule, column)
        check_missing_values(column, "drop")
        return column
    column = column.as_text()
    unseen = _unseen(rule, column)
    if len(unseen):
        row, cell = unseen[0], column.cell_text(unseen[0])
        levels = f"the model knows {counted(len(rule.levels), 'level')}: {listed(rule.levels)}"
        raise column.error(f"holds {cell} in row {row} ({counted(len(unseen), 'such cell')}); {levels}.")
    return column


def _extended(rule: ColumnRule, column: Column) -> ColumnRule:
    """Return a rule with the new levels of this file after those of the fitted table."""
    if rule.role != "level":
        return rule
    new = dict.fromkeys(column.cells.drop_null().to_pylist())
    return replace(rule, levels=tuple(dict.fromkeys((*rule.levels, *new))))


def _unseen(rule: ColumnRule, column: Column) -> NDArray[np.int64]:
    """Return the positions (k,) of texts that are not among the levels."""
    return np.flatnonzero(np.isnan(class_codes(rule, column)) & ~column.missing)
