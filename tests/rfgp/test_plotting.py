from functools import partial

import numpy as np
import pytest
import studies
import torch
import trimesh
from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from refusals import refused
from scipy import stats

import graphs
import rfgp
from rfgp import datasets, plotting
from rfgp import kernels as k
from rfgp.compare import Plan, compare_table


@pytest.fixture(scope="module")
def comparison():
    table = datasets.make_table()
    return compare_table(table.X, table.y, num_train=60, num_test=20, sizes=[8, 32], plan=Plan(1, 3, 0))


@pytest.fixture(scope="module")
def curve():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 60)
    y = np.sin(x) + 0.2 * rng.standard_normal(60)
    gp = rfgp.SparseSpectrumGP(num_frequencies=50, seed=0).fit(x[:, None], y)
    return x, y, gp


def ball():
    return studies.ball(subdivisions=1)


def drawn(axes):
    """The picture of the axes' figure, as an array; fails where drawing does."""
    assert isinstance(axes.figure, Figure)
    return plotting.to_png(axes.figure)


@pytest.mark.slow
def test_a_band_shows_the_mean_and_both_intervals(curve):
    x, y, gp = curve
    p = gp.predict(x[:, None])
    axes = plotting.plot_prediction_band(x, p, data=(x, y))
    order = np.argsort(x)
    line = axes.lines[0]
    np.testing.assert_array_equal(line.get_xdata(), x[order])
    np.testing.assert_allclose(line.get_ydata(), p.mean[order])
    outer, inner = (collection.get_paths()[0].vertices for collection in axes.collections)
    for band, law in ((outer, p.observed()), (inner, p)):
        top = p.mean + 1.96 * np.sqrt(law.variance)
        assert band[:, 1].max() == pytest.approx(top.max())
    assert len(drawn(axes)) > 10_000
    tensors = gp.predict(torch.as_tensor(x[:, None]))
    np.testing.assert_allclose(plotting.plot_prediction_band(x, tensors).lines[0].get_ydata(), p.mean[order])
    refused(lambda: plotting.plot_prediction_band(x[:3], p), rfgp.InvalidArgumentError, "x must have")


@pytest.mark.slow
def test_a_calibration_curve_is_the_coverage(curve):
    x, y, gp = curve
    p = gp.predict(x[:, None])
    axes = plotting.plot_calibration(y, p)
    levels, shares = axes.lines[1].get_data()
    inside = np.abs(y - p.mean) <= stats.norm.ppf(0.5 + levels[20] / 2) * p.observed().std
    assert shares[20] == pytest.approx(inside.mean())
    drawn(axes)
    calibration = gp.calibration([0.5, 0.9])
    axes = plotting.plot_calibration(calibration)
    np.testing.assert_array_equal(axes.lines[1].get_data(), [calibration.levels, calibration.coverage])
    assert axes.lines[1].get_label() == "60 rows, left out one at a time"
    refused(lambda: plotting.plot_calibration(y), rfgp.InvalidArgumentError, "prediction must be given")
    before, axes = pyplot.get_fignums(), Figure().subplots()
    assert plotting.plot_calibration(y, p, axes=axes) is axes
    assert pyplot.get_fignums() == before


@pytest.mark.slow
@pytest.mark.parametrize(("plot", "figure"), [(plotting.plot_kernel_error, "kernel_error"), (plotting.plot_kl, "kl")])
def test_curves_by_size_show_the_means(comparison, plot, figure):
    axes = plot(comparison)
    for container, method in zip(axes.containers, ("iid", "orthogonal", "pairwise", "energy"), strict=True):
        heights = np.asarray(container.lines[0].get_ydata(), dtype=np.float64)
        expected = [comparison.estimate(figure, method, size).mean for size in (8, 32)]
        np.testing.assert_allclose(heights, expected)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "32"]
    drawn(axes)


@pytest.mark.parametrize("kind", ["trimesh", "MeshField", "plane"])
def test_mesh_plots_take_any_mesh(kind):
    sphere = trimesh.creation.icosphere(1)
    plane = sphere.vertices[:, :2], sphere.faces
    mesh = {"trimesh": sphere, "MeshField": graphs.MeshField(sphere), "plane": plane}[kind]
    heights = sphere.vertices[:, 2]
    by_face, by_vertex = (
        plotting.plot_mesh_field(mesh, values).collections[0].get_facecolor()
        for values in (heights[sphere.faces].mean(axis=1), heights)
    )
    assert len(by_face) == 80
    np.testing.assert_array_equal(by_face, by_vertex)
    refused(lambda: plotting.plot_mesh_field(mesh, heights[:5]), rfgp.InvalidArgumentError, "42 vertices or 80 faces")


