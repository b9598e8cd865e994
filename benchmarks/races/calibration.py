"""Coverage and width of calibrated 95 % intervals, of models with a right and with a wrong kernel or noise.

Protocol. Inputs are uniform on [0, 1]. Each repeat draws n training rows and 200 new rows of one case, and fits
`rfgp.GP(RBF(), approximation=Exact())` with the seed of the repeat. All repeats count.

- right: a Gaussian process with the RBF kernel of lengthscale 0.2 and variance 1, with noise of deviation 0.3.
- step: the sign of sin(6 pi x), with noise of deviation 0.1.
- rough: a Gaussian process with the Matern kernel of nu = 1/2, lengthscale 0.2 and variance 1, and noise of 0.1.
- varying: sin(2 pi x), with noise of deviation 0.05 + 0.5 x.
- heavy: sin(2 pi x), with noise of 0.2 times Student's t of 2 degrees of freedom.

Figures: the mean share of new observations inside the interval, with the standard error over repeats, for the interval
of the model and the calibrated one; the mean calibrated width divided by the mean width of the model. Fixed before the
first run: the coverage of calibrated intervals is at least 0.93 in each case, and their width is at most 1.3 times that
of the model in the case "right".

    python -m benchmarks.races.calibration [--cases step,...] [--rows 50,200] [--repeats 200] [--seed 0]
"""

import argparse
import warnings
from typing import Any

import numpy as np

import rfgp
from rfgp import kernels as k

Array = np.ndarray[Any, np.dtype[np.float64]]
CASES = ("right", "step", "rough", "varying", "heavy")
NEW, LEVEL = 200, 0.95


def draw(case: str, x: Array, rng: np.random.Generator) -> Array:
    """Return observations at the inputs, (n,)."""
    normal, distance = rng.standard_normal(len(x)), np.abs(x[:, None] - x)
    if case in ("right", "rough"):
        kernel = np.exp(-((distance / 0.2) ** 2) / 2) if case == "right" else np.exp(-distance / 0.2)
        root = np.linalg.cholesky(kernel + 1e-8 * np.eye(len(x)))
        return root @ rng.standard_normal(len(x)) + {"right": 0.3, "rough": 0.1}[case] * normal
    if case == "step":
        return np.sign(np.sin(6 * np.pi * x)) + 0.1 * normal
    noise = (0.05 + 0.5 * x) * normal if case == "varying" else 0.2 * rng.standard_t(2, len(x))
    return np.sin(2 * np.pi * x) + noise


def repeat(case: str, rows: int, seed: int) -> Array:
    """Return the coverage and the mean width of the interval of the model, and of the calibrated one."""
    rng = np.random.default_rng([CASES.index(case), rows, seed])
    x = rng.uniform(size=rows + NEW)
    y = draw(case, x, rng)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=seed).fit(x[:rows, None], y[:rows])
    observed, found = gp.predict(x[rows:, None]).observed(), []
    for calibrated in (False, True):
        low, high = observed.interval(LEVEL, calibrated=calibrated)
        found += [np.mean((y[rows:] >= low) & (y[rows:] <= high)), np.mean(high - low)]
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rows", default="50,200")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| case | rows | coverage of the model | calibrated | width ratio |\n|---|---|---|---|---|")
    for case in options.cases.split(","):
        for rows in map(int, options.rows.split(",")):
            seeds = range(options.seed, options.seed + options.repeats)
            found = np.stack([repeat(case, rows, seed) for seed in seeds])
            mean, error = found.mean(0), found.std(0, ddof=1) / np.sqrt(len(found))
            shares = " | ".join(f"{mean[i]:.3f} ± {error[i]:.3f}" for i in (0, 2))
            print(f"| {case} | {rows} | {shares} | {mean[3] / mean[1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
