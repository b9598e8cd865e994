"""Random walks on a graph, drawn into plain arrays; `graphs.features` makes features of them."""

from graphs.walks.drawing import Columns as Columns
from graphs.walks.drawing import check_memory as check_memory
from graphs.walks.drawing import draw as draw
from graphs.walks.drawing import joined as joined
from graphs.walks.halting import choose_halt as choose_halt
from graphs.walks.halting import survival_for as survival_for
from graphs.walks.moments import largest_halt as largest_halt
from graphs.walks.moments import relative_variance as relative_variance
from graphs.walks.sampling import choose_settings as choose_settings
from graphs.walks.settings import TRANSITIONS as TRANSITIONS
from graphs.walks.settings import HopRule as HopRule
from graphs.walks.settings import WalkSettings as WalkSettings
