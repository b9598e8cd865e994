"""Counts by Gaussian processes, boosted trees and a log-linear model, on hourly bike rentals and made tables.

Protocol. `bike-without-counts` of `rfgp.datasets` has the centered logarithm of a count, to four decimals: the count is
exp(y - min y), within 0.06 of a whole number, and rounded. It has 13 inputs. Splits are of numpy's permutation at the
seed: 5,000 rows train and the next 2,000 test. The tables made-poisson and made-negative have 5,000 rows of four
uniform columns and a smooth log rate, drawn once. The counts are Poisson, or negative binomial with variance mean +
mean^2 / 2. 4,500 rows train and 500 test. Inputs are standardized on training rows.

Scores: NLPD of the test counts, RMSE of the mean, coverage of 95 % intervals. The distribution of a count is Poisson or
negative binomial given the log rate, a normal distribution of the log rate integrated out on a grid.

- rfgp-poisson, rfgp-negative: `rfgp.GP` with 512 frequencies and that likelihood, at seed 0.
- gpboost-poisson, gpboost-negative: GPBoost's Vecchia approximation (30 neighbors, Matern 3/2, ARD, an intercept) and
  its Laplace approximation of the latent values, whose normal distribution at the test rows is the log rate's.
- boosting: HistGradientBoostingRegressor(loss="poisson"), early stopping on a random tenth of the training rows;
  Poisson distributions. boosting-negative: the same means, and the dispersion most likely on the tenth kept out.
- linear: Poisson regression (log-linear, without penalty), Poisson distributions. linear-negative: the same means, and
  the dispersion most likely on the training rows.
- truth: the distribution that the made counts were drawn from.

    python -m benchmarks.races.counts [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS] [--out FILE]
"""

import argparse
from functools import cache

import numpy as np

import rfgp
from benchmarks import models, scores
from benchmarks.race import Array, Model, Race, Split

MADE = ("made-poisson", "made-negative")
ROWS, SHAPE = 5000, 2.0


def log_rate(X: Array) -> Array:  # (n, 4)
    """Return a smooth function on [-2, 2]^4."""
    return 1 + 0.8 * np.sin(2 * X[:, 0]) + 0.6 * X[:, 1] * np.cos(X[:, 2]) + 0.5 * np.exp(-(X[:, 3] ** 2))


@cache
def table(name: str) -> tuple[Array, Array, Array]:
    """Return inputs, counts, and log rates (nan if they are not known)."""
    if name in MADE:
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, (ROWS, 4))
        rate = np.exp(log_rate(X))
        if name == "made-negative":
            rate = rate * rng.gamma(SHAPE, 1 / SHAPE, ROWS)
        return X, rng.poisson(rate).astype(float), log_rate(X)
    rows = rfgp.datasets.load("bike-without-counts")
    X, y = np.asarray(rows.X, dtype=np.float64), np.asarray(rows.y, dtype=np.float64)
    return X, np.round(np.exp(y - y.min())), np.full(len(y), np.nan)


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return standardized rows and counts, and the true distributions of those that are held out."""
    X, y, truth = table(name)
    train, test = (ROWS - ROWS // 10, ROWS // 10) if name in MADE else (5000, 2000)
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = order[:train], order[train : train + test]
    X = (X - X[a].mean(0)) / X[a].std(0)
    known = scores.Counts(truth[b], np.zeros(len(b)), SHAPE if name == "made-negative" else None)
    return Split(X[a], y[a], X[b], y[b], known)


def ours(likelihood: str) -> Model:
    """Return a model of this package."""
    features, kernel = rfgp.RandomFeatures(512), rfgp.kernels.RBF()
    return Model("rfgp.gp", models.gp_counts(lambda _: rfgp.GP(kernel, likelihood, features, seed=0)))


RACE = Race(
    "benchmarks.races.counts",
    (*MADE, "bike"),
    split,
    {
        "truth": Model("numpy", lambda *_: lambda _: None, MADE),
        "rfgp-poisson": ours("poisson"),
        "rfgp-negative": ours("negative-binomial"),
        "linear": Model("sklearn.linear_model", models.poisson_regression()),
        "linear-negative": Model("sklearn.linear_model", models.poisson_regression(negative=True)),
        "boosting": Model("sklearn.ensemble", models.poisson_boosting()),
        "boosting-negative": Model("sklearn.ensemble", models.poisson_boosting(negative=True)),
        "gpboost-poisson": Model("gpboost", models.gpboost("poisson", num_neighbors=30)),
        "gpboost-negative": Model("gpboost", models.gpboost("negative_binomial", num_neighbors=30)),
    },
    lambda found, rows: scores.of_targets(rows.about if found is None else found, rows.w),
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
