"""Integrated against point hyperparameters on few rows: coverage, density, seconds, and a long Markov chain.

Protocol, fixed before the first run. Inputs are uniform on the unit cube. Each repeat draws n training rows and 200 new
rows of one problem from a Gaussian process with an RBF kernel of variance 1, and fits `rfgp.GP(RBF(),
approximation=Exact(), hyperparameter_posterior=...)` with "point" and "integrated", in turn, in one process and one
thread. All repeats count.

| problem | columns | lengthscales | deviation of the noise |
|---|---|---|---|
| smooth | 1 | 0.2 | 0.1 |
| ard | 2 | 0.3, 1 | 0.2 |
| irrelevant | 4 | 0.5, 0.8, 1.5, infinite | 0.2 |
| noisy | 1 | 0.2 | 1 |

Figures, each a mean over repeats with its standard error: the share of new observations in the 90 % interval, the share
of the values of the true function in that of the function, the log density of a new observation, and the processor
seconds of a fit. "truth" is the exact posterior at the true hyperparameters, as a bound.

Judged: coverage of new observations from 0.86 to 0.94 with "integrated", on each problem with 20 and with 50 rows; a
mean density that is no worse than that of "point", by no more than two standard errors of the paired difference; at
most 15 times the median seconds.

Chains (`--chains`). One data set each of "smooth", "ard" and "noisy" with 20 rows (seed 0, apart from those above).
Adaptive random-walk Metropolis over `gp.log_density` from the mode: 40,000 steps, of which the first quarter is left
out and 400 are kept at equal distances. At 100 new points, uniform on the cube, the mean of the function and its 90 %
interval by the mixture over the chain are compared with the integrated model. Judged: each mean within 0.1 deviations
of the chain, and each width within 10 %.

    python -m benchmarks.races.uncertain [--problems smooth,...] [--rows 20,50] [--repeats 200] [--out FILE]
    python -m benchmarks.races.uncertain --chains [--out FILE]
"""

import argparse
import copy
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp.files import write_atomically

Array = np.ndarray[Any, np.dtype[np.float64]]
PROBLEMS = {
    "smooth": ((0.2,), 0.1),
    "ard": ((0.3, 1.0), 0.2),
    "irrelevant": ((0.5, 0.8, 1.5, np.inf), 0.2),
    "noisy": ((0.2,), 1.0),
}
NEW, LEVEL, CHAINS = 200, 0.9, ("smooth", "ard", "noisy")
STEPS, KEPT, POINTS = 40_000, 400, 100


def kernel(lengthscales: tuple[float, ...], A: Array, B: Array) -> Array:
    """Return the covariance of the true function, (a, b)."""
    difference = (A[:, None] - B[None]) / np.array(lengthscales)
    return np.asarray(np.exp(-0.5 * (difference**2).sum(-1)))


