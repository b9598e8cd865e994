"""Rows with weights are the same rows written out, to the last bit, whatever processor sums them."""

import networkx as nx
import numpy as np
import pytest

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.rows import merge_repeats
from rfgp.sklearn import GPClassifier, GPCountRegressor, GPRegressor, GraphGPClassifier, GraphGPRegressor

PATH = graphs.Graph.from_networkx(nx.path_graph(15))
FEW = {"kernel": k.RBF(), "approximation": rfgp.RandomFeatures(8), "max_iter": 3, "random_state": 0}


def drawn(seed):
    """Return 15 rows of noise, their targets, weights from 0 to 4, and a shuffle, like a check of scikit-learn."""
    rng = np.random.default_rng(seed)
    return rng.random((15, 30)), rng.integers(0, 3, 15), rng.integers(0, 5, 15), rng.permutation(15)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: GPRegressor(**FEW),
        lambda: GPRegressor(k.RBF(), rfgp.RandomFeatures(16), random_state=0),
        lambda: GPRegressor(**{**FEW, "kernel": k.RBF() + k.Matern(), "approximation": {"matern": rfgp.Vecchia(5)}}),
        lambda: GPCountRegressor(**FEW),
        lambda: GPClassifier(**FEW),
        lambda: GPClassifier(inference="laplace", **FEW),
        lambda: GPRegressor(max_iter=3, random_state=0),
        lambda: GraphGPRegressor(PATH, max_iter=3, random_state=0),
        lambda: GraphGPClassifier(PATH, max_iter=1, features="exact", random_state=0),
    ],
    ids=["few", "searched", "local", "counts", "classes", "laplace", "selected", "graph", "graph classes"],
)
@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", [0, 1])
def test_weights_are_repetitions_to_the_last_bit(make, seed):
    X, y, weight, order = drawn(seed)
    X = np.arange(15) if "Graph" in type(make()).__name__ else X
    written = make().fit(X.repeat(weight, 0), y.repeat(weight))
    weighted = make().fit(X[order], y[order], sample_weight=weight[order])
    means = [getattr(found, "predict_proba", found.predict)(X) for found in (written, weighted)]
    np.testing.assert_array_equal(*means)


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_counts_merge_rows_of_equal_exposure_only():
    X, y, _, _ = drawn(0)
    exposure = np.concatenate([np.ones(15), np.full(15, 2.0), np.ones(15)])
    found = GPCountRegressor(**FEW).fit(np.tile(X, (3, 1)), np.tile(y, 3), exposure=exposure)
    assert found.gp_.num_observations == 30
    weighted = GPCountRegressor(**FEW).fit(np.tile(X, (2, 1)), np.tile(y, 2), np.repeat([2, 1], 15), exposure[:30])
    np.testing.assert_array_equal(found.predict(X), weighted.predict(X))


def test_merged_rows_keep_their_total_weight():
    a, b = np.array([1.0, 0.0, -0.0, 1.0, 2.0]), np.array(["x", "y", "y", "z", "x"])
    rows, weight = merge_repeats([a, b], np.array([1.0, 2.0, 3.0, 4.0, 0.5]))
    assert dict(zip(zip(a[rows], b[rows], strict=True), weight, strict=True)) == {
        (1.0, "x"): 1.0,
        (0.0, "y"): 5.0,
        (1.0, "z"): 4.0,
        (2.0, "x"): 0.5,
    }


@pytest.mark.parametrize("weight", [None, np.ones(3)])
def test_rows_without_repeats_stay_as_they_are(weight):
    rows, found = merge_repeats([np.array([3.0, 1.0, 2.0])], weight)
    assert rows.tolist() == [0, 1, 2]
    assert found is None


def test_rows_that_share_a_hash_are_not_merged(monkeypatch):
    monkeypatch.setattr("rfgp.rows.repeats.row_hashes", lambda columns, initial_hashes: initial_hashes)
    rows, weight = merge_repeats([np.array([3.0, 1.0, 3.0])], None)
    assert rows.tolist() == [0, 1, 2]
    assert weight is None
