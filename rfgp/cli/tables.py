"""`rfgp fit` and `rfgp predict`: a model of a table, and its predictions for another."""

from copy import copy
from dataclasses import replace
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

_CHUNK = 8192


def fit(
    file: Annotated[
        Path, typer.Argument(help="A table (.csv, .tsv, .txt, .parquet, ...) or a public data set's name.")
    ],
    target: Annotated[
        str | None, typer.Option(help="The target column, by name or position. [default: the last]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for model and report. [default: NAME-fit]")] = None,
    features: options.TableFeatures = "auto",
    spectrum: options.Spectrum = "auto",
    num_frequencies: options.NumFrequencies = None,
    coupling: options.Coupling = None,
    frequencies: options.Frequencies = "auto",
    num_inducing: options.NumInducing = None,
    diagonal: options.Diagonal = "auto",
    local: options.Local = "auto",
    num_neighbors: options.NumNeighbors = None,
    time_limit: options.TimeLimit = None,
    memory: options.Memory = None,
    likelihood: options.Likelihood = "normal",
    inference: options.Inference = None,
    log: options.Log = False,
    ard: Annotated[bool, typer.Option("--ard/--shared", help="One lengthscale per column, or one for all.")] = True,
    categories: options.Categories = "error",
    dates: options.Dates = "error",
    missing: options.Missing = "error",
    drop: options.Drop = None,
    as_category: options.AsCategory = None,
    decimal: options.Decimal = ".",
    thousands: options.Thousands = None,
    comment: options.Comment = None,
    encoding: options.Encoding = "utf-8",
    missing_mark: options.MissingMark = None,
    test_share: Annotated[float, typer.Option(help="Share of the rows held out to judge the fit.")] = 0.1,
    holdout: options.Holdout = "random",
    holdout_by: options.HoldoutBy = None,
    fit_rows: Annotated[
        int, typer.Option(help="The most rows of the search; a choice, and neighbours, take their own number.")
    ] = 4000,
    comparison: Annotated[bool, typer.Option("--compare/--no-compare", help="Compare with the exact process.")] = True,
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Save the training data too, as for exact and local processes.")
    ] = False,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit a table: a model that predicts, and a report to judge it by.

    What is not named is chosen by measurement, and said; `rfgp advise` says beforehand what each choice would cost.
    """
    reading: dict[str, Any] = {"categories": categories, "dates": dates, "missing": missing, "drop": tuple(drop or ())}
    reading |= {"as_categories": tuple(as_category or ())}
    reading |= options.spelling(decimal, thousands, comment, encoding, missing_mark)
    chosen = {"features": features, "spectrum": spectrum, "frequencies": frequencies, "diagonal": diagonal}
    sizes = {"num_frequencies": num_frequencies, "num_inducing": num_inducing, "num_neighbors": num_neighbors}
    limits = {"coupling": coupling, "time_limit": time_limit, "memory": memory}
    model = options.table_options({**chosen, "local": local}, {**sizes, **limits})
    law = {} if likelihood == "normal" else {"likelihood": likelihood}
    law |= {} if inference is None else {"inference": inference}
    model = {**model, "ard": ard, **law, "seed": seed}
    judging: dict[str, Any] = {"test_share": test_share, "fit_rows": fit_rows, "compare": comparison, "seed": seed}
    judging |= {"holdout": holdout, "holdout_by": holdout_by}
    study, folder, counts = _fit(file, target, log, reading, model, judging, out, with_data, not as_json)
    _tell(study, folder, counts, as_json)


def _tell(study: Any, folder: Path, counts: tuple[int, int], as_json: bool) -> None:
    """Print what a study came to, and where its files are; of counts[1] rows counts[0] were used."""
    files = {"model": folder / "model.safetensors", "report": folder / "report.html"}
    if as_json:
        print_json({**study.summary(), "files": {name: str(path) for name, path in files.items()}})
        return
    print_study(study, "rows")
    gone = counts[1] - counts[0]
    left_out = f"; {gone:,} with missing values {'is' if gone == 1 else 'are'} left out" if gone else ""
    is_kept = study.model.codec.needs_data(study.model.family)
    left_out += "; saved with its rows, which it predicts from" * is_kept
    used = f"conditioned on {counts[0]:,} of {counts[1]:,} rows{left_out}"
    say(f"Model: {files['model']} ({used})\nReport: {files['report']}")


def _fit(
    file: Path,
    target: str | None,
    log: bool,
    reading: dict[str, Any],
    model: dict[str, Any],
    judging: dict[str, Any],
    out: Path | None,
    with_data: bool,
    visible: bool,
) -> tuple[Any, Path, tuple[int, int]]:
    """Read, fit, judge and write; return the study, the folder, and the numbers of rows used and in the file."""
    checks.check_model(model, judging)
    folder = out or Path(f"{stem(file)}-fit")
    check_outputs((folder / "model.safetensors", folder / "report.html"), (check_input(file),))
    checks.check_table(file, target, reading, group=judging["holdout_by"])
    from rfgp import TableGP
    from rfgp.files import made_folder, write_atomically
    from rfgp.report import study_table, table_report
    from rfgp.report.notes import of_scale

    gp = TableGP(**model)
    if log and not gp.family.is_normal:
        raise typer.BadParameter("--log is for a normal likelihood.")
    if gp.options.likelihood.num_latents > 1:
        raise typer.BadParameter(
            "Reports are of one number a row. Fit several classes in Python: rfgp.sklearn.GPClassifier."
        )
    with progress(visible=visible) as report:
        report("Reading", 0, 0)
        by = judging.pop("holdout_by")
        reading = {**reading, "drop": (*reading["drop"], *((by,) if by else ()))}
        table = open_table(file, target, reading, report)
        judging |= {} if by is None else _groups(file, by, reading, table, judging["holdout"])
        if target is None:
            say(f"No --target: it is the last column, {table.target}.", as_json=True)
        _say_of_classes(table, model)
        table = _in_logarithms(table) if log else table
        study = study_table(table, gp, title=f"{file.name}, target {table.target}", report=report, **judging)
        if not log:
            study = replace(study, notes=(*study.notes, *of_scale(table.y, table.target)))
        report("Writing", 0, 0)
        settings = {**model, **{name: value for name, value in reading.items() if value not in (None, ())}}
        settings.pop("missing_marks", None)
        page = table_report(study, table, settings=settings, command=command_line())
        with made_folder(folder):
            _save(study, table, folder / "model.safetensors", with_data, log)
            write_atomically(folder / "report.html", page.encode())
    return study, folder, (len(table.y), table.num_rows)


def _groups(file: Path, column: str, reading: dict[str, Any], table: Any, holdout: str) -> dict[str, Any]:
    """Return the groups of a table's rows by a column, which is not among its inputs, for `study_table`."""
    from rfgp.counts import counted
    from rfgp.tables import read_groups

    if holdout != "random":
        raise typer.BadParameter(f"--holdout {holdout} takes rows by their order; leave out --holdout-by.")
    found = read_groups(resolve(file, "fit"), column, rows=table.rows, **table_options(file, reading))
    number = counted(len(set(found.tolist())), "group")
    say(f"Rows are held out by {column}, in {number}; it is not an input, for a new one is unknown.", as_json=True)
    return {"groups": found, "split_by": column}


