"""The Gaussian process on the nodes of a graph."""

from rfgp.models.graph.checks import FeatureCheck as FeatureCheck
from rfgp.models.graph.features import NONZEROS_PER_WALKER as NONZEROS_PER_WALKER
from rfgp.models.graph.model import GraphGP as GraphGP
from rfgp.models.graph.model import describe_features as describe_features
from rfgp.models.graph.model import num_nonzeros as num_nonzeros
