"""Calls that are refused: the exact class of the error, and words of its message."""

from dataclasses import replace
from functools import partial

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from refusals import refused
from sparse_graphs import star

import graphs
from graphs import Graph, HopRule, MeshField, RoadField, RoadNetwork, cholesky, kernels, precisions

of_mesh, of_grid, of_points = Graph.from_mesh, Graph.from_grid, Graph.from_points
of_edges, of_matrix, of_networkx = Graph.from_edges, Graph.from_scipy, Graph.from_networkx
of_roads = partial(Graph.from_roads, metric="euclidean")
flat = partial(RoadNetwork.from_lines, metric="euclidean")

TWO = np.ones((2, 2)) - np.eye(2)
PAIR, SMALL = of_matrix(TWO), of_grid((3, 4))
PATH, STAR, RING = (of_networkx(make(16)) for make in (nx.path_graph, nx.star_graph, nx.cycle_graph))
WEIGHTED = of_edges([(0, 1), (1, 2)], [1.0, 2.0])
BOX, BALL, ZEROS = trimesh.creation.box(), trimesh.creation.icosphere(1), np.zeros((3, 3))
SQUARE, EYE = [(0, 0), (1, 0), (1, 1), (0, 1)], np.eye(3)
LINES = [[(0, 0), (1, 0)], [(1, 0), (1, 1), (2, 1)], [(0, 0), (0, 3), (1, 0)]]
HUGE, LONG = 10**9, kernels.Diffusion(3.0)

ROADS, ROAD, GLOBE = flat(LINES), flat(LINES[:1]), RoadNetwork.from_lines(LINES[:1])
FIELD, ON_ROADS, PRECISION = MeshField(BALL), RoadField(ROADS), kernels.Matern(2, 2.0).precision(PATH)
walks = partial(graphs.sample_walks, STAR, seed=0)
learned = partial(graphs.sample_walks, SMALL, num_walkers=2, lengths="learned")
match = partial(graphs.match_quantiles, SMALL)
order = partial(cholesky.analyze, method="dissection")


def altered(**arrays):
    """Return a matrix that scipy makes without a word, and whose conversion reads out of bounds."""
    matrix = sp.csr_array(TWO)
    for name, array in arrays.items():
        setattr(matrix, name, np.array(array))
    return matrix


def falling(kind, *shape):
    return kind((np.ones((4, *shape)), np.array([1, 0, 2, 1]), np.array([0, 1, 3, 4, 0])), shape=(4, 4))


def analyze(indptr, indices):
    return order(np.array(indptr), np.array(indices))


def umbrella(count):
    """Return the vertices and faces of a disk, whose center is a neighbor of all other vertices."""
    angle, others = np.linspace(0, 2 * np.pi, count, endpoint=False), np.arange(1, count + 1)
    vertices = np.vstack([np.zeros((1, 3)), np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)])
    return vertices, np.stack([0 * others, others, np.roll(others, -1)], axis=1)


