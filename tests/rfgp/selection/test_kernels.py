"""Selections on graphs and roads: by the error of features, and by leave-one-out among kernels."""

import numpy as np
import pytest

import graphs
import rfgp
from rfgp.approximations import measured

pytestmark = pytest.mark.filterwarnings("ignore::graphs.GraphWarning", "ignore::rfgp.RfgpWarning")


def test_features_of_nodes_are_selected_by_their_error(tmp_path, monkeypatch):
    graph = graphs.Graph.from_grid((8, 8))
    nodes = np.arange(0, 64, 2)
    y = np.sin(nodes / 6) + 0.1 * np.random.default_rng(1).standard_normal(32)
    few = rfgp.GraphGP(graph, seed=0).fit(nodes, y, max_iterations=2)
    assert few.selection.chosen.name == "exact"
    assert rfgp.GraphGP(graph, features="exact").fit(nodes, y, max_iterations=2).selection is None
    monkeypatch.setattr(measured, "MOST_EXACT_NODES", 10)
    gp = rfgp.GraphGP(graph, seed=0).fit(nodes, y, max_iterations=2)
    errors = {candidate.features: candidate.error for candidate in gp.advice.candidates}
    assert [trial.options["features"] for trial in gp.selection.trials] == list(errors)
    assert gp.selection.chosen.options["features"] == gp.features
    assert gp.selection.chosen.last.value == errors[gp.features]
    gp.save(tmp_path / "nodes")
    assert rfgp.load(tmp_path / "nodes").selection == gp.selection


def test_the_smoothness_of_roads_is_selected_by_leave_one_out(tmp_path):
    lines = [np.array([[float(i), 0.0], [float(i + 1), 0.0]]) for i in range(6)]
    roads = graphs.RoadNetwork.from_lines(lines, metric="euclidean")
    rng = np.random.default_rng(0)
    where = np.stack([rng.integers(0, 6, 60), rng.uniform(0, 1, 60)], axis=1)
    y = np.sin(1.5 * where.sum(1)) + 0.01 * rng.standard_normal(60)
    gp = rfgp.RoadGP(roads, alpha="auto", seed=0).fit(where, y)
    each = [rfgp.RoadGP(roads, alpha=alpha, seed=0).fit(where, y) for alpha in (1, 2)]
    values = [float(one.leave_one_out().log_prob.mean()) for one in each]
    assert gp.selection.chosen.name == "alpha=2"
    assert [trial.last.value for trial in gp.selection.trials] == pytest.approx(values, abs=1e-4)
    assert each[0].selection is None
    gp.save(tmp_path / "roads", data=True)
    assert rfgp.load(tmp_path / "roads").selection == gp.selection
