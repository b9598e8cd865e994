"""Averages of exact kernels: their weights, and what a fit makes of them."""

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from selection_cases import among, candidate

import rfgp
from rfgp import kernels as k
from rfgp.fitting.maximize import Objective
from rfgp.selection import stacking, successive_halving, validation

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
NEW = np.random.default_rng(9).uniform(-1, 1, (7, 2))


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 5 + 2 * np.sin(4 * X[:, 0]) * np.cos(X[:, 1]) + 0.3 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def averaged():
    gp = rfgp.GP(seed=0).fit(*table())
    assert successive_halving.MAX_AVERAGED >= len(gp.members) >= 3
    return gp


@pytest.fixture
def evaluations(monkeypatch):
    """The evaluations of objectives so far, as a list that grows."""
    found, evaluated = [], Objective.evaluated
    monkeypatch.setattr(Objective, "evaluated", lambda self, *arguments: found.append(1) or evaluated(self, *arguments))
    return found


# --- weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_weights_maximize_the_penalized_density_of_the_mixture(seed):
    rng = np.random.default_rng(seed)
    densities = rng.normal([0.0, 0.3, -0.2], 1, (50, 3))
    counts = rng.integers(1, 4, 50).astype(float)
    found = stacking.stacking_weights([torch.tensor(column) for column in densities.T], torch.tensor(counts))

    def objective(weights):
        return counts @ np.log(np.exp(densities) @ weights) + stacking.PRIOR_ROWS * np.log(weights).sum()

    def softmax(logits):
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    best = -minimize(lambda logits: -objective(softmax(logits)), np.zeros(3), tol=1e-10).fun
    assert sum(found) == pytest.approx(1)
    assert objective(np.array(found)) == pytest.approx(best, abs=1e-4)
    assert best > objective(np.full(3, 1 / 3)) + 0.1  # equal weights would fail


def test_small_weights_are_left_out(monkeypatch):
    monkeypatch.setattr(stacking, "MIN_WEIGHT", 0.1)
    good, ones = torch.zeros(200), torch.ones(200)
    same = 0.01 * torch.arange(200).sub(99.5).sign()
    one, two, three = stacking.stacking_weights([good, same, torch.full((200,), -0.45)], ones)
    assert three == 0
    assert one + two == pytest.approx(1)
    ahead_on_half = torch.tensor([1.0, -9.0]).repeat(100)
    assert stacking.stacking_weights([good, ahead_on_half], ones)[1] > 0.1
    assert stacking.stacking_weights([good], ones) == [1.0]


# --- fits ---------------------------------------------------------------------------------------------------


def test_members_have_the_weights_of_the_selection(averaged):
    selection = averaged.selection
    weights = sorted(filter(None, selection.weights), reverse=True)
    assert [weight for weight, _ in averaged.members] == weights
    assert weights[0] == selection.weights[selection.best]
    assert sorted(selection.parts.values(), reverse=True) == weights
    assert str(averaged.members[0][1].hyperparameters.values) == str(averaged.hyperparameters.values)
    assert sum("of the average" in line for line in selection.table()) == len(averaged.members)
    assert selection.reason.startswith("The average of ")
    assert repr(selection).startswith("SelectionReport(an average of ")


@pytest.mark.parametrize("kind", ["outputs", "approximation", "poisson", "one candidate", "time limit"])
def test_only_several_exact_gaussian_candidates_are_averaged(kind):
    X, y = table()
    gp = {
        "outputs": rfgp.GP(seed=0),
        "approximation": rfgp.GP(approximation=rfgp.RandomFeatures(8), seed=0),
        "poisson": rfgp.GP(likelihood="poisson", seed=0),
        "one candidate": among(candidate(k.RBF(), rfgp.Exact())),
        "time limit": rfgp.GP(seed=0, time_limit=1e-9),
    }[kind]
    y = {"outputs": np.stack([y, y**2], 1), "poisson": np.round(np.abs(y))}.get(kind, y)
    assert gp.fit(X, y, max_iterations=3).members == ()


def test_searches_end_where_they_gain_little(monkeypatch, evaluations):
    X, y = table()
    gp, taken = rfgp.GP(seed=0).fit(X, y), len(evaluations)
    kernel = gp.members[0][1].spec.options.kernel
    whole = rfgp.GP(kernel, approximation=rfgp.Exact()).fit(X, y)
    gain = whole.fit_report.log_marginal_likelihood - gp.fit_report.log_marginal_likelihood
    assert gp.fit_report.converged
    assert -1e-3 < gain < 3 * validation.AVERAGING_GAIN
    evaluations.clear()
    monkeypatch.setattr(validation, "AVERAGING_GAIN", 0.0)
    rfgp.GP(seed=0).fit(X, y)
    assert taken < 0.9 * len(evaluations)


def test_killed_selections_continue_from_a_checkpoint(tmp_path, evaluations):
    X, y = table()
    whole, all_of_them = rfgp.GP(seed=0).fit(X, y), len(evaluations)

    def kill(iteration, value):
        if len(evaluations) >= all_of_them + 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rfgp.GP(seed=0).fit(X, y, checkpoint=tmp_path / "c", callback=kill)
    before = len(evaluations)
    again = rfgp.GP(seed=0).fit(X, y, checkpoint=tmp_path / "c")
    assert len(evaluations) - before < all_of_them - 35
    assert again.selection == whole.selection
    np.testing.assert_array_equal(again.predict(NEW).mean, whole.predict(NEW).mean)


def test_averages_of_one_column_are_those_of_a_vector(averaged, tmp_path):
    X, y = table()
    gp = rfgp.GP(seed=0).fit(X, y[:, None])
    prediction = gp.predict(NEW)
    np.testing.assert_allclose(prediction.mean[:, 0], averaged.predict(NEW).mean, rtol=1e-9)
    assert prediction.observed().sample(5, seed=0).shape == (5, 7, 1)
    assert prediction.quantile([0.1, 0.9]).shape == (2, 7, 1)
    assert prediction.linear(np.ones((2, 7))).sample(3, seed=0).shape == (3, 2, 1)
    gp.save(tmp_path / "model", data=True)
    np.testing.assert_allclose(rfgp.load(tmp_path / "model").predict(NEW).mean, prediction.mean, rtol=1e-12)


def test_saved_averages_keep_their_selection(averaged, tmp_path):
    averaged.save(tmp_path / "model", data=True)
    loaded = rfgp.load(tmp_path / "model")
    assert loaded.selection == averaged.selection
    assert str(loaded) == str(averaged)
    np.testing.assert_array_equal(loaded.predict(NEW).variance, averaged.predict(NEW).variance)
    more = [one.update(NEW[:1], [5.0]).predict(NEW).mean for one in (loaded, copy.deepcopy(averaged))]
    np.testing.assert_allclose(*more, rtol=1e-12)


def test_another_fit_of_an_average_selects_again(averaged):
    X, y = table()
    again = copy.deepcopy(averaged).fit(X, y)
    assert again.selection == averaged.selection
    np.testing.assert_allclose(again.predict(NEW).mean, averaged.predict(NEW).mean, rtol=1e-9)
