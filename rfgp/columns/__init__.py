"""Columns: mixed columns of a table, read as one matrix of numbers.

Words that the modules use:

    key             the name or index of a column
    kind            how a kernel reads a column: as numbers, levels, nodes of a graph, or coordinates on a domain
    level           a category of a column, stored as its code
    indicator       a one-hot column of a level
    reader          a term of the kernel that has a column as input
"""

from rfgp.columns.rules import ColumnKind as ColumnKind
from rfgp.columns.rules import ColumnRequest as ColumnRequest
from rfgp.columns.rules import ColumnSchema as ColumnSchema
from rfgp.columns.rules import NodeTable as NodeTable
from rfgp.columns.schema import InputSchema as InputSchema
from rfgp.columns.table import InputTable as InputTable
