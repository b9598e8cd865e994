"""The section on the data of a table: the target, statistics of columns, and plots of the target against columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from rfgp.effects.variables import CATEGORY, DATE, NUMBER, Variable, in_own_units, is_of_logarithms
from rfgp.messages import counted
from rfgp.palette import COLORS
from rfgp.report import figures, words
from rfgp.report.effect_figures import axis_values
from rfgp.report.page import Block, Grid, Plot, Text
from rfgp.tables import Table

MAX_COLUMNS = 60
"""The maximum number of columns whose statistics are listed."""
_MAX_PLOTS, _ACROSS, _MAX_TICKS, _MANY_DAYS = 9, 3, 6, 90


def glance(table: Table, variables: Sequence[Variable], frame: Any, sizes: Mapping[str, float]) -> list[Block]:
    """Return the blocks on the data.

    Args:
        table: The table.
        variables: The variables of the table.
        frame: The dataframe of the variables.
        sizes: The sizes of their effects by name. Variables are in the order of these sizes.
    """
    table, is_log = in_own_units(table), is_of_logarithms(table)
    order = sorted(variables, key=lambda variable: -sizes[variable.name])
    count = min(_MAX_PLOTS, len(order))
    blocks: list[Block] = [
        Plot(figures.histogram(table.y, table.target), f"The target, {table.target}."),
        _statistics(table, order[:MAX_COLUMNS], frame),
        Plot(
            small_multiples(table, order[:count], frame, is_log=is_log),
            f"The target against {'its column' if count == 1 else f'the {count} columns with the largest effects'}"
            f"{words.shown(len(table.y), figures.MAX_POINTS)}{', on a logarithmic axis' * is_log}.",
            height=120 + 190 * -(-count // _ACROSS),
            wide=True,
        ),
    ]
    return [*blocks, *map(Text, _remarks(table, len(order)))]


def _remarks(table: Table, num_variables: int) -> list[str]:
    """Return sentences about omitted rows and columns."""
    remarks, num_left_out = [], table.num_rows - len(table.y)
    if num_left_out:
        left_out = f"{num_left_out:,} with missing values {'is' if num_left_out == 1 else 'are'} left out"
        remarks.append(f"{len(table.y):,} of {counted(table.num_rows, 'row')} are used; {left_out}.")
    if table.schema.missing == "mean":
        remarks.append(
            "Missing numbers and dates are replaced by the mean of their column over all rows, held-out rows included. "
            "Missing texts are a level of their own."
        )
    if num_variables > MAX_COLUMNS:
        remarks.append(f"{counted(num_variables - MAX_COLUMNS, 'column')} with smaller effects are not listed.")
    return remarks


def _statistics(table: Table, variables: Sequence[Variable], frame: Any) -> Block:
    """Return the statistics of the variables and the target."""
    rows = [words.statistics_row(variable.name, variable.values(frame), variable.role) for variable in variables]
    rows.append(words.statistics_row(table.target, table.y, NUMBER))
    has_levels = any(variable.role == CATEGORY for variable in variables)
    text = " The median of a category is its most frequent level." * has_levels
    return Grid(words.STATISTICS, rows, f"{counted(len(table.y), 'row')}.{text}", wide=len(rows) > 12 or has_levels)


def small_multiples(table: Table, variables: Sequence[Variable], frame: Any, *, is_log: bool = False) -> go.Figure:
    """Return plots of the target against variables, as points or as boxes of categories.

    Args:
        table: The table.
        variables: The variables.
        frame: The dataframe of the variables.
        is_log: Whether the axis of the target is logarithmic.
    """
    from plotly.subplots import make_subplots

    across = min(_ACROSS, len(variables))
    down = -(-len(variables) // across)
    cells: list[list[dict[str, Any] | None]] = [
        [{} if i * across + j < len(variables) else None for j in range(across)] for i in range(down)
    ]
    spacing = {"horizontal_spacing": 0.04, "vertical_spacing": 0.26 / down}
    grid = make_subplots(down, across, specs=cells, shared_yaxes=True, **spacing)
    rows = figures.thin(len(table.y))
    y = figures.short(table.y[rows])
    for i, variable in enumerate(variables):
        cell = {"row": 1 + i // across, "col": 1 + i % across}
        grid.add_trace(_trace(variable, variable.values(frame)[rows], y), **cell)
        grid.update_xaxes(title_text=figures.label(variable.name, 28), **_ticks(variable, frame), **cell)
    look = figures.figure_of([], "", "").layout
    grid.update_layout(template="none", font=look.font, margin=look.margin, showlegend=False, hovermode="closest")
    grid.update_xaxes(gridcolor="#e6eaee", zeroline=False, title_standoff=4, title_font_size=12)
    grid.update_yaxes(gridcolor="#e6eaee", zeroline=False, automargin=True)
    if is_log:
        grid.update_yaxes(figures.log_axis(table.y.tolist()))
    for i in range(down):
        grid.update_yaxes(title_text=figures.label(table.target, 28), row=1 + i, col=1)
    return grid


def _ticks(variable: Variable, frame: Any) -> dict[str, Any]:
    """Return the ticks of an axis of levels, without texts if there are many."""
    if variable.role == DATE:
        days = float(np.ptp(variable.values(frame)))
        return {"nticks": 3, "tickangle": 0, "tickformat": "%b<br>%Y" if days > _MANY_DAYS else "%b %d<br>%Y"}
    if variable.role != CATEGORY:
        return {"nticks": 5}
    names = np.unique([str(value) for value in variable.values(frame)])
    if len(names) > _MAX_TICKS:
        return {"tickvals": []}
    return {"tickvals": list(range(len(names))), "ticktext": [figures.label(name, 12) for name in names]}


def _trace(variable: Variable, values: Any, y: list[float]) -> Any:
    """Return the target y (n,) against the values (n,) of a variable."""
    if variable.role == CATEGORY:
        category_index = np.unique([str(value) for value in values], return_inverse=True)[1].tolist()
        return go.Box(x=category_index, y=y, marker={"color": COLORS[0], "size": 3}, line={"width": 1})
    marker = {"color": COLORS[0], "size": 3, "opacity": 0.35}
    return go.Scatter(x=axis_values(variable, values), y=y, mode="markers", marker=marker, hoverinfo="x+y")