def draw(problem: str, rows: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return inputs (n, d), values of the function (n,) and observations (n,)."""
    lengthscales, noise = PROBLEMS[problem]
    X = rng.uniform(size=(rows, len(lengthscales)))
    root = np.linalg.cholesky(kernel(lengthscales, X, X) + 1e-8 * np.eye(rows))
    f = root @ rng.standard_normal(rows)
    return X, f, f + noise * rng.standard_normal(rows)


def fitted(X: Array, y: Array, kind: str, seed: int) -> rfgp.GP:
    """Return the fitted model."""
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), hyperparameter_posterior=kind, seed=seed)
    return gp.fit(X, y)


def figures_of(interval: Any, of_observed: Any, log_prob: Array, f: Array, y: Array) -> list[float]:
    """Return the coverage of observations and of the function, and the mean log density."""
    inside = [np.mean((v >= low) & (v <= high)) for v, (low, high) in ((y, of_observed), (f, interval))]
    return [float(inside[0]), float(inside[1]), float(np.mean(log_prob))]


def truth(problem: str, X: Array, y: Array, Z: Array, f: Array, new: Array) -> list[float]:
    """Return the figures of the exact posterior at the true hyperparameters."""
    lengthscales, noise = PROBLEMS[problem]
    cross = kernel(lengthscales, Z, X)
    gain = np.linalg.solve(kernel(lengthscales, X, X) + noise**2 * np.eye(len(X)), cross.T).T
    mean, variance = gain @ y, np.maximum(1 - (gain * cross).sum(1), 0)
    z, total = stats.norm.ppf((1 + LEVEL) / 2), np.sqrt(variance + noise**2)
    ends = [(mean - z * s, mean + z * s) for s in (np.sqrt(variance), total)]
    return figures_of(*ends, stats.norm.logpdf(new, mean, total), f, new)


def repeat(problem: str, rows: int, seed: int) -> dict[str, list[float]]:
    """Return the figures of one data set by the kind of model, the seconds last."""
    rng = np.random.default_rng([list(PROBLEMS).index(problem), rows, seed])
    X, f, y = draw(problem, rows + NEW, rng)
    X, y, Z, f, new = X[:rows], y[:rows], X[rows:], f[rows:], y[rows:]
    found = {"truth": [*truth(problem, X, y, Z, f, new), 0.0]}
    for kind in ("point", "integrated"):
        start = time.process_time()
        gp = fitted(X, y, kind, seed)
        p = gp.predict(Z)
        observed = p.observed()
        log_prob = observed.log_prob(new)
        seconds = time.process_time() - start
        found[kind] = [*figures_of(p.interval(LEVEL), observed.interval(LEVEL), log_prob, f, new), seconds]
    return found


def race(problem: str, rows: int, runs: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Return the mean figures of the repeats of a problem with standard errors, and the verdicts."""
    repeats = len(runs)
    by_kind = {kind: np.array([run[kind] for run in runs]) for kind in runs[0]}
    names = ("coverage", "coverage of the function", "log density", "seconds")
    result: dict[str, Any] = {"problem": problem, "rows": rows, "repeats": repeats}
    for kind, values in by_kind.items():
        errors = values.std(0, ddof=1) / np.sqrt(repeats)
        result[kind] = {
            name: [round(m, 4), round(e, 4)] for name, m, e in zip(names, values.mean(0), errors, strict=True)
        }
    difference = by_kind["integrated"][:, 2] - by_kind["point"][:, 2]
    error = difference.std(ddof=1) / np.sqrt(repeats)
    ratio = np.median(by_kind["integrated"][:, 3]) / np.median(by_kind["point"][:, 3])
    result["gain"] = [round(float(difference.mean()), 4), round(float(error), 4)]
    result["ratio of seconds"] = round(float(ratio), 2)
    result["holds"] = {
        "coverage": bool(0.86 <= by_kind["integrated"][:, 0].mean() <= 0.94),
        "density": bool(difference.mean() >= -2 * error),
        "seconds": bool(ratio <= 15),
    }
    return result


def chain(gp: rfgp.GP, seed: int) -> tuple[Array, float]:
    """Return the states of a Markov chain after its first quarter, (s, p), and the share of accepted steps."""
    rng, x = np.random.default_rng(seed), gp.hyperparameters.unconstrained().numpy()

    def density(x: Array) -> float:
        with torch.no_grad():
            return float(gp.log_density(x))

    value, root, states, accepted = density(x), 0.3 * np.eye(len(x)), np.empty((STEPS, len(x))), 0
    for step in range(STEPS):
        if step in (STEPS // 16, STEPS // 8, STEPS // 4):
            root = np.linalg.cholesky(np.cov(states[step // 2 : step].T)) * 2.4 / np.sqrt(len(x))
        new = x + root @ rng.standard_normal(len(x))
        if np.log(rng.uniform()) < (at := density(new)) - value:
            x, value, accepted = new, at, accepted + (step >= STEPS // 4)
        states[step] = x
    return states[STEPS // 4 :], accepted / (STEPS - STEPS // 4)


def quantiles(weights: Array, means: Array, deviations: Array) -> tuple[Array, Array]:
    """Return the ends of the interval of a mixture at m points, by bisection.

    Args:
        weights: The weights of the members, (c,).
        means: Their means, (c, m).
        deviations: Their standard deviations, (c, m).
    """
    ends = []
    for level in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        low, high = (means - 10 * deviations).min(0), (means + 10 * deviations).max(0)
        for _ in range(60):
            middle = (low + high) / 2
            below = weights @ stats.norm.cdf((middle - means) / deviations) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        ends.append((low + high) / 2)
    return ends[0], ends[1]


def compared(problem: str) -> dict[str, Any]:
    """Return the differences of the integrated model from a long chain."""
    rng = np.random.default_rng([list(PROBLEMS).index(problem), 0, 10**6])
    X, _, y = draw(problem, 20, rng)
    Z = rng.uniform(size=(POINTS, X.shape[1]))
    gp = fitted(X, y, "integrated", 0)
    states, accepted = chain(gp, 0)
    one, means, deviations = copy.deepcopy(gp.members[0][1]), [], []
    for x in states[np.linspace(0, len(states) - 1, KEPT).astype(int)]:
        one.hyperparameters.set(**one.hyperparameters.at(x))
        p = one.predict(Z)
        means.append(p.mean)
        deviations.append(p.std)
    mixture = np.full(KEPT, 1 / KEPT), np.array(means), np.array(deviations)
    low, high = quantiles(*mixture)
    mean, deviation = mixture[1].mean(0), np.sqrt((mixture[2] ** 2 + mixture[1] ** 2).mean(0) - mixture[1].mean(0) ** 2)
    p = gp.predict(Z)
    ends = p.interval(LEVEL)
    errors, ratios = np.abs(p.mean - mean) / deviation, (ends[1] - ends[0]) / (high - low)
    halves = np.abs(states[: len(states) // 2].mean(0) - states[len(states) // 2 :].mean(0)) / states.std(0)
    return {
        "problem": problem,
        "accepted": round(accepted, 3),
        "difference of halves": round(float(halves.max()), 3),
        "largest error of a mean": round(float(errors.max()), 4),
        "ratios of widths": [round(float(v), 4) for v in (ratios.min(), ratios.mean(), ratios.max())],
        "holds": {"means": bool(errors.max() <= 0.1), "widths": bool(ratios.min() >= 0.9 and ratios.max() <= 1.1)},
    }


def show(results: list[dict[str, Any]], out: Path | None) -> None:
    """Print the results so far, one line each, and write them to a file."""
    print(*map(json.dumps, results), sep="\n", flush=True)
    if out is not None:
        write_atomically(out, (json.dumps(results, indent=1) + "\n").encode())


def main() -> None:
    """Run the repeats of all problems in turn, or the chains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--rows", default="20,50")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--chains", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", rfgp.RfgpWarning)
    torch.set_num_threads(1)
    if options.chains:
        results = []
        for problem in CHAINS:
            results.append(compared(problem))
            show(results, options.out)
        return
    cases = [(problem, int(rows)) for problem in options.problems.split(",") for rows in options.rows.split(",")]
    runs: dict[tuple[str, int], list[dict[str, list[float]]]] = {case: [] for case in cases}
    for seed in range(options.repeats):
        for case in cases:
            runs[case].append(repeat(*case, seed))
        if (seed + 1) % 20 == 0 or seed + 1 == options.repeats:
            show([race(*case, runs[case]) for case in cases], options.out)


if __name__ == "__main__":
    main()
