"""Columns: mixed columns of a table, read as one matrix of numbers."""

from rfgp.columns.kinds import Kind as Kind
