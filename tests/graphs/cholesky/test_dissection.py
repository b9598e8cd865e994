"""Nested dissection: permutations always, little fill, and separators that separate."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from elimination import fill_by_sets, fill_by_tree, fill_of_superlu, is_permutation, pattern, pattern_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import Delaunay, KDTree

from graphs.cholesky import analyze
from graphs.cholesky.dissection import minimum_degree_order, nested_dissection, separator
from graphs.errors import InvalidArgumentError


def lattice(side):
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side))
    return pattern(graph), np.stack(np.divmod(np.arange(side**2), side), axis=1).astype(float)


def scattered(n, near=7):
    points = np.random.default_rng(1).random((n, 2))
    _, nearest = KDTree(points).query(points, near)
    A = sp.csr_array((np.ones(nearest.size), nearest.ravel(), np.arange(0, nearest.size + 1, near)), shape=(n, n))
    return pattern_of(A + A.T), points


def roads(n):
    """A spanning tree of the shortest edges of a triangulation, with a few more of them."""
    rng = np.random.default_rng(2)
    points = rng.random((n, 2))
    corners = Delaunay(points).simplices
    a, b = np.unique(np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]]]), axis=1), axis=0).T
    lengths = sp.csr_array((np.linalg.norm(points[a] - points[b], axis=1), (a, b)), shape=(n, n))
    few = rng.random(len(a)) < 0.1
    A = minimum_spanning_tree(lengths) + sp.csr_array((np.ones(few.sum()), (a[few], b[few])), shape=(n, n))
    return pattern_of(A + A.T), points


def small_world(n):
    return pattern(nx.watts_strogatz_graph(n, 6, 0.05, seed=3)), None


def star(n):
    return pattern(nx.star_graph(n - 1)), None


def regular(n):
    """Without small separators: the order is that of minimum degree."""
    return pattern(nx.random_regular_graph(10, n, seed=0)), None


def copies(side):
    """Three copies of each node of a lattice, joined to one another and to those of its neighbors."""
    (indptr, indices), _ = lattice(side)
    A = sp.csr_array((np.ones(len(indices)), indices, indptr))
    return pattern_of(sp.csr_array(sp.kron(A, np.ones((3, 3))))), None


MADE = {
    "grid": (lattice, 60, 1.15),
    "points": (scattered, 3000, 1.2),
    "roads": (roads, 4000, 1.2),
    "small world": (small_world, 2000, 1.25),
    "star": (star, 3000, 1.0),
    "regular": (regular, 1500, 1.1),
    "copies": (copies, 40, 1.2),
}
"""Graphs, their size, and by how much our factor may have more entries than that of multiple minimum degree."""


@pytest.mark.thinned(3)
@pytest.mark.parametrize("by", ["distances", "planes"])
@pytest.mark.parametrize("name", MADE)
def test_fill_is_at_most_that_of_minimum_degree(name, by):
    make, n, factor = MADE[name]
    (indptr, indices), points = make(n)
    order = nested_dissection(indptr, indices, points if by == "planes" else None)
    assert is_permutation(order, len(indptr) - 1)
    assert fill_by_tree(indptr, indices, order) <= factor * fill_of_superlu(indptr, indices)


@pytest.mark.parametrize("name", MADE)
def test_analysis_has_at_most_the_fill_of_minimum_degree(name):
    make, n, _ = MADE[name]
    (indptr, indices), points = make(n)
    whole = sp.csr_array(sp.csr_array((np.ones(len(indices)), indices, indptr)) + sp.eye_array(len(indptr) - 1))
    whole.sort_indices()
    pattern_with_diagonal = whole.indptr.astype(np.int64), whole.indices.astype(np.int32)
    degree = analyze(*pattern_with_diagonal, points, method="minimum-degree")
    assert degree.num_nonzeros <= 1.02 * fill_of_superlu(indptr, indices)
    assert analyze(*pattern_with_diagonal, points).num_nonzeros <= degree.num_nonzeros


def test_planted_random_order_has_far_more_fill():
    (indptr, indices), _ = scattered(1000)
    order = np.random.default_rng(0).permutation(1000)
    assert fill_by_tree(indptr, indices, order) > 3 * fill_of_superlu(indptr, indices)


SINGULAR = {
    "no node": nx.empty_graph(0),
    "one node": nx.empty_graph(1),
    "no edges": nx.empty_graph(1000),
    "two nodes": nx.path_graph(2),
    "a path": nx.path_graph(100_000),
    "a star": nx.star_graph(100_000),
    "two stars": nx.disjoint_union(nx.star_graph(5000), nx.star_graph(3000)),
    "a complete graph": nx.complete_graph(500),
    "two complete graphs": nx.disjoint_union(nx.complete_graph(300), nx.complete_graph(300)),
    "a bipartite graph": nx.complete_bipartite_graph(5, 2000),
    "a scale-free graph": nx.barabasi_albert_graph(3000, 3, seed=0),
    "a random regular graph": nx.random_regular_graph(10, 1500, seed=0),
    "many parts": nx.disjoint_union_all([nx.cycle_graph(k) for k in range(3, 60)] + [nx.empty_graph(300)]),
}


@pytest.mark.thinned(4, slow=2)
@pytest.mark.parametrize("dimension", [0, 2, 3])
@pytest.mark.parametrize("name", SINGULAR)
def test_order_is_a_permutation(name, dimension):
    indptr, indices = pattern(SINGULAR[name]) if len(SINGULAR[name]) else (np.zeros(1, np.int64), np.zeros(0, np.int32))
    n = len(indptr) - 1
    points = np.random.default_rng(n).random((n, dimension)) if dimension else None
    order = nested_dissection(indptr, indices, points)
    assert is_permutation(order, n)
    assert np.array_equal(nested_dissection(indptr, indices, points), order)


@pytest.mark.parametrize("name", ["a path", "a star", "two stars"])
def test_trees_have_no_fill(name):
    indptr, indices = pattern(SINGULAR[name])
    entries = (len(indices) + len(indptr) - 1) // 2
    assert fill_by_tree(indptr, indices, nested_dissection(indptr, indices)) == entries


@pytest.mark.parametrize("points", [np.zeros((3600, 2)), np.full((3600, 2), np.nan), np.full((3600, 3), np.inf)])
def test_uninformative_coordinates_are_ignored(points):
    (indptr, indices), _ = lattice(60)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(nested_dissection(indptr, indices, points), nested_dissection(indptr, indices))


@pytest.mark.parametrize(
    "wrong", [np.zeros((9, 2)), np.zeros(100), np.zeros((101, 2)), np.zeros((100, 4)), [["a", "b"]] * 100, 1.0, "here"]
)
def test_bad_coordinates_are_refused(wrong):
    (indptr, indices), _ = lattice(10)
    with pytest.raises(InvalidArgumentError, match=r"coordinates must be numbers of shape \(100, d\)"):
        nested_dissection(indptr, indices, wrong)


def test_diagonal_is_ignored():
    (indptr, indices), points = lattice(40)
    bare = sp.csr_array((np.ones(len(indices)), indices.copy(), indptr.copy()))
    bare.setdiag(0)
    bare.eliminate_zeros()
    for X in (None, points):
        with_it = nested_dissection(indptr, indices, X)
        assert np.array_equal(nested_dissection(bare.indptr.astype(np.int64), bare.indices, X), with_it)


def test_arguments_are_not_modified():
    (indptr, indices), points = scattered(800)
    copies = indptr.copy(), indices.copy(), points.copy()
    for array in (indptr, indices, points):
        array.flags.writeable = False
    nested_dissection(indptr, indices, points)
    assert all(np.array_equal(a, b) for a, b in zip((indptr, indices, points), copies, strict=True))


@st.composite
def patterns(draw):
    n = draw(st.integers(1, 40))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=120))
    graph = nx.Graph(pairs)
    graph.add_nodes_from(range(n))
    return pattern(nx.convert_node_labels_to_integers(graph, ordering="sorted"))


@settings(max_examples=150, deadline=None)
@given(patterns())
def test_property_minimum_degree_is_a_permutation(made):
    indptr, indices = made
    order = nested_dissection(indptr, indices)
    assert is_permutation(order, len(indptr) - 1)
    assert fill_by_sets(indptr, indices, order) == fill_by_tree(indptr, indices, order)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 900))
def test_property_forests_have_no_fill(seed, n):
    rng = np.random.default_rng(seed)
    graph = nx.Graph([(v, int(rng.integers(v))) for v in range(1, n) if rng.random() < 0.95])
    graph.add_nodes_from(range(n))
    indptr, indices = pattern(nx.relabel_nodes(graph, dict(enumerate(rng.permutation(n).tolist()))))
    order = nested_dissection(indptr, indices)
    assert fill_by_tree(indptr, indices, order) == (len(indices) + n) // 2


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 900), st.floats(0.0, 6.0))
def test_property_malformed_patterns_have_an_order(seed, n, mean):
    """It is not promised to be a good one, but nothing is read or written out of bounds."""
    rows, columns = np.random.default_rng(seed).integers(n, size=(2, int(mean * n)))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    assert is_permutation(nested_dissection(indptr, columns.astype(np.int32)), n)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1100, 2500), st.floats(0.5, 6.0))
def test_property_random_graphs_larger_than_a_leaf(seed, n, mean):
    graph = nx.fast_gnp_random_graph(n, mean / n, seed=seed)
    indptr, indices = pattern(graph)
    points = np.random.default_rng(seed).random((n, 2))
    for X in (None, points):
        assert is_permutation(nested_dissection(indptr, indices, X), n)


@pytest.mark.parametrize("make", [lattice, scattered, roads, small_world])
def test_separators_are_smallest_covers_of_cut_edges(make):
    (indptr, indices), points = make(50 if make is lattice else 2500)
    A = sp.csr_array((np.ones(len(indices)), indices, indptr))
    above = np.arange(len(indptr) - 1) > 1200 if points is None else points[:, 0] > np.median(points[:, 0])
    cover = separator(A, above)
    rows, columns = A.nonzero()
    cut = above[rows] & ~above[columns]
    assert np.isin(np.stack([rows[cut], columns[cut]]), cover).any(axis=0).all()
    between = nx.Graph(zip(rows[cut].tolist(), columns[cut].tolist(), strict=True))
    matching = nx.bipartite.maximum_matching(between, top_nodes=set(rows[cut].tolist()))
    assert len(cover) == len(matching) // 2


def test_planted_separator_with_a_hole_does_not_cover():
    (indptr, indices), points = lattice(50)
    A = sp.csr_array((np.ones(len(indices)), indices, indptr))
    above = points[:, 0] > 25
    rows, columns = A.nonzero()
    cut = above[rows] & ~above[columns]
    assert not np.isin(np.stack([rows[cut], columns[cut]]), separator(A, above)[1:]).any(axis=0).all()


@pytest.mark.parametrize("order_of", [nested_dissection, minimum_degree_order])
def test_hubs_are_eliminated_last(order_of):
    (indptr, indices), _ = scattered(1600)
    hubs, A = np.ones((2, 1600)), sp.csr_array((np.ones(len(indices)), indices, indptr))
    indptr, indices = pattern_of(sp.csr_array(sp.block_array([[None, hubs], [hubs.T, A]])))
    order = order_of(indptr, indices)
    assert is_permutation(order, 1602)
    assert set(order[-2:].tolist()) == {0, 1}
    assert fill_by_tree(indptr, indices, order) <= 1.2 * fill_of_superlu(indptr, indices)


def test_many_dense_nodes_are_ordered_as_others_are():
    """A chain of cliques, all of whose nodes have very many neighbors, in random order."""
    chain = sp.kron(sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(8, 8)), np.ones((150, 150)))
    shuffled = np.random.default_rng(0).permutation(1200)
    indptr, indices = pattern_of(sp.csr_array(chain)[shuffled][:, shuffled])
    assert np.diff(indptr).min() > 10 * np.sqrt(200)
    for order in (nested_dissection(indptr, indices), minimum_degree_order(indptr, indices)):
        assert fill_by_tree(indptr, indices, order) <= 1.05 * (len(indices) + 1200) / 2


def test_separator_of_a_long_alternating_path():
    n = 20_001
    A = sp.csr_array(sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(n, n)))
    assert len(separator(A, np.arange(n) % 2 == 0)) == n // 2