def _say_of_classes(table: Any, model: dict[str, Any]) -> None:
    """Say which class is 1, or that two values may be classes."""
    import numpy as np

    if model.get("likelihood") == "bernoulli" and table.classes is not None and len(table.classes) == 2:
        say(f"{table.target} is 1 for {table.classes[1]} and 0 for {table.classes[0]}.", as_json=True)
    if "likelihood" not in model and table.classes is None and len(np.unique(table.y)) == 2:
        ends = [f"{value:g}" for value in np.unique(table.y)]
        advice = (
            "--likelihood bernoulli predicts probabilities" if ends == ["0", "1"] else "code them 0 and 1 for classes"
        )
        say(f"{table.target} has two values, {ends[0]} and {ends[1]}: {advice}.", as_json=True)


def _in_logarithms(table: Any) -> Any:
    """Return a table with the logarithms of its targets.

    Raises:
        DataError: one is not positive.
    """
    import numpy as np

    from rfgp.counts import counted
    from rfgp.errors import DataError

    table.check_numeric_target()
    bad = np.flatnonzero(table.y <= 0)
    if len(bad):
        raise DataError(
            f"--log needs a positive target, and {table.target!r} has {counted(len(bad), 'value')} not above 0, the "
            f"first in row {table.rows[bad[0]]} ({table.y[bad[0]]:.6g}). Rows count from 0, after the header."
        )
    return replace(table, y=np.log(table.y), target=f"log of {table.target}")


def _save(study: Any, table: Any, path: Path, with_data: bool, log: bool) -> None:
    """Save the model with the study's hyperparameters, conditioned on all rows, with these where it needs them."""
    final = copy(study.model).condition(table.frame(), table.y)
    final.metadata = {"schema": table.schema.to_dict(), "log": log}
    final.save(path, data=with_data or final.codec.needs_data(final.family))


