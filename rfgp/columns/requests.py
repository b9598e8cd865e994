"""Requests of kernels for columns, and the resulting columns."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rfgp.columns.kinds import ColumnKind
from rfgp.errors import InvalidArgumentError
from rfgp.messages import short_repr, unquoted

Key = str | int
"""The name of a column of a dataframe or dict, or the number of a column of an array, from 0."""
Level = str | int | bool
"""A level of a category."""


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

    key: Key
    kind: ColumnKind
    term: str
    nodes: NodeTable | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", read_key(self.key))
        if self.kind not in tuple(ColumnKind):
            raise InvalidArgumentError(f"kind must be one of {', '.join(ColumnKind)}, got {short_repr(self.kind)}.")
        object.__setattr__(self, "kind", ColumnKind(self.kind))
        if not isinstance(self.term, str):
            raise InvalidArgumentError(f"term must be the name of a kernel term, got {short_repr(self.term)}.")
        check_nodes(self.kind, self.nodes)


@dataclass(frozen=True)
class ColumnSchema:
    """One column of the matrix that `Schema.read` returns.

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

    key: Key
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


def merge_requests(requests: Iterable[ColumnRequest]) -> tuple[ColumnSchema, ...]:
    """Return the schema of each distinct key, kind and graph, in order of first request.

    Args:
        requests: The requests of all terms.

    Raises:
        InvalidArgumentError: If an entry is not a `ColumnRequest`.

    Examples:
        >>> from rfgp.columns.requests import ColumnRequest, merge_requests
        >>> wanted = [ColumnRequest("t", "number", "rbf(t)"), ColumnRequest("t", "number", "linear(t)")]
        >>> [column.terms for column in merge_requests(wanted)]
        [('rbf(t)', 'linear(t)')]
    """
    columns: dict[tuple[Key, ColumnKind, int], ColumnSchema] = {}
    for request in requests:
        if not isinstance(request, ColumnRequest):
            raise InvalidArgumentError(
                f"requests must be rfgp.columns.ColumnRequest objects, got {short_repr(request)}."
            )
        identity = (request.key, request.kind, id(request.nodes))
        column = columns.setdefault(identity, ColumnSchema(request.key, request.kind, nodes=request.nodes))
        if request.term not in column.terms:
            columns[identity] = replace(column, terms=(*column.terms, request.term))
    return tuple(columns.values())


def read_key(key: Any) -> Key:
    """Return a column's key as plain text or a plain integer.

    Args:
        key: The name of a column, or its number from 0.

    Raises:
        InvalidArgumentError: If the key is neither a text nor an index.

    Examples:
        >>> import numpy as np
        >>> from rfgp.columns.requests import read_key
        >>> read_key("price"), read_key(np.int64(2))
        ('price', 2)
    """
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
        >>> from rfgp.columns.requests import check_nodes
        >>> check_nodes(ColumnKind.NUMBER, None)
    """
    if kind is not ColumnKind.NODE:
        if nodes is not None:
            raise InvalidArgumentError(f"nodes must be None for the kind {kind.value!r}, got {short_repr(nodes)}.")
        return
    if isinstance(nodes, str | bytes | list | tuple | range) or not callable(getattr(nodes, "index", None)):
        raise InvalidArgumentError(f"nodes must be a graph with an index method, got {short_repr(nodes)}.")
