"""Columns of a schema as JSON, and back, with every field checked."""

from collections.abc import Sequence
from typing import Any

from rfgp.columns.kinds import ColumnKind
from rfgp.columns.requests import ColumnSchema, NodeTable, check_nodes
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.messages import counted, short_repr

_VERSION = 1
"""The version of the format."""
_FIELDS = ("key", "kind", "terms", "is_date", "levels")
_MAX_ORIGIN = 10**40
"""The smallest integer that is too large for an origin, in attoseconds."""
_OPTIONAL = {"zone": "", "origin": 0}
"""Fields that are left out at their defaults, with these."""


def encode(columns: Sequence[ColumnSchema]) -> dict[str, Any]:
    """Return columns as dicts, lists, texts, integers and booleans, without graphs.

    Args:
        columns: The columns.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.serialization import encode
        >>> encode([ColumnSchema("t", ColumnKind.NUMBER)])["columns"]
        [{'key': 't', 'kind': 'number', 'terms': [], 'is_date': False, 'levels': []}]
    """
    return {"version": _VERSION, "columns": [_encoded(column) for column in columns]}


def decode(content: Any, nodes: Sequence[NodeTable] = ()) -> tuple[ColumnSchema, ...]:
    """Return the columns that `encode` wrote, with a graph for each column of nodes.

    Args:
        content: The result of `encode`, for example from a file.
        nodes: One graph for each column of nodes, in the order of the columns.

    Raises:
        DataError: If a field is missing, unknown, of another type, or contradicts another field.
        InvalidArgumentError: If there are more or fewer graphs than columns of nodes.

    Examples:
        >>> from rfgp.columns import ColumnSchema, ColumnKind
        >>> from rfgp.columns.serialization import decode, encode
        >>> decode(encode([ColumnSchema("t", ColumnKind.NUMBER)]))[0].key
        't'
    """
    entries = _fields(content, ("version", "columns"), "the schema")
    if type(entries["version"]) is not int or entries["version"] != _VERSION:
        raise _bad(f"its version must be {_VERSION}, got {short_repr(entries['version'])}")
    if type(entries["columns"]) is not list:
        raise _bad(f"columns must be a list, got {short_repr(entries['columns'])}")
    rules = [
        _OPTIONAL | _fields(entry, (*_FIELDS, *_OPTIONAL.keys() & _keys(entry)), "a column")
        for entry in entries["columns"]
    ]
    for rule in rules:
        _check(rule)
    num_nodes = sum(rule["kind"] == ColumnKind.NODE for rule in rules)
    if len(nodes) != num_nodes:
        raise InvalidArgumentError(f"nodes must be {counted(num_nodes, 'graph')}, got {len(nodes)}.")
    graphs = iter(nodes)
    columns = tuple(_decoded(rule, next(graphs) if rule["kind"] == ColumnKind.NODE else None) for rule in rules)
    identities = [(column.key, column.kind, id(column.nodes)) for column in columns]
    if len(set(identities)) < len(identities):
        raise _bad("two columns have the same key and kind")
    return columns


def _encoded(column: ColumnSchema) -> dict[str, Any]:
    return {
        "key": column.key,
        "kind": column.kind.value,
        "terms": list(column.terms),
        "is_date": column.is_date,
        "levels": list(column.levels),
    } | {name: getattr(column, name) for name in _OPTIONAL if getattr(column, name)}


def _decoded(rule: dict[str, Any], nodes: NodeTable | None) -> ColumnSchema:
    kind = ColumnKind(rule["kind"])
    check_nodes(kind, nodes)
    of_times = rule["zone"], rule["origin"]
    return ColumnSchema(
        rule["key"], kind, tuple(rule["terms"]), rule["is_date"], tuple(rule["levels"]), nodes, *of_times
    )


def _fields(entry: Any, names: tuple[str, ...], title: str) -> dict[str, Any]:
    """Return a dict with these fields and no others."""
    if type(entry) is not dict:
        raise _bad(f"{title} must be a dict, got {short_repr(entry)}")
    mismatched = set(names).symmetric_difference(entry)
    if mismatched:
        raise _bad(f"{title} lacks or does not know the field {short_repr(min(map(str, mismatched)))}")
    return entry


def _keys(entry: Any) -> set[Any]:
    return set(entry) if type(entry) is dict else set()


def _check(rule: dict[str, Any]) -> None:
    """Check that the fields of a column have the right types and are consistent."""
    key, kind, levels = rule["key"], rule["kind"], rule["levels"]
    if type(key) not in (str, int) or (type(key) is int and key < 0):
        raise _bad(f"a key must be a name or a number from 0, got {short_repr(key)}")
    if type(kind) is not str or kind not in tuple(ColumnKind):
        raise _bad(f"the kind of {short_repr(key)} must be one of {', '.join(ColumnKind)}, got {short_repr(kind)}")
    if type(rule["terms"]) is not list or any(type(term) is not str for term in rule["terms"]):
        raise _bad(f"the terms of {short_repr(key)} must be a list of names, got {short_repr(rule['terms'])}")
    is_number = kind in (ColumnKind.NUMBER, ColumnKind.COORDINATE)
    if type(rule["is_date"]) is not bool or (rule["is_date"] and not is_number):
        raise _bad(f"is_date of {short_repr(key)} must be true or false, and false unless it is a number")
    if type(rule["zone"]) is not str or (rule["zone"] and not rule["is_date"]):
        raise _bad(f"zone of {short_repr(key)} must be a text, and empty unless it is a date")
    if type(rule["origin"]) is not int or (rule["origin"] and not is_number) or abs(rule["origin"]) >= _MAX_ORIGIN:
        raise _bad(f"origin of {short_repr(key)} must be an integer below 1e40, and 0 unless it is a number")
    if type(levels) is not list or bool(levels) != (kind == ColumnKind.LEVEL):
        raise _bad(
            f"{short_repr(key)} must have a list of levels if its kind is {ColumnKind.LEVEL.value!r}, otherwise an "
            "empty one"
        )
    types = set(map(type, levels))
    if len(types) > 1 or not types <= {str, int, bool} or len(set(levels)) < len(levels):
        raise _bad(f"the levels of {short_repr(key)} must be different, and all of them texts, integers or booleans")


def _bad(why: str) -> DataError:
    return DataError(f"A schema of columns must be valid, got a broken one: {why}.")
