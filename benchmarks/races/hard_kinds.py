"""Kinds of tables that defaults get wrong: replicates, simulators, many columns, lines, rare counts, time, sharp ones.

Protocol, fixed before the results were seen. A table is drawn from numpy's generator at the seed of the run; `TABLES`
has the sizes of both sets. Those of `development` may be tuned on, those of `evidence` never; their sizes differ, and
their seeds begin at 1000. Columns are uniform on the unit cube, except time and those of the simulators, which have
their usual ranges. Each run is alone in a process of its own, on one thread, and ended after `--limit` seconds.

- replicates: distinct rows, each repeated; f = sin(6 a) + cos(4 b), `short` sin(6 a) + a; noise of deviation 0.1.
- simulators: Branin, Ishigami, Friedman and borehole functions without noise.
- wide: `linear` f = 3 a - 2 b (and smaller coefficients if more columns matter), `curved` f = sin(6 a) + 4 (b - 1/2)^2.
  The other columns have no effect. The noise has a tenth of the variance of f.
- line: y = -50,000 a, without noise.
- counts: `rare` zeros and one 10,000, whose column is noise; `smooth` Poisson counts of log rate 1 + 2 sin(6 a).
- time: months; f has a trend with curvature and a season; new rows are the years after the last one.
- sharp: f = exp(9 a) (1 + b / 2) + c of six columns, noise of 1e-6 of its variance.

There are 1,000 new rows (for time, those that follow). Figures: RMSE of the mean to the noiseless f and R^2, both in
deviations of f at the new rows. Mean log density of new observations (higher is better) and printed score of the
selection, if any, with standard errors. Coverage of 95 % intervals. The largest mean at the rows over the largest
observation. Processor seconds without imports.

- default: `rfgp.GP()`. exact: `rfgp.ExactGP()`. Both with the Poisson likelihood for counts.
- fixed, learned: 256 fixed and 128 learned random frequencies of an RBF kernel, for sharp tables.
- sklearn: GaussianProcessRegressor, constant times ARD RBF plus white noise of at least 1e-10, normalized targets.
- lasso: LassoCV on standardized columns. boosting: HistGradientBoostingRegressor. Both with the deviation of errors
  from five folds.

`--summary` prints medians, and for each goal the number of runs that meet it. Replicates: an RMSE within 10 % of exact.
Simulators: an RMSE within twice that of sklearn, or below 1e-5. Wide: R^2 within 0.03 of that of the lasso, and a mean
coverage from 0.90 to 0.98. All except time and rare counts, whose new rows differ: the printed score within two
standard errors of that of new rows, in 19 of 20 runs. Line: an RMSE below 1e-3. Rare counts: means at the rows at most
twice the largest. Time: an RMSE below that of the last year repeated.

Results are lines of JSON that are added to `--out`; runs that stand there are not run again.

    python -m benchmarks.races.hard_kinds --set development [--kinds K,...] [--racers R,...] [--seeds N] [--out FILE]
    python -m benchmarks.races.hard_kinds --out FILE --summary
"""

import argparse
import importlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.races import processes

Array = NDArray[np.float64]
MODULE = "benchmarks.races.hard_kinds"
NEW = 1000
FIRST_SEED = {"development": 1000, "evidence": 0}

TABLES: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "development": {
        "replicates": {"sines": (60, 20), "short": (30, 50)},
        "simulators": {"branin": (60,), "ishigami": (120,), "friedman": (80,), "borehole": (50,)},
        "wide": {"linear": (120, 200, 3), "curved": (180, 120, 2)},
        "line": {"line": (14,)},
        "counts": {"rare": (150,), "smooth": (150,)},
        "time": {"months": (240,)},
        "sharp": {"sharp": (230,)},
    },
    "evidence": {
        "replicates": {"sines": (100, 30)},
        "simulators": {"branin": (40,), "ishigami": (150,), "friedman": (100,), "borehole": (80,)},
        "wide": {"linear": (150, 300, 2), "curved": (150, 300, 2)},
        "line": {"line": (10,)},
        "counts": {"rare": (200,), "smooth": (200,)},
        "time": {"months": (360,)},
        "sharp": {"sharp": (280,)},
    },
}
"""The numbers of rows, and of repetitions or of columns and those that matter, by set, kind and table."""


class Made(NamedTuple):
    """A table: rows, targets, new rows, the noiseless function at them, and new observations."""

    X: Array
    y: Array
    new: Array
    f: Array
    observed: Array


def branin(u: Array) -> Array:
    a, b = 15 * u[:, 0] - 5, 15 * u[:, 1]
    hill = b - 5.1 * a**2 / (4 * math.pi**2) + 5 * a / math.pi - 6
    found: Array = hill**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(a) + 10
    return found


