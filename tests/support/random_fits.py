"""Two hundred random tables, each fitted with the defaults: how many fits succeed, and every failure.

Protocol, fixed before the results were seen. Table i, drawn under seed i: n log-uniform from 30 to 5,000 rows, 1 to 12
columns, m log-uniform from 8 to 256 frequencies, a function that is a sum of random waves, a linear function, a step or
a product, of some of the columns; noise of .02 to 2 of its deviation, normal or Student t with 4 degrees of freedom;
columns normal, uniform, log-normal, integers or mostly zero, in units from 1e-6 to 1e6; every tenth has duplicate rows,
a constant column, or a column twice; float32 or float64; fixed or learned frequencies. A fit succeeds if it raises
nothing, reports convergence, predicts 500 new rows with an error at most 1.1 times that of their mean, and the mean of
their squared standardised errors lies in [.4, 2.5]. Beside a failure on at most 2,000 rows stands whether the exact
process, fitted in float64, does better.

    python tests/support/random_fits.py [--fits N] [--first SEED]
"""

import argparse
import time
import warnings

import numpy as np

import rfgp

NEW = 500


def columns(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    kinds = [
        lambda: rng.standard_normal(n),
        lambda: rng.uniform(-1, 1, n),
        lambda: np.exp(rng.standard_normal(n)),
        lambda: rng.integers(0, 6, n).astype(float),
        lambda: rng.standard_normal(n) * (rng.random(n) < 0.2),
    ]
    return np.stack([kinds[rng.integers(len(kinds))]() for _ in range(d)], axis=1)


def function(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    used = X[:, rng.permutation(X.shape[1])[: rng.integers(1, 5)]]
    used = (used - used.mean(0)) / np.maximum(used.std(0), 1e-12)
    kind = rng.integers(4)
    if kind == 0:
        waves = rng.standard_normal((8, used.shape[1])) * rng.uniform(0.2, 2)
        return np.sin(used @ waves.T + rng.uniform(0, 6, 8)) @ rng.standard_normal(8)
    if kind == 1:
        return used @ rng.standard_normal(used.shape[1])
    return np.sign(used[:, 0]) + used.sum(1) if kind == 2 else used.prod(1)


def one(seed: int) -> tuple[str, str]:
    """Return what was fitted, and why it failed, or nothing."""
    rng = np.random.default_rng(seed)
    n, d = int(np.exp(rng.uniform(np.log(30), np.log(5000)))), int(rng.integers(1, 13))
    m = int(np.exp(rng.uniform(np.log(8), np.log(256))))
    X = columns(rng, n + NEW, d)
    f = function(rng, X)
    f = f / max(f.std(), 1e-12)
    errors = rng.standard_t(4, n + NEW) / np.sqrt(2) if rng.random() < 0.3 else rng.standard_normal(n + NEW)
    y = f + np.exp(rng.uniform(np.log(0.02), np.log(2))) * errors
    odd = rng.integers(30)
    if odd == 0:
        X = np.c_[X, np.full(n + NEW, 3.0)]
    elif odd == 1:
        X = np.c_[X, X[:, 0]]
    elif odd == 2:
        X[: n // 2], y[: n // 2] = X[0], y[0] + y[: n // 2] - f[: n // 2]
    X, y = X * 10.0 ** rng.integers(-6, 7, X.shape[1]), (y + rng.normal()) * 10.0 ** rng.integers(-6, 7)
    dtype, kind = rng.choice(["float64", "float32"]), str(rng.choice(["fixed", "learned"]))
    X, y = X.astype(dtype), y.astype(dtype)
    what = f"{seed}: n {n}, d {X.shape[1]}, m {m}, {dtype}, {kind}"
    try:
        gp = rfgp.SparseSpectrumGP(num_frequencies=m, frequencies=kind, seed=seed).fit(X[:n], y[:n])
    except Exception as error:
        return what, f"{type(error).__name__}: {error}"
    why = faults(gp, X[n:], y[n:])
    if why and n <= 2000:
        exact = rfgp.ExactGP().fit(X[:n].astype(float), y[:n].astype(float))
        why += f" [the exact process: {faults(exact, X[n:], y[n:].astype(float)) or 'succeeds'}]"
    return what, why


def faults(gp: object, X: np.ndarray, y: np.ndarray) -> str:
    """Return what is wrong with a fitted model's predictions, or nothing."""
    p = gp.predict(X.astype(gp.predict(X[:1]).mean.dtype)).observed()
    rmse = np.sqrt(np.mean((y - p.mean) ** 2)) / y.std()
    z = np.mean((y - p.mean).astype(float) ** 2 / p.variance)
    why = [] if gp.fit_report.converged else [gp.fit_report.message]
    why += [] if rmse <= 1.1 else [f"error {rmse:.2f} of the deviation"]
    why += [] if 0.4 <= z <= 2.5 else [f"squared standardised errors of {z:.2f}"]
    return "; ".join(why)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--first", type=int, default=200, help="of the seeds; 0 to 199 were used to find faults")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    begin, failures, broken = time.perf_counter(), 0, 0
    for seed in range(options.first, options.first + options.fits):
        what, why = one(seed)
        if why:
            failures, broken = failures + 1, broken + ("Error" in why or "stopped" in why)
            print(f"{what}: {why}", flush=True)
    print(
        f"{options.fits - broken} of {options.fits} raised nothing and converged, {options.fits - failures} of these "
        f"also predict as asked, in {time.perf_counter() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
