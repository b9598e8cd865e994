"""Pictures in matplotlib. Each `plot_...` draws on the given axes, or on new ones, and returns them."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs import spectral_density
from graphs.builders.mesh import as_triangles
from graphs.kernels import FreeModulation
from graphs.precisions.elements import in_space
from rfgp import metrics
from rfgp.compare import Comparison
from rfgp.effects.effects import CURVE, LEVELS, MAP, Effect, Scale, effect_of, scale_of
from rfgp.effects.variables import DATE, Variable
from rfgp.errors import InvalidArgumentError, requires_extra
from rfgp.fields import Field, NodePosterior
from rfgp.fields.field import check_field
from rfgp.files import write_atomically
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.inference.prediction import Prediction
from rfgp.messages import counted
from rfgp.models import Calibration
from rfgp.palette import COLOR_MAPS, COLORS, color_range, coverage_band, log_ticks, styles
from rfgp.tables.table import times_of

with requires_extra("plot"):
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure, SubFigure
    from mpl_toolkits.mplot3d import Axes3D
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

AnyAxes = TypeVar("AnyAxes", bound=Axes)

_MARKERS = "osD^vP"


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
    axes = axes or new_axes()
    positions, mean = np.asarray(x, dtype=np.float64), _numbers(prediction.mean_tensor())
    if positions.shape != mean.shape:
        raise InvalidArgumentError(f"x must have the prediction's shape {mean.shape}, got {positions.shape}.")
    order = np.argsort(positions, kind="stable")
    for part, alpha, label in ((prediction.observed(), 0.15, "95 % of observations"), (prediction, 0.35, "95 % of f")):
        half = 1.96 * np.sqrt(_numbers(part.variance_tensor()))
        low, high = (mean - half)[order], (mean + half)[order]
        axes.fill_between(positions[order], low, high, color=COLORS[0], alpha=alpha, linewidth=0, label=label)
    axes.plot(positions[order], mean[order], color=COLORS[0], label="mean")
    if data is not None:
        axes.plot(*map(np.asarray, data), ".", color="black", markersize=4, label="data")
    axes.legend(frameon=False)
    return axes


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
    axes = axes or new_axes()
    draw = {CURVE: _draw_curve, LEVELS: _draw_levels}.get(effect.shape, _draw_plane)
    draw(axes, effect, scale)
    axes.set_title(_plain(f"{name}, others at typical values" if effect.is_partial else name))
    return axes


def _draw_curve(axes: Axes, effect: Effect, scale: Scale) -> None:
    x, data = (_positions(effect.variables[0], part) for part in (effect.values[0], np.unique(effect.data[0])))
    mean, low, high = effect.band(scale)
    axes.fill_between(x, low, high, color=COLORS[0], alpha=0.25, linewidth=0, label="95 %")
    axes.plot(x, mean, color=COLORS[0], label="mean")
    axes.axhline(scale.no_effect, color="black", linewidth=0.6, linestyle=":")
    axes.plot(data, np.full(len(data), 0.015), "|", color="0.4", transform=axes.get_xaxis_transform())
    _label_axis(axes.xaxis, effect.variables[0])
    axes.set_ylabel(_plain(scale.name))
    axes.legend(frameon=False)


def _draw_levels(axes: Axes, effect: Effect, scale: Scale) -> None:
    (variable,), (mean, low, high) = effect.variables, effect.band(scale)
    rows = np.arange(len(mean))
    axes.errorbar(mean, rows, xerr=[mean - low, high - mean], fmt="o", color=COLORS[0], capsize=3)
    axes.axvline(scale.no_effect, color="black", linewidth=0.6, linestyle=":")
    axes.set_yticks(rows, list(map(_plain, variable.texts(effect.values[0]))))
    axes.set(xlabel=_plain(scale.name), ylabel=_plain(variable.name), ylim=(-0.7, len(rows) - 0.3))


def _draw_plane(axes: Axes, effect: Effect, scale: Scale) -> None:
    """Draw a map over a grid with the data as dots, or the rows as colored points."""
    x, y = (_positions(*pair) for pair in zip(effect.variables, effect.values, strict=True))
    mean, colors = scale.shown(effect.mean), COLOR_MAPS["mean"]
    if effect.shape == MAP:
        shown: ScalarMappable = axes.pcolormesh(x, y, mean, cmap=colors, shading="gouraud")
        data = (_positions(*pair) for pair in zip(effect.variables, effect.data, strict=True))
        axes.plot(*data, ".", color="white", markersize=2, alpha=0.6)
    else:
        shown = axes.scatter(x, y, c=mean, cmap=colors, s=14)
    assert axes.figure is not None
    axes.figure.colorbar(shown, ax=axes, label=_plain(scale.name))
    _label_axis(axes.xaxis, effect.variables[0])
    _label_axis(axes.yaxis, effect.variables[1])


def _label_axis(axis: Axis, variable: Variable) -> None:
    axis.set_label_text(_plain(variable.name))
    if variable.role == DATE:
        axis.set_tick_params(labelrotation=30)


def _plain(text: str) -> str:
    """Return text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")


