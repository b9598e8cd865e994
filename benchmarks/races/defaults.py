"""The default against the best choice of an expert, and against the defaults of other packages.

Protocol, fixed before the results were seen. A random tenth of the rows is held out, at most 2,000 (numpy's generator,
the seed of the run); columns and target are standardized on the others, float64. Errors are of the standardized
target: RMSE, NLPD and CRPS of the distribution of an observation, normal or a mixture of normal ones, how often the
central interval of 95 % holds it. Each racer runs in a process of its own with `--threads` threads; seconds of the wall
and of the processor are of the fit, from arrays in memory. With `--rows` so many rows, at random, are learned from at
most.

- default: `GP()` with Gaussian noise of one variance, and the default limits. Its selection is kept with the figures.
  `benchmarks.races.scales` has the figures with the noise that the default chooses.
- its candidates, each fitted in full, by their names. Exact kernels up to `--exact` rows.
- sklearn: GaussianProcessRegressor, a constant times an RBF with a lengthscale for each column, plus white noise, its
  own optimiser from one start; up to `--exact` rows.
- boosting: HistGradientBoostingRegressor, a normal distribution with the deviation of 5-fold out-of-fold errors.
- quantiles: the same for the mean and the quantiles 0.05 and 0.95, a normal distribution of that width.
- svgp: as in `benchmarks.races.local`, at most `--limit` seconds.
- features-M, neighbors-M: budgets of this package, a Matern 3/2 kernel with one lengthscale a column and M random
  frequencies or M neighbors, and no selection.
- exact-gpytorch: GPyTorch's exact process, Matern 3/2, ARD, 100 steps of Adam at 0.1, float32; up to `--exact` rows.
- catboost: CatBoost's RMSEWithUncertainty, a mean and a variance of each row, stopped early on a random tenth of the
  training rows. This was added after its defaults had given far too small variances on small tables. ngboost:
  NGBRegressor with its defaults.
- xgpr: xGPR's random features of an RBF kernel with one lengthscale, as its guide says: hyperparameters tuned crudely
  with 1,024 features, and a fit with 4,096; 512 for variances.
- gpboost: GPBoost's Gaussian process with an intercept, Matern 3/2, ARD, and its own optimizer; exact up to `--exact`
  rows, then its Vecchia approximation with its default of 20 neighbors. It selects the neighbors by correlation, in
  columns divided by lengthscales, and selects them again during the fit (its default for ARD). The racer gpboost-vif is
  its full scale Vecchia approximation, with its defaults.

`--regret` reads results and prints, for each table, the NLPD of the default minus that of the candidate that is best on
average over the splits. Differences are paired by split, with standard errors. It also prints the seconds of both, and
the difference from each other racer. Results are lines of JSON that are added to `--out`; what stands there already is
not run again.

    python -m benchmarks.races.defaults --folder UCI --out FILE [--tables T,...] [--racers R,...] [--seeds N]
    python -m benchmarks.races.defaults --out FILE --regret
"""

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import protocol
from benchmarks.races.local import Array, Law, errors, quantile_boosting, regression, variational
from benchmarks.races.processes import add_line, lines

DESIGN = ("machine", "housing", "concrete", "airfoil", "power-plant", "kin40k", "protein", "elevators", "bike")
DESIGN += ("keggdirected", "tamielectric")


def candidates() -> dict[str, Any]:
    """Return the candidates of `rfgp.GP()` and their followups by their names, for few and many rows and columns."""
    from rfgp import GP

    space = GP().spec.options.search_space
    found = [one for rows, columns in SHAPES for one in space.candidates(rows, range(columns))]
    return {each.name: each.model for one in found for each in (one, *one.followups)}


SHAPES = ((1000, 4), (10, 10), (10**5, 1), (10**5, 10))
"""Rows and columns of tables that have all candidates between them."""
OTHERS = {
    "sklearn": "sklearn.gaussian_process",
    "boosting": "sklearn.ensemble",
    "quantiles": "sklearn.ensemble",
    "svgp": "gpytorch",
    "exact-gpytorch": "gpytorch",
    "gpboost": "gpboost",
    "gpboost-vif": "gpboost",
    "catboost": "catboost",
    "ngboost": "ngboost",
    "xgpr": "xGPR",
}
"""The racers of other packages, with the modules that are imported before the clock starts."""
BUDGETS = ("features-64", "features-256", "features-1024", "neighbors-10", "neighbors-40")