def ishigami(u: Array) -> Array:
    a, b, c = (math.pi * (2 * u[:, :3] - 1)).T
    found: Array = np.sin(a) + 7 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a)
    return found


def friedman(u: Array) -> Array:
    curved = 10 * np.sin(math.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2
    found: Array = curved + 10 * u[:, 3] + 5 * u[:, 4]
    return found


BOREHOLE = np.array(
    [(0.05, 0.15), (100, 50_000), (63_070, 115_600), (990, 1110), (63.1, 116), (700, 820), (1120, 1680), (9855, 12_045)]
)


def borehole(u: Array) -> Array:
    low, high = BOREHOLE.T
    rw, r, tu, hu, tl, hl, length, kw = (low + u * (high - low)).T
    log_ratio = np.log(r / rw)
    found: Array = 2 * math.pi * tu * (hu - hl) / (log_ratio * (1 + tu / tl) + 2 * length * tu / (rw**2 * kw))
    return found


SIMULATORS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "branin": (2, branin),
    "ishigami": (3, ishigami),
    "friedman": (5, friedman),
    "borehole": (8, borehole),
}
FUNCTIONS: dict[str, tuple[int, Callable[[Array], Array]]] = SIMULATORS | {
    "line": (1, lambda u: -50_000 * u[:, 0]),
    "sharp": (6, lambda u: np.exp(9 * u[:, 0]) * (1 + u[:, 1] / 2) + u[:, 2]),
    "sines": (2, lambda u: np.sin(6 * u[:, 0]) + np.cos(4 * u[:, 1])),
    "short": (1, lambda u: np.sin(6 * u[:, 0]) + u[:, 0]),
    "linear": (0, lambda u: u @ np.concatenate([[3.0, -2.0], np.ones(u.shape[1])])[: u.shape[1]]),
    "curved": (0, lambda u: np.sin(6 * u[:, 0]) + 4 * (u[:, 1] - 0.5) ** 2),
    "smooth": (1, lambda u: np.exp(1 + 2 * np.sin(6 * u[:, 0]))),
}


def table(which: str, kind: str, name: str, seed: int) -> Made:
    """Return a table of a set."""
    sizes = TABLES[which][kind][name]
    rng, rows = np.random.default_rng(FIRST_SEED[which] + seed), sizes[0]
    if kind == "time":
        t = np.arange(rows + 60) / 12.0
        f = 0.1 * t + 0.004 * t**2 + np.sin(2 * math.pi * t) + 0.3 * np.cos(4 * math.pi * t)
        y, late = f + 0.1 * rng.normal(size=len(t)), slice(rows, None)
        return Made(t[:rows, None], y[:rows], t[late, None], f[late], y[late])
    if name == "rare":
        u, counts = rng.uniform(size=(rows + NEW, 3)), np.zeros(rows)
        counts[rng.integers(rows)] = 10_000
        return Made(u[:rows], counts, u[rows:], np.full(NEW, 10_000 / rows), np.zeros(NEW))
    d, function = FUNCTIONS[name]
    d, matter = (sizes[1], sizes[2]) if kind == "wide" else (d, d)
    u = rng.uniform(size=(rows + NEW, d))
    u = np.concatenate([np.repeat(u[:rows], sizes[1], axis=0), u[rows:]]) if kind == "replicates" else u
    f, rows = function(u[:, :matter]), len(u) - NEW
    if name == "smooth":
        y = rng.poisson(f).astype(float)
    else:
        variance = {"replicates": 0.01, "wide": 0.1 * f.var(), "sharp": 1e-6 * f.var()}.get(kind, 0.0)
        y = f + math.sqrt(variance) * rng.normal(size=len(f))
    return Made(u[:rows], y[:rows], u[rows:], f[rows:], y[rows:])


# --- racers ----------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """Predictions at the new rows (n,), means at the rows, and the printed score with its error."""

    mean: Array
    log_prob: Array
    covered: NDArray[np.bool_]
    at_rows: Array
    printed: tuple[float, float] | None = None


def ours(make: Callable[[Any, dict[str, Any]], Any]) -> Callable[[Made, str], Answer]:
    """Return a racer of this package.

    Args:
        make: A function of the package and the likelihood of the table that returns the model.
    """

    def run(made: Made, kind: str) -> Answer:
        import rfgp

        gp = make(rfgp, {"likelihood": "poisson"} if kind == "counts" else {}).fit(made.X, made.y)
        observed = gp.predict(made.new).observed()
        low, high = observed.interval(0.95)
        last = None if gp.selection is None else gp.selection.chosen.last
        covered = (low <= made.observed) & (made.observed <= high)
        at_rows = gp.predict(made.X).observed().mean
        printed = None if last is None else (last.value, last.error)
        return Answer(observed.mean, observed.log_prob(made.observed), covered, at_rows, printed)

    return run


