"""`rfgp fit`: a model of a table, and a report."""

from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli import checks, options
from rfgp.cli.common import (
    check_input,
    check_outputs,
    command_line,
    open_table,
    print_json,
    print_study,
    progress,
    resolve,
    say,
    stem,
    table_options,
)
from rfgp.cli.models import ModelRequest, TableModel


def fit(
    file: Annotated[
        Path, typer.Argument(help="A table (.csv, .tsv, .txt, .parquet, ...) or the name of a public data set.")
    ],
    target: options.TableTarget = None,
    out: Annotated[Path | None, typer.Option(help="The folder for model and report. [default: NAME-fit]")] = None,
    kernel: Annotated[
        str,
        typer.Option(
            help='A sum of terms over named columns, as "RBF(t) + Periodic(t, period=7) + Group(store)"; '
            "or auto, which selects a kernel by held-out scores."
        ),
    ] = "auto",
    approximation: options.Approximation = "auto",
    likelihood: options.Likelihood = None,
    inference: options.Inference = None,
    log: options.Log = False,
    time_limit: options.TimeLimit = None,
    validate: options.Validate = None,
    memory: options.Memory = None,
    seed: options.Seed = 0,
    missing: options.Missing = "error",
    drop: options.Drop = None,
    as_category: options.AsCategory = None,
    numbers: options.Numbers = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    comment: options.Comment = None,
    encoding: options.Encoding = "utf-8",
    missing_mark: options.MissingMark = None,
    test_share: Annotated[float, typer.Option(help="The share of the rows that are held out to score the fit.")] = 0.1,
    holdout: options.Holdout = "random",
    holdout_by: options.HoldoutBy = None,
    exposure: options.Exposure = None,
    noise_column: options.NoiseColumn = None,
    weight_column: options.WeightColumn = None,
    fit_rows: Annotated[
        int, typer.Option(help="The maximum number of rows from which hyperparameters of a given kernel are learned.")
    ] = 4000,
    comparison: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Compare the approximations with the exact process.")
    ] = True,
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Save the training rows too, even if predictions do not need them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fit a Gaussian process to a table. Write a model for `rfgp predict`, and a report.

    Without --kernel, a kernel and approximations are selected by held-out scores; `rfgp advise` shows the candidates
    beforehand. It reads all columns: numbers, dates as days, and text as an indicator of 0 and 1 for each level. With
    --kernel, columns are read as its terms need them: numbers, dates as days, levels as text.
    """
    reading = options.reading(missing, drop, as_category, numbers)
    reading |= options.spelling(decimal, thousands, comment, encoding, missing_mark)
    request = ModelRequest(kernel, approximation, likelihood, inference, time_limit, validate, memory, seed)
    validation: dict[str, Any] = {"test_share": test_share, "fit_rows": fit_rows, "compare": comparison, "seed": seed}
    validation |= {"holdout": holdout, "holdout_by": holdout_by}
    given = {"exposure": exposure, "noise": noise_column, "sample_weight": weight_column}
    columns = {name: column for name, column in given.items() if column is not None}
    job = _Job(file, target, log, reading, request, validation, out or Path(f"{stem(file)}-fit"), columns)
    if likelihood == "categorical":
        job.run_classes(with_data, as_json)
        return
    study, counts = job.run(with_data, visible=not as_json)
    _tell(study, job.folder, counts, as_json)


def _tell(study: Any, folder: Path, counts: tuple[int, int], as_json: bool) -> None:
    """Print the scores of a study and the paths of its files.

    `counts` has the number of rows used and the number of rows of the file.
    """
    from rfgp.saving import row_terms

    files = {"model": folder / "model.safetensors", "report": folder / "report.html"}
    if as_json:
        print_json({**study.summary(), "files": {name: str(path) for name, path in files.items()}})
        return
    print_study(study, "rows")
    gone = counts[1] - counts[0]
    left_out = f"; {gone:,} with missing values {'is' if gone == 1 else 'are'} left out" if gone else ""
    is_kept = bool(row_terms(study.model.spec))
    left_out += "; saved with its rows, which it predicts from" * is_kept
    used = f"conditioned on {counts[0]:,} of {counts[1]:,} rows{left_out}"
    say(f"Model: {files['model']} ({used})\nReport: {files['report']}")


@dataclass(frozen=True)
class _Job:
    """A fit to a file.

    Attributes:
        file: The table, or the name of a public data set.
        target: The target column. If None, the last.
        log: Whether the logarithm of the target is fitted.
        reading: Options of `read_table`.
        request: The options of the model.
        validation: Options of `study_table`, and the column of groups that are held out together.
        folder: The folder of the results.
        columns: The columns of `exposure`, `noise` and `sample_weight` by these names.
    """

    file: Path
    target: str | None
    log: bool
    reading: dict[str, Any]
    request: ModelRequest
    validation: dict[str, Any]
    folder: Path
    columns: dict[str, str]

    @property
    def outputs(self) -> tuple[Path, Path]:
        """The files of the model and the report."""
        return self.folder / "model.safetensors", self.folder / "report.html"

    def run(self, with_data: bool, *, visible: bool) -> tuple[Any, tuple[int, int]]:
        """Read, fit, score and write.

        The results are the study, and the numbers of rows used and in the file.
        """
        names = self._checked()
        from rfgp.files import made_folder, write_atomically
        from rfgp.report import table_report
        from rfgp.tables import read_number_column

        with progress(visible=visible) as report:
            report("Reading", 0, 0)
            model = self._model(names, report)
            table = self._table(model, report)
            suggested = () if self.log else suggest_logarithm(table, model)
            path = resolve(self.file, "fit")
            form = table_options(self.file, self.reading)
            given = {
                name: read_number_column(path, column, rows=table.rows, **form) for name, column in self.columns.items()
            }
            study = self._study(table, model, given, report)
            report("Writing", 0, 0)
            study = replace(study, notes=(*study.notes, *suggested))
            page = table_report(study, table, settings=self._settings(), command=command_line())
            with made_folder(self.folder):
                metadata = {"log": self.log, "exposure": self.columns.get("exposure")}
                _save(study, table, self.outputs[0], with_data, given, metadata)
                write_atomically(self.outputs[1], page.encode())
        return study, (len(table.y), table.num_rows)

    def run_classes(self, with_data: bool, as_json: bool) -> None:
        """Read, fit, score and write a model of several classes, and print its scores. There is no report."""
        names = self._checked()
        from rfgp.cli.classes import fit_classes
        from rfgp.files import made_folder

        if self.columns:
            raise typer.BadParameter("Several classes take no exposures, noise or weights. Leave these columns out.")
        with progress(visible=not as_json) as report:
            report("Reading", 0, 0)
            model = self._model(names, report)
            table = self._table(model, report)
            report("Fitting", 0, 0)
            path, validation = self.outputs[0], {**self.validation, **self._groups(table)}
            with made_folder(self.folder):
                scores = fit_classes(table, model.gp(), path, validation, with_data)
        if as_json:
            print_json({**scores.summary(), "files": {"model": str(path)}})
            return
        say(f"{scores.text()}\nModel: {path}. There is no report of several classes.")

    def _groups(self, table: Any) -> dict[str, Any]:
        """Return the groups of held-out rows, for `study_table`, or nothing."""
        if (by := self.validation["holdout_by"]) is None:
            return {}
        return _groups(self.file, by, self.reading, table, self.validation["holdout"])

    def _checked(self) -> tuple[str, ...] | None:
        """Check all options that can be checked before torch is loaded; return the names of the columns, if known."""
        self.request.check()
        checks.check_validation(self.validation)
        check_outputs(self.outputs, (check_input(self.file),))
        names = checks.check_table(self.file, self.target, self.reading, group=self.validation["holdout_by"])
        self.request.check_columns(names, self.validation["holdout_by"])
        self._check_row_columns(names)
        return names

    def _check_row_columns(self, names: tuple[str, ...] | None) -> None:
        """Check that columns of exposures, noise and weights exist, and suit the likelihood."""
        from rfgp.tables.columns import find_column

        for column in self.columns.values():
            if names is not None:
                find_column(names, column)
        if self.log and "noise" in self.columns:
            raise typer.BadParameter("--noise-column is of the target itself. Leave out --log.")

    def _model(self, names: tuple[str, ...] | None, report: Any) -> TableModel:
        """Return the kernel and the approximations, checked."""
        if names is None and not self.request.is_auto:
            from rfgp.tables import read_names

            names = read_names(resolve(self.file, "fit", report), **table_options(self.file, self.reading))
        model = self.request.build(names)
        check_likelihood(model.gp(), self.log, takes_classes=True)
        return model

    def _table(self, model: TableModel, report: Any) -> Any:
        """Return the table, with the logarithms of the targets if these are fitted."""
        by = self.validation["holdout_by"]
        others = [column for column in (by, *self.columns.values()) if column is not None]
        reading = {**self.reading, "drop": tuple(dict.fromkeys((*self.reading["drop"], *others)))}
        table = open_table(self.file, self.target, reading, report, model.reading)
        if self.target is None:
            say(f"No --target: it is the last column, {table.target}.", as_json=True)
        _say_of_classes(table, self.request)
        return in_logarithms(table) if self.log else table

    def _study(self, table: Any, model: TableModel, given: dict[str, Any], report: Any) -> Any:
        """Return the study of a model that is fitted to a table, with exposures, noise or weights (n,) by name."""
        from rfgp.report import study_table

        validation = {name: value for name, value in self.validation.items() if name != "holdout_by"}
        validation |= self._groups(table)
        title = f"{self.file.name}, target {table.target}"
        return study_table(table, model.gp(), title=title, row_options=given, report=report, **validation)

    def _settings(self) -> dict[str, Any]:
        """Return the options that the report lists."""
        given = {**asdict(self.request), **self.reading, **self.columns}
        return {name: value for name, value in given.items() if value not in (None, ()) and name != "missing_marks"}


def _groups(file: Path, column: str, reading: dict[str, Any], table: Any, holdout: str) -> dict[str, Any]:
    """Return the groups of a table's rows by a column, for `study_table`."""
    from rfgp.messages import counted
    from rfgp.tables import read_groups

    if holdout != "random":
        raise typer.BadParameter(f"--holdout {holdout} holds out rows by their order. Leave out --holdout-by.")
    groups = read_groups(resolve(file, "fit"), column, rows=table.rows, **table_options(file, reading))
    number = counted(len(set(groups.tolist())), "group")
    say(
        f"Rows are held out by {column}, in {number}. It is not an input, since its new values are unknown.",
        as_json=True,
    )
    return {"groups": groups, "split_by": column}


