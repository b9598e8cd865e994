"""Scores of races: from lines of JSON to files of results, and compared in pairs."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.record import RESULTS, made_with
from benchmarks.rivals.races import RACES, is_ours
from rfgp.files import write_atomically

PACKAGES = {
    "gpboost": ("gpboost",),
    "gpytorch": ("svgp", "exact-gpytorch"),
    "scikit-learn": ("sklearn", "gpc", "boosting", "logistic", "linear"),
    "catboost": ("catboost",),
    "ngboost": ("ngboost",),
    "xgpr": ("xgpr",),
    "celerite2": ("celerite2",),
    "tinygp": ("tinygp",),
    "geometric-kernels": ("geometric",),
}
"""Packages whose versions are recorded, with the beginnings of the names of their racers."""
MARGIN = 0.01
"""Nats a row within which two scores are equal."""


class Score(NamedTuple):
    """Figures of one fit.

    Attributes:
        dataset: The name of the table.
        rows: The number of training rows.
        repeat: The seed of the split.
        racer: The model.
        nlpd: The mean negative log density of held-out rows, in nats; nan if the fit failed.
        error: The RMSE or error rate of held-out rows.
        seconds: The processor seconds of the fit.
        failed: The reason for missing figures, or "".
        coverage: The share of held-out rows in their 95 % intervals; nan if it is not known.
    """

    dataset: str
    rows: int
    repeat: int
    racer: str
    nlpd: float
    error: float
    seconds: float
    failed: str = ""
    coverage: float = math.nan


def score_of(row: Mapping[str, Any], seconds: Sequence[str] = ("processor",)) -> Score:
    """Return the figures of a line of a race (`benchmarks.race`), with the sum of some of its seconds."""
    about = (row["table"], row.get("rows", 0), row.get("seed", 0), row["racer"])
    if "failed" in row:
        why = row["failed"].splitlines()[-1][-80:] if row["failed"] else "ended"
        return Score(*about, math.nan, math.nan, math.nan, why)
    error = 1 - row["accuracy"] if "accuracy" in row else row["rmse"]
    spent = sum(row.get(name, math.nan) for name in seconds)
    return Score(*about, row["nlpd"], error, spent, coverage=row.get("coverage", math.nan))


def add(name: str, files: Sequence[Path]) -> Path:
    """Add the lines of a race to its results, in place of those of the same data, repeat and model."""
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    added = [score_of(line, RACES[name].seconds) for line in lines]
    before, made = read(RESULTS).get(name, ([], {}))
    scores = {(s.dataset, s.repeat, s.racer): s for s in (*before, *added)}
    versions = {package: made[package] for package in PACKAGES if package in made}
    for package, names in PACKAGES.items():
        if any(score.racer.startswith(names) for score in added):
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
    content = {
        "made_with": made_with() | versions,
        "scores": [_rounded(s) for s in sorted(scores.values(), key=lambda s: (s.rows, s.dataset, s.repeat))],
    }
    path = RESULTS / f"rivals-{name}.json"
    text = (
        json.dumps(content, indent=None, separators=(",", ":"))
        .replace("},{", "},\n{")
        .replace('"scores":[', '"scores":[\n')
    )
    write_atomically(path, (text + "\n").encode())
    return path


def _rounded(score: Score) -> dict[str, Any]:
    """Return the figures that exist, with five digits."""
    known = {key: value for key, value in score._asdict().items() if value != "" and value == value}
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in known.items()}


def read(folder: Path = RESULTS) -> dict[str, tuple[list[Score], dict[str, str]]]:
    """Return scores and versions of each race that has a file."""
    found = {}
    for name in RACES:
        path = folder / f"rivals-{name}.json"
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            empty = dict.fromkeys(("nlpd", "error", "seconds"), math.nan)
            found[name] = [Score(**(empty | row)) for row in content["scores"]], content["made_with"]
    return found


class Comparison(NamedTuple):
    """One rival on one data set: differences of NLPD (rival less ours) by repeat, and mean seconds of both."""

    dataset: str
    racer: str
    differences: list[float]
    seconds: tuple[float, float]

    @property
    def mean_difference(self) -> float:
        """The mean difference over the repeats."""
        return float(np.mean(self.differences))

    @property
    def verdict(self) -> str:
        """A win or a loss if all repeats differ by more than the margin in one direction, otherwise a tie."""
        low, high = min(self.differences), max(self.differences)
        return "win" if low > MARGIN else "loss" if high < -MARGIN else "tie"


def comparisons(scores: Sequence[Score], ours: str) -> Iterator[Comparison]:
    """Yield each rival on each data set, over the repeats that both have. Without lines of `ours`, "rfgp" is ours."""
    known = {(s.dataset, s.racer, s.repeat): s for s in scores if not s.failed}
    have = {s.dataset for s in scores if s.racer == ours}
    for dataset in dict.fromkeys(s.dataset for s in scores):
        own = ours if dataset in have else "rfgp"
        for racer in dict.fromkeys(s.racer for s in scores if not is_ours(s.racer)):
            pairs = [
                (known[dataset, own, s.repeat], s)
                for s in scores
                if not s.failed and (s.dataset, s.racer) == (dataset, racer) and (dataset, own, s.repeat) in known
            ]
            if pairs:
                seconds = float(np.mean([a.seconds for a, _ in pairs])), float(np.mean([b.seconds for _, b in pairs]))
                yield Comparison(dataset, racer, [b.nlpd - a.nlpd for a, b in pairs], seconds)
