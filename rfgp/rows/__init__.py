"""Rows: what a user gives, read and checked, and the same in standardised blocks, which inference reads."""

from rfgp.rows.blocks import Block as Block
from rfgp.rows.blocks import DistributedRows as DistributedRows
from rfgp.rows.blocks import JoinedRows as JoinedRows
from rfgp.rows.blocks import Rows as Rows
from rfgp.rows.blocks import gathered as gathered
from rfgp.rows.blocks import parts_of as parts_of
from rfgp.rows.given import ArrayRows as ArrayRows
from rfgp.rows.given import DataSummary as DataSummary
from rfgp.rows.given import GivenArrays as GivenArrays
from rfgp.rows.given import GivenSource as GivenSource
from rfgp.rows.given import InputReader as InputReader
from rfgp.rows.given import came_as_numpy as came_as_numpy
from rfgp.rows.given import in_memory as in_memory
from rfgp.rows.given import read_more as read_more
from rfgp.rows.given import read_training as read_training
from rfgp.rows.repeats import merge_repeats as merge_repeats
from rfgp.rows.repeats import repeat_groups as repeat_groups
from rfgp.rows.sources import Chunk as Chunk
from rfgp.rows.sources import RowSource as RowSource
from rfgp.rows.sources import SourceInputs as SourceInputs
from rfgp.rows.sources import SourceRows as SourceRows
from rfgp.rows.sources import as_source as as_source
from rfgp.rows.sources import pool_of as pool_of
