"""Encoding of a file's columns as a matrix of numbers, and of later files by its schema."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import CellType
from rfgp.columns.days import converted, times_of, to_days
from rfgp.columns.problems import collect_errors, join_errors
from rfgp.columns.table import is_index_name, warn_of_levels, without_index
from rfgp.errors import BooleanTargetWarning, DataError, InvalidArgumentError, warn
from rfgp.limits import limits
from rfgp.messages import counted, did_you_mean, listed, quoted
from rfgp.tables.columns import FileColumn
from rfgp.tables.options import ReadOptions, TextFormat, title
from rfgp.tables.table import ColumnRule, Inputs, Schema, Table
from rfgp.tables.text import Frame, find_column

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
    required = {"error": [], "mean": [output], "drop": [*inputs, output]}[options.missing]
    rows = _used_rows(frame, required, "Leave out the columns with the most missing values.")
    if output.cells.cell_type is CellType.BOOLEAN:
        message = f"{title(frame.file)}: the target {quoted(output.name)} holds booleans. They are fitted as 0 and 1."
        warn(BooleanTargetWarning(message))
    used = [column.take(rows) for column in (*inputs, output)]
    *rules, target = _all_of(frame, _rule, used)
    *inputs, output = used
    X, positions = _encoded(tuple(rules), inputs), {column.position for column in used}
    schema = Schema(
        tuple(rules),
        target,
        width=len(frame.names),
        header=frame.header,
        dropped=tuple(name for index, name in enumerate(frame.names) if index not in positions),
        missing=options.missing,
        imputed_means=_means(X, inputs) if options.missing == "mean" else (),
        **asdict(TextFormat.of(frame.text_format)),
    )
    X, y, times = _with_imputed_means(X, schema), _codes(target, output), _exact_times(inputs)
    return Table(X, y, schema.columns, schema.target, schema, schema.classes, rows, frame.num_rows, times)


def _means(X: NDArray[np.float64], inputs: Sequence[FileColumn]) -> tuple[float, ...]:
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


def _choose(frame: Frame, options: ReadOptions) -> tuple[list[FileColumn], FileColumn]:
    """Return the input columns and the target."""

    def found(wanted: Iterable[str | int]) -> set[int]:
        return {find_column(frame.names, name) for name in wanted}

    dropped, levels, forced = found(options.drop), found(options.levels), found(options.as_categories)
    indices = [index for index in range(len(frame.names)) if index not in dropped]
    if len(frame.names) < 2:
        raise DataError(f"{title(frame.file)} has one column. A table needs inputs and a target.")
    target = _last_column(frame, indices) if options.target is None else find_column(frame.names, options.target)
    if target in dropped:
        raise InvalidArgumentError(f"The target {quoted(frame.names[target])} is among the columns to drop.")
    examples = {find_column(frame.names, name): example for name, example in (options.numbers or {}).items()}
    if options.columns is None:
        indices = _without_index(frame, indices, {*forced, target})
    else:
        indices = _wanted(frame, found(options.columns), target, dropped)
    frame.check_names(indices)

    def used(index: int) -> FileColumn | None:
        column = FileColumn.of(frame, index, examples.get(index, ""), is_target=index == target)
        return _checked(replace(column, is_level=index in levels - {target}), options, index in forced)

    checked = dict(zip(indices, _all_of(frame, used, indices), strict=True))
    output = checked.pop(target)
    inputs = [column for column in checked.values() if column is not None]
    if not inputs:
        raise DataError(f"{title(frame.file)} has no input columns left. The others were dropped.")
    assert output is not None
    return inputs, output


def _wanted(frame: Frame, indices: set[int], target: int, dropped: set[int]) -> list[int]:
    """Return the positions of wanted inputs and the target, in order.

    Raises:
        InvalidArgumentError: If a column is the target or dropped.
    """
    for index in sorted(indices & {target, *dropped}):
        role = "the target" if index == target else "among the columns to drop"
        raise InvalidArgumentError(f"The column {quoted(frame.names[index])} must not be an input, since it is {role}.")
    return sorted({*indices, target})


def _last_column(frame: Frame, indices: Sequence[int]) -> int:
    """Return the last of these columns whose name is not that of an index."""
    named = [index for index in indices if not is_index_name(frame.names[index])]
    return next(iter([*named[-1:], *indices[-1:]]), 0)


def _without_index(frame: Frame, indices: Sequence[int], others: set[int]) -> list[int]:
    """Return the positions of columns without those of an index. Some other columns are kept in any case."""
    names = {frame.names[index]: index for index in indices if index not in others}

    def numbers(name: str) -> NDArray[np.float64]:
        column = FileColumn.of(frame, names[name])
        return column.values if column.kind == "number" else np.empty(0)

    kept = without_index(tuple(names), numbers, title(frame.file), "drop={!r}")
    left_out = {index for name, index in names.items() if name not in kept}
    return [index for index in indices if index not in left_out]


def _all_of(frame: Frame, step: Callable[[S], T], columns: Iterable[S]) -> list[T]:
    """Return the results of a step for columns.

    Raises:
        DataError: If the step fails. The message combines those of all columns.
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


