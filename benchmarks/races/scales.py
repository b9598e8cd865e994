"""The noise that the default chooses, against Gaussian noise of one variance, after the same fit.

Protocol, fixed before the results were seen. Tables are the twenty of `benchmarks.races.defaults`, with its splits at
seeds 0 to 2, and five on which nothing was tuned: diabetes (of scikit-learn), abalone (rings), banknote (the entropy
from the other measurements), wifi (the first signal from the others), and bike-without-counts. Each fit is
`rfgp.GP(seed=seed)` on one thread. "default" is the model; "gaussian" is the same model without scales of residuals and
weights of rows, which is that of likelihood="gaussian" (a test compares them).

Figures of held-out rows, standardized: NLPD, also by the resolution of the targets (`resolution_of`: probabilities of
intervals), CRPS, RMSE, coverage of 95 % intervals; processor seconds of the fit, and the elapsed seconds of the choice.
Made tables have 60, 150, 300 and 3,000 rows and 2,000 test rows at seeds 0 to 2: even noise, noise by input and by
mean, Student's t with 2.5 degrees of freedom, 5 % of outliers, counts, zeros.

Results are lines of JSON that are added to `--out`; what stands there already is not run again. `--page` prints a table
of means over splits, with standard errors of differences.

    RFGP_DATA_DIR=DATA python -m benchmarks.races.scales --folder UCI --out FILE [--tables T,...] [--seeds N]
    python -m benchmarks.races.scales --out FILE --page
"""

import argparse
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.races.defaults import split
from benchmarks.races.local import Array
from benchmarks.races.processes import add_line, lines

SEEN = ("autos", "breastcancer", "machine", "autompg", "housing", "forest", "stock", "pendulum", "concrete", "solar")
SEEN += ("airfoil", "gas", "skillcraft", "power-plant", "elevators", "bike", "kin40k", "protein", "tamielectric")
SEEN += ("keggdirected",)
FRESH = ("diabetes", "abalone", "banknote", "wifi", "bike-without-counts")
KINDS = ("even", "input", "mean", "tails", "outliers", "counts", "zeros")
MADE = tuple(f"{kind}-{n}" for n in (60, 150, 300, 3000) for kind in KINDS if n < 3000 or kind in KINDS[:4])


