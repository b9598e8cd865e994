"""Gaussian fields with a sparse precision: on graphs, meshes, roads and one column, and products of them."""

from graphs.precisions.base import MarkovField as MarkovField
from graphs.precisions.base import Pattern as Pattern
from graphs.precisions.chains import ChainField as ChainField
from graphs.precisions.independent import IndependentField as IndependentField
from graphs.precisions.kronecker import KroneckerField as KroneckerField
from graphs.precisions.mesh import MeshField as MeshField
from graphs.precisions.precision import Precision as Precision
from graphs.precisions.rational import RationalField as RationalField
from graphs.precisions.rational import default_num_terms as default_num_terms
from graphs.precisions.replicated import ReplicatedField as ReplicatedField
from graphs.precisions.resolvent import ResolventField as ResolventField
from graphs.precisions.resolvent import resolvent_field as resolvent_field
from graphs.precisions.roads import RoadField as RoadField
