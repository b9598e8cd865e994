"""The kinds of columns that kernels read."""

from enum import StrEnum


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
    LEVEL = "level"
    """A level of a category: text, a boolean, an integer or a pandas category."""
    NODE = "node"
    """The label of a node of a graph."""
