"""Every picture of reports and of `rfgp.plotting`, described once.

A figure is a dict of traces ("data") and a "layout" in the vocabulary of plotly.js, which draws it in a report. The
matplotlib drawer of `rfgp.plotting` reads the same dict. Numbers are arrays, which the page rounds to six digits.

First come the parts of figures, then those of a fit, of a comparison, of effects, of fields, and of a table.
"""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp import metrics
from rfgp.compare import Comparison
from rfgp.effects.effects import LEVELS, MAP, SCATTER, Effect, Scale
from rfgp.effects.variables import CATEGORY, DATE, Variable
from rfgp.fields import Field
from rfgp.inference.prediction import Prediction
from rfgp.messages import plain
from rfgp.models import FitReport, SelectionReport, Variogram
from rfgp.models.report import LOG_DENSITY
from rfgp.palette import COLOR_MAPS, COLORS, color_range, coverage_band, log_ticks, styles
from rfgp.tables import Table

Figure = dict[str, Any]
Trace = dict[str, Any]

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_INK, _GREY = "#1b1f24", "#8c959f"
_INK_LINE = {"color": _INK, "width": 1}
_THIN = {"width": 0, "thickness": 0.6, "color": _GREY}
"""The look of error bars of many points."""
_AXIS = {"gridcolor": "#e6eaee", "zeroline": False, "linecolor": _GREY, "ticks": "outside", "automargin": True}
_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"size": 12}}
_LOOK = {
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": _INK},
    "margin": {"l": 64, "r": 16, "t": 28, "b": 52},
    "paper_bgcolor": "white",
    "plot_bgcolor": "white",
    "legend": _LEGEND,
    "hovermode": "closest",
}
MAX_POINTS, MAX_BARS, _MAX_RUG, _MAX_MARKS = 2000, 400, 400, 300
"""The maximum numbers of points, of points with bars, of data below a curve, and of data on a map."""
_BINS = 16
"""The number of colors of road segments, each of which is a trace."""
_ACROSS, _MAX_TICKS, _MANY_DAYS = 3, 6, 90
"""The plots in a row of small multiples, the levels with names, and the days beyond which ticks are months."""


def figure_of(
    traces: Sequence[Trace], x: str, y: str, *, xaxis: Any = None, yaxis: Any = None, **layout: Any
) -> Figure:
    """Return a figure of traces in the style of reports, with titles of both axes.

    Args:
        traces: The traces.
        x: The title of the horizontal axis.
        y: The title of the vertical axis.
        xaxis: Further options of the horizontal axis. If None, there are none.
        yaxis: Further options of the vertical axis. If None, there are none.
        **layout: Further options of the layout.

    Examples:
        >>> figure_of([], "time", "level")["layout"]["xaxis"]["title"]
        {'text': 'time'}
    """
    axes = {
        name: {**_AXIS, "title": {"text": title}, **(options or {})}
        for name, title, options in (("xaxis", x, xaxis), ("yaxis", y, yaxis))
    }
    return {"data": list(traces), "layout": {**_LOOK, **axes, **layout}}


