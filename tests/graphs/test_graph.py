import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import trimesh

import graphs
from graphs import Graph


def test_constructors_agree():
    G = nx.path_graph(4)
    G[1][2]["weight"] = 2.5
    by_networkx = Graph.from_networkx(G)
    by_pairs = Graph.from_edges([(0, 1), (2, 1), (2, 3)], [1, 2.5, 1])
    by_scipy = Graph.from_scipy(nx.to_scipy_sparse_array(G))
    for other in (by_pairs, by_scipy):
        np.testing.assert_array_equal(other.adjacency.toarray(), by_networkx.adjacency.toarray())
    assert by_networkx.num_nodes == 4
    assert by_networkx.num_edges == 3
    assert by_networkx.adjacency.indices.dtype == np.int32


def test_labels_and_positions_are_inverse():
    g = Graph.from_edges([("a", "b"), ("b", (1, 2))], nodes=["z", "b"])
    assert g.labels == ("z", "b", "a", (1, 2))
    assert g.index(["a", (1, 2), "a"]).tolist() == [2, 3, 2]
    with pytest.raises(graphs.UnknownNodeError, match="got 'q'"):
        g.index(["q"])


@pytest.mark.parametrize("nodes", [[5], [-1], [0.0], [True], ["0"], np.zeros((2, 2), int)])
def test_unknown_positions_are_refused(nodes):
    g = Graph.from_scipy(np.ones((3, 3)) - np.eye(3))
    with pytest.raises(graphs.UnknownNodeError):
        g.index(nodes)


def test_normalized_laplacian_matches_networkx():
    G = nx.gnm_random_graph(30, 60, seed=0)
    for i, (a, b) in enumerate(G.edges):
        G[a][b]["weight"] = 1 + i % 3
    g = Graph.from_networkx(G)
    expected = nx.normalized_laplacian_matrix(G, weight="weight").toarray()
    np.testing.assert_allclose(np.eye(30) - g.shift_operator.toarray(), expected, atol=1e-14)
    np.testing.assert_allclose(g.spectrum.eigenvalues, np.linalg.eigvalsh(expected), atol=1e-12)