def _checked(column: FileColumn, options: ReadOptions, forced: bool) -> FileColumn | None:
    """Return a column as `_used` does, with all its problems in one error.

    Raises:
        DataError: If its type, texts, dates or missing values are not allowed, or its texts are all different.
    """
    problems = []
    try:
        used = _used(column, options, forced)
    except DataError as error:
        used, problems = column, [str(error)]
    if used is None:
        return None
    if options.missing == "mean" and used.is_level and used.kind == "text":
        used = used.with_missing_level()
    try:
        if used.missing.all():
            raise used.error(f"has no values, all {len(used.cells):,} are missing. {used.drop_advice}")
        used.check_missing(options.missing)
        if not problems and options.missing != "drop":  # otherwise the remaining rows decide
            _rule(used)
    except DataError as error:
        problems.append(str(error))
    if problems:
        raise DataError("\n".join(problems))
    return used


def _used(column: FileColumn, options: ReadOptions, forced: bool) -> FileColumn | None:
    """Return a column that can be used, with text as a category. None if it is left out."""
    is_target, is_date = column.is_target, column.kind == "date"
    is_text = forced or (column.is_level and column.kind != "number")
    if is_text and not column.missing.all():
        is_level = column.is_level or (options.categories == "levels" and not is_target)
        return replace(column.as_text(), is_level=is_level, is_category=forced)
    if column.kind == "number":
        return column
    choice = options.dates if is_date else options.categories
    if is_date:
        column.check_dates()
    else:
        column.check_mixed()
    if choice == "levels" and not is_target:
        return None if column.is_left_out() else replace(column, is_level=True)
    if choice in ("days", "one-hot") or (is_target and not is_date):
        return column
    if choice == "drop" and not is_target:
        return None
    if column.missing.all():
        return column
    raise column.dates_error() if is_date else column.text_error(is_named=options.columns is not None)


def _used_rows(frame: Frame, columns: Sequence[FileColumn], remedy: str) -> NDArray[np.int64]:
    """Return the positions (n,) of the rows in which all of some columns have values.

    Args:
        frame: The file.
        columns: The columns that need values. If there are none, all rows are used.
        remedy: The remedy in the message, a sentence.

    Raises:
        DataError: If all rows have missing cells.
    """
    has_missing = np.zeros(frame.num_rows, dtype=bool)
    for column in columns:
        has_missing |= column.missing
    if has_missing.all():
        raise DataError(f"{title(frame.file)}: at least one row must have all values, got none. {remedy}")
    return np.flatnonzero(~has_missing)


def _rule(column: FileColumn) -> ColumnRule:
    """Return the encoding of a column."""
    if column.kind != "text":
        return ColumnRule(column.name, column.position, column.kind, example=column.example, zone=column.cells.zone)
    if not column.is_level:
        column.check_category()
    levels = tuple(str(level) for level in column.counts.levels)
    return ColumnRule(column.name, column.position, "level" if column.is_level else "category", levels)


def _encoded(rules: Sequence[ColumnRule], columns: Sequence[FileColumn]) -> NDArray[np.float64]:
    """Return the encoded matrix (n, d), NaN where missing.

    Raises:
        DataError: If the matrix would be larger than 1 GiB.
    """
    n, width = len(columns[0].cells), sum(len(rule.encoded) for rule in rules)
    if n * width * 8 > limits().max_file_bytes:
        size = f"{counted(n, 'row')} and {counted(width, 'encoded column')}"
        raise DataError(f"{title(columns[0].frame.file)}: {size} are more than {limits().max_file_bytes:,} bytes.")
    X, start = np.zeros((n, width)), 0
    for rule, column in zip(rules, columns, strict=True):
        codes, part = _codes(rule, column), X[:, start : start + len(rule.encoded)]
        if rule.role == "category":
            known = np.flatnonzero(~np.isnan(codes))
            part[known, codes[known].astype(np.int64)] = 1.0
            part[column.missing] = np.nan
        else:
            part[:, 0] = codes
        start += part.shape[1]
    return X


def _exact_times(columns: Iterable[FileColumn]) -> dict[str, NDArray[np.datetime64]]:
    """Return the dates (n,) that days do not represent to the microsecond, by the names of the columns."""
    dates = {column.name: column.cells.values for column in columns if column.cells.cell_type is CellType.DATE}
    return {name: times for name, times in dates.items() if not np.array_equal(times, times_of(to_days(times)))}


