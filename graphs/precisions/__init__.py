"""Sparse precisions: of kernels on graphs, of fields on meshes and on roads."""

from graphs.precisions.location import Location as Location
from graphs.precisions.mesh import MeshField as MeshField
from graphs.precisions.role import MarkovField as MarkovField
from graphs.precisions.role import Pattern as Pattern
