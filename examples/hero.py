"""A table with terms, roads and a machine part: three models with error bars. It draws the picture of the README.

    python examples/hero.py [PICTURE]

Bicycles are rented in Washington (UCI, H. Fanaee-T and J. Gama 2013, CC BY 4.0). Speeds are from sensors on highways of
San Jose (California Department of Transportation, through MetricGraph, GPL). The part is a model of trimesh (MIT), and
its temperatures are simulated.
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import trimesh

import graphs
import rfgp
from rfgp import datasets
from rfgp import kernels as k
from rfgp.palette import COLORS

os.environ.setdefault("RFGP_DATA_DIR", str(Path(__file__).resolve().parent.parent / "data"))


def fit_bikes() -> tuple[Any, rfgp.GP]:
    """Return the days (a dataframe) and the model: terms of the date, the kind of day and the weather."""
    bikes = datasets.load("bikes")
    bikes["rentals"] /= 1000
    trend = k.RBF("date", lengthscale=180.0, name="trend")  # days; the fit starts there
    rest = k.Matern("date", nu=0.5, lengthscale=5.0, name="days")
    weather = k.RBF("temperature", name="temperature") + k.RBF("humidity", name="humidity") + k.RBF("wind", name="wind")
    return bikes, rfgp.GP(trend + rest + k.Group("kind") + weather, seed=0).fit(bikes, "rentals")


def fit_roads() -> tuple[graphs.Roads, graphs.RoadNetwork, rfgp.RoadGP]:
    """Return the roads with their sensors, the network and the model of the speeds."""
    roads = datasets.load("pems")
    network = graphs.RoadNetwork.from_roads(roads)
    sensors = np.column_stack([roads.sensor_edges, roads.sensor_fractions])
    return roads, network, rfgp.RoadGP(network, alpha=2, seed=0).fit(sensors, roads.values)


def heat(places: np.ndarray) -> np.ndarray:
    """Return simulated temperatures (n,) at places (n, 3) of the part, in degrees Celsius: its left end is hot."""
    return 20 + 60 * np.exp(-np.linalg.norm(places - [0.0, 0.0, 0.3], axis=1))


def fit_part() -> tuple[Any, rfgp.MeshGP]:
    """Return the part and the model of 60 temperatures on its surface, with noise of 1 degree."""
    part = datasets.load("idler_riser")
    places, _ = trimesh.sample.sample_surface(part, 60, seed=3)
    noise = np.random.default_rng(0).normal(size=60)
    return part, rfgp.MeshGP(part, alpha=1, seed=0).fit(places, heat(places) + noise)


def draw_bikes(figure: Any, bikes: Any, gp: rfgp.GP) -> None:
    """Draw the last half year with its band, and three terms of both years."""
    from matplotlib import dates

    grid = figure.add_gridspec(2, 3, height_ratios=(1.35, 1))
    axes = figure.add_subplot(grid[0, :])
    last = bikes[bikes["date"] >= "2012-07-01"]
    p = gp.predict(last).observed()
    axes.fill_between(last["date"], *p.interval(0.95), color=COLORS[0], alpha=0.25, lw=0, label="95 % band")
    axes.plot(last["date"], p.mean, color=COLORS[0], lw=0.9, label="mean")
    axes.plot(last["date"], last["rentals"], ".", color="black", ms=3, label="data")
    axes.set(title="A table: bicycles rented each day, in thousands", ylim=(0, 11.5), xmargin=0.01)
    axes.xaxis.set_major_locator(dates.MonthLocator())
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(dates.MonthLocator()))
    axes.legend(loc="upper left", frameon=False, ncols=3, handlelength=1.2, columnspacing=1)
    days = bikes.assign(temperature=15.0, humidity=60.0)  # the weather of a typical day
    for i, (name, column, unit) in enumerate(
        (("trend", "date", ""), ("temperature", "temperature", "°C"), ("humidity", "humidity", "%"))
    ):
        axes = figure.add_subplot(grid[1, i])
        low, high = bikes[column].quantile([0.005, 0.995]) if i else (None, None)
        rows = days.assign(**{column: np.linspace(low, high, len(days))}) if i else days
        effect = gp.predict(rows).terms[name].centered()
        axes.fill_between(rows[column], *effect.interval(0.95), color=COLORS[i + 1], alpha=0.35, lw=0)
        axes.plot(rows[column], effect.mean, color=COLORS[i + 1])
        axes.axhline(0, color="0.7", lw=0.6, zorder=0)
        axes.set(title=("= trend", "+ temperature", "+ humidity + ...")[i], ylim=(-2.6, 2.2), xlabel=unit)
        axes.tick_params(labelleft=i == 0)
        if i == 0:
            axes.xaxis.set_major_locator(dates.YearLocator())
            axes.xaxis.set_major_formatter(dates.DateFormatter("%Y"))


def draw_roads(figure: Any, roads: graphs.Roads, network: graphs.RoadNetwork, gp: rfgp.RoadGP) -> None:
    """Draw the mean speed of four pieces of each road, and its standard deviation."""
    from matplotlib.collections import LineCollection

    road = np.repeat(np.arange(network.num_roads), 4)
    first = np.tile(np.arange(4) / 4, network.num_roads)
    pieces = np.stack([network.point(np.column_stack([road, first + step])) for step in (0.0, 0.25)], axis=1)
    p = gp.predict(np.column_stack([road, first + 0.125]))
    sensors = network.point(np.column_stack([roads.sensor_edges, roads.sensor_fractions]))
    figure.suptitle("Roads: speeds in San Jose, mph", fontsize=8.5)
    for axes, values, title, colors in zip(
        figure.subplots(1, 2), (p.mean, p.std), ("mean", "standard deviation"), ("viridis", "cividis"), strict=True
    ):
        lines = axes.add_collection(LineCollection(pieces, cmap=colors, array=values, lw=3, capstyle="round"))
        lines.set_clim(*np.quantile(values, [0.02, 0.98]))
        if title == "standard deviation":
            axes.plot(*sensors.T, ".", ms=1.6, color="white", mew=0)
        axes.autoscale_view()
        axes.set_aspect(1 / np.cos(np.radians(37.3)))
        axes.set_axis_off()
        axes.set_title(title, fontsize=8)
        figure.colorbar(lines, ax=axes, shrink=0.85, aspect=12, extend="both")


def draw_part(figure: Any, part: Any, gp: rfgp.MeshGP) -> None:
    """Draw the mean temperature of small faces, and its standard deviation."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    fine = part.subdivide_to_size(0.15)
    p = gp.predict(fine.triangles_center)
    light = 0.75 + 0.25 * np.abs(fine.face_normals @ [0.3, -0.5, 0.8])
    figure.suptitle("Surfaces: a machine part, simulated temperature, °C", fontsize=8.5)
    for i, (values, title, colors) in enumerate(((p.mean, "mean", "plasma"), (p.std, "standard deviation", "cividis"))):
        axes = figure.add_subplot(1, 2, i + 1, projection="3d")
        scale = ScalarMappable(Normalize(*np.quantile(values, [0.01, 0.99])), colors)
        shades = scale.to_rgba(values) * np.column_stack([light, light, light, np.ones(len(light))]).clip(0, 1)
        axes.add_collection3d(Poly3DCollection(fine.triangles, facecolors=shades, edgecolors=shades, linewidths=0.2))
        axes.auto_scale_xyz(*fine.vertices.T)
        axes.set_box_aspect(np.array(fine.extents), zoom=1.22)
        axes.view_init(42, -60)
        axes.set_axis_off()
        axes.set_title(title, fontsize=8)
        figure.colorbar(scale, ax=axes, shrink=0.85, aspect=12, extend="both")


