"""The plots of a report, in plotly, with colors of Okabe and Ito, viridis and cividis."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from rfgp import metrics
from rfgp.compare import Comparison
from rfgp.effects.effects import LEVELS, MAP, SCATTER, Effect, Scale
from rfgp.effects.variables import CATEGORY, DATE, Variable
from rfgp.fields import Field
from rfgp.inference.prediction import Prediction
from rfgp.models import Calibration, FitReport, SelectionReport
from rfgp.models.report import LOG_DENSITY
from rfgp.palette import COLOR_MAPS, COLORS, color_range, coverage_band, log_ticks, styles
from rfgp.report.page import plain
from rfgp.tables import Table

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_INK, _GREY = "#1b1f24", "#8c959f"
_DOTTED = {"color": _INK, "width": 1, "dash": "dot"}
_THIN: dict[str, Any] = {"width": 0, "thickness": 0.6, "color": _GREY}
"""The look of error bars of many points."""
MAX_POINTS, MAX_BARS, _MAX_RUG, _MAX_MARKS = 2000, 400, 400, 300
"""The maximum numbers of points, of points with bars, of data below a curve, and of data on a map."""
_BINS = 16
_ACROSS, _MAX_TICKS, _MANY_DAYS = 3, 6, 90


def figure_of(traces: Sequence[Any], x: str, y: str, **layout: Any) -> go.Figure:
    """Return a figure of traces in the style of reports, with titles of both axes.

    Examples:
        >>> figure_of([], "time", "level").layout.xaxis.title.text
        'time'
    """
    axis = {"gridcolor": "#e6eaee", "zeroline": False, "linecolor": _GREY, "ticks": "outside", "automargin": True}
    base: dict[str, Any] = {
        "template": "none",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": _INK},
        "margin": {"l": 64, "r": 16, "t": 28, "b": 52},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}},
        "xaxis": {**axis, "title": {"text": x}},
        "yaxis": {**axis, "title": {"text": y}},
        "hovermode": "closest",
    }
    figure = go.Figure(data=list(traces), layout=base)
    return figure.update_layout(**layout)


def label(text: object, width: int = 40) -> str:
    """Return text for plotly without markup and control characters, cut to a width.

    Examples:
        >>> label("a < b")
        'a &lt; b'
    """
    return html.escape(plain(text, width), quote=False)


def thin(count: int, most: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return at most `most` positions (k,) among `count`, evenly spread.

    Examples:
        >>> thin(100, most=3).tolist()
        [0, 49, 99]
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def short(values: ArrayLike) -> list[float]:
    """Return numbers (n,) rounded to six digits.

    Examples:
        >>> short([1 / 3])
        [0.333333]
    """
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64).reshape(-1)]


def scatter(x: Any, y: Any, mode: str = "markers", **look: Any) -> go.Scatter:
    """Return points or lines at x (n,) and y (n,).

    They are in the legend only if they have a name. Arrays are rounded by `short`, lists are not changed.

    Examples:
        >>> scatter(np.array([1.0, 2.0]), [0, 1]).x
        (1.0, 2.0)
    """
    known = {} if "name" in look else {"showlegend": False}
    x, y = (short(part) if isinstance(part, np.ndarray) else part for part in (x, y))
    return go.Scatter(x=x, y=y, mode=mode, **known, **look)


def band(x: list[Any], low: NDArray[np.float64], high: NDArray[np.float64], color: str, name: str) -> go.Scatter:
    """Return the area between low (n,) and high (n,) at x (n,).

    Examples:
        >>> band([0.0, 1.0], np.zeros(2), np.ones(2), "gray", "all").y
        (0.0, 0.0, 1.0, 1.0)
    """
    y = short(np.concatenate([low, high[::-1]]))
    look: dict[str, Any] = {"line": {"width": 0}, "hoverinfo": "skip", "name": name}
    return go.Scatter(x=[*x, *x[::-1]], y=y, fill="toself", fillcolor=color, **look)


def error_bars(above: ArrayLike, below: ArrayLike | None = None, **look: Any) -> dict[str, Any]:
    """Return error bars of lengths (n,) above and below points.

    If below is None, the bars are symmetric.

    Examples:
        >>> error_bars([1.0, 2.0])["array"]
        [1.0, 2.0]
    """
    sides = {} if below is None else {"symmetric": False, "arrayminus": short(below)}
    return {"type": "data", "array": short(above), **sides, **look}


def color_bar(name: str, **look: Any) -> dict[str, Any]:
    """Return a color bar with a title.

    Examples:
        >>> color_bar("height")["title"]["text"]
        'height'
    """
    return {"title": {"text": name, "side": "right"}, "thickness": 14, **look}


def histogram(values: NDArray[np.float64], name: str) -> go.Figure:
    """Return the histogram of values (n,)."""
    counts, edges = np.histogram(values, bins=min(60, max(8, round(2 * len(values) ** (1 / 3)))))
    width, middle = short(np.diff(edges)), short((edges[:-1] + edges[1:]) / 2)
    bars = go.Bar(x=middle, y=counts.tolist(), width=width, marker={"color": COLORS[0], "line": {"width": 0}})
    return figure_of([bars], label(name), "count", bargap=0, showlegend=False)


def calibration(
    y: NDArray[np.float64],
    prediction: Prediction,
    independent: int | None = None,
    left_out: Calibration | None = None,
) -> go.Figure:
    """Return the plot of the fraction of observations y (n,) inside central intervals of each level.

    The band is that of `independent` independent observations. If None, their number is n. The calibration of left-out
    training rows is a second curve.
    """
    count = len(y) if independent is None else independent
    levels = np.linspace(0.02, 0.98, 49)
    shares = metrics.interval_coverage(y, prediction, levels).numpy()
    expected = band(short(levels), *coverage_band(levels, count), "rgba(140,149,159,0.25)", "95 % band if calibrated")
    diagonal = scatter([0, 1], [0, 1], "lines", line={"color": _INK, "width": 1})
    ours = scatter(levels, shares, "lines", line={"color": COLORS[0]}, name="held-out data")
    look = {"line": {"color": COLORS[1], "dash": "dot"}, "name": "left-out training rows"}
    others = [] if left_out is None else [scatter(left_out.levels, left_out.coverage, "lines+markers", **look)]
    return figure_of([expected, diagonal, ours, *others], "level of the central interval", "share inside")


def residuals(y: NDArray[np.float64], prediction: Prediction) -> go.Figure:
    """Return the plot of standardized residuals of y (n,) against the predicted mean."""
    mean = np.asarray(prediction.observed().mean, dtype=np.float64)
    scores = metrics.standardized_residuals(y, prediction).numpy()
    rows = thin(len(mean))
    points = scatter(mean[rows], scores[rows], marker={"color": COLORS[0], "size": 4, "opacity": 0.5})
    is_gaussian = prediction.of_observations is None and prediction.scales is None
    name = "(observed - mean) / sd" if is_gaussian else "normal quantile of the observation"
    figure = figure_of([points], "predicted mean", name)
    for height in (-2, 0, 2):
        figure.add_hline(y=height, line={"color": _INK, "width": 1, "dash": "solid" if height == 0 else "dash"})
    return figure


def predicted(y: NDArray[np.float64], prediction: Prediction, *, is_log: bool = False) -> go.Figure:
    """Return the plot of observations y (n,) against the predicted mean, with bars of one predictive sd.

    If they are logarithms, their exponentials are drawn on logarithmic axes.
    """
    observed = prediction.observed()
    rows = thin(len(y), MAX_BARS)
    mean, sd = np.asarray(observed.mean)[rows], np.sqrt(np.asarray(observed.variance))[rows]
    y, middle, low, high = (np.exp(column) if is_log else column for column in (y[rows], mean, mean - sd, mean + sd))
    bars = error_bars(high - middle, middle - low, **_THIN)
    points = scatter(middle, y, error_x=bars, marker={"color": COLORS[0], "size": 4})
    name = "predicted median, with one sd of its logarithm" if is_log else "predicted mean ± sd"
    figure = figure_of([points, _diagonal(middle, y)], name, "observed")
    if is_log:
        figure.update_xaxes(log_axis(middle.tolist())).update_yaxes(log_axis(y.tolist()))
    return figure


def reliability(
    y: NDArray[np.float64],  # (n,)
    shares: NDArray[np.float64],  # (n,)
    bins: int = 10,
    design_effect: float = 1.0,
) -> go.Figure:
    """Return the plot of the fraction of ones among y (n,) against predicted probabilities (n,).

    Bins have equally many observations. Bars are 2 standard errors, for one independent observation in `design_effect`.
    """
    parts = [part for part in np.array_split(np.argsort(shares, kind="stable"), bins) if len(part)]
    x = np.array([shares[part].mean() for part in parts])
    fractions = np.array([y[part].mean() for part in parts])
    errors = np.array(
        [2 * np.sqrt(design_effect * max(p * (1 - p), 0.0) / len(part)) for p, part in zip(x, parts, strict=True)]
    )
    bars, ends = error_bars(errors, thickness=1, color=_GREY), np.array([0.0, 1.0])
    points = scatter(x, fractions, error_y=bars, marker={"color": COLORS[0], "size": 7})
    return figure_of([points, _diagonal(ends, ends)], "predicted probability", "share")


def rootogram(y: NDArray[np.float64], prediction: Prediction, most: int = 60) -> go.Figure:
    """Return the plot of square roots of observed and expected frequencies of counts y (n,).

    There are at most `most` counts or bins.
    """
    top = int(max(y.max(), 1))
    width = -(-(top + 1) // most)
    edges = np.arange(-1, top + width, width)
    below = np.stack([np.asarray(prediction.cdf(float(edge))) for edge in edges])
    expected = np.diff(below, axis=0).sum(axis=1)
    observed = np.histogram(y, bins=edges + 0.5)[0]
    x = edges[:-1] + (width + 1) / 2
    bars = go.Bar(x=short(x), y=short(np.sqrt(observed)), marker={"color": COLORS[0]}, name="observed")
    line = scatter(x, np.sqrt(expected), "lines+markers", line={"color": _INK}, name="expected")
    return figure_of([bars, line], "count", "square root of the frequency")


def _diagonal(a: NDArray[np.float64], b: NDArray[np.float64]) -> go.Scatter:
    ends = short([min(a.min(), b.min()), max(a.max(), b.max())])
    return scatter(ends, ends, "lines", line={"color": _INK, "width": 1})


def candidates(selection: SelectionReport) -> go.Figure:
    """Return the plot of the last scores of candidates and baselines, the best at the top."""
    scored = [(trial.name, trial.last) for trial in selection.trials if trial.last is not None]
    known = [*scored, *selection.baselines.items()]
    sign = 1 if selection.measure == LOG_DENSITY else -1
    known.sort(key=lambda pair: sign * pair[1].value)
    rows, values = list(range(len(known))), short([score.value for _, score in known])
    marker = {"size": 9, "color": [COLORS[int(name in selection.parts)] for name, _ in known]}
    points = scatter(values, rows, error_x=error_bars([2 * score.error for _, score in known]), marker=marker)
    ticks = {"tickvals": rows, "ticktext": [label(name, 44) for name, _ in known]}
    return figure_of([points], selection.measure, "").update_yaxes(**ticks)


def convergence(fit: FitReport) -> go.Figure:
    """Return the plot of the log marginal likelihood per row, plus log priors, by iteration."""
    lines, done, heights = [], 0, []
    stages = fit.traces()
    for i, (stage, trace) in enumerate(stages):
        heights.append([value / stage.rows for value in trace])
        color = {"color": COLORS[i % len(COLORS)], "dash": _DASHES[i // len(COLORS) % len(_DASHES)]}
        look: dict[str, Any] = {"line": color, "name": label(stage.name), "showlegend": len(stages) > 1}
        lines.append(
            scatter(
                list(range(done, done + len(trace))), short(heights[-1]), "lines+markers", marker={"size": 4}, **look
            )
        )
        done += stage.iterations
    return figure_of(lines, "iteration, of all stages", "log likelihood of a row (nats)", yaxis=_end_in_view(heights))


def _end_in_view(heights: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return a range of the axis that shows the differences at the ends of stages."""
    every = np.concatenate([np.asarray(part) for part in heights])
    low, top = np.quantile(every, 0.1), every.max()
    if every.min() > top - 3 * (top - low):
        return {}
    return {"range": [float(low - 0.5 * (top - low)), float(top + 0.1 * (top - low))]}


