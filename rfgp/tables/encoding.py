"""Encoding of a file's columns as a matrix of numbers, and of later files by its schema."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.days import Times, converted, to_days
from rfgp.columns.problems import collect_errors, join_errors
from rfgp.columns.table import counts_rows, is_index_name, warn_of_index, warn_of_levels
from rfgp.errors import BooleanTargetWarning, DataError, InvalidArgumentError
from rfgp.limits import limits
from rfgp.messages import counted, did_you_mean, listed, quoted
from rfgp.tables.columns import (
    Column,
    Frame,
    check_cells,
    check_dates,
    check_identifier,
    check_missing_values,
    check_mixed,
    dates_error,
    is_identifier,
    text_error,
    text_phrase,
)
from rfgp.tables.formats import title
from rfgp.tables.options import ReadOptions, TextFormat
from rfgp.tables.schema import ColumnRule, Schema
from rfgp.tables.table import Inputs, Table, times_of

S = TypeVar("S")
T = TypeVar("T")


def encode_table(frame: Frame, options: ReadOptions) -> Table:
    """Return the table of a file's columns, encoded by options.

    Args:
        frame: The columns of the file.
        options: The options of `read_table`.

    Raises:
        DataError: If a column has text, dates or missing values that the options do not allow.
        InvalidArgumentError: If there is no such target or dropped column.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables.reading import read_frame
        >>> options = ReadOptions("price")
        >>> frame = read_frame(pd.DataFrame({"size": [1, 2], "price": [2.0, 4.0]}), options)
        >>> encode_table(frame, options).columns
        ('size',)
    """
    inputs, output = _choose(frame, options)
    columns = (*inputs, output)
    required = (output,) if options.missing == "mean" else columns
    has_missing = np.any([column.missing for column in required], axis=0)
    rows = used_rows(frame, has_missing, options.missing, "Leave out the columns with the most missing values.")
    if frame.holds_booleans(output):
        message = f"{title(frame.file)}: the target {quoted(output.name)} holds booleans. They are fitted as 0 and 1."
        warnings.warn(BooleanTargetWarning(message), stacklevel=4)
    inputs, output = [column.take(rows) for column in inputs], output.take(rows)
    *rules, target = all_of(frame, lambda column: _rule(column, frame), (*inputs, output))
    X, y = encoded_matrix(tuple(rules), inputs), class_codes(target, output)
    used = {column.position for column in (*inputs, output)}
    schema = Schema(
        tuple(rules),
        target,
        width=len(frame.names),
        header=frame.header,
        dropped=tuple(name for index, name in enumerate(frame.names) if index not in used),
        missing=options.missing,
        imputed_means=_means(X, inputs) if options.missing == "mean" else (),
        **asdict(TextFormat.of(frame.text_format)),
    )
    X = with_imputed_means(X, schema)
    times = exact_times(inputs)
    return Table(X, y, schema.columns, schema.target, schema, schema.classes, rows, frame.num_rows, times)


def _means(X: NDArray[np.float64], inputs: Sequence[Column]) -> tuple[float, ...]:
    """Return the means (d,) of the encoded values of columns.

    Raises:
        DataError: If a column has no value.
    """
    empty = [column for column in inputs if column.missing.all()]
    if empty:
        raise DataError(
            f"Column {quoted(empty[0].name)} must have a value in the rows with a target, got none. Leave it out."
        )
    return tuple(np.nanmean(X, axis=0).tolist())


def _choose(frame: Frame, options: ReadOptions) -> tuple[list[Column], Column]:
    """Return the input columns and the target."""
    dropped = {frame.find(name) for name in options.drop}
    levels = {frame.find(name) for name in options.levels}
    indices = [index for index in range(len(frame.names)) if index not in dropped]
    if len(frame.names) < 2:
        raise DataError(f"{title(frame.file)} has one column. A table needs inputs and a target.")
    forced = {frame.find(name) for name in options.as_categories}
    target = frame.find(options.target) if options.target is not None else _last_column(frame, indices)
    if target in dropped:
        raise InvalidArgumentError(f"The target {quoted(frame.names[target])} is among the columns to drop.")
    if options.columns is None:
        counts = _index_columns(frame, {*indices} - forced - {target})
        indices = [index for index in indices if index not in counts]
    else:
        indices = _wanted(frame, options.columns, target, dropped)
    frame.check_names(indices)
    examples = {frame.find(name): example for name, example in (options.numbers or {}).items()}
    found = [frame.column(index, index == target, examples.get(index, "")) for index in indices]
    columns = [replace(column, is_level=column.position in levels - {target}) for column in found]
    used = all_of(frame, lambda column: _checked(frame, column, options, column.position in forced), columns)
    checked = dict(zip(indices, used, strict=True))
    output = checked.pop(target)
    inputs = [column for column in checked.values() if column is not None]
    if not inputs:
        raise DataError(f"{title(frame.file)} has no input columns left. The others were dropped.")
    assert output is not None
    return inputs, output


def _wanted(frame: Frame, wanted: Sequence[str | int], target: int, dropped: set[int]) -> list[int]:
    """Return the positions of wanted inputs and the target, in order.

    Raises:
        InvalidArgumentError: If there is no such column, or it is the target or dropped.
    """
    indices = {frame.find(name) for name in wanted}
    for index in sorted(indices & {target, *dropped}):
        role = "the target" if index == target else "among the columns to drop"
        raise InvalidArgumentError(f"The column {quoted(frame.names[index])} must not be an input, since it is {role}.")
    return sorted({*indices, target})


def _last_column(frame: Frame, indices: Sequence[int]) -> int:
    """Return the last of these columns whose name is not that of an index."""
    named = [index for index in indices if not is_index_name(frame.names[index])]
    return next(iter([*named[-1:], *indices[-1:]]), 0)


def _index_columns(frame: Frame, candidates: Iterable[int]) -> set[int]:
    """Return the unnamed columns that count the rows, and warn of all unnamed ones."""
    indices = set()
    for index in sorted(candidates):
        if is_index_name(frame.names[index]):
            column = frame.column(index)
            if column.kind == "number" and counts_rows(column.values):
                indices.add(index)
            if column.kind == "number":
                warn_of_index(title(frame.file), column.name, index in indices, column.drop_option, stacklevel=7)
    return indices


def all_of(frame: Frame, step: Callable[[S], T], columns: Iterable[S]) -> list[T]:
    """Return the results of a step for columns.

    Args:
        frame: The columns of the file, for messages.
        step: A function of a column.
        columns: The columns.

    Raises:
        DataError: If the step fails. The message combines those of all columns.

    Examples:
        >>> from types import SimpleNamespace
        >>> all_of(SimpleNamespace(file="t.csv"), str.upper, ["a", "b"])
        ['A', 'B']
    """
    results, problems = collect_errors(step, columns)
    if problems:
        raise DataError(_joined(problems, frame))
    return results


def _joined(problems: list[str], frame: Frame) -> str:
    """Join messages that begin with the file's name."""
    begin = f"{title(frame.file)}: "
    lines = [problem.replace(begin, "") for problem in problems]
    has_header = frame.header and isinstance(frame.file, Path)
    message = join_errors(lines, _counted_kinds, ", after the header" * has_header)
    return begin * problems[0].startswith(begin) + message