def label(text: object, width: int = 40) -> str:
    """Return text without markup and control characters, cut to a width.

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


def scatter(x: Any, y: Any, mode: str = "markers", **look: Any) -> Trace:
    """Return points or lines at x (n,) and y (n,), which are in the legend only if they have a name.

    Examples:
        >>> scatter([1.0, 2.0], [0, 1])["showlegend"]
        False
    """
    known = {} if "name" in look else {"showlegend": False}
    return {"type": "scatter", "x": x, "y": y, "mode": mode, **known, **look}


def band(x: Any, low: Any, high: Any, name: str, *, color: str = COLORS[0], opacity: float = 0.2) -> Trace:
    """Return the area between low (n,) and high (n,) at x (n,).

    Examples:
        >>> band(np.arange(2.0), np.zeros(2), np.ones(2), "all")["y"].tolist()
        [0.0, 0.0, 1.0, 1.0]
    """
    ends = [*x, *x[::-1]] if isinstance(x, list) else np.concatenate([x, x[::-1]])
    area = {"fill": "toself", "fillcolor": color, "opacity": opacity, "line": {"width": 0}, "hoverinfo": "skip"}
    return scatter(ends, np.concatenate([low, high[::-1]]), "lines", name=name, **area)


def error_bars(above: Any, below: Any = None, **look: Any) -> dict[str, Any]:
    """Return error bars of lengths (n,) above and below points, symmetric if below is None.

    Examples:
        >>> error_bars([1.0, 2.0], color="gray")["array"]
        [1.0, 2.0]
    """
    sides = {} if below is None else {"symmetric": False, "arrayminus": below}
    return {"type": "data", "array": above, **sides, **look}


def log_axis(heights: Any) -> dict[str, Any]:
    """Return a logarithmic axis with written-out ticks around the positive ones of some values (n,).

    Examples:
        >>> log_axis([1.0, 100.0])["type"]
        'log'
    """
    positive = [float(height) for height in heights if height > 0]
    if not positive:  # all errors are 0
        return {"type": "log"}
    ticks, ends = log_ticks(positive)
    return {**_written(ticks, [f"{tick:g}" for tick in ticks]), "type": "log", "range": np.log10(ends).tolist()}


def _written(values: Sequence[float], texts: Sequence[str]) -> dict[str, Any]:
    return {"tickvals": list(values), "ticktext": list(texts)}


def _color_bar(name: str, **look: Any) -> dict[str, Any]:
    return {"title": {"text": name, "side": "right"}, "thickness": 14, **look}


def _rule(at: float, along: str = "x", dash: str = "solid") -> dict[str, Any]:
    """Return the line across the picture at a height, or at a position if it is along "y"."""
    other = "y" if along == "x" else "x"
    place = {f"{along}ref": f"{along} domain", f"{along}0": 0, f"{along}1": 1}
    return {
        "type": "line",
        **place,
        f"{other}ref": other,
        f"{other}0": at,
        f"{other}1": at,
        "line": {**_INK_LINE, "dash": dash},
    }


def _diagonal(*values: NDArray[np.float64]) -> Trace:
    ends = [min(float(part.min()) for part in values), max(float(part.max()) for part in values)]
    return scatter(ends, ends, "lines", line=_INK_LINE)


# --- The data and the fit --------------------------------------------------------------------------------------------


def histogram(values: NDArray[np.float64], name: str) -> Figure:
    """Return the histogram of values (n,)."""
    counts, edges = np.histogram(values, bins=min(60, max(8, round(2 * len(values) ** (1 / 3)))))
    look = {"width": np.diff(edges), "marker": {"color": COLORS[0], "line": {"width": 0}}}
    bars = {"type": "bar", "x": (edges[:-1] + edges[1:]) / 2, "y": counts.tolist(), **look}
    return figure_of([bars], label(name), "count", bargap=0, showlegend=False)


def calibration(curves: Sequence[tuple[str, Any, Any]], count: int) -> Figure:
    """Return the fraction of observations inside central intervals against their level.

    Args:
        curves: The name, the levels (L,) and the fractions (L,) of each curve.
        count: The number of independent observations, for the band of a calibrated prediction.
    """
    grid = np.linspace(0.02, 0.98, 49)
    expected = band(grid, *coverage_band(grid, count), "95 % band if calibrated", color=_GREY, opacity=0.25)
    traces = [expected, _diagonal(np.array([0.0, 1.0]))]
    for i, (name, levels, shares) in enumerate(curves):
        mode = "lines+markers" if len(levels) < len(grid) else "lines"
        traces.append(scatter(levels, shares, mode, line={"color": COLORS[i], "dash": DASHES[2 * i]}, name=name))
    return figure_of(traces, "level of the central interval", "share of observations inside")


def coverage(name: str, y: Any, prediction: Prediction) -> tuple[str, Any, Any]:
    """Return the curve of `calibration` of observations (n,) and their prediction."""
    levels = np.linspace(0.02, 0.98, 49)
    return name, levels, metrics.interval_coverage(y, prediction, levels).cpu().numpy()


def residuals(y: NDArray[np.float64], prediction: Prediction) -> Figure:
    """Return standardized residuals of y (n,) against the predicted mean."""
    mean = np.asarray(prediction.observed().mean, dtype=np.float64)
    scores = metrics.standardized_residuals(y, prediction).numpy()
    rows = thin(len(mean))
    points = scatter(mean[rows], scores[rows], marker={"color": COLORS[0], "size": 4, "opacity": 0.5})
    is_gaussian = prediction.of_observations is None and prediction.scales is None
    name = "(observed - mean) / sd" if is_gaussian else "normal quantile of the observation"
    rules = [_rule(-2, dash="dash"), _rule(0), _rule(2, dash="dash")]
    return figure_of([points], "predicted mean", name, shapes=rules)


def predicted(y: NDArray[np.float64], prediction: Prediction, *, is_log: bool = False) -> Figure:
    """Return observations y (n,) against the predicted mean, with bars of one predictive sd.

    If they are logarithms, their exponentials are drawn on logarithmic axes.
    """
    observed = prediction.observed()
    rows = thin(len(y), MAX_BARS)
    mean, sd = np.asarray(observed.mean)[rows], np.sqrt(np.asarray(observed.variance))[rows]
    y, middle, low, high = (np.exp(column) if is_log else column for column in (y[rows], mean, mean - sd, mean + sd))
    bars = error_bars(high - middle, middle - low, **_THIN)
    points = scatter(middle, y, error_x=bars, marker={"color": COLORS[0], "size": 4})
    name = "predicted median, with one sd of its logarithm" if is_log else "predicted mean ± sd"
    axes = {"xaxis": log_axis(middle), "yaxis": log_axis(y)} if is_log else {}
    return figure_of([points, _diagonal(middle, y)], name, "observed", **axes)


def reliability(
    y: NDArray[np.float64],  # (n,)
    shares: NDArray[np.float64],  # (n,)
    bins: int = 10,
    design_effect: float = 1.0,
) -> Figure:
    """Return the fraction of ones among y (n,) against predicted probabilities (n,).

    Bins have equally many observations. Bars are 2 standard errors, for one independent observation in `design_effect`.
    """
    parts = [part for part in np.array_split(np.argsort(shares, kind="stable"), bins) if len(part)]
    x, fractions = (np.array([values[part].mean() for part in parts]) for values in (shares, y))
    errors = 2 * np.sqrt(design_effect * np.maximum(x * (1 - x), 0.0) / [len(part) for part in parts])
    bars = error_bars(errors, thickness=1, color=_GREY)
    points = scatter(x, fractions, error_y=bars, marker={"color": COLORS[0], "size": 7})
    return figure_of([points, _diagonal(np.array([0.0, 1.0]))], "predicted probability", "share")


def rootogram(y: NDArray[np.float64], prediction: Prediction, most: int = 60) -> Figure:
    """Return square roots of observed and expected frequencies of counts y (n,), at most `most` counts or bins."""
    top = int(max(y.max(), 1))
    width = -(-(top + 1) // most)
    edges = np.arange(-1, top + width, width)
    below = np.stack([np.asarray(prediction.cdf(float(edge))) for edge in edges])
    expected = np.sqrt(np.diff(below, axis=0).sum(axis=1))
    observed = np.sqrt(np.histogram(y, bins=edges + 0.5)[0])
    x = edges[:-1] + (width + 1) / 2
    bars = {"type": "bar", "x": x, "y": observed, "marker": {"color": COLORS[0]}, "name": "observed"}
    line = scatter(x, expected, "lines+markers", line={"color": _INK}, name="expected")
    return figure_of([bars, line], "count", "square root of the frequency")


def candidates(selection: SelectionReport) -> Figure:
    """Return the last scores of candidates and baselines, the best at the top."""
    scored = [(trial.name, trial.last) for trial in selection.trials if trial.last is not None]
    known = [*scored, *selection.baselines.items()]
    sign = 1 if selection.measure == LOG_DENSITY else -1
    known.sort(key=lambda pair: sign * pair[1].value)
    rows, values = list(range(len(known))), np.array([score.value for _, score in known])
    marker = {"size": 9, "color": [COLORS[int(name in selection.parts)] for name, _ in known]}
    bars = error_bars(np.array([2 * score.error for _, score in known]))
    ticks = _written(rows, [label(name, 44) for name, _ in known])
    return figure_of([scatter(values, rows, error_x=bars, marker=marker)], selection.measure, "", yaxis=ticks)


def convergence(fit: FitReport) -> Figure:
    """Return the log marginal likelihood per row, plus log priors, by iteration."""
    lines, done = [], 0
    stages = fit.traces()
    for i, (stage, trace) in enumerate(stages):
        line = {"color": COLORS[i % len(COLORS)], "dash": DASHES[i // len(COLORS) % len(DASHES)]}
        look: dict[str, Any] = {"marker": {"size": 4}, "line": line, "name": label(stage.name)}
        x, y = list(range(done, done + len(trace))), np.asarray(trace) / stage.rows
        lines.append(scatter(x, y, "lines+markers", **look) | {"showlegend": len(stages) > 1})
        done += stage.iterations
    # The range shows the differences at the ends of stages.
    every = np.concatenate([line["y"] for line in lines])
    low, top = float(np.quantile(every, 0.1)), float(every.max())
    shows_all = every.min() > top - 3 * (top - low)
    view = {} if shows_all else {"range": [low - 0.5 * (top - low), top + 0.1 * (top - low)]}
    return figure_of(lines, "iteration, of all stages", "log likelihood of a row (nats)", yaxis=view)


def deviations(values: NDArray[np.float64], sd: NDArray[np.float64], name: str) -> Figure:
    """Return the standard deviation (n,) of an observation against values (n,), on a logarithmic axis."""
    points = scatter(values, sd, marker={"color": COLORS[0], "size": 4, "opacity": 0.5})
    return figure_of([points], label(name, 44), "sd of an observation", yaxis=log_axis(sd))


def prediction_band(x: NDArray[np.float64], mean: Any, sd: Any, observed_sd: Any, data: Any = None) -> Figure:
    """Return the mean (n,) along x (n,) with 95 % bands of observations and of the function, and data as points."""
    halves = (("95 % of observations", 0.15, 1.96 * observed_sd), ("95 % of f", 0.35, 1.96 * sd))
    bands = [band(x, mean - half, mean + half, name, opacity=opacity) for name, opacity, half in halves]
    line = scatter(x, mean, "lines", line={"color": COLORS[0]}, name="mean")
    points = [] if data is None else [scatter(*data, marker={"color": "black", "size": 4}, name="data")]
    return figure_of([*bands, line, *points], "", "")


def variogram(found: Variogram) -> Figure:
    """Return the semivariance by distance: points of pairs of rows, and lines of the model, with nugget and sill."""
    traces = []
    for i, name in enumerate(found.directions):
        look, h = {"color": COLORS[i % len(COLORS)]}, found.distances[i]
        rows = np.flatnonzero(found.counts[i])
        traces.append(scatter(h[rows], found.semivariances[i][rows], marker=look, name=f"rows, {name}"))
        line = {**look, "dash": DASHES[i % len(DASHES)]}
        model = found.model_distances[i], found.model_semivariances[i]
        traces.append(scatter(*model, "lines", line=line, name=f"model, {name}"))
    rules = [_rule(found.nugget, dash="dot"), _rule(found.sill, dash="dash")]
    return figure_of(traces, "distance", "semivariance", shapes=rules, yaxis={"rangemode": "tozero"})


# --- Series ----------------------------------------------------------------------------------------------------------


def texts_of(times: Any) -> Any:
    """Return times (n,) of a pandas frame as texts if they are dates, and as numbers otherwise."""
    if times.dtype.kind in "iuf":
        return np.asarray(times, dtype=np.float64)
    texts = [str(time)[:19] for time in times]
    return [text[:10] for text in texts] if all(text.endswith("00:00:00") for text in texts) else texts


def forecast(history: Any, frame: Any, time: str, target: str, level: float) -> Figure:
    """Return the last rows of a series and its forecast with a band.

    Args:
        history: A pandas frame of the times and "y".
        frame: The forecast, with the times, "mean", "lower" and "upper".
        time: The name of the times.
        target: The name of the target.
        level: The level of the band.
    """
    known = history.tail(max(4 * len(frame), 200))
    known, ahead = known.iloc[thin(len(known))], frame.iloc[thin(len(frame))]
    x, low, high = texts_of(ahead[time]), np.asarray(ahead["lower"]), np.asarray(ahead["upper"])
    points = scatter(texts_of(known[time]), np.asarray(known["y"]), "lines", line={**_INK_LINE}, name="known")
    mean = scatter(x, np.asarray(ahead["mean"]), "lines", line={"color": COLORS[0]}, name="forecast")
    area = band(x, low, high, f"{level:.0%} band of an observation", opacity=0.25)
    return figure_of([points, area, mean], label(time), label(target))


def component(times: Any, mean: NDArray[np.float64], sd: NDArray[np.float64], name: str, time: str) -> Figure:
    """Return a term of a series along its times (n,), with a 95 % band."""
    x = texts_of(times)
    line = scatter(x, mean, "lines", line={"color": COLORS[0]}, name="mean")
    return figure_of([band(x, mean - 1.96 * sd, mean + 1.96 * sd, "95 % band"), line], label(time), label(name))


def by_lead(frame: Any, frequency: str) -> Figure:
    """Return the mean absolute error of a backtest by lead time, beside that of the seasonal naive forecast.

    Args:
        frame: The frame of the backtest.
        frequency: The step, as text.
    """
    traces = []
    for i, (name, column) in enumerate({"forecast": "median", "seasonal naive": "naive median"}.items()):
        errors = (frame["y"] - frame[column]).abs().groupby(frame["lead"]).mean()
        chosen = thin(len(errors))
        x, y = np.asarray(errors.index, dtype=np.float64)[chosen], np.asarray(errors)[chosen]
        traces.append(scatter(x, y, "lines", line={"color": COLORS[i], "dash": DASHES[i]}, name=name))
    return figure_of(traces, f"steps ahead ({label(frequency)})", "mean absolute error")


# --- A comparison with the exact process -----------------------------------------------------------------------------

BY_SIZE = {"kl": "KL from the exact posterior (nats)", "kernel_error": "relative error of the kernel matrix"}
"""The scores that are drawn against the size, with the titles of their axes."""


def by_size(comparison: Comparison, score: str) -> Figure:
    """Return a score of `BY_SIZE` of each method against m, on log scales, with bars of 2 standard errors."""
    curves, sizes, traces = comparison.curves(score), np.array(comparison.sizes), []
    for number, (method, i) in enumerate(styles(curves).items()):
        means, bars = curves[method]
        aside = sizes * 1.04 ** (number - (len(curves) - 1) / 2)  # so that bars are not on each other
        look: dict[str, Any] = {
            "error_y": error_bars(bars),
            "marker": {"symbol": SYMBOLS[i % 6], "size": 8},
            "line": {"color": COLORS[i], "dash": DASHES[i % 6], "width": 1.5},
        }
        traces.append(scatter(aside, means, "lines+markers", name=label(method), hoverinfo="y+name", **look))
    axis = {**_written(sizes.tolist(), [str(size) for size in sizes]), "type": "log"}
    heights = np.concatenate([trace["y"] for trace in traces])
    return figure_of(traces, f"{comparison.size_name}, m", BY_SIZE[score], xaxis=axis, yaxis=log_axis(heights))


def against_exact(comparison: Comparison) -> Figure:
    """Return one draw's approximate against exact posterior means, with bars of one sd."""
    exact, ours = comparison.example.exact, comparison.example.approximate
    a, b = np.asarray(exact.mean), np.asarray(ours.mean)
    across, along = (error_bars(np.sqrt(np.asarray(each.variance)), **_THIN) for each in (exact, ours))
    points = scatter(a, b, error_x=across, error_y=along, marker={"color": COLORS[0], "size": 4})
    return figure_of([points, _diagonal(a, b)], "exact posterior mean ± sd", "approximate posterior mean ± sd")


