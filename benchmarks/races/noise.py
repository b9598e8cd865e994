"""Outliers among training targets, and noise that varies: likelihoods that are not normal.

Protocol. Tables are airfoil, concrete and power-plant of `rfgp.datasets` (of the last 2,000 rows at random), with a
tenth held out (numpy's permutation at seeds 0 to 9). Columns and target are standardized on the training rows. A tenth
of the training targets get an error of a uniform size of 3 to 10 deviations and a random sign, test targets none. The
table made-noise has 1,500 rows of three uniform columns on [-2, 2]. Its target is y = sin(2 a) + b c / 2 + e, and e has
the log variance 1.5 c - 2. It has ten splits of 1,000 and 500 rows, drawn once. Inputs are standardized on training
rows.

Figures: mean log density of the test targets, and their RMSE; seconds of the fit and of all predictions, imports apart.
Each run is alone, on as many threads as the environment says, in a process of its own that is ended after `--limit`
seconds. Nothing is tuned on test rows.

- normal, student-t, heteroscedastic: `rfgp.GP` with 128 fixed frequencies and that likelihood, at seed 0.
- gpboost, gpboost-t: GPBoost's Vecchia approximation (30 neighbors, Matern 3/2, ARD, an intercept), normal errors, and
  its "t" likelihood (Laplace), whose observations have Student's distribution around the normal one of the latent
  function.
- boosting: HistGradientBoostingRegressor with a normal distribution of the deviation of 5-fold out-of-fold errors.
  quantiles: its median, with the deviation of a normal distribution between its quantiles 0.05 and 0.95.

A racer of a package that is not installed is left out, with a word. Results are lines of JSON that are added to
`--out`; what stands there already is not run again; `--page` gets means and standard errors.

    python -m benchmarks.races.noise [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS] [--out FILE]
                                     [--page FILE]
"""

import importlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.races import processes

Array = NDArray[np.float64]

MODULE = "benchmarks.races.noise"
TABLES = ("made-noise", "airfoil", "concrete", "power-plant")
COLUMNS = ("log_density", "rmse", "fit_s", "predict_s")
MOST, SHARE, SIZES = 2000, 0.1, (3.0, 10.0)


class Answer(NamedTuple):
    """Log densities of the test targets and means, (n,) each, and the seconds of the fit alone."""

    log_density: Array
    mean: Array
    fit_seconds: float


