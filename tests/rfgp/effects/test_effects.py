"""Effects of variables: planted functions are within their bands, and figures show levels, dates and factors."""

import numpy as np
import pandas as pd
import pytest

import rfgp
from rfgp import kernels as k
from rfgp import report
from rfgp.effects.effects import MAX_LEVELS, MAX_PARTIAL, effect_sizes, effects_of, scale_of
from rfgp.effects.variables import input_frame, variables_of
from rfgp.likelihoods import Bernoulli, Gaussian, Poisson
from rfgp.report import terms
from rfgp.report.effect_figures import effect_figures
from rfgp.tables import Table
from rfgp.tables.schema import ColumnRule, Schema
from rfgp.tables.table import times_of

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")

STORES = ("north", "south", "west")
LEVELS = np.array([-0.6, 0.0, 0.6])


def sales(rows=240, seed=0):
    """Return a table of a trend, a season of a week, stores and prices, with the parts of its target."""
    rng = np.random.default_rng(seed)
    day, price, store = rng.integers(19_000, 19_200, rows), rng.uniform(-2, 2, rows), rng.integers(0, 3, rows)
    parts = {"trend": np.sin(day / 30), "season": 0.5 * np.cos(2 * np.pi * day / 7), "store": LEVELS[store]}
    parts["price"] = 0.3 * price**2
    rules = (ColumnRule("day", 0, "date"), ColumnRule("price", 1), ColumnRule("store", 2, "category", STORES))
    schema = Schema(rules, ColumnRule("units", 3), 4)
    y = sum(parts.values()) + 0.1 * rng.standard_normal(rows)
    return Table(np.column_stack([day, price, np.eye(3)[store]]), y, schema.columns, "units", schema)


@pytest.fixture(scope="module")
def fitted():
    table = sales()
    kernel = k.RBF("day", name="trend") + k.Periodic("day", period=7, name="season") + k.Group("store") + k.RBF("price")
    gp = rfgp.GP(kernel, seed=0)
    return table, gp.fit(input_frame(table, gp), table.y)


def by_term(gp, table):
    return {effect.terms[0]: effect for effect in effects_of(gp, table)}


def check_within_band(effect, truth):
    """Check that an effect is the centred truth, within four standard deviations at all of its points."""
    error = effect.mean - (truth - truth.mean())
    assert np.all(np.abs(error) <= 4 * effect.std + 1e-3)
    assert np.mean(np.abs(error) <= 2 * effect.std + 1e-3) > 0.7
    assert effect.std.max() < 0.5 * np.ptp(truth)


def test_additive_functions_are_recovered_within_bands(fitted):
    table, gp = fitted
    effects = by_term(gp, table)
    days = effects["trend"].values[0]
    check_within_band(effects["trend"], np.sin(days / 30))
    check_within_band(effects["season"], 0.5 * np.cos(2 * np.pi * effects["season"].values[0] / 7))
    check_within_band(effects["rbf(price)"], 0.3 * effects["rbf(price)"].values[0] ** 2)
    assert [effects[name].shape for name in ("trend", "season", "rbf(price)")] == ["curve"] * 3


def test_bands_of_contrasts_leave_out_shared_constants(fitted):
    """The level of each of two smooth terms is unknown, and their contrasts are not."""
    table, gp = fitted
    effect = by_term(gp, table)["trend"]
    rows = {"day": times_of(effect.values[0]), "price": np.zeros(200), "store": ["north"] * 200}
    uncentered = gp.predict(rows).terms["trend"].std
    assert effect.std.mean() < 0.5 * uncentered.mean()


def test_figure_of_a_group_has_its_levels(fitted):
    table, gp = fitted
    effect = by_term(gp, table)["group(store)"]
    assert dict(zip(effect.values[0], effect.mean, strict=True)) == pytest.approx(
        dict(zip(STORES, LEVELS, strict=True)), abs=0.1
    )
    (figure,) = effect_figures(effect, scale_of(Gaussian(), table.target))
    assert list(figure.layout.yaxis.ticktext) == list(STORES)
    (points,) = figure.data
    np.testing.assert_allclose(points.error_x.array, 1.959964 * effect.std, rtol=1e-4)


def test_curves_have_bands_rugs_and_dates(fitted):
    table, gp = fitted
    effects = by_term(gp, table)
    (figure,) = effect_figures(effects["trend"], scale_of(Gaussian(), table.target))
    band, line, rug = figure.data
    assert line.x[0] == "2022-01-08"
    assert len(band.x) == 2 * len(line.x)
    assert set(rug.x) <= {str(np.datetime64(int(day), "D")) for day in table.X[:, 0]}
    season = effects["season"]
    assert np.ptp(season.values[0]) == pytest.approx(season.period) == pytest.approx(7)
    assert season.data[0].max() <= season.values[0].max()


def test_terms_are_a_section_of_the_page(fitted):
    table, gp = fitted
    section = terms.section(gp, table)
    grid, _, *plots = section.blocks
    assert [row[0] for row in grid.rows] == ["trend", "season", "group(store)", "rbf(price)"]
    assert len(plots) == 4
    assert "Term season: effect of day, over one period of 7 days." in [plot.caption for plot in plots]


def test_categories_that_are_named_are_read_as_texts(fitted):
    table, gp = fitted
    frame = input_frame(table, gp)
    assert {*frame["store"]} == {*STORES}
    assert [variable.name for variable in variables_of(table, gp, frame)] == ["day", "price", "store"]
    assert "store" not in input_frame(table, rfgp.GP()).columns


