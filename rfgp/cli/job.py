"""The job of `rfgp fit`, `rfgp mesh` and `rfgp traffic`: read, fit and score, write, and print.

A dry run selects instead, and prints the command that fits the best candidate.
"""

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from rfgp.cli.common import Input, check_outputs, console, print_json, say
from rfgp.cli.options import AsJson, Holdout, HoldoutBy, TestShare, WithData
from rfgp.cli.speech import printable
from rfgp.progress import Bar

MODEL, REPORT = "model.safetensors", "report.html"


class Result(NamedTuple):
    """The results of one fit: the scores for JSON, the last lines to print, and what is printed before them."""

    scores: Mapping[str, Any]
    words: str
    study: Any = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """How a model is fitted and scored, and what is written. Each command has its own help of the first three options.

    Subclasses are commands: they read data, and fit a model to the data of each target.
    """

    file: Path
    out: Path | None = None
    comparison: Annotated[bool | None, "--compare/--no-compare"] = None
    dry_run: bool = False
    test_share: TestShare = 0.1
    holdout: Holdout = "random"
    holdout_by: HoldoutBy = None
    with_data: WithData = False
    as_json: AsJson = False

    suffix: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    noun: ClassVar[str]

    @cached_property
    def source(self) -> Input:
        """The file, or the public data set."""
        return Input(self.file)

    @property
    def inputs(self) -> tuple[Path | None, ...]:
        """The files that are read, over which none is written."""
        return (self.file,)

    def check(self) -> None:
        """Check that options do not contradict each other, and the files that are read, before torch is loaded."""
        raise NotImplementedError

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the data of each target of a file."""
        raise NotImplementedError

    def selected(self, data: Any, report: Bar) -> tuple[Any, dict[str, str | None]]:
        """Return the selection of a model for data, and the options of the command that fits the best one."""
        raise NotImplementedError

    def fit(self, data: Any, folder: Path, report: Bar) -> Result:
        """Fit a model to a part of the data, score it, condition it on all, and write the files to a folder."""
        raise NotImplementedError

    def run(self) -> None:
        """Read, fit and write, and print the results. A dry run selects, and prints the selection."""
        inputs, folder = self.inputs, self.out or Path(f"{self.source.stem}-{self.suffix}")
        if not self.dry_run:
            check_outputs((folder / name for name in self.files), inputs)
        self.check()
        with Bar(not self.as_json) as report:
            report("Reading", 0, 0)
            parts = self.read(self.source.path(report))
            if self.dry_run:
                selection, added = self.selected(next(iter(parts.values())), report)
                print_selection(selection, typed_again("--dry-run", "--json", **added), self.as_json)
                return
            several = len(parts) > 1
            folders = {name: folder / part if several else folder for name, part in _folder_names(parts).items()}
            check_outputs((each / name for each in folders.values() for name in self.files), inputs)
            results = {name: self.fit(data, folders[name], report) for name, data in parts.items()}
        if self.as_json:
            scores = {name: result.scores for name, result in results.items()}
            print_json(scores if several else next(iter(scores.values())))
            return
        for result in results.values():
            if result.study is not None:
                print_study(result.study, self.noun)
            say(result.words)


def _folder_names(targets: Iterable[str]) -> dict[str, str]:
    """Return a name of a folder for each target, with other characters as _."""
    names: dict[str, str] = {}
    for target in targets:
        name = re.sub(r"[^\w.+-]", "_", target).lstrip(".") or "_"
        while name in names.values():
            name += "_"
        names[target] = name
    return names


def command_line() -> str:
    """Return the current command as a line for a shell.

    Examples:
        >>> command_line().startswith("rfgp")
        True
    """
    return " ".join(map(_quoted, ("rfgp", *sys.argv[1:])))


def _quoted(word: str) -> str:
    """Return a word quoted for a shell."""
    is_simple = "'" in word and word.isprintable() and not set(word) & set('"$`\\!')
    return f'"{word}"' if is_simple else shlex.quote(word)


def print_study(study: Any, noun: str) -> None:
    """Print the main scores of a study.

    Args:
        study: The study.
        noun: The noun of an observation, such as "row".
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from rfgp.report.page import sentence
    from rfgp.report.sections import cards, repeats

    shown = Table(title=Text(printable(study.title)), box=box.SIMPLE, show_header=False, pad_edge=False)
    for name, figure, remark in cards(study, noun):
        shown.add_row(name, Text(figure, style="bold"), Text(remark, style="dim"))
    console.print(shown)
    say(" ".join(filter(None, (repeats(study), sentence("convergence", fit=study.model.fit_report)))))
    for note in study.notes:
        say(note)


def typed_again(*dropped: str, **added: str | None) -> str:
    """Return the current command as a line for a shell, with other options.

    Args:
        *dropped: The flags to leave out, with their values.
        **added: The options to add, by name, instead of those of the command. If None, an option is left out.
    """
    gone, kept, skip = {*dropped, *(f"--{name}" for name in added)}, [], False
    for word in sys.argv[1:]:
        name = word.partition("=")[0]
        if not skip and name not in gone:
            kept.append(word)
        skip = not skip and name in gone and "=" not in word and name not in ("--dry-run", "--json")
    words = [word for name, value in added.items() if value is not None for word in (f"--{name}", value)]
    return " ".join(map(_quoted, ("rfgp", *kept, *words)))


def print_selection(selection: Any, command: str, as_json: bool) -> None:
    """Print a selection, and the command that fits the best candidate.

    Args:
        selection: The report on the selection.
        command: The command.
        as_json: Whether to print JSON.
    """
    if not as_json:
        if (baseline := selection.unbeaten_baseline) is not None:
            say(f"No candidate beat {baseline}. The inputs may not be informative.")
        for line in (selection.reason, *selection.table()):
            say(line)
        say("Seconds are those of a fit to all rows, as predicted for one core.")
        if selection.weights:
            say("The command selects again, since the best is an average.")
        say(f"Type: {command}")
        return
    trials = []
    for trial in selection.trials:
        last = {selection.measure.replace(" ", "_"): None, "standard_error": None, "rows": None}
        if trial.last is not None:
            last = dict(zip(last, (trial.last.value, trial.last.error, trial.last.rows), strict=True))
        costs = {"seconds": trial.seconds, "bytes": trial.memory, "status": trial.status}
        trials.append({"name": trial.name, "options": dict(trial.options), **last, **costs})
    content = {
        "best": selection.chosen.name,
        "weights": selection.parts,
        "reason": selection.reason,
        "candidates": trials,
        "baselines": {name: baseline.value for name, baseline in selection.baselines.items()},
    }
    print_json({**content, "command": command})
