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

from rfgp.columns.table import Table, without_index
from rfgp.errors import DataError, InvalidArgumentError, RfgpError, requires_extra
from rfgp.limits import limits
from rfgp.messages import listed, one_line, quoted, unquoted
from rfgp.rows import Chunk
from rfgp.rows.sources import warn_of_booleans
from rfgp.tables.formats import Reader, in_formats, reader_of, title
from rfgp.tables.options import MISSING_MARKS, Decimal, TextFormat, check_numbers
from rfgp.tables.text import opened, read_header, unreadable

# --- Roles of the columns of a table that is read in batches, and its rows by role --------------------------------

Target = str | Sequence[str] | None
Columns = Mapping[str, NDArray[Any]]


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

    def without_index(self, inputs: list[str], where: str, first: Callable[[str], NDArray[Any]]) -> list[str]:
        """Return the inputs without unnamed columns that count the first rows.

        Inputs of predictions, and inputs given by name, keep such columns.

        Args:
            inputs: The names of the inputs.
            where: The file, for a warning.
            first: A function from the name of a column to its first rows (b,).
        """
        if self.columns is not None or self.target is None:
            return inputs
        return list(without_index(inputs, first, where, "columns=, which lists the inputs", stacklevel=4))

    def chunk(self, table: Columns, inputs: Sequence[str]) -> Chunk:
        """Return the rows of columns (b,), with the inputs in a given order.

        Args:
            table: The columns (b,) by name.
            inputs: The names of the inputs.
        """
        table = _one_type({name: table[name] for name in (*inputs, *self.others)})
        return self.with_targets(np.stack([table[name] for name in inputs], axis=1), table)._replace(
            names=tuple(inputs)
        )

    def with_targets(self, X: Any, table: Columns) -> Chunk:
        """Return the rows of inputs, with targets, noise and weights (b,).

        Args:
            X: Inputs (b, d), or columns.
            table: The other columns (b,) by name.
        """
        y: Any = None
        if isinstance(self.target, str):
            y = table[self.target]
        elif self.target is not None:
            y = np.stack([table[name] for name in self.target], axis=1)
        noise, weight = (None if name is None else table[name] for name in (self.noise, self.sample_weight))
        return Chunk(X, y, noise, weight)

    def chunks(self, file: Path, batches: Iterable[Any], inputs: Sequence[str]) -> Iterator[Chunk]:
        """Yield the rows of Arrow batches, with matrices of inputs.

        Args:
            file: The file, for messages.
            batches: The batches.
            inputs: The names of the inputs.
        """
        for _, table in _with_numbers(file, batches, (*inputs, *self.others)):
            yield self.chunk(table, inputs)

    def tables(self, file: Path, batches: Iterable[Any], inputs: Sequence[str]) -> Iterator[Chunk]:
        """Yield the rows of Arrow batches, with Arrow tables of inputs.

        Args:
            file: The file, for messages.
            batches: The batches.
            inputs: The names of the inputs.
        """
        import pyarrow as pa

        for batch, others in _with_numbers(file, batches, self.others):
            yield self.with_targets(pa.Table.from_batches([batch.select(inputs)]), _one_type(others))


def selected(inputs: Sequence[str], columns: Collection[str | int] | None) -> list[str]:
    """Return the inputs among given columns.

    If the columns are None, or one of them is not an input, all inputs are returned.

    Args:
        inputs: The names of the inputs.
        columns: The names of the columns, or None.

    Examples:
        >>> selected(["size", "age"], ["age"])
        ['age']
    """
    is_known = columns is not None and all(column in inputs for column in columns)
    return [name for name in inputs if columns is None or not is_known or name in columns]


def _with_numbers(file: Path, batches: Iterable[Any], names: Sequence[str]) -> Iterator[tuple[Any, Columns]]:
    """Yield batches that have rows, with some of their columns as numbers (b,).

    Raises:
        DataError: As for `_numbers`.
    """
    first = 0
    for batch in batches:
        table = {name: _numbers(file, name, batch.column(name), first) for name in names}
        first += batch.num_rows
        if batch.num_rows:
            yield batch, table


