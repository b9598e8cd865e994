"""Tables that need not fit in memory: rows with their targets, read in blocks whenever a model asks for them.

Each is a `rfgp.models.sources.RowSource`: `fit`, `condition`, `update` and `predict` take it in the place of arrays.
Columns must be numbers already; `rfgp.tables.read_table` encodes categories and dates of tables that fit in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.models.sources import Chunk
from rfgp.tables.content import check_file
from rfgp.tables.messages import listed, plain, show, title, unreadable
from rfgp.tables.options import MISSING_MARKS, TextFormat
from rfgp.tables.parquet import check_magic
from rfgp.tables.text import read_head

_ROWS = 2**16
_BYTES = 2**24

Target = str | Sequence[str] | None
Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class _Roles:
    """Which column is what.

    Attributes:
        target: The target's name, or k names; None: there is none, as in rows to predict at.
        columns: The names of the inputs, in order; None: all others.
        noise: The name of the column of known noise variances.
        sample_weight: The name of the column of weights.
    """

    target: Target = None
    columns: Sequence[str] | None = None
    noise: str | None = None
    sample_weight: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise InvalidArgumentError(f"columns is {show(self.columns)}; give a list of names.")

    def inputs(self, names: Sequence[str], where: str) -> list[str]:
        """Return the names of the inputs among all names.

        Raises:
            InvalidArgumentError: a name that is not there, or no inputs.
        """
        given = (self.target,) if isinstance(self.target, str) else tuple(self.target or ())
        others = (*given, *(name for name in (self.noise, self.sample_weight) if name is not None))
        for name in (*others, *(self.columns or ())):
            if name not in names:
                raise InvalidArgumentError(f"{where} has no column {show(str(name))}; it has {listed(list(names))}.")
        found = list(self.columns) if self.columns is not None else [name for name in names if name not in others]
        if not found:
            raise InvalidArgumentError(f"{where} has no column left for the inputs.")
        if both := set(found) & set(others):
            raise InvalidArgumentError(f"Column {show(min(both))} cannot be an input and something else.")
        return found

    def wanted(self, names: Sequence[str], where: str) -> list[str]:
        """Return the names of all columns that are read."""
        given = [self.target] if isinstance(self.target, str) else list(self.target or ())
        return [*self.inputs(names, where), *given, *(n for n in (self.noise, self.sample_weight) if n is not None)]

    def chunk(self, table: Columns, where: str) -> Chunk:
        """Return the rows of columns (b,) each."""
        inputs = self.inputs(list(table), where)
        X = np.stack([table[name] for name in inputs], axis=1)
        y: Any = None
        if isinstance(self.target, str):
            y = table[self.target]
        elif self.target is not None:
            y = np.stack([table[name] for name in self.target], axis=1)
        noise, weight = (None if n is None else table[n] for n in (self.noise, self.sample_weight))
        return Chunk(X, y if y is None else y.astype(X.dtype), noise, weight)


class Parquet:
    """The rows of one Parquet file, or of several one after the other.

    Args:
        path: A file, several, or a folder, whose files *.parquet are taken in the order of their names.
        target: The target column's name, or a list of k; None for rows to predict at.
        columns: Names of the input columns, in order; None: all others.
        noise: Name of the column of known noise variances.
        sample_weight: Name of the column of weights.

    Raises:
        DataError: a file is missing or no Parquet file; later, where it is read: cells that are no finite numbers.
        InvalidArgumentError: there is no such column.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        target: Target = None,
        *,
        columns: Sequence[str] | None = None,
        noise: str | None = None,
        sample_weight: str | None = None,
    ) -> None:
        self.paths = _files(path)
        self._roles = _Roles(target, columns, noise, sample_weight)
        self._columns: list[str] | None = None
        for file in self.paths:
            with _opened(file) as parquet:
                names = [field.name for field in parquet.schema_arrow]
                found = self._roles.wanted(names, title(file))
            if self._columns is not None and set(found) != set(self._columns):
                raise DataError(f"{title(file)} has other columns than {title(self.paths[0])}.")
            self._columns = self._columns or found

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""
        for file in self.paths:
            first = 0
            with _opened(file) as parquet:
                for batch in _batches(file, parquet, self._columns):
                    table = {name: _numbers(file, name, batch.column(name), first) for name in batch.schema.names}
                    ordered = {name: table[name] for name in self._columns or table}
                    first += batch.num_rows
                    yield self._roles.chunk(_one_type(ordered), title(file))

    def __repr__(self) -> str:
        return f"Parquet({listed([file.name for file in self.paths], 3)})"


