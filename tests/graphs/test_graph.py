"""Graphs from pairs, matrices and networkx: labels, Laplacians, and what is no graph."""

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

import graphs
from graphs import Graph

TWO = np.ones((2, 2)) - np.eye(2)


def weighted(seed=0):
    G = nx.gnm_random_graph(30, 60, seed=seed)
    for i, (a, b) in enumerate(G.edges):
        G[a][b]["weight"] = 1.0 + i % 3
    return G


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.bsr_array, sp.coo_array, sp.lil_array, np.asarray])
def test_constructors_agree(kind):
    G = nx.path_graph(4)
    G[1][2]["weight"] = 2.5
    pairs = Graph.from_edges([(0, 1), (2, 1), (2, 3), (0, 3)], [1, 2.5, 1, 0.0])  # weights of 0 are dropped
    for g in (Graph.from_networkx(G), pairs, Graph.from_scipy(kind(nx.to_numpy_array(G)))):
        np.testing.assert_array_equal(g.adjacency.toarray(), nx.to_numpy_array(G))
        assert (g.num_nodes, g.num_edges, g.adjacency.indices.dtype) == (4, 3, np.int32)
        for array in (g.adjacency.data, g.adjacency.indices, g.shift_operator.data):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 5


def test_labels_and_positions_are_inverse():
    g = Graph.from_edges([("a", "b"), ("b", (1, 2))], nodes=["z", "b"])
    assert g.labels == ("z", "b", "a", (1, 2))
    assert g.index(["a", (1, 2), [1, 2]]).tolist() == [2, 3, 3]  # lists count as tuples
    assert Graph.from_edges([("a", (1, (2, 3)))]).index([[1, [2, 3]]]).tolist() == [1]
    assert Graph.from_edges([(True, "a")]).index(["a", True]).tolist() == [1, 0]
    assert Graph.from_networkx(nx.grid_2d_graph(2, 3)).index(np.array([(1, 2), (0, 0)])).tolist() == [5, 0]
    blocks = Graph.from_scipy(sp.block_diag([TWO, np.ones((3, 3)) - np.eye(3)]))
    part = blocks.largest_component()
    assert (part.labels, part.index([4]).tolist()) == ((2, 3, 4), [2])


@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
def test_laplacian_matches_networkx(laplacian):
    G = weighted()
    g = Graph.from_networkx(G).with_laplacian(laplacian)
    make = {"normalized": nx.normalized_laplacian_matrix, "combinatorial": nx.laplacian_matrix}[laplacian]
    expected = make(G, weight="weight").toarray().astype(float)
    scale = g.laplacian_scale if laplacian == "combinatorial" else 1.0
    np.testing.assert_allclose(scale * (np.eye(30) - g.shift_operator.toarray()), expected, atol=1e-13)
    np.testing.assert_allclose(scale * g.spectrum.eigenvalues, np.linalg.eigvalsh(expected), atol=1e-12)
    heat = graphs.kernels.Diffusion((1.4 * scale) ** 0.5).exact(g)
    np.testing.assert_allclose(heat, scipy.linalg.expm(-0.7 * expected), atol=1e-12)
    if laplacian == "combinatorial":
        assert scale == max(dict(G.degree(weight="weight")).values())
        matern = graphs.kernels.Matern(1.5, 0.8 * scale**0.5).exact(g) / scale**1.5
        inverse = np.linalg.inv(3 / 0.64 * np.eye(30) + expected)
        np.testing.assert_allclose(matern, scipy.linalg.fractional_matrix_power(inverse, 1.5), rtol=1e-9)


def test_combinatorial_laplacian_is_kept_and_has_no_loops_of_rounding():
    g = Graph.from_edges([(0, 1), (1, 2), (3, 4)], nodes=range(6)).with_laplacian("combinatorial")
    assert g.largest_component().laplacian == "combinatorial"
    assert g.with_laplacian("normalized").laplacian == "normalized"
    for laplacian in ("normalized", "combinatorial"):
        np.testing.assert_allclose(g.with_laplacian(laplacian).shift_operator.toarray()[5], [0, 0, 0, 0, 0, 1])
    pairs = [(i, (i + k) % 30) for i in range(30) for k in (1, 2, 3)]  # regular: uniform walkers would step on loops
    regular = Graph.from_edges(pairs, np.tile([0.1, 0.2, 0.3], 30)).with_laplacian("combinatorial")
    assert regular.shift_operator.nnz == 180


