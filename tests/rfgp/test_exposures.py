"""Scores of models with exposures: they ask for the exposures of the observations."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k
from rfgp import metrics
from rfgp.sklearn import GPCountRegressor

X = np.random.default_rng(0).normal(size=(60, 1))
HOURS = np.random.default_rng(1).choice([10.0, 20.0, 30.0], size=60)
Y = np.random.default_rng(2).poisson(np.exp(2 + X[:, 0]) * HOURS).astype(float)
SCORES = {
    "nlpd": metrics.nlpd,
    "rmse": metrics.rmse,
    "crps": metrics.crps,
    "residuals": metrics.standardized_residuals,
    "coverage": lambda y, p: metrics.interval_coverage(y, p, [0.9]),
    "log_prob": lambda y, p: p.observed().log_prob(y),
}


def fitted(likelihood, y=Y, exposure=HOURS):
    """Return a model at given hyperparameters."""
    return rfgp.GP(k.Linear(), likelihood, start={"mean": 2.0}, seed=0).condition(X, y, exposure=exposure)


@pytest.fixture(scope="module")
def poisson():
    """Return counts at given hyperparameters."""
    return fitted("poisson")


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_scores_ask_for_exposures(poisson, score):
    p = poisson.predict(X)
    for prediction in (p, p.observed()):
        with pytest.raises(rfgp.InvalidArgumentError, match="exposure"):
            score(Y, prediction)
    assert np.isfinite(np.asarray(score(Y, p.observed(exposure=HOURS)))).all()
    score(np.ones(60), p.observed(exposure=1.0))


@pytest.mark.parametrize("likelihood", ["negative-binomial", "gamma"])
def test_every_likelihood_with_exposures_asks_for_them(likelihood):
    p = fitted(likelihood, Y + 1).predict(X)
    with pytest.raises(rfgp.InvalidArgumentError, match="exposure"):
        metrics.nlpd(Y + 1, p)


def test_the_score_with_exposures_is_that_of_the_counts(poisson):
    assert metrics.nlpd(Y, poisson.predict(X).observed(exposure=HOURS)) < 5  # 499 for an exposure of 1
    assert np.all(poisson.predict(X).observed().mean < Y.max() / 10)  # of one unit


@pytest.mark.parametrize("data", [True, False])
def test_saved_models_ask_for_exposures(poisson, tmp_path, data):
    poisson.save(tmp_path / "model", data=data)
    p = rfgp.load(tmp_path / "model").predict(X)
    with pytest.raises(rfgp.InvalidArgumentError, match="exposure"):
        metrics.nlpd(Y, p)


def test_updates_keep_and_new_rows_replace_exposures():
    gp = fitted("poisson").update(X[:3], Y[:3])
    with pytest.raises(rfgp.InvalidArgumentError, match="exposure"):
        metrics.nlpd(Y, gp.predict(X))
    gp.condition(X, Y)
    assert np.isfinite(metrics.nlpd(Y, gp.predict(X)))


def test_scikit_learn_score_asks_for_exposures():
    model = GPCountRegressor(random_state=0).fit(X, Y, exposure=HOURS)
    with pytest.raises(rfgp.InvalidArgumentError, match="exposure"):
        model.score(X, Y)
    assert model.score(X, Y, exposure=HOURS) > 0.9
