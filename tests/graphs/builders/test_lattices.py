"""Grids, against networkx and a twin that compares all pairs of indices."""

import itertools

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph


def slow(shape, periodic, diagonals, steps=None):
    """The twin: lengths of steps between all pairs of indices, 0 where they are no neighbors."""
    count, unit = int(np.prod(shape)), np.ones(len(shape)) if steps is None else np.asarray(steps, dtype=float)
    D = np.zeros((count, count))
    for a, b in itertools.permutations(itertools.product(*map(range, shape)), 2):
        gaps = [abs(x - y) for x, y in zip(a, b, strict=True)]
        moves = [min(gap, n - gap) if wrap else gap for gap, n, wrap in zip(gaps, shape, periodic, strict=True)]
        if max(moves) == 1 and (diagonals or sum(moves) == 1):
            D[np.ravel_multi_index(a, shape), np.ravel_multi_index(b, shape)] = np.sqrt(((moves * unit) ** 2).sum())
    return D


def weights_of(D, steps):
    if not D.any():
        return D
    mean = 1.0 if steps is None else D[D > 0].mean()
    return np.divide(mean, D, out=np.zeros_like(D), where=D > 0)


SHAPES = [
    (1,),
    (2,),
    (7,),
    (3, 4),
    (2, 2),
    (1, 5),
    (5, 1),
    (1, 1),
    (3, 3),
    (2, 3, 4),
    (3, 1, 2),
    (2, 1, 2, 3),
    (3, 3, 3),
]


@pytest.mark.parametrize("diagonals", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_edges_match_all_pairs(shape, diagonals):
    d = len(shape)
    for periodic in {
        (False,) * d,
        (True,) * d,
        tuple(i % 2 == 0 for i in range(d)),
        tuple(i % 2 == 1 for i in range(d)),
    }:
        for steps in (None, np.arange(1, d + 1) ** 1.5):
            g = Graph.from_grid(shape, periodic=periodic, diagonals=diagonals, spacing=steps)
            D = slow(shape, periodic, diagonals, steps)
            np.testing.assert_allclose(g.adjacency.toarray(), weights_of(D, steps), rtol=1e-12)
            assert g.num_edges == (D > 0).sum() // 2
            assert list(g.labels) == list(np.ndindex(shape))


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (3, 5, 4), (9,)])
def test_grid_matches_networkx(shape, periodic):
    G = nx.grid_graph(shape[::-1], periodic=periodic)  # networkx counts axes from the last
    nodes = list(np.ndindex(shape)) if len(shape) > 1 else list(range(shape[0]))
    expected = nx.to_numpy_array(G, nodelist=nodes)
    np.testing.assert_array_equal(Graph.from_grid(shape, periodic=periodic).adjacency.toarray(), expected)


def test_diagonals_match_kings_moves():
    g = Graph.from_grid((10, 10), diagonals=True)
    W = g.adjacency.toarray()
    at = np.arange(100).reshape(10, 10)
    inner = W[at[4, 4]]
    assert (inner > 0).sum() == 8
    assert inner[at[4, 5]] == 1
    assert inner[at[5, 5]] == inner[at[5, 3]] == pytest.approx(0.5**0.5)
    assert (Graph.from_grid((5, 5, 5), diagonals=True).adjacency.toarray()[62] > 0).sum() == 26
    scaled = Graph.from_grid((10, 10), diagonals=True, spacing=(3, 3)).adjacency.toarray()
    assert np.ptp(scaled[W > 0] / W[W > 0]) < 1e-12


def test_positions_and_coordinates_are_in_c_order():
    shape, spacing = (3, 4, 5), (0.5, 2.0, 3.0)
    g = Graph.from_grid(shape, spacing=spacing)
    for index in ((0, 0, 1), (2, 3, 4), (1, 2, 0)):
        position = np.ravel_multi_index(index, shape)
        np.testing.assert_allclose(g.coordinates[position], np.multiply(index, spacing))
    pairs = g.adjacency.tocoo()
    lengths = np.linalg.norm(g.coordinates[pairs.row] - g.coordinates[pairs.col], axis=1)
    np.testing.assert_allclose(pairs.data * lengths, lengths.mean())
    np.testing.assert_array_equal(Graph.from_grid((2, 3)).coordinates, list(np.ndindex(2, 3)))
    assert Graph.from_grid((5,)).coordinates is None
    assert Graph.from_grid((2, 2, 2, 2)).coordinates is None