@st.composite
def weighted_graphs(draw):
    size = draw(st.integers(1, 12))
    pairs = [(a, b) for a in range(size) for b in range(a, size)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30))
    weights = draw(st.lists(st.floats(1e-6, 1e6), min_size=len(chosen), max_size=len(chosen)))
    return Graph.from_edges(chosen, weights, nodes=range(size), self_loops="keep")


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(weighted_graphs(), st.floats(0.1, 5), st.sampled_from(["independent", "stratified"]))
def test_any_graph_has_a_spectrum_kernels_and_walks(g, scale, steps):
    U = g.shift_operator.toarray()
    np.testing.assert_array_equal(U, U.T)
    eigenvalues = np.linalg.eigvalsh(np.eye(g.num_nodes) - U)
    assert -1e-9 < eigenvalues.min() <= eigenvalues.max() < 2 + 1e-9
    root = np.sqrt(g.degrees) + (g.degrees == 0)
    np.testing.assert_allclose(U @ root, root, rtol=1e-9)  # L has eigenvalue 0
    values = np.linalg.eigvalsh(graphs.kernels.RegularizedLaplacian(2, scale).exact(g))
    assert -1e-9 < values.min() <= values.max() <= 1 + 1e-9
    walks = graphs.sample_walks(g, num_walkers=4, p_halt=0.4, step_coupling=steps, transitions="uniform", seed=1)
    f = np.random.default_rng(0).standard_normal(walks.max_length + 1)
    rows = np.repeat(np.arange(g.num_nodes), np.diff(walks.pattern.indptr))
    reachable = np.linalg.matrix_power(np.eye(g.num_nodes) + (U > 0), g.num_nodes) > 0
    assert np.isfinite(walks.values(f)).all()
    assert reachable[rows, walks.pattern.indices].all()


def test_all_kinds_of_graphs_have_features():
    """Multiple edges, parts, bipartite graphs, isolated nodes, a single node: every hop that counts is exact."""
    kernel, multi = graphs.kernels.Diffusion(1.0), nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    parts = nx.disjoint_union(nx.cycle_graph(4), nx.complete_bipartite_graph(2, 3))
    parts.add_node("alone")
    for g in (
        Graph.from_networkx(multi, duplicates="sum"),
        Graph.from_networkx(parts),
        Graph.from_networkx(parts).with_laplacian("combinatorial"),
        Graph.from_edges([], nodes=["one"]),
    ):
        exact = kernel.exact(g)
        for made in (
            graphs.sample_walks(g, seed=0),
            graphs.chebyshev_features(g, degree=30),
            graphs.spectral_features(g, rank=g.num_nodes),
        ):
            phi = made.features(kernel)
            np.testing.assert_allclose((phi @ phi.T).toarray(), exact, atol=1e-6)
        assert all(stride > 0 for array in g.spectrum for stride in array.strides)


@pytest.mark.parametrize("unit", [5e-324, 2.0**-1040, 2.0**-500, 2.0**1010])
@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
def test_results_are_invariant_to_the_unit_of_weights(unit, laplacian):
    """Down to the smallest number there is: powers of two are taken out exactly."""
    G, weights = nx.gnm_random_graph(30, 70, seed=1), np.random.default_rng(0).integers(1, 50, 70).astype(float)
    one, other = (Graph.from_edges(G.edges, weights * scale, nodes=range(30)) for scale in (1.0, unit))
    one, other = one.with_laplacian(laplacian), other.with_laplacian(laplacian)
    np.testing.assert_array_equal(other.shift_operator.toarray(), one.shift_operator.toarray())
    kernel = graphs.kernels.Diffusion()
    first, second = (graphs.sample_walks(g, seed=0).features(kernel).toarray() for g in (one, other))
    np.testing.assert_allclose(second, first, rtol=1e-14, atol=0)
    first, second = (graphs.spectral_features(g, rank=1).eigenvectors for g in (one, other))
    np.testing.assert_allclose(second, first, rtol=1e-13)


def test_self_loops_and_duplicates_are_dropped_kept_or_summed():
    matrix = np.array([[2.0, 1.0], [1.0, 0.0]])
    dropped, kept = (Graph.from_scipy(matrix, self_loops=how) for how in ("drop", "keep"))
    assert (dropped.num_self_loops_dropped, dropped.num_edges, kept.num_edges) == (1, 1, 2)
    np.testing.assert_array_equal(kept.adjacency.toarray(), matrix)
    pairs = [("a", "b"), ("b", "c"), ("b", "a")]
    assert Graph.from_edges(pairs, [1, 1, 2], duplicates="sum").adjacency.toarray()[0, 1] == 3


# --- refusals ------------------------------------------------------------------------------------


def falling(kind):
    """Return a matrix that scipy makes without a word, and whose conversion writes out of bounds."""
    values = np.ones((4, 1, 1) if kind is sp.bsr_array else 4)
    return kind((values, np.array([1, 0, 2, 1]), np.array([0, 1, 3, 4, 0])), shape=(4, 4))


def altered(**arrays):
    matrix = sp.csr_array(TWO)
    for name, array in arrays.items():
        setattr(matrix, name, np.array(array))
    return matrix