def by_size(comparison: Comparison, figure: str, name: str) -> go.Figure:
    """Return the plot of a score ("kl", "kernel_error") of each method against m, on log scales."""
    curves, sizes, traces = comparison.curves(figure), comparison.sizes, []
    for method, i in styles(curves).items():
        means, bars = curves[method]
        look = {
            "error_y": error_bars(bars),
            "marker": {"symbol": _SYMBOLS[i % 6], "size": 8},
            "line": {"color": COLORS[i], "dash": _DASHES[i % 6], "width": 1.5},
        }
        traces.append(scatter(sizes, means, "lines+markers", name=label(method), **look))
    axis = {"type": "log", "tickvals": sizes, "ticktext": [str(size) for size in sizes]}
    heights = [e for trace in traces for e in trace.y if e > 0]
    return figure_of(traces, f"{comparison.size_name}, m", name, xaxis=axis, yaxis=log_axis(heights))


def log_axis(heights: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis with written-out ticks.

    Examples:
        >>> log_axis([1.0, 100.0])["type"]
        'log'
    """
    if not heights:
        return {"type": "log"}
    ticks, (low, high) = log_ticks(heights)
    shown = {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    return {"type": "log", **shown, "range": [float(np.log10(low)), float(np.log10(high))]}


def against_exact(comparison: Comparison) -> go.Figure:
    """Return the plot of one draw's approximate against exact posterior means, with bars of one sd."""
    exact, ours = comparison.example.exact, comparison.example.approximate
    a, b = np.asarray(exact.mean), np.asarray(ours.mean)
    across, along = (error_bars(np.sqrt(prediction.variance), **_THIN) for prediction in (exact, ours))
    points = scatter(a, b, error_x=across, error_y=along, marker={"color": COLORS[0], "size": 4})
    return figure_of([points, _diagonal(a, b)], "exact posterior mean ± sd", "approximate posterior mean ± sd")


def mesh_view(field: Field, values: NDArray[np.float64], name: str, colors: str) -> go.Figure:
    """Return an interactive view of values (N,) on the mesh of a field."""
    vertices, faces = np.asarray(field.mesh.vertices), np.asarray(field.mesh.faces)
    low, high = color_range(values)
    surface = go.Mesh3d(
        **{axis: short(vertices[:, i]) for i, axis in enumerate("xyz")},
        **{corner: faces[:, i].tolist() for i, corner in enumerate("ijk")},
        intensity=short(values),
        intensitymode="cell" if field.on_faces else "vertex",
        colorscale=colors,
        cmin=low,
        cmax=high,
        colorbar=color_bar(label(name), len=0.8),
        flatshading=field.on_faces,
        lighting={"ambient": 0.8, "diffuse": 0.3, "specular": 0.0},
    )
    axis = {"visible": False}
    extent = np.ptp(vertices, axis=0)
    ratio = dict(zip("xyz", short(1.6 * extent / np.linalg.norm(extent)), strict=True))
    scene = {"xaxis": axis, "yaxis": axis, "zaxis": axis, "aspectmode": "manual", "aspectratio": ratio}
    scene |= {"dragmode": "orbit", "camera": {"eye": dict.fromkeys("xyz", distance_of_camera(vertices))}}
    return figure_of([surface], "", "", scene=scene, margin={"l": 0, "r": 0, "t": 8, "b": 0})


def distance_of_camera(vertices: NDArray[np.float64]) -> float:
    """Return the position of the camera on the diagonal from which all of a mesh (V, 3) is visible.

    The mesh is visible as a whole from each side, and as large as possible. The camera sees 45 degrees. Lengths are in
    units in which the diagonal of the bounding box is 1.6.
    """
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    radius = 1.6 * np.linalg.norm(vertices - (low + high) / 2, axis=1).max() / np.linalg.norm(high - low)
    return float(f"{1.1 * radius / np.sin(np.pi / 8) / np.sqrt(3):.4g}")


def road_view(
    field: Field,
    values: NDArray[np.float64],  # (N,)
    name: str,
    colors: str,
    along: NDArray[np.float64] | None = None,  # (S,)
) -> go.Figure:
    """Return a map of values of nodes, and of segments or the averages of their ends, with sensors as points."""
    from plotly.colors import sample_colorscale

    coordinates, segments = field.coordinates, field.segments()
    low, high = color_range(values)
    high = high if high > low else low + 1.0
    middle = np.array([(values[segment.source] + values[segment.target]) / 2 for segment in segments])
    middle = middle if along is None else along
    bins = np.clip(((middle - low) / (high - low) * _BINS).astype(np.int64), 0, _BINS - 1)
    shades = sample_colorscale(colors, [(i + 0.5) / _BINS for i in range(_BINS)])
    traces = [_lines([segments[i].shape for i in np.flatnonzero(bins == b)], shades[b]) for b in np.unique(bins)]
    observed = np.unique(field.graph.index(field.nodes))
    rest = np.setdiff1d(np.arange(len(values)), observed)
    scale = {"colorscale": colors, "cmin": low, "cmax": high}
    for nodes, size, width, kind in ((rest, 3, 0, "crossings"), (observed, 7, 1, "observed sensors")):
        marker = {**scale, "color": short(values[nodes]), "size": size, "line": {"width": width, "color": _INK}}
        marker |= {"colorbar": color_bar(label(name), len=0.8)} if size == 7 else {}
        text = [f"{label(field.labels[i])}: {values[i]:.4g}" for i in nodes]
        marker |= {"showscale": size == 7}
        at = coordinates[nodes]
        traces.append(scatter(at[:, 0], at[:, 1], marker=marker, text=text, hoverinfo="text", name=kind))
    figure = figure_of(traces, "longitude", "latitude", dragmode="pan", margin={"l": 64, "r": 8, "t": 28, "b": 48})
    figure.update_layout(legend={"y": -0.16, "yanchor": "top"})
    if field.roads is not None and field.roads.metric == "euclidean":
        return figure.update_xaxes(title_text="x").update_yaxes(title_text="y", scaleanchor="x")
    stretch = 1 / float(np.cos(np.radians(coordinates[:, 1].mean())))
    return figure.update_yaxes(scaleanchor="x", scaleratio=stretch)


def _lines(shapes: Sequence[NDArray[np.float64]], color: str) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for shape in shapes:
        x += [*(round(float(v), 6) for v in shape[:, 0]), None]
        y += [*(round(float(v), 6) for v in shape[:, 1]), None]
    return scatter(x, y, "lines", line={"color": color, "width": 3}, hoverinfo="skip")


# --- Effects, and the target against columns -------------------------------------------------------------------------


def effect_figures(effect: Effect, scale: Scale) -> list[go.Figure]:
    """Return the figures of an effect.

    A map has two figures, of the mean and the standard deviation.
    """
    if effect.shape in (MAP, SCATTER):
        deviation = "sd of its logarithm" if scale.is_factor else "standard deviation"
        return [
            _plane(effect, scale.shown(effect.mean), label(scale.name, 44), COLOR_MAPS["mean"]),
            _plane(effect, effect.std, deviation, COLOR_MAPS["sd"]),
        ]
    return [_levels(effect, scale) if effect.shape == LEVELS else _curve(effect, scale)]


def axis_values(variable: Variable, values: NDArray[Any]) -> list[Any]:
    """Return the values of a number or a date for an axis.

    Examples:
        >>> axis_values(Variable("day", DATE, "day", {}), np.array([0.0]))
        ['1970-01-01']
    """
    return variable.texts(values) if variable.role == DATE else short(values)


def _curve(effect: Effect, scale: Scale) -> go.Figure:
    (variable,), (values,), (data,) = effect.variables, effect.values, effect.data
    mean, low, high = effect.band(scale)
    x, kept = axis_values(variable, values), np.unique(np.asarray(data)[thin(len(data), _MAX_RUG)])
    area = band(x, low, high, "rgba(0,114,178,0.2)", "95 % band")
    line = scatter(x, mean, "lines", line={"color": COLORS[0]}, name="median" if scale.is_factor else "mean")
    marker = {"symbol": "line-ns-open", "size": 7, "color": "#57606a", "line": {"width": 1}}
    look: dict[str, Any] = {"marker": marker, "name": "data", "hoverinfo": "skip", "yaxis": "y2"}
    rug = scatter(axis_values(variable, kept), [0.015] * len(kept), **look)
    figure = figure_of([area, line, rug], label(variable.name, 34), label(scale.name, 44))
    figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
    return figure.add_hline(y=scale.no_effect, line=_DOTTED)


def _levels(effect: Effect, scale: Scale) -> go.Figure:
    mean, low, high = effect.band(scale)
    rows = list(range(len(mean)))  # names may be cut to the same text, and would share a place
    bars = error_bars(high - mean, mean - low, color=COLORS[0], thickness=1.5, width=3)
    points = scatter(mean, rows, error_x=bars, marker={"color": COLORS[0], "size": 8})
    names = [label(text, 24) for text in effect.variables[0].texts(effect.values[0])]
    figure = figure_of([points], label(scale.name, 44), "")
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[-0.7, len(rows) - 0.3])
    return figure.add_vline(x=scale.no_effect, line=_DOTTED)


