"""`rfgp fit`: a model of a table and a report, or the selection of a model."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from rfgp import names
from rfgp.cli.common import say
from rfgp.cli.job import MODEL, REPORT, Job, Result, command_line, print_selection
from rfgp.cli.models import AUTO, advised, as_text, built, check_model
from rfgp.cli.options import ModelRequest, Reading, among, at_least
from rfgp.errors import DataError
from rfgp.messages import counted
from rfgp.progress import Bar

_WALKERS = 64
"""The walkers of a node, as by default, for which features of a graph are compared."""


class _Data(NamedTuple):
    """A table, its model, the noise, weights and exposures of rows, groups for the split, and notes for the report."""

    table: Any
    gp: Any
    row_options: Mapping[str, Any]
    groups: Mapping[str, Any]
    hints: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Fit(Job, Reading, ModelRequest):
    """Fit a Gaussian process to a table. Write a model for `rfgp predict`, and a report.

    Without --kernel, a kernel and approximations are selected by held-out scores; --dry-run shows the candidates
    beforehand. It reads all columns: numbers, dates as days, and text as an indicator of 0 and 1 for each level. With
    --kernel, columns are read as its terms need them: numbers, dates as days, levels as text.

    Attributes:
        file: A table (.csv, .tsv, .txt, .parquet, ...), or with --dry-run a graph (.gml); or a public data set's name.
        out: The folder for model and report. [default: NAME-fit]
        comparison: Compare the approximations with the exact process. [default: --compare]
        dry_run: Select a kernel, print the candidates with their scores and predicted costs and the command that fits
            the best, and write nothing. For a graph: select the features of its nodes for --kernel, or for diffusion.
        target: The target column, by name or position. [default: the last]
        log: Fit the logarithm of a positive target. Predictions are in its own units.
        exposure: A column of exposures, such as hours or populations, by which the mean of a count is multiplied.
        trials: A column of numbers of trials, for counts of successes with --likelihood binomial.
        censored: A column of codes for --likelihood tobit, lognormal or weibull: -1 if the target is an upper limit, 0
            if it is observed, 1 if it is a lower limit.
        noise_column: A column of known noise variances, in squared units of the target, to be added.
        weight_column: A column of weights: a row of weight w counts as w repeated observations. Precisions belong into
            --noise-column, as variances.
        fit_rows: The maximum number of rows from which hyperparameters of a given kernel are learned.
    """

    target: str | None = None
    log: bool = False
    exposure: str | None = None
    trials: str | None = None
    censored: str | None = None
    noise_column: str | None = None
    weight_column: str | None = None
    fit_rows: Annotated[int, at_least(2)] = 4000

    suffix, files, noun = "fit", (MODEL, REPORT), "rows"

    @property
    def row_columns(self) -> dict[str, str]:
        """The columns of exposures, noise, weights and so on, by the arguments of `GP.fit`."""
        named = {name: getattr(self, name) for name in ("exposure", "trials", "censored")}
        named |= {"noise": self.noise_column, "sample_weight": self.weight_column}
        return {name: column for name, column in named.items() if column is not None}

    def run(self) -> None:
        """Fit a model, or select one, or the features of a graph."""
        if self.source.kind == "graph" and self.dry_run:
            self._select_features()
        else:
            super().run()

    def _select_features(self) -> None:
        """Print the features of the nodes of a graph that `graphs.advise` proposes for a kernel."""
        kernel = "diffusion" if self.kernel == AUTO else self.kernel
        among(*names.GRAPH_KERNELS)("kernel", kernel)
        self.source.check("fit --dry-run", "graph")
        import graphs

        with Bar(not self.as_json) as report:
            graph = graphs.Graph.from_gml(self.source.path(report))
            report("Measuring", 0, 0)
            selection = advised(graph, kernel, _WALKERS, self.seed)
        line = f'rfgp.GraphGP(graph, kernel="{kernel}", features="{selection.chosen.options["features"]}")  # in Python'
        print_selection(selection, line, self.as_json)

    def check(self) -> None:
        """Check that options do not contradict each other, the file, and that options name columns of it."""
        if self.log and "noise" in self.row_columns:
            raise typer.BadParameter(
                "--noise-column has variances of the target, and --log fits its logarithm. Leave out --log."
            )
        if self.dry_run and self.kernel != AUTO:
            raise typer.BadParameter(
                "--dry-run shows the candidates of a selection, and --kernel names one. Leave it out."
            )
        if self.holdout_by is not None and self.holdout != "random":
            raise typer.BadParameter(f"--holdout {self.holdout} holds out rows by their order. Leave out --holdout-by.")
        self.source.check("fit", "table")
        check_model(self, self._names, self.holdout_by)

    @cached_property
    def _names(self) -> tuple[str, ...] | None:
        """The names of the columns if the first lines have them, after checks that the options name some."""
        return self.source.columns(self.target, self.options(), self._other_columns)

    @property
    def _other_columns(self) -> list[str]:
        """The columns that are not inputs: groups, and noise, weights and exposures."""
        return [column for column in (self.holdout_by, *self.row_columns.values()) if column is not None]

    def read(self, path: Path) -> Mapping[str, _Data]:
        """Return the table with its model."""
        from rfgp.tables import read_names, read_number_column, read_table

        form = self.source.table_options(self.options())
        is_open = self._names is None and self.kernel != AUTO
        made = built(self, read_names(path, **form) if is_open else self._names)
        gp = made.gp()
        self._check_likelihood(gp)
        drop = tuple(dict.fromkeys((*form.get("drop", ()), *self._other_columns)))
        table = read_table(path, self.target, **made.reading({**form, "drop": drop}))
        if self.target is None:
            say(f"No --target: it is the last column, {table.target}.", as_json=True)
        hints = self._hints(table)
        table, rows = in_logarithms(table) if self.log else table, {"rows": table.rows, **form}
        values = {name: read_number_column(path, column, **rows) for name, column in self.row_columns.items()}
        return {table.target: _Data(table, gp, values, self._groups(path, rows), hints)}

    def selected(self, data: _Data, report: Bar) -> tuple[Any, dict[str, str | None]]:
        """Return the selection of a model, and the options of the command that fits the best."""
        from rfgp import approximations

        data.table.check_numeric_target(2 if self.likelihood == "bernoulli" else 0)

        def show(now: Any) -> None:
            report(now.stage, now.iteration, now.iterations)

        selection = data.gp.select(data.table.frame(), data.table.y, progress=show, **data.row_options)
        if selection.weights:
            return selection, {}
        chosen = selection.chosen.options
        text = as_text(approximations.parse(chosen.get("approximation", AUTO)))
        likelihood = None if self.likelihood == "gaussian" else self.likelihood or AUTO
        added = {"kernel": chosen["kernel"], "approximation": text, "likelihood": likelihood}
        return selection, {**added, "time-limit": None, "validate": None}

    def fit(self, data: _Data, folder: Path, report: Bar) -> Result:
        """Fit a model to a part of the table, score it, condition it on all rows, and write it with a report."""
        from rfgp.files import made_folder, write_atomically
        from rfgp.report import study_table, table_report

        table = data.table
        split = {"test_share": self.test_share, "seed": self.seed, "holdout": self.holdout, **data.groups}
        if data.gp.spec.options.likelihood.has_classes:
            if self.likelihood == "ordinal":
                table.check_numeric_target()
            report("Fitting", 0, 0)
            with made_folder(folder):
                return _fit_classes(table, data.gp, folder / MODEL, split, self.with_data)
        study = study_table(
            table,
            data.gp,
            title=f"{self.source.name.name}, target {table.target}",
            fit_rows=self.fit_rows,
            compare=self.comparison is not False,
            row_options=data.row_options,
            report=report,
            **split,
        )
        study = replace(study, notes=(*study.notes, *data.hints))
        report("Writing", 0, 0)
        settings = {
            **{each.name: getattr(self, each.name) for each in fields(ModelRequest)},
            **self.options(),
            **self.row_columns,
        }
        settings = {name: v for name, v in settings.items() if v not in (None, ()) and name != "missing_marks"}
        page = table_report(study, table, settings=settings, command=command_line())
        files = {"model": folder / MODEL, "report": folder / REPORT}
        with made_folder(folder):
            final = copy(study.model).condition(table.frame(), table.y, **data.row_options)
            metadata = {"log": self.log, **{name: self.row_columns.get(name) for name in ("exposure", "trials")}}
            _save(final, table, files["model"], self.with_data, metadata)
            write_atomically(files["report"], page.encode())
        gone = table.num_rows - len(table.y)
        left_out = f"; {gone:,} with missing values {'is' if gone == 1 else 'are'} left out" if gone else ""
        kept = "; saved with its rows, which it predicts from" if _needs_rows(final) else ""
        used = f"conditioned on {len(table.y):,} of {table.num_rows:,} rows{left_out}{kept}"
        scores = {**study.summary(), "files": {name: str(each) for name, each in files.items()}}
        return Result(scores, f"Model: {files['model']} ({used})\nReport: {files['report']}", study)

    def _check_likelihood(self, gp: Any) -> None:
        """Check that the command supports the likelihood."""
        if self.log and not gp.spec.is_gaussian:
            raise typer.BadParameter("--log is for a gaussian likelihood.")
        if gp.spec.options.likelihood.has_classes:
            if self.dry_run:
                raise typer.BadParameter("Models of several classes are not selected. Leave out --dry-run.")
            if self.row_columns:
                raise typer.BadParameter(
                    "Several classes take no columns of exposures, noise, weights and so on. Leave these columns out."
                )

    def _groups(self, path: Path, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Return the groups of rows by the column of --holdout-by, for `study_table`."""
        from rfgp.tables import read_groups

        column = self.holdout_by
        if column is None or self.dry_run:
            return {}
        groups = read_groups(path, column, **rows)
        number = counted(len(set(groups.tolist())), "group")
        say(
            f"Rows are held out by {column}, in {number}. It is not an input, since its new values are unknown.",
            as_json=True,
        )
        return {"groups": groups, "split_by": column}

    def _hints(self, table: Any) -> tuple[str, ...]:
        """Print which class is 1, or that two values may be classes, and return notes on a logarithm after printing."""
        import numpy as np

        from rfgp.report.study import scale_notes

        likelihood = self.likelihood
        if likelihood == "bernoulli" and table.classes is not None and len(table.classes) == 2:
            say(f"{table.target} is 1 for {table.classes[1]} and 0 for {table.classes[0]}.", as_json=True)
        if likelihood not in (None, AUTO, "gaussian") or table.classes is not None:
            return ()
        if len(known := np.unique(table.y)) == 2:
            is_coded = known.tolist() == [0.0, 1.0]
            advice = "--likelihood bernoulli predicts probabilities" if is_coded else "code them 0 and 1 for classes"
            say(f"{table.target} has two values, {known[0]:g} and {known[1]:g}: {advice}.", as_json=True)
        notes = () if self.log else scale_notes(table.y, table.target)
        for note in notes:
            say(note, as_json=True)
        return notes


