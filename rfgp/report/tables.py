"""The report on a table."""

from collections.abc import Mapping

from rfgp.effects.effects import effect_sizes
from rfgp.effects.variables import input_frame, variables_of
from rfgp.gp import GP
from rfgp.messages import counted
from rfgp.report import figures, making, noise, selection, terms, words
from rfgp.report.glance import glance
from rfgp.report.page import Section, render
from rfgp.report.study import Study
from rfgp.tables import Table

_MAX_NAMED = 4
"""The maximum number of terms that the first paragraph names."""


def table_report(
    study: Study, table: Table, *, settings: Mapping[str, object] | None = None, command: str | None = None
) -> str:
    """Return the report on a table as one HTML page.

    Args:
        study: The result of `study_table`.
        table: The table of the study.
        settings: Settings by name to list under "How it was made". If None, there are none.
        command: The command that made the report, to list there. If None, there is none.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.report import study_table, table_report
        >>> from rfgp.tables import Table
        >>> table = Table(np.arange(60.0)[:, None], np.sin(np.arange(60.0) / 9), ("t",), "y")
        >>> study = study_table(table, rfgp.GP(k.RBF("t"), seed=0), compare=False)
        >>> table_report(study, table).startswith("<!doctype html>")
        True
    """
    model = study.model
    assert isinstance(model, GP)
    frame = input_frame(table, model)
    variables = variables_of(table, model, frame)
    sections = [
        Section("The data at a glance", glance(table, variables, frame, effect_sizes(model, table))),
        *selection.sections(model),
        *noise.sections(model),
        terms.section(model, table),
        Section("The fit", words.diagnostics(study)),
        words.accuracy(study),
        making.cost(study, _costs(model)),
        making.making(study, settings or {}, command),
    ]
    return render(study.title, _lead(study, table, model, len(variables)), words.cards(study, "rows"), sections)


def _lead(study: Study, table: Table, model: GP, num_variables: int) -> str:
    """Return the first paragraph: the model, and the numbers of rows."""
    if model.members:
        kind = f"An average of {counted(len(model.members), 'Gaussian process', 'Gaussian processes')}"
    else:
        kind = "A Gaussian process"
    return (
        f"{kind} for {table.target} from {counted(num_variables, 'column')}, {_terms(model)}. It was fitted to "
        f"{counted(len(study.train), 'row')} and evaluated on {counted(len(study.test), 'held-out row')}."
    )


def _terms(model: GP) -> str:
    """Return a description of the terms and their approximations."""
    known = {figures.plain(name): type(term.approximation).__name__ for name, term in model.terms.items()}
    shown = [f"{name} ({approximation})" for name, approximation in list(known.items())[:_MAX_NAMED]]
    if len(known) > _MAX_NAMED:
        shown.append(counted(len(known) - _MAX_NAMED, "other"))
    words_of = ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1]
    return f"with the {'term' if len(known) == 1 else 'terms'} {words_of}"


def _costs(model: GP) -> list[tuple[str, str]]:
    """Return the names and values of the costs of terms."""
    terms_of = model.terms.items()
    return [
        (f"term {figures.plain(name)}", f"{term.cost.note}; {words.mebibytes(term.cost.memory)}")
        for name, term in terms_of
    ]
