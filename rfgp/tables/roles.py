"""Roles of the columns of a table that is read in batches, and its rows by role."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.table import without_index
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.rows import Chunk
from rfgp.tables.messages import listed, quoted, title, unquoted

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
