"""Compare with other packages: the races, their files of results, and the tables and pictures of docs/rivals.md."""

from benchmarks.rivals.page import tables

__all__ = ["tables"]
