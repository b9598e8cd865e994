"""The documentation's page of reproductions, and what README and docs quote, made of the files of results.

python -m benchmarks.page
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.lists import FACTS
from benchmarks.record import Value, claims, counts, read, values_of
from rfgp.counts import counted

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproductions.md"
PAPERS = {
    "couplings": "Variance-reducing couplings for random features (Reid et al., 2024)",
    "simplex": "Simplex random features (Reid et al., 2023)",
    "hybrid": "Hybrid random features (Choromanski et al., 2022)",
    "orthogonal": "Orthogonal random features (Yu et al., 2016)",
    "article": "Random Fourier features, an article",
    "own": "Figures of our own",
}
_INTRODUCTION = """# Reproductions

What the papers print, beside what this package finds; made by `python -m benchmarks.page` of the files in
`benchmarks/results`, which `make results` computes. "Apart" is the distance in standard errors, ours, the paper's where
it gives one, and that of rounding. A figure "agrees" within two of them and is "close" within three. Where a paper has
a plot without numbers, what its caption or text claims is tested, as "< 1", in many cases by the worst: it "holds" or
"fails" where ours is two standard errors on one side or the other ("apart" says how many), else it is "undecided".
Figures of our own that README and docs quote stand at the end; nothing is printed beside them.
Seconds are those of a machine that did other work beside; tables that share a computation have it with the first.
"""
_LISTS = """## What exists

Of each figure, whether its data, its protocol and its errors exist, by the paper and what is at hand, whatever a run
finds. What exists in part is filled by a reading of ours or by data of the same kind, as the figure's protocol tells.
Where one of the three is missing nothing is counted, here and in the rates of the papers; single values that cannot be
compared are not counted either.
"""
_MOST_DIGITS = 6
_END = "<!-- -->"
_QUOTED = re.compile(r"<!-- (?P<key>[\w-]+/[\w-]+): (?P<name>[^;]+?)(?:; (?P<form>[^ ]+))? -->(?P<text>[^<]*)<!-- -->")
"""A quoted figure: `<!-- couplings/table-1: concrete, RFF, PNC; .3f -->0.563<!-- -->`."""


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    parts = [_INTRODUCTION, *_lists(results)]
    for paper, title in PAPERS.items():
        own = {key: content for key, content in results.items() if content["paper"] == paper}
        if own:
            order = sorted(own.values(), key=_place)
            parts += [f"## {title}\n", _summary(order), *(_section(content) for content in order)]
    return "\n".join(parts).rstrip() + "\n"


def _lists(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what exists of each figure, with what is counted of it, and the rates by that."""
    known = {key: facts for key, facts in FACTS.items() if key in results}
    if not known:
        return
    yield _LISTS
    rows = ["| figure | data | protocol | errors | agree | claims hold, undecided, fail |", "|---|---|---|---|---|---|"]
    for key, facts in known.items():
        total, near, _ = counts(_counted(results[key]))
        said = claims(_counted(results[key]))
        agree, hold = f"{near} of {total}" if total else "", ", ".join(map(str, said)) if sum(said) else ""
        rows.append(f"| {key} | {' | '.join(facts)} | {agree} | {hold} |")
    yield "\n".join(rows) + "\n"
    for words, wanted in (("Where all three exist", True), ("Where one or more exist in part", False)):
        chosen = [results[key] for key, facts in known.items() if facts.is_counted and facts.is_whole == wanted]
        values = [value for content in chosen for value in _counted(content)]
        (total, near, _), (held, open_, failed) = counts(values), claims(values)
        yield (
            f"{words} ({counted(len(chosen), 'figure')}) {near} of {total} numbers agree; of {held + open_ + failed} "
            f"claims {held} hold, {open_} are undecided, {failed} fail.\n"
        )


def _counted(content: Mapping[str, Any]) -> list[Value]:
    """Return the values of a figure that rates count: none where its data, its protocol or its errors are missing."""
    facts = FACTS.get(f"{content['paper']}/{content['figure']}")
    return values_of(content) if facts is None or facts.is_counted else []


