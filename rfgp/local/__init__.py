"""Nearest-neighbor (Vecchia) processes: neighbors of ordered rows, and the sparse inverse factor."""

from rfgp.local.factor import LatentRoot as LatentRoot
from rfgp.local.factor import block_predecessors as block_predecessors
from rfgp.local.factor import inverse_factor as inverse_factor
from rfgp.local.factor import log_prob as log_prob
from rfgp.local.factor import nearest as nearest
from rfgp.local.factor import nearest_before as nearest_before
from rfgp.local.factor import nearest_predecessors as nearest_predecessors
from rfgp.local.factor import root_entries as root_entries
from rfgp.local.factor import scaled_positions as scaled_positions
from rfgp.local.factor import spatial_blocks as spatial_blocks
from rfgp.local.factor import used as used
from rfgp.local.factor import whitened as whitened
from rfgp.local.factor import whitened_transpose as whitened_transpose
from rfgp.local.kinds import KINDS as KINDS