def split(name: str, seed: int, folder: Path | None, most: int) -> tuple[Array, Array, Array, Array]:
    X, y = protocol.load(name, folder)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[: len(order) // 10][:2000], order[len(order) // 10 :][:most]
    X = X[:, X[train].std(0) > 0]
    X, y = (X - X[train].mean(0)) / X[train].std(0), (y - y[train].mean()) / y[train].std()
    return X[train], y[train], X[test], y[test]


def ours(racer: str, X: Array, y: Array, seed: int) -> tuple[Callable[[Array], Law], dict[str, Any]]:
    import rfgp

    chosen: dict[str, Any] = {}
    if racer in BUDGETS:
        kind, size = racer.split("-")
        approximation = rfgp.RandomFeatures(int(size)) if kind == "features" else rfgp.Vecchia(int(size))
        chosen = {"kernel": rfgp.kernels.Matern(nu=1.5), "approximation": approximation}
    elif racer != "default":
        model = candidates()[racer]
        chosen = {"kernel": model.kernel, "approximation": model.approximations, "priors": model.priors}
    gp = rfgp.GP(likelihood="gaussian", seed=seed, **chosen).fit(X, y)
    told: dict[str, Any] = {}
    if gp.selection is not None:
        told = {
            "shares": [share for share, _ in gp.members] or [1.0],
            "chosen": gp.selection.chosen.name,
            "measuring": gp.selection.seconds,
            "predicted": gp.selection.predicted,
            "measured": {
                trial.name: [(m.rows, m.value) for m in trial.scores] for trial in gp.selection.trials if trial.scores
            },
        }

    def predict(Z: Array) -> Law:
        laws = [one.predict(Z).observed() for _, one in gp.members] or [gp.predict(Z).observed()]
        return np.stack([law.mean for law in laws]), np.stack([law.variance for law in laws])

    return predict, told


def gaussian_process(X: Array, y: Array) -> Callable[[Array], Law]:
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    scales = kernels.RBF(np.full(X.shape[1], np.sqrt(X.shape[1])), (1e-3, 1e4))
    kernel = kernels.ConstantKernel(1.0, (1e-6, 1e6)) * scales + kernels.WhiteKernel(0.1, (1e-8, 1e2))
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y)

    def predict(Z: Array) -> Law:
        mean, deviation = model.predict(Z, return_std=True)
        return mean, deviation**2

    return predict


def boosting(X: Array, y: Array, by_quantiles: bool) -> Callable[[Array], Law]:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict

    if by_quantiles:
        return quantile_boosting(X, y)
    middle = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    left_out = cross_val_predict(HistGradientBoostingRegressor(random_state=0), X, y, cv=5)
    variance = float(np.mean((y - left_out) ** 2))
    return lambda Z: (middle.predict(Z), np.full(len(Z), variance))


def xgpr(X: Array, y: Array) -> Callable[[Array], Law]:
    import xGPR as package  # noqa: N813

    rows = package.build_regression_dataset(X, y, chunk_size=2000)
    options = {"kernel_choice": "RBF", "device": "cpu", "verbose": False, "random_seed": 0}
    model = package.xGPRegression(num_rffs=1024, variance_rffs=512, **options)
    model.tune_hyperparams_crude(rows)
    model.num_rffs = 4096
    model.fit(rows, mode="cg")
    return lambda Z: model.predict(Z, get_var=True)