# --- Effects, and the target against columns -------------------------------------------------------------------------


def effect_figures(effect: Effect, scale: Scale) -> list[Figure]:
    """Return the figure of an effect, or those of the mean and the standard deviation of a map."""
    if effect.shape in (MAP, SCATTER):
        deviation = "sd of its logarithm" if scale.is_factor else "standard deviation"
        return [
            _plane(effect, scale.shown(effect.mean), label(scale.name, 44), COLOR_MAPS["mean"]),
            _plane(effect, effect.std, deviation, COLOR_MAPS["sd"]),
        ]
    return [_levels(effect, scale) if effect.shape == LEVELS else _curve(effect, scale)]


def axis_values(variable: Variable, values: NDArray[Any]) -> Any:
    """Return the values of a number, or the dates of a variable as texts.

    Examples:
        >>> axis_values(Variable("day", DATE, "day", {}), np.array([0.0]))
        ['1970-01-01']
    """
    return variable.texts(values) if variable.role == DATE else values


def _curve(effect: Effect, scale: Scale) -> Figure:
    (variable,), (values,), (data,) = effect.variables, effect.values, effect.data
    mean, low, high = effect.band(scale)
    x, kept = axis_values(variable, values), np.unique(np.asarray(data)[thin(len(data), _MAX_RUG)])
    line = scatter(x, mean, "lines", line={"color": COLORS[0]}, name="median" if scale.is_factor else "mean")
    marker = {"symbol": "line-ns-open", "size": 7, "color": "#57606a", "line": {"width": 1}}
    look: dict[str, Any] = {"marker": marker, "name": "data", "hoverinfo": "skip", "yaxis": "y2"}
    rug = scatter(axis_values(variable, kept), [0.015] * len(kept), **look)
    return figure_of(
        [band(x, low, high, "95 % band"), line, rug],
        label(variable.name, 34),
        label(scale.name, 44),
        yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        shapes=[_rule(scale.no_effect, dash="dot")],
    )


