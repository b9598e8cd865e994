"""Columns: mixed columns of a table, read as one matrix of numbers."""

from rfgp.columns.kinds import ColumnKind as ColumnKind
from rfgp.columns.requests import ColumnRequest as ColumnRequest
from rfgp.columns.requests import ColumnSchema as ColumnSchema
from rfgp.columns.requests import NodeTable as NodeTable
from rfgp.columns.schema import Schema as Schema
from rfgp.columns.table import Table as Table
