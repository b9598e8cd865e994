"""Walks as features."""

import numpy as np
import pytest
from walking import GRAPHS, KERNEL, assert_same, sample_walks

import graphs
from graphs import Graph


def test_values_and_adjoint_are_transposes():
    drawn = sample_walks(GRAPHS["weighted"], seed=2)
    rng = np.random.default_rng(0)
    f, v = rng.standard_normal(drawn.max_length + 1), rng.standard_normal(len(drawn.pattern.indices))
    assert drawn.values(f) @ v == pytest.approx(drawn.values_adjoint(v) @ f, rel=1e-12)
    np.testing.assert_array_equal(drawn.values(np.append(f, 7.0)), drawn.values(f))
    with pytest.raises(graphs.InvalidArgumentError, match="33 terms"):
        drawn.values(f[:-1])
    with pytest.raises(graphs.InvalidArgumentError, match="v must have shape"):
        drawn.values_adjoint(v[:-1])


def test_features_follow_labels_and_positions():
    g = Graph.from_edges([("a", "b"), ("b", "c")])
    phi = sample_walks(g, ["c", "a"], seed=0).features(KERNEL)
    assert phi.shape == (2, 3)
    assert phi[0, 2] >= KERNEL.modulation(0)[0]
    assert (np.diff(phi.indptr) > 0).all()
    assert phi.has_sorted_indices


def test_no_nodes_give_no_rows():
    drawn = sample_walks(GRAPHS["star"], [], seed=0)
    assert drawn.features(KERNEL).shape == (0, 5)


def test_seed_is_kept():
    drawn = sample_walks(GRAPHS["star"])
    assert_same(drawn, sample_walks(GRAPHS["star"], seed=drawn.seed))
    assert not drawn.exact_hops.any()