def _needs_rows(gp: Any) -> bool:
    """Return whether a model predicts from its rows."""
    from rfgp.saving import row_terms

    return bool(row_terms(gp.spec))


def _save(gp: Any, table: Any, path: Path, with_data: bool, metadata: Mapping[str, Any]) -> None:
    """Save a model of a table, with its rows if it needs them or they are asked for."""
    gp.metadata = {"schema": table.schema.to_dict(), **metadata}
    gp.save(path, data=with_data or _needs_rows(gp))


def in_logarithms(table: Any) -> Any:
    """Return a table with the logarithms of its targets.

    Args:
        table: The table.

    Raises:
        DataError: If a target is not positive.
    """
    import numpy as np

    table.check_numeric_target()
    bad = np.flatnonzero(table.y <= 0)
    if len(bad):
        raise DataError(
            f"--log needs a positive target, and {table.target!r} has {counted(len(bad), 'value')} not above 0, the "
            f"first in row {table.rows[bad[0]]} ({table.y[bad[0]]:.6g}). Rows count from 0, after the header."
        )
    return replace(table, y=np.log(table.y), target=f"log of {table.target}")


# --- Several classes -------------------------------------------------------------------------------------------------


def _fit_classes(table: Any, gp: Any, path: Path, validation: Mapping[str, Any], with_data: bool) -> Result:
    """Fit a model of classes to a part of a table, score it on the rest, and save it conditioned on all rows."""
    import numpy as np

    from rfgp import metrics
    from rfgp.report.holdout import group_numbers, split
    from rfgp.rows import repeat_groups

    if table.classes is None and (wrong := table.y[table.y != np.round(table.y)]).size:
        raise DataError(
            f"The target {table.target!r} must have classes as texts or integers, got {wrong[0]:.6g}. Choose another "
            "--target, or --likelihood gaussian for numbers."
        )
    values, codes = np.unique(table.y, return_inverse=True)
    codes = codes.reshape(-1)
    classes = [f"{value:g}" if table.classes is None else table.classes[int(value)] for value in values]
    groups, frame = validation.get("groups"), table.frame()
    kinds = repeat_groups(table.X, table.y) if groups is None else group_numbers(groups, len(codes))
    train, test = split(len(codes), validation["test_share"], validation["seed"], kinds, validation["holdout"])
    prediction = gp.fit(frame.iloc[train], codes[train]).predict(frame.iloc[test])
    accuracy = float((np.asarray(prediction.observed().labels) == codes[test]).mean())
    most_frequent = float((codes[test] == np.bincount(codes[train]).argmax()).mean())
    loss = float(metrics.nlpd(codes[test], prediction))
    _save(copy(gp).condition(frame, codes), table, path, with_data, {"log": False, "classes": classes})
    scores = {"accuracy": accuracy, "log_loss": loss, "most_frequent": most_frequent}
    sizes = {"target": table.target, "classes": classes, "train": len(train), "test": len(test)}
    words = (
        f"{table.target}: {len(classes)} classes, fitted to {len(train):,} rows.\n"
        f"Right class on {len(test):,} held-out rows: {100 * accuracy:.1f} % (the most frequent class: "
        f"{100 * most_frequent:.1f} %)\nLog loss: {loss:.4g} nats a row\n"
        f"Model: {path}. There is no report of several classes."
    )
    return Result({**sizes, **scores, "files": {"model": str(path)}}, words)
