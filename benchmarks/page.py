"""Write the pages of results from the files of results.

The documentation calls `generate` when it is built: the tables of all figures of the papers and of other packages go to
docs/generated, which is not committed. The command writes the committed texts: docs/reproductions.md, which has the
verdicts, and the figures that README and docs quote.

    python -m benchmarks.page
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import rivals, tables
from benchmarks.papers.lists import FACTS, NOT_RUN
from benchmarks.record import Value, read, values_of
from benchmarks.rivals.scores import read as read_scores
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
Results = Mapping[str, Mapping[str, Any]]

_INTRODUCTION = """# Reproductions

We computed the tables and figures of five papers again and compared each number. `make results` computes them, which
takes about {hours:.0f} hours on two cores. `make results QUICK=1` takes a tenth of that.

- A number *agrees* if it is within two standard errors of the printed one, is *close* within three and otherwise
  *differs*. Standard errors combine ours, the paper's if it gives one, and rounding.
- A plot has no numbers. There we test the *claims* of its caption or text, such as "smaller than 1". A claim *holds* or
  *fails* if our value is two standard errors on one side or the other. Otherwise it is *open*.
- *Not compared*: the data, the protocol or the errors are missing, or the value is a variant that the paper does not
  have. The reasons stand beside the values.
"""
_KINDS = {
    "agrees": "agree",
    "close": "close",
    "differs": "differ",
    "holds": "claims hold",
    "undecided": "open",
    "fails": "fail",
    "not compared": "not compared",
}
"""Headings of verdicts."""
_PAGES = """## All figures

{links}

```{{toctree}}
:hidden:

{names}
```
"""
_FACTS = """The table says whether the data, the protocol and the errors of a figure exist, in the paper or here. If one
exists in part, we use our own reading of the paper or data of the same kind, as the protocol says.
"""
_MAX_DIGITS = 6
_END = "<!-- -->"
_QUOTED = re.compile(r"<!-- (?P<key>[\w-]+/[\w-]+): (?P<name>[^;]+?)(?:; (?P<form>[^ ]+))? -->(?P<text>[^<]*)<!-- -->")
"""A quoted figure: `<!-- couplings/table-1: concrete, RFF, PNC; .3f -->0.563<!-- -->`."""


def page(results: Results) -> str:
    """Return the page of verdicts."""
    hours = sum(content["seconds"] for content in results.values()) / 3600
    shown = [paper for paper in PAPERS if any(content["paper"] == paper for content in results.values())]
    names = [_name(paper) for paper in shown]
    links = [f"- [{PAPERS[paper]}](generated/{name}.md)" for paper, name in zip(shown, names, strict=True)]
    parts = [_INTRODUCTION.format(hours=max(1, hours)), *_verdicts(results), *_differences(results)]
    parts.append(_PAGES.format(links="\n".join(links), names="\n".join(f"generated/{name}" for name in names)))
    return "\n".join(parts)


def _verdicts(results: Results) -> Iterator[str]:
    """Yield a table of the verdicts of each paper, and of the figures whose data, protocol and errors exist."""
    yield "## Verdicts\n"
    rows = [f"| paper | {' | '.join(_KINDS.values())} |", "|---" * (1 + len(_KINDS)) + "|"]
    chosen = {title: [key for key in results if key.startswith(f"{paper}/")] for paper, title in PAPERS.items()}
    chosen.pop(PAPERS["own"])
    whole = [key for key in results if key in FACTS and FACTS[key].is_whole]
    chosen[f"{counted(len(whole), 'figure')} whose data, protocol and errors all exist"] = whole
    for title, keys in chosen.items():
        found = Counter(_verdict(results[key], value) for key in keys for value in values_of(results[key]))
        if keys:
            rows.append(f"| {title} | {' | '.join(str(found[kind]) for kind in _KINDS)} |")
    yield "\n".join(rows) + "\n"


def _verdict(content: Mapping[str, Any], value: Value) -> str:
    """Return the verdict, but "not compared" if the data, the protocol or the errors of the figure are missing."""
    facts = FACTS.get(f"{content['paper']}/{content['figure']}")
    return value.verdict if facts is None or facts.is_counted or not value.printed else "not compared"


def _differences(results: Results) -> Iterator[str]:
    """Yield a table of the values that differ and of the claims that fail, by paper, with the reasons."""
    rows = ["| figure | value | printed | ours | reason |", "|---|---|---|---|---|"]
    for key, content in results.items():
        for value in values_of(content):
            if _verdict(content, value) in ("differs", "fails"):
                ours = shown(value.ours, value.error)
                rows.append(f"| {key} | {value.name} | {value.printed} | {ours} | {value.why or 'not known'} |")
    yield "## Values that differ and claims that fail\n"
    yield "\n".join(rows) + "\n"
    listed = "; ".join(f"{key} ({what})" for key, what in NOT_RUN.items())
    yield f"Not run here, for want of data and accelerators: {listed}.\n"
    yield "[Differences](differences.md) explains the errors in the papers.\n"


def _name(paper: str) -> str:
    """Return the name of the generated page of a paper."""
    return "own-figures" if paper == "own" else f"reproductions-{paper}"


def full(paper: str, results: Results) -> str:
    """Return the page of all figures of a paper."""
    own = {key: content for key, content in results.items() if content["paper"] == paper}
    order = sorted(own.values(), key=_place)
    minutes = max(1, round(sum(content["seconds"] for content in order) / 60))
    parts = [f"# {PAPERS[paper]}\n", f"Computing time: {minutes} min.\n"]
    parts += [*_facts(own), *(_section(content) for content in order)]
    return "\n".join(parts).rstrip() + "\n"


def generate(folder: Path) -> None:
    """Write the pages of the papers, and the tables that other pages include, to folder and folder/tables."""
    results, scores = read(), read_scores()
    texts = {f"{_name(paper)}.md": full(paper, results) for paper in PAPERS}
    texts |= {f"tables/{name}.md": text for name, text in (*tables.tables(results), *rivals.tables(scores))}
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
            path.write_text(text, encoding="utf-8")


def _facts(results: Results) -> Iterator[str]:
    """Yield a table of data, protocols and errors of the figures of a paper."""
    known = {key: FACTS[key] for key in results if key in FACTS}
    if known:
        yield "## Data, protocols and errors\n"
        yield _FACTS
        rows = [f"| {key.partition('/')[2]} | {' | '.join(facts)} |" for key, facts in known.items()]
        yield "\n".join(["| figure | data | protocol | errors |", "|---|---|---|---|", *rows]) + "\n"


def _place(content: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return a sorting key: tables, then figures, then others, each by number."""
    kind, _, number = content["figure"].rpartition("-")
    rank = {"table": 0, "figure": 1}.get(kind, 2)
    return rank, int(number) if rank < 2 else 0, content["figure"]