class TestCombinatorialLaplacian:
    def test_combinatorial_laplacian_matches_networkx(self):
        G = nx.gnm_random_graph(30, 60, seed=0)
        for i, (a, b) in enumerate(G.edges):
            G[a][b]["weight"] = 1 + i % 3
        g = Graph.from_networkx(G).with_laplacian("combinatorial")
        expected = nx.laplacian_matrix(G, weight="weight").toarray().astype(float)
        assert g.laplacian_scale == max(dict(G.degree(weight="weight")).values())
        np.testing.assert_allclose(g.laplacian_scale * (np.eye(30) - g.shift_operator.toarray()), expected, atol=1e-13)
        np.testing.assert_allclose(g.laplacian_scale * g.spectrum.eigenvalues, np.linalg.eigvalsh(expected), atol=1e-12)
        t = 0.7
        heat = graphs.kernels.Diffusion((2 * t * g.laplacian_scale) ** 0.5).exact(g)
        np.testing.assert_allclose(heat, scipy.linalg.expm(-t * expected), atol=1e-12)
        nu, kappa, s = 1.5, 0.8, g.laplacian_scale
        matern = graphs.kernels.Matern(nu, kappa * s**0.5).exact(g) / s**nu
        inverse = np.linalg.inv(2 * nu / kappa**2 * np.eye(30) + expected)
        np.testing.assert_allclose(matern, scipy.linalg.fractional_matrix_power(inverse, nu), rtol=1e-9)

    def test_laplacian_is_kept_by_subgraphs(self):
        g = Graph.from_edges([(0, 1), (1, 2), (3, 4)], nodes=range(6)).with_laplacian("combinatorial")
        assert g.largest_component().laplacian == "combinatorial"
        assert g.with_laplacian("combinatorial") is g
        assert g.with_laplacian("normalized").laplacian == "normalized"
        np.testing.assert_allclose(g.shift_operator.toarray()[5], [0, 0, 0, 0, 0, 1])
        alone = Graph.from_edges([], nodes=[0, 1]).with_laplacian("combinatorial")
        np.testing.assert_array_equal(alone.shift_operator.toarray(), np.eye(2))
        with pytest.raises(graphs.InvalidArgumentError, match="laplacian must be one of 'normalized', 'comb"):
            g.with_laplacian("unnormalised")

    def test_rounding_makes_no_self_loops(self):
        """A weighted regular graph: what a row lacks to 1 is rounding, and uniform walkers would step on it."""
        pairs = [(i, (i + k) % 30) for i in range(30) for k in (1, 2, 3)]
        g = Graph.from_edges(pairs, np.tile([0.1, 0.2, 0.3], 30)).with_laplacian("combinatorial")
        assert g.shift_operator.nnz == 180
        tiny = Graph.from_edges([(0, 1), (1, 2)], [1e-310, 1e-310]).with_laplacian("combinatorial")
        np.testing.assert_allclose(tiny.shift_operator.toarray(), [[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])

    def test_uniform_moves_warn(self):
        g = Graph.from_networkx(nx.barabasi_albert_graph(300, 3, seed=0)).with_laplacian("combinatorial")
        with pytest.warns(graphs.LargeVarianceWarning):
            graphs.sample_walks(g, transitions="uniform", exact_hops=0, seed=0).features(graphs.kernels.Diffusion(3.0))
        with pytest.raises(graphs.InvalidArgumentError, match="normalized Laplacian"):
            graphs.sample_walks(g, step_coupling="repelling", seed=0)
        with pytest.raises(graphs.InvalidArgumentError, match="laplacian must be one of"):
            Graph(g.adjacency, laplacian="foo")

    def test_pagerank_and_features_use_their_laplacian(self):
        G = nx.barabasi_albert_graph(60, 2, seed=0)
        g = Graph.from_networkx(G).with_laplacian("combinatorial")
        options = {"p_halt": 0.2, "num_walkers": 4, "lengths": "sigma", "seed": 0}
        plain = graphs.pagerank(g.with_laplacian("normalized"), **options)
        np.testing.assert_array_equal(graphs.pagerank(g, **options), plain)
        kernel = graphs.kernels.RegularizedLaplacian(2, 2.0)
        for phi in (
            graphs.chebyshev_features(g, degree=40).features(kernel),
            graphs.spectral_features(g, rank=60).features(kernel),
            graphs.sample_walks(g, exact_hops=60, seed=0).features(kernel),
        ):
            np.testing.assert_allclose((phi @ phi.T).toarray(), kernel.exact(g), atol=1e-6)


def test_all_graphs_have_features_or_a_named_error():
    """Directed, multiple, disconnected, bipartite, weighted graphs, isolated nodes, a single node."""
    kernel = graphs.kernels.Diffusion(1.0)
    multi = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    parts = nx.disjoint_union(nx.cycle_graph(4), nx.complete_bipartite_graph(2, 3))
    parts.add_node("alone")
    kinds = [
        Graph.from_networkx(multi, duplicates="sum"),
        Graph.from_networkx(parts),
        Graph.from_networkx(parts).with_laplacian("combinatorial"),
        Graph.from_edges([], nodes=["one"]),
    ]
    for g in kinds:
        phi = graphs.sample_walks(g, seed=0).features(kernel)
        np.testing.assert_allclose(
            (phi @ phi.T).toarray(), kernel.exact(g), atol=1e-6
        )  # every hop that counts is exact
        np.testing.assert_allclose(graphs.pagerank(g, num_walkers=4, seed=0).sum(), 1)
    assert kinds[1].largest_component().num_nodes == 5


def test_an_isolated_node_has_laplacian_zero():
    g = Graph.from_edges([(0, 1)], nodes=[0, 1, 2])
    assert g.shift_operator.toarray()[2].tolist() == [0, 0, 1]
    for kernel in (graphs.kernels.Diffusion(3.0), graphs.kernels.RegularizedLaplacian(2, 2.0)):
        np.testing.assert_allclose(kernel.exact(g)[2], [0, 0, 1], atol=1e-14)


def falling(kind):
    """A matrix that scipy makes without a word, and whose conversion writes out of bounds."""
    values = np.ones((4, 1, 1) if kind is sp.bsr_array else 4)
    return kind((values, np.array([1, 0, 2, 1]), np.array([0, 1, 3, 4, 0])), shape=(4, 4))


def altered(**arrays):
    matrix = sp.csr_array(np.ones((2, 2)) - np.eye(2))
    for name, array in arrays.items():
        setattr(matrix, name, np.array(array))
    return matrix


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: falling(sp.csr_array), "csr"),
        (lambda: falling(sp.csr_matrix), "csr"),
        (lambda: falling(sp.csc_array), "csc"),
        (lambda: falling(sp.bsr_array), "bsr"),
        (lambda: altered(indptr=[0, 1]), "must ascend from 0"),
        (lambda: altered(indptr=[1, 1, 2]), "must ascend from 0"),
        (lambda: altered(indptr=[0, 1, 200]), "must ascend from 0"),
        (lambda: altered(data=[1.0]), "csr"),
        (lambda: altered(indices=[1, 7]), "fit each other.* axis 1 index 7"),
        (lambda: altered(indices=[1, -1]), "fit each other.* negative axis 1 index"),
    ],
)
def test_malformed_sparse_matrix_is_refused(make, message):
    with pytest.raises(graphs.InvalidGraphError, match=message):
        Graph.from_scipy(make())


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.bsr_array, sp.coo_array, sp.lil_array, sp.dia_array])
def test_all_scipy_formats_give_one_graph(kind):
    matrix = np.array([[0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 0], [0, 0, 0, 0]], dtype=float)
    np.testing.assert_array_equal(Graph.from_scipy(kind(matrix)).adjacency.toarray(), matrix)


