"""The report on a forecast: history and forecast, components, backtest, and the selection of the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rfgp import curves
from rfgp.forecasts import Backtest, components, history
from rfgp.gp import GP
from rfgp.messages import counted, plain
from rfgp.models.series import TimeColumn
from rfgp.report import sections
from rfgp.report.page import Block, Grid, Plot, Section, Text, number, render

MAX_SERIES = 6
"""The maximum number of series that are drawn."""
_POINTS, _ROWS = 400, 12
"""The points of a component, and the rows of the forecast that are listed."""


def forecast_report(
    gp: GP,
    forecast: Any,
    backtest: Backtest | None,
    *,
    title: str,
    target: str,
    by: str | None = None,
    settings: Mapping[str, object] | None = None,
    command: str | None = None,
) -> str:
    """Return the report on a forecast as one HTML page.

    Args:
        gp: The fitted model.
        forecast: The result of `gp.forecast`.
        backtest: The backtest, or None.
        title: The title.
        target: The name of the target.
        by: The column of the series. If None, there is one.
        settings: Settings by name to list under "How it was made". If None, there are none.
        command: The command that made the report, to list there. If None, there is none.

    Examples:
        >>> import numpy as np, rfgp
        >>> from rfgp.report import forecast_report
        >>> t = np.arange(60.0)
        >>> gp = rfgp.GP(rfgp.kernels.Wiener("t"), seed=0).fit({"t": t}, np.cumsum(np.cos(t)))
        >>> forecast_report(gp, gp.forecast(5), None, title="A walk", target="y").startswith("<!doctype html>")
        True
    """
    step, log = TimeColumn.of(gp.state), bool(forecast.attrs.get("log"))
    widening = forecast.attrs.get("widening", 1.0)
    names = [] if by is None else list(dict.fromkeys(forecast[by]))
    size = len(forecast) // max(len(names), 1)
    lead = (
        f"{counted(gp.num_observations, 'row')} of {plain(target)} are known, "
        f"{counted(size, 'step')} of {step.step} follow"
        + (f", for each of {counted(len(names), 'series')}. " if names else ". ")
        + "A band holds an observation with the probability stated, if the model is right."
        + (f" A backtest widened bands, by a factor of up to {widening:.2g}." if widening > 1 else "")
    )
    parts = [
        Section("Forecast", list(_forecasts(gp, forecast, names, target, by, log=log))),
        *_components(gp, by, names, step, log=log),
        *_backtests(backtest),
        *sections.selections(gp),
        sections.made_by(gp, [[name, plain(value, 300)] for name, value in (settings or {}).items()], command),
    ]
    return render(title, lead, _cards(forecast, backtest, names, by), parts)


def _cards(
    forecast: Any, backtest: Backtest | None, names: Sequence[Any], by: str | None
) -> list[tuple[str, str, str]]:
    """Return the names, values and remarks of the cards."""
    last, level = forecast.iloc[-1], forecast.attrs["level"]
    which = "" if by is None else f" of {plain(last[by])}"
    band = f"{level:.0%} band: {number(last['lower'])} to {number(last['upper'])}"
    cards = [(f"The last forecast{which}", number(last["mean"]), band)]
    if backtest is not None:
        scores = backtest.scores.loc["all"]
        cards += [
            (
                f"Coverage of {backtest.level:.0%} bands",
                f"{100 * scores['coverage']:.1f} %",
                "before they were widened, " * (forecast.attrs.get("widening", 1.0) > 1)
                + f"of {len(backtest.frame):,} rows that followed {counted(backtest.origins, 'origin')}",
            ),
            (
                "Error in the backtest",
                number(scores["absolute error"]),
                f"mean absolute error; {number(scores['naive absolute error'])} if the last "
                f"{counted(backtest.season, 'step')} are repeated",
            ),
        ]
    return cards


def _forecasts(
    gp: GP, forecast: Any, names: Sequence[Any], target: str, by: str | None, *, log: bool
) -> Iterator[Block]:
    """Yield the pictures of the forecast of each series, and the first rows."""
    known, time, level = history(gp.state, by, log=log), TimeColumn.of(gp.state).name, forecast.attrs["level"]
    for name in names[:MAX_SERIES] or [None]:
        mine = known if name is None else known[known[by] == name]
        ahead = forecast if name is None else forecast[forecast[by] == name]
        caption = "The last known rows, and the forecast." if name is None else f"{plain(by)} {plain(name)}."
        yield Plot(curves.forecast(mine, ahead, time, target, level), caption, wide=len(names) < 2)
    if len(names) > MAX_SERIES:
        yield Text(f"The first {MAX_SERIES} of {len(names)} series are drawn. The file of the forecast has all.")
    columns = [*([by] if by else []), time, "mean", "lower", "upper"]
    first = forecast.head(_ROWS)
    texts = {time: list(map(str, curves.texts_of(first[time])))} | ({by: list(map(str, first[by]))} if by else {})
    rows = [
        [texts[column][i] if column in texts else number(first[column].iloc[i]) for column in columns]
        for i in range(len(first))
    ]
    caption = f"The first of {counted(len(forecast), 'row')}." if len(forecast) > _ROWS else "All rows."
    yield Grid(columns, rows, caption, texts=(1,) if by else ())


def _components(gp: GP, by: str | None, names: Sequence[Any], column: TimeColumn, *, log: bool) -> Iterator[Section]:
    """Yield the section of the terms along known and later times, if there are no other columns."""
    keys = [key for key in gp.spec.schema.sources if key != column.rule.key]
    if any(key != by for key in keys) or (len(names) > 1 and by not in keys):
        return
    ahead = max(len(column.times) // 5, 1)
    later = column.following(ahead)[1]
    times = np.concatenate([np.linspace(column.times[0], column.times[-1], _POINTS), later[curves.thin(ahead, 100)]])
    rows = {column.rule.key: column.shown(times)} | ({by: [names[0]] * len(times)} if by in keys else {})
    inputs, _ = gp.state.points(rows)
    blocks: list[Block] = []
    for name, (mean, sd) in components(gp.state, inputs, centered=True).items():
        blocks.append(
            Plot(curves.component(rows[column.rule.key], mean, sd, name, column.name), f"The term {plain(name)}.")
        )
    which = f" The series is {plain(names[0])}." if names else ""
    more = " Terms are logarithms of factors." if log else ""
    text = Text(
        f"The forecast is the sum of these terms and of a constant. Each is shown minus its mean over these times."
        f"{which}{more}"
    )
    yield Section("Components", [text, *blocks])


def _backtests(backtest: Backtest | None) -> Iterator[Section]:
    """Yield the section of a backtest: errors by lead time, and scores."""
    if backtest is None:
        return
    text = Text(
        f"From {counted(backtest.origins, 'origin')} in the past, the selected model was fitted to the rows before. It "
        f"forecast {counted(backtest.horizon, 'step')}. The naive forecast repeats the last "
        f"{counted(backtest.season, 'step')}. A loss is the mean quantile loss at 5, 10, ..., 95 %, times 2."
    )
    header = ["steps", *backtest.scores.columns]
    tables = {"By steps ahead.": backtest.scores}
    if backtest.by is not None:
        tables["By series."] = backtest.scores_by_series.head(50)
    grids = [
        Grid(
            header,
            [
                [str(name), *(f"{v:.0%}" if "coverage" in key else number(v) for key, v in row.items())]
                for name, row in table.iterrows()
            ],
            caption,
        )
        for caption, table in tables.items()
    ]
    picture = Plot(curves.by_lead(backtest.frame, backtest.frequency), "Errors by steps ahead.", wide=True)
    yield Section("Backtest", [text, picture, *grids])