def main() -> None:
    bikes, days = fit_bikes()
    covered = days.calibration()
    print(f"bicycles: {covered.coverage[list(covered.levels).index(0.95)]:.0%} of the days in their 95 % intervals")
    for name, term in days.terms.items():
        print(f"  {name}: {term.share:.0%} of the variance")
    roads, network, speeds = fit_roads()
    left_out = speeds.leave_one_out()
    print(f"roads: a left-out sensor has an error of {rfgp.metrics.rmse(roads.values, left_out.mean):.1f} mph")
    part, surface = fit_part()
    places, _ = trimesh.sample.sample_surface(part, 1000, seed=0)
    print(f"part: root mean square error {rfgp.metrics.rmse(heat(places), surface.predict(places)):.2f} degrees")
    if len(sys.argv) > 1 and sys.argv[1].endswith(".png"):
        import matplotlib.figure
        from PIL import Image

        matplotlib.rcParams.update({"font.size": 8, "axes.titlesize": 8.5})
        matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
        figure = matplotlib.figure.Figure(figsize=(8, 3.5), layout="constrained")
        left, right = figure.subfigures(1, 2, width_ratios=(1.15, 1))
        upper, lower = right.subfigures(2, 1)
        draw_bikes(left, bikes, days)
        draw_roads(upper, roads, network, speeds)
        draw_part(lower, part, surface)
        figure.savefig(sys.argv[1], dpi=200)
        Image.open(sys.argv[1]).convert("RGB").save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