def test_self_loops_error_drop_keep():
    matrix = np.array([[2.0, 1.0], [1.0, 0.0]])
    with pytest.raises(graphs.InvalidGraphError, match=r"1 self-loop,.*self_loops="):
        Graph.from_scipy(matrix)
    dropped = Graph.from_scipy(matrix, self_loops="drop")
    assert dropped.num_self_loops_dropped == 1
    assert dropped.num_edges == 1
    loops = Graph.from_scipy(matrix, self_loops="keep")
    np.testing.assert_array_equal(loops.adjacency.toarray(), matrix)
    assert loops.num_edges == 2
    with pytest.raises(graphs.InvalidArgumentError, match="self_loops must be one of"):
        Graph.from_scipy(matrix, self_loops="ignore")


def test_duplicate_edges_error_or_sum():
    pairs = [("a", "b"), ("b", "c"), ("b", "a")]
    with pytest.raises(graphs.InvalidGraphError, match=r"1 duplicate edge; \('a', 'b'\) appears 2 times"):
        Graph.from_edges(pairs)
    assert Graph.from_edges(pairs, [1, 1, 2], duplicates="sum").adjacency.toarray()[0, 1] == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph.from_edges([(0, 1)], [-1.0]), r"edge \(0, 1\) .*-1\.0"),
        (lambda: Graph.from_edges([(0, 1)], [np.nan]), "finite"),
        (lambda: Graph.from_edges([(0, 1)], [1, 2]), r"shape \(1,\)"),
        (lambda: Graph.from_edges([(0, 1)], ["x"]), "must be numbers"),
        (lambda: Graph.from_edges([(0, 1), (1, 2)], [1.7e308, 1.7e308]), "finite sum"),
        (lambda: Graph.from_edges([(0, 1, 2)]), "Edge 0"),
        (lambda: Graph.from_edges([]), "no nodes"),
        (lambda: Graph.from_scipy(np.ones((2, 3))), "square"),
        (lambda: Graph.from_scipy(np.array([[0, 1], [2, 0]])), "symmetric"),
        (lambda: Graph.from_scipy(np.array([[0, np.inf], [np.inf, 0]])), "finite"),
        (lambda: Graph.from_scipy([["a", "b"], ["c", "d"]]), "numeric matrix"),
        (lambda: Graph.from_scipy(np.zeros((2, 2)), labels=["a", "a"]), "distinct"),
        (lambda: Graph.from_scipy(np.zeros((2, 2)), labels=["a"]), "1 label for 2 nodes"),
        (lambda: Graph.from_scipy([[0, 1e13, 1], [1e13, 0, 0], [0, 0, 0]]), r"entries \(0, 2\)"),
        (lambda: Graph.from_scipy(np.array([[0, 1j], [1j, 0]])), "complex"),
        (lambda: Graph.from_edges([(float("nan"), 0.0)]), "NaN"),
        (lambda: Graph.from_networkx(nx.DiGraph([(0, 1)])), "undirected"),
        (lambda: Graph.from_networkx(nx.Graph([(0, 1, {"weight": "heavy"})])), "number.*'heavy'"),
        (lambda: Graph.from_networkx(nx.MultiGraph([(0, 1), (0, 1)])), "duplicate"),
        (lambda: Graph.from_networkx(nx.MultiDiGraph([(0, 1)])), "to_undirected"),
        (lambda: Graph.from_networkx(nx.Graph()), "no nodes"),
        (lambda: Graph.from_mesh(trimesh.Trimesh([[0, 0, 0]], [], process=False)), "no faces"),
    ],
)
def test_bad_graphs_are_refused(make, message):
    with pytest.raises(graphs.InvalidGraphError, match=message):
        make()


