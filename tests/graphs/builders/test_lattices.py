"""Grids, against networkx and a comparison of all pairs of indices."""

import itertools
import tracemalloc

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph


def all_pairs(shape, periodic, diagonals, steps):
    """Return the lengths of steps between all pairs of indices, 0 if they are no neighbors."""
    count, D = int(np.prod(shape)), np.zeros((int(np.prod(shape)),) * 2)
    for a, b in itertools.product(range(count), repeat=2):
        gaps = np.abs(np.subtract(np.unravel_index(a, shape), np.unravel_index(b, shape)))
        moves = np.where(periodic, np.minimum(gaps, np.array(shape) - gaps), gaps)
        if moves.max() == 1 and (diagonals or moves.sum() == 1):
            D[a, b] = np.sqrt(((moves * steps) ** 2).sum())
    return D


@pytest.mark.parametrize("diagonals", [False, True])
@pytest.mark.parametrize(
    "shape", [(1,), (2,), (7,), (3, 4), (2, 2), (1, 5), (2, 3, 4), (3, 1, 2), (2, 1, 2, 3)], ids=str
)
def test_edges_match_all_pairs(shape, diagonals):
    d = len(shape)
    for periodic in {(False,) * d, (True,) * d, tuple(i % 2 == 0 for i in range(d))}:
        for spacing in (None, np.arange(1, d + 1) ** 1.5):
            g = Graph.from_grid(shape, periodic=periodic, diagonals=diagonals, spacing=spacing)
            D = all_pairs(shape, periodic, diagonals, np.ones(d) if spacing is None else spacing)
            mean = 1.0 if spacing is None or not D.any() else D[D > 0].mean()
            expected = np.divide(mean, D, out=np.zeros_like(D), where=D > 0)
            np.testing.assert_allclose(g.adjacency.toarray(), expected, rtol=1e-12)
            assert g.num_edges == (D > 0).sum() // 2
            assert list(g.labels) == list(np.ndindex(shape))


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (3, 5, 4), (9,)])
def test_grid_matches_networkx(shape, periodic):
    G = nx.grid_graph(shape[::-1], periodic=periodic)  # networkx counts axes from the last
    nodes = list(np.ndindex(shape)) if len(shape) > 1 else list(range(shape[0]))
    expected = nx.to_numpy_array(G, nodelist=nodes)
    np.testing.assert_array_equal(Graph.from_grid(shape, periodic=periodic).adjacency.toarray(), expected)


def test_positions_and_coordinates_are_in_c_order():
    g = Graph.from_grid((3, 4, 5), spacing=(0.5, 2.0, 3.0))
    np.testing.assert_allclose(g.coordinates, np.array(list(np.ndindex(3, 4, 5))) * [0.5, 2.0, 3.0])
    assert Graph.from_grid((5,)).coordinates is None
    assert Graph.from_grid((2, 2, 2, 2)).coordinates is None
    cube = Graph.from_grid((2,) * 12)
    assert (cube.num_nodes, cube.num_edges) == (4096, 12 * 2**11)
    assert Graph.from_grid((1,) * 70 + (3,)).num_edges == 2
    assert Graph.from_grid((2,) * 6, diagonals=True).num_edges == 64 * 63 // 2
    assert Graph.from_grid(np.array([2, 3])).num_nodes == 6


@pytest.mark.parametrize("factor", [1e-310, 1e-200, 1e200, 4e307])
def test_weights_are_invariant_to_the_unit_of_spacing(factor):
    scaled = Graph.from_grid((3, 4), diagonals=True, spacing=(factor, factor / 2)).adjacency.toarray()
    expected = Graph.from_grid((3, 4), diagonals=True, spacing=(2, 1)).adjacency.toarray()
    np.testing.assert_allclose(scaled, expected, rtol=1e-12)


def test_labels_are_tuples_and_positions_are_integers():
    g, labels = Graph.from_grid((3, 4, 5)), list(np.ndindex(3, 4, 5))
    assert (len(g.labels), list(g.labels), g.labels[-1], g.labels[7:3:-2]) == (60, labels, labels[-1], labels[7:3:-2])
    assert (1, 2, 3) in g.labels
    assert all(wrong not in g.labels for wrong in ((3, 0, 0), (1, 2), 4, (0, 0, -1)))
    some = [(0, 0, 1), (2, 3, 4), (1, 2, 0)]
    expected = np.ravel_multi_index(np.transpose(some), (3, 4, 5)).tolist()
    for given in (some, np.array(some), [list(label) for label in some], expected, np.array(expected)):
        assert g.index(given).tolist() == expected
    assert g.labels_at(np.array(expected)) == some
    assert g.subgraph(expected).labels == tuple(some)
    assert g.subgraph(expected).index(some[::-1]).tolist() == [2, 1, 0]
    assert (Graph.from_grid((4,)).labels[2], Graph.from_grid((4,)).index([(2,), (0,)]).tolist()) == ((2,), [2, 0])


@pytest.mark.slow
def test_labels_take_no_memory():
    g = Graph.from_grid((1000, 1000))
    tracemalloc.start()
    assert g.labels[999_999] == (999, 999)
    assert g.index([(500, 1), (999, 999)]).tolist() == [500_001, 999_999]
    assert tracemalloc.get_traced_memory()[1] < 1e5
    tracemalloc.stop()


SMALL, HUGE = Graph.from_grid((3, 4)), (10**6, 10**6)
REFUSED = [
    *((lambda shape=shape: Graph.from_grid(shape), "shape") for shape in ((), 5, (3, 0), (3, 2.0), (3, True), "33")),
    *(
        (lambda periodic=periodic: Graph.from_grid((3, 3), periodic=periodic), "periodic|axes")
        for periodic in ((True,), 1, (1, 0))
    ),
    *(
        (lambda spacing=spacing: Graph.from_grid((3, 3), spacing=spacing), "spacing")
        for spacing in (2.0, (1, 0), (1, np.nan), (1, True), ("a", "b"), (1, 10**400))
    ),
    (lambda: Graph.from_grid((3, 3), spacing=(1e-300, 1e300)), "double precision"),
    (lambda: Graph.from_grid(HUGE), "1000000000000 nodes and 1999998000000 edges"),
    (lambda: Graph.from_grid(HUGE, periodic=True, diagonals=True), "4000000000000 edges"),
    (lambda: Graph.from_grid((2,) * 20, diagonals=True), f"{2**19 * (2**20 - 1)} edges"),
    *(
        (lambda nodes=nodes: SMALL.index(nodes), word)
        for nodes, word in (
            ([(0, 0), (3, 0)], r"got \(3, 0\)"),
            ([(0, -1)], r"got \(0, -1\)"),
            ([(0, 0), 1], "tuples"),
            ([(0, True)], "booleans"),
            ([12], "got 12"),
            ([0.5], "integers"),
            ("ab", "sequence"),
            (3, "sequence"),
        )
    ),
]


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_invalid_grids_and_labels_are_refused(call, word):
    with pytest.raises(graphs.GraphError, match=word):
        call()
