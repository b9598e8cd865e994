"""Graphs, graph kernels, random walk features and Gaussian Markov random fields.

The package depends on numpy, scipy and numba, not on torch. Functions take and return node labels. Inside, nodes are
positions 0..N-1.
"""

from graphs import errors as errors
from graphs import kernels as kernels
from graphs.advice import Advice as Advice
from graphs.advice import Candidate as Candidate
from graphs.advice import advise as advise
from graphs.builders import Roads as Roads
from graphs.builders import SplitRoads as SplitRoads
from graphs.builders import load_mesh as load_mesh
from graphs.builders import read_roads as read_roads
from graphs.builders import split_roads as split_roads
from graphs.costs import walk_costs as walk_costs
from graphs.errors import DegenerateFacesWarning as DegenerateFacesWarning
from graphs.errors import DisconnectedWarning as DisconnectedWarning
from graphs.errors import DuplicateFacesWarning as DuplicateFacesWarning
from graphs.errors import DuplicateRoadsWarning as DuplicateRoadsWarning
from graphs.errors import FileFormatError as FileFormatError
from graphs.errors import GraphError as GraphError
from graphs.errors import GraphWarning as GraphWarning
from graphs.errors import InfiniteVarianceWarning as InfiniteVarianceWarning
from graphs.errors import InvalidArgumentError as InvalidArgumentError
from graphs.errors import InvalidGraphError as InvalidGraphError
from graphs.errors import LargeVarianceWarning as LargeVarianceWarning
from graphs.errors import MemoryBudgetError as MemoryBudgetError
from graphs.errors import MissingDependencyError as MissingDependencyError
from graphs.errors import NegativeCotangentsWarning as NegativeCotangentsWarning
from graphs.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from graphs.errors import SelfLoopsDroppedWarning as SelfLoopsDroppedWarning
from graphs.errors import SkippedFeaturesWarning as SkippedFeaturesWarning
from graphs.errors import UnknownNodeError as UnknownNodeError
from graphs.errors import UnreferencedVerticesWarning as UnreferencedVerticesWarning
from graphs.features import SeriesFeatures as SeriesFeatures
from graphs.features import SpectralFeatures as SpectralFeatures
from graphs.features import Walks as Walks
from graphs.features import chebyshev_features as chebyshev_features
from graphs.features import max_series_degree as max_series_degree
from graphs.features import sample_walks as sample_walks
from graphs.features import spectral_features as spectral_features
from graphs.features import taylor_features as taylor_features
from graphs.graph import Graph as Graph
from graphs.matching import couple_quantiles as couple_quantiles
from graphs.matching import match_quantiles as match_quantiles
from graphs.matching import matching_variance as matching_variance
from graphs.matching import quantile_costs as quantile_costs
from graphs.matching import quartic_costs as quartic_costs
from graphs.precisions import MeshField as MeshField
from graphs.precisions import Precision as Precision
from graphs.precisions import RoadField as RoadField
from graphs.ranking import match_pagerank_quantiles as match_pagerank_quantiles
from graphs.ranking import pagerank as pagerank
from graphs.roads import NearestPositions as NearestPositions
from graphs.roads import RoadEdges as RoadEdges
from graphs.roads import RoadNetwork as RoadNetwork
from graphs.spectral import spectral_density as spectral_density
from graphs.walks import HopRule as HopRule
from graphs.walks import choose_p_halt as choose_p_halt
from graphs.walks import max_p_halt as max_p_halt
from graphs.walks import optimal_survival as optimal_survival
from graphs.walks import relative_variance as relative_variance


def __dir__() -> list[str]:
    """Return the public names, without submodules that users do not need."""
    shown = {name: value for name, value in globals().items() if not name.startswith("_") and name != "quantile_costs"}
    return sorted(n for n, value in shown.items() if n in ("errors", "kernels") or not isinstance(value, type(errors)))