def _levels(effect: Effect, scale: Scale) -> Figure:
    mean, low, high = effect.band(scale)
    rows = list(range(len(mean)))  # names may be cut to the same text, and would share a place
    bars = error_bars(high - mean, mean - low, color=COLORS[0], thickness=1.5, width=3)
    points = scatter(mean, rows, error_x=bars, marker={"color": COLORS[0], "size": 8})
    (variable,) = effect.variables
    names = [label(text, 24) for text in variable.texts(effect.values[0])]
    axis = {**_written(rows, names), "range": [-0.7, len(rows) - 0.3]}
    rules = [_rule(scale.no_effect, "y", dash="dot")]
    return figure_of([points], label(scale.name, 44), label(variable.name, 34), yaxis=axis, shapes=rules)


def _plane(effect: Effect, values: NDArray[np.float64], name: str, colors: str) -> Figure:
    """Return a map over a grid with the data as dots, or the rows as colored points."""
    first, second = (axis_values(*pair) for pair in zip(effect.variables, effect.values, strict=True))
    titles = [label(variable.name, 34) for variable in effect.variables[:2]]
    if effect.shape == SCATTER:
        marker: Trace = {"color": values, "colorscale": colors.capitalize(), "size": 6, "colorbar": _color_bar(name)}
        return figure_of([scatter(first, second, marker=marker)], *titles)
    heat: Trace = {"type": "heatmap", "x": first, "y": second, "z": list(values), "colorscale": colors.capitalize()}
    heat |= {"colorbar": _color_bar(name), "zsmooth": "best"}
    kept = thin(len(effect.data[0]), _MAX_MARKS)
    x, y = (axis_values(variable, data[kept]) for variable, data in zip(effect.variables, effect.data, strict=True))
    marker = {"color": "white", "size": 3, "opacity": 0.7, "line": {"width": 0.5, "color": _INK}}
    return figure_of([heat, scatter(x, y, marker=marker, hoverinfo="skip")], *titles)