class CSV:
    """The rows of a text table of numbers, plain or gzipped, separated by commas, semicolons or tabs.

    Args:
        path: The file.
        target: The target column's name, or a list of k; None for rows to predict at. Without a header the columns
            are "0", "1", ...
        columns: Names of the input columns, in order; None: all others.
        noise: Name of the column of known noise variances.
        sample_weight: Name of the column of weights.
        names: The columns' names, for a file without a header.

    Raises:
        DataError: the file is missing or no table; later, where it is read: cells that are no finite numbers.
        InvalidArgumentError: there is no such column.
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
    ) -> None:
        self.path = Path(path)
        self._roles = _Roles(target, columns, noise, sample_weight)
        self._head = read_head(self.path, TextFormat(), names)
        self._columns = self._roles.wanted(self._head.names, title(self.path))

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""
        import pyarrow as pa
        import pyarrow.csv as arrow

        head, first = self._head, 0
        try:
            reader = arrow.open_csv(
                pa.input_stream(str(self.path), compression="detect"),
                read_options=arrow.ReadOptions(
                    column_names=list(head.names), skip_rows=head.skipped, block_size=_BYTES, use_threads=False
                ),
                parse_options=arrow.ParseOptions(delimiter=head.mark),
                convert_options=arrow.ConvertOptions(
                    column_types={name: pa.float64() for name in self._columns},
                    include_columns=self._columns,
                    null_values=list(MISSING_MARKS),
                ),
            )
            for batch in reader:
                table = {name: _numbers(self.path, name, batch.column(name), first) for name in self._columns}
                first += batch.num_rows
                if batch.num_rows:
                    yield self._roles.chunk(table, title(self.path))
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, f"{plain_error(error)}.") from error

    def __repr__(self) -> str:
        return f"CSV({plain(self.path.name)})"


class Blocks:
    """Rows from your own code, as from a database.

    Args:
        read: Called whenever the rows are needed; returns an iterable of blocks, each time the same. Or such a list. A
            block is a pair (X, y), inputs (b, d) alone where there is no target, a `Chunk`, or columns by name: a
            dictionary of arrays (b,) or a pandas DataFrame.
        target: For columns by name: the target column's, or a list of k; for blocks of one matrix (b, d + 1): the
            target's position.
        columns: For columns by name: the inputs', in order; None: all others.
        noise: For columns by name: that of known noise variances.
        sample_weight: For columns by name: that of weights.

    Raises:
        InvalidArgumentError: `read` is an iterator, which can be read only once; later: there is no such column.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Any]] | Sequence[Any],
        target: Target | int = None,
        *,
        columns: Sequence[str] | None = None,
        noise: str | None = None,
        sample_weight: str | None = None,
    ) -> None:
        if not callable(read) and (isinstance(read, Iterator) or not isinstance(read, Sequence)):
            raise InvalidArgumentError(
                "Blocks are read more than once: pass a function that returns a new iterator each time, or a list."
            )
        self._read = read
        self._position = target if isinstance(target, int) else None
        self._roles = _Roles(None if isinstance(target, int) else target, columns, noise, sample_weight)

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""
        blocks = self._read() if callable(self._read) else self._read
        for block in blocks:
            yield self._chunk(block)

    def _chunk(self, block: Any) -> Chunk:
        if isinstance(block, Chunk):
            return block
        if isinstance(block, tuple) and len(block) == 2:
            return Chunk(*block)
        if isinstance(block, Mapping) or hasattr(block, "columns"):
            table = {str(name): np.asarray(block[name]) for name in block}
            return self._roles.chunk(_one_type(table), "A block")
        if self._position is None:
            return Chunk(block)
        X = np.asarray(block)
        if X.ndim != 2 or not -X.shape[1] <= self._position < X.shape[1]:
            raise InvalidArgumentError(f"A block of shape {X.shape} has no column {self._position}.")
        return Chunk(np.delete(X, self._position, axis=1), X[:, self._position])

    def __repr__(self) -> str:
        return "Blocks()"


def _files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(path, str | Path):
        found = [Path(one) for one in path]
    else:
        found = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not found:
        raise DataError(f"There is no file *.parquet in {title(Path(str(path)))}.")
    return found


def _opened(file: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(file)
    try:
        check_magic(file)
        return pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, f"the Parquet data are damaged ({plain_error(error)}).") from error


def _batches(file: Path, parquet: Any, columns: list[str] | None) -> Iterator[Any]:
    import pyarrow as pa

    try:
        yield from parquet.iter_batches(batch_size=_ROWS, columns=columns, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, f"the Parquet data are damaged ({plain_error(error)}).") from error


def plain_error(error: BaseException) -> str:
    """Return the first line of an error's words, as a message may show it."""
    return plain((str(error).splitlines() or [""])[0].rstrip("."))


def _numbers(file: Path, name: str, column: Any, first: int) -> NDArray[Any]:
    """Return a column of numbers.

    Raises:
        DataError: it holds something else, or missing cells, named by their row.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise DataError(
            f"{title(file)}: column {show(name)} holds {plain(str(kind))}, not numbers. Leave it out with columns=, or "
            "encode it first."
        )
    if column.null_count:
        row = first + int(np.flatnonzero(np.asarray(pc.is_null(column)))[0])
        raise DataError(f"{title(file)}: column {show(name)} has a missing cell in row {row:,}.")
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _one_type(table: Columns) -> Columns:
    """Return the columns as float32 where all of them are, else as float64; what is not numbers as it is."""
    kinds = {np.asarray(column).dtype for column in table.values()}
    kind = np.float32 if kinds == {np.dtype(np.float32)} else np.float64
    return {name: c.astype(kind, copy=False) if c.dtype.kind in "fiub" else c for name, c in table.items()}