def predict(
    model: Annotated[Path, typer.Argument(help="A model that `rfgp fit` saved.")],
    file: Annotated[Path, typer.Argument(help="A table with the same input columns.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="A .csv file for the predictions; rows count from 0, after the header. [default: print them]"
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            help="Missing values: error, drop (the rows) or mean (of the fit, if that had it). [default: as in the fit]"
        ),
    ] = None,
    decimal: Annotated[str | None, typer.Option(help="The decimal mark. [default: as in the fit]")] = None,
    thousands: Annotated[
        str | None, typer.Option(help="What separates thousands, as , in 1,200. [default: as in the fit]")
    ] = None,
    comment: Annotated[
        str | None, typer.Option(help="Lines that start with this are skipped. [default: as in the fit]")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of a text table. [default: as in the fit]")] = None,
    missing_mark: options.MissingMark = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON; needs --out.")] = False,
) -> None:
    """Predict the rows of a table: mean, standard deviations and the 95 % interval of an observation.

    Under a likelihood other than the normal one sd is that of the latent function, of a logit or a logarithm.
    """
    from rfgp.counts import counted
    from rfgp.files import write_atomically

    if as_json and out is None:
        raise typer.BadParameter("--json describes a file of predictions; name it with --out.")
    check_outputs(() if out is None else (out,), (check_input(model), check_input(file)), makes_folder=False)
    checks.check_model_file(model)
    checks.check_inputs(file, missing, options.spelling(decimal, thousands, comment, encoding, None))
    from rfgp.tables import read_inputs

    gp, schema = _open_model(model)
    marks = (*schema.missing_marks, *(missing_mark or ()))
    schema = replace(schema, **options.spelling(decimal, thousands, comment, encoding, None), missing_marks=marks)
    inputs = read_inputs(file, schema if missing is None else schema.with_missing(missing))
    with progress(visible=out is not None and not as_json) as report:
        rows, figures = _predict_rows(gp, inputs, report)
    text = "row,mean,sd,observed_sd,low,high\n" + "".join(rows)
    if out is None:
        print(text, end="")
        return
    write_atomically(out, text.encode())
    left_out = inputs.num_rows - len(inputs.rows)
    if as_json:
        print_json({"rows": len(inputs.rows), "left_out": left_out, **figures, "out": str(out)})
        return
    say(f"Predicted {schema.target} in {counted(len(inputs.rows), 'row')}: {out}")
    if left_out:
        gone = f"{counted(left_out, 'row')} with missing values {'was' if left_out == 1 else 'were'} left out"
        say(f"{gone}{', as in the fit' if missing is None else ''}.")
    if figures:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        say(f"The file holds the target as well: {shown}.")


def _open_model(path: Path) -> tuple[Any, Any]:
    """Return a model of a table and its schema."""
    import rfgp
    from rfgp.tables import Schema

    gp = rfgp.load(path)
    if not isinstance(gp, rfgp.TableGP | rfgp.SparseSpectrumGP | rfgp.ExactGP) or "schema" not in gp.metadata:
        raise rfgp.ModelFileError(
            f"{path} was not saved by `rfgp fit`, so it does not say what its columns are. Load it in Python; the "
            "predictions of `rfgp mesh` and `rfgp traffic` are in their nodes.csv."
        )
    return gp, Schema.from_dict(gp.metadata["schema"])


def _predict_rows(gp: Any, inputs: Any, report: Any) -> tuple[list[str], dict[str, float]]:
    """Return lines of CSV, and the errors where the targets are known."""
    import numpy as np

    lines: list[str] = []
    squares, inside = 0.0, 0
    total = len(inputs.rows)
    for first in range(0, total, _CHUNK):
        report("Predicting", first, total)
        chunk = slice(first, first + _CHUNK)
        columns = _columns(gp.predict(inputs.X[chunk]), bool(gp.metadata.get("log")))
        if inputs.y is not None:
            y, mean, low, high = inputs.y[chunk], columns[0], *columns[3:]
            squares, inside = squares + float(np.sum((y - mean) ** 2)), inside + int(np.sum((low <= y) & (y <= high)))
        cells = zip(inputs.rows[chunk].tolist(), *(column.tolist() for column in columns), strict=True)
        lines += [",".join(map(repr, row)) + "\n" for row in cells]
    if inputs.y is None:
        return lines, {}
    return lines, {"rmse": (squares / total) ** 0.5, "coverage_95": inside / total}


def _columns(law: Any, is_log: bool) -> tuple[Any, ...]:
    """Return mean, sd, sd of an observation, and the ends of its 95 % interval, each (n,), in the target's units."""
    import numpy as np

    noisy = law.observed()
    if getattr(noisy, "likelihood", None) is not None:
        return noisy.mean, np.sqrt(law.variance), np.sqrt(noisy.variance), *noisy.quantile([0.025, 0.975])
    low, high = noisy.interval(0.95)
    if is_log:
        law, noisy, low, high = law.exp(), noisy.exp(), np.exp(low), np.exp(high)
    return law.mean, np.sqrt(law.variance), np.sqrt(noisy.variance), low, high
