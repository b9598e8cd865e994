"""What every model does: it swaps one regression for another, and never half."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import graphs
import rfgp
from rfgp import kernels as k


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
    "inducing": (
        lambda: rfgp.GP(rfgp.kernels.RBF(), approximation=rfgp.InducingPoints(16, method="sor"), seed=0),
        drawn(),
    ),
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


def test_refused_calls_change_nothing(fitted):
    model, X, y = fitted
    before = answers(model, X)
    for call in (model.fit, model.condition, model.update):
        with pytest.raises(rfgp.DataError):
            call(X, y[:-1])
    assert_same(model, X, before)


def test_fit_does_not_depend_on_earlier_fits(fitted):
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


# --- what is warned of ---------------------------------------------------------------------------


def truth(n=30):
    X = np.random.default_rng(0).standard_normal((n, 2))
    return X, X[:, 0] > 0


def as_blocks(X, y):
    return (rfgp.tables.Batches(lambda: iter([(X[:20], y[:20]), (X[20:], y[20:])])),)


def as_named_blocks(X, y):
    block = {"a": X[:, 0], "b": X[:, 1], "y": y}
    return (rfgp.tables.Batches([block, block], target="y"),)


WAYS_IN = {
    "array": lambda X, y: (X, y),
    "several": lambda X, y: (X, np.stack([y, X[:, 1] > 0], axis=1)),
    "list": lambda X, y: (X, y.tolist()),
    "tensor": lambda X, y: (torch.as_tensor(X), torch.as_tensor(y)),
    "series": lambda X, y: (X, pd.Series(y)),
    "nullable": lambda X, y: (X, pd.Series(y, dtype="boolean")),
    "frame": lambda X, y: (X, pd.DataFrame({"y": y})),
    "blocks": as_blocks,
    "named blocks": as_named_blocks,
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_boolean_targets_warn_once(way):
    for verb in ("fit", "condition"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gp = rfgp.SparseSpectrumGP(num_frequencies=4, coupling="iid", seed=0)
            getattr(gp, verb)(*WAYS_IN[way](*truth()))
        found = [entry for entry in caught if issubclass(entry.category, rfgp.BooleanTargetWarning)]
        assert len(found) == 1
        assert "hold booleans" in str(found[0].message).replace("holds", "hold")


def test_boolean_targets_of_other_inputs_warn(tmp_path):
    X, y = truth()
    pd.DataFrame({"a": X[:, 0], "y": y}).to_parquet(tmp_path / "t.parquet")
    with pytest.warns(rfgp.BooleanTargetWarning, match="t.parquet: 'y' holds booleans") as caught:
        rfgp.tables.Parquet(tmp_path / "t.parquet", target="y")
    assert [entry.filename for entry in caught] == [__file__]
    gp = rfgp.GraphGP(graphs.Graph.from_edges([(i, i + 1) for i in range(29)]), seed=0)
    with pytest.warns(rfgp.BooleanTargetWarning) as caught:
        gp.condition(range(30), y)
    assert [entry.filename for entry in caught] == [__file__]
    with pytest.warns(rfgp.BooleanTargetWarning) as caught:
        rfgp.sklearn.GPRegressor(k.RBF(), rfgp.RandomFeatures(4), random_state=0, max_iter=200).fit(X, y)
    assert [entry.category for entry in caught].count(rfgp.BooleanTargetWarning) == 1


def test_overfitting_warns_if_rows_are_too_few():
    X = np.random.default_rng(0).standard_normal((8, 4))
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    with pytest.warns(rfgp.OverfittingWarning, match=r"7 observations cannot determine 7 hyperp.* \(try ard=False, or"):
        gp.fit(X[:7], X[:7, 0])
    gp.fit(X, X[:, 0])
    rfgp.SparseSpectrumGP(num_frequencies=4, seed=0, ard=False).fit(X[:5], X[:5, 0])
    rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(X[:7], X[:7, 0], fixed="noise")
