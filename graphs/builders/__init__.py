"""Readers of graphs from other formats. They return plain arrays (`EdgeArrays`), never a Graph."""

from graphs.builders.edges import EdgeArrays as EdgeArrays
from graphs.builders.edges import clean as clean
from graphs.builders.edges import from_networkx as from_networkx
from graphs.builders.edges import from_pairs as from_pairs
from graphs.builders.edges import from_scipy as from_scipy
from graphs.builders.edges import read_gml as read_gml
from graphs.builders.mesh import from_mesh as from_mesh
from graphs.builders.mesh_files import load_mesh as load_mesh
from graphs.builders.points import from_grid as from_grid
from graphs.builders.points import from_points as from_points
from graphs.builders.road_files import Roads as Roads
from graphs.builders.road_files import read_roads as read_roads
from graphs.builders.roads import SplitRoads as SplitRoads
from graphs.builders.roads import from_roads as from_roads
from graphs.builders.roads import split_roads as split_roads