def _plane(effect: Effect, values: NDArray[np.float64], name: str, colors: str) -> go.Figure:
    """Return a map over a grid with the data as dots, or the rows as colored points."""
    first, second = (axis_values(*pair) for pair in zip(effect.variables, effect.values, strict=True))
    titles = [label(variable.name, 34) for variable in effect.variables[:2]]
    if effect.shape == SCATTER:
        marker = {"color": short(values), "colorscale": colors, "size": 6, "colorbar": color_bar(name)}
        return figure_of([scatter(first, second, marker=marker)], *titles)
    look = {"colorscale": colors, "colorbar": color_bar(name), "zsmooth": "best"}
    heat = go.Heatmap(x=first, y=second, z=[short(row) for row in values], **look)
    kept = thin(len(effect.data[0]), _MAX_MARKS)
    x, y = (axis_values(variable, data[kept]) for variable, data in zip(effect.variables, effect.data, strict=True))
    marker = {"color": "white", "size": 3, "opacity": 0.7, "line": {"width": 0.5, "color": _INK}}
    return figure_of([heat, scatter(x, y, marker=marker, hoverinfo="skip")], *titles)


def small_multiples(table: Table, variables: Sequence[Variable], frame: Any, *, is_log: bool = False) -> go.Figure:
    """Return plots of the target against variables, as points or as boxes of categories."""
    from plotly.subplots import make_subplots

    across = min(_ACROSS, len(variables))
    down = -(-len(variables) // across)
    cells: list[list[dict[str, Any] | None]] = [
        [{} if i * across + j < len(variables) else None for j in range(across)] for i in range(down)
    ]
    spacing = {"horizontal_spacing": 0.04, "vertical_spacing": 0.26 / down}
    grid = make_subplots(down, across, specs=cells, shared_yaxes=True, **spacing)
    rows = thin(len(table.y))
    y = short(table.y[rows])
    for i, variable in enumerate(variables):
        cell = {"row": 1 + i // across, "col": 1 + i % across}
        grid.add_trace(_trace(variable, variable.values(frame)[rows], y), **cell)
        grid.update_xaxes(title_text=label(variable.name, 28), **_ticks(variable, frame), **cell)
    look = figure_of([], "", "").layout
    grid.update_layout(template="none", font=look.font, margin=look.margin, showlegend=False, hovermode="closest")
    grid.update_xaxes(gridcolor="#e6eaee", zeroline=False, title_standoff=4, title_font_size=12)
    grid.update_yaxes(gridcolor="#e6eaee", zeroline=False, automargin=True)
    if is_log:
        grid.update_yaxes(log_axis(table.y.tolist()))
    for i in range(down):
        grid.update_yaxes(title_text=label(table.target, 28), row=1 + i, col=1)
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
    return {"tickvals": list(range(len(names))), "ticktext": [label(name, 12) for name in names]}


def _trace(variable: Variable, values: Any, y: list[float]) -> Any:
    """Return the target y (n,) against the values (n,) of a variable."""
    if variable.role == CATEGORY:
        category_index = np.unique([str(value) for value in values], return_inverse=True)[1].tolist()
        return go.Box(x=category_index, y=y, marker={"color": COLORS[0], "size": 3}, line={"width": 1})
    marker = {"color": COLORS[0], "size": 3, "opacity": 0.35}
    return go.Scatter(x=axis_values(variable, values), y=y, mode="markers", marker=marker, hoverinfo="x+y")
