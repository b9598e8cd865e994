"""Tables from files, with every problem named by row and column.

The readers need torch. They are imported on first use, so the command line can read a header without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rfgp.tables.options import MISSING_MARKS as MISSING_MARKS
from rfgp.tables.options import PARQUET_SUFFIXES as PARQUET_SUFFIXES
from rfgp.tables.options import TABLE_SUFFIXES as TABLE_SUFFIXES
from rfgp.tables.options import TEXT_SUFFIXES as TEXT_SUFFIXES

if TYPE_CHECKING:
    from rfgp.tables.reading import read_csv as read_csv
    from rfgp.tables.reading import read_groups as read_groups
    from rfgp.tables.reading import read_inputs as read_inputs
    from rfgp.tables.reading import read_kinds as read_kinds
    from rfgp.tables.reading import read_names as read_names
    from rfgp.tables.reading import read_number_column as read_number_column
    from rfgp.tables.reading import read_numbers as read_numbers
    from rfgp.tables.reading import read_parquet as read_parquet
    from rfgp.tables.reading import read_table as read_table
    from rfgp.tables.sources import CSV as CSV
    from rfgp.tables.sources import Batches as Batches
    from rfgp.tables.sources import Parquet as Parquet
    from rfgp.tables.table import ColumnRule as ColumnRule
    from rfgp.tables.table import Inputs as Inputs
    from rfgp.tables.table import Schema as Schema
    from rfgp.tables.table import Table as Table

_READERS = (
    "read_csv read_groups read_inputs read_kinds read_names read_number_column read_numbers read_parquet read_table"
)
_HOMES = {"reading": _READERS, "sources": "CSV Batches Parquet", "table": "ColumnRule Inputs Schema Table"}
"""The names that modules bring on first use."""


def __getattr__(name: str) -> Any:
    """Return a reader, a source or a table class from its module on first use."""
    for home, names in _HOMES.items():
        if name == home or name in names.split():
            module = importlib.import_module(f"rfgp.tables.{home}")
            value = globals()[name] = getattr(module, name, module)
            return value
    raise AttributeError(f"module 'rfgp.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    lazy = " ".join(_HOMES.values()).split()
    return sorted({*globals(), *lazy} - {"Any", "TYPE_CHECKING", "importlib"})