def _counted_kinds(problems: list[str]) -> str:
    """Return a sentence with the number of further columns with problems of each kind."""
    kinds = {word: sum(word in problem for problem in problems) for word in ("text", "dates", "missing")}
    words = ", ".join(
        f"{count:,} with {word}{' cells' * (word == 'missing')}" for word, count in kinds.items() if count
    )
    return f"And {counted(len(problems), 'more column')}{': ' * bool(words)}{words}."


def _checked(frame: Frame, column: Column, options: ReadOptions, forced: bool) -> Column | None:
    """Return a column as `_used` does, with all its problems in one error.

    Raises:
        DataError: If its type, texts, dates or missing values are not allowed, or its texts are all different.
    """
    problems = []
    try:
        used = _used(frame, column, options, forced)
    except DataError as error:
        used, problems = column, [str(error)]
    if used is None:
        return None
    if options.missing == "mean" and used.is_level and used.kind == "text":
        used = used.with_missing_level()
    try:
        check_cells(used, options.missing)
        if not problems and options.missing != "drop":  # otherwise the remaining rows decide
            _rule(used, frame)
    except DataError as error:
        problems.append(str(error))
    if problems:
        raise DataError("\n".join(problems))
    return used


def _used(frame: Frame, column: Column, options: ReadOptions, forced: bool) -> Column | None:
    """Return a column that can be used, with text as a category. None if it is left out."""
    is_target = column.is_target
    is_text = forced or (column.is_level and column.kind != "number")
    if is_text and not column.missing.all():
        is_level = column.is_level or (options.categories == "levels" and not is_target)
        return replace(column.as_text(), is_level=is_level, is_category=forced)
    if column.kind == "number":
        return column
    is_date = column.kind == "date"
    choice = options.dates if is_date else options.categories
    if is_date:
        check_dates(column)
    else:
        check_mixed(column, frame)
    if choice == "levels" and not is_target:
        return None if is_identifier(column, frame) else replace(column, is_level=True)
    if choice in ("days", "one-hot") or (is_target and not is_date):
        return column
    if choice == "drop" and not is_target:
        return None
    if column.missing.all():
        return column
    if is_date:
        raise dates_error(column, is_target)
    raise text_error(column, frame, is_named=options.columns is not None)