def _positions(variable: Variable, values: NDArray[Any]) -> NDArray[Any]:
    """Return the values (n,) of a number or a date for an axis."""
    return times_of(np.asarray(values, dtype=np.float64)) if variable.role == DATE else values


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
    axes = axes or new_axes()
    grid = np.linspace(0.01, 0.99, 99)
    if isinstance(y, Calibration):
        count, levels, shares, label = y.num_rows, y.levels, y.coverage, f"{counted(y.num_rows, 'row')}, {y.rows}"
    elif prediction is not None:
        count, levels, label = np.size(y), grid, counted(np.size(y), "observation")
        shares = _numbers(metrics.interval_coverage(y, prediction, levels))
    else:
        raise InvalidArgumentError("prediction must be given with observations, got None. Pass gp.predict(X).")
    axes.fill_between(grid, *coverage_band(grid, count), color="0.85", label="95 % band of a calibrated prediction")
    axes.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    axes.plot(levels, shares, ".-" if len(levels) < len(grid) else "-", color=COLORS[0], label=label)
    axes.set_xlabel("level of the central interval")
    axes.set_ylabel("share of observations inside")
    axes.legend(frameon=False)
    return axes


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
    return _plot_by_size(comparison, "kernel_error", "relative error of the kernel matrix", axes)


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
    return _plot_by_size(comparison, "kl", "KL from the exact posterior (nats)", axes)


def _plot_by_size(comparison: Comparison, figure: str, label: str, axes: Axes | None) -> Axes:
    axes = axes or new_axes()
    curves, sizes = comparison.curves(figure), comparison.sizes
    looks = styles(curves)
    for number, (method, i) in enumerate(looks.items()):
        means, bars = curves[method]
        axes.errorbar(
            np.array(sizes) * 1.04 ** (number - (len(looks) - 1) / 2),  # error bars side by side
            means,
            yerr=bars,
            fmt=f"-{_MARKERS[i % len(_MARKERS)]}",
            linewidth=0.8,
            markersize=6,
            capsize=4,
            color=COLORS[i],
            label=method,
        )
    axes.set_xscale("log", base=2)
    _log_heights(axes, [mean for means, _ in curves.values() for mean in means if mean > 0])
    axes.set_xticks(sizes, [f"{size}" for size in sizes])
    axes.set_xlim(min(sizes) / 1.4, max(sizes) * 1.4)
    axes.minorticks_off()
    axes.set_xlabel(f"{comparison.size_name}, m")
    axes.set_ylabel(label)
    axes.grid(axis="y", which="both", alpha=0.25)
    return axes


def _log_heights(axes: Axes, heights: Sequence[float]) -> None:
    """Make the vertical axis logarithmic, with written-out ticks around these heights."""
    if len(heights):  # none are positive where all errors are 0
        axes.set_yscale("log")
        ticks, ends = log_ticks(heights)
        axes.set_ylim(*ends)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()


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
    axes = axes or new_axes()
    example = comparison.example
    exact, ours = example.exact, example.approximate
    axes.errorbar(
        exact.mean,
        ours.mean,
        xerr=np.sqrt(exact.variance),
        yerr=np.sqrt(ours.variance),
        fmt="o",
        markersize=3,
        elinewidth=0.6,
        alpha=0.7,
        color=COLORS[0],
    )
    ends = [min(exact.mean.min(), ours.mean.min()), max(exact.mean.max(), ours.mean.max())]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set_xlabel("exact posterior mean ± sd")
    axes.set_ylabel("approximate posterior mean ± sd")
    axes.set_title(f"{example.method}, m = {example.size}, one draw", fontsize=10)
    return axes


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
    _log_heights(axes, [min(noise, top) * 2e-3, top * 1.5])
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
    axes = axes or new_axes(projection="3d")
    triangles = in_space(vertices)[faces]
    scale = _color_scale(numbers, colors)
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
    scale = _color_scale(numbers, colors)
    shades = [scale.to_rgba((numbers[segment.source] + numbers[segment.target]) / 2) for segment in segments]
    axes.add_collection(LineCollection([segment.shape for segment in segments], colors=shades, linewidths=2, zorder=1))
    observed = field.coordinates[field.graph.index(field.nodes)]
    axes.plot(*observed.T, "o", markersize=3, color="black", markerfacecolor="white", markeredgewidth=0.6, zorder=2)
    axes.autoscale_view()
    degrees = field.roads is not None and field.roads.metric == "haversine"
    axes.set_aspect(1 / np.cos(np.radians(field.coordinates[:, 1].mean())) if degrees else 1.0)
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


def _color_scale(values: NDArray[np.float64], colors: str) -> ScalarMappable:
    return ScalarMappable(Normalize(*color_range(values)), colors)


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


def _numbers(tensor: Any) -> NDArray[np.float64]:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def __dir__() -> list[str]:
    return sorted(name for name, value in globals().items() if getattr(value, "__module__", None) == __name__)
