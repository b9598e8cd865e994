"""Selections on graphs and roads: by the error of features, and by leave-one-out among kernels."""

from types import SimpleNamespace

import numpy as np
import pytest
import trimesh

import graphs
import rfgp
from rfgp.regression import GPState
from rfgp.selection import kernels
from tests.support.model_files import assert_refused

pytestmark = pytest.mark.filterwarnings("ignore::graphs.GraphWarning", "ignore::rfgp.RfgpWarning")


def test_features_of_nodes_are_selected_by_their_error(tmp_path, limits):
    graph = graphs.Graph.from_grid((8, 8))
    nodes = np.arange(0, 64, 2)
    y = np.sin(nodes / 6) + 0.1 * np.random.default_rng(1).standard_normal(32)
    few = rfgp.GraphGP(graph, seed=0).fit(nodes, y, max_iterations=2)
    assert few.selection.chosen.name == "exact"
    assert rfgp.GraphGP(graph, features="exact").fit(nodes, y, max_iterations=2).selection is None
    limits(max_exact_nodes=10)
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


BALL = trimesh.creation.icosphere(2)


def waves(count=80):
    rng = np.random.default_rng(3)
    X = BALL.vertices[rng.choice(len(BALL.vertices), count, replace=False)]
    return X, np.sin(2 * X[:, 0]) + X[:, 2] + 1e-3 * rng.standard_normal(count)


@pytest.mark.parametrize("field", [BALL, graphs.MeshField(BALL, 3)], ids=["mesh", "field"])
def test_the_smoothness_of_a_mesh_is_selected_by_leave_one_out(field, tmp_path):
    X, y = waves()
    gp = rfgp.MeshGP(field, "auto", within=0.5, seed=0).fit(X, y)
    values = {}
    for alpha in (2, 3, 4):
        one = rfgp.MeshGP(BALL, alpha, within=0.5, seed=0).fit(X, y)
        values[f"alpha={alpha}"] = float(one.leave_one_out().log_prob.mean())
    assert {trial.name: trial.last.value for trial in gp.selection.trials} == pytest.approx(values, abs=1e-3)
    assert gp.selection.chosen.name == max(values, key=values.get) != "alpha=2"
    assert gp.within == 0.5
    gp.save(tmp_path / "ball", data=True)
    assert rfgp.load(tmp_path / "ball").selection == gp.selection


def test_a_saved_model_without_a_fit_selects_when_it_is_fitted(tmp_path):
    X, y = waves()
    rfgp.MeshGP(BALL, "auto", seed=0).condition(X, y).save(tmp_path / "ball", data=True)
    gp = rfgp.load(tmp_path / "ball").fit(X, y, max_iterations=2)
    assert gp.selection == rfgp.MeshGP(BALL, "auto", seed=0).fit(X, y, max_iterations=2).selection


@pytest.mark.parametrize("content", [["alpha=2"], {"two": None}, 3, {"alpha=2": "RBF"}])
def test_a_file_with_invalid_kernels_to_select_from_is_refused(content, tmp_path):
    def change(options, tensors, header):
        options["alternatives"] = content

    rfgp.MeshGP(BALL, "auto", seed=0).condition(*waves()).save(tmp_path / "ball", data=True)
    assert_refused(tmp_path / "ball", change)


def failing(alphas, error):
    """Return `fit_terms`, which raises an error for kernels with these alphas."""
    fit = kernels.fit_terms

    def fit_or_fail(state, plan):
        ((factor,),) = (term.factors for term in state.spec.kernel.terms())
        if factor.alpha in alphas:
            raise error
        return fit(state, plan)

    return fit_or_fail


ERRORS = [rfgp.NotPositiveDefiniteError("digits"), rfgp.SolverError("steps"), graphs.MemoryBudgetError("bytes")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_kernels_that_fail_are_reported_and_left_out(error, monkeypatch):
    monkeypatch.setattr(kernels, "fit_terms", failing([3, 4], error))
    gp = rfgp.MeshGP(BALL, "auto", seed=0).fit(*waves(), max_iterations=2)
    assert gp.selection.chosen.name == "alpha=2"
    assert [trial.status for trial in gp.selection.trials] == ["", str(error), str(error)]
    assert str(error) in str(gp.selection)


def test_a_fit_without_any_kernel_raises_the_first_error(monkeypatch):
    monkeypatch.setattr(kernels, "fit_terms", failing([2, 3, 4], ERRORS[0]))
    with pytest.raises(rfgp.NotPositiveDefiniteError, match="digits"):
        rfgp.MeshGP(BALL, "auto", seed=0).fit(*waves(), max_iterations=2)


def test_a_score_that_is_not_finite_is_a_failure(monkeypatch):
    """A first score of NaN would be the best of all by max()."""
    leave_one_out = GPState.leave_one_out

    def nan_for_two(state):
        left_out = leave_one_out(state)
        ((factor,),) = (term.factors for term in state.spec.kernel.terms())
        return SimpleNamespace(log_prob=left_out.log_prob * (np.nan if factor.alpha == 2 else 1.0))

    monkeypatch.setattr(GPState, "leave_one_out", nan_for_two)
    gp = rfgp.MeshGP(BALL, "auto", seed=0).fit(*waves(), max_iterations=2)
    assert gp.selection.chosen.name != "alpha=2"
    assert "not finite" in gp.selection.trials[-1].status


def test_other_smoothness_of_a_mesh_is_refused():
    with pytest.raises(graphs.InvalidArgumentError, match="alpha must be an integer from 1 to 6, got 'x'"):
        rfgp.MeshGP(BALL, "x")
    with pytest.raises(rfgp.InvalidArgumentError, match="alpha must be that of the MeshField, 3, or 'auto', got 2"):
        rfgp.MeshGP(graphs.MeshField(BALL, 3), 2)