MATRICES = [
    (falling(sp.csr_array), "csr"),
    (falling(sp.csc_array), "csc"),
    (falling(sp.bsr_array), "bsr"),
    (altered(indptr=[0, 1, 200]), "ascend"),
    (altered(data=[1.0]), "csr"),
    (altered(indices=[1, -1]), "negative"),
    (np.ones((2, 3)), "square"),
    (np.array([[0, 1], [2, 0]]), "symmetric"),
    ([[0, 1e13, 1], [1e13, 0, 0], [0, 0, 0]], r"\(0, 2\)"),
    (np.array([[0, np.inf], [np.inf, 0]]), "finite"),
    (np.array([[0, 1j], [1j, 0]]), "complex"),
    ([["a", "b"], ["c", "d"]], "numeric matrix"),
    (None, "numeric matrix"),
    (np.array([[2.0, 1.0], [1.0, 0.0]]), "self_loops="),
]
EDGES = [
    ([(0, 1)], [-1.0], "-1"),
    ([(0, 1)], [np.nan], "finite"),
    ([(0, 1)], [1, 2], "shape"),
    ([(0, 1)], [10**400], "numbers"),
    ([(0, 1), (1, 2)], [1.7e308, 1.7e308], "finite sum"),
    ([(0, 1), (1, 2)], [1e-320, 1e300], r"1e-320 to 1e\+300"),
    ([(0, 1), (1, 0)], None, "duplicate"),
    ([(0, 1, 2)], None, "Edge 0"),
    ([], None, "no nodes"),
    (None, None, "sequence"),
    ([(1, [2])], None, "Labels"),
    ([(float("nan"), 0.0)], None, "NaN"),
]
NETWORKS = [
    (nx.DiGraph([(0, 1)]), "undirected"),
    (nx.MultiDiGraph([(0, 1)]), "to_undirected"),
    (nx.Graph([(0, 1, {"weight": "heavy"})]), "heavy"),
    (nx.Graph([(0, 1, {"weight": 10**5000})]), "very long int"),
    (nx.Graph(), "no nodes"),
    (None, "NoneType"),
    (sp.eye_array(3), "from_scipy"),
]
REFUSED = [
    *((lambda m=matrix: Graph.from_scipy(m), word) for matrix, word in MATRICES),
    *((lambda e=edges, w=weights: Graph.from_edges(e, w), word) for edges, weights, word in EDGES),
    *((lambda G=network: Graph.from_networkx(G), word) for network, word in NETWORKS),
    (lambda: Graph.from_networkx(nx.path_graph(2), weight=["a"]), "weight"),
    (lambda: Graph.from_edges([(0, 1)], nodes=5), "Nodes"),
    (lambda: Graph.from_scipy(TWO, labels=["a", "a"]), "distinct"),
    (lambda: Graph.from_scipy(TWO, labels=["a"]), "1 label for 2 nodes"),
    (lambda: Graph.from_scipy(TWO, self_loops="ignore"), "self_loops"),
    (lambda: Graph.from_scipy(TWO).subgraph([]), "at least one node"),
    (lambda: Graph.from_scipy(TWO).subgraph(np.array([1, 1])), "distinct"),
    (lambda: Graph.from_scipy(TWO).labels_at([0, True]), "booleans"),
    (lambda: Graph.from_scipy(TWO).with_laplacian("unnormalised"), "laplacian"),
    (lambda: Graph(Graph.from_scipy(TWO).adjacency, laplacian="foo"), "laplacian"),
    (lambda: graphs.kernels.Diffusion().exact(Graph.from_scipy(sp.csr_array((20_001, 20_001)))), "20000 nodes"),
]


@pytest.mark.parametrize(("make", "word"), REFUSED)
def test_bad_graphs_are_refused(make, word):
    with pytest.raises((graphs.InvalidGraphError, graphs.InvalidArgumentError, graphs.UnknownNodeError), match=word):
        make()


@pytest.mark.parametrize(
    "labels",
    [["q"], [5], [-1], [0.0], [True], ["0"], np.array([True, False]), None, 5, "a", [(1, [2])], [{}], [float("nan")]],
)
@pytest.mark.parametrize("g", [Graph.from_edges([("a", (1, 2))]), Graph.from_scipy(TWO)], ids=["labels", "positions"])
def test_unknown_nodes_are_refused(g, labels):
    with pytest.raises(graphs.UnknownNodeError):
        g.index(labels)


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (nx.path_graph(3), "from_networkx"),
        (sp.eye_array(3), "from_scipy"),
        (np.eye(3), "from_scipy"),
        (trimesh.creation.box(), "from_mesh"),
        (None, "from_edges"),
    ],
    ids=["networkx", "scipy", "numpy", "trimesh", "None"],
)
def test_error_of_other_objects_names_the_constructor(other, word):
    kernel = graphs.kernels.Diffusion()
    for ask in (
        lambda: kernel.exact(other),
        lambda: graphs.sample_walks(other),
        lambda: graphs.chebyshev_features(other),
        lambda: graphs.advise(other, kernel),
        lambda: graphs.match_quantiles(other, kernel),
        lambda: graphs.pagerank(other),
    ):
        with pytest.raises(graphs.InvalidArgumentError, match=word):
            ask()