def _say_of_classes(table: Any, request: ModelRequest) -> None:
    """Print which class is 1, or that two values may be classes."""
    import numpy as np

    if request.likelihood == "bernoulli" and table.classes is not None and len(table.classes) == 2:
        say(f"{table.target} is 1 for {table.classes[1]} and 0 for {table.classes[0]}.", as_json=True)
    if request.is_normal and table.classes is None and len(np.unique(table.y)) == 2:
        ends = [f"{value:g}" for value in np.unique(table.y)]
        advice = (
            "--likelihood bernoulli predicts probabilities" if ends == ["0", "1"] else "code them 0 and 1 for classes"
        )
        say(f"{table.target} has two values, {ends[0]} and {ends[1]}: {advice}.", as_json=True)


def check_likelihood(gp: Any, log: bool, *, takes_classes: bool = False) -> None:
    """Check that a command supports the likelihood.

    Logarithms of the target require a Gaussian likelihood.

    Args:
        gp: The model.
        log: Whether the logarithm of the target is fitted.
        takes_classes: Whether several classes are supported.

    Raises:
        BadParameter: If the likelihood is not supported. The message has a remedy.
    """
    if log and not gp.spec.is_gaussian:
        raise typer.BadParameter("--log is for a gaussian likelihood.")
    if gp.spec.options.likelihood.num_latents > 1 and not takes_classes:
        raise typer.BadParameter("Several classes are not compared. Use `rfgp fit --likelihood categorical`.")