def distributional_trees(racer: str, X: Array, y: Array, threads: int) -> Callable[[Array], Law]:
    if racer == "ngboost":
        from ngboost import NGBRegressor

        trees = NGBRegressor(random_state=0, verbose=False).fit(X, y)

        def normal(Z: Array) -> Law:
            found = trees.pred_dist(Z).params
            return found["loc"], found["scale"] ** 2

        return normal
    from catboost import CatBoostRegressor

    options = {"random_seed": 0, "verbose": False, "thread_count": threads, "allow_writing_files": False}
    order = np.random.default_rng(0).permutation(len(y))
    out, left = order[: len(y) // 10], order[len(y) // 10 :]
    model = CatBoostRegressor(loss_function="RMSEWithUncertainty", early_stopping_rounds=50, **options)
    model.fit(X[left], y[left], eval_set=(X[out], y[out]))

    def predict(Z: Array) -> Law:
        mean, variance = model.predict(Z).T
        return mean, variance

    return predict


def gpboost(racer: str, X: Array, y: Array, exact: int, threads: int) -> Callable[[Array], Law]:
    import gpboost as package

    approximation = "full_scale_vecchia" if racer == "gpboost-vif" else "none" if len(X) <= exact else "vecchia"
    options = {"gp_approx": approximation, "num_parallel_threads": threads}
    model = package.GPModel(gp_coords=X, cov_function="matern_ard", cov_fct_shape=1.5, likelihood="gaussian", **options)
    model.fit(y=y, X=np.ones((len(X), 1)))

    def predict(Z: Array) -> Law:
        asked = {"predict_var": True, "predict_response": True}
        found = model.predict(gp_coords_pred=Z, X_pred=np.ones((len(Z), 1)), **asked)
        return np.asarray(found["mu"]), np.asarray(found["var"])

    return predict


def run(racer: str, file: Path, out: Path, seed: int, options: argparse.Namespace) -> None:
    """Fit and predict in this process, and write means, variances and seconds."""
    import torch

    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    data, told = np.load(file), dict[str, Any]()
    X, y = data["X"], data["y"]
    importlib.import_module(OTHERS.get(racer, "rfgp.gp"))  # imports are not timed
    begin, busy = time.perf_counter(), time.process_time()
    if racer == "sklearn":
        predict = gaussian_process(X, y)
    elif racer == "svgp":
        predict = variational(racer, X, y, options.limit)
    elif racer == "exact-gpytorch":
        predict = regression(X, y, options.limit, is_exact=True)
    elif racer == "xgpr":
        predict = xgpr(X, y)
    elif racer in ("catboost", "ngboost"):
        predict = distributional_trees(racer, X, y, options.threads)
    elif racer in ("gpboost", "gpboost-vif"):
        predict = gpboost(racer, X, y, options.exact, options.threads)
    elif racer in OTHERS:
        predict = boosting(X, y, racer == "quantiles")
    else:
        predict, told = ours(racer, X, y, seed)
    spent = [time.perf_counter() - begin, time.process_time() - busy]
    mean, variance = predict(data["Z"])
    np.savez(out, mean=mean, variance=variance, spent=spent, told=json.dumps(told))


def race(name: str, seed: int, racer: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """Run one racer on one split in its own process, and return the result."""
    X, y, Z, w = split(name, seed, options.folder, options.rows)
    if (racer == "sklearn" or racer.startswith("exact")) and len(X) > options.exact:
        return None
    about: dict[str, Any] = {"table": name, "rows": len(X), "columns": X.shape[1], "seed": seed, "racer": racer}
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "rows.npz", Path(folder) / "law.npz"
        np.savez(file, X=X, y=y, Z=Z)
        own = [sys.executable, "-m", "benchmarks.races.defaults", "--limit", str(options.limit)]
        own += ["--exact", str(options.exact), "--threads", str(options.threads)]
        command = [*own, "--run", racer, str(file), str(out), str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.patience)
            why = done.stderr.strip()[-300:]
        except subprocess.TimeoutExpired:
            why = f"longer than {options.patience:.0f} s"
        if not out.exists():
            return {**about, "failed": why}
        law = np.load(out)
        told = json.loads(str(law["told"]))
        figures = errors(w, (law["mean"], law["variance"]), told.get("shares", [1.0]))
        spent = dict(zip(("seconds", "processor"), law["spent"].tolist(), strict=True))
        return {**about, **figures, **spent, **told}


def paired(
    results: dict[tuple[int, str], dict[str, Any]], racer: str, other: str, key: str
) -> tuple[float, float, int]:
    """Return the mean difference of a figure by split, its standard error, and the number of splits."""
    seeds = [seed for seed, name in results if name == racer and (seed, other) in results]
    values = np.array([results[seed, racer][key] - results[seed, other][key] for seed in seeds])
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()) if len(values) else np.nan, float(error), len(values)


def regret(rows: list[dict[str, Any]]) -> None:
    """Print the regret of the default on each table, and its differences from other racers."""
    tables: dict[str, dict[tuple[int, str], dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        if "failed" not in row:
            tables[row["table"]][row["seed"], row["racer"]] = row
    regrets = []
    for name, results in tables.items():
        known = {seed for seed, racer in results if racer not in ("default", *BUDGETS, *OTHERS)}
        seeds = {seed for seed, racer in results if racer == "default" and seed in known}
        means = {
            racer: float(np.mean([results[seed, racer]["nlpd"] for seed in seeds]))
            for racer in candidates()
            if seeds and all((seed, racer) in results for seed in seeds)
        }
        if not means:
            continue
        best = min(means, key=lambda racer: means[racer])
        gap, error, count = paired(results, "default", best, "nlpd")
        regrets.append(gap)
        took = [np.median([results[seed, each]["processor"] for seed in seeds]) for each in ("default", best)]
        own = float(np.mean([results[seed, "default"]["nlpd"] for seed in seeds]))
        print(f"{name}: {count} splits, default {own:.3f}; best on average {best} {means[best]:.3f}; ", end="")
        print(f"regret {gap:.3f} ({error:.3f}); processor {took[0]:.3g} and {took[1]:.3g} s")
        for other in OTHERS:
            ahead, error, count = paired(results, "default", other, "nlpd")
            if count:
                scores, _, _ = paired(results, "default", other, "crps")
                print(f"    less {other}: NLPD {ahead:.3f} ({error:.3f}), CRPS {scores:.4f}, {count} splits")
    if regrets:
        print(f"mean regret {np.mean(regrets):.4f}, worst {max(regrets):.4f}, {len(regrets)} tables")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default=",".join(DESIGN))
    parser.add_argument("--racers", help="all if none are named")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--exact", type=int, default=2000)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--patience", type=float, default=3600.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        racer, file, out, seed = options.run
        run(racer, Path(file), Path(out), int(seed), options)
        return
    known = lines(options.out)
    if options.regret:
        regret(known)
        return
    done = {(row["table"], row["seed"], row["racer"]) for row in known}
    named = re.split(",(?! )", options.racers or "")  # names of candidates have ", "
    racers = named if options.racers else ["default", *candidates(), *BUDGETS, *OTHERS]
    for seed in range(options.seeds):
        for name in options.tables.split(","):
            for racer in racers:
                if (name, seed, racer) in done or (row := race(name, seed, racer, options)) is None:
                    continue
                print({key: value for key, value in row.items() if key != "failed"}, flush=True)
                add_line(row, options.out)


if __name__ == "__main__":
    main()
