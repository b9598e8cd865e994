"""Nearest-neighbor (Vecchia) processes: neighbors of ordered rows, and the sparse inverse factor."""

from rfgp.local.factor import BatchedProcess as BatchedProcess
from rfgp.local.factor import LatentRoot as LatentRoot
from rfgp.local.factor import StationaryProcess as StationaryProcess
from rfgp.local.factor import block_predecessors as block_predecessors
from rfgp.local.factor import nearest as nearest
from rfgp.local.factor import nearest_before as nearest_before
from rfgp.local.factor import nearest_predecessors as nearest_predecessors
from rfgp.local.factor import pattern_of as pattern_of
from rfgp.local.factor import scaled_positions as scaled_positions
from rfgp.local.factor import spatial_blocks as spatial_blocks
from rfgp.local.factor import used as used
from rfgp.local.factor import whitened as whitened
from rfgp.local.factor import whitened_transpose as whitened_transpose
from rfgp.local.kinds import KINDS as KINDS
