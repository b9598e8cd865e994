"""`rfgp fit`: a model of a table, and a report."""

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli.common import (
    check_input,
    check_outputs,
    check_table,
    command_line,
    print_json,
    print_selection,
    print_study,
    resolve,
    say,
    stem,
    table_options,
    typed_again,
)
from rfgp.cli.models import as_text, built, check_model
from rfgp.cli.options import (
    AsJson,
    Holdout,
    HoldoutBy,
    ModelRequest,
    Reading,
    TestShare,
    WithData,
    at_least,
    grouped,
)
from rfgp.errors import DataError
from rfgp.messages import counted
from rfgp.progress import Bar


@grouped
def fit(
    file: Path,
    model: ModelRequest,
    reading: Reading,
    target: str | None = None,
    out: Path | None = None,
    log: bool = False,
    test_share: TestShare = 0.1,
    holdout: Holdout = "random",
    holdout_by: HoldoutBy = None,
    exposure: str | None = None,
    noise_column: str | None = None,
    weight_column: str | None = None,
    fit_rows: Annotated[int, at_least(2)] = 4000,
    comparison: Annotated[bool, "--compare/--no-compare"] = True,
    with_data: WithData = False,
    dry_run: bool = False,
    as_json: AsJson = False,
) -> None:
    """Fit a Gaussian process to a table. Write a model for `rfgp predict`, and a report.

    Without --kernel, a kernel and approximations are selected by held-out scores; --dry-run shows the candidates
    beforehand. It reads all columns: numbers, dates as days, and text as an indicator of 0 and 1 for each level. With
    --kernel, columns are read as its terms need them: numbers, dates as days, levels as text.

    Args:
        file: A table (.csv, .tsv, .txt, .parquet, ...) or the name of a public data set.
        target: The target column, by name or position. [default: the last]
        out: The folder for model and report. [default: NAME-fit]
        log: Fit the logarithm of a positive target. Predictions are in its own units.
        exposure: A column of exposures, such as hours or populations, by which the mean of a count is multiplied.
        noise_column: A column of known noise variances, in squared units of the target, to be added.
        weight_column: A column of weights: a row of weight w counts as w repeated observations. Precisions belong into
            --noise-column, as variances.
        fit_rows: The maximum number of rows from which hyperparameters of a given kernel are learned.
        comparison: Compare the approximations with the exact process.
        dry_run: Select a kernel, print the candidates with their scores and predicted costs and the command that fits
            the best, and write nothing.
    """
    given, folder = reading.options(), out or Path(f"{stem(file)}-fit")
    asked = {"exposure": exposure, "noise": noise_column, "sample_weight": weight_column}
    row_columns = {name: column for name, column in asked.items() if column is not None}
    outputs = {"model": folder / "model.safetensors", "report": folder / "report.html"}
    _check_options(model, log, noise_column, dry_run, holdout, holdout_by)
    check_outputs(() if dry_run else outputs.values(), (check_input(file),))
    columns = check_table(file, target, given, "fit", (holdout_by, *row_columns.values()))
    check_model(model, columns, holdout_by)
    from rfgp.files import made_folder
    from rfgp.tables import read_names, read_number_column, read_table

    with Bar(not as_json) as report:
        report("Reading", 0, 0)
        path, form = resolve(file, "fit", report), table_options(file, given)
        made = built(model, read_names(path, **form) if columns is None and model.kernel != "auto" else columns)
        gp = made.gp()
        _check_likelihood(gp, log, dry_run, row_columns)
        others = [column for column in (holdout_by, *row_columns.values()) if column is not None]
        drop = tuple(dict.fromkeys((*form.get("drop", ()), *others)))
        table = read_table(path, target, **made.reading({**form, "drop": drop}))
        if target is None:
            say(f"No --target: it is the last column, {table.target}.", as_json=True)
        hints = _hints(table, model, log)
        table = _in_logarithms(table) if log else table
        values = {name: read_number_column(path, one, rows=table.rows, **form) for name, one in row_columns.items()}
        if dry_run:
            print_selection(*_selected(table, gp, model, values, report), as_json)
            return
        validation: dict[str, Any] = {"test_share": test_share, "seed": model.seed, "holdout": holdout}
        if holdout_by is not None:
            validation |= _groups(path, holdout_by, table, form)
        if model.likelihood == "categorical":
            report("Fitting", 0, 0)
            with made_folder(folder):
                _fit_classes(table, gp, outputs["model"], validation, with_data, as_json)
            return

        validation |= {"fit_rows": fit_rows, "compare": comparison, "row_options": values, "report": report}
        settings = {**asdict(model), **given, **row_columns}
        settings = {name: v for name, v in settings.items() if v not in (None, ()) and name != "missing_marks"}
        title = f"{file.name}, target {table.target}"
        metadata = {"log": log, "exposure": exposure}
        study, final = _study(table, gp, title, outputs, validation, hints, settings, metadata, with_data)
    if as_json:
        print_json({**study.summary(), "files": {name: str(each) for name, each in outputs.items()}})
        return
    print_study(study, "rows")
    gone = table.num_rows - len(table.y)
    left_out = f"; {gone:,} with missing values {'is' if gone == 1 else 'are'} left out" if gone else ""
    kept = "; saved with its rows, which it predicts from" if _needs_rows(final) else ""
    used = f"conditioned on {len(table.y):,} of {table.num_rows:,} rows{left_out}{kept}"
    say(f"Model: {outputs['model']} ({used})\nReport: {outputs['report']}")


