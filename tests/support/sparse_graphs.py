"""Graphs on which sparse precisions are compared with dense formulas."""

import networkx as nx
import numpy as np
import scipy.sparse as sp
import trimesh

import graphs


def _weighted(graph, decades=1.0, seed=0):
    rng = np.random.default_rng(seed)
    for a, b in graph.edges:
        graph[a][b]["weight"] = 10 ** rng.uniform(-decades / 2, decades / 2)
    return graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(graph), weight="weight")


def _roads():
    graph = nx.grid_2d_graph(12, 9)
    graph.remove_edges_from([edge for i, edge in enumerate(sorted(graph.edges)) if i % 3 == 0])
    return graph


GRAPHS = {
    "mesh": lambda: graphs.Graph.from_mesh(trimesh.creation.icosphere(2), nodes="vertices", weights="cotangent"),
    "faces": lambda: graphs.Graph.from_mesh(trimesh.creation.cylinder(1.0, 3.0), nodes="faces"),
    "roads": lambda: _weighted(_roads(), 1.0),
    "grid": lambda: _weighted(nx.grid_2d_graph(10, 11), 0.0),
    "random": lambda: _weighted(nx.random_regular_graph(6, 90, seed=1), 1.0),
    "star": lambda: _weighted(nx.star_graph(60), 1.0),
    "path": lambda: _weighted(nx.path_graph(80), 0.0),
    "tree": lambda: _weighted(nx.random_labeled_tree(90, seed=2), 2.0),
    "complete": lambda: _weighted(nx.complete_graph(30), 1.0),
    "parts": lambda: _weighted(nx.disjoint_union(nx.cycle_graph(40), nx.empty_graph(5)), 1.0),
    "scale-free": lambda: _weighted(nx.barabasi_albert_graph(100, 2, seed=3), 1.0),
    "eight decades": lambda: _weighted(nx.random_geometric_graph(90, 0.2, seed=4), 8.0),
}


def definite(graph, shift=0.3, hops=1):
    """Return a positive definite matrix on so many hops of a graph, `csr_array` with its whole diagonal."""
    size = graph.num_nodes
    one = sp.csr_array(sp.eye_array(size) * (1 + shift) - graph.shift_operator)
    out = one
    for _ in range(hops - 1):
        out = sp.csr_array(out @ one)
    out = sp.csr_array((out + out.T) / 2)
    out.sort_indices()
    return out


def star(size):
    """Return the weights (size, size) of a star of so many nodes, `csr_array`."""
    rays = sp.coo_array((np.ones(size - 1), (np.zeros(size - 1, int), np.arange(1, size))), shape=(size, size))
    return sp.csr_array(rays + rays.T)
