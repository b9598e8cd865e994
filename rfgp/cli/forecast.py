"""`rfgp forecast`: the rows that follow a series, with bands, a backtest and a report."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from rfgp.cli.common import Input, check_outputs, print_json, say
from rfgp.cli.job import MODEL, REPORT, command_line
from rfgp.cli.options import AsJson, Reading, Seed, at_least
from rfgp.cli.tables import in_logarithms
from rfgp.errors import DataError
from rfgp.messages import check_share, counted, read_seconds
from rfgp.progress import Bar

FORECAST, BACKTEST = "forecast.csv", "backtest.csv"


@dataclass(frozen=True, kw_only=True)
class Forecast(Reading):
    """Forecast the rows that follow a series, or each of several, and write them with a model and a report.

    Levels, slopes and seasons are selected by their likelihood and by forecasts of the last rows. Columns beside the
    times, the target and the series are left out, unless --future has their later values.

    Attributes:
        file: A table (.csv, .tsv, .txt, .parquet, ...) with a column of times.
        horizon: The number of steps to forecast. The step is inferred from the times.
        out: The folder for forecast, backtest, model and report. [default: NAME-forecast]
        time: The column of times: dates or numbers. [default: the first of the others]
        target: The target column, by name or position. [default: the last]
        by: The column that names the series of each row, for several series in one table.
        log: Forecast the logarithm of a positive target, whose seasons are then factors. Bands are in its own unit.
        future: A table of the rows to forecast, with their times and the other columns to use.
        level: The level of the bands.
        origins: The number of origins of the backtest. From 10, bands that did not hold are widened. 0 leaves it out.
        time_limit: The most time of the fit: 30s, 5min, 2h. [default: it grows with the rows]
    """

    file: Path
    horizon: Annotated[int, "--horizon", at_least(1)]
    out: Path | None = None
    time: str | None = None
    target: str | None = None
    by: str | None = None
    log: bool = False
    future: Path | None = None
    level: Annotated[float, check_share] = 0.95
    origins: Annotated[int, at_least(0)] = 10
    time_limit: Annotated[str | None, read_seconds] = None
    seed: Seed = 0
    as_json: AsJson = False

    def run(self) -> None:
        """Read, fit, forecast, test and write."""
        source, folder = Input(self.file), self.out or Path(f"{Input(self.file).stem}-forecast")
        names = (FORECAST, *[BACKTEST] * bool(self.origins), MODEL, REPORT)
        check_outputs((folder / name for name in names), (self.file, self.future))
        source.check("forecast", "table")
        with Bar(not self.as_json) as report:
            report("Reading", 0, 0)
            table, future = self._read(source.path(report))
            import rfgp

            def show(now: Any) -> None:
                report(now.stage, now.iteration, now.iterations)

            gp = rfgp.GP(seed=self.seed, time_limit=self.time_limit)
            gp.fit(table.frame(), table.y, horizon=self.horizon, by=self.by, progress=show)
            assert gp.selection is not None
            gp.metadata = {"schema": table.schema.to_dict(), "log": self.log}
            report("Testing", 0, 0)
            backtest = None
            if self.origins:
                backtest = gp.backtest(self.horizon, self.origins, level=self.level, by=self.by)
            widens = backtest is not None and backtest.origins >= rfgp.forecasts.LEAST_ORIGINS
            used = {"backtest": backtest if widens else None, "level": self.level, "by": self.by, "future": future}
            forecast = gp.forecast(self.horizon, **used)
            report("Writing", 0, 0)
            files = self._write(folder, gp, forecast, backtest, table)
        if self.as_json:
            scores = {} if backtest is None else backtest.scores.loc["all"].to_dict()
            steps = len(forecast) if self.by is None else len(forecast) // max(forecast[self.by].nunique(), 1)
            attributes = {name: forecast.attrs.get(name) for name in ("frequency", "widening")}
            rows = {"rows": gp.num_observations, "steps": steps, **attributes}
            print_json({**rows, "backtest": scores, "selection": gp.selection.reason, "files": files})
            return
        say(gp.selection.reason)
        if backtest is not None:
            say(str(backtest))
            if forecast.attrs["widening"] > 1:
                factor = f"{forecast.attrs['widening']:.3g}"
                say(f"The bands of the forecast are wider than these, by a factor of up to {factor}.")
        say(f"{counted(len(forecast), 'row')} of the forecast: {files['forecast']}")
        say(f"Report: {files['report']}")

    def _write(self, folder: Path, gp: Any, forecast: Any, backtest: Any, table: Any) -> dict[str, str]:
        """Write the results to a folder, and return the paths of the files by name."""
        from rfgp.files import made_folder, write_atomically
        from rfgp.report import forecast_report

        settings = {each.name: getattr(self, each.name) for each in fields(self)}
        settings = {name: value for name, value in settings.items() if value not in (None, (), [])}
        target = table.target.removeprefix("log of ") if self.log else table.target
        options = {"title": f"{self.file.name}, forecast of {target}", "target": target, "by": self.by}
        page = forecast_report(gp, forecast, backtest, settings=settings, command=command_line(), **options)
        contents = {FORECAST: forecast.to_csv(index=False), REPORT: page}
        if backtest is not None:
            contents[BACKTEST] = backtest.frame.to_csv(index=False)
        with made_folder(folder):
            for name, content in contents.items():
                write_atomically(folder / name, content.encode())
            gp.save(folder / MODEL, data=True)
        return {name.partition(".")[0]: str(folder / name) for name in (*contents, MODEL)}

    def _read(self, path: Path) -> tuple[Any, Any]:
        """Return the table of times, series and known columns, and the table of their later values, if any."""
        from rfgp.tables import read_inputs, read_names, read_table

        form = self.options()
        known = read_names(path, **form)
        target = known[-1] if self.target is None else self.target
        time = (
            next((name for name in known if name not in (target, self.by)), target) if self.time is None else self.time
        )
        columns = [time, *([] if self.by is None else [self.by])]
        if self.future is not None:
            later = read_names(self.future, **form)
            columns += [name for name in later if name in known and name not in (*columns, target)]
        for name in columns:
            if name not in known:
                raise DataError(f"The table has no column {name!r}. It has {', '.join(map(repr, known))}.")
        left_out = [name for name in known if name not in (*columns, target)]
        if left_out:
            say(
                f"Left out: {', '.join(left_out)}. --future gives later values of columns, --by names series.",
                as_json=True,
            )
        levels = {"levels": (self.by,)} if self.by is not None else {}
        options = {**form, "columns": tuple(columns), "dates": "days", "categories": "levels", **levels}
        table = read_table(path, self.target, **options)
        table.check_numeric_target()
        if self.target is None:
            say(f"No --target: it is the last column, {table.target}.", as_json=True)
        future = None if self.future is None else read_inputs(self.future, table.schema).frame()
        return in_logarithms(table) if self.log else table, future
