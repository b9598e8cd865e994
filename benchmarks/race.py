"""Compare models on splits of tables: a process for each fit; scores, seconds and memory as lines of JSON.

A race has tables, a function that splits them, and models. `Race.main` is its command line. Each fit runs in a process
of its own, on `--threads` threads, and is ended after `--limit` seconds; a model that was ended so is not fitted to
other splits of that table. Imports are not timed. Nothing is tuned on held-out rows. A model whose package is not
installed is left out. Results are added to `--out`, and fits that the file has are not run again. `--page` prints means
and standard errors, and `--against MODEL` differences from a model, paired by split.

    python -m benchmarks.races.NAME [--tables T,...] [--racers R,...] [--splits N] [--limit SECONDS] [--out FILE]
                                    [--rows N] [--folder UCI] [--threads N] [--page] [--against MODEL]
"""

import argparse
import importlib
import json
import os
import re
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import scores

Array = NDArray[Any]
Fit = Callable[..., Callable[[Any], Any]]
"""`fit(X, y, seed)` returns a function of new rows to a distribution (`benchmarks.scores`)."""
_TOO_LONG = "longer than"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Split(NamedTuple):
    """Training rows, held-out rows, and further facts for the score."""

    X: Any
    y: Array
    Z: Any
    w: Array
    about: Any = None


class Model(NamedTuple):
    """A model of a race.

    Attributes:
        package: The module that is imported before the clock starts.
        fit: The function that fits.
        tables: The tables that it can have. If None, all.
        most: The largest number of training rows. Larger tables are left out.
        splits: The largest number of splits by table, for models that are slow.
    """

    package: str
    fit: Fit
    tables: Collection[str] | None = None
    most: int | None = None
    splits: Mapping[str, int] = {}


def standardized(X: Array, y: Array, train: Array, test: Array, targets: bool = True) -> Split:
    """Return rows whose columns, and targets if asked, are standardized on the training rows."""
    X = X[:, X[train].std(0) > 0]
    X = (X - X[train].mean(0)) / X[train].std(0)
    y = (y - y[train].mean()) / y[train].std() if targets else y
    return Split(X[train], y[train], X[test], y[test])


