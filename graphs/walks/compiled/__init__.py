"""Compiled loops of walks: serial and `nogil`, run by `graphs.walks.drawing` in a thread pool.

A visit is a 64-bit number, node << 32 | hop. If the load of a visit follows from its start, node and hop, only visits
are stored. Otherwise `path_weights` holds their path-dependent loads.
"""

from graphs.walks.compiled.merging import gather as gather
from graphs.walks.compiled.merging import merge as merge
from graphs.walks.compiled.merging import scatter as scatter
from graphs.walks.compiled.pushing import cumulate as cumulate
from graphs.walks.compiled.pushing import draw_starts as draw_starts
from graphs.walks.compiled.pushing import push as push
from graphs.walks.compiled.pushing import reach as reach
from graphs.walks.compiled.stepping import final_nodes as final_nodes
from graphs.walks.compiled.stepping import walk as walk
