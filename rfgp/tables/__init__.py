"""Tables from files, with every problem named by row and column."""

from rfgp.tables.options import MISSING_MARKS as MISSING_MARKS
from rfgp.tables.reading import PARQUET_SUFFIXES as PARQUET_SUFFIXES
from rfgp.tables.reading import TABLE_SUFFIXES as TABLE_SUFFIXES
from rfgp.tables.reading import TEXT_SUFFIXES as TEXT_SUFFIXES
from rfgp.tables.reading import read_csv as read_csv
from rfgp.tables.reading import read_inputs as read_inputs
from rfgp.tables.reading import read_names as read_names
from rfgp.tables.reading import read_parquet as read_parquet
from rfgp.tables.reading import read_table as read_table
from rfgp.tables.schema import ColumnRule as ColumnRule
from rfgp.tables.schema import Schema as Schema
from rfgp.tables.sources import CSV as CSV
from rfgp.tables.sources import Blocks as Blocks
from rfgp.tables.sources import Parquet as Parquet
from rfgp.tables.table import Inputs as Inputs
from rfgp.tables.table import Table as Table