@pytest.mark.parametrize("unit", [5e-324, 2.0**-1040, 2.0**-500, 2.0**1010])
@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
def test_shift_is_invariant_to_unit_of_weights(unit, laplacian):
    """Not a bit, down to the smallest number there is: powers of two are taken out exactly."""
    G = nx.gnm_random_graph(30, 70, seed=1)
    weights = np.random.default_rng(0).integers(1, 50, 70).astype(float)
    one, other = (
        Graph.from_edges(G.edges, weights * scale, nodes=range(30)).with_laplacian(laplacian) for scale in (1.0, unit)
    )
    np.testing.assert_array_equal(other.shift_operator.toarray(), one.shift_operator.toarray())
    kernel = graphs.kernels.Diffusion()
    for draw in (graphs.sample_walks, graphs.chebyshev_features):
        options = {"seed": 0} if draw is graphs.sample_walks else {}
        first, second = (draw(g, **options).features(kernel).toarray() for g in (one, other))
        np.testing.assert_allclose(second, first, rtol=1e-14, atol=0)
    roots = [graphs.features.spectrum.largest_eigenpairs(g, 1)[1] for g in (one, other)]
    np.testing.assert_allclose(roots[1], roots[0], rtol=1e-14)


def test_weights_of_extreme_ratios_are_refused():
    assert np.isfinite(Graph.from_edges([(0, 1), (1, 2)], [1e-320, 1e270]).shift_operator.data).all()
    with pytest.raises(graphs.InvalidGraphError, match="1e-320 to 1e\\+300"):
        Graph.from_edges([(0, 1), (1, 2)], [1e-320, 1e300])


def test_zero_weights_are_dropped():
    assert Graph.from_edges([(0, 1), (1, 2)], [0.0, 1.0]).num_edges == 1


