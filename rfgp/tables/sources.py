"""Tables that need not fit in memory: rows with their targets, read in blocks whenever a model asks for them.

Each is a `rfgp.rows.RowSource`: `fit`, `condition`, `update` and `predict` take it in the place of arrays.
Columns must be numbers already; `rfgp.tables.read_table` encodes categories and dates of tables that fit in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, InvalidArgumentError, RfgpError
from rfgp.rows import Chunk
from rfgp.rows.arrays import warn_of_truth
from rfgp.tables.marks import pointed, pointed_text
from rfgp.tables.messages import brief, listed, plain, show, title, unreadable
from rfgp.tables.options import MISSING_MARKS, Decimal, TextFormat
from rfgp.tables.parquet import opened
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
        names = [*self.others, *(self.columns or ())]
        for name in names:
            if not isinstance(name, str):
                raise InvalidArgumentError(f"A column is named by a text, not by {show(str(name))}.")
            if names.count(name) > 1:
                raise InvalidArgumentError(f"Column {show(name)} cannot be named twice.")
        if self.target is not None and not len(self.target):
            raise InvalidArgumentError("target is an empty list; leave it out where there is none.")

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return (self.target,) if isinstance(self.target, str) else tuple(self.target or ())

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the columns that are no inputs: targets, noise and weights."""
        return (*self.targets, *(name for name in (self.noise, self.sample_weight) if name is not None))

    def inputs(self, names: Sequence[str], where: str) -> list[str]:
        """Return the names of the inputs among all names.

        Raises:
            InvalidArgumentError: a name that is not there, or no inputs.
        """
        for name in (*self.others, *(self.columns or ())):
            if name not in names:
                raise InvalidArgumentError(f"{where} has no column {show(name)}; it has {listed(list(names))}.")
        rest = [name for name in names if name not in self.others]
        inputs = rest if self.columns is None else list(self.columns)
        if not inputs:
            raise InvalidArgumentError(f"{where} has no column left for the inputs.")
        return inputs

    def chunk(self, table: Columns, inputs: Sequence[str]) -> Chunk:
        """Return the rows of columns (b,) each, the inputs in this order."""
        table = _one_type({name: table[name] for name in (*inputs, *self.others)})
        X = np.stack([table[name] for name in inputs], axis=1)
        y: Any = None
        if isinstance(self.target, str):
            y = table[self.target]
        elif self.target is not None:
            y = np.stack([table[name] for name in self.target], axis=1)
        noise, weight = (None if name is None else table[name] for name in (self.noise, self.sample_weight))
        return Chunk(X, y, noise, weight, tuple(inputs))

    def chunks(self, file: Path, batches: Iterable[Any], inputs: Sequence[str]) -> Iterator[Chunk]:
        """Yield the rows of a file's Arrow batches."""
        first = 0
        for batch in batches:
            table = {name: _numbers(file, name, batch.column(name), first) for name in (*inputs, *self.others)}
            first += batch.num_rows
            if batch.num_rows:
                yield self.chunk(table, inputs)


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
        inputs = [self._roles.inputs(_names(file), title(file)) for file in self.paths]
        self._inputs = inputs[0]
        _warn_of_truth(self.paths[0], self._roles.targets)
        for file, others in zip(self.paths, inputs, strict=True):
            if set(others) != set(self._inputs):
                raise DataError(f"{title(file)} has other columns than {title(self.paths[0])}.")

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""
        columns = [*self._inputs, *self._roles.others]
        for file in self.paths:
            if missing := set(columns) - set(_names(file)):
                raise DataError(f"{title(file)} has no column {show(min(missing))} any more.")
            with opened(file) as parquet:
                batches = parquet.iter_batches(batch_size=_ROWS, columns=columns, use_threads=False)
                yield from self._roles.chunks(file, batches, self._inputs)

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
        decimal: The decimal mark, "." or ",".
        thousands: What separates groups of three digits before the decimal mark, such as "," in 1,200; None: nothing.

    Raises:
        DataError: the file is missing or no table; later, where it is read: cells that are no finite numbers.
        InvalidArgumentError: there is no such column, or no such mark.
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
    ) -> None:
        self.path, self._form = Path(path), TextFormat(decimal, thousands=thousands)
        self._roles = _Roles(target, columns, noise, sample_weight)
        self._head, self._names = read_head(self.path, self._form, names), names
        self._inputs = self._roles.inputs(self._head.names, title(self.path))

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""
        import pyarrow as pa
        import pyarrow.csv as arrow

        head, has_marks = self._head, self._form != TextFormat()
        if read_head(self.path, self._form, self._names) != head:
            raise DataError(f"{title(self.path)} has another header than at first; it must not change.")
        columns = [*self._inputs, *self._roles.others]
        try:
            batches = arrow.open_csv(
                pa.input_stream(str(self.path), compression="detect"),
                arrow.ReadOptions(
                    column_names=list(head.names), skip_rows=head.skipped, block_size=_BYTES, use_threads=False
                ),
                arrow.ParseOptions(delimiter=head.mark),
                arrow.ConvertOptions(
                    column_types=dict.fromkeys(columns, pa.string() if has_marks else pa.float64()),
                    strings_can_be_null=has_marks,
                    include_columns=columns,
                    null_values=list(MISSING_MARKS),
                ),
            )
            rows = (_pointed(self.path, batch, self._form) for batch in batches) if has_marks else batches
            for chunk in self._roles.chunks(self.path, rows, self._inputs):
                yield chunk if head.is_named else chunk._replace(names=None)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, f"{brief(error).rstrip('.')}.") from error

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
        target: Any = None,
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
        is_position = isinstance(target, int | np.integer) and not isinstance(target, bool)
        self._position = int(target) if is_position else None
        if is_position and not (columns is noise is sample_weight is None):
            raise InvalidArgumentError("columns, noise and sample_weight are names; give target by its name as well.")
        self._roles = _Roles(None if is_position else target, columns, noise, sample_weight)
        self._inputs: list[str] | None = None
        self._warned = False

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows, some at a time."""
        blocks = self._read() if callable(self._read) else self._read
        if not isinstance(blocks, Iterable):
            raise DataError(f"The function that reads blocks returned {type(blocks).__name__}, not blocks.")
        for block in blocks:
            try:
                chunk = self._chunk(block)
            except (TypeError, ValueError, LookupError) as error:
                if isinstance(error, RfgpError):
                    raise
                fault = f"A block ({type(block).__name__}) is not rows of numbers: {brief(error).rstrip('.')}."
                raise DataError(fault) from error
            yield chunk

    def _chunk(self, block: Any) -> Chunk:
        if isinstance(block, Chunk):
            return self._told(block)
        if isinstance(block, tuple) and len(block) == 2:
            return self._told(Chunk(*block))
        if isinstance(block, Mapping) or hasattr(block, "columns"):
            return self._by_name({str(name): np.atleast_1d(np.asarray(block[name])) for name in block})
        if self._position is None:
            return Chunk(block)
        X = np.asarray(block)
        if X.ndim != 2 or not -X.shape[1] <= self._position < X.shape[1]:
            raise InvalidArgumentError(f"A block of shape {X.shape} has no column {self._position}.")
        return Chunk(np.delete(X, self._position, axis=1), X[:, self._position])

    def _told(self, chunk: Chunk) -> Chunk:
        """Return rows, with a warning of the first targets that are truth values."""
        self._warned = self._warned or warn_of_truth(chunk.y)
        return chunk

    def _by_name(self, table: Columns) -> Chunk:
        """Return the rows of columns by name, in the order of the first block that was read."""
        if self._position is not None:
            raise InvalidArgumentError("The columns of a block have names; give target by its name as well.")
        if self._inputs is None:
            self._inputs = self._roles.inputs(list(table), "A block")
        if missing := {*self._inputs, *self._roles.others} - set(table):
            raise DataError(f"A block has no column {show(min(missing))}, which the first has.")
        if self._roles.targets and not self._warned:
            self._warned = any(warn_of_truth(table[name], show(name)) for name in self._roles.targets)
        return self._roles.chunk(table, self._inputs)

    def __repr__(self) -> str:
        return "Blocks()"


def _pointed(file: Path, batch: Any, form: TextFormat) -> Any:
    """Return an Arrow batch of numbers of one of texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    out = {}
    for name in batch.schema.names:
        cells = pc.utf8_trim_whitespace(batch.column(name))
        try:
            out[name] = pointed(cells, form).cast(pa.float64())
        except pa.ArrowInvalid as error:
            cell = next(cell for cell in cells.to_pylist() if cell is not None and not _is_number(cell, form))
            marks = f"the decimal mark {form.decimal!r} and the separator of thousands {form.thousands!r}"
            raise DataError(f"{title(file)}: in column {show(name)} {show(cell)} is no number with {marks}.") from error
    return pa.RecordBatch.from_pydict(out)


def _is_number(cell: str, form: TextFormat) -> bool:
    import pyarrow as pa

    try:
        pa.scalar(pointed_text(cell, form)).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    if not isinstance(path, str | Path):
        if not isinstance(path, Sequence) or not all(isinstance(one, str | Path) for one in path):
            raise InvalidArgumentError(f"path is {show(str(path))}; give a file, several, or a folder.")
        files = [Path(one) for one in path]
    else:
        files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise DataError(f"There is no file *.parquet in {title(Path(str(path)))}.")
    return files


def _names(file: Path) -> list[str]:
    with opened(file) as parquet:
        return list(parquet.schema_arrow.names)


def _warn_of_truth(file: Path, targets: Iterable[str]) -> None:
    with opened(file) as parquet:
        for name in targets:
            kind = str(parquet.schema_arrow.field(name).type)
            warn_of_truth(np.empty(0, dtype=bool if kind == "bool" else float), f"{title(file)}: {show(name)}")


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
