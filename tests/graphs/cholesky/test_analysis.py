"""The analysis of a pattern against a symbolic elimination by sets."""

import numpy as np
import pytest
import scipy.sparse as sp
from elimination import fill_by_sets
from sparse_graphs import GRAPHS, definite

from graphs.cholesky import Analysis, Factor, analyze
from graphs.cholesky.compiled.tree import column_counts, elimination_tree, postorder


def pattern_of(name, hops=1):
    matrix = definite(GRAPHS[name](), hops=hops)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_num_nonzeros_is_exact(name):
    pattern = pattern_of(name)
    size = len(pattern[0]) - 1
    for order in (np.random.default_rng(0).permutation(size), analyze(*pattern).order):
        assert Analysis.of(*pattern, order).num_nonzeros == fill_by_sets(*pattern, order)


def test_panels_hold_the_factor():
    pattern = pattern_of("mesh", hops=2)
    analysis = analyze(*pattern)
    s = analysis.supernodes
    assert analysis.num_nonzeros <= s.panel_pointers[-1] <= 2 * analysis.num_nonzeros
    for k in range(len(s.parents)):
        rows = s.rows[s.row_pointers[k] : s.row_pointers[k + 1]]
        own = s.starts[k + 1] - s.starts[k]
        assert (np.diff(rows) > 0).all()
        assert rows[:own].tolist() == list(range(s.starts[k], s.starts[k + 1]))
        if len(rows) > own:
            above = s.rows[s.row_pointers[s.parents[k]] : s.row_pointers[s.parents[k] + 1]]
            np.testing.assert_array_equal(
                above[s.relative_indices[s.row_pointers[k] + own : s.row_pointers[k + 1]]], rows[own:]
            )
        else:
            assert s.parents[k] == -1


def test_pairs_match_the_factored_triangle():
    matrix = definite(GRAPHS["mesh"](), hops=2)
    analysis = analyze(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    rows, columns = analysis.pairs
    assert (rows >= columns).all()
    triangle = matrix.toarray()[np.ix_(analysis.order, analysis.order)][rows, columns]
    np.testing.assert_array_equal(analysis.mirrored(triangle), matrix.data)


def test_elimination_tree_of_a_chain():
    path = sp.csr_array(sp.diags_array([np.ones(4), np.ones(5), np.ones(4)], offsets=[-1, 0, 1]))
    pattern = path.indptr.astype(np.int64), path.indices.astype(np.int32)
    parent = elimination_tree(*pattern)
    assert parent.tolist() == [1, 2, 3, 4, -1]
    assert column_counts(*pattern, parent).tolist() == [2, 2, 2, 2, 1]
    assert postorder(np.array([4, 4, 3, 4, -1], np.int32)).tolist() == [0, 1, 2, 3, 4]
    assert postorder(np.array([2, -1, -1], np.int32)).tolist() == [1, 0, 2]


@pytest.mark.slow
def test_num_bytes_bounds_allocated_memory():
    import tracemalloc

    pattern = pattern_of("random")
    analysis = analyze(*pattern)
    matrix = definite(GRAPHS["random"]())
    Factor.of(analysis, matrix.data).inverse  # compiled and placed  # noqa: B018
    tracemalloc.start()
    Factor.of(analysis, matrix.data).inverse  # noqa: B018
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.2 * analysis.num_bytes < peak < 1.2 * analysis.num_bytes
