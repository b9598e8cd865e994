import networkx as nx
import numpy as np
import pytest
from refusals import refused

import graphs
import rfgp
from rfgp import datasets
from rfgp.compare import Comparison, Draw, Plan, compare_file, compare_nodes, compare_table, to_table

TABLE = datasets.make_table()
GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(7, 7)))
VALUES = np.sin(np.arange(49) / 7) + 0.1 * np.cos(np.arange(49))


@pytest.fixture(scope="module")
def table():
    plan = Plan(splits=2, draws=3, seed=1)
    return compare_table(TABLE.X, TABLE.y, sizes=[8, 64], num_train=60, num_test=20, plan=plan)


@pytest.fixture(scope="module")
def nodes():
    return compare_nodes(GRAPH, np.arange(49), VALUES, sizes=[8], plan=Plan(draws=2, seed=1))


@pytest.mark.slow
def test_every_method_size_split_and_draw_is_there(table, nodes):
    assert len(table.draws) == 4 * 2 * 2 * 3
    assert len(table.exact) == 2
    assert table.groups() == [(m, s) for s in (8, 64) for m in ("iid", "orthogonal", "pairwise", "energy")]
    assert len(nodes.draws) == 6 * 2
    assert all(np.isfinite([d.kernel_error, d.kl, d.rmse, d.nlpd]).all() and d.kl >= 0 for d in nodes.draws)


@pytest.mark.slow
def test_observations_of_one_node_are_on_one_side_of_a_split():
    """Each node is observed twice: a test value that was trained on would be predicted by itself."""
    twice, values = np.repeat(np.arange(40), 2), np.repeat(VALUES[:40], 2)
    found = compare_nodes(GRAPH, twice, values, methods=("chebyshev",), sizes=(8,), num_train=61, plan=Plan(1, 1, 0))
    exact = found.example.process
    known = {int(i) for i in exact.state.rows.inputs.flatten().tolist()}
    assert len(known) == 31
    assert found.example.observed.shape == (80 - 62,)
    with pytest.raises(rfgp.DataError, match="training part"):
        compare_nodes(GRAPH, twice, values, num_train=79, plan=Plan(1, 1, 0))


def test_rows_that_repeat_are_on_one_side_of_a_split():
    X, y = np.tile(TABLE.X[:60], (2, 1)), np.tile(TABLE.y[:60], 2)
    found = compare_table(X, y, methods=["iid"], sizes=[4], num_train=61, num_test=40, plan=Plan(1, 1, 0))
    assert not set(found.example.process.state.rows.chunk.y.tolist()) & set(found.example.observed.tolist())
    assert len(found.example.observed) == 39


@pytest.mark.slow
def test_figures_match_their_definitions():
    plan = Plan(draws=1, seed=3)
    found = compare_table(TABLE.X, TABLE.y, methods=["iid"], sizes=[16], num_train=50, num_test=10, plan=plan)
    order = plan.order(0, len(TABLE.X))
    train, test = order[:50], order[50:60]
    exact = rfgp.ExactGP(ard=False).fit(TABLE.X[train], TABLE.y[train])
    approximation = rfgp.RandomFeatures(16, coupling="iid", seed=plan.draw_seed(0, 0))
    gp = exact.with_approximation(approximation)
    p = gp.predict(TABLE.X[test])
    draw = found.draws[0]
    assert draw.kl == pytest.approx(rfgp.metrics.kl_divergence(exact.predict(TABLE.X[test]), p), rel=1e-9)
    assert draw.rmse == pytest.approx(rfgp.metrics.rmse(TABLE.y[test], p), rel=1e-9)
    x = TABLE.X[order[:60]] / exact.hyperparameters.lengthscale.detach().numpy()
    distance = ((x[:, None] - x[None]) ** 2).sum(2)
    phi = gp.spec.term_priors[0].basis.spectral.feature_map.frequencies.dense().numpy() @ x.T
    estimate = np.cos(phi[:, :, None] - phi[:, None, :]).mean(0)
    kernel = np.exp(-distance / 2)
    assert draw.kernel_error == pytest.approx(np.linalg.norm(estimate - kernel) / np.linalg.norm(kernel), rel=1e-8)


def made(values, methods=("a",)):
    """A comparison with given kernel errors, {method: (splits, draws)}."""
    draws = [
        Draw(method, 1, split, value, 0.0, 0.0, 0.0, 0.0)
        for method in methods
        for split, row in enumerate(values[method])
        for value in row
    ]
    return Comparison("t", "p", "walkers", methods[0], [], draws, None)