def tenth(count: int, seed: int, most: int | None = None) -> tuple[Array, Array]:
    """Return the indices of training rows, and of a held-out random tenth, at most `most`."""
    order = np.random.default_rng(seed).permutation(count)
    return order[count // 10 :], order[: count // 10][:most]


@dataclass(frozen=True)
class Race:
    """Models on tables.

    Attributes:
        module: The name of the module, which calls `main`.
        tables: The tables.
        split: A function of a table, a seed and the options that returns a split.
        models: The models by name, or a function of a table that returns them.
        score: A function of a prediction and a split.
        chosen: The models that run if none are named. If empty, all.
        splits: The number of splits.
        limit: The seconds after which a fit is ended.
        warm_up: The number of rows that are fitted before the clock starts, to compile.
        memory: The largest address space of a fit in bytes, if not 0.
    """

    module: str
    tables: Sequence[str]
    split: Callable[[str, int, argparse.Namespace], Split]
    models: Mapping[str, Model] | Callable[[str], Mapping[str, Model]]
    score: Callable[[Any, Split], dict[str, float]] = lambda found, split: scores.of_targets(found, split.w)
    chosen: Sequence[str] = ()
    splits: int = 3
    limit: float = 1800.0
    warm_up: int = 0
    memory: int = 0

    def main(self, doc: str | None = None) -> None:
        """Run the race, or one fit of it."""
        options = self._options(doc)
        if options.case:
            table, seed, name = options.case
            print(json.dumps(self.case(table, int(seed), name, options)))
            return
        found = read(options.out)
        done = {(row["table"], row["seed"], row["racer"]) for row in found}
        for table, seed, name in self._cases(options):
            if (table, seed, name) in done or options.page or options.against:
                continue
            ended = [row for row in found if row.get("failed", "").startswith(_TOO_LONG)]
            if (table, name) in {(row["table"], row["racer"]) for row in ended}:
                continue
            if not (figures := self._apart(table, seed, name, options)):
                continue
            row = {"table": table, "seed": seed, "racer": name} | figures
            said = "  ".join(f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
            print(f"{table} {seed} {name:16s} {said}{row.get('failed', '')}", flush=True)
            found.append(row)
            add(row, options.out)
        if options.page or options.against:
            print(page(found, options.against))

    def case(self, table: str, seed: int, name: str, options: argparse.Namespace) -> dict[str, Any]:
        """Fit and predict in this process, and return the figures, none if the model does not take so many rows."""
        warnings.simplefilter("ignore")
        split, model = self.split(table, seed, options), self._models(table)[name]
        if model.most is not None and len(split.y) > model.most:
            return {}
        importlib.import_module(model.package)
        if self.memory:
            resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
        if self.warm_up:
            model.fit(split.X[: self.warm_up], split.y[: self.warm_up], seed)(split.Z[:10])
        clocks = [(time.perf_counter(), time.process_time())]
        predict = model.fit(split.X, split.y, seed)
        clocks.append((time.perf_counter(), time.process_time()))
        found = predict(split.Z)
        clocks.append((time.perf_counter(), time.process_time()))
        wall, processor = np.diff(clocks, axis=0).T
        return {
            "rows": len(split.y),
            **self.score(found, split),
            "seconds": wall[0],
            "processor": processor[0],
            "predict_s": wall[1],
            "predict_processor": processor[1],
            "GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            **getattr(predict, "about", {}),
        }

    def _options(self, doc: str | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--tables", type=lambda text: text.split(","), default=list(self.tables))
        parser.add_argument("--racers", type=lambda text: re.split(",(?! )", text), default=list(self.chosen))
        parser.add_argument("--splits", "--seeds", type=int, default=self.splits)
        parser.add_argument("--rows", type=int, help="the most training rows, or the rows of made tables")
        parser.add_argument("--limit", type=float, default=self.limit)
        parser.add_argument("--threads", default="1")
        parser.add_argument("--folder", type=Path, help="the folder of NAME.csv.gz")
        parser.add_argument("--out", type=Path)
        parser.add_argument("--page", action="store_true")
        parser.add_argument("--against", default="")
        parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
        return parser.parse_args()

    def _models(self, table: str) -> Mapping[str, Model]:
        return self.models(table) if callable(self.models) else self.models

    def _cases(self, options: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
        """Yield the fits, all of one seed before the next."""
        absent = set()
        for seed in range(options.splits):
            for table in options.tables:
                known = self._models(table)
                for name in options.racers or known:
                    model = known[name]
                    if find_spec(model.package.partition(".")[0]) is None:
                        absent.add((name, model.package))
                    elif (model.tables is None or table in model.tables) and seed < model.splits.get(table, seed + 1):
                        yield table, seed, name
        for name, package in sorted(absent):
            print(f"{name} is left out: {package} is not installed")

    def _apart(self, table: str, seed: int, name: str, options: argparse.Namespace) -> dict[str, Any]:
        given = ["--rows", options.rows, "--folder", options.folder]
        more = [str(value) for pair in zip(given[::2], given[1::2], strict=True) if pair[1] for value in pair]
        threads = dict.fromkeys(_THREADS, options.threads)
        return apart(self.module, options.limit, "--case", table, seed, name, *more, **threads)


def apart(module: str, limit: float | None, *arguments: Any, **environment: str) -> dict[str, Any]:
    """Run a module in a new process; return the figures that it prints as JSON, or a reason under "failed"."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    env = {**os.environ, **environment}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit, env=env)
    except subprocess.TimeoutExpired:
        return {"failed": f"{_TOO_LONG} {limit:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip()[-300:] or "killed"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def status(name: str) -> int:
    """Return bytes of this process: `VmRSS` is its memory, `VmHWM` its peak."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))


def read(out: Path | None) -> list[dict[str, Any]]:
    """Return the results in a file of JSON lines."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []


def add(row: dict[str, Any], out: Path | None) -> None:
    """Add a result to a file of JSON lines, if there is one."""
    if out:
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")


def page(rows: Sequence[dict[str, Any]], against: str = "") -> str:
    """Return means over splits with standard errors as Markdown, or those of differences from a model."""
    text = []
    for table in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == table]
        good = [row for row in own if "failed" not in row]
        known = {row["seed"]: row for row in good if row["racer"] == against}
        columns = [key for key, value in (good or [{}])[0].items() if isinstance(value, float)]
        text += [f"\n## {table}\n", f"| model | splits | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
        for name in dict.fromkeys(row["racer"] for row in own):
            chosen = [row for row in good if row["racer"] == name and (not against or row["seed"] in known)]
            lost = sum("failed" in row for row in own if row["racer"] == name)
            cells = []
            for key in columns:
                given = [row[key] - (known[row["seed"]][key] if against else 0) for row in chosen if key in row]
                cells.append(summary(given) if given else "")
            text.append(f"| {name} | {len(chosen)}{f' ({lost} failed)' if lost else ''} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def summary(values: Sequence[float]) -> str:
    """Return "mean ± standard error", or a single value alone."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{np.mean(values):.4g} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2g}"
