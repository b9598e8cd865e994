"""Tables larger than memory, which are read in batches of rows.

Each class is a `rfgp.rows.RowSource`, which `fit`, `condition`, `update` and `predict` accept instead of arrays. `GP`
reads columns of numbers, dates, text and booleans by name. Other models need columns of numbers. Categories and dates
of tables that fit in memory can be encoded by `rfgp.tables.read_table`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.cells import REAL, CellType, Column
from rfgp.columns.table import InputTable, without_index
from rfgp.errors import DataError, InvalidArgumentError, RfgpError, requires_extra
from rfgp.limits import limits
from rfgp.messages import listed, one_line, quoted
from rfgp.rows import Chunk
from rfgp.rows.sources import warn_of_booleans
from rfgp.tables.columns import column_of, numbers_among, texts_of
from rfgp.tables.options import MISSING_MARKS, Decimal, TextFormat, check_numbers, title
from rfgp.tables.text import is_text, opened, read_header, unreadable

Target = str | Sequence[str] | None
# --- Roles of the columns of a table that is read in batches ----------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """The roles of columns.

    Attributes:
        target: The name of the target, or k names. If None, there is no target, as in inputs of predictions.
        columns: The names of the inputs, in order. If None, all other columns.
        noise: The name of the column of known noise variances. If None, there is none.
        sample_weight: The name of the column of weights. If None, there is none.

    Examples:
        >>> Roles("price", noise="variance").inputs(["size", "price", "variance"], "The file")
        ['size']
    """

    target: Target = None
    columns: Sequence[str] | None = None
    noise: str | None = None
    sample_weight: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise InvalidArgumentError(f"columns must be a list of names, got {quoted(self.columns)}.")
        names = [*self.others, *(self.columns or ())]
        for name in names:
            if not isinstance(name, str):
                raise InvalidArgumentError(f"Names of columns must be texts, got {quoted(str(name))}.")
            if names.count(name) > 1:
                raise InvalidArgumentError(f"Columns must be named once, got {quoted(name)} twice.")
        if self.target is not None and not len(self.target):
            raise InvalidArgumentError("target must have at least one name, got an empty list. Leave it out.")

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return (self.target,) if isinstance(self.target, str) else tuple(self.target or ())

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the columns that are not inputs: targets, noise and weights."""
        return (*self.targets, *(name for name in (self.noise, self.sample_weight) if name is not None))

    def inputs(self, names: Sequence[str], where: str) -> list[str]:
        """Return the names of the inputs among all names.

        Args:
            names: The names of all columns.
            where: The file, for messages.

        Raises:
            InvalidArgumentError: If a column is missing, or there are no inputs.
        """
        for name in (*self.others, *(self.columns or ())):
            if name not in names:
                raise InvalidArgumentError(f"{where} has no column {quoted(name)}; it has {listed(list(names))}.")
        rest = [name for name in names if name not in self.others]
        inputs = rest if self.columns is None else list(self.columns)
        if not inputs:
            raise InvalidArgumentError(f"{where} has no column left for the inputs.")
        return inputs

    def without_index(self, inputs: list[str], where: str, first: Callable[[str], Any]) -> list[str]:
        """Return the inputs without unnamed columns that count the first rows, and warn if targets are booleans.

        Inputs of predictions, and inputs given by name, keep such columns.

        Args:
            inputs: The names of the inputs.
            where: The file, for warnings.
            first: A function from the name of a column to its first rows (b,).
        """
        for name in self.targets:
            warn_of_booleans(first(name), f"{where}: {quoted(name)}")
        if self.columns is not None or self.target is None:
            return inputs
        return list(without_index(inputs, first, where, "columns=, which lists the inputs"))

    def rows(self, X: Any, others: Mapping[str, NDArray[Any]]) -> Chunk:
        """Return rows of inputs, with targets, noise and weights (b,).

        Args:
            X: Inputs (b, d), or columns.
            others: The other columns (b,) by name.
        """
        y: Any = None
        if isinstance(self.target, str):
            y = others[self.target]
        elif self.target is not None:
            y = np.stack([others[name] for name in self.target], axis=1)
        noise, weight = (None if name is None else others[name] for name in (self.noise, self.sample_weight))
        return Chunk(X, y, noise, weight)

    def matrix(self, columns: Mapping[str, NDArray[Any]], inputs: Sequence[str]) -> Chunk:
        """Return rows of columns of numbers of one type, with a matrix of inputs.

        Args:
            columns: The columns (b,) by name.
            inputs: The names of the inputs, in order.
        """
        kind = np.result_type(*columns.values())
        columns = {name: column.astype(kind, copy=False) for name, column in columns.items()}
        X = np.stack([columns[name] for name in inputs], axis=1)
        return self.rows(X, columns)._replace(names=tuple(inputs))


