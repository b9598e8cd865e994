"""Outliers among training targets, and noise that varies: likelihoods that are not normal.

Protocol. Tables are airfoil, concrete and power-plant of `rfgp.datasets` (of the last 2,000 rows at random), with a
tenth held out. Columns and target are standardized on the training rows. A tenth of the training targets get an error
of a uniform size of 3 to 10 deviations and a random sign, test targets none. The table made-noise has 1,500 rows of
three uniform columns on [-2, 2]. Its target is y = sin(2 a) + b c / 2 + e, and e has the log variance 1.5 c - 2. 1,000
rows train and 500 test. Inputs are standardized on training rows. Scores: NLPD of the test targets, RMSE, coverage.

- gaussian, student-t, heteroscedastic: `rfgp.GP` with 128 fixed frequencies and that likelihood, at seed 0.
- gpboost, gpboost-t: GPBoost's Vecchia approximation (30 neighbors, Matern 3/2, ARD, an intercept), normal errors, and
  its "t" likelihood (Laplace), whose observations have Student's distribution around the normal one of the latent
  function.
- boosting: HistGradientBoostingRegressor with a normal distribution of the deviation of 5-fold out-of-fold errors.
  quantiles: its median, with the deviation of a normal distribution between its quantiles 0.05 and 0.95.

    python -m benchmarks.races.noise [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS] [--out FILE]
"""

import argparse

import numpy as np

import rfgp
from benchmarks import models
from benchmarks.race import Array, Model, Race, Split, standardized

MADE, MOST, SHARE, SIZES = "made-noise", 2000, 0.1, (3.0, 10.0)


def table(name: str) -> tuple[Array, Array]:
    """Return inputs (n, d) and targets (n,)."""
    rng = np.random.default_rng(0)
    if name == MADE:
        X = rng.uniform(-2, 2, (1500, 3))
        mean, deviation = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2, np.exp(0.75 * X[:, 2] - 1)
        return X, mean + deviation * rng.standard_normal(1500)
    rows = rfgp.datasets.load(name)
    some = rng.permutation(len(rows.y))[:MOST]
    return np.asarray(rows.X, dtype=np.float64)[some], np.asarray(rows.y, dtype=np.float64)[some]


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return standardized rows, with outliers among the training targets of real tables."""
    X, y = table(name)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    count = len(y) // 3 if name == MADE else len(y) // 10
    rows = standardized(X, y, order[count:], order[:count], targets=name != MADE)
    if name != MADE:
        bad = rng.permutation(len(rows.y))[: round(SHARE * len(rows.y))]
        rows.y[bad] += rng.uniform(*SIZES, len(bad)) * rng.choice([-1, 1], len(bad))
    return rows


def ours(likelihood: str) -> Model:
    """Return a model of this package."""
    features, kernel = rfgp.RandomFeatures(128), rfgp.kernels.RBF()
    return Model("rfgp.gp", models.gp_observed(lambda _: rfgp.GP(kernel, likelihood, features, seed=0)))


RACE = Race(
    "benchmarks.races.noise",
    (MADE, "airfoil", "concrete", "power-plant"),
    split,
    {name: ours(name) for name in ("gaussian", "student-t", "heteroscedastic")}
    | {
        "boosting": Model("sklearn.ensemble", models.boosting),
        "quantiles": Model("sklearn.ensemble", models.quantile_boosting(0.5)),
        "gpboost": Model("gpboost", models.gpboost(num_neighbors=30)),
        "gpboost-t": Model("gpboost", models.gpboost("t", num_neighbors=30)),
    },
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