def used_rows(frame: Frame, has_missing: NDArray[np.bool_], policy: str, remedy: str) -> NDArray[np.int64]:
    """Return the positions (n,) of the rows to use.

    Args:
        frame: The columns of the file.
        has_missing: The mask (n,) of rows with missing cells.
        policy: The policy for missing cells: "error", "drop" or "mean".
        remedy: The remedy in the message, a sentence.

    Raises:
        DataError: If all rows have missing cells.

    Examples:
        >>> from types import SimpleNamespace
        >>> frame = SimpleNamespace(num_rows=3, file="t.csv")
        >>> used_rows(frame, np.array([False, True, False]), "drop", "").tolist()
        [0, 2]
    """
    rows = np.arange(frame.num_rows, dtype=np.int64)
    if policy not in ("drop", "mean"):
        return rows
    if has_missing.all():
        raise DataError(f"{title(frame.file)}: at least one row must have all values, got none. {remedy}")
    return rows[~has_missing]


def _rule(column: Column, frame: Frame) -> ColumnRule:
    if column.kind != "text":
        return ColumnRule(column.name, column.position, column.kind, example=column.example, zone=column.zone)
    levels = tuple(sorted(column.cells.drop_null().unique().to_pylist()))
    if column.is_level:
        return ColumnRule(column.name, column.position, "level", levels)
    check_identifier(column, frame)
    return ColumnRule(column.name, column.position, "category", levels)


def encoded_matrix(rules: tuple[ColumnRule, ...], columns: list[Column]) -> NDArray[np.float64]:
    """Return the encoded matrix (n, d), NaN where missing.

    Args:
        rules: The encoding of each column.
        columns: The columns.

    Raises:
        DataError: If the matrix would be larger than 1 GiB.

    Examples:
        >>> number = Column("t.csv", "size", 0, True, "number", np.array([1.0, 2.0]))
        >>> encoded_matrix((ColumnRule("size", 0, "number"),), [number]).tolist()
        [[1.0], [2.0]]
    """
    n, width = len(columns[0].values), sum(len(rule.encoded) for rule in rules)
    if n * width * 8 > limits().max_file_bytes:
        size = f"{counted(n, 'row')} and {counted(width, 'encoded column')}"
        raise DataError(f"{title(columns[0].file)}: {size} are more than {limits().max_file_bytes:,} bytes.")
    X = np.empty((n, width))
    start = 0
    for rule, column in zip(rules, columns, strict=True):
        codes = class_codes(rule, column)[:, None]
        if rule.role == "category":
            codes = np.where(column.missing[:, None], np.nan, codes == np.arange(len(rule.levels)))
        X[:, start : start + codes.shape[1]] = codes
        start += codes.shape[1]
    return X


def exact_times(columns: Iterable[Column]) -> dict[str, NDArray[np.datetime64]]:
    """Return the dates (n,) that days do not represent to the microsecond, by the names of the columns.

    Args:
        columns: The columns.

    Examples:
        >>> exact_times([Column("t.csv", "size", 0, True, "number", np.array([1.0, 2.0]))])
        {}
    """
    dates = {column.name: column.times.values for column in columns if column.times is not None}
    return {name: times for name, times in dates.items() if not np.array_equal(times, times_of(to_days(times)))}


def class_codes(rule: ColumnRule, column: Column) -> NDArray[np.float64]:
    """Return the codes (n,) of texts among levels, or the values (n,) of numbers.

    Missing and unknown texts become NaN.

    Args:
        rule: The encoding of the column.
        column: The column.

    Examples:
        >>> import pyarrow as pa
        >>> column = Column("t.csv", "color", 0, True, "text", np.full(2, np.nan), pa.array(["red", "blue"]))
        >>> class_codes(ColumnRule("color", 0, "category", ("blue", "red")), column).tolist()
        [1.0, 0.0]
    """
    if not rule.levels:
        return column.values
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pc.index_in(column.cells, value_set=pa.array(rule.levels, column.cells.type), skip_nulls=True)
    return np.asarray(codes.cast(pa.float64()))


def with_imputed_means(X: NDArray[np.float64], schema: Schema) -> NDArray[np.float64]:
    """Return the matrix (n, d) with the means of the schema instead of NaN.

    Args:
        X: Encoded inputs (n, d).
        schema: The schema, with d means.

    Examples:
        >>> from types import SimpleNamespace
        >>> with_imputed_means(np.array([[1.0, np.nan]]), SimpleNamespace(imputed_means=(0.0, 5.0))).tolist()
        [[1.0, 5.0]]
    """
    return np.where(np.isnan(X), np.array(schema.imputed_means), X) if schema.imputed_means and np.isnan(X).any() else X


# --- The inputs of a file to predict ------------------------------------------------------------------------------


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
        >>> from rfgp.tables.reading import read_frame
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
