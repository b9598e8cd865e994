"""Models of one kernel on nodes of a graph: selection of features, and their diagnosis."""

from rfgp.regression.graph.checks import FeatureCheck as FeatureCheck
from rfgp.regression.graph.checks import check_features as check_features
from rfgp.regression.graph.checks import features_of as features_of
from rfgp.regression.graph.selection import advised_selection as advised_selection
from rfgp.regression.graph.selection import exact_selection as exact_selection
from rfgp.regression.graph.selection import selection_of as selection_of
from rfgp.regression.graph.selection import selection_of_features as selection_of_features