def _numbers(file: Path, name: str, column: Any, first: int) -> NDArray[Any]:
    """Return a column of numbers.

    Raises:
        DataError: If the column holds other values or missing cells. The message names the row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise DataError(
            f"{title(file)}: column {quoted(name)} holds {unquoted(str(kind))}, not numbers. Leave it out with "
            "columns=, or encode it first."
        )
    if column.null_count:
        row = first + int(np.flatnonzero(np.asarray(pc.is_null(column)))[0])
        raise DataError(f"{title(file)}: column {quoted(name)} has a missing cell in row {row:,}.")
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _one_type(table: Columns) -> Columns:
    """Return numeric columns as float32 if all are, else as float64. Other columns stay unchanged."""
    kinds = {np.asarray(column).dtype for column in table.values()}
    kind = np.float32 if kinds == {np.dtype(np.float32)} else np.float64
    return {name: c.astype(kind, copy=False) if c.dtype.kind in "fiub" else c for name, c in table.items()}


# --- Sources ----------------------------------------------------------------------------------------------------------


class Parquet:
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
        self._roles = Roles(target, columns, noise, sample_weight)
        inputs = [self._roles.inputs(_names(file), title(file)) for file in self.paths]
        _warn_of_booleans(self.paths[0], self._roles.targets)
        for file, others in zip(self.paths, inputs, strict=True):
            if set(others) != set(inputs[0]):
                raise DataError(f"{title(file)} has other columns than {title(self.paths[0])}.")
        self._inputs = self._roles.without_index(inputs[0], title(self.paths[0]), self._first)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in batches."""
        for file in self.paths:
            yield from self._roles.chunks(file, self._batches(file, self._inputs), self._inputs)

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows in batches, with Arrow tables of inputs.

        Args:
            columns: The names of the inputs to read. If None, or if one is not an input, all inputs.
        """
        inputs = selected(self._inputs, columns)
        for file in self.paths:
            yield from self._roles.tables(file, self._batches(file, inputs), inputs)

    def _batches(self, file: Path, inputs: Sequence[str]) -> Iterator[Any]:
        """Yield inputs and other columns of a file in Arrow's batches."""
        columns = [*inputs, *self._roles.others]
        if missing := set(columns) - set(_names(file)):
            raise DataError(f"{title(file)} has no column {quoted(min(missing))} any more.")
        with opened(file) as parquet:
            yield from in_formats(
                file,
                parquet.iter_batches(batch_size=limits().chunk_rows, columns=columns, use_threads=False),
                self._numbers,
            )

    def _first(self, name: str) -> NDArray[Any]:
        """Return the first rows (b,) of a column."""
        with opened(self.paths[0]) as parquet:
            batches = parquet.iter_batches(batch_size=limits().chunk_rows, columns=[name], use_threads=False)
            return np.asarray(next(batches).column(0)) if parquet.metadata.num_rows else np.empty(0)

    def __repr__(self) -> str:
        return f"Parquet({listed([file.name for file in self.paths], 3)})"