def _study(
    table: Any,
    gp: Any,
    title: str,
    outputs: Mapping[str, Path],
    validation: Mapping[str, Any],
    hints: tuple[str, ...],
    settings: Mapping[str, Any],
    metadata: Mapping[str, Any],
    with_data: bool,
) -> tuple[Any, Any]:
    """Fit a model to a part of a table, score it, condition it on all rows, and write it with a report."""
    from rfgp.files import made_folder, write_atomically
    from rfgp.report import study_table, table_report

    study = study_table(table, gp, title=title, **validation)
    study = replace(study, notes=(*study.notes, *hints))
    validation["report"]("Writing", 0, 0)
    page = table_report(study, table, settings=settings, command=command_line())
    with made_folder(outputs["model"].parent):
        final = copy(study.model).condition(table.frame(), table.y, **validation["row_options"])
        _save(final, table, outputs["model"], with_data, metadata)
        write_atomically(outputs["report"], page.encode())
    return study, final


def _check_options(
    model: ModelRequest, log: bool, noise_column: str | None, dry_run: bool, holdout: str, holdout_by: str | None
) -> None:
    """Check that options do not contradict each other."""
    check_model(model)
    if log and noise_column is not None:
        raise typer.BadParameter("--noise-column is of the target itself. Leave out --log.")
    if dry_run and model.kernel != "auto":
        raise typer.BadParameter("--dry-run shows the candidates of a selection, and --kernel names one. Leave it out.")
    if holdout_by is not None and holdout != "random":
        raise typer.BadParameter(f"--holdout {holdout} holds out rows by their order. Leave out --holdout-by.")


def _groups(path: Path, column: str, table: Any, form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the groups of a table's rows by a column, for `study_table`."""
    from rfgp.tables import read_groups

    groups = read_groups(path, column, rows=table.rows, **form)
    number = counted(len(set(groups.tolist())), "group")
    say(
        f"Rows are held out by {column}, in {number}. It is not an input, since its new values are unknown.",
        as_json=True,
    )
    return {"groups": groups, "split_by": column}


def _needs_rows(gp: Any) -> bool:
    """Return whether a model predicts from its rows."""
    from rfgp.saving import row_terms

    return bool(row_terms(gp.spec))


def _save(gp: Any, table: Any, path: Path, with_data: bool, metadata: Mapping[str, Any]) -> None:
    """Save a model of a table, with its rows if it needs them or they are asked for."""
    gp.metadata = {"schema": table.schema.to_dict(), **metadata}
    gp.save(path, data=with_data or _needs_rows(gp))


def _check_likelihood(gp: Any, log: bool, dry_run: bool, row_columns: Mapping[str, str]) -> None:
    """Check that the command supports the likelihood."""
    if log and not gp.spec.is_gaussian:
        raise typer.BadParameter("--log is for a gaussian likelihood.")
    if gp.spec.options.likelihood.num_latents > 1:
        if dry_run:
            raise typer.BadParameter("Several classes are not compared. Leave out --dry-run.")
        if row_columns:
            raise typer.BadParameter("Several classes take no exposures, noise or weights. Leave these columns out.")


def _hints(table: Any, request: ModelRequest, log: bool) -> tuple[str, ...]:
    """Print which class is 1, that two values may be classes, or that logarithms may fit better. Return the last."""
    import numpy as np

    from rfgp.report.study import scale_notes

    is_normal = request.likelihood in (None, "auto", "gaussian")
    if request.likelihood == "bernoulli" and table.classes is not None and len(table.classes) == 2:
        say(f"{table.target} is 1 for {table.classes[1]} and 0 for {table.classes[0]}.", as_json=True)
    if not is_normal or table.classes is not None:
        return ()
    if len(known := np.unique(table.y)) == 2:
        is_coded = known.tolist() == [0.0, 1.0]
        advice = "--likelihood bernoulli predicts probabilities" if is_coded else "code them 0 and 1 for classes"
        say(f"{table.target} has two values, {known[0]:g} and {known[1]:g}: {advice}.", as_json=True)
    notes = () if log else scale_notes(table.y, table.target)
    for note in notes:
        say(note, as_json=True)
    return notes


def _in_logarithms(table: Any) -> Any:
    """Return a table with the logarithms of its targets.

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


def _selected(table: Any, gp: Any, request: ModelRequest, values: Mapping[str, Any], report: Bar) -> tuple[Any, str]:
    """Return the selection of a model for a table, and the command that fits the best candidate."""
    from rfgp import approximations

    table.check_numeric_target(2 if request.likelihood == "bernoulli" else 0)

    def show(now: Any) -> None:
        report(now.stage, now.iteration, now.iterations)

    selection = gp.select(table.frame(), table.y, progress=show, **values)
    if selection.weights:
        return selection, typed_again("--dry-run", "--json")
    chosen = selection.chosen.options
    text = as_text(approximations.parse(chosen.get("approximation", "auto")))
    likelihood = None if request.likelihood == "gaussian" else request.likelihood or "auto"
    added = {"kernel": chosen["kernel"], "approximation": text, "likelihood": likelihood}
    return selection, typed_again("--dry-run", "--json", "--time-limit", "--validate", **added)


# --- Several classes -------------------------------------------------------------------------------------------------


def _fit_classes(
    table: Any, gp: Any, path: Path, validation: Mapping[str, Any], with_data: bool, as_json: bool
) -> None:
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
    if as_json:
        scores = {"accuracy": accuracy, "log_loss": loss, "most_frequent": most_frequent}
        sizes = {"target": table.target, "classes": classes, "train": len(train), "test": len(test)}
        print_json({**sizes, **scores, "files": {"model": str(path)}})
        return
    say(
        f"{table.target}: {len(classes)} classes, fitted to {len(train):,} rows.\n"
        f"Right class on {len(test):,} held-out rows: {100 * accuracy:.1f} % (the most frequent class: "
        f"{100 * most_frequent:.1f} %)\nLog loss: {loss:.4g} nats a row\n"
        f"Model: {path}. There is no report of several classes."
    )