# --- Files ------------------------------------------------------------------------------------------------------------


class _FileSource:
    """The rows of one or several files with the same columns. A file type says how its batches and columns are read."""

    paths: list[Path]
    _roles: Roles
    _inputs: list[str]
    _is_named = True
    _text_format = TextFormat()

    def _batches(self, file: Path, names: Sequence[str]) -> Iterator[Any]:
        """Yield columns of all rows of a file in Arrow's batches."""
        raise NotImplementedError

    def _column(self, name: str, cells: Any, first: int) -> Column:
        """Return Arrow cells (b,) as a column."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in batches, with matrices of inputs."""
        for file, first, columns in self._columns([*self._inputs, *self._roles.others]):
            numbers = {name: self._numbers_in(file, name, column, first) for name, column in columns.items()}
            chunk = self._roles.matrix(numbers, self._inputs)
            yield chunk if self._is_named else chunk._replace(names=None)

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows in batches, with a dictionary of columns of inputs, by numbers if a file has no header.

        Args:
            columns: The names of the inputs to read. If None, or if one is not an input, all inputs.
        """
        is_known = columns is not None and all(column in self._inputs for column in columns)
        inputs = [name for name in self._inputs if columns is None or not is_known or name in columns]
        for file, first, found in self._columns([*inputs, *self._roles.others]):
            others = {name: self._numbers_in(file, name, found[name], first) for name in self._roles.others}
            X = {name if self._is_named else int(name): found[name] for name in inputs}
            yield self._roles.rows(X, others)

    def _columns(self, names: Sequence[str]) -> Iterator[tuple[Path, int, dict[str, Column]]]:
        """Yield the file, the number of preceding rows and the columns (b,) of each batch.

        The first cells decide whether texts are numbers, booleans or dates. A later batch of another type stays text.

        Raises:
            DataError: If a cell is not in the format that is given for its column.
        """
        families = dict[str, CellType]()
        for file in self.paths:
            first = 0
            for batch in self._batches(file, names):
                columns = dict[str, Column]()
                for name in names:
                    cells = batch.column(name)
                    try:
                        column = self._column(name, cells, first)
                    except DataError as error:
                        raise DataError(f"{title(file)}: column {quoted(name)} {error}") from None
                    family = CellType.NUMBER if column.cell_type is CellType.INTEGER else column.cell_type
                    is_other = not column.missing.all() and families.setdefault(name, family) is not family
                    is_other = is_other and is_text(cells.type)
                    columns[name] = texts_of(cells, self._text_format) if is_other else column
                if batch.num_rows:
                    yield file, first, columns
                first += batch.num_rows

    def _numbers_in(self, file: Path, name: str, cells: Column, first: int) -> NDArray[Any]:
        return _numbers(title(file), name, cells, self._text_format, first)

    def _without_index(self, inputs: list[str]) -> list[str]:
        """Return the inputs without columns that count the first rows, and warn if targets are booleans."""

        def first(name: str) -> NDArray[Any]:
            try:
                for _, _, columns in self._columns([name]):
                    return columns[name].expanded().values if columns[name].cell_type in REAL else np.empty(0)
            except DataError:  # raised again when the rows are read
                pass
            return np.empty(0)

        return self._roles.without_index(inputs, title(self.paths[0]), first)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({listed([file.name for file in self.paths], 3)})"


def _numbers(where: str, name: str, cells: Column, text_format: TextFormat, first: int) -> NDArray[Any]:
    """Return a column of numbers (b,).

    Raises:
        DataError: If the column holds other values or missing cells. The message names the row.
    """
    where = f"{where}: column {quoted(name)}"
    if cells.missing.any():
        raise DataError(f"{where} has a missing cell in row {first + int(cells.missing.argmax()):,}.")
    if cells.cell_type in REAL:
        return cells.values if cells.values.dtype == np.float32 else cells.numbers()
    got = str(cells.cell_type)
    if cells.cell_type is CellType.TEXT:
        row = int(np.isnan(numbers_among(cells, text_format)).argmax())
        got = f"text ({quoted(cells.expanded().values[row])} in row {first + row:,})"
    raise DataError(f"{where} must hold numbers, got {got}. Leave it out with columns=, or encode it first.")


class Parquet(_FileSource):
    """The rows of one Parquet file, or of several files.

    Args:
        path: A file, several, or a folder whose *.parquet files are read in the order of their names.
        target: The target column's name, or a list of k. If None, the table has no target.
        columns: The names of the input columns, in order. If None, all other columns.
        noise: The name of the column of known noise variances. If None, there is none.
        sample_weight: The name of the column of weights. If None, there is none.
        numbers: Examples of numbers with units, such as `{"price": "$3.50"}`, by the names of columns of text. If None,
            there are no such columns.

    Raises:
        DataError: If a file is missing or not Parquet. While it is read, if cells are not finite numbers.
        InvalidArgumentError: If there is no such column.

    Examples:
        >>> import tempfile
        >>> import pandas as pd
        >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        ...     pd.DataFrame({"size": [1.0, 2.0], "price": [2.0, 4.0]}).to_parquet(file.name)
        ...     [chunk.y.tolist() for chunk in Parquet(file.name, "price").chunks()]
        [[2.0, 4.0]]
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        target: Target = None,
        *,
        columns: Sequence[str] | None = None,
        noise: str | None = None,
        sample_weight: str | None = None,
        numbers: Mapping[str, str] | None = None,
    ) -> None:
        self.paths, self._numbers = _files(path), {} if numbers is None else numbers
        check_numbers(self._numbers)
        self._roles, inputs = Roles(target, columns, noise, sample_weight), list[list[str]]()
        for file in self.paths:
            with opened(file) as parquet:
                inputs.append(self._roles.inputs(parquet.schema_arrow.names, title(file)))
            if set(inputs[-1]) != set(inputs[0]):
                raise DataError(f"{title(file)} has other columns than {title(self.paths[0])}.")
        self._inputs = self._without_index(inputs[0])

    def _batches(self, file: Path, names: Sequence[str]) -> Iterator[Any]:
        """Yield columns of all rows of a file in Arrow's batches."""
        with opened(file) as parquet:
            if missing := set(names) - set(parquet.schema_arrow.names):
                raise DataError(f"{title(file)} has no column {quoted(min(missing))} any more.")
            yield from parquet.iter_batches(batch_size=limits().chunk_rows, columns=list(names), use_threads=False)

    def _column(self, name: str, cells: Any, first: int) -> Column:
        """Return Arrow cells (b,) as a column. Only texts with an example of their format become numbers."""
        example = self._numbers.get(name)
        return Column.of(cells) if example is None else column_of(cells, TextFormat(), example, first)


