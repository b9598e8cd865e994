"""Counts by Gaussian processes, boosted trees and a log-linear model, on hourly bike rentals and made tables.

Protocol. `bike-without-counts` of `rfgp.datasets` has the centered logarithm of a count, to four decimals: the count is
exp(y - min y), within 0.06 of a whole number, and rounded. It has 13 inputs. Ten random splits: of numpy's permutation
at seeds 0 to 9, 5,000 rows train and the next 2,000 test. The tables made-poisson and made-negative have 5,000 rows of
four uniform columns and a smooth log rate, drawn once. The counts are Poisson, or negative binomial with variance mean
+ mean^2 / 2. There are ten splits of 4,500 and 500 rows. Inputs are standardized on training rows.

Figures: mean log density of the test counts; RMSE of the mean; seconds of the fit and of all predictions, imports
apart. The distribution of a count is Poisson or negative binomial given the log rate, a normal distribution of the log
rate integrated out on a grid. Each run is alone, on as many threads as the environment says, in a process of its own
that is ended after `--limit` seconds. Nothing is tuned on test rows. `FEWER` has the racers that are too slow for ten
splits.

- rfgp-poisson, rfgp-negative: `rfgp.GP` with 512 frequencies and that likelihood, at seed 0.
- gpboost-poisson, gpboost-negative: GPBoost's Vecchia approximation (30 neighbors, Matern 3/2, ARD, an intercept) and
  its Laplace approximation of the latent values, whose normal distribution at the test rows is the log rate's.
- boosting: HistGradientBoostingRegressor(loss="poisson"), early stopping on a random tenth of the training rows;
  Poisson distributions. boosting-negative: the same means, and the dispersion most likely on the tenth kept out.
- linear: Poisson regression (log-linear, without penalty), Poisson distributions. linear-negative: the same means, and
  the dispersion most likely on the training rows.
- truth: the distribution that the made counts were drawn from.

A racer of a package that is not installed is left out, with a word. Results are lines of JSON that are added to
`--out`; what stands there already is not run again; `--page` gets means and standard errors.

    python -m benchmarks.races.counts [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS] [--out FILE]
                                      [--page FILE]
"""

import importlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from benchmarks.races import processes

Array = NDArray[np.float64]

MODULE = "benchmarks.races.counts"
TABLES = ("made-poisson", "made-negative", "bike")
SIZES = {"bike": (5000, 2000)}
ROWS, SHAPE = 5000, 2.0
GRID = np.linspace(-8, 8, 2001)
COLUMNS = ("log_density", "rmse", "fit_s", "predict_s")
FEWER = {
    **{(f"gpboost-{law}", table): 3 for law in ("poisson", "negative") for table in ("made-poisson", "made-negative")},
    **{(f"gpboost-{law}", "bike"): 2 for law in ("poisson", "negative")},
}


class Law(NamedTuple):
    """Counts given a normal distribution of their log rates.

    Attributes:
        mean: The means (n,) of the log rates.
        variance: The variances (n,) of the log rates.
        shape: The r of the negative binomial distribution of variance m + m^2 / r. If None, Poisson.
    """

    mean: Array
    variance: Array
    shape: float | None = None


class Answer(NamedTuple):
    """The distribution of the test rows' counts, and the seconds of the fit alone."""

    law: Law
    fit_seconds: float


FitPredict = Callable[[Array, Array, Array], Answer]
"""`fit_predict(x_train, y_train, x_test)`: (n, d), (n,), (n_test, d)."""


@dataclass(frozen=True)
class Racer:
    """A method for distributions of counts, and the required module, which is loaded before the clock starts."""

    package: str
    fit_predict: FitPredict


