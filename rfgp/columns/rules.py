"""How a kernel reads one column: its request, and the schema that is fitted to the training data."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.columns.cells import IN_TIME, CellType, Column, Level, as_floats, as_numpy, factorize
from rfgp.columns.days import converted, origin_of, to_days
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.messages import counted, one_line, short_repr, unquoted

Key = str | int
"""The name of a column of a dataframe or dict, or the number of a column of an array, from 0."""


@dataclass(frozen=True)
class SphereKey:
    """The key of one of the three coordinates of points on a sphere, whose columns are angles in degrees.

    Attributes:
        longitude: The key of the longitudes.
        latitude: The key of the latitudes.
        axis: The number of the coordinate: 0 to 2.
        radius: The radius of the sphere.
    """

    longitude: Key
    latitude: Key
    axis: int
    radius: float

    def coordinate(self, longitude: Tensor, latitude: Tensor) -> Tensor:
        """Return the coordinate (n,) of points on the sphere.

        Args:
            longitude: The longitudes (n,) in degrees, of any turn.
            latitude: The latitudes (n,) in degrees.
        """
        turned, raised = torch.deg2rad(longitude), torch.deg2rad(latitude)
        return self.radius * (raised.cos() * turned.cos(), raised.cos() * turned.sin(), raised.sin())[self.axis]

    def __str__(self) -> str:
        return f"{'xyz'[self.axis]} of ({self.longitude}, {self.latitude})"


AREA_KEY = "\0area"
"""The key of the numbers of areas, which are no column of a user's table."""
MatrixKey = str | int | SphereKey
"""The key of a column of the matrix that a kernel reads: of a column of a table, or of a coordinate of points."""


def sources_of(keys: Iterable[MatrixKey]) -> list[Key]:
    """Return the distinct columns of a table from which columns with given keys are read.

    Args:
        keys: The keys.

    Examples:
        >>> from rfgp.columns.rules import SphereKey, sources_of
        >>> sources_of(["t", SphereKey("lon", "lat", 0, 1.0), SphereKey("lon", "lat", 1, 1.0)])
        ['t', 'lon', 'lat']
    """
    read = ((key.longitude, key.latitude) if isinstance(key, SphereKey) else (key,) for key in keys)
    return list(dict.fromkeys(source for sources in read for source in sources))


_EXACT = 2**53
"""The largest integer up to which float64 represents all integers."""
_MAX_LABELS = 8
"""The maximum number of unknown labels in one message."""


class ColumnKind(StrEnum):
    """How a kernel reads a column.

    Examples:
        >>> from rfgp.columns import ColumnKind
        >>> ColumnKind("level") is ColumnKind.LEVEL
        True
    """

    NUMBER = "number"
    """A number or a date. Dates are numbers of days."""
    COORDINATE = "coordinate"
    """A number that keeps its units, such as a coordinate of a point on a mesh."""
    AREA = "area"
    """The number of an area over whose points a row is a mean, -1 for a point. Its key is `AREA_KEY`."""
    SPHERE = "sphere"
    """A coordinate of points on a sphere, whose key is a `SphereKey`."""
    LEVEL = "level"
    """A level of a category: text, a boolean, an integer or a pandas category."""
    NODE = "node"
    """The label of a node of a graph."""


class NodeTable(Protocol):
    """The interface of nodes of a graph with labels, such as `graphs.Graph`."""

    def index(self, labels: Any) -> NDArray[np.int64]:
        """Return the positions (n,) of nodes.

        Args:
            labels: The labels (n,) of the nodes.

        Raises:
            KeyError: If a label is not a node. It may also be a ValueError.
        """


@dataclass(frozen=True)
class ColumnRequest:
    """A kernel term's request for one column.

    Attributes:
        key: The column's name, or its number in an array.
        kind: The kind of the column, a `ColumnKind` or its name.
        term: The term's name, for messages.
        nodes: The graph whose nodes the column names, for ColumnKind.NODE only.

    Raises:
        InvalidArgumentError: If the key is neither a text nor an index, the kind is unknown, or nodes are missing or
            given for another kind.

    Examples:
        >>> from rfgp.columns import ColumnKind, ColumnRequest
        >>> ColumnRequest("store", ColumnKind.LEVEL, "group(store)").kind
        <ColumnKind.LEVEL: 'level'>
    """

    key: MatrixKey
    kind: ColumnKind
    term: str
    nodes: NodeTable | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", read_key(self.key))
        if self.kind not in tuple(ColumnKind):
            raise InvalidArgumentError(f"kind must be one of {', '.join(ColumnKind)}, got {short_repr(self.kind)}.")
        object.__setattr__(self, "kind", ColumnKind(self.kind))
        check_nodes(self.kind, self.nodes)


