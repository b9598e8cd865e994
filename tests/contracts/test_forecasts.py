"""Forecasts, backtests and the selection of models of series: what a user with a column of dates does."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import rfgp
from rfgp import kernels as k

LEVEL = k.Wiener("when", name="level")


def hourly(num_days=30, seed=0):
    """Return hours with a wandering level and a day, with gaps, and the hours that follow."""
    rng, n = np.random.default_rng(seed), 24 * num_days + 48
    t = np.arange(n)
    y = 20 + 0.1 * np.cumsum(rng.standard_normal(n)) + 5 * np.sin(t * 2 * np.pi / 24) + rng.standard_normal(n)
    table = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=n, freq="h"), "y": y})
    known = rng.random(n) > 0.03
    known[100:130], known[-48:] = False, False
    return table[known], table[-48:]


def series(n=60, name="t"):
    """Return a table of numbers with a level that wanders."""
    rng = np.random.default_rng(1)
    return {name: np.arange(float(n))}, np.cumsum(rng.standard_normal(n)) + 0.3 * rng.standard_normal(n)


def test_hours_as_text_are_dates():
    table, _ = hourly(12)
    texts = table.assign(when=table["when"].dt.strftime("%Y-%m-%d %H:%M"))
    given, found = (rfgp.GP(LEVEL + k.Harmonics("when", 1.0), seed=0).fit(one, "y") for one in (table, texts))
    pd.testing.assert_frame_equal(found.forecast(6), given.forecast(6))
    assert np.allclose(found.predict(texts[:3]).mean, given.predict(table[:3]).mean)


# --- The calendar -----------------------------------------------------------------------------------------------------

FREQUENCIES = ["MS", "ME", "QS-FEB", "QE", "YS", "YE", "D", "B", "W-MON", "h", "15min", "2D", "37min", "2MS"]


@pytest.mark.parametrize("frequency", FREQUENCIES)
@pytest.mark.parametrize("missing", [[], [5, 6, 11]], ids=["regular", "gaps"])
def test_steps_are_those_of_pandas(frequency, missing):
    dates = pd.date_range("2019-03-01", periods=60, freq=frequency)
    known = np.delete(np.arange(40), missing)
    gp = rfgp.GP(LEVEL, start={"noise": 0.1}, seed=0).condition({"when": dates[known]}, np.sin(known))
    assert gp.forecast(20)["when"].tolist() == list(dates[40:])
    assert gp.forecast(20, frequency=frequency)["when"].tolist() == list(dates[40:])
    assert gp.forecast(until=dates[50])["when"].tolist() == list(dates[40:51])
    frame = gp.backtest(5, 2, refit=False).frame
    assert frame["when"].tolist() == list(dates[30:40])
    assert frame["lead"].tolist() == [1, 2, 3, 4, 5] * 2


@pytest.mark.parametrize("frequency", ["MS", "ME", "QS", "B"])
def test_steps_do_not_depend_on_the_first_date(frequency):
    """Standardized times have rounding errors, by which a day may begin too early."""
    rng = np.random.default_rng(0)
    for _ in range(25):
        start = pd.Timestamp("1970-01-01") + pd.Timedelta(int(rng.integers(0, 15_000)), unit="D")
        dates = pd.date_range(start, periods=int(rng.integers(20, 200)), freq=frequency)
        gp = rfgp.GP(LEVEL, start={"noise": 0.1}, seed=0).condition(
            {"when": dates[:-1]}, np.sin(np.arange(len(dates) - 1))
        )
        assert gp.forecast(1)["when"][0] == dates[-1]


@pytest.mark.parametrize(("until", "hours"), [("2022-10-31 00:00", 25), ("2022-10-30 12:00", 13)])
def test_ends_are_those_of_the_clock(until, hours):
    dates = pd.date_range("2022-10-29", periods=24, freq="h", tz="Europe/Berlin")
    gp = rfgp.GP(LEVEL, start={"noise": 0.1}, seed=0).condition(pd.DataFrame({"when": dates}), np.arange(24.0))
    assert len(gp.forecast(until=until)) == hours + 1


def test_irregular_rows_have_their_median_distance():
    t = np.cumsum(np.random.default_rng(0).exponential(1.0, 201))
    gp = rfgp.GP(k.Wiener("t"), start={"noise": 0.1}, seed=0).condition({"t": t}, np.sin(t))
    frame = gp.forecast(1)
    assert frame.attrs["frequency"].startswith("irregular")
    assert frame["t"][0] - t[-1] == pytest.approx(np.median(np.diff(t)))


# --- Forecasts --------------------------------------------------------------------------------------------------------


def test_forecast_is_the_prediction_of_the_next_rows():
    known, after = hourly()
    kernel = LEVEL + k.Harmonics("when", 1, num_harmonics=2, name="day")
    gp = rfgp.GP(kernel, seed=0).fit(known[["when"]], known["y"])
    frame, prediction = gp.forecast(48, level=0.9), gp.predict(after[["when"]])
    assert list(frame) == ["when", "mean", "lower", "upper", "level", "day"]
    assert (frame["when"].to_numpy() == after["when"].to_numpy()).all()
    assert frame.attrs == {"level": 0.9, "frequency": "1 hour", "log": False, "widening": 1.0}
    low, high = prediction.observed().interval(0.9)
    for name, expected in {"mean": prediction.mean, "lower": low, "upper": high}.items():
        np.testing.assert_allclose(frame[name], expected, rtol=1e-9)
    mean = float(gp.hyperparameters["mean"].detach())
    np.testing.assert_allclose(frame["mean"], mean + frame["level"] + frame["day"], rtol=1e-9)
    width = frame["upper"] - frame["lower"]
    assert width.iloc[-1] > 1.1 * width.iloc[0]  # a level that wanders widens the band
    assert frame.equals(gp.forecast(until=after["when"].iloc[-1], level=0.9))
    assert frame.equals(gp.forecast(until=str(after["when"].iloc[-1]), level=0.9))


def test_hours_of_a_zone_follow_its_clock():
    dates = pd.date_range("2022-10-29", periods=24, freq="h", tz="Europe/Berlin")
    gp = rfgp.GP(LEVEL, start={"noise": 0.1}, seed=0).condition(pd.DataFrame({"when": dates}), np.arange(24.0))
    assert gp.forecast(10)["when"].tolist() == list(pd.date_range(dates[-1], periods=11, freq="h")[1:])


def test_other_columns_come_from_the_user():
    X, y = series()
    X["x"] = np.sin(X["t"])
    gp = rfgp.GP(k.Wiener("t") + k.Linear("x"), seed=0).fit(X, y)
    future = {"t": [60.0, 61.0], "x": [0.5, 1.0]}
    assert gp.forecast(future=future).equals(gp.forecast(future={"x": [0.5, 1.0]}))
    np.testing.assert_allclose(gp.forecast(2, future={"x": [0.5, 1.0]})["mean"], gp.predict(future).mean)


def test_saved_models_forecast_the_same(tmp_path):
    known, _ = hourly(10)
    gp = rfgp.GP(LEVEL, seed=0).fit(known[["when"]], known["y"])
    gp.save(tmp_path / "model.safetensors", data=True)
    assert rfgp.load(tmp_path / "model.safetensors").forecast(5).equals(gp.forecast(5))


def dated():
    """Return a model of days."""
    days = pd.date_range("2024-01-01", periods=60)
    return rfgp.GP(LEVEL, start={"noise": 0.1}, seed=0).condition({"when": days}, series()[1])


REFUSALS = {
    "no steps": (lambda gp: gp.forecast(), "steps"),
    "zero steps": (lambda gp: gp.forecast(0), "steps"),
    "both": (lambda gp: gp.forecast(2, until=80.0), "both"),
    "past": (lambda gp: gp.forecast(until=3.0), "after the last row"),
    "level": (lambda gp: gp.forecast(2, level=2.0), "level"),
    "frequency": (lambda gp: gp.forecast(2, frequency="D"), "frequency"),
    "rows": (lambda gp: gp.forecast(3, future={"x": [1.0]}), "one row for each step"),
    "times": (lambda gp: gp.forecast(3, future={"t": [60.0, 61.0]}), "must be None"),
    "horizon": (lambda gp: gp.backtest(31), "at most half"),
    "many steps": (lambda gp: gp.forecast(10**7), "at most 1,000,000"),
    "far": (lambda gp: gp.forecast(until=1e12), "at most 1,000,000 steps"),
    "no date": (lambda gp: dated().forecast(until="soon"), "a date such as"),
    "a number": (lambda gp: dated().forecast(until=70), "a date such as"),
    "a zone": (lambda gp: dated().forecast(until="2024-03-03T00:00Z"), "no time zone"),
    "two outputs": (
        lambda gp: (
            rfgp.GP(k.Wiener("t"), start={"noise": 0.1}, seed=0).condition(series()[0], np.eye(60)[:, :2]).forecast(2)
        ),
        "one output",
    ),
    "nine rows": (lambda gp: rfgp.GP(seed=0).fit({"t": np.arange(9.0)}, np.arange(9.0), horizon=2), "at least 10 rows"),
    "no horizon": (lambda gp: gp.backtest(0), "horizon"),
    "other level": (
        lambda gp: gp.forecast(2, backtest=gp.backtest(2, 3, refit=False), level=0.5),
        "that of the backtest",
    ),
    "given kernel": (lambda gp: gp.fit(*series(), horizon=3), "horizon"),
    "no times": (
        lambda gp: rfgp.GP(k.RBF(), seed=0).condition(np.eye(4), np.arange(4.0)).forecast(2),
        "one column of times",
    ),
    "unknown": (
        lambda gp: (
            rfgp.GP(k.Wiener("t") + k.Linear("x"), seed=0)
            .condition({**series()[0], "x": np.arange(60.0)}, series()[1])
            .forecast(2)
        ),
        "'x'",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_remedy(name):
    call, word = REFUSALS[name]
    with pytest.raises(rfgp.RfgpError, match=word):
        call(rfgp.GP(k.Wiener("t"), start={"noise": 0.1}, seed=0).condition(*series()))


# --- Backtests --------------------------------------------------------------------------------------------------------


def test_backtest_forecasts_from_rows_before_each_origin():
    X, y = series(60)
    gp = rfgp.GP(k.Wiener("t"), seed=0).fit(X, y)
    frame = gp.backtest(horizon=5, folds=3, level=0.9, refit=False).frame
    assert frame["origin"].unique().tolist() == [44.0, 49.0, 54.0]
    for origin, part in frame.groupby("origin"):
        known = X["t"] <= origin
        alone = rfgp.GP(gp.kernel, start={"noise": gp.hyperparameters["noise"], "mean": gp.hyperparameters["mean"]})
        alone = alone.condition({"t": X["t"][known]}, y[known]).predict({"t": part["t"].to_numpy()}).observed()
        np.testing.assert_allclose(part["mean"], alone.mean, rtol=1e-6)
        np.testing.assert_allclose(part["upper"], alone.interval(0.9)[1], rtol=1e-6)
        np.testing.assert_allclose(part["naive median"], y[int(origin)])  # the last value
        deviation = np.sqrt(np.mean(np.diff(y[: int(origin) + 1]) ** 2) * part["lead"])
        np.testing.assert_allclose(part["naive upper"] - part["naive median"], stats.norm.ppf(0.95) * deviation)
        probabilities = np.arange(1, 20) / 20
        error = part["y"].to_numpy() - alone.quantile(probabilities)
        loss = 2 * np.maximum(probabilities[:, None] * error, (probabilities[:, None] - 1) * error).mean(0)
        np.testing.assert_allclose(part["loss"], loss, rtol=1e-6)
    assert frame["lead"].tolist() == [1, 2, 3, 4, 5] * 3


def test_refits_use_no_later_row():
    """After a jump of the variance, hyperparameters of all rows would have wider bands."""
    X, y = series(80)
    y[60:] *= 20
    gp = rfgp.GP(k.Wiener("t"), seed=0).fit(X, y)
    known, all_rows = (gp.backtest(5, 5, refit=refit).frame for refit in (True, False))
    first = known["origin"] == known["origin"].min()
    width = (known["upper"] - known["lower"])[first].mean()
    assert 3 * width < (all_rows["upper"] - all_rows["lower"])[first].mean()


def test_seasonal_naive_repeats_the_last_week():
    known, _ = hourly(30)
    gp = rfgp.GP(LEVEL, start={"noise": 1.0}, seed=0).condition(known[["when"]], known["y"])
    backtest = gp.backtest(24, 2, refit=False)
    assert backtest.season == 168
    values = dict(zip(known["when"], known["y"], strict=True))
    week = pd.Timedelta("7D")
    for when, naive in zip(backtest.frame["when"], backtest.frame["naive median"], strict=True):
        assert naive == pytest.approx(values.get(when - week, values.get(when - 2 * week)))


def test_backtests_widen_bands_that_did_not_hold():
    X, y = series(100)
    gp = rfgp.GP(k.Wiener("t"), start={"wiener(t).variance": 1e-3, "noise": 1e-2}, seed=0).condition(X, y)
    backtest, few = gp.backtest(6, 10, refit=False), gp.backtest(6, 5, refit=False)
    assert backtest.scores.loc["all", "coverage"] < 0.6
    plain, wide = gp.forecast(6), gp.forecast(6, backtest=backtest)
    factor = (wide["upper"] - wide["lower"]) / (plain["upper"] - plain["lower"])
    assert (factor > 2).all()
    frame = backtest.frame
    middle, half = frame["median"], (frame["upper"] - frame["lower"]) / 2
    for third in range(3):  # the widened bands hold the rows of the backtest
        rows = np.ceil(frame["lead"] / 2) == third + 1
        held = (np.abs(frame["y"] - middle) <= factor[2 * third] * half * (1 + 1e-9))[rows]
        assert held.mean() >= 0.95
    with pytest.warns(rfgp.ForecastWarning, match="at least 10 origins"):
        assert gp.forecast(6, backtest=few).equals(plain)


# --- Selection --------------------------------------------------------------------------------------------------------


def test_thirds_of_scores_and_of_factors_are_the_same():
    X, y = series(100)
    for horizon in (2, 4, 5, 7):
        gp = rfgp.GP(k.Wiener("t"), start={"wiener(t).variance": 0.1, "noise": 1e-2}, seed=0).condition(X, y)
        backtest = gp.backtest(horizon, 10, refit=False)
        factors = backtest.widening(0.95, np.arange(1, horizon + 1))
        first = [int(name.split(" to ")[0]) for name in backtest.scores.index[:-1]]
        changes = 1 + np.flatnonzero(np.diff(factors)) + 1
        assert set(changes.tolist()) <= set(first)


def test_bands_that_held_stay():
    X, y = series(100)
    gp = rfgp.GP(k.Wiener("t"), start={"wiener(t).variance": 1.0, "noise": 100.0}, seed=0).condition(X, y)
    assert gp.backtest(6, refit=False).widening(0.95, np.arange(1, 9)).tolist() == [1.0] * 8


@pytest.mark.parametrize(("days", "season"), [(10, 24), (20, 168), (1, 1)])
def test_naive_season_is_one_that_the_rows_cover_twice(days, season):
    hours = pd.date_range("2024-01-01", periods=24 * days, freq="h")
    gp = rfgp.GP(LEVEL, start={"noise": 0.1}, seed=0).condition({"when": hours}, np.sin(np.arange(24 * days)))
    assert gp.backtest(3, 2, refit=False).season == season


def test_factors_of_logarithms_are_those_of_the_model():
    X, y = series(100)
    gp = rfgp.GP(k.Wiener("t"), start={"wiener(t).variance": 1e-3, "noise": 1e-2}, seed=0).condition(X, y)
    leads = np.arange(1, 7)
    expected = gp.backtest(6, refit=False).widening(0.95, leads)
    backtest = gp.backtest(6, refit=False, log=True)
    np.testing.assert_allclose(backtest.widening(0.95, leads), expected, rtol=1e-6)
    with pytest.raises(rfgp.InvalidArgumentError, match="by and log"):
        gp.forecast(6, backtest=backtest)
    wide, plain = gp.forecast(6, log=True, backtest=backtest), gp.forecast(6)
    np.testing.assert_allclose(
        np.log(wide["upper"]) - plain["mean"], expected * (plain["upper"] - plain["mean"]), rtol=1e-6
    )


def test_refits_keep_what_the_fit_kept():
    X, y = series(60)
    gp = rfgp.GP(k.Wiener("t"), start={"noise": 4.0}, seed=0).fit(X, y, fixed="noise")
    assert gp.fit_report.fixed == ("noise",)
    known, all_rows = (gp.backtest(3, 2, refit=refit).frame for refit in (True, False))
    assert (known["upper"] - known["lower"]).min() > 7.8
    np.testing.assert_allclose(known["upper"] - known["lower"], all_rows["upper"] - all_rows["lower"], rtol=0.2)


def test_exposures_of_later_rows_are_used_and_known_noise_is_refused():
    t = {"t": np.arange(80.0)}
    exposure = np.where(np.arange(80) < 60, 1.0, 50.0)
    y = np.random.default_rng(0).poisson(3 * exposure).astype(float)
    gp = rfgp.GP(k.Matern("t", nu=0.5), "poisson", seed=0).condition(t, y, exposure=exposure)
    assert gp.backtest(5, 2, refit=False).scores.loc["all", "coverage"] > 0.7
    gp = rfgp.GP(k.Matern("t", nu=0.5), start={"noise": 0.1}, seed=0).condition(t, np.sin(t["t"]), noise=np.ones(80))
    with pytest.raises(rfgp.InvalidArgumentError, match="known noise"):
        gp.backtest(5, 2)


def test_origins_are_known_times():
    dates = pd.date_range("2024-01-01", periods=90)
    known = np.r_[0:40, 60:90]
    gp = rfgp.GP(LEVEL, start={"noise": 0.1}, seed=0).condition({"when": dates[known]}, np.sin(known))
    frame = gp.backtest(4, 8, refit=False).frame
    lead = (frame["when"] - frame["origin"]) / pd.Timedelta("1D")
    assert frame["lead"].tolist() == lead.tolist()


@pytest.mark.parametrize("name", ["mean", "lead"])
def test_names_of_results_are_not_replaced(name):
    X, y = series(name=name)
    gp = rfgp.GP(k.Wiener(name), start={"noise": 0.1}, seed=0).condition(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="must not be the name of a column"):
        _ = gp.forecast(2), gp.backtest(2, refit=False)
    gp = rfgp.GP(k.Wiener("t", name="mean"), start={"noise": 0.1}, seed=0).condition({"t": X[name]}, y)
    assert list(gp.forecast(1)) == ["t", "mean", "lower", "upper", "mean (term)"]


def test_a_series_is_selected_by_forecasts():
    known, after = hourly(40)
    gp = rfgp.GP(seed=0).fit(known[["when"]], known["y"], horizon=48)
    selection = gp.selection
    assert selection.validation == "the last rows"
    assert selection.num_validation > 150
    assert "48 steps of 1 hour" in selection.reason
    assert all("day" in frame for frame in [gp.forecast(2)])
    assert sum(selection.weights or (1.0,)) == pytest.approx(1.0)
    frame = gp.forecast(48)
    parts = [(share, member.forecast(48)) for share, member in gp.members] or [(1.0, frame)]
    for name in frame.columns[4:]:
        whole = sum(share * part[name].to_numpy() for share, part in parts if name in part)
        np.testing.assert_allclose(frame[name], whole, rtol=1e-6, atol=1e-9)
    error = frame["mean"].to_numpy() - after["y"].to_numpy()
    assert np.sqrt(np.mean(error**2)) < 2.0  # the deviation of the noise is 1
    held = (frame["lower"].to_numpy() <= after["y"].to_numpy()) & (after["y"].to_numpy() <= frame["upper"].to_numpy())
    assert held.mean() > 0.8


def test_scores_are_those_of_forecasts_from_the_rows_before():
    X, y = series(80)
    gp = rfgp.GP(seed=0).fit(X, y, horizon=6)
    model, values = gp.members[0][1] if gp.members else gp, []
    for origin in (55, 61, 67, 73):
        known, after = X["t"] <= origin, (X["t"] > origin) & (X["t"] <= origin + 6)
        forecast = copy.copy(model).condition({"t": X["t"][known]}, y[known]).predict({"t": X["t"][after]}).observed()
        values.append(forecast.log_prob(y[after]).mean())
    assert gp.selection.chosen.last.value == pytest.approx(np.mean(values), abs=1e-6)
    assert gp.selection.chosen.last.error == pytest.approx(np.std(values, ddof=1) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("columns", "is_forward"),
    [
        (lambda dates: {"when": dates}, True),
        (lambda dates: {"when": dates, "x": np.sin(np.arange(len(dates)))}, True),
        (lambda dates: {"when": np.repeat(dates[::2], 2), "x": np.sin(np.arange(len(dates)))}, False),
        (lambda dates: {"t": np.arange(float(len(dates)))}, False),
    ],
    ids=["only dates", "one row a date", "two rows a date", "numbers"],
)
def test_rows_in_time_are_selected_forward(columns, is_forward):
    table = columns(np.arange("2024-01-01", "2024-02-10", dtype="datetime64[D]"))
    y = series(len(next(iter(table.values()))))[1]
    selection = rfgp.GP(seed=0).select(table, y)
    assert (selection.validation == "the last rows") == is_forward


@pytest.mark.slow
def test_covariates_of_a_series_are_terms():
    rng, n = np.random.default_rng(0), 150
    X = {
        "when": np.datetime64("2024-01-01") + np.arange(n),
        "x": rng.uniform(-2, 2, n),
        "kind": rng.choice(["a", "b"], n),
    }
    y = np.cumsum(0.1 * rng.standard_normal(n)) + np.sin(2 * X["x"]) + (X["kind"] == "a") + 0.1 * rng.standard_normal(n)
    gp = rfgp.GP(seed=0).fit(X, y, horizon=10)
    future = {"x": np.linspace(-2, 2, 9), "kind": ["a"] * 9}
    error = gp.forecast(9, future=future)["mean"] - (
        y[-1] - np.sin(2 * X["x"][-1]) - (X["kind"][-1] == "a") + np.sin(2 * future["x"]) + 1
    )
    assert np.abs(error).max() < 1.0
    assert stats.spearmanr(gp.forecast(9, future=future)["mean"], np.sin(2 * future["x"])).statistic > 0.95


def test_ten_rows_have_a_plain_answer():
    X = {"when": np.datetime64("2024-01-01") + np.arange(10)}
    frame = rfgp.GP(seed=0).fit(X, series(10)[1]).forecast(5)
    assert np.isfinite(frame[["mean", "lower", "upper"]].to_numpy()).all()
    assert (frame["upper"] - frame["lower"]).min() > 0.5


def test_logarithms_are_forecast_in_the_unit_of_the_target():
    X, y = series(60)
    kernel = k.Wiener("t", name="level")
    gp = rfgp.GP(kernel, seed=0).fit(X, np.log(10 + y - y.min()))
    plain, frame = gp.forecast(4), gp.forecast(4, log=True)
    for name in ("lower", "upper", "level"):
        np.testing.assert_allclose(frame[name], np.exp(plain[name]))
    variance = gp.predict({"t": plain["t"].to_numpy()}).observed().variance
    np.testing.assert_allclose(frame["mean"], np.exp(plain["mean"] + variance / 2))
    backtest = gp.backtest(5, 3, refit=False, log=True).frame
    np.testing.assert_allclose(backtest["y"], (10 + y - y.min())[45:], rtol=1e-9)
    gp.metadata["log"] = True
    assert gp.forecast(4).equals(frame)


# --- Several series ---------------------------------------------------------------------------------------------------


def panel(num_series=6, n=90, ahead=14, seed=0):
    """Return days of several stores that share a week and a level and have one each, and the days that follow."""
    rng = np.random.default_rng(seed)
    shared = np.cumsum(0.2 * rng.standard_normal(n + ahead)) + 3 * np.sin(np.arange(n + ahead) * 2 * np.pi / 7)
    own = np.cumsum(0.2 * rng.standard_normal((num_series, n + ahead)), 1) + 5 * rng.standard_normal((num_series, 1))
    y = shared + own + 0.5 * rng.standard_normal(own.shape)
    days = pd.date_range("2024-01-01", periods=n + ahead)
    table = pd.DataFrame(
        {
            "day": np.tile(days, num_series),
            "store": np.repeat([f"s{i}" for i in range(num_series)], n + ahead),
            "y": y.ravel(),
        }
    )
    is_known = np.tile(np.arange(n + ahead) < n, num_series)
    return table[is_known & (rng.random(len(table)) > 0.05)], table[~is_known]


@pytest.mark.slow
def test_series_share_a_level_and_a_week():
    known, after = panel()
    gp = rfgp.GP(seed=0).fit(known[["day", "store"]], known["y"], by="store", horizon=14)
    assert {"week", "level", "store level"} <= set(gp.terms)
    frame = gp.forecast(14, by="store")
    assert frame[["store", "day"]].to_numpy().tolist() == after[["store", "day"]].to_numpy().tolist()
    y = after["y"].to_numpy()
    held = (frame["lower"].to_numpy() <= y) & (y <= frame["upper"].to_numpy())
    assert held.mean() > 0.85
    backtest = gp.backtest(14, 2, by="store", refit=False)
    assert list(backtest.scores_by_series.index) == [f"s{i}" for i in range(6)]
    assert backtest.scores.loc["all", "loss"] < backtest.scores.loc["all", "naive loss"]
    values = known.set_index(["store", "day"])["y"].to_dict()
    first = backtest.frame[backtest.frame["lead"] <= 7]
    week = zip(first["store"], first["day"] - pd.Timedelta("7D"), first["naive median"], strict=True)
    repeated = [(values[store, day], naive) for store, day, naive in week if (store, day) in values]
    assert len(repeated) > 70
    np.testing.assert_allclose(*zip(*repeated, strict=True))


def test_series_may_be_numbers_at_numbers():
    known, _ = panel(3, 40)
    X = {
        "day": (known["day"] - known["day"].min()).dt.days.to_numpy(float),
        "store": known["store"].str[1:].astype(int),
    }
    gp = rfgp.GP(seed=0).fit(X, known["y"], by="store", horizon=5)
    frame = gp.forecast(5)  # of the series that the fit named
    assert frame["store"].tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert frame.equals(gp.forecast(5, by="store"))
    assert gp.backtest(3, 2, refit=False).by == "store"


@pytest.mark.slow
def test_quarters_show_a_year():
    rng, n = np.random.default_rng(0), 80
    X = {"when": pd.date_range("1972-04-01", periods=n, freq="QS")}
    y = (
        3 * np.sin(np.arange(n) * np.pi / 2 + 1)
        + np.cumsum(0.2 * rng.standard_normal(n))
        + 0.3 * rng.standard_normal(n)
    )
    trials = rfgp.GP(seed=0).select(X, y, horizon=4).trials
    assert trials[0].name.endswith("+ year")
    assert {trial.name for trial in trials if "year" not in trial.name} == {"wandering slope and deviations"}


@pytest.mark.slow
def test_exact_copies_are_not_a_sign_of_no_noise():
    rng, n = np.random.default_rng(2), 120
    y = 50 + np.cumsum(0.3 * rng.normal(size=n)) + 4 * np.sin(2 * np.pi * np.arange(n) / 7) + rng.normal(size=n)
    table = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=n), "y": y})
    plain, copied = (
        rfgp.GP(seed=0).fit(rows[["day"]], rows["y"], horizon=7) for rows in (table, pd.concat([table, table[30:50]]))
    )
    assert "20 exact copies" in copied.selection.reason
    assert list(copied.terms) == list(plain.terms)
    np.testing.assert_allclose(copied.forecast(7)["mean"], plain.forecast(7)["mean"], atol=0.5)


def test_dates_as_numbers_are_named():
    with pytest.raises(rfgp.DataError, match="dates as numbers"):
        rfgp.GP(seed=0).fit({"t": 20240101 + np.arange(31)}, series(31)[1], horizon=3)


def test_mixed_series_are_mentioned():
    X, y = series(40)
    gp = rfgp.GP(seed=0).fit({"t": np.tile(X["t"], 2)}, np.concatenate([y, y + 30]), horizon=3)
    assert "name their column with by=" in gp.selection.reason


@pytest.mark.parametrize("with_series", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_models_of_the_last_rows_are_conditioned_on_all(with_series, monkeypatch):
    monkeypatch.setattr("rfgp.selection.series.MAX_ROWS", {False: 80, True: 80})
    known, _ = panel(2, 70)
    known = known if with_series else known[known["store"] == "s0"].iloc[:66].assign(store="s0")
    X, options = (known[["day", "store"]], {"by": "store"}) if with_series else (hourly(10)[0][["when"]], {})
    y = known["y"] if with_series else hourly(10)[0]["y"]
    gp = rfgp.GP(seed=0).fit(X, y, horizon=5, **options)
    assert "on the last 80 rows" in gp.selection.reason
    assert gp.num_observations == len(y)
    assert np.isfinite(gp.forecast(3, **options)["mean"]).all()


def test_series_are_not_scored_before_they_begin():
    t, store = np.r_[0:60.0, 50:60.0], np.r_[["a"] * 60, ["b"] * 10]
    gp = rfgp.GP(k.Wiener("t") + k.Group("store"), start={"noise": 0.1}, seed=0)
    frame = gp.condition({"t": t, "store": store}, np.sin(t)).backtest(5, 4, by="store", refit=False).frame
    assert frame.groupby("origin")["store"].unique().map(list).tolist() == [["a"], ["a"], ["a"], ["a", "b"]]


def test_series_that_the_model_does_not_know_are_refused():
    gp = rfgp.GP(k.Wiener("t"), start={"noise": 0.1}, seed=0).condition(*series())
    with pytest.raises(rfgp.InvalidArgumentError, match="by must be a column"):
        gp.forecast(2, by="store")
    with pytest.raises(rfgp.InvalidArgumentError, match="by must be a column"):
        gp.backtest(2, by="store")
    with pytest.raises(rfgp.InvalidArgumentError, match="by requires"):
        gp.fit(*series(), by="t")
    X = {"t": np.arange(60.0), "store": ["a", "b"] * 30}
    for options, word in (({"likelihood": "poisson"}, "by requires"), ({"validate": "store"}, "validate must be None")):
        with pytest.raises(rfgp.InvalidArgumentError, match=word):
            rfgp.GP(seed=0, **options).fit(X, np.ones(60).cumsum(), by="store")


# --- Terms that overlap -----------------------------------------------------------------------------------------------


def test_a_year_of_two_months_is_refused():
    X = {"when": pd.date_range("2024-01-01", periods=60)}
    kernel = k.Wiener("when") + k.Harmonics("when", 365.2425, num_harmonics=2, name="year")
    with pytest.raises(rfgp.DataError, match="'year'"):
        rfgp.GP(kernel, seed=0).fit(X, series(60)[1])
    with pytest.warns(rfgp.TermWarning, match="longer than the data"):
        rfgp.GP(kernel, start={"noise": 0.1}, seed=0).condition(X, series(60)[1])
    assert "year" not in rfgp.GP(seed=0).fit(X, series(60)[1]).terms


@pytest.mark.parametrize(("num_harmonics", "lengthscale", "warns"), [(6, 0.2, False), (7, 0.2, True), (7, 3.0, False)])
def test_a_wave_of_two_terms_is_named(num_harmonics, lengthscale, warns):
    t = np.arange(300) / 24
    week = k.Harmonics("t", 7.0, num_harmonics=num_harmonics, lengthscale=lengthscale, name="week")
    gp = rfgp.GP(week + k.Harmonics("t", 1.0, num_harmonics=3, name="day"), start={"noise": 0.1}, seed=0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        gp.condition({"t": t}, np.sin(2 * np.pi * t))
    assert any("both have a wave" in str(each.message) for each in found) == warns


def test_shares_of_terms_that_overlap_leave_a_covariance():
    t = np.linspace(0.0, 1.0, 120)
    gp = rfgp.GP(k.Linear("t", name="line") + k.RBF("t", name="trend"), start={"noise": 0.01}, seed=0)
    terms = gp.condition({"t": t}, 3 * t + 0.3 * np.sin(4 * t)).terms
    p = gp.predict({"t": t}).terms
    parts = [np.asarray(p[name].mean) for name in terms]
    rest = 2 * np.cov(*parts, ddof=1)[0, 1] / np.var(parts[0] + parts[1], ddof=1)
    assert 1 - sum(term.share for term in terms.values()) == pytest.approx(rest, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("days", "has_year"), [(730, True), (700, False)])
def test_two_calendar_years_have_a_yearly_season(days, has_year):
    day = np.arange(days)
    y = np.sin(2 * np.pi * day / 365.25) + 0.1 * np.random.default_rng(0).standard_normal(days)
    trials = rfgp.GP(seed=0).select({"day": np.datetime64("2025-01-01") + day}, y).trials
    assert any("year" in trial.name for trial in trials) == has_year
