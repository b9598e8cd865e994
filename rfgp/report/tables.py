"""The report on a table."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rfgp.counts import counted
from rfgp.regression import FeatureOptions, InducingOptions, KernelOptions
from rfgp.report import choices, figures, words
from rfgp.report.comparing import TableModel, coupling_label
from rfgp.report.page import Block, Grid, Plot, Section, Text, render
from rfgp.report.study import Study
from rfgp.tables import Table

_MOST_COLUMNS = 60


def table_report(
    study: Study, table: Table, *, settings: Mapping[str, object] | None = None, command: str | None = None
) -> str:
    """Return the report on a table as one HTML page.

    Args:
        study: From `study_table`.
        table: The same table.
        settings: What to list under "How it was made".
        command: The command that made it, to list there.
    """
    model = study.model
    assert isinstance(model, TableModel)
    found = column_relevance(model, table)
    order = np.argsort(-found, kind="stable")
    features = _num_features(model)
    columns = counted(len(table.columns), "column")
    lead = (
        f"A Gaussian process for {table.target} from {columns}, through {_features(model, features)}, "
        f"fitted on {counted(len(study.train), 'row')} and judged on {counted(len(study.test), 'other')}."
    )
    memory = _memory(model, features, len(study.train))
    sections = [
        Section("The data at a glance", _glance(table, [int(i) for i in order])),
        *choices.sections(model),
        Section("The fit", [*words.diagnostics(study), *_relevance(model, table, found)]),
        words.accuracy(study),
        words.cost(study, _a_row(model, features), memory),
        words.making(study, settings or {}, command),
    ]
    return render(study.title, lead, words.cards(study, "rows"), sections)


def _num_features(model: TableModel) -> int:
    """Return F, 0 where there are no features."""
    return model.regression.prior().num_features


def _chosen(model: TableModel) -> KernelOptions:
    """Return the options that a fit has chosen."""
    assert isinstance(model.options, KernelOptions)
    return model.options


def _a_row(model: TableModel, count: int) -> str:
    options = _chosen(model)
    if options.features == "exact":
        return "the kernel, between all rows"
    near = f"{counted(options.num_neighbors, 'neighbour')}" if options.local is not None else ""
    return " and ".join(part for part in (f"{count} per row" if count else "", near) if part)


def _memory(model: TableModel, count: int, rows: int) -> float:
    """Return the bytes of the features of rows, of their neighbours, or of the kernel between them."""
    options = _chosen(model)
    if options.features == "exact":
        return 8.0 * rows**2
    near = options.num_neighbors if options.local is not None else 0
    return 8.0 * rows * (count + near)


def _features(model: TableModel, count: int) -> str:
    options = _chosen(model)
    near = f"({options.local}, {counted(options.num_neighbors, 'neighbour')})"
    if options.features == "exact":
        return "the exact kernel" + (f" and that of a local process ({options.local})" if options.has_both else "")
    if options.features is None:
        return f"a local process alone {near}"
    if isinstance(options, InducingOptions):
        left = {None: "", "fitc": ", what they miss as noise", "vfe": ", a lower bound of the likelihood"}
        rest = " and neighbours that take up what they leave" if options.has_residual else left[options.diagonal]
        return f"{counted(count, 'feature')} of inducing points ({options.inducing}){rest}"
    assert isinstance(options, FeatureOptions)
    beside = f" and a local process {near}" if options.has_both else ""
    return f"{counted(count, 'random feature')} ({coupling_label(options.coupling)} frequencies){beside}"


def column_relevance(model: TableModel, table: Table) -> NDArray[np.float64]:
    """Return each column's standard deviation over its lengthscale, (d,): 0 where it has no effect.

    For two terms it is the root of the mean square, weighted by their variances.
    """
    squares, variances = np.zeros(len(table.columns)), 0.0
    for term in model.family.terms:
        lengthscale, variance = (_number(model, f"{term.name}.{name}") for name in ("lengthscale", "outputscale"))
        squares, variances = squares + variance * lengthscale**-2.0, variances + float(variance)
    return np.asarray(table.X.std(axis=0, ddof=1) * np.sqrt(squares / variances))


def _number(model: TableModel, name: str) -> NDArray[np.float64]:
    return np.asarray(model.hyperparameters.value(name).detach().double().cpu().numpy())


def _glance(table: Table, order: list[int]) -> list[Block]:
    names, every = [*table.columns, table.target], np.column_stack([table.X, table.y])
    shown = [*order[:_MOST_COLUMNS], len(names) - 1]
    blocks: list[Block] = [
        Plot(figures.histogram(table.y, table.target), f"The target, {table.target}."),
        words.statistics([names[i] for i in shown], every[:, shown]),
        Plot(
            figures.columns(table, order),
            f"The target against its {min(9, len(order))} most relevant columns, most relevant first"
            f"{words.shown(len(table.y), figures.MOST_POINTS)}.",
            height=120 + 180 * -(-min(9, len(order)) // 3),
            wide=True,
        ),
    ]
    if len(table.y) < table.num_rows:
        gone = table.num_rows - len(table.y)
        those = f"{gone:,} with missing values {'is' if gone == 1 else 'are'}"
        blocks.append(Text(f"{len(table.y):,} of {counted(table.num_rows, 'row')}; {those} left out."))
    if table.schema.missing == "mean":
        filled = "Missing inputs were replaced by their column's mean over all rows, the held-out ones included."
        blocks.append(Text(filled))
    if len(order) > _MOST_COLUMNS:
        blocks.append(Text(f"{len(order) - _MOST_COLUMNS} less relevant columns are not listed."))
    return blocks


def _relevance(model: TableModel, table: Table, found: NDArray[np.float64]) -> list[Block]:
    names = [f"{term.name}.lengthscale" for term in model.family.terms]
    if model.hyperparameters.values.raw[names[0]].ndim == 0:
        return [Text("All columns share one lengthscale, in their standard deviations, so none is more relevant.")]
    order = np.argsort(-found, kind="stable")[:_MOST_COLUMNS]
    scales = [_number(model, name) for name in names]
    of_both = " (over both terms, weighted by their variances)" * (len(names) > 1)
    rows = [[figures.plain(table.columns[i]), *(words.number(s[i]) for s in (found, *scales))] for i in order]
    return [
        Plot(
            figures.relevance(table.columns, found),
            f"Relevance: a column's standard deviation over its lengthscale{of_both}. The function bends faster along "
            "relevant columns; near 0 it is flat or a straight line.",
        ),
        Grid(
            ["column", "relevance", *(names if len(names) > 1 else ["lengthscale"])],
            rows,
            "Lengthscales in the columns' own units.",
            wide=False,
        ),
    ]