class CSV(_FileSource):
    r"""The rows of a text table, separated by commas, semicolons or tabs, read in batches.

    `GP` reads columns of numbers, dates, text and booleans by name. `chunks()`, for other models, requires columns of
    numbers. Tables separated by blanks are refused; use `read_table`.

    Args:
        path: The file, plain or gzipped.
        target: The name of the target column, or a list of k names. If None, the table has no target, for example rows
            to predict at. Without a header, the columns are "0", "1" and so on.
        columns: The names of the input columns, in order. If None, all other columns.
        noise: The name of the column of known noise variances. If None, there is none.
        sample_weight: The name of the column of weights. If None, there is none.
        names: The names of the columns, for a file without a header.
        decimal: The decimal mark, "." or ",".
        thousands: The separator of groups of three digits, such as "," in 1,200. If None, numbers are not grouped.
        numbers: Examples of numbers with units or marks of their own, such as `{"price": "1.234,50 EUR"}`, by the names
            of columns. If None, there are no such columns.

    Raises:
        DataError: If the file is missing, empty, not text, separated by blanks, or has two columns of one name. While
            it is read, if the header has changed, or a required number is not finite.
        InvalidArgumentError: If there is no such column, decimal mark or separator, or `names` does not have one name
            for each column.

    Examples:
        >>> import tempfile
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("day,shop,sales\n2026-01-05,north,1\n2026-01-06,south,2\n2026-01-07,north,4\n")
        ...     file.flush()
        ...     gp = rfgp.GP(k.Linear("day") + k.Group("shop"), seed=0).fit(CSV(file.name, "sales"))
        >>> gp.predict({"day": np.array(["2026-01-06"], "M8[D]"), "shop": ["north"]}).mean.shape
        (1,)
    """

    def __init__(
        self,
        path: str | Path,
        target: Target = None,
        *,
        columns: Sequence[str] | None = None,
        noise: str | None = None,
        sample_weight: str | None = None,
        names: Sequence[str] | None = None,
        decimal: Decimal = ".",
        thousands: str | None = None,
        numbers: Mapping[str, str] | None = None,
    ) -> None:
        self.paths, self._text_format = [Path(path)], TextFormat(decimal=decimal, thousands=thousands)
        self._numbers = {} if numbers is None else numbers
        check_numbers(self._numbers)
        self._roles = Roles(target, columns, noise, sample_weight)
        self._header, self._names = read_header(self.paths[0], self._text_format, names), names
        self._is_named = self._header.is_named
        self._inputs = self._without_index(self._roles.inputs(self._header.names, title(self.paths[0])))

    def _batches(self, file: Path, names: Sequence[str]) -> Iterator[Any]:
        """Yield columns of all rows of the file as texts, in Arrow's batches."""
        with requires_extra("tables"):
            import pyarrow as pa
            import pyarrow.csv as arrow

        header = self._header
        if read_header(file, self._text_format, self._names) != header:
            raise DataError(f"The header of {title(file)} must not change. Create the source again.")
        try:
            yield from arrow.open_csv(
                pa.input_stream(str(file), compression="detect"),
                arrow.ReadOptions(
                    column_names=list(header.names),
                    skip_rows=header.skipped,
                    block_size=limits().chunk_bytes,
                    use_threads=False,
                ),
                arrow.ParseOptions(delimiter=header.separator),
                arrow.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=True,
                    include_columns=list(names),
                    null_values=list(MISSING_MARKS),
                ),
            )
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, f"{one_line(error).rstrip('.')}.") from error

    def _column(self, name: str, cells: Any, first: int) -> Column:
        """Return Arrow cells (b,) as a column."""
        column = column_of(cells, self._text_format, self._numbers.get(name, ""), first)
        if " " in column.zone:
            raise DataError(
                f"must have dates of one offset from UTC in a file that is read in batches, got {column.zone}. Use "
                "rfgp.tables.read_table."
            )
        is_unknown = column.cell_type is CellType.DATE and bool((np.isnat(column.values) & ~column.missing).any())
        return texts_of(cells, self._text_format) if is_unknown else column  # some days do not exist


