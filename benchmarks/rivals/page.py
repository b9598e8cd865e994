"""The tables of docs/rivals.md."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.rivals.races import RACES, is_ours, name_of
from benchmarks.rivals.scores import PACKAGES, Score, comparisons
from rfgp.messages import counted

Results = Mapping[str, tuple[list[Score], dict[str, str]]]


def tables(results: Results) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of the tables that the page includes."""
    for name, lines in (("machines", _machines), ("losses", _losses), ("verdicts", _verdicts)):
        yield f"rivals-{name}", "\n".join(lines(results))
    for name, (scores, _) in results.items():
        yield f"rivals-{name}", "\n".join(_scores(name, scores))


def _machines(results: Results) -> Iterator[str]:
    seen = {f"{made['machine']}, Python {made['python']}, torch {made['torch']}": made for _, made in results.values()}
    versions: dict[str, list[str]] = {
        package: sorted({made[package] for _, made in results.values() if package in made}) for package in PACKAGES
    }
    yield "Machine: " + "; ".join(seen) + ".\n"
    yield "Packages: " + ", ".join(f"{name} {' and '.join(each)}" for name, each in versions.items() if each) + ".\n"


def _losses(results: Results) -> Iterator[str]:
    losses = [
        comparison
        for name, (scores, _) in results.items()
        for comparison in comparisons(scores, RACES[name].ours)
        if comparison.verdict == "loss"
    ]
    rows = ["| data | package | NLPD worse by | seconds, ours | seconds, theirs |", "|---|---|---|---|---|"]
    for loss in sorted(losses, key=lambda comparison: comparison.mean_difference):
        seconds = " | ".join(map(_short, loss.seconds))
        rows.append(f"| {loss.dataset} | {name_of(loss.racer)} | {-loss.mean_difference:.3f} | {seconds} |")
    yield "\n".join(rows) + "\n" if losses else "No comparison was lost.\n"


def _verdicts(results: Results) -> Iterator[str]:
    head = "| comparison | package | wins | ties | losses | no result | median of their seconds / ours |"
    rows = [head, "|---|---|---|---|---|---|---|"]
    for name, (scores, _) in results.items():
        compared = list(comparisons(scores, RACES[name].ours))
        for racer in dict.fromkeys(s.racer for s in scores if not is_ours(s.racer)):
            of_racer = [comparison for comparison in compared if comparison.racer == racer]
            verdicts = [comparison.verdict for comparison in of_racer]
            failed = {s.dataset for s in scores if s.racer == racer} - {c.dataset for c in of_racer}
            ratio = _short(float(np.median([c.seconds[1] / c.seconds[0] for c in of_racer]))) if of_racer else ""
            numbers = " | ".join(str(verdicts.count(each)) for each in ("win", "tie", "loss"))
            rows.append(f"| {RACES[name].title} | {name_of(racer)} | {numbers} | {len(failed)} | {ratio} |")
    yield "\n".join(rows) + "\n"


def _scores(name: str, scores: list[Score]) -> Iterator[str]:
    race = RACES[name]
    shown = [s for s in scores if s.racer not in race.budgets]
    repeats = sorted(set(Counter((s.dataset, s.racer) for s in shown).values()))
    yield f"Repeats: {' to '.join(map(str, dict.fromkeys((repeats[0], repeats[-1]))))}.\n"
    titles = {"nlpd": "NLPD", "coverage": "Coverage of the 95 % interval", "error": race.error, "seconds": race.clock}
    for figure, title in titles.items():
        if not all(math.isnan(getattr(s, figure)) for s in shown):
            yield f"{title[0].upper()}{title[1:]}:\n"
            yield _table(shown, figure)
    failures = {(s.dataset, s.racer, s.failed) for s in scores if s.failed}
    if failures:
        listed = "; ".join(f"{name_of(racer)} on {dataset} ({why})" for dataset, racer, why in sorted(failures))
        yield f"No result ({counted(len(failures), 'case')}): {listed}.\n"


def _table(scores: Sequence[Score], figure: str) -> str:
    racers = sorted(dict.fromkeys(s.racer for s in scores), key=lambda racer: not is_ours(racer))
    rows = ["| data | rows | " + " | ".join(map(name_of, racers)) + " |", "|---|---|" + "---|" * len(racers)]
    for dataset in dict.fromkeys(s.dataset for s in scores):
        cells = []
        for racer in racers:
            values = [getattr(s, figure) for s in scores if (s.dataset, s.racer) == (dataset, racer) and not s.failed]
            cells.append(_cell([value for value in values if not math.isnan(value)], figure))
        most = max(s.rows for s in scores if s.dataset == dataset)
        rows.append(f"| {dataset} | {most:,} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _cell(values: Sequence[float], figure: str) -> str:
    if not values:
        return ""
    mean = float(np.mean(values))
    if figure == "seconds":
        return _short(mean)
    spread = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 and figure == "nlpd" else ""
    return f"{mean:.3f}{spread}"


def _short(value: float) -> str:
    """Return two significant digits, without an exponent; "" if it is not known."""
    if math.isnan(value):
        return ""
    digits = max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{digits}f}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"