def test_arrays_are_read_only():
    g = Graph.from_edges([(0, 1)])
    for array in (g.adjacency.data, g.adjacency.indices, g.shift_operator.data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_masks_are_refused_and_tuple_arrays_accepted():
    g = Graph.from_networkx(nx.path_graph(4))
    with pytest.raises(graphs.UnknownNodeError, match="mask"):
        g.index(np.array([True, False, True, False]))
    grid = Graph.from_networkx(nx.grid_2d_graph(2, 3))
    assert grid.index(np.array([(1, 2), (0, 0)])).tolist() == [5, 0]
    with pytest.raises(graphs.UnknownNodeError):
        grid.index([{}])


def test_dense_spectrum_is_limited():
    with pytest.raises(graphs.InvalidArgumentError, match="at most 20000 nodes"):
        graphs.kernels.Diffusion().exact(Graph.from_scipy(sp.csr_array((20_001, 20_001))))


def test_largest_component_keeps_labels():
    g = Graph.from_scipy(sp.block_diag([np.ones((2, 2)) - np.eye(2), np.ones((3, 3)) - np.eye(3)]))
    part = g.largest_component()
    assert part.labels == (2, 3, 4)
    assert part.index([4]).tolist() == [2]
    with pytest.raises(graphs.InvalidArgumentError, match="distinct"):
        g.subgraph(np.array([1, 1]))


TWO = np.ones((2, 2)) - np.eye(2)
LINE = [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph.from_networkx(None), "networkx graph.*got NoneType"),
        (lambda: Graph.from_networkx(sp.eye_array(3)), "Graph.from_scipy"),
        (lambda: Graph.from_networkx(nx.path_graph(2), weight=["a"]), "weight must be the name"),
        (lambda: Graph.from_networkx(nx.Graph([(0, 1, {"weight": 10**5000})])), "a very long int"),
        (lambda: Graph.from_edges(None), "Edges must be a sequence of pairs"),
        (lambda: Graph.from_edges([5]), "Edge 0 .*5"),
        (lambda: Graph.from_edges([(1, [2])]), r"Labels .*\[2\]"),
        (lambda: Graph.from_edges([(1, (2, [3]))]), r"Labels .*\(2, \[3\]\)"),
        (lambda: Graph.from_edges([(0, 1)], [10**400]), "weights must be numbers"),
        (lambda: Graph.from_edges([(0, 1)], nodes=5), "Nodes must be a sequence"),
        (lambda: Graph.from_edges([(0, 1)], nodes=[{}]), "Labels .*{}"),
        (lambda: Graph.from_scipy(None), "numeric matrix.*None"),
        (lambda: Graph.from_scipy([[0, 10**400], [10**400, 0]]), "numeric matrix"),
        (lambda: Graph.from_scipy([[0], [1, 0]]), "numeric matrix"),
        (lambda: Graph.from_scipy(TWO, labels=[[1], 2]), r"Labels .*\[1\]"),
        (lambda: Graph.from_scipy(TWO, labels=5), "Labels must be a sequence"),
        (lambda: Graph.from_points([[1, 2], [3]]), r"got \[\[1, 2\], \[3\]\]"),
        (lambda: Graph.from_points([["a"], ["b"]], 1), "(?i)points must be numbers"),
        (lambda: Graph.from_points(None), "got None"),
        (lambda: Graph.from_roads(None), "list of lines"),
        (lambda: Graph.from_roads([LINE, [[1, 2], [3]]]), "Road 1"),
        (lambda: Graph.from_roads([LINE, [[1, 2], [3, "x"]]]), "Road 1"),
        (lambda: Graph.from_roads([LINE], min_length=None), "min_length"),
        (lambda: Graph.from_scipy(TWO).subgraph([]), "at least one node"),
        (lambda: Graph.from_roads([LINE], None), "roads of sensors must be integers below 2.53, got None"),
        (lambda: Graph.from_roads([LINE], (), None), r"for each of the sensor_edges \(0,\), got None"),
        (lambda: Graph.from_roads([LINE], (), "half"), r"for each of the sensor_edges \(0,\), got 'half'"),
        (lambda: Graph.from_roads([LINE], (), (f for f in ())), "got <generator"),
        (lambda: Graph.from_roads([LINE], [0], "half"), r"for each of the sensor_edges \(1,\), got 'half'"),
        (lambda: Graph.from_roads([LINE], [0], ["0.5"]), r"got \['0.5'\]"),
        (lambda: Graph.from_roads([LINE], [0], [True]), r"got \[True\]"),
        (lambda: Graph.from_roads([LINE], [0, 0], [[0.1], [0.2, 0.3]]), r"got \[\[0.1\], \[0.2, 0.3\]\]"),
        (lambda: Graph.from_points([[0, True], [1, 1]], 1), "(?i)points must be numbers"),
        (lambda: Graph.from_grid((2, 2), spacing=[1, True]), r"spacing must be .* got \[1, True\]"),
        (lambda: Graph.from_grid((2, 2), spacing=["1", 2]), "spacing must be"),
        (lambda: Graph.from_grid((2, 2), spacing=[1, 10**400]), "spacing must be"),
        (lambda: Graph.from_scipy(TWO).index([0, True]), "not booleans"),
        (lambda: Graph.from_scipy(TWO).labels_at([0, True]), "not booleans"),
        (lambda: Graph.from_scipy(TWO).subgraph([0, np.True_]), "not booleans"),
        (lambda: Graph.from_edges([(0, 1)]).index([False, True]), "got False"),
    ],
)
def test_invalid_values_are_refused(make, message):
    with pytest.raises(graphs.GraphError, match=message):
        make()


