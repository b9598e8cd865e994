"""Fits with learned frequencies against the fixed frequencies that they start from, and a straight line.

Protocol, fixed before the results were seen. The data are six tables that were not used to tune `rfgp.fitting`, and the
function of the example in the README ("readme", 10,000 rows). Of each there are at most 8,000 rows in the order of the
seed, a fifth held out. For each of 20 seeds, which draw rows and frequencies: 64 fixed frequencies, 64 learned ones
with 100 steps, the same read in blocks of 1,000 rows, and a straight line by least squares. The comparison is of the
log density of a held-out row, standardized. A fit is worse if the mean of the paired differences is below 0 by more
than four of its standard errors and by more than 0.02 nats. Tables that `rfgp.datasets` does not have are NAME.csv.gz,
as in github.com/treforevans/uci_datasets, in a folder of one's own.

    python -m benchmarks.races.learned [--tables concrete,...] [--folder UCI] [--seeds N] [--out FILE]
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import rfgp
from benchmarks import protocol

TABLES = ("readme", "power-plant", "tamielectric", "keggdirected", "skillcraft", "concrete", "gas")
MOST, BLOCK = 8000, 1000
Array = np.ndarray[Any, np.dtype[np.float64]]


def load(name: str, seed: int, folder: Path) -> tuple[Array, Array]:
    if name != "readme":
        return protocol.load(name, folder)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((10_000, 4))
    f = np.sin(4 * X[:, 0]) * X[:, 1] + np.cos(3 * X[:, 2] + X[:, 3])
    return X, f + 0.1 * rng.standard_normal(len(X))


def split(name: str, seed: int, folder: Path) -> tuple[Array, ...]:
    X, y = load(name, seed, folder)
    order = np.random.default_rng(seed).permutation(len(y))[: 10_000 if name == "readme" else MOST]
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    X = X[:, X[train].std(0) > 0]
    location, scale = y[train].mean(), y[train].std()
    return X[train], (y[train] - location) / scale, X[test], (y[test] - location) / scale


def line(X: Array, y: Array, Z: Array, w: Array) -> Array:
    """Return the log densities of w by least squares."""
    design, other = (np.column_stack([np.ones(len(a)), (a - X.mean(0)) / X.std(0)]) for a in (X, Z))
    found = np.linalg.lstsq(design, y, rcond=None)[0]
    variance = np.square(y - design @ found).mean()
    return np.asarray(-0.5 * (np.square(w - other @ found) / variance + np.log(2 * np.pi * variance)))


def densities(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return the densities of the held-out rows by method, and the status and time of the fits."""
    X, y, Z, w = split(name, seed, folder)
    blocks = rfgp.tables.Batches(lambda: ((X[i : i + BLOCK], y[i : i + BLOCK]) for i in range(0, len(y), BLOCK)))
    fits: dict[str, tuple[bool, tuple[Any, ...], int | None]] = {
        "fixed": (False, (X, y), None),
        "learned": (True, (X, y), 100),
        "in blocks": (True, (blocks,), 100),
    }
    found: dict[str, Any] = {"line": line(X, y, Z, w)}
    for method, (is_learned, data, steps) in fits.items():
        begin = time.process_time()
        gp = rfgp.SparseSpectrumGP(num_frequencies=64, learn_frequencies=is_learned, seed=seed)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            gp.fit(*data, max_iterations=steps)
        report = gp.fit_report
        found[method] = gp.predict(Z).observed().log_prob(w)
        found[f"{method} report"] = {
            "seconds": time.process_time() - begin,
            "said": sorted({type(w.message).__name__ for w in said}),
            "frequencies": report.frequencies,
            "neighbors": report.residual_autocorrelation,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--folder", type=Path, default=Path("uci"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    records = []
    for name in given.tables.split(","):
        for seed in range(given.seeds):
            found = densities(name, seed, given.folder)
            record: dict[str, Any] = {"table": name, "seed": seed}
            for method in ("learned", "in blocks"):
                for rival in ("fixed", "line"):
                    ahead = found[method] - found[rival]
                    mean, error = float(ahead.mean()), float(ahead.std(ddof=1) / np.sqrt(len(ahead)))
                    record[f"{method} - {rival}"] = (mean, error, mean < -max(4 * error, 0.02))
            record |= {key: value for key, value in found.items() if key.endswith("report")}
            record |= {key: float(found[key].mean()) for key in ("line", "fixed", "learned", "in blocks")}
            records.append(record)
            print(json.dumps(record), flush=True)
            if given.out:
                given.out.write_text(json.dumps(records, indent=1))
    for name in given.tables.split(","):
        rows = [r for r in records if r["table"] == name]
        for key in ("learned - fixed", "in blocks - fixed", "learned - line", "in blocks - line"):
            means = [r[key][0] for r in rows]
            behind = sum(r[key][2] for r in rows)
            print(
                f"{name:13s} {key:18s} mean {np.mean(means):+.3f}, least {min(means):+.3f}, "
                f"behind {behind} of {len(rows)}"
            )


if __name__ == "__main__":
    main()