class Split(NamedTuple):
    """Standardized rows and targets."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array


FitPredict = Callable[[Split], Answer]


@cache
def table(name: str) -> tuple[Array, Array]:
    """Return inputs (n, d) and targets (n,)."""
    rng = np.random.default_rng(0)
    if name == "made-noise":
        X = rng.uniform(-2, 2, (1500, 3))
        mean, deviation = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2, np.exp(0.75 * X[:, 2] - 1)
        return X, mean + deviation * rng.standard_normal(1500)
    from rfgp import datasets

    rows = datasets.load(name)
    some = rng.permutation(len(rows.y))[:MOST]
    return np.asarray(rows.X, dtype=np.float64)[some], np.asarray(rows.y, dtype=np.float64)[some]


def split(name: str, seed: int) -> Split:
    X, y = table(name)
    rng = np.random.default_rng(seed)
    order, made = rng.permutation(len(y)), name == "made-noise"
    count = len(y) // 3 if made else len(y) // 10
    test, train = order[:count], order[count:]
    X = (X - X[train].mean(0)) / X[train].std(0)
    y = y if made else (y - y[train].mean()) / y[train].std()
    own = y[train].copy()
    if not made:
        bad = rng.permutation(len(own))[: round(SHARE * len(own))]
        own[bad] += rng.uniform(*SIZES, len(bad)) * rng.choice([-1, 1], len(bad))
    return Split(X[train], own, X[test], y[test])


# --- racers ----------------------------------------------------------------------------------------------------------


def rfgp(case: Split, likelihood: str) -> Answer:
    from rfgp import GP, RandomFeatures
    from rfgp.kernels import RBF

    begin = time.perf_counter()
    gp = GP(RBF(), likelihood, RandomFeatures(128), seed=0).fit(case.x, case.y)
    seconds = time.perf_counter() - begin
    law = gp.predict(case.x_test).observed()
    return Answer(law.log_prob(case.y_test), law.mean, seconds)


def gpboost(case: Split, likelihood: str) -> Answer:
    import gpboost as package

    begin = time.perf_counter()
    options = {"cov_function": "matern_ard", "cov_fct_shape": 1.5, "gp_approx": "vecchia", "num_neighbors": 30}
    model = package.GPModel(gp_coords=case.x, likelihood=likelihood, num_parallel_threads=1, **options)
    model.fit(y=case.y, X=np.ones((len(case.y), 1)))
    seconds = time.perf_counter() - begin
    ones, is_gaussian = np.ones((len(case.y_test), 1)), likelihood == "gaussian"
    asked = {"predict_var": True, "predict_response": is_gaussian}
    found = model.predict(gp_coords_pred=case.x_test, X_pred=ones, **asked)
    mean, deviation = np.asarray(found["mu"]), np.sqrt(np.asarray(found["var"]))
    if is_gaussian:
        return Answer(stats.norm(mean, deviation).logpdf(case.y_test), mean, seconds)
    scale, df = np.ravel(model.get_aux_pars())[:2]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    places = mean[:, None] + deviation[:, None] * nodes
    inside = stats.t(df, places, scale).logpdf(case.y_test[:, None]) + np.log(weights / weights.sum())
    return Answer(np.logaddexp.reduce(inside, axis=1), mean, seconds)


def boosting(case: Split) -> Answer:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict

    begin = time.perf_counter()
    model = HistGradientBoostingRegressor(random_state=0)
    deviation = np.sqrt(np.mean((cross_val_predict(model, case.x, case.y) - case.y) ** 2))
    model.fit(case.x, case.y)
    seconds = time.perf_counter() - begin
    mean = model.predict(case.x_test)
    return Answer(stats.norm(mean, deviation).logpdf(case.y_test), mean, seconds)


def quantiles(case: Split) -> Answer:
    from sklearn.ensemble import HistGradientBoostingRegressor

    begin = time.perf_counter()
    models = [
        HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0).fit(case.x, case.y)
        for q in (0.05, 0.5, 0.95)
    ]
    seconds = time.perf_counter() - begin
    low, mean, high = (model.predict(case.x_test) for model in models)
    deviation = np.maximum((high - low) / (2 * stats.norm.ppf(0.95)), 1e-3)
    return Answer(stats.norm(mean, deviation).logpdf(case.y_test), mean, seconds)


RACERS: dict[str, tuple[str, FitPredict]] = {
    "gaussian": ("rfgp", partial(rfgp, likelihood="gaussian")),
    "student-t": ("rfgp", partial(rfgp, likelihood="student-t")),
    "heteroscedastic": ("rfgp", partial(rfgp, likelihood="heteroscedastic")),
    "boosting": ("sklearn.ensemble", boosting),
    "quantiles": ("sklearn.ensemble", quantiles),
    "gpboost": ("gpboost", partial(gpboost, likelihood="gaussian")),
    "gpboost-t": ("gpboost", partial(gpboost, likelihood="t")),
}


def run(racer: str, case: Split) -> dict[str, float]:
    """Fit and predict in this process, and return the figures."""
    warnings.simplefilter("ignore")
    package, fit_predict = RACERS[racer]
    importlib.import_module(package)
    begin = time.perf_counter()
    answer = fit_predict(case)
    seconds = {"fit_s": answer.fit_seconds, "predict_s": time.perf_counter() - begin - answer.fit_seconds}
    error = float(np.sqrt(np.mean((answer.mean - case.y_test) ** 2)))
    return {"log_density": float(np.mean(answer.log_prob)), "rmse": error, **seconds}


def cases(tables: list[str], racers: list[str], splits: int) -> Iterator[tuple[str, int, str]]:
    """Yield the runs, all of one seed before the next."""
    known = processes.present({name: RACERS[name][0] for name in racers})
    yield from ((name, seed, racer) for seed in range(splits) for name in tables for racer in known)


def main() -> None:
    options = processes.options(TABLES, list(RACERS))
    if options.run:
        racer, _, file = options.run
        rows = np.load(file)
        print(json.dumps(run(racer, Split(*(rows[name] for name in Split._fields)))))
        return
    wanted = cases(options.tables, options.racers, options.splits)

    def arrays(name: str, seed: int) -> dict[str, Any]:
        return split(name, seed)._asdict()

    found = processes.run_all(MODULE, wanted, arrays, options.limit, options.out)
    processes.show(processes.page(found, COLUMNS), options.page)


if __name__ == "__main__":
    main()
