"""Effects of variables: known functions are within their bands, for curves, levels, maps and counts."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k
from rfgp import report
from rfgp.tables import ColumnRule, Schema, Table

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
STORES, LEVELS = ("north", "south", "west"), np.array([-0.6, 0.0, 0.6])


def sales(rows=240, seed=0):
    """Return a table of a trend, a season of a week, stores and prices."""
    rng = np.random.default_rng(seed)
    day, price, store = rng.integers(19_000, 19_200, rows), rng.uniform(-2, 2, rows), rng.integers(0, 3, rows)
    y = np.sin(day / 30) + 0.5 * np.cos(2 * np.pi * day / 7) + LEVELS[store] + 0.3 * price**2
    rules = (ColumnRule("day", 0, "date"), ColumnRule("price", 1), ColumnRule("store", 2, "category", STORES))
    schema = Schema(rules, ColumnRule("units", 3), 4)
    X = np.column_stack([day, price, np.eye(3)[store]])
    return Table(X, y + 0.1 * rng.standard_normal(rows), schema.columns, "units", schema)


def check_within_band(effect, truth):
    """Check that an effect is the centered truth, within four standard deviations at all of its points."""
    error = effect.mean - (truth - truth.mean())
    assert np.all(np.abs(error) <= 4 * effect.std + 1e-3)
    assert np.mean(np.abs(error) <= 2 * effect.std + 1e-3) > 0.7
    assert effect.std.max() < 0.5 * np.ptp(truth)


def test_additive_functions_are_within_their_bands():
    table = sales()
    kernel = k.RBF("day", name="trend") + k.Periodic("day", period=7, name="season") + k.Group("store") + k.RBF("price")
    gp = rfgp.GP(kernel, seed=0)
    gp.fit(report.input_frame(table, gp), table.y)
    trend, season, store, price = report.effects_of(gp, table)
    check_within_band(trend, np.sin(trend.values[0] / 30))
    check_within_band(season, 0.5 * np.cos(2 * np.pi * season.values[0] / 7))
    check_within_band(price, 0.3 * price.values[0] ** 2)
    assert [one.shape for one in (trend, season, store, price)] == ["curve", "curve", "levels", "curve"]
    assert np.ptp(season.values[0]) == pytest.approx(season.period) == pytest.approx(7)
    assert season.data[0].max() <= season.values[0].max()
    assert list(store.values[0]) == list(STORES)
    np.testing.assert_allclose(store.mean, LEVELS, atol=0.1)
    days = trend.values[0].astype(int).astype("datetime64[D]")
    rows = {"day": days, "price": np.zeros(len(days)), "store": ["north"] * len(days)}
    assert trend.std.mean() < 0.5 * gp.predict(rows).terms["trend"].std.mean()  # the level of two terms is unknown


def test_two_numbers_have_a_map_of_mean_and_deviation():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (120, 2))
    table = Table(X, X[:, 0] * X[:, 1] + 0.01 * rng.standard_normal(120), ("a", "b"), "y")
    gp = rfgp.GP(k.RBF(), seed=0).fit(table.frame(), table.y)
    (effect,) = report.effects_of(gp, table)
    first, second = np.meshgrid(*effect.values)
    assert effect.shape == "map"
    assert effect.mean.shape == effect.std.shape == first.shape
    np.testing.assert_allclose(effect.mean, first * second - np.mean(first * second), atol=0.05)


def test_many_columns_have_partial_effects_of_the_sum():
    """Columns with large effects come first, and terms of the same columns are added."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((150, 10))
    table = Table(X, np.sin(X[:, 4]) + 0.5 * X[:, 7] + 0.05 * rng.standard_normal(150), tuple("abcdefghij"), "y")
    gp = rfgp.GP(k.RBF(name="one") + k.Matern(name="two"), approximation=rfgp.Exact(), seed=0)
    gp.fit(table.frame(), table.y, max_iterations=60)
    found = {effect.variables[0].name: effect for effect in report.effects_of(gp, table)}
    assert len(found) == 8
    assert set(list(found)[:2]) == {"e", "h"}
    assert all(effect.terms == ("one", "two") and effect.is_partial for effect in found.values())
    smooth = found["e"]
    inside = np.abs(smooth.values[0]) < 2
    assert np.ptp((smooth.mean - np.sin(smooth.values[0]))[inside]) < 0.4


def test_of_many_levels_the_largest_effects_are_shown():
    rng = np.random.default_rng(3)
    level, truth = np.repeat(np.arange(50), 4), np.linspace(-2, 2, 50)
    table = Table(level[:, None].astype(float), truth[level] + 0.1 * rng.standard_normal(200), ("site",), "y")
    gp = rfgp.GP(k.Group("site"), seed=0).fit(table.frame(), table.y)
    (effect,) = report.effects_of(gp, table)
    assert (effect.num_levels, len(effect.mean)) == (50, 30)
    assert set(effect.values[0]) == {float(site) for site in range(50) if abs(truth[site]) > 0.8}


@pytest.mark.slow
def test_counts_are_multiplied_by_factors():
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 6, 300)
    table = Table(x[:, None], rng.poisson(np.exp(1 + np.sin(x))).astype(float), ("hour",), "visits")
    gp = rfgp.GP(k.RBF("hour"), "poisson", seed=0)
    study = report.study_table(table, gp, compare=False)
    (effect,) = report.effects_of(study.model, table)
    check_within_band(effect, np.sin(effect.values[0]))
    assert "factors by which the mean of visits is multiplied" in report.table_report(study, table)


def test_indicators_of_a_category_are_one_variable():
    """A kernel over all columns reads zeros and ones, and the effect is that of levels."""
    table = sales(120)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(table.frame(), table.y, max_iterations=40)
    effects = {effect.variables[0].name: effect for effect in report.effects_of(gp, table)}
    assert set(effects) == {"day", "price", "store"}
    assert list(effects["store"].values[0]) == list(STORES)
    assert effects["store"].mean[2] - effects["store"].mean[0] > 0.5
    page = report.table_report(report.study_table(table, gp, compare=False), table)
    assert "effect of day" in page


@pytest.mark.slow
def test_averages_show_the_member_with_the_largest_weight():
    table = sales(60)
    gp = rfgp.GP(seed=0).fit(table.frame(), table.y, max_iterations=20)
    assert gp.members
    ours, largest = report.effects_of(gp, table), report.effects_of(gp.members[0][1], table)
    np.testing.assert_allclose(ours[0].mean, largest[0].mean)