def _section(content: Mapping[str, Any]) -> str:
    made = content["made_with"]
    parts = [
        f"## {content['figure'].replace('-', ' ').capitalize()}: {content['title']}\n",
        content["protocol"] + "\n",
    ]
    if content["missing"]:
        parts.append("Missing: " + "; ".join(content["missing"]) + ".\n")
    if values := values_of(content):
        if any(value.printed for value in values):
            rows = ["| value | printed | ours | distance | verdict |", "|---|---|---|---|---|"]
            rows += [_line(content, value) for value in values]
        else:
            rows = ["| value | ours |", "|---|---|"]
            rows += [f"| {value.name} | {shown(value.ours, value.error)} |" for value in values]
        parts.append("\n".join(rows) + "\n")
    parts += [note + "\n" for note in content["notes"]]
    parts.append(f"{content['seconds']:.0f} s on {made['machine']}, commit {made['commit']}.\n")
    return "\n".join(parts)


def _line(content: Mapping[str, Any], value: Value) -> str:
    far = value.support if value.distance is None else value.distance
    apart = "" if far is None or math.isinf(far) else f"{far:.1f}"
    verdict = _verdict(content, value) if value.printed else ""
    why = f"{verdict}: {value.why}" if value.why else verdict
    return f"| {value.name} | {value.printed} | {shown(value.ours, value.error)} | {apart} | {why} |"


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
    yield from sorted(path for path in (ROOT / "docs").glob("**/*.md") if "generated" not in path.parts)


def quoted(text: str, results: Results) -> str:
    """Return a text with all quoted figures replaced by those of the results.

    Raises:
        KeyError: There is no such result.
        ValueError: A quote has an end, but no readable beginning.
    """
    if text.count(_END) != len(_QUOTED.findall(text)):
        raise ValueError(f"{text.count(_END)} quotes end, and {len(_QUOTED.findall(text))} can be read.")

    def renew(found: re.Match[str]) -> str:
        values = {value.name: value.ours for value in values_of(results[found["key"]])}
        value = values[" ".join(found["name"].split())]  # a name may go over lines
        return f"{found[0][: found.start('text') - found.start()]}{value:{found['form'] or '.3g'}}{_END}"

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