def normal(made: Made, mean: Array, deviation: Array, at_rows: Array) -> Answer:
    """Return normal predictions with a deviation (n,)."""
    safe = np.maximum(deviation, 1e-12 * made.y.std())
    covered = np.abs(made.observed - mean) <= stats.norm.ppf(0.975) * safe
    return Answer(mean, stats.norm(mean, safe).logpdf(made.observed), covered, at_rows)


def sklearn(made: Made, kind: str) -> Answer:
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    center, scale = made.X.mean(0), made.X.std(0)
    scales = kernels.RBF(np.full(made.X.shape[1], math.sqrt(made.X.shape[1])), (1e-3, 1e4))
    kernel = kernels.ConstantKernel(1.0, (1e-6, 1e6)) * scales + kernels.WhiteKernel(0.1, (1e-10, 1e2))
    X, new = ((rows - center) / scale for rows in (made.X, made.new))
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, made.y)
    mean, deviation = model.predict(new, return_std=True)
    return normal(made, mean, deviation, model.predict(X))


def by_folds(make: Callable[[], Any]) -> Callable[[Made, str], Answer]:
    """Return a racer of scikit-learn with the deviation of errors of predictions from five folds."""

    def run(made: Made, kind: str) -> Answer:
        from sklearn.model_selection import KFold, cross_val_predict

        folds = KFold(5, shuffle=True, random_state=0)
        deviation = np.std(made.y - cross_val_predict(make(), made.X, made.y, cv=folds))
        model = make().fit(made.X, made.y)
        mean = model.predict(made.new)
        return normal(made, mean, np.full(len(mean), deviation), model.predict(made.X))

    return run


def lasso() -> Any:
    from sklearn.linear_model import LassoCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LassoCV(random_state=0))


def boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


def features(count: int, learn: bool) -> Callable[[Any, dict[str, Any]], Any]:
    return lambda rfgp, options: rfgp.GP(
        rfgp.kernels.RBF(), approximation=rfgp.RandomFeatures(count, learn_frequencies=learn), seed=0, **options
    )


def repeated_year(made: Made, kind: str) -> Answer:
    mean = np.resize(made.y[-12:], len(made.new))
    return normal(made, mean, np.full(len(mean), made.y.std()), made.y)


ALL = tuple(TABLES["evidence"])
REAL = tuple(kind for kind in ALL if kind != "counts")
RACERS: dict[str, tuple[Callable[[Made, str], Answer], tuple[str, ...]]] = {
    "default": (ours(lambda rfgp, options: rfgp.GP(seed=0, **options)), ALL),
    "exact": (ours(lambda rfgp, options: rfgp.ExactGP(**options)), tuple(k for k in ALL if k != "wide")),
    "fixed": (ours(features(256, learn=False)), ("sharp",)),
    "learned": (ours(features(128, learn=True)), ("sharp",)),
    "sklearn": (sklearn, ("simulators", "line", "time", "sharp")),
    "lasso": (by_folds(lasso), ("wide", "line", "time")),
    "boosting": (by_folds(boosting), ("replicates", "wide", "sharp")),
    "last-year": (repeated_year, ("time",)),
}
"""Each racer, and the kinds that it runs on."""


