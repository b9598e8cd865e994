"""Walks of every kind have the mean that they should have, and planted faults are found."""

import numpy as np
import pytest
from checks import fails
from walking import GRAPHS, PERMUTATION, TUPLES, check_unbiased, draws, moving

from graphs import HopRule
from graphs.couplings import LENGTHS, STEP_COUPLINGS
from graphs.walks import compiled, drawing, transitions


@pytest.mark.thinned(8, slow=5)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("step_coupling", STEP_COUPLINGS)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("exact_hops", [0, 1, 2])
def test_all_combinations_are_unbiased(name, step_coupling, lengths, exact_hops):
    options = {"step_coupling": step_coupling, "lengths": lengths, "permutation": PERMUTATION, "tuples": TUPLES}
    phi = draws(GRAPHS[name], exact_hops=exact_hops, **options, transitions=moving(name, step_coupling))
    check_unbiased(GRAPHS[name], phi)


@pytest.mark.parametrize("name", GRAPHS)
def test_hops_by_a_rule_are_unbiased(name):
    check_unbiased(GRAPHS[name], draws(GRAPHS[name], exact_hops=HopRule([1, 2, 4])))


@pytest.mark.parametrize("step_coupling", STEP_COUPLINGS)
def test_uniform_moves_on_a_weighted_graph_are_unbiased(step_coupling):
    g = GRAPHS["weighted"]
    check_unbiased(g, draws(g, step_coupling=step_coupling, transitions="uniform"))


def test_long_survival_array_is_unbiased():
    survival = np.concatenate([np.ones(3), 0.5 ** np.arange(1, 60)])
    g = GRAPHS["star"]
    check_unbiased(g, draws(g, p_halt=survival))


class TestPlantedErrors:
    """Faults of the engine's kind, each found by `check_unbiased`."""

    def test_planted_missing_survival_is_found(self, monkeypatch):
        monkeypatch.setattr("graphs.couplings.HaltingDistribution.survival", lambda self, length: np.ones(length + 1))
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"], lengths="iid"))

    def test_planted_missing_probability_is_found(self, monkeypatch):
        monkeypatch.setattr(
            transitions.TransitionModel, "sqrt_degrees", property(lambda self: np.ones(self.graph.num_nodes))
        )
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"]))
        monkeypatch.undo()
        monkeypatch.setattr(transitions.TransitionModel, "load_factors", property(lambda self: self.matrix.data))
        g = GRAPHS["weighted"]
        assert fails(check_unbiased, g, draws(g, transitions="uniform"))

    def test_planted_biased_moves_are_found(self, monkeypatch):
        def planted(self):
            return np.concatenate([(np.arange(1, c + 1) / c) ** 1.3 for c in np.diff(self.matrix.indptr)])

        monkeypatch.setattr(transitions.TransitionModel, "cumulative", property(planted))
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"]))

    def test_planted_shared_stream_is_found(self, monkeypatch):
        original = drawing.node_draws
        monkeypatch.setattr(drawing, "node_draws", lambda nodes, settings: original(nodes // 5 * 5, settings))
        assert fails(check_unbiased, GRAPHS["bipartite"], draws(GRAPHS["bipartite"], walkers=2))

    def test_planted_double_hop_is_found(self, monkeypatch):
        original = compiled.walk
        monkeypatch.setattr(compiled, "walk", lambda *a: original(*a[:6], a[6] - 1, *a[7:]))
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"], exact_hops=1))

    def test_planted_wrong_starts_are_found(self, monkeypatch):
        original = compiled.draw_starts
        monkeypatch.setattr(compiled, "draw_starts", lambda *a: np.sort(original(*a))[:, :1].repeat(a[4], axis=1))
        assert fails(check_unbiased, GRAPHS["path"], draws(GRAPHS["path"], exact_hops=2))