class Split(NamedTuple):
    """Standardized rows and counts; `truth` has the log rates of made test rows."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array
    truth: Array


def log_rate(X: Array) -> Array:  # (n, 4)
    """Return a smooth function on [-2, 2]^4."""
    return 1 + 0.8 * np.sin(2 * X[:, 0]) + 0.6 * X[:, 1] * np.cos(X[:, 2]) + 0.5 * np.exp(-(X[:, 3] ** 2))


@cache
def table(name: str) -> tuple[Array, Array, Array]:
    """Return inputs, counts, and log rates (nan if they are not known)."""
    if name != "bike":
        rng = np.random.default_rng(0)
        X = rng.uniform(-2, 2, (ROWS, 4))
        rate = np.exp(log_rate(X))
        if name == "made-negative":
            rate = rate * rng.gamma(SHAPE, 1 / SHAPE, ROWS)
        return X, rng.poisson(rate).astype(float), log_rate(X)
    from rfgp import datasets

    rows = datasets.load("bike-without-counts")
    X, y = np.asarray(rows.X, dtype=np.float64), np.asarray(rows.y, dtype=np.float64)
    return X, np.round(np.exp(y - y.min())), np.full(len(y), np.nan)


def split(name: str, seed: int) -> Split:
    X, y, truth = table(name)
    train, test = SIZES.get(name, (ROWS - ROWS // 10, ROWS // 10))
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = order[:train], order[train : train + test]
    X = (X - X[a].mean(0)) / X[a].std(0)
    return Split(X[a], y[a], X[b], y[b], truth[b])


def log_prob(y: Array, law: Law) -> Array:
    """Return the log density of each count, the log rate integrated out."""
    rates = law.mean[:, None] + np.sqrt(law.variance)[:, None] * GRID
    if law.variance.max() == 0:
        rates = law.mean[:, None]
    weights = -0.5 * GRID**2 - np.log(np.sum(np.exp(-0.5 * GRID**2))) if rates.shape[1] > 1 else np.zeros(1)
    if law.shape is None:
        given = y[:, None] * rates - np.exp(rates) - gammaln(y + 1)[:, None]
    else:
        r = law.shape
        given = y[:, None] * rates - (y[:, None] + r) * np.logaddexp(np.log(r), rates) + r * np.log(r)
        given += (gammaln(y + r) - gammaln(r) - gammaln(y + 1))[:, None]
    found: Array = np.logaddexp.reduce(given + weights, axis=1)
    return found


def measures(y: Array, law: Law) -> dict[str, float]:
    mean = np.exp(law.mean + law.variance / 2)
    figures = {"log_density": log_prob(y, law).mean(), "rmse": np.sqrt(np.mean((y - mean) ** 2))}
    return {name: float(value) for name, value in figures.items()}


# --- racers ----------------------------------------------------------------------------------------------------------


def sure(mean: Array, shape: float | None = None) -> Law:
    """Return the distribution of counts of given means."""
    return Law(np.log(np.maximum(mean, 1e-12)), np.zeros(len(mean)), shape)


def likely_shape(y: Array, mean: Array) -> float:
    """Return the shape of negative binomial distributions of given means that makes counts most likely."""
    found = minimize_scalar(lambda log: -log_prob(y, sure(mean, np.exp(log))).sum(), bounds=(-5, 12))
    return float(np.exp(found.x))


def rfgp(x: Array, y: Array, z: Array, likelihood: str) -> Answer:
    from rfgp import GP, RandomFeatures
    from rfgp.kernels import RBF

    begin = time.perf_counter()
    gp = GP(RBF(), likelihood, RandomFeatures(512), seed=0).fit(x, y)
    seconds = time.perf_counter() - begin
    law = gp.predict(z)
    shape = None if likelihood == "poisson" else 1 / gp.hyperparameters.dispersion.item()
    return Answer(Law(law.mean, law.variance, shape), seconds)


def gpboost(x: Array, y: Array, z: Array, likelihood: str) -> Answer:
    import gpboost as package

    begin = time.perf_counter()
    options = {"cov_function": "matern_ard", "cov_fct_shape": 1.5, "gp_approx": "vecchia", "num_neighbors": 30}
    model = package.GPModel(gp_coords=x, likelihood=likelihood, num_parallel_threads=1, **options)
    model.fit(y=y, X=np.ones((len(y), 1)))
    seconds = time.perf_counter() - begin
    ones = np.ones((len(z), 1))
    found = model.predict(gp_coords_pred=z, X_pred=ones, predict_var=True, predict_response=False)
    shape = None if likelihood == "poisson" else float(np.ravel(model.get_aux_pars())[0])
    return Answer(Law(np.asarray(found["mu"]), np.asarray(found["var"]), shape), seconds)


def boosting(x: Array, y: Array, z: Array, negative: bool) -> Answer:
    from sklearn.ensemble import HistGradientBoostingRegressor

    begin = time.perf_counter()
    order = np.random.default_rng(0).permutation(len(y))
    out, left = order[: len(y) // 10], order[len(y) // 10 :]
    model = HistGradientBoostingRegressor(loss="poisson", early_stopping=True, random_state=0)
    model.fit(x[left], y[left], X_val=x[out], y_val=y[out])
    shape = likely_shape(y[out], model.predict(x[out])) if negative else None
    seconds = time.perf_counter() - begin
    return Answer(sure(model.predict(z), shape), seconds)


def linear(x: Array, y: Array, z: Array, negative: bool) -> Answer:
    from sklearn.linear_model import PoissonRegressor

    begin = time.perf_counter()
    model = PoissonRegressor(alpha=0, max_iter=1000).fit(x, y)
    shape = likely_shape(y, model.predict(x)) if negative else None
    seconds = time.perf_counter() - begin
    return Answer(sure(model.predict(z), shape), seconds)


RACERS = {
    "rfgp-poisson": Racer("rfgp", partial(rfgp, likelihood="poisson")),
    "rfgp-negative": Racer("rfgp", partial(rfgp, likelihood="negative-binomial")),
    "linear": Racer("sklearn.linear_model", partial(linear, negative=False)),
    "linear-negative": Racer("sklearn.linear_model", partial(linear, negative=True)),
    "boosting": Racer("sklearn.ensemble", partial(boosting, negative=False)),
    "boosting-negative": Racer("sklearn.ensemble", partial(boosting, negative=True)),
    "gpboost-poisson": Racer("gpboost", partial(gpboost, likelihood="poisson")),
    "gpboost-negative": Racer("gpboost", partial(gpboost, likelihood="negative_binomial")),
}
TRUTH = "truth"


def run(racer: str, case: Split, negative: bool) -> dict[str, float | int]:
    """Fit and predict in this process, and return the figures."""
    warnings.simplefilter("ignore")
    if racer == TRUTH:
        law = Law(case.truth, np.zeros(len(case.truth)), SHAPE if negative else None)
        return {**measures(case.y_test, law), "fit_s": 0.0, "predict_s": 0.0}
    importlib.import_module(RACERS[racer].package)
    begin = time.perf_counter()
    law, fitted = RACERS[racer].fit_predict(case.x, case.y, case.x_test)
    seconds = {"fit_s": fitted, "predict_s": time.perf_counter() - begin - fitted}
    shape = {} if law.shape is None else {"shape": law.shape}
    return {**measures(case.y_test, law), **seconds, **shape, "train": len(case.y), "test": len(case.y_test)}


def cases(tables: list[str], racers: list[str], splits: int) -> Iterator[tuple[str, int, str]]:
    """Yield the runs, all of one seed before the next."""
    known = processes.present({name: RACERS[name].package if name in RACERS else "numpy" for name in racers})
    for seed in range(splits):
        for name in tables:
            for racer in known:
                if (racer, name) != (TRUTH, "bike") and seed < FEWER.get((racer, name), splits):
                    yield name, seed, racer


def arrays(name: str, seed: int) -> dict[str, Any]:
    return {**split(name, seed)._asdict(), "negative": name == "made-negative"}


def main() -> None:
    options = processes.options(TABLES, [TRUTH, *RACERS])
    if options.run:
        racer, _, file = options.run
        rows = np.load(file)
        print(json.dumps(run(racer, Split(*(rows[name] for name in Split._fields)), bool(rows["negative"]))))
        return
    wanted = cases(options.tables, options.racers, options.splits)
    found = processes.run_all(MODULE, wanted, arrays, options.limit, options.out)
    processes.show(processes.page(found, COLUMNS), options.page)


if __name__ == "__main__":
    main()