def made(kind: str, n: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return n training and 2,000 test rows of three columns, one without effect."""
    rng = np.random.default_rng(1000 + seed)
    X = rng.uniform(-2, 2, (n + 2000, 3))
    f, e = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1], rng.standard_normal(n + 2000)
    targets = {
        "even": lambda: f + 0.4 * e,
        "input": lambda: f + np.exp(-1.2 + 0.8 * X[:, 2]) * e,
        "mean": lambda: f + np.exp(-1.2 + 0.8 * f) * e,
        "tails": lambda: f + 0.25 * rng.standard_t(2.5, len(f)),
        "outliers": lambda: f + np.where(rng.random(len(f)) < 0.05, 3.0, 0.25) * e,
        "counts": lambda: rng.poisson(np.exp(0.8 * f)).astype(float),
        "zeros": lambda: np.where(rng.random(len(f)) < 1 / (1 + np.exp(2 * f)), 0.0, np.exp(f + 0.3 * e)),
    }
    return standardized(X, targets[kind](), np.arange(n), np.arange(n, n + 2000))


def standardized(X: Array, y: Array, train: Array, test: Array) -> tuple[Array, Array, Array, Array]:
    """Return training and test rows, standardized on the training rows."""
    X = X[:, X[train].std(0) > 0]
    X, y = (X - X[train].mean(0)) / X[train].std(0), (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def fresh(name: str, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return a split of a table on which nothing was tuned."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
    elif name in ("banknote", "wifi"):
        import rfgp

        X = np.asarray(rfgp.datasets.load(name).X, dtype=np.float64)
        column = 3 if name == "banknote" else 0
        X, y = np.delete(X, column, axis=1), X[:, column]
    else:
        import rfgp

        data = rfgp.datasets.load(name)
        X, y = _numbers(data.X), np.asarray(data.y, dtype=np.float64)
    order = np.random.default_rng(seed).permutation(len(y))
    return standardized(X, y, order[len(order) // 10 :], order[: len(order) // 10][:2000])


def _numbers(X: Any) -> Array:
    """Return the columns of a table, with indicators of the levels of texts."""
    import pandas as pd

    return np.asarray(pd.get_dummies(pd.DataFrame(X)), dtype=np.float64)


def figures(p: Any, w: Array, resolution: float) -> dict[str, float]:
    """Return the figures of predictions at targets."""
    import rfgp

    observed = p.observed()
    log_prob = observed.log_prob(w)
    by_resolution = log_prob
    if resolution:
        mass = observed.cdf(w + resolution / 2) - observed.cdf(w - resolution / 2)
        by_resolution = np.log(np.maximum(mass / resolution, 1e-300))
    low, high = observed.interval(0.95)
    return {
        "rmse": float(np.sqrt(np.mean((w - p.mean) ** 2))),
        "nlpd": float(-np.mean(log_prob)),
        "resolved": float(-np.mean(by_resolution)),
        "crps": rfgp.metrics.crps(w, p),
        "coverage": float(np.mean((low <= w) & (w <= high))),
    }


def race(name: str, seed: int, folder: Path | None) -> list[dict[str, Any]]:
    """Fit the default to a split, and return the figures with and without scales."""
    import torch

    import rfgp
    from rfgp.selection.noise import resolution_of

    torch.set_num_threads(1)
    if name in MADE:
        X, y, Z, w = made(name.split("-")[0], int(name.split("-")[1]), seed)
    elif name in FRESH:
        X, y, Z, w = fresh(name, seed)
    else:
        X, y, Z, w = split(name, seed, folder, 10**9)
    begin, busy = time.perf_counter(), time.process_time()
    gp = rfgp.GP(seed=seed).fit(X, y)
    spent = {"seconds": time.perf_counter() - begin, "processor": time.process_time() - busy}
    noise, resolution = gp.selection.noise, resolution_of(torch.from_numpy(y))
    about = {"table": name, "rows": len(X), "columns": X.shape[1], "seed": seed, "resolution": resolution, **spent}
    about |= {"choice": None if noise is None else noise.chosen.name, "weighted": "weighted" in gp.selection.reason}
    about |= {"choosing": 0.0 if noise is None else noise.seconds, "validation": gp.selection.validation}
    about |= {"gain": [] if noise is None else [noise.trials[0].last.difference, noise.trials[0].last.difference_error]}
    plain = type(gp).of(gp.state.replace(scale_model=None))
    results = {"default": gp.predict(Z), "gaussian": plain.predict(Z)}
    return [{**about, "racer": racer, **figures(p, w, resolution)} for racer, p in results.items()]


def paired(new: Any, old: Any, name: str) -> str:
    """Return the mean difference of a figure, and its standard error over splits."""
    d = np.array([a[name] - b[name] for a, b in zip(new, old, strict=True)])
    return f"{d.mean():.3f} ({d.std(ddof=1) / len(d) ** 0.5 if len(d) > 1 else np.nan:.3f})"


def mean(rows: Any, name: str) -> float:
    """Return the mean of a figure over splits."""
    return float(np.mean([row[name] for row in rows]))


def choice(row: dict[str, Any]) -> str:
    """Return a short name of the chosen noise, with a star if rows are weighted."""
    name = row["choice"] or "none"
    words = {"Gaussian noise of one variance": "N", "scales with normal tails": "scales"}
    return words.get(name, "t" + "".join(c for c in name if c in "0123456789.")) + "*" * row["weighted"]


def page(rows: list[dict[str, Any]]) -> None:
    """Print the means over splits."""
    found = defaultdict(list)
    for row in rows:
        found[row["table"], row["racer"]].append(row)
    head = "table, rows, splits, NLPD Gaussian, NLPD, difference (s.e.), by resolution, CRPS ratio, RMSE ratio"
    head += ", coverage Gaussian, coverage (s.e.), seconds, ratio, choices"
    print(f"| {head.replace(', ', ' | ')} |\n{'|---' * (head.count(',') + 1)}|")
    for table in [name for name in (*SEEN, *FRESH, *MADE) if (name, "default") in found]:
        new, old = found[table, "default"], found[table, "gaussian"]
        num_tests = sum(2000 if table in MADE else min(max(round(row["rows"] / 9), 1), 2000) for row in new)
        cover = mean(new, "coverage")
        ratio = np.mean([row["seconds"] / max(row["seconds"] - row["choosing"], 1e-9) for row in new])
        cells = [table, f"{new[0]['rows']:,}", len(new), f"{mean(old, 'nlpd'):.3f}", f"{mean(new, 'nlpd'):.3f}"]
        cells += [paired(new, old, "nlpd"), paired(new, old, "resolved")]
        cells += [f"{mean(new, name) / mean(old, name):.3f}" for name in ("crps", "rmse")]
        cells += [f"{mean(old, 'coverage'):.3f}", f"{cover:.3f} ({(cover * (1 - cover) / num_tests) ** 0.5:.3f})"]
        cells += [f"{mean(new, 'seconds'):.1f}", f"{ratio:.2f}", " ".join(map(choice, new))]
        print(f"| {' | '.join(map(str, cells))} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", default=",".join((*SEEN, *FRESH, *MADE)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        page(lines(options.out))
        return
    warnings.simplefilter("ignore")
    for name in options.tables.split(","):
        for seed in range(options.seeds):
            known = {(row["table"], row["seed"]) for row in lines(options.out)}
            if (name, seed) not in known:
                for row in race(name, seed, options.folder):
                    add_line(row, options.out)
                    print(
                        name,
                        seed,
                        row["racer"],
                        f"{row['nlpd']:.3f} {row['coverage']:.3f} {row['seconds']:.0f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
