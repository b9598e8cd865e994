"""Random walks on a graph, drawn into plain arrays; `graphs.features` makes features of them.

Words that the modules use:

    load            the importance weight of a walker at a step: products of weights over probabilities
    visit           a node, a hop and the sum of loads of the walkers that were there after so many steps
    hop             the number of steps from the start, the power of the shift operator that a visit estimates
    exact hops      the first powers, which are computed and not estimated
    push            a multiplication of a sparse row by the shift operator
"""

from graphs.walks.drawing import VisitArrays as VisitArrays
from graphs.walks.drawing import check_memory as check_memory
from graphs.walks.drawing import concatenate_visits as concatenate_visits
from graphs.walks.drawing import draw as draw
from graphs.walks.sampling import choose_p_halt as choose_p_halt
from graphs.walks.sampling import max_p_halt as max_p_halt
from graphs.walks.sampling import optimal_survival as optimal_survival
from graphs.walks.sampling import relative_variance as relative_variance
from graphs.walks.transitions import TRANSITIONS as TRANSITIONS
from graphs.walks.transitions import HopRule as HopRule
from graphs.walks.transitions import WalkSettings as WalkSettings
