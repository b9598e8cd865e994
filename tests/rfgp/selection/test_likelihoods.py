"""Scores of held-out and left-out rows under likelihoods that are not Gaussian."""

import numpy as np
import pandas as pd
import pytest

import rfgp
from rfgp import kernels as k

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")  # searches are short

DRAWS = {
    "bernoulli": lambda f, rng: rng.random(len(f)) < 1 / (1 + np.exp(-3 * f)),
    "categorical": lambda f, rng: np.digitize(f + 0.3 * rng.standard_normal(len(f)), [-0.4, 0.4]),
    "poisson": lambda f, rng: rng.poisson(np.exp(f)),
    "heteroscedastic": lambda f, rng: f + np.exp(f) * rng.standard_normal(len(f)),
}


def drawn(likelihood, n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    return X, DRAWS[likelihood](2 * np.sin(3 * X[:, 0]) * X[:, 1], rng).astype(float)


@pytest.mark.parametrize(("likelihood", "tolerance"), [("bernoulli", 0.05), ("categorical", 0.1), ("poisson", 0.05)])
def test_left_out_scores_match_fits_without_the_row(likelihood, tolerance):
    X, y = drawn(likelihood, 25)
    gp = rfgp.GP(k.RBF(), likelihood=likelihood, seed=0).fit(X, y, max_iterations=5)
    options = gp.spec.options
    for row in range(0, 25, 5):
        kept = np.arange(25) != row
        other = rfgp.GP(k.RBF(), likelihood=options.likelihood, seed=0).condition(X[kept], y[kept])
        for name in gp.hyperparameters.names:
            other.hyperparameters[name] = gp.hyperparameters[name].detach()
        score = other.predict(X[row : row + 1]).observed().log_prob(y[row : row + 1])
        assert gp.leave_one_out().log_prob[row] == pytest.approx(float(score[0]), abs=tolerance)


@pytest.mark.parametrize("likelihood", DRAWS)
def test_selection_scores_left_out_rows(likelihood):
    X, y = drawn(likelihood, 40)
    gp = rfgp.GP(likelihood=likelihood, seed=0).fit(X, y, max_iterations=3)
    report = gp.selection
    assert report.validation == "leave-one-out"
    assert all(trial.scores for trial in report.trials)
    best = report.trials[report.best].scores[-1].value
    assert best == pytest.approx(gp.leave_one_out().log_prob.mean(), abs=1e-6)


@pytest.fixture
def hold_out(limits):
    """Hold out rows of small tables as of large ones."""
    limits(few_rows=50)


def held_out_scores(likelihood, X, y):
    approximation = rfgp.RandomFeatures(8)
    gp = rfgp.GP(likelihood=likelihood, approximation=approximation, seed=0).fit(X, y, max_iterations=3)
    assert gp.selection.num_validation == len(y) // 5
    return [trial.scores[-1].value for trial in gp.selection.trials if trial.scores]


@pytest.mark.parametrize("likelihood", DRAWS)
def test_selection_scores_held_out_rows(likelihood, hold_out):
    scores = held_out_scores(likelihood, *drawn(likelihood, 100))
    assert len(scores) > 1
    assert np.isfinite(scores).all()


def test_held_out_rows_may_have_dates(hold_out):
    """They are predicted from their standardised columns, which a model of dates does not read as numbers."""
    X, y = drawn("bernoulli", 150)
    days = np.round(500 * X[:, 1])
    frame = pd.DataFrame({"x": X[:, 0], "day": pd.Timestamp("1970-01-01") + pd.to_timedelta(days, unit="D")})
    dated, plain = (held_out_scores("bernoulli", rows, y) for rows in (frame, np.stack([X[:, 0], days], 1)))
    np.testing.assert_allclose(dated[: len(plain)], plain, atol=1e-6)  # a season of the dates may follow
