"""Pictures in matplotlib. Each `plot_...` draws on the given axes, or on new ones, and returns them.

Figures are described by `rfgp.curves`. The drawer, `_draw`, is at the end.
"""

import html
import io
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs import spectral_density
from graphs.builders.mesh import as_triangles
from graphs.kernels import FreeModulation
from graphs.precisions.elements import in_space
from rfgp import curves
from rfgp.compare import Comparison
from rfgp.effects.effects import effect_of, scale_of
from rfgp.errors import InvalidArgumentError, requires_extra
from rfgp.fields import Field, NodePosterior
from rfgp.fields.field import check_field
from rfgp.files import write_atomically
from rfgp.forecasts import history
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.inference.prediction import Prediction
from rfgp.messages import counted
from rfgp.models import Calibration, Variogram
from rfgp.models.series import TimeColumn
from rfgp.palette import COLOR_MAPS, COLORS, color_range

with requires_extra("plot"):
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure, SubFigure
    from mpl_toolkits.mplot3d import Axes3D
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

AnyAxes = TypeVar("AnyAxes", bound=Axes)

_MARKERS = dict(zip((*curves.SYMBOLS, "line-ns-open"), "osD^XP|", strict=True))
_DASHES = dict(zip(curves.DASHES, ("-", "--", ":", "-.", (0, (8, 3)), (0, (8, 3, 1, 3))), strict=True))
_POINTS = 0.75
"""The points of a pixel."""


def new_axes(**options: Any) -> Any:
    """Return axes in a new figure, without changing the global state of pyplot.

    Args:
        **options: Options of `Figure.add_subplot`.

    Examples:
        >>> from rfgp.plotting import new_axes
        >>> new_axes().name
        'rectilinear'
    """
    return Figure(figsize=(6.4, 4.8), layout="constrained").add_subplot(**options)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG. A failure leaves the old file.

    Args:
        figure: The figure.
        path: The file.

    Raises:
        FileWriteError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> from rfgp.plotting import new_axes, save
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(new_axes().figure, Path(folder) / "figure.png")
    """
    write_atomically(path, to_png(figure))


def to_png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG file, at 130 dots per inch.

    Args:
        figure: The figure.

    Examples:
        >>> from rfgp.plotting import new_axes, to_png
        >>> to_png(new_axes().figure)[1:4]
        b'PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def plot_prediction_band(
    x: ArrayLike,  # (n,)
    prediction: Prediction,
    *,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Plot the mean along x with 95 % bands: function (dark), observations (light).

    Args:
        x: The input (n,) at the points of the prediction, in any order.
        prediction: The prediction at these inputs.
        data: Inputs (k,) and targets (k,) to draw as points. If None, there are no points.
        axes: The axes to draw on. If None, new ones.

    Raises:
        InvalidArgumentError: If x has another length than the prediction.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp.plotting import plot_prediction_band
        >>> x = np.linspace(0, 10, 50)
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(x[:, None], np.sin(x))
        >>> axes = plot_prediction_band(x, gp.predict(x[:, None]), data=(x, np.sin(x)))
    """
    positions, mean = np.asarray(x, dtype=np.float64), _numbers(prediction.mean_tensor())
    if positions.shape != mean.shape:
        raise InvalidArgumentError(f"x must have the prediction's shape {mean.shape}, got {positions.shape}.")
    order = np.argsort(positions, kind="stable")
    parts = (prediction, prediction.observed())
    sd, observed_sd = (np.sqrt(_numbers(part.variance_tensor()))[order] for part in parts)
    return _draw(curves.prediction_band(positions[order], mean[order], sd, observed_sd, data), axes)


