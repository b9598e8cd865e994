"""The plots of effects of variables, in plotly."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from rfgp.effects.effects import LEVELS, MAP, SCATTER, Effect, Scale
from rfgp.effects.variables import DATE, Variable, as_dates
from rfgp.palette import COLOR_MAPS, COLORS
from rfgp.report import figures

_Z = 1.959964
"""Standard deviations of half a 95 % interval."""
_BAND = "rgba(0,114,178,0.2)"
_MAX_RUG, _MAX_MARKS = 400, 300


def effect_figures(effect: Effect, scale: Scale) -> list[go.Figure]:
    """Return the figures of an effect.

    A map has two figures, of the mean and the standard deviation.

    Args:
        effect: The effect.
        scale: The scale of the effect.
    """
    if effect.shape in (MAP, SCATTER):
        draw = _map if effect.shape == MAP else _scatter
        deviation = "sd of its logarithm" if scale.is_factor else "standard deviation"
        return [
            draw(effect, scale.shown(effect.mean), _name(scale), COLOR_MAPS["mean"]),
            draw(effect, effect.std, deviation, COLOR_MAPS["sd"]),
        ]
    return [_levels(effect, scale) if effect.shape == LEVELS else _curve(effect, scale)]


def axis_values(variable: Variable, values: NDArray[Any]) -> list[Any]:
    """Return the values of a number or a date for an axis.

    Args:
        variable: The variable.
        values: Its values (n,).

    Examples:
        >>> axis_values(Variable("day", DATE, "day", {}), np.array([0.0]))
        ['1970-01-01']
    """
    return list(as_dates(values)) if variable.role == DATE else figures.short(values)


def _name(scale: Scale) -> str:
    return figures.label(scale.name, 44)


def _title(effect: Effect, index: int = 0) -> str:
    return figures.label(effect.variables[index].name, 34)


def _curve(effect: Effect, scale: Scale) -> go.Figure:
    (variable,), (values,), (data,) = effect.variables, effect.values, effect.data
    low, high = (scale.shown(effect.mean + side * _Z * effect.std) for side in (-1, 1))
    x = axis_values(variable, values)
    band = figures.band(x, low, high, _BAND, "95 % band")
    name = "median" if scale.is_factor else "mean"
    line = figures.scatter(x, scale.shown(effect.mean), "lines", line={"color": COLORS[0]}, name=name)
    kept = np.unique(np.asarray(data)[figures.thin(len(data), _MAX_RUG)])
    marker = {"symbol": "line-ns-open", "size": 7, "color": "#57606a", "line": {"width": 1}}
    height = [0.015] * len(kept)
    look: dict[str, Any] = {"marker": marker, "name": "data", "hoverinfo": "skip"}
    rug = figures.scatter(axis_values(variable, kept), height, yaxis="y2", **look)
    figure = figures.figure_of([band, line, rug], _title(effect), _name(scale))
    figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
    return _with_zero(figure, scale, vertical=False)


def _levels(effect: Effect, scale: Scale) -> go.Figure:
    (values,), mean = effect.values, scale.shown(effect.mean)
    low, high = (scale.shown(effect.mean + side * _Z * effect.std) for side in (-1, 1))
    rows = list(range(len(mean)))  # names may be cut to the same text, and would share a place
    bars = figures.error_bars(high - mean, mean - low, color=COLORS[0], thickness=1.5, width=3)
    points = figures.scatter(mean, rows, error_x=bars, marker={"color": COLORS[0], "size": 8})
    names = [figures.label(_level(effect.variables[0], value), 24) for value in values]
    ticks = {"tickvals": rows, "ticktext": names, "range": [-0.7, len(rows) - 0.3]}
    figure = figures.figure_of([points], _name(scale), "")
    figure.update_yaxes(**ticks)
    return _with_zero(figure, scale, vertical=True)


def _level(variable: Variable, value: Any) -> str:
    """Return the text of a level."""
    if variable.role == DATE:
        return as_dates([value])[0]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_zero(figure: go.Figure, scale: Scale, *, vertical: bool) -> go.Figure:
    """Return a figure with a line at the value of no effect."""
    line, position = {"color": "#1b1f24", "width": 1, "dash": "dot"}, 1.0 if scale.is_factor else 0.0
    return figure.add_vline(x=position, line=line) if vertical else figure.add_hline(y=position, line=line)


def _map(effect: Effect, values: NDArray[np.float64], name: str, colors: str) -> go.Figure:
    first, second = (axis_values(*pair) for pair in zip(effect.variables, effect.values, strict=True))
    look = {"colorscale": colors, "colorbar": figures.color_bar(name), "zsmooth": "best"}
    heat = go.Heatmap(x=first, y=second, z=[figures.short(row) for row in values], **look)
    kept = figures.thin(len(effect.data[0]), _MAX_MARKS)
    x, y = (axis_values(variable, data[kept]) for variable, data in zip(effect.variables, effect.data, strict=True))
    marker = {"color": "white", "size": 3, "opacity": 0.7, "line": {"width": 0.5, "color": "#1b1f24"}}
    marks = figures.scatter(x, y, marker=marker, hoverinfo="skip")
    return figures.figure_of([heat, marks], _title(effect), _title(effect, 1))


def _scatter(effect: Effect, values: NDArray[np.float64], name: str, colors: str) -> go.Figure:
    x, y = (axis_values(*pair) for pair in zip(effect.variables, effect.values, strict=True))
    marker = {"color": figures.short(values), "colorscale": colors, "size": 6, "colorbar": figures.color_bar(name)}
    points = figures.scatter(x, y, marker=marker)
    return figures.figure_of([points], _title(effect), _title(effect, 1))
