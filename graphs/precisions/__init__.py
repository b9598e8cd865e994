"""Gaussian fields with a sparse precision: on graphs, meshes, roads and one column, and products of them."""

from graphs.precisions.chains import ChainField as ChainField
from graphs.precisions.fields import IndependentField as IndependentField
from graphs.precisions.fields import KroneckerField as KroneckerField
from graphs.precisions.fields import MarkovField as MarkovField
from graphs.precisions.fields import Precision as Precision
from graphs.precisions.fields import ResolventField as ResolventField
from graphs.precisions.fields import SymmetricPattern as SymmetricPattern
from graphs.precisions.mesh import MeshField as MeshField
from graphs.precisions.nodes import RationalField as RationalField
from graphs.precisions.nodes import default_num_terms as default_num_terms
from graphs.precisions.nodes import resolvent_field as resolvent_field
from graphs.precisions.roads import RoadField as RoadField
