"""Counts of which almost all are 0: finite means, and a warning about those far from the data."""

import warnings

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k
from rfgp import priors

COUNTS = ("poisson", "negative-binomial")


def rare(n=150):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(n, 3)), np.zeros(n)
    y[rng.integers(n)] = 10_000
    return X, y


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(32)], ids=repr)
@pytest.mark.parametrize("likelihood", COUNTS)
@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
def test_means_are_not_above_the_largest_count(likelihood, approximation):
    X, y = rare()
    gp = rfgp.GP(k.RBF(), likelihood, approximation, seed=0).fit(X, y)
    assert gp.predict(X).observed().mean.max() < 2 * y.max()


def test_means_explode_without_the_prior():
    X, y = rare()
    gp = rfgp.GP(k.RBF(), "poisson", rfgp.Exact(), priors={"outputscale": None}, seed=0)
    with pytest.warns(rfgp.LatentVarianceWarning, match="quantile"):
        gp.fit(X, y)
    assert gp.predict(X).observed().mean.max() > 1e20 * y.max()


@pytest.mark.parametrize("likelihood", COUNTS)
def test_usual_counts_do_not_warn(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 1))
    rate = np.exp(1 + 2 * np.sin(6 * X[:, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", rfgp.LatentVarianceWarning)
        gp = rfgp.GP(k.RBF(), likelihood, rfgp.Exact(), seed=0).fit(X, rng.poisson(rate))
    assert np.abs(np.log(gp.predict(X).observed().mean / rate)).max() < 0.5


def test_a_prior_that_is_given_takes_the_place_of_the_default():
    X, y = rare(30)
    space = rfgp.GP(k.RBF(), "poisson", priors={"outputscale": priors.HalfNormalDeviation(0.5)}).condition(X, y)
    assert space.state.hyperparameters.space.hyperpriors == {"rbf.outputscale": priors.HalfNormalDeviation(0.5)}
