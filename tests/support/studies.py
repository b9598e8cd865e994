"""Tables, surfaces and roads for studies and their pages."""

import numpy as np
import trimesh

import graphs
from rfgp import datasets, fields
from rfgp.tables import Table


def small_table(n=150):
    table = datasets.make_table()
    return Table(table.X[:n], table.y[:n], table.columns, table.target)


def ball(on_faces=True, subdivisions=2):
    mesh = trimesh.creation.icosphere(subdivisions=subdivisions)
    graph = graphs.Graph.from_mesh(mesh, nodes="faces" if on_faces else "vertices")
    seen = np.arange(0, graph.num_nodes, 3)
    return fields.Field(graph, seen, graph.coordinates[seen, 2], "height", mesh=mesh, on_faces=on_faces)


def town():
    """Return roads with a sensor at each observation; the first road is one-way."""
    roads = datasets.make_roads()
    labels = np.array([f"sensor-{i}" for i in range(len(roads.values))], dtype=object)
    roads = roads._replace(road_properties=({"oneway": "yes"}, *({},) * (len(roads.lines) - 1)))
    return fields.Field(graphs.Graph.from_roads(*roads[:3]), labels, roads.values, "mph", roads=roads)
