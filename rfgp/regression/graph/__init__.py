"""Models of one kernel on the nodes of a graph: the record of a selection of features, and their diagnosis."""

from rfgp.regression.graph.checks import FeatureCheck as FeatureCheck
from rfgp.regression.graph.checks import check_features as check_features
from rfgp.regression.graph.checks import features_of as features_of
from rfgp.regression.graph.choosing import advised_choice as advised_choice
from rfgp.regression.graph.choosing import choice_of as choice_of
from rfgp.regression.graph.choosing import choice_of_features as choice_of_features
from rfgp.regression.graph.choosing import exact_choice as exact_choice
