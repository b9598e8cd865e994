"""The family of the nodes of a graph: walks, series, a truncated spectrum, or the exact kernel."""

from rfgp.approximations.node_features import NONZEROS_PER_WALKER as NONZEROS_PER_WALKER
from rfgp.approximations.node_features import DrawnFeatures as DrawnFeatures
from rfgp.approximations.node_features import SpectrumFeatures as SpectrumFeatures
from rfgp.approximations.node_features import make_features as make_features
from rfgp.regression.graph.checks import FeatureCheck as FeatureCheck
from rfgp.regression.graph.choosing import EXACT_LIMIT as EXACT_LIMIT
from rfgp.regression.graph.choosing import advised_choice as advised_choice
from rfgp.regression.graph.choosing import exact_features as exact_features
from rfgp.regression.graph.family import FEATURES as FEATURES
from rfgp.regression.graph.family import WALK_OPTIONS as WALK_OPTIONS
from rfgp.regression.graph.family import GraphOptions as GraphOptions
from rfgp.regression.graph.family import NodeFamily as NodeFamily