def small_multiples(table: Table, variables: Sequence[Variable], frame: Any, *, is_log: bool = False) -> Figure:
    """Return the target against variables, as points or as boxes of categories, three plots in a row."""
    across = min(_ACROSS, len(variables))
    gaps = np.array([0.04, 0.26 / -(-len(variables) // across)])
    width, height = (1 + gaps) / [across, -(-len(variables) // across)] - gaps
    figure, rows = figure_of([], "", "", showlegend=False), thin(len(table.y))
    axis = {"gridcolor": "#e6eaee", "zeroline": False}
    for i, variable in enumerate(variables):
        row, column = divmod(i, across)
        own, first = (str(place + 1) if place else "" for place in (i, row * across))
        left, top = float(column * (width + gaps[0])), float(1 - row * (height + gaps[1]))
        title = {"text": label(variable.name, 28), "standoff": 4, "font": {"size": 12}}
        across_axis = {**axis, "anchor": f"y{own}", "domain": [left, left + width], "title": title}
        shared = {"title": {"text": label(table.target, 28)}} if own == first else {"matches": f"y{first}"}
        up_axis = {**axis, "anchor": f"x{own}", "domain": [top - height, top], "automargin": True, **shared}
        up_axis |= {"showticklabels": own == first, **(log_axis(table.y) if is_log else {})}
        figure["layout"] |= {f"xaxis{own}": {**across_axis, **_ticks(variable, frame)}, f"yaxis{own}": up_axis}
        trace = _against(variable, variable.values(frame)[rows], table.y[rows])
        figure["data"].append({**trace, "xaxis": f"x{own}", "yaxis": f"y{own}"})
    return figure


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
    return _written(range(len(names)), [label(name, 12) for name in names])


def _against(variable: Variable, values: Any, y: NDArray[np.float64]) -> Trace:
    """Return the target y (n,) against the values (n,) of a variable."""
    if variable.role == CATEGORY:
        category_index = np.unique([str(value) for value in values], return_inverse=True)[1].tolist()
        marker = {"color": COLORS[0], "size": 3}
        return {"type": "box", "x": category_index, "y": y, "marker": marker, "line": {"width": 1}}
    marker = {"color": COLORS[0], "size": 3, "opacity": 0.35}
    return scatter(axis_values(variable, values), y, marker=marker, hoverinfo="x+y")


# --- Fields on meshes and roads --------------------------------------------------------------------------------------


def mesh_view(
    vertices: NDArray[np.float64],  # (V, 3)
    faces: NDArray[np.int64],  # (F, 3)
    values: NDArray[np.float64],  # (F,) or (V,)
    name: str,
    colors: str,
    *,
    on_faces: bool,
) -> Figure:
    """Return a view of values on the faces of a mesh, or at its vertices."""
    low, high = color_range(values)
    surface = {
        "type": "mesh3d",
        **{axis: vertices[:, i] for i, axis in enumerate("xyz")},
        **{corner: faces[:, i].tolist() for i, corner in enumerate("ijk")},
        "intensity": values,
        "intensitymode": "cell" if on_faces else "vertex",
        "colorscale": colors.capitalize(),
        "cmin": low,
        "cmax": high,
        "colorbar": _color_bar(label(name), len=0.8),
        "flatshading": on_faces,
        "lighting": {"ambient": 0.8, "diffuse": 0.3, "specular": 0.0},
    }
    axis = {"visible": False}
    extent = np.ptp(vertices, axis=0)
    ratio = dict(zip("xyz", (1.6 * extent / np.linalg.norm(extent)).tolist(), strict=True))
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


def segment_values(field: Field, values: NDArray[np.float64]) -> NDArray[np.float64]:  # (N,) -> (S,)
    """Return the averages of values (N,) of nodes at the ends of road segments."""
    ends = np.array([(segment.source, segment.target) for segment in field.segments()]).reshape(-1, 2)
    middle: NDArray[np.float64] = values[ends].mean(axis=1)
    return middle


def aspect_of(field: Field) -> float:
    """Return the ratio of a unit of the second axis of roads to one of the first, as seen on a map."""
    if field.roads is not None and field.roads.metric == "euclidean":
        return 1.0
    return 1 / float(np.cos(np.radians(field.coordinates[:, 1].mean())))


def road_view(
    field: Field,
    values: NDArray[np.float64],  # (N,)
    name: str,
    colors: str,
    along: NDArray[np.float64] | None = None,  # (S,)
) -> Figure:
    """Return a map of values of nodes, and of segments or the averages of their ends, with sensors as points."""
    from plotly.colors import sample_colorscale

    coordinates, segments = field.coordinates, field.segments()
    low, high = color_range(values)
    high = high if high > low else low + 1.0
    middle = segment_values(field, values) if along is None else along
    bins = np.clip(((middle - low) / (high - low) * _BINS).astype(np.int64), 0, _BINS - 1)
    shades = sample_colorscale(colors, [(i + 0.5) / _BINS for i in range(_BINS)])
    traces = [_lines([segments[i].shape for i in np.flatnonzero(bins == b)], shades[b]) for b in np.unique(bins)]
    observed = np.unique(field.graph.index(field.nodes))
    rest = np.setdiff1d(np.arange(len(values)), observed)
    bar = {"colorbar": _color_bar(label(name), len=0.8), "showscale": True}
    for nodes, size, look, kind in (
        (rest, 3, {"showscale": False}, "crossings"),
        (observed, 7, {"line": _INK_LINE, **bar}, "observed sensors"),
    ):
        marker = {
            "colorscale": colors.capitalize(),
            "cmin": low,
            "cmax": high,
            "color": values[nodes],
            "size": size,
            **look,
        }
        text = [f"{label(field.labels[i])}: {values[i]:.4g}" for i in nodes]
        x, y = coordinates[nodes].round(6).T.tolist()
        traces.append(scatter(x, y, marker=marker, text=text, hoverinfo="text", name=kind))
    is_plane = field.roads is not None and field.roads.metric == "euclidean"
    return figure_of(
        traces,
        *(("x", "y") if is_plane else ("longitude", "latitude")),
        yaxis={"scaleanchor": "x", "scaleratio": aspect_of(field)},
        dragmode="pan",
        margin={"l": 64, "r": 8, "t": 28, "b": 48},
        legend={**_LEGEND, "y": -0.16, "yanchor": "top"},
    )


def _lines(shapes: Sequence[NDArray[np.float64]], color: str) -> Trace:
    """Return polylines (k, 2) of one color as a trace, with gaps between them. Degrees keep six decimals."""
    points = [point for shape in shapes for point in (*shape[:, :2].round(6).tolist(), (None, None))]
    x, y = zip(*points, strict=True)
    return scatter(x, y, "lines", line={"color": color, "width": 3}, hoverinfo="skip")
