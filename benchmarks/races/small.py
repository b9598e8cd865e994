"""Fits of few rows against scikit-learn's exact process: processor seconds, wall seconds, and errors on other rows.

Protocol. Rows are a random sample of a table (numpy's generator, the seed of the run), with columns and target
standardized on it. Errors are over up to 1,000 further rows, NLPD with the noise. The process of scikit-learn has a
common kernel: a constant times an RBF kernel with one lengthscale per column, plus white noise, and one start. Ours are
the defaults: `ExactGP()`, `SparseSpectrumGP()` and the latter with 128 frequencies. All run in one process, in turn,
with as many threads as they take, after one fit each that is not counted; medians of the repeats.

    python -m benchmarks.races.small [--tables drawn,kin40k,...] [--rows 50,100,...] [--repeats N] [--out FILE]
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import rfgp
from benchmarks import protocol

TABLES = ("drawn", "kin40k", "protein", "housing")
ROWS = (50, 100, 200, 400, 600, 1000, 2000)
Array = np.ndarray[Any, np.dtype[np.float64]]


def load(name: str) -> tuple[Array, Array]:
    if name != "drawn":
        return protocol.load(name)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 8))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.3 * X[:, 3] ** 2 + 0.1 * X[:, 4]
    return X, f + 0.2 * rng.standard_normal(4000)


def split(name: str, rows: int, seed: int) -> tuple[Array, Array, Array, Array]:
    X, y = load(name)
    order = np.random.default_rng(seed).permutation(len(y))[: rows + 1000]
    X, y = X[order], y[order]
    X = X[:, X[:rows].std(0) > 0]
    X, y = (X - X[:rows].mean(0)) / X[:rows].std(0), (y - y[:rows].mean()) / y[:rows].std()
    return X[:rows], y[:rows], X[rows:], y[rows:]


def theirs(X: Array, y: Array) -> Callable[[Array], tuple[Array, Array]]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0) * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    gp = GaussianProcessRegressor(kernel).fit(X, y)

    def predict(Z: Array) -> tuple[Array, Array]:
        mean, deviation = gp.predict(Z, return_std=True)
        return mean, deviation**2

    return predict


def ours(make: Callable[[int], Any], seed: int) -> Callable[[Array, Array], Callable[[Array], tuple[Array, Array]]]:
    def fit(X: Array, y: Array) -> Callable[[Array], tuple[Array, Array]]:
        gp = make(seed).fit(X, y)

        def predict(Z: Array) -> tuple[Array, Array]:
            law = gp.predict(Z).observed()
            return law.mean, law.variance

        return predict

    return fit


def fits(seed: int) -> dict[str, Callable[[Array, Array], Callable[[Array], tuple[Array, Array]]]]:
    return {
        "scikit-learn": theirs,
        "ExactGP": ours(lambda _: rfgp.ExactGP(), seed),
        "512 frequencies": ours(lambda s: rfgp.SparseSpectrumGP(seed=s), seed),
        "128 frequencies": ours(lambda s: rfgp.SparseSpectrumGP(num_frequencies=128, seed=s), seed),
    }


def timed(name: str, rows: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a record a method: medians over the repeats, each of another sample."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(repeats):
        X, y, Z, w = split(name, rows, seed)
        for method, fit in fits(seed).items():
            used, begin = time.process_time(), time.perf_counter()
            predict = fit(X, y)
            seconds = time.process_time() - used, time.perf_counter() - begin
            mean, variance = predict(Z)
            error = np.square(w - mean)
            density = float(np.mean(error / variance + np.log(2 * np.pi * variance))) / 2
            found.setdefault(method, []).append((*seconds, float(np.sqrt(error.mean())), density))
    for method, results in found.items():
        names = ("processor", "wall", "rmse", "nlpd")
        yield (
            {"table": name, "rows": rows, "method": method}
            | {key: median(values) for key, values in zip(names, zip(*results, strict=True), strict=True)}
            | {"spread": [min(r[0] for r in results), max(r[0] for r in results)]}
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for fit in fits(0).values():
        fit(*split("drawn", 60, 0)[:2])
    records = []
    for rows in map(int, given.rows.split(",")):
        for name in given.tables.split(","):
            if len(load(name)[1]) < rows + 100:
                continue
            for record in timed(name, rows, given.repeats if rows < 1000 else 1):
                records.append(record)
                low, high = record["spread"]
                print(
                    f"{name:8s} {rows:5d} {record['method']:16s} {record['processor']:7.3f} s of a processor "
                    f"({low:.3f} to {high:.3f}), wall {record['wall']:7.3f}, rmse {record['rmse']:.4f}, "
                    f"nlpd {record['nlpd']:.4f}",
                    flush=True,
                )
    if given.out:
        given.out.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
