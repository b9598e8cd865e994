"""`rfgp fit` and `rfgp predict`: a model of a table, and its predictions for another."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli import options
from rfgp.cli.common import check_outputs, command_line, open_table, print_json, print_study, progress, say, stem

_CHUNK = 8192


def fit(
    file: Annotated[
        Path, typer.Argument(help="A table (.csv, .tsv, .txt, .parquet, ...) or a public data set's name.")
    ],
    target: Annotated[
        str | None, typer.Option(help="The target column, by name or position. [default: the last]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for model and report. [default: NAME-fit]")] = None,
    num_frequencies: Annotated[int, typer.Option(help="Frequencies; features are twice as many.")] = 256,
    coupling: Annotated[str, typer.Option(help="energy, pairwise, orthogonal, iid, sobol, halton, ...")] = "energy",
    features: Annotated[str, typer.Option(help="fourier or laplace.")] = "fourier",
    ard: Annotated[bool, typer.Option("--ard/--shared", help="One lengthscale per column, or one for all.")] = True,
    categories: options.Categories = "error",
    dates: options.Dates = "error",
    missing: options.Missing = "error",
    drop: options.Drop = None,
    as_category: options.AsCategory = None,
    decimal: options.Decimal = ".",
    comment: options.Comment = None,
    encoding: options.Encoding = "utf-8",
    missing_mark: options.MissingMark = None,
    test_share: Annotated[float, typer.Option(help="Share of the rows held out to judge the fit.")] = 0.1,
    fit_rows: Annotated[int, typer.Option(help="Hyperparameters are learned on at most so many rows.")] = 4000,
    comparison: Annotated[bool, typer.Option("--compare/--no-compare", help="Compare with the exact process.")] = True,
    with_data: Annotated[bool, typer.Option("--with-data", help="Save the training data with the model.")] = False,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit a table: a model that predicts, and a report to judge it by."""
    reading: dict[str, Any] = {"categories": categories, "dates": dates, "missing": missing, "drop": tuple(drop or ())}
    reading |= {"as_categories": tuple(as_category or ())}
    reading |= options.spelling(decimal, comment, encoding, missing_mark)
    model = {"num_frequencies": num_frequencies, "coupling": coupling, "features": features, "ard": ard}
    judging = {"test_share": test_share, "fit_rows": fit_rows, "compare": comparison, "seed": seed}
    study, folder, counts = _fit(file, target, reading, {**model, "seed": seed}, judging, out, with_data, not as_json)
    files = {"model": folder / "model.safetensors", "report": folder / "report.html"}
    if as_json:
        print_json({**study.summary(), "files": {name: str(path) for name, path in files.items()}})
    else:
        print_study(study, "rows")
        left_out = f"; {counts[1] - counts[0]:,} with missing values are left out" if counts[1] > counts[0] else ""
        used = f"conditioned on {counts[0]:,} of {counts[1]:,} rows{left_out}"
        say(f"Model: {files['model']} ({used})\nReport: {files['report']}")


def _fit(
    file: Path,
    target: str | None,
    reading: dict[str, Any],
    model: dict[str, Any],
    judging: dict[str, Any],
    out: Path | None,
    with_data: bool,
    visible: bool,
) -> tuple[Any, Path, tuple[int, int]]:
    """Read, fit, judge and write; return the study, the folder, and the numbers of rows used and in the file."""
    from rfgp import SparseSpectrumGP
    from rfgp.files import made_folder, write_atomically
    from rfgp.report import study_table, table_report

    folder = out or Path(f"{stem(file)}-fit")
    check_outputs((folder / "model.safetensors", folder / "report.html"), (file,))
    gp = SparseSpectrumGP(**model)
    with progress(visible=visible) as report:
        report("Reading", 0, 0)
        table = open_table(file, target, reading, report)
        study = study_table(table, gp, title=f"{file.name}, target {table.target}", report=report, **judging)
        report("Writing", 0, 0)
        settings = {**model, **{name: value for name, value in reading.items() if value not in (None, ())}}
        settings.pop("missing_marks", None)
        page = table_report(study, table, settings=settings, command=command_line())
        with made_folder(folder):
            _save(study, table, folder / "model.safetensors", with_data)
            write_atomically(folder / "report.html", page.encode())
    return study, folder, (len(table.y), table.num_rows)


def _save(study: Any, table: Any, path: Path, with_data: bool) -> None:
    """Save the model with the study's hyperparameters, conditioned on all rows."""
    final = study.model.redraw(seed=study.model.seed).condition(table.X, table.y)
    final.fit_report = study.model.fit_report
    final.metadata = {"schema": table.schema.to_dict()}
    final.save(path, data=with_data)


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
    comment: Annotated[
        str | None, typer.Option(help="Lines that start with this are skipped. [default: as in the fit]")
    ] = None,
    encoding: Annotated[str | None, typer.Option(help="Of a text table. [default: as in the fit]")] = None,
    missing_mark: options.MissingMark = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON; needs --out.")] = False,
) -> None:
    """Predict the rows of a table: mean, standard deviations and the 95 % interval of an observation."""
    from rfgp.files import write_atomically
    from rfgp.tables import read_inputs

    if as_json and out is None:
        raise typer.BadParameter("--json describes a file of predictions; name it with --out.")
    if out is not None:
        check_outputs((out,), (model, file))
    gp, schema = _open_model(model)
    schema = replace(schema, **options.spelling(decimal, comment, encoding, missing_mark))
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
    say(f"Predicted {schema.target} in {len(inputs.rows)} rows: {out}")
    if left_out:
        say(f"{left_out} rows with missing values were left out{', as in the fit' if missing is None else ''}.")
    if figures:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        say(f"The file holds the target as well: {shown}.")


def _open_model(path: Path) -> tuple[Any, Any]:
    """Return a model of a table and its schema."""
    import rfgp
    from rfgp.tables import Schema

    gp = rfgp.load(path)
    if not isinstance(gp, rfgp.SparseSpectrumGP | rfgp.ExactGP) or "schema" not in gp.metadata:
        raise rfgp.ModelFileError(
            f"{path} was not saved by `rfgp fit`, so it does not say what its columns are. Load it in Python; the "
            "predictions of `rfgp mesh` and `rfgp traffic` are in their nodes.csv."
        )
    return gp, Schema.from_dict(gp.metadata["schema"])


def _predict_rows(gp: Any, inputs: Any, report: Any) -> tuple[list[str], dict[str, float]]:
    """Return lines of CSV, and the errors where the targets are known."""
    import numpy as np

    lines: list[str] = []
    means, deviations = [], []
    total = len(inputs.rows)
    for first in range(0, total, _CHUNK):
        report("Predicting", first, total)
        law = gp.predict(inputs.X[first : first + _CHUNK])
        mean, sd, noisy = law.mean, np.sqrt(law.variance), np.sqrt(law.observed().variance)
        means.append(mean)
        deviations.append(noisy)
        columns = (mean, sd, noisy, mean - 1.959964 * noisy, mean + 1.959964 * noisy)
        cells = zip(inputs.rows[first : first + _CHUNK].tolist(), *(column.tolist() for column in columns), strict=True)
        lines += [",".join(map(repr, row)) + "\n" for row in cells]
    if inputs.y is None:
        return lines, {}
    errors = inputs.y - np.concatenate(means)
    inside = np.abs(errors) <= 1.959964 * np.concatenate(deviations)
    return lines, {"rmse": float(np.sqrt(np.mean(errors**2))), "coverage_95": float(inside.mean())}