@pytest.mark.slow
def test_a_road_field_colours_every_piece():
    field = studies.town()
    values = field.coordinates[:, 0]
    axes = plotting.plot_road_field(field, values, title="west to east")
    segments = graphs.split_roads(field.roads.lines, field.roads.sensor_edges, field.roads.sensor_fractions).segments
    lines = next(c for c in axes.collections if isinstance(c, LineCollection))
    shades = lines.get_colors()
    assert len(shades) == len(segments)
    middle = np.array([values[[segment.source, segment.target]].mean() for segment in segments])
    assert np.corrcoef(middle, shades[:, 1])[0, 1] > 0.9  # viridis grows greener
    drawn(axes)
    refused(lambda: plotting.plot_road_field(ball(), values), rfgp.InvalidArgumentError, "on roads")


@pytest.mark.slow
def test_a_spectrum_shows_the_fitted_kernel_and_the_noise():
    kernel = graphs.kernels.FreeModulation(factors=(0.5, 2.0))
    gp = rfgp.GraphGP(ball().graph, kernel, features="exact").condition(ball().nodes, ball().values)
    axes = plotting.plot_spectrum(gp)
    fitted, family, noise = axes.lines
    scale = gp.hyperparameters.outputscale.item()
    np.testing.assert_allclose(fitted.get_ydata(), scale * kernel.spectral(np.linspace(0, 2, 401)))
    np.testing.assert_allclose(family.get_ydata(), scale * kernel.base.spectral(np.linspace(0, 2, 401)))
    assert noise.get_ydata()[0] == pytest.approx(gp.hyperparameters.noise.item())
    assert drawn(axes)
    plain = rfgp.GraphGP(ball().graph).condition(ball().nodes, ball().values)
    assert len(plotting.plot_spectrum(plain).lines) == 2


@pytest.mark.slow
def test_term_is_drawn_with_its_centered_posterior():
    rng = np.random.default_rng(0)
    X = {
        "t": np.arange(60.0),
        "a": rng.uniform(size=60),
        "b": rng.uniform(size=60),
        "store": rng.choice(["x", "y"], 60),
    }
    y = np.sin(2 * np.pi * X["t"] / 12) + X["a"] * X["b"] + (X["store"] == "y") + 0.1 * rng.standard_normal(60)
    kernel = k.Periodic("t", period=12.0, name="season") + k.RBF(("a", "b"), name="map") + k.Group("store", name="shop")
    gp = rfgp.GP(kernel, seed=0).fit(X, y)
    curve, levels, area = (plotting.plot_term(gp, name, X) for name in ("season", "shop", "map"))
    for axes in (curve, levels, area):
        drawn(axes)
    x, mean = curve.lines[0].get_data()
    term = gp.predict({name: np.resize(X[name], len(x)) for name in X} | {"t": x}).of("season").centered()
    np.testing.assert_allclose(mean, term.mean, rtol=1e-9, atol=1e-12)
    band = curve.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((term.mean + 1.96 * term.std).max())
    assert [text.get_text() for text in levels.get_yticklabels()] == ["x", "y"]
    assert (area.get_xlabel(), area.get_ylabel()) == ("a", "b")


def test_a_term_of_several_columns_is_drawn_along_one():
    X = {"t": np.arange(8.0), "a": np.linspace(0, 1, 8), "store": np.array(list("xyxyxyxy"))}
    kernel = k.RBF("t") + (k.Linear("a") * k.Group("store")).named("slope")
    gp = rfgp.GP(kernel, start={"noise": 0.1}).condition(X, X["a"] * (X["store"] == "x"))
    axes = plotting.plot_term(gp, "slope", X, column="a")
    assert (axes.get_xlabel(), axes.get_title()) == ("a", "slope, others at typical values")
    for name, column, word in (("slope", None, "column"), ("slope", "t", "column"), ("slpoe", None, "Did you mean")):
        refused(partial(plotting.plot_term, gp, name, X, column=column), rfgp.InvalidArgumentError, word)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.linspace(0, 1, 80), (0.01, 0.99)),
        (0.219889 + 1e-8 * np.arange(80), (0.95 * 0.219889, 1.05 * 0.219889)),
        (np.full(80, -2.0), (-2.1, -1.9)),
        (np.zeros(80), (0.0, 0.5)),
    ],
)
def test_mesh_fields_color_every_face_on_a_scale_around_the_values(values, expected):
    field = ball()
    axes = plotting.plot_mesh_field(field, values, title="z")
    drawn(axes)
    assert len(axes.collections[0].get_facecolor()) == 80
    assert axes.figure.axes[1].get_ylim() == pytest.approx(expected, rel=1e-4)


def test_values_that_do_not_fit_a_mesh_are_refused():
    field = ball()
    for where, values, word in (
        (field, field.values[:3], "values"),
        (field, np.zeros((80, 1)), "values"),
        (studies.town(), field.values, "mesh"),
    ):
        refused(partial(plotting.plot_mesh_field, where, values), rfgp.InvalidArgumentError, word)
