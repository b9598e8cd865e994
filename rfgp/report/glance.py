"""The section on the data of a table: the target, statistics of columns, and the target against them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from rfgp.counts import counted
from rfgp.palette import COLORS
from rfgp.report import figures, words
from rfgp.report.page import Block, Plot, Text
from rfgp.report.variables import CATEGORY, DATE, Variable, as_dates
from rfgp.tables import Table

MOST_COLUMNS = 60
"""The most columns whose statistics are listed."""
_MOST_PLOTS, _ACROSS = 9, 3


def glance(table: Table, variables: Sequence[Variable], frame: Any, sizes: Mapping[str, float]) -> list[Block]:
    """Return the blocks on the data.

    Args:
        table: The table.
        variables: Its variables.
        frame: The dataframe of them.
        sizes: The sizes of their effects by name, in whose order they are shown.
    """
    order = sorted(variables, key=lambda variable: -sizes[variable.name])
    count = min(_MOST_PLOTS, len(order))
    blocks: list[Block] = [
        Plot(figures.histogram(table.y, table.target), f"The target, {table.target}."),
        _statistics(table, order[:MOST_COLUMNS]),
        Plot(
            small_multiples(table, order[:count], frame),
            f"The target against {'its column' if count == 1 else f'the {count} columns with the largest effects'}"
            f"{words.shown(len(table.y), figures.MOST_POINTS)}.",
            height=120 + 190 * -(-count // _ACROSS),
            wide=True,
        ),
    ]
    return [*blocks, *map(Text, _remarks(table, len(order)))]


def _remarks(table: Table, num_variables: int) -> list[str]:
    """Return sentences about rows and columns that are missing."""
    found, gone = [], table.num_rows - len(table.y)
    if gone:
        left_out = f"{gone:,} with missing values {'is' if gone == 1 else 'are'} left out"
        found.append(f"{len(table.y):,} of {counted(table.num_rows, 'row')} are used; {left_out}.")
    if table.schema.missing == "mean":
        found.append("Missing inputs are replaced by the mean of their column over all rows, held-out rows included.")
    if num_variables > MOST_COLUMNS:
        found.append(f"{counted(num_variables - MOST_COLUMNS, 'column')} with smaller effects are not listed.")
    return found


def _statistics(table: Table, variables: Sequence[Variable]) -> Block:
    """Return the statistics of numbers, dates and the columns of zeros and ones of categories."""
    names = [*(name for one in variables for name in _encoded(one, table)), table.target]
    places = {name: place for place, name in enumerate(table.columns)}
    columns = [table.X[:, places[name]] for name in names[:-1]]
    dates = {name for one in variables if one.role == DATE for name in _encoded(one, table)}
    return words.statistics(names, np.column_stack([*columns, table.y]), dates)


def _encoded(variable: Variable, table: Table) -> list[str]:
    """Return the columns of the table that hold a variable."""
    own = variable.columns
    return [name for name in table.columns if name in own or name.startswith(f"{variable.name}=")]


def small_multiples(table: Table, variables: Sequence[Variable], frame: Any) -> go.Figure:
    """Draw the target against variables: points against numbers and dates, boxes for categories."""
    from plotly.subplots import make_subplots

    across = min(_ACROSS, len(variables))
    down = -(-len(variables) // across)
    grid = make_subplots(down, across, shared_yaxes=True, horizontal_spacing=0.04, vertical_spacing=0.26 / down)
    rows = figures.thin(len(table.y))
    y = figures.short(table.y[rows])
    for i, variable in enumerate(variables):
        place = {"row": 1 + i // across, "col": 1 + i % across}
        grid.add_trace(_trace(variable, variable.values(frame)[rows], y), **place)
        grid.update_xaxes(title_text=figures.label(variable.name, 28), **place)
    look = figures.figure_of([], "", "").layout
    grid.update_layout(template="none", font=look.font, margin=look.margin, showlegend=False, hovermode="closest")
    grid.update_xaxes(gridcolor="#e6eaee", zeroline=False, title_standoff=4, title_font_size=12, nticks=5)
    grid.update_yaxes(gridcolor="#e6eaee", zeroline=False, automargin=True)
    for i in range(down):
        grid.update_yaxes(title_text=figures.label(table.target, 28), row=1 + i, col=1)
    return grid


def _trace(variable: Variable, values: Any, y: list[float]) -> Any:
    """Return the target y (n,) against the values (n,) of a variable."""
    if variable.role == CATEGORY:
        names = [figures.label(value, 14) for value in values]
        return go.Box(x=names, y=y, marker={"color": COLORS[0], "size": 3}, line={"width": 1})
    x = as_dates(values) if variable.role == DATE else figures.short(values)
    marker = {"color": COLORS[0], "size": 3, "opacity": 0.35}
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, hoverinfo="x+y")
