"""Tables of our own figures that pages of the documentation include: `docs/generated/tables/NAME.md`.

The documentation writes them from `benchmarks/results` when it is built (`benchmarks.page.generate`).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks.record import values_of


class Table(NamedTuple):
    """Figures of one file of results, as a table.

    Attributes:
        key: The file, "paper/figure".
        rows: From labels of rows to the texts that replace `*` in the cells.
        columns: From headings to cells. A part `[NAME; FORMAT]` of a cell is the figure of that name.
        corner: The heading of the labels.
    """

    key: str
    rows: Mapping[str, str]
    columns: Mapping[str, str]
    corner: str = ""


def _ranged(name: str) -> str:
    """Return a cell of a mean over tables, and its range."""
    return f"[{name}; .2f] ([{name}, least of the tables; .2f] to [{name}, largest of the tables; .2f])"


_BEST = {
    "scrambled Sobol, m a power of two": "scrambled Sobol, m a power of two",
    "near-orthogonal Monte Carlo": "near-orthogonal",
    "energy": "energy",
    "energy, weighted": "energy, weighted",
}
_NORMS = {
    '"monotone"': "monotone",
    '"monotone-antithetic", the default': "monotone-antithetic",
    "learned for this m": "learned",
}
_POINTS = {
    "iid": "iid",
    "orthogonal": "orthogonal",
    "pairwise": "pairwise",
    "energy": "energy",
    "weighted energy": "energy, weighted",
    "`DataAdapted(rows)`": "adapted",
    'k-means, `method="sor"`': "inducing, k-means",
    'k-means, `method="fitc"`': "inducing, k-means, FITC",
    'k-means, `method="vfe"`': "inducing, k-means, VFE",
    'pivots, `method="vfe"`': "inducing, pivots, VFE",
}
_TIMES = {
    "time as a column": "time as a column",
    "the same with a season of 4 replicates": "time as a column, season",
    "time as a level": "time as a level",
    "replicates, `RoadGP`": "replicates",
    "mean field, and replicates of residuals": "mean field and replicates of residuals",
    "roads and sensor, no time": "roads and sensor, no time",
    "roads alone, no time": "roads alone, no time",
    "mean of the sensor, or of the time": "mean, one sd",
    "the same, with an sd for each": "mean, an sd for each",
}
_REVERSAL, _FAR = "all pairs, the reversal", "largest distance from the best"
_MATCHED = {
    "all pairs, reversal: cases of 14 that are not the best": f"{_REVERSAL}: cases of 14 that are not the best",
    "all pairs, reversal": f"{_REVERSAL}: {_FAR}",
    "all pairs, default cost": f"all pairs, linear: {_FAR}",
    'all pairs, `objective="quartic"`': f"all pairs, quartic: {_FAR}",
    '$i = j$ (`objective="diagonal"`), positive projections': f"pairs i = j, positive: {_FAR}",
    "$i = j$, projections of Lemma C.2": f"pairs i = j, gaussian: {_FAR}",
}

TABLES = {
    "couplings": Table(
        "own/couplings",
        _BEST,
        {
            "kernel error / pairwise": _ranged("m = 16 d, *: kernel error / pairwise"),
            "KL to the exact posterior / orthogonal": _ranged("m = 16 d, *: KL of posteriors / orthogonal"),
        },
    ),
    "couplings-positive": Table(
        "own/couplings-positive",
        {'"energy-antithetic"': "energy", '`Energy("laplace", weighted=True)`': "energy, weighted"},
        {"kernel error / pairwise-antithetic": _ranged("m = 8 d, *: kernel error / pairwise-antithetic")},
    ),
    "norms": Table(
        "own/norms",
        {str(d): f"d = {d}" for d in (2, 3, 5, 8, 16)},
        {
            "optimal up to z": "[*, pairwise norms are optimal up to z; .2f]",
            "worse than independent norms from z": "[*, pairwise norms are worse than independent ones from z; .2f]",
        }
        | {
            f"pairwise / orthogonal at z = {z}": f"[*, z = {z}: variance, pairwise / orthogonal; .3f]"
            for z in ("1", "2", "2.5", "3")
        },
        "d",
    ),
    "inducing": Table(
        "own/inducing",
        _POINTS,
        {f"kernel error / pairwise, F = {f}": f"[F = {f}, *: kernel error / pairwise; .2g]" for f in (32, 256)}
        | {f"KL / orthogonal, F = {f}": f"[F = {f}, *: KL of posteriors / orthogonal; .2g]" for f in (32, 256)}
        | {
            "log density minus the exact one's, F = 256": (
                "[F = 256, *: density of a held-out row, less the exact process's; .2f]"
            )
        },
    ),
    "attention": Table(
        "own/attention",
        {'"pairwise"': "pairwise"} | _NORMS,
        {f"m = {m}": f"[deviation 0.5, *, m = {m}: squared error; .2f]" for m in (16, 64, 256)},
    ),
    "attention-learned": Table(
        "own/attention",
        _NORMS,
        {f"m = {m}": f"[deviation 1, *, m = {m}: squared error; .2f]" for m in (16, 64, 256)},
    ),
    "hybrid": Table(
        "hybrid/figure-2",
        {"128 projections of each": "128 projections", "1,024 features of each": "1024 features"},
        {r: f"[r = {r}, angular hybrid over the better of the two, *; .2f]" for r in ("0.5", "1", "1.5", "2")},
        "length of the vectors",
    ),
    "both-signs": Table(
        "hybrid/both-signs",
        {"1/4": "0.25", "1/2": "0.5", "1": "1"},
        {f"{m:,} features": f"[deviation *, {m} features: both signs over one; .2f]" for m in (256, 1024, 4096)},
        "standard deviation of an entry",
    ),
    "language-model": Table(
        "own/language-model",
        {"positive features": "positive, orthogonal, 1024 features", "bipolar hybrid": "bipolar hybrid, 1024 features"},
        {
            "total variation, length 1.7": "[length 1.7, *: total variation; .2f]",
            "negative estimates, length 1.7": "[length 1.7, *: negative; .0%]",
            "total variation, length 3.3": "[length 3.3, *: total variation; .2f]",
        },
    ),
    "road-times": Table(
        "own/road-times",
        _TIMES,
        {
            f"{score}, {what}": f"[{what} held out, *: {score}; {'.3f' if score == 'NLPD' else '.2f'}]"
            for what in ("times", "sensors")
            for score in ("RMSE", "CRPS", "NLPD")
        }
        | {"fit, CPU seconds": "[sensors held out, *: CPU seconds of the fit; .1f]"},
    ),
    "matching": Table(
        "own/matching",
        _MATCHED,
        {"inverse cosine": "[inverse cosine, *; .2g]", "random walk, $p = 3$": "[random walk, p = 3, *; .2g]"},
    ),
}
"""By name of the file."""


def tables(results: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each table.

    Raises:
        ValueError: A row or a column has no figure: a name has changed.
    """
    for name, table in TABLES.items():
        if table.key in results:
            yield name, _text(name, table, {value.name: value.ours for value in values_of(results[table.key])})


def _text(name: str, table: Table, values: Mapping[str, float]) -> str:
    cells = {
        label: [_filled(cell.replace("*", row), values) for cell in table.columns.values()]
        for label, row in table.rows.items()
    }
    if not all(map(any, cells.values())) or not all(map(any, zip(*cells.values(), strict=True))):
        raise ValueError(f"The table {name!r} names rows or columns that {table.key} does not have.")
    lines = [[table.corner, *table.columns], ["---"] * (1 + len(table.columns))]
    lines += [[label, *row] for label, row in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _filled(cell: str, values: Mapping[str, float]) -> str:
    """Return a cell with its figures; 1 if it compares a row with itself, and "" if a figure does not exist."""
    parts = re.findall(r"\[([^]]*); ([^];]*)\]", cell)
    if any(re.search(r", (.+): .* / \1(,|$)", name) for name, _ in parts):
        return "1"
    if not all(name in values for name, _ in parts):
        return ""
    return re.sub(r"\[([^]]*); ([^];]*)\]", lambda part: f"{values[part[1]]:{part[2]}}", cell)