class CSV:
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
        self.path, self._text_format = Path(path), TextFormat(decimal=decimal, thousands=thousands)
        self._numbers = {} if numbers is None else numbers
        check_numbers(self._numbers)
        self._roles = Roles(target, columns, noise, sample_weight)
        self._header, self._names = read_header(self.path, self._text_format, names), names
        inputs = self._roles.inputs(self._header.names, title(self.path))
        self._inputs = self._roles.without_index(inputs, title(self.path), self._first)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows in batches."""
        for chunk in self._roles.chunks(self.path, self._batches([*self._inputs, *self._roles.others]), self._inputs):
            yield chunk if self._header.is_named else chunk._replace(names=None)

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows in batches, with Arrow tables of inputs.

        The types of columns (numbers, dates or booleans) are those of the first rows. Later cells of another type are
        left as text. Without a header, columns have numbers.

        Args:
            columns: The names of the inputs to read. If None, or if one is not an input, all inputs.
        """
        import pyarrow as pa

        inputs, readers = selected(self._inputs, columns), dict[str, Reader | None]()
        for chunk in self._roles.tables(self.path, self._batches(self._roles.others, inputs), inputs):
            for name in inputs if not readers else ():
                is_read = pa.types.is_floating(chunk.X[name].type)
                readers[name] = None if is_read else reader_of(chunk.X[name], self._text_format)
            pairs = ((readers[name], chunk.X[name]) for name in inputs)
            cells = [texts if reader is None else reader(texts, self._text_format) for reader, texts in pairs]
            by_index = dict(zip(map(self._header.names.index, inputs), cells, strict=True))
            yield chunk._replace(X=chunk.X.from_arrays(cells, names=inputs) if self._header.is_named else by_index)

    def _first(self, name: str) -> NDArray[Any]:
        """Return the first rows (b,) of a column, or none if they are not numbers."""
        try:
            batch = next(iter(self._batches([name])), None)
        except DataError:
            return np.empty(0)
        return np.empty(0) if batch is None else np.asarray(batch.column(0))

    def _batches(self, columns: Sequence[str], texts: Sequence[str] = ()) -> Iterator[Any]:
        """Yield columns of numbers, and others as texts, of all rows in Arrow's batches."""
        with requires_extra("tables"):
            import pyarrow as pa
            import pyarrow.csv as arrow

        header, form, numbers = self._header, self._text_format, dict(self._numbers)
        if read_header(self.path, self._text_format, self._names) != header:
            raise DataError(f"The header of {title(self.path)} must not change. Create the source again.")
        numbers |= {} if form.is_plain else {name: form.example for name in columns if name not in numbers}
        types = dict.fromkeys(columns, pa.float64()) | dict.fromkeys([*texts, *numbers], pa.string())
        types = {name: types[name] for name in dict.fromkeys([*columns, *texts])}
        try:
            batches = arrow.open_csv(
                pa.input_stream(str(self.path), compression="detect"),
                arrow.ReadOptions(
                    column_names=list(header.names),
                    skip_rows=header.skipped,
                    block_size=limits().chunk_bytes,
                    use_threads=False,
                ),
                arrow.ParseOptions(delimiter=header.separator),
                arrow.ConvertOptions(
                    column_types=types,
                    strings_can_be_null=True,
                    include_columns=list(types),
                    null_values=list(MISSING_MARKS),
                ),
            )
            yield from in_formats(self.path, batches, numbers)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, f"{one_line(error).rstrip('.')}.") from error

    def __repr__(self) -> str:
        return f"CSV({unquoted(self.path.name)})"


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
        """Yield all rows in batches."""
        for block in self._all():
            yield self._rows(block, self._chunk)

    def tables(self, columns: Collection[str | int] | None = None) -> Iterator[Chunk]:
        """Yield all rows in batches.

        Columns by name may have any type.

        Args:
            columns: The names of the inputs. All inputs are read in any case.
        """
        for block in self._all():
            yield self._rows(block, self._table)

    def _all(self) -> Iterable[Any]:
        """Return the batches of all rows.

        Raises:
            DataError: If the caller's function returns something else.
        """
        batches = self._read() if callable(self._read) else self._read
        if not isinstance(batches, Iterable):
            raise DataError(f"The function that reads batches must return an iterable, got {type(batches).__name__}.")
        return batches

    def _rows(self, block: Any, read: Callable[[Any], Chunk]) -> Chunk:
        """Return the rows of a batch.

        Raises:
            DataError: If it is not a batch.
        """
        try:
            return read(block)
        except (TypeError, ValueError, LookupError) as error:
            if isinstance(error, RfgpError):
                raise
            problem = f"A batch must be rows of numbers, got {type(block).__name__}: {one_line(error).rstrip('.')}."
            raise DataError(problem) from error

    def _chunk(self, block: Any) -> Chunk:
        if isinstance(block, Chunk):
            return self._warned_of_truth(block)
        if isinstance(block, tuple) and len(block) == 2:
            return self._warned_of_truth(Chunk(*block))
        if _has_names(block):
            table = {name: np.asarray(column) for name, column in _columns(block).items()}
            return self._roles.chunk(table, self._checked(table))
        if self._position is None:
            return Chunk(block)
        X = np.asarray(block)
        if X.ndim != 2 or not -X.shape[1] <= self._position < X.shape[1]:
            raise InvalidArgumentError(
                f"target must be a column of each batch, got {self._position} and a batch of shape {X.shape}."
            )
        return Chunk(np.delete(X, self._position, axis=1), X[:, self._position])

    def _table(self, block: Any) -> Chunk:
        """Return the rows of a batch. Columns by name keep their types."""
        if not _has_names(block):
            return self._chunk(block)
        columns = _columns(block)
        inputs = self._checked(columns)
        others = {name: np.asarray(columns[name]) for name in self._roles.others}
        return self._roles.with_targets({name: columns[name] for name in inputs}, others)

    def _warned_of_truth(self, chunk: Chunk) -> Chunk:
        """Return rows, and warn once if targets are booleans."""
        self._warned = self._warned or warn_of_booleans(chunk.y)
        return chunk

    def _checked(self, table: Mapping[str, Any]) -> list[str]:
        """Return the names of the inputs among columns by name, in the order of the first batch.

        Raises:
            DataError: If a column is missing.
        """
        if self._position is not None:
            raise InvalidArgumentError("target must be a name, since the columns of the batches have names.")
        if self._inputs is None:
            self._inputs = self._roles.inputs(list(table), "A batch")
            self._inputs = self._roles.without_index(self._inputs, "A batch", lambda name: np.asarray(table[name]))
        if missing := {*self._inputs, *self._roles.others} - set(table):
            raise DataError(f"All batches must have the columns of the first, got one without {quoted(min(missing))}.")
        if self._roles.targets and not self._warned:
            self._warned = any(warn_of_booleans(table[name], quoted(name)) for name in self._roles.targets)
        return self._inputs

    def __repr__(self) -> str:
        return "Batches()"


def _has_names(block: Any) -> bool:
    """Return whether a batch has columns by name."""
    return isinstance(block, Mapping) or hasattr(block, "columns")


def _columns(block: Any) -> dict[str, Any]:
    """Return the columns (b,) of a batch by name."""
    table = Table.of(block)
    return {str(key): table.columns[key] for key in table.keys}


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


def _names(file: Path) -> list[str]:
    with opened(file) as parquet:
        return list(parquet.schema_arrow.names)


def _warn_of_booleans(file: Path, targets: Iterable[str]) -> None:
    with opened(file) as parquet:
        for name in targets:
            kind = str(parquet.schema_arrow.field(name).type)
            warn_of_booleans(np.empty(0, dtype=bool if kind == "bool" else float), f"{title(file)}: {quoted(name)}")
