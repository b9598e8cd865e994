"""Fields on meshes and roads: values at some nodes of a graph in space, read from and written to files."""

from rfgp.fields.field import Field as Field
from rfgp.fields.meshes import read_mesh_field as read_mesh_field
from rfgp.fields.meshes import read_mesh_fields as read_mesh_fields
from rfgp.fields.predictions import RESULTS as RESULTS
from rfgp.fields.predictions import NodePosterior as NodePosterior
from rfgp.fields.predictions import node_inputs as node_inputs
from rfgp.fields.predictions import observed_inputs as observed_inputs
from rfgp.fields.predictions import posterior_at_nodes as posterior_at_nodes
from rfgp.fields.predictions import whittle_matern as whittle_matern
from rfgp.fields.predictions import write_mesh as write_mesh
from rfgp.fields.predictions import write_nodes as write_nodes
from rfgp.fields.predictions import write_roads as write_roads
from rfgp.fields.reading import FIELD_SUFFIXES as FIELD_SUFFIXES
from rfgp.fields.reading import ROAD_SUFFIXES as ROAD_SUFFIXES
from rfgp.fields.reading import read_field as read_field
from rfgp.fields.reading import read_road_field as read_road_field
from rfgp.fields.reading import read_road_fields as read_road_fields