ARGUMENTS = {
    # meshes and grids
    'weights must be "unit" or "edge-length" between faces': lambda: of_mesh(BOX, weights="cotangent"),
    "(20, 30), got ()": lambda: of_grid(()),
    "2 axes, got (1, 0)": lambda: of_grid((3, 3), periodic=(1, 0)),
    "spacing must be one positive number": lambda: of_grid((3, 3), spacing=2.0),
    "each of the 2 axes, got (1, 0)": lambda: of_grid((3, 3), spacing=(1, 0)),
    "Ratios of spacings": lambda: of_grid((3, 3), spacing=(1e-300, 1e300)),
    "must end in the range": lambda: of_grid((3, 3), spacing=(1, 1e308)),
    # points and roads
    "k must be at most 2": lambda: of_points(ZEROS, 3),
    "Pass more points": lambda: of_points(ZEROS[:1], 1),
    'weights must be "gaussian"': lambda: of_points(EYE, 1, weights="unit", bandwidth=1.0),
    "bandwidth must be a positive number": lambda: of_points(EYE, 1, bandwidth=0.0),
    "sensor_edges (1,), got [0.1, 0.2]": lambda: of_roads(LINES, [0], [0.1, 0.2]),
    "min_length must be": lambda: of_roads(LINES, min_length=-1),
    "snap must be a number of at least 0": lambda: flat(LINES, snap=-1),
    "roads must be graphs.Roads": lambda: RoadNetwork.from_roads(LINES),
    "roads 0..2, got 3": lambda: ROADS.point([(3, 0.5)]),
    "Positions must be (n, 2)": lambda: ROADS.point([0.5]),
    "Point 0 must lie within 0.5 of a road, got 9": lambda: ROAD.nearest([(0.5, 9.0)], within=0.5),
    "Point 1 must lie within 0.1 of": lambda: ROAD.nearest([(0.5, 0.01), (0.5, 9.0)]),
    "within 500 m of a road, got 555": lambda: GLOBE.nearest([(0.5, 0.005)]),
    "Points must be longitudes": lambda: GLOBE.nearest([(0.5, 100.0)]),
    "Point 0 must be finite": lambda: ROAD.nearest([(0.5, np.nan)]),
    "Point 0 must be finite and below 1e+100": lambda: ROAD.nearest([(1e160, 0)], within=np.inf),
    # graphs
    "weight must be the name": lambda: of_networkx(nx.path_graph(2), weight=["a"]),
    "self_loops must be one of": lambda: of_matrix(TWO, self_loops="ignore"),
    "at least one node, got none": lambda: PAIR.subgraph([]),
    "positions must be distinct": lambda: PAIR.subgraph(np.array([1, 1])),
    "at most 20000 nodes": lambda: LONG.exact(of_matrix(sp.csr_array((20_001, 20_001)))),
    # kernels
    "lengthscale must be a positive number, got 0.0": lambda: kernels.Diffusion(0.0),
    "lengthscale must be a positive number, got True": lambda: kernels.Diffusion(True),
    "got float64 of shape (0,)": lambda: kernels.Spectral(None),
    "function must map eigenvalues": lambda: kernels.Spectral(lambda x: -x),
    "positive at 0": lambda: kernels.Spectral(lambda x: x),
    "unexpected keyword argument 'nu'": lambda: kernels.by_name("diffusion", nu=1),
    "values must be one number": lambda: LONG.with_values([1.0, 2.0]),
    "got 1.5 and 2.0": lambda: kernels.RandomWalk(1.5),
    "got 2 and 1.9": lambda: kernels.RandomWalk(2, 1.9),
    "no zero inside |u| = 1, got one at 0.5": lambda: kernels.PowerSeries([1.0, 2.0]),
    "the first positive, got [0.0, 1.0]": lambda: kernels.Modulated([0.0, 1.0]),
    "coefficients must have squares": lambda: kernels.Modulated((1.0, 1e308)),
    "range of double precision, got Diffusion": lambda: kernels.Diffusion(1e200),
    "range of double precision, got RandomWalk": lambda: kernels.RandomWalk(301, 1e10),
    "base must be a kernel": lambda: kernels.FreeModulation(kernels.InverseCosine()),
    "at least one, got ()": lambda: kernels.FreeModulation(factors=()),
    "at least one, got (1.0, 0.0)": lambda: kernels.FreeModulation(factors=(1.0, 0.0)),
    "length must be an integer from 0": lambda: LONG.modulation(10**12),
    # fields
    "alpha must be an integer from 1 to 6": lambda: MeshField(BALL, 7),
    "lengthscale must be in the range of a mesh": lambda: MeshField(BALL, 6).entries([1e300]),
    "Points must be real numbers (n, 3)": lambda: FIELD.locate([(0, 0)]),
    "Point 1 must be finite and below": lambda: FIELD.locate([(0, 0, 1), (0, np.nan, 1)]),
    "within 1.5 of the surface, got row 1": lambda: FIELD.locate([(0, 0, 1), (0, 0, 3)], within=1.5),
    "faces must be integers (n,) from 0 to 79": lambda: FIELD.projector([80]),
    "barycentric must have shape (2, 3)": lambda: FIELD.projector([0, 1], [(1, 0, 0)]),
    "got [1.5, -0.5, 0.0] in row 0": lambda: FIELD.projector([0], [(1.5, -0.5, 0)]),
    "in row 1": lambda: FIELD.projector([0, 0], [(1, 0, 0), (1, 0, 1)]),
    "roads must be a graphs.RoadNetwork": lambda: RoadField([(0, 0), (1, 1)]),
    "alpha must be 1 or 2": lambda: RoadField(ROADS, 3),
    "lengthscale must be one positive number": lambda: ON_ROADS.entries([-1.0]),
    "weights must have shape": lambda: ON_ROADS.pull_back([1.0], [1.0]),
    "within must be a number of at least 0": lambda: ON_ROADS.refine([(0, 0.5)], within=-1),
    "knots must be ascending": lambda: precisions.ChainField([1.0, 0.0]),
    "unit must be a positive number": lambda: precisions.ChainField([0.0], 1, 0.0),
    "between the knots 0 and 1": lambda: precisions.ChainField([0.0, 1.0]).projector([1.5]),
    "fractional part of a power": lambda: precisions.RationalField(PATH, 2.0, 3),
    "its order 1.5 is fractional": lambda: kernels.Matern(1.5, 2.0).precision(PATH),
    "not a polynomial of the Laplacian": lambda: kernels.RandomWalk().precision(PATH),
    "positions must be integers (n,) from 0 to 15": lambda: PRECISION.covariance(np.array([0.5])),
    "b must have shape": lambda: PRECISION.solve(np.zeros(3)),
    # walks
    "num_walkers must be": lambda: walks(num_walkers=0),
    "about 1.0e+10 steps per node": lambda: walks(num_walkers=HUGE, exact_hops=0),
    "strictly between 0 and 1": lambda: walks(p_halt=0.0),
    "got array([0.9, 0.5])": lambda: walks(p_halt=[0.9, 0.5]),
    "got array([1. , 0.5, 0.6])": lambda: walks(p_halt=[1.0, 0.5, 0.6]),
    "got array([1., 0.])": lambda: walks(p_halt=[1.0, 0.0]),
    "P(length >= l)": lambda: walks(p_halt=[]),
    "p_halt must be a number or an array": lambda: walks(p_halt="0.1x"),
    "Pad a shorter power series": lambda: walks(exact_hops=0).values([1.0]),
    "got 'lazy'": lambda: walks(transitions="lazy"),
    "exact_hops must be": lambda: walks(exact_hops=-1),
    "num_threads must be": lambda: walks(num_threads=-1),
    "max_memory must be": lambda: walks(max_memory=float("nan")),
    "kernel must be a graphs.kernels.GraphKernel": lambda: walks(kernel="diffusion"),
    "got 9223372036854775808": lambda: walks(seed=2**63),
    "num_walkers must be even": lambda: walks(num_walkers=3, lengths="sigma"),
    "got [0, 0]": lambda: walks(lengths="sigma", permutation=[0, 0]),
    "must have uniform moves": lambda: graphs.sample_walks(WEIGHTED, step_coupling="repelling"),
    "integer limits (H + 1,)": lambda: HopRule([1.0, 2.5]),
    "with 2 walkers for Diffusion": lambda: graphs.choose_p_halt(STAR, kernels.Diffusion(100.0), 2),
    "with 16 walkers for InverseCosine()": lambda: graphs.choose_p_halt(STAR, kernels.InverseCosine()),
    "non-negative modulation": lambda: graphs.optimal_survival(kernels.RandomWalk(3, 2.0)),
    "integers of shape (S, 2)": lambda: learned(tuples=np.zeros((4, 3), int)),
    "every quantile equally often": lambda: learned(tuples=[[0, 1], [0, 1]]),
    # features, couplings of quantiles, and ranks
    "degree must be an integer from 0 to 10000": lambda: graphs.chebyshev_features(RING, degree=HUGE),
    "weights must have shape (7,)": lambda: graphs.chebyshev_features(RING).values([1.0]),
    "eigenvalues must be numbers (n,) in [0, 2]": lambda: graphs.spectral_density(STAR, [-0.1]),
    "at most 9 for exhaustive search": lambda: match(LONG, 0.1, 10, objective="quadratic"),
    "costs must be finite": lambda: match(LONG, 0.1, 2, costs=[[1, np.nan], [0, 1]]),
    "at most 65,537 powers": lambda: graphs.quantile_costs(SMALL, kernels.Diffusion(600.0), 0.1, 3),
    "got [[0], [1, 2]]": lambda: graphs.matching_variance(SMALL, LONG, [[0], [1, 2]]),
    "must be at least 2": lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 1),
    "multiple of the 8 quantiles": lambda: graphs.couple_quantiles(SMALL, LONG, 0.1, 4, 8, num_tuples=12),
    "for 1,000,000,000 walkers": lambda: graphs.walk_costs(RING, LONG, num_walkers=HUGE),
    "one halting probability for PageRank": lambda: graphs.pagerank(STAR, [1.0, 0.5]),
    "got 'learned'": lambda: graphs.pagerank(STAR, lengths="learned"),
    "for a weighted graph": lambda: graphs.pagerank(WEIGHTED, step_coupling="repelling"),
    "max_nonzeros must be a positive": lambda: graphs.advise(PATH, LONG, 0),
    "must be a probability, got [1, 0.5]": lambda: graphs.advise(PATH, LONG, p_halt=[1, 0.5]),
    # patterns of sparse factors
    "got array([[0., 0., 0., 0.]])": lambda: order(np.array([0, 1]), np.array([0]), coordinates=np.zeros((1, 4))),
    "vectors of integers": lambda: analyze([[0, 1]], [0]),
    "must ascend": lambda: analyze([0, 1], [0, 0]),
    "ascend": lambda: analyze([0, 2, 1], [0]),
    "from 0 to 1": lambda: analyze([0, 1, 2], [1, -1]),
    "to 1": lambda: analyze([0, 1, 2], [1, 2]),
}
GRAPHS = {
    # meshes
    "corners of face 0 must be vertices 0..2": lambda: of_mesh((ZEROS, [[0, 1, 3]])),
    "got [0, -1, 2]": lambda: of_mesh((ZEROS, [[0, 1, 2], [0, -1, 2]])),
    "got (4, 2) and (1, 4)": lambda: MeshField((SQUARE, [(0, 1, 2, 3)])),
    "entry [0, 2] is 2.9": lambda: of_mesh((ZEROS, [[0, 1, 2.9]])),
    "got no faces": lambda: MeshField(trimesh.PointCloud(EYE)),
    "Vertex 2 must have finite": lambda: MeshField(([*EYE[:2], (0, np.inf, 1)], [(0, 1, 2)])),
    "got 0 and 3 with the same coordinates": lambda: of_mesh(
        ([(0, 0, 0), (1, 0, 0), (0, 1, 0), (5e-324, 0, 0)], [(0, 1, 2), (0, 3, 2)]), "vertices", weights="edge-length"
    ),
    "Faces of an edge must differ, got 0 and 1": lambda: of_mesh(
        ([(0, 0, 0)] * 3 + [(1e-310, 0, 0), (1, 1, 0)], [(0, 1, 2), (1, 2, 3)]), weights="edge-length"
    ),
    "scene must contain": lambda: of_mesh(trimesh.Scene()),
    "an object with vertices and faces": lambda: MeshField(3),
    "Vertices must be distinct, got 1 and 4": lambda: MeshField(([*SQUARE, (1, -0.0)], [(0, 1, 2), (0, 4, 3)])),
    "got those of vertex 0": lambda: MeshField(([*SQUARE, (1e-25, 0), (0, 1e-25)], [(0, 4, 5), (1, 2, 3)])),
    # grids and points
    "1000000000000 nodes and 1999998000000 edges": lambda: of_grid((10**6, 10**6)),
    "and 4000000000000 edges": lambda: of_grid((10**6, 10**6), periodic=True, diagonals=True),
    f"{2**19 * (2**20 - 1)} edges": lambda: of_grid((2,) * 20, diagonals=True),
    "got [[1, 2], [3]]": lambda: of_points([[1, 2], [3]]),
    "Pass points[:, None]": lambda: of_points(np.zeros(30), 2),
    "Point 1 must have finite": lambda: of_points([[0, 0], [0, np.nan], [1, 1]], 1),
    "Points of an edge must differ": lambda: of_points(np.repeat(EYE, 9, axis=0), 3, weights="length"),
    "Pass bandwidth=": lambda: of_points(np.repeat(EYE, 9, axis=0), 3),
    # roads
    "Sensor 0 must lie on one of the roads 0..2": lambda: of_roads(LINES, [7], [0.5]),
    "at a fraction in [0, 1] of its road": lambda: of_roads(LINES, [0], [1.1]),
    "entry [0] is 0.9": lambda: of_roads(LINES, [0.9], [0.5]),
    "Road 0 must have at least two points": lambda: flat([[(0, 0)]]),
    "Road 0 must have a length": lambda: flat([[(5, 5), (5, 5)]]),
    "Road 1 must have finite coordinates": lambda: flat([LINES[0], [(0, 0), (np.nan, 1)]]),
    "list of lines": lambda: Graph.from_roads(None),
    "at least one road": lambda: flat([]),
    "(first road 0)": lambda: flat([LINES[0], [(1, 0, 5), (1, 1, 5)]]),
    "Lengths of road segments": lambda: of_roads([[(0, 0), (1e-160, 0)], [(1e-160, 0), (1e150, 0)]]),
    "lengths must be a number": lambda: replace(ROADS, lengths=[1.0, 2.0]),
    "got [1.0, -1.0, 2.0]": lambda: replace(ROADS, lengths=[1.0, -1.0, 2.0]),
    "Road 1 must have a positive": lambda: replace(ROADS, lengths=[1.0, 0.0, 1.0]),
    "less than the distance of neighboring": lambda: of_roads(
        list(np.random.default_rng(1).uniform(0, 1, (2000, 2, 2))), snap=0.5
    ),
    # matrices, edges and networkx
    "csr": lambda: of_matrix(falling(sp.csr_array)),
    "bsr": lambda: of_matrix(falling(sp.bsr_array, 1, 1)),
    "must ascend": lambda: of_matrix(altered(indptr=[0, 1, 200])),
    "ascend": lambda: of_matrix(altered(data=[1.0])),
    "negative": lambda: of_matrix(altered(indices=[1, -1])),
    "must be square": lambda: of_matrix(np.ones((2, 3))),
    "must be symmetric": lambda: of_matrix(np.array([[0, 1], [2, 0]])),
    "entries (0, 2)": lambda: of_matrix([[0, 1e13, 1], [1e13, 0, 0], [0, 0, 0]]),
    "got inf": lambda: of_matrix(np.array([[0, np.inf], [np.inf, 0]])),
    "complex": lambda: of_matrix(np.array([[0, 1j], [1j, 0]])),
    "numeric matrix": lambda: of_matrix([["a", "b"], ["c", "d"]]),
    "1 self-loop": lambda: of_matrix(np.array([[2.0, 1.0], [1.0, 0.0]])),
    "Labels must be distinct": lambda: of_matrix(TWO, labels=["a", "a"]),
    "1 label for 2 nodes": lambda: of_matrix(TWO, labels=["a"]),
    "got -1.0": lambda: of_edges([(0, 1)], [-1.0]),
    "one per edge, got (2,)": lambda: of_edges([(0, 1)], [1, 2]),
    "too large to convert": lambda: of_edges([(0, 1)], [10**400]),
    "finite sum": lambda: of_edges([(0, 1), (1, 2)], [1.7e308, 1.7e308]),
    "1e-320 to 1e+300": lambda: of_edges([(0, 1), (1, 2)], [1e-320, 1e300]),
    "Edge 0 must be a pair": lambda: of_edges([(0, 1, 2)]),
    "at least one node": lambda: of_edges([]),
    "Edges must be a sequence": lambda: of_edges(None),
    "must be hashable": lambda: of_edges([(1, [2])]),
    "got NaN": lambda: of_edges([(float("nan"), 0.0)]),
    "Nodes must be a sequence": lambda: of_edges([(0, 1)], nodes=5),
    "to_undirected": lambda: of_networkx(nx.MultiDiGraph([(0, 1)])),
    "a value of type int": lambda: of_networkx(nx.Graph([(0, 1, {"weight": 10**5000})])),
    "got dia_array": lambda: of_networkx(sp.eye_array(3)),
}
NODES = {
    "0..11, got 12": lambda: of_mesh(BOX).index([12]),
    "got (3, 0)": lambda: SMALL.index([(0, 0), (3, 0)]),
    "got (0, -1)": lambda: SMALL.index([(0, -1)]),
    "not booleans": lambda: SMALL.index([(0, True)]),
    "0..1, not booleans": lambda: PAIR.labels_at([0, True]),
}
MEMORY = {
    "Use a lower degree": lambda: graphs.chebyshev_features(RING, degree=6, max_memory=1000),
    "1000000000 probes": lambda: graphs.spectral_density(RING, [1.0], num_probes=HUGE),
    "128 tuples of 1000000000 walkers": lambda: graphs.couple_quantiles(RING, LONG, num_walkers=HUGE),
    "50 quantiles of": lambda: graphs.match_pagerank_quantiles(RING, p_halt=1e-9),
    "Hubs": lambda: kernels.Matern(2, 1.0).precision(of_matrix(star(300_000))),
    "coarser mesh": lambda: MeshField(umbrella(150_000)),
    "60,000": lambda: precisions.KroneckerField(*[precisions.ChainField(np.arange(60_000.0))] * 2).entries(np.ones(2)),
}
REFUSED = {
    graphs.InvalidArgumentError: ARGUMENTS,
    graphs.InvalidGraphError: GRAPHS,
    graphs.UnknownNodeError: NODES,
    graphs.MemoryBudgetError: MEMORY,
    graphs.FileFormatError: {"no file missing.ply": lambda: MeshField("missing.ply")},
}


@pytest.mark.parametrize(("error", "word"), [(error, word) for error, calls in REFUSED.items() for word in calls])
@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
def test_bad_calls_are_refused(error, word):
    with np.errstate(all="ignore"):
        refused(REFUSED[error][word], error, word)
