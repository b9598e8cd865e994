"""Random walks on a graph as a frozen draw of sparse features."""

from graphs.walks.costs import walk_costs as walk_costs
from graphs.walks.halting import choose_halt as choose_halt
from graphs.walks.halting import survival_for as survival_for
from graphs.walks.hops import HopRule as HopRule
from graphs.walks.moments import largest_halt as largest_halt
from graphs.walks.moments import relative_variance as relative_variance
from graphs.walks.moves import TRANSITIONS as TRANSITIONS
from graphs.walks.sampling import sample_walks as sample_walks
from graphs.walks.walks import Pattern as Pattern
from graphs.walks.walks import Walks as Walks
from graphs.walks.walks import WalkSettings as WalkSettings
