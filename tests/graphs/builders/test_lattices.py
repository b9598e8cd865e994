"""Grids, against a comparison of all pairs of indices."""

import itertools
import tracemalloc

import numpy as np
import pytest

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


def test_positions_and_coordinates_are_in_c_order():
    g = Graph.from_grid((3, 4, 5), spacing=(0.5, 2.0, 3.0))
    np.testing.assert_allclose(g.coordinates, np.array(list(np.ndindex(3, 4, 5))) * [0.5, 2.0, 3.0])
    cube = Graph.from_grid((2,) * 12)
    assert (cube.num_nodes, cube.num_edges, cube.coordinates) == (4096, 12 * 2**11, None)
    assert Graph.from_grid((1,) * 70 + (3,)).num_edges == 2
    assert Graph.from_grid(np.array([2, 3])).num_nodes == 6


@pytest.mark.parametrize("factor", [1e-310, 1e-200, 1e200, 4e307])
def test_weights_are_invariant_to_the_unit_of_spacing(factor):
    scaled = Graph.from_grid((3, 4), diagonals=True, spacing=(factor, factor / 2)).adjacency.toarray()
    expected = Graph.from_grid((3, 4), diagonals=True, spacing=(2, 1)).adjacency.toarray()
    np.testing.assert_allclose(scaled, expected, rtol=1e-12)


def test_labels_are_tuples_and_positions_are_integers():
    g, labels = Graph.from_grid((3, 4, 5)), list(np.ndindex(3, 4, 5))
    assert (len(g.labels), list(g.labels), g.labels[-1], g.labels[7:3:-2]) == (60, labels, labels[-1], labels[7:3:-2])
    assert all((label in g.labels) == (label == (1, 2, 3)) for label in ((1, 2, 3), (3, 0, 0), (1, 2), 4, (0, 0, -1)))
    some, expected = [(0, 0, 1), (2, 3, 4), (1, 2, 0)], [1, 59, 30]
    for given in (some, np.array(some), expected):
        assert g.index(given).tolist() == expected
    assert (g.labels_at(np.array(expected)), g.subgraph(expected).labels) == (some, tuple(some))
    assert Graph.from_grid((4,)).index([(2,), (0,)]).tolist() == [2, 0]


@pytest.mark.slow
def test_labels_take_no_memory():
    g = Graph.from_grid((1000, 1000))
    tracemalloc.start()
    assert g.labels[999_999] == (999, 999)
    assert g.index([(500, 1), (999, 999)]).tolist() == [500_001, 999_999]
    assert tracemalloc.get_traced_memory()[1] < 1e5
    tracemalloc.stop()
