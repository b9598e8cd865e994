"""The section on a selection: candidates with their scores, baselines, and the reason for the choice."""

from collections.abc import Iterator

from rfgp.gp import GP
from rfgp.models import SelectionReport
from rfgp.models.report import LOG_DENSITY, Trial
from rfgp.report import figures
from rfgp.report.page import Block, Grid, Plot, Section, Text

_MISSING = "-"
"""The cell of a candidate without a score."""


def sections(model: GP) -> list[Section]:
    """Return the section on the selection, if there was one.

    Args:
        model: The model.
    """
    selection = model.selection
    return [] if selection is None else [Section("Model selection", list(_blocks(selection)))]


def _blocks(selection: SelectionReport) -> Iterator[Block]:
    yield Text(figures.plain(selection.reason, 1200))
    if selection.num_validation:
        is_log_density = selection.measure == LOG_DENSITY
        unit = "rows" if is_log_density else "nodes"
        yield Plot(
            figures.candidates(selection),
            f"Scores of candidates and baselines: {selection.measure} over {selection.num_validation:,} {unit} "
            f"({selection.validation}). {'Larger' if is_log_density else 'Smaller'} is better. Bars are two standard "
            "errors. All candidates are scored on the same rows, so their differences are more certain than the bars.",
            height=140 + 26 * sum(trial.last is not None for trial in selection.trials),
            wide=True,
        )
    header = ["candidate", "score", "standard error", "rows", "difference", "predicted seconds", "MiB", "status"]
    rows = [_row(trial, selection.weight(number)) for number, trial in enumerate(selection.trials)]
    yield Grid(header, rows, _costs(selection), texts=(7,))


def _row(trial: Trial, weight: float) -> list[str]:
    last = trial.last
    cells = [_MISSING] * 4
    if last is not None:
        cells = [f"{last.value:.4g}", f"{last.error:.2g}", f"{last.rows:,}", f"{last.difference:.2g}"]
    name = figures.plain(trial.name, 80) + " (selected)" * (weight == 1)
    status = f"{weight:.2f} of the average" if 0 < weight < 1 else figures.plain(trial.status, 160)
    return [name, *cells, f"{trial.seconds:.3g}", f"{trial.memory / 2**20:,.0f}", status]


def _costs(selection: SelectionReport) -> str:
    words = "The difference is that of the best score of the round from this one."
    if selection.rate:
        words += f" Seconds of a fit to all rows are predicted at {selection.rate:.2g} operations a second."
    if selection.time_limit:
        words += f" The limits were {selection.time_limit:.4g} s and {selection.memory / 2**20:,.0f} MiB."
    if selection.seconds:
        words += (
            f" The selection took {selection.seconds:.1f} s ({selection.predicted:.3g} s predicted), the fit after "
        )
        words += f"it {selection.fit_seconds:.1f} s."
    return words
