"""Neighbors of each row, or shared by blocks of rows: accuracy and processor seconds of fits on made tables.

The tables are sums of 400 waves with noise. The frequencies are those of a Matern or Gaussian kernel with one
lengthscale per column. There are rough, smooth, quiet and noisy tables, and rows in clusters. 2,000 rows are held out.
Each fit is that of `rfgp.GP(k.Matern(nu=1.5))` with `rfgp.Vecchia(block_size=...)`, in one thread. NLPD and RMSE are of
the standardized target.

    OMP_NUM_THREADS=1 python -m benchmarks.races.neighbor_blocks [--tables T,...] [--rows N] [--seeds S] [--sizes B,...]
"""

import argparse
import json
import time
import warnings
from typing import Any, NamedTuple

import numpy as np

import rfgp
from rfgp import kernels as k

Array = np.ndarray[Any, np.dtype[np.float64]]
HELD_OUT, WAVES = 2000, 400


class Table(NamedTuple):
    """A made table: lengthscales of columns, nu of the kernel (None: Gaussian), deviation of the noise, clusters."""

    lengthscales: tuple[float, ...]
    nu: float | None
    noise: float
    clusters: int = 0


TABLES = {
    "rough": Table((0.7, 1.0, 1.5, 3.0), 0.5, 0.1),
    "smooth": Table(tuple(np.geomspace(1.2, 8, 8)), None, 0.05),
    "wide": Table((1.0, 1.5, 2.0, 2.5, 3.0, *[60.0] * 15), 1.5, 0.3),
    "noisy": Table(tuple(np.geomspace(0.8, 4, 6)), 1.5, 1.0),
    "quiet": Table((0.5, 0.8, 1.2), 1.5, 0.01),
    "clusters": Table((0.5, 0.7, 1.0, 2.0, 4.0), 1.5, 0.2, clusters=40),
}


def rows_of(table: Table, count: int, seed: int) -> tuple[Array, Array]:
    """Return inputs (n, d) and standardized targets (n,) of a table."""
    rng, d = np.random.default_rng(seed), len(table.lengthscales)
    X = rng.standard_normal((count, d))
    if table.clusters:
        X = 2 * rng.standard_normal((table.clusters, d))[rng.integers(0, table.clusters, count)] + 0.15 * X
    waves = rng.standard_normal((d, WAVES)) / np.array(table.lengthscales)[:, None]
    if table.nu is not None:
        waves /= np.sqrt(rng.chisquare(2 * table.nu, WAVES) / (2 * table.nu))
    y = np.cos(X @ waves + rng.uniform(0, 2 * np.pi, WAVES)) @ rng.standard_normal(WAVES)
    y = y / y.std() + table.noise * rng.standard_normal(count)
    return X, (y - y.mean()) / y.std()


def race(name: str, count: int, seed: int, block_size: int) -> dict[str, Any]:
    """Return the errors and the processor seconds of one fit."""
    X, y = rows_of(TABLES[name], count + HELD_OUT, seed)
    gp = rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.Vecchia(block_size=block_size), seed=seed)
    begin = time.process_time()
    gp = gp.fit(X[HELD_OUT:], y[HELD_OUT:])
    seconds = time.process_time() - begin
    found = gp.predict(X[:HELD_OUT]).observed()
    mean, variance, truth = np.asarray(found.mean), np.asarray(found.variance), y[:HELD_OUT]
    nlpd = 0.5 * np.mean((truth - mean) ** 2 / variance + np.log(2 * np.pi * variance))
    rmse = np.sqrt(np.mean((truth - mean) ** 2))
    figures = {"nlpd": round(float(nlpd), 4), "rmse": round(float(rmse), 4), "processor": round(seconds, 2)}
    return {"table": name, "rows": count, "seed": seed, "block_size": block_size, **figures}


def main() -> None:
    """Run the races that are asked for, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sizes", default="1,16")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for size in map(int, options.sizes.split(",")):
        race("rough", 300, 0, size)  # compiles the loops
    for seed in range(options.seeds):
        for name in options.tables.split(","):
            for size in map(int, options.sizes.split(",")):
                print(json.dumps(race(name, options.rows, seed, size)), flush=True)


if __name__ == "__main__":
    main()