def suggest_logarithm(table: Any, model: TableModel) -> tuple[str, ...]:
    """Return a note if the logarithm of the target may fit better, and print it.

    Args:
        table: The table.
        model: The model.

    Returns:
        The notes.
    """
    from rfgp.report.study import scale_notes

    is_number = model.request.is_normal and table.classes is None
    notes = scale_notes(table.y, table.target) if is_number else ()
    for note in notes:
        say(note, as_json=True)
    return notes


def in_logarithms(table: Any) -> Any:
    """Return a table with the logarithms of its targets.

    Args:
        table: The table.

    Raises:
        DataError: If a target is not positive.

    Examples:
        >>> import pandas as pd
        >>> from rfgp.tables import read_table
        >>> in_logarithms(read_table(pd.DataFrame({"size": [1, 2], "price": [1.0, 1.0]}), "price")).y.tolist()
        [0.0, 0.0]
    """
    import numpy as np

    from rfgp.errors import DataError
    from rfgp.messages import counted

    table.check_numeric_target()
    bad = np.flatnonzero(table.y <= 0)
    if len(bad):
        raise DataError(
            f"--log needs a positive target, and {table.target!r} has {counted(len(bad), 'value')} not above 0, the "
            f"first in row {table.rows[bad[0]]} ({table.y[bad[0]]:.6g}). Rows count from 0, after the header."
        )
    return replace(table, y=np.log(table.y), target=f"log of {table.target}")


def _save(study: Any, table: Any, path: Path, with_data: bool, given: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Save the model at the hyperparameters of the study, conditioned on all rows.

    The data are saved if the model needs them or `with_data` is set. `given` has the exposures, noise or weights (n,).
    """
    from rfgp.saving import row_terms

    final = copy(study.model).condition(table.frame(), table.y, **given)
    final.metadata = {"schema": table.schema.to_dict(), **metadata}
    final.save(path, data=with_data or bool(row_terms(final.spec)))