def read_key(key: Any) -> MatrixKey:
    """Return a column's key as plain text or a plain integer.

    Args:
        key: The name of a column, or its number from 0.

    Raises:
        InvalidArgumentError: If the key is neither a text nor an index.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.rules import read_key
        >>> read_key("price"), read_key(np.int64(2))
        ('price', 2)
    """
    if isinstance(key, SphereKey):
        return key
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and key >= 0:
        return int(key)
    raise InvalidArgumentError(f"A column must be a name, or a number from 0, got {short_repr(key)}.")


def check_nodes(kind: ColumnKind, nodes: Any) -> None:
    """Check that a column has a graph if, and only if, its kind is ColumnKind.NODE.

    Args:
        kind: The kind of the column.
        nodes: The graph, or None.

    Raises:
        InvalidArgumentError: If the graph is missing, has no `index` method, or belongs to another kind.

    Examples:
        >>> from rfgp.columns import ColumnKind
        >>> from rfgp.columns.rules import check_nodes
        >>> check_nodes(ColumnKind.NUMBER, None)
    """
    if kind is not ColumnKind.NODE:
        if nodes is not None:
            raise InvalidArgumentError(f"nodes must be None for the kind {kind.value!r}, got {short_repr(nodes)}.")
    elif isinstance(nodes, str | bytes | list | tuple | range) or not callable(getattr(nodes, "index", None)):
        raise InvalidArgumentError(f"nodes must be a graph with an index method, got {short_repr(nodes)}.")