def plot_term(
    gp: GP,
    name: str,
    X: Any,
    *,
    column: str | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Plot the effect of one term along its columns: its posterior mean with a 95 % band.

    A term of one number is a curve, with its data as ticks below. A term of categories is a point with a bar for each,
    and a term of two numbers a map of the mean. Effects are minus their mean over the points. For counts and positive
    values they are factors of the mean.

    Args:
        gp: A fitted model.
        name: The name of the term, as in `gp.kernel.terms()`.
        X: The inputs over whose range the term is drawn, such as those of the fit: a dataframe, a dict of columns or an
            array (n, d).
        column: The column along which a term of several columns is drawn. The others are at typical values: medians, or
            the most frequent category. If None, the term must have one column, or two of numbers.
        axes: The axes to draw on. If None, new ones.

    Raises:
        InvalidArgumentError: If there is no such term, or a column must be named.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.plotting import plot_term
        >>> X = {"t": np.linspace(0, 30, 90)}
        >>> kernel = k.RBF("t", name="trend") + k.Periodic("t", period=7.0, name="season")
        >>> gp = rfgp.GP(kernel, seed=0).condition(X, np.sin(2 * np.pi * X["t"] / 7) + X["t"] / 10)
        >>> plot_term(gp, "season", X).get_xlabel()
        't'
    """
    effect, scale = effect_of(gp, name, X, column), scale_of(gp.spec.options.likelihood, "the target")
    drawn = _draw(curves.effect_figures(effect, scale)[0], axes)
    drawn.set_title(_plain(f"{name}, others at typical values" if effect.is_partial else name))
    return drawn


def plot_calibration(
    y: ArrayLike | Calibration,  # (n,)
    prediction: Prediction | None = None,
    *,
    axes: Axes | None = None,
) -> Axes:
    """Plot the fraction of observations (n,) in central intervals against their level.

    The gray band contains the curve of a calibrated prediction with probability 0.95 at each level, if the n
    observations are independent given the prediction.

    Args:
        y: The observations (n,), or the calibration on left-out rows, `gp.calibration()`.
        prediction: The prediction of the observations. If None, y must be a calibration.
        axes: The axes to draw on. If None, new ones.

    Raises:
        InvalidArgumentError: If y is not a calibration and there is no prediction.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp.plotting import plot_calibration
        >>> x = np.linspace(0, 10, 50)
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(x[:, None], np.sin(x))
        >>> axes = plot_calibration(np.sin(x), gp.predict(x[:, None]))
        >>> axes = plot_calibration(gp.calibration())
    """
    if isinstance(y, Calibration):
        curve: Any = (f"{counted(y.num_rows, 'row')}, {y.rows}", y.levels, y.coverage)
        return _draw(curves.calibration([curve], y.num_rows), axes)
    if prediction is None:
        raise InvalidArgumentError("prediction must be given with observations, got None. Pass gp.predict(X).")
    curve = curves.coverage(counted(np.size(y), "observation"), y, prediction)
    return _draw(curves.calibration([curve], np.size(y)), axes)


def plot_variogram(variogram: Variogram, *, axes: Axes | None = None) -> Axes:
    """Plot the semivariance by distance: points of pairs of rows, and lines of the model, with nugget and sill.

    Args:
        variogram: The variogram, `gp.variogram()`.
        axes: The axes. If None, new ones.

    Examples:
        >>> import numpy as np, rfgp
        >>> from rfgp.plotting import plot_variogram
        >>> x = np.linspace(0, 10, 40)
        >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(x[:, None], np.sin(x))
        >>> plot_variogram(gp.variogram()).get_ylabel()
        'semivariance'
    """
    return _draw(curves.variogram(variogram), axes)


def plot_forecast(
    gp: GP, forecast: Any, *, target: str = "y", series: tuple[str, Any] | None = None, axes: Axes | None = None
) -> Axes:
    """Plot the last rows of a series and its forecast with the band.

    Args:
        gp: The fitted model.
        forecast: The result of `gp.forecast`.
        target: The name of the target.
        series: The column of the series, and the one to draw. If None, there is one series.
        axes: The axes to draw on. If None, new ones.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp.plotting import plot_forecast
        >>> t = np.arange(60.0)
        >>> gp = rfgp.GP(rfgp.kernels.Wiener("t"), seed=0).fit({"t": t}, np.cumsum(np.cos(t)))
        >>> axes = plot_forecast(gp, gp.forecast(10))
    """
    by = None if series is None else series[0]
    known, time = history(gp.state, by, log=bool(forecast.attrs.get("log"))), TimeColumn.of(gp.state).name
    if series is not None:
        known, forecast = (frame[frame[str(by)] == series[1]] for frame in (known, forecast))
    return _draw(curves.forecast(known, forecast, time, target, forecast.attrs.get("level", 0.95)), axes)


def plot_kernel_error(comparison: Comparison, *, axes: Axes | None = None) -> Axes:
    """Plot the relative error of the kernel matrix of each method against m.

    Scales are logarithmic, and bars are 2 standard errors.

    Examples:
        >>> from rfgp import compare, datasets, plotting
        >>> table = datasets.make_table()
        >>> run = compare.compare_table(table.X, table.y, methods=("iid",), sizes=(8,), num_train=30, num_test=10)
        >>> plotting.plot_kernel_error(run).get_ylabel()
        'relative error of the kernel matrix'
    """
    return _draw(curves.by_size(comparison, "kernel_error"), axes)


def plot_kl(comparison: Comparison, *, axes: Axes | None = None) -> Axes:
    """Plot KL(exact || approximate) of the posterior of each method against m.

    Scales are logarithmic, and bars are 2 standard errors.

    Examples:
        >>> from rfgp import compare, datasets, plotting
        >>> table = datasets.make_table()
        >>> run = compare.compare_table(table.X, table.y, methods=("iid",), sizes=(8,), num_train=30, num_test=10)
        >>> plotting.plot_kl(run).get_ylabel()
        'KL from the exact posterior (nats)'
    """
    return _draw(curves.by_size(comparison, "kl"), axes)


def plot_against_exact(comparison: Comparison, *, axes: Axes | None = None) -> Axes:
    """Plot approximate against exact posterior means at the first split's test points.

    The bars are the standard deviations of the two posteriors.

    Examples:
        >>> from rfgp import compare, datasets, plotting
        >>> table = datasets.make_table()
        >>> run = compare.compare_table(table.X, table.y, methods=("iid",), sizes=(8,), num_train=30, num_test=10)
        >>> plotting.plot_against_exact(run).get_title()
        'iid, m = 8, one draw'
    """
    drawn = _draw(curves.against_exact(comparison), axes)
    drawn.set_title(f"{comparison.example.method}, m = {comparison.example.size}, one draw", fontsize=10)
    return drawn


def plot_spectrum(gp: GraphGP, *, axes: Axes | None = None) -> Axes:
    """Plot the fitted kernel over the density of the eigenvalues of the Laplacian.

    For a free modulation the parametric family without its learned factors is drawn as well.

    Args:
        gp: A fitted model.
        axes: The axes to draw on. If None, new ones.

    Raises:
        NotFittedError: If the model has no hyperparameters yet.

    Examples:
        >>> import graphs, rfgp
        >>> gp = rfgp.GraphGP(graphs.Graph.from_grid((4, 4)), noise=0.1).condition([(0, 0), (3, 3)], [1.0, 2.0])
        >>> rfgp.plotting.plot_spectrum(gp).get_xlabel()
        'eigenvalue of the Laplacian'
    """
    axes = new_axes() if axes is None else axes
    eigenvalues = np.linspace(0.0, 2.0, 401)
    kernel, scale = gp.fitted_kernel, float(gp.hyperparameters.outputscale.detach().reshape(-1)[0])
    axes.plot(eigenvalues, scale * kernel.spectral(eigenvalues), color=COLORS[0], label=type(kernel).__name__)
    if isinstance(kernel, FreeModulation):
        family = scale * kernel.base.spectral(eigenvalues)
        axes.plot(eigenvalues, family, color=COLORS[1], linestyle="--", label="its family, without the factors")
    noise = float(gp.hyperparameters.noise.detach().reshape(-1)[0])
    axes.axhline(noise, color="0.4", linewidth=0.8, label="noise")
    top = scale * float(kernel.spectral(np.zeros(1))[0])
    axes.set(xlabel="eigenvalue of the Laplacian", ylabel="prior variance")
    _set_axis(axes, "y", curves.log_axis([min(noise, top) * 2e-3, top * 1.5]))
    density = axes.twinx()
    densities = spectral_density(gp.graph, eigenvalues)
    density.fill_between(eigenvalues, densities, color="0.88", linewidth=0)
    density.set_ylim(0, 2 * np.quantile(densities, 0.98))  # a single eigenvalue may be a peak a hundred times as high
    density.set_yticks([])
    density.set_ylabel("density of eigenvalues (gray)")
    axes.set_zorder(density.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.set_xlim(0, 2)
    axes.legend(loc="best", fontsize=9)
    return axes


def plot_mesh_field(
    field: Any,
    values: ArrayLike,  # (N,)
    *,
    title: str = "",
    colors: str = "viridis",
    axes: Axes3D | None = None,
) -> Axes3D:
    """Plot values (N,) of the faces or vertices of a mesh, in 3-D axes.

    Args:
        field: An `rfgp.fields.Field` on a mesh, or any mesh that `graphs.MeshField` takes, such as a `trimesh.Trimesh`.
        values: A number for each node of the field, or for each vertex or each face of the mesh.
        title: The title.
        colors: A color map of matplotlib.
        axes: The axes to draw on. If None, new ones.

    Raises:
        InvalidArgumentError: If the field is not on a mesh, or has another number of nodes.
        InvalidGraphError: If the argument is neither a field nor a mesh.

    Examples:
        >>> import trimesh
        >>> from rfgp import plotting
        >>> sphere = trimesh.creation.icosphere(1)
        >>> axes = plotting.plot_mesh_field(sphere, sphere.vertices[:, 2], title="height")
    """
    if isinstance(field, Field):
        numbers, on_faces = _node_values(field, values, field.mesh, "a mesh"), field.on_faces
    vertices, faces = as_triangles(field.mesh if isinstance(field, Field) else field, (2, 3))
    if not isinstance(field, Field):
        numbers = np.asarray(values, dtype=np.float64)
        on_faces = numbers.shape != (len(vertices),)
        if on_faces and numbers.shape != (len(faces),):
            raise InvalidArgumentError(
                f"values must be one for each of {len(vertices)} vertices or {len(faces)} faces, got {numbers.shape}."
            )
    numbers = numbers if on_faces else numbers[faces].mean(1)
    shape = in_space(vertices), faces
    trace = curves.mesh_view(*shape, numbers, title, colors, on_faces=True)["data"][0]
    axes = axes or new_axes(projection="3d")
    triangles = shape[0][faces]
    scale = ScalarMappable(Normalize(trace["cmin"], trace["cmax"]), colors)
    axes.add_collection3d(Poly3DCollection(triangles, facecolors=scale.to_rgba(numbers), edgecolors="none"))
    corners = triangles.reshape(-1, 3)
    axes.auto_scale_xyz(*corners.T)
    extents = np.ptp(corners, axis=0)
    axes.set_box_aspect(np.maximum(extents, 1e-3 * extents.max()))
    return _finish_field(axes, scale, title)


def plot_road_field(
    field: Field,
    values: ArrayLike,  # (N,)
    *,
    title: str = "",
    colors: str = "viridis",
    axes: Axes | None = None,
) -> Axes:
    """Plot values (N,) of crossings and sensors along their roads.

    A road segment has the average value of its ends. The axes are longitude and latitude in degrees, or the units of
    the plane.

    Raises:
        InvalidArgumentError: If the argument is not a field on roads, or has another number of nodes.

    Examples:
        >>> import tempfile
        >>> from rfgp import datasets, fields, plotting
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     field = fields.read_road_field(datasets.write_all(folder)[2])
        >>> plotting.plot_road_field(field, range(field.graph.num_nodes), title="number").get_title()
        'number'
    """
    numbers = _node_values(check_field(field), values, field.roads, "roads")
    axes = axes or new_axes()
    segments = field.segments()
    scale = ScalarMappable(Normalize(*color_range(numbers)), colors)
    shades = scale.to_rgba(curves.segment_values(field, numbers))
    axes.add_collection(LineCollection([segment.shape for segment in segments], colors=shades, linewidths=2, zorder=1))
    observed = field.coordinates[field.graph.index(field.nodes)]
    axes.plot(*observed.T, "o", markersize=3, color="black", markerfacecolor="white", markeredgewidth=0.6, zorder=2)
    axes.autoscale_view()
    axes.set_aspect(curves.aspect_of(field))
    return _finish_field(axes, scale, title)


def _node_values(field: Field, values: ArrayLike, geometry: Any, kind: str) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if geometry is None:
        raise InvalidArgumentError(f"The field must be on {kind}. Use the function for its own geometry.")
    if numbers.shape != (field.graph.num_nodes,):
        raise InvalidArgumentError(
            f"values must have shape ({field.graph.num_nodes},), got {numbers.shape}. Give one for each node."
        )
    return numbers


def _finish_field(axes: AnyAxes, scale: ScalarMappable, title: str) -> AnyAxes:
    assert axes.figure is not None
    axes.figure.colorbar(scale, ax=axes, shrink=0.7, extend="both")
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()
    return axes


def draw_comparison(comparison: Comparison, fields: tuple[Field, NodePosterior] | None = None) -> Figure:
    """Plot kernel errors, KL, means and, given fields, the posterior at the nodes.

    Examples:
        >>> from rfgp import compare, datasets, plotting
        >>> table = datasets.make_table()
        >>> run = compare.compare_table(table.X, table.y, methods=("iid",), sizes=(8,), num_train=30, num_test=10)
        >>> len(plotting.draw_comparison(run).subfigs)
        1
    """
    rows = 1 if fields is None else 2
    figure = Figure(figsize=(14, 4.8 * rows), layout="constrained")
    figure.suptitle(_plain(comparison.title))
    parts = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    left, middle, right = parts[0].subplots(1, 3)
    plot_kernel_error(comparison, axes=left)
    plot_kl(comparison, axes=middle)
    plot_against_exact(comparison, axes=right)
    for axes in (left, middle):  # which share a legend below
        axes.get_legend().remove()
    handles, labels = middle.get_legend_handles_labels()
    parts[0].legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    if fields is not None:
        _draw_posterior(*fields, parts[1])
    return figure


def _draw_posterior(field: Field, posterior: NodePosterior, part: SubFigure) -> None:
    values = {"mean": posterior.mean, "standard deviation": posterior.std}
    for i, ((figure, numbers), colors) in enumerate(zip(values.items(), COLOR_MAPS.values(), strict=True)):
        title = f"exact posterior {figure}, {counted(posterior.num_observed, 'node')} observed"
        if field.mesh is not None:
            axes: Any = part.add_subplot(1, 2, 1 + i, projection="3d")
            plot_mesh_field(field, numbers, title=title, colors=colors, axes=axes)
        else:
            plot_road_field(field, numbers, title=title, colors=colors, axes=part.add_subplot(1, 2, 1 + i))


# --- The drawer ------------------------------------------------------------------------------------------------------


def _draw(figure: curves.Figure, axes: Axes | None = None) -> Axes:
    """Draw a figure of `rfgp.curves` on axes, or on new ones, and return these."""
    axes = axes or new_axes()
    for trace in figure["data"]:
        if trace["type"] == "heatmap":
            x, y, z = (_places(trace[name]) for name in "xyz")
            shown = axes.pcolormesh(x, y, z, cmap=trace["colorscale"].lower(), shading="gouraud")
            _add_color_bar(axes, shown, trace)
        else:
            _draw_scatter(axes, trace)
    layout = figure["layout"]
    for shape in layout.get("shapes", ()):
        draw, at = (axes.axhline, shape["y0"]) if shape["yref"] == "y" else (axes.axvline, shape["x0"])
        draw(at, color="black", linewidth=0.6, linestyle=_DASHES[shape["line"]["dash"]])
    for name in "xy":
        _set_axis(axes, name, layout[f"{name}axis"])
        if _places(figure["data"][0][name]).dtype.kind == "M":
            axes.tick_params(axis="x" if name == "x" else "y", labelrotation=30)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False)
    return axes


def _draw_scatter(axes: Axes, trace: curves.Trace) -> None:
    """Draw points or lines with bars, a band, or points that are colored by their values."""
    look: dict[str, Any]
    x, y, line, marker = _places(trace["x"]), _places(trace["y"]), trace.get("line", {}), trace.get("marker", {})
    label = _text(trace["name"]) if "name" in trace else None
    if "fill" in trace:
        half, look = len(x) // 2, {"color": trace["fillcolor"], "alpha": trace["opacity"], "linewidth": 0}
        axes.fill_between(x[:half], y[:half], y[half:][::-1], label=label, **look)
        return
    if "colorbar" in marker:
        look = {"c": marker["color"], "cmap": marker["colorscale"].lower(), "s": (_POINTS * marker["size"]) ** 2}
        _add_color_bar(axes, axes.scatter(x, y, **look), marker)
        return
    look = {
        "color": line.get("color", marker.get("color")),
        "linestyle": _DASHES[line.get("dash", "solid")] if "lines" in trace["mode"] else "none",
        "linewidth": _POINTS * line.get("width", 2),
        "marker": _MARKERS[marker.get("symbol", "circle")] if "markers" in trace["mode"] else "none",
        "markersize": _POINTS * marker.get("size", 6),
        "alpha": marker.get("opacity"),
        "label": label,
    }
    for name, bars in ((name, trace[f"error_{name}"]) for name in "xy" if f"error_{name}" in trace):
        look |= {f"{name}err": [bars.get("arrayminus", bars["array"]), bars["array"]], "ecolor": bars.get("color")}
        look |= {"elinewidth": _POINTS * bars.get("thickness", 2), "capsize": _POINTS * bars.get("width", 4)}
    if "yaxis" in trace:  # heights are shares of the picture
        look["transform"] = axes.get_xaxis_transform()
    (axes.errorbar if "ecolor" in look else axes.plot)(x, y, **look)


def _set_axis(axes: Axes, name: str, axis: dict[str, Any]) -> None:
    """Give the axis "x" or "y" its title, scale, ticks and range."""
    is_log = axis.get("type") == "log" and "tickvals" in axis
    options: dict[str, Any] = {f"{name}scale": "log"} if is_log else {}
    if "title" in axis:
        options[f"{name}label"] = _text(axis["title"]["text"])
    axes.set(**options)
    if is_log:
        axes.grid(axis="x" if name == "x" else "y", alpha=0.25)
    if "ticktext" in axis:
        one = axes.xaxis if name == "x" else axes.yaxis
        one.set_ticks(axis["tickvals"], list(map(_text, axis["ticktext"])))
        one.set_ticks([], minor=True)
    if "range" in axis:
        axes.set(**{f"{name}lim": np.power(10.0, axis["range"]) if is_log else axis["range"]})


def _add_color_bar(axes: Axes, shown: ScalarMappable, look: dict[str, Any]) -> None:
    assert axes.figure is not None
    axes.figure.colorbar(shown, ax=axes, label=_text(look["colorbar"]["title"]["text"]))


def _places(values: Any) -> NDArray[Any]:
    """Return the values of a trace, and dates as times."""
    is_dates = len(values) > 0 and isinstance(values[0], str)
    return np.asarray(values, dtype="datetime64[us]" if is_dates else None)


def _text(text: str) -> str:
    """Return a text of a figure without the escapes of markup."""
    return _plain(html.unescape(text))


def _plain(text: str) -> str:
    """Return text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")


def _numbers(tensor: Any) -> NDArray[np.float64]:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def __dir__() -> list[str]:
    return sorted(name for name, value in globals().items() if getattr(value, "__module__", None) == __name__)
