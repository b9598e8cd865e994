"""Write docs/reproductions.md, and the figures that README and docs quote, from the files of results.

python -m benchmarks.page
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.lists import FACTS
from benchmarks.record import Value, claims, counts, read, values_of
from rfgp.messages import counted

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

This page compares the figures of the papers with the results of this package. `make results` computes the results in
`benchmarks/results`, and `python -m benchmarks.page` writes this page from them.

- The distance is in standard errors. These combine our error, the paper's if it gives one, and that of rounding.
- A figure "agrees" within two standard errors and is "close" within three.
- If a paper has a plot without numbers, we test the claims of its caption or text, such as "< 1". Many are tested by
  the worst of several cases. A claim "holds" or "fails" if our value is two standard errors on one side or the other.
  Otherwise it is "undecided". The distance is then the number of standard errors.
- Our own figures, which README and docs quote, are at the end. They have no printed values.
- Seconds were measured on a machine with other work. Tables that share a computation have its seconds with the first.
"""
_LISTS = """## Data, protocol and errors of each figure

The table says whether the data, the protocol and the errors of a figure exist, in the paper or here, whatever the
result. If one exists in part, we use our own reading of the paper or data of the same kind. The protocol of the figure
says so. If one of the three is missing, the figure does not count in this table or in the rates of the papers. The same
holds for single values that cannot be compared.
"""
_MAX_DIGITS = 6
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
    """Yield the table of data, protocols and errors, and the rates of agreement."""
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
    for words, wanted in (("All three exist", True), ("One or more exist in part", False)):
        chosen = [results[key] for key, facts in known.items() if facts.is_counted and facts.is_whole == wanted]
        values = [value for content in chosen for value in _counted(content)]
        (total, near, _), (held, open_, failed) = counts(values), claims(values)
        yield (
            f"{words} ({counted(len(chosen), 'figure')}): {near} of {total} numbers agree. "
            f"Claims: {held} hold, {open_} are undecided, {failed} fail.\n"
        )


def _counted(content: Mapping[str, Any]) -> list[Value]:
    """Return the values that rates count: none if the data, the protocol or the errors are missing."""
    facts = FACTS.get(f"{content['paper']}/{content['figure']}")
    return values_of(content) if facts is None or facts.is_counted else []


def _place(content: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return a sorting key: tables, then figures, then others, each by number."""
    kind, _, number = content["figure"].rpartition("-")
    rank = {"table": 0, "figure": 1}.get(kind, 2)
    return rank, int(number) if rank < 2 else 0, content["figure"]


def _summary(own: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence each on printed numbers in tables, on other values, and on claims."""
    sentences = []
    for is_table, what in ((True, "printed numbers"), (False, "other values")):
        chosen = [content for content in own if content["figure"].startswith("table") == is_table]
        total, near, close = counts(value for content in chosen for value in _counted(content))
        if total:
            where = "in tables" if is_table else "(plots, formulas and counts of cases)"
            sentences.append(
                f"{near} of {total} comparable {what} {where} lie within two standard errors, and {close} within three."
            )
    held, open_, failed = claims(value for content in own for value in _counted(content))
    if held + open_ + failed:
        rest = f"{held} hold by two standard errors, {open_} are undecided and {failed} fail"
        sentences.append(f"Claims that something is smaller or larger: {rest}.")
    seconds = sum(content["seconds"] for content in own)
    return " ".join([*sentences, f"Computing time: {max(1, round(seconds / 60))} min."]) + "\n"


def _section(content: Mapping[str, Any]) -> str:
    made = content["made_with"]
    parts = [
        f"### {content['figure'].replace('-', ' ').capitalize()}: {content['title']}\n",
        content["protocol"] + "\n",
    ]
    if content["impossible"]:
        parts.append(f"Cannot be run here: {content['impossible']}\n")
    if content["missing"]:
        parts.append("Missing: " + "; ".join(content["missing"]) + ".\n")
    if values := values_of(content):
        rows = ["| value | printed | ours | distance | verdict |", "|---|---|---|---|---|"]
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
    """Return a number with its standard error to two digits, or four digits if it is exact."""
    if not error > 0:
        return f"{value:.4g}"
    digits = max(0, 1 - int(f"{error:e}".rpartition("e")[2]))
    if digits > _MAX_DIGITS or abs(value) >= 10.0**_MAX_DIGITS:
        return f"{value:.3g} ± {error:.2g}"
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def texts() -> Iterator[Path]:
    """Yield the files that may quote results."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("**/*.md"))


def quoted(text: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a text with all quoted figures replaced by those of the results.

    Raises:
        KeyError: There is no such result.
        ValueError: A quote has an end, but no readable beginning.
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