def test_grids_of_many_axes():
    cube = Graph.from_grid((2,) * 12)
    assert (cube.num_nodes, cube.num_edges) == (4096, 12 * 2**11)
    assert Graph.from_grid((1,) * 70 + (3,)).num_edges == 2
    assert Graph.from_grid((2,) * 6, diagonals=True).num_edges == 64 * 63 // 2
    assert Graph.from_grid(np.array([2, 3])).num_nodes == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": ()}, "shape must be a tuple of positive integers"),
        ({"shape": 5}, "shape must be a tuple"),
        ({"shape": (3, 0)}, "shape must be a tuple"),
        ({"shape": (3, -1)}, "shape must be a tuple"),
        ({"shape": (3, 2.0)}, "shape must be a tuple"),
        ({"shape": (3, True)}, "shape must be a tuple"),
        ({"shape": "33"}, "shape must be a tuple"),
        ({"shape": (3, 3), "periodic": (True,)}, "one for each of the 2 axes"),
        ({"shape": (3, 3), "periodic": 1}, "periodic must be a bool"),
        ({"shape": (3, 3), "periodic": (1, 0)}, "periodic must be a bool"),
        ({"shape": (3, 3), "spacing": 2.0}, "spacing must be one positive number for each of the 2 axes"),
        ({"shape": (3, 3), "spacing": (1, 0)}, "spacing must be"),
        ({"shape": (3, 3), "spacing": (1, np.nan)}, "spacing must be"),
        ({"shape": (3, 3), "spacing": (1, np.inf)}, "spacing must be"),
        ({"shape": (3, 3), "spacing": ("a", "b")}, "spacing must be"),
        ({"shape": (3, 3), "spacing": (1e-300, 1e300)}, "double precision"),
        ({"shape": (30, 3), "spacing": (1e307, 1)}, "double precision"),
        ({"shape": (10**6, 10**6)}, r"1000000000000 nodes and 1999998000000 edges"),
        ({"shape": (10**6, 10**6), "periodic": (True, False)}, "1000000000000 nodes and 1999999000000 edges"),
        ({"shape": (10**6, 10**6), "periodic": True, "diagonals": True}, "1000000000000 nodes and 4000000000000 edges"),
        ({"shape": (10**6, 10**6), "diagonals": True}, "1000000000000 nodes and 3999994000002 edges"),
        ({"shape": (2,) * 20, "diagonals": True}, f"1048576 nodes and {2**19 * (2**20 - 1)} edges"),
    ],
)
def test_invalid_grids_are_refused(arguments, message):
    with pytest.raises(graphs.GraphError, match=message):
        Graph.from_grid(**arguments)


@pytest.mark.parametrize("factor", [1e-310, 1e-200, 1e200, 4e307])
def test_weights_are_invariant_to_unit_of_spacing(factor):
    scaled = Graph.from_grid((3, 4), diagonals=True, spacing=(factor, factor / 2)).adjacency.toarray()
    expected = Graph.from_grid((3, 4), diagonals=True, spacing=(2, 1)).adjacency.toarray()
    np.testing.assert_allclose(scaled, expected, rtol=1e-12)


def test_ring_kernel_matches_circle():
    """Eigenvalues 1 - cos(2 pi j / n)."""
    g = Graph.from_grid((12,), periodic=True)
    expected = np.sort(1 - np.cos(2 * np.pi * np.arange(12) / 12))
    np.testing.assert_allclose(g.spectrum.eigenvalues, expected, atol=1e-12)


def test_grid_labels_are_tuples():
    """As integers, they are computed and not kept; integers are positions."""
    g = Graph.from_grid((3, 4, 5))
    labels = list(np.ndindex(3, 4, 5))
    assert (len(g.labels), list(g.labels), g.labels[-1], g.labels[7:3:-2]) == (60, labels, labels[-1], labels[7:3:-2])
    assert (1, 2, 3) in g.labels
    assert not {(3, 0, 0), (1, 2), 4, (0, 0, -1), (True, 0, 0.5)} & set(g.labels)
    assert all(wrong not in g.labels for wrong in ((3, 0, 0), (1, 2), 4, (0, 0, -1)))
    some = [(0, 0, 1), (2, 3, 4), (1, 2, 0)]
    expected = np.ravel_multi_index(np.transpose(some), (3, 4, 5)).tolist()
    for given in (some, np.array(some), [list(label) for label in some], expected, np.array(expected)):
        assert g.index(given).tolist() == expected
    assert g.labels_at(np.array(expected)) == some
    assert g.index([]).tolist() == g.as_nodes(np.zeros(0, dtype=np.int64)).tolist() == []
    assert g.as_nodes(np.array(expected)).tolist() == expected
    assert g.subgraph(expected).labels == tuple(some)
    assert g.subgraph(expected).index(some[::-1]).tolist() == [2, 1, 0]
    assert (Graph.from_grid((4,)).labels[2], Graph.from_grid((4,)).index([(2,), (0,)]).tolist()) == ((2,), [2, 0])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([(0, 0), (3, 0)], r"\(0, 0\) to \(2, 3\), got \(3, 0\)"),
        ([(0, -1)], r"got \(0, -1\)"),
        ([(0, 0, 0)], "tuples"),
        ([(0, 0), 1], "tuples of 2 integers"),
        ([(0, 0), (1,)], "tuples of 2 integers"),
        ([(0, True)], "not booleans"),
        ([12], "got 12"),
        ([0.5], "integers 0..11"),
        ("ab", "sequence of labels"),
        (3, "sequence of labels"),
    ],
)
def test_unknown_grid_labels_are_refused(nodes, message):
    with pytest.raises(graphs.UnknownNodeError, match=message):
        Graph.from_grid((3, 4)).index(nodes)


def test_grid_labels_take_no_memory():
    import tracemalloc

    g = Graph.from_grid((1000, 1000))
    tracemalloc.start()
    assert g.labels[999_999] == (999, 999)
    assert g.index([(500, 1), (999, 999)]).tolist() == [500_001, 999_999]
    assert tracemalloc.get_traced_memory()[1] < 1e5
    tracemalloc.stop()
