"""What a report says of a choice: candidates and simple rules, and why one was taken."""

from collections.abc import Iterator
from typing import Any

from rfgp.models import Process
from rfgp.regression import Choice
from rfgp.regression.selection_report import DENSITY, Trial
from rfgp.report import figures
from rfgp.report.page import Block, Grid, Plot, Section, Text

_LEFT_OUT = "-"


def choice_of(model: Process[Any]) -> Choice | None:
    """Return what a model's last fit chose."""
    return None if model.fit_report is None else model.fit_report.selection


def sections(model: Process[Any]) -> list[Section]:
    """Return the section on what was chosen, if anything was."""
    choice = choice_of(model)
    return [] if choice is None else [Section("The choice", list(_blocks(choice)))]


def _blocks(choice: Choice) -> Iterator[Block]:
    yield Text(figures.plain(choice.reason, 400))
    if choice.num_validation:
        better = "more" if choice.measure == DENSITY else "less"
        yield Plot(
            figures.candidates(choice),
            f"Candidates that were measured: {choice.measure}, the {better} the better, over {choice.num_validation:,}, "
            f"{choice.validation}; two standard errors. Those of one table move together, so differences are told apart more "
            "finely than the bars show.",
        )
    header = ["candidate", "measured", "standard error", "rows", "behind", "predicted seconds", "MiB", "remark"]
    rows = [_row(trial, choice.share(number)) for number, trial in enumerate(choice.trials)]
    yield Grid(header, rows, _costs(choice))


def _row(trial: Trial, share: float) -> list[str]:
    last = trial.last
    cells = [_LEFT_OUT] * 4
    if last is not None:
        cells = [f"{last.value:.4g}", f"{last.error:.2g}", f"{last.rows:,}", f"{last.difference:.2g}"]
    name = figures.plain(trial.name, 80) + " (taken)" * (share == 1)
    remark = f"{share:.2f} of the average" if 0 < share < 1 else figures.plain(trial.status, 120)
    return [name, *cells, f"{trial.seconds:.3g}", f"{trial.memory / 2**20:,.0f}", remark]


def _costs(choice: Choice) -> str:
    said = f"Seconds of a fit to all rows are predicted, at {choice.rate:.2g} operations a second."
    if choice.time_limit:
        said += f" Allowed were {choice.time_limit:.4g} s and {choice.memory / 2**20:,.0f} MiB."
    if choice.seconds:
        said += f" Measuring took {choice.seconds:.1f} s ({choice.predicted:.3g} predicted), the fit after it "
        said += f"{choice.fit_seconds:.1f} s."
    return said