def _codes(rule: ColumnRule, column: FileColumn) -> NDArray[np.float64]:
    """Return the codes (n,) of texts among levels, or the values (n,) of numbers, NaN if missing or unknown."""
    if not rule.levels:
        return column.values
    codes = column.cells.coded(rule.levels)[0]
    return np.where((codes < 0) | (codes >= len(rule.levels)), np.nan, codes)


def _with_imputed_means(X: NDArray[np.float64], schema: Schema) -> NDArray[np.float64]:
    """Return the matrix (n, d) with the means of the schema instead of NaN."""
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
    others = [find_column(frame.names, wanted) for wanted in passthrough]
    policy = "inputs" if schema.missing == "error" else schema.missing

    def follow(rule_and_index: tuple[ColumnRule, int]) -> FileColumn:
        rule, index = rule_and_index
        column = _followed(rule, FileColumn.of(frame, index, rule.example))
        column = column.with_missing_level() if rule.role == "level" and policy == "mean" else column
        column.check_missing(policy)
        return column

    columns = _all_of(frame, follow, zip(schema.inputs, indices, strict=True))
    rows = _used_rows(frame, columns if policy == "drop" else [], "Rows with missing values are left out.")
    columns = [column.take(rows) for column in columns]
    rules = tuple(_extended(*pair) for pair in zip(schema.inputs, columns, strict=True))
    X, y = _encoded(rules, columns), None
    if target is not None:
        (output,) = _all_of(frame, lambda index: _target(frame, schema.output, index), [target])
        output = output.take(rows)
        y = None if output.missing.any() else _codes(schema.output, output)
    texts = {frame.names[index]: frame.texts(index, rows) for index in others}
    return Inputs(_with_imputed_means(X, schema), rows, frame.num_rows, y, rules, texts, _exact_times(columns))


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


def _followed(rule: ColumnRule, column: FileColumn) -> FileColumn:
    """Return a column that has the type of its rule, with dates on the clock of the fitted table.

    Raises:
        DataError: If its cells have another type, a date does not exist, or only one of the two has a time zone, or
            offsets from UTC that the other does not have.
    """
    if rule.levels:
        column = replace(column.as_text(), is_level=rule.role == "level")
        if rule.role == "category" and (new := column.cells.coded(rule.levels)[1]):
            warn_of_levels(rule.name, sorted(new))
        return column
    if column.missing.all():
        return column
    if column.kind == "text":
        raise column.error(f"{column.text_phrase}, but the model needs {rule.role}s.")
    if column.kind != rule.role:
        row = np.flatnonzero(~column.missing)[0]
        hint = " Dates must be ISO (YYYY-MM-DD)." if rule.role == "date" else ""
        got = f"{column.kind}s ({column.as_text().shown(row)} in row {row})"
        raise column.error(f"holds {got}, but the model needs {rule.role}s.{hint}")
    column.check_dates()
    if rule.role == "number":
        return column
    zone = column.cells.zone
    if bool(rule.zone) != bool(zone):
        expected = (
            f"a time zone, as the fitted table ({rule.zone})" if rule.zone else "no time zone, as the fitted table"
        )
        raise column.error(f"must have {expected}, got {zone or 'none'}. Write the dates alike.")
    try:
        times = converted(column.cells.times, rule.zone)
    except DataError as error:
        raise column.error(str(error)) from None
    return replace(column, cells=replace(column.cells, values=times, zone=rule.zone, offsets=None))


def _target(frame: Frame, rule: ColumnRule, index: int) -> FileColumn:
    """Return the target's column of a file to predict, which may have missing values.

    Raises:
        DataError: If there is a class that the fitted table does not have, or a cell of another type.
    """
    column = FileColumn.of(frame, index, rule.example)
    if rule.role != "category":
        column = _followed(rule, column)
        column.check_missing("drop")
        return column
    column = column.as_text()
    unseen = np.flatnonzero(np.isnan(_codes(rule, column)) & ~column.missing)
    if len(unseen):
        levels = f"the model knows {counted(len(rule.levels), 'level')}: {listed(rule.levels)}"
        found = f"{column.shown(unseen[0])} in row {unseen[0]} ({counted(len(unseen), 'such cell')})"
        raise column.error(f"holds {found}; {levels}.")
    return column


def _extended(rule: ColumnRule, column: FileColumn) -> ColumnRule:
    """Return a rule with the new levels of this file after those of the fitted table."""
    if rule.role != "level":
        return rule
    return replace(rule, levels=(*rule.levels, *map(str, column.cells.coded(rule.levels)[1])))