def _place(content: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return what sorts tables before figures before all else, each by its number."""
    kind, _, number = content["figure"].rpartition("-")
    rank = {"table": 0, "figure": 1}.get(kind, 2)
    return rank, int(number) if rank < 2 else 0, content["figure"]


def _summary(own: Sequence[Mapping[str, Any]]) -> str:
    """Say how many printed numbers agree, of tables and of all else, and how many claims hold."""
    sentences = []
    for is_table, what in ((True, "printed number"), (False, "other value")):
        chosen = [content for content in own if content["figure"].startswith("table") == is_table]
        total, near, close = counts(value for content in chosen for value in _counted(content))
        if total:
            within = f"{near} lie within two standard errors and {close} within three"
            where = "in tables" if is_table else "(of plots, formulas, and counts of cases)"
            sentences.append(f"Of {counted(total, what)} {where} that can be compared {within}.")
    held, open_, failed = claims(value for content in own for value in _counted(content))
    if held + open_ + failed:
        said = counted(held + open_ + failed, "claim")
        rest = f"{held} hold by two standard errors, {open_} are undecided, {failed} fail"
        sentences.append(f"Of {said} that something is smaller or larger {rest}.")
    seconds = sum(content["seconds"] for content in own)
    return " ".join([*sentences, f"All of it took {max(1, round(seconds / 60))} min."]) + "\n"


def _section(content: Mapping[str, Any]) -> str:
    made = content["made_with"]
    parts = [
        f"### {content['figure'].replace('-', ' ').capitalize()}: {content['title']}\n",
        content["protocol"] + "\n",
    ]
    if content["impossible"]:
        parts.append(f"Cannot be run here: {content['impossible']}\n")
    if content["missing"]:
        parts.append("What is missing: " + "; ".join(content["missing"]) + ".\n")
    if values := values_of(content):
        rows = ["| of | printed | ours | apart | |", "|---|---|---|---|---|"]
        for value in values:
            far = value.support if value.distance is None else value.distance
            apart = "" if far is None or math.isinf(far) else f"{far:.1f}"
            why = f"{value.verdict}: {value.why}" if value.why else value.verdict
            rows.append(f"| {value.name} | {value.printed} | {shown(value.ours, value.error)} | {apart} | {why} |")
        parts.append("\n".join(rows) + "\n")
    parts += [note + "\n" for note in content["notes"]]
    parts.append(f"{content['seconds']:.0f} s on {made['machine']}, commit {made['commit']}.\n")
    return "\n".join(parts)


def shown(value: float, error: float) -> str:
    """Return a number with two digits of its standard error in brackets, or four digits where it is exact."""
    if not error > 0:
        return f"{value:.4g}"
    digits = max(0, 1 - int(f"{error:e}".rpartition("e")[2]))
    if digits > _MOST_DIGITS or abs(value) >= 10.0**_MOST_DIGITS:
        return f"{value:.3g} ± {error:.2g}"
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def texts() -> Iterator[Path]:
    """Yield the files that may quote results."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("**/*.md"))


def quoted(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a text with every figure that it quotes from the results as these have it.

    Raises:
        KeyError: there is no such result.
        ValueError: a quote has an end, but no beginning that tells what it is of.
    """
    if text.count(_END) != len(_QUOTED.findall(text)):
        raise ValueError(f"{text.count(_END)} quotes end, and {len(_QUOTED.findall(text))} can be read.")

    def renew(found: re.Match[str]) -> str:
        values = {value.name: value.ours for value in values_of(results[found["key"]])}
        form = found["form"]
        mark = f"<!-- {found['key']}: {found['name']}{f'; {form}' if form else ''} -->"
        return f"{mark}{values[found['name']]:{form or '.3g'}}{_END}"

    return _QUOTED.sub(renew, text)


def main() -> None:
    results = read()
    PAGE.write_text(page(results), encoding="utf-8")
    for path in texts():
        text = path.read_text(encoding="utf-8")
        if (renewed := quoted(text, results)) != text:
            path.write_text(renewed, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: quotes renewed")


if __name__ == "__main__":
    main()
