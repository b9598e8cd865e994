"""What the commands share: consoles, progress, messages, and inputs by path or by name."""

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from rfgp.progress import Bar, Report

console = Console()
error_console = Console(stderr=True)


def progress(visible: bool = True) -> Bar:
    """Return a bar for the error stream, to be used by `with`; elsewhere than on a terminal nothing is written."""
    return Bar(visible, lines=False)


def fail(message: str, code: int = 1) -> NoReturn:
    """Print one message on the error stream and stop."""
    error_console.print(f"Error: {as_flags(_printable(message))}", style="red", markup=False, highlight=False)
    sys.exit(code)


def show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one line on the error stream."""
    text = f"{category.__name__}: {_printable(str(message))}"
    error_console.print(text, style="yellow", markup=False, highlight=False)


def _printable(text: str) -> str:
    """Return text without characters that steer the terminal, wherever they come from."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def as_flags(message: str) -> str:
    """Return a message of the library with its Python arguments as options of the command line."""
    named = re.sub(r"\b(categories|dates|missing|decimal|comment|encoding)=([\"'])(.*?)\2", r"--\1 \3", message)
    named = re.sub(r"\bdrop=([\"'])(.*?)\1", r"--drop \1\2\1", named)
    named = re.sub(r"\bdrop=(\d+)", r"--drop \1", named)
    named = named.replace("add them to missing_marks", "name them in --missing-mark")
    named = named.replace("name the column in as_categories", "name the column in --as-category")
    return re.sub(r"\bmetric=([\"'])(.*?)\1", r"--metric \2", named)


def say(text: str, *, as_json: bool = False) -> None:
    """Print a line for people: on the error stream where standard output is for programs."""
    (error_console if as_json else console).print(_printable(text), markup=False, highlight=False, soft_wrap=True)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(content, indent=1, allow_nan=False, default=str))


def resolve(name: Path, report: Report | None = None) -> Path:
    """Return the path of a file, or of a public data set of that name."""
    from rfgp.datasets import CATALOG, fetch

    if name.exists() or str(name) not in CATALOG:
        return name
    return fetch(str(name), progress=report)


def open_table(name: Path, target: str | None, options: Mapping[str, Any], report: Report | None = None) -> Any:
    """Return the table in a file, or of a public data set of that name, whose own options yours are added to."""
    from rfgp.tables import read_table

    return read_table(resolve(name, report), target, **table_options(name, options))


def table_options(name: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `read_table`; for a public data set with those that its file needs."""
    from rfgp.datasets import CATALOG

    entry = None if name.exists() else CATALOG.get(str(name))
    if entry is None or entry.kind not in ("table", "classification"):
        return dict(options)
    needed = entry.table_options
    merged = {**needed, **options}
    if options.get("categories", "error") == "error":
        merged["categories"] = needed["categories"]
    return merged | {name: (*needed[name], *options.get(name, ())) for name in ("drop", "as_categories")}


def stem(file: Path) -> str:
    """Return a file's name without its endings."""
    return Path(file.name.removesuffix(".gz")).stem


def command_line() -> str:
    """Return the command that runs, as one would type it."""
    return shlex.join(["rfgp", *sys.argv[1:]])


def print_study(study: Any, noun: str) -> None:
    """Print the figures of a study that one wants to see first; `noun` is what the data are."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from rfgp.report.words import cards, convergence

    shown = Table(title=Text(_printable(study.title)), box=box.SIMPLE, show_header=False, pad_edge=False)
    for name, figure, remark in cards(study, noun):
        shown.add_row(name, Text(figure, style="bold"), Text(remark, style="dim"))
    console.print(shown)
    say(convergence(study.model.fit_report))