def test_standard_errors():
    one_split = made({"a": [[1.0, 2.0, 3.0, 6.0]]})
    assert one_split.estimate("kernel_error", "a", 1) == pytest.approx((3.0, np.std([1, 2, 3, 6], ddof=1) / 2))
    splits = made({"a": [[1.0, 3.0], [4.0, 6.0]], "b": [[1.0, 1.0], [5.0, 5.0]]}, ("a", "b"))
    assert splits.estimate("kernel_error", "a", 1) == pytest.approx((3.5, 1.5))
    first, second = np.sqrt(1 / 5), np.sqrt(25 / 26)  # of mean squares
    assert splits.error_ratio("b", 1) == pytest.approx(((first + second) / 2, (second - first) / 2))
    assert splits.error_ratio("a", 1) == (1.0, 0.0)
    assert np.isnan(made({"a": [[2.0]]}).estimate("kernel_error", "a", 1).error)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.8, -0.8])
def test_the_ratio_of_one_split_has_the_spread_of_its_repeats(correlation):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        a, b = rng.multivariate_normal([1, 0.5], 0.01 * np.array([[1, correlation], [correlation, 1]]), 50).T
        found.append(made({"a": [a], "b": [b]}, ("a", "b")).error_ratio("b", 1))
    ratios = np.array(found)
    assert ratios[:, 1].mean() == pytest.approx(ratios[:, 0].std(ddof=1), rel=0.15)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.1913, 1.2777], "1.23(4)"),
        ([1.2213, 1.2477], "1.23(1)"),
        ([1191.3, 1277.7], "1234(43)"),
        ([0.5, 0.5], "0.5"),
        ([0.5], "0.5"),
    ],
)
def test_errors_are_in_brackets(values, text):
    assert text in list(to_table(made({"a": [values]})).columns[2].cells)


@pytest.mark.parametrize(
    ("count", "given", "parts"),
    [
        (9, {}, "7 training and 2 test"),
        pytest.param(60, {"num_train": 20}, "20 training and 40 test", marks=pytest.mark.slow),
    ],
)
def test_small_tables_are_compared_on_all_rows(count, given, parts, tmp_path):
    X = np.random.default_rng(0).standard_normal((count, 2))
    np.savetxt(tmp_path / "t.csv", X, delimiter=",", header="a,b", comments="")
    comparison, _ = compare_file(tmp_path / "t.csv", sizes=[2], plan=Plan(draws=1), **given)
    assert comparison.protocol.startswith(parts)
    most = {"num_train": count - 1, "num_test": 5}
    refused(lambda: compare_file(tmp_path / "t.csv", **most), rfgp.DataError, "num_train and num_test")


@pytest.mark.slow
def test_the_exact_process_of_large_graphs_has_a_precision(limits):
    graph, rng = graphs.Graph.from_grid((12, 12)), np.random.default_rng(0)
    y = np.sin(np.arange(144) / 20) + 0.1 * rng.standard_normal(144)
    asked = {"kernel": "regularized-laplacian", "num_train": 100, "num_test": 30, "methods": ("chebyshev",)}
    found = []
    for largest, features in ((2000, "exact"), (50, "precision")):
        limits(max_exact_nodes=largest)
        found.append(compare_nodes(graph, np.arange(144), y, sizes=(8,), plan=Plan(1, 2, 0), **asked))
        assert found[-1].example.process.features == features
    small, large = found
    assert large.exact[0].rmse == pytest.approx(small.exact[0].rmse, rel=1e-4)
    for one, other in zip(large.draws, small.draws, strict=True):
        assert one.kl == pytest.approx(other.kl, rel=1e-2)


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: compare_table(TABLE.X[:9], TABLE.y[:9]), rfgp.DataError, "256 training and 256 test"),
        (lambda: compare_table(TABLE.X, TABLE.y, methods=["x"]), rfgp.InvalidArgumentError, "got 'x'"),
        (lambda: compare_table(TABLE.X, TABLE.y * np.nan), rfgp.DataError, "not finite"),
        (lambda: compare_table(TABLE.X, TABLE.y, num_train=1), rfgp.InvalidArgumentError, "num_train"),
        (lambda: compare_nodes(GRAPH, range(49), np.r_[VALUES[:48], np.nan]), rfgp.DataError, "row 48"),
        (lambda: Plan(splits=0), rfgp.InvalidArgumentError, "splits"),
    ],
)
def test_bad_requests_are_named(call, error, word):
    refused(call, error, word)
