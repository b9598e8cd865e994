"""Fits of few rows against scikit-learn's exact process: processor seconds, wall seconds, and errors on other rows.

Protocol. Rows are a random sample of the complete rows of a table (numpy's generator, the seed of the run), with
columns and target standardized on it. Errors are over up to 1,000 further rows: RMSE, NLPD of an observation, and how
often the central interval of 95 % holds it. The process of scikit-learn has a common kernel: a constant times an RBF
kernel with one lengthscale per column, plus white noise, and one start. Ours are the defaults: `GP()`, which selects
kernels and noise, `ExactGP()`, `SparseSpectrumGP()` and the latter with 128 frequencies. All run in one process, in
turn, with as many threads as they take, after one fit each that is not counted; medians of the repeats. For `GP()` the
log density that its report prints is compared with that of the other rows, in standard errors of both: the share within
two of them.

The tables "tuning" are those of scikit-learn, on which the selection of few rows was tuned: its correction of
left-out scores (`OPTIMISM`), its rounds and the error that it prints. The tables "20" are not among them.

    python -m benchmarks.races.small [--tables drawn,kin40k,...] [--folder UCI] [--methods GP,scikit-learn,...]
                                     [--rows 50,100,...] [--repeats N] [--out FILE]
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import rfgp
from benchmarks import protocol

TABLES = ("drawn", "kin40k", "protein", "housing")
ROWS = (50, 100, 200, 400, 600, 1000, 2000)
Array = np.ndarray[Any, np.dtype[np.float64]]
TABLES_OF_20 = (
    "airfoil,autompg,autos,bike,breastcancer,concrete,elevators,forest,gas,housing,keggdirected,kin40k,machine,pendulum,"
    "power-plant,protein,skillcraft,solar,stock,tamielectric"
)


class Answer(NamedTuple):
    """What a method says of other rows: means, log densities and whether intervals hold the targets, (m,) each."""

    mean: Array
    log_prob: Array
    held: Array
    printed: tuple[float, float] | None = None  # the log density that a report prints, and its standard error


Fit = Callable[[Array, Array], Callable[[Array, Array], Answer]]


TUNING = "diabetes,cancer-7,cancer-20,wine-9,wine-0,iris-3,digits-20,friedman1,friedman2,friedman3"


def of_tuning(name: str) -> tuple[Array, Array]:
    """Return a table of scikit-learn, of which one column is the target, or a drawn one of its makers."""
    from sklearn import datasets

    if name.startswith("friedman"):
        noise = {"friedman1": 1.0, "friedman2": 60.0, "friedman3": 0.15}[name]
        X, y = getattr(datasets, f"make_{name}")(2000, noise=noise, random_state=1)
        return X, y
    base, _, column = name.partition("-")
    table = getattr(datasets, "load_breast_cancer" if base == "cancer" else f"load_{base}")()
    if not column:
        return table.data, table.target
    A = table.data[:, table.data.std(0) > 2][:, :21] if base == "digits" else table.data
    return np.delete(A, int(column), 1), A[:, int(column)]


def load(name: str, folder: Path | None) -> tuple[Array, Array]:
    if name in TUNING.split(","):
        return of_tuning(name)
    if name != "drawn":
        X, y = protocol.load(name, folder)
        complete = np.isfinite(X).all(1) & np.isfinite(y)
        return X[complete], y[complete]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 8))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.3 * X[:, 3] ** 2 + 0.1 * X[:, 4]
    return X, f + 0.2 * rng.standard_normal(4000)


def split(name: str, rows: int, seed: int, folder: Path | None = None) -> tuple[Array, Array, Array, Array]:
    X, y = load(name, folder)
    order = np.random.default_rng(seed).permutation(len(y))[: rows + 1000]
    X, y = X[order], y[order]
    X = X[:, np.ptp(X[:rows], 0) > 0]
    X, y = (X - X[:rows].mean(0)) / X[:rows].std(0), (y - y[:rows].mean()) / y[:rows].std()
    return X[:rows], y[:rows], X[rows:], y[rows:]


def theirs(X: Array, y: Array) -> Callable[[Array, Array], Answer]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0) * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    gp = GaussianProcessRegressor(kernel).fit(X, y)

    def answer(Z: Array, w: Array) -> Answer:
        mean, deviation = gp.predict(Z, return_std=True)
        z = (w - mean) / deviation
        return Answer(mean, -0.5 * (z**2 + np.log(2 * np.pi * deviation**2)), np.abs(z) <= 1.959964)

    return answer


def ours(make: Callable[[int], Any], seed: int) -> Fit:
    def fit(X: Array, y: Array) -> Callable[[Array, Array], Answer]:
        gp = make(seed).fit(X, y)

        def answer(Z: Array, w: Array) -> Answer:
            law = gp.predict(Z).observed()
            low, high = law.interval(0.95)
            selection = gp.selection
            last = None if selection is None else (selection.noise or selection).chosen.last
            printed = None if last is None else (last.value, last.error)
            return Answer(law.mean, law.log_prob(w), (low <= w) & (w <= high), printed)

        return answer

    return fit


def fits(seed: int) -> dict[str, Fit]:
    return {
        "scikit-learn": theirs,
        "GP": ours(lambda s: rfgp.GP(seed=s), seed),
        "ExactGP": ours(lambda _: rfgp.ExactGP(), seed),
        "512 frequencies": ours(lambda s: rfgp.SparseSpectrumGP(seed=s), seed),
        "128 frequencies": ours(lambda s: rfgp.SparseSpectrumGP(num_frequencies=128, seed=s), seed),
    }


def timed(name: str, rows: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a record a method: medians over the repeats, each of another sample."""
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(given.repeats):
        X, y, Z, w = split(name, rows, seed, given.folder)
        for method, fit in fits(seed).items():
            if given.methods and method not in given.methods.split(","):
                continue
            used, begin = time.process_time(), time.perf_counter()
            answer_for = fit(X, y)
            result = {"processor": time.process_time() - used, "wall": time.perf_counter() - begin}
            answer = answer_for(Z, w)
            result |= {
                "rmse": float(np.sqrt(np.square(w - answer.mean).mean())),
                "nlpd": -float(answer.log_prob.mean()),
            }
            result |= {"error": float(answer.log_prob.std() / np.sqrt(len(w))), "coverage": float(answer.held.mean())}
            if answer.printed is not None:
                score, error = answer.printed
                result |= {
                    "width": 4 * error,
                    "excess": score + result["nlpd"],
                    "z": (score + result["nlpd"]) / np.hypot(error, result["error"]),
                }
            found.setdefault(method, []).append(result)
    for method, results in found.items():
        keys = dict.fromkeys(key for result in results for key in result)
        medians = {key: median(result[key] for result in results if key in result) for key in keys}
        yield {"table": name, "rows": rows, "method": method, "repeats": results} | medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES), help='names, "20" or "tuning"')
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--methods")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for fit in fits(0).values():
        fit(*split("drawn", 60, 0)[:2])
    records = list[dict[str, Any]]()
    tables = {"20": TABLES_OF_20, "tuning": TUNING}.get(given.tables, given.tables)
    for rows in map(int, given.rows.split(",")):
        for name in tables.split(","):
            if len(load(name, given.folder)[1]) < rows + 30:
                continue
            for record in timed(name, rows, given):
                records.append(record)
                seconds = [result["processor"] for result in record["repeats"]]
                print(
                    f"{name:12s} {rows:5d} {record['method']:16s} {record['processor']:7.3f} s of a processor "
                    f"({min(seconds):.3f} to {max(seconds):.3f}), wall {record['wall']:7.3f}, "
                    f"rmse {record['rmse']:.4f}, nlpd {record['nlpd']:.4f}, coverage {record['coverage']:.3f}",
                    flush=True,
                )
                if given.out:
                    given.out.write_text(json.dumps(records, indent=1))
    printed = np.array(
        [[one["z"], one["excess"], one["width"]] for record in records for one in record["repeats"] if "z" in one]
    )
    if len(printed):
        within, (excess, width) = float(np.mean(np.abs(printed[:, 0]) < 2)), printed[:, 1:].mean(0)
        print(f"{len(printed)} printed scores: {within:.0%} within two standard errors of that of other rows,")
        print(f"excess {excess:+.3f}, mean width of the interval {width:.3f}")


if __name__ == "__main__":
    main()