def _files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(path, str | Path):
        if not isinstance(path, Sequence) or not all(isinstance(file, str | Path) for file in path):
            raise InvalidArgumentError(f"path must be a file, several, or a folder, got {quoted(str(path))}.")
        files = [Path(file) for file in path]
    else:
        files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise DataError(f"There is no file *.parquet in {title(Path(str(path)))}.")
    return files


# --- Batches of the user ----------------------------------------------------------------------------------------------


class Batches:
    """Batches of rows from your own code, for instance from a database.

    A batch is a pair (X, y), a matrix of inputs (b, d) without targets, or a `Chunk`. It may also be columns by name: a
    dictionary of arrays (b,), or a dataframe of pandas, polars or Arrow.

    Args:
        read: A list of batches, or a function that returns an iterable of the same batches at each call.
        target: The name of the target column, or a list of k. For matrices (b, d + 1), the target's position.
        columns: The names of the input columns, in order. If None, all other columns.
        noise: The name of the column of known noise variances. If None, there is none.
        sample_weight: The name of the column of weights. If None, there is none.

    Raises:
        InvalidArgumentError: If `read` is an iterator, which can be read only once. While batches are read, if there is
            no such column.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> batches = Batches(lambda: ((X[i : i + 50], np.sin(X[i : i + 50, 0])) for i in (0, 50)))
        >>> rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(batches).predict(X[:3]).mean.shape
        (3,)
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Any]] | Sequence[Any],
        target: Any = None,
        *,
        columns: Sequence[str] | None = None,
        noise: str | None = None,
        sample_weight: str | None = None,
    ) -> None:
        if not callable(read) and (isinstance(read, Iterator) or not isinstance(read, Sequence)):
            raise InvalidArgumentError(
                "read must be a list or a function that returns a new iterator at each call, since batches are read "
                "more than once."
            )
        self._read = read
        is_position = isinstance(target, int | np.integer) and not isinstance(target, bool)
        self._position = int(target) if is_position else None
        if is_position and not (columns is noise is sample_weight is None):
            raise InvalidArgumentError("target must be a name if columns, noise or sample_weight are given by name.")
        self._roles = Roles(None if is_position else target, columns, noise, sample_weight)
        self._inputs: list[str] | None = None
        self._warned = False

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in batches, with matrices of inputs."""
        for block in self._all():
            if not _has_names(block):
                yield self._rows(block)
                continue
            table = InputTable.of(self._columns(block))
            names = map(str, table.keys)
            numbers = {name: _numbers("A batch", name, table.cells(name), TextFormat(), 0) for name in names}
            yield self._roles.matrix(numbers, self._inputs or ())

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows in batches. Columns by name may have any type.

        Args:
            columns: The names of the inputs. All inputs are read in any case.
        """
        for block in self._all():
            yield self._rows(block)

    def _all(self) -> Iterable[Any]:
        """Return the batches of all rows.

        Raises:
            DataError: If the caller's function returns something else.
        """
        batches = self._read() if callable(self._read) else self._read
        if not isinstance(batches, Iterable):
            raise DataError(f"The function that reads batches must return an iterable, got {type(batches).__name__}.")
        return batches

    def _rows(self, block: Any) -> Chunk:
        """Return the rows of a batch. Columns by name keep their types.

        Raises:
            DataError: If it is not a batch.
        """
        try:
            if _has_names(block):
                columns = self._columns(block)
                others = {name: np.asarray(columns.pop(name)) for name in self._roles.others}
                return self._roles.rows(columns, others)
            chunk = block if isinstance(block, Chunk) else self._matrix(block)
        except (TypeError, ValueError, LookupError) as error:
            if isinstance(error, RfgpError):
                raise
            problem = f"A batch must be rows of numbers, got {type(block).__name__}: {one_line(error).rstrip('.')}."
            raise DataError(problem) from error
        self._warned = self._warned or warn_of_booleans(chunk.y)
        return chunk

    def _matrix(self, block: Any) -> Chunk:
        """Return the rows of a pair, or of a matrix, perhaps with a target."""
        if isinstance(block, tuple) and len(block) == 2:
            return Chunk(*block)
        if self._position is None:
            return Chunk(block)
        X = np.asarray(block)
        if X.ndim != 2 or not -X.shape[1] <= self._position < X.shape[1]:
            raise InvalidArgumentError(
                f"target must be a column of each batch, got {self._position} and a batch of shape {X.shape}."
            )
        return Chunk(np.delete(X, self._position, axis=1), X[:, self._position])

    def _columns(self, block: Any) -> dict[str, Any]:
        """Return the inputs and other columns of a batch by name, in the order of the first batch.

        Raises:
            DataError: If a column is missing.
        """
        if self._position is not None:
            raise InvalidArgumentError("target must be a name, since the columns of the batches have names.")
        table = InputTable.of(block)
        columns = {str(key): table.columns[key] for key in table.keys}
        if self._inputs is None:
            inputs = self._roles.inputs(list(columns), "A batch")
            self._inputs = self._roles.without_index(inputs, "A batch", columns.__getitem__)
        names = (*self._inputs, *self._roles.others)
        if missing := set(names) - set(columns):
            raise DataError(f"All batches must have the columns of the first, got one without {quoted(min(missing))}.")
        return {name: columns[name] for name in names}

    def __repr__(self) -> str:
        return "Batches()"


def _has_names(block: Any) -> bool:
    """Return whether a batch has columns by name."""
    return isinstance(block, Mapping) or hasattr(block, "columns")
