"""Columns: mixed columns of a table, read as one matrix of numbers."""

from rfgp.columns.kinds import Kind as Kind
from rfgp.columns.requests import ColumnSchema as ColumnSchema
from rfgp.columns.requests import NodeTable as NodeTable
from rfgp.columns.requests import Request as Request
from rfgp.columns.schema import Schema as Schema
from rfgp.columns.table import Table as Table
