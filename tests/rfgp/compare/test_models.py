"""Fitted models against each other: scores against formulas, and errors with the model's name."""

import numpy as np
import pytest
from scipy.stats import norm

import rfgp
from rfgp import kernels as k
from rfgp.compare import compare_models


def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 3, (90, 2))
    return X, 5 + np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(90)


X, Y = table()
TRAIN, TEST = slice(0, 60), slice(60, 90)


def model(kernel, y=Y, rows=TRAIN, **options):
    return rfgp.GP(kernel, seed=0, **options).condition(X[rows], y[rows])


MODELS = {"line": model(k.Linear()), "smooth": model(k.RBF()), "first": model(k.RBF(0))}


@pytest.mark.parametrize("data", [(), (X[TEST], Y[TEST])], ids=["left out", "held out"])
def test_scores_match_normal_densities(data):
    y = Y[TEST] if data else Y[TRAIN]
    predicted = {name: gp.predict(X[TEST]).observed() if data else gp.leave_one_out() for name, gp in MODELS.items()}
    normal = {name: norm(p.mean, np.sqrt(p.variance)) for name, p in predicted.items()}
    densities = {name: density.logpdf(y) for name, density in normal.items()}
    found = compare_models(MODELS, *data)
    best, *_ = names = sorted(densities, key=lambda name: -densities[name].mean())
    assert (list(found.scores), found.num_rows) == (names, len(y))
    for name, score in found.scores.items():
        apart = densities[best] - densities[name]
        assert score.log_density == pytest.approx(densities[name].mean(), rel=1e-6)
        assert score.difference == pytest.approx(apart.mean(), abs=1e-6)
        assert score.difference_error == pytest.approx(apart.std(ddof=1) / np.sqrt(len(y)), abs=1e-6)
        assert score.coverage == pytest.approx(np.mean(np.abs(normal[name].cdf(y) - 0.5) < 0.475))
        assert score.rmse == pytest.approx(np.sqrt(np.mean((y - normal[name].mean()) ** 2)))


def test_classes_have_densities_alone():
    y = (X[:, 0] > 1).astype(int) + (X[:, 0] > 2)
    models = {name: model(k.RBF(column), y, likelihood="categorical") for column, name in enumerate("ab")}
    found = compare_models(models, X[TEST], y[TEST]).scores["a"]
    assert found.log_density == pytest.approx(-rfgp.metrics.nlpd(y[TEST], models["a"].predict(X[TEST])))
    assert np.isnan([found.rmse, found.coverage]).all()


def test_counts_have_the_exposures_of_held_out_rows():
    exposure = np.where(np.arange(90) % 2, 4.0, 1.0)
    y = np.random.default_rng(1).poisson(exposure * np.exp(X[:, 0])).astype(float)
    models = {
        name: rfgp.GP(kernel, "poisson", seed=0).condition(X[TRAIN], y[TRAIN], exposure=exposure[TRAIN])
        for name, kernel in {"line": k.Linear(), "smooth": k.RBF()}.items()
    }
    found = compare_models(models, X[TEST], y[TEST], exposure=exposure[TEST]).scores["line"]
    observed = models["line"].predict(X[TEST]).observed(exposure=exposure[TEST])
    assert found.log_density == pytest.approx(-rfgp.metrics.nlpd(y[TEST], observed))
    with pytest.raises(rfgp.InvalidArgumentError, match="Pass X and y"):
        compare_models(models, exposure=exposure[TEST])


@pytest.mark.parametrize(
    ("other", "data", "error", "word"),
    [
        ({}, (), rfgp.InvalidArgumentError, "at least two"),
        ({"b": rfgp.GP(k.RBF())}, (), rfgp.NotFittedError, "no data"),
        ({"b": model(k.RBF(), rows=TEST)}, (), rfgp.DataError, "60 and 30 rows"),
        ({"b": model(k.RBF(), np.log(Y))}, (), rfgp.DataError, "other values"),
        ({"b": model(k.RBF())}, (X,), rfgp.InvalidArgumentError, "together"),
        ({"b": model(k.RBF())}, (X, Y[TEST]), rfgp.InvalidArgumentError, "shape"),
        ({"b": model(k.RBF())}, (X, np.where(np.arange(90) == 7, np.nan, Y)), rfgp.DataError, "Row 7"),
    ],
)
def test_errors_name_the_remedy(other, data, error, word):
    with pytest.raises(error, match=word):
        compare_models({"a": MODELS["line"], **other}, *data)
