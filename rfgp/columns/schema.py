"""Schemas: the columns of kernels, fitted to training data, and the matrix of numbers of a table."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from rfgp.columns.cells import Column, Level
from rfgp.columns.problems import cell_errors, collect_errors, join_errors, type_errors
from rfgp.columns.rules import (
    ColumnKind,
    ColumnRequest,
    ColumnSchema,
    Key,
    MatrixKey,
    NodeTable,
    SphereKey,
    check_nodes,
    sources_of,
)
from rfgp.columns.table import InputTable
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.files import from_json, not_usable
from rfgp.messages import counted, short_repr
from rfgp.torch_context import CachedWithoutLock

T = TypeVar("T")

_WORDS = {
    ColumnKind.NUMBER: "number",
    ColumnKind.COORDINATE: "coordinate",
    ColumnKind.SPHERE: "coordinate on a sphere",
    ColumnKind.AREA: "number of an area",
    ColumnKind.NODE: "node of a graph",
}
_VERSION = 1
"""The version of the format of schemas in files."""
_OPTIONAL = ("zone", "origin")
"""Fields that are left out of files at their defaults."""
_MAX_ORIGIN = 10**40
"""The smallest integer that is too large for an origin, in attoseconds."""


@dataclass(frozen=True)
class InputSchema:
    """The D columns that a kernel reads, with the levels of the training data.

    Attributes:
        columns: The D columns, one for each distinct requested key, kind and graph.

    Examples:
        >>> from rfgp.columns import ColumnKind, ColumnRequest, InputSchema, InputTable
        >>> table = InputTable.of({"t": [0.5, 1.5], "store": ["south", "north"]})
        >>> wanted = [
        ...     ColumnRequest("t", ColumnKind.NUMBER, "rbf(t)"),
        ...     ColumnRequest("store", ColumnKind.LEVEL, "group(store)"),
        ... ]
        >>> schema = InputSchema.fit(wanted, table)
        >>> schema.read(table).tolist()
        [[0.5, 1.0], [1.5, 0.0]]
    """

    columns: tuple[ColumnSchema, ...]

    @classmethod
    def fit(cls, requests: Iterable[ColumnRequest], table: InputTable) -> "InputSchema":
        """Return the schema of the requested columns of the training data (n rows).

        Args:
            requests: The columns that the terms of a kernel read. Terms may share columns.
            table: The training data.

        Raises:
            DataError: If columns are missing, or cells cannot be read as their kind. The message lists the problems of
                all columns.

        Examples:
            >>> from rfgp.columns import ColumnKind, ColumnRequest, InputSchema, InputTable
            >>> table = InputTable.of({"store": ["south", "north"]})
            >>> InputSchema.fit([ColumnRequest("store", ColumnKind.LEVEL, "group(store)")], table).describe(0)
            "column 'store', 2 levels"
        """
        columns: dict[tuple[MatrixKey, ColumnKind, int], ColumnSchema] = {}
        for request in requests:
            identity = (request.key, request.kind, id(request.nodes))
            column = columns.setdefault(identity, ColumnSchema(request.key, request.kind, nodes=request.nodes))
            if request.term not in column.terms:
                columns[identity] = replace(column, terms=(*column.terms, request.term))
        schema = cls(tuple(columns.values()))
        return (
            schema if schema._floats(table) is not None else cls(schema._each(table, ColumnSchema.fitted, is_new=True))
        )

    def extended(self, table: InputTable) -> "InputSchema":
        """Return the schema extended by the new levels of a table.

        Args:
            table: Additional training data.

        Raises:
            DataError: As for `read`.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind, InputSchema, InputTable
            >>> schema = InputSchema((ColumnSchema("store", ColumnKind.LEVEL, levels=("b",)),))
            >>> schema.extended(InputTable.of({"store": ["c", "a", "b"]})).columns[0].levels
            ('b', 'c', 'a')
        """
        return InputSchema(self._each(table, ColumnSchema.extended))

    def read(self, table: InputTable) -> Tensor:
        """Return the columns of a table as a matrix (n, D) of numbers.

        New levels get the codes num_levels, num_levels + 1, ... in order of first appearance. The matrix has the dtype
        of the columns if all are NUMBER or COORDINATE, otherwise float64. It keeps gradients and devices of tensors.

        Args:
            table: The training data or new data.

        Raises:
            DataError: As for `fit`, or if a column differs in type from the training data.

        Examples:
            >>> from rfgp.columns import ColumnKind, ColumnRequest, InputSchema, InputTable
            >>> train, new = InputTable.of({"store": ["a", "b"]}), InputTable.of({"store": ["b", "c", "d", "c"]})
            >>> InputSchema.fit([ColumnRequest("store", ColumnKind.LEVEL, "group(store)")], train).read(new).squeeze(
            ...     1
            ... ).tolist()
            [1.0, 2.0, 3.0, 2.0]
        """
        if (floats := self._floats(table)) is not None:
            return floats
        like, columns = table.output_format.like, self._each(table, ColumnSchema.read)
        if not columns:
            return like.new_empty(table.num_rows, 0)
        dtype = functools.reduce(torch.promote_types, (column.dtype for column in columns))
        return torch.stack([column.to(like.device, dtype) for column in columns], dim=1)

    def _floats(self, table: InputTable) -> Tensor | None:
        """Return the matrix (n, D) of a table that is an array of finite numbers, or None if columns need checks."""
        is_plain = all(
            column.kind is ColumnKind.NUMBER and not column.is_date and not column.origin for column in self.columns
        )
        return table.floats(self.sources) if self.columns and is_plain else None

    def _each(
        self, table: InputTable, step: Callable[[ColumnSchema, Column], T], *, is_new: bool = False
    ) -> tuple[T, ...]:
        """Return the results of a step for each column and its cells (n,).

        Args:
            table: The table.
            step: A function of a column and its checked cells.
            is_new: Whether the columns have no types yet.

        Raises:
            DataError: If cells cannot be read as the kind of a column, or differ in type from the training data. The
                message combines the problems of all columns.
        """
        if self.columns and all(column.kind is not ColumnKind.NODE for column in self.columns):
            table.check_labels()

        def checked(column: ColumnSchema) -> T:
            for key in sources_of([column.key]):
                part, cells = replace(column, key=key), table.cells(key, column.readers)
                cells = cells.with_dates() if column.kind is ColumnKind.NUMBER else cells
                problems = cell_errors(part, cells) or ([] if is_new else type_errors(part, cells))
                if problems:
                    raise DataError("\n".join(problems))
            return step(column, cells if key == column.key else table.cells(column.key, column.readers))

        results, problems = collect_errors(checked, self.columns)
        if problems:
            raise DataError(join_errors(problems))
        return tuple(results)

    @property
    def kinds(self) -> tuple[ColumnKind, ...]:
        """The kinds of the D columns."""
        return tuple(column.kind for column in self.columns)

    @property
    def keys(self) -> list[MatrixKey]:
        """The keys of the D columns."""
        return [column.key for column in self.columns]

    @property
    def sources(self) -> list[Key]:
        """The columns of a table from which the D columns are read."""
        return sources_of(column.key for column in self.columns if column.kind is not ColumnKind.AREA)

    @property
    def is_standardizable(self) -> tuple[bool, ...]:
        """Whether each of the D columns may be standardized: those of ColumnKind.NUMBER."""
        return tuple(kind is ColumnKind.NUMBER for kind in self.kinds)

    def column_of(self, key: MatrixKey, kind: ColumnKind, nodes: NodeTable | None = None) -> int:
        """Return the index of a column in the matrix (n, D).

        Args:
            key: The column's name, or its number in an array.
            kind: The kind of the column.
            nodes: The graph, for ColumnKind.NODE. If None, the only graph of the column.

        Raises:
            InvalidArgumentError: If there is no such column, or several graphs read it.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind, InputSchema
            >>> schema = InputSchema(
            ...     (ColumnSchema("t", ColumnKind.NUMBER), ColumnSchema("t", ColumnKind.LEVEL, levels=(1, 2)))
            ... )
            >>> schema.column_of("t", ColumnKind.LEVEL)
            1
        """
        indices = self._indices.get((key, kind), [])
        if len(indices) > 1:
            indices = [index for index in indices if self.columns[index].nodes is nodes]
        if len(indices) != 1:
            known = "; ".join(map(self.describe, range(len(self.columns))))
            raise InvalidArgumentError(
                f"There must be one column {short_repr(key)} of the kind {short_repr(kind)}, got {known}."
            )
        return indices[0]

    @CachedWithoutLock
    def _indices(self) -> dict[tuple[MatrixKey, ColumnKind], list[int]]:
        """The indices of the columns by key and kind."""
        indices: dict[tuple[MatrixKey, ColumnKind], list[int]] = {}
        for index, column in enumerate(self.columns):
            indices.setdefault((column.key, column.kind), []).append(index)
        return indices

    def labels(self, index: int, codes: Iterable[float]) -> list[Level | None]:
        """Return the levels of k codes of a column, None for codes of new levels.

        Args:
            index: The index of the column in the matrix.
            codes: The codes, for example of `read`.

        Raises:
            InvalidArgumentError: If the column has no levels.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind, InputSchema
            >>> InputSchema((ColumnSchema("store", ColumnKind.LEVEL, levels=("a", "b")),)).labels(0, [1.0, 2.0])
            ['b', None]
        """
        column = self.columns[index]
        if column.kind is not ColumnKind.LEVEL:
            raise InvalidArgumentError(f"index must be that of a column of levels, got {self.describe(index)}.")
        return [column.levels[int(code)] if 0 <= code < column.num_levels else None for code in codes]

    def describe(self, index: int) -> str:
        """Return a short description of the column with an index.

        Args:
            index: The index of the column in the matrix.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind, InputSchema
            >>> InputSchema((ColumnSchema("day", ColumnKind.NUMBER, is_date=True, zone="Europe/Berlin"),)).describe(0)
            "column 'day', a date (days on the clock of Europe/Berlin)"
        """
        column = self.columns[index]
        description = f"a {_WORDS.get(column.kind)}"
        if column.is_date:
            description = f"a date (days{' on the clock of ' * bool(column.zone)}{column.zone})"
        if column.kind is ColumnKind.LEVEL:
            description = counted(column.num_levels, "level")
        key = column.key
        if column.kind is ColumnKind.AREA:
            return "the number of the area"
        return f"column {str(key) if isinstance(key, SphereKey) else short_repr(key)}, {description}"

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON-compatible values, without graphs.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind, InputSchema
            >>> InputSchema((ColumnSchema("t", ColumnKind.NUMBER, ("rbf(t)",)),)).to_dict()["version"]
            1
        """
        return {"version": _VERSION, "columns": [_encoded(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, content: Any, nodes: Sequence[NodeTable] = ()) -> "InputSchema":
        """Return the schema that `to_dict` wrote, with every field checked.

        Args:
            content: The content of a model file.
            nodes: One graph for each column of ColumnKind.NODE, in the order of the columns.

        Raises:
            DataError: If a field is missing, unknown, of another type, or contradicts another field.
            InvalidArgumentError: If there are more or fewer graphs than columns of ColumnKind.NODE.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind, InputSchema
            >>> schema = InputSchema((ColumnSchema("store", ColumnKind.LEVEL, levels=("a", "b")),))
            >>> InputSchema.from_dict(schema.to_dict()) == schema
            True
        """
        if type(content) is not dict or set(content) != {"version", "columns"}:
            raise not_usable("it is not a dictionary with a version and columns")
        if type(content["version"]) is not int or content["version"] != _VERSION:
            raise not_usable(f"its version is {short_repr(content['version'])}, and {_VERSION} is the one known")
        kinds = tuple[ColumnSchema, ...]
        columns: list[ColumnSchema] = list(from_json(kinds, content["columns"], "columns", (*_OPTIONAL, "nodes")))
        of_nodes = [index for index, column in enumerate(columns) if column.kind is ColumnKind.NODE]
        if len(nodes) != len(of_nodes):
            raise InvalidArgumentError(f"nodes must be {counted(len(of_nodes), 'graph')}, got {len(nodes)}.")
        for index, graph in zip(of_nodes, nodes, strict=True):
            check_nodes(ColumnKind.NODE, graph)
            columns[index] = replace(columns[index], nodes=graph)
        for column in columns:
            _check(column)
        if len({(column.key, column.kind, id(column.nodes)) for column in columns}) < len(columns):
            raise not_usable("two columns have the same key and kind")
        return cls(tuple(columns))


def _encoded(column: ColumnSchema) -> dict[str, Any]:
    content = {field.name: getattr(column, field.name) for field in fields(ColumnSchema) if field.name != "nodes"}
    content |= {"kind": column.kind.value, "terms": list(column.terms), "levels": list(column.levels)}
    if isinstance(column.key, SphereKey):
        content["key"] = asdict(column.key)
    return {name: value for name, value in content.items() if value or name not in _OPTIONAL}


def _check(rule: ColumnSchema) -> None:
    """Check that the fields of a column are consistent."""
    name, is_number = short_repr(rule.key), rule.kind in (ColumnKind.NUMBER, ColumnKind.COORDINATE)
    if any(isinstance(key, int) and key < 0 for key in sources_of([rule.key])):
        raise not_usable(f"a key must be a name or a number from 0, got {name}")
    if isinstance(rule.key, SphereKey) != (rule.kind is ColumnKind.SPHERE):
        raise not_usable(f"{name} must have the key of a coordinate if its kind is 'sphere', and only then")
    if isinstance(rule.key, SphereKey) and (rule.key.axis not in (0, 1, 2) or not 0 < rule.key.radius < math.inf):
        raise not_usable(f"a coordinate on a sphere must have an axis of 0 to 2 and a positive radius, got {rule.key}")
    if (not is_number and (rule.is_date or rule.origin)) or (rule.zone and not rule.is_date):
        raise not_usable(f"is_date, zone and origin of {name} must be those of a number or date")
    if abs(rule.origin) >= _MAX_ORIGIN:
        raise not_usable(f"origin of {name} must be an integer below 1e40")
    if bool(rule.levels) != (rule.kind is ColumnKind.LEVEL):
        raise not_usable(f"{name} must have levels if its kind is 'level', and none otherwise")
    if len(set(map(type, rule.levels))) > 1 or len(set(rule.levels)) < len(rule.levels):
        raise not_usable(f"the levels of {name} must be different, and all of them texts, integers or booleans")
