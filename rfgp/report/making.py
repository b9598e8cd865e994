"""The sections of a report on costs and on reproduction."""

import datetime
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from rfgp.effects.variables import columns_of
from rfgp.gp import GP
from rfgp.messages import counted
from rfgp.report import figures
from rfgp.report.page import Grid, Section
from rfgp.report.study import Study
from rfgp.report.words import convergence, in_groups, number, repeats

_MAX_ENTRIES = 60
"""The maximum number of entries of a hyperparameter that are listed."""
_VALUE, _COMMAND = 300, 2000
"""The maximum number of characters of a setting, and of the command."""


def hyperparameters(model: GP) -> Grid:
    """Return the hyperparameters as a table, in the user's units.

    Args:
        model: The fitted model.
    """
    rows = [row for name in model.hyperparameters.names for row in _entries(model, name)]
    likelihood = model.spec.options.likelihood
    if not model.spec.is_gaussian:
        caption = "Hyperparameters of the latent function and of the likelihood. An outputscale is a variance."
        return Grid(
            ["hyperparameter", "value"], [["likelihood", figures.plain(repr(likelihood), _VALUE)], *rows], caption
        )
    noise = float(model.hyperparameters.noise.detach().reshape(-1)[0])
    rows.append(["noise, as a standard deviation", number(math.sqrt(noise))])
    caption = "Hyperparameters in the units of the data. An outputscale and the noise are variances."
    members = len(model.members) if isinstance(model, GP) else 0
    if members:
        caption += f" They are those of the member with the largest weight, of {counted(members, 'member')}."
    return Grid(["hyperparameter", "value"], rows, caption)


def _entries(model: GP, name: str) -> Iterator[list[str]]:
    """Yield the rows of a hyperparameter, one for each of its columns."""
    value = model.hyperparameters.value(name).detach().double().cpu()
    columns = columns_of(model, name)
    if value.ndim == 0:
        yield [figures.plain(name, 60), number(float(value))]
    elif value.numel() != len(columns):
        yield [figures.plain(name, 60), counted(value.numel(), "value")]
    else:
        for column, entry in list(zip(columns, value.reshape(-1).tolist(), strict=True))[:_MAX_ENTRIES]:
            of_column = f", {figures.plain(column)}" if len(columns) > 1 else ""
            yield [f"{figures.plain(name, 60)}{of_column}", number(entry)]
        if len(columns) > _MAX_ENTRIES:
            yield [figures.plain(name, 60), f"{counted(len(columns) - _MAX_ENTRIES, 'further value')}"]


def cost(study: Study, rows_of_model: Sequence[tuple[str, str]]) -> Section:
    """Return the section on costs.

    Args:
        study: The study.
        rows_of_model: The names and values of the costs of the model.
    """
    rows = [[f"seconds to {step}", f"{seconds:.2f}"] for step, seconds in study.seconds.items()]
    if study.comparison is not None:
        rows.append(["seconds of the exact process, without a fit", f"{study.comparison.exact[0].seconds:.2f}"])
    rows += [list(pair) for pair in rows_of_model]
    caption = "Seconds were measured while this report was made. Memory is predicted from the sizes."
    return Section("Cost", [Grid(["item", "cost"], rows, caption)])


def making(study: Study, settings: Mapping[str, object], command: str | None) -> Section:
    """Return the section on how the report was made.

    Args:
        study: The study.
        settings: The settings by name.
        command: The command that made the report. If None, none is listed.
    """
    rows = [[name, figures.plain(value, _VALUE)] for name, value in {**settings, **study.reproduction_settings}.items()]
    fit = study.model.fit_report
    rows += [
        ["training part", f"{len(study.train):,}"],
        [f"held-out part, {_split(study)}", f"{len(study.test):,}{in_groups(study)}"],
        ["fit", "none" if fit is None else convergence(fit)],
        ["rfgp", version("rfgp")],
        ["Python", platform.python_version()],
        ["date", datetime.date.today().isoformat()],
    ]
    if study.num_repeated:
        rows.append(["copies", repeats(study)])
    if command is not None:
        rows.append(["command", figures.plain(command, _COMMAND)])
    grid = Grid(["setting", "value"], rows, "The settings with which the report can be made again.", texts=(1,))
    return Section("How it was made", [hyperparameters(study.model), grid])


def _split(study: Study) -> str:
    """Return a sentence about the split."""
    if study.holdout == "last":
        return "the last in their order"
    return f"at random, by {figures.plain(study.split_by)}" if study.split_by else "at random"
