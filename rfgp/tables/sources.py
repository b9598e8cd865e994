"""Tables larger than memory, which are read in batches of rows.

Each class is a `rfgp.rows.RowSource`, which `fit`, `condition`, `update` and `predict` accept instead of arrays. `GP`
reads columns of numbers, dates, text and booleans by name. Other models need columns of numbers. Categories and dates
of tables that fit in memory can be encoded by `rfgp.tables.read_table`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.errors import DataError, InvalidArgumentError, RfgpError, requires_extra
from rfgp.limits import limits
from rfgp.rows import Chunk
from rfgp.rows.sources import warn_of_booleans
from rfgp.tables.decimals import batch_with_numbers, in_formats
from rfgp.tables.messages import listed, one_line, quoted, title, unquoted, unreadable
from rfgp.tables.options import MISSING_MARKS, Decimal, TextFormat, check_numbers
from rfgp.tables.parquet import opened
from rfgp.tables.roles import Roles, Target, selected
from rfgp.tables.text import read_header
from rfgp.tables.typed import Reader, as_texts, reader_of


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
        self.path, self._text_format = Path(path), TextFormat(decimal, thousands=thousands)
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

        inputs, readers = selected(self._inputs, columns), dict[str, Reader]()
        for chunk in self._roles.tables(self.path, self._batches(self._roles.others, inputs), inputs):
            for name in inputs if not readers else ():
                is_read = pa.types.is_floating(chunk.X[name].type)
                readers[name] = as_texts if is_read else reader_of(chunk.X[name], self._text_format)
            cells = [readers[name](chunk.X[name], self._text_format) for name in inputs]
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

        header, needs_parsing = self._header, self._text_format != TextFormat() or bool(self._numbers)
        if read_header(self.path, self._text_format, self._names) != header:
            raise DataError(f"The header of {title(self.path)} must not change. Create the source again.")
        number_type = pa.string() if needs_parsing else pa.float64()
        types = dict.fromkeys(columns, number_type) | dict.fromkeys(texts, pa.string())
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
            plain = [name for name in columns if name not in self._numbers] if needs_parsing else []
            for batch in in_formats(self.path, batches, self._numbers):
                yield batch_with_numbers(self.path, batch, plain, self._text_format) if plain else batch
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, f"{one_line(error).rstrip('.')}.") from error

    def __repr__(self) -> str:
        return f"CSV({unquoted(self.path.name)})"


class Batches:
    """Batches of rows from your own code, for instance from a database.

    A batch is a pair (X, y), a matrix of inputs (b, d) without targets, or a `Chunk`. It may also be columns by name: a
    dictionary of arrays (b,) or a pandas DataFrame.

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
            table = {str(name): np.atleast_1d(np.asarray(block[name])) for name in block}
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
        columns = {str(name): block[name] for name in block}
        inputs = self._checked(columns)
        others = {name: np.atleast_1d(np.asarray(columns[name])) for name in self._roles.others}
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