@pytest.mark.parametrize("labels", [None, 5, "a", [(1, [2])], [[1, [2]]], [set()], [np.zeros(2)], [float("nan")]])
@pytest.mark.parametrize("g", [Graph.from_edges([("a", (1, 2))]), Graph.from_scipy(TWO)], ids=["labels", "positions"])
def test_invalid_labels_are_refused(g, labels):
    with pytest.raises(graphs.UnknownNodeError):
        g.index(labels)


def test_lists_in_labels_count_as_tuples():
    g = Graph.from_edges([("a", (1, (2, 3)))])
    assert g.index([[1, [2, 3]], (1, (2, 3))]).tolist() == [1, 1]


@pytest.mark.parametrize("g", [Graph.from_edges([], nodes=["a"]), Graph.from_edges([], nodes=range(9))])
def test_eigenvectors_are_contiguous(g):
    draw = graphs.spectral_features(g, rank=1)
    for array in (*g.spectrum, draw.eigenvalues, draw.eigenvectors):
        assert all(stride > 0 for stride in array.strides)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (nx.path_graph(3), "from_networkx"),
        (sp.eye_array(3), "dia_array of scipy.*from_scipy"),
        (np.eye(3), "ndarray of numpy.*from_scipy"),
        (trimesh.creation.box(), "Trimesh of trimesh.*from_mesh"),
        (None, "NoneType.*from_edges"),
    ],
    ids=["networkx", "scipy", "numpy", "trimesh", "None"],
)
def test_non_graph_error_names_the_constructor(what, message):
    kernel = graphs.kernels.Diffusion()
    for ask in (
        lambda: kernel.exact(what),
        lambda: graphs.sample_walks(what),
        lambda: graphs.chebyshev_features(what),
        lambda: graphs.spectral_features(what),
        lambda: graphs.max_series_degree(what, 8),
        lambda: graphs.advise(what, kernel),
        lambda: graphs.walk_costs(what, kernel),
        lambda: graphs.match_quantiles(what, kernel),
        lambda: graphs.quantile_costs(what, kernel, 0.1, 8),
        lambda: graphs.couple_quantiles(what, kernel),
        lambda: graphs.matching_variance(what, kernel, [1, 0]),
        lambda: graphs.choose_p_halt(what, kernel),
        lambda: graphs.max_p_halt(what, kernel),
        lambda: graphs.spectral_density(what, [1.0]),
        lambda: graphs.pagerank(what),
        lambda: graphs.match_pagerank_quantiles(what),
    ):
        with pytest.raises(graphs.InvalidArgumentError, match=message):
            ask()


def test_booleans_can_be_labels():
    assert Graph.from_edges([(True, "a")]).index(["a", True]).tolist() == [1, 0]