def case(which: str, kind: str, name: str, racer: str, seed: int) -> dict[str, Any]:
    """Return the figures of a run."""
    import torch

    for module in ("sklearn.ensemble", "sklearn.gaussian_process", "sklearn.linear_model", "rfgp.gp"):
        importlib.import_module(module)  # imports are not timed
    torch.set_num_threads(1)
    made = table(which, kind, name, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.process_time()
        found = RACERS[racer][0](made, kind)
        spent = time.process_time() - begin
    error, size = found.mean - made.f, np.abs(made.f).max()
    spread = made.f.std() if made.f.std() > 1e-9 * size else size  # of a constant function, its value
    density = np.asarray(found.log_prob, dtype=float)
    figures = {
        "rmse": np.sqrt(np.mean(error**2)) / spread,
        "r2": 1 - np.mean(error**2) / spread**2,
        "log_density": density.mean(),
        "log_density_se": density.std(ddof=1) / math.sqrt(len(density)),
        "coverage": found.covered.mean(),
        "largest": np.max(found.at_rows) / max(1e-300, np.max(np.abs(made.y))),
        "processor_s": spent,
    }
    if found.printed is not None:
        figures |= dict(zip(("printed", "printed_se"), found.printed, strict=True))
    named = sorted({one.category.__name__ for one in caught if one.category.__module__.startswith("rfgp")})
    return {key: float(value) for key, value in figures.items()} | {"warnings": named}


# --- goals -----------------------------------------------------------------------------------------------------------

Runs = Mapping[tuple[str, str, str, int], dict[str, Any]]


def within(runs: Runs, kind: str, racer: str, is_met: Callable[[dict[str, Any], dict[str, Any]], bool]) -> list[bool]:
    """Return whether the default met a goal relative to another racer, for each run that both finished."""
    return [
        is_met(run, runs[kind, name, racer, seed])
        for (one, name, own, seed), run in runs.items()
        if (one, own) == (kind, "default") and (kind, name, racer, seed) in runs
    ]


def agrees(run: dict[str, Any]) -> bool:
    """Return whether the printed score is within two standard errors of the score of new rows."""
    gap = abs(run["printed"] - run["log_density"])
    return bool(gap <= 2 * math.hypot(run["printed_se"], run["log_density_se"]))


def summary(lines: list[dict[str, Any]]) -> None:
    """Print medians by table and racer, and the goals."""
    good = [row for row in lines if "failed" not in row]
    for kind, name, racer in dict.fromkeys((row["kind"], row["table"], row["racer"]) for row in lines):
        own = [row for row in good if (row["kind"], row["table"], row["racer"]) == (kind, name, racer)]
        failed = sum((row["kind"], row["table"], row["racer"]) == (kind, name, racer) for row in lines) - len(own)
        keys = ("rmse", "r2", "log_density", "coverage", "largest", "printed", "processor_s")
        said = [f"{key} {np.median([row[key] for row in own]):.4g}" for key in keys if own and key in own[0]]
        print(f"{kind} {name} {racer}: {len(own)} runs, {failed} failed; medians {', '.join(said)}")
    runs = {(row["kind"], row["table"], row["racer"], row["seed"]): row for row in good}
    mine = [row for row in good if row["racer"] == "default"]
    scored = [row for row in mine if "printed" in row and row["kind"] != "time" and row["table"] != "rare"]
    goals = {
        "replicates: RMSE within 10 % of exact": within(
            runs, "replicates", "exact", lambda a, b: a["rmse"] <= 1.1 * b["rmse"]
        ),
        "simulators: RMSE within twice sklearn's": within(
            runs, "simulators", "sklearn", lambda a, b: a["rmse"] <= max(2 * b["rmse"], 1e-5)
        ),
        "wide: R^2 within 0.03 of the lasso's": within(runs, "wide", "lasso", lambda a, b: a["r2"] >= b["r2"] - 0.03),
        "printed score within two standard errors": [agrees(row) for row in scored],
        "line: RMSE below 1e-3": [row["rmse"] < 1e-3 for row in mine if row["kind"] == "line"],
        "rare counts: means at most twice the largest": [row["largest"] <= 2 for row in mine if row["table"] == "rare"],
        "time: RMSE below the last year's": within(runs, "time", "last-year", lambda a, b: a["rmse"] < b["rmse"]),
    }
    for goal, met in goals.items():
        print(f"{goal}: {sum(met)} of {len(met)}")
    for name in TABLES["evidence"]["wide"]:
        coverage = [row["coverage"] for row in mine if (row["kind"], row["table"]) == ("wide", name)]
        if coverage:
            print(f"wide {name}: mean coverage {np.mean(coverage):.3f}, to lie from 0.90 to 0.98")


def main() -> None:
    """Run the race, or print its summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=tuple(TABLES), default="development")
    parser.add_argument("--kinds", default=",".join(ALL))
    parser.add_argument("--racers", default=",".join(RACERS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        kind, name, racer, seed = options.case
        print(json.dumps(case(options.set, kind, name, racer, int(seed))))
        return
    lines = [row for row in processes.lines(options.out) if row["set"] == options.set or options.summary]
    if options.summary:
        summary(lines)
        return
    done = {(row["kind"], row["table"], row["racer"], row["seed"]) for row in lines}
    plan = [
        (kind, name, racer, seed)
        for seed in range(options.seeds)
        for kind in options.kinds.split(",")
        for name in TABLES[options.set][kind]
        for racer in options.racers.split(",")
        if kind in RACERS[racer][1]
    ]
    for key in (key for key in plan if key not in done):
        found = processes.figures(MODULE, options.limit, "--set", options.set, "--case", *key)
        row = {"set": options.set, **dict(zip(("kind", "table", "racer", "seed"), key, strict=True)), **found}
        print(json.dumps(row), flush=True)
        processes.add_line(row, options.out)


if __name__ == "__main__":
    main()
