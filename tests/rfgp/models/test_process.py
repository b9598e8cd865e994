"""What every model does: it swaps one regression for another, and never half."""

import copy
import pickle
import threading

import numpy as np
import pytest

import graphs
import rfgp


def drawn(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def on_nodes():
    nodes = np.arange(0, 64, 2)
    return nodes, np.sin(nodes / 6) + 0.1 * np.random.default_rng(1).standard_normal(len(nodes))


MODELS = {
    "features": (lambda: rfgp.SparseSpectrumGP(num_frequencies=16, coupling="orthogonal", seed=0), drawn()),
    "exact": (lambda: rfgp.ExactGP(), drawn()),
    "walks": (
        lambda: rfgp.GraphGP(graphs.Graph.from_grid((8, 8)), features="walks", num_walkers=32, seed=0),
        on_nodes(),
    ),
}
pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")


@pytest.fixture(params=MODELS)
def fitted(request):
    make, (X, y) = MODELS[request.param]
    return make().fit(X, y, max_iterations=5), X, y


def answers(model, X):
    p = model.predict(X)
    return [p.mean, p.variance, *(raw.detach().numpy().copy() for raw in model.hyperparameters.raw.values())]


def assert_same(model, X, before):
    for now, then in zip(answers(model, X), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_fit_that_is_stopped_changes_nothing(fitted, error):
    model, X, y = fitted
    before, live, report = answers(model, X), model.hyperparameters, model.fit_report

    def stop(done, value):
        raise error

    with pytest.raises(error):
        model.fit(X[:20], y[:20], callback=stop)
    assert_same(model, X, before)
    assert model.hyperparameters is live
    assert model.fit_report is report
    assert model.num_observations == len(X)


def test_what_is_refused_changes_nothing(fitted):
    model, X, y = fitted
    before = answers(model, X)
    for call in (model.fit, model.condition, model.update):
        with pytest.raises(rfgp.DataError):
            call(X, y[:-1])
    assert_same(model, X, before)


def test_a_fit_does_not_depend_on_what_the_model_was_fitted_to_before(fitted):
    model, X, y = fitted
    first = answers(model, X)
    model.hyperparameters.set(noise=50.0)
    model.fit(X[:20], y[:20], max_iterations=3)
    assert_same(model.fit(X, y, max_iterations=5), X, first)


def test_the_live_hyperparameters_stay_over_condition_and_update(fitted):
    model, X, y = fitted
    live, names = model.hyperparameters, list(model.hyperparameters.raw)
    model.condition(X[:30], y[:30]).update(X[30:], y[30:])
    assert model.hyperparameters is live
    assert list(live.raw) == names
    assert names[-1] == "mean"
    assert model.num_observations == len(X)


def test_threads_share_a_model(fitted):
    """Eight threads predict while nobody else does, and each gets the same bits; nothing was computed before."""
    model, X, _ = fitted
    before = answers(model, X)
    fresh, found = pickle.loads(pickle.dumps(model)), []
    start = threading.Barrier(8)

    def ask():
        start.wait()
        found.append(answers(fresh, X))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for values in found:
        for now, then, first in zip(values, before, found[0], strict=True):
            np.testing.assert_allclose(now, then, rtol=1e-9, atol=1e-12)
            np.testing.assert_array_equal(now, first)


def test_a_copy_has_hyperparameters_of_its_own(fitted):
    model, X, _ = fitted
    before, other = answers(model, X), copy.deepcopy(model)
    other.hyperparameters.set(noise=30.0)
    other.predict(X)
    assert_same(model, X, before)
    assert other.hyperparameters.noise.item() == pytest.approx(30.0)