@dataclass(frozen=True)
class ColumnSchema:
    """One column of the matrix that `InputSchema.read` returns.

    The methods take cells without problems (`problems.cell_errors` and `problems.type_errors`).

    Attributes:
        key: The column's name, or its number in an array.
        kind: The kind of the column.
        terms: The names of the terms that read it.
        is_date: Whether the training data have dates, which are read as days on the clock of their zone.
        levels: The levels of the training data, sorted or in the order of a pandas category. Empty for other kinds.
        nodes: The graph of the labels. None for other kinds.
        zone: The time zone of the dates, their UTC offsets as in "+01:00 +02:00", or "" without a zone.
        origin: An integer that is subtracted before numbers become floating: the first date in attoseconds since 1970,
            or the first of large integers.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> ColumnSchema("store", ColumnKind.LEVEL, ("group(store)",), levels=("north", "south")).num_levels
        2
    """

    key: MatrixKey
    kind: ColumnKind
    terms: tuple[str, ...] = ()
    is_date: bool = False
    levels: tuple[Level, ...] = ()
    nodes: NodeTable | None = None
    zone: str = ""
    origin: int = 0

    @property
    def num_levels(self) -> int:
        """The number of levels in the training data. It is 0 for other kinds."""
        return len(self.levels)

    @property
    def readers(self) -> str:
        """The terms that read the column, for messages."""
        terms = [unquoted(term) for term in self.terms]
        names = [*terms[:3], "others"] if len(terms) > 3 else terms
        return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]]) or "the kernel"

    def fitted(self, cells: Column) -> "ColumnSchema":
        """Return the schema with the levels, or the zone and origin, of the training data.

        Args:
            cells: The cells (n,) of the training data.

        Raises:
            DataError: If a label is not a node of the graph.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind
            >>> from rfgp.columns.cells import Column
            >>> ColumnSchema("store", ColumnKind.LEVEL).fitted(Column.of(["south", "north"])).levels
            ('north', 'south')
        """
        if self.kind is ColumnKind.LEVEL:
            return replace(self, levels=cells.levels)
        cells = cells.expanded()
        if self.kind is ColumnKind.NODE:
            self._positions(cells)
            return self
        return replace(self, is_date=cells.cell_type is CellType.DATE, zone=cells.zone, origin=self._origin_in(cells))

    def extended(self, cells: Column) -> "ColumnSchema":
        """Return the schema with the new levels of cells after its own.

        Args:
            cells: The cells (n,) of additional training data.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind
            >>> from rfgp.columns.cells import Column
            >>> store = ColumnSchema("store", ColumnKind.LEVEL, levels=("north",))
            >>> store.extended(Column.of(["south", "north"])).levels
            ('north', 'south')
        """
        if self.kind is not ColumnKind.LEVEL:
            return self
        return replace(self, levels=(*self.levels, *cells.coded(self.levels)[1]))

    def read(self, cells: Column) -> Tensor:
        """Return cells as floating numbers (n,): float64 unless the cells have another floating dtype.

        New levels get the codes num_levels, num_levels + 1, ... in order of first appearance.

        Args:
            cells: The cells (n,).

        Raises:
            DataError: If a label is not a node of the graph, or dates have other offsets than those of the schema.

        Examples:
            >>> from rfgp.columns import ColumnSchema, ColumnKind
            >>> from rfgp.columns.cells import Column
            >>> store = ColumnSchema("store", ColumnKind.LEVEL, levels=("a", "b"))
            >>> store.read(Column.of(["b", "new", "a", "new"])).tolist()
            [1.0, 2.0, 0.0, 2.0]
        """
        if self.kind is ColumnKind.LEVEL:
            return torch.from_numpy(cells.coded(self.levels)[0].astype(np.float64))
        cells = cells.expanded()
        if self.kind is ColumnKind.NODE:
            return torch.from_numpy(self._positions(cells).astype(np.float64))
        if self.is_date:
            try:
                return _floating(to_days(converted(cells.times, self.zone), self.origin))
            except DataError as error:
                raise DataError(f"Column {short_repr(self.key)} {error}") from error
        values, origin = cells.values, self.origin
        if cells.cell_type in IN_TIME:
            return _floating(to_days(values))
        if origin and cells.cell_type is CellType.INTEGER and not isinstance(values, Tensor):
            return _floating(np.array([value - origin for value in values.tolist()], dtype=np.float64))
        if origin and not isinstance(values, Tensor):  # floating numbers lose digits of a large origin
            return _floating((values - float(origin)) - float(origin - int(float(origin))))
        return _floating(values - origin if origin else values)

    def _origin_in(self, cells: Column) -> int:
        """Return the first date in attoseconds, or the first of large integers. It is 0 for others."""
        if self.kind is not ColumnKind.NUMBER:
            return 0
        if cells.cell_type is CellType.DATE:
            return origin_of(cells.values)
        if cells.cell_type is not CellType.INTEGER:
            return 0
        largest = max(abs(int(cells.values.max())), abs(int(cells.values.min())))
        return int(cells.values[0]) if largest > _EXACT else 0

    def _positions(self, cells: Column) -> NDArray[np.int64]:
        """Return the positions (n,) of the nodes with given labels."""
        if cells.cell_type is CellType.OBJECT:  # may be unhashable, or have both 1 and True as labels
            return self._index(cells.values.tolist())
        indices, labels = cells.factorized()
        return self._index(labels)[indices]

    def _index(self, labels: list[Any]) -> NDArray[np.int64]:
        assert self.nodes is not None
        try:
            return np.asarray(self.nodes.index(labels), dtype=np.int64)
        except MemoryError:
            raise
        except Exception as error:  # from a graph, or from a label of a user's class
            where = f"Column {short_repr(self.key)}, which {self.readers} reads,"
            raise DataError(f"{where} {self._unknown(labels)} {one_line(error).removesuffix('.')}.") from error

    def _unknown(self, labels: list[Any]) -> str:
        """Return the end of a sentence about labels that are not in the graph."""

        def is_known(label: Any) -> bool:
            assert self.nodes is not None
            try:
                return len(self.nodes.index([label])) == 1
            except Exception:
                return False

        with suppress(TypeError):  # some cannot be hashed
            labels = factorize(labels)[1]
        unknown = [label for label in labels if not is_known(label)]
        if not unknown:
            return "must hold labels of nodes."
        words = ", ".join(map(short_repr, unknown[:_MAX_LABELS])) + ", ..." * (len(unknown) > _MAX_LABELS)
        return f"names {counted(len(unknown), 'node')} that the graph does not have: {words}."


def _floating(values: Any) -> Tensor:
    """Return numbers (n,) as a floating tensor, a copy unless they are one."""
    if isinstance(values, Tensor):
        return values if values.is_floating_point() else values.double()
    if values.dtype == object:
        values = as_floats(values)
    kind = np.float32 if values.dtype.type is np.float32 else np.float64
    return torch.from_numpy(np.array(as_numpy(values), dtype=kind))
