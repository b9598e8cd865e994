"""Models of fields on roads, surfaces and graphs beside columns of other kinds, on small made tables."""

from functools import cache

import numpy as np
import trimesh

import graphs
from rfgp import kernels as k

N = 70


def network():
    """Return three roads that meet, in metres."""
    lines = [[(0, 0), (1000, 0), (2000, 300)], [(1000, 0), (1000, 1000)], [(1000, 1000), (2000, 300)]]
    return graphs.RoadNetwork.from_lines(
        [[(float(x), float(y)) for x, y in line] for line in lines], metric="euclidean"
    )


def ring(size=40):
    return graphs.Graph.from_edges([(f"n{i}", f"n{(i + 1) % size}") for i in range(size)])


def rows(n, seed):
    rng = np.random.default_rng(seed)
    ball = trimesh.creation.icosphere(2)
    points = ball.vertices[rng.integers(0, len(ball.vertices), n)] + 0.01 * rng.normal(size=(n, 3))
    return {
        "road": rng.integers(0, 3, n),
        "fraction": rng.uniform(0, 1, n),
        "hour": rng.uniform(0, 24, n),
        "sensor": rng.choice(list("abcdef"), n),
        "x": points[:, 0],
        "y": points[:, 1],
        "z": points[:, 2],
        "pressure": rng.normal(2, 1, n),
        "node": np.array([f"n{i}" for i in rng.integers(0, 40, n)]),
    }


ROWS, NEW = rows(N, 1), rows(8, 2)
Y = np.sin(3 * ROWS["fraction"]) + 0.1 * ROWS["hour"] + 0.3 * ROWS["x"] + 0.2 * np.cos(9 * ROWS["pressure"])


@cache
def kernels():
    """Return kernels by the names of their cases."""
    net, ball, graph = network(), trimesh.creation.icosphere(2), ring()
    roads, mesh = k.Roads(net, name="field", lengthscale=500.0), k.Mesh(ball, name="field", lengthscale=0.5)
    matern = graphs.kernels.Matern(nu=2, kappa=1.5)
    nodes = k.Nodes(graph, matern, name="field")
    return {
        "roads": roads + k.Periodic("hour", 24.0, name="season") + k.Group("sensor", name="group"),
        "rough and smooth roads": roads + k.Roads(net, 2, lengthscale=900.0).named("smooth"),
        "a field of each sensor": roads + (k.Roads(net, lengthscale=300.0) * k.Group("sensor")).named("own"),
        "a coefficient on roads": roads + (k.Roads(net, lengthscale=700.0) * k.Linear("hour")).named("own"),
        "slopes of each sensor": roads + (k.Roads(net) * k.Linear("hour") * k.Group("sensor")).named("own"),
        "mesh": mesh + k.Linear("pressure", name="slope"),
        "a coefficient on a mesh": (mesh * k.Linear("pressure")).named("field") + k.Group("sensor", name="group"),
        "nodes": nodes + k.Linear("pressure", name="slope") + k.Matern("hour", name="trend"),
        "nodes of each sensor": (nodes * k.Group("sensor")).named("field"),
        "many groups": k.Group("sensor", name="field") + k.Matern("hour", name="trend"),
        "slopes of groups": (k.Group("sensor") * k.Linear("hour")).named("field") + k.Matern("hour", name="trend"),
        "all domains": roads + mesh.named("surface") + k.Nodes(graph, matern, name="graph") + k.Group("sensor"),
    }


CASES = tuple(kernels())
