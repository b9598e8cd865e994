"""Graphs from pairs, matrices and networkx: labels, Laplacians, and what is no graph."""

import networkx as nx
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import trimesh
from refusals import refused

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
        with pytest.raises(ValueError, match="read-only"):
            g.adjacency.data[0] = 5


def test_labels_and_positions_are_inverse():
    g = Graph.from_edges([("a", "b"), ("b", (1, (2, 3)))], nodes=["z", "b"])
    assert g.labels == ("z", "b", "a", (1, (2, 3)))
    assert g.index(["a", (1, (2, 3)), [1, [2, 3]]]).tolist() == [2, 3, 3]  # lists count as tuples
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
    assert scale == (max(dict(G.degree(weight="weight")).values()) if laplacian == "combinatorial" else 1)


def test_combinatorial_laplacian_is_kept_and_has_no_loops_of_rounding():
    g = Graph.from_edges([(0, 1), (1, 2), (3, 4)]).with_laplacian("combinatorial")
    assert g.largest_component().laplacian == "combinatorial"
    pairs = [(i, (i + k) % 30) for i in range(30) for k in (1, 2, 3)]  # regular: uniform walkers would step on loops
    regular = Graph.from_edges(pairs, np.tile([0.1, 0.2, 0.3], 30)).with_laplacian("combinatorial")
    assert regular.shift_operator.nnz == 180


@pytest.mark.parametrize("unit", [5e-324, 2.0**1010])
@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
def test_results_are_invariant_to_the_unit_of_weights(unit, laplacian):
    """Down to the smallest number there is: powers of two are taken out exactly."""
    G, weights = nx.gnm_random_graph(30, 70, seed=1), np.random.default_rng(0).integers(1, 50, 70).astype(float)
    one, other = (Graph.from_edges(G.edges, weights * scale, nodes=range(30)) for scale in (1.0, unit))
    one, other = one.with_laplacian(laplacian), other.with_laplacian(laplacian)
    np.testing.assert_array_equal(other.shift_operator.toarray(), one.shift_operator.toarray())
    first, second = (
        graphs.sample_walks(g, seed=0).features(graphs.kernels.Diffusion()).toarray() for g in (one, other)
    )
    np.testing.assert_allclose(second, first, rtol=1e-14, atol=0)


def test_self_loops_and_duplicates_are_dropped_kept_or_summed():
    matrix = np.array([[2.0, 1.0], [1.0, 0.0]])
    dropped, kept = (Graph.from_scipy(matrix, self_loops=how) for how in ("drop", "keep"))
    assert (dropped.num_self_loops_dropped, dropped.num_edges, kept.num_edges) == (1, 1, 2)
    np.testing.assert_array_equal(kept.adjacency.toarray(), matrix)
    pairs = [("a", "b"), ("b", "c"), ("b", "a")]
    assert Graph.from_edges(pairs, [1, 1, 2], duplicates="sum").adjacency.toarray()[0, 1] == 3


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [["q"], [5], [-1], [0.0], [True], np.array([True, False]), None, "a", [(1, [2])], [float("nan")]],
)
@pytest.mark.parametrize("g", [Graph.from_edges([("a", (1, 2))]), Graph.from_scipy(TWO)], ids=["labels", "positions"])
def test_unknown_nodes_are_refused(g, labels):
    refused(lambda: g.index(labels), graphs.UnknownNodeError, "")


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (nx.path_graph(3), "from_networkx"),
        (sp.eye_array(3), "from_scipy"),
        (np.eye(3), "from_scipy"),
        (trimesh.creation.box(), "from_mesh"),
        (None, "from_edges"),
    ],
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
        refused(ask, graphs.InvalidArgumentError, word)