def test_columns_of_levels_are_categories_of_texts():
    schema = Schema((ColumnRule("store", 0, "level", STORES),), ColumnRule("units", 1), 2)
    table = Table(np.array([[1.0], [0.0], [1.0]]), np.zeros(3), ("store",), "units", schema)
    frame = pd.DataFrame({"store": ["south", "north", "south"]})
    (variable,) = variables_of(table, rfgp.GP(k.Group("store")), frame)
    assert (variable.role, variable.typical(frame)) == ("category", "south")
    assert variable.cells(["west"])["store"].tolist() == ["west"]


def test_two_numbers_have_maps_of_mean_and_deviation():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (150, 2))
    table = Table(X, X[:, 0] * X[:, 1] + 0.01 * rng.standard_normal(150), ("a", "b"), "y")
    gp = rfgp.GP(k.RBF(), seed=0).fit(table.frame(), table.y)
    (effect,) = effects_of(gp, table)
    first, second = np.meshgrid(*effect.values)
    np.testing.assert_allclose(effect.mean, first * second - np.mean(first * second), atol=0.05)
    mean, deviation = effect_figures(effect, scale_of(Gaussian(), table.target))
    np.testing.assert_allclose(deviation.data[0].z, effect.std, rtol=1e-4)
    np.testing.assert_allclose(mean.data[0].x, effect.values[0], rtol=1e-4)


def test_many_columns_have_partial_effects_of_the_sum():
    """Columns with large effects come first, and terms of the same columns are added."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 10))
    table = Table(X, np.sin(X[:, 4]) + 0.5 * X[:, 7] + 0.05 * rng.standard_normal(200), tuple("abcdefghij"), "y")
    gp = rfgp.GP(k.RBF(name="one") + k.Matern(name="two"), approximation=rfgp.Exact(), seed=0)
    gp.fit(table.frame(), table.y, max_iterations=60)
    found = effects_of(gp, table)
    assert len(found) == MAX_PARTIAL
    assert {effect.variables[0].name for effect in found[:2]} == {"e", "h"}
    assert all(effect.terms == ("one", "two") and effect.is_partial for effect in found)
    smooth = next(effect for effect in found if effect.variables[0].name == "e")
    inside = np.abs(smooth.values[0]) < 2
    error = smooth.mean - np.sin(smooth.values[0])
    assert np.ptp(error[inside]) < 0.4
    sizes = effect_sizes(gp, table)
    assert sorted(sizes, key=sizes.get)[-2:] in (["e", "h"], ["h", "e"])


def test_indicators_of_a_category_are_one_variable():
    """A kernel over all columns reads zeros and ones, and the effect is that of levels."""
    table = sales(120)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(table.frame(), table.y, max_iterations=40)
    effects = {effect.variables[0].name: effect for effect in effects_of(gp, table)}
    assert set(effects) == {"day", "price", "store"}
    assert list(effects["store"].values[0]) == list(STORES)
    assert effects["store"].mean[2] - effects["store"].mean[0] > 0.5


def test_of_many_levels_the_largest_effects_are_shown():
    rng = np.random.default_rng(3)
    level, truth = np.repeat(np.arange(50), 4), np.linspace(-2, 2, 50)
    table = Table(level[:, None].astype(float), truth[level] + 0.1 * rng.standard_normal(200), ("site",), "y")
    gp = rfgp.GP(k.Group("site"), seed=0).fit(table.frame(), table.y)
    (effect,) = effects_of(gp, table)
    assert effect.num_levels == 50
    assert len(effect.mean) == MAX_LEVELS
    assert set(effect.values[0]) == {float(site) for site in range(50) if abs(truth[site]) > 0.8}


def test_averages_show_the_member_with_the_largest_weight():
    table = sales(60)
    gp = rfgp.GP(seed=0).fit(table.frame(), table.y)
    assert gp.members
    ours, largest = effects_of(gp, table), effects_of(gp.members[0][1], table)
    np.testing.assert_allclose(ours[0].mean, largest[0].mean)


@pytest.mark.parametrize(
    ("likelihood", "target", "is_factor", "name"),
    [
        (Gaussian(), "units", False, "effect on units"),
        (Gaussian(), "log of units", True, "factor of units"),
        (Poisson(), "visits", True, "factor of visits"),
        (Bernoulli(), "churn", False, "effect on the log odds"),
    ],
)
def test_scales_of_effects_follow_likelihood_and_target(likelihood, target, is_factor, name):
    scale = scale_of(likelihood, target)
    assert (scale.is_factor, scale.name) == (is_factor, name)
    assert scale.shown([0.0]).tolist() == [float(is_factor)]


def test_counts_are_multiplied_by_planted_factors():
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 6, 400)
    table = Table(x[:, None], rng.poisson(np.exp(1 + np.sin(x))).astype(float), ("hour",), "visits")
    gp = rfgp.GP(k.RBF("hour"), "poisson", seed=0)
    study = report.study_table(table, gp, compare=False)
    (effect,) = effects_of(study.model, table)
    check_within_band(effect, np.sin(effect.values[0]))
    (figure,) = effect_figures(effect, scale_of(Poisson(), table.target))
    np.testing.assert_allclose(figure.data[1].y, np.exp(effect.mean), rtol=1e-4)
    assert "factors by which the mean of visits is multiplied" in report.table_report(study, table)
